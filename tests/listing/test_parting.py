"""Cuts that are made before a listing: from the keys in a ledger, or by probing the prefix."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.helpers.listing.objects import byte_order
from scripts.helpers.listing.parting import (
    AT_ONCE,
    LEAST_REQUESTS,
    RANGES_MORE,
    REQUESTS_PER_RANGE,
    find_cuts,
    places,
    quantiles,
)
from tests.listing.listed_pages import ListedPages

PAGE = 20
WANTED = 16
FLAT = [f"part-{number:06d}.csv" for number in range(20_000)]
HEX = sorted(f"{(number * 2_654_435_761) % 2**32:08x}.csv" for number in range(20_000))
BIG_FOLDER = [f"f{number:03d}/{name:02d}" for number in range(100) for name in range(10)]
BIG_FOLDER += [f"f050x/{number:06d}" for number in range(19_000)]
DEVICES = [f"device-{number:04d}/{name}" for number in range(5_000) for name in range(4)]
PREFIX = [f"{'x' * 200}/{number:06d}" for number in range(20_000)]
SHAPES = {"flat": FLAT, "hex": HEX, "folder": sorted(BIG_FOLDER), "devices": DEVICES, "prefix": PREFIX}


def sizes(keys: Sequence[str], cuts: Sequence[str]) -> list[int]:
    """Return the number of keys in each range between cuts."""
    order = sorted(map(byte_order, keys))
    ends = [0, *(bisect_right(order, byte_order(cut)) for cut in cuts), len(keys)]
    return [end - start for start, end in pairwise(ends)]


# --- cuts from a ledger -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("files", [1, 7, 1_000])
def test_ranges_are_of_equal_size_when_the_ledger_knows_the_keys(shape: str, files: int) -> None:
    keys = SHAPES[shape]
    each = len(keys) // files
    parts = [keys[start : start + each] for start in range(0, len(keys), each)]
    step = len(keys) // (WANTED * 64)

    marks: list[str] = []
    for part, start in zip(parts, places([len(part) for part in parts], step), strict=True):
        marks += part[start::step]
    found = sizes(keys, quantiles(marks, WANTED))

    assert len(found) == WANTED
    assert max(found) <= 1.3 * median(found)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.integers(1, 30))
def test_places_are_those_of_one_long_file_when_there_are_many(counts: list[int], step: int) -> None:
    rows = list(range(sum(counts)))

    taken, first = [], 0
    for count, start in zip(counts, places(counts, step), strict=True):
        taken += rows[first : first + count][start::step]
        first += count

    assert taken == rows[step // 2 :: step]


def test_no_range_is_empty_when_one_key_was_overwritten_often() -> None:
    assert quantiles(["b"] * 90 + ["a", "c"], 4) == ["b"]
    assert quantiles([], 4) == []


# --- cuts from probes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_no_range_has_most_keys_when_a_prefix_is_looked_at(shape: str) -> None:
    pages = ListedPages(SHAPES[shape], PAGE, pauses=(0,))

    cuts = find_cuts(pages, WANTED)

    found = sizes(pages.keys, cuts)
    assert WANTED <= len(found) <= RANGES_MORE * WANTED + 1
    assert max(found) <= 0.15 * len(pages.keys)
    assert pages.most_at_once <= AT_ONCE


@pytest.mark.parametrize("shape", SHAPES)
def test_requests_for_cuts_are_bounded_when_keys_are_many(shape: str) -> None:
    pages = ListedPages(SHAPES[shape], PAGE, pauses=(0,))

    find_cuts(pages, WANTED)

    # The cuts of the last ranges may take more requests than are left.
    assert pages.pages + pages.probes <= 1.5 * (LEAST_REQUESTS + REQUESTS_PER_RANGE * WANTED)


def test_prefix_is_not_cut_when_a_page_holds_it() -> None:
    pages = ListedPages(FLAT[:PAGE], PAGE)

    assert find_cuts(pages, WANTED) == []
    assert (pages.pages, pages.probes) == (1, 0)


@given(st.sets(st.text("ab/é🎉", min_size=1, max_size=5), max_size=40), st.integers(1, 20), st.integers(1, 5))
def test_cuts_part_all_keys_when_a_prefix_is_looked_at(keys: set[str], wanted: int, size: int) -> None:
    cuts = find_cuts(ListedPages(keys, size, pauses=(0,)), wanted)

    assert cuts == sorted(set(cuts), key=byte_order)
    assert len(cuts) <= RANGES_MORE * wanted
