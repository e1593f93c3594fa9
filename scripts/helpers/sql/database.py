"""Write SQL for each database: names, literals, exact text, the clock, and queries of its catalogue. Pure.

Values are sent and returned as text, so that neither a driver nor a session's time zone can change them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import le
from types import MappingProxyType

from scripts.helpers.errors import CursorError, SourceError, TargetError
from scripts.helpers.rows.cursors import TEXTS, TIMES, WHOLE, Cursor, CursorColumn, Tick
from scripts.helpers.rows.dialect import Dialect
from scripts.helpers.rows.sql import SQL, VALUE, joined, sql, whole
from scripts.helpers.sql.query_text import STANDARD

CATALOGUE = ("column_name", "declared", "indexed", "nullable", "filled", "wide", "base")
"""Columns of a catalogue query. For a database that is only read, it has the first four."""
IDENTITY = ("database_name", "schema_name", "table_name", "table_oid")
"""Columns of an identity query."""

WRITER, BEGAN = "writer", "began"
"""Columns of a query for writers."""
OWN = "own"
"""Name under which a query for writers lists its own transaction. A list that is out of date lacks it."""
NUMBERING = ("sequence_name", "step", "starts_again")
"""Columns of a query for sequences."""
MIN, MAX = sql("MIN"), sql("MAX")


@dataclass(frozen=True)
class TableColumn:
    """A column of a table, as the catalogue describes it.

    Attributes
    ----------
    declared, nullable
        The declared type, and whether the column allows NULL.
    indexed
        Whether an index begins with the column; None for a view.
    filled
        When the database sets the value itself: ``default`` if a row has none, ``always``, or None for never.
    wide
        The base type without numbers, such as ``numeric`` for ``numeric(9,2)`` or a domain of it; empty if unknown.
    base
        The base type with its numbers, such as ``numeric(9,2)`` for a domain of it; empty if it is as declared.
    """

    declared: str
    indexed: bool | None
    nullable: bool
    filled: str | None = None
    wide: str = ""
    base: str = ""


def columns_of_catalogue(rows: Iterable[Sequence[str | None]]) -> dict[str, TableColumn]:
    """Return the columns, by name, from the rows of a catalogue query: every value is text, and "1" means yes."""
    found = {}
    for name, declared, indexed, nullable, *more in rows:
        filled, wide, base = (*more, None, None, None)[:3]
        is_indexed = None if indexed is None else indexed == "1"
        found[str(name)] = TableColumn(str(declared), is_indexed, nullable == "1", filled, wide or "", base or "")
    return found


@dataclass(frozen=True)
class Declared:
    """The parts of a declared type: ``decimal(10,2) unsigned`` is decimal, (10, 2) and the text itself."""

    base: str
    numbers: tuple[int, ...]
    text: str

    @classmethod
    def parse(cls, text: str) -> Declared:
        """Split a declared type into its parts."""
        lower = text.strip().lower()
        inside = re.search(r"\(([\d, -]+)\)", lower)
        numbers = tuple(int(number) for number in inside[1].split(",")) if inside else ()
        # Keep the brackets of an array, which is another type than its elements.
        base = lower if lower.endswith("[]") else re.split(r"[\s(]", lower, maxsplit=1)[0]
        return cls(base, numbers, lower)

    @property
    def plain(self) -> str:
        """The type without the numbers in brackets, such as ``timestamp with time zone``."""
        return re.sub(r"\([^)]*\)", "", self.text)

    def decimal(self, unbounded: str | None) -> str | None:
        """Return Spark's type for a decimal: `unbounded` if no digits are declared, None if Spark has no such type."""
        if not self.numbers:
            return unbounded
        precision, scale = (*self.numbers, 0)[:2]
        # Spark would round decimals of more than 38 digits, or of a scale below 0, which Oracle allows.
        is_held_by_spark = precision <= 38 and 0 <= scale <= precision
        return f"decimal({precision},{scale})" if is_held_by_spark else None

    def read_decimal(self, unbounded: str) -> str:
        """Return Spark's type cut to 38 digits; `unbounded` if no digits are given, NO_DECIMAL if Spark has no type."""
        if not self.numbers:
            return unbounded
        precision, scale = (*self.numbers, 0)[:2]
        if not 0 <= scale <= precision:
            return NO_DECIMAL
        places = min(scale, 38)
        return f"decimal({min(precision - scale + places, 38)},{places})"

    def tick(self, digits: int) -> timedelta:
        """Return the smallest step of times with the declared fractional digits, by default `digits`; at least 1 µs."""
        shown = self.numbers[0] if self.numbers else digits
        # Return at least 1 µs: Python and Spark cut off finer digits, so a smaller step might not get past the row.
        return timedelta(microseconds=10 ** (6 - min(shown, 6)))


