"""Overhead of the package compared with the same requests sent by boto3 alone, and the time of its import.

The raw side re-sends, for a second job, exactly the requests that the library sent: same items, same
conditions, same order. Both sides alternate in one run; the ratio is that of their medians.

A job without Spark that finds nothing new runs as a process, in turns with a script that only lists the prefix.
"""

from __future__ import annotations

import copy
import logging
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import boto3

from benchmarks.goals import Goal, judge
from scripts.helpers.protocol.dynamodb import CLIENT_CONFIG
from scripts.helpers.watermarks import Watermarks

ROUNDS = 150
WARM_UP = 10
GOAL_RATIO, GOAL_IMPORT_MS, GOAL_BESIDE_LISTING = 1.15, 30.0, 1.6
SMALL_RUNS, SMALL_OBJECTS = 5, 100
LISTS = """
import boto3

pages = boto3.client("s3").get_paginator("list_objects_v2").paginate(Bucket="landing", Prefix="parking/")
assert sum(len(page["Contents"]) for page in pages) == 100
"""
FINDS_NOTHING = """
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks

with IncrementalJob(Watermarks("overhead"), "small run") as job:
    job.new_files("s3://landing/parking/")
"""


@contextmanager
def moto_server() -> Iterator[str]:
    """Run a moto server in a separate process, on loopback, and yield its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


class Recorder:
    """Records the requests that a client sends."""

    def __init__(self, client: Any) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        client.meta.events.register("provide-client-params.dynamodb", self._keep)

    def _keep(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        self.requests.append((model.name, params))

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        taken, self.requests = self.requests, []
        return taken


def for_other_job(request: dict[str, Any], job_id: str) -> dict[str, Any]:
    """Return the same request for another job."""
    changed = copy.deepcopy(request)
    for part in ("Item", "Key"):
        if part in changed:
            changed[part]["jobName"] = {"S": job_id}
    return changed


def seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure(endpoint: str) -> dict[str, tuple[float, float, int]]:
    """Return for each operation the medians of the library and of boto3 in milliseconds, and the number of requests."""
    library_client = boto3.client("dynamodb", endpoint_url=endpoint, config=CLIENT_CONFIG)
    raw = boto3.client("dynamodb", endpoint_url=endpoint, config=CLIENT_CONFIG)
    calls = {"GetItem": raw.get_item, "PutItem": raw.put_item, "Query": raw.query}
    watermarks = Watermarks("overhead", library_client)
    watermarks.create_table()
    recorder = Recorder(library_client)
    times: dict[str, tuple[list[float], list[float]]] = {}
    counts: dict[str, int] = {}

    def compare(name: str, work: Callable[[], Any]) -> None:
        recorder.take()
        library = seconds(work)
        requests = [(operation, for_other_job(request, "raw")) for operation, request in recorder.take()]

        def resend() -> None:
            for operation, request in requests:
                calls[operation](**request)

        ours, theirs = times.setdefault(name, ([], []))
        ours.append(library)
        theirs.append(seconds(resend))
        counts[name] = len(requests)

    def one_round(number: int) -> None:
        runs: list[Any] = []
        compare("begin", lambda: runs.append(watermarks.begin("library", f"jr_{number}")))
        compare("freeze", lambda: runs[0].freeze({"rows": {"low": number, "high": number + 1}}, {"rows": number + 1}))
        compare("commit", lambda: runs[0].commit(rows_written=number))
        compare("most recent run", lambda: watermarks.get_most_recent_run_id("library"))
        compare("get watermark", lambda: watermarks.get_watermark("library", f"jr_{number}"))

    for number in range(ROUNDS + WARM_UP):
        one_round(number)
    return {
        name: (1000 * statistics.median(ours[WARM_UP:]), 1000 * statistics.median(theirs[WARM_UP:]), counts[name])
        for name, (ours, theirs) in times.items()
    }


def import_milliseconds() -> float:
    """Return the median time that importing the class adds to `import boto3`."""
    code = (
        "import boto3, time; started = time.perf_counter(); import scripts.helpers.watermarks; "
        "print(time.perf_counter() - started)"
    )
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as cache:  # Byte code is compiled once, as pip does when it installs.
        environment = kept | {"PYTHONPYCACHEPREFIX": cache}
        found = [float(subprocess.check_output([sys.executable, "-c", code], env=environment)) for _ in range(15)]
    return 1000 * statistics.median(found[1:])


def small_runs(endpoint: str) -> dict[str, tuple[float, float]]:
    """Return for each script the medians of its seconds from start to exit, and of its CPU seconds."""
    s3 = boto3.client("s3", endpoint_url=endpoint)
    s3.create_bucket(Bucket="landing", CreateBucketConfiguration={"LocationConstraint": "eu-west-2"})
    for number in range(SMALL_OBJECTS):
        s3.put_object(Bucket="landing", Key=f"parking/{number:03}.json", Body=b"{}")
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    scripts = {"a listing by boto3": LISTS, "a job that finds nothing new": FINDS_NOTHING}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in scripts}
    with tempfile.TemporaryDirectory() as cache:
        environment = kept | {"PYTHONPYCACHEPREFIX": cache, "AWS_ENDPOINT_URL": endpoint}
        for _ in range(2 + SMALL_RUNS):  # Two warm-ups: the first takes the files, the second compiles.
            for name, code in scripts.items():
                before = time.perf_counter()
                process = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL)
                _, status, used = os.wait4(process.pid, 0)
                found[name].append((time.perf_counter() - before, used.ru_utime + used.ru_stime))
                assert status == 0, name
    medians = {}
    for name, runs in found.items():
        walls, cpus = zip(*runs[2:], strict=True)
        medians[name] = statistics.median(walls), statistics.median(cpus)
    return medians


def main() -> int:
    logging.getLogger("scripts").setLevel(logging.ERROR)
    os.environ.update(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_DEFAULT_REGION="eu-west-2")
    with moto_server() as endpoint:
        measured = measure(endpoint)
        small = small_runs(endpoint)
    out = sys.stdout.write
    out(f"{'operation':<18}{'requests':>9}{'library ms':>12}{'boto3 ms':>10}{'ratio':>8}\n")
    for name, (ours, theirs, requests) in measured.items():
        out(f"{name:<18}{requests:>9}{ours:>12.2f}{theirs:>10.2f}{ours / theirs:>8.2f}\n")
    (listing, listing_cpu), (whole, _) = small.values()
    for name, (wall, cpu) in small.items():
        out(f"{name:<30}{wall:>6.2f} s ({wall / listing:.2f}), CPU {cpu:.2f} s ({cpu / listing_cpu:.2f})\n")
    worst = max(ours / theirs for ours, theirs, _ in measured.values())
    added = import_milliseconds()
    goals = [
        Goal("the worst ratio of the medians", worst, GOAL_RATIO, more=False),
        Goal("import beside boto3's, ms", added, GOAL_IMPORT_MS, more=False),
        Goal("nothing new beside a listing by boto3", whole / listing, GOAL_BESIDE_LISTING, more=False),
    ]
    return judge(goals)


if __name__ == "__main__":
    sys.exit(main())
