"""Intervals of cursor values: merged, what is missing, cut in slices; and what a state remembers of them."""

from __future__ import annotations

import itertools
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from scripts.helpers.coverage import (
    covered_by,
    fitting,
    kept,
    merged,
    missing,
    point,
    read_by,
    record_id,
    region,
    span,
    with_coverage,
)
from scripts.helpers.cursors import CursorColumn
from scripts.helpers.errors import BoundsError, CursorError
from scripts.helpers.slices import MAX_SLICES, given, slice_id, slices

ID = (CursorColumn("id", "bigint"),)
PAIR = (CursorColumn("at", "date"), CursorColumn("id", "int"))
UTC = timezone.utc
MOMENT = datetime(2023, 3, 16, 15, 45, tzinfo=UTC)


def intervals(*pairs: tuple[Any, Any]) -> list[Any]:
    return [(point(low), point(high) or None) for low, high in pairs]


def state(value: Any = 10, **more: Any) -> dict[str, Any]:
    return {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": value, **more}


# --- arithmetic ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_pairs", "expected"),
    [
        ([], []),
        ([(1, 3), (3, 5)], [(1, 5)]),
        ([(4, 5), (1, 3)], [(1, 3), (4, 5)]),
        ([(1, 9), (2, 3), (9, 10)], [(1, 10)]),
        ([(None, 3), (2, None)], [(None, None)]),
        ([(5, None), (6, 7)], [(5, None)]),
        ([(3, 3), (5, 4)], []),
        ([((1, 2), (2, None)), ((2, None), (2, 7))], [((1, 2), (2, 7))]),
    ],
    ids=repr,
)
def test_intervals_are_as_few_as_can_be_when_merged(given_pairs: list[Any], expected: list[Any]) -> None:
    assert merged(intervals(*given_pairs)) == intervals(*expected)


@pytest.mark.parametrize(
    ("wanted", "covered", "expected"),
    [
        ((1, 9), [], [(1, 9)]),
        ((1, 9), [(3, 4), (6, 7)], [(1, 3), (4, 6), (7, 9)]),
        ((1, 9), [(None, None)], []),
        ((1, 9), [(0, 2), (8, 20)], [(2, 8)]),
        ((None, 9), [(3, 9)], [(None, 3)]),
        ((None, None), [(3, 9)], [(None, 3), (9, None)]),
        ((1, 9), [(9, 12), (-3, 1)], [(1, 9)]),
        (((1, 5), (3, None)), [((2, None), (2, 4))], [((1, 5), (2, None)), ((2, 4), (3, None))]),
    ],
    ids=repr,
)
def test_gaps_are_what_no_interval_covers_when_asked_for(wanted: Any, covered: list[Any], expected: list[Any]) -> None:
    assert missing(intervals(wanted)[0], intervals(*covered)) == intervals(*expected)


@pytest.mark.parametrize(
    ("pair", "columns", "shown"),
    [
        ((None, 5), 1, (None, 5)),
        (((1, None), (2, 3)), 2, ((1, None), (2, 3))),
        ((None, None), 2, (None, None)),
    ],
    ids=repr,
)
def test_interval_looks_like_bounds_when_shown(pair: Any, columns: int, shown: Any) -> None:
    assert span(intervals(pair)[0], columns) == shown


# --- windows and states ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "low", "high", "descending", "expected"),
    [
        (ID, None, (5,), False, [(None, 5)]),
        (ID, (5,), (9,), False, [(5, 9)]),
        (ID, (5,), (5,), False, []),
        (ID, None, None, False, []),
        (ID, (9,), (5,), True, [(6, 10)]),
        (ID, None, (5,), True, [(6, None)]),
        (PAIR, None, (date(2026, 1, 2), None), False, [(None, date(2026, 1, 2))]),
        (PAIR, (date(2026, 1, 1), 7), (date(2026, 1, 2), 1), False, [((date(2026, 1, 1), 7), (date(2026, 1, 2), 1))]),
    ],
    ids=repr,
)
def test_window_covers_what_it_reads_when_rising_or_falling(
    columns: Any, low: Any, high: Any, descending: bool, expected: list[Any]
) -> None:
    assert read_by(columns, low, high, descending) == intervals(*expected)


