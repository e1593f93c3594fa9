"""`DatabaseSink`: what a table holds after a batch, whatever happens to the attempts that write it."""

from __future__ import annotations

import itertools
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pymysql import OperationalError

from scripts.helpers.errors import (
    InvalidValueError,
    StagedFilesLostError,
    TargetError,
    TargetUnavailableError,
)
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.rows.sql import Values, sql
from scripts.helpers.sinks.database import BATCHES, GONE, TAKEN_BACK, DatabaseSink, Statements, target_errors
from scripts.helpers.sinks.merging import Merge
from scripts.helpers.sinks.outputs import mark_of
from scripts.helpers.sql.postgresql import PostgreSQL
from scripts.helpers.sql.sqlite import SQLite
from scripts.helpers.watermarks import Watermarks
from tests.support.database_fixtures import written_as
from tests.support.databases import SQLiteFile
from tests.support.patience import PATIENCE
from tests.support.reasons import because
from tests.support.staging import staged_by
from tests.support.steps import KilledError
from tests.support.written import EPOCH, JOB, PASSWORD, Written, WrittenSQLite

BATCH = BatchId(JOB, EPOCH, 3)
ROWS = pd.DataFrame({"id": [1, 2, 3], "word": ["a", None, "c"]})
SERVERS = pytest.mark.parametrize("kind", ["postgres", "maria"])


@pytest.fixture
def table(written: Written) -> str:
    return written.new_table("id integer, word varchar(20)")


def seen(written: Written, table: str) -> list[tuple[Any, ...]]:
    """Return the rows that readers see."""
    return sorted(written.rows(f"SELECT id, word FROM {table}"), key=repr)


ALL = [(1, "a"), (2, None), (3, "c")]


def batch(version: int) -> BatchId:
    return BatchId(JOB, EPOCH, version)


def taken_back(output: Output, first: int, last: int, batch_column: str = "") -> Retraction:
    """Return the decision to take back an output's target from version `first` to `last`, both included."""
    since = datetime(2026, 11, 23, tzinfo=timezone.utc)
    return Retraction(
        "database", output.target, output.staging, output.job, EPOCH, first, last, since, batch_column, job_id=JOB
    )


# --- the life of a batch ------------------------------------------------------------------------------


