"""Sorting on disk: whatever the batches, the intervals are the sorted whole."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.helpers.listing import sorted_runs
from scripts.helpers.listing.objects import LISTED, Interval
from scripts.helpers.listing.sorted_runs import sorted_intervals

START = datetime(2026, 3, 16, tzinfo=timezone.utc)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_runs, "BLOCK_ROWS", 3)


def batch(rows: list[tuple[str, int]]) -> pa.RecordBatch:
    """Return rows of LISTED from keys and the seconds at which they changed."""
    shown = [
        {"key": key, "etag": f"e{age}", "version_id": None, "size": 1, "modified": START + timedelta(seconds=age)}
        for key, age in rows
    ]
    return pa.RecordBatch.from_pylist(shown, schema=LISTED)


keys = st.text(st.sampled_from("ab/é\ue000🎉"), max_size=4)
batches = st.lists(st.lists(st.tuples(keys, st.integers(0, 3)), max_size=8), max_size=8)


def found(intervals: list[Interval]) -> list[tuple[str, str]]:
    return [(row["key"], row["etag"]) for interval in intervals for row in interval.rows.to_pylist()]


@given(batches=batches, run_rows=st.integers(1, 30), interval_rows=st.integers(1, 30))
def test_rows_are_sorted_and_the_newest_of_each_key_when_merged(
    batches: list[list[tuple[str, int]]], run_rows: int, interval_rows: int
) -> None:
    newest: dict[str, int] = {}
    for key, age in (row for rows in batches for row in rows):
        newest[key] = max(age, newest.get(key, 0))

    intervals = list(
        sorted_intervals([batch(rows) for rows in batches], run_rows=run_rows, interval_rows=interval_rows)
    )

    assert found(intervals) == [(key, f"e{newest[key]}") for key in sorted(newest, key=str.encode)]


@given(batches=batches, run_rows=st.integers(1, 30), interval_rows=st.integers(1, 30))
def test_intervals_touch_and_hold_their_keys_when_merged(
    batches: list[list[tuple[str, int]]], run_rows: int, interval_rows: int
) -> None:
    intervals = list(
        sorted_intervals([batch(rows) for rows in batches], run_rows=run_rows, interval_rows=interval_rows)
    )

    assert intervals[0].after is None
    assert intervals[-1].until is None
    assert all(one.until == other.after is not None for one, other in itertools.pairwise(intervals))
    for interval in intervals:
        assert interval.rows.schema == LISTED
        for key in interval.rows.column("key").to_pylist():
            assert interval.after is None or key.encode() > interval.after.encode()
            assert interval.until is None or key.encode() <= interval.until.encode()


def test_interval_holds_few_rows_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_runs, "BLOCK_ROWS", 100)
    shuffled = [batch([(f"{(number * 7919) % 20_011:05}", 0)]) for number in range(20_000)]

    intervals = list(sorted_intervals(shuffled, run_rows=2_000, interval_rows=1_000))

    assert sum(interval.rows.num_rows for interval in intervals) == 20_000
    assert max(interval.rows.num_rows for interval in intervals) <= 1_000 + 10 * 100


def test_nothing_is_left_on_disk_when_the_intervals_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    intervals: Any = sorted_intervals([batch([(str(number), 0)]) for number in range(20)], run_rows=5, interval_rows=3)
    next(intervals)
    during = list(tmp_path.iterdir())

    intervals.close()

    assert during
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_yielded_when_the_batches_fail() -> None:
    def broken() -> Iterator[Any]:
        yield batch([("a", 0)])
        raise ValueError("gone")

    with pytest.raises(ValueError, match="gone"):
        next(sorted_intervals(broken(), run_rows=1))
