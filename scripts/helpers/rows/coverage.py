"""What a rows context has read, as its state remembers it, and the jobs that backfills of it are. Pure.

An interval is rising, whatever order the job reads in. What live runs covered stands in the state of
their context; what backfills covered is the state of a job of its own. Both belong to an *origin*: it
names the life of a context between two resets, so that a reset forgets them too.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from scripts.helpers.errors import CursorError
from scripts.helpers.protocol.names import derived_id
from scripts.helpers.rows.cursors import (
    EPOCH,
    EXACT,
    MICROSECOND,
    Bound,
    Cursor,
    CursorColumn,
    as_list,
    check_value,
    decimal_type,
)
from scripts.helpers.rows.intervals import Interval, Point, merged, point

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
