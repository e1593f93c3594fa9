"""What staging and publishing cost beside a bare `df.write`: seconds on local disk, requests on S3.

    python -m benchmarks.writing [--rounds 3] [--files 10 1000 10000]

Both sides write the same rows of Spark to a new folder, in turns; the ratio is that of their medians. The requests are
those that the sink sends, without what Spark itself sends to write the staged files.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import boto3

from benchmarks.goals import Goal, judge, say
from benchmarks.local_spark import local_spark
from benchmarks.overhead import moto_server
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.sinks.files import FileSink
from scripts.helpers.sinks.places import Place

GOAL_RATIO = 1.3
ROWS_OF_A_FILE = 1_000
BUCKET = "lake"


def seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def deliver(sink: FileSink, version: int, df: Any) -> None:
    """Take a batch through all steps: staged, published, cleared, and what losers left swept."""
    output = sink.stage(BatchId("bench", "e1", version), 1, df)
    sink.publish(output)
    sink.clear(output)
    sink.sweep(output, ())


def on_disk(spark: Any, files: int, rounds: int) -> float:
    """Return the ratio of the medians for batches of so many files, each to a target of its own."""
    df = spark.range(0, files * ROWS_OF_A_FILE, 1, files).selectExpr("id", "id * 0.25 AS value", "'text' AS note")
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            work = [
                (ours, lambda folder=folder: deliver(FileSink(f"{folder}/ours"), 1, df)),
                (theirs, lambda folder=folder: df.write.parquet(f"{folder}/theirs")),
            ]
            # In turns, also as to who is first: the second finds the disk busy with what the first wrote.
            for times, one in work if number % 2 else reversed(work):
                times.append(seconds(one))
            shutil.rmtree(folder, ignore_errors=True)
            Path(folder).mkdir()
    # The first round compiles, and is left out.
    mine, bare = statistics.median(ours[1:]), statistics.median(theirs[1:])
    say(f"{files:>7,} files on disk: {mine:7.2f} s with the sink, {bare:7.2f} s bare, ratio {mine / bare:.2f}")
    return mine / bare


def on_s3(endpoint: str, files: int) -> Counter[str]:
    """Return the requests of a batch of so many files, by operation."""
    # Two clients: what Spark would send to write the staged files is not counted.
    spark, client = (boto3.client("s3", endpoint_url=endpoint) for _ in range(2))
    sink = FileSink(f"s3://{BUCKET}/{files}", s3_client=client)
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
    sink.sweep(output, ())
    return sent


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, nargs="+", default=[10, 1_000, 10_000])
    given = parser.parse_args(arguments)
    logging.getLogger("scripts").setLevel(logging.ERROR)
    os.environ.update(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_DEFAULT_REGION="us-east-1")
    with moto_server() as endpoint:
        boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=BUCKET)
        for files in given.files:
            sent = on_s3(endpoint, files)
            named = ", ".join(f"{count:,} {name}" for name, count in sent.most_common())
            say(f"{files:>7,} files on S3: {named}")
    spark = local_spark("4g")
    ratios = {
        files: on_disk(spark, files, given.rounds if files < 10_000 else min(given.rounds, 3)) for files in given.files
    }
    spark.stop()
    return judge(
        Goal(f"writing {files:,} files, beside a bare write", ratio, GOAL_RATIO, more=False)
        for files, ratio in ratios.items()
    )


if __name__ == "__main__":
    sys.exit(main())
