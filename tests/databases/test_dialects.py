"""SQL of each dialect: literals and exact text mean the same value; executed if the database is here, else parsed."""

from __future__ import annotations

import itertools
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import expressions as exp

from scripts.helpers.errors import CursorError, SourceError
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.sql import sql
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.sql.known import DATABASES, database_of
from scripts.helpers.sql.mysql import MySQL
from scripts.helpers.sql.others import Oracle, SQLServer
from scripts.helpers.sql.postgresql import PostgreSQL
from scripts.helpers.sql.sqlite import SQLite

UTC = timezone.utc
GRAMMARS = {
    "PostgreSQL": "postgres", "MySQL": "mysql", "MariaDB": "mysql", "SQL Server": "tsql", "Oracle": "oracle",
    "SQLite": "sqlite",
}  # fmt: skip
EVERY = pytest.mark.parametrize("database", DATABASES.values(), ids=lambda database: database.name.replace(" ", ""))
UNRUN = pytest.mark.parametrize("database", [SQLServer(), Oracle()], ids=["SQLServer", "Oracle"])
VALUES: dict[str, Any] = {
    "timestamp": datetime(2026, 10, 25, 0, 30, 0, 1, tzinfo=UTC),
    "timestamp_ntz": datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
    "date": date(2026, 10, 25),
    "int": -5,
    "bigint": 2**63,
    "decimal(38,10)": Decimal("-1234567890123456789012345678.0123456789"),
    "string": "x'); DROP TABLE victims; --\\\"`]",
}
ATTACK = "a\"b`c]d'; DROP TABLE victims; --"
UNICODE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


def shown(value: Any) -> str:
    return str(getattr(value, "name", value)).replace(" ", "_")


def parsed(database: Any, query: str) -> Any:
    """Parse exactly one statement; fail if the grammar does not accept it."""
    (found,) = sqlglot.parse(query, dialect=GRAMMARS[database.name])
    assert found is not None
    return found


# --- by the grammar ----------------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("kind", VALUES)
def test_predicate_is_one_comparison_with_each_bound_when_parsed(database: Any, kind: str) -> None:
    window = RowWindow((CursorColumn("at", kind),), (VALUES[kind],), (VALUES[kind],))

    found = parsed(database, f"SELECT * FROM t WHERE {window.predicate(database)}").find(exp.Where)

    assert found is not None
    assert isinstance(found.this, exp.And)
    assert isinstance(found.this.this, exp.GTE) and isinstance(found.this.expression, exp.LT)
    assert {column.name for column in found.find_all(exp.Column)} == {"at"}
    assert "DROP" not in window.predicate(database)


@EVERY
def test_name_stays_one_name_when_it_tries_to_be_sql(database: Any) -> None:
    if isinstance(database, Oracle):
        with pytest.raises(SourceError, match="Oracle has no names with a double quote"):
            database.quote(ATTACK)
        return

    found = parsed(database, f"SELECT {database.quote(ATTACK)} FROM {database.table(['s', ATTACK])}")

    (column,) = found.find_all(exp.Column)
    (table,) = found.find_all(exp.Table)
    assert (column.name, table.name, table.db) == (ATTACK, ATTACK, "s")


@EVERY
@pytest.mark.parametrize("kind", VALUES)
def test_exact_text_is_an_expression_when_parsed(database: Any, kind: str) -> None:
    column = database.cursor(CursorColumn("at", kind))

    found = parsed(database, f"SELECT {database.exact(sql('MAX({})', column), kind)} FROM t")

    assert found.find(exp.Max) is not None


@EVERY
def test_catalogue_and_clock_and_count_are_queries_when_parsed(database: Any) -> None:
    parts = ["sales", "park'ing"]

    catalogue = parsed(database, database.catalogue(parts))
    clock = parsed(database, database.as_row(now=database.now, nulls=sql("0")))
    identity = parsed(database, database.identity(parts))
    few = parsed(database, database.count_up_to(10, database.table(["s", "t"]), sql("1 = 1")))

    names = ["column_name", "declared", "indexed", "nullable", "filled", "wide"]
    assert [column.alias for column in catalogue.expressions] in (names[:4], names[:5], names, [*names, "base"])
    assert [column.alias for column in identity.expressions] == [
        "database_name", "schema_name", "table_name", "table_oid",
    ]  # fmt: skip
    assert [column.alias for column in clock.expressions] == ["now", "nulls"]
    assert few.find(exp.Count) is not None
    # The query for a row at an offset skips the rows before it in an order, and returns one row.
    at = parsed(database, database.some_rows(1, sql("SELECT 1 AS one FROM t ORDER BY id"), 10))
    assert at.args["offset"].expression.this == "10"
    assert at.find(exp.Limit, exp.Fetch) is not None
    last = parsed(database, database.some_rows(5, sql("SELECT 1 AS one FROM t ORDER BY id DESC")))
    assert last.find(exp.Limit, exp.Fetch) is not None
    for query, names in (
        (database.writers(parts, "id"), ["writer"]),
        (database.open_since(parts, timedelta(minutes=5)), ["writer", "began"]),
    ):
        assert not query or parsed(database, query).named_selects == names
    assert "park'ing" not in database.catalogue(parts) + database.identity(parts)


