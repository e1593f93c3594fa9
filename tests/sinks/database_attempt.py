"""A run that is killed right after its commit: ``python -m tests.sinks.database_attempt TABLE FILE``.

It writes three rows to the table ``repairs`` of the SQLite database FILE.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from typing import Any

import pandas as pd

from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks import DatabaseSink
from scripts.helpers.watermarks import Watermarks

JOB = "repairs"


class Killed(DatabaseSink):
    """A sink whose process is killed when it would publish."""

    def publish(self, output: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def main(table: str, path: str) -> None:
    sink = Killed("repairs", connect=lambda: sqlite3.connect(path), name="shop")
    with IncrementalJob(Watermarks(table), JOB, "jr_1") as job:
        job.write(job.rows_since(pd.DataFrame({"id": [1, 2, 3]}), "id"), sink)


if __name__ == "__main__":
    main(*sys.argv[1:])
