"""What a rows context has read, as its state remembers it, and the jobs that backfills of it are. Pure.

An interval is rising, whatever order the job reads in. What live runs covered stands in the state of
their context; what backfills covered is the state of a job of its own. Both belong to an *origin*: it
names the life of a context between two resets, so that a reset forgets them too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from scripts.helpers.cursors import Bound, CursorColumn, as_list, check_value
from scripts.helpers.errors import CursorError
from scripts.helpers.intervals import Interval, Point, merged, point
from scripts.helpers.packed_intervals import pack, unpack

MAX_NAME = 255
_DERIVED = re.compile(r"(.+)-(?:backfill|coverage)-[0-9a-f]{16}", re.DOTALL)


# --- states -------------------------------------------------------------------------------------


def is_rows(state: object) -> bool:
    """Tell whether a state is that of a rows context."""
    return isinstance(state, Mapping) and state.get("kind") == "rows"


def covered_by(state: Mapping[str, Any]) -> list[Interval]:
    """Return what a state says is covered; CursorError for what does not fit its columns.

    A state from before coverage was kept has read everything that it has gone past.
    """
    return _coverage(state)[1]


def origin_of(state: Mapping[str, Any]) -> str:
    """Return the life of its context that a state belongs to."""
    return _coverage(state)[0]


def _coverage(state: Mapping[str, Any]) -> tuple[str, list[Interval]]:
    if "covered" not in state:
        return "", merged([region(state)])
    groups = unpack(state["covered"], types_of(state), str(state.get("cursor_column")))
    if len(groups) != 1:
        raise CursorError(str(state.get("cursor_column")), "its coverage has no origin. Reset the watermark by hand.")
    ((origin, covered),) = groups.items()
    return origin, merged(covered)


def with_coverage(
    state: Mapping[str, Any], before: Mapping[str, Any] | None, read: Iterable[Interval], origin: str
) -> dict[str, Any]:
    """Return the state that follows another one once some intervals are read as well."""
    covered: list[Interval] = []
    if before:
        origin, covered = _coverage(before)
    return {**state, "covered": pack({origin: merged([*covered, *read])}, types_of(state))}


def kept(values: Mapping[str, Any], before: object, origin: str) -> dict[str, Any]:
    """Return a state set by hand with the coverage of the one it replaces, if that is of the same cursor.

    What lies between the two values was not read and becomes a gap.
    """
    if not is_rows(values):
        return dict(values)
    if "covered" in values:
        covered_by(values)
        return dict(values)
    earlier: Any = before if is_rows(before) else None
    if earlier and not all(
        _same(values.get(name), earlier.get(name)) for name in ("cursor_column", "type", "descending")
    ):
        earlier = None
    return with_coverage(values, earlier, [], origin)


def _same(one: object, other: object) -> bool:
    return one == other or not (one or other)


def read_by(columns: Sequence[CursorColumn], low: Bound | None, high: Bound | None, descending: bool) -> list[Interval]:
    """Return the interval that a window reads between two bounds, none if it is empty."""
    if high is None or low == high:
        return []
    if not descending:
        return [(point(low), point(high))]
    return [(_just_above(columns, point(high)), _just_above(columns, point(low)) if low else None)]


def region(state: Mapping[str, Any]) -> Interval:
    """Return what a live job has gone past: everything below its watermark, or above it if it descends."""
    end, types = point(state.get("value")), types_of(state)
    if len(end) > len(types):
        raise CursorError(str(state.get("cursor_column")), "its value has too many parts. Reset the watermark by hand.")
    end = tuple(check_value(value, kind) for value, kind in zip(end, types, strict=False))
    if not end:
        return (), ()
    if not state.get("descending"):
        return (), end
    try:
        return _just_above([CursorColumn("", kind) for kind in types], end), None
    except OverflowError:
        return (), ()


def fitting(state: Mapping[str, Any], bound: Any, what: str) -> Point:
    """Return a bound that a person gives, checked against a state's columns; CursorError if it does not fit."""
    names, types, end = state.get("cursor_column"), types_of(state), point(bound)
    columns = [CursorColumn(str(name), kind) for name, kind in zip(as_list(names), types, strict=False)]
    if len(end) > len(columns):
        raise CursorError(str(names), f"{what} has {len(end)} values and the cursor {len(columns)}.")
    try:
        return tuple(column.given(value, what) for column, value in zip(columns, end, strict=False))
    except OverflowError:
        raise CursorError(str(names), f"{what} is outside the years 1 to 9999 in UTC. Give a nearer one.") from None


def columns_of(state: Mapping[str, Any]) -> list[CursorColumn]:
    """Return the cursor columns of a state."""
    names = as_list(state.get("cursor_column"))
    return [CursorColumn(str(name), kind) for name, kind in zip(names, types_of(state), strict=True)]


def types_of(state: Mapping[str, Any]) -> list[str]:
    """Return the types of a state's cursor columns."""
    return [str(kind) for kind in as_list(state.get("type"))]


def _just_above(columns: Sequence[CursorColumn], end: Point) -> Point:
    return (*end[:-1], columns[len(end) - 1].next_above(end[-1]))


# --- names --------------------------------------------------------------------------------------


def record_id(job_id: str, context: str, state: Mapping[str, Any]) -> str:
    """Return the job whose watermarks are what backfills of a context have begun and covered."""
    return derived_id(job_id, "coverage", context, origin_of(state))


def derived_id(job_id: str, kind: str, *parts: str) -> str:
    """Return the name of a job that serves another one: it begins as that one does, and no value can be read from it.

    Of a long name only the beginning stays, for policies that allow jobs by how their names begin.
    """
    suffix = f"-{kind}-{sha256(repr((job_id, *parts)).encode()).hexdigest()[:16]}"
    return job_id[: MAX_NAME - len(suffix)] + suffix


def served_by(job_id: str) -> str | None:
    """Return how the job's name begins that a derived one serves; None for a name that is not derived."""
    found = _DERIVED.fullmatch(job_id) if len(job_id) <= MAX_NAME else None
    return found[1] if found else None
