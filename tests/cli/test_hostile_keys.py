"""`watermarks files` and `discard-plan` on a job whose items hold planted keys that lead out of its source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.helpers.watermarks import Watermarks
from tests.cli.stories import Command
from tests.support.planted import (
    JOB,
    OUTSIDE,
    make_secret,
    plan_of,
    plant_plan,
    plant_state,
    set_aside,
    state_of,
)


@pytest.fixture
def source(tmp_path: Path) -> str:
    """Return a folder with a file and a link to another folder, which holds a file that is not part of the source."""
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "a.csv").write_text("id\n1\n")
    (tmp_path / "landing" / "linked").symlink_to(make_secret(tmp_path).parent)
    return f"file://{tmp_path}/landing/"


@pytest.mark.parametrize(
    "arguments",
    [
        ["files", JOB],
        ["files", JOB, "--retry-all", "--why", "a test", "--yes"],
        ["files", JOB, "--skip", OUTSIDE, "--why", "a test", "--yes"],
        ["files", JOB, "--explain", OUTSIDE],
        ["files", JOB, "--explain", "a.csv"],
    ],
    ids=" ".join,
)
def test_error_names_the_key_and_nothing_changes_when_a_set_aside_key_leads_out(
    run: Command, watermarks: Watermarks, source: str, arguments: list[str]
) -> None:
    plant_state(watermarks, set_aside(state_of(source), OUTSIDE))

    found = run(watermarks, *arguments)

    assert found.exit_code != 0
    shown = " ".join(found.output.split())
    assert f"set aside has the key '{OUTSIDE}', which leads out of the source. Restore the job's item" in shown
    assert watermarks.latest(JOB).version == 1


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("linked/credentials.csv", "it is below a link to a folder, and such links are not followed"),
        (OUTSIDE, "it leads out of the source, by its name or by a link, and such links are not followed"),
    ],
)
def test_reason_says_that_a_link_is_not_followed_when_a_file_is_explained(
    run: Command, watermarks: Watermarks, source: str, key: str, reason: str
) -> None:
    plant_state(watermarks, state_of(source))

    found = json.loads(run(watermarks, "files", JOB, "--explain", source + key, "--output", "json").stdout)

    assert (found["state"], found["reason"]) == ("unknown", reason)


def test_plan_can_be_discarded_when_its_keys_lead_out(run: Command, watermarks: Watermarks, source: str) -> None:
    plant_plan(watermarks, plan_of(source, OUTSIDE), state_of(source))

    done = run(watermarks, "discard-plan", JOB, "--why", "a test", "--yes")

    assert done.exit_code == 0, done.output
    assert watermarks.latest(JOB).plan is None
