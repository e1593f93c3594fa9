"""What goes over the wire: consistent reads, a condition on every head write, and only the known actions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import boto3
import pytest

from scripts.helpers.errors import NothingThereError, PlanConflictError, RunInProgressError, WatermarkError
from scripts.helpers.protocol import items
from scripts.helpers.protocol.dynamodb import CLIENT_CONFIG
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.faults import ONE_ATTEMPT, Request, Wire
from tests.support.steps import add

JOB, NEW, OLD, LEGACY = "parking", "parking-new", "parking-old", "parking-legacy"
WHY: dict[str, Any] = {"why": "a test", "who": "tester"}
SPILLED = {"pad": "x" * 70_000}
SETUP = {"CreateTable", "DescribeTable", "UpdateTimeToLive", "UpdateContinuousBackups"}


def look_around(watermarks: Watermarks) -> None:
    """Call everything that reads."""
    for job_id in (JOB, "unknown"):
        for look_up in (watermarks.latest, watermarks.get_most_recent_run_id, watermarks.history):
            try:
                look_up(job_id)
            except NothingThereError:
                assert job_id == "unknown"
    with pytest.raises(NothingThereError):
        watermarks.get_watermark("unknown", "r0")
    watermarks.get_watermark(JOB, "r2")
    watermarks.get_watermark_values(JOB)
    watermarks.history(JOB, limit=2)
    watermarks.doctor(JOB)
    assert watermarks.exists()
    assert not watermarks.exists("another-table")


def run_jobs(watermarks: Watermarks, clock: Clock) -> None:
    """Make every call of a run, including late and spilled ones."""
    old = watermarks.begin(JOB, "r1")
    old.freeze({}, {"n": 1})
    with pytest.raises(RunInProgressError):
        watermarks.begin(JOB, "r2")
    clock.move(hours=1)
    with watermarks.begin(JOB, "r2") as run:
        run.heartbeat()
        run.check()
        run.commit()
    assert old.commit() == "already"
    run = watermarks.begin(JOB, "r3")
    run.freeze({"files": SPILLED}, {"files": SPILLED})
    run.heartbeat()
    run.planned("files")
    run.commit()
    run = watermarks.begin(JOB, "r4")
    run.state("files")
    late = watermarks.begin(JOB, "r5", take_over=True)
    assert not run.heartbeat()
    with pytest.raises(WatermarkError):
        run.freeze({}, {"n": 4})
    late.freeze({}, {"n": 4})
    late.abort()
    watermarks.begin(JOB, "r6").commit()


def administrate(watermarks: Watermarks) -> None:
    """Make every administrative call."""
    watermarks.rewind(JOB, to_run="r3", **WHY)
    watermarks.rewind(JOB, to_version=2, transformation_ctx="files", **WHY)
    watermarks.set_watermark(JOB, {"n": 8}, **WHY)
    watermarks.set_watermark(JOB, {"n": 8}, transformation_ctx="files", **WHY)
    watermarks.reset(JOB, transformation_ctx="files", **WHY)
    watermarks.begin(JOB, "r7").freeze({"files": SPILLED}, {"n": 9})
    watermarks.discard_plan(JOB, **WHY)
    watermarks.reset(JOB, **WHY)
    watermarks.begin(JOB, "r8").freeze({"files": SPILLED}, {"n": 9})
    watermarks.decisions.restore(JOB, {}, **WHY)
    watermarks.doctor(JOB, repair=True)
    watermarks.set_watermark(NEW, {"n": 1}, **WHY)


def take_over_legacy(watermarks: Watermarks, put_legacy: Callable[..., None]) -> None:
    put_legacy(OLD, "jr_one")
    watermarks.latest(OLD)
    add(watermarks, OLD, "r1", n=1)
    add(watermarks, OLD, "r2", n=2)
    add(watermarks, OLD, "r2", n=2)
    put_legacy(LEGACY, "jr_one", "jr_two")
    watermarks.adopt(LEGACY, "jr_two")
    with pytest.raises(PlanConflictError):
        watermarks.adopt(LEGACY, "jr_one")


@pytest.fixture(scope="module")
def tour(endpoint: str) -> Wire:
    """Return the wire after every call of the package was made, including retention, first runs and imports."""
    client = boto3.client("dynamodb", endpoint_url=endpoint, config=CLIENT_CONFIG.merge(ONE_ATTEMPT))
    plain = boto3.client("dynamodb", endpoint_url=endpoint)
    wire, clock = Wire(client), Clock()
    watermarks = Watermarks("tour-of-the-wire", client, clock=clock, retention=timedelta(days=30))

    def put_legacy(job_id: str, *run_ids: str) -> None:
        for run_id in run_ids:
            item = {**items.key(job_id, run_id), "watermarks": {"M": {"n": {"N": "1"}}}}
            plain.put_item(TableName=watermarks.table_name, Item=item)

    watermarks.create_table()
    run_jobs(watermarks, clock)
    look_around(watermarks)
    administrate(watermarks)
    take_over_legacy(watermarks, put_legacy)
    return wire


def head_writes(wire: Wire) -> list[Request]:
    """Return every request that may change a head, whatever its action."""
    return [one for one in wire.writes if one.range_key == items.HEAD_KEY]


def terms(request: Request) -> set[str]:
    """Return the terms of a write's condition, all of which must hold, with placeholders replaced by names."""
    text = request.body.get("ConditionExpression", "")
    for placeholder, name in request.body.get("ExpressionAttributeNames", {}).items():
        text = text.replace(placeholder, name)
    assert " OR " not in text
    return set(text.split(" AND "))


