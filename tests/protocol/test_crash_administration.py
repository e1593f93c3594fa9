"""The crash matrix of administrative calls: no partial state, and at most one version per call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from scripts.helpers.errors import PlanConflictError, StoreUnavailableError, WatermarkError
from scripts.helpers.watermarks import Watermarks
from tests.protocol.fault_plan import FAULTS, FaultAt
from tests.protocol.model_job import CONTEXT, ModelJob, check_table, drain, padding
from tests.support.dynamodb import Died
from tests.support.steps import add, frozen

pytestmark = [pytest.mark.usefixtures("small_limits", "double"), pytest.mark.both_stores]

JOB = "parking"
DEAD, ONE_SHOT, LEGACY = "r-dead", "r-shot", "jr_legacy"
WHY: dict[str, Any] = {"why": "a test", "who": "tester"}


@dataclass(frozen=True)
class Operation:
    """One administrative call, the state that it requires, and what a repeated call means."""

    call: Callable[[Watermarks], Any]
    state: str = "open plan"
    again: int | type[WatermarkError] = 1
    """Versions that a repeated call makes after a success, or the error that says that nothing is left to do."""
    value: int | None = None
    """The watermark afterwards; None if it is unchanged."""


def add_five(watermarks: Watermarks) -> None:
    add(watermarks, JOB, ONE_SHOT, **{CONTEXT: {"value": 5}})


VALUES = {"value": 2}
OPERATIONS = {
    "rewind-to-version": Operation(lambda marks: marks.rewind(JOB, to_version=1, **WHY), value=3),
    "rewind-to-run": Operation(lambda marks: marks.rewind(JOB, to_run="r-0", **WHY), value=3),
    "rewind-context": Operation(
        lambda marks: marks.rewind(JOB, to_version=1, transformation_ctx=CONTEXT, **WHY), value=3
    ),
    "reset": Operation(lambda marks: marks.reset(JOB, **WHY), value=0),
    "set": Operation(lambda marks: marks.set_watermark(JOB, {CONTEXT: VALUES}, **WHY), value=2),
    "set-context": Operation(
        lambda marks: marks.set_watermark(JOB, VALUES, transformation_ctx=CONTEXT, **WHY), value=2
    ),
    "set-for-a-new-job": Operation(
        lambda marks: marks.set_watermark(JOB, {CONTEXT: VALUES}, **WHY), "nothing", value=2
    ),
    "discard-plan": Operation(lambda marks: marks.discard_plan(JOB, **WHY), again=PlanConflictError),
    "after-restore": Operation(lambda marks: marks.decisions.restore(JOB, {}, **WHY)),
    "adopt": Operation(lambda marks: marks.adopt(JOB, LEGACY), "legacy", again=PlanConflictError, value=4),
    "add-watermark": Operation(add_five, "committed at once", again=0, value=5),
    "add-watermark-to-a-new-job": Operation(add_five, "nothing", again=0, value=5),
}
REQUESTS = {
    "rewind-to-version": (6, 14),
    "rewind-to-run": (7, 15),
    "rewind-context": (5, 13),
    "reset": (5, 9),
    "set": (4, 10),
    "set-context": (4, 12),
    "set-for-a-new-job": (4, 4),
    "discard-plan": (4, 8),
    "after-restore": (4, 8),
    "adopt": (5, 5),
    "add-watermark": (6, 6),
    "add-watermark-to-a-new-job": (6, 6),
}
"""Requests of a clean call, inline and spilled: at least the head, its log entry, the decision and its log entry."""


class DecidedJob(ModelJob):
    """A job in some state, on which an administrative call acts."""

    def __init__(self, state: str, spilled: bool) -> None:
        super().__init__(JOB, commits=2 if state == "open plan" else 0, spilled=spilled)
        if state == "legacy":
            for run_id, value in ((LEGACY, "4"), ("jr_other", "1")):
                values = {CONTEXT: {"M": {"value": {"N": value}}}}
                item: Any = {"jobName": {"S": JOB}, "runId": {"S": run_id}, "watermarks": {"M": values}}
                self.watermarks.store.put(item, if_new=False)
        if state == "open plan":
            pad = {"pad": padding(4, 5)} if spilled else {}
            plan, following = {CONTEXT: {"low": 4, "high": 5, **pad}}, {CONTEXT: {"value": 5, **pad}}
            frozen(self.watermarks, JOB, DEAD, plan=plan, following=following)
        if state == "committed at once":
            for shot, number in (("r-0", 3), ("r-1", 4)):
                add(self.watermarks, JOB, shot, **{CONTEXT: {"value": number}})
        self.version = self.stored_version()
        self.value = 0 if state in ("nothing", "legacy") else 4
        self.client.requests.clear()

    def stored_version(self) -> int:
        head = self.client.items.get((JOB, "~latest"))
        return int(head["version"]["N"]) if head else 0

    def committed_value(self) -> int:
        head = self.watermarks.latest(JOB)
        return self.watermarks.lookups.state_at(head, CONTEXT)["value"] if head.watermarks else 0


def clean_requests(operation: Operation, spilled: bool) -> int:
    job = DecidedJob(operation.state, spilled)
    operation.call(job.watermarks)
    return len(job.client.requests)


def fail(job: DecidedJob, operation: Operation, k: int, fault: str) -> bool:
    """Make the call with a fault at request k; return whether the caller was told that it succeeded."""
    job.client.fault = plan = FaultAt(k, fault)
    told = True
    try:
        operation.call(job.watermarks)
    except (StoreUnavailableError, Died):
        told = False
    job.client.fault = None
    assert plan.struck, "the request was never made"
    made = job.stored_version() - job.version
    assert made == 1 if told else made in (0, 1), f"{made} versions were made, success: {told}"
    return bool(made)


def check_repeated(job: DecidedJob, operation: Operation, took_effect: bool) -> None:
    """Repeat the call: the state is the call's, with one more version for each call that took effect."""
    before = job.stored_version()
    expected = operation.again if took_effect else 1
    if isinstance(expected, int):
        operation.call(job.watermarks)
    else:
        with pytest.raises(expected):
            operation.call(job.watermarks)

    made = job.stored_version() - before
    assert made == (expected if isinstance(expected, int) else 0), f"the repetition made {made} versions"
    value = job.value if operation.value is None else operation.value
    assert job.committed_value() == value
    assert job.watermarks.latest(JOB).plan is None
    check_table(job.watermarks, JOB)


