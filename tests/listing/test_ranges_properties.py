"""Listings by many workers: every key exactly once, or an error, whatever the keys, the pages and the timing."""

from __future__ import annotations

import random
import threading
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.helpers.errors import SourceError
from scripts.helpers.listing.cuts import LAST, MOST_CUTS
from scripts.helpers.listing.objects import Interval, byte_order
from scripts.helpers.listing.ranges import FREE_PROBES, PAGES_PER_PROBE, RangeListing
from tests.listing.listed_pages import ListedPages
from tests.support.long import cases

odd = st.sampled_from([" ", "%", "+", "\n", "\x01", "-", "0", "9", "a", "Z", "é", "\ue000", "\U0001f697", "\uffff"])
names = st.text(st.sampled_from("0123456789abcdefAZ-_. "), min_size=1, max_size=6) | st.text(
    odd, min_size=1, max_size=3
)
flat = st.sets(names, max_size=60)
nested = st.sets(st.lists(names | st.just(""), min_size=1, max_size=4).map("/".join).filter(bool), max_size=60)
numbered = st.builds(
    lambda count, width: {f"part-{n:0{width}d}.csv" for n in range(count)}, st.integers(0, 120), st.integers(1, 9)
)
alike = st.builds(lambda stem, keys: {stem + key for key in keys}, st.text("ab/", min_size=1, max_size=200), flat)
skewed = st.builds(
    lambda sizes: {f"day={day:02d}/{n:04d}" for day, size in enumerate(sizes) for n in range(size)},
    st.lists(st.sampled_from([0, 1, 3, 90]), min_size=1, max_size=8),
)
key_sets = flat | nested | numbered | alike | skewed
page_sizes, worker_counts, seeds = st.integers(1, 5), st.integers(1, 8), st.integers(0, 2**32)
bounds = st.none() | names | st.tuples(names, names).map("/".join)
timed = settings(max_examples=cases(40, long=500), deadline=None)


def listed(pages: ListedPages, workers: int, after: str | None = None, until: str | None = None) -> list[Interval]:
    listing = RangeListing(pages, "s3://bucket/", workers)
    listing.start(after, until)
    return list(listing)


def expected(keys: set[str], after: str | None = None, until: str | None = None) -> list[str]:
    low, high = byte_order(after or ""), byte_order(until) if until is not None else None
    wanted = (key for key in keys if byte_order(key) > low and (high is None or byte_order(key) <= high))
    return sorted(wanted, key=byte_order)


def in_place(intervals: list[Interval]) -> list[Interval]:
    return sorted(
        intervals, key=lambda interval: (byte_order(interval.after or ""), byte_order(interval.until or LAST))
    )


@timed
@given(key_sets, page_sizes, worker_counts, seeds)
def test_listing_gives_every_key_exactly_once_when_workers_race(
    keys: set[str], size: int, workers: int, seed: int
) -> None:
    intervals = listed(ListedPages(keys, size, seed), workers)

    found = [key for interval in in_place(intervals) for key in interval.rows.column("key").to_pylist()]
    assert found == expected(keys)


@timed
@given(key_sets, page_sizes, worker_counts, seeds, bounds, bounds)
def test_listing_gives_the_keys_between_when_bounds_are_given(
    keys: set[str], size: int, workers: int, seed: int, after: str | None, until: str | None
) -> None:
    if after is not None and until is not None and byte_order(after) >= byte_order(until):
        after = None

    intervals = in_place(listed(ListedPages(keys, size, seed), workers, after, until))

    assert [key for interval in intervals for key in interval.rows.column("key").to_pylist()] == expected(
        keys, after, until
    )
    assert (intervals[0].after, intervals[-1].until) == (after, until)


@timed
@given(key_sets, page_sizes, worker_counts, seeds)
def test_intervals_touch_and_hold_their_own_keys_when_workers_race(
    keys: set[str], size: int, workers: int, seed: int
) -> None:
    intervals = in_place(listed(ListedPages(keys, size, seed), workers))

    assert intervals[0].after is None
    assert intervals[-1].until is None
    assert all(one.until == other.after for one, other in pairwise(intervals))
    for interval in intervals:
        inside = interval.rows.column("key").to_pylist()
        assert inside == expected(set(inside), interval.after, interval.until)


@timed
@given(key_sets, page_sizes, worker_counts, seeds, st.integers(1, 12))
def test_listing_raises_when_a_page_is_refused(
    keys: set[str], size: int, workers: int, seed: int, fails_at: int
) -> None:
    pages = ListedPages(keys, size, seed, refused_page=fails_at)
    failed = None

    try:
        listed(pages, workers)
    except SourceError as error:
        failed = error

    assert (failed is not None) == (pages.pages >= fails_at)
    assert failed is None or str(failed) == "Source 's3://bucket/': page refused."


@timed
@given(key_sets, page_sizes, worker_counts, seeds, st.integers(1, 12))
def test_listing_is_complete_or_raises_when_a_probe_is_refused(
    keys: set[str], size: int, workers: int, seed: int, fails_at: int
) -> None:
    pages = ListedPages(keys, size, seed, refused_probe=fails_at)

    try:
        outcome = str(sum(interval.rows.num_rows for interval in listed(pages, workers)))
    except SourceError as error:
        outcome = str(error)

    refused = "Source 's3://bucket/': probe refused."
    assert outcome in ({str(len(keys)), refused} if pages.probes >= fails_at else {str(len(keys))})


@timed
@given(key_sets, page_sizes, worker_counts, seeds, st.integers(0, 5))
def test_no_thread_is_left_when_the_caller_stops_early(
    keys: set[str], size: int, workers: int, seed: int, taken: int
) -> None:
    before = threading.active_count()
    listing = RangeListing(ListedPages(keys, size, seed), "s3://bucket/", workers)
    listing.start()
    intervals = iter(listing)

    for _ in zip(range(taken), intervals, strict=False):
        pass
    intervals.close()  # type: ignore[attr-defined]

    assert threading.active_count() == before


@timed
@given(key_sets, page_sizes, worker_counts, seeds)
def test_probes_stay_few_when_pages_are_many(keys: set[str], size: int, workers: int, seed: int) -> None:
    pages = ListedPages(keys, size, seed)

    listed(pages, workers)

    one_split = 8 * (len("day=00/0000") + MOST_CUTS) + max((len(key) for key in keys), default=0)
    assert pages.probes <= FREE_PROBES + pages.pages // PAGES_PER_PROBE + workers * one_split


@timed
@given(key_sets, page_sizes, worker_counts, seeds)
def test_requests_at_once_are_no_more_than_workers_and_probes_when_workers_race(
    keys: set[str], size: int, workers: int, seed: int
) -> None:
    pages = ListedPages(keys, size, seed)

    listed(pages, workers)

    assert pages.most_at_once <= 2 * workers


@pytest.mark.parametrize("workers", [1, 4])
def test_listing_is_refused_when_the_server_shows_keys_out_of_order(workers: int) -> None:
    keys = [f"{number:03d}" for number in range(40)]
    random.Random(1).shuffle(keys)

    with pytest.raises(SourceError) as caught:
        listed(ListedPages(keys, 5, in_order=False), workers)

    assert str(caught.value) == (
        "Source 's3://bucket/': its server lists keys out of their byte order, so pages could hide some. "
        "Use S3Inventory."
    )
