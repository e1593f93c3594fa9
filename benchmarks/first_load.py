"""The first load of a PostgreSQL table to Parquet, compared with ConnectorX, ADBC, dlt and `spark.read.jdbc`.

With Spark (`JdbcTable`) and without (`SqlTable`, compared only with ADBC).

    python -m benchmarks.first_load --rows 1000000 10000000

A private server runs on loopback and on the same two cores. Imports and the start of Spark are not measured: the
session is warm, as in a job that loads many tables. Each round runs all tools one after the other, in a different order
from the previous round. Tools are compared by the median of their ratios within a round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks import charts
from benchmarks.file_steps import Table
from benchmarks.goals import Goal, judge, say
from benchmarks.local_spark import local_spark
from benchmarks.new_files import DLT_PYTHON, step
from benchmarks.overhead import moto_server
from scripts.helpers.databases.sql_table import SqlTable
from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.sources import RowSource
from scripts.helpers.watermarks import Watermarks
from tests.support.components import find_jdbc_jars
from tests.support.databases import PostgresServer

CURSOR = "last_modified"
BESIDE_FASTEST = 1.2
"""Maximum time of our load, as a multiple of that of the fastest other tool."""
BESIDE_ADBC = 1.1
"""Maximum time of our load without Spark, as a multiple of ADBC's."""
OURS, WITHOUT_SPARK, TUNED = "ours", "ours without Spark", "spark.read.jdbc, tuned"
PEERS = {"ConnectorX": "connectorx", "ADBC": "adbc", "dlt with pyarrow": "dlt"}
WARM_ROWS = 6_000_000
"""Rows that Spark loads with each of its two ways before the first round, to warm up."""
PARTS, FETCH_SIZE = 4, 10_000
"""How `spark.read.jdbc` is tuned: two partitions per core, and 10,000 rows per fetch."""


def sql_table(server: PostgresServer, name: str) -> SqlTable:
    """Return a table as our source that needs no Spark."""
    return SqlTable(server.url.removeprefix("jdbc:"), name, properties={"user": server.properties["user"]})


class Loads:
    """The same table, loaded by each tool into an empty folder."""

    def __init__(self, spark: Any, server: PostgresServer, watermarks: Watermarks) -> None:
        self.spark, self.server, self.watermarks = spark, server, watermarks
        self._runs = 0

    def fill(self, rows: int) -> str:
        """Create a table of `rows` rows older than an hour, with indexes on the id and the cursor; return its name."""
        name = f"loaded_{rows}"
        self.server.sql(
            f"CREATE TABLE {name} AS SELECT n AS id, now() - interval '1 hour' - (({rows} - n) * interval '1 second') "
            f"AS {CURSOR}, (n % 1000)::numeric(12, 2) AS amount, md5(n::text) AS reference, "
            f"repeat('x', 40) AS note FROM generate_series(1, {rows}) n",
            f"ALTER TABLE {name} ADD PRIMARY KEY (id)",
            f"CREATE INDEX ON {name} ({CURSOR})",
            f"VACUUM ANALYZE {name}",
        )
        return name

    def ours(self, name: str, folder: str) -> None:
        """Plan, read, stage, commit and publish with a new job."""
        self._load(JdbcTable(self.spark, self.server.url, name, properties=self.server.properties), folder)

    def without_spark(self, name: str, folder: str) -> None:
        """Do the same as `ours` without Spark."""
        self._load(sql_table(self.server, name), folder)

    def _load(self, source: RowSource, folder: str) -> None:
        self._runs += 1
        with IncrementalJob(self.watermarks, f"load-{self._runs}", "jr_1", spark=self.spark) as job:
            job.write(job.rows_since(source, CURSOR), folder)

    def tuned(self, name: str, rows: int, folder: str) -> None:
        """Read by ranges of the id. It is unique, even, and its ends are known, so that no query has to find them."""
        found = self.spark.read.jdbc(
            self.server.url, name, column="id", lowerBound=1, upperBound=rows, numPartitions=PARTS,
            properties=self.server.properties | {"fetchsize": str(FETCH_SIZE), "driver": "org.postgresql.Driver"},
        )  # fmt: skip
        found.write.mode("overwrite").parquet(folder)

    def peer(self, tool: str, name: str, rows: int, folder: str) -> float:
        """Load with another tool in a separate process; return the seconds that the tool's process measures."""
        url = f"postgresql://{self.server.properties['user']}@127.0.0.1:{self.server.port}/postgres"
        found = step("benchmarks.first_load_peer", tool, url, name, str(rows), folder, python=DLT_PYTHON)
        if found["rows"] != rows:
            raise SystemExit(f"{tool} loaded {found['rows']:,} rows of {rows:,}")
        return float(found["seconds"])

    def check(self, rows: int, folder: str) -> None:
        """End the benchmark if the folder does not hold exactly `rows` rows."""
        found = self.spark.read.parquet(folder).count()
        if found != rows:
            raise SystemExit(f"{found:,} rows of {rows:,} were loaded")


