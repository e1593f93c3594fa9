"""The schema of a file target: compared, stored and kept, whatever the format and whatever engine writes rows."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.helpers.errors import InvalidValueError, TargetSchemaError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output
from scripts.helpers.sinks.file_schema import COLUMNS
from scripts.helpers.sinks.files import FileSink
from scripts.helpers.sinks.spark_files import timestamps_with_statistics
from scripts.helpers.watermarks import Watermarks
from tests.support.reasons import because
from tests.support.staging import staged_by

PARQUET = ["pandas", "pyarrow", "parquet"]
TYPED = [*PARQUET, "orc"]
ALL = [*TYPED, "csv", "json"]


def batch(version: int, job: str = "repairs") -> BatchId:
    return BatchId(job, "e1", version)


class Target:
    """A target for rows of one kind, which is the name of an engine or of one of Spark's formats."""

    def __init__(self, spark: Any, folder: Path, kind: str) -> None:
        self.spark, self.folder, self.kind = spark, folder, kind
        self.format = kind if kind in ("orc", "csv", "json") else "parquet"
        self.version = 0

    def sink(self, **options: Any) -> FileSink:
        return FileSink(str(self.folder), spark=self.spark, format=self.format, **options)

    def rows(self, select: str, count: int = 2) -> Any:
        frame = self.spark.sql(f"SELECT {select} FROM range({count})")
        if self.kind == "pandas":
            return frame.toPandas()
        return pa.Table.from_pandas(frame.toPandas()) if self.kind == "pyarrow" else frame

    def stage(self, rows: Any, **options: Any) -> Output:
        self.version += 1
        return staged_by(
            self.sink(**options), batch(self.version), 1, self.rows(rows) if isinstance(rows, str) else rows
        )

    def write(self, rows: Any, **options: Any) -> None:
        self.sink(**options).publish(self.stage(rows, **options))

    def schema(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / COLUMNS).read_bytes())
        return found

    def read(self) -> Any:
        return self.spark.read.format(self.format).option("mergeSchema", True).load(str(self.folder))

    def folders(self) -> set[str]:
        return {path.name for path in self.folder.glob("*=*")}


@pytest.fixture
def make(spark: Any, tmp_path: Path) -> Callable[[str], Target]:
    return lambda kind: Target(spark, tmp_path / "raw", kind)


# --- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*TYPED, "json"])
def test_batch_is_refused_when_a_column_has_another_type_than_in_an_earlier_batch(
    make: Callable[[str], Target], kind: str
) -> None:
    """The smallest file of the target and its newest file lack the column."""
    target = make(kind)
    target.write(target.rows("id, CAST(id AS int) AS b", 500))
    target.write("id")
    left = target.sink().staging.place.files()

    with pytest.raises(TargetSchemaError, match="'b' is string in the rows and int in the table") as caught:
        target.stage("id, 'x' AS b")

    assert caught.value.changed == {"b": ("string", "int")}
    assert target.sink().staging.place.files() == left
    assert target.read().count() == 502


@pytest.mark.parametrize("kind", ALL)
def test_batch_is_refused_when_a_partition_column_has_another_type(make: Callable[[str], Target], kind: str) -> None:
    target = make(kind)
    target.write("id, CAST(id AS int) AS d", partition_by=["d"])

    with pytest.raises(TargetSchemaError, match="'d' is string in the rows and int in the table"):
        target.stage("id, 'x' AS d", partition_by=["d"])

    target.write("id, CAST(7 AS int) AS d", partition_by=["d"])
    assert target.folders() == {"d=0", "d=1", "d=7"}
    assert target.schema()["partitions"] == {"d": "int"}


@pytest.mark.parametrize("kind", ALL)
def test_batch_is_refused_when_a_name_differs_only_in_case(make: Callable[[str], Target], kind: str) -> None:
    target = make(kind)
    target.write("id, 'x' AS name")

    with pytest.raises(TargetSchemaError, match="Name"):
        target.stage("id, 'y' AS Name")

    target.write("id, 'y' AS name")
    assert target.read().count() == 4


