"""`import_bookmark`: start from a bookmark that a job has in AWS Glue, and say what cannot be taken over exactly."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import S3Client, pa, pc
from scripts.helpers.errors import BookmarkImportError, CursorError
from scripts.helpers.glue.glue_states import BandState, KeyState, State, match, read_bookmark
from scripts.helpers.glue.paths import folder_context
from scripts.helpers.glue.paths import folders as folders_of
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.names import new_run_id, new_token
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.watermarks import Watermarks

if TYPE_CHECKING:
    from scripts.helpers.files.bookmark import FileBookmark
    from scripts.helpers.files.sources import ListingSource
    from scripts.helpers.listing.objects import Interval

logger = logging.getLogger(__name__)

__all__ = ["FilesAt", "ImportReport", "ImportedContext", "RowsBy", "import_bookmark"]

EXACT, APPROXIMATE, NOT_POSSIBLE = "exact", "approximate", "not possible"
SHOWN = 10
"""Most keys of one context that a printed report names."""
BEFORE = 0
"""The version under which a bookmark remembers files that were read before the import."""
MAY_BE_MISSED = "files older than the band in partitions that Glue has not read may be missed"
PARTITIONS_REMEMBERED = (
    "it remembers partitions of the catalog by the time they were registered, and files go by their own time here, so "
    f"{MAY_BE_MISSED}; give FilesAt partitions_may_be_missed=True to accept that"
)

# --- what is asked, and what is told ----------------------------------------------------------------


@dataclass(frozen=True)
class FilesAt:
    """A context that reads files: where they lie, which Glue's bookmark does not say.

    Attributes
    ----------
    paths
        ``s3://bucket/prefix/``, or a list of several as in Glue's ``paths``; also files, by their names.
    options
        As the job gives them to `IncrementalJob.new_files` afterwards.
    listing
        Another way to see the objects of a single path, such as `S3Inventory`.
    partitions_may_be_missed
        Take over a context of a table with partitions, too. Glue knows these by the time they were
        registered, which is not taken over: files that are older than the band and lie in a partition
        that Glue has not read would be taken for read.
    """

    paths: str | Sequence[str]
    options: Mapping[str, Any] = field(default_factory=dict)
    listing: ListingSource | None = None
    partitions_may_be_missed: bool = False


@dataclass(frozen=True)
class RowsBy:
    """A context that reads a database: its key columns with Spark's types, which Glue's bookmark does not say.

    Attributes
    ----------
    columns
        Such as ``{"id": "bigint"}``, in the order of ``jobBookmarkKeys``.
    descending
        Keys fall (``jobBookmarkKeysSortOrder`` is desc).
    last
        The last values read, one for each column: texts as the database writes them, or numbers. Without
        them they are guessed from names in the bookmark, and the context is approximate.
    """

    columns: Mapping[str, str]
    descending: bool = False
    last: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class ImportedContext:
    """One context of the bookmark.

    Attributes
    ----------
    kind
        ``files`` or ``rows``; None where it cannot be told.
    outcome
        ``exact``: the next run reads what Glue's next run would. ``approximate``: it also reads the
        files of `read_again`, of which Glue has read some; or what `detail` says is in doubt. ``not
        possible``: see `detail`.
    known, new
        Objects of the present listing that are taken for read, and that the next run reads.
    read_again
        Keys that Glue has read, or may have read, and that the next run reads. Of an ``exact`` context
        they were changed since, and Glue would read them again as well.
    """

    name: str
    kind: str | None
    outcome: str
    detail: str
    known: int = 0
    new: int = 0
    read_again: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{self.name}: {self.outcome}. {self.detail}"
        if self.kind == "files":
            text += f"; files known {self.known:,}, for the next run {self.new:,}"
        if self.read_again:
            text += f"; again: {', '.join(map(repr, self.read_again[:SHOWN]))}"
        if len(self.read_again) > SHOWN:
            text += f", … {len(self.read_again):,} in all"
        return text


@dataclass(frozen=True, repr=False)
class ImportReport:
    """What an import takes over; `head` is what it wrote, None if it only looked.

    Printed, it names keys of files, and no value of a watermark.
    """

    job_name: str
    run_id: str
    contexts: tuple[ImportedContext, ...]
    left_out: tuple[str, ...] = ()
    head: Head | None = None

    @property
    def is_exact(self) -> bool:
        """Tell whether the next run reads what Glue's next run would, in all contexts."""
        return not self.left_out and all(context.outcome == EXACT for context in self.contexts)

    def __repr__(self) -> str:
        done = f"written as version {self.head.version}" if self.head else "not written"
        lines = [f"Bookmark of job {self.job_name!r} after run {self.run_id!r}, {done}:"]
        lines += [f"  {context}" for context in self.contexts]
        lines += [f"  {name}: left out" for name in self.left_out]
        return "\n".join(lines)


