"""How SQL is written for each database: names, literals, exact text, the clock, and what its catalogue knows. Pure.

Values travel as text both ways, so neither a driver nor the zone of a session can change them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType

from scripts.helpers.errors import CursorError, SourceError, TargetError
from scripts.helpers.rows.cursors import TEXTS, TIMES, WHOLE, Cursor, CursorColumn, Tick
from scripts.helpers.rows.dialect import Dialect
from scripts.helpers.rows.sql import SQL, VALUE, joined, sql, whole
from scripts.helpers.sql.query_text import STANDARD

CATALOGUE = ("column_name", "declared", "indexed", "nullable", "filled", "wide", "base")
"""Columns of a catalogue query. That of a database that is only read has the first four."""
IDENTITY = ("database_name", "schema_name", "table_name", "table_oid")
"""Columns of an identity query."""

WRITER, BEGAN = "writer", "began"
"""Columns of a query for writers."""
OWN = "own"
"""Name of the transaction that asks for writers, on a list that may be old."""
NUMBERING = ("sequence_name", "step", "starts_again")
"""Columns of a query for sequences."""
MIN, MAX = sql("MIN"), sql("MAX")


@dataclass(frozen=True)
class TableColumn:
    """A column of a table, as its catalogue has it.

    Attributes
    ----------
    declared, nullable
        Of the catalogue.
    indexed
        Whether an index begins with it; None for a view.
    filled
        What the database does by itself: ``default`` where a row has no value, ``always``, or None.
    wide
        The type without a length, a precision, a scale or a domain; empty where it is unknown.
    base
        The type with its length and without a domain, as values are read; empty where it is `declared`.
    """

    declared: str
    indexed: bool | None
    nullable: bool
    filled: str | None = None
    wide: str = ""
    base: str = ""


def columns_of_catalogue(rows: Iterable[Sequence[str | None]]) -> dict[str, TableColumn]:
    """Return the columns by name that a catalogue query finds: all is text, and 1 is yes."""
    found = {}
    for name, declared, indexed, nullable, *more in rows:
        filled, wide, base = (*more, None, None, None)[:3]
        is_indexed = None if indexed is None else indexed == "1"
        found[str(name)] = TableColumn(str(declared), is_indexed, nullable == "1", filled, wide or "", base or "")
    return found


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
        # An array is another type than what it holds.
        base = lower if lower.endswith("[]") else re.split(r"[\s(]", lower, maxsplit=1)[0]
        return cls(base, numbers, lower)

    @property
    def plain(self) -> str:
        """The type without what is in brackets, as in ``timestamp with time zone``."""
        return re.sub(r"\([^)]*\)", "", self.text)

    def decimal(self, unbounded: str | None) -> str | None:
        """Return the decimal type; `unbounded` where none is declared, None for more than 38 digits."""
        if not self.numbers:
            return unbounded
        precision, scale = (*self.numbers, 0)[:2]
        # What Spark has no decimal for would be read rounded: more than 38 digits, or a scale below 0 as in Oracle.
        is_held_by_spark = precision <= 38 and 0 <= scale <= precision
        return f"decimal({precision},{scale})" if is_held_by_spark else None

    def read_decimal(self, unbounded: str) -> str:
        """Return the decimal type that holds most of its values, as Spark reads them."""
        if not self.numbers:
            return unbounded
        precision, scale = (*self.numbers, 0)[:2]
        if not 0 <= scale <= precision:
            return NO_DECIMAL
        places = min(scale, 38)
        return f"decimal({min(precision - scale + places, 38)},{places})"

    def tick(self, digits: int) -> timedelta:
        """Return the step of a time by its digits after the second; at least a microsecond."""
        shown = self.numbers[0] if self.numbers else digits
        # Python and Spark hold microseconds. Of what is finer, the text is cut, so a microsecond above it is past it.
        return timedelta(microseconds=10 ** (6 - min(shown, 6)))


TIME_OUTSIDE = "column {!r} has a time that does not fit {} (years 1 to 9999)"
"""What a database raises for a time that no reader has."""
UNFIT = re.compile(r"column '.{1,300}?' has a (?:number|time) that does not fit \w+ ?\([\w ,]+\)")
"""What Spark raises for a number that a cast would round, or make NULL of, and a database for a time that no reader
has. It holds no value."""
TIME, NO_DECIMAL = "time", "no decimal"
"""What is read of a time of day, or of a duration: the text that the database has of it. And what stands for
a decimal whose scale Spark has no type for, so that it cannot even load the column."""
UNORDERED = ("float", "double", "boolean", "binary", "year")
"""Kinds of columns that no exact cursor is read from."""


class Database(Dialect):
    """A database that is read over JDBC."""

    url = ""
    """How its URLs begin."""
    driver = ""
    """Class of the usual JDBC driver."""
    options: Mapping[str, str] = MappingProxyType({})
    """What the driver needs to be told, so that it fetches rows bit by bit."""
    session: SQL | None = None
    """Statement that each connection starts with."""
    spark_session: SQL | None = None
    """Another one for the connections of Spark, where Spark quotes names in another way than the database."""
    now = sql("")
    """Time at which the statement started, or before: ISO text in UTC."""
    from_nothing = sql("")
    """What follows a SELECT that reads no table."""
    length = sql("LENGTH")
    """Function for the length of a text, with its blanks."""
    encoding = "utf-8"
    """What the hex digits of a text stand for."""
    cluster = sql("")
    """Query for what tells this cluster of servers from others, if there is one; a user may not be allowed to ask."""
    corrected_kinds: tuple[str, ...] = ()
    """Types that drivers change some values of only."""
    system_columns: Mapping[str, TableColumn] = MappingProxyType({})
    """Columns that every table has and neither its catalogue nor ``*`` shows."""
    writers_late = timedelta(0)
    """How long a transaction that has a number may not be on the list of `writers` yet."""

    unfit: Mapping[str, str] = MappingProxyType({})
    """Types that look as if they had an order, with the reason why none can be resumed from."""
    sorts_uuids = sql("")
    """Condition that the server sorts UUIDs by their bytes, where some versions of it do not."""
    grammar = STANDARD
    """Whether a subquery may have an order, or start with WITH."""
    current_database = sql("")
    """The database that a query is asked in, where the URL leads to a server of several."""
    kinds: Mapping[str, str] = MappingProxyType({})
    """Spark's types by those that columns are declared as, with or without what follows the first word."""
    plain_decimal = ""
    """Spark's type of a decimal that is declared without digits."""
    digits = 6
    """Digits of a time after the second, where none are declared."""
    ticks: Mapping[str, timedelta] = MappingProxyType({})
    """Steps of the times whose types have no digits."""

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

    def kind(self, declared: str) -> str | None:
        """Return Spark's type of a declared type, a decimal without its digits; None where it has none."""
        found = Declared.parse(declared)
        return self.kinds.get(found.plain, self.kinds.get(found.base))

    def cursor_type(self, declared: str) -> tuple[str, Tick | None] | None:
        """Return Spark's type and the tick of a declared type; None where there is no exact order."""
        found, kind = Declared.parse(declared), self.kind(declared)
        if kind in ("timestamp", "timestamp_ntz"):
            return kind, self.ticks.get(found.base) or found.tick(self.digits)
        if kind == "decimal":
            kind = found.decimal(self.plain_decimal)
        return None if kind is None or kind in UNORDERED else (kind, None)

    def read_as_text(self, declared: str) -> str | None:
        """Return Spark's type of a column whose rows are read as exact text, since a driver may shift or round them."""
        kind, _ = self.cursor_type(declared) or (None, None)
        found = Declared.parse(declared)
        # Drivers make a moment of 1970 of it, without its fraction: 838:59:59 is 22:59:59 there.
        if found.base in ("time", "timetz"):
            return TIME
        if self.kind(declared) == "decimal" and not (kind and found.numbers):
            return found.read_decimal(self.plain_decimal)
        return kind if kind in TIMES else None

    def spark_type(self, declared: str) -> str | None:
        """Return the type that Spark needs; None where its own choice is right."""
        return None

    def corrected(self, expression: SQL, kind: str, name: str) -> SQL:
        """Write the exact text of a column; NULL for a value of `corrected_kinds` that a driver gives as it is.

        The name of the column is for an error of the database that matches `UNFIT`.
        """
        return self.exact(expression, kind)

    def prepared(self, query: SQL) -> SQL:
        """Write a query so that its driver finds no parameter in it."""
        return query

    def plain(self, column: SQL, declared: str) -> tuple[SQL, str] | None:
        """Write a column for a reader without Spark, with the type that it is read as; None where none is exact.

        For columns that are not read as exact text.
        """
        kind, _ = self.cursor_type(declared) or (self.kind(declared), None)
        return None if kind is None else (column, kind)

    def inside(self, expression: SQL, kind: str, name: str) -> SQL:
        """Write a time so that every reader has its value: its exact text, or the time itself within the years.

        The name of the column is for an error of the database that matches `UNFIT`.
        """
        return self.exact(expression, kind)

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

    def writers(self, parts: Sequence[str], column: str) -> SQL:
        """Return the query for the open transactions that may hold numbers of a column, by names that are used once.

        A name of NULL says that the server cannot tell for this table. Empty where no such query is known.
        """
        return sql("")

    def open_since(self, parts: Sequence[str], delay: timedelta) -> SQL:
        """Return the query for the transactions that have written and are open: name, and when they began in UTC.

        To any table. Without a beginning, it is the reason why some are not seen. Empty where no such query is known.

        Parameters
        ----------
        parts
            The name of the table that is read; none of a query.
        delay
            How long before it was first seen a transaction may have begun, if the server does not keep that.
        """
        return sql("")

    def asking_options(self, options: Mapping[str, str]) -> Mapping[str, str]:
        """Return the options of a connection that asks questions, one after the other."""
        return options

    def listing_options(self, options: Mapping[str, str]) -> Mapping[str, str] | None:
        """Return the options of a connection that is among `writers` or `open_since` as `OWN`, unless the list is old.

        Each look opens one. None where the list is never old: it is asked as any question is.
        """
        return None

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
        return sql("SELECT COUNT(*) FROM ({}) few", self.some_rows(limit, rows))

    def some_rows(self, count: int, ordered: SQL, skipped: int = 0) -> SQL:
        """Return an ordered query for some of its rows, after those that are skipped."""
        return sql("{} LIMIT {} OFFSET {}", ordered, whole(count), whole(skipped))

    def as_row(self, **expressions: SQL) -> SQL:
        """Return a query of one row of named expressions."""
        named = (sql("{} AS {}", expression, self.quote(name)) for name, expression in expressions.items())
        return sql("SELECT {}{}", joined(", ", named), self.from_nothing)