def test_first_batch_is_refused_when_two_of_its_names_differ_only_in_case(make: Callable[[str], Target]) -> None:
    target = make("pandas")

    with pytest.raises(InvalidValueError, match="have columns 'name' and 'Name', which differ only in case"):
        target.stage(pd.DataFrame({"id": [1], "name": ["x"], "Name": ["y"]}))


def test_batch_is_refused_when_a_struct_becomes_a_plain_value(make: Callable[[str], Target]) -> None:
    target = make("json")
    target.write("id, named_struct('n', id) AS inner")

    with pytest.raises(TargetSchemaError, match="'inner' is string in the rows and struct in the table"):
        target.stage("id, 'x' AS inner")


@pytest.mark.parametrize("kind", ALL)
def test_schema_is_stored_with_its_columns_in_order_when_a_batch_is_published(
    make: Callable[[str], Target], kind: str
) -> None:
    target = make(kind)

    target.write("1.50 AS price, id, 'x' AS note, date'2026-11-23' AS d", partition_by=["d"])

    price = "decimal(3,2)"
    found = target.schema()
    assert list(found["columns"].items()) == [("price", price), ("id", "bigint"), ("note", "string")]
    assert (found["partitions"], found["format"]) == ({"d": "date"}, target.format)


SAME = (
    "id, CAST(id AS int) AS i, CAST(id AS smallint) AS s, CAST(id AS tinyint) AS t, 1.5D AS f, CAST(1 AS float) AS r, "
    "id = 1 AS b, 'x' AS text, CAST('x' AS binary) AS bytes, date'2026-11-23' AS day, 1.50 AS price, "
    "timestamp'2026-11-23 10:00:00' AS at, timestamp_ntz'2026-11-23 10:00:00' AS plain, array(id) AS many, "
    "named_struct('n', id) AS inner"
)


@pytest.mark.parametrize(("first", "second"), [("spark", "arrow"), ("arrow", "spark")])
@pytest.mark.parametrize("stored", [True, False])
def test_rows_of_another_engine_are_taken_when_their_types_mean_the_same(
    make: Callable[[str], Target], first: str, second: str, stored: bool
) -> None:
    target = make("parquet")
    frame = target.rows(SAME)
    with timestamps_with_statistics(frame.sparkSession):
        frame.write.parquet(str(target.folder.parent / "copy"))
    rows = {"spark": frame, "arrow": pq.read_table(target.folder.parent / "copy")}
    target.write(rows[first])
    if not stored:
        (target.folder / COLUMNS).unlink()

    target.write(rows[second])

    assert target.read().count() == 4
    assert target.read().dtypes == frame.dtypes
    types = dict(frame.dtypes) | {"many": "array", "many[]": "bigint", "inner": "struct", "inner.n": "bigint"}
    assert target.schema()["columns"] == types


def test_new_column_is_seen_by_spark_when_the_other_columns_are_from_a_file_of_spark(
    make: Callable[[str], Target],
) -> None:
    target = make("parquet")
    target.rows("id").write.parquet(str(target.folder.parent / "copy"))
    rows = pq.read_table(target.folder.parent / "copy")

    target.write(rows.append_column("note", pa.array(["x", "y"])))

    assert sorted(map(tuple, target.read().collect())) == [(0, "x"), (1, "y")]


@pytest.mark.parametrize("kind", ["duration[us]", "uint8", "time64[us]", "interval day to second"])
def test_type_keeps_a_name_of_its_own_when_only_one_engine_has_it(make: Callable[[str], Target], kind: str) -> None:
    target = make("parquet")
    if kind.startswith("interval"):
        rows = target.rows("id, INTERVAL '1' DAY + INTERVAL '1' SECOND AS one")
    else:
        rows = pa.table({"id": [1], "one": pa.array([1], pa.int64() if "int" not in kind else pa.uint8())})
        rows = rows.set_column(1, "one", rows["one"].cast(pa.type_for_alias(kind)))
    target.write(rows)
    (target.folder / COLUMNS).unlink()

    target.write(rows)

    assert target.schema()["columns"]["one"] == kind
    with pytest.raises(TargetSchemaError, match=r"'one' is bigint in the rows and"):
        target.stage("id, id AS one")


# --- columns without a value ----------------------------------------------------------------------

