"""Checks whether planned objects have changed since they were planned."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers._lazy import S3Client
from scripts.helpers.display.options import check_choice
from scripts.helpers.errors import ChangedObjectError, InvalidValueError
from scripts.helpers.files.diff import compare
from scripts.helpers.listing.listing import Lister, ListingOptions
from scripts.helpers.listing.objects import LISTED, TAKEN, Interval, ledger_rows, no_batch
from scripts.helpers.listing.s3 import make_client
from scripts.helpers.reading.fetch import WORKERS_HERE, Planned, fetcher_of, planned_of

if TYPE_CHECKING:
    from scripts.helpers.files.rules import FileOptions
    from scripts.helpers.listing.listing import Location

AT_ONCE = 100_000
"""Most planned objects whose rows from listing pages are in memory at once."""
Changed = tuple[list[str], list[str]]
"""Keys that were overwritten, and keys that were deleted."""


def check_on_changed(on_changed: str | None, location: Location, options: FileOptions) -> None:
    """Raise InvalidValueError for ``skip`` if a file that is left out might never be taken.

    A frozen plan never changes, so the left-out file counts as taken. A later batch takes it only if the file then
    differs from the planned object, and only if the options take changed objects.
    """
    check_choice("on_changed", on_changed, ("raise", "skip", None))
    if on_changed != "skip":
        return
    if options.on_modified != "take":
        raise InvalidValueError(
            f"on_changed='skip' leaves a changed file to the next batch, where on_modified={options.on_modified!r} "
            "would not take it. Use on_modified='take', or discard the plan."
        )
    if not location.is_local and options.compare != "mtime" and not options.versioned:
        raise InvalidValueError(
            "on_changed='skip' leaves a changed file to the next batch, which would not see it if its old bytes are "
            "back by then. Use versioned=True or compare='mtime' with it, or discard the plan."
        )


def check_unchanged(
    location: Location,
    table: pa.Table,
    s3_client: S3Client | None = None,
    on_changed: Literal["raise", "skip"] = "raise",
    *,
    request_payer: bool = False,
    pinned: bool = False,
) -> pa.Table:
    """Compare planned objects with the current objects of the source.

    Call it before Spark's own readers read, and again before the commit: an object with the same ETag
    both times was the same in between. An object that was overwritten has another identity, so the next
    batch takes it if this batch leaves it out.

    Parameters
    ----------
    table
        The planned objects, with the columns of `FileDelta.table`.
    on_changed
        ``raise`` raises an error if an object changed; ``skip`` leaves changed objects out of the result.
    pinned
        For an object with a planned VersionId, only check that the version exists: a read by version returns the
        same bytes, whatever was written or deleted since.

    Returns
    -------
    pa.Table
        The rows of `table` that are unchanged, in their order.

    Raises
    ------
    ChangedObjectError
        It names the keys that were overwritten and the keys that were deleted.
    SourceError
        The source could not be read, so it is unknown whether objects changed.
    """
    overwritten, deleted = find_changed(location, table, s3_client, request_payer=request_payer, pinned=pinned)
    if not overwritten and not deleted:
        return table
    if on_changed == "raise":
        raise ChangedObjectError(str(location), sorted(overwritten), sorted(deleted))
    changed = pa.array([*overwritten, *deleted], pa.string())
    return table.filter(pc.invert(pc.is_in(table.column("key"), changed)))


def find_changed(
    location: Location,
    table: pa.Table,
    s3_client: S3Client | None = None,
    *,
    request_payer: bool = False,
    pinned: bool = False,
) -> Changed:
    """Return the keys of the planned objects that were overwritten, and of those that were deleted.

    Neighbouring objects on S3 are compared with pages of a listing if that costs less. Each object that no page shows
    as planned is then checked with its own request. Objects in other stores are compared with a full listing.
    """
    if location.is_local:
        return _look(location, table, s3_client, request_payer, pinned)
    has_versions = bool(table.column("version_id").null_count < table.num_rows)
    lister = Lister(location, s3_client, ListingOptions(has_versions, request_payer, WORKERS_HERE))
    if not location.is_s3:
        return _keys_unlike_listing(
            table, pa.concat_tables(pa.Table.from_batches([one.rows]) for one in lister.below([""]))
        )
    s3_client = s3_client or make_client(WORKERS_HERE)
    overwritten: list[str] = []
    deleted: list[str] = []
    table = table.sort_by("key")
    for start in range(0, table.num_rows, AT_ONCE):
        part = table.slice(start, AT_ONCE)
        if rows := lister.on_pages(part.column("key").to_pylist(), s3_client, []):
            # Check each object that the listed page does not show as planned: a page shows only newest versions, but
            # the planned one may still exist, and a server may omit the first key of a range of versions (moto does).
            suspects = chain(*_keys_unlike_listing(part, pa.Table.from_pylist(rows, LISTED)))
            part = part.filter(pc.is_in(part.column("key"), pa.array(suspects, pa.string())))
        found = _look(location, part, s3_client, request_payer, pinned)
        overwritten += found[0]
        deleted += found[1]
    return overwritten, deleted


def _keys_unlike_listing(table: pa.Table, listed: pa.Table) -> Changed:
    """Return the keys of planned objects whose identity differs in a listing, and of planned objects it lacks."""
    rows = listed.combine_chunks().to_batches()[0] if listed.num_rows else no_batch(LISTED)
    found = compare(Interval(None, None, rows), rows, ledger_rows(table, TAKEN, 0, ""))
    return found.modified.column("key").to_pylist(), found.gone.column("key").to_pylist()


def _look(
    location: Location, table: pa.Table, s3_client: S3Client | None, request_payer: bool, pinned: bool
) -> Changed:
    planned = list(planned_of(table))
    fetcher = fetcher_of(location, s3_client, WORKERS_HERE, request_payer)

    def look(one: Planned) -> ChangedObjectError | None:
        try:
            fetcher.look(one, pinned)
        except ChangedObjectError as error:
            return error
        return None

    overwritten: list[str] = []
    deleted: list[str] = []
    with ThreadPoolExecutor(WORKERS_HERE) as pool:
        for error in pool.map(look, planned):
            if error is not None:
                overwritten += error.overwritten
                deleted += error.deleted
    return overwritten, deleted
