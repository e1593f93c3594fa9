"""A thousand changed rows of a PostgreSQL table, its first load, and a window of Parquet by date.

    python -m benchmarks.rows --rows 100000 1000000 5000000

A private server runs on loopback and on the same two cores. This package is compared with a read of all rows that Spark
filters, with a first load by one query, and with dlt's `incremental` on the same table. Results are medians of the
rounds. Spark's session is warm; imports are not measured. DynamoDB is moto, in a separate process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

from benchmarks import charts
from benchmarks.file_steps import Table
from benchmarks.first_load import OURS, WITHOUT_SPARK, sql_table, timed
from benchmarks.goals import Goal, judge, say
from benchmarks.local_spark import local_spark
from benchmarks.new_files import DLT_PYTHON, step
from benchmarks.overhead import moto_server
from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.date_partitions import DatePartitions
from scripts.helpers.rows.spark_frames import DataFrameRows
from scripts.helpers.watermarks import Watermarks
from tests.support.components import find_jdbc_jars
from tests.support.databases import PostgresServer

CHANGED = 1_000
CURSOR = "last_modified"
WITH_DLT = 1_000_000
"""Rows of the table that dlt also loads."""
DLT = {"sqlalchemy": "dlt", "pyarrow": "dlt with pyarrow"}
"""dlt's backends: its default, and a faster one."""
SAME_TIME, BESIDE_ALL, PARALLEL, BESIDE_DLT, SMALL_BESIDE_DLT, WITHOUT_BESIDE_DLT = 1.5, 50.0, 1.5, 5.0, 1.0, 2.0
DAYS, ROWS_A_DAY = 100, 50_000
FIRST_DAY = datetime(2026, 1, 1, tzinfo=timezone.utc)


def start_spark() -> Any:
    """Start Spark with the JDBC driver of PostgreSQL."""
    jars = ",".join(str(path) for _, path in find_jdbc_jars())
    return local_spark("4g", {"spark.jars": jars, "spark.sql.session.timeZone": "UTC"})


def consume(rows: Any, _: object = None) -> None:
    """Read all columns of all rows, and discard them."""
    rows.write.format("noop").mode("overwrite").save()


class Bench:
    """Tables of a server, with methods that change them and run jobs on them."""

    def __init__(self, spark: Any, server: PostgresServer, watermarks: Watermarks) -> None:
        self.spark, self.server, self.watermarks = spark, server, watermarks
        self._runs = 0

    def fill(self, rows: int) -> str:
        """Create a table of `rows` rows older than an hour, with indexes on the id and the cursor; return its name."""
        name = f"changed_{rows}"
        self.server.sql(
            f"CREATE TABLE {name} AS SELECT n AS id, now() - interval '1 hour' - (({rows} - n) * interval '1 second') "
            "AS last_modified, (n % 1000)::numeric(12, 2) AS amount, md5(n::text) AS reference, "
            f"repeat('x', 40) AS note FROM generate_series(1, {rows}) n",
            f"ALTER TABLE {name} ADD PRIMARY KEY (id)",
            f"CREATE INDEX ON {name} (last_modified)",
            f"VACUUM ANALYZE {name}",
        )
        return name

    def change(self, name: str, rows: int) -> None:
        """Change a thousand rows, spread evenly over a table."""
        self.server.sql(
            f"UPDATE {name} SET amount = amount + 1, last_modified = now() WHERE id % {rows // CHANGED} = 0"
        )

    def table(self, name: str, **options: Any) -> JdbcTable:
        """Return a table as our source."""
        return JdbcTable(self.spark, self.server.url, name, properties=self.server.properties, **options)

    def all_rows(self, name: str) -> Any:
        """Return all rows, read by Spark's JDBC source, which leaves filters to Spark."""
        options = {"url": self.server.url, "driver": "org.postgresql.Driver", "dbtable": name}
        options |= {"fetchsize": "10000", "pushDownPredicate": "false"}
        return self.spark.read.format("jdbc").options(**options, **self.server.properties).load()

    def take(self, source: Any, job: str, use: Callable[[Any, IncrementalJob], Any]) -> None:
        """Run a job that reads a source; `use` gets its rows."""
        self._runs += 1
        with IncrementalJob(self.watermarks, job, f"jr_{self._runs}", spark=self.spark) as incremental:
            use(incremental.rows_since(source, CURSOR, delay=timedelta(0)), incremental)

    def check(self, job: str, wanted: int) -> None:
        """End the benchmark if the last run of a job did not read exactly `wanted` rows."""
        taken = self.watermarks.history(job, limit=1)[0].change.metrics["rows_collected"]
        if taken != wanted:
            raise SystemExit(f"{job}: {taken:,} rows were taken of {wanted:,}")


