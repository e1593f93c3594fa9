"""Windows of a thousand years: no more queries than for any other window, and each row once."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timezone
from typing import Any

import pytest

from scripts.helpers.databases import table
from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.rows.window import RowWindow
from tests.support.row_windows import plan

Maker = Callable[..., JdbcTable]
START = {
    "timestamptz": datetime(1026, 1, 1, tzinfo=timezone.utc),
    "timestamp": datetime(1026, 1, 1, tzinfo=timezone.utc),
    "date": date(1026, 1, 1),
}
ROWS = 2_001


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MANY", 1_000)


@pytest.fixture
def filled(postgres: Any) -> Callable[[str], str]:
    """Return a function that makes a table with one row for each half year of a thousand years."""

    def make(kind: str) -> str:
        name: str = postgres.new_table(f"id int primary key, at {kind} NOT NULL")
        stamps = f"({kind} '1026-01-01' + n * interval '6 months')::{kind}"
        postgres.sql(
            "SET timezone = 'UTC'",
            f"INSERT INTO {name} SELECT n, {stamps} FROM generate_series(0, {ROWS - 1}) n",
            f"CREATE INDEX ON {name} (at)",
        )
        return name

    return make


def queries(postgres: Any, name: str, work: Callable[[], Any]) -> int:
    """Return the number of statements over a table that return rows, from the server's log."""
    before = postgres.log()
    work()
    sent = [line for line in postgres.log_since(before).splitlines() if f'"{name}"' in line and "1=0" not in line]
    return sum(1 for line in sent if re.search(r"(execute|statement).*SELECT", line))


@pytest.mark.parametrize("kind", START)
def test_queries_are_no_more_than_asked_for_when_the_window_is_a_thousand_years(
    postgres: Any, table_in: Maker, filled: Callable[[str], str], kind: str
) -> None:
    name = filled(kind)
    source = table_in(name, partitions=7, zone="UTC")
    window = plan(source, "at", start_from=START[kind])
    df = source.rows(window).select("id")
    taken: list[int] = []

    sent = queries(postgres, name, lambda: taken.extend(row["id"] for row in df.collect()))

    assert sent == 7
    assert sorted(taken) == list(range(ROWS))


def test_planning_and_cutting_are_a_few_queries_when_the_window_is_a_thousand_years(
    postgres: Any, table_in: Maker, filled: Callable[[str], str]
) -> None:
    """One query for the facts, one for the ends and the count; Spark's queries about columns return no rows."""
    name = filled("date")
    source = table_in(name, zone="UTC")
    windows: list[RowWindow] = []

    planning = queries(postgres, name, lambda: windows.append(plan(source, "at", start_from=START["date"])))
    cutting = queries(postgres, name, lambda: source.rows(windows[0]))

    assert (planning, cutting) == (1, 1)
