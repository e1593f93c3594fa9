"""Half-open intervals of cursor values: merged, cut, and what is missing between them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scripts.helpers.rows.cursors import Cursor, as_list

Point = tuple[Cursor, ...]
"""One end of an interval, without the Nones at its end. The empty one is below everything."""
Interval = tuple[Point, Point | None]
"""``[low, high)``; a `high` of None is above everything."""
Span = tuple[Any, Any]
"""An interval as users see it: values, tuples of them for compound cursors, and None for no end."""


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the same values in as few intervals as there can be, in order."""
    result: list[Interval] = []
    for low, high in sorted(intervals, key=lambda interval: interval[0]):
        if not _is_below(low, high):
            continue
        if result and not _is_below(result[-1][1], low):
            if _is_below(result[-1][1], high):
                result[-1] = (result[-1][0], high)
        else:
            result.append((low, high))
    return result


def missing(wanted: Interval, covered: Iterable[Interval]) -> list[Interval]:
    """Return the parts of an interval that no other one covers, in order."""
    gaps: list[Interval] = []
    low: Point | None = wanted[0]
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


def overlap(one: Interval, other: Interval) -> bool:
    """Tell whether two intervals have a value in common; neither is empty."""
    return _is_below(one[0], other[1]) and _is_below(other[0], one[1])


def cut_at(intervals: Iterable[Interval], ends: Iterable[Point | None]) -> list[Interval]:
    """Return the same intervals, in order, each parted at the ends that lie within it."""
    cuts = sorted({end for end in ends if end})
    result: list[Interval] = []
    for low, high in intervals:
        within = [cut for cut in cuts if low < cut and _is_below(cut, high)]
        result += zip([low, *within], [*within, high], strict=True)
    return result


def point(bound: Any) -> Point:
    """Return one end as it is compared: a value, or several of a compound cursor; None is below everything."""
    values = as_list(bound)
    while values and values[-1] is None:
        values.pop()
    return tuple(values)


def span(interval: Interval, columns: int = 1) -> Span:
    """Return an interval as users see it."""
    return _shown(interval[0], columns), _shown(interval[1] or (), columns)


def _shown(end: Point, columns: int) -> Any:
    if not end:
        return None
    return end[0] if columns == 1 else (*end, *[None] * (columns - len(end)))


def _is_below(one: Point | None, other: Point | None) -> bool:
    """Compare two ends of which None is above everything."""
    return one is not None and (other is None or one < other)
