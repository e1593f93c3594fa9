"""The state of a source of rows (a *rows context*): watermark, ranges read, last rows below the watermark. Pure.

Reading a state checks it. Ranges of cursor values are ascending, in whatever order the job reads. A context's state has
the ranges (*coverage*) that the job's own (*live*) runs read; a separate job's state has those that backfills read.
Both belong to an *origin*, the period between two resets of a context, so that a reset forgets both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta, timezone, tzinfo
from functools import cached_property
from typing import Any

from scripts.helpers.errors import CursorError, SourceError
from scripts.helpers.protocol.fields import Fields, ImplausibleError
from scripts.helpers.protocol.values import MAX_BYTES
from scripts.helpers.rows.cursor_ranges import (
    CursorRange,
    RangeEnd,
    decode_ranges,
    encode_ranges,
    merged,
    range_end,
    uncovered,
)
from scripts.helpers.rows.cursors import DAY, MICROSECOND, Bound, Cursor, CursorColumn, as_list, widened
from scripts.helpers.rows.identity import SOURCE, as_text, remembered

KIND = "rows"
TICK, ZONE = "tick", "zone"
SEEN = ("last", "undecided", "complete", "edge")
"""Fields for what a run saw in its source, which are not set by hand."""
DIGITS = 12
"""Hex digits of a digest: 48 bits, enough that two rows of one table never have the same digest."""
_DIGEST = f"[0-9a-f]{{{DIGITS}}}"


@dataclass(frozen=True)
class Undecided:
    """Rows that a run saw but did not take, and the transactions they wait for (see `open_writers`).

    Attributes
    ----------
    bound
        The bound just past the last undecided row.
    writers
        The names of the transactions that were open when the rows were seen; None if the database does not show them.
    at
        When the rows were seen, by the source's clock; aware.
    """

    bound: Bound
    writers: frozenset[str] | None
    at: datetime

    @classmethod
    def read(cls, state: Fields, columns: Sequence[CursorColumn]) -> Undecided | None:
        """Return a state's entry `undecided`; None without it, ImplausibleError if `to_store` did not write it."""
        if "undecided" not in state:
            return None
        fields = state.map("undecided")
        bound, writers = bound_in(fields, "bound", columns), fields.text("writers", None, longest=MAX_BYTES)
        if bound is None:
            raise fields.wrong("bound", "a value")
        return cls(bound, None if writers is None else frozenset(writers.split("\n")), fields.moment("at"))

    def to_store(self) -> dict[str, Any]:
        """Return the entry for rows seen but not taken, as a state stores it."""
        writers = None if self.writers is None else "\n".join(sorted(self.writers))
        return {"bound": stored_bound(self.bound), "writers": writers, "at": self.at}


@dataclass(frozen=True)
class Edge:
    """Digests of the last rows below a watermark, by which a run detects a restored source (see `rows.plan`).

    Attributes
    ----------
    start
        Cursor of the last entry of `rows`; None if the source had fewer rows than an edge keeps.
    names
        A digest of the names of the columns other than the cursors.
    rows
        For each row, the last one first, a digest of its cursor and a digest of its values in these other columns.
    ties
        How many rows of the source had the cursor `start`; None unless at least two of them are among `rows`.
    """

    start: Bound | None
    names: str
    rows: tuple[tuple[str, str], ...]
    ties: int | None = None

    @classmethod
    def read(cls, state: Fields, columns: Sequence[CursorColumn]) -> Edge | None:
        """Return a state's edge (its last rows), or None; ImplausibleError if `to_store` did not write the edge."""
        if "edge" not in state:
            return None
        fields = state.map("edge")
        pair = f"{_DIGEST}-{_DIGEST}"
        rows = fields.text("rows", pattern=f"{pair}( {pair})*", what="pairs of digests")
        names = fields.text("names", pattern=_DIGEST, what="a digest")
        pairs = tuple((one[:DIGITS], one[-DIGITS:]) for one in rows.split())
        return cls(bound_in(fields, "start", columns), names, pairs, fields.whole("ties", None))

    def to_store(self) -> dict[str, Any]:
        """Return the edge (digests of the last rows) as a state stores it."""
        rows = " ".join(f"{one}-{other}" for one, other in self.rows)
        ties = {} if self.ties is None else {"ties": self.ties}
        return {"start": stored_bound(self.start), "names": self.names, "rows": rows, **ties}


