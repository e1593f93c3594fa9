"""Whether planned objects are still what they were when they were planned."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers.errors import ChangedObjectError
from scripts.helpers.file_diff import Known, compare
from scripts.helpers.identities import TAKEN, ledger_rows
from scripts.helpers.object_fetch import ObjectFetcher, Planned
from scripts.helpers.object_listing import Listing, ListingOptions
from scripts.helpers.s3_client import make_client

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from scripts.helpers.object_listing import Location

WORKERS = 16
LOOKED_AT_ONE_BY_ONE = 1_000
"""Up to so many objects, a HEAD each; above, a listing, which shows 1,000 a request."""


def check_unchanged(
    location: Location,
    table: pa.Table,
    s3_client: S3Client | None = None,
    on_changed: Literal["error", "skip"] = "error",
    *,
    request_payer: bool = False,
) -> pa.Table:
    """Compare planned objects with what is there now.

    Call it before Spark's own readers read, and again before the commit: an object whose ETag is the
    same both times was that between them. An object that was overwritten has another identity, so the
    next batch has it, if this one leaves it out.

    Parameters
    ----------
    table
        The planned objects, with the columns of `FileDelta.table`.
    on_changed
        ``error`` raises; ``skip`` leaves changed objects out of what is returned.

    Returns
    -------
    pa.Table
        The rows of `table` that are unchanged, in their order.

    Raises
    ------
    ChangedObjectError
        Names the keys that were overwritten and those that were deleted.
    SourceError
        The source could not be asked. Nothing is known then.
    """
    if location.is_local or (location.is_s3 and table.num_rows <= LOOKED_AT_ONE_BY_ONE):
        planned = list(map(Planned, *(table.column(name).to_pylist() for name in Planned._fields)))
        overwritten, deleted = _look(location, planned, s3_client, request_payer)
    else:
        overwritten, deleted = _list(location, table, s3_client, request_payer)
    if not overwritten and not deleted:
        return table
    if on_changed == "error":
        raise ChangedObjectError(str(location), sorted(overwritten), sorted(deleted))
    changed = pa.array([*overwritten, *deleted], pa.string())
    return table.filter(pc.invert(pc.is_in(table.column("key"), changed)))


def _look(
    location: Location, planned: list[Planned], s3_client: S3Client | None, request_payer: bool
) -> tuple[list[str], list[str]]:
    client = s3_client if location.is_local or s3_client else make_client(WORKERS)
    fetcher = ObjectFetcher(location, client, request_payer)

    def look(one: Planned) -> ChangedObjectError | None:
        try:
            fetcher.look(one)
        except ChangedObjectError as error:
            return error
        return None

    overwritten: list[str] = []
    deleted: list[str] = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for error in pool.map(look, planned):
            if error is not None:
                overwritten += error.overwritten
                deleted += error.deleted
    return overwritten, deleted


def _list(
    location: Location, table: pa.Table, s3_client: S3Client | None, request_payer: bool
) -> tuple[list[str], list[str]]:
    """List the location once more and compare it with what was planned, as the next batch would."""
    planned = Known([ledger_rows(table.sort_by("key"), TAKEN, 0, "")])
    versioned = table.column("version_id").null_count < table.num_rows
    overwritten: list[str] = []
    deleted: list[str] = []
    for interval in Listing(location, s3_client, ListingOptions(versioned=versioned, request_payer=request_payer)):
        found = compare(interval, interval.rows, planned.between(interval.after, interval.until))
        overwritten += found.modified.column("key").to_pylist()
        deleted += found.gone.column("key").to_pylist()
    return overwritten, deleted
