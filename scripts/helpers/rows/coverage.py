"""What a rows context has read, as its state remembers it, and the jobs that backfills of it are. Pure.

A range is rising, whatever order the job reads in. What live runs covered stands in the state of
their context; what backfills covered is the state of a job of its own. Both belong to an *origin*: it
names the life of a context between two resets, so that a reset forgets them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from scripts.helpers.errors import DAMAGE, CursorError, InvalidValueError, SourceChangedError
from scripts.helpers.protocol.fields import Fields, ImplausibleError
from scripts.helpers.protocol.names import derived_id
from scripts.helpers.protocol.packed_json import pack_json, unpack_json
from scripts.helpers.rows.cursor_ranges import CursorRange, RangeEnd, merged, range_end, uncovered
from scripts.helpers.rows.cursors import (
    EPOCH,
    EXACT,
    MICROSECOND,
    TEXTS,
    Bound,
    Cursor,
    CursorColumn,
    as_list,
    check_value,
    decimal_type,
    widened,
)
from scripts.helpers.rows.edge import Edge
from scripts.helpers.rows.identity import remembered
from scripts.helpers.rows.open_writers import Undecided
from scripts.helpers.rows.options import WORDS
from scripts.helpers.rows.window import COMPLETE, RowWindow, bound_in, columns_in, descends_in

# --- states -------------------------------------------------------------------------------------


def is_rows(state: object) -> bool:
    """Tell whether a state is that of a rows context."""
    return isinstance(state, Mapping) and state.get("kind") == "rows"


def check_rows_state(stored: Mapping[str, Any], name: str) -> None:
    """Raise ImplausibleError for a state that is not what `with_coverage` returns."""
    fields = Fields(stored, name)
    columns = columns_in(fields)
    for bound in ("value", "start", "last", COMPLETE):
        bound_in(fields, bound, columns)
    descends_in(fields, columns)
    remembered(stored, name)
    Undecided.read(fields, columns)
    Edge.read(fields, columns)
    _coverage(stored, name)


def check_rows_plan(stored: Mapping[str, Any], name: str) -> None:
    """Raise ImplausibleError for a plan that is not one of `RowWindow.to_plan`, with its options."""
    fields = Fields(stored, name)
    fields.text("options", None, pattern=WORDS, what="words of options")
    RowWindow.from_plan(stored, [column.name for column in columns_in(fields)], name)


def check_backfills(stored: Mapping[str, Any], name: str) -> None:
    """Raise ImplausibleError for a record that is not one of `BackfillRecord`."""
    columns_in(Fields(stored, name))
    BackfillRecord.read(stored, name)


def covered_by(state: Mapping[str, Any]) -> list[CursorRange]:
    """Return what a state says is covered; CursorError for what does not fit its columns.

    A state from before coverage was kept has read everything that it has gone past.
    """
    return _coverage(state)[1]


def origin_of(state: Mapping[str, Any]) -> str:
    """Return the life of its context that a state belongs to."""
    return _coverage(state)[0]


def _coverage(state: Mapping[str, Any], name: str = "state") -> tuple[str, list[CursorRange]]:
    if "covered" not in state:
        return "", merged([passed_range(state)])
    groups = decode_ranges(state["covered"], cursor_types_of(state), f"{name}.covered")
    # A state holds one life of its context: a reset begins a state anew. Any other count was not written by us.
    if len(groups) != 1:
        raise ImplausibleError(f"{name}.covered is not ranges of one origin")
    ((origin, covered),) = groups.items()
    return origin, merged(covered)


def with_coverage(
    state: Mapping[str, Any], before: Mapping[str, Any] | None, read: Iterable[CursorRange], origin: str
) -> dict[str, Any]:
    """Return the state that follows another one once some ranges are read as well."""
    covered: list[CursorRange] = []
    # The origin of the state before wins: a new one would make backfills forget what they have covered.
    if before:
        origin, covered = _coverage(before)
    return {**state, "covered": encode_ranges({origin: merged([*covered, *read])}, cursor_types_of(state))}


def with_coverage_kept(values: Mapping[str, Any], before: object, origin: str) -> dict[str, Any]:
    """Return a state set by hand with the coverage of the one it replaces, if that is of the same cursor.

    What lies between the two values was not read and becomes a gap.
    """
    if not is_rows(values):
        return dict(values)
    if "covered" in values:
        return dict(values)
    earlier: Any = before if is_rows(before) else None
    if earlier and not _has_same_cursor(values, earlier):
        # Ranges of another column, type or order say nothing of this one.
        earlier = None
    return with_coverage(values, earlier, [], origin)


def _has_same_cursor(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    # `descending` may be left out or False, which is the same.
    is_same = bool(one.get("descending")) == bool(other.get("descending"))
    if not is_same or one.get("cursor_column") != other.get("cursor_column"):
        return False
    types = zip(cursor_types_of(other), cursor_types_of(one), strict=True)
    return all(now == was or widened(was, now) for was, now in types)


def ranges_read(
    columns: Sequence[CursorColumn], low: Bound | None, high: Bound | None, descending: bool
) -> list[CursorRange]:
    """Return the range that a window reads between two bounds, none if it is empty."""
    if high is None or low == high:
        return []
    if not descending:
        return [(range_end(low), range_end(high))]
    # A descending window takes `low` and goes down to just above `high`. A range takes its lower end and not its
    # upper one, so both ends move up by one step.
    bottom = _just_above(columns, range_end(high))
    top = _just_above(columns, range_end(low)) if low else None
    return [(bottom, top)]


def passed_range(state: Mapping[str, Any]) -> CursorRange:
    """Return what a live job has gone past: everything below its watermark, or above it if it descends."""
    end, types = range_end(state.get("value")), cursor_types_of(state)
    if not end:
        return (), ()
    if not state.get("descending"):
        return (), end
    try:
        return _just_above([CursorColumn("", kind) for kind in types], end), None
    except OverflowError:
        # The watermark is the highest value that there can be, so nothing is above it.
        return (), ()


def is_left_to_slices(state: Mapping[str, Any], bounds: CursorRange) -> bool:
    """Return whether a live job has gone past all of a range and read nothing of it, so that it never will."""
    return uncovered(bounds, covered_by(state)) == [bounds] and not uncovered(bounds, [passed_range(state)])


def end_that_fits(state: Mapping[str, Any], bound: Any, what: str) -> RangeEnd:
    """Return a bound that a person gives, checked against a state's columns; CursorError if it does not fit."""
    names, types, end = state.get("cursor_column"), cursor_types_of(state), range_end(bound)
    columns = [CursorColumn(str(name), kind) for name, kind in zip(as_list(names), types, strict=False)]
    if len(end) > len(columns):
        raise CursorError(str(names), f"{what} has {len(end)} values and the cursor {len(columns)}.")
    try:
        return tuple(column.from_caller(value, what) for column, value in zip(columns, end, strict=False))
    except OverflowError:
        raise CursorError(str(names), f"{what} is outside the years 1 to 9999 in UTC. Give a nearer one.") from None


