"""Amending: the run that holds the job replaces its frozen plan once, and no attempt can commit the old plan."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.helpers.errors import FencedError, PlanConflictError
from scripts.helpers.protocol.chunks import Blob
from scripts.helpers.watermarks import Watermarks
from tests.support.faults import Faults, Wire, after, head_write
from tests.support.steps import frozen, large
from tests.support.table_items import Stored, chunk_keys

pytestmark = pytest.mark.both_stores

FEWER: dict[str, Any] = {"a": {"files": []}}
AFTER: dict[str, Any] = {"n": 2}


def test_next_run_gets_the_amended_plan_when_the_run_ends(watermarks: Watermarks, job_id: str) -> None:
    run = frozen(watermarks, job_id)
    before = run.plan

    run.amend(FEWER, AFTER)
    run.abort()
    later = watermarks.begin(job_id, "r2")

    assert before is not None
    assert later.replay
    assert (later.planned("a"), later.following("n"), later.following("m")) == ({"files": []}, 2, None)
    assert later.plan is not None
    assert later.plan.plan_id != before.plan_id
    assert later.commit() == "done"
    assert watermarks.get_watermark_values(job_id) == AFTER


def test_older_attempt_is_fenced_when_the_amended_plan_is_committed(watermarks: Watermarks, job_id: str) -> None:
    older = frozen(watermarks, job_id)
    newer = watermarks.begin(job_id, "r2", take_over=True)
    newer.amend(FEWER, AFTER)
    newer.commit()

    with pytest.raises(FencedError):
        older.commit()
    with pytest.raises(FencedError):
        older.amend({"a": {"files": ["y"]}}, AFTER)

    assert watermarks.get_watermark_values(job_id) == AFTER


@pytest.mark.parametrize("fault", ["drop", "reply_lost", "resend", "throttle"])
def test_plan_is_replaced_once_when_its_write_goes_wrong(
    hooked: Watermarks, faults: Faults, wire: Wire, job_id: str, fault: str
) -> None:
    run = frozen(hooked, job_id)
    faults.by_name(fault, after(0, head_write))

    plan = run.amend(FEWER, AFTER)
    again = run.amend(FEWER, AFTER)

    assert faults.hits == 1
    assert plan == again
    stored = hooked.latest(job_id).plan
    assert stored is not None
    assert stored.plan_id == plan.plan_id
    assert run.commit() == "done"


def test_amend_is_refused_when_no_plan_is_frozen(watermarks: Watermarks, job_id: str) -> None:
    run = watermarks.begin(job_id, "r1")

    with pytest.raises(PlanConflictError, match=f"^Job '{job_id}': there is no frozen plan to amend"):
        run.amend(FEWER, AFTER)


def test_chunks_of_the_replaced_plan_go_and_shared_ones_stay_when_plans_are_large(
    watermarks: Watermarks, job_id: str, stored: Stored
) -> None:
    run = frozen(watermarks, job_id, plan={"a": large(1), "b": large(2)}, following={"a": large(3)})
    before = chunk_keys(stored())
    assert run.plan is not None

    run.amend({**run.plan.contexts, "a": large(4)}, run.plan.next)

    now = chunk_keys(stored())
    assert len(now) == len(before)
    assert len(set(now) - set(before)) == 2
    assert (run.planned("a"), run.planned("b"), run.following("a")) == (large(4), large(2), large(3))
    run.commit()
    assert watermarks.doctor(job_id) == []


def test_plan_is_replaced_and_a_warning_says_so_when_its_chunks_cannot_be_deleted(
    hooked: Watermarks, faults: Faults, job_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = frozen(hooked, job_id, plan={"a": large(1)})
    before = run.plan
    faults.drop(lambda request: request.operation == "DeleteItem", times=100)

    run.amend(FEWER, AFTER)

    assert before is not None
    assert f"event=chunks_left job={job_id} plan={before.plan_id} error=" in caplog.text
    assert run.planned("a") == {"files": []}


def test_blob_is_stored_again_when_a_later_plan_needs_what_an_amended_one_left_out(
    watermarks: Watermarks, job_id: str
) -> None:
    names = Blob(large(1)["packed"])
    run = watermarks.begin(job_id, "r1")
    run.freeze({"a": {"names": names}}, AFTER)
    run.amend(FEWER, AFTER)

    run.amend({"a": {"names": names}}, AFTER)

    assert run.planned("a")["names"].data == large(1)["packed"]
