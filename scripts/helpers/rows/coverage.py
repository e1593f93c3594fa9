"""Record which ranges the backfills of a source of rows have begun and read; display the ranges read. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from scripts.helpers.errors import DAMAGE, BoundsError, CursorError, SourceError
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
# Check the bounds of a backfill, cut them into slices, and name the job that reads each slice.

MAX_SLICES = 10_000
"""Most slices of a range. Each slice is a run with its own requests and queries: 10,000 one-minute runs take a week."""
MAX_DIGITS = 76
"""Most digits of a number on either side of its point: twice as many as a decimal column can hold."""


def backfill_bounds(context: str, low: Any, high: Any, *, endless: bool = False) -> CursorRange:
    """Return a backfill's bounds as a range; raise BoundsError if their types differ, or `low` is not below `high`.

    Times with a zone become UTC; times without zone stay unchanged. `high` may be None only if `endless`.
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
    """Cut ``[low, high)`` into `n` adjacent half-open slices whose widths differ by at most one step.

    Parameters
    ----------
    low, high
        Two datetimes, dates, whole numbers or Decimals. A step is a microsecond, a day, 1, or for Decimals
        one unit of the last decimal place written in either bound: write ``Decimal("10.00")`` for hundredths.
    n
        The number of slices. Bounds with fewer steps between them give fewer slices.

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
    # Refuse open ends, texts and compound values, because they cannot be divided.
    if len(start) != 1 or end is None or len(end) != 1 or isinstance(start[0], str):
        raise BoundsError("slices", "only bounds of one time, date or number can be cut. Choose others by hand.")
    first, last = start[0], end[0]
    step = _step(first, last)
    steps = int(_divided(first, last, step))
    n = min(n, steps)
    # Compute each cut from `first`: adding up rounded widths would leave the whole remainder to the last slice.
    cuts = [_moved(first, step, steps * number // n) for number in range(n)]
    return list(zip(cuts, [*cuts[1:], last], strict=True))


def _checked(context: str, name: str, bound: Any) -> RangeEnd:
    """Return a backfill's bound as a range end; raise BoundsError if one of its values cannot be compared exactly."""
    end = range_end(bound)
    for value in end:
        # Refuse floats, which are not exact, and booleans, which Python would compare as 0 and 1.
        if isinstance(value, bool | float) or not isinstance(value, Cursor):
            raise BoundsError(
                context, f"{name} is a {type(value).__name__}. Give a time, a date, a whole number, a Decimal or text."
            )
        if isinstance(value, Decimal) and not _is_number(value):
            raise BoundsError(
                context, f"{name} is not a number that a column can hold. Give a number with fewer digits."
            )
    # Convert to UTC: a slice's id is made from its bounds, so the same moment in two zones must give the same id.
    try:
        return tuple(_in_utc(value) for value in end)
    except OverflowError:
        raise BoundsError(context, f"{name} is outside the years 1 to 9999 in UTC. Give a nearer time.") from None


def _in_utc(value: Cursor) -> Cursor:
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(timezone.utc)
    return value


def _is_number(value: Decimal) -> bool:
    # Refuse infinity and NaN, whose exponent is a letter, and 1E+999999999, whose zeros `_text` would write out.
    exponent = value.as_tuple().exponent
    return isinstance(exponent, int) and exponent >= -MAX_DIGITS and value.adjusted() < MAX_DIGITS


def _family(value: Cursor) -> str:
    if isinstance(value, datetime):
        return "datetime with zone" if value.tzinfo else "datetime without zone"
    return "number" if isinstance(value, int | Decimal) else type(value).__name__


def _step(low: Cursor, high: Cursor) -> Any:
    # In Python a datetime is a date too, so check for datetime first.
    if isinstance(low, datetime):
        return MICROSECOND
    if isinstance(low, date):
        return DAY
    exponents = [int(value.as_tuple().exponent) for value in (low, high) if isinstance(value, Decimal)]
    if not exponents:
        return 1
    # Decimal("1E+3") has the exponent 3, but is the whole number 1000, so keep the step at 1 or below.
    return Decimal(1).scaleb(min(0, *exponents))


def _divided(low: Any, high: Any, step: Any) -> Any:
    if isinstance(step, Decimal):
        return EXACT.divide(EXACT.subtract(Decimal(high), Decimal(low)), step)
    return (high - low) // step


def _moved(low: Any, step: Any, count: int) -> Any:
    return EXACT.add(Decimal(low), count * step) if isinstance(step, Decimal) else low + count * step


def slice_id(job_id: str, context: str, state: RowsState, bounds: CursorRange, name: str) -> str:
    """Return the id of the job that reads one slice. Equal bounds give the same id, which shows no cursor value."""
    ends = [[_text(value) for value in end or ()] for end in bounds]
    return derived_id(job_id, "backfill", context, state.origin, name, repr(ends))


