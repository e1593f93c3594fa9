"""The crash matrix of the calls that decide about a job: no half state, and at most one version a call."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from scripts.helpers.errors import PlanConflictError, StoreUnavailableError, WatermarkError
from scripts.helpers.protocol import chunks
from scripts.helpers.watermarks import Watermarks
from tests.conftest import Clock
from tests.protocol.fault_plan import FAULTS, FaultAt
from tests.protocol.model_job import CONTEXT, PAD_BYTES, Sink, Source, check_table, drain, padding, work
from tests.support.dynamodb import Died, FakeDynamoDB

JOB = "parking"
DEAD, ONE_SHOT, LEGACY = "r-dead", "r-shot", "jr_legacy"
WHY: dict[str, Any] = {"why": "a test", "who": "tester"}


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Spill early and into two chunks; keep thousands of expected warnings out of a failure's report."""
    caplog.set_level(logging.ERROR, logger="scripts")
    monkeypatch.setattr(chunks, "MAX_BYTES", PAD_BYTES)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", PAD_BYTES * 3 // 4)


@dataclass(frozen=True)
class Operation:
    """One call, the state that it needs, and what a second one of it means."""

    call: Callable[[Watermarks], Any]
    state: str = "open plan"
    again: int | type[WatermarkError] = 1
    """Versions that a repetition makes after a success, or the error that says that there is nothing left to do."""
    value: int | None = None
    """The watermark afterwards; None: the one of before."""


def add(watermarks: Watermarks) -> None:
    watermarks.add_watermark(watermarks.create_watermark_item(JOB, ONE_SHOT, **{CONTEXT: {"value": 5}}))


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
    "after-restore": Operation(lambda marks: marks.doctor(JOB, after_restore=True, **WHY)),
    "adopt": Operation(lambda marks: marks.adopt(JOB, LEGACY), "legacy", again=PlanConflictError, value=4),
    "add-watermark": Operation(add, "idle", again=0, value=5),
    "add-watermark-to-a-new-job": Operation(add, "nothing", again=0, value=5),
}
REQUESTS = {
    "rewind-to-version": (5, 13),
    "rewind-to-run": (6, 14),
    "rewind-context": (5, 13),
    "reset": (4, 8),
    "set": (4, 8),
    "set-context": (4, 8),
    "set-for-a-new-job": (4, 4),
    "discard-plan": (4, 8),
    "after-restore": (7, 11),
    "adopt": (5, 5),
    "add-watermark": (6, 6),
    "add-watermark-to-a-new-job": (6, 6),
}
"""Requests of a clean call, inline and spilled; head, log entry, decision and log entry at least."""


class World:
    """A job in some state, its source and its sink."""

    def __init__(self, state: str, spilled: bool) -> None:
        self.client, self.clock, self.spilled = FakeDynamoDB("table"), Clock(), spilled
        self.source, self.sink = Source(), Sink()
        self.watermarks = Watermarks("table", self.client, clock=self.clock)  # type: ignore[arg-type]
        self.watermarks.store.sleep = lambda seconds: None
        if state == "legacy":
            for run_id, value in ((LEGACY, "4"), ("jr_other", "1")):
                values = {CONTEXT: {"M": {"value": {"N": value}}}}
                item = {"jobName": {"S": JOB}, "runId": {"S": run_id}, "watermarks": {"M": values}}
                self.client.put_item(TableName="table", Item=item)
        if state in ("idle", "open plan"):
            for number in range(2):
                work(self.watermarks, JOB, f"r-{number}", self.source, self.sink, spilled=spilled)
        if state == "open plan":
            run = self.watermarks.begin(JOB, DEAD)
            pad = {"pad": padding(4, 5)} if spilled else {}
            run.freeze({CONTEXT: {"low": 4, "high": 5, **pad}}, {CONTEXT: {"value": 5, **pad}})
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
    world = World(operation.state, spilled)
    operation.call(world.watermarks)
    return len(world.client.requests)


def fail(world: World, operation: Operation, k: int, fault: str) -> bool:
    """Call with a fault at request k; True if the caller was told of a success."""
    world.client.fault = plan = FaultAt(k, fault)
    told = True
    try:
        operation.call(world.watermarks)
    except (StoreUnavailableError, Died):
        told = False
    world.client.fault = None
    assert plan.struck, "the request was never made"
    made = world.stored_version() - world.version
    assert made == 1 if told else made in (0, 1), f"{made} versions were made, success: {told}"
    return bool(made)


def check_repeated(operation: Operation, spilled: bool, k: int, fault: str) -> None:
    """Fail, call again: the state is that of the call, with one version more for each that took effect."""
    world = World(operation.state, spilled)

    took_effect = fail(world, operation, k, fault)
    before = world.stored_version()
    expected = operation.again if took_effect else 1
    if isinstance(expected, int):
        operation.call(world.watermarks)
    else:
        with pytest.raises(expected):
            operation.call(world.watermarks)

    made = world.stored_version() - before
    assert made == (expected if isinstance(expected, int) else 0), f"the repetition made {made} versions"
    value = world.value if operation.value is None else operation.value
    assert world.committed_value() == value
    assert world.watermarks.latest(JOB).plan is None
    check_table(world.watermarks, world.client, JOB)


def check_followed_by_runs(operation: Operation, spilled: bool, k: int, fault: str) -> None:
    """Fail, then run: either the decision holds or everything is as before, and the runs take what follows."""
    world = World(operation.state, spilled)

    took_effect = fail(world, operation, k, fault)
    world.clock.move(hours=1)
    if world.stored_version() == 0 and operation.state == "legacy":
        operation.call(world.watermarks)
        took_effect = True
    start = operation.value if took_effect and operation.value is not None else world.value
    world.source.grow(3)
    world.sink.contents.clear()
    drain(world.watermarks, JOB, world.source, world.sink, spilled=spilled)

    assert world.sink.rows == world.source.rows(start, world.source.count), f"{world.sink.rows} after {start}"
    assert world.sink.changed == []
    assert world.committed_value() == world.source.count
    check_table(world.watermarks, world.client, JOB)


@pytest.mark.parametrize("spilled", [False, True], ids=["inline", "spilled"])
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("check", [check_repeated, check_followed_by_runs], ids=["repeated", "followed-by-runs"])
def test_decision_holds_or_not_when_any_request_of_it_fails(
    check: Callable[[Operation, bool, int, str], None], name: str, spilled: bool
) -> None:
    operation, failures = OPERATIONS[name], []

    for k in range(clean_requests(operation, spilled)):
        for fault in FAULTS:
            try:
                check(operation, spilled, k, fault)
            except Exception as error:
                failures.append(f"request {k}, {fault}: {type(error).__name__} {error}")

    assert failures == []


def test_matrix_of_decisions_has_no_gap_when_its_cases_are_counted() -> None:
    counts = {
        name: tuple(clean_requests(OPERATIONS[name], spilled) for spilled in (False, True)) for name in OPERATIONS
    }

    assert counts == REQUESTS
    assert sum(map(sum, counts.values())) * len(FAULTS) * 2 > 2_000
