"""UUIDs as cursors in real databases: compared by bytes, found by an index, and refused if they do not rise."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest

from scripts.helpers.databases.queries import TableQueries
from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import CursorError
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.plan import first_uuid_at
from scripts.helpers.rows.sql import sql
from scripts.helpers.sql.database import TableColumn
from scripts.helpers.sql.mysql import MariaDB
from scripts.helpers.sql.others import SQLServer
from scripts.helpers.sql.postgresql import PostgreSQL
from tests.support.row_windows import plan, taken

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
KINDS = [("postgres", "uuid"), ("maria", "uuid"), ("maria", "binary(16)"), ("sqlite", "char(36)")]


def made(minutes: int, random: int = 0) -> UUID:
    return UUID(int=UUID(first_uuid_at(START + timedelta(minutes=minutes))).int | random)


def written(value: UUID, kind: str) -> str:
    return f"x'{value.hex}'" if kind == "binary(16)" else f"'{value}'"


def table_of(server: Any, jdbc: Any, kind: str, values: list[UUID]) -> JdbcTable:
    name = server.new_table(f"id {kind} PRIMARY KEY, n integer")
    insert(server, name, kind, values)
    return JdbcTable(jdbc, server.url, name, properties=server.properties)


def insert(server: Any, name: str, kind: str, values: list[UUID], first: int = 1) -> None:
    rows = [f"({written(value, kind)}, {number})" for number, value in enumerate(values, first)]
    server.sql(f"INSERT INTO {name} VALUES {', '.join(rows)}")


@pytest.mark.parametrize(("database", "kind"), KINDS)
def test_uuids_are_taken_once_in_the_order_of_their_bytes(
    jdbc: Any, request: pytest.FixtureRequest, database: str, kind: str
) -> None:
    server = request.getfixturevalue(database)
    # The last byte falls while the first bytes rise.
    source = table_of(server, jdbc, kind, [made(minute, 0xFF - minute) for minute in range(3)])

    first = plan(source, "id", strings=True)
    insert(server, source.name.split()[-1], kind, [made(minute, 0xF0 - minute) for minute in range(3, 6)], 4)
    second = plan(source, "id", first, strings=True)

    assert (taken(source, first, "n"), taken(source, second, "n")) == ([1, 2, 3], [4, 5, 6])
    assert second.high == (str(UUID(int=made(5, 0xF0 - 5).int + 1)),) or kind == "char(36)"
    batch = plan(source, "id", strings=True, max_rows=4)
    assert taken(source, batch, "n") == [1, 2, 3, 4]


@pytest.mark.parametrize(("database", "kind"), KINDS)
def test_uuids_are_refused_when_they_are_random(
    jdbc: Any, request: pytest.FixtureRequest, database: str, kind: str
) -> None:
    server = request.getfixturevalue(database)
    # The largest UUID, both by the first bytes and by the node, by which MariaDB sorts this version.
    random = UUID(int=uuid4().int | (0xF << 124) | 0xFFFFFFFFFFFF)
    source = table_of(server, jdbc, kind, [made(0), random])

    with pytest.raises(CursorError, match="a UUID of version 4 is random"):
        plan(source, "id", strings=True)


# MariaDB sorts UUIDs of other versions in another order, so a random UUID may be at any place.
@pytest.mark.parametrize(("database", "kind"), [KINDS[0], KINDS[2]])
def test_random_uuids_below_the_last_one_are_counted_when_they_are_past_the_watermark(
    jdbc: Any, request: pytest.FixtureRequest, database: str, kind: str
) -> None:
    server = request.getfixturevalue(database)
    source = table_of(server, jdbc, kind, [made(0), made(9)])
    first = plan(source, "id", high=str(made(5)), settled=True)
    random = UUID(int=(made(7).int & ~(0xF << 76)) | (4 << 76))
    insert(server, source.name.split()[-1], kind, [random], 3)

    with pytest.raises(CursorError, match="1 rows past the watermark have a UUID of another version than 7"):
        plan(source, "id", first)


@pytest.mark.parametrize("database", ["postgres", "maria"])
def test_uuids_are_found_by_their_index_when_the_window_is_small(
    jdbc: Any, request: pytest.FixtureRequest, database: str
) -> None:
    server = request.getfixturevalue(database)
    source = table_of(server, jdbc, "uuid", [made(minute) for minute in range(2_000)])
    name = source.name.split()[-1]
    server.sql(f"ANALYZE TABLE {name}" if database == "maria" else f"ANALYZE {name}")
    first = plan(source, "id", high=str(made(1_990)), settled=True)
    second = plan(source, "id", first)

    query = f"SELECT * FROM {name} WHERE {second.predicate(source.dialect)}".replace('"', "").replace("`", "")
    explained = str(server.sql(f"EXPLAIN {query}"))

    assert len(taken(source, second, "n")) == 10
    assert ("range" in explained and "PRIMARY" in explained) if database == "maria" else "Index" in explained


def test_uniqueidentifier_is_refused_with_the_order_that_it_has() -> None:
    queries = TableQueries(SQLServer(), sql("[t]"), {"id": TableColumn("uniqueidentifier", True, False)})

    with pytest.raises(CursorError, match="by its last six bytes first"):
        queries.column("id", strings=False)


@pytest.fixture
def unsorted(monkeypatch: pytest.MonkeyPatch) -> JdbcTable:
    """Return a table of a MariaDB that reports that it does not sort UUIDs by their bytes."""
    answers = {"now": "2026-03-16 12:00:00+00:00", "nulls": "0", "uuids": "-1", "last_0": None}

    def answer(_: JdbcTable, query: str, names: Sequence[str]) -> list[Any]:
        return [("id", "uuid", "1", "0")] if "column_name" in names else [tuple(answers[name] for name in names)]

    monkeypatch.setattr(JdbcTable, "_query", answer)
    session: Any = None
    return JdbcTable(session, "jdbc:mariadb://h/d", "orders")


def test_uuids_are_refused_with_the_version_that_sorts_them_when_mariadb_does_not(unsorted: JdbcTable) -> None:
    with pytest.raises(CursorError) as caught:
        unsorted.facts(unsorted.columns(["id"], strings=False), None, descending=False)

    assert str(caught.value) == (
        "Cursor column 'id': this server does not sort UUIDs by their bytes, as MariaDB does from 10.11.5 on. "
        "Use a time column."
    )


def test_mariadb_is_asked_for_its_uuid_order_when_uuids_of_other_versions_are_counted() -> None:
    catalogue = {"id": TableColumn("uuid", True, False)}
    maria, postgres = (TableQueries(kind, sql("t"), catalogue) for kind in (MariaDB(), PostgreSQL()))
    column = CursorColumn("id", "uuid")

    assert maria.other_uuids((column,), None).startswith(f"CASE WHEN {MariaDB.sorts_uuids} THEN (SELECT COUNT(*) ")
    assert maria.other_uuids((column,), None).endswith(" ELSE -1 END")
    assert postgres.other_uuids((column,), None).startswith("(SELECT COUNT(*) ")


def test_generated_text_columns_get_free_names_when_the_table_has_such_names() -> None:
    catalogue = {name: TableColumn("datetime2", True, False) for name in ("at", "Text_0")}

    found = TableQueries(SQLServer(), sql("[t]"), catalogue).as_text([])

    assert [column.hidden for column in found] == ["text__0", "text__1"]
