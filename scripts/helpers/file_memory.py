"""How a bookmark remembers: every object, or those of the last minutes only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers.file_diff import Known
from scripts.helpers.file_ledger import FileLedger
from scripts.helpers.file_rules import FileOptions, oldest_first
from scripts.helpers.identities import LISTED

TICK = timedelta(microseconds=1)
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
        return {"segments": self._ledger.appended(segment, rows) if segment else segments}


class WindowMemory:
    """Mode windowed: identities of objects younger than a floor; older objects are taken for known.

    The floor is the start of the last listing less the band, or just below the oldest object that was
    seen and not taken, so that nothing seen is lost. What `include`, `exclude` and `min_size` leave out
    counts as not seen: it falls below the floor, and later rules do not bring it back. As in Glue, an
    object is above the floor when its LastModified is greater (AWS Glue, "Job bookmarks", inconsistent
    range ``(T - dt, T]``).
    """

    keeps_gone = False

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
        new = new.filter(pc.less_equal(new.column("modified"), _time(started)))
        young = pc.greater(new.column("modified"), _time(started - self._options.max_band))
        room = self._options.max_files_in_band - self._above(started - self._options.max_band).num_rows
        first, _ = oldest_first(new.filter(young), max(room, 0), None)
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
        if left.num_rows:
            floor = max(self._floor or START, min(floor, pc.min(left.column("modified")).as_py() - TICK))
        band = pa.concat_tables(
            [self._above(floor, rows), rows.filter(pc.greater(rows.column("modified"), _time(floor)))]
        )
        segments = [self._ledger.stored(band.sort_by("key"))] if band.num_rows else []
        return {"floor": None if floor == START else floor, "segments": segments}

    def _above(self, floor: datetime, newer: pa.Table | None = None) -> pa.Table:
        known = self._ledger.known().between(None, None)
        known = known.filter(pc.greater(known.column("modified"), _time(floor)))
        if newer is not None:
            known = known.filter(pc.invert(pc.is_in(known.column("key"), value_set=newer.column("key"))))
        return known


def _time(moment: datetime) -> pa.Scalar:
    return pa.scalar(moment, LISTED.field("modified").type)
