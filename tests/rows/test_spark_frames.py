"""DataFrames as sources of rows with real Spark: compound and text cursors, partitions, time zones."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from scripts.helpers.errors import CursorError, SourceError
from scripts.helpers.rows.date_partitions import DatePartitions
from scripts.helpers.rows.memory import ArrowRows, PandasRows
from scripts.helpers.rows.spark_frames import DataFrameRows, as_source
from scripts.helpers.rows.window import RowWindow
from tests.rows.dynamic_frames import DynamicFrame
from tests.support.row_windows import plan_after, replayed

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=timezone.utc)


def table(spark: Any, names: str, *rows: str) -> Any:
    """Return rows made of SQL expressions."""
    return spark.sql(f"SELECT * FROM VALUES {', '.join(f'({row})' for row in rows)} AS source ({names})")


def plan(source: Any, names: list[str], before: RowWindow | None = None, **options: Any) -> RowWindow:
    options = {"now": NOW, "delay": timedelta(0)} | options
    if not hasattr(source, "facts"):
        frame: Any = as_source(source, "repairs")
        has_zone = dict(frame.df.dtypes).get(names[0]) == "timestamp"
        source = DataFrameRows(source, zone=None if has_zone else "UTC", name="repairs")
    return plan_after(before, source, names, **options)


def ids(source: Any, window: RowWindow) -> list[int]:
    return sorted(row.id for row in as_source(source, "repairs").rows(replayed(window)).collect())


def physical(df: Any) -> str:
    text: str = df._jdf.queryExecution().executedPlan().toString()
    return text


# --- cursors of several columns, falling ones, texts --------------------------------------------------


@pytest.mark.parametrize(
    "kinds", ["timestamp, bigint", "date, timestamp", "decimal(10,2), date", "timestamp_ntz, decimal(38,10)"]
)
def test_last_of_each_column_is_exact_when_the_cursor_is_compound(spark: Any, kinds: str) -> None:
    one, two = kinds.split(", ", 1)
    values = {
        "timestamp": ["'2026-10-25T00:30:00Z'", "'2026-10-25T01:30:00.000001Z'"],
        "timestamp_ntz": ["'2026-10-25T01:30:00'", "'2026-10-25T01:30:00.000001'"],
        "date": ["'2026-10-24'", "'2026-10-25'"],
        "bigint": ["'-1'", "'9007199254740993'"],
        "decimal(10,2)": ["'-0.01'", "'0.00'"],
        "decimal(38,10)": ["'1'", "'1234567890123456789012345678.0123456789'"],
    }
    pairs = [(first, second) for first in values[one] for second in values[two]]
    texts = [f"{number}, {first}, {second}" for number, (first, second) in enumerate(pairs)]
    df = table(spark, "id, a, b", *texts).selectExpr("id", f"CAST(a AS {one}) a", f"CAST(b AS {two}) b")

    windows: list[RowWindow] = []
    for count in (1, 2, 3, 4, 4):
        windows.append(plan(df.where(f"id < {count}"), ["a", "b"], windows[-1] if windows else None))

    assert [ids(df, window) for window in windows] == [[0], [1], [2], [3], []]


TEXTS = ["", "A", "a", "a\x01", "a'b", "a\\", "z", "~"]


def test_texts_are_read_byte_by_byte_when_they_are_asked_for(spark: Any) -> None:
    df = spark.createDataFrame(list(enumerate(TEXTS)), "id int, at string")

    windows: list[RowWindow] = []
    for count in range(1, len(TEXTS) + 1):
        windows.append(plan(df.where(f"id < {count}"), ["at"], windows[-1] if windows else None, strings=True))

    assert [ids(df, window) for window in windows] == [[number] for number in range(len(TEXTS))]


@pytest.mark.parametrize("engine", ["Spark", "pyarrow"])
@pytest.mark.parametrize(
    ("runs", "warned"),
    [
        ([["k-001", "k-002"], ["k-003"]], [False, False]),
        ([["2026-08-26", "2026-08-27T00:00:00Z"], ["2026-08-28"], ["2026-08-29"]], [True, True, False]),
        ([["2026-08-27T10:00:00+02:00"], ["2026-08-27T11:00:00-04:00"]], [True, True]),
        ([["2026-08-27T10:00:00+00:00"], []], [False, False]),
    ],
    ids=["keys", "lengths", "offsets", "UTC"],
)
def test_each_run_warns_of_texts_when_they_are_not_in_the_order_of_their_bytes(
    spark: Any, caplog: pytest.LogCaptureFixture, engine: str, runs: list[list[str]], warned: list[bool]
) -> None:
    texts: list[str] = []
    window, found = None, []
    for new in runs:
        texts += new
        source: Any = ArrowRows(pa.table({"at": texts}))
        if engine == "Spark":
            source = DataFrameRows(table(spark, "at", *(f"'{text}'" for text in texts)))
        caplog.clear()
        window = plan(source, ["at"], window, strings=True)
        found.append("event=unordered_texts context=repairs column=at" in caplog.text)

    assert found == warned


@pytest.mark.parametrize(
    ("kind", "zone", "high"),
    [
        ("timestamp_ntz", "America/Los_Angeles", datetime(2026, 11, 1, 4, tzinfo=timezone.utc)),
        ("timestamp_ntz", "UTC", NOW),
        ("date", "Pacific/Kiritimati", date(2026, 11, 2)),
        ("date", "America/Los_Angeles", date(2026, 11, 1)),
    ],
)
def test_window_ends_by_the_wall_clock_of_the_zone_when_the_column_has_none(
    spark: Any, kind: str, zone: str, high: Any
) -> None:
    df = table(spark, "id, at", "1, '2026-11-09'").selectExpr("id", f"CAST(at AS {kind}) AS at")

    assert plan(DataFrameRows(df, zone=zone), ["at"]).high == (high,)


@pytest.mark.parametrize("engine", ["Spark", "pandas", "pyarrow"])
def test_zone_is_refused_when_the_column_has_one(spark: Any, engine: str) -> None:
    rows = table(spark, "id, at", "1, timestamp'2026-01-01 10:00:00'")
    stamps = pa.table({"at": pa.array([NOW], pa.timestamp("us", "UTC"))})
    source: Any = {
        "Spark": lambda: DataFrameRows(rows, zone="UTC"),
        "pandas": lambda: PandasRows(stamps.to_pandas(), zone="UTC"),
        "pyarrow": lambda: ArrowRows(stamps, zone="UTC"),
    }[engine]()

    with pytest.raises(CursorError, match=r"'at': zone= is for times without a zone.*TIMESTAMP_NTZ"):
        plan(source, ["at"])


@pytest.mark.parametrize("format", ["csv", "json"])
def test_times_of_texts_are_warned_of_in_the_first_run_when_spark_chose_their_zone(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, format: str
) -> None:
    place = f"{tmp_path}/raw"
    spark.sql("SELECT 1 AS id, '2026-01-01 10:00:00' AS at").write.format(format).save(place)
    read = spark.read.format(format)
    instants, walls = (read.schema(f"id int, at {kind}").load(place) for kind in ("timestamp", "timestamp_ntz"))

    plan(DataFrameRows(walls, zone="UTC"), ["at"])
    assert "event=no_zone" not in caplog.text
    window = plan(instants.withColumnRenamed("at", "b"), ["b"])
    assert "column=b: the column has no time zone; its zone is taken to be that of Spark's" in caplog.text
    assert f"by its reader of {format.upper()}. " in caplog.text
    caplog.clear()
    plan_after(window, DataFrameRows(instants.withColumnRenamed("at", "b")), ["b"], now=NOW)
    assert "event=no_zone" not in caplog.text


def test_source_is_refused_when_its_zone_is_unknown(spark: Any) -> None:
    with pytest.raises(SourceError, match=r"'parts': zone='Mars' is unknown\. Give a name such as 'Europe/London'"):
        DataFrameRows(table(spark, "id", "1"), zone="Mars", name="parts")


def test_text_watermark_is_a_text_when_it_was_made_to_be_sql(spark: Any) -> None:
    df = table(spark, "id, at", "1, 'a'", "2, 'z'")
    evil = plan(df, ["at"], strings=True).state_after | {"value": "y' OR '1'='1"}

    window = plan(df, ["at"], state=evil, strings=True)

    assert ids(df, window) == [2]


def test_predicate_reaches_parquet_when_the_cursor_is_compound_or_a_text(spark: Any, tmp_path: Path) -> None:
    table(spark, "id, at", "1, 'a'", "2, 'b'").write.parquet(str(tmp_path / "source"))
    df = spark.read.parquet(str(tmp_path / "source"))
    text = plan(df, ["at"], plan(df.where("id = 1"), ["at"], strings=True), strings=True)
    both = plan(df, ["id", "at"], plan(df.where("id = 1"), ["id", "at"], strings=True), strings=True)

    spark.conf.set("spark.sql.maxMetadataStringLength", "1000")
    plans = [physical(DataFrameRows(df).rows(window)) for window in (text, both)]

    spark.conf.unset("spark.sql.maxMetadataStringLength")
    pushed = [plan[plan.index("PushedFilters: ") :].splitlines()[0] for plan in plans]
    assert "GreaterThanOrEqual(at,a\x01)" in pushed[0]
    assert "LessThan(at,b\x01)" in pushed[0]
    assert "GreaterThanOrEqual(id,1)" in pushed[1]
    assert "LessThanOrEqual(id,2)" in pushed[1]
    assert [ids(df, window) for window in (text, both)] == [[2], [2]]


# --- partitions by date ---------------------------------------------------------------------------------

LAYOUTS = {
    "int": ("year=%Y/month=%m/day=%d", "year", "true"),
    "string": ("year=%Y/month=%m/day=%d", "year", "false"),
    "one int": ("import_date=%Y%m%d", "import_date", "true"),
    "one string": ("import_date=%Y%m%d", "import_date", "false"),
    "date": ("import_date=%Y-%m-%d", "import_date", "true"),
    "date as string": ("import_date=%Y-%m-%d", "import_date", "false"),
}


def days_of(count: int) -> list[date]:
    return [date(2026, 9, 28) + timedelta(days=number) for number in range(count)]


@pytest.fixture
def by_day(spark: Any, tmp_path: Path) -> Iterator[Any]:
    """Return a function that builds a Parquet table with one row at noon of each day, in folders by date."""
    setting = "spark.sql.sources.partitionColumnTypeInference.enabled"

    def make(layout: str, infer: str, count: int = 8) -> Any:
        rows = [(number, day.isoformat() + "T12:00:00Z") for number, day in enumerate(days_of(count))]
        df = spark.createDataFrame(rows, "id int, at string").selectExpr("id", "CAST(at AS timestamp) AS at")
        names = []
        for name, form in (part.split("=") for part in layout.split("/")):
            pattern = form.replace("%Y", "yyyy").replace("%m", "MM").replace("%d", "dd")
            df = df.selectExpr("*", f"date_format(at, '{pattern}') AS {name}")
            names.append(name)
        df.write.partitionBy(*names).parquet(str(tmp_path / "source"))
        spark.conf.set(setting, infer)
        return spark.read.parquet(str(tmp_path / "source"))

    yield make
    spark.conf.unset(setting)


def partitions_read(df: Any) -> int:
    """Return how many partitions Spark reads for a query, according to Spark's own metrics."""
    scan = df._jdf.queryExecution().executedPlan()
    df.collect()
    while scan.children().size():
        scan = scan.children().apply(0)
    count: int = scan.metrics().apply("numPartitions").value()
    return count


