"""A run that lost its job to another run can no longer change anything."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from scripts.helpers.errors import FencedError, PlanConflictError
from scripts.helpers.protocol.run import Run
from scripts.helpers.watermarks import DEFAULT_LEASE, Watermarks
from tests.support.clock import Clock
from tests.support.outputs import output_of_run
from tests.support.table_items import Stored, item_of, put_item

pytestmark = pytest.mark.both_stores


@pytest.fixture(params=["lease-over", "same-run-id"])
def take_over(request: pytest.FixtureRequest, watermarks: Watermarks, clock: Clock, job_id: str) -> Callable[..., Any]:
    """Return a builder of (old run, new run). With `plan`, the old run froze a plan before the takeover."""

    def make(plan: dict[str, Any] | None = None) -> tuple[Run, Run]:
        old = watermarks.begin(job_id, "r1")
        if plan is not None:
            old.freeze({}, plan)
        if request.param == "lease-over":
            clock.move(seconds=DEFAULT_LEASE.total_seconds())
        return old, watermarks.begin(job_id, "r1" if request.param == "same-run-id" else "r2")

    return make


def _freeze(run: Run) -> None:
    run.freeze({}, {"n": 2})


@pytest.mark.parametrize(("act", "plan"), [(_freeze, None), (Run.check, None), (Run.check, {"n": 1}),
                                           (Run.commit, {"n": 1})],
                         ids=["freeze", "check", "check-with-plan", "commit"])  # fmt: skip
def test_old_handle_is_fenced_and_changes_nothing_when_another_took_over(
    take_over: Any, job_id: str, stored: Stored, act: Callable[[Run], Any], plan: dict[str, Any] | None
) -> None:
    old, new = take_over(plan)
    before = stored()

    with pytest.raises(
        FencedError, match=r"another run took over, or somebody released the job\. Stop this run"
    ) as caught:
        act(old)

    assert (caught.value.run_id, caught.value.fence, caught.value.current_fence) == ("r1", old.fence, new.fence)
    assert f"Run 'r1' of job '{job_id}' has fence {old.fence}, the job is at {new.fence}" in str(caught.value)
    assert stored() == before


@pytest.mark.parametrize("plan", [None, {"n": 1}], ids=["claimed", "planned"])
def test_old_handles_abort_changes_nothing_when_another_took_over(
    take_over: Any, job_id: str, stored: Stored, caplog: pytest.LogCaptureFixture, plan: dict[str, Any] | None
) -> None:
    old, new = take_over(plan)
    before = stored()
    caplog.clear()

    old.abort()

    assert stored() == before
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [
        (logging.WARNING, f"event=abort_skipped job={job_id} run=r1 reason=taken_over")
    ]
    new.check()


def test_new_handle_can_finish_when_the_old_one_tried_everything(
    take_over: Any, watermarks: Watermarks, job_id: str
) -> None:
    old, new = take_over({"n": 1})
    with pytest.raises(FencedError):
        old.commit()
    with pytest.raises(PlanConflictError):
        old.freeze({}, {"n": 2})
    old.abort()

    outcome = new.commit()

    assert outcome == "done"
    assert [entry.watermarks for entry in watermarks.history(job_id)] == [{"n": 1}]


def test_old_commit_is_already_done_when_the_other_attempt_committed_the_same_plan(
    take_over: Any, job_id: str, stored: Stored
) -> None:
    old, new = take_over({"n": 1})
    of_new, of_old = output_of_run(new, "of-new"), output_of_run(old, "of-old")
    new.commit((of_new,), rows=3)
    before = stored()

    outcome = old.commit((of_old,), rows=4)

    assert (outcome, old.version, old.closed, old.batch_id) == ("already", 1, True, new.batch_id)
    assert old.outputs == (of_new,)
    assert stored() == before


@pytest.mark.parametrize("more", [1, 2])
def test_old_commit_is_already_done_when_more_runs_committed_since(
    take_over: Any, watermarks: Watermarks, job_id: str, stored: Stored, more: int
) -> None:
    old, new = take_over({"n": 1})
    new.commit()
    for number in range(2, 2 + more):
        watermarks.add_watermark(watermarks.create_watermark_item(job_id=job_id, run_id=f"s{number}", n=number))
    before = stored()

    outcome = old.commit()

    assert (outcome, old.version) == ("already", 1)
    assert stored() == before


def test_old_commit_is_fenced_when_its_version_was_made_from_another_plan(
    watermarks: Watermarks, clock: Clock, job_id: str, stored: Stored
) -> None:
    old = watermarks.begin(job_id, "r1")
    clock.move(seconds=DEFAULT_LEASE.total_seconds())
    new = watermarks.begin(job_id, "r2")
    new.freeze({}, {"n": 1})
    new.commit()
    before = stored()

    with pytest.raises(FencedError):
        old.freeze({}, {"n": 1})

    assert stored() == before


def test_old_commit_is_fenced_when_its_plan_was_removed_by_hand_and_another_committed(
    take_over: Any, watermarks: Watermarks, job_id: str, stored: Stored
) -> None:
    old, new = take_over({"n": 1})
    new.abort()
    head = item_of(watermarks, job_id)
    put_item(watermarks, {name: value for name, value in head.items() if name not in ("planId", "plan")})
    watermarks.add_watermark(watermarks.create_watermark_item(job_id=job_id, run_id="r3", n=3))
    before = stored()

    with pytest.raises(FencedError, match="another run took over"):
        old.commit()

    assert stored() == before


@pytest.mark.parametrize("act", [Run.check, Run.commit])
def test_run_is_fenced_at_0_when_its_head_is_gone(
    watermarks: Watermarks, job_id: str, delete: Callable[[str], None], act: Callable[[Run], Any]
) -> None:
    run = watermarks.begin(job_id, "r1")
    run.freeze({}, {"n": 1})
    delete("~latest")

    with pytest.raises(FencedError) as caught:
        act(run)

    assert (caught.value.fence, caught.value.current_fence) == (1, 0)


def test_fence_grows_at_every_begin_when_runs_follow_each_other(watermarks: Watermarks, job_id: str) -> None:
    fences = []
    for run_id in ("r1", "r1", "r2", "r3"):
        run = watermarks.begin(job_id, run_id)
        fences.append(run.fence)
        if run_id != "r1" or len(fences) == 2:
            run.abort()

    assert fences == [1, 2, 3, 4]
