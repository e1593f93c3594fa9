"""Which database columns store which rows unchanged; rows that the database would change are refused."""

from __future__ import annotations

import pytest

from scripts.helpers.errors import TargetError
from scripts.helpers.rows.sql import sql
from scripts.helpers.sql.database import Arriving, WritableDatabase, writable
from scripts.helpers.sql.mysql import MariaDB
from scripts.helpers.sql.others import Oracle
from scripts.helpers.sql.postgresql import PostgreSQL
from scripts.helpers.sql.sqlite import SQLite

# An integer also fits a decimal with two places. The database itself refuses values that are out of range.
NUMERICS = ["numeric(9,2)", "numeric(12,4)", "numeric(9,1)", "numeric(9)", "numeric(9,0)"]
DECIMALS = ["decimal(9,2)", "decimal(12,4)", "decimal(9,1)", "decimal(9)", "decimal(9,0)", "decimal"]
POSTGRES = {
    "int": ["smallint", "integer", "bigint", "numeric", *NUMERICS],
    "decimal(9,2)": ["numeric", "numeric(9,2)", "numeric(12,4)"],
    "decimal(9,1)": ["numeric", "numeric(9,2)", "numeric(12,4)", "numeric(9,1)"],
    "decimal(9,0)": ["numeric", *NUMERICS],
    "string": ["text", "character varying(9)", "uuid", "jsonb", "integer[]"],
    "timestamp": ["timestamp with time zone", "timestamp(3) with time zone"],
    "timestamp_ntz": ["timestamp without time zone", "timestamp(3) without time zone"],
    "date": ["date"],
    "float": ["real", "double precision"],
    "double": ["double precision"],
    "boolean": ["boolean"],
    "binary": ["bytea"],
}
MARIADB = {
    "int": ["tinyint(4)", "smallint(6)", "mediumint(9)", "int(11)", "bigint(20)", *DECIMALS],
    "decimal(9,2)": ["decimal(9,2)", "decimal(12,4)"],
    "decimal(9,1)": ["decimal(9,2)", "decimal(12,4)", "decimal(9,1)"],
    "decimal(9,0)": DECIMALS,
    "string": ["varchar(9)", "text", "longtext", "enum('a')"],
    "timestamp": ["timestamp", "timestamp(6)"],
    "timestamp_ntz": ["datetime", "datetime(6)"],
    "date": ["date"],
    "float": ["float", "double"],
    "double": ["double"],
    "boolean": ["tinyint(4)", "bit(1)"],
    "binary": ["blob", "longblob", "varbinary(9)"],
}
# SQLite's type affinity: a column without a type, or of type blob, changes no value.
ANY = ["", "blob"]
TEXTS = ["varchar(9)", "text", *ANY]
SQLITE = {
    "int": ["integer", "numeric", "timestamp", *ANY],
    "decimal(9,2)": TEXTS,
    "string": TEXTS,
    "timestamp": ["numeric", "timestamp", *TEXTS],
    "timestamp_ntz": ["numeric", "timestamp", *TEXTS],
    "date": ["numeric", "timestamp", *TEXTS],
    "float": ["real", "double", "numeric", "timestamp", *ANY],
    "double": ["real", "double", "numeric", "timestamp", *ANY],
    "boolean": ["integer", "numeric", "timestamp", *ANY],
    "binary": ANY,
}


@pytest.mark.parametrize(
    ("database", "taken"),
    [(PostgreSQL(), POSTGRES), (MariaDB(), MARIADB), (SQLite(), SQLITE)],
    ids=["postgres", "mariadb", "sqlite"],
)
def test_column_takes_only_rows_whose_values_it_holds_as_they_are(
    database: WritableDatabase, taken: dict[str, list[str]]
) -> None:
    declared = {one for types in taken.values() for one in types}

    for kind, fit in taken.items():
        column = Arriving("a", kind, 0)
        assert {one for one in declared if database.takes(column, one)} == set(fit), kind
    # All values of such a column are NULL, and NULL fits any type.
    assert all(database.takes(Arriving("a", "unknown", 0), one) for one in declared)


def test_databases_are_named_when_another_one_is_to_be_written_to() -> None:
    with pytest.raises(TargetError, match=r"^Target 'Oracle': batches are written to .*SQLite\. Write files, and load"):
        writable(Oracle())


@pytest.mark.parametrize(
    ("database", "kind", "declared"),
    [(PostgreSQL(), "decimal(9,2)", "numeric(9,2)"), (MariaDB(), "tinyint", "bigint"), (MariaDB(), "bigint", "bigint")],
)
def test_type_has_the_name_of_the_database_when_a_column_is_to_be_declared(
    database: WritableDatabase, kind: str, declared: str
) -> None:
    assert database.declaration(Arriving("a", kind, 0)) == declared


@pytest.mark.parametrize(
    ("declared", "by_bytes"),
    [
        ("varchar(9)", True),
        ("longtext", True),
        ("enum('a')", True),
        ("set('a')", True),
        ("json", True),
        ("int(11)", False),
        ("float", False),
        ("datetime(6)", False),
    ],
)
def test_only_texts_are_compared_by_bytes_when_mysql_would_apply_a_collation(declared: str, by_bytes: bool) -> None:
    assert ("AS BINARY" in MariaDB().differ(sql("s.a"), sql("t.a"), declared)) == by_bytes
