"""Archive or delete objects that batches have read, but not an object that was overwritten after it was read."""

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
"""Files to move or delete at once. Each takes two to four requests, for which the process only waits."""
MAX_COPY_BYTES = 5 * 1024**3
"""The largest object that one request copies; larger ones are copied in parts (Amazon S3 API, CopyObject)."""
PROBE = "_may-clear"
"""The name of an object that `check_rights` tries to delete from the source, and writes, empty, to the archive."""
MARK = "glue-watermarks-source"
"""Name of the metadata of each copy that holds the ETag and size of the original."""
MAX_METADATA = 2_000
"""Most characters of metadata of a copy: S3 allows 2 KB an object (Amazon S3 User Guide, object metadata)."""
_KEPT = ("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType", "Expires")
"""Headers that S3 copies like metadata. A request that replaces the metadata has to send them, too."""
_CHANGED, _GONE, _DENIED = ("PreconditionFailed", "412"), ("NoSuchKey", "404", "NotFound"), ("AccessDenied", "403")


class Taken(NamedTuple):
    """An object that a committed batch read: its identity, and the job's version after the commit of that batch."""

    key: str
    etag: str
    version_id: str | None
    size: int
    modified: datetime
    version: int


class Cleared(NamedTuple):
    """Number and bytes of the objects moved or deleted; number of objects skipped because they changed or were gone."""

    files: int
    bytes: int
    changed: int
    gone: int


@dataclass(frozen=True)
class Clearing:
    """Archives or deletes objects that committed batches have taken.

    Parameters
    ----------
    location
        The source of the objects.
    archive
        Where to move the objects: ``a.csv`` of version 7 becomes ``v7/a.csv`` there. None deletes the objects. In a
        bucket with versioning, a delete only adds a delete marker.
    client
        A boto3 client; None for local directories.
    by_time
        Skip an object whose time of change differs from the recorded one, even if its bytes are the same.
    """

    location: Location
    archive: Location | None
    client: S3Client | None
    request_payer: bool = False
    by_time: bool = False

    def check_rights(self) -> None:
        """Check whether this login may archive or delete objects. No object of the source is changed.

        Raises
        ------
        AccessRefusedError
            The login lacks a right. The error names the action and the object or folder.
        ConfigurationError
            boto3 is too old for conditional deletes, which spare an object that was overwritten.
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
        # To test the right, try to delete an object that does not exist, with an ETag that no object has.
        with suppress(_OtherError), self._typed("s3:DeleteObject", self.location.uri(PROBE)):
            self._delete(PROBE, "0" * 32)
        if self.archive is not None:
            place: dict[str, Any] = {"Bucket": self.archive.bucket, "Key": self.archive.prefix + PROBE}
            with self._typed("s3:PutObject", self.archive.uri(PROBE)):
                self.client.put_object(**place, Body=b"")

    def clear(self, objects: Sequence[Taken]) -> Cleared:
        """Archive or delete objects, up to 16 at once. After a crash, call it again for the objects that remain.

        Raises
        ------
        AccessRefusedError, CredentialsError, SourceUnavailableError, SourceError
            An object cannot be archived or deleted. Some objects may be cleared; all others are still in the source.
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
            # First compare time and version: copy and delete check only the ETag, which some servers ignore in copies.
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
        """Return the answer of HeadObject for a key; _OtherError if the object is not the one that was taken."""
        assert self.client is not None
        found = self.client.head_object(**self._place(taken.key), IfMatch=f'"{taken.etag}"')
        if self.by_time and found["LastModified"] != taken.modified.replace(microsecond=0):
            raise _OtherError("changed")
        if taken.version_id and found.get("VersionId") not in (None, taken.version_id):
            raise _OtherError("changed")
        return found

    def _copy(self, archive: Location, taken: Taken, found: Mapping[str, Any]) -> None:
        """Copy an object if it is still the one that was taken, and check that the copy is complete."""
        assert self.client is not None
        place: dict[str, Any] = {"Bucket": archive.bucket, "Key": archive.prefix + self._name(taken)}
        source = {"Bucket": self.location.bucket, "Key": self.location.prefix + taken.key}
        with suppress(_OtherError), self._typed("s3:GetObject", archive.uri(self._name(taken))):
            if not _is_copy(self.client.head_object(**place), taken):
                raise self._occupied_target_error(archive.uri(self._name(taken)))
            return  # An earlier run made this copy, and died before it deleted the original.
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
        # Send the condition with the delete. After a separate check, the delete could hit a file that was written in
        # between and that no run has taken, or, in a bucket with versions, hide that file behind a marker.
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
        """Translate S3's errors: the object has changed or is gone, a right is missing, or S3 is not available."""
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
            # The archive may not exist yet. Then check its nearest existing parent folder.
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
            # A crashed run may have left this copy. Compare bytes: another file can have the same size and time.
            if os.path.exists(target) and not filecmp.cmp(path, target, shallow=False):
                raise self._occupied_target_error(target)
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
            # The archive is on another file system: copy, sync to disk, rename, and only then delete the source.
            part = f"{os.path.dirname(target)}/.{os.path.basename(target)}.part"
            try:
                with open(path, "rb") as source, open(part, "wb", opener=open_itself) as copied:
                    shutil.copyfileobj(source, copied)
                    copied.flush()
                    os.fsync(copied.fileno())
                    is_taken = self._is_taken(os.fstat(source.fileno()), taken)
                if not is_taken:
                    return "changed"
                shutil.copystat(path, part)
                os.replace(part, target)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(part)
            return self._remove(path, taken)
        if self._is_taken(os.stat(target), taken):
            return "done"
        self._put_back(target, path)
        return "changed"

    def _remove(self, path: str, taken: Taken) -> str:
        """Delete a file after renaming it to a hidden name, so that nobody overwrites it between check and delete."""
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
        with suppress(FileExistsError):  # A newer file was written to `path`: keep it.
            os.link(target, path)
        os.unlink(target)

    def _occupied_target_error(self, target: str) -> SourceError:
        return SourceError(
            target,
            "another file exists there already, such as one from before a restore of the table. Move it "
            "elsewhere; the source keeps its file until then.",
        )


def _is_copy(there: Mapping[str, Any], taken: Taken) -> bool:
    """Return whether an object in the archive is a copy of the taken object.

    A copy has another ETag if KMS encrypts it, or if the original or the copy was uploaded in parts: see MARK.
    """
    if there["ContentLength"] != taken.size:
        return False
    return bool(there["ETag"].strip('"') == taken.etag or there["Metadata"].get(MARK) == _mark(taken))


def _with_mark(found: Mapping[str, Any], taken: Taken) -> dict[str, Any]:
    """Return the arguments of a copy that keeps all metadata of the original and adds a mark that identifies it.

    Metadata that is too long or not ASCII cannot be sent with a mark: then S3 copies it, and the copy has no mark.
    After a crash, `_is_copy` may not recognise a copy without a mark, and `_copy` raises an error.
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
    """The object was overwritten or deleted after it was taken. The error's text is ``changed`` or ``gone``."""
