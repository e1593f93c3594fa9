"""Whether planned objects are still what they were when they were planned."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers._lazy import S3Client
from scripts.helpers.display.options import check_choice
from scripts.helpers.errors import ChangedObjectError, InvalidValueError
from scripts.helpers.files.diff import Known, compare
from scripts.helpers.files.rules import folders_of
from scripts.helpers.listing.listing import Listing, ListingOptions
from scripts.helpers.listing.objects import TAKEN, ledger_rows, no_rows
from scripts.helpers.reading.fetch import WORKERS_HERE, Planned, fetcher_of, planned_of

if TYPE_CHECKING:
    from scripts.helpers.files.rules import FileOptions
    from scripts.helpers.listing.listing import Location

LOOKED_AT_ONE_BY_ONE = 1_000
"""Up to so many objects, a HEAD each; above, listings of the folders that have many, which show 1,000 a request."""
MANY_OF_A_FOLDER = 100
"""So many planned objects of a folder are listed from the first to the last: usually they landed together, and lie
together. Fewer are not worth it."""
Changed = tuple[list[str], list[str]]
"""Keys that were overwritten, and keys that were deleted."""


def check_on_changed(on_changed: str | None, location: Location, options: FileOptions) -> None:
    """Refuse ``skip`` where a file that is left out might never be taken. InvalidValueError says why.

    The plan was frozen with that file as taken, and a plan never changes. So the next batch has it only
    if what it finds then is another object than the planned one, and if it takes changed objects.
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
    """Compare planned objects with what is there now.

    Call it before Spark's own readers read, and again before the commit: an object whose ETag is the
    same both times was that between them. An object that was overwritten has another identity, so the
    next batch has it, if this one leaves it out.

    Parameters
    ----------
    table
        The planned objects, with the columns of `FileDelta.table`.
    on_changed
        ``raise`` raises; ``skip`` leaves changed objects out of what is returned.
    pinned
        Of objects whose VersionId is planned only that version counts: whoever reads it reads the same bytes,
        whatever was written or deleted since. It is changed only when it is gone.

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
    between: tuple[str, str] | None = None,
) -> Changed:
    """Return the keys of planned objects that were overwritten and of those that were deleted.

    Parameters
    ----------
    between
        Two keys: all planned ones are above the first and not above the second. Nothing else is listed.

    A listing that takes as many requests as are left to look at each object ends there: see `_list`.
    """
    if location.is_local or (location.is_s3 and table.num_rows <= LOOKED_AT_ONE_BY_ONE):
        return _look(location, table, s3_client, request_payer, pinned)
    # Folders one by one only where keys are listed in their order, from the first planned one to the last.
    if between is not None or not location.is_s3 or location.is_unordered:
        overwritten, deleted = _list(location, table, s3_client, request_payer, pinned, between)
    else:
        overwritten, deleted = _list_folders(location, table, s3_client, request_payer, pinned)
    if not (pinned or _has_versions(table)) or not (overwritten or deleted):
        return overwritten, deleted
    # A listing shows the latest versions: whether the planned one is still there takes a look at each that differs. And
    # a server may leave out the first key of a range of versions (moto does), which must not stop a batch.
    suspects = table.filter(pc.is_in(table.column("key"), pa.array([*overwritten, *deleted], pa.string())))
    return _look(location, suspects, s3_client, request_payer, pinned)


def _has_versions(table: pa.Table) -> bool:
    return bool(table.column("version_id").null_count < table.num_rows)


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


def _list_folders(
    location: Location, table: pa.Table, s3_client: S3Client | None, request_payer: bool, pinned: bool
) -> Changed:
    """List the folders that have many of the planned objects, and look at each of the others."""
    table = table.sort_by("key").combine_chunks()
    folders = folders_of(table.column("key")).combine_chunks()
    counts = pc.value_counts(folders)
    large = counts.field("values").filter(pc.greater_equal(counts.field("counts"), MANY_OF_A_FOLDER))
    few = table.filter(pc.invert(pc.is_in(folders, value_set=large)))
    overwritten, deleted = _look(location, few, s3_client, request_payer, pinned)

    def list_one(folder: pa.Scalar) -> Changed:
        rows = table.filter(pc.equal(folders, folder))
        first, last = rows.column("key")[0].as_py(), rows.column("key")[-1].as_py()
        # A key without its last character sorts before it.
        workers = max(1, WORKERS_HERE // len(large))
        return _list(location, rows, s3_client, request_payer, pinned, (first[:-1], last), workers)

    with ThreadPoolExecutor(WORKERS_HERE) as pool:
        for found in pool.map(list_one, large):
            overwritten += found[0]
            deleted += found[1]
    return overwritten, deleted


def _list(
    location: Location,
    table: pa.Table,
    s3_client: S3Client | None,
    request_payer: bool,
    pinned: bool,
    between: tuple[str, str] | None,
    workers: int | None = None,
) -> Changed:
    """List the location once more and compare it with what was planned, as the next batch would.

    Planned objects may lie far apart, among millions of others. So a bucket is listed only as long as that takes fewer
    requests than a look at each planned object that no page has shown yet: at most twice as many as the cheaper way.
    """
    planned = Known([ledger_rows(table.sort_by("key"), TAKEN, 0, "")])
    options = ListingOptions(
        versioned=_has_versions(table), request_payer=request_payer, workers=workers or WORKERS_HERE
    )  # fmt: skip
    overwritten: list[str] = []
    deleted: list[str] = []
    seen = [no_rows()]
    left, requests = table.num_rows, 0
    # Objects of other stores cannot be looked at one by one, and a bucket without an order is listed as a whole.
    may_end = location.is_s3 and not location.is_unordered
    # Closed at its end here, so that no worker lists on for nobody.
    with closing(iter(Listing(location, s3_client, options, between=between))) as listing:
        for interval in listing:
            there = planned.between(interval.after, interval.until)
            found = compare(interval, interval.rows, there)
            overwritten += found.modified.column("key").to_pylist()
            deleted += found.gone.column("key").to_pylist()
            seen.append(there)
            left, requests = left - there.num_rows, requests + 1
            if may_end and requests >= left:
                break
    if left:
        keys = pa.concat_tables(seen).column("key").combine_chunks()
        rest = table.filter(pc.invert(pc.is_in(table.column("key"), value_set=keys)))
        of_rest = _look(location, rest, s3_client, request_payer, pinned)
        overwritten, deleted = overwritten + of_rest[0], deleted + of_rest[1]
    return overwritten, deleted
