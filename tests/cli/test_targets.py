"""What `rewind`, `reset` and `doctor` show about a job's targets, and delete there."""

from __future__ import annotations

import json
import shlex
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from shutil import rmtree
from typing import Any
from unittest.mock import patch

import pandas as pd
import pytest
from deltalake import DeltaTable

from scripts.helpers.errors import FencedError, TargetAheadError, TargetError, TargetSchemaError, UnpublishedError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.items import HEAD_KEY, log_key
from scripts.helpers.sinks import FileSink
from scripts.helpers.watermarks import Watermarks
from scripts.jobs.exit_codes import BAD_DATA, TRY_LATER
from tests.cli.stories import NOW, Command
from tests.support.outputs import output_of_run
from tests.support.steps import KilledError
from tests.support.table_items import all_items, change_item, put_back

LATER = NOW + timedelta(minutes=15)
"""A time at which the run that committed at NOW is no longer expected to publish its batch."""
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


def test_reset_says_that_the_next_run_deletes_when_only_spark_can_do_it(run: Command, watermarks: Watermarks) -> None:
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

    assert done.exit_code == 78
    assert "the output of versions 1 to 3 could not be deleted" in done.stderr
    assert "each run tries again" in done.stderr
    assert watermarks.latest("repairs").version == 4
    assert rows(target) == [1, 2, 3]


def test_doctor_names_what_a_dead_attempt_staged_and_deletes_it_when_told_to(
    run: Command, watermarks: Watermarks, target: Path
) -> None:
    leave_staged(watermarks, target)

    found, left_out = run(watermarks, "doctor", "repairs"), run(watermarks, "doctor", "repairs", "--no-targets")
    repaired = run(watermarks, "doctor", "repairs", "--repair", "--yes")

    assert (found.exit_code, repaired.exit_code) == (1, 1)
    assert "staged leftover" in found.stdout
    assert "staged leftover" not in left_out.stdout
    assert not list(target.parent.glob("_raw.staging/**/*.parquet"))


def test_places_are_shown_with_what_is_found_there_before_a_rewind_deletes(
    run: Command, watermarks: Watermarks, target: Path, answers: None
) -> None:
    """The records name one file for each version; one file is gone, and a dead attempt has left another one."""
    leave_staged(watermarks, target)
    gone = next(path for path in target.glob("*.parquet") if list(pd.read_parquet(path)["id"]) == [3])
    gone.unlink()

    done = run(watermarks, "rewind", "repairs", "--to-version", "1", "--retract", "--why", "a test", input="n\n")

    assert done.exit_code == 1
    assert "2 to 3    1 file in file://" in done.stdout
    assert f"{target}\n" in done.stdout
    assert (rows(target), watermarks.latest("repairs").version) == ([1, 2], 3)


def leave_staged(watermarks: Watermarks, target: Path) -> None:
    """Start an attempt at the next version that stages its rows and then aborts."""
    dead = IncrementalJob(watermarks, "repairs", "jr_4").__enter__()
    dead.write(dead.rows_since(pd.DataFrame({"id": [4]}), "id"), str(target))
    dead.run.abort()


def test_places_are_shown_with_what_is_found_there_before_a_repair_deletes(
    run: Command, watermarks: Watermarks, target: Path, answers: None
) -> None:
    leave_staged(watermarks, target)
    (left,) = target.parent.glob("_raw.staging/**/*.parquet")

    done = run(watermarks, "doctor", "repairs", "--repair", input="n\n")

    assert done.exit_code == 1
    assert f"1 file in file://{left.parent}" in done.stdout.replace("\n", "")
    assert left.exists()


@pytest.fixture
def restored(watermarks: Watermarks, target: Path) -> Path:
    """Return the folder of `target` after a fourth batch, of which the restored table knows nothing."""
    backup = all_items(watermarks)
    with IncrementalJob(watermarks, "repairs", "jr_4") as job:
        job.write(job.rows_since(pd.DataFrame({"id": range(1, 5)}), "id"), str(target))
    put_back(watermarks, backup)
    return target


