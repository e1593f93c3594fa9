"""Parquet files that a job writes: row groups can be skipped by timestamp, and Spark's settings are restored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks.spark_files import timestamps_with_statistics
from scripts.helpers.watermarks import Watermarks

SETTING = "spark.sql.parquet.outputTimestampType"


@pytest.fixture
def unset(spark: Any) -> Iterator[Any]:
    """Return the session with the timestamp setting unset, before and after the test."""
    spark.conf.unset(SETTING)
    yield spark
    spark.conf.unset(SETTING)


def written(spark: Any, watermarks: Watermarks, target: Path) -> list[Any]:
    """Write a hundred sorted timestamps in small row groups; return the column's metadata of each row group."""
    rows = spark.range(100).selectExpr("id", "timestamp_seconds(1793000000 + id) AS last_modified").coalesce(1)
    with IncrementalJob(watermarks, "repairs") as job:
        options = {"parquet.block.size": 512, "parquet.page.size": 64, "parquet.page.size.row.check.min": 10}
        options |= {"parquet.block.size.row.check.min": 10, "parquet.page.row.count.limit": 10}
        given: dict[str, Any] = {name: str(value) for name, value in options.items()}
        job.write(job.rows_since(rows, "id"), str(target), **given)
    (file,) = target.rglob("*.parquet")
    metadata = pq.ParquetFile(file).metadata
    return [metadata.row_group(group).column(1) for group in range(metadata.num_row_groups)]


def test_row_groups_have_statistics_of_timestamps_when_a_job_wrote_them(
    unset: Any, watermarks: Watermarks, tmp_path: Path
) -> None:
    columns = written(unset, watermarks, tmp_path / "target")

    assert {column.physical_type for column in columns} == {"INT64"}
    assert all(column.statistics.has_min_max for column in columns)
    assert len(columns) > 1
    assert columns[0].statistics.max < columns[-1].statistics.min


def test_timestamps_have_no_statistics_when_spark_writes_as_it_does_by_itself(unset: Any, tmp_path: Path) -> None:
    """Shows why the job changes the setting."""
    unset.sql("SELECT timestamp_seconds(1) AS at").write.parquet(str(tmp_path / "target"))
    (file,) = (tmp_path / "target").glob("*.parquet")

    column = pq.ParquetFile(file).metadata.row_group(0).column(0)

    assert column.physical_type == "INT96"
    assert column.statistics is None or not column.statistics.has_min_max


def test_session_says_nothing_again_when_a_job_has_written(unset: Any, watermarks: Watermarks, tmp_path: Path) -> None:
    written(unset, watermarks, tmp_path / "target")

    assert unset.conf.get(SETTING, None) is None


def test_timestamps_are_as_the_session_says_when_it_does(unset: Any, watermarks: Watermarks, tmp_path: Path) -> None:
    unset.conf.set(SETTING, "INT96")

    columns = written(unset, watermarks, tmp_path / "target")

    assert {column.physical_type for column in columns} == {"INT96"}
    assert unset.conf.get(SETTING, None) == "INT96"


@pytest.mark.parametrize(("format", "during"), [("PARQUET", "TIMESTAMP_MICROS"), ("csv", None), ("delta", None)])
def test_setting_is_for_parquet_only_when_other_formats_are_written(unset: Any, format: str, during: Any) -> None:
    with pytest.raises(ZeroDivisionError), timestamps_with_statistics(unset, format):
        seen = unset.conf.get(SETTING, None)
        raise ZeroDivisionError

    assert (seen, unset.conf.get(SETTING, None)) == (during, None)