@UNRUN
def test_instant_is_in_utc_whatever_its_zone_when_written(database: Any) -> None:
    tokyo = datetime(2026, 10, 25, 9, 30, tzinfo=timezone(timedelta(hours=9)))

    text = database.literal(tokyo, "timestamp")

    assert "2026-10-25" in text and "00:30:00.000000" in text and "+00:00" in text


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "TO_DATE('2026-10-25 00:30:00', 'YYYY-MM-DD HH24:MI:SS')"),
        (1, "TIMESTAMP '2026-10-25 00:30:00.000001'"),
    ],
)
def test_oracle_compares_whole_seconds_as_a_date_when_written(micros: int, text: str) -> None:
    assert Oracle().literal(datetime(2026, 10, 25, 0, 30, 0, micros, tzinfo=UTC), "timestamp_ntz") == text


# --- declared types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("database", "declared", "kind", "tick"),
    [
        (PostgreSQL(), "timestamp(0) with time zone", "timestamp", timedelta(seconds=1)),
        (PostgreSQL(), "numeric(10,2)", "decimal(10,2)", None),
        (PostgreSQL(), "character varying(20)", "string", None),
        (MySQL(), "datetime", "timestamp_ntz", timedelta(seconds=1)),
        (MySQL(), "timestamp(6)", "timestamp", timedelta(microseconds=1)),
        (MySQL(), "bigint(20) unsigned", "decimal(20,0)", None),
        (MySQL(), "int(10) unsigned zerofill", "bigint", None),
        (MySQL(), "mediumtext", "string", None),
        (SQLServer(), "datetime", "timestamp_ntz", timedelta(microseconds=3_333)),
        (SQLServer(), "datetime2(7)", "timestamp_ntz", timedelta(microseconds=1)),
        (SQLServer(), "datetimeoffset(3)", "timestamp", timedelta(milliseconds=1)),
        (SQLServer(), "smalldatetime", "timestamp_ntz", timedelta(minutes=1)),
        (SQLServer(), "nvarchar", "string", None),
        (SQLServer(), "numeric(10,2)", "decimal(10,2)", None),
        (SQLServer(), "decimal", "decimal(18,0)", None),
        (SQLServer(), "tinyint", "int", None),
        (Oracle(), "DATE", "timestamp_ntz", timedelta(seconds=1)),
        (Oracle(), "TIMESTAMP(6) WITH LOCAL TIME ZONE", "timestamp", timedelta(microseconds=1)),
        (Oracle(), "TIMESTAMP(3)", "timestamp_ntz", timedelta(milliseconds=1)),
        (Oracle(), "NUMBER(10,0)", "decimal(10,0)", None),
        (Oracle(), "NUMBER(38,38)", "decimal(38,38)", None),
        (Oracle(), "NUMBER", "decimal(38,10)", None),
        (Oracle(), "FLOAT", "decimal(38,10)", None),
        (SQLite(), "BIGINT", "bigint", None),
    ],
    ids=shown,
)
def test_declared_type_gives_sparks_type_and_tick_when_it_has_an_order(
    database: Any, declared: str, kind: str, tick: timedelta | None
) -> None:
    assert database.cursor_type(declared) == (kind, tick)


@pytest.mark.parametrize(
    ("database", "declared"),
    [(PostgreSQL(), "double precision"), (PostgreSQL(), "interval"), (PostgreSQL(), "timestamp[]x"),
     (MySQL(), "double"),
     (PostgreSQL(), "timestamp without time zone[]"), (PostgreSQL(), "numeric(10,2)[]"), (SQLServer(), "money"),
     (MySQL(), "decimal(65,2)"), (MySQL(), "decimal(39,2)"), (PostgreSQL(), "numeric(3,4)"),
     (SQLServer(), "float"), (SQLServer(), "timestamp"), (Oracle(), "BINARY_DOUBLE"),
     (Oracle(), "NUMBER(10,-2)"), (SQLite(), "REAL"), (SQLite(), "")],
    ids=shown,
)  # fmt: skip
def test_declared_type_gives_nothing_when_it_has_no_exact_order(database: Any, declared: str) -> None:
    assert database.cursor_type(declared) is None
    assert declared.lower().startswith(("decimal", "num")) or database.read_as_text(declared) is None


