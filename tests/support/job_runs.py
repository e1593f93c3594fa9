"""Jobs of the Job Runs API with helpers for tests, an engine that starts nothing, and waiting for processes to end."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from scripts.helpers.job_runs import ids
from scripts.helpers.job_runs.client import JobRuns
from scripts.helpers.job_runs.job_record import Entry
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.protocol.races import Written
from tests.support.clock import Clock
from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY

FAST: dict[str, Any] = {"beat_seconds": 0.2, "lease_seconds": 600.0, "grace_seconds": 0.5}
"""Settings of an engine: how soon it notices a stop, counts a run as lost, and kills a job that ignores a stop.

The lease outlasts a test, so that a launcher that gets no CPU time for some seconds does not lose its run. A test that
needs a lost run moves the observer's clock instead: `Jobs.be_late`.
"""

PLACES = [
    "/jobs",
    "/nowhere",
    "/a.py",
    "/x.zip",
    str(REPOSITORY / "scripts" / "jobs"),
    "s3://scripts/",
    "s3://no-such-bucket/",
    "gs://bucket/",
]
"""The places of the scripts of these tests, existing or not."""

PASSED_ON = [
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "SPARK_LOCAL_IP", "SPARK_CONF_DIR", "IVY_HOME",
]  # fmt: skip
"""The variables that scripts of these tests need from the tests' own environment."""


class Parked:
    """An engine that starts nothing, and records what it should have started."""

    def __init__(self) -> None:
        self.launched: list[str] = []

    def launch(self, run: RunRecord, _shared: Any) -> None:
        self.launched.append(run.run_id)


class Jobs(JobRuns):
    """Jobs with helpers for tests."""

    scheduler: Any
    engine: Any

    def start(self, name: str, **request: Any) -> str:
        if isinstance(self.scheduler.clock, Clock):
            self.scheduler.clock.move(microseconds=1)  # Runs that start at the same moment have no order.
        run_id: str = self.start_job_run(JobName=name, **request)["JobRunId"]
        return run_id

    def queued(self, name: str, count: int) -> list[str]:
        """Put runs into the queue of a job, as an earlier version did if no slot was free."""
        records, made = self.scheduler.records, []
        for _ in range(count):
            self.scheduler.clock.move(microseconds=1)  # Runs that start at the same moment have no order.
            now = self.scheduler.clock()
            job, run_id = records.job(name), ids.new_id(now)
            records.write(job, job.changed(waiting=(*job.waiting, Entry(run_id, now))))
            run = replace(job.new_run(run_id, {}, now), detail="Waits for a slot.")
            assert isinstance(records.write_run(None, run), Written)
            made.append(run_id)
        return made

    def retried(self, name: str, run_id: str) -> str:
        """Record the retry of a failed run and begin it, as its launcher does; return its id."""
        now = self.scheduler.clock()
        retry = self.record(name, run_id).retry(now).starting(now, timedelta(minutes=1))
        assert isinstance(self.scheduler.records.write_run(None, retry), Written)
        return retry.run_id

    def run(self, name: str, run_id: str) -> dict[str, Any]:
        """Return a run after slots of finished and lost runs were freed."""
        self.scheduler.settle(name)
        found: dict[str, Any] = self.get_job_run(JobName=name, RunId=run_id)["JobRun"]
        return found

    def be_late(self) -> None:
        """Use a clock that is an hour ahead from now on, so that a run whose launcher gives no sign counts as lost."""
        self.scheduler.clock = lambda: datetime.now(timezone.utc) + timedelta(hours=1)

    def states(self, name: str) -> list[str]:
        """Return the states of all runs, newest first, after slots of finished and lost runs were freed."""
        self.scheduler.settle(name)
        return [run["JobRunState"] for run in self.get_job_runs(JobName=name)["JobRuns"]]

    def record(self, name: str, run_id: str) -> RunRecord:
        """Read a run's record without settling the run."""
        found: RunRecord = self.scheduler.records.run(name, run_id)
        return found

    def until(self, name: str, run_id: str, *states: str) -> RunRecord:
        """Wait until a run is in one of the given states, without settling it."""
        end = time.monotonic() + PATIENCE
        while (found := self.record(name, run_id)) is None or found.state not in states:
            assert time.monotonic() < end, found
            time.sleep(0.02)
        return found

    def until_idle(self, name: str) -> None:
        """Wait until no run has a slot: a launcher frees its slot only after it has written how the run ended."""
        end = time.monotonic() + PATIENCE
        while self.scheduler.records.job(name).active:
            assert time.monotonic() < end, f"a run of {name} never gave its slot back"
            time.sleep(0.02)

    def pass_through(self, name: str, run_id: str, *states: str) -> None:
        """Move a run through states, as its launcher does."""
        for state in states:
            before = self.record(name, run_id)
            after = before.to(state, self.scheduler.clock())
            assert isinstance(self.scheduler.records.write_run(before, after), Written)


def process_of(record: RunRecord) -> int:
    """Return the process id of a run's launcher."""
    assert record.launcher is not None
    return int(record.launcher.rpartition(":")[2])


def is_alive(process: int) -> bool:
    """Return whether a process exists and is not a zombie, whose exit code nobody has read."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def gone(process: int) -> bool:
    """Wait for a process to end; return whether it did."""
    end = time.monotonic() + PATIENCE
    while is_alive(process):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
