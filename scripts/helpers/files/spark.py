"""A file bookmark computed by Spark's executors, for buckets whose listing is too large for one machine.

The key space is cut into ranges, one for each task. A task lists its range, compares it with the part of the
ledger that can have its keys, and writes its new files to a ledger file. Only the names of the ledger files are
sent to the driver. The tasks run the code of `FileBookmark`, so the result is the same.
"""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers._lazy import DataFrame, S3Client, SparkSession, T
from scripts.helpers.errors import ChangedObjectError, InvalidValueError, SourceError, WatermarkError
from scripts.helpers.files.bookmark import FileBookmark, Found, check_planned
from scripts.helpers.files.choice import Piece
from scripts.helpers.files.delta import FileDelta
from scripts.helpers.files.ledger import FILE_ROWS, FileLedger, Files, cuts_of, files_between, rows_in
from scripts.helpers.files.pieces import PIECE_ROWS, Gathered
from scripts.helpers.files.readable import ReadableWhenSmall
from scripts.helpers.files.rules import OLDEST_FIRST, FileOptions, Limits
from scripts.helpers.files.segment_files import SegmentFiles, from_bytes, to_bytes
from scripts.helpers.files.states import FilesPlan, FilesState, files_of, segment_of
from scripts.helpers.files.unchanged import find_changed
from scripts.helpers.listing.bucket_pages import BucketPages
from scripts.helpers.listing.cuts import Ends, parted
from scripts.helpers.listing.listing import Location, bounds_of
from scripts.helpers.listing.objects import GONE, IGNORED, LEDGER, LISTED, TAKEN, byte_order, is_status, no_rows
from scripts.helpers.listing.parting import AT_ONCE, find_cuts, places, quantiles
from scripts.helpers.listing.s3 import make_client
from scripts.helpers.reading.by_schema import Asked
from scripts.helpers.reading.fetch import Planned, planned_of
from scripts.helpers.reading.fetched_lines import marked, read_whole_input
from scripts.helpers.reading.small_files import (
    OnChanged,
    SmallFiles,
    check_small_files,
    files_per_task,
    header_of,
    typed_fetch_errors,
)
from scripts.helpers.reading.spark import check_layouts, layouts_of
from scripts.helpers.spark.tasks import slots_of, spread

if TYPE_CHECKING:
    from scripts.helpers.files.kept_schemas import KeptSchemas

logger = logging.getLogger(__name__)

# --- limits ---------------------------------------------------------------------------------------
# Find the end of a batch with limits. Each task has found a share of the files, and no process has all shares.
#
# The batch is the oldest files within the limits, as `rules.oldest_first` takes them from one table. Here each task
# divides its share, in the order of age, into blocks, and returns their counts and sizes. The blocks of all shares
# show between which two files the batch must end. Tasks then return smaller blocks of the files between these two,
# until no file is between them.


class PlaceInOrder(NamedTuple):
    """The place of a file in the order in which batches take files. It is unique in a source."""

    modified: int
    """LastModified in microseconds since 1970, UTC."""
    key: str
    """The key as text. Python and Arrow sort it alike: the order of code points is the order of UTF-8 bytes."""


class Block(NamedTuple):
    """Consecutive files of a share (the files that one task found), in the order in which batches take files."""

    first: PlaceInOrder
    last: PlaceInOrder
    files: int
    bytes: int


@dataclass(frozen=True)
class Stretch:
    """The two files between which a batch ends.

    Attributes
    ----------
    after
        A file that is in the batch, as are all older files; None if no such file is known yet.
    until
        The oldest file that is known not to be in the batch; None if no such file is known yet.
    is_settled
        Whether no file is left between the two.
    """

    after: PlaceInOrder | None = None
    until: PlaceInOrder | None = None
    is_settled: bool = False


class Blocks(NamedTuple):
    """Totals of a task's files that are surely in the batch, and `Block`s (groups by age) of those that may be."""

    files: int
    """Number of files that the batch surely takes. `bytes` is their size."""
    bytes: int
    blocks: list[Block]


