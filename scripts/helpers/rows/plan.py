"""Compute the window of one batch: two bounds, from the options, the stored watermark and the source's facts. Pure.

Also compute two windows that do not move a watermark: of all rows, and of the rows that former runs took.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

from scripts.helpers.display.options import options_of
from scripts.helpers.errors import CursorError, SourceError, rows_have
from scripts.helpers.rows.cursors import ABOVE, EPOCH, Bound, Cursor, CursorColumn, Tick, earlier, just_past
from scripts.helpers.rows.identity import check_same_source
from scripts.helpers.rows.options import RowOptions
from scripts.helpers.rows.sources import (
    EARLY,
    ELSEWHERE,
    NO_SEQUENCE,
    UNKNOWN,
    Facts,
    OpenWriter,
    OpenWriters,
    RowSource,
    SeenRow,
    Unknown,
)
from scripts.helpers.rows.states import DIGITS, Edge, RowsState, Undecided, bound_given, check_types, stamped_by
from scripts.helpers.rows.window import Nulls, RowWindow, precedes

logger = logging.getLogger(__name__)

# --- batch size -----------------------------------------------------------------------------------
# Find the end of a batch of at most `max_rows` rows. A batch never ends between two rows with the same cursor.


def limited(source: RowSource, window: RowWindow, most: int, context: str) -> RowWindow:
    """Return the part of a window with its first `most` rows; the whole window if it does not have more rows.

    Rows with the same cursor stay together: if there are more than `most` of them, they are one batch, with a WARNING.
    Rows that a lookback or ``nulls="take"`` reads again do not count.

    Raises
    ------
    CursorError
        The source cannot find the cursor of the row at a position.
    """
    if window.high is None:
        return window
    # Count only new rows, because rows that are read again do not move the watermark.
    new = replace(window, lookback=None, nulls="raise")
    following = source.cursor_at(new, most)
    if following is UNKNOWN:
        raise CursorError(
            window.columns[0].name, f"{source.name} cannot be read in batches of max_rows={most}. Leave it out."
        )
    if following is None:
        return window
    high = following
    if source.cursor_at(new, 0) == following:
        high = just_past(window.columns, following, window.descending)
        logger.warning(
            "event=large_tie context=%s column=%s max_rows=%d: more rows share a cursor value and form one batch",
            context, window.columns[0].name, most,
        )  # fmt: skip
        if not precedes(high, window.high, descending=window.descending):
            return window
    return replace(window, high=high, has_more=True)


# --- uuids ----------------------------------------------------------------------------------------
# UUIDs as cursors: compared byte by byte, UUIDs of version 7 rise with time, and those of other versions do not.
#
# The first 48 bits of version 7 are milliseconds since 1970, by the clock of the machine that made the UUID. So a
# window can stay behind the clock by a delay, as for a time column. If machines other than the source make the UUIDs,
# the delay must also cover the difference between their clocks.

MILLISECOND = timedelta(milliseconds=1)
_FORM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
REASONS = {
    1: "a UUID of version 1 begins with the lowest digits of its time",
    4: "a UUID of version 4 is random",
    6: "a UUID of version 6 is made of another clock than version 7, and not read here",
}


def is_uuid(value: object) -> bool:
    """Return whether a value is text in the form of a UUID."""
    return isinstance(value, str) and _FORM.fullmatch(value) is not None


def check_uuid(column: CursorColumn, value: str) -> None:
    """Raise CursorError, with the reason, for a UUID of a version that does not rise with time.

    Parameters
    ----------
    value
        The last value of a column, in the form of a UUID. If a column has UUIDs of other versions, its last value is
        likely one of them, because most UUIDs of version 4 are above all those of version 7.
    """
    version = UUID(value).version
    if version != 7:
        reason = REASONS.get(version or 0, "it is a UUID of no known version")
        raise CursorError(
            column.name,
            f"{reason}, so a new one is not above those that were read. Only version 7 rises with time. Use a time "
            "column, or let the table make UUIDs of version 7.",
        )
    if value != value.lower():
        raise CursorError(
            column.name, "it holds UUIDs in capitals, which sort before small letters. Write all in small letters."
        )


def moment_of(value: str) -> datetime:
    """Return when a UUID of version 7 was made, to the millisecond; for times after 9999, the latest datetime.

    >>> moment_of("018bcfe5-6800-7000-8000-000000000000").isoformat()
    '2023-11-14T22:13:20+00:00'
    """
    try:
        return EPOCH + (UUID(value).int >> 80) * MILLISECOND
    except OverflowError:
        return datetime.max.replace(tzinfo=EPOCH.tzinfo)


def first_uuid_at(moment: datetime) -> str:
    """Return the smallest UUID of version 7 that can be made in the millisecond of a moment or later.

    >>> first_uuid_at(moment_of("018bcfe5-6800-7abc-8def-0123456789ab"))
    '018bcfe5-6800-7000-8000-000000000000'
    """
    milliseconds = max(0, (moment - EPOCH) // MILLISECOND)
    return str(UUID(int=(milliseconds << 80) | (7 << 76) | (0b10 << 62)))


# --- open writers ---------------------------------------------------------------------------------
# Find the number or stamp below which no row can still appear. A transaction takes its numbers and stamps first and
# commits later, and transactions commit in any order.
#
# A database gives a row its id on INSERT and shows the row when its transaction commits. So id 2 may become visible
# after id 3, and a window that ended past 3 would lose it. A row with a lower id belongs to a transaction that was open
# when the last id was seen. Once all these transactions have ended, the id is *decided*: no row can come below it.
#
# A stamp is not earlier than the beginning of its transaction, so no row comes below the beginning of the oldest open
# transaction. Rows with stamps older than the delay can come only from transactions that are open longer than that.

LONGEST_WAIT = timedelta(seconds=30)
"""How long a run waits for open transactions while it plans. Most end within this time. Rows that wait for a longer
transaction are left for a later run, because a waiting cluster costs money."""


def is_decided(left: Undecided, still_open: frozenset[str] | None, now: datetime, delay: timedelta) -> bool:
    """Return whether rows that an earlier run left can be taken: no transaction can still commit rows below them."""
    if left.writers is not None and still_open is not None:
        awaited = left.writers & still_open
        return not awaited - EARLY and (not awaited or now - left.at >= delay)
    # If this run or the earlier one could not list open transactions, assume that all end within the delay.
    return now - left.at >= delay


def reachable_high(
    source: RowSource,
    columns: tuple[CursorColumn, ...],
    past_last: Bound,
    low: Bound | None,
    before: Undecided | None,
    options: RowOptions,
    now: datetime,
    context: str,
) -> tuple[Bound | None, Undecided | None]:
    """Return the upper bound of a window of numbers, and the rows that wait for open transactions (see `Undecided`).

    Parameters
    ----------
    past_last
        The bound just past the last row, which was seen before this call.
    low, before
        The watermark, and the rows that the former run left, because transactions could still commit lower numbers.
    now
        The time of the source's clock.
    """
    if options.settled or not options.delay:
        return past_last, None
    # Ask for open transactions only now that the last row was seen: later transactions get higher numbers.
    still_open = source.writers(columns[0].name, min(options.delay, LONGEST_WAIT))
    if NO_SEQUENCE in (still_open or ()) and low is None and before is None:
        logger.warning(
            "event=no_sequence context=%s column=%s: no sequence is found that generates these numbers, so rows wait "
            "for open transactions. If a client generates a number before its transaction begins, and a run reads a "
            "higher number first, the row is lost",
            context, columns[0].name,
        )  # fmt: skip
    if still_open is not None:
        # Drop NO_SEQUENCE, which is used only for the WARNING above. Keep CACHED (clients may have taken numbers in
        # advance), so that rows wait for the delay. If the caller passes an upper bound, no delay applies: drop both.
        still_open -= EARLY if options.high is not None else {NO_SEQUENCE}
    if still_open is not None and not still_open:
        return past_last, None
    left = before
    bound = low
    if before is not None and is_decided(before, still_open, now, options.delay):
        bound, left = before.bound, None
        # Rows that an earlier run left undecided may be deleted by now: do not go past the last row that exists.
        if precedes(past_last, bound, descending=options.descending):
            bound = past_last
        if low is not None and precedes(bound, low, descending=options.descending):
            bound = low
    # Wait for the same transactions until all have ended: if each run waited for newer ones, no row might be taken.
    left = left or Undecided(past_last, still_open, now)
    logger.warning(
        "event=undecided_rows context=%s column=%s open_transactions=%s: rows past the upper bound wait for a later "
        "run, because lower numbers may still be committed. delay=timedelta(0) reads them at once, but may lose rows",
        context, columns[0].name, "unknown" if still_open is None else ", ".join(sorted(still_open)[:5]),
    )  # fmt: skip
    return bound, left


def oldest_writer(source: RowSource, delay: timedelta, context: str, *, warns: bool) -> OpenWriters:
    """Return the oldest open transaction that has written, and a reason if open transactions may be invisible.

    Call this after the last row was seen: rows of a transaction that has ended by then are visible to the next read.

    Parameters
    ----------
    source
        The source, whose `open_writers` are queried.
    delay
        The delay of the time column. With 0 a run waits for no transaction, so none is looked up.
    warns
        Whether to log a WARNING if some transactions are invisible.
    """
    found = source.open_writers(delay) if delay else None
    if found is None:
        return OpenWriters()
    if warns and found.hidden:
        logger.warning(
            "event=hidden_transactions context=%s source=%s: rows that are committed later than delay=%s after their "
            "stamp are lost, because %s", context, source.name, delay, found.hidden,
        )  # fmt: skip
    return found


def settled_moment(clock: datetime, delay: timedelta, oldest: OpenWriter | None) -> datetime:
    """Return the moment, in the clock's zone, below which no row can appear; OverflowError if it is before year 1."""
    if oldest is not None and age_of(oldest, clock) > delay:
        return oldest.began.astimezone(clock.tzinfo)
    return earlier(clock, delay)


