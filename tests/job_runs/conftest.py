"""Jobs for a single test: with real launchers, or with no launcher and a clock that moves only when a test moves it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.job_runs.client import SparkSubmit
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.job_runs import FAST, PASSED_ON, PLACES, Jobs, Parked, is_alive, process_of
from tests.support.table_items import Item, all_items


@pytest.fixture
def table(moto_process: str, make_table: Callable[..., Watermarks]) -> Watermarks:
    """Return a new table on a server that takes one request at a time."""
    return make_table(moto_process)


@pytest.fixture
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path for the folder of logs, outside `tmp_path`, which has the scripts."""
    return tmp_path_factory.mktemp("logs-of") / "runs"


@pytest.fixture
def make_jobs(table: Watermarks, tmp_path: Path, logs: Path) -> Iterator[Callable[..., Jobs]]:
    """Return a builder of jobs with real launchers, and kill launchers that are left over after the test."""

    def make(**options: Any) -> Jobs:
        return Jobs(
            table,
            SparkSubmit(str(logs), **(FAST | {"scripts": [str(tmp_path), *PLACES], "pass_on": PASSED_ON} | options)),
        )

    yield make
    jobs = make()
    for folder in sorted(logs.glob("*/*")):
        run = jobs.record(folder.parent.name, folder.name)
        if run and run.state == "STARTING":  # A launcher that claims the run later must not get it.
            ended = run.ended("ERROR", jobs.scheduler.clock())
            run = jobs.scheduler.records.change_run(run, lambda now, end=ended: end if now.launcher is None else now)
        if run and run.launcher and not run.is_over and is_alive(process_of(run)):
            os.kill(process_of(run), signal.SIGKILL)


@pytest.fixture
def jobs(make_jobs: Callable[..., Jobs]) -> Jobs:
    return make_jobs()


@pytest.fixture
def define(jobs: Jobs, tmp_path: Path) -> Callable[..., None]:
    """Return a function that defines a Python shell job with a script."""

    def make(name: str, script: str = "", **more: Any) -> None:
        path = tmp_path / f"{name}.py"
        path.write_text(script)
        jobs.create_job(Name=name, Command={"Name": "pythonshell", "ScriptLocation": str(path)}, **more)

    return make


@pytest.fixture
def make_parked(table: Watermarks, tmp_path: Path, logs: Path, clock: Clock) -> Callable[..., Jobs]:
    """Return a builder of jobs whose runs no launcher executes, on the clock that stands still."""

    def make(**options: Any) -> Jobs:
        made = Jobs(table, SparkSubmit(str(logs), scripts=[str(tmp_path), *PLACES]), **({"clock": clock} | options))
        made.scheduler.engine = Parked()
        return made

    return make


@pytest.fixture
def parked(make_parked: Callable[..., Jobs]) -> Jobs:
    """Return jobs whose runs no launcher executes, one of them defined: ``parking``."""
    made = make_parked()
    made.create_job(Name="parking", Command={"Name": "pythonshell", "ScriptLocation": "/jobs/parking.py"})
    return made


@pytest.fixture
def everything(table: Watermarks) -> Callable[[], dict[tuple[str, str], Item]]:
    """Return a reader of all raw items of that table by job and range key."""
    return lambda: all_items(table)
