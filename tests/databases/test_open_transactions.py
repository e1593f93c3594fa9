"""Ids that commit out of order, on real databases: none is lost while transactions are open."""

from __future__ import annotations

import importlib.util
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.rows.spark_frames import DataFrameRows
from scripts.helpers.rows.window import RowWindow
from tests.support.components import missing_component
from tests.support.row_windows import JOB_CLOCK, plan, taken

Maker = Callable[..., JdbcTable]
SHORT = timedelta(milliseconds=300)
"""A delay that a test can wait for; whoever does not tell of transactions is told apart by a longer one."""
SERIAL = "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, s text"


@contextmanager
def open_transaction(connection: Any) -> Iterator[Any]:
    """Give a cursor of a transaction that stays open until it is committed or the block ends."""
    connection.autocommit = False
    with closing(connection), connection.cursor() as cursor:
        yield cursor
        connection.rollback()


def insert(cursor: Any, name: str) -> None:
    cursor.execute(f"INSERT INTO {name} (s) VALUES ('x')")


def run(source: Any, before: RowWindow | None = None, **options: Any) -> tuple[RowWindow, list[int]]:
    window = plan(source, "id", before, **({"delay": SHORT} | options))
    return window, taken(source, window)


@pytest.mark.parametrize(
    "columns", [SERIAL, "id serial PRIMARY KEY, s text", "id int DEFAULT nextval('shared'), s text"]
)
def test_lower_id_is_taken_when_it_commits_after_a_higher_one(postgres: Any, table_in: Maker, columns: str) -> None:
    postgres.sql("CREATE SEQUENCE IF NOT EXISTS shared")
    name = postgres.new_table(columns)
    source = table_in(name)
    with open_transaction(postgres.connect()) as slow:
        insert(slow, name)
        postgres.sql(f"INSERT INTO {name} (s) VALUES ('y')")

        first, before = run(source)
        slow.connection.commit()
    _, after = run(source, first)

    assert before == []
    assert len(after) == 2


def test_transaction_that_has_a_number_and_no_row_yet_is_waited_for(postgres: Any, table_in: Maker) -> None:
    name = postgres.new_table("id bigserial PRIMARY KEY, s text")
    source = table_in(name)
    with open_transaction(postgres.connect()) as slow:
        slow.execute(f"SELECT nextval('{name}_id_seq')")
        ((number,),) = slow.fetchall()
        postgres.sql(f"INSERT INTO {name} (s) VALUES ('y')")

        first, before = run(source)
        slow.execute(f"INSERT INTO {name} VALUES ({number}, 'x')")
        slow.connection.commit()
    _, after = run(source, first)

    assert (before, after) == ([], [1, 2])


def test_rows_of_partitions_are_waited_for_when_they_are_written_to_directly(postgres: Any, table_in: Maker) -> None:
    name = postgres.new_table("id bigint, s text) PARTITION BY RANGE (id")
    postgres.sql(f"CREATE TABLE {name}_low PARTITION OF {name} FOR VALUES FROM (0) TO (1000)")
    source = table_in(name)
    with open_transaction(postgres.connect()) as slow:
        slow.execute(f"INSERT INTO {name}_low VALUES (1, 'x')")
        postgres.sql(f"INSERT INTO {name} VALUES (2, 'y')")

        first, before = run(source)
        slow.connection.commit()
    _, after = run(source, first)

    assert (before, after) == ([], [1, 2])


def test_run_waits_for_a_transaction_that_ends_within_the_delay(postgres: Any, table_in: Maker) -> None:
    name = postgres.new_table(SERIAL)
    source = table_in(name)
    with open_transaction(postgres.connect()) as slow:
        insert(slow, name)
        postgres.sql(f"INSERT INTO {name} (s) VALUES ('y')")
        looks: list[frozenset[str] | None] = []
        look = source._writers

        def commit_after_the_first_look() -> frozenset[str] | None:
            found = look()
            looks.append(found)
            slow.connection.commit()
            return found

        source._writers = commit_after_the_first_look  # type: ignore[method-assign]
        _, ids = run(source, delay=timedelta(minutes=5))

    assert [found is not None and len(found) for found in looks] == [1, 0]
    assert ids == [1, 2]


def test_readers_and_writers_of_other_tables_hold_nothing_back(postgres: Any, table_in: Maker) -> None:
    name, other = postgres.new_table(SERIAL), postgres.new_table(SERIAL)
    postgres.sql(f"INSERT INTO {name} (s) VALUES ('y')")
    with open_transaction(postgres.connect()) as reader, open_transaction(postgres.connect()) as writer:
        reader.execute(f"SELECT * FROM {name} FOR UPDATE")
        insert(writer, other)

        _, ids = run(table_in(name))

    assert ids == [1]


@pytest.mark.parametrize(
    "change",
    [
        "ALTER SEQUENCE {name}_id_seq CACHE 20",
        "ALTER TABLE {name} RENAME TO {name}_moved; CREATE VIEW {name} AS SELECT * FROM {name}_moved",
    ],
    ids=["cached", "view"],
)
def test_time_decides_when_locks_tell_nothing(postgres: Any, table_in: Maker, change: str) -> None:
    name = postgres.new_table("id bigserial PRIMARY KEY, s text")
    postgres.sql(f"INSERT INTO {name} (s) VALUES ('y')", *change.format(name=name).split("; "))
    source = table_in(name)

    first, before = run(source, delay=timedelta(seconds=1))
    postgres.sql("SELECT pg_sleep(1)")
    _, after = run(source, first, delay=timedelta(seconds=1))

    assert (before, after) == ([], [1])


