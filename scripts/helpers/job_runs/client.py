"""`JobRuns`: start, watch and stop runs of jobs as Glue's client does, on Glue or on any Spark."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from datetime import datetime, timedelta, timezone
from typing import Any

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.glue_api.errors import GlueApiError
from scripts.helpers.job_runs import states
from scripts.helpers.job_runs.emr_serverless import EmrServerless
from scripts.helpers.job_runs.engines import Glue, Launching, Shared, SparkSubmit
from scripts.helpers.job_runs.run_store import RunStore
from scripts.helpers.job_runs.scheduler import A_WORKER, Scheduler
from scripts.helpers.job_runs.service import RunsService
from scripts.helpers.watermarks import Watermarks

__all__ = ["EmrServerless", "Glue", "JobRuns", "SparkSubmit"]

logger = logging.getLogger(__name__)

KEEP = timedelta(days=90)
"""For how long Glue keeps the history of runs."""
QUEUE_TIME = timedelta(hours=24)


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
    service
        What answers the calls: the client of `Glue`, else a `RunsService`.
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
        table: Watermarks | str = "glue-watermarks",
        engine: Glue | SparkSubmit | EmrServerless | None = None,
        *,
        queue_time: timedelta = QUEUE_TIME,
        keep: timedelta | None = KEEP,
        clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._is_glue = isinstance(engine, Glue)
        if isinstance(engine, Glue):
            # Glue's client has the same calls, and more: `__getattr__` passes those on.
            self.service: RunsService = engine.client
            return
        if queue_time <= timedelta(0) or (keep is not None and keep <= timedelta(0)):
            raise InvalidValueError("queue_time and keep must be above 0.")
        watermarks = table if isinstance(table, Watermarks) else Watermarks(table)
        store = watermarks.store
        shared = Shared(
            store.table_name,
            store.client.meta.region_name,
            store.client.meta.endpoint_url,
            queue_time.total_seconds(),
            None if keep is None else keep.total_seconds(),
        )
        launching = Launching(engine, shared) if isinstance(engine, SparkSubmit) else engine
        scheduler = Scheduler(RunStore(store), launching, clock, queue_time, keep)
        self.service = RunsService(scheduler, engine, watermarks)

    def __getattr__(self, name: str) -> Any:
        """Pass on Glue's other calls, such as ``get_system_logs_for_job_run``, where the engine is Glue."""
        if not name.startswith("_") and self._is_glue:
            return getattr(self.service, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def exceptions(self) -> Any:
        """Return the errors by the names that Glue gives them."""
        return self.service.exceptions

    def create_job(self, **request: Any) -> dict[str, Any]:
        """Define a job: `Name`, `Command` with `ScriptLocation`, and what its runs have by default.

        AlreadyExistsException if there is one of the name.
        """
        return self.service.create_job(**request)

    def get_job(self, **request: Any) -> dict[str, Any]:
        """Return the definition of `JobName` under ``Job``."""
        return self.service.get_job(**request)

    def update_job(self, **request: Any) -> dict[str, Any]:
        """Replace the definition of `JobName` by `JobUpdate` as a whole; runs that are there keep theirs."""
        return self.service.update_job(**request)

    def delete_job(self, **request: Any) -> dict[str, Any]:
        """Delete the definition of `JobName`, and its bookmark: a job of that name reads everything again.

        Runs at work go on and can commit nothing any more; those that wait end as ERROR. A second call deletes nothing.
        """
        return self.service.delete_job(**request)

    def start_job_run(self, **request: Any) -> dict[str, Any]:
        """Start a run of `JobName`; return its ``JobRunId``. It begins at once where a slot is free.

        Where none is, it waits for a worker, as its retries do. InvalidInputException for a script or an argument
        that the engine does not allow: its ``__cause__`` is a ScriptNotAllowedError or ArgumentNotAllowedError.
        EntityNotFoundException for an unknown job or `JobRunId`, ConcurrentRunsExceededException where no slot is
        free and `JobRunQueuingEnabled` is not set. With `JobRunId` it repeats that run under a new id.
        """
        return self.service.start_job_run(**request)

    def get_job_run(self, **request: Any) -> dict[str, Any]:
        """Return run `RunId` of `JobName` under ``JobRun``; with `PredecessorsIncluded` also what triggered it.

        Only looks. A run whose launcher has given no sign for its lease is shown as the ERROR that it is.
        """
        return self.service.get_job_run(**request)

    def get_job_runs(self, **request: Any) -> dict[str, Any]:
        """Return runs of `JobName`, the newest first: `MaxResults` of them, at most 200, from `NextToken` on.

        Only looks.
        """
        return self.service.get_job_runs(**request)

    def get_paginator(self, operation_name: str) -> Any:
        """Return the paginator of ``get_job_runs``, with `paginate` and its `PaginationConfig` as botocore has it.

        With the engine `Glue` it is the client's own, and there are those of its other calls.

        Raises
        ------
        botocore.exceptions.OperationNotPageableError
            The call has no pages.
        """
        return self.service.get_paginator(operation_name)

    def batch_stop_job_run(self, **request: Any) -> dict[str, Any]:
        """Stop runs `JobRunIds` of `JobName`, 1 to 25: SIGTERM, and SIGKILL after the grace.

        Returns at once: a run is STOPPING until it is STOPPED. What cannot be stopped is in ``Errors``.
        """
        return self.service.batch_stop_job_run(**request)

    def create_trigger(self, **request: Any) -> dict[str, Any]:
        """Start `Actions` each time a run of the job in `Predicate` ends in its state; once per run, whatever crashes.

        `Type` is CONDITIONAL. As in Glue it does nothing before `start_trigger`, or with `StartOnCreation`.
        The jobs of its actions are made to accept it, which takes the right to write their items.
        """
        return self.service.create_trigger(**request)

    def get_trigger(self, **request: Any) -> dict[str, Any]:
        """Return trigger `Name` under ``Trigger``."""
        return self.service.get_trigger(**request)

    def start_trigger(self, **request: Any) -> dict[str, Any]:
        """Let trigger `Name` fire from now on."""
        return self.service.start_trigger(**request)

    def stop_trigger(self, **request: Any) -> dict[str, Any]:
        """Let trigger `Name` fire no more until it is started again."""
        return self.service.stop_trigger(**request)

    def delete_trigger(self, **request: Any) -> dict[str, Any]:
        """Delete trigger `Name`. None to delete is no error."""
        return self.service.delete_trigger(**request)

    def accept_trigger(self, job_name: str, trigger: str) -> None:
        """Let a trigger start runs of a job, as `create_trigger` does for the jobs that it starts.

        Not a call of Glue. It is for triggers that were made before jobs had to accept them, or by others.

        Raises
        ------
        EntityNotFoundException
            There is no such job.
        """
        self._own("accept_trigger").accept_trigger(job_name, trigger, True)

    def refuse_trigger(self, job_name: str, trigger: str) -> None:
        """Let a trigger start no more runs of a job. Not a call of Glue."""
        self._own("refuse_trigger").accept_trigger(job_name, trigger, False)

    def tend(self, job_names: str | Collection[str]) -> list[dict[str, str]]:
        """Do a worker's work on some jobs once: end lost runs, make retries, fire triggers, start what has its turn.

        Parameters
        ----------
        job_names
            The jobs whose runs may be started. A run that a trigger makes of another job waits for a worker of that.

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
        started = self._own("tend").tend(names)
        return [{"JobName": run.job_name, "JobRunId": run.run_id} for run in started]

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
                for started in self.tend(job_names):
                    on_start(started)
            except GlueApiError as error:
                logger.warning("event=work_failed error=%s", error)
            time.sleep(pause)

    def _own(self, what: str) -> RunsService:
        """Return what keeps the records here."""
        if self._is_glue:
            raise InvalidValueError(f"{what} is for engines other than Glue, which starts its runs itself.")
        return self.service

    def wait(self, job_name: str, run_id: str, seconds: float = 600.0, pause: float = 0.2) -> dict[str, Any]:
        """Wait until a run is over, and return its JobRun; as it is now once `seconds` have passed.

        Only looks. A run that has begun is brought to its end by its launcher, also if no worker is there, and is
        an ERROR a lease after its launcher was lost. One that is WAITING begins when a worker starts it, as do
        retries and what triggers start: `tend`, `work`, or ``watermarks work``. A WARNING says so.
        """
        until, has_warned = time.monotonic() + seconds, False
        while True:
            run: dict[str, Any] = self.get_job_run(JobName=job_name, RunId=run_id)["JobRun"]
            if run["JobRunState"] == "WAITING" and not has_warned and not self._is_glue:
                has_warned = True
                logger.warning("event=waits_for_worker job=%s run=%s: %s", job_name, run_id, A_WORKER)
            if run["JobRunState"] in states.TERMINAL or time.monotonic() >= until:
                return run
            time.sleep(pause)
