"""A launcher is lost when its run's record has not changed for one lease, whatever the clocks of two machines show."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from scripts.helpers.job_runs.scheduler import START_LEASE
from scripts.helpers.protocol.races import Written
from tests.support.clock import Clock
from tests.support.job_runs import Jobs

LEASE = START_LEASE.total_seconds()


class Timer:
    """Seconds that pass only when a test adds to them."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def timer() -> Timer:
    return Timer()


@pytest.fixture
def observer(make_parked: Callable[..., Jobs], timer: Timer, clock: Clock) -> Jobs:
    """Return jobs as seen from another machine, whose clock is ahead by two minutes."""
    made = make_parked(clock=lambda: clock() + timedelta(minutes=2))
    made.scheduler.timer = timer
    return made


def beat(jobs: Jobs, run_id: str) -> None:
    """Renew the lease of a run as its launcher does."""
    before = jobs.record("parking", run_id)
    after = before.renewed(jobs.scheduler.clock(), START_LEASE)
    assert isinstance(jobs.scheduler.records.write_run(before, after), Written)


@pytest.mark.parametrize("moves", [(), ("RUNNING",), ("RUNNING", "STOPPING")])
def test_healthy_run_keeps_its_state_when_the_observers_clock_is_minutes_ahead(
    parked: Jobs, observer: Jobs, timer: Timer, moves: tuple[str, ...]
) -> None:
    run_id = parked.start("parking")
    parked.pass_through("parking", run_id, *moves)
    state = parked.record("parking", run_id).state

    for _ in range(5):
        assert observer.run("parking", run_id)["JobRunState"] == state
        timer.now += LEASE
        beat(parked, run_id)

    assert parked.record("parking", run_id).state == state


def test_run_is_lost_when_its_record_is_unchanged_for_one_lease_of_the_observer(
    parked: Jobs, observer: Jobs, timer: Timer
) -> None:
    run_id = parked.start("parking")
    parked.pass_through("parking", run_id, "RUNNING")
    observer.run("parking", run_id)

    timer.now += LEASE
    at_its_end = observer.run("parking", run_id)["JobRunState"]
    timer.now += 0.001
    shown = observer.get_job_run(JobName="parking", RunId=run_id)["JobRun"]["JobRunState"]

    assert (at_its_end, shown, parked.record("parking", run_id).state) == ("RUNNING", "ERROR", "RUNNING")
    assert observer.run("parking", run_id)["JobRunState"] == "ERROR"


def test_run_is_lost_when_its_record_is_unchanged_and_the_observers_clock_is_behind(
    parked: Jobs, make_parked: Callable[..., Jobs], timer: Timer, clock: Clock
) -> None:
    run_id = parked.start("parking")
    behind = make_parked(clock=lambda: clock() - timedelta(hours=2))
    behind.scheduler.timer = timer
    behind.run("parking", run_id)

    timer.now += LEASE + 1

    assert behind.run("parking", run_id)["JobRunState"] == "ERROR"


def test_start_succeeds_when_it_has_no_record_yet_and_the_observers_clock_is_ahead(
    parked: Jobs, observer: Jobs, timer: Timer, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = parked._start

    def slowly(*arguments: object, **more: object) -> None:
        observer.scheduler.settle("parking")
        timer.now += LEASE
        observer.scheduler.settle("parking")
        record(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(parked, "_start", slowly)

    assert parked.record("parking", parked.start("parking")).state == "STARTING"