@dataclass(frozen=True)
class RowsState:
    """The state of a rows context.

    Attributes
    ----------
    columns
        The cursor columns.
    value
        The watermark; None until a run has seen a row.
    descending
        Whether the job reads downwards.
    source
        The identity of the source (see `identity`).
    start
        Where the first run started; None for the very beginning.
    last
        The cursor of the last row that a run saw.
    undecided
        Rows that a run saw but did not take, and the transactions they wait for.
    complete
        The bound below which all rows were taken, if it is past `value`.
    edge
        Digests of the last rows below `value`, which show whether these rows have changed.
    covered
        Compressed ranges that were read. None in a state of an old package version, whose runs read all up to `value`.
    others
        Fields of other modules, such as the schemas that rows were read with.
    """

    columns: tuple[CursorColumn, ...]
    value: Bound | None = None
    descending: bool = False
    source: Mapping[str, Any] | None = None
    start: Bound | None = None
    last: Bound | None = None
    undecided: Undecided | None = None
    complete: Bound | None = None
    edge: Edge | None = None
    covered: bytes | None = None
    others: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, stored: Mapping[str, Any], name: str) -> RowsState:
        """Read what `to_store` wrote; raise ImplausibleError for anything else."""
        fields = Fields(stored, name)
        columns = columns_in(fields)
        value, start, last, complete = (
            bound_in(fields, one, columns) for one in ("value", "start", "last", "complete")
        )
        descending, source = descends_in(fields, columns), remembered(stored, name)
        undecided, edge = Undecided.read(fields, columns), Edge.read(fields, columns)
        others = {key: found for key, found in stored.items() if key not in _OF_STATE}
        return cls(
            columns, value, descending, source, start, last, undecided, complete, edge, stored.get("covered"), others
        )  # fmt: skip

    @classmethod
    def opened(cls, stored: Any, names: Sequence[str], context: str) -> RowsState:
        """Read a state; raise SourceError if it is for other columns, or for files."""
        check_same_cursor(stored, names, context)
        return cls.read(stored, context)

    def to_store(self) -> dict[str, Any]:
        """Return the state as it is stored, without empty fields: `MAX_ENTRIES` limits the fields of all states."""
        parts = {"undecided": self.undecided, "edge": self.edge}
        given = {
            "start": stored_bound(self.start), "last": stored_bound(self.last), "complete": stored_bound(self.complete),
            **{name: part and part.to_store() for name, part in parts.items()}, "covered": self.covered,
        }  # fmt: skip
        found = {name: value for name, value in given.items() if value is not None}
        identity = stored_identity(self.columns, self.descending, self.source)
        return {**identity, "value": stored_bound(self.value), **found, **self.others}

    @property
    def names(self) -> list[str]:
        """The names of the cursor columns."""
        return [column.name for column in self.columns]

    @property
    def types(self) -> list[str]:
        """The types of the cursor columns."""
        return [column.type for column in self.columns]

    @property
    def passed(self) -> CursorRange:
        """The range that live runs have passed: everything below the watermark, or above it for a descending cursor."""
        end = range_end(self.value)
        if not end:
            return (), ()
        if not self.descending:
            return (), end
        try:
            return _just_above(self.columns, end), None
        except OverflowError:
            # The watermark is the highest possible value, so nothing is above it.
            return (), ()

    @cached_property
    def coverage(self) -> tuple[str, list[CursorRange]]:
        """The origin (the name of the period since a reset), and the ranges that were read in this period, in order."""
        return self.unpacked("state")

    def unpacked(self, name: str) -> tuple[str, list[CursorRange]]:
        """Return the origin (a period's name) and the ranges read; ImplausibleError, which shows `name`, if damaged."""
        if self.covered is None:
            return "", merged([self.passed])
        groups = decode_ranges(self.covered, self.types, f"{name}.covered")
        # A state belongs to exactly one origin: a reset begins a new origin and drops the state of the old one.
        if len(groups) != 1:
            raise ImplausibleError(f"{name}.covered is not ranges of one origin")
        ((origin, covered),) = groups.items()
        return origin, merged(covered)

    @property
    def origin(self) -> str:
        """The name of the period to which the state belongs: each reset of the context begins a new period."""
        return self.coverage[0]

    @property
    def ranges(self) -> list[CursorRange]:
        """The ranges that were read, in order."""
        return self.coverage[1]

    def is_left_to_slices(self, bounds: CursorRange) -> bool:
        """Return whether the job's own runs have passed a range and read none of it, so only backfills can read it."""
        return uncovered(bounds, self.ranges) == [bounds] and not uncovered(bounds, [self.passed])

    def end_that_fits(self, bound: Any, what: str) -> RangeEnd:
        """Return a caller's bound as the end of a range (see `bound_given`); None, an open end, becomes ``()``."""
        return () if bound is None else range_end(bound_given(self.columns, bound, what))

    def with_coverage(self, before: RowsState | None, read: Iterable[CursorRange], origin: str) -> RowsState:
        """Return this state with the coverage of the state `before` it, extended by the ranges in `read`."""
        covered: list[CursorRange] = []
        # Keep the origin (the period since the last reset): with a new one, backfills forget what they have covered.
        if before:
            origin, covered = before.coverage
        return replace(self, covered=encode_ranges({origin: merged([*covered, *read])}, self.types))

    def with_coverage_kept(self, before: RowsState | None, origin: str) -> RowsState:
        """Return this state, set by hand, with the coverage of the state `before` it, if both have the same cursor.

        Values between the two watermarks were not read and become a gap.
        """
        if self.covered is not None:
            return self
        # Ranges of a cursor of other columns, types or order do not apply to this cursor.
        return self.with_coverage(before if before and self._has_cursor_of(before) else None, [], origin)

    def _has_cursor_of(self, before: RowsState) -> bool:
        if (self.descending, self.names) != (before.descending, before.names):
            return False
        return all(now == was or widened(was, now) for was, now in zip(before.types, self.types, strict=True))


