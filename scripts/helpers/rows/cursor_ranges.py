"""Half-open ranges of cursor values: merged, cut, and what is uncovered between them. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Any

from scripts.helpers.rows.cursors import Cursor, as_list

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
