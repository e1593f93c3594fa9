"""Which columns of a database take which rows as they are; what the database would change is refused."""

from __future__ import annotations

import pytest

from scripts.helpers.databases.dialects import Database, MariaDB, PostgreSQL
from scripts.helpers.sinks.database_sql import Arriving, writing_of

# A whole number fits where a decimal of two places does not. What is out of range is refused by the database.
NUMERICS = ["numeric(9,2)", "numeric(12,4)", "numeric(9,1)", "numeric(9)", "numeric(9,0)"]
DECIMALS = ["decimal(9,2)", "decimal(12,4)", "decimal(9,1)", "decimal(9,0)", "decimal"]
POSTGRES = {
    "int": ["smallint", "integer", "bigint", "numeric", *NUMERICS],
    "decimal(9,2)": ["numeric", "numeric(9,2)", "numeric(12,4)"],
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
    "string": ["varchar(9)", "text", "longtext", "enum('a')"],
    "timestamp": ["timestamp", "timestamp(6)"],
    "timestamp_ntz": ["datetime", "datetime(6)"],
    "date": ["date"],
    "float": ["float", "double"],
    "double": ["double"],
    "boolean": ["tinyint(4)", "bit(1)"],
    "binary": ["blob", "longblob", "varbinary(9)"],
}


@pytest.mark.parametrize(
    ("database", "taken"), [(PostgreSQL(), POSTGRES), (MariaDB(), MARIADB)], ids=["postgres", "mariadb"]
)
def test_column_takes_only_rows_whose_values_it_holds_as_they_are(
    database: Database, taken: dict[str, list[str]]
) -> None:
    sql = writing_of(database)
    declared = {one for types in taken.values() for one in types}

    for kind, fit in taken.items():
        column = Arriving("a", kind, "c0")
        assert {one for one in declared if sql.takes(column, one)} == set(fit), kind
    # All its values are NULL, and NULL is of any type.
    assert all(sql.takes(Arriving("a", "unknown", "c0"), one) for one in declared)
