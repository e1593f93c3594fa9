"""Two teams whose jobs share a table and write next to each other: what one team can do to the other."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import pytest

from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.names import new_run_id
from scripts.helpers.sinks import DatabaseSink, DeltaSink, FileSink, IcebergSink
from scripts.helpers.sinks.outputs import mark_of
from scripts.helpers.sinks.sink import Sink
from scripts.helpers.watermarks import Watermarks
from tests.support.steps import KilledError
from tests.support.table_items import item_of

PLANTER, VICTIM = "planter", "victim"
Record = Mapping[str, Any]
BATCH = "batch"


class Neighbours:
    """Two jobs that write next to each other; the planter's team alters its job's items to harm the victim.

    Attributes
    ----------
    watermarks
        The table of both jobs.
    source
        The ids in the source of each job.
    """

    kind = ""
    batch_column: str | None = BATCH
    """The column of a table that holds the batch of each row."""

    def __init__(self, watermarks: Watermarks, folder: Path) -> None:
        self.watermarks, self.folder = watermarks, folder
        self.source: dict[str, list[int]] = {PLANTER: [], VICTIM: []}

    def sink(self, job: str) -> Sink:
        """Return the target of a job."""
        raise NotImplementedError

    def rows(self, job: str, column: str = "id") -> list[int]:
        """Return the values of one column that readers see at a job's target."""
        raise NotImplementedError

    def of_others(self) -> dict[str, Any]:
        """Return everything stored except what belongs to the planter."""
        return self._files(lambda name: not name.startswith((f"{PLANTER}/", f"_{PLANTER}.staging/")))

    def run(self, job: str, *new: int, **options: Any) -> None:
        """Add rows to a job's source, run the job, and write the new rows."""
        self.source[job] += new
        with IncrementalJob(self.watermarks, job, new_run_id(), **options) as began:
            rows = began.rows_since(self.frame(self.source[job]), "id")
            began.write(rows, self.sink(job))

    def leave_waiting(self, job: str, *new: int) -> None:
        """Let a job commit and end before its rows are published to readers."""
        with patch.object(type(self.sink(job)), "publish", side_effect=KilledError), pytest.raises(KilledError):
            self.run(job, *new)

    def frame(self, ids: Sequence[int]) -> Any:
        """Return the rows of a source as a frame."""
        return pd.DataFrame({"id": ids})

    def _files(self, is_wanted: Callable[[str], bool]) -> dict[str, Any]:
        names = {path.relative_to(self.folder).as_posix(): path for path in self.folder.rglob("*") if path.is_file()}
        return {name: path.read_bytes() for name, path in names.items() if is_wanted(name)}


class FileNeighbours(Neighbours):
    kind = "files"

    def sink(self, job: str) -> Sink:
        return FileSink(str(self.folder / job))

    def rows(self, job: str, column: str = "id") -> list[int]:
        found = (self.folder / job).rglob("*.parquet")
        return sorted(row for path in found for row in pd.read_parquet(path)[column])


class DeltaNeighbours(Neighbours):
    kind = "delta"

    def sink(self, job: str) -> Sink:
        return DeltaSink(str(self.folder / job), batch_column=self.batch_column)

    def rows(self, job: str, column: str = "id") -> list[int]:
        from deltalake import DeltaTable

        if not (self.folder / job / "_delta_log").exists():
            return []
        return sorted(DeltaTable(str(self.folder / job)).to_pyarrow_table()[column].to_pylist())


