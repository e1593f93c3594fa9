"""`JobRuns`: start, monitor and stop runs of jobs with the calls of Glue's client, on Glue or on any Spark."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar, cast

from scripts.helpers.errors import (
    InvalidIdError,
    InvalidValueError,
    StoreUnavailableError,
    UnknownJobError,
    WatermarkError,
)
from scripts.helpers.glue_api import errors as glue_errors
from scripts.helpers.glue_api.errors import (
    AlreadyExistsException,
    ConcurrentRunsExceededException,
    EntityNotFoundException,
    GlueApiError,
    InvalidInputException,
    OperationTimeoutException,
    named_as_by_glue,
    response_metadata,
)
from scripts.helpers.glue_api.pages import paginator
from scripts.helpers.job_runs import allowed, ids, shapes
from scripts.helpers.job_runs.engines import Glue, SparkSubmit, absolute, is_python_shell
from scripts.helpers.job_runs.job_record import JobRecord
from scripts.helpers.job_runs.run_record import TERMINAL, RunRecord
from scripts.helpers.job_runs.run_store import RunStore
from scripts.helpers.job_runs.scheduler import START_LEASE, Scheduler
from scripts.helpers.protocol.names import check_job_id, name_in_table
from scripts.helpers.protocol.races import Lost, Written
from scripts.helpers.watermarks import DEFAULT_TABLE, Watermarks

__all__ = ["Glue", "JobRuns", "SparkSubmit"]

logger = logging.getLogger(__name__)

Answer = dict[str, Any]
Call = TypeVar("Call", bound=Callable[..., Answer])

KEEP = timedelta(days=90)
"""How long Glue keeps the history of runs."""


@contextmanager
def _named(operation_name: str) -> Iterator[None]:
    """Translate this package's errors into Glue's errors, and add the name of the operation to them."""
    try:
        yield
    except WatermarkError as error:
        raise named_as_by_glue(error, operation_name) from (None if isinstance(error, GlueApiError) else error)


def operation(method: Call) -> Call:
    """Turn a method into a Glue call: pass it to Glue's client on Glue, else check its request and translate errors."""
    name = method.__name__.title().replace("_", "")

    @functools.wraps(method)
    def call(self: JobRuns, **request: Any) -> Answer:
        if self._glue is not None:
            return cast("Answer", getattr(self._glue, method.__name__)(**request))
        given = shapes.check(name, request)
        with _named(name):
            return {**method(self, **given), "ResponseMetadata": response_metadata(200)}

    return cast("Call", call)