def age_of(writer: OpenWriter, clock: datetime) -> timedelta:
    """Return how long a transaction has been open."""
    # Subtract in UTC: Python subtracts two times of one zone by wall clock, which repeats an hour in autumn.
    return clock.astimezone(timezone.utc) - writer.began.astimezone(timezone.utc)


# --- edge -----------------------------------------------------------------------------------------
# Store the last rows below a watermark, to detect that a table was restored or that rows came below the watermark.
#
# A table that was truncated or restored assigns its numbers again, and may grow past the watermark before the next run.
# That run finds rows past the watermark, and no clock shows that the rows below the watermark are different ones. So a
# state stores digests of the last few rows taken (the *edge*), and the next run compares them by one index lookup.
# Times need no edge: an update moves a row past the watermark anyway, and rows made after a restore have later stamps.

KEPT = 5
"""How many rows an edge has. The last row alone shows that a table was restored. If the last row is an outlier, such as
1,000,000 after 100, the other four show that 101 was inserted below it. More than four outliers are rare."""


def edge_of(seen: Sequence[SeenRow], most: int, *, as_written: bool = False) -> Edge | None:
    """Return the `Edge`, a digest of each row, for the last rows below a watermark; None if `seen` has none.

    `seen` has the last row first, and at most `most` rows. Digests ignore zeros at the end of a decimal, so that a
    column may get more places. With `as_written` they include the zeros, as in states of earlier releases.
    """
    if not seen:
        return None
    rows = []
    for row in seen:
        cursor = [
            _without_zeros(f"{value:f}") if isinstance(value, Decimal) and not as_written else str(value)
            for value in row.cursor
        ]
        contents = [text if as_written or not text else _without_zeros(text) for text in row.contents.values()]
        rows.append((_digest(cursor), _digest(contents)))
    start = seen[-1].cursor if len(seen) == most else None
    return Edge(start, _digest(list(seen[0].contents)), tuple(rows))


