"""Files whose columns change between batches, read with real Spark: nothing is lost or retyped silently."""

from __future__ import annotations

import bz2
import hashlib
import json
import logging
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from scripts.helpers.errors import (
    InvalidValueError,
    MisfitError,
    SchemaChangedError,
    SourceError,
    UnreadableFilesError,
)
from scripts.helpers.job import IncrementalJob
from scripts.helpers.listing.paths import suffix
from scripts.helpers.reading.headers import HEAD
from scripts.helpers.schemas.kept import shown_schemas, with_schema
from scripts.helpers.watermarks import Watermarks
from tests.support.files_states import set_aside_of

HEADER: dict[str, Any] = {"header": True, "inferSchema": True}


class Nights:
    """Runs of one job over a local folder. Each reads the files that came since the last run."""

    def __init__(self, folder: Path, watermarks: Watermarks, spark: Any) -> None:
        self.folder, self.watermarks, self.spark = folder / "landing", watermarks, spark
        self.target = folder / "raw"
        self.options: dict[str, Any] = {}
        self.source, self.way = "new_files", "read"
        self.folder.mkdir()

    def put(self, name: str, *rows: Any) -> None:
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text("\n".join(lines) + "\n")

    def put_parquet(self, name: str, kind: pa.DataType, /, **row: Any) -> None:
        """Write a file with one row, whose `id` has a type of its own."""
        columns = {column: pa.array([value], kind if column == "id" else None) for column, value in row.items()}
        pq.write_table(pa.table(columns), self.folder / name)

    def remember(self, name: str, /, **columns: Any) -> None:
        """Commit a file and the columns of its format, as a run does that reads it with Spark.

        The types are named as in Spark's JSON. Tests use it when the first batch is not what they are about.
        """
        self.put(name, "")
        with IncrementalJob(self.watermarks, "parking") as job:
            self.delta(job)
        state = with_schema(self.state, name.rpartition(".")[2], columns)
        self.watermarks.set_watermark("parking", {"files": state}, why="the columns of the first batch")

    def run(self, format: str, **options: Any) -> list[dict[str, Any]]:
        with IncrementalJob(self.watermarks, "parking", spark=self.spark) as job:
            delta = self.delta(job)
            frame = getattr(delta, self.way)(self.spark, format, **options)
            job.freeze()
            return [row.asDict() for row in frame.collect()]

    def write(self, format: str, **options: Any) -> None:
        with IncrementalJob(self.watermarks, "parking", spark=self.spark) as job:
            delta = self.delta(job)
            job.write(getattr(delta, self.way)(self.spark, format, **options), str(self.target))

    def delta(self, job: IncrementalJob) -> Any:
        options: dict[str, Any] = {"transformation_ctx": "files", **self.options}
        if self.source == "new_partitions":
            options["columns"] = "day"
        if self.source == "new_files_on_spark":
            options["ledger_uri"] = f"file://{self.folder.parent}/ledger/"
        return getattr(job, self.source)(f"file://{self.folder}/", **options)

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.watermarks.get_watermark_values("parking")["files"]
        return found

    @property
    def kept(self) -> dict[str, dict[str, str]]:
        return shown_schemas(self.state)


@pytest.fixture
def nights(tmp_path: Path, watermarks: Watermarks, spark: Any) -> Nights:
    return Nights(tmp_path, watermarks, spark)


@pytest.fixture
def small(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> Nights:
    """Return runs whose executors fetch the files, as `read_small` does."""
    monkeypatch.setattr(nights.spark.sparkContext, "pythonExec", sys.executable)
    nights.way = "read_small"
    return nights


def by(rows: list[dict[str, Any]], name: str = "id") -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(row[name]))


# --- types are kept ---------------------------------------------------------------------------------------------


def test_types_of_the_first_batch_are_kept_when_later_csv_would_be_read_otherwise(nights: Nights) -> None:
    nights.put("1.csv", "id,zip", "1,E8")
    first = nights.run("csv", **HEADER)
    nights.put("2.csv", "id,zip", "2,01234")

    second = nights.run("csv", **HEADER)

    assert first == [{"id": 1, "zip": "E8"}]
    assert second == [{"id": 2, "zip": "01234"}]
    assert nights.kept == {"csv": {"id": "int", "zip": "string"}}


def test_numbers_stay_texts_when_the_first_json_had_texts(nights: Nights) -> None:
    nights.remember("1.json", id="long", bay="string")
    nights.put("2.json", {"id": 2, "bay": 7})

    assert nights.run("json") == [{"bay": "7", "id": 2}]


