"""Large windows are read in parallel by ranges of the cursor; each row is in exactly one range."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from scripts.helpers.databases import table
from scripts.helpers.databases.table import JdbcTable
from tests.support.row_windows import plan

Maker = Callable[..., JdbcTable]


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MANY", 1_000)


def filled(postgres: Any, at: str, kind: str, rows: int = 3_000) -> str:
    name: str = postgres.new_table(f"id int primary key, at {kind}")
    postgres.sql(f"CREATE INDEX ON {name} (at)", f"INSERT INTO {name} SELECT n, {at} FROM generate_series(1, {rows}) n")
    return name


CURSORS = {
    "bigint": "n * n",
    "timestamptz": "timestamptz '2026-01-01' + make_interval(secs => n * 61.000001)",
    "timestamp(3)": "timestamp '2026-03-01' + make_interval(mins => n * 30)",
    "date": "date '2026-01-01' + n / 100",
    "numeric(12,4)": "n / 7.0 - 100",
    "int": "CASE WHEN n > 5 THEN 2000000000 + n ELSE n END",
}


@pytest.mark.parametrize("kind", CURSORS)
def test_ranges_tile_the_window_when_it_is_large(postgres: Any, table_in: Maker, kind: str) -> None:
    name = filled(postgres, CURSORS[kind], kind)
    source = table_in(name, partitions=7, zone="UTC")
    window = plan(source, "at")

    df = source.rows(window)

    found = sorted(row["id"] for row in df.select("id").collect())
    assert found == list(range(1, 3_001))
    assert df.rdd.getNumPartitions() == 7


def test_rows_with_null_are_in_one_range_when_they_are_included(postgres: Any, table_in: Maker) -> None:
    source = table_in(filled(postgres, "CASE WHEN n % 10 = 0 THEN NULL ELSE n END", "int"), partitions=4)
    window = plan(source, "at", nulls="take", write_disposition="merge")

    df = source.rows(window)

    assert sorted(row["id"] for row in df.select("id").collect()) == list(range(1, 3_001))
    assert df.rdd.getNumPartitions() == 4


def test_ties_stay_together_when_cursor_is_compound(postgres: Any, table_in: Maker) -> None:
    source = table_in(filled(postgres, "n / 1000", "int"), partitions=3)
    window = plan(source, ["at", "id"])

    df = source.rows(window)

    assert sorted(row["id"] for row in df.select("id").collect()) == list(range(1, 3_001))
    assert df.rdd.getNumPartitions() == 3


@pytest.mark.parametrize(
    ("options", "at", "kind", "queries"),
    [
        ({}, "n", "int", 4),
        ({"partitions": 1}, "n", "int", 1),
        ({"partitions": 5}, "n % 2", "int", 1),
        ({"partitions": 5}, "7", "int", 1),
        ({"partitions": 5}, "n::text", "text", 1),
    ],
    ids=["two_for_each_core", "one_is_asked_for", "two_values", "one_value", "texts"],
)
def test_number_of_queries_is_bounded_when_the_window_is_large(
    postgres: Any, table_in: Maker, options: Any, at: str, kind: str, queries: int
) -> None:
    source = table_in(filled(postgres, at, kind), **options)
    window = plan(source, "at", strings=True)

    df = source.rows(window)

    assert df.rdd.getNumPartitions() == queries
    assert df.count() == 3_000


def test_one_query_is_enough_when_little_is_new(postgres: Any, table_in: Maker) -> None:
    name = filled(postgres, "n", "int")
    source = table_in(name, partitions=7)
    first = plan(source, "at")
    postgres.sql(f"INSERT INTO {name} SELECT n, n FROM generate_series(3001, 4000) n")

    second = source.rows(plan(source, "at", first))

    assert second.rdd.getNumPartitions() == 1
    assert second.count() == 1_000


def test_each_query_asks_for_its_range_only_when_several_read(postgres: Any, table_in: Maker) -> None:
    name = filled(postgres, "n", "int")
    source = table_in(name, partitions=3)
    window = plan(source, "at")
    before = postgres.log()

    source.rows(window).select("id").collect()

    sent = [line for line in postgres.log_since(before).splitlines() if f'"{name}"' in line and 'SELECT "id"' in line]
    assert sorted(re.findall(r"WHERE \(?([^()]*)\)?\s*$", line)[-1].strip() for line in sent) == [
        '"at" < 1000',
        '"at" >= 1000 AND "at" < 2000',
        '"at" >= 2000',
    ]
    assert all('WHERE "at" < 3001' in line for line in sent)


def test_rows_that_come_between_the_queries_are_left_for_the_next_window_when_several_read(
    postgres: Any, table_in: Maker
) -> None:
    name = filled(postgres, "n", "int")
    source = table_in(name, partitions=4)
    first = plan(source, "at")
    df = source.rows(first)

    postgres.sql(f"INSERT INTO {name} VALUES (3001, 3001)", f"UPDATE {name} SET at = 4000 WHERE id = 1500")
    before = [row["id"] for row in df.select("id").collect()]
    second = source.rows(plan(source, "at", first)).select("id").collect()

    assert sorted(before) == [number for number in range(1, 3_001) if number != 1500]
    assert sorted(row["id"] for row in second) == [1500, 3001]