def _edge_like(before: Edge, seen: Sequence[SeenRow]) -> Edge | None:
    """Return digests of the rows `seen`, with or without decimals' final zeros, whichever fits `before` best."""

    def agreeing(edge: Edge | None) -> tuple[int, int]:
        rows = edge.rows if edge else ()
        cursors = {cursor for cursor, _ in before.rows}
        return sum(cursor in cursors for cursor, _ in rows), len({*rows} & {*before.rows})

    return max((edge_of(seen, KEPT + 1, as_written=written) for written in (False, True)), key=agreeing)


def _without_zeros(text: str) -> str:
    """Return the exact text of a decimal without trailing zeros in its fraction; return any other text unchanged."""
    return text.rstrip("0").rstrip(".") if re.fullmatch(r"-?\d+\.\d+", text) else text


def _add_ties(edge: Edge, source: RowSource, window: RowWindow) -> Edge:
    """Set `ties` of an edge (the last few rows below a watermark): how many rows of the source have the cursor `start`.

    `start` is the edge's first cursor. The edge may lack rows that have it. If only one has it, `ties` stays None.
    """
    lowest = edge.rows[-1][0]
    if edge.start is None or sum(cursor == lowest for cursor, _ in edge.rows) < 2:
        return edge
    end = just_past(window.columns, edge.start, window.descending)
    found = source.count(RowWindow(window.columns, edge.start, end, descending=window.descending))
    return edge if found is UNKNOWN else replace(edge, ties=found)


def _count_rows_below(before: Edge, now: Edge | None) -> int:
    """Count the rows of `now` that `before` lacks: they came below the watermark after an earlier run stored `before`.

    An edge has the last rows below the watermark. Count per cursor, because several rows may have the same cursor.
    """
    if now is None:
        return 0
    is_partial = before.start is not None
    lowest = before.rows[-1][0]
    found = Counter(cursor for cursor, _ in now.rows) - Counter(cursor for cursor, _ in before.rows)
    # Skip rows with the lowest cursor: `before` may have some of them only. The caller compares their count (`ties`).
    return sum(count for cursor, count in found.items() if not (is_partial and cursor == lowest))


def _is_last_row_unchanged(before: Edge, now: Edge | None) -> bool:
    """Return whether the last row that a run took still exists in the source, with the same contents."""
    if now is None:
        return False
    cursor, contents = before.rows[0]
    # If the source's columns have changed, the digest of each row's contents differs: compare only the cursor.
    if now.names != before.names:
        return cursor in {other for other, _ in now.rows}
    return (cursor, contents) in now.rows


def edge_after(
    source: RowSource,
    window: RowWindow,
    before: Edge | None,
    options: RowOptions,
    context: str,
    job_id: str,
) -> Edge | None:
    """Compare the last rows below the watermark with the stored ones (the edge); return the edge for the next run.

    Raises
    ------
    SourceError
        Rows came below the watermark, which no run would take; or, with ``on_changed="raise"``, the last row taken is
        gone or has changed.
    """
    # Times and UUIDs need no edge (digests of the last rows): only used numbers and texts may recur after a restore.
    if window.columns[0].is_time or window.columns[0].is_uuid:
        return None
    if before is not None and window.low is not None:
        # Read one row more than an edge stores, because a row may have been inserted among the stored rows.
        seen = _newest(source, window, before.start, window.low, KEPT + 1)
        # `_newest` returns None if a query without an index would read the whole table; `facts` has logged a WARNING.
        if seen is not None and seen is not UNKNOWN:
            never_read = seen
            # Ignore rows within the lookback: this window reads them again, so a row that came there is not lost.
            if window.lookback:
                never_read = _below(source, before.start, window)
            came = _count_rows_below(before, _edge_like(before, never_read))
            if before.ties is not None and never_read:
                came += max(0, (_add_ties(before, source, window).ties or 0) - before.ties)
            _compare(before, came, seen, source, options, context, job_id)
    reached = window.low if window.high is None else window.high
    if reached is None:
        return None
    # If nothing is new, the rows that a former run stored (`before`) are still the last rows below the watermark.
    if before is not None and reached == window.low:
        return before
    seen = _newest(source, window, None, reached, KEPT)
    if seen is UNKNOWN:
        return None
    # Warn only in the first run that has rows, because later runs would only repeat the warning.
    if seen is None and window.low == window.start:
        logger.warning(
            "event=no_edge context=%s source=%s column=%s: the column has no known index (views and queries have "
            "none), so lost rows are not detected. If the table is truncated or restored and grows past the watermark, "
            "it reuses numbers, and their rows are never read. Nor are rows that arrive later with the last value, if "
            "it is not unique. Read a table with an index, or use a time column",
            context, source.name, window.columns[0].name,
        )  # fmt: skip
    found = edge_of(seen or (), KEPT)
    return found and _add_ties(found, source, window)


def _below(source: RowSource, start: Bound | None, window: RowWindow) -> Sequence[SeenRow]:
    """Return the last few rows, from the cursor `start` on, that the lookback of a window does not read again."""
    end = window.read_low
    is_read_from_start = end is None or (start is not None and not precedes(start, end, descending=window.descending))
    if is_read_from_start:
        return ()
    seen = _newest(source, window, start, end, KEPT + 1)
    return () if seen is None or seen is UNKNOWN else seen


def _newest(
    source: RowSource, window: RowWindow, low: Bound | None, high: Bound | None, most: int
) -> Sequence[SeenRow] | Unknown | None:
    return source.newest(RowWindow(window.columns, low, high, descending=window.descending), most)


