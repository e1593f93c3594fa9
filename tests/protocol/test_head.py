"""The head of a job: legal next states, illegal ones, and what each changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from scripts.helpers.errors import PlanConflictError
from scripts.helpers.protocol import items
from scripts.helpers.protocol.head import (
    MOST_ANSWERS,
    MOST_TARGETS,
    Change,
    Head,
    LogEntry,
    Order,
    Outputs,
    Plan,
    Release,
)
from scripts.helpers.protocol.outputs import MergeColumns, Output
from scripts.helpers.protocol.recent import with_commit
from tests.support.outputs import output_of

NOW = datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)
LEASE = timedelta(minutes=15)


def make_plan(plan_id: str = "p1", **next_watermarks: object) -> Plan:
    return Plan(plan_id, {"repairs": {"low": 1, "high": 9}}, next_watermarks or {"repairs": 9}, NOW)


def idle(version: int = 3) -> Head:
    change = Change("COMMIT", "c0", NOW, run_id="jr_0", plan_id="p0", metrics={"rows": 5}, fence=7, runs=version)
    return Head("parking", "e1", version, 7, {"repairs": 1}, last=change)


def claimed(head: Head | None = None, run_id: str = "jr_1", token: str = "t1") -> Head:
    return (head or idle()).claimed(run_id, token=token, now=NOW, lease=LEASE)


def planned() -> Head:
    return claimed().planned(make_plan())


def committed() -> Head:
    return planned().committed(token="c1", now=NOW, metrics={"rows": 2})


def aborted() -> Head:
    return planned().released()


def freed(token: str) -> Head:
    """Return the head after an operator released a run, with one earlier release."""
    before = Release("jr_0", NOW, "kim", "why", "t0")
    return replace(claimed(), releases=(before,)).freed(Order("sam", "why", NOW, token))


def output(version: int, target: str, sink: str = "iceberg", **more: Any) -> Output:
    return output_of(target, version, sink=sink, **{"rows": 10 * version, **more})


@pytest.mark.parametrize(
    ("unpublished", "outputs"),
    [((output(1, "shop.a", "files"),), ()), ((), (output(3, "shop.a", "files"),))],
    ids=["unseen", "seen"],
)
def test_first_version_is_retracted_when_a_job_is_reset(unpublished: Outputs, outputs: Outputs) -> None:
    head = replace(idle(), unpublished=unpublished)

    after = head.reset(Order("sam", "why", NOW, "token"), outputs=outputs, retract=True)

    assert [(one.target, one.first) for one in after.retracting] == [("shop.a", 1)]
    assert after.unpublished == ()


def test_rows_that_stay_are_reported_when_their_target_cannot_delete_them() -> None:
    """A rewind deletes files, and rows that have a batch column; it leaves other rows and reports them."""
    unseen = (
        output(2, "shop.a"), output(3, "shop.a"), output(3, "shop.b", batch_column="batch"),
        output(3, "file:///c", "files"), output(3, "shop.d", rows=0), output(1, "shop.e"),
    )  # fmt: skip
    entry = LogEntry("parking", 1, {"repairs": 0}, Change("COMMIT", "c", NOW, run_id="jr_1"))

    after = replace(idle(), unpublished=unseen).rewound(entry, Order("sam", "why", NOW, "token"))

    assert {one.target: (one.first, one.last, one.rows) for one in after.retracting} == {
        "shop.a": (2, 3, {2: 20, 3: 30}), "shop.b": (3, 3, {}), "file:///c": (3, 3, {}), "shop.d": (3, 3, {}),
    }  # fmt: skip
    assert after.unpublished == unseen[-1:]
    assert after.retracted == ((2, 3),)


def test_first_head_has_nothing_and_an_epoch_of_its_own_when_made() -> None:
    head, other = Head.first("parking"), Head.first("parking")

    assert (head.version, head.fence, head.watermarks) == (0, 0, {})
    assert (head.claim, head.plan, head.last, head.log_entry) == (None, None, None, None)
    assert head.epoch != other.epoch


def test_imported_head_is_version_1_with_its_run_when_a_legacy_item_is_taken_over() -> None:
    head = Head.imported("parking", "jr_9", {"latest_data": 0}, now=NOW, token="t")

    assert (head.version, head.run_id, head.watermarks) == (1, "jr_9", {"latest_data": 0})
    metrics = {"legacy_items": 1}
    assert head.last == Change("IMPORT", "t", NOW, run_id="jr_9", metrics=metrics, fence=0, runs=1, failed=0)


@pytest.mark.parametrize("start", [Head.first("parking"), idle(), aborted()])
def test_claimed_takes_the_job_with_a_higher_fence_when_nobody_holds_it(start: Head) -> None:
    head = claimed(start)

    assert head == replace(start, fence=start.fence + 1, claim=head.claim)
    assert head.claim is not None
    assert (head.claim.run_id, head.claim.token, head.claim.attempt) == ("jr_1", "t1", 1)
    assert head.claim.lease_until == NOW + LEASE


@pytest.mark.parametrize("run_id", ["jr_1", "jr_1_attempt_1"], ids=["same", "retry"])
@pytest.mark.parametrize("start", [claimed(), planned()])
def test_claimed_reenters_with_next_attempt_when_the_run_is_the_same(start: Head, run_id: str) -> None:
    head = claimed(start, run_id, token="t2")

    assert head.claim is not None
    assert (head.fence, head.claim.attempt, head.claim.token) == (start.fence + 1, 2, "t2")
    assert head.plan == start.plan


def test_lease_is_stored_in_utc_when_the_clock_has_another_zone() -> None:
    head = idle().claimed("jr_1", token="t", now=NOW.astimezone(timezone(timedelta(hours=5))), lease=LEASE)

    assert head.claim is not None
    assert head.claim.lease_until.utcoffset() == timedelta(0)


def test_planned_changes_the_plan_alone_when_claimed() -> None:
    assert planned() == replace(claimed(), plan=make_plan())


def test_planned_changes_nothing_when_the_plan_is_the_same() -> None:
    assert planned().planned(make_plan()) == planned()


@pytest.mark.parametrize("other", [make_plan("p2"), make_plan("p1", repairs=10)])
def test_planned_refuses_naming_plan_and_version_when_another_is_open(other: Plan) -> None:
    with pytest.raises(
        PlanConflictError, match=r"Job 'parking': plan p1 of version 4 is frozen .*Work through the frozen plan"
    ):
        planned().planned(other)


@pytest.mark.parametrize("start", [Head.first("parking"), idle(), aborted(), committed()])
def test_planned_refuses_when_no_run_has_the_job(start: Head) -> None:
    with pytest.raises(PlanConflictError, match=r"Job 'parking': no run has the job.*Call begin first"):
        start.planned(make_plan())


def test_committed_takes_the_plans_own_next_and_lets_go_when_planned() -> None:
    start = planned()

    head = start.committed(token="c1", now=NOW, metrics={"rows": 2})

    change = Change(
        "COMMIT", "c1", NOW, run_id="jr_1", plan_id="p1", previous_run_id="jr_0", started_at=NOW,
        metrics={"rows": 2}, fence=start.fence, runs=4, failed=0,
    )  # fmt: skip
    recent = with_commit("", NOW, {"rows": 2})
    assert head == Head("parking", "e1", 4, start.fence, {"repairs": 9}, last=change, recent_text=recent)
    assert head.run_id == "jr_1"
    assert head.log_entry == LogEntry("parking", 4, {"repairs": 9}, change)


@pytest.mark.parametrize("start", [Head.first("parking"), idle(), claimed(), aborted(), committed()])
def test_committed_refuses_with_the_remedy_when_there_is_no_plan_of_a_run(start: Head) -> None:
    with pytest.raises(PlanConflictError, match=r"Job 'parking': there is no frozen plan to commit. Call freeze first"):
        start.committed(token="c2", now=NOW)


@pytest.mark.parametrize("start", [Head.first("parking"), aborted(), committed()])
def test_head_is_unchanged_when_no_run_has_a_lease_to_renew_or_end(start: Head) -> None:
    assert start.renewed(NOW + LEASE) == start
    assert start.freed(Order("sam", "why", NOW, "t2")) == start


def test_newest_answers_are_kept_when_more_restores_were_answered_than_a_head_keeps() -> None:
    head, order = replace(Head.first("parking"), version=1), Order("sam", "why", NOW, "token")
    targets = [f"s3://lake/{number}" for number in range(MOST_ANSWERS - 1)]
    first = head.restored(order, {target: {head.epoch: 2} for target in targets})

    second = first.restored(order, {target: {first.epoch: 5} for target in targets[:2]})

    assert sum(map(len, second.answers.values())) <= MOST_ANSWERS
    assert second.last_versions_at(targets[1])[first.epoch] == 5
    # The older answer was dropped, so it is asked for again.
    assert second.last_versions_at(targets[1])[head.epoch] == 1


def landed(version: int, target: str, **more: Any) -> Output:
    return output(version, target, files=1, **more)


def test_newest_targets_are_kept_when_more_were_published_to_or_their_names_are_long() -> None:
    targets = [f"s3://lake/{number:0990}" for number in range(MOST_TARGETS + 2)]
    head = idle().published(tuple(landed(3, target, staging=target[::-1]) for target in targets))

    again = head.published((landed(4, targets[2]), landed(5, targets[3], rows=0)))
    merge = MergeColumns(tuple(f"{'k' * 1_000}{number}" for number in range(20)), ("at",))
    longer = again.published(tuple(landed(6, target, merge=merge) for target in targets[-3:]))

    assert [one.target for one in head.at_targets] == targets[2:]
    assert [(one.target, one.version) for one in again.at_targets[-2:]] == [(targets[-1], 3), (targets[2], 4)]
    assert [one.target for one in longer.at_targets] == targets[-2:]
    back = items.head_from_item(items.head_to_item(longer))
    assert back == longer


def test_rows_that_a_target_lacks_are_recorded_until_read_again_when_later_batches_are_published() -> None:
    order = Order("sam", "why", NOW, "token")
    lost = idle(9).published((landed(5, "s3://lake/t"),), lacks_after=3).published((landed(7, "s3a://lake/t/"),))
    lost = lost.published((landed(9, "s3://lake/t"),), lacks_after=8)

    def lacks(version: int, *left: Output) -> list[tuple[int, int | None]]:
        """Return for each target, after a rewind, the version it must have and the one after which it lacks rows."""
        entry = LogEntry("parking", version, {}, replace(lost.last or Change("COMMIT", "c", NOW), outputs=left))
        return [(one.version, one.lacks_after) for one in lost.rewound(entry, order).at_targets]

    assert [(one.version, one.lacks_after) for one in lost.at_targets] == [(9, 3)]
    assert lacks(9) == [(9, 3)]
    assert lacks(7, landed(7, "s3://lake/t")) == [(7, 3)]
    assert lacks(6) == [(6, 3)]
    assert lacks(3, landed(3, "s3://lake/t")) == [(3, None)]
    assert (lacks(2), lost.reset(order).at_targets) == ([], ())


@pytest.mark.parametrize(
    ("before", "step"),
    [
        (Head.first("parking"), claimed),
        (idle(), claimed),
        (claimed(), lambda head: claimed(head, token="t2")),
        (claimed(), lambda head: head.planned(make_plan())),
        (claimed(), lambda head: head.released()),
        (planned(), lambda head: claimed(head, token="t2")),
        (planned(), lambda head: head.committed(token="c1", now=NOW)),
        (planned(), lambda head: head.released()),
        (aborted(), claimed),
    ],
)
def test_identity_differs_and_original_stays_when_a_transition_is_made(
    before: Head, step: Callable[[Head], Head]
) -> None:
    copy = replace(before)

    after = step(before)

    assert after.identity != before.identity
    assert before == copy


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        (claimed(token="t1"), claimed(token="t2")),
        (claimed().planned(make_plan("p1")), claimed().planned(make_plan("p2"))),
        (planned().committed(token="c1", now=NOW), planned().committed(token="c2", now=NOW)),
        (replace(idle(), epoch="e1"), replace(idle(), epoch="e2")),
        (freed("t1"), freed("t2")),
    ],
)
def test_identity_differs_when_two_writers_make_the_same_step_from_one_head(mine: Head, other: Head) -> None:
    assert mine.identity != other.identity


def test_repr_shows_no_values_when_printed() -> None:
    head = claimed(replace(idle(), watermarks={"email": "secret"})).planned(make_plan(email="secret"))
    entry = LogEntry("parking", 4, {"email": "secret"}, committed().last)  # type: ignore[arg-type]

    assert "secret" not in repr(head) + repr(entry)
    assert repr(entry) == "<v4 COMMIT 2026-03-16 15:45:00Z run=jr_1 rows=2>"


# --- counts ------------------------------------------------------------------------------------------


def committed_after(head: Head, *runs: str) -> Head:
    """Return the head after some runs began, of which only the last one committed."""
    for run_id in runs[:-1]:
        head = claimed(head, run_id).released()
    return claimed(head, runs[-1]).planned(make_plan()).committed(token="c9", now=NOW)


def counts(head: Head) -> tuple[int, int, int, str | None]:
    assert head.log_entry is not None
    return head.version, head.runs, head.log_entry.change.failed, head.log_entry.change.previous_run_id


def test_runs_grow_by_one_per_success_and_failures_are_reported_when_runs_fail_in_between() -> None:
    first = committed_after(Head.first("parking"), "jr_1")
    second = committed_after(first, "jr_2", "jr_3", "jr_4")
    third = committed_after(second, "jr_5")

    assert [counts(head) for head in (first, second, third)] == [
        (1, 1, 0, None),
        (2, 2, 2, "jr_1"),
        (3, 3, 0, "jr_4"),
    ]


def test_begun_counts_the_runs_since_the_last_version_when_they_fail_or_come_again() -> None:
    start = committed_after(Head.first("parking"), "jr_1")

    again = claimed(claimed(start, "jr_2").released(), "jr_3", "t1").claimed("jr_3", token="t2", now=NOW, lease=LEASE)

    assert (start.begun, claimed(start).begun, claimed(start).released().begun, again.begun) == (0, 1, 1, 3)


@pytest.mark.parametrize(
    ("decide", "runs", "previous"),
    [
        (lambda head, order: head.reset(order), 2, "jr_2"),
        (lambda head, order: head.rewound(LogEntry("parking", 1, {}, Change("COMMIT", "c", NOW, "jr_1")), order), 2,
         "jr_2"),
        (lambda head, order: head.declared({"repairs": 5}, order), 2, "jr_2"),
    ],
    ids=["reset", "rewind", "set"],
)  # fmt: skip
def test_version_grows_and_runs_do_not_when_a_person_decides(
    decide: Callable[[Head, Order], Head], runs: int, previous: str
) -> None:
    head = claimed(committed_after(committed_after(Head.first("parking"), "jr_1"), "jr_2"), "jr_3").released()

    after = decide(head, Order("ann", "because", NOW, "t"))

    assert counts(after) == (3, runs, 0, previous)
    assert after.begun == 0
