"""`JobRuns`: start, watch and stop runs of jobs as Glue's client does, on Glue or on any Spark."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
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
    ResourceNumberLimitExceededException,
    named_as_by_glue,
    response_metadata,
)
from scripts.helpers.glue_api.pages import paginator
from scripts.helpers.job_runs import allowed, ids, shapes
from scripts.helpers.job_runs.emr_serverless import EmrServerless
from scripts.helpers.job_runs.engines import Glue, SparkSubmit, absolute, is_python_shell
from scripts.helpers.job_runs.job_record import A_WORKER, MAX_WAITING, JobRecord, TriggerRecord
from scripts.helpers.job_runs.run_record import TERMINAL, RunRecord
from scripts.helpers.job_runs.run_store import RunStore, lost_race
from scripts.helpers.job_runs.scheduler import START_LEASE, Scheduler
from scripts.helpers.protocol.names import check_job_id
from scripts.helpers.protocol.races import TO_CHANGE_A_JOB, Lost, Written
from scripts.helpers.watermarks import DEFAULT_TABLE, Watermarks

__all__ = ["EmrServerless", "Glue", "JobRuns", "SparkSubmit"]

logger = logging.getLogger(__name__)

Answer = dict[str, Any]
Call = TypeVar("Call", bound=Callable[..., Answer])

KEEP = timedelta(days=90)
"""For how long Glue keeps the history of runs."""
QUEUE_TIME = timedelta(hours=24)
"""A daily job's run that waited for so long would meet the next one."""


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
            answer: Answer = getattr(self._glue, method.__name__)(**request)
            return answer
        given = shapes.check(name, request)
        with _named(name):
            return {**method(self, **given), "ResponseMetadata": response_metadata(200)}

    return cast("Call", call)


