"""Database rows without Spark: the same plans and values as over JDBC, in batches, from three real databases."""

from __future__ import annotations

import sqlite3
import struct
import sys
from contextlib import closing
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typing_extensions import assert_type

from scripts.helpers._lazy import DataFrame
from scripts.helpers.databases import PostgresSnapshot
from scripts.helpers.databases import sql_table as sql_tables
from scripts.helpers.databases import table as tables
from scripts.helpers.databases.sql_table import SqlTable
from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import CursorError, InvalidValueError, SourceError, SourceUnavailableError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.arrow_streams import ArrowStream
from scripts.helpers.schemas.frames import kind_of_arrow
from scripts.helpers.sinks import DatabaseSink
from scripts.helpers.watermarks import Watermarks
from scripts.jobs import ingest_table
from tests.support.blocked_packages import run_without
from tests.support.database_fixtures import sql_table
from tests.support.patience import gone
from tests.support.reasons import behind
from tests.support.row_windows import plan, replayed, taken

COLUMNS = {
    "postgres": {
        "small smallint": "-32768", "whole integer": "2147483647", "large bigint": "-9223372036854775808",
        "single real": "0.1", "twice double precision": "0.1", "yes boolean": "true", "note text": "'é '' \\'",
        "short varchar(5)": "'ab '", "padded char(5)": "'ab'", "data bytea": "'\\x00ff'", "day date": "'0001-01-01'",
        "far_day date": "'infinity'", "clock time": "'24:00:00'", "clock_tz timetz": "'12:00:01+02'",
        "wall timestamp": "'2026-10-25 00:30:00.000001'", "far_wall timestamp": "'-infinity'",
        "at timestamptz": "'2026-10-25 00:30:00.000001+00'", "price numeric(12,2)": "1.5",
        "amount numeric": "0.123456789012345678", "wide numeric(60,2)": "9",
        "key uuid": "'0190a0a0-0000-7000-8000-000000000000'", "doc jsonb": "'{\"a\": [1]}'",
        "raw json": "'{\"a\":  1}'", "net inet": "'10.0.0.1/8'",
        "host inet": "'10.0.0.1'", "host6 inet": "'::1'", "flag bit(1)": "B'1'", "flags bit(3)": "B'101'",
        "more bit varying(5)": "B'101'", "number oid": "4294967295", "age positive": "3", "cost priced": "1.5",
        "seen seen": "'2026-10-25 00:30:00.001'", "hour hour": "'12:00:01'", "of_others older": "3",
        "mood mood": "'fine'", "page xml": "'<a/>'",
    },
    "maria": {
        "tiny tinyint": "-128", "flag tinyint(1)": "2", "small smallint": "-32768", "mid mediumint": "8388607",
        "whole int": "2147483647", "larger int unsigned": "4294967295", "large bigint": "-9223372036854775808",
        "largest bigint unsigned": "18446744073709551615", "single float": "0.5", "twice double": "0.1",
        "tiny_plus tinyint unsigned": "255", "small_plus smallint unsigned": "65535",
        "yes bit(1)": "b'1'", "note text": "'é '' \\\\'", "short varchar(5)": "'ab '",
        "data varbinary(5)": "x'00ff'", "blobbed blob": "x'00ff'", "day date": "'1582-10-10'",
        "clock time": "'838:59:59'", "wall datetime(6)": "'2026-10-25 00:30:00.000001'",
        "at timestamp(6)": "'2026-10-25 00:30:00.000001'", "price decimal(12,2)": "1.5",
        "amount decimal(65,30)": "12345678.5", "born year": "2026", "mood enum('fine', 'low')": "'fine'",
        "doc json": "'{\"a\":  1}'",
    },
    "sqlite": {
        "whole integer": "9223372036854775807", "other int": "-9223372036854775808", "large bigint": "3000000000",
        "note text": "'é '''", "short varchar(5)": "'ab '", "twice real": "0.1",
        "data blob": "x'00ff'", "price decimal(12,2)": "1.5", "yes boolean": "1", "clock text": "'12:00:01.5'",
    },
}  # fmt: skip
"""A value for each common type; a second row is all NULL except for its id."""


KINDS = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
SERVERS = pytest.mark.parametrize("server", ["postgres", "maria", "sqlite"], indirect=True)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def ids_in(folder: Path) -> list[int]:
    return sorted(value for path in folder.glob("*.parquet") for value in pq.read_table(path)["id"].to_pylist())


# --- values ----------------------------------------------------------------------------------------------