# --- the import -------------------------------------------------------------------------------------


def import_bookmark(
    glue_client: Any,
    watermarks: Watermarks,
    job_name: str,
    sources: Mapping[str, FilesAt | RowsBy],
    *,
    run_id: str | None = None,
    job_id: str | None = None,
    leave_out: Collection[str] = (),
    s3_client: S3Client | None = None,
    dry_run: bool = True,
    why: str | None = None,
    who: str | None = None,
) -> ImportReport:
    """Read a job's bookmark in AWS Glue, and make it the first version of the job here.

    Nothing is changed in Glue. All contexts are written in one write, as an IMPORT of Glue's run.

    Parameters
    ----------
    glue_client
        A boto3 client for Glue; its errors come through as they are.
    sources
        What each context reads, by ``transformation_ctx``.
    run_id
        The bookmark that this run of Glue left; by default the present one.
    job_id
        The name of the job here; by default the same.
    leave_out
        Contexts to go without: the job starts them as on a first run.
    s3_client
        To list the files; by default one from boto3's default session.
    dry_run
        List and report only. This is the default.
    why, who
        Kept in the history.

    Returns
    -------
    ImportReport
        For each context whether it is taken over exactly, and which files would be read again.

    Raises
    ------
    BookmarkImportError
        The bookmark cannot be read, or is empty; `sources` names a context that it does not have. When
        writing also: a context that cannot be taken over and is not in `leave_out`. Nothing is written.
    PlanConflictError
        The job has watermarks here already.
    SourceError
        The files cannot be listed.

    Examples
    --------
    >>> import_bookmark(glue, watermarks, "repairs on glue", {"repairs": RowsBy({"id": "bigint"}, last=("5",))})
    Bookmark of job 'repairs on glue' after run 'jr_7', not written:
      repairs: exact. rows past the last id that Glue read
    """
    request = {"JobName": job_name}
    if run_id is not None:
        request["RunId"] = run_id
    entry = glue_client.get_job_bookmark(**request)["JobBookmarkEntry"]
    found = read_bookmark(entry.get("JobBookmark"), job_name)
    if not found:
        raise BookmarkImportError(job_name, None, "it is empty, so the job starts here as on a first run.")
    for name in sorted({*sources, *leave_out} - set(found)):
        raise BookmarkImportError(job_name, name, f"it has no such context. It has: {', '.join(sorted(found))}.")
    imported_run = entry.get("RunId") or new_run_id()
    taken = [
        _taken(name, state, sources.get(name), imported_run, s3_client)
        for name, state in found.items()
        if name not in leave_out
    ]
    contexts = tuple(each.told for each in taken)
    if dry_run:
        return ImportReport(job_name, imported_run, contexts, tuple(leave_out))
    # All contexts or none: a job that starts with some of them would read the others from their beginning.
    for context in contexts:
        if context.outcome == NOT_POSSIBLE:
            raise BookmarkImportError(
                job_name, context.name, f"{context.detail}. Fix that, or name it in leave_out to go without it."
            )
    states: dict[str, Any] = {}
    for each in taken:
        states |= each.states()
    head = watermarks.set_watermark(
        job_id or job_name,
        states,
        why=why or f"bookmark of job {job_name} in AWS Glue, version {entry.get('Version')}",
        who=who,
        imported_run=imported_run,
    )
    logger.info(
        "event=imported job=%s version=%d glue_run=%s contexts=%s", head.job_id, head.version, imported_run,
        ",".join(context.name for context in contexts),
    )  # fmt: skip
    return ImportReport(job_name, imported_run, contexts, tuple(leave_out), head)


