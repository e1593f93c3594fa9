"""Which intervals are compared, in which types columns are compared, and what counts as a difference."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.verification import (
    MOST,
    Choice,
    Compared,
    Difference,
    Verification,
    common_kind,
    covered_below,
    difference_of,
    is_nested_type,
    verified,
)

ID, AT, DAY = CursorColumn("id", "bigint"), CursorColumn("at", "timestamp"), CursorColumn("day", "date")


def at(day: int, hour: int = 0) -> datetime:
    return datetime(2026, 1, day, hour, tzinfo=timezone.utc)


def test_newest_days_and_some_others_are_compared_when_there_are_many() -> None:
    choice = Choice(recent=2, sample=3, seed=1)

    spans, total = choice.spans(AT, [(None, at(30, 6))], at(1, 12))

    assert total == 30
    assert spans[:2] == [(at(30), at(30, 6)), (at(29), at(30))]
    assert len(spans) == 5
    assert spans == sorted(spans, key=lambda span: span[1], reverse=True)
    assert choice.spans(AT, [(None, at(30, 6))], at(1, 12))[0] == spans


def test_three_newest_and_five_others_are_compared_when_nothing_else_is_said() -> None:
    found: tuple[Any, int] = Choice(seed=1).spans(ID, [(0, 1_000)], None)

    spans, total = found
    assert (total, len(set(spans)), len(spans)) == (100, 8, 8)
    assert spans[:3] == [(990, 1_000), (980, 990), (970, 980)]
    assert all(low < 970 for low, _ in spans[3:])


def test_ten_thousand_intervals_are_compared_and_no_more_when_all_are_asked_for() -> None:
    everything = Choice(interval=1, everything=True, recent=MOST)

    assert everything.spans(ID, [(0, MOST)], None)[1] == MOST == 10_000
    with pytest.raises(InvalidValueError, match="10,001 intervals are more than 10,000"):
        everything.spans(ID, [(0, MOST + 1)], None)


def test_oldest_interval_is_open_only_where_everything_before_was_read() -> None:
    everything = Choice(everything=True, interval=timedelta(days=10))

    from_the_beginning, _ = everything.spans(AT, [(None, at(20))], at(3))
    from_a_value, _ = everything.spans(AT, [(at(3), at(20))], at(1))

    assert (from_the_beginning[-1][0], from_a_value[-1][0]) == (None, at(3))


@given(
    st.lists(st.integers(-300, 300), min_size=2, max_size=8, unique=True),
    st.integers(1, 50),
    st.booleans(),
    st.integers(-400, 400) | st.none(),
)
def test_intervals_tile_what_was_read_when_all_are_compared(
    ends: list[int], width: int, is_open: bool, smallest: int | None
) -> None:
    ends = sorted(ends)[: len(ends) // 2 * 2]
    covered: list[Any] = list(zip(ends[::2], ends[1::2], strict=True))
    if is_open:
        covered[0] = (None, covered[0][1])

    spans, total = Choice(interval=width, everything=True).spans(ID, covered, smallest)

    assert len(spans) == total
    for low, high in covered:
        within = [span for span in reversed(spans) if (low is None or span[1] > low) and span[1] <= high]
        within = [span for span in within if low is not None or not (span[0] is not None and span[0] >= high)]
        assert (within[0][0], within[-1][1]) == (low, high)
        for one, other in pairwise(within):
            assert one[1] == other[0]


@pytest.mark.parametrize(
    ("column", "covered", "interval", "spans"),
    [
        (ID, [(0, 250)], 100, [(200, 250), (100, 200), (0, 100)]),
        (ID, [(0, 1_000)], None, 100),
        (DAY, [(date(2026, 1, 1), date(2026, 1, 3))], None, [(date(2026, 1, 2), date(2026, 1, 3)),
                                                              (date(2026, 1, 1), date(2026, 1, 2))]),
        (CursorColumn("n", "decimal(9,2)"), [(Decimal("0.50"), Decimal("1.50"))], 1,
         [(Decimal("1.00"), Decimal("1.50")), (Decimal("0.50"), Decimal("1.00"))]),
        (CursorColumn("k", "string"), [(None, "a"), ("c", "d")], None, [("c", "d"), (None, "a")]),
        (ID, [(None, 5)], None, [(None, 5)]),
    ],
)  # fmt: skip
def test_intervals_follow_the_type_of_the_cursor(column: CursorColumn, covered: Any, interval: Any, spans: Any) -> None:
    found, total = Choice(interval=interval, everything=True).spans(column, covered, None)

    assert (found if isinstance(spans, list) else total) == spans


@pytest.mark.parametrize(
    ("column", "options", "text"),
    [
        (AT, {"interval": 5}, "interval=5 does not fit the cursor 'at', a timestamp"),
        (AT, {"interval": timedelta(0)}, "does not fit"),
        (AT, {"interval": timedelta(microseconds=1), "everything": True}, "are more than 10,000"),
        (DAY, {"interval": timedelta(hours=5)}, "does not fit"),
        (ID, {"interval": timedelta(days=1)}, "does not fit"),
        (ID, {"interval": 0}, "does not fit"),
        (ID, {"interval": True}, "does not fit"),
        (ID, {"interval": "1d"}, "does not fit"),
        (CursorColumn("k", "string"), {"interval": 5}, "interval= does not fit the cursor 'k', a string"),
    ],
)
def test_interval_is_refused_when_it_does_not_fit(column: CursorColumn, options: Any, text: str) -> None:
    ranges: dict[str, Any] = {"at": (at(1), at(2)), "day": (date(2026, 1, 1), date(2026, 1, 9)), "id": (0, 9)}

    with pytest.raises(InvalidValueError, match=text):
        Choice(**options).spans(column, [ranges.get(column.name, ("a", "b"))], None)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"recent": -1}, "recent=-1 is not a whole number"),
        ({"sample": 10_001}, "sample=10001 is not a whole number from 0 to 10,000"),
        ({"sample": True}, "sample=True is not a whole number"),
        ({"recent": 0, "sample": 0}, "compare nothing"),
    ],
)
def test_choice_is_refused_when_it_compares_nothing(options: Any, text: str) -> None:
    with pytest.raises(InvalidValueError, match=text):
        Choice(**options)


def test_what_lies_above_the_watermark_is_left_out_when_a_backfill_has_read_it() -> None:
    read = [(None, (3, 7)), ((5, None), (12, None)), ((20, 1), None)]

    assert covered_below(read, (9, 4)) == [(None, (3, 7)), (5, (9, 4))]
    assert covered_below(read, (5, None)) == [(None, (3, 7))]
    assert covered_below([(1, None), (9, None)], 9) == [(1, 9)]


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ("int", "bigint", "bigint"),
        ("decimal(9,2)", "decimal(12,4)", "decimal(12,4)"),
        ("decimal(38,18)", "bigint", "decimal(38,18)"),
        ("decimal(38,0)", "decimal(38,18)", None),
        ("decimal(21,0)", "decimal(38,18)", None),
        ("float", "double", "double"),
        ("double", "decimal(9,2)", None),
        ("varchar(9)", "string", "string"),
        ("timestamp", "timestamp_ntz", None),
        ("array<int>", "array<int>", "array<int>"),
        ("struct<a:map<string,int>>", "struct<a:map<string,int>>", None),
    ],
)
def test_columns_are_compared_in_a_type_that_holds_both(one: str, other: str, kind: str | None) -> None:
    assert common_kind(one, other) == kind == common_kind(other, one)


def test_columns_are_left_out_with_the_reason_when_they_do_not_compare() -> None:
    compared = Compared.of({"id": "int", "a": "string", "d": "date"}, {"id": "bigint", "a": "date", "b": "int"}, None)

    assert compared.kinds == {"id": "bigint"}
    assert compared.left_out == {
        "a": "string in the source, date in the target", "d": "only in the source", "b": "only in the target",
    }  # fmt: skip
    chosen = Compared.of({"id": "int", "n": "int", "d": "date"}, {"id": "int", "n": "int"}, ["id"])
    assert (chosen.kinds, chosen.left_out) == ({"id": "bigint"}, {})
    with pytest.raises(InvalidValueError, match="'d' is only in the source; 'no' is on neither side"):
        Compared.of({"id": "int", "d": "date"}, {"id": "int"}, ["id", "d", "no"])
    with pytest.raises(InvalidValueError, match="no column to compare: 'a' is only in the source"):
        Compared.of({"a": "int"}, {}, None)


@pytest.mark.parametrize(
    ("kind", "nested"), [("array<int>", True), ("struct<a:int>", True), ("string", False), ("bigint", False)]
)
def test_type_is_nested_when_it_is_made_of_others(kind: str, nested: bool) -> None:
    assert is_nested_type(kind) is nested


@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(1, 3)),
    st.dictionaries(st.sampled_from("abc"), st.integers(1, 3)),
)
def test_difference_is_none_only_when_both_sides_have_the_same_rows(source: Any, target: Any) -> None:
    found = difference_of(source, target)

    assert (found == Difference()) == (source == target)
    assert sum(target.values()) - sum(source.values()) == found.extra + found.doubled - found.missing


@pytest.mark.parametrize("difference", [Difference(missing=1), Difference(doubled=1)])
def test_interval_differs_when_rows_are_missing_or_doubled_whether_they_move_or_not(difference: Difference) -> None:
    found = [verified((None, 5), 3, 4, difference, exact=exact) for exact in (False, True)]

    assert [one.differs for one in found] == [True, True]


def test_all_are_equal_when_none_differs_and_all_were_compared() -> None:
    result = Verification(
        [verified((None, 5), 3, 3, Difference(), exact=True)], "repairs", "rows", 1, Compared({"id": "int"}, {})
    )

    assert (result.is_equal, result.is_sampled, result.differing, list(result.mending())) == (True, False, [], [])
    assert repr(result).splitlines() == [
        "repairs, rows: 1 of 1 intervals compared, all equal:",
        "low                 high (not included)  source  target",
        "the very beginning  5                         3       3  equal",
    ]


def test_extra_rows_differ_only_where_rows_do_not_move() -> None:
    moved = Difference(extra=2)
    found = [verified((1, 5), 3, 5, moved, exact=exact) for exact in (False, True)]
    result = Verification(found, "repairs", "rows", 9, Compared({"id": "int"}, {}))

    assert [one.differs for one in result] == [False, True]
    assert (result.is_equal, result.is_sampled, len(result.differing)) == (False, True, 1)
    assert repr(result).splitlines() == [
        "repairs, rows: 2 of 9 intervals compared, 1 differ:",
        "low  high (not included)  source  target  extra",
        "1    5                         3       5      2  equal",
        "1    5                         3       5      2  differs",
    ]
    assert list(result.mending()) == [
        (
            "Backfill(watermarks, 'repairs', transformation_ctx='rows', low=1, high=5, write_disposition='merge', "
            "name='verify')"
        )
    ]