@SERVERS
def test_values_and_types_are_those_of_jdbc_when_a_table_has_every_common_type(
    jdbc: Any, server: Any, request: pytest.FixtureRequest
) -> None:
    columns = COLUMNS[request.node.callspec.params["server"]]
    if "mood mood" in columns:
        server.sql("DROP TYPE IF EXISTS mood", "CREATE TYPE mood AS ENUM ('fine', 'low')")
        for domain in ("positive AS int", "priced AS numeric(9,2)", "seen AS timestamp(3)", "hour AS time",
                       "older AS positive CHECK (VALUE > 2)"):  # fmt: skip
            server.sql(f"DROP DOMAIN IF EXISTS {domain.split()[0]} CASCADE", f"CREATE DOMAIN {domain}")
    name = server.new_table(f"id bigint NOT NULL, {', '.join(f'{column} NULL' for column in columns)}")
    server.sql(
        f"INSERT INTO {name} VALUES (1, {', '.join(columns.values())})",
        f"INSERT INTO {name} VALUES (2, {', '.join('NULL' for _ in columns)})",
    )
    source, other = sql_table(server, name), JdbcTable(jdbc, server.url, name, properties=server.properties)
    # For a query, the driver does not report the length of PostgreSQL's BIT.
    of_query_too = ["id", *(column.split()[0] for column in columns if not column.startswith("flag"))]
    of_query = sql_table(server, query=f"SELECT * FROM {name}", columns=of_query_too)

    found = source.rows(plan(source, "id")).read_all().sort_by("id")
    rows = other.rows(plan(other, "id")).orderBy("id")

    assert of_query.rows(plan(of_query, "id")).read_all().sort_by("id") == found.select(of_query_too)
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        tuple(value.replace(tzinfo=timezone.utc) if isinstance(value, datetime) and rows.schema[at].dataType.typeName()
              == "timestamp" else value for at, value in enumerate(row)) for row in rows.collect()
    ]  # fmt: skip
    kinds = {field.name: kind_of_arrow(str(field.type)) for field in found.schema}
    assert {name: KINDS.get(kind, kind) for name, kind in kinds.items()} == dict(rows.dtypes)


@pytest.mark.parametrize(("declared", "value"), [("point", "'(1,2)'"), ("box", "'(1,2),(3,4)'"), ("bit(3)", "B'101'")])
def test_column_is_refused_by_its_name_when_its_text_would_not_be_that_of_jdbc(
    postgres: Any, declared: str, value: str
) -> None:
    name = postgres.new_table(f"id int NOT NULL, place {declared}")
    postgres.sql(f"INSERT INTO {name} VALUES (1, {value})")
    source = sql_table(postgres, query=f"SELECT id, place FROM {name}")

    with pytest.raises(SourceError, match=f"column 'place' is {declared[:3]}.*which has no exact type in Arrow"):
        source.rows(plan(source, "id"))


def test_domain_is_a_cursor_when_its_base_type_is(postgres: Any) -> None:
    postgres.sql("DROP DOMAIN IF EXISTS changed CASCADE", "CREATE DOMAIN changed AS timestamptz(3)")
    name = postgres.new_table("id int NOT NULL, at changed NOT NULL")
    postgres.sql(f"INSERT INTO {name} VALUES (1, '2026-01-01 00:00:00.001+00')")
    source = sql_table(postgres, name)

    window = plan(source, "at")

    assert window.high == (datetime(2026, 1, 1, 0, 0, 0, 2_000, tzinfo=timezone.utc),)
    assert taken(source, window) == [1]


def test_instants_are_read_by_spark_as_without_it_when_they_are_of_any_year(postgres: Any, jdbc: Any) -> None:
    texts = ["-infinity", "0001-01-01", "0300-02-28 12:00", "1500-01-01", "1582-10-04 23:59:59.999999", "1582-10-10",
             "1582-10-15 06:00", "1883-11-18", "1970-01-01", "2026-10-25 01:30:00.000001", "9999-12-31",
             "infinity"]  # fmt: skip
    name = postgres.new_table("id int NOT NULL, at timestamptz")
    postgres.sql(*(f"INSERT INTO {name} VALUES ({number}, '{text}+00')" if "inf" not in text else
                   f"INSERT INTO {name} VALUES ({number}, '{text}')" for number, text in enumerate(texts)))  # fmt: skip
    source, of_spark = sql_table(postgres, name), JdbcTable(jdbc, postgres.url, name, properties=postgres.properties)

    found = source.rows(plan(source, "id")).read_all().sort_by("id")["at"].cast("int64").to_pylist()
    rows = of_spark.rows(plan(of_spark, "id")).selectExpr("id", "unix_micros(at) AS at").orderBy("id").collect()

    assert [row["at"] for row in rows] == found


def test_infinite_instants_are_the_ends_of_time_when_they_are_read(postgres: Any) -> None:
    name = postgres.new_table("id int NOT NULL, at timestamptz")
    postgres.sql(f"INSERT INTO {name} VALUES (1, 'infinity'), (2, '-infinity')")
    source = sql_table(postgres, name)

    found = source.rows(plan(source, "id")).read_all().sort_by("id")["at"].to_pylist()

    last, first = datetime(9999, 12, 31, 23, 59, 59, 999_999), datetime(1, 1, 1)
    assert [value.replace(tzinfo=None) for value in found] == [last, first]


@pytest.mark.parametrize("declared", ["timestamptz", "timestamp", "date"])
@pytest.mark.parametrize("far", ["20224-03-01", "0044-03-15 BC"])
def test_finite_time_outside_of_the_years_of_readers_is_an_error_that_names_its_column(
    postgres: Any, jdbc: Any, declared: str, far: str
) -> None:
    name = postgres.new_table(f"id int NOT NULL, paid_until {declared}")
    postgres.sql(f"INSERT INTO {name} VALUES (1, '2026-01-01'), (2, '{far}')")
    source, of_spark = sql_table(postgres, name), JdbcTable(jdbc, postgres.url, name, properties=postgres.properties)
    outside = r"column 'paid_until' has a time that does not fit \w+ \(years 1 to 9999\), as which it is read. Fix"

    with pytest.raises(SourceError, match=outside):
        source.rows(plan(source, "id")).read_all()
    with pytest.raises(SourceError, match=outside) as caught, of_spark.typed_errors():
        of_spark.rows(plan(of_spark, "id")).collect()
    assert far[:5] not in str(caught.value)


