"""Half-open ranges of cursor values: merge them, cut them, and find the gaps between them. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.protocol.fields import ImplausibleError
from scripts.helpers.protocol.packed_json import pack_json, unpack_json
from scripts.helpers.rows.cursors import TEXTS, Cursor, as_list, as_number, check_value, from_number

# --- packed ranges --------------------------------------------------------------------------------
# States and records store ranges of cursor values as compressed JSON, which is checked as it is read.

MAX_RANGES = 20_000
"""Most ranges in a state or a record of backfills: twice the most slices of one backfill. Those that touch are one."""
MAX_RAW_BYTES, MAX_MARKS = 4 * 1024 * 1024, 800_000
"""Limits of what is decompressed: a few kilobytes of manipulated data could fill the memory of a driver otherwise."""


def encode_ranges(groups: Mapping[str, Iterable[CursorRange]], types: Sequence[str], besides: int = 0) -> bytes:
    """Return named groups of ranges as a state stores them; InvalidValueError for more than MAX_RANGES in all.

    `besides` is added to their number: finished slices have read so many ranges, and those in `groups` will join them.

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
    """Read what `encode_ranges` wrote; raise ImplausibleError, which names the field, if it is anything else."""
    try:
        return {group: _decoded(ends, types) for group, ends in _unpacked(stored, MAX_RANGES).items()}
    except (ValueError, TypeError, AttributeError, ArithmeticError, LookupError) as error:
        raise ImplausibleError(f"{name} is not ranges of its cursor") from error


def _unpacked(stored: object, most: int) -> Mapping[str, Any]:
    """Unpack the ranges of each group, such as a backfill, as `_coded` made them; ValueError if over `most` ranges."""
    coded: Mapping[str, Any] = unpack_json(stored, MAX_RAW_BYTES, MAX_MARKS)
    if sum(map(len, coded.values())) > 2 * most:
        raise ValueError("too many ranges")
    return coded


def _coded(ranges: Iterable[CursorRange], types: Sequence[str]) -> Iterator[list[int | str] | None]:
    """Yield the coded ends of ranges: low, high, low, high and so on. An end without a bound is None.

    The first number of an end is coded as its distance from the first number of the previous end. Slices of equal width
    then repeat the same digits, so 10,000 slices, which every change stores, take 0.5 kB instead of 44 kB.
    """
    before = 0
    for cursor_range in ranges:
        for end in cursor_range:
            codes: list[Any] = []
            for value, kind in zip(end or (), types, strict=False):
                # Store only whole numbers, because most readers of JSON turn all other numbers into floats.
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
        # Compare the type, because True is an int for isinstance.
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


# --- cursor ranges --------------------------------------------------------------------------------

RangeEnd = tuple[Cursor, ...]
"""One end of a range, without trailing Nones. The empty tuple is below all values."""
CursorRange = tuple[RangeEnd, RangeEnd | None]
"""``[low, high)``; a `high` of None is above all values."""
ShownRange = tuple[Any, Any]
"""A range as users see it: values, or tuples of values for compound cursors; None for an open end."""


def merged(ranges: Iterable[CursorRange]) -> list[CursorRange]:
    """Return, in order, the fewest ranges that together cover the same values as `ranges`."""
    result: list[CursorRange] = []
    # Sort by the low end only, because a high end of None cannot be compared.
    for low, high in sorted(ranges, key=lambda one: one[0]):
        is_empty = not _is_below(low, high)
        if is_empty:
            continue
        # Ranges that only touch are merged: there is no value between [1, 3) and [3, 5).
        touches_last = bool(result) and not _is_below(result[-1][1], low)
        if not touches_last:
            result.append((low, high))
        elif _is_below(result[-1][1], high):
            result[-1] = (result[-1][0], high)
    return result


def uncovered(wanted: CursorRange, covered: Iterable[CursorRange]) -> list[CursorRange]:
    """Return the parts of the range `wanted` that none of the `covered` ranges covers, in order."""
    gaps: list[CursorRange] = []
    low: RangeEnd | None = wanted[0]
    for start, end in merged(covered):
        # Stop once everything up to the very end is covered (`low` is None), or at a range that starts past `wanted`.
        if low is None or not _is_below(start, wanted[1]):
            break
        if _is_below(low, start):
            gaps.append((low, start))
        # A range that ends before `low` must not set `low` back.
        if _is_below(low, end):
            low = end
    if low is not None and _is_below(low, wanted[1]):
        gaps.append((low, wanted[1]))
    return gaps


def overlap(one: CursorRange, other: CursorRange) -> bool:
    """Return whether two ranges, neither of them empty, have a value in common."""
    return _is_below(one[0], other[1]) and _is_below(other[0], one[1])


def cut_at(ranges: Iterable[CursorRange], ends: Iterable[RangeEnd | None]) -> list[CursorRange]:
    """Return the ranges in order, each cut at those `ends` that are inside it."""
    cuts = sorted({end for end in ends if end})
    result: list[CursorRange] = []
    for low, high in ranges:
        # Do not cut at an end of the range, which would make an empty range.
        first, last = bisect_right(cuts, low), len(cuts) if high is None else bisect_left(cuts, high)
        inner = cuts[first:last]
        result += zip([low, *inner], [*inner, high], strict=True)
    return result


def range_end(bound: Any) -> RangeEnd:
    """Return a bound as a tuple that can be compared: ``5`` and ``(5, None)`` give ``(5,)``, and None gives ``()``."""
    # Remove trailing Nones, which Python cannot compare with values. Without them Python orders tuples as cursors are
    # ordered: () is below all values, and (5,) is below (5, 1).
    values = as_list(bound)
    while values and values[-1] is None:
        values.pop()
    return tuple(values)


def shown_range(cursor_range: CursorRange, columns: int = 1) -> ShownRange:
    """Return a range as users see it, such as ``(5, None)`` for ``((5,), None)`` if the cursor has one column."""
    low, high = cursor_range
    return _shown(low, columns), _shown(high or (), columns)


def _shown(end: RangeEnd, columns: int) -> Any:
    if not end:
        return None
    if columns == 1:
        return end[0]
    left_out = [None] * (columns - len(end))
    return (*end, *left_out)


def _is_below(one: RangeEnd | None, other: RangeEnd | None) -> bool:
    """Return whether an end is below another one; None is above all values."""
    if one is None:
        return False
    return other is None or one < other
