"""Which tests cover a module: those of its room, those that import it, and those of the rooms that import it.

Import graphs are cheap and need no run before; a run of the whole suite with coverage contexts would take as long as
the suite. The run ends with the first failure, so that tests far away cost time only where those beside the code
notice nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.support.imports import files_below, names_imported

NEEDS_SPARK = re.compile(r"\b(spark|jdbc|glue_context|driver|page): \w+")
SEARCHES = re.compile(r"\b(subprocess|Thread|fault_plan|crowd|machine|watermarks_suite|interleavings)\b")
"""What tests need that try many orders of steps, or run others: they find most, and seldom soonest."""
START_PYTHONS = {"cli", "docs", "infra", "report"}


def covering_tests(root: Path, module: str) -> list[str]:
    """Return the test files that cover a module, those that find a fault soonest first.

    First those of its room that import it, then the rest of the room's; then those elsewhere that import it, and
    those of the rooms and doors that do. What has no test of its own is often noticed where it is used. A file of the
    same name comes before all others, although it may need Spark.
    """
    dotted = _dotted(Path(module))
    tests = _tests_below(root / "tests")
    importing = [path for path in tests if _imports(path, dotted, root)]
    own = root / "tests" / _room(Path(module))
    found = [path for path in importing if path.is_relative_to(own)] + _tests_below(own) + importing
    for user in _users(root, dotted):
        if user.parent.name == "helpers":  # A door has few tests of its own: rooms test what they do through it.
            found += [path for path in tests if _imports(path, _dotted(user.relative_to(root)), root)]
        found += _tests_below(root / "tests" / _room(user))
    found = list(dict.fromkeys(found))
    found.sort(key=lambda path: (path.stem != f"test_{Path(module).stem}", _cost(path, own)))
    if ">>>" in (root / module).read_text(encoding="utf-8"):
        found.append(root / "tests" / "house" / "test_doctests.py")
    return [path.relative_to(root).as_posix() for path in found]


def _cost(path: Path, own: Path) -> int:
    """Return how much later than others a test file runs: Spark and a search take long, more Pythons longer."""
    if path.parent.name in START_PYTHONS and path.parent != own:
        return 2
    text = path.read_text(encoding="utf-8")
    return 1 if NEEDS_SPARK.search(text) or SEARCHES.search(text) else 0


def _dotted(module: Path) -> str:
    return module.as_posix().removesuffix(".py").replace("/", ".")


def _room(module: Path) -> str:
    """Return the room of a module; a door is its own."""
    return module.stem if module.parent.name == "helpers" else module.parent.name


def _tests_below(folder: Path) -> list[Path]:
    return [path for path in files_below(folder) if path.name.startswith("test_")]


def _users(root: Path, dotted: str) -> list[Path]:
    """Return the modules that import one, those of rooms that have most of them first."""
    users = [
        path
        for path in files_below(root / "scripts")
        if any(f"{name}.".startswith(f"{dotted}.") for name in names_imported(path))
    ]
    in_room = Counter(map(_room, users))
    return sorted(users, key=lambda path: -in_room[_room(path)])


def _imports(path: Path, dotted: str, root: Path) -> bool:
    """Tell whether a test file imports a module, itself or by a helper beside it or in tests/support."""
    names = names_imported(path)
    if any(f"{name}.".startswith(f"{dotted}.") for name in names):
        return True
    helpers = {name.rpartition(".")[0] for name in names if name.startswith("tests.")}
    files = [root / f"{name.replace('.', '/')}.py" for name in helpers if not name.endswith("conftest")]
    return any(f"{name}.".startswith(f"{dotted}.") for file in files if file.exists() for name in names_imported(file))