def ends_early(step: SQL, smallest: SQL, largest: SQL) -> SQL:
    """Write that a sequence can come to its end: nobody gets to that of a bigint, which one without an end has."""
    return sql(
        "CASE WHEN {} > 0 THEN {} < 9223372036854775806 ELSE {} > -9223372036854775807 END", step, largest, smallest
    )


# --- writing --------------------------------------------------------------------------------------
# What a database that is written to has beside one that is read: how rows arrive, its types and statements.
#
# Rows arrive in a **landing** table, every time and every decimal as text, so neither a driver nor the zone of a
# session can change them. From there the server copies them into the **staging** table, whose columns have the types of
# the target: what does not fit is refused before the commit. Publishing moves them on within one transaction.

HELD: Mapping[str | None, Sequence[str]] = {
    None: ("string",), "uuid": ("string",), "int": WHOLE, "bigint": WHOLE, "decimal": (*WHOLE, "decimal"),
    "double": ("float", "double"), "year": (),
}  # fmt: skip
"""Which kinds of rows a column takes unchanged, where it is not its own kind alone. What Spark has no type for is read
by the server from text: it refuses what it cannot read before the commit."""


@dataclass(frozen=True)
class Arriving:
    """A column of the rows, by its position among theirs and Spark's name of its type: ``unknown`` if all are NULL."""

    name: str
    kind: str
    position: int

    @property
    def landing(self) -> SQL:
        """What it is called in the landing table, where no name needs quoting."""
        return sql("c{}", whole(self.position))

    @property
    def base(self) -> str:
        """The type without the digits of a decimal."""
        return self.kind.partition("(")[0]

    @property
    def is_text(self) -> bool:
        """Whether it lands as text."""
        return self.base in (*TIMES, "string", "unknown", "decimal")

    @property
    def scale(self) -> int:
        """Digits after the point of a decimal."""
        return Declared.parse(self.kind).numbers[1]


