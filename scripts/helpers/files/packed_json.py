"""Compressed JSON, for lists in a state that would have too many entries as values of their own. Pure."""

from __future__ import annotations

import json
import zlib
from typing import Any

from scripts.helpers.protocol.chunks import plain_json

MAX_MARKS = 2_000_000
"""Values of packed JSON: the names of a quarter of a million files."""


def pack_json(value: Any) -> bytes:
    """Write a value as compressed JSON."""
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode("ascii"), 9)


def unpack_json(data: bytes, limit: int) -> Any:
    """Read what `pack_json` wrote, of at most so many bytes of text. ValueError if it is anything else."""
    inflate = zlib.decompressobj()
    try:
        text = inflate.decompress(data, limit)
    except zlib.error as error:
        raise ValueError("not compressed data") from error
    if not inflate.eof:
        raise ValueError("more than is ever packed, or less than a whole value")
    return plain_json(text, MAX_MARKS)