def changed(at: Bench, name: str, rows: int, rounds: int) -> dict[str, float]:
    """Measure a job that reads the changed rows, compared with a read of all rows that filters them."""
    at.take(at.table(name), name, lambda *_: None)
    times: dict[str, list[float]] = {"our job": [], "its read": [], "all rows, filtered": []}
    for _ in range(rounds + 1):
        before = datetime.now(timezone.utc)
        at.change(name, rows)

        def read(found: Any, _: IncrementalJob) -> None:
            times["its read"].append(timed(lambda: consume(found)))

        times["our job"].append(timed(lambda: at.take(at.table(name), name, read)))
        at.check(name, CHANGED)
        newer = f"{CURSOR} >= timestamp_micros({int(before.timestamp() * 1e6)}L)"
        times["all rows, filtered"].append(timed(lambda where=newer: consume(at.all_rows(name).where(where))))
    found = {tool: statistics.median(seconds[1:]) for tool, seconds in times.items()}
    shown = ", ".join(f"{tool} {seconds:.2f} s" for tool, seconds in found.items())
    say(f"{rows:>10,} rows, {CHANGED:,} changed: {shown}")
    return found


def first_load(at: Bench, name: str, rows: int, rounds: int) -> Goal:
    """Measure a first load by ranges of the cursor, compared with one by a single query."""
    times: dict[int | None, list[float]] = {1: [], None: []}
    for number in range(rounds):
        for partitions, seconds in times.items():
            job = f"first-{name}-{partitions}-{number}"
            table = at.table(name, partitions=partitions)
            seconds.append(timed(lambda t=table, j=job: at.take(t, j, consume)))  # type: ignore[misc]
            at.check(job, rows)
    single, ours = (statistics.median(seconds) for seconds in times.values())
    say(f"{rows:>10,} rows, first load: one query {single:.1f} s, by ranges {ours:.1f} s")
    return Goal(f"first load of {rows:,} rows by ranges, times as fast as by one query", single / ours, PARALLEL)


def beside_dlt(at: Bench, name: str, rows: int, rounds: int) -> list[Goal]:
    """Measure a first load and changed rows, both written to Parquet, compared with dlt and each of two backends."""
    url = f"postgresql+psycopg2://{at.server.properties['user']}@127.0.0.1:{at.server.port}/postgres"
    times: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds):
        with tempfile.TemporaryDirectory(prefix="rows-") as folder:
            job = f"dlt-{name}-{number}"
            for part, wanted in (("first", rows), ("changed", CHANGED)):
                if part == "changed":
                    at.change(name, rows)
                taken = times.setdefault(part, {})
                for ours, source in ((OURS, at.table(name)), (WITHOUT_SPARK, sql_table(at.server, name))):
                    run = partial(at.take, source, f"{job} {ours}", partial(_write, f"{folder}/{ours}"))
                    taken.setdefault(ours, []).append(timed(run))
                    at.check(f"{job} {ours}", wanted)
                for backend, tool in DLT.items():
                    options = ("--backend", backend)
                    dlt = step("benchmarks.dlt_rows", url, name, f"{folder}/{backend}", *options, python=DLT_PYTHON)
                    taken.setdefault(tool, []).append(dlt["seconds"])
                    if dlt["rows"] != wanted:
                        raise SystemExit(f"{tool} took {dlt['rows']:,} rows of {wanted:,}")
    found = {part: {tool: statistics.median(each) for tool, each in taken.items()} for part, taken in times.items()}
    for part, medians in found.items():
        shown = ", ".join(f"{tool} {seconds:.2f} s" for tool, seconds in medians.items())
        say(f"{rows:>10,} rows to Parquet, {part}: {shown}")
    charts.bars("rows-dlt", f"{rows:,} rows of PostgreSQL to Parquet", "seconds", found)
    goals = []
    for part, ours, text, goal in (
        ("first", OURS, f"first load of {rows:,} rows", BESIDE_DLT),
        ("changed", OURS, f"{CHANGED:,} changed of {rows:,} rows", SMALL_BESIDE_DLT),
        ("changed", WITHOUT_SPARK, f"{CHANGED:,} changed of {rows:,} rows without Spark", WITHOUT_BESIDE_DLT),
    ):
        for tool in DLT.values():
            goals.append(Goal(f"{text}, times as fast as {tool}", found[part][tool] / found[part][ours], goal))
    return goals


def _write(path: str, rows: Any, job: IncrementalJob) -> None:
    job.write(rows, path)


