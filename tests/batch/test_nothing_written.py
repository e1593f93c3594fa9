"""Rows and files that a run commits without passing them to a sink: a WARNING for each context."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from scripts.helpers.errors import FileContentError, SourceError
from scripts.helpers.glue.job import Job
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks

AT_ONCE = timedelta(0)
Warned = Callable[[], list[str]]


@pytest.fixture
def table(tmp_path: Path) -> Watermarks:
    """Return a watermark table in a file."""
    made = Watermarks(f"sqlite:{tmp_path}/watermarks.db")
    made.create_table()
    return made


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Warned:
    """Return a function that returns the contexts named in WARNINGs."""

    def found() -> list[str]:
        return [
            context
            for record in caplog.records
            for context in re.findall(r"event=nothing_written job=j run=\S+ context=(\w+):", record.getMessage())
        ]

    return found


def land(tmp_path: Path, *names: str) -> str:
    """Write files with one row each, and return their folder."""
    folder = tmp_path / "landing"
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(json.dumps({"id": 1}))
    return f"{folder}/"


def ids(*numbers: int) -> pd.DataFrame:
    return pd.DataFrame({"id": numbers})


@pytest.mark.parametrize("frame", [ids(1, 2, 3), pa.table({"id": [1, 2, 3]})], ids=["pandas", "pyarrow"])
def test_context_is_named_once_when_its_rows_are_written_outside_the_block_or_never(
    table: Watermarks, warned: Warned, frame: Any
) -> None:
    for _ in range(2):
        with IncrementalJob(table, "j") as job:
            job.rows_since(frame, "id", delay=AT_ONCE)

    # The second run finds no new rows, so there is one warning.
    assert warned() == ["rows"]


def test_only_the_forgotten_context_is_named_when_another_one_is_written(
    table: Watermarks, warned: Warned, tmp_path: Path
) -> None:
    with IncrementalJob(table, "j") as job:
        first = job.rows_since(ids(1), "id", transformation_ctx="first", delay=AT_ONCE)
        job.rows_since(ids(2), "id", transformation_ctx="second", delay=AT_ONCE)
        landed = job.new_files(land(tmp_path, "1.json"), transformation_ctx="third")
        job.write(first, f"{tmp_path}/first")
        job.write(landed.read_pandas("json"), f"{tmp_path}/third")

    assert warned() == ["second"]


def test_no_context_is_named_when_a_frame_that_may_have_its_rows_is_written(
    table: Watermarks, warned: Warned, tmp_path: Path
) -> None:
    with IncrementalJob(table, "j") as job:
        first = job.rows_since(ids(1), "id", transformation_ctx="first", delay=AT_ONCE)
        second = job.rows_since(ids(2), "id", transformation_ctx="second", delay=AT_ONCE)
        job.write(pd.concat([first, second]), f"{tmp_path}/both")

    assert warned() == []


def test_context_of_files_is_named_when_only_their_number_is_asked_for(
    table: Watermarks, warned: Warned, tmp_path: Path
) -> None:
    with IncrementalJob(table, "j") as job:
        assert job.new_files(land(tmp_path, "1.json")).count == 1

    assert warned() == ["files"]


@pytest.mark.parametrize("is_tried", [False, True], ids=["unread", "failed"])
def test_files_that_nobody_got_are_named_when_rows_of_another_context_are_written(
    table: Watermarks, warned: Warned, tmp_path: Path, is_tried: bool
) -> None:
    with IncrementalJob(table, "j") as job:
        rows = job.rows_since(ids(1), "id", transformation_ctx="rows", delay=AT_ONCE)
        landed = job.new_files(land(tmp_path, "1.json"), transformation_ctx="files")
        if is_tried:
            with pytest.raises(FileContentError):
                landed.read_pandas("parquet")
        job.write(rows, f"{tmp_path}/rows")

    assert warned() == ["files"]


@pytest.mark.parametrize("asked", ["paths", "files"])
def test_nothing_is_logged_when_the_job_reads_the_files_itself(
    table: Watermarks, warned: Warned, tmp_path: Path, asked: str
) -> None:
    with IncrementalJob(table, "j") as job:
        assert len(getattr(job.new_files(land(tmp_path, "1.json")), asked)) == 1

    assert warned() == []


def test_nothing_is_logged_when_the_job_freezes_its_plan_to_write_the_rows_itself(
    table: Watermarks, warned: Warned
) -> None:
    with IncrementalJob(table, "j") as job:
        job.rows_since(ids(1), "id", delay=AT_ONCE)
        job.freeze()

    assert warned() == []


def test_nothing_is_logged_when_no_file_has_a_row_and_the_frame_is_written(
    table: Watermarks, warned: Warned, tmp_path: Path
) -> None:
    folder = tmp_path / "landing"
    folder.mkdir()
    (folder / "1.csv").write_text("")

    with IncrementalJob(table, "j") as job:
        job.rows_since(ids(1), "id", transformation_ctx="forgotten", delay=AT_ONCE)
        job.write(job.new_files(f"{folder}/").read_pandas("csv"), f"{tmp_path}/target")

    assert warned() == ["forgotten"]


@pytest.mark.parametrize("mode", ["pause", "disable"])
def test_nothing_is_logged_when_the_run_saves_nothing(table: Watermarks, warned: Warned, mode: Any) -> None:
    with IncrementalJob(table, "j", mode=mode) as job:
        job.rows_since(ids(1), "id", delay=AT_ONCE)

    assert warned() == []


def test_nothing_is_logged_when_the_run_fails(table: Watermarks, warned: Warned) -> None:
    with pytest.raises(ZeroDivisionError), IncrementalJob(table, "j") as job:
        job.rows_since(ids(1), "id", delay=AT_ONCE)
        raise ZeroDivisionError

    assert warned() == []


def test_nothing_is_logged_when_a_script_with_names_of_glue_commits(table: Watermarks, warned: Warned) -> None:
    session: Any = None
    job = Job(session, table)
    job.init("j", {"job_bookmark_option": "job-bookmark-enable"})
    running = Job.tracking("rows")
    assert running is not None

    running.rows_since(ids(1), "id", delay=AT_ONCE)
    job.commit()

    assert (table.latest("j").version, warned()) == (1, [])


@pytest.mark.parametrize("is_written_by_spark", [False, True])
def test_rows_of_spark_are_named_when_no_sink_is_given_them(
    table: Watermarks, warned: Warned, spark: Any, tmp_path: Path, is_written_by_spark: bool
) -> None:
    frame = spark.createDataFrame([(1,), (2,)], "id long")

    with IncrementalJob(table, "j", spark=spark) as job:
        rows = job.rows_since(frame, "id", transformation_ctx="rows", delay=AT_ONCE)
        landed = job.new_files(land(tmp_path, "1.json"), transformation_ctx="files")
        job.write(landed.read(spark, "json").selectExpr("id + 1 AS id"), f"{tmp_path}/files")
        if is_written_by_spark:
            rows.write.parquet(f"{tmp_path}/rows")

    assert warned() == ["rows"]


def test_no_context_is_named_when_one_frame_of_spark_has_the_rows_of_all(
    table: Watermarks, warned: Warned, spark: Any, tmp_path: Path
) -> None:
    for day in ("01", "02"):
        (tmp_path / "days" / f"day={day}").mkdir(parents=True)
        (tmp_path / "days" / f"day={day}" / "1.json").write_text(json.dumps({"id": 1}))
    frame = spark.createDataFrame([(1,), (2,)], "id long")

    with IncrementalJob(table, "j", spark=spark) as job:
        rows = job.rows_since(frame, "id", transformation_ctx="rows", delay=AT_ONCE)
        small = job.new_files(land(tmp_path, "1.json"), transformation_ctx="small")
        days = job.new_partitions(f"{tmp_path}/days/", "day", whole=True, transformation_ctx="whole")
        read = [small.read_small(spark, "json", "id long"), days.read(spark, "json", schema="id long").select("id")]
        job.write(rows.union(read[0]).union(read[1]), f"{tmp_path}/all")

    assert warned() == []


@pytest.mark.parametrize("kept", ["checkpoint", "localCheckpoint", "rdd", "toPandas"])
def test_no_context_is_named_when_rows_of_one_were_computed_before_those_of_another_join_them(
    table: Watermarks, warned: Warned, spark: Any, tmp_path: Path, kept: str
) -> None:
    frame = spark.createDataFrame([(1,), (2,)], "id long")
    spark.sparkContext.setCheckpointDir(f"{tmp_path}/checkpoints")

    with IncrementalJob(table, "j", spark=spark) as job:
        first = job.rows_since(frame, "id", transformation_ctx="first", delay=AT_ONCE)
        second = job.rows_since(frame, "id", transformation_ctx="second", delay=AT_ONCE)
        if kept in ("rdd", "toPandas"):
            first = spark.createDataFrame(first.rdd if kept == "rdd" else first.toPandas(), "id long")
        else:
            first = getattr(first, kept)()
        job.write(first.where("id > 0").union(second), f"{tmp_path}/both")

    assert warned() == []


def test_partitions_that_are_read_whole_are_named_when_no_sink_is_given_any_rows(
    table: Watermarks, warned: Warned, spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "days" / "day=01").mkdir(parents=True)
    (tmp_path / "days" / "day=01" / "1.json").write_text(json.dumps({"id": 1}))

    with IncrementalJob(table, "j", spark=spark) as job:
        days = job.new_partitions(f"{tmp_path}/days/", "day", whole=True, transformation_ctx="whole")
        days.read(spark, "json", schema="id long").count()

    assert warned() == ["whole"]


def test_small_files_of_spark_are_named_when_they_cannot_be_read_and_another_context_is_written(
    table: Watermarks, warned: Warned, spark: Any, tmp_path: Path
) -> None:
    with IncrementalJob(table, "j", spark=spark) as job:
        rows = job.rows_since(ids(1), "id", transformation_ctx="rows", delay=AT_ONCE)
        landed = job.new_files(land(tmp_path, "1.json"), transformation_ctx="files")
        with pytest.raises(SourceError, match="not one of"):
            landed.read_small(spark, "parquet", "id long")
        job.write(rows, f"{tmp_path}/rows")

    assert warned() == ["files"]


def test_files_of_spark_are_named_when_only_the_rows_of_another_context_are_written(
    table: Watermarks, warned: Warned, spark: Any, tmp_path: Path
) -> None:
    frame = spark.createDataFrame([(1,), (2,)], "id long")

    with IncrementalJob(table, "j", spark=spark) as job:
        rows = job.rows_since(frame, "id", transformation_ctx="rows", delay=AT_ONCE)
        job.new_files(land(tmp_path, "1.json"), transformation_ctx="files").read(spark, "json").count()
        job.write(rows.where("id > 0"), f"{tmp_path}/rows")

    assert warned() == ["files"]
