"""What each call costs on the wire: its requests one by one, and the capacity that they consume."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import boto3
import pytest

from scripts.helpers.errors import WatermarkError
from scripts.helpers.protocol.dynamodb import CLIENT_CONFIG
from scripts.helpers.protocol.run import Run
from scripts.helpers.watermarks import Watermarks
from tests.protocol.capacity import Meter
from tests.support.clock import Clock
from tests.support.faults import ONE_ATTEMPT, Wire
from tests.support.steps import add

JOB, LEGACY_JOB = "parking", "parking-legacy"
FIRST, SECOND, THIRD, FOURTH = (f"jr_{digit * 64}" for digit in "1234")
WHY: dict[str, Any] = {"why": "a test", "who": "tester"}
LARGE = {"note": "x" * 60_000}


class MeteredJob:
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
def make_metered(dynamodb: Any, make_watermarks: Callable[..., Watermarks], clock: Clock) -> Callable[..., MeteredJob]:
    """Return a builder of a new table with two runs of one job in it; nothing of that is counted."""

    def make(**options: Any) -> MeteredJob:
        config = CLIENT_CONFIG.merge(ONE_ATTEMPT)
        client = boto3.client("dynamodb", endpoint_url=dynamodb.meta.endpoint_url, config=config)
        metered = MeteredJob(make_watermarks().table_name, client, clock, **options)
        metered.commit(FIRST)
        metered.commit(SECOND)
        metered.clear()
        return metered

    return make


@pytest.fixture
def metered(make_metered: Callable[..., MeteredJob]) -> MeteredJob:
    return make_metered()


def whole_run(metered: MeteredJob) -> None:
    metered.freeze().check()
    metered.run.commit(rows=1)


READ, WRITE, LOG = "GetItem head", "PutItem head", "PutItem log"
BEGIN = [READ, WRITE, "GetItem log"]
COMMIT = [WRITE, "PutItem run", LOG]
DECIDE = [READ, "GetItem log", WRITE, LOG]

Step = Callable[[MeteredJob], Any]


def nothing(metered: MeteredJob) -> None:
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
    "begin": (nothing, MeteredJob.begin, BEGIN),
    "begin-with-plan": (MeteredJob.freeze, lambda w: w.watermarks.begin(JOB, THIRD), BEGIN),
    "freeze": (MeteredJob.begin, lambda w: w.run.freeze({}, {"n": 2}), [WRITE]),
    "check": (MeteredJob.begin, lambda w: w.run.check(), [READ]),
    "heartbeat": (MeteredJob.begin, lambda w: w.run.heartbeat(), ["UpdateItem head"]),
    "commit": (MeteredJob.freeze, lambda w: w.run.commit(rows=1), COMMIT),
    "abort": (MeteredJob.freeze, lambda w: w.run.abort(), [WRITE]),
    "whole-run": (nothing, whole_run, [*BEGIN, WRITE, READ, *COMMIT]),
    "add": (nothing, lambda w: add(w.watermarks, JOB, THIRD, n=2), [READ, "GetItem log", "GetItem run", *COMMIT]),
    "add-again": (
        lambda w: add(w.watermarks, JOB, THIRD, n=2),
        lambda w: add(w.watermarks, JOB, THIRD, n=2),
        [READ, "GetItem log", "GetItem run", "Query"],
    ),
    "rewind": (
        nothing,
        lambda w: w.watermarks.rewind(JOB, to_version=1, **WHY),
        [READ, "GetItem log", "GetItem log", WRITE, LOG],
    ),
    "reset": (nothing, lambda w: w.watermarks.reset(JOB, **WHY), [*DECIDE[:2], "Query", *DECIDE[2:]]),
    "set": (nothing, lambda w: w.watermarks.set_watermark(JOB, {"n": 9}, **WHY), DECIDE),
    "discard": (MeteredJob.freeze, lambda w: w.watermarks.discard_plan(JOB, **WHY), DECIDE),
    "adopt": (
        lambda w: w.put_legacy("jr_a", "jr_b"),
        lambda w: w.watermarks.adopt(LEGACY_JOB, "jr_a"),
        [READ, "Query", *COMMIT],
    ),
    "doctor": (nothing, lambda w: w.watermarks.doctor(JOB), [READ, "Query", READ, "DescribeTable"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_call_sends_these_requests_when_nothing_fails(
    metered: MeteredJob, name: str, record_property: Callable[[str, object], None]
) -> None:
    before, call, expected = CALLS[name]
    before(metered)
    metered.clear()

    call(metered)

    record_property("capacity", f"read {metered.meter.reads}, write {metered.meter.writes}")
    record_property("reported", metered.meter.reported)
    assert metered.labels == expected
    reads = [label for label in expected if label.startswith(("GetItem", "Query"))]
    writes = [label for label in expected if label.startswith(("PutItem", "UpdateItem"))]
    assert (metered.meter.reads, metered.meter.writes) == (len(reads), len(writes)), "a unit for each small item"
    assert len(metered.meter.reported) == len(reads) + len(writes)


@pytest.mark.parametrize("commits", [0, 1, 2, 5])
def test_whole_run_stays_within_its_budget_when_nothing_fails(
    make_metered: Callable[..., MeteredJob], commits: int
) -> None:
    metered = make_metered()
    job = f"{JOB}-{commits}"
    for number in range(commits):
        metered.watermarks.add_watermark(metered.watermarks.create_watermark_item(job, f"r{number}", n=number))
    metered.clear()

    run = metered.watermarks.begin(job, "r-run")
    run.freeze({"repairs": {"low": 0, "high": 1}}, {"n": 1})
    run.check()
    run.commit(rows=1)

    assert (len(metered.wire.reads), len(metered.wire.writes)) == (3, 5)
    assert (metered.meter.reads, metered.meter.writes) == (3, 5)


def test_costs_grow_with_the_watermarks_when_they_are_large(make_metered: Callable[..., MeteredJob]) -> None:
    metered = make_metered()
    metered.commit(THIRD, **LARGE)
    costs = {}

    for name, step in {
        "most recent": lambda: metered.watermarks.get_most_recent_run_id(JOB),
        "begin": lambda: metered.begin(FOURTH),
        "freeze": lambda: metered.run.freeze({}, {"n": 2}),
        "commit": lambda: metered.run.commit(rows=1),
        "most recent again": lambda: metered.watermarks.get_most_recent_run_id(JOB),
    }.items():
        metered.clear()
        step()
        costs[name] = (metered.meter.reads, metered.meter.writes)

    assert costs == {
        "most recent": (15, 0),
        "begin": (30, 60),
        "freeze": (0, 60),
        "commit": (0, 62),
        "most recent again": (1, 0),
    }


def test_commit_is_one_request_more_for_each_item_that_expires_when_there_is_a_retention(
    make_metered: Callable[..., MeteredJob],
) -> None:
    metered = make_metered(retention=timedelta(days=30))
    run = metered.freeze()
    metered.clear()

    run.commit()

    assert metered.labels == [*COMMIT, "UpdateItem run", "UpdateItem log"]


def test_each_chunk_is_one_request_when_a_plan_is_spilled(metered: MeteredJob) -> None:
    run = metered.begin()
    metered.clear()

    run.freeze({"files": {"paths": ["x" * 70_000]}}, {"files": {"seen": ["y" * 70_000]}})
    run.planned("files")
    run.commit()
    metered.watermarks.get_watermark_values(JOB)

    freeze, read_back = ["PutItem plan", "PutItem state", WRITE], ["GetItem plan"]
    assert metered.labels == [*freeze, *read_back, *COMMIT, "DeleteItem plan", READ, "GetItem state"]


def test_fenced_run_sends_one_write_and_one_read_when_it_commits(metered: MeteredJob) -> None:
    old = metered.freeze()
    metered.clock.move(hours=1)
    metered.watermarks.reset(JOB, **WHY)
    metered.clear()

    with pytest.raises(WatermarkError):
        old.commit()

    assert metered.labels == [WRITE, READ, "GetItem log"] or metered.labels == [WRITE, READ]
