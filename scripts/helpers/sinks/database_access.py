"""Two ways to reach a database that is written to: over JDBC with Spark, and by a Python driver with pandas.

Each fills a landing table with rows and opens sessions, in which statements run one by one or in a transaction.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import DataFrame, SparkSession, pa
from scripts.helpers.databases.connection import BAD_URL, CANCELED, FULL, LOCKED, driver_error, jdbc_connection, rows_of
from scripts.helpers.databases.known import MODULES, database_of
from scripts.helpers.databases.writing import Arriving, WritableDatabase, writable
from scripts.helpers.errors import (
    InvalidValueError,
    TargetError,
    TargetLockedError,
    TargetRefusedError,
    TargetUnavailableError,
)
from scripts.helpers.rows.arrow_streams import ArrowStream
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.pandas_frames import is_pandas
from scripts.helpers.rows.sql import SQL, VALUE, Values, in_quotes, internal, joined, sql, with_marks
from scripts.helpers.sinks.arrow_files import put_down
from scripts.helpers.sinks.file_types import PLAIN
from scripts.helpers.sinks.merging import DELETED
from scripts.helpers.sinks.staged_rows import ARROW_ROWS, SparkRows, spark_of, without_types
from scripts.helpers.spark.jvm import check_jvm

if TYPE_CHECKING:
    from typing_extensions import LiteralString

Connect = Callable[[], Any]
PLACEHOLDERS: Mapping[str, tuple[LiteralString, LiteralString]] = {
    "qmark": ("?", "%"), "format": ("%s", "%%"), "pyformat": ("%s", "%%"), "pg8000": ("%s", "%"), "mysql": ("%s", "%"),
}  # fmt: skip
"""The place of a value, and any other ``%``, as drivers read them, by their style or name.

pg8000 reads neither in quotes. mysql.connector takes each ``%s`` for a place, in names as well, and has no escape.
"""
HELD = frozenset((*PLAIN, "char", "varchar", "uint64", "void"))
"""Types that columns of databases have, by the names of Spark and pyarrow."""
ARRIVING_AS = {"void": "unknown", "char": "string", "varchar": "string", "uint64": "decimal(20,0)"}
"""What some of them are written as."""
UNFIT = internal("unfit")
"""What an error of Spark says that stands for a number which the database does not hold."""
ROWS_AT_ONCE = 10_000
"""Rows of one call of a driver's `executemany`, and of a batch of Spark's JDBC writer: its own 1,000 take ten times as
many round trips."""


def arriving(types: Mapping[str, str]) -> list[Arriving]:
    """Return columns by the names of their types, without the one that says which rows are deletes."""
    found = []
    for position, (name, kind) in enumerate(types.items()):
        base = kind.partition("(")[0].partition(" ")[0]
        if name != DELETED:
            found.append(Arriving(name, ARRIVING_AS.get(base, kind if base == "decimal" else base), position))
    return found


# --- over JDBC, with Spark ----------------------------------------------------------------------------


class JdbcSession:
    """A session by a ``java.sql.Connection`` of the driver's JVM.

    Each statement commits by itself, unless it is between `begin` and `commit`. What is not committed when the session
    ends is rolled back.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, statement: SQL, values: Values = ()) -> int:
        """Run a statement, with a value for each `VALUE` in it, and return how many rows it changed."""
        with self._prepared(statement, values) as running:
            running.execute()
            return int(running.getUpdateCount())

    def rows(self, query: SQL, values: Values = ()) -> list[tuple[str | None, ...]]:
        """Return what a query finds, every value as text."""
        with self._prepared(query, values) as running:
            return rows_of(running.executeQuery())

    @contextmanager
    def _prepared(self, statement: SQL, values: Values) -> Iterator[Any]:
        running = self._connection.prepareStatement(with_marks(statement, "?", "%", len(values)))
        try:
            for position, value in enumerate(values, 1):
                running.setObject(position, value)
            yield running
        finally:
            running.close()

    def begin(self) -> None:
        """Begin a transaction."""
        self._connection.setAutoCommit(False)

    def commit(self) -> None:
        """Commit it."""
        self._connection.commit()
        self._connection.setAutoCommit(True)


