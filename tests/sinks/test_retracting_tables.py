"""Decisions about jobs whose targets only their script reaches: Iceberg with a catalog of its own, and databases."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks import DatabaseSink, IcebergSink
from scripts.helpers.sinks.outputs import mark_of
from scripts.helpers.sinks.sink import Sink
from scripts.helpers.watermarks import Watermarks
from tests.support.steps import KilledError

JOB = "repairs"
WHY: Any = {"why": "rows of a test were among them"}


class TableCopy:
    """A job that copies ids to a table with a column for their batch."""

    def __init__(self, watermarks: Watermarks, sink: Callable[..., Sink], ids: Callable[[], list[int]]) -> None:
        self.watermarks, self.sink, self._ids = watermarks, sink, ids
        self.source: list[int] = []

    def begin(self, run_id: str) -> IncrementalJob:
        job = IncrementalJob(self.watermarks, JOB, run_id).__enter__()
        job.write(job.rows_since(pd.DataFrame({"id": self.source}), "id"), self.sink(batch_column="batch"))
        return job

    def run(self, *new: int) -> None:
        self.source += new
        self.begin(f"jr_{len(self.source)}-{new}").__exit__(None, None, None)

    @property
    def seen(self) -> Counter[int]:
        return Counter(self._ids())


def iceberg_copy(watermarks: Watermarks, folder: Path) -> TableCopy:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("raw")

    def ids() -> list[int]:
        try:
            found: list[int] = catalog.load_table("raw.repairs").scan().to_arrow()["id"].to_pylist()
        except NoSuchTableError:
            return []
        return found

    return TableCopy(watermarks, lambda **options: IcebergSink("lake.raw.repairs", catalog=catalog, **options), ids)


def database_copy(watermarks: Watermarks, folder: Path) -> TableCopy:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(folder / "shop.db")

    def run(statement: str) -> list[Any]:
        connection = connect()
        found = connection.execute(statement).fetchall()
        connection.commit()
        connection.close()
        return found

    run("CREATE TABLE repairs (id integer, batch text)")
    return TableCopy(
        watermarks,
        lambda **options: DatabaseSink("repairs", connect=connect, name="shop", **options),
        lambda: [row for (row,) in run("SELECT id FROM repairs")],
    )


@pytest.fixture(params=[iceberg_copy, database_copy], ids=["iceberg", "database"])
def world(request: pytest.FixtureRequest, watermarks: Watermarks, tmp_path: Path) -> TableCopy:
    made: TableCopy = request.param(watermarks, tmp_path)
    return made


def test_rows_are_in_the_table_once_when_a_reset_took_them_back(world: TableCopy) -> None:
    for row in (1, 2, 3):
        world.run(row)
    world.watermarks.reset(JOB, retract=True, **WHY)

    job = world.begin("jr_again")
    begun = world.seen
    job.__exit__(None, None, None)
    world.run(4)

    assert (begun, world.seen) == (Counter(), Counter([1, 2, 3, 4]))
    assert world.watermarks.latest(JOB).unpublished == ()
    assert world.sink().staged(mark_of(JOB)) == []


def test_rows_never_come_when_a_batch_is_taken_back_that_nobody_has_published(
    world: TableCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(1)
    with monkeypatch.context() as patch:
        patch.setattr(type(world.sink()), "publish", _die)
        with pytest.raises(KilledError):
            world.run(2)
    world.watermarks.rewind(JOB, to_version=1, retract=True, **WHY)
    world.source = [1, 22]

    world.run()

    assert world.seen == Counter([1, 22])
    assert world.sink().staged(mark_of(JOB)) == []


def test_publisher_that_sleeps_adds_nothing_when_its_batch_is_taken_back_meanwhile(
    world: TableCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(1)
    publish = type(world.sink()).publish
    asleep: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(type(world.sink()), "publish", lambda sink, output: asleep.append((sink, output)) or _die())
        with pytest.raises(KilledError):
            world.run(2)
    world.watermarks.rewind(JOB, to_version=1, retract=True, **WHY)
    world.source = [1, 22]
    job = world.begin("jr_again")

    publish(*asleep[0])
    job.__exit__(None, None, None)

    assert world.seen == Counter([1, 22])


def test_retraction_is_refused_when_rows_have_no_batch(world: TableCopy) -> None:
    with IncrementalJob(world.watermarks, JOB, "jr_1") as job:
        job.write(job.rows_since(pd.DataFrame({"id": [1, 2]}), "id"), world.sink())

    with pytest.raises(InvalidValueError, match="the 2 rows that version 1 left there cannot be taken back"):
        world.watermarks.reset(JOB, retract=True, **WHY)

    assert (world.watermarks.latest(JOB).version, world.seen) == (1, Counter([1, 2]))


def _die(*_: Any) -> None:
    raise KilledError
