"""How a run counts the rows it reads, with real Spark: once, exactly, and without ever failing the run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.spark_frames import DataFrameRows
from scripts.helpers.watermarks import Watermarks
from tests.support.steps import KilledError

JOB = "parking"


class CountedRuns:
    """A job over any source, and the metrics in its history."""

    def __init__(self, spark: Any, watermarks: Watermarks, clock: Any, root: Path) -> None:
        self.spark, self.watermarks, self.clock, self.target = spark, watermarks, clock, f"{root}/target"

    def job(self) -> IncrementalJob:
        return IncrementalJob(self.watermarks, JOB, spark=self.spark, clock=self.clock)

    def ids(self, count: int) -> Any:
        return self.spark.range(1, count + 1)

    def act(self, source: Any, action: Callable[[Any], object], column: str = "id", **options: Any) -> dict[str, Any]:
        """Run the job, call `action` on its rows, and return the metrics of the run."""
        with self.job() as job:
            action(job.rows_since(source, column, transformation_ctx="repairs", **options))
        return self.metrics

    def write(self, source: Any) -> dict[str, Any]:
        with self.job() as job:
            job.write(job.rows_since(source, "id", transformation_ctx="repairs"), self.target)
        return self.metrics

    @property
    def metrics(self) -> dict[str, Any]:
        return dict(self.watermarks.history(JOB)[0].change.metrics)


@pytest.fixture
def runs(spark: Any, watermarks: Watermarks, clock: Any, tmp_path: Path) -> CountedRuns:
    return CountedRuns(spark, watermarks, clock, tmp_path)


# --- what is counted -----------------------------------------------------------------------------------


def test_run_counts_rows_and_ends_and_bytes_when_it_writes(runs: CountedRuns) -> None:
    runs.write(runs.ids(3))

    metrics = runs.write(runs.ids(10))

    size = sum(path.stat().st_size for path in Path(runs.target).glob("part-*-0000000002.*"))
    assert metrics == {
        "rows_collected": 7,
        "rows_written": 7,
        "bytes_written": size,
        "contexts": {"repairs": {"rows": 7, "minimum": 4, "maximum": 10}},
    }


VALUES = {
    "bigint": ("9007199254740993", 9007199254740993),
    "decimal(38,10)": ("1234567890123456789012345678.0123456789", Decimal("1234567890123456789012345678.0123456789")),
    "date": ("2023-03-16", date(2023, 3, 16)),
    "timestamp": ("2025-10-26T00:30:00.000001Z", datetime(2025, 10, 26, 0, 30, 0, 1, timezone.utc)),
    "timestamp_ntz": ("2025-10-26T01:30:00.5", datetime(2025, 10, 26, 1, 30, 0, 500_000, timezone.utc)),
    "string": ("k-0001", "k-0001"),
}


@pytest.mark.parametrize("kind", VALUES)
def test_ends_are_exact_when_the_cursor_is_of_any_type(runs: CountedRuns, kind: str) -> None:
    text, value = VALUES[kind]
    rows = runs.spark.sql(f"SELECT CAST('{text}' AS {kind}) AS `the column`")
    source = DataFrameRows(rows, zone=None if kind == "timestamp" else "UTC")

    found = runs.act(source, ACTIONS["collect"], "the column", strings=True)["contexts"]["repairs"]

    assert found == {"rows": 1, "minimum": value, "maximum": value}
    assert type(found["minimum"]) is type(value)


def test_ends_are_left_out_when_no_row_has_a_cursor(runs: CountedRuns) -> None:
    source = runs.spark.sql("SELECT CAST(NULL AS bigint) AS id")

    found = runs.act(source, lambda rows: rows.collect(), nulls="take", write_disposition="merge")["contexts"][
        "repairs"
    ]

    assert found == {"rows": 1}


def test_end_is_left_out_when_its_text_is_long(runs: CountedRuns) -> None:
    source = runs.spark.sql(f"SELECT id FROM VALUES ('{'k' * 128}'), ('{'l' * 129}') AS source (id)")

    found = runs.act(source, ACTIONS["collect"], strings=True)["contexts"]["repairs"]

    assert found == {"rows": 2, "minimum": "k" * 128}


def test_instants_an_hour_apart_stay_apart_when_the_session_is_in_the_hour_that_comes_twice(runs: CountedRuns) -> None:
    source = runs.spark.sql(
        "SELECT CAST(text AS timestamp) AS at "
        "FROM VALUES ('2025-10-26T00:30:00Z'), ('2025-10-26T01:30:00Z') AS source (text)"
    )

    found = runs.act(source, ACTIONS["collect"], "at")["contexts"]["repairs"]

    assert found["maximum"] - found["minimum"] == datetime(2025, 1, 1, 1) - datetime(2025, 1, 1)


def test_sum_is_that_of_all_contexts_when_a_join_reads_two(runs: CountedRuns) -> None:
    with runs.job() as job:
        one = job.rows_since(runs.ids(10), "id", transformation_ctx="repairs")
        two = job.rows_since(runs.ids(4), "id", transformation_ctx="parts")
        job.write(one.join(two, "id"), runs.target)

    metrics = runs.metrics
    assert (metrics["rows_collected"], metrics["rows_written"]) == (14, 4)
    assert {name: found["rows"] for name, found in metrics["contexts"].items()} == {"repairs": 10, "parts": 4}


def test_all_rows_of_the_window_count_when_the_job_filters_them_later(runs: CountedRuns) -> None:
    metrics = runs.act(runs.ids(10), lambda rows: rows.where("id > 8").collect())

    assert metrics["rows_collected"] == 10


def test_counts_are_the_same_when_the_plan_is_replayed(runs: CountedRuns) -> None:
    with pytest.raises(KilledError), runs.job() as job:
        job.write(job.rows_since(runs.ids(3), "id", transformation_ctx="repairs"), runs.target)
        raise KilledError

    metrics = runs.write(runs.ids(9))

    assert metrics["rows_collected"] == metrics["rows_written"] == 3
    assert metrics["contexts"] == {"repairs": {"rows": 3, "minimum": 1, "maximum": 3}}


def test_rows_are_read_once_when_they_are_counted(runs: CountedRuns, tmp_path: Path) -> None:
    runs.ids(100).write.parquet(f"{tmp_path}/source")
    source = runs.spark.read.parquet(f"{tmp_path}/source")
    context = runs.spark.sparkContext

    with runs.job() as job:
        rows = job.rows_since(source, "id", transformation_ctx="repairs")
        context.setJobGroup("counted", "counted")
        job.write(rows, runs.target)
        job.commit()

    context.setLocalProperty("spark.jobGroup.id", None)
    assert len(context.statusTracker().getJobIdsForGroup("counted")) == 1
    assert runs.metrics["rows_collected"] == 100


# --- what the job does with the rows --------------------------------------------------------------------


ACTIONS: dict[str, Callable[[Any], object]] = {
    "collect": lambda rows: rows.collect(),
    "count": lambda rows: rows.count(),
    "twice": lambda rows: (rows.collect(), rows.where("id < 3").collect()),
    "cached": lambda rows: rows.cache().where("id < 3").count(),
    "self join": lambda rows: rows.alias("a").join(rows.alias("b"), "id").collect(),
    "union": lambda rows: rows.where("id < 3").union(rows.where("id > 5")).collect(),
    "grouped": lambda rows: rows.groupBy((rows.id % 2).alias("odd")).count().collect(),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_rows_are_counted_once_when_they_are_used_in_any_way(runs: CountedRuns, action: str) -> None:
    metrics = runs.act(runs.ids(10), ACTIONS[action])

    assert metrics["contexts"] == {"repairs": {"rows": 10, "minimum": 1, "maximum": 10}}


def test_first_action_counts_when_it_looks_at_a_part_only(runs: CountedRuns) -> None:
    metrics = runs.act(runs.ids(10), lambda rows: (rows.limit(1).collect(), rows.collect()))

    assert metrics["rows_collected"] in range(1, 11)


UNCOUNTED: dict[str, Callable[[Any], object]] = {
    "never": lambda rows: None,
    "as an RDD": lambda rows: rows.rdd.collect(),
}


@pytest.mark.parametrize("action", UNCOUNTED)
def test_run_commits_without_a_sum_when_no_action_on_the_rows_finished(runs: CountedRuns, action: str) -> None:
    """The run must not call Spark's `Observation.get`, which would wait forever for an action."""
    metrics = runs.act(runs.ids(10), UNCOUNTED[action])

    assert metrics.keys() <= {"contexts"}


