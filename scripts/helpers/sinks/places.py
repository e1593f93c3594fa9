"""Places where files are stored, and the operations on them: local directories, S3, and Hadoop's other file systems.

A place is a folder, its root. Names of files are relative to the root, with slashes. A failure raises a `TargetError`
that names the action and the file. So does a name that leads out of the root, by ".." or over a link, because names may
come from a manifest or an item that an attacker wrote.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from io import BytesIO
from itertools import islice
from typing import Any, BinaryIO, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from scripts.helpers._lazy import S3Client, SparkSession
from scripts.helpers.display.redaction import redact_logs
from scripts.helpers.errors import InvalidValueError, TargetError
from scripts.helpers.listing.links import is_inside, open_itself, without_links
from scripts.helpers.listing.paths import is_plain
from scripts.helpers.listing.s3 import code_of, login_or_load, make_client
from scripts.helpers.protocol.names import new_token
from scripts.helpers.spark.jvm import check_jvm, hadoop_settings, has_jvm, java_of

CONNECTIONS = 16
"""Concurrent copies. S3 takes 3,500 writes a second below one prefix, and one copy takes about 50 ms."""
MAX_COPY_BYTES = 5 * 1024**3
"""The most bytes that S3 copies in one request; larger files are copied in parts."""
S3_SCHEMES = ("s3", "s3a", "s3n")
"""Schemes that all name the same bucket: Spark writes to s3a://, pandas to s3://."""
PROBE = "_may-write"
"""An object that is put and deleted to find out whether both are allowed. Readers skip its name."""
MAX_DELETED = 1_000
"""The most keys in one delete request."""
MAX_UPDATES = 100
PART_BYTES = 1024**2
"""Bytes of a file that are passed to Hadoop at a time."""
CHANGED_MEANWHILE = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "412", "409", "404")
"""S3's error codes if an object is not the one that a condition names: replaced, being written, or gone."""


class Place(Protocol):
    """A folder whose files are listed, moved and deleted."""

    root: str

    def uri(self, name: str) -> str:
        """Return the URI of a file or folder, in a form that Spark can read and write."""

    def files(self, folder: str = "", most: int | None = None) -> dict[str, int]:
        """Return the size in bytes, by name, of up to `most` files in a folder and below; {} if there is no folder."""

    def read(self, name: str, last: int | None = None) -> bytes | None:
        """Return the content of a file, or only its last `last` bytes; None if there is no such file."""

    def write(self, name: str, data: bytes | BinaryIO) -> None:
        """Write a file atomically: readers see the whole file or none. If `data` is an open file, all of it is read."""

    def update(self, name: str, change: Callable[[bytes | None], bytes | None]) -> None:
        """Pass a file's content (None without a file) to `change`, and write what that returns; if None, write nothing.

        If another process changes the file meanwhile, `change` is called again with the new content, so no change is
        lost. Hadoop's file systems other than S3A have no conditional writes, so there the later of two writes wins.
        """

    def move(self, names: Mapping[str, str], sizes: Mapping[str, int], to: Any) -> list[str]:
        """Move files to a place of the same kind; `names` maps each old name to the new one.

        Returns the old names of the files that were not moved, because they do not exist, or because the new name does:
        HDFS and some other file systems of Hadoop replace no file. On S3 the old file stays, because S3 can only copy.
        """

    def check_rights(self, to: Any) -> None:
        """Raise TargetError if this process has no right to write files here, or to move files to the place `to`.

        Sinks call this before they stage anything, because after the commit it is too late to find a right missing.
        """

    def delete(self, names: Collection[str]) -> None:
        """Delete files, and ignore those that are gone."""

    def delete_folder(self, folder: str, last: str, found: Collection[str] | None = None) -> None:
        """Delete a folder with all its content; of its files, delete `last` last.

        On S3, if the names `found` are given, the folder is not listed: only these files and `last` are deleted.
        """


