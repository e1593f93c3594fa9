"""The package's skill file for coding agents: its jobs run, and its commands exist."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pandas as pd
import pytest

from scripts.cli.main import cli
from scripts.helpers.errors import PlanConflictError, RunInProgressError, WatermarkError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks import DatabaseSink
from scripts.helpers.watermarks import Watermarks
from tests.support.databases import PostgresServer
from tests.support.places import REPOSITORY
from tests.support.reasons import because

SKILL = (REPOSITORY / "scripts" / "helpers" / "SKILL.md").read_text(encoding="utf-8")
ROWS, FILES, MERGE, TOTALS, JOIN = range(5)
TABLES = {
    "sales": "sale bigint PRIMARY KEY, shop bigint, day text, amount bigint, last_modified timestamptz",
    "totals": "day text PRIMARY KEY, total bigint, computed_at timestamptz",
    "pairs": "shop bigint, sale bigint PRIMARY KEY, day text, amount bigint, sale_modified timestamptz, name text, "
    "shop_modified timestamptz",
}


def run(example: int, names: dict[str, Any]) -> None:
    """Run one of the skill's examples with the names that a script has defined before it."""
    block = re.findall(r"```python\n(.*?)```", SKILL, re.DOTALL)[example]
    exec(compile(block, "SKILL.md", "exec"), names)


def add(folder: str, *rows: tuple[Any, ...]) -> None:
    """Add a file of sales or of shops. The last value of each row is when it was changed."""
    columns = ("sale", "shop", "day", "amount") if len(rows[0]) == 5 else ("shop", "name")
    frame = pd.DataFrame([row[:-1] for row in rows], columns=columns)
    frame["last_modified"] = pd.to_datetime([row[-1] for row in rows], utc=True).astype("datetime64[us, UTC]")
    Path(folder).mkdir(exist_ok=True)
    frame.to_parquet(f"{folder}/{len(list(Path(folder).iterdir()))}.parquet")


