"""A database that is down, refuses, or lacks what a query asks for: typed errors that contain no secret."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from scripts.helpers.databases.sql_table import SqlTable
from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import SourceError, SourceUnavailableError, TargetError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.rows.sources import OpenWriters
from scripts.helpers.sinks.database import DatabaseSink
from scripts.helpers.sql.connection import typed_database_errors
from scripts.helpers.sql.known import database_of
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.databases import PostgresServer, free_port
from tests.support.row_windows import plan
from tests.support.staging import staged_by

SECRET = "not-a-secret"


@pytest.fixture
def stoppable(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """Return a second server, for tests that stop it."""
    server = PostgresServer()
    yield server
    server.stop()


def shown(error: BaseException) -> str:
    return f"{error} {error!r} {error.__cause__!r} {vars(error)}"


def test_nothing_changes_and_the_batch_is_replayed_when_the_database_was_down(
    jdbc: Any, stoppable: PostgresServer, watermarks: Watermarks, clock: Clock, tmp_path: Path
) -> None:
    stoppable.sql("CREATE TABLE parking (id serial primary key)", "INSERT INTO parking VALUES (1), (2)")
    source = JdbcTable(jdbc, stoppable.url, "parking", properties=stoppable.properties)

    def run(run_id: str, before_write: Callable[[], None] = lambda: None) -> int:
        with IncrementalJob(watermarks, "parking", run_id, spark=jdbc, clock=clock) as job:
            rows = job.rows_since(source, "id")
            job.freeze()
            before_write()
            return job.write(rows, str(tmp_path / "raw"))

    with pytest.raises(SourceUnavailableError) as while_reading:
        run("jr_1", stoppable.halt)
    after_reading = watermarks.latest("parking")
    with pytest.raises(SourceUnavailableError) as while_opening:
        run("jr_2")
    after_opening = watermarks.latest("parking")
    stoppable.resume()
    stoppable.sql("INSERT INTO parking VALUES (3)")
    replayed, following = run("jr_3"), run("jr_4")

    for caught in (while_reading, while_opening):
        assert "PostgreSQL table parking" in str(caught.value)
        assert "Run again later: nothing is lost." in str(caught.value)
        assert SECRET not in shown(caught.value) and "127.0.0.1" not in shown(caught.value)
    assert after_reading.version == after_opening.version == 0
    assert after_reading.plan is not None and after_reading.plan == after_opening.plan
    assert (replayed, following) == (2, 1)


def test_error_holds_no_secret_when_nothing_listens(jdbc: Any) -> None:
    url = f"jdbc:postgresql://127.0.0.1:{free_port()}/shop?user=reader&password={SECRET}"
    source = JdbcTable(jdbc, url, "parking", properties={"password": SECRET})

    with pytest.raises(SourceUnavailableError) as caught:
        plan(source, "id")

    assert SECRET not in shown(caught.value) and "127.0.0.1" not in shown(caught.value)
    assert SECRET not in repr(source) and "jdbc:" not in repr(source)


def test_error_says_what_to_check_when_the_user_is_refused(jdbc: Any, maria: Any) -> None:
    source = JdbcTable(jdbc, maria.url, "parking", properties=maria.properties | {"password": "wrong"})

    with pytest.raises(SourceError, match="refuses the user or the password") as caught:
        plan(source, "id")

    assert "wrong" not in shown(caught.value)


def test_error_says_what_to_grant_when_the_user_may_not_read(jdbc: Any, postgres: Any) -> None:
    name = postgres.new_table("id int")
    postgres.sql(f"CREATE ROLE nobody_{name} LOGIN")
    source = JdbcTable(jdbc, postgres.url, name, properties={"user": f"nobody_{name}", "password": SECRET})

    with pytest.raises(SourceError, match=r"does not let this user read it, or .*\. Grant SELECT \(SQLSTATE 42501"):
        plan(source, "id")


def test_plan_stays_and_is_replayed_when_the_login_ended_before_its_rows_were_read(
    jdbc: Any, postgres: Any, watermarks: Watermarks, tmp_path: Path
) -> None:
    name = postgres.new_table("id serial PRIMARY KEY")
    user = f"reader_{name}"
    postgres.sql(
        f"INSERT INTO {name} VALUES (1), (2)", f"CREATE ROLE {user} LOGIN", f"GRANT SELECT ON {name} TO {user}"
    )
    source = JdbcTable(jdbc, postgres.url, name, properties={**postgres.properties, "user": user})

    def run(run_id: str, ends: bool = False) -> int:
        with IncrementalJob(watermarks, "parking", run_id, spark=jdbc) as job:
            rows = job.rows_since(source, "id")
            job.freeze()
            if ends:
                postgres.sql(f"ALTER ROLE {user} NOLOGIN")
            return job.write(rows, str(tmp_path / "raw"))

    refused = []
    for run_id, ends in (("jr_1", True), ("jr_2", False)):
        with pytest.raises(SourceError, match="refuses the user or the password") as caught:
            run(run_id, ends)
        refused.append(caught.value)
    left = watermarks.latest("parking")
    postgres.sql(f"ALTER ROLE {user} LOGIN", f"INSERT INTO {name} VALUES (3)")

    assert (run("jr_3"), run("jr_4")) == (2, 1)
    assert (left.version, left.plan is None) == (0, False)
    assert not any(user in shown(error) or SECRET in shown(error) for error in refused)


def test_nothing_is_lost_when_the_user_may_not_read_the_catalogue(
    jdbc: Any, watermarks: Watermarks, stoppable: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Without access to columns or tables the run fails; without access to open transactions it waits for the delay."""
    name, user = stoppable.new_table("id serial PRIMARY KEY"), "reader"
    stoppable.sql(f"INSERT INTO {name} VALUES (1)", f"CREATE ROLE {user} LOGIN", f"GRANT SELECT ON {name} TO {user}")
    source = JdbcTable(jdbc, stoppable.url, name, properties={**stoppable.properties, "user": user})

    def run() -> list[int]:
        with IncrementalJob(watermarks, "parking", spark=jdbc) as job:
            return [row.id for row in job.rows_since(source, "id").collect()]

    for catalogue in ("pg_attribute", "pg_namespace"):
        stoppable.sql(f"REVOKE SELECT ON pg_catalog.{catalogue} FROM PUBLIC")
        with pytest.raises(SourceError, match=r"or the catalogue that describes it\. Grant SELECT \(SQLSTATE 42501"):
            run()
        stoppable.sql(f"GRANT SELECT ON pg_catalog.{catalogue} TO PUBLIC")
    refused = watermarks.latest("parking")
    stoppable.sql("REVOKE SELECT ON pg_catalog.pg_locks FROM PUBLIC")

    assert (refused.version, refused.plan) == (0, None)
    assert run() == []
    assert "event=undecided_rows context=rows column=id open_transactions=unknown" in caplog.text


