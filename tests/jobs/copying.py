"""Jobs that copy growing sources until they are killed: ``python -m tests.jobs.copying SETTINGS``, SETTINGS as JSON.

Spark reads the ids of a PostgreSQL table. Partitions of files and commits of Delta and Iceberg are read without Spark.
Each append and each merge has its own target. Each line of output says what a job has just done.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
from deltalake import DeltaTable as DeltaFiles

from benchmarks.local_spark import local_spark
from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import RunInProgressError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks import DatabaseSink, DeltaSink
from scripts.helpers.watermarks import Watermarks
from tests.support.components import find_jdbc_jars
from tests.support.patience import PATIENCE
from tests.support.versioned_tables import DeltaByHand, IcebergByHand

LEASE = timedelta(seconds=2)
"""The lease of a killed run. The next run waits until it expires."""
DELAY = timedelta(milliseconds=100)
"""How long a run waits for open transactions."""
DAY = "import_date"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """Where the sources and targets are: a folder and, for ids, a database server and two of its tables."""

    folder: str
    watermarks: str
    endpoint: str
    jobs: list[str]
    url: str = ""
    login: dict[str, str] | None = None
    source: str = ""
    merged: str = ""

    def as_text(self) -> str:
        return json.dumps(asdict(self))


class Copies:
    """The jobs, one method for each. Only `ids` needs Spark."""

    def __init__(self, settings: Settings, spark: Any = None) -> None:
        self.settings, self.folder, self.spark = settings, Path(settings.folder), spark
        is_file = settings.watermarks.startswith("sqlite:")
        self.watermarks = Watermarks(settings.watermarks, endpoint_url=None if is_file else settings.endpoint)

    def run(self, name: str, say: Say) -> None:
        """Run a job once, as soon as the lease of an earlier run no longer blocks it."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                with IncrementalJob(self.watermarks, name, spark=self.spark, lease=LEASE) as job:
                    getattr(self, name)(job, say)
                say(f"{name} committed")
                return
            except RunInProgressError:
                assert time.monotonic() < end
                time.sleep(0.05)

    def ids(self, job: IncrementalJob, say: Say) -> None:
        url, login = self.settings.url, self.settings.login
        source = JdbcTable(self.spark, url, self.settings.source, properties=login)
        rows = job.rows_since(source, "id", delay=DELAY)
        job.freeze()
        say("ids planned")
        job.write(rows, f"{self.folder}/ids")
        say("ids appended")
        sink = DatabaseSink(self.settings.merged, spark=self.spark, url=url, properties=login)
        job.merge(rows, sink, keys="id", sequence_by="note")
        say("ids merged")

    def partitions(self, job: IncrementalJob, say: Say) -> None:
        new = job.new_partitions(f"{self.folder}/lake", DAY)
        job.freeze()
        say("partitions planned")
        frames = [partition.files.read_pandas("json") for partition in new.partitions]
        if frames:
            target = DeltaSink(f"{self.folder}/partitions")
            job.merge(pd.concat(frames, ignore_index=True), target, keys="id", sequence_by="version")
        say("partitions merged")

    def delta(self, job: IncrementalJob, say: Say) -> None:
        rows = job.rows_since(DeltaByHand(self.folder, anew=False).source(), changes="feed")
        job.freeze()
        say("delta planned")
        job.merge(
            rows, DeltaSink(f"{self.folder}/delta"), keys="id", sequence_by=["_commit_version", "_change_order"],
            deletes=lambda rows: rows["_change_order"] == 0,
        )  # fmt: skip
        say("delta merged")

    def iceberg(self, job: IncrementalJob, say: Say) -> None:
        rows = job.rows_since(IcebergByHand(self.folder, anew=False).source())
        job.freeze()
        say("iceberg planned")
        job.write(rows, f"{self.folder}/iceberg")
        say("iceberg appended")


def merged_rows(folder: Path, name: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return the rows of a Delta target, sorted."""
    found = DeltaFiles(f"{folder}/{name}").to_pyarrow_table().to_pylist()
    return sorted(tuple(row[column] for column in columns) for row in found)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(text: str) -> None:
    """Run the jobs in turn until the process is killed."""
    settings = Settings(**json.loads(text))
    spark = None
    if "ids" in settings.jobs:
        jars = ",".join(str(path) for _, path in find_jdbc_jars())
        spark = local_spark("1g", {"spark.jars": jars, "spark.sql.shuffle.partitions": "1"})
    copies = Copies(settings, spark)
    while True:
        for name in settings.jobs:
            copies.run(name, say)


if __name__ == "__main__":
    main(sys.argv[1])
