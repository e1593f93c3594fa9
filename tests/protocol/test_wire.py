"""What each call costs on the wire: its requests one by one, and the capacity that they consume."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import boto3
import pytest

from scripts.helpers.errors import WatermarkError
from scripts.helpers.protocol.run import Run
from scripts.helpers.protocol.store import CLIENT_CONFIG
from scripts.helpers.watermarks import Watermarks
from tests.conftest import Clock
from tests.protocol.capacity import Meter
from tests.support.faults import ONE_ATTEMPT, Wire

JOB, LEGACY_JOB = "parking", "parking-legacy"
FIRST, SECOND, THIRD, FOURTH = (f"jr_{digit * 64}" for digit in "1234")
WHY: dict[str, Any] = {"why": "a test", "who": "tester"}
LARGE = {"note": "x" * 60_000}


class World:
    """A job with two committed runs, and the wire and the meter of the client that made them."""

    def __init__(self, table_name: str, client: Any, clock: Clock, **options: Any) -> None:
        self.client, self.clock = client, clock
        self.wire, self.meter = Wire(client), Meter(client)
        self.watermarks = Watermarks(table_name, client, clock=clock, **options)
        self.run: Run

    def commit(self, run_id: str, **values: Any) -> Run:
        run = self.watermarks.begin(JOB, run_id)
        run.freeze({"repairs": {"low": 0, "high": 1}}, {"n": 1, **values})
        run.commit(rows=1)
        return run

    def begin(self, run_id: str = THIRD) -> Run:
        self.run = self.watermarks.begin(JOB, run_id)
        return self.run

    def freeze(self, **values: Any) -> Run:
        run = self.begin()
        run.freeze({"repairs": {"low": 1, "high": 2}}, {"n": 2, **values})
        return run

    def put_legacy(self, *run_ids: str) -> None:
        for run_id in run_ids:
            item = {"jobName": {"S": LEGACY_JOB}, "runId": {"S": run_id}, "watermarks": {"M": {"n": {"N": "1"}}}}
            self.client.put_item(TableName=self.watermarks.table_name, Item=item)

    def clear(self) -> None:
        self.wire.clear()
        self.meter.clear()

    @property
    def labels(self) -> list[str]:
        return [f"{one.operation} {kind(one.range_key)}".strip() for one in self.wire.requests]


def kind(range_key: str | None) -> str:
    kinds = {None: "", "~l": "head", "!c": "log", "!p": "plan", "!s": "state"}
    return kinds.get(range_key and range_key[:2], "run")


@pytest.fixture
def make_world(dynamodb: Any, make_watermarks: Callable[..., Watermarks], clock: Clock) -> Callable[..., World]:
    """Return a builder of a new table with two runs of one job in it; nothing of that is counted."""

    def make(**options: Any) -> World:
        config = CLIENT_CONFIG.merge(ONE_ATTEMPT)
        client = boto3.client("dynamodb", endpoint_url=dynamodb.meta.endpoint_url, config=config)
        world = World(make_watermarks().table_name, client, clock, **options)
        world.commit(FIRST)
        world.commit(SECOND)
        world.clear()
        return world

    return make


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()


def whole_run(world: World) -> None:
    world.freeze().check()
    world.run.commit(rows=1)


def add(world: World, run_id: str, n: int) -> None:
    world.watermarks.add_watermark(world.watermarks.create_watermark_item(JOB, run_id, n=n))


READ, WRITE, LOG = "GetItem head", "PutItem head", "PutItem log"
BEGIN = [READ, WRITE, "GetItem log"]
COMMIT = [WRITE, "PutItem run", LOG]
DECIDE = [READ, "GetItem log", WRITE, LOG]

Step = Callable[[World], Any]


def nothing(world: World) -> None:
    pass


CALLS: dict[str, tuple[Step, Step, list[str]]] = {
    # name: (what comes before, the call, its requests)
    "most-recent": (nothing, lambda w: w.watermarks.get_most_recent_run_id(JOB), [READ]),
    "get-newest": (nothing, lambda w: w.watermarks.get_watermark(JOB), [READ]),
    "get-newest-by-run": (nothing, lambda w: w.watermarks.get_watermark(JOB, SECOND), [READ]),
    "get-earlier": (nothing, lambda w: w.watermarks.get_watermark(JOB, FIRST), [READ, "GetItem run"]),
    "get-values": (nothing, lambda w: w.watermarks.get_watermark_values(JOB), [READ]),
    "latest": (nothing, lambda w: w.watermarks.latest(JOB), [READ]),
    "history-of-1": (nothing, lambda w: w.watermarks.history(JOB, limit=1), [READ]),
    "history-of-2": (nothing, lambda w: w.watermarks.history(JOB, limit=2), [READ, "Query"]),
    "history": (nothing, lambda w: w.watermarks.history(JOB), [READ, "Query"]),
    "history-page": (nothing, lambda w: w.watermarks.history(JOB, limit=9, before=2), [READ, "Query"]),
    "exists": (nothing, lambda w: w.watermarks.exists(), ["DescribeTable"]),
    "begin": (nothing, World.begin, BEGIN),
    "begin-with-plan": (World.freeze, lambda w: w.watermarks.begin(JOB, THIRD), BEGIN),
    "freeze": (World.begin, lambda w: w.run.freeze({}, {"n": 2}), [WRITE]),
    "check": (World.begin, lambda w: w.run.check(), [READ]),
    "heartbeat": (World.begin, lambda w: w.run.heartbeat(), ["UpdateItem head"]),
    "commit": (World.freeze, lambda w: w.run.commit(rows=1), COMMIT),
    "abort": (World.freeze, lambda w: w.run.abort(), [WRITE]),
    "whole-run": (nothing, whole_run, [*BEGIN, WRITE, READ, *COMMIT]),
    "add": (nothing, lambda w: add(w, THIRD, 2), [READ, "GetItem log", "GetItem run", *COMMIT]),
    "add-again": (
        lambda w: add(w, THIRD, 2),
        lambda w: add(w, THIRD, 2),
        [READ, "GetItem log", "GetItem run", "Query"],
    ),
    "rewind": (
        nothing,
        lambda w: w.watermarks.rewind(JOB, to_version=1, **WHY),
        [READ, "GetItem log", "GetItem log", WRITE, LOG],
    ),
    "reset": (nothing, lambda w: w.watermarks.reset(JOB, **WHY), DECIDE),
    "set": (nothing, lambda w: w.watermarks.set_watermark(JOB, {"n": 9}, **WHY), DECIDE),
    "discard": (World.freeze, lambda w: w.watermarks.discard_plan(JOB, **WHY), DECIDE),
    "adopt": (
        lambda w: w.put_legacy("jr_a", "jr_b"),
        lambda w: w.watermarks.adopt(LEGACY_JOB, "jr_a"),
        [READ, "Query", *COMMIT],
    ),
    "doctor": (nothing, lambda w: w.watermarks.doctor(JOB), [READ, "Query", READ]),
}


@pytest.mark.parametrize("name", CALLS)
def test_call_sends_these_requests_when_nothing_fails(
    world: World, name: str, record_property: Callable[[str, object], None]
) -> None:
    before, call, expected = CALLS[name]
    before(world)
    world.clear()

    call(world)

    record_property("capacity", f"read {world.meter.reads}, write {world.meter.writes}")
    record_property("reported", world.meter.reported)
    assert world.labels == expected
    reads = [label for label in expected if label.startswith(("GetItem", "Query"))]
    writes = [label for label in expected if label.startswith(("PutItem", "UpdateItem"))]
    assert (world.meter.reads, world.meter.writes) == (len(reads), len(writes)), "a unit for each small item"
    assert len(world.meter.reported) == len(reads) + len(writes)


@pytest.mark.parametrize("commits", [0, 1, 2, 5])
def test_whole_run_stays_within_its_budget_when_nothing_fails(make_world: Callable[..., World], commits: int) -> None:
    world = make_world()
    job = f"{JOB}-{commits}"
    for number in range(commits):
        world.watermarks.add_watermark(world.watermarks.create_watermark_item(job, f"r{number}", n=number))
    world.clear()

    run = world.watermarks.begin(job, "r-run")
    run.freeze({"repairs": {"low": 0, "high": 1}}, {"n": 1})
    run.check()
    run.commit(rows=1)

    assert (len(world.wire.reads), len(world.wire.writes)) == (3, 5)
    assert (world.meter.reads, world.meter.writes) == (3, 5)


def test_costs_grow_with_the_watermarks_when_they_are_large(make_world: Callable[..., World]) -> None:
    world = make_world()
    world.commit(THIRD, **LARGE)
    costs = {}

    for name, step in {
        "most recent": lambda: world.watermarks.get_most_recent_run_id(JOB),
        "begin": lambda: world.begin(FOURTH),
        "freeze": lambda: world.run.freeze({}, {"n": 2}),
        "commit": lambda: world.run.commit(rows=1),
        "most recent again": lambda: world.watermarks.get_most_recent_run_id(JOB),
    }.items():
        world.clear()
        step()
        costs[name] = (world.meter.reads, world.meter.writes)

    assert costs == {
        "most recent": (15, 0),
        "begin": (30, 60),
        "freeze": (0, 60),
        "commit": (0, 62),
        "most recent again": (1, 0),
    }


def test_commit_is_one_request_more_for_each_item_that_expires_when_there_is_a_retention(
    make_world: Callable[..., World],
) -> None:
    world = make_world(retention=timedelta(days=30))
    run = world.freeze()
    world.clear()

    run.commit()

    assert world.labels == [*COMMIT, "UpdateItem run", "UpdateItem log"]


def test_each_chunk_is_one_request_when_a_plan_is_spilled(world: World) -> None:
    run = world.begin()
    world.clear()

    run.freeze({"files": {"paths": ["x" * 70_000]}}, {"files": {"seen": ["y" * 70_000]}})
    run.planned("files")
    run.commit()
    world.watermarks.get_watermark_values(JOB)

    freeze, read_back = ["PutItem plan", "PutItem state", WRITE], ["GetItem plan"]
    assert world.labels == [*freeze, *read_back, *COMMIT, "DeleteItem plan", READ, "GetItem state"]


def test_fenced_run_sends_one_write_and_one_read_when_it_commits(world: World) -> None:
    old = world.freeze()
    world.clock.move(hours=1)
    world.watermarks.reset(JOB, **WHY)
    world.clear()

    with pytest.raises(WatermarkError):
        old.commit()

    assert world.labels == [WRITE, READ, "GetItem log"] or world.labels == [WRITE, READ]
