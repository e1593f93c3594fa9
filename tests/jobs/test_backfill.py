"""Backfills read old ranges once beside the live job, with and without Spark, and record what is covered."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pandas as pd
import pyarrow as pa
import pytest

from scripts.helpers.backfill import Backfill
from scripts.helpers.errors import (
    BoundsError,
    CorruptItemError,
    CursorError,
    InvalidValueError,
    NothingThereError,
    PlanConflictError,
    RunInProgressError,
    SourceError,
    UnknownJobError,
    WatermarkError,
)
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.values import Spilled
from scripts.helpers.rows.coverage import MAX_SLICES, BackfillRecord, backfill_record_id, slices
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.memory import PandasRows
from scripts.helpers.rows.plan import first_uuid_at
from scripts.helpers.rows.states import RowsState
from scripts.helpers.watermarks import Watermarks
from tests.support.dynamodb import FakeDynamoDB
from tests.support.listed_rows import ListedRows
from tests.support.patience import PATIENCE
from tests.support.reasons import because
from tests.support.rows_states import with_coverage
from tests.support.steps import KilledError, commit
from tests.support.table_items import all_items

JOB, CONTEXT = "parking", "repairs"
STATE = {"kind": "rows", "cursor_column": "id", "type": "bigint"}


class Covered:
    """A job with shortcuts for its coverage and its gaps."""

    watermarks: Watermarks

    @property
    def gaps(self) -> list[Any]:
        return self.watermarks.gaps(JOB, CONTEXT)

    @property
    def coverage(self) -> list[Any]:
        return self.watermarks.coverage(JOB, CONTEXT)


class GrowingTable(Covered):
    """A growing table of numbered rows, a target, the live job and its backfills, with pandas or Spark."""

    spark: Any = None

    def __init__(self, watermarks: Watermarks, clock: Any, root: Path) -> None:
        self.watermarks, self.clock, self.target = watermarks, clock, root / "target"
        self.last_id = 0

    @property
    def source(self) -> Any:
        if self.spark is not None:
            return self.spark.range(1, self.last_id + 1)
        return pd.DataFrame({"id": range(1, self.last_id + 1)}, dtype="int64")

    def declare(self, value: int) -> None:
        self.last_id = max(self.last_id, value - 1)
        self.watermarks.set_watermark(JOB, STATE | {"value": value}, transformation_ctx=CONTEXT, why="start from here")

    def live(self, rows: int = 0) -> int:
        self.last_id += rows
        with IncrementalJob(self.watermarks, JOB, clock=self.clock) as job:
            return job.write(job.rows_since(self.source, "id", transformation_ctx=CONTEXT), str(self.target))

    def backfill(self, low: Any, high: Any, run_id: str | None = None, **options: Any) -> Backfill:
        options = {"transformation_ctx": CONTEXT, "clock": self.clock} | options
        return Backfill(self.watermarks, JOB, run_id, low=low, high=high, **options)

    def fill(self, low: Any, high: Any, **options: Any) -> int:
        with self.backfill(low, high, **options) as backfill:
            return backfill.write(backfill.rows(self.source, "id"), str(self.target))

    @property
    def jobs(self) -> set[str]:
        return {job for job, _ in all_items(self.watermarks)}

    @property
    def written(self) -> list[int]:
        return sorted(value for path in self.target.glob("part-*") for value in pd.read_parquet(path)["id"])


@pytest.fixture
def table(watermarks: Watermarks, clock: Any, tmp_path: Path) -> GrowingTable:
    return GrowingTable(watermarks, clock, tmp_path)


@pytest.fixture
def on_spark(table: GrowingTable, spark: Any) -> None:
    """Make Spark read and write the rows."""
    table.spark = spark


# --- the live job alone ------------------------------------------------------------------------------------


def test_everything_is_covered_when_live_runs_follow_each_other(table: GrowingTable) -> None:
    table.live(3)
    table.live(4)

    assert (table.coverage, table.gaps) == ([(None, 8)], [])


def test_jump_is_a_gap_and_earlier_coverage_stays_when_a_watermark_is_set(table: GrowingTable) -> None:
    table.live(3)
    table.declare(10)
    table.live(2)

    assert (table.coverage, table.gaps) == ([(None, 4), (10, 12)], [(4, 10)])


def test_gaps_begin_at_the_start_when_one_is_given(table: GrowingTable) -> None:
    table.declare(10)

    assert table.gaps == [(None, 10)]
    assert table.watermarks.gaps(JOB, CONTEXT, start=7) == [(7, 10)]
    assert table.watermarks.gaps(JOB, CONTEXT, start=20) == []


def test_coverage_begins_at_start_from_when_the_first_run_has_one(table: GrowingTable) -> None:
    table.last_id = 9

    with IncrementalJob(table.watermarks, JOB, clock=table.clock) as job:
        job.rows_since(table.source, "id", transformation_ctx=CONTEXT, start_from=5)

    assert (table.coverage, table.gaps) == ([(5, 10)], [(None, 5)])


def test_coverage_goes_back_when_the_job_is_rewound(table: GrowingTable) -> None:
    table.live(3)
    table.live(4)

    table.watermarks.rewind(JOB, to_version=1, transformation_ctx=CONTEXT, why="a test")

    assert (table.coverage, table.gaps) == ([(None, 4)], [])


def test_coverage_is_forgotten_with_its_backfills_when_the_job_is_reset(table: GrowingTable) -> None:
    table.declare(10)
    table.fill(None, 10)

    table.watermarks.reset(JOB, transformation_ctx=CONTEXT, why="the target was lost")
    table.declare(10)

    assert (table.coverage, table.gaps) == ([], [(None, 10)])
    assert table.fill(None, 10) == 9


def test_everything_below_counts_as_covered_when_the_state_is_from_before_coverage_was_kept(
    table: GrowingTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowsState, "with_coverage_kept", lambda state, *_: state)
    table.declare(10)
    monkeypatch.undo()

    table.live(2)

    assert (table.coverage, table.gaps) == ([(None, 12)], [])


def test_values_above_are_covered_when_the_cursor_descends(table: GrowingTable) -> None:
    table.last_id = 9
    with IncrementalJob(table.watermarks, JOB, clock=table.clock) as job:
        job.rows_since(table.source[4:], "id", transformation_ctx=CONTEXT, descending=True)
    state = STATE | {"value": 1, "descending": True}
    table.watermarks.set_watermark(JOB, state, transformation_ctx=CONTEXT, why="a jump down")

    assert (table.coverage, table.gaps) == ([(5, None)], [(2, 5)])


def test_ends_have_a_value_for_each_column_when_the_cursor_is_compound(table: GrowingTable) -> None:
    first, last = (date(2026, 2, 1), 7), (date(2026, 3, 1), 4)
    source = PandasRows(pd.DataFrame({"day": [date(2026, 3, 1)] * 3, "id": [1, 2, 3]}), zone="UTC")
    with IncrementalJob(table.watermarks, JOB, clock=table.clock) as job:
        job.rows_since(source, ["day", "id"], transformation_ctx=CONTEXT, start_from=first)

    assert (table.coverage, table.gaps) == ([(first, last)], [(None, first)])
    with table.backfill(*table.gaps[0]) as backfill:
        rows: Any = backfill.rows(source, ["day", "id"])
    assert len(rows) == 0
    assert table.gaps == []


# --- a slice -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("on_spark")
def test_slice_takes_its_rows_and_leaves_the_live_job_alone_when_it_fills_a_gap(table: GrowingTable) -> None:
    table.declare(10)
    before = table.watermarks.latest(JOB)

    rows = table.fill(3, 7)

    assert (rows, table.written) == (4, [3, 4, 5, 6])
    assert table.watermarks.latest(JOB) == before
    assert (table.coverage, table.gaps) == ([(3, 7)], [(None, 3), (7, 10)])


def test_slice_is_in_the_history_of_its_own_job_when_done(table: GrowingTable) -> None:
    table.declare(10)

    with table.backfill(3, 7, "jr_1") as backfill:
        backfill.write(backfill.rows(table.source, "id"), str(table.target))

    (entry,) = table.watermarks.history(backfill.job_id)
    assert backfill.job_id.startswith("parking-backfill-")
    assert (entry.change.run_id, entry.change.metrics["rows_collected"]) == ("jr_1", 4)
    (record,) = [job for job in table.jobs if job.startswith("parking-coverage-")]
    recorded = [(entry.change.who, entry.change.why) for entry in table.watermarks.history(record)]
    assert recorded == [("jr_1", f"slice {backfill.job_id} is {verb}") for verb in ("done", "begun")]


@pytest.mark.usefixtures("on_spark")
def test_slice_takes_nothing_and_writes_nothing_when_it_was_done_before(table: GrowingTable) -> None:
    table.declare(10)
    table.fill(3, 7)

    with table.backfill(3, 7) as backfill:
        rows = backfill.rows(table.source, "id")
        found = backfill.is_done, rows.count(), backfill.write(rows, str(table.target))

    assert found == (True, 0, 0)
    assert table.written == [3, 4, 5, 6]
    assert {path.name.partition(".")[0][-10:] for path in table.target.glob("part-*")} == {"0000000001"}


def test_slice_takes_the_rows_again_when_it_has_another_name_and_the_sink_merges(table: GrowingTable) -> None:
    table.declare(10)
    table.fill(3, 7)

    assert table.fill(3, 7, name="the source was mended", write_disposition="merge") == 4
    assert table.coverage == [(3, 7)]


def test_next_run_records_the_slice_when_the_last_one_died_after_its_commit(
    table: GrowingTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KilledError

    table.declare(10)
    monkeypatch.setattr(BackfillRecord, "finish", die)
    with pytest.raises(KilledError):
        table.fill(3, 7)
    monkeypatch.undo()
    unrecorded = table.coverage

    rows = table.fill(3, 7)

    assert (unrecorded, rows, table.written, table.coverage) == ([], 0, [3, 4, 5, 6], [(3, 7)])


def test_slice_commits_nothing_when_no_rows_were_asked_for(table: GrowingTable) -> None:
    table.declare(10)

    with table.backfill(3, 7) as backfill:
        pass

    assert table.watermarks.latest(backfill.job_id).version == 0
    assert table.coverage == []


def test_slice_is_refused_when_another_run_works_on_it(table: GrowingTable) -> None:
    table.declare(10)

    with table.backfill(3, 7, "jr_1"), pytest.raises(RunInProgressError, match="'jr_1'"), table.backfill(3, 7, "jr_2"):
        pass


def test_backfill_is_refused_when_an_option_would_keep_it_from_saving(table: GrowingTable) -> None:
    for options in ({"mode": "pause"}, {"namespace": "a"}, {"from_run": "jr_1"}):
        with pytest.raises(InvalidValueError, match=f"no option {next(iter(options))}"):
            table.backfill(3, 7, **options)


# --- many slices ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("on_spark")
def test_sink_has_each_row_once_when_the_live_job_goes_on_while_slices_finish_in_any_order(table: GrowingTable) -> None:
    """Two slices run in threads. The first waits until the second slice and a live run are done."""
    table.declare(1_001)
    second_is_done = threading.Event()

    def fill(number: int, bounds: tuple[int, int]) -> int:
        with table.backfill(*bounds) as backfill:
            rows = backfill.rows(table.spark.range(1, 1_001), "id")
            if number == 0:
                assert second_is_done.wait(PATIENCE)
            return backfill.write(rows, str(table.target))

    with ThreadPoolExecutor() as pool:
        first, second = (pool.submit(fill, *each) for each in enumerate(slices(0, 1_001, 2)))
        live = table.live(50)
        second.result(PATIENCE)
        between = table.gaps
        live += table.live(50)
        second_is_done.set()
        total = first.result(PATIENCE) + second.result() + live

    assert between == [(None, 0), (0, 500)]
    assert table.watermarks.gaps(JOB, CONTEXT, start=0) == []
    assert table.coverage == [(0, 1_101)]
    assert (total, table.written) == (1_100, list(range(1, 1_101)))


def test_every_slice_is_recorded_when_many_finish_at_once() -> None:
    """Uses a table in memory, because moto's conditional writes are not atomic among threads."""
    listed = Listed(Watermarks("table", FakeDynamoDB("table")))  # type: ignore[arg-type]
    listed.declare(1_000)

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda pair: listed.fill(*pair), reversed(slices(0, 1_000, 12))))

    assert listed.coverage == [(0, 1_000)]


