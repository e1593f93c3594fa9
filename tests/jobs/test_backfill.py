"""Backfills with real Spark: old ranges read once beside the live job, and what is covered and what is missing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.backfill import Backfill
from scripts.helpers.errors import (
    BoundsError,
    CursorError,
    PlanConflictError,
    RunInProgressError,
    SourceChangedError,
    UnknownContextError,
    UnknownJobError,
    WatermarkError,
)
from scripts.helpers.job import IncrementalJob
from scripts.helpers.slices import slices
from scripts.helpers.watermarks import Watermarks

JOB, CONTEXT = "parking", "repairs"
STATE = {"kind": "rows", "cursor_column": "id", "type": "bigint"}


class KilledError(Exception):
    """What ends a run in the middle of its work."""


class World:
    """A table of numbered rows that only grows, a target, the live job and its backfills."""

    def __init__(self, spark: Any, watermarks: Watermarks, dynamodb: Any, clock: Any, root: Path) -> None:
        self.dynamodb = dynamodb
        self.spark, self.watermarks, self.clock, self.target = spark, watermarks, clock, f"{root}/target"
        self.last_id = 0

    @property
    def source(self) -> Any:
        return self.spark.range(1, self.last_id + 1)

    def declare(self, value: int) -> None:
        self.last_id = max(self.last_id, value - 1)
        self.watermarks.set_watermark(JOB, STATE | {"value": value}, context=CONTEXT, why="start from here")

    def live(self, rows: int = 0) -> int:
        self.last_id += rows
        with IncrementalJob(self.watermarks, JOB, clock=self.clock) as job:
            return job.write(job.rows_since(self.source, "id", transformation_ctx=CONTEXT), self.target)

    def backfill(self, low: Any, high: Any, run_id: str | None = None, **options: Any) -> Backfill:
        options = {"transformation_ctx": CONTEXT, "clock": self.clock} | options
        return Backfill(self.watermarks, JOB, run_id, low=low, high=high, **options)

    def fill(self, low: Any, high: Any, *, die: bool = False, **options: Any) -> int:
        with self.backfill(low, high, **options) as backfill:
            rows = backfill.write(backfill.rows(self.source, "id"), self.target)
            if die:
                raise KilledError
            return rows

    @property
    def jobs(self) -> set[str]:
        page = self.dynamodb.scan(TableName=self.watermarks.table_name)
        return {item["jobName"]["S"] for item in page["Items"]}

    @property
    def written(self) -> list[int]:
        return sorted(row.id for row in self.spark.read.schema("id bigint").parquet(self.target).collect())

    @property
    def gaps(self) -> list[Any]:
        return self.watermarks.gaps(JOB, CONTEXT)

    @property
    def coverage(self) -> list[Any]:
        return self.watermarks.coverage(JOB, CONTEXT)


@pytest.fixture
def world(spark: Any, watermarks: Watermarks, dynamodb: Any, clock: Any, tmp_path: Path) -> World:
    return World(spark, watermarks, dynamodb, clock, tmp_path)


# --- the live job alone ------------------------------------------------------------------------------------


def test_everything_is_covered_when_live_runs_follow_each_other(world: World) -> None:
    world.live(3)
    world.live(4)

    assert (world.coverage, world.gaps) == ([(None, 8)], [])


def test_jump_is_a_gap_and_earlier_coverage_stays_when_a_watermark_is_set(world: World) -> None:
    world.live(3)
    world.declare(10)
    world.live(2)

    assert (world.coverage, world.gaps) == ([(None, 4), (10, 12)], [(4, 10)])


def test_gaps_begin_where_told_when_asked_from_a_start(world: World) -> None:
    world.declare(10)

    assert world.gaps == [(None, 10)]
    assert world.watermarks.gaps(JOB, CONTEXT, start=7) == [(7, 10)]
    assert world.watermarks.gaps(JOB, CONTEXT, start=20) == []


def test_first_value_is_where_coverage_begins_when_one_is_given(world: World) -> None:
    world.last_id = 9

    with IncrementalJob(world.watermarks, JOB, clock=world.clock) as job:
        job.rows_since(world.source, "id", transformation_ctx=CONTEXT, initial_value=5)

    assert (world.coverage, world.gaps) == ([(5, 10)], [(None, 5)])


def test_coverage_goes_back_when_the_job_is_rewound(world: World) -> None:
    world.live(3)
    world.live(4)

    world.watermarks.rewind(JOB, to_version=1, context=CONTEXT, why="a test")

    assert (world.coverage, world.gaps) == ([(None, 4)], [])


def test_coverage_is_forgotten_with_its_backfills_when_the_job_is_reset(world: World) -> None:
    world.declare(10)
    world.fill(None, 10)

    world.watermarks.reset(JOB, context=CONTEXT, why="the target was lost")
    world.declare(10)

    assert (world.coverage, world.gaps) == ([], [(None, 10)])
    assert world.fill(None, 10) == 9


def test_everything_below_counts_as_covered_when_the_state_is_from_before_coverage_was_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.helpers.administration.kept", lambda values, *_: dict(values))
    world.declare(10)
    monkeypatch.undo()

    world.live(2)

    assert (world.coverage, world.gaps) == ([(None, 12)], [])


def test_values_above_are_covered_when_the_cursor_descends(world: World) -> None:
    with IncrementalJob(world.watermarks, JOB, clock=world.clock) as job:
        job.rows_since(world.spark.range(5, 10), "id", transformation_ctx=CONTEXT, descending=True)
    state = STATE | {"value": 1, "descending": True}
    world.watermarks.set_watermark(JOB, state, context=CONTEXT, why="a jump down")

    assert (world.coverage, world.gaps) == ([(5, None)], [(2, 5)])


def test_ends_have_a_value_for_each_column_when_the_cursor_is_compound(world: World) -> None:
    first, last = (date(2026, 2, 1), 7), (date(2026, 3, 1), 4)
    source = world.spark.sql("SELECT DATE '2026-03-01' AS day, id FROM range(1, 4)")
    with IncrementalJob(world.watermarks, JOB, clock=world.clock) as job:
        job.rows_since(source, ["day", "id"], transformation_ctx=CONTEXT, initial_value=first)

    assert (world.coverage, world.gaps) == ([(first, last)], [(None, first)])
    with world.backfill(*world.gaps[0]) as backfill:
        assert backfill.rows(source, ["day", "id"]).count() == 0
    assert world.gaps == []


# --- a slice -------------------------------------------------------------------------------------------------


def test_slice_takes_its_rows_and_leaves_the_live_job_alone_when_it_fills_a_gap(world: World) -> None:
    world.declare(10)
    before = world.watermarks.latest(JOB)

    rows = world.fill(3, 7)

    assert (rows, world.written) == (4, [3, 4, 5, 6])
    assert world.watermarks.latest(JOB) == before
    assert (world.coverage, world.gaps) == ([(3, 7)], [(None, 3), (7, 10)])


def test_slice_is_in_the_history_of_its_own_job_when_done(world: World) -> None:
    world.declare(10)

    with world.backfill(3, 7, "jr_1") as backfill:
        backfill.write(backfill.rows(world.source, "id"), world.target)

    (entry,) = world.watermarks.history(backfill.job_id)
    assert backfill.job_id.startswith("parking-backfill-")
    assert (entry.change.run_id, entry.change.metrics["rows_collected"]) == ("jr_1", 4)
    (record,) = [job for job in world.jobs if job.startswith("parking-coverage-")]
    (recorded,) = world.watermarks.history(record)
    assert (recorded.change.who, recorded.change.why) == ("jr_1", f"slice {backfill.job_id} is done")


def test_slice_takes_nothing_and_writes_nothing_when_it_was_done_before(world: World) -> None:
    world.declare(10)
    world.fill(3, 7)

    with world.backfill(3, 7) as backfill:
        rows = backfill.rows(world.source, "id")
        found = backfill.is_done, rows.count(), backfill.write(rows, world.target)

    assert found == (True, 0, 0)
    assert world.written == [3, 4, 5, 6]
    assert len(list(Path(world.target).iterdir())) == 1


def test_slice_takes_the_rows_again_when_it_has_another_name_and_the_sink_merges(world: World) -> None:
    world.declare(10)
    world.fill(3, 7)

    assert world.fill(3, 7, name="the source was mended", sink="merge") == 4
    assert world.coverage == [(3, 7)]


def test_slice_replays_its_plan_when_a_run_of_it_died(world: World) -> None:
    world.declare(10)
    with pytest.raises(KilledError):
        world.fill(3, 7, die=True)
    unrecorded = world.coverage

    rows = world.fill(3, 7)

    assert (unrecorded, rows, world.written, world.coverage) == ([], 4, [3, 4, 5, 6], [(3, 7)])


def test_slice_is_recorded_by_the_next_run_when_the_one_that_committed_died_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise KilledError

    world.declare(10)
    monkeypatch.setattr(Watermarks, "change_watermark", die)
    with pytest.raises(KilledError):
        world.fill(3, 7)
    monkeypatch.undo()
    unrecorded = world.coverage

    rows = world.fill(3, 7)

    assert (unrecorded, rows, world.written, world.coverage) == ([], 0, [3, 4, 5, 6], [(3, 7)])


def test_slice_commits_nothing_when_no_rows_were_asked_for(world: World) -> None:
    world.declare(10)

    with world.backfill(3, 7) as backfill:
        pass

    assert world.watermarks.latest(backfill.job_id).version == 0
    assert world.coverage == []


def test_slice_is_refused_when_another_run_works_on_it(world: World) -> None:
    world.declare(10)

    with world.backfill(3, 7, "jr_1"), pytest.raises(RunInProgressError, match="'jr_1'"), world.backfill(3, 7, "jr_2"):
        pass


# --- many slices ---------------------------------------------------------------------------------------------


def test_sink_has_each_row_once_when_the_live_job_goes_on_while_slices_finish_in_any_order(world: World) -> None:
    """Slices run side by side in threads; the first waits until the second, and a live run, are done."""
    world.declare(1_001)
    second_is_done = threading.Event()

    def fill(number: int, bounds: tuple[int, int]) -> int:
        with world.backfill(*bounds) as backfill:
            rows = backfill.rows(world.spark.range(1, 1_001), "id")
            if number == 0:
                assert second_is_done.wait(60)
            return backfill.write(rows, world.target)

    with ThreadPoolExecutor() as pool:
        first, second = (pool.submit(fill, *each) for each in enumerate(slices(0, 1_001, 2)))
        live = world.live(50)
        second.result(60)
        between = world.gaps
        live += world.live(50)
        second_is_done.set()
        total = first.result(60) + second.result() + live

    assert between == [(None, 500)]
    assert world.watermarks.gaps(JOB, CONTEXT, start=0) == []
    assert world.coverage == [(0, 1_101)]
    assert (total, world.written) == (1_100, list(range(1, 1_101)))


def test_every_slice_is_recorded_when_many_finish_at_once(world: World) -> None:
    world.declare(1_000)
    bounds = slices(0, 1_000, 12)

    def read(pair: tuple[int, int]) -> None:
        with world.backfill(*pair) as backfill:
            backfill.rows(world.source, "id")

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(read, reversed(bounds)))

    assert world.coverage == [(0, 1_000)]


def test_instants_tile_when_bounds_of_times_are_cut(world: World) -> None:
    start = datetime(2026, 3, 1, tzinfo=timezone.utc)
    source = world.spark.sql(
        "SELECT explode(sequence(TIMESTAMP '2026-03-01 00:00:00Z', TIMESTAMP '2026-03-02 00:00:00Z', "
        "INTERVAL 1 HOUR)) AS at"
    )
    state = {"kind": "rows", "cursor_column": "at", "type": "timestamp", "value": start + timedelta(days=1)}
    world.watermarks.set_watermark(JOB, state, context=CONTEXT, why="a test")
    (gap,) = world.watermarks.gaps(JOB, CONTEXT, start=start)

    taken = []
    for low, high in slices(*gap, 7):
        with world.backfill(low, high) as backfill:
            taken.append(backfill.rows(source, "at").count())

    assert (sum(taken), len(taken), min(taken)) == (24, 7, 3)
    assert world.watermarks.gaps(JOB, CONTEXT, start=start) == []


# --- what is refused -------------------------------------------------------------------------------------------


REFUSED: dict[str, tuple[Callable[[World], Any], type[WatermarkError], str]] = {
    "past the live watermark": (
        lambda world: world.fill(5, 11), BoundsError, "they reach past the live watermark",
    ),
    "covered in part": (
        lambda world: world.fill(1, 4), BoundsError, r"a part of them is covered already.*sink='merge'",
    ),
    "covered as a whole": (lambda world: world.fill(2, 3), BoundsError, r"a part of them is covered already"),
    "low above high": (lambda world: world.fill(7, 3), BoundsError, "low is not below high"),
    "without an end": (lambda world: world.fill(3, None), BoundsError, "high is missing"),
    "another type": (lambda world: world.fill("3", "7"), CursorError, "low is a str that does not fit a bigint"),
    "unknown sink": (lambda world: world.fill(3, 7, sink="overwrite"), BoundsError, "sink='overwrite' is unknown"),
    "unknown context": (
        lambda world: world.fill(3, 7, transformation_ctx="parts"), UnknownContextError, r"'parts'.*It has: repairs\.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_slice_is_refused_and_nothing_is_stored_when_its_bounds_are_wrong(world: World, case: str) -> None:
    act, error, told = REFUSED[case]
    world.live(2)
    world.declare(10)
    before = world.jobs, world.watermarks.latest(JOB)

    with pytest.raises(error, match=told):
        act(world)

    assert (world.jobs, world.watermarks.latest(JOB)) == before


@pytest.mark.parametrize(
    ("column", "cast", "error", "told"),
    [("other", "bigint", SourceChangedError, "remembers 'id'"), ("id", "int", CursorError, "its type was bigint")],
)
def test_slice_is_refused_when_its_cursor_is_not_that_of_the_live_job(
    world: World, column: str, cast: str, error: type[WatermarkError], told: str
) -> None:
    world.declare(10)
    source = world.source.selectExpr(f"CAST(id AS {cast}) AS {column}")

    with pytest.raises(error, match=told), world.backfill(3, 7) as backfill:
        backfill.rows(source, column)

    assert world.coverage == []
    assert world.watermarks.latest(backfill.job_id).version == 0


def test_backfill_is_refused_when_the_live_job_is_unknown(world: World) -> None:
    with pytest.raises(UnknownJobError):
        world.fill(3, 7)

    with pytest.raises(UnknownJobError):
        world.watermarks.gaps(JOB, CONTEXT)


@pytest.mark.parametrize("ask", ["gaps", "coverage"])
def test_context_is_unknown_when_it_is_not_of_rows(world: World, ask: str) -> None:
    world.watermarks.set_watermark(JOB, {"latest_data": "2023", "repairs": STATE | {"value": 3}}, why="a test")

    with pytest.raises(UnknownContextError, match=r"context 'latest_data'\. It has: repairs\."):
        getattr(world.watermarks, ask)(JOB, "latest_data")


def test_backfill_is_refused_when_it_is_used_outside_the_with_statement(world: World) -> None:
    with pytest.raises(PlanConflictError, match="the backfill has not begun"):
        world.backfill(3, 7).rows(world.source, "id")


def test_log_has_names_and_no_value_when_a_slice_is_read(world: World, caplog: pytest.LogCaptureFixture) -> None:
    state = STATE | {"value": 987_654_321}
    world.watermarks.set_watermark(JOB, state, context=CONTEXT, why="a test")

    with caplog.at_level("INFO", "scripts"), world.backfill(987_654_123, 987_654_125) as backfill:
        backfill.rows(world.spark.range(987_654_120, 987_654_130), "id")

    assert f"event=backfill job={JOB} slice=parking-backfill-" in caplog.text
    assert "987654" not in caplog.text