class JobRuns:
    """The Job Runs API of AWS Glue: names, arguments, answers, limits and errors of ``boto3.client("glue")``.

    With the engine `Glue` every call is passed to Glue. With `SparkSubmit`, jobs run on this machine's
    Spark, or on the master that the engine names, and their records are kept in the watermarks table.
    Any call may be repeated after an error.

    Calls that read do not change or start anything. `start_job_run` starts one run if a slot is free; the launcher of
    that run starts its retries. A run whose launcher was killed is shown as an ERROR by every read. A stop, or the
    next start that finds no free slot, records the ERROR and frees the slot.

    Parameters
    ----------
    table
        A `Watermarks`, or the name of its table. Not used with `Glue`.
    engine
        `Glue`, or a `SparkSubmit`, which runs scripts only from the places that its `scripts` lists. With
        None, runs can be read and stopped, but not started.
    keep
        How long a run's record is kept after the run is over; None keeps it forever.
    clock
        A function that returns the time as an aware datetime. Leases and records expire by this time.

    Attributes
    ----------
    exceptions
        The error classes by name, as on a boto3 client: ``jobs.exceptions.EntityNotFoundException``.

    Examples
    --------
    >>> jobs = JobRuns("glue-watermarks", SparkSubmit(logs, scripts=[script]))
    >>> jobs.create_job(Name="hello", Command={"Name": "pythonshell", "ScriptLocation": script})["Name"]
    'hello'
    >>> run_id = jobs.start_job_run(JobName="hello", Arguments={"--who": "world"})["JobRunId"]
    >>> jobs.wait("hello", run_id)["JobRunState"]
    'SUCCEEDED'
    """

    def __init__(
        self,
        table: Watermarks | str = DEFAULT_TABLE,
        engine: Glue | SparkSubmit | None = None,
        *,
        keep: timedelta | None = KEEP,
        clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        # Glue needs only `_glue`, its client: `operation` forwards this class's calls to it, `__getattr__` all others.
        self._glue = engine.client if isinstance(engine, Glue) else None
        if isinstance(engine, Glue):
            return
        if keep is not None and keep <= timedelta(0):
            raise InvalidValueError("keep must be above 0.")
        self.engine = engine
        self._watermarks = table if isinstance(table, Watermarks) else Watermarks(table)
        self._records = RunStore(self._watermarks.store, keep)
        self.scheduler = Scheduler(self._records, engine, clock)

    def __getattr__(self, name: str) -> Any:
        """Return another call of Glue's client, such as ``get_system_logs_for_job_run``, if the engine is Glue."""
        if not name.startswith("_") and self._glue is not None:
            return getattr(self._glue, name)
        remedy = " Call it on JobBookmarks of scripts.helpers.glue." if "bookmark" in name else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}.{remedy}")

    @property
    def exceptions(self) -> Any:
        """Return the error classes by Glue's names."""
        return glue_errors if self._glue is None else self._glue.exceptions

    # --- jobs -----------------------------------------------------------------------------------

    @operation
    def create_job(self, **request: Any) -> Answer:
        """Define a job by its `Name`, `Command` with `ScriptLocation`, and the defaults of its runs.

        Raise AlreadyExistsException if a job has the name.
        """
        name = check_job_id(request.pop("Name"), self._watermarks.job_id_rule)
        wanted = _checked_definition(name, request)
        wanted.pop("Tags", None)

        def create(job: JobRecord | None) -> JobRecord:
            if job is not None and job.definition is not None:
                raise AlreadyExistsException(f"Job {name!r} already exists. Use update_job.")
            now = self.scheduler.clock()
            definition = wanted | {"CreatedOn": now, "LastModifiedOn": now}
            # A record without a definition belongs to a deleted job. Keep `active` and `waiting`: they may have runs.
            return job.changed(definition=definition) if job else JobRecord(name, definition)

        self._records.change_job(name, create)
        return {"Name": name}

    @operation
    def get_job(self, **request: Any) -> Answer:
        """Return the definition of `JobName` under ``Job``."""
        job = self._job(request["JobName"])
        assert job.definition is not None
        limits = {"ExecutionProperty": {"MaxConcurrentRuns": 1}, "MaxRetries": 0}
        return {"Job": {**limits, **job.definition, "Name": job.name}}

    @operation
    def update_job(self, **request: Any) -> Answer:
        """Replace the whole definition of `JobName` with `JobUpdate`; existing runs keep their definition."""
        name = request["JobName"]
        wanted = _checked_definition(name, request["JobUpdate"])

        def update(job: JobRecord | None) -> JobRecord:
            before = _defined(job, name)
            assert before.definition is not None
            now = self.scheduler.clock()
            times = {"CreatedOn": before.definition.get("CreatedOn", now), "LastModifiedOn": now}
            return before.changed(definition=wanted | times)

        self._records.change_job(name, update)
        return {"JobName": name}

    @operation
    def delete_job(self, **request: Any) -> Answer:
        """Delete the definition of `JobName` and its bookmark, so a new job of that name reads everything again.

        If the definition's arguments have a namespace (``--BOOKMARK_CONTEXT``), its bookmark is deleted, too. Bookmarks
        of other namespaces stay: delete each with ``reset("JobName@@namespace", why=…)`` of `Watermarks`. Runs at work
        continue and can no longer commit. A second call deletes nothing.
        """
        name = request["JobName"]
        job = self._records.job(name)
        if job is not None and job.definition is not None:
            self._delete_bookmark(name)
            if namespace := job.arguments({}).get("--BOOKMARK_CONTEXT"):
                # No run can begin under a name that is refused, so it has no bookmark.
                with suppress(InvalidIdError):
                    self._delete_bookmark(name_in_table(name, namespace))

        def delete(job: JobRecord | None) -> JobRecord | None:
            # Keep the record, because runs may still be in its lists.
            return job.changed(definition=None) if job and job.definition is not None else job

        self._records.change_job(name, delete)
        self.scheduler.settle(name)  # End runs that an earlier version of this package queued.
        return {"JobName": name}

    def _delete_bookmark(self, name: str) -> None:
        """Reset a job's watermarks. `delete_job` calls this first: if it fails, the definition stays for a retry."""
        try:
            self._watermarks.reset(name, why="DeleteJob: the bookmark goes with its job, as in Glue")
        except UnknownJobError:
            return  # The job has no watermarks.
        logger.warning("event=bookmark_deleted job=%s: a job of this name reads everything again", name)

    # --- runs -----------------------------------------------------------------------------------

    @operation
    def start_job_run(self, **request: Any) -> Answer:
        """Start a run of `JobName`; return its ``JobRunId``.

        With `JobRunId`, repeat that run under a new id. InvalidInputException: the engine does not allow the script or
        an argument; its ``__cause__`` is an InvalidValueError. EntityNotFoundException: the job or `JobRunId` is
        unknown. ConcurrentRunsExceededException: no slot is free.
        """
        name = request["JobName"]
        engine = self.engine
        if engine is None:
            raise InvalidInputException("There is no engine to run it. Give JobRuns an engine=.")
        self._job(name)
        wanted = _checked_arguments(name, self._as_retry(request) if "JobRunId" in request else request)
        _log_without_effect(name, request)
        now = self.scheduler.clock()
        run_id = ids.new_id(now)
        made: RunRecord | None = None
        has_settled = False

        def take(job: JobRecord | None) -> JobRecord:
            nonlocal made, has_settled
            job = _defined(job, name)
            if not job.has_free_slot and not has_settled:
                # Once for each request, free slots that lost runs still hold. If this changes the job's record,
                # `change_job` cannot write the result of this call, and calls `take` again with the new record.
                has_settled = True
                job = _defined(self.scheduler.settle(name), name)
            made = job.new_run(run_id, wanted, now)
            shapes.check_capacity(made.told, is_python_shell(made))
            engine.check(made)  # The engine that launches the run checks again: it may have other limits.
            made.check_new()  # If the record is too large, raise before the job counts the run as concurrent.
            if not job.has_free_slot:
                raise ConcurrentRunsExceededException(
                    f"Concurrent runs exceeded for {name}: {len(job.active)} of {job.slots} are at work. Start it "
                    "later, or raise ExecutionProperty.MaxConcurrentRuns."
                )
            return job.started(run_id, now)

        self._records.change_job(name, take)
        assert made is not None
        self._start(made)
        return {"JobRunId": run_id}

    def _start(self, run: RunRecord) -> None:
        """Write the record of a run that has a slot, and start its launcher.

        The run already has its slot, so later failures are logged and not raised: on an error, the caller would start
        a second run.
        """
        run = run.starting(self.scheduler.clock(), START_LEASE)
        try:
            outcome = self._records.write_run(None, run)
        except StoreUnavailableError as error:
            logger.warning("event=start_unsure run=%s error=%s", run.run_id, type(error).__name__)
            # Assume that the record was written. If it was not, the launcher finds none and ends, which does no harm.
            outcome = Written(run)
        # If another process took this start for dead, it has recorded an ERROR for the run before this write. No job
        # was started, so raise an error: the caller can safely start another run.
        if isinstance(outcome, Lost) and (outcome.to is None or outcome.to.state == "ERROR"):
            raise OperationTimeoutException(
                f"The start of run {run.run_id!r} took too long and was given up. Start it again."
            )
        try:
            if isinstance(outcome, Written):
                self.scheduler.start(run)
        except WatermarkError as error:
            logger.warning("event=start_unfinished run=%s error=%s", run.run_id, type(error).__name__)

    def _as_retry(self, request: Mapping[str, Any]) -> Answer:
        """Return a request completed with the timeout and the arguments of the run that it repeats."""
        before = self._run(request["JobName"], request["JobRunId"])
        if self.scheduler.is_lost(before):
            self.scheduler.settle(before.job_name)
            before = self._run(before.job_name, before.run_id)
        if not before.is_over:
            raise InvalidInputException(
                f"Job run {before.run_id!r} is {before.state}. Only a run that is over can be retried."
            )
        # Every recorded request has a Timeout. If it is missing, the start broke off before the request was recorded,
        # and a retry would run without any arguments.
        if "Timeout" not in before.told:
            raise InvalidInputException(
                f"Job run {before.run_id!r} was never recorded with its arguments. Start a new run with them."
            )
        retry = {"Timeout": before.told["Timeout"], **request}
        # Merge the arguments one by one: a retry that sets one argument keeps the run's other arguments.
        retry["Arguments"] = {**before.told["Arguments"], **request.get("Arguments", {})}
        retry["PreviousRunId"] = before.run_id
        return retry

    @operation
    def get_job_run(self, **request: Any) -> Answer:
        """Return run `RunId` of `JobName` under ``JobRun``.

        Read-only. A run whose launcher has not renewed its lease in time is shown as an ERROR.
        """
        # Write nothing and start no run: both would use the caller's rights on items that another user may have forged.
        run = self.scheduler.seen(self._run(request["JobName"], request["RunId"]))
        return {"JobRun": run.to_job_run()}

    @operation
    def get_job_runs(self, **request: Any) -> Answer:
        """Return runs of `JobName`, the newest first: `MaxResults` runs, at most 200, after `NextToken`.

        Read-only, as `get_job_run`.
        """
        name, limit, after = request["JobName"], request.get("MaxResults", shapes.MAX_PAGE), request.get("NextToken")
        if after is not None and not ids.is_run_id(after):
            raise InvalidInputException("The NextToken is invalid. Pass the NextToken of the previous page.")
        found = self._records.newest_runs(name, limit + 1, after)  # One run more shows if a page follows.
        if not found:
            self._job(name)  # Raise for an unknown job, but not for a deleted one that still has runs.
        answer: Answer = {"JobRuns": [self.scheduler.seen(run).to_job_run() for run in found[:limit]]}
        if len(found) > limit:
            answer["NextToken"] = found[limit - 1].run_id
        return answer

    def get_paginator(self, operation_name: str) -> Any:
        """Return botocore's paginator for ``get_job_runs``, with `paginate` and its `PaginationConfig`.

        With the engine `Glue`, return a paginator of Glue's client, also for its other calls.

        Raises
        ------
        botocore.exceptions.OperationNotPageableError
            The call has no pages.
        """
        if self._glue is not None:
            return self._glue.get_paginator(operation_name)
        return paginator(operation_name, {"get_job_runs": ("JobRuns", self.get_job_runs)})

    @operation
    def batch_stop_job_run(self, **request: Any) -> Answer:
        """Stop runs `JobRunIds` of `JobName`, 1 to 25: SIGTERM, and SIGKILL after the grace.

        Returns at once: a run is STOPPING until it is STOPPED. Runs that cannot be stopped are in ``Errors``.
        """
        name, stopped, errors = request["JobName"], [], []
        for run_id in request["JobRunIds"]:
            try:
                self._stop(name, run_id)
                stopped.append({"JobName": name, "JobRunId": run_id})
            except (EntityNotFoundException, InvalidInputException) as refused:
                detail = {"ErrorCode": type(refused).__name__, "ErrorMessage": refused.message}
                errors.append({"JobName": name, "JobRunId": run_id, "ErrorDetail": detail})
        self.scheduler.settle(name, request["JobRunIds"])
        return {"SuccessfulSubmissions": stopped, "Errors": errors}

    def _stop(self, name: str, run_id: str) -> None:
        before = self._recorded_run(name, run_id)
        if before is None:
            raise _run_not_found(name, run_id)

        def stop(run: RunRecord) -> RunRecord:
            now = self.scheduler.clock()
            if run.is_over:
                raise InvalidInputException(f"Job run {run_id!r} is {run.state} already, so there is nothing to stop.")
            if run.state == "WAITING":
                return run.to("STOPPED", now)
            return run if run.state == "STOPPING" else run.to("STOPPING", now)

        self._records.change_run(before, stop)

    def wait(self, job_name: str, run_id: str, seconds: float = 600.0, pause: float = 0.2) -> Answer:
        """Wait until a run is over, at most for `seconds`, and return its current JobRun.

        Read-only. The launcher ends the run; if the launcher dies, the run is an ERROR once its lease has expired.
        """
        until = time.monotonic() + seconds
        while True:
            run: Answer = self.get_job_run(JobName=job_name, RunId=run_id)["JobRun"]
            if run["JobRunState"] in TERMINAL or time.monotonic() >= until:
                return run
            time.sleep(pause)

    # --- look-ups -------------------------------------------------------------------------------

    def _job(self, name: str) -> JobRecord:
        return _defined(self._records.job(name), name)

    def _recorded_run(self, name: str, run_id: str) -> RunRecord | None:
        return self._records.run(name, run_id) if ids.is_run_id(run_id) else None

    def _run(self, name: str, run_id: str) -> RunRecord:
        """Return a run; a WAITING stand-in if it is in the job's `active` or `waiting` runs but has no record yet."""
        run = self._recorded_run(name, run_id)
        if run is not None:
            return run
        job = self._records.job(name)
        entry = None if job is None else job.entry(run_id)
        if entry is not None:
            return RunRecord.without_record(name, run_id, entry.since)
        _defined(job, name)
        raise _run_not_found(name, run_id)


