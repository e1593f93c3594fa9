"""Fixtures of the row sources: private databases, started by the first test that uses them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import pytest

from scripts.helpers.databases.sql_table import SqlTable
from scripts.helpers.databases.table import JdbcTable
from tests.support.components import JDBC_JARS, find_jdbc_jars, missing_component
from tests.support.databases import MariaServer, PostgresServer, SQLiteFile
from tests.support.written import KINDS, Written

PACKAGES = (
    "apt-get install postgresql mariadb-server libpostgresql-jdbc-java libmariadb-java libxerial-sqlite-jdbc-java"
)


@pytest.fixture(scope="session")
def jdbc(spark: Any) -> Any:
    """Return the Spark session with all drivers on its class path."""
    missing = sorted(set(JDBC_JARS) - {name for name, _ in find_jdbc_jars()})
    if missing:
        missing_component(f"the JDBC driver {', '.join(missing)}", PACKAGES)
    return spark


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    if PostgresServer.binaries() is None:
        missing_component("PostgreSQL", PACKAGES)
    if importlib.util.find_spec("psycopg") is None:
        missing_component("psycopg", "pip install 'psycopg[binary]'")
    server = PostgresServer()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def maria() -> Iterator[MariaServer]:
    if MariaServer.binaries() is None:
        missing_component("MariaDB", PACKAGES)
    if importlib.util.find_spec("pymysql") is None:
        missing_component("PyMySQL", "pip install PyMySQL")
    server = MariaServer()
    with pytest.MonkeyPatch.context() as patch:
        load_certificates_once(patch)
        yield server
    server.stop()


def load_certificates_once(patch: pytest.MonkeyPatch) -> None:
    """Let connections without a TLS option share one context: creating it takes longer than most queries."""
    from pymysql.connections import Connection

    make = Connection._create_ssl_ctx
    shared = cache(lambda: make(None, {}))
    patch.setattr(Connection, "_create_ssl_ctx", lambda self, given: make(self, given) if given else shared())


@pytest.fixture
def table_in(request: pytest.FixtureRequest, jdbc: Any, postgres: PostgresServer) -> Callable[..., Any]:
    """Return a function that makes a `JdbcTable`, or a `SqlTable`, over a table of the PostgreSQL server."""
    if getattr(request, "param", JdbcTable) is SqlTable:
        return partial(sql_table, postgres)

    def make(name: str, kind: type[JdbcTable] = JdbcTable, **options: Any) -> JdbcTable:
        return kind(jdbc, postgres.url, name, **({"properties": postgres.properties} | options))

    return make


def sql_table(server: Any, name: Any = (), **options: Any) -> SqlTable:
    """Return a `SqlTable` over a table of a test server."""
    login = {key: value for key, value in server.properties.items() if key in ("user", "password")}
    return SqlTable(server.url.removeprefix("jdbc:"), name, **({"properties": login} | options))


BOTH = pytest.mark.parametrize("table_in", [JdbcTable, SqlTable], indirect=True)
"""Marks tests that apply to a table with Spark and without it."""


@pytest.fixture(scope="session")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> SQLiteFile:
    return SQLiteFile(tmp_path_factory.mktemp("sqlite") / "shop.db")


@pytest.fixture(params=list(KINDS))
def written(request: pytest.FixtureRequest) -> Written:
    """Return each database that tests write to, one after another."""
    return written_as(request, request.param)


def written_as(request: pytest.FixtureRequest, kind: str) -> Written:
    """Return one database that tests write to."""
    return KINDS[kind](request.getfixturevalue(kind))
