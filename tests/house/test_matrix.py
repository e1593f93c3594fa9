"""The matrix of Spark versions: it runs every test that starts Spark, and skips none without a listed reason."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

import pytest

from tests.support.imports import parse
from tests.support.places import REPOSITORY

TESTS = REPOSITORY / "tests"
STARTERS = {"find_jars", "SparkSession"}
"""Names without which no test starts Spark in another process."""


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def names_in(node: ast.AST) -> set[str]:
    return {found.id for found in ast.walk(node) if isinstance(found, ast.Name)}


def arguments_of(function: ast.FunctionDef) -> set[str]:
    return {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}


def starting_spark(tree: ast.AST, known: Set[str]) -> set[str]:
    """Return the functions of a file that start Spark: they use a name in `STARTERS`, or a fixture that starts it."""
    arguments = {function.name: arguments_of(function) for function in functions(tree)}
    found = {function.name for function in functions(tree) if names_in(function) & STARTERS}
    while True:
        more = {name for name, given in arguments.items() if given & (known | found)} - found
        if not more:
            return found
        found |= more


@cache
def fixtures_with_spark(folder: Path) -> frozenset[str]:
    """Return the fixtures that start Spark, of a folder and of the folders above it."""
    above: frozenset[str] = frozenset() if folder == TESTS else fixtures_with_spark(folder.parent)
    plugins = sorted(TESTS.glob("support/*_fixtures.py")) if folder == TESTS else []
    known = above
    for path in [folder / "conftest.py", *plugins]:
        if path.exists():
            tree = parse(path)
            known |= imported(tree) if folder != TESTS else set()
            known |= starting_spark(tree, known)
    return known


def imported(tree: ast.AST) -> set[str]:
    """Return the fixtures that start Spark and that a file imports from the conftest of another folder."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).endswith(".conftest"):
            folder = REPOSITORY / Path(*str(node.module).split(".")[:-1])
            found |= {alias.name for alias in node.names} & fixtures_with_spark(folder)
    return found


def starts_spark(path: Path) -> bool:
    tree = parse(path)
    found = starting_spark(tree, fixtures_with_spark(path.parent) | imported(tree))
    return any(name.startswith("test_") for name in found)


def test_every_file_that_starts_spark_is_run_when_the_matrix_picks_its_files() -> None:
    with_spark = [path for path in sorted(TESTS.rglob("test_*.py")) if starts_spark(path)]

    told = subprocess.run([REPOSITORY / ".ci" / "matrix", "files"], capture_output=True, text=True, check=True)
    picked = [REPOSITORY / line for line in told.stdout.splitlines()]

    expected = (
        "job_runs/test_spark_runs.py",
        "glue/test_glue_scripts.py",
        "databases/test_table.py",
        "cli/test_looking.py",
    )
    assert {TESTS / name for name in expected} <= set(with_spark)
    assert [path for path in with_spark if not any(path.is_relative_to(place) for place in picked)] == []


ALLOWED = "Maven cannot be reached: no answer", "Spark 3.3 has no timestamps without zone; this is pyspark 3.3.4"
SKIPS = "def test_it():\n    pytest.skip({!r})\n", "pytest.skip({!r}, allow_module_level=True)\n"


@pytest.mark.if_changed("runs")
@pytest.mark.parametrize(
    ("reasons", "exit_code"),
    [
        (ALLOWED, pytest.ExitCode.OK),
        (("no time", ALLOWED[1]), pytest.ExitCode.TESTS_FAILED),
        ((ALLOWED[0], "no time"), pytest.ExitCode.TESTS_FAILED),
    ],
    ids=["both-listed", "test", "file"],
)
def test_run_fails_in_ci_when_a_skip_has_a_reason_that_is_not_listed(
    tmp_path: Path, reasons: tuple[str, str], exit_code: int
) -> None:
    for number, (skip, reason) in enumerate(zip(SKIPS, reasons, strict=True)):
        (tmp_path / f"test_skipped{number}.py").write_text(f"import pytest\n\n{skip.format(reason)}")
    (tmp_path / "test_done.py").write_text("def test_it():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", str(tmp_path)]

    done = subprocess.run(
        command, cwd=REPOSITORY, env=os.environ | {"CI": "true"}, capture_output=True, text=True, check=False
    )

    assert done.returncode == exit_code, done.stdout + done.stderr
    assert "1 passed, 2 skipped" in done.stdout
