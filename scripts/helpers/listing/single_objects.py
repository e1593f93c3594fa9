"""Objects that something named: what S3 says of each now."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from botocore.exceptions import BotoCoreError, ClientError

from scripts.helpers._lazy import S3Client
from scripts.helpers.errors import DAMAGE, AccessRefusedError, SourceError, SourceUnavailableError
from scripts.helpers.listing.objects import LISTED, byte_order, column_of, no_rows
from scripts.helpers.listing.s3 import code_of, login_or_load, make_client

if TYPE_CHECKING:
    from scripts.helpers.listing.listing import Lister, ListingOptions, Location

logger = logging.getLogger(__name__)

_OF_OBJECT = ("400", "403", "AccessDenied")
"""What S3 answers for an object that this login may not read, or that needs a key of the customer."""

ON_A_PAGE = 1_000
PAYS, APART = 13, 250
"""Objects that a page of a listing shows if it pays, as S3 bills it like 12.5 of HeadObject; and keys that are looked
at one by one after a page that did not. So such pages add a tenth at most to the costs."""
ListerOf = Callable[[S3Client], "Lister"]


class Looked(NamedTuple):
    """Objects that are there, as rows of LISTED sorted by key, and the time of S3 at its earliest answer about one."""

    rows: pa.Table
    date: datetime | None


def look_at_each(
    location: Location, client: S3Client | None, options: ListingOptions, keys: Iterable[str], lister_of: ListerOf
) -> Looked:
    """Return those of some objects of a bucket that are there, `options.workers` requests at once.

    A HeadObject each; or pages of a listing, for neighbours that are there.

    Parameters
    ----------
    keys
        Relative to the location.
    lister_of
        Returns what sees the objects with a client, by one request at a time.

    Returns
    -------
    Looked
        Rows as a listing would show them. The date is None if S3 told none, as of objects that are gone.

    Raises
    ------
    AccessRefusedError
        S3 refuses to show an object, and to list it. Without s3:ListBucket it does so for each that is not there, too.
    SourceError, CredentialsError, SourceUnavailableError
        As a listing's. Nothing is known then.
    """
    asked = sorted(set(keys), key=byte_order)
    if not asked:
        return Looked(no_rows(LISTED), None)
    client = client or make_client(options.workers)
    lister = lister_of(client)
    payer: dict[str, Any] = {"RequestPayer": "requester"} if options.request_payer else {}

    dates: list[datetime] = []

    def look(key: str) -> dict[str, Any] | None:
        try:
            found = client.head_object(Bucket=location.bucket, Key=location.prefix + key, **payer)
        except (ClientError, BotoCoreError) as error:
            if code_of(error) in _OF_OBJECT:
                # As a listing has it: if it cannot be read, this is found when it is read.
                with suppress(SourceError, AccessRefusedError):
                    return lister.look_at(key)
            _check_absent(location, key, error)
            return None
        with suppress(*DAMAGE):
            dates.append(parsedate_to_datetime(found["ResponseMetadata"]["HTTPHeaders"]["date"]))
        return {
            "key": key,
            "etag": found["ETag"].strip('"'),
            "version_id": found.get("VersionId") if options.versioned else None,
            "size": found["ContentLength"],
            "modified": found["LastModified"],
            # A listing names the usual class, too; HeadObject only the others.
            "storage_class": found.get("StorageClass", "STANDARD"),
        }

    shown: dict[str, dict[str, Any] | None] = {}
    with ThreadPoolExecutor(options.workers) as pool:
        # A page of versions shows "null" where HeadObject has no VersionId. A directory bucket lists in no order.
        if len(asked) > APART and not options.versioned and not location.is_unordered:
            size = max(ON_A_PAGE, -(-len(asked) // options.workers))
            parts = [asked[start : start + size] for start in range(0, len(asked), size)]
            try:
                pages = pool.map(lambda part: _on_pages(lister, part, dates), parts)
                shown = {row["key"]: row for rows in pages for row in rows}
            except SourceUnavailableError:
                raise
            except (AccessRefusedError, SourceError) as error:
                # No right to list, or a page that nobody can read. Each object may still be shown by itself.
                logger.info("event=not-listed source=%s keys=%d: each is looked at. %s", location, len(asked), error)
        # Also what a page lacks: an object counts as gone only if S3 says so of it.
        left = [key for key in asked if key not in shown]
        shown |= zip(left, pool.map(look, left), strict=True)
    rows = [row for key in asked if (row := shown[key]) is not None]
    return Looked(pa.Table.from_pylist(rows, LISTED), min(dates, default=None))


def _on_pages(lister: Lister, asked: list[str], dates: list[datetime]) -> list[dict[str, Any]]:
    """Return rows of some of the keys asked, which are sorted: where they are dense enough for pages of a listing."""
    rows: list[dict[str, Any]] = []
    at = 0
    while at < len(asked) - PAYS:
        listing = lister.between(asked[at], asked[-1])  # Behind the first of them, which is looked at by itself.
        dates.append(listing.started)
        page = next(iter(listing))
        there = page.rows.filter(pc.is_in(page.rows.column("key"), column_of(asked[at:], pa.string())))
        for row in there.to_pylist():
            # As HeadObject has them: whole seconds, and a name for the usual class.
            modified, storage_class = row["modified"].replace(microsecond=0), row["storage_class"] or "STANDARD"
            rows.append(row | {"modified": modified, "storage_class": storage_class})
        at = bisect_right(asked, byte_order(page.until or asked[-1]), key=byte_order)
        at += 0 if there.num_rows >= PAYS else APART
    return rows


def _check_absent(location: Location, key: str, error: ClientError | BotoCoreError) -> None:
    """Raise what an error means, unless it says that the object is not there."""
    code = code_of(error)
    if code in ("404", "NoSuchKey"):
        return
    if code in ("403", "AccessDenied"):
        raise AccessRefusedError("s3:GetObject", location.uri(key)) from error
    raise login_or_load(str(location), error) or SourceError(
        str(location), f"S3 refused to show key {key!r} ({code}). Check the region, s3:GetObject and s3:ListBucket."
    ) from error
