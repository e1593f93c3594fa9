"""A plan queries its database in one connection and with few statements, as counted in the servers' own logs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from scripts.helpers.databases import table as table_module
from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import CursorError, SourceUnavailableError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.sources import EARLY
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.sql.connection import jdbc_connection
from scripts.helpers.watermarks import Watermarks
from tests.support.patience import gone

Maker = Callable[..., JdbcTable]
OF_DRIVERS = re.compile("SET extra_float_digits|SET application_name|set autocommit|SELECT @@max_allowed_packet")
"""Statements that a driver itself sends when it connects."""
OF_READER = re.compile(r"WHERE 1=0|SELECT c\.oid, a\.attnum")
"""Queries that Spark sends in its own connection to find the types of the rows."""
DATABASES = {
    "postgres": "id serial PRIMARY KEY, at timestamptz NOT NULL DEFAULT '2026-01-01'",
    "maria": "id integer AUTO_INCREMENT PRIMARY KEY, at timestamp(6) NOT NULL DEFAULT '2026-01-01 00:00:00'",
    "sqlite": "id integer PRIMARY KEY, at text NOT NULL DEFAULT '2026-01-01'",
}


class Asked:
    """The statements that a server received in a block, by connection."""

    def __init__(self) -> None:
        self.connections: dict[str, list[str]] = {}

    def add(self, connection: str, statement: str) -> None:
        if not OF_DRIVERS.search(statement):
            self.connections.setdefault(connection, []).append(statement)

    @property
    def counts(self) -> tuple[int, int]:
        """Connections and statements, without those of Spark's reader."""
        ours = [asked for asked in self.connections.values() if not any(map(OF_READER.search, asked))]
        # MariaDB may show an old list of transactions; looking again takes a new connection, so count one look.
        looks = [asked for asked in ours if asked and asked[0].startswith("START TRANSACTION")]
        ours = [*(asked for asked in ours if asked not in looks), *looks[:1]]
        return len(ours), sum(map(len, ours))


@contextmanager
def asked_of_postgres(server: Any) -> Iterator[Asked]:
    before, asked = server.log(), Asked()
    yield asked
    for line in server.log_since(before).splitlines():
        if found := re.search(r"\[(\d+)\] LOG:  (?:statement|execute [^:]*): (.*)", line):
            asked.add(found[1], found[2])


@contextmanager
def asked_of_maria(server: Any) -> Iterator[Asked]:
    asked = Asked()
    server.sql("SET GLOBAL log_output = 'TABLE'", "TRUNCATE mysql.general_log", "SET GLOBAL general_log = ON")
    try:
        yield asked
    finally:
        server.sql("SET GLOBAL general_log = OFF")
    listed = server.sql(
        "SELECT thread_id, REPLACE(argument, '\\n', ' ') FROM mysql.general_log WHERE command_type = 'Query' "
        "AND user_host LIKE '%reader%' ORDER BY event_time"
    )
    for line in listed.splitlines()[1:]:
        asked.add(*line.split("\t", 1))


@pytest.fixture
def asked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Return a function that opens a block and records the statements that a database receives in it."""

    @contextmanager
    def of_sqlite() -> Iterator[Asked]:
        counted = Asked()

        @contextmanager
        def connect(*arguments: Any) -> Iterator[Any]:
            counted.connections[str(len(counted.connections))] = []
            with jdbc_connection(*arguments) as connection:
                yield connection

        monkeypatch.setattr(table_module, "jdbc_connection", connect)
        yield counted

    def of(database: str) -> Any:
        if database == "sqlite":
            return of_sqlite()
        server = request.getfixturevalue(database)
        return asked_of_postgres(server) if database == "postgres" else asked_of_maria(server)

    return of


def run(watermarks: Watermarks, source: JdbcTable, run_id: str, cursor: str, *, fails: bool = False) -> None:
    """Plan a batch and read no row; a run that fails leaves its plan to the next run."""
    with IncrementalJob(watermarks, "repairs", run_id) as job:
        job.rows_since(source, cursor, transformation_ctx="repairs", strings=True)
        job.freeze()
        if fails:
            raise ZeroDivisionError


COUNTS = {
    ("postgres", "id"): [(1, 10), (1, 8), (1, 10), (1, 5)],
    ("postgres", "at"): [(1, 8), (1, 8), (1, 8), (1, 5)],
    ("maria", "id"): [(2, 10), (1, 7), (2, 10), (1, 4)],
    ("maria", "at"): [(2, 8), (2, 8), (2, 8), (1, 4)],
    ("sqlite", "id"): [(1, 0), (1, 0), (1, 0), (1, 0)],
}
"""Connections and statements of the first run, of a run without new rows, of one with new rows, and of its replay.

