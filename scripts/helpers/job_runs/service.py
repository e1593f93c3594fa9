"""The Job Runs API where Glue is not: each operation from its request to records and launchers, and back."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from scripts.helpers.errors import StoreUnavailableError, UnknownJobError, WatermarkError
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
from scripts.helpers.job_runs import capacity, ids, shapes
from scripts.helpers.job_runs.emr_serverless import EmrServerless
from scripts.helpers.job_runs.engines import RESERVED, SCRIPT_LOCATION, SparkSubmit, absolute, is_python_shell
from scripts.helpers.job_runs.job_record import MAX_WAITING, JobRecord, TriggerRecord
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.job_runs.run_store import LostRaceError
from scripts.helpers.job_runs.scheduler import START_LEASE, Scheduler
from scripts.helpers.protocol.names import check_job_id
from scripts.helpers.protocol.races import TO_CHANGE_A_JOB, Lost, Written
from scripts.helpers.watermarks import Watermarks

logger = logging.getLogger(__name__)

Request = dict[str, Any]
Answer = dict[str, Any]
S = TypeVar("S")


class _RefusedError(Exception):
    """A request that is refused; `operation` makes it Glue's error of this kind, which also names the operation."""

    def __init__(self, kind: type[GlueApiError], message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


@contextmanager
def _named(operation_name: str) -> Iterator[None]:
    """Give what goes wrong Glue's name for it."""
    try:
        yield
    except _RefusedError as refused:
        raise refused.kind(refused.message, operation_name) from None
    except LostRaceError as error:
        raise OperationTimeoutException(str(error), operation_name) from error
    except WatermarkError as error:
        raise named_as_by_glue(error, operation_name) from error


def operation(name: str) -> Callable[[Callable[[S, Request], Answer]], Callable[..., Answer]]:
    """Make an operation of a method: its keyword arguments are checked, and what goes wrong has Glue's name for it."""

    def decorate(method: Callable[[S, Request], Answer]) -> Callable[..., Answer]:
        @functools.wraps(method)
        def call(self: S, **request: Any) -> Answer:
            given = shapes.check(name, request)
            with _named(name):
                return {**method(self, given), "ResponseMetadata": response_metadata(200)}

        return call

    return decorate


class RunsService:
    """What `JobRuns` calls when the engine is not Glue. Methods have the names and requests of boto3's client.

    Parameters
    ----------
    engine
        None: no run can be started.
    watermarks
        Says which names of jobs and triggers are taken, and forgets those of a job that is deleted.
    """

    exceptions = glue_errors

    def __init__(
        self, scheduler: Scheduler, engine: SparkSubmit | EmrServerless | None, watermarks: Watermarks
    ) -> None:
        self.scheduler, self._records = scheduler, scheduler.records
        self.engine, self._watermarks, self._job_id_rule = engine, watermarks, watermarks.job_id_rule

    # --- jobs -----------------------------------------------------------------------------------

    @operation("CreateJob")
    def create_job(self, given: Request) -> Answer:
        """Write a definition."""
        name = check_job_id(given.pop("Name"), self._job_id_rule)
        wanted = _checked_definition(name, given)
        wanted.pop("Tags", None)

        def create(job: JobRecord | None) -> JobRecord:
            if job is not None and job.definition is not None:
                raise _RefusedError(AlreadyExistsException, f"Job {name!r} already exists. Use update_job.")
            now = self.scheduler.clock()
            definition = wanted | {"CreatedOn": now, "LastModifiedOn": now}
            # A record without a definition is that of a deleted job: runs of it may still be in its lists.
            return job.changed(definition=definition) if job else JobRecord(name, definition)

        self._records.change_job(name, create)
        return {"Name": name}

    @operation("GetJob")
    def get_job(self, given: Request) -> Answer:
        """Read a definition."""
        job = self._job(given["JobName"])
        assert job.definition is not None
        limits = {"ExecutionProperty": {"MaxConcurrentRuns": 1}, "MaxRetries": 0}
        return {"Job": {"Name": job.name} | limits | dict(job.definition)}

    @operation("UpdateJob")
    def update_job(self, given: Request) -> Answer:
        """Replace a definition."""
        name = given["JobName"]
        wanted = _checked_definition(name, given["JobUpdate"])

        def update(job: JobRecord | None) -> JobRecord:
            before = _defined(job, name)
            assert before.definition is not None
            times = {"CreatedOn": before.definition["CreatedOn"], "LastModifiedOn": self.scheduler.clock()}
            return before.changed(definition=wanted | times)

        self._records.change_job(name, update)
        return {"JobName": name}

    @operation("DeleteJob")
    def delete_job(self, given: Request) -> Answer:
        """Delete a definition and its bookmark; the record stays for the runs that are still in its lists."""
        name = given["JobName"]
        job = self._records.job(name)
        if job is not None and job.definition is not None:
            self._delete_bookmark(name)

        def delete(job: JobRecord | None) -> JobRecord | None:
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

    @operation("StartJobRun")
    def start_job_run(self, given: Request) -> Answer:
        """Take a slot or a place in the queue, write the run's record, start its launcher; no other run's."""
        name = given["JobName"]
        engine = self.engine
        if engine is None:
            raise _RefusedError(InvalidInputException, "There is no engine to run it. Give JobRuns an engine=.")
        self._job(name)
        wanted = _checked_arguments(self._as_retry(given) if "JobRunId" in given else given)
        _say_without_effect(name, given)
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
            made = self.scheduler.new_run(run_id, name, job.definition, wanted, now)
            _check_capacity(made.told, is_python_shell(made))
            engine.check(made)  # As does the one that launches it: that may be another one, with other limits.
            made.check_size()  # What is too large is refused before anything is changed.
            if job.has_free_slot:
                return job.started(run_id, now)
            _check_may_wait(job, made)
            return job.queued(run_id, now)

        _, job = self._records.change_job(name, take)
        assert job is not None
        assert made is not None
        self._record(made, starts=any(entry.run_id == run_id for entry in job.active))
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
            raise _RefusedError(
                OperationTimeoutException,
                f"The start of run {run.run_id!r} took too long and was given up. Start it again.",
            )
        try:
            if not starts:
                # A worker may have given it a slot before it had a record.
                job = self._records.job(run.job_name)
                if job is not None and any(entry.run_id == run.run_id for entry in job.active):
                    self.scheduler.launch(run.job_name, run.run_id)
            elif isinstance(outcome, Written):  # Whoever wrote another record of it starts it too.
                self.scheduler.start(run)
        except (WatermarkError, LostRaceError) as error:
            logger.warning("event=start_unfinished run=%s error=%s", run.run_id, type(error).__name__)

    def _as_retry(self, given: Request) -> Request:
        """Return a request with what the run had that it repeats."""
        before = self._run(given["JobName"], given["JobRunId"])
        if self.scheduler.is_lost(before):
            self.scheduler.settle(before.job_name)
            before = self._run(before.job_name, before.run_id)
        if not before.is_over:
            raise _RefusedError(
                InvalidInputException,
                f"Job run {before.run_id!r} is {before.state}. Only a run that is over can be retried.",
            )
        # Every request that was recorded has a Timeout. Without one, the start broke off before its record was there,
        # and a retry would run with no arguments at all.
        if "Timeout" not in before.told:
            raise _RefusedError(
                InvalidInputException,
                f"Job run {before.run_id!r} was never recorded with its arguments. Start a new run with them.",
            )
        retry = {"Timeout": before.told["Timeout"], **given}
        # One by one: a retry that gives an argument keeps the others of its run.
        retry["Arguments"] = {**before.told["Arguments"], **given.get("Arguments", {})}
        retry["PreviousRunId"] = before.run_id
        return retry

    @operation("GetJobRun")
    def get_job_run(self, given: Request) -> Answer:
        """Read a run. Nothing is written or started: who may write the job's items must not act through who looks."""
        run = self.scheduler.seen(self._run(given["JobName"], given["RunId"]))
        return {"JobRun": run.to_job_run(given.get("PredecessorsIncluded", False))}

    @operation("GetJobRuns")
    def get_job_runs(self, given: Request) -> Answer:
        """Read a page of runs. Nothing is written or started."""
        name, limit, after = given["JobName"], given.get("MaxResults", shapes.MAX_PAGE), given.get("NextToken")
        if after is not None and not ids.is_run_id(after):
            raise _RefusedError(
                InvalidInputException, "The NextToken is invalid. Pass the NextToken of the previous page."
            )
        found = self._records.newest_runs(name, limit + 1, after)  # One more says whether there is another page.
        if not found:
            self._job(name)  # Runs outlive their job's definition, so a job without one may still have some.
        answer: Answer = {"JobRuns": [self.scheduler.seen(run).to_job_run() for run in found[:limit]]}
        if len(found) > limit:
            answer["NextToken"] = found[limit - 1].run_id
        return answer

    def get_paginator(self, operation_name: str) -> Any:
        """Return botocore's paginator of ``get_job_runs``."""
        return paginator(operation_name, {"get_job_runs": ("JobRuns", self.get_job_runs)})

    @operation("BatchStopJobRun")
    def batch_stop_job_run(self, given: Request) -> Answer:
        """Ask launchers to stop; end what waits."""
        name, stopped, errors = given["JobName"], [], []
        for run_id in given["JobRunIds"]:
            try:
                self._stop(name, run_id)
                stopped.append({"JobName": name, "JobRunId": run_id})
            except _RefusedError as refused:
                detail = {"ErrorCode": refused.kind.__name__, "ErrorMessage": refused.message}
                errors.append({"JobName": name, "JobRunId": run_id, "ErrorDetail": detail})
        self.scheduler.settle(name, given["JobRunIds"])
        return {"SuccessfulSubmissions": stopped, "Errors": errors}

    def _stop(self, name: str, run_id: str) -> None:
        before = self._recorded_run(name, run_id)
        if before is None:
            raise _run_not_found(name, run_id)

        def stop(run: RunRecord) -> RunRecord:
            now = self.scheduler.clock()
            if run.is_over:
                raise _RefusedError(
                    InvalidInputException, f"Job run {run_id!r} is {run.state} already, so there is nothing to stop."
                )
            if run.state == "WAITING":
                return self.scheduler.over(run.to("STOPPED", now))
            return run if run.state == "STOPPING" else run.to("STOPPING", now)

        self._records.change_run(before, stop)

    # --- triggers -------------------------------------------------------------------------------

    @operation("CreateTrigger")
    def create_trigger(self, given: Request) -> Answer:
        """Write a trigger, and its name into the records of the jobs that it watches and of those that it starts."""
        name = check_job_id(given.pop("Name"), self._job_id_rule)
        given.pop("Tags", None)
        given["Actions"] = [_checked_arguments(action) for action in given["Actions"]]
        predicate = given["Predicate"]
        if len(predicate["Conditions"]) > 1 and predicate.get("Logical", "AND") == "AND":
            raise _RefusedError(
                InvalidInputException,
                "A trigger waits for one condition, or for ANY of several. Chain triggers to wait for all.",
            )
        state = "ACTIVATED" if given.pop("StartOnCreation", False) else "CREATED"
        watched = {condition["JobName"] for condition in predicate["Conditions"]}
        started = {action["JobName"] for action in given["Actions"]}
        for job_name in sorted(watched | started):
            self._job(job_name)
        taken = _RefusedError(AlreadyExistsException, f"Trigger {name!r} already exists. Delete it first.")
        if self._records.trigger(name) is not None:
            raise taken

        def attach(job: JobRecord | None) -> JobRecord | None:
            return job if job is None or name in job.triggers else job.changed(triggers=(*job.triggers, name))

        # Names first: one without a trigger does nothing, so what breaks off in between does no harm. A trigger whose
        # name no job has would be there to be seen, and never fire.
        for job_name in sorted(watched):
            self._records.change_job(job_name, attach)
        for job_name in sorted(started):
            self._accept(job_name, name, True)
        if not self._records.write_trigger(None, TriggerRecord(name, given, state)):
            raise taken
        return {"Name": name}

    def accept_trigger(self, job_name: str, trigger: str, accepts: bool) -> None:
        """Write into a job's record whether a trigger may start runs of it; errors have Glue's names."""
        with _named("AcceptTrigger"):
            self._job(job_name)
            self._accept(job_name, trigger, accepts)

    def tend(self, job_names: Collection[str]) -> list[RunRecord]:
        """Do a worker's work on some jobs, and return the runs that were started; errors have Glue's names."""
        with _named("Tend"):
            return self.scheduler.tend(job_names)

    def _accept(self, job_name: str, trigger: str, accepts: bool) -> None:
        def accept(job: JobRecord | None) -> JobRecord | None:
            if job is None or (trigger in job.accepts) == accepts:
                return job
            others = tuple(one for one in job.accepts if one != trigger)
            return job.changed(accepts=(*others, trigger) if accepts else others)

        self._records.change_job(job_name, accept)

    @operation("GetTrigger")
    def get_trigger(self, given: Request) -> Answer:
        """Read a trigger."""
        return {"Trigger": self._trigger(given["Name"]).to_trigger()}

    @operation("StartTrigger")
    def start_trigger(self, given: Request) -> Answer:
        """Activate a trigger."""
        return self._switch(given["Name"], "ACTIVATED")

    @operation("StopTrigger")
    def stop_trigger(self, given: Request) -> Answer:
        """Deactivate a trigger."""
        return self._switch(given["Name"], "DEACTIVATED")

    def _switch(self, name: str, state: str) -> Answer:
        for _ in TO_CHANGE_A_JOB.races(self._records.store.sleep):
            trigger = self._trigger(name)
            if trigger.state == state or self._records.write_trigger(trigger, trigger.in_state(state)):
                return {"Name": name}
        raise LostRaceError("trigger")

    @operation("DeleteTrigger")
    def delete_trigger(self, given: Request) -> Answer:
        """Delete a trigger, and its name from the jobs that it watches and starts."""
        name = given["Name"]
        trigger = self._records.trigger(name)

        def detach(job: JobRecord | None) -> JobRecord | None:
            if job is None or name not in job.triggers:
                return job
            return job.changed(triggers=tuple(one for one in job.triggers if one != name))

        # Names first: while the trigger is there, who repeats a call that broke off still finds which jobs have it.
        for condition in trigger.definition["Predicate"]["Conditions"] if trigger else ():
            self._records.change_job(condition["JobName"], detach)
        for action in trigger.definition["Actions"] if trigger else ():
            self._accept(action["JobName"], name, False)
        self._records.delete_trigger(name)
        return {"Name": name}

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
            raise _RefusedError(EntityNotFoundException, f"Trigger {name} not found. Make it with create_trigger.")
        return trigger


def _defined(job: JobRecord | None, name: str) -> JobRecord:
    if job is None or job.definition is None:
        raise _RefusedError(EntityNotFoundException, f"Job {name} not found. Make it with create_job.")
    return job


def _run_not_found(name: str, run_id: str) -> _RefusedError:
    return _RefusedError(
        EntityNotFoundException, f"Job run {run_id} not found. get_job_runs lists the runs of job {name}."
    )


def _check_may_wait(job: JobRecord, run: RunRecord) -> None:
    """Refuse a run that finds no free slot, unless it may wait and there is a place for it."""
    if not run.told.get("JobRunQueuingEnabled"):
        raise _RefusedError(
            ConcurrentRunsExceededException,
            f"Concurrent runs exceeded for {job.name}: {len(job.active)} of {job.slots} are at work and "
            f"{len(job.waiting)} wait. Start it later, raise ExecutionProperty.MaxConcurrentRuns, or set "
            "JobRunQueuingEnabled.",
        )
    if job.is_full:
        raise _RefusedError(
            ResourceNumberLimitExceededException,
            f"{MAX_WAITING} runs of job {job.name!r} wait already. Start it later.",
        )


def _checked_definition(name: str, given: Mapping[str, Any]) -> Answer:
    """Return a definition, or refuse it; warn of what it has that changes nothing here."""
    found = _checked_arguments(given)
    _check_capacity(found, found["Command"].get("Name") == "pythonshell")
    _say_without_effect(name, given)
    return found


def _check_capacity(wanted: Mapping[str, Any], is_shell: bool) -> None:
    if wrong := capacity.problems(wanted, is_shell):
        raise _RefusedError(InvalidInputException, f"{'; '.join(wrong)}.")


def _say_without_effect(name: str, given: Mapping[str, Any]) -> None:
    if members := capacity.without_effect(given):
        logger.warning(
            "event=without_effect job=%s count=%d members=%s: only Glue's machines know them. Spark's sizes are set by "
            "--conf, or by the engine", name, len(members), ",".join(members),
        )  # fmt: skip


def _checked_arguments(holder: Mapping[str, Any]) -> Answer:
    """Return what holds arguments, with a local script as an absolute path; refuse arguments that nobody may give.

    The process that starts the run later may be in another folder.
    """
    found = dict(holder)
    for member in ("Arguments", "DefaultArguments", "NonOverridableArguments"):
        if member not in found:
            continue
        reserved = found[member].keys() & set(RESERVED)
        if reserved:
            raise _RefusedError(
                InvalidInputException, f"Argument {', '.join(sorted(reserved))} is set for each run. Leave it out."
            )
        if SCRIPT_LOCATION in found[member]:
            raise _RefusedError(
                InvalidInputException,
                f"Argument {SCRIPT_LOCATION} would replace the job's script. Set Command.ScriptLocation of the job.",
            )
    if "Command" in found:
        found["Command"] = found["Command"] | {"ScriptLocation": absolute(found["Command"]["ScriptLocation"])}
    return found
