"""The code gets smaller: each number in the file `size` may only fall.

`lines` counts all lines of scripts/, and `modules` its files with code. `code` leaves out docstrings, comments and
blank lines, in all of scripts/ and in each room. `reached` counts the code that `scripts.helpers.job` may import, also
in functions and by lazy names. `phrases` counts those of `tests/support/prose.py` in docstrings, comments and logs.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import pytest

from tests.support.imports import files_below, names_imported, parse
from tests.support.places import REPOSITORY
from tests.support.prose import unfit

SCRIPTS = files_below(REPOSITORY / "scripts")
DOOR = "scripts.helpers.job"
LOGGED = ("debug", "info", "warning", "error", "exception")
SLACK = 0.01
"""A number that falls below its limit by more than this share must become the new limit."""


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")


PATHS = {module_of(path): path for path in SCRIPTS}


def docstrings_of(tree: ast.AST) -> list[ast.Constant]:
    """Return the strings that are statements: docstrings, including those of attributes."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.append(node.value)
    return found


@cache
def code_of(path: Path) -> frozenset[int]:
    """Return the numbers of the lines that hold code."""
    no_code = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type not in no_code:
            lines.update(range(token.start[0], token.end[0] + 1))
    for text in docstrings_of(parse(path)):
        lines.difference_update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return frozenset(lines)


def comments_of(path: Path) -> Iterator[str]:
    """Yield each comment; comments on consecutive lines are yielded as one."""
    last, text = -1, ""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if line != last + 1 or not token.line.lstrip().startswith("#"):
            yield text
            text = ""
        last, text = line, f"{text} {token.string.lstrip('# ')}".lstrip()
    yield text


def logged_in(tree: ast.AST) -> Iterator[str]:
    """Yield the strings in calls that log."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOGGED:
            texts = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
            yield from (text for text in texts if isinstance(text, str))


def lazy_names(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports lazily: when a name of its room is first used, or by `import_module`."""
    for node in ast.walk(parse(path)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        for argument in node.args:
            if name == "lazy" and isinstance(argument, ast.Dict):
                texts = [key.value for key in argument.keys if isinstance(key, ast.Constant)]
                yield from (f"{module_of(path)}.{text}" for text in texts if isinstance(text, str))
            elif name == "import_module" and isinstance(argument, ast.Constant):
                yield str(argument.value)


def modules_imported(path: Path) -> set[str]:
    """Return the modules of scripts/ that a file may import, with their packages."""
    found = set()
    for name in [*names_imported(path), *lazy_names(path)]:
        parts = name.split(".")
        found |= {".".join(parts[:number]) for number in range(1, len(parts) + 1)}
    return found & PATHS.keys()


def reached_from(door: str) -> set[str]:
    """Return a door and all modules that it may import, directly or indirectly."""
    found: set[str] = set()
    left = [door]
    while left:
        module = left.pop()
        if module not in found:
            found.add(module)
            left += modules_imported(PATHS[module])
    return found


def count_of_phrases() -> int:
    count = 0
    for path in SCRIPTS:
        docstrings = [str(text.value) for text in docstrings_of(parse(path))]
        count += sum(len(unfit(text)) for text in [*docstrings, *comments_of(path), *logged_in(parse(path))])
    return count


def room_of(path: Path) -> str:
    """Return the room of a module, or its folder of scripts/ if it is not in a room, such as `helpers`."""
    first, *rest = path.relative_to(REPOSITORY / "scripts").parts[:-1] or ("scripts",)
    return rest[0] if rest else first


def code_in(room: str) -> int:
    return sum(len(code_of(path)) for path in SCRIPTS if room_of(path) == room)


MEASURES: dict[str, Callable[[], int]] = {
    "lines": lambda: sum(len(path.read_text(encoding="utf-8").splitlines()) for path in SCRIPTS),
    "code": lambda: sum(len(code_of(path)) for path in SCRIPTS),
    "reached": lambda: sum(len(code_of(PATHS[module])) for module in reached_from(DOOR)),
    "phrases": count_of_phrases,
    "modules": lambda: sum(bool(code_of(path)) for path in SCRIPTS),
    **{f"code in {room}": partial(code_in, room) for room in sorted(set(map(room_of, SCRIPTS)) - {"scripts"})},
}


@pytest.mark.parametrize("name", MEASURES)
def test_number_has_not_grown_when_it_is_measured(name: str) -> None:
    lines = (REPOSITORY / "tests" / "house" / "size").read_text(encoding="utf-8").splitlines()
    limits = {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in lines}

    found = MEASURES[name]()
    assert found <= limits[name], f"{name}: {found:,}, and the limit is {limits[name]:,}. Remove something first."
    assert found >= limits[name] * (1 - SLACK), f"{name} fell to {found:,}. Write that into tests/house/size."


# --- tests of the finders --------------------------------------------------------------------------


def test_line_is_code_when_it_is_no_comment_docstring_or_blank(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text('"""Title.\n\nMore.\n"""\n\n# why\nA = """two\nlines"""\n"""Of A."""\n\n\ndef f():\n    return A\n')

    assert code_of(path) == {7, 8, 12, 13}


def test_comment_is_one_text_when_it_has_several_lines(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text("# go\n# on\nA = 1  # other\n")

    assert list(comments_of(path)) == ["", "go on", "other"]


def test_module_is_reached_when_only_a_function_or_a_lazy_name_imports_it() -> None:
    found = reached_from(DOOR)

    assert "scripts.helpers.batch.verifying" in found  # Imported in a function of the door.
    assert "scripts.helpers.sinks.files" in found  # Imported by a lazy name of its room.
    assert "scripts.helpers.job_runs.client" not in found
