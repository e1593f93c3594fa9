"""Process a range of keys in pieces, so that a task holds only some of its objects in memory at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa

from scripts.helpers.files.ledger import FileLedger
from scripts.helpers.files.states import files_of
from scripts.helpers.listing.objects import Interval, byte_order, no_rows

PIECE_ROWS = 200_000
"""Most listed objects that wait at once to be compared. Comparing takes up to 750 bytes of memory per object."""
WAITING_ROWS = 250_000
"""Most rows that wait at once for a ledger file, so that files are few. They take about 100 MB while written."""

T = TypeVar("T")


@dataclass
class _Run(Generic[T]):
    """Neighbouring parts of a listing, in order, which together cover the keys above `after`, up to `until`."""

    after: str | None
    until: str | None
    parts: list[T]
    rows: int


@dataclass
class _Runs(Generic[T]):
    """Parts of a key range that arrive in any order. A part is joined with its neighbours into a run.

    None as a start means before all keys, and None as an end means after all keys, so these are not neighbours.
    """

    waiting: int = 0
    """Number of rows in all parts."""
    _by_start: dict[str | None, _Run[T]] = field(default_factory=dict)
    _by_end: dict[str | None, _Run[T]] = field(default_factory=dict)

    def add(self, after: str | None, until: str | None, part: T, rows: int) -> None:
        """Add a part, and join it with the runs (of neighbouring parts) directly before and after it."""
        run = self._by_end.pop(after, None) if after is not None else None
        if run is None:
            run = self._by_start[after] = _Run(after, until, [], 0)
        run.parts.append(part)
        run.until, run.rows = until, run.rows + rows
        behind = self._by_start.pop(until, None) if until is not None else None
        if behind is not None:
            run.parts += behind.parts
            run.until, run.rows = behind.until, run.rows + behind.rows
        self._by_end[run.until] = run
        self.waiting += rows

    def take_largest(self) -> _Run[T]:
        """Remove the run (of neighbouring parts) that has the most rows, and return it."""
        run = max(self._by_start.values(), key=lambda one: one.rows)
        del self._by_start[run.after], self._by_end[run.until]
        self.waiting -= run.rows
        return run

    def in_order(self) -> list[_Run[T]]:
        """Return the runs (joined neighbouring parts of a listing) in the order of their keys."""
        return sorted(self._by_start.values(), key=lambda one: byte_order(one.after or ""))


def split_into_pieces(intervals: Iterable[Interval], most_rows: int) -> Iterator[list[Interval]]:
    """Yield the intervals of a listing, which arrive in any order, in pieces: lists of neighbouring intervals.

    Workers list several ranges of keys at once, so neighbours are joined as they arrive. If the waiting intervals have
    more than `most_rows` objects, the largest piece is yielded. A listing of at most `most_rows` objects is one piece.
    """
    runs: _Runs[Interval] = _Runs()
    for interval in intervals:
        runs.add(interval.after, interval.until, interval, interval.rows.num_rows)
        if runs.waiting > most_rows:
            yield runs.take_largest().parts
    for run in runs.in_order():
        yield run.parts


class _Written(NamedTuple):
    after: str | None
    files: Sequence[dict[str, Any]]


class Gathered:
    """Collects rows of pieces (parts of a listing), which arrive in any order, and writes them to few ledger files.

    Parameters
    ----------
    most_rows
        Most rows to hold in memory. If there are more, the largest group of neighbouring pieces is written.
    """

    def __init__(self, ledger: FileLedger, most_rows: int = WAITING_ROWS) -> None:
        self._ledger, self._most_rows = ledger, most_rows
        self._runs: _Runs[pa.Table] = _Runs()
        self._written: list[_Written] = []

    def add(self, after: str | None, until: str | None, rows: pa.Table) -> None:
        """Add a piece: its rows, sorted by key, are above the key `after` and not above `until`.

        Add pieces without rows, too: only pieces that follow each other without a gap are joined and written together.

        Raises
        ------
        LedgerError
            Rows cannot be written.
        """
        self._runs.add(after, until, rows, rows.num_rows)
        if self._runs.waiting > self._most_rows:
            self._write([self._runs.take_largest()])

    def taken(self, few: int) -> tuple[list[dict[str, Any]], pa.Table | None]:
        """Return ledger files with all rows, in order of keys; if the rows are at most `few`, return them and no files.

        Raises
        ------
        LedgerError
            The rows cannot be written.
        """
        waiting = self._runs.in_order()
        if self._runs.waiting <= few and not self._written:
            return [], _joined(waiting) if self._runs.waiting else None
        # No more pieces arrive. Write the waiting ones together, but apart where a written file has keys in between.
        places = sorted(byte_order(written.after or "") for written in self._written)
        for place in [*places, None]:
            before = [run for run in waiting if place is None or byte_order(run.after or "") < place]
            waiting = waiting[len(before) :]
            self._write(before)
        files: list[dict[str, Any]] = []
        for written in sorted(self._written, key=lambda one: byte_order(one.after or "")):
            files += written.files
        return files, None

    def _write(self, runs: Sequence[_Run[pa.Table]]) -> None:
        """Write runs (neighbouring pieces) to the same files. No file written before may have keys between the runs."""
        rows = _joined(runs)
        if rows.num_rows:
            self._written.append(_Written(runs[0].after, files_of(self._ledger.stored(rows))))


def _joined(runs: Sequence[_Run[pa.Table]]) -> pa.Table:
    return pa.concat_tables([no_rows(), *(part for run in runs for part in run.parts)])