def test_slices_take_each_row_once_when_a_gap_of_times_is_cut(table: GrowingTable) -> None:
    start = datetime(2026, 3, 1, tzinfo=timezone.utc)
    source = pd.DataFrame({"at": [start + timedelta(hours=hour) for hour in range(25)]})
    state = {"kind": "rows", "cursor_column": "at", "type": "timestamp", "value": start + timedelta(days=1)}
    table.watermarks.set_watermark(JOB, state, transformation_ctx=CONTEXT, why="a test")
    (gap,) = table.watermarks.gaps(JOB, CONTEXT, start=start)

    taken = []
    for low, high in slices(*gap, 7):
        with table.backfill(low, high) as backfill:
            rows: Any = backfill.rows(source, "at")
            taken.append(len(rows))

    assert (sum(taken), len(taken), min(taken)) == (24, 7, 3)
    assert table.watermarks.gaps(JOB, CONTEXT, start=start) == []


# --- unfinished slices -----------------------------------------------------------------------------------------


class Listed(Covered):
    """Rows in a list, the live job's watermark, and a sink that stores each batch by its key, without Spark."""

    def __init__(self, watermarks: Watermarks, rows: int = 20, kind: str = "bigint") -> None:
        self.watermarks = watermarks
        self.sink: dict[str, Any] = {}
        self.source = ListedRows((CursorColumn("id", kind),), [(number,) for number in range(rows)])

    def declare(self, value: Any, **more: Any) -> None:
        state = STATE | {"type": self.source.cursors[0].type, "value": value} | more
        self.watermarks.set_watermark(JOB, state, transformation_ctx=CONTEXT, why="start from here")

    def backfill(self, low: Any, high: Any, **options: Any) -> Backfill:
        options = {"transformation_ctx": CONTEXT, "clock": self.watermarks.clock, **options}
        return Backfill(self.watermarks, JOB, low=low, high=high, **options)

    def take(self, backfill: Backfill, **options: Any) -> None:
        rows: Any = backfill.rows(self.source, "id", **options)
        self.sink[str(backfill.freeze().id)] = rows

    def fill(self, low: Any, high: Any, *, die: bool = False, **options: Any) -> None:
        with self.backfill(low, high, **options) as backfill:
            self.take(backfill)
            if die:
                raise KilledError

    def live(self, **options: Any) -> None:
        with IncrementalJob(self.watermarks, JOB, clock=self.watermarks.clock) as job:
            rows: Any = job.rows_since(self.source, "id", transformation_ctx=CONTEXT, **options)
            self.sink[str(job.freeze().id)] = rows

    @property
    def unfinished(self) -> Any:
        return self.watermarks.unfinished(JOB, CONTEXT)

    @property
    def written(self) -> list[Any]:
        return sorted(row[0] for rows in self.sink.values() for row in rows)


