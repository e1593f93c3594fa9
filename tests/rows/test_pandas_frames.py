"""Jobs without Spark: rows and files read by pandas, written as Parquet, even if pyspark is not installed."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import traceback
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.helpers.batch.leftovers import examine_targets
from scripts.helpers.errors import (
    ChangedObjectError,
    CursorError,
    InvalidValueError,
    PlanConflictError,
    SourceError,
    TargetError,
)
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.memory import PandasRows
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.watermarks import Watermarks
from tests.support.listed_rows import ListedRows
from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY

JOB = "shell job"
NOON = datetime(2026, 10, 25, 0, 30, tzinfo=timezone.utc)
"""Half an hour before the clocks go back in London."""


@pytest.fixture
def run(watermarks: Watermarks) -> Callable[..., list[Any]]:
    def take(frame: Any, column: Any = "id", **options: Any) -> list[Any]:
        with IncrementalJob(watermarks, JOB, clock=lambda: NOON + timedelta(days=1)) as job:
            found = job.rows_since(frame, column, **options)
            assert isinstance(found, pd.DataFrame)
            return list(found.itertuples(index=False, name=None))

    return take


# --- rows ---------------------------------------------------------------------------------------------


def times(*minutes: float, unit: str = "us", zone: str | None = "UTC") -> Any:
    stamps = pd.Series([NOON + timedelta(minutes=count) for count in minutes]).dt.tz_convert(zone or "UTC")
    return (stamps if zone else stamps.dt.tz_localize(None)).dt.as_unit(unit)


COLUMNS = {
    "bigint": (pd.Series([1, 2]), pd.Series([1, 2, 3]), "bigint"),
    "smallint": (pd.Series([1], dtype="uint8"), pd.Series([1, 2], dtype="uint8"), "smallint"),
    "Int64": (pd.Series([1], dtype="Int64"), pd.Series([1, 2], dtype="Int64"), "bigint"),
    "uint64": (pd.Series([1], dtype="uint64"), pd.Series([1, 2**64 - 1], dtype="uint64"), "decimal(20,0)"),
    "arrow": (pd.Series([1], dtype="int32[pyarrow]"), pd.Series([1, 2], dtype="int32[pyarrow]"), "int"),
    "us": (times(0), times(0, 1), "timestamp"),
    "ns": (times(0, unit="ns"), times(0, 1, unit="ns"), "timestamp"),
    "s": (times(0, unit="s"), times(0, 1, unit="s"), "timestamp"),
    "London": (times(0, zone="Europe/London"), times(0, 60, zone="Europe/London"), "timestamp"),
    "naive": (times(0, zone=None), times(0, 1, zone=None), "timestamp_ntz"),
    "date": (pd.Series([date(2026, 1, 1)]), pd.Series([date(2026, 1, 1), date(2026, 1, 2)]), "date"),
    "objects": (
        pd.Series([NOON], dtype=object), pd.Series([NOON, NOON + timedelta(microseconds=1)], dtype=object), "timestamp",
    ),
    "Decimal": (pd.Series([Decimal("1.5")]), pd.Series([Decimal("1.5"), Decimal("22.125")]), "decimal(38,18)"),
    "decimal": (
        pd.Series([Decimal("1.50")], dtype=pd.ArrowDtype(pa.decimal128(9, 2))),
        pd.Series([Decimal("1.50"), Decimal("1.51")], dtype=pd.ArrowDtype(pa.decimal128(9, 2))),
        "decimal(9,2)",
    ),
    "text": (pd.Series(["a"]), pd.Series(["a", "b"]), "string"),
}  # fmt: skip


WITHOUT_ZONE = ("timestamp_ntz", "date")


@pytest.mark.parametrize("name", COLUMNS)
def test_only_new_rows_are_taken_when_the_column_has_an_exact_order(
    run: Callable[..., list[Any]], watermarks: Watermarks, name: str
) -> None:
    before, after, kind = COLUMNS[name]
    options = {"strings": True} if kind == "string" else {}

    frames = [pd.DataFrame({"id": values}) for values in (before, before, after)]
    # A cursor column without a time zone can only be read from a source that states its zone.
    sources = [PandasRows(frame, zone="UTC") if kind in WITHOUT_ZONE else frame for frame in frames]

    first, again, second = (run(source, **options) for source in sources)

    assert (len(first), len(again), len(second)) == (len(before), 0, 1)
    assert second == [(after.iloc[-1],)]
    assert watermarks.latest(JOB).watermarks["rows"]["type"] == kind


def test_nanoseconds_are_rounded_down_when_compared(run: Callable[..., list[Any]]) -> None:
    stamps = pd.to_datetime(["1969-12-31T23:59:59.999999999", "2026-01-01T00:00:00.000000999"]).tz_localize("UTC")

    first = run(pd.DataFrame({"at": stamps}), "at")
    more = pd.DataFrame({"at": [*stamps, pd.Timestamp("2026-01-01T00:00:00.000001Z")]})

    assert (len(first), len(run(more, "at"))) == (2, 1)


def test_index_and_columns_stay_as_they_are_when_rows_are_taken(watermarks: Watermarks) -> None:
    frame = pd.DataFrame({"id": [1, 2], "name": ["x", None]}, index=["p", "q"])

    with IncrementalJob(watermarks, JOB) as job:
        found = job.rows_since(frame, "id", start_from=2)

    pd.testing.assert_frame_equal(found, frame.loc[["q"]])


@pytest.mark.parametrize(("nulls", "taken"), [("take", [1, 2, 5]), ("skip", [1, 2])], ids=["take", "skip"])
def test_rows_without_cursor_go_by_the_policy_when_there_are_some(
    run: Callable[..., list[Any]], watermarks: Watermarks, caplog: Any, nulls: str, taken: list[int]
) -> None:
    frame = pd.DataFrame({"id": pd.Series([2, None, 1, 3], dtype="Int64"), "row": [2, 5, 1, 9]})

    found = run(frame.head(3), nulls=nulls, write_disposition="merge")
    more = run(frame, nulls=nulls, write_disposition="merge")

    assert sorted(row for _, row in found) == taken
    assert [row for _, row in more] == [*taken[2:], 9]
    assert watermarks.latest(JOB).watermarks["rows"]["value"] == 4
    assert ("event=nulls_excluded context=rows column=id rows=1" in caplog.text) == (nulls == "skip")


@pytest.mark.parametrize("dtype", [object, "Int64"], ids=["objects", "Int64"])
def test_rows_are_counted_when_only_those_without_cursor_are_left(
    run: Callable[..., list[Any]], watermarks: Watermarks, dtype: Any
) -> None:
    frame = pd.DataFrame({"id": pd.Series([1, None, None], dtype=dtype)})
    run(frame, nulls="take", write_disposition="merge")

    left = run(frame, nulls="take", write_disposition="merge")

    assert len(left) == 2
    assert watermarks.history(JOB)[0].change.metrics["contexts"]["rows"] == {"rows": 2}


def test_rows_are_taken_when_their_largest_cursor_cannot_be_told(watermarks: Watermarks) -> None:
    frame = pd.DataFrame({"at": np.array(["2026-01-01", "12000-01-01"], "datetime64[s]")})

    with IncrementalJob(watermarks, JOB, mode="disable") as job:
        found = job.rows_since(frame, "at")

    assert (len(found), job.metrics["rows_collected"]) == (2, 2)


def test_rows_without_cursor_are_an_error_that_counts_them_when_nothing_else_is_said(
    run: Callable[..., list[Any]], watermarks: Watermarks
) -> None:
    frame = pd.DataFrame({"at": pd.Series([NOON, None, None])})

    with pytest.raises(CursorError, match="2 rows have NULL there"):
        run(frame, "at")

    assert watermarks.latest(JOB).version == 0


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pd.Series([1.0, None]), "a double has no exact order"),
        (pd.Series([True]), "a bool has no exact order"),
        (pd.Series(["a"]), "a string has no exact order"),
        (pd.Series([], dtype=object), "it has no value and no type"),
        (pd.Series([1, "a"], dtype=object), "its values are not all of one type (object): int, str. Give it one."),
        (
            pd.Series([NOON, NOON.replace(tzinfo=None)], dtype=object),
            "(object): aware datetime, datetime. Give it one.",
        ),
        (pd.Series([date(2026, 1, 1), NOON.replace(tzinfo=None)], dtype=object), "(object): date, datetime."),
        (pd.Series([1, Decimal("1.5")], dtype=object), "(object): Decimal, int."),
        (pd.Series([object()]), "its values are not all of one type (object). Give it one, as in df.astype."),
        (pd.Series([1, 2**70], dtype=object), "it holds numbers of more than 64 bits"),
        (pd.Series(np.array([2**62, 0], "datetime64[s]")), "it holds times outside the years 1 to 9999"),
        (pd.Series([Decimal("1e-30")]), "more digits than a decimal(38,18)"),
        (pd.Series(np.array(["12000-01-01"], "datetime64[s]")), "years 1 to 9999"),
    ],
    ids=[
        "float",
        "bool",
        "text",
        "empty",
        "mixed",
        "zones",
        "days",
        "numbers",
        "objects",
        "big",
        "far away",
        "digits",
        "year 12000",
    ],
)
def test_column_is_refused_when_it_has_no_exact_order(
    run: Callable[..., list[Any]], watermarks: Watermarks, column: Any, text: str
) -> None:
    with pytest.raises(CursorError) as caught:
        run(PandasRows(pd.DataFrame({"id": column}), zone="UTC"))

    assert caught.value.column == "id"
    assert text in str(caught.value)
    assert (caught.value.__cause__ is None) or not isinstance(caught.value.__cause__, pa.ArrowException)
    assert watermarks.latest(JOB).version == 0


def test_zones_and_classes_may_differ_when_the_objects_are_all_aware_datetimes(run: Callable[..., list[Any]]) -> None:
    london = (NOON + timedelta(minutes=1)).astimezone(ZoneInfo("Europe/London"))
    frame = pd.DataFrame(
        {"at": pd.Series([NOON, london, pd.Timestamp(NOON + timedelta(minutes=2)), None], dtype=object)}
    )

    taken = [len(run(frame.head(count), "at", nulls="skip")) for count in (1, 2, 4)]

    assert taken == [1, 1, 1]


def test_earliest_time_of_nanoseconds_is_before_all_others_when_compared(run: Callable[..., list[Any]]) -> None:
    frame = pd.DataFrame({"at": pd.Series([pd.Timestamp.min, pd.Timestamp("2026-01-01")]).dt.as_unit("ns")})

    found = run(PandasRows(frame, zone="UTC"), "at", start_from=datetime(2000, 1, 1))

    assert found == [(pd.Timestamp("2026-01-01"),)]


@pytest.mark.parametrize("columns", [["at"], ["id", "id"]], ids=["missing", "twice"])
def test_column_is_refused_when_it_is_not_there_once(run: Callable[..., list[Any]], columns: list[str]) -> None:
    with pytest.raises(CursorError, match="no such column"):
        run(pd.DataFrame([[1] * len(columns)], columns=columns))


def test_type_that_changed_is_refused_when_the_job_runs_again(run: Callable[..., list[Any]]) -> None:
    run(pd.DataFrame({"id": [1]}))

    with pytest.raises(CursorError, match="its type was bigint"):
        run(pd.DataFrame({"id": pd.Series([1], dtype="int32")}))


CURSORS = (CursorColumn("id", "bigint"), CursorColumn("part", "bigint"))
few = st.one_of(st.integers(-2, 2), st.sampled_from([-(2**63), 2**63 - 1]))
rows = st.lists(st.tuples(st.none() | few, st.none() | few), max_size=8)
bound = st.none() | st.tuples(few, st.none() | few)


@given(rows, bound, bound, st.booleans(), st.sampled_from(["raise", "take"]), st.none() | st.integers(1, 2))
def test_same_rows_are_taken_as_by_sql_when_a_window_is_read(
    listed: list[Any], low: Any, high: Any, descending: bool, nulls: Any, lookback: int | None
) -> None:
    window = RowWindow(CURSORS, low, high, lookback, nulls, descending)
    by_sql = ListedRows(CURSORS, listed)
    ids, parts = (pd.array([row[place] for row in listed], dtype="Int64") for place in (0, 1))
    source = PandasRows(pd.DataFrame({"id": ids, "part": parts}))

    found = [tuple(None if value is pd.NA else int(value) for value in row) for row in source.rows(window).values]

    assert sorted(found, key=str) == sorted(by_sql.rows(window), key=str)
    assert source.facts(CURSORS, low, descending) == by_sql.facts(CURSORS, low, descending)


@pytest.mark.parametrize(("high", "descending", "taken"), [
    (2**63, False, 2), (-(2**63) - 1, False, 0), (2**63, True, 0), (-(2**63) - 1, True, 2),
], ids=["above", "below", "above, descending", "below, descending"])  # fmt: skip
def test_bound_is_past_all_numbers_when_it_is_one_step_outside(high: int, descending: bool, taken: int) -> None:
    source = PandasRows(pd.DataFrame({"id": [-(2**63), 2**63 - 1]}))

    assert len(source.rows(RowWindow(CURSORS[:1], None, (high,), descending=descending))) == taken


EDGES: dict[str, tuple[str, Any, list[Any]]] = {
    "uint64": ("decimal(20,0)", "uint64", [0, 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1]),
    "decimal": (
        "decimal(21,1)",
        pd.ArrowDtype(pa.decimal128(21, 1)),
        [Decimal(n).scaleb(-1) for n in (-(2**63) * 10 - 10, -(2**63) * 10, 0, 5, (2**63 - 1) * 10, 2**63 * 10)],
    ),
}


@pytest.mark.parametrize("name", EDGES)
@given(data=st.data())
def test_same_rows_are_taken_as_by_python_when_numbers_are_larger_than_a_bigint(name: str, data: Any) -> None:
    kind, dtype, edges = EDGES[name]
    listed = data.draw(st.lists(st.sampled_from(edges), max_size=6))
    low, high = data.draw(st.none() | st.sampled_from(edges)), data.draw(st.sampled_from([*edges, edges[-1] + 1]))
    above = None if low is None else (Decimal(low),)
    source = PandasRows(pd.DataFrame({"id": pd.Series(listed, dtype=dtype)}))

    found = source.rows(RowWindow((CursorColumn("id", kind),), above, (Decimal(high),)))

    assert list(found["id"]) == [value for value in listed if (low is None or value >= low) and value < high]


def test_ids_past_a_bigint_are_taken_when_the_largest_one_was_the_last_of_a_bigint(
    run: Callable[..., list[Any]],
) -> None:
    ids = pd.Series([2**63 - 1, 2**63, 2**63 + 1], dtype="uint64")

    taken = [run(pd.DataFrame({"id": ids.head(count)})) for count in (1, 2, 3)]

    assert taken == [[(2**63 - 1,)], [(2**63,)], [(2**63 + 1,)]]


# --- files --------------------------------------------------------------------------------------------


def put(root: Path, **files: bytes) -> str:
    for name, body in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".").replace("_is_", "=")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return str(root)


CONTENT = {"csv": b"id\n1\n", "json": b'{"id": 1}\n'}
TORN = gzip.compress(b"id\n" + b"1\n" * 50)[:10] + b"\xff" * 20


def parquet(frame: Any) -> bytes:
    sink = pa.BufferOutputStream()
    frame.to_parquet(sink)
    body: bytes = sink.getvalue().to_pybytes()
    return body


@pytest.mark.parametrize(
    ("format", "bodies", "options"),
    [
        ("csv", (b"id,name\n1,x\n", b"id,name\n2,y\n"), {}),
        ("json", (b'{"id": 1, "name": "x"}\n', b'{"id": 2, "name": "y"}'), {}),
        ("json", (b'[{"id": 1, "name": "x"}]', b'[{"id": 2, "name": "y"}]'), {"lines": False}),
        ("parquet", tuple(parquet(pd.DataFrame({"id": [n], "name": [x]})) for n, x in ((1, "x"), (2, "y"))), {}),
    ],
    ids=["csv", "json", "json array", "parquet"],
)
def test_files_are_read_in_the_order_of_their_keys_when_pandas_reads_them(
    tmp_path: Path, format: str, bodies: tuple[bytes, bytes], options: dict[str, Any]
) -> None:
    source = put(tmp_path, b=bodies[1], a=bodies[0], c=b"")

    found = FileBookmark(source).new_files().read_pandas(format, path_column="file", **options)

    assert found[["id", "name"]].to_dict("list") == {"id": [1, 2], "name": ["x", "y"]}
    assert list(found["file"]) == [f"file://{tmp_path}/{name}" for name in "ab"]


def test_folders_are_columns_and_packed_files_are_read_when_their_names_say_so(tmp_path: Path) -> None:
    source = put(tmp_path, year_is_2026__a_dot_csv_dot_gz=gzip.compress(b"id\n1\n"), year_is_2025__b_dot_csv=b"id\n2\n")

    found = FileBookmark(source).new_files().read_pandas("csv")

    assert found.to_dict("list") == {"id": [2, 1], "year": ["2025", "2026"]}


@pytest.mark.parametrize("body", [b"\n", b"\r\n", b"\n\n"], ids=["LF", "CRLF", "two"])
@pytest.mark.parametrize("format", CONTENT)
def test_file_of_newlines_only_has_no_rows_when_others_have(tmp_path: Path, format: str, body: bytes) -> None:
    found = FileBookmark(put(tmp_path, a=body, b=CONTENT[format])).new_files().read_pandas(format)

    assert found.to_dict("list") == {"id": [1]}


@pytest.mark.parametrize(
    ("format", "bodies", "options"),
    [
        ("csv", (b"id,bay\n%d,A\n,B\n",), {}),
        ("csv", (b"id,bay\n%d,A\n", b"bay\nB\n"), {}),
        ("json", (b'{"id": %d, "bay": "A"}\n{"id": null, "bay": "B"}\n',), {}),
        ("json", (b'{"id": %d, "bay": "A"}\n', b'{"bay": "B"}\n'), {}),
        ("json", (b'[{"id": %d, "bay": "A"}, {"bay": "B"}]',), {"lines": False}),
    ],
    ids=["csv", "csv files", "json null", "json files", "json array"],
)
@pytest.mark.parametrize("number", [2**53 + 1, -(2**63), 2**63 - 1])
def test_whole_numbers_are_what_was_written_when_some_are_missing(
    tmp_path: Path, format: str, bodies: tuple[bytes, ...], options: Any, number: int
) -> None:
    files = {f"f{place}": body.replace(b"%d", b"%d" % number) for place, body in enumerate(bodies)}

    found = FileBookmark(put(tmp_path, **files)).new_files().read_pandas(format, **options)

    assert (str(found["id"].dtype), int(found["id"][0]), found["id"].isna().tolist()) == (
        "Int64",
        number,
        [False, True],
    )


@pytest.mark.parametrize("lacking", [{"id": [None, 7]}, {"bay": ["B", "C"]}], ids=["NULL", "no column"])
def test_whole_numbers_of_parquet_stay_whole_when_a_file_lacks_some(
    tmp_path: Path, lacking: dict[str, list[Any]]
) -> None:
    number = 2**53 + 1
    # pyarrow or Spark writes the file, because pandas stores its own types in a file and restores them on reading.
    for name, rows in {"a": {"id": [number]}, "b": lacking}.items():
        pq.write_table(pa.table(rows), tmp_path / name)

    found = FileBookmark(str(tmp_path)).new_files().read_pandas("parquet")

    assert (str(found["id"].dtype), int(found["id"][0]), bool(found["id"].isna()[1])) == (
        "Int64",
        number,
        True,
    )


def test_values_of_json_stay_as_they_are_when_they_look_like_others(tmp_path: Path) -> None:
    record = {"date": "2026-01-01", "timestamp": 1700000000, "code": "007", "f": 0.30000000000000004, "big": 2**64 - 1}

    found = FileBookmark(put(tmp_path, a=json.dumps(record).encode())).new_files().read_pandas("json")

    assert found.to_dict("records") == [record]


@pytest.mark.parametrize("format", CONTENT)
def test_options_of_pandas_win_when_they_are_given(tmp_path: Path, format: str) -> None:
    source = put(tmp_path, a=CONTENT[format])

    found = FileBookmark(source).new_files().read_pandas(format, dtype_backend="pyarrow")

    assert str(found["id"].dtype) == "int64[pyarrow]"


def test_no_rows_are_read_when_no_file_is_new(tmp_path: Path) -> None:
    assert FileBookmark(str(tmp_path)).new_files().read_pandas("csv").empty


def test_file_is_refused_by_name_when_it_was_overwritten_since_the_plan(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="a/1.csv", Body=b"id\n1\n")
    delta = FileBookmark(f"s3://{bucket}/a/", s3_client=s3).new_files()
    s3.put_object(Bucket=bucket, Key="a/1.csv", Body=b"id\n2\n")

    with pytest.raises(ChangedObjectError, match=r"overwritten: '1\.csv'"):
        delta.read_pandas("csv", s3_client=s3)


def test_planned_version_is_read_when_the_listing_is_versioned(s3: Any, bucket: str) -> None:
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    s3.put_object(Bucket=bucket, Key="a/1.csv", Body=b"id\n1\n")
    delta = FileBookmark(f"s3://{bucket}/a/", s3_client=s3, versioned=True).new_files()
    s3.put_object(Bucket=bucket, Key="a/1.csv", Body=b"id\n2\n")

    assert list(delta.read_pandas("csv", s3_client=s3)["id"]) == [1]


@pytest.mark.parametrize(
    ("files", "format", "options", "text"),
    [
        ({"a": b"x"}, "orc", {}, "pandas reads csv, json, parquet from S3 or a directory, not 'orc'"),
        ({"a": b"x"}, "parquet", {}, "Parquet file size is 1 bytes"),
        ({"a_dot_csv_dot_gz": b"x"}, "csv", {}, "key 'a.csv.gz' cannot be read as csv: Not a gzipped file"),
        ({"a_dot_csv_dot_gz": TORN}, "csv", {}, "key 'a.csv.gz' cannot be read as csv: Error -3 while decompressing"),
        ({"a_dot_csv_dot_zip": b"x"}, "csv", {}, "key 'a.csv.zip' cannot be read as csv: File is not a zip file."),
        (
            {"a_dot_csv_dot_xz": b"secret"},
            "csv",
            {},
            "key 'a.csv.xz' cannot be read as csv: Input format not supported",
        ),
        (
            {"a": b'{"id": secret}'},
            "json",
            {},
            "key 'a' cannot be read as json: line 1 is not JSON (Expecting value at",
        ),
        ({"a": b"5\n"}, "json", {}, "key 'a' cannot be read as json: line 1 has a value that is no object. Correct"),
        ({"year_is_1__a": b"Year\n1\n"}, "csv", {}, "the files have a column 'year' already"),
        ({"a": b"id\n1\n"}, "csv", {"path_column": "ID"}, "the files have a column 'ID' already"),
        ({"year_is_1__a": b"id\n1\n", "b": b"id\n1\n"}, "csv", {}, "the folders give different columns"),
    ],
    ids=["format", "parquet", "gz", "torn gz", "zip", "xz", "json", "no record", "folder", "path", "layout"],
)
def test_files_are_refused_when_pandas_cannot_read_them(
    tmp_path: Path, files: dict[str, bytes], format: str, options: dict[str, Any], text: str
) -> None:
    delta = FileBookmark(put(tmp_path, **files)).new_files()

    with pytest.raises(SourceError) as caught:
        delta.read_pandas(format, **options)

    assert text in str(caught.value)
    assert caught.value.source == str(delta.location)
    assert "secret" not in "".join(traceback.format_exception(caught.value))


# --- write --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["directory", "bucket"])
def test_batch_is_one_file_that_a_replay_replaces_when_pandas_is_written(
    watermarks: Watermarks, s3: Any, bucket: str, tmp_path: Path, spark: Any, place: str
) -> None:
    target = f"s3://{bucket}/raw" if place == "bucket" else str(tmp_path / "raw")
    frame = pd.DataFrame({"id": [1, 2, 3], "at": times(0, 1, 2, unit="ns")}).set_axis([7, 8, 9])

    def run(die: bool) -> int:
        with IncrementalJob(watermarks, JOB, s3_client=s3) as job:
            written = job.write(job.rows_since(frame, "id", start_from=2), target)
            if die:
                raise ZeroDivisionError
            return written

    with pytest.raises(ZeroDivisionError):
        run(die=True)
    written = run(die=False)

    (entry,) = watermarks.history(JOB)
    rows = spark.read.parquet(target.replace("s3://", "s3a://")).selectExpr("id", "unix_micros(at) AS at").collect()
    assert (written, sorted(tuple(row) for row in rows)) == (
        2, [(number, int((NOON.timestamp() + 60 * (number - 1)) * 1e6)) for number in (2, 3)],
    )  # fmt: skip
    counts = entry.change.metrics
    assert (counts["rows_written"], counts["rows_collected"]) == (2, 2)
    assert counts["contexts"]["rows"] == {"rows": 2, "minimum": 2, "maximum": 3}
    if place == "directory":
        (file,) = Path(target).glob("part-*")
        assert counts["bytes_written"] == file.stat().st_size
        assert pq.read_schema(file).names == ["id", "at"]


@pytest.mark.parametrize("place", ["directory", "bucket"])
def test_files_in_the_folder_of_a_batch_stay_and_are_named_when_they_have_not_the_mark_of_the_job(
    watermarks: Watermarks, s3: Any, bucket: str, tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing shows which job wrote them: another job may have a batch with the same epoch and version."""
    frame = pd.DataFrame({"id": [1, 2, 3]})
    names = "part-00000-0a1b.snappy.parquet", "_temporary/0/part-00007.parquet", ".part-00000-0a1b.snappy.parquet.crc"

    def run(die: bool) -> str:
        with IncrementalJob(watermarks, JOB, s3_client=s3) as job:
            rows = job.rows_since(frame, "id")
            folder = f"raw/batch_id={job.freeze().id}/"
            if die:
                for name in names:
                    if place == "bucket":
                        s3.put_object(Bucket=bucket, Key=folder + name, Body=parquet(frame))
                    else:
                        (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
                        (tmp_path / folder / name).write_bytes(parquet(frame))
                raise ZeroDivisionError
            job.write(rows, f"s3://{bucket}/raw" if place == "bucket" else str(tmp_path / "raw"))
            return folder

    s3.put_object(Bucket=bucket, Key="raw/batch_id=other/1.parquet", Body=b"x")
    with pytest.raises(ZeroDivisionError):
        run(die=True)
    folder = run(die=False)

    if place == "bucket":
        keys = [found["Key"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"]]
        assert "raw/batch_id=other/1.parquet" in keys
        left = [key for key in keys if key.startswith(folder)]
    else:
        left = [path.name for path in (tmp_path / folder).rglob("*") if path.is_file()]
    assert len(left) == 4
    assert f"event=files_beside_batch target={'s3' if place == 'bucket' else 'file'}://" in caplog.text
    found = examine_targets(watermarks, JOB, s3_client=s3)
    assert [one.kind for one in found] == ["unexplained files"]
    assert "part-00000-0a1b.snappy.parquet" in found[0].detail


@pytest.mark.parametrize("place", ["directory", "bucket"])
def test_no_file_is_written_when_no_file_was_read(
    watermarks: Watermarks, s3: Any, bucket: str, tmp_path: Path, place: str
) -> None:
    target = f"s3://{bucket}/raw" if place == "bucket" else str(tmp_path / "raw")
    (tmp_path / "landing").mkdir()

    def run() -> int:
        with IncrementalJob(watermarks, JOB, s3_client=s3) as job:
            return job.write(job.new_files(str(tmp_path / "landing")).read_pandas("csv"), target)

    first = run()
    put(tmp_path, landing__a=b"id\n1\n")
    second = run()

    keys = [found["Key"] for found in s3.list_objects_v2(Bucket=bucket, Prefix="raw/part-").get("Contents", [])]
    files = keys if place == "bucket" else list((tmp_path / "raw").rglob("part-*"))
    assert (first, second, len(files), watermarks.latest(JOB).version) == (0, 1, 1, 2)


@pytest.mark.parametrize("again", ["raw", "raw/"])
def test_second_write_is_refused_when_it_goes_to_the_same_path(
    watermarks: Watermarks, tmp_path: Path, again: str
) -> None:
    first, second = pd.DataFrame({"id": [1, 2]}), pd.DataFrame({"id": [3]})

    with pytest.raises(PlanConflictError) as caught, IncrementalJob(watermarks, JOB) as job:
        job.rows_since(first, "id")
        job.write(first, f"{tmp_path}/raw")
        job.write(second, f"{tmp_path}/{again}")

    assert str(caught.value) == (
        f"Job 'shell job': this batch was written to 'file://{tmp_path}/raw' already, and only one of the two "
        "writes would be kept. Union the frames, or give another target."
    )
    assert not (tmp_path / "raw").exists()
    assert (watermarks.latest(JOB).version, job.metrics["rows_written"]) == (0, 2)


def test_second_write_is_refused_when_the_same_bucket_is_spelt_in_another_way(
    watermarks: Watermarks, s3: Any, bucket: str
) -> None:
    frame = pd.DataFrame({"id": [1, 2]})

    with pytest.raises(PlanConflictError), IncrementalJob(watermarks, JOB, s3_client=s3) as job:
        job.rows_since(frame, "id")
        job.write(frame, f"s3://{bucket}/raw")
        job.write(frame, f"s3a://{bucket}/raw/")

    assert job.metrics["rows_written"] == 2


def test_write_may_be_tried_again_or_go_elsewhere_when_one_failed(watermarks: Watermarks, tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": [1, 2]})

    with IncrementalJob(watermarks, JOB) as job:
        job.rows_since(frame, "id")
        with pytest.raises(InvalidValueError):
            job.write(frame, str(tmp_path / "raw"), format="csv")
        job.write(frame, str(tmp_path / "raw"))
        job.write(frame, str(tmp_path / "copy"))

    assert [len(pd.read_parquet(tmp_path / name)) for name in ("raw", "copy")] == [2, 2]
    assert (watermarks.latest(JOB).version, job.metrics["rows_written"]) == (1, 4)


@pytest.mark.parametrize(
    ("frame", "options", "error", "text"),
    [
        (pd.DataFrame({"Batch_ID": [1]}), {"batch_folders": True}, InvalidValueError, "'batch_id' is a reserved name"),
        (
            pd.DataFrame({"id": [1]}),
            {"format": "csv"},
            InvalidValueError,
            "pandas and pyarrow write format='parquet' here",
        ),
    ],
    ids=["column", "format"],
)
def test_write_is_refused_when_pandas_rows_do_not_support_the_options(
    watermarks: Watermarks, tmp_path: Path, frame: Any, options: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text), IncrementalJob(watermarks, JOB) as job:
        job.rows_since(pd.DataFrame({"id": [1]}), "id")
        job.write(frame, str(tmp_path / "raw"), **options)

    assert not (tmp_path / "raw").exists()
    assert watermarks.latest(JOB).version == 0


@pytest.mark.parametrize(
    ("target", "error", "text"),
    [
        ("gs://bucket/raw", InvalidValueError, "needs a Spark session"),
        ("s3://no-such/raw", TargetError, "s3:ListBucket on s3://no-such/raw/_glue_watermarks: NoSuchBucket"),
    ],
    ids=["store", "bucket"],
)
def test_write_is_refused_by_name_when_the_target_cannot_be_written_to(
    watermarks: Watermarks, s3: Any, target: str, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text), IncrementalJob(watermarks, JOB, s3_client=s3) as job:
        job.write(job.rows_since(pd.DataFrame({"id": [1]}), "id"), target)

    assert watermarks.latest(JOB).version == 0


# --- without pyspark ----------------------------------------------------------------------------------

SHELL_JOB = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "awsglue"):
            raise ImportError(name + " is not installed")

sys.meta_path.insert(0, Blocked())

import pandas as pd
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks

table, landing, target = sys.argv[1:]
watermarks = Watermarks(table)
for mode in ("enable", "enable", "pause", "disable"):
    with IncrementalJob(watermarks, "shell job", mode=mode) as job:
        rows = job.rows_since(pd.DataFrame({"id": [1, 2]}), "id", transformation_ctx="rows")
        delta = job.new_files(landing, transformation_ctx="files")
        found = delta.read_pandas("csv")
        print(mode, len(rows), len(found), job.write(rows, target + "/rows"))
print(sorted(name for name in sys.modules if name.partition(".")[0] == "pyspark"))
"""


def test_shell_job_takes_rows_and_files_when_pyspark_is_not_installed(
    watermarks: Watermarks, endpoint: str, s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    s3.put_object(Bucket=bucket, Key="landing/1.csv", Body=b"id\n1\n2\n3\n")
    places = [f"s3://{bucket}/landing/", f"s3://{bucket}/raw"]

    done = subprocess.run(
        [sys.executable, "-c", SHELL_JOB, watermarks.table_name, *places],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["enable 2 3 2", "enable 0 0 0", "pause 0 0 0", "disable 2 3 2", "[]"]
    assert watermarks.latest("shell job").version == 2