NOTHING = {
    "None": [None, None],
    "NaN": [float("nan")] * 2,
    "Int64": pd.array([None, None], "Int64"),
    "string": pd.array([None, None], "string"),
    "NaT": [pd.NaT, pd.NaT],
    "boolean": pd.array([None, None], "boolean"),
}


@pytest.mark.parametrize("kind", ["pandas", "pyarrow"])
def test_column_has_the_type_of_the_target_when_no_row_has_a_value(make: Callable[[str], Target], kind: str) -> None:
    target = make("parquet")
    had = ["bigint", "string", "timestamp", "double", "decimal(9,2)"]
    columns = {f"gone_{at}": f"CAST(NULL AS {of})" for at, of in enumerate(had)}
    columns |= {f"b_{at}": f"CAST(id AS {of})" for at, of in enumerate(had)}
    target.write(f"id, {', '.join(f'{value} AS {name}' for name, value in columns.items())}")

    for number, values in enumerate(NOTHING.values()):
        rows: Any = pd.DataFrame({"id": [10 + number, 20 + number], **dict.fromkeys(columns, values)})
        target.write(pa.Table.from_pandas(rows) if kind == "pyarrow" else rows)

    for number, values in enumerate(NOTHING, 2):
        found = [pq.read_schema(path) for path in target.folder.glob(f"*{number:010d}.parquet")]
        assert [schema.names for schema in found] == [["id", *columns]], values
    assert target.read().dtypes == [("id", "bigint"), *((name, had[int(name[-1])]) for name in columns)]
    nothing = " AND ".join(f"{name} IS NULL" for name in columns)
    ids = [of + number for of in (10, 20) for number in range(len(NOTHING))]
    assert sorted(row.id for row in target.read().where(nothing).collect()) == ids


@pytest.mark.parametrize("kind", [*TYPED, "json"])
def test_column_is_left_out_until_it_has_a_type_when_no_row_has_a_value(
    make: Callable[[str], Target], kind: str
) -> None:
    target = make(kind)

    target.write("id, NULL AS b")
    before = target.schema()["columns"]
    target.write("id, CAST(id AS int) AS b")
    target.write("id, NULL AS b")

    assert before == {"id": "bigint"}
    assert target.read().where("b IS NULL").count() == 4
    with pytest.raises(TargetSchemaError, match="'b' is string in the rows and int in the table"):
        target.stage("id, 'x' AS b")


def test_column_of_csv_keeps_its_place_and_gets_a_type_later_when_no_row_has_a_value(
    make: Callable[[str], Target],
) -> None:
    """Columns of CSV can never be added later, and an empty text fits every type."""
    target = make("csv")

    target.write("id, NULL AS b, 'x' AS c")
    before = target.schema()["columns"]
    target.write("id, CAST(id AS int) AS b, 'y' AS c")
    target.write("id, NULL AS b, 'z' AS c")

    assert before == {"id": "bigint", "b": "void", "c": "string"}
    assert sorted((row[1], row[2]) for row in target.read().where("_c0 = 1").collect() if row[1]) == [("1", "y")]
    assert {row[2] for row in target.read().collect()} == {"x", "y", "z"}
    with pytest.raises(TargetSchemaError, match="'b' is string in the rows and int in the table"):
        target.stage("id, 'x' AS b, 'y' AS c")


@pytest.mark.parametrize("kind", TYPED)
def test_batch_is_refused_when_no_column_has_a_type(make: Callable[[str], Target], kind: str) -> None:
    target = make(kind)

    with pytest.raises(InvalidValueError, match="'b' has no value in any row, and the target has no type for it"):
        target.stage("NULL AS b, date'2026-11-23' AS d", partition_by=["d"])

    assert target.sink().staging.place.files() == {}


