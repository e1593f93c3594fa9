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
from scripts.helpers.rows.sql import SQL, in_quotes, joined, sql, whole

WHOLE_TYPES = ("tinyint", "smallint", "mediumint", "int", "integer")
TEXT_TYPES = ("char", "text", "clob")
CATALOGUE = ("column_name", "declared", "indexed", "nullable")
"""Columns of a catalogue query."""
IDENTITY = ("database_name", "schema_name", "table_name", "table_oid")
"""Columns of an identity query."""

WRITER, BEGAN = "writer", "began"
"""Columns of a query for writers."""
NUMBERING = ("sequence_name", "step", "starts_again")
"""Columns of a query for sequences."""
MIN, MAX = sql("MIN"), sql("MAX")


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
    session: SQL | None = None
    """Statement that each connection starts with."""
    now = sql("")
    """Time at which the statement started, or before: ISO text in UTC."""
    from_nothing = sql("")
    """What follows a SELECT that reads no table."""
    encoding = "utf-8"
    """What the hex digits of a text stand for."""
    cluster = sql("")
    """Query for what tells this cluster of servers from others, if there is one; a user may not be allowed to ask."""
    system_columns: Mapping[str, TableColumn] = MappingProxyType({})
    """Columns that every table has and neither its catalogue nor ``*`` shows."""
    writers_late = timedelta(0)
    """How long a transaction that has a number may not be on the list of `writers` yet."""

    unfit: Mapping[str, str] = MappingProxyType({})
    """Types that look as if they had an order, with the reason why none can be resumed from."""
    sorts_uuids = sql("")
    """Condition that the server sorts UUIDs by their bytes, where some versions of it do not."""
    orders_within = True
    """Whether a subquery may have an order, or start with WITH."""
    current_database = sql("")
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

    def table(self, parts: Sequence[str]) -> SQL:
        """Quote a table's name, part by part."""
        return joined(".", map(self.quote, parts))

    def text(self, value: str) -> SQL:
        """Write a text as its bytes in hex."""
        if "\0" in value:
            raise SourceError(self.name, "no text in a query may hold NUL. Correct the name or value.")
        return self.bytes_as_text(value.encode().hex())

    def bytes_as_text(self, digits: str) -> SQL:
        """Write what texts are compared with, from the hex digits of its bytes."""
        raise NotImplementedError

    def cursor(self, column: CursorColumn) -> SQL:
        """Write a cursor column as it is compared; a text byte by byte, without padding."""
        name = self.quote(column.name)
        return self.binary(name) if column.type == "string" else name

    def binary(self, name: SQL) -> SQL:
        """Write a text column so that it compares byte by byte."""
        raise NotImplementedError

    def exact(self, expression: SQL, kind: str) -> SQL:
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

    def outermost(self, column: CursorColumn, function: SQL, rows: SQL) -> SQL:
        """Return the query for the exact text of the last value (MIN or MAX) in rows: ``FROM`` and what follows it."""
        return sql("(SELECT {} {})", self.exact(sql("{}({})", function, self.cursor(column)), column.type), rows)

    def uuid_version(self, column: CursorColumn) -> SQL:
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

    def catalogue(self, parts: Sequence[str]) -> SQL:
        """Return the query for a table's columns: name, declared type, indexed (1, 0, NULL: unknown), nullable."""
        raise NotImplementedError

    def identity(self, parts: Sequence[str]) -> SQL:
        """Return the query for which table it is: database, schema and name as the server has them, and its number.

        The number is NULL unless the server gives a table that is made anew another one.
        """
        raise NotImplementedError

    def writers(self, parts: Sequence[str]) -> SQL:
        """Return the query for the open transactions that may hold numbers of a table, by names that are used once.

        A name of NULL says that the server cannot tell for this table. Empty where no such query is known.
        """
        return sql("")

    def open_since(self, delay: timedelta) -> SQL:
        """Return the query for the transactions that have written and are open: name, and when they began in UTC.

        Of whatever table. A beginning of NULL says that this user may not see one. Empty where no such query is known.

        Parameters
        ----------
        delay
            How long before it was first seen a transaction may have begun, if the server does not keep that.
        """
        return sql("")

    def sequences(self, parts: Sequence[str], column: str) -> SQL:
        """Return the query for the sequences that number a column: name, step, and whether it starts again (1, 0).

        A step of NULL says that the sequence itself has to be asked. Empty where no such query is known.
        """
        return sql("")

    def sequence(self, name: str) -> SQL:
        """Return the query for a sequence by the name that `sequences` found: step, and whether it starts again."""
        raise NotImplementedError

    def count_up_to(self, limit: int, table: SQL, predicate: SQL) -> SQL:
        """Return the query that counts rows, but no further than a limit."""
        rows = sql("SELECT 1 AS one FROM {} WHERE {}", table, predicate)
        return sql("SELECT COUNT(*) FROM ({}) few", self.first_rows(limit, rows))

    def row_at(self, position: int, ordered: SQL) -> SQL:
        """Return what of an ordered query is one row, counted from 0."""
        return sql("{} LIMIT 1 OFFSET {}", ordered, whole(position))

    def first_rows(self, count: int, ordered: SQL) -> SQL:
        """Return what of an ordered query are its first rows."""
        return sql("{} LIMIT {}", ordered, whole(count))

    def as_row(self, **expressions: SQL) -> SQL:
        """Return a query of one row of named expressions."""
        named = (sql("{} AS {}", expression, self.quote(name)) for name, expression in expressions.items())
        return sql("SELECT {}{}", joined(", ", named), self.from_nothing)


