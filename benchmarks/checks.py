"""Reading CSV and JSON with the checks of this package, compared with Spark's own reader of the same files.

    python -m benchmarks.checks --rows 1000000 --rounds 5

The files are local and have eight columns. Each round runs both readers of a format in turn and computes all columns.
It measures the CPU time of Spark's JVM, because other work on the machine hardly changes it. Figures are medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.goals import Goal, judge, say
from benchmarks.local_spark import local_spark
from scripts.helpers.files.bookmark import FileBookmark

FILES = 8
SCHEMA = "id BIGINT, name STRING, note STRING, amount DECIMAL(12,2), rate DOUBLE, day DATE, at TIMESTAMP, ok BOOLEAN"
GOAL = 1.1


def write(spark: Any, folder: Path, rows: int) -> None:
    """Write the same rows as CSV and as JSON."""
    columns = (
        "id", "concat('name ', id) AS name", "concat('a note of some words, number ', id * 7) AS note",
        "cast(id % 100000 / 100 AS decimal(12,2)) AS amount", "id / 7 AS rate",
        "date_add(date '2026-01-01', cast(id % 300 AS int)) AS day",
        "timestamp_seconds(1767225600 + id) AS at", "id % 2 = 0 AS ok",
    )  # fmt: skip
    made = spark.range(0, rows, 1, FILES).selectExpr(*columns)
    made.write.csv(str(folder / "csv"), header=True, escape='"')
    made.write.json(str(folder / "json"))


def cpu_seconds(spark: Any, read: Callable[[], Any]) -> float:
    """Return the CPU time that Spark's JVM needs to compute all columns of all rows."""
    process = Path(f"/proc/{spark._jvm.java.lang.ProcessHandle.current().pid()}/stat")

    def used() -> float:
        # utime and stime, in clock ticks. They are counted from the program's name, which is in brackets.
        ticks = process.read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    started = used()
    read().write.format("noop").mode("overwrite").save()
    return used() - started


def readers(spark: Any, folder: Path, format: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return two functions that read the files: with Spark's own reader, and with `read` of this package."""
    options: dict[str, Any] = {"header": True, "escape": '"'} if format == "csv" else {}
    delta = FileBookmark(str(folder / format), include=["part-*"]).new_files()
    return (
        lambda: spark.read.schema(SCHEMA).options(**options).format(format).load(str(folder / format)),
        lambda: delta.read(spark, format, schema=SCHEMA, **options),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    spark, goals = local_spark("2g"), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(spark, folder, given.rows)
        for kind in ("csv", "json"):
            bare, read = readers(spark, folder, kind)
            for reader in (bare, read):
                cpu_seconds(spark, reader)
            rounds = [(cpu_seconds(spark, bare), cpu_seconds(spark, read)) for _ in range(given.rounds)]
            own, other = statistics.median(one[1] for one in rounds), statistics.median(one[0] for one in rounds)
            ratio = statistics.median(one[1] / one[0] for one in rounds)
            say(f"{kind}: {own:.2f} s of the processor, {other:.2f} s for the bare reader, ratio {ratio:.2f}")
            goals.append(Goal(f"{kind} with checks, processor time beside the bare reader", ratio, GOAL, more=False))
    spark.stop()
    return judge(goals)


if __name__ == "__main__":
    sys.exit(main())
