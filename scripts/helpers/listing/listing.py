"""List all objects under a prefix or directory, and look up single ones."""

from __future__ import annotations

import logging
import os
import re
from bisect import bisect_right
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from errno import ELOOP
from itertools import chain
from stat import S_ISLNK, S_ISREG
from typing import Any, NoReturn
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from botocore.exceptions import BotoCoreError, ClientError

from scripts.helpers._lazy import S3Client
from scripts.helpers.errors import DAMAGE, AccessRefusedError, SourceError, SourceUnavailableError
from scripts.helpers.listing.bucket_pages import BucketPages
from scripts.helpers.listing.cuts import LAST
from scripts.helpers.listing.links import is_inside, without_links
from scripts.helpers.listing.objects import LISTED, Interval, byte_order, column_of, local_etag, no_batch, no_rows
from scripts.helpers.listing.paths import check_readable, is_hidden, is_plain, source_text
from scripts.helpers.listing.ranges import RangeListing
from scripts.helpers.listing.s3 import code_of, identity_in_answer, login_or_load, make_client

logger = logging.getLogger(__name__)

# --- single objects -------------------------------------------------------------------------------
# Look up the current state of objects that events, or the table of changes (journal) of S3 Metadata, named.

_OF_OBJECT = ("400", "403", "AccessDenied")
"""Codes of S3 for an object that this login may not read, or that is encrypted with a key of the customer."""

KEYS_PER_PAGE = 1_000
PAYS, APART = 13, 250
"""A page that shows `PAYS` wanted objects costs less than a HeadObject for each: S3 bills a page like 12.5 of these.
After a page that shows fewer, `APART` keys are looked up one by one, so such pages add at most a tenth to the costs."""


def _check_absent(location: Location, key: str, error: ClientError | BotoCoreError) -> None:
    """Translate an error and raise it, unless it says that the object does not exist."""
    code = code_of(error)
    if code in ("404", "NoSuchKey"):
        return
    if code in ("403", "AccessDenied"):
        raise AccessRefusedError("s3:GetObject", location.uri(key)) from error
    raise login_or_load(str(location), error) or SourceError(
        str(location), f"S3 refused to show key {key!r} ({code}). Check the region, s3:GetObject and s3:ListBucket."
    ) from error


# --- listing --------------------------------------------------------------------------------------

WORKERS = 16
"""Requests at once. Most prefixes need only one worker: others start only if there is more than a page."""
SCHEMES = ("gs", "abfs", "abfss")
"""Schemes of Google Cloud Storage and Azure, which obstore lists."""
BATCH = 50_000
"""Rows of an interval if the store has no pages of its own, like a directory."""
_ACCESS_POINT = re.compile(r"arn:aws[\w-]*:s3[\w-]*:[\w-]*:\d*:(?:outpost/[\w-]+/)?accesspoint/[^/]+")


