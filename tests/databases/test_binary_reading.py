"""PostgreSQL's values come in binary: they are those that come as text, whatever their type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scripts.helpers.databases.table import JdbcTable
from tests.support.databases import PostgresServer
from tests.support.row_windows import plan

VALUES = {
    "smallint": "'-32768'",
    "bigint": "'9223372036854775807'",
    "real": "'1.5e-7'",
    "double precision": "'Infinity'",
    "numeric(38,10)": "'-1234567890123456789012345678.0123456789'",
    "numeric(12,2)": "'0.10'",
    "boolean": "'t'",
    "text": "'naïve 🚲 ''x'' \\'",
    "char(5)": "'ab'",
    "bytea": "'\\x00ff10'",
    "uuid": "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
    "json": """'{"a": [1, null]}'""",
    "jsonb": """'{"a": [1, null]}'""",
    "date": "'0001-01-01'",
    "time(6)": "'23:59:59.999999'",
    "timestamp(6)": "'2026-10-25 01:30:00.000001'",
    "timestamptz(6)": "'1899-12-31 23:59:59.999999+00'",
    "interval": "'1 year 2 days 3:04:05.6'",
    "inet": "'10.0.0.1/8'",
    "bit(1)": "'1'",
    "integer[]": "'{1,2,NULL}'",
    "text[]": """'{a,"b c",NULL}'""",
    "timestamptz[]": "'{2026-10-25 00:30:00+00}'",
}


@pytest.mark.parametrize("declared", VALUES)
def test_value_is_that_of_text_when_it_comes_in_binary(
    declared: str, table_in: Callable[..., JdbcTable], postgres: PostgresServer
) -> None:
    name = f"binary_{list(VALUES).index(declared)}"
    postgres.sql(
        f"CREATE TABLE {name} (id bigint PRIMARY KEY, value {declared})",
        f"INSERT INTO {name} VALUES (1, {VALUES[declared]}), (2, NULL)",
    )
    as_text = table_in(name, properties=postgres.properties | {"prepareThreshold": "0", "binaryTransfer": "false"})

    found: list[list[Any]] = [
        source.rows(plan(source, "id")).orderBy("id").collect() for source in (table_in(name), as_text)
    ]

    assert found[0] == found[1]
    assert found[0][0].value is not None
    assert found[0][1].value is None
