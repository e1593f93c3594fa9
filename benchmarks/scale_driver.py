"""One run of `benchmarks.scale` in a separate driver. Prints seconds and memory as one line of JSON.

    python -m benchmarks.scale_driver http://127.0.0.1:9000 folder --known 100000

Takes all objects, unless the folder has the state of an earlier run that took them. Then makes more arrive, and takes
those. The worker is a separate process (Spark's local-cluster), so that its memory is not counted as the driver's. The
driver's JVM also runs Spark's master, which is elsewhere in a real cluster.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.file_steps import SOURCE, peak_mb
from benchmarks.landing_server import ARRIVING, arrive
from benchmarks.local_spark import QUIET
from benchmarks.spark_driver import heap_mb, jvm_mb
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.ledger import files_of
from scripts.helpers.files.spark import SparkFileDelta

REPOSITORY = Path(__file__).parents[1]
WORKER = "CoarseGrainedExecutorBackend"
"""A word in the command line of Spark's executor, by which its process is found."""
SAMPLES = 0.5
"""Seconds between two measurements of the worker's memory."""


class WorkerMemory:
    """Measures the peak memory of the worker: the resident memory of its JVM and its Python processes, added up."""

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> WorkerMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(SAMPLES):
            self.peak_mb = max(self.peak_mb, self._now())

    def _now(self) -> float:
        parents: dict[int, int] = {}
        resident: dict[int, float] = {}
        workers: set[int] = set()
        for status in Path("/proc").glob("[0-9]*/status"):
            with suppress(OSError):  # The process has ended in the meantime.
                text, number = status.read_text(), int(status.parent.name)
                parent, memory = re.search(r"PPid:\s+(\d+)", text), re.search(r"VmRSS:\s+(\d+)", text)
                if parent is None or memory is None:
                    continue  # Kernel threads have no memory of their own.
                parents[number], resident[number] = int(parent[1]), int(memory[1]) / 1024
                if WORKER in (status.parent / "cmdline").read_text():
                    workers.add(number)
        ours = {number for number in workers if _is_below(number, os.getpid(), parents)}
        total = 0.0
        for number, memory_mb in resident.items():
            if any(_is_below(number, worker, parents) for worker in ours):
                total += memory_mb
        return total


def _is_below(number: int, ancestor: int, parents: Mapping[int, int]) -> bool:
    """Return whether a process is `ancestor`, or was started by it directly or indirectly."""
    while number != ancestor:
        if number not in parents:
            return False
        number = parents[number]
    return True


def start_cluster() -> Any:
    """Start a driver with the smallest heap that Spark accepts, and a worker of two cores with 1 GB of heap."""
    from pyspark.sql import SparkSession

    settings = {
        **QUIET,
        "spark.driver.memory": "512m",
        "spark.executor.memory": "1g",
        "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
    }
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        settings[f"spark.executorEnv.{name}"] = os.environ[name]
    builder = SparkSession.builder.master("local-cluster[1,2,1024]").appName("benchmark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def take(spark: Any, ledger: Path, state: Mapping[str, Any] | None) -> tuple[SparkFileDelta, Mapping[str, Any], float]:
    """Find the new objects; return them, the state after them, and the seconds that it took."""
    started = time.perf_counter()
    bookmark = FileBookmark(SOURCE, state=state, ledger_uri=str(ledger))
    delta = bookmark.new_files_on_spark(spark)
    seconds = time.perf_counter() - started
    assert bookmark.state_after is not None
    return delta, bookmark.state_after, seconds


def saved(state: Mapping[str, Any], seconds: float, path: Path) -> None:
    """Write a state from which a restarted benchmark continues. The file gets its name only when it is complete."""
    segments = [{"count": segment["count"], "files": files_of(segment)} for segment in state["segments"]]
    kept = {**state, "segments": segments, "listed": state["listed"].isoformat(), "seconds": seconds}
    part = path.with_suffix(".part")
    part.write_text(json.dumps(kept))
    part.replace(path)


def loaded(path: Path) -> tuple[dict[str, Any], float]:
    """Read the state and the seconds that `saved` wrote."""
    kept: dict[str, Any] = json.loads(path.read_text())
    seconds = float(kept.pop("seconds"))
    return {**kept, "listed": datetime.fromisoformat(kept["listed"])}, seconds


def main() -> None:
    """Take all objects, make some arrive, take those, and print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("endpoint")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--known", type=int, required=True)
    parser.add_argument("--new", type=int, default=10_000)
    given = parser.parse_args()
    ledger, kept = given.folder / "ledger", given.folder / "state.json"
    if not kept.exists():
        # Delete the ledger of a run that ended before it saved its state: nothing refers to its files.
        shutil.rmtree(ledger, ignore_errors=True)
    ledger.mkdir(parents=True, exist_ok=True)
    spark = start_cluster()
    with WorkerMemory() as worker:
        if kept.exists():
            state, first_seconds = loaded(kept)
        else:
            first, state, first_seconds = take(spark, ledger, None)
            if first.count != given.known:
                raise SystemExit(f"the first run found {first.count:,} of {given.known:,} objects")
            saved(state, first_seconds, kept)
        for _ in range(given.new // ARRIVING):
            arrive(given.endpoint)
        delta, _, seconds = take(spark, ledger, state)
        if delta.count != given.new:
            raise SystemExit(f"the second run found {delta.count:,} of {given.new:,} new objects")
    found = {
        "first_seconds": first_seconds, "seconds": seconds, "python_mb": peak_mb(), "heap_mb": heap_mb(spark),
        "jvm_mb": jvm_mb(spark), "worker_mb": worker.peak_mb,
        "ledger_mb": sum(file.stat().st_size for file in ledger.iterdir()) / 2**20,
    }  # fmt: skip
    spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
