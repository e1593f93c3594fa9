"""Every command that waits for AWS shows its progress after two seconds, if its output is a terminal."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import boto3
import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from scripts.cli import surroundings
from scripts.cli.main import cli
from scripts.cli.progress import Steps
from scripts.helpers.watermarks import Watermarks
from tests.cli.between import between
from tests.cli.stories import NOW, Command, leave_open, put_legacy, rows_state
from tests.support.steps import commit

SLOW = 0.04
"""Seconds that the server takes for each answer."""
WHY = ["--why", "x", "--yes"]
COMMANDS: dict[str, tuple[list[str], str]] = {
    "jobs": (["jobs"], "listing jobs"),
    "jobs-named": (["jobs", "loans"], "reading jobs"),
    "show": (["show", "loans"], "reading loans"),
    "history": (["history", "loans"], "reading versions"),
    "diff": (["history", "loans", "--diff"], "reading versions of loans"),
    "explain": (["files", "files", "--explain", "1.csv"], "reading files"),
    "files": (["files", "files"], "reading files"),
    "plan": (["plan", "loans"], "reading loans"),
    "doctor": (["doctor", "loans"], "examining loans"),
    "complete-up-to": (["complete-up-to", "loans"], "looking how far all is taken"),
    "verify": (["verify", "loans"], "reading loans"),
    "backfill": (["backfill", "loans"], "looking for gaps of loans"),
    "abandon": (["backfill", "loans", "--abandon", "x", *WHY], "reading slices of loans"),
    "runs": (["history", "loans", "--runs"], "reading runs of loans"),
    "runs-glue": (["history", "slow", "--runs", "--glue"], "asking Glue for runs of slow"),
    "rewind": (["rewind", "loans", "--to-version", "1", *WHY], "reading loans"),
    "rename-cursor": (["set", "loans", "--rename-cursor", "last_modified", "id", *WHY], "changing loans"),
    "reset": (["reset", "loans", *WHY], "changing loans"),
    "set": (["set", "loans", "seen=1", *WHY], "changing loans"),
    "discard-plan": (["discard-plan", "open", *WHY], "changing open"),
    "release": (["release", "open", *WHY], "releasing open"),
    "adopt": (["adopt", "old", "--run", "jr_1", *WHY], "changing old"),
    "adopt-glue": (["adopt", "older", "--glue", "--glue-job", "slow", *WHY], "asking Glue for runs of slow"),
    "copy": (["copy", "loans", "--to", "sqlite:jobs.db", "--yes"], "copying"),
    "report": (["report", "--html", "page.html"], "reading jobs"),
    "create-table": (["create-table"], "creating the table"),
    "unknown": (["show", "loan"], "looking for names"),
}


@pytest.fixture(scope="session")
def slow(dynamodb: Any, endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Watermarks, str, Path]:
    """Return a table, the URL of its server, and a folder."""
    made = Watermarks("slow", dynamodb, clock=lambda: NOW)
    made.create_table()
    for number in (10, 20):
        commit(made, "loans", f"jr_{number}", {"rows": rows_state(number, "bigint")})
    leave_open(made, "open", "jr_1", NOW, NOW)
    for job in ("old", "older"):
        for run_id in ("jr_1", "jr_2"):
            put_legacy(dynamodb, "slow", job, run_id)
    glue = boto3.client("glue", endpoint_url=endpoint)
    glue.create_job(Name="slow", Role="r", Command={"Name": "glueetl"})
    folder = tmp_path_factory.mktemp("slow")
    return made, endpoint, folder


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the command treat its streams as terminals."""

    def console(stream: Any) -> Console:
        return Console(file=stream, width=100, force_terminal=True, color_system=None, highlight=False, markup=False)

    monkeypatch.setattr(surroundings, "console_on", console)


def test_every_command_is_tried_when_there_are_some() -> None:
    own = {"ingest-files", "ingest-table"}  # These are jobs, which report in lines of JSON.
    asking = set(cli.commands) - own - {"completion"}

    assert {arguments[0] for arguments, _ in COMMANDS.values()} == asking


@pytest.mark.parametrize("name", COMMANDS)
def test_progress_is_shown_when_aws_takes_its_time(
    run: Command, slow: tuple[Watermarks, str, Path], terminal: None, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    watermarks, endpoint, folder = slow
    arguments, text = COMMANDS[name]
    monkeypatch.chdir(folder)

    with between(endpoint, {}, seconds=SLOW) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", url)
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", url)
        done = run(watermarks, "--progress-after", "0", *arguments)

    assert text in done.stderr, done.output


def test_progress_says_how_far_a_command_is_and_of_how_many() -> None:
    shown = Progress(TextColumn("{task.fields[count]}"), console=Console(file=io.StringIO()))
    steps = Steps(shown, "listing jobs", None)

    steps.at(1_500, 2_000, "jobs")

    (task,) = shown.tasks
    assert (task.completed, task.total, task.fields["count"]) == (1_500, 2_000, "1,500 jobs")


def test_progress_waits_for_two_seconds_when_nothing_else_is_said(
    run: Command, slow: tuple[Watermarks, str, Path], terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    class Timer(threading.Timer):
        def __init__(self, interval: float, function: Any) -> None:
            waited.append(interval)
            super().__init__(interval, function)

    monkeypatch.setattr("scripts.cli.progress.threading.Timer", Timer)

    done = run(slow[0], "show", "loans")

    assert waited == [2.0]
    assert "reading loans" not in done.stderr
