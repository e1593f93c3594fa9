"""Intervals of cursor values: merging, gaps, cutting into slices, and which of them a state stores."""

from __future__ import annotations

import itertools
import zlib
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from scripts.helpers.backfill import Backfill
from scripts.helpers.errors import BoundsError, CursorError, InvalidIdError, InvalidValueError, SourceError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.fields import ImplausibleError
from scripts.helpers.protocol.names import served_by
from scripts.helpers.protocol.packed_json import pack_json
from scripts.helpers.rows.coverage import (
    MAX_SLICES,
    BackfillRecord,
    backfill_bounds,
    backfill_record_id,
    slice_id,
    slices,
    with_ranges,
)
from scripts.helpers.rows.cursor_ranges import (
    cut_at,
    decode_ranges,
    encode_ranges,
    merged,
    overlap,
    range_end,
    shown_range,
    uncovered,
)
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.options import check_rows_plan
from scripts.helpers.rows.states import RowsState, ranges_read
from scripts.helpers.watermarks import Watermarks
from tests.support.dynamodb import FakeDynamoDB
from tests.support.listed_rows import ListedRows
from tests.support.reasons import because
from tests.support.rows_states import covered_by, origin_of, passed_range, state_of, with_coverage, with_coverage_kept
from tests.support.steps import commit

ID = (CursorColumn("id", "bigint"),)
PAIR = (CursorColumn("at", "date"), CursorColumn("id", "int"))
UTC = timezone.utc
LAST_UUID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
MOMENT = datetime(2023, 3, 16, 15, 45, tzinfo=UTC)


def intervals(*pairs: tuple[Any, Any]) -> list[Any]:
    return [(range_end(low), range_end(high) or None) for low, high in pairs]


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
    assert uncovered(intervals(wanted)[0], intervals(*covered)) == intervals(*expected)


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
    assert shown_range(intervals(pair)[0], columns) == shown


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((1, 5), (4, 9), True), ((1, 5), (5, 9), False), ((None, 5), (None, 1), True), ((5, None), (9, None), True),
        ((5, None), (1, 5), False), ((None, None), (3, 4), True),
    ],
    ids=repr,
)  # fmt: skip
def test_intervals_overlap_when_a_value_is_in_both(one: Any, other: Any, expected: bool) -> None:
    (first,), (second,) = intervals(one), intervals(other)

    assert overlap(first, second) is overlap(second, first) is expected


def test_intervals_are_parted_when_cut_at_ends_within_them() -> None:
    cut = cut_at(intervals((None, 4), (6, 9), (12, None)), [(), None, (4,), (5,), (8,), (7,), (2,), (8,), (12,), (20,)])

    assert cut == intervals((None, 2), (2, 4), (6, 7), (7, 8), (8, 9), (12, 20), (20, None))


def test_work_grows_with_intervals_plus_cuts_when_there_are_many_of_both() -> None:
    compared = 0

    class Counted(int):
        __hash__ = int.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return int(self) == other

        def __lt__(self, other: int) -> bool:
            return int(self) < other

    many = [((Counted(10 * low),), (Counted(10 * low + 8),)) for low in range(1_000)]

    cut = cut_at(many, [(Counted(10 * low + 5),) for low in range(1_000)])

    assert cut == intervals(*[pair for n in range(0, 10_000, 10) for pair in ((n, n + 5), (n + 5, n + 8))])
    assert compared < 100_000


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
    assert ranges_read(columns, low, high, descending) == intervals(*expected)


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        (state(10), [(None, 10)]),
        (state(None), []),
        (state(5, descending=True), [(6, None)]),
        (state(None, descending=True), []),
        (state(2**63, descending=True), []),
    ],
    ids=["rising", "no row yet", "falling", "falling, no row yet", "falling from the top"],
)
def test_state_covers_everything_it_passed_when_it_predates_coverage(live: dict[str, Any], expected: list[Any]) -> None:
    assert covered_by(live) == intervals(*expected)
    assert uncovered(passed_range(live), covered_by(live)) == []