def parquet_by_date(at: Bench) -> list[Goal]:
    """Read the last half day of a table partitioned by date; count the partitions and rows that Spark reads."""
    from pyspark.sql import functions as F  # noqa: N812

    spark = at.spark
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    step_micros = 86_400_000_000 // ROWS_A_DAY
    start = int(FIRST_DAY.timestamp()) * 1_000_000
    stamp = F.expr(f"timestamp_micros({start}L + id * {step_micros}L)")
    made = spark.range(DAYS * ROWS_A_DAY, numPartitions=DAYS).select(
        "id", stamp.alias(CURSOR), F.expr("md5(string(id))").alias("reference")
    )
    with tempfile.TemporaryDirectory(prefix="by-date-") as folder:
        dated = made.withColumn("import_date", F.to_date(CURSOR))
        dated.write.option("parquet.block.size", 256 * 1024).partitionBy("import_date").parquet(f"{folder}/rows")
        rows = spark.read.parquet(f"{folder}/rows")
        low = FIRST_DAY + timedelta(days=DAYS - 1, hours=12)
        state = {"kind": "rows", "cursor_column": CURSOR, "type": "timestamp", "value": low}
        at.watermarks.set_watermark("by-date", state, transformation_ctx="rows", why="half of the last day is new")
        source = DataFrameRows(rows, partitions=DatePartitions("import_date=%Y-%m-%d", slack=timedelta(0)))
        read: dict[str, float] = {}

        def count(found: Any, _: IncrementalJob) -> None:
            counted = found.groupBy().agg(F.count("*"), F.max("reference"))
            read["rows"] = counted.collect()[0][0]
            leaves = counted._jdf.queryExecution().executedPlan().collectLeaves()
            metrics = leaves.apply(0).metrics()
            for name in ("numPartitions", "numOutputRows"):
                read[name] = metrics.apply(name).value()

        ours = timed(lambda: at.take(source, "by-date", count))
        newer = F.col(CURSOR).cast("string") >= f"{low:%F %T}"
        everything = timed(lambda: rows.where(newer).groupBy().agg(F.max("reference")).first())
    say(f"{DAYS * ROWS_A_DAY:>10,} rows by date, half a day new: {json.dumps(read)}")
    say(f"{DAYS * ROWS_A_DAY:>10,} rows by date: ours {ours:.2f} s, all rows filtered {everything:.2f} s")
    beside = read["numOutputRows"] / read["rows"]
    return [
        Goal("Parquet by date: partitions read, of 1 in the window", read["numPartitions"], 1.0, more=False),
        Goal("Parquet by date: rows of the row groups read beside those of the window", beside, 1.2, more=False),
    ]


def main() -> int:
    """Measure everything, print the results, and return the exit code: 0 if all goals were met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=(100_000, 1_000_000, 5_000_000))
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if not os.path.exists(DLT_PYTHON):
        raise SystemExit(f"no dlt at {DLT_PYTHON}. Run make bench-rows, or set DLT_PYTHON.")
    os.environ.update(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_DEFAULT_REGION="eu-west-2")
    spark = start_spark()
    with moto_server() as dynamodb:
        watermarks = Table(dynamodb).watermarks
        watermarks.create_table()
        server = PostgresServer()
        try:
            goals = measure(Bench(spark, server, watermarks), given.rows, given.rounds)
        finally:
            server.stop()
    spark.stop()
    return judge(goals)


def measure(at: Bench, sizes: Sequence[int], rounds: int) -> list[Goal]:
    """Run all measurements on tables of these sizes; return the goals."""
    names = {rows: at.fill(rows) for rows in sizes}
    found = {rows: changed(at, name, rows, rounds) for rows, name in names.items()}
    smallest, largest = min(sizes), max(sizes)
    charts.bars(
        "rows-changed", f"{CHANGED:,} changed rows of a PostgreSQL table", "seconds",
        {f"{rows:,} rows": times for rows, times in found.items()},
    )  # fmt: skip
    beside_all = found[largest]["all rows, filtered"] / found[largest]["its read"]
    growth = found[largest]["our job"] / found[smallest]["our job"]
    goals = [
        Goal(f"{CHANGED:,} changed: seconds at {largest:,} rows beside {smallest:,}", growth, SAME_TIME, more=False),
        Goal(f"{CHANGED:,} changed of {largest:,}: read, times as fast as all", beside_all, BESIDE_ALL),
        first_load(at, names[largest], largest, rounds),
    ]  # fmt: skip
    with_dlt = WITH_DLT if WITH_DLT in names else smallest
    return [*goals, *beside_dlt(at, names[with_dlt], with_dlt, rounds), *parquet_by_date(at)]


if __name__ == "__main__":
    sys.exit(main())
