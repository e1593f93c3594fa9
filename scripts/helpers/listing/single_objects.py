"""Objects looked at one by one: what S3 says of each now."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from botocore.exceptions import BotoCoreError, ClientError

from scripts.helpers._lazy import S3Client
from scripts.helpers.errors import DAMAGE, AccessRefusedError, SourceError
from scripts.helpers.listing.objects import LISTED, byte_order, no_rows
from scripts.helpers.listing.s3 import code_of, login_or_load, make_client

if TYPE_CHECKING:
    from scripts.helpers.listing.listing import ListingOptions, Location


_OF_OBJECT = ("400", "403", "AccessDenied")
"""What S3 answers for an object that this login may not read, or that needs a key of the customer."""


LookAt = Callable[[str], "dict[str, Any] | None"]


class Looked(NamedTuple):
    """Objects that are there, as rows of LISTED sorted by key, and the time of S3 at its earliest answer about one."""

    rows: pa.Table
    date: datetime | None


def look_at_each(
    location: Location, client: S3Client | None, options: ListingOptions, keys: Iterable[str], listed: LookAt
) -> Looked:
    """Return those of some objects of a bucket that are there, a HeadObject each, `options.workers` at once.

    Parameters
    ----------
    keys
        Relative to the location.
    listed
        Returns the row of an object, as a listing shows it also where S3 refuses to show the object itself.

    Returns
    -------
    Looked
        Rows as a listing would show them. The date is None where no object is there, or S3 tells no time.

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
    payer: dict[str, Any] = {"RequestPayer": "requester"} if options.request_payer else {}

    dates: list[datetime] = []

    def look(key: str) -> dict[str, Any] | None:
        try:
            found = client.head_object(Bucket=location.bucket, Key=location.prefix + key, **payer)
        except (ClientError, BotoCoreError) as error:
            if code_of(error) in _OF_OBJECT:
                # As a listing has it: if it cannot be read, this is found when it is read.
                with suppress(SourceError, AccessRefusedError):
                    return listed(key)
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

    with ThreadPoolExecutor(options.workers) as pool:
        rows = [row for row in pool.map(look, asked) if row is not None]
    return Looked(pa.Table.from_pylist(rows, LISTED), min(dates, default=None))


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