_OF_STATE = {"kind", "cursor_column", "type", TICK, ZONE, "descending", SOURCE, "value", "start", "covered", *SEEN}


def is_rows(state: object) -> bool:
    """Return whether a stored state is that of a context that reads rows."""
    return isinstance(state, Mapping) and state.get("kind") == KIND


def ranges_read(
    columns: Sequence[CursorColumn], low: Bound | None, high: Bound | None, descending: bool
) -> list[CursorRange]:
    """Return a list of the one range that a window reads between two bounds; an empty list for an empty window."""
    if high is None or low == high:
        return []
    if not descending:
        return [(range_end(low), range_end(high))]
    # A descending window starts at `low`, its larger value, and ends before `high`. A range always includes its smaller
    # end and excludes its larger one, so this range starts one step above `high` and ends one step above `low`.
    bottom = _just_above(columns, range_end(high))
    top = _just_above(columns, range_end(low)) if low else None
    return [(bottom, top)]


def _just_above(columns: Sequence[CursorColumn], end: RangeEnd) -> RangeEnd:
    return (*end[:-1], columns[len(end) - 1].next_above(end[-1]))


# --- fields that states and plans share -----------------------------------------------------------


def check_same_cursor(stored: Any, names: Sequence[str], context: str) -> None:
    """Raise SourceError if a state or plan is for other columns, or for files."""
    fields = stored if isinstance(stored, Mapping) else {}
    if fields.get("kind") != KIND:
        kept = f"a source of kind {fields.get('kind')}"
        raise SourceError(", ".join(names), reason="changed", context=context, before=kept)
    check_same_columns(as_list(fields.get("cursor_column")), names, context)


