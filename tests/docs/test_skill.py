"""The skill file that the package brings for coding agents: its jobs run, and its commands are there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click
import pandas as pd
import pytest

from scripts.cli.main import cli
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from tests.support.places import REPOSITORY

SKILL = (REPOSITORY / "scripts" / "helpers" / "SKILL.md").read_text(encoding="utf-8")
JOB, ON_GLUE, TOTALS = range(3)


def run(example: int, names: dict[str, Any]) -> None:
    """Run one of the skill's examples with what a script has by then."""
    block = re.findall(r"```python\n(.*?)```", SKILL, re.DOTALL)[example]
    exec(compile(block, "SKILL.md", "exec"), names)


def add_sales(spark: Any, folder: str, *rows: tuple[str, int, str]) -> None:
    sales = spark.createDataFrame(rows, "day STRING, amount BIGINT, stamp STRING")
    stamped = sales.selectExpr("day", "amount", "cast(stamp as timestamp) as last_modified")
    stamped.write.mode("append").parquet(folder)


def test_skill_begins_with_its_name_and_says_when_to_use_it_when_it_is_read() -> None:
    head = re.match(r"---\nname: glue-watermarks\ndescription: (.+)\n---\n", SKILL)

    assert head is not None
    assert "Use when" in head[1]
    # Longer descriptions are cut off where skills are listed.
    assert len(head[1]) <= 1024


@pytest.mark.usefixtures("default_table")
def test_job_of_the_skill_writes_each_file_once_when_it_runs_twice(tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "1.csv").write_text("id\n1\n2\n")
    names: dict[str, Any] = {"source": f"{tmp_path}/landing/", "target": f"{tmp_path}/raw/"}

    for _ in range(2):
        run(JOB, names)

    assert sorted(pd.read_parquet(tmp_path / "raw")["id"]) == [1, 2]


@pytest.mark.parametrize(
    ("option", "written", "jobs"),
    [(["--job-bookmark-option", "job-bookmark-enable"], [1, 2], 1), ([], [1, 1, 2], 0)],
    ids=["enabled", "as Glue starts it"],
)
def test_job_on_glue_saves_when_bookmarks_are_enabled(
    default_table: Watermarks, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: list[str],
    written: list[int], jobs: int,
) -> None:  # fmt: skip
    source, target = f"{tmp_path}/sales", f"{tmp_path}/raw"
    names = ["--JOB_NAME", "sales", "--source", source, "--target", target]
    monkeypatch.setattr(sys, "argv", ["job.py", *names, *option])
    for number in (1, 2):
        add_sales(spark, source, ("mon", number, f"2026-01-0{number}"))

        run(ON_GLUE, {})

    assert sorted(row.amount for row in spark.read.parquet(target).collect()) == written
    assert len(default_table.list_jobs()) == jobs


@pytest.mark.usefixtures("default_table")
def test_total_of_a_day_is_that_of_all_its_rows_when_they_arrive_in_two_runs(
    spark_with_tables: Any, tmp_path: Path
) -> None:
    names: dict[str, Any] = {
        "spark": spark_with_tables, "source": f"{tmp_path}/sales", "target": f"{tmp_path}/totals",
        "IncrementalJob": IncrementalJob, "watermarks": Watermarks(),
    }  # fmt: skip
    add_sales(spark_with_tables, names["source"], ("mon", 10, "2026-01-05"), ("mon", 5, "2026-01-05"))
    add_sales(spark_with_tables, names["source"], ("sun", 3, "2026-01-04"))
    run(TOTALS, names)
    add_sales(spark_with_tables, names["source"], ("mon", 7, "2026-01-06"), ("tue", 1, "2026-01-06"))

    run(TOTALS, names)

    totals = spark_with_tables.read.format("delta").load(names["target"]).collect()
    assert sorted((row.day, row.total) for row in totals) == [("mon", 22), ("sun", 3), ("tue", 1)]


def test_command_of_the_skill_has_each_option_when_it_is_named() -> None:
    shown = re.findall(r"`watermarks ([a-z-]+)([^`]*)`", SKILL)

    assert len(shown) > 10
    for name, rest in shown:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None, name
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known, name
