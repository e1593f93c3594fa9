"""`job.verify` by Spark with targets of each format, which Spark may have cached, and with a database."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import InvalidValueError, SourceLostError, TargetError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from tests.support.reasons import because

JOB = "repairs"
NOW = datetime(2026, 11, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_target_is_read_as_it_is_now_when_the_script_has_cached_it(
    watermarks: Watermarks, spark_with_tables: Any, tmp_path: Path, kind: str
) -> None:
    spark, target = spark_with_tables, str(tmp_path / "raw")
    if kind == "iceberg":
        target = f"lake.raw.v{abs(hash(tmp_path))}"
    cached: list[Any] = []
    for ids in (range(1), range(40)):
        table = pa.table({"at": [NOW - timedelta(hours=100 - number) for number in ids], "id": ids})
        source = spark.createDataFrame(table.to_pandas())
        # A write by Spark would renew its cache of a Delta table, so the rows are written without Spark.
        given, session = (table, None) if kind == "delta" else (source, spark)
        with IncrementalJob(watermarks, JOB, spark=session, clock=lambda: NOW) as job:
            job.write(job.rows_since(given, "at"), target, format=kind)
        if not cached:  # Spark keeps these rows, also for a later read of the target.
            seen = spark.table(target) if kind == "iceberg" else spark.read.format(kind).load(target)
            cached.append(seen.cache())
            seen.count()

    found = IncrementalJob(watermarks, JOB, spark=spark, clock=lambda: NOW).verify(source, target, format=kind)

    for frame in cached:
        frame.unpersist()
    assert (found.is_equal, sum(one.target_rows for one in found)) == (True, 40)


def test_database_is_compared_with_parquet_and_with_delta_when_spark_reads_both(
    watermarks: Watermarks, spark_with_tables: Any, jdbc: Any, postgres: Any, tmp_path: Path
) -> None:
    name = postgres.new_table(
        "id bigint PRIMARY KEY, at timestamptz, wall timestamp, amount numeric(12,3), note text,"
        " ratio double precision, tags text[]"
    )
    postgres.sql(
        f"INSERT INTO {name} SELECT n, timestamptz '2026-01-01Z' + n * interval '7 hours', '2026-03-29 02:30:00',"
        " n / 8.0, CASE n % 3 WHEN 0 THEN '' WHEN 1 THEN NULL ELSE 'é' END, -0.0, ARRAY['a', NULL]"
        " FROM generate_series(1, 40) n"
    )
    source = JdbcTable(spark_with_tables, postgres.url, name, properties=postgres.properties)
    targets = {kind: str(tmp_path / kind) for kind in ("parquet", "delta")}
    job = IncrementalJob(watermarks, JOB, spark=spark_with_tables, clock=lambda: NOW)
    with IncrementalJob(watermarks, JOB, spark=spark_with_tables, clock=lambda: NOW) as run:
        found = run.rows_since(source, "id", delay=timedelta(0))
        for kind, target in targets.items():
            run.write(found, target, format=kind)

    results = [job.verify(source, target, format=kind, sample=0) for kind, target in targets.items()]
    postgres.sql(f"UPDATE {name} SET note = NULL WHERE id = 39", f"DELETE FROM {name} WHERE id = 2")
    changed = job.verify(source, targets["parquet"], interval=10, everything=True)

    assert [(result.is_equal, result.compared.left_out) for result in results] == [(True, {}), (True, {})]
    assert [(one.high, one.missing, one.extra) for one in changed.differing] == [(40, 1, 1), (10, 0, 1)]
    assert changed.total == 5
    copy = f"{name}_copy"
    postgres.sql(
        f"CREATE TABLE {copy} AS SELECT * FROM {name}", f"INSERT INTO {copy} SELECT * FROM {copy} WHERE id = 39"
    )
    table = JdbcTable(spark_with_tables, postgres.url, copy, properties=postgres.properties)
    assert [(one.high, one.doubled) for one in job.verify(source, table, interval=10).differing] == [(40, 1)]
    other = JdbcTable(spark_with_tables, postgres.url, postgres.new_table("id bigint"), properties=postgres.properties)
    with pytest.raises(SourceLostError, check=because("replaced")):
        job.verify(other, targets["parquet"])
    with pytest.raises(InvalidValueError, match="is read by Spark, and the target"):
        job.verify(source, pd.DataFrame({"id": [1]}))
    with pytest.raises(TargetError, match="it cannot be read"):
        job.verify(source, str(tmp_path / "nowhere"))
