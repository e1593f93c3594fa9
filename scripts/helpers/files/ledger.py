"""The ledger of a bookmark (its known objects): immutable segments, one per batch, in the table or Parquet files."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from scripts.helpers.errors import LedgerError, TooLargeError
from scripts.helpers.files.diff import Known
from scripts.helpers.files.segment_files import SegmentFiles, checksum, from_bytes, merged_segments, merges, to_bytes
from scripts.helpers.files.states import damaged, files_of, segment_of
from scripts.helpers.listing.cuts import Ends, parted
from scripts.helpers.listing.objects import byte_order, no_rows
from scripts.helpers.protocol.chunks import Blob

MAX_TABLE_BYTES = 63 * 1024 * 1024
"""Most bytes of a segment in the table: in its stored form it has to fit into 64 MB."""
NO_FOLDER = "its file list is stored in files. Give the ledger_uri that they were written to."
FILE_ROWS = 500_000
"""Most rows of one file. A Spark task reads only the files that can have its keys."""


Files = Sequence[Mapping[str, Any]]
"""Files of a segment, in the order of their keys."""


def files_between(files: Files, after: str | None, until: str | None) -> list[Mapping[str, Any]]:
    """Return the Parquet files of a segment of the ledger that can have keys above `after` and not above `until`."""
    held = []
    for file in files:
        ends_before = after is not None and byte_order(file["last"]) <= byte_order(after)
        starts_behind = until is not None and byte_order(file["first"]) > byte_order(until)
        if not ends_before and not starts_behind:
            held.append(file)
    return held


def files_with(files: Files, keys: Sequence[bytes]) -> list[Mapping[str, Any]]:
    """Return the files of a segment whose range of keys holds at least one of the given sorted keys."""
    held = []
    for file in files:
        place = bisect_left(keys, byte_order(file["first"]))
        if place < len(keys) and keys[place] <= byte_order(file["last"]):
            held.append(file)
    return held


def rows_in(files: Files) -> int:
    """Return the number of ledger rows, one for each object, in files of a segment (a batch's part of a ledger)."""
    return sum(int(file["count"]) for file in files)


def cuts_of(segments: Sequence[Files], rows_each: int) -> list[str]:
    """Return keys that cut the largest segment into ranges, each with at least `rows_each` rows except the last."""
    cuts, rows = set[str](), 0
    for file in max(segments, key=rows_in, default=[])[:-1]:
        rows += int(file["count"])
        if rows >= rows_each:
            cuts.add(file["last"])
            rows = 0
    return sorted(cuts, key=byte_order)


MergeElsewhere = Callable[[Sequence[Mapping[str, Any]], bool], "list[dict[str, Any]] | None"]
"""Function that merges segments and returns the merged ones in the order of their keys, or None if it does not merge.
The second argument is `oldest` of `FileLedger.merged`."""


class FileLedger:
    """The ledger of a stored state. Its segments are read when they are first needed.

    Parameters
    ----------
    segments
        The segments as a state stores them, oldest first.
    files
        The folder for segments in files; None to store them in the table.
    """

    def __init__(self, source: str, segments: Sequence[Mapping[str, Any]], files: SegmentFiles | None = None) -> None:
        self._source, self._files = source, files
        self.segments = list(segments)
        self._held: dict[str, pa.Table] = {}
        self._known: Known | None = None
        self._some: tuple[frozenset[str], Known] | None = None

    @property
    def count(self) -> int:
        """About the number of known objects: the number of rows in all segments, which may have an object twice."""
        return sum(int(segment["count"]) for segment in self.segments)

    def known(self, after: str | None = None, until: str | None = None) -> Known:
        """Return the known objects. With `after` or `until`, read only files that can have keys in that range."""
        if after is not None or until is not None:
            return Known(self._read_several(self.segments, after, until))
        if self._known is None:
            self._known = Known(self._read_several(self.segments))
        return self._known

    def known_in(self, ranges: Sequence[Ends]) -> Known:
        """Return the known objects in consecutive ranges. Only one range at a time is in memory."""
        return self.known(*ranges[0]) if len(ranges) == 1 else _KnownByRanges(self, ranges)

    @property
    def cuts(self) -> list[str]:
        """Keys that cut the ledger into ranges, each held by few Parquet files; none if it is stored in the table."""
        files = [self.files(segment) for segment in self.segments if self._files and "data" not in segment]
        return cuts_of(files, FILE_ROWS)

    def known_for_keys(self, keys: Collection[str]) -> Known:
        """Return the known objects of some keys. The result may also have objects of other keys."""
        if self._known is not None:
            return self._known
        if self._some is None or not self._some[0].issuperset(keys):
            self._some = frozenset(keys), Known(self._read_several(self.segments, of_keys=keys))
        return self._some[1]

    def stored(self, rows: pa.Table) -> dict[str, Any]:
        """Return sorted rows as a ledger segment: bytes or, if the ledger has a folder, names of files written now."""
        if self._files is None:
            data = to_bytes(rows)
            if len(data) > MAX_TABLE_BYTES:
                raise TooLargeError(
                    f"What is remembered of {self._source!r}, {rows.num_rows:,} objects", len(data), MAX_TABLE_BYTES,
                    "Give a ledger_uri: then it is stored in files, for as many objects as you like.",
                )  # fmt: skip
            return {"count": rows.num_rows, "sha256": checksum(data), "data": Blob(data)}
        parts = [rows.slice(start, FILE_ROWS) for start in range(0, rows.num_rows, FILE_ROWS)]
        return segment_of([self._files.put(part) for part in parts])

    def appended(
        self, segment: Mapping[str, Any] | None, rows: pa.Table | None = None, elsewhere: MergeElsewhere | None = None
    ) -> list[Mapping[str, Any]]:
        """Return the ledger's segments and the new `segment`, if given, which is merged with small ones before it.

        Parameters
        ----------
        rows
            The rows of the new segment, if they are in memory.
        elsewhere
            A function that merges segments outside this process. If it returns None, merge them here.
        """
        if segment is None:
            return self.segments
        segments = [*self.segments, segment]
        first = len(segments) - merges([int(known["count"]) for known in segments])
        if first == len(segments) - 1:
            return segments
        # A gone object's row hides its older rows: drop it only if the oldest segment is merged too (`first == 0`).
        merged = elsewhere(segments[first:], first == 0) if elsewhere is not None else None
        if merged is None:
            older, new = (self.segments[first:], [rows]) if rows is not None else (segments[first:], [])
            merged = []
            # Merge range by range, because Arrow sorts keys in one array, which can hold only 2 GiB of keys.
            for after, until in parted(self.again(segments[first:]).cuts):
                known = Known([*self._read_several(older, after, until), *new])
                merged += self.merged(known, after, until, first == 0)
        if len(merged) > 1:
            merged = [segment_of([file for one in merged for file in files_of(one)])]
        return [*segments[:first], *merged]

    def merged(self, known: Known, after: str | None, until: str | None, oldest: bool) -> list[dict[str, Any]]:
        """Store a key range; return [ledger segment] or []. If no segment is older (`oldest`), drop deleted objects."""
        rows = merged_segments(known.parts(after, until)[::-1], oldest=oldest)
        return [self.stored(rows)] if rows.num_rows else []

    def read(self, segment: Mapping[str, Any], after: str | None = None, until: str | None = None) -> pa.Table:
        """Return a segment's rows. A key range limits which of its Parquet files are read. LedgerError if damaged."""
        return self._read_several([segment], after, until)[0]

    def _in_table(self, segment: Mapping[str, Any], keys: pa.Array | None) -> pa.Table:
        try:
            data = segment["data"].data if isinstance(segment["data"], Blob) else segment["data"]
            # Check that no row is missing, because the next batch would take the file of a missing row again.
            if checksum(data) != segment["sha256"]:
                raise ValueError("the checksum differs")
            rows = from_bytes(data, keys)
            if keys is None and rows.num_rows != segment["count"]:
                raise ValueError("the count differs")
        except (TypeError, ValueError) as error:  # TypeError: the stored data of the segment is not bytes.
            raise damaged(self._source, error) from error
        return rows

    def again(self, segments: Sequence[Mapping[str, Any]]) -> FileLedger:
        """Return a ledger of the given segments, which are in the same folder as those of this ledger."""
        return FileLedger(self._source, segments, self._files)

    def in_files(self) -> list[list[dict[str, Any]]]:
        """Return the files of each segment (a part of the ledger); raises LedgerError as `files` does."""
        return [self.files(segment) for segment in self.segments]

    def files(self, segment: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the files of a segment of the ledger; LedgerError if it is damaged, or in the table, not in files."""
        if "data" in segment:
            raise LedgerError(
                self._source, "its file list is in the table, and executors read files. Use new_files, or start a "
                "new transformation_ctx.",
            )  # fmt: skip
        try:
            return files_of(segment)
        except ValueError as error:
            raise damaged(self._source, error) from error

    def _read_several(
        self,
        segments: Sequence[Mapping[str, Any]],
        after: str | None = None,
        until: str | None = None,
        of_keys: Collection[str] | None = None,
    ) -> list[pa.Table]:
        """Return a table for each segment, as `read` does. The files of all segments are read in parallel."""
        in_files = [segment for segment in segments if "data" not in segment]
        if in_files and self._files is None:
            raise LedgerError(self._source, NO_FOLDER)
        keys = None
        if of_keys is None:
            held = [files_between(self.files(segment), after, until) for segment in in_files]
        else:
            keys, wanted = pa.array(list(of_keys), pa.string()), sorted(map(byte_order, of_keys))
            held = [files_with(self.files(segment), wanted) for segment in in_files]
        files = {file["file"]: file for file in chain.from_iterable(held)}
        read: dict[str, pa.Table] = {}
        if keys is None:
            # Keep rows in memory that this range of keys needs: the next range may need them, too. Drop other rows.
            names = {*files, *(segment["sha256"] for segment in segments if "data" in segment)}
            read = self._held = {name: rows for name, rows in self._held.items() if name in names}
        if self._files is not None:
            missing = [file for name, file in files.items() if name not in read]
            read |= zip((file["file"] for file in missing), self._files.rows_of(missing, keys), strict=True)
        of_segments, tables = iter(held), []
        for segment in segments:
            if "data" not in segment:
                parts = [read[file["file"]] for file in next(of_segments)]
                tables.append(pa.concat_tables(parts) if parts else no_rows())
                continue
            if segment["sha256"] not in read:
                read[segment["sha256"]] = self._in_table(segment, keys)
            tables.append(read[segment["sha256"]])
        return tables


class _KnownByRanges(Known):
    """The known objects, read one range of keys at a time. Only the range that was read last is in memory."""

    def __init__(self, ledger: FileLedger, ranges: Sequence[Ends]) -> None:
        super().__init__([])
        self._ledger, self._ranges = ledger, ranges
        self._starts = [after or "" for after, _ in ranges]
        self._place, self._here = -1, Known([])

    def parts(self, after: str | None, until: str | None) -> list[pa.Table]:
        """Return the same as `Known.parts`, range by range."""
        found = []
        for ends in parted(self._starts[1:], after, until):
            # Compare Python's texts: their order, by code points, is the same as that of their UTF-8 bytes.
            place = bisect_right(self._starts, ends[0] or "") - 1
            if place != self._place:
                # Drop this range before reading the next one, otherwise both would be in memory.
                self._place, self._here = -1, Known([])
                self._place, self._here = place, self._ledger.known(*self._ranges[place])
            found += self._here.parts(*ends)
        return found

    def latest(self, key: str) -> dict[str, Any] | None:
        """Return the latest row of a key, even of a gone object; None for an unknown key."""
        return self._ledger.known_for_keys([key]).latest(key)