def test_state_covers_everything_below_its_value_when_it_is_from_before_coverage_was_kept() -> None:
    assert covered_by(state(10)) == intervals((None, 10))
    assert covered_by(state(None)) == []


def test_state_remembers_windows_and_origin_when_one_follows_the_other() -> None:
    first = with_coverage(state(5), None, intervals((None, 5)), "o1")

    second = with_coverage(state(9), first, intervals((7, 9)), "o2")

    assert second == state(9, covered=[[None, 5], [7, 9]], origin="o1")


def test_coverage_stays_and_the_jump_is_a_gap_when_a_value_is_set_by_hand() -> None:
    before = with_coverage(state(5), None, intervals((None, 5)), "o1")

    after = kept(state(20), before, "o2")

    assert after == state(20, covered=[[None, 5]], origin="o1")
    assert missing(region(after), covered_by(after)) == intervals((5, 20))


@pytest.mark.parametrize(
    "before",
    [None, "2023-03-16", {"kind": "files"}, state(5, cursor_column="other"), state(5, type="int")],
    ids=["nothing", "a text", "files", "another column", "another type"],
)
def test_coverage_starts_anew_when_a_value_is_set_over_another_source(before: Any) -> None:
    after = kept(state(20), before, "o2")

    assert after == state(20, origin="o2")
    assert covered_by(after) == []


def test_coverage_given_by_hand_wins_when_a_value_is_set() -> None:
    assert kept(state(20, covered=[[0, 20]]), state(5), "o2") == state(20, covered=[[0, 20]], origin="")


def test_values_stay_as_they_are_when_they_are_not_of_rows() -> None:
    assert kept({"latest_data": "2023"}, state(5), "o2") == {"latest_data": "2023"}


@pytest.mark.parametrize("covered", [5, [[1]], [["1", "2"]], [[1.5, 2]], [{"low": 1}], [[True, 2]]], ids=repr)
def test_coverage_is_refused_when_somebody_altered_it(covered: Any) -> None:
    with pytest.raises(CursorError, match=r"Reset the watermark by hand\."):
        covered_by(state(5, covered=covered))


@pytest.mark.parametrize(
    ("live", "expected"),
    [(state(10), (None, 10)), (state(10, descending=True), (11, None))],
    ids=["rising", "falling"],
)
def test_region_is_what_the_job_went_past_when_it_has_a_watermark(live: Any, expected: Any) -> None:
    assert region(live) == intervals(expected)[0]


def test_region_is_empty_when_the_job_found_no_row_yet() -> None:
    assert missing(region(state(None)), []) == []


@pytest.mark.parametrize(
    ("kind", "bound", "told"),
    [
        ("bigint", "7", "low is a str that does not fit a bigint"),
        ("timestamp", datetime(2026, 1, 1), "low is a datetime without zone"),
        ("date", MOMENT, "low is a datetime that does not fit a date"),
        ("bigint", (1, 2), "low has 2 values and the cursor 1"),
    ],
)
def test_bound_is_refused_when_it_does_not_fit_the_cursor(kind: str, bound: Any, told: str) -> None:
    with pytest.raises(CursorError, match=told):
        fitting(state(type=kind), bound, "low")


# --- bounds and slices -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (5, 5, "low is not below high"),
        (9, 5, "low is not below high"),
        (0, None, "high is missing"),
        (0.5, 9, "low is a float"),
        (0, True, "high is a bool"),
        (b"a", b"b", "low is a bytes"),
        (date(2026, 1, 1), MOMENT, "low is a date and high a datetime with zone. Give both in one type."),
        (datetime(2023, 1, 1), MOMENT, "low is a datetime without zone and high a datetime with zone"),
        ("a", 5, "low is a str and high a number"),
        ((1, 2), (1, 1), "low is not below high"),
    ],
    ids=repr,
)
def test_bounds_are_refused_when_nothing_is_between_them(low: Any, high: Any, told: str) -> None:
    with pytest.raises(BoundsError, match=told) as caught:
        given("repairs", low, high)

    assert str(caught.value).startswith("Bounds of 'repairs': ")
    assert caught.value.context == "repairs"


