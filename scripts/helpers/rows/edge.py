"""The last rows below a watermark, remembered: what shows a table that was restored, and rows that came below. Pure.

Numbers have no clock. A table that was truncated or restored gives its numbers out again, and by the next run it may
have grown past the watermark: then rows past it are found, and nothing tells that those below are others by now. So a
state keeps digests of the last few rows that were taken, and the next run looks at them first, by one step into the
index. Of times nothing is kept: an update moves a row, and what is written after a restore has a later stamp.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from scripts.helpers.errors import SourceBehindError
from scripts.helpers.rows.cursors import Bound, just_past
from scripts.helpers.rows.sources import UNKNOWN, RowSource, SeenRow, Unknown
from scripts.helpers.rows.states import DIGITS, Edge
from scripts.helpers.rows.window import RowWindow, precedes

if TYPE_CHECKING:
    from scripts.helpers.rows.options import RowOptions

logger = logging.getLogger(__name__)

KEPT = 5
"""Rows that are kept. The last one alone shows a table that was restored. The others show rows that come below an
outlier, such as 101 below 1,000,000, of which there are rarely more than four."""


def edge_of(seen: Sequence[SeenRow], most: int, *, as_written: bool = False) -> Edge | None:
    """Return what is kept of rows, the last one first; None of no row. `most` is how many were asked for.

    Decimals count by their value, so that they may get more places; `as_written`, with the places that they have, as
    states of earlier versions keep them.
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
    """Return what is kept of rows, with decimals as those before were kept: the way in which more of them agree."""

    def agreeing(edge: Edge | None) -> tuple[int, int]:
        rows = edge.rows if edge else ()
        cursors = {cursor for cursor, _ in before.rows}
        return sum(cursor in cursors for cursor, _ in rows), len({*rows} & {*before.rows})

    return max((edge_of(seen, KEPT + 1, as_written=written) for written in (False, True)), key=agreeing)


def _without_zeros(text: str) -> str:
    """Return the exact text of a decimal without zeros at the end of its fraction; any other text as it is."""
    return text.rstrip("0").rstrip(".") if re.fullmatch(r"-?\d+\.\d+", text) else text


def _with_ties(edge: Edge, source: RowSource, window: RowWindow) -> Edge:
    """Add how many rows have the cursor of the first row kept, unless it is the only one kept that has it.

    More of them may be there than are kept. A column of ids has one row for each value, and is never asked.
    """
    lowest = edge.rows[-1][0]
    if edge.start is None or sum(cursor == lowest for cursor, _ in edge.rows) < 2:
        return edge
    end = just_past(window.columns, edge.start, window.descending)
    found = source.count(RowWindow(window.columns, edge.start, end, descending=window.descending))
    return edge if found is UNKNOWN else replace(edge, ties=found)


def _came_below(before: Edge, now: Edge | None) -> int:
    """Count the rows that are between those kept by now and were not: no update and no delete brings one there.

    A value may have several rows, so rows are counted for each value, and not the values.
    """
    if now is None:
        return 0
    is_partial = before.start is not None
    lowest = before.rows[-1][0]
    found = Counter(cursor for cursor, _ in now.rows) - Counter(cursor for cursor, _ in before.rows)
    # Not all rows of the lowest value were kept: `ties` counts them.
    return sum(count for cursor, count in found.items() if not (is_partial and cursor == lowest))


def _is_there(before: Edge, now: Edge | None) -> bool:
    """Return whether the last row is still there, as it was."""
    if now is None:
        return False
    cursor, contents = before.rows[0]
    # Another column than before has another value in each row, and says nothing about them.
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
    """Compare the rows below the watermark with those that were kept, and return what the next run is to compare.

    Sources are asked for their `newest` rows, of numbers and texts.

    Raises
    ------
    SourceBehindError
        Rows came below the watermark, which no run would take; or, with ``behind="strict"``, the last row that was
        taken is gone or another one.
    """
    # What is made after a restore has a later time in it.
    if window.columns[0].is_time or window.columns[0].is_uuid:
        return None
    if before is not None and window.low is not None:
        # One more than were kept: what came between them must not hide behind them.
        seen = _newest(source, window, before.start, window.low, KEPT + 1)
        # A table whose index went away is told about already, and would be read whole.
        if seen is not None and seen is not UNKNOWN:
            never_read = seen
            # What came within the lookback is read again by this window: nothing is lost there.
            if window.lookback:
                never_read = _below(source, before.start, window)
            came = _came_below(before, _edge_like(before, never_read))
            if before.ties is not None and never_read:
                came += max(0, (_with_ties(before, source, window).ties or 0) - before.ties)
            _compare(before, came, seen, source, options, context, job_id)
    reached = window.low if window.high is None else window.high
    if reached is None:
        return None
    # Nothing new: the rows below the watermark are those that are kept.
    if before is not None and reached == window.low:
        return before
    seen = _newest(source, window, None, reached, KEPT)
    if seen is UNKNOWN:
        return None
    # Once, at the first rows: nothing changes about it from run to run.
    if seen is None and window.low == window.start:
        logger.warning(
            "event=no_edge context=%s source=%s column=%s: no index is known for it, as of views and queries. If the "
            "table is truncated or restored and grows past the watermark, its numbers are given out again, and nothing "
            "shows the rows that are lost; nor those that come later with the last value, if it is not unique. Read a "
            "table with an index, or use a time column",
            context, source.name, window.columns[0].name,
        )  # fmt: skip
    found = edge_of(seen or (), KEPT)
    return found and _with_ties(found, source, window)


def _below(source: RowSource, start: Bound | None, window: RowWindow) -> Sequence[SeenRow]:
    """Return the rows from a start on, up to where a window with a lookback begins to read."""
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
        # Who waits for no open transaction was told that lower numbers are lost: an error would stop each such job.
        if options.behind in ("raise", "strict") and options.delay and not options.settled:
            raise SourceBehindError(source.name, context, "rows below", job_id)
        logger.warning(
            "event=rows_below context=%s source=%s rows=%d: they came below the watermark after it had passed them, "
            "and are never read. Set the watermark back to read them",
            context, source.name, came,
        )  # fmt: skip
        return
    if _is_there(before, _edge_like(before, seen)):
        return
    if options.behind == "strict":
        raise SourceBehindError(source.name, context, "last row taken", job_id)
    logger.warning(
        "event=last_row_changed context=%s source=%s: the last row that was taken is gone or has other values. If the "
        "table was truncated or restored, rows below the watermark are never read: rewind or reset the context",
        context, source.name,
    )  # fmt: skip


def _digest(texts: Sequence[str | None]) -> str:
    # As JSON: a text that is joined could be that of other values.
    return hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()[:DIGITS]