def check_same_columns(before: Sequence[Any], names: Sequence[str], context: str) -> None:
    """Raise SourceError if the cursor columns have changed."""
    if list(before) != list(names):
        hint = " If a column was renamed, run: watermarks set JOB --rename-cursor OLD NEW --why TEXT"
        raise SourceError(", ".join(names), hint, reason="changed", context=context, before=", ".join(map(str, before)))


def check_types(columns: Sequence[CursorColumn], before: Sequence[CursorColumn]) -> None:
    """Raise CursorError if the type of a column has changed, except to a type that `widened` allows."""
    for column, was in zip(columns, before, strict=True):
        if column.type != was.type and not widened(was.type, column.type):
            raise CursorError(
                column.name,
                f"its type was {was.type} and is {column.type} now. Cast it, or give it a transformation_ctx of its "
                "own.",
            )
        # Refuse times with more or fewer digits than before. If times are rounded to fewer, rows already read can move
        # above the watermark and are read again. With more digits, new rows can come below the watermark.
        if column.is_tick_reported and was.is_tick_reported and column.tick != was.tick:
            raise CursorError(
                column.name,
                f"its times had steps of {was.tick} and have steps of {column.tick} now: its decimal places were "
                "altered. Alter them back, or give it a transformation_ctx of its own.",
            )


