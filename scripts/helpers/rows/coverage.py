"""What a rows context has read, as its state remembers it, and the jobs that backfills of it are. Pure.

An interval is rising, whatever order the job reads in. What live runs covered stands in the state of
their context; what backfills covered is the state of a job of its own. Both belong to an *origin*: it
names the life of a context between two resets, so that a reset forgets them too.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from scripts.helpers.errors import CursorError
from scripts.helpers.protocol.names import derived_id
from scripts.helpers.rows.cursor_ranges import CursorRange, RangeEnd, merged, range_end, uncovered
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

# --- states -------------------------------------------------------------------------------------


def is_rows(state: object) -> bool:
    """Tell whether a state is that of a rows context."""
    return isinstance(state, Mapping) and state.get("kind") == "rows"


def covered_by(state: Mapping[str, Any]) -> list[CursorRange]:
    """Return what a state says is covered; CursorError for what does not fit its columns.

    A state from before coverage was kept has read everything that it has gone past.
    """
    return _coverage(state)[1]


def origin_of(state: Mapping[str, Any]) -> str:
    """Return the life of its context that a state belongs to."""
    return _coverage(state)[0]


def _coverage(state: Mapping[str, Any]) -> tuple[str, list[CursorRange]]:
    if "covered" not in state:
        return "", merged([passed_range(state)])
    groups = decode_ranges(state["covered"], types_of(state), str(state.get("cursor_column")))
    if len(groups) != 1:
        raise CursorError(str(state.get("cursor_column")), "its coverage has no origin. Reset the watermark by hand.")
    ((origin, covered),) = groups.items()
    return origin, merged(covered)


def with_coverage(
    state: Mapping[str, Any], before: Mapping[str, Any] | None, read: Iterable[CursorRange], origin: str
) -> dict[str, Any]:
    """Return the state that follows another one once some intervals are read as well."""
    covered: list[CursorRange] = []
    if before:
        origin, covered = _coverage(before)
    return {**state, "covered": encode_ranges({origin: merged([*covered, *read])}, types_of(state))}


def with_coverage_kept(values: Mapping[str, Any], before: object, origin: str) -> dict[str, Any]:
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


def ranges_read(
    columns: Sequence[CursorColumn], low: Bound | None, high: Bound | None, descending: bool
) -> list[CursorRange]:
    """Return the interval that a window reads between two bounds, none if it is empty."""
    if high is None or low == high:
        return []
    if not descending:
        return [(range_end(low), range_end(high))]
    return [(_just_above(columns, range_end(high)), _just_above(columns, range_end(low)) if low else None)]


def passed_range(state: Mapping[str, Any]) -> CursorRange:
    """Return what a live job has gone past: everything below its watermark, or above it if it descends."""
    end, types = range_end(state.get("value")), types_of(state)
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


def end_that_fits(state: Mapping[str, Any], bound: Any, what: str) -> RangeEnd:
    """Return a bound that a person gives, checked against a state's columns; CursorError if it does not fit."""
    names, types, end = state.get("cursor_column"), types_of(state), range_end(bound)
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


def _just_above(columns: Sequence[CursorColumn], end: RangeEnd) -> RangeEnd:
    return (*end[:-1], columns[len(end) - 1].next_above(end[-1]))


# --- names --------------------------------------------------------------------------------------


def backfill_record_id(job_id: str, context: str, state: Mapping[str, Any]) -> str:
    """Return the job whose watermarks are what backfills of a context have begun and covered."""
    return derived_id(job_id, "coverage", context, origin_of(state))


# --- the record of backfills ---------------------------------------------------------------------

DONE = "done"