def _text_in_utc(instant: SQL) -> SQL:
    """Write the text of an instant of PostgreSQL in UTC."""
    return sql("to_char(({}) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') || '+00:00'", instant)


def _ends_early(step: SQL, smallest: SQL, largest: SQL) -> SQL:
    """Write that a sequence can come to its end: nobody gets to that of a bigint, which one without an end has."""
    return sql(
        "CASE WHEN {} > 0 THEN {} < 9223372036854775806 ELSE {} > -9223372036854775807 END", step, largest, smallest
    )


class PostgreSQL(Database):
    """PostgreSQL 13 and later, Aurora and the like."""

    name = "PostgreSQL"
    driver = "org.postgresql.Driver"
    options = MappingProxyType({"prepareThreshold": "-1"})
    """Values in binary, which the driver reads in two thirds of the time that text takes it."""
    now = _text_in_utc(sql("now()"))
    cluster = sql("SELECT CAST(system_identifier AS text) AS cluster FROM pg_control_system()")

    current_database = sql("current_database()")

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

    def bytes_as_text(self, digits: str) -> SQL:
        """Write a text."""
        return sql("convert_from(decode({}, 'hex'), 'UTF8')", in_quotes(digits))

    def binary(self, name: SQL) -> SQL:
        """Write a text column so that it compares byte by byte."""
        return sql('CAST({} AS text) COLLATE "C"', name)

    def uuid(self, value: str, kind: str) -> SQL:
        """Write a UUID."""
        return sql("CAST({} AS uuid)", in_quotes(value))

    def uuid_version(self, column: CursorColumn) -> SQL:
        """Write the hex digit that says its version."""
        return sql("substr(CAST({} AS text), 15, 1)", self.quote(column.name))

    def has_maximum(self, column: CursorColumn) -> bool:
        """Return whether the server has MIN and MAX of a column; before PostgreSQL 18 it has none of a UUID."""
        return not column.is_uuid

    def outermost(self, column: CursorColumn, function: SQL, rows: SQL) -> SQL:
        """Return the query for the last value."""
        if self.has_maximum(column):
            return super().outermost(column, function, rows)
        name = sql("found.{}", self.quote(column.name))
        return sql(
            "(SELECT {} FROM (SELECT {} {}) found WHERE {name} IS NOT NULL ORDER BY {name} {order} LIMIT 1)",
            self.exact(name, column.type), self.quote(column.name), rows,
            name=name, order=sql("DESC" if function == MAX else "ASC"),
        )  # fmt: skip

    def exact(self, expression: SQL, kind: str) -> SQL:
        """Write the exact text of a value; infinity and what is outside the years 1 to 9999 as their ends."""
        # As their ends, not as errors: one row stamped 'infinity' would stop the job, and is left for later as any
        # row from the future is.
        if kind == "timestamp":
            first, last = sql("TIMESTAMPTZ '0001-01-01 00:00+00'"), sql("TIMESTAMPTZ '9999-12-31 23:59:59.999999+00'")
            return _text_in_utc(_between(expression, first, last))
        if kind == "timestamp_ntz":
            first, last = sql("TIMESTAMP '0001-01-01 00:00'"), sql("TIMESTAMP '9999-12-31 23:59:59.999999'")
            return sql("to_char({}, 'YYYY-MM-DD HH24:MI:SS.US')", _between(expression, first, last))
        if kind == "date":
            inside = _between(expression, sql("DATE '0001-01-01'"), sql("DATE '9999-12-31'"))
            return sql("to_char({}, 'YYYY-MM-DD')", inside)
        if kind == "string":
            return sql("encode(convert_to({}, 'UTF8'), 'hex')", expression)
        return sql("CAST({} AS text)", expression)

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

    def catalogue(self, parts: Sequence[str]) -> SQL:
        """Return the query for a table's columns."""
        return sql(
            "SELECT CAST(a.attname AS text) AS column_name, format_type(a.atttypid, a.atttypmod) AS declared,"
            " CASE WHEN r.relkind NOT IN ('r', 'p', 'm') THEN NULL WHEN EXISTS (SELECT 1 FROM pg_index i"
            " JOIN pg_class b ON b.oid = i.indexrelid JOIN pg_am m ON m.oid = b.relam AND m.amname = 'btree'"
            " WHERE i.indrelid = a.attrelid AND i.indkey[0] = a.attnum AND i.indisvalid AND i.indpred IS NULL"
            " AND i.indcollation[0] IN (0, 950)) THEN 1 ELSE 0 END AS indexed,"
            " CASE WHEN a.attnotnull THEN 0 ELSE 1 END AS nullable"
            " FROM pg_attribute a JOIN pg_class r ON r.oid = a.attrelid"
            " WHERE a.attrelid = to_regclass({}) AND a.attnum > 0 AND NOT a.attisdropped",
            self.text(self.table(parts)),
        )

    def identity(self, parts: Sequence[str]) -> SQL:
        """Return the query for which table it is; views are dropped and made anew without a loss, so by name only."""
        return sql(
            "SELECT CAST(current_database() AS text) AS database_name, CAST(n.nspname AS text) AS schema_name,"
            " CAST(r.relname AS text) AS table_name,"
            " CASE WHEN r.relkind IN ('r', 'p') THEN CAST(r.oid AS text) END AS table_oid"
            " FROM pg_class r JOIN pg_namespace n ON n.oid = r.relnamespace WHERE r.oid = to_regclass({})",
            self.text(self.table(parts)),
        )

    def writers(self, parts: Sequence[str]) -> SQL:
        """Return the query for the transactions that hold what an INSERT locks: the table, or a sequence of it.

        `nextval` locks its sequence until the transaction ends, so also who has a number and no row yet is among them.
        NULL where that says nothing: on a replica, whose locks are its own; for what is no table; and where sessions
        take numbers of a sequence in advance (CACHE) and use them in a later transaction.
        """
        table = sql("to_regclass({})", self.text(self.table(parts)))
        family = sql(
            "family (oid) AS (SELECT CAST({} AS oid) UNION"
            " SELECT i.inhrelid FROM pg_inherits i JOIN family f ON i.inhparent = f.oid)",
            table,
        )
        # Those that a column owns (serial, identity), and those that a default calls.
        owned = sql(
            "SELECT d.objid AS oid FROM pg_depend d JOIN family f ON d.refobjid = f.oid"
            " WHERE d.classid = CAST('pg_class' AS regclass) AND d.refclassid = CAST('pg_class' AS regclass)"
        )
        called = sql(
            "SELECT d.refobjid FROM pg_attrdef a JOIN family f ON a.adrelid = f.oid"
            " JOIN pg_depend d ON d.classid = CAST('pg_attrdef' AS regclass) AND d.objid = a.oid"
            " WHERE d.refclassid = CAST('pg_class' AS regclass)"
        )
        numbers = sql(
            "numbers (oid) AS (SELECT s.seqrelid FROM pg_sequence s WHERE s.seqrelid IN ({} UNION {}))", owned, called
        )
        cached = sql("EXISTS (SELECT 1 FROM pg_sequence s JOIN numbers n ON n.oid = s.seqrelid WHERE s.seqcache > 1)")
        is_table = sql("EXISTS (SELECT 1 FROM pg_class r WHERE r.oid = {} AND r.relkind IN ('r', 'p'))", table)
        return sql(
            "WITH RECURSIVE {}, {}"
            " SELECT CAST(l.virtualtransaction AS text) AS writer FROM pg_locks l WHERE l.locktype = 'relation'"
            " AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())"
            " AND l.mode = 'RowExclusiveLock'"
            " AND l.relation IN (SELECT oid FROM family UNION SELECT oid FROM numbers)"
            " UNION SELECT NULL WHERE pg_is_in_recovery() OR {} OR NOT {}",
            family, numbers, cached, is_table,
        )  # fmt: skip

    def sequences(self, parts: Sequence[str], column: str) -> SQL:
        """Return the query for the sequence of an identity column, or of a default that is `nextval` alone.

        In a longer default it may be negated, or be no more than a part of the number.
        """
        identity = sql(
            "SELECT d.objid FROM pg_depend d WHERE d.classid = CAST('pg_class' AS regclass) AND d.deptype = 'i'"
            " AND d.refclassid = CAST('pg_class' AS regclass) AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum"
        )
        called = sql(
            "SELECT d.refobjid FROM pg_attrdef f JOIN pg_depend d ON d.classid = CAST('pg_attrdef' AS regclass)"
            " AND d.objid = f.oid AND d.refclassid = CAST('pg_class' AS regclass)"
            " WHERE f.adrelid = a.attrelid AND f.adnum = a.attnum AND pg_get_expr(f.adbin, f.adrelid)"
            " ~ '^[(]*nextval[(]''[^'']+''::regclass[)]+(::[a-z]+)?$'"
        )
        ends = _ends_early(sql("s.seqincrement"), sql("s.seqmin"), sql("s.seqmax"))
        return sql(
            "SELECT CAST(CAST(s.seqrelid AS regclass) AS text) AS sequence_name, CAST(s.seqincrement AS text) AS step,"
            " CASE WHEN s.seqcycle AND {} THEN 1 ELSE 0 END AS starts_again"
            " FROM pg_attribute a JOIN pg_sequence s ON s.seqrelid IN ({} UNION {})"
            " WHERE a.attrelid = to_regclass({}) AND a.attname = {}",
            ends, identity, called, self.text(self.table(parts)), self.text(column),
        )  # fmt: skip

    def open_since(self, delay: timedelta) -> SQL:
        """Return the query for the transactions of this database that have an id, or wait for a lock to write.

        Of whatever table: `now()` is the beginning of a transaction, also in the table that it writes to last. One that
        was prepared keeps no beginning, and whoever lacks the role may not see those of others.
        """
        # Who waits to write to a table has no id yet. VACUUM has such a lock on indexes only, and writes no row.
        waiting = sql(
            "SELECT l.pid FROM pg_locks l JOIN pg_class r ON r.oid = l.relation WHERE l.locktype = 'relation'"
            " AND l.database = a.datid AND l.mode = 'RowExclusiveLock' AND r.relkind IN ('r', 'p')"
        )
        prepared = sql("p.prepared - INTERVAL {}", in_quotes(f"{delay.total_seconds():f} seconds"))
        # In this order: one that is prepared between the two is in the first.
        return sql(
            "SELECT 'pid ' || a.pid AS writer, {} AS began FROM pg_stat_activity a"
            " WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()"
            " AND a.backend_type IS DISTINCT FROM 'autovacuum worker'"
            " AND (a.backend_xid IS NOT NULL OR a.pid IN ({}))"
            " UNION ALL SELECT 'prepared ' || p.transaction, {} FROM pg_prepared_xacts p"
            " WHERE p.database = current_database()"
            " UNION ALL SELECT 'hidden', NULL WHERE NOT pg_has_role('pg_read_all_stats', 'USAGE')",
            _text_in_utc(sql("a.xact_start")), waiting, _text_in_utc(prepared),
        )  # fmt: skip


