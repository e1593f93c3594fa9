"""Coverage equals a set of numbers, whatever the order and overlap of live runs, slices, crashes and decisions."""

from __future__ import annotations

import itertools
from datetime import timezone
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from scripts.helpers.protocol.values import decode, encode
from scripts.helpers.rows.coverage import slices
from scripts.helpers.rows.cursor_ranges import decode_ranges, encode_ranges, merged, range_end, uncovered
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.states import ranges_read
from tests.support.rows_states import covered_by, passed_range, with_coverage, with_coverage_kept

END = 30
NUMBERS = st.integers(0, END)
PAIRS = st.tuples(st.none() | NUMBERS, st.none() | NUMBERS)


def numbers(intervals: Any) -> set[int]:
    """Return the numbers from -1 to `END` + 1 that lie in the intervals; -1 and `END` + 1 stand for infinity."""
    found = set()
    for low, high in intervals:
        start, stop = low[0] if low else -1, high[0] if high else END + 2
        found |= set(range(start, stop))
    return found


def interval(pair: tuple[int | None, int | None]) -> Any:
    return range_end(pair[0]), range_end(pair[1]) or None


@given(st.lists(PAIRS))
def test_merged_intervals_hold_the_same_numbers_and_do_not_touch(pairs: list[Any]) -> None:
    intervals = [interval(pair) for pair in pairs]

    found = merged(intervals)

    assert numbers(found) == numbers(intervals)
    assert merged(reversed(intervals)) == found == merged(found + intervals)
    for (_, high), (low, _) in itertools.pairwise(found):
        assert high is not None
        assert high < low


@given(PAIRS, st.lists(PAIRS))
def test_gaps_and_coverage_tile_what_is_wanted(wanted: Any, pairs: list[Any]) -> None:
    intervals = [interval(pair) for pair in pairs]

    gaps = uncovered(interval(wanted), intervals)

    assert numbers(gaps) == numbers([interval(wanted)]) - numbers(intervals)
    assert merged(gaps) == gaps


@given(st.integers(-(10**30), 10**30), st.integers(1, 10**20), st.integers(1, 50))
def test_slices_tile_and_differ_by_one_step_at_most(low: int, length: int, n: int) -> None:
    found = slices(low, low + length, n)

    assert (found[0][0], found[-1][1]) == (low, low + length)
    assert all(one[1] == other[0] for one, other in itertools.pairwise(found))
    sizes = {high - start for start, high in found}
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1
    assert len(found) == min(n, length)


KINDS: dict[str, st.SearchStrategy[Any]] = {
    "timestamp": st.datetimes(timezones=st.just(timezone.utc)),
    "date": st.dates(),
    "bigint": st.integers(-(2**63) - 1, 2**63),
    "decimal(38,9)": st.decimals(-(10**28), 10**28, places=9),
    "string": st.text(),
}


@given(st.data(), st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=2))
def test_intervals_of_any_type_come_back_exactly_when_packed_and_stored(data: st.DataObject, types: list[str]) -> None:
    ends = st.lists(st.tuples(*(KINDS[kind] for kind in types)), unique=True, max_size=12)
    groups: dict[str, list[Any]] = {}
    for name in data.draw(st.sets(st.text(max_size=3), max_size=3)):
        points: list[Any] = sorted(data.draw(ends))
        points = [point[: data.draw(st.integers(1, len(types)))] for point in points]
        points = sorted(set(points))
        pairs: list[Any] = list(itertools.pairwise([(), *points]))[:: data.draw(st.integers(1, 2))]
        groups[name] = [*pairs, (points[-1], None)] if points else [((), None)]

    stored = decode(*encode({"covered": encode_ranges(groups, types)}))["covered"]

    assert decode_ranges(stored, types) == groups


STEPS = st.one_of(
    st.tuples(st.just("run"), st.integers(0, 6)),
    st.tuples(st.just("set"), NUMBERS),
    st.tuples(st.just("rewind"), st.integers(0, 10)),
    st.tuples(st.just("reset"), st.none()),
)


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=20), st.booleans())
def test_live_state_covers_what_its_runs_read(steps: list[Any], descending: bool) -> None:
    """Compare the stored state with a model: the set of numbers read since the context was last reset."""
    column = (CursorColumn("id", "bigint"),)
    state: Any = None
    model: set[int] = set()
    versions: list[Any] = []
    for number, (what, argument) in enumerate(steps):
        if what == "run":
            low = state and state["value"]
            start = low if low is not None else (END if descending else 0)
            high = max(start - argument, 0) if descending else min(start + argument, END)
            bounds = (None if low is None else (low,)), (high,)
            read = ranges_read(column, *bounds, descending)
            model = model | numbers(read)
            plain = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": high}
            state = with_coverage(plain | ({"descending": True} if descending else {}), state, read, f"o{number}")
        elif what == "set":
            values = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": argument}
            state = with_coverage_kept(values | ({"descending": True} if descending else {}), state, f"o{number}")
        elif what == "rewind" and versions:
            state, model = versions[argument % len(versions)]
        elif what == "reset":
            state, model = None, set()
            continue
        if state is not None:
            state = decode(*encode({"repairs": state}))["repairs"]
            versions.append((state, model))
            assert numbers(covered_by(state)) == model
            assert numbers(uncovered(passed_range(state), covered_by(state))) == numbers([passed_range(state)]) - model
