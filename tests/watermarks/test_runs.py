"""Runs: begin, freeze, commit, abort, the with statement, and every way to misuse a handle."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from scripts.helpers.errors import InvalidValueError, PlanConflictError, StaleError
from scripts.helpers.watermarks import Watermarks
from tests.support.reasons import because
from tests.support.steps import commit, frozen
from tests.support.table_items import Stored

pytestmark = pytest.mark.both_stores

PLAN: dict[str, Any] = {"repairs": {"kind": "rows", "low": 0, "high": 10}}
NEXT: dict[str, Any] = {"repairs": {"value": 10}}


# --- a whole run ------------------------------------------------------------------------------------


def test_first_run_starts_from_nothing_when_the_job_is_new(
    watermarks: Watermarks, job_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        run = watermarks.begin(job_id, "r1")

    assert (run.watermarks, run.version, run.plan, run.replay, run.attempt) == ({}, 0, None, False, 1)
    [warning] = caplog.records
    assert f"event=first_run job={job_id} run=r1" in warning.getMessage()


def test_second_run_starts_from_the_commit_when_the_first_committed(
    watermarks: Watermarks, job_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    commit(watermarks, job_id, "r1", {"n": 1})
    caplog.clear()

    with caplog.at_level(logging.WARNING):
        run = watermarks.begin(job_id, "r2")

    assert (run.watermarks, run.version, run.replay) == ({"n": 1}, 1, False)
    assert caplog.records == []


def test_commit_writes_the_plans_own_next_when_the_run_is_done(watermarks: Watermarks, job_id: str) -> None:
    run = frozen(watermarks, job_id, plan=PLAN, following=NEXT)

    outcome = run.commit(rows=3)

    head = watermarks.latest(job_id)
    assert (outcome, run.version, run.closed) == ("done", 1, True)
    assert (head.watermarks, head.version, head.claim, head.plan) == (NEXT, 1, None, None)
    assert watermarks.get_watermark(job_id)["metrics"] == {"rows": 3}
    assert watermarks.history(job_id)[0].change.metrics == {"rows": 3}


def test_commit_writes_what_was_frozen_when_the_caller_changes_his_dict_later(
    watermarks: Watermarks, job_id: str
) -> None:
    contexts: dict[str, Any] = {"a": {"files": ["x"]}}
    following: dict[str, Any] = {"a": {"seen": ["x"]}}
    run = watermarks.begin(job_id, "r1")
    run.freeze(contexts, following)

    contexts["a"]["files"].append("y")
    following["a"]["seen"].append("y")
    run.commit()

    assert watermarks.get_watermark_values(job_id) == {"a": {"seen": ["x"]}}


def test_freeze_keeps_the_watermark_when_nothing_is_committed(watermarks: Watermarks, job_id: str) -> None:
    commit(watermarks, job_id, "r1", {"n": 1})

    run = frozen(watermarks, job_id, "r2", plan=PLAN, following=NEXT)

    assert watermarks.get_watermark_values(job_id) == {"n": 1}
    assert (run.version, run.watermarks) == (1, {"n": 1})


def test_run_item_keeps_the_later_version_when_the_log_of_an_earlier_one_is_written_late(
    watermarks: Watermarks, job_id: str, stored: Stored
) -> None:
    commit(watermarks, job_id, "r1", {"n": 1})
    late = watermarks.latest(job_id).log_entry
    assert late is not None
    commit(watermarks, job_id, "r1", {"n": 2})
    before = stored()

    watermarks.store.write_log(late)

    assert stored() == before
    commit(watermarks, job_id, "r2", {"n": 3})
    assert watermarks.get_watermark_values(job_id, "r1") == {"n": 2}


def test_batch_id_stays_the_same_when_the_run_is_committed(watermarks: Watermarks, job_id: str) -> None:
    run = frozen(watermarks, job_id, plan=PLAN, following=NEXT)
    before = run.batch_id

    run.commit()

    assert (run.batch_id, before.version, before.job_id) == (before, 1, job_id)


def test_batch_ids_differ_only_in_version_when_two_runs_commit(watermarks: Watermarks, job_id: str) -> None:
    first = commit(watermarks, job_id, "r1", {"n": 1}).batch_id

    second = commit(watermarks, job_id, "r2", {"n": 2}).batch_id

    assert (second.epoch, second.version) == (first.epoch, first.version + 1)


def test_plan_and_commit_are_logged_without_values_when_a_run_is_done(
    watermarks: Watermarks, job_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        commit(watermarks, job_id, "r1", {"mark": "a-private-value"})

    assert [text.split()[0] for text in caplog.messages[1:]] == ["event=plan_frozen", "event=committed"]
    assert "a-private-value" not in caplog.text


@pytest.mark.parametrize("planned", [False, True])
def test_abort_is_logged_with_what_is_kept_when_a_run_lets_go(
    watermarks: Watermarks, job_id: str, caplog: pytest.LogCaptureFixture, planned: bool
) -> None:
    run = frozen(watermarks, job_id) if planned else watermarks.begin(job_id, "r1")
    caplog.clear()

    with caplog.at_level(logging.INFO):
        run.abort()

    assert caplog.messages == [f"event=aborted job={job_id} run=r1 plan_kept={planned}"]


def test_repr_says_where_the_run_stands_when_it_moves_on(watermarks: Watermarks, job_id: str) -> None:
    run = watermarks.begin(job_id, "r1")
    shown = [repr(run)]

    run.freeze({}, {"n": 1})
    shown.append(repr(run))
    run.commit()
    shown.append(repr(run))

    assert shown == [
        f"<Run 'r1' of '{job_id}': claimed, version 0, attempt 1>",
        f"<Run 'r1' of '{job_id}': planned, version 0, attempt 1>",
        f"<Run 'r1' of '{job_id}': committed, version 1, attempt 1>",
    ]


# --- misuse of a handle -------------------------------------------------------------------------------


def _commit_before_freeze(watermarks: Watermarks, job_id: str) -> Callable[[], Any]:
    return watermarks.begin(job_id, "r1").commit


def _batch_id_before_freeze(watermarks: Watermarks, job_id: str) -> Callable[[], Any]:
    run = watermarks.begin(job_id, "r1")
    return lambda: run.batch_id


def _another_plan(watermarks: Watermarks, job_id: str) -> Callable[[], Any]:
    run = frozen(watermarks, job_id, plan=PLAN, following=NEXT)
    return lambda: run.freeze(PLAN, {"repairs": {"value": 11}})


def _plan_with_one_more(watermarks: Watermarks, job_id: str) -> Callable[[], Any]:
    run = frozen(watermarks, job_id, plan=PLAN, following=NEXT)
    return lambda: run.freeze(PLAN | {"more": {}}, NEXT)


def _plan_of_another_type(watermarks: Watermarks, job_id: str) -> Callable[[], Any]:
    run = frozen(watermarks, job_id, plan=PLAN, following=NEXT)
    return lambda: run.freeze(PLAN, {"repairs": {"value": 10.0}})


def _after(end: str, verb: str) -> Callable[[Watermarks, str], Callable[[], Any]]:
    def arrange(watermarks: Watermarks, job_id: str) -> Callable[[], Any]:
        run = frozen(watermarks, job_id, plan=PLAN, following=NEXT)
        getattr(run, end)()
        return lambda: getattr(run, verb)(*([PLAN, NEXT] if verb == "freeze" else []))

    return arrange


MISUSES: list[Any] = [
    pytest.param(
        _commit_before_freeze, PlanConflictError, "no frozen plan to commit. Call freeze", id="commit-before-freeze"
    ),
    pytest.param(
        _batch_id_before_freeze, PlanConflictError, "no batch before freeze. Freeze the plan first", id="batch-id-early"
    ),
    pytest.param(
        _another_plan, PlanConflictError, "is frozen and another one was given. Work through", id="other-plan"
    ),
    pytest.param(_plan_with_one_more, PlanConflictError, "is frozen and another one was given", id="one-more"),
    pytest.param(_plan_of_another_type, PlanConflictError, "is frozen and another one was given", id="other-type"),
    *(
        pytest.param(_after(end, verb), PlanConflictError, f"is {how} already, so it cannot {verb}. Do this", id=name)
        for end, how in (("commit", "committed"), ("abort", "aborted"))
        for verb in ("freeze", "commit", "check")
        for name in [f"{verb}-after-{end}"]
    ),
]


@pytest.mark.parametrize(("arrange", "error", "text"), MISUSES)
def test_handle_is_refused_and_changes_nothing_when_it_is_misused(
    watermarks: Watermarks, job_id: str, stored: Stored, arrange: Any, error: type[StaleError], text: str
) -> None:
    act = arrange(watermarks, job_id)
    before = stored()

    with pytest.raises(error) as caught:
        act()

    assert text in str(caught.value)
    assert job_id in str(caught.value)
    assert caught.value.job_id == job_id
    assert stored() == before


def test_freeze_changes_nothing_when_the_same_plan_is_given_again(
    watermarks: Watermarks, job_id: str, stored: Stored
) -> None:
    run = frozen(watermarks, job_id, plan=PLAN, following=NEXT)
    before, plan = stored(), run.plan

    again = run.freeze(PLAN, NEXT)

    assert again == plan
    assert stored() == before


def test_abort_changes_nothing_when_it_is_called_again(watermarks: Watermarks, job_id: str, stored: Stored) -> None:
    run = frozen(watermarks, job_id, plan=PLAN, following=NEXT)
    run.abort()
    before = stored()

    run.abort()

    assert stored() == before


def test_abort_changes_nothing_when_the_run_is_committed(watermarks: Watermarks, job_id: str, stored: Stored) -> None:
    run = commit(watermarks, job_id, "r1", {"n": 1})
    before = stored()

    run.abort()

    assert stored() == before


@pytest.mark.parametrize("where", ["contexts", "next"])
def test_freeze_is_refused_before_anything_is_stored_when_a_value_is_bad(
    watermarks: Watermarks, job_id: str, stored: Stored, where: str
) -> None:
    run = watermarks.begin(job_id, "r1")
    before, bad = stored(), {"a": {"at": datetime(2026, 3, 16)}}

    with pytest.raises(InvalidValueError, match=r"'a\.at' is a datetime without a time zone\. Give it one"):
        run.freeze(bad if where == "contexts" else {}, bad if where == "next" else {})

    assert stored() == before
    assert run.plan is None


def test_commit_is_refused_when_a_metric_has_a_watermarks_name(
    watermarks: Watermarks, job_id: str, stored: Stored
) -> None:
    run = frozen(watermarks, job_id, plan=PLAN, following=NEXT)
    before = stored()

    with pytest.raises(InvalidValueError, check=because("reserved_name"), match="'repairs'") as caught:
        run.commit(repairs=3)

    assert caught.value.name == "repairs"
    assert stored() == before
    assert run.commit(rows=3) == "done"


# --- the with statement -----------------------------------------------------------------------------------


def test_with_aborts_and_keeps_the_plan_when_an_error_is_raised(watermarks: Watermarks, job_id: str) -> None:
    run = frozen(watermarks, job_id, plan=PLAN, following=NEXT)

    with pytest.raises(ZeroDivisionError), run:
        raise ZeroDivisionError

    head = watermarks.latest(job_id)
    assert (head.claim, head.plan, head.version) == (None, run.plan, 0)
    assert run.closed


def test_with_aborts_and_warns_when_nothing_was_committed(
    watermarks: Watermarks, job_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    with watermarks.begin(job_id, "r1") as run:
        caplog.clear()

    assert run.closed
    assert watermarks.latest(job_id).claim is None
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", f"event=not_committed job={job_id} run=r1: nothing was saved")
    ]


def test_with_does_nothing_more_when_the_run_was_committed(
    watermarks: Watermarks, job_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    with watermarks.begin(job_id, "r1") as run:
        run.freeze(PLAN, NEXT)
        run.commit()
        caplog.clear()

    assert caplog.records == []
    assert watermarks.latest(job_id).version == 1
