"""How SQL is written for each database: names, literals, exact text, the clock, and what its catalogue knows. Pure.

Values travel as text both ways, so neither a driver nor the zone of a session can change them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from types import MappingProxyType

from scripts.helpers.errors import CursorError, SourceError
from scripts.helpers.rows.cursors import TEXTS, UUIDS, Cursor, CursorColumn, Tick
from scripts.helpers.rows.dialect import Dialect, wall_text

FIRST, LAST = "0001-01-01", "9999-12-31"
WHOLE_TYPES = ("tinyint", "smallint", "mediumint", "int", "integer")
TEXT_TYPES = ("char", "text", "clob")
CATALOGUE = NAME, TYPE, INDEXED, NULLABLE = "column_name", "declared", "indexed", "nullable"
"""Columns of a catalogue query."""
IDENTITY = DATABASE, SCHEMA, TABLE, OID = "database_name", "schema_name", "table_name", "table_oid"
"""Columns of an identity query."""

WRITER, BEGAN = "writer", "began"
"""Columns of a query for writers."""
NUMBERING = SEQUENCE, STEP, STARTS_AGAIN = "sequence_name", "step", "starts_again"
"""Columns of a query for sequences."""


@dataclass(frozen=True)
class TableColumn:
    """What the catalogue says of a column; `indexed` is None for a view."""

    declared: str
    indexed: bool | None
    nullable: bool

    @classmethod
    def parse(cls, declared: str, indexed: str | None, nullable: str) -> TableColumn:
        """Read a row of a catalogue query without the name: all is text, and 1 is yes."""
        return cls(declared, None if indexed is None else bool(int(indexed)), bool(int(nullable)))


@dataclass(frozen=True)
class Declared:
    """A declared type, taken apart: ``decimal(10,2) unsigned`` is decimal, (10, 2) and the text itself."""

    base: str
    numbers: tuple[int, ...]
    text: str

    @classmethod
    def parse(cls, text: str) -> Declared:
        """Take a declared type apart."""
        lower = text.strip().lower()
        inside = re.search(r"\(([\d, -]+)\)", lower)
        numbers = tuple(int(number) for number in inside[1].split(",")) if inside else ()
        return cls(re.split(r"[\s(]", lower, maxsplit=1)[0], numbers, lower)

    @property
    def has_zone(self) -> bool:
        """Tell whether the type is one with a time zone."""
        return "with time zone" in self.text or "with local time zone" in self.text

    def decimal(self, unbounded: str | None) -> str | None:
        """Return the decimal type; `unbounded` where none is declared, None for more than 38 digits."""
        if not self.numbers:
            return unbounded
        precision, scale = (*self.numbers, 0)[:2]
        # What Spark has no decimal for would be read rounded: more than 38 digits, or a scale below 0 as in Oracle.
        is_held_by_spark = precision <= 38 and 0 <= scale <= precision
        return f"decimal({precision},{scale})" if is_held_by_spark else None

    def tick(self, digits: int) -> timedelta:
        """Return the step of a time by its digits after the second; at least a microsecond."""
        shown = self.numbers[0] if self.numbers else digits
        # Python and Spark hold microseconds. Of what is finer, the text is cut, so a microsecond above it is past it.
        return timedelta(microseconds=10 ** (6 - min(shown, 6)))


class Database(Dialect):
    """A database that is read over JDBC.

    Examples
    --------
    >>> PostgreSQL().table(["public", 'a"b'])
    '"public"."a""b"'
    >>> PostgreSQL().cursor_type("timestamp(3) without time zone")
    ('timestamp_ntz', datetime.timedelta(microseconds=1000))
    """

    driver = ""
    """Class of the usual JDBC driver."""
    options: Mapping[str, str] = MappingProxyType({})
    """What the driver needs to be told, so that it fetches rows bit by bit."""
    session: str | None = None
    """Statement that each connection starts with."""
    now = ""
    """Time at which the statement started, or before: ISO text in UTC."""
    from_nothing = ""
    """What follows a SELECT that reads no table."""
    encoding = "utf-8"
    """What the hex digits of a text stand for."""
    cluster = ""
    """Query for what tells this cluster of servers from others, if there is one; a user may not be allowed to ask."""
    system_columns: Mapping[str, TableColumn] = MappingProxyType({})
    """Columns that every table has and neither its catalogue nor ``*`` shows."""
    writers_late = timedelta(0)
    """How long a transaction that has a number may not be on the list of `writers` yet."""

    unfit: Mapping[str, str] = MappingProxyType({})
    """Types that look as if they had an order, with the reason why none can be resumed from."""
    sorts_uuids = ""
    """Condition that the server sorts UUIDs by their bytes, where some versions of it do not."""
    orders_within = True
    """Whether a subquery may have an order, or start with WITH."""
    current_database = ""
    """The database that a query is asked in, where the URL leads to a server of several."""

    def cuts_by(self, column: CursorColumn) -> bool:
        """Tell whether a large window may be cut by a column: texts have no middle."""
        return column.type not in TEXTS

    def of_table(self, declared: Mapping[str, str]) -> Database:
        """Return the dialect for a table, if how its columns are declared changes what is written."""
        return self

    def serves(self, column: CursorColumn) -> bool:
        """Tell whether an index on a cursor column serves what it is compared as."""
        return column.type != "string"

    def table(self, parts: Sequence[str]) -> str:
        """Quote a table's name, part by part."""
        return ".".join(map(self.quote, parts))

    def text(self, value: str) -> str:
        """Write a text as its bytes in hex."""
        if "\0" in value:
            raise SourceError(self.name, "no text in a query may hold NUL. Correct the name or value.")
        return self.bytes_as_text(value.encode().hex())

    def bytes_as_text(self, digits: str) -> str:
        """Write what texts are compared with, from the hex digits of its bytes."""
        raise NotImplementedError

    def cursor(self, column: CursorColumn) -> str:
        """Write a cursor column as it is compared; a text byte by byte, without padding."""
        name = self.quote(column.name)
        return self.binary(name) if column.type == "string" else name

    def binary(self, name: str) -> str:
        """Write a text column so that it compares byte by byte."""
        raise NotImplementedError

    def exact(self, expression: str, kind: str) -> str:
        """Write the exact text of a value: times with microseconds, instants in UTC, texts as hex."""
        raise NotImplementedError

    def value(self, text: str, column: CursorColumn) -> Cursor:
        """Read what `exact` wrote; CursorError for what the column's type cannot hold."""
        if column.type == "string":
            return self._text_of(text, column.name)
        found = column.from_text(text)
        # A decimal without declared digits is read as one of 38: a value that does not fit there would be rounded, and
        # the bound be below or above its row.
        try:
            return column.check(found)
        except CursorError:
            raise CursorError(
                column.name,
                f"its last value does not fit the {column.type} that it is read as. Read it through a view that casts "
                "it to a decimal of its own precision and scale.",
            ) from None

    def _text_of(self, digits: str, name: str) -> str:
        try:
            return bytes.fromhex(digits).decode(self.encoding)
        except ValueError:
            raise CursorError(name, "its largest value is not a text. Fix or filter that row.") from None

    def outermost(self, column: CursorColumn, function: str, rows: str) -> str:
        """Return the query for the exact text of the last value (MIN or MAX) in rows: ``FROM`` and what follows it."""
        return f"(SELECT {self.exact(f'{function}({self.cursor(column)})', column.type)} {rows})"

    def uuid_version(self, column: CursorColumn) -> str:
        """Write the hex digit of a UUID that says its version, as a text."""
        raise NotImplementedError

    def cursor_type(self, declared: str) -> tuple[str, Tick | None] | None:
        """Return Spark's type and the tick of a declared type; None where there is no exact order."""
        raise NotImplementedError

    def read_as_text(self, declared: str) -> str | None:
        """Return Spark's type of a column whose rows are read as exact text, since a driver may shift them."""
        kind, _ = self.cursor_type(declared) or (None, None)
        return kind if kind in ("timestamp", "timestamp_ntz") else None

    def declared(self, kind: str, precision: int, scale: int) -> str:
        """Write a type as the catalogue does, from what a driver says of a column of a query."""
        base, _, rest = kind.lower().partition(" ")
        numbers = ""
        if base in ("decimal", "numeric", "number") and precision > 0:
            numbers = f"({precision},{scale})"
        elif base in ("timestamp", "datetime", "datetime2", "datetimeoffset"):
            numbers = f"({scale})"
        elif base == "binary":
            numbers = f"({precision})"
        return f"{base}{numbers} {rest}".strip()

    def catalogue(self, parts: Sequence[str]) -> str:
        """Return the query for a table's columns: name, declared type, indexed (1, 0, NULL: unknown), nullable."""
        raise NotImplementedError

    def identity(self, parts: Sequence[str]) -> str:
        """Return the query for which table it is: database, schema and name as the server has them, and its number.

        The number is NULL unless the server gives a table that is made anew another one.
        """
        raise NotImplementedError

    def writers(self, parts: Sequence[str]) -> str:
        """Return the query for the open transactions that may hold numbers of a table, by names that are used once.

        A name of NULL says that the server cannot tell for this table. Empty where no such query is known.
        """
        return ""

    def open_since(self, delay: timedelta) -> str:
        """Return the query for the transactions that have written and are open: name, and when they began in UTC.

        Of whatever table. A beginning of NULL says that this user may not see one. Empty where no such query is known.

        Parameters
        ----------
        delay
            How long before it was first seen a transaction may have begun, if the server does not keep that.
        """
        return ""

    def sequences(self, parts: Sequence[str], column: str) -> str:
        """Return the query for the sequences that number a column: name, step, and whether it starts again (1, 0).

        A step of NULL says that the sequence itself has to be asked. Empty where no such query is known.
        """
        return ""

    def sequence(self, name: str) -> str:
        """Return the query for a sequence by the name that `sequences` found: step, and whether it starts again."""
        raise NotImplementedError

    def count_up_to(self, limit: int, table: str, predicate: str) -> str:
        """Return the query that counts rows, but no further than a limit."""
        return f"SELECT COUNT(*) FROM (SELECT 1 AS one FROM {table} WHERE {predicate} LIMIT {limit}) few"

    def row_at(self, position: int, ordered: str) -> str:
        """Return what of an ordered query is one row, counted from 0."""
        return f"{ordered} LIMIT 1 OFFSET {position}"

    def first_rows(self, count: int, ordered: str) -> str:
        """Return what of an ordered query are its first rows."""
        return f"{ordered} LIMIT {count}"

    def as_row(self, **expressions: str) -> str:
        """Return a query of one row of named expressions."""
        named = ", ".join(f"{expression} AS {self.quote(name)}" for name, expression in expressions.items())
        return f"SELECT {named}{self.from_nothing}"


