"""What all operations of the Job Runs API share: checked requests, Glue's names for errors, and look-ups by name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from scripts.helpers.errors import WatermarkError
from scripts.helpers.glue_api.errors import (
    EntityNotFoundException,
    GlueApiError,
    InvalidInputException,
    OperationTimeoutException,
    named_as_by_glue,
)
from scripts.helpers.job_runs import ids, shapes
from scripts.helpers.job_runs.engines import RESERVED, SCRIPT_LOCATION, absolute
from scripts.helpers.job_runs.job_record import JobRecord, TriggerRecord
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.job_runs.run_store import LostRaceError
from scripts.helpers.job_runs.scheduler import Scheduler
from scripts.helpers.protocol.names import check_job_id

Request = dict[str, Any]
Answer = dict[str, Any]
S = TypeVar("S")


def operation(name: str) -> Callable[[Callable[[S, Request], Answer]], Callable[..., Answer]]:
    """Make an operation of a method: its keyword arguments are checked, and what goes wrong has Glue's name for it."""

    def decorate(method: Callable[[S, Request], Answer]) -> Callable[..., Answer]:
        @functools.wraps(method)
        def call(self: S, **request: Any) -> Answer:
            given = shapes.check(name, request)
            try:
                return method(self, given)
            except GlueApiError:
                raise
            except LostRaceError as error:
                raise OperationTimeoutException("Others kept changing the job. Try again.", name) from error
            except WatermarkError as error:
                raise named_as_by_glue(error, name) from error

        return call

    return decorate


class Operations:
    """Where operations find the records that a request names."""

    def __init__(self, scheduler: Scheduler, job_id_rule: str) -> None:
        self._scheduler, self._records, self._job_id_rule = scheduler, scheduler.records, job_id_rule

    def _checked(self, name: str) -> str:
        return check_job_id(name, self._job_id_rule)

    def _arguments(self, holder: Mapping[str, Any], operation: str) -> Answer:
        """Return what holds arguments with local scripts as absolute paths; InvalidInputException for reserved names.

        The process that starts the run later may be in another folder.
        """
        found = dict(holder)
        for member in ("Arguments", "DefaultArguments", "NonOverridableArguments"):
            if member not in found:
                continue
            reserved = found[member].keys() & set(RESERVED)
            if reserved:
                raise InvalidInputException(
                    f"Argument {', '.join(sorted(reserved))} is set for each run. Leave it out.", operation
                )
            if SCRIPT_LOCATION in found[member]:
                found[member] = found[member] | {SCRIPT_LOCATION: absolute(found[member][SCRIPT_LOCATION])}
        if "Command" in found:
            location = absolute(found["Command"]["ScriptLocation"])
            found["Command"] = found["Command"] | {"ScriptLocation": location}
        return found

    def _defined(self, job: JobRecord | None, name: str, operation: str) -> JobRecord:
        if job is None or job.definition is None:
            raise EntityNotFoundException(f"Job {name} not found. Make it with create_job.", operation)
        return job

    def _job(self, name: str, operation: str) -> JobRecord:
        return self._defined(self._records.job(name), name, operation)

    def _run(self, name: str, run_id: str, operation: str) -> RunRecord:
        run = self._records.run(name, run_id) if ids.is_run_id(run_id) else None
        if run is None:
            job = self._records.job(name)
            if operation != "BatchStopJobRun":
                if job is not None and (entry := job.entry(run_id)):
                    return RunRecord.without_record(name, run_id, entry.since)
                self._defined(job, name, operation)
            raise EntityNotFoundException(
                f"Job run {run_id} not found. get_job_runs lists the runs of job {name}.", operation
            )
        return run

    def _trigger(self, name: str, operation: str) -> TriggerRecord:
        trigger = self._records.trigger(name)
        if trigger is None:
            raise EntityNotFoundException(f"Trigger {name} not found. Make it with create_trigger.", operation)
        return trigger
