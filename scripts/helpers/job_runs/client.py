"""`JobRuns`: start, watch and stop runs of jobs as Glue's client does, on Glue or on any Spark."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar, cast

from scripts.helpers.errors import InvalidValueError, StoreUnavailableError, UnknownJobError, WatermarkError
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
from scripts.helpers.protocol.names import check_job_id
from scripts.helpers.protocol.races import Lost, Written
from scripts.helpers.watermarks import DEFAULT_TABLE, Watermarks

__all__ = ["Glue", "JobRuns", "SparkSubmit"]

logger = logging.getLogger(__name__)

Answer = dict[str, Any]
Call = TypeVar("Call", bound=Callable[..., Answer])

KEEP = timedelta(days=90)
"""For how long Glue keeps the history of runs."""


@contextmanager
def _named(operation_name: str) -> Iterator[None]:
    """Give what goes wrong Glue's name for it, and refusals the name of the operation."""
    try:
        yield
    except WatermarkError as error:
        raise named_as_by_glue(error, operation_name) from (None if isinstance(error, GlueApiError) else error)


def operation(method: Call) -> Call:
    """Make a call of Glue of a method: on Glue the client's own, else with its request checked and Glue's errors."""
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

    With the engine `Glue` every call goes to Glue. With `SparkSubmit` jobs run on this machine's
    Spark, or on the master that it names. Their records are kept in the table of the watermarks.
    Any call may be repeated after an error.

    Calls that read change and start nothing. `start_job_run` starts the one run that it makes, where a
    slot is free; the launcher of that run makes its retries. A run whose launcher was killed is shown as an ERROR by
    all who look. The next start that finds no slot, or a stop, writes that and frees its slot.

    Parameters
    ----------
    table
        A `Watermarks`, or the name of its table. Not used with `Glue`.
    engine
        None: runs can be looked at and stopped, and none can be started. `SparkSubmit` starts scripts in
        the places that its `scripts` names.
    keep
        How long the record of a run is kept after its end; None: for ever.
    clock
        Returns the time as an aware datetime. It decides leases and expiry.

    Attributes
    ----------
    exceptions
        The errors by name, as those of a boto3 client: ``jobs.exceptions.EntityNotFoundException``.

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
        # Glue's client has the same calls, and more: `__getattr__` passes those on.
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
        """Pass on Glue's other calls, such as ``get_system_logs_for_job_run``, where the engine is Glue."""
        if not name.startswith("_") and self._glue is not None:
            return getattr(self._glue, name)
        remedy = " Call it on JobBookmarks of scripts.helpers.glue." if "bookmark" in name else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}.{remedy}")

    @property
    def exceptions(self) -> Any:
        """Return the errors by the names that Glue gives them."""
        return glue_errors if self._glue is None else self._glue.exceptions

    # --- jobs -----------------------------------------------------------------------------------

    @operation
    def create_job(self, **request: Any) -> Answer:
        """Define a job: `Name`, `Command` with `ScriptLocation`, and what its runs have by default.

        AlreadyExistsException if there is one of the name.
        """
        name = check_job_id(request.pop("Name"), self._watermarks.job_id_rule)
        wanted = _checked_definition(name, request)
        wanted.pop("Tags", None)

        def create(job: JobRecord | None) -> JobRecord:
            if job is not None and job.definition is not None:
                raise AlreadyExistsException(f"Job {name!r} already exists. Use update_job.")
            now = self.scheduler.clock()
            definition = wanted | {"CreatedOn": now, "LastModifiedOn": now}
            # A record without a definition is that of a deleted job: runs of it may still be in its lists.
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
        """Replace the definition of `JobName` by `JobUpdate` as a whole; runs that are there keep theirs."""
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
        """Delete the definition of `JobName`, and its bookmark: a job of that name reads everything again.

        Runs at work go on and can commit nothing any more. A second call deletes nothing.
        """
        name = request["JobName"]
        job = self._records.job(name)
        if job is not None and job.definition is not None:
            self._delete_bookmark(name)

        def delete(job: JobRecord | None) -> JobRecord | None:
            # The record stays, for the runs that are still in its lists.
            return job.changed(definition=None) if job and job.definition is not None else job

        self._records.change_job(name, delete)
        self.scheduler.settle(name)  # Ends what an earlier version's queue holds.
        return {"JobName": name}

    def _delete_bookmark(self, name: str) -> None:
        """Forget the watermarks of a job. Before its definition: who repeats a call that broke off deletes both."""
        try:
            self._watermarks.reset(name, why="DeleteJob: the bookmark goes with its job, as in Glue")
        except UnknownJobError:
            return  # It has none.
        logger.warning("event=bookmark_deleted job=%s: a job of this name reads everything again", name)

    # --- runs -----------------------------------------------------------------------------------

    @operation
    def start_job_run(self, **request: Any) -> Answer:
        """Start a run of `JobName`; return its ``JobRunId``.

        InvalidInputException for a script or an argument that the engine does not allow: its ``__cause__`` is an
        InvalidValueError. EntityNotFoundException for an unknown job or `JobRunId`,
        ConcurrentRunsExceededException where no slot is free. With `JobRunId` it repeats that run under a new id.
        """
        name = request["JobName"]
        engine = self.engine
        if engine is None:
            raise InvalidInputException("There is no engine to run it. Give JobRuns an engine=.")
        self._job(name)
        wanted = _checked_arguments(name, self._as_retry(request) if "JobRunId" in request else request)
        _say_without_effect(name, request)
        now = self.scheduler.clock()
        run_id = ids.new_id(now)
        made: RunRecord | None = None
        has_settled = False

        def take(job: JobRecord | None) -> JobRecord:
            nonlocal made, has_settled
            job = _defined(job, name)
            if not job.has_free_slot and not has_settled:
                # Lost runs still hold their slots. Once is enough: if it changes the record, the write below fails, and
                # this is called again with the record as it is then.
                has_settled = True
                job = _defined(self.scheduler.settle(name), name)
            made = job.new_run(run_id, wanted, now)
            shapes.check_capacity(made.told, is_python_shell(made))
            engine.check(made)  # As does the one that launches it: that may be another one, with other limits.
            made.check_new()  # What is too large is refused before anything is changed.
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

        From here on the run has a place, so what goes wrong now is no error of the start: its caller would start a
        second run.
        """
        run = run.starting(self.scheduler.clock(), START_LEASE)
        try:
            outcome = self._records.write_run(None, run)
        except StoreUnavailableError as error:
            logger.warning("event=start_unsure run=%s error=%s", run.run_id, type(error).__name__)
            # It may be written. A launcher that finds no record ends at once, so to start one does no harm.
            outcome = Written(run)
        # Somebody took this start for dead and wrote the end of the run first. No job was started, so here an error
        # is true, and its caller may start another run.
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
        """Return a request with what the run had that it repeats."""
        before = self._run(request["JobName"], request["JobRunId"])
        if self.scheduler.is_lost(before):
            self.scheduler.settle(before.job_name)
            before = self._run(before.job_name, before.run_id)
        if not before.is_over:
            raise InvalidInputException(
                f"Job run {before.run_id!r} is {before.state}. Only a run that is over can be retried."
            )
        # Every request that was recorded has a Timeout. Without one, the start broke off before its record was there,
        # and a retry would run with no arguments at all.
        if "Timeout" not in before.told:
            raise InvalidInputException(
                f"Job run {before.run_id!r} was never recorded with its arguments. Start a new run with them."
            )
        retry = {"Timeout": before.told["Timeout"], **request}
        # One by one: a retry that gives an argument keeps the others of its run.
        retry["Arguments"] = {**before.told["Arguments"], **request.get("Arguments", {})}
        retry["PreviousRunId"] = before.run_id
        return retry

    @operation
    def get_job_run(self, **request: Any) -> Answer:
        """Return run `RunId` of `JobName` under ``JobRun``.

        Only looks. A run whose launcher has given no sign for its lease is shown as the ERROR that it is.
        """
        # Nothing is written or started: who may write the job's items must not act through who looks.
        run = self.scheduler.seen(self._run(request["JobName"], request["RunId"]))
        return {"JobRun": run.to_job_run()}

    @operation
    def get_job_runs(self, **request: Any) -> Answer:
        """Return runs of `JobName`, the newest first: `MaxResults` of them, at most 200, from `NextToken` on.

        Only looks.
        """
        name, limit, after = request["JobName"], request.get("MaxResults", shapes.MAX_PAGE), request.get("NextToken")
        if after is not None and not ids.is_run_id(after):
            raise InvalidInputException("The NextToken is invalid. Pass the NextToken of the previous page.")
        found = self._records.newest_runs(name, limit + 1, after)  # One more says whether there is another page.
        if not found:
            self._job(name)  # Runs outlive their job's definition, so a job without one may still have some.
        answer: Answer = {"JobRuns": [self.scheduler.seen(run).to_job_run() for run in found[:limit]]}
        if len(found) > limit:
            answer["NextToken"] = found[limit - 1].run_id
        return answer

    def get_paginator(self, operation_name: str) -> Any:
        """Return the paginator of ``get_job_runs``, with `paginate` and its `PaginationConfig` as botocore has it.

        With the engine `Glue` it is the client's own, and there are those of its other calls.

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

        Returns at once: a run is STOPPING until it is STOPPED. What cannot be stopped is in ``Errors``.
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
        """Wait until a run is over, and return its JobRun; as it is now once `seconds` have passed.

        Only looks. A run is brought to its end by its launcher, and is an ERROR a lease after that was lost.
        """
        until = time.monotonic() + seconds
        while True:
            run: Answer = self.get_job_run(JobName=job_name, RunId=run_id)["JobRun"]
            if run["JobRunState"] in TERMINAL or time.monotonic() >= until:
                return run
            time.sleep(pause)

    # --- what a request names -------------------------------------------------------------------

    def _job(self, name: str) -> JobRecord:
        return _defined(self._records.job(name), name)

    def _recorded_run(self, name: str, run_id: str) -> RunRecord | None:
        return self._records.run(name, run_id) if ids.is_run_id(run_id) else None

    def _run(self, name: str, run_id: str) -> RunRecord:
        """Return a run; one that has a place and no record yet as what is known of it."""
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
    """Return a definition, or refuse it; warn of what it has that changes nothing here."""
    found = _checked_arguments(name, given)
    shapes.check_capacity(found, found["Command"].get("Name") == "pythonshell")
    _say_without_effect(name, given)
    return found


def _say_without_effect(name: str, given: Mapping[str, Any]) -> None:
    if members := sorted(shapes.WITHOUT_EFFECT.intersection(given)):
        logger.warning(
            "event=without_effect job=%s count=%d members=%s: only Glue's machines know them. Spark's sizes are set by "
            "--conf, or by the engine", name, len(members), ",".join(members),
        )  # fmt: skip


def _checked_arguments(name: str, holder: Mapping[str, Any]) -> Answer:
    """Return what holds arguments of a job, with a local script as an absolute path; refuse what nobody may give.

    The process that starts the run later may be in another folder.
    """
    found = dict(holder)
    for member in ("Arguments", "DefaultArguments", "NonOverridableArguments"):
        allowed.check_arguments(name, found.get(member, {}))
    if "Command" in found:
        found["Command"] = found["Command"] | {"ScriptLocation": absolute(found["Command"]["ScriptLocation"])}
    return found