def test_doctor_asks_what_becomes_of_batches_when_a_backup_came_back(
    run: Command, watermarks: Watermarks, restored: Path
) -> None:
    before = watermarks.latest("repairs")

    found = run(watermarks, "doctor", "repairs", "--output", "json")
    done = run(watermarks, "doctor", "repairs", "--after-restore", *WHY)

    assert [one["kind"] for one in json.loads(found.stdout)["findings"]] == ["target ahead", "unexplained files"]
    assert done.exit_code == 78
    assert "version 4 of job 'repairs'" in done.stderr
    for answer in ("--retract", "--keep"):
        command = f"watermarks doctor repairs --after-restore --target file://{restored} --why TEXT {answer}"
        assert command in " ".join(done.stderr.split())
    assert "epoch" not in done.stdout
    assert watermarks.latest("repairs") == before


@pytest.mark.parametrize(("answer", "left"), [("--retract", [1, 2, 3, 4]), ("--keep", [1, 2, 3, 4, 4])])
def test_retract_and_keep_do_what_they_announce_when_a_backup_was_restored(
    run: Command, watermarks: Watermarks, restored: Path, answer: str, left: list[int]
) -> None:
    done = run(watermarks, "doctor", "repairs", "--after-restore", answer, *WHY)

    with IncrementalJob(watermarks, "repairs", "jr_5") as job:
        job.write(job.rows_since(pd.DataFrame({"id": range(1, 5)}), "id"), str(restored))
    retracts = answer == "--retract"
    assert f"Batches that only the targets know are {'taken back there' if retracts else 'kept'}." in done.stdout
    assert (f"Deleted 1 file from file://{restored}." in done.stdout) == retracts
    assert rows(restored) == left


def test_rows_are_there_once_when_they_were_taken_back_after_the_backup(
    run: Command, watermarks: Watermarks, target: Path
) -> None:
    backup = all_items(watermarks)
    run(watermarks, "rewind", "repairs", "--to-version", "1", "--retract", *WHY)
    with IncrementalJob(watermarks, "repairs", "jr_4") as job:
        job.write(job.rows_since(pd.DataFrame({"id": range(1, 5)}), "id"), str(target))
    put_back(watermarks, backup)

    refused = run(watermarks, "doctor", "repairs", "--after-restore", "--retract", *WHY)
    done = run(watermarks, "doctor", "repairs", "--after-restore", "--retract", "--back-to", "1", *WHY)
    with IncrementalJob(watermarks, "repairs", "jr_5") as job:
        job.write(job.rows_since(pd.DataFrame({"id": range(1, 6)}), "id"), str(target))

    assert (refused.exit_code, "epoch" in refused.stdout) == (78, False)
    assert "repeat this with --back-to 1 (" in " ".join(refused.stderr.split())
    assert "The next run continues from the watermarks of version 1." in done.stdout
    assert rows(target) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("at", "said"),
    [("{raw}x", "There are no files at '{raw}x'"), ("database://shop/t", "after_restore(…, sinks=[its DatabaseSink]")],
)
def test_nothing_is_changed_when_no_target_is_where_a_person_says(
    run: Command, watermarks: Watermarks, restored: Path, at: str, said: str
) -> None:
    before = watermarks.latest("repairs")

    done = run(watermarks, "doctor", "repairs", "--after-restore", "--target", at.format(raw=restored), "--keep", *WHY)

    assert done.exit_code != 0
    assert said.format(raw=restored) in " ".join(done.stderr.split())
    assert watermarks.latest("repairs") == before


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_rows_are_there_once_when_the_table_was_lost_and_a_person_names_the_target(
    run: Command, watermarks: Watermarks, tmp_path: Path, kind: str
) -> None:
    folder = str(tmp_path / "raw")

    def load(run_id: str) -> None:
        with IncrementalJob(watermarks, "repairs", run_id) as job:
            job.write(job.rows_since(pd.DataFrame({"id": [1, 2]}), "id"), folder, format=kind)

    load("jr_1")
    for job_id, key in all_items(watermarks):
        watermarks.store.delete(job_id, key)
    with pytest.raises(TargetAheadError):
        load("jr_2")

    done = run(watermarks, "doctor", "repairs", "--after-restore", "--target", folder, "--retract", *WHY)

    if kind == "delta":
        assert "no column holds their batch" in done.stderr
        assert "after_restore(…, sinks=[DeltaSink(…, batch_column=…)]" in " ".join(done.stderr.split())
        done = run(watermarks, "doctor", "repairs", "--after-restore", "--target", folder, "--keep", *WHY)
    load("jr_2")
    assert done.exit_code == (1 if kind == "parquet" else 0), done.output
    assert rows(Path(folder)) == ([1, 2] if kind == "parquet" else [1, 1, 2, 2])