def test_rows_are_there_once_when_published_as_often_as_one_likes(
    written: Written, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sink = written.sink(table)
    output = staged_by(sink, BATCH, 7, ROWS)

    sink.publish(output)
    sink.publish(output)
    sink.clear(output)
    written.sink(table).publish(Output.from_record(output.record(), "one", JOB))

    assert seen(written, table) == ALL
    assert written.staged(table) == []
    assert caplog.text.count(f"event=rows_published target={sink.name} version=3 rows=3") == 1


def test_batch_is_not_doubled_when_a_loser_is_published_by_mistake(written: Written, table: str) -> None:
    sink = written.sink(table)
    first, second = staged_by(sink, BATCH, 7, ROWS), staged_by(sink, BATCH, 8, ROWS)

    sink.publish(second)
    sink.publish(first)

    assert seen(written, table) == ALL


def test_landing_table_of_a_dead_attempt_goes_when_a_batch_is_swept(written: Written, table: str) -> None:
    sink = written.sink(table)
    dead = staged_by(sink, batch(2), 1, ROWS)
    written.sql(f"CREATE TABLE {dead.folder}_in (id integer)", f"DROP TABLE {dead.folder}")

    assert sink.sweep(staged_by(sink, BATCH, 2, ROWS), []) == 2
    assert written.staged(table) == []


@SERVERS
def test_staging_table_stays_for_the_next_sweep_when_a_stopped_attempt_holds_it_open(
    request: pytest.FixtureRequest, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shorter = {"postgres": sql("SET LOCAL lock_timeout = '100ms'"), "maria": sql("SET SESSION lock_wait_timeout = 1")}
    written = written_as(request, kind)
    table = written.new_table("id integer, word varchar(20)")
    sink = written.sink(table)
    stopped, winner = staged_by(sink, BATCH, 1, ROWS), staged_by(sink, BATCH, 2, ROWS)
    monkeypatch.setattr(sink._log.sql, "impatient", shorter[kind])
    holder = written.connect()
    holder.cursor().execute(f"INSERT INTO {stopped.folder} (id) VALUES (1)")

    sink.publish(winner)
    sink.clear(winner)
    with pytest.raises(TargetError, match="cannot be dropped"):
        sink.sweep(winner, [])
    taken = taken_back(stopped, 3, 3)
    sink.retract(taken)
    held = written.staged(table)
    holder.rollback()
    holder.close()

    assert (held, seen(written, table)) == ([stopped.folder], ALL)
    assert f"event=staging_left target={sink.name} error=Target " in caplog.text
    assert sink.sweep(winner, []) == 1
    assert written.staged(table) == []


def test_batch_stays_recorded_as_published_when_its_rows_cannot_be_taken_back(written: Written, table: str) -> None:
    sink = written.sink(table)
    output = staged_by(sink, BATCH, 7, ROWS)
    sink.publish(output)

    sink.retract(taken_back(output, 2, 4))

    recorded = written.rows(f"SELECT version, staged FROM {BATCHES} WHERE target = '{table}'")
    assert [version for version, staged in recorded if staged != TAKEN_BACK] == [3]


def test_nothing_is_deleted_when_batches_are_taken_back_where_none_was_written(tmp_path: Path) -> None:
    sink = DatabaseSink("t", connect=lambda: sqlite3.connect(tmp_path / "shop.db"), name="shop")
    since = datetime(2026, 11, 23, tzinfo=timezone.utc)
    taken = Retraction("database", sink.name, "main", mark_of(JOB), EPOCH, 1, 2, since, job_id=JOB)

    assert sink.retract(taken) == 0


def test_rows_are_there_once_when_they_are_a_table_of_pyarrow(written: Written, table: str) -> None:
    sink = written.sink(table)

    output = staged_by(sink, BATCH, 7, pa.Table.from_pandas(ROWS))
    for _ in range(2):
        sink.publish(output)

    assert seen(written, table) == ALL


def test_column_is_named_by_the_text_of_its_label_when_the_table_lacks_it(written: Written, table: str) -> None:
    with pytest.raises(TargetError, check=because("unfit_table"), match=r"it has no column '0'\. Add it to the table"):
        staged_by(written.sink(table), BATCH, 7, pd.DataFrame({0: [1]}))


def test_batch_column_is_refused_when_rows_are_merged(written: Written, table: str) -> None:
    with pytest.raises(InvalidValueError, match="a merge replaces those of other batches"):
        staged_by(written.sink(table, merge=Merge(("id",), ("word",)), batch_column="batch"), BATCH, 7, ROWS)

    assert written.staged(table) == []


# --- death at every statement -------------------------------------------------------------------------


class Mortal:
    """A connection that dies before or after its n-th statement; what it has not committed is lost."""

    def __init__(self, connection: Any, left: list[int], after: bool) -> None:
        self._connection, self._left, self._after = connection, left, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def cursor(self) -> Any:
        connection, cursor, left, after = self._connection, self._connection.cursor(), self._left, self._after

        def counted(run: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                left[0] -= 1
                if left[0] == 0 and after:
                    run(*arguments)
                if left[0] == 0:
                    cursor.close()
                    connection.close()
                    raise KilledError
                return run(*arguments)

            return call

        class Counting:
            execute, executemany = staticmethod(counted(cursor.execute)), staticmethod(counted(cursor.executemany))

            def __getattr__(self, name: str) -> Any:
                return getattr(cursor, name)

        return Counting()


def dying(written: Written, statement: int, *, after: bool) -> tuple[Callable[[], Any], list[int]]:
    """Return connections, one of which dies at the n-th statement of all together, and the count of statements left."""
    left = [statement]
    real = written.connect

    def connect() -> Any:
        connection = real()
        kind = type(connection)
        made = type(kind.__name__, (Mortal,), {"__module__": kind.__module__})
        for name in ("isolation_level", "autocommit"):
            if hasattr(connection, name):
                forward(made, name)
        return made(connection, left, after)

    return connect, left


def forward(made: type, name: str) -> None:
    """Pass an attribute that is set on the stand-in through to the connection."""

    def read(mortal: Any) -> Any:
        return getattr(mortal._connection, name)

    def change(mortal: Any, value: Any) -> None:
        setattr(mortal._connection, name, value)

    setattr(made, name, property(read, change))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@SERVERS
def test_rows_are_there_once_when_publishers_die_at_every_statement_in_turn(
    request: pytest.FixtureRequest, kind: str, after: bool
) -> None:
    written = written_as(request, kind)
    table = written.new_table("id integer, word varchar(20)")
    output = staged_by(written.sink(table), BATCH, 1, ROWS)
    seen_after = []
    for statement in range(1, 60):
        connect, left = dying(written, statement, after=after)
        try:
            written.sink(table, connect).publish(output)
        except KilledError:
            seen_after.append(seen(written, table))
        if left[0] > 0:
            break

    assert [found for found in seen_after if found not in ([], ALL)] == []
    assert len(seen_after) == statement - 1 > 4
    assert seen(written, table) == ALL


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", ["stage", "publish", "clear", "sweep"])
def test_rows_are_there_once_when_a_process_dies_at_any_statement(
    request: pytest.FixtureRequest, step: str, after: bool
) -> None:
    written = written_as(request, "sqlite")
    table = written.new_table("id integer, word varchar(20)")
    staged_by(written.sink(table), batch(1), 1, ROWS)
    died = 0
    for statement in range(1, 60):
        version = statement + 1
        connect, left = dying(written, statement, after=after)
        mortal, sink = written.sink(table, connect), written.sink(table)
        rows = pd.DataFrame({"id": [version, version]})
        output = None
        try:
            staged = mortal if step == "stage" else sink
            output = staged_by(staged, batch(version), 1, rows)
            (mortal if step == "publish" else sink).publish(output)
            (mortal if step == "clear" else sink).clear(output)
            (mortal if step == "sweep" else sink).sweep(output, [])
        except KilledError:
            died += 1
        # The next run publishes the batch.
        if output is None:
            output = staged_by(sink, batch(version), 2, rows)
        sink.publish(output)
        sink.clear(output)
        sink.sweep(output, [])
        if left[0] > 0:
            break
    expected = [(version, None) for version in range(2, statement + 2) for _ in range(2)]
    assert seen(written, table) == sorted(expected, key=repr)
    assert written.staged(table) == []
    assert died == statement - 1 > 2


# --- two at once --------------------------------------------------------------------------------------


def repeatable(written: Written) -> Any:
    """Return a connection with REPEATABLE READ: its transactions see the data as it was when they began."""
    connection = written.connect()
    characteristics = {"postgres": "CHARACTERISTICS AS ", "maria": ""}[written.kind]
    connection.cursor().execute(f"SET SESSION {characteristics}TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    connection.commit()
    return connection


@SERVERS
def test_second_publisher_waits_and_does_nothing_when_the_first_is_in_the_middle(
    request: pytest.FixtureRequest, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="scripts.helpers.sinks")
    written = written_as(request, kind)
    table = written.new_table("id integer, word varchar(20)")
    sink = written.sink(table, lambda: repeatable(written))
    output = staged_by(sink, BATCH, 1, ROWS)
    inside, go_on = threading.Event(), threading.Event()

    held = written.sink(table)
    look, looks = held._log.catalogue, itertools.count(1)

    def stopped(*given: Any) -> Any:
        """Wait in the transaction, right after its second look for the staging table."""
        found = look(*given)
        if given[1][-1] == output.folder and next(looks) == 2:
            inside.set()
            go_on.wait(PATIENCE)
        return found

    monkeypatch.setattr(held._log, "catalogue", stopped)
    first = threading.Thread(target=held.publish, args=[output])
    second = threading.Thread(target=sink.publish, args=[output])
    first.start()
    assert inside.wait(PATIENCE)
    second.start()
    second.join(0.3)
    waited = second.is_alive(), seen(written, table)
    go_on.set()
    for thread in (first, second):
        thread.join(PATIENCE)

    assert waited == (True, [])
    assert seen(written, table) == ALL
    assert "event=deadlock_retried" not in caplog.text


def impatient(written: Written, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Return connections that wait for a lock only briefly."""
    if written.kind == "sqlite":
        monkeypatch.setattr(SQLite, "writing_session", sql("PRAGMA busy_timeout = 100"))
    shorter = {"postgres": "SET lock_timeout = '100ms'", "maria": "SET SESSION innodb_lock_wait_timeout = 1"}

    def connect() -> Any:
        connection = written.connect()
        if written.kind in shorter:
            connection.cursor().execute(shorter[written.kind])
            connection.commit()
        return connection

    return connect


def test_error_names_the_lock_when_a_stopped_publisher_holds_the_key_of_the_batch(
    written: Written, table: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="scripts.helpers.sinks")
    sink = written.sink(table, impatient(written, monkeypatch))
    output = staged_by(sink, BATCH, 7, ROWS)
    taken = taken_back(output, 3, 3)
    with closing(written.connect()) as holder:
        holder.cursor().execute(*written.marked(*sink._log.statements(output.staging).record(output, 3, output.folder)))
        with pytest.raises(TargetUnavailableError, check=because("locked")) as caught:
            sink.publish(output)
        with pytest.raises(TargetUnavailableError, check=because("locked"), match="a batch cannot be taken back"):
            sink.retract(taken)
        before = seen(written, table)
    sink.publish(output)

    assert (caught.value.target, caught.value.doing) == (sink.name, "the batch cannot be published")
    assert (before, seen(written, table)) == ([], ALL)
    assert "event=deadlock_retried" not in caplog.text


def test_error_says_that_the_disk_is_full_when_sqlite_has_no_room(watermarks: Watermarks, tmp_path: Path) -> None:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(tmp_path / "raw.db", isolation_level=None)
        connection.execute("PRAGMA max_page_count = 10")
        return connection

    with closing(sqlite3.connect(tmp_path / "raw.db")) as made:
        made.execute("CREATE TABLE words (id integer, word text)")
    rows = pd.DataFrame({"id": [1], "word": ["x" * 100_000]})

    with (
        pytest.raises(
            TargetError, match=r"its disk is full\. Free space there \(SQLSTATE unknown, [\w.]+\)\.$"
        ) as caught,
        IncrementalJob(watermarks, "words") as job,
    ):
        sink = DatabaseSink("words", connect=connect, name="words")
        job.write(job.rows_since(rows, "id", delay=timedelta(0)), sink)

    assert not isinstance(caught.value, TargetUnavailableError)


def test_error_says_that_the_statement_was_canceled_when_the_server_cancels_it(request: pytest.FixtureRequest) -> None:
    """The server is reachable, and a statement of the same length would meet the same limit in the next run."""
    written = written_as(request, "postgres")
    table = written.new_table("id integer, word varchar(20)")
    output = staged_by(written.sink(table), BATCH, 7, ROWS)

    def connect() -> Any:
        connection = written.connect()
        connection.execute("SET statement_timeout = '100ms'")
        connection.commit()
        return connection

    with closing(written.connect()) as holder:
        holder.cursor().execute(f"LOCK TABLE {table}")
        with pytest.raises(TargetError, match="the statement was canceled") as caught:
            written.sink(table, connect).publish(output)

    assert not isinstance(caught.value, TargetUnavailableError)
    assert caught.value.target == output.target


@SERVERS
def test_merge_is_staged_without_a_wait_when_another_one_is_being_published(
    request: pytest.FixtureRequest, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = written_as(request, kind)
    table = written.new_table("id integer PRIMARY KEY, word varchar(20)")
    sink = written.sink(table, impatient(written, monkeypatch), merge=Merge(("id",), ("word",)))
    rows = pd.DataFrame({"id": [1], "word": ["a"]})
    first = staged_by(sink, batch(1), 1, rows)

    with closing(written.connect()) as holder:
        holder.cursor().execute(*written.marked(*sink._log.statements(first.staging).lock()))
        output = staged_by(sink, batch(2), 1, rows)

    sink.publish(output)
    assert seen(written, table) == [(1, "a")]


def test_no_statement_fails_when_the_tables_of_a_merge_are_there(request: pytest.FixtureRequest) -> None:
    """A failing statement would put an error into the server's log for every batch."""
    written = written_as(request, "postgres")
    sink = written.sink(written.new_table("id integer PRIMARY KEY, word text"), merge=Merge(("id",), ("word",)))
    rows = pd.DataFrame({"id": [1], "word": ["a"]})
    staged_by(sink, batch(1), 1, rows)
    before = written.server.log()

    sink.publish(staged_by(sink, batch(2), 1, rows))

    assert "ERROR:" not in written.server.log_since(before)


def test_merge_is_staged_when_another_one_has_made_its_tables_since_the_look_for_them(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = written.new_table("id integer PRIMARY KEY, word varchar(20)")
    rows, merge = pd.DataFrame({"id": [1], "word": ["a"]}), Merge(("id",), ("word",))
    others = [written.sink(table, merge=merge)]

    sink = written.sink(table, merge=merge)
    look = sink._log.catalogue

    def late(session: Any, parts: Any) -> Any:
        """Find no table of deletes, which another attempt then makes."""
        found = look(session, parts)
        if not found and GONE in parts[-1] and others:
            staged_by(others.pop(), batch(1), 1, rows)
        return found

    monkeypatch.setattr(sink._log, "catalogue", late)

    sink.publish(staged_by(sink, batch(2), 1, rows))

    assert (others, seen(written, table)) == ([], [(1, "a")])


class Other(threading.Thread):
    """A transaction of another client, which has changed something and then waits for a lock that ours holds."""

    def __init__(self, written: Written, changes: str, waits: str, values: Values = ()) -> None:
        super().__init__(daemon=True)
        self._written, self._waits = written, (waits, values)
        self._connection = written.connect()
        self._cursor = self._connection.cursor()
        if written.kind == "postgres":
            # Otherwise PostgreSQL may end this transaction instead of ours. MariaDB ends the one that has changed less.
            self._cursor.execute("SET deadlock_timeout = '1h'")
        self._cursor.execute(changes)

    def run(self) -> None:
        self._cursor.execute(*self._waits)
        self._connection.rollback()
        self._connection.close()

    def wait_inside(self) -> None:
        """Start, and return once the transaction waits for the lock."""
        self.start()
        query = {
            "postgres": "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
            "maria": "SELECT 1 FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'",
        }[self._written.kind]
        end = time.monotonic() + PATIENCE
        while not self._written.server.sql(query):
            assert time.monotonic() < end
            time.sleep(0.02)


MANY = ", ".join(f"({number}, 'by hand')" for number in range(1, 100))


def with_other(monkeypatch: pytest.MonkeyPatch, before: str, other: Other) -> None:
    """Make the other transaction wait for ours right before ours makes a statement that has to wait for the other."""
    made = getattr(Statements, before)
    others = [other]

    def after_that(*given: Any) -> Any:
        if others:
            others.pop().wait_inside()
        return made(*given)

    monkeypatch.setattr(Statements, before, after_that)


@SERVERS
def test_batch_is_published_when_a_deadlock_has_ended_its_transaction(
    request: pytest.FixtureRequest, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="scripts.helpers.sinks")
    written = written_as(request, kind)
    table = written.new_table("id integer UNIQUE, word varchar(20)")
    sink = written.sink(table)
    output = staged_by(sink, BATCH, 1, ROWS)
    key = written.marked(*sink._log.statements(output.staging).record(output, 3, output.folder))
    other = Other(written, f"INSERT INTO {table} VALUES {MANY}", *key)
    with_other(monkeypatch, "append", other)

    sink.publish(output)
    other.join(PATIENCE)

    assert seen(written, table) == ALL
    assert f"event=deadlock_retried target={sink.name} " in caplog.text


@SERVERS
def test_batch_is_taken_back_when_a_deadlock_has_ended_its_transaction(
    request: pytest.FixtureRequest, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = written_as(request, kind)
    table = written.new_table("id integer UNIQUE, word varchar(20), batch varchar(64)")
    sink = written.sink(table, batch_column="batch")
    output = staged_by(sink, BATCH, 1, ROWS)
    sink.publish(output)
    sink.clear(output)
    taken = taken_back(output, 3, 3, "batch")
    other = Other(
        written, f"UPDATE {BATCHES} SET published_at = published_at WHERE version = 3", f"UPDATE {table} SET word = 'x'"
    )
    written_rows = f"INSERT INTO {written.new_table('id integer, word varchar(20)')} VALUES {MANY}"
    other._cursor.execute(written_rows)
    with_other(monkeypatch, "take_back", other)

    counts = sink.retract(taken), sink.retract(taken)
    other.join(PATIENCE)

    assert (counts, seen(written, table)) == ((3, 0), [])


def test_transaction_is_rolled_back_when_a_pool_keeps_the_connection(request: pytest.FixtureRequest) -> None:
    written = written_as(request, "postgres")
    table = written.new_table("id integer UNIQUE, word text")
    pooled = written.connect()
    kept = type("Kept", (Mortal,), {"__module__": "psycopg", "close": lambda self: None})
    forward(kept, "autocommit")
    sink = written.sink(table, lambda: kept(pooled, [0], False))
    output = staged_by(sink, BATCH, 1, ROWS)
    written.sql(f"INSERT INTO {table} VALUES (2, 'by hand')")

    with pytest.raises(TargetError, match="a constraint of the table is violated"):
        sink.publish(output)
    written.sql(f"DELETE FROM {table}")
    sink.publish(output)
    sink.publish(output)
    left = pooled.info.transaction_status.name
    pooled.close()

    assert (seen(written, table), left) == (ALL, "IDLE")


def test_connections_are_closed_when_their_statements_are_done(request: pytest.FixtureRequest) -> None:
    written = written_as(request, "postgres")
    made = []

    def connect() -> Any:
        made.append(written.connect())
        return made[-1]

    sink = written.sink(written.new_table("id integer, word text"), connect)

    sink.clear(staged_by(sink, BATCH, 1, ROWS))

    assert [connection.closed for connection in made] == [True] * len(made)


# --- what does not fit is refused before the commit ---------------------------------------------------


def test_error_holds_a_create_table_statement_when_the_target_is_missing(written: Written) -> None:
    table = f"new_{written.kind}"
    written.sql(f"DROP TABLE IF EXISTS {table}")
    frame = ROWS.assign(seen=pd.to_datetime(["2026-11-23T04:30:00Z"] * 3))

    with pytest.raises(
        TargetError, match=r"watermarks reset.*Create it: CREATE TABLE \S+ \(.id. (bigint|integer), "
    ) as caught:
        staged_by(written.sink(table), BATCH, 1, frame)

    written.sql(str(caught.value).partition("Create it: ")[2])
    staged_by(written.sink(table), BATCH, 1, frame)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("id integer", {"id": [1], "more": ["x"]}, "it has no column 'more'.* Its columns are id"),
    ("id integer", {"ID": [1]}, "no column 'ID'. It has 'id': rename it"),
    ("id integer", {"id": [1.5]}, "column 'id' is .* and the rows have it as double"),
    ("id integer", {"id": ["1"]}, "column 'id' is .* and the rows have it as string"),
    ("id integer NOT NULL", {"id": pd.array([1, None], dtype="Int64")}, "'id' must have a value, and 1 row has NULL"),
    ("id integer, word varchar(9) NOT NULL", {"id": [1]}, "'word' must have a value, and the rows do not have"),
    (
        "id integer, twice integer GENERATED ALWAYS AS (id * 2) STORED",
        {"id": [1], "twice": [2]},
        r"column 'twice' is computed by the database\. Leave it out of the rows",
    ),
]


@pytest.mark.parametrize(("columns", "rows", "message"), REFUSED)
def test_rows_are_refused_when_the_columns_do_not_take_them(
    written: Written, columns: str, rows: dict[str, Any], message: str
) -> None:
    table = written.new_table(columns)

    with pytest.raises(TargetError, check=because("unfit_table"), match=message) as caught:
        staged_by(written.sink(table), BATCH, 1, pd.DataFrame(rows))

    assert caught.value.target.endswith(table)
    assert written.staged(table) == []


@pytest.mark.parametrize(
    ("frame", "merge", "message"),
    [
        (pd.DataFrame([[1, 2, 3]], columns=["id", "word", "id"]), None, r"have 2 columns 'id'\. Rename one"),
        (pd.DataFrame({"id": [1]}), Merge(("id",), ("at",)), r"column 'at': the rows have no such column\."),
        (pd.DataFrame({"id": [1, "x"]}), None, "Column 'id' has values of several types: int, str"),
        (
            pd.DataFrame({"id": [1j]}),
            None,
            r"have no one type for each column: Conversion failed for column id with type complex128\. Give one\.$",
        ),
        (
            pd.DataFrame({"tags": [[1]]}),
            None,
            r"Column 'tags' is of type array, which the table '.*/t' cannot hold\. Cast it, or leave it out",
        ),
    ],
)
def test_rows_are_refused_before_the_database_is_asked_when_no_table_takes_them(
    frame: pd.DataFrame, merge: Merge | None, message: str
) -> None:
    sink = DatabaseSink("t", connect=dict, name="shop", merge=merge)

    with pytest.raises(InvalidValueError, match=message):
        sink.check(frame)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.date32(), -2_600_000), (pa.timestamp("us"), -62_198_755_200_000_000), (pa.timestamp("us"), 2**63 - 1)],
    ids=["day", "year 0", "year 294247"],
)
def test_rows_are_refused_and_their_column_is_named_when_python_has_no_such_date(
    kind: pa.DataType, value: int, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.execute("CREATE TABLE t (id integer, odd text)")
    sink = DatabaseSink("t", connect=lambda: sqlite3.connect(tmp_path / "shop.db"), name="shop")
    rows = pa.table({"id": [1], "odd": pa.array([value], kind)})

    with pytest.raises(InvalidValueError, match="column 'odd' has a date or time before the year 1 or after 9999"):
        staged_by(sink, BatchId(JOB, EPOCH, 1), 1, rows)


BY_SERVER: list[tuple[str, Any, str]] = [
    ("varchar(3)", "four", "a text is too long for it"),
    ("smallint", 40_000, "a number is out of range there"),
    ("decimal(5,2)", Decimal("1234.50"), "a number is out of range there"),
    ("decimal(5,2)", Decimal("1.005"), r"as decimal\(4,3\), which does not fit there unchanged"),
]


@SERVERS
@pytest.mark.parametrize(("declared", "value", "message"), BY_SERVER)
def test_value_is_refused_when_it_would_be_changed(
    request: pytest.FixtureRequest, kind: str, declared: str, value: Any, message: str
) -> None:
    written = written_as(request, kind)
    table = written.new_table(f"id {declared}")

    with pytest.raises(TargetError, match=message) as caught:
        staged_by(written.sink(table), BATCH, 1, pd.DataFrame({"id": [value]}))

    assert (str(value) in str(caught.value), written.staged(table)) == (False, [])


@SERVERS
def test_times_are_refused_when_digits_of_the_second_would_be_cut(request: pytest.FixtureRequest, kind: str) -> None:
    written = written_as(request, kind)
    wall = "timestamp(3)" if kind == "postgres" else "datetime(3)"
    table = written.new_table(f"at {wall}")
    fits = pd.DataFrame({"at": [datetime(2026, 11, 23, 4, 30, 0, 123_000)]})

    staged_by(written.sink(table), BATCH, 1, fits)
    with pytest.raises(
        TargetError, check=because("unfit_table"), match=r"otherwise change the value in 1 rows"
    ) as caught:
        staged_by(written.sink(table), BATCH, 2, fits + timedelta(microseconds=1))

    assert caught.value.target == written.sink(table).name


def test_right_is_named_when_the_user_may_not_make_tables(request: pytest.FixtureRequest) -> None:
    written = written_as(request, "postgres")
    table = written.new_table("id integer, word text")
    written.sql("DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN", f"GRANT ALL ON {table} TO reader")
    written.output(table, 1)  # Makes the table of batches, so that it is not what fails.

    def connect() -> Any:
        import psycopg

        return psycopg.connect(host="127.0.0.1", port=written.server.port, user="reader", dbname="postgres")

    with pytest.raises(TargetError, check=because("refused"), match='GRANT CREATE ON SCHEMA "public"') as caught:
        staged_by(written.sink(table, connect), BATCH, 1, ROWS)
    assert caught.value.doing == "its staging table cannot be made"
    with pytest.raises(TargetError, check=because("refused"), match='GRANT CREATE ON SCHEMA "public"') as caught:
        staged_by(written.sink(table, connect, Merge(("id",), ("word",))), BATCH, 1, ROWS)
    assert caught.value.doing == f"table {BATCHES!r} cannot be made beside it"
    assert written.staged(table) == []


def test_right_is_named_when_the_user_of_mariadb_may_not_make_tables(request: pytest.FixtureRequest) -> None:
    written: Any = written_as(request, "maria")
    table = written.new_table("id integer, word text")

    with pytest.raises(TargetError, check=because("refused"), match=r"GRANT CREATE, ALTER, DROP.* ON `shop`"):
        staged_by(written.sink(table, lambda: written.connect("reader")), BATCH, 1, ROWS)


OURS = "GRANT CREATE, ALTER, DROP, SELECT, INSERT, UPDATE, DELETE ON `shop`.*"


@pytest.mark.parametrize(
    ("nth", "doing", "rights"),
    [
        (1, "the database cannot be reached", ""),
        (2, "the table cannot be looked at", "GRANT SELECT, INSERT ON `{table}`"),
        (3, f"table {BATCHES!r} cannot be made beside it", OURS),
        (4, "its staging table cannot be made", OURS),
        (5, "rows cannot be written to its staging table, or not be read for it", ""),
        (6, "rows do not fit the table", ""),
    ],
)
def test_error_names_what_failed_and_the_rights_for_it_when_a_login_is_refused(
    request: pytest.FixtureRequest, nth: int, doing: str, rights: str
) -> None:
    written: Any = written_as(request, "maria")
    table = written.new_table("id integer, word text")
    numbers = itertools.count(1)
    sink = written.sink(table, lambda: written.connect("nobody" if next(numbers) == nth else "writer"))

    with pytest.raises(TargetError, check=because("refused")) as caught:
        staged_by(sink, BATCH, 1, ROWS)

    told = caught.value.target, caught.value.doing, caught.value.rights
    assert told == (sink.name, doing, rights.format(table=table))
    assert written.staged(table) == []


def test_name_is_refused_when_the_server_would_cut_it(request: pytest.FixtureRequest) -> None:
    written = written_as(request, "postgres")

    with pytest.raises(
        TargetError, check=because("unfit_table"), match=r"': 'é+' has 64 bytes, and PostgreSQL has names of up to 63"
    ):
        staged_by(written.sink("é" * 32), BATCH, 1, ROWS)
    with pytest.raises(TargetError, check=because("unfit_table"), match="there is no such table"):
        staged_by(written.sink("n" * 63), BATCH, 1, ROWS)


def test_table_is_refused_when_its_engine_has_no_transactions(request: pytest.FixtureRequest) -> None:
    written = written_as(request, "maria")
    table = written.new_table("id integer, word text")
    written.sql(f"ALTER TABLE {table} ENGINE=MyISAM")

    with pytest.raises(
        TargetError, check=because("unfit_table"), match=f"/{table}': its engine has no transactions.* ENGINE=InnoDB"
    ):
        staged_by(written.sink(table), BATCH, 1, ROWS)


def test_rows_are_there_once_when_the_name_of_an_epoch_is_longer_than_its_column(
    request: pytest.FixtureRequest,
) -> None:
    """In a run that saves nothing, the name of the epoch contains the run id."""
    written = written_as(request, "postgres")
    table = written.new_table("id integer, word varchar(20)")
    sink = written.sink(table)
    output = staged_by(sink, BatchId(JOB, "e" * 65, 1), 1, ROWS)

    sink.publish(output)
    sink.publish(output)

    assert seen(written, table) == ALL


@SERVERS
def test_error_holds_no_secret_when_nobody_answers(request: pytest.FixtureRequest, kind: str) -> None:
    written: Any = written_as(request, kind)
    real = written.connect

    def nowhere() -> Any:
        if kind == "maria":
            import pymysql

            return pymysql.connect(host="127.0.0.1", port=1, user="writer", password=PASSWORD)
        import psycopg

        return psycopg.connect(host="127.0.0.1", port=1, user="writer", password=PASSWORD)

    sink = written.sink("t", nowhere)

    with pytest.raises(TargetUnavailableError, match="Run again later") as caught:
        staged_by(sink, BATCH, 1, ROWS)

    assert (caught.value.target, caught.value.doing) == (sink.name, "the database cannot be reached")
    assert real and PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    ("codes", "error"),
    [
        ([2002, 2003, 2006, 2013], TargetUnavailableError),
        ([1044, 1045, 1142, 1143, 1227, 1370], TargetError),
    ],
    ids=["gone", "refused"],
)
def test_error_is_of_the_right_class_when_mysql_gives_no_sqlstate(codes: list[int], error: type[TargetError]) -> None:
    for code in codes:
        with pytest.raises(error), target_errors("t", "the batch cannot be published"):
            raise OperationalError(code, "a text")


@pytest.mark.parametrize(("code", "is_deadlock"), [(1205, False), (1213, True)])
def test_error_names_the_lock_when_mysql_gives_no_sqlstate(code: int, is_deadlock: bool) -> None:
    with (
        pytest.raises(TargetUnavailableError, check=because("locked")) as caught,
        target_errors("t", "the batch cannot be published"),
    ):
        raise OperationalError(code, "a text")

    assert caught.value.is_deadlock is is_deadlock


def test_sink_is_refused_when_its_connection_options_are_incomplete() -> None:
    for options in ({}, {"url": "jdbc:sqlite:x"}, {"connect": dict}, {"connect": dict, "name": "x", "url": "y"}):
        with pytest.raises(InvalidValueError, match=r"[gG]ive"):
            DatabaseSink("t", **options)
    with pytest.raises(
        TargetError, check=because("unfit_table"), match=r"'database://x/public\.': its name has an empty part"
    ):
        DatabaseSink("public.", connect=dict, name="x")


def test_error_lists_the_drivers_when_a_connection_is_of_another_one() -> None:
    sink = DatabaseSink("t", connect=SimpleNamespace, name="shop")

    with pytest.raises(
        InvalidValueError, match=r"connect returns a types\.SimpleNamespace, whose .* of psycopg, .*sqlite3"
    ):
        sink.staged("5e8c9902")


def test_repr_of_the_access_shows_only_the_name_of_the_database() -> None:
    sink = DatabaseSink("t", connect=dict, name="shop")

    assert repr(sink._log.access) == "DriverAccess('database://shop')"


def test_rows_of_a_run_that_saves_nothing_are_refused_when_it_has_written_before(written: Written, table: str) -> None:
    sink = written.sink(table)
    output = staged_by(sink, BATCH, 0, ROWS, replaces=True)
    sink.publish(output)

    with pytest.raises(TargetError, match=f"{table}': this run, which saves nothing, .* rows cannot be distinguished"):
        staged_by(sink, BATCH, 0, ROWS, replaces=True)


def test_rows_of_the_first_attempt_stay_when_two_of_a_run_that_saves_nothing_publish(
    written: Written, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink = written.sink(table)
    outputs = [staged_by(sink, BATCH, 0, ROWS[:count], replaces=True) for count in (3, 1)]

    for output in outputs:
        sink.publish(output)

    assert (seen(written, table), "event=kept" in caplog.text) == (ALL, True)


# --- values arrive as they left -----------------------------------------------------------------------

WALL = datetime(2026, 3, 29, 1, 30, 0, 123_456)
"""In the hour that summer time skips in London."""
TYPES = {
    "postgres": 'id bigint, "a""b c" text, "%s" numeric, wall timestamp, instant timestamptz, day date, ok boolean, '
    "data bytea, ratio double precision, u uuid, j jsonb",
    "maria": 'id bigint, `a"b c` text, `%s` decimal(30,10), wall datetime(6), instant timestamp(6) NULL, day date, '
    "ok boolean, data longblob, ratio double, u uuid, j json",
    "sqlite": 'id integer, "a""b c" text, "%s" text, wall timestamp, instant timestamp, day date, ok boolean, '
    "data blob, ratio real, u text, j text",
}


def test_values_arrive_as_they_left_when_they_are_of_any_type(written: Written) -> None:
    table = written.new_table(TYPES[written.kind])
    instant = datetime(2026, 10, 25, 0, 30, 0, 1, tzinfo=timezone.utc)
    uuid = "6f4b1d3e-0000-4000-8000-000000000001"
    values = [
        2**62,
        "é'\"%\\",
        Decimal("-0.0000000001"),
        WALL,
        instant,
        date(1, 1, 1),
        True,
        b"\0\xff",
        0.1,
        uuid,
        "[]",
    ]
    names = ["id", 'a"b c', "%s", "wall", "instant", "day", "ok", "data", "ratio", "u", "j"]
    frame = pd.DataFrame(
        {name: pd.Series([value, None], dtype="object") for name, value in zip(names, values, strict=True)}
    )
    sink = written.sink(table)

    output = staged_by(sink, BATCH, 1, frame)
    sink.publish(output)

    found = sorted(written.rows(f"SELECT * FROM {table}"), key=lambda row: row[0] is None)
    assert found[1] == (None,) * len(names)
    row = dict(zip(names, found[0], strict=True))
    if written.kind == "sqlite":
        row["%s"] = Decimal(row["%s"])
        row["wall"], row["instant"] = datetime.fromisoformat(row["wall"]), datetime.fromisoformat(row["instant"])
        row["day"] = date.fromisoformat(row["day"])
    if written.kind == "maria":
        # The zone of the server, and so of this session, is -04:00.
        row["instant"] = row["instant"].replace(tzinfo=timezone(timedelta(hours=-4)))
    row["u"], row["j"] = str(row["u"]), str(row["j"])
    assert [row[name] for name in names] == values


def test_instants_arrive_as_they_left_when_a_pooler_loses_the_zone_of_the_session(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PgBouncer may run each transaction on another connection. The server's own zone is not UTC."""
    written = written_as(request, "postgres")
    table = written.new_table("seen timestamptz")
    monkeypatch.setattr(PostgreSQL, "writing_session", None)
    sink = written.sink(table)
    instant = datetime(2026, 10, 25, 0, 30, 0, 1, tzinfo=timezone.utc)

    sink.publish(staged_by(sink, BATCH, 1, pd.DataFrame({"seen": [instant, None]})))

    assert written.rows(f"SELECT seen FROM {table} ORDER BY seen") == [(instant,), (None,)]


def test_database_fills_its_own_columns_when_the_rows_do_not_have_them(written: Written) -> None:
    key = {"postgres": "serial", "maria": "integer AUTO_INCREMENT", "sqlite": "integer"}[written.kind]
    table = written.new_table(f"n {key} PRIMARY KEY, id integer, word varchar(9) NOT NULL DEFAULT 'x'")
    sink = written.sink(table)

    sink.publish(staged_by(sink, BATCH, 1, pd.DataFrame({"id": [7, 8]})))

    assert sorted(written.rows(f"SELECT n, id, word FROM {table}")) == [(1, 7, "x"), (2, 8, "x")]


def test_table_is_found_in_its_schema_when_the_name_has_one(request: pytest.FixtureRequest) -> None:
    written = written_as(request, "postgres")
    written.sql('DROP SCHEMA IF EXISTS "Raw.%s" CASCADE', 'CREATE SCHEMA "Raw.%s"')
    written.sql('CREATE TABLE "Raw.%s"."T 1" (id int, batch varchar(64))')
    sink = DatabaseSink(["Raw.%s", "T 1"], connect=written.connect, name="shop", batch_column="batch")

    output = staged_by(sink, BATCH, 1, pd.DataFrame({"id": [1]}))
    staged = sink.staged(output.job)
    sink.publish(output)
    sink.clear(output)

    assert (staged, written.rows('SELECT id FROM "Raw.%s"."T 1"')) == ([output.folder], [(1,)])
    assert written.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'Raw.%s' ORDER BY 1") == [
        ("T 1",),
        (BATCHES,),
    ]
    assert sink.retract(taken_back(output, 3, 3, "batch")) == 1


def test_table_is_found_in_its_schema_when_the_connection_is_to_another_one(request: pytest.FixtureRequest) -> None:
    written: Any = written_as(request, "maria")
    written.sql(
        "DROP DATABASE IF EXISTS raw", "CREATE DATABASE raw", "CREATE TABLE raw.t (id int)",
        "GRANT ALL ON raw.* TO writer@'%'",
    )  # fmt: skip
    sink = written.sink("raw.t")

    sink.publish(staged_by(sink, BATCH, 1, pd.DataFrame({"id": [1]})))

    assert written.rows("SELECT id FROM raw.t") == [(1,)]
    assert written.rows(f"SELECT COUNT(*) FROM raw.{BATCHES}") == [(1,)]


# Over JDBC, other tests write to tables with room for all digits.
@pytest.mark.parametrize(
    ("digits", "way"),
    [(8, "driver"), (8, "jdbc"), (32, "driver"), pytest.param(32, "jdbc", marks=pytest.mark.long)],
)
def test_batches_keep_their_keys_when_their_table_has_room_for_some_digits_of_a_mark(
    request: pytest.FixtureRequest, written: Written, tmp_path: Path, way: str, digits: int
) -> None:
    if written.kind == "sqlite":
        written, schema = WrittenSQLite(SQLiteFile(tmp_path / "own.db")), "main"
    else:
        schema, form, more = "digits", "SCHEMA", " CASCADE" if written.kind == "postgres" else ""
        written.sql(f"DROP {form} IF EXISTS {schema}{more}", f"CREATE {form} {schema}")
    if written.kind == "maria":
        written.sql(f"GRANT ALL ON {schema}.* TO writer@'%'")
    table = f"{schema}.repairs"
    written.sql(f"CREATE TABLE {table} (id bigint, batch varchar(150))")
    sink, rows = written.sink(table, batch_column="batch"), [pd.DataFrame({"id": [version]}) for version in (1, 2, 3)]
    if way == "jdbc":
        jdbc: Any = request.getfixturevalue("jdbc")
        sink = DatabaseSink(
            table, spark=jdbc, url=written.url, properties=written.properties, batch_column="batch"
        )  # fmt: skip
        rows = [jdbc.createDataFrame(frame) for frame in rows]
    if digits == 8:  # As made by earlier versions.
        statement = sink._log.sql.batches_table(sink._log.statements(schema).batches)
        written.sql(statement.replace("job varchar(32)", "job varchar(8)"))

    first, second, loser = (staged_by(sink, batch(version), 1, frame) for version, frame in enumerate(rows, 1))
    for output in (first, second, first):
        sink.publish(output)
    keys = written.rows(f"SELECT job, epoch, version FROM {schema}.{BATCHES} ORDER BY version")
    recorded, others = sink.recorded(mark_of(JOB)), sink.recorded(mark_of("another"), others=True).others
    count = sink.retract(taken_back(first, 2, 3, "batch"))
    for late in (first, second):
        sink.publish(late)
    with suppress(StagedFilesLostError):
        sink.publish(loser)

    mark = mark_of(JOB)
    epoch = EPOCH + "-" + sha256(f"{mark}\n{EPOCH}".encode()).hexdigest()[:32]
    assert keys == [(mark[:digits], epoch, 1), (mark[:digits], epoch, 2)]
    assert (recorded.epochs, others, count) == ({EPOCH: 2}, [mark[:digits]], 1)
    assert written.rows(f"SELECT id FROM {table}") == [(1,)]
