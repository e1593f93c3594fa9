"""`FileBookmark` finds the new objects of a source by comparing it with a ledger, the record of all objects so far."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import chain
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers._lazy import S3Client, SparkSession
from scripts.helpers.display.options import option_error, options_of
from scripts.helpers.display.units import MAX_AHEAD, count_of
from scripts.helpers.errors import ArchivedObjectError, InvalidValueError, SourceError
from scripts.helpers.files.choice import MAX_ASKED, BatchChooser, FileChoice, Piece
from scripts.helpers.files.delta import FileDelta
from scripts.helpers.files.diff import Known
from scripts.helpers.files.explanation import Explanation, explained
from scripts.helpers.files.ledger import FileLedger, MergeElsewhere
from scripts.helpers.files.rules import FileOptions, folders_since, outside_layout
from scripts.helpers.files.segment_files import SegmentFiles
from scripts.helpers.files.set_aside import RETRY, WAITING, SetAside, entry_of
from scripts.helpers.files.sources import ListingSource, Told
from scripts.helpers.files.states import FilesPlan, FilesState, Segment, opened_state
from scripts.helpers.listing.cuts import LAST, Ends, parted
from scripts.helpers.listing.listing import Lister, ListingOptions, Location
from scripts.helpers.listing.objects import ARCHIVED, GONE, OVERWRITABLE, TAKEN, Interval, is_same, is_status, no_rows
from scripts.helpers.listing.paths import check_keys

if TYPE_CHECKING:
    from scripts.helpers.files.partitions import PartitionRule
    from scripts.helpers.files.readings import Readings
    from scripts.helpers.files.spark import SparkFileDelta

logger = logging.getLogger(__name__)

D = TypeVar("D", FileDelta, "SparkFileDelta")


@dataclass(frozen=True)
class Found(Generic[D]):
    """The files that a batch takes from a source, the plan that stores them, and the state that follows.

    Attributes
    ----------
    state
        The state to store after the batch. None if nothing is saved, or if a plan is replayed.
    gone
        The objects that do not exist any more.
    still_there
        Objects of earlier batches that have not been moved away yet; see `clears` of `FileBookmark`.
    left
        Keys of new files that are left for a later batch, without skipped archived objects. Only filled if events named
        the objects, or if `layout` is set.
    waiting
        Number of new partitions that are left for a later batch, because some of their files cannot be taken yet.

    Examples
    --------
    >>> found = FileBookmark(landing).find()
    >>> found.delta.count, found.gone.num_rows
    (2, 0)
    """

    delta: D
    plan: FilesPlan
    state: FilesState | None = None
    gone: pa.Table = field(default_factory=no_rows)
    still_there: pa.Table = field(default_factory=no_rows)
    left: Sequence[str] = ()
    waiting: int = 0


FilesTaken = Found[FileDelta]


class FileBookmark:
    """Finds the new files of an S3 prefix or a local directory, and records the known files in its state.

    An object is identified by key, ETag (or VersionId) and size, so no clock and no upload time can
    hide a file. A changed object is new again, and so is an object that was deleted and is back.

    Parameters
    ----------
    source
        ``s3://bucket/prefix/``, ``s3a://bucket/prefix/`` or a local directory.
    state
        The result of an earlier `state_after`; None on a first run.
    transformation_ctx
        Name of the source inside its job, for error texts.
    s3_client
        A boto3 S3 client; by default a client of boto3's default session.
    taken_by
        Version of the job and run id to store in the ledger with the files taken now.
    until
        The `state_after` of a later run: return the files that runs took after `state`, up to the end of that run. The
        limits of a batch, `delay` and `ready_marker` are then ignored.
    saves
        Whether a state is saved. Otherwise nothing is written to the ledger, and there is no `state_after`.
    partitions
        The rule by which a batch takes partitions instead of single files. It does not change the form of the state.
    clears
        Whether files are moved away after they are taken. Then they do not count as gone, and
        `FilesTaken.still_there` has the files that were not moved.
    needs_versions
        Whether to raise an error if the bucket keeps no versions of a taken object.
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
        source: str | PathLike[str],
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
        self.options, self.given = options_of(FileOptions, options), options
        how = ListingOptions(self.options.versioned, self.options.request_payer, self.options.workers)
        self.lister = Lister(self.location, s3_client, how)
        self.saves, self._needs_versions = saves and until is None, needs_versions
        self.s3_client, self.taken_by = s3_client, taken_by
        self._context = transformation_ctx
        self.state, self.until = self._opened(state), None if until is None else self._opened(until)
        files = SegmentFiles(self.options.ledger_uri, s3_client) if self.options.ledger_uri else None
        if files is not None and files.is_listed_by(self.location):
            raise InvalidValueError(
                f"ledger_uri {self.options.ledger_uri!r} is in the source, so its files would be new there. "
                "Use another prefix, or a folder whose name starts with _."
            )
        self.ledger = FileLedger(str(self.location), self.state.segments, files)
        self.then = None if self.until is None else self.ledger.again(self.until.segments)
        chosen = self.options
        if self.until is not None:
            chosen = replace(
                chosen, on_modified="take", delay=timedelta(0), ready_marker=None, max_files=None, max_bytes=None
            )
            partitions = partitions.unlimited() if partitions else None
        self.limits = chosen.limits
        self.begins = state is None and until is None
        self.partitions, self.clears = partitions, clears
        self._aside = (self.until or self.state).set_aside
        if partitions is not None and partitions.whole:
            self._aside = {}  # If partitions are read whole, set no file aside: an unreadable file stops the run.
        look: Callable[[Collection[str]], pa.Table] | None = self.lister.look_at_each
        if until is not None:
            # A re-read of past runs ignores later retries and skips of set-aside files: those runs did not act on them.
            self._aside, look = _all_waiting(self._aside), None
        self._chooser = BatchChooser(
            self.location, chosen, self.ledger, taken_by, self.begins, partitions, self._aside, look, clears
        )
        self._last: Found[Any] | None = None

    def _opened(self, stored: Mapping[str, Any] | None) -> FilesState:
        name = self.location.name
        return FilesState(name) if stored is None else opened_state(FilesState, stored, name, self._context)

    def __repr__(self) -> str:
        return f"<FileBookmark {str(self.location)!r}: {self.ledger.count:,} objects known>"

    def new_files(self, listing: ListingSource | None = None) -> FileDelta:
        """List the source and return its new files, whose identities are not in the state; see `find`."""
        found = self._last = self.find(listing)
        return found.delta

    def new_files_on_spark(self, spark: SparkSession) -> SparkFileDelta:
        """Return the new files as `new_files` does, but let Spark's executors find them: each task lists some keys.

        The executors need this package (``--py-files`` with a copy of the wheel called .zip; on Glue the wheel
        in ``--additional-python-modules``), boto3 and pyarrow. They find their own AWS credentials, and write to
        the `ledger_uri` even if nothing is saved, because the delta is read from there. `workers` is the number of
        parallel requests of one task, by default 4. `on_unreadable` is not supported. The source is S3 or local.
        """
        from scripts.helpers.files.spark import Executors

        found = self._last = Executors(spark, self).find()
        return found.delta

    @property
    def state_after(self) -> dict[str, Any]:
        """The state to store once the delta of `new_files` is processed; SourceError before `new_files` made it."""
        if self._last is None or self._last.state is None:
            raise SourceError(str(self.location), "it has not been listed yet. Call new_files first.")
        return self._last.state.to_store()

    def find(self, listing: ListingSource | None = None, position: Mapping[str, Any] | None = None) -> FilesTaken:
        """List the source, and take its new objects, whose identities are not in the state.

        In every folder, files that Spark's readers would skip are left out, such as ``_tmp/1.csv``.

        Parameters
        ----------
        listing
            A report of all objects, such as `S3Inventory`; None to list the source.
        position
            The position up to which a journal of S3 Metadata was read. It is stored in the state that follows.

        Raises
        ------
        SourceError
            The source cannot be listed completely, or has a key that Spark cannot read.
        SourceError, ArchivedObjectError
            A file is modified or archived, and `on_modified` or `on_archived` is ``raise``.
        """
        # List by key ranges of few ledger files each. If `until` adds a second ledger, use the one with more ranges.
        cuts = max((ledger.cuts for ledger in (self.ledger, self.then) if ledger is not None), key=len)
        sees_all, ranges = False, parted(cuts)
        parts: Iterable[Iterable[Interval]]
        if listing is None:
            folders = self.folders()
            sees_all = folders == [""]
            if not sees_all:
                ranges = [(min(folders), max(folders) + LAST)]
            if sees_all and self.location.has_ranges:
                # List one range at a time: a single listing would need the ledger rows of many ranges in memory.
                listings = (self.lister.between(*ends) for ends in ranges)
                first = next(listings)
                parts = chain([first], listings)
            else:
                first = self.lister.below(folders)
                parts = [first]
            started = first.started
        else:
            started, parts = listing.created, [listing.list_objects(self.location)]
            before, limit = self.listed, datetime.now(timezone.utc) + MAX_AHEAD
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
        if listing is None and self._takes_pieces:
            with closing(self._pieces(parts, started, ranges)) as pieces:
                choice = self._chooser.joined(pieces)
        else:
            known, then = self._known_in(ranges)
            with closing(_intervals(parts)) as intervals:
                choice = self._chooser.choose(intervals, started, known, None, look, then)
        taken = self._taken(choice, started, position)
        if sees_all and self.options.layout is not None:
            self._warn_of_layout(self.options.layout, taken)
        return taken

    def _warn_of_layout(self, layout: str, taken: FilesTaken) -> None:
        """Log a WARNING about new files that are not in a date folder: later runs list only date folders.

        Raise InvalidValueError if a first listing finds no file in a date folder, because `layout` is then wrong.
        """
        new = pa.chunked_array([*taken.delta.table.column("key").chunks, pa.array(taken.left, pa.string())])
        outside = outside_layout(layout, new)
        if self.begins and self.saves and 0 < len(outside) == len(new) and self.options.start_from is None:
            raise option_error(
                "layout",
                f"it is {layout!r}, and the first listing has {count_of(len(new), 'file')} and none in a folder of it, "
                f"such as {pc.min(outside).as_py()!r}. Later runs would find no file. Correct layout, or leave it out.",
            )
        if len(outside):
            logger.warning(
                "event=outside_layout source=%s layout=%s files=%d of=%d first=%r: the folders of these files match no "
                "date, so later runs find no files there. Correct layout=, or omit it.",
                self.location, layout, len(outside), len(new), pc.min(outside).as_py(),
            )  # fmt: skip

    def find_among(self, told: Told, started: datetime, position: Mapping[str, Any] | None = None) -> FilesTaken:
        """Take the new objects among those that events name. New objects without an event are not found.

        Each object is looked up in S3 now, because the data in its event may be outdated.

        Parameters
        ----------
        started
            The current time by the caller's clock, used if the source returns no time.
        position
            The same as in `find`.
        """
        named = set(told.keys)
        if self.options.ready_marker is not None:
            # Also look up the folders' ready markers (such as _SUCCESS): their events may belong to other batches.
            named |= {folder + self.options.ready_marker for folder in map(_folder, told.keys)}
        there = self.lister.look_at_each(named)
        # Compute the ages of objects by the clock of S3, which also set their times; another clock may differ.
        started = self.lister.date or started
        deleted = list(set(told.keys).difference(there.column("key").to_pylist()))
        if deleted:
            logger.info("event=deleted_since source=%s files=%d: events named these files", self.location, len(deleted))
        intervals = [
            Interval(_before(batch), batch.column("key")[-1].as_py(), batch)
            for batch in there.combine_chunks().to_batches()
        ]
        known = self.ledger.known_for_keys(named.union(self._aside))
        then = self.then.known_for_keys(named) if self.then else None
        choice = self._chooser.choose(intervals, started, known, deleted, then=then)
        return self._taken(choice, None, position, told.has_more)

    def find_recorded(self, changes: pa.Table, started: datetime, position: Mapping[str, Any]) -> FilesTaken | None:
        """Take the new objects among those that a journal names; None if the journal names too many to look up in S3.

        Parameters
        ----------
        changes
            Records of schema `metadata_tables.CHANGES`. A key may occur several times, in any order.
        started
            When the objects are looked up, by the clock of the job.
        position
            The position up to which the journal was read.
        """
        asked = self._keys_to_look_up(changes)
        if len(asked) > MAX_ASKED:
            return None
        logger.info(
            "event=journal source=%s records=%d asked=%d: S3 is asked about objects that differ from the ledger",
            self.location, changes.num_rows, len(asked),
        )  # fmt: skip
        return self.find_among(_Named(asked), started, position)

    @property
    def position(self) -> Mapping[str, Any] | None:
        """The stored position up to which a journal of S3 Metadata was read; None if none was read."""
        return self.state.position

    def folders(self) -> list[str]:
        """Return the folders to list: ``[""]``, the source; with `layout`, the date folders since the last listing."""
        listed, layout = self.listed, self.options.layout
        if layout is None or listed is None:
            return [""]
        # If this machine's clock is behind `listed`, use `listed`, so that no folder of the last listing is omitted.
        now = max(listed, datetime.now(listed.tzinfo))
        return folders_since(layout, listed - self.options.allowed_lateness, now)

    @property
    def listed(self) -> datetime | None:
        """The stored time of the last listing that left no file for a later batch; None if there is none."""
        return self.state.listed

    def resume(self, stored: Mapping[str, Any]) -> FilesTaken:
        """Return the files of a frozen plan. Their paths have the scheme that the caller wrote, such as s3a://."""
        plan = self.opened_plan(stored)
        rows = self.ledger.read(plan.segment) if plan.segment else no_rows()
        taken = rows.filter(is_status(rows, TAKEN))
        if plan.rest:
            taken = pa.concat_tables([taken, self.ledger.read(plan.rest)]).sort_by("key")
        check_planned(str(self.location), taken)
        delta = self._delta(taken, plan.has_more, plan.gone)
        return FilesTaken(delta, plan, gone=rows.filter(is_status(rows, GONE)))

    def opened_plan(self, stored: Mapping[str, Any]) -> FilesPlan:
        """Return a frozen plan. SourceError if it belongs to another source."""
        return opened_state(FilesPlan, stored, self.location.name, self._context)

    def set_aside(self, reasons: Mapping[str, str]) -> None:
        """Remove files that cannot be read from the result of `new_files`, and add them to the list in `state_after`.

        Parameters
        ----------
        reasons
            Why each file cannot be read, by key.

        Raises
        ------
        SourceError
            The list would be too long. Plan and state are unchanged.
        """
        if self._last is None or self._last.state is None:
            return
        table = self._last.delta.table
        bad = table.filter(pc.is_in(table.column("key"), value_set=pa.array(list(reasons), pa.string())))
        plan, state = self.without(self._last.plan, self._last.state, bad, reasons)
        self._last = replace(self._last, plan=plan, state=state)

    def without(
        self, plan: FilesPlan, following: FilesState, bad: pa.Table, reasons: Mapping[str, str]
    ) -> tuple[FilesPlan, FilesState]:
        """Return the plan without some files, and the state that follows it, which lists these files as set aside.

        The state of this bookmark must be the state from which the plan was made.

        Parameters
        ----------
        bad
            The planned files to set aside, with the columns of `FileDelta.table`.
        reasons
            Why each of these files cannot be read, by key.
        """
        entries = dict(following.set_aside)
        for row in bad.to_pylist():
            entries[row["key"]] = entry_of(row, reasons[row["key"]], *self.taken_by)
        # Extend the list first: if it gets too long, the error comes before any ledger file is written.
        listed = following.with_set_aside(entries)
        rows = self.ledger.read(plan.segment) if plan.segment else no_rows()
        rows = rows.filter(pc.invert(pc.is_in(rows.column("key"), value_set=bad.column("key").combine_chunks())))
        segment = self.ledger.stored(rows) if rows.num_rows else None
        smaller = replace(without_files(plan, bad), segment=segment)
        return smaller, replace(listed, segments=tuple(self.ledger.appended(segment, rows)))

    def explain(self, key: str) -> Explanation:
        """Return when and by which run a key was taken, or why it was not. The key is relative to the source."""
        row, now = self.ledger.known_for_keys([key]).latest(key), self.lister.look_at(key)
        unlisted = None
        if now is None:
            unlisted = self.location.why_unlisted(key)
        elif not any(key.startswith(folder) for folder in self.folders()):
            unlisted = f"runs list no folder of layout={self.options.layout!r} that it is in"
        return explained(key, row, now, self.options, self._aside.get(key), unlisted)

    def _taken(
        self, choice: FileChoice, started: datetime | None, position: Mapping[str, Any] | None, has_more: bool = False
    ) -> FilesTaken:
        """Return the files of a choice with plan and state. `started` is the time of the listing; None for events."""
        rows, left = choice.rows, choice.left
        later = self.options.waiting(left)
        rest = self._rest_of_partitions(rows, choice)
        warn_of_set_aside(self.location, choice.unreadable)
        taken = rows.filter(is_status(rows, TAKEN))
        if rest.num_rows:
            taken = pa.concat_tables([taken, rest]).sort_by("key")
        delta = self._delta(taken, choice.has_more or has_more, choice.gone)
        # If files are left for later, keep the old position in the journal of S3 Metadata: the new one is past them.
        # If events named the objects, keep the time of the last listing: events name only some of the objects.
        segment, others = (self.ledger.stored(part) if self.saves and part.num_rows else None for part in (rows, rest))
        found = self.taken(
            delta, segment, None if self.holding(left).num_rows else started, choice.aside,
            None if later.num_rows else position, others, len(choice.unreadable), rows,
        )  # fmt: skip
        # After a listing, return keys left for later only if `layout` checks them: they may be most keys of a bucket.
        is_told = started is None or self.options.layout is not None
        return replace(
            found, gone=rows.filter(is_status(rows, GONE)), still_there=choice.still_there,
            left=later.column("key").to_pylist() if is_told else [], waiting=choice.waiting,
        )  # fmt: skip

    def taken(
        self,
        delta: D,
        segment: Segment | None,
        listed: datetime | None,
        aside: Mapping[str, SetAside],
        position: Mapping[str, Any] | None = None,
        rest: Segment | None = None,
        unreadable: int = 0,
        rows: pa.Table | None = None,
        elsewhere: MergeElsewhere | None = None,
    ) -> Found[D]:
        """Return a delta with its plan, and with the state that follows if the bookmark saves.

        Parameters
        ----------
        segment, rest
            The fields of `FilesPlan`.
        listed
            The time from which later runs list date folders; None to keep the stored time. Pass None if files are left
            for a later batch: with a newer time, later runs might not list the folders of these files.
        aside
            All set-aside files in the state that follows.
        position
            The position up to which a journal was read; None to keep the stored one.
        unreadable
            Number of files that this batch sets aside.
        rows, elsewhere
            The parameters of `FileLedger.appended`.
        """
        plan = FilesPlan(
            self.location.name, segment, delta.count, delta.bytes, delta.has_more, delta.gone, rest, unreadable,
            self.partitions.to_plan() if self.partitions else None,
        )  # fmt: skip
        state = None
        if self.saves:
            segments = self.ledger.appended(segment, rows, elsewhere)
            state = self.following(listed, segments, position).with_set_aside(aside)
        return Found(delta, plan, state)

    def _delta(self, taken: pa.Table, has_more: bool, gone: int) -> FileDelta:
        self._check_versions(taken)
        return FileDelta(
            self.location, taken, has_more, gone, self.options.request_payer, readings=self._readings(taken),
            s3_client=self.s3_client,
        )  # fmt: skip

    def _keys_to_look_up(self, changes: pa.Table) -> tuple[str, ...]:
        """Return the keys to look up in S3: a journal record of each of them differs from the ledger.

        All records of a key are compared, because the newest may only report that an old version was deleted.
        """
        known = self.ledger.known_for_keys({*changes.column("key").to_pylist(), *self._aside})
        by_key: dict[str, Mapping[str, Any] | None] = {}
        asked = set()
        for row in changes.to_pylist():
            key = row["key"]
            if key not in by_key:
                latest = known.latest(key)
                by_key[key] = None if latest is None or latest["status"] == GONE else latest
            if self._differs_from_ledger(row, by_key[key]):
                asked.add(key)
        return tuple(asked)

    def _differs_from_ledger(self, row: Mapping[str, Any], latest: Mapping[str, Any] | None) -> bool:
        if row["deleted"]:
            return latest is not None  # Only a known object can be gone.
        return latest is None or self.options.compare == "mtime" or not is_same(latest, row)

    def _readings(self, taken: pa.Table) -> Readings | None:
        """Return the tracker of a batch's reads; None with ``on_unreadable="raise"``, as a bad file stops the batch."""
        if self.options.on_unreadable == "raise":
            return None
        from scripts.helpers.files.readings import Readings

        return Readings(self.location, taken, self.s3_client, self.options.request_payer, self.set_aside)

    def _rest_of_partitions(self, rows: pa.Table, choice: FileChoice) -> pa.Table:
        """With `whole`, return the known files that the batch reads again, because their partitions changed."""
        if self.partitions is None or not self.partitions.whole:
            return no_rows()
        ranges, chosen = parted(self.ledger.cuts), self.options.chosen
        known = self.ledger.known_in(ranges)
        rest = pa.concat_tables([self.partitions.rest(known.between(*ends), rows, chosen) for ends in ranges])
        rest = rest.filter(pc.invert(pc.is_in(rest.column("key"), value_set=pa.array(choice.too_small, pa.string()))))
        # Raise if a lifecycle rule has archived files that earlier batches read: reading them again would fail.
        refused = pc.is_in(rest.column("key"), value_set=pa.array(choice.archived, pa.string()))
        refused = pc.or_(refused, is_status(rest, ARCHIVED))
        keys = rest.column("key").filter(refused).to_pylist()
        if keys and self.options.on_archived != "take":
            raise ArchivedObjectError(str(self.location), keys[:5], len(keys))
        return rest

    def _check_versions(self, taken: pa.Table) -> None:
        """If `versioned` is set but the bucket keeps no versions, log a WARNING, or raise with `needs_versions`."""
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
                "event=without_versions source=%s files=%d of=%d: the bucket keeps no versions of these, so "
                "versioned=True has no effect on them: ETag and size show whether they changed, and the same bytes "
                "written again count as the same object. Turn versioning on, or omit the option.",
                self.location, count, taken.num_rows,
            )  # fmt: skip

    def holding(self, left: pa.Table) -> pa.Table:
        """Return the objects left for later. If there are any, the state keeps its old time of the last listing.

        With `layout`, runs list only date folders since that time. So include skipped archived objects: otherwise no
        run would list their old folders, where restored copies appear. Without `layout`, runs list all: omit them.
        """
        return left if self.options.layout is not None else self.options.waiting(left)

    def following(self, listed: datetime | None, segments: Sequence[Segment], position: Any = None) -> FilesState:
        """Return the state to store after the batch. None as `listed` or `position` keeps the old value."""
        # Keep the old position if this run read no S3 Metadata journal: the next run that reads one continues there.
        position = self.position if position is None else dict(position)
        return FilesState(self.location.name, listed or self.listed, tuple(segments), position)

    @property
    def aside_on_executors(self) -> dict[str, SetAside]:
        """The files still set aside in a listing by executors: all but those that an operator marked for a retry."""
        return {key: entry for key, entry in self._aside.items() if entry.decision != RETRY}

    def parts(self, after: str | None, until: str | None, started: datetime, most_rows: int) -> Iterator[Piece]:
        """Yield the files that one Spark task chooses, in pieces of the key range `after` to `until`; see `_pieces`."""
        return self._pieces([self.lister.between(after, until)], started, [(after, until)], most_rows)

    @property
    def _takes_pieces(self) -> bool:
        """Whether to choose the batch by pieces of the listing, so that memory holds one piece and the chosen files.

        False without `max_files` or `max_bytes`, as a batch then has all new files, and if an option needs all at once.
        """
        needs_all = (
            self._aside or self.partitions is not None or self.options.on_unreadable != "raise"
            or self.options.layout is not None or (self.begins and self.options.start_from is not None)
        )  # fmt: skip
        return self.limits.is_any and not needs_all

    def _pieces(
        self, listings: Iterable[Iterable[Interval]], started: datetime, ranges: Sequence[Ends], most_rows: int = 0
    ) -> Generator[Piece, None, None]:
        """Divide the listings of key ranges into pieces; yield the pieces in any order, each with its files to take.

        About `most_rows` listed rows are in memory at once. If the batch has limits, each piece has its oldest files
        within these limits and the first file that does not fit; the caller chooses the batch from all pieces.
        """
        from scripts.helpers.files.pieces import PIECE_ROWS, split_into_pieces

        # Set every set-aside file to WAITING: else `choose`, called for each piece, adds all SKIP files to the ledger.
        aside = _all_waiting(self.aside_on_executors)
        chooser = replace(self._chooser, aside=aside, look_again=None, is_part=True)
        known, then = self._known_in(ranges)
        for listing in listings:
            with closing(_intervals([listing])) as intervals:
                for piece in split_into_pieces(intervals, most_rows or PIECE_ROWS):
                    ends = piece[0].after, piece[-1].until
                    of_piece = replace(chooser, markers=partial(self._marked, ends))
                    yield Piece(*ends, of_piece.choose(piece, started, known, then=then))

    def _known_in(self, ranges: Sequence[Ends]) -> tuple[Known, Known | None]:
        """Return the known objects in key ranges: those of `state`, and of `until`, a later run's state, or None."""
        return self.ledger.known_in(ranges), self.then.known_in(ranges) if self.then else None

    def _marked(self, ends: tuple[str | None, str | None], folders: Collection[str]) -> set[str]:
        """Look up `ready_marker` in folders that lie only partly in a piece (key range); return the folders with it."""
        marker = self.options.ready_marker or ""
        there = self.lister.look_at_each({folder + marker for folder in folders if _is_cut(folder, ends)})
        return {key[: -len(marker)] for key in there.column("key").to_pylist()}


