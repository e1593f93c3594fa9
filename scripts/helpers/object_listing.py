"""Complete listings of objects under a prefix or directory. The only module that calls S3."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from scripts.helpers.errors import SourceError
from scripts.helpers.identities import Identity

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@dataclass(frozen=True)
class Location:
    """A prefix to list: ``s3://bucket/prefix/``, ``s3a://bucket/prefix/`` or a local directory.

    `prefix` ends with a slash or is empty; for a local directory it is the directory itself.
    Keys of identities are relative to the prefix.
    """

    scheme: str
    bucket: str
    prefix: str

    @classmethod
    def parse(cls, source: str) -> Location:
        """Read a source as users write it. SourceError for a prefix without its slash."""
        scheme, separator, _ = source.partition("://")
        if not separator or scheme == "file":
            path = source.removeprefix("file://")
            if not path:
                raise SourceError(source, "it is empty. Name a directory, or . for the current one.")
            return cls("file", "", os.path.abspath(path).rstrip("/") + "/")
        if scheme not in ("s3", "s3a"):
            raise SourceError(source, f"the scheme {scheme!r} is not known. Use s3://, s3a:// or a local directory.")
        bucket, _, prefix = source[len(scheme) + 3 :].partition("/")
        if not bucket or urlsplit(f"//{bucket}").netloc != bucket:
            raise SourceError(source, "there is no bucket in it. Write s3://bucket/prefix/.")
        if prefix and not prefix.endswith("/"):
            raise SourceError(
                source, f"a prefix ends with a slash, or {prefix!r} would match its neighbours too. Write {source}/."
            )
        return cls(scheme, bucket, prefix)

    def __str__(self) -> str:
        return self.uri("")

    @property
    def is_local(self) -> bool:
        """Tell a local directory from a bucket."""
        return self.scheme == "file"

    def uri(self, relative_key: str) -> str:
        """Write the URI of one object as Hadoop reads it: the raw key, nothing escaped."""
        if self.is_local:
            return f"file://{self.prefix}{relative_key}"
        return f"{self.scheme}://{self.bucket}/{self.prefix}{relative_key}"

    @property
    def name(self) -> str:
        """Return the source without its spelling: s3:// and s3a:// name the same objects."""
        return self.uri("").replace("s3a://", "s3://", 1)


def list_objects(location: Location, s3_client: S3Client | None = None) -> Iterator[Identity]:
    """List every object under a location, in no promised order.

    All or nothing: if any page fails, a SourceError ends the iteration, and what came before must
    not be used. EncodingType is left to botocore, which then decodes keys (``+``, ``%``, control
    characters) by itself.
    """
    if location.is_local:
        yield from _list_directory(location)
    else:
        yield from _list_bucket(location, s3_client)


def _list_bucket(location: Location, s3_client: S3Client | None) -> Iterator[Identity]:
    try:
        client = s3_client or boto3.client("s3")
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=location.bucket, Prefix=location.prefix)
        for page in pages:
            for found in page.get("Contents", []):
                yield Identity(found["Key"][len(location.prefix) :], found["ETag"].strip('"'), found["Size"])
    except ClientError as error:
        code = error.response["Error"]["Code"]
        raise SourceError(
            str(location), f"S3 refused to list it ({code}). Check the name and s3:ListBucket."
        ) from error
    except BotoCoreError as error:
        name = type(error).__name__
        raise SourceError(str(location), f"S3 could not be reached ({name}). Check region, endpoint, login.") from error


def _list_directory(location: Location) -> Iterator[Identity]:
    def refuse(error: OSError) -> NoReturn:
        raise SourceError(str(location), f"it cannot be listed: {error.strerror}. Check the path and its rights.")

    for folder, folders, names in os.walk(location.prefix, onerror=refuse):
        folders.sort()
        for name in names:
            path = os.path.join(folder, name)
            try:
                status = os.stat(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                refuse(error)
            etag = f"{status.st_mtime_ns:x}-{status.st_ino:x}"
            yield Identity(os.path.relpath(path, location.prefix), etag, status.st_size)
