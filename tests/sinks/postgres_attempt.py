"""One attempt at a batch for a PostgreSQL table, without Spark, in a process of its own.

    python -m tests.sinks.postgres_attempt TABLE ENDPOINT PORT TARGET RUN_ID NAME WHERE GATE

It writes ten rows with the name of the attempt. While the folder GATE exists, it waits at WHERE, after it has made
the file ``inside`` in GATE::

    landing       half of the rows are sent, in a transaction
    landed        all of them are, and none is in the staging table yet
    staged        before the commit
    committed     before the transaction that publishes
    publishing    before the end of that transaction
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import psycopg

from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.outputs import Output
from scripts.helpers.rows.sql import SQL
from scripts.helpers.sinks import DatabaseSink
from scripts.helpers.sinks.database import DriverSession
from scripts.helpers.watermarks import Watermarks
from tests.sinks.processes import wait_at

JOB = "repairs"
ROWS = 10
LEASE = timedelta(seconds=3)


def sink_of(port: int, target: str, gate: Path | None = None, where: str = "") -> DatabaseSink:
    connect = partial(psycopg.connect, host="127.0.0.1", port=port, user="postgres", dbname="postgres")
    if gate is None:
        return DatabaseSink(target, connect=connect, name="shop")
    return Stopping(target, connect=connect, name="shop").at(where, gate)


class Stopping(DatabaseSink):
    """A sink that waits at one of the points above."""

    def at(self, where: str, gate: Path) -> Stopping:
        self.where, self.gate = where, gate
        if where == "landing":
            DriverSession.insert = by_halves(gate)  # type: ignore[method-assign]
        access = self._log.access
        fill = access.fill

        def filled(*given: Any) -> None:
            fill(*given)
            self.wait("landed")

        access.fill = filled  # type: ignore[method-assign, assignment]
        return self

    def wait(self, where: str) -> None:
        if where == self.where:
            wait_at(self.gate)

    def stage(self, *given: Any, **named: Any) -> Output:
        output = super().stage(*given, **named)
        self.wait("staged")
        return output

    def publish(self, output: Output) -> None:
        self.wait("committed")
        commit = DriverSession.commit

        def at_the_end(session: DriverSession) -> None:
            self.wait("publishing")
            commit(session)

        DriverSession.commit = at_the_end  # type: ignore[method-assign, assignment]
        super().publish(output)


def by_halves(gate: Path) -> Any:
    """Return an `insert` that waits after half of the rows."""
    insert = DriverSession.insert

    def inserted(session: DriverSession, statement: SQL, rows: Sequence[Sequence[Any]]) -> None:
        half = len(rows) // 2
        insert(session, statement, rows[:half])
        wait_at(gate)
        insert(session, statement, rows[half:])

    return inserted


def attempt(watermarks: Watermarks, sink: DatabaseSink, run_id: str, name: str) -> str:
    """Read the new rows and write them; return the outcome of the commit."""
    frame = pd.DataFrame({"id": range(ROWS), "attempt": name})
    with IncrementalJob(watermarks, JOB, run_id, lease=LEASE) as job:
        job.write(job.rows_since(frame, "id"), sink)
        return job.commit()


def main(table: str, endpoint: str, port: str, target: str, run_id: str, name: str, where: str, gate: str) -> None:
    sink = sink_of(int(port), target, Path(gate), where)
    outcome = attempt(Watermarks(table, endpoint_url=endpoint), sink, run_id, name)
    sys.stdout.write(f"outcome={outcome}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
