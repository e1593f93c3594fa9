"""`IncrementalJob`: plan every source, work, and commit them all at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from scripts.helpers.batch.batch import NOTHING
from scripts.helpers.batch.files import FileBatch
from scripts.helpers.batch.modes import Mode, ModeName
from scripts.helpers.errors import PlanConflictError
from scripts.helpers.protocol.names import new_token
from scripts.helpers.relational.ids import KIND, IdBlock
from scripts.helpers.rows import coverage
from scripts.helpers.rows.options import DEFAULTS, RowOptions, shown
from scripts.helpers.rows.pandas_frames import PandasRows, is_pandas
from scripts.helpers.rows.plan import plan_window, whole_window, window_between
from scripts.helpers.rows.spark_frames import as_source
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.watermarks import DEFAULT_LEASE, Watermarks

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from pyspark.sql import DataFrame, SparkSession

    from scripts.helpers.metrics.report import Reporter
    from scripts.helpers.rows.sources import RowSource

logger = logging.getLogger(__name__)


class IncrementalJob(FileBatch):
    """One run of a job that takes only what is new from one or more sources.

    Entering begins the run. Each `rows_since` or `new_files` plans one source under the name of
    its `transformation_ctx`. The plan of all of them is frozen, in one write, when the batch first
    gets its id: at `write`, `freeze` or `batch_id`. From then on every attempt at the batch, in
    whatever process, takes exactly that plan. A clean exit commits all sources together; an error
    aborts, and the next run replays the plan.

    What is written under `batch_id` is written once, whatever crashes. A sink of your own must be
    idempotent per batch id; ask for the id before you write to it.

    A source whose `transformation_ctx` is None or empty is read whole and not tracked.

    Parameters
    ----------
    watermarks
        The table.
    job_id, run_id
        By default a new run id in Glue's shape. A scheduler's retry should pass the same one. The
        job's name may come with `init`.
    mode, from_run, to_run
        ``enable`` takes what is new and saves it. ``pause`` takes what is new, or what the runs after
        `from_run` up to and with `to_run` took, and saves nothing. ``disable`` takes everything and
        saves nothing, and never asks the table. The last two take no lease. See `modes.Mode`.
    namespace
        Runs in different namespaces share nothing, and may run at once; see `namespaces.name_in_table`.
    job_runs
        What Glue's ``get_job_runs`` returns: places runs of a range that never committed. Those that `JobRuns`
        started are in the table, and in a Glue job Glue itself is asked.
    spark
        Needed by `write` only through its DataFrames; may be None without Spark.
    lease
        How long other runs stay away.
    clock
        Returns the time as an aware datetime, else an InvalidValueError when the run begins; the upper bound of
        time cursors without a clock of their own.
    reporters
        Who is told how the run ended: `EmbeddedMetrics()`, `OpenTelemetryMetrics()`, or your own.

    Attributes
    ----------
    metrics : dict
        What was written so far; after the commit also what was read. Yours, if you add to it, are saved with ours.

    Examples
    --------
    >>> watermarks = Watermarks(table_name="glue-watermarks")
    >>> with IncrementalJob(watermarks, "landing-to-raw", run_id="jr_1") as job:
    ...     job.new_files(landing, transformation_ctx="parking").count
    2
    >>> with IncrementalJob(watermarks, "landing-to-raw", run_id="jr_2") as job:
    ...     job.new_files(landing, transformation_ctx="parking").count
    0
    >>> watermarks.get_most_recent_run_id("landing-to-raw")
    'jr_2'
    """

    def __init__(
        self,
        watermarks: Watermarks,
        job_id: str | None = None,
        run_id: str | None = None,
        *,
        spark: SparkSession | None = None,
        s3_client: S3Client | None = None,
        mode: ModeName = "enable",
        from_run: str | None = None,
        to_run: str | None = None,
        namespace: str | None = None,
        job_runs: Iterable[Mapping[str, Any]] = (),
        lease: timedelta = DEFAULT_LEASE,
        clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        reporters: Sequence[Reporter] = (),
    ) -> None:
        super().__init__(watermarks, job_id, run_id, lease, Mode(mode, from_run, to_run), namespace, job_runs)
        self.spark, self._s3_client, self._clock = spark, s3_client, clock
        self._reporters = reporters

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any], watermarks: Watermarks, spark: SparkSession | None = None, **options: Any
    ) -> IncrementalJob:
        """Make a job from resolved job arguments, as Glue's `getResolvedOptions` returns them.

        Parameters
        ----------
        args
            ``JOB_NAME`` and, if they are there, ``JOB_RUN_ID``, ``job_bookmark_option``,
            ``job_bookmark_from``, ``job_bookmark_to`` and ``BOOKMARK_CONTEXT``, the namespace. Without
            any ``job_bookmark_option`` the job saves; Glue's parser always gives one, and
            ``job-bookmark-disable`` unless the job was started with another.
        **options
            Of the constructor; they go before `args`.
        """
        mode = Mode.from_args(args)
        given: dict[str, Any] = {
            "mode": mode.name, "from_run": mode.from_run, "to_run": mode.to_run,
            "namespace": args.get("BOOKMARK_CONTEXT"),
        }  # fmt: skip
        return cls(watermarks, args["JOB_NAME"], args.get("JOB_RUN_ID"), spark=spark, **(given | options))

    def rows_since(
        self,
        source: DataFrame | RowSource | Any,
        cursor_column: str | Sequence[str],
        *,
        transformation_ctx: str | None = "rows",
        **options: Any,
    ) -> Any:
        """Return the rows of a source that are new by their cursor column, filtered lazily.

        Parameters
        ----------
        source
            A DataFrame, Glue's DynamicFrame, or a source such as `DataFrameRows`. Of a DataFrame of
            pandas, or of `PandasRows`, the rows are returned as pandas, and Spark is not needed.
        cursor_column
            One column, or several that compare from the first on, such as ``["last_modified", "id"]``.
        **options
            `delay`, `lookback`, `high`, `settled`, `initial_value`, `nulls`, `descending`, `strings`,
            `sink`: see `row_options.RowOptions`. `plan_window` lists the errors. A replay takes the
            options of its plan; a `sink` that does not fit them is a CursorError, and so are `high` and
            `settled` for a range of runs.
        """
        chosen = RowOptions(**options)
        names = [cursor_column] if isinstance(cursor_column, str) else list(cursor_column)
        rows = as_rows(source, transformation_ctx or "rows")
        if not transformation_ctx:
            self._untracked()
            self._sources.append(rows)
            return rows.rows(whole_window(rows, names, chosen.strings))
        stored = self._planned(transformation_ctx)
        self._sources.append(rows)
        before = self.run.state(transformation_ctx)
        if stored is not None:
            if stored == NOTHING:
                return rows.rows(RowWindow(rows.columns(names, strings=True), None, None))
            window = RowWindow.from_plan(stored, names, transformation_ctx)
            chosen.check_replay(window)
            planned, state = stored, None
        else:
            window = self._window(rows, names, before, chosen, transformation_ctx, options)
            planned, state = window.to_plan() | chosen.to_plan(), None
            if self.mode.saves:
                read = coverage.ranges_read(window.columns, window.read_low, window.high, window.descending)
                state = coverage.with_coverage(window.state_after, before, read, new_token())
        self._add(transformation_ctx, planned, state)
        logger.info(
            "event=planned job=%s context=%s kind=rows column=%s first_run=%s empty=%s replay=%s lookback=%s nulls=%s "
            "descending=%s %s",
            self.job_id, transformation_ctx, ",".join(names), before is None, window.is_empty, self.run.replay,
            window.lookback, window.nulls, window.descending, shown(planned.get("options", DEFAULTS)),
        )  # fmt: skip
        found = rows.rows(window)
        if isinstance(rows, PandasRows):
            self._counts.add(transformation_ctx, rows.counts(found, window))
            return found
        return self._counts.watch(transformation_ctx, found, window)

    def _window(
        self,
        rows: RowSource,
        names: Sequence[str],
        before: Any,
        chosen: RowOptions,
        context: str,
        options: Mapping[str, Any],
    ) -> RowWindow:
        if self.mode.name == "disable":
            return whole_window(rows, names, chosen.strings)
        if self._range is not None:
            return window_between(rows, names, before, self._range.until(context), chosen, context)
        return plan_window(rows, names, now=self._clock(), state=before, context=context, **options)

    def relationalize(
        self, df: DataFrame | Any, root: str = "roottable", *, transformation_ctx: str | None = "relationalize"
    ) -> dict[str, DataFrame]:
        """Return nested rows as related tables, by name: one of the rows, and one for each array or map in them.

        Names are those of Glue's Relationalize. The ids that join the tables go on over runs, and a
        replay gives the same ones to the same rows; see `relationalize.Relations`, also for its errors.

        Parameters
        ----------
        df
            The rows of this batch, from `rows_since` or `new_files`: a DataFrame or Glue's DynamicFrame.
        root
            Name of the table of the rows, and start of the others' names.
        transformation_ctx
            Under which the bookmark keeps the next id. Another than that of the source. With None or
            empty nothing is kept, and the ids are below 0 and others at each call.

        Raises
        ------
        PlanConflictError
            The inherited plan has no ids for this context.
        SourceChangedError, InvalidValueError, TooManyIdsError
            See `id_blocks.IdBlock`.
        """
        from scripts.helpers.relational.relations import Relations

        relations = Relations(df, root, self._id_block(transformation_ctx))
        self._sources.append(relations)
        self._at_end.callback(relations.release)
        if transformation_ctx:
            self._add(transformation_ctx, relations.plan, relations.state_after)
        else:
            self._may_be_empty = True
        tables = relations.tables()
        logger.info(
            "event=planned job=%s context=%s kind=ids first_id=%d tables=%d replay=%s",
            self.job_id, transformation_ctx or "", relations.block.first, len(tables), self.run.replay,
        )  # fmt: skip
        return tables

    def _id_block(self, context: str | None) -> IdBlock:
        if not context:
            return IdBlock.unsaved(new_token())
        stored, state = self._replayed(context), self.run.state(context)
        if stored == NOTHING:
            raise PlanConflictError(
                self.job_id,
                f"the frozen plan has no ids for context {context!r}. Run the code that made the plan, or discard the "
                "plan.",
            )
        if stored is not None:
            return IdBlock.of_plan(context, stored, state)
        slot = sum(plan.get("kind") == KIND for plan in self._contexts.values())
        if not self.mode.saves:
            return IdBlock.unsaved(f"{self.job_id}/{self.run_id}", slot, context, state)
        return IdBlock.of_batch(context, self.run.version + 1, slot, {**self.run.watermarks, context: state})


def as_rows(source: Any, name: str) -> RowSource:
    """Return a source of rows as it is; a DataFrame of Spark or pandas, or a DynamicFrame, as one."""
    return PandasRows(source, name=name) if is_pandas(source) else as_source(source, name)
