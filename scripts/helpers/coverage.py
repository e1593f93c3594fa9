"""Which cursor values of a source were read: merged intervals, and what is missing between them. Pure.

An interval is half-open and rising, whatever order the job reads in. What live runs covered stands
in the state of their context; what backfills covered is the state of a job of its own. Both belong
to an *origin*: it names the life of a context between two resets, so that a reset forgets them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from scripts.helpers.cursors import Bound, Cursor, CursorColumn, check_value
from scripts.helpers.errors import CursorError

Point = tuple[Cursor, ...]
"""One end of an interval, without the Nones at its end. The empty one is below everything."""
Interval = tuple[Point, Point | None]
"""``[low, high)``; a `high` of None is above everything."""
Span = tuple[Any, Any]
"""An interval as users see it: values, tuples of them for compound cursors, and None for no end."""


# --- arithmetic ---------------------------------------------------------------------------------


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


def _is_below(one: Point | None, other: Point | None) -> bool:
    """Compare two ends of which None is above everything."""
    return one is not None and (other is None or one < other)


def point(bound: Any) -> Point:
    """Return one end as it is compared: a value, or several of a compound cursor; None is below everything."""
    values = _as_list(bound)
    while values and values[-1] is None:
        values.pop()
    return tuple(values)


def span(interval: Interval, columns: int = 1) -> Span:
    """Return an interval as users see and store it."""
    return _shown(interval[0], columns), _shown(interval[1] or (), columns)


def _shown(end: Point, columns: int) -> Any:
    if not end:
        return None
    return end[0] if columns == 1 else (*end, *[None] * (columns - len(end)))


# --- states -------------------------------------------------------------------------------------


def is_rows(state: object) -> bool:
    """Tell whether a state is that of a rows context."""
    return isinstance(state, Mapping) and state.get("kind") == "rows"


def covered_by(state: Mapping[str, Any]) -> list[Interval]:
    """Return what a state says is covered; CursorError for what does not fit its columns.

    A state from before coverage was kept has read everything up to its value.
    """
    if "covered" not in state and "origin" not in state:
        end = point(state.get("value"))
        return [((), end)] if end else []
    stored, types = state.get("covered", []), types_of(state)
    if not isinstance(stored, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in stored):
        raise CursorError(
            str(state.get("cursor_column")), "its coverage is no list of pairs. Reset the watermark by hand."
        )
    return merged((_checked(low, types), _checked(high, types) or None) for low, high in stored)


def _checked(bound: Any, types: Sequence[str]) -> Point:
    end = point(bound)
    return tuple(check_value(value, kind) for value, kind in zip(end, types, strict=False))


def with_coverage(
    state: Mapping[str, Any], before: Mapping[str, Any] | None, read: Iterable[Interval], origin: str
) -> dict[str, Any]:
    """Return the state that follows another one once some intervals are read as well."""
    covered = merged([*(covered_by(before) if before else []), *read])
    if before:
        origin = before.get("origin", "")
    return {**state, "covered": to_store(covered, len(types_of(state))), "origin": origin}


def to_store(intervals: Iterable[Interval], columns: int) -> list[list[Any]]:
    """Return intervals as a state holds them."""
    spans = (span(interval, columns) for interval in intervals)
    return [[list(end) if isinstance(end, tuple) else end for end in pair] for pair in spans]


def kept(values: Mapping[str, Any], before: object, origin: str) -> dict[str, Any]:
    """Return a state set by hand with the coverage of the one it replaces, if that is of the same cursor.

    What lies between the two values was not read and becomes a gap.
    """
    if not is_rows(values):
        return dict(values)
    fields: Any = before if is_rows(before) else {}
    if fields and all(fields.get(name) == values.get(name) for name in ("cursor_column", "type", "descending")):
        return with_coverage(values, fields, [], origin) | dict(values)
    return {"origin": origin, **values}


def read_by(columns: Sequence[CursorColumn], low: Bound | None, high: Bound | None, descending: bool) -> list[Interval]:
    """Return the interval that a window reads, none if it is empty."""
    if high is None or low == high:
        return []
    if not descending:
        return [(point(low), point(high))]
    return [(_just_above(columns, point(high)), _just_above(columns, point(low)) if low else None)]


def region(state: Mapping[str, Any]) -> Interval:
    """Return what a live job has gone past: everything below its watermark, or above it if it descends."""
    end = point(state.get("value"))
    if not end:
        return (), ()
    if not state.get("descending"):
        return (), end
    columns = [CursorColumn("", kind) for kind in types_of(state)]
    return _just_above(columns, end), None


def fitting(state: Mapping[str, Any], bound: Any, what: str) -> Point:
    """Return a bound that a person gives, checked against a state's columns; CursorError if it does not fit."""
    names, types, end = state.get("cursor_column"), types_of(state), point(bound)
    columns = [CursorColumn(str(name), kind) for name, kind in zip(_as_list(names), types, strict=False)]
    if len(end) > len(columns):
        raise CursorError(str(names), f"{what} has {len(end)} values and the cursor {len(columns)}.")
    return tuple(column.given(value, what) for column, value in zip(columns, end, strict=False))


def types_of(state: Mapping[str, Any]) -> list[str]:
    """Return the types of a state's cursor columns."""
    return [str(kind) for kind in _as_list(state.get("type"))]


def _as_list(stored: Any) -> list[Any]:
    return list(stored) if isinstance(stored, list | tuple) else [stored]


def _just_above(columns: Sequence[CursorColumn], end: Point) -> Point:
    return (*end[:-1], columns[len(end) - 1].next_above(end[-1]))


def record_id(job_id: str, context: str, state: Mapping[str, Any]) -> str:
    """Return the job whose watermarks are what backfills of a context have covered."""
    return f"{job_id}-coverage-{digest(context, state.get('origin', ''))}"


def digest(*parts: str) -> str:
    """Return a short name for texts, from which none of them can be read."""
    return sha256(repr(parts).encode()).hexdigest()[:16]
