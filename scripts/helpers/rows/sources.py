"""The interface of a source of rows: what it must implement, and what it may know before a window is fixed. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone, tzinfo
from enum import Enum
from typing import Any, Final, Protocol, TypeVar

from scripts.helpers.errors import SourceError
from scripts.helpers.rows.cursors import Bound, Cursor, CursorColumn
from scripts.helpers.rows.window import RowWindow


@dataclass(frozen=True)
class Facts:
    """The result of one query about the rows past the watermark.

    Attributes
    ----------
    now
        The source's own clock, aware, in the zone whose wall clock stamps its dates and its columns
        without zone. None if the source has no clock; then the job's clock is used.
    largest, smallest
        Largest and smallest cursor values among rows without NULL in the cursor; the columns of a compound cursor are
        compared in order. A source only needs to find one of them: the smallest for a descending cursor, otherwise the
        largest. None if there is no row.
    nulls
        Number of rows with NULL in a cursor column.
    ceiling
        An exact upper bound: no row below it can still appear. It needs no delay.
    zone
        The zone of dates and of columns without zone, if the source has no clock that shows it.
        None means the zone of the job's clock.
    other_uuids
        Number of rows past the watermark whose UUID is not of version 7.
    widths
        Lengths of the shortest and longest text in the first column, past the watermark; empty for other types.
    slack
        How far the date of a row's folder may be from its cursor, if folders are skipped by date.
    """

    now: datetime | None = None
    largest: Bound | None = None
    smallest: Bound | None = None
    nulls: int = 0
    ceiling: Cursor | None = None
    zone: tzinfo | None = None
    slack: timedelta | None = None
    other_uuids: int = 0
    widths: tuple[int, ...] = ()


@dataclass(frozen=True)
class SeenRow:
    """One row: its cursor, and its other columns as texts, without those of types that no text shows exactly."""

    cursor: Bound
    contents: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class OpenWriter:
    """A transaction that has written and is still open.

    Attributes
    ----------
    name
        The database's name of the transaction, such as ``pid 4711``.
    began
        An aware time at or before the transaction's start: the database stamps none of the transaction's rows earlier.
    """

    name: str
    began: datetime


@dataclass(frozen=True)
class OpenWriters:
    """The oldest transaction that has written and is still open, and a reason if some transactions may be invisible.

    Attributes
    ----------
    oldest
        The visible transaction that began first; None if none is open or visible.
    hidden
        Why some open transactions may be invisible; empty if none is, or for a kind of database that shows none at all.
    """

    oldest: OpenWriter | None = None
    hidden: str = ""


UNSEEN = (
    "this user may not see when transactions of others began. PostgreSQL: GRANT pg_read_all_stats. MySQL and MariaDB: "
    "GRANT PROCESS ON *.*"
)
ELSEWHERE = (
    "rows come from another server (of a replica, subscription or foreign table), or by the REFRESH of a materialized "
    "view, so the transactions that wrote them do not show"
)
STALE = "the server shows an old list of its transactions"
"""Reasons why transactions are hidden: UNSEEN, ELSEWHERE and STALE."""
CACHED, NO_SEQUENCE = "numbers taken in advance", "numbers of no sequence"
EARLY = frozenset((CACHED, NO_SEQUENCE))
"""Entries of `writers` that name no transaction: a client may hold a number and not have begun its transaction yet."""


@dataclass(frozen=True)
class NumberSequence:
    """A sequence that numbers the rows of a column.

    Attributes
    ----------
    step
        Difference from one number to the next; negative if the numbers fall.
    starts_again
        Whether the sequence starts again at its other end after its last number (CYCLE).
    """

    name: str
    step: int
    starts_again: bool


class Unknown(Enum):
    """The result of a method that a source does not implement; a result of None means that there is no such row."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN


Rows = TypeVar("Rows", covariant=True)


class RowsOf(Protocol[Rows]):
    """An object whose method `rows` returns `Rows`, such as a `RowSource`; for editors and type checkers."""

    def rows(self, window: Any, /) -> Rows:
        """Return the rows of a window."""


