"""What people see: the real command in a pseudo-terminal, its screens kept in screens/."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any
from urllib.request import urlopen

import pexpect
import pytest

from scripts.helpers.watermarks import Watermarks
from tests.cli.between import between, denied
from tests.cli.conftest import NOW, commit_rows
from tests.cli.terminal import check_screen, in_terminal
from tests.conftest import REPOSITORY, Clock

LOOKS = {
    "jobs": ["jobs"],
    "show": ["show", "repairs"],
    "history": ["history", "parking-permits"],
    "diff": ["diff", "parking-permits", "1", "3"],
    "explain": ["explain", "parking-fines", "2.csv"],
    "plan": ["plan", "parking-fines"],
    "doctor": ["doctor", "repairs"],
    "unknown": ["show", "parking-permit"],
}


@pytest.mark.parametrize("name", LOOKS)
def test_screen_is_the_one_kept_when_it_has_80_columns(world: Watermarks, endpoint: str, name: str) -> None:
    check_screen(name, in_terminal(endpoint, "--table", world.table_name, *LOOKS[name]))


@pytest.mark.parametrize("name", ["jobs", "show", "diff", "unknown"])
def test_screen_is_the_one_kept_when_it_has_40_columns(world: Watermarks, endpoint: str, name: str) -> None:
    seen = in_terminal(endpoint, "--table", world.table_name, *LOOKS[name], columns=40)

    check_screen(f"{name}-40", seen)


def test_help_fits_when_the_terminal_has_40_columns(endpoint: str) -> None:
    seen = in_terminal(endpoint, "rewind", "--help", columns=40)

    check_screen("help-40", seen)


def test_colours_are_there_when_a_terminal_shows_them(world: Watermarks, endpoint: str) -> None:
    seen = in_terminal(endpoint, "--table", world.table_name, "jobs", "repairs")

    assert "\x1b[33mopen plan" in seen.raw


def test_no_colour_is_sent_when_no_color_is_set(world: Watermarks, endpoint: str) -> None:
    coloured = in_terminal(endpoint, "--table", world.table_name, "jobs", "repairs")
    plain = in_terminal(endpoint, "--table", world.table_name, "jobs", "repairs", environment={"NO_COLOR": "1"})

    assert "\x1b[3" not in plain.raw
    assert plain.screen == coloured.screen


@pytest.fixture
def changing(make_watermarks: Any) -> Watermarks:
    """Return a table of a fixed name with one job that tests change."""
    clock = Clock()
    made: Watermarks = make_watermarks("changing", clock=clock)
    if made.exists():
        made._store.client.delete_table(TableName="changing")
    made.create_table()
    for number in (1, 2):
        clock.now = NOW.replace(day=number)
        commit_rows(made, "repairs", f"jr_{number}", clock.now, 100)
    return made


QUESTION = "Change job repairs? [y/N]: "
REWIND = ["--table", "changing", "rewind", "repairs", "--to-version", "1", "--why", "a column was missing"]


def test_decision_is_taken_when_the_question_is_answered_with_yes(changing: Watermarks, endpoint: str) -> None:
    seen = in_terminal(endpoint, *REWIND, answers=[(QUESTION, "y")])

    check_screen("rewind-yes", seen)
    assert changing.history("repairs")[0].change.why == "a column was missing"


def test_nothing_is_changed_when_the_question_is_answered_with_no(changing: Watermarks, endpoint: str) -> None:
    seen = in_terminal(endpoint, *REWIND, columns=40, answers=[(QUESTION, "")])

    check_screen("rewind-no-40", seen)
    assert changing.latest("repairs").version == 2


def test_missing_permission_is_named_when_a_terminal_has_40_columns(world: Watermarks, endpoint: str) -> None:
    with between(endpoint, {"Scan": denied("Scan")}) as url:
        seen = in_terminal(url, "--table", world.table_name, "jobs", columns=40)

    check_screen("no-scan-40", seen)


def test_progress_is_shown_and_gone_when_it_takes_long(world: Watermarks, endpoint: str) -> None:
    with between(endpoint, {}, seconds=1.0) as url:
        seen = in_terminal(url, "--table", world.table_name, "--progress-after", "0.2", "jobs", "--limit", "1")

    assert "listing jobs" in seen.raw
    assert "listing jobs" not in seen.screen


def test_page_is_served_until_interrupted_when_asked_for(world: Watermarks, endpoint: str) -> None:
    child = pexpect.spawn(
        sys.executable, ["-m", "scripts.cli", "--table", world.table_name, "serve", "--port", "0"],
        cwd=str(REPOSITORY), env={**os.environ, "AWS_ENDPOINT_URL": endpoint}, encoding="utf-8", timeout=90,
    )  # fmt: skip
    child.expect(r"http://127\.0\.0\.1:\d+/?")

    with urlopen(child.after) as answer:
        page = answer.read().decode()
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()

    assert "parking-permits" in page
    assert child.exitstatus in (0, 1)
    assert "Traceback" not in child.before


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
            timeout=90,
            check=False,
        )

    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert "parking-permits" in done.stdout
