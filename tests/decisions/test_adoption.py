"""`adopt`: choosing the most recent one among several items of the original class."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from scripts.helpers.errors import InvalidValueError, PlanConflictError, UnknownRunError
from scripts.helpers.watermarks import Watermarks
from tests.support.faults import Faults, head_write
from tests.support.table_items import Stored

pytestmark = pytest.mark.both_stores

PutLegacy = Callable[..., None]


@pytest.mark.parametrize("run_id", ["jr_a", "jr_b", "jr_c"])
def test_adopt_makes_the_named_item_version_1_when_there_are_several(
    watermarks: Watermarks, job_id: str, put_legacy: PutLegacy, run_id: str
) -> None:
    for name in ("jr_a", "jr_b", "jr_c"):
        put_legacy(name, name={"S": name})

    head = watermarks.adopt(job_id, run_id, why="sorted out", who="duty officer")

    assert (head.version, head.watermarks, head.run_id) == (1, {"name": run_id}, run_id)
    assert watermarks.latest(job_id) == head
    assert watermarks.get_most_recent_run_id(job_id) == run_id
    (entry,) = watermarks.history(job_id)
    assert (entry.version, entry.change.op, entry.change.run_id) == (1, "IMPORT", run_id)
    assert (entry.change.why, entry.change.who) == ("sorted out", "duty officer")
    assert [watermarks.get_watermark_values(job_id, name) for name in ("jr_a", "jr_c")] == [
        {"name": "jr_a"},
        {"name": "jr_c"},
    ]


def test_run_follows_the_adopted_item_when_it_commits(
    watermarks: Watermarks, job_id: str, put_legacy: PutLegacy
) -> None:
    put_legacy("jr_a", n={"N": "1"})
    put_legacy("jr_b", n={"N": "2"})
    watermarks.adopt(job_id, run_id="jr_a")

    run = watermarks.begin(job_id, "jr_c")
    run.freeze({}, {"n": 3})
    run.commit()

    assert (run.version, watermarks.get_watermark_values(job_id)) == (2, {"n": 3})


@pytest.mark.parametrize("items", [0, 1, 3])
def test_adopt_changes_nothing_when_the_run_is_unknown(
    watermarks: Watermarks, job_id: str, put_legacy: PutLegacy, stored: Stored, items: int
) -> None:
    for number in range(items):
        put_legacy(f"jr_{number}")
    before = stored()

    with pytest.raises(UnknownRunError, match=f"Run 'jr_z' of job '{job_id}' has no watermark") as caught:
        watermarks.adopt(job_id, "jr_z")

    assert caught.value.run_id == "jr_z"
    assert stored() == before


@pytest.mark.parametrize("run_id", ["jr_a", "jr_b"], ids=["same", "another"])
def test_adopt_changes_nothing_when_it_is_called_twice(
    watermarks: Watermarks, job_id: str, put_legacy: PutLegacy, stored: Stored, run_id: str
) -> None:
    put_legacy("jr_a")
    put_legacy("jr_b")
    watermarks.adopt(job_id, "jr_a")
    before = stored()

    with pytest.raises(PlanConflictError, match=f"Job '{job_id}': it has a committed state already"):
        watermarks.adopt(job_id, run_id)

    assert stored() == before


@pytest.mark.parametrize("fault", ["drop", "reply_lost", "resend", "throttle"])
def test_adopt_takes_effect_once_when_its_write_fails(
    hooked: Watermarks, faults: Faults, job_id: str, put_legacy: PutLegacy, fault: str
) -> None:
    put_legacy("jr_a")
    put_legacy("jr_b")
    faults.by_name(fault, head_write)

    head = hooked.adopt(job_id, "jr_b")

    assert faults.hits == 1
    assert hooked.latest(job_id) == head
    assert len(hooked.history(job_id)) == 1


# --- by the list of runs that Glue reports ----------------------------------------------------------------


def job_run(run_id: str, hour: int, state: str = "SUCCEEDED") -> dict[str, Any]:
    """Build one of the ``JobRuns`` of Glue's ``get_job_runs``, as boto3 returns it."""
    started = datetime(2026, 3, 16, hour, tzinfo=timezone.utc)
    return {"Id": run_id, "Attempt": 0, "JobName": "parking", "StartedOn": started, "JobRunState": state}


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([job_run("jr_a", 9), job_run("jr_b", 8), job_run("jr_c", 7)], "jr_a"),
        ([job_run("jr_c", 7), job_run("jr_a", 8), job_run("jr_b", 9)], "jr_b"),
        ([job_run("jr_z", 23, "FAILED"), job_run("jr_b", 8), job_run("jr_a", 7)], "jr_b"),
        ([job_run("jr_y", 23, "RUNNING"), job_run("jr_c", 3)], "jr_c"),
        ([{"Id": "jr_a", "JobRunState": "WAITING"}, job_run("jr_c", 3)], "jr_c"),
    ],
    ids=["newest-first", "unsorted", "failed-without-item", "running-without-item", "not-started"],
)
def test_adopt_takes_the_latest_started_run_that_has_an_item_when_runs_are_given(
    watermarks: Watermarks, job_id: str, put_legacy: PutLegacy, runs: list[dict[str, Any]], expected: str
) -> None:
    for name in ("jr_a", "jr_b", "jr_c"):
        put_legacy(name, name={"S": name})

    head = watermarks.adopt(job_id, runs=iter(runs))

    assert (head.version, head.run_id, head.watermarks) == (1, expected, {"name": expected})
    assert watermarks.latest(job_id) == head
    assert watermarks.get_watermark_values(job_id) == {"name": expected}