@pytest.fixture
def listed(watermarks: Watermarks) -> Listed:
    made = Listed(watermarks)
    made.declare(20)
    return made


def test_gaps_finish_what_is_begun_when_a_slice_wrote_and_died(listed: Listed) -> None:
    with pytest.raises(KilledError):
        listed.fill(0, 10, die=True)
    gaps = listed.gaps

    for low, high in gaps:
        listed.fill(low, high)

    assert gaps == [(None, 0), (0, 10), (10, 20)]
    assert (listed.gaps, listed.written) == ([], list(range(20)))
    assert listed.unfinished == {}


def test_slice_is_listed_as_unfinished_when_it_is_not_done_yet(listed: Listed) -> None:
    with listed.backfill(0, 10, name="first half") as backfill:
        listed.take(backfill)
        begun = listed.unfinished

    assert begun == {backfill.job_id: ("first half", (0, 10))}
    assert listed.unfinished == {}


@pytest.mark.parametrize("is_alive", [True, False], ids=["works", "died"])
def test_slice_is_refused_when_another_one_has_begun_with_a_part_of_it(listed: Listed, is_alive: bool) -> None:
    first = listed.backfill(0, 10)
    with pytest.raises(KilledError), first:
        listed.take(first)
        if not is_alive:
            raise KilledError
        with pytest.raises(BoundsError, match=rf"slice {first.job_id} \(name='backfill'\) has begun"):
            listed.fill(5, 15)
        raise KilledError
    with pytest.raises(BoundsError, match=rf"slice {first.job_id} .*unfinished\(\).* --abandon {first.job_id}"):
        listed.fill(5, 15)

    listed.fill(10, 15)

    assert listed.coverage == [(10, 15)]


