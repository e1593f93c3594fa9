"""Compressed JSON, for lists in a state that would have too many entries as values of their own. Pure."""

from __future__ import annotations

import json
import zlib
from typing import Any

from scripts.helpers.protocol.fields import ImplausibleError

_MARKS = (b",", b"[", b"{")
MAX_MARKS = 2_000_000
"""Values of packed JSON: the names of a quarter of a million files."""


LIST_BYTES = 32
"""What a list counts besides its text, as a number in a list takes far longer to read and check than its digits do."""


def pack_json(value: Any) -> bytes:
    """Write a value as compressed JSON."""
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode("ascii"), 9)


def unpack_json(data: Any, limit: int, most: int = MAX_MARKS) -> Any:
    """Read what `pack_json` wrote, of at most so many bytes of text and values. ValueError if it is anything else."""
    return plain_json(inflated(data, limit), most)


def unpacked_size(value: Any, most: int) -> int:
    """Return how many bytes of packed JSON are read, lists counted as `LIST_BYTES` more; 0 of any other value.

    Text past `most` is not unpacked, and the size is more than `most` then.
    """
    try:
        text = zlib.decompressobj().decompress(value, most + 1)
    except (zlib.error, TypeError):
        return 0
    return len(text) + LIST_BYTES * text.count(b"[")


def inflated(data: Any, limit: int) -> bytes:
    """Decompress to at most so many bytes. ValueError for anything but one whole stream that holds no more."""
    inflate = zlib.decompressobj()
    try:
        found = inflate.decompress(data, limit)
    except (zlib.error, TypeError) as error:
        raise ValueError("not compressed data") from error
    if not inflate.eof or inflate.unused_data:
        raise ValueError("more or less than one compressed stream")
    return found


def plain_json(text: bytes, most: int) -> Any:
    """Read JSON of at most so many values and names. ValueError for anything else, however deeply it is nested.

    A megabyte of ``[[],[],`` takes thirty of memory, while one of long texts takes one. So values are counted first.
    """
    marks = sum(map(text.count, _MARKS))
    # The same characters may stand in a text. Only where there are many is it worth telling these apart.
    if marks > most:
        bare = text.replace(rb"\\", b"").replace(rb"\"", b"")
        quotes = bare.count(b'"')
        marks = quotes
        # Each value and each name has two quotes at most. With more, to cut there would take the memory to be saved.
        if quotes <= 4 * most:
            marks = sum(sum(map(outside.count, _MARKS)) for outside in bare.split(b'"')[::2])
    if marks > most:
        raise ImplausibleError(f"{marks:,} values, and the limit is {most:,}")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
