"""An import in the place of another job, while runs and the doctor go on."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.decisions.decisions import make_order
from scripts.helpers.decisions.transfer import ImportPlan, export_jobs, import_jobs, plan_import
from scripts.helpers.errors import RunInProgressError, StaleError
from scripts.helpers.protocol.requests import Between
from scripts.helpers.protocol.store import Store
from scripts.helpers.protocol.values import same_values
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.faults import Faults, head_write
from tests.support.steps import commit, large

NOW = datetime(2026, 3, 16, tzinfo=timezone.utc)
ORDER = make_order("sam", "moved", NOW)


@pytest.fixture
def plan(watermarks: Watermarks, job_id: str, tmp_path: Path) -> ImportPlan:
    """Return the plan to put a job in the place of what has become of it since."""
    commit(watermarks, job_id, "r1", {"parking": large(1)})
    path = exported(watermarks, job_id, tmp_path)
    commit(watermarks, job_id, "r2", {"parking": large(2)})
    watermarks.reset(job_id, why="a test")
    return plan_import(watermarks.store, path, replace=True)


def exported(watermarks: Watermarks, job_id: str, folder: Path) -> Path:
    target = io.BytesIO()
    export_jobs(watermarks.store, [job_id], target, NOW)
    path = folder / "jobs.jsonl"
    path.write_bytes(target.getvalue())
    return path


def delete_all(watermarks: Watermarks, job_id: str) -> None:
    for item in watermarks.store.query(Between(job_id)):
        watermarks.store.delete(job_id, item["runId"]["S"])


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


def test_history_has_each_version_when_a_run_begins_as_soon_as_the_job_is_replaced(
    watermarks: Watermarks, job_id: str, plan: ImportPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[RunInProgressError] = []

    def run() -> None:
        try:
            commit(watermarks, job_id, "r3", {"n": 3})
            commit(watermarks, job_id, "r4", {"n": 4})
        except RunInProgressError as error:
            refused.append(error)

    when_called(monkeypatch, "swap", run, first=False)

    import_jobs(watermarks.store, plan, ORDER)

    run()
    assert [(entry.version, entry.change.op) for entry in watermarks.history(job_id)] == [
        (4, "COMMIT"),
        (3, "COMMIT"),
        (2, "SET"),
        (1, "COMMIT"),
    ]
    assert [error.owner[:7] for error in refused] == ["import_"]
    assert [entry.failed for entry in watermarks.history(job_id)] == [0, 0, 0, 0]


def test_chunks_of_a_run_stay_when_it_takes_over_as_soon_as_the_job_is_replaced(
    watermarks: Watermarks, job_id: str, plan: ImportPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def freeze() -> None:
        run = watermarks.begin(job_id, "r3", take_over=True)
        run.freeze({"parking": large(3)}, {"parking": large(4)})

    when_called(monkeypatch, "swap", freeze, first=False)

    with pytest.raises(StaleError, match="taken over while its history was written"):
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


def test_chunks_of_the_job_there_never_expire_when_an_import_that_would_let_them_dies(
    watermarks: Watermarks, clock: Clock, job_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is of a later moment than the job: its table was restored from a backup since."""
    commit(watermarks, job_id, "r1", {"parking": large(1)})
    backup = list(watermarks.store.query(Between(job_id)))
    keeping = Watermarks(watermarks.table_name, watermarks.store.client, clock=clock, retention=timedelta(days=1))
    commit(keeping, job_id, "r2", {"n": 2})
    later = exported(watermarks, job_id, tmp_path)
    delete_all(watermarks, job_id)
    for item in backup:
        watermarks.store.put(item, if_new=True)
    plan = plan_import(watermarks.store, later, replace=True)
    when_called(monkeypatch, "swap", lambda: watermarks.doctor(job_id, after_restore=True), first=True)

    with pytest.raises(StaleError):
        import_jobs(watermarks.store, plan, ORDER)

    found = watermarks.store.query(Between(job_id))
    assert [item["runId"]["S"] for item in found if "expiresAt" in item] == []


def test_import_is_done_when_the_answer_to_its_last_write_was_lost(
    hooked: Watermarks, faults: Faults, job_id: str, tmp_path: Path
) -> None:
    """Botocore sends a request again when no answer came. The second one finds the head of the first."""
    commit(hooked, job_id, "r1", {"n": 1})
    path = exported(hooked, job_id, tmp_path)
    delete_all(hooked, job_id)
    plan = plan_import(hooked.store, path)
    faults.resend(head_write)

    import_jobs(hooked.store, plan)

    assert hooked.latest(job_id).watermarks == {"n": 1}


def test_import_is_refused_when_a_run_begins_the_job_while_its_items_are_written(
    watermarks: Watermarks, job_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(watermarks, job_id, "r1", {"n": 1})
    path = exported(watermarks, job_id, tmp_path)
    delete_all(watermarks, job_id)
    plan = plan_import(watermarks.store, path)
    when_called(monkeypatch, "put", lambda: watermarks.begin(job_id, "r2"), first=True)

    with pytest.raises(StaleError, match="was begun while it was imported"):
        import_jobs(watermarks.store, plan)

    claim = watermarks.latest(job_id).claim
    assert claim is not None
    assert claim.run_id == "r2"


@pytest.mark.parametrize("step", ["replace", "new", "epoch"])
def test_newest_version_of_the_file_is_in_the_history_when_its_run_died_before_it_wrote_that(
    watermarks: Watermarks, job_id: str, tmp_path: Path, step: str
) -> None:
    commit(watermarks, job_id, "r1", {"n": 1})
    for range_key in ("!c#0000000000000000001", "r1"):
        watermarks.store.delete(job_id, range_key)
    path = exported(watermarks, job_id, tmp_path)
    if step == "replace":
        commit(watermarks, job_id, "r2", {"n": 2})
    elif step == "new":
        watermarks.store.delete(job_id, "~latest")
    plan = plan_import(watermarks.store, path, replace=step == "replace", new_epoch=step != "replace")
    assert plan.steps == {job_id: step}

    import_jobs(watermarks.store, plan, ORDER)

    assert [(entry.version, entry.change.op) for entry in watermarks.history(job_id)] == [(2, "SET"), (1, "COMMIT")]
    assert watermarks.get_watermark_values(job_id, "r1") == {"n": 1}
