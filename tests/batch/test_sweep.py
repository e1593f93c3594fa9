"""Which files a sweep may delete from a ledger's folder, when many jobs, versions and plans refer to it."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.batch.sweep import LedgerSweep, Sweep
from scripts.helpers.errors import CorruptItemError, FencedError, LedgerError, StaleError
from scripts.helpers.files import ledger
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.upkeep import names_in
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol import items
from scripts.helpers.watermarks import Watermarks
from tests.support.table_items import put_item

JOB = "parking"
CONTEXT = "files"
REAL_NOW = datetime.now(timezone.utc)


class World:
    """A source, and jobs that keep their ledgers in one folder. The folder's clock is that of this machine."""

    def __init__(self, watermarks: Watermarks, root: Path) -> None:
        self.watermarks, self.source, self.folder = watermarks, root / "landing", root / "ledger"
        self.source.mkdir()
        self.uri, self._runs = f"{self.folder}/", 0

    def land(self, *names: str) -> None:
        for name in names:
            (self.source / name).write_text(name)

    def run(self, job_id: str = JOB, **options: Any) -> int:
        """Commit a run; return the number of files it took."""
        self._runs += 1
        with IncrementalJob(self.watermarks, job_id, f"jr_{self._runs}") as job:
            return job.new_files(str(self.source), transformation_ctx=CONTEXT, ledger_uri=self.uri, **options).count

    def names(self) -> set[str]:
        return set(os.listdir(self.folder))

    def age(self, days: float = 30) -> None:
        """Set the modification time of all files to that many days ago."""
        for name in self.names():
            at = (REAL_NOW - timedelta(days=days)).timestamp()
            os.utime(self.folder / name, (at, at))

    def orphan(self) -> str:
        """Leave a file behind, as a run does that is killed before it has a plan."""
        name = f"{len(self.names()):032x}.parquet"
        (self.folder / name).write_bytes(b"rows")
        return name

    def opened(self, job_id: str = JOB) -> LedgerSweep:
        return LedgerSweep(self.watermarks, job_id, self.uri)

    def live(self, job_id: str = JOB) -> set[str]:
        """Return the names of the files that the committed state of a job refers to."""
        return names_in(self.watermarks.get_watermark_values(job_id)[CONTEXT])

    def sweep(self, job_id: str = JOB, **options: Any) -> set[str]:
        """Sweep, and return the names of the deleted files."""
        before, opened = self.names(), self.opened(job_id)
        opened.sweep(opened.to_sweep(**options), **options)
        return before - self.names()


@pytest.fixture
def world(make_watermarks: Any, tmp_path: Path) -> World:
    return World(make_watermarks(clock=lambda: REAL_NOW, retention=timedelta(days=60)), tmp_path)


def names_of(sweep: Sweep) -> set[str]:
    return {file.name for file in sweep.leftovers.files}


def test_only_what_no_version_refers_to_goes_when_segments_were_merged(world: World) -> None:
    world.land("1", "2")
    world.run()
    world.land("3")
    world.run()  # This merges into one segment. Version 1 still refers to the first; the batch's own is a leftover.
    orphan = world.orphan()
    world.age()

    gone = world.sweep()

    assert orphan in gone
    assert world.live() <= world.names()
    assert world.run() == 0
    world.watermarks.rewind(JOB, to_version=1, why="a test")
    assert world.run() == 1


def test_files_of_an_open_plan_stay_when_its_run_is_dead(world: World) -> None:
    world.land("1")
    world.run()
    world.land("2")
    with pytest.raises(ZeroDivisionError), IncrementalJob(world.watermarks, JOB, "jr_dead") as job:
        job.new_files(str(world.source), transformation_ctx=CONTEXT, ledger_uri=world.uri)
        job.freeze()
        raise ZeroDivisionError
    orphan = world.orphan()
    world.age()

    gone = world.sweep()

    assert gone == {orphan}
    assert world.run() == 1


def test_files_of_other_jobs_and_contexts_stay_when_they_share_the_folder(world: World) -> None:
    world.land("1", "2")
    world.run()
    world.run("repairs")
    with IncrementalJob(world.watermarks, "two contexts", "jr_1") as job:
        for context in ("a", "b"):
            job.new_files(str(world.source), transformation_ctx=context, ledger_uri=world.uri)
    world.run("forgetful")
    world.watermarks.reset("forgetful", why="its first version is in the log still")
    orphan = world.orphan()
    world.age()

    gone = world.sweep()

    assert gone == {orphan}
    assert [world.run(name) for name in (JOB, "repairs")] == [0, 0]
    assert len(world.names()) == 5


def test_names_are_found_when_they_are_packed_and_stored_in_chunks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "FILE_ROWS", 1)
    world.land(*(str(number) for number in range(60)))
    world.run()
    orphan = world.orphan()
    world.age()

    gone = world.sweep()

    assert (gone, len(world.names())) == ({orphan}, 60)