def test_only_known_actions_are_sent_when_all_calls_are_made(tour: Wire) -> None:
    sent = {request.operation for request in tour.requests}

    assert sent == {"GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query"} | SETUP


def test_every_read_is_consistent_when_all_calls_are_made(tour: Wire) -> None:
    reads = tour.reads

    assert {request.operation for request in reads} == {"GetItem", "Query"}
    assert [request for request in reads if request.body.get("ConsistentRead") is not True] == []


def test_every_head_write_is_bound_to_what_was_read_when_a_head_is_there(tour: Wire) -> None:
    later = [request for request in head_writes(tour) if "attribute_not_exists(jobName)" not in terms(request)]

    bound = {"version = :version", "fence = :fence", "epoch = :epoch"}
    assert len(later) > 30
    assert {request.operation for request in later} == {"PutItem", "UpdateItem"}
    assert [request for request in later if not bound <= terms(request)] == []
    assert [one for one in later if not terms(one) & {"planId = :plan", "attribute_not_exists(planId)"}] == []


def test_first_head_write_is_bound_to_no_head_when_a_job_is_new(tour: Wire) -> None:
    first = [request for request in head_writes(tour) if terms(request) == {"attribute_not_exists(jobName)"}]

    assert [request.body["Item"]["jobName"]["S"] for request in first] == [JOB, NEW, OLD, LEGACY]


def test_heartbeat_is_bound_to_its_own_claim_and_changes_nothing_else_when_it_is_sent(tour: Wire) -> None:
    beats = [request for request in head_writes(tour) if request.operation == "UpdateItem"]

    assert len(beats) == 3
    assert [request for request in beats if "ownerTok = :token" not in terms(request)] == []
    assert {request.body["UpdateExpression"] for request in beats} == {"SET #lease = :lease"}
    assert {request.body["ExpressionAttributeNames"]["#lease"] for request in beats} == {"leaseUntil"}


def test_every_put_and_update_has_a_condition_when_all_calls_are_made(tour: Wire) -> None:
    writes = [request for request in tour.writes if request.operation in ("PutItem", "UpdateItem")]

    assert [request for request in writes if not request.body.get("ConditionExpression")] == []


def test_only_chunks_are_deleted_when_all_calls_are_made(tour: Wire) -> None:
    deleted = [request.range_key for request in tour.requests if request.operation == "DeleteItem"]

    assert len(deleted) >= 3
    assert [key for key in deleted if not (key or "").startswith(("!p#", "!s#"))] == []


def test_nothing_of_a_head_expires_when_there_is_a_retention(tour: Wire) -> None:
    expiring = [request for request in tour.writes if "expiresAt" in str(request.body.get("ExpressionAttributeNames"))]
    put = [request for request in tour.writes if "expiresAt" in request.body.get("Item", {})]

    assert {request.operation for request in expiring} == {"UpdateItem"}
    assert [request for request in expiring if request.range_key == items.HEAD_KEY] == []
    assert put == []
