"""Partitions read with Spark: types of folder columns, schemas, and batches without partitions."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import InvalidValueError, PlanConflictError, SourceError
from scripts.helpers.files.partition_delta import PartitionDelta
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks

DATES = ["import_year", "import_month", "import_day", "import_date"]
NULL = "__HIVE_DEFAULT_PARTITION__"


def put(folder: Path, key: str, text: str = '{"id": 1}\n') -> None:
    path = folder / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def take(watermarks: Watermarks, spark: Any, source: Any, columns: Any = "day", **options: Any) -> PartitionDelta:
    with IncrementalJob(watermarks, "copy", spark=spark) as job:
        return job.new_partitions(str(source), columns, **options)


def test_columns_keep_their_types_when_batches_have_other_folders(
    watermarks: Watermarks, spark: Any, tmp_path: Path
) -> None:
    put(tmp_path, "year=2026/month=01/area=7/day=20260105/a.json")
    types = {"year": "int", "day": "date"}
    both = {"types": types, "nulls": "take"}
    first = take(watermarks, spark, tmp_path, ["year", "day"], types=types).read(spark, "json", schema="id int")
    put(tmp_path, f"year=2026/month=1x/area=caf\u00e9%2F/day={NULL}/b.json", '{"id": 2}\n')
    delta = take(watermarks, spark, tmp_path, ["year", "day"], **both)
    second = delta.read(spark, "json", schema="id int, YEAR bigint", path_column="file")
    nothing = take(watermarks, spark, tmp_path, ["year", "day"], **both).read(spark, "json", schema="id int")

    assert first.dtypes == [("id", "int"), ("year", "int"), ("month", "string"), ("area", "string"), ("day", "date")]
    assert [tuple(row) for row in first.collect()] == [(1, 2026, "01", "7", date(2026, 1, 5))]
    (row,) = second.collect()
    assert (row.id, row.year, row.month, row.area, row.day) == (2, 2026, "1x", "caf\u00e9/", None)
    assert dict(second.dtypes)["year"] == "bigint"
    assert row.file.endswith("/b.json")
    assert nothing.dtypes == [("id", "int"), ("year", "int"), ("day", "date")]
    assert spark.conf.get("spark.sql.sources.partitionColumnTypeInference.enabled") == "true"


def test_read_is_refused_when_the_schema_has_a_type_that_folders_do_not_hold(
    watermarks: Watermarks, spark: Any, tmp_path: Path
) -> None:
    put(tmp_path, "day=20261124x/a.json")
    delta = take(watermarks, spark, tmp_path)

    with pytest.raises(SourceError, match="holds no date"):
        delta.read(spark, "json", schema="id int, day date")
    with pytest.raises(InvalidValueError, match="day' as timestamp"):
        delta.read(spark, "json", schema="id int, day timestamp")
    assert delta.read(spark, "json").dtypes == [("id", "bigint"), ("day", "string")]


def test_whole_partitions_replace_those_of_the_target_when_they_are_overwritten(
    watermarks: Watermarks, spark: Any, tmp_path: Path
) -> None:
    source, target = tmp_path / "source", str(tmp_path / "target")

    def copy() -> None:
        with IncrementalJob(watermarks, "copy", spark=spark) as job:
            delta = job.new_partitions(str(source), "day", whole=True)
            job.freeze()
            rows = delta.read(spark, "json", schema="id int").coalesce(1)
            rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy("day").parquet(target)

    put(source, "day=1/a.json")
    put(source, "day=2/a.json", '{"id": 2}\n')
    copy()
    put(source, "day=1/late.json", '{"id": 3}\n')
    (source / "day=2/a.json").write_text('{"id": 20}\n')
    copy()

    assert sorted(tuple(row) for row in spark.read.parquet(target).collect()) == [(1, 1), (3, 1), (20, 2)]


def test_replay_is_refused_when_whole_partitions_were_planned_and_executors_are_to_find_files(
    watermarks: Watermarks, spark: Any, tmp_path: Path
) -> None:
    put(tmp_path, "source/day=1/a.json")
    source, ledger = str(tmp_path / "source"), str(tmp_path / "ledger")
    with pytest.raises(ZeroDivisionError), IncrementalJob(watermarks, "copy", spark=spark) as job:
        job.new_partitions(source, "day", transformation_ctx="files", whole=True, ledger_uri=ledger)
        job.freeze()
        raise ZeroDivisionError

    with (
        pytest.raises(PlanConflictError, match="Run the code that made the plan"),
        IncrementalJob(watermarks, "copy", spark=spark) as job,
    ):
        job.new_files_on_spark(source, ledger_uri=ledger)
