"""Up to which number or stamp no row can come any more: both are given first, and committed later in any order. Pure.

A database gives an id to a row when it is inserted, and shows the row when its transaction commits. So id 2 may show
after id 3, and a window that ended past 3 would lose it. A row of a lower id belongs to a transaction that was open
when the last id was seen, so the last id is decided once all of those have ended.

A stamp is not earlier than the beginning of its transaction, so no row comes below the beginning of the oldest one that
is open. Below the clock less the delay a row comes only from a transaction that is open for longer than the delay.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from scripts.helpers.rows.cursors import Bound, CursorColumn, earlier
from scripts.helpers.rows.sources import EARLY, NO_SEQUENCE, OpenWriters
from scripts.helpers.rows.states import Undecided
from scripts.helpers.rows.window import precedes

if TYPE_CHECKING:
    from scripts.helpers.rows.options import RowOptions
    from scripts.helpers.rows.sources import OpenWriter, RowSource

logger = logging.getLogger(__name__)

LONGEST_WAIT = timedelta(seconds=30)
"""For transactions that are open while a run plans. Most end within it; what waits for a longer one comes with a later
run, as a cluster that waits is paid for."""


def is_decided(left: Undecided, still_open: frozenset[str] | None, now: datetime, delay: timedelta) -> bool:
    """Return whether all the transactions have ended that could commit a row below the bound of what was left."""
    if left.writers is not None and still_open is not None:
        awaited = left.writers & still_open
        return not awaited - EARLY and (not awaited or now - left.at >= delay)
    # Nobody can say, or could: then by time, as for the stamps of a clock.
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
    """Return up to where a window of numbers may go, and what the next run has to look at.

    Parameters
    ----------
    source
        Asked for its `writers`.
    past_last
        Just past the last row that was seen, before this call.
    low
        The watermark.
    before
        What the run before left.
    now
        The source's clock.
    """
    if options.settled or not options.delay:
        return past_last, None
    # In this order: the last row was seen before. A transaction that begins after it gets a number above it.
    still_open = source.writers(columns[0].name, min(options.delay, LONGEST_WAIT))
    if NO_SEQUENCE in (still_open or ()) and low is None and before is None:
        logger.warning(
            "event=no_sequence context=%s column=%s: no sequence is found that gives these numbers. Rows wait for open "
            "transactions. A number that a client makes before its transaction begins is lost if a run reads a higher "
            "one before that",
            context, columns[0].name,
        )  # fmt: skip
    if still_open is not None:
        # No delay is kept from an upper bound that the caller gives.
        still_open -= EARLY if options.high is not None else {NO_SEQUENCE}
    if still_open is not None and not still_open:
        return past_last, None
    left = before
    bound = low
    if before is not None and is_decided(before, still_open, now, options.delay):
        bound, left = before.bound, None
        # Rows may have been deleted since: no further than where rows are.
        if precedes(past_last, bound, descending=options.descending):
            bound = past_last
        if low is not None and precedes(bound, low, descending=options.descending):
            bound = low
    # What is looked at next stays the same until it is decided: a later one in its place might never be.
    left = left or Undecided(past_last, still_open, now)
    logger.warning(
        "event=undecided_rows context=%s column=%s open_transactions=%s: rows past the upper bound are left for a "
        "later run, as lower numbers may still be committed. delay=timedelta(0) takes them at once, and may lose rows",
        context, columns[0].name, "unknown" if still_open is None else ", ".join(sorted(still_open)[:5]),
    )  # fmt: skip
    return bound, left


def oldest_writer(source: RowSource, delay: timedelta, context: str, *, warns: bool) -> OpenWriters:
    """Return the oldest transaction that has written and is open, and why others may be open that are not seen.

    Ask after the last row was seen: a transaction that has ended by then shows its rows to whoever reads next.

    Parameters
    ----------
    source
        Asked for its `open_writers`.
    delay
        That of the time column. 0 waits for nobody, so nobody is asked.
    warns
        Log a WARNING if some transactions are not seen.
    """
    found = source.open_writers(delay) if delay else None
    if found is None:
        return OpenWriters()
    if warns and found.hidden:
        logger.warning(
            "event=hidden_transactions context=%s source=%s: rows that are committed later than delay=%s after their "
            "stamp are lost, as %s",
            context, source.name, delay, found.hidden,
        )  # fmt: skip
    return found


def settled_moment(clock: datetime, delay: timedelta, oldest: OpenWriter | None) -> datetime:
    """Return the moment before which no stamp comes any more, in the zone of the clock.

    OverflowError if the delay reaches before the year 1.
    """
    if oldest is not None and age_of(oldest, clock) > delay:
        return oldest.began.astimezone(clock.tzinfo)
    return earlier(clock, delay)


def age_of(writer: OpenWriter, clock: datetime) -> timedelta:
    """Return for how long a transaction is open."""
    # In UTC: of one zone, Python compares wall clocks, which repeat an hour in autumn.
    return clock.astimezone(timezone.utc) - writer.began.astimezone(timezone.utc)