def test_null_batch_keeps_its_type_when_nothing_can_be_inferred(nights: Nights) -> None:
    nights.remember("1.json", id="long")
    nights.put("2.json", {"id": None})

    assert nights.run("json", on_schema_change="raise") == [{"id": None}]
    assert nights.kept == {"json": {"id": "bigint"}}


def test_wider_type_is_read_and_kept_when_csv_has_larger_numbers(nights: Nights) -> None:
    nights.remember("1.csv", id="integer")
    nights.put("2.csv", "id", "30000000000")

    assert nights.run("csv", **HEADER) == [{"id": 30_000_000_000}]
    assert nights.kept == {"csv": {"id": "bigint"}}


def test_types_are_inferred_anew_when_changes_are_accepted(nights: Nights) -> None:
    nights.remember("1.csv", id="integer", zip="string")
    nights.put("2.csv", "zip", "1234")

    assert nights.run("csv", **HEADER, on_schema_change="take") == [{"zip": 1234}]
    assert nights.kept == {"csv": {"zip": "int"}}


# --- new and missing columns ---------------------------------------------------------------------------------------


def test_new_column_is_read_and_a_gone_one_is_null_when_nothing_was_asked_for(nights: Nights) -> None:
    nights.put("1.json", {"id": 1, "bay": "A"})
    nights.run("json")
    nights.put("2.json", {"id": 2, "colour": "red"})

    second = nights.run("json")

    assert second == [{"bay": None, "id": 2, "colour": "red"}]
    assert nights.kept == {"json": {"bay": "string", "id": "bigint", "colour": "string"}}


@pytest.mark.parametrize(
    ("format", "body"),
    [("csv", "id,colour,bay\n2,red,B"), ("json", '{"id": 2, "colour": "red", "bay": "B"}')],
)
def test_new_column_is_left_out_with_its_name_and_count_when_changes_are_reported(
    nights: Nights, caplog: pytest.LogCaptureFixture, format: str, body: str
) -> None:
    options = HEADER if format == "csv" else {}
    nights.remember(f"1.{format}", id="integer" if format == "csv" else "long", bay="string")
    nights.put(f"2.{format}", body)

    with caplog.at_level(logging.WARNING):
        second = nights.run(format, **options, on_schema_change="warn")
    newest = nights.watermarks.history("parking")[0]

    assert second == [{"id": 2, "bay": "B"}]
    assert "columns=1 left_out=1: 'colour' is new (string). Left out: colour" in caplog.text
    assert newest.change.metrics["columns_left_out"] == {"files": {"count": 1, "names": ["colour"]}}
    assert set(nights.kept[format]) == {"id", "bay"}


def test_inner_field_is_named_when_it_is_left_out_of_a_struct(nights: Nights, caplog: pytest.LogCaptureFixture) -> None:
    street = {"name": "street", "type": "string", "nullable": True, "metadata": {}}
    nights.remember("1.json", at={"type": "struct", "fields": [street]}, id="long")
    nights.put("2.json", {"id": 2, "at": {"street": "Mare Street", "zip": "E8"}})

    second = nights.run("json", on_schema_change="warn")

    assert second[0]["at"].asDict() == {"street": "Mare Street"}
    assert "left_out=1" in caplog.text and "Left out: at.zip" in caplog.text


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("id,bay,colour\n2,B,red", "'colour' is new (string)"),
        ("id\n2", "'bay' is gone (it was string)"),
        ("id,bay\n30000000000,B", "'id' was int and is bigint"),
        ("id,bay\n2.5,B", "'id' was int and is double"),
    ],
)
def test_run_stops_before_it_reads_when_changes_are_refused(nights: Nights, header: str, message: str) -> None:
    nights.remember("1.csv", id="integer", bay="string")
    before = nights.state
    nights.put("2.csv", header)

    with pytest.raises(SchemaChangedError) as caught:
        nights.run("csv", **HEADER, on_schema_change="raise")

    assert message in str(caught.value)
    assert "on_schema_change='add'" in str(caught.value) and "'take'" in str(caught.value)
    assert (caught.value.context, nights.state) == ("files", before)


def test_run_ends_with_a_misfit_when_changes_are_refused_and_a_number_is_text_by_now(nights: Nights) -> None:
    """An inferred text column may also be one without values, so the values decide."""
    nights.remember("1.csv", id="integer", bay="string")
    before = nights.state
    nights.put("2.csv", "id,bay", "q,B")

    with pytest.raises(MisfitError, match="column 'id' has a value that is not of type int"):
        nights.run("csv", **HEADER, on_schema_change="raise")

    assert nights.state == before


# --- CSV by its headers -----------------------------------------------------------------------------------------------


