"""Take the new rows of a source, and turn nested rows into related tables."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import DataFrame
from scripts.helpers.batch.batch import Batch, Source, SourcePart, Stored, kind_of
from scripts.helpers.batch.modes import Reach
from scripts.helpers.batch.schemas import SchemaKeeping, policy_in
from scripts.helpers.display.options import option_error, options_of
from scripts.helpers.errors import PlanConflictError
from scripts.helpers.protocol.names import new_token
from scripts.helpers.protocol.run import Run
from scripts.helpers.relational.ids import KIND, IdBlock
from scripts.helpers.rows.identity import check_same_plan
from scripts.helpers.rows.memory import ArrowRows, PandasRows, is_arrow, is_pandas
from scripts.helpers.rows.options import DEFAULTS, RowOptions, RowOptionsGiven
from scripts.helpers.rows.plan import plan_window, whole_window, window_between
from scripts.helpers.rows.sources import RowSource
from scripts.helpers.rows.spark_frames import as_source
from scripts.helpers.rows.states import RowsState, ranges_read
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.tables.planning import check_not_lost, plan_span, span_between, whole_span
from scripts.helpers.tables.sources import is_table
from scripts.helpers.tables.spans import TableOptions, TableOptionsGiven, TableSpan

if TYPE_CHECKING:
    from scripts.helpers.schemas.policy import OnSchemaChange
    from scripts.helpers.tables.sources import TableSource

logger = logging.getLogger(__name__)


def rows_since(
    batch: Batch,
    source: Any,
    cursor_column: str | Sequence[str] | None,
    context: str | None,
    options: Mapping[str, Any],
) -> Any:
    """Return the new rows of a source; see `IncrementalJob.rows_since`."""
    policy, options = policy_in(options)
    found = batch.take(context, _source_of(batch, source, cursor_column, context, options))
    # Store the columns only after `take`, which has made the state that they are stored in. Use `source.name` only for
    # sources of this package: a frame may have a column called `name`.
    name = source.name if isinstance(source, RowSource) or is_table(source) else type(source).__name__
    with batch.withdrawing(context):
        rows = SchemaKeeping(batch).rows(context, name, found, policy)
    # Let `give` keep no Spark frame: Spark's plan of a write has the node that counts these rows, and so shows them.
    batch.give(context, rows, is_recognisable=not hasattr(rows, "sparkSession"))
    return rows


def _source_of(
    batch: Batch,
    source: Any,
    cursor_column: str | Sequence[str] | None,
    context: str | None,
    options: Mapping[str, Any],
) -> Source[Any]:
    if is_table(source):
        if cursor_column is not None:
            raise option_error(
                "cursor_column",
                f"{source.name!r} is read by its versions, which need no column. Leave it out; to read by a column, "
                "give a DataFrame of the table.",
            )
        return TableCommits(batch, source, context, TableOptions.of(options))
    # Pass the names of other arguments, so that the error for a misspelt `cursor_column` suggests the right name.
    chosen = options_of(RowOptions, options, ("cursor_column", "transformation_ctx", "on_schema_change"))
    names = [cursor_column] if isinstance(cursor_column, str) else list(cursor_column or ())
    if not names:
        raise option_error(
            "cursor_column", f"a {type(source).__name__} is read by a column that says what is new. Name it."
        )
    return CursorRows(batch, as_rows(source, context or "rows"), names, context, chosen)


class RowsSinceOptions(RowOptionsGiven, TableOptionsGiven, total=False):
    """The options of `rows_since`, for editors and type checkers."""


class RowsSinceGiven(RowsSinceOptions, total=False):
    """The options and the other named arguments, for the overloads of `rows_since`."""

    transformation_ctx: str | None
    on_schema_change: OnSchemaChange | None


@dataclass(frozen=True)
class CursorRows:
    """Rows that are new by their cursor columns.

    Parameters
    ----------
    names
        The cursor columns.
    """

    batch: Batch
    rows: RowSource
    names: Sequence[str]
    context: str | None
    options: RowOptions

    kind = "rows"

    def plan(self, reach: Reach) -> SourcePart[Any]:
        """Fix the window of rows to take, and the next watermark, which also has the ranges of cursors read so far."""
        with self.rows.asking():
            window = self._window(reach)
            state = None
            if reach.saves:
                read = ranges_read(window.columns, window.read_low, window.high, window.descending)
                before = None if reach.before is None else RowsState.read(reach.before, self.context or "rows")
                state = window.state.with_coverage(before, read, new_token()).to_store()
            return self._taken(window, window.to_plan() | self.options.to_plan(), state, reach.before)

    def resume(self, stored: Stored) -> SourcePart[Any]:
        """Take the window of a frozen plan."""
        window = RowWindow.from_plan(stored, self.names, self.context or "rows")
        self.options.check_replay(window)
        with self.rows.asking():
            check_same_plan(stored, self.rows, self.batch.run.job_id)
            return self._taken(window, stored, None, self.batch.run.state(self.context or ""))

    def nothing(self) -> Any:
        """Return no rows, with the columns of the source."""
        self.batch.add_reader(self.rows)
        return self.rows.rows(RowWindow(self.rows.columns(self.names, strings=True), None, None))

    def _window(self, reach: Reach) -> RowWindow:
        rows, names, context, job_id = self.rows, self.names, self.context or "rows", self.batch.run.job_id
        if reach.everything:
            _warn_of_unused(self.options.max_rows, "max_rows", job_id, rows.name)
            return whole_window(rows, names, self.options.strings)
        if reach.until is not None:
            return window_between(rows, names, reach.before, reach.until, self.options, context, job_id)
        return plan_window(
            rows, names, now=self.batch.clock(), state=reach.before, context=context, job_id=job_id,
            **vars(self.options),
        )  # fmt: skip

    def _taken(self, window: RowWindow, planned: Stored, state: Stored | None, before: Any) -> SourcePart[Any]:
        batch, rows = self.batch, self.rows
        batch.add_reader(rows)
        found = rows.rows(window)
        if self.context:
            # Count rows in memory now. Spark counts its rows while it reads them.
            counts = rows.counts(found, window)
            if counts is None:
                found = batch.counts.watch(self.context, found, window)
            else:
                batch.counts.add(self.context, counts)
        facts = (
            f"column={','.join(self.names)} first_run={before is None} empty={window.is_empty} "
            f"has_more={window.has_more} lookback={window.lookback} nulls={window.nulls} "
            f"descending={window.descending} {planned.get('options', DEFAULTS)}"
        )
        return SourcePart(found, planned, state, facts, has_more=window.has_more)


@dataclass(frozen=True)
class TableCommits:
    """Rows of the commits to a table since the watermark."""

    batch: Batch
    table: TableSource
    context: str | None
    options: TableOptions

    kind = "table"

    def plan(self, reach: Reach) -> SourcePart[Any]:
        """Fix the commits to take, and the next watermark."""
        table, options, context, job_id = self.table, self.options, self._name, self.batch.run.job_id
        if reach.everything:
            _warn_of_unused(options.max_versions, "max_versions", job_id, table.name)
            span = whole_span(table, options)
        elif reach.until is not None:
            span = span_between(table, reach.before, reach.until, context=context, job_id=job_id, options=options)
        else:
            span = plan_span(table, state=reach.before, context=context, job_id=job_id, options=options)
        return self._taken(span, span.to_plan(), span.state_after if reach.saves else None, reach.before)

    def resume(self, stored: Stored) -> SourcePart[Any]:
        """Take the commits of a frozen plan."""
        job_id = self.batch.run.job_id
        span = TableSpan.from_plan(stored, self.table.format, self._name, self.table.name)
        check_same_plan(stored, self.table, job_id)
        check_not_lost(self.table, span, self._name, job_id, is_planned=True)
        return self._taken(span, stored, None, self.batch.run.state(self._name))

    def nothing(self) -> Any:
        """Return no rows, with the columns of the table."""
        return self.table.rows(TableSpan(self.table.format, None, None, changes=self.options.changes))

    def typed_errors(self, *, is_planned: bool = True) -> AbstractContextManager[None]:
        """Return a context manager that raises SourceLostError if a file of the table is gone."""
        return self.table.typed_errors(self._name, self.batch.run.job_id, is_planned=is_planned)

    @property
    def _name(self) -> str:
        return self.context or "rows"

    def _taken(self, span: TableSpan, planned: Stored, state: Stored | None, before: Any) -> SourcePart[Any]:
        batch = self.batch
        # Note the table's folder: a target inside it is refused, because each run would read its own output.
        batch.folders.append(self.table.folder())
        # Without Spark, rows are read here. Only a replay has a frozen plan, so only then errors suggest discarding it.
        with self.typed_errors(is_planned=batch.run.replay):
            found = self.table.rows(span)
        is_lazy = hasattr(found, "sparkSession")
        if is_lazy:
            # Spark reads the rows only when they are written: the batch then translates errors with `typed_errors`.
            batch.add_reader(self)
        if self.context and is_lazy:
            found = batch.counts.watch_all(self.context, found, is_empty=span.is_empty)
        elif self.context:
            batch.counts.add(self.context, {"rows": len(found)})
        facts = (
            f"format={self.table.format} first_run={before is None} empty={span.is_empty} "
            f"whole={span.whole} commits={span.commits} has_more={span.has_more} "
            f"reads={span.changes} {self.options}"
        )
        return SourcePart(found, planned, state, facts, has_more=span.has_more)


def relationalize(batch: Batch, df: DataFrame | Any, root: str, context: str | None) -> dict[str, DataFrame]:
    """Return nested rows as related tables; see `IncrementalJob.relationalize`."""
    return batch.take(context, NestedRows(batch, df, root, context))


@dataclass(frozen=True)
class NestedRows:
    """A source of a batch: nested rows, which `Relations` splits into tables whose rows are joined by ids."""

    batch: Batch
    df: DataFrame | Any
    root: str
    context: str | None

    kind = KIND

    def plan(self, reach: Reach) -> SourcePart[dict[str, DataFrame]]:
        """Fix the first of the ids that this batch gives to the rows of the related tables, and return the tables."""
        run, context = self.batch.run, self.context
        if not context:
            return self._taken(IdBlock.unsaved(new_token()))
        slot = sum(plan["kind"] == KIND for plan in self.batch.contexts.values())
        if not isinstance(run, Run):
            return self._taken(IdBlock.unsaved(f"{run.job_id}/{run.run_id}", slot, context, reach.before))
        others = [name for name, state in run.watermarks.items() if kind_of(state) == KIND]
        # Use `run.state`, not `run.watermarks`: `state` checks each state, and reads a state that is stored in chunks.
        states = {name: run.state(name) for name in {context, *others}}
        return self._taken(IdBlock.of_batch(context, run.version + 1, slot, states))

    def resume(self, stored: Stored) -> SourcePart[dict[str, DataFrame]]:
        """Return the related tables; their rows get the ids that the frozen plan has fixed."""
        context = self.context or ""
        return self._taken(IdBlock.of_plan(context, stored, self.batch.run.state(context)))

    def nothing(self) -> dict[str, DataFrame]:
        """Return `df`'s tables with new ids if past runs are reread; PlanConflictError if a frozen plan has no ids."""
        if not self.batch.run.replay:  # The job rereads past runs, and none of those runs used this context.
            taken = self.plan(Reach())
            self.batch.add(self.context or "", taken.plan, None)
            return taken.data
        raise PlanConflictError(
            self.batch.run.job_id,
            f"the frozen plan has no ids for context {self.context!r}. Run the code that made the plan, or discard the "
            "plan.",
        )

    def _taken(self, block: IdBlock) -> SourcePart[dict[str, DataFrame]]:
        # Import this here, because it needs pyspark.
        from scripts.helpers.relational.relations import Relations

        relations = Relations(self.df, self.root, block)
        self.batch.add_reader(relations)
        self.batch.end.call_at_end(relations.release)
        tables = relations.tables()
        facts = f"first_id={block.first} tables={len(tables)}"
        return SourcePart(tables, relations.plan, relations.state_after, facts)


def _warn_of_unused(limit: int | None, name: str, job_id: str, source: str) -> None:
    if limit is not None:
        logger.warning(
            "event=limit_without_effect job=%s source=%s: %s is ignored, because the run reads everything and saves "
            "nothing from which the next run could continue",
            job_id, source, name,
        )  # fmt: skip


def as_rows(source: Any, name: str) -> RowSource:
    """Return `source` as a source of rows: unchanged if it is one; a frame of any kind is wrapped in one.

    Raises
    ------
    InvalidValueError
        The source is a table that is read by its versions.
    """
    if is_table(source):
        raise option_error(
            "source",
            f"{source.name!r} is read by its versions, which have no ranges of a cursor. For an old state of it give a "
            "DataFrame, or read runs again with mode='pause', from_run and to_run.",
        )
    if is_arrow(source):
        return ArrowRows(source, name=name)
    return PandasRows(source, name=name) if is_pandas(source) else as_source(source, name)
