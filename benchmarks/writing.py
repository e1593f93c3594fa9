"""Cost of staging and publishing, compared with a bare write of the same rows: seconds on disk, requests on S3.

    python -m benchmarks.writing [--rounds 3] [--files 10 1000 10000] [--rows 300000]

Both sides write the same rows to a new folder or table, in turns; the ratio is that of their medians. Delta, Iceberg
and databases are written with Spark and without; the bare write is that of the connector, or of the driver. Only the
requests of the sink are counted, not those that Spark itself sends to write the staged files.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import boto3
import psycopg
import pyarrow as pa
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.goals import Goal, judge, say
from benchmarks.local_spark import local_spark
from benchmarks.overhead import moto_server
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.sinks import DatabaseSink, DeltaSink, FileSink, IcebergSink
from scripts.helpers.sinks.outputs import mark_of
from scripts.helpers.sinks.places import Place
from scripts.helpers.sinks.sink import Sink
from tests.support import maven_jars, table_formats
from tests.support.components import find_jdbc_jars
from tests.support.databases import PostgresServer
from tests.support.staging import FilledSink, staged_by

GOAL_RATIO = 1.3
ROWS_OF_A_FILE = 1_000
BUCKET = "lake"
Work = Callable[[], Any]


def seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def deliver(sink: Sink, version: int, df: Any) -> None:
    """Run all steps of a batch: read the target's record, stage, publish, clear, and sweep losing attempts."""
    sink.recorded(mark_of("bench"))
    output = staged_by(sink, BatchId("bench", "e1", version), 1, df)
    sink.publish(output)
    sink.clear(output)
    sink.sweep(output, ())


def on_disk(spark: Any, files: int, rounds: int) -> float:
    """Return the ratio of the medians for batches of `files` files, each to a new target."""
    df = spark.range(0, files * ROWS_OF_A_FILE, 1, files).selectExpr("id", "id * 0.25 AS value", "'text' AS note")

    def pair(folder: str, _: int) -> tuple[Work, Work]:
        return (
            lambda: deliver(FileSink(f"{folder}/ours"), 1, df),
            lambda: df.write.parquet(f"{folder}/theirs"),
        )

    return compared(f"{files:>7,} files on disk", pair, rounds)


