"""Jobs that write to a database: which run publishes a batch, whatever happens to the runs."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.backfill import Backfill
from scripts.helpers.batch.leftovers import examine_targets
from scripts.helpers.errors import InvalidValueError, PlanConflictError, TargetError, UnpublishedError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks import DatabaseSink, Merge
from scripts.helpers.watermarks import Watermarks
from tests.support.places import REPOSITORY
from tests.support.steps import KilledError

JOB = "repairs"


class SqliteCopy:
    """A job that copies pandas rows to a SQLite table."""

    def __init__(self, watermarks: Watermarks, path: Path) -> None:
        self.watermarks, self.path = watermarks, path
        connection = self.connect()
        connection.execute("CREATE TABLE repairs (id integer, word text)")
        connection.commit()
        connection.close()
        self.source = pd.DataFrame({"id": [1, 2, 3]})

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path)

    @property
    def sink(self) -> DatabaseSink:
        return DatabaseSink("repairs", connect=self.connect, name="shop")

    def begin(self, run_id: str) -> IncrementalJob:
        return IncrementalJob(self.watermarks, JOB, run_id).__enter__()

    def stage(self, job: IncrementalJob) -> None:
        job.write(job.rows_since(self.source, "id"), self.sink)

    def run(self, run_id: str, mode: Any = "enable") -> None:
        with IncrementalJob(self.watermarks, JOB, run_id, mode=mode) as job:
            self.stage(job)

    @property
    def seen(self) -> list[int]:
        return [row[0] for row in self.query("SELECT id FROM repairs ORDER BY id")]

    @property
    def staged(self) -> list[str]:
        found = self.query("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'gw%'")
        return [name for (name,) in found]

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        connection = self.connect()
        found = connection.execute(statement).fetchall()
        connection.close()
        return found


@pytest.fixture
def world(watermarks: Watermarks, tmp_path: Path) -> SqliteCopy:
    return SqliteCopy(watermarks, tmp_path / "shop.db")


def die(*_: Any) -> None:
    raise KilledError


def test_rows_of_pandas_replace_others_when_they_are_written_to_a_sink_that_merges(world: SqliteCopy) -> None:
    world.source = pd.DataFrame({"id": [1, 1, 2], "word": ["a", "b", "c"]})
    with IncrementalJob(world.watermarks, JOB, "jr_1") as job:
        merging = DatabaseSink("repairs", connect=world.connect, name="shop", merge=Merge.of("id", "word"))
        job.write(job.rows_since(world.source, "id"), merging)

    assert world.query("SELECT * FROM repairs ORDER BY id") == [(1, "b"), (2, "c")]


def test_next_write_finishes_the_batch_when_a_process_is_killed_after_its_commit(
    world: SqliteCopy, caplog: pytest.LogCaptureFixture
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.sinks.database_attempt", world.watermarks.table_name, str(world.path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    killed = done.returncode, world.seen, len(world.staged), world.watermarks.latest(JOB).version

    world.source = pd.DataFrame({"id": [1, 2, 3, 4]})
    job = world.begin("jr_2")
    world.stage(job)
    resumed = world.seen
    job.__exit__(None, None, None)

    assert killed == (-signal.SIGKILL, [], 1, 1), done.stderr
    assert (resumed, world.seen, world.staged) == ([1, 2, 3], [1, 2, 3, 4], [])
    assert "event=publication_waits job=repairs version=1 target=database://shop/repairs" in caplog.text
    assert world.watermarks.latest(JOB).unpublished == ()


def die_after_the_commit(world: SqliteCopy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load the rows from 3 on with the live job, and let a backfill of the rows before die after its commit."""
    with IncrementalJob(world.watermarks, JOB, "jr_1") as job:
        job.write(job.rows_since(world.source, "id", transformation_ctx="rows", start_from=3), world.sink)
    with monkeypatch.context() as patch:
        patch.setattr(DatabaseSink, "publish", die)
        with pytest.raises(KilledError), Backfill(world.watermarks, JOB, "jr_2", low=1, high=3) as past:
            past.write(past.rows(world.source, "id"), world.sink)


