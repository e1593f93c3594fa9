"""How SQL is written for SQLite, where a column keeps what its affinity makes of a value. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scripts.helpers.cursors import CursorColumn, Tick
from scripts.helpers.sql_databases import INDEXED, NAME, NULLABLE, TEXT_TYPES, TYPE, Database, with_tick


class SQLite(Database):
    """SQLite. Its times are texts or numbers: a text in ISO form can be read with ``strings=True``.

    A column that is declared as a date or timestamp keeps what looks like a number as one, and numbers
    are below every text there: it is compared as text, which no index serves. One declared as STRING
    or TIME is refused, as leading zeros are lost in it.
    """

    name = "SQLite"
    driver = "org.sqlite.JDBC"
    now = "strftime('%Y-%m-%d %H:%M:%f', 'now') || '000+00:00'"

    def __init__(self, loose: frozenset[str] = frozenset()) -> None:
        self._loose = loose
        """Columns that keep numbers among their texts."""

    def of_table(self, declared: Mapping[str, str]) -> Database:
        """Return the dialect that knows which columns are not declared as text."""
        return SQLite(frozenset(name for name, text in declared.items() if not _has_text_affinity(text)))

    def serves(self, column: CursorColumn) -> bool:
        """Tell whether an index serves; none does for a column that is compared as what it is not."""
        return column.type != "string" or column.name not in self._loose

    def cursor(self, column: CursorColumn) -> str:
        """Write a cursor column as it is compared; a text byte by byte, even where numbers are among them."""
        if self.serves(column):
            return super().cursor(column)
        return self.binary(f"CAST({self.quote(column.name)} AS TEXT)")

    def bytes_as_text(self, digits: str) -> str:
        """Write a text."""
        return f"CAST(x'{digits}' AS TEXT)"

    def binary(self, name: str) -> str:
        """Write a text column so that it compares byte by byte."""
        return f"{name} COLLATE BINARY"

    def exact(self, expression: str, kind: str) -> str:
        """Write the exact text of a value; what is no hex for bytes, which are above every text."""
        if kind == "string":
            return f"CASE typeof({expression}) WHEN 'text' THEN hex({expression}) WHEN 'blob' THEN 'blob' END"
        return f"CAST({expression} AS TEXT)"

    def cursor_type(self, declared: str) -> tuple[str, Tick | None] | None:
        """Return Spark's type of a declared type, by SQLite's rules of affinity."""
        lower = declared.lower()
        if "int" in lower:
            return with_tick("bigint")
        is_time = "date" in lower or "timestamp" in lower
        return ("string", None) if is_time or _has_text_affinity(declared) else None

    def catalogue(self, parts: Sequence[str]) -> str:
        """Return the query for a table's columns."""
        table = self.text(parts[-1])
        return (
            f"SELECT c.name AS {NAME}, c.type AS {TYPE}, CASE WHEN m.type <> 'table' THEN NULL"
            " WHEN c.pk = 1 OR EXISTS (SELECT 1 FROM pragma_index_list(m.name) l, pragma_index_info(l.name) i"
            f" WHERE l.partial = 0 AND i.seqno = 0 AND i.cid = c.cid) THEN 1 ELSE 0 END AS {INDEXED},"
            f' CASE WHEN c."notnull" = 1 THEN 0 ELSE 1 END AS {NULLABLE}'
            f" FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type IN ('table', 'view') AND m.name = {table}"
        )


def _has_text_affinity(declared: str) -> bool:
    lower = declared.lower()
    return "int" not in lower and any(word in lower for word in TEXT_TYPES)