def test_float_is_exact_when_mariadb_would_show_six_digits(maria: Any, jdbc: Any) -> None:
    name = maria.new_table("id int NOT NULL, single float, of_few float(7,2) unsigned")
    maria.sql(f"INSERT INTO {name} VALUES (1, 16777215, 0.5), (2, -3.4e38, 99999.99)")
    source, of_spark = sql_table(maria, name), JdbcTable(jdbc, maria.url, name, properties=maria.properties)
    singles, few = [struct.unpack("f", struct.pack("f", -3.4e38))[0], 16777215.0], [0.5, 99999.9921875]

    assert [taken(source, plan(source, "id"), column) for column in ("single", "of_few")] == [singles, few]
    assert [taken(of_spark, plan(of_spark, "id"), column) for column in ("single", "of_few")] == [singles, few]


@pytest.mark.parametrize(
    ("declared", "value", "expected"),
    [
        ("decimal(18,6)", "123456789012.123456", "123456789012.123460"),
        ("decimal(20,10)", "-123456.6789012345", "-123456.6789012345"),
        ("decimal(20,2)", "1234567890123456.75", "1234567890123456.80"),
        ("decimal(20,0)", "98765432109876543210", "98765432109876540000"),
        ("decimal(18,6)", "0.1 + 0.2", "0.300000"),
        ("decimal(18,6)", "'7'", "7.000000"),
    ],
)
def test_decimal_of_sqlite_is_that_of_jdbc_when_it_has_many_digits(
    sqlite: Any, jdbc: Any, declared: str, value: str, expected: str
) -> None:
    """SQLite stores such a number as a double."""
    name = sqlite.new_table(f"id integer NOT NULL, price {declared}")
    sqlite.sql(f"INSERT INTO {name} VALUES (1, {value})")
    of_spark = JdbcTable(jdbc, sqlite.url, name, properties=sqlite.properties)

    for source in (sql_table(sqlite, name), of_spark):
        assert taken(source, plan(source, "id"), "price") == [Decimal(expected)]


@pytest.mark.parametrize(
    ("server", "declared", "value"),
    [
        ("postgres", "numeric", "'NaN'"),
        ("postgres", "numeric", "0.1234567890123456789012"),
        ("postgres", "numeric(12,2)", "'NaN'"),
        ("maria", "decimal(65,30)", "123456789.5"),
        ("sqlite", "integer", "1.5"),
        ("sqlite", "integer", "'secret'"),
        ("sqlite", "decimal(5,2)", "1.555"),
        ("sqlite", "decimal(18,2)", "12345678901234.567"),
        ("sqlite", "decimal(5,2)", "'secret'"),
        ("sqlite", "boolean", "70707"),
    ],
    indirect=["server"],
)
def test_source_error_names_the_column_and_no_value_when_one_does_not_fit(
    server: Any, declared: str, value: str
) -> None:
    name = server.new_table(f"id integer NOT NULL, price {declared}")
    server.sql(f"INSERT INTO {name} VALUES (1, {value})")
    source = sql_table(server, name)

    remedy = (
        "through a view that casts it to a text, or a number to a decimal of its own, or leave it out with columns="
    )
    with pytest.raises(SourceError, match=f"column 'price' has a value that does not fit .* {remedy}") as caught:
        source.rows(plan(source, "id")).read_all()

    assert value.strip("'") not in str(caught.value)


@pytest.mark.parametrize(
    ("server", "declared"),
    [("postgres", "int[]"), ("maria", "bit(3)"), ("maria", "point"), ("sqlite", "numeric"), ("sqlite", "")],
    indirect=["server"],
)
def test_column_is_refused_by_name_unless_it_is_left_out_when_its_type_is_not_exact(server: Any, declared: str) -> None:
    name = server.new_table(f"id integer NOT NULL, odd {declared}")

    for rows in ({"name": name}, {"query": f"SELECT * FROM {name}"}):
        source, chosen = sql_table(server, **rows), sql_table(server, **rows, columns=["id"])
        with pytest.raises(SourceError, match=r"column 'odd' is .*no exact type in Arrow.*columns="):
            source.rows(plan(source, "id"))
        assert chosen.rows(plan(chosen, "id")).column_names == ["id"]


@SERVERS
@pytest.mark.parametrize("rows", [2, 30])
def test_job_is_refused_when_a_row_comes_with_the_last_number_that_it_took(
    server: Any, rows: int, watermarks: Watermarks
) -> None:
    name = server.new_table("id integer PRIMARY KEY, updated_at bigint")
    server.sql(
        f"CREATE INDEX at_{name} ON {name} (updated_at)",
        f"INSERT INTO {name} VALUES (0, 1000)",
        *(f"INSERT INTO {name} VALUES ({number}, 1001)" for number in range(1, rows)),
    )

    def run() -> Any:
        with IncrementalJob(watermarks, "orders") as job:
            return job.rows_since(sql_table(server, name), "updated_at").read_all()["id"].to_pylist()

    assert len(run()) == rows
    assert run() == []
    server.sql(f"INSERT INTO {name} VALUES (100, 1001)", f"INSERT INTO {name} VALUES (101, 1005)")

    with pytest.raises(
        SourceError,
        check=behind,
        match="rows came below the watermark",
    ):
        run()


# --- queries, conditions and ranges ----------------------------------------------------------------------


