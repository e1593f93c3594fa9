"""What a bookmark remembers: immutable segments, of which a batch adds one, in the table or in Parquet files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from scripts.helpers.errors import LedgerError, TooLargeError
from scripts.helpers.files.diff import Known
from scripts.helpers.files.packed_json import pack_json, unpack_json
from scripts.helpers.files.segment_files import SegmentFiles
from scripts.helpers.files.segments import checksum, from_bytes, merged_segments, merges, to_bytes
from scripts.helpers.listing.objects import LEDGER, byte_order
from scripts.helpers.protocol.chunks import Blob

FORMAT = 1
"""Of what is stored. Another one is refused: its rules are not known here."""
FEW_FILES = 4
"""Names of more files than this are stored as one value: a watermark holds 2,000 entries at most."""
MAX_NAMES_BYTES = 64 * 1024 * 1024
"""Most text that packed names may unfold to: a damaged value must not fill the memory."""
MAX_TABLE_BYTES = 63 * 1024 * 1024
"""Of a segment in the table: it has to fit into 64 MB as it is written there."""
FILE_ROWS = 500_000
"""Rows of one file; a task of Spark reads only the files that can hold its keys."""


def segment_of(files: list[dict[str, Any]]) -> dict[str, Any]:
    """Make a segment of files in the order of their keys; the names of many files are packed."""
    count = sum(file["count"] for file in files)
    if len(files) <= FEW_FILES:
        return {"count": count, "files": files}
    return {"count": count, "packed": Blob(pack_json(files))}


def files_of(segment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the files of a segment. KeyError, TypeError or ValueError if it is damaged."""
    if "files" in segment:
        return list(segment["files"])
    packed = segment["packed"]
    if isinstance(packed, Blob):  # Made by this run and not stored yet; what was read from the table is bytes.
        packed = packed.data
    return [dict(file) for file in unpack_json(packed, MAX_NAMES_BYTES)]


def files_between(files: Sequence[Mapping[str, Any]], after: str | None, until: str | None) -> list[Mapping[str, Any]]:
    """Return the files of a segment that can hold keys above `after` and not above `until`."""
    held = []
    for file in files:
        ends_before = after is not None and byte_order(file["last"]) <= byte_order(after)
        starts_behind = until is not None and byte_order(file["first"]) > byte_order(until)
        if not ends_before and not starts_behind:
            held.append(file)
    return held


class FileLedger:
    """The segments that a state refers to, read when they are needed, each at most once.

    Parameters
    ----------
    source
        For error texts.
    segments
        As a state stores them, oldest first.
    files
        Where segments are files; None keeps them in the table.
    """

    def __init__(self, source: str, segments: Sequence[Mapping[str, Any]], files: SegmentFiles | None = None) -> None:
        self._source, self._files = source, files
        self.segments = list(segments)
        self._tables: dict[int, pa.Table] = {}
        self._known: Known | None = None

    @property
    def count(self) -> int:
        """Rows in all segments: about the number of objects known."""
        return sum(int(segment["count"]) for segment in self.segments)

    def known(self, after: str | None = None, until: str | None = None) -> Known:
        """Read all segments, or of segments in files only those that can hold keys between two."""
        if after is not None or until is not None:
            return Known(self._read_several(self.segments, after, until))
        if self._known is None:
            self._known = Known(self._from(0))
        return self._known

    def stored(self, rows: pa.Table) -> dict[str, Any]:
        """Make a segment of rows sorted by key. Files are written at once; bytes for the table wait for the freeze."""
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

    def appended(self, segment: Mapping[str, Any], rows: pa.Table | None = None) -> list[Mapping[str, Any]]:
        """Return the segments with one more, small ones at the end merged; `rows` are its rows, if they are at hand."""
        segments = [*self.segments, segment]
        number = merges([int(known["count"]) for known in segments])
        if number == 1:
            return segments
        first = len(segments) - number
        tables = self._from(first)
        tables.append(self.read(segment) if rows is None else rows)
        # Objects that are gone are dropped only where nothing older is left: their row hides older ones of its key.
        together = merged_segments(tables, oldest=first == 0)
        if not together.num_rows:
            return segments[:first]
        return [*segments[:first], self.stored(together)]

    def read(self, segment: Mapping[str, Any], after: str | None = None, until: str | None = None) -> pa.Table:
        """Read one segment, or of its files those that can hold keys between two; LedgerError if it is damaged."""
        try:
            if "data" not in segment:
                return self._read_files(files_of(segment), after, until)
            data = segment["data"]
            if isinstance(data, Blob):
                data = data.data
            # A file list that lost a row would be believed, and its file be taken again: so it is proven whole.
            if checksum(data) != segment["sha256"]:
                raise ValueError("the checksum differs")
            rows = from_bytes(data)
            if rows.num_rows != segment["count"]:
                raise ValueError("the count differs")
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(error) from error
        return rows

    def _read_files(self, files: Sequence[Mapping[str, Any]], after: str | None, until: str | None) -> pa.Table:
        if self._files is None:
            raise LedgerError(
                self._source, "its file list is stored in files. Give the ledger_uri that they were written to."
            )
        held = files_between(files, after, until)
        return pa.concat_tables([LEDGER.empty_table(), *self._files.rows_of(held)])

    def again(self, segments: Sequence[Mapping[str, Any]]) -> FileLedger:
        """Return a ledger of other segments at the same place."""
        return FileLedger(self._source, segments, self._files)

    def in_files(self) -> list[list[dict[str, Any]]]:
        """Return the files of each segment; LedgerError as of `files`."""
        return [self.files(segment) for segment in self.segments]

    def files(self, segment: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the files of a segment; LedgerError if it is damaged, or lies in the table."""
        if "data" in segment:
            raise LedgerError(
                self._source, "its file list is in the table, and executors read files. Use new_files, or start a "
                "new transformation_ctx.",
            )  # fmt: skip
        try:
            return files_of(segment)
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(error) from error

    def _files_between(
        self, segment: Mapping[str, Any], after: str | None, until: str | None
    ) -> Sequence[Mapping[str, Any]]:
        try:
            return files_between(files_of(segment), after, until)
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> LedgerError:
        return LedgerError(
            self._source, f"its stored file list is damaged ({error}). Restore the job's item from a backup."
        )

    def _from(self, first: int) -> list[pa.Table]:
        """Read all segments from one on, each once."""
        missing = [index for index in range(first, len(self.segments)) if index not in self._tables]
        read = self._read_several([self.segments[index] for index in missing])
        self._tables.update(zip(missing, read, strict=True))
        return [self._tables[index] for index in range(first, len(self.segments))]

    def _read_several(
        self, segments: Sequence[Mapping[str, Any]], after: str | None = None, until: str | None = None
    ) -> list[pa.Table]:
        """Read several segments as `read` does, the files of all at the same time: most have one file or a few."""
        held: list[Sequence[Mapping[str, Any]]] = []
        for segment in segments:
            is_here = "data" in segment or self._files is None
            held.append([] if is_here else self._files_between(segment, after, until))
        try:
            read = self._files.rows_of(list(chain.from_iterable(held))) if self._files is not None else []
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(error) from error
        rows, tables = iter(read), []
        for segment, its_files in zip(segments, held, strict=True):
            if "data" in segment or self._files is None:
                tables.append(self.read(segment, after, until))
            else:
                tables.append(pa.concat_tables([LEDGER.empty_table(), *islice(rows, len(its_files))]))
        return tables