@pytest.mark.parametrize("name", LAYOUTS)
def test_only_partitions_of_the_window_are_read_when_the_layout_is_told(spark: Any, by_day: Any, name: str) -> None:
    layout, column, infer = LAYOUTS[name]
    df = by_day(layout, infer)
    source = DataFrameRows(df, partitions=DatePartitions(layout))
    first = plan(source, ["at"], high=datetime(2026, 10, 1, tzinfo=timezone.utc))

    second = plan(source, ["at"], first, high=datetime(2026, 10, 2, tzinfo=timezone.utc))
    rows = source.rows(second)

    filters = physical(rows).partition("PartitionFilters: [")[2].partition("]")[0]
    assert f"{column}#" in filters
    assert " at#" not in filters
    assert partitions_read(rows) == 4
    assert (ids(source, first), ids(source, second)) == ([0, 1, 2], [3])


def test_planning_reads_new_partitions_only_when_the_layout_is_told(spark: Any, by_day: Any) -> None:
    df = by_day("import_date=%Y%m%d", "true")
    first = plan(df, ["at"], high=datetime(2026, 10, 3, tzinfo=timezone.utc))
    asked: list[Any] = []

    class Spy(DataFrameRows):
        """Records the DataFrames that it aggregates."""

        def _pruned(self, *arguments: Any) -> Any:
            asked.append(super()._pruned(*arguments))
            return asked[-1]

    plan(Spy(df, partitions=DatePartitions("import_date=%Y%m%d")), ["at"], first)

    assert partitions_read(asked[0]) == 4


