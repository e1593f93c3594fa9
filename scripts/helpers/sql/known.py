"""The supported databases, and which of them a URL, a connection or an error belongs to. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from scripts.helpers.display.redaction import redact_logs
from scripts.helpers.errors import SourceError
from scripts.helpers.sql.database import Database, WritableDatabase
from scripts.helpers.sql.mysql import MariaDB, MySQL
from scripts.helpers.sql.others import Oracle, SQLServer
from scripts.helpers.sql.postgresql import PostgreSQL
from scripts.helpers.sql.sqlite import SQLite

DATABASES: Mapping[str, Database] = {
    one.url: one for one in (PostgreSQL(), MySQL(), MariaDB(), SQLServer(), Oracle(), SQLite())
}
"""The databases, by the prefix of their JDBC URLs."""
MODULES = {name: one for one in DATABASES.values() if isinstance(one, WritableDatabase) for name in one.modules}
"""The writable databases, by the package of their Python drivers' connections."""


def database_of(url: str) -> Database:
    """Return the database of a JDBC URL; raise SourceError, without the URL in it, if it is not supported.

    Also install the log filter that hides passwords, because the caller passes the URL and the password to py4j next.
    """
    redact_logs()
    for start, database in DATABASES.items():
        if str(url).lower().startswith(start):
            return database
    raise SourceError("JDBC", f"its URL starts with none of {', '.join(DATABASES)}. Check it.")
