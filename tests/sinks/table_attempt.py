"""One attempt at a batch for a Delta or Iceberg table, without Spark, in a process of its own.

    python -m tests.sinks.table_attempt TABLE ENDPOINT FORMAT FOLDER RUN_ID NAME GATE DEATH

It writes ten rows with the name of the attempt. While the folder GATE exists, it waits when half of their file is on
disk, after it has made the file ``inside`` in GATE. The attempt kills itself where it would call the method DEATH of
its sink, such as ``clear``.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

import pandas as pd
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks import DeltaSink, IcebergSink
from scripts.helpers.sinks.places import LocalPlace
from scripts.helpers.sinks.sink import Sink
from scripts.helpers.watermarks import Watermarks
from tests.sinks.processes import wait_at

ROWS = 10
LEASE = timedelta(seconds=3)


def catalog_of(folder: Path) -> SqlCatalog:
    return SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")


def sink_of(format: str, folder: Path) -> Sink:
    if format == "delta":
        return DeltaSink(str(folder / "repairs"))
    catalog = catalog_of(folder)
    catalog.create_namespace_if_not_exists("raw")
    return IcebergSink("lake.raw.repairs", catalog=catalog)


def rows_of(format: str, folder: Path) -> list[tuple[int, str]]:
    """Return the id and attempt of each row that a reader of the table sees."""
    if format == "delta":
        found = DeltaTable(str(folder / "repairs")).to_pyarrow_table()
    else:
        found = catalog_of(folder).load_table("raw.repairs").scan().to_arrow()
    return sorted((row["id"], row["attempt"]) for row in found.to_pylist())


def attempt(watermarks: Watermarks, sink: Sink, run_id: str, name: str) -> str:
    """Read the new rows and write them; return the outcome of the commit."""
    frame = pd.DataFrame({"id": range(ROWS), "attempt": name})
    with IncrementalJob(watermarks, "repairs", run_id, lease=LEASE) as job:
        job.write(job.rows_since(frame, "id"), sink)
        return job.commit()


def wait_in_mid_write(gate: Path) -> None:
    """Make each write of rows wait after the first half of the file."""
    whole = LocalPlace.write

    def write(place: LocalPlace, name: str, data: bytes | BinaryIO) -> None:
        if gate.is_dir() and name.endswith(".parquet"):
            data = data if isinstance(data, bytes) else data.read()
            whole(place, f"{name}.half", data[: len(data) // 2])
            wait_at(gate)
            place.delete([f"{name}.half"])
        whole(place, name, data)

    LocalPlace.write = write  # type: ignore[method-assign, assignment]


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(table: str, endpoint: str, format: str, folder: str, run_id: str, name: str, gate: str, death: str) -> None:
    wait_in_mid_write(Path(gate))
    sink = sink_of(format, Path(folder))
    if death:
        setattr(sink, death, die)
    outcome = attempt(Watermarks(table, endpoint_url=endpoint), sink, run_id, name)
    sys.stdout.write(f"outcome={outcome}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
