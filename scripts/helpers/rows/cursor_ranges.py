"""Half-open ranges of cursor values: merged, cut, and what is uncovered between them. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.protocol.fields import ImplausibleError
from scripts.helpers.protocol.packed_json import pack_json, unpack_json
from scripts.helpers.rows.cursors import TEXTS, Cursor, as_list, as_number, check_value, from_number

# --- packed ranges --------------------------------------------------------------------------------
# Ranges of cursor values as states and records hold them: compressed JSON, checked as it is read.

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


# --- cursor ranges --------------------------------------------------------------------------------

RangeEnd = tuple[Cursor, ...]
"""One end of a range, without the Nones at its end. The empty one is below everything."""
CursorRange = tuple[RangeEnd, RangeEnd | None]
"""``[low, high)``; a `high` of None is above everything."""
ShownRange = tuple[Any, Any]
"""A range as users see it: values, tuples of them for compound cursors, and None for no end."""


def merged(ranges: Iterable[CursorRange]) -> list[CursorRange]:
    """Return the same values in as few ranges as there can be, in order."""
    result: list[CursorRange] = []
    # By the low end only: a high end of None does not compare.
    for low, high in sorted(ranges, key=lambda one: one[0]):
        is_empty = not _is_below(low, high)
        if is_empty:
            continue
        # Ranges that only touch are one: [1, 3) and [3, 5) leave out nothing between them.
        touches_last = bool(result) and not _is_below(result[-1][1], low)
        if not touches_last:
            result.append((low, high))
        elif _is_below(result[-1][1], high):
            result[-1] = (result[-1][0], high)
    return result


def uncovered(wanted: CursorRange, covered: Iterable[CursorRange]) -> list[CursorRange]:
    """Return the parts of a range that no other one covers, in order."""
    gaps: list[CursorRange] = []
    low: RangeEnd | None = wanted[0]
    for start, end in merged(covered):
        # `low` is None once all is covered up to the very end; a range that starts past `wanted` covers none of it.
        if low is None or not _is_below(start, wanted[1]):
            break
        if _is_below(low, start):
            gaps.append((low, start))
        # A range that ends before `low` lies below what is wanted, and must not set `low` back.
        if _is_below(low, end):
            low = end
    if low is not None and _is_below(low, wanted[1]):
        gaps.append((low, wanted[1]))
    return gaps


def overlap(one: CursorRange, other: CursorRange) -> bool:
    """Tell whether two ranges have a value in common; neither is empty."""
    return _is_below(one[0], other[1]) and _is_below(other[0], one[1])


def cut_at(ranges: Iterable[CursorRange], ends: Iterable[RangeEnd | None]) -> list[CursorRange]:
    """Return the same ranges, in order, each cut at the ends that lie within it."""
    cuts = sorted({end for end in ends if end})
    result: list[CursorRange] = []
    for low, high in ranges:
        # A cut at an end of the range would leave a range without values.
        first, last = bisect_right(cuts, low), len(cuts) if high is None else bisect_left(cuts, high)
        inner = cuts[first:last]
        result += zip([low, *inner], [*inner, high], strict=True)
    return result


def range_end(bound: Any) -> RangeEnd:
    """Return one end as it is compared: a value, or several of a compound cursor; None is below everything."""
    # Without the Nones at its end, Python's order of tuples is that of cursors: (5,) is below (5, 1), and None,
    # which no value compares with, is not there.
    values = as_list(bound)
    while values and values[-1] is None:
        values.pop()
    return tuple(values)


def shown_range(cursor_range: CursorRange, columns: int = 1) -> ShownRange:
    """Return a range as users see it."""
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
    """Compare two ends of which None is above everything."""
    if one is None:
        return False
    return other is None or one < other
