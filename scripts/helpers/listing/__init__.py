"""Seeing objects: complete listings, inventory reports and events, and the S3 client that they ask by.

May not know: what is new. A listing says what is there; `files` compares it with what is remembered.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.listing.events import S3EventQueue
    from scripts.helpers.listing.inventory import S3Inventory
    from scripts.helpers.listing.listing import Listing, Location
    from scripts.helpers.listing.metadata_tables import S3MetadataInventory, S3MetadataJournal

__all__ = [
    "Listing",
    "Location",
    "S3EventQueue",
    "S3Inventory",
    "S3MetadataInventory",
    "S3MetadataJournal",
]
__getattr__, __dir__ = lazy(
    __name__,
    {
        "events": ["S3EventQueue"],
        "inventory": ["S3Inventory"],
        "listing": ["Location", "Listing"],
        "metadata_tables": ["S3MetadataInventory", "S3MetadataJournal"],
    },
)
