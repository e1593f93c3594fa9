"""A database stores a value unchanged, or the batch is refused before it is committed."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.errors import TargetError
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.sinks.given_frames import events_of
from scripts.helpers.sinks.merging import Merge
from tests.support.database_fixtures import written_as
from tests.support.reasons import because
from tests.support.staging import staged_by
from tests.support.written import EPOCH, JOB, Written

POSTGRES = {
    "domain": ("short_text", "abcdefgh", "abcde"),
    "domain of a domain": ("nested_text", "abcdefgh", "abcde"),
    "array": ("varchar(3)[]", "{abcdef}", "{abc}"),
    "bits": ("bit(3)", "1010", "101"),
    "varying bits": ("bit varying(3)", "1010", "101"),
    "negative scale": ("numeric(5,-3)", 1234, 2000),
    "time": ("time(0)", "10:00:00.9", "10:00:00"),
    "money": ("money", "1.239", "1.24"),
    "name": ("name", "x" * 80, "x" * 63),
    "char": ('"char"', "xyz", "x"),
    "trailing blanks": ("varchar(5)", "abcde   ", "abcde"),
    "padded": ("char(5)", "ab ", "ab"),
    "interval": ("interval(0)", "1.9 seconds", "1 second"),
}
"""Of each: the type, a value that it would change, and one that it keeps."""
MARIA = {
    "trailing blanks": ("varchar(5)", "abcde   ", "abcde"),
    "padded": ("char(5)", "ab ", "ab"),
    "double": ("double(5,2)", 1.239, 1.25),
    "binary": ("binary(5)", b"ab", b"abcde"),
    "enum": ("enum('a','b')", "A", "a"),
    "set": ("set('a','b')", "b,a", "a,b"),
    "time": ("time", "10:00:00.9", "10:00:00"),
    "text in another character set": ("varchar(5) CHARACTER SET latin1", "\u00e9abcd ", "\u00e9abcd"),
}
CASES = [("postgres", name) for name in POSTGRES] + [("maria", name) for name in MARIA]


def new_table(request: pytest.FixtureRequest, kind: str, declared: str) -> tuple[Written, str]:
    written = written_as(request, kind)
    if kind == "postgres":
        domain = "DO $$ BEGIN CREATE DOMAIN {} AS {}; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
        written.sql(domain.format("short_text", "varchar(5)"), domain.format("nested_text", "short_text"))
    return written, written.new_table(f"id integer, v {declared}")


def stage(written: Written, table: str, value: Any) -> Callable[[], None]:
    """Stage one row; return a function that publishes it."""
    sink = written.sink(table)
    values = pd.Series([value, None], dtype="Int64" if isinstance(value, int) else object)
    rows = pd.DataFrame({"id": [1, 2], "v": values})
    output = staged_by(sink, BatchId(JOB, EPOCH, 1), 1, rows)
    return lambda: sink.publish(output)


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_value_is_refused_by_column_and_count_when_its_column_would_change_it(
    request: pytest.FixtureRequest, kind: str, name: str
) -> None:
    declared, changed, kept = (POSTGRES if kind == "postgres" else MARIA)[name]
    written, table = new_table(request, kind, declared)

    with pytest.raises(
        TargetError, check=because("unfit_table"), match=r"column 'v' is .*the value in 1 rows\. Declare it as"
    ) as caught:
        stage(written, table, changed)
    stage(written, table, kept)()

    assert str(changed) not in str(caught.value)
    assert written.rows(f"SELECT COUNT(*) FROM {table} WHERE v IS NOT NULL") == [(1,)]


NORMALISED = [
    ("postgres", "uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"),
    ("postgres", "jsonb", '{"b": 1, "a":2}'),
    ("postgres", "inet", "10.0.0.1/32"),
    ("postgres", "int4range", "[1,3]"),
    ("postgres", "timestamp(6)", pd.Timestamp("2026-03-16 15:45:00.123456")),
    ("postgres", "numeric(9,2)", Decimal("1.20")),
    ("postgres", "varchar(5)", "abcde"),
    ("postgres", "varchar(3)[]", "{abc,NULL}"),
    ("maria", "varchar(5) CHARACTER SET latin1", "\u00e9\u00df"),
    ("maria", "datetime(6)", pd.Timestamp("2026-03-16 15:45:00.123456")),
    ("maria", "decimal(9,2)", Decimal("1.20")),
    ("maria", "json", '{"b": 1}'),
    ("maria", "double", 0.1),
    ("maria", "time(6)", "10:00:00.9"),
]


@pytest.mark.parametrize(("kind", "declared", "value"), NORMALISED)
def test_value_is_taken_when_its_type_writes_it_in_its_own_way(
    request: pytest.FixtureRequest, kind: str, declared: str, value: Any
) -> None:
    written, table = new_table(request, kind, declared)

    stage(written, table, value)()

    assert written.rows(f"SELECT COUNT(*) FROM {table} WHERE v IS NOT NULL") == [(1,)]


WALL, PRICE = pd.Timestamp("2026-06-01 10:00:00.6"), Decimal("1.2350")


@pytest.mark.parametrize(
    ("kind", "declared", "value", "alter"),
    [
        ("postgres", "timestamp", WALL, "ALTER v TYPE timestamptz USING v AT TIME ZONE 'Europe/London'"),
        ("postgres", "timestamp", WALL, "ALTER v TYPE timestamp(0)"),
        ("postgres", "numeric(12,4)", PRICE, "ALTER v TYPE numeric(9,2)"),
        ("postgres", "double precision", 0.1, "ALTER v TYPE real"),
        ("maria", "datetime(6)", WALL, "MODIFY v timestamp(6) NULL"),
        ("maria", "datetime(6)", WALL, "MODIFY v datetime"),
        ("maria", "decimal(12,4)", PRICE, "MODIFY v decimal(9,2)"),
    ],
    ids=["zone", "seconds", "digits", "float", "zone in MariaDB", "seconds in MariaDB", "digits in MariaDB"],
)
@pytest.mark.parametrize("merge", [None, Merge(("id",), ("v",))], ids=["append", "merge"])
def test_batch_waits_when_a_column_was_altered_to_a_type_that_would_change_it(
    request: pytest.FixtureRequest, kind: str, declared: str, value: Any, alter: str, merge: Merge | None
) -> None:
    written, table = new_table(request, kind, declared)
    sink = written.sink(table, merge=merge)
    rows = pd.DataFrame({"id": [1], "v": [value]})
    output = staged_by(sink, BatchId(JOB, EPOCH, 1), 1, rows if merge is None else events_of(rows, merge))
    written.sql(f"ALTER TABLE {table} {alter}")

    with pytest.raises(TargetError, check=because("unfit_table"), match=r"'v' is .* now, and the batch was staged"):
        sink.publish(output)
    left = written.rows(f"SELECT * FROM {table}")
    written.sql(f"ALTER TABLE {table} {'ALTER v TYPE' if kind == 'postgres' else 'MODIFY v'} {declared}")
    sink.publish(output)

    assert left == []
    assert [row[0] for row in written.rows(f"SELECT v FROM {table}")] == [value]


@pytest.mark.parametrize(
    ("kind", "declared", "value", "alter"),
    [
        ("postgres", "varchar(5)", "abcde", "ALTER v TYPE text"),
        ("postgres", "numeric(12,4)", PRICE, "ALTER v TYPE numeric(20,6)"),
        ("postgres", "integer", 5, "ALTER v TYPE bigint"),
        ("maria", "varchar(5)", "abcde", "MODIFY v varchar(9)"),
        ("maria", "datetime(3)", WALL, "MODIFY v datetime(6)"),
        ("maria", "int unsigned", 5, "MODIFY v bigint"),
    ],
    ids=["text", "digits", "number", "text in MariaDB", "seconds in MariaDB", "number in MariaDB"],
)
def test_batch_is_published_when_a_column_was_altered_to_a_type_that_keeps_it(
    request: pytest.FixtureRequest, kind: str, declared: str, value: Any, alter: str
) -> None:
    written, table = new_table(request, kind, declared)
    publish = stage(written, table, value)
    written.sql(f"ALTER TABLE {table} {alter}")

    publish()

    assert written.rows(f"SELECT v FROM {table} WHERE id = 1") == [(value,)]