class IcebergNeighbours(Neighbours):
    kind = "iceberg"

    def __init__(self, watermarks: Watermarks, folder: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        super().__init__(watermarks, folder)
        self.catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
        self.catalog.create_namespace_if_not_exists("raw")

    def sink(self, job: str) -> Sink:
        return IcebergSink(f"lake.raw.{job}", catalog=self.catalog, batch_column=self.batch_column)

    def rows(self, job: str, column: str = "id") -> list[int]:
        if not self.catalog.table_exists(f"raw.{job}"):
            return []
        return sorted(self.catalog.load_table(f"raw.{job}").scan().to_arrow()[column].to_pylist())

    def of_others(self) -> dict[str, Any]:
        found = self._files(lambda name: f"raw/{PLANTER}/" not in name and f"_{PLANTER}." not in name)
        del found["catalog.db"]
        tables = self.catalog.list_tables("raw")
        others = [name for name in tables if name[-1] != PLANTER]
        return found | {name[-1]: self.catalog.load_table(name).metadata_location for name in others}


class DatabaseNeighbours(Neighbours):
    kind = "sqlite"

    def __init__(self, watermarks: Watermarks, folder: Path, connect: Callable[[], Any] | None = None) -> None:
        super().__init__(watermarks, folder)
        self.connect = connect or (lambda: sqlite3.connect(folder / "shop.db"))
        for job in (PLANTER, VICTIM):
            self.ask(f"CREATE TABLE IF NOT EXISTS {job} (id bigint, {BATCH} varchar(100))")

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows."""
        connection = self.connect()
        try:
            cursor = connection.cursor()
            cursor.execute(statement)
            found = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
            connection.commit()
            return found
        finally:
            connection.close()

    def tables(self) -> list[str]:
        """Return the tables of the database."""
        return [name for (name,) in self.ask("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]

    def sink(self, job: str) -> Sink:
        return DatabaseSink(job, connect=self.connect, name="shop", batch_column=self.batch_column)

    def rows(self, job: str, column: str = "id") -> list[int]:
        return sorted(row for (row,) in self.ask(f"SELECT {column} FROM {job}"))

    def of_others(self) -> dict[str, Any]:
        own = set(self.sink(PLANTER).staged(mark_of(PLANTER))) | {PLANTER}
        found = {name: sorted(self.ask(f"SELECT * FROM {name}"), key=repr) for name in self.tables() if name not in own}
        batches = found.pop("glue_watermarks_batches", [])
        return found | {"batches": [row for row in batches if PLANTER not in row]}


class SparkNeighbours(Neighbours):
    """Two tables that Spark writes."""

    def __init__(self, watermarks: Watermarks, folder: Path, spark: Any) -> None:
        super().__init__(watermarks, folder)
        self.spark = spark

    def frame(self, ids: Sequence[int]) -> Any:
        return self.spark.createDataFrame([(number,) for number in ids], "id long")


class DeltaOnSpark(SparkNeighbours, DeltaNeighbours):
    def sink(self, job: str) -> Sink:
        return DeltaSink(str(self.folder / job), spark=self.spark, batch_column=self.batch_column)


class IcebergOnSpark(SparkNeighbours):
    def __init__(self, watermarks: Watermarks, folder: Path, spark: Any) -> None:
        warehouse = Path(spark.conf.get("spark.sql.catalog.lake.warehouse"))
        super().__init__(watermarks, warehouse / f"n{abs(hash(folder))}", spark)

    def sink(self, job: str) -> Sink:
        return IcebergSink(f"lake.{self.folder.name}.{job}", spark=self.spark, batch_column=self.batch_column)

    def rows(self, job: str, column: str = "id") -> list[int]:
        table = f"lake.{self.folder.name}.{job}"
        self.spark.sql(f"REFRESH TABLE {table}")
        return sorted(row[column] for row in self.spark.table(table).collect())


KINDS = {kind.kind: kind for kind in (FileNeighbours, DeltaNeighbours, IcebergNeighbours, DatabaseNeighbours)}


# --- what is planted --------------------------------------------------------------------------------


def record_of(watermarks: Watermarks, job: str) -> dict[str, Any]:
    """Return the record of what the last run of a job staged, from the job's head."""
    found: dict[str, Any] = json.loads(item_of(watermarks, job)["last"]["M"]["outputs"]["S"])[0]
    return found


def retraction_of(record: Mapping[str, Any], **changed: Any) -> dict[str, Any]:
    """Return a retraction of the record's output, of all versions unless `changed` narrows it."""
    made = {name: record[name] for name in ("sink", "target", "staging", "job", "epoch")}
    made |= {"first": 1, "last": record["version"], "since": "2026-03-16T15:45:00.000000+00:00"}
    if "batch_column" in record.get("options", {}):
        made["batch_column"] = BATCH
    return made | changed


def both(made: Neighbours) -> Neighbours:
    """Let two jobs write two batches each; the victim has a third one that is not published yet."""
    for row in (1, 2):
        made.run(VICTIM, row)
        made.run(PLANTER, row)
    made.leave_waiting(VICTIM, 3)
    return made


def as_theirs(own: Record, theirs: Record) -> Record:
    """Return a record that names the other job's output in all fields."""
    return {**theirs, "version": 1}


def as_own(own: Record, theirs: Record) -> Record:
    """Return a record of the planter's own batch at the other job's target."""
    return {**own, "target": theirs["target"], "staging": theirs["staging"]}


def as_own_of_their_epoch(own: Record, theirs: Record) -> Record:
    """Return a record with the planter's own mark and all other fields of the other job."""
    return {**theirs, "job": own["job"], "version": 1}


def as_own_versions(own: Record, theirs: Record) -> Record:
    """Return a record that is the planter's own except for its target."""
    return {**own, "target": theirs["target"]}


Made = Callable[[Record, Record], Record]
PLANTED: Sequence[Made] = [as_theirs, as_own, as_own_versions, as_own_of_their_epoch]


def folders_of_others(two: Neighbours) -> list[Record]:
    """Return records of the planter's own target with a folder that is not the planter's."""
    alice = two.folder / "home" / "alice"
    alice.mkdir(parents=True)
    (alice / "letter.txt").write_text("dear")
    (alice / "_manifest").write_text('{"letter.txt": 4}')
    own, theirs = record_of(two.watermarks, PLANTER), record_of(two.watermarks, VICTIM)
    home = {**own, "staging": f"file://{two.folder}/home", "folder": "alice"}
    up = {**own, "staging": f"file://{two.folder}/home/none", "folder": "../alice"}
    return [home, up, {**own, "folder": VICTIM}, {**own, "folder": theirs["folder"], "staging": theirs["staging"]}]


def check_that_the_other_one_goes_on(two: Neighbours, before: Mapping[str, Any]) -> None:
    """Check that nothing of the victim has changed, and that its runs read each row once."""
    assert two.of_others() == before
    for row in (4, 5):
        two.run(VICTIM, row)
    assert two.rows(VICTIM) == [1, 2, 3, 4, 5]
    assert two.watermarks.latest(VICTIM).unpublished == ()