NO_TEXT = sql("CAST(NULL AS CHAR)")
"""NULL with a type: over Spark Connect, Spark asks for that of each column, and refuses NULL alone."""


class MySQL(Database):
    """MySQL and MariaDB. Sessions are set to UTC: a TIMESTAMP compares with text of the session's zone."""

    name = "MySQL"
    quotes = ("`", "`")
    driver = "com.mysql.cj.jdbc.Driver"
    options = MappingProxyType({"useCursorFetch": "true"})
    session: SQL | None = sql("SET SESSION time_zone = '+00:00'")
    now = sql("CONCAT(DATE_FORMAT(UTC_TIMESTAMP(6), '%Y-%m-%d %H:%i:%s.%f'), '+00:00')")
    current_database = sql("DATABASE()")
    writers_late = timedelta(milliseconds=200)
    """InnoDB gives a number just before its transaction begins, and reads its list anew every tenth of a second."""

    def timestamp(self, value: datetime) -> SQL:
        """Write an instant; the session is in UTC."""
        return self.wall_clock(value)

    def has_void(self, column: CursorColumn) -> bool:
        """Tell whether a column can hold a zero date, ``0000-00-00``, as also one that is NOT NULL can."""
        return column.is_time

    def lacks(self, column: CursorColumn) -> SQL:
        """Write that a row has no value there: NULL, or a zero date, which is below every date."""
        if not column.is_time:
            return super().lacks(column)
        return sql("({} OR {})", super().lacks(column), self.comparison(column, "<", _first_value(column)))

    def has(self, column: CursorColumn) -> SQL:
        """Write that a row has a value there."""
        return self.comparison(column, ">=", _first_value(column)) if column.is_time else super().has(column)

    def bytes_as_text(self, digits: str) -> SQL:
        """Write bytes."""
        return sql("x{}", in_quotes(digits))

    def binary(self, name: SQL) -> SQL:
        """Write the bytes of a text in UTF-8."""
        return sql("CAST(CONVERT({} USING utf8mb4) AS BINARY)", name)

    def uuid(self, value: str, kind: str) -> SQL:
        """Write a UUID, or its bytes."""
        if kind == "uuid":
            return sql("CAST({} AS UUID)", in_quotes(value))
        return self.bytes_as_text(value.replace("-", ""))

    def uuid_version(self, column: CursorColumn) -> SQL:
        """Write the hex digit that says its version."""
        name = self.quote(column.name)
        return sql("SUBSTR(CAST({} AS CHAR), 15, 1)" if column.type == "uuid" else "SUBSTR(HEX({}), 13, 1)", name)

    def exact(self, expression: SQL, kind: str) -> SQL:
        """Write the exact text of a value; NULL for a zero date."""
        # '0000-00-00' is below every date, so it is the last value only where there is no other one.
        if kind in ("timestamp", "timestamp_ntz"):
            text = sql("NULLIF(DATE_FORMAT({}, '%Y-%m-%d %H:%i:%s.%f'), '0000-00-00 00:00:00.000000')", expression)
            return sql("CONCAT({}, '+00:00')", text) if kind == "timestamp" else text
        if kind == "date":
            return sql("NULLIF(DATE_FORMAT({}, '%Y-%m-%d'), '0000-00-00')", expression)
        return sql("HEX({})" if kind in ("string", "binary(16)") else "CAST({} AS CHAR)", expression)

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

    def catalogue(self, parts: Sequence[str]) -> SQL:
        """Return the query for a table's columns."""
        return sql(
            "SELECT c.COLUMN_NAME AS column_name, c.COLUMN_TYPE AS declared,"
            " CASE WHEN t.TABLE_TYPE <> 'BASE TABLE' THEN NULL WHEN EXISTS"
            " (SELECT 1 FROM information_schema.STATISTICS s WHERE s.TABLE_SCHEMA = c.TABLE_SCHEMA"
            " AND s.TABLE_NAME = c.TABLE_NAME AND s.COLUMN_NAME = c.COLUMN_NAME AND s.SEQ_IN_INDEX = 1)"
            " THEN 1 ELSE 0 END AS indexed,"
            " CASE WHEN c.IS_NULLABLE = 'NO' THEN 0 ELSE 1 END AS nullable"
            " FROM information_schema.COLUMNS c JOIN information_schema.TABLES t"
            " ON t.TABLE_SCHEMA = c.TABLE_SCHEMA AND t.TABLE_NAME = c.TABLE_NAME"
            " WHERE c.TABLE_SCHEMA = {} AND c.TABLE_NAME = {}",
            self._schema(parts), self.text(parts[-1]),
        )  # fmt: skip

    def _schema(self, parts: Sequence[str]) -> SQL:
        return self.text(parts[-2]) if len(parts) > 1 else self.current_database

    def identity(self, parts: Sequence[str]) -> SQL:
        """Return the query for which table it is; a schema is a database there, and no number outlives an ALTER."""
        return sql(
            "SELECT {0} AS database_name, t.TABLE_SCHEMA AS schema_name, t.TABLE_NAME AS table_name, {0} AS table_oid"
            " FROM information_schema.TABLES t WHERE t.TABLE_SCHEMA = {1} AND t.TABLE_NAME = {2}",
            NO_TEXT, self._schema(parts), self.text(parts[-1]),
        )  # fmt: skip

    def writers(self, parts: Sequence[str]) -> SQL:
        """Return the query for InnoDB's open transactions, of whatever table; NULL on a replica.

        Which tables they have written to is in no list that MySQL and MariaDB share.
        """
        # A replica that can be written to shows itself only by the threads that follow its primary; InnoDB's own have
        # the same user in older versions of MariaDB, and are daemons.
        follows = sql(
            "EXISTS (SELECT 1 FROM information_schema.PROCESSLIST p"
            " WHERE p.USER = 'system user' AND p.COMMAND <> 'Daemon')"
        )
        return sql(
            "SELECT CONCAT(trx_mysql_thread_id, ' ', trx_started) AS writer FROM information_schema.INNODB_TRX"
            " WHERE trx_is_read_only = 0 AND trx_mysql_thread_id <> CONNECTION_ID()"
            " UNION SELECT NULL AS writer FROM (SELECT 1 AS one) nothing WHERE @@read_only = 1 OR {}",
            follows,
        )

    def sequences(self, parts: Sequence[str], column: str) -> SQL:
        """Return the query for the sequence of a default that is `nextval` alone, as MariaDB has them; quoted."""
        return sql(
            "SELECT SUBSTR(c.COLUMN_DEFAULT, 9, CHAR_LENGTH(c.COLUMN_DEFAULT) - 9) AS sequence_name, {0} AS step,"
            " {0} AS starts_again FROM information_schema.COLUMNS c WHERE c.TABLE_SCHEMA = {1} AND c.TABLE_NAME = {2}"
            " AND c.COLUMN_NAME = {3} AND c.COLUMN_DEFAULT REGEXP '^nextval[(].*[)]$'",
            NO_TEXT, self._schema(parts), self.text(parts[-1]), self.text(column),
        )  # fmt: skip

    def sequence(self, name: str) -> SQL:
        """Return the query for a sequence; SourceError unless its name is one or two quoted parts."""
        # What follows FROM comes from a catalogue.
        if not re.fullmatch(r'(`[^`]+`|"[^"]+")(\.(`[^`]+`|"[^"]+"))?', name):
            raise SourceError(self.name, "a default of it calls nextval in a form that is not known.")
        ends = _ends_early(sql("increment"), sql("minimum_value"), sql("maximum_value"))
        return sql(
            "SELECT increment AS step, CASE WHEN cycle_option AND {} THEN 1 ELSE 0 END AS starts_again FROM {}",
            ends, SQL(name),
        )  # fmt: skip

    def open_since(self, delay: timedelta) -> SQL:
        """Return the query for InnoDB's transactions that have written or have a lock; reads take none.

        A statement has its time from before its transaction begins, and InnoDB keeps the whole second of that.
        """
        began = sql("{} - INTERVAL 1 SECOND", self.instant_of_server(sql("trx_started")))
        return sql(
            "SELECT CONCAT('thread ', trx_mysql_thread_id) AS writer,"
            " CONCAT(DATE_FORMAT({}, '%Y-%m-%d %H:%i:%s.%f'), '+00:00') AS began FROM information_schema.INNODB_TRX"
            " WHERE trx_rows_modified + trx_lock_structs > 0 AND trx_mysql_thread_id <> CONNECTION_ID()",
            began,
        )

    def instant_of_server(self, wall_clock: SQL) -> SQL:
        """Write the instant, in UTC, of a wall clock in the zone of the machine, which InnoDB's list is in."""
        instant = sql("CONVERT_TZ({}, 'SYSTEM', '+00:00')", wall_clock)
        # In autumn an hour repeats, and the earlier of the two is meant: a later one would let a row come below it.
        hour_before = sql("{} - INTERVAL 1 HOUR", instant)
        is_repeated = sql("CONVERT_TZ({}, '+00:00', 'SYSTEM') = {}", hour_before, wall_clock)
        return sql("CASE WHEN {} THEN {} ELSE {} END", is_repeated, hour_before, instant)


