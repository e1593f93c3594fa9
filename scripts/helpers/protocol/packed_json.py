"""Compressed JSON, for lists that are longer than the 2,000 entries that a stored state may have. Pure."""

from __future__ import annotations

import json
import zlib
from typing import Any

from scripts.helpers.protocol.fields import ImplausibleError

_MARKS = (b",", b"[", b"{")
MAX_MARKS = 2_000_000
"""Values in one packed JSON: enough for the names of a quarter of a million files."""


LIST_BYTES = 32
"""Bytes that `unpacked_size` adds for each list, because reading and checking lists takes longer than their text."""


def pack_json(value: Any) -> bytes:
    """Return a value as compressed JSON."""
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode("ascii"), 9)


def unpack_json(data: Any, limit: int, most: int = MAX_MARKS) -> Any:
    """Read what `pack_json` wrote, up to `limit` bytes of text and `most` values; ValueError for anything else."""
    return plain_json(inflated(data, limit), most)


def unpacked_size(value: Any, most: int) -> int:
    """Return the unpacked size of packed JSON, plus `LIST_BYTES` for each list; 0 for any other value.

    Text past `most` bytes is not unpacked; the size is then more than `most`.
    """
    try:
        text = zlib.decompressobj().decompress(value, most + 1)
    except (zlib.error, TypeError):
        return 0
    return len(text) + LIST_BYTES * text.count(b"[")


def inflated(data: Any, limit: int) -> bytes:
    """Return decompressed data; ValueError unless it is one whole stream that yields at most `limit` bytes."""
    inflate = zlib.decompressobj()
    try:
        found = inflate.decompress(data, limit)
    except (zlib.error, TypeError) as error:
        raise ValueError("not compressed data") from error
    if not inflate.eof or inflate.unused_data:
        raise ValueError("more or less than one compressed stream")
    return found


def plain_json(text: bytes, most: int) -> Any:
    """Return parsed JSON of at most `most` values and names; raise ValueError for more, or for what is not JSON.

    Values are counted before parsing: a megabyte of ``[[],[],`` takes 30 MB of memory, one of long texts just 1 MB.
    """
    marks = sum(map(text.count, _MARKS))
    # Count every comma and bracket first. Leaving out those in quoted texts is slow, and rarely needed.
    if marks > most:
        bare = text.replace(rb"\\", b"").replace(rb"\"", b"")
        quotes = bare.count(b'"')
        marks = quotes
        # A value or name has at most two quotes, so very many quotes prove too many values. Then skip the slow count.
        if quotes <= 4 * most:
            marks = sum(sum(map(outside.count, _MARKS)) for outside in bare.split(b'"')[::2])
    if marks > most:
        raise ImplausibleError(f"{marks:,} values, and the limit is {most:,}")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