SQLite has no log, so only its connections are counted. MariaDB's list of transactions needs a connection of its own.
"""


@pytest.mark.parametrize(("database", "cursor"), list(COUNTS))
def test_plan_asks_in_one_connection_when_a_job_runs(
    watermarks: Watermarks,
    jdbc: Any,
    request: pytest.FixtureRequest,
    asked: Callable[[str], Any],
    database: str,
    cursor: str,
) -> None:
    server = request.getfixturevalue(database)
    name = server.new_table(DATABASES[database])
    server.sql(f"CREATE INDEX {name}_at ON {name} (at)", f"INSERT INTO {name} (id) VALUES (1), (2)")
    found = []
    for number in range(4):
        if number == 2:
            server.sql(f"INSERT INTO {name} (id, at) VALUES (3, '2026-01-02'), (4, '2026-01-03')")
        with asked(database) as counted, suppress(ZeroDivisionError):
            source = JdbcTable(jdbc, server.url, name, properties=server.properties)
            run(watermarks, source, f"jr_{number}", cursor, fails=number == 2)
        found.append(counted.counts)

    assert found == COUNTS[database, cursor]


@pytest.mark.parametrize("settings", ["postgres", "maria", "maria?autocommit=false", "sqlite"])
def test_each_question_sees_its_own_moment_when_a_connection_is_shared(
    jdbc: Any, request: pytest.FixtureRequest, settings: str
) -> None:
    database, mark, options = settings.partition("?")
    server = request.getfixturevalue(database)
    name = server.new_table("id integer PRIMARY KEY")
    server.sql(f"INSERT INTO {name} VALUES (1)")
    table = JdbcTable(jdbc, server.url + mark + options, name, properties=server.properties)
    columns = table.columns(["id"], strings=False)

    with table.asking():
        before = table.last(columns, descending=False)
        server.sql(f"INSERT INTO {name} VALUES (2)")
        after = table.last(columns, descending=False)
        still_open = table.writers("id", timedelta(0))

    assert (before, after) == ((1,), (2,))
    assert still_open is not None
    assert still_open <= EARLY


def clients(server: Any) -> set[str]:
    # Connections of the tests' own driver are left out, because they may still be about to close.
    found = server.sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'PostgreSQL JDBC Driver'")
    return {pid for (pid,) in found}


def test_connection_that_broke_off_is_not_used_again_when_more_is_asked(postgres: Any, table_in: Maker) -> None:
    name = postgres.new_table("id integer PRIMARY KEY")
    table = table_in(name)
    columns = table.columns(["id"], strings=False)

    with table.asking():
        before = clients(postgres)
        table.last(columns, descending=False)
        (ours,) = clients(postgres) - before
        postgres.sql(f"SELECT pg_terminate_backend({ours}, 10000)")
        with pytest.raises(SourceUnavailableError):
            table.last(columns, descending=False)

        assert table.last(columns, descending=False) is None


def test_connection_is_of_its_plan_alone_when_another_thread_plans_with_the_same_table(
    postgres: Any, table_in: Maker
) -> None:
    name = postgres.new_table("id integer PRIMARY KEY")
    table = table_in(name)
    columns = table.columns(["id"], strings=False)

    def plan() -> set[str]:
        with table.asking():
            table.last(columns, descending=False)
            return clients(postgres)

    with ThreadPoolExecutor(1) as others, table.asking():
        before = clients(postgres)
        table.last(columns, descending=False)
        alone = clients(postgres) - before
        beside = others.submit(plan).result() - before
        table.last(columns, descending=False)

        assert (len(alone), len(beside)) == (1, 2)
        assert alone < beside
        assert alone <= clients(postgres)


def test_no_connection_is_left_when_a_plan_is_refused_or_its_rows_are_read(postgres: Any, table_in: Maker) -> None:
    table, before = table_in(postgres.new_table("id integer PRIMARY KEY")), clients(postgres)

    with pytest.raises(CursorError), table.asking():
        table.columns(["elsewhere"], strings=False)
    assert gone(lambda: clients(postgres) - before)

    with table.asking():
        window = RowWindow(table.columns(["id"], strings=False), None, (9,))
        assert clients(postgres) - before
        table.rows(window)
        # Spark opens its own connection, and a user may be limited to one connection at a time.
        assert gone(lambda: clients(postgres) - before)