def _compare(
    before: Edge,
    came: int,
    seen: Sequence[SeenRow],
    source: RowSource,
    options: RowOptions,
    context: str,
    job_id: str,
) -> None:
    if came:
        # As documented, a job without a delay can lose rows below its watermark: log a WARNING instead of stopping.
        if options.on_late == "raise" and options.delay and not options.settled:
            raise SourceError(source.name, reason="rows_behind", context=context, job_id=job_id)
        logger.warning(
            "event=rows_below context=%s source=%s rows=%d: these rows arrived below the watermark after it had passed "
            "them, so they are never read. Set the watermark back to read them", context, source.name, came,
        )  # fmt: skip
        return
    if _is_last_row_unchanged(before, _edge_like(before, seen)):
        return
    if options.on_changed == "raise":
        raise SourceError(source.name, reason="last_row_changed", context=context, job_id=job_id)
    logger.warning(
        "event=last_row_changed context=%s source=%s: the last row that was taken is gone or has other values. If the "
        "table was truncated or restored, rows below the watermark are never read: rewind or reset the context",
        context, source.name,
    )  # fmt: skip


def _digest(texts: Sequence[str | None]) -> str:
    # Use JSON, because simply joined texts could be equal for different values, as for ab + c and a + bc.
    return hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()[:DIGITS]


# --- plan -----------------------------------------------------------------------------------------

OFFSET = re.compile(r"\d{4}-\d{2}-\d{2}[T ].*[+-](?!00:?00$)\d{2}:?\d{2}")
"""Pattern of a time as ISO text with an offset other than UTC."""


def plan_window(
    source: RowSource,
    names: Sequence[str],
    *,
    now: datetime,
    state: Mapping[str, Any] | None = None,
    context: str = "rows",
    job_id: str = "JOB",
    **options: Any,
) -> RowWindow:
    """Find the window of new rows, with one query over the rows past the watermark.

    The upper bound is one tick above the source's largest value, so that a lagging replica or a late import loses no
    row as long as nothing newer is visible. For times it is also no later than the clock less the delay, rounded down
    to the column's tick, so rows that come after newer ones are safe for the length of the delay. If a database shows
    when its open transactions began, the bound is not later than that either. Numbers and texts have no clock: their
    bound stays behind the open transactions of a database (see `open_writers`). In other sources, a row that becomes
    visible after a row with a larger number is lost, unless a lookback covers it, or the source itself returns a bound
    below which no row can still appear (`Facts.ceiling`).

    Parameters
    ----------
    source
        The source of rows, such as `spark_frames.DataFrameRows`.
    names
        The cursor columns; several columns are compared in order.
    now
        The job's time, aware, for a source without a clock.
    state
        The state that an earlier `RowWindow.state_after` returned; None on a first run.
    context
        Name of the source inside its job, for messages.
    job_id
        The job, for the commands in error messages.
    **options
        See `options.RowOptions`.

    Raises
    ------
    CursorError
        A column is missing, has NULLs, or has a type that has no exact order or has changed; an option does not fit;
        or `high` is before the watermark. On a first run also if the cursor is a date or a time without zone, and the
        source was given no zone.
    SourceLostError
        The state is for another table, or for a table that was dropped and created again.
    SourceError
        The state is for other columns or for files; the source's clock is behind the watermark; nothing is new and the
        source's last row is below the last row seen; or rows came below the watermark.
    """
    chosen = options_of(RowOptions, options)
    columns = source.columns(names, chosen.strings)
    chosen.check(columns)
    if len(columns) > 1 and any(column.is_uuid for column in columns):
        raise CursorError(columns[0].name, "a UUID names one row by itself. Make it the only cursor column.")
    _check_partition(source, columns[0], chosen, context)
    before = None if state is None else RowsState.opened(state, [column.name for column in columns], context)
    known = before or RowsState(columns)
    low, start = _ends(columns, before, chosen)
    _check_zone(source, columns[0], now, context, is_first=before is None)
    identity = check_same_source(known.source, source.identity(), context, job_id)
    asked = _asked(columns, low, chosen)
    facts = source.facts(columns, low, chosen.descending)
    if facts.zone is not None and columns[0].type == "timestamp":
        raise CursorError(
            columns[0].name,
            "zone= is for times without a zone, and these are instants. Leave zone= out. If they are the wall clock of "
            "a zone that Spark did not know, as of CSV, read the column as TIMESTAMP_NTZ.",
        )
    check_nulls(columns, facts.nulls, chosen.nulls, context)
    # Use the source's own clock, which stamps its rows: the job's clock may be minutes off, or hours in another zone.
    clock = facts.now or now.astimezone(facts.zone or now.tzinfo)
    columns = stamped_by(columns, clock)
    look = _Look(source, columns, chosen, context, job_id, before, low, asked, facts, clock)
    look.check()
    # List open transactions after the last row was found, as an earlier list might lack one that has since written a
    # lower row. A transaction that ended before the list does no harm: its rows can be read already.
    look = replace(look, writers=look.awaited_writers())
    high, undecided = look.upper_bound()
    lookback = look.lookback()
    # Do not check a watermark that is still at `start_from`: no row has been seen there yet.
    if before is not None and low is not None and low != start:
        look.check_last_row(low, known.last)
    window = RowWindow(
        columns, low, high, lookback, chosen.nulls, chosen.descending, start, source=identity,
        undecided=undecided,
    )  # fmt: skip
    if chosen.max_rows is not None:
        window = limited(source, window, chosen.max_rows, context)
    # Store no edge (the last rows, to detect late ones) if the source names a ceiling, below which no row can appear.
    edge = None if facts.ceiling is not None else edge_after(source, window, known.edge, chosen, context, job_id)
    return replace(window, edge=edge, last=look.last_seen(window.high, known.last), complete=look.complete(window))