TIME_OUTSIDE = "column {!r} has a time that does not fit {} (years 1 to 9999)"
"""Message that a database raises for a time that no reader can represent."""
UNFIT = re.compile(r"column '.{1,300}?' has a (?:number|time) that does not fit \w+ ?\([\w ,]+\)")
"""Pattern of the message that Spark raises for a number that a cast would round or turn into NULL, and that a database
raises for a time that no reader can represent. The message contains no value."""
TIME, NO_DECIMAL = "time", "no decimal"
"""`read_as_text` returns TIME for a time of day or a duration, which is read as the database's text of it, and
NO_DECIMAL for a decimal of a scale that Spark has no type for, so that Spark cannot even load the column."""
UNORDERED = ("float", "double", "boolean", "binary", "year")
"""Kinds of columns that cannot be exact cursors."""


class Database(Dialect):
    """A database that is read over JDBC."""

    url = ""
    """Prefix of its JDBC URLs."""
    driver = ""
    """Class of the usual JDBC driver."""
    options: Mapping[str, str] = MappingProxyType({})
    """Options of the JDBC driver for reading, such as those for fetching rows in portions."""
    session: SQL | None = None
    """Statement that each connection starts with."""
    spark_session: SQL | None = None
    """Statement for Spark's connections instead of `session`, if Spark quotes names differently from the database."""
    now = sql("")
    """Expression for the time at which the statement started, or earlier: ISO text in UTC."""
    from_nothing = sql("")
    """Clause that follows a SELECT that reads no table."""
    length = sql("LENGTH")
    """Function for the length of a text, including trailing blanks."""
    encoding = "utf-8"
    """Encoding of the bytes that the hex digits of a text stand for."""
    cluster = sql("")
    """Query for an id of this cluster of servers, if the database has one; a user may lack the right to run it."""
    corrected_kinds: tuple[str, ...] = ()
    """Types of which drivers change only some values, so that only these values are read as text."""
    system_columns: Mapping[str, TableColumn] = MappingProxyType({})
    """Columns that every table has, but that neither its catalogue nor ``*`` shows."""
    writers_lag = timedelta(0)
    """How long a transaction that has a number may be missing from the list of `writers`."""

    unfit: Mapping[str, str] = MappingProxyType({})
    """Types that seem to have an order, each with the reason why a run cannot resume from it."""
    sorts_uuids = sql("")
    """Condition that the server sorts UUIDs by their bytes; empty if all its versions do."""
    grammar = STANDARD
    """Patterns to check the SQL of a query, and whether a subquery may have ORDER BY or start with WITH."""
    current_database = sql("")
    """Expression for the database that a query runs in, if a server can have several."""
    kinds: Mapping[str, str] = MappingProxyType({})
    """Spark's types by declared type, either as a whole without numbers, or by its first word."""
    plain_decimal = ""
    """Spark's type of a decimal that is declared without digits."""
    digits = 6
    """Fractional digits of a time, if none are declared."""
    ticks: Mapping[str, timedelta] = MappingProxyType({})
    """Steps of the types of times that are declared without digits."""

    def cuts_by(self, column: CursorColumn) -> bool:
        """Return whether a large window may be split by a column; texts have no middle to split at."""
        return column.type not in TEXTS

    def for_table(self, declared: Mapping[str, str]) -> Database:
        """Return the dialect for a table, which may depend on the declared types of its columns."""
        return self

    def serves(self, column: CursorColumn) -> bool:
        """Return whether comparisons of a cursor column can use an index on that column."""
        return column.type != "string"

    def table(self, parts: Sequence[str]) -> SQL:
        """Quote a table's name, part by part."""
        return joined(".", map(self.quote, parts))

    def text(self, value: str) -> SQL:
        """Write a text as its bytes in hex; raise SourceError if it contains NUL."""
        if "\0" in value:
            raise SourceError(self.name, "no text in a query may hold NUL. Correct the name or value.")
        return self.bytes_as_text(value.encode().hex())

    def bytes_as_text(self, digits: str) -> SQL:
        """Return an SQL constant for a text, given its bytes in hex. Compare it with a text column's `binary` form."""
        raise NotImplementedError

    def cursor(self, column: CursorColumn) -> SQL:
        """Write a cursor column in the form used in comparisons: texts compare byte by byte, without padding."""
        name = self.quote(column.name)
        return self.binary(name) if column.type == "string" else name

    def binary(self, name: SQL) -> SQL:
        """Return SQL for a text column that makes the database compare its values byte by byte."""
        raise NotImplementedError

    def exact(self, expression: SQL, kind: str) -> SQL:
        """Write the exact text of a value: times with microseconds, instants in UTC, texts as hex."""
        raise NotImplementedError

    def value(self, text: str, column: CursorColumn) -> Cursor:
        """Return the value of a text that `exact` wrote; raise CursorError if the column's type cannot hold it."""
        if column.type == "string":
            return self._text_of(text, column.name)
        found = column.from_text(text)
        # Refuse a value that does not fit. A decimal without declared digits is read as one of 38 digits, and a bound
        # made of the rounded value would be below or above the row that has the value.
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
        """Return the query for the exact text of a column's MIN or MAX; `rows` begins with ``FROM``."""
        return sql("(SELECT {} {})", self.exact(sql("{}({})", function, self.cursor(column)), column.type), rows)

    def uuid_version(self, column: CursorColumn) -> SQL:
        """Write the hex digit of a UUID that is its version, as text."""
        raise NotImplementedError

    def kind(self, declared: str) -> str | None:
        """Return Spark's type for a declared type, such as ``decimal`` for ``numeric(9,2)``; None if Spark has none."""
        found = Declared.parse(declared)
        return self.kinds.get(found.plain, self.kinds.get(found.base))

    def cursor_type(self, declared: str) -> tuple[str, Tick | None] | None:
        """Return Spark's type and the tick (step between times) of a declared type; None if it has no exact order."""
        found, kind = Declared.parse(declared), self.kind(declared)
        if kind in ("timestamp", "timestamp_ntz"):
            return kind, self.ticks.get(found.base) or found.tick(self.digits)
        if kind == "decimal":
            kind = found.decimal(self.plain_decimal)
        return None if kind is None or kind in UNORDERED else (kind, None)

    def read_as_text(self, declared: str) -> str | None:
        """Return Spark's type of a column that is read as text because drivers may change its values; else None."""
        kind, _ = self.cursor_type(declared) or (None, None)
        found = Declared.parse(declared)
        # Read a time of day as text: drivers turn it into a moment of 1970 without fraction, 838:59:59 into 22:59:59.
        if found.base in ("time", "timetz"):
            return TIME
        if self.kind(declared) == "decimal" and not (kind and found.numbers):
            return found.read_decimal(self.plain_decimal)
        return kind if kind in TIMES else None

    def spark_type(self, declared: str) -> str | None:
        """Return the type that Spark must be given for a column; None if Spark's own choice is right."""
        return None

    def corrected(self, expression: SQL, kind: str, name: str) -> SQL:
        """Return SQL for a column's exact text; for `corrected_kinds`, NULL for each value that drivers do not change.

        A time outside the years 1 to 9999, except infinity, raises a database error with `name` (matching `UNFIT`).
        """
        return self.exact(expression, kind)

    def prepared(self, query: SQL) -> SQL:
        """Write a query so that its driver finds no parameters in it."""
        return query

    def plain(self, column: SQL, declared: str) -> tuple[SQL, str] | None:
        """Return a column's SQL and type for a reader without Spark; None if the column cannot be read exactly.

        It is not called for columns that are read as exact text.
        """
        kind, _ = self.cursor_type(declared) or (self.kind(declared), None)
        return None if kind is None else (column, kind)

    def inside(self, expression: SQL, kind: str, name: str) -> SQL:
        """Write a time so that every reader can represent it: as exact text, or as a time in the years 1 to 9999.

        Infinity becomes the first or last one. A time outside raises a database error with `name` (matching `UNFIT`).
        """
        return self.exact(expression, kind)

    def declared(self, kind: str, precision: int, scale: int) -> str:
        """Return a type as the catalogue declares it, from a driver's description of a column of a query."""
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
        """Return the query for a table's columns; see `CATALOGUE`. An `indexed` of NULL means that it is unknown."""
        raise NotImplementedError

    def identity(self, parts: Sequence[str]) -> SQL:
        """Return the query that identifies a table: its database, schema and name, and the server's number for it.

        The number changes if the table is dropped and created again. It is NULL if the database has no such number.
        """
        raise NotImplementedError

    def writers(self, parts: Sequence[str], column: str) -> SQL:
        """Return the query for the names, never reused, of open transactions that may have taken numbers for `column`.

        A NULL among the names means that the list is incomplete. Empty SQL means that the database has no such query.
        """
        return sql("")

    def open_since(self, parts: Sequence[str], delay: timedelta) -> SQL:
        """Return the query for open transactions that have written to any table of the database: name, start in UTC.

        If some are hidden, one row has the reason as name and no start. Empty SQL means: there is no such query.

        Parameters
        ----------
        parts
            The parts of the name of the table that is read; empty for a query.
        delay
            A transaction whose beginning the server does not keep is taken to have begun this long before it was seen.
        """
        return sql("")

    def asking_options(self, options: Mapping[str, str]) -> Mapping[str, str]:
        """Return the options of a connection that runs small queries, one after the other."""
        return options

    def listing_options(self, options: Mapping[str, str]) -> Mapping[str, str] | None:
        """Return options for a connection that begins a transaction, which shows whether lists of transactions are new.

        `writers` and `open_since` list that transaction as `OWN`: a list without it is old. None if none can be old.
        """
        return None

    def sequences(self, parts: Sequence[str], column: str) -> SQL:
        """Return the query for the sequences that number a column: name, step, and 1 if it restarts at its end, else 0.

        If the step is NULL, the query of `sequence` returns it. Empty SQL means that the database has no such query.
        """
        return sql("")

    def sequence(self, name: str) -> SQL:
        """Return the query for a sequence that `sequences` found: step, and 1 if it restarts at its end, else 0."""
        raise NotImplementedError

    def count_up_to(self, limit: int, table: SQL, predicate: SQL) -> SQL:
        """Return the query that counts the rows that meet a condition, up to a limit."""
        rows = sql("SELECT 1 AS one FROM {} WHERE {}", table, predicate)
        return sql("SELECT COUNT(*) FROM ({}) few", self.some_rows(limit, rows))

    def some_rows(self, count: int, ordered: SQL, skipped: int = 0) -> SQL:
        """Limit an ordered query to `count` rows, after `skipped` rows."""
        return sql("{} LIMIT {} OFFSET {}", ordered, whole(count), whole(skipped))

    def as_row(self, **expressions: SQL) -> SQL:
        """Return a query for one row of named expressions."""
        named = (sql("{} AS {}", expression, self.quote(name)) for name, expression in expressions.items())
        return sql("SELECT {}{}", joined(", ", named), self.from_nothing)