def test_values_within_a_column_have_the_type_of_the_target_when_no_row_has_one(make: Callable[[str], Target]) -> None:
    target = make("pandas")
    had: dict[str, list[Any]] = {
        "id": [1],
        "tags": [["x"]],
        "inner": [{"n": 1, "more": [{"m": 0.5}]}],
        "items": [[{"n": 1, "at": [0.5]}]],
    }
    target.write(pd.DataFrame(had))

    target.write(pd.DataFrame({"id": [2], "tags": [[]], "inner": [{"n": None, "more": [{"m": None}]}], "items": [[]]}))
    target.write(pd.DataFrame({"id": [3], "tags": [None], "inner": [None], "items": [None]}))

    found = {row.id: row.asDict(recursive=True) for row in target.read().collect()}
    assert found[1] == {name: values[0] for name, values in had.items()}
    assert found[2] == {"id": 2, "tags": [], "inner": {"n": None, "more": [{"m": None}]}, "items": []}
    assert found[3] == {"id": 3, "tags": None, "inner": None, "items": None}
    assert pq.read_schema(next(target.folder.glob("*3.parquet"))).names == list(had)


def test_column_keeps_fields_whose_names_have_marks_of_paths_when_no_row_has_a_value(
    make: Callable[[str], Target],
) -> None:
    target = make("pandas")
    inner = pa.struct([
        ("a.b", pa.int64()), ("c", pa.struct([("d.e", pa.string()), ("f", pa.list_(pa.float64()))])),
        ("g[]", pa.int64()), ("h{key}", pa.int64()), ("i", pa.list_(pa.struct([("j.k", pa.int64())]))),
    ])  # fmt: skip
    target.write(pa.table({"id": [1], ".top": ["x"], "inner": pa.array([{"a.b": 7}], inner)}))

    target.write(pa.table({"id": [2], ".top": ["x"], "inner": pa.nulls(1)}))

    found = pq.read_schema(next(target.folder.glob("*2.parquet")))
    assert found.field("inner").type == inner


def test_batch_is_refused_when_values_within_a_column_have_no_type(make: Callable[[str], Target]) -> None:
    target = make("pandas")

    with pytest.raises(InvalidValueError, match=r"'tags\[\]' has no value in any row.*Cast it"):
        target.stage(pd.DataFrame({"id": [1], "tags": [[]]}))


def test_target_is_read_by_spark_when_a_file_of_the_batch_had_a_header_only(
    spark: Any, watermarks: Watermarks, tmp_path: Path
) -> None:
    landing, raw = tmp_path / "landing", tmp_path / "raw"
    landing.mkdir()

    def run(number: int, text: str) -> None:
        (landing / f"{number}.csv").write_text(text)
        with IncrementalJob(watermarks, "repairs", f"jr_{number}") as job:
            job.write(job.new_files(str(landing)).read_pandas("csv"), str(raw))

    run(1, "id,note\n")
    run(2, "id,note\n1,\n")
    run(3, "id,note\n2,x\n")
    run(4, "id,note\n3,\n")

    found = spark.read.parquet(str(raw), mergeSchema=True)
    assert sorted(map(tuple, found.select("id", "note").collect())) == [(1, None), (2, "x"), (3, None)]
    assert dict(found.dtypes) == {"id": "bigint", "note": "string"}

    # The column was text before, and stays text.
    run(5, "id,note\n4,7\n")

    found = spark.read.parquet(str(raw), mergeSchema=True).where("id = 4")
    assert [tuple(row) for row in found.select("id", "note").collect()] == [(4, "7")]


def test_pandas_reads_its_own_types_back_when_a_column_of_the_target_is_empty(make: Callable[[str], Target]) -> None:
    target = make("pandas")
    target.write(pd.DataFrame({"id": pd.array([1, None], "Int64"), "note": ["x", "y"]}))
    target.write(pd.DataFrame({"id": pd.array([2, None], "Int64"), "note": pd.array([None, None], "Int64")}))

    found = pd.read_parquet(target.folder)

    assert sorted(found["id"].dropna()) == [1, 2]
    assert sorted(found["note"].dropna()) == ["x", "y"]


# --- partitions -----------------------------------------------------------------------------------


def test_whole_floats_are_written_as_whole_numbers_when_the_partition_column_has_them(
    make: Callable[[str], Target],
) -> None:
    target = make("pandas")
    target.write(pd.DataFrame({"id": [1, 2], "d": [1, 2]}), partition_by=["d"])

    target.write(pd.DataFrame({"id": [3, 4], "d": [1, None]}), partition_by=["d"])

    assert target.folders() == {"d=1", "d=2", "d=__HIVE_DEFAULT_PARTITION__"}
    assert {row.d for row in target.read().collect()} == {1, 2, None}


