"""An event source in memory: what it told of comes again until it is acknowledged."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from scripts.helpers.listing.listing import Location
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
