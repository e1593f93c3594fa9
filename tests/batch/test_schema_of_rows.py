"""Rows whose columns change from run to run, under each policy, for rows of pyarrow, pandas and Spark."""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from scripts.helpers.errors import InvalidValueError, SchemaChangedError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.schemas.kept import shown_schemas
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.listed_rows import ListedRows
from tests.support.steps import KilledError

FIRST = {"id": pa.array([1], pa.int32()), "bay": ["A"]}
NEW = {**FIRST, "id": pa.array([2], pa.int32()), "colour": ["red"]}
GONE = {"id": pa.array([2], pa.int32())}
WIDER = {**FIRST, "id": pa.array([2], pa.int64())}
OTHER = {**FIRST, "id": pa.array([2], pa.int32()), "bay": pa.array([7], pa.int64())}


class Runs:
    """Runs of one job over tables that differ in their columns."""

    def __init__(self, watermarks: Watermarks, clock: Clock) -> None:
        self.watermarks, self.clock = watermarks, clock

    def take(self, rows: Any, policy: Any = None) -> Any:
        with IncrementalJob(self.watermarks, "loans", clock=self.clock) as job:
            return job.rows_since(rows, "id", on_schema_change=policy, settled=True)

    @property
    def kept(self) -> dict[str, dict[str, str]]:
        return shown_schemas(self.watermarks.get_watermark_values("loans")["rows"])


@pytest.fixture
def runs(watermarks: Watermarks, clock: Clock) -> Runs:
    return Runs(watermarks, clock)


