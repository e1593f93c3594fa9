"""Run the examples of pages and docstrings as they are written."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from typing import Any

import scripts.helpers


def run_doctest(text: str, names: dict[str, Any]) -> doctest.TestResults:
    """Run a block of a REPL session, in which three dots match anything."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    test = doctest.DocTestParser().get_doctest(text, names, "README.md", "README.md", 0)
    return doctest.DocTestRunner(optionflags=flags).run(test)


START = "scripts.helpers."
MODULES = sorted(
    module.name.removeprefix(START)
    for module in pkgutil.walk_packages(scripts.helpers.__path__, START)
    if not module.ispkg
)


def load(module: str) -> Any:
    return importlib.import_module(START + module)


def examples() -> list[doctest.DocTest]:
    """Return every docstring of the package that has an example."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [test for module in MODULES for test in finder.find(load(module)) if test.examples]


def needs_spark(test: doctest.DocTest) -> bool:
    """Return whether an example works on Spark; such examples run with the other Spark tests."""
    return "glue_context" in (test.docstring or "")


def run(test: doctest.DocTest, names: dict[str, Any]) -> None:
    """Run an example as it is written."""
    test.globs.update(names)
    told: list[str] = []

    result = doctest.DocTestRunner(verbose=False).run(test, out=told.append, clear_globs=False)

    assert result.attempted > 0
    assert result.failed == 0, "".join(told)