@pytest.mark.parametrize("option", [["--target", "/data/raw"], ["--retract"], ["--keep"], ["--back-to", "1"]])
def test_doctor_refuses_an_option_when_nothing_was_restored(
    run: Command, watermarks: Watermarks, target: Path, option: list[str]
) -> None:
    done = run(watermarks, "doctor", "repairs", *option)

    assert done.exit_code == 2
    assert "--target, --retract, --keep and --back-to are for --after-restore and --from-log." in done.stderr


# --- a head that cannot be read ---------------------------------------------------------------------

FROM_LOG = ("doctor", "repairs", "--from-log", *WHY)


def load(watermarks: Watermarks, target: Path, last: int) -> None:
    """Run the job over all rows up to `last`."""
    with IncrementalJob(watermarks, "repairs", f"jr_{last}") as job:
        job.write(job.rows_since(pd.DataFrame({"id": range(1, last + 1)}), "id"), str(target))


def damage(watermarks: Watermarks, **others: Any) -> None:
    change_item(watermarks, "repairs", HEAD_KEY, version={"S": "three"}, **others)


@pytest.mark.parametrize(
    "command",
    [
        ("show",), ("history",), ("plan",), ("reset", *WHY), ("rewind", "--to-version", "1", *WHY),
        ("discard-plan", *WHY), ("adopt", "--run", "jr_1", *WHY), ("doctor",),
    ],
    ids=lambda command: command[0],
)  # fmt: skip
def test_error_names_the_command_that_helps_when_a_head_is_damaged(
    run: Command, watermarks: Watermarks, target: Path, command: tuple[str, ...]
) -> None:
    damage(watermarks)

    done = run(watermarks, command[0], "repairs", *command[1:])

    assert done.exit_code != 0
    assert "watermarks doctor repairs --from-log --why TEXT" in " ".join(done.output.split())


@pytest.mark.parametrize("gone", [False, True])
def test_rows_come_once_when_a_damaged_head_is_made_from_the_log(
    run: Command, watermarks: Watermarks, target: Path, gone: bool
) -> None:
    before = watermarks.latest("repairs")
    damage(watermarks)
    if gone:
        watermarks.store.delete("repairs", HEAD_KEY)

    done = run(watermarks, *FROM_LOG)
    load(watermarks, target, 4)

    after = watermarks.latest("repairs")
    said = " ".join(done.stdout.split())
    assert done.exit_code == 0, done.output
    assert "made from the log entry of version 3, COMMIT at" in said
    assert "It becomes version 4." in said
    assert "A log entry does not hold: - the open plan:" in said
    assert (after.version, after.fence > before.fence, after.epoch != before.epoch) == (5, True, True)
    assert rows(target) == [1, 2, 3, 4]
    assert [entry.change.op for entry in watermarks.history("repairs")] == ["COMMIT", "SET", *["COMMIT"] * 3]


def test_emptied_target_is_named_when_its_head_was_made_from_the_log(
    run: Command, watermarks: Watermarks, target: Path
) -> None:
    damage(watermarks)

    done = run(watermarks, *FROM_LOG)
    rmtree(target)
    found = run(watermarks, "doctor", "repairs", "--output", "json")

    assert done.exit_code == 0, done.output
    assert [finding["kind"] for finding in json.loads(found.stdout)["findings"]] == ["target behind"]


