"""A database table is one target, however a run spells its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.batch.leftovers import examine_targets
from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks import DatabaseSink
from scripts.helpers.watermarks import Watermarks
from tests.support.steps import KilledError
from tests.support.written import Written

JOB = "repairs"
SCHEMAS = {"postgres": "public", "maria": "shop", "sqlite": "main"}
Spelled = Callable[[str, str], "str | list[str]"]
SPELLED = pytest.mark.parametrize(
    "spelled",
    [lambda schema, table: f"{schema}.{table}", lambda schema, table: [schema, table]],
    ids=["schema.table", "parts"],
)


def die(*_: Any) -> None:
    raise KilledError


class Copy:
    """A job that copies ids to a table whose name its runs may spell in several ways."""

    def __init__(self, watermarks: Watermarks, written: Written) -> None:
        self.watermarks, self.written, self.schema = watermarks, written, SCHEMAS[written.kind]
        self.table = written.new_table("id integer, batch varchar(100)")
        self.source: list[int] = []

    def sink(self, table: str | Sequence[str] | None = None, name: str = "shop") -> DatabaseSink:
        return DatabaseSink(table or self.table, connect=self.written.connect, name=name, batch_column="batch")

    def begin(self, run_id: str) -> IncrementalJob:
        return IncrementalJob(self.watermarks, JOB, run_id).__enter__()

    def stage(self, job: IncrementalJob, sink: DatabaseSink) -> None:
        job.write(job.rows_since(pd.DataFrame({"id": self.source}), "id"), sink)

    def run(self, sink: DatabaseSink, *new: int) -> None:
        self.source += new
        with self.begin(f"jr_{len(self.source)}") as job:
            self.stage(job, sink)

    def die(self, sink: DatabaseSink, *new: int) -> None:
        """Let a run die between its commit and its publication."""
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledError):
            patch.setattr(DatabaseSink, "publish", die)
            self.run(sink, *new)

    @property
    def seen(self) -> list[int]:
        return [id_ for (id_,) in self.written.rows(f"SELECT id FROM {self.table} ORDER BY id")]


@pytest.fixture
def world(watermarks: Watermarks, written: Written) -> Copy:
    return Copy(watermarks, written)


@SPELLED
def test_batch_that_waits_is_published_before_the_next_one_when_a_run_spells_its_table_in_another_way(
    world: Copy, spelled: Spelled
) -> None:
    other = world.sink(spelled(world.schema, world.table))
    world.die(world.sink(), 1, 2)
    world.source += [3]

    job = world.begin("jr_other")
    world.stage(job, other)
    before = world.seen
    job.__exit__(None, None, None)

    assert (before, world.seen) == ([1, 2], [1, 2, 3])
    assert world.watermarks.latest(JOB).unpublished == ()


@pytest.mark.parametrize("written", ["sqlite"], indirect=True)
def test_batch_that_waits_is_published_when_the_schema_of_sqlite_is_in_upper_case(world: Copy) -> None:
    world.die(world.sink(), 1)

    world.run(world.sink(f"MAIN.{world.table}"), 2)

    assert world.seen == [1, 2]


@SPELLED
def test_rows_come_once_when_a_run_spells_the_table_of_a_retraction_in_another_way(
    world: Copy, spelled: Spelled
) -> None:
    world.run(world.sink(), 1)
    world.run(world.sink(), 2)
    world.watermarks.rewind(JOB, to_version=1, retract=True, why="2 was wrong")
    world.source = [1, 3]

    world.run(world.sink(spelled(world.schema, world.table)))

    assert world.seen == [1, 3]


def test_loser_publishes_what_the_winner_had_no_time_for_when_they_spell_the_table_in_two_ways(world: Copy) -> None:
    world.source = [1, 2]
    older = world.begin("jr_1")
    world.stage(older, world.sink())
    newer = world.begin("jr_1")
    world.stage(newer, world.sink(f"{world.schema}.{world.table}"))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(DatabaseSink, "publish", die)
        newer.commit()

    older.commit()

    assert world.seen == [1, 2]


def test_nothing_is_found_when_the_doctor_is_given_the_table_in_another_way(world: Copy) -> None:
    world.run(world.sink(), 1)
    world.run(world.sink(f"{world.schema}.{world.table}"), 2)

    found = examine_targets(world.watermarks, JOB, sinks=[world.sink([world.schema, world.table])])

    assert found == []


def test_leftover_is_found_once_when_versions_spell_its_table_in_two_ways(world: Copy) -> None:
    world.run(world.sink(), 1)
    world.run(world.sink(f"{world.schema}.{world.table}"), 2)
    world.source += [3]
    job = world.begin("jr_died")
    world.stage(job, world.sink())
    job.run.abort()

    found = examine_targets(world.watermarks, JOB, sinks=[world.sink()])

    assert [one.kind for one in found] == ["staged leftover"]


def test_batch_waits_when_a_run_writes_to_a_table_of_that_name_in_another_database(world: Copy) -> None:
    world.die(world.sink(), 1)

    world.run(world.sink(name="archive"), 2)

    assert world.seen == [2]
    assert [one.target for one in world.watermarks.latest(JOB).unpublished] == [f"database://shop/{world.table}"]