@dataclass(frozen=True)
class Location:
    """A prefix to list: ``s3://bucket/prefix/``, ``s3a://bucket/prefix/`` or a local directory.

    Also ``gs://bucket/prefix/`` and ``abfss://container@account.dfs.core.windows.net/prefix/``.

    `prefix` ends with a slash or is empty; for a local directory it is the directory itself.
    Keys of the listed objects are relative to the prefix.
    """

    scheme: str
    bucket: str
    prefix: str

    @classmethod
    def parse(cls, source: str | os.PathLike[str]) -> Location:
        """Return the location that a user gave; SourceError if it is not UTF-8, or a prefix without its final slash."""
        source = source_text(source)
        try:
            source.encode()
        except UnicodeEncodeError as error:
            raise SourceError(source, "its name is not valid UTF-8, so no state can hold it. Rename it.") from error
        scheme, separator, _ = source.partition("://")
        if not separator or scheme == "file":
            path = source.removeprefix("file://")
            if not path:
                raise SourceError(source, "it is empty. Name a directory, or . for the current one.")
            return cls("file", "", os.path.abspath(path).rstrip("/") + "/")
        if scheme not in ("s3", "s3a", *SCHEMES):
            known = ", ".join(f"{name}://" for name in ("s3", "s3a", *SCHEMES))
            raise SourceError(source, f"the scheme {scheme!r} is not known. Use {known} or a local directory.")
        rest = source[len(scheme) + 3 :]
        access_point = _ACCESS_POINT.match(rest)
        if access_point:  # The ARN of an access point contains a slash, which does not end the bucket.
            bucket, prefix = access_point[0], rest[access_point.end() + 1 :]
        else:
            bucket, _, prefix = rest.partition("/")
        if not bucket or (not access_point and urlsplit(f"//{bucket}").netloc != bucket):
            raise SourceError(source, f"there is no bucket in it. Write {scheme}://bucket/prefix/.")
        if prefix and not prefix.endswith("/"):
            raise SourceError(
                source, f"a prefix ends with a slash, or {prefix!r} would match its neighbours too. Write {source}/."
            )
        return cls(scheme, bucket, prefix)

    def __str__(self) -> str:
        return self.uri("")

    @property
    def is_local(self) -> bool:
        """Whether the location is a local directory."""
        return self.scheme == "file"

    def uri(self, relative_key: str) -> str:
        """Return the URI of one object in Hadoop's form: the raw key, without escapes."""
        if self.is_local:
            return f"file://{self.prefix}{relative_key}"
        return f"{self.scheme}://{self.bucket}/{self.prefix}{relative_key}"

    def readable_uris(self, keys: Sequence[str]) -> list[str]:
        """Return the URIs of objects for a reader that resolves paths, such as Hadoop.

        Raises
        ------
        SourceError
            A key is absolute, has an empty component, ``.`` or ``..``, or a link leads out of a local directory.
        """
        folders: dict[str, bool] = {}
        for key in keys:
            if not is_plain(key) or (self.is_local and not is_inside(self.prefix, key, folders)):
                raise SourceError(
                    str(self), f"key {key!r} leads out of it, by its name or by a link, and was not opened. Remove the "
                    "link, or discard the plan that has the key: watermarks discard-plan JOB --why …",
                )  # fmt: skip
        return [self.uri(key) for key in keys]

    def local_path(self, key: str) -> str:
        """Return the path of a local file to open, inspect, move or delete; SourceError as for `readable_uris`."""
        return self.readable_uris([key])[0].removeprefix("file://")

    def why_unlisted(self, key: str) -> str | None:
        """Return why an existing local file is not listed; None if neither its name nor a link is the reason."""
        folder = key.rpartition("/")[0]
        if self.is_local and is_plain(key) and without_links(self.prefix, folder) != folder:
            return "it is below a link to a folder, and such links are not followed"
        if self.is_local and (not is_plain(key) or without_links(self.prefix, key) is None):
            return "it leads out of the source, by its name or by a link, and such links are not followed"
        return None

    @property
    def is_s3(self) -> bool:
        """Whether the location is in an S3 bucket."""
        return self.scheme in ("s3", "s3a")

    @property
    def is_unordered(self) -> bool:
        """Whether it is a directory bucket (S3 Express) or its access point, which list keys without an order."""
        return self.bucket.endswith(("--x-s3", "--xa-s3"))

    @property
    def has_ranges(self) -> bool:
        """Whether single ranges of keys can be listed. False for a directory, and for a bucket without an order."""
        return self.is_s3 and not self.is_unordered

    @property
    def name(self) -> str:
        """The name of the source in one spelling: s3:// and s3a:// name the same objects."""
        return self.uri("").replace("s3a://", "s3://", 1)


@dataclass(frozen=True)
class ListingOptions:
    """Options for listing a bucket.

    Attributes
    ----------
    versioned
        Add the VersionId to each identity (ListObjectVersions, which needs its own permission).
    request_payer
        Pay for the requests, which the owner of another bucket may require.
    workers
        The number of requests at once.
    """

    versioned: bool = False
    request_payer: bool = False
    workers: int = WORKERS


