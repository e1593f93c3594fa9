"""A file bookmark worked out by Spark's executors: for buckets whose listing is too much for one machine.

The key space is cut into ranges, one for each task. A task lists its range, compares it with the part of the
ledger that can hold its keys, and writes what is new to a file of the ledger itself. Only the names of
those files come to the driver. It is the code of `FileBookmark`, so the answer is the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers.bucket_pages import BucketPages
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.file_bookmark import FileBookmark
from scripts.helpers.file_ledger import files_of, segment_of
from scripts.helpers.file_plans import plan_of
from scripts.helpers.identities import GONE, LEDGER, TAKEN
from scripts.helpers.listing_cuts import find_cuts
from scripts.helpers.object_listing import Location
from scripts.helpers.s3_client import make_client

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from pyspark.sql import DataFrame, SparkSession

TASKS_PER_CORE = 8
"""Ranges differ in size, which nobody knows beforehand: small tasks even that out."""
WORKERS_PER_TASK = 4


@dataclass(frozen=True)
class SparkFileDelta:
    """The new files of one batch as a DataFrame.

    Attributes
    ----------
    files : DataFrame
        One row per file, with the columns of `FileDelta.table`; read from the ledger when it is used.
    count, bytes, gone : int
        Number of new files, their size, and the number of objects that are not there any more.
    """

    location: Location
    files: DataFrame
    count: int
    bytes: int
    gone: int

    def __repr__(self) -> str:
        return f"<SparkFileDelta {str(self.location)!r}: {self.count:,} files, {self.bytes:,} bytes>"


class SparkFileBookmark:
    """A `FileBookmark` whose work is done by executors. It needs a `ledger_uri` that they can write to.

    The executors need this package (``--py-files`` or ``--extra-py-files`` with the wheel), boto3 and
    pyarrow, and find their own AWS credentials. Options that need all files at one place are
    refused: mode windowed, max_files, max_bytes, ready_marker, layout, and on_modified or
    on_archived ``error`` come as an error of the Spark job.

    Parameters
    ----------
    spark
        The session.
    source, state, context, taken_by, **options
        As those of `FileBookmark`.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: str,
        *,
        state: Mapping[str, Any] | None = None,
        context: str = "files",
        taken_by: tuple[int, str] = (0, ""),
        **options: Any,
    ) -> None:
        self._spark, self._taken_by = spark, taken_by
        self._local = FileBookmark(source, state=state, context=context, taken_by=taken_by, **options)
        self.location = self._local.location
        chosen = self._local.options
        refused = [
            name for name in ("max_files", "max_bytes", "ready_marker", "layout") if getattr(chosen, name) is not None
        ]  # fmt: skip
        if chosen.mode != "exact":
            refused.append("mode")
        if refused:
            raise InvalidValueError(f"On Spark {', '.join(refused)} cannot be used. Use FileBookmark instead.")
        if chosen.ledger_uri is None:
            raise InvalidValueError("On Spark the ledger lies in files. Give a ledger_uri that executors can write to.")
        self._ledger_location = Location.parse(chosen.ledger_uri)
        self._state = state
        self.plan: dict[str, Any] | None = None
        self.state_after: dict[str, Any] | None = None

    def new_files(self) -> SparkFileDelta:
        """List the source on the executors and return what is new. SourceError or a Spark error if any range fails."""
        ranges, started = self._ranges()
        task = _Task(
            str(self.location), self._sent_state(), self._taken_by, started.isoformat(),
            {**asdict(self._local.options), "workers": WORKERS_PER_TASK},
        )  # fmt: skip
        parts = self._spark.sparkContext.parallelize(ranges, len(ranges))
        rows = self._spark.createDataFrame(parts, "first string, last string")
        found = [json.loads(row["share"]) for row in rows.mapInArrow(task, "share string").collect()]
        files = sorted((file for share in found for file in share["files"]), key=lambda file: file["first"])
        count, size, gone = (sum(share[name] for share in found) for name in ("count", "bytes", "gone"))
        segment = segment_of(files) if files else None
        self.plan = plan_of(self.location, segment, count, size, gone=gone)
        segments = self._local.ledger.appended(segment) if segment else self._local.ledger.segments
        self.state_after = self._local.following(started, segments=segments)
        return self.delta_of(self.plan)

    def delta_of(self, plan: Mapping[str, Any]) -> SparkFileDelta:
        """Return the delta of a frozen plan."""
        files = files_of(plan["files"]) if plan.get("files") else []
        frame = self._read(files).where(f"status = '{TAKEN}'")
        count, size, gone = (int(plan.get(name, 0)) for name in ("count", "bytes", "gone"))
        return SparkFileDelta(self.location, frame, count, size, gone)

    def _sent_state(self) -> dict[str, Any] | None:
        """Return the state as executors can be sent it: with names of files, not with chunks of the table."""
        return {**self._state, "segments": self._local.ledger.in_files()} if self._state else None

    def _read(self, files: Sequence[Mapping[str, Any]]) -> DataFrame:
        from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

        types = {"size": LongType(), "version": LongType(), "modified": TimestampType()}
        schema = StructType([StructField(name, types.get(name, StringType())) for name in LEDGER.names])
        if not files:
            return self._spark.createDataFrame([], schema)
        paths = [self._ledger_location.uri(file["file"]) for file in files]
        return self._spark.read.schema(schema).parquet(*paths)

    def _ranges(self) -> tuple[list[tuple[str | None, str | None]], datetime]:
        """Cut the key space; return the ranges and the time of the source before any of them is listed."""
        if self.location.is_local:
            return [(None, None)], datetime.now().astimezone()
        wanted = TASKS_PER_CORE * self._spark.sparkContext.defaultParallelism
        pages = BucketPages(str(self.location), make_client(1), self.location.bucket, self.location.prefix)
        cuts = find_cuts(pages, wanted)
        assert pages.date is not None
        return list(zip([None, *cuts], [*cuts, None], strict=True)), pages.date


@lru_cache(maxsize=1)
def _client() -> S3Client:
    """Make one client for all tasks of a Python worker."""
    return make_client(WORKERS_PER_TASK)


@dataclass(frozen=True)
class _Task:
    """What an executor does with a range: list it, compare it, store what is new."""

    source: str
    state: Mapping[str, Any] | None
    taken_by: tuple[int, str]
    started: str
    options: Mapping[str, Any]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                share = json.dumps(self._share(row["first"], row["last"]))
                yield pa.RecordBatch.from_arrays([pa.array([share], pa.string())], ["share"])

    def _share(self, after: str | None, until: str | None) -> dict[str, Any]:
        bookmark = FileBookmark(
            self.source, state=self.state, s3_client=_client(), taken_by=self.taken_by, **self.options
        )
        rows = bookmark.part(after, until, datetime.fromisoformat(self.started))
        taken = rows.filter(pc.equal(rows.column("status"), TAKEN))
        return {
            "files": files_of(bookmark.ledger.stored(rows)) if rows.num_rows else [],
            "count": taken.num_rows,
            "bytes": pc.sum(taken.column("size")).as_py() or 0,
            "gone": pc.sum(pc.equal(rows.column("status"), GONE)).as_py() or 0,
        }
