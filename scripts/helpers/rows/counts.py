"""Count the rows of a job while it reads them, and find their smallest and largest cursor."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import DataFrame, F
from scripts.helpers.errors import CursorError
from scripts.helpers.protocol.names import new_token
from scripts.helpers.rows.arrow_streams import ArrowStream
from scripts.helpers.spark.observed import CANNOT_OBSERVE, Observed, observe

if TYPE_CHECKING:
    from scripts.helpers.rows.cursors import CursorColumn
    from scripts.helpers.rows.window import RowWindow

logger = logging.getLogger(__name__)

MAX_TEXT = 128
"""Most characters of a smallest or largest cursor that is stored: all metrics of a version share 8 KB."""


class RowCounts:
    """The counts of the rows that one run reads, by the `transformation_ctx` of their source.

    Spark's Observation counts during the first action on the rows, so that nothing is read twice. If
    that action is a `head` or `show`, or fails, only the rows it read are counted; without an action,
    none are. Later filters are not pushed down to the source, because all rows of the window must be
    counted. Errors here never stop a job.

    Attributes
    ----------
    names
        The context of each Observation, by the Observation's name.
    """

    def __init__(self) -> None:
        self._watched: dict[str, tuple[CursorColumn | None, Observed] | None] = {}
        self._empty: set[str] = set()
        self.names: dict[str, str] = {}
        self._counted: dict[str, dict[str, Any]] = {}
        self._streams: dict[str, _Stream] = {}

    def add(self, context: str, counts: Mapping[str, Any]) -> None:
        """Store counts that exist already: ``rows`` and optionally ``minimum`` and ``maximum``."""
        self._counted[context] = dict(counts)

    def watch(self, context: str, rows: Any, window: RowWindow) -> Any:
        """Return the rows of a window; they are counted when they are read."""
        if isinstance(rows, ArrowStream):
            stream = self._streams[context] = _Stream(rows, window.columns[0])
            return rows.mapped(stream.looked_at)
        return self.watch_all(context, rows, window.columns[0], is_empty=window.is_empty)

    def watch_all(
        self, context: str, rows: DataFrame, column: CursorColumn | None = None, *, is_empty: bool = False
    ) -> DataFrame:
        """Return rows that are counted when they are read, with the smallest and largest value of `column` if given."""
        # An empty window has no rows to count, and a job often runs no action on it, so record 0 now.
        if is_empty:
            self._empty.add(context)
            return rows
        # First add an entry without a count. If observing fails, `metrics` finds this entry and reports no sum.
        self._watched[context] = None
        try:
            return self._observed(context, rows, column)
        except Exception as error:
            return _warn_uncounted(rows, context, error)

    def _observed(self, context: str, rows: DataFrame, column: CursorColumn | None) -> DataFrame:
        from scripts.helpers.rows.dialect import SPARK
        from scripts.helpers.rows.sql import sql

        aggregates = [F.expr("count(1) AS rows")]
        if column is not None:
            name = SPARK.quote(column.name)
            aggregates.append(F.expr(sql("{} AS minimum", SPARK.exact(sql("min({})", name), column.type))))
            aggregates.append(F.expr(sql("{} AS maximum", SPARK.exact(sql("max({})", name), column.type))))
        watched, observed = observe(rows, aggregates, mark := new_token())
        if observed is None:
            logger.warning("event=rows_not_counted context=%s: %s", context, CANNOT_OBSERVE)
        else:
            self._watched[context], self.names[mark] = (column, observed), context
        return watched

    def metrics(self) -> dict[str, Any]:
        """Return the counts of each context, and their sum as ``rows_collected`` only if all contexts were counted."""
        contexts: dict[str, dict[str, Any]] = {context: {"rows": 0} for context in self._empty} | self._counted
        contexts |= {name: one.counts() for name, one in self._streams.items() if one.rows.count is not None}
        for context, watched in self._watched.items():
            if watched is not None:
                column, observed = watched
                found = _found(context, observed)
                if found:
                    contexts[context] = {"rows": int(found["rows"])} | _ends(column, found)
        if not contexts:
            return {}
        counts: dict[str, Any] = {"contexts": contexts}
        # Report no sum if the count of a context is missing, because the sum would look as if rows were lost.
        if contexts.keys() >= {*self._watched, *self._streams}:
            counts["rows_collected"] = sum(found["rows"] for found in contexts.values())
        return counts


def _warn_uncounted(rows: DataFrame, context: str, error: Exception) -> DataFrame:
    logger.warning(
        "event=rows_not_counted context=%s error=%s: the rows are read, but not counted", context,
        type(error).__name__,
    )  # fmt: skip
    return rows


class _Stream:
    """A stream of Arrow batches, with the smallest and the largest cursor in the batches read."""

    def __init__(self, rows: ArrowStream, column: CursorColumn) -> None:
        self.rows, self._column = rows, column
        self._ends: dict[str, Any] = {}

    def looked_at(self, batch: Any) -> Any:
        """Record the smallest and the largest cursor of a batch, and return the batch."""
        from scripts.helpers.rows.memory import ends_of_column

        try:
            for name, value in ends_of_column(self._column.name, batch).items():
                self._ends[name] = (min if name == "minimum" else max)(self._ends.get(name, value), value)
        except Exception as error:
            logger.debug("event=ends_uncounted column=%s error=%s", self._column.name, type(error).__name__)
        return batch

    def counts(self) -> dict[str, Any]:
        from scripts.helpers.rows.memory import as_cursor

        found: dict[str, Any] = {"rows": self.rows.count}
        for name, value in self._ends.items():
            with suppress(CursorError):
                found[name] = as_cursor(self._column, value)
        return {name: value for name, value in found.items() if not isinstance(value, str) or len(value) <= MAX_TEXT}


def _ends(column: CursorColumn | None, found: dict[str, Any]) -> dict[str, Any]:
    """Return ``minimum`` and ``maximum`` of `found` as cursors, except one too long or outside of Python's range."""
    ends: dict[str, Any] = {}
    if column is None:
        return ends
    for name in ("minimum", "maximum"):
        text = found[name]
        if text is None or len(text) > MAX_TEXT:
            continue
        with suppress(CursorError):
            ends[name] = column.from_text(text)
    return ends


def _found(context: str, observed: Observed) -> dict[str, Any] | None:
    """Return the counts of an observation; None if no action on the rows has finished."""
    try:
        return observed.found()
    except Exception as error:
        logger.warning(
            "event=rows_not_counted context=%s error=%s: Spark did not return the counts", context,
            type(error).__name__,
        )  # fmt: skip
        return None
