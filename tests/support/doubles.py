"""Tables for models and crash tests: DynamoDB in memory or a file, with an optional fault at any request."""

from __future__ import annotations

import itertools
import marshal
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

from scripts.helpers.errors import StoreUnavailableError
from scripts.helpers.protocol import items, requests, sqlite
from scripts.helpers.protocol.dynamodb import DynamoTable
from scripts.helpers.protocol.requests import Between, Delete, ItemPage, Put, Walk, Write
from scripts.helpers.protocol.sqlite import SqliteTable
from scripts.helpers.protocol.store import ItemTable
from scripts.helpers.watermarks import Watermarks
from tests.support.dynamodb import FAULTS, Died, FakeDynamoDB, Item, Key

T = TypeVar("T")

MEMORY, MEMORY_BYTES = Path("/dev/shm"), 2**31
"""A folder in memory, where files are fast because no write waits for a disk, and the free space that it must have."""
SWEEPING = items.key("~sweep", "~sweep")
_numbers = itertools.count(1)
_folders: weakref.WeakSet[tempfile.TemporaryDirectory[str]] = weakref.WeakSet()


def fast_folder() -> str | None:
    """Return the folder for temporary files that are tables, in memory if there is room; None for the default."""
    return str(MEMORY) if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_BYTES else None


def remove_files() -> None:
    """Remove the remaining files, because a process of pytest-xdist ends without running Python's exit handlers."""
    for folder in list(_folders):
        folder.cleanup()


class FaultyFile:
    """A table in a file of its own, with the test features of `FakeDynamoDB`: requests, faults, access to the items.

    Faults of FAULTS that only DynamoDB has become the nearest fault of a file: the file is locked, or the disk fails.
    """

    client = None

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="table-", dir=fast_folder())
        _folders.add(self._folder)
        self.name = f"sqlite:{self._folder.name}/table-{next(_numbers)}.db"
        self.table = SqliteTable(self.name)
        self.place = self.table.place
        self.table.create()
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.fault: Callable[[int, str, dict[str, Any]], str | None] | None = None
        self.seen: Callable[[Key, Item | None, Item | None], None] | None = None
        self._seconds = 0.0

    # --- for tests ------------------------------------------------------------------------------

    @property
    def items(self) -> dict[Key, Item]:
        """Return all items by (job, range key), in order."""
        return {_key(item): item for item in self.table.walk(Walk(0, 1, 1_000_000)).items}

    def item(self, job_id: str, range_key: str) -> Item | None:
        """Return one item, or None if there is none."""
        return self.table.get(items.key(job_id, range_key))

    def sweep(self, now: datetime) -> list[Key]:
        """Let the file delete expired items, as each write does; return their keys."""
        before = self.items.keys()
        self._seconds = now.timestamp()
        self._write(requests.put(SWEEPING, if_new=False))
        self._seconds = 0.0
        self.table.write(requests.Delete(SWEEPING))
        return sorted(before - self.items.keys())

    def dump(self) -> dict[Key, bytes]:
        """Return all items, in the form that `load` takes."""
        return {key: marshal.dumps(item) for key, item in self.items.items()}

    def load(self, kept: Mapping[Key, bytes]) -> None:
        """Replace all items with these."""
        there = self.items
        for key in there.keys() - kept.keys():
            self.table.write(requests.Delete(items.key(*key)))
        for key, data in kept.items():
            item = marshal.loads(data)
            if there.get(key) != item:
                self._write(requests.put(item, if_new=False))

    # --- the table ------------------------------------------------------------------------------

    def get(self, key: Item) -> Item | None:
        return self._send("get_item", {"Key": key}, lambda: self.table.get(key))

    def write(self, write: Write) -> bool:
        if isinstance(write, Put):
            return self._send("put_item", {"Item": write.item}, lambda: self._watched(write, write.item))
        action = "delete_item" if isinstance(write, Delete) else "update_item"
        return self._send(action, {"Key": write.key}, lambda: self._watched(write, write.key))

    def query(self, wanted: Between) -> ItemPage:
        return self._send("query", {}, lambda: self.table.query(wanted))

    def walk(self, wanted: Walk) -> ItemPage:
        return self._send("scan", {}, lambda: self.table.walk(wanted))

    def exists(self, table_name: str) -> bool:
        return self.table.exists(table_name)

    def create(self) -> None:
        self.table.create()

    def eventual_replicas(self, table_name: str | None = None) -> list[str]:
        return self._send("describe_table", {}, lambda: self.table.eventual_replicas(table_name))

    def _send(self, method: str, params: dict[str, Any], apply: Callable[[], T]) -> T:
        self.requests.append((method, params))
        number = len(self.requests)
        fault = self.fault(number, method, params) if self.fault else None
        assert fault in FAULTS, fault
        action = "read" if method in ("get_item", "query", "scan", "describe_table") else "write"
        if fault == "die-before":
            raise Died(f"before request {number}, {method}")
        if fault in ("drop", "throttle"):
            raise StoreUnavailableError(self.name, action, "database is locked")
        answer = apply()
        if fault == "re-send":
            answer = apply()
        if fault == "die-after":
            raise Died(f"after request {number}, {method}")
        if fault == "reply-lost":
            raise StoreUnavailableError(self.name, action, "disk I/O error")
        return answer

    def _watched(self, write: Write, key: Item) -> bool:
        before = self.table.get(key)
        took_effect = self._write(write)
        if took_effect and self.seen:
            self.seen(_key(key), before, self.table.get(key))
        return took_effect

    def _write(self, write: Write) -> bool:
        # The clocks of tests are years behind: by the real clock, items that tests let expire would be deleted at once.
        with mock.patch.object(sqlite, "time", SimpleNamespace(time=lambda: self._seconds)):
            return self.table.write(write)


Double = FakeDynamoDB | FaultyFile


def table_of(double: Double) -> ItemTable:
    """Return the table as the package accesses it."""
    client: Any = double
    return double if isinstance(double, FaultyFile) else DynamoTable(double.table_name, client)


def opened(double: Double, **options: Any) -> Watermarks:
    """Return `Watermarks` over the table as a process would open it, but without sleeping."""
    client: Any = double
    if isinstance(double, FaultyFile):
        made = Watermarks(double.name, **options)
        made.store.table = double
    else:
        made = Watermarks(double.table_name, client, **options)
    made.store.sleep = lambda seconds: None
    return made


def _key(item: Item) -> Key:
    return item[items.HASH_KEY]["S"], item[items.RANGE_KEY]["S"]