def can_reach_end(step: SQL, smallest: SQL, largest: SQL) -> SQL:
    """Write the condition that a sequence can run out of numbers. One with the range of bigint counts as endless."""
    return sql(
        "CASE WHEN {} > 0 THEN {} < 9223372036854775806 ELSE {} > -9223372036854775807 END", step, largest, smallest
    )


# --- writing --------------------------------------------------------------------------------------
# The rest of this module is only for databases that are written to: how rows arrive, types, and statements.
#
# Rows arrive in a **landing** table, times and decimals as text, so that neither a driver nor a session's time zone can
# change them. The server copies them from there into the **staging** table, whose columns have the types of the target,
# so values that do not fit are refused before the commit. Publishing moves the rows to the target in one transaction.

HELD: Mapping[str | None, Sequence[str]] = {
    None: ("string",), "uuid": ("string",), "int": WHOLE, "bigint": WHOLE, "decimal": (*WHOLE, "decimal"),
    "double": ("float", "double"), "year": (),
}  # fmt: skip
"""Spark types whose values a column of a kind holds unchanged. A kind without an entry holds only its own values.
A column of a type that Spark lacks (None) takes text: before the commit, the server refuses text that is not valid."""


@dataclass(frozen=True)
class Arriving:
    """A column of the arriving rows: its name, position, and Spark's name of its type, ``unknown`` if all are NULL."""

    name: str
    kind: str
    position: int

    @property
    def landing(self) -> SQL:
        """The column's name in the landing table, which rows are written to first. It needs no quoting."""
        return sql("c{}", whole(self.position))

    @property
    def base(self) -> str:
        """The type without the digits of a decimal: ``decimal`` for ``decimal(10,2)``."""
        return self.kind.partition("(")[0]

    @property
    def is_text(self) -> bool:
        """Whether the landing table, into which rows are first written, has the column as text."""
        return self.base in (*TIMES, "string", "unknown", "decimal")

    @property
    def scale(self) -> int:
        """Digits after the decimal point of a decimal."""
        return Declared.parse(self.kind).numbers[1]