class MariaDB(MySQL):
    """MariaDB by a ``jdbc:mariadb:`` URL, for which Spark writes names in double quotes."""

    name = "MariaDB"
    sorts_uuids = sql(
        "CAST('01900000-0000-7000-8000-000000000000' AS UUID) > CAST('01800000-ffff-7000-8000-000000000000' AS UUID)"
    )
    driver = "org.mariadb.jdbc.Driver"
    session = sql("SET SESSION time_zone = '+00:00', sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')")


def _first_value(column: CursorColumn) -> date:
    first = datetime(1, 1, 1, tzinfo=timezone.utc)
    return first.date() if column.type == "date" else first


def _between(expression: SQL, first: SQL, last: SQL) -> SQL:
    return sql("CASE WHEN {0} < {1} THEN {1} WHEN {0} > {2} THEN {2} ELSE {0} END", expression, first, last)


def with_tick(kind: str | None) -> tuple[str, Tick | None] | None:
    """Return a type with the tick that it has by itself."""
    return None if kind is None else (kind, None)


class FetchingDatabase(Database):
    """A database that has ``FETCH NEXT`` and no ``LIMIT``."""

    def row_at(self, position: int, ordered: SQL) -> SQL:
        """Return what of an ordered query is one row, counted from 0."""
        return sql("{} OFFSET {} ROWS FETCH NEXT 1 ROWS ONLY", ordered, whole(position))

    def first_rows(self, count: int, ordered: SQL) -> SQL:
        """Return what of an ordered query are its first rows."""
        return sql("{} OFFSET 0 ROWS FETCH NEXT {} ROWS ONLY", ordered, whole(count))