def test_rows_of_a_slice_come_when_it_runs_again_and_a_run_of_it_died_after_the_commit(
    world: SqliteCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_after_the_commit(world, monkeypatch)
    died = world.seen

    with Backfill(world.watermarks, JOB, "jr_2", low=1, high=3) as past:
        past.write(past.rows(world.source, "id"), world.sink)

    assert (died, past.is_done, world.seen, world.staged) == ([3], True, [1, 2, 3], [])
    assert world.watermarks.latest(past.job_id).unpublished == ()
    assert world.watermarks.gaps(JOB, "rows", start=1) == []


@pytest.mark.parametrize("asks", [True, False], ids=["rows", "nothing"])
def test_slice_stays_a_gap_and_the_error_says_so_when_it_is_done_and_nobody_publishes_its_rows(
    world: SqliteCopy, monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    die_after_the_commit(world, monkeypatch)

    with (
        pytest.raises(UnpublishedError, match="Write to that target again"),
        Backfill(world.watermarks, JOB, "jr_2", low=1, high=3) as past,
    ):
        if asks:
            past.rows(world.source, "id")

    assert world.watermarks.gaps(JOB, "rows", start=1) == [(1, 3)]


def test_rows_come_once_when_the_job_goes_back_before_a_version_that_nobody_published(
    world: SqliteCopy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.run("jr_1")
    world.source = pd.DataFrame({"id": [1, 2, 3, 4]})
    with monkeypatch.context() as patch:
        patch.setattr(DatabaseSink, "publish", die)
        with pytest.raises(KilledError):
            world.run("jr_2")
    world.watermarks.rewind(JOB, to_version=1, why="4 was wrong")
    world.source = pd.DataFrame({"id": [1, 2, 3, 5]})

    world.run("jr_3")

    assert (world.seen, world.staged) == ([1, 2, 3, 5], [])
    assert "event=retraction_waits job=repairs versions=2-2 target=" in caplog.text


def test_batch_waits_and_the_error_says_so_when_the_target_does_not_take_it(world: SqliteCopy) -> None:
    job = world.begin("jr_1")
    world.stage(job)
    connection = world.connect()
    connection.execute("CREATE UNIQUE INDEX one ON repairs (id)")
    connection.execute("INSERT INTO repairs VALUES (2, 'by hand')")
    connection.commit()

    with pytest.raises(UnpublishedError, match="version 1 is committed"):
        job.__exit__(None, None, None)
    blocked = world.seen
    connection.execute("DELETE FROM repairs")
    connection.commit()
    connection.close()
    world.source = pd.DataFrame({"id": [1, 2, 3, 4]})
    world.run("jr_2")

    assert (blocked, world.seen) == ([2], [1, 2, 3, 4])


@pytest.mark.parametrize("mode", ["enable", "disable"])
def test_second_write_is_refused_when_it_spells_the_table_in_another_way(world: SqliteCopy, mode: Any) -> None:
    other = DatabaseSink("main.repairs", connect=world.connect, name="the-same-shop")

    with (
        pytest.raises(PlanConflictError, match=r"was written to 'database://the-same-shop/main\.repairs' already"),
        IncrementalJob(world.watermarks, JOB, "jr_1", mode=mode) as job,
    ):
        rows = job.rows_since(world.source, "id")
        job.write(rows[rows["id"] < 3], world.sink)
        job.write(rows[rows["id"] > 2], other)

    assert (world.seen, world.staged) == ([], [])


@pytest.mark.parametrize("mode", ["pause", "disable"])
def test_retry_of_a_run_that_saves_nothing_is_refused_when_it_would_append_again(world: SqliteCopy, mode: Any) -> None:
    world.run("jr_1", mode)

    with pytest.raises(TargetError, match="Use another run id"):
        world.run("jr_1", mode)
    world.run("jr_2", mode)

    assert world.seen == [1, 1, 2, 2, 3, 3]


# --- merges ---------------------------------------------------------------------------------------------


def merge(world: SqliteCopy, run_id: str, rows: list[tuple[int, int, str]], **options: Any) -> int:
    frame = pd.DataFrame(rows, columns=["id", "at", "word"])
    sink = DatabaseSink("parts", connect=world.connect, name="shop")
    mode = options.pop("mode", "enable")
    with IncrementalJob(world.watermarks, "parts", run_id, mode=mode) as job:
        found = job.rows_since(frame, "at", lookback=5, write_disposition="merge")
        return job.merge(found, sink, keys="id", sequence_by="at", **options)


@pytest.fixture
def parts(world: SqliteCopy) -> SqliteCopy:
    connection = world.connect()
    connection.execute("CREATE TABLE parts (id integer PRIMARY KEY, at integer, word text)")
    connection.commit()
    connection.close()
    return world


def parts_of(world: SqliteCopy) -> list[Any]:
    return world.query("SELECT * FROM parts ORDER BY id")


def test_rows_that_come_again_leave_the_same_when_a_job_merges_with_a_lookback(parts: SqliteCopy) -> None:
    options: dict[str, Any] = {"deletes": lambda rows: rows.word == "gone"}

    counts = [
        merge(parts, "jr_1", [(1, 1, "a"), (2, 2, "b"), (1, 3, "c")], **options),
        merge(parts, "jr_2", [(1, 1, "a"), (2, 2, "b"), (1, 3, "c"), (2, 4, "gone"), (3, 4, "d")], **options),
        merge(parts, "jr_3", [(1, 1, "a"), (2, 2, "b"), (1, 3, "c"), (2, 4, "gone"), (3, 4, "d")], **options),
    ]

    assert counts == [2, 3, 3]
    assert parts_of(parts) == [(1, 3, "c"), (3, 4, "d")]


def test_rows_come_again_and_leave_the_same_when_the_job_is_reset(parts: SqliteCopy) -> None:
    merge(parts, "jr_1", [(1, 1, "a"), (2, 2, "b")])
    parts.watermarks.reset("parts", why="all again")

    merge(parts, "jr_2", [(1, 1, "a"), (2, 2, "b"), (2, 3, "c")])

    assert parts_of(parts) == [(1, 1, "a"), (2, 3, "c")]


def test_merge_is_refused_when_the_target_is_a_path(parts: SqliteCopy) -> None:
    rows = pd.DataFrame({"id": [1], "at": [1]})
    target: Any = "s3://raw/parts"

    with pytest.raises(InvalidValueError, match="Give a DatabaseSink"), parts.begin("jr_1") as job:
        job.merge(job.rows_since(rows, "at"), target, keys="id", sequence_by="at")


# --- what the doctor finds ------------------------------------------------------------------------------


def found(world: SqliteCopy, **options: Any) -> list[tuple[str, str, bool]]:
    findings = examine_targets(world.watermarks, JOB, sinks=[world.sink], **options)
    return [(one.kind, one.detail, one.repaired) for one in findings]


def leave_staged(world: SqliteCopy, run_id: str) -> IncrementalJob:
    """Leave an attempt as if its process was killed after staging; its lease runs on."""
    job = world.begin(run_id)
    world.stage(job)
    return job


def test_staging_table_of_an_earlier_epoch_is_found_and_dropped_when_the_table_came_back_from_a_backup(
    world: SqliteCopy,
) -> None:
    world.run("jr_1")
    world.source = pd.DataFrame({"id": [1, 2, 3, 4]})
    leave_staged(world, "jr_2").run.abort()
    (left,) = world.staged
    world.watermarks.decisions.restore(JOB, {}, why="restored")
    world.run("jr_3")

    assert world.staged == [left]
    assert found(world) == [
        ("staged leftover", f"{left} for database://shop/repairs: table {left} beside database://shop/repairs", False)
    ]
    assert found(world, repair=True) == [
        ("staged leftover", f"{left} for database://shop/repairs: table {left} beside database://shop/repairs", True)
    ]
    assert (world.staged, found(world), world.seen) == ([], [], [1, 2, 3, 4])


def test_staging_table_of_an_attempt_at_work_is_left_alone_when_repaired(world: SqliteCopy) -> None:
    world.run("jr_1")
    world.source = pd.DataFrame({"id": [4]})
    job = leave_staged(world, "jr_2")

    assert (found(world, repair=True), len(world.staged)) == ([], 1)

    job.__exit__(None, None, None)
    assert world.seen == [1, 2, 3, 4]


def test_batch_that_waits_is_no_leftover_when_the_table_came_back_from_a_backup(
    world: SqliteCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run("jr_1")
    world.source = pd.DataFrame({"id": [4]})
    with monkeypatch.context() as patch:
        patch.setattr(DatabaseSink, "publish", die)
        with pytest.raises(KilledError):
            world.run("jr_2")
    world.watermarks.decisions.restore(JOB, {}, why="restored")

    assert (found(world, repair=True), len(world.staged)) == ([], 1)

    world.source = pd.DataFrame({"id": [5]})
    world.run("jr_3")
    assert world.seen == [1, 2, 3, 4, 5]


def test_database_is_named_with_what_to_give_when_the_doctor_cannot_log_in(world: SqliteCopy) -> None:
    world.run("jr_1")

    ((kind, detail),) = [(one.kind, one.detail) for one in examine_targets(world.watermarks, JOB)]

    assert kind == "target not seen"
    assert detail.startswith("database://shop/repairs: ")
    assert "sinks=" in detail