class WritableDatabase(Database):
    """A database that batches are written to."""

    modules: tuple[str, ...] = ()
    """Python drivers, by the package of their connections."""
    writing_options: Mapping[str, str] = MappingProxyType({})
    """Options of the JDBC driver for writing, such as those for sending many rows at once."""
    has_one_writer, holds_nul = False, True
    """Whether only one transaction can write at a time, and whether texts may contain NUL."""
    compared_as_text: Sequence[str] = ()
    """Spark types of numbers that the database stores and compares as text."""
    unfit_floats: Sequence[str] = ()
    """Special numbers that the database cannot store, or stores as NULL."""
    held: Mapping[str | None, Sequence[str]] = HELD
    open_scale = 0
    """Digits after the point of a decimal that is declared without digits."""
    types: Mapping[str, SQL]
    """Types to declare columns with, by Spark's type; ``unknown`` is for columns whose values are all NULL."""
    landing_text: SQL | None = None
    """Type of texts in a landing table; None for the type that `types` has."""
    longest_name = 0
    """Most bytes of a name; 0 for no limit."""
    writing_session: SQL | None = None
    """Statement that each connection for writing starts with."""
    impatient: SQL | None = None
    """Statement that limits how long the transaction waits for a lock."""
    begins = sql("BEGIN")
    """Statement that begins a transaction, if the driver does not begin one."""
    last_first = sql("")
    """Clause that sorts the rows of a query by their insertion, newest first."""
    insert, on_conflict = sql("INSERT"), sql("")
    """Beginning and end of an INSERT that does nothing if its key exists."""
    isolation: SQL | None = None
    """First statement of a transaction that publishes: it sets which work of other transactions is visible to it."""
    engine = sql("")
    """End of a CREATE TABLE that makes the table transactional."""
    by_bytes, moment = sql(""), sql("timestamptz")
    """Suffix of a text type that makes texts compare byte by byte; the type of a time with a zone."""
    attempt = sql("")
    """Expression for the connection or transaction that inserts: each attempt of a Spark task has its own."""
    compares_staged = False
    """Whether `changes` needs the staged row, `s`, as well as the row that landed."""
    rights = ""
    """Privileges that a user needs for staging tables, with ``{schema}`` in it, for error messages."""

    # --- the catalogue --------------------------------------------------------------------------

    def schema_of(self, parts: Sequence[str]) -> SQL:
        """Return the query for the schema that a table is in."""
        return sql("SELECT schema_name FROM ({}) found", self.identity(parts))

    def number_of(self, parts: Sequence[str]) -> SQL:
        """Return the query for a text that changes when the table is created again; NULL if the database has none."""
        return sql("SELECT table_oid FROM ({}) found", self.identity(parts))

    def tables_like(self, schema: str, start: str) -> SQL:
        """Return the query for the tables of a schema whose names begin with a text."""
        raise NotImplementedError

    def constraints(self, parts: Sequence[str]) -> Sequence[SQL]:
        """Return the queries for the unique keys of a table and for its CHECK constraints.

        They return three columns. For each part of a unique key: the key's name, the part in SQL (NULL if the database
        cannot show it), and the key's condition. For CHECKs: in the second column, SQL that declares them. Leave out
        keys if triggers or rules of the table may change or drop inserted rows before the keys are checked.
        """
        raise NotImplementedError

    def is_transactional(self, parts: Sequence[str]) -> SQL | None:
        """Return a query for 1 if a table is transactional, else 0, or no row for a view; None if every table is."""
        return None

    # --- types ----------------------------------------------------------------------------------

    def takes(self, column: Arriving, declared: str) -> bool:
        """Return whether a declared type can store every value of an arriving column unchanged."""
        kind, numbers = self.kind(declared), Declared.parse(declared).numbers
        if kind == column.base == "decimal":
            return column.scale <= ((*numbers, 0)[1] if numbers else self.open_scale)
        return column.kind == "unknown" or column.base in self.held.get(kind, (kind,))

    def keeps(self, staged: str, declared: str) -> bool:
        """Return whether an INSERT from a staging table's type into a declared type never changes a value silently.

        Compare types, not values: in SQL, a timestamp equals the timestamptz made of it, though that is another time.
        """
        one, other = Declared.parse(staged), Declared.parse(declared)
        is_longer = one.plain == other.plain and 0 < len(one.numbers) == len(other.numbers)
        is_text = self.kind(staged) == "string" and declared.endswith("text")
        is_longer = is_longer and all(map(le, one.numbers, other.numbers))
        return staged == declared or is_longer or is_text or {self.kind(staged), self.kind(declared)} <= {*WHOLE}

    def step(self, declared: str) -> timedelta:
        """Return the smallest difference between two times of a declared type; 0 for any other type."""
        _, tick = self.cursor_type(declared) or ("", None)
        return tick if isinstance(tick, timedelta) else timedelta(0)

    def arrived(self, column: Arriving, declared: str) -> SQL:
        """Return SQL to INSERT a value of the landing table, where rows are written first, as the type `declared`."""
        return sql("l.{}", column.landing)

    def changes(self, column: Arriving, target: TableColumn) -> SQL | None:
        """Return the condition that the types of the staging table, `s`, changed a value of the landing table, `l`.

        None if they never do. A value only formatted differently, such as a json or a uuid, counts as unchanged. One
        that is cut, padded, rounded or changed in case counts as changed: a reader would not get back what was written.
        """
        return None

    def landing_type(self, column: Arriving) -> SQL:
        """Return the type of a column in the landing table, into which rows are written before they are converted."""
        if column.is_text:
            return self.landing_text or self.types["string"]
        return self.types["bigint" if column.kind in WHOLE else column.kind]

    def declaration(self, column: Arriving) -> str:
        """Return the type that a target should declare for a column of the rows, for error messages."""
        name = self.types[column.base]
        return name if name == self.types["string"] else name + column.kind.removeprefix(column.base)

    def filling_options(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the options of Spark's writer, made from the options of a connection."""
        return dict(options)

    # --- statements -----------------------------------------------------------------------------

    def batches_table(self, table: SQL) -> SQL:
        """Return the CREATE TABLE for the table that records published batches."""
        return sql(
            "CREATE TABLE IF NOT EXISTS {0} (target varchar(64){1} NOT NULL, job varchar(32){1} NOT NULL, "
            "epoch varchar(64){1} NOT NULL, version bigint NOT NULL, job_name varchar(255){1}, "
            "staged varchar(64) NOT NULL, published_at {2} NOT NULL DEFAULT CURRENT_TIMESTAMP, "
            "PRIMARY KEY (target, job, epoch, version)){3}",
            table, self.by_bytes, self.moment, self.engine,
        )  # fmt: skip

    def create_like(self, table: SQL, columns: Sequence[SQL], like: SQL, own: Sequence[SQL] = ()) -> SQL:
        """Return the CREATE TABLE of a table with another table's columns, nullable, and new bigint columns `own`."""
        values = joined(", ", [*columns, *(sql("CAST(0 AS bigint) AS {}", name) for name in own)])
        return sql("CREATE TABLE {} AS SELECT {} FROM {} WHERE 1 = 0", table, values, like)

    def insert_once(self, into: SQL) -> SQL:
        """Return a record's INSERT. It waits for other INSERTs of its key, and does nothing if the key exists."""
        columns, marks = sql("target, job, epoch, job_name, version, staged"), joined(", ", [VALUE] * 6)
        return sql("{} INTO {} ({}) VALUES ({}){}", self.insert, into, columns, marks, self.on_conflict)

    def differ(self, one: SQL, other: SQL, declared: str) -> SQL:
        """Write the condition that two values differ: NULL equals NULL, and collations are ignored."""
        raise NotImplementedError

    def update_from(self, table: SQL, source: SQL, on: SQL, sets: Mapping[str, SQL], where: SQL) -> SQL:
        """Return an UPDATE of a table, aliased ``t``, from a source with its own alias."""
        listed = joined(", ", (sql("{} = {}", self.quote(name), value) for name, value in sets.items()))
        return sql("UPDATE {} AS t SET {} FROM {} WHERE ({}) AND ({})", table, listed, source, on, where)

    def delete_where(self, table: SQL, condition: SQL) -> SQL:
        """Return a DELETE from a table, aliased ``t``."""
        return sql("DELETE FROM {} AS t WHERE {}", table, condition)


def writable(database: Database) -> WritableDatabase:
    """Return the database as a WritableDatabase; raise TargetError if it can only be read."""
    if isinstance(database, WritableDatabase):
        return database
    raise TargetError(
        database.name, "batches are written to PostgreSQL, MySQL, MariaDB and SQLite. Write files, and load them there."
    )
