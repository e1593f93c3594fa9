"""Windows over a cursor column with real Spark: each row in exactly one window, whatever its type."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import CursorError, SourceError
from scripts.helpers.rows.plan import plan_window
from scripts.helpers.rows.spark_frames import DataFrameRows
from scripts.helpers.rows.window import RowWindow
from tests.support.reasons import because
from tests.support.row_windows import plan_after, replayed

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=timezone.utc)
NO_DELAY = timedelta(0)

RISING = {
    "timestamp": ["2026-10-25T00:30:00Z", "2026-10-25T00:30:00.000001Z", "2026-10-25T01:30:00Z"],
    "timestamp_ntz": ["2026-10-25T00:30:00", "2026-10-25T00:30:00.000001", "2026-10-25T01:30:00"],
    "date": ["2026-10-24", "2026-10-25", "2026-10-26"],
    "tinyint": ["-5", "0", "7"],
    "smallint": ["-5", "0", "7"],
    "int": ["-5", "0", "7"],
    "bigint": ["-5", "0", "9007199254740993"],
    "decimal(38,10)": ["-0.0000000001", "0", "1234567890123456789012345678.0123456789"],
    "decimal(10,2)": ["-0.01", "0.00", "12345678.90"],
    "decimal(5,0)": ["-1", "0", "99"],
}
"""Three values of each type, in order; where it matters, the first two are one step of the type apart."""
TYPES = pytest.mark.parametrize("kind", RISING)
NARROW = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}


def frame(spark: Any, kind: str, values: Sequence[str | None]) -> Any:
    """Return rows whose column `at` has this type, numbered in `id` from 0."""
    texts = ["NULL" if value is None else f"'{value}'" for value in values] or ["NULL"]
    rows = ", ".join(f"({number}, {text})" for number, text in enumerate(texts))
    made = spark.sql(f"SELECT id, CAST(text AS {kind}) AS at FROM VALUES {rows} AS source (id, text)")
    return made if values else made.where("false")


def plan(df: Any, before: RowWindow | None = None, **options: Any) -> RowWindow:
    zone = None if any(field.dataType.simpleString() == "timestamp" for field in df.schema) else "UTC"
    return plan_after(before, DataFrameRows(df, zone=zone), ["at"], **({"now": NOW, "delay": NO_DELAY} | options))


def ids(window: RowWindow, df: Any) -> list[int]:
    return sorted(row.id for row in DataFrameRows(df).rows(window).collect())


# --- one run after the other --------------------------------------------------------------------------


@TYPES
def test_each_row_is_in_one_window_when_runs_follow_each_other(spark: Any, kind: str) -> None:
    low, middle, high = RISING[kind]
    grown: list[list[str]] = [[], [low], [low, middle, middle], [low, middle, middle, high, high]]
    windows: list[RowWindow] = []
    for values in [*grown, grown[-1]]:
        windows.append(plan(frame(spark, kind, values), windows[-1] if windows else None))
    everything = frame(spark, kind, grown[-1])

    nothing, *_, last, idle = windows
    assert (nothing.low, nothing.high, nothing.is_empty) == (None, None, True)
    assert [window.low for window in windows[1:]] == [window.high for window in windows[:-1]]
    assert (idle.is_empty, idle.state_after) == (True, last.state_after)
    assert [ids(replayed(window), everything) for window in windows] == [[], [0], [1, 2], [3, 4], []]


@TYPES
def test_predicate_reaches_parquet_when_window_has_both_ends(spark: Any, tmp_path: Path, kind: str) -> None:
    frame(spark, kind, RISING[kind]).write.parquet(str(tmp_path / "source"))
    df = spark.read.parquet(str(tmp_path / "source"))
    first = plan(df.where("id = 0"))
    window = plan(df, first)

    physical = DataFrameRows(df).rows(window)._jdf.queryExecution().executedPlan().toString()

    pushed = physical[physical.index("PushedFilters: ") :].splitlines()[0]
    assert "GreaterThanOrEqual(at," in pushed
    assert "LessThan(at," in pushed
    assert (first.low, ids(first, df), ids(window, df)) == (None, [0], [1, 2])


def test_planning_reads_only_new_row_groups_when_source_is_parquet(spark: Any, tmp_path: Path) -> None:
    frame(spark, "bigint", ["1", "2"]).write.parquet(str(tmp_path / "source"))
    df = spark.read.parquet(str(tmp_path / "source"))
    asked: list[str] = []

    class Spy:
        """A DataFrame that records its calls."""

        columns, schema, _jdf, sparkSession = df.columns, df.schema, df._jdf, df.sparkSession  # noqa: N815

        def where(self, condition: str) -> Any:
            asked.append(df.where(condition)._jdf.queryExecution().executedPlan().toString())
            return df.where(condition)

    plan(Spy(), plan(df))

    assert "PushedFilters: [Or(IsNull(at),GreaterThanOrEqual(at,3))]" in asked[0]


def test_apply_runs_no_job_when_nothing_is_collected(spark: Any) -> None:
    df = frame(spark, "int", ["1", "2"])
    window = plan(df)
    spark.sparkContext.setJobGroup("lazy", "lazy")

    DataFrameRows(df).rows(window)

    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("lazy")) == []
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


# --- time ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Asia/Kathmandu"])
def test_window_means_the_same_instants_when_session_zone_changes(spark: Any, zone: str) -> None:
    df = frame(spark, "timestamp", RISING["timestamp"])
    first = plan(frame(spark, "timestamp", RISING["timestamp"][:1]))
    before = spark.conf.get("spark.sql.session.timeZone")

    spark.conf.set("spark.sql.session.timeZone", zone)
    found = ids(first, df), ids(plan(df, first), df)

    spark.conf.set("spark.sql.session.timeZone", before)
    assert found == ([0], [1, 2])


# --- the ends of the types -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NARROW)
def test_window_takes_the_last_row_once_when_it_has_the_largest_whole_number(spark: Any, kind: str) -> None:
    df = frame(spark, kind, [str(-NARROW[kind]), "0", str(NARROW[kind] - 1)])

    first = plan(df)
    second = plan(df, first)

    assert first.high == (NARROW[kind],)
    assert (ids(first, df), ids(second, df)) == ([0, 1, 2], [])


@pytest.mark.parametrize("kind", NARROW)
def test_window_takes_all_rows_above_when_watermark_is_at_the_smallest_whole_number(spark: Any, kind: str) -> None:
    lowest = str(-NARROW[kind])
    df = frame(spark, kind, [lowest, str(1 - NARROW[kind])])

    first = plan(frame(spark, kind, [lowest]))
    second = plan(df, first)

    assert (ids(first, df), ids(second, df)) == ([0], [1])


@pytest.mark.parametrize(
    ("kind", "largest"),
    [
        ("decimal(38,10)", "9" * 28 + "." + "9" * 10),
        ("decimal(38,0)", "9" * 38),
        ("decimal(38,38)", "0." + "9" * 38),
        ("decimal(10,2)", "99999999.99"),
    ],
)
def test_window_takes_the_last_row_once_when_it_has_the_largest_decimal(spark: Any, kind: str, largest: str) -> None:
    df = frame(spark, kind, [f"-{largest}", "0", largest])

    first = plan(df)
    second = plan(df, first)
    third = plan(df, second)

    assert first.high == (Decimal(10) ** len(largest.partition(".")[0].lstrip("0")),)
    assert [ids(window, df) for window in (first, second, third)] == [[0, 1, 2], [], []]


@pytest.mark.parametrize(
    ("kind", "sentinel"),
    [
        ("date", "9999-12-31"),
        ("timestamp", "9999-12-31T23:59:59.999999Z"),
        ("timestamp_ntz", "9999-12-31T23:59:59.999999"),
    ],
)
def test_window_leaves_the_row_for_later_when_it_has_the_last_time_there_is(
    spark: Any, kind: str, sentinel: str
) -> None:
    df = frame(spark, kind, [RISING[kind][0], sentinel])

    window = plan(df)

    assert ids(window, df) == [0]


@pytest.mark.parametrize(
    ("kind", "value"),
    [("date", "+10000-01-01"), ("timestamp", "+10000-01-01T00:00:00Z"), ("timestamp_ntz", "-0001-01-01T00:00:00")],
)
def test_plan_raises_cursor_error_when_the_largest_time_is_outside_the_years_of_python(
    spark: Any, kind: str, value: str
) -> None:
    with pytest.raises(CursorError) as caught:
        plan(frame(spark, kind, [value]))

    assert str(caught.value) == (
        "Cursor column 'at': its largest value is outside the years 1 to 9999. Fix or filter that row."
    )


# --- refused ---------------------------------------------------------------------------------------------


def test_plan_raises_cursor_error_with_count_when_cursors_are_null(spark: Any) -> None:
    with pytest.raises(CursorError) as caught:
        plan(frame(spark, "timestamp", [None, "2026-10-25T00:30:00Z", None]))

    assert caught.value.column == "at"
    assert "2 rows have NULL there and no window would ever take them" in str(caught.value)
    assert "Fill it or filter them out." in str(caught.value)


def test_plan_raises_cursor_error_when_nulls_came_after_the_first_run(spark: Any) -> None:
    first = plan(frame(spark, "int", ["5"]))

    with pytest.raises(CursorError, match="1 row has NULL there"):
        plan(frame(spark, "int", ["5", None]), first)


def test_plan_raises_cursor_error_when_column_is_missing(spark: Any) -> None:
    with pytest.raises(CursorError) as caught:
        plan_window(DataFrameRows(frame(spark, "int", ["1"])), ["last_modified"], now=NOW)

    assert str(caught.value) == ("Cursor column 'last_modified': the source has no such column. It has: id, at.")


@pytest.mark.parametrize("kind", ["string", "double", "float", "boolean", "binary"])
def test_plan_raises_cursor_error_when_type_has_no_exact_order(spark: Any, kind: str) -> None:
    with pytest.raises(CursorError) as caught:
        plan(frame(spark, kind, ["1"]))

    assert caught.value.column == "at"
    assert f"a {kind} has no exact order" in str(caught.value)
    as_keys = "Keys of fixed width, which rise byte by byte, are taken with strings=True" in str(caught.value)
    assert as_keys == (kind == "string")


@pytest.mark.parametrize(
    ("before", "now"), [("bigint", "int"), ("decimal(10,2)", "decimal(12,4)"), ("timestamp", "date")]
)
def test_plan_raises_cursor_error_when_type_changed(spark: Any, before: str, now: str) -> None:
    first = plan(frame(spark, before, RISING[before]))

    with pytest.raises(CursorError) as caught:
        plan(frame(spark, now, ["1" if now != "date" else "2026-10-25"]), first)

    assert f"its type was {before} and is {now} now." in str(caught.value)
    assert "Cast it, or give it a transformation_ctx of its own." in str(caught.value)


def test_apply_raises_cursor_error_when_type_changed_since_the_plan_was_frozen(spark: Any) -> None:
    stored = plan(frame(spark, "bigint", ["1"])).to_plan()
    window = RowWindow.from_plan(stored, ["at"], "repairs")

    with pytest.raises(CursorError, match="its type was bigint and is int now"):
        DataFrameRows(frame(spark, "int", ["1"])).rows(window)


@pytest.mark.parametrize(("before", "now"), [("int", "bigint"), ("tinyint", "int"), ("decimal(10,2)", "decimal(12,2)")])
def test_rows_go_on_when_the_type_has_room_for_all_of_the_old_one(spark: Any, before: str, now: str) -> None:
    first = plan(frame(spark, before, ["1", "2"]))
    wider = frame(spark, now, ["1", "2", "3"])

    second = plan(wider, first)
    replay = RowWindow.from_plan(first.to_plan(), ["at"], "repairs")

    assert [int(row.at) for row in DataFrameRows(wider).rows(second).collect()] == [3]
    assert sorted(int(row.at) for row in DataFrameRows(wider).rows(replay).collect()) == [1, 2]
    assert second.state_after["type"] == now


@pytest.mark.parametrize("stored", ["state", "plan"])
def test_source_changed_error_names_both_columns_when_another_one_is_given(spark: Any, stored: str) -> None:
    first = plan(frame(spark, "int", ["1"]))
    df = frame(spark, "int", ["1"]).withColumnRenamed("at", "changed_at")
    again = {
        "state": lambda: plan_window(
            DataFrameRows(df), ["changed_at"], now=NOW, state=first.state_after, context="repairs"
        ),
        "plan": lambda: RowWindow.from_plan(first.to_plan(), ["changed_at"], "repairs"),
    }

    with pytest.raises(SourceError, check=because("changed")) as caught:
        again[stored]()

    assert (caught.value.context, caught.value.before, caught.value.source) == ("repairs", "at", "changed_at")


@pytest.mark.parametrize("state", [{"kind": "files", "source": "s3://b/p/"}, "2023-03-16", {}], ids=str)
def test_plan_raises_source_changed_error_when_state_is_not_of_rows(spark: Any, state: Any) -> None:
    with pytest.raises(SourceError, check=because("changed"), match="context 'repairs' remembers"):
        plan_window(DataFrameRows(frame(spark, "int", ["1"])), ["at"], now=NOW, state=state, context="repairs")


@pytest.mark.parametrize("name", ["last modified", "a`b", "a.b", "ünï", "a`) OR (1=1"])
def test_window_quotes_the_column_when_its_name_is_strange(spark: Any, name: str) -> None:
    df = spark.createDataFrame([(0, 1), (1, 2)], "id int, at int").toDF("id", name)

    window = plan_window(DataFrameRows(df), [name], now=NOW)

    assert ids(window, df) == [0, 1]
