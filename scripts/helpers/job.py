"""`IncrementalJob`: plan every source, read and write, and commit all sources at once."""

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

    Entering the ``with`` statement begins the run. Each `rows_since` or `new_files` plans one source under
    the name of its `transformation_ctx`. The first `write`, `merge` or `freeze` freezes the plan of all
    sources in one write, and gives the batch its id. From then on every attempt at the batch, in any
    process, takes exactly that plan. A clean exit commits all sources together; an error aborts the run,
    and the next run replays the plan.

    Rows that `write` and `merge` write under the batch's id reach the target once, whatever crashes. A sink of
    your own must be idempotent per batch id; call `freeze` for the id before you write to it.

    A source whose `transformation_ctx` is None or empty is read as a whole and not tracked.

    Parameters
    ----------
    watermarks
        The table that stores the job's watermarks and plans.
    job_id, run_id
        The job's name may also be passed to `init`. By default the run gets a new id in Glue's format. A
        scheduler's retry should pass the same run id.
    mode, from_run, to_run
        ``enable`` takes what is new and saves it. ``pause`` takes what is new, or what the runs after
        `from_run` up to and including `to_run` took, and saves nothing. ``disable`` takes everything, saves
        nothing, and never reads the table. Paused and disabled runs take no lease. See `modes.Mode`.
    namespace
        Part of the job's name, ``job@@namespace``. Runs in different namespaces share nothing, and may run at once.
    job_runs
        What Glue's ``get_job_runs`` returns: start times of `from_run` and `to_run`, if these runs never committed. Not
        needed for runs that `JobRuns` started, which are in the table, or on Glue, where the job asks Glue itself.
    spark
        The Spark session; may be None without Spark. One older than Spark 3.3 raises an UnsupportedVersionError.
    lease
        How long other runs are refused, one day at most; renewed until the run ends.
    clock
        A function that returns the time as an aware datetime, the upper bound for time cursors whose source has no
        clock of its own. Without a zone, the run raises an InvalidValueError when it begins.
    reporters
        Objects that receive a report when the run ends: `EmbeddedMetrics()`, `OpenTelemetryMetrics()`, or your own.

    Attributes
    ----------
    metrics : dict
        Counts of what was written, and after the commit also of what was read. Values that you add are saved, too.
    writes_itself : bool
        Set to True (`freeze` does) if the script writes the rows itself, to avoid the WARNING that no sink got them.

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
            ``JOB_NAME`` and, if present, ``JOB_RUN_ID``, ``job_bookmark_option``, ``job_bookmark_from``,
            ``job_bookmark_to`` and ``BOOKMARK_CONTEXT``, the namespace. Without ``job_bookmark_option`` the
            job saves. Glue's parser always returns one: ``job-bookmark-disable``, unless the job was started
            with another.
        **options
            Options of the constructor, which override `args`.
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

        A job that is not committed saves nothing. When the job object is deleted, or Python ends, an ERROR
        reports this and the lease is released, so that a retry need not wait. A signal such as SIGTERM ends
        Python at once, and the lease stays, unless the script turns the signal into an exit.

        Parameters
        ----------
        job_name
            The job's name.
        args
            Resolved job arguments, as for `from_args`. ``job_bookmark_option`` replaces `mode`, `from_run` and
            `to_run` of the constructor. Other settings that the arguments lack keep the constructor's values.

        Raises
        ------
        RunInProgressError
            Another run owns the job; nothing was read.
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
        # As in Glue, `commit` makes a version even if the script read no source.
        self._batch = self._begin(may_be_empty=True)
        if self.mode.saves:
            self._batch.end.watch(self)
        return self

    def __enter__(self) -> Self:
        """Begin the run and keep its lease. Raise RunInProgressError before any read if another run owns the job."""
        if self._batch is None:
            self._batch = self._begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Without an error, commit if any source was planned or read. Otherwise abort; the next run gets the plan."""
        self._begun.leave(kind, error, trace, self.metrics)

    def _begin(self, *, may_be_empty: bool = False) -> Batch:
        check_clock(self._clock)
        # Glue is asked only about the first and last run of a range, and only if `self._job_runs` lacks them:
        # `runs_on_glue` is a generator, which sends no request before it is iterated.
        in_glue = runs_on_glue(split_name(self.job_id)[0], (self.mode.from_run, self.mode.to_run))
        job_runs = chain(self._job_runs, in_glue)
        run = begin(self._watermarks, self.job_id, self.run_id, self.mode, self._lease, job_runs)
        run.__enter__()
        end = EndOfRun(run, self._reporters, self._clock)
        publication = Publication(run, self.spark, self._s3_client, self._watermarks.clock)
        try:
            # First publish batches whose run died after its commit: perhaps no later run writes to their targets.
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
        """The run of this job. Raises PlanConflictError before it has begun."""
        return self._begun.run

    @property
    def has_more(self) -> bool:
        """Whether a source left rows for the next batch, because of `max_rows`. For files, see `FileDelta.has_more`."""
        return self._begun.has_more

    def freeze(self) -> FrozenBatch:
        """Store the plan of all sources so far, and return the batch: its id and its time. May be called again.

        The call declares that the script writes the rows itself. Without the call, the run logs a WARNING,
        ``event=nothing_written``, if it commits a source without having written its rows to a sink.

        Raises
        ------
        PlanConflictError
            No source is planned. Planning another source after `freeze` raises it as well.
        """
        self._begun.writes_itself = True
        return self._begun.freeze()

    def commit(self) -> str:
        """Commit all planned sources in one write; see `Run.commit`. A clean exit calls this. May be called again.

        Returns
        -------
        str
            ``"done"``, ``"already"`` if another attempt committed this plan, or ``"unsaved"`` if paused or disabled.

        Raises
        ------
        PlanConflictError
            The run was aborted.
        UnpublishedError
            The batch is committed, but is not at its target yet. Call this again, or run the job, to publish it.
        """
        return self._begun.commit(self.metrics)

    def abort(self) -> None:
        """Release the job without saving anything; a frozen plan stays for the next run. May be called again."""
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
    @overload  # Without type hints of pandas and pyarrow, `Frame` above is any type, so this overload is unreachable.
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
        """Return the rows of a source that are new by their cursor column, filtered lazily in Spark.

        Parameters
        ----------
        source
            A DataFrame, Glue's DynamicFrame, or a source such as `DataFrameRows`. A pandas DataFrame or `PandasRows`
            returns pandas rows, and a pyarrow table a pyarrow table; neither needs Spark. If the cursor is a date or
            a time without zone, a first run needs the zone of the source, as in
            ``DataFrameRows(df, zone="Europe/London")``, and raises a CursorError without it; a run that reads
            everything, or reads past runs again, needs none. A `DeltaTable` or an `IcebergTable` is read by its
            versions: see `TableOptions` for its options, and `plan_span` for its errors.
        cursor_column
            One column, or several that are compared in order, such as ``["last_modified", "id"]``. None only for a
            table that is read by its versions.
        on_schema_change
            What to do if the columns differ from those of earlier batches: ``add``, ``warn``, ``raise`` or ``take``,
            as for `FileDelta.read`. ``add`` and ``take`` allow a wider type; only ``take`` allows one that is neither
            wider nor narrower. The columns are stored with the watermark. None reads the source's columns and stores
            nothing. A change that is not allowed raises a SchemaChangedError before anything is written.
        **options
            `delay`, `lookback`, `high`, `settled`, `start_from`, `nulls`, `descending`, `strings`,
            `write_disposition`, `on_behind`, `on_late`, `on_changed`, `max_rows`: see `RowOptions`. `plan_window`
            lists the errors. A replay uses the options of its plan. A `write_disposition` that does not fit the plan
            raises a CursorError, as do `high` and `settled` if past runs are read again.
        """
        # Imported here because a job that reads only files does not need the module, and each import takes time.
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
        """Compare the source's rows below the committed watermark with the rows at the target.

        The rows are divided into intervals of the cursor. The newest intervals and a random sample of the older ones
        are compared, by hashes of whole rows. The run need not have begun, and nothing is stored.

        Parameters
        ----------
        source
            As for `rows_since`.
        target
            A path, for ``iceberg`` the name of a table, or rows such as a DataFrame or a `JdbcTable`.
        format
            The format of a path: ``parquet``, ``delta``, ``iceberg``, and with Spark any that Spark reads.
        columns
            The columns to compare, such as the key and the cursor. None compares all columns that both sides have.
        exact
            Whether rows that only the target has count as a difference. None: only if the cursor is a number or a text,
            because with a time they may be older versions of updated rows, or rows that were deleted.
        **choice
            `interval`, `recent`, `sample`, `everything`, `seed`: see `rows.verification.Choice`.

        Returns
        -------
        Verification
            A list of the intervals that prints as a table, with `is_equal` and `differing`.

        Raises
        ------
        NothingThereError, InvalidValueError
            No rows were read yet, or the sides cannot be compared with these options.
        SourceLostError, CursorError, TargetError
            The source is not the one that the context remembers, or one side cannot be read.
        UnpublishedError
            A committed batch is not at its target yet.
        """
        # Imported here because only `verify` needs the module, and each import takes time.
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
            Another way to list the objects, such as `S3Inventory`.
        events
            Notifications of new objects, such as `S3EventQueue`: only objects that they name are checked.
            They are acknowledged once the batch is committed. Events can be lost: pass `relist`, or run the
            job without them from time to time. Without a `transformation_ctx`, in a disabled job and for a
            range of past runs (`from_run` to `to_run`), the source is listed anyway. A paused job returns its
            messages to the queue at the end, if the source of events has `extend`.
        metadata
            A journal of changes, such as `S3MetadataJournal`: S3 is asked about the objects that it names, and nothing
            is listed. The state stores how far the journal was read. If the journal is not complete, because it is read
            for the first time, was created again, or its records have expired, a WARNING is logged, and the source is
            listed, by `listing` if given. For ranges of runs and disabled jobs the source is listed anyway.
        relist
            With events or metadata: list the source in a first run, and when this time has passed since the last
            listing that left no file for a later batch. A run that lists the source leaves its messages for the next.
        on_changed
            ``raise``: if a planned file was overwritten or deleted before the commit, raise a ChangedObjectError that
            names it, unless `read_pandas` had read the planned content of all files. Nothing is committed; the next run
            has the same plan, and raises before it writes. ``skip``: the same error, but the next run leaves that file
            out, and a later batch takes its new content. ``skip`` is refused if batches might miss it; see
            `unchanged.check_on_changed`. None: no check, for files that never change or that the job itself moves away.
        after_commit, archive_to, min_age
            What to do with files that were taken; see `AfterCommit`.
        **options
            See `FileOptions`. `FileBookmark` lists the errors. The limits of a batch also apply in a
            disabled job and without a `transformation_ctx`: a WARNING reports the files that they leave
            out, and no later batch takes them.
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
        """Return the new files, found by Spark's executors; see `FileBookmark.new_files_on_spark`. Requires `spark`.

        Parameters
        ----------
        on_changed
            As for `new_files`, but without ``skip``: the executors check all planned files again before the
            commit, and a replay checks them first.
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
        """Return the partitions with new files, including old partitions with late files.

        Files are identified as by `new_files`, and grouped by their ``name=value`` folders. The state is that of
        `new_files`, so a job may change from one to the other.

        Parameters
        ----------
        source
            A prefix or directory, with a slash in it. For a table in a catalogue, its location.
        columns
            The partition columns that identify a partition, one or several, outermost first.
        whole
            False reads the new files. True reads all files of each partition in which a file is new, changed or gone,
            for targets that replace a partition at a time.
        types
            The types of columns that are not texts: ``int``, ``bigint`` or ``date``. They decide the order of
            partitions, and the rows that are read have these columns in these types.
        nulls
            How to treat a partition of NULL: ``raise`` a SourceError, ``take`` it, or ``skip`` it with a WARNING.
        start_from
            The partition at which a first run starts, as one value or a list. Files that this run finds in partitions
            of smaller values are ignored; later files are taken. ``"now"`` and an aware datetime: as in `new_files`.
        max_partitions
            Maximum partitions of one batch, smallest first; `PartitionDelta.has_more` is True if some are left.
        on_changed
            As in `new_files`; ``skip`` only without `whole`.
        **options
            See `FileOptions`; but ``max_files`` and ``max_bytes`` are refused. With `whole`, a partition waits while
            `delay` or `ready_marker` holds back one of its files, and options that leave out files are refused, too.

        Raises
        ------
        SourceError
            A file is not in a folder of each column, or a folder's value is not of the column's type.
        InvalidValueError
            Options that exclude each other; texts whose order is unknown; `whole` in a job that has a `from_run`.
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
        """Return the partition with the largest value, for tables in which each partition is a snapshot of everything.

        Its files are in the plan, so a replay reads the same files, even if a larger partition exists by then. A
        partition of NULL is never the largest. The state stores the partition's value and a hash of its files.

        Parameters
        ----------
        source, columns, types
            As in `new_partitions`.
        on_same
            What to do if the largest partition was taken before and has the same files: ``take`` it again, ``skip`` it
            and return an empty delta, or ``raise`` an error. A partition whose files have changed is read.
        **options
            Of `FileOptions`: ``include``, ``exclude``, ``min_size``, ``delay``, ``ready_marker``, ``versioned``,
            ``request_payer``, ``workers`` and ``on_archived``. A partition is skipped, with a WARNING, while `delay`
            or `ready_marker` holds back one of its files.

        Raises
        ------
        SourceError
            See `on_same`. Also if the largest partition is smaller than the one taken before, or is gone.
        SourceError, InvalidValueError, PlanConflictError
            As for `new_partitions`.
        """
        asked = self._files(source, transformation_ctx, on_changed, options)
        from scripts.helpers.batch.partitions import latest_partition

        return latest_partition(asked, columns, types, on_same)

    def relationalize(
        self, df: DataFrame | Any, root: str = "roottable", *, transformation_ctx: str | None = "relationalize"
    ) -> dict[str, DataFrame]:
        """Return nested rows as related tables, by name: one for the rows, and one for each array or map in them.

        The names are those of Glue's Relationalize. The ids that join the tables continue from run to
        run, and a replay gives the same rows the same ids; see `Relations`, also for its errors.

        Parameters
        ----------
        df
            The rows of this batch, from `rows_since` or `new_files`: a DataFrame or Glue's DynamicFrame.
        root
            Name of the table of the rows, and prefix of the other tables' names.
        transformation_ctx
            The context under which the bookmark stores the next id; it must differ from the source's. If None
            or empty, nothing is stored, and the ids are negative and differ at each call.

        Raises
        ------
        PlanConflictError
            The inherited plan has no ids for this context.
        SourceError, InvalidValueError
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
        """Stage one batch for a target, whose readers see it once the run has committed. Return its number of rows.

        Each attempt writes to its own hidden folder next to `target`. The commit decides which attempt counts, and its
        files are then renamed (on S3, copied) into `target`, under names made from the batch id. So a replay leaves the
        same rows in the target, even if an earlier attempt is still writing. `FileSink` says when readers see the rows.

        Rows are counted while they are written (Spark's Observation), without a second pass. Parquet
        timestamps are written as TIMESTAMP_MICROS, for which row groups have statistics. A pandas DataFrame, a pyarrow
        table and an `ArrowStream`, which is read batch by batch, are written as Parquet; see `write_arrow`.

        The batch id of a paused or disabled run is made from the mode, the run id and a hash of the job: a
        retry under the same run id replaces the batch, and the batches of earlier runs stay.

        Parameters
        ----------
        target
            A folder, or a `Sink`, to which you pass the options below instead. For ``iceberg`` a name,
            ``catalog.namespace.table``.
        format
            A format of Spark's writer, or ``delta`` or ``iceberg``, for which one transaction of the table replaces
            the renaming. See `DeltaSink` and `IcebergSink`, which take rows of Spark, pandas and pyarrow.
        partition_by
            Columns whose values become folders, such as ``import_date=2026-11-23/``, or partitions of a new table.
        batch_folders
            Whether each batch has a folder ``batch_id=…/`` below `target`, which readers see as a column. None keeps
            the layout of an existing target, and means False for a new one.
        staging
            Where attempts write, in the same bucket or file system; by default ``_<name>.staging/`` next to `target`.
        beside_others
            Whether `target` may hold files that no job of this package wrote.
        batch_column
            For ``delta`` and ``iceberg``: a column that holds the batch id of each row, so that `rewind`, `reset` or
            `after_restore` with ``retract=True`` can delete published rows.
        **options
            Options of Spark's writer, or of `pyarrow.parquet.write_table`.

        Raises
        ------
        TargetError
            The folder holds other files, has another layout, is below a source of the batch, or cannot be written to;
            or the rows do not fit the columns of the table.
        InvalidValueError
            Rows have an empty text or NaN in a column of `partition_by`, where readers would get NULL.
        MissingConnectorError
            The package or jar for the format is not installed.
        PlanConflictError
            The batch was written to that target already; nothing is written.
        PlanConflictError
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
        """Stage one batch whose rows replace rows of the same key after the commit. Return the number of rows to merge.

        The target depends only on the set of rows that were ever merged: late rows, repeated rows and rows in another
        order give the same result. So lookback, rewinds and backfills are safe. See `docs/merge.md`.

        Parameters
        ----------
        target
            A sink that merges: a `DatabaseSink`, a `DeltaSink` or an `IcebergSink`.
        keys
            The columns that identify a row.
        sequence_by
            The columns that decide which row of a key is newer, compared in order.
        deletes
            Which rows are deletes. For Spark an SQL condition, such as ``"status = 'deleted'"``, or a Column; for
            pandas the name of a column or a function of the frame.
        missing
            Keys to delete because the source no longer has their rows, as `missing_keys` returns them. The values in
            the columns of `sequence_by` say which rows of the key are older than the delete.
        history
            Keep every version of a row with ``valid_from`` and ``valid_to``, instead of the newest only. A `Versions`
            sets other names for the two columns.

        Raises
        ------
        KeyColumnError, InvalidValueError
            The order of some rows is unknown; see `DatabaseSink.stage`. The rows lack a column, or options exclude each
            other. Nothing is written.
        TargetError, PlanConflictError, FencedError
            As for `write`.
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
        """Return a source of files. Raise SourceError without pyarrow, before importing a module that needs it."""
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