def test_slice_is_refused_when_another_one_begins_between_its_checks(listed: Listed) -> None:
    first, second = listed.backfill(0, 10), listed.backfill(5, 15)

    with second:
        with first:
            listed.take(first)
            with pytest.raises(BoundsError, match=f"slice {first.job_id} "):
                second.rows(listed.source, "id")
        with pytest.raises(BoundsError, match="a part of them is covered already"):
            second.rows(listed.source, "id")

    assert listed.written == list(range(10))
    assert listed.coverage == [(0, 10)]


def test_one_of_two_is_refused_when_both_begin_at_once(listed: Listed) -> None:
    first, second = listed.backfill(0, 10), listed.backfill(5, 15)

    with first, second:
        listed.take(second)
        with pytest.raises(BoundsError, match=f"slice {second.job_id} "):
            first.rows(listed.source, "id")

    assert listed.written == list(range(5, 15))


def test_slice_blocks_no_other_when_it_died_before_it_read(listed: Listed) -> None:
    with pytest.raises(KilledError), listed.backfill(0, 10) as backfill:
        backfill.rows(listed.source, "id")
        raise KilledError

    listed.fill(5, 15)

    assert (listed.written, listed.unfinished) == (list(range(5, 15)), {})
    with pytest.raises(BoundsError, match="covered already"):
        listed.fill(0, 10)


def test_slice_blocks_no_other_when_its_job_was_reset(listed: Listed) -> None:
    with pytest.raises(KilledError), listed.backfill(0, 10) as backfill:
        listed.take(backfill)
        raise KilledError
    listed.sink.clear()
    listed.watermarks.reset(backfill.job_id, why="what it wrote is deleted")

    listed.fill(5, 15)

    assert (listed.written, listed.coverage) == (list(range(5, 15)), [(5, 15)])
    with pytest.raises(BoundsError, match="covered already"):
        listed.fill(0, 10)


def test_slice_is_taken_beside_another_one_when_the_sink_merges(listed: Listed) -> None:
    with pytest.raises(KilledError):
        listed.fill(0, 10, die=True)

    listed.fill(5, 15, write_disposition="merge")
    listed.fill(0, 10)

    assert listed.coverage == [(0, 15)]