def _text_in_utc(instant: str) -> str:
    """Write the text of an instant of PostgreSQL in UTC."""
    return f"to_char(({instant}) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') || '+00:00'"


def _ends_early(step: str, smallest: str, largest: str) -> str:
    """Write that a sequence can come to its end: nobody gets to that of a bigint, which one without an end has."""
    return f"CASE WHEN {step} > 0 THEN {largest} < 9223372036854775806 ELSE {smallest} > -9223372036854775807 END"


class PostgreSQL(Database):
    """PostgreSQL 13 and later, Aurora and the like."""

    name = "PostgreSQL"
    driver = "org.postgresql.Driver"
    options = MappingProxyType({"prepareThreshold": "-1"})
    """Values in binary, which the driver reads in two thirds of the time that text takes it."""
    now = _text_in_utc("now()")
    cluster = "SELECT CAST(system_identifier AS text) AS cluster FROM pg_control_system()"

    current_database = "current_database()"

    def declared(self, kind: str, precision: int, scale: int) -> str:
        """Write a type as the catalogue does; the driver has names of its own, also for columns with a sequence."""
        zones = {"timestamptz": "with time zone", "timestamp": "without time zone"}
        if kind in zones:
            return f"timestamp({scale}) {zones[kind]}"
        names = {
            "int2": "smallint", "smallserial": "smallint", "int4": "integer", "serial": "integer", "int8": "bigint",
            "bigserial": "bigint", "varchar": "character varying", "bpchar": "character",
        }  # fmt: skip
        # An array is named after what it holds, with an underscore.
        if kind.startswith("_"):
            return f"{kind[1:]}[]"
        return names.get(kind) or super().declared(kind, precision, scale)

    def serves(self, column: CursorColumn) -> bool:
        """Tell whether an index serves; one of texts that sorts by bytes does."""
        return True

    def bytes_as_text(self, digits: str) -> str:
        """Write a text."""
        return f"convert_from(decode('{digits}', 'hex'), 'UTF8')"

    def binary(self, name: str) -> str:
        """Write a text column so that it compares byte by byte."""
        return f'CAST({name} AS text) COLLATE "C"'

    def uuid(self, value: str, kind: str) -> str:
        """Write a UUID."""
        return f"CAST('{value}' AS uuid)"

    def uuid_version(self, column: CursorColumn) -> str:
        """Write the hex digit that says its version."""
        return f"substr(CAST({self.quote(column.name)} AS text), 15, 1)"

    def outermost(self, column: CursorColumn, function: str, rows: str) -> str:
        """Return the query for the last value; before PostgreSQL 18 there is no MIN or MAX of a UUID."""
        if not column.is_uuid:
            return super().outermost(column, function, rows)
        name, order = f"found.{self.quote(column.name)}", "DESC" if function == "MAX" else "ASC"
        return (
            f"(SELECT {self.exact(name, column.type)} FROM (SELECT {self.quote(column.name)} {rows}) found"
            f" WHERE {name} IS NOT NULL ORDER BY {name} {order} LIMIT 1)"
        )

    def exact(self, expression: str, kind: str) -> str:
        """Write the exact text of a value; infinity and what is outside the years 1 to 9999 as their ends."""
        # As their ends, not as errors: one row stamped 'infinity' would stop the job, and is left for later as any
        # row from the future is.
        if kind == "timestamp":
            inside = _between(expression, f"TIMESTAMPTZ '{FIRST} 00:00+00'", f"TIMESTAMPTZ '{LAST} 23:59:59.999999+00'")
            return _text_in_utc(inside)
        if kind == "timestamp_ntz":
            inside = _between(expression, f"TIMESTAMP '{FIRST} 00:00'", f"TIMESTAMP '{LAST} 23:59:59.999999'")
            return f"to_char({inside}, 'YYYY-MM-DD HH24:MI:SS.US')"
        if kind == "date":
            inside = _between(expression, f"DATE '{FIRST}'", f"DATE '{LAST}'")
            return f"to_char({inside}, 'YYYY-MM-DD')"
        if kind == "string":
            return f"encode(convert_to({expression}, 'UTF8'), 'hex')"
        return f"CAST({expression} AS text)"

    def cursor_type(self, declared: str) -> tuple[str, Tick | None] | None:
        """Return Spark's type and the tick of a declared type."""
        found = Declared.parse(declared)
        # An array of timestamps has their base and no order in time.
        if found.text.endswith("[]"):
            return None
        if found.base == "timestamp":
            return "timestamp" if found.has_zone else "timestamp_ntz", found.tick(6)
        if found.base == "numeric":
            return with_tick(found.decimal("decimal(38,18)"))
        if found.base in ("text", "character"):
            return "string", None
        simple = {"date": "date", "smallint": "int", "integer": "int", "bigint": "bigint", "uuid": "uuid"}
        return with_tick(simple.get(found.text))

    def read_as_text(self, declared: str) -> str | None:
        """Return Spark's type where the driver shifts values, or makes an infinity that Spark cannot hold."""
        kind, _ = self.cursor_type(declared) or (None, None)
        # Without zone: shifted in the hour that summer time skips. A date: Spark's reader fails at infinity.
        return kind if kind in ("timestamp_ntz", "date") else None

    def catalogue(self, parts: Sequence[str]) -> str:
        """Return the query for a table's columns."""
        return (
            f"SELECT CAST(a.attname AS text) AS {NAME}, format_type(a.atttypid, a.atttypmod) AS {TYPE},"
            " CASE WHEN r.relkind NOT IN ('r', 'p', 'm') THEN NULL WHEN EXISTS (SELECT 1 FROM pg_index i"
            " JOIN pg_class b ON b.oid = i.indexrelid JOIN pg_am m ON m.oid = b.relam AND m.amname = 'btree'"
            " WHERE i.indrelid = a.attrelid AND i.indkey[0] = a.attnum AND i.indisvalid AND i.indpred IS NULL"
            f" AND i.indcollation[0] IN (0, 950)) THEN 1 ELSE 0 END AS {INDEXED},"
            f" CASE WHEN a.attnotnull THEN 0 ELSE 1 END AS {NULLABLE}"
            " FROM pg_attribute a JOIN pg_class r ON r.oid = a.attrelid"
            f" WHERE a.attrelid = to_regclass({self.text(self.table(parts))}) AND a.attnum > 0 AND NOT a.attisdropped"
        )

    def identity(self, parts: Sequence[str]) -> str:
        """Return the query for which table it is; views are dropped and made anew without a loss, so by name only."""
        return (
            f"SELECT CAST(current_database() AS text) AS {DATABASE}, CAST(n.nspname AS text) AS {SCHEMA},"
            f" CAST(r.relname AS text) AS {TABLE},"
            f" CASE WHEN r.relkind IN ('r', 'p') THEN CAST(r.oid AS text) END AS {OID}"
            " FROM pg_class r JOIN pg_namespace n ON n.oid = r.relnamespace"
            f" WHERE r.oid = to_regclass({self.text(self.table(parts))})"
        )

    def writers(self, parts: Sequence[str]) -> str:
        """Return the query for the transactions that hold what an INSERT locks: the table, or a sequence of it.

        `nextval` locks its sequence until the transaction ends, so also who has a number and no row yet is among them.
        NULL where that says nothing: on a replica, whose locks are its own; for what is no table; and where sessions
        take numbers of a sequence in advance (CACHE) and use them in a later transaction.
        """
        table = f"to_regclass({self.text(self.table(parts))})"
        family = (
            f"family (oid) AS (SELECT CAST({table} AS oid) UNION"
            " SELECT i.inhrelid FROM pg_inherits i JOIN family f ON i.inhparent = f.oid)"
        )
        # Those that a column owns (serial, identity), and those that a default calls.
        owned = (
            "SELECT d.objid AS oid FROM pg_depend d JOIN family f ON d.refobjid = f.oid"
            " WHERE d.classid = CAST('pg_class' AS regclass) AND d.refclassid = CAST('pg_class' AS regclass)"
        )
        called = (
            "SELECT d.refobjid FROM pg_attrdef a JOIN family f ON a.adrelid = f.oid"
            " JOIN pg_depend d ON d.classid = CAST('pg_attrdef' AS regclass) AND d.objid = a.oid"
            " WHERE d.refclassid = CAST('pg_class' AS regclass)"
        )
        numbers = (
            f"numbers (oid) AS (SELECT s.seqrelid FROM pg_sequence s WHERE s.seqrelid IN ({owned} UNION {called}))"
        )
        cached = "EXISTS (SELECT 1 FROM pg_sequence s JOIN numbers n ON n.oid = s.seqrelid WHERE s.seqcache > 1)"
        is_table = f"EXISTS (SELECT 1 FROM pg_class r WHERE r.oid = {table} AND r.relkind IN ('r', 'p'))"
        return (
            f"WITH RECURSIVE {family}, {numbers}"
            f" SELECT CAST(l.virtualtransaction AS text) AS {WRITER} FROM pg_locks l WHERE l.locktype = 'relation'"
            " AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())"
            " AND l.mode = 'RowExclusiveLock'"
            " AND l.relation IN (SELECT oid FROM family UNION SELECT oid FROM numbers)"
            f" UNION SELECT NULL WHERE pg_is_in_recovery() OR {cached} OR NOT {is_table}"
        )

    def sequences(self, parts: Sequence[str], column: str) -> str:
        """Return the query for the sequence of an identity column, or of a default that is `nextval` alone.

        In a longer default it may be negated, or be no more than a part of the number.
        """
        identity = (
            "SELECT d.objid FROM pg_depend d WHERE d.classid = CAST('pg_class' AS regclass) AND d.deptype = 'i'"
            " AND d.refclassid = CAST('pg_class' AS regclass) AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum"
        )
        called = (
            "SELECT d.refobjid FROM pg_attrdef f JOIN pg_depend d ON d.classid = CAST('pg_attrdef' AS regclass)"
            " AND d.objid = f.oid AND d.refclassid = CAST('pg_class' AS regclass)"
            " WHERE f.adrelid = a.attrelid AND f.adnum = a.attnum AND pg_get_expr(f.adbin, f.adrelid)"
            " ~ '^[(]*nextval[(]''[^'']+''::regclass[)]+(::[a-z]+)?$'"
        )
        ends = _ends_early("s.seqincrement", "s.seqmin", "s.seqmax")
        return (
            f"SELECT CAST(CAST(s.seqrelid AS regclass) AS text) AS {SEQUENCE}, CAST(s.seqincrement AS text) AS {STEP},"
            f" CASE WHEN s.seqcycle AND {ends} THEN 1 ELSE 0 END AS {STARTS_AGAIN}"
            f" FROM pg_attribute a JOIN pg_sequence s ON s.seqrelid IN ({identity} UNION {called})"
            f" WHERE a.attrelid = to_regclass({self.text(self.table(parts))})"
            f" AND a.attname = {self.text(column)}"
        )

    def open_since(self, delay: timedelta) -> str:
        """Return the query for the transactions of this database that have an id, or wait for a lock to write.

        Of whatever table: `now()` is the beginning of a transaction, also in the table that it writes to last. One that
        was prepared keeps no beginning, and whoever lacks the role may not see those of others.
        """
        # Who waits to write to a table has no id yet. VACUUM has such a lock on indexes only, and writes no row.
        waiting = (
            "SELECT l.pid FROM pg_locks l JOIN pg_class r ON r.oid = l.relation WHERE l.locktype = 'relation'"
            " AND l.database = a.datid AND l.mode = 'RowExclusiveLock' AND r.relkind IN ('r', 'p')"
        )
        prepared = f"p.prepared - INTERVAL '{delay.total_seconds():f} seconds'"
        # In this order: one that is prepared between the two is in the first.
        return (
            f"SELECT 'pid ' || a.pid AS {WRITER}, {_text_in_utc('a.xact_start')} AS {BEGAN} FROM pg_stat_activity a"
            " WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()"
            " AND a.backend_type IS DISTINCT FROM 'autovacuum worker'"
            f" AND (a.backend_xid IS NOT NULL OR a.pid IN ({waiting}))"
            f" UNION ALL SELECT 'prepared ' || p.transaction, {_text_in_utc(prepared)} FROM pg_prepared_xacts p"
            " WHERE p.database = current_database()"
            " UNION ALL SELECT 'hidden', NULL WHERE NOT pg_has_role('pg_read_all_stats', 'USAGE')"
        )


