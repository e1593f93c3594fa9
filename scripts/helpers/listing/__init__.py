"""Seeing objects: complete listings, inventory reports and events, and the S3 client that they ask by.

May not know: what is new. A listing says what is there; `files` compares it with what is remembered.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.listing.events import S3EventQueue as S3EventQueue
    from scripts.helpers.listing.inventory import S3Inventory as S3Inventory
    from scripts.helpers.listing.listing import Listing as Listing
    from scripts.helpers.listing.listing import Location as Location
    from scripts.helpers.listing.metadata_tables import S3MetadataInventory as S3MetadataInventory
    from scripts.helpers.listing.metadata_tables import S3MetadataJournal as S3MetadataJournal

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "events": ["S3EventQueue"],
        "inventory": ["S3Inventory"],
        "listing": ["Location", "Listing"],
        "metadata_tables": ["S3MetadataInventory", "S3MetadataJournal"],
    },
)
