"""Transactions that stay open across runs: no row is lost with the snapshot as the bound; without it, rows are."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from scripts.helpers.databases import table as jdbc_rows
from scripts.helpers.databases.snapshot import NEXT, PostgresSnapshot
from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import CursorError, SourceError
from scripts.helpers.rows.window import RowWindow
from tests.support.patience import PATIENCE
from tests.support.reasons import behind
from tests.support.row_windows import plan, taken

Maker = Callable[..., JdbcTable]
STAMPED = "id int primary key, at timestamptz NOT NULL DEFAULT clock_timestamp(), changed {kind} NOT NULL DEFAULT {now}"
CURSORS = pytest.mark.parametrize("cursor", ["xid8", "bigint", "xmin"])


@pytest.fixture
def table(postgres: Any) -> Callable[[str], str]:
    """Return a function that makes tables whose column `changed` holds the id of the last transaction."""

    def make(cursor: str) -> str:
        kind = "bigint" if cursor == "bigint" else "xid8"
        now = f"pg_current_xact_id(){'::text::bigint' if kind == 'bigint' else ''}"
        name: str = postgres.new_table(STAMPED.format(kind=kind, now=now))
        postgres.sql(
            f"CREATE INDEX ON {name} (changed)",
            f"CREATE FUNCTION stamp_{name}() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN NEW.changed := {now}; NEW.at := clock_timestamp(); RETURN NEW; END $$",
            f"CREATE TRIGGER stamp BEFORE UPDATE ON {name} FOR EACH ROW EXECUTE FUNCTION stamp_{name}()",
        )
        return name

    return make


@pytest.fixture
def writer(postgres: Any) -> Iterator[Callable[[], Any]]:
    """Return a function that opens connections; all are closed at the end, even with open transactions."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(postgres.connect())


def column_of(cursor: str) -> str:
    return "xmin" if cursor == "xmin" else "changed"


@CURSORS
def test_nothing_is_lost_and_nothing_comes_twice_when_transactions_stay_open_across_runs(
    postgres: Any, table_in: Maker, table: Callable[[str], str], writer: Callable[[], Any], cursor: str
) -> None:
    name = table(cursor)
    source = table_in(name, PostgresSnapshot)
    slow, slower = writer(), writer()
    runs: list[list[int]] = []
    window: RowWindow | None = None

    def run() -> None:
        nonlocal window
        window = plan(source, column_of(cursor), window)
        runs.append(taken(source, window))

    postgres.sql(f"INSERT INTO {name} (id) VALUES (1)")
    slow.execute("BEGIN")
    slow.execute(f"INSERT INTO {name} (id) VALUES (2)")
    postgres.sql(f"INSERT INTO {name} (id) VALUES (3)")
    run()
    slower.execute("BEGIN")
    slower.execute("SAVEPOINT one")
    slower.execute(f"INSERT INTO {name} (id) VALUES (4)")
    postgres.sql(f"INSERT INTO {name} (id) VALUES (5)")
    slow.execute("COMMIT")
    run()
    postgres.sql(f"INSERT INTO {name} (id) VALUES (6)")
    slower.execute("COMMIT")
    run()
    run()

    assert runs == [[1], [2, 3], [4, 5, 6], []]


@CURSORS
def test_rows_and_columns_are_those_asked_for_when_a_snapshot_is_read_in_part(
    jdbc: Any, postgres: Any, table: Callable[[str], str], cursor: str
) -> None:
    name = table(cursor)
    source = PostgresSnapshot(jdbc, postgres.url, name, properties=postgres.properties, where="id < 3", columns=["id"])
    postgres.sql(f"INSERT INTO {name} (id) VALUES (1), (3)")
    window = plan(source, column_of(cursor))
    first = taken(source, window)
    postgres.sql(f"INSERT INTO {name} (id) VALUES (2), (4)")
    rows = source.rows(plan(source, column_of(cursor), window))
    every = PostgresSnapshot(jdbc, postgres.url, name, properties=postgres.properties, where="id = 2")

    assert first == [1]
    assert [row.id for row in rows.collect()] == [2]
    assert rows.columns == ["id", column_of(cursor)]
    assert every.toDF().columns == ["id", "at", "changed"]


def test_rows_are_lost_when_a_transaction_stays_open_and_neither_snapshot_nor_delay_waits_for_it(
    postgres: Any, table_in: Maker, table: Callable[[str], str], writer: Callable[[], Any]
) -> None:
    name = table("xid8")
    source = table_in(name)
    slow = writer()
    slow.execute("BEGIN")
    slow.execute(f"INSERT INTO {name} (id) VALUES (1)")
    postgres.sql(f"INSERT INTO {name} (id) VALUES (2)")

    first = plan(source, "at", delay=timedelta(0))
    before = taken(source, first)
    slow.execute("COMMIT")
    second = plan(source, "at", first, delay=timedelta(0))

    assert (before, taken(source, second)) == ([2], [])


