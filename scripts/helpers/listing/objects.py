"""Identities of objects as Arrow rows, in listings and in the ledger of a bookmark. Pure."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

_IDENTITY = [
    pa.field("key", pa.string()),
    pa.field("etag", pa.string()),
    pa.field("version_id", pa.string()),
    pa.field("size", pa.int64()),
    pa.field("modified", pa.timestamp("us", tz="UTC")),
]
LISTED = pa.schema([*_IDENTITY, pa.field("storage_class", pa.string())])
"""Objects as a listing shows them. `key` is raw and relative to the prefix; the ETag has no quotes."""

OVERWRITABLE = "null"
"""The VersionId of an object that was written while its bucket kept no versions. An overwrite leaves the same id
(Amazon S3 User Guide, "Working with objects in a versioning-suspended bucket")."""

LEDGER = pa.schema(
    [*_IDENTITY, pa.field("status", pa.string()), pa.field("version", pa.int64()), pa.field("run_id", pa.string())]
)
"""Objects as a bookmark stores them: the status of each, and the version and run of the job that set it."""

TAKEN, IGNORED, ARCHIVED, SKIPPED, GONE = "taken", "ignored", "archived", "skipped", "gone"
"""Status of an object: read by a batch; left out by `start_from` or `on_modified`; in an archive and left out; marked
as done by an operator although it could not be read; no longer listed."""


SEPARATOR = b"\xff"
"""Separates texts that Arrow splits: no UTF-8 text contains this byte."""
SMALL_COLUMN = 100_000
"""Most values whose joined text surely fits into one array. With more values, the import of pandas does not matter."""
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Identity(NamedTuple):
    """The identity of an object: another ETag or size under the same key is another object.

    The ETag is opaque: for multipart or KMS objects it is not an MD5. The time of change is not part of the identity,
    because it does not show what is new: a multipart upload has the time at which it was started, not completed.
    """

    key: str
    etag: str
    size: int


class Interval(NamedTuple):
    """All objects of a listing whose key is above `after` and not above `until`, in the order of UTF-8 bytes.

    None stands for the start or the end of all keys. The intervals of a whole listing cover all keys
    without overlap, and come in any order.
    """

    after: str | None
    until: str | None
    rows: pa.RecordBatch
    """Rows of schema LISTED, sorted by key."""


def is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two rows of a key show the same object: by version if both have one, else by ETag and size.

    If both versions are "null", an id that overwrites keep, ETag and size decide. `diff.compare` has the same rule.
    """
    versions = {one["version_id"], other["version_id"]}
    if None in versions or versions == {OVERWRITABLE}:
        return bool((one["etag"], one["size"]) == (other["etag"], other["size"]))
    return len(versions) == 1


def byte_order(key: str) -> bytes:
    """Return the sort key for the order in which S3 lists keys: by their UTF-8 bytes."""
    return key.encode("utf-8", "surrogatepass")


def local_etag(status: os.stat_result) -> str:
    """Return the substitute for an ETag of a local file: its time of change and its inode."""
    return f"{status.st_mtime_ns:x}-{status.st_ino:x}"


def column_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return texts or 64-bit numbers as Arrow. `pa.array` would import pandas, which takes longer than a small run."""
    if all(value is None for value in values):
        return pa.nulls(len(values), kind)
    if None in values or len(values) > SMALL_COLUMN:
        return pa.array(values, kind)
    if kind == pa.string():
        return cut_texts(SEPARATOR.join(value.encode() for value in values))
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(array("q", values))])


def cut_texts(joined: bytes) -> pa.Array:
    """Split joined texts at their separators; ArrowInvalid for bytes that are not UTF-8."""
    ends = pa.py_buffer(array("i", (0, len(joined))))
    whole = pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(joined)])
    return pc.cast(pc.split_pattern(whole, SEPARATOR).flatten(), pa.string())


def no_rows(schema: pa.Schema = LEDGER) -> pa.Table:
    """Return a table without rows, like `schema.empty_table`, but without importing pandas: see `column_of`."""
    return pa.Table.from_batches([no_batch(schema)])


def no_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def is_status(rows: pa.Table, status: str) -> pa.ChunkedArray:
    """Return a mask of the rows of a ledger that have a status."""
    return pc.equal(rows.column("status"), column_of([status], pa.string())[0])


def newest_rows(tables: Iterable[pa.Table], *, with_gone: bool) -> pa.Table:
    """Return one row of each key, from the first table that has the key. Tables have schema LEDGER, newest first."""
    found = [no_rows()]
    for table in tables:
        # Refer to the Arrow chunks of the keys found so far. To join them would copy all these keys for each table.
        newer = pa.chunked_array([chunk for part in found for chunk in part.column("key").chunks], pa.string())
        if not len(newer):
            found.append(table)
            continue
        found.append(table.filter(pc.invert(pc.is_in(table.column("key"), value_set=newer))))
    rows = pa.concat_tables(found)
    # Remove gone objects last, because they hide older rows of their keys. If there are none, avoid the copy.
    is_gone = is_status(rows, GONE)
    return rows if with_gone or not pc.any(is_gone, min_count=0).as_py() else rows.filter(pc.invert(is_gone))


def ledger_rows(listed: pa.Table | pa.RecordBatch, status: str, version: int, run_id: str) -> pa.Table:
    """Turn listed objects into rows of a ledger."""
    given = zip((status, version, run_id), LEDGER.types[5:], strict=True)
    fixed = [pa.repeat(column_of([value], kind)[0], listed.num_rows) for value, kind in given]
    return pa.table([*(listed.column(name) for name in LEDGER.names[:5]), *fixed], schema=LEDGER)
