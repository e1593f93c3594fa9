"""Releasing a job: the lease ends, the plan and its batch id stay, and a run that is still alive can do nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from scripts.helpers.errors import (
    FencedError,
    InvalidValueError,
    RunInProgressError,
    StaleError,
    StoreUnavailableError,
    UnknownJobError,
)
from scripts.helpers.metrics.signs_of_life import failed_since, may_be_dead, silence
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.items import head_from_item, head_to_item, log_from_item, log_to_item
from scripts.helpers.protocol.run import Run
from tests.protocol.fault_plan import FAULTS, FaultAt
from tests.protocol.model_job import CONTEXT, ModelJob, act_as_zombie, check_delivery, check_table, drain, padding
from tests.support.dynamodb import Died

pytestmark = [pytest.mark.usefixtures("double"), pytest.mark.both_stores]

JOB, DEAD = "parking", "jr_dead"
WHY: dict[str, Any] = {"why": "its cluster is gone", "who": "sam"}
REQUESTS = 2
"""The requests of a release: it reads the head and writes it."""


class HeldJob(ModelJob):
    """A job held by a run that wrote its batch to the sink and then fell silent."""

    def __init__(self, *, commits: int = 2, planned: bool = True, spilled: bool = False) -> None:
        super().__init__(JOB, commits=commits, spilled=spilled)
        low = self.source.count
        self.source.grow(2)
        self.dead: Run = self.process().begin(JOB, DEAD)
        if planned:
            pad = {"pad": padding(low, low + 1)} if spilled else {}
            low = (self.dead.state(CONTEXT) or {"value": 0})["value"]
            self.dead.freeze({CONTEXT: {"low": low, "high": low + 1, **pad}}, {CONTEXT: {"value": low + 1, **pad}})
            self.sink.write(str(self.dead.batch_id), self.source.rows(low, low + 1), pad.get("pad", b""))
        self.client.requests.clear()

    def release(self, **given: Any) -> Head:
        return self.process().release(JOB, **(WHY | given))

    @property
    def head(self) -> Head:
        return self.watermarks.latest(JOB)


def test_next_run_replays_the_same_batch_at_once_when_a_dead_one_is_released() -> None:
    job = HeldJob()
    before = job.head
    with pytest.raises(RunInProgressError, match="If it is dead: watermarks release parking --why TEXT"):
        job.process().begin(JOB, "jr_next")

    after = job.release()
    run = job.process().begin(JOB, "jr_next")

    assert (after.version, after.watermarks, after.plan) == (before.version, before.watermarks, before.plan)
    assert (after.claim, after.fence, job.head.fence) == (None, before.fence + 1, before.fence + 2)
    assert (run.replay, run.plan, run.batch_id) == (True, job.dead.plan, job.dead.batch_id)


@pytest.mark.parametrize("act", [Run.check, Run.commit], ids=["check", "commit"])
@pytest.mark.parametrize("begun", [False, True], ids=["nobody-since", "next-run-at-work"])
def test_released_run_is_fenced_when_it_is_still_alive(act: Callable[[Run], Any], begun: bool) -> None:
    job = HeldJob()
    job.release()
    if begun:
        job.process().begin(JOB, "jr_next")
    before = job.head

    assert not job.dead.heartbeat()
    with pytest.raises(FencedError, match="another run took over, or somebody released the job"):
        act(job.dead)

    assert job.head == before


@pytest.mark.parametrize("spilled", [False, True], ids=["inline", "spilled"])
@pytest.mark.usefixtures("small_limits")
def test_release_holds_or_not_and_no_row_is_lost_or_doubled_when_any_of_its_requests_fails(spilled: bool) -> None:
    failures = []
    for k in range(REQUESTS):
        for fault in FAULTS:
            try:
                check_failed_release(k, fault, spilled)
            except Exception as error:
                failures.append(f"request {k}, {fault}: {type(error).__name__} {error}")

    assert failures == []


def check_failed_release(k: int, fault: str, spilled: bool) -> None:
    """Make one request of a release fail, release again, and let other runs process the job until nothing is left."""
    job = HeldJob(spilled=spilled)
    before = job.head
    job.client.fault = plan = FaultAt(k, fault)
    told = True
    try:
        job.release()
    except (StoreUnavailableError, Died):
        told = False
    job.client.fault = None
    assert plan.struck, "the request was never made"
    assert not told or job.head.claim is None, "a success was told"

    job.release()

    after = job.head
    assert (after.claim, after.fence, len(after.releases)) == (None, before.fence + 1, 1)
    assert replace(after, fence=0, releases=(), last=None) == replace(before, fence=0, claim=None, last=None)
    act_as_zombie(job.dead, lambda: job.head)
    drain(job.watermarks, JOB, job.source, job.sink, spilled=spilled)
    act_as_zombie(job.dead, lambda: job.head)
    check_delivery(job.watermarks, JOB, job.source, job.sink)
    check_table(job.watermarks, JOB)


def test_release_takes_two_requests_when_nothing_fails() -> None:
    job = HeldJob()

    job.release()

    assert len(job.client.requests) == REQUESTS


def test_history_says_who_and_why_when_the_next_version_is_made() -> None:
    job = HeldJob()
    job.release()
    pending = job.watermarks.history(JOB).releases
    older = job.watermarks.history(JOB, before=2)
    assert [(one.run_id, one.who, one.why, one.at) for one in pending] == [(DEAD, "sam", WHY["why"], job.clock.now)]
    assert older.releases == ()

    job.process().begin(JOB, "jr_next").commit()

    newest, *others = job.watermarks.history(JOB)
    assert (newest.change.op, newest.change.releases) == ("COMMIT", pending)
    assert [entry.change.releases for entry in others] == [(), ()]
    assert (job.head.releases, job.watermarks.history(JOB).releases) == ((), ())
    stored = job.client.item(JOB, f"!c#{newest.version:019d}")
    assert stored is not None
    assert log_from_item(stored).change.releases == pending
    assert job.watermarks.history(JOB).to_pandas()["released"].iloc[0] == f"{DEAD} by sam: {WHY['why']}"


def test_history_keeps_a_release_when_a_decision_makes_the_next_version() -> None:
    job = HeldJob()
    job.release()

    job.watermarks.discard_plan(JOB, why="a test", who="kim")

    change = job.watermarks.history(JOB)[0].change
    assert (change.op, change.who, [one.who for one in change.releases]) == ("DISCARD", "kim", ["sam"])


def test_newest_five_releases_are_kept_when_there_are_many_before_one_version() -> None:
    job = HeldJob(planned=False)
    for number in range(6):
        job.release(why=f"number {number}")
        job.process().begin(JOB, f"jr_{number}")

    assert [one.why for one in job.head.releases] == [f"number {number}" for number in range(1, 6)]


def test_head_and_log_entry_come_back_equal_when_they_have_releases() -> None:
    job = HeldJob()
    job.release(why="sie hängt 🎉")
    released, claimed = job.head, job.process().begin(JOB, "jr_next", lease=timedelta(seconds=0.25)).head
    committed = claimed.committed(token="t", now=job.clock.now)

    assert committed.log_entry is not None
    for head in (released, claimed, committed):
        assert head_from_item(head_to_item(head)) == head
    assert log_from_item(log_to_item(committed.log_entry)) == committed.log_entry
    assert "sie hängt 🎉" in head_to_item(released)["releases"]["S"]


def test_run_counts_as_failed_once_when_it_was_released() -> None:
    for commits in (0, 2):
        job = HeldJob(commits=commits)
        assert failed_since(job.head, job.clock.now) == 0

        job.release()
        assert failed_since(job.head, job.clock.now) == 1

        job.process().begin(JOB, "jr_next").commit()
        assert job.watermarks.history(JOB)[0].change.failed == 1


@pytest.mark.parametrize("commits", [0, 2])
def test_nothing_is_written_when_no_run_has_the_job(commits: int) -> None:
    job = HeldJob(commits=commits)
    job.dead.abort()
    before = job.head

    assert job.release() == before == job.head


def test_lease_that_is_over_is_released_too_when_its_run_may_live() -> None:
    job = HeldJob()
    job.clock.move(days=2)

    job.release()

    with pytest.raises(FencedError):
        job.dead.commit()


def test_release_is_refused_when_another_run_has_the_job() -> None:
    job = HeldJob()
    before = job.head

    with pytest.raises(StaleError, match=r"Run 'jr_dead' has job 'parking' now\. Nothing was released\. Look again"):
        job.release(run_id="jr_other")
    assert job.head == before

    assert job.release(run_id=DEAD).claim is None


def test_release_is_refused_when_another_run_takes_the_job_meanwhile() -> None:
    job = HeldJob()
    seen = 0

    def taken(_index: int, _action: str, _request: dict[str, Any]) -> None:
        nonlocal seen
        seen += 1
        if seen == REQUESTS:  # Between the read and the write of the release.
            job.client.fault = None
            job.process().begin(JOB, "jr_next", take_over=True)

    job.client.fault = taken

    with pytest.raises(StaleError, match="Run 'jr_next' has job 'parking' now"):
        job.release()

    assert job.head.claim is not None
    assert job.head.claim.run_id == "jr_next"


def test_second_person_changes_nothing_when_two_release_at_once() -> None:
    job = HeldJob()
    seen = 0

    def released(_index: int, _action: str, _request: dict[str, Any]) -> None:
        nonlocal seen
        seen += 1
        if seen == REQUESTS:
            job.client.fault = None
            job.release(who="kim", why="a look at the cluster")

    job.client.fault = released
    after = job.release()

    assert (after.fence, [one.who for one in after.releases]) == (job.dead.fence + 1, ["kim"])


def test_release_is_refused_when_the_job_is_not_as_expected() -> None:
    job = HeldJob(planned=False)
    expected = job.head
    job.dead.freeze({CONTEXT: {"low": 0, "high": 1}}, {CONTEXT: {"value": 1}})

    with pytest.raises(StaleError, match="Job 'parking' changed while you looked"):
        job.release(expected=expected)

    assert job.head.claim is not None


def test_release_is_granted_when_the_lease_alone_was_renewed_since_it_was_looked_at() -> None:
    job = HeldJob()
    expected = job.head
    job.clock.move(minutes=5)
    assert job.dead.heartbeat()

    assert job.release(expected=expected).claim is None


@pytest.mark.parametrize("given", [{"why": ""}, {"who": "two\nlines"}, {"run_id": "~latest"}], ids=str)
def test_release_is_refused_before_anything_is_read_when_its_texts_are_none(given: dict[str, str]) -> None:
    job = HeldJob()

    with pytest.raises(InvalidValueError):
        job.release(**given)

    assert job.client.requests == []


def test_release_is_refused_when_the_job_is_unknown() -> None:
    job = HeldJob()

    with pytest.raises(UnknownJobError):
        job.watermarks.release("parkin", **WHY)


@pytest.mark.parametrize(
    ("minutes", "silent", "dead"), [(0, 0, False), (9.99, 599.4, False), (10, 600, True), (15, None, False)]
)
def test_run_may_be_dead_when_two_heartbeats_did_not_come(minutes: float, silent: float | None, dead: bool) -> None:
    job = HeldJob()
    job.clock.move(minutes=4)
    assert job.dead.heartbeat()
    job.clock.move(minutes=minutes)

    found = silence(job.head, job.clock.now)

    assert (found.total_seconds() if found is not None else None, may_be_dead(job.head, job.clock.now)) == (
        silent,
        dead,
    )


@pytest.mark.parametrize(("minutes", "dead"), [(60, False), (60.1, True)])
def test_run_may_be_dead_when_its_lease_is_unusually_long(minutes: float, dead: bool) -> None:
    job = HeldJob(planned=False)
    job.dead.abort()
    head = job.process().begin(JOB, "jr_next", lease=timedelta(minutes=minutes)).head
    assert head.claim is not None
    unknown = replace(head, claim=replace(head.claim, lease=None))

    assert [may_be_dead(one, job.clock.now) for one in (head, unknown)] == [dead, dead]
    assert silence(unknown, job.clock.now) is None


@pytest.mark.parametrize("stored", ["-1", "0", "1E+30", "1E+400"])
def test_head_is_read_when_the_length_of_its_lease_is_implausible(stored: str) -> None:
    job = HeldJob()
    item = head_to_item(job.head) | {"leaseSeconds": {"N": stored}}

    head = head_from_item(item)

    assert head.claim is not None
    assert (head.claim.lease, may_be_dead(head, job.clock.now)) == (None, False)