@pytest.mark.parametrize("value", [1.5, 2.0**53, float("inf")])
def test_floats_are_refused_when_they_are_no_exact_whole_numbers(make: Callable[[str], Target], value: float) -> None:
    target = make("pandas")
    target.write(pd.DataFrame({"id": [1], "d": [1]}), partition_by=["d"])

    with pytest.raises(TargetSchemaError, match="'d' is double in the rows and bigint in the table"):
        target.stage(pd.DataFrame({"id": [3, 4], "d": [value, None]}), partition_by=["d"])


VALUES: Mapping[str, tuple[str, Any]] = {
    "bool": ("true", pd.array([True, None], "boolean")),
    "int": ("CAST(7 AS bigint)", pd.array([7, None], "Int64")),
    "date": ("date'2026-11-23'", [date(2026, 11, 23), None]),
    "text": ("'a/b=c d:%'", ["a/b=c d:%", None]),
    "category": ("'a'", pd.Categorical(["a", None])),
    "decimal": ("1.50", [Decimal("1.50"), None]),
    "small": ("0.0001D", [0.0001, None]),
    "one": ("1D", [1.0, None]),
    "large": ("12345678.5D", [12345678.5, None]),
    "huge": ("1e22D", [1e22, None]),
    "time": ("timestamp_ntz'2026-11-23 10:00:00.5'", [datetime(2026, 11, 23, 10, 0, 0, 500_000), None]),
    "midnight": ("timestamp_ntz'2026-11-23 00:00:00'", [datetime(2026, 11, 23), None]),
    "numpy": ("true", np.array([True, None], object)),
}