@pytest.mark.parametrize(
    ("items", "runs", "text"),
    [
        (2, [], "Its items are of runs jr_0, jr_1."),
        (2, [job_run("jr_z", 9)], "Its items are of runs jr_0, jr_1."),
        (12, [job_run("jr_z", 9)], " jr_0, jr_1, jr_10, jr_11, jr_2, jr_3, jr_4, jr_5, jr_6, jr_7."),
        (0, [job_run("jr_z", 9)], "It has no items; check the name."),
    ],
    ids=["no-runs", "other-runs", "many-items", "no-items"],
)  # fmt: skip
def test_adopt_changes_nothing_when_no_run_of_the_list_has_an_item(
    watermarks: Watermarks,
    job_id: str,
    put_legacy: PutLegacy,
    stored: Stored,
    items: int,
    runs: list[dict[str, Any]],
    text: str,
) -> None:
    for number in range(items):
        put_legacy(f"jr_{number}")
    before = stored()

    with pytest.raises(InvalidValueError, match=f"None of the runs given has an item of job '{job_id}'") as caught:
        watermarks.adopt(job_id, runs=runs)

    assert str(caught.value).endswith(text)
    assert stored() == before


@pytest.mark.parametrize(
    "given", [{}, {"run_id": "jr_a", "runs": [job_run("jr_a", 9)]}, {"run_id": "jr_a", "runs": []}],
    ids=["neither", "both", "both-and-empty"],
)  # fmt: skip
def test_adopt_changes_nothing_when_both_or_neither_are_given(
    watermarks: Watermarks, job_id: str, put_legacy: PutLegacy, stored: Stored, given: dict[str, Any]
) -> None:
    put_legacy("jr_a")
    before = stored()

    with pytest.raises(InvalidValueError, match="adopt takes one of run_id and runs"):
        watermarks.adopt(job_id, **given)

    assert stored() == before


@pytest.mark.parametrize("given", [{"run_id": "jr_a"}, {"runs": [job_run("jr_a", 9)]}], ids=["run_id", "runs"])
def test_adopt_changes_nothing_when_a_run_of_ours_has_begun(
    watermarks: Watermarks, job_id: str, put_legacy: PutLegacy, stored: Stored, given: dict[str, Any]
) -> None:
    put_legacy("jr_a")
    watermarks.begin(job_id, "r1")
    before = stored()

    with pytest.raises(PlanConflictError, match=f"Job '{job_id}': it has a committed state already; there is nothing"):
        watermarks.adopt(job_id, **given)

    assert stored() == before