DATETIME_TICK = timedelta(microseconds=3_333)
"""SQL Server's DATETIME has steps of 1/300 s; what is a whole step above a value is below the next one. Rounded up,
a bound just past a row would be past the next row as well, which may come later."""


class SQLServer(FetchingDatabase):
    """SQL Server and Azure SQL."""

    name = "SQL Server"
    quotes = ("[", "]")
    driver = "com.microsoft.sqlserver.jdbc.SQLServerDriver"
    now = sql("CONVERT(char(26), SYSUTCDATETIME(), 121) + '+00:00'")
    encoding = "utf-16-le"
    unfit = MappingProxyType(
        {"uniqueidentifier": "SQL Server sorts a uniqueidentifier by its last six bytes first, whatever its version"}
    )
    orders_within = False
    current_database = sql("DB_NAME()")

    def timestamp(self, value: datetime) -> SQL:
        """Write an instant."""
        return sql("CAST({} AS datetimeoffset(6))", in_quotes(f"{wall_text(value)}+00:00".replace(" ", "T")))

    def wall_clock(self, value: datetime) -> SQL:
        """Write a timestamp without zone, in the form that no language setting reads otherwise."""
        return sql("CAST({} AS datetime2(6))", in_quotes(wall_text(value).replace(" ", "T")))

    def date(self, value: date) -> SQL:
        """Write a date."""
        return sql("CAST({} AS date)", in_quotes(value.isoformat()))

    def bytes_as_text(self, digits: str) -> SQL:
        """Write the bytes of a text in UTF-16, as the server holds them."""
        return SQL(f"0x{bytes.fromhex(digits).decode().encode('utf-16-le').hex()}")

    def binary(self, name: SQL) -> SQL:
        """Write the bytes of a text: every collation ignores spaces at the end."""
        return sql("CAST(CAST({} AS nvarchar(4000)) AS varbinary(8000))", name)

    def exact(self, expression: SQL, kind: str) -> SQL:
        """Write the exact text of a value, down to the microsecond."""
        if kind == "timestamp":
            return sql("{} + '+00:00'", self.exact(sql("SWITCHOFFSET({}, '+00:00')", expression), "timestamp_ntz"))
        if kind == "timestamp_ntz":
            return sql("CONVERT(char(26), CAST({} AS datetime2(7)), 121)", expression)
        if kind == "date":
            return sql("CONVERT(char(10), {}, 23)", expression)
        return sql("CONVERT(varchar(max), {}, 2)" if kind == "string" else "CONVERT(varchar(50), {})", expression)

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

    def catalogue(self, parts: Sequence[str]) -> SQL:
        """Return the query for a table's columns."""
        return sql(
            "SELECT c.name AS column_name, y.name + CASE WHEN y.name IN ('decimal', 'numeric') THEN '('"
            " + CAST(c.precision AS varchar(3)) + ',' + CAST(c.scale AS varchar(3)) + ')'"
            " WHEN y.name IN ('datetime2', 'datetimeoffset') THEN '(' + CAST(c.scale AS varchar(3)) + ')'"
            " ELSE '' END AS declared, CASE WHEN o.type <> 'U' THEN NULL WHEN EXISTS (SELECT 1 FROM sys.index_columns k"
            " JOIN sys.indexes i ON i.object_id = k.object_id AND i.index_id = k.index_id"
            " WHERE k.object_id = c.object_id AND k.column_id = c.column_id AND k.key_ordinal = 1 AND i.has_filter = 0"
            " AND i.type IN (1, 2)) THEN 1 ELSE 0 END AS indexed, CAST(c.is_nullable AS int) AS nullable"
            " FROM sys.columns c JOIN sys.types y ON y.user_type_id = c.system_type_id"
            " JOIN sys.objects o ON o.object_id = c.object_id"
            " WHERE c.object_id = OBJECT_ID(CAST({} AS nvarchar(4000)))",
            self.text(self.table(parts)),
        )

    def identity(self, parts: Sequence[str]) -> SQL:
        """Return the query for which table it is."""
        return sql(
            "SELECT DB_NAME() AS database_name, s.name AS schema_name, o.name AS table_name, NULL AS table_oid"
            " FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id"
            " WHERE o.object_id = OBJECT_ID(CAST({} AS nvarchar(4000)))",
            self.text(self.table(parts)),
        )

    def count_up_to(self, limit: int, table: SQL, predicate: SQL) -> SQL:
        """Return the query that counts rows, but no further than a limit."""
        rows = sql("SELECT TOP ({}) 1 AS one FROM {} WHERE {}", whole(limit), table, predicate)
        return sql("SELECT COUNT(*) FROM ({}) few", rows)