class JdbcAccess:
    """Executors write rows over JDBC; the driver's JVM runs the statements.

    `place` is the database in the names of targets: nothing secret.
    """

    def __init__(
        self, spark: SparkSession, url: str, properties: Mapping[str, str] | None = None, name: str | None = None
    ) -> None:
        check_jvm(
            spark, "A database sink over JDBC",
            "Give the sink connect=, set spark.sql.session.timeZone=UTC and write df.toPandas(), or run the job with a "
            "classic session.",
        )  # fmt: skip
        levels = [value for option, value in (properties or {}).items() if option.lower() == "isolationlevel"]
        if any(level.upper() == "NONE" for level in levels):
            # Each batch of rows would be a transaction of its own, and what a task that failed has left would stay.
            raise InvalidValueError(
                "isolationLevel=NONE is refused: rows that a task has written in parts cannot be told from those of "
                "its other attempts. Leave the option out."
            )
        self.sql = database = writable(database_of(url))
        self.place = name or place_of_url(url)
        self._spark, self.rows = spark, SparkRows(spark)
        by_default = {"driver": database.driver, "batchsize": str(ROWS_AT_ONCE), **database.writing_options}
        self._options = {**by_default, **database.options, **(properties or {}), "url": url}

    def __repr__(self) -> str:
        """Show the place, and nothing of the connection."""
        return f"{type(self).__name__}({self.place!r})"

    def taken(self, df: Any, target: str) -> DataFrame:
        """Return a frame whose types a database has."""
        if spark_of(df) is None:
            raise InvalidValueError(
                "the rows are not of Spark, and the sink reaches its database over JDBC. Give the sink connect= "
                "instead of spark= and url=, or write spark.createDataFrame(rows)."
            )
        return self.rows.taken(df, target, HELD)

    @contextmanager
    def session(self) -> Iterator[JdbcSession]:
        """Open a connection."""
        with jdbc_connection(self._spark, self._options) as connection:
            session = JdbcSession(connection)
            if self.sql.writing_session:
                session.run(self.sql.writing_session)
            yield session

    def fill(self, rows: DataFrame, table: SQL, columns: Sequence[Arriving]) -> None:
        """Write rows to a landing table that is there."""
        unfit = self.sql.unfit_floats
        written = [sql("{} AS {}", _landed_in_spark(column, unfit), column.landing) for column in columns]
        written.append(sql("CAST(spark_partition_id() AS BIGINT) AS p"))
        written.append(sql("monotonically_increasing_id() AS n"))
        written.append(sql("CAST({} AS BIGINT) AS d", DELETED if DELETED in rows.columns else sql("0")))
        landed = rows.selectExpr(*written)
        landed = landed.coalesce(1) if self.sql.has_one_writer else landed
        options = self.sql.filling_options(self._options)
        try:
            landed.write.format("jdbc").options(**options, dbtable=table).mode("append").save()
        except Exception as error:
            for column in columns:
                if f"{UNFIT}_{column.position}." in str(error):
                    check_unfit(self.sql, column, " or ".join(unfit))
            found = driver_error(error)
            # Looked for after a failure only, as it reads all rows.
            if found is not None and not found.is_outage and not self.sql.holds_nul:
                self._check_nul(rows, [column for column in columns if column.kind == "string"])
            raise

    def _check_nul(self, rows: DataFrame, columns: Sequence[Arriving]) -> None:
        places = [sql("MAX(instr({}, CAST(X'00' AS STRING)))", SPARK.quote(column.name)) for column in columns]
        found = rows.selectExpr(*places).first() if places else None
        for column, place in zip(columns, found or (), strict=False):
            check_unfit(self.sql, column, "a text with NUL" if place else None)


def _landed_in_spark(column: Arriving, unfit: Sequence[str]) -> SQL:
    """Write a column as it lands: times as text that no zone of a session has a say in.

    A number of `WritableDatabase.unfit_floats` is an error that says `UNFIT` with the position of the column.
    """
    quoted = SPARK.quote(column.name)
    if column.kind in ("float", "double") and unfit:
        listed = joined(", ", (sql("CAST({} AS DOUBLE)", in_quotes(one)) for one in unfit))
        error = sql("raise_error({})", in_quotes(f"{UNFIT}_{column.position}."))
        return sql("IF({0} IN ({1}), CAST({2} AS DOUBLE), {0})", quoted, listed, error)
    if column.kind == "timestamp":
        # By hand, as every function of Spark that writes a timestamp as text does so in the zone of the session.
        micros = sql("unix_micros({})", quoted)
        inside = sql("pmod({}, 86400000000L)", micros)
        day = sql("CAST(date_add(DATE'1970-01-01', CAST(({} - {}) div 86400000000L AS INT)) AS STRING)", micros, inside)
        return sql(
            "concat({}, ' ', format_string('%02d:%02d:%02d.%06d', {inside} div 3600000000L, "
            "({inside} div 60000000L) % 60, ({inside} div 1000000L) % 60, {inside} % 1000000L))",
            day, inside=inside,
        )  # fmt: skip
    text = sql("CAST({} AS STRING)", quoted)
    if column.kind == "timestamp_ntz":
        # Not date_format: it takes the time for one of the session's zone, and moves it out of an hour that is skipped.
        return sql("rpad(concat({0}, if(locate('.', {0}) = 0, '.', '')), 26, '0')", text)
    if column.is_text:
        return text
    if column.kind in ("float", "double", "boolean", "binary"):
        return quoted
    return sql("CAST({} AS BIGINT)", quoted)


