"""Which tests cover a module: those of its room, and those that import it.

Import graphs are cheap and need no run before; a run of the whole suite with coverage contexts would take as long as
the suite. What a room's own tests do not notice, a user's test elsewhere should not have to.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.imports import files_below, names_imported

NEEDS_SPARK = re.compile(r"\b(spark|jdbc|glue_context|driver|page): \w+")


def covering_tests(root: Path, module: str) -> list[str]:
    """Return the test files that cover a module, those that find a fault soonest first."""
    dotted = module.removesuffix(".py").replace("/", ".")
    room = Path(module).parent.name if Path(module).parent.name != "helpers" else Path(module).stem
    own = root / "tests" / room
    importing, beside = [], []
    for path in files_below(root / "tests"):
        if not path.name.startswith("test_"):
            continue
        if _imports(path, dotted, root):
            importing.append(path)
        elif path.is_relative_to(own):
            beside.append(path)
    if not own.is_dir():
        for folder in _users(root, dotted):
            beside += [path for path in files_below(folder) if path.name.startswith("test_")]
    importing.sort(key=lambda path: not path.is_relative_to(own))
    found = list(dict.fromkeys(importing + beside))
    found.sort(key=lambda path: bool(NEEDS_SPARK.search(path.read_text(encoding="utf-8"))))
    if ">>>" in (root / module).read_text(encoding="utf-8"):
        found.append(root / "tests" / "house" / "test_doctests.py")
    return [path.relative_to(root).as_posix() for path in found]


def _users(root: Path, dotted: str) -> list[Path]:
    """Return the test folders of the rooms that import a module, for a room that has no tests of its own."""
    users = [
        path
        for path in files_below(root / "scripts")
        if any(f"{name}.".startswith(f"{dotted}.") for name in names_imported(path))
    ]
    return [root / "tests" / room for room in sorted({path.parent.name for path in users})]


def _imports(path: Path, dotted: str, root: Path) -> bool:
    """Tell whether a test file imports a module, itself or by a helper beside it or in tests/support."""
    names = names_imported(path)
    if any(f"{name}.".startswith(f"{dotted}.") for name in names):
        return True
    helpers = {name.rpartition(".")[0] for name in names if name.startswith("tests.")}
    files = [root / f"{name.replace('.', '/')}.py" for name in helpers if not name.endswith("conftest")]
    return any(f"{name}.".startswith(f"{dotted}.") for file in files if file.exists() for name in names_imported(file))