def test_state_remembers_windows_and_origin_when_one_follows_the_other() -> None:
    first = with_coverage(state(5), None, intervals((None, 5)), "o1")

    second = with_coverage(state(9), first, intervals((7, 9)), "o2")

    assert second == state(9, covered=encode_ranges({"o1": intervals((None, 5), (7, 9))}, ["bigint"]))
    assert (covered_by(second), origin_of(second)) == (intervals((None, 5), (7, 9)), "o1")


def test_coverage_stays_and_the_jump_is_a_gap_when_a_value_is_set_by_hand() -> None:
    before = with_coverage(state(5), None, intervals((None, 5)), "o1")

    after = with_coverage_kept(state(20), before, "o2")

    assert (after["value"], covered_by(after), origin_of(after)) == (20, intervals((None, 5)), "o1")
    assert uncovered(passed_range(after), covered_by(after)) == intervals((5, 20))


@pytest.mark.parametrize(
    "before",
    [
        None,
        state(5, cursor_column="other"),
        state(Decimal("5.0"), type="decimal(9,1)"),
        state(5, descending=True),
    ],
    ids=["nothing", "another column", "another type", "another order"],
)
def test_coverage_starts_anew_when_a_value_is_set_over_another_source(before: Any) -> None:
    after = with_coverage_kept(state(20), before, "o2")

    assert (covered_by(after), origin_of(after)) == ([], "o2")


def test_coverage_stays_when_the_column_has_a_wider_type_by_now() -> None:
    before = with_coverage({**state(5), "type": "int"}, None, intervals((None, 5)), "o1")

    by_hand = with_coverage_kept(state(20), before, "o2")
    narrower = with_coverage_kept({**state(20), "type": "smallint"}, before, "o2")

    assert (covered_by(by_hand), origin_of(by_hand)) == (intervals((None, 5)), "o1")
    assert (covered_by(narrower), origin_of(narrower)) == ([], "o2")


@pytest.mark.parametrize(("before", "now"), [({}, {"descending": False}), ({"descending": False}, {})], ids=repr)
def test_coverage_stays_when_a_value_says_its_order_and_the_other_does_not(
    before: dict[str, Any], now: dict[str, Any]
) -> None:
    after = with_coverage_kept(
        state(20, **now), with_coverage(state(5, **before), None, intervals((None, 5)), "o1"), "o2"
    )

    assert (covered_by(after), origin_of(after)) == (intervals((None, 5)), "o1")


def test_coverage_given_by_hand_wins_when_a_value_is_set() -> None:
    given_state = with_coverage(state(20), None, intervals((0, 20)), "o1")

    assert with_coverage_kept(given_state, state(5), "o2") == given_state


def raw(text: str) -> bytes:
    return zlib.compress(text.encode())


ALTERED: list[Any] = [
    5, "text", [[1, 2]], b"", b"text", raw("{"), raw("[]"), raw("[[1, 2]]"), raw("{}"), raw('{"o": 5}'),
    raw('{"o": [[1]]}'), raw('{"o": [["1"], ["2"]]}'), raw('{"o": [[1.5], [2]]}'), raw('{"o": [[true], [2]]}'),
    raw('{"o": [[1, 1], [2, 2]]}'), raw('{"o": [[5], [-1]]}'), raw('{"o": [null, []]}'), raw('{"o": [{}, [1]]}'),
    raw('{"o": [{"": 1}, [1]]}'),
    raw('{"o": [[9223372036854775809], null]}'), raw('{"o": [], "p": []}'), raw('{"o": []}') + b"more",
    raw('{"o": []}')[:-3], raw("[" * 100_000), raw('{"o": [[' + "9" * 5_000 + "], null]}"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ALTERED)))
