"""The metric lines and the command of docs/metrics.md."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from scripts.cli.main import cli
from scripts.cli.surroundings import Surroundings
from scripts.helpers.watermarks import Watermarks
from tests.docs.pages import run_page, text_of


@pytest.fixture
def late_table(make_watermarks: Any, endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Watermarks:
    """Return a table with a job whose cursor is four days old. The command finds the table by the environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.chdir(tmp_path)
    made: Watermarks = make_watermarks(clock=lambda: datetime.now(timezone.utc))
    monkeypatch.setenv("WATERMARKS_TABLE", made.table_name)
    state = {"kind": "rows", "cursor_column": "at", "type": "timestamp"}
    state["value"] = datetime.now(timezone.utc) - timedelta(days=4)  # type: ignore[assignment]
    made.set_watermark("repairs", state, transformation_ctx="repairs", why="a test")
    (tmp_path / "landing").mkdir()
    found = re.search(r'^\{"parking.*$', text_of("metrics.md"), re.MULTILINE)
    assert found is not None
    (tmp_path / "freshness.json").write_text(found.group())
    return made


def test_page_shows_what_is_printed_when_it_is_followed(
    late_table: Watermarks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command runs at the moment of the newest commit, so that a slow machine prints the same."""
    monkeypatch.setattr(Surroundings, "now", lambda _: late_table.latest("parking").last.at)  # type: ignore[union-attr]

    assert run_page("metrics.md", {"watermarks": late_table, "lake": str(tmp_path), "Path": Path}) == 4


@pytest.mark.parametrize(
    ("threshold", "arguments", "code"),
    [
        ({"error": "5d", "measure": "lag"}, ["--fail-on", "missing"], 0),
        ({"error": "3d", "measure": "lag"}, ["--fail-on", "missing"], 1),
        ({"error": "3d", "measure": "lag"}, [], 0),
        ({"warn": "3d", "measure": "lag"}, ["--fail-on", "missing"], 0),
        ({"warn": "3d", "measure": "lag"}, ["--fail-on", "late"], 1),
        ({"error": "1h"}, ["repairs", "--fail-on", "missing"], 0),
    ],
    ids=["in-time", "late", "only-listed", "warned", "warned-and-strict", "one-job"],
)
def test_exit_code_tells_whether_a_job_is_late_when_a_scheduler_asks(
    late_table: Watermarks, threshold: dict[str, str], arguments: list[str], code: int
) -> None:
    Path("all.json").write_text(json.dumps({"*": threshold}))

    done = CliRunner().invoke(cli, ["jobs", "--thresholds", "all.json", *arguments])

    assert done.exit_code == code, done.output


def test_a_line_for_each_job_is_printed_when_metrics_are_asked_for(late_table: Watermarks) -> None:
    done = CliRunner().invoke(cli, ["jobs", "--metrics"])

    [line] = [json.loads(text) for text in done.stdout.splitlines()]
    assert done.exit_code == 0
    assert (line["Job"], line["OpenPlanAgeSeconds"]) == ("repairs", 0)
    assert line["LagSeconds"] == pytest.approx(4 * 86_400, abs=100)


def test_job_is_late_when_a_threshold_names_it_and_the_table_does_not(late_table: Watermarks) -> None:
    Path("named.json").write_text('{"repair": {"error": "9d"}, "parking*": {"error": "9d"}}')

    done = CliRunner().invoke(cli, ["jobs", "--thresholds", "named.json", "--fail-on", "missing"])

    assert done.exit_code == 1
    assert "not in the table; check the name in the thresholds" in done.stdout
    assert "1 of 2 jobs needs attention." in done.stdout


@pytest.mark.parametrize(("limit", "code"), [("1h", 1), ("3h", 0)])
def test_job_that_never_committed_is_late_when_its_run_began_long_ago(
    late_table: Watermarks, make_watermarks: Any, limit: str, code: int
) -> None:
    long_ago = datetime.now(timezone.utc) - timedelta(hours=2)
    make_watermarks(late_table.table_name, clock=lambda: long_ago).begin("loans", "jr_1")

    Path("all.json").write_text(json.dumps({"*": {"error": limit}}))

    named = ["loans", "--thresholds", "all.json", "--fail-on", "missing"]
    done = CliRunner().invoke(cli, ["jobs", *named, "--output", "json"])

    assert done.exit_code == code, done.output
    [job] = json.loads(done.stdout)["jobs"]
    assert job["state"] == ("missing" if code else "lease over")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("{", "freshness.json is not JSON"),
        ("[]", "freshness.json must be a JSON object by job name"),
        ('{"a": {"warn": "soon"}}', "The threshold of 'a': 'soon' is not a duration."),
    ],
    ids=["broken", "list", "duration"],
)
def test_file_is_refused_when_it_is_wrong(late_table: Watermarks, file: str, text: str) -> None:
    Path("freshness.json").write_text(file)

    done = CliRunner().invoke(cli, ["jobs", "--thresholds", "freshness.json"])

    assert done.exit_code == 65
    assert text in done.stderr


def test_job_of_one_version_is_not_known_to_be_late_when_no_threshold_is_given(late_table: Watermarks) -> None:
    done = CliRunner().invoke(cli, ["jobs", "--fail-on", "late", "--output", "json"])

    [job] = json.loads(done.stdout)["jobs"]
    assert (done.exit_code, job["state"], job["usual_seconds"]) == (0, "idle", None)
