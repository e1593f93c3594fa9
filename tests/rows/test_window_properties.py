"""The pure parts of row windows: the next value above, literals, and windows without gap or overlap."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scripts.helpers.errors import CursorError
from scripts.helpers.protocol.values import ImplausibleError, decode, encode
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.plan import plan_window
from scripts.helpers.rows.window import RowWindow
from tests.support.listed_rows import WHOLE_NUMBERS, ListedRows

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MICROSECOND = timedelta(microseconds=1)
WHOLE = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}

MOMENTS = st.datetimes(max_value=datetime(9999, 12, 31), timezones=st.just(timezone.utc))
DATES = st.dates(max_value=date(9999, 12, 30))


@st.composite
def decimals(draw: Any) -> tuple[Decimal, str]:
    """Draw a decimal and its type."""
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
TEXTS = st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.just("string"))


def steps(value: Any, kind: str) -> Fraction:
    """Return a value as a number of the smallest steps that its type can hold."""
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
    if kind == "string":
        (hexadecimal,) = re.fullmatch(r"CAST\(X'([0-9a-f]*)' AS STRING\)", text).groups()  # type: ignore[union-attr]
        return bytes.fromhex(hexadecimal).decode()
    (number,) = re.fullmatch(r"(-?\d+(?:\.\d+)?)(?:BD)?", text).groups()  # type: ignore[union-attr]
    assert text.endswith("BD") == kind.startswith("decimal")
    return Decimal(number)


@given(CURSORS)
def test_next_above_is_one_step_up_when_value_is_of_any_type(cursor: tuple[Any, str]) -> None:
    value, kind = cursor

    above: Any = CursorColumn("at", kind).next_above(value)

    assert type(above) is type(value)
    assert above > value
    assert steps(above, kind) - steps(value, kind) == 1


@given(whole_numbers() | decimals())
def test_next_below_undoes_next_above_when_value_is_a_number(cursor: tuple[Any, str]) -> None:
    value, kind = cursor
    column = CursorColumn("at", kind)

    assert column.next_above(column.next_below(value)) == value
    assert steps(value, kind) - steps(column.next_below(value), kind) == 1


@given(CURSORS | TEXTS)
@example((Decimal("9" * 38), "decimal(38,0)"))
@example(("' OR 1=1 --", "string"))
def test_literal_reads_back_as_the_value_when_value_is_of_any_type(cursor: tuple[Any, str]) -> None:
    value, kind = cursor

    text = SPARK.literal(value, kind)

    assert read_back(text, kind) == value


@given(CURSORS | TEXTS)
@example((Decimal("9" * 38), "decimal(38,0)"))
def test_literal_reads_back_as_the_value_when_it_was_stored(cursor: tuple[Any, str]) -> None:
    value, kind = cursor
    window = RowWindow((CursorColumn("at", kind),), (value,), (value,))

    stored = decode(*encode(window.to_plan()))

    assert read_back(SPARK.literal(stored["low"], kind), kind) == value


@given(CURSORS | TEXTS)
def test_value_comes_back_when_it_is_read_from_its_exact_text(cursor: tuple[Any, str]) -> None:
    value, kind = cursor
    column = CursorColumn("at", kind)
    texts = [str(value)]
    if kind == "timestamp":
        texts = [str((value - EPOCH) // MICROSECOND), value.isoformat()]
    elif kind == "timestamp_ntz":
        texts = [value.replace(tzinfo=None).isoformat(" "), value.replace(tzinfo=None).isoformat()]

    assert [column.from_text(text) for text in texts] == [value] * len(texts)


@given(CURSORS, st.sampled_from(["timestamp", "timestamp_ntz", "date", "int", "decimal(38,10)", "string"]))
def test_literal_is_refused_when_value_is_of_another_type(cursor: tuple[Any, str], kind: str) -> None:
    value, own = cursor
    family = {"timestamp_ntz": "timestamp", "tinyint": "int", "smallint": "int", "bigint": "int"}
    if family.get(own, own.partition("(")[0]) == family.get(kind, kind.partition("(")[0]):
        return

    with pytest.raises(CursorError, match=rf"is a {type(value).__name__}, not a {re.escape(kind)}"):
        SPARK.literal(value, kind)


@given(
    st.booleans() | st.floats() | st.none() | st.binary() | st.just("\ud800") | st.integers(2**63 + 1),
    st.sampled_from(["timestamp", "timestamp_ntz", "date", *WHOLE, "decimal(38,10)", "string", "decimal(", ""]),
)
def test_literal_is_refused_when_value_is_no_cursor(value: Any, kind: str) -> None:
    with pytest.raises(CursorError, match="by hand"):
        SPARK.literal(value, kind)


@given(st.text(), st.sampled_from(["timestamp", "timestamp_ntz", "date", *WHOLE, "decimal(38,10)", "decimal(", ""]))
def test_literal_is_refused_when_a_text_is_no_text_cursor(value: str, kind: str) -> None:
    with pytest.raises(CursorError, match="by hand"):
        SPARK.literal(value, kind)


@given(CURSORS, st.sampled_from(["low", "high"]), st.text() | st.booleans() | st.binary() | st.lists(st.integers()))
def test_plan_is_refused_when_one_of_its_ends_was_tampered_with(cursor: tuple[Any, str], end: str, value: Any) -> None:
    known, kind = cursor
    plan = RowWindow((CursorColumn("at", kind),), (known,), (known,)).to_plan() | {end: value}

    with pytest.raises(ImplausibleError, match=f"^repairs.{end} is not a value of type "):
        RowWindow.from_plan(plan, ["at"], "repairs")


# --- tiling ------------------------------------------------------------------------------------------

ID, AT, TEXT = CursorColumn("id", "int"), CursorColumn("at", "timestamp"), CursorColumn("key", "string")
PRICE = CursorColumn("price", "decimal(10,2)")
SMALL = st.integers(-3, 3)
KINDS = {
    "one": ((ID,), st.tuples(SMALL)),
    "decimal": ((PRICE,), st.tuples(SMALL.map(lambda cents: Decimal(cents).scaleb(-2)))),
    "text": ((TEXT,), st.tuples(st.text("\x01 aAZz~", max_size=3))),
    "two": ((ID, CursorColumn("part", "int")), st.tuples(SMALL, SMALL)),
    "three": ((ID, CursorColumn("part", "int"), TEXT), st.tuples(SMALL, SMALL, st.sampled_from(["", "a", "b"]))),
}
FALLING = {"one", "decimal", "two"}


@pytest.mark.parametrize(
    ("name", "descending"), [(n, False) for n in sorted(KINDS)] + [(n, True) for n in sorted(FALLING)]
)
@given(data=st.data())
def test_windows_tile_when_rows_come_in_any_order(name: str, descending: bool, data: Any) -> None:
    """Each window starts where the last one ended, and takes exactly the rows between its two ends."""
    columns, rows = KINDS[name]
    source, state, taken, reached = ListedRows(columns), None, [], None
    names = [column.name for column in columns]
    for batch in data.draw(st.lists(st.lists(rows, max_size=5), max_size=5)):
        source.listed = source.listed + batch
        window = plan_window(source, names, now=EPOCH, state=state, descending=descending)
        new = source.rows(window)
        assert window.low == reached
        beyond = [row for row in source.listed if reached is None or (row <= reached if descending else row >= reached)]
        assert sorted(new) == sorted(beyond)
        taken += new
        state, reached = decode(*encode(window.state_after)), window.high

    late = [row for row in source.listed if row not in taken]
    assert all(reached is not None and (row > reached if descending else row < reached) for row in late)


@given(st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=6), st.booleans()), max_size=8))
def test_rows_are_taken_exactly_once_when_stamps_show_within_the_delay(runs: Any) -> None:
    """Rows become visible 0 to 5 minutes after their stamp, the delay is 5 minutes, and a run may fail to commit."""
    now, delay = datetime(2026, 10, 25, tzinfo=timezone.utc), timedelta(minutes=5)
    source = ListedRows((AT,))
    taken: list[Any] = []
    state, high = None, None
    for ages, commit in [*runs, ([], True), ([], True)]:
        source.listed += [(now - timedelta(minutes=age),) for age in ages]
        window = plan_window(source, ["at"], now=now, state=state, delay=delay)
        assert window.low == high
        if commit:
            taken += source.rows(window)
            state = decode(*encode(window.state_after))
            high = window.high or window.low
        now += timedelta(minutes=7)

    assert sorted(taken) == sorted(source.listed)


@given(st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=8))
def test_rows_are_taken_exactly_once_when_their_numbers_rise_from_run_to_run(batches: list[list[int]]) -> None:
    source, state = ListedRows((PRICE,)), None
    taken: list[Any] = []
    for run, batch in enumerate(batches):
        source.listed += [(Decimal(100 * run + number).scaleb(-2),) for number in batch]
        window = plan_window(source, ["price"], now=EPOCH, state=state, delay=timedelta(0))
        taken += source.rows(window)
        state = decode(*encode(window.state_after))

    assert sorted(taken) == sorted(source.listed)


@given(st.tuples(SMALL, SMALL), st.tuples(SMALL, SMALL) | st.tuples(SMALL, st.none()), st.booleans())
def test_first_column_alone_bounds_the_filter_when_the_cursor_is_compound(low: Any, high: Any, down: bool) -> None:
    """A filter on the first column lets Spark and databases use an index or row groups on that column."""
    columns, _ = KINDS["two"]
    predicate = RowWindow(columns, low, high, descending=down).predicate(WHOLE_NUMBERS)
    first, last = ("<", ">") if down else (">", "<")

    assert predicate.startswith(f'"id" {first}= {low[0]} AND (')
    assert f' AND "id" {last}{"" if high[1] is None else "="} {high[0]} AND ' in predicate