def test_columns_of_csv_are_matched_by_header_when_files_of_one_batch_differ(nights: Nights) -> None:
    nights.put("1.csv", "id,bay,hours", "1,A,5")
    nights.put("2.csv", "hours,id,colour", "6,2,red")

    rows = by(nights.run("csv", **HEADER))

    assert rows == [
        {"id": 1, "bay": "A", "hours": 5, "colour": None},
        {"id": 2, "bay": None, "hours": 6, "colour": "red"},
    ]


def test_columns_of_csv_are_matched_by_header_when_a_schema_is_given(nights: Nights) -> None:
    nights.put("1.csv", "bay,id", "A,1")
    nights.put("2.csv", "id,bay", "2,B")

    rows = by(nights.run("csv", schema="id int, bay string", header=True))

    assert rows == [{"id": 1, "bay": "A"}, {"id": 2, "bay": "B"}]


def test_columns_of_csv_are_matched_by_header_when_files_are_compressed_on_s3(
    s3: Any, bucket: str, watermarks: Watermarks, spark: Any
) -> None:
    import gzip

    for key, body in (("1.csv.gz", "id,bay\n1,A\n"), ("2.csv.gz", "bay,id\nB,2\n"), ("3.csv", "")):
        data = gzip.compress(body.encode()) if key.endswith("gz") else body.encode()
        s3.put_object(Bucket=bucket, Key=f"landing/{key}", Body=data)

    with IncrementalJob(watermarks, "parking", s3_client=s3) as job:
        frame = job.new_files(f"s3://{bucket}/landing/").read(spark, "csv", **HEADER)
        rows = [row.asDict() for row in frame.collect()]

    assert by(rows) == [{"id": 1, "bay": "A"}, {"id": 2, "bay": "B"}]


def test_schema_is_in_force_when_it_is_given_and_changes_are_accepted(nights: Nights) -> None:
    nights.put("1.csv", "id,bay", "1,A")

    rows = nights.run("csv", schema="id int, bay string", header=True, on_schema_change="take")

    assert rows == [{"id": 1, "bay": "A"}]


def test_columns_are_matched_or_the_run_stops_when_csv_is_packed_as_a_whole(nights: Nights) -> None:
    lines = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(3_000)]
    for name, body in (("1", b"id,bay\n1,A\n"), ("2", b"bay,id\nB,2\n")):
        (nights.folder / f"{name}.csv.bz2").write_bytes(bz2.compress(body))
    rows = by(nights.run("csv", header=True))
    long = bz2.compress("\n".join(["bay,id", *(f"{line},3" for line in lines)]).encode())
    (nights.folder / "3.csv.bz2").write_bytes(bz2.compress(b"id,bay\n1,A\n"))
    (nights.folder / "4.csv.bz2").write_bytes(long)

    with pytest.raises(Exception, match="CSV header does not conform to the schema"):
        nights.run("csv", header=True)

    assert rows == [{"id": "1", "bay": "A"}, {"id": "2", "bay": "B"}]
    assert len(long) > HEAD


def test_columns_go_by_position_when_spark_is_asked_to_enforce_the_schema(nights: Nights) -> None:
    nights.put("1.csv", "a,b", "1,A")
    options = {"schema": "id int, bay string", "header": True}

    with pytest.raises(InvalidValueError, match=r"has none of these: it has a, b\..*enforceSchema=True"):
        nights.run("csv", **options)

    assert nights.run("csv", **options, enforceSchema=True) == [{"id": 1, "bay": "A"}]


@pytest.mark.parametrize("way", ["read", "read_small"])
def test_invalid_date_is_rescued_when_the_session_sets_nothing_about_times(nights: Nights, way: str) -> None:
    nights.put("1.csv", "1,2024-02-29,2024-02-29 10:00:00", "2,2024-02-30,2024-02-30 10:00:00", "3,0000-00-00,")
    nights.spark, nights.way = nights.spark.newSession(), way

    rows = nights.run("csv", schema="id INT, day DATE, at TIMESTAMP", rescue=True)

    assert [row["_rescued"] and json.loads(row["_rescued"]) for row in by(rows)] == [
        None, {"day": "2024-02-30", "at": "2024-02-30 10:00:00"}, {"day": "0000-00-00"},
    ]  # fmt: skip


# --- values that do not fit -----------------------------------------------------------------------------------------


WITH_HEADER: dict[str, dict[str, Any]] = {"csv": {"header": True}, "json": {}}
KEPT = {
    "csv": {"id": "integer", "when": "date", "bay": "string"},
    "json": {"bay": "string", "id": "long", "when": "boolean"},
}
"""The columns of the first batch of `BAD`."""
BAD = {
    "csv": ("id,when,bay\n1,2026-11-24,A", "id,when,bay\n2,2026-11-24,B\nx7,2026-11-24,C\n3,no,D"),
    "json": (
        '{"id": 1, "when": true, "bay": "A"}',
        '{"id": 2, "when": true, "bay":"B"}\n{"id": "x7", "when": true, "bay":"C"}\n{"id": 3, "when": "no", "bay":"D"}',
    ),
}
"""Two batches. The second has text in a column of numbers and in a column of dates or booleans."""