def test_same_rows_are_taken_with_and_without_partitions_when_windows_follow_each_other(by_day: Any) -> None:
    layout = "year=%Y/month=%m/day=%d"
    df = by_day(layout, "true")
    pruned = DataFrameRows(df, partitions=DatePartitions(layout, timedelta(0)))
    ends = [datetime(2026, 9, 29, 12, tzinfo=timezone.utc), datetime(2026, 10, 2, tzinfo=timezone.utc), None]

    taken: list[list[int]] = []
    before = None
    for high in ends:
        before = plan(pruned, ["at"], before, high=high)
        assert ids(pruned, before) == ids(df, before)
        taken.append(ids(pruned, before))

    assert taken == [[0], [1, 2, 3], [4, 5, 6, 7]]


def test_plan_is_refused_when_late_rows_may_be_in_partitions_that_are_left_out(by_day: Any) -> None:
    source = DataFrameRows(by_day("import_date=%Y%m%d", "true"), partitions=DatePartitions("import_date=%Y%m%d"))

    with pytest.raises(CursorError, match=r"rows may come 2 days, 0:00:00 after their stamp, .* than slack=1 day"):
        plan(source, ["at"], delay=timedelta(days=2))


def test_null_is_not_counted_when_its_partition_is_left_out(by_day: Any) -> None:
    """docs/rows.md describes this."""
    df = by_day("import_date=%Y%m%d", "true").selectExpr("id", "CASE WHEN id > 0 THEN at END AS at", "import_date")
    source = DataFrameRows(df, partitions=DatePartitions("import_date=%Y%m%d"))
    later = datetime(2026, 10, 3, tzinfo=timezone.utc)

    with pytest.raises(CursorError, match="1 row has NULL there"):
        plan(source, ["at"])
    assert ids(source, plan(source, ["at"], start_from=later)) == [5, 6, 7]


