"""Store the segments of a bookmark's ledger as Parquet files in a folder of their own, on S3 or local."""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from botocore.exceptions import BotoCoreError, ClientError

from scripts.helpers._lazy import S3Client, pq
from scripts.helpers.errors import AccessRefusedError, LedgerError, UnreadableObjectError
from scripts.helpers.files.states import LEDGER_FILE
from scripts.helpers.listing.listing import Lister, ListingOptions, Location
from scripts.helpers.listing.objects import LEDGER, LISTED, column_of, newest_rows, no_rows
from scripts.helpers.listing.paths import is_hidden
from scripts.helpers.listing.s3 import code_of, login_or_load, make_client, read_at_most, remedy_of
from scripts.helpers.protocol.packed_json import pack_json, unpack_json

# --- segments -------------------------------------------------------------------------------------
# The ledger of a bookmark as bytes: immutable segments of rows, small ones as JSON, large ones as Parquet.

MAY_BE_NULL = ("etag", "version_id")
SMALL_ROWS = 200
"""Least rows of a segment in Parquet. Fewer rows take less space as JSON, because Parquet has a footer."""
MAX_JSON_BYTES = 4 * 1024 * 1024
"""Most bytes of an unpacked JSON segment: it has few rows, and keys have at most 1,024 bytes each."""
ROW_GROUP = 100_000
"""Rows of a Parquet row group. Other readers, such as Athena, read only the groups that may have a key."""
MERGE_FACTOR = 2
"""A segment is merged with the previous one unless the previous one has more than this many times its rows. So segments
are few, as each has less than half the rows of the previous one, and a row is rewritten only when rows have doubled."""


def to_bytes(rows: pa.Table, parquet: bool = False) -> bytes:
    """Return rows of schema LEDGER as bytes, sorted by key."""
    rows = rows.sort_by("key")
    if rows.num_rows >= SMALL_ROWS or parquet:
        return _to_parquet(rows)
    columns: dict[str, Any] = {}
    for name in LEDGER.names:
        column = rows.column(name)
        if name == "modified":
            column = column.cast(pa.int64())  # Write microseconds, because JSON has no times.
        values = column.to_pylist()
        # If all rows have the same value, such as the run, write it once. Write all keys: readers count rows by them.
        columns[name] = values[0] if name != "key" and len(set(values)) == 1 else values
    return pack_json(columns)


def _to_parquet(rows: pa.Table) -> bytes:
    """Return the bytes of a file that Spark 3.3, Athena and DuckDB can read, with delta-encoded keys and zstd."""
    out = io.BytesIO()
    pq.write_table(
        rows.cast(LEDGER), out, compression="zstd", row_group_size=ROW_GROUP,
        use_dictionary=["status", "version", "run_id"], column_encoding={"key": "DELTA_BYTE_ARRAY"},
    )  # fmt: skip
    return out.getvalue()


def from_bytes(data: bytes, keys: pa.Array | None = None) -> pa.Table:
    """Return the rows that `to_bytes` wrote, or only those of some keys. ValueError for any other bytes."""
    try:
        if data[:4] == b"PAR1":
            # Avoid read_table: it takes several times as long here, and its chunks must be copied to join them.
            file = pq.ParquetFile(pa.BufferReader(data))
            _check_columns(file.schema_arrow.names)
            rows = file.read() if keys is None else _rows_of(file, keys)
            return _checked(rows.cast(LEDGER))
        columns = unpack_json(data, MAX_JSON_BYTES)
        _check_columns(list(columns))
        count = len(columns["key"])
        given = {name: values if isinstance(values, list) else [values] * count for name, values in columns.items()}
        rows = pa.table([column_of(given[field.name], field.type) for field in LEDGER], schema=LEDGER)
        return _checked(rows if keys is None else rows.filter(pc.is_in(rows.column("key"), value_set=keys)))
    except (pa.ArrowException, KeyError, TypeError, AttributeError, OverflowError, RecursionError, OSError) as error:
        raise ValueError(f"not a segment of a file list ({type(error).__name__})") from error


def _rows_of(file: pq.ParquetFile, keys: pa.Array) -> pa.Table:
    """Return the rows of some keys. A row group without a wanted key is not read, except for its column of keys."""
    found = [file.schema_arrow.empty_table()]
    for group in range(file.num_row_groups):
        is_among = pc.is_in(file.read_row_group(group, ["key"]).column("key"), value_set=keys)
        if pc.any(is_among, min_count=0).as_py():
            found.append(file.read_row_group(group).filter(is_among))
    return pa.concat_tables(found)


def _check_columns(names: Sequence[str]) -> None:
    if list(names) != LEDGER.names:
        raise ValueError(f"its columns are {', '.join(names)}")


def _checked(rows: pa.Table) -> pa.Table:
    """Return the rows if no required value is missing and all values are valid; otherwise raise an error."""
    missing = [name for name in LEDGER.names if name not in MAY_BE_NULL and rows.column(name).null_count]
    if missing:
        raise ValueError(f"{missing[0]} is missing in a row")
    # Texts in a Parquet file may be invalid UTF-8, which Arrow does not check on its own.
    rows.validate(full=True)
    # Check the times now: a time outside Python's range would raise OverflowError at each later use. Drop the zone
    # first, otherwise Arrow imports pandas.
    pc.min_max(rows.column("modified").cast(pa.timestamp("us"))).as_py()
    return rows


def checksum(data: bytes) -> str:
    """Return the SHA-256 hash that is stored with a segment (a part of the ledger)."""
    return hashlib.sha256(data).hexdigest()


