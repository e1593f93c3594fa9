"""MariaDB and SQLite as sources: with either URL, and with their own indexes and catalogues."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from datetime import datetime
from typing import Any

import pytest

from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import CursorError, SourceError, SourceLostError
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.sql.sqlite import SQLite
from tests.support.database_fixtures import sql_table
from tests.support.reasons import because
from tests.support.row_windows import plan, taken

BOTH = pytest.mark.parametrize("database", ["maria", "sqlite"])


def table_of(jdbc: Any, server: Any, name: str) -> JdbcTable:
    return JdbcTable(jdbc, server.url, name, properties=server.properties, zone="UTC")


@pytest.mark.parametrize("scheme", ["jdbc:mysql:", "jdbc:mariadb:"])
@pytest.mark.parametrize("table", ["{}", "shop.{}"], ids=["table", "schema_and_table"])
def test_values_are_those_of_the_table_when_the_url_names_either_driver(
    jdbc: Any, maria: Any, scheme: str, table: str
) -> None:
    name = maria.new_table("id int PRIMARY KEY, `from` datetime(6), s varchar(9)")
    maria.sql(f"INSERT INTO {name} VALUES (7, '2026-03-29 01:30:00', 'seven')")
    url = maria.url.replace("jdbc:mysql:", scheme)
    source = JdbcTable(jdbc, url, table.format(name), properties=maria.properties, zone="UTC")

    rows = source.rows(plan(source, "from")).selectExpr("id", "CAST(`from` AS string)", "s").collect()

    assert [tuple(row) for row in rows] == [(7, "2026-03-29 01:30:00", "seven")]


@BOTH
@pytest.mark.parametrize("index", ["", "(id, at)", "(at, id)"])
def test_warning_is_given_when_no_index_starts_with_the_cursor_column(
    jdbc: Any, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, database: str, index: str
) -> None:
    server = request.getfixturevalue(database)
    name = server.new_table("id int, at bigint NOT NULL")
    if index:
        server.sql(f"CREATE INDEX index_of_{name} ON {name} {index}")

    with caplog.at_level(logging.WARNING):
        plan(table_of(jdbc, server, name), ["at", "id"])

    assert ("event=no_index" in caplog.text) == (index != "(at, id)")


@BOTH
def test_nothing_is_warned_when_the_cursor_column_is_the_primary_key(
    jdbc: Any, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, database: str
) -> None:
    server = request.getfixturevalue(database)
    name = server.new_table("id integer PRIMARY KEY")

    with caplog.at_level(logging.WARNING):
        plan(table_of(jdbc, server, name), "id")

    assert "event=no_index" not in caplog.text


@BOTH
def test_view_is_read_when_it_is_the_source(jdbc: Any, request: pytest.FixtureRequest, database: str) -> None:
    server = request.getfixturevalue(database)
    name = server.new_table("id int NOT NULL")
    server.sql(
        f"INSERT INTO {name} VALUES (1), (2)", f"CREATE VIEW view_of_{name} AS SELECT * FROM {name} WHERE id > 1"
    )
    source = table_of(jdbc, server, f"view_of_{name}")

    assert taken(source, plan(source, "id")) == [2]


@BOTH
def test_rows_with_null_are_counted_when_some_are_null(
    jdbc: Any, request: pytest.FixtureRequest, database: str
) -> None:
    server = request.getfixturevalue(database)
    name = server.new_table("id int, at bigint")
    server.sql(f"INSERT INTO {name} VALUES (1, 5), (2, NULL)")
    source = table_of(jdbc, server, name)

    with pytest.raises(CursorError, match="1 row has NULL there"):
        plan(source, "at")


@pytest.mark.parametrize("declared", ["timestamp(6)", "datetime(3)", "date", "bigint", "decimal(20,4)"])
def test_mariadb_uses_the_index_when_the_window_is_small(jdbc: Any, maria: Any, declared: str) -> None:
    times = declared[0] in "td"
    value = "'2026-01-01' + INTERVAL seq HOUR" if times and declared[1] in "ia" else "seq"
    name = maria.new_table(f"id int PRIMARY KEY, at {declared} NOT NULL")
    maria.sql(f"INSERT INTO {name} SELECT seq, {value} FROM seq_1_to_5000", f"CREATE INDEX i ON {name} (at)")
    source = table_of(jdbc, maria, name)
    first = plan(source, "at")
    maria.sql(f"INSERT INTO {name} SELECT seq, {value} FROM seq_5001_to_5030", f"ANALYZE TABLE {name}")

    second = plan(source, "at", first)

    query = f"SELECT * FROM {name} WHERE {second.predicate(source.dialect)}"
    header, explained = (
        line.split("\t") for line in maria.sql("SET time_zone = '+00:00'", f"EXPLAIN {query}").splitlines()
    )
    found = dict(zip(header, explained, strict=True))
    assert (found["type"], found["key"]) == ("range", "i")


def test_sqlite_uses_the_index_when_rows_and_facts_are_asked(jdbc: Any, sqlite: Any) -> None:
    name = sqlite.new_table("id INTEGER PRIMARY KEY, at BIGINT NOT NULL")
    sqlite.sql(f"CREATE INDEX index_of_{name} ON {name} (at)", f"INSERT INTO {name} VALUES (1, 1), (2, 2)")
    source = table_of(jdbc, sqlite, name)
    second = plan(source, "at", plan(source, "at"))

    with sqlite3.connect(sqlite.path) as connection:
        query = f"EXPLAIN QUERY PLAN SELECT * FROM {name} WHERE {second.predicate(source.dialect)}"
        explained = str(connection.execute(query).fetchall())

    assert f"INDEX index_of_{name} (at>? AND at<?)" in explained


def test_mariadb_is_sent_the_window_and_uses_the_index_when_rows_are_read(jdbc: Any, maria: Any) -> None:
    name = maria.new_table("id int PRIMARY KEY, at datetime(6) NOT NULL")
    hours = "'2026-01-01' + INTERVAL seq HOUR"
    maria.sql(f"INSERT INTO {name} SELECT seq, {hours} FROM seq_1_to_5000", f"CREATE INDEX i ON {name} (at)")
    source = table_of(jdbc, maria, name)
    first = plan(source, "at", start_from=datetime(2020, 1, 1), high=datetime(2026, 7, 1))
    second = plan(source, "at", first, high=datetime(2026, 7, 2))
    maria.sql(f"ANALYZE TABLE {name}", "SET GLOBAL log_output = 'TABLE'", "SET GLOBAL general_log = ON")

    try:
        found = taken(source, second)
    finally:
        maria.sql("SET GLOBAL general_log = OFF")

    logged = maria.sql(
        "SELECT DISTINCT argument FROM mysql.general_log WHERE command_type IN ('Query', 'Execute')"
        f" AND argument LIKE 'SELECT `id`%{name}%window_rows%' AND argument NOT LIKE '%1=0%'"
    )
    _, sent = logged.splitlines()
    header, explained = (line.split("\t") for line in maria.sql(f"EXPLAIN {sent}").splitlines())
    used = dict(zip(header, explained, strict=True))
    assert len(found) == 24
    assert f"WHERE {second.predicate(source.dialect)}" in sent
    assert (used["type"], used["key"]) == ("range", "i")


def test_rows_are_new_by_a_column_that_sqlite_computes(jdbc: Any, sqlite: Any) -> None:
    name = sqlite.new_table("id INTEGER PRIMARY KEY, twice INTEGER GENERATED ALWAYS AS (id * 2) STORED")
    sqlite.sql(f"INSERT INTO {name} (id) VALUES (1), (2)")
    source = table_of(jdbc, sqlite, name)

    assert plan(source, "twice").high == (5,)


def test_columns_of_sqlite_are_those_that_a_query_finds_when_it_names_none(sqlite: Any) -> None:
    computed = sqlite.new_table("id INTEGER, stored INTEGER AS (id * 2) STORED, virtual INTEGER AS (id * 3)")
    hidden = f"{computed}_words"

    with closing(sqlite3.connect(sqlite.path)) as connection:
        connection.execute(f"CREATE VIRTUAL TABLE {hidden} USING fts5(word)")
        found = {}
        for name in (computed, hidden):
            found[name] = [row[0] for row in connection.execute(SQLite().catalogue([name]))]
            assert found[name] == [column[0] for column in connection.execute(f"SELECT * FROM {name}").description]

    assert found == {computed: ["id", "stored", "virtual"], hidden: ["word"]}


@pytest.mark.parametrize(("declared", "value"), [("BIGINT", "5"), ("TEXT", "five"), ("DATE", "20261025")])
def test_sqlite_is_sent_the_window_when_rows_are_read(jdbc: Any, sqlite: Any, declared: str, value: str) -> None:
    name = sqlite.new_table(f"id INTEGER PRIMARY KEY, at {declared} NOT NULL")
    sqlite.sql(f"INSERT INTO {name} VALUES (1, '{value}')")
    source = table_of(jdbc, sqlite, name)
    window = plan(source, "at", plan(source, "at", strings=True), strings=True)

    text = source.rows(window)._jdf.queryExecution().executedPlan().toString()

    assert f'FROM "{name}" t WHERE {window.predicate(source.dialect)}) window_rows' in text
    compared = 'CAST("at" AS TEXT) COLLATE BINARY >= CAST(x' if declared == "DATE" else '"at" '
    assert compared in text


@pytest.mark.parametrize(("declared", "warned"), [("TEXT", False), ("DATE", True)])
def test_warning_is_given_when_the_index_of_sqlite_cannot_serve_texts(
    jdbc: Any, sqlite: Any, caplog: pytest.LogCaptureFixture, declared: str, warned: bool
) -> None:
    name = sqlite.new_table(f"id INTEGER PRIMARY KEY, at {declared} NOT NULL")
    sqlite.sql(f"CREATE INDEX index_of_{name} ON {name} (at)")

    with caplog.at_level(logging.WARNING):
        plan(table_of(jdbc, sqlite, name), "at", strings=True)

    assert ("event=no_index" in caplog.text) == warned
    assert ("Declare it as TEXT" in caplog.text) == warned


@pytest.mark.parametrize("option", ["sessionInitStatement", "sessioninitstatement"])
@pytest.mark.parametrize("scheme", ["jdbc:mysql:", "jdbc:mariadb:"])
def test_session_statement_of_the_caller_is_refused_when_sessions_are_set_to_utc(
    jdbc: Any, scheme: str, option: str
) -> None:
    with pytest.raises(SourceError, match="Give settings in the URL, as sessionVariables"):
        JdbcTable(jdbc, f"{scheme}//127.0.0.1/shop", "parking", properties={option: "SET lock_wait_timeout = 5"})


def test_session_variables_are_kept_when_they_are_in_the_url(jdbc: Any, maria: Any) -> None:
    name = maria.new_table("id int NOT NULL")
    maria.sql(f"INSERT INTO {name} VALUES (1), (2)")
    source = JdbcTable(jdbc, f"{maria.url}?sessionVariables=sql_select_limit=1", name, properties=maria.properties)

    assert len(taken(source, plan(source, "id"))) == 1


@pytest.mark.parametrize("way", ["rows", "toDF"])
def test_table_of_mariadb_is_refused_when_a_column_name_holds_a_backtick(jdbc: Any, maria: Any, way: str) -> None:
    source = table_of(jdbc, maria, maria.new_table("id int NOT NULL, `x``, (SELECT 1) AS ``y` int"))

    with pytest.raises(SourceError, match="holds a quote, which Spark would send as SQL"):
        source.rows(plan(source, "id")) if way == "rows" else source.toDF()


@BOTH
@pytest.mark.parametrize("attack", ["x` OR 1=1 -- ", "x'; DROP TABLE victims; --", 'x" OR 1=1 --'])
def test_names_never_become_sql_when_they_try_to(
    jdbc: Any, request: pytest.FixtureRequest, database: str, attack: str
) -> None:
    server = request.getfixturevalue(database)
    source = table_of(jdbc, server, server.new_table("id int NOT NULL"))

    with pytest.raises(CursorError, match="no such column"):
        plan(source, attack)
    with pytest.raises(SourceError, match="there is no such table"):
        plan(table_of(jdbc, server, attack), "id")


@pytest.mark.parametrize(
    ("kind", "value"), [("date", "1975-00-00"), ("date", "1975-06-00"), ("datetime", "1975-06-00 10:00:00")]
)
@pytest.mark.parametrize("with_spark", [True, False], ids=["JdbcTable", "SqlTable"])
def test_source_error_names_the_column_when_a_date_of_mariadb_has_no_month_or_day(
    jdbc: Any, maria: Any, kind: str, value: str, with_spark: bool
) -> None:
    name = maria.new_table(f"id int PRIMARY KEY, born {kind}")
    maria.sql("SET sql_mode = ''", f"INSERT INTO {name} VALUES (1, '{value}')")
    source: Any = table_of(jdbc, maria, name) if with_spark else sql_table(maria, name)
    window = plan(source, "id")

    with pytest.raises(SourceError, match="column 'born'"), source.typed_errors():
        taken(source, window, "born")


@pytest.mark.parametrize("kind", ["datetime(6) NOT NULL", "date NOT NULL", "timestamp NOT NULL", "datetime NULL"])
def test_zero_dates_follow_the_policy_of_nulls_when_a_table_of_mariadb_holds_them(
    jdbc: Any, maria: Any, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = maria.new_table(f"id int NOT NULL, at {kind}, KEY (at)")
    maria.sql("SET sql_mode = ''", f"INSERT INTO {name} VALUES (1, '2026-01-01'), (2, '0000-00-00'), (3, '0000-00-00')")
    source = table_of(jdbc, maria, name)

    with pytest.raises(CursorError, match="2 rows have NULL there"):
        plan(source, "at")
    first = plan(source, "at", nulls="skip")
    included = plan(source, "at", nulls="take", write_disposition="merge")
    again = plan(source, "at", included, nulls="take", write_disposition="merge")

    assert taken(source, first) == [1]
    assert "event=nulls_excluded" in caplog.text
    assert [taken(source, window) for window in (included, again)] == [[1, 2, 3], [2, 3]]


@pytest.mark.parametrize("columns", [["at", "id"], ["id", "at"]])
def test_zero_date_is_not_in_the_window_when_the_cursor_is_compound(jdbc: Any, maria: Any, columns: list[str]) -> None:
    name = maria.new_table("id int NOT NULL, at datetime NOT NULL")
    maria.sql("SET sql_mode = ''", f"INSERT INTO {name} VALUES (1, '2026-01-01'), (2, '0000-00-00')")
    source = table_of(jdbc, maria, name)

    assert taken(source, plan(source, columns, nulls="skip")) == [1]


# --- batches -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("database", ["postgres", "maria", "sqlite"])
@pytest.mark.parametrize("cursor", ["id", "s"])
def test_rows_are_taken_once_when_batches_are_limited(
    jdbc: Any, request: pytest.FixtureRequest, database: str, cursor: str
) -> None:
    server = request.getfixturevalue(database)
    name = server.new_table("id int NOT NULL, s varchar(20) NOT NULL")
    values = ", ".join(f"({number}, 'k{number // 3:03}')" for number in range(11))
    server.sql(f"INSERT INTO {name} VALUES {values}")
    source = JdbcTable(jdbc, server.url, name, properties=server.properties)

    batches: list[list[int]] = []
    window: RowWindow | None = None
    while window is None or window.has_more:
        window = plan(source, cursor, window, strings=True, max_rows=7)
        batches.append(taken(source, window))

    # Three rows share each text, so a batch of at most seven rows ends after six.
    size = 6 if cursor == "s" else 7
    assert batches == [list(range(11))[start : start + size] for start in range(0, 11, size)]


# --- a part of the table -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("database", ["postgres", "maria", "sqlite"])
def test_rows_and_columns_are_those_asked_for_when_a_table_is_read_in_part(
    jdbc: Any, request: pytest.FixtureRequest, database: str
) -> None:
    server = request.getfixturevalue(database)
    name = server.new_table("id int NOT NULL, region varchar(9), a int, b int")
    server.sql(
        f"INSERT INTO {name} VALUES (1, 'north', 10, 0), (2, 'south', 20, 0), (3, 'north', 30, 0), (9, 'south', 9, 0)"
    )
    source = JdbcTable(
        jdbc, server.url, name, properties=server.properties, where="region = 'north' OR a = 20", columns=["a"]
    )

    window = plan(source, "id")

    assert window.high == (4,)
    assert [row.asDict() for row in source.rows(window).orderBy("id").collect()] == [
        {"id": 1, "a": 10}, {"id": 2, "a": 20}, {"id": 3, "a": 30},
    ]  # fmt: skip
    assert plan(source, "id", window).is_empty
    assert sorted(row.a for row in source.toDF().collect()) == [10, 20, 30]


def test_nulls_and_ties_are_those_of_the_condition_when_there_is_one(jdbc: Any, postgres: Any) -> None:
    name = postgres.new_table("id int, region text")
    postgres.sql(f"INSERT INTO {name} VALUES (1, 'north'), (2, 'north'), (NULL, 'south'), (3, 'north')")
    source = JdbcTable(jdbc, postgres.url, name, properties=postgres.properties, where="region = 'north'")

    window = plan(source, "id", max_rows=2)

    assert (window.high, window.has_more) == ((3,), True)


def test_column_of_a_type_that_spark_does_not_know_is_left_out_when_others_are_named(jdbc: Any, postgres: Any) -> None:
    name = postgres.new_table("id int PRIMARY KEY, at timestamp, shape point, s text")
    postgres.sql(f"INSERT INTO {name} VALUES (1, '2026-01-01', '(1,2)', 'x')")
    source = JdbcTable(jdbc, postgres.url, name, properties=postgres.properties, columns=["s"])

    assert source.rows(plan(source, "id")).columns == ["id", "s"]


@pytest.mark.parametrize(("before", "now"), [("a > 1", "a > 0"), ("a > 1", ""), ("", "a > 1")])
def test_another_condition_is_refused_when_rows_below_the_watermark_could_be_passed_over(
    jdbc: Any, postgres: Any, before: str, now: str
) -> None:
    name = postgres.new_table("id int PRIMARY KEY, a int")
    postgres.sql(f"INSERT INTO {name} VALUES (1, 1), (2, 2)")
    source, other = (
        JdbcTable(jdbc, postgres.url, name, properties=postgres.properties, where=where) for where in (before, now)
    )
    window = plan(source, "id")

    with pytest.raises(SourceLostError, check=because("replaced")):
        plan(other, "id", window)
    assert plan(source, "id", window).is_empty


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"where": "a = 1; DROP TABLE x"}, "where= holds ';'"),
        ({"where": "a = 1 -- all"}, "where= holds '--'"),
        ({"where": "a = 1 /* all"}, "where= holds '/*'"),
        ({"where": "  "}, "give a condition in SQL"),
        ({"where": 5}, "give a condition in SQL"),
        ({"columns": []}, "give a list of different names"),
        ({"columns": "id"}, "give a list of different names"),
        ({"columns": ["id", "id"]}, "give a list of different names"),
        ({"columns": ["id", ""]}, "give a list of different names"),
    ],
)
def test_part_of_a_table_is_refused_when_it_is_none(jdbc: Any, postgres: Any, options: Any, text: str) -> None:
    with pytest.raises(SourceError) as caught:
        JdbcTable(jdbc, postgres.url, "repairs", properties=postgres.properties, **options)

    assert text in str(caught.value)


def test_column_is_named_when_the_table_has_none_of_it(jdbc: Any, postgres: Any) -> None:
    name = postgres.new_table("id int PRIMARY KEY")
    source = JdbcTable(jdbc, postgres.url, name, properties=postgres.properties, columns=["id", "no"])

    with pytest.raises(SourceError, match=r"it has no column no\. It has: id"):
        plan(source, "id")


def test_condition_is_refused_by_the_database_when_it_is_no_sql(jdbc: Any, postgres: Any) -> None:
    name = postgres.new_table("id int PRIMARY KEY")
    source = JdbcTable(jdbc, postgres.url, name, properties=postgres.properties, where="id >")

    with pytest.raises(SourceError, match="mistake in the syntax of query= or where="):
        plan(source, "id")
