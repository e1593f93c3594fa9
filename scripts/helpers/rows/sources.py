"""What a source of rows must offer, and what it tells before a window is fixed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from scripts.helpers.errors import SourceError
from scripts.helpers.rows.cursors import Bound, Cursor, CursorColumn
from scripts.helpers.rows.window import RowWindow


@dataclass(frozen=True)
class Facts:
    """What one query found about the rows past the watermark.

    Attributes
    ----------
    now
        The source's own clock, aware, in the zone whose wall clock its columns without zone and its
        dates are stamped with. None if it has no clock; then the job's clock counts.
    largest, smallest
        Largest and smallest cursor values among rows without NULL there; compound cursors compare
        from the first column on. A source need only find the one it is asked for: the smallest of a
        descending cursor, else the largest. None if there is no row.
    nulls
        Rows that have NULL in a cursor column.
    ceiling
        An exact upper bound: no row below it can appear any more. It needs no delay.
    zone
        The zone of columns without zone and of dates, where the source has no clock to say it by.
        None is that of the job's clock.
    other_uuids
        Rows past the watermark whose UUID is of another version than 7.
    slack
        How far the folder of a row may be from its cursor, where folders are left out by date.
    """

    now: datetime | None = None
    largest: Bound | None = None
    smallest: Bound | None = None
    nulls: int = 0
    ceiling: Cursor | None = None
    zone: tzinfo | None = None
    slack: timedelta | None = None
    other_uuids: int = 0


@dataclass(frozen=True)
class SeenRow:
    """One row: its cursor, and the exact texts of its other columns as far as they have one."""

    cursor: Bound
    contents: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class OpenWriter:
    """A transaction that has written and is still open.

    Attributes
    ----------
    name
        What the database calls it, such as ``pid 4711``.
    began
        When it began, or earlier; aware. The database gives its rows no earlier stamp.
    """

    name: str
    began: datetime


@dataclass(frozen=True)
class OpenWriters:
    """The transactions that have written and are still open, as far as a user may see them.

    Attributes
    ----------
    oldest
        The one that began first; None if none is open, or none is seen.
    are_all_seen
        Whether the user may see when those of other users began. True also where no user could.
    """

    oldest: OpenWriter | None = None
    are_all_seen: bool = True


@dataclass(frozen=True)
class NumberSequence:
    """A sequence that numbers the rows of a column.

    Attributes
    ----------
    step
        From one number to the next; below 0 where they fall.
    starts_again
        Whether it begins anew at its other end, once it is through.
    """

    name: str
    step: int
    starts_again: bool


class RowSource(Protocol):
    """A table or query that `rows_since` reads.

    A source that can tell which table it is has a method ``identity()`` as well. It returns a map of names to texts
    and whole numbers, such as server, database, schema and table, or None; see `rows.identity`.

    A source that finds its last row in one step has ``last(columns, descending)``: the largest cursor value of all
    rows, or the smallest, None if there is no row. It is asked where nothing is new.

    A source that is read in batches of `max_rows` has ``cursor_at(window, position)``: the cursor of one row of a
    window in the order of reading, counted from 0; None if it has fewer rows.

    A source that finds its last rows in one step has ``newest(window, most)``: the last rows of a window as `SeenRow`,
    the last one first, at most so many; None if it would have to look at all of its rows. See `rows.edge`.

    A source whose columns may be the wall clock of a zone that nobody said has ``zone_is_known(now)``: whether somebody
    said it. `now` is the job's time, whose own zone counts where the source has no clock. A first run by such a column
    is then refused, unless the source has ``assumes_utc``, which is True.

    A source of files has ``is_partition(column)``: whether a cursor has one value for all files of a partition.

    A source whose rows are committed has ``writers(longest)``: the transactions, by name, that were open and may commit
    a lower number than the last one, and are still open after a wait of at most `longest`; None if it cannot tell.

    A source whose rows are stamped in transactions has ``open_writers(delay)``: those that are open, as `OpenWriters`.
    One that does not say when it began counts from `delay` before the first moment that is known of it.

    A source that knows where its numbers come from has ``sequences(column)``: those of a column, as `NumberSequence`.
    """

    name: str
    """For messages and logs; holds no credentials."""

    def columns(self, names: Sequence[str], strings: bool) -> tuple[CursorColumn, ...]:
        """Return the cursor columns; CursorError for one that is missing or has no exact order.

        Texts are refused unless `strings` is set.
        """
        ...

    def facts(self, columns: tuple[CursorColumn, ...], low: Bound | None, descending: bool) -> Facts:
        """Ask, in one query, about NULLs everywhere and about the rows at `low` or past it."""
        ...

    def rows(self, window: RowWindow) -> Any:
        """Return the rows of a window as a DataFrame, lazily; the predicate reaches the source."""
        ...

    def typed_errors(self) -> AbstractContextManager[None]:
        """Return what lets an error of a read of the rows come out as a SourceError."""
        ...


def says_zone(now: datetime) -> bool:
    """Tell whether a clock says a zone: UTC is that of every job which gives no clock, so nobody may have chosen it."""
    # By its name: London is not UTC in winter either, when its offset is 0.
    return now.tzname() != "UTC"


def named_zone(zone: str, source: str) -> tzinfo:
    """Return a time zone by its name; SourceError if there is none of it."""
    if zone == "UTC":
        return timezone.utc
    try:
        return ZoneInfo(zone)
    except (ValueError, KeyError) as error:
        raise SourceError(source, f"zone={zone!r} is unknown. Give a name such as 'Europe/London'.") from error