def test_row_that_is_rolled_back_never_comes_when_others_follow(
    postgres: Any, table_in: Maker, table: Callable[[str], str], writer: Callable[[], Any]
) -> None:
    name = table("xid8")
    source = table_in(name, PostgresSnapshot)
    slow = writer()
    slow.execute("BEGIN")
    slow.execute(f"INSERT INTO {name} (id) VALUES (1)")
    first = plan(source, "changed")

    slow.execute("ROLLBACK")
    postgres.sql(f"INSERT INTO {name} (id) VALUES (2)")
    second = plan(source, "changed", first)

    assert [taken(source, first), taken(source, second)] == [[], [2]]


@CURSORS
def test_row_comes_again_with_its_new_content_when_it_is_updated(
    postgres: Any, table_in: Maker, table: Callable[[str], str], cursor: str
) -> None:
    name = table(cursor)
    source = table_in(name, PostgresSnapshot)
    postgres.sql(f"INSERT INTO {name} (id) VALUES (1), (2)")
    first = plan(source, column_of(cursor))

    postgres.sql(f"UPDATE {name} SET at = at WHERE id = 2")
    second = plan(source, column_of(cursor), first)

    rows = source.rows(second).select("id", column_of(cursor)).collect()
    assert [row["id"] for row in rows] == [2]
    assert [(row[1],) for row in rows] == postgres.sql(f"SELECT xmin::text::bigint FROM {name} WHERE id = 2")


@pytest.mark.parametrize("cursor", ["xid8", "bigint"])
def test_server_uses_the_index_when_transaction_ids_have_one(
    postgres: Any, table_in: Maker, table: Callable[[str], str], cursor: str
) -> None:
    name = table(cursor)
    postgres.sql(f"INSERT INTO {name} (id) SELECT generate_series(1, 20000)", f"ANALYZE {name}")
    source = table_in(name, PostgresSnapshot)
    first = plan(source, "changed")
    postgres.sql(f"INSERT INTO {name} (id) VALUES (0)")
    before = postgres.log()

    second = plan(source, "changed", first)

    assert taken(source, second) == [0]
    sent = [line for line in postgres.log_since(before).splitlines() if f'"{name}"' in line and "1=0" not in line]
    assert len(sent) == 3  # the facts, the count of rows, and the rows
    for statement in sent:
        explained = "\n".join(row[0] for row in postgres.sql(f"EXPLAIN {statement[statement.index('SELECT') :]}"))
        assert f"using {name}_changed_idx" in explained and f"Seq Scan on {name}" not in explained, explained


@pytest.mark.parametrize("nulls", ["raise", "take"])
def test_large_window_is_read_by_ranges_without_what_old_servers_lack_when_ids_are_xid8(
    postgres: Any, table_in: Maker, monkeypatch: pytest.MonkeyPatch, nulls: str
) -> None:
    monkeypatch.setattr(jdbc_rows, "MANY", 100)
    name = postgres.new_table("id int, changed xid8")
    postgres.sql(f"INSERT INTO {name} SELECT n, n::text::xid8 FROM generate_series(3, 500) n")
    if nulls == "take":
        postgres.sql(f"INSERT INTO {name} VALUES (501, NULL)")
    source = table_in(name, PostgresSnapshot, partitions=3)
    before = postgres.log()

    df = source.rows(plan(source, "changed", nulls=nulls, write_disposition="merge"))

    assert df.rdd.getNumPartitions() == 3
    assert sorted(row["id"] for row in df.collect()) == list(range(3, 502 if nulls == "take" else 501))
    assert "MIN(" not in postgres.log_since(before) and "MAX(" not in postgres.log_since(before)


@CURSORS
def test_filter_is_in_the_physical_plan_when_ids_bound_the_window(
    postgres: Any, table_in: Maker, table: Callable[[str], str], cursor: str
) -> None:
    name = table(cursor)
    source = table_in(name, PostgresSnapshot)
    postgres.sql(f"INSERT INTO {name} (id) VALUES (1)")
    first = plan(source, column_of(cursor))
    postgres.sql(f"INSERT INTO {name} (id) VALUES (2)")
    second = plan(source, column_of(cursor), first)

    text = source.rows(second)._jdf.queryExecution().executedPlan().toString()

    assert first.high is not None and second.high is not None
    low, high = first.high[0], second.high[0]
    for sign, value in ((">=", low), ("<", high)):
        written = f"CAST('{value}' AS xid8)" if cursor == "xid8" else str(value)
        assert f"{source.dialect.cursor(second.columns[0])} {sign} {written}" in text
    assert f'FROM "{name}" t WHERE' in text


