"""The heartbeat: keeps the lease, erases nothing, and never outlives the run."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from scripts.helpers.errors import FencedError, RunInProgressError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.heartbeat import Heartbeat
from scripts.helpers.protocol.run import Run
from scripts.helpers.protocol.values import to_utc_string
from scripts.helpers.watermarks import DEFAULT_LEASE, Watermarks
from tests.support.clock import Clock
from tests.support.faults import Faults, Request, Wire
from tests.support.patience import PATIENCE
from tests.support.table_items import Stored

pytestmark = pytest.mark.both_stores


def update(request: Request) -> bool:
    """Match the heartbeat's write."""
    return request.operation == "UpdateItem"


def beating() -> list[threading.Thread]:
    """Return the heartbeat threads that are alive."""
    return [thread for thread in threading.enumerate() if thread.name == "watermark-heartbeat"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Check that every test starts and ends without a heartbeat thread."""
    if beating():
        gc.collect()
    assert beating() == []
    yield
    for thread in beating():
        thread.join(PATIENCE)
    assert beating() == []


@pytest.fixture
def run(hooked: Watermarks, job_id: str) -> Run:
    return hooked.begin(job_id, "r1")


# --- one beat --------------------------------------------------------------------------------------------------


def test_other_run_is_refused_for_longer_when_the_heart_has_beaten(
    watermarks: Watermarks, clock: Clock, job_id: str, run: Run
) -> None:
    clock.move(seconds=DEFAULT_LEASE.total_seconds() - 1)

    alive = run.heartbeat()

    clock.move(seconds=DEFAULT_LEASE.total_seconds() - 1)
    with pytest.raises(RunInProgressError) as caught:
        watermarks.begin(job_id, "r2")
    assert alive is True
    assert (caught.value.owner, caught.value.job_id) == ("r1", job_id)
    assert caught.value.lease_until == clock.now + timedelta(seconds=1)
    clock.move(seconds=1)
    assert watermarks.begin(job_id, "r2").fence == 2


@pytest.mark.parametrize("planned", [False, True])
def test_only_the_end_of_the_lease_changes_when_the_heart_beats(
    run: Run, clock: Clock, stored: Stored, planned: bool
) -> None:
    if planned:
        run.freeze({"a": [1]}, {"n": 1})
    before = stored()
    clock.move(minutes=1)

    run.heartbeat()

    expected = before["~latest"] | {"leaseUntil": {"S": to_utc_string(clock.now + DEFAULT_LEASE)}}
    assert stored() == before | {"~latest": expected}


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize("how", ["lease-over", "same-id", "take-over", "reset"])
def test_fenced_heartbeat_is_false_and_changes_nothing_when_the_job_was_taken(
    watermarks: Watermarks,
    clock: Clock,
    job_id: str,
    run: Run,
    stored: Stored,
    caplog: pytest.LogCaptureFixture,
    how: str,
    planned: bool,
) -> None:
    if planned:
        run.freeze({}, {"n": 1})
    if how == "lease-over":
        clock.move(seconds=DEFAULT_LEASE.total_seconds())
        watermarks.begin(job_id, "r2")
    elif how == "same-id":
        watermarks.begin(job_id, "r1")
    elif how == "take-over":
        watermarks.begin(job_id, "r2", take_over=True)
    else:
        watermarks.reset(job_id, why="a test")
    before = stored()

    alive = run.heartbeat()

    assert alive is False
    assert f"event=fenced job={job_id} run=r1: another run took over" in caplog.text
    assert stored() == before


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_heartbeat_is_false_and_sends_nothing_when_the_run_is_closed(run: Run, wire: Wire, end: str) -> None:
    run.freeze({}, {"n": 1})
    getattr(run, end)()
    wire.clear()

    assert run.heartbeat() is False

    assert wire.requests == []


@pytest.mark.parametrize("fault", ["drop", "reply_lost", "resend", "throttle"])
def test_heartbeat_goes_on_and_keeps_the_plan_when_its_write_fails_once(
    run: Run, faults: Faults, stored: Stored, fault: str
) -> None:
    plan = run.freeze({"a": [1]}, {"n": 1})
    faults.by_name(fault, update)

    assert run.heartbeat() is True

    assert faults.hits == 1
    assert stored()["~latest"]["planId"]["S"] == plan.plan_id
    assert run.commit() == "done"


def test_heartbeat_goes_on_and_says_so_when_the_store_does_not_answer(
    run: Run, faults: Faults, job_id: str, stored: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    before = stored()
    faults.drop(lambda request: True, times=100)

    alive = run.heartbeat()

    faults.heal()
    assert alive is True
    assert f"event=heartbeat_failed job={job_id} run=r1 error=" in caplog.text
    assert stored() == before
    assert run.heartbeat() is True


# --- the thread --------------------------------------------------------------------------------------------------


def test_thread_runs_only_inside_with_when_a_run_begins(run: Run) -> None:
    assert beating() == []
    with run:
        assert len(beating()) == 1
    assert beating() == []


@pytest.mark.parametrize("end", ["commit", "abort", "exit", "error"])
def test_thread_is_gone_when_the_run_has_ended(run: Run, end: str) -> None:
    left: list[list[threading.Thread]] = []

    try:
        with run:
            run.freeze({}, {"n": 1})
            if end in ("commit", "abort"):
                getattr(run, end)()
                left.append(beating())
            if end == "error":
                raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    left.append(beating())

    assert [threads for threads in left if threads] == []


def test_thread_is_gone_when_a_job_has_ended(hooked: Watermarks, job_id: str, tmp_path: Any) -> None:
    with IncrementalJob(hooked, job_id, "r1") as job:
        job.new_files(str(tmp_path))
        inside = len(beating())

    assert (inside, beating()) == (1, [])


def test_one_thread_runs_when_with_is_entered_twice(run: Run) -> None:
    with run, run:
        assert len(beating()) == 1


def test_thread_is_gone_when_the_run_is_fenced(watermarks: Watermarks, job_id: str) -> None:
    run = watermarks.begin(job_id, "r1", lease=timedelta(milliseconds=30))
    with run:
        [thread] = beating()
        watermarks.begin(job_id, "r2", take_over=True)

        thread.join(PATIENCE)

        assert not thread.is_alive()
        with pytest.raises(FencedError):
            run.check()


def test_thread_is_gone_when_the_run_is_garbage(watermarks: Watermarks, job_id: str) -> None:
    run: Run | None = watermarks.begin(job_id, "r1")
    assert run is not None
    run.__enter__()
    [thread] = beating()

    run = None
    gc.collect()
    thread.join(PATIENCE)

    assert not thread.is_alive()


def test_leases_end_grows_by_itself_when_the_thread_runs(
    watermarks: Watermarks, clock: Clock, job_id: str, stored: Stored
) -> None:
    renewed = threading.Event()

    def seen(run: Run) -> bool:
        alive = run.heartbeat()
        renewed.set()
        return alive

    run = watermarks.begin(job_id, "r1")
    clock.move(minutes=5)
    beat = Heartbeat(run, seen, 0.01)

    assert renewed.wait(PATIENCE)

    beat.stop()
    assert stored()["~latest"]["leaseUntil"]["S"] == to_utc_string(clock.now + DEFAULT_LEASE)


def test_thread_goes_on_when_the_store_fails_and_comes_back(
    run: Run, faults: Faults, clock: Clock, stored: Stored
) -> None:
    failed, renewed = threading.Event(), threading.Event()

    def seen(owner: Run) -> bool:
        before = owner._head
        alive = owner.heartbeat()
        (failed if owner._head is before else renewed).set()
        return alive

    faults.drop(lambda request: True, times=10_000)
    clock.move(minutes=5)
    beat = Heartbeat(run, seen, 0.01)
    assert failed.wait(PATIENCE)
    faults.heal()

    assert renewed.wait(PATIENCE)

    assert beat.is_alive
    beat.stop()
    assert stored()["~latest"]["leaseUntil"]["S"] == to_utc_string(clock.now + DEFAULT_LEASE)


# --- with the other calls ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 100_000], ids=["inline", "spilled"])
def test_plan_is_kept_and_committed_when_beats_and_calls_come_at_once(
    watermarks: Watermarks, job_id: str, size: int
) -> None:
    for number in range(8):
        run = watermarks.begin(job_id, f"r{number}")
        stop, started, answers = threading.Event(), threading.Event(), list[bool]()
        threads = [threading.Thread(target=_beat_on, args=(run, stop, started, answers)) for _ in range(2)]
        for thread in threads:
            thread.start()
        content = bytes(range(256)) * (size // 256) + bytes([number])
        assert started.wait(PATIENCE)
        try:
            run.freeze({"a": content}, {"n": number})
            run.check()
            planned = run.planned("a")
            outcome = run.commit()
        finally:
            stop.set()
            for thread in threads:
                thread.join(PATIENCE)

        assert (outcome, planned) == ("done", content)
        assert answers[0] is True
        assert run.heartbeat() is False
    assert [entry.version for entry in watermarks.history(job_id)] == list(range(8, 0, -1))
    assert watermarks.latest(job_id).claim is None


def _beat_on(run: Run, stop: threading.Event, started: threading.Event, answers: list[bool]) -> None:
    while not stop.is_set():
        answers.append(run.heartbeat())
        started.set()