@dataclass(frozen=True)
class BackfillRecord:
    """The state of the job that keeps the record.

    Attributes
    ----------
    covered
        What slices that are done have read, merged.
    begun
        The bounds of slices that may have written something, by the name of their backfill.
    """

    covered: list[CursorRange] = field(default_factory=list)
    begun: Mapping[str, list[CursorRange]] = field(default_factory=dict)

    @classmethod
    def read(cls, stored: Any) -> BackfillRecord:
        """Read a stored record, or none; CursorError for one that somebody altered."""
        if not isinstance(stored, Mapping):
            return cls()
        types, name = types_of(stored), str(stored.get("cursor_column"))
        covered = decode_ranges(stored.get("covered"), types, name).get(DONE, [])
        return cls(merged(covered), decode_ranges(stored.get("begun"), types, name))

    def to_store(self, live: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record as it is stored, with the cursor of the live job's state."""
        types = types_of(live)
        return {
            "kind": "backfills",
            "cursor_column": live.get("cursor_column"),
            "type": live.get("type"),
            "covered": encode_ranges({DONE: self.covered}, types),
            "begun": encode_ranges(self.begun, types),
        }

    def slices(self) -> Iterator[tuple[str, CursorRange]]:
        """Return the name and the bounds of each slice that is begun."""
        for name, intervals in self.begun.items():
            yield from ((name, bounds) for bounds in intervals)

    def ends(self) -> list[RangeEnd | None]:
        """Return the ends of the slices that are begun."""
        return [end for _, bounds in self.slices() for end in bounds]

    def is_covered(self, bounds: CursorRange) -> bool:
        """Tell whether slices that are done have read all of this."""
        return not uncovered(bounds, self.covered)

    def has_begun(self, name: str, bounds: CursorRange) -> bool:
        """Tell whether this slice is begun."""
        return bounds in self.begun.get(name, ())

    def begin(self, name: str, bounds: CursorRange) -> BackfillRecord:
        """Enter a slice before it writes anything."""
        return replace(self, begun={**self.begun, name: [*self.begun.get(name, ()), bounds]})

    def drop(self, gone: Sequence[tuple[str, CursorRange]]) -> BackfillRecord:
        """Forget slices that have begun and read nothing."""
        left = {name: [one for one in all_of if (name, one) not in gone] for name, all_of in self.begun.items()}
        return replace(self, begun={name: intervals for name, intervals in left.items() if intervals})

    def finish(self, name: str, bounds: CursorRange) -> BackfillRecord:
        """Move a slice from what is begun to what is covered."""
        return replace(self.drop([(name, bounds)]), covered=merged([*self.covered, bounds]))


# --- storage ------------------------------------------------------------------------------------

MAX_RAW_BYTES = 64 * 1024 * 1024
"""Most that is decompressed."""


def encode_ranges(groups: Mapping[str, Iterable[CursorRange]], types: Sequence[str]) -> bytes:
    """Return lists of intervals, by name, as a state holds them.

    >>> decode_ranges(encode_ranges({"o1": [((), (5,)), ((7,), None)]}, ["bigint"]), ["bigint"])
    {'o1': [((), (5,)), ((7,), None)]}
    """
    coded = {name: list(_coded(intervals, types)) for name, intervals in groups.items()}
    return zlib.compress(json.dumps(coded, separators=(",", ":")).encode("ascii"))


def decode_ranges(stored: object, types: Sequence[str], name: str = "coverage") -> dict[str, list[CursorRange]]:
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


def _coded(intervals: Iterable[CursorRange], types: Sequence[str]) -> Iterator[list[int | str] | None]:
    """Write the ends one after the other; no end at all is below everything as low, above it as high."""
    before = 0
    for interval in intervals:
        for end in interval:
            codes = [_code(value, kind) for value, kind in zip(end or (), types, strict=False)]
            if codes and isinstance(codes[0], int):
                before, codes[0] = codes[0], codes[0] - before
            yield codes or None


def _decoded(ends: Any, types: Sequence[str]) -> list[CursorRange]:
    before, points = 0, []
    for codes in ends:
        if codes is not None and not 0 < len(codes) <= len(types):
            raise ValueError("more values than columns")
        if codes and type(codes[0]) is int:
            before = codes[0] = before + codes[0]
        points.append(tuple(_value(code, kind) for code, kind in zip(codes or (), types, strict=False)))
    if len(points) % 2:
        raise ValueError("an end is missing")
    intervals: list[CursorRange] = [(low, high or None) for low, high in zip(points[::2], points[1::2], strict=True)]
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