def test_batch_that_waits_is_published_when_its_head_is_made_from_the_log(
    run: Command, watermarks: Watermarks, waiting: Path
) -> None:
    damage(watermarks)

    done = run(watermarks, *FROM_LOG)
    load(watermarks, waiting, 5)

    assert f"The next run publishes version 4 for file://{waiting}" in " ".join(done.stdout.split())
    assert rows(waiting) == [1, 2, 3, 4, 5]


def test_batch_that_was_taken_back_is_not_published_when_its_head_is_made_from_the_log(
    run: Command, watermarks: Watermarks, waiting: Path
) -> None:
    run(watermarks, "rewind", "repairs", "--to-version", "3", *WHY)
    damage(watermarks)

    done = run(watermarks, *FROM_LOG)
    load(watermarks, waiting, 4)

    assert "made from the log entry of version 5, REWIND at" in " ".join(done.stdout.split())
    assert rows(waiting) == [1, 2, 3, 4]


@pytest.mark.parametrize(("answer", "left"), [("--retract", [1, 2, 3, 4]), ("--keep", [1, 2, 3, 3, 4])])
def test_targets_are_asked_first_when_the_newest_log_entry_is_damaged_too(
    run: Command, watermarks: Watermarks, target: Path, answer: str, left: list[int]
) -> None:
    damage(watermarks)
    change_item(watermarks, "repairs", log_key(3), at={"S": "yesterday"})

    refused = run(watermarks, *FROM_LOG)
    done = run(watermarks, *FROM_LOG, answer)
    load(watermarks, target, 4)

    command = f"watermarks doctor repairs --from-log --target file://{target} --why TEXT {answer}"
    assert (refused.exit_code, command in " ".join(refused.stderr.split())) == (78, True)
    assert f"Not whole, and left out: {log_key(3)}" in done.stdout
    assert (watermarks.latest("repairs").version, rows(target)) == (5, left)


def test_version_is_above_that_of_the_damaged_head_when_the_log_lacks_it(
    run: Command, watermarks: Watermarks, target: Path
) -> None:
    change_item(watermarks, "repairs", HEAD_KEY, watermarks={"S": "none"})
    watermarks.store.delete("repairs", log_key(3))

    done = run(watermarks, *FROM_LOG, "--retract")
    load(watermarks, target, 3)

    assert "made from the log entry of version 2, COMMIT at" in " ".join(done.stdout.split())
    assert (watermarks.latest("repairs").version, rows(target)) == (5, [1, 2, 3])


def test_nothing_is_written_when_a_person_says_no_to_a_head_from_the_log(
    run: Command, watermarks: Watermarks, target: Path, answers: None
) -> None:
    damage(watermarks)
    before = all_items(watermarks)

    done = run(watermarks, "doctor", "repairs", "--from-log", "--why", "it was altered", input="n\n")

    assert "Write this head of job repairs?" in done.stderr
    assert (done.exit_code, all_items(watermarks)) == (1, before)


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        ({"version": {"N": "3"}}, "The head of job 'repairs' can be read, so it is not made from the log."),
        ({"movedTo": {"S": "council"}}, "it is in council. Give its script that table."),
    ],
    ids=["readable", "moved"],
)
def test_head_is_not_made_from_the_log_when_it_is_readable_or_the_job_was_moved(
    run: Command, watermarks: Watermarks, target: Path, damaged: dict[str, Any], said: str
) -> None:
    damage(watermarks)
    change_item(watermarks, "repairs", HEAD_KEY, **damaged)
    before = all_items(watermarks)

    done = run(watermarks, *FROM_LOG)

    assert done.exit_code != 0
    assert said in " ".join(done.stderr.split())
    assert all_items(watermarks) == before


def test_run_is_fenced_when_its_head_is_made_from_the_log_meanwhile(
    run: Command, watermarks: Watermarks, target: Path
) -> None:
    begun = watermarks.begin("repairs", "jr_4")
    begun.freeze({"rows": {}}, {"rows": {}})
    damage(watermarks)
    run(watermarks, *FROM_LOG)

    with pytest.raises(FencedError):
        begun.commit()


# --- unpublished batches ----------------------------------------------------------------------------