@SERVERS
def test_rows_of_a_query_have_its_condition_and_the_types_of_its_table(server: Any) -> None:
    name = server.new_table("id integer PRIMARY KEY, price decimal(12,2), bay varchar(9)")
    server.sql(f"INSERT INTO {name} VALUES (1, 1.5, 'north'), (2, 2.5, 'south')")
    source = sql_table(server, query=f"SELECT id, price, bay FROM {name}", where="bay = 'north'")

    found = source.rows(plan(source, "id")).read_all()

    assert found["price"].type == pa.decimal128(12, 2)
    assert found["id"].to_pylist() == [1]


FEW = {
    "key_ uuid": "'0190a0a0-0000-7000-8000-000000000000'", "net inet4": "'10.0.0.1'", "far_net inet6": "'::1'",
    "marks set('a', 'b')": "'a,b'", "padded char(5)": "'ab'", "sorted char(5) collate utf8mb4_bin": "'ab'",
    "old varchar(5) character set latin1": "'é'", "long_note longtext": "'é'", "token binary(16)": "x'00ff'",
    "small_blob tinyblob": "x'00ff'", "few float(7,2) unsigned": "0.5", "part decimal(5,5) unsigned": "0.12345",
    "digits decimal(38,0)": "7", "tenth decimal(1,1)": "-0.5", "filled int(5) zerofill": "42",
    "mid_plus mediumint unsigned": "16777215", "second_ datetime": "'2026-10-25 00:30:00'",
    "of_second timestamp(3)": "'2026-10-25 00:30:00.001'", "short_time time(3)": "'-10:00:00.5'",
}  # fmt: skip
"""MariaDB types with a special form in its protocol, and a value of each."""
GROUPED = """
SELECT t.*, count(*) AS n, sum(whole) AS s, avg(price) AS mean, max(mood) AS last_mood, max(of_second) AS last_at,
    max(key_) AS last_key, coalesce(at, wall) AS either, now(6) AS asked, whole + larger AS larger_yet,
    whole / 3 AS third, price * price AS wide, concat(note, data) AS bytes, concat(note, 1) AS words, yes + 0 AS bits,
    born + 0 AS years, NULL AS nothing, 1 AS one, 1.5 AS more, 1e0 AS twice_one, at IS NULL AS is_odd,
    hex(token) AS hexed, CAST(token AS binary(16)) AS other_token, group_concat(short) AS listed,
    json_extract(doc, '$.a') AS part_of_doc
FROM {0} t GROUP BY id
"""
UNITED = "SELECT * FROM {0} UNION SELECT * FROM {0}"
JOINED = """
WITH few AS (SELECT * FROM {0})
SELECT f.*, o.at AS other_at, o.largest AS other FROM few f LEFT JOIN {0} o ON o.id = f.id + 1
"""


@pytest.mark.parametrize("query", [GROUPED, UNITED, JOINED], ids=["grouped", "united", "joined"])
def test_columns_and_rows_of_a_query_are_those_of_a_view_when_mariadb_describes_them(maria: Any, query: str) -> None:
    columns = COLUMNS["maria"] | FEW
    name = maria.new_table(f"id bigint NOT NULL, {', '.join(f'{column} NULL' for column in columns)}")
    text = query.format(name)
    maria.sql(
        f"INSERT INTO {name} VALUES (1, {', '.join(columns.values())})",
        f"INSERT INTO {name} VALUES (2, {', '.join('NULL' for _ in columns)})",
        f"CREATE VIEW of_{name} AS {text}",
    )
    view, source = sql_table(maria, f"of_{name}"), sql_table(maria, query=text)
    names = [name for name in view.rows(plan(view, "id")).column_names if name != "asked"]

    of_view, of_query = (one.rows(plan(one, "id")).read_all().sort_by("id") for one in (view, source))

    assert of_query.schema == of_view.schema
    assert of_query.select(names) == of_view.select(names)
    with source.asking(), view.asking():
        assert {name: cursor_of(source, name) for name in names} == {name: cursor_of(view, name) for name in names}


def cursor_of(source: SqlTable, name: str) -> Any:
    """Return the type and tick of a column as a cursor; None if it cannot be a cursor."""
    try:
        (column,) = source.columns([name], strings=True)
    except CursorError:
        return None
    return column.type, column.tick


@pytest.mark.parametrize(
    ("declared", "first", "second"),
    [
        ("datetime(6)", "2026-10-25 01:30:00.000001", "2026-10-25 01:30:00.000002"),
        ("timestamp(3)", "2026-10-25 01:30:00.001", "2026-10-25 01:30:00.002"),
        ("date", "2026-10-24", "2026-10-25"),
        ("bigint unsigned", "9223372036854775808", "18446744073709551614"),
        ("decimal(12,2) unsigned", "0.01", "0.02"),
        ("varchar(9)", "r1", "r2"),
        ("uuid", "0190a0a0-0000-7000-8000-000000000000", "0190a0a0-0000-7000-8000-000000000001"),
    ],
)
def test_windows_of_a_query_of_mariadb_are_those_of_its_table_when_rows_come_between_runs(
    maria: Any, jdbc: Any, declared: str, first: str, second: str
) -> None:
    name = maria.new_table(f"id int, at {declared} NOT NULL")
    maria.sql(f"INSERT INTO {name} VALUES (1, '{first}'), (2, '{first}')")
    query = f"SELECT id, at FROM {name} WHERE id <> 2"
    source = sql_table(maria, query=query, zone="UTC")
    others: list[Any] = [sql_table(maria, name, where="id <> 2", zone="UTC")]
    # For a query, the JDBC driver reports a UUID as text.
    if declared != "uuid":
        others.append(JdbcTable(jdbc, maria.url, query=query, properties=maria.properties, zone="UTC"))

    window, *same = (plan(one, "at", strings=True) for one in (source, *others))
    maria.sql(f"INSERT INTO {name} VALUES (3, '{second}'), (2, '{second}')")
    after = plan(source, "at", window, strings=True)

    assert (taken(source, window), taken(source, after)) == ([1], [3])
    for other in same:
        assert (other.columns, other.low, other.high) == (window.columns, window.low, window.high)


