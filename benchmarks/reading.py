"""Reading many small JSON objects from S3: S3A's `spark.read.json(list)`, this package's `read` and `read_small`.

    python -m benchmarks.reading --objects 10000 --rounds 3

One local server computes the objects (10 KB: 20 rows of 512 bytes). Each round runs all three readers; the
figures are medians of the rounds, and the ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from benchmarks.goals import Goal, judge, say
from benchmarks.local_server import local_server
from benchmarks.local_spark import local_spark
from benchmarks.object_server import BUCKET, PREFIX, Objects
from scripts.demo.local_s3 import spark_conf
from scripts.helpers.listing.listing import Location
from scripts.helpers.listing.objects import LISTED
from scripts.helpers.reading.by_schema import Asked, SchemaReader
from scripts.helpers.reading.small_files import SmallFiles
from scripts.helpers.reading.spark import read_files

ROWS = 20
SCHEMA = "object long, row long, value double, at timestamp, note string"
GOAL = 4.0


def planned(objects: int) -> pa.Table:
    """Return the rows that a listing of the server would have."""
    served = Objects(objects, ROWS)
    none = pa.nulls(objects, pa.string())
    columns = {
        "key": [served[index][len(PREFIX) :] for index in range(objects)],
        "etag": [served.etag(index) for index in range(objects)],
        "version_id": none,
        "size": [served.size] * objects,
        "modified": [0] * objects,
        "storage_class": none,
    }
    return pa.table(columns).select(LISTED.names).cast(LISTED)


def start_spark(endpoint: str) -> Any:
    """Start Spark with S3A configured for the endpoint."""
    return local_spark("3g", spark_conf(endpoint) | {"spark.hadoop.fs.s3a.connection.maximum": "96"})


def consumed(frame: Any) -> float:
    """Return a sum over all rows that requires parsing every column."""
    total: float = frame.selectExpr("sum(object + row + value + length(note) + extract(second from at))").first()[0]
    return total


def seconds(work: Callable[[], Any], expected: float | None) -> tuple[float, float]:
    started = time.perf_counter()
    found = consumed(work())
    elapsed = time.perf_counter() - started
    if expected is not None and found != expected:
        raise SystemExit(f"the readers disagree: {found} and {expected}")
    return elapsed, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    os.environ.update(
        AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_DEFAULT_REGION="eu-west-2",
        PYSPARK_PYTHON=sys.executable,
    )  # fmt: skip
    times: dict[str, list[float]] = {}
    with local_server("object_server", "--objects", given.objects, "--rows", ROWS) as endpoint:
        os.environ["AWS_ENDPOINT_URL"] = endpoint
        spark = start_spark(endpoint)
        location = Location.parse(f"s3a://{BUCKET}/{PREFIX}")
        table = planned(given.objects)
        paths = [location.uri(key) for key in table.column("key").to_pylist()]

        def checked(rows: pa.Table, read: Callable[[Any, Any, Any], Any]) -> Any:
            asked = Asked.of("json", None, False, options={}, schema=SCHEMA)
            reader = SchemaReader(spark, location, asked, read, None)
            return reader.read(*reader.decided(rows))

        readers: dict[str, Callable[[Any], Any]] = {
            "S3A spark.read.json(list)": lambda rows: spark.read.schema(SCHEMA).json(
                [location.uri(key) for key in rows.column("key").to_pylist()]
            ),
            "read": lambda rows: checked(
                rows, lambda part, schema, more: read_files(spark, location, part, "json", schema=schema, options=more)
            ),
            "read_small": lambda rows: checked(rows, SmallFiles(spark, location, "json")),
        }
        for reader in readers.values():
            consumed(reader(table.slice(0, min(500, len(paths)))))
        expected = None
        for _ in range(given.rounds):
            for name, reader in readers.items():
                elapsed, expected = seconds(lambda read=reader: read(table), expected)  # type: ignore[misc]
                times.setdefault(name, []).append(elapsed)
                say(f"  {name}: {elapsed:.1f} s")
        spark.stop()
    medians = {name: statistics.median(found) for name, found in times.items()}
    base = medians["S3A spark.read.json(list)"]
    say(f"{given.objects:,} objects of {ROWS * 512:,} bytes, 2 cores")
    say(f"{'reader':<28}{'seconds':>9}{'objects/s':>11}{'rows/s':>11}{'ratio':>8}")
    for name, median in medians.items():
        rate = given.objects / median
        say(f"{name:<28}{median:>9.1f}{rate:>11,.0f}{rate * ROWS:>11,.0f}{base / median:>8.1f}")
    ratio = base / medians["read_small"]
    text = f"reading {given.objects:,} small objects, times as fast as S3A's spark.read.json(list)"
    return judge([Goal(text, ratio, GOAL)])


if __name__ == "__main__":
    sys.exit(main())