@pytest.fixture
def names(jdbc: Any, postgres: PostgresServer, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Return the names that the skill's jobs use: folders of sales and shops, and a merging sink for each target."""
    postgres.sql(*(f"CREATE TABLE public.{name} ({columns})" for name, columns in TABLES.items()))
    # Use the real clock: totals computed at the same moment would have no order.
    watermarks = Watermarks(f"sqlite:{tmp_path}/watermarks.db")
    watermarks.create_table()
    sinks = {
        name: DatabaseSink(f"public.{name}", spark=jdbc, url=postgres.url, properties=postgres.properties)
        for name in TABLES
    }
    yield {
        "spark": jdbc, "watermarks": watermarks, "IncrementalJob": IncrementalJob, "source": f"{tmp_path}/sales",
        "other": f"{tmp_path}/shops", "sinks": sinks,
    }  # fmt: skip
    postgres.sql(*(f"DROP TABLE IF EXISTS public.{name}" for name in [*TABLES, "glue_watermarks_batches"]))


def test_skill_begins_with_its_name_and_says_when_to_use_it_when_it_is_read() -> None:
    head = re.match(r"---\nname: glue-watermarks\ndescription: (.+)\n---\n", SKILL)

    assert head is not None
    assert "Use when" in head[1]
    # Lists of skills cut off longer descriptions.
    assert len(head[1]) <= 1024


@pytest.mark.parametrize(
    ("option", "written", "jobs"),
    [(["--job-bookmark-option", "job-bookmark-enable"], [1, 2], 1), ([], [1, 1, 2], 0)],
    ids=["enabled", "as Glue starts it"],
)
def test_job_of_rows_saves_on_glue_when_bookmarks_are_enabled(
    default_table: Watermarks, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: list[str],
    written: list[int], jobs: int,
) -> None:  # fmt: skip
    source, target = f"{tmp_path}/sales", f"{tmp_path}/raw"
    arguments = ["--JOB_NAME", "sales", "--source", source, "--target", target]
    monkeypatch.setattr(sys, "argv", ["job.py", *arguments, *option])
    for number in (1, 2):
        add(source, (number, 1, "mon", 10, f"2026-01-0{number}"))

        run(ROWS, {})

    assert sorted(pd.read_parquet(target)["sale"]) == written
    assert len(default_table.list_jobs()) == jobs


def test_job_of_files_writes_each_file_once_when_it_runs_twice(watermarks: Watermarks, tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "1.csv").write_text("id\n1\n2\n")
    names: dict[str, Any] = {"watermarks": watermarks, "IncrementalJob": IncrementalJob}
    names |= {"source": f"{tmp_path}/landing/", "target": f"{tmp_path}/raw/"}

    for _ in range(2):
        run(FILES, names)

    assert sorted(pd.read_parquet(tmp_path / "raw")["id"]) == [1, 2]


def test_merging_jobs_leave_what_a_full_load_would_when_the_source_arrives_in_several_runs(
    names: dict[str, Any], postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    def run_all() -> None:
        for job, sink in ((MERGE, "sales"), (TOTALS, "totals"), (JOIN, "pairs")):
            run(job, {**names, "sink": names["sinks"][sink]})

    # The shop of sale 2 arrives in the run after the sale.
    add(names["source"], (1, 1, "mon", 10, "2026-01-05"), (2, 2, "mon", 5, "2026-01-05"))
    add(names["other"], (1, "north", "2026-01-01"))
    run_all()
    add(names["source"], (3, 1, "mon", 7, "2026-01-06"), (4, 1, "tue", 1, "2026-01-06"))
    add(names["other"], (2, "south", "2026-01-06"))
    run_all()

    sales = postgres.sql("SELECT sale, amount FROM public.sales ORDER BY sale")
    totals = postgres.sql("SELECT day, total FROM public.totals ORDER BY day")
    pairs = postgres.sql("SELECT sale, name FROM public.pairs ORDER BY sale")
    assert sales == [(1, 10), (2, 5), (3, 7), (4, 1)]
    assert totals == [("mon", 22), ("tue", 1)]
    assert pairs == [(1, "north"), (2, "south"), (3, "north"), (4, "north")]
    assert "event=batch_is_a_part" not in caplog.text


# --- mistakes that the skill names ---------------------------------------------------------------------


def test_mistake_is_warned_of_or_refused_when_it_goes_through_the_job(
    spark: Any, watermarks: Watermarks, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for folder, row in (("sales", (1, 1, "mon", 10, "2026-01-05")), ("shops", (1, "north", "2026-01-05"))):
        add(f"{tmp_path}/{folder}", row)
    job = IncrementalJob(watermarks, "sales", "jr_1", spark=spark)
    with job:
        with pytest.raises(WatermarkError, match="delay"):
            job.new_files(f"{tmp_path}/sales", dealy=timedelta(0))  # type: ignore[call-arg]
        with pytest.raises(RunInProgressError), IncrementalJob(watermarks, "sales"):
            pass
        new, other = (
            job.new_files(f"{tmp_path}/{name}", transformation_ctx=name).read(spark, "parquet")
            for name in ("sales", "shops")
        )
        job.write(new.join(other.drop("last_modified"), "shop"), f"{tmp_path}/joined")
        job.write(new.groupBy("day").count(), f"{tmp_path}/totals")
        with pytest.raises(PlanConflictError, match="Plan all sources"):
            job.new_files(f"{tmp_path}/late", transformation_ctx="late")
    with pytest.raises(PlanConflictError, check=because("run_closed")):
        job.write(new, f"{tmp_path}/raw")

    assert [re.findall("computed by (.*?) of", line) for line in caplog.messages if "batch_is_a_part" in line] == [
        ["a join"], ["an aggregate"],
    ]  # fmt: skip


def test_command_of_the_skill_has_each_option_when_it_is_named() -> None:
    shown = re.findall(r"`watermarks ([a-z-]+)([^`]*)`", SKILL)

    assert len(shown) > 10
    for name, rest in shown:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None, name
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known, name
