"""A table of PostgreSQL as a source: odd values, its clock, warnings, and where the filter runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import CursorError, SourceError
from scripts.helpers.protocol.values import decode, encode
from scripts.helpers.rows.window import RowWindow
from tests.support.database_fixtures import BOTH
from tests.support.row_windows import plan, taken

UTC = timezone.utc
Maker = Callable[..., JdbcTable]


def stamped(postgres: Any, rows: str, columns: str = "id int NOT NULL, at timestamptz") -> str:
    name: str = postgres.new_table(columns)
    postgres.sql(f"CREATE INDEX ON {name} (at)", f"INSERT INTO {name} VALUES {rows}")
    return name


# --- NULLs -----------------------------------------------------------------------------------------------


@BOTH
def test_null_in_a_second_column_is_counted_and_never_pins_the_window_when_cursor_is_compound(
    postgres: Any, table_in: Maker
) -> None:
    source = table_in(
        stamped(postgres, "(1, '2026-01-01', 'x'), (2, '2026-01-02', NULL)", "id int, at timestamptz, s text")
    )

    window = plan(source, ["at", "s"], nulls="skip", strings=True)

    assert window.high == (datetime(2026, 1, 1, 5, tzinfo=UTC), "x\x01")
    assert taken(source, window) == [1]


@BOTH
def test_infinite_stamps_are_before_and_after_all_others_when_postgres_holds_them(
    postgres: Any, table_in: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    name = stamped(postgres, "(1, '-infinity'), (2, '2026-01-01'), (3, 'infinity')")
    source = table_in(name)

    first = plan(source, "at")
    postgres.sql(f"INSERT INTO {name} VALUES (4, now())")
    second = plan(source, "at", first)

    assert [taken(source, window) for window in (first, second)] == [[1, 2], [4]]
    assert "event=future_stamps" in caplog.text


# --- the clock -------------------------------------------------------------------------------------------


@BOTH
def test_window_stays_behind_the_clock_of_the_database_when_delay_is_given(postgres: Any, table_in: Maker) -> None:
    source = table_in(stamped(postgres, "(1, now() - interval '2 hours'), (2, now())"))

    ((before,),) = postgres.sql("SELECT clock_timestamp()")
    window = plan(source, "at", delay=timedelta(hours=1))
    ((after,),) = postgres.sql("SELECT clock_timestamp()")

    assert window.high is not None
    assert isinstance(window.high[0], datetime)
    assert before <= window.high[0] + timedelta(hours=1) <= after
    assert taken(source, window) == [1]


def test_columns_without_zone_are_bounded_by_the_wall_clock_of_their_zone_when_it_is_given(
    postgres: Any, table_in: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    name = stamped(postgres, "(1, now() AT TIME ZONE 'Asia/Tokyo')", "id int, at timestamp")

    utc, tokyo = (plan(table_in(name, zone=zone), "at") for zone in ("UTC", "Asia/Tokyo"))
    assert "event=no_zone" not in caplog.text
    unknown = plan(table_in(name), "at", utc)

    assert "event=no_zone context=repairs column=at" in caplog.text
    assert [taken(table_in(name), window) for window in (utc, unknown, tokyo)] == [[], [], [1]]


@pytest.mark.parametrize("declared", ["timestamp", "date"])
def test_first_run_is_refused_before_rows_are_asked_for_when_the_table_has_no_zone(
    postgres: Any, table_in: Maker, declared: str
) -> None:
    name = stamped(postgres, "(1, '2026-01-01')", f"id int, at {declared}")
    before = postgres.log()

    with pytest.raises(CursorError, match=r"no time zone.*JdbcTable\(\.\.\., zone='Europe/London'\)"):
        plan(table_in(name), "at", now=datetime(2026, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo")))

    asked = postgres.log_since(before)
    plan(table_in(name, zone="UTC"), "at")

    assert f'FROM "{name}"' not in asked
    assert f'FROM "{name}"' in postgres.log_since(before)


# --- the table changes -----------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("ALTER COLUMN at TYPE timestamp", "its type was timestamp"),
        ("RENAME COLUMN at TO changed_at", "It has: id, changed_at."),
    ],
    ids=["type", "name"],
)
@pytest.mark.parametrize("step", ["planned", "read"])
def test_cursor_error_says_both_when_the_column_changed_since_the_last_run(
    postgres: Any, table_in: Maker, change: str, text: str, step: str
) -> None:
    name = stamped(postgres, "(1, '2026-01-01')")
    source = table_in(name)
    first = plan(source, "at")
    postgres.sql(f"ALTER TABLE {name} {change}")

    with pytest.raises(CursorError) as caught:
        plan(source, "at", first) if step == "planned" else source.rows(first)

    assert text in str(caught.value)


def test_rows_go_on_when_a_column_of_ids_gets_room_for_more(postgres: Any, table_in: Maker) -> None:
    name = postgres.new_table("id int PRIMARY KEY, price numeric(5,2)")
    postgres.sql(f"INSERT INTO {name} VALUES (1, 1), (2, 2)")
    by_id, by_price = plan(table_in(name), "id"), plan(table_in(name), "price")
    postgres.sql(
        f"ALTER TABLE {name} ALTER id TYPE bigint, ALTER price TYPE numeric(9,2)",
        f"INSERT INTO {name} VALUES ({2**40}, 1234567.89)",
    )

    assert taken(table_in(name), by_id) == [1, 2]
    assert taken(table_in(name), plan(table_in(name), "id", by_id)) == [2**40]
    assert taken(table_in(name), plan(table_in(name), "price", by_price)) == [2**40]


# --- where the filter runs -------------------------------------------------------------------------------


def test_filter_reaches_the_server_as_typed_literals_when_rows_are_read(postgres: Any, table_in: Maker) -> None:
    name = stamped(postgres, "(1, '2026-01-01 00:00+00')")
    source = table_in(name)
    first = plan(source, "at")
    postgres.sql(f"INSERT INTO {name} VALUES (2, '2026-01-02 00:00+00')")
    second = plan(source, "at", first)

    plan_text = source.rows(second)._jdf.queryExecution().executedPlan().toString()
    taken(source, second)

    low = "\"at\" >= TIMESTAMP WITH TIME ZONE '2026-01-01 00:00:00.000001+00:00'"
    high = "\"at\" < TIMESTAMP WITH TIME ZONE '2026-01-02 00:00:00.000001+00:00'"
    (sent,) = [line for line in postgres.log().splitlines() if 'SELECT "id"' in line and f'"{name}"' in line]
    assert f"{low} AND {high}" in sent
    assert f"{low} AND {high}" in plan_text


def test_server_uses_the_index_when_little_is_new_in_a_large_table(postgres: Any, table_in: Maker) -> None:
    name = postgres.new_table("id int primary key, at timestamptz, wall timestamp, s text")
    postgres.sql(
        f"INSERT INTO {name} SELECT n, timestamptz '2025-01-01 00:00+00' + make_interval(secs => n), now(), 'x'"
        " FROM generate_series(1, 50000) n",
        f"CREATE INDEX ON {name} (at)",
        f"ANALYZE {name}",
    )
    source = table_in(name)
    first = plan(source, "at", high=datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=49_971))
    before = postgres.log()

    second = plan(source, "at", first)
    count = source.rows(second).select("id", "wall").count()

    assert count == 30
    sent = [line for line in postgres.log_since(before).splitlines() if f'"{name}"' in line and "1=0" not in line]
    assert len(sent) == 3  # the facts, the count of rows, and the rows
    for statement in sent:
        query = statement[statement.index("SELECT") :]
        explained = "\n".join(row[0] for row in postgres.sql(f"EXPLAIN {query}"))
        assert "Index" in explained and "Seq Scan" not in explained, explained


def rows_looked_at(step: dict[str, Any]) -> int:
    """Return the number of rows and index entries that a plan of EXPLAIN ANALYZE read."""
    own = 0
    if "Scan" in step["Node Type"]:
        own = step["Actual Rows"] + step.get("Rows Removed by Filter", 0) + step.get("Rows Removed by Index Recheck", 0)
    return int(own * step["Actual Loops"]) + sum(map(rows_looked_at, step.get("Plans", ())))


@pytest.mark.parametrize("cursor", ["at", ["at", "id"]], ids=["one column", "two columns"])
def test_server_looks_at_new_rows_and_nulls_only_when_rows_with_null_are_included(
    postgres: Any, table_in: Maker, cursor: Any
) -> None:
    name = postgres.new_table("id int primary key, at timestamptz")
    postgres.sql(
        f"INSERT INTO {name} SELECT n, timestamptz '2025-01-01 00:00+00' + make_interval(secs => n)"
        " FROM generate_series(1, 50000) n",
        f"INSERT INTO {name} SELECT -n, NULL FROM generate_series(1, 500) n",
        f"CREATE INDEX ON {name} (at, id)",
        f"VACUUM ANALYZE {name}",
    )
    source = table_in(name)
    options: dict[str, Any] = {"nulls": "take", "write_disposition": "merge"}
    first = plan(source, cursor, high=datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=49_988), **options)
    before = postgres.log()

    second = plan(source, cursor, first, **options)
    count = source.rows(second).select("id").count()

    assert count == 500 + 13
    sent = [line for line in postgres.log_since(before).splitlines() if f'"{name}"' in line and "1=0" not in line]
    assert len(sent) == 3  # the facts, the count of rows, and the rows
    for statement in sent:
        query = statement[statement.index("SELECT") :]
        ((explained,),) = postgres.sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}")
        assert rows_looked_at(explained[0]["Plan"]) < 2_000, explained


@pytest.mark.parametrize(("index", "warned"), [("", True), ("(id, at)", True), ("(at, id)", False)])
def test_warning_says_what_it_costs_when_cursor_column_has_no_index(
    postgres: Any, table_in: Maker, caplog: pytest.LogCaptureFixture, index: str, warned: bool
) -> None:
    name = postgres.new_table("id int, at timestamptz")
    postgres.sql(
        *([f"CREATE INDEX ON {name} {index}"] if index else []), f"INSERT INTO {name} VALUES (1, '2026-01-01')"
    )

    with caplog.at_level(logging.WARNING):
        plan(table_in(name), "at")

    found = [record.getMessage() for record in caplog.records if "event=no_index" in record.getMessage()]
    assert bool(found) == warned
    assert all(f"public.{name}" in text or name in text for text in found)
    assert all("each run reads the whole table several times" in text for text in found)


def test_view_is_read_without_a_warning_when_it_is_the_source(
    postgres: Any, table_in: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    name = stamped(postgres, "(1, '2026-01-01')")
    postgres.sql(f"CREATE VIEW view_of_{name} AS SELECT * FROM {name}")
    source = table_in(f"public.view_of_{name}")

    with caplog.at_level(logging.WARNING):
        window = plan(source, "at")

    assert taken(source, window) == [1]
    assert "no_index" not in caplog.text


# --- names that contain SQL ------------------------------------------------------------------------------

ATTACKS = ['at" OR 1=1; DROP TABLE victims; --', "at'; DROP TABLE victims; --", "at) UNION SELECT 1 --", "at\\"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_column_name_never_reaches_the_server_when_the_table_has_no_such_column(
    postgres: Any, table_in: Maker, attack: str
) -> None:
    source = table_in(stamped(postgres, "(1, '2026-01-01')"))
    before = postgres.log()

    with pytest.raises(CursorError, match="no such column"):
        plan(source, attack)

    assert attack not in postgres.log_since(before).replace('""', '"')


@BOTH
@pytest.mark.parametrize("attack", ATTACKS)
def test_column_is_quoted_when_it_really_has_such_a_name(postgres: Any, table_in: Maker, attack: str) -> None:
    quoted = '"' + attack.replace('"', '""') + '"'
    name = postgres.new_table(f"id int, {quoted} int NOT NULL")
    postgres.sql(f"INSERT INTO {name} VALUES (1, 5)")
    source = table_in(name)

    facts = source.facts(source.columns([attack], strings=False), None, descending=False)

    assert facts.largest == (5,)


@pytest.mark.parametrize("way", ["rows", "toDF"])
def test_table_is_refused_when_a_column_of_it_is_named_as_sql_that_spark_would_send(
    postgres: Any, table_in: Maker, way: str
) -> None:
    victim = postgres.new_table("id int")
    attack = f'x" FROM {victim}; DROP TABLE {victim}; --'
    quoted = '"' + attack.replace('"', '""') + '"'
    name = postgres.new_table(f"id int NOT NULL, {quoted} int")
    postgres.sql(
        f"INSERT INTO {name} VALUES (1, 5)", f"CREATE VIEW view_of_{name} AS SELECT id, {quoted} AS x FROM {name}"
    )
    source, view = table_in(name), table_in(f"view_of_{name}")
    before = postgres.log()

    with pytest.raises(SourceError) as caught:
        (source.rows(plan(source, "id")) if way == "rows" else source.toDF()).collect()

    assert "holds a quote, which Spark would send as SQL. Read it through a view" in str(caught.value)
    assert attack not in postgres.log_since(before)
    assert postgres.sql(f"SELECT count(*) FROM {victim}") == [(0,)]
    assert [tuple(row) for row in view.rows(plan(view, "id")).collect()] == [(1, 5)]


@pytest.mark.parametrize("attack", ATTACKS)
def test_table_name_never_reaches_the_server_as_sql_when_it_tries_to(
    postgres: Any, table_in: Maker, attack: str
) -> None:
    before = postgres.log()

    with pytest.raises(SourceError, match="there is no such table"):
        plan(table_in(attack), "at")

    assert attack not in postgres.log_since(before).replace('""', '"')


def test_text_reaches_the_server_as_hex_only_when_a_cursor_is_sql(postgres: Any, table_in: Maker) -> None:
    evil = "x'); DROP TABLE victims; --"
    name = postgres.new_table("id int, at text")
    source = table_in(name)
    good = plan(source, "at", strings=True)
    stored = decode(*encode(good.to_plan() | {"low": "A", "high": evil}))

    found = taken(source, RowWindow.from_plan(stored, ["at"], "repairs"))

    assert found == []
    assert evil not in postgres.log()
    assert evil.encode().hex() in postgres.log()


@pytest.mark.parametrize("name", ["", ".", "public.", "a..b", "x\0y"], ids=repr)
def test_table_is_refused_when_a_part_of_its_name_is_empty(table_in: Maker, name: str) -> None:
    with pytest.raises(SourceError, match=r"Give 'table' or 'schema\.table'\."):
        table_in(name)


def test_table_with_a_dot_in_its_name_is_read_when_its_parts_are_given(postgres: Any, table_in: Maker) -> None:
    postgres.sql('CREATE SCHEMA IF NOT EXISTS "odd.Schema"', 'CREATE TABLE "odd.Schema"."a.""b" (id int)')
    postgres.sql('INSERT INTO "odd.Schema"."a.""b" VALUES (7)')
    source = table_in(["odd.Schema", 'a."b'])

    assert taken(source, plan(source, "id")) == [7]


@pytest.mark.parametrize("zone", ["Europe/Londn", "../etc/passwd", ""])
def test_zone_is_refused_when_it_is_unknown(table_in: Maker, zone: str) -> None:
    with pytest.raises(SourceError, match=r"is unknown\. Give a name such as 'Europe/London'\."):
        table_in("any", zone=zone)


@pytest.mark.parametrize("partitions", [0, 10_001, True, 2.0, "2"])
def test_partitions_are_refused_when_they_are_no_count(table_in: Maker, partitions: Any) -> None:
    with pytest.raises(SourceError, match=r"partitions=.*; it must be a whole number from 1 to 10,000\."):
        table_in("any", partitions=partitions)


@pytest.mark.parametrize("partitions", [1, 10_000])
def test_partitions_are_taken_when_they_are_the_fewest_or_the_most(table_in: Maker, partitions: int) -> None:
    assert table_in("any", partitions=partitions).name == "PostgreSQL table any"


@pytest.mark.parametrize("remade", ["no", 1, None])
def test_answer_is_refused_when_it_is_neither_yes_nor_no(table_in: Maker, remade: Any) -> None:
    with pytest.raises(SourceError, match=r"remade=.* is neither True nor False"):
        table_in("any", remade=remade)
