"""DynamoDB in memory: atomic requests, faults at any request, stale reads. It supports only our expressions."""

from __future__ import annotations

import marshal
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError

from tests.support.expressions import Names, Refused, item_size

Item = dict[str, Any]
Key = tuple[str, str]
HASH, RANGE, TTL = "jobName", "runId", "expiresAt"
MAX_ITEM_BYTES = 400 * 1024
PAGE_BYTES = 1024 * 1024
OPERATIONS = {
    "get_item": "GetItem",
    "put_item": "PutItem",
    "update_item": "UpdateItem",
    "delete_item": "DeleteItem",
    "query": "Query",
    "describe_table": "DescribeTable",
}
FAULTS = (None, "drop", "reply-lost", "re-send", "throttle", "die-before", "die-after")
_CONDITIONS = {"ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues"}
_PARAMETERS = {
    "get_item": {"Key", "ConsistentRead"},
    "put_item": {"Item", *_CONDITIONS},
    "update_item": {"Key", "UpdateExpression", *_CONDITIONS},
    "delete_item": {"Key", *_CONDITIONS},
    "query": {
        "KeyConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues", "ConsistentRead",
        "ExclusiveStartKey", "Limit", "ScanIndexForward",
    },
    "describe_table": set(),
}  # fmt: skip
_REFUSALS = {
    "throttle": "ProvisionedThroughputExceededException",
    "conflict": "ConditionalCheckFailedException",
    "no table": "ResourceNotFoundException",
    "invalid": "ValidationException",
}


class Died(BaseException):
    """The process died at a request; nothing that it would have done afterwards happens."""