def test_coverage_is_refused_when_somebody_altered_it(number: int) -> None:
    with pytest.raises(ImplausibleError, match=r"^x\.covered is not ranges of "):
        state_of(state(5, covered=ALTERED[number])).unpacked("x")


def test_coverage_is_refused_when_it_inflates_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.helpers.rows.cursor_ranges.MAX_RAW_BYTES", 1_000)

    with pytest.raises(ImplausibleError, match=r"^coverage is not ranges of its cursor$"):
        decode_ranges(raw('{"o": [' + "null, " * 999 + "null]}"), ["bigint"])


@pytest.mark.parametrize(
    "live", [state("x"), state(5.0), state(10**30), state([1, 2]), state(5, type="double")], ids=repr
)
def test_state_is_refused_when_somebody_altered_the_value(live: dict[str, Any]) -> None:
    with pytest.raises(ImplausibleError, match=r"^x\.(value|type) is not "):
        RowsState.read(live, "x")


@pytest.mark.parametrize(
    "kinds",
    [("uuid", LAST_UUID), ("binary(16)", LAST_UUID), ("date", date.max), ("string", "x")],
    ids=lambda kind: kind[0],
)
@pytest.mark.parametrize("check", [RowsState.read, check_rows_plan])
def test_falling_order_is_refused_when_the_columns_are_no_numbers(check: Any, kinds: tuple[str, Any]) -> None:
    kind, value = kinds

    with pytest.raises(ImplausibleError, match=r"^x\.descending is not False, and only numbers are read downwards$"):
        check(state(value, type=kind, descending=True), "x")


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("timestamp", datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)),
        ("timestamp_ntz", MOMENT, MOMENT + timedelta(microseconds=1)),
        ("date", date.min, date.max),
        ("bigint", -(2**63) - 1, 2**63),
        ("decimal(38,18)", Decimal("-1E-18"), Decimal("99999999999999999999.999999999999999999")),
        ("decimal(5,0)", Decimal(-7), Decimal("1E+3")),
        ("string", "", "\U0001f6ab\x01\u0000"),
    ],
)
def test_ends_come_back_exactly_when_packed(kind: str, low: Any, high: Any) -> None:
    ranges: list[Any] = [((), (low,)), ((low,), (high,)), ((high,), None)]
    groups = {"o1": ranges, "": [((), None)], "none": []}

    back: Any = decode_ranges(encode_ranges(groups, [kind]), [kind])

    assert back == groups
    assert type(back["o1"][0][1][0]) is type(low)


def test_ends_of_several_columns_come_back_exactly_when_packed() -> None:
    groups = {"o1": [(("a",), ("a", 3)), (("b", -2), ("c",))]}

    assert decode_ranges(encode_ranges(groups, ["string", "int"]), ["string", "int"]) == groups


def test_ten_thousand_slices_fit_where_they_are_stored_when_packed() -> None:
    every = [(range_end(low), range_end(high)) for low, high in slices(MOMENT, MOMENT + timedelta(days=3_650), 10_000)]

    packed = encode_ranges({"done": every[::2], "begun": every[1::2]}, ["timestamp"])

    assert len(packed) < 60_000
    assert decode_ranges(packed, ["timestamp"]) == {"done": every[::2], "begun": every[1::2]}


def parted(count: int, start: int = 0) -> list[Any]:
    return intervals(*[(start + 3 * n, start + 3 * n + 1) for n in range(count)])


@pytest.mark.parametrize(
    "groups", [{"o1": parted(20_001)}, {"a": parted(10_001), "b": parted(10_000)}], ids=["one", "two backfills"]
)
def test_ranges_are_refused_where_written_and_read_when_they_are_more_than_twenty_thousand(groups: Any) -> None:
    coded = {name: [end for low, _ in ranges for end in ([3 if low[0] else 0], [1])] for name, ranges in groups.items()}

    with pytest.raises(InvalidValueError, match=r"at most 20,000 ranges each that do not touch\. Finish"):
        encode_ranges(groups, ["bigint"])
    with pytest.raises(ImplausibleError, match=r"^coverage is not ranges of its cursor$"):
        decode_ranges(pack_json(coded), ["bigint"])


