"""Event sources: one in memory, whose events come again until they are acknowledged, and one of a directory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from scripts.helpers.listing.listing import Listing, Location


@dataclass(frozen=True)
class Told:
    """What events told of."""

    keys: Sequence[str]
    has_more: bool = False


@dataclass
class Events:
    """Events of a bucket, in the order in which they were sent."""

    sent: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    """What was called, and with which keys left."""

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
    """Events of all files of a directory, which count what becomes of them."""

    def __init__(self) -> None:
        self.acknowledged, self.extended = 0, list[int]()

    def receive(self, location: Location, at_most: int | None = None) -> Told:
        return Told([key for interval in Listing(location) for key in interval.rows.column("key").to_pylist()])

    def acknowledge(self, *, but: Collection[str] = ()) -> int:
        self.acknowledged += 1
        return 0

    def extend(self, seconds: int) -> None:
        self.extended.append(seconds)
