"""The examples in the docstrings of the package, run unchanged."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.job_runs.client import SparkSubmit
from scripts.helpers.watermarks import Watermarks
from tests.support.doctests import START, examples, load, needs_spark, run

FOR_USERS = (
    "files.bookmark", "files.delta", "protocol.names", "job", "job_runs.client", "rows.window", "watermarks",
    "glue.bookmarks", "glue.job",
)  # fmt: skip
"""Modules whose classes users call."""
ALSO_FOR_USERS = ("glue.context.GlueContext", "glue.frames.DynamicFrame")
"""Classes that users call, in modules that also have other classes."""


@pytest.fixture
def names(default_table: Watermarks, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the names that examples may use, such as a directory `landing` with two files and the default table."""
    for number in (1, 2):
        (tmp_path / f"{number}.csv").write_text("id\n123")
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "hello.py").write_text("print('hello')")
    jobs = {"script": str(folder / "hello.py"), "logs": str(folder / "logs"), "SparkSubmit": SparkSubmit}
    more = {"watermarks": default_table, "landing": str(tmp_path)}
    return {"FileBookmark": FileBookmark} | jobs | more


@pytest.mark.parametrize(
    "test", [test for test in examples() if not needs_spark(test)], ids=lambda test: test.name.removeprefix(START)
)
def test_docstring_example_gives_what_it_shows_when_it_is_run(test: doctest.DocTest, names: dict[str, Any]) -> None:
    run(test, names)


@pytest.mark.parametrize("module", FOR_USERS)
def test_every_class_that_users_call_has_an_example_when_its_docstring_is_read(module: str) -> None:
    loaded = load(module)
    public = [
        found
        for name, found in inspect.getmembers(loaded, inspect.isclass)
        if found.__module__ == loaded.__name__
        and not name.startswith("_")
        and not getattr(found, "_is_protocol", False)
    ]

    without = [found.__name__ for found in public if ">>>" not in (inspect.getdoc(found) or "")]

    assert public
    assert without == []


@pytest.mark.parametrize("name", ALSO_FOR_USERS)
def test_what_users_call_has_an_example_when_its_docstring_is_read(name: str) -> None:
    module, _, member = name.rpartition(".")

    assert ">>>" in (inspect.getdoc(getattr(load(module), member)) or "")


def test_examples_are_found_when_the_package_is_searched() -> None:
    found = {test.name.rpartition(".")[2] for test in examples()}
    in_folders = {test.name.removeprefix(START).partition(".")[0] for test in examples()}

    assert {
        "Watermarks",
        "FileBookmark",
        "FileDelta",
        "IncrementalJob",
        "RowWindow",
        "BatchId",
        "to_utc_string",
        "JobBookmarks",
        "attempt_id",
    } <= found
    assert {"glue", "job_runs"} <= in_folders