def test_nothing_goes_that_a_run_at_work_may_refer_to_yet(world: World) -> None:
    """The run began forty days ago, has written its segments, and has no plan yet."""
    world.land("1")
    world.run()
    world.land("2")
    began = REAL_NOW - timedelta(days=40)
    slow = Watermarks(world.watermarks.table_name, world.watermarks.store.client, clock=lambda: began)
    run = slow.begin(JOB, "jr_slow")
    planner = FileBookmark(str(world.source), state=run.state(CONTEXT), ledger_uri=world.uri, taken_by=(2, "jr_slow"))
    planner.new_files()
    world.age(30)

    shown = world.opened().to_sweep()

    assert (names_of(shown), shown.leftovers.held > 0) == (set(), True)
    assert shown.held_by is not None
    assert shown.held_by.claim is not None
    assert shown.held_by.claim.run_id == "jr_slow"


def test_run_cannot_freeze_a_plan_when_a_sweep_raised_the_fence(world: World) -> None:
    world.land("1")
    world.run()
    world.run("repairs")
    began = REAL_NOW - timedelta(days=20)
    slow = Watermarks(world.watermarks.table_name, world.watermarks.store.client, clock=lambda: began)
    zombie = slow.begin(JOB, "jr_zombie")  # Its lease has expired, and no other run has taken over the job.
    orphan = world.orphan()
    world.age()

    gone = world.sweep()

    assert gone == {orphan}
    with pytest.raises(FencedError):
        zombie.freeze({CONTEXT: {"kind": "files"}}, {})
    assert world.run() == 0


def test_run_goes_on_when_its_lease_lives(world: World) -> None:
    world.land("1")
    world.run()
    orphan = world.orphan()
    world.age()
    world.land("2")

    with IncrementalJob(world.watermarks, JOB, "jr_at_work") as job:
        gone = world.sweep()
        taken = job.new_files(str(world.source), transformation_ctx=CONTEXT, ledger_uri=world.uri).count

    assert (gone, taken) == ({orphan}, 1)
    assert world.watermarks.latest(JOB).version == 2


def test_file_stays_when_a_job_refers_to_it_after_it_was_listed_for_deletion(world: World) -> None:
    world.land("1")
    world.run()
    state = world.watermarks.get_watermark_values(JOB)[CONTEXT]
    world.run("repairs")
    (old,), orphan = world.live(), world.orphan()
    world.watermarks.store.delete(JOB, items.log_key(1))
    world.watermarks.reset(JOB, why="so that nothing refers to its file")
    world.age()
    opened = world.opened("repairs")
    world.watermarks.store.delete(JOB, items.log_key(1))
    shown = opened.to_sweep()
    world.watermarks.set_watermark(JOB, state, transformation_ctx=CONTEXT, why="put back meanwhile")

    deleted = opened.sweep(shown)

    assert names_of(shown) == {old, orphan}
    assert deleted == 1
    assert old in world.names()


def test_no_fence_is_raised_when_nothing_is_left_over(world: World) -> None:
    world.land("1")
    world.run()
    before = world.watermarks.latest(JOB)

    deleted = world.opened().sweep(world.opened().to_sweep())

    assert deleted == 0
    assert world.watermarks.latest(JOB) == before


def test_items_without_a_state_are_passed_over_when_left_over_files_are_looked_for(world: World) -> None:
    world.land("1")
    world.run()
    orphan = world.orphan()
    world.age()
    item = items.key("another", "jr_1") | {"watermarks": {"M": {"rows": {"N": "1"}}}}
    put_item(world.watermarks, item)

    assert world.sweep() == {orphan}


def test_nothing_goes_when_a_job_changes_before_its_fence_is_raised(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.land("1")
    world.run()
    world.orphan()
    world.age()
    opened = world.opened()
    shown, before = opened.to_sweep(), world.names()
    references = LedgerSweep.references

    def then_somebody_commits(self: LedgerSweep) -> Any:
        found = references(self)
        world.watermarks.set_watermark(JOB, {"n": 1}, why="between the look and the fence")
        return found

    monkeypatch.setattr(LedgerSweep, "references", then_somebody_commits)
    with pytest.raises(StaleError, match="nothing was deleted"):
        opened.sweep(shown)

    assert world.names() == before


def test_nothing_goes_when_an_item_of_another_job_is_damaged(world: World) -> None:
    world.land("1")
    world.run()
    world.run("repairs")
    world.orphan()
    world.age()
    world.watermarks.store.put(items.key("repairs", items.HEAD_KEY) | {"fmt": {"N": "1"}}, if_new=False)

    with pytest.raises(CorruptItemError, match="repairs"):
        world.opened().to_sweep()


def test_error_is_raised_when_the_folder_is_another(world: World, tmp_path: Path) -> None:
    world.land("1")
    world.run()
    other = tmp_path / "other"
    other.mkdir()
    (other / ("e" * 32 + ".parquet")).write_bytes(b"rows of jobs of another table")
    os.utime(other / ("e" * 32 + ".parquet"), (0, 0))

    with pytest.raises(LedgerError, match="no job of this table"):
        LedgerSweep(world.watermarks, JOB, f"{other}/").to_sweep()

    assert len(list(other.iterdir())) == 1
