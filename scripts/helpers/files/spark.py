"""A file bookmark worked out by Spark's executors: for buckets whose listing is too much for one machine.

The key space is cut into ranges, one for each task. A task lists its range, compares it with the part of the
ledger that can hold its keys, and writes what is new to a file of the ledger itself. Only the names of
those files come to the driver. It is the code of `FileBookmark`, so the answer is the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers.errors import ChangedObjectError, InvalidValueError, SourceError, WatermarkError
from scripts.helpers.files.bookmark import FileBookmark, check_source, plan_of
from scripts.helpers.files.ledger import FileLedger, files_of, segment_of
from scripts.helpers.files.segment_files import SegmentFiles
from scripts.helpers.files.unchanged import find_changed
from scripts.helpers.listing.bucket_pages import BucketPages
from scripts.helpers.listing.cuts import find_cuts
from scripts.helpers.listing.listing import Location
from scripts.helpers.listing.objects import GONE, LEDGER, TAKEN
from scripts.helpers.listing.s3 import make_client
from scripts.helpers.protocol.names import optional_context
from scripts.helpers.reading.fetched_lines import marked, read_whole_input
from scripts.helpers.reading.small_files import typed_errors
from scripts.helpers.reading.spark import spread

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from pyspark.sql import DataFrame, SparkSession

TASKS_PER_CORE = 8
"""Ranges differ in size, which nobody knows beforehand: small tasks even that out."""
WORKERS_PER_TASK = 4
NAMED_CHANGES = 1_000
"""Most keys of changed objects that a task names; more than a few tell nobody more."""


@dataclass(frozen=True)
class SparkFileDelta:
    """The new files of one batch as a DataFrame.

    Attributes
    ----------
    files : DataFrame
        One row per file, with the columns of `FileDelta.table`; read from the ledger when it is used.
        A file of the ledger that is damaged fails the Spark job; `small_files.typed_errors` makes that a
        LedgerError, as `job.write` does.
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

    The executors need this package (``--py-files`` with a copy of the wheel called .zip; on Glue the wheel
    in ``--additional-python-modules``), boto3 and pyarrow, and find their own AWS credentials. Options
    that need all files at one place are refused: mode windowed, on_unreadable, max_files, max_bytes,
    ready_marker, layout. Sources are S3 and local directories.

    Parameters
    ----------
    spark
        The session.
    source, state, transformation_ctx, context, taken_by, until, saves, **options
        As those of `FileBookmark`. What is new is written to the ledger's folder also where nothing is saved:
        the delta is read from there.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: str,
        *,
        state: Mapping[str, Any] | None = None,
        transformation_ctx: str | None = None,
        context: str | None = None,
        taken_by: tuple[int, str] = (0, ""),
        until: Mapping[str, Any] | None = None,
        saves: bool = True,
        **options: Any,
    ) -> None:
        name = optional_context(transformation_ctx, context) or "files"
        self._spark, self._context, self._taken_by = spark, name, taken_by
        self._local = FileBookmark(
            source, state=state, transformation_ctx=name, taken_by=taken_by, until=until, saves=saves, **options
        )
        self.location = self._local.location
        chosen = self._local.options
        refused = [
            name for name in ("max_files", "max_bytes", "ready_marker", "layout") if getattr(chosen, name) is not None
        ]  # fmt: skip
        if chosen.mode != "exact":
            refused.append("mode")
        if chosen.on_unreadable != "stop":
            refused.append("on_unreadable")
        if not self.location.is_local and not self.location.is_s3:
            raise SourceError(
                str(self.location), f"executors do not list {self.location.scheme}://. Use new_files for it."
            )
        if refused:
            raise InvalidValueError(f"On Spark {', '.join(refused)} cannot be used. Use FileBookmark instead.")
        if chosen.ledger_uri is None:
            raise InvalidValueError("On Spark the ledger lies in files. Give a ledger_uri that executors can write to.")
        self._ledger_location = Location.parse(chosen.ledger_uri)
        self._state, self._until, self._saves = state, until, saves and until is None
        self.plan: dict[str, Any] | None = None
        self.state_after: dict[str, Any] | None = None

    def new_files(self) -> SparkFileDelta:
        """List the source on the executors and return what is new; errors are those of `FileBookmark.new_files`."""
        ranges, started = self._ranges()
        task = _Task(
            str(self.location), self._sent(self._state), self._sent(self._until), self._taken_by, started.isoformat(),
            {**asdict(self._local.options), "workers": WORKERS_PER_TASK},
        )  # fmt: skip
        found = self._executed(task, [json.dumps(bounds) for bounds in ranges])
        files: list[dict[str, Any]] = []
        for share in found:
            files += share["files"]
        files.sort(key=lambda file: str(file["first"]))
        count = sum(share["count"] for share in found)
        size = sum(share["bytes"] for share in found)
        gone = sum(share["gone"] for share in found)
        segment = segment_of(files) if files else None
        self.plan = plan_of(self.location, segment, count, size, has_more=False, gone=gone)
        if self._saves:
            segments = self._local.ledger.appended(segment) if segment else self._local.ledger.segments
            self.state_after = self._local.with_list_of_executors(self._local.following(started, segments=segments))
        return self.delta_of(self.plan)

    def delta_of(self, plan: Mapping[str, Any] | None) -> SparkFileDelta:
        """Return the delta of a frozen plan; None has no files. SourceChangedError if it is that of another source."""
        frame = self._read(self._files_of(plan))
        count, size, gone = (int((plan or {}).get(name, 0)) for name in ("count", "bytes", "gone"))
        return SparkFileDelta(self.location, frame, count, size, gone)

    def check_unchanged(self, plan: Mapping[str, Any] | None) -> None:
        """Let executors compare the planned objects with what is there now.

        A task looks at the objects of one file of the ledger: at each by itself, or where there are many
        by listing from the first key to the last. It is the latest version that counts.

        Raises
        ------
        ChangedObjectError
            Names what was overwritten or deleted: of each file of the ledger up to 1,000 keys.
        LedgerError, SourceError
            The ledger or the source could not be read.
        """
        task = _Look(self._taken, str(self.location), self._local.options.request_payer)
        found = self._executed(task, [json.dumps(file) for file in self._files_of(plan)])
        overwritten: list[str] = []
        deleted: list[str] = []
        for share in found:
            overwritten += share["overwritten"]
            deleted += share["deleted"]
        overwritten.sort()
        deleted.sort()
        if overwritten or deleted:
            raise ChangedObjectError(str(self.location), overwritten, deleted)

    @property
    def _taken(self) -> _Taken:
        return _Taken(str(self._ledger_location))

    def _files_of(self, plan: Mapping[str, Any] | None) -> list[dict[str, Any]]:
        if plan is None:
            return []
        check_source(plan, self.location, self._context)
        return self._local.ledger.files(plan["files"]) if plan.get("files") else []

    def _executed(self, task: Callable[..., Any], parts: Sequence[str]) -> list[dict[str, Any]]:
        """Give each part to a task of its own and return the shares of all."""
        if not parts:
            return []
        with typed_errors():
            shares = self._frame(parts).mapInArrow(task, "share string").collect()
        return [json.loads(row["share"]) for row in shares]

    def _frame(self, parts: Sequence[str]) -> DataFrame:
        return spread(self._spark, [part.encode() for part in parts])

    def _sent(self, state: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return a state as executors can be sent it: with names of files, not with chunks of the table."""
        if state is None:
            return None
        return {**state, "segments": FileLedger(str(self.location), state.get("segments", ())).in_files()}

    def _read(self, files: Sequence[Mapping[str, Any]]) -> DataFrame:
        """Read what is taken from files of the ledger, each of which is proven whole."""
        from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

        types = {"size": LongType(), "version": LongType(), "modified": TimestampType()}
        schema = StructType([StructField(name, types.get(name, StringType())) for name in LEDGER.names])
        if not files:
            return self._spark.createDataFrame([], schema)
        return self._frame([json.dumps(file) for file in files]).mapInArrow(self._taken, schema)

    def _ranges(self) -> tuple[list[tuple[str | None, str | None]], datetime]:
        """Cut the key space; return the ranges and the time of the source before any of them is listed."""
        if self.location.is_local or self.location.is_unordered:
            return [(None, None)], datetime.now().astimezone()
        wanted = TASKS_PER_CORE * self._spark.sparkContext.defaultParallelism
        options = self._local.options
        pages = BucketPages(
            str(self.location), make_client(1), self.location.bucket, self.location.prefix,
            versioned=options.versioned, request_payer=options.request_payer,
        )  # fmt: skip
        # The time of the first of these answers: no task has listed anything before it.
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
    until: Mapping[str, Any] | None
    taken_by: tuple[int, str]
    started: str
    options: Mapping[str, Any]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for first, last in _parts(batches):
            with _marked_errors():
                share = self._share(first, last)
            yield _as_batch(share)

    def _share(self, after: str | None, until: str | None) -> dict[str, Any]:
        bookmark = FileBookmark(
            self.source, state=self.state, s3_client=_client(), taken_by=self.taken_by, until=self.until,
            **self.options,
        )  # fmt: skip
        rows = bookmark.part(after, until, datetime.fromisoformat(self.started))
        taken = rows.filter(pc.equal(rows.column("status"), TAKEN))
        return {
            "files": files_of(bookmark.ledger.stored(rows)) if rows.num_rows else [],
            "count": taken.num_rows,
            "bytes": pc.sum(taken.column("size")).as_py() or 0,
            "gone": pc.sum(pc.equal(rows.column("status"), GONE)).as_py() or 0,
        }


@dataclass(frozen=True)
class _Taken:
    """What an executor does with a file of the ledger: read it, prove it, and show what is taken."""

    ledger_uri: str

    def rows(self, file: Mapping[str, Any]) -> pa.Table:
        rows = SegmentFiles(self.ledger_uri, _client()).rows(file)
        return rows.filter(pc.equal(rows.column("status"), TAKEN))

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for file in _parts(batches):
            with _marked_errors():
                rows = self.rows(file)
            yield from rows.to_batches()


@dataclass(frozen=True)
class _Look:
    """What an executor does before the commit: compare the objects of a file of the ledger with what is there."""

    taken: _Taken
    source: str
    request_payer: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for file in _parts(batches):
            with _marked_errors():
                share = self._share(file)
            yield _as_batch(share)

    def _share(self, file: Mapping[str, Any]) -> dict[str, list[str]]:
        rows = self.taken.rows(file)
        found = find_changed(
            Location.parse(self.source), rows, _client(), request_payer=self.request_payer,
            between=(str(file["first"])[:-1], str(file["last"])),  # from just below the first key
        )  # fmt: skip
        overwritten, deleted = found
        return {"overwritten": overwritten[:NAMED_CHANGES], "deleted": deleted[:NAMED_CHANGES]}


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    for batch in read_whole_input(batches):
        yield from map(json.loads, batch.column(0).to_pylist())


def _as_batch(share: Mapping[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([json.dumps(share)], pa.string())], ["share"])


@contextmanager
def _marked_errors() -> Iterator[None]:
    """Raise our own errors so that `typed_errors` finds them in Spark's."""
    try:
        yield
    except WatermarkError as error:
        raise RuntimeError(marked(error)) from error
