"""A source of rows in a list, with its own clock, that answers windows by running their SQL on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any

from scripts.helpers.rows.cursors import EPOCH, MICROSECOND, Bound, CursorColumn
from scripts.helpers.rows.dialect import Dialect
from scripts.helpers.rows.sources import Facts, RowSource
from scripts.helpers.rows.sql import SQL, in_quotes, sql, whole
from scripts.helpers.rows.window import RowWindow


class WholeNumbers(Dialect):
    """Writes every cursor value except a text as a whole number, because SQLite stores those exactly."""

    name = "whole"

    def timestamp(self, value: datetime) -> SQL:
        return whole(as_whole(value))

    wall_clock = timestamp

    def date(self, value: date) -> SQL:
        return whole(as_whole(value))

    def number(self, value: int | Decimal) -> SQL:
        return whole(as_whole(value))

    def text(self, value: str) -> SQL:
        return sql("CAST(X{} AS TEXT)", in_quotes(value.encode().hex()))

    def uuid(self, value: str, kind: str) -> SQL:
        return self.text(value)


WHOLE_NUMBERS = WholeNumbers()


def as_whole(value: Any) -> Any:
    """Return a cursor value as SQLite stores it; a decimal in hundredths."""
    if isinstance(value, datetime):
        return (value.astimezone(timezone.utc) - EPOCH) // MICROSECOND
    if isinstance(value, date):
        return value.toordinal()
    return int(value * 100) if isinstance(value, Decimal) else value


@dataclass
class ListedRows(RowSource):
    """Rows of cursor values, as tuples of one or two, which a test may change between two runs."""

    cursors: tuple[CursorColumn, ...]
    listed: list[tuple[Any, ...]] = field(default_factory=list)
    now: datetime | None = None
    ceiling: Any = None
    zone: tzinfo | None = None
    slack: timedelta | None = None
    name: str = "public.repairs"
    asked: list[Bound | None] = field(default_factory=list)

    def columns(self, names: Sequence[str], strings: bool) -> tuple[CursorColumn, ...]:
        assert list(names) == [column.name for column in self.cursors]
        return self.cursors

    def facts(self, columns: tuple[CursorColumn, ...], low: Bound | None, descending: bool) -> Facts:
        self.asked.append(low)
        probe = RowWindow(columns, low, None, descending=descending)
        whole = [row for row in self.listed if None not in row]
        past = whole if low is None else self._where(probe.at_or_past(low, WHOLE_NUMBERS), whole)
        nulls = len(self.listed) - len(whole)
        largest = None if descending else max(past, default=None)
        smallest = min(past, default=None) if descending else None
        return Facts(self.now, largest, smallest, nulls, self.ceiling, self.zone, self.slack)

    def last(self, columns: tuple[CursorColumn, ...], descending: bool) -> Bound | None:
        whole = [row for row in self.listed if None not in row]
        return (min if descending else max)(whole, default=None)

    def cursor_at(self, window: RowWindow, position: int) -> Bound | None:
        rows = sorted(self.rows(window), reverse=window.descending)
        return rows[position] if len(rows) > position else None

    def rows(self, window: RowWindow) -> list[tuple[Any, ...]]:
        return self._where(window.predicate(WHOLE_NUMBERS), self.listed)

    def writers(self, column: str, longest: timedelta) -> frozenset[str] | None:
        return frozenset()

    def _where(self, predicate: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        names = ", ".join(WHOLE_NUMBERS.quote(column.name) for column in self.cursors)
        connection = sqlite3.connect(":memory:")
        connection.execute(f"CREATE TABLE source (position, {names})")
        marks = ", ".join("?" * (len(self.cursors) + 1))
        stored = [(position, *map(as_whole, row)) for position, row in enumerate(rows)]
        connection.executemany(f"INSERT INTO source VALUES ({marks})", stored)
        found = connection.execute(f"SELECT position FROM source WHERE {predicate} ORDER BY position").fetchall()
        connection.close()
        return [rows[position] for (position,) in found]
