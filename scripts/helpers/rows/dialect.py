"""How SQL is written for a source: quoted names, typed literals, comparisons; and Spark's way of it. Pure.

Nothing that a user or a stored watermark holds gets into a query but through here.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.rows.cursors import EPOCH, UUIDS, Cursor, CursorColumn, check_value, decimal_type
from scripts.helpers.rows.sql import SQL, in_quotes, sql, whole

SIGNS = {"<": sql("<"), "<=": sql("<="), "=": sql("="), ">=": sql(">="), ">": sql(">")}


class Dialect:
    """One kind of SQL. A subclass says how names are quoted and how each type of value is written."""

    name = "sql"
    quotes = ('"', '"')
    """What opens and what closes a quoted name."""

    def quote(self, name: str) -> SQL:
        """Quote one identifier: a column, a table, or one part of a dotted name."""
        start, end = self.quotes
        return SQL(start + name.replace(end, end * 2) + end)

    def type_name(self, text: str) -> SQL:
        """Return the name of a type that a catalogue holds; InvalidValueError if more than a name may be in it.

        >>> SPARK.type_name("decimal(10,2)")
        'decimal(10,2)'
        """
        start, end = map(re.escape, self.quotes)
        # What is quoted, as the values of an enum, is left out first, then what is in brackets, from the innermost on.
        bare = re.sub(rf"""'[^'\\]*'|"[^"\\]*"|{start}[^{end}]*{end}""", "x", text)
        while (less := re.sub(r"\(([\w .,:]|-(?=\d))*\)|<[\w .,:]*>|\[\d*\]", "", bare)) != bare:
            bare = less
        # A comma or a bracket that is left would end the type, and another item or clause would begin.
        if not re.fullmatch(r"[\w .]+", bare):
            raise InvalidValueError(f"{text!r} is not the name of a type. Correct it where the column is declared.")
        return SQL(text)

    def literal(self, value: Cursor, kind: str) -> SQL:
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

    def timestamp(self, value: datetime) -> SQL:
        """Write an instant, whatever the zone of the session."""
        return sql("TIMESTAMP WITH TIME ZONE {}", in_quotes(f"{wall_text(value)}+00:00"))

    def wall_clock(self, value: datetime) -> SQL:
        """Write a timestamp without zone."""
        return sql("TIMESTAMP {}", in_quotes(wall_text(value)))

    def date(self, value: date) -> SQL:
        """Write a date."""
        return sql("DATE {}", in_quotes(value.isoformat()))

    def number(self, value: int | Decimal) -> SQL:
        """Write a whole number or an exact decimal."""
        # Never in exponents: 1E+3 is a double to a database.
        return SQL(f"{value:f}") if isinstance(value, Decimal) else whole(value)

    def text(self, value: str) -> SQL:
        """Write a text so that nothing in it is read as SQL."""
        raise NotImplementedError

    def uuid(self, value: str, kind: str) -> SQL:
        """Write a UUID, or its bytes, as a column of them is compared."""
        raise NotImplementedError

    def cursor(self, column: CursorColumn) -> SQL:
        """Write a cursor column as it is compared; a text byte by byte, without padding."""
        return self.quote(column.name)

    def has_void(self, column: CursorColumn) -> bool:
        """Tell whether a column can hold something beside NULL that stands for no value and compares as one."""
        return False

    def lacks(self, column: CursorColumn) -> SQL:
        """Write that a row has no value there."""
        return sql("{} IS NULL", self.quote(column.name))

    def has(self, column: CursorColumn) -> SQL:
        """Write that a row has a value there."""
        return sql("{} IS NOT NULL", self.quote(column.name))

    def comparison(self, column: CursorColumn, sign: str, value: Cursor) -> SQL:
        """Write ``column sign value``, where `sign` is one of ``< <= = >= >``."""
        return sql("{} {} {}", self.cursor(column), SIGNS[sign], self.literal(value, column.type))


class SparkDialect(Dialect):
    """Spark SQL."""

    name = "spark"
    quotes = ("`", "`")

    def timestamp(self, value: datetime) -> SQL:
        """Write the microseconds since 1970, which no session zone changes."""
        return sql("timestamp_micros({}L)", whole((value - EPOCH) // timedelta(microseconds=1)))

    def wall_clock(self, value: datetime) -> SQL:
        """Write a timestamp without zone."""
        return sql("TIMESTAMP_NTZ {}", in_quotes(wall_text(value)))

    def number(self, value: int | Decimal) -> SQL:
        """Write a whole number, or a decimal that is not a double."""
        return sql("{}BD" if isinstance(value, Decimal) else "{}", super().number(value))

    def text(self, value: str) -> SQL:
        """Write the bytes: how Spark reads escapes in a text depends on its settings."""
        return sql("CAST(X{} AS STRING)", in_quotes(value.encode().hex()))

    def exact(self, expression: SQL, kind: str) -> SQL:
        """Write the exact text of a value; an instant in microseconds, as its text would be in the session's zone."""
        return sql("CAST(unix_micros({}) AS STRING)" if kind == "timestamp" else "CAST({} AS STRING)", expression)

    def comparison(self, column: CursorColumn, sign: str, value: Cursor) -> SQL:
        """Write a comparison.

        Just outside the decimals of a column Spark may have no literal, and compares with NULL what
        it cannot hold: every value is inside.
        """
        precision, scale = decimal_type(column.type)
        if isinstance(value, Decimal) and value.copy_abs() == Decimal(1).scaleb(precision - scale):
            check_value(value, column.type)
            # Every value is above the bound just below the smallest, and below the one just above the largest.
            is_met_by_all = sign[0] == (">" if value < 0 else "<")
            return sql("{} IS NOT NULL", self.cursor(column)) if is_met_by_all else sql("false")
        return super().comparison(column, sign, value)


SPARK = SparkDialect()


def wall_text(value: datetime) -> str:
    """Write a moment as UTC text with microseconds and without a zone."""
    return value.astimezone(timezone.utc).replace(tzinfo=None).isoformat(" ", "microseconds")