def test_query_of_mariadb_is_not_run_when_its_columns_are_asked_for(maria: Any) -> None:
    name = maria.new_table("id int PRIMARY KEY")
    maria.sql(
        f"INSERT INTO {name} VALUES (1)", f"CREATE SEQUENCE of_{name}", f"GRANT INSERT ON of_{name} TO reader@'%'"
    )
    source = sql_table(maria, query=f"SELECT id, max(nextval(of_{name})) AS called FROM {name} GROUP BY id -- each")

    (column,) = source.columns(["id"], strings=False)

    assert column.type == "int"
    assert maria.sql(f"SELECT nextval(of_{name}) AS next") == "next\n1\n"


def test_error_says_what_to_do_when_a_query_of_mariadb_has_a_column_twice(maria: Any) -> None:
    for query in ("SELECT 1 AS id, 2 AS id", "SELECT 1 AS id, 2 AS ID"):
        with pytest.raises(SourceError, match=r"has a column twice\. Name one of them otherwise \(AS\)"):
            plan(sql_table(maria, query=query), "id")


def test_column_is_refused_by_name_when_mariadb_sends_a_type_that_is_not_known(
    maria: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_tables, "OPAQUE", {})
    monkeypatch.delitem(sql_tables.OTHERS, 13)
    name = maria.new_table("id int, odd uuid, born year")

    for odd in ("odd", "born"):
        source = sql_table(maria, query=f"SELECT id, {odd} FROM {name}")
        with pytest.raises(SourceError, match=rf"column '{odd}' is type \d+, .*columns=, or read it through a view"):
            source.rows(plan(source, "id"))
        with pytest.raises(CursorError, match=odd):
            plan(source, odd)


@pytest.mark.parametrize(
    ("change", "error"),
    [("MODIFY at bigint", "at"), ("DROP COLUMN at", "no such column"), ("MODIFY at timestamp(6)", "at"),
     ("ADD COLUMN note text", None)],
)  # fmt: skip
def test_read_sees_the_columns_of_a_query_as_they_are_when_they_change_after_the_plan(
    maria: Any, change: str, error: str | None
) -> None:
    name = maria.new_table("id int, at datetime(6) NOT NULL")
    source = sql_table(maria, query=f"SELECT * FROM {name}", zone="UTC")
    window = plan(source, "at")
    maria.sql(f"ALTER TABLE {name} {change}")

    if error is None:
        assert source.rows(window).column_names == ["id", "at", "note"]
        return
    with pytest.raises(CursorError, match=error):
        source.rows(window)


@SERVERS
def test_columns_that_are_asked_for_come_with_the_cursor(server: Any) -> None:
    name = server.new_table("id integer PRIMARY KEY, price decimal(12,2), bay varchar(9)")

    for source in (sql_table(server, name, columns=["bay"]),
                   sql_table(server, query=f"SELECT * FROM {name}", columns=["bay"])):  # fmt: skip
        assert source.rows(plan(source, "id")).column_names == ["id", "bay"]


