"""`job.verify` with real sources and targets, damaged in each way."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from scripts.helpers.backfill import Backfill
from scripts.helpers.batch.verifying import _kind_of
from scripts.helpers.errors import (
    CursorError,
    InvalidValueError,
    MissingConnectorError,
    NothingThereError,
    TargetError,
    UnknownJobError,
    UnpublishedError,
)
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from tests.support.outputs import output_of_run

JOB = "repairs"
NOW = datetime(2026, 11, 1, tzinfo=timezone.utc)
Verify = Callable[..., Any]


def rows(*hours: int, note: str | None = None, **columns: Any) -> pa.Table:
    stamps = [datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(hours=hour) for hour in hours]
    return pa.table({
        "at": pa.array(stamps, pa.timestamp("us", "UTC")),
        "id": pa.array(hours, pa.int32()),
        "note": pa.array([note or None] * len(hours), pa.string()),
        "amount": pa.array([Decimal("1.50")] * len(hours), pa.decimal128(9, 2)),
        **columns,
    })  # fmt: skip


@pytest.fixture
def job(watermarks: Watermarks) -> IncrementalJob:
    return IncrementalJob(watermarks, JOB, clock=lambda: NOW)


def load(watermarks: Watermarks, source: Any, target: str, cursor: str | list[str] = "at", **options: Any) -> None:
    with IncrementalJob(watermarks, JOB, clock=lambda: NOW) as job:
        job.write(job.rows_since(source, cursor, **options), target)


def replace_file(target: str, table: pa.Table) -> None:
    """Replace the newest file of a target with a table."""
    newest = max(Path(target).glob("*.parquet"), key=lambda path: path.name)
    pq.write_table(table, newest)


@pytest.mark.parametrize("kind", ["arrow", "pandas"])
def test_target_is_equal_when_each_row_is_there_once(
    watermarks: Watermarks, job: IncrementalJob, tmp_path: Path, kind: str
) -> None:
    target, table = str(tmp_path / "raw"), rows(0, 1, 30, 80)
    source = table if kind == "arrow" else table.to_pandas()
    load(watermarks, source.slice(0, 3) if kind == "arrow" else source[:3], target)
    load(watermarks, source, target)

    found = job.verify(source, target)

    assert found.is_equal
    assert [(one.source_rows, one.target_rows) for one in found] == [(1, 1), (0, 0), (1, 1), (2, 2)]
    assert "4 of 4 intervals compared, all equal" in repr(found)


def test_target_is_equal_when_two_columns_say_what_is_new(
    watermarks: Watermarks, job: IncrementalJob, tmp_path: Path
) -> None:
    target, table = str(tmp_path / "raw"), rows(0, 1, 30)
    load(watermarks, table, target, ["at", "id"])

    assert job.verify(table, target).is_equal


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("array<timestamp>", "array(timestamp'2026-01-01 00:00:00.12345{}')"),
        ("struct<t:timestamp>", "struct(timestamp'2026-01-01 00:00:00.12345{}' AS t)"),
        ("struct<t:timestamp_ntz>", "struct(timestamp_ntz'2026-01-01 00:00:00.12345{}' AS t)"),
        ("array<struct<t:timestamp>>", "array(struct(timestamp'0001-01-01 00:00:00.12345{}' AS t))"),
    ],
    ids=["array", "struct", "without zone", "deep"],
)
def test_interval_differs_when_times_within_other_types_differ_by_a_microsecond(
    watermarks: Watermarks, job: IncrementalJob, spark: Any, kind: str, value: str
) -> None:
    source, other = (spark.sql(f"SELECT 1 AS id, CAST({value.format(last)} AS {kind}) AS v") for last in (6, 7))
    with IncrementalJob(watermarks, JOB, clock=lambda: NOW) as run:
        run.rows_since(source, "id")

    assert job.verify(source, source).is_equal
    assert not job.verify(source, other).is_equal


@pytest.mark.parametrize(("limit", "taken", "engine", "cursor"), [
    pytest.param(
        limit, taken, engine, cursor, id=f"{many}-{name}",
        # The limit changes only the state, which Spark has no part in: one limit is enough.
        marks=[pytest.mark.long] if engine == "Spark" and limit is None else [],
    )
    for many, limit, taken in (("all", None, 4), ("in part", 3, 3))
    for name, engine, cursor in (
        ("numbers", "pyarrow", ["tenant", "id"]), ("times", "pyarrow", ["stamp", "id"]),
        ("three", "pyarrow", ["tenant", "at", "id"]), ("times of Spark", "Spark", ["stamp", "id"]),
    )
])  # fmt: skip
def test_rows_of_one_first_value_are_compared_when_a_compound_cursor_has_read_them(
    watermarks: Watermarks,
    job: IncrementalJob,
    tmp_path: Path,
    cursor: list[str],
    engine: str,
    limit: int | None,
    taken: int,
    request: pytest.FixtureRequest,
) -> None:
    target, stamp = str(tmp_path / "raw"), datetime(2026, 1, 1, tzinfo=timezone.utc)
    table = rows(
        0, 1, 2, 3, tenant=pa.array([7] * 4, pa.int32()), stamp=pa.array([stamp] * 4, pa.timestamp("us", "UTC"))
    )
    load(watermarks, table, target, cursor, max_rows=limit)
    source, there, empty = table, pq.read_table(target), table.slice(0, 0)
    if engine == "Spark":
        spark = request.getfixturevalue("spark")
        source, there, empty = (
            spark.createDataFrame(each.to_pylist(), "at timestamp, id int, note string, amount decimal(9,2), "
                                  "tenant int, stamp timestamp")
            for each in (table, there, empty)
        )  # fmt: skip

    same, lost = job.verify(source, there), job.verify(source, empty)
    everything = job.verify(source, empty, everything=True)

    assert (same.is_equal, sum(one.source_rows for one in same)) == (True, taken)
    assert [(found.is_equal, sum(one.missing for one in found)) for found in (lost, everything)] == [(False, taken)] * 2


@pytest.mark.parametrize(
    ("there", "found"),
    [
        (rows(0, 1), (1, 0, 0)),
        (rows(0, 1, 30, 30), (0, 1, 0)),
        (rows(0, 1, 29, 30), (0, 0, 1)),
        (rows(0, 1, 30, note="other"), (3, 0, 3)),
        (rows(0, 1, 30, note=""), (0, 0, 0)),
        (rows(0, 1, 30, note=None, amount=pa.array([Decimal("1.5")] * 3, pa.decimal128(12, 1))), (0, 0, 0)),
        (rows(0, 1, 30, note=None, amount=pa.array([Decimal("1.5"), None, Decimal("1.5")])), (1, 0, 1)),
        (rows(0, 1, 30, note=None, id=pa.array([0, 1, 30], pa.int64())), (0, 0, 0)),
    ],
    ids=["lost", "doubled", "extra", "changed", "same", "other scale", "null", "wider"],
)
@pytest.mark.parametrize("exact", [None, True])
def test_interval_differs_when_rows_are_lost_doubled_or_changed(
    watermarks: Watermarks, job: IncrementalJob, tmp_path: Path, there: pa.Table, found: Any, exact: bool | None
) -> None:
    target, table = str(tmp_path / "raw"), rows(0, 1, 30)
    load(watermarks, table, target)
    replace_file(target, there)

    result = job.verify(table, target, exact=exact)

    sums = tuple(sum(getattr(one, name) for one in result) for name in ("missing", "doubled", "extra"))
    assert sums == found
    assert result.is_equal == (not any(found[:2]) and not (exact and found[2]))


def test_null_is_no_empty_text_and_floats_are_compared_by_value(
    watermarks: Watermarks, job: IncrementalJob, tmp_path: Path
) -> None:
    target = str(tmp_path / "raw")
    numbers = pa.array([0.1, float("nan"), -0.0], pa.float64())
    notes = pa.array([None, None, "x"])

    def changed(number: pa.Array, note: pa.Array = notes) -> pa.Table:
        return rows(0, 1, 2, number=number).set_column(2, "note", note)

    load(watermarks, changed(numbers), target)
    same = job.verify(changed(pa.array([0.1, float("nan"), 0.0])), target)
    narrow = job.verify(changed(numbers.cast(pa.float32())), target)
    texts = job.verify(changed(numbers, pa.array(["", None, "x"])), target)

    assert (same.is_equal, narrow.is_equal, texts.is_equal) == (True, False, False)
    assert [sum(one.missing for one in result) for result in (narrow, texts)] == [1, 1]


@pytest.mark.parametrize("kind", ["arrow", "pandas"])
def test_rows_without_a_cursor_are_counted_in_a_warning_when_they_are_not_compared(
    watermarks: Watermarks, job: IncrementalJob, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    target, dated, undated = str(tmp_path / "raw"), rows(0, 1), rows(2, 3)
    load(watermarks, dated, target)
    empty = pa.nulls(2, pa.timestamp("us", "UTC"))
    table = pa.concat_tables([dated, undated.set_column(0, "at", empty)])

    found = job.verify(table if kind == "arrow" else table.to_pandas(), target)

    assert found.is_equal
    assert "event=nulls_not_compared job=repairs context=rows column=at rows=2" in caplog.text


def test_rows_past_the_watermark_and_older_versions_are_no_difference(
    watermarks: Watermarks, job: IncrementalJob, tmp_path: Path
) -> None:
    target = str(tmp_path / "raw")
    load(watermarks, rows(0, 1, 30), target)

    # Row 1 was updated at hour 99, and row 100 is new: the next run will take both.
    source = pa.concat_tables([rows(0, 30), rows(99, 100)])
    found = job.verify(source, target)

    assert found.is_equal
    assert sum(one.extra for one in found) == 1
    assert not job.verify(source, target, exact=True).is_equal


def test_only_what_was_read_is_compared_when_there_are_gaps_and_backfills(
    watermarks: Watermarks, job: IncrementalJob, tmp_path: Path
) -> None:
    target, table = str(tmp_path / "raw"), rows(*range(0, 200, 10))
    start = datetime(2026, 1, 5, tzinfo=timezone.utc)
    load(watermarks, table, target, start_from=start)
    before = job.verify(table, target)
    with Backfill(
        watermarks, JOB, low=start - timedelta(days=2), high=start - timedelta(days=1), clock=lambda: NOW
    ) as past:
        past.write(past.rows(table, "at"), target)

    after = job.verify(table, target)

    assert (before.is_equal, after.is_equal) == (True, True)
    assert (before.total, after.total) == (4, 5)
    assert after[-1].low == start - timedelta(days=2)


def test_columns_that_one_side_has_are_named_and_others_can_be_chosen(
    watermarks: Watermarks, job: IncrementalJob, tmp_path: Path
) -> None:
    target = str(tmp_path / "raw")
    load(watermarks, rows(0, 1, note="kept"), target)

    source = rows(0, 1, note="changed").append_column("more", pa.array([1, 2]))

    assert job.verify(source, target, columns=["at", "id"]).is_equal
    found = job.verify(source, target)
    assert (found.is_equal, found.compared.left_out) == (False, {"more": "only in the source"})


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"columns": ["no"]}, InvalidValueError, "'no' is on neither side"),
        ({"transformation_ctx": "other"}, NothingThereError, "other"),
        ({"format": "csv"}, InvalidValueError, "is read by Spark only"),
        ({"target": "nowhere"}, TargetError, "nowhere': it has no file"),
        ({"target": "nowhere", "format": "delta"}, TargetError, r"nowhere': it cannot be read \("),
        ({"target": ""}, InvalidValueError, "names no folder"),
        ({"source": rows(0).rename_columns(["x", "id", "note", "amount"])}, CursorError, "no such column"),
        ({"source": rows(0, at=pa.array([1]))}, CursorError, "it is a bigint on one side"),
        ({"recent": 0, "sample": 0}, InvalidValueError, "compare nothing"),
        ({"interval": 5}, InvalidValueError, "does not fit the cursor"),
    ],
)
def test_nothing_is_compared_when_the_two_sides_or_options_do_not_fit(
    watermarks: Watermarks, job: IncrementalJob, tmp_path: Path, change: Any, error: type[Exception], text: str
) -> None:
    target = str(tmp_path / "raw")
    load(watermarks, rows(0, 1), target)
    given = {"source": rows(0, 1), "target": target, **change}
    if given["target"] == "nowhere":
        given["target"] = str(tmp_path / "nowhere")

    with pytest.raises(error, match=text):
        job.verify(given.pop("source"), given.pop("target"), **given)


def test_nothing_is_compared_when_nothing_was_read_or_is_published(
    watermarks: Watermarks, job: IncrementalJob, tmp_path: Path
) -> None:
    with pytest.raises(UnknownJobError):
        job.verify(rows(0), str(tmp_path))
    load(watermarks, rows(0).slice(0, 0), str(tmp_path / "raw"))
    with pytest.raises(InvalidValueError, match="has read no row yet"):
        job.verify(rows(0), str(tmp_path))
    held = watermarks.begin(JOB, "jr_9")
    state = dict(watermarks.get_watermark_values(JOB)["rows"])
    held.freeze({"rows": {**state, "low": None, "high": NOW}}, {"rows": {**state, "value": NOW}})
    held.commit((output_of_run(held, str(tmp_path)),))

    with pytest.raises(UnpublishedError):
        job.verify(rows(0), str(tmp_path))


@pytest.mark.parametrize("how", ["set", "start_from"])
def test_nothing_is_verified_when_no_run_has_read_what_is_below_the_watermark(
    watermarks: Watermarks, job: IncrementalJob, tmp_path: Path, how: str
) -> None:
    value = datetime(2026, 2, 1, tzinfo=timezone.utc)
    if how == "set":
        state = {"kind": "rows", "cursor_column": "at", "type": "timestamp", "value": value}
        watermarks.set_watermark(JOB, state, transformation_ctx="rows", why="another tool has loaded until here")
    else:
        load(watermarks, rows(0), str(tmp_path / "raw"), start_from=value)

    with pytest.raises(InvalidValueError, match="nothing can be verified"):
        job.verify(rows(0), rows(5))


def test_target_in_s3_and_of_delta_is_read_without_spark(
    watermarks: Watermarks, s3: Any, bucket: str, tmp_path: Path
) -> None:
    table = rows(0, 1, 30, note="é")
    targets = {"parquet": f"s3://{bucket}/raw", "delta": str(tmp_path / "delta")}
    job = IncrementalJob(watermarks, JOB, s3_client=s3, clock=lambda: NOW)
    with IncrementalJob(watermarks, JOB, s3_client=s3, clock=lambda: NOW) as run:
        found = run.rows_since(table, "at")
        for kind, target in targets.items():
            run.write(found, target, format=kind)

    equal = [job.verify(table, target, format=kind).is_equal for kind, target in targets.items()]
    lost = job.verify(pa.concat_tables([table, rows(5, note="é")]), targets["delta"], format="delta")

    assert (equal, [one.missing for one in lost.differing]) == ([True, True], [1])


def test_target_of_iceberg_is_read_without_spark(
    watermarks: Watermarks, job: IncrementalJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = rows(0, 1, 30, note="é")
    load(watermarks, table, str(tmp_path / "raw"))
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("raw")
    catalog.create_table("raw.repairs", table.schema).append(table.slice(1))
    monkeypatch.setattr("pyiceberg.catalog.load_catalog", {"lake": catalog}.__getitem__)

    found = job.verify(table, "lake.raw.repairs", format="iceberg")

    assert [one.missing for one in found.differing] == [1]


@pytest.mark.parametrize(("format", "module"), [("delta", "deltalake"), ("iceberg", "pyiceberg.catalog")])
def test_package_is_named_when_the_target_cannot_be_read_without(
    watermarks: Watermarks,
    job: IncrementalJob,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    format: str,
    module: str,
) -> None:
    load(watermarks, rows(0, 1), str(tmp_path / "raw"))
    monkeypatch.setitem(sys.modules, module, None)

    told = rf"format='{format}' is not installed\. (Install it: )?pip install {module.partition('.')[0]}\b"
    with pytest.raises(MissingConnectorError, match=told):
        job.verify(rows(0, 1), "lake.raw.repairs", format=format)


def test_catalog_is_named_when_the_target_begins_with_an_unknown_one(
    watermarks: Watermarks, job: IncrementalJob, tmp_path: Path
) -> None:
    load(watermarks, rows(0, 1), str(tmp_path / "raw"))

    with pytest.raises(InvalidValueError, match=r"no catalog of that name\..*, or give the rows of the table"):
        job.verify(rows(0, 1), "no-lake.raw.repairs", format="iceberg")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.timestamp("ns", "UTC"), "timestamp"),
        (pa.timestamp("ms"), "timestamp_ntz"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.int8(), "bigint"),
        (pa.decimal128(9, 2), "decimal(9,2)"),
        (pa.float32(), "double"),
        (pa.date32(), "date"),
        (pa.date64(), "date"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.binary(), "binary"),
        (pa.large_binary(), "binary"),
        (pa.binary(4), "binary"),
        (pa.list_(pa.int32()), "array<bigint>"),
        (pa.large_list(pa.date32()), "array<date>"),
        (pa.struct([("a", pa.int32()), ("b", pa.list_(pa.bool_()))]), "struct<a:bigint,b:array<boolean>>"),
        (pa.null(), "void"),
        (pa.time32("s"), "time32[s]"),
    ],
    ids=str,
)
def test_type_of_pyarrow_has_the_name_of_sparks_when_sides_are_compared(kind: pa.DataType, name: str) -> None:
    assert _kind_of(kind) == name


def test_nothing_is_compared_when_the_context_reads_downwards(
    watermarks: Watermarks, job: IncrementalJob, tmp_path: Path
) -> None:
    load(watermarks, rows(0, 1), str(tmp_path / "raw"))
    state = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 1, "descending": True}
    watermarks.set_watermark(JOB, state, transformation_ctx="rows", why="a test")

    with pytest.raises(InvalidValueError, match="Context 'rows' of job 'repairs' reads downwards: rows above"):
        job.verify(rows(0, 1), str(tmp_path / "raw"))
