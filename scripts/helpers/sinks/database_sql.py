"""The statements by which a batch gets into a table of a database, for PostgreSQL, MySQL and MariaDB, and SQLite. Pure.

Rows arrive in a **landing** table, every time and every decimal as text, so neither a driver nor the zone of a session
can change them. From there the server copies them into the **staging** table, whose columns have the types of the
target: what does not fit is refused before the commit. Publishing moves them on within one transaction.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from scripts.helpers.databases.dialects import Database, Declared, MySQL, PostgreSQL, SQLite
from scripts.helpers.errors import TargetError
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.rows.sql import SQL, VALUE, Bound, Values, in_quotes, internal, joined, of_catalogue, sql, whole
from scripts.helpers.sinks.merging import DELETED, Merge
from scripts.helpers.sinks.outputs import LANDING, batch_value, epoch_in_batches

BATCHES = "glue_watermarks_batches"
"""The table beside the target that holds the batches which are published."""
GONE = "glue_watermarks_deleted_"
"""How the table of remembered deletes begins; the name of the target follows."""
TAKEN_BACK = "taken back"
"""What stands for the staging table of a batch that is never to be published."""
LOCK = "lock of merges"
"""What stands for the staging table in the row of a target that merges lock."""
OF_JOB = sql("target = {0} AND job = {0} AND epoch = {0} AND job_name = {0}", VALUE)
"""Condition for the batches of a job and epoch in the table beside the target."""
OF_BATCH = sql("{} AND version = {}", OF_JOB, VALUE)
KEPT = sql("{0} AND version BETWEEN {1} AND {1} AND staged <> {2}", OF_JOB, VALUE, in_quotes(TAKEN_BACK))
OF_LOCK = sql("target = {} AND job = '' AND epoch = '' AND version = 0", VALUE)
BATCHES_AT_ONCE = 10_000
"""Batches in one statement, each as two values: SQLite takes 32,766 of them, and PostgreSQL 65,535."""
ROW = internal("row")
"""Column of a staging table that tells its rows apart."""
PLACE, STARTED, ENDED, NOTHING = internal("place"), internal("started"), internal("ended"), internal("nothing")
"""What is computed in a statement."""
TEXT_LIKE = ("date", "timestamp", "timestamp_ntz", "string", "unknown")
WHOLE = ("tinyint", "smallint", "int", "bigint")
_TOKENS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|\w+|.""", re.DOTALL)


@dataclass(frozen=True)
class TargetColumn:
    """A column of the target, as its catalogue has it.

    Attributes
    ----------
    declared, nullable
        Of the catalogue.
    filled
        What the database does by itself: ``default`` where a row has no value, ``always``, or None.
    wide
        The type without a length, a precision, a scale or a domain; empty where it is unknown.
    """

    declared: str
    nullable: bool
    filled: str | None = None
    wide: str = ""


@dataclass(frozen=True)
class Arriving:
    """A column of the rows, by Spark's name of its type; ``unknown`` where all values are NULL.

    Attributes
    ----------
    name, kind
        Of the column.
    position
        Of the column among those of the rows.
    """

    name: str
    kind: str
    position: int

    @property
    def landing(self) -> SQL:
        """What it is called in the landing table, where no name needs quoting."""
        return sql("c{}", whole(self.position))

    @property
    def is_text(self) -> bool:
        """Tell whether it lands as text."""
        return self.kind in TEXT_LIKE or self.kind.startswith("decimal")

    @property
    def scale(self) -> int:
        """Digits after the point of a decimal."""
        return Declared.parse(self.kind).numbers[1]