def test_error_says_so_when_there_is_no_such_database(jdbc: Any, postgres: Any) -> None:
    source = JdbcTable(jdbc, postgres.url + "x", "parking", properties=postgres.properties)

    with pytest.raises(SourceError, match="does not exist under this name"):
        plan(source, "id")


@pytest.mark.parametrize(
    ("after", "more", "said"),
    [
        ("x", {}, "does not exist under this name"),
        ("?sslmode=perhaps", {}, "does not accept the URL"),
        ("", {"no_such_option": "1"}, "does not accept the URL"),
    ],
    ids=["database", "value", "option"],
)
def test_error_is_no_outage_when_a_database_without_spark_is_named_wrong(
    postgres: Any, after: str, more: dict[str, str], said: str
) -> None:
    login = {name: postgres.properties[name] for name in ("user", "password")}

    with pytest.raises(SourceError, match=said) as caught:
        plan(SqlTable(postgres.url.removeprefix("jdbc:") + after, "parking", properties={**login, **more}), "id")

    assert not isinstance(caught.value, SourceUnavailableError)


def test_error_says_so_when_spark_has_no_driver(jdbc: Any) -> None:
    with pytest.raises(SourceError, match=r"Spark has no driver for it\. Add its jar"):
        plan(JdbcTable(jdbc, "jdbc:oracle:thin:@//127.0.0.1/shop", "PARKING"), "ID")