def check_followed_by_runs(job: DecidedJob, operation: Operation, took_effect: bool) -> None:
    """Let runs follow: either the decision holds or nothing has changed, and the runs read all remaining rows."""
    job.clock.move(hours=1)
    if job.stored_version() == 0 and operation.state == "legacy":
        operation.call(job.watermarks)
        took_effect = True
    start = operation.value if took_effect and operation.value is not None else job.value
    job.source.grow(3)
    job.sink.contents.clear()
    drain(job.watermarks, JOB, job.source, job.sink, spilled=job.spilled)

    assert job.sink.rows == job.source.rows(start, job.source.count), f"{job.sink.rows} after {start}"
    assert job.sink.changed == []
    assert job.committed_value() == job.source.count
    check_table(job.watermarks, JOB)


@pytest.mark.parametrize("spilled", [False, True], ids=["inline", "spilled"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_decision_holds_or_not_when_any_of_its_requests_fails_and_it_is_repeated_or_runs_follow(
    name: str, spilled: bool
) -> None:
    operation = OPERATIONS[name]
    job = DecidedJob(operation.state, spilled)
    start, seen, failures = job.kept(), set(), []

    for k in range(clean_requests(operation, spilled)):
        for fault in FAULTS:
            try:
                job.restore(start)
                took_effect = fail(job, operation, k, fault)
                left, state = job.kept(), job.state()
                # The items are all that a failed call leaves, and most faults leave the same items as another fault.
                for check in (check_repeated, check_followed_by_runs) if state not in seen else ():
                    job.restore(left)
                    check(job, operation, took_effect)
                seen.add(state)
            except Exception as error:
                failures.append(f"request {k}, {fault}: {type(error).__name__} {error}")

    assert failures == []


def test_matrix_of_decisions_has_no_gap_when_its_cases_are_counted() -> None:
    counts = {
        name: tuple(clean_requests(OPERATIONS[name], spilled) for spilled in (False, True)) for name in OPERATIONS
    }

    assert counts == REQUESTS
    assert sum(map(sum, counts.values())) * len(FAULTS) * 2 > 2_000
