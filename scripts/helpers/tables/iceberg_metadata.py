"""What the metadata of an Iceberg table says: its snapshots, and which of them came after which. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from scripts.helpers.tables.sources import Commit, Kind

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
KINDS: Mapping[str, Kind] = {"append": "append", "replace": "nothing"}
"""What becomes of rows by an operation; any other one may take rows away."""
DELETES = ("added-delete-files", "added-position-deletes", "added-equality-deletes", "added-dvs")
"""Counts of a snapshot that say that rows are marked as deleted, in place of files written anew."""
UNKNOWN = "unknown"
"""Operation of a snapshot without a summary, as the first writers left it: nothing says that it took no row away."""


@dataclass(frozen=True)
class Snapshot:
    """One snapshot of a table.

    `sequence` is 0 in tables of format version 1. `marks_deletes` says that rows are marked as deleted beside their
    files.
    """

    id: int
    parent: int | None
    operation: str
    at: datetime
    sequence: int
    marks_deletes: bool

    @property
    def told(self) -> Commit:
        """The snapshot, in the words of all formats."""
        return Commit(self.id, KINDS.get(self.operation, "overwrite"), self.operation, self.at)


@dataclass(frozen=True)
class Metadata:
    """What a table says of itself at one moment."""

    uuid: str
    current: int | None
    last_sequence: int
    snapshots: Mapping[int, Snapshot]

    def lineage(self, end: int) -> Iterator[Snapshot]:
        """Yield a snapshot and those before it, as far back as they are kept."""
        found = self.snapshots.get(end)
        while found is not None:
            yield found
            found = None if found.parent is None else self.snapshots.get(found.parent)

    def since(self, after: int, end: int) -> list[Snapshot] | None:
        """Return the snapshots after one, in order; None if it is none of those before the end, or one is gone."""
        if after == end:
            return []
        found: list[Snapshot] = []
        for snapshot in self.lineage(end):
            found.append(snapshot)
            # The watermark itself may have expired, as long as nothing after it has.
            if snapshot.parent == after:
                return found[::-1]
        return None


def read_metadata(text: str) -> Metadata:
    """Read the metadata of a table, as its catalog keeps it.

    Examples
    --------
    >>> found = read_metadata('{"table-uuid": "1", "current-snapshot-id": -1}')
    >>> found.current, found.snapshots, found.last_sequence
    (None, {}, 0)
    """
    stored: Mapping[str, Any] = json.loads(text)
    snapshots = {}
    for one in stored.get("snapshots") or ():
        summary = one.get("summary") or {}
        snapshots[one["snapshot-id"]] = Snapshot(
            one["snapshot-id"],
            one.get("parent-snapshot-id"),
            str(summary.get("operation") or UNKNOWN),
            EPOCH + timedelta(milliseconds=one["timestamp-ms"]),
            one.get("sequence-number") or 0,
            any(int(summary.get(name) or 0) for name in DELETES),
        )
    # Early writers have -1 for none.
    current = stored.get("current-snapshot-id")
    return Metadata(
        str(stored["table-uuid"]),
        current if current in snapshots else None,
        stored.get("last-sequence-number") or 0,
        snapshots,
    )