def _check_zone(source: RowSource, column: CursorColumn, now: datetime, context: str, *, is_first: bool) -> None:
    """Raise CursorError on a first run if the cursor is a wall clock of an unknown zone; on later runs, only warn.

    This also holds with a delay of 0 or with `high`, because the clock limits the window in both cases.
    """
    reader = source.wall_clock(column) if column.type == "timestamp" else None
    is_instant = not column.is_time or column.type == "timestamp"
    if reader is None and (is_instant or source.zone_is_known(now) in (True, None)):
        return
    # Only warn about CSV and JSON files: if their times include a zone, Spark has read them correctly.
    may_be_right = reader not in (None, "JDBC")
    # Require a zone only on a first run: a job that began without one continues in UTC, so an upgrade does not stop it.
    if is_first and not may_be_right and not source.assumes_utc:
        kind = "JdbcTable" if reader else type(source).__name__
        raise CursorError(
            column.name,
            "its values have no time zone, and with a wrong one rows that come late are lost. Pass the zone to the "
            f"source: {kind}(..., zone='Europe/London'), or zone='UTC' (ingest-table: --zone).",
        )
    if is_first or not may_be_right:
        logger.warning(
            "event=no_zone context=%s column=%s: the column has no time zone; its zone is taken to be %s. If its "
            "values are the wall clock of a zone west of that, no delay is kept, and late rows are lost. Pass zone= to "
            "the source, even UTC; read texts as TIMESTAMP_NTZ, and a database by JdbcTable",
            context, column.name, f"that of Spark's session by its reader of {reader}" if reader else "UTC",
        )  # fmt: skip


def _check_partition(source: RowSource, column: CursorColumn, options: RowOptions, context: str) -> None:
    """Refuse a cursor that is a partition column: files added to a partition later are lost. For times, only warn."""
    if options.lookback or options.settled or not source.is_partition(column):
        return
    if column.is_time:
        # A day is read when the delay after its end is over. Files that are added to the day later than that are lost.
        logger.warning(
            "event=partition_cursor context=%s column=%s: the column is a partition column of files. A partition is "
            "read once delay=%s has passed after it, and later files are lost. job.new_partitions tracks files",
            context, column.name, options.delay,
        )  # fmt: skip
        return
    raise CursorError(
        column.name,
        "it is a partition column of files, and what lands in a partition after its first file was read would never "
        f"be taken. Use job.new_partitions(path, {column.name!r}), which goes by files. Or read again what may still "
        "grow, with lookback= and write_disposition='merge'; or say settled=True, if nothing is ever added to a "
        "partition that was read.",
    )


def _ends(
    columns: tuple[CursorColumn, ...], state: RowsState | None, options: RowOptions
) -> tuple[Bound | None, Bound | None]:
    """Return the watermark, and the bound at which the job's first run starts. Either is None if there is none."""
    if state is None:
        if options.start_from is None:
            return None, None
        start = bound_given(columns, options.start_from, "start_from")
        return start, start
    check_types(columns, state.columns)
    if state.descending != options.descending:
        before = "descending" if state.descending else "ascending"
        raise CursorError(
            columns[0].name, f"its order was {before}. Give the other order a transformation_ctx of its own."
        )
    return state.value, state.start


def _asked(columns: tuple[CursorColumn, ...], low: Bound | None, options: RowOptions) -> Bound | None:
    """Return the upper bound that the caller passes; raise CursorError if it is before the watermark."""
    if options.high is None:
        return None
    asked = bound_given(columns, options.high, "high")
    if low is not None and precedes(asked, low, descending=options.descending):
        raise CursorError(
            columns[0].name, "high is before the watermark, which never moves back. Leave it out, or rewind the job."
        )
    return asked


def check_nulls(columns: tuple[CursorColumn, ...], count: int, policy: Nulls, context: str) -> None:
    """Raise CursorError or log a WARNING, depending on the policy, if rows have NULL in a cursor column."""
    names = ", ".join(column.name for column in columns)
    if count and policy == "raise":
        raise CursorError(
            names,
            f"{rows_have(count)} NULL there and no window would ever take them. Fill it or filter them out. "
            "nulls='skip' leaves them out, nulls='take' takes them each time.",
        )
    if count and policy == "skip":
        logger.warning("event=nulls_excluded context=%s column=%s rows=%d", context, names, count)


