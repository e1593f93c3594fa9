"""What goes over the wire: consistent reads, conditions on every head write, and how many requests."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.helpers.errors import NothingThereError, RunInProgressError
from scripts.helpers.watermarks import Watermarks
from tests.conftest import Clock
from tests.integration.faults import Faults, Request, Wire, head_write


def add(watermarks: Watermarks, job_id: str, run_id: str, **values: Any) -> None:
    watermarks.add_watermark(watermarks.create_watermark_item(job_id=job_id, run_id=run_id, **values))


@pytest.fixture
def tour(hooked: Watermarks, wire: Wire, clock: Clock, job_id: str, put_legacy: Any) -> Wire:
    """Return the wire after every call of the package was made once, first run and import included."""
    with pytest.raises(NothingThereError):
        hooked.get_watermark(job_id, "r0")
    put_legacy("jr_legacy")
    hooked.latest(job_id)
    hooked.adopt(job_id, "jr_legacy")
    old = hooked.begin(job_id, "r1")
    old.freeze({}, {"n": 1})
    with pytest.raises(RunInProgressError):
        hooked.begin(job_id, "r2")
    clock.move(hours=1)
    with hooked.begin(job_id, "r2") as run:
        run.check()
        run.commit()
    add(hooked, job_id, "r3", n=2)
    add(hooked, job_id, "r4", n=2)
    assert old.commit() == "already"
    hooked.begin(job_id, "r5").abort()
    hooked.get_most_recent_run_id(job_id)
    hooked.get_watermark(job_id, "r3")
    hooked.get_watermark_values(job_id)
    hooked.history(job_id)
    add(hooked, f"{job_id}-new", "r1", n=1)
    return wire


def resolved(request: Request) -> tuple[str, set[str]]:
    """Return a write's condition with names for placeholders, and the names that it compares."""
    text = request.body["ConditionExpression"]
    for placeholder, name in request.body["ExpressionAttributeNames"].items():
        text = text.replace(placeholder, name)
    return text, {part.split(" = ")[0] for part in text.split(" AND ") if " = " in part}


def test_every_read_is_consistent_when_all_calls_are_made(tour: Wire) -> None:
    reads = tour.reads

    assert {request.operation for request in reads} == {"GetItem", "Query"}
    assert [request for request in reads if request.body.get("ConsistentRead") is not True] == []


def test_every_head_write_is_bound_to_version_and_fence_when_a_head_is_there(tour: Wire) -> None:
    later = [request for request in tour.head_writes if "attribute_not_exists(jobName)" not in resolved(request)[0]]

    assert len(later) >= 9
    assert [request for request in later if not {"version", "fence", "epoch"} <= resolved(request)[1]] == []
    assert [request for request in later if "planId" not in resolved(request)[0]] == []


def test_first_head_write_is_bound_to_no_head_when_a_job_is_new(tour: Wire, job_id: str) -> None:
    first = [request for request in tour.head_writes if resolved(request)[0] == "attribute_not_exists(jobName)"]

    assert [request.body["Item"]["jobName"]["S"] for request in first] == [job_id, f"{job_id}-new"]


def test_conditions_hold_the_state_before_when_a_run_goes_on(hooked: Watermarks, wire: Wire, job_id: str) -> None:
    add(hooked, job_id, "r1", n=1)
    wire.clear()

    run = hooked.begin(job_id, "r2")
    run.freeze({}, {"n": 2})
    run.commit()

    bound = [request.body["ExpressionAttributeValues"] for request in wire.head_writes]
    assert [(one[":version"]["N"], one[":fence"]["N"], ":plan" in one) for one in bound] == [
        ("1", "1", False),
        ("1", "2", False),
        ("1", "2", True),
    ]


def test_only_whole_items_are_put_on_condition_when_all_calls_are_made(tour: Wire) -> None:
    writes = tour.writes

    assert {request.operation for request in writes} == {"PutItem"}
    assert [request for request in writes if not request.body.get("ConditionExpression")] == []


def test_no_item_of_a_head_expires_when_all_calls_are_made(tour: Wire) -> None:
    assert [request for request in tour.head_writes if "expiresAt" in request.body["Item"]] == []


def test_get_most_recent_run_id_is_one_read_when_runs_have_committed(
    hooked: Watermarks, wire: Wire, job_id: str
) -> None:
    add(hooked, job_id, "r1", n=1)
    add(hooked, job_id, "r2", n=1)
    wire.clear()

    hooked.get_most_recent_run_id(job_id)

    assert [request.operation for request in wire.requests] == ["GetItem"]


@pytest.mark.parametrize("commits_before", [0, 1, 5])
def test_whole_run_stays_within_its_budget_when_nothing_fails(
    hooked: Watermarks, wire: Wire, job_id: str, commits_before: int
) -> None:
    for number in range(commits_before):
        add(hooked, job_id, f"s{number}", n=number)
    wire.clear()

    run = hooked.begin(job_id, "r1")
    run.freeze({}, {"n": 1})
    run.commit()

    assert len(wire.reads) <= 4
    assert len(wire.writes) <= 5


def test_nothing_is_sent_when_an_object_is_made(client: Any, wire: Wire) -> None:
    Watermarks("some-table", client)

    assert wire.requests == []


def test_head_write_is_sent_once_when_only_its_answer_was_lost(
    hooked: Watermarks, wire: Wire, faults: Faults, job_id: str
) -> None:
    run = hooked.begin(job_id, "r1")
    run.freeze({}, {"n": 1})
    faults.reply_lost(head_write)
    wire.clear()

    run.commit()

    assert len(wire.head_writes) == 1
