"""`adopt`: which of several items of the original class is the most recent one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scripts.helpers.errors import PlanConflictError, UnknownRunError
from scripts.helpers.watermarks import Watermarks
from tests.integration.faults import Faults, head_write

Stored = Callable[[], dict[str, Any]]
PutLegacy = Callable[..., None]


@pytest.mark.parametrize("run_id", ["jr_a", "jr_b", "jr_c"])
def test_adopt_makes_the_named_item_version_1_when_there_are_several(
    watermarks: Watermarks, job_id: str, put_legacy: PutLegacy, run_id: str
) -> None:
    for name in ("jr_a", "jr_b", "jr_c"):
        put_legacy(name, name={"S": name})

    head = watermarks.adopt(job_id, run_id)

    assert (head.version, head.watermarks, head.run_id) == (1, {"name": run_id}, run_id)
    assert watermarks.latest(job_id) == head
    assert watermarks.get_most_recent_run_id(job_id) == run_id
    assert [(e.version, e.change.op, e.change.run_id) for e in watermarks.history(job_id)] == [(1, "IMPORT", run_id)]
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
