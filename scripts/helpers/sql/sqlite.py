"""SQLite: its affinities, SQL, catalogue and settings. Pure: it makes SQL texts, and opens no database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from scripts.helpers.rows.cursors import TIMES, WHOLE, CursorColumn, Tick
from scripts.helpers.rows.sql import SQL, in_quotes, sql, whole
from scripts.helpers.sql.database import Arriving, Database, Declared, WritableDatabase
from scripts.helpers.sql.query_text import SQLITE

STATES = {
    "locked": "55P03", "busy": "55P03", "readonly": "42501", "unable to open": "08001", "constraint": "23000",
    "no such table": "42P01", "disk is full": "53100", "no such column": "42703", "syntax error": "42601",
    "could not decode": "22021", "not a database": "XX001", "malformed": "XX001",
}  # fmt: skip
"""SQLSTATEs by a part of SQLite's error texts, because SQLite has no SQLSTATEs of its own."""
AFFINITIES = {
    "integer": ("int",), "text": ("char", "clob", "text"), "blob": ("blob",), "real": ("real", "floa", "doub"),
}  # fmt: skip
"""The affinity of a column, by substrings of its declared type; the first match counts."""
NUMERIC = (*WHOLE, "float", "double", "boolean", *TIMES)


class SQLite(WritableDatabase):
    """SQLite. Its times are texts or numbers: a text in ISO form can be read with ``strings=True``.

    A column declared as a date or timestamp converts text that looks like a number to a number, and SQLite sorts
    numbers below all text. Such a column is therefore compared as text, for which no index can be used. A column
    declared as STRING or TIME is refused, because it loses leading zeros.
    """

    name = "SQLite"
    grammar = SQLITE
    url = "jdbc:sqlite:"
    modules = ("sqlite3",)
    driver = "org.sqlite.JDBC"
    now = sql("strftime('%Y-%m-%d %H:%M:%f', 'now') || '000+00:00'")
    # NUMERIC columns take no decimals: they turn a text that looks like a number into a number of only 15 digits.
    held = MappingProxyType({
        "integer": (*WHOLE, "boolean"), "text": ("string", "decimal", *TIMES), "real": ("float", "double"),
        "numeric": NUMERIC, "blob": (*NUMERIC, "decimal", "string", "binary"),
    })  # fmt: skip
    types = MappingProxyType({
        **dict.fromkeys((*WHOLE, "boolean"), sql("integer")), **dict.fromkeys(("float", "double"), sql("real")),
        "binary": sql("blob"), **dict.fromkeys(("string", "decimal", "unknown", *TIMES), sql("text")),
    })  # fmt: skip

    has_one_writer, compared_as_text, unfit_floats = True, ("decimal",), ("nan",)
    # Take the write lock at BEGIN. Otherwise data that a transaction has read could change before its first write.
    writing_options = MappingProxyType({"transaction_mode": "IMMEDIATE"})
    begins = sql("BEGIN IMMEDIATE")
    last_first = sql(" ORDER BY rowid DESC")
    # Milliseconds to wait for a lock. Without this a second writer fails at once, though publishing takes only seconds.
    writing_session = sql("PRAGMA busy_timeout = 60000")
    insert = sql("INSERT OR IGNORE")
    moment = sql("text")
    attempt = sql("0")
    rights = "Let the process write to the file and its folder"

    def writers(self, parts: Sequence[str], column: str) -> SQL:
        # List no transaction: SQLite lets only one write at a time, so an open one cannot add a row below the last id.
        return sql("SELECT NULL AS writer WHERE 1 = 0")

    def __init__(self, loose: frozenset[str] = frozenset()) -> None:
        self._loose = loose
        """Columns that may hold numbers among their texts, as their affinity is not TEXT."""

    def for_table(self, declared: Mapping[str, str]) -> Database:
        return SQLite(frozenset(name for name, text in declared.items() if self.kind(text) != "text"))

    def serves(self, column: CursorColumn) -> bool:
        # No index helps if the column is compared as text but stored with another affinity.
        return column.type != "string" or column.name not in self._loose

    def cursor(self, column: CursorColumn) -> SQL:
        if self.serves(column):
            return super().cursor(column)
        return self.binary(sql("CAST({} AS TEXT)", self.quote(column.name)))

    def bytes_as_text(self, digits: str) -> SQL:
        return sql("CAST(x{} AS TEXT)", in_quotes(digits))

    def binary(self, name: SQL) -> SQL:
        return sql("{} COLLATE BINARY", name)

    def exact(self, expression: SQL, kind: str) -> SQL:
        # Bytes sort above all text, so they may be the MAX. Write 'blob', which is not hex, so that `value` refuses it.
        if kind == "string":
            return sql("CASE typeof({0}) WHEN 'text' THEN hex({0}) WHEN 'blob' THEN 'blob' END", expression)
        return sql("CAST({} AS TEXT)", expression)

    def kind(self, declared: str) -> str:
        # For SQLite, return the affinity of the column instead of a Spark type.
        found = (name for name, parts in AFFINITIES.items() if any(part in declared.lower() for part in parts))
        return next(found, "numeric" if declared else "blob")

    def cursor_type(self, declared: str) -> tuple[str, Tick | None] | None:
        affinity, lower = self.kind(declared), declared.lower()
        if affinity == "integer":
            return "bigint", None
        return ("string", None) if affinity == "text" or "date" in lower or "timestamp" in lower else None

    def spark_type(self, declared: str) -> str | None:
        # By default Spark reads an INTEGER as 32 bits, and the driver returns only the lower half of a larger number.
        return "bigint" if self.kind(declared) == "integer" else None

    def plain(self, column: SQL, declared: str) -> tuple[SQL, str] | None:
        affinity, found = self.kind(declared), Declared.parse(declared)
        kind = {"integer": "bigint", "real": "double", "text": "string", "blob": "binary"}.get(affinity)
        if kind is not None:
            return (column, kind) if declared else None
        # A column of numbers can hold text. Read its values as text: the reader converts them to `kind`, or raises.
        kind, _ = self.cursor_type(declared) or (None, None)
        if found.base in ("decimal", "numeric") and found.numbers:
            # Do not cast the value: CAST AS TEXT writes only 15 digits of a number that is stored as a double.
            kind = found.decimal(None)
            return None if kind is None else (column, kind)
        kind = "boolean" if found.base in ("boolean", "bool") else kind
        return None if kind is None else (sql("CAST({} AS TEXT)", column), kind)

    def catalogue(self, parts: Sequence[str]) -> SQL:
        # `hidden` is 1 for hidden columns of virtual tables, which are left out, and 2 or 3 for computed columns.
        return sql(
            "SELECT c.name AS column_name, c.type AS declared, CASE WHEN m.type <> 'table' THEN NULL"
            " WHEN c.pk = 1 OR EXISTS (SELECT 1 FROM pragma_index_list(m.name) l, pragma_index_info(l.name) i"
            " WHERE l.partial = 0 AND i.seqno = 0 AND i.cid = c.cid) THEN 1 ELSE 0 END AS indexed,"
            ' CASE WHEN c."notnull" = 1 THEN 0 ELSE 1 END AS nullable,'
            " CASE WHEN c.hidden IN (2, 3) THEN 'always' WHEN c.dflt_value IS NOT NULL"
            " OR (c.pk = 1 AND lower(c.type) = 'integer') THEN 'default' END AS filled"
            " FROM sqlite_master m, pragma_table_xinfo(m.name) c WHERE m.type IN ('table', 'view')"
            " AND m.name = {} AND c.hidden <> 1",
            self.text(parts[-1]),
        )

    def identity(self, parts: Sequence[str]) -> SQL:
        # No database name is needed: the database is a file, which the URL names.
        return sql(
            "SELECT NULL AS database_name, NULL AS schema_name, m.name AS table_name, NULL AS table_oid"
            " FROM sqlite_master m WHERE m.type IN ('table', 'view') AND m.name = {}",
            self.text(parts[-1]),
        )

    def schema_of(self, parts: Sequence[str]) -> SQL:
        # Ignore the case of the schema's name, as SQLite does.
        name = self.text(parts[-2] if len(parts) > 1 else "main")
        return sql("SELECT name FROM pragma_database_list WHERE name = {} COLLATE NOCASE", name)

    def number_of(self, parts: Sequence[str]) -> SQL:
        # SQLite does not show if a table was created again. A random text never equals the text stored with a batch, so
        # callers search for the batch, last rowid first. WITHOUT ROWID, this would read all rows, so return no text.
        return sql(
            "SELECT hex(randomblob(8)) FROM {}.sqlite_master WHERE type = 'table' AND name = {} COLLATE NOCASE "
            "AND sql NOT LIKE '%WITHOUT ROWID%'",
            self.quote(parts[-2] if len(parts) > 1 else "main"), self.text(parts[-1]),
        )  # fmt: skip

    def tables_like(self, schema: str, start: str) -> SQL:
        return sql(
            "SELECT name FROM {}.sqlite_master WHERE type = 'table' AND substr(name, 1, {}) = {}",
            self.quote(schema), whole(len(start)), self.text(start),
        )  # fmt: skip

    def constraints(self, parts: Sequence[str]) -> Sequence[SQL]:
        # Staged rows are checked by these keys and CHECKs. Leave out partial keys, and tables whose ON CONFLICT may
        # ignore rows. Leave out CHECKs of tables with a COLLATE: staging tables lack it, so a CHECK may differ there.
        query = sql(
            "SELECT l.name, {0} || ' COLLATE ' || x.coll, NULL FROM {1}, pragma_index_list(m.name) l, "
            'pragma_index_xinfo(l.name) x WHERE l."unique" = 1 AND l.partial = 0 AND x.key = 1 AND {2} UNION ALL '
            "SELECT 'rowid', MAX({0}), NULL FROM {1}, pragma_table_info(m.name) x WHERE x.pk > 0 AND {2} "
            "HAVING COUNT(*) = 1 AND MAX(lower(x.type)) = 'integer' UNION ALL "
            "SELECT NULL, m.sql, NULL FROM {1} WHERE m.sql NOT LIKE '%COLLATE%' AND {2}",
            sql("""'"' || replace(x.name, '"', '""') || '"'"""), sql("sqlite_master m"),
            sql("m.type = 'table' AND m.name = {} AND m.sql NOT LIKE '%CONFLICT%'", self.text(parts[-1])),
        )  # fmt: skip
        return [query]

    def arrived(self, column: Arriving, declared: str) -> SQL:
        # Append the offset of UTC to the text of an instant: SQLite has no type for times, and stores this text.
        value = super().arrived(column, declared)
        return sql("{} || '+00:00'", value) if column.kind == "timestamp" else value

    def keeps(self, staged: str, declared: str) -> bool:
        # Do not compare types: SQLite cannot alter a column's type, and CREATE TABLE AS gives the type another name.
        return True

    def landing_type(self, column: Arriving) -> SQL:
        # Declare no type, so that no affinity changes the values that land.
        return sql("")

    def differ(self, one: SQL, other: SQL, declared: str) -> SQL:
        return sql("{} IS NOT {}", self.binary(one), other)
