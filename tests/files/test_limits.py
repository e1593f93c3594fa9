"""The end of a batch is the same whether the files are in several shares or in one table."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scripts.helpers.files.rules import Limits, oldest_first
from scripts.helpers.files.spark import Stretch, blocks_of, is_earlier, narrowed
from scripts.helpers.listing.objects import LISTED

NOON = datetime(2026, 11, 24, 12, tzinfo=timezone.utc)
FILES = st.lists(
    # Age in seconds, size in bytes, share. Few ages, so that keys break ties; sizes far apart.
    st.tuples(st.integers(0, 5), st.sampled_from([0, 1, 2, 3, 1000]), st.integers(0, 3)),
    max_size=40,
)
LIMIT = st.one_of(st.none(), st.integers(1, 45))


@given(files=FILES, max_files=LIMIT, max_bytes=LIMIT, parts=st.integers(2, 5))
@example(files=[(1, 1000, 0), (0, 1, 1)], max_files=None, max_bytes=5, parts=2)
@example(files=[(2, 1, 0), (0, 1000, 0), (1, 1, 1)], max_files=None, max_bytes=2, parts=2)
@example(files=[(0, 0, 0), (0, 0, 1), (0, 2, 1)], max_files=None, max_bytes=1, parts=2)
@example(files=[(1, 0, 0)] * 9, max_files=None, max_bytes=1, parts=2)
@example(files=[(2, 1, 0), (1, 1, 1), (0, 1, 0)], max_files=2, max_bytes=None, parts=2)
def test_batch_is_that_of_one_table_when_its_files_lie_in_shares(
    files: list[tuple[int, int, int]], max_files: int | None, max_bytes: int | None, parts: int
) -> None:
    shares = tables_of(files)
    limits = Limits(max_files, max_bytes)
    candidates = [oldest_first(share, max_files, max_bytes, one_more=True)[0] for share in shares]

    stretch = Stretch()
    looks = 0
    while not stretch.is_settled:
        stretch = narrowed(stretch, [blocks_of(share, stretch, parts) for share in candidates], limits)
        looks += 1
        assert looks <= len(files) + 1

    found = pa.concat_tables(candidates)
    if stretch.until is not None:
        found = found.filter(is_earlier(found, stretch.until))
    expected, has_more = oldest_first(pa.concat_tables(shares), max_files, max_bytes)
    assert sorted(found.column("key").to_pylist()) == sorted(expected.column("key").to_pylist())
    assert has_more is (stretch.until is not None)


@pytest.mark.parametrize("limits", [Limits(max_files=40_000), Limits(max_bytes=70_000_000)], ids=["files", "bytes"])
def test_few_blocks_are_shown_a_few_times_when_shares_are_large(limits: Limits) -> None:
    parts, shown = 32, []
    shares = tables_of([(number * 7919 % 100_003, number % 4000, number % 4) for number in range(100_000)])

    stretch = Stretch()
    while not stretch.is_settled:
        blocks = [blocks_of(share, stretch, parts) for share in shares]
        shown.append(sum(len(share.blocks) for share in blocks))
        stretch = narrowed(stretch, blocks, limits)

    assert max(shown) <= 3 * parts * len(shares) + len(shares)
    assert len(shown) <= 5


def test_nothing_ends_the_batch_when_there_is_no_limit() -> None:
    shares = [blocks_of(share, Stretch(), 2) for share in tables_of([(0, 5, 0), (1, 5, 1)])]

    assert narrowed(Stretch(), shares, Limits()) == Stretch(is_settled=True)
    assert [Limits().is_any, Limits(max_bytes=1).is_any, Limits(max_files=1).is_any] == [False, True, True]


def tables_of(files: list[tuple[int, int, int]]) -> list[pa.Table]:
    """Return the files in four shares; the order of the keys differs from that of the times."""
    rows: list[list[dict[str, object]]] = [[], [], [], []]
    for number, (age, size, share) in enumerate(files):
        key = f"{'é' if number % 3 else '🎉'}/{number}"
        rows[share].append({"key": key, "etag": "e", "size": size, "modified": NOON - timedelta(seconds=age)})
    return [pa.Table.from_pylist(share, LISTED) for share in rows]