def test_rows_of_a_partition_without_date_are_taken_when_others_are_left_out(spark: Any, tmp_path: Path) -> None:
    days = ["NULL", "'unknown'", "'2026-10-05'", "'2020-01-01'"]
    rows = [f"{number}, TIMESTAMP '2026-10-05 12:00:00', {day}" for number, day in enumerate(days, 1)]
    table(spark, "id, at, day", *rows).write.partitionBy("day").parquet(str(tmp_path / "source"))
    source = DataFrameRows(spark.read.parquet(str(tmp_path / "source")), partitions=DatePartitions("day=%Y-%m-%d"))

    window = plan(source, ["at"], start_from=datetime(2026, 10, 5, tzinfo=timezone.utc))

    assert ids(source, window) == [1, 2, 3]


def test_all_partitions_are_read_when_rows_with_null_are_included(spark: Any, by_day: Any) -> None:
    df = by_day("import_date=%Y%m%d", "true").selectExpr("id", "CASE WHEN id > 0 THEN at END AS at", "import_date")
    source = DataFrameRows(df, partitions=DatePartitions("import_date=%Y%m%d"))
    first = plan(source, ["at"], nulls="take", write_disposition="merge")

    second = plan(source, ["at"], first, nulls="take", write_disposition="merge")

    assert ids(source, second) == [0]