def test_record_holds_as_many_slices_as_there_can_be_when_none_touch(listed: Listed) -> None:
    random, ends = Random(1), [0]
    for _ in range(2 * MAX_SLICES - 1):
        ends.append(ends[-1] + random.randrange(1, 2**40))
    listed.declare(2**62)
    state = listed.watermarks.progress.state(JOB, CONTEXT)
    many = BackfillRecord([((low,), (high,)) for low, high in zip(ends[::2], ends[1::2], strict=True)])
    record = many.to_store(state)
    listed.watermarks.decisions.change_watermark(
        backfill_record_id(JOB, CONTEXT, state), lambda _: record, context=CONTEXT, why="a test"
    )

    listed.fill(2**61, 2**61 + 1)

    assert len(record["covered"]) > 64 * 1024
    assert listed.coverage == [*zip(ends[::2], ends[1::2], strict=True), (2**61, 2**61 + 1)]


def test_coverage_stays_when_a_value_is_set_over_a_state_too_large_for_its_item(listed: Listed) -> None:
    every = [(number,) for number in sorted(Random(1).sample(range(2**62), 40_000))]
    large = with_coverage(STATE | {"value": 2**62}, None, zip(every[::2], every[1::2], strict=True), "o1")
    listed.watermarks.decisions.change_watermark(JOB, lambda _: large, context=CONTEXT, why="a test")
    assert isinstance(listed.watermarks.latest(JOB).watermarks[CONTEXT], Spilled)

    listed.declare(2**62 + 5, descending=False)

    assert len(listed.coverage) == 20_000
    assert listed.gaps[-1] == (every[-1][0], 2**62 + 5)


# --- how late a slice may end --------------------------------------------------------------------------------------


def stamps(watermarks: Watermarks, kind: str, value: Any) -> Listed:
    made = Listed(watermarks, 0, kind)
    made.declare(value)
    return made


@pytest.mark.parametrize(
    ("kind", "high", "delay", "wait"),
    [
        ("timestamp", timedelta(0), None, "0:05:00"),
        ("timestamp", timedelta(minutes=-5, microseconds=1), None, "0:00:01"),
        ("timestamp", timedelta(seconds=-2), timedelta(seconds=3), "0:00:01"),
        ("timestamp_ntz", timedelta(minutes=-1), None, "0:04:00"),
    ],
)
def test_slice_is_refused_when_rows_may_still_arrive_in_it(
    watermarks: Watermarks, clock: Any, kind: str, high: timedelta, delay: timedelta | None, wait: str
) -> None:
    made = stamps(watermarks, kind, clock.now)
    options: dict[str, Any] = {} if delay is None else {"delay": delay}

    with pytest.raises(BoundsError, match=f"Run it again {wait} from now, or end earlier") as caught:
        made.fill(None, clock.now + high, **options)

    assert "2026" not in str(caught.value)
    assert made.coverage == []
    clock.move(minutes=5)
    made.fill(None, clock.now - timedelta(minutes=5), **options)


@pytest.mark.parametrize("kind", ["uuid", "string"])
def test_slice_of_uuids_is_refused_when_rows_may_still_arrive_in_it(
    watermarks: Watermarks, clock: Any, kind: str
) -> None:
    def made(seconds_ago: int) -> str:
        return str(UUID(int=UUID(first_uuid_at(clock.now - timedelta(seconds=seconds_ago))).int + 7))

    start, rows = first_uuid_at(clock.now), [made(600), made(2)]
    source = ListedRows((CursorColumn("id", kind),), [(rows[0],)])
    with IncrementalJob(watermarks, JOB, clock=clock) as job:
        job.rows_since(source, "id", start_from=start, strings=True, transformation_ctx=CONTEXT)
        job.freeze()

    def fill() -> list[Any]:
        with Backfill(watermarks, JOB, transformation_ctx=CONTEXT, low=None, high=start, clock=clock) as backfill:
            found: Any = backfill.rows(source, "id", strings=True)
            backfill.freeze()
            return sorted(found)

    with pytest.raises(BoundsError, match="Run it again 0:05:00 from now"):
        fill()
    source.listed.append((rows[1],))
    clock.move(minutes=10)

    assert fill() == [(row,) for row in rows]