def test_url_is_refused_without_being_shown_when_it_is_of_another_kind(jdbc: Any) -> None:
    with pytest.raises(SourceError) as caught:
        JdbcTable(jdbc, f"jdbc:db2://127.0.0.1/shop?password={SECRET}", "parking")

    assert "starts with none of jdbc:postgresql:, jdbc:mysql:" in str(caught.value)
    assert SECRET not in shown(caught.value)


def test_logs_hold_neither_values_nor_secrets_when_rows_are_planned_and_read(
    jdbc: Any, postgres: Any, watermarks: Watermarks, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    name = postgres.new_table("id serial NOT NULL")
    postgres.sql(f"INSERT INTO {name} VALUES (987654321)")
    source = JdbcTable(jdbc, postgres.url, name, properties=postgres.properties)

    with caplog.at_level(logging.DEBUG, logger="scripts"):
        with IncrementalJob(watermarks, "parking", spark=jdbc, clock=clock) as job:
            job.rows_since(source, "id", delay=timedelta(0)).collect()

    assert "event=no_index" in caplog.text
    for text in (SECRET, "987654321", "987654322", "127.0.0.1", "jdbc:"):
        assert text not in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "com.microsoft.sqlserver.jdbc.SQLServerException: The TCP/IP connection to the host db-7, port 1433 has failed",
        "org.postgresql.util.PSQLException: Connection to db-7:5432 refused",
        "oracle.net.ns.NetException: Could not connect to db-7",
    ],
    ids=["sqlserver", "postgresql", "oracle"],
)
def test_error_holds_no_host_when_only_the_text_of_the_driver_is_left(text: str) -> None:
    with pytest.raises(SourceError, match="the database refused the query") as caught:
        with typed_database_errors("parking"):
            raise RuntimeError(f"Job aborted due to stage failure: Lost task 0.0 in stage 1.0: {text}")

    assert "db-7" not in shown(caught.value)


def test_error_of_python_comes_out_as_it_is_when_it_speaks_of_urls() -> None:
    with pytest.raises(ValueError, match="jdbc:postgresql:"):
        with typed_database_errors("parking"):
            raise ValueError("start it with jdbc:postgresql:")


def test_error_holds_no_url_when_the_driver_does_not_accept_it(jdbc: Any) -> None:
    url, driver = f"jdbc:mysql://127.0.0.1:1/shop?password={SECRET}", {"driver": "org.postgresql.Driver"}
    sink = DatabaseSink("parking", spark=jdbc, url=url, properties=driver)

    with pytest.raises(SourceError, match=r"Check the URL and the driver \(SQLSTATE unknown, Illegal") as while_reading:
        plan(JdbcTable(jdbc, url, "parking", properties=driver), "id")
    with pytest.raises(TargetError, match="the driver does not accept the URL") as while_writing:
        staged_by(sink, BatchId("parking", "e1", 1), 1, jdbc.range(1))

    for caught in (while_reading, while_writing):
        assert SECRET not in shown(caught.value) and "jdbc:" not in shown(caught.value)


def test_source_is_unavailable_when_only_the_class_of_a_broken_connection_is_left() -> None:
    with pytest.raises(SourceUnavailableError):
        with typed_database_errors("parking"):
            raise RuntimeError("Lost task 0.0 in stage 1.0: java.sql.SQLTransientConnectionException: (conn=3)")


class JavaError(Exception):
    """A PySpark error with the class of its Java exception, and with an SQLSTATE if one is given."""

    def __init__(self, name: str, state: str | None = None) -> None:
        super().__init__("no values here")
        self.java_exception, self.state = self, state
        self.getClass = lambda: SimpleNamespace(getName=lambda: name)
        self.getMessage = lambda: "at db-7"

    def getSQLState(self) -> str:  # noqa: N802
        if self.state is None:
            raise Py4JError
        return self.state

    def getCause(self) -> None:  # noqa: N802
        raise Py4JError


@pytest.mark.parametrize(
    ("name", "translated"),
    [
        ("com.microsoft.sqlserver.jdbc.SQLServerException", True),
        ("java.sql.SQLTimeoutException", True),
        ("org.apache.spark.SparkSQLException", False),
        ("org.apache.spark.SparkSQLFeatureNotSupportedException", False),
        ("org.apache.spark.sql.AnalysisException", False),
    ],
)
def test_error_without_sqlstate_is_translated_when_its_class_is_from_a_driver(name: str, translated: bool) -> None:
    with pytest.raises(Exception, match=r".") as caught:
        with typed_database_errors("parking"):
            raise JavaError(name)

    assert isinstance(caught.value, SourceError) == translated


