"""Listings of Google Cloud Storage and Azure, by obstore."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from scripts.helpers.errors import SourceError
from scripts.helpers.listing.objects import LISTED

SCHEMES = ("gs", "abfs", "abfss")


def list_store(source: str, scheme: str, bucket: str, base: str, folder: str) -> Iterator[pa.RecordBatch]:
    """List a folder below a base, in no promised order, as rows of LISTED with keys relative to the base.

    Credentials are found as obstore finds them (environment, instance). obstore shows the marker of a
    folder as an empty object of the folder's name; such a one is left out where the folder has objects.

    Raises
    ------
    SourceError
        obstore is not installed, or cannot list the whole prefix.
    """
    try:
        import obstore
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError as error:
        raise SourceError(source, "it needs obstore. Install it: pip install 'glue-watermarks[fast]'.") from error
    pages: list[list[Any]] = []
    try:
        pages.extend(obstore.list(from_url(f"{scheme}://{bucket}/"), prefix=base + folder or None))
    except BaseError as error:
        reason = str(error).partition("\n")[0]
        raise SourceError(source, f"it cannot be listed ({reason}). Check the name and the login.") from error
    folders = {folder for page in pages for found in page for folder in _folders(found["path"])}
    for page in pages:
        yield _rows([found for found in page if found["size"] or found["path"] not in folders], len(base))


def _folders(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _rows(found: list[Any], start: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([one["path"][start:] for one in found], pa.string()),
            pa.array([(one["e_tag"] or "").strip('"') for one in found], pa.string()),
            pa.array([one["version"] for one in found], pa.string()),
            pa.array([one["size"] for one in found], pa.int64()),
            pa.array([one["last_modified"] for one in found], LISTED.field("modified").type),
            pa.nulls(len(found), pa.string()),
        ],
        schema=LISTED,
    )
