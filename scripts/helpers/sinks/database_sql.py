"""The statements by which a batch gets into a table of a database, for PostgreSQL, MySQL and MariaDB, and SQLite. Pure.

Rows arrive in a **landing** table, every time and every decimal as text, so neither a driver nor the zone of a session
can change them. From there the server copies them into the **staging** table, whose columns have the types of the
target: what does not fit is refused before the commit. Publishing moves them on within one transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scripts.helpers.databases.dialects import Database, Declared, MySQL, PostgreSQL, SQLite, TableColumn
from scripts.helpers.errors import TargetError
from scripts.helpers.protocol.outputs import Output, Retraction
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
BATCH_COLUMNS = "target, job, epoch, version, job_name, staged"
ROW = "glue_watermarks_row"
"""Column of a staging table that tells its rows apart."""
TEXT_LIKE = ("date", "timestamp", "timestamp_ntz", "string", "unknown")
WHOLE = ("tinyint", "smallint", "int", "bigint")
MICROSECONDS = 6
"""Decimal places of the seconds of Spark's times: a column with fewer of them would round."""


@dataclass(frozen=True)
class TargetColumn:
    """A column of the target, as its catalogue has it.

    Attributes
    ----------
    name, declared, nullable
        Of the catalogue.
    filled
        What the database does by itself: ``default`` where a row has no value, ``always``, or None.
    """

    name: str
    declared: str
    nullable: bool
    filled: str | None = None


@dataclass(frozen=True)
class Arriving:
    """A column of the rows, by Spark's name of its type; ``unknown`` where all values are NULL.

    Attributes
    ----------
    name, kind
        Of the column.
    landing
        What it is called in the landing table, where no name needs quoting.
    """

    name: str
    kind: str
    landing: str

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
    session: Sequence[str] = ()
    """Statements that each connection starts with."""
    impatient: Sequence[str] = ()
    """Statements after which a transaction waits for a lock no longer than a while."""
    begins = "BEGIN"
    """Statement that begins a transaction, where the driver does not."""
    isolation: str | None = None
    """The first statement of a publication, for how much it sees of others."""
    engine = ""
    """What follows a CREATE TABLE, so that it takes part in transactions."""
    attempt = ""
    """Expression for the connection or transaction that inserts: one attempt of a Spark task has one of its own."""
    rights = ""
    """What a user needs to have staging tables, with ``{schema}`` in it."""
    types: Mapping[str, str]
    """What a landing table's columns are declared as, by Spark's type."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.quote = database.quote
        self.name = database.name

    # --- the catalogue --------------------------------------------------------------------------

    def schema_of(self, parts: Sequence[str]) -> str:
        """Return the query for the schema that a table is found in."""
        raise NotImplementedError

    def filled(self, parts: Sequence[str]) -> str:
        """Return the query for the columns that the database fills: name, and ``default`` or ``always``."""
        raise NotImplementedError

    def tables_like(self, schema: str, start: str) -> str:
        """Return the query for the tables of a schema whose names begin with a text."""
        raise NotImplementedError

    def is_transactional(self, parts: Sequence[str]) -> str | None:
        """Return the query for whether a table takes part in transactions (1 or 0); None where all do."""
        return None

    # --- types ----------------------------------------------------------------------------------

    def takes(self, column: Arriving, declared: str) -> bool:
        """Tell whether a declared type holds every value of an arriving column as it is."""
        raise NotImplementedError

    def fraction_digits(self, column: Arriving, declared: str) -> int:
        """Return how many digits of a second's fraction a declared type holds."""
        return MICROSECONDS

    def arrived(self, column: Arriving, declared: str) -> str:
        """Write the value of a landing column in the type of its target column."""
        return f"l.{column.landing}"

    def landing_type(self, column: Arriving) -> str:
        """Return what a column is declared as in the landing table."""
        return self.types["string" if column.is_text else column.kind]

    def declaration(self, column: Arriving) -> str:
        """Return what a column of the rows would be declared as in a target: for texts of errors."""
        raise NotImplementedError

    # --- statements -----------------------------------------------------------------------------

    def batches_table(self, table: str) -> str:
        """Return the CREATE TABLE for the batches that are published."""
        raise NotImplementedError

    def create_like(self, table: str, columns: Sequence[str], like: str, own: Sequence[str] = ()) -> str:
        """Return the CREATE TABLE for columns of another table, all of them nullable, and for numbers of ours."""
        values = ", ".join([*columns, *(f"CAST(0 AS bigint) AS {name}" for name in own)])
        return f"CREATE TABLE {table} AS SELECT {values} FROM {like} WHERE 1 = 0"

    def insert_once(self, into: str, columns: str, values: str) -> str:
        """Return an INSERT that does nothing, and waits for whoever is about to, where the key is there."""
        raise NotImplementedError

    def differ(self, one: str, other: str, declared: str) -> str:
        """Write that two values are not the same, NULL included, whatever a collation takes for equal."""
        raise NotImplementedError

    def update_from(self, table: str, source: str, on: str, sets: Mapping[str, str], where: str) -> str:
        """Return an UPDATE of a table, called ``t``, by a source with an alias of its own."""
        listed = ", ".join(f"{self.quote(name)} = {value}" for name, value in sets.items())
        return f"UPDATE {table} AS t SET {listed} FROM {source} WHERE ({on}) AND ({where})"

    def delete_where(self, table: str, condition: str) -> str:
        """Return a DELETE from a table, called ``t``."""
        return f"DELETE FROM {table} AS t WHERE {condition}"


