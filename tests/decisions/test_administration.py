"""Decisions of operators: rewind, reset, set, discard. Each makes one new version and fences the current run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scripts.helpers.errors import CorruptItemError, FencedError, NoWatermarkError, PlanConflictError
from scripts.helpers.protocol import items
from scripts.helpers.protocol.head import Head
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.faults import Faults, head_write
from tests.support.steps import commit
from tests.support.table_items import Stored, put_item

pytestmark = pytest.mark.both_stores

WHY: dict[str, Any] = {"why": "bad rows in May", "who": "duty officer"}

DECISIONS: dict[str, Callable[[Watermarks, str], Head]] = {
    "rewind-version": lambda w, job: w.rewind(job, to_version=1, **WHY),
    "rewind-run": lambda w, job: w.rewind(job, to_run="r1", **WHY),
    "rewind-context": lambda w, job: w.rewind(job, to_version=1, transformation_ctx="repairs", **WHY),
    "reset": lambda w, job: w.reset(job, **WHY),
    "reset-context": lambda w, job: w.reset(job, transformation_ctx="repairs", **WHY),
    "set": lambda w, job: w.set_watermark(job, {"repairs": {"n": 7}}, **WHY),
    "set-context": lambda w, job: w.set_watermark(job, {"n": 7}, transformation_ctx="repairs", **WHY),
    "discard": lambda w, job: w.discard_plan(job, **WHY),
}
OPS = {"rewind": "REWIND", "reset": "RESET", "set": "SET", "discard": "DISCARD"}
AFTER: dict[str, dict[str, Any]] = {
    "rewind-version": {"repairs": {"n": 1}, "parking": {"n": 1}},
    "rewind-run": {"repairs": {"n": 1}, "parking": {"n": 1}},
    "rewind-context": {"repairs": {"n": 1}, "parking": {"n": 2}},
    "reset": {},
    "reset-context": {"parking": {"n": 2}},
    "set": {"repairs": {"n": 7}, "parking": {"n": 2}},
    "set-context": {"repairs": {"n": 7}, "parking": {"n": 2}},
    "discard": {"repairs": {"n": 2}, "parking": {"n": 2}},
}
IN_FORCE = dict.fromkeys(AFTER, "r2") | {"rewind-version": "r1", "rewind-run": "r1", "reset": None}


def marks(n: int) -> dict[str, Any]:
    return {"repairs": {"n": n}, "parking": {"n": n}}


@pytest.fixture
def two(watermarks: Watermarks, job_id: str) -> Watermarks:
    """Return `Watermarks` with a job of two contexts, which r1 and r2 have committed."""
    commit(watermarks, job_id, "r1", marks(1))
    commit(watermarks, job_id, "r2", marks(2))
    return watermarks


every_decision = pytest.mark.parametrize("decision", DECISIONS)


@every_decision
def test_decision_makes_one_version_and_one_fence_when_a_run_is_at_work(
    two: Watermarks, job_id: str, decision: str
) -> None:
    two.begin(job_id, "r3").freeze({"repairs": [1]}, marks(3))
    before = two.latest(job_id)

    head = DECISIONS[decision](two, job_id)

    assert two.latest(job_id) == head
    assert (head.version, head.fence, head.epoch) == (before.version + 1, before.fence + 1, before.epoch)
    assert (head.claim, head.plan) == (None, None)
    assert head.watermarks == AFTER[decision]


@every_decision
def test_run_at_work_is_fenced_and_changes_nothing_when_a_decision_is_made(
    two: Watermarks, job_id: str, stored: Stored, decision: str
) -> None:
    run = two.begin(job_id, "r3")
    run.freeze({"repairs": [1]}, marks(3))
    DECISIONS[decision](two, job_id)
    before = stored()

    with pytest.raises(FencedError, match=f"Run 'r3' of job '{job_id}' has fence 3, the job is at 4"):
        run.commit()

    assert stored() == before
    assert run.heartbeat() is False
    run.abort()
    assert stored() == before


@every_decision
def test_history_says_who_and_why_when_a_decision_is_made(
    two: Watermarks, clock: Clock, job_id: str, decision: str
) -> None:
    two.begin(job_id, "r3").freeze({}, marks(3))
    clock.move(hours=1)

    DECISIONS[decision](two, job_id)

    entry = two.history(job_id)[0]
    change = entry.change
    assert (entry.version, change.op) == (3, OPS[decision.partition("-")[0]])
    assert (change.who, change.why, change.at) == ("duty officer", "bad rows in May", clock.now)
    assert (change.previous_run_id, change.run_id, change.plan_id) == ("r2", IN_FORCE[decision], None)
    assert entry.watermarks == AFTER[decision]
    assert entry.duration is None


@every_decision
def test_next_run_starts_there_under_a_new_batch_id_when_a_decision_was_made(
    two: Watermarks, job_id: str, decision: str
) -> None:
    fenced = two.begin(job_id, "r3")
    fenced.freeze({}, marks(3))
    DECISIONS[decision](two, job_id)

    run = two.begin(job_id, "r4")

    assert (run.watermarks, run.replay, run.plan) == (AFTER[decision], False, None)
    run.freeze({}, marks(3))
    assert run.batch_id.version == fenced.batch_id.version + 1
    assert run.batch_id.epoch == fenced.batch_id.epoch
    assert run.commit() == "done"
    assert [entry.version for entry in two.history(job_id)] == [4, 3, 2, 1]


@pytest.mark.parametrize("decision", [name for name in DECISIONS if name != "reset"])
def test_most_recent_values_are_those_decided_when_they_are_looked_up(
    two: Watermarks, job_id: str, decision: str
) -> None:
    two.begin(job_id, "r3").freeze({}, marks(3))
    DECISIONS[decision](two, job_id)

    run_id = two.get_most_recent_run_id(job_id)

    assert run_id == IN_FORCE[decision]
    assert two.get_watermark_values(job_id) == AFTER[decision]
    assert two.get_watermark_values(job_id, run_id) == AFTER[decision]


def test_look_ups_say_that_nothing_is_committed_when_the_job_was_reset(two: Watermarks, job_id: str) -> None:
    two.reset(job_id, **WHY)

    for call in (two.get_most_recent_run_id, two.get_watermark, two.get_watermark_values):
        with pytest.raises(NoWatermarkError) as caught:
            call(job_id)
        assert caught.value.job_id == job_id

    assert two.get_watermark_values(job_id, "r2") == marks(2)


def test_versions_never_go_down_when_decisions_follow_each_other(two: Watermarks, job_id: str) -> None:
    names = [name for name in DECISIONS if name != "discard"] * 2
    found = []

    for name in names:
        if name == "reset-context":
            two.set_watermark(job_id, {"n": 0}, transformation_ctx="repairs", **WHY)
        found.append(DECISIONS[name](two, job_id).version)

    assert found == sorted(set(found))
    versions = [entry.version for entry in two.history(job_id)]
    assert versions == list(range(found[-1], 0, -1))


def test_rewind_goes_forward_again_when_it_names_a_later_version(two: Watermarks, job_id: str) -> None:
    two.rewind(job_id, to_version=1, **WHY)

    head = two.rewind(job_id, to_run="r2", **WHY)

    assert (head.version, head.watermarks, head.run_id) == (4, marks(2), "r2")


def test_rewind_goes_to_the_last_commit_of_a_run_when_it_committed_twice(two: Watermarks, job_id: str) -> None:
    commit(two, job_id, "r1", marks(3))
    commit(two, job_id, "r4", marks(4))

    head = two.rewind(job_id, to_run="r1", **WHY)

    assert (head.version, head.watermarks) == (5, marks(3))


def test_rewind_finds_a_run_when_its_items_were_never_written(
    two: Watermarks, job_id: str, delete: Callable[[str], None]
) -> None:
    delete("r2")
    delete("!c#0000000000000000002")

    head = two.rewind(job_id, to_run="r2", **WHY)

    assert (head.version, head.watermarks) == (3, marks(2))
    assert [entry.version for entry in two.history(job_id)] == [3, 2, 1]


def test_version_of_a_run_is_known_from_the_head_when_its_item_was_never_written(
    two: Watermarks, job_id: str, delete: Callable[[str], None]
) -> None:
    """The command looks up the version before a decision writes the missing items."""
    delete("r2")

    assert two.lookups.version_of(two.latest(job_id), "r2") == 2


def test_context_is_dropped_when_a_rewind_goes_to_before_its_first_run(watermarks: Watermarks, job_id: str) -> None:
    commit(watermarks, job_id, "r1", {"repairs": {"n": 1}})
    commit(watermarks, job_id, "r2", marks(2))

    head = watermarks.rewind(job_id, to_version=1, transformation_ctx="parking", **WHY)

    assert head.watermarks == {"repairs": {"n": 2}}


@pytest.mark.parametrize(("context", "expected"), [(None, {"n": 7}), ("repairs", {"repairs": {"n": 7}})])
def test_first_run_starts_at_the_declared_values_when_they_were_set_before_it(
    watermarks: Watermarks, job_id: str, context: str | None, expected: dict[str, Any]
) -> None:
    head = watermarks.set_watermark(job_id, {"n": 7}, transformation_ctx=context, **WHY)

    run = watermarks.begin(job_id, "r1")

    assert (head.version, head.fence, head.watermarks) == (1, 1, expected)
    assert (run.version, run.fence, run.watermarks) == (1, 2, expected)
    assert [(entry.change.op, entry.change.previous_run_id) for entry in watermarks.history(job_id)] == [("SET", None)]


def test_declared_values_are_looked_up_when_no_run_has_committed(watermarks: Watermarks, job_id: str) -> None:
    watermarks.set_watermark(job_id, {"n": 7}, **WHY)

    found = watermarks.get_watermark(job_id)

    assert found == {"jobName": job_id, "runId": None, "watermarks": {"n": 7}}
    assert watermarks.get_watermark_values(job_id) == {"n": 7}
    with pytest.raises(NoWatermarkError, match="has not committed a watermark yet"):
        watermarks.get_most_recent_run_id(job_id)


def test_who_is_the_systems_user_when_it_is_not_given(
    two: Watermarks, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "night-shift")

    two.reset(job_id, why="new source")

    assert two.history(job_id)[0].change.who == "night-shift"


def test_discard_is_refused_when_no_plan_is_open(two: Watermarks, job_id: str, stored: Stored) -> None:
    two.begin(job_id, "r3")
    before = stored()

    with pytest.raises(PlanConflictError, match=f"Job '{job_id}': there is no open plan to discard"):
        two.discard_plan(job_id, **WHY)

    assert stored() == before


def test_discard_drops_the_plan_of_a_dead_run_when_no_run_holds_it(two: Watermarks, job_id: str) -> None:
    with pytest.raises(ZeroDivisionError), two.begin(job_id, "r3") as run:
        run.freeze({}, marks(3))
        run.commit(rows=1 // 0)

    two.discard_plan(job_id, **WHY)

    assert two.begin(job_id, "r4").replay is False


@pytest.mark.parametrize("decision", ["rewind-version", "reset", "set", "set-context"])
def test_decision_is_taken_on_the_new_head_when_a_run_commits_in_between(
    two: Watermarks, hooked: Watermarks, faults: Faults, job_id: str, decision: str
) -> None:
    run = two.begin(job_id, "r3")
    run.freeze({}, marks(3))
    faults.meanwhile(head_write, run.commit)

    head = DECISIONS[decision](hooked, job_id)

    assert run.version == 3
    assert (head.version, two.latest(job_id)) == (4, head)
    expected = AFTER[decision] | ({"parking": {"n": 3}} if decision.startswith("set") else {})
    assert head.watermarks == expected
    history = [(entry.version, entry.change.op, entry.change.previous_run_id) for entry in two.history(job_id)]
    assert history[:2] == [(4, OPS[decision.partition("-")[0]], "r3"), (3, "COMMIT", "r2")]


def test_discard_is_refused_when_the_run_commits_in_between(
    two: Watermarks, hooked: Watermarks, faults: Faults, job_id: str
) -> None:
    run = two.begin(job_id, "r3")
    run.freeze({}, marks(3))
    faults.meanwhile(head_write, run.commit)

    with pytest.raises(PlanConflictError, match="there is no open plan to discard"):
        hooked.discard_plan(job_id, **WHY)

    assert (two.latest(job_id).version, two.get_watermark_values(job_id)) == (3, marks(3))


def test_reset_refuses_a_damaged_log_entry_and_is_made_when_that_entry_was_deleted(
    watermarks: Watermarks, job_id: str
) -> None:
    for number in (1, 2, 3):
        commit(watermarks, job_id, f"r{number}", {"n": number})
    damaged = items.log_key(2)
    put_item(watermarks, {**items.key(job_id, damaged), "op": {"S": "COMMIT"}})

    with pytest.raises(CorruptItemError, match=r"version is missing\. Restore it from a backup"):
        watermarks.reset(job_id, **WHY)
    watermarks.store.delete(job_id, damaged)

    assert watermarks.reset(job_id, **WHY).version == 4
