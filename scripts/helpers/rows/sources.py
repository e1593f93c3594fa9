"""A source of rows: what it must offer, and what it may know before a window is fixed. Pure."""

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
    widths
        Lengths of the shortest and the longest of these texts in the first column; none of other types.
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
    widths: tuple[int, ...] = ()


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
    hidden
        Why others may be open that are not seen; empty where all are, or where no user could see one.
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
"""Why transactions are hidden."""
CACHED, NO_SEQUENCE = "numbers taken in advance", "numbers of no sequence"
EARLY = frozenset((CACHED, NO_SEQUENCE))
"""Stand among writers for clients that have a number, and have not begun the transaction that writes it."""


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


class Unknown(Enum):
    """What a source answers to a question that it was not made for; None says that there is no such row."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN


Rows = TypeVar("Rows", covariant=True)


class RowsOf(Protocol[Rows]):
    """What has rows of a type, as each `RowSource`: for editors and type checkers."""

    def rows(self, window: Any, /) -> Rows:
        """Return the rows of a window."""


class RowSource(ABC):
    """A table or query that `rows_since` reads.

    A source has a name, and says what is new in it: `columns`, `facts` and `rows`. All other questions protect rows
    from being lost. A source that knows the answer overrides the method; by default nothing is known. What passes
    questions on to another source is a `ForwardingRows`, so that no answer is lost on the way.
    """

    name: str
    """For messages and logs; holds no credentials."""
    assumes_utc: bool = False
    """Whether a first run by the wall clock of a zone that nobody gave is right in UTC; else it is refused."""

    @abstractmethod
    def columns(self, names: Sequence[str], strings: bool) -> tuple[CursorColumn, ...]:
        """Return the cursor columns; CursorError for one that is missing or has no exact order.

        Texts are refused unless `strings` is set.
        """

    @abstractmethod
    def facts(self, columns: tuple[CursorColumn, ...], low: Bound | None, descending: bool) -> Facts:
        """Ask, in one query, about NULLs everywhere and about the rows at `low` or past it."""

    @abstractmethod
    def rows(self, window: RowWindow) -> Any:
        """Return the rows of a window as a DataFrame, lazily; the predicate reaches the source."""

    def asking(self) -> AbstractContextManager[Any]:
        """Return what a plan asks its questions within; a source may keep one connection for all of them."""
        return nullcontext()

    def typed_errors(self) -> AbstractContextManager[None]:
        """Return what lets an error of a read of the rows come out as a SourceError; by default none is changed."""
        return nullcontext()

    def counts(self, rows: Any, window: RowWindow) -> Mapping[str, Any] | None:
        """Count rows that `rows` has returned, if they are in memory; None where they are counted as they are read."""
        return None

    def identity(self) -> Mapping[str, Any] | None:
        """Return which table it is, as names with texts and whole numbers, such as server, schema and table."""
        return None

    def zone_is_known(self, now: datetime) -> bool | None:
        """Tell whether somebody gave the zone of columns without zone, and of dates; None where no clock stamps them.

        Parameters
        ----------
        now
            The job's time, whose own zone counts where the source has no clock.
        """
        return None

    def wall_clock(self, column: CursorColumn) -> str | None:
        """Return what instants were read from that may be the wall clock of a zone; None where nothing shows that."""
        return None

    def is_partition(self, column: CursorColumn) -> bool | None:
        """Tell whether a cursor has one value for all files of a partition."""
        return None

    def last(self, columns: tuple[CursorColumn, ...], descending: bool) -> Bound | Unknown | None:
        """Return the largest cursor value of all rows, or the smallest, in one step. It is asked if nothing is new."""
        return UNKNOWN

    def cursor_at(self, window: RowWindow, position: int) -> Bound | Unknown | None:
        """Return the cursor of one row of a window in the order of reading, counted from 0."""
        return UNKNOWN

    def newest(self, window: RowWindow, most: int) -> Sequence[SeenRow] | Unknown | None:
        """Return the last rows of a window in one step, the last one first, at most so many; see `rows.plan`.

        None if the source would have to look at all of its rows.
        """
        return UNKNOWN

    def count(self, window: RowWindow) -> int | Unknown:
        """Count the rows of a window, which are those of one value; see `rows.plan`."""
        return UNKNOWN

    def writers(self, column: str, longest: timedelta) -> frozenset[str] | None:
        """Return the transactions, by name, that may still commit a lower number than the last one, after a wait.

        They were open when this was called, and still are after at most `longest`. What is in memory has none. `EARLY`
        says what may be written by others as well; that is waited for by the delay only.
        """
        return None

    def open_writers(self, delay: timedelta) -> OpenWriters | None:
        """Return the open transactions that may stamp rows.

        One that does not say when it began counts from `delay` before the first moment that is known of it.
        """
        return None

    def sequences(self, column: str) -> Sequence[NumberSequence]:
        """Return the sequences that number a column, as far as they are known."""
        return ()


def _of_source(question: str) -> Any:
    """Return the method of a `ForwardingRows` that passes a question on."""

    def ask(rows: ForwardingRows, *asked: Any, **named: Any) -> Any:
        return getattr(rows.source, question)(*asked, **named)

    return ask


class ForwardingRows(RowSource):
    """Rows of another source, and all that it knows. A test holds that no question is left out here."""

    source: RowSource

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the source, for messages."""
        return self.source.name

    @property
    def assumes_utc(self) -> bool:  # type: ignore[override]
        """Whether the source is right in UTC where nobody gave its zone."""
        return self.source.assumes_utc

    asking = _of_source("asking")
    columns, facts, rows = _of_source("columns"), _of_source("facts"), _of_source("rows")
    typed_errors, counts, identity = _of_source("typed_errors"), _of_source("counts"), _of_source("identity")
    zone_is_known, wall_clock = _of_source("zone_is_known"), _of_source("wall_clock")
    is_partition, last, cursor_at = _of_source("is_partition"), _of_source("last"), _of_source("cursor_at")
    newest, count, writers = _of_source("newest"), _of_source("count"), _of_source("writers")
    open_writers, sequences = _of_source("open_writers"), _of_source("sequences")


def says_zone(now: datetime) -> bool:
    """Tell whether a clock says a zone: UTC is that of every job which gives no clock, so nobody may have chosen it."""
    # By its name: London is not UTC in winter either, when its offset is 0.
    return now.tzname() != "UTC"


def named_zone(zone: str, source: str) -> tzinfo:
    """Return a time zone by its name; SourceError if there is none of it."""
    if zone == "UTC":
        return timezone.utc
    # Here, as it reads files, and `Watermarks` imports this module.
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(zone)
    except (ValueError, KeyError) as error:
        raise SourceError(source, f"zone={zone!r} is unknown. Give a name such as 'Europe/London'.") from error