def test_ids_go_on_beyond_32_bits_when_the_server_has_wrapped(postgres: Any, table_in: Maker) -> None:
    name = postgres.new_table("id int")
    source = table_in(name, PostgresSnapshot)
    (column,) = source.columns(["xmin"], strings=False)
    text = source.dialect.cursor(column).replace(NEXT, "{now}").replace("CAST(CAST(xmin AS text) AS bigint)", "{old}")

    def full(now: int, old: int) -> int:
        return int(postgres.sql("SELECT " + text.format(now=f"{now}::bigint", old=f"{old}::bigint"))[0][0])

    assert full(now=900, old=800) == 800
    assert full(now=2**32 + 900, old=800) == 2**32 + 800
    assert full(now=2**32 + 900, old=1000) == 1000
    assert full(now=3 * 2**32 + 5, old=4_294_967_290) == 3 * 2**32 - 6


def test_nothing_is_lost_when_writers_commit_in_any_order_while_runs_go_on(
    postgres: Any, table_in: Maker, table: Callable[[str], str]
) -> None:
    name = table("xid8")
    source = table_in(name, PostgresSnapshot)
    stop = threading.Event()

    def write(number: int) -> None:
        with postgres.connect() as connection:
            while not stop.is_set():
                with connection.transaction():
                    following = f"SELECT coalesce(max(id) + 3, {number}) FROM {name} WHERE id % 3 = {number}"
                    connection.execute(f"INSERT INTO {name} (id) {following}")
                    connection.execute(f"SELECT pg_sleep({0.01 + 0.1 * number})")

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in writers:
        thread.start()
    found: list[int] = []
    window: RowWindow | None = None
    for run in range(6):
        if run == 5:
            while postgres.sql(f"SELECT count(*) FROM {name}")[0][0] <= 30:
                assert any(thread.is_alive() for thread in writers)
            stop.set()
            for thread in writers:
                thread.join(PATIENCE)
        window = plan(source, "changed", window)
        found += taken(source, window)

    assert sorted(found) == [row[0] for row in postgres.sql(f"SELECT id FROM {name} ORDER BY id")]
    assert len(found) > 30


# --- refused ---------------------------------------------------------------------------------------------


def test_plan_raises_source_behind_error_when_the_ceiling_went_back(
    postgres: Any, table_in: Maker, table: Callable[[str], str]
) -> None:
    source = table_in(table("xid8"), PostgresSnapshot)
    first = plan(source, "changed")
    state = first.state_after | {"value": first.state_after["value"] + 1_000_000}
    ahead = RowWindow.from_plan(state | {"low": None, "high": state["value"]}, ["changed"], "repairs")

    with pytest.raises(SourceError, check=behind) as caught:
        plan(source, "changed", ahead)

    assert "ceiling is behind the watermark" in str(caught.value)


def test_plan_raises_cursor_error_when_ids_are_of_another_cluster(postgres: Any, table_in: Maker) -> None:
    name = postgres.new_table("id int, changed bigint NOT NULL")
    postgres.sql(f"INSERT INTO {name} VALUES (1, {2**40})")

    with pytest.raises(CursorError) as caught:
        plan(table_in(name, PostgresSnapshot), "changed")

    assert "transaction ids that the server has not given out yet" in str(caught.value)
    assert "Fill it again, then reset the job." in str(caught.value)
    assert str(2**40) not in str(caught.value)


@pytest.mark.parametrize(
    ("names", "options", "text"),
    [
        (["at"], {}, "a timestamp with time zone holds no transaction ids. Use 'xmin'"),
        (["changed", "id"], {}, "a snapshot bounds one column of transaction ids"),
        (["changed"], {"descending": True}, "transaction ids rise"),
    ],
    ids=["time", "compound", "descending"],
)
def test_cursor_is_refused_when_a_snapshot_cannot_bound_it(
    postgres: Any, table_in: Maker, table: Callable[[str], str], names: list[str], options: Any, text: str
) -> None:
    source = table_in(table("xid8"), PostgresSnapshot)

    with pytest.raises(CursorError, match=text):
        plan(source, names, **options)


def test_source_is_refused_when_the_database_has_no_snapshots(jdbc: Any) -> None:
    with pytest.raises(SourceError, match="only PostgreSQL has snapshots to read up to"):
        PostgresSnapshot(jdbc, "jdbc:mysql://127.0.0.1/shop", "parking")


def test_warning_says_what_it_costs_when_cursor_is_xmin(
    postgres: Any, table_in: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    name = postgres.new_table("id int")

    with caplog.at_level(logging.WARNING):
        plan(table_in(name, PostgresSnapshot), "xmin")

    assert "column=xmin: this column cannot have an index, so each run reads the whole table" in caplog.text
