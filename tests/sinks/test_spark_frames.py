"""Spark frames as scripts make them: computed more than once, with odd names, or streaming."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions

from scripts.helpers.errors import InvalidValueError, SourceError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.sinks.delta import DeltaSink
from scripts.helpers.sinks.files import FileSink
from scripts.helpers.sinks.iceberg import IcebergSink
from scripts.helpers.watermarks import Watermarks
from tests.support.reasons import because
from tests.support.staging import staged_by

BATCH = BatchId("repairs", "e1", 1)


class Target:
    """A Delta or Iceberg table, written by Spark."""

    def __init__(self, kind: str, folder: Path, spark: Any) -> None:
        self.spark, self.is_delta = spark, kind == "delta"
        self.place = f"{folder}/t" if self.is_delta else f"lake.raw.t{abs(hash(folder))}"
        self.name = f"delta.`{self.place}`" if self.is_delta else self.place

    def make(self, columns: str) -> None:
        self.spark.sql(f"CREATE TABLE {self.name} ({columns}) USING {'delta' if self.is_delta else 'iceberg'}")

    def write(self, rows: Any, **options: Any) -> list[Any]:
        """Write rows as one batch, and return the rows of the table."""
        sink = (DeltaSink if self.is_delta else IcebergSink)(self.place, spark=self.spark, **options)
        output = staged_by(sink, BATCH, 1, rows)
        sink.publish(output)
        sink.clear(output)
        return self.rows

    @property
    def rows(self) -> list[Any]:
        self.spark.catalog.clearCache()
        return sorted(tuple(row) for row in self.spark.table(self.name).collect())


@pytest.fixture(params=["delta", "iceberg"])
def target(request: pytest.FixtureRequest, tmp_path: Path, spark_with_tables: Any) -> Target:
    return Target(request.param, tmp_path, spark_with_tables)


@pytest.fixture
def gone_later(spark_with_tables: Any, tmp_path: Path) -> Callable[[int], Any]:
    """Return a maker of rows that have a value the first `times` times they are computed, and NULL afterwards."""

    def make(times: int) -> Any:
        @functions.udf("long")
        def value(number: int) -> int | None:
            asked = tmp_path / f"asked-{number}"
            with asked.open("a") as file:
                file.write("x")
            return number if asked.stat().st_size <= times else None

        return spark_with_tables.range(3).coalesce(1).select(value.asNondeterministic()("id").alias("i"))

    return make


def test_no_row_is_left_out_when_a_frame_has_other_values_each_time(
    target: Target, gone_later: Callable[[int], Any]
) -> None:
    target.make("i bigint NOT NULL")

    assert target.write(gone_later(1)) == [(0,), (1,), (2,)]


def test_batch_is_refused_before_the_commit_when_a_value_is_null_as_it_is_written(
    target: Target, gone_later: Callable[[int], Any]
) -> None:
    target.make("i bigint NOT NULL")

    with pytest.raises(InvalidValueError, match="'i' has 3 NULLs"):
        target.write(gone_later(0))

    assert target.rows == []


def test_table_is_made_when_the_name_of_its_partition_column_has_a_dot(target: Target) -> None:
    rows = target.spark.createDataFrame([(1, "x"), (2, "y")], "i long, `a.b` string")

    assert target.write(rows, partition_by=["a.b"]) == [(1, "x"), (2, "y")]


@pytest.mark.parametrize("text", ["x" * 256, "a\0b"], ids=["long", "nul"])
def test_error_names_the_partition_column_when_no_folder_can_have_the_name_of_its_value(
    text: str, tmp_path: Path, spark_with_tables: Any
) -> None:
    rows = spark_with_tables.createDataFrame([(1, text), (2, "y")], "i long, kind string")

    with pytest.raises(InvalidValueError, check=because("unfit_partition"), match="'kind': 1 row has"):
        staged_by(FileSink(f"{tmp_path}/t", spark=spark_with_tables, partition_by=["kind"]), BATCH, 1, rows)


@pytest.mark.parametrize("kind", ["files", "delta", "iceberg"])
def test_streaming_rows_are_refused_by_name(kind: str, tmp_path: Path, spark_with_tables: Any) -> None:
    rows = spark_with_tables.readStream.format("rate").load()
    sinks: dict[str, Callable[[], Any]] = {
        "files": lambda: FileSink(f"{tmp_path}/t", spark=spark_with_tables),
        "delta": lambda: DeltaSink(f"{tmp_path}/t", spark=spark_with_tables),
        "iceberg": lambda: IcebergSink("lake.raw.streaming", spark=spark_with_tables),
    }

    with pytest.raises(InvalidValueError, match="streaming DataFrame"):
        staged_by(sinks[kind](), BATCH, 1, rows)


@pytest.mark.parametrize("kind", ["files", "delta", "iceberg", "merge"])
def test_error_names_the_file_when_it_was_deleted_between_the_listing_and_the_write(
    kind: str, tmp_path: Path, spark_with_tables: Any, watermarks: Watermarks
) -> None:
    spark = spark_with_tables
    spark.range(3).withColumn("at", functions.current_timestamp()).coalesce(1).write.parquet(f"{tmp_path}/in")
    is_iceberg = kind == "iceberg"
    sink = (IcebergSink if is_iceberg else DeltaSink)("lake.raw.late" if is_iceberg else f"{tmp_path}/t", spark=spark)

    with (
        pytest.raises(
            SourceError, match=r"in/part-.*parquet'?: the rows come from this file, and it was deleted"
        ) as caught,
        IncrementalJob(watermarks, "repairs", spark=spark) as job,
    ):
        rows = job.rows_since(spark.read.parquet(f"{tmp_path}/in"), "id")
        for file in tmp_path.glob("in/*.parquet"):
            file.unlink()
        if kind == "merge":
            job.merge(rows, sink, keys="id", sequence_by="at")
        else:
            job.write(rows, f"{tmp_path}/t" if kind == "files" else sink)

    assert len(str(caught.value)) < 500
    assert watermarks.latest("repairs").version == 0


@pytest.mark.parametrize(
    ("format", "options", "said"),
    [
        ("csv", {"encoding": "nope", "header": True}, "nope"),
        ("csv", {"timeZone": "Nope/X"}, "Nope/X"),
        ("csv", {"quote": "''"}, "quote cannot be more than one character"),
        ("csv", {"sep": ""}, "Delimiter cannot be empty"),
        ("json", {"schema": "id INTT"}, "PARSE_SYNTAX_ERROR|UNSUPPORTED_DATATYPE|intt is not supported"),
    ],
    ids=["encoding", "zone", "quote", "separator", "schema"],
)
def test_value_of_an_option_is_named_when_sparks_reader_refuses_it(
    format: str, options: dict[str, Any], said: str, tmp_path: Path, spark: Any, watermarks: Watermarks
) -> None:
    (tmp_path / f"1.{format}").write_text("id\n1\n")

    with (
        pytest.raises(SourceError, match=rf"(?s)({said}).*heck options, format and schema of the read"),
        IncrementalJob(watermarks, "repairs", spark=spark) as job,
    ):
        job.new_files(str(tmp_path)).read(spark, format, **{"schema": "id STRING", **options})


def parquet_of(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return bytes(sink.getvalue())


ROWS = parquet_of(pa.table({"id": [1, 2**40]}))
LINES = gzip.compress(b"".join(b'{"id":%d}\n' % number for number in range(20_000)), mtime=0)


@pytest.mark.parametrize("target", ["files", "delta"])
@pytest.mark.parametrize(
    ("name", "data", "schema", "said"),
    [
        ("1.json.gz", b'{"id":1}\n', "id BIGINT", r"1\.json\.gz'?: Spark cannot read it \(EOFException\)"),
        ("1.json.gz", LINES[: len(LINES) // 2], "id BIGINT", r"Spark cannot read (it|one of them) \(EOFException\)"),
        ("1.parquet", ROWS[:-20], "id BIGINT", r"1\.parquet'?: Spark cannot read it"),
        ("1.parquet", b"id\n1\n", "id BIGINT", r"1\.parquet'?: Spark cannot read it"),
        ("1.parquet", ROWS, "id STRING", r"1\.parquet'?: Spark cannot read it \(.*id.*INT64"),
        ("1.parquet", ROWS, "id INT", r"'id' is bigint in key '1\.parquet', and schema has it as int"),
        ("1.orc", b"junkjunk", "id BIGINT", r"1\.orc'?: Spark cannot read it"),
    ],
    ids=["no-gzip", "cut-off", "footer", "no-parquet", "other-type", "narrower-type", "no-orc"],
)
def test_error_names_the_file_when_spark_cannot_read_it(
    target: str, name: str, data: bytes, schema: str, said: str, tmp_path: Path, watermarks: Watermarks,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    spark = request.getfixturevalue("spark" if target == "files" else "spark_with_tables")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(data)

    with (
        pytest.raises(SourceError, match=said) as caught,
        IncrementalJob(watermarks, "repairs", spark=spark) as job,
    ):
        rows = job.new_files(f"{tmp_path}/in").read(spark, name.split(".")[1], schema=schema)
        job.write(rows, f"{tmp_path}/t" if target == "files" else DeltaSink(f"{tmp_path}/t", spark=spark))

    assert "on_unreadable='set_aside'" in str(caught.value)
    assert len(str(caught.value)) < 500
    assert watermarks.latest("repairs").version == 0
