"""Recording and judging of a small tree: which mutants tests kill, and which not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from typing import NamedTuple

import pytest

from tests.mutants.changes import mutants_of
from tests.mutants.judging import changed_codes
from tests.mutants.recording import Recorded, cpu_seconds
from tests.support.places import REPOSITORY

pytestmark = pytest.mark.if_changed("mutants")

CODE = """\
from functools import cache

LIMIT = 3
LIMITS = [LIMIT]


def is_large(number: int) -> bool:
    return number > LIMIT


def twice(number: int) -> int:
    if number < 0:
        return 0
    return number * 2


@cache
def seven() -> int:
    return 7


def unused(number: int) -> bool:
    return number == 1


def is_third(number: int) -> bool:
    return number == 3
"""
TESTS = """\
import itertools
import os
import pytest
from scripts import small
numbers = itertools.count(1)

@pytest.fixture(scope="session")
def endpoint():
    # Code that has run often is not equal to what it was.
    return [small.twice(number) for number in range(100)]

@pytest.fixture(scope="session")
def world():
    # As a table with a name of its own, which cannot be made twice on one server.
    os.close(os.open(f"table-{len(os.environ.get('MUTANTS_RECORDS', ''))}", os.O_CREAT | os.O_EXCL))

def test_large():
    assert small.is_large(4) and not small.is_large(3)

def test_third(world):
    assert small.is_third(3)

def test_twice():
    assert small.twice(2) == 4

def test_seven_is_asked_for():
    small.seven()

def test_seven():
    assert small.seven() == 7

def test_flaky():
    assert small.twice(-1) == 0 and "MUTANTS_RECORDS" in os.environ

def test_numbers():
    assert next(numbers) in (1, 2) or next(numbers) > 100_000
"""


class Judged(NamedTuple):
    """How the command ended, what it printed, and what became of each mutant of CODE, by what it changes."""

    code: int
    printed: list[str]
    results: dict[str, tuple[str, str]]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """Run the command in a small tree."""
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(REPOSITORY / "tests" / "mutants", tree / "tests" / "mutants", ignore=lambda *_: {"__pycache__"})
    for name, text in {
        "scripts/__init__": "",
        "tests/__init__": "",
        "tests/support/__init__": "",
        "tests/support/imports": (REPOSITORY / "tests" / "support" / "imports.py").read_text(),
        "scripts/small": CODE,
        "tests/test_small": TESTS,
    }.items():
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / f"{name}.py").write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    environment = os.environ | {"PYTHONPATH": str(tree), "XDG_CACHE_HOME": str(tree / "cache")}
    command = [sys.executable, "-m", "tests.mutants", "--all", "--results", "results", "--tests", "tests/test_small.py"]

    done = subprocess.run(
        [*command, "--", "small.py"], cwd=tree, env=environment, check=False, stdout=subprocess.PIPE, text=True
    )

    results = [json.loads(line) for line in (tree / "results").read_text().splitlines()]
    told = {
        result["mutant"].partition(" ")[2]: (result["outcome"], result["told"].rpartition("::")[2])
        for result in results
    }
    assert len(told) == len(results) == len(mutants_of("scripts/small.py", CODE.encode()))
    return Judged(done.returncode, done.stdout.splitlines(), told)


@pytest.mark.parametrize(
    ("mutant", "outcome", "told"),
    [
        ("module: LIMIT = 3: 3 -> (4) #1", "killed", "test_large"),
        ("is_large: return number > LIMIT: number > LIMIT -> (number <= LIMIT) #1", "killed", "test_large"),
        ("twice: return number * 2: 2 -> (3) #1", "killed", "test_twice"),
        ("twice: if number < 0:: number < 0 -> (number >= 0) #1", "killed", "test_twice"),
        ("seven: return 7: 7 -> (8) #1", "killed", "test_seven"),
        ("is_third: return number == 3: 3 -> (4) #1", "killed", "test_third"),
        ("is_third: return number == 3: number == 3 -> (number != 3) #1", "killed", "test_third"),
        ("unused: return number == 1: number == 1 -> (number != 1) #1", "SURVIVED", "no test runs it"),
        ("twice: return 0: 0 -> (1) #1", "SURVIVED", "1 of 1 tests pass"),
        ("twice: if number < 0:: 0 -> (1) #1", "SURVIVED", "2 of 2 tests pass"),
    ],
)
def test_mutant_is_killed_only_when_a_test_fails_that_passes_without_it(
    judged: Judged, mutant: str, outcome: str, told: str
) -> None:
    assert judged.results[mutant] == (outcome, told)


def test_command_lists_what_survived_and_succeeds_when_some_did(judged: Judged) -> None:
    outcomes = [outcome for outcome, _ in judged.results.values()]

    *others, last = judged.printed
    survivors = [line for line in others if line.startswith("SURVIVED")]
    assert judged.code == 0
    assert len(survivors) == outcomes.count("SURVIVED") > 0
    assert last == f"{outcomes.count('killed')} killed, {len(survivors)} survived"


def test_command_fails_when_there_is_no_such_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants", "--all", "--", "no_such_module.py"],
        check=False, cwd=REPOSITORY, capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 1
    assert "There is no module or room 'no_such_module.py'" in done.stderr


def test_codes_have_no_place_when_a_function_needs_other_cells() -> None:
    source = b"def f(a):\n    def g():\n        h(a, b)\n        return 1\n    return g\n"
    dropped, *others = mutants_of("a.py", source)

    assert changed_codes(dropped, source) is None
    assert all(changed_codes(mutant, source) for mutant in others)


def test_test_counts_for_a_whole_module_when_it_has_changed_since() -> None:
    (mutant,) = mutants_of("a.py", b"def f():\n    return a\n")

    assert Recorded("t", 0, {"a.py": 1 << 2}).runs(mutant)
    assert not Recorded("t", 0, {"a.py": 1 << 3}).runs(mutant)
    assert Recorded("t", 0, {"a.py": None}).runs(mutant)
    assert not Recorded("t", 0, {"b.py": None}).runs(mutant)


def test_time_is_that_of_a_process_and_its_children_when_others_of_its_session_work() -> None:
    work = "import time\nwhile time.process_time() < 2: pass"
    waiting = [sys.executable, "-c", "input()"]
    of_a_child = [
        sys.executable,
        "-c",
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])\ninput()",
    ]
    with (
        subprocess.Popen(waiting, stdin=subprocess.PIPE) as idle,
        subprocess.Popen(of_a_child, stdin=subprocess.PIPE) as parent,
    ):
        while cpu_seconds(parent.pid) < 1:
            time.sleep(0.05)
        beside = cpu_seconds(idle.pid)
        for process in (idle, parent):
            process.communicate(b"\n")

    assert beside < 0.9