class Listing:
    """A complete listing of the objects under a location, or under some of its folders.

    Iterate only once, over an `Interval` for each range of keys. If a page cannot be read, a SourceError ends the
    iteration, and the intervals before the error must not be used.

    Attributes
    ----------
    started : datetime
        The time when the listing began, by the clock of the source, in UTC. Objects written later may be missing.
    """

    def __init__(
        self,
        location: Location,
        s3_client: S3Client | None = None,
        options: ListingOptions | None = None,
        folders: Sequence[str] = ("",),
        between: tuple[str | None, str | None] | None = None,
    ) -> None:
        options = options or ListingOptions()
        self._bounds = [between] if between else [bounds_of(folder) for folder in folders]
        self.started = datetime.now(timezone.utc)
        self._location, self._out = location, list[str]()
        self._parts: list[Iterable[Interval]] = [_list_directory(location, folder, self._out) for folder in folders]
        if location.scheme in SCHEMES:
            self._parts = [_list_with_obstore(location, folder) for folder in folders]
        elif not location.is_local:
            ranges = self._ranges(location, s3_client, options, folders)
            self._parts = [_sorted(part) for part in ranges] if location.is_unordered else list(ranges)

    def _ranges(
        self, location: Location, s3_client: S3Client | None, options: ListingOptions, folders: Sequence[str]
    ) -> list[RangeListing]:
        client = s3_client or make_client(2 * options.workers)
        place = str(location), client, location.bucket, location.prefix
        pages = [BucketPages(*place, folder, options.versioned, options.request_payer) for folder in folders]
        # Only an ordered listing can be split into ranges. An unordered one is read page by page, by one worker.
        workers = 1 if location.is_unordered else options.workers
        ranges = [RangeListing(part, str(location), workers, location.is_unordered, True) for part in pages]
        if len(ranges) == 1:
            ranges[0].start(*self._bounds[0])
        else:
            with ThreadPoolExecutor(options.workers) as pool:
                list(pool.map(lambda part, bound: part.start(*bound), ranges, self._bounds))
        # Use the time of the folder that was listed first: objects written to it later may be missing.
        dates = [part.date for part in pages if part.date]
        self.started = min(dates, default=self.started)
        return ranges

    def __iter__(self) -> Generator[Interval, None, None]:
        """Yield ranges of keys as pages arrive. To stop early, close the generator, which ends the workers."""
        for part in self._parts:
            yield from part
        if self._out:
            logger.warning(
                "event=links_left_out source=%s links=%d first=%r: these links lead out of the source, to folders or "
                "to themselves, or are not files, such as pipes, so they are skipped. Copy the files there.",
                self._location, len(self._out), min(self._out),
            )  # fmt: skip