@dataclass(frozen=True)
class _Look:
    """The current facts of a source, with the watermark and the caller's options.

    Attributes
    ----------
    state
        The state after the last window; None on a first run.
    low
        The watermark, or the bound where the first run was to start.
    asked
        The upper bound that the caller passes.
    clock
        The time of the clock that stamps the rows, in the zone of their wall clock.
    writers
        The open transactions that have written, if the upper bound of the window waits for them.
    """

    source: RowSource
    columns: tuple[CursorColumn, ...]
    options: RowOptions
    context: str
    job_id: str
    state: RowsState | None
    low: Bound | None
    asked: Bound | None
    facts: Facts
    clock: datetime
    writers: OpenWriters = field(default_factory=OpenWriters)

    @property
    def first(self) -> CursorColumn:
        """The first cursor column."""
        return self.columns[0]

    @property
    def oldest(self) -> OpenWriter | None:
        """The oldest open transaction that has written; None if none is open or visible."""
        return self.writers.oldest

    @property
    def last_row(self) -> Bound | None:
        """The last row past the watermark, in the order of reading; None if nothing is new."""
        return self.facts.smallest if self.options.descending else self.facts.largest

    @property
    def has_uuids(self) -> bool:
        """Whether the cursors are UUIDs, judged by their values, because texts may be UUIDs too."""
        known = self.facts.largest if self.facts.largest is not None else self.low
        return len(self.columns) == 1 and known is not None and is_uuid(known[0])

    def check(self) -> None:
        """Raise an error if skipped date folders, texts that sort differently, or a clock set back could lose rows."""
        self._check_slack()
        for column, value in zip(self.columns, self.last_row or (), strict=False):
            column.check_letters(value, "its last value")
        self._warn_of_texts()
        self._check_uuids()
        self._check_sequences()
        if self.first.is_time:
            self._check_clock()

    def _check_slack(self) -> None:
        """Raise CursorError if late rows could be in date partitions that are skipped (see `DatePartitions.slack`)."""
        slack = self.facts.slack
        # The delay does not apply to an upper bound that the caller passes.
        late = timedelta(0) if self.options.high is not None else self.options.delay
        if isinstance(self.options.lookback, timedelta):
            late += self.options.lookback
        if slack is not None and late > slack:
            raise CursorError(
                self.first.name,
                f"rows may come {late} after their stamp, into a partition of a later date than slack={slack} reaches. "
                "Give DatePartitions a slack of at least delay and lookback together.",
            )

    def _warn_of_texts(self) -> None:
        """Log a WARNING if texts of this run may sort by bytes in another order than by value, as 10 before 9."""
        before = self.low if self.state is not None else None
        texts = [str(bound[0]).rstrip(ABOVE) for bound in (before, self.last_row) if bound is not None]
        widths = {*self.facts.widths, *map(len, texts)}
        # `facts.widths` is empty unless the cursor is text. `texts` omits `start_from`, which may be shorter than keys.
        if self.facts.widths and (len(widths) > 1 or any(map(OFFSET.fullmatch, texts))):
            logger.warning(
                "event=unordered_texts context=%s column=%s: the texts have different lengths, or are times with an "
                "offset from UTC. Texts are compared byte by byte, so a later one below the watermark is never read. "
                "Use keys of one length, or a time column",
                self.context, self.first.name,
            )  # fmt: skip

    def _check_uuids(self) -> None:
        """Refuse UUIDs of another version than 7, and a clock that is behind the time in the watermark."""
        last = self.facts.largest
        if last is not None and self.has_uuids:
            check_uuid(self.first, str(last[0]))
        if self.facts.other_uuids:
            raise CursorError(
                self.first.name,
                f"{self.facts.other_uuids:,} rows past the watermark have a UUID of another version than 7, which does "
                "not rise with time. Use a time column.",
            )
        if self.state is None or self.low is None or not self.has_uuids:
            return
        # Skip a watermark that is not a UUID, such as the text just past a UUID: the UUID with `ABOVE` (\x01) added.
        if is_uuid(self.low[0]) and moment_of(str(self.low[0])) > self.clock:
            raise SourceError(self.source.name, reason="behind", context=self.context, what="clock")

    def _check_sequences(self) -> None:
        """Raise CursorError if a sequence counts against the order of reading, or starts again after its end."""
        # Check the sequences only on a first run: a job that has run for years continues, whatever the catalogue says.
        if self.state is not None or self.facts.ceiling is not None or not self.first.is_number:
            return
        for sequence in self.source.sequences(self.first.name):
            if sequence.starts_again:
                raise CursorError(
                    self.first.name,
                    f"its numbers come from the sequence {sequence.name}, which starts again at its other end (CYCLE). "
                    "New rows would then be below the watermark and never be read. Use a time column such as "
                    "last_modified, or PostgresSnapshot for PostgreSQL. If it never comes to its end, declare it NO "
                    "CYCLE.",
                )
            falls = sequence.step < 0
            if falls != self.options.descending:
                remedy = "Pass descending=True" if falls else "Leave out descending=True"
                raise CursorError(
                    self.first.name,
                    f"its numbers come from the sequence {sequence.name}, which runs {'down' if falls else 'up'}wards "
                    f"(INCREMENT {sequence.step}). New rows would be on the far side of the watermark and never be "
                    f"read. {remedy}, or use a time column such as last_modified, or PostgresSnapshot for PostgreSQL.",
                )

    def _check_clock(self) -> None:
        """Raise an error if the clock is behind the watermark, or if a bound of the caller is past the clock."""
        # A server with a clock set back, or another server, would stamp rows below the watermark, which no run reads.
        wall: Any = self.first.at(self.clock)
        is_first_run = self.state is None
        if self.low is not None and wall < self.low[0] and not is_first_run:
            raise SourceError(self.source.name, reason="behind", context=self.context, what="clock")
        # Compare with the lowest stamp that new rows can get: clocks that go back in autumn repeat an hour of stamps.
        lowest: Any = self.first.lowest(self.clock)
        for what, bound in (("start_from", self.low if is_first_run else None), ("high", self.asked)):
            if bound is not None and lowest < bound[0]:
                raise CursorError(
                    self.first.name,
                    f"{what} is past the source's clock, and rows that come until then would be lost. Give one that "
                    "has passed, or leave it out.",
                )

    def awaited_writers(self) -> OpenWriters:
        """Return open transactions that wrote, if `delay` limits the window. Warn if one began before the watermark."""
        keeps_delay = self.facts.ceiling is None and (self.first.is_time or self.has_uuids)
        # Apply no delay (return no transactions) if `high` is a time, or `settled` declares that no row comes below it.
        is_answered_for = self.asked is not None and (self.first.is_time or self.options.settled)
        if not keeps_delay or is_answered_for:
            return OpenWriters()
        found = oldest_writer(self.source, self.options.delay, self.context, warns=self.state is None)
        oldest = found.oldest
        # The watermark stays below the beginning of each visible open transaction that has written. It can pass a
        # transaction that has only read so far, or is invisible, and may then lose its rows: log a WARNING.
        if oldest is not None and self.state is not None and self._has_passed(oldest):
            logger.warning(
                "event=passed_transaction context=%s source=%s transaction=%r open_for=%s: the watermark is past the "
                "beginning of this open transaction. Rows that it stamped before the watermark are never read. Once it "
                "has ended, read that range again with a Backfill and a sink that merges",
                self.context, self.source.name, oldest.name, self._age(oldest),
            )  # fmt: skip
        return found

    def _has_passed(self, writer: OpenWriter) -> bool:
        """Return whether the watermark is past the earliest stamp that a transaction may have given."""
        if self.low is None:
            return False
        began = writer.began.astimezone(self.clock.tzinfo)
        earliest: Any = first_uuid_at(began) if self.has_uuids else self.first.floor(began)
        return bool(earliest < self.low[0])

    def _age(self, writer: OpenWriter) -> timedelta:
        return timedelta(seconds=int(age_of(writer, self.clock).total_seconds()))

    def upper_bound(self) -> tuple[Bound | None, Undecided | None]:
        """Return the window's upper bound, and the rows past it that wait for open transactions (see `Undecided`)."""
        if self.facts.ceiling is not None:
            return self._up_to(self._ceiling(self.facts.ceiling), "its ceiling"), None
        # Trust the caller's upper bound if it was checked against the clock (times), or if the caller declares that no
        # more rows can come below it (`settled`). Otherwise it must not be past the existing rows.
        if self.asked is not None and (self.first.is_time or self.options.settled):
            return self.asked, None
        last, undecided = self._just_past_last_row(), None
        # Times and UUIDs stay `delay` behind the clock. Numbers and texts end below what open transactions may write.
        if last is not None and not self.first.is_time and not self.has_uuids:
            before = None if self.state is None else self.state.undecided
            last, undecided = reachable_high(
                self.source, self.columns, last, self.low, before, self.options, self.clock, self.context
            )
            self._warn_of_ids_without_database(undecided)
        # Never move the watermark back, although the upper bound may be below it because of the delay.
        if last is None or (self.low is not None and self._precedes(last, self.low)):
            last = self.low
        what = "what open transactions leave" if undecided else "one step past the last row"
        return self._up_to(last, what), undecided

    def _ceiling(self, ceiling: Cursor) -> Bound:
        bound = self._alone(self.first.check(ceiling))
        # A ceiling (no row can still appear below it) only rises: a lower one is of another or a restored server.
        if self.low is not None and precedes(bound, self.low):
            raise SourceError(self.source.name, reason="behind", context=self.context, what="ceiling")
        return bound

    def _just_past_last_row(self) -> Bound | None:
        """Return the bound just past the last row; for times, no later than the clock less the delay."""
        last = self.last_row
        if last is None:
            return None
        if self.has_uuids:
            return self._just_past_last_uuid(last)
        if not self.first.is_time:
            return just_past(self.columns, last, self.options.descending)
        stamp: Any = last[0]
        # Do not take rows from the future: with their stamp as watermark, all rows until then would be skipped.
        if stamp > self.first.at(self.clock):
            self._warn_of_future_stamps()
        try:
            cap: Any = self.first.floor(self._settled())
        except OverflowError:
            what = f"delay={self.options.delay} reaches before the year 1. Give a shorter one."
            raise CursorError(self.first.name, what) from None
        # For a compound cursor, end the window at a bound of only the first column. This bound is below all rows with
        # the stamp `cap`, which are still within the delay.
        at_cap = self._alone(cap)
        if stamp >= cap:
            self._warn_of_long_transaction()
            return at_cap
        # If one step (such as a day) above the last row is past `cap`, the latest end that is safe, end at `cap`.
        past: Any = just_past(self.columns, last, False)
        return past if past[0] <= cap else at_cap

    def _just_past_last_uuid(self, last: Bound) -> Bound:
        if moment_of(str(last[0])) > self.clock:
            self._warn_of_future_stamps()
        try:
            cap: Bound = (first_uuid_at(self._settled()),)
        except OverflowError:
            cap = (first_uuid_at(EPOCH),)
        past = just_past(self.columns, last, False)
        if precedes(past, cap):
            return past
        self._warn_of_long_transaction()
        return cap

    def _settled(self) -> datetime:
        """Return the moment below which no row can still appear; raise OverflowError if it is before the year 1."""
        return settled_moment(self.clock, self.options.delay, self.oldest)

    def _warn_of_long_transaction(self) -> None:
        """Log a WARNING if this run leaves rows unread that are older than the delay, because of a long transaction."""
        oldest = self.oldest
        if oldest is None or age_of(oldest, self.clock) <= self.options.delay:
            return
        logger.warning(
            "event=long_transaction context=%s source=%s transaction=%r open_for=%s delay=%s: this transaction has "
            "written and is open for longer than the delay. Rows with stamps since its start are left for a later run",
            self.context, self.source.name, oldest.name, self._age(oldest), self.options.delay,
        )  # fmt: skip

    def _warn_of_ids_without_database(self, undecided: Undecided | None) -> None:
        """Warn, until the job has read rows, that a source without transactions loses late rows with lower ids."""
        took_rows = self.state is not None and self.state.last is not None
        # Do not warn for a database, whose transactions show late ids: only a database has a clock or `undecided`.
        is_of_database = self.facts.now is not None or undecided is not None
        is_meant = self.options.settled or self.options.lookback or not self.options.delay
        if took_rows or is_of_database or is_meant:
            return
        logger.warning(
            "event=ids_without_database context=%s column=%s: the delay works for times, and for ids with the "
            "transactions of a database. In this source, a row that lands later, below the watermark or with the last "
            "value, is never read. Use a time column, lookback= with write_disposition='merge', or job.new_files for "
            "files. delay=timedelta(0) declares that no row lands late",
            self.context, self.first.name,
        )  # fmt: skip

    def _warn_of_future_stamps(self) -> None:
        logger.warning(
            "event=future_stamps context=%s column=%s: rows with a time in the future are left for a later run",
            self.context, self.first.name,
        )  # fmt: skip

    def _up_to(self, limit: Bound | None, what: str) -> Bound | None:
        """Return the caller's `high`, or else `limit`. CursorError if `high` is past `limit`, or has no limit."""
        if self.asked is None:
            return limit
        if limit is None or self._precedes(limit, self.asked):
            raise CursorError(
                self.first.name,
                f"high is past {what}, and rows that come below it later would be lost. Leave it out, or give one that "
                "is not.",
            )
        return self.asked

    def lookback(self) -> Tick | None:
        """Return `options.lookback`, made longer if clocks were put forward (daylight saving) within the lookback."""
        lookback = self.options.lookback
        # A first run (from the beginning or `start_from`) has nothing to read again. 0 of any type means no lookback.
        if self.state is None or not lookback:
            return None
        # Lengthen the lookback only for dates and times without a zone: wall clocks stamp them. UUIDs contain instants.
        if self.low is None or not isinstance(lookback, timedelta) or self.first.type not in ("timestamp_ntz", "date"):
            return lookback
        # Measure the lookback by wall clocks. If they went forward from 02:00 to 03:00, two hours before 04:00 they
        # showed 01:00: return three hours. If they went back, the result is too small: return `options.lookback`.
        end: Any = self.low[0]
        wall = end.replace(tzinfo=None) if isinstance(end, datetime) else datetime.combine(end, time.min)
        try:
            moment = earlier(wall.replace(tzinfo=self.clock.tzinfo), lookback)
            return max(lookback, wall - moment.replace(tzinfo=None))
        except OverflowError:
            return lookback

    def check_last_row(self, low: Bound, seen: Bound | None) -> None:
        """Refuse a table whose last row is below the last row seen: it was truncated or restored, or lost an outlier.

        This checks only if nothing is new: rows past the watermark show that the table has not fallen behind.
        """
        # No check is needed if the source has a ceiling, a bound below which no row can still appear.
        if self.last_row is not None or self.facts.ceiling is not None:
            return
        last = self.source.last(self.columns, self.options.descending)
        if last is UNKNOWN:
            return
        if last is None:
            # Only warn: each load may empty the table first. A run raises if its last row is below the watermark.
            logger.warning(
                "event=source_empty context=%s source=%s: its rows are gone. New rows below the watermark are refused",
                self.context, self.source.name,
            )  # fmt: skip
            return
        # Accept a watermark just past the last row: an operator who has checked the rows may have set it there.
        if not self._precedes(just_past(self.columns, last, self.options.descending), low):
            return
        # Only warn if the state has no last row `seen` (set by hand, or old): its watermark might be past all rows.
        if seen is not None and not self._precedes(last, seen):
            return
        if seen is not None and self.options.on_behind != "warn":
            raise SourceError(self.source.name, reason="last_row_behind", context=self.context, job_id=self.job_id)
        logger.warning(
            "event=source_behind context=%s source=%s: the last row of the source is below the watermark, so rows that "
            "arrive between the two are never read", self.context, self.source.name,
        )  # fmt: skip

    def last_seen(self, high: Bound | None, before: Bound | None) -> Bound | None:
        """Return the last row seen, but no further than the end of the window: rows past it may still change."""
        found = self.last_row
        if found is None or high is None:
            return before
        # Ignore a future time: it is a mistake or means "never", and its later correction would look like a lost row.
        stamp: Any = found[0]
        if self.first.is_time and stamp > self.first.at(self.clock):
            return before
        return high if self._precedes(high, found) else found

    def complete(self, window: RowWindow) -> Bound | None:
        """Return the bound below which all rows are taken, if it is past the watermark after the window; else None.

        The watermark stays at the last row, so without this bound a source without new rows would always look late. The
        result is also None where recent rows might be missing: in files, because the files were listed before the plan,
        and in tables whose rows come late, from another server or by the REFRESH of a materialized view.
        """
        if (
            ELSEWHERE in self.writers.hidden
            or self.facts.now is None
            or not self.first.is_time
            or self.asked is not None
            or window.has_more
        ):
            return None
        try:
            cap = self._alone(self.first.floor(self._settled()))
        except OverflowError:
            return None  # The delay reaches before the year 1, so no bound can be given.
        reached = window.low if window.high is None else window.high
        return cap if reached is None or precedes(reached, cap) else None

    def _alone(self, value: Cursor) -> Bound:
        """Return a bound with a value for the first column only; it is before all rows with this value."""
        return (value, *[None] * (len(self.columns) - 1))

    def _precedes(self, one: Bound, other: Bound) -> bool:
        return precedes(one, other, descending=self.options.descending)


