"""docs/run-on.md and the other pages that submit a job: names, arguments and what a retry does."""

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
from tests.docs.pages import PAGES, fences, metadata, run_page, shell_commands, text_of
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
