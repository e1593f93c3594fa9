"""Event sources: one in memory, whose events come again until they are acknowledged, and one of a directory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from scripts.helpers.listing.listing import Listing, Location
from scripts.helpers.listing.objects import LISTED
from tests.support.buckets import Bucket


@dataclass(frozen=True)
class Told:
    """What events told of."""

    rows: pa.Table
    removed: Sequence[str] = ()
    has_more: bool = False

    @classmethod
    def of(cls, bucket: Bucket, keys: Collection[str], removed: Sequence[str] = (), has_more: bool = False) -> Told:
        """Return what events tell of objects of a bucket."""
        rows = [bucket.objects[key] | {"storage_class": None} for key in keys]
        return cls(pa.Table.from_pylist(rows, LISTED), removed, has_more)


@dataclass
class Events:
    """Events of a bucket, in the order in which they were sent."""

    bucket: Bucket
    sent: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    """What was called, and with which keys left."""

    def receive(self, location: Location) -> Told:
        self.log.append("receive")
        return Told.of(self.bucket, dict.fromkeys(self.sent), tuple(self.removed))

    def acknowledge(self, *, but: Collection[str] = ()) -> int:
        self.log.append(f"acknowledge but {','.join(sorted(but))}")
        before = len(self.sent)
        self.sent = [key for key in self.sent if key in but]
        self.removed.clear()
        return before - len(self.sent)


class DirectoryEvents:
    """Events of all files of a directory, which count what becomes of them."""

    def __init__(self) -> None:
        self.acknowledged, self.extended = 0, list[int]()

    def receive(self, location: Location) -> Told:
        return Told(pa.Table.from_batches([interval.rows for interval in Listing(location)]))

    def acknowledge(self, *, but: Collection[str] = ()) -> int:
        self.acknowledged += 1
        return 0

    def extend(self, seconds: int) -> None:
        self.extended.append(seconds)
