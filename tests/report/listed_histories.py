"""A stand-in for the DynamoDB client of a table of many jobs with long histories. It counts the calls."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

from scripts.helpers.protocol import items
from tests.report.many import facts_of, job_name

PAGE_BYTES = 1024 * 1024
ITEM_BYTES = 1_000
"""The assumed size of a version; docs/cost.md says about 1 KB."""


class ListedHistories:
    """A client that answers Scan with heads, GetItem with a head, and Query with a history, newest version first.

    There are only `distinct` histories. The jobs share them, each under its own name.

    Attributes
    ----------
    calls
        How often each operation was called.
    """

    def __init__(self, jobs: int, versions: int, distinct: int = 10) -> None:
        self.meta = SimpleNamespace(region_name="eu-west-2", method_to_api_mapping={})
        self.calls: Counter[str] = Counter()
        self._versions, self._distinct, self._lock = versions, distinct, threading.Lock()
        self._numbers = {job_name(number): number for number in range(jobs)}
        self._facts = cache(lambda number: facts_of(number, versions))
        self._item: Callable[[int, int], items.Item] = cache(self._made)

    def scan(self, **given: Any) -> dict[str, Any]:
        """Return the heads of all jobs, all of them in the first segment."""
        self._count("scan")
        names = sorted(self._numbers) if given.get("Segment", 0) == 0 else []
        start = given.get("ExclusiveStartKey", {}).get(items.HASH_KEY, {}).get("S", "")
        page = [self._head(name) for name in names if name > start][: given["Limit"]]
        answer: dict[str, Any] = {"Items": page, "Count": len(page), "ScannedCount": len(page)}
        if page and page[-1][items.HASH_KEY]["S"] != names[-1]:
            answer["LastEvaluatedKey"] = {name: page[-1][name] for name in (items.HASH_KEY, items.RANGE_KEY)}
        return answer

    def get_item(self, **given: Any) -> dict[str, Any]:
        """Return the head of a job; every other key is missing."""
        self._count("get_item")
        name, range_key = (given["Key"][key]["S"] for key in (items.HASH_KEY, items.RANGE_KEY))
        return {"Item": self._head(name)} if range_key == items.HEAD_KEY and name in self._numbers else {}

    def query(self, **given: Any) -> dict[str, Any]:
        """Return the newest of the requested versions, at most one page of them. There are no job runs."""
        self._count("query")
        asked = given["ExpressionAttributeValues"]
        if not asked[":last"]["S"].startswith(items.LOG_PREFIX):
            return {"Items": []}
        newest = int(asked[":last"]["S"].removeprefix(items.LOG_PREFIX))
        count = min(newest, given["Limit"], PAGE_BYTES // ITEM_BYTES)
        number = self._numbers[asked[":job"]["S"]] % self._distinct
        return {"Items": [self._item(number, version) for version in range(newest, newest - count, -1)]}

    def _count(self, operation: str) -> None:
        with self._lock:
            self.calls[operation] += 1

    def _head(self, name: str) -> items.Item:
        head = self._facts(self._numbers[name] % self._distinct).head
        assert head is not None
        return items.head_to_item(replace(head, job_id=name))

    def _made(self, number: int, version: int) -> items.Item:
        return items.log_to_item(self._facts(number).entries[self._versions - version])
