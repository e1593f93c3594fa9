"""Import over what is there, import again, and export of what no import would take."""

from __future__ import annotations

import getpass
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from scripts.cli import deciding
from scripts.helpers.decisions.transfer import export_jobs, import_jobs, plan_import
from scripts.helpers.errors import ExportFileError
from scripts.helpers.protocol import items
from scripts.helpers.protocol.store import Store
from scripts.helpers.watermarks import Watermarks
from tests.cli.stories import NOW, ORDER, Command, document, leave_open, put_runs
from tests.support.steps import commit
from tests.support.table_items import all_items

Make = Callable[..., Watermarks]


def exported(watermarks: Watermarks, folder: Path, *jobs: str) -> Path:
    """Return a file with an export of some jobs."""
    path = folder / "jobs.jsonl"
    with path.open("wb") as file:
        export_jobs(watermarks.store, jobs, file, NOW)
    return path


@pytest.fixture
def target(make_watermarks: Make) -> Watermarks:
    return make_watermarks()


def test_log_is_that_of_the_new_job_when_the_replaced_one_was_at_its_version(
    watermarks: Watermarks, target: Watermarks, tmp_path: Path
) -> None:
    for number in (1, 2):
        commit(watermarks, "repairs", f"jr_{number}", {"seen": number})
    for number in range(1, 5):
        commit(target, "repairs", f"jr_other_{number}", {"seen": -number})
    path = exported(watermarks, tmp_path, "repairs")

    import_jobs(target.store, plan_import(target.store, path, replace=True), ORDER)

    log = target.store.read_log("repairs", 3)
    assert log is not None
    assert (log.change.op, log.watermarks) == ("SET", {"seen": 2})
    assert target.rewind("repairs", to_version=3, why="a test").watermarks == {"seen": 2}


def test_chunks_expire_no_more_when_a_job_is_replaced_by_its_own_past(make_watermarks: Make, tmp_path: Path) -> None:
    kept = make_watermarks(retention=timedelta(days=1))
    commit(kept, "repairs", "jr_1", {"large": "x" * 70_000})
    path = exported(kept, tmp_path, "repairs")
    commit(kept, "repairs", "jr_2", {"large": "y" * 70_000})
    assert [key for key, item in all_items(kept).items() if "data" in item and items.TTL_ATTRIBUTE in item]

    import_jobs(kept.store, plan_import(kept.store, path, replace=True), ORDER)

    assert kept.get_watermark_values("repairs") == {"large": "x" * 70_000}
    assert not [key for key, item in all_items(kept).items() if "data" in item and items.TTL_ATTRIBUTE in item]


def test_job_is_there_already_when_an_item_of_its_history_has_gone(
    run: Command, watermarks: Watermarks, target: Watermarks, dynamodb: Any, tmp_path: Path
) -> None:
    for number in (1, 2):
        commit(watermarks, "repairs", f"jr_{number}", {"seen": number})
    path = exported(watermarks, tmp_path, "repairs")
    import_jobs(target.store, plan_import(target.store, path), ORDER)
    dynamodb.delete_item(TableName=target.table_name, Key=items.key("repairs", "jr_1"))

    done = document(run(target, "import", str(path), "--yes", "--output", "json"))

    assert done["jobs"] == {"repairs": "same"}


def test_epoch_is_started_when_a_plain_import_is_repeated_for_a_copy(
    run: Command, watermarks: Watermarks, target: Watermarks, tmp_path: Path
) -> None:
    commit(watermarks, "repairs", "jr_1", {"seen": 1})
    leave_open(watermarks, "repairs", "jr_2", NOW, NOW)
    path = exported(watermarks, tmp_path, "repairs")
    import_jobs(target.store, plan_import(target.store, path), ORDER)

    done = run(target, "import", str(path), "--new-epoch", "--why", "a copy", "--yes")

    assert done.exit_code == 0
    [line] = [line for line in done.stdout.splitlines() if line.startswith("repairs")]
    assert re.split(" {2,}", line) == ["repairs", "starts a new epoch", "2", "the open plan"]
    assert target.latest("repairs").epoch != watermarks.latest("repairs").epoch
    assert [entry.change.why for entry in target.history("repairs", 1)] == ["a copy"]
    assert target.doctor("repairs") == []


def test_what_is_lost_is_shown_when_a_job_would_be_replaced(
    run: Command, watermarks: Watermarks, target: Watermarks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deciding, "is_asked", lambda: True)
    commit(watermarks, "repairs", "jr_1", {"seen": 1})
    commit(target, "repairs", "jr_9", {"seen": 9})
    before, path = all_items(target), exported(watermarks, tmp_path, "repairs")
    replacing = ["import", str(path), "--replace", "--why", "moving", "--output", "json"]

    done = run(target, *replacing, input="n\n")

    assert "replaced" in done.stderr
    assert "its history here" in done.stderr
    assert done.stdout == ""
    assert all_items(target) == before


