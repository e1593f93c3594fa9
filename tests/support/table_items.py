"""The raw items of a table, read without the package's checks: all of them, or those of one job."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from scripts.helpers.protocol import items
from scripts.helpers.protocol.requests import Between, Walk
from scripts.helpers.protocol.store import ItemTable
from scripts.helpers.watermarks import Watermarks

Item = dict[str, Any]
Stored = Callable[[], dict[str, Item]]
"""The type of the fixture `stored`: it reads the items of the test's job."""


def all_items(watermarks: Watermarks) -> dict[tuple[str, str], Item]:
    """Return the items of all jobs by job and range key."""
    found: list[Item] = []
    wanted = Walk(0, 1, 1000)
    while True:
        page = watermarks.store.table.walk(wanted)
        found += page.items
        if page.last is None:
            return {(item[items.HASH_KEY]["S"], item[items.RANGE_KEY]["S"]): item for item in found}
        wanted = dataclasses.replace(wanted, after=page.last)


def items_of(table: ItemTable, job_id: str) -> dict[str, Item]:
    """Return the items of a job by range key."""
    found: dict[str, Item] = {}
    wanted = Between(job_id)
    while True:
        page = table.query(wanted)
        found |= {item[items.RANGE_KEY]["S"]: item for item in page.items}
        if page.last is None:
            return found
        wanted = dataclasses.replace(wanted, after=page.last[items.RANGE_KEY]["S"])


def item_of(watermarks: Watermarks, job_id: str, range_key: str = items.HEAD_KEY) -> Item:
    """Return one raw item."""
    found = watermarks.store.read(job_id, range_key)
    assert found is not None, f"{range_key} of {job_id} is not there"
    return found


def put_item(watermarks: Watermarks, item: Item) -> None:
    """Write one raw item, replacing any item with its key."""
    watermarks.store.put(item, if_new=False)


def put_back(watermarks: Watermarks, backup: Mapping[Any, Item]) -> None:
    """Restore the table to items that `all_items` returned earlier, as a backup does."""
    for job_id, key in all_items(watermarks):
        watermarks.store.delete(job_id, key)
    for item in backup.values():
        put_item(watermarks, item)


def change_item(watermarks: Watermarks, job_id: str, range_key: str, /, **attributes: Any) -> None:
    """Write some attributes of a raw item, and leave the others unchanged."""
    put_item(watermarks, item_of(watermarks, job_id, range_key) | attributes)


def plant(
    watermarks: Watermarks, job_id: str, lists: Mapping[str, Sequence[Mapping[str, Any]]], at: str = items.HEAD_KEY
) -> None:
    """Put lists of records into an item without the package's checks, as any writer of the job's items can."""
    change_item(watermarks, job_id, at, **{name: {"S": json.dumps(list(found))} for name, found in lists.items()})


def log_keys(found: Iterable[str]) -> list[str]:
    """Return those of the range keys that belong to log entries."""
    return [key for key in found if key.startswith(items.LOG_PREFIX)]


def chunk_keys(found: Iterable[str]) -> list[str]:
    """Return those of the range keys that belong to chunks, of plans and of states."""
    return [key for key in found if key.startswith(("!p#", "!s#"))]
