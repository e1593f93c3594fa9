"""Other ways to see objects than to list them: what reports and events must offer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from scripts.helpers.listing.listing import Location
from scripts.helpers.listing.objects import Interval

if TYPE_CHECKING:
    from scripts.helpers.listing.metadata_tables import Recorded


class ListingSource(Protocol):
    """What can show all objects of a location without listing it, such as `S3Inventory`."""

    @property
    def created(self) -> datetime:
        """When what is shown was true."""

    def list_objects(self, location: Location) -> Iterable[Interval]:
        """Return intervals that tile all keys, with objects as LISTED."""


class Told(Protocol):
    """What events told of: keys of objects to which something happened, and whether there is more."""

    @property
    def keys(self) -> Sequence[str]: ...  # noqa: D102

    @property
    def has_more(self) -> bool: ...  # noqa: D102


class EventSource(Protocol):
    """What tells of new objects one by one, such as `S3EventQueue`."""

    def receive(self, location: Location, at_most: int | None = None) -> Told:
        """Return what was told of and not acknowledged, of so many events where a batch takes no more files."""

    def acknowledge(self, *, but: Collection[str] = ()) -> int:
        """Forget what was received, except for some keys; called after the commit."""

    def extend(self, seconds: int) -> None:
        """Keep what was received from other runs for so many seconds from now; 0: show it to them at once."""


class JournalSource(Protocol):
    """What keeps a record of all changes of objects, such as `S3MetadataJournal`."""

    def read(self, location: Location, position: Mapping[str, Any] | None) -> Recorded:
        """Return the changes since a position that an earlier call returned."""
