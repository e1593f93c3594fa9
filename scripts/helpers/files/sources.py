"""Protocols of sources that show objects without a listing: reports, events and journals."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from scripts.helpers.listing.listing import Location
from scripts.helpers.listing.objects import Interval

if TYPE_CHECKING:
    from scripts.helpers.listing.metadata_tables import Recorded


class ListingSource(Protocol):
    """Shows all objects of a location without listing it, such as `S3Inventory`."""

    @property
    def created(self) -> datetime:
        """When the report (such as an S3 inventory) was made: it shows the objects that the location had then."""

    def list_objects(self, location: Location) -> Iterable[Interval]:
        """Return the objects below a location as intervals, which together cover all keys without a gap."""


class Told(Protocol):
    """Objects named by events: their keys, and whether there are more events."""

    @property
    def keys(self) -> Sequence[str]: ...  # noqa: D102

    @property
    def has_more(self) -> bool: ...  # noqa: D102


class EventSource(Protocol):
    """Reports new objects one by one, such as `S3EventQueue`."""

    def receive(self, location: Location, at_most: int | None = None) -> Told:
        """Receive waiting events, and return the objects that they name. `at_most` limits the number of events."""

    def acknowledge(self, *, but: Collection[str] = ()) -> int:
        """Delete the received events, except events about the keys in `but`. Called after the commit."""

    def extend(self, seconds: int) -> None:
        """Hide the received events from other runs for so many seconds from now; 0 shows them to other runs at once."""


class JournalSource(Protocol):
    """Records all changes of objects, such as `S3MetadataJournal`."""

    def read(self, location: Location, position: Mapping[str, Any] | None) -> Recorded:
        """Return the changes since a position that an earlier call returned."""
