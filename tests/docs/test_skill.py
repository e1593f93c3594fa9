"""The skill file that the package brings for coding agents: its job runs, and its commands are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pandas as pd
import pytest

from scripts.cli.main import cli
from tests.support.places import REPOSITORY

SKILL = (REPOSITORY / "scripts" / "helpers" / "SKILL.md").read_text(encoding="utf-8")


def test_skill_begins_with_its_name_and_says_when_to_use_it_when_it_is_read() -> None:
    head = re.match(r"---\nname: glue-watermarks\ndescription: (.+)\n---\n", SKILL)

    assert head is not None
    assert "Use when" in head[1]
    # Longer descriptions are cut off where skills are listed.
    assert len(head[1]) <= 1024


@pytest.mark.usefixtures("default_table")
def test_job_of_the_skill_writes_each_file_once_when_it_runs_twice(tmp_path: Path) -> None:
    [block] = re.findall(r"```python\n(.*?)```", SKILL, re.DOTALL)
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "1.csv").write_text("id\n1\n2\n")
    names: dict[str, Any] = {"source": f"{tmp_path}/landing/", "target": f"{tmp_path}/raw/"}

    for _ in range(2):
        exec(compile(block, "SKILL.md", "exec"), names)

    assert sorted(pd.read_parquet(tmp_path / "raw")["id"]) == [1, 2]


def test_command_of_the_skill_has_each_option_when_it_is_named() -> None:
    shown = re.findall(r"`watermarks ([a-z-]+)([^`]*)`", SKILL)

    assert len(shown) > 10
    for name, rest in shown:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None, name
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known, name
