"""Named lists of intervals <-> one stored value: exact, checked, and small enough for ten thousand of them. Pure.

The value is compressed JSON. A time is written as microseconds since 1970, a date as days, a
Decimal as steps of its column; the first column of each end as what it adds to the end before.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from scripts.helpers.cursors import EPOCH, EXACT, MICROSECOND, Cursor, check_value, decimal_type
from scripts.helpers.errors import CursorError
from scripts.helpers.intervals import Interval

MAX_RAW_BYTES = 64 * 1024 * 1024
"""Most that is decompressed."""


def pack(groups: Mapping[str, Iterable[Interval]], types: Sequence[str]) -> bytes:
    """Return lists of intervals, by name, as a state holds them.

    >>> unpack(pack({"o1": [((), (5,)), ((7,), None)]}, ["bigint"]), ["bigint"])
    {'o1': [((), (5,)), ((7,), None)]}
    """
    coded = {name: list(_coded(intervals, types)) for name, intervals in groups.items()}
    return zlib.compress(json.dumps(coded, separators=(",", ":")).encode("ascii"))


def unpack(stored: object, types: Sequence[str], name: str = "coverage") -> dict[str, list[Interval]]:
    """Read what `pack` wrote; CursorError for anything else, as after tampering."""
    try:
        coded = json.loads(_inflated(stored))
        return {group: _decoded(ends, types) for group, ends in coded.items()}
    except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError, zlib.error, CursorError) as error:
        raise CursorError(name, "its coverage cannot be read. Reset the watermark by hand.") from error


def _inflated(stored: object) -> bytes:
    if not isinstance(stored, bytes):
        raise TypeError("not bytes")
    inflate = zlib.decompressobj()
    raw = inflate.decompress(stored, MAX_RAW_BYTES)
    if not inflate.eof or inflate.unused_data:
        raise ValueError("more or less than one compressed stream")
    return raw


def _coded(intervals: Iterable[Interval], types: Sequence[str]) -> Iterator[list[int | str] | None]:
    """Write the ends one after the other; no end at all is below everything as low, above it as high."""
    before = 0
    for interval in intervals:
        for end in interval:
            codes = [_code(value, kind) for value, kind in zip(end or (), types, strict=False)]
            if codes and isinstance(codes[0], int):
                before, codes[0] = codes[0], codes[0] - before
            yield codes or None


def _decoded(ends: Any, types: Sequence[str]) -> list[Interval]:
    before, points = 0, []
    for codes in ends:
        if codes is not None and not 0 < len(codes) <= len(types):
            raise ValueError("more values than columns")
        if codes and type(codes[0]) is int:
            before = codes[0] = before + codes[0]
        points.append(tuple(_value(code, kind) for code, kind in zip(codes or (), types, strict=False)))
    if len(points) % 2:
        raise ValueError("an end is missing")
    intervals: list[Interval] = [(low, high or None) for low, high in zip(points[::2], points[1::2], strict=True)]
    if not all(high is None or low < high for low, high in intervals):
        raise ValueError("an interval without values")
    return intervals


def _code(value: Cursor, kind: str) -> int | str:
    if isinstance(value, datetime):
        return (value - EPOCH) // MICROSECOND
    if isinstance(value, date):
        return value.toordinal()
    return int(EXACT.scaleb(value, decimal_type(kind)[1])) if isinstance(value, Decimal) else value


def _value(code: object, kind: str) -> Cursor:
    value: object = code
    if kind != "string":
        if type(code) is not int:
            raise TypeError("not a whole number")
        if kind in ("timestamp", "timestamp_ntz"):
            value = EPOCH + code * MICROSECOND
        elif kind == "date":
            value = date.fromordinal(code)
        elif decimal_type(kind)[0]:
            value = EXACT.scaleb(Decimal(code), -decimal_type(kind)[1])
    return check_value(value, kind)
