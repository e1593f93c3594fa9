"""Databases that tests write to: PostgreSQL, MariaDB and SQLite, each reached by its Python driver and by JDBC."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output
from scripts.helpers.rows.sql import SQL, Values, with_marks
from scripts.helpers.sinks.database import DatabaseSink
from scripts.helpers.sinks.merging import Merge
from tests.support.databases import MariaServer, PostgresServer, SQLiteFile
from tests.support.staging import staged_by

if TYPE_CHECKING:
    from typing_extensions import LiteralString

JOB, EPOCH = "repairs", "e1f00ba42"
PASSWORD = "not-a-secret"


class Written:
    """A database and a user who may write to it."""

    kind = ""
    marks: tuple[LiteralString, LiteralString] = ("%s", "%%")
    """How the driver writes the placeholder of a value, and a literal percent sign."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.url: str = server.url

    @property
    def properties(self) -> dict[str, str]:
        """Return the properties of a JDBC connection."""
        return dict(self.server.properties)

    def connect(self) -> Any:
        """Return a connection of the Python driver, whose sessions have that driver's defaults."""
        raise NotImplementedError

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        connection = self.connect()
        try:
            cursor = connection.cursor()
            cursor.execute(query)
            return [tuple(row) for row in cursor.fetchall()]
        finally:
            connection.close()

    def marked(self, statement: SQL, values: Values) -> tuple[str, Values]:
        """Return a statement of a sink in the driver's syntax, and its values."""
        return with_marks(statement, *self.marks, len(values)), values

    def sql(self, *statements: str) -> None:
        self.server.sql(*statements)

    def new_table(self, columns: str) -> str:
        return str(self.server.new_table(columns))

    def sink(
        self, table: str, connect: Callable[[], Any] | None = None, merge: Merge | None = None, **options: Any
    ) -> DatabaseSink:
        return DatabaseSink(table, connect=connect or self.connect, name="shop", merge=merge, **options)

    def staged(self, table: str) -> list[str]:
        """Return the staging tables for a target."""
        return self.sink(table).staged(self.output(table, 1).job)

    def output(self, table: str, version: int) -> Output:
        """Return the output of an attempt that staged nothing."""
        import pandas as pd

        sink = self.sink(table)
        output = staged_by(sink, BatchId(JOB, EPOCH, version), 1, pd.DataFrame())
        sink.drop(output)
        return output


class WrittenPostgres(Written):
    kind = "postgres"
    server: PostgresServer

    def connect(self) -> Any:
        import psycopg

        return psycopg.connect(host="127.0.0.1", port=self.server.port, user="postgres", dbname="postgres")


class WrittenMaria(Written):
    kind = "maria"
    server: MariaServer

    def __init__(self, server: MariaServer) -> None:
        super().__init__(server)
        server.sql(
            f"CREATE USER IF NOT EXISTS writer@'%' IDENTIFIED BY '{PASSWORD}'", "GRANT ALL ON shop.* TO writer@'%'"
        )

    @property
    def properties(self) -> dict[str, str]:
        return {**self.server.properties, "user": "writer"}

    def connect(self, user: str = "writer") -> Any:
        import pymysql

        # Otherwise the driver reads all certificates of this machine for each connection, which takes 20 ms.
        return pymysql.connect(
            host="127.0.0.1", port=self.server.port, user=user, password=PASSWORD, database="shop", charset="utf8mb4",
            ssl_disabled=True,
        )  # fmt: skip


class WrittenSQLite(Written):
    kind = "sqlite"
    marks = ("?", "%")
    server: SQLiteFile

    def connect(self) -> Any:
        return sqlite3.connect(self.server.path)


KINDS = {"postgres": WrittenPostgres, "maria": WrittenMaria, "sqlite": WrittenSQLite}