def test_ranges_tile_the_window_and_rows_are_read_again_when_it_is_large(
    postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MANY", 100)
    name = postgres.new_table("id int PRIMARY KEY, at int")
    postgres.sql(f"INSERT INTO {name} SELECT n, nullif(n, 7) FROM generate_series(1, 1000) n")
    source = sql_table(postgres, name, partitions=5)
    window = plan(source, "at", nulls="take", write_disposition="merge")
    before = postgres.log()

    rows = source.rows(window)
    found = [sorted(rows.read_all()["id"].to_pylist()) for _ in range(2)]

    assert found == [list(range(1, 1001))] * 2
    assert rows.count == 1000
    assert postgres.log_since(before).count("COPY (SELECT t.") == 10
    assert taken(source, replayed(window)) == found[0]


def test_memory_is_flat_when_a_window_is_large(postgres: Any, watermarks: Watermarks, tmp_path: Path) -> None:
    name = postgres.new_table("id int PRIMARY KEY, note text")
    postgres.sql(f"INSERT INTO {name} SELECT n, repeat(md5(n::text), 32) FROM generate_series(1, 100000) n")
    source, before, most = sql_table(postgres, name, partitions=1), pa.total_allocated_bytes(), 0

    with IncrementalJob(watermarks, "repairs", "jr_1") as job:
        rows = job.rows_since(source, "id")

        def watched(table: pa.Table) -> pa.Table:
            nonlocal most
            most = max(most, pa.total_allocated_bytes() - before)
            return table

        job.write(rows.mapped(watched), tmp_path / "raw")

    assert len(ids_in(tmp_path / "raw")) == 100_000
    # All rows together take 105 MB.
    assert 0 < most < 80_000_000


def test_nothing_is_committed_when_the_cursor_is_altered_before_its_rows_are_read(
    postgres: Any, watermarks: Watermarks, tmp_path: Path
) -> None:
    """The bounds of a time without zone would be compared with instants, and rows would be skipped."""
    name = postgres.new_table("id int, at timestamp NOT NULL")
    postgres.sql(f"INSERT INTO {name} SELECT n, timestamp '2026-01-01 12:00' FROM generate_series(1, 5) n")
    source = sql_table(postgres, name, zone="America/New_York")

    with (
        pytest.raises(CursorError, match="its type was timestamp_ntz and is timestamp now"),
        IncrementalJob(watermarks, "repairs") as job,
    ):
        rows = job.rows_since(source, "at", delay=timedelta(0))
        postgres.sql(f"ALTER TABLE {name} ALTER at TYPE timestamptz USING at AT TIME ZONE 'America/New_York'")
        job.write(rows, tmp_path / "raw")

    assert watermarks.latest("repairs").version == 0


def test_query_is_read_when_a_table_of_sqlite_is_called_asked(tmp_path: Path, watermarks: Watermarks) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.executescript("CREATE TABLE asked (id integer PRIMARY KEY); INSERT INTO asked VALUES (1), (2)")

    with IncrementalJob(watermarks, "repairs") as job:
        rows = job.rows_since(
            SqlTable(f"sqlite:{tmp_path}/shop.db", query="SELECT id FROM asked"), "id", delay=timedelta(0)
        )
        assert sorted(rows.read_all().column("id").to_pylist()) == [1, 2]


# --- jobs ------------------------------------------------------------------------------------------------


def types_of_rows(job: IncrementalJob, table: JdbcTable, snapshot: PostgresSnapshot, frame: DataFrame) -> None:
    """mypy checks the types that jobs return for Spark; the function is never called."""
    assert_type(job.rows_since(table, "id", transformation_ctx="repairs", nulls="take"), DataFrame)
    assert_type(job.rows_since(snapshot, "xmin"), DataFrame)
    assert_type(job.rows_since(frame, ["last_modified", "id"]), DataFrame)


def test_rows_are_a_stream_as_type_checkers_say_when_no_spark_reads_them(sqlite: Any, watermarks: Watermarks) -> None:
    name = sqlite.new_table("id integer PRIMARY KEY")
    sqlite.sql(f"INSERT INTO {name} VALUES (1)")

    with IncrementalJob(watermarks, "repairs") as job:
        rows = assert_type(job.rows_since(sql_table(sqlite, name), "id", delay=timedelta(0)), ArrowStream)
        assert isinstance(rows, ArrowStream)
        assert rows.read_all()["id"].to_pylist() == [1]


JOB = """
import pyarrow.parquet
from scripts.helpers.databases.sql_table import SqlTable
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks

state, url, table, target, way, *runs = sys.argv[1:]
watermarks = Watermarks(state)
if way == "killed":
    watermarks.create_table()
for run in runs:
    with IncrementalJob(watermarks, "repairs", run) as job:
        job.write(job.rows_since(SqlTable(url, table), "id"), target)
        if way == "killed":
            import os
            os._exit(9)
    ids = sorted(pyarrow.parquet.read_table(target)["id"].to_pylist())
    print(job.metrics["rows_collected"], ids, "pyspark" in sys.modules, "pandas" in sys.modules)
"""


def test_replay_writes_the_same_rows_without_spark_when_a_run_was_killed(postgres: Any, tmp_path: Path) -> None:
    name = postgres.new_table("id int PRIMARY KEY")
    postgres.sql(f"INSERT INTO {name} SELECT generate_series(1, 5)")
    url = postgres.url.removeprefix("jdbc:").replace("//", "//postgres@")
    arguments = [f"sqlite:{tmp_path}/state.db", url, name, str(tmp_path / "raw")]

    killed = run_without({"pyspark", "pandas"}, JOB, *arguments, "killed", "jr_1")
    postgres.sql(f"INSERT INTO {name} VALUES (6)")
    again = run_without({"pyspark", "pandas"}, JOB, *arguments, "whole", "jr_1", "jr_2")

    assert killed.returncode == 9, killed.stderr
    replayed, after = again.stdout.splitlines()
    assert replayed == "5 [1, 2, 3, 4, 5] False False", again.stderr
    assert after == "1 [1, 2, 3, 4, 5, 6] False False"


def test_rows_arrive_when_source_and_target_are_in_one_file_of_sqlite(watermarks: Watermarks, tmp_path: Path) -> None:
    shop = tmp_path / "shop.db"
    with closing(sqlite3.connect(shop)) as there:
        there.executescript(
            "CREATE TABLE repairs (id integer PRIMARY KEY, note text); CREATE TABLE raw (id int, note text)"
        )
        # More rows than SQLite can hold in memory before it has to write.
        there.executemany("INSERT INTO repairs VALUES (?, ?)", ((at, "n" * 400) for at in range(30_000)))
        there.commit()

    with IncrementalJob(watermarks, "repairs", "jr_1") as job:
        target = DatabaseSink("raw", connect=lambda: sqlite3.connect(shop), name="shop")
        job.write(job.rows_since(SqlTable(f"sqlite:{shop}", "repairs"), "id"), target)

    with closing(sqlite3.connect(shop)) as there:
        assert there.execute("SELECT count(*), count(DISTINCT id) FROM raw").fetchall() == [(30_000, 30_000)]


@pytest.mark.parametrize("cursor", ["id", "at", "day", "price", "note"])
def test_counts_and_ends_of_the_cursor_are_those_of_spark_when_rows_come_in_batches(
    postgres: Any, jdbc: Any, watermarks: Watermarks, cursor: str, tmp_path: Path
) -> None:
    columns = "id int PRIMARY KEY, at timestamptz NOT NULL, day date NOT NULL, price numeric(12,2) NOT NULL, note text"
    name = postgres.new_table(f"{columns} NOT NULL")
    postgres.sql(
        f"INSERT INTO {name} SELECT n, '2026-10-25 00:30:00.000001+00'::timestamptz + n * interval '1 day', "
        f"date '2026-10-25' - n, n * 0.01, repeat('n', 9 * n) FROM generate_series(1, 20) n"
    )
    tables = {
        "batches": sql_table(postgres, name, partitions=3, zone="UTC"),
        "spark": JdbcTable(jdbc, postgres.url, name, properties=postgres.properties, zone="UTC"),
    }
    found = []

    for job_id, table in tables.items():
        with IncrementalJob(watermarks, job_id, "jr_1") as job:
            rows = job.rows_since(table, cursor, transformation_ctx="repairs", strings=cursor == "note")
            job.write(rows, tmp_path / job_id)
        found.append(job.metrics["contexts"])

    assert found[0] == found[1]
    assert found[0]["repairs"]["rows"] == 20


def test_rows_go_to_delta_in_batches_and_to_partitions_when_all_are_in_memory(
    postgres: Any, watermarks: Watermarks, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    name = postgres.new_table("id int PRIMARY KEY, bay text")
    postgres.sql(f"INSERT INTO {name} VALUES (1, 'north'), (2, 'south')")

    with IncrementalJob(watermarks, "repairs", "jr_1") as job:
        rows = job.rows_since(sql_table(postgres, name), "id")
        job.write(rows, tmp_path / "delta", format="delta")
        with pytest.raises(InvalidValueError, match=r"partition_by needs all rows in memory.*read_all\(\)"):
            job.write(rows, tmp_path / "raw", partition_by=["bay"])
        job.write(rows.read_all(), tmp_path / "raw", partition_by=["bay"])

    assert sorted(DeltaTable(tmp_path / "delta").to_pyarrow_table()["id"].to_pylist()) == [1, 2]
    assert sorted(path.name for path in (tmp_path / "raw").glob("bay=*")) == ["bay=north", "bay=south"]
    assert job.metrics["rows_collected"] == 2


INGEST = """
import sqlite3
from scripts.jobs.ingest_table import main

path, statement, *arguments = sys.argv[1:]
assert main(arguments) == 0
shop = sqlite3.connect(path)
shop.execute(statement)
shop.commit()
assert main(arguments) == 0
sys.exit(main([*arguments, "--snapshot"]))
"""


def test_ready_made_job_takes_new_rows_without_spark_when_the_source_is_no_jdbc_url(
    sqlite: Any, tmp_path: Path
) -> None:
    name = sqlite.new_table("id integer PRIMARY KEY, bay text, note text")
    sqlite.sql(f"INSERT INTO {name} VALUES (1, 'north', 'a'), (2, 'south', 'b')")
    Watermarks(f"sqlite:{tmp_path}/state.db").create_table()

    done = run_without(
        {"pyspark"}, INGEST, str(sqlite.path), f"INSERT INTO {name} VALUES (3, 'north', 'c')",
        "--JOB_NAME=repairs", f"--table=sqlite:{tmp_path}/state.db", f"--source={sqlite.url.removeprefix('jdbc:')}",
        f"--jdbc-table={name}", "--cursor-column=id", f"--target={tmp_path}/raw", "--where=bay = 'north'",
        "--columns=bay", "--delay=0s",
    )  # fmt: skip

    assert ['"rows_collected": 1' in line for line in done.stdout.splitlines()] == [True, True], done.stderr
    assert ids_in(tmp_path / "raw") == [1, 3]
    assert done.returncode == 2 and "read without Spark: omit --snapshot, or use a jdbc: URL" in done.stderr


def test_source_is_refused_when_a_command_reads_through_spark_and_its_url_is_no_jdbc_url(sqlite: Any) -> None:
    arguments = ingest_table.make_parser().parse_args(
        ["--JOB_NAME=j", f"--source={sqlite.url.removeprefix('jdbc:')}", "--target=t", "--cursor-column=id"]
    )

    spark: Any = object()
    with pytest.raises(SourceError, match=r"through Spark\. Give the source as a jdbc: URL"):
        ingest_table.source_of(spark, arguments)


# --- errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["jdbc:postgresql://db.example/shop", "oracle://db.example/shop", "shop.db"])
def test_url_is_refused_without_being_shown_when_its_database_is_not_read_so(url: str) -> None:
    with pytest.raises(SourceError, match="starts with none of postgresql:, mysql:, mariadb:, sqlite:") as caught:
        SqlTable(url, "repairs")

    assert "shop" not in str(caught.value)


def test_package_is_named_when_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql.dbapi", None)

    with pytest.raises(SourceError, match="pip install adbc-driver-postgresql"):
        plan(SqlTable("postgresql://db.example/shop", "repairs"), "id")


def test_error_says_what_is_wrong_without_host_and_password_when_the_database_refuses(
    postgres: Any, sqlite: Any, tmp_path: Path
) -> None:
    url = f"postgresql://127.0.0.1:{postgres.port}/postgres"
    nobody = SqlTable(url, "repairs", properties={"user": "nobody", "password": "hidden"})
    gone = SqlTable("postgresql://127.0.0.1:1/postgres?password=hidden", "repairs")
    missing = sql_table(postgres, "not_there")
    no_file = SqlTable(f"sqlite:{tmp_path}/hidden.db", "repairs")
    no_login = [
        SqlTable(url, "repairs", properties={"user": "postgres", "passwd": "hidden"}),
        SqlTable("postgresql://h/db?hidden", "repairs"), SqlTable("postgresql://h/db?user=%zzhidden", "repairs"),
        SqlTable("mysql://bob:hidden@[::1/db", "repairs"),
        SqlTable("mysql://h:hidden/db", "repairs"), SqlTable("mysql://h/db", "r", properties={"passwordd": "hidden"}),
    ]  # fmt: skip

    for source, kind, text in (
        (nobody, SourceError, "refuses the user or the password"), (gone, SourceUnavailableError, "SQLSTATE"),
        (missing, SourceError, "there is no such table"), (no_file, SourceError, "there is no such file"),
        *((source, SourceError, "not accept the URL") for source in no_login),
    ):  # fmt: skip
        with pytest.raises(kind, match=text) as caught:
            plan(source, "id")
        assert "hidden" not in str(caught.value) and "127.0.0.1" not in str(caught.value)
    assert not (tmp_path / "hidden.db").exists()


@pytest.mark.parametrize(
    ("asked", "said"),
    [({"table": "t"}, "a text that is not in its encoding"), ({"query": "SELECT id, no FROM t"}, "no such column"),
     ({"query": "SELECT id, FROM t"}, "a mistake in the syntax of query="), ({"path": "bad.db"}, "is damaged, or"),
     ({"table": "t", "where": "no = 1"}, r"Check query=, where= and columns="),
     ({"query": "SELECT unheard_of(id) AS id FROM t"}, "or the query in a client, says why")],
)  # fmt: skip
def test_error_says_what_to_fix_when_sqlite_has_no_server_log(asked: dict[str, str], said: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.executescript(
            "CREATE TABLE t (id integer PRIMARY KEY, note text); INSERT INTO t VALUES (1, CAST(x'ff' AS text))"
        )
    (tmp_path / "bad.db").write_bytes(b"no database" * 1000)
    options: dict[str, Any] = {"table": "t", **asked} if "query" not in asked else asked
    source = SqlTable(f"sqlite:{tmp_path / options.pop('path', 'shop.db')}", **options)

    with pytest.raises(SourceError, match=said) as caught:
        source.rows(plan(source, "id")).read_all()

    assert not isinstance(caught.value, SourceUnavailableError)


def test_column_of_a_query_is_refused_as_one_without_a_type_when_sqlite_declares_none(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.execute("CREATE TABLE t (id integer PRIMARY KEY)")

    with pytest.raises(CursorError, match="'next': a column without a declared type has no exact order"):
        plan(SqlTable(f"sqlite:{tmp_path / 'shop.db'}", query="SELECT id + 1 AS next FROM t"), "next")


def test_source_is_called_damaged_when_another_program_altered_bytes_of_its_schema(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.executescript(
            "CREATE TABLE t (id integer PRIMARY KEY); PRAGMA writable_schema = ON; "
            "UPDATE sqlite_master SET sql = CAST(x'435245ff' AS TEXT)"
        )
    source = SqlTable(f"sqlite:{tmp_path / 'shop.db'}", "t")

    with pytest.raises(SourceError, match="is damaged, or it is none"):
        source.rows(plan(source, "id")).read_all()


@pytest.mark.parametrize(
    ("server", "before", "after"),
    [("maria", "int unsigned", "bigint unsigned"), ("maria", "bigint", "bigint unsigned"),
     ("postgres", "int", "numeric(20,0)"), ("postgres", "numeric", "numeric(38,18)")],
    indirect=["server"],
)  # fmt: skip
def test_ids_go_on_when_their_column_holds_more_by_now(
    server: Any, before: str, after: str, watermarks: Watermarks
) -> None:
    name = server.new_table(f"id {before} PRIMARY KEY, price {'numeric(9,1)' if before == 'numeric' else 'int'}")
    server.sql(f"INSERT INTO {name} VALUES (1, 1), (2, 1)")

    def run() -> Any:
        with IncrementalJob(watermarks, "orders") as job:
            source = sql_table(server, name)
            return job.rows_since(source, "id", delay=timedelta(0), on_changed="raise").read_all()["id"].to_pylist()

    first = run()
    verb, kind = ("MODIFY", after) if "unsigned" in after else ("ALTER", f"TYPE {after}")
    server.sql(f"ALTER TABLE {name} {verb} id {kind}")
    if before == "numeric":
        server.sql(f"ALTER TABLE {name} ALTER price TYPE numeric(10,2)")
    nothing = run()
    server.sql(f"INSERT INTO {name} VALUES (3, 1)")

    assert (first, nothing, run(), run()) == ([1, 2], [], [3], [])
    assert watermarks.gaps("orders", "rows") == []


def test_error_within_a_read_is_typed_and_ends_all_connections_when_a_range_fails(
    postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MANY", 100)
    name = postgres.new_table("id int PRIMARY KEY")
    postgres.sql(
        f"INSERT INTO {name} SELECT generate_series(1, 1000)",
        f"CREATE VIEW failing_{name} AS SELECT id, 1 / (id - 900) AS odd FROM {name}",
    )
    source = sql_table(postgres, f"failing_{name}", partitions=3)

    with pytest.raises(SourceError, match="failed while rows were read"):
        source.rows(plan(source, "id")).read_all()
    # The server ends a session a moment after its client closes it.
    assert gone(
        lambda: postgres.sql(
            f"SELECT pid FROM pg_stat_activity WHERE query LIKE '%COPY%failing_{name}%' AND pid <> pg_backend_pid()"
        )
    )
