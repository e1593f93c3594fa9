"""Public Glue scripts with changed imports: each runs several times with new data, and writes what Glue would write.

The scripts are read from the folder that GLUE_SCRIPTS_DIR names; see docs/CONTRIBUTING.md.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

import scripts
import scripts.helpers
from scripts.helpers.watermarks import Watermarks
from tests.glue.glue_scripts import FOLDER, Script, Stage, moved
from tests.glue.public_scripts import SCRIPTS, WRITTEN_HERE
from tests.support.components import SCRIPTS_NOT_FETCHED
from tests.support.fetch_glue_scripts import fetch
from tests.support.patience import LONG
from tests.support.places import REPOSITORY

REGION = "ap-northeast-3"
"""A separate region: the scripts use the table with the default name, and database names that their authors chose."""
Run = Callable[[Script, Path], Stage]


def share_context(self: SparkContext, *args: Any, **options: Any) -> None:
    """Replace `SparkContext.__init__`: each script makes a context, but a process can have only one."""
    vars(self).update(vars(SparkContext.getOrCreate()))


@pytest.fixture
def folder() -> Path:
    found = os.environ.get(FOLDER)
    if not found:
        pytest.skip(
            f"{SCRIPTS_NOT_FETCHED}: docs/CONTRIBUTING.md says how to fetch them, and {FOLDER} names their folder"
        )
    return Path(found)


@pytest.fixture
def run_all(
    spark: Any, s3: Any, jdbc: Any, postgres: Any, endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Run]:
    """Return a function that runs a script once per batch of new data, with the table of the default name."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setattr(SparkContext, "__init__", share_context)
    # Merge the packages of the script's repository with ours of the same names, as two installed wheels would.
    for package in (scripts, scripts.helpers):
        below = package.__name__.replace(".", "/")
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path / below)])
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    table = Watermarks()
    table.create_table()
    built: list[Stage] = []

    def run(script: Script, folder: Path) -> Stage:
        stage = Stage(script, folder, spark, s3, postgres, tmp_path)
        built.append(stage)
        stage.build()
        for number in range(script.runs):
            stage.land(number)
            stage.run(number, monkeypatch)
        return stage

    yield run
    table.store.client.delete_table(TableName=table.table_name)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    for stage in built:
        stage.take_down()


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_targets_hold_what_glue_gives_when_a_public_script_runs_with_new_data_between(
    script: Script, folder: Path, run_all: Run
) -> None:
    if script.stops:
        with pytest.raises(Exception, match=re.escape(script.stops)):
            run_all(script, folder)
        return

    stage = run_all(script, folder)

    for target in script.targets:
        assert stage.held(target) == stage.expected(target), target.place


@pytest.mark.parametrize("script", WRITTEN_HERE, ids=lambda script: script.name)
def test_targets_hold_each_row_once_when_a_script_in_the_manner_of_public_ones_runs(
    script: Script, run_all: Run
) -> None:
    stage = run_all(script, REPOSITORY)

    for target in script.targets:
        assert stage.held(target) == stage.expected(target), target.place


def test_script_changes_by_its_imports_only_when_moved() -> None:
    text = "import sys\nfrom awsglue.transforms import *\n  from awsglue.job import Job\nprint('from awsglue')\n"

    assert moved(text).splitlines() == [
        "import sys", "from scripts.helpers.glue import *", "  from scripts.helpers.glue import Job",
        "print('from awsglue')",
    ]  # fmt: skip


def test_files_are_those_of_the_commit_when_scripts_are_fetched(tmp_path: Path) -> None:
    repository, target = tmp_path / "repository", tmp_path / "scripts"

    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=repository, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    repository.mkdir()
    git("init", "--quiet")
    for text in ("first", "second"):
        (repository / "jobs").mkdir(exist_ok=True)
        (repository / "jobs" / "job.py").write_text(text)
        git("add", ".")
        git("commit", "--quiet", "--message", text)
    first = git("rev-parse", "HEAD~1")

    fetch(str(repository), first, ["jobs/job.py"], target)

    assert [path.relative_to(target) for path in target.rglob("*.py")] == [Path("jobs/job.py")]
    assert (target / "jobs" / "job.py").read_text() == "first"
    with pytest.raises(subprocess.CalledProcessError):
        fetch(str(repository), first, ["jobs/gone.py"], target)


def test_page_states_the_right_number_of_scripts_when_it_is_read() -> None:
    right = [script for script in SCRIPTS if not script.stops]
    page = " ".join((REPOSITORY / "docs" / "glue.md").read_text().split())

    assert len(SCRIPTS) >= 30
    assert len({(script.repository, script.path) for script in SCRIPTS}) == len(SCRIPTS)
    assert all(script.why for script in SCRIPTS if script.stops)
    assert all(script.targets for script in right)
    assert all(re.fullmatch("[0-9a-f]{40}", script.commit) for script in SCRIPTS)
    assert f"Of {len(SCRIPTS)} public scripts" in page
    assert f"{len(right)} give what Glue gives" in page