@pytest.mark.parametrize("format", ["csv", "json"])
def test_values_that_do_not_fit_are_rescued_when_asked_for(nights: Nights, format: str) -> None:
    options = HEADER if format == "csv" else {}
    nights.remember(f"1.{format}", **KEPT[format])
    nights.put(f"2.{format}", BAD[format][1])

    rows = sorted(nights.run(format, **options, rescue=True), key=lambda row: str(row["bay"]))

    assert [(row["bay"], row["id"], row["_rescued"]) for row in rows] == [
        ("B", 2, None),
        ("C", None, '{"id":"x7"}'),
        ("D", 3, '{"when":"no"}'),
    ]
    assert [row["when"] is None for row in rows] == [False, False, True]


@pytest.mark.parametrize("format", ["csv", "json"])
def test_values_that_do_not_fit_stop_the_run_when_none_is_rescued(nights: Nights, format: str) -> None:
    options = HEADER if format == "csv" else {}
    nights.remember(f"1.{format}", **KEPT[format])
    nights.put(f"2.{format}", BAD[format][1])

    with pytest.raises(MisfitError) as caught:
        nights.write(format, **options)

    assert caught.value.column in ("id", "when")
    assert "rescue=True" in str(caught.value) and "x7" not in str(caught.value)
    assert list(nights.target.glob("*.parquet")) == []


def test_run_ends_with_a_misfit_when_an_action_of_its_own_meets_a_value_that_does_not_fit(nights: Nights) -> None:
    nights.put("1.json", {"id": 1}, {"id": "x7"})

    with pytest.raises(MisfitError, match="column 'id'"):
        nights.run("json", schema="id BIGINT")


def test_file_with_a_value_that_does_not_fit_is_set_aside_when_bad_files_are(nights: Nights) -> None:
    nights.put("1.csv", "id", "1")
    nights.put("2.csv", "id", "x")
    nights.options = {"on_unreadable": "set_aside"}

    with pytest.raises(UnreadableFilesError, match="column 'id' has a value that is not of type int"):
        nights.write("csv", schema="id int", header=True)
    nights.write("csv", schema="id int", header=True)

    assert pd.read_parquet(nights.target)["id"].tolist() == [1]
    assert list(set_aside_of(nights.state)) == ["2.csv"]


@pytest.mark.parametrize(
    ("format", "record"), [("csv", "9,2026-11-24,E,more"), ("json", '{"id": 9, "when'), ("csv", "9")]
)
def test_record_is_rescued_as_it_is_when_it_cannot_be_parsed(nights: Nights, format: str, record: str) -> None:
    options: dict[str, Any] = {"schema": "id int, when string, bay string", **WITH_HEADER[format]}
    nights.put(f"1.{format}", BAD[format][0], record)

    rows = nights.run(format, **options, rescue="lost")

    assert [json.loads(row["lost"]) for row in rows if row["lost"]] == [{"_corrupt_record": record}]
    with (
        pytest.raises(MisfitError, match="a record cannot be parsed"),
        IncrementalJob(nights.watermarks, "other") as job,
    ):
        delta = job.new_files(f"file://{nights.folder}/")
        job.write(delta.read(nights.spark, format, **options), str(nights.folder.parent / "raw"))


def test_run_stops_when_a_record_cannot_be_parsed_and_columns_are_inferred(nights: Nights) -> None:
    nights.put("1.json", {"id": 1}, '{"id": 9, "when')

    with pytest.raises(MisfitError) as caught:
        nights.run("json")

    assert (caught.value.source, caught.value.column) == (f"file://{nights.folder}/", None)
    assert "a record cannot be parsed. Spark would make it NULL." in str(caught.value)


def test_inner_values_are_rescued_when_a_part_of_a_struct_does_not_fit(nights: Nights) -> None:
    nights.put("1.json", {"id": 1, "at": {"no": "x"}}, {"id": 2, "at": {"no": 5}})

    rows = by(nights.run("json", schema="id int, at struct<no:int>", rescue=True))

    assert [json.loads(row["_rescued"] or "{}") for row in rows] == [{"at": '{"no":"x"}'}, {}]


def test_spark_decides_what_becomes_of_values_when_a_mode_is_given(nights: Nights) -> None:
    nights.put("1.csv", "id", "x")

    assert nights.run("csv", schema="id int", header=True, mode="PERMISSIVE") == [{"id": None}]


