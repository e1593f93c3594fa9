"""Helpers that run the examples of a page of docs/ in order, unchanged, and find what pages show."""

from __future__ import annotations

import ast
import doctest
import re
import shlex
from configparser import ConfigParser
from functools import cache
from typing import Any

from tests.support.places import REPOSITORY

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELLS = ("", "sh", "shell")
"""Languages of blocks that contain only commands. `console` blocks contain their output, too."""
PAGES = sorted(["README.md", *(path.name for path in (REPOSITORY / "docs").glob("*.md"))])


def text_of(page: str) -> str:
    folder = REPOSITORY if page == "README.md" else REPOSITORY / "docs"
    return (folder / page).read_text(encoding="utf-8")


def fences(page: str) -> list[tuple[str, str]]:
    """Return the language and the text of each fenced block of a page."""
    return [(found[1].strip(), found[2]) for found in FENCE.finditer(text_of(page))]


def shell_commands(page: str) -> list[str]:
    """Return the commands in a page's shell blocks, each as one line without its comment."""
    blocks = [text.replace("\\\n", " ") for language, text in fences(page) if language in SHELLS]
    lines = [re.sub(r"\s+#.*$", "", line).strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def is_test(name: str) -> bool:
    """Return whether ``folder/test_file.py::test_name`` exists below tests/; the name may lack its ``_when_…``."""
    path, _, function = name.partition("::")
    return any(found == function or found.startswith(f"{function}_when_") for found in tests_of(path))


@cache
def tests_of(path: str) -> list[str]:
    """Return the names of the tests of a file."""
    file = REPOSITORY / "tests" / path
    body = ast.parse(file.read_text(encoding="utf-8")).body if file.is_file() else []
    return [node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


def run_page(page: str, names: dict[str, Any], first: int | None = None) -> int:
    """Run the examples and commands of a page, or only the first ones; return how many were run.

    ``…`` in an expected output matches any text.
    """
    blocks = [(kind, block) for kind, block in fences(page) if kind in ("python", "console")][:first]
    for kind, block in blocks:
        if kind == "console":
            run_commands(page, block)
        elif block.startswith(">>>"):
            run_session(page, block, names)
        else:
            exec(compile(block, page, "exec"), names)
    return len(blocks)


def run_session(page: str, block: str, names: dict[str, Any]) -> None:
    """Run a block that was typed into a REPL, and check its output."""
    test = doctest.DocTestParser().get_doctest(block.replace("…", "..."), names, page, page, 0)
    told: list[str] = []
    report = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=told.append, clear_globs=False)
    assert report.failed == 0, "".join(told)
    names.update(test.globs)


def run_commands(page: str, block: str) -> None:
    """Run each `watermarks` command after ``$`` in a shell block, and check its output."""
    for call in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, expected = call.partition("\n")
        output = run_command(page, line)
        same = doctest.OutputChecker().check_output(expected.replace("…", "..."), output, FLAGS)
        assert same, f"{page}: {line}\n{output}"


def run_command(page: str, line: str) -> str:
    """Run a `watermarks` command; return what a terminal would show."""
    from click.testing import CliRunner

    from scripts.cli.main import cli

    program, *arguments = shlex.split(line)
    assert program == "watermarks", f"{page}: {program} is not run"
    output: str = CliRunner(env={"COLUMNS": "200"}).invoke(cli, arguments, prog_name=program).output
    return output


def metadata() -> ConfigParser:
    read = ConfigParser()
    read.read(REPOSITORY / "setup.cfg")
    return read
