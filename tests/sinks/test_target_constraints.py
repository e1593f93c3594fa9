"""Rows that a constraint of the target refuses are found before the commit, if the staged rows show it."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.errors import TargetError
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.sinks.merging import DELETED, Merge
from tests.support.reasons import because
from tests.support.staging import staged_by
from tests.support.written import EPOCH, JOB, Written

BATCH = BatchId(JOB, EPOCH, 3)
BY_ID = Merge(("id",), ("at",))


def staged(written: Written, table: str, columns: str, rows: list[tuple[Any, ...]], merge: Merge | None = None) -> Any:
    """Stage and publish rows; return the rows of the table."""
    sink = written.sink(table, merge=merge)
    frame = pd.DataFrame(rows, columns=columns.split())
    output = staged_by(sink, BATCH, 1, frame)
    sink.publish(output)
    sink.clear(output)
    return written.rows(f"SELECT * FROM {table}")


def refused(written: Written, table: str, columns: str, rows: list[tuple[Any, ...]], merge: Merge | None = None) -> str:
    """Return why rows are refused before the commit; check that nothing of them is left."""
    frame = pd.DataFrame(rows, columns=columns.split())
    with pytest.raises(TargetError, check=because("unfit_table")) as caught:
        staged_by(written.sink(table, merge=merge), BATCH, 1, frame)
    assert (written.rows(f"SELECT * FROM {table}"), written.staged(table)) == ([], [])
    return str(caught.value)


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ("id integer PRIMARY KEY, word varchar(20)", "id"),
        ("id integer, word varchar(20), UNIQUE (id)", "id"),
        ("id integer, word varchar(20), PRIMARY KEY (id, word)", "id.*word"),
    ],
    ids=["primary", "unique", "two columns"],
)
def test_rows_are_counted_and_refused_before_the_commit_when_they_share_a_key(
    written: Written, columns: str, key: str
) -> None:
    table = written.new_table(columns)

    why = refused(written, table, "id word", [(1, "x"), (2, "x"), (1, "x"), (1, "x"), (3, "y")])

    assert re.search(rf"its unique key \(.*{key}.*\) refuses 3 rows\. Correct or filter them, or use job\.merge", why)


def test_rows_are_counted_and_refused_before_the_commit_when_a_check_fails(written: Written) -> None:
    table = written.new_table("id integer CHECK (id > 0), word varchar(20), CHECK (id < 9 OR word = ')')")

    why = refused(written, table, "id word", [(1, "a"), (-2, "b"), (-3, None), (10, ")")])

    assert re.search(r"its CHECK \(.*id.* > 0.*\) refuses 2 rows\. Correct or filter them", why)
    assert "-2" not in why


def test_row_is_refused_when_a_check_of_the_table_fails(written: Written) -> None:
    table = written.new_table("id integer, word varchar(20), CONSTRAINT a CHECK (word IN ('a', 'CHECK ('))")

    assert "refuses 1 row." in refused(written, table, "id word", [(1, "CHECK ("), (2, "a"), (3, "c")])


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        ("id integer UNIQUE, word varchar(20)", [(None, "a"), (None, "b"), (1, "c")]),
        ("id integer, word varchar(20), UNIQUE (id, word)", [(1, "a"), (1, "b"), (1, None), (1, None)]),
        ("id integer CHECK (id > 0), word varchar(20)", [(None, "a"), (1, "b")]),
        ("id integer, word varchar(20) DEFAULT 'CHECK (id > 5)'", [(1, "a")]),
        ("id integer, word varchar(20), other integer DEFAULT 7, UNIQUE (id, other), CHECK (other > id)", [(1, "a")]),
        ("id integer, word varchar(20), other integer DEFAULT 7, CHECK (other < 9)", [(1, "a"), (1, "b")]),
    ],
    ids=["NULL in a key", "NULL in a part", "NULL in a check", "check in a text", "absent column", "default"],
)
def test_rows_are_published_when_the_target_takes_them(written: Written, columns: str, rows: list[Any]) -> None:
    table = written.new_table(columns)
    frame = pd.DataFrame(rows, columns=["id", "word"]).astype({"id": "Int64"})

    sink = written.sink(table)
    sink.publish(staged_by(sink, BATCH, 1, frame))

    assert len(written.rows(f"SELECT * FROM {table}")) == len(rows)


def test_duplicates_wait_for_the_publication_when_the_rows_lack_a_column_of_the_key(written: Written) -> None:
    table = written.new_table("id integer, word varchar(20), other integer DEFAULT 7, UNIQUE (id, other)")
    sink = written.sink(table)

    output = staged_by(sink, BATCH, 1, pd.DataFrame({"id": [1, 1], "word": ["a", "b"]}))

    with pytest.raises(TargetError, match="a constraint of the table is violated"):
        sink.publish(output)


def test_merge_takes_several_rows_of_a_key_when_its_target_has_one_of_each(written: Written) -> None:
    table = written.new_table("id integer PRIMARY KEY, at integer UNIQUE, word varchar(20) CHECK (word <> 'x')")
    rows = [(1, 1, "x", False), (1, 2, "a", False), (2, 4, None, True), (3, 3, "b", False)]

    seen = staged(written, table, f"id at word {DELETED}", rows, BY_ID)

    assert sorted(seen) == [(1, 2, "a"), (3, 3, "b")]


def test_merge_is_refused_before_the_commit_when_a_row_of_its_newest_fails_a_check(written: Written) -> None:
    table = written.new_table("id integer PRIMARY KEY, at integer, word varchar(20) CHECK (word <> 'x')")

    why = refused(written, table, "id at word", [(1, 1, "a"), (1, 2, "x")], BY_ID)

    assert "refuses 1 row." in why


@pytest.mark.parametrize("written", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    ("index", "is_refused"),
    [
        ("(lower(word))", True),
        ("(id) WHERE word IS NOT NULL", True),
        ("(id) WHERE word = 'z'", False),
        ('(id, word COLLATE "C")', False),
        ("(id) INCLUDE (word)", True),
    ],
)
def test_rows_are_refused_when_they_share_what_an_index_of_postgres_is_made_of(
    written: Written, index: str, is_refused: bool
) -> None:
    table = written.new_table("id integer, word varchar(20)")
    written.sql(f"CREATE UNIQUE INDEX {table}_key ON {table} {index}")
    rows = [(1, "a"), (1, "A")]

    if is_refused:
        assert "refuses 2 rows" in refused(written, table, "id word", rows)
    else:
        assert len(staged(written, table, "id word", rows)) == 2


@pytest.mark.parametrize("written", ["postgres"], indirect=True)
def test_rows_are_refused_when_they_share_a_key_that_is_checked_at_the_end_of_a_transaction(written: Written) -> None:
    table = written.new_table("id integer, UNIQUE (id) DEFERRABLE INITIALLY DEFERRED")

    assert "refuses 2 rows" in refused(written, table, "id", [(1,), (1,)])


@pytest.mark.parametrize("written", ["postgres"], indirect=True)
def test_rows_are_published_when_a_trigger_makes_of_them_what_the_constraints_want(written: Written) -> None:
    table = written.new_table("id integer UNIQUE CHECK (id > 0)")
    written.sql(
        f"CREATE SEQUENCE {table}_ids",
        f"CREATE FUNCTION {table}_fill() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN NEW.id := nextval('{table}_ids'); RETURN NEW; END $$",
        f"CREATE TRIGGER fill BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION {table}_fill()",
    )

    assert sorted(staged(written, table, "id", [(-1,), (-1,)])) == [(1,), (2,)]


@pytest.mark.parametrize("written", ["maria"], indirect=True)
def test_rows_are_refused_when_they_share_the_beginning_of_a_text_that_a_key_of_mariadb_has(written: Written) -> None:
    table = written.new_table("id integer, word text, UNIQUE KEY start (word(2))")

    assert "refuses 2 rows" in refused(written, table, "id word", [(1, "ab1"), (2, "ab2"), (3, "c")])


@pytest.mark.parametrize("written", ["maria"], indirect=True)
def test_rows_wait_for_the_publication_when_a_check_of_mariadb_has_a_backslash(written: Written) -> None:
    """The server's mode then decides where a text ends, so the check cannot be tried on staged rows."""
    table = written.new_table("id integer, word varchar(20) CHECK (word IN ('a', 'it''s'))")

    assert staged(written, table, "id word", [(1, "it's")]) == [(1, "it's")]
    with pytest.raises(TargetError, match="a constraint of the table is violated"):
        written.sink(table).publish(
            staged_by(written.sink(table), BatchId(JOB, EPOCH, 4), 1, pd.DataFrame({"id": [2], "word": ["c"]}))
        )


