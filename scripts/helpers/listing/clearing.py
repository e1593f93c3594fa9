"""Objects of a source, moved to an archive or deleted: each only while it is what was taken."""

from __future__ import annotations

import errno
import filecmp
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import uuid4

from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError

from scripts.helpers._lazy import S3Client
from scripts.helpers.errors import AccessRefusedError, ConfigurationError, SourceError
from scripts.helpers.listing.links import open_itself
from scripts.helpers.listing.listing import Location
from scripts.helpers.listing.objects import OVERWRITABLE, local_etag
from scripts.helpers.listing.s3 import code_of, login_or_load

WORKERS = 16
"""Files that are moved or deleted at once, each in two to four requests that the process only waits for."""
MAX_COPY_BYTES = 5 * 1024**3
"""S3 copies larger objects in parts only (Amazon S3 API, CopyObject)."""
PROBE = "_may-clear"
"""Name of an object that no run writes to a source, and of an empty one that it writes to an archive."""
MARK = "glue-watermarks-source"
"""Metadata of each copy: ETag and size of the object that it was made of."""
MAX_METADATA = 2_000
"""Characters of metadata that a copy is given. S3 takes 2 KB of an object (Amazon S3 User Guide, object metadata)."""
_KEPT = ("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType", "Expires")
"""What S3 copies beside the metadata, unless the metadata is given anew."""
_CHANGED, _GONE, _DENIED = ("PreconditionFailed", "412"), ("NoSuchKey", "404", "NotFound"), ("AccessDenied", "403")


class Taken(NamedTuple):
    """An object that a committed batch took: its identity, and the version of the job that took it."""

    key: str
    etag: str
    version_id: str | None
    size: int
    modified: datetime
    version: int


class Cleared(NamedTuple):
    """How many objects went, and their bytes; how many were left since they are other objects by now, or gone."""

    files: int
    bytes: int
    changed: int
    gone: int


