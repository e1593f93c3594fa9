"""Segments of a bookmark as Parquet files in a folder of their own, on S3 or local."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa
from botocore.exceptions import BotoCoreError, ClientError

from scripts.helpers._lazy import S3Client
from scripts.helpers.errors import AccessRefusedError, LedgerError, UnreadableObjectError
from scripts.helpers.files.segments import checksum, from_bytes, to_bytes
from scripts.helpers.files.states import LEDGER_FILE
from scripts.helpers.listing.listing import Lister, ListingOptions, Location
from scripts.helpers.listing.objects import LISTED, no_rows
from scripts.helpers.listing.paths import is_hidden
from scripts.helpers.listing.s3 import code_of, login_or_load, make_client, read_at_most, remedy_of

DELETED_AT_ONCE = 1_000
"""The most keys that DeleteObjects takes."""
READERS = 8
"""Files read at once. Each may hold half a million rows in memory, so more of them would not fit beside a batch."""

NAME = re.compile(rf"\.?{LEDGER_FILE}")
"""What `SegmentFiles.put` calls a file, and with a dot one that it had not finished when the process died."""


class SegmentFiles:
    """A folder of immutable files. What nothing refers to is harmless there, and is never read.

    Parameters
    ----------
    uri
        ``s3://bucket/prefix/`` or a local directory.
    """

    def __init__(self, uri: str, s3_client: S3Client | None = None) -> None:
        self.location = Location.parse(uri)
        if not self.location.is_local and not self.location.is_s3:
            raise LedgerError(uri, "a ledger lies on S3 or in a local directory. Use s3://bucket/prefix/.")
        self._client = s3_client

    def would_be_listed(self, source: Location) -> bool:
        """Tell whether the files would be new files of a source."""
        ours, theirs = self.location.uri("").replace("s3a:", "s3:"), source.uri("").replace("s3a:", "s3:")
        return ours.startswith(theirs) and not is_hidden(f"{ours[len(theirs) :]}0.parquet")

    @property
    def client(self) -> S3Client:
        """The S3 client, made when it is first needed."""
        if self._client is None:
            self._client = make_client(READERS)
        return self._client

    def put(self, rows: pa.Table) -> dict[str, Any]:
        """Write rows sorted by key to a new file; return what finds it and proves it whole, and its ends."""
        data, keys = to_bytes(rows, parquet=True), rows.column("key")
        name = f"{uuid4().hex}.parquet"
        try:
            if self.location.is_local:
                self._put_local(name, data)
            else:
                self.client.put_object(Bucket=self.location.bucket, Key=self.location.prefix + name, Body=data)
        except (ClientError, BotoCoreError, OSError) as error:
            raise self._refused("write" if self.location.is_local else "s3:PutObject", name, error) from error
        ends = {"first": keys[0].as_py(), "last": keys[-1].as_py()}
        return {"file": name, "count": rows.num_rows, "length": len(data), "sha256": checksum(data), **ends}

    def _put_local(self, name: str, data: bytes) -> None:
        os.makedirs(self.location.prefix, exist_ok=True)
        # Under a hidden name, and on disk, before it gets its own: a crash leaves no half file that a state refers to,
        # and who reads the folder meanwhile sees none.
        part = f"{self.location.prefix}.{name}"
        with open(part, "wb") as local:
            local.write(data)
            local.flush()
            os.fsync(local.fileno())
        os.replace(part, self.location.prefix + name)

    def rows(self, file: Mapping[str, Any], keys: pa.Array | None = None) -> pa.Table:
        """Read the rows of a file, or of some keys; LedgerError if it is not what was written, or of another format."""
        data = self.get(file)
        try:
            return from_bytes(data, keys)
        except ValueError as error:
            raise LedgerError(
                self.location.uri(str(file["file"])),
                f"this version of the package does not write such files ({error}). Update the package.",
            ) from error

    def rows_of(self, files: Sequence[Mapping[str, Any]], keys: pa.Array | None = None) -> list[pa.Table]:
        """Read the rows of several files as `rows` does, many at once, in their order."""
        if len(files) < 2:
            return [self.rows(file, keys) for file in files]
        if not self.location.is_local:
            _ = self.client  # Made before threads ask for it, or each of them would make one.
        with ThreadPoolExecutor(READERS) as pool:
            return list(pool.map(lambda file: self.rows(file, keys), files))

    def exists(self, file: Mapping[str, Any]) -> bool:
        """Tell whether a file is there; AccessRefusedError if S3 will not say, other errors as those of `get`."""
        name = self._checked(str(file["file"]))
        if self.location.is_local:
            return os.path.exists(self.location.local_path(name))
        try:
            self.client.head_object(Bucket=self.location.bucket, Key=self.location.prefix + name)
        except (ClientError, BotoCoreError) as error:
            if code_of(error) in ("404", "NoSuchKey"):
                return False
            raise self._refused("s3:GetObject", name, error) from error
        return True

    def listed(self) -> tuple[pa.Table, datetime]:
        """List the folder: rows of LISTED, and when that began by its own clock, UTC. SourceError if it cannot be."""
        listing = Lister(self.location, self._client, ListingOptions()).below([""])
        tables = [pa.Table.from_batches([interval.rows]) for interval in listing]
        return pa.concat_tables([no_rows(LISTED), *tables]), listing.started

    def delete(self, names: Sequence[str]) -> int:
        """Delete files, those that are gone already as well, and return how many were asked for.

        Raises
        ------
        AccessRefusedError, CredentialsError, SourceUnavailableError, LedgerError
            It cannot be done. Some may be gone by then.
        """
        names = list(map(self._checked, names))
        if self.location.is_local:
            for name in names:
                try:
                    with suppress(FileNotFoundError):
                        os.unlink(self.location.local_path(name))
                except OSError as error:
                    raise AccessRefusedError("delete", self.location.uri(name)) from error
            return len(names)
        for start in range(0, len(names), DELETED_AT_ONCE):
            part = names[start : start + DELETED_AT_ONCE]
            keys: list[Any] = [{"Key": self.location.prefix + name} for name in part]
            try:
                answer = self.client.delete_objects(
                    Bucket=self.location.bucket, Delete={"Objects": keys, "Quiet": True}
                )
            except (ClientError, BotoCoreError) as error:
                raise self._refused("s3:DeleteObject", part[0], error) from error
            for failed in answer.get("Errors", ()):
                uri = f"s3://{self.location.bucket}/{failed.get('Key')}"
                if failed.get("Code") in ("AccessDenied", "403"):
                    raise AccessRefusedError("s3:DeleteObject", uri)
                raise LedgerError(uri, f"it could not be deleted ({failed.get('Code')}). Run the command again.")
        return len(names)

    def _checked(self, name: str) -> str:
        """Return a name from a state, which anybody may have written; LedgerError if `put` gives no such names."""
        if not NAME.fullmatch(name):
            detail = f"{name!r} is not the name of a file of a ledger. Restore the job's item from a backup."
            raise LedgerError(str(self.location), detail)
        return name

    def _refused(self, action: str, name: str, error: ClientError | BotoCoreError | OSError) -> Exception:
        """Return the error of a call that was refused. It says nothing about the file: that may well be whole."""
        uri, code, text = self.location.uri(name), code_of(error), str(error)
        if isinstance(error, PermissionError) or code in ("AccessDenied", "403"):
            # S3 passes on what the encryption key refuses: kms:Decrypt, or kms:GenerateDataKey for a write.
            by_key = re.search(r"kms:\w+", text)
            return AccessRefusedError(by_key[0] if by_key else action, uri)
        if action == "s3:GetObject":
            failed: Exception = UnreadableObjectError(str(self.location), name, code, remedy_of(code, text))
        else:
            remedy = "Check the ledger_uri, the rights and the space there, and that the encryption key can be used."
            failed = LedgerError(uri, f"{action} failed ({code}). {remedy}")
        return login_or_load(uri, error) or failed

    def get(self, file: Mapping[str, Any]) -> bytes:
        """Read a file.

        Raises
        ------
        LedgerError
            It is gone, or not what was written.
        AccessRefusedError, UnreadableObjectError, CredentialsError, SourceUnavailableError
            It cannot be read now, which says nothing about it.
        """
        name = self._checked(str(file["file"]))
        uri = self.location.uri(name)
        length = file["length"]
        try:
            # One byte more than was written is enough to notice another file, however large somebody has made it.
            if self.location.is_local:
                with open(self.location.local_path(name), "rb") as local:
                    data = local.read(length + 1)
            else:
                found = self.client.get_object(Bucket=self.location.bucket, Key=self.location.prefix + name)
                data = read_at_most(found["Body"], length + 1)
        except (ClientError, BotoCoreError, OSError) as error:
            code, is_refused = code_of(error), isinstance(error, PermissionError)
            if (isinstance(error, OSError) and not is_refused) or code in ("NoSuchKey", "NoSuchBucket", "404"):
                remedy = "Restore it, or give the right ledger_uri."
                raise LedgerError(uri, f"it could not be read ({code}). {remedy}") from error
            raise self._refused("read" if self.location.is_local else "s3:GetObject", name, error) from error
        if len(data) != length or checksum(data) != file["sha256"]:
            raise LedgerError(uri, "it is not what was written there. Restore it from a backup.")
        return data
