"""The pure parts of row windows: the value just above, literals, and windows without gap or overlap."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scripts.helpers import row_window
from scripts.helpers.errors import CursorError
from scripts.helpers.row_window import RowWindow, _next_above, literal, plan_window
from scripts.helpers.values import decode, encode

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MICROSECOND = timedelta(microseconds=1)
WHOLE = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}

MOMENTS = st.datetimes(max_value=datetime(9999, 12, 31), timezones=st.just(timezone.utc))
DATES = st.dates(max_value=date(9999, 12, 30))


@st.composite
def decimals(draw: Any) -> tuple[Decimal, str]:
    """Draw a decimal with its type."""
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    unscaled = draw(st.integers(1 - 10**precision, 10**precision - 1))
    sign, digits, _ = Decimal(unscaled).as_tuple()
    return Decimal((sign, digits, -scale)), f"decimal({precision},{scale})"


@st.composite
def whole_numbers(draw: Any) -> tuple[int, str]:
    kind = draw(st.sampled_from(sorted(WHOLE)))
    return draw(st.integers(-WHOLE[kind], WHOLE[kind] - 1)), kind


CURSORS = st.one_of(
    st.tuples(MOMENTS, st.sampled_from(["timestamp", "timestamp_ntz"])),
    st.tuples(DATES, st.just("date")),
    whole_numbers(),
    decimals(),
)


def steps(value: Any, kind: str) -> Fraction:
    """Count a value in the smallest steps that its type can hold."""
    if isinstance(value, datetime):
        return Fraction((value - EPOCH) // MICROSECOND)
    if isinstance(value, date):
        return Fraction(value.toordinal())
    scale = int(kind.rstrip(")").partition(",")[2]) if "(" in kind else 0
    return Fraction(value) * 10**scale


def read_back(text: str, kind: str) -> Any:
    """Read a literal as Spark does."""
    if kind == "timestamp":
        (micros,) = re.fullmatch(r"timestamp_micros\((-?\d+)L\)", text).groups()  # type: ignore[union-attr]
        return EPOCH + timedelta(microseconds=int(micros))
    if kind == "timestamp_ntz":
        (moment,) = re.fullmatch(r"TIMESTAMP_NTZ '(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6})'", text).groups()  # type: ignore[union-attr]
        return datetime.fromisoformat(moment).replace(tzinfo=timezone.utc)
    if kind == "date":
        (day,) = re.fullmatch(r"DATE '(\d{4}-\d\d-\d\d)'", text).groups()  # type: ignore[union-attr]
        return date.fromisoformat(day)
    (number,) = re.fullmatch(r"(-?\d+(?:\.\d+)?)(?:BD)?", text).groups()  # type: ignore[union-attr]
    assert text.endswith("BD") == kind.startswith("decimal")
    return Decimal(number)


@given(CURSORS)
def test_next_above_is_one_step_up_when_value_is_of_any_type(cursor: tuple[Any, str]) -> None:
    value, kind = cursor

    above = _next_above(value, kind)

    assert type(above) is type(value)
    assert above > value
    assert steps(above, kind) - steps(value, kind) == 1


@given(CURSORS)
@example((Decimal("9" * 38), "decimal(38,0)"))
def test_literal_reads_back_as_the_value_when_value_is_of_any_type(cursor: tuple[Any, str]) -> None:
    value, kind = cursor

    text = literal(value, kind)

    assert read_back(text, kind) == value


@given(CURSORS)
@example((Decimal("9" * 38), "decimal(38,0)"))
def test_literal_reads_back_as_the_value_when_it_was_stored(cursor: tuple[Any, str]) -> None:
    value, kind = cursor
    window = RowWindow("at", kind, value, value)

    stored = decode(*encode(window.to_plan()))

    assert read_back(literal(stored["low"], kind), kind) == value


@given(CURSORS, st.sampled_from(["timestamp", "timestamp_ntz", "date", "int", "decimal(38,10)"]))
def test_literal_is_refused_when_value_is_of_another_type(cursor: tuple[Any, str], kind: str) -> None:
    value, own = cursor
    family = {"timestamp_ntz": "timestamp", "tinyint": "int", "smallint": "int", "bigint": "int"}
    if family.get(own, own.partition("(")[0]) == family.get(kind, kind.partition("(")[0]):
        return

    with pytest.raises(CursorError, match=rf"a stored bound is a {type(value).__name__}, not a {re.escape(kind)}"):
        literal(value, kind)


@given(
    st.text() | st.booleans() | st.floats() | st.none() | st.binary(),
    st.sampled_from(["timestamp", "timestamp_ntz", "date", *WHOLE, "decimal(38,10)", "string", "decimal(", ""]),
)
def test_literal_is_refused_when_value_is_no_cursor(value: Any, kind: str) -> None:
    with pytest.raises(CursorError, match="Reset the watermark by hand"):
        literal(value, kind)


# --- tiling ------------------------------------------------------------------------------------------


def inside(window: RowWindow, value: Any) -> bool:
    return window.high is not None and (window.low is None or window.low <= value) and value < window.high


def plan_after(state: Any, seen: list[Any], now: datetime, delay: timedelta, kind: str) -> RowWindow:
    """Plan a window over a list instead of a DataFrame."""

    def largest(*arguments: Any) -> Any:
        low = arguments[3]
        return max((value for value in seen if low is None or value >= low), default=None)

    with patch.object(row_window, "cursor_type", lambda *_: kind), patch.object(row_window, "_largest", largest):
        return plan_window(None, "at", now=now, state=state, delay=delay)  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=6), st.booleans()), max_size=8))
def test_rows_are_taken_exactly_once_when_stamps_show_within_the_delay(runs: Any) -> None:
    """Rows show 0 to 5 minutes after their stamp, the delay is 5; a run may also not commit."""
    now, delay = datetime(2026, 10, 25, tzinfo=timezone.utc), timedelta(minutes=5)
    rows: list[datetime] = []
    taken: list[datetime] = []
    state, high = None, None
    for ages, commit in [*runs, ([], True), ([], True)]:
        rows += [now - timedelta(minutes=age) for age in ages]
        window = plan_after(state, rows, now, delay, "timestamp")
        assert window.low == high
        if commit:
            taken += [row for row in rows if inside(window, row)]
            state = decode(*encode(window.state_after))
            high = state["value"]
        now += timedelta(minutes=7)

    assert sorted(taken) == sorted(rows)


@given(st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=8))
def test_rows_are_taken_exactly_once_when_their_numbers_rise_from_run_to_run(batches: list[list[int]]) -> None:
    state = None
    rows: list[Decimal] = []
    taken: list[Decimal] = []
    for run, batch in enumerate(batches):
        rows += [Decimal(100 * run + number).scaleb(-2) for number in batch]
        window = plan_after(state, rows, EPOCH, timedelta(0), "decimal(10,2)")
        taken += [row for row in rows if inside(window, row)]
        state = decode(*encode(window.state_after))

    assert sorted(taken) == sorted(rows)