def cursor_columns_of(state: Mapping[str, Any], name: str = "state") -> tuple[CursorColumn, ...]:
    """Return the cursor columns of a state; ImplausibleError if they are damaged."""
    return columns_in(Fields(state, name))


def cursor_types_of(state: Mapping[str, Any]) -> list[str]:
    """Return the types of a state's cursor columns."""
    return [str(kind) for kind in as_list(state.get("type"))]


def _just_above(columns: Sequence[CursorColumn], end: RangeEnd) -> RangeEnd:
    return (*end[:-1], columns[len(end) - 1].next_above(end[-1]))


# --- what people see ----------------------------------------------------------------------------

MOST_PRINTED = 5
"""Ranges that are printed of a state; `watermarks coverage` shows all."""


class PackedRanges(bytes):
    """The packed ranges of a state, which print as ranges.

    They stay the bytes that the table holds, so that a state that was looked up can be set again as it is.
    """

    ranges: tuple[CursorRange, ...] | None = None
    """None where they cannot be read."""

    def __repr__(self) -> str:
        if self.ranges is None:
            return f"<{len(self):,} bytes that are no ranges>"
        told = [f"{_end_text(low, 'the beginning')} to {_end_text(high, 'the end')}" for low, high in self.ranges]
        if len(told) > MOST_PRINTED:
            told[MOST_PRINTED:] = [f"{len(told) - MOST_PRINTED:,} more"]
        return f"<{', '.join(told) or 'nothing'}>"

    __str__ = __repr__


