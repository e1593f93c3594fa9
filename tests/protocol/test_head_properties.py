"""The head of a job under random steps of three runs: what holds on every walk."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from scripts.helpers.errors import PlanConflictError, RunInProgressError
from scripts.helpers.protocol.head import Head, Plan
from scripts.helpers.protocol.items import head_from_item, head_to_item, log_from_item, log_to_item
from tests.protocol.any_values import maps

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
LEASE = timedelta(minutes=15)
EPOCH = datetime(2026, 3, 16, tzinfo=timezone.utc)

steps = st.lists(
    st.tuples(st.just("claim"), st.sampled_from(["jr_a", "jr_b", "jr_c"]))
    | st.tuples(st.just("plan"), st.integers(0, 3))
    | st.tuples(st.sampled_from(["commit", "release"]), st.none())
    | st.tuples(st.just("tick"), st.integers(1, 20)),
    max_size=40,
)


def take(head: Head, step: tuple[str, Any], number: int, now: datetime) -> Head:
    name, value = step
    if name == "claim":
        return head.claimed(value, token=f"t{number}", now=now, lease=LEASE)
    if name == "plan":
        return head.planned(Plan(f"p{number}", {"rows": {"low": value}}, {"rows": number, "same": value}, now))
    if name == "commit":
        return head.committed(token=f"c{number}", now=now, metrics={"count": number})
    return head.released()


def walk(steps: list[tuple[str, Any]]) -> list[tuple[str, Head, Head]]:
    """Yield the legal steps, each with the head before and after it."""
    head, now, taken = Head.first("parking"), EPOCH, []
    for number, step in enumerate(steps):
        if step[0] == "tick":
            now += timedelta(minutes=step[1])
            continue
        try:
            after = take(head, step, number, now)
        except (PlanConflictError, RunInProgressError):
            continue
        taken.append((step[0], head, after))
        head = after
    event(f"commits: {head.version}")
    return taken


@patient
@given(steps)
def test_version_grows_by_one_per_commit_and_otherwise_stays_when_runs_compete(steps: list[tuple[str, Any]]) -> None:
    for name, before, after in walk(steps):
        assert after.version == before.version + (name == "commit")


@patient
@given(steps)
def test_fence_grows_per_claim_and_otherwise_stays_when_runs_compete(steps: list[tuple[str, Any]]) -> None:
    for name, before, after in walk(steps):
        assert after.fence == before.fence + (name == "claim")


@patient
@given(steps)
def test_watermarks_become_the_plans_next_at_commit_only_when_runs_compete(steps: list[tuple[str, Any]]) -> None:
    for name, before, after in walk(steps):
        if name == "commit":
            assert before.plan is not None
            assert after.watermarks == before.plan.next
        else:
            assert after.watermarks == before.watermarks


@patient
@given(steps)
def test_a_version_has_one_plan_at_most_when_runs_compete(steps: list[tuple[str, Any]]) -> None:
    seen: dict[int, Plan] = {}
    for _, _, after in walk(steps):
        if after.plan:
            assert seen.setdefault(after.version + 1, after.plan) == after.plan


@patient
@given(steps)
def test_identities_never_repeat_when_the_head_changed(steps: list[tuple[str, Any]]) -> None:
    changed = [after for _, before, after in walk(steps) if after != before]

    assert len({head.identity for head in changed}) == len(changed)


@patient
@given(steps)
def test_epoch_and_job_stay_when_runs_compete(steps: list[tuple[str, Any]]) -> None:
    for _, before, after in walk(steps):
        assert (after.epoch, after.job_id) == (before.epoch, before.job_id)


@patient
@given(steps)
def test_head_and_log_survive_storage_in_every_state_when_runs_compete(steps: list[tuple[str, Any]]) -> None:
    for _, _, after in walk(steps):
        assert head_from_item(head_to_item(after)) == after
        if after.log_entry:
            assert log_from_item(log_to_item(after.log_entry)) == after.log_entry


@patient
@given(maps, maps)
def test_head_survives_storage_when_values_are_of_any_kind(watermarks: dict[str, Any], bounds: dict[str, Any]) -> None:
    start = Head.imported("parking", "jr_1", watermarks, now=EPOCH, token="t")

    head = start.claimed("jr_2", token="t2", now=EPOCH, lease=LEASE).planned(Plan("p", bounds, watermarks, EPOCH))

    assert head_from_item(head_to_item(head)) == head