def _text(value: Cursor) -> str:
    """Return the same text for equal values. Never change its format, because ids of stored jobs are made from it."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, str):
        return repr(value)
    # Write 5, 5.0 and 5E+0 alike, because they are the same bound. Adding 0 turns -0 into 0.
    return f"{EXACT.add(Decimal(value), 0).normalize(EXACT):f}"


# --- coverage -------------------------------------------------------------------------------------

MOST_PRINTED = 5
"""Most ranges that are printed for a state; `watermarks backfill` shows all."""


class PackedRanges(bytes):
    """The compressed ranges of a state: bytes that are printed as readable ranges.

    The bytes are those that the table stores, so an operator can look up a state and set it again unchanged.
    """

    ranges: tuple[CursorRange, ...] | None = None
    """The ranges; None if they cannot be read."""

    def __repr__(self) -> str:
        if self.ranges is None:
            return f"<{len(self):,} bytes that are no ranges>"
        told = [f"{_end_text(low, 'the beginning')} to {_end_text(high, 'the end')}" for low, high in self.ranges]
        if len(told) > MOST_PRINTED:
            told[MOST_PRINTED:] = [f"{len(told) - MOST_PRINTED:,} more"]
        return f"<{', '.join(told) or 'nothing'}>"

    __str__ = __repr__


def with_ranges(state: object) -> object:
    """Return a state with its coverage displayed as ranges; return any other value unchanged."""
    if not isinstance(state, Mapping) or not is_rows(state) or not isinstance(state.get("covered"), bytes):
        return state
    packed = PackedRanges(state["covered"])
    # Return a damaged state too, because an operator looks it up to find out what is wrong with it.
    with suppress(CursorError, *DAMAGE):
        packed.ranges = tuple(RowsState.read(state, "state").ranges)
    return {**state, "covered": packed}


def _end_text(end: RangeEnd | None, none: str) -> str:
    """Return one end of a range as text, such as ``5``, or ``(5, 1)`` for several columns; `none` for an open end."""
    if not end:
        return none
    values = [value.isoformat(" ") if isinstance(value, datetime) else str(value) for value in end]
    return values[0] if len(values) == 1 else f"({', '.join(values)})"


# --- names --------------------------------------------------------------------------------------


def backfill_record_id(job_id: str, context: str, state: RowsState) -> str:
    """Return the id of the job whose watermarks record what backfills of a context have begun and covered.

    The id contains the context's origin, a name that each reset replaces. So after a reset a new, empty record is used.
    """
    return derived_id(job_id, "coverage", context, state.origin)


# --- the record of backfills ---------------------------------------------------------------------

RECORD, DONE = "backfills", "done"


@dataclass(frozen=True)
class BackfillRecord:
    """What the backfills of a context have read and begun. A separate job stores this record as its state.

    Attributes
    ----------
    covered
        The merged ranges that finished slices have read.
    begun
        The bounds of slices that have begun but not finished, and may have written rows, by the name of the backfill.
    """

    covered: list[CursorRange] = field(default_factory=list)
    begun: Mapping[str, list[CursorRange]] = field(default_factory=dict)

    @classmethod
    def read(cls, stored: Any, name: str = "record") -> BackfillRecord:
        """Return a stored record; an empty one for None. Raise SourceError for a value that is not a record."""
        if stored is None:
            return cls()
        if not isinstance(stored, Mapping) or stored.get("kind") != RECORD:
            raise SourceError("a record of backfills", reason="changed", context=name, before="something else")
        types = [column.type for column in columns_in(Fields(stored, name))]
        covered = decode_ranges(stored.get("covered"), types, f"{name}.covered").get(DONE, [])
        return cls(merged(covered), decode_ranges(stored.get("begun"), types, f"{name}.begun"))

    def to_store(self, live: RowsState) -> dict[str, Any]:
        """Return the record as it is stored, with the cursor columns of `live`, the state of the backfilled context."""
        return {
            **stored_identity(live.columns, False, None),
            "kind": RECORD,
            "covered": encode_ranges({DONE: self.covered}, live.types),
            "begun": encode_ranges(self.begun, live.types, len(self.covered)),
        }

    def slices(self) -> Iterator[tuple[str, CursorRange]]:
        """Yield the backfill's name and the bounds of each slice that has begun and is not finished."""
        for name, ranges in self.begun.items():
            for bounds in ranges:
                yield name, bounds

    def ends(self) -> list[RangeEnd | None]:
        """Return, in one list, both ends of each slice that has begun and is not finished."""
        return [end for _, bounds in self.slices() for end in bounds]

    def is_covered(self, bounds: CursorRange) -> bool:
        """Return whether finished slices have read all of a range."""
        return not uncovered(bounds, self.covered)

    def has_begun(self, name: str, bounds: CursorRange) -> bool:
        """Return whether a slice has begun and is not finished."""
        return bounds in self.begun.get(name, ())

    def begin(self, name: str, bounds: CursorRange) -> BackfillRecord:
        """Return the record with one more begun slice. The caller stores it before the slice writes anything."""
        return replace(self, begun={**self.begun, name: [*self.begun.get(name, ()), bounds]})

    def drop(self, gone: Sequence[tuple[str, CursorRange]]) -> BackfillRecord:
        """Return the record without the given begun slices; the covered ranges stay as they are."""
        left: dict[str, list[CursorRange]] = {}
        dropped = set(gone)
        for name, bounds in self.slices():
            if (name, bounds) not in dropped:
                left.setdefault(name, []).append(bounds)
        return replace(self, begun=left)

    def finish(self, name: str, bounds: CursorRange) -> BackfillRecord:
        """Return the record with a slice moved from the begun slices to the covered ranges."""
        return replace(self.drop([(name, bounds)]), covered=merged([*self.covered, bounds]))