class WritingSQL:
    """How one database writes what a `DatabaseSink` needs.

    Parameters
    ----------
    database
        The dialect of its names and literals.
    """

    longest_name = 0
    """Bytes of a name that it takes; 0 is no limit."""
    session: Sequence[SQL] = ()
    """Statements that each connection starts with."""
    impatient: Sequence[SQL] = ()
    """Statements after which a transaction waits for a lock no longer than a while."""
    begins = sql("BEGIN")
    """Statement that begins a transaction, where the driver does not."""
    insert, unless_there = sql("INSERT"), sql("")
    """How an INSERT begins and ends that does nothing if its key exists."""
    isolation: SQL | None = None
    """The first statement of a publication, for how much it sees of others."""
    engine = sql("")
    """What follows a CREATE TABLE, so that it takes part in transactions."""
    by_bytes, moment = sql(""), sql("text")
    """What follows a type of texts that are compared byte by byte; the type of a time with a zone."""
    attempt = sql("")
    """Expression for the connection or transaction that inserts: one attempt of a Spark task has one of its own."""
    compares_staged = False
    """Whether `changes` needs the staged row, `s`, beside the one that landed."""
    rights = ""
    """What a user needs to have staging tables, with ``{schema}`` in it: for texts of errors."""
    types: Mapping[str, SQL]
    """What a landing table's columns are declared as, by Spark's type."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.quote = database.quote
        self.name = database.name

    # --- the catalogue --------------------------------------------------------------------------

    def schema_of(self, parts: Sequence[str]) -> Bound:
        """Return the query for the schema that a table is found in."""
        raise NotImplementedError

    def filled(self, parts: Sequence[str]) -> Bound:
        """Return the query for the columns that the database fills: name, and ``default`` or ``always``."""
        raise NotImplementedError

    def tables_like(self, schema: str, start: str) -> Bound:
        """Return the query for the tables of a schema whose names begin with a text."""
        raise NotImplementedError

    def wide_types(self, parts: Sequence[str]) -> Bound | None:
        """Return the query for the columns' types without length, precision, scale and domain; None for no need."""
        return None

    def constraints(self, parts: Sequence[str]) -> Sequence[Bound]:
        """Return the queries for the unique keys of a table and for its CHECK constraints.

        Of a unique key each part is a row: the name of the key, the part in SQL or NULL if the database cannot say it,
        and the condition of the key. In other rows the second column has CHECK constraints, among other text. None is
        found where a row may be changed, or ignored, as it is inserted: a staged row is not what is checked then.
        """
        raise NotImplementedError

    def is_transactional(self, parts: Sequence[str]) -> Bound | None:
        """Return the query for whether a table has transactions: 1 or 0, no row for a view. None where all have."""
        return None

    # --- types ----------------------------------------------------------------------------------

    def takes(self, column: Arriving, declared: str) -> bool:
        """Tell whether a declared type holds every value of an arriving column as it is."""
        raise NotImplementedError

    def arrived(self, column: Arriving, declared: str) -> SQL:
        """Write the value of a landing column in the type of its target column."""
        return sql("l.{}", column.landing)

    def changes(self, column: Arriving, target: TargetColumn) -> SQL | None:
        """Write that a staged value, `s`, is another than the one that arrived, `l`; None where it is the same.

        What a type writes in its own way, as json or a uuid, is the same. What is cut, padded, rounded or put into
        another case is not: whoever reads it back does not find it.
        """
        return None

    def landing_type(self, column: Arriving) -> SQL:
        """Return what a column is declared as in the landing table."""
        return self.types["string" if column.is_text else column.kind]

    def declaration(self, column: Arriving) -> str:
        """Return what a column of the rows would be declared as in a target: for texts of errors."""
        raise NotImplementedError

    # --- statements -----------------------------------------------------------------------------

    def batches_table(self, table: SQL) -> SQL:
        """Return the CREATE TABLE for the batches that are published."""
        return sql(
            "CREATE TABLE IF NOT EXISTS {0} (target varchar(64){1} NOT NULL, job varchar(8){1} NOT NULL, "
            "epoch varchar(64){1} NOT NULL, version bigint NOT NULL, job_name varchar(255){1}, "
            "staged varchar(64) NOT NULL, published_at {2} NOT NULL DEFAULT CURRENT_TIMESTAMP, "
            "PRIMARY KEY (target, job, epoch, version)){3}",
            table, self.by_bytes, self.moment, self.engine,
        )  # fmt: skip

    def create_like(self, table: SQL, columns: Sequence[SQL], like: SQL, own: Sequence[SQL] = ()) -> SQL:
        """Return the CREATE TABLE for columns of another table, all of them nullable, and for numbers of ours."""
        values = joined(", ", [*columns, *(sql("CAST(0 AS bigint) AS {}", name) for name in own)])
        return sql("CREATE TABLE {} AS SELECT {} FROM {} WHERE 1 = 0", table, values, like)

    def insert_once(self, into: SQL) -> SQL:
        """Return an INSERT of a batch that waits for concurrent inserts of its key, and does nothing if it exists."""
        columns, marks = sql("target, job, epoch, job_name, version, staged"), joined(", ", [VALUE] * 6)
        return sql("{} INTO {} ({}) VALUES ({}){}", self.insert, into, columns, marks, self.unless_there)

    def differ(self, one: SQL, other: SQL, declared: str) -> SQL:
        """Write that two values are not the same, NULL included, whatever a collation takes for equal."""
        raise NotImplementedError

    def update_from(self, table: SQL, source: SQL, on: SQL, sets: Mapping[str, SQL], where: SQL) -> SQL:
        """Return an UPDATE of a table, called ``t``, by a source with an alias of its own."""
        listed = joined(", ", (sql("{} = {}", self.quote(name), value) for name, value in sets.items()))
        return sql("UPDATE {} AS t SET {} FROM {} WHERE ({}) AND ({})", table, listed, source, on, where)

    def delete_where(self, table: SQL, condition: SQL) -> SQL:
        """Return a DELETE from a table, called ``t``."""
        return sql("DELETE FROM {} AS t WHERE {}", table, condition)


WIDE_IN_POSTGRES = {
    "bit": "bit varying", "character": "text", "bpchar": "text", '"char"': "text", "name": "text", "money": "numeric",
}  # fmt: skip
"""Types that cut or round without a length: what holds each of their values as it arrives."""


