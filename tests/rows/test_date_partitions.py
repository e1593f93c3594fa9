"""Filters on date partitions: the supported layouts, and that no date within the window is left out."""

from __future__ import annotations

import sqlite3
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.helpers.errors import SourceError
from scripts.helpers.rows.date_partitions import DatePartitions

DAY = timedelta(days=1)
LAYOUTS = [
    "import_year=%Y/import_month=%m/import_day=%d", "import_year=%Y/import_month=%m", "year=%Y", "import_date=%Y%m%d",
    "import_year=%Y/import_month=%m/import_day=%d/import_date=%Y%m%d", "month=%Y%m/day=%d",
]  # fmt: skip
DATES = st.dates(date(1999, 11, 1), date(2002, 2, 1))


def kept(partitions: DatePartitions, day: date, first: date | None, last: date | None) -> bool:
    """Return whether the filter keeps the partition of a day."""
    values = {name: int(day.strftime(form)) for name, form in partitions.parts}
    predicate = partitions.predicate(dict.fromkeys(values, "int"), first, last)
    columns = ", ".join(f"{value} AS {name}" for name, value in values.items())
    connection = sqlite3.connect(":memory:")
    found = connection.execute(f"SELECT 1 FROM (SELECT {columns}) WHERE {predicate or '1 = 1'}").fetchall()
    connection.close()
    return bool(found)


@pytest.mark.parametrize("layout", LAYOUTS)
@given(days=st.lists(DATES, min_size=3, max_size=3).map(sorted), slack=st.integers(0, 3))
def test_partition_is_kept_when_its_date_is_in_the_window(layout: str, days: list[date], slack: int) -> None:
    first, day, last = days
    partitions = DatePartitions(layout, slack * DAY)

    assert all(kept(partitions, day + off * DAY, first, last) for off in (-slack, 0, slack) if first <= day <= last)
    assert kept(partitions, day, first, None)
    assert kept(partitions, day, None, last)


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if "%d" in layout])
@given(days=st.lists(DATES, min_size=3, max_size=3).map(sorted), slack=st.integers(0, 3))
def test_partition_is_left_out_when_its_date_is_past_the_slack(layout: str, days: list[date], slack: int) -> None:
    first, last, _ = days
    partitions = DatePartitions(layout, slack * DAY)

    assert not kept(partitions, first - (slack + 1) * DAY, first, last)
    assert not kept(partitions, last + (slack + 1) * DAY, first, last)


@pytest.mark.parametrize(
    ("layout", "kind", "written"),
    [
        ("import_date=%Y%m%d", "int", "(`import_date` >= 20261024)"),
        ("import_date=%Y%m%d", "string", "(try_cast(`import_date` AS bigint) >= 20261024)"),
        ("import_date=%Y%m%d", "date", "(`import_date` >= DATE '2026-10-24')"),
        ("import_date=%Y-%m-%d", "date", "(`import_date` >= DATE '2026-10-24')"),
        ("import_date=%Y-%m-%d", "string", "(try_cast(`import_date` AS date) >= DATE '2026-10-24')"),
        ("import_date=%Y-%m", "string", "(try_cast(`import_date` AS date) >= DATE '2026-10-01')"),
        ("import_date=%Y", "date", "(`import_date` >= DATE '2026-01-01')"),
    ],
)
def test_values_are_written_as_the_column_holds_them_when_types_differ(layout: str, kind: str, written: str) -> None:
    predicate = DatePartitions(layout).predicate({"import_date": kind}, date(2026, 10, 25), None)

    assert predicate is not None
    assert predicate.startswith(f"({written} OR ")
    assert predicate.endswith(" IS NULL)")


def test_no_name_is_read_as_sql_when_it_is_strange() -> None:
    predicate = DatePartitions("a>`b=%Y").predicate({"a>`b": "int"}, None, date(2026, 10, 25))

    assert predicate == "((`a>``b` <= 2026) OR `a>``b` IS NULL)"


def test_filter_is_short_when_the_window_is_a_thousand_years() -> None:
    types = {"import_year": "int", "import_month": "int", "import_day": "int"}

    predicate = DatePartitions(LAYOUTS[0]).predicate(types, date(1026, 1, 1), date(2026, 1, 1))

    assert predicate is not None
    assert len(predicate) < 500


@pytest.mark.parametrize(("first", "last"), [(date.min, None), (None, date.max), (date.min, date.max), (None, None)])
def test_nothing_is_left_out_when_the_window_has_no_such_end(first: date | None, last: date | None) -> None:
    assert DatePartitions("year=%Y").predicate({"year": "int"}, first, last) is None


@pytest.mark.parametrize(
    "layout", ["", "year", "=%Y", "year=%y", "day=%d/year=%Y", "date=%d-%m-%Y", "month=%m", "year=%Y/week=%V", "year="]
)
def test_layout_is_refused_when_its_order_is_not_that_of_time(layout: str) -> None:
    with pytest.raises(SourceError, match=r"is not a layout by date\. Write it as import_year=%Y/") as caught:
        DatePartitions(layout)

    assert caught.value.source == layout


def test_slack_is_refused_when_it_is_below_zero() -> None:
    with pytest.raises(SourceError, match="slack=-1 day, 0:00:00 is below 0"):
        DatePartitions("year=%Y", -DAY)


@pytest.mark.parametrize(
    ("types", "text"),
    [
        ({"id": "int"}, "there is no column 'year'. The source has: id."),
        ({"year": "double"}, "column 'year' is a double, which holds no %Y. Fix the layout."),
    ],
)
def test_predicate_is_refused_when_the_columns_do_not_fit_the_layout(types: dict[str, str], text: str) -> None:
    with pytest.raises(SourceError) as caught:
        DatePartitions("year=%Y").predicate(types, date(2026, 1, 1), None)

    assert text in str(caught.value)
