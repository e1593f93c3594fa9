"""`FileBookmark`: which objects of a listing are new."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers.display.options import options_of
from scripts.helpers.display.units import count_of
from scripts.helpers.errors import (
    ArchivedObjectError,
    InvalidValueError,
    SourceError,
)
from scripts.helpers.files.choice import MAX_ASKED, BatchChooser, Piece
from scripts.helpers.files.delta import FileDelta
from scripts.helpers.files.explanation import Explanation, explained
from scripts.helpers.files.ledger import FileLedger, damaged
from scripts.helpers.files.memory import Memory, RangeMemory
from scripts.helpers.files.partition_delta import PartitionDelta
from scripts.helpers.files.partitions import PartitionRule
from scripts.helpers.files.pieces import in_pieces
from scripts.helpers.files.readings import Readings
from scripts.helpers.files.rules import FileOptions, folders_since, outside_layout
from scripts.helpers.files.segment_files import SegmentFiles
from scripts.helpers.files.set_aside import RETRY, WAITING, SetAside, entry_of, set_aside_of, with_list
from scripts.helpers.files.sources import ListingSource, Told
from scripts.helpers.files.states import check_files_plan, check_files_state, of_source, plan_of, state_of
from scripts.helpers.listing.listing import Lister, ListingOptions, Location
from scripts.helpers.listing.objects import (
    ARCHIVED,
    GONE,
    KNOWN,
    LEDGER,
    MAX_AHEAD,
    OVERWRITABLE,
    TAKEN,
    Interval,
    byte_order,
)
from scripts.helpers.listing.paths import check_keys
from scripts.helpers.protocol.fields import ImplausibleError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

logger = logging.getLogger(__name__)


class FileBookmark:
    """What is remembered of an S3 prefix or a local directory, and what is new there.

    An object is its key, ETag (or VersionId) and size, so no clock and no upload time can hide a
    file. A changed object is new again, and so is one that was deleted and comes back.

    Parameters
    ----------
    source
        ``s3://bucket/prefix/``, ``s3a://bucket/prefix/`` or a local directory.
    state
        What an earlier `state_after` returned; None on a first run.
    transformation_ctx
        Name of the source inside its job, for error texts.
    s3_client
        A boto3 S3 client; by default one from boto3's default session.
    taken_by
        Version of the job and run id that are remembered for what is taken now.
    until
        Of what is new, only what an earlier `state_after` had taken: that of a later run. Limits of a
        batch, `delay` and `ready_marker` do not count then.
    saves
        Whether something follows. Otherwise nothing is written to the ledger, and there is no `state_after`.
    partitions
        Takes partitions rather than files; see `partitions.PartitionRule`. The state is the same.
    clears
        Whether files are moved away once they are taken: they do not count as gone then, and `still_there` has those
        that were not.
    needs_versions
        An error is raised if the bucket keeps no version of an object that is taken.
    **options
        See `FileOptions`.

    Examples
    --------
    >>> bookmark = FileBookmark(landing)
    >>> delta = bookmark.new_files()
    >>> delta.count
    2
    >>> FileBookmark(landing, state=bookmark.state_after).new_files().count
    0
    """

    def __init__(
        self,
        source: str,
        *,
        state: Mapping[str, Any] | None = None,
        transformation_ctx: str = "files",
        s3_client: S3Client | None = None,
        taken_by: tuple[int, str] = (0, ""),
        until: Mapping[str, Any] | None = None,
        saves: bool = True,
        partitions: PartitionRule | None = None,
        clears: bool = False,
        needs_versions: bool = False,
        **options: Any,
    ) -> None:
        self.location = Location.parse(source)
        self.options = options_of(FileOptions, options)
        how = ListingOptions(self.options.versioned, self.options.request_payer, self.options.workers)
        self.lister = Lister(self.location, s3_client, how)
        self._saves, self._needs_versions = saves and until is None, needs_versions
        self._s3_client, self._taken_by = s3_client, taken_by
        self._state: Mapping[str, Any] = state or {}
        for stored in (state, until):
            if stored is not None:
                check_same_location(stored, self.location, transformation_ctx)
        files = SegmentFiles(self.options.ledger_uri, s3_client) if self.options.ledger_uri else None
        if files is not None and files.would_be_listed(self.location):
            raise InvalidValueError(
                f"ledger_uri {self.options.ledger_uri!r} is in the source, so its files would be new there. "
                "Use another prefix, or a folder whose name starts with _."
            )
        self.ledger = FileLedger(str(self.location), self._state.get("segments", ()), files)
        aside = set_aside_of(self._state, str(self.location))
        self._memory = Memory(self.ledger, self._state.get("floor"), aside)
        chosen = self.options
        if until is not None:
            then = FileLedger(str(self.location), until.get("segments", ()), files)
            self._memory = RangeMemory(self._memory, until, then, chosen.compare == "mtime")
            chosen = replace(
                chosen, on_modified="take", delay=timedelta(0), ready_marker=None, max_files=None, max_bytes=None
            )
            partitions = partitions.unlimited() if partitions else None
        self.begins = state is None and until is None
        self.partitions = partitions
        self.gone = LEDGER.empty_table()
        self._aside = aside if until is None else set_aside_of(until, str(self.location))
        if partitions is not None and partitions.whole:
            self._aside = {}  # A partition that is read whole has all its files, or the run stops.
        look: Callable[[Collection[str]], pa.Table] | None = self.lister.look_at_each
        if until is not None:
            # Whatever was decided since: when the range ended, these were not taken.
            self._aside, look = _all_waiting(self._aside), None
        self._chooser = BatchChooser(
            self.location, chosen, self._memory, taken_by, self.begins, partitions, self._aside, look, clears
        )
        self.still_there = LEDGER.empty_table()
        self._batch: dict[str, Any] | None = None
        self._rest: dict[str, Any] | None = None
        self._taken: pa.Table | None = None
        self._unreadable: Mapping[str, str] = {}
        self._after: dict[str, Any] | None = None
        self._left: list[str] = []
        self._next_position: Mapping[str, Any] | None = None
        self.waiting = 0

    def __repr__(self) -> str:
        return f"<FileBookmark {str(self.location)!r}: {self.ledger.count:,} objects known>"

    def new_files(self, listing: ListingSource | None = None) -> FileDelta:
        """List the source and return the objects whose identity is not known.

        Hidden files are left out by Spark's rule, on every folder below the prefix.

        Parameters
        ----------
        listing
            Another way to see the objects, such as `S3Inventory`.

        Raises
        ------
        SourceError
            The source cannot be listed completely, or holds a key that Spark cannot read.
        ModifiedObjectError, ArchivedObjectError
            As `on_modified` and `on_archived` ask for.
        """
        sees_all = False
        if listing is None:
            folders = self.folders()
            found, sees_all = self.lister.below(folders), folders == [""]
            started = found.started
            intervals: Iterable[Interval] = iter(found)
        else:
            started, intervals = listing.created, iter(listing.list_objects(self.location))
            before, limit = self._state.get("listed"), datetime.now(timezone.utc) + MAX_AHEAD
            if started > limit:
                raise SourceError(
                    str(self.location),
                    f"the report is of {started}, which is in the future, so later files could be missed. Check the "
                    "clock of this machine, and use another report.",
                )
            if before is not None and started < before <= limit:
                raise SourceError(
                    str(self.location),
                    f"the report of {started} is older than the last listing of {before}. Wait for the next report.",
                )
        look = self.lister.look_at_each if listing is not None else None
        delta = self._delta(intervals, started, sees_all, look=look)
        if sees_all and self.options.layout is not None:
            self._warn_of_layout(self.options.layout, delta)
        return delta

    def _warn_of_layout(self, layout: str, delta: FileDelta) -> None:
        """Say which of the files that are new no later listing would show: it lists folders of dates only."""
        new = pa.chunked_array([*delta.table.column("key").chunks, pa.array(self._left, pa.string())])
        outside = outside_layout(layout, new)
        if len(outside):
            logger.warning(
                "event=outside-layout source=%s layout=%s files=%d of=%d first=%r: no date leads to their folders, so "
                "later runs find no files there. Correct layout=, or omit it.",
                self.location, layout, len(outside), len(new), pc.min(outside).as_py(),
            )  # fmt: skip

    def new_among(self, told: Told, started: datetime) -> FileDelta:
        """Return which of the objects that events named are new; others are not looked for.

        What S3 says of each object now counts, and not what an event says of it: that may be old by now.

        Parameters
        ----------
        started
            The time of the caller, for sources that tell none.
        """
        named = set(told.keys)
        if self.options.ready_marker is not None:
            # Its own event may have come long ago, or not yet.
            named |= {folder + self.options.ready_marker for folder in map(_folder, told.keys)}
        there = self.lister.look_at_each(named)
        # S3 has stamped the objects: by another clock, young ones would look older than they are, or of the future.
        started = self.lister.date or started
        deleted = sorted(set(told.keys).difference(there.column("key").to_pylist()), key=byte_order)
        if deleted:
            logger.info("event=deleted-since source=%s files=%d: events named them", self.location, len(deleted))
        intervals = [
            Interval(_before(batch), batch.column("key")[-1].as_py(), batch)
            for batch in there.combine_chunks().to_batches()
        ]
        delta = self._delta(intervals, started, deleted=deleted)
        return replace(delta, has_more=delta.has_more or told.has_more)

    def new_recorded(self, changes: pa.Table, started: datetime) -> FileDelta | None:
        """Return which of the objects that a journal names are new; None if there are too many to ask S3 about each.

        Parameters
        ----------
        changes
            Of schema `metadata_tables.CHANGES`: a key may be there several times, and in no order.
        started
            When the objects are looked at, by the clock of the job.
        """
        asked = self._to_ask(changes)
        if len(asked) > MAX_ASKED:
            return None
        logger.info(
            "event=journal source=%s records=%d asked=%d: S3 is asked about objects that the ledger does not know so",
            self.location, changes.num_rows, len(asked),
        )  # fmt: skip
        return self.new_among(_Named(asked), started)

    @property
    def position(self) -> Mapping[str, Any] | None:
        """How far a journal was read, as the state tells; None if it never was."""
        found: Mapping[str, Any] | None = self._state.get("metadata")
        return found

    def read_until(self, position: Mapping[str, Any]) -> None:
        """Have the state that follows say that a journal was read so far. Call it before the files are chosen."""
        self._next_position = position

    def folders(self) -> list[str]:
        """Return what is to be listed: folders of dates since the last listing, or all."""
        listed, layout = self._state.get("listed"), self.options.layout
        if layout is None or listed is None:
            return [""]
        # A clock here that is behind the source's must not cut off the folders that were listed last.
        now = max(listed, datetime.now(listed.tzinfo))
        return folders_since(layout, listed - self.options.lookback, now)

    @property
    def listed(self) -> datetime | None:
        """When the source was listed last with nothing left over, as the state tells; None if never."""
        listed: datetime | None = self._state.get("listed")
        return listed

    @property
    def left(self) -> list[str]:
        """Keys that are new and were left for a later batch; not those of archived objects that are skipped."""
        return self._left

    @property
    def state_after(self) -> dict[str, Any]:
        """What to store once the delta of `new_files` is processed. SourceError where nothing follows."""
        if self._after is None:
            raise SourceError(str(self.location), "it has not been listed yet. Call new_files first.")
        return self._after

    def to_plan(self, delta: FileDelta) -> dict[str, Any]:
        """Return what the frozen plan stores of the delta of `new_files`."""
        counts = {"count": delta.count, "bytes": delta.bytes, "has_more": delta.has_more, "gone": delta.gone}
        plan = plan_of(self.location.name, self._batch, **counts)
        if self.partitions is not None:
            plan["partitions"] = self.partitions.to_plan()
        if self._rest is not None:
            plan["rest"] = self._rest
        if self._unreadable:
            plan["set_aside"] = len(self._unreadable)
        return plan

    def from_plan(self, plan: Mapping[str, Any], context: str) -> FileDelta:
        """Return the delta of a frozen plan, with the caller's spelling of the source."""
        check_same_location(plan, self.location, context)
        segment = plan.get("files")
        rows = self.ledger.read(segment) if segment else LEDGER.empty_table()
        taken = rows.filter(pc.equal(rows.column("status"), TAKEN))
        self.gone = rows.filter(pc.equal(rows.column("status"), GONE))
        if plan.get("rest"):
            taken = pa.concat_tables([taken, self.ledger.read(plan["rest"])]).sort_by("key")
        check_planned(str(self.location), taken)
        delta = self._taking(taken, bool(plan.get("has_more")), plan.get("gone") or 0)
        return replace(delta, is_old="dialect" not in plan)

    def set_aside(self, reasons: Mapping[str, str]) -> None:
        """Take files that cannot be read out of what `new_files` planned, and put them on the list in `state_after`.

        Parameters
        ----------
        reasons
            Why each cannot be read, by key.

        Raises
        ------
        SetAsideFullError
            The list would be too long. Nothing is changed.
        """
        if self._after is None or self._taken is None:
            return
        planned = {"files": self._batch, "count": self._taken.num_rows, "bytes": 0}
        bad = self._taken.filter(pc.is_in(self._taken.column("key"), value_set=pa.array(list(reasons), pa.string())))
        planned, self._after = self.without(planned, self._after, bad, reasons)
        self._batch = planned["files"]

    def without(
        self, planned: Mapping[str, Any], following: Mapping[str, Any], bad: pa.Table, reasons: Mapping[str, str]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a plan and the state that follows it, without files that are set aside.

        The bookmark must be that of the state which the plan was made from.

        Parameters
        ----------
        bad
            The planned files to set aside, with the columns of `FileDelta.table`.
        reasons
            Why each of them cannot be read.
        """
        check_same_location(following, self.location, "files")
        entries = set_aside_of(following, str(self.location))
        for row in bad.to_pylist():
            entries[row["key"]] = entry_of(row, reasons[row["key"]], *self._taken_by)
        # First, as it may refuse: then no ledger is written.
        listed = with_list(following, entries)
        stored = planned.get("files")
        rows = self.ledger.read(stored) if stored else LEDGER.empty_table()
        rows = rows.filter(pc.invert(pc.is_in(rows.column("key"), value_set=bad.column("key").combine_chunks())))
        segment = self.ledger.stored(rows) if rows.num_rows else None
        return without_files(planned, bad) | {"files": segment}, {**listed, "segments": self._segments(segment, rows)}

    def delta_of_partitions(self, files: FileDelta) -> PartitionDelta:
        """Return the delta of `new_files` or `from_plan` by partitions; of a bookmark that has `partitions`."""
        assert self.partitions is not None
        return PartitionDelta(files, self.partitions, self.gone)

    def explain(self, key: str) -> Explanation:
        """Say when and by which run a key was taken, or why not. The key is relative to the source."""
        row, now = self.ledger.known().latest(key), self.lister.look_at(key)
        unlisted = None
        if now is None:
            unlisted = self.location.why_unlisted(key)
        elif not any(key.startswith(folder) for folder in self.folders()):
            unlisted = f"runs list no folder of layout={self.options.layout!r} that it is in"
        return explained(key, row, now, self.options, self._memory.floor, self._aside.get(key), unlisted)

    # --- within ---------------------------------------------------------------------------------

    def _delta(
        self,
        intervals: Iterable[Interval],
        started: datetime,
        sees_all: bool = False,
        deleted: Sequence[str] | None = None,
        look: Callable[[Collection[str]], pa.Table] | None = None,
    ) -> FileDelta:
        """Choose among the objects of intervals; `deleted` and `look` are those of `BatchChooser.choose`.

        `sees_all` says that the intervals are a listing of the whole source.
        """
        choice = self._chooser.choose(intervals, started, self._memory.known(), deleted, look)
        rows, left = choice.rows, choice.left
        later = self.options.waiting(left)
        self._left, self.waiting = later.column("key").to_pylist(), choice.waiting
        self.gone = rows.filter(pc.equal(rows.column("status"), GONE))
        rest = self._rest_of_partitions(rows, choice.archived)
        self._unreadable, self.still_there = choice.unreadable, choice.still_there
        warn_of_set_aside(self.location, choice.unreadable)
        if self._saves:
            self._rest = self.ledger.stored(rest) if rest.num_rows else None
            self._batch = self.ledger.stored(rows) if rows.num_rows else None
            # Date folders are listed from this time on. With something left over, or after events, which name some
            # objects only, it stays where it was: a later one would leave the folders of the rest unlisted.
            listed = started if deleted is None and not self.holding(left).num_rows else None
            following = self.following(listed, self._segments(self._batch, rows), sees_all)
            if self._next_position is not None and not later.num_rows:
                # With something left over the journal is read again from where it was: its records of the rest would
                # be too old later on.
                following["metadata"] = dict(self._next_position)
            self._after = with_list(following, choice.aside)
        self._taken = taken = rows.filter(pc.equal(rows.column("status"), TAKEN))
        if rest.num_rows:
            taken = pa.concat_tables([taken, rest]).sort_by("key")
        return self._taking(taken, choice.has_more, choice.gone)

    def _taking(self, taken: pa.Table, has_more: bool, gone: int) -> FileDelta:
        self._check_versions(taken)
        payer, readings = self.options.request_payer, self._readings(taken)
        return FileDelta(
            self.location, taken, has_more, gone, payer, readings=readings, s3_client=self._s3_client
        )  # fmt: skip

    def _to_ask(self, changes: pa.Table) -> tuple[str, ...]:
        """Return the keys that S3 must be asked about: a record says other than the ledger what became of them.

        Each record counts, and not only the newest of a key: the last one may be of an older version that was deleted.
        """
        known = self._memory.known()
        by_key: dict[str, Mapping[str, Any] | None] = {}
        asked = set()
        for row in changes.to_pylist():
            key = row["key"]
            if key not in by_key:
                latest = known.latest(key)
                by_key[key] = None if latest is None or latest["status"] == GONE else latest
            if self._is_other(row, by_key[key]):
                asked.add(key)
        return tuple(sorted(asked, key=byte_order))

    def _is_other(self, row: Mapping[str, Any], latest: Mapping[str, Any] | None) -> bool:
        if row["deleted"]:
            return latest is not None  # What is not known cannot be gone.
        if latest is None or self.options.compare == "mtime":
            return True
        if self.options.versioned and row["version_id"] != latest["version_id"]:
            return True
        return bool((row["etag"], row["size"]) != (latest["etag"], latest["size"]))

    def _readings(self, taken: pa.Table) -> Readings | None:
        """Return what watches over the reads of a batch; None where a file that cannot be read stops it."""
        if self.options.on_unreadable == "raise":
            return None
        takes_none = self.options.on_unreadable == "set_aside_all"
        return Readings(self.location, taken, self._s3_client, self.options.request_payer, self.set_aside, takes_none)

    def _rest_of_partitions(self, rows: pa.Table, archived: Sequence[str]) -> pa.Table:
        """Return the known files of partitions that are read whole, beside those that the batch has itself."""
        if self.partitions is None or not self.partitions.whole:
            return LEDGER.empty_table()
        # What is known by its time is remembered with this batch, and has not changed any partition.
        by_time = pc.equal(rows.column("status"), KNOWN)
        known = pa.concat_tables([self._memory.known().between(None, None), rows.filter(by_time)])
        rest = self.partitions.rest(known, rows.filter(pc.invert(by_time)), self.options.chosen)
        # Known objects are archived by lifecycle rules, long after they were taken. Their read would fail, each time.
        refused = pc.is_in(rest.column("key"), value_set=pa.array(archived, pa.string()))
        refused = pc.or_(refused, pc.equal(rest.column("status"), ARCHIVED))
        keys = rest.column("key").filter(refused).to_pylist()
        if keys and self.options.on_archived != "take":
            raise ArchivedObjectError(str(self.location), keys[:5], len(keys))
        return rest

    def _check_versions(self, taken: pa.Table) -> None:
        """Say that `versioned` has no effect on objects that their bucket keeps no versions of, or refuse them."""
        if not self.options.versioned:
            return
        count = pc.equal(taken.column("version_id"), OVERWRITABLE).combine_chunks().true_count
        if count and self._needs_versions:
            raise InvalidValueError(
                "on_changed='skip' leaves a changed file to the next batch, which would not see it if its old bytes "
                f"are back by then: {str(self.location)!r} keeps no versions of {count_of(count, 'planned file')}, so "
                "versioned=True has no effect there. Use compare='mtime' with it, or discard the plan."
            )
        if count:
            logger.warning(
                "event=without-versions source=%s files=%d of=%d: the bucket keeps no versions of these, so "
                "versioned=True has no effect on them: ETag and size show whether they changed, and the same bytes "
                "written again count as the same object. Turn versioning on, or omit the option.",
                self.location, count, taken.num_rows,
            )  # fmt: skip

    def holding(self, left: pa.Table) -> pa.Table:
        """Return which of the objects that a batch left keep the time of the last listing where it was.

        With `layout` these include archived objects that are skipped. A restored one is written again to the folder
        of its date, and only a listing from that date on finds it.
        """
        return left if self.options.layout is not None else self.options.waiting(left)

    def following(
        self, listed: datetime | None, segments: Sequence[Mapping[str, Any]], sees_all: bool
    ) -> dict[str, Any]:
        """Return the state that follows, given what is remembered, and when and whether the whole source was listed."""
        # Runs that list leave the position as it is: more is read again the next time, and nothing is missed.
        last = listed or self._state.get("listed")
        floor = self._memory.floor
        if floor is not None and sees_all:  # Events, a report and date folders need not show all that lies below it.
            logger.info(
                "event=floor-listed source=%s floor=%s: the files up to it are remembered one by one from now on",
                self.location, floor,
            )  # fmt: skip
            floor = None
        return state_of(self.location.name, last, segments, self.position, floor)

    def _segments(self, segment: Mapping[str, Any] | None, rows: pa.Table) -> Sequence[Mapping[str, Any]]:
        """Return the segments that follow a batch whose rows are in a segment of their own."""
        return self.ledger.appended(segment, rows) if segment else self.ledger.segments

    def with_list_of_executors(self, following: Mapping[str, Any]) -> dict[str, Any]:
        """Return a state after a batch that executors found: what was to be taken again is, as they list everything."""
        kept = {key: entry for key, entry in self._aside.items() if entry.decision != RETRY}
        return with_list(following, kept)

    def parts(self, after: str | None, until: str | None, started: datetime, most_rows: int) -> Iterator[Piece]:
        """Choose among the keys above `after` and not above `until`, a task's share of a batch, piece by piece.

        Pieces come in any order, and about so many listed rows are held at once. With limits a choice is of
        candidates: what would be a batch by itself, and the first file that does not fit.
        """
        if isinstance(self._memory, RangeMemory):
            self._memory.within(after, until)
        # Rows of what a person marked as done would come from every task.
        listed = {key: entry for key, entry in self._aside.items() if entry.decision != RETRY}
        chooser = replace(self._chooser, aside=_all_waiting(listed), look_again=None, is_part=True)
        known = self.ledger.known(after, until)
        for piece in in_pieces(self.lister.between(after, until), most_rows):
            ends = piece[0].after, piece[-1].until
            of_piece = replace(chooser, markers=partial(self._marked, ends))
            yield Piece(*ends, of_piece.choose(piece, started, known))

    def _marked(self, ends: tuple[str | None, str | None], folders: Collection[str]) -> set[str]:
        """Return which folders have a ready marker, of those that a piece between two keys holds only a part of."""
        marker = self.options.ready_marker or ""
        there = self.lister.look_at_each({folder + marker for folder in folders if _is_cut(folder, ends)})
        return {key[: -len(marker)] for key in there.column("key").to_pylist()}


def _is_cut(folder: str, ends: tuple[str | None, str | None]) -> bool:
    """Tell whether one of the ends of a range of keys lies in a folder."""
    return any((end or "").startswith(folder) for end in ends)


class _Named(NamedTuple):
    """Keys of objects to look at, all there are."""

    keys: tuple[str, ...]
    has_more: bool = False


def without_files(planned: Mapping[str, Any], bad: pa.Table) -> dict[str, Any]:
    """Return a plan that counts some of its files as set aside."""
    size = pc.sum(bad.column("size"), min_count=0).as_py()
    return {
        **planned,
        "count": planned["count"] - bad.num_rows,
        "bytes": planned["bytes"] - size,
        "set_aside": (planned.get("set_aside") or 0) + bad.num_rows,
    }


def warn_of_set_aside(location: Location, reasons: Mapping[str, str]) -> None:
    """Say which files are set aside: the first of them, and how many."""
    if not reasons:
        return
    first = min(reasons)
    logger.warning(
        "event=set-aside source=%s files=%d first=%r reason=%s: they cannot be read, and the rest of the batch is "
        "taken. `watermarks files JOB --set-aside` lists them.",
        location, len(reasons), first, reasons[first],
    )  # fmt: skip


def _all_waiting(entries: Mapping[str, SetAside]) -> dict[str, SetAside]:
    return {key: replace(entry, decision=WAITING) for key, entry in entries.items()}


def check_planned(source: str, rows: pa.Table) -> None:
    """Raise LedgerError if an open plan would read files by keys that no listing of the source has shown."""
    check_keys(source, rows.column("key"), "its open plan", "Discard the plan: watermarks discard-plan JOB --why …")


def check_same_location(stored: Mapping[str, Any], location: Location, context: str) -> None:
    """Raise SourceChangedError if a state or plan is that of another source; LedgerError if it cannot be read."""
    of_source(stored, "files", location.name, context, location.name)
    try:
        (check_files_state if "segments" in stored else check_files_plan)(stored, context)
    except ImplausibleError as error:
        raise damaged(location.name, error) from error


def _folder(key: str) -> str:
    folder, slash, _ = key.rpartition("/")
    return folder + slash


def _before(batch: pa.RecordBatch) -> str:
    """Return a key below the first one of a batch, so that the interval holds exactly its keys' range."""
    first: str = batch.column("key")[0].as_py()
    return first[:-1]
