"""PostgreSQL's values are read in binary form and equal those read as text, whatever their type."""

from __future__ import annotations

from collections.abc import Callable

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


def test_values_are_those_of_text_when_they_come_in_binary(
    table_in: Callable[..., JdbcTable], postgres: PostgresServer
) -> None:
    columns = ", ".join(f'"{declared}" {declared}' for declared in VALUES)
    name = postgres.new_table(f"id bigint PRIMARY KEY, {columns}")
    postgres.sql(f"INSERT INTO {name} VALUES (1, {', '.join(VALUES.values())}), (2{', NULL' * len(VALUES)})")
    as_text = table_in(name, properties=postgres.properties | {"prepareThreshold": "0", "binaryTransfer": "false"})

    found, expected = (
        [row.asDict() for row in source.rows(plan(source, "id")).orderBy("id").collect()]
        for source in (table_in(name), as_text)
    )

    assert found == expected
    assert [declared for declared in VALUES if found[0][declared] is None] == []
    assert found[1] == dict.fromkeys(VALUES) | {"id": 2}
