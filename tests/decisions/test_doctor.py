"""The doctor: it finds what is wrong with a job, and repairs it only on request."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from scripts.helpers.batch import after_restore
from scripts.helpers.errors import FencedError, UnknownJobError
from scripts.helpers.protocol.items import log_key
from scripts.helpers.watermarks import DEFAULT_LEASE, Watermarks
from tests.decisions.doctor_cases import ORPHAN, kinds
from tests.support.clock import Clock
from tests.support.faults import Faults, Wire, log_write
from tests.support.steps import commit, large
from tests.support.table_items import Stored

pytestmark = pytest.mark.both_stores

# --- a healthy job ------------------------------------------------------------------------------------


@pytest.mark.parametrize("repair", [False, True])
def test_nothing_is_found_when_a_job_is_healthy(
    watermarks: Watermarks, clock: Clock, job_id: str, stored: Stored, repair: bool
) -> None:
    kept = Watermarks(watermarks.table_name, watermarks.store.client, clock=clock, retention=timedelta(days=30))
    kept.store.sleep = watermarks.store.sleep
    for number in range(4):
        commit(kept, job_id, f"r{number}", {"parking": large(number), "repairs": {"n": number}, "trees": large(100)})
    kept.rewind(job_id, to_version=2, transformation_ctx="parking", why="a test")
    kept.set_watermark(job_id, {"n": 9}, transformation_ctx="repairs", why="a test")
    run = kept.begin(job_id, "r5")
    run.freeze({"parking": large(5)}, {**run.watermarks, "parking": large(6)})
    before = stored()

    found = kept.doctor(job_id, repair=repair)

    assert found == []
    assert stored() == before


def test_nothing_is_found_when_expired_items_are_deleted_in_any_order(
    watermarks: Watermarks, clock: Clock, job_id: str, stored: Stored, delete: Callable[[str], None]
) -> None:
    kept = Watermarks(watermarks.table_name, watermarks.store.client, clock=clock, retention=timedelta(days=30))
    kept.store.sleep = watermarks.store.sleep
    for number in range(5):
        commit(kept, job_id, f"r{number}", {"parking": large(number)})
    clock.move(days=31)
    expired = sorted(key for key, item in stored().items() if "expiresAt" in item)
    found = []

    for key in random.Random(3).sample(expired, len(expired)):
        delete(key)
        found.append(kept.doctor(job_id))

    assert len(expired) > 12
    assert [one for one in found if one] == []


@pytest.mark.parametrize("state", ["new", "claimed", "imported"])
def test_nothing_is_found_when_a_job_has_just_begun(
    watermarks: Watermarks, job_id: str, put_legacy: Any, state: str
) -> None:
    if state == "imported":
        put_legacy("jr_a")
        put_legacy("jr_b")
        watermarks.adopt(job_id, "jr_a")
    elif state == "new":
        watermarks.begin(job_id, "r1").abort()
    else:
        watermarks.begin(job_id, "r1").freeze({}, {"n": 1})

    assert watermarks.doctor(job_id) == []


def test_nothing_is_written_when_the_doctor_only_looks(
    hooked: Watermarks, wire: Wire, clock: Clock, job_id: str, put: Any, delete: Callable[[str], None]
) -> None:
    commit(hooked, job_id, "r1", {"n": 1})
    hooked.begin(job_id, "r2").freeze({}, {"n": 2})
    clock.move(seconds=DEFAULT_LEASE.total_seconds())
    put(ORPHAN, data={"B": b"x"})
    delete(log_key(1))
    wire.clear()

    found = hooked.doctor(job_id)

    assert len(found) == 3
    assert wire.writes == []
    assert [request for request in wire.reads if request.body["ConsistentRead"] is not True] == []


def test_every_page_is_read_when_a_job_has_many_items(watermarks: Watermarks, job_id: str, put: Any) -> None:
    commit(watermarks, job_id, "r1", {"a": large(1)})
    for number in range(10):
        put(f"!s#{number:016}-0#00000", data={"B": b"x" * 300_000})

    found = watermarks.doctor(job_id)

    assert [finding.kind for finding in found] == ["orphaned chunk"] * 10


@pytest.mark.parametrize("options", [{}, {"repair": True}], ids=str)
def test_doctor_says_that_the_job_is_unknown_when_it_never_ran(
    watermarks: Watermarks, job_id: str, stored: Stored, options: dict[str, Any]
) -> None:
    with pytest.raises(UnknownJobError, match=f"holds nothing for job '{job_id}'"):
        watermarks.doctor(job_id, **options)

    assert stored() == {}


# --- open plans ---------------------------------------------------------------------------------------


def test_open_plan_is_found_when_its_lease_is_over(watermarks: Watermarks, clock: Clock, job_id: str) -> None:
    plan = watermarks.begin(job_id, "r1").freeze({}, {"n": 1})
    clock.move(seconds=DEFAULT_LEASE.total_seconds())

    [finding] = watermarks.doctor(job_id, repair=True)

    assert finding.kind == "open plan"
    assert finding.detail == f"plan {plan.plan_id} of run 'r1', whose lease ended {clock.now}"
    drop = f"watermarks discard-plan {job_id} --why TEXT"
    assert finding.remedy == f"Run the job again: it replays the plan. Or drop it: {drop}"
    assert finding.repaired is False
    assert watermarks.latest(job_id).plan == plan


@pytest.mark.parametrize(("ahead", "found"), [(timedelta(days=365), ["future claim"]), (timedelta(minutes=10), [])])
@pytest.mark.parametrize("renews", [True, False])
def test_claim_is_found_with_its_remedy_when_the_clock_of_its_run_is_ahead(
    watermarks: Watermarks, clock: Clock, job_id: str, ahead: timedelta, found: list[str], renews: bool
) -> None:
    commit(watermarks, job_id, "r1", {"n": 1})
    run = watermarks.begin(job_id, "r2") if renews else None
    clock.move(seconds=ahead.total_seconds())
    run.heartbeat() if run else watermarks.begin(job_id, "r2")
    clock.move(seconds=-ahead.total_seconds())

    findings = watermarks.doctor(job_id)

    assert [one.kind for one in findings] == found
    assert all(f"watermarks release {job_id} --why TEXT" in one.remedy for one in findings)


def test_open_plan_is_found_when_its_run_was_aborted(watermarks: Watermarks, job_id: str) -> None:
    run = watermarks.begin(job_id, "r1")
    plan = run.freeze({}, {"n": 1})
    run.abort()

    [finding] = watermarks.doctor(job_id)

    assert (finding.kind, finding.detail) == ("open plan", f"plan {plan.plan_id} that no run works on")


def test_doctor_asks_to_be_run_again_when_the_job_changes_meanwhile(
    watermarks: Watermarks, hooked: Watermarks, faults: Faults, job_id: str, put: Any, stored: Stored
) -> None:
    commit(watermarks, job_id, "r1", {"n": 1})
    put(ORPHAN, data={"B": b"x"})

    faults.meanwhile(lambda request: request.operation == "Query", lambda: watermarks.begin(job_id, "r2"), times=100)

    [finding] = hooked.doctor(job_id, repair=True)

    assert (finding.detail, finding.remedy) == ("the job changed while it was examined", "Run the doctor again.")
    assert ORPHAN in stored()


# --- the log ------------------------------------------------------------------------------------------


def test_newest_log_entry_is_written_when_it_is_missing_and_the_doctor_may_repair(
    hooked: Watermarks, faults: Faults, job_id: str, stored: Stored
) -> None:
    commit(hooked, job_id, "r1", {"n": 1})
    faults.drop(log_write, times=100)
    commit(hooked, job_id, "r2", {"n": 2})
    faults.heal()

    looked, repaired, again = (hooked.doctor(job_id, repair=repair) for repair in (False, True, True))

    assert kinds(looked) == [("missing log entry", "version 2", False)]
    assert looked[0].remedy == "The next run writes it, or the doctor with --repair."
    assert kinds(repaired) == [("missing log entry", "version 2", True)]
    assert again == []
    assert {log_key(2), "r2"} <= set(stored())


def test_older_log_entry_is_only_reported_when_it_is_missing(
    watermarks: Watermarks, job_id: str, delete: Callable[[str], None]
) -> None:
    for number in range(1, 5):
        commit(watermarks, job_id, f"r{number}", {"n": number})
    delete(log_key(2))

    found = watermarks.doctor(job_id, repair=True)

    assert kinds(found) == [("missing log entry", "version 2", False)]
    assert found[0].remedy == "Restore it from a backup."
    assert watermarks.doctor(job_id) == found


# --- the original class -------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("written", [1, 2])
def test_legacy_writer_is_found_when_its_items_come_after_the_take_over(
    watermarks: Watermarks, job_id: str, put_legacy: Any, before: int, written: int
) -> None:
    for number in range(before):
        put_legacy(f"jr_old{number}")
    if before:
        watermarks.adopt(job_id, "jr_old0")
    else:
        watermarks.begin(job_id, "r1").abort()
    for number in range(written):
        put_legacy(f"jr_new{number}")

    [finding] = watermarks.doctor(job_id, repair=True)

    assert (finding.kind, finding.repaired) == ("legacy writer", False)
    assert finding.detail == f"{written} items more than when the job was taken over"
    assert "Some script still uses the original class; its watermarks are not seen" in finding.remedy


def test_legacy_writer_is_found_when_runs_of_ours_have_committed(
    watermarks: Watermarks, job_id: str, put_legacy: Any
) -> None:
    commit(watermarks, job_id, "r1", {"n": 1})
    put_legacy("jr_new")

    assert [finding.kind for finding in watermarks.doctor(job_id)] == ["legacy writer"]


# --- after a restore ----------------------------------------------------------------------------------


def test_batch_ids_are_others_when_a_restore_is_declared(watermarks: Watermarks, job_id: str) -> None:
    commit(watermarks, job_id, "r1", {"n": 1})
    lost = watermarks.begin(job_id, "r2")
    lost.freeze({}, {"n": 2})
    before = watermarks.latest(job_id)

    after_restore(watermarks, job_id, why="a backup came back", who="duty officer")

    head = watermarks.latest(job_id)
    assert watermarks.doctor(job_id) == []
    assert (head.version, head.fence, head.watermarks) == (before.version + 1, before.fence + 1, before.watermarks)
    assert (head.claim, head.plan) == (None, None)
    assert head.epoch != before.epoch
    with pytest.raises(FencedError, match="Run 'r2'"):
        lost.commit()
    run = watermarks.begin(job_id, "r2")
    run.freeze({}, {"n": 2})
    assert run.batch_id.epoch == head.epoch
    change = watermarks.history(job_id)[0].change
    assert (change.op, change.who, change.why) == ("SET", "duty officer", "a backup came back")


def test_epoch_is_another_each_time_when_a_restore_is_declared_again(watermarks: Watermarks, job_id: str) -> None:
    commit(watermarks, job_id, "r1", {"n": 1})
    epochs = [watermarks.latest(job_id).epoch]

    for _ in range(3):
        after_restore(watermarks, job_id, why="restored from a backup")
        epochs.append(watermarks.latest(job_id).epoch)

    assert len(set(epochs)) == 4


def test_doctor_points_to_adopt_when_there_are_only_items_of_the_original_class(
    watermarks: Watermarks, put_legacy: Callable[..., None], job_id: str
) -> None:
    for run_id in ("jr_1", "jr_2"):
        put_legacy(run_id, n={"N": "1"})

    (finding,) = watermarks.doctor(job_id)

    assert (finding.kind, finding.detail) == ("no head", "2 items without a head")
    assert "adopt" in finding.remedy
