"""The time of the plan, which is the same for every attempt at a batch, for columns such as import_date."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pandas as pd
import pytest

from scripts.helpers.batch.modes import ModeName
from scripts.helpers.errors import CorruptItemError, PlanConflictError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol import items
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.reasons import because
from tests.support.steps import KilledError
from tests.support.table_items import change_item, item_of

ROWS = pd.DataFrame({"id": [1, 2]})


def plan_and_die(watermarks: Watermarks) -> datetime:
    """Plan a batch, read its time, and leave the plan open."""
    times: list[datetime] = []
    with pytest.raises(KilledError), IncrementalJob(watermarks, "repairs") as job:
        job.rows_since(ROWS, "id")
        times.append(job.freeze().planned_at)
        raise KilledError
    return times[0]


def test_time_is_that_of_the_first_attempt_when_the_plan_is_replayed_a_day_later(
    watermarks: Watermarks, clock: Clock
) -> None:
    clock.now = datetime(2026, 3, 16, 23, 59, 59, 123456, timezone(timedelta(hours=1)))
    first = plan_and_die(watermarks)
    clock.move(days=1)

    with IncrementalJob(watermarks, "repairs") as job:
        job.rows_since(ROWS, "id")
        replayed = job.freeze().planned_at
    with IncrementalJob(watermarks, "repairs") as job:
        job.rows_since(ROWS, "id")
        after = job.freeze().planned_at

    assert first == replayed == datetime(2026, 3, 16, 22, 59, 59, 123456, timezone.utc)
    assert first.tzinfo == replayed.tzinfo == timezone.utc
    # That run begins at the time of the last commit, so a microsecond is added.
    assert after == first + timedelta(days=1, microseconds=1)


def test_time_is_that_of_the_first_attempt_when_it_read_files_after_the_freeze(
    watermarks: Watermarks, clock: Clock, tmp_path: Path
) -> None:
    (tmp_path / "1.csv").write_text("id\n1\n")
    times: list[datetime] = []

    def attempt() -> None:
        with IncrementalJob(watermarks, "parking") as job:
            landed = job.new_files(f"{tmp_path}/")
            times.append(job.freeze().planned_at)
            clock.move(hours=12)
            landed.read_pandas("csv")
            if len(times) == 1:
                raise KilledError

    with pytest.raises(KilledError):
        attempt()
    attempt()

    assert times[0] == times[1]


def test_times_go_on_growing_when_the_clock_of_an_earlier_run_was_ahead(
    watermarks: Watermarks, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    times, right = [], clock.now
    for minutes in (10, 0, 1, 2, 11):
        clock.now = right + timedelta(minutes=minutes)
        with IncrementalJob(watermarks, "repairs") as job:
            job.rows_since(ROWS, "id")
            times.append(job.freeze().planned_at)

    ahead, tick = right + timedelta(minutes=10), timedelta(microseconds=1)
    assert times == [ahead, ahead + tick, ahead + 2 * tick, ahead + 3 * tick, right + timedelta(minutes=11)]
    assert sum("event=clock_behind" in message for message in caplog.messages) == 3
    # Recorded times, from which ages and lags are computed, follow the clock.
    made = [entry.change.at - right for entry in watermarks.history("repairs")]
    assert made == [timedelta(minutes=minutes) for minutes in (11, 2, 1, 0, 10)]


def test_time_grows_and_the_age_of_the_plan_keeps_the_clock_when_a_decision_or_an_open_plan_is_between(
    watermarks: Watermarks, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    clock.move(minutes=4)
    with IncrementalJob(watermarks, "repairs") as job:
        job.rows_since(ROWS, "id")
        first = job.freeze().planned_at
    clock.move(minutes=-3)
    watermarks.rewind("repairs", to_version=1, why="again")
    clock.move(minutes=-1)
    caplog.clear()

    second = plan_and_die(watermarks)
    head = watermarks.latest("repairs")
    with IncrementalJob(watermarks, "repairs") as job:
        job.rows_since(ROWS, "id")
        replayed = job.freeze().planned_at

    assert second == replayed == first + timedelta(microseconds=1)
    assert head.plan is not None and head.plan.at == clock.now
    assert "event=clock_behind" not in caplog.text


@pytest.mark.parametrize("mode", ["pause", "disable"])
def test_time_is_that_of_the_run_when_nothing_is_saved(watermarks: Watermarks, clock: Clock, mode: ModeName) -> None:
    with IncrementalJob(watermarks, "repairs", mode=mode) as job:
        job.rows_since(ROWS, "id")
        first = job.freeze().planned_at
        clock.move(hours=1)

        assert (first, job.freeze().planned_at) == (clock.now - timedelta(hours=1),) * 2


def test_time_can_be_asked_for_when_the_batch_is_committed(watermarks: Watermarks, clock: Clock) -> None:
    with IncrementalJob(watermarks, "repairs") as job:
        job.rows_since(ROWS, "id")
        planned = clock.now
        job.freeze()
        clock.move(hours=1)
        job.commit()

        assert job.freeze().planned_at == planned


def test_no_source_is_planned_any_more_when_the_time_was_asked_for(watermarks: Watermarks) -> None:
    with IncrementalJob(watermarks, "repairs") as job:
        with pytest.raises(PlanConflictError, match="no source is planned"):
            _ = job.freeze().planned_at
        job.rows_since(ROWS, "id")
        _ = job.freeze().planned_at

        with pytest.raises(PlanConflictError) as caught:
            job.rows_since(ROWS, "id", transformation_ctx="more")
        assert str(caught.value) == (
            "Job 'repairs': context 'more' comes after the plan is frozen. Plan all sources before writing."
        )


def test_time_is_refused_when_the_run_was_aborted(watermarks: Watermarks) -> None:
    with IncrementalJob(watermarks, "repairs") as job:
        job.rows_since(ROWS, "id")
        job.abort()

        with pytest.raises(PlanConflictError, check=because("run_closed")):
            _ = job.freeze().planned_at


def test_item_is_damaged_when_its_open_plan_has_no_time(watermarks: Watermarks) -> None:
    plan_and_die(watermarks)
    plan = item_of(watermarks, "repairs")["plan"]
    del plan["M"]["at"]
    change_item(watermarks, "repairs", items.HEAD_KEY, plan=plan)

    with pytest.raises(CorruptItemError, match="at is"):
        IncrementalJob(watermarks, "repairs").__enter__()