class LocalPlace:
    """A directory on this machine, or one that all machines of a cluster mount."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)

    def uri(self, name: str) -> str:
        return f"file://{os.path.join(self.root, name) if name else self.root}"

    def files(self, folder: str = "", most: int | None = None) -> dict[str, int]:
        # Treat a link as a file, even if it leads to a folder. So if the folder to be listed, or a folder above it, is
        # a link, there are no files.
        folder = folder.rstrip("/")
        with _typed("list", self.uri(folder)):
            if folder and without_links(self.root, _checked(self, folder)) != folder:
                return {}
            return dict(islice(self._walk(folder), most))

    def read(self, name: str, last: int | None = None) -> bytes | None:
        with _typed("read", self.uri(name)):
            try:
                with open(self._path(name, follows=True), "rb") as file:
                    if last is not None:
                        file.seek(max(0, os.fstat(file.fileno()).st_size - last))
                    return file.read()
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes | BinaryIO) -> None:
        # Write the file under a name that no other writer uses, and rename it when all of it is on disk.
        path = self._path(name)
        with _typed("write", self.uri(name)), _unfinished(path) as unfinished:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(unfinished, "xb", opener=open_itself) as file:
                shutil.copyfileobj(_opened(data), file)
                file.flush()
                # Write to the disk now: otherwise a power cut after the rename may leave an empty file.
                os.fsync(file.fileno())
            os.replace(unfinished, path)

    def update(self, name: str, change: Callable[[bytes | None], bytes | None]) -> None:
        # Lock a file: the lock ends if this process dies. Do not delete the file, because others may wait for its lock.
        with _typed("lock", self.uri(name)):
            os.makedirs(self.root, exist_ok=True)
        with _typed("lock", self.uri(name)), open(self._path(f"{name}.lock"), "ab", opener=open_itself) as lock:
            # If a mounted store has no locks, risk losing a concurrent update: an error would block a committed batch.
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            data = change(self.read(name))
            if data is not None:
                self.write(name, data)

    def move(self, names: Mapping[str, str], sizes: Mapping[str, int], to: LocalPlace) -> list[str]:
        gone = []
        paths = {old: (self._path(old, follows=True), to._path(new)) for old, new in names.items()}
        for folder in {os.path.dirname(path) for _, path in paths.values()}:
            with _typed("make the folder", folder):
                os.makedirs(folder, exist_ok=True)
        for old, new in names.items():
            with _typed("rename to", to.uri(new)):
                try:
                    os.replace(*paths[old])
                except FileNotFoundError:
                    gone.append(old)
        return gone

    def at(self, uri: str) -> LocalPlace | None:
        """Return the directory at a URI or path as a place; None if it is not a directory of this machine."""
        scheme, _, path = uri.rpartition("://")
        return LocalPlace(path.removeprefix("file:")) if scheme in ("", "file") else None

    def copy(self, names: Mapping[str, str], sizes: Mapping[str, int], to: LocalPlace) -> list[str]:
        """Like `move`, but keep the old files: make hard links of them, or copies if that is not possible."""
        gone = []
        for old, new in names.items():
            source, path = self._path(old, follows=True), to._path(new)
            with _typed("link to", to.uri(new)):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                try:
                    _link(source, path)
                except FileNotFoundError:
                    gone.append(old)
        return gone

    def check_rights(self, to: LocalPlace) -> None:
        for place in (self, to):
            there = place.nearest()
            if not os.access(there, os.W_OK | os.X_OK):
                raise _refused(place.uri(""), "write below", f"{there!r} is not writable by this user")

    def nearest(self) -> str:
        """Return the directory, or its nearest parent that exists."""
        there = self.root
        while not os.path.exists(there):
            there = os.path.dirname(there)
        return there

    def delete(self, names: Collection[str]) -> None:
        for name in names:
            with _typed("delete", self.uri(name)), suppress(FileNotFoundError):
                os.remove(self._path(name))

    def delete_folder(self, folder: str, last: str, found: Collection[str] | None = None) -> None:
        # If the folder is a link, delete the link, but not the files in the folder to which it leads.
        path = self._path(folder)
        self.delete([folder] if os.path.islink(path) else [name for name in self.files(folder) if name != last])
        self.delete([last])
        # Also delete files that were written after the listing: their writer has to expect that its folder is deleted.
        shutil.rmtree(path, ignore_errors=True)

    def _path(self, name: str, *, follows: bool = False) -> str:
        """Return the path of a file, by name; TargetError if the path leads out of the root.

        If the file is a link, writing or deleting changes only the link. Reads and moves follow it: pass `follows`.
        """
        folder = os.path.dirname(_checked(self, name))
        leads_in = is_inside(self.root, name, {}) if follows else without_links(self.root, folder) is not None
        if not leads_in or "\0" in name:
            detail = f"the name {name!r} leads out of it over a link, so nothing was done there. Remove the link."
            raise TargetError(self.uri(""), detail)
        return os.path.join(self.root, name)

    def _walk(self, folder: str) -> Iterator[tuple[str, int]]:
        try:
            with os.scandir(os.path.join(self.root, folder)) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        for entry in entries:
            name = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(name)
                continue
            try:
                follows = not entry.is_symlink() or without_links(self.root, name) is not None
                yield name, entry.stat(follow_symlinks=follows).st_size
            except FileNotFoundError:
                continue  # The file was moved or deleted after the directory was read.


class S3Place:
    """A prefix of a bucket.

    A listing or a deletion takes one request for each 1,000 files. A move takes a request for each file, 16 at a time.
    """

    def __init__(self, root: str, client: S3Client) -> None:
        self.root = root.rstrip("/")
        scheme, _, rest = self.root.partition("://")
        self._scheme = scheme
        self.bucket, _, prefix = rest.partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._client = client

    def uri(self, name: str) -> str:
        return f"{self._scheme}://{self.bucket}/{self._prefix}{name}".rstrip("/")

    def at(self, uri: str) -> S3Place | None:
        """Return a place with the same client for the prefix in a URI of S3; None for any other URI."""
        return S3Place(uri, self._client) if uri.partition("://")[0] in S3_SCHEMES else None

    def login(self) -> dict[str, str]:
        """Return login, region and endpoint by names such as AWS_REGION, as `deltalake` takes them; no empty values."""
        credentials: Any = self._client._request_signer._credentials  # type: ignore[attr-defined]
        frozen = credentials.get_frozen_credentials() if credentials is not None else None
        endpoint = self._client.meta.endpoint_url
        found = {
            "AWS_ACCESS_KEY_ID": frozen.access_key if frozen else None,
            "AWS_SECRET_ACCESS_KEY": frozen.secret_key if frozen else None,
            "AWS_SESSION_TOKEN": frozen.token if frozen else None,
            "AWS_REGION": self._client.meta.region_name,
            # Leave out an endpoint of AWS itself, because `deltalake` derives it from the region.
            "AWS_ENDPOINT_URL": None if "amazonaws.com" in endpoint else endpoint,
            "AWS_ALLOW_HTTP": "true" if endpoint.startswith("http://") else None,
        }
        return {name: value for name, value in found.items() if value}

    def files(self, folder: str = "", most: int | None = None) -> dict[str, int]:
        prefix = self._prefix + (f"{folder.rstrip('/')}/" if folder else "")
        found: dict[str, int] = {}
        config: Any = {"PageSize": most}
        with _typed("s3:ListBucket on", self.uri(folder)):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=prefix, PaginationConfig=config
            )
            for page in pages:
                for listed in page.get("Contents", []):
                    found[listed["Key"][len(self._prefix) :]] = listed["Size"]
                # Count names, not pages: a page may have fewer names than requested even if more pages follow.
                if most is not None and len(found) >= most:
                    break
        return dict(islice(found.items(), most))

    def read(self, name: str, last: int | None = None) -> bytes | None:
        return self._read(name, **({} if last is None else {"Range": f"bytes=-{last}"}))[0]

    def _read(self, name: str, **options: Any) -> tuple[bytes | None, str]:
        """Return the content and the ETag of an object; (None, "") if there is no such object."""
        with _typed("s3:GetObject on", self.uri(name)):
            try:
                found = self._client.get_object(Bucket=self.bucket, Key=self._key(name), **options)
                return found["Body"].read(), found["ETag"]
            except ClientError as error:
                if code_of(error) in ("NoSuchKey", "404"):
                    return None, ""
                raise

    def write(self, name: str, data: bytes | BinaryIO) -> None:
        with _typed("s3:PutObject on", self.uri(name)):
            # `upload_fileobj` uploads large files in several requests, because one request takes no more than 5 GB.
            self._client.upload_fileobj(_opened(data), self.bucket, self._key(name))

    def update(self, name: str, change: Callable[[bytes | None], bytes | None]) -> None:
        # A boto3 from before 2024-11, as on Glue 4, has no conditions for PutObject, so write without one.
        given = self._client.meta.service_model.operation_model("PutObject").input_shape
        knows = "IfMatch" in getattr(given, "members", ())
        for _ in range(MAX_UPDATES):
            found, tag = self._read(name)
            data = change(found)
            if data is None:
                return
            condition: Any = ({"IfMatch": tag} if tag else {"IfNoneMatch": "*"}) if knows else {}
            with _typed("s3:PutObject on", self.uri(name)):
                try:
                    self._client.put_object(Bucket=self.bucket, Key=self._key(name), Body=data, **condition)
                    return
                except ClientError as error:
                    if code_of(error) not in CHANGED_MEANWHILE:
                        raise
        raise _refused(self.uri(name), "s3:PutObject on", f"others changed it {MAX_UPDATES} times meanwhile")

    def move(self, names: Mapping[str, str], sizes: Mapping[str, int], to: S3Place) -> list[str]:
        return self.copy(names, sizes, to)

    def copy(self, names: Mapping[str, str], sizes: Mapping[str, int], to: S3Place) -> list[str]:
        """Copy files; see `Place.move`."""

        def copy(old: str) -> bool:
            return self._copy(old, to, names[old], sizes[old])

        with ThreadPoolExecutor(CONNECTIONS) as threads:
            return [old for old, copied in zip(names, threads.map(copy, names), strict=True) if not copied]

    def check_rights(self, to: S3Place) -> None:
        # Check the rights by writing, copying and deleting a file: no request to IAM shows whether that is allowed.
        self.write(PROBE, b"")
        self._copy(PROBE, to, PROBE, 0)
        # If `to` refuses the delete, leave its test file, as a lake may allow only writes. Delete the one in staging.
        try:
            self._delete([self._key(PROBE), to._key(PROBE)])
        except TargetError:
            self.delete([PROBE])

    def delete(self, names: Collection[str]) -> None:
        # Allow names with empty parts, such as "a//", by which S3A marks a folder.
        self._delete([self._prefix + _checked(self, name, literal=True) for name in names])

    def _delete(self, keys: Sequence[str]) -> None:
        left = [{"Key": key} for key in keys]
        while left:
            part, left = left[:MAX_DELETED], left[MAX_DELETED:]
            with _typed("s3:DeleteObject on", self.uri("")):
                answer = self._client.delete_objects(Bucket=self.bucket, Delete={"Objects": part, "Quiet": True})  # type: ignore[typeddict-item]
            # Look for errors in the answer: S3 returns status 200 even if it refused to delete some keys.
            for refused in answer.get("Errors", []):
                raise _refused(self.uri(""), f"s3:DeleteObject of {refused.get('Key')!r} on", str(refused.get("Code")))

    def delete_folder(self, folder: str, last: str, found: Collection[str] | None = None) -> None:
        # One request deletes up to 1,000 files, and S3 may delete the file `last` but fail to delete another one. That
        # is safe: no run will publish files of this folder, and a later run sweeps the files that are left.
        found = self.files(_checked(self, folder)) if found is None else found
        self.delete([*(name for name in found if name != last), last])

    def _copy(self, old: str, to: S3Place, new: str, size: int) -> bool:
        source: Any = {"Bucket": self.bucket, "Key": self._key(old)}
        with _typed("s3:PutObject (or s3:GetObject on its staged file) for", to.uri(new)):
            try:
                if size < MAX_COPY_BYTES:
                    self._client.copy_object(Bucket=to.bucket, Key=to._key(new), CopySource=source)
                else:
                    self._client.copy(source, to.bucket, to._key(new))
            except ClientError as error:
                if code_of(error) in ("NoSuchKey", "404"):
                    return False
                raise
        return True

    def _key(self, name: str) -> str:
        return self._prefix + _checked(self, name)


class HadoopPlace:
    """A file system that only Hadoop can reach, such as HDFS. It needs Spark's JVM, so it cannot use Spark Connect."""

    def __init__(self, root: str, spark: SparkSession) -> None:
        self.root = root.rstrip("/")
        self._java: Any = java_of(spark)
        self._system: Any = self._path("").getFileSystem(hadoop_settings(spark))
        self._start = len(self._system.makeQualified(self._path("")).toUri().getPath().rstrip("/")) + 1

    def uri(self, name: str) -> str:
        return f"{self.root}/{name}".rstrip("/")

    def files(self, folder: str = "", most: int | None = None) -> dict[str, int]:
        found: dict[str, int] = {}
        with _typed("list", self.uri(folder)):
            path = self._named(folder.rstrip("/")) if folder else self._path("")
            if not self._system.exists(path):
                return found
            listed = self._system.listFiles(path, True)
            while listed.hasNext() and (most is None or len(found) < most):
                status = listed.next()
                found[status.getPath().toUri().getPath()[self._start :]] = int(status.getLen())
        return found

    def read(self, name: str, last: int | None = None) -> bytes | None:
        with _typed("read", self.uri(name)):
            if not self._system.exists(self._named(name)):
                return None
            stream = self._system.open(self._named(name))
            try:
                if last is not None:
                    stream.seek(max(0, self._system.getFileStatus(self._named(name)).getLen() - last))
                return bytes(self._java.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def write(self, name: str, data: bytes | BinaryIO) -> None:
        # Write the file under another name, and rename it when it is complete, so that no reader sees a part of it.
        path, unfinished = self._named(name), self._path(f"{name}.{new_token()[:8]}.unfinished")
        with _typed("write", self.uri(name)):
            stream = self._system.create(unfinished, True)
            for part in iter(partial(_opened(data).read, PART_BYTES), b""):
                stream.write(bytearray(part))
            stream.close()
            self._system.delete(path, False)
            if not self._system.rename(unfinished, path):
                raise _refused(self.uri(name), "rename a file to", "the file system says no")

    def update(self, name: str, change: Callable[[bytes | None], bytes | None]) -> None:
        data = change(self.read(name))
        if data is not None:
            self.write(name, data)

    def move(self, names: Mapping[str, str], sizes: Mapping[str, int], to: HadoopPlace) -> list[str]:
        gone = []
        paths = {old: (self._named(old), to._named(new)) for old, new in names.items()}
        for folder in {new.rpartition("/")[0] for new in names.values()}:
            with _typed("make the folder", to.uri(folder)):
                self._system.mkdirs(to._path(folder))
        for old, new in names.items():
            with _typed("rename to", to.uri(new)):
                if not self._renamed(*paths[old]):
                    gone.append(old)
        return gone

    def check_rights(self, to: HadoopPlace) -> None:
        write = self._java.org.apache.hadoop.fs.permission.FsAction.WRITE
        for place in (self, to):
            there = place._path("")
            while there.getParent() is not None and not self._system.exists(there):
                there = there.getParent()
            with _typed("write below", place.uri("")):
                self._system.access(there, write)

    def delete(self, names: Collection[str]) -> None:
        for name in names:
            with _typed("delete", self.uri(name)):
                self._system.delete(self._named(name), False)

    def delete_folder(self, folder: str, last: str, found: Collection[str] | None = None) -> None:
        path = self._named(folder)
        self.delete([name for name in self.files(folder) if name != last])
        with _typed("delete", self.uri(folder)):
            self._system.delete(path, True)

    def _renamed(self, old: Any, new: Any) -> bool:
        """Rename a file; return False if it is gone, or if the new name exists and the file system replaces no file."""
        try:
            return bool(self._system.rename(old, new))
        except Exception as error:
            # If the file is gone, HDFS returns False, but other file systems raise this error.
            if "FileNotFoundException" in str(error):
                return False
            raise

    def _named(self, name: str) -> Any:
        return self._path(_checked(self, name))

    def _path(self, name: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(self.uri(name))


def _link(source: str, path: str) -> None:
    """Make `path` a hard link to (or copy of) `source`, replacing any file; FileNotFoundError if `source` is gone."""
    with _unfinished(path) as unfinished:
        try:
            # Set the file's time to now: Delta's VACUUM deletes old files that no commit names, and none names it yet.
            os.utime(source)
            os.link(source, unfinished)
        except FileNotFoundError:
            raise
        except OSError:
            # Copy the file if no link is possible: the disk has no hard links, or the file is another user's.
            shutil.copyfile(source, unfinished)
        os.replace(unfinished, path)


@contextmanager
def _unfinished(path: str) -> Iterator[str]:
    """Yield an unused path next to `path`. At the end of the block, delete the file at that path if one is left."""
    unfinished = f"{path}.{new_token()[:8]}.unfinished"
    try:
        yield unfinished
    finally:
        # The file still exists after an error. It also does if `os.replace` found two links to one file: it keeps both.
        with suppress(FileNotFoundError, NotADirectoryError):
            os.remove(unfinished)


def _checked(place: Place, name: str, *, literal: bool = False) -> str:
    """Return the given name; TargetError if it may lead out of the place, because an attacker may have written it."""
    if not is_plain(name, literal=literal):
        raise TargetError(
            place.uri(""), f"the name {name!r} leads out of it, or is not that of a file, so nothing was done there. "
            "Restore what has the name from a backup: a manifest in the staging folder, or the job's item.",
        )  # fmt: skip
    return name


def place_of(path: str, spark: SparkSession | None, s3_client: S3Client | None) -> Place:
    """Return the place that a path names. With Spark, a path without a scheme is in Hadoop's default file system.

    Raises
    ------
    InvalidValueError
        No file system is known for the scheme.
    """
    if not path or path != path.strip() or path.endswith("://"):
        raise InvalidValueError(f"The path {path!r} names no folder. Write s3://bucket/prefix/ or a directory.")
    path = _qualified(path, spark)
    scheme, separator, rest = path.partition("://")
    if not separator:
        return LocalPlace(path.removeprefix("file:"))
    if scheme == "file":
        return LocalPlace(rest)
    if scheme in S3_SCHEMES:
        _check_segments(path)
        return S3Place(path, s3_client or make_client(CONNECTIONS, **_s3_settings_of(spark)))
    if spark is None:
        raise InvalidValueError(f"{path!r} needs a Spark session with a JVM. Write s3://… or a directory without one.")
    check_jvm(spark, f"The path {path!r}", "Write s3://…, or run the job with a classic session.")
    if {".", ".."} & set(rest.split("/")):
        raise InvalidValueError(f"The path {path!r} has a part '.' or '..'. Write the folder that it leads to.")
    return HadoopPlace(path, spark)


def is_within(uri: str, other: str) -> bool:
    """Return whether the folder `uri` is `other` or below it, even if one is written as s3:// and one as s3a://."""
    return _normal_form(uri).startswith(_normal_form(other))


def is_same_folder(uri: str, other: str) -> bool:
    """Return whether two URIs or local paths are one folder, such as `s3://b/a/` and `s3a://b/a`."""
    return _normal_form(uri) == _normal_form(other)


def place_of_name(name: str) -> str:
    """Return a `Sink.name` in a form that is the same for all spellings of a folder. Names of tables stay unchanged.

    For example, Spark writes to s3a://b/a and pandas to s3://b/a. Links to directories are resolved.
    """
    return _normal_form(name) if "://" in name else name


def _normal_form(uri: str) -> str:
    """Return a folder's URI in the one form to compare. It ends in a slash: `s3://b/ab/` is not within `s3://b/a/`."""
    scheme, separator, path = uri.partition("://")
    if not separator:
        # Accept file:/path, too: Hadoop writes paths so, and some catalogs store a location as they get it.
        scheme, path = "file", uri.removeprefix("file:")
    if scheme == "file":
        # Resolve links, even if the last parts of the path do not exist yet.
        return f"file://{os.path.realpath(path)}".rstrip("/") + "/"
    return f"{'s3' if scheme in S3_SCHEMES else scheme}://{path.rstrip('/')}/"


def _check_segments(path: str) -> None:
    """Raise InvalidValueError for a path such as `a//b` or `a/../b`: Spark normalizes it, but S3 takes it literally."""
    _, _, rest = path.partition("://")
    odd = {"", ".", ".."} & set(rest.rstrip("/").split("/")[1:])
    if odd:
        raise InvalidValueError(
            f"The path {path!r} has the part {odd.pop()!r}, which S3 takes for a name and Spark does not. "
            "Write it without."
        )


def _qualified(path: str, spark: SparkSession | None) -> str:
    """Return a path with a scheme. If it has none, add that of Spark's default file system, which is HDFS on EMR."""
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:/", path) or spark is None:
        return path
    # Refuse a path without a scheme for Spark Connect: the server may use HDFS, and this process its own disk.
    remedy = "Write s3://… or, where Spark's server runs on this machine, file:///…."
    check_jvm(spark, f"The path {path!r}, which has no scheme,", remedy)
    conf = hadoop_settings(spark)
    default = str(conf.get("fs.defaultFS", "file:///"))
    if default.startswith("file:"):
        return path
    named = java_of(spark).org.apache.hadoop.fs.Path(path)
    return str(named.getFileSystem(conf).makeQualified(named).toString())


def _s3_settings_of(spark: SparkSession | None) -> dict[str, Any]:
    """Return endpoint and keys of S3 from Spark's settings, so that boto3 uses the store to which Spark writes.

    Over Spark Connect these settings cannot be read, so boto3 uses the environment of this process, as without Spark.
    """
    if spark is None or not has_jvm(spark):
        return {}
    redact_logs()  # Do this first, because py4j logs the keys when they are read.
    conf = hadoop_settings(spark)
    options: dict[str, Any] = {}
    endpoint = str(conf.get("fs.s3a.endpoint", "") or "")
    # Leave out an endpoint of AWS itself, because boto3 derives it from the region.
    if endpoint and "amazonaws.com" not in endpoint:
        secure = str(conf.get("fs.s3a.connection.ssl.enabled", "true")) == "true"
        # Add a scheme, because S3A accepts an endpoint without one, but boto3 does not.
        if "://" not in endpoint:
            endpoint = f"{'https' if secure else 'http'}://{endpoint}"
        options["endpoint_url"] = endpoint
    key, secret = conf.get("fs.s3a.access.key", None), conf.get("fs.s3a.secret.key", None)
    if key and secret:
        options |= {"aws_access_key_id": str(key), "aws_secret_access_key": str(secret)}
        token = conf.get("fs.s3a.session.token", None)
        options["aws_session_token"] = str(token) if token else None
    return options


@contextmanager
def _typed(action: str, uri: str) -> Iterator[None]:
    """Translate errors of the storage to a TargetError that names the failed action and the URI."""
    try:
        yield
    except (ClientError, BotoCoreError, OSError) as error:
        raise login_or_load(uri, error) or _refused(uri, action, code_of(error)) from error
    except Exception as error:
        # Translate Hadoop's errors, which arrive as Py4JJavaError. The first line names the Java class and the reason.
        if type(error).__name__ != "Py4JJavaError":
            raise
        reason = str(error.java_exception).splitlines()[0]  # type: ignore[attr-defined]
        raise _refused(uri, action, reason) from error


def _opened(data: bytes | BinaryIO) -> BinaryIO:
    return BytesIO(data) if isinstance(data, bytes) else data


def _refused(uri: str, action: str, reason: str) -> TargetError:
    remedy = "Check the path, and the rights to that action there."
    if re.search("No space left|quota exceeded", reason):
        remedy = "Free space there."
    return TargetError(uri, f"{action} {uri}: {reason}. {remedy}")
