"""`IncrementalJob`: plan every source, work, and commit them all at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from scripts.helpers import coverage
from scripts.helpers.batch import NOTHING, Batch
from scripts.helpers.dataframe_rows import as_source
from scripts.helpers.errors import InvalidValueError, PlanConflictError, SourceError
from scripts.helpers.ids import new_token
from scripts.helpers.row_options import DEFAULTS, RowOptions, shown
from scripts.helpers.row_plan import plan_window
from scripts.helpers.row_window import RowWindow
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

CONNECTIONS = 32
"""Of the S3 client that lists, compares and checks."""


class IncrementalJob(Batch):
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
        super().__init__(watermarks, job_id, run_id, lease)
        self.spark, self._s3_client, self._clock = spark, s3_client, clock

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any], watermarks: Watermarks, spark: SparkSession | None = None, **options: Any
    ) -> IncrementalJob:
        """Make a job from resolved job arguments: ``JOB_NAME`` and, if there is one, ``JOB_RUN_ID``."""
        return cls(watermarks, args["JOB_NAME"], args.get("JOB_RUN_ID"), spark=spark, **options)

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
            `delay`, `lookback`, `high`, `settled`, `initial_value`, `nulls`, `descending`, `strings`,
            `sink`: see `row_options.RowOptions`. `plan_window` lists the errors. A replay takes the
            options of its plan; a `sink` that does not fit them is a CursorError.
        """
        chosen = RowOptions(**options)
        stored = self._replayed(transformation_ctx)
        rows = as_source(source, transformation_ctx)
        self._sources.append(rows)
        names = [cursor_column] if isinstance(cursor_column, str) else list(cursor_column)
        before = self.run.state(transformation_ctx)
        if stored is not None:
            if stored == NOTHING:
                nothing: DataFrame = rows.rows(RowWindow(rows.columns(names, strings=True), None, None))
                return nothing
            window = RowWindow.from_plan(stored, names, transformation_ctx)
            chosen.check_replay(window)
            planned, state = stored, None
        else:
            window = plan_window(rows, names, now=self._clock(), state=before, context=transformation_ctx, **options)
            read = coverage.read_by(window.columns, window.read_low, window.high, window.descending)
            planned = window.to_plan() | chosen.to_plan()
            state = coverage.with_coverage(window.state_after, before, read, new_token())
        self._add(transformation_ctx, planned, state)
        logger.info(
            "event=planned job=%s context=%s kind=rows column=%s first_run=%s empty=%s replay=%s lookback=%s nulls=%s "
            "descending=%s %s",
            self.job_id, transformation_ctx, ",".join(names), before is None, window.is_empty, self.run.replay,
            window.lookback, window.nulls, window.descending, shown(planned.get("options", DEFAULTS)),
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
            ``skip`` leaves that file out: its new content is new in the next batch. ``skip`` is refused
            where that could not be kept; see `unchanged.check_on_changed`. None looks at nothing
            again: for sources whose files never change, or that the job itself moves away.
        **options
            See `file_rules.FileOptions`. `FileBookmark` lists the errors.
        """
        _need_pyarrow(source)
        from scripts.helpers.file_bookmark import FileBookmark
        from scripts.helpers.file_delta import FileDelta
        from scripts.helpers.object_listing import Location
        from scripts.helpers.s3_client import make_client
        from scripts.helpers.unchanged import check_on_changed

        stored = self._replayed(transformation_ctx)
        if stored == NOTHING:
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
        check_on_changed(on_changed, bookmark.location, bookmark.options)
        if stored is not None:
            delta = bookmark.from_plan(stored, transformation_ctx)
            if on_changed is not None:
                delta = delta.unchanged(on_changed, self._s3_client)
            self._add(transformation_ctx, stored, None)
        else:
            if events is not None:
                delta = bookmark.new_among(events.receive(bookmark.location), self._clock())
                self._after_commit.append(partial(events.acknowledge, but=bookmark.left))
            else:
                delta = bookmark.new_files(listing)
            self._add(transformation_ctx, bookmark.to_plan(delta), bookmark.state_after)
        logger.info(
            "event=planned job=%s context=%s kind=files files=%d bytes=%d gone=%d has_more=%s replay=%s",
            self.job_id, transformation_ctx, delta.count, delta.bytes, delta.gone, delta.has_more, self.run.replay,
        )  # fmt: skip
        if on_changed is not None:
            self._before_commit.append(partial(delta.unchanged, "error", self._s3_client))
        return delta

    def new_files_on_spark(
        self,
        source: str,
        *,
        transformation_ctx: str = "files",
        on_changed: Literal["error"] | None = "error",
        **options: Any,
    ) -> SparkFileDelta:
        """Return the files that are new, found by the executors; see `SparkFileBookmark`. Needs `spark`.

        Parameters
        ----------
        on_changed
            As that of `new_files`, without ``skip``: the executors look at all planned files again
            before the commit, and first of all in a replay.
        """
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
        if on_changed not in ("error", None):
            raise InvalidValueError(f"On Spark on_changed is 'error' or None, and not {on_changed!r}. Use new_files.")
        if stored is not None:
            planned = None if stored == NOTHING else stored
            delta = bookmark.delta_of(planned)
            if on_changed is not None:
                bookmark.check_unchanged(planned)
            self._add(transformation_ctx, stored, None)
        else:
            delta, planned = bookmark.new_files(), bookmark.plan
            self._add(transformation_ctx, bookmark.plan or {}, bookmark.state_after)
        logger.info(
            "event=planned job=%s context=%s kind=files files=%d bytes=%d gone=%d on_spark=True replay=%s",
            self.job_id, transformation_ctx, delta.count, delta.bytes, delta.gone, self.run.replay,
        )  # fmt: skip
        if on_changed is not None:
            self._before_commit.append(partial(bookmark.check_unchanged, planned))
        return delta


def _need_pyarrow(source: str) -> None:
    """Raise SourceError where pyarrow is missing, which jobs that read rows can do without."""
    if find_spec("pyarrow") is None:
        raise SourceError(source, "files need pyarrow. Install it: pip install 'glue-watermarks[files]'.")
