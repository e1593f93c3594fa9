"""docs/run-on.md and the other pages that submit a job have valid names and arguments, and a retry works."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from scripts.helpers.watermarks import Watermarks
from scripts.jobs import ingest_files, ingest_table, session
from tests.docs.pages import PAGES, fences, is_test, metadata, run_page, shell_commands, text_of
from tests.support.maven_jars import TABLES
from tests.support.places import REPOSITORY

JOBS = {"scripts/jobs/ingest_files.py": ingest_files, "scripts/jobs/ingest_table.py": ingest_table}
SUBMITTED = [command for page in PAGES for command in shell_commands(page) if command.startswith("spark-submit ")]


def test_retry_enters_at_once_when_the_page_is_followed(make_watermarks: Callable[..., Watermarks]) -> None:
    watermarks = make_watermarks(clock=lambda: datetime.now(timezone.utc))

    assert run_page("run-on.md", {"watermarks": watermarks}) == 1


def test_setting_of_emr_names_the_python_that_is_installed() -> None:
    [text] = [block for language, block in fences("run-on.md") if language == "json"]
    [install] = [command for command in shell_commands("run-on.md") if command.startswith("sudo dnf install -y ")]

    [setting] = json.loads(text)

    python = Path(setting["Configurations"][0]["Properties"]["PYSPARK_PYTHON"]).name
    assert setting["Classification"] == "spark-env"
    assert python in install.split()
    assert [command for command in shell_commands("run-on.md") if command.startswith(f"sudo {python} -m pip ")]


def test_wheel_is_called_as_the_pages_say() -> None:
    named = {name for page in PAGES for name in re.findall(r"glue_watermarks-[\w.]+-py3-none-any", text_of(page))}

    assert named == {f"glue_watermarks-{metadata()['metadata']['version']}-py3-none-any"}


def test_connectors_are_those_that_tests_use_when_a_page_names_them() -> None:
    named = {
        name for page in PAGES for name in re.findall(r"(?:io\.delta|org\.apache\.iceberg):[\w.:-]*\w", text_of(page))
    }

    assert named
    assert named <= {name for names in TABLES.values() for name in names}


SMALL = ("small/spark-3.3.txt", "small/spark-4.1.txt")
"""Files of .ci that each name a Spark version on which `make test` runs the small set of tests."""


def installed(*names: str) -> set[str]:
    """Return the Spark versions that files of .ci install."""
    text = "".join((REPOSITORY / ".ci" / name).read_text(encoding="utf-8") for name in names)
    return set(re.findall(r"\b(?:pyspark==|constraints_with )(\d+\.\d+\.\d+)", text))


def tried() -> list[list[str]]:
    """Return each row of the page's table: the platform, what ran on it, and what ran it."""
    section = text_of("run-on.md").partition("\n## What was tried where\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[1:]]


@pytest.mark.parametrize("row", tried(), ids=lambda row: row[0])
def test_platform_names_an_existing_test_when_it_was_tried(row: list[str]) -> None:
    _, ran, by = row
    named = re.findall(r"`([^`]+)`", by)

    targets = [name.removeprefix("make ") for name in named if name.startswith("make ")]
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert [target for target in targets if f"\n{target}: " not in makefile] == []
    assert [name for name in named if not name.startswith("make ") and not is_test(name)] == []
    # A platform that was tried names a test. One that was not says so, and claims nothing.
    assert bool(named) == bool(ran)
    assert named or by == "not at all"


@pytest.mark.parametrize(
    ("target", "files"),
    [
        ("make test", ("constraints.txt", *SMALL)),
        ("make test-matrix", ("constraints-spark-3.3.txt", "matrix")),
    ],
)
def test_sparks_are_those_that_are_installed_when_a_target_tried_them(target: str, files: tuple[str, ...]) -> None:
    told = [re.findall(r"Spark (\d+\.\d+\.\d+), Python 3", row[0]) for row in tried() if f"`{target}`" in row[2]]

    assert sorted(told) == [[version] for version in sorted(installed(*files))]


def test_small_set_is_told_apart_from_all_tests_when_only_it_ran() -> None:
    told = {version: ran for platform, ran, by in tried() for version in re.findall(r"Spark (\d\.\d\.\d)", platform)}

    claimed = {version for version in installed(*SMALL) if "the small set" in told[version]}

    assert claimed == installed(*SMALL)


@pytest.mark.parametrize("command", SUBMITTED, ids=range(len(SUBMITTED)))
def test_arguments_are_the_jobs_when_a_page_submits_it(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(command)
    [script] = [word for word in words if word in JOBS]
    parsed = []
    monkeypatch.setattr(session, "run_job", lambda work, arguments, *_, **__: parsed.append(arguments) or 0)

    code = JOBS[script].main(words[words.index(script) + 1 :])

    assert (REPOSITORY / script).is_file()
    assert code == 0
    assert words[words.index("--JOB_NAME") + 1] == parsed[0].JOB_NAME


def test_zone_is_named_when_a_page_or_an_error_recommends_frames_of_pandas() -> None:
    """Outside UTC, Spark writes two instants in the hour that clocks repeat as the same time without zone."""
    places = [*(REPOSITORY / "docs").glob("*.md"), *(REPOSITORY / "scripts").rglob("*.py")]
    lines = [line for place in places for line in place.read_text(encoding="utf-8").splitlines()]

    recommended = [line for line in lines if "write df.toPandas()" in line.replace("`", "")]

    assert len(recommended) == 2
    assert [line for line in recommended if "spark.sql.session.timeZone=UTC" not in line] == []
