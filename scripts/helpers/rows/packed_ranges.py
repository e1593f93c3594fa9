"""Ranges of cursor values as states and records hold them: compressed JSON, checked as it is read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.protocol.fields import ImplausibleError
from scripts.helpers.protocol.packed_json import pack_json, unpack_json
from scripts.helpers.rows.cursor_ranges import CursorRange, RangeEnd
from scripts.helpers.rows.cursors import TEXTS, Cursor, as_number, check_value, from_number

MAX_RANGES = 20_000
"""Of one entry of a state, or of one record: twice as many as `slices` makes. Ranges that touch are one."""
MAX_RAW_BYTES, MAX_MARKS = 4 * 1024 * 1024, 800_000
"""Most that is decompressed: a few kilobytes that somebody put there could fill the memory of a driver otherwise."""


def encode_ranges(groups: Mapping[str, Iterable[CursorRange]], types: Sequence[str], besides: int = 0) -> bytes:
    """Return lists of ranges, by name, as a state holds them; InvalidValueError for more than are read back.

    `besides` is how many ranges the same record has elsewhere: no slice that begins may find no room once it is done.

    >>> decode_ranges(encode_ranges({"o1": [((), (5,)), ((7,), None)]}, ["bigint"]), ["bigint"])
    {'o1': [((), (5,)), ((7,), None)]}
    """
    packed = pack_json({name: list(_coded(intervals, types)) for name, intervals in groups.items()})
    try:
        _unpacked(packed, MAX_RANGES - besides)
    except ValueError:
        raise InvalidValueError(
            f"A context and the record of its backfills hold at most {MAX_RANGES:,} ranges each that do not touch. "
            "Finish the slices that are begun, or read what gaps() returns: ranges that touch become one."
        ) from None
    return packed


def decode_ranges(stored: object, types: Sequence[str], name: str = "coverage") -> dict[str, list[CursorRange]]:
    """Read what `encode_ranges` wrote; ImplausibleError, which names the field, for anything else."""
    try:
        return {group: _decoded(ends, types) for group, ends in _unpacked(stored, MAX_RANGES).items()}
    except (ValueError, TypeError, AttributeError, ArithmeticError, LookupError) as error:
        raise ImplausibleError(f"{name} is not ranges of its cursor") from error


def _unpacked(stored: object, most: int) -> Mapping[str, Any]:
    """Return the ends of ranges, by name; ValueError for more ranges than this."""
    coded: Mapping[str, Any] = unpack_json(stored, MAX_RAW_BYTES, MAX_MARKS)
    if sum(map(len, coded.values())) > 2 * most:
        raise ValueError("too many ranges")
    return coded


def _coded(ranges: Iterable[CursorRange], types: Sequence[str]) -> Iterator[list[int | str] | None]:
    """Write the ends one after the other; no end at all is below everything as low, above it as high.

    The first number of an end is written as its distance from that of the end before. Slices of equal width repeat
    the same few digits then: 10,000 of them compress to 0.5 kB instead of 44 kB, and every change writes them anew.
    """
    before = 0
    for cursor_range in ranges:
        for end in cursor_range:
            codes: list[Any] = []
            for value, kind in zip(end or (), types, strict=False):
                # Whole numbers: JSON's other numbers are floats to most readers.
                codes.append(value if kind in TEXTS else as_number(value, kind))
            if codes and isinstance(codes[0], int):
                distance = codes[0] - before
                before = codes[0]
                codes[0] = distance
            yield codes or None


def _decoded(ends: Any, types: Sequence[str]) -> list[CursorRange]:
    before = 0
    read: list[RangeEnd] = []
    for codes in ends:
        if codes is not None and not 0 < len(codes) <= len(types):
            raise ValueError("more values than columns")
        # By `type`, as True is an int for isinstance.
        if codes and type(codes[0]) is int:
            before = codes[0] = before + codes[0]
        read.append(tuple(_value(code, kind) for code, kind in zip(codes or (), types, strict=False)))
    if len(read) % 2:
        raise ValueError("an end is missing")
    ranges: list[CursorRange] = []
    for low, high in zip(read[::2], read[1::2], strict=True):
        if high and not low < high:
            raise ValueError("a range without values")
        ranges.append((low, high or None))
    return ranges


def _value(code: object, kind: str) -> Cursor:
    value: object = code
    if kind not in TEXTS:
        if type(code) is not int:
            raise TypeError("not a whole number")
        value = from_number(code, kind)
    return check_value(value, kind)
