"""The record of what backfills of a rows context have begun and read, and how coverage prints. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from scripts.helpers.errors import DAMAGE, BoundsError, CursorError, SourceChangedError
from scripts.helpers.protocol.fields import Fields
from scripts.helpers.protocol.names import derived_id
from scripts.helpers.rows.cursor_ranges import (
    CursorRange,
    RangeEnd,
    ShownRange,
    decode_ranges,
    encode_ranges,
    merged,
    range_end,
    uncovered,
)
from scripts.helpers.rows.cursors import DAY, EXACT, MICROSECOND, Cursor
from scripts.helpers.rows.states import RowsState, columns_in, is_rows, stored_identity

# --- slicing --------------------------------------------------------------------------------------
# The bounds of a backfill: checked, cut in slices, and the job that reads each slice.

MAX_SLICES = 10_000
"""Each slice is a run with requests and queries of its own: so many runs of a minute take a week."""
MAX_DIGITS = 76
"""Of a number on either side of its point: twice what a decimal column can hold."""


def backfill_bounds(context: str, low: Any, high: Any, *, endless: bool = False) -> CursorRange:
    """Return bounds as an interval; BoundsError if they are none.

    Times with a zone become UTC; those without stay what they are. Only if `endless` may `high` be None.
    """
    start, end = _checked(context, "low", low), _checked(context, "high", high)
    if endless and not end:
        return start, None
    if not end:
        raise BoundsError(
            context, "high is missing. A backfill ends somewhere; low may be None for the very beginning."
        )
    for one, other in zip(start, end, strict=False):
        if _family(one) != _family(other):
            raise BoundsError(context, f"low is a {_family(one)} and high a {_family(other)}. Give both in one type.")
    if not start < end:
        raise BoundsError(context, "low is not below high, so no row is between them. Swap or correct them.")
    return start, end


def slices(low: Any, high: Any, n: int) -> list[ShownRange]:
    """Cut ``[low, high)`` into `n` half-open slices that tile it and differ by one step at most.

    Parameters
    ----------
    low, high
        Two datetimes, dates, whole numbers or Decimals. The steps are microseconds, days, ones, and
        the last decimal place that is written in either: write ``Decimal("10.00")`` for hundredths.
    n
        How many. Bounds of fewer steps give fewer slices.

    Examples
    --------
    >>> slices(0, 10, 3)
    [(0, 3), (3, 6), (6, 10)]
    >>> slices(date(2026, 1, 1), date(2026, 1, 3), 5)
    [(datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)), (datetime.date(2026, 1, 2), datetime.date(2026, 1, 3))]
    """
    if type(n) is not int or not 1 <= n <= MAX_SLICES:
        raise BoundsError("slices", f"n is {n!r}; it must be a whole number from 1 to {MAX_SLICES:,}.")
    start, end = backfill_bounds("slices", low, high)
    # Neither open ends nor texts nor compound values have a middle.
    if len(start) != 1 or end is None or len(end) != 1 or isinstance(start[0], str):
        raise BoundsError("slices", "only bounds of one time, date or number can be cut. Choose others by hand.")
    first, last = start[0], end[0]
    step = _step(first, last)
    steps = int(_divided(first, last, step))
    n = min(n, steps)
    # Each cut is counted from `first`: widths that are added up would leave what division leaves to the last slice.
    cuts = [_moved(first, step, steps * number // n) for number in range(n)]
    return list(zip(cuts, [*cuts[1:], last], strict=True))


def _checked(context: str, name: str, bound: Any) -> RangeEnd:
    """Return one end, of values that compare and can be cut."""
    end = range_end(bound)
    for value in end:
        # A float is not exact, and True is an int in Python.
        if isinstance(value, bool | float) or not isinstance(value, Cursor):
            raise BoundsError(
                context, f"{name} is a {type(value).__name__}. Give a time, a date, a whole number, a Decimal or text."
            )
        if isinstance(value, Decimal) and not _is_number(value):
            raise BoundsError(
                context, f"{name} is not a number that a column can hold. Give a number with fewer digits."
            )
    # In UTC, so that one moment makes one name of a slice, whatever zone it is given in.
    try:
        return tuple(_in_utc(value) for value in end)
    except OverflowError:
        raise BoundsError(context, f"{name} is outside the years 1 to 9999 in UTC. Give a nearer time.") from None


def _in_utc(value: Cursor) -> Cursor:
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(timezone.utc)
    return value


def _is_number(value: Decimal) -> bool:
    # The exponent of infinity and NaN is a letter. The limits keep Decimal("1E+999999999") from being written out.
    exponent = value.as_tuple().exponent
    return isinstance(exponent, int) and exponent >= -MAX_DIGITS and value.adjusted() < MAX_DIGITS


def _family(value: Cursor) -> str:
    if isinstance(value, datetime):
        return "datetime with zone" if value.tzinfo else "datetime without zone"
    return "number" if isinstance(value, int | Decimal) else type(value).__name__


def _step(low: Cursor, high: Cursor) -> Any:
    # A datetime is a date in Python, so it is asked for first.
    if isinstance(low, datetime):
        return MICROSECOND
    if isinstance(low, date):
        return DAY
    exponents = [int(value.as_tuple().exponent) for value in (low, high) if isinstance(value, Decimal)]
    if not exponents:
        return 1
    # Never more than 1: the zeros of Decimal("1E+3") are digits as well.
    return Decimal(1).scaleb(min(0, *exponents))


def _divided(low: Any, high: Any, step: Any) -> Any:
    if isinstance(step, Decimal):
        return EXACT.divide(EXACT.subtract(Decimal(high), Decimal(low)), step)
    return (high - low) // step


def _moved(low: Any, step: Any, count: int) -> Any:
    return EXACT.add(Decimal(low), count * step) if isinstance(step, Decimal) else low + count * step


def slice_id(job_id: str, context: str, state: RowsState, bounds: CursorRange, name: str) -> str:
    """Return the job that reads one slice: the same for the same bounds, and no value can be read from it."""
    ends = [[_text(value) for value in end or ()] for end in bounds]
    return derived_id(job_id, "backfill", context, state.origin, name, repr(ends))


def _text(value: Cursor) -> str:
    """Write a value so that equal ones are written alike; what is written is part of the names of stored jobs."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, str):
        return repr(value)
    # 5, 5.0 and 5E+0 are one bound; adding 0 makes 0 of -0.
    return f"{EXACT.add(Decimal(value), 0).normalize(EXACT):f}"


