"""Convert DynamoDB attributes to JSON, with binary in base64, and back. Pure."""

from __future__ import annotations

import base64
import binascii
from typing import Any

Attribute = Any


def to_json(attribute: Attribute) -> Attribute:
    """Return an attribute as JSON, with sets sorted so that equal attributes give the same text."""
    ((tag, value),) = attribute.items()
    if tag == "B":
        return {"B": base64.b64encode(value).decode("ascii")}
    if tag == "BS":
        return {"BS": sorted(base64.b64encode(one).decode("ascii") for one in value)}
    if tag == "M":
        return {"M": {name: to_json(item) for name, item in value.items()}}
    if tag == "L":
        return {"L": [to_json(item) for item in value]}
    return {tag: sorted(value) if tag in ("SS", "NS") else value}


def from_json(attribute: Attribute) -> Attribute:
    """Read what `to_json` returned; raise ValueError for anything that is not a DynamoDB attribute."""
    ((tag, value),) = attribute.items()
    if tag == "B":
        return {"B": _bytes(value)}
    if tag == "BS":
        return {"BS": [_bytes(one) for one in value]}
    if tag == "M":
        return {"M": {name: from_json(item) for name, item in value.items()}}
    if tag == "L":
        return {"L": [from_json(item) for item in value]}
    if tag not in ("S", "N", "BOOL", "NULL", "SS", "NS"):
        raise ValueError(f"no attribute of DynamoDB has the type {tag!r}")
    return {tag: value}


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error
