"""How SQL is written for a source: quoted names, typed literals, comparisons; and Spark's way of it. Pure.

Nothing that a user or a stored watermark holds gets into a query but through here.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

from scripts.helpers.rows.cursors import EPOCH, UUIDS, Cursor, CursorColumn, check_value, decimal_type


class Dialect:
    """One kind of SQL. A subclass says how names are quoted and how each type of value is written."""

    name = "sql"
    quotes = ('"', '"')
    """What opens and what closes a quoted name."""

    def quote(self, name: str) -> str:
        """Quote one identifier: a column, a table, or one part of a dotted name."""
        start, end = self.quotes
        return start + name.replace(end, end * 2) + end

    def literal(self, value: Cursor, kind: str) -> str:
        """Write a value of a Spark type as a typed, exact literal; CursorError if the two do not match."""
        check_value(value, kind)
        # A datetime is a date in Python, so it is asked for first.
        if isinstance(value, datetime):
            return self.timestamp(value) if kind == "timestamp" else self.wall_clock(value)
        if isinstance(value, date):
            return self.date(value)
        if kind in UUIDS and isinstance(value, str):
            return self.uuid(value, kind)
        if isinstance(value, str):
            return self.text(value)
        return self.number(value)

    def timestamp(self, value: datetime) -> str:
        """Write an instant, whatever the zone of the session."""
        return f"TIMESTAMP WITH TIME ZONE '{wall_text(value)}+00:00'"

    def wall_clock(self, value: datetime) -> str:
        """Write a timestamp without zone."""
        return f"TIMESTAMP '{wall_text(value)}'"

    def date(self, value: date) -> str:
        """Write a date."""
        return f"DATE '{value.isoformat()}'"

    def number(self, value: int | Decimal) -> str:
        """Write a whole number or an exact decimal."""
        # Never in exponents: 1E+3 is a double to a database.
        return f"{value:f}" if isinstance(value, Decimal) else f"{value:d}"

    def text(self, value: str) -> str:
        """Write a text so that nothing in it is read as SQL."""
        raise NotImplementedError

    def uuid(self, value: str, kind: str) -> str:
        """Write a UUID, or its bytes, as a column of them is compared."""
        raise NotImplementedError

    def cursor(self, column: CursorColumn) -> str:
        """Write a cursor column as it is compared; a text byte by byte, without padding."""
        return self.quote(column.name)

    def has_void(self, column: CursorColumn) -> bool:
        """Tell whether a column can hold something beside NULL that stands for no value and compares as one."""
        return False

    def lacks(self, column: CursorColumn) -> str:
        """Write that a row has no value there."""
        return f"{self.quote(column.name)} IS NULL"

    def has(self, column: CursorColumn) -> str:
        """Write that a row has a value there."""
        return f"{self.quote(column.name)} IS NOT NULL"

    def comparison(self, column: CursorColumn, sign: str, value: Cursor) -> str:
        """Write ``column sign value``, where `sign` is one of ``< <= = >= >``."""
        return f"{self.cursor(column)} {sign} {self.literal(value, column.type)}"


class SparkDialect(Dialect):
    """Spark SQL."""

    name = "spark"
    quotes = ("`", "`")

    def timestamp(self, value: datetime) -> str:
        """Write the microseconds since 1970, which no session zone changes."""
        return f"timestamp_micros({(value - EPOCH) // timedelta(microseconds=1)}L)"

    def wall_clock(self, value: datetime) -> str:
        """Write a timestamp without zone."""
        return f"TIMESTAMP_NTZ '{wall_text(value)}'"

    def number(self, value: int | Decimal) -> str:
        """Write a whole number, or a decimal that is not a double."""
        return super().number(value) + ("BD" if isinstance(value, Decimal) else "")

    def text(self, value: str) -> str:
        """Write the bytes: how Spark reads escapes in a text depends on its settings."""
        return f"CAST(X'{value.encode().hex()}' AS STRING)"

    def comparison(self, column: CursorColumn, sign: str, value: Cursor) -> str:
        """Write a comparison.

        Just outside the decimals of a column Spark may have no literal, and compares with NULL what
        it cannot hold: every value is inside.
        """
        precision, scale = decimal_type(column.type)
        if isinstance(value, Decimal) and value.copy_abs() == Decimal(1).scaleb(precision - scale):
            check_value(value, column.type)
            # Every value is above the bound just below the smallest, and below the one just above the largest.
            is_met_by_all = sign[0] == (">" if value < 0 else "<")
            return f"{self.cursor(column)} IS NOT NULL" if is_met_by_all else "false"
        return super().comparison(column, sign, value)


SPARK = SparkDialect()


def wall_text(value: datetime) -> str:
    """Write a moment as UTC text with microseconds and without a zone."""
    return value.astimezone(timezone.utc).replace(tzinfo=None).isoformat(" ", "microseconds")
