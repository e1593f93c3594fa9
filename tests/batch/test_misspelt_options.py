"""Names of options: a misspelt option is refused before anything is read, and editors know the valid ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from scripts.helpers.batch.rows import RowsSinceOptions
from scripts.helpers.databases import SqlTable
from scripts.helpers.errors import InvalidValueError, SourceError
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.rules import FileOptions, FileOptionsGiven
from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.options import RowOptions
from scripts.helpers.tables import DeltaTable, TableOptions
from scripts.helpers.watermarks import Watermarks
from tests.support.reasons import because

AT_ONCE = timedelta(0)
ROWS = pd.DataFrame({"id": [1]})
NONE: Any = None
"""As read from an environment variable that is not set."""
Call = Callable[[IncrementalJob, str], Any]


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda job, _: job.rows_since(ROWS, "id", delya=None), "delay"),
        (lambda job, folder: job.rows_since(DeltaTable(folder), max_version=1), "max_versions"),
        (lambda job, folder: job.new_files(folder, max_file=1), "max_files"),
        (lambda job, folder: job.new_partitions(folder, "day", readymarker="_SUCCESS"), "ready_marker"),
        (lambda job, folder: job.latest_partition(folder, "day", Include=["*.csv"]), "include"),
        (lambda job, _: job.rows_since(ROWS, cursor="id"), "cursor_column"),
        (lambda job, _: job.rows_since(ROWS, "id", on_schema_chnage="add"), "on_schema_change"),
        (lambda job, folder: job.new_files(folder, on_change="skip"), "on_changed"),
        (lambda job, folder: job.new_partitions(folder, "day", max_partition=1), "max_partitions"),
        (lambda job, folder: job.latest_partition(folder, "day", on_sam="skip"), "on_same"),
    ],
)
def test_option_that_was_meant_is_named_when_one_is_misspelt(
    watermarks: Watermarks, tmp_path: Path, call: Call, meant: str
) -> None:
    with IncrementalJob(watermarks, "repairs") as job:
        with pytest.raises(
            InvalidValueError, check=because("option"), match=rf"there is none of that name\. Did you mean {meant}\?"
        ):
            call(job, f"{tmp_path}/")
        job.abort()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda job, folder: job.new_files(None), "source of files is a NoneType. Name one directory"),
        (lambda job, folder: job.new_files([folder]), "source of files is a list. Name one directory"),
        (lambda job, folder: job.new_partitions([folder], "day"), "source of files is a list"),
        (lambda job, folder: job.new_partitions(folder, None), "columns is None. Name one partition column"),
        (lambda job, folder: job.latest_partition(folder, None), "columns is None. Name one partition column"),
        (lambda job, folder: FileBookmark(NONE), "source of files is a NoneType"),
        (lambda job, folder: job.new_files(folder).read(None, "csv"), "spark is a NoneType. Pass the SparkSession"),
        (lambda job, folder: job.new_files(folder).read("csv", None), "format is None. Name one, such as 'csv'"),
        (lambda job, folder: job.new_files(folder).read("spark", "csv"), "spark is a str. Pass the SparkSession"),
        (lambda job, folder: job.new_files(folder).read_small(None, "csv"), "spark is a NoneType"),
        (lambda job, folder: job.new_files(folder).read_pandas(None), "reads csv, json, parquet .* not None"),
        (lambda job, folder: job.rows_since(ROWS, []), "read by a column that says what is new. Name it"),
        (lambda job, folder: job.rows_since(SqlTable(NONE, "t"), "id"), "starts with none of postgresql:"),
        (lambda job, folder: job.rows_since(SqlTable("sqlite:t.db", NONE), "id"), "has an empty part"),
        (lambda job, folder: job.write(ROWS, folder, partition_by=None), "partition_by is a list of columns, not None"),
        (lambda job, folder: job.write(ROWS, folder, format=None), "write format='parquet' here, not 'None'"),
        (lambda job, folder: job.relationalize(ROWS), "takes rows of Spark or a DynamicFrame, not a DataFrame"),
    ],
)  # fmt: skip
def test_argument_is_named_when_what_is_passed_is_none_of_its_kind(
    watermarks: Watermarks, tmp_path: Path, call: Call, text: str
) -> None:
    with IncrementalJob(watermarks, "repairs") as job:
        job.rows_since(ROWS, "id", transformation_ctx="given")
        with pytest.raises((InvalidValueError, SourceError), match=text):
            call(job, f"{tmp_path}/")
        job.abort()


@pytest.mark.parametrize("option", ["mode", "order", "whole", "rescue"])
def test_no_other_option_is_suggested_when_none_is_alike(watermarks: Watermarks, tmp_path: Path, option: str) -> None:
    with IncrementalJob(watermarks, "repairs") as job:
        with pytest.raises(InvalidValueError, check=because("option")) as raised:
            job.new_files(f"{tmp_path}/", **{option: None})  # type: ignore[arg-type]
        job.abort()

    assert "there is none of that name. Use start_from," in str(raised.value)


def test_option_that_the_call_refuses_is_not_suggested_when_it_is_alike(watermarks: Watermarks, tmp_path: Path) -> None:
    with IncrementalJob(watermarks, "repairs") as job:
        with pytest.raises(InvalidValueError, check=because("option")) as raised:
            job.new_partitions(f"{tmp_path}/", "day", max_file=1)  # type: ignore[call-arg]
        job.abort()

    assert "max_partitions" in str(raised.value)
    assert "max_files" not in str(raised.value)


@pytest.mark.parametrize("engine", ["files", "delta", "iceberg"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "append"}, "to append is what write does. Leave it out."),
        ({"mode": "overwrite"}, "'overwrite' is not possible, as a target keeps its earlier batches."),
        ({"partitionBy": ["id"]}, "Did you mean partition_by?"),
        ({"partition_bye": ["id"]}, "Did you mean partition_by?"),
        ({"batchfolders": True}, "Did you mean batch_folders?"),
        ({"bucketBy": 4}, "there is none of that name. Use format, partition_by,"),
        ({"keys": ["id"]}, "there is none of that name."),
        ({"spark": None}, "there is none of that name."),
    ],
)
def test_option_of_other_writers_is_refused_when_rows_are_written(
    watermarks: Watermarks, tmp_path: Path, engine: str, options: dict[str, Any], said: str
) -> None:
    target = "lake.raw.rows" if engine == "iceberg" else f"{tmp_path}/raw"
    with IncrementalJob(watermarks, "repairs") as job:
        rows = job.rows_since(ROWS, "id", delay=AT_ONCE)
        with pytest.raises(InvalidValueError, match=f"Option '{next(iter(options))}' of write: ") as raised:
            job.write(rows, target, format="parquet" if engine == "files" else engine, **options)
        job.abort()

    assert said in str(raised.value)
    assert not (tmp_path / "raw").exists()


def test_options_of_the_format_are_used_when_rows_are_written(watermarks: Watermarks, tmp_path: Path) -> None:
    with IncrementalJob(watermarks, "repairs") as job:
        job.write(job.rows_since(ROWS, "id", delay=AT_ONCE), f"{tmp_path}/raw", compression="gzip", row_group_size=1)

    (file,) = (tmp_path / "raw").rglob("*.parquet")
    assert pq.ParquetFile(file).metadata.row_group(0).column(0).compression == "GZIP"


def test_order_of_arguments_is_said_when_two_are_swapped(watermarks: Watermarks, tmp_path: Path) -> None:
    swapped: Any = ("repairs", watermarks)
    with pytest.raises(InvalidValueError, match="The table comes first, and then the name of the job"):
        IncrementalJob(*swapped)
    with IncrementalJob(watermarks, "repairs") as job:
        rows: Any = job.rows_since(ROWS, "id", delay=AT_ONCE)
        with pytest.raises(InvalidValueError, match=r"The rows are a str and the target is a DataFrame. Give the rows"):
            job.write(f"{tmp_path}/raw", rows)
        with pytest.raises(InvalidValueError, match="A DataFrame is not a target that rows can be merged into"):
            job.merge(rows, rows, keys="id", sequence_by="at")
        job.abort()


@pytest.mark.parametrize(
    ("typed", "kinds"), [(RowsSinceOptions, (RowOptions, TableOptions)), (FileOptionsGiven, (FileOptions,))]
)
def test_editors_know_every_option_when_a_call_takes_them(typed: Any, kinds: tuple[Any, ...]) -> None:
    known = {field.name for kind in kinds for field in fields(kind)}

    assert typed.__optional_keys__ == known
