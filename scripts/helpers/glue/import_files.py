"""Contexts of files of Glue's bookmark, held against the present listing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.sources import ListingSource
from scripts.helpers.glue.file_contexts import folder_context
from scripts.helpers.glue.glue_states import BandState
from scripts.helpers.glue.import_report import APPROXIMATE, EXACT, NOT_POSSIBLE, ImportedContext, TakenContext
from scripts.helpers.glue.path_hashes import match
from scripts.helpers.glue.paths import folders as folders_of
from scripts.helpers.listing.listing import Listing, ListingOptions
from scripts.helpers.listing.objects import LISTED, TAKEN, Interval, ledger_rows

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BEFORE = 0
"""The version under which a bookmark remembers files that were read before the import."""
MAY_BE_MISSED = "files older than the band in partitions that Glue has not read may be missed"
PARTITIONS_REMEMBERED = (
    "it remembers partitions of the catalog by the time they were registered, and files go by their own time here, so "
    f"{MAY_BE_MISSED}; give FilesAt partitions_may_be_missed=True to accept that"
)


@dataclass(frozen=True)
class FilesAt:
    """A context that reads files: where they lie, which Glue's bookmark does not say.

    Attributes
    ----------
    paths
        ``s3://bucket/prefix/``, or a list of several as in Glue's ``paths``; also files, by their names.
    options
        As the job gives them to `IncrementalJob.new_files` afterwards. With mode ``windowed`` the files of
        Glue's band are remembered, with mode ``exact``, the default, all that are older as well.
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


class _Files(TakenContext):
    def __init__(self, told: ImportedContext, band: BandState, folders: Sequence[_Folder], run_id: str) -> None:
        super().__init__(told)
        self._band, self._folders, self._run_id = band, folders, run_id

    def states(self) -> dict[str, dict[str, Any]]:
        """Return the states to store, one of each folder; where they lie in files, these are written."""
        return {
            folder_context(self.told.name, folder.bookmark.location.name, index): self._state(folder)
            for index, folder in enumerate(self._folders)
        }

    def _state(self, folder: _Folder) -> dict[str, Any]:
        known = ledger_rows(folder.known, TAKEN, BEFORE, self._run_id).sort_by("key")
        memory: dict[str, Any] = {"segments": [folder.bookmark.ledger.stored(known)] if known.num_rows else []}
        if folder.bookmark.options.mode == "windowed":
            memory["floor"] = self._band.low
        return folder.bookmark.following(self._band.started, **memory)


class _Folder:
    """One path of a context and its objects, parted by Glue's band."""

    def __init__(self, bookmark: FileBookmark, listed: pa.Table, band: BandState) -> None:
        modified = listed.column("modified")
        below, above = pc.less_equal(modified, _time(band.low)), pc.greater(modified, _time(band.started))
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
        """Remember objects of the band, and in mode exact all older ones."""
        self.known = self.in_band.filter(pa.array([place in places for place in self.places], pa.bool_()))
        if self.bookmark.options.mode == "exact":
            self.known = pa.concat_tables([self.old, self.known])


def files_context(
    name: str, state: BandState, source: FilesAt, run_id: str, s3_client: S3Client | None
) -> TakenContext:
    """Find out which files of a context are known, and which of them would be read again."""
    paths = [source.paths] if isinstance(source.paths, str) else source.paths
    if not paths:
        return TakenContext(ImportedContext(name, "files", NOT_POSSIBLE, "its FilesAt has no path"))
    if state.has_partitions and not source.partitions_may_be_missed:
        return TakenContext(ImportedContext(name, "files", NOT_POSSIBLE, PARTITIONS_REMEMBERED))
    folders = [
        _folder(name, each.base, {**each.options, **source.options}, source.listing, state, s3_client)
        for each in folders_of(paths, recurse=True)
    ]
    objects = [each for folder in folders for each in folder.objects()]
    matched = match(state.hashes, objects)
    again, doubts = matched.changed + matched.unsure, [MAY_BE_MISSED] if state.has_partitions else []
    if matched.unsure:
        doubts.append("some files may have been changed since Glue read them")
    elif matched.unknown and objects and not matched.read:
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
    return _Files(told, state, folders, run_id)


def _folder(
    context: str,
    path: str,
    given: Mapping[str, Any],
    listing: ListingSource | None,
    state: BandState,
    s3_client: S3Client | None,
) -> _Folder:
    """List all objects that the options choose from."""
    bookmark = FileBookmark(path, context=context, s3_client=s3_client, **given)
    options, location = bookmark.options, bookmark.location
    if listing is not None:
        intervals: Iterable[Interval] = listing.list_objects(location)
    else:
        how = ListingOptions(options.versioned, options.request_payer, options.workers)
        intervals = Listing(location, s3_client, how)
    batches = [options.chosen(interval.rows) for interval in intervals]
    return _Folder(bookmark, pa.Table.from_batches(batches, LISTED), state)


def _time(moment: datetime) -> pa.Scalar:
    return pa.scalar(moment, LISTED.field("modified").type)
