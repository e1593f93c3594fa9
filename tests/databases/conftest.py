"""Drop the tables of earlier tests, because the Arrow driver of PostgreSQL reads all types for each connection."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

FEW = 10
"""How many tables may be left before they are dropped, so that most tests open no connection for it."""
DROP_TABLES = r"""
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT relname FROM pg_class
        WHERE relname ~ '^table_\d+$' AND relkind IN ('r', 'p') AND pg_table_is_visible(oid)
    LOOP
        EXECUTE format('DROP TABLE IF EXISTS %I CASCADE', name);
    END LOOP;
END
$$
"""


@pytest.fixture(autouse=True)
def few_tables(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drop the tables that tests made in PostgreSQL, once there are more than a few."""
    yield
    if "postgres" in request.fixturenames:
        server = request.getfixturevalue("postgres")
        if server.made_tables > FEW:
            # With a limit, a transaction that a test left open fails the test instead of blocking it.
            server.sql("SET lock_timeout = '30s'", DROP_TABLES)
            server.made_tables = 0
