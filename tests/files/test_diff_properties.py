"""The difference between a listing and the known files equals that of two dictionaries, however both are split."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from scripts.helpers.files.diff import Known, compare
from scripts.helpers.listing import objects
from scripts.helpers.listing.objects import GONE, LEDGER, LISTED, Interval, byte_order
from tests.support.buckets import NOON

KEYS = st.text(st.sampled_from("ab/é\ue000🎉\n"), min_size=1, max_size=3)
OBJECTS = st.tuples(
    st.sampled_from("xy"), st.sampled_from([None, "null", "v1", "v2"]), st.integers(0, 1), st.integers(0, 1)
)
"""ETag, VersionId, size and second of change."""
LISTINGS = st.dictionaries(KEYS, OBJECTS, max_size=12)
SEGMENTS = st.lists(st.dictionaries(KEYS, st.none() | OBJECTS, max_size=8), max_size=4)
"""The oldest segment first; None stands for an object that is gone."""
CUTS = st.lists(KEYS, max_size=4, unique=True)
Facts = tuple[str, str | None, int, int]


def row(key: str, facts: Facts | None, **more: Any) -> dict[str, Any]:
    etag, version_id, size, second = facts or ("x", None, 0, 0)
    modified = NOON + timedelta(seconds=second)
    return {"key": key, "etag": etag, "version_id": version_id, "size": size, "modified": modified, **more}


def ledger(segment: dict[str, Facts | None]) -> pa.Table:
    rows = [
        row(key, facts, status=GONE if facts is None else "taken", version=1, run_id="r")
        for key, facts in segment.items()
    ]
    return pa.Table.from_pylist(rows, LEDGER).sort_by("key")


def intervals(listing: dict[str, Facts], cuts: list[str]) -> Iterator[Interval]:
    ends = [None, *sorted(cuts, key=byte_order), None]
    for after, until in zip(ends, ends[1:], strict=False):  # noqa: RUF007
        keys = [
            key for key in sorted(listing, key=byte_order)
            if (after is None or byte_order(key) > byte_order(after))
            and (until is None or byte_order(key) <= byte_order(until))
        ]  # fmt: skip
        yield Interval(after, until, pa.RecordBatch.from_pylist([row(key, listing[key]) for key in keys], LISTED))


def is_same(now: Facts, before: Facts, by_time: bool) -> bool:
    if None not in (now[1], before[1]) and (now[1], before[1]) != ("null", "null"):
        return now[1] == before[1]
    return (now[0], now[2]) == (before[0], before[2]) and (not by_time or now[3] == before[3])


def latest(segments: list[dict[str, Facts | None]]) -> dict[str, Facts]:
    found: dict[str, Facts | None] = {}
    for segment in segments:
        found |= segment
    return {key: facts for key, facts in found.items() if facts is not None}


@given(LISTINGS, SEGMENTS, CUTS, st.booleans())
def test_difference_is_that_of_dictionaries_when_listing_and_ledger_are_cut_anywhere(
    listing: dict[str, Facts], segments: list[dict[str, Facts | None]], cuts: list[str], by_time: bool
) -> None:
    known, expected = Known([ledger(segment) for segment in segments]), latest(segments)
    new, modified, gone = [], [], []

    for interval in intervals(listing, cuts):
        found = compare(interval, interval.rows, known.between(interval.after, interval.until), by_time)
        new += found.new.column("key").to_pylist()
        modified += found.modified.column("key").to_pylist()
        gone += found.gone.column("key").to_pylist()

    assert sorted(new) == sorted(listing.keys() - expected.keys())
    assert sorted(modified) == sorted(
        key for key in listing.keys() & expected.keys() if not is_same(listing[key], expected[key], by_time)
    )
    assert sorted(gone) == sorted(expected.keys() - listing.keys())


@given(SEGMENTS, KEYS)
def test_latest_row_of_a_key_is_that_of_the_newest_segment_when_several_have_it(
    segments: list[dict[str, Facts | None]], key: str
) -> None:
    known = Known([ledger(segment) for segment in segments])
    having = [segment for segment in segments if key in segment]

    found = known.latest(key)

    assert found == (ledger({key: having[-1][key]}).to_pylist()[0] if having else None)


@given(OBJECTS, OBJECTS)
def test_rows_and_columns_are_compared_by_one_rule(one: Facts, other: Facts) -> None:
    (interval,) = intervals({"a": one}, [])

    found = compare(interval, interval.rows, ledger({"a": other}))

    assert (found.modified.num_rows == 0) is objects.is_same(row("a", one), row("a", other))
