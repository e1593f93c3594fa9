"""A hundred new objects among many known ones: this package, Spark Structured Streaming, dlt's filesystem source.

    python -m benchmarks.new_files --only known --objects 100000 1000000
    python -m benchmarks.new_files --only growth --objects 10000 100000 1000000 10000000
    python -m benchmarks.new_files --only spark --objects 10000000

All tools see the same objects of one local S3 server (`landing_server.py`), and each has already taken the known ones.
In every round 100 objects arrive, and every tool takes them: in one run it only finds and commits them, in a whole run
it also reads them and writes Parquet. The check before the commit that each object is unchanged belongs to reading, so
only whole runs have it. Results are medians of the rounds. Spark's session is warm; imports are not measured. DynamoDB
is moto, in a separate process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks import charts
from benchmarks.file_steps import Table
from benchmarks.goals import Goal, judge, say
from benchmarks.landing_server import ARRIVING, FOLDERS, ROWS, arrive, hold
from benchmarks.local_server import local_server
from benchmarks.overhead import moto_server
from benchmarks.reading import start_spark
from benchmarks.spark_stream import SCHEMA, SOURCE, fill_checkpoint, take_new

DLT_PYTHON = os.environ.get("DLT_PYTHON", os.path.join(sys.prefix, "dlt", "bin", "python"))
PEERS = ("Spark streaming", "dlt")
FOUND, WHOLE = 10.0, 3.0
BESIDE_LISTING, PEAK_MB, WRITTEN = 1.5, 600.0, 64 * 1024
DRIVER_MB = 2_048.0
STATE_BYTES = 60.0
"""Maximum bytes of state per object."""
LARGE_STATE, FREEZE_SECONDS = 60e6, 3.0
"""A ledger must store a state of this many bytes within this many seconds."""
IN_TABLE = 1_000_000
"""Up to this many objects the state is in the table; above, it is in ledger files."""


def step(*arguments: object, python: str = sys.executable) -> dict[str, float]:
    """Run a step in a separate process and return the JSON that it prints."""
    command = [python, "-m", *map(str, arguments)]
    found: dict[str, float] = json.loads(subprocess.check_output(command).splitlines()[-1])
    return found


class Bench:
    """A landing server and a table, with methods that run jobs on them."""

    def __init__(self, landing: str, dynamodb: str) -> None:
        self.landing, self.dynamodb = landing, dynamodb
        Table(dynamodb).watermarks.create_table()
        self._runs = 0

    def found(self, job: str, *options: object) -> dict[str, float]:
        """Find the new files and commit them."""
        self._runs += 1
        arguments = ("--job", job, "--run", self._runs, "--table", self.dynamodb, *options)
        return step("benchmarks.file_steps", "found", *arguments)

    def whole(self, spark: Any, job: str, output: str) -> dict[str, float]:
        """Read the new files with Spark, write them, and commit."""
        from scripts.helpers.job import IncrementalJob

        self._runs += 1
        watermarks = Table(self.dynamodb).watermarks
        started = time.perf_counter()
        with IncrementalJob(watermarks, job, f"jr_{self._runs}", spark=spark) as incremental:
            delta = incremental.new_files(SOURCE.replace("s3a", "s3"))
            rows = incremental.write(delta.read(spark, "json", schema=SCHEMA), output)
        return {"seconds": time.perf_counter() - started, "files": rows / ROWS}


@contextmanager
def bench(delay: float) -> Iterator[Bench]:
    """Start the servers; each response of S3 takes at least `delay` seconds."""
    os.environ.update(
        AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_DEFAULT_REGION="eu-west-2",
        PYSPARK_PYTHON=sys.executable,
    )  # fmt: skip
    with local_server("landing_server", "--objects", FOLDERS, "--delay", delay) as landing, moto_server() as dynamodb:
        os.environ["AWS_ENDPOINT_URL_S3"] = landing
        yield Bench(landing, dynamodb)


def among_known(at: Bench, spark: Any, objects: int, rounds: int, whole_rounds: int) -> list[Goal]:
    """Measure all tools with `objects` known objects; return the goals."""
    with tempfile.TemporaryDirectory(prefix="new-files-") as folder:
        streams = {name: (f"{folder}/{name}", f"{folder}/{name}-rows" if name == "whole" else None) for name in STEPS}
        hold(at.landing, FOLDERS)
        first_mb = 0.0
        for name in STEPS[: 1 + (whole_rounds > 0)]:
            step("benchmarks.dlt_files", at.landing, f"{folder}/dlt", name, python=DLT_PYTHON)
            fill_checkpoint(spark, at.landing, *streams[name], objects)
            first = at.found(f"{name}-{objects}", "--unchecked")
            say(f"  first run with {first['files']:,.0f} objects: {first['seconds']:.1f} s, {first['peak_mb']:.0f} MB")
            first_mb = max(first_mb, first["peak_mb"])
            hold(at.landing, FOLDERS)
        hold(at.landing, objects)
        todo: dict[str, dict[str, Callable[[], dict[str, float]]]] = {
            "found": {
                "ours": lambda: at.found(f"found-{objects}", "--unchecked"),
                "listing alone": lambda: step("benchmarks.file_steps", "listing"),
                "Spark streaming": lambda: _stream(spark, *streams["found"]),
                "dlt": lambda: step("benchmarks.dlt_files", at.landing, f"{folder}/dlt", "found", python=DLT_PYTHON),
            },
            "whole": {
                "ours": lambda: at.whole(spark, f"whole-{objects}", f"{folder}/ours"),
                "Spark streaming": lambda: _stream(spark, *streams["whole"]),
                "dlt": lambda: step("benchmarks.dlt_files", at.landing, f"{folder}/dlt", "whole", python=DLT_PYTHON),
            },
        }
        taken: dict[str, dict[str, list[dict[str, float]]]] = {name: {tool: [] for tool in todo[name]} for name in todo}
        for number in range(rounds):
            arrive(at.landing)
            for name in STEPS[: 1 + (number < whole_rounds)]:
                for tool, take in todo[name].items():
                    found = take()
                    taken[name][tool].append(found)
                    say(f"  {name}, {tool}: {json.dumps({key: round(value, 2) for key, value in found.items()})}")
                    wanted = ARRIVING * (ROWS if "items" in found and name == "whole" else 1)
                    if tool != "listing alone" and found.get("files", found.get("items")) != wanted:
                        raise SystemExit(f"{tool} took another number of files than the {ARRIVING} that arrived")
    return [*_judged(objects, taken), Goal(f"{objects:,}: MB peak of the first run", first_mb, PEAK_MB, False)]


STEPS = ("found", "whole")


def _stream(spark: Any, checkpoint: str, output: str | None) -> dict[str, float]:
    started = time.perf_counter()
    files = take_new(spark, checkpoint, output)
    return {"seconds": time.perf_counter() - started, "files": files}


def _judged(objects: int, taken: dict[str, dict[str, list[dict[str, float]]]]) -> list[Goal]:
    medians = {
        name: {tool: statistics.median(run["seconds"] for run in runs) for tool, runs in tools.items() if runs}
        for name, tools in taken.items()
    }
    charts.bars(
        f"new-files-{objects}", f"{ARRIVING} new among {objects:,} known objects", "seconds",
        {{"found": "found and committed", "whole": "and read and written"}[name]: medians[name] for name in STEPS},
    )  # fmt: skip
    goals: list[Goal] = []
    for name, goal in (("found", FOUND), ("whole", WHOLE)):
        for peer in PEERS:
            if medians[name]:
                text = f"{ARRIVING} new among {objects:,}, {name}: times as fast as {peer}"
                goals.append(Goal(text, medians[name][peer] / medians[name]["ours"], goal))
    ours = taken["found"]["ours"]
    beside = medians["found"]["ours"] / medians["found"]["listing alone"]
    goals.append(
        Goal(f"{objects:,}: listing, diff, state and commit beside listing alone", beside, BESIDE_LISTING, False)
    )
    goals.append(Goal(f"{objects:,}: bytes written by the commit", max(run["written"] for run in ours), WRITTEN, False))
    goals.append(Goal(f"{objects:,}: MB peak", max(run["peak_mb"] for run in ours), PEAK_MB, False))
    return goals


def growth(at: Bench, sizes: Sequence[int]) -> list[Goal]:
    """For each number of objects, measure a first run and a run that finds 100 new objects."""
    shown: dict[str, dict[str, dict[int, float]]] = {"seconds": {}, "peak_mb": {}, "state": {}}
    sizes_of_state: list[float] = []
    frozen: list[float] = []
    for objects in sizes:
        hold(at.landing, objects)
        with tempfile.TemporaryDirectory(prefix="ledger-") as folder:
            options = ["--ledger", folder] if objects > IN_TABLE else []
            first = at.found(f"growth-{objects}", "--unchecked", *options)
            arrive(at.landing)
            then = at.found(f"growth-{objects}", *options)
        sizes_of_state.append(then["state"] / (objects + ARRIVING))
        if options:
            beyond = first["seconds"] - step("benchmarks.file_steps", "listing")["seconds"]
            frozen.append(beyond / (first["state"] / LARGE_STATE))
            say(f"{objects:>12,} first run: {beyond:.1f} s beyond listing, for {first['state']:,} bytes of state")
        for label, run in (("first run", first), (f"{ARRIVING} new", then)):
            for figure, points in shown.items():
                points.setdefault(label, {})[objects] = run[figure]
            say(
                f"{objects:>12,} {label:<22}{run['seconds']:>8.1f} s{run['peak_mb']:>8.0f} MB peak"
                f"{run['state']:>14,.0f} bytes of state{run['written']:>12,.0f} written"
            )
    for figure, unit in (("seconds", "seconds"), ("peak_mb", "MB peak"), ("state", "bytes of state")):
        charts.lines(f"growth-{figure}", f"Growth: {unit}", unit, shown[figure])
    goals = [Goal("state: most bytes for an object", max(sizes_of_state), STATE_BYTES, False)]
    if frozen:
        text = f"seconds for {LARGE_STATE / 1e6:g} MB of state in a ledger, beyond those of the listing"
        goals.append(Goal(text, max(frozen), FREEZE_SECONDS, False))
    return goals


def on_spark(at: Bench, objects: int) -> list[Goal]:
    """Find the new objects with Spark's executors; measure the driver."""
    hold(at.landing, objects)
    with tempfile.TemporaryDirectory(prefix="ledger-") as folder:
        found = step("benchmarks.spark_driver", at.landing, folder)
    say(f"{objects:>12,} on Spark: {json.dumps(found)}")
    if found["first_count"] != objects or found["then_count"] != ARRIVING:
        raise SystemExit("Spark's executors found another number of files than there are")
    driver = found["jvm_mb"] + found["python_mb"]
    return [Goal(f"{objects:,} keys on Spark: MB of the driver, JVM and Python", driver, DRIVER_MB, False)]


def main() -> int:
    """Measure everything, print the results, and return the exit code: 0 if all goals were met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("known", "growth", "spark"))
    parser.add_argument("--objects", type=int, nargs="*", help="numbers of known objects")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--whole-rounds", type=int, help="how many of them also read and write; by default all")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that each answer of S3 takes at least")
    given = parser.parse_args()
    goals: list[Goal] = []
    with bench(given.delay) as at:
        if given.only in (None, "known"):
            if not os.path.exists(DLT_PYTHON):
                raise SystemExit(f"no dlt at {DLT_PYTHON}. Run make bench-files, or set DLT_PYTHON.")
            spark = start_spark(at.landing)
            for objects in given.objects or (100_000, 1_000_000):
                whole_rounds = given.rounds if given.whole_rounds is None else given.whole_rounds
                goals += among_known(at, spark, objects, given.rounds, whole_rounds)
            spark.stop()
        if given.only in (None, "growth"):
            goals += growth(at, given.objects or (10_000, 100_000, 1_000_000, 10_000_000))
        if given.only in (None, "spark"):
            for objects in given.objects or (10_000_000,):
                goals += on_spark(at, objects)
    return judge(goals)


if __name__ == "__main__":
    sys.exit(main())
