"""Ranges are processed in pieces: few rows are held at once, whatever the order of the listing."""

from __future__ import annotations

import random
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.helpers.files import pieces
from scripts.helpers.files.ledger import FileLedger
from scripts.helpers.files.pieces import Gathered, split_into_pieces
from scripts.helpers.files.segment_files import SegmentFiles
from scripts.helpers.listing.objects import LEDGER, LISTED, Interval
from tests.files.histories_of_files import LIMITS, RUNS, change
from tests.support.buckets import NOON, Bucket, Job
from tests.support.long import cases

TILES = st.lists(st.integers(0, 4), min_size=1, max_size=20)
"""The number of keys in each interval of a listing."""


def tiled(sizes: list[int], bounds: tuple[str | None, str | None] = (None, None)) -> list[Interval]:
    """Return intervals with the given numbers of keys, in order, as a listing between two keys returns them."""
    found, number, after = [], 0, bounds[0]
    for place, size in enumerate(sizes):
        keys = [f"k{number + each:04}" for each in range(1, size + 1)]
        number += max(size, 1)
        until = bounds[1] if place == len(sizes) - 1 else f"k{number:04}"
        rows = pa.RecordBatch.from_pylist([{"key": key} for key in keys], LISTED)
        found.append(Interval(after, until, rows))
        after = until
    return found


def keys_of(piece: list[Interval]) -> list[str]:
    return [key for interval in piece for key in interval.rows.column("key").to_pylist()]


@given(sizes=TILES, most=st.integers(0, 30), seed=st.integers(0, 99), bounds=st.sampled_from([None, ("k", "kz")]))
def test_pieces_hold_all_in_touching_intervals_when_a_listing_comes_in_any_order(
    sizes: list[int], most: int, seed: int, bounds: tuple[str, str] | None
) -> None:
    intervals = tiled(sizes, bounds or (None, None))
    shuffled = random.Random(seed).sample(intervals, len(intervals))

    pieces = list(split_into_pieces(shuffled, most))

    for piece in pieces:
        assert all(before.until == after.after for before, after in pairwise(piece))
    in_order = sorted(pieces, key=lambda piece: intervals.index(piece[0]))
    assert [interval for piece in in_order for interval in piece] == intervals
    if sum(sizes) <= most:
        assert pieces == [intervals]


@given(sizes=TILES, most=st.integers(0, 30), seed=st.integers(0, 99))
def test_no_more_rows_wait_than_asked_for_when_a_range_has_many(sizes: list[int], most: int, seed: int) -> None:
    shuffled = random.Random(seed).sample(tiled(sizes), len(sizes))
    shown: list[int] = []

    def listing() -> Any:
        for interval in shuffled:
            shown.append(interval.rows.num_rows)
            yield interval

    taken = 0
    for piece in split_into_pieces(listing(), most):
        # Only the last interval took the number of held rows over the limit.
        assert sum(shown[:-1]) - taken <= most
        taken += len(keys_of(piece))


def rows_of(keys: list[str]) -> pa.Table:
    one = {"size": 1, "modified": NOON, "status": "taken", "version": 1, "run_id": "r"}
    return pa.Table.from_pylist([one | {"key": key} for key in keys], LEDGER)


@pytest.mark.parametrize("most_rows", [0, 3, 7, 100])
@pytest.mark.parametrize("seed", range(4))
def test_files_are_in_the_order_of_keys_when_pieces_come_in_any_order(
    tmp_path: Path, most_rows: int, seed: int
) -> None:
    ledger = FileLedger("source", (), SegmentFiles(f"{tmp_path}/"))
    pieces = list(split_into_pieces(tiled([2, 3, 0, 4, 1, 2]), 0))
    gathered = Gathered(ledger, most_rows)

    for piece in random.Random(seed).sample(pieces, len(pieces)):
        gathered.add(piece[0].after, piece[-1].until, rows_of(keys_of(piece)))
    files, rows = gathered.taken(few=0)

    keys = sorted(key for piece in pieces for key in keys_of(piece))
    assert rows is None
    assert ledger.read({"files": files, "count": len(keys)}).column("key").to_pylist() == keys
    assert all(before["last"] < after["first"] for before, after in pairwise(files))
    if most_rows == 100:
        assert len(files) == 1


def test_rows_are_returned_in_order_and_nothing_is_written_when_they_are_few(tmp_path: Path) -> None:
    gathered = Gathered(FileLedger("source", (), SegmentFiles(f"{tmp_path}/")))
    gathered.add("k0001", "k0005", rows_of(["k0002"]))
    gathered.add("k0005", None, rows_of([]))
    gathered.add(None, "k0001", rows_of(["k0000", "k0001"]))

    files, rows = gathered.taken(few=3)

    assert files == []
    assert rows is not None
    assert rows.column("key").to_pylist() == ["k0000", "k0001", "k0002"]
    assert list(tmp_path.iterdir()) == []
    assert Gathered(FileLedger("source", ())).taken(few=3) == ([], None)


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "on_modified": st.just("skip"),
        "compare": st.just("mtime"),
        "ready_marker": st.just("_no"),
        "delay": st.just(timedelta(hours=10)),
        "clears": st.just(True),
    },
)


@settings(max_examples=cases(20, long=600), deadline=None)
@given(RUNS, LIMITS.map(lambda limits: {"max_files": 3} | limits), OPTIONS, st.integers(1, 5))
def test_batches_are_the_same_when_their_listings_are_taken_in_pieces(
    runs: Any, limits: Any, options: dict[str, Any], page: int
) -> None:
    bucket = Bucket(page=page)
    whole, in_parts = Job(bucket, **limits, **options), Job(bucket, **limits, **options)

    for changes, _ in runs:
        change(bucket, changes)
        expected = whole.take()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pieces, "PIECE_ROWS", 1)
            assert in_parts.take() == expected
        assert (in_parts.last.gone, in_parts.last.has_more) == (whole.last.gone, whole.last.has_more)
        assert in_parts.bookmark().listed == whole.bookmark().listed
        known = in_parts.bookmark().ledger.known().between(None, None)
        assert known.sort_by("key").equals(whole.bookmark().ledger.known().between(None, None).sort_by("key"))
        bucket.wait(minutes=1)


def memory_of_a_run(monkeypatch: pytest.MonkeyPatch, objects: int) -> int:
    """Return the peak of Arrow's memory in bytes during a first run that took ten files."""
    monkeypatch.setattr(pieces, "PIECE_ROWS", 500)
    job = Job(Bucket(page=100), max_files=10)
    job.bucket.put(*(f"{number:06}.csv" for number in range(objects)))
    before = pa.default_memory_pool()
    watched = pa.proxy_memory_pool(before)
    pa.set_memory_pool(watched)
    try:
        assert len(job.take()) == 10
    finally:
        pa.set_memory_pool(before)
    return int(watched.max_memory())


def test_memory_does_not_grow_with_what_a_limited_first_run_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory_of_a_run(monkeypatch, 20_000) < 1.5 * memory_of_a_run(monkeypatch, 2_000)
