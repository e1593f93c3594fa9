"""Where a batch of at most so many rows ends: never between two rows of the same cursor. Pure."""

from __future__ import annotations

import logging
from dataclasses import replace

from scripts.helpers.errors import CursorError
from scripts.helpers.rows.cursors import just_past
from scripts.helpers.rows.sources import UNKNOWN, RowSource
from scripts.helpers.rows.window import RowWindow, precedes

logger = logging.getLogger(__name__)


def limited(source: RowSource, window: RowWindow, most: int, context: str) -> RowWindow:
    """Return a window's beginning, of at most so many rows; all of it where it has no more.

    Rows of one cursor stay together: more of them than `most` are taken as one batch, with a WARNING. What a lookback
    or ``nulls="take"`` takes once more does not count.

    Raises
    ------
    CursorError
        The source cannot tell where its rows are.
    """
    if window.high is None:
        return window
    # Of the new rows alone: those that are read again do not bring the watermark on.
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
            "event=large_tie context=%s column=%s max_rows=%d: more rows than that have one cursor, and are one batch",
            context, window.columns[0].name, most,
        )  # fmt: skip
        if not precedes(high, window.high, descending=window.descending):
            return window
    return replace(window, high=high, has_more=True)