def blocks_of(rows: pa.Table, stretch: Stretch, parts: int) -> Blocks:
    """Count a task's files before `stretch` (in the batch); divide those in it, which may be, into `Block`s by age.

    Parameters
    ----------
    rows
        The files that the task found, with at least the columns key, size and modified.
    parts
        Approximate number of blocks, at least 2. Up to three times as many are made if sizes differ.
    """
    before = rows.slice(0, 0)
    if stretch.after is not None:
        is_before = _compared(rows, stretch.after, pc.less_equal)
        before, rows = rows.filter(is_before), rows.filter(pc.invert(is_before))
    if stretch.until is not None:
        rows = rows.filter(is_earlier(rows, stretch.until))
    order = pc.sort_indices(rows, OLDEST_FIRST).to_pylist()
    sizes = rows.column("size").to_pylist()
    # Limit a block's files and bytes: the next call of this function divides each block in which the batch may end.
    most_files = max(1, -(-len(order) // parts))
    most_bytes = -(-sum(sizes) // parts)
    blocks: list[Block] = []
    start, size = 0, 0
    for end, index in enumerate(order):
        is_full = end - start >= most_files or size + sizes[index] > most_bytes
        if end > start and is_full:
            blocks.append(_block(rows, order[start:end], size))
            start, size = end, 0
        size += sizes[index]
    if start < len(order):
        blocks.append(_block(rows, order[start:], size))
    return Blocks(before.num_rows, pc.sum(before.column("size"), min_count=0).as_py(), blocks)


def narrowed(stretch: Stretch, shares: Sequence[Blocks], limits: Limits) -> Stretch:
    """Return a narrower range of files in which the batch ends, from all tasks' counts; empty if all files fit."""
    before = sum(share.files for share in shares), sum(share.bytes for share in shares)
    blocks = [block for share in shares for block in share.blocks]
    after, until = stretch.after, stretch.until
    # Sum up blocks by first file. While the sum fits the limits, the batch has all files up to the added block's first.
    files, size = before
    for block in sorted(blocks, key=lambda block: block.first):
        files, size = files + block.files, size + block.bytes
        if not limits.fit(files, size):
            break
        after = block.first
    # Sum up blocks by last file. At the latest, the batch ends before the last file of the block that exceeds a limit.
    files, size = before
    for block in sorted(blocks, key=lambda block: block.last):
        files, size = files + block.files, size + block.bytes
        if not limits.fit(files, size):
            until = block.last
            break
    if until is None:
        return Stretch(is_settled=True)
    has_files = any((after is None or block.last > after) and block.first < until for block in blocks)
    return Stretch(after, until, is_settled=not has_files)


def is_earlier(rows: pa.Table, place: PlaceInOrder) -> Any:
    """Return for each file whether it comes before `place` in the order in which batches take files."""
    return _compared(rows, place, pc.less)


def _block(rows: pa.Table, order: Sequence[int], size: int) -> Block:
    return Block(_place(rows, order[0]), _place(rows, order[-1]), len(order), size)


def _place(rows: pa.Table, index: int) -> PlaceInOrder:
    return PlaceInOrder(rows.column("modified")[index].value, rows.column("key")[index].as_py())


def _compared(rows: pa.Table, place: PlaceInOrder, compare: Callable[[Any, Any], Any]) -> Any:
    """Return for each file whether its time is before a place, or is equal and `compare` is true for the keys."""
    moment = pa.scalar(place.modified, LISTED.field("modified").type)
    modified = rows.column("modified")
    by_key = pc.and_(pc.equal(modified, moment), compare(rows.column("key"), place.key))
    return pc.or_(pc.less(modified, moment), by_key)


# --- spark ----------------------------------------------------------------------------------------

TASKS_PER_CORE = 8
"""Tasks per core. Ranges differ in size, which is unknown beforehand, so many small tasks balance the load."""
WORKERS_PER_TASK = 4
"""Parallel requests of one task by default. The cluster runs as many listing tasks at a time as it has cores, each with
its own client."""
LEAST_KEYS = 1_000
"""Least keys of a range that is cut by the ledger: one request lists as many."""
MOST_KEYS = 500_000
"""Most keys of a range that is cut by the ledger: a task holds its ledger files in memory, at 500 bytes per key."""
MARKS_PER_RANGE = 64
"""Sampled ledger keys per range: enough to cut ranges whose sizes differ by a few percent."""
MERGED_FILE_ROWS = 100_000
"""Least rows of a merged file that executors write, if there are as many: few files, each for its own range."""
DRIVER_FILES = 1_000_000
"""Most files that `SparkFileDelta.read` passes to Spark's readers, which need about 1 KB for each on the driver."""
LIMIT_BLOCKS = 20_000
"""Blocks that all ranges together send to the driver to find the end of a batch with limits: a few megabytes."""
NAMED_CHANGES = 1_000
"""Most keys of changed objects that a task returns; a reader needs only a few."""


@dataclass(frozen=True)
class SparkFileDelta(ReadableWhenSmall):
    """The new files of one batch as a DataFrame. They are read with the methods of a `FileDelta`.

    `read` keeps the names of all its files on the driver, as Spark's readers do, about a kilobyte each. So it refuses
    more than 1,000,000 files, and raises the errors of `to_driver`. With `read_small`, a task finds its files in the
    ledger, so their names are never sent to the driver. A Spark job first finds the columns that their folders have.
    `read_small` requires a schema, and stores it. Values that do not fit the schema stop the run or are rescued, and
    columns that it lacks are ignored. The header of the first file applies to all CSV files: a file with another header
    raises SourceError. For `on_schema_change` of ``add``, ``warn`` or ``raise``, and for CSV files with several
    headers, use ``to_driver().read_small``.

    Attributes
    ----------
    files : DataFrame
        One row per file, with the columns of `FileDelta.table`. Spark reads the ledger when the frame is used.
        A damaged ledger file fails the Spark job; `small_files.typed_fetch_errors` turns that error into a
        LedgerError, as `job.write` does.
    count, bytes, gone : int
        Number of new files, their size in bytes, and the number of objects that do not exist any more.
    ledger_uri : str
        The folder of the ledger files.
    ledger_files : tuple
        The ledger files that name the new files, in the order of their keys.
    request_payer : bool
        Whether the requester pays for requests to the source.
    has_more : bool
        Whether `max_files` or `max_bytes` left files for the next batch.
    schemas : KeptSchemas or None
        In a job: the columns of earlier batches.
    s3_client : S3Client or None
        Reads the ledger, and the headers of CSV files for `read`, on the driver. If None, a client is created.
    """

    location: Location
    files: DataFrame
    count: int
    bytes: int
    gone: int
    ledger_uri: str
    ledger_files: tuple[Mapping[str, Any], ...] = ()
    request_payer: bool = False
    has_more: bool = False
    schemas: KeptSchemas | None = None
    s3_client: S3Client | None = None

    def __repr__(self) -> str:
        return f"<SparkFileDelta {str(self.location)!r}: {self.count:,} files, {self.bytes:,} bytes>"

    def to_driver(self) -> FileDelta:
        """Return the same files as a `FileDelta`, with all their names on the driver.

        Raises
        ------
        SourceError
            There are more than 1,000,000 files.
        LedgerError
            A file of the ledger cannot be read.
        """
        if self.count > DRIVER_FILES:
            raise SourceError(
                str(self.location),
                f"{self.count:,} files are more than the driver is asked to name, {DRIVER_FILES:,}. read_small leaves "
                "their names with the executors; delta.files has them for a read of your own.",
            )
        ledger = FileLedger(str(self.location), (), SegmentFiles(self.ledger_uri, self.s3_client))
        rows = ledger.read({"count": self.count, "files": self.ledger_files})
        taken = rows.filter(is_status(rows, TAKEN))
        check_planned(str(self.location), taken)
        return FileDelta(
            self.location, taken, self.has_more, self.gone, self.request_payer, schemas=self.schemas,
            s3_client=self.s3_client,
        )  # fmt: skip

    @property
    def paths(self) -> list[str]:
        """Full URIs with raw keys, as `FileDelta.paths` has them. Raises the errors of `to_driver`."""
        return self.to_driver().paths

    def _read(self, spark: SparkSession, asked: Asked) -> DataFrame:
        return self.to_driver()._read(spark, asked)

    def _read_small(self, spark: SparkSession, asked: Asked, on_changed: OnChanged) -> DataFrame:
        check_small_files(self.location, asked.format, asked.schema, on_changed, asked.options)
        if asked.policy not in (None, "take"):
            raise InvalidValueError(
                f"on_schema_change is {asked.policy!r}, and nothing looks for new columns in files whose names "
                "stay with the executors. Leave it out, or use to_driver().read_small."
            )
        taken = _Taken(self.ledger_uri, str(self.location))
        layouts: Counter[tuple[str, ...]] = Counter()
        for share in _run_on_executors(spark, partial(_layouts, taken), self.ledger_files):
            for names, count in share:
                layouts[tuple(names)] += count
        folders = check_layouts(self.location, layouts)
        parts = _slices(self.ledger_files, files_per_task(spark, rows_in(self.ledger_files), self.bytes))
        first = self._first_file()
        header = _header_of_first(self, first, asked.options) if asked.finds_by_header else None
        small = SmallFiles(spark, self.location, asked.format, asked.path_column, on_changed, self.request_payer)

        def read(table: pa.Table, schema: Any, options: Mapping[str, Any]) -> DataFrame:
            if schema is None and asked.format != "text":
                # `read_with` passes no schema if it only needs the column names: the first file's header has them.
                return small(table, None, options)
            shares = _given(spark, parts)
            return small.read_shares(shares, _Planned(taken), folders, schema, options, header)

        # Decide the columns by the first file alone: all files must have its header, and the same folder columns.
        alone = FileDelta(self.location, first, request_payer=self.request_payer, schemas=self.schemas)
        return alone.read_with(spark, asked, read, skip_changed=on_changed == "skip")

    def _first_file(self) -> pa.Table:
        """Return the row of the first file that is not empty, else of the first file; no row if there are no files."""
        if not self.count:
            return no_rows(LISTED)
        files = self.files.select(*Planned._fields)
        row = files.where("size > 0").first() or files.first()
        assert row is not None
        return pa.Table.from_pylist([row.asDict()], LISTED)


def _header_of_first(delta: SparkFileDelta, first: pa.Table, options: Mapping[str, Any]) -> bytes | None:
    """Return the header of the first file, which gives the columns of all files; None if that file is empty."""
    header = None
    for one in planned_of(first):
        header = header_of(delta.location, one, options, delta.s3_client, delta.request_payer)
        if header is None and one.size:
            raise SourceError(
                str(delta.location),
                f"key {one.key!r} has no header. Read with to_driver().read_small, or pass enforceSchema=True.",
            )
    return header


@dataclass(frozen=True)
class Executors:
    """Lists the source of a bookmark in Spark tasks, a range of keys in each; see `FileBookmark.new_files_on_spark`.

    A task has the known objects of its range in memory, about half a million keys, and works on 200,000 listed objects
    at a time. So the memory of executors does not grow with the bucket, even if ranges are very unequal.

    With `max_files` or `max_bytes`, a task first writes the rows (key, size, time) of its new files to the executor's
    disk, at most as many as fit into the batch. It sends sums of groups of rows to the driver until the batch's end is
    known. Only taken files are written to the ledger. If Spark loses an executor, its ranges are listed again.
    """

    spark: SparkSession
    bookmark: FileBookmark

    def __post_init__(self) -> None:
        """Raise SourceError or InvalidValueError for options that executors do not support, and name an alternative."""
        location, chosen = self.bookmark.location, self.bookmark.options
        if self.bookmark.partitions is not None or self.bookmark.clears:
            raise InvalidValueError("On Spark partitions and clears cannot be used. Use new_files instead.")
        if not location.is_local and not location.is_s3:
            raise SourceError(str(location), f"executors do not list {location.scheme}://. Use new_files for it.")
        if chosen.on_unreadable != FileOptions.on_unreadable:
            raise InvalidValueError(
                "On Spark on_unreadable cannot be used: the list of what is set aside is one for all ranges. Use "
                "new_files instead."
            )
        if chosen.layout is not None and not location.has_ranges:
            raise InvalidValueError(
                "On Spark layout cannot be used: directories and directory buckets are listed as a whole there. Use "
                "new_files instead."
            )
        if chosen.ledger_uri is None:
            raise InvalidValueError(
                "On Spark the ledger is stored in files. Give a ledger_uri that executors can write to."
            )

    def find(self) -> Found[SparkFileDelta]:
        """List the source on the executors, and take the new files. Raises the errors of `FileBookmark.find`."""
        local = self.bookmark
        # Send tasks the state without its list of ledger files: `parts` lists for each task only files for its keys.
        state, end = (one and replace(one, segments=()) for one in (local.state, local.until))
        known = local.ledger.in_files()
        then = local.then.in_files() if local.then else []
        ranges, started = self._ranges(known)
        task = _Task(
            str(local.location), None if local.begins else state, end, local.taken_by, started.isoformat(),
            {"workers": WORKERS_PER_TASK, **local.given}, FILE_ROWS // len(ranges), PIECE_ROWS,
        )  # fmt: skip
        parts = []
        for after, until in ranges:
            share = {"after": after, "until": until, "known": _between(known, after, until)}
            parts.append(share | {"then": _between(then, after, until)})
        found = self._limited(task, parts) if local.limits.is_any else _run_on_executors(self.spark, task.share, parts)
        has_more = any(share["has_more"] for share in found)
        files = self._stored(found)
        count, size, gone, left, ignored = (
            sum(share[name] for share in found) for name in ("count", "bytes", "gone", "left", "ignored")
        )
        if local.begins and local.options.start_from is not None:
            # Log this on the driver too, because what the executors log does not appear here.
            logger.warning(
                "event=start_from source=%s start_from=%s ignored=%d taken=%d: files before start_from are not read",
                local.location, local.options.start_from, ignored, count,
            )  # fmt: skip
        segment, delta = segment_of(files) if files else None, self._delta(files, count, size, gone, has_more=has_more)
        aside = local.aside_on_executors
        return local.taken(delta, segment, None if left else started, aside, elsewhere=self._merged)

    def resume(self, stored: Mapping[str, Any]) -> Found[SparkFileDelta]:
        """Return the files of a frozen plan. SourceError if the plan belongs to another source."""
        plan = self.bookmark.opened_plan(stored)
        delta = self._delta(self._files_of(plan), plan.count, plan.bytes, plan.gone, has_more=plan.has_more)
        return Found(delta, plan)

    def nothing(self) -> SparkFileDelta:
        """Return a delta without files."""
        return self._delta([], 0, 0, 0)

    def _delta(self, files: Files, count: int, size: int, gone: int, *, has_more: bool = False) -> SparkFileDelta:
        return SparkFileDelta(
            self.bookmark.location, self._read(files), count, size, gone, self._ledger_uri, tuple(files),
            self.bookmark.options.request_payer, has_more=has_more, s3_client=self.bookmark.s3_client,
        )  # fmt: skip

    def check_unchanged(self, plan: FilesPlan) -> None:
        """Compare the planned objects with the current objects, on the executors.

        A task checks the objects of one ledger file: each with its own request, or neighbours with a page of a listing.
        The latest versions of the objects are compared.

        Raises
        ------
        ChangedObjectError
            Objects changed. The error names up to 1,000 overwritten and 1,000 deleted keys of each ledger file.
        LedgerError, SourceError
            The ledger or the source could not be read.
        """
        look = partial(_look, self._taken, self.bookmark.options.request_payer)
        found = _run_on_executors(self.spark, look, self._files_of(plan))
        overwritten, deleted = (
            sorted(chain.from_iterable(share[how] for share in found)) for how in ("overwritten", "deleted")
        )
        if overwritten or deleted:
            raise ChangedObjectError(str(self.bookmark.location), overwritten, deleted)

    @property
    def _taken(self) -> _Taken:
        return _Taken(self._ledger_uri, str(self.bookmark.location))

    @property
    def _ledger_uri(self) -> str:
        return str(Location.parse(self.bookmark.options.ledger_uri or ""))

    def _limited(self, task: _Task, parts: Sequence[Any]) -> list[dict[str, Any]]:
        """Find new files on the executors, and store the oldest of these files that fit into the limits."""
        from pyspark import StorageLevel

        candidates = _given(self.spark, parts).mapInArrow(_Candidates(task), "candidates string")
        # Keep candidates on Spark's disks, not in ledger files, where nothing would delete those that are not taken.
        candidates.persist(StorageLevel.DISK_ONLY)
        try:
            end = self._end(candidates, max(2, LIMIT_BLOCKS // len(parts)))
            store = partial(_store, str(self.bookmark.location), self._ledger_uri, end, task.few)
            return _collect_shares(candidates, store)
        finally:
            candidates.unpersist()

    def _end(self, candidates: DataFrame, parts: int) -> PlaceInOrder | None:
        """Return the oldest file that does not fit into the batch; None if all files fit."""
        stretch = Stretch()
        while not stretch.is_settled:
            found = _collect_shares(candidates, partial(_blocks, stretch, parts))
            stretch = narrowed(stretch, [_blocks_in(share) for share in found], self.bookmark.limits)
        return stretch.until

    def _files_of(self, plan: FilesPlan) -> list[dict[str, Any]]:
        return self.bookmark.ledger.files(plan.segment) if plan.segment else []

    def _stored(self, shares: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the ledger files with the rows that tasks found, in the order of their keys.

        A task that found only a few rows returned them: the rows of neighbouring tasks are written together here.
        """
        files: list[dict[str, Any]] = []
        few: list[pa.Table] = []
        # Sort the shares by key: Spark Connect's server reorders tasks, and a task returns pieces in any order.
        for share in sorted(shares, key=lambda share: byte_order(share["after"] or "")):
            if share["files"]:
                files += self._files_with(few) + share["files"]
                few = []
            elif share["rows"] is not None:
                few.append(from_bytes(b64decode(share["rows"])))
        return files + self._files_with(few)

    def _files_with(self, tables: Sequence[pa.Table]) -> list[dict[str, Any]]:
        if not tables:
            return []
        return files_of(self.bookmark.ledger.stored(pa.concat_tables(tables)))

    def _merged(self, segments: Sequence[Mapping[str, Any]], oldest: bool) -> list[dict[str, Any]] | None:
        """Merge segments (ledger parts) on executors; None if one file can hold all rows, as the driver is faster."""
        together = self.bookmark.ledger.again(segments).in_files()
        if sum(map(rows_in, together)) <= FILE_ROWS:
            return None
        parts = []
        for after, until in parted(cuts_of(together, MERGED_FILE_ROWS)):
            parts.append({"after": after, "until": until, "segments": _between(together, after, until)})
        merge = partial(_merge, str(self.bookmark.location), self._ledger_uri, oldest)
        files = chain.from_iterable(_run_on_executors(self.spark, merge, parts))
        in_order = sorted(files, key=lambda file: byte_order(file["first"]))
        return [segment_of(in_order)] if in_order else []

    def _read(self, files: Files) -> DataFrame:
        """Return a DataFrame of the taken files in some ledger files. Tasks verify each ledger file by its checksum."""
        types = {"size": T.LongType(), "version": T.LongType(), "modified": T.TimestampType()}
        schema = T.StructType([T.StructField(name, types.get(name, T.StringType())) for name in LEDGER.names])
        if not files:
            return self.spark.createDataFrame([], schema)
        return _given(self.spark, files).mapInArrow(self._taken, schema)

    def _ranges(self, known: Sequence[Files]) -> tuple[list[Ends], datetime]:
        """Cut the key space into ranges. Return them, and a time before the listing by the clock of the source."""
        location, options = self.bookmark.location, self.bookmark.options
        if not location.has_ranges:
            return [(None, None)], datetime.now().astimezone()
        bounds = sorted(map(bounds_of, self.bookmark.folders()), key=lambda ends: byte_order(ends[0] or ""))
        wanted = TASKS_PER_CORE * slots_of(self.spark)
        pages = BucketPages(
            str(location), self.bookmark.s3_client or make_client(AT_ONCE), location.bucket, location.prefix,
            versioned=options.versioned, request_payer=options.request_payer,
        )  # fmt: skip
        # If only recent date folders are listed, leave out ledger files that have only keys of older folders.
        held = known
        if bounds != [(None, None)]:
            held = [[file for file in files if any(files_between([file], *ends) for ends in bounds)] for files in known]
        rows = sum(map(rows_in, held))
        cuts: list[str] = []
        # Fewer ledger rows would make only one range, which needs no cuts.
        if rows >= 2 * LEAST_KEYS:
            wanted = max(min(wanted, rows // LEAST_KEYS), rows // MOST_KEYS)
            cuts = quantiles(self._marks(held, max(1, rows // (wanted * MARKS_PER_RANGE)), rows), wanted)
        elif bounds == [(None, None)]:
            cuts = find_cuts(pages, wanted)  # The ledger is too small to show where the keys are.
        if pages.date is None:
            pages.first_key("")
        # Return `pages.date`, the source's time at the first response to `pages`: no task has listed its range yet.
        assert pages.date is not None
        return [ends for bound in bounds for ends in parted(cuts, *bound)], pages.date

    def _marks(self, known: Sequence[Files], step: int, rows: int) -> list[str]:
        """Return every `step`-th key of the ledger. The driver reads a small ledger, the executors a large one."""
        parts: list[dict[str, Any]] = []
        for files in known:
            for file, start in zip(files, places([int(file["count"]) for file in files], step), strict=True):
                parts.append({"file": file, "start": start, "step": step})
        if rows > FILE_ROWS:
            sample = partial(_sample, self._ledger_uri)
            return list(chain.from_iterable(_run_on_executors(self.spark, sample, parts)))
        tables = SegmentFiles(self._ledger_uri, self.bookmark.s3_client).rows_of([part["file"] for part in parts])
        return list(chain.from_iterable(map(_sampled_keys, tables, parts)))


def _run_on_executors(spark: SparkSession, share: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """Call the function `share` for each part of the work in a Spark task of its own, and return the results."""
    return _collect_shares(_given(spark, parts), share) if parts else []


def _given(spark: SparkSession, parts: Iterable[Any]) -> DataFrame:
    """Return a DataFrame with one Spark partition for each part, which contains the part as JSON."""
    return spread(spark, [json.dumps(part).encode() for part in parts])


def _collect_shares(parts: DataFrame, share: Callable[[Any], Any]) -> list[Any]:
    """Call the function `share` on the executors for each row of `parts`; return all results, in any order."""
    with typed_fetch_errors():
        shares = parts.mapInArrow(_OfEach(share), "share string").collect()
    return [json.loads(row["share"]) for row in shares]


def _blocks_in(share: Mapping[str, Any]) -> Blocks:
    blocks = [Block(PlaceInOrder(*first), PlaceInOrder(*last), *counts) for first, last, *counts in share["blocks"]]
    return Blocks(share["files"], share["bytes"], blocks)


def _between(segments: Sequence[Files], after: str | None, until: str | None) -> list[dict[str, Any]]:
    """Return the segments with only the files that can have keys above `after` and not above `until`."""
    found = filter(None, (files_between(files, after, until) for files in segments))
    return [{"count": rows_in(held), "files": held} for held in found]


def _slices(files: Files, rows: int) -> list[list[dict[str, Any]]]:
    """Divide the rows of ledger files into shares, each a list of file parts with at most `rows` rows in total."""
    shares: list[list[dict[str, Any]]] = []
    share: list[dict[str, Any]] = []
    room = rows
    for file in files:
        start, end = 0, int(file["count"])
        while start < end:
            length = min(room, end - start)
            share.append({"file": file, "start": start, "length": length})
            start, room = start + length, room - length
            if not room:
                shares.append(share)
                share, room = [], rows
    if share:
        shares.append(share)
    return shares


@lru_cache(maxsize=2)  # One client is for listing, and one for the ledger.
def _client(workers: int = WORKERS_PER_TASK) -> S3Client:
    """Return an S3 client for `workers` parallel requests. All tasks of a Python worker share it."""
    return make_client(workers)


@dataclass(frozen=True)
class _OfEach:
    """Calls the function `share` on an executor with each part, such as a range of keys. The driver gets results."""

    share: Callable[[Any], Any]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in _parts(batches):
            with _marked_errors():
                share = self.share(part)
            yield _as_batch(share)


@dataclass(frozen=True)
class _Task:
    """Work of an executor on a range: list it, compare it with the ledger, store the new files."""

    source: str
    state: FilesState | None
    until: FilesState | None
    taken_by: tuple[int, str]
    started: str
    options: Mapping[str, Any]
    few: int
    """Up to so many rows are sent to the driver, which writes the rows of many tasks to one ledger file."""
    most_rows: int
    """Number of listed objects that are processed at once."""

    def share(self, part: Mapping[str, Any]) -> dict[str, Any]:
        """List a range of keys, store its new files in the ledger, and return counts and ledger files to the driver."""
        bookmark, pieces = self.chosen(part)
        share = _Share(bookmark.ledger)
        for after, until, choice in pieces:
            share.add((after, until), choice.rows, bookmark.holding(choice.left).num_rows)
        return share.stored(part["after"], self.few)

    def chosen(self, part: Mapping[str, Any]) -> tuple[FileBookmark, Iterator[Piece]]:
        """Return a bookmark with the ledger of a key range, and what to take or leave in each piece of the range."""
        state = None if self.state is None else replace(self.state, segments=tuple(part["known"])).to_store()
        end = None if self.until is None else replace(self.until, segments=tuple(part["then"])).to_store()
        client = _client(self.options["workers"])
        bookmark = FileBookmark(
            self.source, state=state, s3_client=client, taken_by=self.taken_by, until=end, **self.options
        )
        started = datetime.fromisoformat(self.started)
        return bookmark, bookmark.parts(part["after"], part["until"], started, self.most_rows)


class _Share:
    """The results of a task: rows for the ledger, and counts for the driver."""

    def __init__(self, ledger: FileLedger) -> None:
        self._gathered = Gathered(ledger)
        self._counts = dict.fromkeys(("count", "bytes", "gone", "ignored", "left"), 0)

    def add(self, ends: Ends, rows: pa.Table, left: int) -> None:
        """Add the rows of a range of keys. `left` counts objects left for a later batch: see `FileBookmark.holding`."""
        taken = rows.filter(is_status(rows, TAKEN))
        self._counts["count"] += taken.num_rows
        self._counts["bytes"] += pc.sum(taken.column("size"), min_count=0).as_py()
        self._counts["gone"] += pc.sum(is_status(rows, GONE), min_count=0).as_py()
        self._counts["ignored"] += pc.sum(is_status(rows, IGNORED), min_count=0).as_py()
        self._counts["left"] += left
        self._gathered.add(*ends, rows)

    def stored(self, after: str | None, few: int, *, has_more: bool = False) -> dict[str, Any]:
        """Write the rows to the ledger if they are more than `few`, and return the result for the driver.

        `after` is the exclusive start of the range of keys; None for the first range. Shares are sorted by it.
        """
        files, rows = self._gathered.taken(few)
        sent = b64encode(to_bytes(rows)).decode() if rows is not None else None
        return {"after": after, "files": files, "rows": sent, "has_more": has_more, **self._counts}


@dataclass(frozen=True)
class _Candidates:
    """Work of an executor on a range if the batch has limits: find the candidates for the batch, without storing them.

    Candidates are the oldest new files of the range within the limits, because the batch can take no others, and the
    first file that does not fit: the batch ends before that file, even if a younger file of another range would fit.
    """

    task: _Task

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in _parts(batches):
            with _marked_errors():
                bookmark, pieces = self.task.chosen(part)
                for after, until, choice in pieces:
                    left = bookmark.holding(choice.left).num_rows
                    rows = b64encode(to_bytes(choice.rows)).decode()
                    yield _as_batch({"after": after, "until": until, "rows": rows, "left": left})


def _candidates(kept: Mapping[str, Any]) -> tuple[pa.Table, pa.Table]:
    """Return the rows of files that the batch may take, and the task's other rows, such as those of gone objects."""
    rows = from_bytes(b64decode(kept["rows"]))
    is_taken = is_status(rows, TAKEN)
    return rows.filter(is_taken), rows.filter(pc.invert(is_taken))


def _blocks(stretch: Stretch, parts: int, kept: Mapping[str, Any]) -> dict[str, Any]:
    """Count a task's files before `stretch`, all in the batch; group those in `stretch`, where it ends, by age."""
    taken, _ = _candidates(kept)
    return blocks_of(taken, stretch, parts)._asdict()


def _store(source: str, ledger_uri: str, end: PlaceInOrder | None, few: int, kept: Mapping[str, Any]) -> dict[str, Any]:
    """Store a task's new files before `end`, the first file outside the batch; return counts and ledger files."""
    candidates, others = _candidates(kept)
    taken = candidates if end is None else candidates.filter(is_earlier(candidates, end))
    out = candidates.num_rows - taken.num_rows
    # Always store the rows of gone and ignored objects, even if the batch takes no file of this range.
    rows = pa.concat_tables([taken, others]).sort_by("key")
    share = _Share(FileLedger(source, (), SegmentFiles(ledger_uri, _client())))
    share.add((kept["after"], kept["until"]), rows, kept["left"] + out)
    return share.stored(kept["after"], few, has_more=out > 0)


def _sample(ledger_uri: str, part: Mapping[str, Any]) -> list[str]:
    """Return a sample of the keys of a ledger file, from which ranges are cut."""
    return _sampled_keys(SegmentFiles(ledger_uri, _client()).rows(part["file"]), part)


def _sampled_keys(rows: pa.Table, part: Mapping[str, Any]) -> list[str]:
    return list(rows.column("key").to_pylist()[part["start"] :: part["step"]])


def _merge(source: str, ledger_uri: str, oldest: bool, part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Merge several segments (ledger parts) in a key range; return the new files. `oldest`: see `FileLedger.merged`."""
    ledger = FileLedger(source, part["segments"], SegmentFiles(ledger_uri, _client()))
    merged = ledger.merged(ledger.known(), part["after"], part["until"], oldest)
    return list(chain.from_iterable(map(files_of, merged)))


@dataclass(frozen=True)
class _Taken:
    """Work of an executor on a ledger file: read and verify it, and return the taken files."""

    ledger_uri: str
    source: str

    def rows(self, file: Mapping[str, Any], start: int = 0, length: int | None = None) -> pa.Table:
        """Return a ledger file's rows with the status taken: among all rows, or among `length` rows from `start` on."""
        rows = SegmentFiles(self.ledger_uri, _client()).rows(file).slice(start, length)
        taken = rows.filter(is_status(rows, TAKEN))
        check_planned(self.source, taken)
        return taken

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for file in _parts(batches):
            with _marked_errors():
                rows = self.rows(file)
            yield from rows.to_batches()


def _layouts(taken: _Taken, file: Mapping[str, Any]) -> list[Any]:
    """Count the keys of a ledger file by the columns of their folders: ``[(("year", "month"), 200)]``."""
    return list(layouts_of(taken.rows(file).column("key").to_pylist()).items())


@dataclass(frozen=True)
class _Planned:
    """Work of an executor on parts of ledger files: yield the objects that the batch took, which are then fetched."""

    taken: _Taken

    def __call__(self, batch: pa.RecordBatch) -> Iterator[Planned]:
        for one in chain.from_iterable(_parts([batch])):
            yield from planned_of(self.taken.rows(one["file"], one["start"], one["length"]))


def _look(taken: _Taken, request_payer: bool, file: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the taken objects of a ledger file that were overwritten or deleted, up to `NAMED_CHANGES` keys each."""
    location = Location.parse(taken.source)
    overwritten, deleted = find_changed(location, taken.rows(file), _client(), request_payer=request_payer)
    return {"overwritten": overwritten[:NAMED_CHANGES], "deleted": deleted[:NAMED_CHANGES]}


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    for batch in read_whole_input(batches):
        yield from map(json.loads, batch.column(0).to_pylist())


def _as_batch(share: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([json.dumps(share)], pa.string())], ["share"])


@contextmanager
def _marked_errors() -> Iterator[None]:
    """Raise errors of this package in a form that `typed_fetch_errors` finds inside Spark's errors."""
    try:
        yield
    except WatermarkError as error:
        raise RuntimeError(marked(error)) from error
