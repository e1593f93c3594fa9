"""pyarrow tables as sources of rows: new rows are returned as tables, compared exactly and written without pandas."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from scripts.helpers.errors import CursorError, InvalidValueError, SourceError, TargetSchemaError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.memory import ArrowRows, is_arrow
from scripts.helpers.rows.plan import whole_window
from scripts.helpers.watermarks import Watermarks
from tests.support.row_windows import plan

JOB = "arrow job"
NOON = datetime(2026, 10, 25, 0, 30, tzinfo=timezone.utc)
Run = Callable[..., list[Any]]


@pytest.fixture
def run(watermarks: Watermarks) -> Run:
    def take(table: Any, column: Any = "at", **options: Any) -> list[Any]:
        with IncrementalJob(watermarks, JOB, clock=lambda: NOON + timedelta(days=1)) as job:
            found = job.rows_since(table, column, **options)
            assert isinstance(found, pa.Table)
            return list(found.column(0).to_pylist())

    return take


def stamps(*minutes: float, unit: str = "us", zone: str | None = "Europe/London") -> Any:
    return pa.array([NOON + timedelta(minutes=count) for count in minutes], pa.timestamp(unit, zone))


COLUMNS = {
    "us": (stamps(0, 60), "timestamp"),
    "ns": (stamps(0, 60, unit="ns"), "timestamp"),
    "s": (stamps(0, 60, unit="s", zone="UTC"), "timestamp"),
    "naive": (stamps(0, 60, zone=None), "timestamp_ntz"),
    "date32": (pa.array([date(2026, 1, 1), date(2026, 1, 2)]), "date"),
    "date64": (pa.array([date(2026, 1, 1), date(2026, 1, 2)], pa.date64()), "date"),
    "int8": (pa.array([1, 2], pa.int8()), "tinyint"),
    "uint64": (pa.array([1, 2**64 - 1], pa.uint64()), "decimal(20,0)"),
    "decimal128": (pa.array([Decimal("1.50"), Decimal("1.51")], pa.decimal128(9, 2)), "decimal(9,2)"),
    "decimal256": (pa.array([Decimal("1.50"), Decimal("1.51")], pa.decimal256(38, 2)), "decimal(38,2)"),
    "string": (pa.array(["a", "b"]), "string"),
    "dictionary": (pa.array(["a", "b"]).dictionary_encode(), "string"),
}


WITHOUT_ZONE = ("timestamp_ntz", "date")


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("is_batch", [False, True], ids=["table", "batch"])
def test_only_new_rows_come_as_a_table_when_the_column_has_an_exact_order(
    run: Run, watermarks: Watermarks, name: str, is_batch: bool
) -> None:
    values, kind = COLUMNS[name]
    options = {"strings": True} if kind == "string" else {}
    make = pa.RecordBatch if is_batch else pa.Table
    before, after = (make.from_arrays([values[:count]], ["at"]) for count in (1, 2))

    # A cursor column without a time zone can only be read from a source that states its zone.
    sources = [ArrowRows(table, zone="UTC") if kind in WITHOUT_ZONE else table for table in (before, before, after)]

    first, again, second = (run(source, **options) for source in sources)

    assert (first, again, second) == (values[:1].to_pylist(), [], values[1:].to_pylist())
    assert watermarks.latest(JOB).watermarks["rows"]["type"] == kind


def test_rows_of_several_chunks_and_nanoseconds_are_compared_exactly_when_planned() -> None:
    nanoseconds = pa.chunked_array([pa.array([count], pa.timestamp("ns", "UTC")) for count in (-1, 999, 1_001)])
    table = pa.table({"at": nanoseconds, "id": [1, 2, 3]})

    window = plan(ArrowRows(table), "at", nulls="skip")

    assert window.high == (datetime(1970, 1, 1, 0, 0, 0, 2, tzinfo=timezone.utc),)
    assert ArrowRows(table).rows(window).equals(table)
    assert ArrowRows(table).counts(table, window)["maximum"] == datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=timezone.utc)


def test_ends_are_those_of_the_taken_rows_when_other_rows_are_not_taken() -> None:
    source = ArrowRows(pa.table({"id": [1, 2, 3]}))
    window = plan(source, "id", start_from=2)

    counts = source.counts(source.rows(window), window)

    assert counts == {"rows": 2, "minimum": 2, "maximum": 3}


@pytest.mark.parametrize(
    ("table", "error", "text"),
    [
        (pa.table({"id": [1]}), CursorError, "the source has no such column"),
        (pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["at", "at"]), CursorError, "has no such column"),
        (pa.table({"at": [1.5]}), CursorError, "a double has no exact order"),
        (pa.table({"at": pa.nulls(2)}), CursorError, "it has no value and no type"),
        (pa.table({"at": ["a"]}), CursorError, "a string has no exact order"),
        (pa.table({"at": [1, None]}), CursorError, "1 row has NULL there"),
        (pa.table({"at": [1]}).to_reader(), SourceError, r"Give \.read_all\(\) of it"),
        (ds.dataset(pa.table({"at": [1]})), SourceError, r"Give \.to_table\(\) of it"),
    ],
)
def test_table_is_refused_when_its_column_is_no_cursor_or_it_is_read_only_once(
    run: Run, table: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        run(table)


def test_new_rows_are_written_as_parquet_without_pandas_when_they_are_a_table(
    watermarks: Watermarks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    target = str(tmp_path / "raw")
    at = pa.array([NOON, NOON, NOON + timedelta(microseconds=1)], pa.timestamp("ns", "UTC"))
    amount = pa.array([Decimal("0.10"), None, Decimal("2.00")], pa.decimal128(20, 2))
    table = pa.table({"at": at, "amount": amount, "day": ["1/2", None, "1/2"], "id": [1, 2, 3]})

    for rows in (2, 3):
        with IncrementalJob(watermarks, JOB, clock=lambda: NOON + timedelta(days=1)) as job:
            found = job.rows_since(table.slice(0, rows), "at", nulls="skip")
            written = job.write(found, target, partition_by=["day"])

    found = sorted(pq.read_table(target).to_pylist(), key=lambda row: row["id"])
    assert written == 1
    assert [row["amount"] for row in found] == amount.to_pylist()
    assert [row["at"] for row in found] == at.cast(pa.timestamp("us", "UTC")).to_pylist()
    assert [row["day"] for row in found] == ["1/2", None, "1/2"]
    with (
        pytest.raises(TargetSchemaError, match="'id' is string in the rows"),
        IncrementalJob(watermarks, "other", clock=lambda: NOON + timedelta(days=1)) as job,
    ):
        job.write(job.rows_since(table.set_column(3, "id", [["a", "b", "c"]]), "at"), target, partition_by=["day"])


@pytest.mark.parametrize(
    ("options", "text"),
    [({"format": "csv"}, "pandas and pyarrow write format='parquet' here"), ({"partition_by": ["no"]}, "names 'no'")],
)
def test_table_is_not_written_when_the_options_do_not_fit(
    watermarks: Watermarks, tmp_path: Path, options: Any, text: str
) -> None:
    with (
        pytest.raises(InvalidValueError, match=text),
        IncrementalJob(watermarks, JOB, clock=lambda: NOON + timedelta(days=1)) as job,
    ):
        job.write(job.rows_since(pa.table({"at": [1]}), "at"), str(tmp_path / "raw"), **options)


def test_no_object_counts_as_a_table_when_pyarrow_was_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"id": [1]})
    assert is_arrow(table)

    monkeypatch.delitem(sys.modules, "pyarrow")

    assert is_arrow(table) is False


def test_all_rows_come_as_they_are_when_the_window_is_the_whole_table() -> None:
    table = pa.table({"id": [2, None, 1]})
    rows = ArrowRows(table)

    assert rows.rows(whole_window(rows, ["id"], strings=False)) is table


class OversizedColumn:
    """A column whose chunks are too large for one array: a real one would need 2 GB."""

    type = pa.binary()

    def combine_chunks(self) -> Any:
        raise pa.ArrowInvalid("offset overflow while concatenating arrays")


def test_column_is_refused_when_its_chunks_do_not_fit_into_one_array() -> None:
    rows: Any = ArrowRows(pa.table({"id": [1]}))
    rows.table = SimpleNamespace(column_names=["id"], column=lambda _name: OversizedColumn())

    with pytest.raises(CursorError) as caught:
        rows.columns(["id"], strings=False)

    assert str(caught.value) == (
        "Cursor column 'id': its chunks are too large to be joined. Give the rows in smaller tables."
    )
