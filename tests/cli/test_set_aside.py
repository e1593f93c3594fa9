"""`watermarks files`: which files could not be read, and what a person decides about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from scripts.jobs.exit_codes import BAD_DATA
from tests.cli.stories import Command
from tests.support.files_states import plan_of, state_of
from tests.support.steps import commit

JOB = "parking"
WHY = ["--why", "the sender has mended it", "--who", "sam", "--yes"]


@pytest.fixture
def landing(tmp_path: Path, watermarks: Watermarks) -> Path:
    """Return a folder, two of whose files were set aside."""
    for name in ("1.csv", "2.csv.gz", "3.csv.gz"):
        (tmp_path / name).write_bytes(b"id\n1\n")
    load(watermarks, tmp_path)
    return tmp_path


def load(watermarks: Watermarks, folder: Path) -> int:
    with IncrementalJob(watermarks, JOB, "jr_1") as job:
        delta = job.new_files(str(folder), on_unreadable="set_aside")
        delta.read_pandas("csv")
    return delta.count


def test_list_names_each_file_and_why_when_asked(run: Command, watermarks: Watermarks, landing: Path) -> None:
    shown = run(watermarks, "files", JOB, "--set-aside")
    found = json.loads(run(watermarks, "files", JOB, "--output", "json").stdout)

    assert shown.exit_code == 0, shown.output
    assert [line.split()[:5] for line in shown.stdout.splitlines()] == [
        ["file", "why", "version", "modified"],
        ["2.csv.gz", "it", "is", "not", "a"],
        ["3.csv.gz", "it", "is", "not", "a"],
    ]
    assert [(one["key"], one["reason"], one["run"], one["decision"]) for one in found["set_aside"]] == [
        ("2.csv.gz", "it is not a gz file", "jr_1", "waiting"),
        ("3.csv.gz", "it is not a gz file", "jr_1", "waiting"),
    ]
    assert "1 file known, 2 set aside, listed" in run(watermarks, "show", JOB).stdout


def test_list_says_that_more_will_follow_when_the_open_plan_sets_files_aside(
    run: Command, watermarks: Watermarks
) -> None:
    commit(watermarks, JOB, "jr_1", {"files": state_of("s3://landing/", None, [])})
    plan = plan_of("s3://landing/", None, count=0, bytes=0, has_more=False, gone=0)
    watermarks.begin(JOB, "jr_2").freeze({"files": plan | {"set_aside": 2}}, {})

    assert run(watermarks, "files", JOB).stdout.splitlines() == [
        "The open plan sets 2 more aside. They appear here after its commit.", "No file is set aside.",
    ]  # fmt: skip


def test_job_needs_somebody_when_files_wait_for_a_decision(run: Command, watermarks: Watermarks, landing: Path) -> None:
    def looks() -> list[tuple[int, bool]]:
        commands = [["jobs", JOB], ["doctor", JOB], ["jobs", JOB, "--fail-on", "late"], ["show", JOB]]
        shown = [run(watermarks, *command) for command in commands]
        return [(one.exit_code, "2 files could not be read" in " ".join(one.stdout.split())) for one in shown]

    before = looks()
    metrics = json.loads(run(watermarks, "jobs", JOB, "--metrics").stdout)["FilesWaiting"]
    run(watermarks, "files", JOB, "--retry", "2.csv.gz", "--skip", "3.csv.gz", *WHY)
    after = looks()

    assert before == [(0, True), (1, True), (1, True), (0, True)]
    assert after == [(0, False)] * 4
    assert metrics == 2


def test_decisions_are_kept_and_followed_when_files_are_retried_and_skipped(
    run: Command, watermarks: Watermarks, landing: Path
) -> None:
    done = run(watermarks, "files", JOB, "--retry", "2.csv.gz", "--skip", "3.csv.gz", *WHY)
    shown = run(watermarks, "files", JOB)
    (landing / "4.csv").write_bytes(b"id\n1\n")
    taken = load(watermarks, landing)
    after = json.loads(run(watermarks, "files", JOB, "--output", "json").stdout)["set_aside"]

    assert "2 set aside (1 to retry, 1 to skip)" in done.stdout
    assert ("the next run takes it" in shown.stdout, "done; off the list" in shown.stdout) == (True, True)
    assert (taken, [one["key"] for one in after]) == (2, ["2.csv.gz"])
    entry = watermarks.history(JOB)[1].change
    assert (entry.op, entry.who, entry.why) == ("SET", "sam", "the sender has mended it")


def test_all_files_are_read_again_when_retry_all_is_passed(run: Command, watermarks: Watermarks, landing: Path) -> None:
    (landing / "4.csv").write_bytes(b"id\n1\n")

    assert run(watermarks, "files", JOB, "--retry-all", *WHY).exit_code == 0

    assert load(watermarks, landing) == 3


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--retry", "9.csv", *WHY], BAD_DATA, "'9.csv' is not set aside"),
        (["--retry", "2.csv.gz", "--yes"], 2, "Missing option '--why'"),
        (["--retry", "2.csv.gz", "--why", "so"], 2, "The command asks for confirmation"),
        (["--retry", "2.csv.gz", "--skip", "2.csv.gz", *WHY], 2, "is given to --retry and --skip"),
        (["--retry-all", "--skip", "2.csv.gz", *WHY], 2, "--retry-all includes all files"),
        (["--set-aside", "--skip", "2.csv.gz", *WHY], 2, "--set-aside lists files"),
        (["--context", "x"], BAD_DATA, "has no context 'x' of files"),
    ],
)
def test_nothing_changes_when_the_options_do_not_fit(
    run: Command, watermarks: Watermarks, landing: Path, options: list[str], code: int, text: str
) -> None:
    done: Any = run(watermarks, "files", JOB, *options)

    assert (done.exit_code, text in done.stderr) == (code, True)
    assert watermarks.latest(JOB).version == 1