def compared(what: str, pair: Callable[[str, int], tuple[Work, Work]], rounds: int) -> float:
    """Return the ratio of the median times of the sink and of a bare write, in a new folder in each round."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            # The sides take turns at being first, because the second finds the disk busy with writes of the first.
            work = list(zip(times, pair(folder, number), strict=True))
            for found, one in work if number % 2 else reversed(work):
                found.append(seconds(one))
            shutil.rmtree(folder, ignore_errors=True)
            Path(folder).mkdir()
    # Leave out the first round, in which code is compiled.
    mine, bare = (statistics.median(found[1:]) for found in times)
    say(f"{what}: {mine:7.2f} s with the sink, {bare:7.2f} s bare, ratio {mine / bare:.2f}")
    return mine / bare


def to_tables(spark: Any, server: PostgresServer, rows: int, rounds: int) -> Iterator[Goal]:
    """Yield the goals of tables: `rows` rows are appended to a new table, with Spark and without."""
    df = spark.range(0, rows, 1, 2).selectExpr("id", "id * 0.25D AS value", "concat('text ', id % 1000) AS note")
    # Compute the rows once for both sides, before the measurement.
    df = df.cache()
    df.count()
    frame = df.toPandas()
    table = pa.Table.from_pandas(frame, preserve_index=False)
    login = server.properties | {"driver": "org.postgresql.Driver"}
    columns = "id bigint, value double precision, note text"

    def delta_on_spark(folder: str, _: int) -> tuple[Work, Work]:
        bare = df.write.format("delta").mode("append")
        return lambda: deliver(DeltaSink(f"{folder}/ours", spark=spark), 1, df), lambda: bare.save(f"{folder}/theirs")

    def delta(folder: str, _: int) -> tuple[Work, Work]:
        return (
            lambda: deliver(DeltaSink(f"{folder}/ours"), 1, table),
            lambda: write_deltalake(f"{folder}/theirs", table, mode="append"),
        )

    def iceberg_on_spark(_: str, number: int) -> tuple[Work, Work]:
        bare = df.writeTo(f"lake.bench.theirs{number}").using("iceberg")
        return lambda: deliver(IcebergSink(f"lake.bench.ours{number}", spark=spark), 1, df), bare.create

    def iceberg(folder: str, _: int) -> tuple[Work, Work]:
        catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
        catalog.create_namespace("bench")
        return (
            lambda: deliver(IcebergSink("lake.bench.ours", catalog=catalog), 1, table),
            lambda: catalog.create_table("bench.theirs", table.schema).append(table),
        )

    def made(number: int) -> tuple[str, str]:
        names = f"ours{number}", f"theirs{number}"
        server.sql(*(f"CREATE TABLE {name} ({columns})" for name in names))
        return names

    def postgres_on_spark(_: str, number: int) -> tuple[Work, Work]:
        ours, theirs = made(number)
        sink = DatabaseSink(ours, spark=spark, url=server.url, properties=login)
        return lambda: deliver(sink, 1, df), lambda: df.write.jdbc(server.url, theirs, "append", login)

    def postgres(_: str, number: int) -> tuple[Work, Work]:
        ours, theirs = made(100 + number)

        def connect() -> Any:
            return psycopg.connect(host="127.0.0.1", port=server.port, user=login["user"], dbname="postgres")

        return database(connect, ours, theirs, "%s")

    def sqlite(folder: str, _: int) -> tuple[Work, Work]:
        def connect() -> Any:
            return sqlite3.connect(f"{folder}/shop.db")

        with contextlib.closing(connect()) as made_in:
            made_in.executescript(f"CREATE TABLE ours ({columns}); CREATE TABLE theirs ({columns});")
        return database(connect, "ours", "theirs", "?")

    def database(connect: Callable[[], Any], ours: str, theirs: str, mark: str) -> tuple[Work, Work]:
        def bare() -> None:
            with contextlib.closing(connect()) as connection:
                values = list(frame.itertuples(index=False, name=None))
                connection.cursor().executemany(f"INSERT INTO {theirs} VALUES ({mark}, {mark}, {mark})", values)
                connection.commit()

        return lambda: deliver(DatabaseSink(ours, connect=connect, name="shop"), 1, frame), bare

    for name, wanted, pair in (
        ("Delta, Spark", 2.2, delta_on_spark), ("Delta, deltalake", 2.2, delta),
        ("Iceberg, Spark", 1.3, iceberg_on_spark), ("Iceberg, pyiceberg", 1.3, iceberg),
        ("PostgreSQL, Spark", 2.0, postgres_on_spark), ("PostgreSQL, psycopg", 2.0, postgres),
        ("SQLite, sqlite3", 2.0, sqlite),
    ):  # fmt: skip
        ratio = compared(f"{rows:>7,} rows to {name}", pair, rounds)
        yield Goal(f"writing {rows:,} rows to {name}, beside a bare write", ratio, wanted, more=False)


def on_s3(endpoint: str, files: int) -> Counter[str]:
    """Return the requests of a batch of `files` files, by operation."""
    # The second client writes the staged files in place of Spark; its requests are not counted.
    spark, client = (boto3.client("s3", endpoint_url=endpoint) for _ in range(2))
    sink = FilledSink(f"s3://{BUCKET}/{files}", s3_client=client)
    sent: Counter[str] = Counter()

    def fill(place: Place, folder: str) -> None:
        for number in range(files):
            spark.put_object(Bucket=BUCKET, Key=f"_{files}.staging/{folder}/part-{number:05d}.parquet", Body=b"x")

    def count(model: Any, **_: Any) -> None:
        sent[model.name] += 1

    client.meta.events.register("provide-client-params.s3", count)
    output = sink.stage_files(BatchId("bench", "e1", 1), 1, fill)
    sink.publish(output)
    sink.clear(output)
    return sent


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, nargs="+", default=[10, 1_000, 10_000])
    parser.add_argument("--rows", type=int, default=300_000)
    given = parser.parse_args(arguments)
    logging.getLogger("scripts").setLevel(logging.ERROR)
    os.environ.update(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_DEFAULT_REGION="us-east-1")
    with moto_server() as endpoint:
        boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=BUCKET)
        for files in given.files:
            sent = on_s3(endpoint, files)
            named = ", ".join(f"{count:,} {name}" for name, count in sent.most_common())
            say(f"{files:>7,} files on S3: {named}")
    jars = [*(jar for _, jar in find_jdbc_jars()), *maven_jars.jars().paths]
    settings = {"spark.jars": ",".join(map(str, jars)), **table_formats.start_conf()}
    warehouse = tempfile.mkdtemp(prefix="lake-")
    spark = local_spark("4g", settings | table_formats.catalog_conf(warehouse))
    server = PostgresServer()
    try:
        goals = [
            Goal(
                f"writing {files:,} files, beside a bare write",
                on_disk(spark, files, given.rounds if files < 10_000 else min(given.rounds, 3)), GOAL_RATIO, more=False,
            )
            for files in given.files
        ]  # fmt: skip
        spark.sql("CREATE NAMESPACE lake.bench")
        goals += to_tables(spark, server, given.rows, given.rounds)
    finally:
        server.stop()
        spark.stop()
        shutil.rmtree(warehouse)
    return judge(goals)


if __name__ == "__main__":
    sys.exit(main())