@pytest.mark.parametrize(
    ("name", "layout", "error", "text"),
    [
        ("id", "import_date=%Y%m%d", CursorError, "a int has no date to find partitions by. Leave out partitions."),
        ("at", "day=%Y%m%d", SourceError, "there is no column 'day'. The source has: id, at, import_date."),
    ],
)
def test_source_is_refused_when_partitions_do_not_fit_it(
    by_day: Any, name: str, layout: str, error: type[Exception], text: str
) -> None:
    source = DataFrameRows(by_day("import_date=%Y%m%d", "true", 1), partitions=DatePartitions(layout))

    with pytest.raises(error) as caught:
        plan(source, [name], start_from=1 if name == "id" else NOW)

    assert text in str(caught.value)


# --- Glue's DynamicFrame ----------------------------------------------------------------------------------


def test_rows_are_taken_when_the_source_is_a_dynamic_frame(spark: Any) -> None:
    frame = DynamicFrame(table(spark, "id, at", "1, 10", "2, 20"))

    first = plan(frame, ["at"], high=15)

    assert (ids(frame, first), ids(frame, plan(frame, ["at"], first))) == ([1], [2])


def test_source_is_used_as_it_is_when_it_is_one(spark: Any) -> None:
    source = DataFrameRows(table(spark, "id, facts", "1, 10"))

    assert as_source(source, "repairs") is source
    assert isinstance(as_source(source.df, "repairs"), DataFrameRows)


# --- the hour that comes twice ------------------------------------------------------------------------------


@pytest.fixture
def in_zones(spark: Any) -> Iterator[Any]:
    """Return a function that sets the time zones of the session and of this process."""
    session, process = spark.conf.get("spark.sql.session.timeZone"), os.environ.get("TZ")

    def enter(session_zone: str, process_zone: str) -> None:
        spark.conf.set("spark.sql.session.timeZone", session_zone)
        os.environ["TZ"] = process_zone
        time.tzset()

    yield enter
    spark.conf.set("spark.sql.session.timeZone", session)
    os.environ.pop("TZ") if process is None else os.environ.update(TZ=process)
    time.tzset()


@pytest.mark.parametrize("process_zone", ["Europe/London", "UTC", "America/New_York"])
@pytest.mark.parametrize("session_zone", ["Europe/London", "UTC", "Asia/Kathmandu"])
def test_repeated_hour_is_read_right_when_zones_differ(
    spark: Any, in_zones: Any, session_zone: str, process_zone: str
) -> None:
    """Both instants are 01:30 in London; for one of them PySpark's own conversion is an hour off."""
    in_zones(session_zone, process_zone)
    texts = ["1, '2026-10-25T00:30:00Z'", "2, '2026-10-25T01:30:00Z'", "3, '2026-10-25T02:30:00Z'"]
    df = table(spark, "id, at", *texts).selectExpr("id", "CAST(at AS timestamp) AS at")

    windows: list[RowWindow] = []
    for count in (1, 2, 3):
        windows.append(plan(df.where(f"id <= {count}"), ["at"], windows[-1] if windows else None))

    assert [window.high for window in windows] == [
        (datetime(2026, 10, 25, hour, 30, 0, 1, tzinfo=timezone.utc),) for hour in (0, 1, 2)
    ]
    assert [ids(df, window) for window in windows] == [[1], [2], [3]]


# --- batches -----------------------------------------------------------------------------------------------


def test_instants_are_exact_when_a_batch_ends_at_one(spark: Any) -> None:
    stamps = [f"TIMESTAMP '2025-10-26T00:30:0{number}.00000{number}Z', {number}" for number in range(1, 4)]
    df = table(spark, "at, id", *stamps)

    window = plan(df, ["at"], max_rows=2)

    assert window.high == (datetime(2025, 10, 26, 0, 30, 3, 3, timezone.utc),)
    assert ids(df, window) == [1, 2]
