"""What the doctor finds at a job's targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.batch.leftovers import examine_targets, publish_waiting
from scripts.helpers.errors import RunInProgressError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks import Sink
from scripts.helpers.sinks.files import FileSink
from scripts.helpers.sinks.outputs import final_name
from scripts.helpers.watermarks import Watermarks
from tests.sinks.directory_copy import JOB, DirectoryCopy
from tests.sinks.shops import Shop
from tests.support.outputs import output_of_run
from tests.support.staging import staged_by
from tests.support.steps import KilledError

WHY: Any = {"why": "a test"}


@pytest.fixture
def world(watermarks: Watermarks, tmp_path: Path) -> DirectoryCopy:
    world = DirectoryCopy(watermarks, tmp_path)
    world.source = []
    world.run_with(1)
    return world


def found(world: DirectoryCopy, **options: Any) -> list[tuple[str, str, bool]]:
    findings = examine_targets(world.watermarks, JOB, **options)
    return [(one.kind, one.detail.replace(str(world.target.parent), ""), one.repaired) for one in findings]


def staged(world: DirectoryCopy) -> list[str]:
    return [name for name in world.staged if name.endswith(".parquet")]


def leave_staged(world: DirectoryCopy, row: int, *, released: bool = False) -> None:
    """Leave an attempt as if its process was killed after staging; its lease runs on, unless it is `released`."""
    job = world.job(f"jr_{row}").__enter__()
    world.source = [row]
    world.stage(job)
    if released:
        job.run.abort()


def test_nothing_is_found_when_all_is_published(world: DirectoryCopy) -> None:
    world.run_with(2)

    assert found(world) == []


def test_leftover_is_named_when_its_attempt_died_and_nobody_is_at_work(world: DirectoryCopy) -> None:
    leave_staged(world, 2, released=True)

    ((kind, detail, repaired),) = found(world)

    assert (kind, repaired, len(staged(world))) == ("staged leftover", False, 1)
    assert " for file:///raw: 1 file in file:///_raw.staging/" in detail


def test_leftover_is_deleted_when_a_repair_was_asked_for(world: DirectoryCopy) -> None:
    leave_staged(world, 2, released=True)

    ((kind, _, repaired),) = found(world, repair=True)

    assert (kind, repaired, staged(world), found(world)) == ("staged leftover", True, [], [])


def test_folder_of_an_attempt_at_work_is_left_alone_when_repaired(world: DirectoryCopy) -> None:
    leave_staged(world, 2)

    assert (found(world, repair=True), len(staged(world))) == ([], 1)


def test_leftover_stays_when_the_job_changes_while_it_is_looked_at(
    world: DirectoryCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_staged(world, 2, released=True)
    folders = FileSink.staged

    def meanwhile(sink: FileSink, job: str) -> list[str]:
        world.watermarks.begin(JOB, "jr_3")
        return folders(sink, job)

    monkeypatch.setattr(FileSink, "staged", meanwhile)

    ((kind, _, repaired),) = found(world, repair=True)

    assert (kind, repaired, len(staged(world))) == ("staged leftover", False, 1)


def test_files_of_a_run_that_saves_nothing_are_named_and_left_when_repaired(world: DirectoryCopy) -> None:
    """Such a run takes no lease, so the doctor cannot know whether it is still running."""
    world.source = [2]
    job = IncrementalJob(world.watermarks, JOB, "jr_2", mode="pause").__enter__()
    world.stage(job)

    ((kind, detail, repaired),) = found(world, repair=True)
    job.__exit__(None, None, None)

    assert (kind, "/pause-jr_2-" in detail, repaired) == ("staged leftover", True, False)
    assert (found(world), world.seen) == ([], [1, 2])


def test_winner_is_no_leftover_when_it_waits_to_be_published(
    world: DirectoryCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise KilledError

    monkeypatch.setattr(FileSink, "publish", die)
    with pytest.raises(KilledError):
        world.run_with(2)

    assert (found(world, repair=True), len(staged(world))) == ([], 1)


def test_files_are_named_when_no_version_has_written_them(world: DirectoryCopy) -> None:
    for number in range(4):
        pd.DataFrame({"id": [80]}).to_parquet(world.target / f"by-hand-{number}.parquet")
    (world.target / "_SUCCESS").touch()

    assert found(world) == [
        (
            "unexplained files",
            "by-hand-0.parquet, by-hand-1.parquet, by-hand-2.parquet and 1 more at file:///raw",
            False,
        )
    ]


def test_files_of_others_are_no_finding_when_the_job_writes_beside_them(world: DirectoryCopy) -> None:
    pd.DataFrame({"id": [80]}).to_parquet(world.target / "by-hand.parquet")
    world.run_with(2, beside_others=True)

    assert found(world) == []


def test_files_of_another_job_are_no_finding_when_both_write_to_one_target(world: DirectoryCopy) -> None:
    with IncrementalJob(world.watermarks, "parking", "jr_1") as other:
        other.write(other.rows_since(pd.DataFrame({"id": [70]}), "id"), str(world.target))

    assert found(world) == []


def test_files_are_named_when_the_table_came_back_from_before_they_were_committed(world: DirectoryCopy) -> None:
    (entry,) = world.watermarks.history(JOB)
    later = final_name(replace(entry.change.outputs[0], version=7), 0, "part.parquet")
    pd.DataFrame({"id": [7]}).to_parquet(world.target / later)
    world.watermarks.decisions.restore(JOB, {}, **WHY)

    assert found(world) == [("unexplained files", f"{later} at file:///raw", False)]


def test_retraction_is_told_while_a_run_has_to_look_after_it(world: DirectoryCopy) -> None:
    world.watermarks.reset(JOB, retract=True, **WHY)

    assert found(world) == [("retraction", "output of versions 1 to 1 at file:///raw", False)]


def test_target_is_named_when_it_cannot_be_looked_at_from_here(watermarks: Watermarks) -> None:
    run = watermarks.begin(JOB, "jr_1")
    run.freeze({"rows": {}}, {"rows": {}})
    run.commit((output_of_run(run, "hdfs://lake/raw", staging="hdfs://lake/_raw.staging"),))

    ((kind, detail, _),) = [(one.kind, one.detail, one.remedy) for one in examine_targets(watermarks, JOB)]

    assert kind == "target not seen"
    assert detail.startswith("hdfs://lake/raw: ")


def test_nothing_is_found_when_the_job_has_no_head(watermarks: Watermarks) -> None:
    assert examine_targets(watermarks, "never-run") == []


# --- publishing what waits --------------------------------------------------------------------------


def die_after_the_commit(world: DirectoryCopy, row: int) -> None:
    def die(*_: Any) -> None:
        raise KilledError

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(FileSink, "publish", die)
        world.run_with(row)


def published(world: DirectoryCopy, **options: Any) -> list[tuple[str, bool]]:
    findings = publish_waiting(world.watermarks, JOB, **options)
    return [(one.detail.replace(str(world.target.parent), ""), one.repaired) for one in findings]


def test_batch_that_waits_is_published_and_the_job_is_as_it_was_when_it_is_ordered(world: DirectoryCopy) -> None:
    die_after_the_commit(world, 2)

    found = published(world)

    head = world.watermarks.latest(JOB)
    assert (found, world.seen, staged(world)) == ([("version 2 for file:///raw", True)], [1, 2], [])
    # Publishing alone does not count as a run: a run without a commit would be reported as failed.
    assert (head.version, head.claim, head.unpublished, head.begun) == (2, None, (), 0)
    assert published(world) == []


def test_open_plan_stays_when_what_waits_is_published(world: DirectoryCopy) -> None:
    die_after_the_commit(world, 2)
    world.watermarks.begin(JOB, "jr_3").freeze({"rows": {}}, {"rows": {}})
    world.watermarks.release(JOB, **WHY)

    found = published(world)

    head = world.watermarks.latest(JOB)
    assert (found, head.plan is not None, head.claim) == ([("version 2 for file:///raw", True)], True, None)


def test_nothing_is_published_when_a_run_is_at_work(world: DirectoryCopy) -> None:
    die_after_the_commit(world, 2)
    world.watermarks.begin(JOB, "jr_3")

    with pytest.raises(RunInProgressError, match="'jr_3'"):
        published(world)

    assert (world.seen, len(staged(world))) == ([1], 1)


def test_nothing_is_published_when_the_job_has_no_head(watermarks: Watermarks) -> None:
    assert publish_waiting(watermarks, JOB) == []


class Waiting(Shop):
    """A database with versions of a job that were staged and committed, but not published."""

    def __init__(self, watermarks: Watermarks, path: Path) -> None:
        super().__init__(path, "repairs", "parts")
        self.watermarks = watermarks

    def commit(self, table: str, row: int) -> None:
        run = self.watermarks.begin(JOB, f"jr_{row}")
        run.freeze({"rows": {"high": row}}, {"rows": {"value": row}})
        run.commit((staged_by(self.sink(table), run.batch_id, run.fence, pd.DataFrame({"id": [row]})),))

    def publish(self, sinks: Sequence[Sink] = ()) -> list[tuple[str, bool]]:
        self.found = publish_waiting(self.watermarks, JOB, sinks=sinks)
        return [(one.detail.partition(":")[0], one.repaired) for one in self.found]

    @property
    def rows(self) -> list[tuple[str, int]]:
        return self.sql("SELECT 'repairs', id FROM repairs UNION ALL SELECT 'parts', id FROM parts")


@pytest.fixture
def shop(watermarks: Watermarks, tmp_path: Path) -> Waiting:
    return Waiting(watermarks, tmp_path / "shop.db")


def test_call_is_named_when_only_the_script_reaches_the_target_of_a_batch_that_waits(shop: Waiting) -> None:
    shop.commit("repairs", 1)

    found = shop.publish()

    assert (found, shop.rows) == ([("version 1 for database", False)], [])
    assert "publish_waiting(watermarks, 'repairs', sinks=[its sink], spark=spark)" in shop.found[0].remedy


def test_batch_that_waits_is_published_when_the_sink_of_its_database_is_given(shop: Waiting) -> None:
    shop.commit("repairs", 1)

    found = shop.publish([shop.sink("main.repairs")])

    assert (found, shop.rows) == ([("version 1 for database", True)], [("repairs", 1)])
    assert shop.watermarks.latest(JOB).unpublished == ()


def test_later_batches_of_a_target_wait_and_those_of_others_do_not_when_it_refuses_one(shop: Waiting) -> None:
    for table, row in (("repairs", 1), ("parts", 2), ("repairs", 3)):
        shop.commit(table, row)
    shop.sql("CREATE UNIQUE INDEX one ON repairs (id)")
    shop.sql("INSERT INTO repairs VALUES (1)")

    found = shop.publish([shop.sink("repairs"), shop.sink("parts")])
    refused, why = shop.rows, [one.remedy for one in shop.found if not one.repaired]
    shop.sql("DELETE FROM repairs")
    again = shop.publish([shop.sink("repairs"), shop.sink("parts")])

    assert [repaired for _, repaired in found] == [False, True, False]
    assert all("a constraint of the table is violated" in remedy for remedy in why)
    assert (refused, [repaired for _, repaired in again]) == ([("repairs", 1), ("parts", 2)], [True, True])
    assert sorted(shop.rows) == [("parts", 2), ("repairs", 1), ("repairs", 3)]