def test_slice_is_read_with_a_warning_when_its_column_has_no_zone(
    watermarks: Watermarks, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The live job already has a watermark without a zone, so the slice reads as the live job does."""
    rows = PandasRows(pd.DataFrame({"at": [clock.now.replace(tzinfo=None) - timedelta(days=1)], "id": [1]}))
    state = {"kind": "rows", "cursor_column": "at", "type": "timestamp_ntz", "value": clock.now - timedelta(hours=1)}
    watermarks.set_watermark(JOB, state, transformation_ctx=CONTEXT, why="a release before zones were asked for")
    bounds = {"low": None, "high": clock.now - timedelta(hours=2)}

    for expected in ([1], []):
        caplog.clear()
        with Backfill(watermarks, JOB, transformation_ctx=CONTEXT, clock=clock, **bounds) as backfill:
            found: Any = backfill.rows(rows, "at")
            assert list(found["id"]) == expected
        # The second run of a slice does not query its source, so it does not warn.
        assert ("event=no_zone context=repairs column=at" in caplog.text) == bool(expected)


def test_slice_of_dates_is_refused_when_its_last_day_is_not_over(watermarks: Watermarks, clock: Any) -> None:
    made = stamps(watermarks, "date", date(2026, 3, 17))

    with pytest.raises(BoundsError, match="Run it again 8:20:00 from now"):
        made.fill(None, date(2026, 3, 17))
    made.fill(None, date(2026, 3, 16))
    clock.move(hours=8, minutes=20)
    made.fill(date(2026, 3, 16), date(2026, 3, 17))

    assert made.gaps == []


def test_clock_of_the_source_decides_what_is_late_when_it_has_one(watermarks: Watermarks, clock: Any) -> None:
    made = stamps(watermarks, "timestamp", clock.now)
    high = clock.now - timedelta(minutes=10)
    made.source.now = clock.now - timedelta(minutes=9)

    with pytest.raises(BoundsError, match="Run it again 0:04:00 from now"):
        made.fill(None, high)


def test_slice_is_finished_when_it_was_begun_with_a_shorter_delay(watermarks: Watermarks, clock: Any) -> None:
    made = stamps(watermarks, "timestamp", clock.now)
    with pytest.raises(KilledError):
        made.fill(None, clock.now, delay=timedelta(0), die=True)

    made.fill(None, clock.now)

    assert made.gaps == []


def test_delay_is_refused_when_it_reaches_before_all_times(watermarks: Watermarks, clock: Any) -> None:
    made = stamps(watermarks, "timestamp", clock.now)

    with pytest.raises(BoundsError, match="reaches before the year 1"):
        made.fill(None, clock.now, delay=timedelta.max)


# --- the live job meanwhile ------------------------------------------------------------------------------------


def reset_live(listed: Listed) -> None:
    listed.watermarks.reset(JOB, transformation_ctx=CONTEXT, why="the target was lost")


def declare_anew(listed: Listed) -> None:
    reset_live(listed)
    listed.declare(20)


def rewind_live(listed: Listed) -> None:
    listed.watermarks.rewind(JOB, to_version=1, why="a test")


def rewind_and_read(listed: Listed) -> None:
    rewind_live(listed)
    listed.live()


@pytest.mark.parametrize("change", [reset_live, declare_anew, rewind_live, rewind_and_read])
@pytest.mark.parametrize("before", ["rows", "write", "batch", "commit"])
def test_slice_commits_nothing_when_the_live_job_is_reset_or_set_back_meanwhile(
    watermarks: Watermarks, change: Callable[[Listed], None], before: str
) -> None:
    listed = Listed(watermarks)
    listed.declare(5)
    listed.declare(15)

    backfill = listed.backfill(5, 15)
    with pytest.raises(PlanConflictError, match=r"was reset or set back .* Delete what this batch has written"):
        with backfill:
            if before == "rows":
                change(listed)
            rows: Any = backfill.rows(listed.source, "id")
            if before == "commit":
                assert backfill.freeze().id
            change(listed)
            if before == "write":
                backfill.write(rows, "nowhere")
            if before == "batch":
                assert backfill.freeze().id

    assert watermarks.latest(backfill.job_id).version == 0


def set_back(listed: Listed) -> None:
    listed.declare(7)


@pytest.mark.parametrize("change", [set_back, rewind_live], ids=["set", "rewound"])
@pytest.mark.parametrize("reads_on", [True, False], ids=["reads on", "waits"])
def test_slice_that_died_is_not_finished_when_the_live_job_was_set_back_into_it(
    watermarks: Watermarks, change: Callable[[Listed], None], reads_on: bool
) -> None:
    listed = Listed(watermarks)
    for value in (7, 12):
        listed.declare(value)
    first = listed.backfill(2, 12)
    with pytest.raises(KilledError), first:
        listed.take(first)
        raise KilledError
    (planned,) = listed.sink
    change(listed)
    if reads_on:
        listed.live()

    with pytest.raises((BoundsError, PlanConflictError), match=f"watermarks backfill .* --abandon {first.job_id} "):
        listed.fill(2, 12)
    with pytest.raises(BoundsError, match=f"watermarks backfill .* --abandon {first.job_id} "):
        listed.fill(2, 7)

    assert listed.gaps == [(None, 2), (2, 7)]
    del listed.sink[planned]
    watermarks.reset(first.job_id, why="abandoned, and what it wrote is deleted")
    for low, high in listed.gaps:
        listed.fill(low, high)
    listed.live()
    assert (listed.written, listed.gaps) == (list(range(20)), [])


def test_slice_that_merges_is_finished_when_the_live_job_has_read_a_part_of_it(listed: Listed) -> None:
    with pytest.raises(KilledError):
        listed.fill(2, 12, die=True, write_disposition="merge")
    listed.declare(7)
    listed.live()

    listed.fill(2, 12, write_disposition="merge")

    assert listed.gaps == [(None, 2)]


def test_slice_is_a_gap_again_when_the_live_job_is_declared_anew(listed: Listed) -> None:
    with pytest.raises(PlanConflictError), listed.backfill(0, 20) as backfill:
        listed.take(backfill)
        declare_anew(listed)
    listed.sink.clear()

    for low, high in listed.gaps:
        listed.fill(low, high)

    assert listed.written == list(range(20))


def test_rewind_warns_of_rows_that_come_again_when_a_backfill_has_read_them(
    watermarks: Watermarks, caplog: pytest.LogCaptureFixture
) -> None:
    listed = Listed(watermarks)
    listed.declare(5)
    listed.declare(15)
    listed.fill(5, 10)
    record = backfill_record_id(JOB, CONTEXT, watermarks.progress.state(JOB, CONTEXT))

    watermarks.rewind(JOB, to_version=2, why="nothing comes again")
    assert "backfilled_again" not in caplog.text
    watermarks.rewind(JOB, to_version=1, why="a test")

    assert f"event=backfilled_again job={JOB} context={CONTEXT} record={record}: " in caplog.text
    assert listed.gaps == [(None, 5)]


def test_rows_of_a_lookback_are_covered_when_the_watermark_was_set_before(listed: Listed) -> None:
    listed.declare(10)

    listed.live(lookback=5, write_disposition="merge")

    assert (listed.coverage, listed.gaps) == ([(5, 20)], [(None, 5)])
    assert listed.written == list(range(5, 20))


# --- cursors that descend ----------------------------------------------------------------------------------------


def test_gap_without_an_end_is_filled_when_the_live_job_descends(watermarks: Watermarks) -> None:
    listed = Listed(watermarks, 10)
    listed.declare(3, descending=True)
    gaps = listed.gaps

    for low, high in gaps:
        listed.fill(low, high)

    assert gaps == [(4, None)]
    assert (listed.gaps, listed.written) == ([], [4, 5, 6, 7, 8, 9])
    listed.fill(4, None)
    assert listed.written == [4, 5, 6, 7, 8, 9]


def test_gap_without_an_end_is_filled_when_there_is_no_row(watermarks: Watermarks) -> None:
    listed = Listed(watermarks, 0)
    listed.declare(3, descending=True)

    listed.fill(4, None)

    assert (listed.gaps, listed.written) == ([], [])


def test_everything_above_counts_as_covered_when_a_descending_state_is_from_before_coverage_was_kept(
    watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowsState, "with_coverage_kept", lambda state, *_: state)
    listed = Listed(watermarks)
    listed.declare(5, descending=True)
    monkeypatch.undo()

    assert (listed.coverage, listed.gaps) == ([(6, None)], [])


# --- slices that are done ----------------------------------------------------------------------------------------


def test_record_stays_as_it_is_when_a_slice_that_is_done_runs_again(listed: Listed) -> None:
    listed.fill(0, 10)
    record = backfill_record_id(JOB, CONTEXT, listed.watermarks.progress.state(JOB, CONTEXT))
    versions = len(listed.watermarks.history(record))

    listed.fill(0, 10)

    assert len(listed.watermarks.history(record)) == versions == 2


def test_source_is_not_queried_when_the_slice_is_done(listed: Listed) -> None:
    listed.source.listed.append((None,))
    assert not listed.backfill(0, 10, write_disposition="merge").is_done
    with listed.backfill(0, 10, write_disposition="merge") as backfill:
        listed.take(backfill, nulls="take")
    listed.source.asked.clear()

    with listed.backfill(0, 10, write_disposition="merge") as backfill:
        rows: Any = backfill.rows(listed.source, "id", nulls="take")
    with listed.backfill(0, 10, write_disposition="merge") as backfill:
        rows += backfill.rows(listed.source, "id")

    assert (rows, listed.source.asked) == ([], [])


def test_log_does_not_say_that_everything_is_read_when_a_slice_begins(
    listed: Listed, caplog: pytest.LogCaptureFixture
) -> None:
    listed.fill(0, 10)

    assert "event=first_run" not in caplog.text


@pytest.mark.parametrize("ask", ["gaps", "coverage"])
def test_state_is_refused_when_somebody_altered_its_value(watermarks: Watermarks, ask: str) -> None:
    commit(watermarks, JOB, "jr_1", {CONTEXT: STATE | {"value": "x"}})

    with pytest.raises(CorruptItemError, match=r"\.value is not a value of type bigint"):
        getattr(watermarks, ask)(JOB, CONTEXT)


# --- what is refused -------------------------------------------------------------------------------------------


REFUSED: dict[str, tuple[Callable[[GrowingTable], Any], type[WatermarkError], str]] = {
    "past the live watermark": (
        lambda table: table.fill(5, 11), BoundsError, "past the live watermark",
    ),
    "covered in part": (
        lambda table: table.fill(1, 4), BoundsError, r"a part of them is covered already.*write_disposition='merge'",
    ),
    "covered as a whole": (lambda table: table.fill(2, 3), BoundsError, r"a part of them is covered already"),
    "low above high": (lambda table: table.fill(7, 3), BoundsError, "not below"),
    "without an end": (lambda table: table.fill(3, None), BoundsError, "high is missing"),
    "another type": (lambda table: table.fill("3", "7"), CursorError, "low is a str"),
    "unknown disposition": (
        lambda table: table.fill(3, 7, write_disposition="overwrite"), InvalidValueError, "'overwrite' is unknown",
    ),
    "unknown context": (
        lambda table: table.fill(3, 7, transformation_ctx="parts"), NothingThereError, r"'parts'.*It has: repairs\.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_slice_is_refused_and_nothing_is_stored_when_its_bounds_are_wrong(table: GrowingTable, case: str) -> None:
    act, error, told = REFUSED[case]
    table.live(2)
    table.declare(10)
    before = table.jobs, table.watermarks.latest(JOB)

    with pytest.raises(error, match=told):
        act(table)

    assert (table.jobs, table.watermarks.latest(JOB)) == before


@pytest.mark.parametrize(
    ("column", "cast", "error", "told"),
    [("other", "int64", SourceError, "remembers 'id'"), ("id", "int32", CursorError, "its type was bigint")],
)
def test_slice_is_refused_when_its_cursor_is_not_that_of_the_live_job(
    table: GrowingTable, column: str, cast: str, error: type[WatermarkError], told: str
) -> None:
    table.declare(10)
    source = table.source.astype(cast).rename(columns={"id": column})

    with pytest.raises(error, match=told), table.backfill(3, 7) as backfill:
        backfill.rows(source, column)

    assert table.coverage == []
    assert table.watermarks.latest(backfill.job_id).version == 0


def test_backfill_is_refused_when_the_live_job_is_unknown(table: GrowingTable) -> None:
    with pytest.raises(UnknownJobError):
        table.fill(3, 7)

    with pytest.raises(UnknownJobError):
        table.watermarks.gaps(JOB, CONTEXT)


@pytest.mark.parametrize("ask", ["gaps", "coverage"])
def test_coverage_is_refused_when_the_context_is_not_of_rows(table: GrowingTable, ask: str) -> None:
    table.watermarks.set_watermark(JOB, {"latest_data": "2023", "repairs": STATE | {"value": 3}}, why="a test")

    with pytest.raises(
        NothingThereError, check=because("unknown_context"), match=r"context 'latest_data'\. It has: repairs\."
    ):
        getattr(table.watermarks, ask)(JOB, "latest_data")


@pytest.mark.parametrize("kind", ["pandas", "pyarrow"])
def test_slice_takes_and_counts_its_rows_when_they_are_in_memory(
    watermarks: Watermarks, clock: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    watermarks.set_watermark(JOB, STATE | {"value": 9}, transformation_ctx=CONTEXT, why="start from here")
    table = pa.table({"id": range(1, 10)})
    rows: Any = table.to_pandas() if kind == "pandas" else table

    with Backfill(watermarks, JOB, transformation_ctx=CONTEXT, low=3, high=6, clock=clock) as backfill:
        written = backfill.write(backfill.rows(rows, "id"), str(tmp_path))

    metrics = watermarks.history(backfill.job_id)[0].change.metrics
    assert (written, metrics["rows_collected"]) == (3, 3)
    assert metrics["contexts"] == {CONTEXT: {"rows": 3, "minimum": 3, "maximum": 5}}
    assert "rows_not_counted" not in caplog.text
    assert sorted(pd.read_parquet(next(tmp_path.glob("part-*")))["id"]) == [3, 4, 5]
    assert watermarks.gaps(JOB, CONTEXT) == [(None, 3), (6, 9)]


def test_backfill_is_refused_when_it_is_used_outside_the_with_statement(table: GrowingTable) -> None:
    with pytest.raises(PlanConflictError, match="the backfill has not begun"):
        table.backfill(3, 7).rows(table.source, "id")


def test_log_has_names_and_no_value_when_a_slice_is_read(table: GrowingTable, caplog: pytest.LogCaptureFixture) -> None:
    state = STATE | {"value": 987_654_321}
    table.watermarks.set_watermark(JOB, state, transformation_ctx=CONTEXT, why="a test")

    with caplog.at_level("INFO", "scripts"), table.backfill(987_654_123, 987_654_125) as backfill:
        backfill.rows(pd.DataFrame({"id": range(987_654_120, 987_654_130)}), "id")

    assert f"event=backfill job={JOB} slice=parking-backfill-" in caplog.text
    assert "987654" not in caplog.text
