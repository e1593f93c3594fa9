"""Queries of a plan: the same answers with and without a JVM, and no connection stays open."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import SourceError
from scripts.helpers.rows.sql import sql, written_by_hand
from scripts.helpers.sql.connection import ask, typed_database_errors
from tests.support.connect_server import without_jvm
from tests.support.patience import gone

DATABASES = pytest.mark.parametrize("database", ["postgres", "maria", "sqlite"])


def options_of(server: Any, **more: str) -> dict[str, str]:
    """Return the options of Spark's JDBC reader for a server."""
    return JdbcTable(None, server.url, "t", properties={**server.properties, **more})._options  # type: ignore[arg-type]


@DATABASES
def test_answers_are_the_same_when_there_is_no_jvm_to_ask(
    jdbc: Any, request: pytest.FixtureRequest, database: str
) -> None:
    server = request.getfixturevalue(database)
    name = server.new_table("id integer PRIMARY KEY, word varchar(9), amount decimal(9, 2)")
    server.sql(f"INSERT INTO {name} VALUES (1, 'é', 1.50), (2, NULL, NULL)")
    query = written_by_hand(f"SELECT id, word, amount FROM {name}")
    names = ("id", "word", "amount")
    connect = without_jvm(read=jdbc.read)

    asked, read = (ask(session, options_of(server), query, names) for session in (jdbc, connect))

    assert sorted(asked) == sorted(read)
    assert [row[:2] for row in sorted(asked)] == [("1", "é"), ("2", None)]


def test_session_is_that_of_the_reader_when_it_has_a_statement_of_its_own(jdbc: Any, maria: Any, postgres: Any) -> None:
    ours = ask(jdbc, options_of(maria), sql("SELECT @@time_zone AS zone"), ["zone"])
    given = options_of(postgres, SessionInitStatement="SET TimeZone = 'Asia/Tokyo'")
    theirs = ask(jdbc, given, sql("SELECT current_setting('TimeZone') AS zone"), ["zone"])

    assert (ours, theirs) == ([("+00:00",)], [("Asia/Tokyo",)])


def test_no_connection_is_left_when_questions_were_answered_or_refused(jdbc: Any, postgres: Any) -> None:
    def clients() -> Any:
        return postgres.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> "
                            "pg_backend_pid()")  # fmt: skip

    before = set(clients())
    answered = ask(jdbc, options_of(postgres), sql("SELECT 1 AS one"), ["one"])
    with pytest.raises(Py4JJavaError, match="division by zero"):
        ask(jdbc, options_of(postgres), sql("SELECT 1 / 0 AS one"), ["one"])

    assert answered == [("1",)]
    assert gone(lambda: set(clients()) - before)


def test_question_ends_when_its_time_is_over(jdbc: Any, postgres: Any) -> None:
    options = options_of(postgres, queryTimeout="1")

    with pytest.raises(SourceError, match="SQLSTATE 57014"), typed_database_errors("a table"):
        ask(jdbc, options, sql("SELECT CAST(pg_sleep(30) AS text) AS slept"), ["slept"])
