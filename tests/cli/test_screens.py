"""Compare what people see of the command in a pseudo-terminal with the screens stored in screens/.

Most commands are called in this process, because starting a Python for each took most of the time of these tests.
One of each kind has a process of its own: a screen, a question with its answer, an error, and output without colour.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.cli.main import cli
from scripts.helpers.backfill import Backfill
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.watermarks import Watermarks
from tests.cli.between import between, denied
from tests.cli.stories import NOW, commit_rows, leave_open, put_legacy, rows_state
from tests.cli.terminal import WRITE_SCREENS, Seen, check_screen, in_own_process, in_terminal
from tests.support.clock import Clock
from tests.support.listed_rows import ListedRows
from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY
from tests.support.rows_states import with_coverage
from tests.support.steps import commit

LOOKS = {
    "jobs": ["jobs"],
    "show": ["show", "repairs"],
    "history": ["history", "parking-permits"],
    "diff": ["history", "parking-permits", "--diff", "1", "3"],
    "explain": ["files", "parking-fines", "--explain", "s3://landing/parking/2.csv"],
    "files": ["files", "parking-fines"],
    "plan": ["plan", "parking-fines", "--source", "s3://landing/parking/"],
    "doctor": ["doctor", "repairs"],
    "runs": ["history", "repairs", "--runs"],
    "backfill-read": ["backfill", "repairs"],
    "complete-up-to": ["complete-up-to", "repairs", "--at", "2026-03-16T00:00:00Z"],
    "report": ["report", "--html", "page.html"],
    "create-table": ["create-table"],
    "unknown": ["show", "parking-permit"],
}


@pytest.mark.parametrize("name", LOOKS)
def test_screen_is_the_one_kept_when_it_has_80_columns(
    world: Watermarks, endpoint: str, tmp_path: Path, name: str
) -> None:
    check_screen(name, in_terminal(endpoint, "--table", world.table_name, *LOOKS[name], folder=tmp_path))


@pytest.fixture(scope="session")
def gappy(dynamodb: Any) -> Watermarks:
    """Return a table with a job that was set to 30, and an unfinished slice of its gap; tests only read it."""
    made = Watermarks("gappy", dynamodb, clock=lambda: NOW)
    made.create_table()
    state = rows_state(10, "bigint")
    commit(made, "loans", "jr_1", {"rows": with_coverage(state, None, [((), (10,))], "o1")})
    made.set_watermark("loans", rows_state(30, "bigint"), transformation_ctx="rows", why="loaded by hand", who="sam")
    source = ListedRows((CursorColumn("last_modified", "bigint"),), [(12,)])
    with (
        pytest.raises(ZeroDivisionError),
        Backfill(made, "loans", "jr_2", low=10, high=14, clock=lambda: NOW) as slice_of,
    ):
        slice_of.rows(source, "last_modified")
        slice_of.job.freeze()
        raise ZeroDivisionError
    return made


GAPS = {
    "backfill": ["backfill", "loans"],
    "backfill-commands": [
        "backfill",
        "loans",
        "--slices",
        "2",
        "--",
        "--source",
        "s3a://in/",
        "--target",
        "s3a://raw/",
    ],
}


@pytest.mark.parametrize("name", GAPS)
def test_screen_is_the_one_kept_when_a_job_has_gaps(gappy: Watermarks, endpoint: str, name: str) -> None:
    check_screen(name, in_terminal(endpoint, "--table", "gappy", *GAPS[name]))


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_screen_is_the_one_kept_when_no_command_is_given(world: Watermarks, endpoint: str, columns: int) -> None:
    seen = in_terminal(endpoint, "--table", world.table_name, columns=columns)

    check_screen(f"overview-{columns}", seen)


def test_screen_is_the_one_kept_when_it_has_200_columns(world: Watermarks, endpoint: str) -> None:
    check_screen("jobs-200", in_terminal(endpoint, "--table", world.table_name, "jobs", columns=200))


@pytest.mark.parametrize("name", ["jobs", "show", "diff", "unknown"])
def test_screen_is_the_one_kept_when_it_has_40_columns(world: Watermarks, endpoint: str, name: str) -> None:
    seen = in_terminal(endpoint, "--table", world.table_name, *LOOKS[name], columns=40)

    check_screen(f"{name}-40", seen)


def test_help_fits_when_the_terminal_has_40_columns(endpoint: str) -> None:
    seen = in_terminal(endpoint, "rewind", "--help", columns=40)

    check_screen("help-40", seen)


@pytest.mark.parametrize(
    ("name", "columns"), [("show", 80), ("jobs-40", 40), ("unknown-40", 40)], ids=["wide", "narrow", "error"]
)
def test_screen_is_the_same_when_the_command_has_a_process_of_its_own(
    world: Watermarks, endpoint: str, name: str, columns: int
) -> None:
    given = LOOKS[name.removesuffix("-40")]

    check_screen(name, in_own_process(endpoint, "--table", world.table_name, *given, columns=columns))


def test_colours_are_there_when_a_terminal_shows_them(world: Watermarks, endpoint: str) -> None:
    seen = in_terminal(endpoint, "--table", world.table_name, "jobs", "repairs")

    assert "\x1b[33mopen plan" in seen.raw


def test_no_colour_is_sent_when_no_color_is_set(world: Watermarks, endpoint: str) -> None:
    coloured = in_terminal(endpoint, "--table", world.table_name, "jobs", "repairs")
    plain = in_own_process(endpoint, "--table", world.table_name, "jobs", "repairs", environment={"NO_COLOR": "1"})

    assert "\x1b[3" not in plain.raw
    assert plain.screen == coloured.screen


@pytest.fixture
def changing(dynamodb: Any) -> Watermarks:
    """Return a table with a fixed name and one job that tests change."""
    clock = Clock()
    made = Watermarks("changing", dynamodb, clock=clock)
    if made.exists():
        dynamodb.delete_table(TableName="changing")
    made.create_table()
    for number in (1, 2):
        clock.now = NOW.replace(day=number)
        commit_rows(made, "repairs", f"jr_{number}", clock.now, 100)
    return made


QUESTION = "Change job repairs? [y/N]: "
REWIND = ["--table", "changing", "rewind", "repairs", "--to-version", "1", "--why", "a column was missing"]


def test_decision_is_taken_when_the_question_is_answered_with_yes(changing: Watermarks, endpoint: str) -> None:
    seen = in_own_process(endpoint, *REWIND, answers=[(QUESTION, "y")])

    check_screen("rewind-yes", seen)
    assert changing.history("repairs")[0].change.why == "a column was missing"


def test_nothing_is_changed_when_the_question_is_answered_with_no(changing: Watermarks, endpoint: str) -> None:
    seen = in_terminal(endpoint, *REWIND, columns=40, answers=[(QUESTION, "")])

    check_screen("rewind-no-40", seen)
    assert changing.latest("repairs").version == 2


DECISIONS = {
    "reset": (["reset", "repairs"], QUESTION),
    "set": (["set", "repairs", "value=2026-03-09T00:00:00Z", "--context", "repairs"], QUESTION),
    "rename-cursor": (["set", "repairs", "--rename-cursor", "last_modified", "changed_at"], QUESTION),
    "discard-plan": (["discard-plan", "open"], "Change job open? [y/N]: "),
    "release": (["release", "open"], "Release job open? [y/N]: "),
    "adopt": (["adopt", "old", "--run", "jr_2"], "Adopt the item of run jr_2 as the watermarks of job old? [y/N]: "),
    "copy": (
        ["copy", "repairs", "--to", "sqlite:jobs.db"],
        "Copy 1 job from changing to sqlite:jobs.db? Their runs are refused in changing then. [y/N]: ",
    ),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_screen_is_the_one_kept_when_a_decision_is_asked_about(
    changing: Watermarks, dynamodb: Any, endpoint: str, tmp_path: Path, name: str
) -> None:
    arguments, question = DECISIONS[name]
    leave_open(changing, "open", "jr_1", NOW.replace(day=1), NOW.replace(day=2))
    for run_id in ("jr_1", "jr_2"):
        put_legacy(dynamodb, "changing", "old", run_id)
    commit_rows(changing, "repairs", "jr_3", NOW.replace(day=3), 100)

    why = [] if name == "copy" else ["--why", "a column was missing", "--who", "sam"]
    given = ["--table", "changing", *arguments, *why]
    seen = in_terminal(endpoint, *given, answers=[(question, "y")], folder=tmp_path)

    check_screen(name, seen)


def test_every_command_has_a_screen_when_there_are_some() -> None:
    shown = {
        arguments[0] for arguments in [*LOOKS.values(), *GAPS.values(), *(given for given, _ in DECISIONS.values())]
    }

    without = {"rewind", "completion", "verify", "ingest-files", "ingest-table"}
    assert set(cli.commands) == shown | without


def test_missing_permission_is_named_when_a_terminal_has_40_columns(world: Watermarks, endpoint: str) -> None:
    with between(endpoint, {"Scan": denied("Scan")}) as url:
        seen = in_terminal(url, "--table", world.table_name, "jobs", columns=40)

    check_screen("no-scan-40", seen)


def test_progress_is_shown_and_gone_when_it_takes_long(world: Watermarks, endpoint: str) -> None:
    with between(endpoint, {}, seconds=0.3) as url:
        seen = in_terminal(url, "--table", world.table_name, "--progress-after", "0", "jobs", "--limit", "1")

    assert "listing jobs" in seen.raw
    assert "listing jobs" not in seen.screen


def test_no_progress_is_shown_when_it_is_quick(world: Watermarks, endpoint: str) -> None:
    seen = in_terminal(endpoint, "--table", world.table_name, "--progress-after", "60", "jobs", "--limit", "1")

    assert "listing jobs" not in seen.raw


def test_no_progress_and_no_colour_are_sent_when_output_is_not_a_terminal(world: Watermarks, endpoint: str) -> None:
    with between(endpoint, {}, seconds=0.5) as url:
        done = subprocess.run(
            [sys.executable, "-m", "scripts.cli", "--table", world.table_name, "--progress-after", "0", "jobs"],
            cwd=REPOSITORY,
            env={**os.environ, "AWS_ENDPOINT_URL": url},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert "parking-permits" in done.stdout


def test_screens_are_not_written_anew_when_nothing_would_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WRITE_SCREENS, "1")
    monkeypatch.setenv("CI", "true")

    with pytest.raises(AssertionError, match="is set in CI"):
        check_screen("help-40", Seen("", "", 0))
