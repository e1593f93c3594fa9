"""The examples of docs/rows.md run unchanged against PostgreSQL."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd

from scripts.helpers.databases import JdbcTable
from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.options import RowOptions
from scripts.helpers.watermarks import Watermarks
from tests.support.databases import PostgresServer
from tests.support.doctests import run_doctest
from tests.support.places import REPOSITORY

PAGE = (REPOSITORY / "docs" / "rows.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_examples_of_the_page_work_when_run_in_order(
    watermarks: Watermarks, jdbc: Any, postgres: PostgresServer, tmp_path: Path
) -> None:
    postgres.sql(
        "CREATE TABLE public.repairs (id bigint PRIMARY KEY, last_modified timestamptz NOT NULL)",
        "CREATE INDEX ON public.repairs (last_modified)",
        "INSERT INTO public.repairs SELECT n, timestamptz '2025-06-01 12:00:00Z' + n * interval '90 days' "
        "FROM generate_series(0, 5) n",
    )
    at = pd.Series([pd.Timestamp("2026-03-01 12:00:00Z")]).astype("datetime64[us, UTC]")
    archived = pd.DataFrame({"id": [1], "last_modified": at, "import_date": ["20260301"]})
    archived.to_parquet(tmp_path / "archive", partition_cols=["import_date"])
    names: dict[str, Any] = {
        "spark": jdbc, "watermarks": watermarks, "lake": str(tmp_path), "url": postgres.url,
        "user": postgres.properties["user"], "password": postgres.properties["password"],
    }  # fmt: skip

    attempted = failed = 0
    for block in BLOCKS:
        if block.startswith(">>>"):
            report = run_doctest(block, names)
            attempted, failed = attempted + report.attempted, failed + report.failed
        else:
            exec(compile(block, "rows.md", "exec"), names)
    postgres.sql("DELETE FROM public.repairs WHERE id = 4")

    assert (len(BLOCKS), attempted, failed) == (12, 4, 0)
    for folder in ("repairs", "repairs_without_spark"):
        assert sorted(pd.read_parquet(tmp_path / "raw" / folder)["id"]) == [0, 1, 2, 3, 4, 5]
    assert [row.id for row in names["deleted"].collect()] == [4]


def test_query_of_the_page_returns_each_pair_when_its_halves_arrive_in_different_runs(
    watermarks: Watermarks, jdbc: Any, postgres: PostgresServer, tmp_path: Path
) -> None:
    postgres.sql(
        "CREATE SCHEMA joined",
        "CREATE TABLE joined.repairs (id bigint PRIMARY KEY, bay text, last_modified timestamptz)",
        "CREATE TABLE joined.bays (bay text PRIMARY KEY, name text, last_modified timestamptz)",
    )
    names: dict[str, Any] = {
        "spark": jdbc, "JdbcTable": JdbcTable, "url": f"{postgres.url}?currentSchema=joined",
        "user": postgres.properties["user"], "password": postgres.properties["password"],
    }  # fmt: skip
    [block] = [block for block in BLOCKS if "query=" in block]
    exec(compile(block, "rows.md", "exec"), names)
    # The bay of repair 2 arrives late, as does the row of repair 3. Nothing of repair 4 is late.
    for repairs, bays in (((1, 2), (1, 3)), ((3, 4), (2, 4))):
        stamp = f"timestamptz '2026-01-0{max(repairs)} 12:00Z'"
        postgres.sql(
            *(f"INSERT INTO joined.repairs VALUES ({number}, 'bay {number}', {stamp})" for number in repairs),
            *(f"INSERT INTO joined.bays VALUES ('bay {number}', 'name {number}', {stamp})" for number in bays),
        )

        with IncrementalJob(watermarks, "named", spark=jdbc) as job:
            job.write(job.rows_since(names["named"], "changed"), f"{tmp_path}/raw/named")

    whole = postgres.sql("SELECT id, b.name FROM joined.repairs r JOIN joined.bays b USING (bay) ORDER BY id")
    postgres.sql("DROP SCHEMA joined CASCADE")
    loaded = pd.read_parquet(tmp_path / "raw" / "named").sort_values("id")
    assert list(zip(loaded["id"], loaded["name"], strict=True)) == whole


def test_page_names_every_option_when_there_are_some() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE))

    assert {field.name for field in fields(RowOptions)} <= named