class RowSource(ABC):
    """A table or query that `rows_since` reads.

    A source has a name and finds its new rows with `columns`, `facts` and `rows`. The other methods are optional and
    help `rows.plan` to lose no row; most of the defaults mean "unknown". A source that wraps another one is a
    `ForwardingRows`, so that it forwards every method.
    """

    name: str
    """Name for messages and logs; contains no credentials."""
    assumes_utc: bool = False
    """Whether a first run may take times without zone for UTC if no zone was given; otherwise such a run is refused."""

    @abstractmethod
    def columns(self, names: Sequence[str], strings: bool) -> tuple[CursorColumn, ...]:
        """Return the cursor columns; CursorError if one is missing, lacks exact order, or is text without `strings`."""

    @abstractmethod
    def facts(self, columns: tuple[CursorColumn, ...], low: Bound | None, descending: bool) -> Facts:
        """Return, by one query, the number of NULLs in all rows and the other `Facts` of rows at `low` or past it."""

    @abstractmethod
    def rows(self, window: RowWindow) -> Any:
        """Return the rows of a window, for example as a lazy DataFrame. The source applies the window's filter."""

    def asking(self) -> AbstractContextManager[Any]:
        """Return a context manager for the queries of one plan, so that all of them can use one connection."""
        return nullcontext()

    def typed_errors(self) -> AbstractContextManager[None]:
        """Return a context manager that turns errors of reading rows into SourceError; by default it does nothing."""
        return nullcontext()

    def counts(self, rows: Any, window: RowWindow) -> Mapping[str, Any] | None:
        """Count the rows that `rows` has returned, if they are in memory; None if they are counted while being read."""
        return None

    def identity(self) -> Mapping[str, Any] | None:
        """Return the table's identity, a map of names to texts and whole numbers, such as server, schema and table."""
        return None

    def zone_is_known(self, now: datetime) -> bool | None:
        """Return whether a zone was given for dates and times without one; None if the source needs no zone.

        Parameters
        ----------
        now
            The job's time. Except for a database, the zone of `now` counts as given, unless it is the default, UTC.
        """
        return None

    def wall_clock(self, column: CursorColumn) -> str | None:
        """Return the name of a reader, such as JDBC, that may have read times without zone as instants; else None."""
        return None

    def is_partition(self, column: CursorColumn) -> bool | None:
        """Return whether a cursor is a partition column of files: all rows of a partition have the same value of it."""
        return None

    def last(self, columns: tuple[CursorColumn, ...], descending: bool) -> Bound | Unknown | None:
        """Return the largest cursor of all rows, or the smallest if descending. Called only if nothing is new."""
        return UNKNOWN

    def cursor_at(self, window: RowWindow, position: int) -> Bound | Unknown | None:
        """Return the cursor of the row at a position of a window, counted from 0 in the order of reading."""
        return UNKNOWN

    def newest(self, window: RowWindow, most: int) -> Sequence[SeenRow] | Unknown | None:
        """Return at most `most` of the last rows of a window, the last one first, by one index lookup; see `rows.plan`.

        Return None if the source would have to read all of its rows to find them.
        """
        return UNKNOWN

    def count(self, window: RowWindow) -> int | Unknown:
        """Count the rows of a window that has a single cursor value; see `rows.plan`."""
        return UNKNOWN

    def writers(self, column: str, longest: timedelta) -> frozenset[str] | None:
        """Return the names of open transactions that might still commit a row with a lower id than the last row.

        Wait at most `longest` for them to end; return those still open, None if unknown. Add `CACHED` if clients might
        take ids before a transaction begins (rows then wait for `delay`), and `NO_SEQUENCE` if no sequence is found.
        """
        return None

    def open_writers(self, delay: timedelta) -> OpenWriters | None:
        """Return the oldest open transaction that has written, and why others may be hidden; None if unknown.

        If the beginning of a transaction is not known, assume that it began `delay` before it was first seen.
        """
        return None

    def sequences(self, column: str) -> Sequence[NumberSequence]:
        """Return the known sequences that number a column."""
        return ()


def _forwarded(question: str) -> Any:
    """Return a method of `ForwardingRows` that calls the same method of its source."""

    def ask(rows: ForwardingRows, *asked: Any, **named: Any) -> Any:
        return getattr(rows.source, question)(*asked, **named)

    return ask


class ForwardingRows(RowSource):
    """A source that forwards every method to another source; a test checks that none is missing."""

    source: RowSource

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the source, for messages."""
        return self.source.name

    @property
    def assumes_utc(self) -> bool:  # type: ignore[override]
        """Whether, if no zone was given, the source may treat times without zone as UTC."""
        return self.source.assumes_utc

    asking = _forwarded("asking")
    columns, facts, rows = _forwarded("columns"), _forwarded("facts"), _forwarded("rows")
    typed_errors, counts, identity = _forwarded("typed_errors"), _forwarded("counts"), _forwarded("identity")
    zone_is_known, wall_clock = _forwarded("zone_is_known"), _forwarded("wall_clock")
    is_partition, last, cursor_at = _forwarded("is_partition"), _forwarded("last"), _forwarded("cursor_at")
    newest, count, writers = _forwarded("newest"), _forwarded("count"), _forwarded("writers")
    open_writers, sequences = _forwarded("open_writers"), _forwarded("sequences")


def has_chosen_zone(now: datetime) -> bool:
    """Return whether a user chose the zone of `now`. UTC counts as not chosen, because the default clock is in UTC."""
    # Compare the name: London is another zone than UTC in winter, too, when its offset is 0.
    return now.tzname() != "UTC"


def named_zone(zone: str, source: str) -> tzinfo:
    """Return a time zone by its name; raise SourceError if the name is unknown."""
    if zone == "UTC":
        return timezone.utc
    # Imported here because the import of zoneinfo reads files, which each import of `Watermarks` would wait for.
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(zone)
    except (ValueError, KeyError) as error:
        raise SourceError(source, f"zone={zone!r} is unknown. Give a name such as 'Europe/London'.") from error