@dataclass(frozen=True)
class Clearing:
    """What is done with objects once they are taken.

    Parameters
    ----------
    location
        Where they are.
    archive
        Where they go, below a folder ``v<version>/`` for each batch; None deletes them. In a bucket that keeps
        versions a delete leaves a marker.
    client
        A boto3 client; None for local directories.
    by_time
        Another time of change makes another object, also with the same bytes.
    """

    location: Location
    archive: Location | None
    client: S3Client | None
    request_payer: bool = False
    by_time: bool = False

    def check_rights(self) -> None:
        """Find out whether this login may do it, as far as that can be told without touching an object.

        Raises
        ------
        AccessRefusedError
            It may not: names the action and what it is refused on.
        ConfigurationError
            boto3 is too old to delete an object only while it is the one that was taken.
        """
        if self.client is None:
            self._check_local()
            return
        operation = self.client.meta.service_model.operation_model("DeleteObject")
        if "IfMatch" not in getattr(operation.input_shape, "members", ()):
            raise ConfigurationError(
                "after_commit needs a boto3 whose DeleteObject has IfMatch: without it a file that was overwritten "
                "meanwhile would be deleted. Update boto3."
            )
        # IAM has no question that tells this. Nothing goes: the object is not there, and would need this ETag.
        with suppress(_OtherError), self._typed("s3:DeleteObject", self.location.uri(PROBE)):
            self._delete(PROBE, "0" * 32)
        if self.archive is not None:
            place: dict[str, Any] = {"Bucket": self.archive.bucket, "Key": self.archive.prefix + PROBE}
            with self._typed("s3:PutObject", self.archive.uri(PROBE)):
                self.client.put_object(**place, Body=b"")

    def clear(self, objects: Sequence[Taken]) -> Cleared:
        """Archive or delete objects, many at once. Doing it again, after a crash, does what is left.

        Raises
        ------
        AccessRefusedError, CredentialsError, SourceUnavailableError, SourceError
            It cannot be done. Some may be done by then; each of the others is where it was.
        """
        one_by_one: Callable[[Taken], str] = self._clear_local if self.client is None else self._clear_object
        with ThreadPoolExecutor(WORKERS) as pool:
            found = list(pool.map(one_by_one, objects))
        done = [taken for taken, outcome in zip(objects, found, strict=True) if outcome == "done"]
        return Cleared(len(done), sum(taken.size for taken in done), found.count("changed"), found.count("gone"))

    # --- S3 -------------------------------------------------------------------------------------

    def _clear_object(self, taken: Taken) -> str:
        uri = self.location.uri(taken.key)
        found: Mapping[str, Any] = {}
        try:
            is_versioned = taken.version_id is not None and taken.version_id != OVERWRITABLE
            # A delete has its own condition. So has a copy, but for servers that pass over it.
            if self.archive is not None or self.by_time or is_versioned:
                with self._typed("s3:GetObject", uri):
                    found = self._compare(taken)
            if self.archive is not None:
                with self._typed("s3:PutObject", self.archive.uri(self._name(taken))):
                    self._copy(self.archive, taken, found)
            with self._typed("s3:DeleteObject", uri):
                self._delete(taken.key, taken.etag)
        except _OtherError as other:
            return str(other)
        return "done"

    def _compare(self, taken: Taken) -> Mapping[str, Any]:
        """Look whether the newest object of a key is the one that was taken, and return what S3 says of it."""
        assert self.client is not None
        found = self.client.head_object(**self._place(taken.key), IfMatch=f'"{taken.etag}"')
        if self.by_time and found["LastModified"] != taken.modified.replace(microsecond=0):
            raise _OtherError("changed")
        if taken.version_id and found.get("VersionId") not in (None, taken.version_id):
            raise _OtherError("changed")
        return found

    def _copy(self, archive: Location, taken: Taken, found: Mapping[str, Any]) -> None:
        """Copy an object, if it is still what was taken, and prove that it has arrived."""
        assert self.client is not None
        place: dict[str, Any] = {"Bucket": archive.bucket, "Key": archive.prefix + self._name(taken)}
        source = {"Bucket": self.location.bucket, "Key": self.location.prefix + taken.key}
        with suppress(_OtherError), self._typed("s3:GetObject", archive.uri(self._name(taken))):
            if not _is_copy(self.client.head_object(**place), taken):
                raise self._is_in_the_way(archive.uri(self._name(taken)))
            return  # Of a run that died before it deleted the source.
        extra = {"CopySourceIfMatch": f'"{taken.etag}"', **_with_mark(found, taken), **self._payer}
        if taken.size < MAX_COPY_BYTES:
            self.client.copy_object(**place, CopySource=source, **extra)  # type: ignore[arg-type]
        else:
            self.client.copy(source, place["Bucket"], place["Key"], ExtraArgs=extra)  # type: ignore[arg-type]
        size = self.client.head_object(**place)["ContentLength"]
        if size != taken.size:
            raise SourceError(
                archive.uri(self._name(taken)),
                f"it has {size} bytes and was copied of {taken.size}. The source keeps its file. Delete this one.",
            )

    def _delete(self, key: str, etag: str) -> None:
        assert self.client is not None
        # With the condition, and not after a look: whoever overwrites it in between would lose a file that no run has
        # taken, or in a bucket with versions have it hidden behind a marker.
        self.client.delete_object(**self._place(key), IfMatch=f'"{etag}"')

    def _place(self, key: str) -> dict[str, Any]:
        return {"Bucket": self.location.bucket, "Key": self.location.prefix + key, **self._payer}

    @property
    def _payer(self) -> dict[str, Any]:
        return {"RequestPayer": "requester"} if self.request_payer else {}

    def _name(self, taken: Taken) -> str:
        return f"v{taken.version}/{taken.key}"

    @contextmanager
    def _typed(self, action: str, uri: str) -> Iterator[None]:
        """Say what S3's refusals mean: another object, one that is gone, a right that is missing, or an outage."""
        try:
            yield
        except (ClientError, BotoCoreError, Boto3Error) as error:
            code = code_of(error) if not isinstance(error, Boto3Error) else type(error).__name__
            if code in _CHANGED:
                raise _OtherError("changed") from None
            if code in _GONE:
                raise _OtherError("gone") from None
            if code in _DENIED:
                raise AccessRefusedError(action, uri) from error
            source = str(self.location)
            raise login_or_load(source, error) or SourceError(
                source, f"{action} on {uri} was refused ({code}). Check the rights to it there."
            ) from error

    # --- local directories ----------------------------------------------------------------------

    def _check_local(self) -> None:
        for location in (self.location, self.archive):
            folder = location.prefix if location is not None else ""
            # An archive that is not there yet is made in the first folder above it that is.
            while folder and not os.path.exists(folder):
                folder = os.path.dirname(folder.rstrip("/"))
            if folder and not os.access(folder, os.W_OK):
                raise AccessRefusedError("write", folder)

    def _clear_local(self, taken: Taken) -> str:
        path = self.location.local_path(taken.key)
        target = self.archive.local_path(self._name(taken)) if self.archive is not None else None
        try:
            if not self._is_taken(os.stat(path), taken):
                return "changed"
            if target is None:
                return self._remove(path, taken)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            # Of a run that died before it deleted the source, or of another source, which may have the same times.
            if os.path.exists(target) and not filecmp.cmp(path, target, shallow=False):
                raise self._is_in_the_way(target)
            return self._move(path, target, taken)
        except FileNotFoundError:
            return "gone"
        except OSError as error:
            raise AccessRefusedError("write", target or path) from error

    def _move(self, path: str, target: str, taken: Taken) -> str:
        try:
            os.rename(path, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            # Another file system: a copy, on disk before it has its name, and only then the source goes.
            part = f"{os.path.dirname(target)}/.{os.path.basename(target)}.part"
            with open(path, "rb") as source, open(part, "wb", opener=open_itself) as copied:
                shutil.copyfileobj(source, copied)
                copied.flush()
                os.fsync(copied.fileno())
                is_taken = self._is_taken(os.fstat(source.fileno()), taken)
            if not is_taken:
                os.unlink(part)
                return "changed"
            shutil.copystat(path, part)
            os.replace(part, target)
            return self._remove(path, taken)
        if self._is_taken(os.stat(target), taken):
            return "done"
        self._put_back(target, path)
        return "changed"

    def _remove(self, path: str, taken: Taken) -> str:
        """Delete a file, under a hidden name: nobody can overwrite it between the look and the end."""
        aside = f"{os.path.dirname(path)}/.{os.path.basename(path)}.{uuid4().hex}.cleared"
        os.rename(path, aside)
        if not self._is_taken(os.stat(aside), taken):
            self._put_back(aside, path)
            return "changed"
        os.unlink(aside)
        return "done"

    def _is_taken(self, found: os.stat_result, taken: Taken) -> bool:
        return local_etag(found) == taken.etag and found.st_size == taken.size

    def _put_back(self, target: str, path: str) -> None:
        with suppress(FileExistsError):  # Written once more: what is there now is newer.
            os.link(target, path)
        os.unlink(target)

    def _is_in_the_way(self, target: str) -> SourceError:
        return SourceError(
            target,
            "another file exists there already, such as one from before a restore of the table. Move it "
            "elsewhere; the source keeps its file until then.",
        )


def _is_copy(there: Mapping[str, Any], taken: Taken) -> bool:
    """Tell whether an object in the archive is a copy of what was taken.

    A copy has an ETag of its own if it is encrypted with a KMS key, or if one of the two was written in parts.
    """
    if there["ContentLength"] != taken.size:
        return False
    return bool(there["ETag"].strip('"') == taken.etag or there["Metadata"].get(MARK) == _mark(taken))


def _with_mark(found: Mapping[str, Any], taken: Taken) -> dict[str, Any]:
    """Return the arguments of a copy that keeps all metadata of its source, and says what it was made of.

    Metadata that cannot be sent once more, with the mark, is left to S3. Without the mark a copy may not be
    recognised after a crash, and is then in the way of the next one.
    """
    metadata = {**found["Metadata"], MARK: _mark(taken)}
    text = "".join([*metadata, *metadata.values()])
    if not text.isascii() or len(text) > MAX_METADATA or found.get("MissingMeta"):
        return {}
    kept = {name: found[name] for name in _KEPT if name in found}
    return {**kept, "Metadata": metadata, "MetadataDirective": "REPLACE"}


def _mark(taken: Taken) -> str:
    return f"{taken.etag} {taken.size}"


class _OtherError(Exception):
    """An object that is not what was taken any more, or not there; its text is the outcome."""
