"""A job on a cluster that runs a slow task a second time beside the first attempt (`spark.speculation`).

    python -m tests.sinks.speculated STORE SOURCE TARGET URL TABLE LOGIN MARKS MASTER

It reads new files, and writes their rows as Parquet and to a database table. Each attempt at the task with row 0 leaves
a file in the folder MARKS, and waits in the middle of its rows until another attempt has begun.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from scripts.demo.local_s3 import in_place, short_lived
from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks import DatabaseSink
from scripts.helpers.watermarks import Watermarks
from tests.support.components import find_jdbc_jars
from tests.support.patience import PATIENCE

SETTINGS = {
    "spark.speculation": "true", "spark.speculation.interval": "50ms", "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.25", "spark.speculation.minTaskRuntime": "200ms", "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": short_lived(), "spark.sql.files.openCostInBytes": "134217728",
}  # fmt: skip
"""The last one makes a task of each file."""


def slow(marks: str, sink: str) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """Return a function that passes rows on; attempts with row 0 wait until two have begun, the first one longer."""

    def passed(batches: Iterable[Any]) -> Iterable[Any]:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            half = len(batch) // 2
            yield batch[:half]
            if 0 in set(batch["id"]):
                attempt = context.attemptNumber()
                Path(marks, f"{sink}-{attempt}").touch()
                end = time.monotonic() + PATIENCE
                # Spark ends the first attempt, which may begin late, as soon as the second one is done.
                while len(list(Path(marks).glob(f"{sink}-*"))) < 2 and time.monotonic() < end:
                    time.sleep(0.05)
                time.sleep(0 if attempt else 1)
            yield batch[half:]

    return passed


if __name__ == "__main__":
    store, source, target, url, table, login, marks, master = sys.argv[1:]
    builder = SparkSession.builder.master(master)
    # Executors import this module from the directory of the driver.
    more = {"spark.executorEnv.PYTHONPATH": os.getcwd(), "spark.jars": in_place([jar for _, jar in find_jdbc_jars()])}
    for name, value in {**SETTINGS, **more}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    watermarks = Watermarks(store)
    watermarks.create_table()
    with IncrementalJob(watermarks, "slow", "jr_1", spark=spark) as job:
        read = job.new_files(source, transformation_ctx="files").read(spark, "json", schema="id BIGINT")
        sink = DatabaseSink(table, spark=spark, url=url, properties=json.loads(login))
        written = [
            job.write(read.mapInPandas(slow(marks, "files"), read.schema), target),
            job.write(read.mapInPandas(slow(marks, "table"), read.schema), sink),
        ]
    sys.stdout.write(f"written={written}\n")
