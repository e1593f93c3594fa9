"""Compare the listed objects of each key interval with the ledger, to find new, modified and gone ones. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers.listing.objects import LEDGER, LISTED, OVERWRITABLE, Interval, byte_order, newest_rows, no_rows


class ListingDifference(NamedTuple):
    """Listed objects that are unknown (`new`) or changed (`modified`), and known objects that are missing (`gone`)."""

    new: pa.Table
    modified: pa.Table
    gone: pa.Table


class Known:
    """The objects in the segments of a ledger. For a key in several segments, the newest one counts.

    Parameters
    ----------
    segments
        Tables of schema LEDGER, oldest first. Each is sorted by key and has no key twice.
    """

    def __init__(self, segments: Sequence[pa.Table]) -> None:
        # Do not join the Arrow chunks of a table: that copies the table, which may hold a whole ledger.
        self._segments = [table for table in reversed(segments) if table.num_rows]
        self._keys = [_Keys(table.column("key")) for table in self._segments]

    def parts(self, after: str | None, until: str | None) -> list[pa.Table]:
        """Return the rows of each segment with keys above `after` and not above `until`, the newest segment first."""
        parts = []
        for table, keys in zip(self._segments, self._keys, strict=True):
            first, last = 0, len(keys)
            if after is not None:
                first = bisect_right(keys, byte_order(after))
            if until is not None:
                last = bisect_right(keys, byte_order(until), lo=first)
            if last > first:
                parts.append(table.slice(first, last - first))
        return parts

    def between(self, after: str | None, until: str | None) -> pa.Table:
        """Return the latest row of each key above `after` and not above `until`, without objects that are gone."""
        return newest_rows(self.parts(after, until), with_gone=False)

    def latest(self, key: str) -> dict[str, Any] | None:
        """Return the latest row of a key, even if the object is gone; None if the key is unknown."""
        wanted = byte_order(key)
        for table, keys in zip(self._segments, self._keys, strict=True):
            place = bisect_left(keys, wanted)
            if place < len(keys) and keys[place] == wanted:
                return dict(table.slice(place, 1).to_pylist()[0])
        return None


class _Keys(Sequence[bytes]):
    """A sorted column of keys that `bisect` can search."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column.chunk(0) if column.num_chunks == 1 else column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, index: int) -> bytes:  # type: ignore[override]
        return byte_order(self._column[index].as_py())


def compare(interval: Interval, chosen: pa.RecordBatch, known: pa.Table, by_time: bool = False) -> ListingDifference:
    """Compare the listed objects of an interval of keys with the known objects in the same interval.

    Parameters
    ----------
    chosen
        The rows of the interval that the rules admit. The other rows are neither new nor gone.
    by_time
        Whether an object with another LastModified counts as modified, even if its ETag is the same.
    """
    rows = pa.Table.from_batches([chosen])
    # In most intervals of keys no object has changed. Comparing whole columns costs less than looking up each key.
    if known.num_rows == rows.num_rows and rows.num_rows and _all_same(rows, known, by_time):
        return ListingDifference(no_rows(LISTED), no_rows(LISTED), no_rows())
    place = pc.index_in(rows.column("key"), value_set=known.column("key"))
    unknown = pc.is_null(place)
    if known.num_rows:
        same = pc.fill_null(_same(rows, known.take(pc.fill_null(place, 0)), by_time), False)
        changed = pc.and_(pc.invert(unknown), pc.invert(same))
    else:
        changed = pc.invert(unknown)
    gone = no_rows()
    # If all known objects were found, none is gone, and the search below, the most expensive step, is skipped.
    # Otherwise search all listed rows, not only `chosen`: an object that a new rule (an option) excludes still exists.
    found_again = rows.num_rows - pc.sum(unknown, min_count=0).as_py()
    if known.num_rows and known.num_rows != found_again:
        gone = known.filter(pc.invert(pc.is_in(known.column("key"), value_set=interval.rows.column("key"))))
    return ListingDifference(rows.filter(unknown), rows.filter(changed), gone)


def without_stale(found: ListingDifference, known: pa.Table, created: datetime) -> ListingDifference:
    """Leave out modified and gone objects whose ledger row is newer than the report (such as an S3 inventory).

    Parameters
    ----------
    created
        When the report was made. A report lacks every object written later, so such an object is not gone.
    """
    place = pc.index_in(found.modified.column("key"), value_set=known.column("key"))
    before = known.column("modified").take(place)
    made = pa.scalar(created, LEDGER.field("modified").type)
    # Keep a modified object whose time equals the ledger's: S3 shows whole seconds, and two writes may share a second.
    newer = pc.greater_equal(found.modified.column("modified"), before)
    newer = pc.or_(newer, pc.less(before, made))
    gone = found.gone.filter(pc.less(found.gone.column("modified"), made))
    return ListingDifference(found.new, found.modified.filter(newer), gone)


def _all_same(rows: pa.Table, known: pa.Table, by_time: bool) -> bool:
    """Return whether no object has changed (`by_time`: not even in LastModified); a quick check for the usual case."""
    names = ["key", "etag", "size", "version_id"]
    if by_time:
        names.append("modified")
    return all(rows.column(name).equals(known.column(name)) for name in names)


def _same(rows: pa.Table, known: pa.Table, by_time: bool) -> pa.ChunkedArray:
    """Return for each row whether the identities are equal, by version if both rows have one."""
    same = pc.and_(
        pc.equal(rows.column("etag"), known.column("etag")), pc.equal(rows.column("size"), known.column("size"))
    )
    if by_time:
        same = pc.and_(same, pc.equal(rows.column("modified"), known.column("modified")))
    # If a row has no version, such as one from before `versioned` was set, `by_version` is null: use ETag and size. Use
    # them too if both versions are "null": in a bucket without versions, an overwrite keeps this id.
    by_version = pc.equal(rows.column("version_id"), known.column("version_id"))
    overwritable = pc.equal(rows.column("version_id"), OVERWRITABLE)
    decides = pc.and_(pc.is_valid(by_version), pc.invert(pc.and_(by_version, overwritable)))
    return pc.if_else(pc.fill_null(decides, False), by_version, same)
