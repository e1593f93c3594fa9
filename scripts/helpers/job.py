"""`IncrementalJob`: plan every source, work, and commit them all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from importlib.util import find_spec
from itertools import chain
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from scripts.helpers._lazy import DataFrame, S3Client, SparkSession, pa, pd
from scripts.helpers.batch.batch import Batch, FrozenBatch, add_written
from scripts.helpers.batch.end_of_run import EndOfRun, check_clock
from scripts.helpers.batch.modes import Mode, ModeName, begin
from scripts.helpers.batch.publishing import Publication
from scripts.helpers.errors import InvalidValueError, PlanConflictError, SourceError
from scripts.helpers.glue_api.runs import runs_on_glue
from scripts.helpers.listing.paths import source_text
from scripts.helpers.protocol.names import name_in_table, new_run_id, split_name
from scripts.helpers.sinks.choice import Layout
from scripts.helpers.spark.versions import check_version
from scripts.helpers.watermarks import DEFAULT_LEASE, Watermarks, utc_now

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from scripts.helpers.batch.files import FileSource
    from scripts.helpers.batch.modes import UnsavedRun
    from scripts.helpers.batch.rows import RowsSinceGiven, RowsSinceOptions
    from scripts.helpers.files.delta import FileDelta
    from scripts.helpers.files.latest import OnSame
    from scripts.helpers.files.partition_delta import PartitionDelta
    from scripts.helpers.files.rules import FileOptionsGiven, PartitionOptionsGiven
    from scripts.helpers.files.sources import EventSource, JournalSource, ListingSource
    from scripts.helpers.files.spark import SparkFileDelta
    from scripts.helpers.metrics.report import Reporter
    from scripts.helpers.protocol.run import Run
    from scripts.helpers.reading.small_files import OnChanged
    from scripts.helpers.rows.sources import Rows, RowsOf, RowSource
    from scripts.helpers.rows.verification import Verification
    from scripts.helpers.schemas.policy import OnSchemaChange
    from scripts.helpers.sinks.merging import Versions
    from scripts.helpers.sinks.sink import Mergeable, Sink
    from scripts.helpers.tables.sources import TableSource

    Frame = TypeVar("Frame", pd.DataFrame, pa.Table)


class IncrementalJob:
    """One run of a job that takes only what is new from one or more sources.

    Entering begins the run. Each `rows_since` or `new_files` plans one source under the name of
    its `transformation_ctx`. The plan of all of them is frozen, in one write, when the batch first
    gets its id: at `write`, `merge` or `freeze`. From then on every attempt at the batch, in
    whatever process, takes exactly that plan. A clean exit commits all sources together; an error
    aborts, and the next run replays the plan.

    What is written under the id of that batch is written once, whatever crashes. A sink of your own must be
    idempotent per batch id; call `freeze` for the id before you write to it.

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
        Runs in different namespaces share nothing, and may run at once; see `names.name_in_table`.
    job_runs
        What Glue's ``get_job_runs`` returns: places runs of a range that never committed. Those that `JobRuns`
        started are in the table, and in a Glue job Glue itself is asked.
    spark
        Needed by `write` only through its DataFrames; may be None without Spark. An UnsupportedVersionError for one
        older than Spark 3.3.
    lease
        How long other runs stay away, one day at most; renewed until the run ends.
    clock
        Returns the time as an aware datetime, else an InvalidValueError when the run begins; the upper bound of
        time cursors without a clock of their own.
    reporters
        Who is told how the run ended: `EmbeddedMetrics()`, `OpenTelemetryMetrics()`, or your own.

    Attributes
    ----------
    metrics : dict
        What was written so far; after the commit also what was read. Yours, if you add to it, are saved with ours.
    writes_itself : bool
        True turns off the WARNING that no sink got the rows of a source, as `freeze` does.

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
        clock: Callable[[], datetime] = utc_now,
        reporters: Sequence[Reporter] = (),
    ) -> None:
        check_version(spark)
        if isinstance(job_id, Watermarks) or isinstance(watermarks, str):
            raise InvalidValueError(
                "The table comes first, and then the name of the job: IncrementalJob(Watermarks(table), name)."
            )
        self.run_id = run_id or new_run_id()
        self.job_id = name_in_table(job_id, namespace) if job_id else ""
        self.mode = Mode(mode, from_run, to_run)
        self.metrics: dict[str, Any] = {}
        self.writes_itself = False
        self.spark = spark
        self._watermarks, self._namespace, self._job_runs, self._lease = watermarks, namespace, job_runs, lease
        self._s3_client, self._clock, self._reporters = s3_client, clock, reporters
        self._batch: Batch | None = None

    def __repr__(self) -> str:
        batch = self._batch
        state = "not begun" if batch is None else f"{len(batch.contexts)} sources planned, {batch.run!r}"
        return f"<{type(self).__name__} {self.job_id!r}, run {self.run_id}: {state}>"

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
        chosen: dict[str, Any] = {
            "run_id": args.get("JOB_RUN_ID"), "spark": spark, "mode": mode.name, "from_run": mode.from_run,
            "to_run": mode.to_run, "namespace": args.get("BOOKMARK_CONTEXT"),
        }  # fmt: skip
        chosen.update(options)
        return cls(watermarks, args["JOB_NAME"], **chosen)

    # --- the run --------------------------------------------------------------------------------

    def init(self, job_name: str, args: Mapping[str, Any] | None = None) -> Self:
        """Begin the run without a ``with`` statement, as scripts for AWS Glue do; `commit` ends it.

        A job that is not committed saves nothing: an ERROR says so when the job object is gone, or Python
        ends, and the lease is released, so that a retry need not wait. A signal such as SIGTERM ends
        Python without that, unless the script turns it into an exit.

        Parameters
        ----------
        job_name
            The job's name.
        args
            Resolved job arguments, as of `from_args`. ``job_bookmark_option`` stands for the mode with its
            range. What they leave open is that of the constructor.

        Raises
        ------
        RunInProgressError
            Another run has the job; nothing was read.
        PlanConflictError
            The run has begun already.
        InvalidValueError
            The clock has no time zone.
        """
        if self._batch is not None:
            raise PlanConflictError(self.job_id, "the run has begun already. Make a new job for another run.")
        args = args or {}
        self.mode = self.mode.changed_by(args)
        self.run_id = args.get("JOB_RUN_ID") or self.run_id
        self.job_id = name_in_table(job_name, args.get("BOOKMARK_CONTEXT") or self._namespace)
        # A script that calls `commit` means it, as in Glue: a version is made also where no source was read.
        self._batch = self._begin(may_be_empty=True)
        if self.mode.saves:
            self._batch.end.watch(self)
        return self

    def __enter__(self) -> Self:
        """Begin the run and keep its lease. RunInProgressError, before anything is read, if another one has it."""
        if self._batch is None:
            self._batch = self._begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Commit on a clean exit if any source was asked for; otherwise abort and keep the plan."""
        self._begun.leave(kind, error, trace, self.metrics)

    def _begin(self, *, may_be_empty: bool = False) -> Batch:
        check_clock(self._clock)
        # Glue is asked for the ends of a range only, and only for those that nobody else has placed: it is a
        # generator, which sends nothing before it is looked at.
        in_glue = runs_on_glue(split_name(self.job_id)[0], (self.mode.from_run, self.mode.to_run))
        job_runs = chain(self._job_runs, in_glue)
        run = begin(self._watermarks, self.job_id, self.run_id, self.mode, self._lease, job_runs)
        run.__enter__()
        end = EndOfRun(run, self._reporters, self._clock)
        publication = Publication(run, self.spark, self._s3_client, self._watermarks.clock)
        try:
            # Before anything is planned: else a batch that is committed could wait for its readers for ever.
            publication.finish_earlier()
        except BaseException as error:
            run.__exit__(type(error), error, None)
            raise
        return Batch(
            run, end, publication, s3_client=self._s3_client,
            committed_at=partial(self._watermarks.lookups.committed_at, self.job_id), may_be_empty=may_be_empty,
            writes_itself=self.writes_itself,
        )  # fmt: skip

    @property
    def _begun(self) -> Batch:
        if self._batch is None:
            raise PlanConflictError(
                self.job_id, "the run has not begun. Use the job in a `with` statement, or call init."
            )
        return self._batch

    @property
    def run(self) -> Run | UnsavedRun:
        """The run of this job; PlanConflictError before it has begun."""
        return self._begun.run

    @property
    def has_more(self) -> bool:
        """Whether `max_rows` of a source left rows for the next batch; of files see `FileDelta.has_more`."""
        return self._begun.has_more

    def freeze(self) -> FrozenBatch:
        """Store the plan of all sources planned so far, and return the batch: its id and its time. Again is no change.

        The call says that the script writes these rows itself. Without it, a run that commits a source of which no sink
        got rows logs a WARNING, ``event=nothing_written``.

        Raises
        ------
        PlanConflictError
            No source is planned. Sources that are asked for later are refused with it as well.
        """
        self._begun.writes_itself = True
        return self._begun.freeze()

    def commit(self) -> str:
        """Commit all planned sources in one write; see `Run.commit`. Called by a clean exit. Again is no change.

        Returns
        -------
        str
            ``"done"``, ``"already"``, or ``"unsaved"`` for a run that is paused or disabled.

        Raises
        ------
        RunClosedError
            The run was aborted.
        """
        return self._begun.commit(self.metrics)

    def abort(self) -> None:
        """Let go of the job without saving anything; a frozen plan stays for the next run. Safe to call again."""
        self._begun.abort()

    # --- sources and sinks ----------------------------------------------------------------------

    @overload
    def rows_since(
        self, source: RowsOf[Rows], cursor_column: str | Sequence[str] | None = None, **options: Unpack[RowsSinceGiven]
    ) -> Rows: ...
    @overload
    def rows_since(
        self, source: DataFrame, cursor_column: str | Sequence[str] | None = None, **options: Unpack[RowsSinceGiven]
    ) -> DataFrame: ...
    @overload
    def rows_since(
        self, source: Frame, cursor_column: str | Sequence[str] | None = None, **options: Unpack[RowsSinceGiven]
    ) -> Frame: ...
    @overload  # Where pandas and pyarrow have no types, the one before takes anything.
    def rows_since(  # type: ignore[overload-cannot-match]
        self, source: Any, cursor_column: str | Sequence[str] | None = None, **options: Unpack[RowsSinceGiven]
    ) -> Any: ...
    def rows_since(
        self,
        source: DataFrame | RowSource | TableSource | Any,
        cursor_column: str | Sequence[str] | None = None,
        *,
        transformation_ctx: str | None = "rows",
        on_schema_change: OnSchemaChange | None = None,
        **options: Unpack[RowsSinceOptions],
    ) -> Any:
        """Return the rows of a source that are new by their cursor column, filtered lazily.

        Parameters
        ----------
        source
            A DataFrame, Glue's DynamicFrame, or a source such as `DataFrameRows`. Of a DataFrame of
            pandas, or of `PandasRows`, the rows are returned as pandas, and of a table of pyarrow as such a table.
            Spark is not needed for these. Where the cursor is a date or a time without zone, a first run needs the
            zone of the source, as in ``DataFrameRows(df, zone="Europe/London")``, or is a CursorError; a run that
            reads everything, or a range of runs, needs none. A `DeltaTable` or an `IcebergTable` is read by its
            versions: see `TableOptions` for its options, and `plan_span` for its errors.
        cursor_column
            One column, or several that compare from the first on, such as ``["last_modified", "id"]``. Only a table
            that is read by its versions has none.
        on_schema_change
            What becomes of columns that are not those of earlier batches: ``add``, ``warn``, ``raise`` or
            ``take``, as for `FileDelta.read`; types are kept as those of Parquet files. Their columns are stored
            with the watermark. None reads what the source has, and stores nothing of it. Ends the run with a
            SchemaChangedError where the policy lets a change not pass, before anything is written.
        **options
            `delay`, `lookback`, `high`, `settled`, `start_from`, `nulls`, `descending`, `strings`,
            `write_disposition`, `on_behind`, `on_late`, `on_changed`, `max_rows`: see `RowOptions`. `plan_window`
            lists the errors. A replay takes the options of its plan; a `write_disposition` that does not fit them is
            a CursorError, and so are `high` and `settled` for a range of runs.
        """
        # Here, as are others: a job that only takes files needs none of it, and each module takes time to import.
        from scripts.helpers.batch.rows import rows_since

        chosen = {**options, "on_schema_change": on_schema_change}
        return rows_since(self._begun, source, cursor_column, transformation_ctx, chosen)

    def verify(
        self,
        source: DataFrame | RowSource | Any,
        target: str | PathLike[str] | DataFrame | RowSource | Any,
        *,
        transformation_ctx: str = "rows",
        format: str = "parquet",
        columns: Sequence[str] | None = None,
        exact: bool | None = None,
        **choice: Any,
    ) -> Verification:
        """Compare what the source has below the committed watermark with what is at the target.

        The range is cut into intervals of the cursor; the newest are compared, and some of the others by chance. Rows
        are compared as wholes, by hashes. The run need not have begun, and nothing is stored.

        Parameters
        ----------
        source
            As that of `rows_since`.
        target
            A path, for ``iceberg`` a name of a table, or rows such as a DataFrame or a `JdbcTable`.
        format
            Of a path: ``parquet``, ``delta``, ``iceberg``, and with Spark any that it reads.
        columns
            Those to compare, such as the key and the cursor. None for all that both sides have.
        exact
            Whether rows that only the target has are a difference. None: for numbers and texts. Of times they may be
            older versions of rows that were updated, or rows that were deleted.
        **choice
            `interval`, `recent`, `sample`, `everything`, `seed`: see `rows.verification.Choice`.

        Returns
        -------
        Verification
            A list of the intervals that shows itself as a table, with `is_equal` and `differing`.

        Raises
        ------
        NothingThereError, InvalidValueError
            No rows were read yet, or the two sides or options cannot be compared.
        SourceReplacedError, CursorError, TargetError
            The source is another one, or one side cannot be read.
        UnpublishedError
            A committed batch is not at its target yet.
        """
        # Here, as a job that only reads and writes needs none of it.
        from scripts.helpers.batch.verifying import verify
        from scripts.helpers.rows.verification import Choice

        return verify(
            self._watermarks, self.job_id, transformation_ctx, source, target, choice=Choice(**choice), format=format,
            columns=columns, exact=exact, spark=self.spark, s3_client=self._s3_client,
        )  # fmt: skip

    def new_files(
        self,
        source: str | PathLike[str],
        *,
        transformation_ctx: str | None = "files",
        listing: ListingSource | None = None,
        events: EventSource | None = None,
        metadata: JournalSource | None = None,
        relist: timedelta | None = None,
        on_changed: OnChanged | None = "raise",
        after_commit: Literal["archive", "delete"] | None = None,
        archive_to: str | None = None,
        min_age: timedelta = timedelta(0),
        **options: Unpack[FileOptionsGiven],
    ) -> FileDelta:
        """Return the files under a prefix or directory that are new.

        Parameters
        ----------
        listing
            Another way to see the objects, such as `S3Inventory`.
        events
            Notifications of new objects, such as `S3EventQueue`: only objects they tell of are
            looked at. They are acknowledged once the batch is committed. Events can be lost: give
            `relist`, or run the job without them from time to time. Without a `transformation_ctx`, in a
            disabled job and for a range of runs the source is listed all the same. A paused job lets
            its messages go at the end, if the source of events has `extend`.
        metadata
            A journal of changes, such as `S3MetadataJournal`: S3 is asked about the objects that it names, and nothing
            is listed. How far it was read is part of the state. Where it does not say all, since it is read for the
            first time, was made anew, or its records have expired, the source is listed, or read from `listing`, with
            a WARNING. Ranges of runs and disabled jobs list all the same.
        relist
            With events or metadata: the source is listed nevertheless where it has not been, with nothing left over,
            for so long, and in a first run. Such a run leaves the messages to the next one, for which their objects are
            known.
        on_changed
            A planned file that was overwritten or deleted before the commit, unless `read_pandas` has read all, is a
            ChangedObjectError that names it, and nothing is committed. The replay then raises the same at once, or with
            ``skip`` leaves that file out: its new content is new in the next batch. ``skip`` is refused
            where that could not be kept; see `unchanged.check_on_changed`. None looks at nothing
            again: for sources whose files never change, or that the job itself moves away.
        after_commit, archive_to, min_age
            What becomes of files that are taken; see `AfterCommit`.
        **options
            See `FileOptions`. `FileBookmark` lists the errors. Limits of a batch count in a
            disabled job, and without a `transformation_ctx`, as well: what they leave out is warned of,
            and no batch follows that would take it.
        """
        asked = self._files(source, transformation_ctx, on_changed, options)
        from scripts.helpers.batch.after_commit import AfterCommit
        from scripts.helpers.batch.files import new_files

        return new_files(asked, AfterCommit(after_commit, archive_to, min_age), listing, events, metadata, relist)

    def new_files_on_spark(
        self,
        source: str | PathLike[str],
        *,
        transformation_ctx: str | None = "files",
        on_changed: Literal["raise"] | None = "raise",
        **options: Unpack[FileOptionsGiven],
    ) -> SparkFileDelta:
        """Return the files that are new, found by the executors; see `FileBookmark.new_files_on_spark`. Needs `spark`.

        Parameters
        ----------
        on_changed
            As that of `new_files`, without ``skip``: the executors look at all planned files again
            before the commit, and first of all in a replay.
        """
        asked = self._files(source, transformation_ctx, on_changed, options)
        from scripts.helpers.batch.files import new_files_on_spark

        return new_files_on_spark(asked, self.spark)

    def new_partitions(
        self,
        source: str | PathLike[str],
        columns: str | Sequence[str],
        *,
        whole: bool = False,
        types: Mapping[str, str] | None = None,
        nulls: Literal["raise", "take", "skip"] = "raise",
        start_from: Any = None,
        max_partitions: int | None = None,
        transformation_ctx: str | None = "partitions",
        on_changed: OnChanged | None = "raise",
        **options: Unpack[PartitionOptionsGiven],
    ) -> PartitionDelta:
        """Return the partitions in which something is new, late files in old partitions included.

        Files are known by identity, as those of `new_files`, and grouped by their ``name=value`` folders. The state is
        that of `new_files`: a job may change from one to the other.

        Parameters
        ----------
        source
            A prefix or directory, with a slash in it. That of a table in a catalogue is its location.
        columns
            The partition columns that name a partition, one or several, outermost first.
        whole
            False reads the new files. True reads all files of each partition in which a file is new, changed or gone,
            for targets that replace a partition at a time.
        types
            Of columns that are no texts: ``int``, ``bigint`` or ``date``. They order partitions, and are the types of
            the columns in what is read.
        nulls
            A partition of NULL: ``raise`` a SourceError, ``take`` it, or ``skip`` it with a WARNING.
        start_from
            The partition that a first run begins with, as a value or a list of them. What lies in smaller ones then is
            remembered and not taken; what comes there later is. ``"now"`` and an aware datetime as in `new_files`.
        max_partitions
            Most partitions of one batch, smallest first; `PartitionDelta.has_more` tells that some are left.
        on_changed
            As in `new_files`; ``skip`` only without `whole`.
        **options
            See `FileOptions`. A partition that is read whole waits while `delay` or `ready_marker` keeps a file of it
            back. ``max_files`` and ``max_bytes`` are refused, with `whole` also what would leave a part of it out.

        Raises
        ------
        SourceError
            A file is in no such folder, or a folder holds no value of its type.
        InvalidValueError
            Options that do not go together; texts whose order nobody can tell; a range of runs with `whole`.
        PlanConflictError
            The open plan was made by another call.
        """
        asked = self._files(source, transformation_ctx, on_changed, options)
        from scripts.helpers.batch.partitions import new_partitions

        return new_partitions(
            asked, columns, types, whole=whole, nulls=nulls, start_from=start_from, max_partitions=max_partitions
        )

    def latest_partition(
        self,
        source: str | PathLike[str],
        columns: str | Sequence[str],
        *,
        types: Mapping[str, str] | None = None,
        on_same: OnSame = "take",
        transformation_ctx: str | None = "partition",
        on_changed: Literal["raise"] | None = "raise",
        **options: Unpack[PartitionOptionsGiven],
    ) -> PartitionDelta:
        """Return the largest partition, for tables whose partitions are snapshots of everything.

        Its files are in the plan, so a replay reads the same ones, also when a larger partition is there by then. One
        of NULL is never the largest. What was read is remembered by its value and a hash of its files.

        Parameters
        ----------
        source, columns, types
            As in `new_partitions`.
        on_same
            The largest partition was taken before, and has the same files: ``take`` it again, ``skip`` it and return an
            empty delta, or ``raise`` an error. One that has other files by now is read in any case.
        **options
            Of `FileOptions`: ``include``, ``exclude``, ``min_size``, ``delay``, ``ready_marker``, ``versioned``,
            ``request_payer``, ``workers`` and ``on_archived``. A partition of which `delay` or `ready_marker` keeps a
            file back is passed over, with a WARNING.

        Raises
        ------
        SourceError
            See `on_same`. Or the largest partition is smaller than the one that was taken before, or is gone.
        SourceError, InvalidValueError, PlanConflictError
            As `new_partitions`.
        """
        asked = self._files(source, transformation_ctx, on_changed, options)
        from scripts.helpers.batch.partitions import latest_partition

        return latest_partition(asked, columns, types, on_same)

    def relationalize(
        self, df: DataFrame | Any, root: str = "roottable", *, transformation_ctx: str | None = "relationalize"
    ) -> dict[str, DataFrame]:
        """Return nested rows as related tables, by name: one of the rows, and one for each array or map in them.

        Names are those of Glue's Relationalize. The ids that join the tables go on over runs, and a
        replay gives the same ones to the same rows; see `Relations`, also for its errors.

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
            See `IdBlock`.
        """
        from scripts.helpers.batch.rows import relationalize

        return relationalize(self._begun, df, root, transformation_ctx)

    def write(
        self,
        df: DataFrame | pd.DataFrame,
        target: str | PathLike[str] | Sink,
        *,
        format: str = "parquet",
        partition_by: Sequence[str] = (),
        batch_folders: bool | None = None,
        staging: str | None = None,
        beside_others: bool = False,
        batch_column: str | None = None,
        **options: Any,
    ) -> int:
        """Stage one batch for a target, whose readers see it once the run has committed; return its rows.

        Each attempt writes to a hidden folder of its own beside `target`. The commit says which attempt counts, and its
        files are then renamed, or copied on S3, into `target`, under names that are made of the batch. So a replay
        leaves the same rows there, whatever an earlier attempt still does. See `FileSink` for what readers see when.

        Rows are counted while they are written (Spark's Observation), without a second pass. Parquet
        timestamps are written as TIMESTAMP_MICROS, which row groups keep statistics of. A DataFrame of pandas, a table
        of pyarrow and an `ArrowStream`, which is read batch by batch, are written as Parquet; see `write_arrow`.

        A run that is paused or disabled has a batch id made of the mode, the run id and a hash of the
        job: a retry under the same run id replaces it, and what earlier runs wrote stays beside it.

        Parameters
        ----------
        target
            A folder, or a `Sink`, which has all the options below itself. For ``iceberg`` a name,
            ``catalog.namespace.table``.
        format
            Of Spark's writer; or ``delta`` or ``iceberg``, for which one transaction of the table takes the place of
            the renaming. See `DeltaSink` and `IcebergSink`, which take rows of Spark, pandas and pyarrow.
        partition_by
            Columns whose values become folders, such as ``import_date=2026-11-23/``, or partitions of a new table.
        batch_folders
            Whether each batch has a folder ``batch_id=…/`` below `target`, which readers see as a column. None: as it
            is there already, and without for a new folder.
        staging
            Where attempts write, in the same bucket or file system; by default ``_<name>.staging/`` beside `target`.
        beside_others
            Whether `target` may hold files that no job of this package wrote.
        batch_column
            For ``delta`` and ``iceberg``: a column that holds the batch id of each row, so that a decision with
            ``retract=True`` can delete published rows.
        **options
            Of Spark's writer, or of `pyarrow.parquet.write_table`.

        Raises
        ------
        TargetError
            A folder that is taken, laid out in another way, below a source of the batch, or cannot be written to; a
            table whose columns the rows do not fit.
        InvalidValueError
            Rows with an empty text or NaN in a column of `partition_by`, where readers would get NULL.
        MissingConnectorError
            The package or jar for the format is not there.
        PlanConflictError
            The batch was written to that target already; nothing is written.
        RunClosedError
            The run was committed or aborted.
        FencedError
            Another run took over; nothing is written.
        """
        layout = Layout(format, partition_by, batch_folders, staging, beside_others, batch_column, options)
        return self._write(df, target, layout)

    def merge(
        self,
        df: DataFrame | pd.DataFrame,
        target: Mergeable,
        *,
        keys: str | Sequence[str],
        sequence_by: str | Sequence[str],
        deletes: Any = None,
        missing: DataFrame | pd.DataFrame | None = None,
        history: bool | Versions = False,
    ) -> int:
        """Stage one batch whose rows replace those of the same key once the run has committed; return how many count.

        The target depends on nothing but the set of rows that were ever merged: rows that come late, again, or in
        another order leave the same. So lookback, rewinds and backfills need no care. See `docs/merge.md`.

        Parameters
        ----------
        target
            A sink that merges: a `DatabaseSink`, a `DeltaSink` or an `IcebergSink`.
        keys
            The columns that name a row.
        sequence_by
            The columns that say which row of a key is newer, compared from the first on.
        deletes
            Which rows are deletes. For Spark a condition in SQL, such as ``"status = 'deleted'"``, or a Column; for
            pandas the name of a column or a function of the frame.
        missing
            More deletes: keys whose rows the source has no longer, as `missing_keys` finds them, with a value in the
            columns of `sequence_by` that says when.
        history
            Keep every version of a row with ``valid_from`` and ``valid_to``, instead of the newest only. A `Versions`
            names the two columns otherwise.

        Raises
        ------
        KeyColumnError, InvalidValueError
            Rows that nothing orders; see `DatabaseSink.stage`. Nothing is written.
        InvalidValueError
            Columns that the rows do not have, or options that do not go together.
        TargetError, PlanConflictError, RunClosedError, FencedError
            As `write`.
        """
        from scripts.helpers.sinks.given_frames import events_of
        from scripts.helpers.sinks.merging import Merge

        rules = Merge.of(keys, sequence_by, history)
        if not hasattr(target, "merging"):
            raise InvalidValueError(
                f"A {type(target).__name__} is not a target that rows can be merged into. Give a DatabaseSink, "
                "DeltaSink or IcebergSink, after the rows."
            )
        return self._write(events_of(df, rules, deletes, missing), target.merging(rules), Layout())

    def _files(
        self, given: str | PathLike[str], context: str | None, on_changed: OnChanged | None, options: Mapping[str, Any]
    ) -> FileSource:
        """Return a source of files. Before any module of them is imported, which would end with an ImportError."""
        source = source_text(given)
        if find_spec("pyarrow") is None:
            raise SourceError(source, "files need pyarrow. Install it: pip install pyarrow.")
        from scripts.helpers.batch.files import FileSource

        return FileSource(self._begun, source, context, on_changed, options)

    def _write(self, df: Any, target: str | PathLike[str] | Sink, layout: Layout) -> int:
        from scripts.helpers.batch.writing import write

        output = write(self._begun, df, target, layout)
        rows, size = (output.rows or 0, output.bytes) if output else (0, 0)
        add_written(self.metrics, rows, size)
        return rows
