"""The lease, and the plan that outlasts the run that froze it."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from scripts.helpers.errors import InvalidValueError, PlanConflictError, RunInProgressError
from scripts.helpers.protocol import begin
from scripts.helpers.protocol.races import TO_COMMIT_AT_ONCE
from scripts.helpers.watermarks import DEFAULT_LEASE, Watermarks
from scripts.jobs import session
from tests.support.clock import Clock
from tests.support.steps import add, frozen
from tests.support.table_items import Stored

pytestmark = pytest.mark.both_stores

JOB_ARGUMENTS = ["--JOB_NAME=parking", "--source=s3://landing/", "--target=s3://raw/"]
RICH: dict[str, Any] = {
    "rows": {"low": None, "high": datetime(2026, 3, 16, 15, 45, 0, 7, tzinfo=timezone.utc), "day": date(2026, 3, 16)},
    "files": {"packed": b"\x00\xff", "count": 0, "ratio": 0.5, "exact": Decimal("1.5"), "names": ["a b", "🎉", ""]},
}


# --- the lease ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0, DEFAULT_LEASE.total_seconds() - 0.000001], ids=["at-once", "just-before-end"])
def test_begin_is_refused_when_another_runs_lease_lives(
    watermarks: Watermarks, clock: Clock, job_id: str, stored: Stored, seconds: float
) -> None:
    frozen(watermarks, job_id, plan=RICH, following=RICH)
    until, before = clock.now + DEFAULT_LEASE, stored()
    clock.move(seconds=seconds)

    ends = f"Run 'r1' works on job '{job_id}'; its lease ends at 2026-03-16T16:00:00+00:00. Start again after that"
    with pytest.raises(RunInProgressError, match=re.escape(ends)) as caught:
        watermarks.begin(job_id, "r2")

    assert (caught.value.owner, caught.value.lease_until, caught.value.job_id) == ("r1", until, job_id)
    assert stored() == before


@pytest.mark.parametrize(("lease", "seconds"), [(timedelta(0), "0"), (timedelta(seconds=-0.5), "-0.5")], ids=str)
def test_begin_is_refused_before_anything_is_written_when_the_lease_is_not_above_0(
    watermarks: Watermarks, job_id: str, stored: Stored, lease: timedelta, seconds: str
) -> None:
    with pytest.raises(InvalidValueError, match=f"^The lease is {seconds} seconds; it must be above 0"):
        watermarks.begin(job_id, "r1", lease=lease)

    assert stored() == {}


@pytest.mark.parametrize(
    ("lease", "seconds"),
    [
        (timedelta(days=1, microseconds=1), "86400.000001"),
        (timedelta(days=366 * 7000), "221356800000"),
        (timedelta.max, "86400000000000"),
    ],
    ids=["just-above", "thousands-of-years", "longest-there-is"],
)
@pytest.mark.parametrize("take_over", [False, True], ids=["begin", "take-over"])
def test_begin_is_refused_before_anything_is_written_when_the_lease_is_above_a_day(
    watermarks: Watermarks, job_id: str, stored: Stored, lease: timedelta, seconds: str, take_over: bool
) -> None:
    add(watermarks, job_id, "r1", n=1)
    before = stored()

    with pytest.raises(InvalidValueError, match=f"lease is {seconds} seconds; the limit is 86400[.] Give a shorter"):
        watermarks.begin(job_id, "r2", lease=lease, take_over=take_over)

    assert stored() == before


def test_job_is_held_for_a_whole_day_when_its_lease_is_the_longest(
    watermarks: Watermarks, clock: Clock, job_id: str
) -> None:
    watermarks.begin(job_id, "r1", lease=timedelta(days=1))
    until = clock.now + timedelta(days=1)

    clock.move(seconds=86_399)
    with pytest.raises(RunInProgressError) as caught:
        watermarks.begin(job_id, "r2")
    assert caught.value.lease_until == until
    clock.move(seconds=1)

    assert watermarks.begin(job_id, "r2").attempt == 1


def test_begin_grants_a_longer_lease_when_the_table_is_opened_with_one(
    watermarks: Watermarks, clock: Clock, job_id: str
) -> None:
    longer = timedelta(days=366)
    patient = Watermarks(watermarks.table_name, watermarks.dynamodb_client, clock=clock, max_lease=longer)

    with pytest.raises(
        InvalidValueError, match=r"31622400.000001 seconds; the limit is 31622400\. .* 366 days at most"
    ):
        patient.begin(job_id, "r1", lease=longer + timedelta(microseconds=1))
    run = patient.begin(job_id, "r1", lease=longer)
    clock.move(days=300)

    # Renewed this late, the lease ends over a year after the begin, which must not count as a damaged item.
    assert run.heartbeat()
    clock.move(days=365)
    with pytest.raises(RunInProgressError) as caught:
        watermarks.begin(job_id, "r2")
    assert caught.value.lease_until == clock.now + timedelta(days=1)
    clock.move(days=1)
    assert watermarks.begin(job_id, "r2").fence == run.fence + 1


@pytest.mark.parametrize(
    ("max_lease", "seconds"),
    [
        (timedelta(0), "0"),
        (DEFAULT_LEASE - timedelta(microseconds=1), "899.999999"),
        (timedelta(days=366, microseconds=1), "31622400.000001"),
        (timedelta.max, "86400000000000"),
    ],
    ids=["nothing", "just-below", "just-above", "longest-there-is"],
)
def test_max_lease_is_refused_when_it_is_out_of_range(max_lease: timedelta, seconds: str) -> None:
    with pytest.raises(InvalidValueError, match=rf"max_lease is {seconds} seconds; it must be from 900 .* to 31622400"):
        Watermarks("council", max_lease=max_lease)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("86401s", "a lease of 86401s is not above 0s and at most 1d. Give a shorter one"),
        ("9" * 30 + "s", "is not a duration. Write a number and s, m, h or d"),
        ("9" * 5_000, "is not a duration"),
        ("٣٤s", "'٣٤s' is not a duration"),
        ("0s", "a lease of 0s is not above 0s"),
        ("-1s", "'-1s' is not a duration"),
    ],
    ids=["just-above", "overflow", "thousands-of-digits", "other-digits", "nothing", "negative"],
)
def test_job_is_refused_with_the_limit_when_its_lease_option_is_invalid(
    capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    with pytest.raises(SystemExit) as left:
        session.parse(session.parser("a job"), [*JOB_ARGUMENTS, f"--lease={text}"])

    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_job_has_its_lease_when_it_is_the_longest() -> None:
    assert session.parse(session.parser("a job"), [*JOB_ARGUMENTS, "--lease=1d"]).lease == timedelta(days=1)


def test_add_watermark_is_refused_when_another_runs_lease_lives(
    watermarks: Watermarks, job_id: str, stored: Stored
) -> None:
    watermarks.begin(job_id, "r1")
    before = stored()

    with pytest.raises(RunInProgressError) as caught:
        add(watermarks, job_id, "r2", n=1)

    assert (caught.value.owner, caught.value.job_id) == ("r1", job_id)
    assert stored() == before


def test_add_watermark_is_refused_when_others_commit_first_at_every_try(
    hooked: Watermarks, watermarks: Watermarks, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap = hooked.store.swap

    def swap_late(*given: Any) -> Any:
        add(watermarks, job_id, "r2", n=watermarks.store.read_head(job_id) is not None)
        return swap(*given)

    monkeypatch.setattr(begin, "TO_COMMIT_AT_ONCE", replace(TO_COMMIT_AT_ONCE, tries=2))
    monkeypatch.setattr(hooked.store, "swap", swap_late)

    with pytest.raises(RunInProgressError) as caught:
        add(hooked, job_id, "r1", n=1)

    assert (caught.value.owner, caught.value.job_id) == ("(several)", job_id)
    assert [entry.change.run_id for entry in watermarks.history(job_id)] == ["r2", "r2"]


def test_add_watermark_is_refused_when_a_plan_waits(watermarks: Watermarks, job_id: str, stored: Stored) -> None:
    frozen(watermarks, job_id, plan=RICH, following=RICH).abort()
    before = stored()

    with pytest.raises(PlanConflictError, match=r"^Job 'job-.*is open; add_watermark would skip it\. Run the job that"):
        watermarks.add_watermark(watermarks.create_watermark_item(job_id=job_id, run_id="r2", n=1))

    assert stored() == before


@pytest.mark.parametrize("lease", [DEFAULT_LEASE, timedelta(seconds=1), timedelta(days=1)], ids=str)
def test_begin_takes_over_when_the_lease_has_run_out(
    watermarks: Watermarks, clock: Clock, job_id: str, lease: timedelta
) -> None:
    old = watermarks.begin(job_id, "r1", lease=lease)

    clock.move(seconds=lease.total_seconds())
    run = watermarks.begin(job_id, "r2")

    assert (run.fence, run.attempt, run.replay) == (old.fence + 1, 1, False)


# --- inherited plans ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["abort", "lease", "reenter"])
def test_plan_is_replayed_byte_for_byte_when_the_run_before_did_not_commit(
    watermarks: Watermarks, clock: Clock, job_id: str, stored: Stored, how: str
) -> None:
    old = watermarks.begin(job_id, "r1")
    old.freeze(RICH, RICH)
    before = stored()["~latest"]
    if how == "abort":
        old.abort()
    if how == "lease":
        clock.move(seconds=DEFAULT_LEASE.total_seconds())

    run = watermarks.begin(job_id, "r1" if how == "reenter" else "r2")

    after = stored()["~latest"]
    assert run.replay
    assert (after["plan"], after["planId"]) == (before["plan"], before["planId"])
    assert run.plan is not None
    assert repr([run.plan.contexts, run.plan.next]) == repr([RICH, RICH])
    assert run.batch_id == old.batch_id


def test_commit_writes_the_inherited_next_when_the_plan_is_replayed(watermarks: Watermarks, job_id: str) -> None:
    old = watermarks.begin(job_id, "r1")
    old.freeze(RICH, RICH)
    old.abort()
    run = watermarks.begin(job_id, "r2")

    run.commit()

    assert repr(watermarks.get_watermark_values(job_id)) == repr(RICH)
    assert (watermarks.get_most_recent_run_id(job_id), watermarks.latest(job_id).version) == ("r2", 1)


def test_freeze_returns_the_inherited_plan_when_the_same_one_is_given(watermarks: Watermarks, job_id: str) -> None:
    old = watermarks.begin(job_id, "r1")
    plan = old.freeze(RICH, RICH)
    old.abort()
    run = watermarks.begin(job_id, "r2")

    assert run.freeze(RICH, RICH) == plan
