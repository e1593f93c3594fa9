"""Jobs over files, databases, Delta and Iceberg tables in a session whose settings differ from Spark's defaults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks import DeltaSink, IcebergSink
from scripts.helpers.spark.settings import settings
from scripts.helpers.tables import DeltaTable, IcebergTable
from scripts.helpers.watermarks import Watermarks
from tests.support.database_fixtures import sql_table
from tests.support.odd_settings import CHANGE, LOADED, LONG_AGO, loaded, set_oddly

COLUMNS = [
    "*",
    "timestamp_seconds(id) AS at",
    "TIMESTAMP '2026-01-01 00:00:00' AS local",
    "CAST(id AS DECIMAL(10,2)) AS price",
    "named_struct('A', id, 'ab', 'word') AS s",
]


@pytest.fixture
def odd(spark_with_tables: Any) -> Iterator[Any]:
    with set_oddly(spark_with_tables):
        yield spark_with_tables


@pytest.fixture
def odd_without_tables(jdbc: Any) -> Iterator[Any]:
    """Return a session without the Delta Lake and Iceberg connectors, which do not exist for every Spark."""
    session = jdbc.newSession()
    with set_oddly(session):
        yield session


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_rows_are_merged_as_they_are_when_the_settings_of_a_session_are_odd(
    odd: Any, watermarks: Watermarks, tmp_path: Path, format: str
) -> None:
    if format == "delta":
        names = [str(tmp_path / "source"), str(tmp_path / "target")]
        source: Any = DeltaTable(names[0], spark=odd)
        sink: Any = DeltaSink(names[1], spark=odd)
    else:
        names = [f"lake.raw.{tmp_path.name}_source", f"lake.raw.{tmp_path.name}_target"]
        source, sink = IcebergTable(names[0], spark=odd), IcebergSink(names[1], spark=odd)
        odd.sql("CREATE NAMESPACE IF NOT EXISTS lake.raw")

    for day, ids in enumerate(([1, 2], [2, 3])):
        rows = odd.createDataFrame([(number, day) for number in ids], "id long, day int").selectExpr(*COLUMNS)
        if format == "delta":
            rows.write.format("delta").mode("append").save(names[0])
        elif day:
            rows.writeTo(names[0]).append()
        else:
            rows.writeTo(names[0]).using("iceberg").create()
        with IncrementalJob(watermarks, f"odd {format}", f"jr_{day}", spark=odd) as job:
            job.merge(job.rows_since(source), sink, keys="id", sequence_by="day")

    found = odd.read.format("delta").load(names[1]) if format == "delta" else odd.table(names[1])
    assert found.dtypes == rows.dtypes
    shown = found.selectExpr("id", "day", "unix_seconds(at)", "CAST(local AS STRING)", "s.A")
    assert sorted(map(tuple, shown.collect())) == [
        (number, day, number, "2026-01-01 00:00:00", number) for number, day in [(1, 0), (2, 1), (3, 1)]
    ]


@pytest.mark.parametrize("cursor", ["id", "at", "local", "day"])
@pytest.mark.parametrize("kind", ["JdbcTable", "SqlTable"])
def test_rows_of_a_database_are_written_as_they_are_when_the_settings_of_a_session_are_odd(
    odd_without_tables: Any, postgres: Any, watermarks: Watermarks, tmp_path: Path, kind: str, cursor: str
) -> None:
    spark, target = odd_without_tables, f"file://{tmp_path}/target/"
    name = postgres.new_table("id int, at timestamptz, local timestamp, day date, born timestamptz, price numeric(5,2)")
    postgres.sql(f"CREATE INDEX ON {name} ({cursor})")
    source: Any = sql_table(postgres, name, zone="UTC")
    if kind == "JdbcTable":
        source = JdbcTable(spark, postgres.url, name, properties=postgres.properties, zone="UTC")

    for number in (1, 2):
        at, day = f"2026-03-29 0{number - 1}:30:00", f"2026-03-2{number}"
        postgres.sql(f"INSERT INTO {name} VALUES ({number}, '{at}+00', '{at}', '{day}', '{LONG_AGO}+00', 1.5)")
        with IncrementalJob(watermarks, "odd", f"jr_{number}", spark=spark) as job:
            job.write(job.rows_since(source, cursor), target)

    # Spark 3 refuses old times in files of another writer unless their calendar is given.
    found = spark.read.option("datetimeRebaseMode", "CORRECTED").parquet(target)
    instants = ["unix_seconds(at)", "unix_seconds(born)"]
    texts = [f"CAST({each} AS STRING)" for each in ("local", "day", "price")]
    # Spark 3.3 reads times without a zone in those files as UTC.
    utc = {"spark.sql.session.timeZone": "UTC"} if spark.version < "3.4" and kind == "SqlTable" else {}
    with settings(spark, utc):
        rows = sorted(map(tuple, found.selectExpr("id", *instants, *texts).collect()))
    assert rows == [
        (1, CHANGE - 1_800, -3_786_782_400, "2026-03-29 00:30:00", "2026-03-21", "1.50"),
        (2, CHANGE + 1_800, -3_786_782_400, "2026-03-29 01:30:00", "2026-03-22", "1.50"),
    ]
    assert dict(found.dtypes)["local"] == ("timestamp" if spark.version < "3.4" else "timestamp_ntz")


def test_rows_and_files_are_loaded_once_when_the_settings_of_a_session_are_odd(
    odd_without_tables: Any, watermarks: Watermarks, tmp_path: Path
) -> None:
    assert loaded(odd_without_tables, watermarks, tmp_path) == LOADED
