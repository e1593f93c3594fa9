"""What `rewind`, `reset` and `doctor` show of a job's targets, and delete there."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from tests.cli.stories import Command
from tests.support.outputs import output_of_run

WHY = ("--why", "rows of a test were among them", "--yes")


@pytest.fixture
def target(watermarks: Watermarks, tmp_path: Path) -> Path:
    """Return a folder to which a job has written three batches of one row."""
    folder = tmp_path / "raw"
    for last in (1, 2, 3):
        with IncrementalJob(watermarks, "repairs", f"jr_{last}") as job:
            job.write(job.rows_since(pd.DataFrame({"id": range(1, last + 1)}), "id"), str(folder))
    return folder


def rows(target: Path) -> list[int]:
    return sorted(row for path in target.rglob("*.parquet") for row in pd.read_parquet(path)["id"])


def test_files_are_named_and_deleted_when_a_rewind_retracts(run: Command, watermarks: Watermarks, target: Path) -> None:
    done = run(watermarks, "rewind", "repairs", "--to-version", "1", "--retract", *WHY)

    assert done.exit_code == 0, done.output
    assert f"file://{target}" in done.stdout
    assert "2 to 3" in done.stdout
    assert "deleted" in done.stdout
    assert f"Deleted 2 files from file://{target}." in done.stdout
    assert rows(target) == [1]


def test_files_are_named_and_stay_when_a_reset_does_not_retract(
    run: Command, watermarks: Watermarks, target: Path
) -> None:
    done = run(watermarks, "reset", "repairs", *WHY)

    assert done.exit_code == 0, done.output
    assert "stays; its rows are read again" in done.stdout
    assert rows(target) == [1, 2, 3]


def test_standard_output_is_one_document_when_it_is_json(run: Command, watermarks: Watermarks, target: Path) -> None:
    done = run(watermarks, "reset", "repairs", "--retract", *WHY, "--output", "json")

    assert json.loads(done.stdout)["after"]["version"] == 4
    assert (rows(target), f"Deleted 3 files from file://{target}." in done.stderr) == ([], True)


def test_next_run_is_said_to_delete_when_only_spark_gets_there(run: Command, watermarks: Watermarks) -> None:
    begun = watermarks.begin("repairs", "jr_1")
    begun.freeze({"rows": {}}, {"rows": {}})
    begun.commit((output_of_run(begun, "hdfs://lake/raw", staging="hdfs://lake/_raw.staging"),))

    done = run(watermarks, "reset", "repairs", "--retract", *WHY)

    assert "The next run deletes the batches from hdfs://lake/raw." in done.stdout
    assert [one.target for one in watermarks.latest("repairs").retracting] == ["hdfs://lake/raw"]


def test_decision_holds_and_the_cause_is_told_when_files_cannot_be_deleted(
    run: Command, watermarks: Watermarks, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "not allowed", path)

    monkeypatch.setattr("scripts.helpers.sinks.places.os.remove", refuse)

    done = run(watermarks, "reset", "repairs", "--retract", *WHY)

    assert done.exit_code == 1
    assert "the output of versions 1 to 3 could not be deleted" in done.stderr
    assert "each run tries again" in done.stderr
    assert watermarks.latest("repairs").version == 4
    assert rows(target) == [1, 2, 3]


def test_doctor_names_what_a_dead_attempt_staged_and_deletes_it_when_told_to(
    run: Command, watermarks: Watermarks, target: Path
) -> None:
    dead = IncrementalJob(watermarks, "repairs", "jr_4").__enter__()
    dead.write(dead.rows_since(pd.DataFrame({"id": [4]}), "id"), str(target))
    dead.run.abort()

    found, left_out = run(watermarks, "doctor", "repairs"), run(watermarks, "doctor", "repairs", "--no-targets")
    repaired = run(watermarks, "doctor", "repairs", "--repair", "--yes")

    assert (found.exit_code, repaired.exit_code) == (1, 1)
    assert "staged leftover" in found.stdout
    assert "staged leftover" not in left_out.stdout
    assert not list(target.parent.glob("_raw.staging/**/*.parquet"))