def merges(counts: Sequence[int]) -> int:
    """Return how many of the newest segments are merged into one, given the row counts, oldest first.

    As in a log-structured merge tree, sizes decrease from old to new. So there are few segments, and each
    row is rewritten a logarithmic number of times.
    """
    taken, total = 1, counts[-1]
    for before in reversed(counts[:-1]):
        if before > MERGE_FACTOR * total:
            break
        total += before
        taken += 1
    return taken


def merged_segments(tables: Sequence[pa.Table], oldest: bool) -> pa.Table:
    """Return each key's latest row in `tables` (segments, oldest first). Drop gone objects if no segment is older."""
    return newest_rows(reversed(tables), with_gone=not oldest).sort_by("key")


# --- segment files --------------------------------------------------------------------------------

DELETED_AT_ONCE = 1_000
"""Most keys in one DeleteObjects request."""
READERS = 8
"""Files read at once. Each may have half a million rows in memory, so more files would not fit beside a batch."""

NAME = re.compile(rf"\.?{LEDGER_FILE}")
"""Names that `SegmentFiles.put` creates. A dot marks a file that was unfinished when the process died."""


class SegmentFiles:
    """The folder of a ledger, with immutable files. A file that nothing refers to is harmless, and is never read.

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

    def is_listed_by(self, source: Location) -> bool:
        """Return whether the folder is in a source, so that a listing would show the ledger's files as new."""
        ours, theirs = self.location.uri("").replace("s3a:", "s3:"), source.uri("").replace("s3a:", "s3:")
        return ours.startswith(theirs) and not is_hidden(f"{ours[len(theirs) :]}0.parquet")

    @property
    def client(self) -> S3Client:
        """The S3 client, created when it is first needed."""
        if self._client is None:
            self._client = make_client(READERS)
        return self._client

    def put(self, rows: pa.Table) -> dict[str, Any]:
        """Write rows sorted by key to a new file; return its name, sizes, checksum, and first and last key."""
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
        # Write the file under a hidden name and sync it to disk before renaming it. So a state never refers to a
        # partial file after a crash, and other readers of the folder never see one.
        part = f"{self.location.prefix}.{name}"
        with open(part, "wb") as local:
            local.write(data)
            local.flush()
            os.fsync(local.fileno())
        os.replace(part, self.location.prefix + name)

    def rows(self, file: Mapping[str, Any], keys: pa.Array | None = None) -> pa.Table:
        """Return the rows of a file, or of some keys; LedgerError if the file was changed or has another format."""
        data = self.get(file)
        try:
            return from_bytes(data, keys)
        except ValueError as error:
            raise LedgerError(
                self.location.uri(str(file["file"])),
                f"this version of the package does not write such files ({error}). Update the package.",
            ) from error

    def rows_of(self, files: Sequence[Mapping[str, Any]], keys: pa.Array | None = None) -> list[pa.Table]:
        """Return the rows of several files in the order of the files, as `rows` does, reading many in parallel."""
        if len(files) < 2:
            return [self.rows(file, keys) for file in files]
        if not self.location.is_local:
            _ = self.client  # Create the client before the threads start, otherwise each would create one.
        with ThreadPoolExecutor(READERS) as pool:
            return list(pool.map(lambda file: self.rows(file, keys), files))

    def listed(self) -> tuple[pa.Table, datetime]:
        """Return the folder's objects, and when the listing began, in UTC, by the server's clock; or SourceError."""
        listing = Lister(self.location, self._client, ListingOptions()).below([""])
        tables = [pa.Table.from_batches([interval.rows]) for interval in listing]
        return pa.concat_tables([no_rows(LISTED), *tables]), listing.started

    def delete(self, names: Sequence[str]) -> int:
        """Delete files and return how many were requested. Files that are already gone are counted too.

        Raises
        ------
        AccessRefusedError, CredentialsError, SourceUnavailableError, LedgerError
            The deletion failed. Some of the files may be deleted.
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
        """Return a file name from a state. Raise LedgerError if `put` creates no such names: a state may be forged."""
        if not NAME.fullmatch(name):
            detail = f"{name!r} is not the name of a file of a ledger. Restore the job's item from a backup."
            raise LedgerError(str(self.location), detail)
        return name

    def _refused(self, action: str, name: str, error: ClientError | BotoCoreError | OSError) -> Exception:
        """Return the error to raise for a failed request. The failure does not show whether the file is intact."""
        uri, code, text = self.location.uri(name), code_of(error), str(error)
        if isinstance(error, PermissionError) or code in ("AccessDenied", "403"):
            # If KMS refuses the key, the text of S3 names the action: kms:Decrypt or kms:GenerateDataKey.
            by_key = re.search(r"kms:\w+", text)
            return AccessRefusedError(by_key[0] if by_key else action, uri)
        if action == "s3:GetObject":
            failed: Exception = UnreadableObjectError(str(self.location), name, code, remedy_of(code, text))
        else:
            remedy = "Check the ledger_uri, the rights and the space there, and that the encryption key can be used."
            failed = LedgerError(uri, f"{action} failed ({code}). {remedy}")
        return login_or_load(uri, error) or failed

    def get(self, file: Mapping[str, Any]) -> bytes:
        """Return the bytes of a file.

        Raises
        ------
        LedgerError
            The file is gone, or was changed after it was written.
        AccessRefusedError, UnreadableObjectError, CredentialsError, SourceUnavailableError
            The file cannot be read now, but may be intact.
        """
        name = self._checked(str(file["file"]))
        uri = self.location.uri(name)
        length = file["length"]
        try:
            # Read at most one byte more than was written: this shows that a file is too long without reading all of it.
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