def test_every_id_is_taken_once_when_transactions_open_commit_and_abort_in_any_order(
    postgres: Any, table_in: Maker
) -> None:
    rng = random.Random(7)
    name = postgres.new_table(SERIAL)
    source = table_in(name)
    window: RowWindow | None = None
    found: list[int] = []
    connections = [postgres.connect() for _ in range(4)]
    try:
        for connection in connections:
            connection.autocommit = False
        for _ in range(120):
            connection = rng.choice(connections)
            step = rng.random()
            if step < 0.5:
                insert(connection.cursor(), name)
            elif step < 0.8:
                connection.commit()
            elif step < 0.85:
                connection.rollback()
            else:
                window, ids = run(source, window, delay=timedelta(microseconds=1))
                found += ids
        for connection in connections:
            connection.commit()
    finally:
        for connection in connections:
            connection.close()
    found += run(source, window)[1]

    assert sorted(found) == [number for (number,) in postgres.sql(f"SELECT id FROM {name} ORDER BY id")]


# --- MariaDB and SQLite ----------------------------------------------------------------------------------


def test_lower_id_is_taken_when_it_commits_later_in_mariadb(jdbc: Any, maria: Any) -> None:
    if importlib.util.find_spec("pymysql") is None:
        missing_component("PyMySQL", "pip install PyMySQL")
    import pymysql

    name = maria.new_table("id bigint AUTO_INCREMENT PRIMARY KEY, s text")
    source = JdbcTable(jdbc, maria.url, name, properties=maria.properties)
    with open_transaction(pymysql.connect(unix_socket=f"{maria.folder}/socket", user="root", database="shop")) as slow:
        insert(slow, name)
        maria.sql(f"INSERT INTO {name} (s) VALUES ('y')")

        first, before = run(source)
        slow.connection.commit()
    second, after = run(source, first)

    assert (before, after) == ([], [1, 2])
    assert "undecided" not in second.state_after


def test_time_decides_when_the_user_of_mariadb_may_not_see_transactions(jdbc: Any, maria: Any) -> None:
    name = maria.new_table("id bigint AUTO_INCREMENT PRIMARY KEY, s text")
    maria.sql(
        f"INSERT INTO {name} (s) VALUES ('y')",
        "CREATE USER IF NOT EXISTS blind@'%' IDENTIFIED BY 'not-a-secret'",
        "GRANT SELECT ON shop.* TO blind@'%'",
    )
    source = JdbcTable(jdbc, maria.url, name, properties=maria.properties | {"user": "blind"})

    first, before = run(source, delay=timedelta(seconds=1))
    maria.sql("SELECT SLEEP(1)")
    _, after = run(source, first, delay=timedelta(seconds=1))

    assert (before, after) == ([], [1])


def test_time_decides_when_mariadb_is_a_replica_that_can_be_written_to(jdbc: Any, maria: Any) -> None:
    name = maria.new_table("id bigint AUTO_INCREMENT PRIMARY KEY, s text")
    maria.sql(f"INSERT INTO {name} VALUES (2, 'y')")
    source = JdbcTable(jdbc, maria.url, name, properties=maria.properties)
    # Whom it follows does not matter: nobody answers there.
    maria.sql(
        "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=1, MASTER_USER='x', MASTER_PASSWORD='not-a-secret'",
        "START SLAVE",
    )
    try:
        first, before = run(source, delay=timedelta(seconds=1))
        # As a transaction of the primary that was open until now.
        maria.sql(f"INSERT INTO {name} VALUES (1, 'x')", "SELECT SLEEP(1)")
        _, after = run(source, first, delay=timedelta(seconds=1))
    finally:
        maria.sql("STOP SLAVE", "RESET SLAVE ALL")

    assert (before, after) == ([], [1, 2])


def test_sqlite_is_not_waited_for_as_one_transaction_writes_at_a_time(jdbc: Any, sqlite: Any) -> None:
    name = sqlite.new_table("id integer PRIMARY KEY, s text")
    source = JdbcTable(jdbc, sqlite.url, name)
    with (
        closing(sqlite3.connect(sqlite.path, isolation_level=None)) as first,
        closing(sqlite3.connect(sqlite.path, timeout=0)) as second,
    ):
        first.execute("BEGIN")
        insert(first, name)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            insert(second, name)
        first.execute("COMMIT")

    assert run(source)[1] == [1]


@pytest.mark.parametrize("cached", [False, True])
def test_rows_of_sparks_own_reader_wait_for_the_delay_when_nobody_tells_of_transactions(
    jdbc: Any, postgres: Any, caplog: pytest.LogCaptureFixture, cached: bool
) -> None:
    name = postgres.new_table("id bigserial PRIMARY KEY, s text")
    postgres.sql(f"INSERT INTO {name} (s) VALUES ('y'), ('z')")
    login = {**postgres.properties, "driver": "org.postgresql.Driver"}
    frame = jdbc.read.jdbc(postgres.url, name, properties=login).where("s = 'z'")
    source = DataFrameRows(frame.cache() if cached else frame)

    first, before = run(source)
    soon, _ = run(source, first, now=JOB_CLOCK + SHORT / 2)
    _, after = run(source, soon, now=JOB_CLOCK + SHORT)
    frame.unpersist()

    assert (before, after) == ([], [2])
    assert run(source, delay=timedelta(0))[1] == [2]
    assert "event=jdbc_frame source=DataFrame" in caplog.text


def test_ids_of_files_wait_for_nothing_when_no_database_is_read(
    jdbc: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jdbc.range(3).write.parquet(f"{tmp_path}/ids")

    _, found = run(DataFrameRows(jdbc.read.parquet(f"{tmp_path}/ids")))

    assert found == [0, 1, 2]
    assert "event=jdbc_frame" not in caplog.text