class WritingPostgres(WritingSQL):
    """PostgreSQL."""

    longest_name = 63  # It cuts longer names without an error, and two of them may become one.
    session = ("SET TIME ZONE 'UTC'",)
    impatient = ("SET LOCAL lock_timeout = '10s'",)
    # Under REPEATABLE READ, if that is a user's default, whoever waited for another publisher would fail instead of
    # seeing that the batch is there.
    isolation = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
    attempt = "txid_current()"
    rights = "GRANT CREATE ON SCHEMA {schema}"
    types = {  # noqa: RUF012
        **dict.fromkeys(WHOLE, "bigint"), "float": "real", "double": "double precision", "boolean": "boolean",
        "string": "text", "binary": "bytea",
    }  # fmt: skip

    def schema_of(self, parts: Sequence[str]) -> str:
        """Return the query for the schema that a table is found in."""
        table = self.database.text(self.database.table(parts))
        return (
            "SELECT CAST(n.nspname AS text) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE c.oid = to_regclass({table})"
        )

    def filled(self, parts: Sequence[str]) -> str:
        """Return the query for the columns that the database fills."""
        return (
            "SELECT CAST(attname AS text), CASE WHEN attgenerated <> '' OR attidentity = 'a' THEN 'always' "
            "ELSE 'default' END FROM pg_attribute WHERE NOT attisdropped AND attnum > 0 AND (atthasdef OR "
            f"attidentity <> '') AND attrelid = to_regclass({self.database.text(self.database.table(parts))})"
        )

    def tables_like(self, schema: str, start: str) -> str:
        """Return the query for the tables of a schema whose names begin with a text."""
        return (
            "SELECT CAST(tablename AS text) FROM pg_tables WHERE schemaname = "
            f"{self.database.text(schema)} AND starts_with(CAST(tablename AS text), {self.database.text(start)})"
        )

    def takes(self, column: Arriving, declared: str) -> bool:
        """Tell whether a declared type holds every value as it is."""
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

    def fraction_digits(self, column: Arriving, declared: str) -> int:
        """Return how many digits of a second's fraction a declared type holds."""
        return (*Declared.parse(declared).numbers, MICROSECONDS)[0]

    def arrived(self, column: Arriving, declared: str) -> str:
        """Write the value of a landing column in the type of its target column."""
        value = super().arrived(column, declared)
        # Without a cast: an explicit one to varchar(5) or numeric(9,2) would cut and round instead of failing.
        if column.kind.startswith("decimal"):
            return f"CAST({value} AS numeric)"
        if column.kind == "timestamp":
            # Not by the zone of the session alone: a pooler may run this on a connection that was not told.
            value = f"{value} || '+00'"
        is_text = Declared.parse(declared).base in ("text", "character") and not declared.endswith("[]")
        return value if is_text or not column.is_text else f"CAST({value} AS {declared})"

    def declaration(self, column: Arriving) -> str:
        """Return what a column of the rows would be declared as."""
        named = {"timestamp": "timestamptz", "timestamp_ntz": "timestamp", "date": "date", "unknown": "text",
                 "smallint": "smallint", "tinyint": "smallint", "int": "integer"}  # fmt: skip
        is_decimal = column.kind.startswith("decimal")
        return (
            column.kind.replace("decimal", "numeric")
            if is_decimal
            else named.get(column.kind) or self.types[column.kind]
        )

    def batches_table(self, table: str) -> str:
        """Return the CREATE TABLE for the batches that are published."""
        return (
            f"CREATE TABLE IF NOT EXISTS {table} (target varchar(64), job varchar(8), epoch varchar(64), "
            "version bigint, job_name varchar(255), staged varchar(64) NOT NULL, "
            "published_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (target, job, epoch, version))"
        )

    def insert_once(self, into: str, columns: str, values: str) -> str:
        """Return an INSERT that does nothing where the key is there."""
        return f"INSERT INTO {into} ({columns}) VALUES ({values}) ON CONFLICT DO NOTHING"

    def differ(self, one: str, other: str, declared: str) -> str:
        """Write that two values are not the same."""
        found = Declared.parse(declared)
        # These have no equality, or one that takes different texts for the same.
        if found.base in ("json", "xml", "citext", "text", "character", "point", "box", "polygon", "line", "path"):
            one, other = (f'CAST({side} AS text) COLLATE "C"' for side in (one, other))
        return f"{one} IS DISTINCT FROM {other}"