def place_of_url(url: str) -> str:
    """Return server and database of a JDBC URL, without user, password and options.

    >>> place_of_url("jdbc:postgresql://me:secret@db.example:5432/shop?password=secret")
    'postgresql://db.example:5432/shop'
    """
    found = re.fullmatch(r"jdbc:(\w+):(?:\w+:)?(?://)?([^?;]*).*", url, re.DOTALL | re.IGNORECASE)
    if found is None or "(" in found[2]:
        raise InvalidValueError("the server cannot be read from the URL of the database. Give name=.")
    return f"{found[1].lower()}://{found[2].rpartition('@')[2]}"


def check_unfit(database: WritableDatabase, column: Arriving, found: str | None) -> None:
    """Raise InvalidValueError for what was found in a column, if anything, that no column of a database holds."""
    if found:
        text = f"column {column.name!r} has {found}, which {database.name} does not hold. Replace it."
        raise InvalidValueError(text) from None


# --- by a Python driver, with pandas ------------------------------------------------------------------


class DriverSession:
    """As `JdbcSession`, by a connection of a Python driver (DB API 2.0)."""

    def __init__(self, connection: Any, database: WritableDatabase, style: str) -> None:
        self._connection, self._sql, self._marks = connection, database, PLACEHOLDERS[style]

    def run(self, statement: SQL, values: Values = ()) -> int:
        with self._cursor() as cursor:
            cursor.execute(with_marks(statement, *self._marks, len(values)), values)
            return int(cursor.rowcount)

    def rows(self, query: SQL, values: Values = ()) -> list[tuple[str | None, ...]]:
        with self._cursor() as cursor:
            cursor.execute(with_marks(query, *self._marks, len(values)), values)
            return [tuple(None if value is None else _text(value) for value in row) for row in cursor.fetchall()]

    def insert(self, statement: SQL, rows: Sequence[Sequence[Any]]) -> None:
        """Insert some rows, within a transaction."""
        with self._cursor() as cursor:
            cursor.executemany(with_marks(statement, *self._marks, len(rows[0])), rows)

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        cursor = self._connection.cursor()
        try:
            yield cursor
        finally:
            with suppress(Exception):  # Of a connection that broke off it fails, and would hide the first error.
                cursor.close()

    def begin(self) -> None:
        self.run(self._sql.begins)

    def commit(self) -> None:
        self.run(sql("COMMIT"))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


class DriverAccess:
    """As `JdbcAccess`, by a factory of connections, which write rows and run the statements."""

    rows = ARROW_ROWS

    def __init__(self, connect: Connect, name: str) -> None:
        self._connect = connect
        self.place = f"database://{name}"
        self._sql: WritableDatabase | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.place!r})"

    @property
    def sql(self) -> WritableDatabase:
        # As its driver says, so it takes a connection to know.
        if self._sql is None:
            with self.session():
                pass
        assert self._sql is not None
        return self._sql

    def taken(self, df: Any, target: str) -> Any:
        if spark_of(df) is not None:
            raise InvalidValueError(
                "the rows are of Spark, and the sink reaches its database by a Python driver. Give the sink spark= and "
                "url= instead of connect=, or write a frame of pandas or a table of pyarrow."
            )
        unnamed = [name for name in df.columns if not isinstance(name, str)] if is_pandas(df) else []
        if unnamed:
            raise InvalidValueError(
                f"the name of column {unnamed[0]!r} is not a text. Give it the name of its column in the table."
            )
        # A column without a value has no type: pandas reads an empty column of CSV as numbers.
        return without_types(self.rows.taken(df, target, HELD))

    @contextmanager
    def session(self) -> Iterator[DriverSession]:
        connection = self._connect()
        try:
            package = type(connection).__module__.partition(".")[0]
            if package not in MODULES:
                raise InvalidValueError(
                    f"connect returns a {package}.{type(connection).__name__}, whose database is not known. It must be "
                    f"of one of {', '.join(MODULES)}."
                )
            self._sql = self._sql or MODULES[package]
            _commit_each(connection)
            style = package if package in PLACEHOLDERS else sys.modules[package].paramstyle
            session = DriverSession(connection, self._sql, style)
            if self._sql.writing_session:
                session.run(self._sql.writing_session)
            try:
                yield session
            except BaseException:
                # A connection of a pool is not closed by `close`: its transaction would stay open, and its locks held.
                with suppress(Exception):
                    connection.rollback()
                raise
        finally:
            with suppress(Exception):  # One that broke off says so again, and would hide the first error.
                connection.close()

    def fill(self, rows: Any, table: SQL, columns: Sequence[Arriving]) -> None:
        names = joined(", ", [*(column.landing for column in columns), sql("p, n, d")])
        marks = joined(", ", [VALUE] * (len(columns) + 3))
        insert, count = sql("INSERT INTO {} ({}) VALUES ({})", table, names, marks), 0
        there = put_down(rows) if isinstance(rows, ArrowStream) else rows.to_reader(ROWS_AT_ONCE)
        with there as batches, self.session() as session:
            session.begin()
            for batch in batches:
                # As objects of Python, rows take many times the memory.
                for start in range(0, len(batch), ROWS_AT_ONCE):
                    part = batch.slice(start, ROWS_AT_ONCE)
                    session.insert(insert, self._landed(part, columns, count))
                    count += len(part)
            session.commit()

    def _landed(self, rows: pa.RecordBatch, columns: Sequence[Arriving], first: int) -> list[Sequence[Any]]:
        """Return rows as they land, the first with that number; InvalidValueError for what the database cannot hold."""
        values = [_landed(column, rows.column(column.position)) for column in columns]
        for column, found in zip(columns, values, strict=True):
            if column.kind == "string" and not self.sql.holds_nul:
                check_unfit(self.sql, column, next(("a text with NUL" for text in found if "\0" in (text or "")), None))
            if column.kind in ("float", "double"):
                unfit = self.sql.unfit_floats
                check_unfit(self.sql, column, " or ".join(unfit) if any(str(one) in unfit for one in found) else None)
        count = len(rows)
        deleted = map(int, rows[DELETED].to_pylist()) if DELETED in rows.schema.names else [0] * count
        return list(zip(*values, [0] * count, range(first, first + count), deleted, strict=True))