def _defined(job: JobRecord | None, name: str) -> JobRecord:
    if job is None or job.definition is None:
        raise EntityNotFoundException(f"Job {name} not found. Make it with create_job.")
    return job


def _run_not_found(name: str, run_id: str) -> GlueApiError:
    return EntityNotFoundException(f"Job run {run_id} not found. get_job_runs lists the runs of job {name}.")


def _checked_definition(name: str, given: Mapping[str, Any]) -> Answer:
    """Return a definition if it is valid, else raise; log a WARNING for members that have no effect here."""
    found = _checked_arguments(name, given)
    shapes.check_capacity(found, found["Command"].get("Name") == "pythonshell")
    _log_without_effect(name, given)
    return found


def _log_without_effect(name: str, given: Mapping[str, Any]) -> None:
    if members := sorted(shapes.WITHOUT_EFFECT.intersection(given)):
        logger.warning(
            "event=without_effect job=%s count=%d members=%s: these members have an effect only on Glue. Set Spark's "
            "sizes by --conf, or by the engine", name, len(members), ",".join(members),
        )  # fmt: skip


def _checked_arguments(name: str, holder: Mapping[str, Any]) -> Answer:
    """Return a request or definition whose arguments are allowed, with a local script as an absolute path.

    The path is absolute because the process that starts the run later may be in another folder.
    """
    found = dict(holder)
    for member in ("Arguments", "DefaultArguments", "NonOverridableArguments"):
        allowed.check_arguments(name, found.get(member, {}))
    if "Command" in found:
        found["Command"] = found["Command"] | {"ScriptLocation": absolute(found["Command"]["ScriptLocation"])}
    return found
