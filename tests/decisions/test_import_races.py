"""An import in the place of another job, while runs and the doctor go on."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.decisions.decisions import make_order
from scripts.helpers.decisions.transfer import ImportPlan, export_jobs, import_jobs, plan_import
from scripts.helpers.errors import StaleError
from scripts.helpers.protocol.store import Store
from scripts.helpers.protocol.values import same_values
from scripts.helpers.watermarks import Watermarks
from tests.support.steps import commit, large

NOW = datetime(2026, 3, 16, tzinfo=timezone.utc)
ORDER = make_order("sam", "moved", NOW)


@pytest.fixture
def plan(watermarks: Watermarks, job_id: str, tmp_path: Path) -> ImportPlan:
    """Return the plan to put a job in the place of what has become of it since."""
    commit(watermarks, job_id, "r1", {"parking": large(1)})
    target = io.BytesIO()
    export_jobs(watermarks.store, [job_id], target, NOW)
    path = tmp_path / "jobs.jsonl"
    path.write_bytes(target.getvalue())
    commit(watermarks, job_id, "r2", {"parking": large(2)})
    watermarks.reset(job_id, why="a test")
    return plan_import(watermarks.store, path, replace=True)


def when_called(patch: pytest.MonkeyPatch, method: str, action: Callable[[], object], *, first: bool) -> None:
    """Do something once, before or after the first call of a method of the store."""
    called, done = getattr(Store, method), list[bool]()

    def call(self: Store, *args: Any, **given: Any) -> Any:
        is_due, result = not done, None
        done.append(True)
        if is_due and first:
            action()
        result = called(self, *args, **given)
        if is_due and not first:
            action()
        return result

    patch.setattr(Store, method, call)


def test_chunks_of_a_run_stay_when_it_begins_as_soon_as_the_job_is_replaced(
    watermarks: Watermarks, job_id: str, plan: ImportPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def freeze() -> None:
        watermarks.begin(job_id, "r3").freeze({"parking": large(3)}, {"parking": large(4)})

    when_called(monkeypatch, "swap", freeze, first=False)

    import_jobs(watermarks.store, plan, ORDER)

    run = watermarks.begin(job_id, "r3")
    assert same_values(run.planned("parking"), large(3))
    run.commit()
    assert same_values(watermarks.get_watermark_values(job_id), {"parking": large(4)})
    assert [finding.kind for finding in watermarks.doctor(job_id) if finding.kind != "open plan"] == []


def test_import_is_refused_when_the_doctor_has_deleted_its_chunks(
    watermarks: Watermarks, job_id: str, plan: ImportPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    watermarks.store.delete(job_id, "!c#0000000000000000001")
    when_called(monkeypatch, "swap", lambda: watermarks.doctor(job_id, repair=True), first=True)

    with pytest.raises(StaleError, match="has changed since the import began"):
        import_jobs(watermarks.store, plan, ORDER)

    assert watermarks.latest(job_id).watermarks == {}