@dataclass(frozen=True)
class _Taken:
    """A context as it can be taken over.

    Attributes
    ----------
    told
        What the report says of it.
    states
        Makes the states to store, by context; where they lie in files of their own, it writes these. So it is
        called only once it is known that the import is written.
    """

    told: ImportedContext
    states: Callable[[], dict[str, Any]] = dict


def _taken(name: str, state: State, source: FilesAt | RowsBy | None, run_id: str, s3_client: S3Client | None) -> _Taken:
    """Find out how a context can be taken over."""
    if isinstance(state, BandState) and isinstance(source, FilesAt):
        return _files(name, state, source, run_id, s3_client)
    if isinstance(source, RowsBy) and isinstance(state, KeyState):
        return _rows(name, source, state)
    if isinstance(state, str):
        # Whatever the bookmark holds, the last values that a person gives say all there is to know.
        if isinstance(source, RowsBy) and source.last is not None:
            return _rows(name, source)
        return _impossible(name, state)
    kind, wanted = ("files", "FilesAt") if isinstance(state, BandState) else ("rows", "RowsBy")
    return _impossible(name, f"it reads {kind}, and sources has no {wanted} for it", kind)


def _impossible(name: str, detail: str, kind: str | None = None) -> _Taken:
    return _Taken(ImportedContext(name, kind, NOT_POSSIBLE, detail))


# --- contexts of databases --------------------------------------------------------------------------


def _rows(name: str, source: RowsBy, state: KeyState | None = None) -> _Taken:
    """Find out how a context of a database can be taken over: its rows past the last values read are new."""
    names = list(source.columns)
    values, descending = source.last, source.descending
    outcome, where = EXACT, "that Glue read"
    if values is None and state is not None:
        found = state.values(names)
        # With several it is a guess which one Glue goes by, and a wrong one skips rows for good.
        if len(found) != 1:
            return _impossible(name, f"it shows {len(found)} values of {', '.join(names)}; give RowsBy last=", "rows")
        ((values, path),) = found.items()
        outcome, where = APPROXIMATE, f"found at {path}; check it, and give RowsBy last="
        if state.descends not in (None, descending):
            return _impossible(name, "its keys run in the other order; give RowsBy descending=", "rows")
    assert values is not None
    if not names or len(values) != len(names):
        return _impossible(name, f"it has {len(names)} columns and {len(values)} values", "rows")
    try:
        columns = tuple(CursorColumn(column, kind) for column, kind in source.columns.items())
        read = [column.from_text(str(value)) for column, value in zip(columns, values, strict=True)]
        last = columns[-1]
        if descending and not all(column.is_number for column in columns):
            return _impossible(name, "only numbers are read downwards", "rows")
        # Glue keeps the last value that it read, and a window here begins with the first one that is new.
        after = last.shifted(read[-1], last.tick, -1) if descending else last.next_above(read[-1])
    except (CursorError, OverflowError):
        kinds = ", ".join(source.columns.values())
        return _impossible(name, f"its values of {', '.join(names)} are none of {kinds}", "rows")
    window = RowWindow(columns, (*read[:-1], after), None, descending=descending)
    told = ImportedContext(name, "rows", outcome, f"rows past the last {' and '.join(names)} {where}")
    return _Taken(told, partial(_rows_states, name, window))


def _rows_states(name: str, window: RowWindow) -> dict[str, Any]:
    """Return the state to store: Glue has read everything up to it."""
    state = window.state
    return {name: state.with_coverage(None, [state.passed], new_token()).to_store()}


# --- contexts of files ------------------------------------------------------------------------------


