"""The `Watermarks` class: the table as its users see it. The logic is in `protocol`, `decisions` and `rows`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta, timezone
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
from scripts.helpers.rows.coverage import with_ranges
from scripts.helpers.rows.cursor_ranges import ShownRange
from scripts.helpers.rows.progress import RowsProgress, Spans
from scripts.helpers.states import checked

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from scripts.helpers.decisions.doctor import Finding
    from scripts.helpers.protocol.jobs import ListedJobs

__all__ = ["DEFAULT_LEASE", "Watermarks"]

DEFAULT_TABLE, TABLE_VARIABLE = "glue-watermarks", "WATERMARKS_TABLE"
"""The table where none is named, and the environment variable that names one for whole programs."""

INSIDE = {"clock", "decisions", "job_id_rule", "lookups", "max_lease", "progress", "store"}
"""What only this package uses: an editor need not offer it."""


def table_by_default() -> str:
    """Return the table of a program that is given none: that of ``WATERMARKS_TABLE``, or else ``glue-watermarks``."""
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
        A DynamoDB table with hash key ``jobName`` (S) and range key ``runId`` (S), or a file of this machine, such as
        ``sqlite:watermarks.db``. `create_table` creates either.
    dynamodb_client
        A boto3 client; by default one with explicit retries and time-outs.
    region_name, endpoint_url
        For the default client; boto3's own rules apply where they are not given. InvalidValueError with a file.
    clock
        Returns the time as an aware datetime. It decides leases, never what is correct.
    job_id_rule
        Regular expression that job names must match as a whole.
    retention
        How long log entries and run items are kept once a newer version is there; None: for ever.
    max_lease
        The longest lease that `begin` grants: one day unless given, from 15 minutes to 366 days. A run that dies
        blocks its job for as long as its lease, unless somebody calls `release`.

    Attributes
    ----------
    lookups, decisions, progress
        The parts that this class hands its calls to: what can be read, what people decide, and what rows
        contexts have covered. They have calls that are of use inside this package only.

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
        self.progress = RowsProgress(self.lookups)
        self.decisions = Decisions(self._changes, self.progress)

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
        """What calls DynamoDB, for parts of this package that keep their own items in the table."""
        return self.lookups.store

    @property
    def dynamodb_client(self) -> DynamoDBClient | None:
        """The client, under the name that the original class gave it; None for a file."""
        client: DynamoDBClient | None = self.store.client
        return client

    @property
    def clock(self) -> Callable[[], datetime]:
        """What tells the time."""
        return self.lookups.clock

    @property
    def job_id_rule(self) -> str:
        """What job names match as a whole."""
        return self.lookups.job_id_rule

    # --- the playbook's one-shot ----------------------------------------------------------------

    @staticmethod
    def create_watermark_item(job_id: str, run_id: str, key: str = WATERMARKS, **watermarks: Any) -> dict[str, Any]:
        """Make the item that `add_watermark` stores, with every value checked. Nothing is sent.

        Parameters
        ----------
        key
            Where the item has the values. Under another key than ``watermarks`` they are one watermark of that name,
            a map: ``get_watermark_values(job_id, key=...)`` returns it.

        Raises
        ------
        InvalidIdError, InvalidValueError, TooLargeError
            All are ValueErrors that name the key, the limit and the remedy.
        """
        check_job_id(job_id, ANY_JOB_ID)  # By the rule of its table `add_watermark` checks it.
        check_run_id(run_id)
        encode(watermarks if key == WATERMARKS else {key: watermarks})
        return {"jobName": job_id, "runId": run_id, key: watermarks}

    def add_watermark(self, watermark_item: Mapping[str, Any]) -> None:
        """Commit a run's watermarks in one call: begin, freeze and commit as one conditional write.

        The same item twice is one commit, also when other runs have committed in between.

        Raises
        ------
        InvalidValueError
            Not an item of `create_watermark_item`, or the job has states of sources, which the values would replace.
        RunInProgressError, PlanConflictError
            Another run holds the job, or a frozen plan waits to be replayed.
        StoreUnavailableError
            Call again with the same item: it is committed once.
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
        """Take a job for a run, together with the plan that a dead run may have left.

        The same run id re-enters at once and fences its older self. Another one takes over when
        the lease has run out.

        Parameters
        ----------
        lease
            How long other runs stay away, `max_lease` at most. Inside a ``with`` statement a heartbeat renews it. It
            protects against wasted work only: a run that lost it is fenced and can commit nothing.
        take_over
            Take the job from a run whose lease lives, because you know that it is dead. For code that starts a run
            of its own; to let the schedule's next run begin call `release`.

        Returns
        -------
        Run
            Use it in a ``with`` statement; it is aborted unless committed.

        Raises
        ------
        InvalidValueError
            The lease is not above 0, or above `max_lease`; before anything is read.
        RunInProgressError
            Another run's lease lives.
        AmbiguousHistoryError
            Several items of the original class and no head; call `adopt` first.
        """
        return begin_run(self._changes, job_id, run_id, lease, take_over, self.max_lease)

    # --- look-ups -------------------------------------------------------------------------------

    def get_most_recent_run_id(self, job_id: str) -> str:
        """Return the run whose watermarks are in force. One strongly consistent read.

        Raises
        ------
        UnknownJobError, NoWatermarkError
            Both are LookupErrors: nothing is known of the job; none of its runs has committed.
        AmbiguousHistoryError
            Only several unordered items of the original class are there.
        """
        return self.lookups.latest(job_id).run_id

    def get_watermark(self, job_id: str, run_id: str | None = None) -> dict[str, Any]:
        """Return a run's item: ``jobName``, ``runId``, ``watermarks`` and when it was committed.

        Parameters
        ----------
        run_id
            By default the most recent run. Its item has the watermarks that are in force, also those
            that a person set or went back to; ``runId`` is None where they were set and no run committed.

        Raises
        ------
        UnknownJobError, NoWatermarkError, UnknownRunError
            All are LookupErrors.
        """
        found = self.lookups.get_watermark(job_id, run_id)
        states = {name: without_bytes(with_ranges(state)) for name, state in found["watermarks"].items()}
        return WatermarkItem.of(found | {"watermarks": states})

    def get_watermark_values(self, job_id: str, run_id: str | None = None, key: str = WATERMARKS) -> Any:
        """Return only the values of a run's watermarks, with the types they went in with.

        Parameters
        ----------
        key
            That of `create_watermark_item`.

        Raises
        ------
        UnknownWatermarkError
            A KeyError: the run has stored nothing under the key. So does a look-up of a name in the values.
        """
        return self.get_watermark(job_id, run_id)[key]

    def latest(self, job_id: str) -> Head:
        """Return what is committed for a job and what is open. One strongly consistent read."""
        return self.lookups.latest(job_id)

    def history(self, job_id: str, limit: int | None = None, before: int | None = None) -> History:
        """Return the versions of a job in the order of their commits, newest first.

        Parameters
        ----------
        limit
            At most so many, in one request; by default all of them, page by page.
        before
            Only versions below this one: the last version of one page starts the next.

        Returns
        -------
        History
            A list of `LogEntry` that shows itself as a table, with `to_pandas`. Each entry has op,
            version, run, previous run, attempt, metrics, duration, who and why. Empty for a job that
            never committed.

        Raises
        ------
        UnknownJobError, InvalidValueError
        """
        return self.lookups.history(job_id, limit, before)

    def list_jobs(self) -> ListedJobs:
        """Return all jobs of the table by name, with their heads; see `protocol.jobs.list_jobs` for what it costs.

        Returns
        -------
        ListedJobs
            A list of `ListedJob` that shows itself as a table, with `to_pandas`. Backfills and their
            records are jobs too.

        Raises
        ------
        AccessRefusedError
            The role has no ``dynamodb:Scan``.
        """
        from scripts.helpers.protocol.jobs import list_jobs

        return list_jobs(self.store).jobs

    def exists(self, table_name: str | None = None) -> bool:
        """Tell whether a table exists, by default this one."""
        return self.store.table.exists(table_name or self.table_name)

    def create_table(self) -> None:
        """Create the table for local use: keys, billing, TTL and recovery as in terraform/, or the file."""
        self.store.table.create()

    # --- what rows contexts have read -----------------------------------------------------------

    def coverage(self, job_id: str, transformation_ctx: str) -> Spans:
        """Return which cursor values of a rows context were read, by live runs and by backfills.

        Returns
        -------
        Spans
            A list of (low, high): half-open and rising, merged, in order. A low of None is below
            everything, a high of None above. What was read while it was still being written to is
            covered as well: rows
            that come late are the matter of `delay` and `lookback`.

        Raises
        ------
        UnknownJobError, NothingThereError
        """
        return self.progress.coverage(job_id, transformation_ctx)

    def gaps(self, job_id: str, transformation_ctx: str, start: Any = None) -> Spans:
        """Return what a rows context has gone past and never read, for `Backfill` to fill.

        Parameters
        ----------
        start
            Look from here on; by default from the very beginning.

        Returns
        -------
        Spans
            A list of (low, high) as of `coverage`, none of them past the live watermark; empty if
            nothing is missing. Where a slice is begun and not done, it is a gap of its own.
        """
        return self.progress.gaps(job_id, transformation_ctx, start)

    def complete_up_to(self, job_id: str, transformation_ctx: str) -> Any:
        """Return the cursor value below which every row of a rows context was taken, for a scheduler that waits for it.

        That is where the first gap begins; without gaps, the watermark. A database that has its own clock and stands
        still goes further: no row was left when it was asked, and what comes later is stamped past that time less the
        ``delay``. As far as the ``delay`` is long enough, that is: a row that comes later than it is taken, and was
        not there when this was said.

        Returns
        -------
        object
            A value of the cursor column, naive for a time without zone; of compound cursors a tuple with one for each.
            None where nothing was taken.

        Raises
        ------
        InvalidValueError
            The context reads downwards.
        UnknownJobError, NothingThereError
            There is no such job, or no such context of rows.
        """
        return self.progress.complete_up_to(job_id, transformation_ctx)

    def unfinished(self, job_id: str, transformation_ctx: str) -> dict[str, tuple[str, ShownRange]]:
        """Return the slices of a rows context that are begun and not done.

        Returns
        -------
        dict
            By the job of the slice: its name and its bounds, to finish it with `Backfill`.
        """
        return self.progress.unfinished(job_id, transformation_ctx)

    # --- decisions of people --------------------------------------------------------------------
    # Each is one conditional write that is legal from any state. It makes a new version, fences the run that is at
    # work and drops its plan; only `release` keeps version and plan. Nothing is deleted at targets but where `retract`
    # says so.

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
        """Go back to the watermarks of an earlier version or run; what came after is taken again.

        So are rows past the watermark that a backfill has read: a WARNING names the record of it.

        Parameters
        ----------
        to_version, to_run
            One of the two: a version of the history, or a run that committed.
        transformation_ctx
            Only this transformation context; by default the whole job.
        retract
            Whether the files that later versions left at their targets go. The next run deletes them before it
            plans, ``watermarks rewind --retract`` at once. Without it they stay, with a WARNING that names the
            targets: their rows come again, in other batches.
        why, who
            Kept in the history.
        expected
            The job as it was when the decision was made, of `latest`: nothing is decided if any run or
            decision has changed it since.

        Raises
        ------
        UnknownJobError, UnknownRunError, NothingThereError
            There is no such version or run, it never committed, or its log entry expired.
        StaleError
            The job is not as expected.
        RetractedError
            The output of that version was taken back.
        InvalidValueError
            Both or neither of the two are given, or `why` is empty; `retract` for one context, or where a
            target cannot give back what it has.
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
        """Forget a job's watermarks, or those of one context: the next run takes everything there.

        Versions go on growing, so an idempotent sink takes the coming batches as new ones. With
        `retract` the files that the job has left at its targets go, as of `rewind`. With `expected`, StaleError if
        the job is not any more what `latest` returned.
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
        """Declare "processed up to here" without running; also for a job that has never run.

        Parameters
        ----------
        watermarks
            Values of the job, or of the state of one `transformation_ctx`, in which ``value`` is the cursor of
            its rows. What is not named stays as it is; `reset` forgets it. A state with its own ``kind`` is a
            whole one and replaces what is there. A rows context keeps what it has covered; what it jumps over
            is a gap that `gaps` names.
        expected
            The job as it was when the decision was made, of `latest`; ``Head.first(job_id)`` where
            there was none. StaleError if it has changed since.
        """
        made = JobDecision(why, who, expected, transformation_ctx)
        return self.decisions.take(self.decisions.set_watermark(job_id, watermarks, made))

    def discard_plan(self, job_id: str, *, why: str, who: str | None = None, expected: Head | None = None) -> Head:
        """Drop the open plan; the next run makes a new one from the committed watermarks.

        What a dead run staged for it is never seen. What it wrote to a sink of your own stays there: the next batch
        has another id.
        With `expected`, StaleError if the job is not any more what `latest` returned.
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
        Should the run live after all, it is fenced: its commit raises `FencedError`. If no run has the job, nothing
        is changed, so the call may be repeated.

        Parameters
        ----------
        run_id
            Only if this run has the job; by default whichever does.
        why, who
            Kept in the history, with the version that is made next. Of more than five releases before one version
            it keeps the newest five.
        expected
            The job as it was when the decision was made, of `latest`.

        Raises
        ------
        StaleError
            Another run has the job, or it is not as expected.
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
            The run whose item is right.
        runs
            Instead of it, the ``JobRuns`` that Glue's ``get_job_runs`` returns: of the runs that have
            an item, the one with the latest ``StartedOn`` is taken.
        watermarks
            Values to begin with instead of those of the item, where this package cannot store these.
        why, who
            Kept in the history.

        Raises
        ------
        UnknownRunError
            There is no such item.
        LegacyItemError
            The item holds what this package does not store, such as more than 64 KB: give `watermarks`.
        PlanConflictError
            The job has a head already; nothing is left to adopt.
        InvalidValueError
            Both or neither of the two are given, or no run of the list has an item.
        """
        made = JobDecision(why, who, None)
        return self.decisions.adopt(self.decisions.adopted(job_id, made, run_id, runs, watermarks))

    def doctor(self, job_id: str, *, repair: bool = False) -> list[Finding]:
        """Look for what is wrong with a job; change nothing unless told.

        Parameters
        ----------
        repair
            Write missing log entries that the head still knows, and delete chunks that nothing refers to.

        Returns
        -------
        list of Finding
            What was found, each with its remedy; empty if all is well.
        """
        from scripts.helpers.decisions.doctor import examine, examine_table

        self.lookups.check_job(job_id)
        found = examine(self.lookups, job_id, repair)
        return [*examine_table(self.store), *found]
