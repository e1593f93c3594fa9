"""A batch without rows leaves nothing at its target, and makes its version all the same."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks.database import DatabaseSink
from scripts.helpers.sinks.delta import DeltaSink
from scripts.helpers.sinks.files import FileSink
from scripts.helpers.sinks.iceberg import IcebergSink
from scripts.helpers.watermarks import Watermarks

Target = tuple[Callable[[], Any], Callable[[], Any]]
"""What makes a sink, and what tells all that is at its target."""


def files(folder: Path) -> Target:
    return lambda: FileSink(str(folder / "t")), lambda: sorted(path.name for path in (folder / "t").rglob("*"))


def delta(folder: Path) -> Target:
    return lambda: DeltaSink(str(folder / "t")), lambda: sorted(path.name for path in (folder / "t").rglob("*"))


def iceberg(folder: Path) -> Target:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("raw")

    def snapshots() -> Any:
        return [found.snapshot_id for found in catalog.load_table("raw.t").snapshots()]

    return lambda: IcebergSink("lake.raw.t", catalog=catalog), snapshots


def database(folder: Path) -> Target:
    path = folder / "t.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (id integer)")

    def contents() -> Any:
        with sqlite3.connect(path) as db:
            tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            return {name: db.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone() for (name,) in tables}

    return lambda: DatabaseSink("t", connect=lambda: sqlite3.connect(path), name="shop"), contents


@pytest.mark.parametrize("kind", [files, delta, iceberg, database])
def test_nothing_is_added_and_versions_are_made_when_batches_are_empty(
    watermarks: Watermarks, tmp_path: Path, kind: Callable[[Path], Target]
) -> None:
    make, contents = kind(tmp_path)

    def run(number: int, last: int) -> None:
        with IncrementalJob(watermarks, "parking", f"jr_{number}") as job:
            job.write(job.rows_since(pd.DataFrame({"id": range(1, last + 1)}), "id"), make())

    run(1, 2)
    before = contents()
    for number in range(2, 6):
        run(number, 2)

    assert contents() == before
    assert watermarks.latest("parking").version == 5
    run(6, 3)
    assert contents() != before
    assert watermarks.latest("parking").unpublished == ()
    assert watermarks.doctor("parking") == []


def test_nothing_is_made_when_the_first_batch_is_empty(watermarks: Watermarks, tmp_path: Path) -> None:
    with IncrementalJob(watermarks, "parking", "jr_1") as job:
        job.write(job.rows_since(pd.DataFrame({"id": [1]}).iloc[:0], "id"), str(tmp_path / "t"))

    assert not (tmp_path / "t").exists()
    assert list(tmp_path.rglob("*.parquet")) == []
