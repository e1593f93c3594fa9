"""Job modes with a database table: reading everything, and reading a range of runs, both inside the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scripts.helpers.databases import table as jdbc_rows
from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks


@pytest.fixture
def table(postgres: Any) -> str:
    """Return a table of ten rows; one of them has NULL as its cursor."""
    name: str = postgres.new_table("id int primary key, number bigint")
    postgres.sql(f"INSERT INTO {name} SELECT n, nullif(n, 10) FROM generate_series(1, 10) n")
    return name


def taken(watermarks: Watermarks, source: JdbcTable, run_id: str = "jr_again", **options: Any) -> list[int]:
    high = {"high": options.pop("high")} if "high" in options else {}
    is_range = "from_run" in options
    with IncrementalJob(watermarks, "repairs", run_id, **options) as job:
        found = job.rows_since(source, "number", nulls="skip", settled=not is_range, **high)
        return sorted(row.id for row in found.collect())


def test_every_row_is_read_side_by_side_when_the_job_is_disabled(
    watermarks: Watermarks, table_in: Callable[..., JdbcTable], table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jdbc_rows, "MANY", 3)

    with IncrementalJob(watermarks, "repairs", mode="disable") as job:
        found = job.rows_since(table_in(table, partitions=3), "number")
        rows = sorted(row.id for row in found.collect())

    assert (rows, found.rdd.getNumPartitions()) == (list(range(1, 11)), 3)


def test_rows_between_two_runs_are_read_when_the_job_is_given_a_range(
    watermarks: Watermarks, table_in: Callable[..., JdbcTable], table: str
) -> None:
    for number, high in enumerate((4, 6, 9), 1):
        taken(watermarks, table_in(table), f"jr_{number}", high=high)

    between = taken(watermarks, table_in(table), mode="pause", from_run="jr_1", to_run="jr_3")
    paused = taken(watermarks, table_in(table), mode="pause")

    assert (between, paused) == ([4, 5, 6, 7, 8], [9])
