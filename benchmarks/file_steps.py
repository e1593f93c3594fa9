"""The steps of this package that `new_files` measures, each in a separate process. Prints one line of JSON.

    python -m benchmarks.file_steps found --run 2 --table http://127.0.0.1:9001

The endpoint of the objects comes from AWS_ENDPOINT_URL_S3.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa

import scripts.helpers.files.bookmark  # noqa: F401
from scripts.helpers.job import IncrementalJob
from scripts.helpers.listing.listing import Listing, Location
from scripts.helpers.protocol.dynamodb import CLIENT_CONFIG
from scripts.helpers.watermarks import Watermarks

SOURCE = "s3://bucket/landing/"
pa.array([])
"""The first array imports pandas if it is installed; it is made here because imports are not measured."""
WRITES = ("PutItem", "UpdateItem", "TransactWriteItems", "BatchWriteItem")


class Table:
    """A table of watermarks, and the number of bytes in the requests that write to it."""

    def __init__(self, endpoint: str) -> None:
        self.client = boto3.client("dynamodb", endpoint_url=endpoint, config=CLIENT_CONFIG)
        self.client.meta.events.register("before-send.dynamodb", self._count)
        self.watermarks = Watermarks("new-files", self.client)
        self.written = 0

    def _count(self, request: Any, **_: Any) -> None:
        target = request.headers["X-Amz-Target"]
        name = (target if isinstance(target, str) else target.decode()).rpartition(".")[2]
        self.written += len(request.body) if name in WRITES else 0

    def stored_bytes(self, job: str) -> int:
        """Return the size of all items of a job: names and values, about as DynamoDB counts them."""
        pages = self.client.get_paginator("scan").paginate(TableName="new-files")
        items = [item for page in pages for item in page["Items"] if item["jobName"]["S"] == job]
        return sum(_size(value) + len(name) for item in items for name, value in item.items())


def _size(value: dict[str, Any]) -> int:
    ((kind, inner),) = value.items()
    if kind == "M":
        return 3 + sum(len(name) + 1 + _size(part) for name, part in inner.items())
    if kind == "L":
        return 3 + sum(1 + _size(part) for part in inner)
    return len(inner) if kind in ("S", "B", "N") else 1


def peak_mb() -> float:
    """Return the peak memory of this process. getrusage would include the process from which it was forked."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def list_only() -> dict[str, float]:
    """List all objects and count them."""
    started = time.perf_counter()
    rows = sum(interval.rows.num_rows for interval in Listing(Location.parse(SOURCE)))
    return {"seconds": time.perf_counter() - started, "files": rows}


def find_and_commit(endpoint: str, job: str, run: int, **options: Any) -> dict[str, float]:
    """Find the new files and commit them without reading any."""
    table = Table(endpoint)
    started = time.perf_counter()
    with IncrementalJob(table.watermarks, job, f"jr_{run}") as incremental:
        delta = incremental.new_files(SOURCE, **options)
        incremental.freeze()
    seconds = time.perf_counter() - started
    found = {"seconds": seconds, "files": delta.count, "written": table.written, "peak_mb": peak_mb()}
    ledger = options.get("ledger_uri")
    in_files = sum(file.stat().st_size for file in Path(ledger).rglob("*") if file.is_file()) if ledger else 0
    return found | {"state": table.stored_bytes(job) + in_files}


def main() -> None:
    """Run one step and print its measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("listing", "found"))
    parser.add_argument("--table", help="endpoint of DynamoDB")
    parser.add_argument("--job", default="landing")
    parser.add_argument("--run", type=int, default=1)
    parser.add_argument("--ledger", help="folder for what is remembered, instead of the table")
    parser.add_argument("--unchecked", action="store_true", help="do not look at the files again before the commit")
    given = parser.parse_args()
    logging.getLogger("scripts").setLevel(logging.ERROR)
    os.environ.setdefault("AWS_DEFAULT_REGION", "eu-west-2")
    if given.step == "listing":
        found = list_only() | {"peak_mb": peak_mb()}
    else:
        options: dict[str, Any] = {"ledger_uri": given.ledger}
        if given.unchecked:
            options["on_changed"] = None
        found = find_and_commit(given.table, given.job, given.run, **options)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