@pytest.fixture
def waiting(watermarks: Watermarks, target: Path) -> Path:
    """Return a folder whose fourth batch is committed but not published."""

    def die(*_: Any) -> None:
        raise KilledError

    with patch.object(FileSink, "publish", die), pytest.raises(KilledError):
        write(watermarks, target, [4])
    return target


def write(watermarks: Watermarks, target: Path, ids: list[int]) -> None:
    with IncrementalJob(watermarks, "repairs", f"jr_{ids[-1]}") as job:
        job.write(job.rows_since(pd.DataFrame({"id": ids}), "id"), str(target))


def test_doctor_names_the_command_when_a_batch_waits_to_be_published(
    run: Command, watermarks: Watermarks, waiting: Path
) -> None:
    done = run(watermarks, "doctor", "repairs")

    assert (done.exit_code, rows(waiting)) == (1, [1, 2, 3])
    assert f"version 4 for file://{waiting}" in done.stdout
    assert "watermarks doctor repairs --publish" in done.stdout


@pytest.mark.parametrize("command", [("jobs",), ("show", "repairs")])
def test_job_needs_somebody_when_a_batch_waits_to_be_published(
    run: Command, watermarks: Watermarks, waiting: Path, command: tuple[str, ...]
) -> None:
    shown = run(watermarks, *command, now=LATER).stdout
    found = json.loads(run(watermarks, *command, "--output", "json", now=LATER).stdout)
    (facts,) = found["jobs"] if command == ("jobs",) else [found]

    assert "unpublished, 1 version committed and not at the target yet; the next run publishes" in shown
    assert (facts["state"], facts["command"]) == ("unpublished", "watermarks doctor repairs --publish")
    assert facts["unpublished"] == [{"version": 4, "target": f"file://{waiting}"}]


@pytest.mark.parametrize(("is_set", "state"), [(False, "idle"), (True, "unpublished")])
def test_nobody_is_called_when_the_run_that_committed_may_still_publish(
    run: Command, watermarks: Watermarks, waiting: Path, is_set: bool, state: str
) -> None:
    if is_set:
        watermarks.set_watermark("repairs", {"seen": 1}, transformation_ctx="own", why="it began elsewhere")

    found = json.loads(run(watermarks, "show", "repairs", "--output", "json").stdout)

    assert found["state"] == state
    assert found["unpublished"] == [{"version": 4, "target": f"file://{waiting}"}]


@pytest.mark.parametrize("command", [("jobs",), ("show", "repairs")])
def test_error_of_the_last_run_is_shown_when_a_target_refuses_its_columns(
    run: Command, watermarks: Watermarks, target: Path, command: tuple[str, ...]
) -> None:
    for number, rows in enumerate(({"id": [4]}, {"id": [5], "owner": ["a name"]})):
        expected = pytest.raises(TargetSchemaError) if number else nullcontext()
        with expected, IncrementalJob(watermarks, "repairs", f"jr_4{number}") as job:
            taken = job.rows_since(pd.DataFrame(rows), "id", on_schema_change="take")
            job.write(taken, f"{target}.delta", format="delta")

    shown = " ".join(run(watermarks, *command).stdout.split())
    found = json.loads(run(watermarks, *command, "--output", "json").stdout)
    (facts,) = found["jobs"] if command == ("jobs",) else [found]

    assert "not committed; the next run replays it. The last error: TargetSchemaError: Target" in shown
    assert facts["failure"].startswith(f"TargetSchemaError: Target 'file://{target}.delta': the rows")
    assert "a name" not in shown


def test_job_is_named_first_when_a_batch_waits_to_be_published(
    run: Command, watermarks: Watermarks, waiting: Path
) -> None:
    done = run(watermarks, now=LATER)

    first, *_, command = done.stdout.splitlines()[1:4]
    assert first.startswith("repairs  unpublished")
    assert command == "  watermarks doctor repairs --publish"


def test_doctor_publishes_what_waits_and_finds_nothing_more_when_told_to(
    run: Command, watermarks: Watermarks, waiting: Path
) -> None:
    done = run(watermarks, "doctor", "repairs", "--publish", "--yes")

    assert (done.exit_code, rows(waiting)) == (0, [1, 2, 3, 4]), done.output
    assert f"Publishes version 4 for file://{waiting}" in done.stdout
    assert "repaired" in done.stdout
    assert run(watermarks, "doctor", "repairs").exit_code == 0