class _Postgres(WritingSQL):
    """PostgreSQL."""

    longest_name = 63  # It cuts longer names without an error, and two of them may become one.
    session = (sql("SET TIME ZONE 'UTC'"),)
    impatient = (sql("SET LOCAL lock_timeout = '10s'"),)
    unless_there = sql(" ON CONFLICT DO NOTHING")
    # Under REPEATABLE READ, if that is a user's default, a publisher that waited for another one would fail instead of
    # seeing that the batch is there.
    isolation = sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    moment = sql("timestamptz")
    attempt = sql("txid_current()")
    rights = "GRANT CREATE ON SCHEMA {schema}"
    types = {  # noqa: RUF012
        **dict.fromkeys(WHOLE, sql("bigint")), "float": sql("real"), "double": sql("double precision"),
        "boolean": sql("boolean"), "string": sql("text"), "binary": sql("bytea"),
    }  # fmt: skip

    def schema_of(self, parts: Sequence[str]) -> Bound:
        query = sql(
            "SELECT CAST(n.nspname AS text) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.oid = to_regclass({})",
            VALUE,
        )
        return query, [self.database.table(parts)]

    def filled(self, parts: Sequence[str]) -> Bound:
        query = sql(
            "SELECT CAST(attname AS text), CASE WHEN attgenerated <> '' OR attidentity = 'a' THEN 'always' "
            "ELSE 'default' END FROM pg_attribute WHERE NOT attisdropped AND attnum > 0 AND (atthasdef OR "
            "attidentity <> '') AND attrelid = to_regclass({})",
            VALUE,
        )
        return query, [self.database.table(parts)]

    def tables_like(self, schema: str, start: str) -> Bound:
        query = sql(
            "SELECT CAST(tablename AS text) FROM pg_tables WHERE schemaname = {0} "
            "AND starts_with(CAST(tablename AS text), {0})",
            VALUE,
        )
        return query, [schema, start]

    def wide_types(self, parts: Sequence[str]) -> Bound:
        query = sql(
            "WITH RECURSIVE base AS (SELECT attname, atttypid AS oid FROM pg_attribute WHERE attnum > 0 AND NOT "
            "attisdropped AND attrelid = to_regclass({}) UNION ALL SELECT b.attname, y.typbasetype FROM base b "
            "JOIN pg_type y ON y.oid = b.oid WHERE y.typtype = 'd') SELECT CAST(b.attname AS text), "
            "format_type(b.oid, NULL) FROM base b JOIN pg_type y ON y.oid = b.oid WHERE y.typtype <> 'd'",
            VALUE,
        )
        return query, [self.database.table(parts)]

    def constraints(self, parts: Sequence[str]) -> Sequence[Bound]:
        query = sql(
            "SELECT x.* FROM pg_class c CROSS JOIN LATERAL (SELECT CAST(i.indexrelid AS text), "
            "pg_get_indexdef(i.indexrelid, k, true), pg_get_expr(i.indpred, i.indrelid) FROM pg_index i CROSS JOIN "
            "generate_series(1, i.indnkeyatts) k WHERE i.indisunique AND i.indrelid = c.oid UNION ALL SELECT NULL, "
            "pg_get_constraintdef(o.oid), NULL FROM pg_constraint o WHERE o.contype = 'c' AND o.conrelid = c.oid) x "
            "WHERE c.oid = to_regclass({}) AND NOT c.relhasrules AND NOT EXISTS (SELECT 1 FROM pg_trigger t "
            "WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgtype & 7 = 7)",
            VALUE,
        )
        return [(query, [self.database.table(parts)])]

    def changes(self, column: Arriving, target: TargetColumn) -> SQL | None:
        base, array = (target.wide.removesuffix("[]"), target.wide.endswith("[]"))
        wide = WIDE_IN_POSTGRES.get(base, base)
        if wide == target.declared.removesuffix("[]") or not base:
            return None
        name = self.database.type_name(wide + "[]" * array)
        # What the column makes of it is computed from what has landed: a join with the staged rows would take longer.
        landed = self._landed(column)
        staged = sql("CAST({} AS {})", landed, self.database.type_name(target.declared))
        arrived, staged = (sql("CAST({} AS {})", side, name) for side in (landed, staged))
        # These have no equality.
        if wide in ("json", "xml", "point", "box", "polygon", "line", "path"):
            arrived, staged = (sql("CAST({} AS text)", side) for side in (arrived, staged))
        return sql("{} IS DISTINCT FROM {}", staged, arrived)

    def _landed(self, column: Arriving) -> SQL:
        value = super().arrived(column, "")
        # Not by the zone of the session alone: a pooler may run this on a connection that was not told.
        return sql("{} || '+00'", value) if column.kind == "timestamp" else value

    def takes(self, column: Arriving, declared: str) -> bool:
        found = Declared.parse(declared)
        kind = column.kind
        if kind in ("unknown", "string"):
            # Texts are read by the server, as 'a4b1…' is for a uuid: it refuses what it cannot read before the commit.
            is_number = found.text in ("smallint", "integer", "bigint", "real", "double precision", "boolean", "bytea")
            is_other = is_number or found.base in ("numeric", "timestamp", "date")
            return kind == "unknown" or found.text.endswith("[]") or not is_other
        if kind in WHOLE:
            return found.text in ("smallint", "integer", "bigint") or found.base == "numeric"
        if column.is_text and kind.startswith("decimal"):
            return found.base == "numeric" and (not found.numbers or column.scale <= (*found.numbers, 0)[1])
        if kind in ("timestamp", "timestamp_ntz"):
            return found.base == "timestamp" and found.has_zone == (kind == "timestamp")
        exact = {"float": ("real", "double precision"), "double": ("double precision",), "boolean": ("boolean",),
                 "binary": ("bytea",), "date": ("date",)}  # fmt: skip
        return found.text in exact.get(kind, ())

    def arrived(self, column: Arriving, declared: str) -> SQL:
        value = self._landed(column)
        # Without a cast: an explicit one to varchar(5) or numeric(9,2) would cut and round instead of failing.
        if column.kind.startswith("decimal"):
            return sql("CAST({} AS numeric)", value)
        is_text = Declared.parse(declared).base in ("text", "character") and not declared.endswith("[]")
        if is_text or not column.is_text:
            return value
        return sql("CAST({} AS {})", value, self.database.type_name(declared))

    def declaration(self, column: Arriving) -> str:
        named = {"timestamp": "timestamptz", "timestamp_ntz": "timestamp", "date": "date", "unknown": "text",
                 "smallint": "smallint", "tinyint": "smallint", "int": "integer"}  # fmt: skip
        if column.kind.startswith("decimal"):
            return column.kind.replace("decimal", "numeric")
        return named.get(column.kind) or self.types[column.kind]

    def differ(self, one: SQL, other: SQL, declared: str) -> SQL:
        found = Declared.parse(declared)
        # These have no equality, or one that takes different texts for the same.
        if found.base in ("json", "xml", "citext", "text", "character", "point", "box", "polygon", "line", "path"):
            one, other = map(self.database.binary, (one, other))
        return sql("{} IS DISTINCT FROM {}", one, other)


