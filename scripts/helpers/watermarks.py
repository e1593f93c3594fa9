"""The `Watermarks` class: the users' interface to the table. The logic is in `protocol`, `decisions` and `rows`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any

from scripts.helpers.decisions.decisions import ADOPTED_BY_HAND, Decisions, JobDecision
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.protocol.begin import DEFAULT_LEASE, MAX_LEASE, begin_run, check_max_lease, commit_at_once
from scripts.helpers.protocol.changes import Changes
from scripts.helpers.protocol.dynamodb import make_table_client
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.history import History
from scripts.helpers.protocol.items import WATERMARKS
from scripts.helpers.protocol.lookups import Lookups
from scripts.helpers.protocol.names import ANY_JOB_ID, JOB_ID_RULE, check_job_id, check_run_id, is_file
from scripts.helpers.protocol.run import Run
from scripts.helpers.protocol.store import Store
from scripts.helpers.protocol.values import encode
from scripts.helpers.protocol.watermark_item import WatermarkItem, without_bytes
from scripts.helpers.states import checked

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from scripts.helpers.decisions.doctor import Finding
    from scripts.helpers.metrics.urgency import JobTable
    from scripts.helpers.rows.cursor_ranges import ShownRange
    from scripts.helpers.rows.progress import RowsProgress, Spans

__all__ = ["DEFAULT_LEASE", "Watermarks"]

DEFAULT_TABLE, TABLE_VARIABLE = "glue-watermarks", "WATERMARKS_TABLE"
"""The default table, and the environment variable by which a whole program names another one."""

INSIDE = {"clock", "decisions", "job_id_rule", "lookups", "max_lease", "progress", "store"}
"""Attributes that only this package uses: `__dir__` leaves them out, so that editors do not suggest them."""


def table_by_default() -> str:
    """Return the default name of the table: the environment variable ``WATERMARKS_TABLE``, or ``glue-watermarks``."""
    return os.environ.get(TABLE_VARIABLE) or DEFAULT_TABLE


def utc_now() -> datetime:
    """Return the time of this machine, as an aware datetime."""
    return datetime.now(timezone.utc)


class Watermarks:
    """The watermarks of all jobs, in one DynamoDB table or in one file.

    Nothing is sent before the first call. Every read is strongly consistent, every change is one
    conditional write, and any call may be repeated after an error.

    Parameters
    ----------
    table_name
        A DynamoDB table with hash key ``jobName`` (S) and range key ``runId`` (S), or a file on this machine, such as
        ``sqlite:watermarks.db``. `create_table` creates either.
    dynamodb_client
        A boto3 client; by default one with explicit retries and time-outs.
    region_name, endpoint_url
        The default client's AWS region and URL, by default those of boto3. With a file they raise an InvalidValueError.
    clock
        A function that returns the time as an aware datetime. Leases depend on it, but correctness does not.
    job_id_rule
        Regular expression that a whole job name must match.
    retention
        How long log entries and run items are kept once a newer version exists; None: forever.
    max_lease
        The longest lease that `begin` grants, 15 minutes to 366 days; by default one day. A run that dies blocks
        its job until its lease ends, unless an operator calls `release`.

    Attributes
    ----------
    lookups, decisions, progress
        The objects that do the work of this class: look-ups, decisions of operators, and which cursor values of a
        source of rows were read. Some of their methods are of use only inside this package.

    Examples
    --------
    >>> watermarks = Watermarks(table_name="glue-watermarks")
    >>> item = watermarks.create_watermark_item(
    ...     job_id="parking", run_id="jr_1", latest_data="2023-03-16 15:45:00", rows_collected=808)
    >>> watermarks.add_watermark(item)
    >>> watermarks.get_most_recent_run_id(job_id="parking")
    'jr_1'
    >>> watermarks.get_watermark_values(job_id="parking")
    {'latest_data': '2023-03-16 15:45:00', 'rows_collected': 808}
    """

    def __init__(
        self,
        table_name: str = DEFAULT_TABLE,
        dynamodb_client: DynamoDBClient | None = None,
        *,
        region_name: str | None = None,
        endpoint_url: str | None = None,
        clock: Callable[[], datetime] = utc_now,
        job_id_rule: str = JOB_ID_RULE,
        retention: timedelta | None = None,
        max_lease: timedelta = MAX_LEASE,
    ) -> None:
        if retention is not None and retention <= timedelta(0):
            raise InvalidValueError(f"The retention is {retention.total_seconds():g} seconds; it must be above 0.")
        self.max_lease = check_max_lease(max_lease)
        if is_file(table_name):
            given = {"dynamodb_client": dynamodb_client, "region_name": region_name, "endpoint_url": endpoint_url}
            without_effect = ", ".join(name for name, value in given.items() if value is not None)
            if without_effect:
                raise InvalidValueError(
                    f"Table {table_name!r} is a file, where these have no effect: {without_effect}. Omit them, or name "
                    "a DynamoDB table."
                )
        elif dynamodb_client is None:
            dynamodb_client = make_table_client(region_name, endpoint_url)
        store = Store(table_name, dynamodb_client)
        self.lookups = Lookups(store, clock, job_id_rule)
        self.lookups.check = checked
        self._changes = Changes(self.lookups, retention)

    @cached_property
    def progress(self) -> RowsProgress:
        """Looks up which cursor values were read. Imported only here: a run that reads only files does not need it."""
        from scripts.helpers.rows.progress import RowsProgress

        return RowsProgress(self.lookups)

    @cached_property
    def decisions(self) -> Decisions:
        """The object that carries out operators' decisions, such as a rewind."""
        return Decisions(self._changes, self.progress)

    def __repr__(self) -> str:
        return f"Watermarks({self.table_name!r})"

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in INSIDE]

    @property
    def table_name(self) -> str:
        """The table's name."""
        return self.store.table_name

    @property
    def store(self) -> Store:
        """The store that reads and writes items of the table, for modules that keep items of other kinds there."""
        return self.lookups.store

    @property
    def dynamodb_client(self) -> DynamoDBClient | None:
        """The DynamoDB client, under the name that it has in the original class; None for a file."""
        client: DynamoDBClient | None = self.store.client
        return client

    @property
    def clock(self) -> Callable[[], datetime]:
        """The function that returns the time."""
        return self.lookups.clock

    @property
    def job_id_rule(self) -> str:
        """The regular expression that a whole job name must match."""
        return self.lookups.job_id_rule

    # --- begin and commit in one call, as in the original class ---------------------------------

    @staticmethod
    def create_watermark_item(job_id: str, run_id: str, key: str = WATERMARKS, **watermarks: Any) -> dict[str, Any]:
        """Return the item that `add_watermark` stores, with every value checked. Nothing is sent.

        Parameters
        ----------
        key
            The name of the values in the item. With a key other than ``watermarks``, the job gets one watermark of that
            name, a map of the values, which ``get_watermark_values(job_id, key=...)`` returns.

        Raises
        ------
        InvalidIdError, InvalidValueError, TooLargeError
            All are ValueErrors that name the key, the limit and the remedy.
        """
        check_job_id(job_id, ANY_JOB_ID)  # The table's rule for job ids is unknown here; `add_watermark` applies it.
        check_run_id(run_id)
        encode(watermarks if key == WATERMARKS else {key: watermarks})
        return {"jobName": job_id, "runId": run_id, key: watermarks}

    def add_watermark(self, watermark_item: Mapping[str, Any]) -> None:
        """Commit a run's watermarks in one call: begin, freeze and commit as one conditional write.

        Adding the same item twice makes one commit, even if other runs have committed in between.

        Raises
        ------
        InvalidValueError
            The item is not from `create_watermark_item`, or would replace the states of the job's sources.
        RunInProgressError, PlanConflictError
            Another run owns the job, or a frozen plan waits to be replayed.
        StoreUnavailableError
            The outcome may be unknown. Call again with the same item: it is committed only once.
        """
        given = watermark_item if isinstance(watermark_item, Mapping) else {}
        maps = {key: value for key, value in given.items() if key not in ("jobName", "runId")}
        if len(given) != 3 or len(maps) != 1 or not isinstance(next(iter(maps.values())), Mapping):
            raise InvalidValueError(
                "A watermark item has exactly jobName, runId and a map of watermarks. "
                "Make it with create_watermark_item."
            )
        new = maps.get(WATERMARKS, maps)
        commit_at_once(self._changes, given["jobName"], check_run_id(given["runId"]), new)

    # --- runs -----------------------------------------------------------------------------------

    def begin(self, job_id: str, run_id: str, *, lease: timedelta = DEFAULT_LEASE, take_over: bool = False) -> Run:
        """Start a run of a job. It inherits the plan that a dead run may have left.

        The run id that has the lease may begin again at once, and its older attempt is fenced. Another
        run id can begin only when the lease is over.

        Parameters
        ----------
        lease
            How long other runs are refused, `max_lease` at most. Inside a ``with`` statement a heartbeat renews it. It
            protects against wasted work only: a run that lost its lease is fenced and cannot commit anything.
        take_over
            Take the job from a run whose lease is not over, because you know that the run is dead. Meant for code that
            starts a run itself; to let the schedule's next run begin, call `release`.

        Returns
        -------
        Run
            Use it in a ``with`` statement, which aborts the run unless it was committed.

        Raises
        ------
        InvalidValueError
            The lease is not above 0, or exceeds `max_lease`; nothing was read.
        RunInProgressError
            Another run holds the lease.
        AmbiguousHistoryError
            The job has several items of the original class and no head; call `adopt` first.
        """
        return begin_run(self._changes, job_id, run_id, lease, take_over, self.max_lease)

    # --- look-ups -------------------------------------------------------------------------------

    def get_most_recent_run_id(self, job_id: str) -> str:
        """Return the id of the run whose watermarks are in force. This takes one strongly consistent read.

        Raises
        ------
        UnknownJobError, NoWatermarkError
            The table has nothing for the job, or none of its runs has committed. Both are LookupErrors.
        AmbiguousHistoryError
            The job has only items of the original class, several of them, which have no order.
        """
        return self.lookups.latest(job_id).run_id

    def get_watermark(self, job_id: str, run_id: str | None = None) -> dict[str, Any]:
        """Return a run's item: ``jobName``, ``runId``, ``watermarks`` and the time of its commit.

        Parameters
        ----------
        run_id
            By default the most recent run. Its item has the watermarks in force, including those that an
            operator set or rewound to; ``runId`` is None if an operator set them, and no run has committed yet.

        Raises
        ------
        UnknownJobError, NoWatermarkError, UnknownRunError
            All are LookupErrors.
        """
        from scripts.helpers.rows.coverage import with_ranges

        found = self.lookups.get_watermark(job_id, run_id)
        states = {name: without_bytes(with_ranges(state)) for name, state in found["watermarks"].items()}
        return WatermarkItem.of(found | {"watermarks": states})

    def get_watermark_values(self, job_id: str, run_id: str | None = None, key: str = WATERMARKS) -> Any:
        """Return only the values of a run's watermarks, with the types that they were stored with.

        Parameters
        ----------
        key
            The `key` that was passed to `create_watermark_item`.

        Raises
        ------
        UnknownWatermarkError
            The run has stored nothing under the key. It is a KeyError, as a missing name in the result raises.
        """
        return self.get_watermark(job_id, run_id)[key]

    def latest(self, job_id: str) -> Head:
        """Return the head of a job: watermarks, version, owner and open plan. Takes one strongly consistent read."""
        return self.lookups.latest(job_id)

    def history(self, job_id: str, limit: int | None = None, before: int | None = None) -> History:
        """Return the versions of a job in the order of their commits, newest first.

        Parameters
        ----------
        limit
            Return at most this many, in one request; by default all of them, page by page.
        before
            Only versions below this one: pass the last version of one page to get the next.

        Returns
        -------
        History
            A list of `LogEntry` that prints as a table and has `to_pandas`. Each entry has op,
            version, run, previous run, attempt, metrics, duration, who and why. Empty for a job that
            never committed.

        Raises
        ------
        UnknownJobError, InvalidValueError
        """
        return self.lookups.history(job_id, limit, before)

    def list_jobs(self) -> JobTable:
        """Return all jobs of the table by name, with their heads; see `protocol.jobs.list_jobs` for what it costs.

        Returns
        -------
        JobTable
            A list of `JobNow` that prints as `watermarks jobs` does and has `to_pandas`. The list includes backfills
            and their records, which are jobs too.

        Raises
        ------
        AccessRefusedError
            The role has no ``dynamodb:Scan``.
        """
        from scripts.helpers.metrics.urgency import JobNow, JobTable
        from scripts.helpers.protocol.jobs import list_jobs

        found = list_jobs(self.store).jobs
        now = self.clock()
        return JobTable([JobNow.of(job, now) for job in found], "jobs")

    def exists(self, table_name: str | None = None) -> bool:
        """Return whether a table exists, by default this one."""
        return self.store.table.exists(table_name or self.table_name)

    def create_table(self) -> None:
        """Create the SQLite file, or for local use the DynamoDB table with the settings that terraform/ has for AWS."""
        self.store.table.create()

    # --- cursor values that were read, and gaps -------------------------------------------------

    def coverage(self, job_id: str, transformation_ctx: str) -> Spans:
        """Return which cursor values of a rows context were read, by live runs and by backfills.

        Returns
        -------
        Spans
            A list of half-open ranges (low, high), merged and in ascending order. A `low` of None means from the
            beginning, a `high` of None to the end. A range counts as covered even if rows were added to it after it
            was read: set `delay` or `lookback` for late rows.

        Raises
        ------
        UnknownJobError, NothingThereError
        """
        return self.progress.coverage(job_id, transformation_ctx)

    def gaps(self, job_id: str, transformation_ctx: str, start: Any = None) -> Spans:
        """Return the ranges that a rows context has skipped and never read, for `Backfill` to fill.

        Parameters
        ----------
        start
            Ignore gaps below this value; by default start at the very beginning.

        Returns
        -------
        Spans
            A list of (low, high) as for `coverage`, none of them past the job's watermark; empty if nothing is
            missing. The slice of a backfill that has begun and is not done is a separate gap.
        """
        return self.progress.gaps(job_id, transformation_ctx, start)

    def complete_up_to(self, job_id: str, transformation_ctx: str) -> Any:
        """Return the cursor value below which every row was taken, for a scheduler that waits for complete data.

        The value is the start of the first gap or, without gaps, the watermark. If the last run read all new rows of
        a database, the value may be past the watermark, up to the database's time at that run less ``delay``. Set
        ``delay`` so long that each row appears within it. If a row appears later, the next run still takes it if it is
        above the watermark, but this value has then been wrong.

        Returns
        -------
        object
            A value of the cursor column, naive for a time without zone; for a compound cursor a tuple of values.
            None if nothing was taken.

        Raises
        ------
        InvalidValueError
            The context reads in descending order.
        UnknownJobError, NothingThereError
            The job does not exist, or has no such context of rows.
        """
        return self.progress.complete_up_to(job_id, transformation_ctx)

    def unfinished(self, job_id: str, transformation_ctx: str) -> dict[str, tuple[str, ShownRange]]:
        """Return the slices of a backfill that have begun and are not done, for one context of a job.

        Returns
        -------
        dict
            The name and the bounds of each slice, by the slice's job; pass them to `Backfill` to finish it.
        """
        return self.progress.unfinished(job_id, transformation_ctx)

    # --- decisions of people --------------------------------------------------------------------
    # Each decision is one conditional write, allowed in any state of the job. It makes a new version, fences the run
    # that is at work and drops its plan; only `release` keeps version and plan. Only `retract` deletes rows at targets.

    def rewind(
        self,
        job_id: str,
        *,
        to_version: int | None = None,
        to_run: str | None = None,
        transformation_ctx: str | None = None,
        retract: bool = False,
        why: str,
        who: str | None = None,
        expected: Head | None = None,
    ) -> Head:
        """Go back to the watermarks of an earlier version or run. The next runs read again what later versions read.

        Rows of a backfill past that watermark are read again: a WARNING names the job whose history lists the backfill.

        Parameters
        ----------
        to_version, to_run
            Pass one of the two: a version of the history, or a run that committed.
        transformation_ctx
            Rewind only this transformation context; by default the whole job.
        retract
            Whether to delete the output of later versions from their targets. The next run deletes it before it
            plans; ``watermarks rewind --retract`` does so at once. Otherwise the output stays, and a WARNING names
            the targets, because its rows are read again, in other batches.
        why, who
            Kept in the history.
        expected
            The job as `latest` returned it when the decision was made: nothing is changed if any run or
            decision has changed the job since.

        Raises
        ------
        UnknownJobError, UnknownRunError, NothingThereError
            The version or run does not exist, never committed, or its log entry expired.
        StaleError
            The job is not as expected.
        InvalidValueError
            The output of that version was deleted. Both or neither of `to_version` and `to_run` are passed, or `why` is
            empty; or `retract` is used for one context, or for a target from which batches cannot be deleted.
        """
        made = JobDecision(why, who, expected, transformation_ctx, retract)
        return self.decisions.take(self.decisions.rewind(job_id, made, to_version, to_run))

    def reset(
        self,
        job_id: str,
        *,
        transformation_ctx: str | None = None,
        retract: bool = False,
        why: str,
        who: str | None = None,
        expected: Head | None = None,
    ) -> Head:
        """Forget a job's watermarks, or those of one context, so that the next run takes everything.

        Version numbers keep growing, so an idempotent sink accepts the next batches as new ones. `retract` deletes
        the job's output from its targets, as for `rewind`. With `expected`, a StaleError is raised if the job is no
        longer what `latest` returned.
        """
        made = JobDecision(why, who, expected, transformation_ctx, retract)
        return self.decisions.take(self.decisions.reset(job_id, made))

    def set_watermark(
        self,
        job_id: str,
        watermarks: Mapping[str, Any],
        *,
        transformation_ctx: str | None = None,
        why: str,
        who: str | None = None,
        expected: Head | None = None,
    ) -> Head:
        """Declare "processed up to here" without a run. This works for a job that has never run, too.

        Parameters
        ----------
        watermarks
            Values of the job, or of the state of one `transformation_ctx`, in which ``value`` is the cursor of
            its rows. Values that you do not name stay; `reset` forgets them. A state with a ``kind``, such as ``rows``,
            is a complete state, and replaces the stored one. For a source of rows, the ranges that were read stay
            recorded, and `gaps` returns the range that the new value skips.
        expected
            The job as `latest` returned it when the decision was made, or ``Head.first(job_id)`` if the job
            did not exist. Raises a StaleError if the job has changed since.
        """
        made = JobDecision(why, who, expected, transformation_ctx)
        return self.decisions.take(self.decisions.set_watermark(job_id, watermarks, made))

    def discard_plan(self, job_id: str, *, why: str, who: str | None = None, expected: Head | None = None) -> Head:
        """Drop the open plan; the next run makes a new one from the committed watermarks.

        Output that a dead run staged for the plan is never published. Rows that it wrote to a sink of your own stay
        there, and the next batch has another id. With `expected`, which `latest` returned, a StaleError is raised if
        the job has changed since.
        """
        return self.decisions.take(self.decisions.discard_plan(job_id, JobDecision(why, who, expected)))

    def release(
        self,
        job_id: str,
        *,
        run_id: str | None = None,
        why: str,
        who: str | None = None,
        expected: Head | None = None,
    ) -> Head:
        """End the lease of a run that is dead, so that the next run may begin at once, under any run id.

        The watermarks, the version and the open plan stay: the next run replays the same batch under the same batch id.
        If the run is alive after all, it is fenced: its commit raises `FencedError`. If no run owns the job, nothing
        is changed, so the call may be repeated.

        Parameters
        ----------
        run_id
            Release the job only if this run owns it; by default whichever run owns it.
        why, who
            Kept in the history, with the next version. Of more than five releases before that version, only the
            newest five are kept.
        expected
            The job as `latest` returned it when the decision was made.

        Raises
        ------
        StaleError
            Another run owns the job, or the job is not as expected.
        UnknownJobError
        """
        return self.decisions.release(job_id, JobDecision(why, who, expected), run_id)

    def adopt(
        self,
        job_id: str,
        run_id: str | None = None,
        *,
        runs: Iterable[Mapping[str, Any]] | None = None,
        watermarks: Mapping[str, Any] | None = None,
        why: str = ADOPTED_BY_HAND,
        who: str | None = None,
    ) -> Head:
        """Declare which item of the original class is the most recent one of a job without a head.

        Parameters
        ----------
        run_id
            The run whose item is the most recent one.
        runs
            Instead of `run_id`, the ``JobRuns`` that Glue's ``get_job_runs`` returns: among the runs that
            have an item, the one with the latest ``StartedOn`` is adopted.
        watermarks
            Watermarks to begin with in place of those in the item, if this package cannot store those.
        why, who
            Kept in the history.

        Raises
        ------
        UnknownRunError
            The run has no item.
        ConfigurationError
            The item holds values that this package does not store, such as more than 64 KB: pass `watermarks`.
        PlanConflictError
            The job has a head already, so there is nothing to adopt.
        InvalidValueError
            Both or neither of `run_id` and `runs` are passed, or no run in `runs` has an item.
        """
        made = JobDecision(why, who, None)
        return self.decisions.adopt(self.decisions.adopted(job_id, made, run_id, runs, watermarks))

    def doctor(self, job_id: str, *, repair: bool = False) -> list[Finding]:
        """Check a job for problems. Only `repair` changes anything.

        Parameters
        ----------
        repair
            Write missing log entries that the head still has, and delete chunks that nothing refers to.

        Returns
        -------
        list of Finding
            The problems found, each with its remedy; empty if there are none.
        """
        from scripts.helpers.decisions.doctor import examine, examine_table

        self.lookups.check_job(job_id)
        found = examine(self.lookups, job_id, repair)
        return [*examine_table(self.store), *found]