NO_TEXT = "CAST(NULL AS CHAR)"
"""NULL with a type: over Spark Connect, Spark asks for that of each column, and refuses NULL alone."""


class MySQL(Database):
    """MySQL and MariaDB. Sessions are set to UTC: a TIMESTAMP compares with text of the session's zone."""

    name = "MySQL"
    quotes = ("`", "`")
    driver = "com.mysql.cj.jdbc.Driver"
    options = MappingProxyType({"useCursorFetch": "true"})
    session = "SET SESSION time_zone = '+00:00'"
    now = "CONCAT(DATE_FORMAT(UTC_TIMESTAMP(6), '%Y-%m-%d %H:%i:%s.%f'), '+00:00')"
    current_database = "DATABASE()"
    writers_late = timedelta(milliseconds=200)
    """InnoDB gives a number just before its transaction begins, and reads its list anew every tenth of a second."""

    def timestamp(self, value: datetime) -> str:
        """Write an instant; the session is in UTC."""
        return self.wall_clock(value)

    def has_void(self, column: CursorColumn) -> bool:
        """Tell whether a column can hold a zero date, ``0000-00-00``, as also one that is NOT NULL can."""
        return column.is_time

    def lacks(self, column: CursorColumn) -> str:
        """Write that a row has no value there: NULL, or a zero date, which is below every date."""
        if not column.is_time:
            return super().lacks(column)
        return f"({super().lacks(column)} OR {self.comparison(column, '<', _first_value(column))})"

    def has(self, column: CursorColumn) -> str:
        """Write that a row has a value there."""
        return self.comparison(column, ">=", _first_value(column)) if column.is_time else super().has(column)

    def bytes_as_text(self, digits: str) -> str:
        """Write bytes."""
        return f"x'{digits}'"

    def binary(self, name: str) -> str:
        """Write the bytes of a text in UTF-8."""
        return f"CAST(CONVERT({name} USING utf8mb4) AS BINARY)"

    def uuid(self, value: str, kind: str) -> str:
        """Write a UUID, or its bytes."""
        return f"CAST('{value}' AS UUID)" if kind == "uuid" else f"x'{value.replace('-', '')}'"

    def uuid_version(self, column: CursorColumn) -> str:
        """Write the hex digit that says its version."""
        name = self.quote(column.name)
        return f"SUBSTR(CAST({name} AS CHAR), 15, 1)" if column.type == "uuid" else f"SUBSTR(HEX({name}), 13, 1)"

    def exact(self, expression: str, kind: str) -> str:
        """Write the exact text of a value; NULL for a zero date."""
        # '0000-00-00' is below every date, so it is the last value only where there is no other one.
        if kind in ("timestamp", "timestamp_ntz"):
            text = f"NULLIF(DATE_FORMAT({expression}, '%Y-%m-%d %H:%i:%s.%f'), '0000-00-00 00:00:00.000000')"
            return f"CONCAT({text}, '+00:00')" if kind == "timestamp" else text
        if kind == "date":
            return f"NULLIF(DATE_FORMAT({expression}, '%Y-%m-%d'), '0000-00-00')"
        return f"HEX({expression})" if kind in ("string", "binary(16)") else f"CAST({expression} AS CHAR)"

    def cursor_type(self, declared: str) -> tuple[str, Tick | None] | None:
        """Return Spark's type and the tick of a declared type."""
        found = Declared.parse(declared)
        if found.base in ("datetime", "timestamp"):
            return "timestamp" if found.base == "timestamp" else "timestamp_ntz", found.tick(0)
        if found.base == "decimal":
            return with_tick(found.decimal("decimal(10,0)"))
        # Unsigned, each needs the next larger type: above half of its range a value would turn negative.
        if found.base == "bigint":
            return with_tick("decimal(20,0)" if "unsigned" in found.text else "bigint")
        if found.base in WHOLE_TYPES:
            return with_tick("bigint" if "unsigned" in found.text else "int")
        if found.base == "date":
            return with_tick("date")
        if found.text in UUIDS:
            return found.text, None
        return ("string", None) if found.base.endswith(TEXT_TYPES) else None

    def catalogue(self, parts: Sequence[str]) -> str:
        """Return the query for a table's columns."""
        schema = self.text(parts[-2]) if len(parts) > 1 else "DATABASE()"
        return (
            f"SELECT c.COLUMN_NAME AS {NAME}, c.COLUMN_TYPE AS {TYPE},"
            " CASE WHEN t.TABLE_TYPE <> 'BASE TABLE' THEN NULL WHEN EXISTS"
            " (SELECT 1 FROM information_schema.STATISTICS s WHERE s.TABLE_SCHEMA = c.TABLE_SCHEMA"
            " AND s.TABLE_NAME = c.TABLE_NAME AND s.COLUMN_NAME = c.COLUMN_NAME AND s.SEQ_IN_INDEX = 1)"
            f" THEN 1 ELSE 0 END AS {INDEXED},"
            f" CASE WHEN c.IS_NULLABLE = 'NO' THEN 0 ELSE 1 END AS {NULLABLE}"
            " FROM information_schema.COLUMNS c JOIN information_schema.TABLES t"
            " ON t.TABLE_SCHEMA = c.TABLE_SCHEMA AND t.TABLE_NAME = c.TABLE_NAME"
            f" WHERE c.TABLE_SCHEMA = {schema} AND c.TABLE_NAME = {self.text(parts[-1])}"
        )

    def identity(self, parts: Sequence[str]) -> str:
        """Return the query for which table it is; a schema is a database there, and no number outlives an ALTER."""
        schema = self.text(parts[-2]) if len(parts) > 1 else "DATABASE()"
        return (
            f"SELECT {NO_TEXT} AS {DATABASE}, t.TABLE_SCHEMA AS {SCHEMA}, t.TABLE_NAME AS {TABLE}, {NO_TEXT} AS {OID}"
            " FROM information_schema.TABLES t"
            f" WHERE t.TABLE_SCHEMA = {schema} AND t.TABLE_NAME = {self.text(parts[-1])}"
        )

    def writers(self, parts: Sequence[str]) -> str:
        """Return the query for InnoDB's open transactions, of whatever table; NULL on a replica.

        Which tables they have written to is in no list that MySQL and MariaDB share.
        """
        # A replica that can be written to shows itself only by the threads that follow its primary; InnoDB's own have
        # the same user in older versions of MariaDB, and are daemons.
        follows = (
            "EXISTS (SELECT 1 FROM information_schema.PROCESSLIST p"
            " WHERE p.USER = 'system user' AND p.COMMAND <> 'Daemon')"
        )
        return (
            f"SELECT CONCAT(trx_mysql_thread_id, ' ', trx_started) AS {WRITER} FROM information_schema.INNODB_TRX"
            " WHERE trx_is_read_only = 0 AND trx_mysql_thread_id <> CONNECTION_ID()"
            f" UNION SELECT NULL AS {WRITER} FROM (SELECT 1 AS one) nothing WHERE @@read_only = 1 OR {follows}"
        )

    def sequences(self, parts: Sequence[str], column: str) -> str:
        """Return the query for the sequence of a default that is `nextval` alone, as MariaDB has them; quoted."""
        schema = self.text(parts[-2]) if len(parts) > 1 else "DATABASE()"
        return (
            f"SELECT SUBSTR(c.COLUMN_DEFAULT, 9, CHAR_LENGTH(c.COLUMN_DEFAULT) - 9) AS {SEQUENCE}, {NO_TEXT} AS {STEP},"
            f" {NO_TEXT} AS {STARTS_AGAIN} FROM information_schema.COLUMNS c"
            f" WHERE c.TABLE_SCHEMA = {schema} AND c.TABLE_NAME = {self.text(parts[-1])}"
            f" AND c.COLUMN_NAME = {self.text(column)} AND c.COLUMN_DEFAULT REGEXP '^nextval[(].*[)]$'"
        )

    def sequence(self, name: str) -> str:
        """Return the query for a sequence; SourceError unless its name is one or two quoted parts."""
        # What follows FROM comes from a catalogue.
        if not re.fullmatch(r'(`[^`]+`|"[^"]+")(\.(`[^`]+`|"[^"]+"))?', name):
            raise SourceError(self.name, "a default of it calls nextval in a form that is not known.")
        ends = _ends_early("increment", "minimum_value", "maximum_value")
        return (
            f"SELECT increment AS {STEP}, CASE WHEN cycle_option AND {ends} THEN 1 ELSE 0 END AS {STARTS_AGAIN}"
            f" FROM {name}"
        )

    def open_since(self, delay: timedelta) -> str:
        """Return the query for InnoDB's transactions that have written or have a lock; reads take none.

        A statement has its time from before its transaction begins, and InnoDB keeps the whole second of that.
        """
        began = f"{self.instant_of_server('trx_started')} - INTERVAL 1 SECOND"
        return (
            f"SELECT CONCAT('thread ', trx_mysql_thread_id) AS {WRITER},"
            f" CONCAT(DATE_FORMAT({began}, '%Y-%m-%d %H:%i:%s.%f'), '+00:00') AS {BEGAN}"
            " FROM information_schema.INNODB_TRX"
            " WHERE trx_rows_modified + trx_lock_structs > 0 AND trx_mysql_thread_id <> CONNECTION_ID()"
        )

    def instant_of_server(self, wall_clock: str) -> str:
        """Write the instant, in UTC, of a wall clock in the zone of the machine, which InnoDB's list is in."""
        instant = f"CONVERT_TZ({wall_clock}, 'SYSTEM', '+00:00')"
        # In autumn an hour repeats, and the earlier of the two is meant: a later one would let a row come below it.
        hour_before = f"{instant} - INTERVAL 1 HOUR"
        is_repeated = f"CONVERT_TZ({hour_before}, '+00:00', 'SYSTEM') = {wall_clock}"
        return f"CASE WHEN {is_repeated} THEN {hour_before} ELSE {instant} END"