def test_left_out_columns_are_rescued_when_changes_are_reported(nights: Nights) -> None:
    nights.remember("1.csv", id="integer", bay="string")
    nights.put("2.csv", "colour,id,bay", "red,2,B", "blue,x,C")

    rows = nights.run("csv", **HEADER, on_schema_change="warn", rescue=True)

    assert [(row["bay"], row["id"], json.loads(row["_rescued"])) for row in rows] == [
        ("B", 2, {"colour": "red"}),
        ("C", None, {"colour": "blue", "id": "x"}),
    ]


# --- formats with types of their own --------------------------------------------------------------------------------


def test_columns_of_all_parquet_files_are_read_when_changes_are_to_be_added(nights: Nights) -> None:
    nights.remember("1.parquet", id="integer", bay="string")
    nights.put_parquet("2.parquet", pa.int32(), id=2, bay="B")
    nights.put_parquet("4.parquet", pa.int32(), id=4, colour="red")

    second = by(nights.run("parquet", on_schema_change="add"))
    # Spark's reader cannot merge int and bigint columns, so the file with the bigint comes in a batch of its own.
    nights.put_parquet("3.parquet", pa.int64(), id=3, colour="red")
    third = nights.run("parquet", on_schema_change="add")

    assert second == [{"id": 2, "bay": "B", "colour": None}, {"id": 4, "bay": None, "colour": "red"}]
    assert third == [{"id": 3, "bay": None, "colour": "red"}]
    assert nights.kept == {"parquet": {"id": "bigint", "bay": "string", "colour": "string"}}


def test_parquet_is_read_as_it_is_with_a_warning_when_nothing_was_asked_for(
    nights: Nights, caplog: pytest.LogCaptureFixture
) -> None:
    nights.remember("1.parquet", id="integer", bay="string")
    nights.put_parquet("2.parquet", pa.float64(), id=2.5, colour="red")

    assert nights.run("parquet") == [{"id": 2.5, "colour": "red"}]
    assert "'id' was int and is double" in caplog.text and "'bay' is gone" in caplog.text
    assert nights.kept == {"parquet": {"id": "double", "colour": "string"}}


def test_times_are_rescued_to_the_microsecond_when_their_column_is_left_out(nights: Nights) -> None:
    nights.remember("1.parquet", id="integer")
    at = datetime(2026, 3, 16, 12, 0, 0, 123_456, timezone.utc)
    nights.put_parquet("2.parquet", pa.int32(), id=2, at=at)

    (row,) = nights.run("parquet", on_schema_change="warn", rescue=True)

    assert datetime.fromisoformat(json.loads(row["_rescued"])["at"]) == at


@pytest.mark.parametrize("policy", ["add", "warn", "raise"])
def test_type_of_parquet_stops_the_run_or_is_rescued_when_it_does_not_fit(nights: Nights, policy: Any) -> None:
    nights.remember("1.parquet", id="integer", bay="string")
    nights.put_parquet("2.parquet", pa.string(), id="x", bay="B")

    with pytest.raises(SchemaChangedError, match="'id' was int and is string"):
        nights.run("parquet", on_schema_change=policy)

    assert nights.run("parquet", on_schema_change=policy, rescue=True) == [
        {"id": None, "bay": "B", "_rescued": '{"id":"x"}'}
    ]


@pytest.mark.parametrize("way", ["read", "read_small"])
def test_refused_files_come_in_the_next_run_when_the_script_goes_on_without_them(nights: Nights, way: str) -> None:
    nights.remember("1.json", id="integer")
    nights.put("2.json", {"id": 2, "colour": "red"})
    nights.way = way

    with pytest.raises(SchemaChangedError), IncrementalJob(nights.watermarks, "parking", spark=nights.spark) as job:
        delta = nights.delta(job)
        with pytest.raises(SchemaChangedError):
            getattr(delta, way)(nights.spark, "json", on_schema_change="raise")

    assert nights.run("json", on_schema_change="take") == [{"colour": "red", "id": 2}]


OTHER_TYPES = {"narrower": (pa.array([2], pa.int32()), 2, None), "text": (pa.array(["x"]), None, '{"n":"x"}')}


@pytest.mark.parametrize(("values", "read", "rescued"), OTHER_TYPES.values(), ids=OTHER_TYPES)
@pytest.mark.parametrize(("format", "write"), [
    pytest.param("parquet", pq.write_table, id="parquet"), pytest.param("orc", orc.write_table, id="orc"),
])  # fmt: skip
def test_file_of_another_type_is_read_and_not_set_aside_when_the_first_attempt_died(
    nights: Nights, format: str, write: Any, values: pa.Array, read: int | None, rescued: str | None
) -> None:
    nights.options = {"on_unreadable": "set_aside"}
    nights.remember(f"1.{format}", n="long")
    write(pa.table({"n": values}), str(nights.folder / f"2.{format}"))
    with pytest.raises(RuntimeError), IncrementalJob(nights.watermarks, "parking") as job:
        nights.delta(job)
        job.freeze()
        raise RuntimeError

    assert nights.run(format, on_schema_change="add", rescue=True) == [{"n": read, "_rescued": rescued}]
    assert set_aside_of(nights.state) == {}