class WritableDatabase(Database):
    """A database that batches are written to."""

    modules: tuple[str, ...] = ()
    """Python drivers by the packages that their connections are of."""
    writing_options: Mapping[str, str] = MappingProxyType({})
    """What the JDBC driver is told, so that it sends many rows at once."""
    has_one_writer, holds_nul = False, True
    """Whether transactions that write come one after the other, and whether texts may have NUL."""
    unfit_floats: Sequence[str] = ()
    """Numbers that it has none for, or makes NULL of."""
    held: Mapping[str | None, Sequence[str]] = HELD
    open_scale = 0
    """Digits after the point of a decimal that is declared without digits."""
    types: Mapping[str, SQL]
    """What a column is declared as, by Spark's type; ``unknown`` where all values are NULL."""
    landing_text: SQL | None = None
    """What a landing table declares texts as; None for the type of texts."""
    longest_name = 0
    """Bytes of a name that it takes; 0 is no limit."""
    writing_session: SQL | None = None
    """Statement that each connection starts with."""
    impatient: SQL | None = None
    """Statement after which a transaction waits for a lock no longer than a while."""
    begins = sql("BEGIN")
    """Statement that begins a transaction, where the driver does not."""
    last_first = sql("")
    """What lets a query begin with the rows that came last."""
    insert, unless_there = sql("INSERT"), sql("")
    """How an INSERT begins and ends that does nothing if its key exists."""
    isolation: SQL | None = None
    """The first statement of a publication, for how much it sees of others."""
    engine = sql("")
    """What follows a CREATE TABLE, so that it takes part in transactions."""
    by_bytes, moment = sql(""), sql("timestamptz")
    """What follows a type of texts that are compared byte by byte; the type of a time with a zone."""
    attempt = sql("")
    """Expression for the connection or transaction that inserts: one attempt of a Spark task has one of its own."""
    compares_staged = False
    """Whether `changes` needs the staged row, `s`, beside the one that landed."""
    rights = ""
    """What a user needs to have staging tables, with ``{schema}`` in it: for texts of errors."""

    # --- the catalogue --------------------------------------------------------------------------

    def schema_of(self, parts: Sequence[str]) -> SQL:
        """Return the query for the schema that a table is found in."""
        return sql("SELECT schema_name FROM ({}) found", self.identity(parts))

    def number_of(self, parts: Sequence[str]) -> SQL:
        """Return the query for a text that is another one once the table was made again; NULL if none is known."""
        return sql("SELECT table_oid FROM ({}) found", self.identity(parts))

    def tables_like(self, schema: str, start: str) -> SQL:
        """Return the query for the tables of a schema whose names begin with a text."""
        raise NotImplementedError

    def constraints(self, parts: Sequence[str]) -> Sequence[SQL]:
        """Return the queries for the unique keys of a table and for its CHECK constraints.

        Of a unique key each part is a row: the name of the key, the part in SQL or NULL if the database cannot say it,
        and the condition of the key. In other rows the second column has CHECK constraints, among other text. None is
        found where a row may be changed, or ignored, as it is inserted: a staged row is not what is checked then.
        """
        raise NotImplementedError

    def is_transactional(self, parts: Sequence[str]) -> SQL | None:
        """Return the query for whether a table has transactions: 1 or 0, no row for a view. None where all have."""
        return None

    # --- types ----------------------------------------------------------------------------------

    def takes(self, column: Arriving, declared: str) -> bool:
        """Return whether a declared type holds every value of an arriving column as it is."""
        kind, numbers = self.kind(declared), Declared.parse(declared).numbers
        if kind == column.base == "decimal":
            return column.scale <= ((*numbers, 0)[1] if numbers else self.open_scale)
        return column.kind == "unknown" or column.base in self.held.get(kind, (kind,))

    def arrived(self, column: Arriving, declared: str) -> SQL:
        """Write the value of a landing column in the type of its target column."""
        return sql("l.{}", column.landing)

    def changes(self, column: Arriving, target: TableColumn) -> SQL | None:
        """Write that a staged value, `s`, is another than the one that arrived, `l`; None where it is the same.

        What a type writes in its own way, as json or a uuid, is the same. What is cut, padded, rounded or put into
        another case is not: whoever reads it back does not find it.
        """
        return None

    def landing_type(self, column: Arriving) -> SQL:
        """Return what a column is declared as in the landing table."""
        if column.is_text:
            return self.landing_text or self.types["string"]
        return self.types["bigint" if column.kind in WHOLE else column.kind]

    def declaration(self, column: Arriving) -> str:
        """Return what a column of the rows would be declared as in a target: for texts of errors."""
        name = self.types[column.base]
        return name if name == self.types["string"] else name + column.kind.removeprefix(column.base)

    def filling_options(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the options of Spark's writer, of those of a connection."""
        return dict(options)

    # --- statements -----------------------------------------------------------------------------

    def batches_table(self, table: SQL) -> SQL:
        """Return the CREATE TABLE for the batches that are published."""
        return sql(
            "CREATE TABLE IF NOT EXISTS {0} (target varchar(64){1} NOT NULL, job varchar(32){1} NOT NULL, "
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


def writable(database: Database) -> WritableDatabase:
    """Return a database as one that is written to; TargetError for one that is only read."""
    if isinstance(database, WritableDatabase):
        return database
    raise TargetError(
        database.name, "batches are written to PostgreSQL, MySQL, MariaDB and SQLite. Write files, and load them there."
    )