class MariaDB(MySQL):
    """MariaDB by a ``jdbc:mariadb:`` URL, for which Spark writes names in double quotes."""

    name = "MariaDB"
    sorts_uuids = (
        "CAST('01900000-0000-7000-8000-000000000000' AS UUID) > CAST('01800000-ffff-7000-8000-000000000000' AS UUID)"
    )
    driver = "org.mariadb.jdbc.Driver"
    session = "SET SESSION time_zone = '+00:00', sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')"


def _first_value(column: CursorColumn) -> date:
    first = datetime(1, 1, 1, tzinfo=timezone.utc)
    return first.date() if column.type == "date" else first


def _between(expression: str, first: str, last: str) -> str:
    return f"CASE WHEN {expression} < {first} THEN {first} WHEN {expression} > {last} THEN {last} ELSE {expression} END"


def with_tick(kind: str | None) -> tuple[str, Tick | None] | None:
    """Return a type with the tick that it has by itself."""
    return None if kind is None else (kind, None)


DATETIME_TICK = timedelta(microseconds=3_333)
"""SQL Server's DATETIME has steps of 1/300 s; what is a whole step above a value is below the next one. Rounded up,
a bound just past a row would be past the next row as well, which may come later."""


class SQLServer(Database):
    """SQL Server and Azure SQL."""

    name = "SQL Server"
    quotes = ("[", "]")
    driver = "com.microsoft.sqlserver.jdbc.SQLServerDriver"
    now = "CONVERT(char(26), SYSUTCDATETIME(), 121) + '+00:00'"
    encoding = "utf-16-le"
    unfit = MappingProxyType(
        {"uniqueidentifier": "SQL Server sorts a uniqueidentifier by its last six bytes first, whatever its version"}
    )
    orders_within = False
    current_database = "DB_NAME()"

    def timestamp(self, value: datetime) -> str:
        """Write an instant."""
        return f"CAST('{wall_text(value)}+00:00' AS datetimeoffset(6))".replace(" ", "T", 1)

    def wall_clock(self, value: datetime) -> str:
        """Write a timestamp without zone, in the form that no language setting reads otherwise."""
        return f"CAST('{wall_text(value)}' AS datetime2(6))".replace(" ", "T", 1)

    def date(self, value: date) -> str:
        """Write a date."""
        return f"CAST('{value.isoformat()}' AS date)"

    def bytes_as_text(self, digits: str) -> str:
        """Write the bytes of a text in UTF-16, as the server holds them."""
        return f"0x{bytes.fromhex(digits).decode().encode('utf-16-le').hex()}"

    def binary(self, name: str) -> str:
        """Write the bytes of a text: every collation ignores spaces at the end."""
        return f"CAST(CAST({name} AS nvarchar(4000)) AS varbinary(8000))"

    def exact(self, expression: str, kind: str) -> str:
        """Write the exact text of a value, down to the microsecond."""
        if kind == "timestamp":
            return f"CONVERT(char(26), CAST(SWITCHOFFSET({expression}, '+00:00') AS datetime2(7)), 121) + '+00:00'"
        if kind == "timestamp_ntz":
            return f"CONVERT(char(26), CAST({expression} AS datetime2(7)), 121)"
        if kind == "date":
            return f"CONVERT(char(10), {expression}, 23)"
        return f"CONVERT(varchar(max), {expression}, 2)" if kind == "string" else f"CONVERT(varchar(50), {expression})"

    def cursor_type(self, declared: str) -> tuple[str, Tick | None] | None:
        """Return Spark's type and the tick of a declared type."""
        found = Declared.parse(declared)
        times: dict[str, tuple[str, Tick | None]] = {
            "datetime": ("timestamp_ntz", DATETIME_TICK),
            "datetime2": ("timestamp_ntz", found.tick(6)),
            "smalldatetime": ("timestamp_ntz", timedelta(minutes=1)),
            "datetimeoffset": ("timestamp", found.tick(6)),
            "date": ("date", None),
            "bigint": ("bigint", None),
        }
        if found.base in times:
            return times[found.base]
        if found.base in ("decimal", "numeric"):
            return with_tick(found.decimal("decimal(18,0)"))
        if found.base in WHOLE_TYPES:
            return "int", None
        return ("string", None) if found.base in ("char", "varchar", "nchar", "nvarchar") else None

    def catalogue(self, parts: Sequence[str]) -> str:
        """Return the query for a table's columns."""
        table = f"CAST({self.text(self.table(parts))} AS nvarchar(4000))"
        return (
            f"SELECT c.name AS {NAME}, y.name + CASE WHEN y.name IN ('decimal', 'numeric') THEN '('"
            " + CAST(c.precision AS varchar(3)) + ',' + CAST(c.scale AS varchar(3)) + ')'"
            " WHEN y.name IN ('datetime2', 'datetimeoffset') THEN '(' + CAST(c.scale AS varchar(3)) + ')'"
            f" ELSE '' END AS {TYPE}, CASE WHEN o.type <> 'U' THEN NULL WHEN EXISTS (SELECT 1 FROM sys.index_columns k"
            " JOIN sys.indexes i ON i.object_id = k.object_id AND i.index_id = k.index_id"
            " WHERE k.object_id = c.object_id AND k.column_id = c.column_id AND k.key_ordinal = 1 AND i.has_filter = 0"
            f" AND i.type IN (1, 2)) THEN 1 ELSE 0 END AS {INDEXED}, CAST(c.is_nullable AS int) AS {NULLABLE}"
            " FROM sys.columns c JOIN sys.types y ON y.user_type_id = c.system_type_id"
            f" JOIN sys.objects o ON o.object_id = c.object_id WHERE c.object_id = OBJECT_ID({table})"
        )

    def identity(self, parts: Sequence[str]) -> str:
        """Return the query for which table it is."""
        table = f"CAST({self.text(self.table(parts))} AS nvarchar(4000))"
        return (
            f"SELECT DB_NAME() AS {DATABASE}, s.name AS {SCHEMA}, o.name AS {TABLE}, NULL AS {OID}"
            " FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id"
            f" WHERE o.object_id = OBJECT_ID({table})"
        )

    def row_at(self, position: int, ordered: str) -> str:
        """Return what of an ordered query is one row, counted from 0."""
        return f"{ordered} OFFSET {position} ROWS FETCH NEXT 1 ROWS ONLY"

    def first_rows(self, count: int, ordered: str) -> str:
        """Return what of an ordered query are its first rows."""
        return f"{ordered} OFFSET 0 ROWS FETCH NEXT {count} ROWS ONLY"

    def count_up_to(self, limit: int, table: str, predicate: str) -> str:
        """Return the query that counts rows, but no further than a limit."""
        return f"SELECT COUNT(*) FROM (SELECT TOP ({limit}) 1 AS one FROM {table} WHERE {predicate}) few"


