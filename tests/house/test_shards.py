"""The parts of `make test`: each test runs in exactly one part."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.support.places import REPOSITORY

SHARD = REPOSITORY / ".ci" / "shard"


def shard(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([folder / ".ci" / "shard", *arguments], capture_output=True, text=True, check=False)


def names(folder: Path) -> list[str]:
    return shard(folder, "names").stdout.split()


def test_each_file_of_tests_is_in_one_part_when_all_parts_are_listed() -> None:
    listed = [line for name in names(REPOSITORY) for line in shard(REPOSITORY, "files", name).stdout.splitlines()]

    expected = [path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "tests").rglob("test_*.py")]
    assert Counter(listed) == Counter(expected)


@pytest.mark.parametrize(
    ("ran", "code", "shown"),
    [
        pytest.param(["b\n", "c\n", "a\n"], 0, "", id="all"),
        pytest.param(["b\n", "c\n", ""], 1, "< a\n", id="one-is-missing"),
        pytest.param(["b\n", "c\n", "a\nb\n"], 1, "> b\n", id="one-twice"),
        pytest.param(["b\n", "c\n", None], 1, ".ids", id="a-part-did-not-run"),
    ],
)
def test_check_fails_when_parts_ran_other_tests_than_there_are(
    tmp_path: Path, ran: list[str | None], code: int, shown: str
) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(SHARD, tmp_path / ".ci")
    out = tmp_path / "build" / "tests"
    out.mkdir(parents=True)
    (out / "all.ids").write_text("c\na\nb\n")
    for name, ids in zip_longest(names(tmp_path), ran, fillvalue=""):
        if ids is not None:
            (out / f"{name}.ids").write_text(ids)

    done = shard(tmp_path, "check")

    assert done.returncode == code
    assert shown in done.stdout + done.stderr
