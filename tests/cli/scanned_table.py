"""A double with many items that scans in DynamoDB's order: by the hash of the job, then by range key."""

from __future__ import annotations

import hashlib
import threading
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from types import SimpleNamespace
from typing import Any

from scripts.helpers.protocol import items

UNIT, PAGE_BYTES, SMALL = 4_096, 1024 * 1024, 600
"""SMALL: the bytes that are assumed for an item without a chunk."""
LONGEST_KEY = 1_024
"""The most bytes of a range key (DynamoDB Developer Guide, constraints)."""


class ScannedTable:
    """A client that answers Scan, and Query between two range keys, over a fixed set of items.

    Attributes
    ----------
    read
        Number of items that requests have read so far, including those that they skipped.
    units
        Read units that these requests have consumed.
    """

    def __init__(self, jobs: Mapping[str, Sequence[items.Item]]) -> None:
        self.meta = SimpleNamespace(region_name="eu-west-2", method_to_api_mapping={})
        self.read, self.requests, self.units = 0, 0, 0.0
        self._lock = threading.Lock()
        self._starts: set[tuple[int, Any]] = set()
        self._jobs = {job: sorted(found, key=_range_key) for job, found in jobs.items()}
        self._items = sorted(
            ((_place(job, _range_key(item)), item) for job, found in jobs.items() for item in found),
            key=lambda one: one[0],
        )
        self._places = [place for place, _ in self._items]

    def scan(self, **given: Any) -> dict[str, Any]:
        assert given.pop("ConsistentRead") is True
        segment, total = given.get("Segment", 0), given.get("TotalSegments", 1)
        low, high = (_boundary(number, total) for number in (segment, segment + 1))
        at, place = bisect_right(self._places, (low, b"", b"")), None
        if start := given.get("ExclusiveStartKey"):
            place = _place(start[items.HASH_KEY]["S"], start[items.RANGE_KEY]["S"])
            assert low <= place[0] < high, "the start key is of another segment"
            assert len(place[2]) <= LONGEST_KEY, "DynamoDB takes no such range key"
            at = bisect_right(self._places, place)
        with self._lock:
            assert (segment, place) not in self._starts, "a page that was read before is read again, for ever"
            self._starts.add((segment, place))
        page: list[items.Item] = []
        size = 0
        while at < len(self._items) and self._places[at][0] < high:
            if len(page) == given["Limit"] or size >= PAGE_BYTES:
                break
            page.append(self._items[at][1])
            size += len(page[-1]["data"]["B"]) if "data" in page[-1] else SMALL
            at += 1
        units = float(max(1, ceil(size / UNIT)))
        self._count(page, units)
        answer: dict[str, Any] = {"Items": page, "Count": len(page), "ScannedCount": len(page)}
        answer["ConsumedCapacity"] = {"CapacityUnits": units}
        if page and at < len(self._items) and self._places[at][0] < high:
            answer["LastEvaluatedKey"] = {name: page[-1][name] for name in (items.HASH_KEY, items.RANGE_KEY)}
        return answer

    def query(self, **given: Any) -> dict[str, Any]:
        bound = given["ExpressionAttributeValues"]
        first, last = bound[":first"]["S"], bound[":last"]["S"]
        after = given["ExclusiveStartKey"][items.RANGE_KEY]["S"] if "ExclusiveStartKey" in given else ""
        found = [item for item in self._jobs[bound[":job"]["S"]] if first <= _range_key(item) <= last]
        left = [item for item in found if _range_key(item) > after]
        page = left[: given["Limit"]]
        self._count(page, units=1.0)
        more = {"LastEvaluatedKey": {items.RANGE_KEY: page[-1][items.RANGE_KEY]}} if len(left) > len(page) else {}
        return {"Items": page} | more

    def _count(self, page: list[items.Item], units: float) -> None:
        with self._lock:
            self.read, self.requests, self.units = self.read + len(page), self.requests + 1, self.units + units


def in_order(jobs: Iterable[str]) -> list[str]:
    """Return the names of jobs in the order in which a scan reaches them."""
    return sorted(jobs, key=lambda job: _place(job, ""))


def _range_key(item: items.Item) -> str:
    found: str = item[items.RANGE_KEY]["S"]
    return found


def _place(job: str, range_key: str) -> tuple[bytes, bytes, bytes]:
    return hashlib.md5(job.encode()).digest(), job.encode(), range_key.encode()


def _boundary(segment: int, total: int) -> bytes:
    return (segment * 256 // total).to_bytes(2, "big")[1:] if segment < total else b"\xff" * 17
