"""Cursor columns: ticks, clocks rounded down, and values read from exact text."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from scripts.helpers.errors import CursorError
from scripts.helpers.rows.cursors import CursorColumn

UTC = timezone.utc
LONG = "1234567890123456789012345678.0123456789"
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "tick"),
    [
        ("timestamp", timedelta(microseconds=1)), ("timestamp_ntz", timedelta(microseconds=1)), ("date", timedelta(1)),
        ("tinyint", 1), ("bigint", 1), ("decimal(10,2)", Decimal("0.01")), ("decimal(38,0)", Decimal(1)),
        ("string", None),
    ],
)  # fmt: skip
def test_tick_is_that_of_the_type_when_none_is_given(kind: str, tick: Any) -> None:
    assert CursorColumn("at", kind).tick == tick


@pytest.mark.parametrize("kind", ["double", "boolean", "array<int>", "decimal", "string collate UNICODE"])
def test_column_is_refused_when_its_type_has_no_exact_order(kind: str) -> None:
    with pytest.raises(CursorError) as caught:
        CursorColumn("at", kind)

    assert (
        f"'at': a {kind} has no exact order to resume from. Use a timestamp, date, integer or decimal column."
        in str(caught.value)
    )


def test_columns_are_equal_when_only_the_tick_differs() -> None:
    """A stored plan does not record the tick."""
    assert CursorColumn("at", "timestamp", timedelta(seconds=1)) == CursorColumn("at", "timestamp")


@pytest.mark.parametrize(
    ("kind", "tick", "value", "above"),
    [
        ("timestamp", timedelta(seconds=1), NOON, NOON + timedelta(seconds=1)),
        ("timestamp", timedelta(microseconds=3333), NOON, NOON + timedelta(microseconds=3333)),
        ("date", None, date(2026, 12, 31), date(2027, 1, 1)),
        ("string", None, "a", "a\x01"),
        ("string", None, "", "\x01"),
    ],
)
def test_next_above_goes_one_tick_up_when_asked(kind: str, tick: Any, value: Any, above: Any) -> None:
    assert CursorColumn("at", kind, tick).next_above(value) == above


@pytest.mark.parametrize(
    ("tick", "micros", "floor"),
    [
        (timedelta(milliseconds=1), 1_999, 1_000),
        (timedelta(milliseconds=1), 2_000, 2_000),
        (timedelta(milliseconds=100), 199_999, 100_000),
        (timedelta(seconds=1), 1_999_999, 1_000_000),
        (timedelta(minutes=1), 61_000_000, 60_000_000),
        (timedelta(microseconds=3333), 10_000, 6_667),
    ],
)
def test_floor_is_no_later_than_any_stamp_still_to_come(tick: timedelta, micros: int, floor: int) -> None:
    column = CursorColumn("at", "timestamp", tick)

    assert column.floor(NOON + timedelta(microseconds=micros)) == NOON + timedelta(microseconds=floor)


@pytest.mark.parametrize("year", [1, 1969, 1970, 9999])
def test_floor_rounds_down_when_the_year_is_before_1970_or_far_off(year: int) -> None:
    moment = datetime(year, 6, 1, 0, 0, 0, 700_000, tzinfo=UTC)

    assert CursorColumn("at", "timestamp", timedelta(seconds=1)).floor(moment) == moment.replace(microsecond=0)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("timestamp", NOON),
        ("timestamp_ntz", datetime(2026, 11, 2, 1, tzinfo=UTC)),
        ("date", date(2026, 11, 2)),
    ],
)
def test_clock_is_that_of_the_moments_own_zone_when_the_column_has_none(kind: str, expected: Any) -> None:
    moment = NOON.astimezone(timezone(timedelta(hours=13)))

    assert CursorColumn("at", kind).floor(moment) == expected


@pytest.mark.parametrize(
    ("kind", "value", "by", "told"),
    [("bigint", 5, timedelta(days=1), "timedelta"), ("timestamp", NOON, 5, "int"), ("string", "a", 5, "int")],
)
def test_value_is_not_moved_when_the_distance_is_one_of_another_type(kind: str, value: Any, by: Any, told: str) -> None:
    with pytest.raises(CursorError) as caught:
        CursorColumn("at", kind).shifted(value, by, 1)

    assert str(caught.value) == f"Cursor column 'at': a {kind} cannot be moved by a {told}."


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
@pytest.mark.parametrize(
    ("zone", "turn"),
    [
        ("Europe/London", datetime(2026, 10, 25, 1, tzinfo=UTC)),
        ("Europe/London", datetime(2026, 3, 29, 1, tzinfo=UTC)),
        ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
        ("Antarctica/Troll", datetime(2026, 10, 25, 1, tzinfo=UTC)),
        ("America/Sao_Paulo", datetime(2018, 2, 18, 2, tzinfo=UTC)),
    ],
)
def test_no_later_stamp_is_below_a_floor_when_clocks_are_turned(kind: str, zone: str, turn: datetime) -> None:
    """In Brazil the clocks went back at midnight, to 23:00 of the day before."""
    column = CursorColumn("at", kind)
    minutes = [*range(-200, 0, 5), -1, *range(0, 200, 5)]
    clocks = [(turn + minute * timedelta(minutes=1)).astimezone(ZoneInfo(zone)) for minute in minutes]
    stamps: list[Any] = [column.at(clock) for clock in clocks]
    floors: list[Any] = [column.floor(clock) for clock in clocks]

    assert all(floor <= min(stamps[number:]) for number, floor in enumerate(floors))
    assert floors == [min(stamps[number:]) for number in range(len(stamps))] or kind == "timestamp"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("timestamp", "2026-11-01T13:00:00+01:00", NOON),
        ("timestamp", "2026-11-01 12:00:00.0000009+00:00", NOON),
        ("timestamp", "2026-11-01 12:00:00Z", NOON),
        ("timestamp_ntz", "2026-11-01 12:00:00", NOON),
        ("timestamp_ntz", "2026-11-01T12:00:00.1234567", NOON + timedelta(microseconds=123_456)),
        ("date", "2026-11-01", NOON.date()),
        ("date", "2026-11-01 00:00:00", NOON.date()),
        ("bigint", "9007199254740993", 9007199254740993),
        ("decimal(38,10)", LONG, Decimal(LONG)),
        ("decimal(10,2)", "0E-2", Decimal("0.00")),
        ("string", "2026", "2026"),
    ],
)  # fmt: skip
def test_value_is_exact_when_it_is_read_from_text(kind: str, text: str, value: Any) -> None:
    assert CursorColumn("at", kind).from_text(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("timestamp", "infinity"), ("timestamp", "2026-11-01 12:00:00"), ("timestamp", str(10**18)),
        ("timestamp_ntz", "2026-11-01T12:00:00Z"), ("timestamp_ntz", "0001-01-01 00:00:00 BC"),
        ("date", "+10000-01-01"),
        ("date", "2026-11-01 07:00:00"), ("decimal(10,2)", "NaN"), ("decimal(10,2)", "Infinity"), ("int", "1.5"),
    ],
)  # fmt: skip
def test_text_is_refused_without_showing_it_when_python_cannot_hold_it(kind: str, text: str) -> None:
    with pytest.raises(CursorError) as caught:
        CursorColumn("at", kind).from_text(text)

    assert "Fix or filter that row." in str(caught.value)
    assert text not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("timestamp", "2026-01-31T10:00:00+01:00", datetime(2026, 1, 31, 9, tzinfo=timezone.utc)),
        ("timestamp", "2026-01-31 10:00Z", datetime(2026, 1, 31, 10, tzinfo=timezone.utc)),
        ("timestamp_ntz", "2026-01-31", datetime(2026, 1, 31, tzinfo=timezone.utc)),
        ("date", "2026-01-31", date(2026, 1, 31)),
        ("bigint", "-9007199254740993", -9007199254740993),
        ("decimal(38,10)", "0.1000000001", Decimal("0.1000000001")),
        ("string", "2026", "2026"),
    ],
)
def test_typed_value_is_read_when_it_can_mean_one_thing_only(kind: str, text: str, value: Any) -> None:
    assert CursorColumn("at", kind).from_typed(text, "--at") == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((kind, text) for kind in ("timestamp", "timestamp_ntz", "date") for text in ("2026", "20260110", "-5")),
        ("timestamp", "1768003200"),
        ("timestamp", "2026-01-31T10:00:00"),
        ("timestamp", ""),
        ("timestamp_ntz", "2026-01"),
        ("timestamp_ntz", "2026-01-31T10:00:00Z"),
        ("date", "31.1.2026"),
        ("date", "2026-W05-1"),
        ("date", "2026-01-31 10:00"),
        ("bigint", "٣"),
        ("bigint", "1_000"),
        ("bigint", " 1"),
        ("bigint", "1.5"),
        ("decimal(9,2)", "1e3"),
        ("decimal(9,2)", "1.005"),
        ("int", "9999999999999999999"),
        ("decimal(9,2)", "NaN"),
        ("uuid", "x"),
    ],
)
def test_typed_value_is_refused_when_it_could_mean_another_one(kind: str, text: str) -> None:
    with pytest.raises(CursorError) as caught:
        CursorColumn("at", kind).from_typed(text, "--at")

    assert f"--at is not of type {kind}. Write a timestamp as 2026-01-31T10:00:00+00:00" in str(caught.value)
