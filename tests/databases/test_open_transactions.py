"""Ids and times that commit out of order, on real databases: no row is lost while transactions are open."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.databases.snapshot import PostgresSnapshot
from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import CursorError
from scripts.helpers.rows.spark_frames import DataFrameRows
from scripts.helpers.rows.sql import in_quotes, sql
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.sql.mysql import MySQL
from tests.support.database_fixtures import BOTH
from tests.support.databases import MariaServer
from tests.support.long import cases
from tests.support.row_windows import JOB_CLOCK, plan, taken

Maker = Callable[..., JdbcTable]
SHORT = timedelta(milliseconds=300)
"""A delay that a test can wait for. Tests of sources that report no transactions use a longer delay."""
SERIAL = "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, s text"


@contextmanager
def open_transaction(connection: Any) -> Iterator[Any]:
    """Yield a cursor of a transaction that stays open until it is committed or the block ends."""
    connection.autocommit = False
    with closing(connection), connection.cursor() as cursor:
        yield cursor
        connection.rollback()


def insert(cursor: Any, name: str) -> None:
    cursor.execute(f"INSERT INTO {name} (s) VALUES ('x')")


def run(source: Any, before: RowWindow | None = None, **options: Any) -> tuple[RowWindow, list[int]]:
    window = plan(source, "id", before, **({"delay": SHORT} | options))
    return window, taken(source, window)


@BOTH
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
    name = postgres.new_table("id bigserial, s text) PARTITION BY RANGE (id")
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

        def commit_after_the_first_look(column: str) -> frozenset[str] | None:
            found = look(column)
            looks.append(found)
            slow.connection.commit()
            return found

        source._writers = commit_after_the_first_look  # type: ignore[method-assign]
        _, ids = run(source, delay=timedelta(minutes=5))

    assert [None if found is None else bool(found) for found in looks] == [True, False]
    assert ids == [1, 2]


def test_transaction_is_listed_when_the_statement_of_each_session_says_where_the_table_is(
    jdbc: Any, postgres: Any
) -> None:
    postgres.sql("CREATE SCHEMA IF NOT EXISTS aside", f"CREATE TABLE IF NOT EXISTS aside.found ({SERIAL})")
    begins = {**postgres.properties, "sessioninitstatement": "SET search_path TO aside"}
    source = JdbcTable(jdbc, postgres.url, "found", properties=begins)
    with open_transaction(postgres.connect()) as slow:
        insert(slow, "aside.found")
        open_now = source.writers("id", timedelta(0))

    assert open_now
    assert source.writers("id", timedelta(0)) == frozenset()


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
def test_delay_decides_when_locks_do_not_show_the_transactions(postgres: Any, table_in: Maker, change: str) -> None:
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
        for _ in range(cases(50, long=300)):
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


# --- sequences behind code -------------------------------------------------------------------------------

COUNTED = "id bigint PRIMARY KEY, s text"
CODED = {
    "trigger": (
        COUNTED,
        (
            "CREATE FUNCTION numbering.fill() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN NEW.id := nextval('numbering.counter'); RETURN NEW; END $$"
        ),
        "CREATE TRIGGER fill BEFORE INSERT ON {name} FOR EACH ROW EXECUTE FUNCTION numbering.fill()",
    ),
    "argument": (
        COUNTED,
        "CREATE FUNCTION numbering.next(of text) RETURNS bigint LANGUAGE sql AS $$ SELECT nextval(of::regclass) $$",
        (
            "CREATE FUNCTION numbering.fill() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN NEW.id := numbering.Next(TG_ARGV[0]); RETURN NEW; END $$"
        ),
        "CREATE TRIGGER fill BEFORE INSERT ON {name} FOR EACH ROW EXECUTE FUNCTION numbering.fill('numbering.counter')",
    ),
    "default": (
        COUNTED,
        (
            "CREATE FUNCTION numbering.next() RETURNS bigint LANGUAGE sql BEGIN ATOMIC;"
            " SELECT nextval('numbering.counter'); END"
        ),
        "ALTER TABLE {name} ALTER id SET DEFAULT numbering.next()",
    ),
}


@pytest.fixture
def numbered(postgres: Any) -> Iterator[Callable[..., str]]:
    """Return a function that makes tables whose ids some code draws from the sequence ``numbering.counter``."""

    def make(kind: str, options: str) -> str:
        columns, *code = CODED[kind]
        name = str(postgres.new_table(columns))
        made = "CREATE SCHEMA numbering", f"CREATE SEQUENCE numbering.counter {options}"
        postgres.sql(*made, *[statement.replace("{name}", name) for statement in code])
        return name

    yield make
    postgres.sql("DROP SCHEMA IF EXISTS numbering CASCADE")


@pytest.mark.parametrize("kind", CODED)
def test_number_that_a_session_took_in_advance_is_taken_when_code_uses_the_sequence(
    postgres: Any, table_in: Maker, numbered: Callable[..., str], kind: str
) -> None:
    name, delay = numbered(kind, "CACHE 20"), timedelta(seconds=1)
    source = table_in(name)
    with closing(postgres.connect()) as one, closing(postgres.connect()) as other:
        insert(one, name)
        insert(other, name)
        first, before = run(source, delay=delay)
        insert(one, name)
    postgres.sql("SELECT pg_sleep(1)")

    assert (before, run(source, first, delay=delay)[1]) == ([], [1, 2, 21])


@pytest.mark.parametrize("kind", [kind for kind in CODED if kind != "argument"])
def test_sequence_behind_code_is_exact_when_it_has_no_cache(
    postgres: Any, table_in: Maker, numbered: Callable[..., str], caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    name = numbered(kind, "CACHE 1")
    source = table_in(name)
    with open_transaction(postgres.connect()) as slow:
        slow.execute("SELECT nextval('numbering.counter')")
        postgres.sql(f"INSERT INTO {name} (s) VALUES ('y')")
        first, before = run(source)

    assert (before, run(source, first)[1]) == ([], [2])
    assert run(source)[1] == [2]
    assert "event=no_sequence" not in caplog.text


@pytest.mark.parametrize("columns", ["id bigint, s text", "id bigint, s text, other bigserial"])
def test_ids_wait_for_open_transactions_alone_when_no_sequence_gives_them(
    postgres: Any, table_in: Maker, caplog: pytest.LogCaptureFixture, columns: str
) -> None:
    name, delay = postgres.new_table(columns), timedelta(seconds=1)
    source = table_in(name)
    with open_transaction(postgres.connect()) as slow:
        slow.execute(f"INSERT INTO {name} (id) VALUES (1)")
        postgres.sql(f"INSERT INTO {name} (id) VALUES (3)")
        first, before = run(source, delay=delay)
        postgres.sql(f"INSERT INTO {name} (id) VALUES (2)", "SELECT pg_sleep(1)")
        second, held = run(source, first, delay=delay)
        slow.connection.commit()
    third, after = run(source, second, delay=delay)
    postgres.sql(f"INSERT INTO {name} (id) VALUES (4)")

    assert (before, held, after, run(source, third)[1]) == ([], [], [1, 2, 3], [4])
    assert caplog.text.count("event=no_sequence context=repairs column=id") == 1


def test_id_of_a_prepared_transaction_is_taken_when_the_server_was_started_again(
    postgres: Any, table_in: Maker
) -> None:
    name = postgres.new_table(SERIAL)
    source = table_in(name)
    with closing(postgres.connect()) as connection:
        connection.execute("BEGIN")
        insert(connection, name)
        postgres.sql(f"INSERT INTO {name} (s) VALUES ('y')")
        first, before = run(source)
        connection.execute("PREPARE TRANSACTION 'half'")
    second, prepared = run(source, first)
    postgres.halt()
    postgres.resume()
    try:
        third, restarted = run(source, second)
    finally:
        postgres.sql("COMMIT PREPARED 'half'")

    assert (before, prepared, restarted) == ([], [], [])
    assert run(source, third)[1] == [1, 2]


# --- rows of another server: a publisher, and the server of a foreign table, are a database of the same one ---------

TIMED_IDS = "id bigint PRIMARY KEY, s text, at timestamptz NOT NULL DEFAULT now()"


@pytest.fixture
def elsewhere(postgres: Any) -> Iterator[str]:
    """Return the name of another database whose table `shown` is visible through a table of that name in the first."""
    postgres.sql("DROP DATABASE IF EXISTS elsewhere", "CREATE DATABASE elsewhere", "DROP TABLE IF EXISTS shown CASCADE")
    postgres.sql(f"CREATE TABLE shown ({TIMED_IDS})", database="elsewhere")
    yield "elsewhere"
    postgres.sql("DROP EXTENSION IF EXISTS postgres_fdw CASCADE", "DROP TABLE IF EXISTS shown CASCADE")
    postgres.sql("DROP DATABASE elsewhere WITH (FORCE)")


@pytest.fixture
def subscriber(postgres: Any, elsewhere: str) -> Iterator[str]:
    postgres.sql(
        "CREATE PUBLICATION feed FOR TABLE shown",
        "SELECT pg_create_logical_replication_slot('feed', 'pgoutput')",
        database=elsewhere,
    )
    postgres.sql(
        f"CREATE TABLE shown ({TIMED_IDS})",
        f"CREATE SUBSCRIPTION feed CONNECTION 'host=127.0.0.1 port={postgres.port} user=postgres dbname={elsewhere}'"
        " PUBLICATION feed WITH (create_slot = false, slot_name = 'feed', copy_data = false)",
    )
    yield "shown"
    postgres.sql("DROP SUBSCRIPTION feed")


def make_foreign(postgres: Any, columns: str) -> None:
    postgres.sql(
        "CREATE EXTENSION postgres_fdw",
        f"CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '127.0.0.1', port '{postgres.port}',"
        " dbname 'elsewhere')",
        "CREATE USER MAPPING FOR PUBLIC SERVER far OPTIONS (user 'postgres', password 'not-a-secret')",
        f"{columns} SERVER far OPTIONS (table_name 'shown')",
    )


@pytest.fixture
def foreign_table(postgres: Any, elsewhere: str) -> str:
    make_foreign(postgres, f"CREATE FOREIGN TABLE shown ({TIMED_IDS.replace(' PRIMARY KEY', '')})")
    return "shown"


@pytest.fixture
def foreign_partition(postgres: Any, elsewhere: str) -> str:
    postgres.sql(f"CREATE TABLE shown ({TIMED_IDS.replace(' PRIMARY KEY', '')}) PARTITION BY RANGE (id)")
    make_foreign(postgres, "CREATE FOREIGN TABLE shown_far PARTITION OF shown FOR VALUES FROM (0) TO (1000)")
    return "shown"


def wait_for(postgres: Any, name: str, *ids: int) -> None:
    while postgres.sql(f"SELECT id FROM {name} ORDER BY id") != [(number,) for number in ids]:
        postgres.sql("SELECT pg_sleep(0.05)")


@pytest.mark.parametrize("kind", ["subscriber", "foreign_partition"])
def test_lower_id_is_taken_when_another_server_commits_it_later(
    request: pytest.FixtureRequest, postgres: Any, table_in: Maker, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    name, delay = request.getfixturevalue(kind), timedelta(seconds=1)
    source = table_in(name)
    with open_transaction(postgres.connect("elsewhere")) as slow:
        slow.execute("INSERT INTO shown VALUES (1)")
        postgres.sql("INSERT INTO shown VALUES (2), (3)", database="elsewhere")
        wait_for(postgres, name, 2, 3)

        first, before = run(source, delay=delay)
        slow.connection.commit()
    wait_for(postgres, name, 1, 2, 3)
    postgres.sql("SELECT pg_sleep(1)")
    _, after = run(source, first, delay=delay)

    assert (before, after) == ([], [1, 2, 3])
    assert "event=undecided_rows context=repairs column=id open_transactions=unknown" in caplog.text


@pytest.mark.parametrize(
    ("kind", "shown", "cursor"),
    [("foreign_table", "shown", "xmin"), ("foreign_partition", "shown", "xmin"), ("foreign_table", "seen", "id")],
)
def test_snapshot_is_refused_when_another_server_writes_the_rows(
    request: pytest.FixtureRequest, postgres: Any, table_in: Maker, kind: str, shown: str, cursor: str
) -> None:
    """The other server has its own transaction ids, and a foreign table has ``xmin`` 0, so later rows would be lost."""
    request.getfixturevalue(kind)
    postgres.sql("CREATE VIEW seen AS SELECT * FROM shown")

    with pytest.raises(CursorError, match="foreign") as caught:
        plan(table_in(shown, PostgresSnapshot), cursor)

    assert "Use JdbcTable with a delay" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "shown"),
    [("subscriber", "shown"), ("foreign_partition", "shown"), ("foreign_table", "seen"), ("foreign_table", "query")],
)
def test_first_run_by_time_says_so_when_rows_come_from_another_server(
    request: pytest.FixtureRequest,
    jdbc: Any,
    postgres: Any,
    table_in: Maker,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    shown: str,
) -> None:
    request.getfixturevalue(kind)
    postgres.sql("CREATE VIEW seen AS SELECT * FROM shown")
    source = table_in(shown)
    if shown == "query":
        source = JdbcTable(jdbc, postgres.url, query="SELECT id, at FROM shown", properties=postgres.properties)

    first, _ = run_by_time(source)
    run_by_time(source, first)

    assert caplog.text.count("event=hidden_transactions context=repairs") == 1
    assert "because rows come from another server" in caplog.text


@BOTH
@pytest.mark.parametrize("shown", ["kept", "seen", "query"])
def test_nothing_is_complete_when_rows_come_by_the_refresh_of_a_materialized_view(
    postgres: Any, table_in: Maker, caplog: pytest.LogCaptureFixture, shown: str
) -> None:
    name = postgres.new_table(TIMED_IDS)
    postgres.sql(
        f"INSERT INTO {name} VALUES (1)", f"CREATE MATERIALIZED VIEW kept AS SELECT * FROM {name}",
        "CREATE VIEW seen AS SELECT * FROM kept",
    )  # fmt: skip
    try:
        source = table_in((), query="SELECT id, at FROM kept") if shown == "query" else table_in(shown)
        wait_past_the_delay(postgres)

        first, before = run_by_time(source)
        by_id, taken_by_id = run(source)
        second, _ = run_by_time(source, first)
    finally:
        postgres.sql("DROP MATERIALIZED VIEW kept CASCADE")

    assert (before, taken_by_id, first.complete, second.complete) == ([1], [], None, None)
    assert by_id.undecided is not None
    assert caplog.text.count("event=hidden_transactions context=repairs") == 1
    assert "the REFRESH of a materialized view" in caplog.text


def test_stamp_is_taken_when_its_session_does_not_show_when_its_transaction_began(
    postgres: Any, table_in: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    name = postgres.new_table(STAMPED)
    source = table_in(name)
    with open_transaction(postgres.connect()) as slow:
        slow.execute("SET track_activities = off")
        slow.connection.commit()
        slow.execute(f"INSERT INTO {name} VALUES (1)")
        postgres.sql(f"INSERT INTO {name} VALUES (2)")
        wait_past_the_delay(postgres)

        first, before = run_by_time(source)
        slow.connection.commit()
    _, after = run_by_time(source, first)

    assert (before, after) == ([], [1, 2])
    assert "event=hidden_transactions" not in caplog.text


def test_run_relies_on_time_when_the_server_is_a_replica(
    postgres: Any, table_in: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    name = postgres.new_table(TIMED_IDS)
    postgres.sql(f"INSERT INTO {name} VALUES (1)")
    source = table_in(name)
    wait_past_the_delay(postgres)
    postgres.halt()
    (postgres.data / "standby.signal").touch()
    postgres.resume()
    try:
        _, by_id = run(source)
        _, by_time = run_by_time(source)
    finally:
        postgres.sql("SELECT pg_promote()")

    assert (by_id, by_time) == ([], [1])
    assert "event=undecided_rows context=repairs column=id open_transactions=unknown" in caplog.text
    assert "event=hidden_transactions context=repairs" in caplog.text


# --- stamps ----------------------------------------------------------------------------------------------

STAMPED = "id int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now()"


def run_by_time(source: Any, before: RowWindow | None = None, **options: Any) -> tuple[RowWindow, list[int]]:
    window = plan(source, "at", before, **({"delay": SHORT} | options))
    return window, taken(source, window)


def wait_past_the_delay(postgres: Any) -> None:
    postgres.sql("SELECT pg_sleep(0.5)")


@BOTH
@pytest.mark.parametrize("columns", [STAMPED, STAMPED.replace("timestamptz", "timestamp")], ids=["zone", "no zone"])
def test_stamp_is_taken_once_when_its_transaction_is_open_past_the_delay(
    postgres: Any, table_in: Maker, caplog: pytest.LogCaptureFixture, columns: str
) -> None:
    name = postgres.new_table(columns)
    # The server's zone, in which now() is stored in a column without a zone.
    source = table_in(name, zone="America/New_York")
    postgres.sql(f"INSERT INTO {name} VALUES (1)")
    with open_transaction(postgres.connect()) as slow:
        slow.execute(f"INSERT INTO {name} VALUES (2)")
        postgres.sql(f"INSERT INTO {name} VALUES (3)")
        wait_past_the_delay(postgres)

        first, before = run_by_time(source)
        slow.connection.commit()
        pid = slow.connection.info.backend_pid
    second, after = run_by_time(source, first)

    assert (before, after) == ([1], [2, 3])
    assert (
        f"event=long_transaction context=repairs source=PostgreSQL table {name} transaction='pid {pid}'" in caplog.text
    )
    assert caplog.text.count("event=long_transaction") == 1
    assert run_by_time(source, second)[1] == []


def test_stamps_of_a_view_wait_for_open_transactions(postgres: Any, table_in: Maker) -> None:
    name = postgres.new_table(STAMPED)
    postgres.sql(f"CREATE VIEW {name}_seen AS SELECT * FROM {name}")
    with open_transaction(postgres.connect()) as slow:
        slow.execute(f"INSERT INTO {name} VALUES (1)")
        postgres.sql(f"INSERT INTO {name} VALUES (2)")
        wait_past_the_delay(postgres)

        assert run_by_time(table_in(f"{name}_seen"))[1] == []


def test_transaction_that_wrote_elsewhere_is_waited_for_as_it_may_stamp_with_its_beginning(
    postgres: Any, table_in: Maker
) -> None:
    name, other = postgres.new_table(STAMPED), postgres.new_table(STAMPED)
    source = table_in(name)
    with open_transaction(postgres.connect()) as slow:
        slow.execute(f"INSERT INTO {other} VALUES (1)")
        postgres.sql(f"INSERT INTO {name} VALUES (2)")
        wait_past_the_delay(postgres)

        first, before = run_by_time(source)
        slow.execute(f"INSERT INTO {name} VALUES (1)")
        slow.connection.commit()

    assert (before, run_by_time(source, first)[1]) == ([], [1, 2])


def test_insert_that_waits_for_a_lock_is_waited_for_as_it_has_its_stamp_already(postgres: Any, table_in: Maker) -> None:
    name = postgres.new_table(STAMPED)
    source = table_in(name)
    postgres.sql(f"INSERT INTO {name} VALUES (2, now() + INTERVAL '1 second')")
    with ThreadPoolExecutor(1) as aside, open_transaction(postgres.connect()) as locking:
        locking.execute(f"LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE")
        waiting = aside.submit(postgres.sql, f"INSERT INTO {name} VALUES (1)")
        refused = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'RowExclusiveLock'"
        while postgres.sql(refused) != [(1,)]:
            postgres.sql("SELECT pg_sleep(0.05)")
        postgres.sql("SELECT pg_sleep(1.5)")

        first, before = run_by_time(source)
        locking.connection.rollback()
        waiting.result()

    assert (before, run_by_time(source, first)[1]) == ([], [1, 2])


def test_transactions_that_only_read_hold_no_stamp_back(
    postgres: Any, table_in: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    name = postgres.new_table(STAMPED)
    with open_transaction(postgres.connect()) as reader:
        reader.execute(f"SELECT * FROM {name}")
        postgres.sql(f"INSERT INTO {name} VALUES (1)")
        wait_past_the_delay(postgres)

        _, ids = run_by_time(table_in(name))

    assert ids == [1]
    assert "_transaction" not in caplog.text


def test_prepared_transaction_is_waited_for(postgres: Any, table_in: Maker, caplog: pytest.LogCaptureFixture) -> None:
    name = postgres.new_table(STAMPED)
    source = table_in(name)
    with closing(postgres.connect()) as connection:
        for statement in ("BEGIN", f"INSERT INTO {name} VALUES (1)", "PREPARE TRANSACTION 'half'"):
            connection.execute(statement)
    try:
        postgres.sql(f"INSERT INTO {name} VALUES (2)", "SELECT pg_sleep(2.5)")
        first, before = run_by_time(source, delay=timedelta(seconds=2))
    finally:
        postgres.sql("COMMIT PREPARED 'half'")
    _, after = run_by_time(source, first, delay=timedelta(0))

    assert (before, after) == ([], [1, 2])
    assert "event=long_transaction context=repairs" in caplog.text
    assert "transaction='prepared " in caplog.text


def test_first_run_says_so_when_the_user_may_not_see_when_others_began(
    jdbc: Any, postgres: Any, caplog: pytest.LogCaptureFixture
) -> None:
    name, user = postgres.new_table(STAMPED), "short_sighted"
    postgres.sql(f"DROP ROLE IF EXISTS {user}", f"CREATE ROLE {user} LOGIN", f"GRANT SELECT ON {name} TO {user}")
    source = JdbcTable(jdbc, postgres.url, name, properties={**postgres.properties, "user": user})
    with open_transaction(postgres.connect()) as slow:
        slow.execute(f"INSERT INTO {name} VALUES (1)")
        postgres.sql(f"INSERT INTO {name} VALUES (2)")
        wait_past_the_delay(postgres)

        first, before = run_by_time(source)
        run_by_time(source, first)
        postgres.sql(f"GRANT pg_read_all_stats TO {user}")
        _, allowed = run_by_time(source)

    assert (before, allowed) == ([2], [])
    assert caplog.text.count("event=hidden_transactions context=repairs") == 1


# --- MariaDB and SQLite ----------------------------------------------------------------------------------


def connect(maria: Any) -> Any:
    import pymysql

    return pymysql.connect(unix_socket=f"{maria.folder}/socket", user="root", database="shop")


def blind(maria: Any) -> dict[str, str]:
    """Return the login of a user that may not see transactions."""
    maria.sql("CREATE USER IF NOT EXISTS blind@'%' IDENTIFIED BY 'not-a-secret'", "GRANT SELECT ON shop.* TO blind@'%'")
    return {**maria.properties, "user": "blind"}


def test_lower_id_is_taken_when_it_commits_later_in_mariadb(jdbc: Any, maria: Any) -> None:
    name = maria.new_table("id bigint AUTO_INCREMENT PRIMARY KEY, s text")
    source = JdbcTable(jdbc, maria.url, name, properties=maria.properties)
    with open_transaction(connect(maria)) as slow:
        insert(slow, name)
        maria.sql(f"INSERT INTO {name} (s) VALUES ('y')")

        first, before = run(source)
        slow.connection.commit()
    second, after = run(source, first)

    assert (before, after) == ([], [1, 2])
    assert "undecided" not in second.state_after


def test_transaction_is_waited_for_in_mariadb_when_an_earlier_version_stored_its_name(jdbc: Any, maria: Any) -> None:
    name = maria.new_table("id bigint AUTO_INCREMENT PRIMARY KEY, s text")
    source = JdbcTable(jdbc, maria.url, name, properties=maria.properties)
    with open_transaction(connect(maria)) as slow:
        insert(slow, name)
        maria.sql(f"INSERT INTO {name} (s) VALUES ('y')", "SELECT SLEEP(0.3)")
        state = run(source)[0].state_after
        slow.execute(
            "SELECT CONCAT(trx_mysql_thread_id, ' ', trx_started) FROM information_schema.INNODB_TRX"
            " WHERE trx_mysql_thread_id = CONNECTION_ID()"
        )
        [(stored,)] = slow.fetchall()
        maria.sql("SELECT SLEEP(0.3)")
        second, while_open = run(source, state=state | {"undecided": {**state["undecided"], "writers": stored}})
        slow.connection.commit()
    _, after = run(source, second)

    assert (while_open, after) == ([], [1, 2])


def test_time_decides_when_the_user_of_mariadb_may_not_see_transactions(jdbc: Any, maria: Any) -> None:
    name = maria.new_table("id bigint AUTO_INCREMENT PRIMARY KEY, s text")
    maria.sql(f"INSERT INTO {name} (s) VALUES ('y')")
    source = JdbcTable(jdbc, maria.url, name, properties=blind(maria))

    first, before = run(source, delay=timedelta(seconds=1))
    maria.sql("SELECT SLEEP(1)")
    _, after = run(source, first, delay=timedelta(seconds=1))

    assert (before, after) == ([], [1])


def test_time_decides_when_mariadb_is_a_replica_that_can_be_written_to(jdbc: Any, maria: Any) -> None:
    name = maria.new_table("id bigint AUTO_INCREMENT PRIMARY KEY, s text")
    maria.sql(f"INSERT INTO {name} VALUES (2, 'y')")
    source = JdbcTable(jdbc, maria.url, name, properties=maria.properties)
    # The address of the primary does not matter, as no server answers there.
    maria.sql(
        "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=1, MASTER_USER='x', MASTER_PASSWORD='not-a-secret'",
        "START SLAVE",
    )
    try:
        first, before = run(source, delay=timedelta(seconds=1))
        # This stands for a transaction of the primary that was open until now.
        maria.sql(f"INSERT INTO {name} VALUES (1, 'x')", "SELECT SLEEP(1)")
        _, after = run(source, first, delay=timedelta(seconds=1))
    finally:
        maria.sql("STOP SLAVE", "RESET SLAVE ALL")

    assert (before, after) == ([], [1, 2])


# Times are in the server's own zone, -04:00.
STAMPED_BY_MARIA = {
    "zone": "id int PRIMARY KEY, at timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)",
    "no zone": "id int PRIMARY KEY, at datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)",
}


def stamped_in(jdbc: Any, server: Any, columns: str = "zone", **options: Any) -> tuple[str, JdbcTable]:
    name = server.new_table(STAMPED_BY_MARIA[columns])
    return name, JdbcTable(jdbc, server.url, name, zone="Etc/GMT+4", **({"properties": server.properties} | options))


def let_the_list_renew(maria: Any) -> None:
    """Wait for InnoDB to renew its list of transactions, which takes a tenth of a second without a reader."""
    maria.sql("SELECT SLEEP(0.3)")


@pytest.mark.parametrize("columns", STAMPED_BY_MARIA)
def test_stamp_is_taken_once_when_its_transaction_is_open_past_the_delay_in_mariadb(
    jdbc: Any, maria: Any, caplog: pytest.LogCaptureFixture, columns: str
) -> None:
    name, source = stamped_in(jdbc, maria, columns)
    maria.sql(f"INSERT INTO {name} (id) VALUES (1)", "SELECT SLEEP(3)")
    with open_transaction(connect(maria)) as slow:
        thread = slow.connection.thread_id()
        slow.execute(f"INSERT INTO {name} (id) VALUES (2)")
        maria.sql(f"INSERT INTO {name} (id) VALUES (3)", "SELECT SLEEP(0.5)")

        first, before = run_by_time(source)
        slow.connection.commit()
    let_the_list_renew(maria)
    second, after = run_by_time(source, first)

    assert (before, after) == ([1], [2, 3])
    assert f"transaction='thread {thread}' open_for=0:00:0" in caplog.text
    assert run_by_time(source, second)[1] == []


def test_transactions_that_only_read_hold_no_stamp_back_in_mariadb(jdbc: Any, maria: Any) -> None:
    name, source = stamped_in(jdbc, maria)
    with open_transaction(connect(maria)) as reader:
        reader.execute(f"SELECT * FROM {name}")
        maria.sql(f"INSERT INTO {name} (id) VALUES (1)", "SELECT SLEEP(0.5)")

        assert run_by_time(source)[1] == [1]


def test_insert_that_still_reads_is_waited_for_in_mariadb_as_it_has_its_stamp_already(jdbc: Any, maria: Any) -> None:
    name, source = stamped_in(jdbc, maria)
    other = maria.new_table("id int PRIMARY KEY")
    maria.sql(f"INSERT INTO {other} VALUES (1)")
    reads = f"SELECT id FROM {other} WHERE GET_LOCK(CONCAT('held', LEFT(id, 0)), 60) = 1"
    with ThreadPoolExecutor(1) as aside, open_transaction(connect(maria)) as holding:
        holding.execute("SELECT GET_LOCK('held', 0)")
        waiting = aside.submit(maria.sql, f"INSERT INTO {name} (id) {reads}")
        while "User lock" not in maria.sql("SELECT state FROM information_schema.PROCESSLIST"):
            maria.sql("SELECT SLEEP(0.05)")
        maria.sql(f"INSERT INTO {name} (id) VALUES (2)", "SELECT SLEEP(0.5)")

        first, before = run_by_time(source)
        holding.execute("SELECT RELEASE_LOCK('held')")
        waiting.result()

    let_the_list_renew(maria)
    assert (before, run_by_time(source, first)[1]) == ([], [1, 2])


def test_prepared_transaction_is_waited_for_in_mariadb(jdbc: Any, maria: Any) -> None:
    name, source = stamped_in(jdbc, maria)
    try:
        maria.sql("XA START 'half'", f"INSERT INTO {name} (id) VALUES (1)", "XA END 'half'", "XA PREPARE 'half'")
        maria.sql(f"INSERT INTO {name} (id) VALUES (2)", "SELECT SLEEP(0.5)")
        first, before = run_by_time(source)
    finally:
        maria.sql("XA COMMIT 'half'")
    let_the_list_renew(maria)
    _, after = run_by_time(source, first)

    assert (before, after) == ([], [1, 2])


READ_COMMITTED = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"


@contextmanager
def running(maria: Any, *statements: str) -> Iterator[None]:
    """Run statements in another session, and wait until the last one is running."""
    with ThreadPoolExecutor(1) as aside:
        last = aside.submit(maria.sql, *statements)
        while "SLEEP(0.1)" not in maria.sql("SELECT trx_query FROM information_schema.INNODB_TRX") and not last.done():
            maria.sql("SELECT SLEEP(0.2)")
        maria.sql("SELECT SLEEP(0.5)")
        yield
        last.result()


@pytest.fixture
def slow_rows(maria: Any) -> Iterator[None]:
    """Make a table that takes a tenth of a second per row to read, and a function that reads it."""
    maria.sql("CREATE TABLE slow_rows (id int PRIMARY KEY)", "INSERT INTO slow_rows SELECT seq FROM seq_1_to_30")
    maria.sql(
        "CREATE FUNCTION slow_count() RETURNS int READS SQL DATA BEGIN DECLARE found int;"
        " SELECT COUNT(*) INTO found FROM slow_rows WHERE SLEEP(0.1) = 0; RETURN found; END"
    )
    yield
    maria.sql("DROP TABLE slow_rows", "DROP FUNCTION slow_count")


@pytest.mark.parametrize("cursor", ["id", "at"])
@pytest.mark.parametrize(
    "reads", ["SELECT MAX(id) FROM slow_rows WHERE SLEEP(0.1) = 0 GROUP BY id % 2", "SELECT slow_count()"]
)
def test_insert_that_reads_for_long_is_waited_for_under_read_committed(
    jdbc: Any, maria: Any, slow_rows: None, cursor: str, reads: str
) -> None:
    name = maria.new_table(
        "id int AUTO_INCREMENT PRIMARY KEY, v int, at timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"
    )
    source = JdbcTable(jdbc, maria.url, name, properties=maria.properties)
    with running(maria, READ_COMMITTED, f"INSERT INTO {name} (v) {reads}"):
        maria.sql(f"INSERT INTO {name} (v) VALUES (0)", "SELECT SLEEP(0.5)")
        first = plan(source, cursor, delay=SHORT)
        before = taken(source, first)
    let_the_list_renew(maria)
    maria.sql("SELECT SLEEP(0.5)")

    count = int(maria.sql(f"SELECT COUNT(*) FROM {name}").split()[-1])
    assert (before, len(taken(source, plan(source, cursor, first, delay=SHORT)))) == ([], count)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT COUNT(*) FROM slow_rows WHERE SLEEP(0.1) = 0",
        "/* a report */ (SELECT COUNT(*) FROM slow_rows WHERE SLEEP(0.1) = 0)",
        "WITH few AS (SELECT id FROM slow_rows WHERE SLEEP(0.1) = 0) SELECT COUNT(*) FROM few",
        f"SELECT COUNT(*) FROM slow_rows WHERE SLEEP(0.1) = 0 AND '{'x' * 1100}' <> ''",
        "SELECT COUNT(*) FROM slow_rows WHERE SLEEP(0.1) = 0 FOR UPDATE",
    ],
    ids=["plain", "comment", "with", "long", "for update"],
)
def test_reports_hold_nothing_back_in_mariadb(
    jdbc: Any, maria: Any, slow_rows: None, caplog: pytest.LogCaptureFixture, statement: str
) -> None:
    name, source = stamped_in(jdbc, maria)
    maria.sql(f"INSERT INTO {name} (id) VALUES (1)", "SELECT SLEEP(0.5)")
    with running(maria, "START TRANSACTION", statement):
        found = run(source)[1], run_by_time(source)[1]

    assert found == ([1], [1])
    assert "_transaction" not in caplog.text


@pytest.mark.parametrize("locking", ["", "FOR UPDATE"])
def test_idle_reader_holds_nothing_back_in_mariadb(jdbc: Any, maria: Any, locking: str) -> None:
    name, source = stamped_in(jdbc, maria)
    maria.sql(f"INSERT INTO {name} (id) VALUES (1)", "SELECT SLEEP(0.5)")
    with open_transaction(connect(maria)) as reader:
        reader.execute(f"SELECT * FROM {name} {locking}")
        let_the_list_renew(maria)

        assert (run(source)[1], run_by_time(source)[1]) == ([1], [1])


@pytest.mark.parametrize("cursor", ["id", "at"])
def test_xa_transaction_is_waited_for_when_it_is_prepared_and_its_client_disconnects(
    jdbc: Any, maria: Any, cursor: str
) -> None:
    name = maria.new_table("id int AUTO_INCREMENT PRIMARY KEY, at timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)")
    source = JdbcTable(jdbc, maria.url, name, properties=maria.properties)
    with closing(connect(maria)) as client, client.cursor() as half:
        half.execute("XA START 'half'")
        half.execute(f"INSERT INTO {name} VALUES ()")
        maria.sql(f"INSERT INTO {name} VALUES ()", "SELECT SLEEP(0.5)")
        windows = [plan(source, cursor, delay=SHORT)]
        half.execute("XA END 'half'")
        half.execute("XA PREPARE 'half'")
    try:
        let_the_list_renew(maria)
        windows.append(plan(source, cursor, windows[0], delay=SHORT))
    finally:
        maria.sql("XA COMMIT 'half'")
    let_the_list_renew(maria)
    windows.append(plan(source, cursor, windows[1], delay=SHORT))

    assert [taken(source, window) for window in windows] == [[], [], [1, 2]]


@pytest.mark.parametrize("cursor", ["id", "at"])
def test_old_list_of_transactions_is_noticed_when_another_client_reads_it_all_the_time(
    jdbc: Any, maria: Any, caplog: pytest.LogCaptureFixture, cursor: str
) -> None:
    name, _ = stamped_in(jdbc, maria)
    source = JdbcTable(jdbc, maria.url, name, properties=maria.properties)
    asks = "BEGIN NOT ATOMIC DECLARE n int; WHILE IS_FREE_LOCK('asking') = 0 DO SELECT COUNT(*) INTO n FROM "
    asks += "information_schema.INNODB_TRX; DO SLEEP(0.02); END WHILE; END"
    with open_transaction(connect(maria)) as holding, ThreadPoolExecutor(1) as aside:
        holding.execute("SELECT GET_LOCK('asking', 0)")
        asking = aside.submit(maria.sql, asks)
        maria.sql("SELECT SLEEP(0.3)")
        with open_transaction(connect(maria)) as slow:
            slow.execute(f"INSERT INTO {name} (id) VALUES (1)")
            maria.sql(f"INSERT INTO {name} (id) VALUES (2)", "SELECT SLEEP(0.5)")
            first = plan(source, cursor, delay=SHORT)
            before = taken(source, first)
            slow.connection.commit()
        holding.execute("SELECT RELEASE_LOCK('asking')")
        asking.result()
    maria.sql("SELECT SLEEP(0.5)")

    # With a time cursor, only the delay counts, and it is shorter than the transaction.
    assert before == ([] if cursor == "id" else [2])
    assert f"event=stale_transactions source=MySQL table {name}" in caplog.text
    if cursor == "id":
        assert taken(source, plan(source, cursor, first, delay=SHORT)) == [1, 2]


def test_first_run_says_so_when_the_user_of_mariadb_may_not_see_transactions(
    jdbc: Any, maria: Any, caplog: pytest.LogCaptureFixture
) -> None:
    name, source = stamped_in(jdbc, maria, properties=blind(maria))
    with open_transaction(connect(maria)) as slow:
        slow.execute(f"INSERT INTO {name} (id) VALUES (1)")
        maria.sql(f"INSERT INTO {name} (id) VALUES (2)", "SELECT SLEEP(0.5)")

        first, before = run_by_time(source)
        run_by_time(source, first)

    assert before == [2]
    assert caplog.text.count("event=hidden_transactions context=repairs") == 1


def test_beginning_of_a_transaction_is_an_instant_when_the_machine_of_mariadb_has_a_zone(
    jdbc: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    server = MariaServer()
    try:
        name, source = stamped_in(jdbc, server)
        with open_transaction(connect(server)) as slow:
            slow.execute(f"INSERT INTO {name} (id) VALUES (1)")
            server.sql("SELECT SLEEP(0.5)")
            oldest = source.open_writers(SHORT).oldest
        # In the hour that is repeated, 01:30 means the first of the two.
        instants = []
        for wall in ("2026-07-01 12:00", "2026-11-01 01:30", "2026-12-01 12:00"):
            instant = MySQL().instant_of_server(sql("CAST({} AS DATETIME)", in_quotes(wall)))
            instants.append(server.sql(f"SELECT {instant} AS instant").splitlines()[1])
    finally:
        server.stop()

    assert oldest is not None
    assert timedelta(0) < datetime.now(timezone.utc) - oldest.began < timedelta(minutes=10)
    assert instants == ["2026-07-01 16:00:00", "2026-11-01 05:30:00", "2026-12-01 17:00:00"]


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