class WritingMySQL(WritingSQL):
    """MySQL 8 and MariaDB 10.3 and later."""

    longest_name = 64
    # Else a value that does not fit would be cut, and a time be moved to the zone of the server.
    session = ("SET SESSION time_zone = '+00:00', sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES,NO_ZERO_DATE')",)
    # Without it a server waits for a year, and MariaDB for a day.
    impatient = ("SET SESSION lock_wait_timeout = 10",)
    begins = "START TRANSACTION"
    engine = " ENGINE=InnoDB"
    attempt = "CONNECTION_ID()"
    rights = "GRANT CREATE, ALTER, DROP, SELECT, INSERT, UPDATE, DELETE ON {schema}.*"
    types = {  # noqa: RUF012
        **dict.fromkeys(WHOLE, "bigint"), "float": "double", "double": "double", "boolean": "tinyint",
        "string": "longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "binary": "longblob",
    }  # fmt: skip

    def schema_of(self, parts: Sequence[str]) -> str:
        """Return the query for the schema that a table is found in."""
        return f"SELECT {self._schema(parts)}"

    def _schema(self, parts: Sequence[str]) -> str:
        return self.database.text(parts[-2]) if len(parts) > 1 else "DATABASE()"

    def filled(self, parts: Sequence[str]) -> str:
        """Return the query for the columns that the database fills."""
        # MySQL marks a default that is an expression as DEFAULT_GENERATED; the others are computed columns.
        return (
            "SELECT COLUMN_NAME, CASE WHEN EXTRA LIKE '%VIRTUAL%' OR EXTRA LIKE '%STORED%' OR "
            "EXTRA LIKE '%PERSISTENT%' THEN 'always' ELSE 'default' END FROM information_schema.COLUMNS "
            f"WHERE TABLE_SCHEMA = {self._schema(parts)} AND TABLE_NAME = {self.database.text(parts[-1])} AND "
            "(EXTRA LIKE '%auto_increment%' OR EXTRA LIKE '%GENERATED%' OR COALESCE(COLUMN_DEFAULT, 'NULL') <> 'NULL')"
        )

    def tables_like(self, schema: str, start: str) -> str:
        """Return the query for the tables of a schema whose names begin with a text."""
        return (
            f"SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = {self.database.text(schema)} "
            f"AND LEFT(TABLE_NAME, {len(start)}) = {self.database.text(start)}"
        )

    def is_transactional(self, parts: Sequence[str]) -> str:
        """Return the query for whether a table takes part in transactions; no row for a view."""
        return (
            "SELECT CASE WHEN e.TRANSACTIONS = 'YES' THEN 1 ELSE 0 END FROM information_schema.TABLES t "
            "JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE "
            f"WHERE t.TABLE_SCHEMA = {self._schema(parts)} AND t.TABLE_NAME = {self.database.text(parts[-1])}"
        )

    def takes(self, column: Arriving, declared: str) -> bool:
        """Tell whether a declared type holds every value as it is."""
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

    def fraction_digits(self, column: Arriving, declared: str) -> int:
        """Return how many digits of a second's fraction a declared type holds."""
        return (*Declared.parse(declared).numbers, 0)[0]

    def declaration(self, column: Arriving) -> str:
        """Return what a column of the rows would be declared as."""
        named = {"timestamp": "timestamp(6)", "timestamp_ntz": "datetime(6)", "date": "date", "unknown": "text",
                 "string": "text", "int": "int", "boolean": "boolean"}  # fmt: skip
        return column.kind if column.kind.startswith("decimal") else named.get(column.kind) or self.types[column.kind]

    def batches_table(self, table: str) -> str:
        """Return the CREATE TABLE for the batches that are published."""
        exact = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
        return (
            f"CREATE TABLE IF NOT EXISTS {table} (target varchar(64) {exact}, job varchar(8) {exact}, "
            f"epoch varchar(64) {exact}, version bigint, job_name varchar(255) {exact}, staged varchar(64) NOT NULL, "
            "published_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (target, job, epoch, version))"
            + self.engine
        )

    def create_like(self, table: str, columns: Sequence[str], like: str, own: Sequence[str] = ()) -> str:
        """Return the CREATE TABLE for columns of another table."""
        numbers = f" ({', '.join(f'{name} bigint' for name in own)})" if own else ""
        # A copy of a column is NOT NULL where the column is, unless it comes from the outer side of a join.
        source = f"(SELECT 1 AS one) x LEFT JOIN {like} t ON 1 = 0 WHERE 1 = 0"
        return f"CREATE TABLE {table}{numbers}{self.engine} AS SELECT {', '.join(columns)} FROM {source}"

    def insert_once(self, into: str, columns: str, values: str) -> str:
        """Return an INSERT that does nothing where the key is there."""
        return f"INSERT IGNORE INTO {into} ({columns}) VALUES ({values})"

    def differ(self, one: str, other: str, declared: str) -> str:
        """Write that two values are not the same."""
        base = Declared.parse(declared).base
        if base.endswith(("char", "text")) or base in ("enum", "set", "json"):
            one, other = (f"CAST({side} AS BINARY)" for side in (one, other))
        return f"NOT ({one} <=> {other})"

    def update_from(self, table: str, source: str, on: str, sets: Mapping[str, str], where: str) -> str:
        """Return an UPDATE of a table, called ``t``, by a source with an alias of its own."""
        listed = ", ".join(f"t.{self.quote(name)} = {value}" for name, value in sets.items())
        return f"UPDATE {table} AS t JOIN {source} ON {on} SET {listed} WHERE {where}"

    def delete_where(self, table: str, condition: str) -> str:
        """Return a DELETE from a table, called ``t``."""
        return f"DELETE t FROM {table} AS t WHERE {condition}"