class _MySQL(WritingSQL):
    """MySQL 8 and MariaDB 10.3 and later."""

    longest_name = 64
    # Else a value that does not fit would be cut, a time be moved to the zone of the server, and a key 0 be counted up.
    session = (
        sql(
            "SET SESSION time_zone = '+00:00', "
            "sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES,NO_ZERO_DATE,NO_AUTO_VALUE_ON_ZERO')"
        ),
    )
    # Without it a server waits for a year, and MariaDB for a day.
    impatient = (sql("SET SESSION lock_wait_timeout = 10"),)
    begins = sql("START TRANSACTION")
    insert = sql("INSERT IGNORE")
    engine = sql(" ENGINE=InnoDB")
    by_bytes, moment = sql(" CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"), sql("timestamp")
    compares_staged = True  # It casts to few types.
    attempt = sql("CONNECTION_ID()")
    rights = "GRANT CREATE, ALTER, DROP, SELECT, INSERT, UPDATE, DELETE ON {schema}.*"
    types = {  # noqa: RUF012
        **dict.fromkeys(WHOLE, sql("bigint")), "float": sql("double"), "double": sql("double"),
        "boolean": sql("tinyint"), "string": sql("longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
        "binary": sql("longblob"),
    }  # fmt: skip
    # By its bytes: the collation of the catalogue takes names for the same that differ in case.
    _name = MySQL().binary(VALUE)

    def schema_of(self, parts: Sequence[str]) -> Bound:
        return (sql("SELECT {}", VALUE), parts[-2:-1]) if len(parts) > 1 else (sql("SELECT DATABASE()"), [])

    def _is_table(self, parts: Sequence[str]) -> SQL:
        schema = self._name if len(parts) > 1 else sql("DATABASE()")
        return sql("TABLE_SCHEMA = {} AND TABLE_NAME = {}", schema, self._name)

    def filled(self, parts: Sequence[str]) -> Bound:
        # MySQL marks a default that is an expression as DEFAULT_GENERATED; the others are computed columns.
        query = sql(
            "SELECT COLUMN_NAME, CASE WHEN EXTRA LIKE '%VIRTUAL%' OR EXTRA LIKE '%STORED%' OR "
            "EXTRA LIKE '%PERSISTENT%' THEN 'always' ELSE 'default' END FROM information_schema.COLUMNS WHERE {} AND "
            "(EXTRA LIKE '%auto_increment%' OR EXTRA LIKE '%GENERATED%' OR COALESCE(COLUMN_DEFAULT, 'NULL') <> 'NULL')",
            self._is_table(parts),
        )
        return query, parts[-2:]

    def tables_like(self, schema: str, start: str) -> Bound:
        query = sql(
            "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = {0} AND LEFT(TABLE_NAME, {1}) = {0}",
            self._name, whole(len(start)),
        )  # fmt: skip
        return query, [schema, start]

    def is_transactional(self, parts: Sequence[str]) -> Bound:
        query = sql(
            "SELECT CASE WHEN e.TRANSACTIONS = 'YES' THEN 1 ELSE 0 END FROM information_schema.TABLES t "
            "JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE WHERE {}",
            self._is_table(parts),
        )
        return query, parts[-2:]

    def constraints(self, parts: Sequence[str]) -> Sequence[Bound]:
        keys = sql(
            "SELECT INDEX_NAME, CASE WHEN SUB_PART IS NULL THEN {0} ELSE CONCAT('LEFT(', {0}, ', ', SUB_PART, ')') END,"
            " NULL FROM information_schema.STATISTICS WHERE NON_UNIQUE = 0 AND {1} AND NOT EXISTS (SELECT 1 FROM "
            "information_schema.TRIGGERS WHERE ACTION_TIMING = 'BEFORE' AND EVENT_MANIPULATION = 'INSERT' AND "
            "EVENT_OBJECT_SCHEMA = TABLE_SCHEMA AND EVENT_OBJECT_TABLE = TABLE_NAME)",
            sql("CONCAT('`', REPLACE(COLUMN_NAME, '`', '``'), '`')"), self._is_table(parts),
        )  # fmt: skip
        return [(keys, parts[-2:]), (sql("SHOW CREATE TABLE {}", self.database.table(parts)), [])]

    def takes(self, column: Arriving, declared: str) -> bool:
        found = Declared.parse(declared)
        kind = column.kind
        is_whole = found.base in ("tinyint", "smallint", "mediumint", "int", "bigint")
        if kind in ("unknown", "string"):
            is_other = is_whole or found.base in (
                "decimal", "float", "double", "date", "datetime", "timestamp", "bit", "year",
            ) or "blob" in found.base or found.base.endswith("binary")  # fmt: skip
            return kind == "unknown" or not is_other
        if kind in WHOLE:
            return is_whole or found.base == "decimal"
        if kind.startswith("decimal"):
            return found.base == "decimal" and column.scale <= (*found.numbers, 0, 0)[1]
        times = {"timestamp": ("timestamp",), "timestamp_ntz": ("datetime",), "date": ("date",)}
        if kind in times:
            return found.base in times[kind]
        if kind == "binary":
            return "blob" in found.base or found.base.endswith("binary")
        exact = {"float": ("float", "double"), "double": ("double",), "boolean": ("tinyint", "bit")}
        return found.base in exact.get(kind, ())

    def changes(self, column: Arriving, target: TargetColumn) -> SQL | None:
        base, kind = Declared.parse(target.declared).base, column.kind
        staged, arrived = sql("s.{}", self.quote(column.name)), sql("l.{}", column.landing)
        if base in ("datetime", "timestamp", "time") and column.is_text:
            return sql("NOT ({} <=> CAST({} AS {}(6)))", staged, arrived, sql("TIME" if base == "time" else "DATETIME"))
        if kind == "string" and (base.endswith(("char", "text")) or base in ("enum", "set")):
            # By the bytes: for a collation, a text is the same in another case, or without its blanks at the end.
            staged, arrived = sql("CONVERT({} USING utf8mb4)", staged), sql("CONVERT({} USING utf8mb4)", arrived)
            return sql("NOT (CAST({} AS BINARY) <=> CAST({} AS BINARY))", staged, arrived)
        is_short = base in ("float", "double") and "(" in target.declared
        return sql("NOT ({} <=> {})", staged, arrived) if is_short or base == "binary" else None

    def declaration(self, column: Arriving) -> str:
        named = {"timestamp": "timestamp(6)", "timestamp_ntz": "datetime(6)", "date": "date", "unknown": "text",
                 "string": "text", "int": "int", "boolean": "boolean"}  # fmt: skip
        return column.kind if column.kind.startswith("decimal") else named.get(column.kind) or self.types[column.kind]

    def create_like(self, table: SQL, columns: Sequence[SQL], like: SQL, own: Sequence[SQL] = ()) -> SQL:
        numbers = joined(", ", (sql("{} bigint", name) for name in own))
        # A copy of a column is NOT NULL where the column is, unless it comes from the outer side of a join.
        return sql(
            "CREATE TABLE {}{}{} AS SELECT {} FROM (SELECT 1 AS {}) {} LEFT JOIN {} t ON 1 = 0 WHERE 1 = 0",
            table, sql(" ({})", numbers) if own else numbers, self.engine, joined(", ", columns), NOTHING, NOTHING,
            like,
        )  # fmt: skip

    def differ(self, one: SQL, other: SQL, declared: str) -> SQL:
        base = Declared.parse(declared).base
        if base.endswith(("char", "text")) or base in ("enum", "set", "json"):
            one, other = (sql("CAST({} AS BINARY)", side) for side in (one, other))
        return sql("NOT ({} <=> {})", one, other)

    def update_from(self, table: SQL, source: SQL, on: SQL, sets: Mapping[str, SQL], where: SQL) -> SQL:
        listed = joined(", ", (sql("t.{} = {}", self.quote(name), value) for name, value in sets.items()))
        return sql("UPDATE {} AS t JOIN {} ON {} SET {} WHERE {}", table, source, on, listed, where)

    def delete_where(self, table: SQL, condition: SQL) -> SQL:
        return sql("DELETE t FROM {} AS t WHERE {}", table, condition)


class _SQLite(WritingSQL):
    """SQLite 3.33 and later. Its columns take any value; what would be changed by their affinity is refused."""

    # It has one writer: who waits until the first statement that writes may find that what was read has changed.
    begins = sql("BEGIN IMMEDIATE")
    # Milliseconds. Without it, whoever meets the one writer fails at once, and a batch takes seconds to publish.
    session = (sql("PRAGMA busy_timeout = 60000"),)
    insert = sql("INSERT OR IGNORE")
    attempt = sql("0")
    rights = "Let the process write to the file and its folder"
    types = dict.fromkeys((*WHOLE, "float", "double", "boolean", "string", "binary"), sql(""))

    def schema_of(self, parts: Sequence[str]) -> Bound:
        # Its names are the same in upper and lower case.
        query = sql("SELECT name FROM pragma_database_list WHERE name = {} COLLATE NOCASE", VALUE)
        return query, [parts[-2] if len(parts) > 1 else "main"]

    def filled(self, parts: Sequence[str]) -> Bound:
        query = sql(
            "SELECT name, CASE WHEN hidden IN (2, 3) THEN 'always' ELSE 'default' END FROM pragma_table_xinfo({}) "
            "WHERE hidden IN (2, 3) OR dflt_value IS NOT NULL OR (pk = 1 AND lower(type) = 'integer')",
            VALUE,
        )
        return query, parts[-1:]

    def tables_like(self, schema: str, start: str) -> Bound:
        query = sql(
            "SELECT name FROM {}.sqlite_master WHERE type = 'table' AND substr(name, 1, {}) = {}",
            self.quote(schema), whole(len(start)), VALUE,
        )  # fmt: skip
        return query, [start]

    def constraints(self, parts: Sequence[str]) -> Sequence[Bound]:
        # Keys with a condition are left out. A conflict may be declared to be ignored. Columns of a staging table do
        # not have the collation of the target.
        query = sql(
            "SELECT l.name, {0} || ' COLLATE ' || x.coll, NULL FROM {1}, pragma_index_list(m.name) l, "
            'pragma_index_xinfo(l.name) x WHERE l."unique" = 1 AND l.partial = 0 AND x.key = 1 AND {2} UNION ALL '
            "SELECT 'rowid', MAX({0}), NULL FROM {1}, pragma_table_info(m.name) x WHERE x.pk > 0 AND {2} "
            "HAVING COUNT(*) = 1 AND MAX(lower(x.type)) = 'integer' UNION ALL "
            "SELECT NULL, m.sql, NULL FROM {1} WHERE m.sql NOT LIKE '%COLLATE%' AND {2}",
            sql("""'"' || replace(x.name, '"', '""') || '"'"""), sql("sqlite_master m"),
            sql("m.type = 'table' AND m.name = {} AND m.sql NOT LIKE '%CONFLICT%'", VALUE),
        )  # fmt: skip
        return [(query, [parts[-1]] * 3)]

    def takes(self, column: Arriving, declared: str) -> bool:
        # By SQLite's rules of affinity.
        lower = declared.lower()
        kind = column.kind
        if "int" in lower:
            return kind in (*WHOLE, "boolean", "unknown")
        if any(word in lower for word in ("char", "clob", "text")):
            return column.is_text
        if not lower or "blob" in lower:
            return True
        if any(word in lower for word in ("real", "floa", "doub")):
            return kind in ("float", "double", "unknown")
        # NUMERIC turns a text that looks like a number into one: of times none does, of decimals each, with 15 digits.
        return kind not in ("string", "binary") and not kind.startswith("decimal")

    def arrived(self, column: Arriving, declared: str) -> SQL:
        # An instant stays a text here, so it has to say that it is in UTC.
        value = super().arrived(column, declared)
        return sql("{} || '+00:00'", value) if column.kind == "timestamp" else value

    def declaration(self, column: Arriving) -> str:
        if column.kind in (*WHOLE, "boolean"):
            return "integer"
        return {"float": "real", "double": "real", "binary": "blob"}.get(column.kind, "text")

    def differ(self, one: SQL, other: SQL, declared: str) -> SQL:
        return sql("{} IS NOT {}", self.database.binary(one), other)


def writing_of(database: Database) -> WritingSQL:
    """Return how a database is written to; TargetError for one that is only read."""
    if isinstance(database, PostgreSQL):
        return _Postgres(database)
    if isinstance(database, MySQL):
        return _MySQL(database)
    if isinstance(database, SQLite):
        return _SQLite(database)
    raise TargetError(
        database.name, "batches are written to PostgreSQL, MySQL, MariaDB and SQLite. Write files, and load them there."
    )


def checks_in(definition: str) -> list[str]:
    """Return the conditions of the CHECK constraints in the definition of a table, each in its parentheses.

    >>> checks_in("CREATE TABLE t (id int CHECK (id > 0), word text DEFAULT 'CHECK (', CHECK ((id < 9) OR word = ')'))")
    ['(id > 0)', "((id < 9) OR word = ')')"]
    """
    # With a backslash a text may end elsewhere. One that is not enforced refuses no row.
    is_clear = "\\" not in definition and "NOT ENFORCED" not in definition
    found, tokens = [], iter(_TOKENS.findall(definition) if is_clear else ())
    for word in tokens:
        if word.upper() == "CHECK":
            depth, text = 0, ""
            for token in tokens:
                depth += (token == "(") - (token == ")")
                text += token
                if not depth and text.strip():
                    break
            found.append(text.strip())
    return found


class Statements:
    """The statements about one target and one staging table.

    Parameters
    ----------
    writing
        How the database writes.
    schema
        That of the target; all tables of ours lie there.
    table
        The target's name.
    """

    def __init__(self, writing: WritingSQL, schema: str, table: str) -> None:
        self.sql, self.schema, self.table = writing, schema, table
        self.target, self.batches = self.beside(table), self.beside(BATCHES)

    def beside(self, table: str) -> SQL:
        """Return the quoted name of a table beside the target."""
        return self.sql.database.table([self.schema, table])

    @property
    def gone_table(self) -> str:
        """The name of the table of remembered deletes."""
        name = GONE + self.table
        limit = self.sql.longest_name
        if limit and len(name.encode()) > limit:
            return GONE + hashlib.sha256(self.table.encode()).hexdigest()[:16]
        return name

    # --- staging --------------------------------------------------------------------------------

    def create_landing(self, staging: str, columns: Sequence[Arriving]) -> SQL:
        """Return the CREATE TABLE for rows as they arrive."""
        # `a` and `p` keep the attempts of Spark's tasks apart: one that is lost after its commit is done again.
        declared = [sql("{} {}", column.landing, self.sql.landing_type(column)) for column in columns]
        listed = joined(", ", [*declared, sql("a bigint DEFAULT ({}), p bigint, n bigint, d bigint", self.sql.attempt)])
        return sql("CREATE TABLE {} ({}){}", self.beside(staging + LANDING), listed, self.sql.engine)

    def create_staging(self, staging: str, columns: Sequence[Arriving]) -> SQL:
        """Return the CREATE TABLE with columns of the target, and two of ours."""
        # Never UNLOGGED or temporary: after a crash of the server a batch that is committed would be gone.
        table = self.beside(staging)
        names = [self.sql.quote(column.name) for column in columns]
        if not names:
            return sql("CREATE TABLE {} ({} bigint, {} bigint){}", table, DELETED, ROW, self.sql.engine)
        return self.sql.create_like(table, names, self.target, (DELETED, ROW))

    def copy(self, staging: str, columns: Sequence[tuple[Arriving, str]]) -> SQL:
        """Return the INSERT that brings the rows of one attempt at each task from landing to staging."""
        names = self._list([*(column.name for column, _ in columns), DELETED, ROW])
        values = [self.sql.arrived(column, declared) for column, declared in columns]
        return sql(
            "INSERT INTO {} ({}) SELECT {} FROM {landing} l JOIN "
            "(SELECT p, MIN(a) AS a FROM {landing} GROUP BY p) taken ON taken.p = l.p AND taken.a = l.a",
            self.beside(staging), names, joined(", ", [*values, sql("COALESCE(l.d, 0), l.n")]),
            landing=self.beside(staging + LANDING),
        )  # fmt: skip

    def nulls(self, staging: str, column: Arriving, *, in_deletes: bool) -> SQL:
        """Return the count of rows without a value in a column."""
        count = sql("SELECT COUNT(*) FROM {} l WHERE l.{} IS NULL", self.beside(staging + LANDING), column.landing)
        return count if in_deletes else sql("{} AND COALESCE(l.d, 0) = 0", count)

    def changed(self, staging: str, columns: Sequence[tuple[Arriving, TargetColumn]]) -> SQL | None:
        """Return the counts, for each column, of staged values that are not those that arrived; None if none can be."""
        changes = [self.sql.changes(*pair) for pair in columns]
        if not any(changes):
            return None
        counts = [sql("COUNT(CASE WHEN {} THEN 1 END)", change or sql("1 = 0")) for change in changes]
        if not self.sql.compares_staged:
            return sql("SELECT {} FROM {} l", joined(", ", counts), self.beside(staging + LANDING))
        return sql(
            "SELECT {} FROM {landing} l JOIN (SELECT p, MIN(a) AS a FROM {landing} GROUP BY p) taken "
            "ON taken.p = l.p AND taken.a = l.a JOIN {} s ON s.{} = l.n",
            joined(", ", counts), self.beside(staging), ROW, landing=self.beside(staging + LANDING),
        )  # fmt: skip

    def refused(
        self, staging: str, constraints: Sequence[Sequence[str | None]], absent: Collection[str], *, has_keys: bool
    ) -> dict[str, SQL]:
        """Return the counts of staged rows that constraints refuse, by constraint.

        Parameters
        ----------
        constraints
            What the queries of `WritingSQL.constraints` find.
        absent
            Columns that the rows lack: what is there is known when they are inserted.
        has_keys
            Whether no two staged rows may share a unique key.
        """
        # A word of a text counts as well.
        names = "|".join([*map(re.escape, absent), "(?!)"])
        lacks = re.compile(rf"(?<!\w)(?:{names})(?!\w)", re.IGNORECASE).search
        counts, staged = {}, self.beside(staging)
        keys: dict[str, list[tuple[str, str]]] = {}
        for name, text, *condition in constraints:
            for check in checks_in(text or ""):
                if not lacks(check):
                    # Of a delete no row is left.
                    where = sql("{} = 0 AND NOT {}", DELETED, of_catalogue(check))
                    counts[f"CHECK {check}"] = sql("SELECT COUNT(*) FROM {} WHERE {}", staged, where)
            if name is not None and condition and has_keys:
                keys.setdefault(name, []).append((text or "", condition[0] or "(1 = 1)"))
        for parts in keys.values():
            if all(part and not lacks(f"{part} {condition}") for part, condition in parts):
                listed = [of_catalogue(part) for part, _ in parts]
                where = _all(of_catalogue(parts[0][1]), *(sql("({}) IS NOT NULL", part) for part in listed))
                counts[f"unique key ({joined(', ', listed)})"] = sql(
                    "SELECT COALESCE(SUM({0}), 0) FROM (SELECT COUNT(*) AS {0} FROM {1} WHERE {2} GROUP BY {3} "
                    "HAVING COUNT(*) > 1) copies",
                    PLACE, staged, where, joined(", ", listed),
                )  # fmt: skip
        return counts

    def count(self, table: str) -> SQL:
        """Return the count of all rows of a table beside the target."""
        return sql("SELECT COUNT(*) FROM {}", self.beside(table))

    def drop(self, table: str) -> SQL:
        """Return the DROP of a table of ours."""
        return sql("DROP TABLE IF EXISTS {}", self.beside(table))

    # --- publishing -----------------------------------------------------------------------------

    def record(self, of: Output | Retraction, version: int, staging: str) -> Bound:
        """Return the INSERT of a batch, which does nothing if it is there."""
        return self.sql.insert_once(self.batches), self._of(of, version, staging)

    def _of(self, of: Output | Retraction, *more: str | int) -> Values:
        """Return the values of `OF_JOB`, and more."""
        return [self.table, of.job[:8], epoch_in_batches(of), of.job_id[:255], *more]

    def forget(self, output: Output) -> Bound:
        """Return the DELETE of a batch."""
        return sql("DELETE FROM {} WHERE {}", self.batches, OF_BATCH), self._of(output, output.version)

    def versions(self, of: Output | Retraction) -> Bound:
        """Return the query for the version of an output, or for those to take back that are published, if recorded."""
        which, values = (OF_BATCH, [of.version]) if isinstance(of, Output) else (KEPT, [of.first, of.last])
        return sql("SELECT version FROM {} WHERE {}", self.batches, which), self._of(of, *values)

    def recorded(self, job: str) -> Bound:
        """Return the query for the last version of each epoch of the jobs whose marks begin like one; of all for ''."""
        of_job = sql("AND job = {}", VALUE) if job else sql("")
        statement = sql(
            "SELECT job, epoch, MAX(version) FROM {} WHERE target = {} {} GROUP BY job, epoch",
            self.batches, VALUE, of_job,
        )  # fmt: skip
        return statement, [self.table, *filter(None, [job[:8]])]

    def take_back(self, of: Retraction) -> Bound:
        """Return the UPDATE that records published batches as taken back."""
        statement = sql("UPDATE {} SET staged = {} WHERE {}", self.batches, in_quotes(TAKEN_BACK), KEPT)
        return statement, self._of(of, of.first, of.last)

    def count_of(self, of: Retraction, versions: Sequence[int]) -> list[Bound]:
        """Return the counts of rows whose batch column holds one of some versions."""
        return self._by_batch(sql("SELECT COUNT(*)"), of, versions)

    def delete_of(self, of: Retraction, versions: Sequence[int]) -> list[Bound]:
        """Return what deletes those rows."""
        return self._by_batch(sql("DELETE"), of, versions)

    def _by_batch(self, verb: SQL, of: Retraction, versions: Sequence[int]) -> list[Bound]:
        found: list[Bound] = []
        column = self.sql.quote(of.batch_column)
        for start in range(0, len(versions), BATCHES_AT_ONCE):
            batches = [batch_value(of, version) for version in versions[start : start + BATCHES_AT_ONCE]]
            # An index serves the first condition. The second leaves rows whose text a collation only takes for equal.
            statement = sql(
                "{} FROM {} WHERE {} IN ({marks}) AND {} IN ({marks})",
                verb, self.target, column, self.sql.database.binary(column), marks=joined(", ", [VALUE] * len(batches)),
            )  # fmt: skip
            found.append((statement, [*batches, *batches]))
        return found

    def lock_row(self) -> Bound:
        """Return the INSERT of the row that merges into this target lock, one at a time."""
        return self.sql.insert_once(self.batches), [self.table, "", "", "", 0, LOCK]

    def has_lock_row(self) -> Bound:
        """Return the query for that row."""
        return sql("SELECT staged FROM {} WHERE {}", self.batches, OF_LOCK), [self.table]

    def lock(self) -> Bound:
        """Return the UPDATE that waits until no other merge into this target is under way."""
        # Without it two merges, of different batches, could both find no row of a key and both insert one.
        return sql("UPDATE {} SET staged = {} WHERE {}", self.batches, in_quotes(LOCK), OF_LOCK), [self.table]

    def append(self, staging: str, names: Sequence[str]) -> list[SQL]:
        """Return what moves all rows to the target."""
        insert = sql("INSERT INTO {0} ({1}) SELECT {1} FROM {2}", self.target, self._list(names), self.beside(staging))
        return [insert] if names else []

    # --- merging --------------------------------------------------------------------------------

    def create_gone(self, merge: Merge) -> SQL:
        """Return the CREATE TABLE for remembered deletes: the key and the sequence of each."""
        names = [self.sql.quote(name) for name in (*merge.keys, *merge.sequence_by)]
        return self.sql.create_like(self.beside(self.gone_table), names, self.target)

    def drop_older(self, staging: str, merge: Merge) -> SQL:
        """Return the DELETE of staged rows for which a newer one of their key is staged."""
        newest_first = joined(", ", (sql("{} DESC", self.sql.quote(name)) for name in merge.sequence_by))
        return self._drop_ranked(staging, sql("RANK"), merge.keys, newest_first)

    def drop_copies(self, staging: str, merge: Merge) -> SQL:
        """Return the DELETE of staged rows that are there twice: what is left has one row for each key and sequence."""
        return self._drop_ranked(staging, sql("ROW_NUMBER"), (*merge.keys, *merge.sequence_by), ROW)

    def _drop_ranked(self, staging: str, function: SQL, partition: Sequence[str], order: SQL) -> SQL:
        return sql(
            "DELETE FROM {table} WHERE {row} IN (SELECT {row} FROM (SELECT {row}, "
            "{}() OVER (PARTITION BY {} ORDER BY {}) AS {place} FROM {table}) ranked WHERE {place} > 1)",
            function, self._list(partition), order, table=self.beside(staging), row=ROW, place=PLACE,
        )  # fmt: skip

    def ties_within(self, staging: str, merge: Merge, declared: Mapping[str, str]) -> SQL:
        """Return the count of staged rows that are tied with another one."""
        unequal, differ = sql("s.{0} <> t.{0}", DELETED), self._differ(merge, declared)
        # Two deletes are equal whatever else they hold.
        if differ:
            unequal = sql("{} OR (s.{} = 0 AND ({}))", unequal, DELETED, joined(" OR ", differ))
        return sql(
            "SELECT COUNT(*) FROM {table} t JOIN {table} s ON {} AND s.{row} < t.{row} WHERE {}",
            self._tied(merge), unequal, table=self.beside(staging), row=ROW,
        )  # fmt: skip

    def ties_beside(self, staging: str, merge: Merge, declared: Mapping[str, str]) -> SQL:
        """Return the count of staged rows that are tied with what the target has, or has deleted."""
        unequal = joined(" OR ", [sql("s.{} <> 0", DELETED), *self._differ(merge, declared)])
        return sql(
            "SELECT (SELECT COUNT(*) FROM {} t JOIN {staged} s ON {same} WHERE {}) + "
            "(SELECT COUNT(*) FROM {} t JOIN {staged} s ON {same} WHERE s.{} = 0)",
            self.target, unequal, self.beside(self.gone_table), DELETED,
            staged=self.beside(staging), same=self._tied(merge),
        )  # fmt: skip

    def _differ(self, merge: Merge, declared: Mapping[str, str]) -> list[SQL]:
        """Write for each column beside key and sequence that two rows differ in it."""
        return [
            self.sql.differ(sql("s.{}", self.sql.quote(name)), sql("t.{}", self.sql.quote(name)), declared[name])
            for name in declared
            if name not in (*merge.keys, *merge.sequence_by)
        ]

    def _tied(self, merge: Merge) -> SQL:
        return sql("{} AND {}", merge.matches(self.sql.quote), merge.ties(self.sql.quote))

    def merge(self, staging: str, merge: Merge, names: Sequence[str]) -> list[SQL]:
        """Return what brings staged rows, one for each key or event, into the target."""
        return self._versions(staging, merge, names) if merge.history else self._newest(staging, merge, names)

    def _newest(self, staging: str, merge: Merge, names: Sequence[str]) -> list[SQL]:
        writing, staged, gone = self.sql, self.beside(staging), self.beside(self.gone_table)
        match, newer = merge.matches(writing.quote), merge.newer(writing.quote)
        row, delete = sql("s.{} = 0", DELETED), sql("s.{} <> 0", DELETED)
        named, source = [*merge.keys, *merge.sequence_by], sql("{} s", staged)
        not_there, not_remembered = _none(self.target, match), _none(gone, match)
        no_newer_delete = _none(gone, match, sql("NOT {}", newer))

        def from_staged(columns: Sequence[str]) -> dict[str, SQL]:
            return {name: sql("s.{}", writing.quote(name)) for name in columns}

        return [
            # The keys, too: a collation may take two spellings for one.
            writing.update_from(self.target, source, match, from_staged(names), _all(row, newer)),
            writing.delete_where(self.target, _some(staged, match, delete, newer)),
            writing.update_from(gone, source, match, from_staged(named), _all(delete, newer)),
            self._insert(gone, named, staged, _all(delete, not_there, not_remembered)),
            self._insert(self.target, names, staged, _all(row, not_there, no_newer_delete)),
            # A newer row is there: no older one can bring the key back any more, so the delete need not be remembered.
            writing.delete_where(gone, _some(staged, match, row, newer)),
        ]

    def _versions(self, staging: str, merge: Merge, names: Sequence[str]) -> list[SQL]:
        assert merge.history is not None
        writing, staged, gone = self.sql, self.beside(staging), self.beside(self.gone_table)
        match = merge.matches(writing.quote)
        (by,) = merge.sequence_by
        from_, to = merge.history.valid_from, merge.history.valid_to
        start, end, sequence = map(writing.quote, (from_, to, by))
        # The column may be that of the sequence itself.
        started = [] if from_ in names else [from_]
        following = sql(
            "(SELECT {keys}, {started}, LEAD({started}) OVER (PARTITION BY {keys} ORDER BY {started}) AS {ended} FROM "
            "(SELECT {of_t}, t.{} AS {started} FROM {} t WHERE {touched} UNION "
            "SELECT {of_t}, t.{} FROM {} t WHERE {touched}) events) s",
            start, self.target, sequence, gone, keys=self._list(merge.keys), of_t=self._list(merge.keys, sql("t.")),
            touched=_some(staged, match), started=STARTED, ended=ENDED,
        )  # fmt: skip
        # Each time column is set to what it is: MySQL may have declared the first one ON UPDATE CURRENT_TIMESTAMP.
        sets = {to: sql("s.{}", ENDED), from_: sql("t.{}", start), by: sql("t.{}", sequence)}
        new_delete = sql("s.{} <> 0 AND {}", DELETED, _none(gone, match, merge.ties(writing.quote)))
        same_start = sql("t.{} = s.{}", start, sequence)
        new_row = sql("s.{} = 0 AND {}", DELETED, _none(self.target, match, same_start))
        return [
            self._insert(gone, [*merge.keys, by], staged, new_delete),
            self._insert(self.target, [*names, *started], staged, new_row, [*names, *(by for _ in started)]),
            writing.update_from(
                self.target,
                following,
                _all(match, sql("t.{} = s.{}", start, STARTED)),
                sets,
                writing.differ(sql("t.{}", end), sql("s.{}", ENDED), "timestamp"),
            ),
        ]

    def _insert(
        self, into: SQL, names: Sequence[str], staged: SQL, condition: SQL, values: Sequence[str] | None = None
    ) -> SQL:
        columns, listed = self._list(names), self._list(values or names, sql("s."))
        return sql("INSERT INTO {} ({}) SELECT {} FROM {} s WHERE {}", into, columns, listed, staged, condition)

    def _list(self, names: Sequence[str], side: SQL | None = None) -> SQL:
        return joined(", ", (sql("{}{}", side or sql(""), self.sql.quote(name)) for name in names))


def _all(*conditions: SQL) -> SQL:
    return joined(" AND ", conditions)


def _some(staged: SQL, *conditions: SQL) -> SQL:
    """Write that there is an event `s` like that."""
    return sql("EXISTS (SELECT 1 FROM {} s WHERE {})", staged, _all(*conditions))


def _none(table: SQL, *conditions: SQL) -> SQL:
    """Write that a table has no row `t` like that."""
    return sql("NOT EXISTS (SELECT 1 FROM {} t WHERE {})", table, _all(*conditions))
