"""How a bookmark remembers: every object, those of the last minutes only, or what runs of the past took."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers.files.diff import Known, compare
from scripts.helpers.files.ledger import FileLedger
from scripts.helpers.files.rules import FileOptions, oldest_first
from scripts.helpers.listing.objects import GONE, LISTED, TAKEN, Interval

logger = logging.getLogger(__name__)

TICK = timedelta(microseconds=1)
"""The smallest step of a LastModified: a floor this much below an object leaves the object above it."""
START = datetime(1, 1, 1, tzinfo=timezone.utc)


class ExactMemory:
    """Mode exact: all identities, in segments of which each batch adds one."""

    keeps_gone = True

    def __init__(self, ledger: FileLedger) -> None:
        self._ledger = ledger

    def candidates(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the listed objects that can be new: all."""
        return rows

    def known(self) -> Known:
        """Return what is remembered."""
        return self._ledger.known()

    def admitted(self, new: pa.Table, started: datetime) -> pa.Table:
        """Return the new objects that may be taken now: all."""
        return new

    def reason_against(self, modified: datetime) -> str | None:
        """Say why an object that is not remembered is not new; it always is."""
        return None

    def after(
        self, rows: pa.Table, segment: Mapping[str, Any] | None, left: pa.Table, listed: datetime | None
    ) -> dict[str, Any]:
        """Return the part of the next state that remembers `rows`."""
        segments: Sequence[Mapping[str, Any]] = self._ledger.segments
        if segment:
            segments = self._ledger.appended(segment, rows)
        return {"segments": segments}

    def without(
        self, following: Mapping[str, Any], bad: pa.Table, rows: pa.Table, segment: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Return the part of the next state that does not remember some objects of the batch.

        Parameters
        ----------
        following
            The next state as it is.
        bad
            The objects not to remember. `rows`, in `segment`, are all others of the batch.
        """
        return {"segments": self._ledger.appended(segment, rows) if segment else self._ledger.segments}


class WindowMemory:
    """Mode windowed: identities of objects younger than a floor; older objects are taken for known.

    The floor is the start of the last listing less the band, or just below the oldest object that was
    seen and not taken, so that nothing seen is lost. What `include`, `exclude` and `min_size` leave out
    counts as not seen: it falls below the floor, and later rules do not bring it back. Archived objects do not
    hold the floor: who gets one back writes it anew, and that is above any floor. As in Glue, an
    object is above the floor when its LastModified is greater (AWS Glue, "Job bookmarks", inconsistent
    range ``(T - dt, T]``), and one that is written again after it was forgotten is new, also with the same bytes.
    """

    keeps_gone = True

    def __init__(self, ledger: FileLedger, state: Mapping[str, Any], options: FileOptions) -> None:
        self._ledger, self._options = ledger, options
        self._floor: datetime | None = state.get("floor")

    def candidates(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the listed objects that can be new: those above the floor."""
        return rows if self._floor is None else rows.filter(pc.greater(rows.column("modified"), _time(self._floor)))

    def known(self) -> Known:
        """Return what is remembered."""
        return self._ledger.known()

    def admitted(self, new: pa.Table, started: datetime) -> pa.Table:
        """Return the new objects that may be taken now: none of the future, and of the band what it has room for."""
        # As in Glue, whose range ends at the start of the run: what is stamped later waits for the next one.
        new = new.filter(pc.less_equal(new.column("modified"), _time(started)))
        young = pc.greater(new.column("modified"), _time(started - self._options.max_band))
        room = self._options.max_files_in_band - self._above(started - self._options.max_band).num_rows
        first, has_more = oldest_first(new.filter(young), max(room, 0), None)
        if has_more:
            logger.warning(
                "event=band-is-full files=%d: of the last %s no more than %d files are remembered. The others are "
                "taken by later runs. Raise max_files_in_band to take them now.",
                new.filter(young).num_rows - first.num_rows, self._options.max_band, self._options.max_files_in_band,
            )  # fmt: skip
        return pa.concat_tables([new.filter(pc.invert(young)), first])

    def reason_against(self, modified: datetime) -> str | None:
        """Say why an object that is not remembered is not new."""
        if self._floor is None or modified > self._floor:
            return None
        return f"its LastModified is not after {self._floor:%Y-%m-%dT%H:%M:%S}Z: mode windowed takes it for known"

    def after(
        self, rows: pa.Table, segment: Mapping[str, Any] | None, left: pa.Table, listed: datetime | None
    ) -> dict[str, Any]:
        """Return the part of the next state: the next floor, and the objects above it that are taken.

        The floor rises with complete listings only: events may not have told of everything below it.
        """
        floor = self._floor or START
        if listed is not None:
            floor = max(floor, listed - self._options.max_band)
        waiting = self._options.waiting(left)
        if waiting.num_rows:
            # Below the oldest that was left, or it would be taken for known. But a floor never falls: between the
            # old one and a lower one nothing is remembered, and files that were taken would be taken again.
            oldest_left = pc.min(waiting.column("modified")).as_py()
            floor = max(self._floor or START, min(floor, oldest_left - TICK))
        there = rows.filter(pc.not_equal(rows.column("status"), GONE))
        taken_above = there.filter(pc.greater(there.column("modified"), _time(floor)))
        passed = left.num_rows - left.filter(pc.greater(left.column("modified"), _time(floor))).num_rows
        if passed:
            logger.warning(
                "event=archived-passed-over files=%d: they count as known until they are written anew", passed
            )
        band = pa.concat_tables([self._above(floor, rows), taken_above])
        segments: list[dict[str, Any]] = []
        if band.num_rows:
            segments.append(self._ledger.stored(band.sort_by("key")))
        return {"floor": None if floor == START else floor, "segments": segments}

    def without(
        self, following: Mapping[str, Any], bad: pa.Table, rows: pa.Table, segment: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Return the part of the next state that does not remember some objects of the batch; see `ExactMemory`.

        The floor stays. What is set aside is looked at by itself when it is to be taken again, whatever the floor.
        """
        floor: datetime | None = following.get("floor")
        band = self._ledger.again(following["segments"]).known().between(None, None)
        keys = bad.column("key").combine_chunks()
        band = band.filter(pc.invert(pc.is_in(band.column("key"), value_set=keys)))
        # What such a key was before this batch is known as before.
        before = self._above(floor or START)
        before = before.filter(pc.is_in(before.column("key"), value_set=keys))
        band = pa.concat_tables([band, before])
        return {"floor": floor, "segments": [self._ledger.stored(band.sort_by("key"))] if band.num_rows else []}

    def _above(self, floor: datetime, newer: pa.Table | None = None) -> pa.Table:
        known = self._ledger.known().between(None, None)
        known = known.filter(pc.greater(known.column("modified"), _time(floor)))
        if newer is not None:
            known = known.filter(pc.invert(pc.is_in(known.column("key"), value_set=newer.column("key"))))
        return known


def _time(moment: datetime) -> pa.Scalar:
    return pa.scalar(moment, LISTED.field("modified").type)


class RangeMemory(ExactMemory):
    """What was known before a range of runs, which lets in only what was taken when the range ended.

    An object is what it is now: one that was overwritten since was not taken then.

    Parameters
    ----------
    before
        What was known when the range started.
    until, ledger
        The state when it ended, and what that remembers.
    by_time
        As for `diff.compare`.
    """

    keeps_gone = False

    def __init__(
        self, before: ExactMemory | WindowMemory, until: Mapping[str, Any], ledger: FileLedger, by_time: bool
    ) -> None:
        super().__init__(ledger)
        self._before, self._by_time = before, by_time
        self._floor: datetime | None = until.get("floor")
        self._then: Known | None = None

    def within(self, after: str | None, until: str | None) -> None:
        """Look only at keys above one and not above another."""
        self._then = self._ledger.known(after, until)

    def candidates(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the listed objects that were taken when the range ended, and may not have been known before."""
        rows = self._before.candidates(rows)
        if not rows.num_rows:
            return rows
        if self._then is None:
            self._then = self._ledger.known()
        keys = rows.column("key")
        # A key without its last character sorts before it, and no key of the rows lies between.
        there = self._then.between(keys[0].as_py()[:-1], keys[-1].as_py())
        taken = there.filter(pc.equal(there.column("status"), TAKEN))
        found = compare(Interval(None, None, rows), rows, taken, self._by_time)
        # What had not been taken at the end of the range, or is another object by now.
        others = pa.concat_tables([found.new, found.modified]).column("key")
        chosen = pc.invert(pc.is_in(keys, value_set=others.combine_chunks()))
        if self._floor is not None:
            # Mode windowed does not remember these one by one: below its floor all were taken.
            chosen = pc.or_(chosen, pc.less_equal(rows.column("modified"), _time(self._floor)))
        return rows.filter(chosen)

    def known(self) -> Known:
        """Return what was known before the range."""
        return self._before.known()
