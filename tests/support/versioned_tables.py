"""Delta and Iceberg tables that tests write to, with or without Spark, and how a job reads them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable as DeltaFiles
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from scripts.helpers.tables import DeltaTable, IcebergTable

SCHEMA = pa.schema([("id", pa.int64()), ("kind", pa.string())])


def rows_of(ids: tuple[int, ...]) -> pa.Table:
    """Return one row for each id."""
    return pa.table({"id": list(ids), "kind": [f"k{number}" for number in ids]}, schema=SCHEMA)


class DeltaByHand:
    """A Delta table that `deltalake` writes."""

    def __init__(self, folder: Path, *, anew: bool = True) -> None:
        self.path = f"{folder}/sales"
        self.name = f"file://{self.path}"
        if anew:
            self.make()

    def make(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        DeltaFiles.create(self.path, SCHEMA, configuration={"delta.enableChangeDataFeed": "true"})

    def source(self, **options: Any) -> DeltaTable:
        return DeltaTable(self.path, **options)

    def append(self, *ids: int) -> None:
        write_deltalake(self.path, rows_of(ids), mode="append")

    def delete(self, number: int) -> None:
        self.files.delete(f"id = {number}")

    def overwrite(self, *ids: int) -> None:
        write_deltalake(self.path, rows_of(ids), mode="overwrite")

    def compact(self) -> None:
        self.files.optimize.compact()

    def set_back(self, to: int) -> None:
        self.files.restore(to)

    def expire(self) -> None:
        """Let the log begin at the last version, as Delta's log clean-up does after a checkpoint."""
        self.files.create_checkpoint()
        for file in sorted(Path(self.path, "_delta_log").glob("*.json"))[:-1]:
            file.unlink()

    def vacuum(self) -> None:
        self.files.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    @property
    def files(self) -> DeltaFiles:
        return DeltaFiles(self.path)

    @property
    def newest(self) -> int:
        return self.files.version()

    @property
    def ids(self) -> list[int]:
        return sorted(self.files.to_pyarrow_table()["id"].to_pylist())


class IcebergByHand:
    """An Iceberg table that `pyiceberg` writes."""

    def __init__(self, folder: Path, *, anew: bool = True) -> None:
        self.catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
        self.catalog.create_namespace_if_not_exists("raw")
        self.name = "lake.raw.sales"
        if anew:
            self.make()

    def make(self) -> None:
        if self.catalog.table_exists("raw.sales"):
            self.catalog.drop_table("raw.sales")
        self.catalog.create_table("raw.sales", SCHEMA)

    def source(self, **options: Any) -> IcebergTable:
        return IcebergTable(self.name, catalog=self.catalog, **options)

    def append(self, *ids: int) -> None:
        self.files.append(rows_of(ids))

    def delete(self, number: int) -> None:
        self.files.delete(f"id = {number}")

    def overwrite(self, *ids: int) -> None:
        self.files.overwrite(rows_of(ids))

    def set_back(self, to: int) -> None:
        self.files.manage_snapshots().rollback_to_snapshot(to).commit()

    def expire(self) -> None:
        """Expire all snapshots except the current one."""
        files = self.files
        old = [snapshot.snapshot_id for snapshot in files.snapshots() if snapshot.snapshot_id != self.newest]
        files.maintenance.expire_snapshots().by_ids(old).commit()

    @property
    def files(self) -> Any:
        return self.catalog.load_table("raw.sales")

    @property
    def newest(self) -> int:
        return int(self.files.current_snapshot().snapshot_id)

    @property
    def ids(self) -> list[int]:
        return sorted(self.files.scan().to_arrow()["id"].to_pylist())