def test_sum_is_left_out_and_the_rest_kept_when_one_context_was_not_acted_on(runs: CountedRuns) -> None:
    with runs.job() as job:
        job.rows_since(runs.ids(10), "id", transformation_ctx="repairs").collect()
        job.rows_since(runs.ids(4), "id", transformation_ctx="parts")

    assert runs.metrics == {"contexts": {"repairs": {"rows": 10, "minimum": 1, "maximum": 10}}}


def test_nothing_is_counted_without_an_action_when_the_window_is_empty(runs: CountedRuns) -> None:
    runs.act(runs.ids(3), ACTIONS["collect"])

    metrics = runs.act(runs.ids(3), lambda rows: None)

    assert metrics == {"rows_collected": 0, "contexts": {"repairs": {"rows": 0}}}


def test_run_commits_when_an_action_failed_and_the_next_one_did_not(runs: CountedRuns) -> None:
    def fail_once(rows: Any) -> None:
        with pytest.raises(Exception, match="on purpose"):
            rows.selectExpr("raise_error('on purpose')").collect()
        rows.collect()

    runs.act(runs.ids(10), fail_once)

    assert runs.watermarks.latest(JOB).version == 1


# --- what must not go wrong ------------------------------------------------------------------------------


def test_run_commits_when_spark_has_no_way_to_count(runs: CountedRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise TypeError("no such thing here")

    monkeypatch.setattr("pyspark.sql.Observation", refuse)

    metrics = runs.act(runs.ids(3), lambda rows: rows.collect())

    assert metrics == {}


def test_value_stored_by_hand_stays_when_it_has_the_name_of_a_count(runs: CountedRuns) -> None:
    item = runs.watermarks.create_watermark_item(job_id=JOB, run_id="jr_1", rows_collected=808)
    runs.watermarks.add_watermark(item)

    metrics = runs.write(runs.ids(3))

    assert runs.watermarks.get_watermark_values(JOB)["rows_collected"] == 808
    assert (metrics["rows_written"], "rows_collected" in metrics) == (3, False)


def test_sum_alone_is_kept_when_there_are_more_contexts_than_a_history_holds(runs: CountedRuns) -> None:
    with runs.job() as job:
        for number in range(40):
            job.rows_since(runs.ids(0), "id", transformation_ctx=f"{number:03d}" + "x" * 250)

    assert runs.metrics == {"rows_collected": 0}


def test_history_prints_counts_and_no_cursor_when_shown(runs: CountedRuns) -> None:
    runs.act(runs.ids(3), ACTIONS["collect"])

    (entry,) = runs.watermarks.history(JOB)
    assert "rows_collected=3" in repr(entry)
    assert "maximum" not in repr(entry)