def _commit_each(connection: Any) -> None:
    """Let a connection leave transactions to us."""
    if hasattr(connection, "isolation_level") and type(connection).__module__.startswith("sqlite3"):
        connection.isolation_level = None
    elif callable(connection.autocommit):
        connection.autocommit(True)
    else:
        connection.autocommit = True


def _landed(column: Arriving, array: Any) -> list[Any]:
    """Return values as they land."""
    values = array.to_pylist()
    return [None if value is None else _plain(value) for value in values] if column.is_text else values


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    # Never in exponents: a text column of SQLite would keep them.
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


Session = JdbcSession | DriverSession
Access = JdbcAccess | DriverAccess

# --- errors -------------------------------------------------------------------------------------------

MISFITS = {
    "22001": "a text is too long for it",
    "22003": "a number is out of range there",
    "22007": "the type has no such value",
    "22P02": "the type has no such value",
    "23514": "a value does not meet a CHECK of its type",
}
MEANINGS = {
    BAD_URL: "the driver does not accept the URL",
    "22": "a value does not fit its column",
    "23": "a constraint of the table is violated (NOT NULL, unique, foreign key or check)",
    "42P01": "a table is gone",
    "42S02": "a table is gone",
    CANCELED: "the statement was canceled, by a time-out of the server or by a person",
    "0A": "the database cannot do this",
    FULL: "its disk is full. Free space there",
}


def misfit(error: Exception) -> str | None:
    """Return why a server refuses a value for its column; None for another error."""
    found = driver_error(error)
    return MISFITS.get(found.meaning) if found is not None else None


@contextmanager
def target_errors(target: str, doing: str, rights: str = "") -> Iterator[None]:
    """Let what a driver raises come out as TargetError, without its text: that may hold a host, a query or values.

    `doing` says what failed, and `rights` what is to be granted where that is missing.

    Raises
    ------
    TargetLockedError
        Others hold a lock, or the transaction was ended by a deadlock with them.
    TargetUnavailableError
        The database is down, too busy, or broke off.
    TargetRefusedError
        It refuses the user, or lacks a right.
    TargetError
        Anything else.
    """
    try:
        yield
    except Exception as error:
        found = driver_error(error)
        if found is None:
            raise
        shown = found.shown
        if found.is_refused:
            raise TargetRefusedError(target, doing, rights, shown) from None
        if found.is_deadlock or found.meaning == LOCKED:
            raise TargetLockedError(target, doing, shown, is_deadlock=found.is_deadlock) from None
        if found.is_outage:
            raise TargetUnavailableError(target, doing, shown) from None
        why = next((text for start, text in MEANINGS.items() if found.meaning.startswith(start)), "")
        more = "" if found.meaning == FULL else " Its log says more."
        raise TargetError(target, f"{doing}: {why or 'the database refused it'} ({shown}).{more}") from None
