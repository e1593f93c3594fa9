"""`IncrementalJob`: begin, plan every source, work, and commit them all at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from scripts.helpers import coverage
from scripts.helpers.dataframe_rows import as_source
from scripts.helpers.errors import PlanConflictError, ReservedNameError, SourceError
from scripts.helpers.ids import BatchId, check_context, new_run_id, new_token
from scripts.helpers.job_metrics import METRICS, files_read, fitting
from scripts.helpers.row_counts import RowCounts, bytes_below
from scripts.helpers.row_plan import DEFAULT_DELAY, plan_window
from scripts.helpers.row_window import RowWindow
from scripts.helpers.run import Run
from scripts.helpers.spark_writing import timestamps_with_statistics
from scripts.helpers.watermarks import DEFAULT_LEASE, Watermarks

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from pyspark.sql import DataFrame, SparkSession

    from scripts.helpers.file_delta import FileDelta
    from scripts.helpers.file_sources import EventSource, ListingSource
    from scripts.helpers.row_sources import RowSource
    from scripts.helpers.small_files import OnChanged
    from scripts.helpers.spark_bookmark import SparkFileDelta

logger = logging.getLogger(__name__)

BATCH_COLUMN = "batch_id"
CONNECTIONS = 32
"""Of the S3 client that lists, compares and checks."""
_NOTHING: dict[str, Any] = {"kind": "nothing"}


class IncrementalJob:
    """One run of a job that takes only what is new from one or more sources.

    Entering begins the run. Each `rows_since` or `new_files` plans one source under the name of
    its `transformation_ctx`. The plan of all of them is frozen, in one write, when the batch first
    gets its id: at `write`, `freeze` or `batch_id`. From then on every attempt at the batch, in
    whatever process, takes exactly that plan. A clean exit commits all sources together; an error
    aborts, and the next run replays the plan.

    What is written under `batch_id` is written once, whatever crashes. A sink of your own must be
    idempotent per batch id; ask for the id before you write to it.

    Parameters
    ----------
    watermarks
        The table.
    job_id, run_id
        By default a new run id in Glue's shape. A scheduler's retry should pass the same one.
    spark
        Needed by `write` only through its DataFrames; may be None without Spark.
    lease
        How long other runs stay away.
    clock
        Returns the time as an aware datetime; the upper bound of time cursors without a clock of their own.

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
        job_id: str,
        run_id: str | None = None,
        *,
        spark: SparkSession | None = None,
        s3_client: S3Client | None = None,
        lease: timedelta = DEFAULT_LEASE,
        clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self.job_id, self.run_id = job_id, run_id or new_run_id()
        self.spark = spark
        self.metrics: dict[str, Any] = {}
        self._watermarks, self._s3_client, self._lease, self._clock = watermarks, s3_client, lease, clock
        self._run: Run | None = None
        self._contexts: dict[str, Any] = {}
        self._states: dict[str, Any] = {}
        self._events: list[tuple[EventSource, list[str]]] = []
        self._checked: list[FileDelta] = []
        self._sources: list[RowSource] = []
        self._counts = RowCounts()

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any], watermarks: Watermarks, spark: SparkSession | None = None, **options: Any
    ) -> IncrementalJob:
        """Make a job from resolved job arguments: ``JOB_NAME`` and, if there is one, ``JOB_RUN_ID``."""
        return cls(watermarks, args["JOB_NAME"], args.get("JOB_RUN_ID"), spark=spark, **options)

    def __enter__(self) -> IncrementalJob:
        """Begin the run and keep its lease. RunInProgressError, before anything is read, if another one has it."""
        self._run = self._watermarks.begin(self.job_id, self.run_id, lease=self._lease)
        self._run.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Commit on a clean exit if any source was planned; otherwise abort and keep the plan."""
        if error is None and self._contexts:
            try:
                self.commit()
            except BaseException as failure:
                self.run.__exit__(type(failure), failure, None)
                raise
        self.run.__exit__(kind, error, trace)

    # --- sources --------------------------------------------------------------------------------

    def rows_since(
        self,
        source: DataFrame | RowSource | Any,
        cursor_column: str | Sequence[str],
        *,
        transformation_ctx: str = "rows",
        **options: Any,
    ) -> DataFrame:
        """Return the rows of a source that are new by their cursor column, filtered lazily.

        Parameters
        ----------
        source
            A DataFrame, Glue's DynamicFrame, or a source such as `DataFrameRows`.
        cursor_column
            One column, or several that compare from the first on, such as ``["last_modified", "id"]``.
        **options
            `delay`, `lookback`, `high`, `initial_value`, `nulls`, `descending`, `strings`, `sink`:
            see `row_plan.RowOptions`. `plan_window` lists the errors.
        """
        stored = self._replayed(transformation_ctx)
        rows = as_source(source, transformation_ctx)
        self._sources.append(rows)
        names = [cursor_column] if isinstance(cursor_column, str) else list(cursor_column)
        if stored is not None:
            if stored == _NOTHING:
                nothing: DataFrame = rows.rows(RowWindow(rows.columns(names, strings=True), None, None))
                return nothing
            window = RowWindow.from_plan(stored, names, transformation_ctx)
        else:
            window = plan_window(
                rows,
                names,
                now=self._clock(),
                state=self.run.state(transformation_ctx),
                context=transformation_ctx,
                **options,
            )
        read = coverage.read_by(window.columns, window.low, window.high, window.descending)
        before = self.run.state(transformation_ctx)
        state = coverage.with_coverage(window.state_after, before, read, new_token())
        self._add(transformation_ctx, window.to_plan(), state)
        logger.info(
            "event=planned job=%s context=%s kind=rows column=%s first_run=%s empty=%s replay=%s delay=%s lookback=%s "
            "nulls=%s descending=%s sink=%s",
            self.job_id, transformation_ctx, ",".join(names), window.low is None, window.is_empty, self.run.replay,
            options.get("delay", DEFAULT_DELAY), window.lookback, window.nulls, window.descending,
            options.get("sink", "append"),
        )  # fmt: skip
        return self._counts.watch(transformation_ctx, rows.rows(window), window)

    def new_files(
        self,
        source: str,
        *,
        transformation_ctx: str = "files",
        listing: ListingSource | None = None,
        events: EventSource | None = None,
        on_changed: OnChanged | None = "error",
        **options: Any,
    ) -> FileDelta:
        """Return the files under a prefix or directory that are new.

        Parameters
        ----------
        listing
            Another way to see the objects, such as `S3Inventory`.
        events
            Notifications of new objects, such as `S3EventQueue`: only objects they tell of are
            looked at. They are acknowledged once the batch is committed. Run the job without them
            from time to time: a listing finds what no event told of.
        on_changed
            A planned file that was overwritten or deleted before the commit is a ChangedObjectError
            that names it, and nothing is committed. The replay then raises the same at once, or with
            ``skip`` leaves that file out: its new content is new in the next batch. None looks at
            nothing again: for sources whose files never change, or that the job itself moves away.
        **options
            See `file_rules.FileOptions`. `FileBookmark` lists the errors.
        """
        _need_pyarrow(source)
        from scripts.helpers.file_bookmark import FileBookmark
        from scripts.helpers.file_delta import FileDelta
        from scripts.helpers.object_listing import Location
        from scripts.helpers.s3_client import make_client

        stored = self._replayed(transformation_ctx)
        if stored == _NOTHING:
            return FileDelta(Location.parse(source))
        if self._s3_client is None and Location.parse(source).is_s3:
            self._s3_client = make_client(CONNECTIONS)
        bookmark = FileBookmark(
            source,
            state=None if stored is not None else self.run.state(transformation_ctx),
            context=transformation_ctx,
            s3_client=self._s3_client,
            taken_by=(self.run.version + 1, self.run_id),
            **options,
        )
        if stored is not None:
            delta = bookmark.from_plan(stored, transformation_ctx)
            if on_changed is not None:
                delta = delta.unchanged(on_changed, self._s3_client)
            self._add(transformation_ctx, stored, None)
        else:
            if events is not None:
                delta = bookmark.new_among(events.receive(bookmark.location), self._clock())
                self._events.append((events, bookmark.left))
            else:
                delta = bookmark.new_files(listing)
            self._add(transformation_ctx, bookmark.to_plan(delta), bookmark.state_after)
        logger.info(
            "event=planned job=%s context=%s kind=files files=%d bytes=%d gone=%d has_more=%s replay=%s",
            self.job_id, transformation_ctx, delta.count, delta.bytes, delta.gone, delta.has_more, self.run.replay,
        )  # fmt: skip
        if on_changed is not None:
            self._checked.append(delta)
        return delta

    def new_files_on_spark(self, source: str, *, transformation_ctx: str = "files", **options: Any) -> SparkFileDelta:
        """Return the files that are new, found by the executors; see `SparkFileBookmark`. Needs `spark`."""
        _need_pyarrow(source)
        from scripts.helpers.spark_bookmark import SparkFileBookmark

        if self.spark is None:
            raise PlanConflictError(self.job_id, "there is no Spark session. Give the job spark=.")
        stored = self._replayed(transformation_ctx)
        bookmark = SparkFileBookmark(
            self.spark,
            source,
            state=None if stored is not None else self.run.state(transformation_ctx),
            context=transformation_ctx,
            taken_by=(self.run.version + 1, self.run_id),
            **options,
        )
        if stored is not None:
            delta = bookmark.delta_of({} if stored == _NOTHING else stored)
            self._add(transformation_ctx, stored, None)
        else:
            delta = bookmark.new_files()
            self._add(transformation_ctx, bookmark.plan or {}, bookmark.state_after)
        logger.info(
            "event=planned job=%s context=%s kind=files files=%d bytes=%d gone=%d on_spark=True replay=%s",
            self.job_id, transformation_ctx, delta.count, delta.bytes, delta.gone, self.run.replay,
        )  # fmt: skip
        return delta

    # --- the batch ------------------------------------------------------------------------------

    @property
    def run(self) -> Run:
        """The run of this job; PlanConflictError outside the ``with`` statement."""
        if self._run is None:
            raise PlanConflictError(self.job_id, "the run has not begun. Use the job in a `with` statement.")
        return self._run

    @property
    def batch_id(self) -> BatchId:
        """The id to key a sink by. Freezes the plan: a batch has an id once its content is fixed."""
        self.freeze()
        return self.run.batch_id

    def freeze(self) -> None:
        """Store the plan of all sources planned so far. Later sources are refused; again is no change."""
        if self.run.plan is None:
            if not self._contexts:
                raise PlanConflictError(self.job_id, "no source is planned. Call rows_since or new_files first.")
            self.run.freeze(self._contexts, {**self.run.watermarks, **self._states})

    def write(self, df: DataFrame, path: str, *, format: str = "parquet", **options: Any) -> int:
        """Write one batch to ``path/batch_id=…/`` and overwrite only that; return the rows written.

        A replay leaves the same rows there. `path` ends up partitioned by ``batch_id``. Rows are
        counted while they are written (Spark's Observation), without a second pass. Parquet
        timestamps are written as TIMESTAMP_MICROS, which row groups keep statistics of.

        Raises
        ------
        FencedError
            Another run took over; nothing is written.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812

        if BATCH_COLUMN in (name.lower() for name in df.columns):
            raise ReservedNameError(BATCH_COLUMN, [BATCH_COLUMN])
        folder = f"{path.rstrip('/')}/{BATCH_COLUMN}={self.batch_id}"
        self.run.check()
        written = Observation()
        counted = df.observe(written, F.count(F.lit(1)).alias("rows"))
        with self._typed_errors(), timestamps_with_statistics(df, format):
            counted.write.format(format).options(**options).mode("overwrite").save(folder)
        rows = int(written.get["rows"])
        for metric, number in (("rows_written", rows), ("bytes_written", bytes_below(df.sparkSession, folder) or 0)):
            self.metrics[metric] = self.metrics.get(metric, 0) + number
        return rows

    def commit(self) -> str:
        """Commit all planned sources in one write; see `Run.commit`. Called by a clean exit."""
        if self.run.closed:
            return "done"
        self.freeze()
        assert self.run.plan is not None
        unread = set(self.run.plan.contexts) - set(self._contexts)
        if unread:
            raise PlanConflictError(
                self.job_id,
                f"the frozen plan holds {', '.join(sorted(unread))}, which this run did not ask for; a commit would "
                "mark it as done. Run the code that made the plan, or discard the plan.",
            )
        for delta in self._checked:
            delta.unchanged("error", self._s3_client)
        self.metrics |= {**self._counts.metrics(), **files_read(self._contexts)}
        outcome = self.run.commit(**fitting(self.metrics, self.run.plan.next))
        for events, left in self._events:
            events.acknowledge(but=left)
        return outcome

    # --- within ---------------------------------------------------------------------------------

    def _replayed(self, context: str) -> Mapping[str, Any] | None:
        """Return a context's part of the inherited plan; None where there is no plan yet.

        A context that the inherited plan does not know takes nothing now and everything next time.
        """
        check_context(context)
        if context in METRICS:
            raise ReservedNameError(context, METRICS)
        if context in self._contexts:
            raise PlanConflictError(self.job_id, f"context {context!r} is planned already. Give each source its own.")
        if self.run.plan is None:
            return None
        if not self.run.replay:
            raise PlanConflictError(
                self.job_id, f"context {context!r} comes after the plan is frozen. Plan all sources before writing."
            )
        stored: Mapping[str, Any] | None = self.run.planned(context)
        if stored is None:
            logger.warning("event=not_in_plan job=%s context=%s: left for the next run", self.job_id, context)
            self._contexts[context] = _NOTHING
            return _NOTHING
        return stored

    def _typed_errors(self) -> ExitStack:
        """Let what is raised while planned rows and files are read come out of Spark's errors as our own."""
        stack = ExitStack()
        if any(planned["kind"] == "files" for planned in self._contexts.values()):
            from scripts.helpers.small_files import typed_errors

            stack.enter_context(typed_errors())
        for source in self._sources:
            stack.enter_context(source.typed_errors())
        return stack

    def _add(self, context: str, planned: Mapping[str, Any], state: Mapping[str, Any] | None) -> None:
        self._contexts[context] = planned
        if state is not None:
            self._states[context] = state


def _need_pyarrow(source: str) -> None:
    """Raise SourceError where pyarrow is missing, which jobs that read rows can do without."""
    if find_spec("pyarrow") is None:
        raise SourceError(source, "files need pyarrow. Install it: pip install 'glue-watermarks[files]'.")