def test_slice_begins_only_if_the_record_has_room_for_it_once_it_is_done() -> None:
    full = BackfillRecord(covered=parted(10_000), begun={"b": parted(10_000, 100_000)})
    (bounds,) = intervals((300_000, 300_001))

    stored = full.to_store(state_of(state()))

    assert BackfillRecord.read(stored) == full
    with pytest.raises(InvalidValueError, match=r"at most 20,000 ranges"):
        full.begin("b", bounds).to_store(state_of(state()))
    assert full.finish("b", full.begun["b"][0]).to_store(state_of(state()))["kind"] == "backfills"


@pytest.mark.parametrize("options", [{}, {"delay": timedelta(0)}], ids=["defaults", "a delay"])
def test_plan_of_many_contexts_is_stored_when_frozen(options: dict[str, Any]) -> None:
    watermarks = Watermarks("table", FakeDynamoDB("table"))  # type: ignore[arg-type]
    source = ListedRows(ID, [(1,), (2,)])
    contexts = [f"c{number}" for number in range(150 if not options else 140)]

    for _ in range(2):
        with IncrementalJob(watermarks, "parking") as job:
            for context in contexts:
                job.rows_since(source, "id", transformation_ctx=context, **options)

    assert watermarks.coverage("parking", "c0") == [(None, 3)]
    states = {context: with_coverage(state(9), None, intervals((None, 5), (7, 9)), "o" * 16) for context in contexts}
    watermarks.set_watermark("parking", states, why="as many by hand")
    assert watermarks.gaps("parking", "c139") == [(5, 7)]


def test_region_is_empty_when_the_job_found_no_row_yet() -> None:
    assert uncovered(passed_range(state(None)), []) == []


@pytest.mark.parametrize(
    ("kind", "bound", "told"),
    [
        ("bigint", "7", "low is a str that does not fit a bigint"),
        ("timestamp", datetime(2026, 1, 1), "low is a datetime without zone"),
        ("date", MOMENT, "low is a datetime that does not fit a date"),
        ("bigint", (1, 2), "low has 2 values for 1 columns"),
        (
            "timestamp",
            datetime.max.replace(tzinfo=timezone(timedelta(hours=-3))),
            "low is outside the years 1 to 9999",
        ),
    ],
)
def test_bound_is_refused_when_it_does_not_fit_the_cursor(kind: str, bound: Any, told: str) -> None:
    with pytest.raises(CursorError, match=told):
        state_of(state(None, type=kind)).end_that_fits(bound, "low")


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
        (Decimal("NaN"), 5, "low is not a number that a column can hold"),
        (Decimal("sNaN"), 5, "low is not a number that a column can hold"),
        (0, Decimal("Infinity"), "high is not a number that a column can hold"),
        (0, Decimal("1E+999999"), "high is not a number that a column can hold"),
        (Decimal("1E-999999"), 5, "low is not a number that a column can hold"),
        (Decimal("1E-77"), 5, "low is not a number that a column can hold"),
        (0, Decimal("1E+76"), "high is not a number that a column can hold"),
        (MOMENT, datetime.max.replace(tzinfo=timezone(timedelta(hours=-3))), "high is outside the years 1 to 9999"),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=3))), MOMENT, "low is outside the years 1 to 9999"),
    ],
    ids=repr,
)
def test_bounds_are_refused_when_nothing_is_between_them(low: Any, high: Any, told: str) -> None:
    with pytest.raises(BoundsError, match=told) as caught:
        backfill_bounds("repairs", low, high)

    assert str(caught.value).startswith("Bounds of 'repairs': ")
    assert caught.value.context == "repairs"


def test_bounds_are_taken_as_they_are_when_they_have_the_most_digits_there_can_be() -> None:
    smallest, largest = Decimal("1E-76"), Decimal("9E+75")

    assert backfill_bounds("repairs", smallest, largest) == ((smallest,), (largest,))


