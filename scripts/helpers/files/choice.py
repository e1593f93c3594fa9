"""The choice of the objects that one batch takes from a source."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers.errors import ArchivedObjectError, SourceError
from scripts.helpers.files.diff import Known, ListingDifference, compare, without_stale
from scripts.helpers.files.ledger import FileLedger
from scripts.helpers.files.rules import ARCHIVES, FileOptions, folders_of, oldest_first
from scripts.helpers.files.set_aside import GONE_REASON, RETRY, SKIP, WAITING, SetAside, entry_of
from scripts.helpers.listing.listing import Location
from scripts.helpers.listing.objects import (
    GONE,
    IGNORED,
    LISTED,
    SKIPPED,
    TAKEN,
    Interval,
    column_of,
    is_same,
    is_status,
    ledger_rows,
    no_rows,
)
from scripts.helpers.listing.paths import check_readable

if TYPE_CHECKING:
    from scripts.helpers.files.partitions import PartitionRule

logger = logging.getLogger(__name__)

# --- range of past runs to read again -------------------------------------------------------------


def rows_taken_by_end(rows: pa.RecordBatch, then: Known, by_time: bool) -> pa.RecordBatch:
    """Return the listed objects that had been taken when a range of runs ended; `then` has the objects known then.

    An object that was overwritten since is left out, because its current identity had not been taken.
    """
    if not rows.num_rows:
        return rows
    keys = rows.column("key")
    # `between` excludes its start, so pass a smaller key: the first key without its last character.
    there = then.between(keys[0].as_py()[:-1], keys[-1].as_py())
    taken = there.filter(is_status(there, TAKEN))
    found = compare(Interval(None, None, rows), rows, taken, by_time)
    # Drop objects that were not taken yet when the range of runs ended, and objects that were overwritten since.
    others = pa.concat_tables([found.new, found.modified]).column("key")
    return rows.filter(pc.invert(pc.is_in(keys, value_set=others.combine_chunks())))


# --- choice ---------------------------------------------------------------------------------------

_UNREADABLE = r"^/|//|/$|^$|:[^/]*$"
"""Matches every key that `check_readable` refuses or that has a colon in its name, and few other keys."""

_ARCHIVES = column_of(ARCHIVES, pa.string())
_DELTA_LOG = "_delta_log/"

MAX_ASKED = 100_000
"""Most objects that are looked up in S3 one by one for a journal or a report. With as many requests, a listing shows a
hundred million objects, so for more objects a listing is cheaper."""
MAX_KEY_BYTES = 2**31 - 1
"""Most bytes of all keys of a batch: the ledger has them in one Arrow array of texts, which holds no more."""


class FileChoice(NamedTuple):
    """What a batch takes, as new rows of the ledger (`rows`), and the objects left for later batches (`left`).

    `aside` has all files that are set aside after the batch. `unreadable` has those that the batch adds, with reasons.
    """

    rows: pa.Table
    left: pa.Table
    gone: int
    has_more: bool
    aside: Mapping[str, SetAside]
    unreadable: Mapping[str, str]
    still_there: pa.Table
    """Objects that earlier batches took and that are unchanged; only collected with `clears`."""
    waiting: int = 0
    """Number of partitions that are left for a later batch; see `partitions.Chosen`."""
    archived: Sequence[str] = ()
    """Keys of all listed archived objects, including known ones, if partitions are read whole."""
    too_small: Sequence[str] = ()
    """Keys of listed objects below `min_size`, if partitions are read whole. A known object may now be that small."""


class Piece(NamedTuple):
    """The files that a batch may take among the keys above `after` and not above `until`. None: no limit there."""

    after: str | None
    until: str | None
    choice: FileChoice


@dataclass(frozen=True)
class BatchChooser:
    """Chooses a batch by a bookmark's options and ledger. `taken_by`: the job's version and run id, for the ledger."""

    location: Location
    options: FileOptions
    ledger: FileLedger
    taken_by: tuple[int, str]
    begins: bool = False
    """Whether there is no state yet, so that `start_from` applies."""
    partitions: PartitionRule | None = None
    """The rule that chooses partitions; None to choose files by `max_files` and `max_bytes`."""
    aside: Mapping[str, SetAside] = field(default_factory=dict)
    """Files that earlier batches set aside."""
    look_again: Callable[[Collection[str]], pa.Table] | None = None
    """Looks up the set-aside files that are marked for a retry; None to leave them set aside."""
    clears: bool = False
    """Whether taken files are moved away after the commit. Then they do not count as gone; see `still_there`."""
    markers: Callable[[Collection[str]], set[str]] | None = None
    """Looks up ready markers, if intervals may end inside a folder and so lack its marker; None if they do not."""
    is_part: bool = False
    """Whether the intervals are a part of the source. Then one file above the limits is chosen too; see `joined`."""

    def choose(
        self,
        intervals: Iterable[Interval],
        started: datetime,
        known: Known,
        deleted: Sequence[str] | None = None,
        look: Callable[[Collection[str]], pa.Table] | None = None,
        then: Known | None = None,
    ) -> FileChoice:
        """Compare the listed objects of some intervals with the known objects, and choose the objects of the batch.

        Parameters
        ----------
        started
            When the objects were seen, by the clock of the source.
        deleted
            Keys that events named and that do not exist any more; None for a listing or an inventory report.
        look
            Function that looks up keys and returns the objects that exist now. Given only if the objects are from an
            inventory report, made at `started`, because a report may be older than the ledger, and may lack objects.
        then
            The objects that were known when a range of past runs ended; None unless the files of such a range are read
            again. With `then`, only objects taken by that end are chosen, and no object counts as gone.

        Raises
        ------
        SourceError, ArchivedObjectError
            An option such as `on_modified` is ``raise`` and applies to a file, or Spark cannot read a key.
        """
        there = [no_rows()]
        parts, ready, archived, too_small = self._compared(
            intervals, known, then, deleted, started if look else None, there
        )  # fmt: skip
        new = pa.concat_tables([no_rows(LISTED), *(part.new for part in parts)])
        modified = pa.concat_tables([no_rows(LISTED), *(part.modified for part in parts)])
        gone = pa.concat_tables([no_rows(), *(part.gone for part in parts)])
        if look and gone.num_rows:
            gone = self._without_existing(gone, look)
        new, remembered = self._with_modified(self._without_set_aside(new), self._without_set_aside(modified))
        if self.begins and (self._starts_partitions or self.options.start_from is not None):
            new, before = self._begun(new, started)
            remembered.append(ledger_rows(before, IGNORED, *self.taken_by))
        again, aside = self._again()
        if again.num_rows:
            new = pa.concat_tables([new.filter(pc.invert(_is_among(new, again))), again])
        # Check all new keys first: a bad key is an error now, even if its file is left for a later run.
        new, unreadable = self._with_good_keys(new, aside)
        if self.markers is not None and self.options.ready_marker is not None:
            ready |= self.markers(set(folders_of(new.column("key")).to_pylist()) - ready)
        admitted = self._without_archived(self._settled(new, started, ready))
        if look:
            stale = self._stale_keys(admitted, look)
            # Drop objects that changed since the report, also from `new`: no later batch of that report can take them.
            new, admitted = _without(new, stale), _without(admitted, stale)
        # Apply the limits last, so that they count only objects that the batch can take.
        taken, gone, has_more, waiting = self._limited(admitted, new, gone)
        remembered.append(ledger_rows(gone, GONE, *self.taken_by))
        rows = pa.concat_tables([ledger_rows(taken, TAKEN, *self.taken_by), *remembered])
        rows = pa.concat_tables([rows, self._take_rows_marked_done(aside, rows)])
        if not self.is_part:
            self._check_size(rows)
        rows = rows.sort_by("key")
        left = new.filter(pc.invert(pc.is_in(new.column("key"), value_set=rows.column("key"))))
        self._remove_taken_from_list(aside, taken)
        vanished = gone.num_rows - (gone.filter(is_status(gone, TAKEN)).num_rows if self.clears else 0)
        still_there = pa.concat_tables(there)
        return FileChoice(rows, left, vanished, has_more, aside, unreadable, still_there, waiting, archived, too_small)

    def joined(self, pieces: Iterable[Piece]) -> FileChoice:
        """Return the choice of a limited batch, given the candidates of all pieces (ranges of keys) of a source.

        `left` has at most two of the objects that are left, which show that some are: all would not fit into memory.
        """
        limits = self.options.max_files, self.options.max_bytes
        candidates, left, others, there, gone = no_rows(), no_rows(LISTED), [no_rows()], [no_rows()], 0
        for _, _, choice in pieces:
            is_taken = is_status(choice.rows, TAKEN)
            others.append(choice.rows.filter(pc.invert(is_taken)))
            # Keep the first file above the limits: it ends the batch, even if a younger one of a later piece would fit.
            found = pa.concat_tables([candidates, choice.rows.filter(is_taken)])
            candidates, _ = oldest_first(found, *limits, one_more=True)
            # Keep one object, which shows that some are left, and no more: a slice holds its whole table in memory.
            left = left if left.num_rows else self.options.waiting(choice.left).slice(0, 1)
            there.append(choice.still_there)
            gone += choice.gone
        taken, has_more = oldest_first(candidates, *limits)
        # If a candidate exceeds the limits, add one to `left`: callers only check whether `left` is empty.
        over = candidates.slice(0, int(has_more)).select(LISTED.names[:5])
        left = pa.concat_tables([left, over.append_column(LISTED.field(5), pa.nulls(over.num_rows, pa.string()))])
        rows = pa.concat_tables([taken, *others])
        self._check_size(rows)
        return FileChoice(rows.sort_by("key"), left, gone, has_more, {}, {}, pa.concat_tables(there))

    def _with_modified(self, new: pa.Table, modified: pa.Table) -> tuple[pa.Table, list[pa.Table]]:
        """Return the objects to take, also modified ones if `on_modified` allows, and ledger rows for ignored ones."""
        if modified.num_rows and self.options.on_modified == "raise":
            keys = modified.column("key")[:5].to_pylist()
            raise SourceError(str(self.location), reason="modified", keys=keys, count=modified.num_rows)
        if self.options.on_modified == "skip":
            return new, [ledger_rows(modified, IGNORED, *self.taken_by)]
        return pa.concat_tables([new, modified]), []

    def _limited(self, admitted: pa.Table, new: pa.Table, gone: pa.Table) -> tuple[pa.Table, pa.Table, bool, int]:
        """Return taken and gone objects, whether a limit left objects, and how many partitions are left for later."""
        if self.partitions is not None:
            return self.partitions.chosen(admitted, new, gone)
        taken, has_more = oldest_first(admitted, self.options.max_files, self.options.max_bytes, one_more=self.is_part)
        return taken, gone, has_more, 0

    def _stale_keys(self, admitted: pa.Table, look: Callable[[Collection[str]], pa.Table]) -> set[str]:
        """Return the keys of objects that the batch would take, but that changed after the report on the source.

        They were deleted or overwritten, so a read of the reported object fails. A plan never changes, so a plan with
        such an object would fail in every run. A report is, for example, an `S3Inventory`.
        """
        stale: set[str] = set()
        asked: set[str] = set()
        while True:
            # Replace stale (changed) objects by others: if all that the limits admit are stale, no run takes anything.
            taken, _ = oldest_first(_without(admitted, stale), self.options.max_files, self.options.max_bytes)
            unknown = _without(taken, asked)
            if not unknown.num_rows or taken.num_rows > MAX_ASKED:
                return stale
            asked.update(unknown.column("key").to_pylist())
            stale |= self._keys_unlike_report(unknown, look)

    def _keys_unlike_report(self, unknown: pa.Table, look: Callable[[Collection[str]], pa.Table]) -> set[str]:
        there = look(unknown.column("key").to_pylist())
        now = {row["key"]: row for row in there.to_pylist()}
        reported = {row["key"]: row for row in unknown.to_pylist()}
        found = {key for key, row in reported.items() if key not in now or not is_same(row, now[key])}
        if found:
            logger.warning(
                "event=stale_report source=%s files=%d of=%d first=%r: these files were deleted or overwritten after "
                "the report, so they are not read now. A later report shows their new state.",
                self.location, len(found), unknown.num_rows, min(found),
            )  # fmt: skip
        return found

    def _remove_taken_from_list(self, aside: dict[str, SetAside], taken: pa.Table) -> None:
        """Remove from `aside`, the list of set-aside files, those that the batch takes: retries, and changed files.

        A changed file needs no decision any more, because its unreadable content was overwritten.
        """
        for key in aside.keys() & set(taken.column("key").to_pylist() if aside else ()):
            logger.info("event=no_longer_set_aside source=%s key=%r", self.location, key)
            del aside[key]

    def _without_set_aside(self, new: pa.Table) -> pa.Table:
        """Leave out the objects that are set aside, unless they have changed or are marked for a retry."""
        suspect = new.filter(_is_among(new, self.aside)) if self.aside else new.slice(0, 0)
        entries = ((self.aside[row["key"]], row) for row in suspect.to_pylist())
        out = [entry.key for entry, row in entries if entry.decision != RETRY and is_same(vars(entry), row)]
        return new.filter(pc.invert(_is_among(new, out))) if out else new

    def _again(self) -> tuple[pa.Table, dict[str, SetAside]]:
        """Return the set-aside files marked for a retry, as the source has them now, and the list of set-aside files.

        These files are looked up one by one, because events and listings of date folders may not show old files.
        """
        aside = dict(self.aside)
        wanted = [key for key, entry in aside.items() if entry.decision == RETRY]
        if self.look_again is None or not wanted:
            return no_rows(LISTED), aside
        there = self.look_again(wanted)
        for key in set(wanted).difference(there.column("key").to_pylist()):
            aside[key] = replace(aside[key], decision=WAITING, reason=GONE_REASON)
            logger.warning("event=retry_is_gone source=%s key=%r: it is gone and stays set aside", self.location, key)
        parts, known = [no_rows(LISTED)], self.ledger.known_for_keys(wanted)
        for batch in there.combine_chunks().to_batches():
            chosen = self.options.chosen(batch)
            if chosen.num_rows:
                first, last = chosen.column("key")[0].as_py(), chosen.column("key")[-1].as_py()
                found = compare(Interval(None, None, batch), chosen, known.between(first[:-1], last))
                parts += [found.new, found.modified]
        return pa.concat_tables(parts), aside

    def _take_rows_marked_done(self, aside: dict[str, SetAside], rows: pa.Table) -> pa.Table:
        """Remove from `aside` the files that an operator marked as done, and return their rows for the ledger."""
        done = [entry for entry in aside.values() if entry.decision == SKIP]
        for entry in done:
            del aside[entry.key]
        known = set(rows.column("key").to_pylist()) if done else set()
        new = [{name: getattr(one, name, None) for name in LISTED.names} for one in done if one.key not in known]
        listed = pa.Table.from_pylist(new, LISTED) if new else no_rows(LISTED)
        return ledger_rows(listed, SKIPPED, *self.taken_by)

    def _with_good_keys(self, new: pa.Table, aside: dict[str, SetAside]) -> tuple[pa.Table, dict[str, str]]:
        """Return objects that Spark can read. By `on_unreadable`, raise for others, or set them aside with reasons."""
        if self.options.on_unreadable == "raise":
            for _, error in self._unreadable_rows(new):
                raise error
            return new, {}
        reasons: dict[str, str] = {}
        for row, _ in self._unreadable_rows(new):
            reasons[row["key"]] = "Spark cannot take its name"
            aside[row["key"]] = entry_of(row, reasons[row["key"]], *self.taken_by)
        return new.filter(pc.invert(_is_among(new, list(reasons)))) if reasons else new, reasons

    def _compared(
        self,
        intervals: Iterable[Interval],
        known: Known,
        then: Known | None,
        deleted: Sequence[str] | None,
        created: datetime | None,
        still_there: list[pa.Table],
    ) -> tuple[list[ListingDifference], set[str], list[str], list[str]]:
        """Compare a listing with the ledger. If `clears`, add taken files that are not moved away yet to `still_there`.

        Return differences, folders with a ready marker, and keys of archived and too small files.
        """
        parts: list[ListingDifference] = []
        archived: list[str] = []
        too_small: list[str] = []
        ready: set[str] = set()
        of_null = 0
        for interval in intervals:
            if self.options.ready_marker is not None:
                ready |= self.options.ready_folders(interval.rows)
            chosen = self.options.chosen(interval.rows)
            if self.partitions is not None:
                check_no_delta_table(self.location, interval.rows)
                chosen, left_out = self.partitions.admitted(chosen)
                of_null += left_out
                if self.partitions.whole:
                    mask = pc.is_in(chosen.column("storage_class"), value_set=_ARCHIVES)
                    archived += chosen.column("key").filter(mask).to_pylist()
                    mask = pc.less(interval.rows.column("size"), self.options.min_size)
                    too_small += interval.rows.column("key").filter(mask).to_pylist()
            if then is not None:
                chosen = rows_taken_by_end(chosen, then, self.options.compare == "mtime")
            there = known.between(interval.after, interval.until)
            found = compare(interval, chosen, there, self.options.compare == "mtime")
            if self.clears:
                still_there.append(_unchanged(there, chosen, found))
            if created:
                found = without_stale(found, there, created)
            if deleted is not None or then is not None:
                # Drop `gone`: events name only some objects, and a re-read of past runs needs only existing files.
                found = found._replace(gone=no_rows())
            if found.new.num_rows or found.modified.num_rows or found.gone.num_rows:
                parts.append(found)
        if of_null:
            logger.warning(
                "event=nulls_excluded source=%s files=%d: these files are in a partition of NULL, which nulls='skip' "
                "never reads", self.location, of_null,
            )  # fmt: skip
        if deleted and then is None:
            rows = known.between(None, None)
            gone = rows.filter(pc.is_in(rows.column("key"), value_set=pa.array(deleted, pa.string())))
            parts.append(ListingDifference(no_rows(LISTED), no_rows(LISTED), gone))
        return parts, ready, archived, too_small

    @property
    def _starts_partitions(self) -> bool:
        """Whether `start_from` is a partition. Otherwise it is a time, a key or None, as in `FileOptions`."""
        return self.partitions is not None and self.partitions.start_from is not None

    def _begun(self, new: pa.Table, started: datetime) -> tuple[pa.Table, pa.Table]:
        """Return the objects from `start_from` on, and the objects before it, which are ignored."""
        start_from: object
        if self.partitions is not None and self._starts_partitions:
            start_from, before = self.partitions.start_from, self.partitions.before_start(new)
        else:
            start_from, before = self.options.start_from, self.options.before_start(new, started)
        passed = new.filter(before)
        logger.warning(
            "event=start_from source=%s start_from=%s ignored=%d of=%d: files before start_from are not read",
            self.location, start_from, passed.num_rows, new.num_rows,
        )  # fmt: skip
        return new.filter(pc.invert(before)), passed

    def _without_existing(self, gone: pa.Table, look: Callable[[Collection[str]], pa.Table]) -> pa.Table:
        """Return the gone objects that S3 lacks too. An object that only the inventory report lacks stays known."""
        there = look(gone.column("key").to_pylist()).column("key")
        if len(there):
            logger.warning(
                "event=missing_from_report source=%s files=%d of=%d: the report does not name these files, but they "
                "exist. They stay known, and are not read again.",
                self.location, len(there), gone.num_rows,
            )  # fmt: skip
        return gone.filter(pc.invert(pc.is_in(gone.column("key"), value_set=there.combine_chunks())))

    def _settled(self, new: pa.Table, started: datetime, ready: set[str]) -> pa.Table:
        """Leave out the objects that are younger than `delay`, and those in folders without a ready marker."""
        if self.options.delay:
            # Both times are by the clock of the source. A fast local clock would admit files that are too young.
            limit = pa.scalar(started - self.options.delay, LISTED.field("modified").type)
            new = new.filter(pc.less_equal(new.column("modified"), limit))
        if self.options.ready_marker is not None:
            folders = folders_of(new.column("key"))
            if self.partitions is not None:
                new = new.filter(self.partitions.ready(folders, ready))
            else:
                new = new.filter(pc.is_in(folders, value_set=pa.array(sorted(ready), pa.string())))
        return new

    def _without_archived(self, new: pa.Table) -> pa.Table:
        if self.options.on_archived == "take":
            return new
        mask = pc.is_in(new.column("storage_class"), value_set=_ARCHIVES)
        archived = new.filter(mask)
        if archived.num_rows and self.options.on_archived == "raise":
            raise ArchivedObjectError(str(self.location), archived.column("key")[:5].to_pylist(), archived.num_rows)
        return new.filter(pc.invert(mask))

    def _check_size(self, rows: pa.Table) -> None:
        """Raise SourceError if the keys of a batch are too large for the ledger."""
        size = pc.sum(pc.binary_length(rows.column("key")), min_count=0).as_py()
        if size > MAX_KEY_BYTES:
            raise SourceError(
                str(self.location),
                f"a batch of {rows.num_rows} files has {size} bytes of keys, and one holds {MAX_KEY_BYTES}. Give "
                "max_files=1_000_000 and run until has_more is false, or give each of several prefixes a context.",
            )

    def _unreadable_rows(self, new: pa.Table) -> Iterator[tuple[dict[str, Any], SourceError]]:
        """Yield the objects whose keys Spark cannot read, each with the error that says why."""
        suspect = new.filter(pc.match_substring_regex(new.column("key"), _UNREADABLE))
        for row in suspect.to_pylist():
            try:
                check_readable(str(self.location), row["key"], is_local=self.location.is_local)
            except SourceError as error:
                yield row, error


def check_no_delta_table(location: Location, rows: pa.RecordBatch) -> None:
    """Raise SourceError for a Delta Lake table: its files still contain deleted and replaced rows."""
    if pc.any(pc.starts_with(rows.column("key"), _DELTA_LOG), min_count=0).as_py():
        raise SourceError(
            str(location),
            "it is a Delta Lake table, whose files hold also rows that were deleted or replaced. Read it as a table.",
        )


def _without(rows: pa.Table, keys: Collection[str]) -> pa.Table:
    return rows.filter(pc.invert(_is_among(rows, keys))) if keys else rows


def _is_among(rows: pa.Table, keys: Any) -> pa.ChunkedArray:
    """Return for each row whether its key is in `keys`, which is a collection of keys or a table with a column key."""
    names = keys.column("key").to_pylist() if isinstance(keys, pa.Table) else keys
    return pc.is_in(rows.column("key"), value_set=pa.array(sorted(names), pa.string()))


def _unchanged(known: pa.Table, chosen: pa.RecordBatch, found: ListingDifference) -> pa.Table:
    """Return the known objects with status TAKEN that are listed and have not changed."""
    taken = known.filter(is_status(known, TAKEN))
    listed = pc.is_in(taken.column("key"), value_set=chosen.column("key"))
    return taken.filter(pc.and_(listed, pc.invert(_is_among(taken, found.modified))))