class WritingSQLite(WritingSQL):
    """SQLite 3.33 and later. Its columns take any value; what would be changed by their affinity is refused."""

    # It has one writer: who waits until the first statement that writes may find that what was read has changed.
    begins = "BEGIN IMMEDIATE"
    # Milliseconds. Without it, whoever meets the one writer fails at once, and a batch takes seconds to publish.
    session = ("PRAGMA busy_timeout = 60000",)
    attempt = "0"
    rights = "Let the process write to the file and its folder"
    types = dict.fromkeys((*WHOLE, "float", "double", "boolean", "string", "binary"), "")

    def schema_of(self, parts: Sequence[str]) -> str:
        """Return the query for the schema that a table is found in."""
        return f"SELECT {self.database.text(parts[-2] if len(parts) > 1 else 'main')}"

    def filled(self, parts: Sequence[str]) -> str:
        """Return the query for the columns that the database fills."""
        return (
            "SELECT name, CASE WHEN hidden IN (2, 3) THEN 'always' ELSE 'default' END "
            f"FROM pragma_table_xinfo({self.database.text(parts[-1])}) "
            "WHERE hidden IN (2, 3) OR dflt_value IS NOT NULL OR (pk = 1 AND lower(type) = 'integer')"
        )

    def tables_like(self, schema: str, start: str) -> str:
        """Return the query for the tables whose names begin with a text."""
        return (
            f"SELECT name FROM {self.quote(schema)}.sqlite_master WHERE type = 'table' AND "
            f"substr(name, 1, {len(start)}) = {self.database.text(start)}"
        )

    def takes(self, column: Arriving, declared: str) -> bool:
        """Tell whether a declared type holds every value as it is, by SQLite's rules of affinity."""
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

    def arrived(self, column: Arriving, declared: str) -> str:
        """Write the value of a landing column; of an instant, that it is in UTC: here it stays a text."""
        value = super().arrived(column, declared)
        return f"{value} || '+00:00'" if column.kind == "timestamp" else value

    def declaration(self, column: Arriving) -> str:
        """Return what a column of the rows would be declared as."""
        if column.kind in (*WHOLE, "boolean"):
            return "integer"
        return {"float": "real", "double": "real", "binary": "blob"}.get(column.kind, "text")

    def batches_table(self, table: str) -> str:
        """Return the CREATE TABLE for the batches that are published."""
        return (
            f"CREATE TABLE IF NOT EXISTS {table} (target text NOT NULL, job text NOT NULL, epoch text NOT NULL, "
            "version integer NOT NULL, job_name text, staged text NOT NULL, "
            "published_at text NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (target, job, epoch, version))"
        )

    def insert_once(self, into: str, columns: str, values: str) -> str:
        """Return an INSERT that does nothing where the key is there."""
        return f"INSERT OR IGNORE INTO {into} ({columns}) VALUES ({values})"

    def differ(self, one: str, other: str, declared: str) -> str:
        """Write that two values are not the same."""
        return f"{one} COLLATE BINARY IS NOT {other}"


