"""The parts of `make test`: each test runs in one of them, and what does not run is named."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import reach
from tests.support.places import REPOSITORY

SHARD = REPOSITORY / ".ci" / "shard"
SHARDS = ("sinks", "jobs", "plain")
TESTS = """\
import pytest

@pytest.mark.if_changed('mutants')
def test_of_the_group():
    pass

def test_of_none():
    pass
"""


def shard(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([folder / ".ci" / "shard", *arguments], capture_output=True, text=True, check=False)


def test_each_file_of_tests_is_in_one_part_when_all_parts_are_listed() -> None:
    listed = [line for name in SHARDS for line in shard(REPOSITORY, "files", name).stdout.splitlines()]

    expected = [path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "tests").rglob("test_*.py")]
    assert Counter(listed) == Counter(expected)


@pytest.mark.parametrize(
    ("ran", "code", "shown"),
    [
        pytest.param({"sinks": "b\n", "jobs": "c\n", "plain": "a\n"}, 0, "", id="all"),
        pytest.param({"sinks": "b\n", "jobs": "c\n", "plain": ""}, 1, "< a\n", id="one-is-missing"),
        pytest.param({"sinks": "b\n", "jobs": "c\n", "plain": "a\nb\n"}, 1, "> b\n", id="one-twice"),
        pytest.param({"sinks": "b\n", "jobs": "c\n"}, 1, "plain.ids", id="a-part-did-not-run"),
    ],
)
def test_check_fails_when_parts_ran_other_tests_than_there_are(
    tmp_path: Path, ran: dict[str, str], code: int, shown: str
) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(SHARD, tmp_path / ".ci")
    out = tmp_path / "build" / "tests"
    out.mkdir(parents=True)
    (out / "all.ids").write_text("c\na\nb\n")
    for name, ids in ran.items():
        (out / f"{name}.ids").write_text(ids)

    done = shard(tmp_path, "check")

    assert done.returncode == code
    assert shown in done.stdout + done.stderr


def run_tests(folder: Path, *, long: bool) -> str:
    """Run a test of a group, and one of none, as `make test` or `make test-long` does; return what pytest says."""
    (folder / "test_it.py").write_text(TESTS)
    variables = {name: value for name, value in os.environ.items() if name != "GLUE_WATERMARKS_LONG"}
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=variables | ({"GLUE_WATERMARKS_LONG": "1"} if long else {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_group_is_left_out_and_named_when_nothing_that_it_reaches_has_changed(tmp_path: Path) -> None:
    lately, long = run_tests(tmp_path, long=False), run_tests(tmp_path, long=True)

    line = f"mutants: 1 tests did not run, because nothing .* has changed .*{reach.digest('mutants')}"
    assert "2 passed" in long
    if reach.has_passed("mutants"):
        assert "1 passed, 1 deselected" in lately
        assert re.search(line, lately)
    else:
        assert "2 passed" in lately


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a copy of what the groups reach, in which both have passed."""
    folder = tmp_path_factory.mktemp("copy")
    for name in (".ci", "docs", "scripts", "terraform", "tests"):
        wanted = shutil.ignore_patterns("__pycache__", ".terraform*", "*.png")
        shutil.copytree(REPOSITORY / name, folder / name, ignore=wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reach, "REPOSITORY", folder)
        patch.setattr(reach, "PASSED", folder / ".ci" / "passed")
        patch.setattr(reach, "PACKAGES", folder / ".ci" / "constraints.txt")
        reach.digest.cache_clear()
        reach.main(["infra", "mutants", "protocol"])
        yield folder
    reach.digest.cache_clear()


@pytest.mark.parametrize(
    ("changed", "left"),
    [
        pytest.param("terraform/policies.tf", {"model", "mutants"}, id="terraform"),
        pytest.param("terraform/tests/choices.tftest.hcl", {"model", "mutants"}, id="a-test-of-terraform"),
        pytest.param("scripts/helpers/protocol/dynamodb.py", {"model", "mutants"}, id="a-module-that-needs-a-right"),
        pytest.param("scripts/jobs/ingest_table.py", {"model", "mutants"}, id="a-job-of-the-example"),
        pytest.param("docs/permissions.md", {"model", "mutants"}, id="the-page"),
        pytest.param("tests/support/iam_policies.py", {"model", "mutants"}, id="the-evaluator"),
        pytest.param("docs/model/exactly_once.pml", {"mutants", "terraform"}, id="the-model"),
        pytest.param("tests/mutants/judging.py", {"model", "terraform"}, id="the-tool"),
        pytest.param(".ci/constraints.txt", set(), id="packages"),
        pytest.param("scripts/helpers/display/units.py", set(reach.GROUPS), id="neither"),
    ],
)
def test_group_has_not_passed_when_something_that_it_reaches_is_changed(
    copy: Path, changed: str, left: set[str]
) -> None:
    path = copy / changed
    before = path.read_bytes()
    path.write_bytes(before + b"\n")
    reach.digest.cache_clear()

    passed = {group for group in reach.GROUPS if reach.has_passed(group)}

    path.write_bytes(before)
    assert passed == left
