"""A backfill from a database table reads only the rows within its bounds and leaves the live watermark alone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from scripts.helpers.backfill import Backfill
from scripts.helpers.databases import SqlTable
from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import BoundsError, SourceLostError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock


def test_gap_is_read_from_the_database_and_live_watermark_stays_when_it_is_filled(
    jdbc: Any, postgres: Any, watermarks: Watermarks, clock: Clock, tmp_path: Path
) -> None:
    name = postgres.new_table("id int PRIMARY KEY")
    postgres.sql(f"INSERT INTO {name} SELECT generate_series(1, 100)")
    source = JdbcTable(jdbc, postgres.url, name, properties=postgres.properties)
    target = str(tmp_path / "raw")
    options: dict[str, Any] = {"transformation_ctx": "repairs", "clock": clock}

    def live(**bounds: Any) -> int:
        with IncrementalJob(watermarks, "parking", spark=jdbc, clock=clock) as job:
            rows = job.rows_since(source, "id", transformation_ctx="repairs", delay=timedelta(0), **bounds)
            return job.write(rows, target)

    first = live(start_from=60)
    gaps, log = watermarks.gaps("parking", "repairs", start=1), postgres.log()
    with Backfill(watermarks, "parking", low=1, high=60, **options) as backfill:
        filled = backfill.write(backfill.rows(source, "id"), target)
    sent = [line for line in postgres.log_since(log).splitlines() if f'SELECT t.* FROM "{name}"' in line]
    with Backfill(watermarks, "parking", low=1, high=60, **options) as again:
        repeated = again.rows(source, "id").count()
    beside = watermarks.latest("parking").watermarks["repairs"]["value"]
    postgres.sql(f"INSERT INTO {name} VALUES (101)")

    assert (first, gaps, filled, repeated, live()) == (41, [(1, 60)], 59, 0, 1)
    assert watermarks.gaps("parking", "repairs", start=1) == []
    assert beside == 101
    assert sent and all('WHERE "id" >= 1 AND "id" < 60)' in line for line in sent)
    assert sorted(pq.read_table(target)["id"].to_pylist()) == list(range(1, 102))


@pytest.mark.parametrize("other", [{"where": ""}, {"table": "old_repairs"}], ids=["other rows", "another table"])
def test_slice_is_refused_when_its_source_is_not_that_of_the_live_job(
    watermarks: Watermarks, tmp_path: Path, other: dict[str, str]
) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as database, database:
        for table in ("repairs", "old_repairs"):
            database.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY NOT NULL, region TEXT)")
            database.execute(f"INSERT INTO {table} VALUES (1, 'north'), (2, 'south'), (3, 'north')")

    def source(table: str = "repairs", where: str = "region = 'north'") -> SqlTable:
        return SqlTable(f"sqlite:{path}", table, where=where)

    def fill(source: SqlTable) -> int:
        with Backfill(watermarks, "repairs", transformation_ctx="repairs", low=None, high=3) as backfill:
            return backfill.write(backfill.rows(source, "id"), str(tmp_path / "raw"))

    with IncrementalJob(watermarks, "repairs") as job:
        job.write(job.rows_since(source(), "id", transformation_ctx="repairs", start_from=3), str(tmp_path / "raw"))

    with pytest.raises(SourceLostError, match="remembers"):
        fill(source(**other))
    assert fill(source()) == 1
    assert watermarks.gaps("repairs", "repairs") == []


def test_slice_is_refused_while_a_transaction_may_commit_rows_into_it(
    jdbc: Any, postgres: Any, watermarks: Watermarks, clock: Clock, tmp_path: Path
) -> None:
    name = postgres.new_table("id int PRIMARY KEY, at timestamptz DEFAULT now()")
    source = JdbcTable(jdbc, postgres.url, name, properties=postgres.properties)
    options: dict[str, Any] = {"transformation_ctx": "repairs", "clock": clock}
    begun = datetime.now(timezone.utc)
    slow = postgres.connect()
    try:
        slow.execute("BEGIN")
        slow.execute(f"INSERT INTO {name} VALUES (1)")
        ((end,),) = postgres.sql("SELECT clock_timestamp()")
        with IncrementalJob(watermarks, "parking", spark=jdbc, clock=clock) as job:
            job.rows_since(source, "at", transformation_ctx="repairs", start_from=end, high=end, delay=timedelta(0))
        postgres.sql("SELECT pg_sleep(0.5)")

        def fill() -> int:
            bounds: dict[str, Any] = {"low": begun - timedelta(hours=1), "high": end}
            with Backfill(watermarks, "parking", delay=timedelta(milliseconds=300), **bounds, **options) as backfill:
                return backfill.write(backfill.rows(source, "at"), str(tmp_path / "raw"))

        with pytest.raises(BoundsError, match=r"may still come from the transaction 'pid \d+', which is open since"):
            fill()
        slow.execute("COMMIT")
    finally:
        slow.close()

    assert fill() == 1