# --- many small files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["csv", "json"])
def test_values_of_small_files_stop_the_run_when_they_do_not_fit(small: Nights, format: str) -> None:
    small.put(f"1.{format}", BAD[format][0])
    small.put(f"2.{format}", BAD[format][1])

    with pytest.raises(MisfitError) as caught:
        small.write(format, schema="id int, when string, bay string", **WITH_HEADER[format])

    assert (caught.value.column, caught.value.type_name) == ("id", "int")
    assert list(small.target.glob("*.parquet")) == []


@pytest.mark.parametrize("format", ["csv", "json"])
def test_values_of_small_files_are_rescued_when_asked_for(small: Nights, format: str) -> None:
    schema = "id int, when date, bay string" if format == "csv" else "id int, when boolean, bay string"
    options: dict[str, Any] = {"schema": schema, "rescue": True, **WITH_HEADER[format]}
    small.put(f"2.{format}", BAD[format][1])

    rows = by(small.run(format, **options), "bay")

    assert [(row["bay"], row["id"], row["_rescued"]) for row in rows] == [
        ("B", 2, None),
        ("C", None, '{"id":"x7"}'),
        ("D", 3, '{"when":"no"}'),
    ]
    assert list(small.kept[format]) == ["id", "when", "bay"]


@pytest.mark.parametrize(
    ("format", "bodies"),
    [
        ("csv", ("id,zip\n1,E8", "colour,zip,id\nred,01234,2")),
        ("json", ('{"id": 1, "zip": "E8"}', '{"colour": "red", "zip": 1234, "id": 2}')),
    ],
)
def test_small_files_are_read_by_the_kept_schema_when_no_other_is_given(
    small: Nights, format: str, bodies: tuple[str, str]
) -> None:
    options = HEADER if format == "csv" else {}
    small.put(f"day=1/1.{format}", bodies[0])
    first = small.run(format, **options)
    small.put(f"day=2/2.{format}", bodies[1])

    with pytest.raises(SchemaChangedError, match="'colour' is new"):
        small.run(format, **options, on_schema_change="raise")
    second = small.run(format, **options, on_schema_change="warn")

    number, text = ("int", "01234") if format == "csv" else ("bigint", "1234")
    assert first == [{"id": 1, "zip": "E8", "day": "1"}]
    assert second == [{"id": 2, "zip": text, "day": "2"}]
    assert small.kept == {format: {"id": number, "zip": "string", "day": "string"}}


def test_small_csv_is_matched_by_header_when_files_of_one_batch_differ(small: Nights) -> None:
    small.put("1.csv", "id,bay", "1,A")
    small.put("2.csv", "bay,hours,id", "B,6,2")
    (small.folder / "3.csv").touch()
    (small.folder / "4.csv.bz2").write_bytes(bz2.compress(b"bay,id\nC,3\n"))

    rows = by(small.run("csv", header=True, schema="id int, bay string", on_schema_change="add", path_column="file"))

    assert [(row["id"], row["bay"], row["hours"], row["file"][-9:]) for row in rows] == [
        (1, "A", None, "ing/1.csv"),
        (2, "B", "6", "ing/2.csv"),
        (3, "C", None, "4.csv.bz2"),
    ]


@pytest.mark.parametrize("mode", [{}, {"mode": "PERMISSIVE"}, {"on_schema_change": "take"}])
def test_small_csv_has_no_rows_when_all_files_are_empty(small: Nights, mode: dict[str, Any]) -> None:
    (small.folder / "1.csv").touch()

    assert small.run("csv", header=True, **mode) == []


def test_small_file_is_set_aside_when_a_value_does_not_fit(small: Nights) -> None:
    small.put("1.json", {"id": 1})
    small.put("2.json", {"id": "x"})
    small.options = {"on_unreadable": "set_aside"}

    with pytest.raises(UnreadableFilesError, match="column 'id' has a value that is not of type int"):
        small.write("json", schema="id int")
    small.write("json", schema="id int")

    assert pd.read_parquet(small.target)["id"].tolist() == [1]
    assert list(set_aside_of(small.state)) == ["2.json"]


def test_folder_of_small_files_stops_the_run_when_its_value_does_not_fit(small: Nights) -> None:
    small.put("day=x/1.json", {"id": 1})

    with pytest.raises(SourceError, match=r"'day' is not of type int"):
        small.write("json", schema="id int, day int")