@pytest.mark.parametrize("option", ["--replace", "--new-epoch"])
def test_reason_is_needed_when_an_import_makes_versions(run: Command, target: Watermarks, option: str) -> None:
    done = run(target, "import", "nowhere.jsonl", option, "--yes")

    assert done.exit_code == 2
    assert "Give the reason for the history: --why TEXT." in done.stderr


def test_import_needs_no_system_user_when_there_is_none(
    run: Command, watermarks: Watermarks, target: Watermarks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    commit(watermarks, "repairs", "jr_1", {"seen": 1})
    monkeypatch.setattr(getpass, "getuser", nobody)

    done = run(target, "import", str(exported(watermarks, tmp_path, "repairs")), "--new-epoch", "--why", "x", "--yes")

    assert done.exit_code == 0, done.output
    assert target.history("repairs")[0].change.who == "unknown"


def test_export_of_all_leaves_out_the_job_and_names_it_when_one_of_its_items_is_damaged(
    run: Command, watermarks: Watermarks, dynamodb: Any, tmp_path: Path
) -> None:
    commit(watermarks, "parking", "jr_1", {"seen": 1})
    commit(watermarks, "repairs", "jr_1", {"seen": 1})
    log = all_items(watermarks)["repairs", items.log_key(1)]
    dynamodb.put_item(TableName=watermarks.table_name, Item={name: log[name] for name in log if name != "op"})

    done = run(watermarks, "export", "--all", "--file", str(tmp_path / "jobs"))

    assert done.exit_code == 1
    assert f"Item '{items.log_key(1)}' of job 'repairs' is not readable" in done.stderr
    assert "Exported 1 job" in done.stderr
    assert '"parking"' in (tmp_path / "jobs").read_text()
    assert '"repairs"' not in (tmp_path / "jobs").read_text()


def test_export_names_the_job_when_one_of_its_chunks_has_gone(
    run: Command, watermarks: Watermarks, dynamodb: Any
) -> None:
    commit(watermarks, "repairs", "jr_1", {"large": "x" * 70_000})
    [gone] = [key for key, item in all_items(watermarks).items() if "data" in item]
    dynamodb.delete_item(TableName=watermarks.table_name, Key=items.key(*gone))

    done = run(watermarks, "export", "repairs")

    assert done.exit_code == 78
    assert "of job 'repairs' is not readable: it is gone, though the head refers to it" in done.stderr


def test_items_of_job_runs_are_counted_when_they_are_left_out(
    run: Command, watermarks: Watermarks, tmp_path: Path
) -> None:
    commit(watermarks, "repairs", "jr_1", {"seen": 1})
    put_runs(watermarks, "repairs")
    put_runs(watermarks, "never committed")
    watermarks.store.put(items.key("nightly", items.TRIGGER_KEY) | {"state": {"S": "WAITING"}}, if_new=True)

    done = run(watermarks, "export", "--all", "--file", str(tmp_path / "jobs"))

    assert done.exit_code == 0
    assert "Exported 1 job, 3 items." in done.stderr
    assert "Left out: 7 items of the Job Runs API." in done.stderr


def test_file_is_kept_when_an_export_or_a_report_would_write_over_it(
    run: Command, watermarks: Watermarks, tmp_path: Path
) -> None:
    commit(watermarks, "repairs", "jr_1", {"seen": 1})
    path = tmp_path / "kept"
    path.write_text("kept")

    refused = [run(watermarks, "export", "--all", "--file", str(path)), run(watermarks, "report", "--html", str(path))]

    assert [done.exit_code for done in refused] == [65, 65]
    assert all("exists already. Give another name, or --force." in done.stderr for done in refused)
    assert path.read_text() == "kept"
    assert run(watermarks, "export", "--all", "--file", str(path), "--force").exit_code == 0


def test_jobs_before_are_counted_when_the_file_changes_half_way(
    watermarks: Watermarks, target: Watermarks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        commit(watermarks, name, "jr_1", {"seen": 1})
    path = exported(watermarks, tmp_path, "a", "b")
    plan = plan_import(target.store, path)
    plan.exported.jobs["b"].clear()
    monkeypatch.setattr("scripts.helpers.decisions.transfer.JOBS_AT_ONCE", 1)

    with pytest.raises(ExportFileError, match="1 jobs before it were imported"):
        import_jobs(target.store, plan, ORDER)

    assert Store(target.table_name, target.store.client).read_head("a") is not None