def test_bounds_hold_no_value_when_they_are_refused() -> None:
    with pytest.raises(BoundsError) as caught:
        given("repairs", 123_456, 12_345)

    assert "12" not in str(caught.value)


LONDON = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("low", "high", "n", "expected"),
    [
        (0, 10, 3, [0, 3, 6, 10]),
        (-5, 5, 2, [-5, 0, 5]),
        (0, 2, 9, [0, 1, 2]),
        (0, 2**70, 2, [0, 2**69, 2**70]),
        (Decimal("0.00"), Decimal("0.10"), 4, [Decimal(f"0.{cut}") for cut in ("00", "02", "05", "07", "10")]),
        (0, Decimal("0.2"), 2, [Decimal("0.0"), Decimal("0.1"), Decimal("0.2")]),
        (date(2024, 2, 28), date(2024, 3, 1), 2, [date(2024, 2, 28), date(2024, 2, 29), date(2024, 3, 1)]),
        (
            MOMENT, MOMENT + timedelta(microseconds=3), 2,
            [MOMENT + timedelta(microseconds=step) for step in (0, 1, 3)],
        ),
        (
            datetime(2026, 10, 25, 1, tzinfo=LONDON), datetime(2026, 10, 25, 1, tzinfo=UTC), 2,
            [datetime(2026, 10, 25, hour, minute, tzinfo=UTC) for hour, minute in ((0, 0), (0, 30), (1, 0))],
        ),
    ],
    ids=["ints", "negative", "few steps", "large", "decimals", "mixed", "leap day", "microseconds", "zones"],
)  # fmt: skip
def test_slices_tile_the_bounds_when_cut(low: Any, high: Any, n: int, expected: list[Any]) -> None:
    found = slices(low, high, n)

    assert found == list(itertools.pairwise(expected))


@pytest.mark.parametrize("n", [0, -1, MAX_SLICES + 1, 2.0, True], ids=repr)
def test_slices_are_refused_when_their_number_makes_no_sense(n: Any) -> None:
    with pytest.raises(BoundsError, match=r"it must be a whole number from 1 to 10,000\."):
        slices(0, 10, n)


@pytest.mark.parametrize(("low", "high"), [("a", "b"), ((1, 2), (3, 4)), (None, 5)], ids=repr)
def test_slices_are_refused_when_the_bounds_cannot_be_cut(low: Any, high: Any) -> None:
    with pytest.raises(BoundsError, match="can be cut"):
        slices(low, high, 2)


# --- names -----------------------------------------------------------------------------------------------


def name_of(low: Any = 0, high: Any = 9, context: str = "repairs", name: str = "backfill", **live: Any) -> str:
    return slice_id("parking", context, state(**live), given(context, low, high), name)


def test_slice_has_one_name_when_the_same_bounds_are_written_differently() -> None:
    assert name_of(Decimal("0"), Decimal("9.00")) == name_of(0, 9)
    assert name_of(MOMENT.astimezone(LONDON), datetime.max.replace(tzinfo=UTC)) == name_of(
        MOMENT, datetime.max.replace(tzinfo=UTC)
    )


def test_slice_has_a_name_of_its_own_when_anything_differs() -> None:
    names = [
        name_of(), name_of(low=1), name_of(high=8), name_of(low=None), name_of(context="parts"), name_of(name="again"),
        name_of(origin="o2"), name_of((0, 1), (9, 1)), name_of("0", "9"),
    ]  # fmt: skip

    assert len(set(names)) == len(names)


def test_names_begin_with_the_live_job_and_hold_no_value_when_made() -> None:
    assert name_of(123_456, 123_457).startswith("parking-backfill-")
    assert record_id("parking", "repairs", state()).startswith("parking-coverage-")
    assert "12345" not in name_of(123_456, 123_457).replace(name_of().rpartition("-")[2], "")[:17]
