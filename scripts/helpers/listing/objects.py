"""The identity of an object, as Arrow rows: what a listing yields and what a bookmark remembers. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import NamedTuple

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
"""The VersionId of what a bucket holds that keeps no versions, or did not when it was written (Amazon S3 User Guide,
"Working with objects in a versioning-suspended bucket"): who overwrites it leaves the same id."""

LEDGER = pa.schema(
    [*_IDENTITY, pa.field("status", pa.string()), pa.field("version", pa.int64()), pa.field("run_id", pa.string())]
)
"""Objects as a bookmark remembers them: what became of each, at which version of the job and by which run."""

TAKEN, IGNORED, ARCHIVED, SKIPPED, GONE = "taken", "ignored", "archived", "skipped", "gone"
"""What became of an object: read; changed but left alone; in an archive and left alone; marked as done by a person who
knew that it could not be read; no longer listed."""
KNOWN = "known"
"""Of an object that counts as taken, as it was not modified after the floor of a state of an earlier version."""


EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Identity(NamedTuple):
    """What an object is. Another ETag or size under the same key is another object.

    The ETag is opaque: it is no MD5 for multipart or KMS objects. The time of change is no part
    of an identity: a multipart upload shows the time at which it was started.
    """

    key: str
    etag: str
    size: int


class Interval(NamedTuple):
    """All objects of a listing whose key is above `after` and not above `until`, in the order of UTF-8 bytes.

    None stands for the start and for the end. The intervals of a whole listing touch and do not
    overlap, and come in any order.
    """

    after: str | None
    until: str | None
    rows: pa.RecordBatch
    """Of schema LISTED, sorted by key."""


def byte_order(key: str) -> bytes:
    """Return the sort key of the order in which S3 lists: that of UTF-8 bytes."""
    return key.encode("utf-8", "surrogatepass")


def local_etag(status: os.stat_result) -> str:
    """Return what stands for the ETag of a local file: its time of change and its inode."""
    return f"{status.st_mtime_ns:x}-{status.st_ino:x}"


def newest_rows(tables: Iterable[pa.Table]) -> pa.Table:
    """Return one row of each key, of the first table that has it: tables of schema LEDGER, newest first."""
    found = [LEDGER.empty_table()]
    for table in tables:
        # As chunks, so that the keys of the newer tables are not copied for each older one.
        newer = pa.chunked_array([chunk for part in found for chunk in part.column("key").chunks], pa.string())
        if not len(newer):
            found.append(table)
            continue
        is_known = pc.is_in(table.column("key"), value_set=newer)
        found.append(table.filter(pc.invert(is_known)))
    return pa.concat_tables(found)


def ledger_rows(listed: pa.Table | pa.RecordBatch, status: str, version: int, run_id: str) -> pa.Table:
    """Turn listed objects into rows of a ledger."""
    count = listed.num_rows
    kept = {name: listed.column(name) for name in LEDGER.names[:5]}
    fixed = {
        "status": pa.repeat(pa.scalar(status, pa.string()), count),
        "version": pa.repeat(pa.scalar(version, pa.int64()), count),
        "run_id": pa.repeat(pa.scalar(run_id, pa.string()), count),
    }
    return pa.table({**kept, **fixed}, schema=LEDGER)