def stored_identity(
    columns: Sequence[CursorColumn], descending: bool, source: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the fields of a state or plan that identify its cursor and its source."""
    names: Any = [column.name for column in columns]
    types: Any = [column.type for column in columns]
    if len(columns) == 1:
        names, types = names[0], types[0]
    steps = [_reported_step(column) for column in columns]
    given = {
        TICK: steps if any(steps) else None,
        ZONE: next((column.zone for column in columns if column.zone), None),
        "descending": descending or None,
        SOURCE: as_text(source) if source else None,
    }
    return {"kind": KIND, "cursor_column": names, "type": types} | {
        name: value for name, value in given.items() if value is not None
    }


def _reported_step(column: CursorColumn) -> int:
    """Return the step (resolution) of a time column in microseconds if the source reported it; otherwise 0."""
    return column.tick // MICROSECOND if column.is_tick_reported and isinstance(column.tick, timedelta) else 0


def columns_in(fields: Fields) -> tuple[CursorColumn, ...]:
    """Return the cursor columns of a stored state or plan."""
    names, types = as_list(fields.any("cursor_column")), as_list(fields.any("type"))
    if len(names) != len(types) or not all(isinstance(text, str) and text for text in [*names, *types]):
        raise fields.wrong("cursor_column", "a name, or a list of names, with a type for each")
    # States of early versions have no steps (resolutions) of times. Read 0 (unknown), which fits any step of a source.
    steps = fields.of(TICK, list, "steps of times", [0] * len(names))
    if len(steps) != len(names) or not all(type(step) is int and 0 <= step <= DAY // MICROSECOND for step in steps):
        raise fields.wrong(TICK, "microseconds for each column, 0 where its source says none")
    ticks = [timedelta(microseconds=step) or None for step in steps]
    zones = [fields.text(ZONE, None)] * len(names)
    try:
        return tuple(map(CursorColumn, names, types, ticks, zones))
    except CursorError:
        raise fields.wrong("type", "a type that has an exact order") from None


# --- wall-clock times and instants ----------------------------------------------------------------


def stamped_by(columns: Sequence[CursorColumn], clock: datetime) -> tuple[CursorColumn, ...]:
    """Return the columns. Those of dates, or of times without a zone, get the zone of `clock`, the source's clock."""
    # If the zone has no name, use its current offset.
    zone = getattr(clock.tzinfo, "key", None) or str(timezone(clock.utcoffset() or timedelta(0)))
    return tuple(
        replace(column, tick=column.tick if column.is_tick_reported else None, zone=zone)
        if column.is_time and column.type != "timestamp"
        else column
        for column in columns
    )


def instant(column: CursorColumn, value: Any) -> datetime | None:
    """Return the moment of a time, or of the start of a date; None for other values, and if the zone is unknown."""
    if not column.is_time or value is None or column.type == "timestamp":
        return value if column.is_time else None
    zone = _zone_of(column.zone)
    wall = value if isinstance(value, datetime) else datetime.combine(value, time.min)
    return None if zone is None else wall.replace(tzinfo=zone)


def _zone_of(name: str | None) -> tzinfo | None:
    """Return the zone that `stamped_by` named; None without a name, or if this machine does not know the zone."""
    if name is None:
        return None
    # Imported here because the import of zoneinfo reads files, which each import of `Watermarks` would wait for.
    from zoneinfo import ZoneInfo

    with suppress(ValueError):
        return datetime.strptime(name.removeprefix("UTC") or "Z", "%z").tzinfo
    with suppress(ValueError, KeyError, OSError):
        return ZoneInfo(name)
    return None


def column_values(columns: Sequence[CursorColumn], bound: Any, *, placed: bool = False) -> Any:
    """Return a bound as its columns store it: times without zone, which states store in UTC, become naive.

    With `placed`, for display, times without zone become instants in the zone of the source's clock, and stay naive
    only if that zone is unknown. One value is returned as it is, several as a tuple.
    """
    if bound is None:
        return None
    values = tuple(
        (instant(column, value) if placed else None) or value.replace(tzinfo=None)
        if column.type == "timestamp_ntz" and value is not None
        else value
        for column, value in zip(columns, as_list(bound), strict=False)
    )
    return values[0] if len(values) == 1 else values


# --- fields of a cursor ---------------------------------------------------------------------------


def descends_in(fields: Fields, columns: Sequence[CursorColumn]) -> bool:
    """Return whether a stored state or plan reads downwards, which `RowOptions` allows only for numbers."""
    descends = fields.flag("descending")
    if descends and not all(column.is_number for column in columns):
        raise fields.wrong("descending", "False, and only numbers are read downwards")
    return descends


def stored_bound(bound: Bound | None) -> Any:
    """Return a bound as states and plans store it; `bound_in` reads it."""
    return bound[0] if bound is not None and len(bound) == 1 else bound and list(bound)


def bound_in(fields: Fields, name: str, columns: Sequence[CursorColumn]) -> Bound | None:
    """Return the bound stored under a name in a state or plan; None if there is none."""
    stored = fields.any(name)
    if stored is None:
        return None
    values = as_list(stored) if len(columns) > 1 else [stored]
    # Only trailing columns may have no value. The first must have one: its check refuses None.
    known = values.index(None, 1) if None in values[1:] else len(values)
    try:
        found = [column.check(value) for column, value in zip(columns, values[:known], strict=False)]
    except CursorError:
        found = []
    if len(found) != known or len(values) != len(columns) or any(value is not None for value in values[known:]):
        raise fields.wrong(name, f"a value of type {', '.join(column.type for column in columns)}")
    return (*found, *[None] * (len(columns) - known))


def bound_given(columns: Sequence[CursorColumn], given: Any, what: str, *, typed: bool = False) -> Bound:
    """Return a bound that a caller passes: a value, or a tuple with one for each column or for the first ones.

    Raise CursorError, which names `what`, if it does not fit. With `typed`, the values are texts that a person or a
    scheduler wrote; one text for several columns separates them with commas.
    """
    if typed and isinstance(given, str) and len(columns) > 1:
        given = given.replace(", ", ",").split(",")
    values = range_end(given)
    if not 1 <= len(values) <= len(columns):
        raise CursorError(
            columns[0].name, f"{what} has {len(values)} values for {len(columns)} columns. Give one each."
        )
    read: Callable[[CursorColumn, Any, str], Cursor] = CursorColumn.from_typed if typed else CursorColumn.from_caller
    found = [read(column, value, what) for column, value in zip(columns, values, strict=False)]
    return (*found, *[None] * (len(columns) - len(found)))
