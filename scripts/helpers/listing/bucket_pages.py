"""Request the pages of a bucket's listing with boto3, and parse them faster than botocore does."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote_to_bytes

import pyarrow as pa
import pyarrow.compute as pc
from botocore.exceptions import BotoCoreError, ClientError

from scripts.helpers._lazy import S3Client
from scripts.helpers.errors import DAMAGE, AccessRefusedError, SourceError, WatermarkError
from scripts.helpers.listing.cuts import LAST
from scripts.helpers.listing.objects import LISTED, SEPARATOR, cut_texts, no_batch
from scripts.helpers.listing.ranges import Page
from scripts.helpers.listing.s3 import code_of, login_or_load

# --- page -----------------------------------------------------------------------------------------
# Parse one page of an S3 listing from XML directly into Arrow columns.
#
# botocore's own parser makes a dict of every object and takes some 50 times as long. This parser reads
# only pages whose objects all have the same XML elements, and leaves other pages to botocore.

_NEEDED = {b"Key", b"ETag", b"Size", b"LastModified"}
_NEEDED_OF_VERSION = _NEEDED | {b"VersionId", b"IsLatest"}
_LEAF = re.compile(rb"<(\w+)>([^<]*)</\1>")
_TAGS_ONLY = re.compile(rb"(?:</?\w+>\s*)*")
_QUOTE = b"&quot;"
_QUOTED = re.compile(rb"&quot;[^&]*&quot;")
_EXTRAS = re.compile(rb"<(Owner|RestoreStatus|DeleteMarker)>.*?</\1>\s*|<(Checksum\w+)>[^<]*</\2>\s*", re.DOTALL)
"""Elements that only some objects of a page have, and that are not needed here."""
_ENTITIES = ((b"&lt;", b"<"), (b"&gt;", b">"), (b"&quot;", b'"'), (b"&apos;", b"'"), (b"&amp;", b"&"))
_URL_ENCODED = b"<EncodingType>url</EncodingType>"
_ESCAPE = re.compile(rb"%[0-9A-Fa-f]{2}")
_FEW_ESCAPES = 16
"""Most kinds of encoded characters to replace one after another, each in one scan of the text. With more kinds, such as
in names of many alphabets, the single scan of urllib is faster."""
_PERCENT = b"\xfe"
"""Placeholder for a decoded per cent sign: no UTF-8 text contains this byte."""


def take_objects(body: bytes, tag: str) -> tuple[bytes, pa.RecordBatch | None]:
    """Separate the objects from the rest of a page.

    Parameters
    ----------
    tag
        The XML element of an object: ``Contents``, or ``Version`` if versions are listed. Only latest versions count.

    Returns
    -------
    tuple
        The body with the objects cut out, and the objects as rows of the schema LISTED, with full keys.
        If the objects have an unusual form, the unchanged body and None: then botocore parses the page.
    """
    opening, closing = f"<{tag}>".encode(), f"</{tag}>".encode()
    first, last = body.find(opening), body.rfind(closing)
    if not 0 <= first < last:
        return body, None
    last += len(closing)
    block, rest = body[first:last], body[:first] + body[last:]
    if b"<!" in rest or SEPARATOR in block:
        return body, None  # Let botocore parse it: text after <! may look like tags, or a value has our SEPARATOR.
    try:
        found = _read(block, closing) or _read(_EXTRAS.sub(b"", block), closing)
        if found is None or not (_NEEDED_OF_VERSION if tag == "Version" else _NEEDED) <= found.keys():
            return body, None
        return rest, _rows(found, _URL_ENCODED in rest)
    except (pa.ArrowInvalid, UnicodeError):
        return body, None


def _read(block: bytes, closing: bytes) -> dict[bytes, Sequence[bytes]] | None:
    """Return for each XML element its values in all objects; None if an object's elements differ from the first's."""
    end = block.find(closing) + len(closing)
    gap = block[end : max(end, block.find(b"<", end))]
    first, block = block[:end] + gap, block + gap
    leaves = list(_LEAF.finditer(first))
    names = [leaf[1] for leaf in leaves]
    # Take the XML between the values from the page's first object: it has to be the same in all objects of the page.
    literals: list[bytes] = []
    start = 0
    for leaf in leaves:
        value_start, value_end = _bounds(leaf)
        literals.append(first[start:value_start])
        start = value_end
    literals.append(first[start:])
    if len(set(names)) < len(names) or not _TAGS_ONLY.fullmatch(b"".join(literals).replace(_QUOTE, b"")):
        return None
    found = re.findall(b"([^<]*)".join(map(re.escape, literals)), block)
    columns = list(zip(*found, strict=True))
    # The expression may skip objects that look different, and the listing would lack them. So check that the lengths of
    # the found objects add up to the whole block.
    length = len(found) * len(b"".join(literals))
    for column in columns:
        length += len(b"".join(column))
    if length != len(block):
        return None
    return dict(zip(names, columns, strict=True))


def _bounds(leaf: re.Match[bytes]) -> tuple[int, int]:
    """Return the start and end of a field's value, without the quotes of an ETag."""
    start, stop = leaf.span(2)
    if leaf[1] == b"ETag" and _QUOTED.fullmatch(leaf[2]):
        return start + len(_QUOTE), stop - len(_QUOTE)
    return start, stop


