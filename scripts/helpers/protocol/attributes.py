"""Convert DynamoDB attributes to JSON, with binary in base64, and back. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

Attribute = Any
_AS_THEY_ARE = ("S", "N", "BOOL", "NULL")


def item_to_text(item: Mapping[str, Attribute]) -> str:
    """Return the attributes of an item as one JSON text."""
    return _ENCODER.encode(item)


def item_from_text(text: str) -> dict[str, Attribute]:
    """Read what `item_to_text` returned; raise one of the errors in `DAMAGE` for any other text."""
    return {name: from_json(attribute) for name, attribute in json.loads(text).items()}


def to_json(attribute: Attribute) -> Attribute:
    """Return an attribute as JSON, with sets sorted so that equal attributes give the same text."""
    ((tag, value),) = attribute.items()
    if tag in _AS_THEY_ARE:
        return attribute
    if tag == "B":
        return {"B": _text(value)}
    if tag == "BS":
        return {"BS": sorted(map(_text, value))}
    if tag == "M":
        return {"M": {name: to_json(item) for name, item in value.items()}}
    if tag == "L":
        return {"L": [to_json(item) for item in value]}
    return {tag: sorted(value)}


def from_json(attribute: Attribute) -> Attribute:
    """Read what `to_json` returned; raise ValueError for anything that is not a DynamoDB attribute."""
    ((tag, value),) = attribute.items()
    if tag in _AS_THEY_ARE:
        return attribute
    if tag == "B":
        return {"B": _bytes(value)}
    if tag == "BS":
        return {"BS": [_bytes(one) for one in value]}
    if tag == "M":
        return {"M": {name: from_json(item) for name, item in value.items()}}
    if tag == "L":
        return {"L": [from_json(item) for item in value]}
    if tag not in ("SS", "NS"):
        raise ValueError(f"no attribute of DynamoDB has the type {tag!r}")
    return attribute


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_text)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error