class Oracle(FetchingDatabase):
    """Oracle 12.1 and later. Names are case-sensitive here and mostly written in capitals there."""

    name = "Oracle"
    driver = "oracle.jdbc.OracleDriver"
    now = sql("TO_CHAR(SYS_EXTRACT_UTC(SYSTIMESTAMP), 'YYYY-MM-DD HH24:MI:SS.FF6') || '+00:00'")
    from_nothing = sql(" FROM DUAL")
    current_database = sql("SYS_CONTEXT('USERENV', 'DB_NAME')")

    def quote(self, name: str) -> SQL:
        """Quote a name; SourceError for a double quote, which no name there may hold."""
        if '"' in name:
            raise SourceError(name, "Oracle has no names with a double quote. Check the name.")
        return super().quote(name)

    def timestamp(self, value: datetime) -> SQL:
        """Write an instant."""
        return sql("TIMESTAMP {}", in_quotes(f"{wall_text(value)} +00:00"))

    def wall_clock(self, value: datetime) -> SQL:
        """Write a timestamp without zone; in whole seconds as a DATE, so that an index on a DATE serves it."""
        # Compared with a TIMESTAMP, Oracle would cast every DATE of the table to one, and no index on it serves.
        if value.microsecond:
            return super().wall_clock(value)
        return sql("TO_DATE({}, 'YYYY-MM-DD HH24:MI:SS')", in_quotes(wall_text(value)[:19]))

    def bytes_as_text(self, digits: str) -> SQL:
        """Write bytes."""
        return sql("HEXTORAW({})", in_quotes(digits))

    def binary(self, name: SQL) -> SQL:
        """Write the bytes of a text."""
        return sql("UTL_RAW.CAST_TO_RAW({})", name)

    def exact(self, expression: SQL, kind: str) -> SQL:
        """Write the exact text of a value, down to the microsecond."""
        if kind == "timestamp":
            return sql("TO_CHAR(SYS_EXTRACT_UTC({}), 'YYYY-MM-DD HH24:MI:SS.FF6') || '+00:00'", expression)
        if kind == "timestamp_ntz":
            return sql("TO_CHAR(CAST({} AS TIMESTAMP(9)), 'YYYY-MM-DD HH24:MI:SS.FF6')", expression)
        if kind == "string":
            return sql("RAWTOHEX({})", expression)
        return sql("TO_CHAR({}, 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')", expression)

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

    def catalogue(self, parts: Sequence[str]) -> SQL:
        """Return the query for a table's columns."""
        return sql(
            "SELECT c.COLUMN_NAME AS column_name, c.DATA_TYPE || CASE WHEN c.DATA_TYPE = 'NUMBER'"
            " AND c.DATA_SCALE IS NOT NULL THEN '(' || COALESCE(c.DATA_PRECISION, 38) || ',' || c.DATA_SCALE || ')'"
            " END AS declared, CASE WHEN EXISTS (SELECT 1 FROM ALL_VIEWS v WHERE v.OWNER = c.OWNER"
            " AND v.VIEW_NAME = c.TABLE_NAME) THEN NULL WHEN EXISTS (SELECT 1 FROM ALL_IND_COLUMNS i"
            " WHERE i.TABLE_OWNER = c.OWNER AND i.TABLE_NAME = c.TABLE_NAME AND i.COLUMN_NAME = c.COLUMN_NAME"
            " AND i.COLUMN_POSITION = 1) THEN 1 ELSE 0 END AS indexed,"
            " CASE WHEN c.NULLABLE = 'N' THEN 0 ELSE 1 END AS nullable"
            " FROM ALL_TAB_COLUMNS c WHERE c.OWNER = {} AND c.TABLE_NAME = {}",
            *self._owner_and_name(parts),
        )

    def _owner_and_name(self, parts: Sequence[str]) -> tuple[SQL, SQL]:
        names = [sql("UTL_RAW.CAST_TO_VARCHAR2({})", self.text(part)) for part in parts]
        return names[-2] if len(names) > 1 else sql("SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')"), names[-1]

    def identity(self, parts: Sequence[str]) -> SQL:
        """Return the query for which table it is."""
        return sql(
            "SELECT SYS_CONTEXT('USERENV', 'DB_NAME') AS database_name, {} AS schema_name, {} AS table_name,"
            " NULL AS table_oid FROM DUAL",
            *self._owner_and_name(parts),
        )

    def count_up_to(self, limit: int, table: SQL, predicate: SQL) -> SQL:
        """Return the query that counts rows, but no further than a limit."""
        rows = sql("SELECT 1 AS one FROM {} WHERE {} FETCH FIRST {} ROWS ONLY", table, predicate, whole(limit))
        return sql("SELECT COUNT(*) FROM ({}) few", rows)