@pytest.mark.parametrize(
    ("columns", "policy", "row", "kept"),
    [
        (NEW, "add", {"id": 2, "bay": "A", "colour": "red"}, {"id": "int", "bay": "string", "colour": "string"}),
        (NEW, "warn", {"id": 2, "bay": "A"}, {"id": "int", "bay": "string"}),
        (NEW, "take", {"id": 2, "bay": "A", "colour": "red"}, {"id": "int", "bay": "string", "colour": "string"}),
        (GONE, "add", {"id": 2, "bay": None}, {"id": "int", "bay": "string"}),
        (GONE, "take", {"id": 2}, {"id": "int"}),
        (WIDER, "add", {"id": 2, "bay": "A"}, {"id": "bigint", "bay": "string"}),
        (OTHER, "take", {"id": 2, "bay": 7}, {"id": "int", "bay": "bigint"}),
    ],
)
def test_rows_have_the_columns_of_the_policy_when_the_source_changed(
    runs: Runs,
    columns: Any,
    policy: str,
    row: dict[str, Any],
    kept: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs.take(pa.table(FIRST), policy)
    caplog.set_level("INFO")

    found = runs.take(pa.table(columns), policy)

    assert found.to_pylist() == [row]
    assert runs.kept == {"arrow": kept}
    (told,) = [record for record in caplog.records if "event=schema_changed job=loans" in record.getMessage()]
    # Columns added by the policy are expected; lost columns or other types are a WARNING.
    is_kept_whole = columns != GONE and set(row) == set(columns) and columns != OTHER
    assert told.levelname == ("INFO" if is_kept_whole else "WARNING")


def test_values_are_in_no_message_when_a_column_is_called_name(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    runs.take(pd.DataFrame({"id": [1], "name": ["Carol"]}), "add")

    runs.take(pd.DataFrame({"id": [2], "name": ["Carol"], "bay": ["A"]}), "add")

    assert "event=schema_changed job=loans context=rows source=DataFrame " in caplog.text
    assert "Carol" not in caplog.text


def test_values_get_the_kept_type_when_the_source_has_a_narrower_one(runs: Runs) -> None:
    runs.take(pa.table({**FIRST, "hours": pa.array([5], pa.int64())}), "raise")

    found = runs.take(pa.table({**GONE, "bay": ["B"], "hours": pa.array([6], pa.int8())}), "raise")

    assert found.to_pylist() == [{"id": 2, "bay": "B", "hours": 6}]
    assert found.schema.field("hours").type == pa.int64()


def test_times_and_decimals_of_arrow_are_kept_when_they_come_in_other_widths(runs: Runs) -> None:
    moment = datetime(2026, 3, 16, 12)
    first = {
        "price": pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
        "at": pa.array([moment.replace(tzinfo=timezone.utc)], pa.timestamp("us", "UTC")),
        "local": pa.array([moment], pa.timestamp("ms")),
    }
    narrower = {**first, "price": pa.array([Decimal("2.5")], pa.decimal128(5, 1))}
    runs.take(pa.table({**FIRST, **first}), "raise")

    found = runs.take(pa.table({**FIRST, "id": pa.array([2], pa.int32()), **narrower}), "raise")

    assert runs.kept["arrow"] == {
        "id": "int", "bay": "string", "price": "decimal(10,2)", "at": "timestamp", "local": "timestamp_ntz",
    }  # fmt: skip
    assert found.schema.field("price").type == pa.decimal128(10, 2)
    assert found.column("price").to_pylist() == [Decimal("2.50")]


@pytest.mark.parametrize(
    ("columns", "policy", "told"),
    [
        (NEW, "raise", "'colour' is new (string)"),
        (GONE, "raise", "'bay' is gone (it was string)"),
        (WIDER, "raise", "'id' was int and is bigint"),
        (WIDER, "warn", "'id' was int and is bigint"),
        (OTHER, "add", "'bay' was string and is bigint"),
        (OTHER, "warn", "'bay' was string and is bigint"),
    ],
)
def test_run_stops_and_keeps_its_watermark_when_the_policy_refuses(
    runs: Runs, columns: Any, policy: str, told: str
) -> None:
    runs.take(pa.table(FIRST), policy)
    before = runs.watermarks.get_watermark_values("loans")

    with pytest.raises(SchemaChangedError) as caught:
        runs.take(pa.table(columns), policy)

    assert told in str(caught.value) and "on_schema_change='take'" in str(caught.value)
    assert runs.watermarks.get_watermark_values("loans") == before
    assert runs.take(pa.table(columns), "take").num_rows == 1


@pytest.mark.parametrize("dies", [False, True], ids=["planned", "replayed"])
@pytest.mark.parametrize("frame", [pd.DataFrame, pa.table], ids=["pandas", "pyarrow"])
def test_rows_of_a_refused_source_come_later_when_the_script_goes_on_with_another_source(
    watermarks: Watermarks, clock: Clock, frame: Any, dies: bool
) -> None:
    changed = frame({"id": [1, 2], "colour": ["red", "red"]})

    def load(policy: str, beside: Any, loans: Any, *, dies: bool = False) -> list[Any]:
        with IncrementalJob(watermarks, "loans", clock=clock) as job:
            found = [job.rows_since(beside, "id", transformation_ctx="bays", settled=True)]
            with suppress(SchemaChangedError):
                options: Any = {"on_schema_change": policy, "settled": True}
                found.append(job.rows_since(loans, "id", transformation_ctx="loans", **options))
            if dies:
                job.freeze()
                raise KilledError
            return [sorted(pd.DataFrame(rows.to_pydict() if frame is pa.table else rows)["id"]) for rows in found]

    load("raise", frame({"id": [1]}), frame({"id": [1]}))
    if dies:
        with pytest.raises(KilledError):
            load("take", frame({"id": [1, 2]}), changed, dies=True)
        with pytest.raises(SchemaChangedError):
            load("raise", frame({"id": [1, 2]}), changed)
    else:
        assert load("raise", frame({"id": [1, 2]}), changed) == [[2]]

    assert load("take", frame({"id": [1, 2]}), changed)[1] == [2]


def test_column_that_is_left_out_is_in_the_log_and_the_metrics_when_changes_are_reported(
    runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    runs.take(pa.table(FIRST), "warn")

    with caplog.at_level(logging.WARNING):
        runs.take(pa.table(NEW), "warn")

    assert "left_out=1: 'colour' is new (string). Left out: colour" in caplog.text
    newest = runs.watermarks.history("loans")[0].change.metrics
    assert newest["columns_left_out"] == {"rows": {"count": 1, "names": ["colour"]}}


def test_names_alone_are_compared_when_rows_are_of_pandas(runs: Runs) -> None:
    runs.take(pd.DataFrame({"id": [1], "bay": ["A"], "hours": [5]}), "warn")

    found = runs.take(pd.DataFrame({"colour": ["red"], "id": [2], "hours": [None]}), "warn")

    assert list(found.columns) == ["id", "bay", "hours"]
    assert (found["id"].tolist(), found["bay"].isna().tolist()) == ([2], [True])


def test_rows_of_spark_have_the_columns_that_are_kept_when_the_source_changed(runs: Runs, spark: Any) -> None:
    runs.take(spark.sql("SELECT 1 AS id, 'A' AS bay, 5L AS hours, named_struct('x', 1) AS at"), "warn")

    found = runs.take(spark.sql("SELECT 'red' AS colour, 2 AS ID, 6 AS Hours, named_struct('x', 1) AS at"), "warn")

    expected = {"id": 2, "bay": None, "hours": 6, "at": {"x": 1}}
    assert [row.asDict(recursive=True) for row in found.collect()] == [expected]
    assert found.schema["hours"].dataType.typeName() == "long"
    assert runs.kept == {"spark": {"id": "int", "bay": "string", "hours": "bigint", "at": "struct<x:int>"}}


def test_nothing_is_kept_and_rows_are_as_they_are_when_no_policy_is_given(runs: Runs) -> None:
    runs.take(pa.table(FIRST))

    found = runs.take(pa.table(NEW))

    assert found.to_pylist() == [{"id": 2, "bay": "A", "colour": "red"}]
    assert runs.kept == {}


def test_replay_has_the_same_columns_when_the_first_attempt_died(runs: Runs) -> None:
    runs.take(pa.table(FIRST), "add")
    with pytest.raises(RuntimeError), IncrementalJob(runs.watermarks, "loans", clock=runs.clock) as job:
        job.rows_since(pa.table(NEW), "id", on_schema_change="add", settled=True)
        job.freeze()
        raise RuntimeError

    found = runs.take(pa.table(NEW), "add")

    assert found.column_names == ["id", "bay", "colour"]
    assert runs.kept == {"arrow": {"id": "int", "bay": "string", "colour": "string"}}


@pytest.mark.parametrize("policy", ["", "append", True, 1, ["add"]])
def test_rows_are_refused_when_the_policy_is_wrong(runs: Runs, policy: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"'on_schema_change': .* is unknown"):
        runs.take(pa.table(FIRST), policy)


def test_policy_is_refused_when_a_source_returns_rows_that_have_no_columns(runs: Runs) -> None:
    source = ListedRows((CursorColumn("id", "bigint"),), [(1,)])

    with pytest.raises(InvalidValueError, match=r"on_schema_change needs rows of Spark, .* returns a list"):
        runs.take(source, "add")
