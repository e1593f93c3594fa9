"""A hundred million known objects and ten thousand new ones, found by Spark: memory, and whether time grows with keys.

    python -m benchmarks.scale
    python -m benchmarks.scale --known 100000 --new 1000

As many are then found without a listing, from events or a journal that name them, in a process without Spark. The same
is measured with a tenth of the known objects, to compare the seconds per key. A local S3 server (`landing_server.py`)
computes the objects; Spark has a driver and one worker of two cores. The folder, which needs about 5 GB, stores the
objects that a first run has taken, so that a restarted benchmark does not take them again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from benchmarks import charts
from benchmarks.goals import Goal, judge, say
from benchmarks.landing_server import ARRIVING, FOLDERS
from benchmarks.local_server import local_server

DRIVER_MB, WORKER_MB, GROWTH = 512.0, 2_048.0, 1.1
SMALLER = 10
"""The seconds per key are compared with those of a run with this many times fewer keys."""
NAMED = [(keys, by) for keys in ("dates", "random") for by in ("events", "journal")]
"""Runs without a listing: the kind of keys that the new objects have, and the source that names them."""
NAMED_SECONDS, NAMED_MB = {"dates": 15.0, "random": 60.0}, 1_024.0


def measured(folder: Path, known: int, new: int, seconds: float) -> dict[str, float]:
    """Run a driver that takes the known and the new objects; end the benchmark if it takes too long."""
    with local_server("landing_server", "--objects", known) as endpoint:
        command = [sys.executable, "-m", "benchmarks.scale_driver", endpoint, str(folder / str(known))]
        command += ["--known", str(known), "--new", str(new)]
        environment = {**os.environ, "AWS_ENDPOINT_URL_S3": endpoint}
        try:
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=seconds, check=True)
        except subprocess.TimeoutExpired as error:
            raise SystemExit(
                f"{known:,} known objects took more than {seconds:,.0f} s. Begin again with the same --folder "
                f"({folder}) to go on, or give more --hours."
            ) from error
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        for keys, by in NAMED:
            command = [sys.executable, "-m", "benchmarks.scale_named", str(folder / str(known)), "--keys", keys]
            command += ["--by", by, "--known", str(known), "--new", str(new)]
            named = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            found |= {f"{keys}_{by}_{name}": value for name, value in json.loads(named.stdout).items()}
    return found


def goals_of(known: int, large: dict[str, float], small: dict[str, float]) -> list[Goal]:
    """Return the goals with their measurements."""
    smaller = known // SMALLER
    driver = large["jvm_mb"] + large["python_mb"]
    goals = [
        Goal(f"{known:,} known: MB of the driver, JVM and Python", driver, DRIVER_MB, False),
        Goal(f"{known:,} known: MB of the worker, JVM and Python", large["worker_mb"], WORKER_MB, False),
    ]
    for text, name in (("to find what is new", "seconds"), ("of a first run", "first_seconds")):
        ratio = (large[name] / known) / (small[name] / smaller)
        goals.append(Goal(f"seconds {text} for each of {known:,} keys beside {smaller:,}", ratio, GROWTH, False))
    for keys, by in NAMED:
        text = f"{known:,} known, keys {'by date' if keys == 'dates' else 'at random'} that {by} name:"
        goals.append(Goal(f"{text} seconds", large[f"{keys}_{by}_seconds"], NAMED_SECONDS[keys], False))
        goals.append(Goal(f"{text} MB", large[f"{keys}_{by}_mb"], NAMED_MB, False))
    return goals


def draw(found: Mapping[int, Mapping[str, float]]) -> None:
    """Draw seconds and memory against the number of objects."""
    if find_spec("matplotlib") is None:
        # Do not fail after hours of measurement: the figures matter more than the charts.
        say("no chart is drawn, as matplotlib is not there: run make bench-scale")
        return
    memory: dict[str, dict[int, float]] = {"driver": {}, "worker": {}}
    seconds: dict[str, dict[int, float]] = {"first run": {}, "new objects found": {}}
    for known, run in found.items():
        memory["driver"][known] = run["jvm_mb"] + run["python_mb"]
        memory["worker"][known] = run["worker_mb"]
        seconds["first run"][known] = run["first_seconds"]
        seconds["new objects found"][known] = run["seconds"]
    charts.lines("scale-memory", "Scale: memory", "MB", memory)
    charts.lines("scale-seconds", "Scale: time", "seconds", seconds)


def main() -> int:
    """Measure everything, print the results, and return the exit code: 0 if all goals were met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--known", type=int, default=100_000_000)
    parser.add_argument("--new", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, default=charts.OUT / "scale")
    parser.add_argument("--hours", type=float, default=6.0, help="most time for each of the two numbers of objects")
    given = parser.parse_args()
    if given.known % (SMALLER * FOLDERS) or given.new % ARRIVING:
        parser.error(f"--known is a multiple of {SMALLER * FOLDERS}, and --new of {ARRIVING}")
    os.environ.update(
        AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_DEFAULT_REGION="eu-west-2",
        PYSPARK_PYTHON=sys.executable,
    )  # fmt: skip
    found: dict[int, dict[str, float]] = {}
    for known in (given.known // SMALLER, given.known):
        found[known] = measured(given.folder, known, given.new, given.hours * 3_600)
        say(f"{known:>13,} known, {given.new:,} new: {json.dumps(found[known])}")
    draw(found)
    return judge(goals_of(given.known, found[given.known], found[given.known // SMALLER]))


if __name__ == "__main__":
    sys.exit(main())
