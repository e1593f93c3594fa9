"""The Job Runs API where Glue is not: requests in Glue's shape to records and launchers."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from scripts.helpers.errors import StoreUnavailableError, WatermarkError
from scripts.helpers.glue_api import errors as glue_errors
from scripts.helpers.glue_api.errors import (
    ConcurrentRunsExceededException,
    GlueApiError,
    InvalidInputException,
    OperationTimeoutException,
    ResourceNumberLimitExceededException,
)
from scripts.helpers.glue_api.pages import paginator
from scripts.helpers.job_runs import ids, shapes, states
from scripts.helpers.job_runs.definitions import Definitions
from scripts.helpers.job_runs.engines import SparkSubmit
from scripts.helpers.job_runs.job_record import MAX_WAITING, JobRecord
from scripts.helpers.job_runs.operations import Answer, Request, operation
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.job_runs.run_store import LostRaceError
from scripts.helpers.job_runs.scheduler import START_LEASE, Scheduler
from scripts.helpers.job_runs.triggers import Triggers

logger = logging.getLogger(__name__)


class RunsService(Definitions, Triggers):
    """What `JobRuns` calls when the engine is not Glue. Methods have the names and requests of boto3's client."""

    exceptions = glue_errors

    def __init__(self, scheduler: Scheduler, engine: SparkSubmit | None, job_id_rule: str) -> None:
        super().__init__(scheduler, job_id_rule)
        self._engine = engine

    @operation("StartJobRun")
    def start_job_run(self, given: Request) -> Answer:
        """Take a slot or a place in the queue, write the run's record, start its launcher."""
        name = given["JobName"]
        if self._engine is None:
            raise InvalidInputException("There is no engine to run it. Give JobRuns an engine=.", "StartJobRun")
        self._job(name, "StartJobRun")
        wanted = self._arguments(self._as_retry(given) if "JobRunId" in given else given, "StartJobRun")
        now = self._scheduler.clock()
        run_id = ids.new_id(now)
        made: list[RunRecord] = []
        tended: list[bool] = []

        def take(job: JobRecord | None) -> JobRecord:
            job = self._defined(job, name, "StartJobRun")
            if not job.has_free_slot and not tended:
                tended.append(True)
                job = self._defined(self._scheduler.tend(name), name, "StartJobRun")
            run = self._scheduler.new_run(run_id, name, job.definition, wanted, now)
            run.check_size()  # What is too large is refused before anything is changed.
            made[:] = [run]
            if job.has_free_slot:
                return job.started(run_id, now)
            if not run.told.get("JobRunQueuingEnabled"):
                raise ConcurrentRunsExceededException(
                    f"Concurrent runs exceeded for {name}: {len(job.active)} of {job.slots} are at work and "
                    f"{len(job.waiting)} wait. Start it later, raise ExecutionProperty.MaxConcurrentRuns, or set "
                    "JobRunQueuingEnabled.",
                    "StartJobRun",
                )
            if job.is_full:
                raise ResourceNumberLimitExceededException(
                    f"{MAX_WAITING} runs of job {name!r} wait already. Start it later.", "StartJobRun"
                )
            return job.queued(run_id, now)

        _, job = self._records.change_job(name, take)
        assert job is not None
        self._record(made[0], starts=any(entry.run_id == run_id for entry in job.active))
        return {"JobRunId": run_id}

    def _record(self, run: RunRecord, starts: bool) -> None:
        """Write the record of a run that is in its list, and start its launcher if it has a slot.

        From here on the run has a place, and whoever looks later goes on with it. So what goes wrong
        now is no error of the start: its caller would start a second run.
        """
        now = self._scheduler.clock()
        if starts:
            run = replace(run.to("STARTING", now), lease_until=now + START_LEASE)
        written: RunRecord | None = run
        try:
            written = self._records.write_run(None, run)
        except StoreUnavailableError as error:
            logger.warning("event=start_unsure run=%s error=%s", run.run_id, type(error).__name__)
        if written is None or written.state == "ERROR":
            raise OperationTimeoutException(
                f"The start of run {run.run_id!r} took too long and was given up. Start it again.", "StartJobRun"
            )
        try:
            if not starts:
                self._scheduler.tend(run.job_name, {run.run_id})  # It may have got a slot before it had a record.
            elif written.token == run.token:
                self._scheduler.start(run)
        except (WatermarkError, LostRaceError) as error:
            logger.warning("event=start_unfinished run=%s error=%s", run.run_id, type(error).__name__)

    def _as_retry(self, given: Request) -> Request:
        """Return a request with what the run had that it repeats."""
        before = self._run(given["JobName"], given["JobRunId"], "StartJobRun")
        if not before.is_over:
            raise InvalidInputException(
                f"Job run {before.run_id!r} is {before.state}. Only a run that is over can be retried.", "StartJobRun"
            )
        if "Timeout" not in before.told:
            raise InvalidInputException(
                f"Job run {before.run_id!r} was never recorded with its arguments. Start a new run with them.",
                "StartJobRun",
            )
        arguments = {**before.told["Arguments"], **given.get("Arguments", {})}
        earlier = {"Timeout": before.told["Timeout"]}
        return earlier | given | {"Arguments": arguments, "PreviousRunId": before.run_id}

    @operation("GetJobRun")
    def get_job_run(self, given: Request) -> Answer:
        """Read a run, after what has to follow by now."""
        name = given["JobName"]
        run = self._run(name, given["RunId"], "GetJobRun")
        if run.state not in states.AT_WORK or run.is_lost(self._scheduler.clock()):
            self._scheduler.tend(name, {run.run_id})
            run = self._run(name, given["RunId"], "GetJobRun")
        return {"JobRun": run.to_job_run(given.get("PredecessorsIncluded", False))}

    @operation("GetJobRuns")
    def get_job_runs(self, given: Request) -> Answer:
        """Read a page of runs, after what has to follow by now."""
        name, limit, after = given["JobName"], given.get("MaxResults", shapes.MAX_PAGE), given.get("NextToken")
        if after is not None and not ids.is_run_id(after):
            raise InvalidInputException("The NextToken is none of ours. Pass on that of the page before.", "GetJobRuns")
        job = self._scheduler.tend(name)
        found = self._records.newest_runs(name, limit + 1, after)
        if not found:
            self._defined(job, name, "GetJobRuns")
        page = {"JobRuns": [run.to_job_run() for run in found[:limit]]}
        return page | ({"NextToken": found[limit - 1].run_id} if len(found) > limit else {})

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
            except GlueApiError as error:
                detail = {"ErrorCode": type(error).__name__, "ErrorMessage": error.message}
                errors.append({"JobName": name, "JobRunId": run_id, "ErrorDetail": detail})
        self._scheduler.tend(name, given["JobRunIds"])
        return {"SuccessfulSubmissions": stopped, "Errors": errors}

    def _stop(self, name: str, run_id: str) -> None:
        def stop(run: RunRecord) -> RunRecord:
            now = self._scheduler.clock()
            if run.is_over:
                raise InvalidInputException(
                    f"Job run {run_id!r} is {run.state} already, so there is nothing to stop.", "BatchStopJobRun"
                )
            if run.state == "WAITING":
                return self._scheduler.over(run.to("STOPPED", now))
            return run if run.state == "STOPPING" else run.to("STOPPING", now)

        self._records.change_run(self._run(name, run_id, "BatchStopJobRun"), stop)
