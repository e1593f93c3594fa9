"""The parts of `make test`: each test runs in one of them."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.support.places import REPOSITORY

SHARD = REPOSITORY / ".ci" / "shard"
SHARDS = ("sinks", "jobs", "plain")


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
