"""The small set of tests on other Spark versions: what `make test` reports if it ran there, and if it could not run."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.locked import versions
from tests.support import reach
from tests.support.places import REPOSITORY

SMALL = REPOSITORY / ".ci" / "small"
NO_PYTHON = {"PYTHON310": "/nowhere/python3.10", "PYTHON313": "/nowhere/python3.13"}
"""Variables that hide Python 3.10 and 3.13, as on a machine that has only Python 3.11."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a folder with the files of .ci and this environment, also as that of Spark 4.1 on Python 3.11.

    No group of tests is noted as passed there.
    """
    shutil.copytree(REPOSITORY / ".ci", tmp_path / ".ci", ignore=shutil.ignore_patterns("passed"))
    for name in ("scripts", "tests", *reach.STARTED_BY):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / ".venv-matrix").mkdir()
    (tmp_path / ".venv-matrix" / f"small-spark-4.1-{platform.python_version()}").symlink_to(sys.prefix)
    # An old lock file: the environment counts as created after the versions were locked.
    os.utime(tmp_path / ".ci" / "small" / "spark-4.1.txt", (0, 0))
    return tmp_path


def small(clone: Path, argument: str, **variables: str) -> subprocess.CompletedProcess[str]:
    of_make = ("GLUE_WATERMARKS_ALL", "GLUE_WATERMARKS_LONG")
    kept = {name: value for name, value in os.environ.items() if name not in of_make}
    return subprocess.run(
        [clone / ".ci" / "small" / "run", argument],
        env=kept | NO_PYTHON | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.if_changed("runs")
def test_report_says_that_a_spark_was_not_tried_when_its_python_is_missing(clone: Path) -> None:
    done = small(clone, "spark-3.3")

    report = small(clone, "report").stdout
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Spark 3.3.4: NOT TRIED, as there is no Python 3.10; name one with PYTHON310=PATH\n"
    assert done.stdout in report
    assert "spark-4.1: NOT TRIED, as its run did not end\n" in report


@pytest.mark.if_changed("runs")
@pytest.mark.parametrize(
    ("body", "code", "outcome"), [("pass", 0, "1 passed"), ("raise ValueError", 1, "1 failed")], ids=["good", "bad"]
)
def test_spark_is_tried_on_the_python_there_is_when_it_can_run_there(
    clone: Path, body: str, code: int, outcome: str
) -> None:
    (clone / "test_it.py").write_text(f"def test_it():\n    {body}\n")
    (clone / ".ci" / "small" / "tests.txt").write_text("test_it.py::test_it\n")

    done = small(clone, "spark-4.1")

    _, _, line = small(clone, "report").stdout.splitlines()
    label = f"Spark 4.1.1, Python {platform.python_version()}"
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stdout.startswith(f"== {label}, the small set\n")
    assert line.startswith(f"{label}, as there is no Python 3.13 (PYTHON313=PATH): the small set, {outcome}")
    # A result on a Python that the set is not for is not noted for the group.
    assert not (clone / "build" / "groups").exists()


@pytest.mark.if_changed("runs")
@pytest.mark.parametrize("variables", [{}, {"GLUE_WATERMARKS_ALL": "1"}], ids=["make-test", "make-test-all"])
def test_spark_is_named_and_not_tried_when_nothing_has_changed_since_the_set_passed_there(
    clone: Path, variables: dict[str, str]
) -> None:
    asked = "from tests.support.reach import digest; print(digest('spark-3.3'))"
    of_the_clone = subprocess.run([sys.executable, "-c", asked], cwd=clone, capture_output=True, text=True, check=True)
    (clone / ".ci" / "passed").write_text(f"spark-3.3 {of_the_clone.stdout}")

    done = small(clone, "spark-3.3", **variables)

    line = f"spark-3.3: the small set on Spark 3.3.4 did not run, because .* (SHA-256 {of_the_clone.stdout.strip()}).\n"
    is_named = re.fullmatch(line.replace("(", r"\(").replace(")", r"\)"), done.stdout) is not None
    assert done.returncode == 0, done.stderr
    assert is_named == (not variables)
    assert is_named != ("NOT TRIED" in done.stdout)
    assert done.stdout in small(clone, "report").stdout


@pytest.mark.if_changed("runs")
@pytest.mark.parametrize(
    ("body", "outcomes"),
    [
        ("pass", {"collected", "passed"}),
        ("raise ValueError", {"collected", "failed"}),
        ("import pytest; pytest.skip('no database')", {"collected", "skipped"}),
    ],
    ids=["good", "bad", "skipped"],
)
def test_result_is_left_when_the_set_has_run_on_the_python_that_it_is_for(
    clone: Path, monkeypatch: pytest.MonkeyPatch, body: str, outcomes: set[str]
) -> None:
    (clone / "tests").unlink()
    for name in ("conftest.py", "__init__.py", "support"):
        (clone / "tests").mkdir(exist_ok=True)
        (clone / "tests" / name).symlink_to(REPOSITORY / "tests" / name)
    (clone / "tests" / "test_it.py").write_text(f"def test_it():\n    {body}\n")
    (clone / ".ci" / "small" / "tests.txt").write_text("tests/test_it.py::test_it\n")
    python = clone / "python3.13"
    python.write_text('#!/bin/sh\ncase "$2" in *version_info*) echo 3.13 ;; *) echo 3.13.0 ;; esac\n')
    python.chmod(0o755)
    (clone / ".venv-matrix" / "small-spark-4.1-3.13.0").symlink_to(sys.prefix)
    monkeypatch.setattr(reach, "RESULTS", clone / "build" / "groups")

    done = small(clone, "spark-4.1", PYTHON313=str(python))

    assert done.stdout.startswith("== Spark 4.1.1, Python 3.13.0, the small set\n"), done.stdout + done.stderr
    assert {(one.group, one.outcome, one.tests) for one in reach.left()} == {
        ("spark-4.1", outcome, 1) for outcome in outcomes
    }


@pytest.mark.if_changed("runs")
def test_outcome_of_an_earlier_run_is_gone_when_the_next_one_fails_at_its_start(clone: Path) -> None:
    small(clone, "spark-3.3")
    (clone / ".ci" / "small" / "spark-3.3.txt").unlink()

    done = small(clone, "spark-3.3")

    assert done.returncode != 0
    assert "spark-3.3: NOT TRIED, as its run did not end\n" in small(clone, "report").stdout


def test_all_sparks_and_the_report_are_part_of_the_tests_when_make_runs_them() -> None:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    }

    planned = subprocess.run(
        ["make", "--dry-run", "test"], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
    ).stdout

    steps = (".ci/small/run spark-3.3", ".ci/small/run spark-4.1", ".ci/shard check", ".ci/small/run report")
    places = [planned.index(step) for step in steps]
    assert places == sorted(places)
    assert ".ci/types\n" in planned[: places[2]]


@pytest.mark.parametrize(("number", "all_of_it"), [("3.3", "constraints-spark-3.3.txt"), ("4.1", "constraints.txt")])
def test_small_set_locks_the_same_versions_as_all_tests_when_both_have_a_package(number: str, all_of_it: str) -> None:
    """Otherwise the small set and the matrix would test different versions of a package."""
    known = versions(REPOSITORY / ".ci" / all_of_it)
    of_its_own = {"setuptools", "wheel"} if number == "3.3" else {"pyspark"}

    small_set = versions(SMALL / f"spark-{number}.txt")
    others = {name for name, version in small_set.items() if known.get(name) != version}

    assert others == of_its_own


def test_python_is_found_when_it_is_named_or_on_path(tmp_path: Path) -> None:
    version = "{}.{}".format(*sys.version_info[:2])
    (tmp_path / f"python{version}").symlink_to(sys.executable)

    def find(**more: str) -> str:
        command = [str(REPOSITORY / ".ci" / "find-python"), version]
        return subprocess.run(
            command, env=os.environ | more, capture_output=True, text=True, check=False
        ).stdout.strip()

    on_path = find(PATH=f"{tmp_path}:{os.environ['PATH']}")
    named = find(**{f"PYTHON{version.replace('.', '')}": sys.executable})
    of_another_version = find(**{f"PYTHON{version.replace('.', '')}": "/bin/true"})

    assert on_path == str(tmp_path / f"python{version}")
    assert (named, of_another_version) == (sys.executable, "")
