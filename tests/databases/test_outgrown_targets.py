"""Source columns that outgrow the target's columns: a value is written unchanged, or the run stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import TargetError, TargetSchemaError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks import DatabaseSink
from scripts.helpers.watermarks import Watermarks
from tests.support.database_fixtures import written_as
from tests.support.written import Written

BEFORE, AFTER = "id bigint, n integer, word varchar(3)", {"n": "bigint", "word": "varchar(9)"}


class Copies:
    """Runs of one job that copies the new rows of a source table."""

    def __init__(self, written: Written, jdbc: Any, watermarks: Watermarks) -> None:
        self.written, self.spark, self.watermarks = written, jdbc, watermarks
        self.table = written.new_table(BEFORE)
        self.add(1, 7, "one")

    def add(self, id: int, n: int, word: str) -> None:
        self.written.sql(f"INSERT INTO {self.table} VALUES ({id}, {n}, '{word}')")

    def widen(self) -> None:
        change = "ALTER COLUMN {0} TYPE {1}" if self.written.kind == "postgres" else "MODIFY {0} {1}"
        for name, kind in AFTER.items():
            self.written.sql(f"ALTER TABLE {self.table} {change.format(name, kind)}")

    def run(self, target: Any) -> None:
        source = JdbcTable(self.spark, self.written.url, self.table, properties=self.written.properties, zone="UTC")
        with IncrementalJob(self.watermarks, "copy", spark=self.spark) as job:
            job.write(job.rows_since(source, "id", settled=True), target)


@pytest.fixture(params=["postgres", "maria"])
def copies(request: pytest.FixtureRequest, jdbc: Any, watermarks: Watermarks) -> Copies:
    return Copies(written_as(request, request.param), jdbc, watermarks)


@pytest.mark.parametrize(("n", "word"), [(3_000_000_000, "two"), (8, "three")])
def test_run_stops_when_a_value_outgrows_a_column_of_the_database(copies: Copies, n: int, word: str) -> None:
    written = copies.written
    table = written.new_table(BEFORE)
    target = DatabaseSink(table, spark=copies.spark, url=written.url, properties=written.properties)
    copies.run(target)
    copies.widen()
    copies.add(2, 9, "ok")
    copies.run(target)
    copies.add(3, n, word)

    with pytest.raises(TargetError, match=r"column .(n|word). is .*: a (number is out of range|text is too long)"):
        copies.run(target)

    assert sorted(written.rows(f"SELECT * FROM {table}")) == [(1, 7, "one"), (2, 9, "ok")]
    assert copies.watermarks.latest("copy").version == 2


def test_run_stops_when_a_column_outgrows_that_of_parquet_and_goes_on_at_another_target(
    copies: Copies, tmp_path: Path
) -> None:
    copies.run(str(tmp_path / "raw"))
    copies.widen()
    copies.add(2, 3_000_000_000, "three")

    with pytest.raises(TargetSchemaError, match="n "):
        copies.run(str(tmp_path / "raw"))
    copies.run(str(tmp_path / "wide"))

    rows = {
        name: [tuple(row.values()) for row in pq.read_table(tmp_path / name).to_pylist()] for name in ("raw", "wide")
    }
    assert rows == {"raw": [(1, 7, "one")], "wide": [(2, 3_000_000_000, "three")]}
