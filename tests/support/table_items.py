"""The raw items that a table holds, read past the package: all of them, or those of one job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from scripts.helpers.protocol import dynamodb, items
from scripts.helpers.protocol.requests import Between
from scripts.helpers.watermarks import Watermarks

Item = dict[str, Any]
Stored = Callable[[], dict[str, Item]]
"""What the fixture `stored` is: a reader of the items of the test's job."""


def all_items(watermarks: Watermarks) -> dict[tuple[str, str], Item]:
    """Return the items of all jobs by job and range key."""
    client: Any = watermarks.store.client
    pages = client.get_paginator("scan").paginate(TableName=watermarks.table_name, ConsistentRead=True)
    return {(item[items.HASH_KEY]["S"], item[items.RANGE_KEY]["S"]): item for page in pages for item in page["Items"]}


def items_of(client: Any, table_name: str, job_id: str) -> dict[str, Item]:
    """Return the items of a job by range key, from a table or from its double, which has no paginator."""
    request = dynamodb.query(table_name, Between(job_id))
    found: dict[str, Item] = {}
    while True:
        page = client.query(**request)
        found |= {item[items.RANGE_KEY]["S"]: item for item in page["Items"]}
        if "LastEvaluatedKey" not in page:
            return found
        request = request | {"ExclusiveStartKey": page["LastEvaluatedKey"]}


def item_of(watermarks: Watermarks, job_id: str, range_key: str = items.HEAD_KEY) -> Item:
    """Return one raw item."""
    key = items.key(job_id, range_key)
    found = watermarks.store.client.get_item(TableName=watermarks.table_name, Key=key, ConsistentRead=True)
    return dict(found["Item"])


def plant(
    watermarks: Watermarks, job_id: str, lists: Mapping[str, Sequence[Mapping[str, Any]]], at: str = items.HEAD_KEY
) -> None:
    """Put lists of records into an item, past the package, as who may write a job's items can."""
    item = item_of(watermarks, job_id, at) | {name: {"S": json.dumps(list(found))} for name, found in lists.items()}
    watermarks.store.client.put_item(TableName=watermarks.table_name, Item=item)


def log_keys(found: Iterable[str]) -> list[str]:
    """Return which of the range keys are those of log entries."""
    return [key for key in found if key.startswith(items.LOG_PREFIX)]


def chunk_keys(found: Iterable[str]) -> list[str]:
    """Return which of the range keys are those of chunks, of plans and of states."""
    return [key for key in found if key.startswith(("!p#", "!s#"))]
