"""What goes over the wire in single cases; tests/protocol/test_wire*.py count and check every call."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.helpers.watermarks import Watermarks
from tests.support.faults import Faults, Wire, head_write
from tests.support.outputs import output_of
from tests.support.steps import add, frozen

pytestmark = pytest.mark.usefixtures("dynamodb")


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


def test_nothing_is_sent_when_an_object_is_made(client: Any, wire: Wire) -> None:
    Watermarks("some-table", client)

    assert wire.requests == []


def test_nothing_is_sent_when_output_is_noted_as_published_before_the_commit(
    hooked: Watermarks, wire: Wire, job_id: str
) -> None:
    output = output_of(job_id=job_id)
    frozen(hooked, job_id).commit((output,))
    run = frozen(hooked, job_id, "r2")
    wire.clear()

    run.published((output,))

    assert wire.requests == []
    run.commit()
    assert hooked.latest(job_id).unpublished == ()


def test_head_write_is_sent_once_when_only_its_answer_was_lost(
    hooked: Watermarks, wire: Wire, faults: Faults, job_id: str
) -> None:
    run = hooked.begin(job_id, "r1")
    run.freeze({}, {"n": 1})
    faults.reply_lost(head_write)
    wire.clear()

    run.commit()

    assert len(wire.head_writes) == 1