def test_small_file_that_was_overwritten_is_left_out_when_its_header_is_asked_for(small: Nights) -> None:
    small.put("1.csv", "id", "1")
    small.put("2.csv", "id", "2")

    with IncrementalJob(small.watermarks, "parking") as job:
        delta = job.new_files(f"file://{small.folder}/", transformation_ctx="files", on_changed=None)
        small.put("2.csv", "id", "20", "30")
        frame = delta.read_small(small.spark, "csv", "id int", header=True, on_changed="skip")
        rows = [tuple(row) for row in frame.collect()]

    assert rows == [(1,)]


# --- partitions, and files that executors find ------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["new_partitions", "new_files_on_spark"])
def test_schema_is_kept_and_compared_when_files_come_by_other_ways(
    nights: Nights, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr(nights.spark.sparkContext, "pythonExec", sys.executable)
    nights.source = source
    nights.put("day=a/1.json", {"id": 1, "bay": "A"})
    first = nights.run("json")
    nights.put("day=07/2.json", {"id": 2, "bay": 7, "colour": "red"}, {"id": "x7"})

    with pytest.raises(SchemaChangedError, match="'colour' is new"):
        nights.run("json", on_schema_change="raise")
    with pytest.raises(MisfitError, match="column 'id' has a value that is not of type bigint"):
        nights.write("json", on_schema_change="warn")
    second = by(nights.run("json", on_schema_change="warn", rescue=True))
    nothing = nights.run("json")

    assert first == [{"bay": "A", "id": 1, "day": "a"}]
    assert second == [
        {"bay": "7", "id": 2, "day": "07", "_rescued": '{"colour":"red"}'},
        {"bay": None, "id": None, "day": "07", "_rescued": '{"id":"x7"}'},
    ]
    assert nothing == []
    assert nights.kept == {"json": {"bay": "string", "id": "bigint", "day": "string"}}


def test_folders_are_columns_of_partitions_when_a_schema_without_them_is_given(nights: Nights) -> None:
    nights.source, nights.options = "new_partitions", {"types": {"day": "int"}}
    nights.put("day=1/area=E8/1.csv", "bay,id", "A,1")

    rows = nights.run("csv", schema="id int, bay string, AREA string", header=True)

    assert rows == [{"id": 1, "bay": "A", "day": 1, "area": "E8"}]
    assert list(nights.kept["csv"]) == ["id", "bay", "day", "area"]


def test_values_stop_the_run_when_small_files_that_executors_found_do_not_fit(small: Nights) -> None:
    small.source = "new_files_on_spark"
    (small.folder / "0.csv").touch()
    small.put("1.csv", "bay,id", "A,1")
    small.put("2.csv", "bay,id", "B,x")

    with pytest.raises(MisfitError, match="column 'id' has a value that is not of type int"):
        small.write("csv", schema="id int, bay string", header=True)
    rows = by(small.run("csv", schema="id int, bay string", header=True, rescue=True), "bay")

    assert rows == [
        {"id": 1, "bay": "A", "_rescued": None},
        {"id": None, "bay": "B", "_rescued": '{"id":"x"}'},
    ]
    assert small.kept == {"csv": {"id": "int", "bay": "string"}}


def test_small_files_that_executors_found_are_refused_when_their_headers_differ(small: Nights) -> None:
    small.source = "new_files_on_spark"
    small.put("1.csv", "bay,id", "A,1")
    small.put("2.csv", "id,bay", "2,B")

    with pytest.raises(SourceError, match=r"key '2.csv' has another header than the first file"):
        small.write("csv", schema="id int, bay string", header=True)
    with pytest.raises(InvalidValueError, match=r"on_schema_change is 'add', and nothing looks for new columns"):
        small.run("csv", schema="id int, bay string", header=True, on_schema_change="add")


def test_schema_is_not_kept_with_a_warning_when_files_are_read_after_the_job(
    nights: Nights, caplog: pytest.LogCaptureFixture
) -> None:
    nights.put("1.json", {"id": 1})
    with IncrementalJob(nights.watermarks, "parking") as job:
        delta = nights.delta(job)

    frame = delta.read(nights.spark, "json")

    assert frame.columns == ["id"]
    assert "event=schema_not_kept job=parking context=files of=json: the run has ended" in caplog.text
    assert nights.kept == {}


# --- what is remembered ----------------------------------------------------------------------------------------------


def test_each_version_has_its_schema_when_columns_changed(nights: Nights) -> None:
    for number, row in enumerate([{"id": 1}, {"id": 2, "bay": "A"}]):
        nights.put(f"{number}.json", row)
        with IncrementalJob(nights.watermarks, "parking") as job:
            nights.delta(job).read(nights.spark, "json")

    newest, oldest = nights.watermarks.history("parking")

    assert shown_schemas(oldest.watermarks["files"]) == {"json": {"id": "bigint"}}
    assert shown_schemas(newest.watermarks["files"]) == {"json": {"id": "bigint", "bay": "string"}}


def test_schema_stays_when_a_batch_has_no_files_or_is_not_read(nights: Nights) -> None:
    nights.remember("1.json", id="long")
    before = nights.kept

    nothing = nights.run("json")
    nights.put("2.json", {"id": 2, "bay": "A"})
    with IncrementalJob(nights.watermarks, "parking") as job:
        job.new_files(f"file://{nights.folder}/", transformation_ctx="files")

    assert nothing == []
    assert nights.kept == before == {"json": {"id": "bigint"}}


def test_replay_reads_the_same_columns_when_the_first_attempt_died(nights: Nights) -> None:
    nights.remember("1.json", id="long")
    nights.put("2.json", {"id": 2, "bay": "A"})

    with pytest.raises(RuntimeError), IncrementalJob(nights.watermarks, "parking") as job:
        job.new_files(f"file://{nights.folder}/", transformation_ctx="files").read(nights.spark, "json")
        job.freeze()
        raise RuntimeError
    nights.put("3.json", {"id": 3, "colour": "red"})
    replayed = nights.run("json")

    assert replayed == [{"id": 2, "bay": "A"}]
    assert nights.kept == {"json": {"id": "bigint", "bay": "string"}}


def test_each_part_keeps_a_schema_of_its_own_when_a_delta_is_split(nights: Nights) -> None:
    nights.put("1.json", {"id": 1})
    nights.put("2.csv", "hours", "5")

    with IncrementalJob(nights.watermarks, "parking") as job:
        delta = job.new_files(f"file://{nights.folder}/", transformation_ctx="files")
        parts = delta.split(suffix)
        parts["json"].read(nights.spark, "json")
        parts["csv"].read(nights.spark, "csv", **HEADER)

    assert nights.kept == {"csv": {"hours": "int"}, "json": {"id": "bigint"}}


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "options", "message"),
    [
        ("json", {"on_schema_change": "append"}, "Option 'on_schema_change': 'append' is unknown"),
        ("json", {"on_schema_change": True}, "Option 'on_schema_change': True is unknown"),
        ("json", {"rescue": ""}, "rescue is ''"),
        ("json", {"rescue": 1}, "rescue is 1"),
        ("json", {"rescue": True, "mode": "FAILFAST"}, "rescue does not go with mode"),
        ("csv", {"rescue": True, "columnNameOfCorruptRecord": "bad"}, "rescue does not go with mode"),
        ("json", {"rescue": "ID"}, "rescue is 'ID', and the source has a column of that name"),
        ("json", {"rescue": "file", "path_column": "file"}, "rescue and path_column are both 'file'"),
        ("csv", {"on_schema_change": "add", "schema": "id int"}, "CSV without a header has no names"),
        ("parquet", {"on_schema_change": "add", "schema": "id int"}, "columns of parquet have their types in"),
    ],
)
def test_read_is_refused_when_options_are_wrong(
    nights: Nights, format: str, options: dict[str, Any], message: str
) -> None:
    nights.put("1.json", {"id": 1})

    with pytest.raises(InvalidValueError, match=message):
        nights.run(format, **options)


@pytest.mark.parametrize("way", ["read", "read_small"])
@pytest.mark.parametrize("policy", [None, "warn"])
def test_run_stops_when_a_file_has_no_column_of_earlier_batches(nights: Nights, way: str, policy: Any) -> None:
    nights.way = way
    nights.remember("1.csv", id="integer", name="string")
    nights.put("2.csv", "3,c", "4,d")

    with pytest.raises(MisfitError, match=r"header of key '2.csv' shares no column with earlier batches, id, name\."):
        nights.run("csv", **HEADER, on_schema_change=policy)


@pytest.mark.parametrize(("format", "text"), [("json", '{"id":1}\n'), ("csv", "id\n1\n")])
def test_error_is_that_of_spark_when_a_column_is_misspelt(nights: Nights, format: str, text: str) -> None:
    (nights.folder / f"1.{format}").write_text(text)
    header: dict[str, Any] = {"header": True} if format == "csv" else {}

    with pytest.raises(Exception, match="nosuch") as caught:
        with IncrementalJob(nights.watermarks, "bays", spark=nights.spark) as job:
            job.new_files(str(nights.folder)).read(nights.spark, format, **header).select("nosuch")

    assert type(caught.value).__name__ == "AnalysisException"