class SQLite(Database):
    """SQLite. Its times are texts or numbers: a text in ISO form can be read with ``strings=True``.

    A column that is declared as a date or timestamp keeps what looks like a number as one, and numbers
    are below every text there: it is compared as text, which no index serves. One declared as STRING
    or TIME is refused, as leading zeros are lost in it.
    """

    name = "SQLite"
    driver = "org.sqlite.JDBC"
    now = sql("strftime('%Y-%m-%d %H:%M:%f', 'now') || '000+00:00'")

    def writers(self, parts: Sequence[str]) -> SQL:
        """Return a query of no row: one transaction writes at a time, so numbers are committed in their order."""
        return sql("SELECT NULL AS writer WHERE 1 = 0")

    def __init__(self, loose: frozenset[str] = frozenset()) -> None:
        self._loose = loose
        """Columns that keep numbers among their texts."""

    def of_table(self, declared: Mapping[str, str]) -> Database:
        """Return the dialect that knows which columns are not declared as text."""
        return SQLite(frozenset(name for name, text in declared.items() if not _has_text_affinity(text)))

    def serves(self, column: CursorColumn) -> bool:
        """Tell whether an index serves; none does for a column that is compared as what it is not."""
        return column.type != "string" or column.name not in self._loose

    def cursor(self, column: CursorColumn) -> SQL:
        """Write a cursor column as it is compared; a text byte by byte, even where numbers are among them."""
        if self.serves(column):
            return super().cursor(column)
        return self.binary(sql("CAST({} AS TEXT)", self.quote(column.name)))

    def bytes_as_text(self, digits: str) -> SQL:
        """Write a text."""
        return sql("CAST(x{} AS TEXT)", in_quotes(digits))

    def binary(self, name: SQL) -> SQL:
        """Write a text column so that it compares byte by byte."""
        return sql("{} COLLATE BINARY", name)

    def exact(self, expression: SQL, kind: str) -> SQL:
        """Write the exact text of a value; what is no hex for bytes, which are above every text."""
        if kind == "string":
            return sql("CASE typeof({0}) WHEN 'text' THEN hex({0}) WHEN 'blob' THEN 'blob' END", expression)
        return sql("CAST({} AS TEXT)", expression)

    def cursor_type(self, declared: str) -> tuple[str, Tick | None] | None:
        """Return Spark's type of a declared type, by SQLite's rules of affinity."""
        lower = declared.lower()
        if "int" in lower:
            return with_tick("bigint")
        is_time = "date" in lower or "timestamp" in lower
        return ("string", None) if is_time or _has_text_affinity(declared) else None

    def catalogue(self, parts: Sequence[str]) -> SQL:
        """Return the query for a table's columns."""
        # Hidden are those of virtual tables (1), and in other ways those that SQLite computes (2, 3), which count.
        return sql(
            "SELECT c.name AS column_name, c.type AS declared, CASE WHEN m.type <> 'table' THEN NULL"
            " WHEN c.pk = 1 OR EXISTS (SELECT 1 FROM pragma_index_list(m.name) l, pragma_index_info(l.name) i"
            " WHERE l.partial = 0 AND i.seqno = 0 AND i.cid = c.cid) THEN 1 ELSE 0 END AS indexed,"
            ' CASE WHEN c."notnull" = 1 THEN 0 ELSE 1 END AS nullable'
            " FROM sqlite_master m, pragma_table_xinfo(m.name) c WHERE m.type IN ('table', 'view')"
            " AND m.name = {} AND c.hidden <> 1",
            self.text(parts[-1]),
        )

    def identity(self, parts: Sequence[str]) -> SQL:
        """Return the query for which table it is: the database is a file, which the URL names."""
        return sql(
            "SELECT NULL AS database_name, NULL AS schema_name, m.name AS table_name, NULL AS table_oid"
            " FROM sqlite_master m WHERE m.type IN ('table', 'view') AND m.name = {}",
            self.text(parts[-1]),
        )


def _has_text_affinity(declared: str) -> bool:
    lower = declared.lower()
    return "int" not in lower and any(word in lower for word in TEXT_TYPES)