@pytest.mark.parametrize("written", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("columns", "rows", "count"),
    [
        ("id integer, word text COLLATE NOCASE UNIQUE", [(1, "a"), (2, "A")], 0),
        ("id integer, word text UNIQUE ON CONFLICT IGNORE", [(1, "a"), (2, "a")], 1),
        ("id integer, word text COLLATE NOCASE CHECK (word IN ('a', 'b'))", [(1, "A"), (2, "b")], 2),
        ("id integer PRIMARY KEY, word text", [(1, "a"), (None, "b"), (None, "c")], 3),
    ],
    ids=["collation of a key", "conflict ignored", "collation of a check", "numbers of SQLite"],
)
def test_rows_are_taken_as_sqlite_takes_them_when_its_schema_has_more_to_say(
    written: Written, columns: str, rows: list[Any], count: int
) -> None:
    table = written.new_table(columns)
    frame = pd.DataFrame(rows, columns=["id", "word"]).astype({"id": "Int64"})
    sink = written.sink(table)

    if count:
        sink.publish(staged_by(sink, BATCH, 1, frame))
    else:
        with pytest.raises(TargetError, check=because("unfit_table"), match="refuses 2 rows"):
            staged_by(sink, BATCH, 1, frame)

    assert len(written.rows(f"SELECT * FROM {table}")) == count


@pytest.mark.parametrize("written", ["sqlite"], indirect=True)
def test_batch_is_staged_when_sqlite_does_not_say_what_a_key_is_made_of(written: Written) -> None:
    table = written.new_table("id integer, word text")
    written.sql(f"CREATE UNIQUE INDEX {table}_key ON {table} (lower(word))")

    assert len(staged(written, table, "id word", [(1, "a"), (2, "b")])) == 2
