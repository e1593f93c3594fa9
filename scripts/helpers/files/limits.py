"""Where a batch with limits ends, if its files lie in many shares that never come together. Pure.

The batch is the oldest files within the limits, as `rules.oldest_first` takes them of one table. Here each share shows
blocks: neighbours among its files in that order, with count and size. The blocks of all shares tell between which two
files the batch must end. Only the files between are shown again, in smaller blocks, until none is left between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers.listing.objects import LISTED


class PlaceInOrder(NamedTuple):
    """The place of a file in the order in which batches take files. No two files of a source share one."""

    modified: int
    """LastModified in microseconds since 1970, UTC."""
    key: str
    """Python compares texts by code points, which is the order of their UTF-8 bytes, as Arrow compares them."""


class Block(NamedTuple):
    """Files of a share that follow one another in that order."""

    first: PlaceInOrder
    last: PlaceInOrder
    files: int
    bytes: int


@dataclass(frozen=True)
class Limits:
    """Most files and bytes of a batch; None is no limit."""

    max_files: int | None = None
    max_bytes: int | None = None

    @property
    def is_any(self) -> bool:
        """Whether there is a limit."""
        return self.max_files is not None or self.max_bytes is not None

    def fit(self, files: int, size: int) -> bool:
        """Tell whether so many of the oldest files are a batch."""
        if files <= 1:
            return True  # Whatever its size: a file larger than the limit would otherwise stop the job for good.
        if self.max_files is not None and files > self.max_files:
            return False
        return self.max_bytes is None or size <= self.max_bytes


@dataclass(frozen=True)
class Stretch:
    """Between which files a batch ends.

    Attributes
    ----------
    after
        A file of the batch, as all older ones are; None where none is known yet.
    until
        The oldest file that is known not to be in the batch; None where none is known yet.
    is_settled
        No file is left between the two.
    """

    after: PlaceInOrder | None = None
    until: PlaceInOrder | None = None
    is_settled: bool = False


class Blocks(NamedTuple):
    """What one share, or all together, have in and before a stretch."""

    files: int
    """Files before the stretch, which the batch takes, and their size in bytes."""
    bytes: int
    blocks: list[Block]


def blocks_of(rows: pa.Table, stretch: Stretch, parts: int) -> Blocks:
    """Return the files of a share before a stretch, and blocks of those within.

    Parameters
    ----------
    rows
        At least the columns key, size and modified.
    parts
        About how many blocks to make; up to three times as many where sizes differ. At least 2.
    """
    before = rows.slice(0, 0)
    if stretch.after is not None:
        is_before = _compared(rows, stretch.after, pc.less_equal)
        before, rows = rows.filter(is_before), rows.filter(pc.invert(is_before))
    if stretch.until is not None:
        rows = rows.filter(is_earlier(rows, stretch.until))
    order = pc.sort_indices(rows, [("modified", "ascending"), ("key", "ascending")]).to_pylist()
    sizes = rows.column("size").to_pylist()
    # Small in both measures, so that what a limit cuts through is small as well.
    most_files = max(1, -(-len(order) // parts))
    most_bytes = -(-sum(sizes) // parts)
    blocks: list[Block] = []
    start, size = 0, 0
    for end, index in enumerate(order):
        is_full = end - start >= most_files or size + sizes[index] > most_bytes
        if end > start and is_full:
            blocks.append(_block(rows, order[start:end], size))
            start, size = end, 0
        size += sizes[index]
    if start < len(order):
        blocks.append(_block(rows, order[start:], size))
    return Blocks(before.num_rows, pc.sum(before.column("size"), min_count=0).as_py(), blocks)


def narrowed(stretch: Stretch, shares: Sequence[Blocks], limits: Limits) -> Stretch:
    """Return a smaller stretch, given what all shares have in it; `until` stays None if all files fit."""
    before = sum(share.files for share in shares), sum(share.bytes for share in shares)
    blocks = [block for share in shares for block in share.blocks]
    after, until = stretch.after, stretch.until
    # All that is not younger than the start of a block lies in blocks that start no later. If they fit, so does it.
    files, size = before
    for block in sorted(blocks, key=lambda block: block.first):
        files, size = files + block.files, size + block.bytes
        if not limits.fit(files, size):
            break
        after = block.first
    # Blocks that end no later than another one hold nothing younger than its end. If they are too much, so is it.
    files, size = before
    for block in sorted(blocks, key=lambda block: block.last):
        files, size = files + block.files, size + block.bytes
        if not limits.fit(files, size):
            until = block.last
            break
    if until is None:
        return Stretch(is_settled=True)
    has_files = any((after is None or block.last > after) and block.first < until for block in blocks)
    return Stretch(after, until, is_settled=not has_files)


def is_earlier(rows: pa.Table, place: PlaceInOrder) -> Any:
    """Tell of each file whether it comes before a place."""
    return _compared(rows, place, pc.less)


def _block(rows: pa.Table, order: Sequence[int], size: int) -> Block:
    return Block(_place(rows, order[0]), _place(rows, order[-1]), len(order), size)


def _place(rows: pa.Table, index: int) -> PlaceInOrder:
    return PlaceInOrder(rows.column("modified")[index].value, rows.column("key")[index].as_py())


def _compared(rows: pa.Table, place: PlaceInOrder, compare: Callable[[Any, Any], Any]) -> Any:
    """Compare files with a place: the key decides between equal times."""
    moment = pa.scalar(place.modified, LISTED.field("modified").type)
    modified = rows.column("modified")
    by_key = pc.and_(pc.equal(modified, moment), compare(rows.column("key"), place.key))
    return pc.or_(pc.less(modified, moment), by_key)
