"""The commands of docs/command-line.md print the output shown there; "…" replaces values that differ between runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from scripts.cli.main import cli
from scripts.helpers.watermarks import Watermarks
from tests.cli.stories import NOW, build_world
from tests.cli.terminal import writes_screens
from tests.support.places import REPOSITORY
from tests.support.rows_states import with_coverage

PAGE = REPOSITORY / "docs" / "command-line.md"
BLOCK = re.compile(r"(?<=```console\n)(.*?)(?=```)", re.DOTALL)
TABLE, SHOWN = "council-page", "council"
ANY = [
    r"\be[0-9a-f]{16}\b",
    r"\b[0-9a-f]{16}\b",
    r"(?<=listed )\S+ \S+Z",
    r"(?<=modified  )\S+ \S+Z",
    r"(?<=endpoint )http\S+",
]


def commands_of(block: str) -> list[tuple[str, str]]:
    """Return each command of a block with the output below it."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts]


@pytest.fixture
def page_world(dynamodb: Any, s3: Any, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watermarks:
    """Return the table that the page shows; commands write into a temporary folder."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.chdir(tmp_path)
    Watermarks("elsewhere", dynamodb).create_table()
    lending = Watermarks("lending", dynamodb)
    lending.create_table()
    for value, read in ((10, [((), (10,))]), (30, None)):
        state: Any = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": value}
        state = with_coverage(state, None, read, "o1") if read else state
        lending.set_watermark("loans", state, transformation_ctx="rows", why="loaded by hand")
    return build_world(dynamodb, s3, TABLE)


def test_output_is_that_of_the_page_when_its_commands_are_run_in_order(page_world: Watermarks) -> None:
    text, wrong = PAGE.read_text(), []
    for block in BLOCK.findall(text):
        shown = ""
        for command, expected in commands_of(block):
            output = output_of(command)
            shown += f"$ {command}\n{output}"
            if output != expected:
                wrong.append((command, expected, output))
        text = text.replace(block, shown, 1)
    if writes_screens():
        PAGE.write_text(text)

    assert len(BLOCK.findall(text)) > 10
    assert wrong == [] or writes_screens()


def output_of(command: str) -> str:
    """Run a command of the page and return what a terminal would show."""
    program, *arguments = shlex.split(command)
    assert program == "watermarks"
    given = ["--table", TABLE, "--now", NOW.isoformat(), *arguments]
    output = CliRunner(env={"COLUMNS": "110"}).invoke(cli, given, prog_name=program).output
    for pattern in ANY:
        output = re.sub(pattern, "…", output)
    return output.replace(TABLE, SHOWN)


def test_page_names_every_command_when_there_are_some() -> None:
    named = set(re.findall(r"`(?:watermarks )?([a-z-]+)[ `]", PAGE.read_text()))

    assert set(cli.commands) <= named
