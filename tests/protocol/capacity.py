"""Consumed capacity by DynamoDB's own rules, worked out from the sizes of the items that a client moves.

Developer Guide, "DynamoDB item sizes and formats" and "read and write operations": a strongly
consistent read costs one unit per 4 KB, rounded up; a query the sum of its items; a
write one unit per KB of the larger of the item before and after. An emulator's own figures are kept
beside them.
"""

from __future__ import annotations

import math
from typing import Any

Item = dict[str, Any]


def item_bytes(item: Item) -> int:
    """Return the size of an item: its names and its values."""
    return sum(len(name.encode()) + value_bytes(value) for name, value in item.items())


def value_bytes(attribute: dict[str, Any]) -> int:
    """Return the size of a value: a number takes one byte for two digits plus one, a map 3 plus 1 for each entry."""
    ((tag, value),) = attribute.items()
    if tag == "S":
        return len(value.encode())
    if tag == "N":
        return (len(value.strip("-").replace(".", "")) + 1) // 2 + 1 + value.startswith("-")
    if tag == "B":
        return len(value)
    if tag == "M":
        return 3 + len(value) + item_bytes(value)
    if tag == "L":
        return 3 + len(value) + sum(map(value_bytes, value))
    return 1


def read_units(items: list[Item]) -> int:
    """Return the read units of one strongly consistent request that returns these items, possibly none."""
    return max(1, math.ceil(sum(map(item_bytes, items)) / 4096))


def write_units(before: Item | None, after: Item | None) -> int:
    """Return the write units of one write; a refused write, or one of a missing item, costs at least one unit."""
    return max(1, math.ceil(max(item_bytes(before or {}), item_bytes(after or {})) / 1024))


class Meter:
    """Adds up what a client's requests cost; `clear` resets the sums.

    Attributes
    ----------
    reads, writes : int
        Units by DynamoDB's rules.
    reported : list of float
        What the server says that each request cost.
    """

    def __init__(self, client: Any) -> None:
        self.reads = self.writes = 0
        self.reported: list[float] = []
        self._items: dict[tuple[str, str], Item] = {}
        self._params: dict[str, Any] = {}
        client.meta.events.register("provide-client-params.dynamodb", self._ask)
        client.meta.events.register("after-call.dynamodb", self._count)

    def clear(self) -> None:
        self.reads = self.writes = 0
        self.reported.clear()

    def _ask(self, params: dict[str, Any], model: Any, **_: Any) -> dict[str, Any]:
        self._params = params
        members = model.input_shape.members
        return params | {"ReturnConsumedCapacity": "TOTAL"} if "ReturnConsumedCapacity" in members else params

    def _count(self, parsed: dict[str, Any], model: Any, **_: Any) -> None:
        if "ConsumedCapacity" in parsed:
            self.reported.append(parsed["ConsumedCapacity"]["CapacityUnits"])
        if model.name in ("GetItem", "Query"):
            found = parsed.get("Items", [parsed["Item"]] if "Item" in parsed else [])
            self.reads += read_units(found)
            self._items |= {_key(item): item for item in found}
        if model.name in ("PutItem", "UpdateItem", "DeleteItem"):
            key = _key(self._params.get("Item") or self._params["Key"])
            before, applied = self._items.get(key), "Error" not in parsed
            after = self._params.get("Item", before if model.name == "UpdateItem" else None)
            self.writes += write_units(before, after)
            if applied:
                self._items[key] = after or {}


def _key(item: Item) -> tuple[str, str]:
    return item["jobName"]["S"], item["runId"]["S"]