class Oracle(Database):
    """Oracle 12.1 and later. Names are case-sensitive here and mostly written in capitals there."""

    name = "Oracle"
    driver = "oracle.jdbc.OracleDriver"
    now = "TO_CHAR(SYS_EXTRACT_UTC(SYSTIMESTAMP), 'YYYY-MM-DD HH24:MI:SS.FF6') || '+00:00'"
    from_nothing = " FROM DUAL"
    current_database = "SYS_CONTEXT('USERENV', 'DB_NAME')"

    def quote(self, name: str) -> str:
        """Quote a name; SourceError for a double quote, which no name there may hold."""
        if '"' in name:
            raise SourceError(name, "Oracle has no names with a double quote. Check the name.")
        return super().quote(name)

    def timestamp(self, value: datetime) -> str:
        """Write an instant."""
        return f"TIMESTAMP '{wall_text(value)} +00:00'"

    def wall_clock(self, value: datetime) -> str:
        """Write a timestamp without zone; in whole seconds as a DATE, so that an index on a DATE serves it."""
        # Compared with a TIMESTAMP, Oracle would cast every DATE of the table to one, and no index on it serves.
        if value.microsecond:
            return super().wall_clock(value)
        return f"TO_DATE('{wall_text(value)[:19]}', 'YYYY-MM-DD HH24:MI:SS')"

    def bytes_as_text(self, digits: str) -> str:
        """Write bytes."""
        return f"HEXTORAW('{digits}')"

    def binary(self, name: str) -> str:
        """Write the bytes of a text."""
        return f"UTL_RAW.CAST_TO_RAW({name})"

    def exact(self, expression: str, kind: str) -> str:
        """Write the exact text of a value, down to the microsecond."""
        if kind == "timestamp":
            return f"TO_CHAR(SYS_EXTRACT_UTC({expression}), 'YYYY-MM-DD HH24:MI:SS.FF6') || '+00:00'"
        if kind == "timestamp_ntz":
            return f"TO_CHAR(CAST({expression} AS TIMESTAMP(9)), 'YYYY-MM-DD HH24:MI:SS.FF6')"
        if kind == "string":
            return f"RAWTOHEX({expression})"
        return f"TO_CHAR({expression}, 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')"

    def cursor_type(self, declared: str) -> tuple[str, Tick | None] | None:
        """Return Spark's type and the tick of a declared type; a DATE has seconds."""
        found = Declared.parse(declared)
        if found.base == "date":
            return "timestamp_ntz", timedelta(seconds=1)
        if found.base == "timestamp":
            return "timestamp" if found.has_zone else "timestamp_ntz", found.tick(6)
        if found.base == "number":
            return with_tick(found.decimal("decimal(38,10)"))
        return ("string", None) if found.base in ("varchar2", "nvarchar2", "char", "nchar") else None

    def catalogue(self, parts: Sequence[str]) -> str:
        """Return the query for a table's columns."""
        names = [f"UTL_RAW.CAST_TO_VARCHAR2({self.text(part)})" for part in parts]
        owner = names[-2] if len(names) > 1 else "SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')"
        return (
            f"SELECT c.COLUMN_NAME AS {NAME}, c.DATA_TYPE || CASE WHEN c.DATA_TYPE = 'NUMBER'"
            " AND c.DATA_SCALE IS NOT NULL THEN '(' || COALESCE(c.DATA_PRECISION, 38) || ',' || c.DATA_SCALE || ')'"
            f" END AS {TYPE}, CASE WHEN EXISTS (SELECT 1 FROM ALL_VIEWS v WHERE v.OWNER = c.OWNER"
            " AND v.VIEW_NAME = c.TABLE_NAME) THEN NULL WHEN EXISTS (SELECT 1 FROM ALL_IND_COLUMNS i"
            " WHERE i.TABLE_OWNER = c.OWNER AND i.TABLE_NAME = c.TABLE_NAME AND i.COLUMN_NAME = c.COLUMN_NAME"
            f" AND i.COLUMN_POSITION = 1) THEN 1 ELSE 0 END AS {INDEXED},"
            f" CASE WHEN c.NULLABLE = 'N' THEN 0 ELSE 1 END AS {NULLABLE}"
            f" FROM ALL_TAB_COLUMNS c WHERE c.OWNER = {owner} AND c.TABLE_NAME = {names[-1]}"
        )

    def identity(self, parts: Sequence[str]) -> str:
        """Return the query for which table it is."""
        names = [f"UTL_RAW.CAST_TO_VARCHAR2({self.text(part)})" for part in parts]
        owner = names[-2] if len(names) > 1 else "SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')"
        return (
            f"SELECT SYS_CONTEXT('USERENV', 'DB_NAME') AS {DATABASE}, {owner} AS {SCHEMA}, {names[-1]} AS {TABLE},"
            f" NULL AS {OID} FROM DUAL"
        )

    def row_at(self, position: int, ordered: str) -> str:
        """Return what of an ordered query is one row, counted from 0."""
        return f"{ordered} OFFSET {position} ROWS FETCH NEXT 1 ROWS ONLY"

    def first_rows(self, count: int, ordered: str) -> str:
        """Return what of an ordered query are its first rows."""
        return f"{ordered} OFFSET 0 ROWS FETCH NEXT {count} ROWS ONLY"

    def count_up_to(self, limit: int, table: str, predicate: str) -> str:
        """Return the query that counts rows, but no further than a limit."""
        return (
            f"SELECT COUNT(*) FROM (SELECT 1 AS one FROM {table} WHERE {predicate} FETCH FIRST {limit} ROWS ONLY) few"
        )