class JobRuns:
    """The Job Runs API of AWS Glue: names, arguments, answers, limits and errors of ``boto3.client("glue")``.

    With the engine `Glue` every call goes to Glue. With `SparkSubmit` jobs run on this machine's
    Spark, or on the master that it names, and with `EmrServerless` on an application of that. Their records are kept
    in the table of the watermarks.
    Any call may be repeated after an error, and whatever process dies, the next worker brings the
    runs of the job up to date.

    Calls that read change and start nothing. `start_job_run` starts the one run that it makes, where a
    slot is free. All else is started by a worker, for the jobs that it is given: `tend`, `work`, or
    ``watermarks work``. What any of them starts has to be within the limits of its engine.

    Parameters
    ----------
    table
        A `Watermarks`, or the name of its table. Not used with `Glue`.
    engine
        None: runs can be looked at and stopped, and none can be started. `SparkSubmit` starts scripts in
        the places that its `scripts` names.
    queue_time
        How long a run waits for a slot before it has EXPIRED.
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
        engine: Glue | SparkSubmit | EmrServerless | None = None,
        *,
        queue_time: timedelta = QUEUE_TIME,
        keep: timedelta | None = KEEP,
        clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        # Glue's client has the same calls, and more: `__getattr__` passes those on.
        self._glue = engine.client if isinstance(engine, Glue) else None
        if isinstance(engine, Glue):
            return
        if queue_time <= timedelta(0) or (keep is not None and keep <= timedelta(0)):
            raise InvalidValueError("queue_time and keep must be above 0.")
        self.engine = engine
        self._watermarks = table if isinstance(table, Watermarks) else Watermarks(table)
        self._records = RunStore(self._watermarks.store, keep)
        self.scheduler = Scheduler(self._records, engine, clock, queue_time)

    def __getattr__(self, name: str) -> Any:
        """Pass on Glue's other calls, such as ``get_system_logs_for_job_run``, where the engine is Glue."""
        if not name.startswith("_") and self._glue is not None:
            return getattr(self._glue, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

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

        Runs at work go on and can commit nothing any more; those that wait end as ERROR. A second call deletes nothing.
        """
        name = request["JobName"]
        job = self._records.job(name)
        if job is not None and job.definition is not None:
            self._delete_bookmark(name)

        def delete(job: JobRecord | None) -> JobRecord | None:
            # The record stays, for the runs that are still in its lists.
            return job.changed(definition=None) if job and job.definition is not None else job

        self._records.change_job(name, delete)
        self.scheduler.settle(name)  # Ends the runs that wait.
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
        """Start a run of `JobName`; return its ``JobRunId``. It begins at once where a slot is free.

        Where none is, it waits for a worker, as its retries do. InvalidInputException for a script or an argument
        that the engine does not allow: its ``__cause__`` is a ScriptNotAllowedError or ArgumentNotAllowedError.
        EntityNotFoundException for an unknown job or `JobRunId`, ConcurrentRunsExceededException where no slot is
        free and `JobRunQueuingEnabled` is not set. With `JobRunId` it repeats that run under a new id.
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
        has_tended = False

        def take(job: JobRecord | None) -> JobRecord:
            nonlocal made, has_tended
            job = _defined(job, name)
            if not job.has_free_slot and not has_tended:
                # Runs that ended without anybody looking still hold their slots. Once is enough: if it changes the
                # record, the write below fails, and this is called again with the record as it is then.
                has_tended = True
                job = _defined(self.scheduler.settle(name), name)
            made = job.new_run(run_id, wanted, now)
            shapes.check_capacity(made.told, is_python_shell(made))
            engine.check(made)  # As does the one that launches it: that may be another one, with other limits.
            made.check_new()  # What is too large is refused before anything is changed.
            if job.has_free_slot:
                return job.started(run_id, now)
            _check_may_wait(job, made)
            return job.queued(run_id, now)

        job = self._records.change_job(name, take)
        assert job is not None
        assert made is not None
        self._record(made, starts=job.has_slot(run_id))
        return {"JobRunId": run_id}

    def _record(self, run: RunRecord, starts: bool) -> None:
        """Write the record of a run that is in its list, and start its launcher if it has a slot.

        From here on the run has a place, and whoever looks later goes on with it. So what goes wrong
        now is no error of the start: its caller would start a second run.
        """
        now = self.scheduler.clock()
        if starts:
            run = replace(run.to("STARTING", now), lease=START_LEASE)
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
            if not starts:
                # A worker may have given it a slot before it had a record.
                job = self._records.job(run.job_name)
                if job is not None and job.has_slot(run.run_id):
                    self.scheduler.launch(run.job_name, run.run_id)
            elif isinstance(outcome, Written):  # Whoever wrote another record of it starts it too.
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
        """Return run `RunId` of `JobName` under ``JobRun``; with `PredecessorsIncluded` also what triggered it.

        Only looks. A run whose launcher has given no sign for its lease is shown as the ERROR that it is.
        """
        # Nothing is written or started: who may write the job's items must not act through who looks.
        run = self.scheduler.seen(self._run(request["JobName"], request["RunId"]))
        return {"JobRun": run.to_job_run(request.get("PredecessorsIncluded", False))}

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

    # --- triggers -------------------------------------------------------------------------------

    @operation
    def create_trigger(self, **request: Any) -> Answer:
        """Start `Actions` each time a run of the job in `Predicate` ends in its state; once per run, whatever crashes.

        `Type` is CONDITIONAL. As in Glue it does nothing before `start_trigger`, or with `StartOnCreation`.
        The jobs of its actions are made to accept it, which takes the right to write their items.
        """
        name = check_job_id(request.pop("Name"), self._watermarks.job_id_rule)
        request.pop("Tags", None)
        request["Actions"] = [_checked_arguments(action["JobName"], action) for action in request["Actions"]]
        predicate = request["Predicate"]
        if len(predicate["Conditions"]) > 1 and predicate.get("Logical", "AND") == "AND":
            raise InvalidInputException(
                "A trigger waits for one condition, or for ANY of several. Chain triggers to wait for all."
            )
        state = "ACTIVATED" if request.pop("StartOnCreation", False) else "CREATED"
        trigger = TriggerRecord(name, request, state)
        for job_name, _ in trigger.roles:
            self._job(job_name)
        taken = AlreadyExistsException(f"Trigger {name!r} already exists. Delete it first.")
        if self._records.trigger(name) is not None:
            raise taken

        # Names first: one without a trigger does nothing, so what breaks off in between does no harm. A trigger whose
        # name no job has would be there to be seen, and never fire.
        for job_name, role in trigger.roles:
            self._list(role, job_name, name, True)
        if not self._records.write(None, trigger):
            raise taken
        return {"Name": name}

    def _list(self, role: str, job_name: str, trigger: str, is_in: bool) -> None:
        self._records.change_job(job_name, lambda job: job.with_trigger(role, trigger, is_in) if job else None)

    @operation
    def get_trigger(self, **request: Any) -> Answer:
        """Return trigger `Name` under ``Trigger``."""
        return {"Trigger": self._trigger(request["Name"]).to_trigger()}

    @operation
    def start_trigger(self, **request: Any) -> Answer:
        """Let trigger `Name` fire from now on."""
        return self._switch(request["Name"], "ACTIVATED")

    @operation
    def stop_trigger(self, **request: Any) -> Answer:
        """Let trigger `Name` fire no more until it is started again."""
        return self._switch(request["Name"], "DEACTIVATED")

    def _switch(self, name: str, state: str) -> Answer:
        for _ in TO_CHANGE_A_JOB.races(self._records.store.sleep):
            trigger = self._trigger(name)
            if trigger.state == state or self._records.write(trigger, trigger.in_state(state)):
                return {"Name": name}
        raise lost_race("trigger")

    @operation
    def delete_trigger(self, **request: Any) -> Answer:
        """Delete trigger `Name`. None to delete is no error."""
        name = request["Name"]
        trigger = self._records.trigger(name)
        # Names first: while the trigger is there, who repeats a call that broke off still finds which jobs have it.
        for job_name, role in trigger.roles if trigger else ():
            self._list(role, job_name, name, False)
        self._records.delete_trigger(name)
        return {"Name": name}

    def accept_trigger(self, job_name: str, trigger: str) -> None:
        """Let a trigger start runs of a job, as `create_trigger` does for the jobs that it starts.

        Not a call of Glue. It is for triggers that were made before jobs had to accept them, or by others.

        Raises
        ------
        EntityNotFoundException
            There is no such job.
        """
        self._allow("accept_trigger", job_name, trigger, True)

    def refuse_trigger(self, job_name: str, trigger: str) -> None:
        """Let a trigger start no more runs of a job. Not a call of Glue."""
        self._allow("refuse_trigger", job_name, trigger, False)

    def _allow(self, call: str, job_name: str, trigger: str, accepts: bool) -> None:
        self._check_is_own(call)
        with _named("AcceptTrigger"):
            self._job(job_name)
            self._list("accepts", job_name, trigger, accepts)

    # --- workers, and who waits -----------------------------------------------------------------

    def tend(
        self, job_names: str | Collection[str], on_start: Callable[[dict[str, str]], None] = lambda _: None
    ) -> list[dict[str, str]]:
        """Do a worker's work on some jobs once: end lost runs, make retries, fire triggers, start what has its turn.

        Parameters
        ----------
        job_names
            The jobs whose runs may be started. A run that a trigger makes of another job waits for a worker of that.
        on_start
            Called with each run that is started, also where another job raises an error.

        Returns
        -------
        list of dict
            ``JobName`` and ``JobRunId`` of each run that was started. Empty without an engine, which starts nothing.

        Raises
        ------
        InvalidValueError
            No job is named.
        GlueApiError
            As of other calls, if a job could not be looked after; the others were.
        """
        names = [job_names] if isinstance(job_names, str) else list(job_names)
        if not names or not all(isinstance(name, str) and name for name in names):
            raise InvalidValueError("tend: no job is named. Name each job whose runs may be started.")
        self._check_is_own("tend")
        started: list[dict[str, str]] = []

        def note(run: RunRecord) -> None:
            started.append({"JobName": run.job_name, "JobRunId": run.run_id})
            on_start(started[-1])

        with _named("Tend"):
            self.scheduler.tend(names, note)
        return started

    def work(
        self,
        job_names: str | Collection[str],
        pause: float = 1.0,
        is_over: Callable[[], bool] = lambda: False,
        on_start: Callable[[dict[str, str]], None] = lambda _: None,
    ) -> None:
        """Be a worker: `tend` some jobs every `pause` seconds, until `is_over`. Runs at work then go on.

        Errors of the table are logged, and it goes on. `on_start` is called with each run that was started.
        """
        while not is_over():
            try:
                self.tend(job_names, on_start)
            except GlueApiError as error:
                logger.warning("event=work_failed error=%s", error)
            time.sleep(pause)

    def wait(self, job_name: str, run_id: str, seconds: float = 600.0, pause: float = 0.2) -> Answer:
        """Wait until a run is over, and return its JobRun; as it is now once `seconds` have passed.

        Only looks. A run that has begun is brought to its end by its launcher, also if no worker is there, and is
        an ERROR a lease after its launcher was lost. One that is WAITING begins when a worker starts it, as do
        retries and what triggers start: `tend`, `work`, or ``watermarks work``. A WARNING says so.
        """
        until, has_warned = time.monotonic() + seconds, False
        while True:
            run: Answer = self.get_job_run(JobName=job_name, RunId=run_id)["JobRun"]
            if run["JobRunState"] == "WAITING" and not has_warned and self._glue is None:
                has_warned = True
                logger.warning("event=waits_for_worker job=%s run=%s: %s", job_name, run_id, A_WORKER)
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

    def _trigger(self, name: str) -> TriggerRecord:
        trigger = self._records.trigger(name)
        if trigger is None:
            raise EntityNotFoundException(f"Trigger {name} not found. Make it with create_trigger.")
        return trigger

    def _check_is_own(self, call: str) -> None:
        if self._glue is not None:
            raise InvalidValueError(f"{call} is for engines other than Glue, which starts its runs itself.")


def _defined(job: JobRecord | None, name: str) -> JobRecord:
    if job is None or job.definition is None:
        raise EntityNotFoundException(f"Job {name} not found. Make it with create_job.")
    return job


def _run_not_found(name: str, run_id: str) -> GlueApiError:
    return EntityNotFoundException(f"Job run {run_id} not found. get_job_runs lists the runs of job {name}.")


def _check_may_wait(job: JobRecord, run: RunRecord) -> None:
    """Refuse a run that finds no free slot, unless it may wait and there is a place for it."""
    if not run.told.get("JobRunQueuingEnabled"):
        raise ConcurrentRunsExceededException(
            f"Concurrent runs exceeded for {job.name}: {len(job.active)} of {job.slots} are at work and "
            f"{len(job.waiting)} wait. Start it later, raise ExecutionProperty.MaxConcurrentRuns, or set "
            "JobRunQueuingEnabled."
        )
    if job.is_full:
        raise ResourceNumberLimitExceededException(
            f"{MAX_WAITING} runs of job {job.name!r} wait already. Start it later."
        )


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
