"""Cursor columns and their values: the smallest step, the next value, and exact text. Pure.

A timestamp is held as an aware datetime in UTC. For a column without zone, this datetime has the date and time of the
wall clock, and is only labelled as UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal, InvalidOperation
from typing import Any, TypeVar, cast
from uuid import UUID

from dateutil.parser import isoparse

from scripts.helpers.errors import CursorError

Cursor = datetime | date | int | Decimal | str
Tick = timedelta | Decimal | int
Number = TypeVar("Number", int, Decimal)
Bound = tuple[Cursor | None, ...]
"""One end of a window: a value for each cursor column. Any but the first may be None, which is before all values."""

EXACT = Context(prec=76)
"""A context that is precise enough for the sum of two Spark decimals; the default context would round to 28 digits."""
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
WHOLE = ("tinyint", "smallint", "int", "bigint")
WHOLE_DIGITS = (3, 5, 10, 19)
"""Digits of the largest number of each type in WHOLE."""
OUTSIDE = (-(2**63) - 1, 2**63)
"""One below the smallest whole number and one above the largest. A row with the largest number needs a bound just past
it, or it would never be read."""
TIMES = ("timestamp", "timestamp_ntz", "date")
UUIDS = ("uuid", "binary(16)")
"""Types whose values are held as UUID texts in lower case, because these sort in the order of their bytes."""
TEXTS = ("string", *UUIDS)
MICROSECOND = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
LONGEST_TURN = 180
"""Most minutes by which a zone turns its clocks back. The end of summer time takes one or two hours; the largest change
since 1995 was three hours, when the Antarctic station Casey changed its zone."""
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?", re.ASCII)
WRITTEN = (
    "Write a timestamp as 2026-01-31T10:00:00+00:00, one without zone as 2026-01-31T10:00:00, a date as 2026-01-31, a "
    "number in digits."
)
ABOVE = "\x01"
"""The character that is appended to a text to get a text just above it."""


@dataclass(frozen=True)
class CursorColumn:
    """A cursor column: a column whose values are compared with the watermark.

    `type` is Spark's short name of its type, such as ``timestamp`` or ``decimal(10,2)``. `tick` is the smallest step of
    its values: that of the type, unless the source reports a coarser one (DATETIME of whole seconds). Texts have none.

    Examples
    --------
    >>> CursorColumn("price", "decimal(10,2)").tick
    Decimal('0.01')
    >>> CursorColumn("id", "bigint").next_above(41)
    42
    """

    name: str
    type: str
    tick: Tick | None = field(default=None, compare=False)
    zone: str | None = field(default=None, compare=False)
    """Zone of the clock that stamps its dates or times without zone; the plan computed the delay in this zone."""
    is_tick_reported: bool = field(default=False, init=False, compare=False, repr=False)
    """Whether the source reported the tick; DataFrames do not."""

    def __post_init__(self) -> None:
        """Set the tick, a type's smallest step, if none is given; raise CursorError for a type without exact order."""
        object.__setattr__(self, "is_tick_reported", self.tick is not None)
        if self.tick is None and self.type not in TEXTS:
            object.__setattr__(self, "tick", self._own_tick())

    def _own_tick(self) -> Tick:
        if self.type in WHOLE:
            return 1
        if self.type in TIMES:
            return DAY if self.type == "date" else MICROSECOND
        precision, scale = decimal_type(self.type)
        if precision:
            return Decimal(1).scaleb(-scale)
        raise unordered(self.name, self.type)

    @property
    def is_time(self) -> bool:
        """Whether the column holds times or dates, which can be compared with a clock."""
        return self.type in TIMES

    @property
    def is_number(self) -> bool:
        """Whether the column holds numbers."""
        return not self.is_time and self.type not in TEXTS

    @property
    def is_uuid(self) -> bool:
        """Whether the column holds UUIDs."""
        return self.type in UUIDS

    def next_above(self, value: Cursor) -> Cursor:
        """Return the smallest value above `value` that the column can hold; for a text, the text with `ABOVE` added."""
        if self.is_uuid and isinstance(value, str):
            return str(UUID(int=_in_range(UUID(value).int + 1, 0, 2**128 - 1)))
        return value + ABOVE if isinstance(value, str) else self.shifted(value, self.tick, 1)

    def next_below(self, value: Cursor) -> Cursor:
        """Return the largest number below `value` that the column can hold."""
        return self.shifted(value, self.tick, -1)

    def shifted(self, value: Cursor, by: Tick | None, sign: int) -> Cursor:
        """Return a value moved by `by`, up if `sign` is 1 and down if -1; raise OverflowError outside the type's range.

        A date moves by whole days, rounded up. For a number, one step past the range is still allowed.
        """
        if isinstance(by, timedelta) and isinstance(value, datetime):
            return value + sign * by
        if isinstance(by, timedelta) and isinstance(value, str) and self.is_uuid:
            # The first 48 bits of the UUID are milliseconds. Set the other bits, which hold no time, to 0.
            milliseconds = (UUID(value).int >> 80) + sign * (by // timedelta(milliseconds=1))
            return str(UUID(int=_in_range(milliseconds, 0, 2**48 - 1) << 80))
        if isinstance(by, timedelta) and isinstance(value, date):
            # Round up: a lookback of an hour must read the whole day before, because a row may be from its last hour.
            whole_days = -(-by // DAY)
            return value + sign * whole_days * DAY
        if isinstance(by, int) and isinstance(value, int):
            return _in_range(value + sign * by, OUTSIDE[0], OUTSIDE[1])
        if isinstance(by, int | Decimal) and isinstance(value, int | Decimal):
            # Allow one step outside the range, as for whole numbers: 10.00 is just past the 9.99 of a decimal(3,2).
            precision, scale = decimal_type(self.type)
            limit = Decimal(1).scaleb(precision - scale)
            return _in_range(EXACT.add(Decimal(value), sign * Decimal(by)), -limit, limit)
        raise CursorError(self.name, f"a {self.type} cannot be moved by a {type(by).__name__}.")

    def at(self, moment: datetime) -> datetime | date:
        """Return a moment as the column stores it; a column without zone stores the wall clock of the moment's zone."""
        if self.type == "date":
            return moment.date()
        if self.type == "timestamp":
            return moment.astimezone(timezone.utc)
        return moment.replace(tzinfo=timezone.utc, fold=0)

    def lowest(self, moment: datetime) -> datetime | date:
        """Return the lowest time that a row written at `moment` or later can get, also if clocks are then set back."""
        if self.type == "timestamp":
            return self.at(moment)
        # At 02:59 of the night on which clocks go back an hour, the next stamp can be 02:00. Rows with such stamps
        # would be lost if the watermark were already past them. Try each of the next minutes, because a zone may
        # change at any minute and Python does not list its changes.
        lowest = self.at(moment)
        start = moment.astimezone(timezone.utc).replace(second=0, microsecond=0)
        for minutes in range(1, LONGEST_TURN + 1):
            turned = start + minutes * MINUTE
            lowest = min(lowest, self.at(turned.astimezone(moment.tzinfo)))
        return lowest

    def floor(self, moment: datetime) -> datetime | date:
        """Round a moment down to the column's tick, so that no stamp made at that moment or later is below the result.

        If ticks do not add up to whole seconds, as for SQL Server's DATETIME, subtract a whole tick instead.
        """
        value, tick = self.lowest(moment), cast(timedelta, self.tick)
        if not isinstance(value, datetime):
            return value
        # Stamps are cut to the column's steps: a row written at 12:00:00.9 gets 12:00:00 in a column of whole seconds.
        # A watermark of 12:00:00.9 would be past that row, although no run may have read the row yet.
        is_fraction_or_multiple = not SECOND % tick or not tick % SECOND
        if is_fraction_or_multiple:
            return value - (value - EPOCH) % tick
        return value - tick

    def check(self, value: object) -> Cursor:
        """Return a stored bound; raise CursorError if it does not fit the column: another program changed it."""
        return check_value(value, self.type, self.name)

    def from_caller(self, value: object, what: str) -> Cursor:
        """Return a caller's bound; raise CursorError, which names the argument, if it does not fit the column.

        A datetime without zone is a wall clock and fits only a column without zone. Such a column also accepts a
        datetime in UTC and reads it as a wall clock, because states and `gaps` show wall clocks in this form.
        """
        if isinstance(value, datetime) and self.type != "date":
            if value.tzinfo is None and self.type == "timestamp":
                raise CursorError(self.name, f"{what} is a datetime without zone. Give an aware one.")
            if value.utcoffset() and self.type == "timestamp_ntz":
                raise CursorError(self.name, f"{what} has a zone and the column has none. Give one without zone.")
            try:
                value = value.astimezone(timezone.utc) if value.tzinfo else value.replace(tzinfo=timezone.utc)
            except OverflowError:
                raise CursorError(
                    self.name, f"{what} is outside the years 1 to 9999 in UTC. Give a nearer one."
                ) from None
        if self.is_uuid and isinstance(value, UUID):
            value = str(value)
        # Leave out booleans: in Python True is an int, and would become the bound 1.
        if isinstance(value, int) and not isinstance(value, bool) and self.type.startswith("decimal"):
            value = Decimal(value)
        self.check_letters(value, what)
        try:
            if type(value) is int and self.type in WHOLE:
                limit = 2 ** (8 * 2 ** WHOLE.index(self.type) - 1)
                _in_range(value, -limit - 1, limit)
            return self.check(value)
        except (CursorError, OverflowError):
            raise CursorError(
                self.name, f"{what} is a {type(value).__name__} that does not fit a {self.type}. Give one that does."
            ) from None

    def check_letters(self, value: object, what: str) -> None:
        """Raise CursorError for a text with letters beyond ASCII."""
        # A window compares texts byte by byte. Only ASCII texts have the same order in every encoding. UTF-16 and UTF-8
        # sort some other letters differently, so that a later key could be below the watermark.
        if isinstance(value, str) and not value.isascii():
            raise CursorError(
                self.name,
                f"{what} has letters beyond ASCII, which databases put in different orders. Use a column of ASCII keys "
                "of fixed width, or a timestamp, date, integer or decimal column.",
            )

    def from_text(self, text: str) -> Cursor:
        """Read a value from its exact text, which for a timestamp is ISO text with zone, or microseconds since 1970.

        Raise CursorError for a value that Python cannot hold, such as the year 10000, infinity or NaN.
        """
        try:
            return self._read(text)
        except (ValueError, OverflowError, InvalidOperation) as error:
            outside = "outside the years 1 to 9999" if self.is_time else f"no value of a {self.type}"
            raise CursorError(self.name, f"its largest value is {outside}. Fix or filter that row.") from error

    def from_typed(self, text: str, what: str) -> Cursor:
        """Read a value that a person or a scheduler wrote, such as an option of a command.

        Raises
        ------
        CursorError
            The value does not fit the column or is ambiguous: a time of digits only might be a year, a compact date,
            or seconds since 1970.
        """
        self.check_letters(text if self.type in TEXTS else None, what)
        if self.type in TEXTS or is_written_plainly(text, time=self.is_time):
            with suppress(CursorError):
                return self.from_caller(self.from_text(text), what)
        raise CursorError(self.name, f"{what} is not of type {self.type}. {WRITTEN}")

    def _read(self, text: str) -> Cursor:
        if self.type == "string":
            return text
        if self.is_uuid:
            return str(UUID(text))
        if self.type in WHOLE:
            return int(text)
        if self.type == "date":
            # Some drivers append midnight to a date. Refuse any other time: cutting it off would move the bound.
            has_midnight = re.fullmatch(r"[\d-]{10}[ T]00:00:00(\.0+)?", text)
            return date.fromisoformat(text[:10] if has_midnight else text)
        if not self.is_time:
            number = Decimal(text)
            if not number.is_finite():
                raise ValueError("not a number")
            return number
        if self.type == "timestamp" and re.fullmatch(r"-?\d+", text):
            return EPOCH + timedelta(microseconds=int(text))
        # Cut off nanoseconds and never round up. A window whose last row has this value still includes the row: the
        # window ends one microsecond above the cut value, which is above the row's own value.
        to_microseconds = re.sub(r"(\.\d{6})\d+", r"\1", text.replace(" ", "T", 1))
        moment = isoparse(to_microseconds)
        if (moment.tzinfo is None) == (self.type == "timestamp"):
            raise ValueError("a zone is missing, or one too many")
        return moment.astimezone(timezone.utc) if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def is_written_plainly(text: str, *, time: bool) -> bool:
    """Return whether a text is a plain number or, with `time`, a plain date or time such as ``2026-01-31 10:00``."""
    return (_TIME if time else _NUMBER).fullmatch(text) is not None


def as_number(value: Cursor, kind: str) -> int:
    """Return an integer: a time's microseconds since 1970, a date's ordinal, or a number in units of its last place."""
    if isinstance(value, datetime):
        return (value - EPOCH) // MICROSECOND
    if isinstance(value, date):
        return value.toordinal()
    return int(EXACT.scaleb(Decimal(value), decimal_type(kind)[1]))


def from_number(number: int, kind: str) -> Cursor:
    """Return the time, date or number that `as_number` turned into a whole number."""
    if kind == "date":
        return date.fromordinal(number)
    if kind in TIMES:
        return EPOCH + number * MICROSECOND
    return number if kind in WHOLE else EXACT.scaleb(Decimal(number), -decimal_type(kind)[1])


def decimal_type(kind: str) -> tuple[int, int]:
    """Return precision and scale of ``decimal(p,s)``; two zeros for any other type."""
    found = re.fullmatch(r"decimal\((\d{1,2}),(\d{1,2})\)", kind)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def widened(before: object, now: object) -> bool:
    """Return whether the new type of a column has all numbers of its old type, and no new numbers between them.

    A decimal with more places has new numbers in between. After a last row of 1.0, the watermark is the next value of
    the old type, 1.1. A new row with 1.05 would be below it and never be read.

    >>> widened("int", "bigint"), widened("bigint", "int"), widened("decimal(9,2)", "decimal(12,2)")
    (True, False, True)
    >>> widened("decimal(9,2)", "decimal(12,4)"), widened("bigint", "decimal(20,0)"), widened("bigint", "decimal(18,0)")
    (False, True, False)
    """
    if before in WHOLE and now in WHOLE:
        return WHOLE.index(str(before)) < WHOLE.index(str(now))
    (digits, places), (more_digits, same_places) = decimal_type(str(before)), decimal_type(str(now))
    # Accept a decimal without places in place of whole numbers: a MySQL BIGINT made UNSIGNED is read as one.
    if before in WHOLE:
        return same_places == 0 and more_digits >= WHOLE_DIGITS[WHOLE.index(str(before))]
    return 0 < digits < more_digits and places == same_places


def check_value(value: object, kind: str, name: str | None = None) -> Cursor:
    """Return a value if it is a cursor of the type, or a bound one step past the type's range; else raise CursorError.

    Other programs can write to the table of watermarks, so a stored value gets into a query only after this check.
    """
    if kind in ("timestamp", "timestamp_ntz") and isinstance(value, datetime) and value.tzinfo is not None:
        return value
    if kind == "date" and isinstance(value, date) and not isinstance(value, datetime):
        return value
    if kind in WHOLE and type(value) is int and OUTSIDE[0] <= value <= OUTSIDE[1]:
        return value
    if kind == "string" and isinstance(value, str) and _is_unicode(value):
        return value
    if kind in UUIDS and isinstance(value, str) and re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", value):
        return value
    precision, scale = decimal_type(kind)
    # Accept an int for a decimal without places: the column may have held whole numbers before; see `widened`.
    if precision and scale == 0 and type(value) is int:
        value = Decimal(value)
    if precision and isinstance(value, Decimal) and _fits(value, precision, scale):
        return value
    raise CursorError(
        name or kind, f"a stored bound is a {type(value).__name__}, not a {kind}. Reset the watermark by hand."
    )


def _fits(value: Decimal, precision: int, scale: int) -> bool:
    # Allow up to 10^(precision - scale): one step past the largest value of the type still fits, as a bound.
    # `copy_abs` and EXACT do not round, while abs() would round to the 28 digits of the default context.
    if not value.is_finite() or value.copy_abs() > Decimal(1).scaleb(precision - scale):
        return False
    unscaled = EXACT.scaleb(value, scale)
    return unscaled == unscaled.to_integral_value()


def _in_range(value: Number, smallest: Number, largest: Number) -> Number:
    if smallest <= value <= largest:
        return value
    raise OverflowError


def _is_unicode(text: str) -> bool:
    """Return whether a text has no lone surrogate, which no database accepts."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def missing_column(name: str, there: Iterable[str]) -> CursorError:
    """Return the error for a cursor column that a source does not have."""
    return CursorError(name, f"the source has no such column. It has: {', '.join(there)}.")


def unordered(name: str, kind: str, *, as_text: bool = False) -> CursorError:
    """Return the error for a type without exact order; with `as_text`, it also suggests strings=True."""
    keys = " Keys of fixed width, which rise byte by byte, are taken with strings=True." if as_text else ""
    return CursorError(
        name,
        f"a {kind} has no exact order to resume from. Use a timestamp, date, integer or decimal column.{keys}",
    )


def earlier(moment: datetime, by: timedelta) -> datetime:
    """Return the time exactly `by` before a moment, in the same zone: elapsed time, not a difference of wall clocks."""
    # Subtract in UTC: Python subtracts on the wall clock of a zone, which is an hour off across a change of clocks.
    return (moment.astimezone(timezone.utc) - by).astimezone(moment.tzinfo)


def as_list(stored: object) -> list[Any]:
    """Return a stored value as a list, whether it is one value or several."""
    return list(stored) if isinstance(stored, list | tuple) else [stored]


def just_past(columns: Sequence[CursorColumn], last: Bound, descending: bool) -> Bound:
    """Return the bound just past the values of a row; if the last column is at its limit, move the column before it."""
    column, value = columns[-1], last[-1]
    assert value is not None
    try:
        following = column.next_below(value) if descending else column.next_above(value)
        return (*last[:-1], following)
    except OverflowError:
        return (*just_past(columns[:-1], last[:-1], descending), None)