def test_doctor_publishes_nothing_when_the_answer_is_no(
    run: Command, watermarks: Watermarks, waiting: Path, answers: None
) -> None:
    done = run(watermarks, "doctor", "repairs", "--publish", input="n\n")

    assert (done.exit_code, rows(waiting)) == (1, [1, 2, 3])
    assert f"Publishes version 4 for file://{waiting}" in done.stdout


def test_doctor_publishes_nothing_and_names_the_run_when_one_is_at_work(
    run: Command, watermarks: Watermarks, waiting: Path
) -> None:
    watermarks.begin("repairs", "jr_5")

    done = run(watermarks, "doctor", "repairs", "--publish", "--yes")

    assert (done.exit_code, rows(waiting)) == (TRY_LATER, [1, 2, 3])
    assert "Run 'jr_5' works on job 'repairs'" in done.stderr


def test_doctor_says_so_when_nothing_waits_to_be_published(run: Command, watermarks: Watermarks, target: Path) -> None:
    done = run(watermarks, "doctor", "repairs", "--publish", "--yes")

    assert done.exit_code == 0, done.output
    assert "No batch waits to be published." in done.stdout


def test_what_was_published_is_in_the_document_when_it_is_json(
    run: Command, watermarks: Watermarks, waiting: Path
) -> None:
    done = run(watermarks, "doctor", "repairs", "--publish", "--yes", "--output", "json")

    (found,) = json.loads(done.stdout)["findings"]
    assert (found["kind"], found["repaired"]) == ("unpublished", True)


def test_doctor_names_the_lost_batches_when_it_publishes_a_later_one(
    run: Command, watermarks: Watermarks, waiting: Path
) -> None:
    rmtree(waiting)

    done = run(watermarks, "doctor", "repairs", "--publish", "--yes")

    assert (done.exit_code, rows(waiting)) == (1, [4]), done.output
    assert "target behind" in done.stdout
    assert "watermarks reset repairs --retract --why TEXT" in done.stdout


# --- targets that were emptied ------------------------------------------------------------------------


@pytest.fixture
def emptied(watermarks: Watermarks, target: Path) -> Path:
    """Return a folder that was deleted before a fourth batch was written to it."""
    rmtree(target)
    write(watermarks, target, [4])
    return target


@pytest.mark.parametrize("is_written_since", [False, True])
def test_doctor_names_the_emptied_target_until_it_is_told_to_forget_it(
    run: Command, watermarks: Watermarks, target: Path, is_written_since: bool
) -> None:
    rmtree(target)
    if is_written_since:
        write(watermarks, target, [4])

    found = run(watermarks, "doctor", "repairs", "--output", "json")
    (finding,) = json.loads(found.stdout)["findings"]
    command = shlex.split(finding["remedy"].partition("If it was on purpose, run `watermarks ")[2].partition("`")[0])
    done = run(watermarks, *command, "--yes")
    write(watermarks, target, [5])

    assert (found.exit_code, finding["kind"]) == (1, "target behind")
    assert command == ["doctor", "repairs", "--forget", f"file://{target}"]
    assert done.exit_code == 0, done.output
    assert f"Forgets what was published to file://{target}." in done.stdout
    assert "No problems found." in done.stdout
    assert run(watermarks, "doctor", "repairs").exit_code == 0


def test_doctor_finds_nothing_when_its_command_has_made_the_job_read_the_rows_again(
    run: Command, watermarks: Watermarks, emptied: Path
) -> None:
    found = run(watermarks, "doctor", "repairs", "--output", "json")
    (finding,) = json.loads(found.stdout)["findings"]
    command = shlex.split(finding["remedy"].partition("run `watermarks ")[2].partition("`")[0])
    done = run(watermarks, *command, "--yes")
    write(watermarks, emptied, [1, 2, 3, 4])

    assert done.exit_code == 0, done.output
    assert rows(emptied) == [1, 2, 3, 4]
    assert watermarks.doctor("repairs") == []