def _rows(found: Mapping[bytes, Sequence[bytes]], encoded: bool) -> pa.RecordBatch:
    count = len(found[b"Key"])
    joined = {name: SEPARATOR.join(values) for name, values in found.items()}
    keys = _unescaped(joined[b"Key"])
    if encoded:
        keys = _url_decoded(keys)
        if keys.count(SEPARATOR) != count - 1:  # A decoded %FF equals SEPARATOR and would cut its key in two.
            raise pa.ArrowInvalid("a key is not UTF-8")
    rows = pa.RecordBatch.from_arrays(
        [
            cut_texts(keys),
            pc.utf8_trim(cut_texts(_unescaped(joined[b"ETag"])), '"'),
            cut_texts(joined[b"VersionId"]) if b"VersionId" in found else pa.nulls(count, pa.string()),
            pc.cast(cut_texts(joined[b"Size"]), pa.int64()),
            pc.cast(cut_texts(joined[b"LastModified"]), pa.timestamp("us", tz="UTC")),
            cut_texts(joined[b"StorageClass"]) if b"StorageClass" in found else pa.nulls(count, pa.string()),
        ],
        schema=LISTED,
    )
    if b"IsLatest" in found:
        if not {b"true", b"false"}.issuperset(found[b"IsLatest"]):
            raise pa.ArrowInvalid("neither true nor false")
        rows = rows.filter(pc.equal(cut_texts(joined[b"IsLatest"]), cut_texts(b"true")[0]))
    return rows


def _unescaped(text: bytes) -> bytes:
    if b"\r" in text:
        raise pa.ArrowInvalid("XML reads a carriage return as a line feed")
    if b"&" in text:
        if b"&#" in text:
            raise pa.ArrowInvalid("characters by number are left to botocore")
        for entity, character in _ENTITIES:  # &amp; is replaced last: &amp;lt; means &lt; and not <.
            text = text.replace(entity, character)
    return text


def _url_decoded(text: bytes) -> bytes:
    """Decode a URL-encoded text. With few kinds of encoded characters, this is much faster than urllib."""
    decoded = text.replace(b"+", b" ").replace(b"%25", _PERCENT)
    for _ in range(_FEW_ESCAPES):
        at = decoded.find(b"%")
        if at < 0:
            return decoded.replace(_PERCENT, b"%")
        escape = decoded[at : at + 3]
        if not _ESCAPE.fullmatch(escape) or bytes([int(escape[1:], 16)]) in (SEPARATOR, _PERCENT):
            break
        decoded = decoded.replace(escape, bytes([int(escape[1:], 16)]))
    return unquote_to_bytes(text.replace(b"+", b" "))


def from_parsed(objects: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    """Turn objects that botocore parsed into rows of schema LISTED. Of several versions, take only the latest one."""
    latest = [found for found in objects if found.get("IsLatest", True)]
    if not latest:
        return no_batch(LISTED)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([found["Key"] for found in latest], pa.string()),
            pa.array([found["ETag"].strip('"') for found in latest], pa.string()),
            pa.array([found.get("VersionId") for found in latest], pa.string()),
            pa.array([found["Size"] for found in latest], pa.int64()),
            pa.array([found["LastModified"] for found in latest], pa.timestamp("us", tz="UTC")),
            pa.array([found.get("StorageClass") for found in latest], pa.string()),
        ],
        schema=LISTED,
    )


# --- bucket pages ---------------------------------------------------------------------------------

