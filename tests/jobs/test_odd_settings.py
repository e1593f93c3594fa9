"""A job of Delta and Iceberg tables in a session whose settings are none of Spark's defaults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks import DeltaSink, IcebergSink
from scripts.helpers.spark.settings import settings
from scripts.helpers.tables import DeltaTable, IcebergTable
from scripts.helpers.watermarks import Watermarks

ODD = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "Asia/Kathmandu",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.outputTimestampType": "INT96",
}
COLUMNS = [
    "*",
    "timestamp_seconds(id) AS at",
    "TIMESTAMP '2026-01-01 00:00:00' AS local",
    "CAST(id AS DECIMAL(10,2)) AS price",
    "named_struct('A', id, 'ab', 'word') AS s",
]


@pytest.fixture
def odd(spark_with_tables: Any) -> Iterator[Any]:
    # Spark 3.3 has no type for a time without a zone.
    without_zone = {} if spark_with_tables.version < "3.4" else {"spark.sql.timestampType": "TIMESTAMP_NTZ"}
    with settings(spark_with_tables, ODD | without_zone):
        yield spark_with_tables


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