# --- coverage -------------------------------------------------------------------------------------

MOST_PRINTED = 5
"""Ranges that are printed of a state; `watermarks backfill` shows all."""


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
        packed.ranges = tuple(RowsState.read(state, "state").ranges)
    return {**state, "covered": packed}


def _end_text(end: RangeEnd | None, none: str) -> str:
    """Write one end of a range; a compound one in brackets."""
    if not end:
        return none
    values = [value.isoformat(" ") if isinstance(value, datetime) else str(value) for value in end]
    return values[0] if len(values) == 1 else f"({', '.join(values)})"


# --- names --------------------------------------------------------------------------------------


def backfill_record_id(job_id: str, context: str, state: RowsState) -> str:
    """Return the job whose watermarks are what backfills of a context have begun and covered.

    The origin is part of its name, so a reset of the live job leads to another record, which is empty.
    """
    return derived_id(job_id, "coverage", context, state.origin)


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
        types = [column.type for column in columns_in(Fields(stored, name))]
        covered = decode_ranges(stored.get("covered"), types, f"{name}.covered").get(DONE, [])
        return cls(merged(covered), decode_ranges(stored.get("begun"), types, f"{name}.begun"))

    def to_store(self, live: RowsState) -> dict[str, Any]:
        """Return the record as it is stored, with the cursor of the live job's state."""
        return {
            **stored_identity(live.columns, False, None),
            "kind": RECORD,
            "covered": encode_ranges({DONE: self.covered}, live.types),
            "begun": encode_ranges(self.begun, live.types, len(self.covered)),
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
