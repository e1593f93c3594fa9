"""Sorting of more listed objects than memory holds: sorted runs on local disk, merged range by range. Pure."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers.listing.objects import LISTED, Interval, byte_order

RUN_ROWS = 250_000
"""Rows sorted in memory at once: some 100 MB."""
INTERVAL_ROWS = 250_000
"""Rows that are compared with the ledger at once, in as much memory."""
BLOCK_ROWS = 8_192
"""Rows that a run reads at once. A merge holds about one block of each run, so small blocks keep it small."""


def sorted_intervals(
    batches: Iterable[pa.RecordBatch], *, run_rows: int = RUN_ROWS, interval_rows: int = INTERVAL_ROWS
) -> Iterator[Interval]:
    """Sort rows of LISTED by key and yield them as a complete listing, in order.

    All batches are taken before the first interval is yielded. Of several rows with one key, the one
    changed last is kept.

    Parameters
    ----------
    run_rows
        Rows sorted in memory at once. More than that are sorted on disk, in the system's temporary folder.
    interval_rows
        About how many rows an interval has.
    """
    with TemporaryDirectory(prefix="sorted-runs-") as folder:
        runs: list[_Run] = []
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= run_rows:
                runs.append(_DiskRun(_sorted(waiting), os.path.join(folder, f"{len(runs)}.arrow")))
                waiting, rows = [], 0
        if waiting or not runs:
            runs.append(_Run(_sorted(waiting).to_batches(max_chunksize=BLOCK_ROWS)))
        yield from _merged(runs, interval_rows)


class _Run:
    """Sorted rows in blocks, taken from the front."""

    def __init__(self, blocks: Sequence[pa.RecordBatch]) -> None:
        self._blocks = blocks
        self.first_keys = [_key(block, 0) for block in blocks]
        self._block = self._row = 0

    def _read(self, block: int) -> pa.RecordBatch:
        return self._blocks[block]

    def take(self, until: bytes | None) -> Iterator[pa.RecordBatch]:
        """Yield the next rows whose keys are not above `until`; None takes all."""
        last = len(self.first_keys) if until is None else bisect_right(self.first_keys, until)
        while self._block < last:
            block = self._read(self._block)
            end = block.num_rows if until is None else _count_until(block, until)
            if end > self._row:
                yield block.slice(self._row, end - self._row)
            if end < block.num_rows:
                self._row = end
                return
            self._block, self._row = self._block + 1, 0


class _DiskRun(_Run):
    def __init__(self, table: pa.Table, path: str) -> None:
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        blocks = table.to_batches(max_chunksize=BLOCK_ROWS)
        with pa.ipc.new_file(path, LISTED, options=options) as writer:
            for block in blocks:
                writer.write_batch(block)
        super().__init__(blocks)
        self._blocks = ()  # From here on the rows are on disk only.
        self._file = pa.ipc.open_file(pa.OSFile(path))

    def _read(self, block: int) -> pa.RecordBatch:
        return self._file.get_batch(block)


def _merged(runs: Sequence[_Run], interval_rows: int) -> Iterator[Interval]:
    """Merge by ranges: every block's first key is a possible bound, so a range holds few blocks of each run."""
    firsts = sorted({key for run in runs for key in run.first_keys})
    step = max(1, interval_rows // BLOCK_ROWS)
    after: str | None = None
    for bound in [*firsts[step::step], None]:
        rows = _sorted([block for run in runs for block in run.take(bound)])
        until = None if bound is None else bound.decode("utf-8", "surrogatepass")
        yield Interval(after, until, _one_batch(rows))
        after = until


def _sorted(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    table = pa.Table.from_batches(batches, LISTED).sort_by([("key", "ascending"), ("modified", "ascending")])
    if table.num_rows < 2:
        return table
    keys = table.column("key").combine_chunks()
    # Rows of a key are in the order of their times: the last one is the newest.
    last_of_key = pc.not_equal(keys[:-1], keys[1:])
    return table.filter(pa.concat_arrays([last_of_key, pa.array([True])]))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=LISTED)


def _count_until(block: pa.RecordBatch, until: bytes) -> int:
    return bisect_left(range(block.num_rows), True, key=lambda row: _key(block, row) > until)


def _key(block: Any, row: int) -> bytes:
    return byte_order(block.column("key")[row].as_py())
