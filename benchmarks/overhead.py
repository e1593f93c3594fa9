"""What the package costs beside the same requests sent by boto3 alone, and what its import costs.

The raw side re-sends, for a second job, the very requests that the library sent: same items, same
conditions, same order. Both sides alternate in one run; the ratio is that of their medians.
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

from scripts.helpers.protocol.dynamodb import CLIENT_CONFIG
from scripts.helpers.watermarks import Watermarks

ROUNDS = 150
WARM_UP = 10
GOAL_RATIO, GOAL_IMPORT_MS = 1.15, 30.0


@contextmanager
def moto_server() -> Iterator[str]:
    """Run a moto server in a process of its own, on loopback."""
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
    """Keeps the requests that a client sends."""

    def __init__(self, client: Any) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        client.meta.events.register("provide-client-params.dynamodb", self._keep)

    def _keep(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        self.requests.append((model.name, params))

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        taken, self.requests = self.requests, []
        return taken


def for_other_job(request: dict[str, Any], job_id: str) -> dict[str, Any]:
    """Return the same request about another job."""
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
    """Return per operation: median of the library, median of boto3 (milliseconds), requests."""
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
    with tempfile.TemporaryDirectory() as cache:  # Compiled once, as pip does when it installs.
        environment = kept | {"PYTHONPYCACHEPREFIX": cache}
        found = [float(subprocess.check_output([sys.executable, "-c", code], env=environment)) for _ in range(15)]
    return 1000 * statistics.median(found[1:])


def main() -> int:
    logging.getLogger("scripts").setLevel(logging.ERROR)
    os.environ.update(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_DEFAULT_REGION="eu-west-2")
    with moto_server() as endpoint:
        measured = measure(endpoint)
    out = sys.stdout.write
    out(f"{'operation':<18}{'requests':>9}{'library ms':>12}{'boto3 ms':>10}{'ratio':>8}\n")
    for name, (ours, theirs, requests) in measured.items():
        out(f"{name:<18}{requests:>9}{ours:>12.2f}{theirs:>10.2f}{ours / theirs:>8.2f}\n")
    worst = max(ours / theirs for ours, theirs, _ in measured.values())
    added = import_milliseconds()
    out(f"goal: ratio <= {GOAL_RATIO}; measured: {worst:.2f} (the worst of the medians)\n")
    out(f"goal: import <= {GOAL_IMPORT_MS:.0f} ms beside boto3's; measured: {added:.1f} ms\n")
    return 0 if worst <= GOAL_RATIO and added <= GOAL_IMPORT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
