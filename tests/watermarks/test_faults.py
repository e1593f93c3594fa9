"""Writes that are dropped, lose their answer, are sent twice or are throttled; a store that is down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scripts.helpers.errors import FencedError, StoreUnavailableError
from scripts.helpers.protocol.run import Run
from scripts.helpers.watermarks import Watermarks
from tests.support.faults import ClientFaults, Faults, anything, head_write
from tests.support.outputs import output_of
from tests.support.steps import add, frozen
from tests.support.table_items import Stored, log_keys

pytestmark = pytest.mark.both_stores

ALWAYS = 10_000
FAULTS = [("drop", 1), ("drop", 3), ("reply_lost", 1), ("resend", 1), ("throttle", 1), ("throttle", 3)]
fault_cases = pytest.mark.parametrize(("fault", "times"), FAULTS, ids=[f"{name}-{times}" for name, times in FAULTS])


# --- one head write fails ---------------------------------------------------------------------------


@fault_cases
def test_begin_takes_the_job_once_when_its_write_fails(
    hooked: Watermarks, faults: Faults, job_id: str, fault: str, times: int
) -> None:
    faults.by_name(fault, head_write, times)

    run = hooked.begin(job_id, "r1")

    head = hooked.latest(job_id)
    assert faults.hits == times
    assert (head.version, head.fence, head.claim and head.claim.attempt) == (0, 1, 1)
    run.check()


@fault_cases
def test_freeze_stores_the_plan_once_when_its_write_fails(
    hooked: Watermarks, faults: Faults, job_id: str, fault: str, times: int
) -> None:
    run = hooked.begin(job_id, "r1")
    faults.by_name(fault, head_write, times)

    plan = run.freeze({"a": {"files": ["x"]}}, {"n": 1})

    head = hooked.latest(job_id)
    assert faults.hits == times
    assert (head.plan, head.version, head.fence) == (plan, 0, 1)
    run.check()


@fault_cases
def test_commit_stores_its_own_plan_once_when_its_write_fails(
    hooked: Watermarks, faults: Faults, job_id: str, stored: Stored, fault: str, times: int
) -> None:
    run = hooked.begin(job_id, "r1")
    plan = run.unfrozen({"a": {"files": []}}, {"n": 1})
    before = hooked.latest(job_id)
    faults.by_name(fault, head_write, times)

    outcome = run.commit((), plan, rows=0)

    head = hooked.latest(job_id)
    assert (before.plan, outcome, faults.hits) == (None, "done", times)
    assert (head.version, head.watermarks, head.claim, head.plan) == (1, {"n": 1}, None, None)
    assert log_keys(stored()) == ["!c#0000000000000000001"]


def test_commit_of_its_own_plan_changes_nothing_when_another_took_over(watermarks: Watermarks, job_id: str) -> None:
    old = watermarks.begin(job_id, "r1")
    plan = old.unfrozen({}, {"n": 1})
    watermarks.begin(job_id, "r1")

    with pytest.raises(FencedError):
        old.commit((), plan)

    head = watermarks.latest(job_id)
    assert (head.version, head.plan, dict(head.watermarks)) == (0, None, {})


@fault_cases
def test_commit_makes_one_version_when_its_write_fails(
    hooked: Watermarks, faults: Faults, job_id: str, stored: Stored, fault: str, times: int
) -> None:
    run = frozen(hooked, job_id)
    faults.by_name(fault, head_write, times)

    outcome = run.commit(rows=3)

    assert faults.hits == times
    assert (outcome, run.version, hooked.latest(job_id).version) == ("done", 1, 1)
    assert len(log_keys(stored())) == 1
    assert hooked.get_watermark(job_id, "r1")["metrics"] == {"rows": 3}


@fault_cases
def test_abort_lets_go_and_keeps_the_plan_when_its_write_fails(
    hooked: Watermarks, faults: Faults, job_id: str, fault: str, times: int
) -> None:
    run = frozen(hooked, job_id)
    faults.by_name(fault, head_write, times)

    run.abort()

    head = hooked.latest(job_id)
    assert faults.hits == times
    assert (head.claim, head.plan, head.version) == (None, run.plan, 0)


def test_output_stays_listed_and_a_warning_says_so_when_its_note_fails(
    hooked: Watermarks, faults: Faults, job_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    output = output_of(job_id=job_id)
    run = frozen(hooked, job_id)
    run.commit((output,))
    faults.drop(head_write, ALWAYS)

    run.published((output,))

    assert f"event=publish_note_deferred job={job_id} run=r1 error=" in caplog.text
    assert hooked.latest(job_id).unpublished == (output,)


@fault_cases
def test_add_watermark_makes_one_version_when_its_write_fails(
    hooked: Watermarks, faults: Faults, job_id: str, stored: Stored, fault: str, times: int
) -> None:
    add(hooked, job_id, "r1", n=1)
    faults.by_name(fault, head_write, times)

    add(hooked, job_id, "r2", n=2)

    assert faults.hits == times
    assert (hooked.get_most_recent_run_id(job_id), hooked.latest(job_id).version) == ("r2", 2)
    assert len(log_keys(stored())) == 2


@pytest.mark.usefixtures("dynamodb")
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("ProvisionedThroughputExceededException", 400),
        ("ThrottlingException", 400),
        ("RequestLimitExceeded", 400),
        ("InternalServerError", 500),
        ("ServiceUnavailable", 503),
        ("SomethingNew", 500),
        ("SomethingNew", 502),
    ],
)
def test_freeze_tries_again_when_dynamodb_is_busy(
    hooked: Watermarks, faults: ClientFaults, pauses: list[float], job_id: str, code: str, status: int
) -> None:
    run = hooked.begin(job_id, "r1")
    faults.refuse(code, head_write, times=2, status=status)

    run.freeze({}, {"n": 1})

    assert len(pauses) == faults.hits == 2
    assert hooked.latest(job_id).plan == run.plan


# --- the store is down -----------------------------------------------------------------------------------


DOWN: dict[str, Callable[[Watermarks, str, Run], Any]] = {
    "get_most_recent_run_id": lambda watermarks, job_id, _: watermarks.get_most_recent_run_id(job_id),
    "get_watermark": lambda watermarks, job_id, _: watermarks.get_watermark(job_id),
    "history": lambda watermarks, job_id, _: watermarks.history(job_id),
    "exists": lambda watermarks, *_: watermarks.exists(),
    "begin": lambda watermarks, job_id, _: watermarks.begin(job_id, "r1"),
    "add_watermark": lambda watermarks, job_id, _: add(watermarks, job_id, "r1", n=2),
    "adopt": lambda watermarks, job_id, _: watermarks.adopt(job_id, "r1"),
    "freeze": lambda _, __, run: run.freeze({}, {"n": 1}),
    "check": lambda _, __, run: run.check(),
    "abort": lambda _, __, run: run.abort(),
}


@pytest.mark.parametrize("action", DOWN)
@pytest.mark.parametrize("fault", ["drop", "throttle"])
def test_call_says_unavailable_and_changes_nothing_when_the_store_is_down(
    hooked: Watermarks, faults: Faults, job_id: str, stored: Stored, action: str, fault: str
) -> None:
    run = hooked.begin(job_id, "r1")
    before = stored()
    faults.by_name(fault, anything, ALWAYS)

    with pytest.raises(StoreUnavailableError, match=r"failed: [^\n]+\. (Try again|.*or try) later\.") as caught:
        DOWN[action](hooked, job_id, run)

    assert (caught.value.table_name, hooked.table_name in str(caught.value)) == (hooked.table_name, True)
    assert caught.value.cause in (
        "ConnectTimeoutError",
        "ProvisionedThroughputExceededException",
        "database is locked",
    )
    assert stored() == before