def test_doctor_forgets_nothing_when_no_batch_is_missing_there_or_a_run_is_at_work_or_nobody_agrees(
    run: Command, watermarks: Watermarks, emptied: Path, answers: None
) -> None:
    other = run(watermarks, "doctor", "repairs", "--forget", "/data/raw", "--yes")
    refused = run(watermarks, "doctor", "repairs", "--forget", f"file://{emptied}", input="n\n")
    watermarks.begin("repairs", "jr_5")
    busy = run(watermarks, "doctor", "repairs", "--forget", f"file://{emptied}", "--yes")

    assert (other.exit_code, refused.exit_code, busy.exit_code) == (BAD_DATA, 1, TRY_LATER)
    assert f"no published batch at '/data/raw' that could be missing. Its targets: file://{emptied}." in other.stderr
    assert [one.kind for one in watermarks.doctor("repairs")] == ["target behind"]


def test_unpublished_batch_is_shown_as_deleted_and_others_as_kept_when_a_rewind_does_not_retract(
    run: Command, watermarks: Watermarks, waiting: Path
) -> None:
    done = run(watermarks, "rewind", "repairs", "--to-version", "2", *WHY)

    assert done.exit_code == 0, done.output
    kept, deleted = [line for line in done.stdout.splitlines() if line.startswith(("file://", "4 to 4"))]
    assert kept.split()[1:3] == ["3", "1"]
    assert "1 file" in deleted


def test_error_names_what_helps_when_a_committed_batch_cannot_be_published(
    watermarks: Watermarks, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(sink: FileSink, *_: Any) -> None:
        raise TargetError(sink.name, "s3:PutObject: AccessDenied")

    monkeypatch.setattr(FileSink, "publish", refuse)

    with pytest.raises(UnpublishedError) as caught:
        write(watermarks, target, [4])

    text = str(caught.value)
    assert "the next run publishes it, and so does watermarks doctor repairs --publish" in text
    assert "watermarks rewind repairs --to-version 3 --retract --why TEXT" in text


def test_rows_of_a_table_are_there_once_when_the_command_of_the_error_is_run(
    run: Command, watermarks: Watermarks, tmp_path: Path
) -> None:
    folder = str(tmp_path / "raw")

    def load(last: int) -> None:
        with IncrementalJob(watermarks, "repairs", f"jr_{last}") as job:
            rows = job.rows_since(pd.DataFrame({"id": range(1, last + 1)}), "id")
            job.write(rows, folder, format="delta", batch_column="batch")

    load(1)
    backup = all_items(watermarks)
    load(2)
    put_back(watermarks, backup)
    with pytest.raises(TargetAheadError) as caught:
        load(3)

    command = str(caught.value).partition("are read again: watermarks ")[2].partition(". Or keep")[0]
    done = run(watermarks, *command.replace("TEXT", "restored").split(), "--yes")
    load(3)

    assert "no column holds their batch" not in done.output
    assert sorted(DeltaTable(folder).to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3]


def test_rows_that_a_table_had_lost_are_named_when_a_rewind_retracts_later_ones_there(
    run: Command, watermarks: Watermarks, tmp_path: Path
) -> None:
    folder = str(tmp_path / "raw")

    def load(*ids: int) -> None:
        with IncrementalJob(watermarks, "repairs", f"jr_{sum(ids)}") as job:
            rows = job.rows_since(pd.DataFrame({"id": ids}), "id")
            job.write(rows, folder, format="delta", batch_column="batch")

    load(1)
    version = DeltaTable(folder).version()
    load(1, 2)
    load(1, 2, 3)
    DeltaTable(folder).restore(version)
    rewound = run(watermarks, "rewind", "repairs", "--to-version", "2", "--retract", *WHY)
    load(1, 2)

    found = run(watermarks, "doctor", "repairs", "--output", "json")
    (finding,) = [one for one in json.loads(found.stdout)["findings"] if one["kind"] == "target behind"]
    assert rewound.exit_code == 0, rewound.output
    assert "run `watermarks rewind repairs --to-version 1 --retract --why TEXT`" in finding["remedy"]