def test_bounds_hold_no_value_when_they_are_refused() -> None:
    with pytest.raises(BoundsError) as caught:
        backfill_bounds("repairs", 123_456, 12_345)

    assert "12" not in str(caught.value)


LONDON = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("low", "high", "n", "expected"),
    [
        (0, 10, 3, [0, 3, 6, 10]),
        (-5, 5, 2, [-5, 0, 5]),
        (0, 2, 9, [0, 1, 2]),
        (0, 10, 1, [0, 10]),
        (Decimal("1E+1"), Decimal("2E+1"), 4, [10, 12, 15, 17, 20]),
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
    ids=[
        "ints", "negative", "few steps", "one", "tens", "large", "decimals", "mixed", "leap day", "microseconds",
        "zones",
    ],
)  # fmt: skip
def test_slices_tile_the_bounds_when_cut(low: Any, high: Any, n: int, expected: list[Any]) -> None:
    found = slices(low, high, n)

    assert found == list(itertools.pairwise(expected))


@pytest.mark.parametrize("n", [0, -1, MAX_SLICES + 1, 2.0, True], ids=repr)
def test_slices_are_refused_when_their_number_makes_no_sense(n: Any) -> None:
    with pytest.raises(BoundsError, match=r"it must be a whole number from 1 to 10,000\."):
        slices(0, 10, n)


@pytest.mark.parametrize(("low", "high"), [("a", "b"), ((1, 2), (3, 4)), (1, (3, 4)), ((1, 2), 5), (None, 5)], ids=repr)
def test_slices_are_refused_when_the_bounds_cannot_be_cut(low: Any, high: Any) -> None:
    with pytest.raises(BoundsError, match="can be cut"):
        slices(low, high, 2)


@pytest.mark.parametrize("high", [Decimal("Infinity"), Decimal("NaN")], ids=repr)
def test_slices_are_refused_when_an_end_is_no_number(high: Decimal) -> None:
    with pytest.raises(BoundsError, match="high is not a number"):
        slices(0, high, 2)


def test_end_may_be_open_when_the_live_job_descends() -> None:
    assert backfill_bounds("repairs", 4, None, endless=True) == ((4,), None)


# --- names -----------------------------------------------------------------------------------------------


def name_of(
    low: Any = 0,
    high: Any = 9,
    context: str = "repairs",
    name: str = "backfill",
    origin: str = "",
    job: str = "parking",
) -> str:
    live = with_coverage(state(), None, [], origin)
    return slice_id(job, context, state_of(live), backfill_bounds(context, low, high), name)


def test_slice_has_one_name_when_the_same_bounds_are_written_differently() -> None:
    assert name_of(Decimal("0"), Decimal("9.00")) == name_of(Decimal("-0"), 9) == name_of(0, 9)
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
    assert backfill_record_id("parking", "repairs", state_of(state())).startswith("parking-coverage-")
    assert "12345" not in name_of(123_456, 123_457).replace(name_of().rpartition("-")[2], "")[:17]


def test_names_stay_within_the_limit_and_differ_when_the_live_job_has_a_long_one() -> None:
    jobs = ["landing/" + "x" * 246 + last for last in "ab"]

    names = {name_of(job=job) for job in jobs} | {backfill_record_id(job, "repairs", state_of(state())) for job in jobs}

    assert len(names) == 4
    assert {len(name) for name in names} == {255}
    assert all(name.startswith("landing/xxx") for name in names)
    assert all((served_by(name) or "").startswith("landing/xxx") for name in names)