def with_ranges(state: object) -> object:
    """Return a state whose coverage prints as ranges; any other value as it is."""
    if not isinstance(state, Mapping) or not is_rows(state) or not isinstance(state.get("covered"), bytes):
        return state
    packed = PackedRanges(state["covered"])
    # A damaged state is looked up to find out what is wrong with it, so it must come back.
    with suppress(CursorError, *DAMAGE):
        packed.ranges = tuple(covered_by(state))
    return {**state, "covered": packed}


def _end_text(end: RangeEnd | None, none: str) -> str:
    """Write one end of a range; a compound one in brackets."""
    if not end:
        return none
    values = [value.isoformat(" ") if isinstance(value, datetime) else str(value) for value in end]
    return values[0] if len(values) == 1 else f"({', '.join(values)})"


# --- names --------------------------------------------------------------------------------------


def backfill_record_id(job_id: str, context: str, state: Mapping[str, Any]) -> str:
    """Return the job whose watermarks are what backfills of a context have begun and covered.

    The origin is part of its name, so a reset of the live job leads to another record, which is empty.
    """
    return derived_id(job_id, "coverage", context, origin_of(state))


# --- the record of backfills ---------------------------------------------------------------------

RECORD, DONE = "backfills", "done"


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
    def read(cls, stored: Any, name: str = "record") -> BackfillRecord:
        """Read a stored record, or none; SourceChangedError for a value that is not one."""
        if stored is None:
            return cls()
        if not isinstance(stored, Mapping) or stored.get("kind") != RECORD:
            raise SourceChangedError(name, "something else", "a record of backfills")
        types = cursor_types_of(stored)
        covered = decode_ranges(stored.get("covered"), types, f"{name}.covered").get(DONE, [])
        return cls(merged(covered), decode_ranges(stored.get("begun"), types, f"{name}.begun"))

    def to_store(self, live: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record as it is stored, with the cursor of the live job's state."""
        types = cursor_types_of(live)
        return {
            "kind": RECORD,
            "cursor_column": live.get("cursor_column"),
            "type": live.get("type"),
            "covered": encode_ranges({DONE: self.covered}, types),
            "begun": encode_ranges(self.begun, types, len(self.covered)),
        }

    def slices(self) -> Iterator[tuple[str, CursorRange]]:
        """Return the name and the bounds of each slice that is begun."""
        for name, ranges in self.begun.items():
            for bounds in ranges:
                yield name, bounds

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
        left: dict[str, list[CursorRange]] = {}
        dropped = set(gone)
        for name, bounds in self.slices():
            if (name, bounds) not in dropped:
                left.setdefault(name, []).append(bounds)
        return replace(self, begun=left)

    def finish(self, name: str, bounds: CursorRange) -> BackfillRecord:
        """Move a slice from what is begun to what is covered."""
        return replace(self.drop([(name, bounds)]), covered=merged([*self.covered, bounds]))


# --- storage ------------------------------------------------------------------------------------

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
            codes = [_code(value, kind) for value, kind in zip(end or (), types, strict=False)]
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


def _code(value: Cursor, kind: str) -> int | str:
    if isinstance(value, datetime):
        return (value - EPOCH) // MICROSECOND
    if isinstance(value, date):
        return value.toordinal()
    if isinstance(value, Decimal):
        # As a whole number of its last decimal place: JSON's numbers are floats to most readers.
        _, scale = decimal_type(kind)
        return int(EXACT.scaleb(value, scale))
    return value


def _value(code: object, kind: str) -> Cursor:
    value: object = code
    if kind not in TEXTS:
        if type(code) is not int:
            raise TypeError("not a whole number")
        if kind in ("timestamp", "timestamp_ntz"):
            value = EPOCH + code * MICROSECOND
        elif kind == "date":
            value = date.fromordinal(code)
        elif decimal_type(kind)[0]:
            value = EXACT.scaleb(Decimal(code), -decimal_type(kind)[1])
    return check_value(value, kind)