def _is_cut(folder: str, ends: tuple[str | None, str | None]) -> bool:
    """Return whether a range of keys starts or ends inside a folder."""
    return any(end is not None and end.startswith(folder) for end in ends)


def _intervals(listings: Iterable[Iterable[Interval]]) -> Generator[Interval, None, None]:
    """Yield the intervals of listings, one listing after another. Closing this generator ends the current listing."""
    for listing in listings:
        yield from listing


class _Named(NamedTuple):
    """The keys that a journal names, in the form that `find_among` takes."""

    keys: tuple[str, ...]
    has_more: bool = False


def without_files(plan: FilesPlan, bad: pa.Table) -> FilesPlan:
    """Return the plan with some of its files counted as set aside."""
    return plan.without(bad.num_rows, pc.sum(bad.column("size"), min_count=0).as_py())


def warn_of_set_aside(location: Location, reasons: Mapping[str, str]) -> None:
    """Log a WARNING with the number of set-aside files and the first of them."""
    if not reasons:
        return
    first = min(reasons)
    logger.warning(
        "event=set_aside source=%s files=%d first=%r reason=%s: these files cannot be read, so the batch leaves them "
        "out and has the other files. `watermarks files JOB --set-aside` lists them.",
        location, len(reasons), first, reasons[first],
    )  # fmt: skip


def _all_waiting(entries: Mapping[str, SetAside]) -> dict[str, SetAside]:
    return {key: replace(entry, decision=WAITING) for key, entry in entries.items()}


def check_planned(source: str, rows: pa.Table) -> None:
    """Raise LedgerError if an open plan has a key that no listing can return, such as ``../1.csv``."""
    check_keys(source, rows.column("key"), "its open plan", "Discard the plan: watermarks discard-plan JOB --why …")


def _folder(key: str) -> str:
    folder, slash, _ = key.rpartition("/")
    return folder + slash


def _before(batch: pa.RecordBatch) -> str:
    """Return a key just below the first key of an Arrow batch. An interval with this start includes the first key."""
    first: str = batch.column("key")[0].as_py()
    return first[:-1]
