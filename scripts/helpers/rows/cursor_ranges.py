"""Half-open intervals of cursor values: merged, cut, and what is missing between them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scripts.helpers.rows.cursors import Cursor, as_list

RangeEnd = tuple[Cursor, ...]
"""One end of an interval, without the Nones at its end. The empty one is below everything."""
CursorRange = tuple[RangeEnd, RangeEnd | None]
"""``[low, high)``; a `high` of None is above everything."""
ShownRange = tuple[Any, Any]
"""An interval as users see it: values, tuples of them for compound cursors, and None for no end."""


def merged(intervals: Iterable[CursorRange]) -> list[CursorRange]:
    """Return the same values in as few intervals as there can be, in order."""
    result: list[CursorRange] = []
    for low, high in sorted(intervals, key=lambda interval: interval[0]):
        if not _is_below(low, high):
            continue
        if result and not _is_below(result[-1][1], low):
            if _is_below(result[-1][1], high):
                result[-1] = (result[-1][0], high)
        else:
            result.append((low, high))
    return result


def uncovered(wanted: CursorRange, covered: Iterable[CursorRange]) -> list[CursorRange]:
    """Return the parts of an interval that no other one covers, in order."""
    gaps: list[CursorRange] = []
    low: RangeEnd | None = wanted[0]
    for start, end in merged(covered):
        if low is None or not _is_below(start, wanted[1]):
            break
        if _is_below(low, start):
            gaps.append((low, start))
        if _is_below(low, end):
            low = end
    if low is not None and _is_below(low, wanted[1]):
        gaps.append((low, wanted[1]))
    return gaps


def overlap(one: CursorRange, other: CursorRange) -> bool:
    """Tell whether two intervals have a value in common; neither is empty."""
    return _is_below(one[0], other[1]) and _is_below(other[0], one[1])


def cut_at(intervals: Iterable[CursorRange], ends: Iterable[RangeEnd | None]) -> list[CursorRange]:
    """Return the same intervals, in order, each parted at the ends that lie within it."""
    cuts = sorted({end for end in ends if end})
    result: list[CursorRange] = []
    for low, high in intervals:
        within = [cut for cut in cuts if low < cut and _is_below(cut, high)]
        result += zip([low, *within], [*within, high], strict=True)
    return result


def range_end(bound: Any) -> RangeEnd:
    """Return one end as it is compared: a value, or several of a compound cursor; None is below everything."""
    values = as_list(bound)
    while values and values[-1] is None:
        values.pop()
    return tuple(values)


def shown_range(interval: CursorRange, columns: int = 1) -> ShownRange:
    """Return an interval as users see it."""
    return _shown(interval[0], columns), _shown(interval[1] or (), columns)


def _shown(end: RangeEnd, columns: int) -> Any:
    if not end:
        return None
    return end[0] if columns == 1 else (*end, *[None] * (columns - len(end)))


def _is_below(one: RangeEnd | None, other: RangeEnd | None) -> bool:
    """Compare two ends of which None is above everything."""
    return one is not None and (other is None or one < other)
