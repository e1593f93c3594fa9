"""Partition columns of files as cursors: refused, as rows that land later in a partition would be lost silently."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scripts.helpers.errors import CursorError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.spark_frames import DataFrameRows, is_partition_column
from scripts.helpers.watermarks import Watermarks
from tests.support.connect_server import without_jvm

NOW = datetime(2026, 11, 24, 12, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a folder with one row in each of three partitions."""
    place = str(tmp_path_factory.mktemp("lake") / "raw")
    rows = [(1, 20261122), (2, 20261123), (3, 20261124)]
    spark.createDataFrame(rows, "id int, import_date int").coalesce(1).write.partitionBy("import_date").parquet(place)
    return place


def take(watermarks: Watermarks, source: Any, column: Any = "import_date", **options: Any) -> list[int]:
    with IncrementalJob(watermarks, "copy", clock=lambda: NOW) as job:
        return sorted(row.id for row in job.rows_since(source, column, **options).collect())


def test_cursor_is_refused_when_more_would_land_in_its_partition(
    watermarks: Watermarks, spark: Any, lake: str, tmp_path: Path
) -> None:
    texts = spark.read.schema("id int, import_date string").parquet(lake)

    for source, options in ((spark.read.parquet(lake), {}), (texts, {"strings": True})):
        with pytest.raises(CursorError, match=r"job\.new_partitions\(path, 'import_date'\)"):
            take(watermarks, source, **options)
    with pytest.raises(CursorError, match="lookback="):
        take(watermarks, spark.read.parquet(lake), ["import_date", "id"])
    assert take(watermarks, spark.read.parquet(lake), "id") == [1, 2, 3]


def test_cursor_is_taken_when_the_user_states_how_late_files_may_arrive(
    watermarks: Watermarks, spark: Any, lake: str
) -> None:
    numbers = spark.read.parquet(lake)

    merged = take(watermarks, numbers, transformation_ctx="a", lookback=1, write_disposition="merge")
    settled = take(watermarks, numbers, transformation_ctx="b", settled=True)

    assert (merged, settled) == ([1, 2, 3], [1, 2, 3])


def test_partition_of_a_date_is_warned_of_and_taken_when_its_day_is_over(
    watermarks: Watermarks, spark: Any, lake: str, caplog: pytest.LogCaptureFixture
) -> None:
    dates = "to_date(cast(import_date AS string), 'yyyyMMdd') AS import_date"
    days = DataFrameRows(spark.read.parquet(lake).selectExpr("id", dates), zone="UTC")

    assert take(watermarks, days) == [1, 2]
    assert "event=partition_cursor context=rows column=import_date" in caplog.text
    caplog.clear()
    assert take(watermarks, days, lookback=timedelta(days=1), write_disposition="merge") == [2]
    assert "event=partition_cursor" not in caplog.text


def test_everything_is_read_when_no_watermark_follows(watermarks: Watermarks, spark: Any, lake: str) -> None:
    assert take(watermarks, spark.read.parquet(lake), transformation_ctx=None) == [1, 2, 3]


def test_column_is_of_folders_when_it_is_made_of_partition_columns_alone(spark: Any, lake: str) -> None:
    df = spark.read.parquet(lake)
    df.createOrReplaceTempView("partitioned_rows")
    other = spark.range(3).selectExpr("cast(id + 1 AS int) AS id", "id AS x")
    cases = {
        "renamed": df.withColumnRenamed("import_date", "c"),
        "computed twice": df.selectExpr("id", "import_date + 1 AS b").selectExpr("id", "cast(b AS string) AS c"),
        "of a view": spark.sql("SELECT id, import_date AS c FROM partitioned_rows WHERE id > 1"),
        "joined": df.join(other, "id").selectExpr("id", "x", "import_date AS c"),
        "grouped": df.groupBy("import_date").count().withColumnRenamed("import_date", "c"),
        "exploded": df.selectExpr("id", "explode(array(import_date, import_date)) AS c"),
        "over all rows": df.selectExpr("id", "max(import_date) OVER () AS c"),
        "over rows of a column": df.selectExpr("id", "max(import_date) OVER (PARTITION BY id ORDER BY id) + 1 AS c"),
        "no: numbered": df.selectExpr("id", "row_number() OVER (ORDER BY id) AS c"),
        "no: with a column of the files": df.selectExpr("import_date + id AS c"),
        "no: of the files": df.selectExpr("id AS c"),
        "no: of the other side": df.join(other, "id").selectExpr("x AS c"),
        "no: a constant": df.selectExpr("1 AS c"),
        "no: not of files": spark.range(1).selectExpr("id AS c"),
    }

    found = {name: is_partition_column(frame, "C") for name, frame in cases.items()}

    assert found == {name: not name.startswith("no: ") for name in cases}


@pytest.mark.parametrize("made", ["current_timestamp()", "7", "uuid()", "explode(array(1, 2))"])
def test_cursor_is_refused_when_it_is_made_of_no_column(
    watermarks: Watermarks, spark: Any, lake: str, made: str
) -> None:
    rows = spark.read.parquet(lake).selectExpr("id", f"{made} AS c").where("c IS NOT NULL")

    with pytest.raises(CursorError, match="'c': it is computed from no column of the source"):
        take(watermarks, rows, "c", strings=True)


def test_partition_is_warned_of_when_it_comes_from_an_rdd(
    watermarks: Watermarks, spark: Any, lake: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows = spark.read.parquet(lake).rdd.toDF("id int, import_date int")

    assert take(watermarks, rows) == [1, 2, 3]
    assert "event=ids_without_database context=rows column=import_date" in caplog.text


def test_no_warning_is_logged_when_the_frame_has_no_plan_in_this_process() -> None:
    session = SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: default))
    frame = without_jvm(columns=("import_date",), sparkSession=session)

    assert not is_partition_column(frame, "import_date")
    assert DataFrameRows(frame).df is not None
