"""Jobs of one's own: with real launchers, or with none and a clock that only moves when told."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.job_runs.client import JobRuns, SparkSubmit
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.watermarks import Watermarks
from tests.conftest import Clock
from tests.protocol.conftest import make_table, moto_process

__all__ = ["make_table", "moto_process"]

FAST = {"beat_seconds": 0.2, "lease_seconds": 10.0, "grace_seconds": 0.5}
"""Settings of an engine: how soon a stop is noticed, a run is found lost, and a stubborn one killed."""
SHORT_LEASE = {"lease_seconds": 1.5}
"""For tests in which a run must be found lost."""
PATIENCE = 30.0


class Parked:
    """An engine that starts nothing, and remembers what it was to start."""

    def __init__(self) -> None:
        self.launched: list[str] = []

    def launch(self, run: RunRecord) -> None:
        self.launched.append(run.run_id)


class Jobs(JobRuns):
    """Jobs, with what tests do to them."""

    @property
    def scheduler(self) -> Any:
        return self._service._scheduler

    def start(self, name: str, **request: Any) -> str:
        if isinstance(self.scheduler.clock, Clock):
            self.scheduler.clock.move(microseconds=1)  # Runs that start at the same moment have no order.
        run_id: str = self.start_job_run(JobName=name, **request)["JobRunId"]
        return run_id

    def run(self, name: str, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get_job_run(JobName=name, RunId=run_id)["JobRun"]
        return found

    def states(self, name: str) -> list[str]:
        """Return the states of all runs, the newest first."""
        return [run["JobRunState"] for run in self.get_job_runs(JobName=name)["JobRuns"]]

    def record(self, name: str, run_id: str) -> RunRecord:
        """Read a run's record, and do nothing about it."""
        found: RunRecord = self.scheduler.records.run(name, run_id)
        return found

    def until(self, name: str, run_id: str, *states: str) -> RunRecord:
        """Wait until a run is in one of some states, without doing anything about it."""
        end = time.monotonic() + PATIENCE
        while (found := self.record(name, run_id)) is None or found.state not in states:
            assert time.monotonic() < end, found
            time.sleep(0.02)
        return found

    def pass_through(self, name: str, run_id: str, *states: str) -> None:
        """Move a run as its launcher does."""
        for state in states:
            before = self.record(name, run_id)
            after = before.to(state, self.scheduler.clock())
            assert self.scheduler.records.write_run(before, after).token == after.token


def process_of(record: RunRecord) -> int:
    """Return the process id of a run's launcher."""
    assert record.launcher is not None
    return int(record.launcher.rpartition(":")[2])


def is_alive(process: int) -> bool:
    """Tell whether a process is there and is more than an exit code that nobody asked for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def gone(process: int) -> bool:
    """Wait for the end of a process."""
    end = time.monotonic() + PATIENCE
    while is_alive(process):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def table(moto_process: str, make_table: Callable[..., Watermarks]) -> Watermarks:
    """Return a new table on a server that takes one request at a time."""
    return make_table(moto_process)


@pytest.fixture
def make_jobs(table: Watermarks, tmp_path: Path) -> Iterator[Callable[..., Jobs]]:
    """Return a builder of jobs with real launchers; those that are left over are killed in the end."""
    logs = tmp_path / "logs"

    def make(**options: Any) -> Jobs:
        return Jobs(table, SparkSubmit(str(logs), **(FAST | options)))

    yield make
    jobs = make()
    for folder in sorted(logs.glob("*/*")):
        run = jobs.record(folder.parent.name, folder.name)
        if run and run.state == "STARTING":  # A launcher that claims it later must not get it.
            ended = run.ended("ERROR", jobs.scheduler.clock())
            run = jobs.scheduler.records.change_run(run, lambda now, end=ended: end if now.launcher is None else now)
        if run and run.launcher and not run.is_over and is_alive(process_of(run)):
            os.kill(process_of(run), signal.SIGKILL)


@pytest.fixture
def jobs(make_jobs: Callable[..., Jobs]) -> Jobs:
    return make_jobs()


@pytest.fixture
def define(jobs: Jobs, tmp_path: Path) -> Callable[..., None]:
    """Return what defines a Python shell job with a script."""

    def make(name: str, script: str = "", **more: Any) -> None:
        path = tmp_path / f"{name}.py"
        path.write_text(script)
        jobs.create_job(Name=name, Command={"Name": "pythonshell", "ScriptLocation": str(path)}, **more)

    return make


@pytest.fixture
def make_parked(table: Watermarks, tmp_path: Path, clock: Clock) -> Callable[..., Jobs]:
    """Return a builder of jobs whose runs nothing carries out, on the clock that stands still."""

    def make(**options: Any) -> Jobs:
        made = Jobs(table, SparkSubmit(str(tmp_path / "logs")), **({"clock": clock} | options))
        made.scheduler.engine = Parked()
        return made

    return make


@pytest.fixture
def parked(make_parked: Callable[..., Jobs]) -> Jobs:
    """Return jobs whose runs nothing carries out, one of them defined: ``parking``."""
    made = make_parked()
    made.create_job(Name="parking", Command={"Name": "pythonshell", "ScriptLocation": "/jobs/parking.py"})
    return made


@pytest.fixture
def stored(table: Watermarks) -> Callable[[], Any]:
    """Return a reader of all items of the table."""

    def read() -> Any:
        found = table._store.client.scan(TableName=table.table_name, ConsistentRead=True)["Items"]
        return sorted(found, key=lambda item: (item["jobName"]["S"], item["runId"]["S"]))

    return read
