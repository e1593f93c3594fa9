"""Write SQL for a source: quoted names, typed literals and comparisons. `SPARK` writes them for Spark. Pure.

Every name and value from a user or a stored watermark is written into queries by this module.
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
    """One kind of SQL. A subclass defines how names are quoted and how values of each type are written."""

    name = "sql"
    quotes = ('"', '"')
    """Characters that open and close a quoted name."""

    def quote(self, name: str) -> SQL:
        """Quote one identifier: a column, a table, or one part of a dotted name."""
        start, end = self.quotes
        return SQL(start + name.replace(end, end * 2) + end)

    def type_name(self, text: str) -> SQL:
        """Return the name of a type from a catalogue; raise InvalidValueError if it may contain other SQL.

        >>> SPARK.type_name("decimal(10,2)")
        'decimal(10,2)'
        """
        start, end = map(re.escape, self.quotes)
        # Remove quoted parts, such as the values of an enum, and then brackets with their content, innermost first.
        bare = re.sub(rf"""'[^'\\]*'|"[^"\\]*"|{start}[^{end}]*{end}""", "x", text)
        while (less := re.sub(r"\(([\w .,:]|-(?=\d))*\)|<[\w .,:]*>|\[\d*\]", "", bare)) != bare:
            bare = less
        # Refuse a comma or bracket that was not removed above: it could end the type and begin another clause.
        if not re.fullmatch(r"[\w .]+", bare):
            raise InvalidValueError(f"{text!r} is not the name of a type. Correct it where the column is declared.")
        return SQL(text)

    def literal(self, value: Cursor, kind: str) -> SQL:
        """Return a value of the Spark type `kind` as a typed, exact literal; CursorError if it is not of that type."""
        check_value(value, kind)
        # In Python a datetime is a date too, so check for datetime first.
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
        """Return the literal of an instant, which does not depend on the session's time zone."""
        return sql("TIMESTAMP WITH TIME ZONE {}", in_quotes(f"{wall_text(value)}+00:00"))

    def wall_clock(self, value: datetime) -> SQL:
        """Return the literal of a timestamp without zone."""
        return sql("TIMESTAMP {}", in_quotes(wall_text(value)))

    def date(self, value: date) -> SQL:
        """Return the literal of a date."""
        return sql("DATE {}", in_quotes(value.isoformat()))

    def number(self, value: int | Decimal) -> SQL:
        """Return the literal of a whole number or an exact decimal."""
        # Never write an exponent, because databases read 1E+3 as a double.
        return SQL(f"{value:f}") if isinstance(value, Decimal) else whole(value)

    def text(self, value: str) -> SQL:
        """Return the literal of a text, quoted or encoded so that no part of the text is read as SQL."""
        raise NotImplementedError

    def uuid(self, value: str, kind: str) -> SQL:
        """Return the literal of a UUID, or of its bytes, that can be compared with a column of type `kind`."""
        raise NotImplementedError

    def cursor(self, column: CursorColumn) -> SQL:
        """Return SQL for a cursor column in comparisons, in which texts compare byte by byte, without padding."""
        return self.quote(column.name)

    def has_void(self, column: CursorColumn) -> bool:
        """Return whether a column can hold a placeholder for "no value" that, unlike NULL, compares as a value."""
        return False

    def lacks(self, column: CursorColumn) -> SQL:
        """Return the SQL condition that a row has no value in a column."""
        return sql("{} IS NULL", self.quote(column.name))

    def has(self, column: CursorColumn) -> SQL:
        """Return the SQL condition that a row has a value in a column."""
        return sql("{} IS NOT NULL", self.quote(column.name))

    def comparison(self, column: CursorColumn, sign: str, value: Cursor) -> SQL:
        """Return the SQL condition ``column sign value``, where `sign` is one of ``< <= = >= >``."""
        return sql("{} {} {}", self.cursor(column), SIGNS[sign], self.literal(value, column.type))


class SparkDialect(Dialect):
    """Spark SQL."""

    name = "spark"
    quotes = ("`", "`")

    def timestamp(self, value: datetime) -> SQL:
        """Return the literal of an instant as microseconds since 1970, independent of the session's time zone."""
        return sql("timestamp_micros({}L)", whole((value - EPOCH) // timedelta(microseconds=1)))

    def wall_clock(self, value: datetime) -> SQL:
        """Return the literal of a timestamp without zone."""
        return sql("TIMESTAMP_NTZ {}", in_quotes(wall_text(value)))

    def number(self, value: int | Decimal) -> SQL:
        """Return the literal of a whole number, or of a decimal with the suffix ``BD``: Spark then reads no double."""
        return sql("{}BD" if isinstance(value, Decimal) else "{}", super().number(value))

    def text(self, value: str) -> SQL:
        """Return the literal of a text as its bytes, because settings decide how Spark reads escapes in a string."""
        return sql("CAST(X{} AS STRING)", in_quotes(value.encode().hex()))

    def exact(self, expression: SQL, kind: str) -> SQL:
        """Return SQL for a value's exact text; of an instant its microseconds, as its text depends on a time zone."""
        return sql("CAST(unix_micros({}) AS STRING)" if kind == "timestamp" else "CAST({} AS STRING)", expression)

    def comparison(self, column: CursorColumn, sign: str, value: Cursor) -> SQL:
        """Return the SQL condition ``column sign value``.

        Spark may have no literal for a bound one step outside a decimal column's range, and would compare with NULL.
        The result is the same for all values of the column, so return it (true or false) in place of a comparison.
        """
        precision, scale = decimal_type(column.type)
        if isinstance(value, Decimal) and value.copy_abs() == Decimal(1).scaleb(precision - scale):
            check_value(value, column.type)
            # Here a negative `value` is below all values that the column can hold, and a positive one is above them.
            is_met_by_all = sign[0] == (">" if value < 0 else "<")
            return sql("{} IS NOT NULL", self.cursor(column)) if is_met_by_all else sql("false")
        return super().comparison(column, sign, value)


SPARK = SparkDialect()


def wall_text(value: datetime) -> str:
    """Return a moment as text in UTC, with microseconds and without a zone."""
    return value.astimezone(timezone.utc).replace(tzinfo=None).isoformat(" ", "microseconds")