def writing_of(database: Database) -> WritingSQL:
    """Return how a database is written to; TargetError for one that is only read."""
    if isinstance(database, PostgreSQL):
        return WritingPostgres(database)
    if isinstance(database, MySQL):
        return WritingMySQL(database)
    if isinstance(database, SQLite):
        return WritingSQLite(database)
    raise TargetError(
        database.name, "batches are written to PostgreSQL, MySQL, MariaDB and SQLite. Write files, and load them there."
    )


class Statements:
    """The statements about one target and one staging table.

    Parameters
    ----------
    sql
        How the database writes.
    schema
        That of the target; all tables of ours lie there.
    table
        The target's name.
    """

    def __init__(self, sql: WritingSQL, schema: str, table: str) -> None:
        self.sql, self.schema, self.table = sql, schema, table
        self.target, self.batches = self.beside(table), self.beside(BATCHES)

    def beside(self, table: str) -> str:
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

    def create_landing(self, staging: str, columns: Sequence[Arriving]) -> str:
        """Return the CREATE TABLE for rows as they arrive."""
        # `a` and `p` keep the attempts of Spark's tasks apart: one that is lost after its commit is done again.
        declared = [f"{column.landing} {self.sql.landing_type(column)}" for column in columns]
        numbers = [f"a bigint DEFAULT ({self.sql.attempt})", "p bigint", "n bigint", "d bigint"]
        return f"CREATE TABLE {self.beside(staging + LANDING)} ({', '.join([*declared, *numbers])}){self.sql.engine}"

    def create_staging(self, staging: str, columns: Sequence[Arriving]) -> str:
        """Return the CREATE TABLE with columns of the target, and two of ours."""
        # Never UNLOGGED or temporary: after a crash of the server a batch that is committed would be gone.
        table = self.beside(staging)
        names = [self.sql.quote(column.name) for column in columns]
        if not names:
            return f"CREATE TABLE {table} ({DELETED} bigint, {ROW} bigint){self.sql.engine}"
        return self.sql.create_like(table, names, self.target, (DELETED, ROW))

    def copy(self, staging: str, columns: Sequence[tuple[Arriving, str]]) -> str:
        """Return the INSERT that brings the rows of one attempt at each task from landing to staging."""
        landing = self.beside(staging + LANDING)
        names = self._list([*(column.name for column, _ in columns), DELETED, ROW])
        values = [*(self.sql.arrived(column, declared) for column, declared in columns), "COALESCE(l.d, 0)", "l.n"]
        return (
            f"INSERT INTO {self.beside(staging)} ({names}) SELECT {', '.join(values)} FROM {landing} l JOIN "
            f"(SELECT p, MIN(a) AS a FROM {landing} GROUP BY p) taken ON taken.p = l.p AND taken.a = l.a"
        )

    def nulls(self, staging: str, column: Arriving, *, in_deletes: bool) -> str:
        """Return the count of rows without a value in a column."""
        condition = "" if in_deletes else " AND COALESCE(l.d, 0) = 0"
        return f"SELECT COUNT(*) FROM {self.beside(staging + LANDING)} l WHERE l.{column.landing} IS NULL{condition}"

    def finer(self, staging: str, column: Arriving, digits: int) -> str:
        """Return the count of times with more digits of a second than their target holds."""
        # 2026-11-23 04:30:00.123456: the fraction's digits begin at the 21st character.
        rest = f"SUBSTR(l.{column.landing}, {21 + digits}, {MICROSECONDS - digits})"
        return (
            f"SELECT COUNT(*) FROM {self.beside(staging + LANDING)} l WHERE {rest} <> '{'0' * (MICROSECONDS - digits)}'"
        )

    def drop(self, table: str) -> str:
        """Return the DROP of a table of ours."""
        return f"DROP TABLE IF EXISTS {self.beside(table)}"

    # --- publishing -----------------------------------------------------------------------------

    def record(self, of: Output | Retraction, version: int, staging: str) -> str:
        """Return the INSERT of a batch, which does nothing if it is there."""
        values = [*self._key(of), f"{version:d}", *map(self.sql.database.text, (of.job_id[:255], staging))]
        return self.sql.insert_once(self.batches, BATCH_COLUMNS, ", ".join(values))

    def _key(self, of: Output | Retraction) -> list[str]:
        text = self.sql.database.text
        return [text(self.table), text(of.job[:8]), text(epoch_in_batches(of))]

    def _where(self, of: Output | Retraction) -> str:
        """Write the condition for a batch, or for the batches of a retraction."""
        table, job, epoch = self._key(of)
        name = self.sql.database.text(of.job_id[:255])
        versions = f"= {of.version:d}" if isinstance(of, Output) else f"BETWEEN {of.first:d} AND {of.last:d}"
        return f"target = {table} AND job = {job} AND epoch = {epoch} AND job_name = {name} AND version {versions}"

    def forget(self, output: Output) -> str:
        """Return the DELETE of a batch."""
        return f"DELETE FROM {self.batches} WHERE {self._where(output)}"

    def published(self, output: Output) -> str:
        """Return the query for which staging table a batch was published from."""
        return f"SELECT staged FROM {self.batches} WHERE {self._where(output)}"

    def kept(self, retraction: Retraction) -> str:
        """Return the query for versions that are published, and not taken back before."""
        return f"SELECT version FROM {self.batches} WHERE {self._where_kept(retraction)}"

    def take_back(self, retraction: Retraction) -> str:
        """Return the UPDATE that records published batches as taken back."""
        taken_back = self.sql.database.text(TAKEN_BACK)
        return f"UPDATE {self.batches} SET staged = {taken_back} WHERE {self._where_kept(retraction)}"

    def _where_kept(self, of: Retraction) -> str:
        return f"{self._where(of)} AND staged <> {self.sql.database.text(TAKEN_BACK)}"

    def count_of(self, of: Retraction, versions: Sequence[int]) -> str:
        """Return the count of rows whose batch column holds one of some versions."""
        return f"SELECT COUNT(*) FROM {self.target} WHERE {self._where_batch(of, versions)}"

    def delete_of(self, of: Retraction, versions: Sequence[int]) -> str:
        """Return the DELETE of those rows."""
        return f"DELETE FROM {self.target} WHERE {self._where_batch(of, versions)}"

    def _where_batch(self, of: Retraction, versions: Sequence[int]) -> str:
        batches = [self.sql.database.text(batch_value(of, version)) for version in versions]
        return f"{self.sql.quote(of.batch_column)} IN ({', '.join(batches)})"

    def lock_row(self) -> str:
        """Return the INSERT of the row that merges into this target lock, one at a time."""
        text = self.sql.database.text
        values = [text(self.table), text(""), text(""), "0", text(""), text(LOCK)]
        return self.sql.insert_once(self.batches, BATCH_COLUMNS, ", ".join(values))

    @property
    def _where_lock(self) -> str:
        text = self.sql.database.text
        return f"target = {text(self.table)} AND job = {text('')} AND epoch = {text('')} AND version = 0"

    def has_lock_row(self) -> str:
        """Return the query for that row."""
        return f"SELECT staged FROM {self.batches} WHERE {self._where_lock}"

    def lock(self) -> str:
        """Return the UPDATE that waits until no other merge into this target is under way."""
        # Without it two merges, of different batches, could both find no row of a key and both insert one.
        return f"UPDATE {self.batches} SET staged = {self.sql.database.text(LOCK)} WHERE {self._where_lock}"

    def append(self, staging: str, names: Sequence[str]) -> list[str]:
        """Return what moves all rows to the target."""
        listed = self._list(names)
        return [f"INSERT INTO {self.target} ({listed}) SELECT {listed} FROM {self.beside(staging)}"] if names else []

    # --- merging --------------------------------------------------------------------------------

    def create_gone(self, merge: Merge) -> str:
        """Return the CREATE TABLE for remembered deletes: the key and the sequence of each."""
        names = [self.sql.quote(name) for name in (*merge.keys, *merge.sequence_by)]
        return self.sql.create_like(self.beside(self.gone_table), names, self.target)

    def drop_older(self, staging: str, merge: Merge) -> str:
        """Return the DELETE of staged rows for which a newer one of their key is staged."""
        return self._drop_ranked(staging, "RANK", merge.key_list(self.sql.quote), merge.order(self.sql.quote))

    def drop_copies(self, staging: str, merge: Merge) -> str:
        """Return the DELETE of staged rows that are there twice: what is left has one row for each key and sequence."""
        event = ", ".join(map(self.sql.quote, (*merge.keys, *merge.sequence_by)))
        return self._drop_ranked(staging, "ROW_NUMBER", event, ROW)

    def _drop_ranked(self, staging: str, function: str, partition: str, order: str) -> str:
        table = self.beside(staging)
        place = f"{function}() OVER (PARTITION BY {partition} ORDER BY {order})"
        ranked = f"SELECT {ROW} AS row_id, {place} AS place FROM {table}"
        return f"DELETE FROM {table} WHERE {ROW} IN (SELECT row_id FROM ({ranked}) ranked WHERE place > 1)"

    def ties_within(self, staging: str, merge: Merge, declared: Mapping[str, str]) -> str:
        """Return the count of staged rows that are tied with another one."""
        table, quote = self.beside(staging), self.sql.quote
        values = [name for name in declared if name not in (*merge.keys, *merge.sequence_by)]
        # Two deletes are equal whatever else they hold.
        differ = [self.sql.differ(f"s.{quote(name)}", f"t.{quote(name)}", declared[name]) for name in values]
        unequal = f"s.{DELETED} <> t.{DELETED}"
        if differ:
            unequal += f" OR (s.{DELETED} = 0 AND ({' OR '.join(differ)}))"
        return (
            f"SELECT COUNT(*) FROM {table} t JOIN {table} s ON {merge.matches('t', 's', quote)} AND "
            f"{merge.ties('t', 's', quote)} AND s.{ROW} < t.{ROW} WHERE {unequal}"
        )

    def ties_beside(self, staging: str, merge: Merge, declared: Mapping[str, str]) -> str:
        """Return the count of staged rows that are tied with what the target has, or has deleted."""
        table, quote = self.beside(staging), self.sql.quote
        values = [name for name in declared if name not in (*merge.keys, *merge.sequence_by)]
        differ = [self.sql.differ(f"s.{quote(name)}", f"t.{quote(name)}", declared[name]) for name in values]
        unequal = " OR ".join([f"s.{DELETED} <> 0", *differ])
        same = f"{merge.matches('t', 's', quote)} AND {merge.ties('t', 's', quote)}"
        return (
            f"SELECT (SELECT COUNT(*) FROM {self.target} t JOIN {table} s ON {same} WHERE {unequal}) + "
            f"(SELECT COUNT(*) FROM {self.beside(self.gone_table)} t JOIN {table} s ON {same} WHERE s.{DELETED} = 0)"
        )

    def merge(self, staging: str, merge: Merge, names: Sequence[str]) -> list[str]:
        """Return what brings staged rows, one for each key or event, into the target."""
        return self._versions(staging, merge, names) if merge.history else self._newest(staging, merge, names)

    def _newest(self, staging: str, merge: Merge, names: Sequence[str]) -> list[str]:
        sql, quote, staged = self.sql, self.sql.quote, self.beside(staging)
        gone = self.beside(self.gone_table)
        match, newer = merge.matches("t", "s", quote), merge.newer("s", "t", quote)
        rows, deletes = f"s.{DELETED} = 0", f"s.{DELETED} <> 0"
        named = [*merge.keys, *merge.sequence_by]
        there = f"EXISTS (SELECT 1 FROM {self.target} t WHERE {match})"
        remembered = f"EXISTS (SELECT 1 FROM {gone} t WHERE {match})"
        no_newer_delete = f"NOT EXISTS (SELECT 1 FROM {gone} t WHERE {match} AND NOT {newer})"
        source = f"{staged} s"

        def from_staged(columns: Sequence[str]) -> dict[str, str]:
            return {name: f"s.{quote(name)}" for name in columns}

        return [
            # The keys, too: a collation may take two spellings for one.
            sql.update_from(self.target, source, match, from_staged(names), f"{rows} AND {newer}"),
            sql.delete_where(self.target, f"EXISTS (SELECT 1 FROM {source} WHERE {match} AND {deletes} AND {newer})"),
            sql.update_from(gone, source, match, from_staged(named), f"{deletes} AND {newer}"),
            self._insert(gone, named, staged, f"{deletes} AND NOT {there} AND NOT {remembered}"),
            self._insert(self.target, names, staged, f"{rows} AND NOT {there} AND {no_newer_delete}"),
            # A newer row is there: no older one can bring the key back any more, so the delete need not be remembered.
            sql.delete_where(gone, f"EXISTS (SELECT 1 FROM {source} WHERE {match} AND {rows} AND {newer})"),
        ]

    def _versions(self, staging: str, merge: Merge, names: Sequence[str]) -> list[str]:
        assert merge.history is not None
        sql, quote, staged = self.sql, self.sql.quote, self.beside(staging)
        gone = self.beside(self.gone_table)
        match = merge.matches("t", "s", quote)
        (sequence,) = merge.sequence_by
        start, end = merge.history.valid_from, merge.history.valid_to
        named = [*merge.keys, sequence]
        started = [] if start in names else [start]
        touched = f"EXISTS (SELECT 1 FROM {staged} s WHERE {match})"
        keys = merge.key_list(quote, "t")
        events = (
            f"SELECT {keys}, t.{quote(start)} AS started FROM {self.target} t WHERE {touched} UNION "
            f"SELECT {keys}, t.{quote(sequence)} FROM {gone} t WHERE {touched}"
        )
        key_names = merge.key_list(quote)
        following = (
            f"(SELECT {key_names}, started, LEAD(started) OVER (PARTITION BY {key_names} ORDER BY started) AS ended "
            f"FROM ({events}) events) s"
        )
        # Each time column is set to what it is: MySQL may have declared the first one ON UPDATE CURRENT_TIMESTAMP.
        sets = {end: "s.ended", **{name: f"t.{quote(name)}" for name in dict.fromkeys((start, sequence))}}
        known_delete = f"EXISTS (SELECT 1 FROM {gone} t WHERE {match} AND {merge.ties('t', 's', quote)})"
        known_row = f"EXISTS (SELECT 1 FROM {self.target} t WHERE {match} AND t.{quote(start)} = s.{quote(sequence)})"
        return [
            self._insert(gone, named, staged, f"s.{DELETED} <> 0 AND NOT {known_delete}"),
            self._insert(
                self.target,
                [*names, *started],
                staged,
                f"s.{DELETED} = 0 AND NOT {known_row}",
                [*names, *(sequence for _ in started)],
            ),
            sql.update_from(
                self.target,
                following,
                f"{match} AND t.{quote(start)} = s.started",
                sets,
                sql.differ(f"t.{quote(end)}", "s.ended", "timestamp"),
            ),
        ]

    def _insert(
        self, into: str, names: Sequence[str], staged: str, condition: str, values: Sequence[str] | None = None
    ) -> str:
        listed = self._list(values or names, "s")
        return f"INSERT INTO {into} ({self._list(names)}) SELECT {listed} FROM {staged} s WHERE {condition}"

    def _list(self, names: Sequence[str], side: str = "") -> str:
        prefix = f"{side}." if side else ""
        return ", ".join(prefix + self.sql.quote(name) for name in names)


def target_columns(catalogue: Mapping[str, TableColumn], filled: Mapping[str, str]) -> dict[str, TargetColumn]:
    """Return the columns of a target by name."""
    return {
        name: TargetColumn(name, column.declared, column.nullable, filled.get(name))
        for name, column in catalogue.items()
    }