def _files(name: str, state: BandState, source: FilesAt, run_id: str, s3_client: S3Client | None) -> _Taken:
    """Find out which files of a context are known, and which of them would be read again.

    Files older than Glue's band are known, as Glue never looks at them again; files younger than it are new; of those
    in it the bookmark has hashes of names.
    """
    paths = [source.paths] if isinstance(source.paths, str) else source.paths
    if not paths:
        return _impossible(name, "its FilesAt has no path", "files")
    if state.has_partitions and not source.partitions_may_be_missed:
        return _impossible(name, PARTITIONS_REMEMBERED, "files")
    folders = [
        _folder(name, each.base, {**each.options, **source.options}, source.listing, state, s3_client)
        for each in folders_of(paths, recurse=True)
    ]
    objects: list[tuple[str, datetime]] = []
    for folder in folders:
        objects += folder.objects()
    matched = match(state.hashes, objects)
    again, doubts = matched.changed + matched.unsure, []
    if state.has_partitions:
        doubts.append(MAY_BE_MISSED)
    if matched.unsure:
        doubts.append("some files may have been changed since Glue read them")
    elif matched.unknown and objects and not matched.read:
        # Hashes of deleted files alone would look the same. To read files twice is the fault that can be seen.
        again = [place for place, _ in objects]
        doubts.append("no file fits the hashes of names, so all of the band are read again")
    read = set(matched.read)
    for folder in folders:
        folder.know(read)
    detail = f"of {len(objects):,} files in the band of {state.band.total_seconds():g} s, {len(read):,} are read"
    known = sum(folder.old.num_rows for folder in folders) + len(read)
    told = ImportedContext(
        name,
        "files",
        APPROXIMATE if doubts else EXACT,
        "; ".join([detail, *doubts]),
        known,
        sum(folder.count for folder in folders) - known,
        tuple(f"s3://{place}" for place in sorted(again)),
    )
    return _Taken(told, partial(_files_states, name, folders, state, run_id))


class _Folder:
    """One path of a context and its objects, parted by Glue's band.

    Attributes
    ----------
    old, in_band
        The objects up to the lower end of the band, and those in it.
    known
        Those that the bookmark is to remember; none before `know`.
    count
        How many objects there are in all.
    """

    def __init__(self, bookmark: FileBookmark, listed: pa.Table, band: BandState) -> None:
        modified = listed.column("modified")
        low, started = (pa.scalar(moment, modified.type) for moment in (band.low, band.started))
        below, above = pc.less_equal(modified, low), pc.greater(modified, started)
        self.bookmark, self.count = bookmark, listed.num_rows
        self.old = listed.filter(below)
        self.in_band = listed.filter(pc.invert(pc.or_(below, above)))
        self.known = self.old.slice(0, 0)
        location = bookmark.location
        self.places = [f"{location.bucket}/{location.prefix}{key}" for key in self.in_band.column("key").to_pylist()]

    def objects(self) -> Iterator[tuple[str, datetime]]:
        """Yield place and time of the objects in the band."""
        return zip(self.places, self.in_band.column("modified").to_pylist(), strict=True)

    def know(self, places: Collection[str]) -> None:
        """Remember objects of the band, and all older ones."""
        read = self.in_band.filter(pa.array([place in places for place in self.places], pa.bool_()))
        self.known = pa.concat_tables([self.old, read])


def _folder(
    context: str,
    path: str,
    given: Mapping[str, Any],
    listing: ListingSource | None,
    state: BandState,
    s3_client: S3Client | None,
) -> _Folder:
    """List all objects that the options choose from."""
    from scripts.helpers.files.bookmark import FileBookmark
    from scripts.helpers.listing.listing import Listing, ListingOptions
    from scripts.helpers.listing.objects import LISTED

    bookmark = FileBookmark(path, transformation_ctx=context, s3_client=s3_client, **given)
    options, location = bookmark.options, bookmark.location
    if listing is not None:
        intervals: Iterable[Interval] = listing.list_objects(location)
    else:
        how = ListingOptions(options.versioned, options.request_payer, options.workers)
        intervals = Listing(location, s3_client, how)
    batches = [options.chosen(interval.rows) for interval in intervals]
    return _Folder(bookmark, pa.Table.from_batches(batches, LISTED), state)


def _files_states(name: str, folders: Sequence[_Folder], band: BandState, run_id: str) -> dict[str, Any]:
    """Return the states to store, one of each folder; where they lie in files, these are written."""
    from scripts.helpers.listing.objects import TAKEN, ledger_rows

    states: dict[str, Any] = {}
    for index, folder in enumerate(folders):
        bookmark = folder.bookmark
        known = ledger_rows(folder.known, TAKEN, BEFORE, run_id).sort_by("key")
        segments = [bookmark.ledger.stored(known)] if known.num_rows else []
        context = folder_context(name, bookmark.location.name, index)
        states[context] = bookmark.following(band.started, segments).to_store()
    return states
