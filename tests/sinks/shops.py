"""A SQLite file that a test writes to through sinks, and reads directly."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from scripts.helpers.sinks import DatabaseSink


class Shop:
    """A database with tables of a column `id`; the table `told` also has a column for the batch."""

    def __init__(self, path: Path, *plain: str, told: str = "") -> None:
        self.path, self.told = path, told
        for table in plain:
            self.sql(f"CREATE TABLE {table} (id integer)")
        if told:
            self.sql(f"CREATE TABLE {told} (id integer, batch text)")

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path)

    def sql(self, statement: str) -> list[Any]:
        with closing(self.connect()) as connection, connection:
            return connection.execute(statement).fetchall()

    def sink(self, table: str) -> DatabaseSink:
        batch_column = "batch" if table == self.told else None
        return DatabaseSink(table, connect=self.connect, name="shop", batch_column=batch_column)

    def seen(self, table: str) -> list[int]:
        return [id_ for (id_,) in self.sql(f"SELECT id FROM {table} ORDER BY id")]