@pytest.mark.parametrize(
    ("database", "declared", "kind"),
    [(MySQL(), "decimal(65,2)", "decimal(38,2)"), (MySQL(), "decimal(10,2)", None),
     (Oracle(), "NUMBER", "decimal(38,10)"), (Oracle(), "FLOAT", "decimal(38,10)"), (Oracle(), "BINARY_FLOAT", None),
     (PostgreSQL(), "numeric[]", None), (SQLServer(), "time", "time"),
     (SQLServer(), "date", "date")],
    ids=shown,
)  # fmt: skip
def test_column_is_read_as_text_when_a_driver_would_change_its_values(
    database: Any, declared: str, kind: str | None
) -> None:
    assert database.read_as_text(declared) == kind


@pytest.mark.parametrize(
    ("kind", "declared"),
    [("_int4", "int4[]"), ("int4", "integer"), ("timestamptz", "timestamp(3) with time zone"), ("date", "date")],
)
def test_type_is_that_of_the_catalogue_when_postgresqls_driver_names_it(kind: str, declared: str) -> None:
    assert PostgreSQL().declared(kind, 10, 3) == declared


def test_step_above_a_datetime_of_sql_server_is_between_it_and_the_next() -> None:
    column = CursorColumn("at", *SQLServer().cursor_type("datetime"))  # type: ignore[misc]
    shown = ["00", "0033333", "0066667", "01", "0133333"]
    stored: list[Any] = [SQLServer().value(f"2026-01-01 00:00:00.{digits:0<7}"[:26], column) for digits in shown]

    for value, following in itertools.pairwise(stored):
        assert value < column.next_above(value) <= following


@pytest.mark.parametrize("url", ["jdbc:PostgreSQL://h/d", "JDBC:MYSQL://h/d", "jdbc:oracle:thin:@h:1521:x"], ids=str)
def test_database_is_found_when_the_url_is_in_any_case(url: str) -> None:
    assert database_of(url).name.lower() in url.lower()


# --- by execution ------------------------------------------------------------------------------------------

DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=10, min_value=-(10**27), max_value=10**27)
MOMENTS = st.datetimes(timezones=st.just(UTC), min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30))
BY_KIND: dict[str, Any] = {
    "timestamp": MOMENTS,
    "timestamp_ntz": MOMENTS,
    "date": st.dates(),
    "bigint": st.integers(-(2**63) + 1, 2**63 - 1),
    "decimal(38,10)": DECIMALS,
    "string": UNICODE,
}
CASTS = {"timestamp": "timestamptz", "timestamp_ntz": "timestamp", "decimal(38,10)": "numeric(38,10)", "string": "text"}


@pytest.mark.parametrize("kind", BY_KIND)
def test_literal_comes_back_as_the_same_value_when_postgresql_reads_and_writes_it(postgres: Any, kind: str) -> None:
    database, column = PostgreSQL(), CursorColumn("at", kind)
    with postgres.connect() as connection:
        connection.execute("SET timezone = 'Europe/London'")

        @settings(max_examples=60, deadline=None)
        @given(BY_KIND[kind])
        def check(value: Any) -> None:
            value = value + Decimal(0) if isinstance(value, Decimal) else value
            typed = sql("CAST({} AS {})", database.literal(value, kind), database.type_name(CASTS.get(kind, kind)))
            (text,) = connection.execute(f"SELECT {database.exact(typed, kind)}").fetchone()
            assert database.value(text, column) == value

        check()


@settings(max_examples=60, deadline=None)
@given(UNICODE, UNICODE)
def test_text_just_above_another_is_above_it_and_order_is_that_of_bytes_when_postgresql_compares(
    postgres: Any, one: str, other: str
) -> None:
    database, column = PostgreSQL(), CursorColumn("at", "string")
    source = f"(SELECT {database.text(one)} AS at) t"

    (found,) = postgres.sql(
        f"SELECT {database.comparison(column, '<', column.next_above(one))},"
        f" {database.comparison(column, '<', other)} FROM {source}"
    )

    assert found == (True, one.encode() < other.encode())


def test_text_is_refused_when_it_holds_nul() -> None:
    with pytest.raises(SourceError, match="no text in a query may hold NUL"):
        PostgreSQL().literal("a\0b", "string")


@EVERY
@pytest.mark.parametrize("kind", VALUES)
def test_literal_is_refused_when_the_value_is_sql(database: Any, kind: str) -> None:
    value: Any = b"1 OR 1=1" if kind == "string" else "1 OR 1=1"

    with pytest.raises(CursorError, match="stored bound"):
        database.literal(value, kind)
