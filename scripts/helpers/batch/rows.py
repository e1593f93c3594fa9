"""`RowPlanning`: how a job takes the rows that are new, and makes related tables of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from scripts.helpers.batch.batch import NOTHING, Batch
from scripts.helpers.batch.reach import Reach
from scripts.helpers.batch.schemas import SchemaKeeping, policy_in
from scripts.helpers.errors import PlanConflictError, SourceOptionError
from scripts.helpers.protocol.names import new_token
from scripts.helpers.protocol.run import Run
from scripts.helpers.relational.ids import KIND, IdBlock
from scripts.helpers.rows import coverage
from scripts.helpers.rows.arrow_tables import ArrowRows, is_arrow
from scripts.helpers.rows.identity import check_same_plan
from scripts.helpers.rows.options import DEFAULTS, RowOptions
from scripts.helpers.rows.pandas_frames import PandasRows, is_pandas
from scripts.helpers.rows.plan import plan_window, whole_window, window_between
from scripts.helpers.rows.slicing import SliceSource
from scripts.helpers.rows.spark_frames import as_source
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.tables.options import TableOptions
from scripts.helpers.tables.planning import check_replay, plan_span, span_between, whole_span
from scripts.helpers.tables.sources import is_table
from scripts.helpers.tables.spans import TableSpan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from scripts.helpers.rows.sources import RowSource
    from scripts.helpers.tables.sources import TableSource

logger = logging.getLogger(__name__)


class RowPlanning:
    """Plans sources of rows in one batch.

    Parameters
    ----------
    batch
        The batch, begun.
    clock
        Returns the time as an aware datetime.
    """

    def __init__(self, batch: Batch, clock: Callable[[], datetime]) -> None:
        self._batch, self._clock = batch, clock
        self._schemas = SchemaKeeping(batch)

    def rows_since(
        self, source: Any, cursor_column: str | Sequence[str] | None, context: str | None, options: Mapping[str, Any]
    ) -> Any:
        """Return the rows of a source that are new; see `IncrementalJob.rows_since`."""
        policy, options = policy_in(options)
        found = self._new_rows(source, cursor_column, context, options)
        # After all else is planned: the state that the columns go into is there by then.
        name = source.name if hasattr(source, "name") else type(source).__name__
        return self._schemas.rows(context, str(name), found, policy)

    def _new_rows(
        self, source: Any, cursor_column: str | Sequence[str] | None, context: str | None, options: Mapping[str, Any]
    ) -> Any:
        if is_table(source):
            if cursor_column is not None:
                raise SourceOptionError(
                    "cursor_column",
                    f"{source.name!r} is read by its versions, which need no column. Leave it out; to read by a "
                    "column, give a DataFrame of the table.",
                )
            return self._commits_since(source, context, options)
        if cursor_column is None:
            raise SourceOptionError(
                "cursor_column", f"a {type(source).__name__} is read by a column that says what is new. Name it."
            )
        batch, chosen = self._batch, RowOptions(**options)
        names = [cursor_column] if isinstance(cursor_column, str) else list(cursor_column)
        rows = as_rows(source, context or "rows")
        settled = batch.settled(context)
        batch.read_through(rows)
        reach, name = batch.reach(context), context or "rows"
        if settled is None:
            batch.warn_if_new(context)
            window = self._window(rows, names, name, chosen, options, reach)
        elif settled == NOTHING:
            return rows.rows(RowWindow(rows.columns(names, strings=True), None, None))
        else:
            window = RowWindow.from_plan(settled, names, name)
            chosen.check_replay(window)
            check_same_plan(settled, rows, batch.run.job_id)
        batch.has_more |= window.has_more
        if not context:
            return rows.rows(window)
        planned: Mapping[str, Any]
        if settled is None:
            planned = window.to_plan() | chosen.to_plan()
            batch.add(context, planned, _state_after(window, reach))
        else:
            # The watermark that follows was frozen with the plan: made again it could differ, and does not count.
            planned = settled
            batch.add(context, planned, None)
        logger.info(
            "event=planned job=%s context=%s kind=rows column=%s first_run=%s empty=%s has_more=%s replay=%s "
            "lookback=%s nulls=%s descending=%s %s",
            batch.run.job_id, context, ",".join(names), reach.before is None, window.is_empty, window.has_more,
            batch.run.replay, window.lookback, window.nulls, window.descending,
            planned.get("options", DEFAULTS),
        )  # fmt: skip
        found = rows.rows(window)
        # A backfill asks for a slice of a source. What is in memory is counted there, not by Spark.
        asked = rows.source if isinstance(rows, SliceSource) else rows
        if isinstance(asked, PandasRows | ArrowRows):
            batch.counts.add(context, asked.counts(found, window))
            return found
        return batch.counts.watch(context, found, window)

    def _window(
        self,
        rows: RowSource,
        names: Sequence[str],
        context: str,
        chosen: RowOptions,
        options: Mapping[str, Any],
        reach: Reach,
    ) -> RowWindow:
        job_id = self._batch.run.job_id
        if reach.everything:
            _warn_of_unused(chosen.max_rows, "max_rows", job_id, rows.name)
            return whole_window(rows, names, chosen.strings)
        if reach.until is not None:
            return window_between(rows, names, reach.before, reach.until, chosen, context, job_id)
        return plan_window(
            rows, names, now=self._clock(), state=reach.before, context=context, job_id=job_id, **options
        )

    def _commits_since(self, table: TableSource, context: str | None, options: Mapping[str, Any]) -> Any:
        """Return the rows of what was committed to a table since the watermark."""
        batch, chosen, name = self._batch, TableOptions.of(options), context or "rows"
        settled = batch.settled(context)
        reach = batch.reach(context)
        if settled is None:
            batch.warn_if_new(context)
            span = _span(table, name, chosen, reach, batch.run.job_id)
        elif settled == NOTHING:
            return table.rows(TableSpan(table.format, None, None, changes=chosen.changes))
        else:
            span = TableSpan.from_plan(settled, table.format, name, table.name)
            check_same_plan(settled, table, batch.run.job_id)
            check_replay(table, span, name, batch.run.job_id)
        # What is written into the table itself, each run would read again.
        batch.folders.append(table.folder())
        batch.has_more |= span.has_more
        if context:
            # The watermark that follows a plan was frozen with it.
            state = span.state_after if settled is None and reach.saves else None
            batch.add(context, span.to_plan() if settled is None else settled, state)
        logger.info(
            "event=planned job=%s context=%s kind=table format=%s first_run=%s empty=%s whole=%s commits=%s "
            "has_more=%s replay=%s reads=%s %s",
            batch.run.job_id, context, table.format, reach.before is None, span.is_empty, span.whole, span.commits,
            span.has_more, batch.run.replay, span.changes, chosen,
        )  # fmt: skip
        # Without Spark rows are read here, and before a plan is frozen there is none to discard.
        with table.typed_errors(name, batch.run.job_id, is_planned=batch.run.replay):
            found = table.rows(span)
        if hasattr(found, "sparkSession"):
            # Read by whatever writes them. Rows without Spark are in memory: later errors say nothing of the table.
            batch.read_through(_TableReader(table, name, batch.run.job_id))
        if not context:
            return found
        if hasattr(found, "sparkSession"):
            return batch.counts.watch_all(context, found, is_empty=span.is_empty)
        batch.counts.add(context, {"rows": len(found)})
        return found

    def relationalize(self, df: DataFrame | Any, root: str, context: str | None) -> dict[str, DataFrame]:
        """Return nested rows as related tables; see `IncrementalJob.relationalize`."""
        # Here, as it needs pyspark.
        from scripts.helpers.relational.relations import Relations

        batch = self._batch
        relations = Relations(df, root, self._id_block(context))
        batch.read_through(relations)
        batch.end.whatever_comes(relations.release)
        if context:
            batch.add(context, relations.plan, relations.state_after)
        else:
            batch.may_be_empty = True
        tables = relations.tables()
        logger.info(
            "event=planned job=%s context=%s kind=ids first_id=%d tables=%d replay=%s",
            batch.run.job_id, context or "", relations.block.first, len(tables), batch.run.replay,
        )  # fmt: skip
        return tables

    def _id_block(self, context: str | None) -> IdBlock:
        if not context:
            return IdBlock.unsaved(new_token())
        batch = self._batch
        stored = batch.inherited(context)
        if stored == NOTHING:
            # Rows need an id, so unlike a source these cannot be left for the next run.
            raise PlanConflictError(
                batch.run.job_id,
                f"the frozen plan has no ids for context {context!r}. Run the code that made the plan, or discard the "
                "plan.",
            )
        if stored is not None:
            return IdBlock.of_plan(context, stored, batch.run.state(context))
        slot = sum(plan.get("kind") == KIND for plan in batch.contexts.values())
        run = batch.run
        if not isinstance(run, Run):
            return IdBlock.unsaved(f"{run.job_id}/{run.run_id}", slot, context, run.state(context))
        kinds = {name: value.get("kind") for name, value in run.watermarks.items() if isinstance(value, Mapping)}
        # Each is checked by `state`, which reads back the one that is asked for if its value is in chunks.
        states = {name: run.state(name) for name in {context, *(one for one in kinds if kinds[one] == KIND)}}
        return IdBlock.of_batch(context, run.version + 1, slot, states)


def _state_after(window: RowWindow, reach: Reach) -> Mapping[str, Any] | None:
    """Return the watermark that follows, with what is covered; None where nothing is saved."""
    if not reach.saves:
        return None
    read = coverage.ranges_read(window.columns, window.read_low, window.high, window.descending)
    return coverage.with_coverage(window.state_after, reach.before, read, new_token())


def _span(table: TableSource, context: str, options: TableOptions, reach: Reach, job_id: str) -> TableSpan:
    if reach.everything:
        _warn_of_unused(options.max_versions, "max_versions", job_id, table.name)
        return whole_span(table, options)
    if reach.until is not None:
        return span_between(table, reach.before, reach.until, context=context, job_id=job_id, options=options)
    return plan_span(table, state=reach.before, context=context, job_id=job_id, options=options)


def _warn_of_unused(limit: int | None, name: str, job_id: str, source: str) -> None:
    if limit is not None:
        logger.warning(
            "event=limit_without_effect job=%s source=%s: %s is ignored, because the run reads everything and saves "
            "nothing from which the next run could continue",
            job_id, source, name,
        )  # fmt: skip


@dataclass(frozen=True)
class _TableReader:
    """Lets what is raised while rows of a table are read name the context and the job."""

    table: TableSource
    context: str
    job_id: str

    def typed_errors(self) -> AbstractContextManager[None]:
        """Return what lets a file that is gone come out as a SourceExpiredError."""
        return self.table.typed_errors(self.context, self.job_id)


def as_rows(source: Any, name: str) -> RowSource:
    """Return a source of rows as it is; a frame of Spark, pandas or pyarrow, or a DynamicFrame, as one.

    Raises
    ------
    SourceOptionError
        It is a table that is read by its versions.
    """
    if is_table(source):
        raise SourceOptionError(
            "source",
            f"{source.name!r} is read by its versions, which have no ranges of a cursor. For an old state of it give a "
            "DataFrame, or read runs again with mode='pause', from_run and to_run.",
        )
    if is_arrow(source):
        return ArrowRows(source, name=name)
    return PandasRows(source, name=name) if is_pandas(source) else as_source(source, name)