class Lister:
    """Lists the objects of one location: all, those of some folders, those of a range of keys, or single ones."""

    def __init__(self, location: Location, s3_client: S3Client | None, options: ListingOptions) -> None:
        self._location, self._s3_client, self._options = location, s3_client, options
        self.date: datetime | None = None
        """The time of S3 at the last `look_at_each`; None if S3 sent none."""

    def below(self, folders: Sequence[str]) -> Listing:
        """List some folders; `[""]` lists everything."""
        return Listing(self._location, self._s3_client, self._options, folders)

    def between(self, after: str | None, until: str | None) -> Listing:
        """List the keys above `after`, up to and including `until`."""
        return Listing(self._location, self._s3_client, self._options, between=(after, until))

    def look_at(self, key: str) -> dict[str, Any] | None:
        """List one object and return it as a row with the columns of LISTED; None if the object does not exist."""
        # Locally, list the key's folder. Elsewhere, cut the last character: a listing omits a key that is its prefix.
        start = key[: key.rfind("/") + 1] if self._location.is_local else key[:-1]
        # Use one worker, because further ones would request pages after the key, which are not needed.
        for interval in Listing(self._location, self._s3_client, replace(self._options, workers=1), [start]):
            for row in interval.rows.filter(pc.equal(interval.rows.column("key"), key)).to_pylist():
                return dict(row)
            if interval.until is None or byte_order(interval.until) >= byte_order(key):
                break
        return None

    def look_at_each(self, keys: Collection[str]) -> pa.Table:
        """Look up objects by key, and return those that exist as rows of LISTED sorted by key.

        Send a HeadObject for each, `workers` at once, or list pages where many of the keys are close together.

        Raises
        ------
        AccessRefusedError
            S3 refuses both HeadObject and a listing of the object. Without s3:ListBucket, S3 does so even for objects
            that do not exist.
        SourceError, CredentialsError, SourceUnavailableError
            As for a listing. No object is returned, even if some were found.
        """
        asked = sorted(set(keys), key=byte_order)
        if not self._location.is_s3:
            rows = [self.look_at(key) for key in asked]
            return pa.Table.from_pylist([row for row in rows if row is not None], LISTED)
        self.date = None
        if not asked:
            return no_rows(LISTED)
        dates: list[datetime] = []
        client = self._s3_client or make_client(self._options.workers)
        # With versions, use no pages: pages show the VersionId "null" where HeadObject shows no VersionId.
        pages = [] if self._options.versioned else self.on_pages(asked, client, dates)
        shown: dict[str, dict[str, Any] | None] = {row["key"]: row for row in pages}
        # Look up keys that pages lack, too: an object counts as gone only if HeadObject does not find it.
        left = [key for key in asked if key not in shown]
        with ThreadPoolExecutor(self._options.workers) as pool:
            shown |= zip(left, pool.map(lambda key: self._head(key, client, dates), left), strict=True)
        self.date = min(dates, default=None)
        return pa.Table.from_pylist([row for key in asked if (row := shown[key]) is not None], LISTED)

    def on_pages(self, asked: Sequence[str], client: S3Client, dates: list[datetime]) -> list[dict[str, Any]]:
        """Look up keys by pages of a listing, where that costs less than HeadObjects. Return the rows that were found.

        Parameters
        ----------
        asked
            The keys of the objects, sorted.
        dates
            A list to which the time of S3's answer for each page is appended.
        """
        # A directory bucket has no order, so its pages cannot be searched for keys.
        if len(asked) <= APART or self._location.is_unordered:
            return []
        lister = Lister(self._location, client, replace(self._options, workers=1))
        size = max(KEYS_PER_PAGE, -(-len(asked) // self._options.workers))
        parts = [asked[start : start + size] for start in range(0, len(asked), size)]
        with ThreadPoolExecutor(self._options.workers) as pool:
            try:
                return list(chain(*pool.map(lambda part: _on_pages(lister, part, dates), parts)))
            except SourceUnavailableError:
                raise
            except (AccessRefusedError, SourceError) as error:
                # The login has no right to list, or a page is unreadable. The caller looks up each key by HeadObject.
                logger.info(
                    "event=not_listed source=%s keys=%d: each key is looked up. %s", self._location, len(asked), error
                )  # fmt: skip
                return []

    def _head(self, key: str, client: S3Client, dates: list[datetime]) -> dict[str, Any] | None:
        location, options = self._location, self._options
        payer: dict[str, Any] = {"RequestPayer": "requester"} if options.request_payer else {}
        try:
            found = client.head_object(Bucket=location.bucket, Key=location.prefix + key, **payer)
        except (ClientError, BotoCoreError) as error:
            if code_of(error) in _OF_OBJECT:
                # S3 refuses HeadObject for this object, but a listing may show it. A later read raises any error.
                with suppress(SourceError, AccessRefusedError):
                    return Lister(location, client, options).look_at(key)
            _check_absent(location, key, error)
            return None
        with suppress(*DAMAGE):
            dates.append(parsedate_to_datetime(found["ResponseMetadata"]["HTTPHeaders"]["date"]))
        row = {"key": key, "modified": found["LastModified"], **identity_in_answer(found)}
        # HeadObject omits the storage class STANDARD, but a listing shows it.
        row["storage_class"] = found.get("StorageClass", "STANDARD")
        return row if options.versioned else row | {"version_id": None}


def _on_pages(lister: Lister, asked: Sequence[str], dates: list[datetime]) -> list[dict[str, Any]]:
    """Return rows for those keys of the sorted `asked` that are close enough together to share pages."""
    rows: list[dict[str, Any]] = []
    at = 0
    while at < len(asked) - PAYS:
        listing = lister.between(asked[at], asked[-1])  # This omits the key `asked[at]`: HeadObject looks it up.
        dates.append(listing.started)
        page = next(iter(listing))
        there = page.rows.filter(pc.is_in(page.rows.column("key"), column_of(asked[at:], pa.string())))
        for row in there.to_pylist():
            # Make the row equal to one from HeadObject (`_head`), with whole seconds and the storage class STANDARD.
            modified, storage_class = row["modified"].replace(microsecond=0), row["storage_class"] or "STANDARD"
            rows.append(row | {"modified": modified, "storage_class": storage_class})
        at = bisect_right(asked, byte_order(page.until or asked[-1]), key=byte_order)
        at += 0 if there.num_rows >= PAYS else APART
    return rows


def _sorted(part: Iterable[Interval]) -> Iterator[Interval]:
    """Sort the objects of an unordered listing."""
    intervals = list(part)
    rows = pa.Table.from_batches([interval.rows for interval in intervals], LISTED).sort_by("key")
    yield from split_into_intervals(rows, intervals[0].after, intervals[-1].until)


def _list_with_obstore(location: Location, folder: str) -> Iterator[Interval]:
    """List a folder of Google Cloud Storage or Azure, and sort it, because these stores promise no order.

    obstore finds the credentials (environment, instance). It shows the marker of a folder as an empty
    object with the folder's name; the marker is left out if the folder has objects.

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
        raise SourceError(str(location), "it needs obstore. Install it: pip install obstore.") from error
    store, base = f"{location.scheme}://{location.bucket}/", location.prefix
    try:
        objects = [one for page in obstore.list(from_url(store), prefix=base + folder or None) for one in page]
    except BaseError as error:
        reason = str(error).partition("\n")[0]
        raise SourceError(str(location), f"it cannot be listed ({reason}). Check the name and the login.") from error
    folders = {one["path"][: slash.start()] for one in objects for slash in re.finditer("/", one["path"])}
    there = [one for one in objects if one["size"] or one["path"] not in folders]
    columns = [
        pa.array([one["path"][len(base) :] for one in there], pa.string()),
        pa.array([(one["e_tag"] or "").strip('"') for one in there], pa.string()),
        pa.array([one["version"] for one in there], pa.string()),
        pa.array([one["size"] for one in there], pa.int64()),
        pa.array([one["last_modified"] for one in there], LISTED.field("modified").type),
        pa.nulls(len(there), pa.string()),
    ]
    yield from split_into_intervals(pa.Table.from_arrays(columns, schema=LISTED).sort_by("key"), *bounds_of(folder))


def bounds_of(folder: str) -> tuple[str | None, str | None]:
    """Return the range that holds all keys of a folder below the prefix."""
    if not folder:
        return None, None
    return folder, folder + LAST


def split_into_intervals(rows: pa.Table, after: str | None, until: str | None) -> Iterator[Interval]:
    """Split sorted rows into intervals that cover all keys above `after`, up to and including `until`."""
    batches = rows.combine_chunks().to_batches(BATCH) or [no_batch(LISTED)]
    for index, batch in enumerate(batches):
        end = until if index == len(batches) - 1 else batch.column("key")[-1].as_py()
        yield Interval(after, end, batch)
        after = end


def _list_directory(location: Location, folder: str, left_out: list[str]) -> Iterator[Interval]:
    def refuse(error: OSError) -> NoReturn:
        raise SourceError(str(location), f"it cannot be listed: {error.strerror}. Check the path and its rights.")

    start = location.prefix + folder
    # The folder of a date that does not exist yet is empty. A folder that is a link, or below one, is left out, as in a
    # full listing. A source that does not exist is an error: an empty listing would show all its files as gone.
    if folder and not (os.path.exists(start) and without_links(location.prefix, folder) == folder.rstrip("/")):
        left_out += [folder] if os.path.exists(start) else []
        return
    columns: dict[str, list[Any]] = {name: [] for name in ("key", "etag", "size", "modified")}
    # Do not follow links to folders: a link to a parent folder would make the walk endless.
    for place, folders, names in os.walk(start, onerror=refuse):
        base = os.path.join(place, "")
        linked = [f"{base}{name}/"[len(location.prefix) :] for name in folders if os.path.islink(base + name)]
        left_out += [key for key in linked if not is_hidden(key + "file")]
        for path in [base + name for name in names]:
            key = path[len(location.prefix) :]
            try:
                status = os.lstat(path)
                if S_ISLNK(status.st_mode) and without_links(location.prefix, key) is not None:
                    status = os.stat(path)
            except FileNotFoundError:
                continue  # The file was deleted since the folder was read, or it is a dangling link.
            except OSError as error:
                if error.errno != ELOOP:  # ELOOP means a link to itself, which is left out below.
                    refuse(error)
            if not S_ISREG(status.st_mode):
                # Leave out links that are not followed, and pipes and the like, on which a reader would wait for ever.
                left_out += [] if is_hidden(key) else [key]
                continue
            if not key.isascii():
                try:
                    check_readable(str(location), key)
                except SourceError:
                    # Arrow cannot store a name that is not UTF-8. Skip hidden files, which are never read anyway.
                    if is_hidden(key):
                        continue
                    raise
            columns["key"].append(key)
            columns["etag"].append(local_etag(status))
            columns["size"].append(status.st_size)
            columns["modified"].append(status.st_mtime_ns // 1_000)
    none = [None] * len(columns["key"])
    table = pa.table([column_of(columns.get(field.name, none), field.type) for field in LISTED], schema=LISTED)
    yield from split_into_intervals(table.sort_by("key"), *bounds_of(folder))