class FakeDynamoDB:
    """A client for `Watermarks(table_name, dynamodb_client=...)`, with one empty table.

    Parameters
    ----------
    stale_reads
        Reads without ConsistentRead return the state before the last write.

    Attributes
    ----------
    requests : list
        Every request so far as (operation, parameters); a re-sent one counts once.
    fault : callable or None
        Called as ``fault(number, operation, params)`` before every request; `number` is the request's place
        in `requests`, from 1; returns one of FAULTS. It may send requests of its own, which come first.
    seen : callable or None
        Called after every write that took effect, with its key and the item before and after.
    page_items : int or None
        Items on one page of a query, to get more than one page; real pages end only at 1 MB.
    """

    def __init__(self, table_name: str = "table", *, stale_reads: bool = False) -> None:
        self.table_name = table_name
        self.stale_reads = stale_reads
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.fault: Callable[[int, str, dict[str, Any]], str | None] | None = None
        self.seen: Callable[[Key, Item | None, Item | None], None] | None = None
        self.page_items: int | None = None
        self.meta = SimpleNamespace(
            region_name="eu-west-2", endpoint_url="http://memory", method_to_api_mapping=dict(OPERATIONS)
        )
        self._lock = threading.RLock()
        self._items: dict[Key, bytes] = {}
        self._before: dict[Key, bytes] = {}

    # --- for tests ------------------------------------------------------------------------------

    @property
    def items(self) -> dict[Key, Item]:
        """Return a copy of all items by (job, range key), in order."""
        with self._lock:
            return {key: marshal.loads(self._items[key]) for key in sorted(self._items)}

    def item(self, job_id: str, range_key: str) -> Item | None:
        """Return a copy of one item, or None if there is none."""
        with self._lock:
            return self._load((job_id, range_key))

    def stored(self, job_id: str, range_key: str) -> bytes | None:
        """Return the bytes that represent an item in memory, the same for equal items; None if there is no item."""
        return self._items.get((job_id, range_key))

    def sweep(self, now: datetime) -> list[Key]:
        """Delete every expired item, as DynamoDB eventually does; return their keys."""
        with self._lock:
            past = [key for key, item in self.items.items() if TTL in item and int(item[TTL]["N"]) < now.timestamp()]
            for key in past:
                self._store(key, None)
            return past

    def dump(self) -> dict[Key, bytes]:
        """Return all items, in the form that `load` takes."""
        return dict(self._items)

    def load(self, kept: Mapping[Key, bytes]) -> None:
        """Replace all items with these."""
        self._items = dict(kept)

    # --- the client -----------------------------------------------------------------------------

    def get_item(self, **params: Any) -> dict[str, Any]:
        return self._send("get_item", params)

    def put_item(self, **params: Any) -> dict[str, Any]:
        return self._send("put_item", params)

    def update_item(self, **params: Any) -> dict[str, Any]:
        return self._send("update_item", params)

    def delete_item(self, **params: Any) -> dict[str, Any]:
        return self._send("delete_item", params)

    def query(self, **params: Any) -> dict[str, Any]:
        return self._send("query", params)

    def describe_table(self, **params: Any) -> dict[str, Any]:
        return self._send("describe_table", params)

    def _send(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            params = marshal.loads(marshal.dumps(params))
            self.requests.append((method, params))
            number = len(self.requests)
        fault = self.fault(number, method, params) if self.fault else None
        assert fault in FAULTS, fault
        if fault == "die-before":
            raise Died(f"before request {number}, {method}")
        if fault == "drop":
            raise ConnectTimeoutError(endpoint_url="memory")
        if fault == "throttle":
            raise _refusal("throttle", method)
        with self._lock:
            try:
                answer = self._apply(method, params)
            except ClientError:
                if fault is None:
                    raise
            if fault == "re-send":
                return self._apply(method, params)
        if fault == "die-after":
            raise Died(f"after request {number}, {method}")
        if fault == "reply-lost":
            raise ReadTimeoutError(endpoint_url="memory")
        return answer

    def _apply(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        given = dict(params)
        if given.pop("TableName") != self.table_name:
            raise _refusal("no table", method)
        if unknown := given.keys() - _PARAMETERS[method]:
            raise NotImplementedError(f"{method} with {sorted(unknown)}")
        try:
            answer: dict[str, Any] = getattr(self, f"_{method}")(given)
        except Refused as error:
            raise _refusal("invalid", method, str(error)) from error
        return answer

    def _describe_table(self, given: dict[str, Any]) -> dict[str, Any]:
        made, arn = datetime(2026, 1, 1, tzinfo=timezone.utc), f"arn:aws:dynamodb:memory:table/{self.table_name}"
        named = {"TableName": self.table_name, "TableArn": arn, "CreationDateTime": made}
        return {"Table": named | {"TableStatus": "ACTIVE"}}

    def _get_item(self, given: dict[str, Any]) -> dict[str, Any]:
        found = self._seen(given).get(_key(given["Key"], exact=True))
        return {"Item": marshal.loads(found)} if found else {}

    def _put_item(self, given: dict[str, Any]) -> dict[str, Any]:
        key = _key(given["Item"])
        self._check(key, given, Names(given), "put_item")
        self._store(key, given["Item"])
        return {}

    def _update_item(self, given: dict[str, Any]) -> dict[str, Any]:
        key = _key(given["Key"], exact=True)
        names = Names(given)
        changed = names.updated(given["UpdateExpression"], self._load(key) or given["Key"])
        self._check(key, given, names, "update_item")
        if _key(changed) != key:
            raise Refused("Cannot update attribute. This attribute is part of the key")
        self._store(key, changed)
        return {}

    def _delete_item(self, given: dict[str, Any]) -> dict[str, Any]:
        key = _key(given["Key"], exact=True)
        self._check(key, given, Names(given), "delete_item")
        self._store(key, None)
        return {}

    def _query(self, given: dict[str, Any]) -> dict[str, Any]:
        names = Names(given)
        asked, job, first, last = names.key_range(given["KeyConditionExpression"])
        names.check_used()
        if asked != [HASH, RANGE][: len(asked)]:
            raise Refused("Query condition missed key schema element")
        if first > last:
            raise Refused("The BETWEEN operator requires upper bound to be greater than lower")
        backwards = not given.get("ScanIndexForward", True)
        seen = self._seen(given)
        keys = sorted((key for key in seen if key[0] == job and first <= key[1] <= last), reverse=backwards)
        if start := given.get("ExclusiveStartKey"):
            after = _key(start, exact=True)
            keys = [key for key in keys if (key < after if backwards else key > after)]
        return _page([(key, marshal.loads(seen[key])) for key in keys], given.get("Limit"), self.page_items)

    # --- the table ------------------------------------------------------------------------------

    def _seen(self, given: dict[str, Any]) -> dict[Key, bytes]:
        return self._before if self.stale_reads and not given.get("ConsistentRead") else self._items

    def _load(self, key: Key) -> Item | None:
        return marshal.loads(self._items[key]) if key in self._items else None

    def _store(self, key: Key, item: Item | None) -> None:
        before = self._load(key) if self.seen else None
        self._put(key, item)
        if self.seen:
            self.seen(key, before, item)

    def _put(self, key: Key, item: Item | None) -> None:
        self._before = dict(self._items)
        if item is None:
            self._items.pop(key, None)
            return
        # Version 0 of marshal shares no texts, so the bytes are at least as many as DynamoDB counts.
        data = marshal.dumps(item, 0)
        if len(data) > MAX_ITEM_BYTES and (size := item_size(item)) > MAX_ITEM_BYTES:
            raise Refused(f"Item size has exceeded the maximum allowed size: {size}")
        self._items[key] = data

    def _check(self, key: Key, given: dict[str, Any], names: Names, method: str) -> None:
        expression = given.get("ConditionExpression")
        holds = expression is None or names.holds(expression, self._load(key) or {})
        names.check_used()
        if not holds:
            raise _refusal("conflict", method, "The conditional request failed")


def _page(found: list[tuple[Key, Item]], limit: int | None, page_items: int | None) -> dict[str, Any]:
    """Return one page: it ends at the limit, and another page follows if any item is left."""
    taken: list[tuple[Key, Item]] = []
    size = 0
    most = min(count for count in (limit, page_items, len(found)) if count is not None)
    for key, item in found[:most]:
        taken.append((key, item))
        size += item_size(item)
        if size >= PAGE_BYTES:
            break
    answer: dict[str, Any] = {"Items": [item for _, item in taken], "Count": len(taken)}
    if len(taken) < len(found):
        job, range_key = taken[-1][0]
        answer["LastEvaluatedKey"] = {HASH: {"S": job}, RANGE: {"S": range_key}}
    return answer


def _key(item: Item, exact: bool = False) -> Key:
    texts = [item.get(name, {}).get("S") for name in (HASH, RANGE)]
    if not all(texts) or (exact and set(item) != {HASH, RANGE}):
        raise Refused("The provided key element does not match the schema")
    return texts[0], texts[1]


def _refusal(kind: str, method: str, message: str = "injected") -> ClientError:
    answer: Any = {"Error": {"Code": _REFUSALS[kind], "Message": message}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    return ClientError(answer, OPERATIONS[method])
