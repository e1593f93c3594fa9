"""A table in which all jobs but one have something altered, as any principal who may write one job's items can do."""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from scripts.helpers.protocol import items
from tests.support.dynamodb import FakeDynamoDB, Item

Path = tuple[str | int, ...]

LATE, EARLY = "9999-12-31T23:59:59.999999+00:00", "0001-01-01T00:00:00.000000+00:00"
SPOILED: Mapping[str, Any] = {
    "gone": None,
    "late": {"S": LATE},
    "early": {"S": EARLY},
    "moved": {"S": "0001-01-01T00:00:00+14:00"},
    "empty": {"S": ""},
    "nested": {"S": "[" * 20_000},
    "keyless": {"S": '[{"a":1}]'},
    "below": {"N": "-1"},
    "huge": {"N": "9" * 38},
    "wide": {"N": "1E+125"},
    "part": {"N": "0.5"},
    "bytes": {"B": b"\xff"},
    "map": {"M": {}},
    "list": {"L": []},
    "null": {"NULL": True},
}
"""Attributes that replace an attribute, by name; None removes the attribute."""


OF_ITS_TYPE = {
    "S": ("gone", "late", "early", "moved", "nested", "keyless"),
    "N": ("gone", "below", "huge", "wide", "part"),
}
"""The names in SPOILED for an attribute of a type; for other types it is gone or a map."""


def spoilt_by(attribute: Mapping[str, Any]) -> Sequence[str]:
    """Return the names in SPOILED of what may replace an attribute."""
    ((tag, _),) = attribute.items()
    return OF_ITS_TYPE.get(tag, ("gone", "map"))


def attribute_at(item: Item, path: Path) -> Any:
    """Return the attribute at a path."""
    found: Any = item
    for step in path:
        found = found[step]
    return found


def paths_in(attributes: Mapping[Any, Any], before: Path = ()) -> Iterator[Path]:
    """Yield the path of each attribute of an item, including those within maps and lists."""
    for name, attribute in attributes.items():
        if name in (items.HASH_KEY, items.RANGE_KEY):
            continue
        yield (*before, name)
        ((tag, value),) = attribute.items()
        if tag == "M":
            yield from paths_in(value, (*before, name, "M"))
        elif tag == "L":
            yield from paths_in(dict(enumerate(value)), (*before, name, "L"))


def spoiled(item: Item, path: Path, attribute: Any) -> Item:
    """Return an item with the attribute at a path replaced or removed."""
    made = deepcopy(item)
    holder: Any = made
    for step in path[:-1]:
        holder = holder[step]
    if attribute is None:
        del holder[path[-1]]
    else:
        holder[path[-1]] = attribute
    return made


class TableOfJobs(FakeDynamoDB):
    """The double with its items grouped by job, to read many jobs quickly, and with Scan: one page per segment."""

    def __init__(self, jobs: Mapping[str, Mapping[str, Item]]) -> None:
        super().__init__()
        self._jobs = {
            job: {(job, key): marshal.dumps(item | items.key(job, key)) for key, item in found.items()}
            for job, found in jobs.items()
        }

    def scan(self, **given: Any) -> dict[str, Any]:
        segment, total = given.get("Segment", 0), given.get("TotalSegments", 1)
        jobs = sorted(self._jobs)[segment::total]
        found = [marshal.loads(item) for job in jobs for _, item in sorted(self._jobs[job].items())]
        return {"Items": found, "Count": len(found), "ScannedCount": len(found)}

    def _seen(self, given: dict[str, Any]) -> dict[tuple[str, str], bytes]:
        key: Any = given.get("Key")
        job = key[items.HASH_KEY] if key else given["ExpressionAttributeValues"][":job"]
        return self._jobs.get(job["S"], {})
