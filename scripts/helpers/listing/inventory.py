"""Read S3 Inventory reports as listings, for buckets that should not be listed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from importlib.util import find_spec
from tempfile import NamedTemporaryFile, TemporaryDirectory, gettempdir
from typing import IO, TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from scripts.helpers._lazy import S3Client
from scripts.helpers.errors import SourceError
from scripts.helpers.listing.inventory_files import FORMATS, Report
from scripts.helpers.listing.objects import EPOCH, Interval
from scripts.helpers.listing.s3 import code_of, login_or_load, make_client, read_at_most

if TYPE_CHECKING:
    from scripts.helpers.listing.listing import Location

VERSION = "2016-11-30"
MANIFEST, CHECKSUM = "manifest.json", "manifest.checksum"
CHUNK_BYTES = 4 * 1024 * 1024
"""Bytes of a data file in memory at once, while it is copied to local disk."""
MAX_MANIFEST_BYTES = 16 * 1024 * 1024
"""Largest manifest: about fifty thousand data files."""
MAX_FILE_BYTES = 8 * 1024 * 1024 * 1024
"""Largest data file, by its size in the bucket, because it is copied to local disk."""
ATTEMPTS = 3
"""Attempts to fetch a data file whose transfer breaks off: botocore retries only what fails before an answer."""

_REPORT_FOLDER = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\dZ/")


@dataclass(frozen=True)
class _DataFile:
    key: str
    md5: str


@dataclass(frozen=True)
class _Manifest:
    uri: str
    source_bucket: str
    created: datetime
    file_format: str
    file_schema: str
    files: tuple[_DataFile, ...]


class S3Inventory:
    """One report of S3 Inventory, read as a listing.

    A report shows the bucket as it was when S3 began to scan it, up to days ago: objects written since
    are missing, and objects deleted since are still listed. The report must cover the whole source. Only
    the filter of the inventory's configuration shows which keys it covers, not the report itself. If the
    report has versions, only the latest version of each key counts, unless it is a delete marker.

    Parameters
    ----------
    manifest_uri
        ``s3://bucket/…/2026-03-16T01-00Z/manifest.json``; or, ending in a slash, the folder in which
        S3 creates such a folder for each report (``s3://bucket/prefix/source-bucket/configuration/``). Then
        the newest report that has both a manifest and a checksum is chosen at first use, and kept.
    s3_client
        A boto3 S3 client; by default one from boto3's default session.

    Examples
    --------
    >>> S3Inventory("s3://reports/landing/daily/manifest.json")
    <S3Inventory 's3://reports/landing/daily/manifest.json'>
    """

    def __init__(self, manifest_uri: str, *, s3_client: S3Client | None = None) -> None:
        found = re.fullmatch(r"s3a?://([^/]+)/(.*)", manifest_uri, re.DOTALL)
        if not found or not re.search(rf"(^|/)({re.escape(MANIFEST)})?$", found[2]):
            raise SourceError(
                manifest_uri,
                f"it names no inventory. Write s3://bucket/…/{MANIFEST}, or the folder of its reports with a slash.",
            )
        self.manifest_uri = manifest_uri
        self._bucket, self._key = found[1], found[2]
        self._given_client = s3_client

    def __repr__(self) -> str:
        return f"<S3Inventory {self.manifest_uri!r}>"

    @property
    def created(self) -> datetime:
        """The time at which S3 began to scan the bucket, in UTC."""
        return self._manifest.created

    def list_objects(self, location: Location) -> Iterator[Interval]:
        """Yield the current objects below a location, sorted, in consecutive intervals.

        Each file in turn is copied to the system's temporary folder, and used only if its checksum is right. The first
        interval is yielded after all files were read without an error.

        Raises
        ------
        SourceError
            The report is for another bucket, is damaged or lacks columns, S3 refuses a file, the temporary folder is
            full, or DuckDB is not installed.
        """
        manifest = self._manifest
        if location.is_local or location.bucket != manifest.source_bucket:
            raise SourceError(
                manifest.uri,
                f"it is an inventory of bucket {manifest.source_bucket!r}, and the source is {str(location)!r}. "
                "Name the inventory of the source's bucket.",
            )
        if not find_spec("duckdb"):
            raise SourceError(manifest.uri, "it needs duckdb. Install it: pip install duckdb.")
        try:
            with TemporaryDirectory(prefix="inventory-") as folder:
                report = Report(folder, manifest.uri, location.prefix)
                # Read each file only once, even if a damaged manifest names it many times.
                for data_file in dict.fromkeys(manifest.files):
                    with self._verified(manifest, data_file, folder) as path:
                        try:
                            report.add(path, manifest.file_format, manifest.file_schema)
                        except ValueError as error:
                            raise SourceError(
                                manifest.uri,
                                f"its file {data_file.key!r} cannot be read as {manifest.file_format}: "
                                f"{_first_line(error)}. Take another report.",
                            ) from error
                yield from report.intervals()
        except OSError as error:
            raise SourceError(
                self.manifest_uri,
                f"it could not be sorted in {gettempdir()}: {_first_line(error)}. Make room there, or set TMPDIR.",
            ) from error

    @cached_property
    def _client(self) -> S3Client:
        return self._given_client or make_client(1)

    @cached_property
    def _manifest(self) -> _Manifest:
        key = self._key if self._key.endswith(MANIFEST) else self._newest()
        body = self._read(key)
        checksum = self._read(key.removesuffix(MANIFEST) + CHECKSUM).decode("ascii", "replace").strip()
        uri = f"s3://{self._bucket}/{key}"
        if checksum.lower() != hashlib.md5(body, usedforsecurity=False).hexdigest():
            raise SourceError(uri, f"its MD5 is not the one in {CHECKSUM}. Take another report.")
        return _parse_manifest(uri, body)

    def _newest(self) -> str:
        """Return the key of the manifest of the newest report that is complete."""
        with self._translated(self.manifest_uri):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._key, Delimiter="/"
            )
            folders = [found["Prefix"] for page in pages for found in page.get("CommonPrefixes", [])]
            # Folders of reports have dates as names and sort by time. Skip other folders, such as data/ and hive/.
            dated = [name for name in folders if _REPORT_FOLDER.fullmatch(name[len(self._key) :])]
            reports = sorted(dated, reverse=True)
            for report in reports:
                page = self._client.list_objects_v2(Bucket=self._bucket, Prefix=report)
                # S3 writes the checksum last, so without it the report is still being delivered.
                if {report + MANIFEST, report + CHECKSUM} <= {found["Key"] for found in page.get("Contents", [])}:
                    return report + MANIFEST
        shown = ", ".join(name[len(self._key) :] for name in folders[:5]) or "none"
        raise SourceError(
            self.manifest_uri,
            f"no complete report is in it: {len(reports)} dated folders, none with both {MANIFEST} and {CHECKSUM} "
            f"(folders found: {shown}). Name prefix/source-bucket/configuration/, or wait: the first report takes up "
            "to 48 hours.",
        )

    def _read(self, key: str) -> bytes:
        uri = f"s3://{self._bucket}/{key}"
        with self._translated(uri):
            found = self._client.get_object(Bucket=self._bucket, Key=key)
            body = read_at_most(found["Body"], MAX_MANIFEST_BYTES + 1)
        if len(body) > MAX_MANIFEST_BYTES:
            raise _too_large(uri, MAX_MANIFEST_BYTES)
        return body

    @contextmanager
    def _verified(self, manifest: _Manifest, data_file: _DataFile, folder: str) -> Iterator[str]:
        """Copy a data file to local disk; SourceError if its MD5 is not that of the manifest."""
        with NamedTemporaryFile(dir=folder) as file:
            # Always read from the report's bucket: a forged manifest could name a bucket that its author may not read.
            digest = self._copy(data_file.key, file)
            if digest != data_file.md5.lower():
                raise SourceError(
                    manifest.uri,
                    f"the MD5 of its file {data_file.key!r} is not the one in the manifest. Take another report.",
                )
            file.flush()
            yield file.name

    def _copy(self, key: str, file: IO[bytes]) -> str:
        """Copy an object of the report's bucket into a file and return its MD5.

        Retry a transfer that breaks off, because botocore does not.
        """
        with self._translated(f"s3://{self._bucket}/{key}"):
            for attempt in range(1, ATTEMPTS + 1):
                # Empty the file before each attempt, so that it and its MD5 have no bytes of a broken transfer.
                digest = hashlib.md5(usedforsecurity=False)
                file.seek(0)
                file.truncate()
                copied = 0
                body = self._client.get_object(Bucket=self._bucket, Key=key)["Body"]
                try:
                    for chunk in body.iter_chunks(CHUNK_BYTES):
                        copied += len(chunk)
                        if copied > MAX_FILE_BYTES:
                            raise _too_large(f"s3://{self._bucket}/{key}", MAX_FILE_BYTES)
                        digest.update(chunk)
                        file.write(chunk)
                    break
                except BotoCoreError:
                    if attempt == ATTEMPTS:
                        raise
        return digest.hexdigest()

    @contextmanager
    def _translated(self, uri: str) -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            raise login_or_load(self.manifest_uri, error) or SourceError(
                self.manifest_uri,
                f"S3 refused {uri!r} ({code_of(error)}). Check the name, the region, s3:GetObject and s3:ListBucket.",
            ) from error


def _too_large(uri: str, limit: int) -> SourceError:
    return SourceError(
        uri,
        f"it is larger than {limit:,} bytes, the limit for a file of its kind. Look who wrote it, or take another "
        "report.",
    )


def _parse_manifest(uri: str, body: bytes) -> _Manifest:
    try:
        fields: Mapping[str, Any] = json.loads(body)
        version, file_format = fields["version"], fields["fileFormat"]
        manifest = _Manifest(
            uri=uri,
            source_bucket=str(fields["sourceBucket"]),
            # The value is in milliseconds since 1970. `fromtimestamp` would round some values, and refuse far years.
            created=EPOCH + timedelta(milliseconds=int(fields["creationTimestamp"])),
            file_format=str(file_format),
            file_schema=str(fields["fileSchema"]),
            files=tuple(_DataFile(str(file["key"]), str(file["MD5checksum"])) for file in fields["files"]),
        )
    except KeyError as error:
        raise SourceError(uri, f"the manifest has no {error.args[0]!r}. Take another report.") from error
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise SourceError(
            uri, f"it is not the manifest of an inventory ({_first_line(error)}). Take another report."
        ) from error
    if version != VERSION:
        raise SourceError(uri, f"its version is {version!r}, and {VERSION} is known. Upgrade glue-watermarks.")
    if file_format not in FORMATS:
        raise SourceError(
            uri,
            f"its fileFormat is {file_format!r}, and {' and '.join(FORMATS)} are supported. Set the inventory's "
            "configuration to one of them, and wait for the next report.",
        )
    return manifest


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    # Some errors have no text, so use their type.
    first = lines[0] if lines else type(error).__name__
    return first.rstrip(".")