class SQLite(Database):
    """SQLite. Its times are texts or numbers: a text in ISO form can be read with ``strings=True``.

    A column that is declared as a date or timestamp keeps what looks like a number as one, and numbers
    are below every text there: it is compared as text, which no index serves. One declared as STRING
    or TIME is refused, as leading zeros are lost in it.
    """

    name = "SQLite"
    driver = "org.sqlite.JDBC"
    now = "strftime('%Y-%m-%d %H:%M:%f', 'now') || '000+00:00'"

    def writers(self, parts: Sequence[str]) -> str:
        """Return a query of no row: one transaction writes at a time, so numbers are committed in their order."""
        return f"SELECT NULL AS {WRITER} WHERE 1 = 0"

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
        # Hidden are those of virtual tables (1), and in other ways those that SQLite computes (2, 3), which count.
        return (
            f"SELECT c.name AS {NAME}, c.type AS {TYPE}, CASE WHEN m.type <> 'table' THEN NULL"
            " WHEN c.pk = 1 OR EXISTS (SELECT 1 FROM pragma_index_list(m.name) l, pragma_index_info(l.name) i"
            f" WHERE l.partial = 0 AND i.seqno = 0 AND i.cid = c.cid) THEN 1 ELSE 0 END AS {INDEXED},"
            f' CASE WHEN c."notnull" = 1 THEN 0 ELSE 1 END AS {NULLABLE}'
            " FROM sqlite_master m, pragma_table_xinfo(m.name) c WHERE m.type IN ('table', 'view')"
            f" AND m.name = {table} AND c.hidden <> 1"
        )

    def identity(self, parts: Sequence[str]) -> str:
        """Return the query for which table it is: the database is a file, which the URL names."""
        return (
            f"SELECT NULL AS {DATABASE}, NULL AS {SCHEMA}, m.name AS {TABLE}, NULL AS {OID} FROM sqlite_master m"
            f" WHERE m.type IN ('table', 'view') AND m.name = {self.text(parts[-1])}"
        )


def _has_text_affinity(declared: str) -> bool:
    lower = declared.lower()
    return "int" not in lower and any(word in lower for word in TEXT_TYPES)
