"""Commands and modules that are named in the prose of a page exist."""

from __future__ import annotations

import pydoc
import re
import shlex

import click
import pytest

from scripts.cli.main import cli
from tests.docs.pages import FENCE, PAGES, text_of
from tests.support.places import REPOSITORY

ALL_PAGES = [*PAGES, "model/README.md", "../scripts/helpers/SKILL.md"]
WHAT_LEFT = re.compile(r"^\| what left \|.*?(?=^$)", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
MODULE = re.compile(r"\bscripts(?:\.\w+)+(?![\w/])")
IS_COMMAND = re.compile(r"watermarks |[a-z][a-z-]* (?:.* )?--[a-z]")
OTHER_PROGRAMS = {"python"}
PLACE = re.compile(r"\bscripts(?:/[\w.-]+)+/?")


def inline_code(page: str) -> list[str]:
    """Return the inline code of a page, without the first column of the table of removed names."""
    prose = FENCE.sub("", text_of(page))
    prose = WHAT_LEFT.sub(lambda table: re.sub(r"^\|.*?(?<!\\)\|", "|", table[0], flags=re.MULTILINE), prose)
    return [" ".join(code.split()) for code in INLINE.findall(prose)]


def commands_in(page: str) -> list[str]:
    """Return the `watermarks` commands in the prose of a page, including those without that word, as `jobs --late`."""
    found = [code.removeprefix("watermarks ") for code in inline_code(page) if IS_COMMAND.match(code)]
    return [code for code in found if code.partition(" ")[0] not in OTHER_PROGRAMS]


def fault_of(line: str) -> str | None:
    """Return why the parser of `watermarks` refuses a command, or None. It does not convert values, so JOB is valid."""
    context = click.Context(cli)
    try:
        _, words, _ = cli.make_parser(context).parse_args(shlex.split(line))
        if not words:
            return None
        if words[0] not in cli.commands:
            return f"no command {words[0]!r}"
        command = cli.commands[words[0]]
        with_value = {name for option in command.params if not getattr(option, "is_flag", True) for name in option.opts}
        # A page may name an option without its value, so add one.
        words += ["VALUE"] if words[-1] in with_value else []
        below = click.Context(command, parent=context, **command.context_settings)
        _, left, _ = command.make_parser(below).parse_args(words[1:])
    except click.UsageError as error:
        return error.format_message()
    return f"too many arguments: {left}" if left else None


@pytest.mark.parametrize("page", ALL_PAGES)
def test_command_is_parsed_when_the_prose_of_a_page_names_it(page: str) -> None:
    assert {command: fault for command in commands_in(page) if (fault := fault_of(command))} == {}


@pytest.mark.parametrize("page", ALL_PAGES)
def test_module_and_file_are_there_when_the_prose_of_a_page_names_them(page: str) -> None:
    code = inline_code(page)

    assert [name for line in code for name in MODULE.findall(line) if pydoc.locate(name) is None] == []
    assert [name for line in code for name in PLACE.findall(line) if not (REPOSITORY / name).exists()] == []


@pytest.mark.parametrize(
    "command",
    ["export --all", "jobs --all", "show JOB OTHER", "jobs --late=yes", "--tabel NAME jobs"],
)
def test_command_is_refused_when_its_parser_does_not_know_it(command: str) -> None:
    assert fault_of(command)
