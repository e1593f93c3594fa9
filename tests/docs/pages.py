"""Runs the examples of a page of docs/, in order, as they stand."""

from __future__ import annotations

import doctest
import re
import shlex
from typing import Any

from tests.conftest import REPOSITORY

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def text_of(page: str) -> str:
    return (REPOSITORY / "docs" / page).read_text(encoding="utf-8")


def run_page(page: str, names: dict[str, Any]) -> int:
    """Run the examples and commands of a page; return how many there are. ``…`` in an output stands for anything."""
    blocks = re.findall(r"```(python|console)\n(.*?)```", text_of(page), re.DOTALL)
    for kind, block in blocks:
        if kind == "console":
            run_commands(page, block)
        elif block.startswith(">>>"):
            run_session(page, block, names)
        else:
            exec(compile(block, page, "exec"), names)
    return len(blocks)


def run_session(page: str, block: str, names: dict[str, Any]) -> None:
    """Run what was typed into a REPL."""
    test = doctest.DocTestParser().get_doctest(block.replace("…", "..."), names, page, page, 0)
    told: list[str] = []
    report = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=told.append, clear_globs=False)
    assert report.failed == 0, "".join(told)
    names.update(test.globs)


def run_commands(page: str, block: str) -> None:
    """Run what was typed into a shell, each line after ``$``: calls of `watermarks`."""
    from click.testing import CliRunner

    from scripts.cli.main import cli

    for call in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, expected = call.partition("\n")
        program, *arguments = shlex.split(line)
        assert program == "watermarks", f"{page}: {program} is not run"
        done = CliRunner(env={"COLUMNS": "200"}).invoke(cli, arguments, prog_name=program)
        same = doctest.OutputChecker().check_output(expected.replace("…", "..."), done.output, FLAGS)
        assert same, f"{page}: {line}\n{done.output}"