def timed(work: Callable[[], None]) -> float:
    """Return how many seconds `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def one_round(at: Loads, name: str, rows: int, tools: list[str]) -> dict[str, float]:
    """Load the table with each tool, in the given order; return the seconds of each."""
    found = {}
    for tool in tools:
        with tempfile.TemporaryDirectory(prefix="load-") as folder:
            target = f"{folder}/out"
            if tool in PEERS:
                os.mkdir(target)
                found[tool] = at.peer(PEERS[tool], name, rows, target)
                continue
            if tool in (OURS, WITHOUT_SPARK):
                load = at.ours if tool == OURS else at.without_spark
                found[tool] = timed(lambda load=load, to=target: load(name, to))  # type: ignore[misc]
            else:
                found[tool] = timed(lambda to=target: at.tuned(name, rows, to))  # type: ignore[misc]
            at.check(rows, target)
    return found


def measure(at: Loads, rows: int, rounds: int) -> list[Goal]:
    """Load a table of `rows` rows with all tools in each round; return the goals."""
    name, tools = at.fill(rows), [OURS, WITHOUT_SPARK, TUNED, *PEERS]
    # Warm up the JVM, which compiles hot code: loads of a million rows get faster until the fifth or sixth, both ways.
    for _ in range(-(-WARM_ROWS // rows)):
        one_round(at, name, rows, [OURS, TUNED])
    found = []
    for number in range(rounds):
        turn = number % len(tools)
        found.append(one_round(at, name, rows, [*tools[turn:], *tools[:turn]]))
        say(f"{rows:>10,} rows: " + ", ".join(f"{tool} {found[-1][tool]:.2f} s" for tool in tools))
    medians = {tool: statistics.median(times[tool] for times in found) for tool in tools}
    charts.bars("first-load", f"First load of {rows:,} rows of PostgreSQL to Parquet", "seconds", {"": medians})
    for tool in (TUNED, *PEERS):
        ratio = statistics.median(times[OURS] / times[tool] for times in found)
        say(f"{rows:>10,} rows: ours takes {ratio:.2f} times as long as {tool}, {medians[tool]:.2f} s")
    fastest = min((TUNED, *PEERS), key=medians.__getitem__)
    beside = statistics.median(times[OURS] / times[fastest] for times in found)
    text = f"first load of {rows:,} rows, seconds beside the fastest, {fastest}"
    alone = statistics.median(times[WITHOUT_SPARK] / times["ADBC"] for times in found)
    without = f"first load of {rows:,} rows without Spark, seconds beside ADBC alone"
    return [Goal(text, beside, BESIDE_FASTEST, more=False), Goal(without, alone, BESIDE_ADBC, more=False)]


def main() -> int:
    """Measure everything, print the results, and return the exit code: 0 if all goals were met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=(1_000_000, 10_000_000))
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    if not os.path.exists(DLT_PYTHON):
        raise SystemExit(f"no dlt at {DLT_PYTHON}. Run make bench-load, or set DLT_PYTHON.")
    os.environ.update(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_DEFAULT_REGION="eu-west-2")
    jars = ",".join(str(path) for _, path in find_jdbc_jars())
    spark = local_spark("4g", {"spark.jars": jars, "spark.sql.session.timeZone": "UTC"})
    with moto_server() as dynamodb:
        watermarks = Table(dynamodb).watermarks
        watermarks.create_table()
        server = PostgresServer()
        try:
            at, goals = Loads(spark, server, watermarks), []
            for rows in given.rows:
                goals += measure(at, rows, given.rounds)
        finally:
            server.stop()
    spark.stop()
    return judge(goals)


if __name__ == "__main__":
    sys.exit(main())
