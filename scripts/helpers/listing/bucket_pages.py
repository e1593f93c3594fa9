"""Pages of a bucket's listing, asked for by boto3 and read by our own parser."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from botocore.exceptions import BotoCoreError, ClientError

from scripts.helpers._lazy import S3Client
from scripts.helpers.errors import DAMAGE, AccessRefusedError, SourceError, WatermarkError
from scripts.helpers.listing.cuts import LAST
from scripts.helpers.listing.page import from_parsed, take_objects
from scripts.helpers.listing.ranges import Page
from scripts.helpers.listing.s3 import code_of, login_or_load

_HANDLER = "glue-watermarks-listing"
_parsing = threading.Lock()
"""One page at a time: threads that take turns within a page, as they must here, only cost each other their caches."""
_here = threading.local()
"""Set while this thread waits for a page of ours: other calls with the caller's client stay as they are."""

_ELSEWHERE = "The bucket is in another region: give the client that region."
MAX_PAGE_BYTES = 32 * 1024 * 1024
"""A thousand keys of 1,024 bytes, encoded, with all that S3 says of each, have a quarter of it."""
REMEDIES = {
    "NoSuchBucket": "Check the name.",
    "PermanentRedirect": _ELSEWHERE,
    "AuthorizationHeaderMalformed": _ELSEWHERE,
    "IllegalLocationConstraintException": _ELSEWHERE,
}
_REFUSED = {"AccessDenied", "AllAccessDisabled", "403"}


class BucketPages:
    """One prefix of a bucket, page by page. Keys are relative to `base`; see `ranges.Pages`.

    EncodingType is left to botocore, which asks for encoded keys by itself.
    """

    def __init__(
        self,
        source: str,
        client: S3Client,
        bucket: str,
        base: str,
        folder: str = "",
        versioned: bool = False,
        request_payer: bool = False,
    ) -> None:
        self.source, self._client, self._base = source, client, base
        self.date: datetime | None = None
        """The server's time at its first answer."""
        self._fixed: dict[str, Any] = {"Bucket": bucket, "Prefix": base + folder}
        if request_payer:
            self._fixed["RequestPayer"] = "requester"
        self._versioned = versioned
        # Once for each client, by its id: a second handler would find the objects gone from the page, which then looked
        # empty. botocore looks for the id without a lock.
        with _parsing:
            client.meta.events.register_first("before-parse.*.*", _take_objects, unique_id=_HANDLER)

    def page(self, after: str | None, token: str | None) -> Page:
        """Return the first page of keys above `after`, or the page that a token stands for."""
        if self._versioned:
            return self._versions(after, token)
        asked: dict[str, str] = {}
        if token:
            asked["ContinuationToken"] = token
        elif after:
            asked["StartAfter"] = self._base + after
        found = self._call(self._client.list_objects_v2, "Contents", **asked)
        following = found.get("NextContinuationToken") if found["IsTruncated"] else None
        if found["IsTruncated"] and not following:
            # Servers that only resemble S3 do this. Taken for the last page, it would hide all keys behind it.
            raise SourceError(
                self.source, "its server ends a page early and does not return where to continue. Use S3Inventory."
            )
        return Page(self._relative(found), following)

    def folders(self, folder: str, after: str) -> list[str] | None:
        """Return the folders in a folder that hold keys above `after`; None if one answer does not hold them all."""
        found = self._call(
            self._client.list_objects_v2,
            "Contents",
            Prefix=self._base + folder,
            Delimiter="/",
            StartAfter=self._base + after,
        )
        if found["IsTruncated"]:
            return None  # Asking on could take as many requests as listing. Names are cut instead.
        return [prefix["Prefix"][len(self._base) :] for prefix in found.get("CommonPrefixes", [])]

    def first_key(self, after: str) -> str | None:
        """Return the first key above `after`."""
        found = self._call(self._client.list_objects_v2, "Contents", StartAfter=self._base + after, MaxKeys=1)
        keys = self._relative(found).column("key")
        return str(keys[0]) if len(keys) else None

    def _versions(self, after: str | None, token: str | None) -> Page:
        asked: dict[str, str] = {"KeyMarker": self._base + after} if after else {}
        if token:
            # Both markers, or the rest of the versions of a key that a page ends in would not be shown.
            key, _, version = token.rpartition(LAST)
            asked = {"KeyMarker": key}
            if version:
                asked["VersionIdMarker"] = version
        found = self._call(self._client.list_object_versions, "Version", **asked)
        following = None
        if found["IsTruncated"]:
            following = f"{found['NextKeyMarker']}{LAST}{found.get('NextVersionIdMarker', '')}"
        return Page(self._relative(found), following)

    def _relative(self, found: dict[str, Any]) -> pa.RecordBatch:
        rows = found["_rows"]
        keys = pc.utf8_slice_codeunits(rows.column("key"), len(self._base)) if self._base else rows.column("key")
        return pa.RecordBatch.from_arrays([keys, *rows.columns[1:]], schema=rows.schema)

    def _call(self, call: Callable[..., Any], tag: str, **asked: Any) -> dict[str, Any]:
        _here.tag, _here.rows = tag, None
        try:
            found: dict[str, Any] = call(**{**self._fixed, **asked})
        except (ClientError, BotoCoreError) as error:
            raise self._translated(error) from error
        except _TooLongError as error:
            raise self._damaged(f"it has {error}, and the limit is {MAX_PAGE_BYTES:,}") from error
        finally:
            # Also after an error: a tag that stays would take the objects out of the caller's own listings.
            rows, _here.tag, _here.rows = _here.rows, None, None
        if rows is None:
            # A page that our parser left alone, so botocore has read it. The XML says Version, botocore Versions:
            # under another name there is nothing, and the page would look empty.
            try:
                rows = from_parsed(found.get("Versions" if tag == "Version" else "Contents", []))
            except (*DAMAGE, pa.ArrowException) as error:
                raise self._damaged(f"{type(error).__name__} while reading it") from error
        if "IsTruncated" not in found:
            raise self._damaged("it does not say whether it is the last one")
        found["_rows"] = rows
        if self.date is None:
            # Of the first answer only: what is written after it may be missing on pages that were shown already.
            header = found["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
            try:
                self.date = parsedate_to_datetime(header) if header else datetime.now(timezone.utc)
            except DAMAGE as error:
                raise self._damaged("its Date is not a time") from error
        return found

    def _damaged(self, detail: str) -> SourceError:
        return SourceError(self.source, f"its server sent a page that cannot be read: {detail}. Use S3Inventory.")

    def _translated(self, error: ClientError | BotoCoreError) -> WatermarkError:
        """Say what an error of a listing means for the caller, as `DynamoTable.translate` does of the table."""
        if found := login_or_load(self.source, error):
            return found
        code = code_of(error)
        if code in _REFUSED:
            action = "s3:ListBucketVersions" if self._versioned else "s3:ListBucket"
            return AccessRefusedError(action, self.source)
        remedy = REMEDIES.get(code, "Check the name, the region and s3:ListBucket.")
        return SourceError(self.source, f"S3 refused to list it ({code}). {remedy}")


class _TooLongError(Exception):
    pass


def _take_objects(response_dict: dict[str, Any], **_: Any) -> None:
    """Take the objects out of a page before botocore parses it; called for every answer of the client."""
    tag = getattr(_here, "tag", None)
    if tag is not None and response_dict["status_code"] == 200:
        if len(response_dict["body"]) > MAX_PAGE_BYTES:
            raise _TooLongError(f"{len(response_dict['body']):,} bytes")
        with _parsing:
            response_dict["body"], _here.rows = take_objects(response_dict["body"], tag)
