"""The demo on four days of each month, with one Spark session for all runs that end by themselves.

The run that is killed stays a process of its own, as every run is in the whole demo.
"""

from __future__ import annotations

import io
import logging
import subprocess
import threading
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import scripts.demo.__main__ as demo
from scripts.demo import dataset
from scripts.jobs import ingest_files, ingest_table

DAYS = [1, 2, 3, 17]
"""The file of January 17th arrives late."""
JOBS = {demo.FLIGHTS: ingest_files, demo.WEATHER: ingest_table}


def with_few_days() -> None:
    """Let the demo read only `DAYS`."""

    def of_days(read: Callable[[], pa.Table]) -> Callable[[], pa.Table]:
        def read_days() -> pa.Table:
            rows = read()
            return rows.filter(pc.is_in(rows["day"], pa.array(DAYS, pa.int64())))

        return read_days

    dataset.flights, dataset.weather = of_days(dataset.flights), of_days(dataset.weather)


def with_one_spark() -> None:
    """Run the jobs that are not killed in this process, one at a time: starting a JVM is most of a run's cost."""
    one_at_a_time = threading.Lock()

    def finished(self: Any, job: str) -> subprocess.CompletedProcess[str]:
        output, log = io.StringIO(), io.StringIO()
        arguments = self.command(job)[3:]
        with one_at_a_time, redirect_stdout(output), redirect_stderr(log):
            logging.getLogger().handlers.clear()
            code = JOBS[job].main(arguments)
        return subprocess.CompletedProcess(arguments, code, output.getvalue(), log.getvalue())

    demo.Demo.finished = finished  # type: ignore[method-assign]


if __name__ == "__main__":
    with_few_days()
    with_one_spark()
    demo.main()