_HANDLER = "glue-watermarks-listing"
_parsing = threading.Lock()
"""Lets one thread at a time parse a page. Python runs one thread anyway, and each switch empties CPU caches."""
_here = threading.local()
"""Set for a thread that waits for a page of this class, so that answers to other calls are left as they are."""

_ELSEWHERE = "The bucket is in another region: give the client that region."
MAX_PAGE_BYTES = 32 * 1024 * 1024
"""Largest page that is parsed. A thousand encoded keys of 1,024 bytes, with all their fields, need a quarter of it."""
REMEDIES = {
    "NoSuchBucket": "Check the name.",
    "PermanentRedirect": _ELSEWHERE,
    "AuthorizationHeaderMalformed": _ELSEWHERE,
    "IllegalLocationConstraintException": _ELSEWHERE,
}
_REFUSED = {"AccessDenied", "AllAccessDisabled", "403"}


class BucketPages:
    """Reads one prefix of a bucket page by page. Keys are relative to `base`; see `ranges.Pages`.

    Requests do not set EncodingType, because botocore sets it itself.
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
        # `unique_id` keeps a client from having the handler twice: the second handler would get pages without objects,
        # because the first one took them. botocore checks the id without a lock, so lock here.
        with _parsing:
            client.meta.events.register_first("before-parse.*.*", _take_objects, unique_id=_HANDLER)

    def page(self, after: str | None, token: str | None) -> Page:
        """Return the page that a token of an earlier page names; without a token, the first page above `after`."""
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
            # Some S3-compatible servers send no token. Raise, because the listing would lack all later keys.
            raise SourceError(
                self.source, "its server ends a page early and does not return where to continue. Use S3Inventory."
            )
        return Page(self._relative(found), following)

    def folders(self, folder: str, after: str) -> list[str] | None:
        """Return the folders in a folder that hold keys above `after`; None if they do not fit into one answer."""
        found = self._call(
            self._client.list_objects_v2,
            "Contents",
            Prefix=self._base + folder,
            Delimiter="/",
            StartAfter=self._base + after,
        )
        if found["IsTruncated"]:
            return None  # More pages could cost as much as a listing: `CutFinder` then splits at characters of keys.
        return [prefix["Prefix"][len(self._base) :] for prefix in found.get("CommonPrefixes", [])]

    def first_key(self, after: str) -> str | None:
        """Return the first key above `after`."""
        found = self._call(self._client.list_objects_v2, "Contents", StartAfter=self._base + after, MaxKeys=1)
        keys = self._relative(found).column("key")
        return str(keys[0]) if len(keys) else None

    def _versions(self, after: str | None, token: str | None) -> Page:
        asked: dict[str, str] = {"KeyMarker": self._base + after} if after else {}
        if token:
            # Send both markers: the next page may begin with more versions of the last key. KeyMarker alone skips them.
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
            # Reset the XML tag even on errors, or `_take_objects` would take the objects out of other calls' answers.
            rows, _here.tag, _here.rows = _here.rows, None, None
        if rows is None:
            # `take_objects` left this page to botocore, which returns the XML's Version elements as "Versions". With
            # the name "Version" no object would be found.
            try:
                rows = from_parsed(found.get("Versions" if tag == "Version" else "Contents", []))
            except (*DAMAGE, pa.ArrowException) as error:
                raise self._damaged(f"{type(error).__name__} while reading it") from error
        if "IsTruncated" not in found:
            raise self._damaged("it does not say whether it is the last one")
        found["_rows"] = rows
        if self.date is None:
            # Keep the first answer's date: an object written later may belong on a page that was already read.
            header = found["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
            try:
                self.date = parsedate_to_datetime(header) if header else datetime.now(timezone.utc)
            except DAMAGE as error:
                raise self._damaged("its Date is not a time") from error
        return found

    def _damaged(self, detail: str) -> SourceError:
        return SourceError(self.source, f"its server sent a page that cannot be read: {detail}. Use S3Inventory.")

    def _translated(self, error: ClientError | BotoCoreError) -> WatermarkError:
        """Return the error of this package to raise for an error of boto3 while listing."""
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
    """Take the objects out of a page before botocore parses it. botocore calls this for every answer of the client."""
    tag = getattr(_here, "tag", None)
    if tag is not None and response_dict["status_code"] == 200:
        if len(response_dict["body"]) > MAX_PAGE_BYTES:
            raise _TooLongError(f"{len(response_dict['body']):,} bytes")
        with _parsing:
            response_dict["body"], _here.rows = take_objects(response_dict["body"], tag)