@pytest.fixture(scope="module")
def by_spark(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that returns the folder of a target to which Spark has written a value of VALUES."""

    @cache
    def write(value: str) -> Path:
        target = Target(spark, tmp_path_factory.mktemp("by_spark") / "raw", "parquet")
        target.write(f"id, {VALUES[value][0]} AS d", partition_by=["d"])
        return target.folder

    return write


@pytest.mark.parametrize("kind", ["pandas", "pyarrow"])
@pytest.mark.parametrize("value", VALUES)
def test_value_has_one_folder_when_different_engines_write_it(
    make: Callable[[str], Target], by_spark: Callable[[str], Path], kind: str, value: str
) -> None:
    target = make("parquet")
    shutil.copytree(by_spark(value), target.folder)
    target.version, values = 1, VALUES[value][1]
    before = target.folders()
    rows: Any = pd.DataFrame({"id": [3, 4], "d": values})

    target.write(pa.Table.from_pandas(rows) if kind == "pyarrow" else rows, partition_by=["d"])

    assert target.folders() == before | {"d=__HIVE_DEFAULT_PARTITION__"}


@pytest.mark.parametrize("kind", ["pyarrow", "parquet"])
def test_rows_are_in_the_folder_of_null_when_no_row_has_a_value_in_a_partition_column(
    make: Callable[[str], Target], kind: str
) -> None:
    target = make(kind)

    target.write("id, NULL AS d", partition_by=["d"])
    target.write("id, id AS d", partition_by=["d"])

    assert target.folders() == {"d=0", "d=1", "d=__HIVE_DEFAULT_PARTITION__"}
    assert target.schema()["partitions"] == {"d": "bigint"}


# --- targets without a schema ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", TYPED)
def test_schema_is_that_of_all_files_when_none_is_stored(
    make: Callable[[str], Target], caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    target = make(kind)
    target.write("id, CAST(id AS int) AS b")
    target.write("id, 'x' AS note")
    (target.folder / COLUMNS).unlink()
    caplog.clear()

    with pytest.raises(TargetSchemaError, match="'b' is string in the rows and int in the table"):
        target.stage("id, 'x' AS b")
    with pytest.raises(TargetSchemaError, match="'note' is int in the rows and string in the table"):
        target.stage("id, 1 AS note")

    assert "Not read: 0 of " in caplog.text
    target.write("id, 0.5D AS more")
    assert target.schema()["columns"] == {"id": "bigint", "note": "string", "b": "int", "more": "double"}
    caplog.clear()
    target.write("id, 0.5D AS more")
    assert "columns_not_remembered" not in caplog.text


def test_newest_hundred_files_are_read_when_there_are_more(
    make: Callable[[str], Target], caplog: pytest.LogCaptureFixture
) -> None:
    target = make("pyarrow")
    sink = target.sink()
    target.write(pa.table({"id": [1], "old": [1]}))
    for version in range(2, 103):
        sink.publish(staged_by(sink, batch(version), 1, pa.table({"id": [1], "b": [version]})))
    (target.folder / COLUMNS).unlink()
    caplog.clear()

    staged_by(sink, batch(103), 1, pa.table({"id": [1], "old": ["x"]}))
    with pytest.raises(TargetSchemaError, match="'b' is string"):
        staged_by(sink, batch(104), 1, pa.table({"id": [1], "b": ["x"]}))

    assert "Not read: 2 of 102" in caplog.text


def test_footer_is_read_when_it_is_longer_than_usual(make: Callable[[str], Target]) -> None:
    target = make("pyarrow")
    target.write(pa.table({f"a long name of column {number}": [number] for number in range(2_000)}))
    (target.folder / COLUMNS).unlink()

    with pytest.raises(TargetSchemaError, match="'a long name of column 7' is string in the rows and bigint"):
        target.stage(pa.table({"a long name of column 7": ["x"]}))


def test_file_is_counted_as_not_read_when_it_is_no_parquet(
    make: Callable[[str], Target], caplog: pytest.LogCaptureFixture
) -> None:
    target = make("pandas")
    target.write("id, 1 AS b")
    (target.folder / COLUMNS).unlink()
    target.sink().target.write(f"part-00000-{'0' * 32}-e1-0000000009.parquet", b"none")
    caplog.clear()

    with pytest.raises(TargetSchemaError, match="'b' is string"):
        target.stage("id, 'x' AS b")

    assert "Not read: 1 of 2" in caplog.text


@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS"])
def test_time_of_spark_is_a_time_with_zone_when_a_footer_tells_it(make: Callable[[str], Target], kind: str) -> None:
    target = make("parquet")
    target.spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
    try:
        target.write("id, timestamp'2026-11-23 10:00:00' AS at")
    finally:
        target.spark.conf.unset("spark.sql.parquet.outputTimestampType")
    (target.folder / COLUMNS).unlink()

    with pytest.raises(TargetSchemaError, match="'at' is timestamp_ntz in the rows and timestamp in the table"):
        target.stage(pd.DataFrame({"id": [1], "at": [datetime(2026, 11, 23)]}))

    target.write(pd.DataFrame({"id": [1], "at": [datetime(2026, 11, 23, tzinfo=timezone.utc)]}))
    assert target.read().count() == 3


@pytest.mark.parametrize(
    "found",
    [
        b"",
        b"[]",
        b"{",
        b'{"columns": {}, "attempt": null}',
        b'{"columns": []}',
        b'{"columns": {"id": 1}}',
        b'{"columns": {}, "options": 1}',
        b"[" * 99_999,
    ],
)
def test_schema_is_that_of_the_files_when_the_stored_one_is_damaged(
    make: Callable[[str], Target], found: bytes
) -> None:
    target = make("pandas")
    target.write("id, 1 AS b")
    (target.folder / COLUMNS).write_bytes(found)

    with pytest.raises(TargetSchemaError, match="'b' is string"):
        target.stage("id, 'x' AS b")
    target.write("id, 2 AS b")

    assert target.schema()["columns"] == {"id": "bigint", "b": "int"}


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_schema_is_understood_when_a_version_before_has_stored_it(make: Callable[[str], Target], kind: str) -> None:
    target = make(kind)
    inner = "named_struct('n', array(id)) AS inner" if kind == "json" else "0.5D AS inner"
    other = "named_struct('n', array('x')) AS inner" if kind == "json" else "'x' AS inner"
    target.write(f"id, {inner}")
    path = "inner.n[]" if kind == "json" else "inner"
    had = {"id": "bigint", path: "bigint" if kind == "json" else "double"}
    (target.folder / COLUMNS).write_text(json.dumps({"columns": had, "options": {}}))

    with pytest.raises(TargetSchemaError) as caught:
        target.stage(f"id, {other}")
    target.write(f"id, {inner}")

    assert list(caught.value.changed) == [path]
    assert had.items() <= target.schema()["columns"].items()


# --- several jobs, attempts and decisions ---------------------------------------------------------


@pytest.fixture(params=["directory", "bucket"])
def sink(request: pytest.FixtureRequest, tmp_path: Path, s3: Any, bucket: str) -> FileSink:
    return FileSink(str(tmp_path / "raw") if request.param == "directory" else f"s3://{bucket}/raw", s3_client=s3)


def columns_of(sink: FileSink) -> dict[str, str]:
    found: dict[str, str] = json.loads(sink.target.read(COLUMNS) or b"")["columns"]
    return found


@pytest.mark.parametrize("first", [True, False], ids=["new target", "target with files"])
def test_columns_of_both_are_stored_when_two_jobs_add_others_at_once(sink: FileSink, first: bool) -> None:
    if not first:
        sink.publish(staged_by(sink, batch(1, "a"), 1, pd.DataFrame({"id": [0]})))
    outputs = [
        staged_by(sink, batch(2, "a"), 1, pd.DataFrame({"id": [1], "a": [1]})),
        staged_by(sink, batch(2, "b"), 1, pd.DataFrame({"id": [2], "b": ["x"]})),
    ]

    for output in outputs:
        sink.publish(output)

    assert columns_of(sink) == {"id": "bigint", "a": "bigint", "b": "string"}
    with pytest.raises(TargetSchemaError, match="'a' is string"):
        staged_by(sink, batch(3, "b"), 1, pd.DataFrame({"id": [2], "a": ["x"]}))


def test_second_job_is_warned_and_the_first_continues_when_both_have_added_one_column(
    sink: FileSink, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    outputs = [
        staged_by(sink, batch(1, "a"), 1, pd.DataFrame({"id": [1], "x": [1]})),
        staged_by(sink, batch(1, "b"), 1, pd.DataFrame({"id": [2], "x": ["x"], "more": [1]})),
    ]
    sink.publish(outputs[0])
    before = caplog.text

    sink.publish(outputs[1])

    assert "schema_conflict" not in before
    assert "event=schema_conflict" in caplog.text
    assert "'x' is string in the rows and bigint in the table" in caplog.text
    assert columns_of(sink) == {"id": "bigint", "x": "bigint", "more": "bigint"}
    sink.publish(staged_by(sink, batch(2, "a"), 1, pd.DataFrame({"id": [1], "x": [1]})))
    with pytest.raises(TargetSchemaError, match="'x' is string"):
        staged_by(sink, batch(2, "b"), 1, pd.DataFrame({"id": [2], "x": ["x"]}))


def test_job_without_a_new_column_is_warned_when_another_one_has_replaced_all_columns_meanwhile(
    sink: FileSink, caplog: pytest.LogCaptureFixture
) -> None:
    for job in ("a", "b"):
        sink.publish(staged_by(sink, batch(1, job), 1, pd.DataFrame({"id": [1]})))
    late = staged_by(sink, batch(2, "a"), 1, pd.DataFrame({"id": [1]}))
    sink.target.delete(sink.visible())
    sink.publish(staged_by(sink, batch(2, "b"), 1, pd.DataFrame({"id": ["x"]})))
    caplog.clear()

    sink.publish(late)

    assert "event=schema_conflict" in caplog.text


def test_columns_of_the_first_job_stay_when_a_second_one_publishes_other_columns_of_csv(
    make: Callable[[str], Target], caplog: pytest.LogCaptureFixture
) -> None:
    target = make("csv")
    outputs = [target.stage("id, 'x' AS a"), target.stage("id, 'x' AS b")]

    for output in outputs:
        target.sink().publish(output)

    assert list(target.schema()["columns"]) == ["id", "a"]
    assert "the rows lack 'a'; the table lacks 'b'" in caplog.text


def test_second_job_is_refused_before_it_stages_when_the_first_has_published(sink: FileSink) -> None:
    sink.publish(staged_by(sink, batch(1, "a"), 1, pd.DataFrame({"id": [1], "x": [1]})))
    left = sink.staging.place.files()

    with pytest.raises(TargetSchemaError, match="'x' is string in the rows and bigint in the table"):
        staged_by(sink, batch(1, "b"), 1, pd.DataFrame({"id": [2], "x": ["x"]}))

    assert sink.staging.place.files() == left


def test_columns_of_an_attempt_are_forgotten_when_it_never_commits(sink: FileSink) -> None:
    sink.publish(staged_by(sink, batch(1), 1, pd.DataFrame({"id": [1]})))
    staged_by(sink, batch(2), 2, pd.DataFrame({"id": [1], "x": ["mistaken"]}))

    sink.publish(staged_by(sink, batch(2), 3, pd.DataFrame({"id": [1], "x": [1]})))

    assert columns_of(sink) == {"id": "bigint", "x": "bigint"}


def test_other_columns_and_types_are_taken_when_all_of_the_target_was_taken_back(sink: FileSink) -> None:
    output = staged_by(sink, batch(1), 1, pd.DataFrame({"id": [1], "x": [1]}))
    sink.publish(output)
    sink.target.delete(sink.published(output))
    outputs = [
        staged_by(sink, batch(2, "a"), 1, pd.DataFrame({"id": ["a"], "x": [1]})),
        staged_by(sink, batch(2, "b"), 1, pd.DataFrame({"id": ["b"], "y": [0.5]})),
    ]

    for output in [*outputs, *outputs]:
        sink.publish(output)

    assert columns_of(sink) == {"id": "string", "x": "bigint", "y": "double"}


def test_columns_of_both_are_stored_when_one_is_like_those_that_were_taken_back(sink: FileSink) -> None:
    output = staged_by(sink, batch(1), 1, pd.DataFrame({"id": [1], "x": [1]}))
    sink.publish(output)
    sink.target.delete(sink.published(output))
    outputs = [
        staged_by(sink, batch(2, "a"), 1, pd.DataFrame({"id": [1], "x": [1]})),
        staged_by(sink, batch(2, "b"), 1, pd.DataFrame({"id": [2], "y": [0.5]})),
    ]

    for output in outputs:
        sink.publish(output)

    assert columns_of(sink) == {"id": "bigint", "x": "bigint", "y": "double"}


def test_only_the_record_is_written_to_the_target_when_a_batch_has_no_new_column(own_s3: Any, bucket: str) -> None:
    """docs/cost.md lists these requests."""
    sink = FileSink(f"s3://{bucket}/raw", s3_client=own_s3)
    rows = pa.table({"id": [1]})
    sink.publish(staged_by(sink, batch(1), 1, rows))
    operations: list[str] = []
    own_s3.meta.events.register("before-call.s3", lambda model, **_: operations.append(model.name))

    output = staged_by(sink, batch(2), 1, rows)
    assert operations == ["ListObjectsV2", "GetObject", "PutObject", "PutObject"]
    operations.clear()
    sink.publish(output)

    assert operations == ["PutObject", "CopyObject"]


def test_schema_counts_when_files_of_others_fill_the_first_thousand_names(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path / "raw"), beside_others=True)
    sink.publish(staged_by(sink, batch(1), 1, pd.DataFrame({"id": [1]})))
    for number in range(1_001):
        (tmp_path / "raw" / f"a{number}.parquet").touch()

    with pytest.raises(TargetSchemaError, match="'id' is string"):
        staged_by(sink, batch(2), 1, pd.DataFrame({"id": ["x"]}))


def test_column_of_pyarrow_is_refused_when_the_batch_folder_would_hide_it(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path / "raw"), batch_folders=True)

    with pytest.raises(InvalidValueError, check=because("reserved_name"), match="'batch_id' is a reserved name"):
        staged_by(sink, batch(1), 1, pa.table({"id": [1], "Batch_Id": ["x"]}))


def test_no_change_is_lost_when_many_update_one_file_at_once(tmp_path: Path) -> None:
    place = FileSink(str(tmp_path / "raw")).target

    def add(_: int) -> None:
        place.update("_count", lambda found: str(int(found or b"0") + 1).encode())

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, range(400)))

    assert place.read("_count") == b"400"