@pytest.mark.parametrize(
    ("name", "state", "later"),
    [
        ("java.sql.SQLTransientConnectionException", "HY000", True),
        ("java.sql.SQLTransientConnectionException", None, True),
        ("java.sql.SQLRecoverableException", None, True),
        ("java.sql.SQLTransientConnectionException", "28000", False),
        ("java.sql.SQLException", "HY000", False),
    ],
)
def test_source_is_unavailable_when_the_class_of_the_error_says_that_the_connection_broke(
    name: str, state: str | None, later: bool
) -> None:
    with pytest.raises(SourceError) as caught:
        with typed_database_errors("parking"):
            raise JavaError(name, state)

    assert isinstance(caught.value, SourceUnavailableError) == later


@pytest.mark.parametrize("state", ["42P05", "26000"])
def test_remedy_for_a_pooler_is_named_when_it_mixes_up_prepared_statements(state: str) -> None:
    with pytest.raises(SourceError, match=rf"Add prepareThreshold=0 to the URL \(SQLSTATE {state}"):
        with typed_database_errors("parking"):
            raise JavaError("org.postgresql.util.PSQLException", state)


@pytest.mark.parametrize(("suffix", "threshold"), [("", -1), ("?prepareThreshold=0", 0)], ids=["ours", "of-the-url"])
def test_threshold_of_the_url_wins_when_it_has_one(
    suffix: str, threshold: int, jdbc: Any, postgres: PostgresServer
) -> None:
    gateway = jdbc._sc._gateway
    properties = gateway.jvm.java.util.Properties()
    for name, value in {**postgres.properties, **database_of(postgres.url).options}.items():
        properties.setProperty(name, value)

    connection = gateway.jvm.org.postgresql.Driver().connect(postgres.url + suffix, properties)
    found = connection.getPrepareThreshold()
    connection.close()

    assert found == threshold


def test_error_of_another_kind_comes_out_as_it_is_when_no_database_raised_it(jdbc: Any) -> None:
    with pytest.raises(Exception, match="no_such_format") as caught:
        with typed_database_errors("parking"):
            jdbc.read.format("no_such_format").load()

    assert not isinstance(caught.value, SourceError)


ASKED: dict[str, Callable[[JdbcTable], Any]] = {
    "open_writers": lambda table: table.open_writers(timedelta(minutes=5)),
    "sequences": lambda table: table.sequences("id"),
    "cluster": lambda table: table._cluster,
    "writers": lambda table: table._writers("id"),
}


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[SourceError], JdbcTable]:
    """Return a function that makes a PostgreSQL table that answers each query with an error."""

    def make(error: SourceError) -> JdbcTable:
        def fail(*_: Any) -> Any:
            raise error

        session: Any = None
        monkeypatch.setattr(JdbcTable, "_query", fail)
        return JdbcTable(session, "jdbc:postgresql://h/d", "parking")

    return make


@pytest.mark.parametrize("asked", ASKED.values(), ids=list(ASKED))
def test_run_fails_when_the_database_goes_down_during_an_optional_query(
    asked: Callable[[JdbcTable], Any], failing: Callable[[SourceError], JdbcTable]
) -> None:
    table = failing(SourceUnavailableError("PostgreSQL table parking", "08006"))

    with pytest.raises(SourceUnavailableError, match="08006"):
        asked(table)


def test_cluster_is_unknown_when_the_user_may_not_read_it(
    failing: Callable[[SourceError], JdbcTable], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "scripts.helpers.databases.table")

    assert failing(SourceError("PostgreSQL table parking", "it may not be read"))._cluster is None
    assert caplog.messages == ["event=cluster_unknown source=PostgreSQL table parking error=SourceError"]


def test_no_transaction_is_open_when_the_database_has_no_list_of_them() -> None:
    session: Any = None

    assert JdbcTable(session, "jdbc:sqlserver://h;databaseName=d", "t").open_writers(timedelta(0)) == OpenWriters()