@pytest.mark.parametrize("job", ["parking", "landing/" + "x" * 247], ids=["short", "long"])
def test_names_that_are_derived_keep_no_rule_when_the_live_job_keeps_it(job: str) -> None:
    watermarks = Watermarks("table", FakeDynamoDB("table"), job_id_rule="parking|landing/x{247}")  # type: ignore[arg-type]
    watermarks.set_watermark(job, state(10), transformation_ctx="repairs", why="a test")

    with Backfill(watermarks, job, transformation_ctx="repairs", low=3, high=7) as backfill:
        rows: Any = backfill.rows(ListedRows(ID, [(number,) for number in range(10)]), "id")

    assert rows == [(3,), (4,), (5,), (6,)]
    assert len(watermarks.history(backfill.job_id)) == 1
    assert watermarks.coverage(job, "repairs") == [(3, 7)]


@pytest.mark.parametrize(
    "job", ["other", "other-backfill-0123456789abcdef", "parking-backfill-x", "x" * 300 + "-backfill-0123456789abcdef"]
)
def test_name_is_refused_when_no_job_that_keeps_the_rule_can_have_it(job: str) -> None:
    watermarks = Watermarks("table", FakeDynamoDB("table"), job_id_rule="parking")  # type: ignore[arg-type]

    with pytest.raises(InvalidIdError):
        watermarks.latest(job)


# --- the record --------------------------------------------------------------------------------------


def test_record_comes_back_when_stored() -> None:
    (one, two, three) = intervals((None, 3), (5, 7), (7, 9))
    record = (
        BackfillRecord().begin("backfill", one).begin("backfill", two).begin("again", three).finish("backfill", two)
    )

    assert BackfillRecord.read(record.to_store(state_of(state()))) == record
    assert list(record.slices()) == [("backfill", one), ("again", three)]
    assert (record.covered, record.drop([("again", three)]).begun) == ([two], {"backfill": [one]})


@pytest.mark.parametrize("field", ["covered", "begun"])
def test_record_is_refused_when_somebody_altered_it(field: str) -> None:
    with pytest.raises(ImplausibleError, match=f"^x.{field} is not ranges of its cursor$"):
        BackfillRecord.read(BackfillRecord().to_store(state_of(state())) | {field: [[1, 2]]}, "x")


@pytest.mark.parametrize("stored", [5, "text", {}, {"kind": "rows"}], ids=str)
def test_record_is_refused_when_it_is_something_else(stored: Any) -> None:
    with pytest.raises(SourceError, check=because("changed"), match="a record of backfills"):
        BackfillRecord.read(stored)


def test_coverage_prints_as_ranges_and_can_be_set_again_when_it_is_looked_up(make_watermarks: Any) -> None:
    state = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 30}
    watermarks = make_watermarks()
    stored = with_coverage(state, None, [((), (10,)), ((20,), (30,))], "o1")
    commit(watermarks, "loans", "jr_1", {"loans": stored})

    found = watermarks.get_watermark_values("loans")["loans"]

    assert repr(found["covered"]) == str(found["covered"]) == "<the beginning to 10, 20 to 30>"
    assert "x\\x9c" not in repr(found)
    assert found == stored
    watermarks.set_watermark("loans", found, transformation_ctx="loans", why="a test")
    assert watermarks.latest("loans").watermarks["loans"]["covered"] == stored["covered"]


def test_coverage_prints_in_short_when_there_are_many_ranges_or_it_is_damaged() -> None:
    state = {"kind": "rows", "cursor_column": ["at", "id"], "type": ["date", "int"], "value": [date(2026, 1, 9), 1]}
    many = with_coverage(state, None, [((date(2026, 1, day), 1), (date(2026, 1, day), 2)) for day in range(1, 9)], "o1")

    shown: Any = with_ranges(many)
    damaged: Any = with_ranges({**many, "covered": b"none of ours"})

    assert repr(shown["covered"]).startswith("<(2026-01-01, 1) to (2026-01-01, 2), (2026-01-02, 1)")
    assert repr(shown["covered"]).endswith(", 3 more>")
    assert repr(damaged["covered"]) == "<12 bytes that are no ranges>"
    assert with_ranges({"kind": "files"}) == {"kind": "files"}
