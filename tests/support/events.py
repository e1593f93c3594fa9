"""Event sources: one in memory, which repeats its events until they are acknowledged, and one over a directory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from scripts.helpers.listing.listing import Listing, Location


@dataclass(frozen=True)
class Told:
    """The keys that events named."""

    keys: Sequence[str]
    has_more: bool = False


@dataclass
class Events:
    """Events of a bucket, in the order in which they were sent."""

    sent: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    """The calls made, with the keys that they left."""

    def receive(self, location: Location, at_most: int | None = None) -> Told:
        self.log.append("receive")
        return Told(sorted(set(self.sent)))

    def acknowledge(self, *, but: Collection[str] = ()) -> int:
        self.log.append(f"acknowledge but {','.join(sorted(but))}")
        before = len(self.sent)
        self.sent = [key for key in self.sent if key in but]
        return before - len(self.sent)

    def extend(self, seconds: int) -> None:
        self.log.append(f"extend {seconds}")


class DirectoryEvents:
    """Events for all files of a directory; it counts how they are acknowledged and extended."""

    def __init__(self) -> None:
        self.acknowledged, self.extended = 0, list[int]()

    def receive(self, location: Location, at_most: int | None = None) -> Told:
        return Told([key for interval in Listing(location) for key in interval.rows.column("key").to_pylist()])

    def acknowledge(self, *, but: Collection[str] = ()) -> int:
        self.acknowledged += 1
        return 0

    def extend(self, seconds: int) -> None:
        self.extended.append(seconds)