def whole_window(source: RowSource, names: Sequence[str], strings: bool) -> RowWindow:
    """Return the window of all rows, including rows without a cursor."""
    return RowWindow(source.columns(names, strings), None, None, nulls="take", whole=True)


def window_between(
    source: RowSource,
    names: Sequence[str],
    before: Mapping[str, Any] | None,
    until: Mapping[str, Any],
    options: RowOptions,
    context: str,
    job_id: str = "JOB",
) -> RowWindow:
    """Return the window from one watermark to a later one: the rows that the runs in between took, as they are now.

    The caller's `lookback` applies, and `nulls` decides whether rows with NULL are taken, skipped or refused. A range
    from the very beginning starts at the `start_from` of the first run. The window is empty if the later watermark is
    not past the earlier one, for example because the job was rewound or reset in between.

    Parameters
    ----------
    before
        The watermark to start from; None for the very beginning, or for where the first run was to start.
    until
        The watermark to end with.

    Raises
    ------
    SourceError, CursorError
        A watermark is for other columns, for files, or of another type or order; an option does not fit, or limits the
        range, which already has an end; or rows have NULL in the cursor, and `nulls` does not allow it.
    SourceLostError
        The later watermark is for another table.
    """
    for name in ("high", "settled", "max_rows"):
        if getattr(options, name) not in (None, False):
            raise CursorError(
                names[0], f"{name}= is given, but a range of runs ends where they did. Leave it out, or read no range."
            )
    columns = source.columns(names, options.strings)
    options.check(columns)
    end = RowsState.opened(until, names, context)
    begin = None if before is None else RowsState.opened(before, names, context)
    for state in (end, begin or end):
        check_types(columns, state.columns)
    check_same_source(end.source, source.identity(), context, job_id)
    if begin is not None and begin.descending != end.descending:
        raise CursorError(columns[0].name, "its order changed between the two runs. Take a range on one side of that.")
    low = end.start if begin is None else begin.value
    # Use the columns as the source has them now, with the ticks (smallest steps of values) that it reports.
    window = RowWindow(
        columns, low, end.value, nulls=options.nulls, descending=end.descending, start=end.start, source=end.source
    )
    if options.nulls != "take":
        check_nulls(columns, source.facts(columns, window.low, window.descending).nulls, options.nulls, context)
    if window.low is not None:
        ends_before_it_starts = window.high is None or precedes(window.high, window.low, descending=window.descending)
        if ends_before_it_starts:
            return replace(window, high=window.low)
    return replace(window, lookback=None if before is None else options.lookback)
