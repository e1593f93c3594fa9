"""One attempt at a batch, in a process of its own.

    python -m tests.sinks.attempt TABLE ENDPOINT TARGET RUN_ID GATE [MASTER [FORMAT WAREHOUSE [DEATH]]]

It writes 100 rows with Spark. While the folder GATE exists, its tasks wait in the middle of the rows, and write the
process id of their executor to the file ``inside`` in GATE. The attempt kills itself where it would call the method
DEATH of a table's sink, such as ``clear``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from scripts.demo.local_s3 import find_jars, in_place, short_lived, spark_conf
from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks import DeltaSink, IcebergSink
from scripts.helpers.watermarks import Watermarks
from tests.support import maven_jars
from tests.support.patience import PATIENCE
from tests.support.table_formats import catalog_conf, start_conf

ROWS = 100
LEASE = timedelta(seconds=3)


def say_inside(gate: Path) -> None:
    """Write the pid of the executor that runs this task: the parent of the daemon that starts its Python workers."""
    daemon = os.getppid()
    executor = Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1]
    unfinished = gate.parent / f"inside-{os.getpid()}"
    unfinished.write_text(executor)
    # The gate may have been opened in the meantime.
    with suppress(FileNotFoundError):
        unfinished.rename(gate / "inside")


def held(gate: str) -> Any:
    """Return a function that passes rows on, and waits in the middle of them while the folder `gate` exists."""

    def passed(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if Path(gate).is_dir():
                say_inside(Path(gate))
            end = time.monotonic() + PATIENCE
            while Path(gate).is_dir() and time.monotonic() < end:
                time.sleep(0.05)

    return passed


def attempt(
    spark: SparkSession, watermarks: Watermarks, target: str, run_id: str, gate: str, format: str = "parquet"
) -> str:
    """Read the new rows and write them; return the outcome of the commit."""
    with IncrementalJob(watermarks, "repairs", run_id, spark=spark, lease=LEASE) as job:
        rows = job.rows_since(spark.range(0, ROWS, 1, 4), "id")
        job.write(rows.mapInPandas(held(gate), rows.schema), target, format=format)
        return job.commit()


if __name__ == "__main__":
    table, endpoint, target, run_id, gate, *more = sys.argv[1:]
    master, kind, warehouse, death = [*more, *("local[2]", "parquet", "", "")[len(more) :]]
    if death:
        setattr(DeltaSink if kind == "delta" else IcebergSink, death, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    # The tasks of a cluster import this module from the directory of the driver.
    on_cluster = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1",
                  "spark.executorEnv.PYTHONPATH": os.getcwd(),
                  "spark.executor.extraJavaOptions": short_lived()}  # fmt: skip
    settings = spark_conf(endpoint) | on_cluster
    if warehouse:
        settings |= start_conf() | catalog_conf(warehouse)
        settings["spark.jars"] = in_place([*find_jars(), *maven_jars.jars().paths])
    for name, value in settings.items():
        builder = builder.config(name, value)
    outcome = attempt(builder.getOrCreate(), Watermarks(table, endpoint_url=endpoint), target, run_id, gate, kind)
    sys.stdout.write(f"outcome={outcome}\n")
