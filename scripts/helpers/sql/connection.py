"""Run small queries over a JDBC connection of the Spark driver's JVM, and translate database errors.

Small queries use such a connection because a Spark job takes three times as long. Errors show their SQLSTATE
and not the driver's text, which contains hosts and values.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from scripts.helpers._lazy import SparkSession
from scripts.helpers.errors import SourceError, SourceUnavailableError
from scripts.helpers.rows.sql import SQL
from scripts.helpers.spark.jvm import is_connect, java_of
from scripts.helpers.sql.database import UNFIT
from scripts.helpers.sql.known import MODULES
from scripts.helpers.sql.mysql import STATES as MYSQL_STATES
from scripts.helpers.sql.sqlite import STATES as SQLITE_STATES


@contextmanager
def jdbc_connection(spark: SparkSession, options: Mapping[str, str]) -> Iterator[Any]:
    """Open a ``java.sql.Connection`` as Spark's reader does, and close it at the end; None on Spark Connect.

    The options are those of Spark's JDBC reader. If they have a ``sessionInitStatement``, it is run.
    """
    if is_connect(spark):
        yield None
        return
    # Imported here because a client of Spark Connect does not need Py4J.
    from py4j.protocol import Py4JError

    jvm = java_of(spark)
    parameters = jvm.PythonUtils.toScalaMap({"dbtable": "unused", **options})
    found = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(parameters)
    dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(options["url"])
    connection = dialect.createConnectionFactory(found).apply(-1)
    try:
        # Set autocommit, so that each query sees the newest rows: one long transaction could hide later commits.
        if not connection.getAutoCommit():
            connection.setAutoCommit(True)
        if found.sessionInitStatement().isDefined():
            connection.createStatement().execute(found.sessionInitStatement().get())
        yield connection
    finally:
        with suppress(Py4JError):  # A broken connection raises again on close, which would hide the first error.
            connection.close()


class Connections(threading.local):
    """Connections to one database. Each query opens a connection of its own; queries inside `kept` share one.

    Threads do not share `kept`'s connection: each has its own, because several threads may plan with one source.

    Parameters
    ----------
    connect
        Returns a context manager that opens a connection and closes it, such as `jdbc_connection`.
    """

    def __init__(self, connect: Callable[[], AbstractContextManager[Any]]) -> None:
        self._connect = connect
        self._kept: ExitStack | None = None
        self._connection: Any = None

    @contextmanager
    def kept(self) -> Iterator[ExitStack]:
        """Let all queries inside the block use one connection: the first opens it, the block's end closes it."""
        if self._kept is not None:
            yield self._kept
            return
        with ExitStack() as stack:
            self._kept = stack
            try:
                yield stack
            finally:
                self._kept = self._connection = None

    def close(self) -> None:
        """Close the shared connection; the next query opens another one."""
        self._connection = None
        if self._kept is not None:
            self._kept.close()

    @contextmanager
    def one(self) -> Iterator[Any]:
        """Yield the shared connection, or a new one. A connection in which a query failed is not used again."""
        with self.kept() as stack:
            if self._connection is None:
                self._connection = stack.enter_context(self._connect())
            try:
                yield self._connection
            except BaseException:
                self.close()
                raise


def ask(
    spark: SparkSession,
    options: Mapping[str, str],
    query: SQL,
    names: Sequence[str],
    connections: Connections | None = None,
) -> list[Any]:
    """Return the rows of a query, every value as text, because some drivers do not know the type of an expression.

    The ``queryTimeout`` of the options applies. `names` are the query's columns, in order.
    """
    with jdbc_connection(spark, options) if connections is None else connections.one() as connection:
        # On Spark Connect the JVM cannot be reached, so the query runs as a Spark job.
        if connection is None:
            schema = ", ".join(f"{name} STRING" for name in names)
            reader = spark.read.format("jdbc").options(**options, query=query, customSchema=schema)
            return [tuple(row) for row in reader.load().collect()]
        statement = connection.createStatement()
        # Find `queryTimeout` in upper or lower case, as Spark's reader ignores the case of names. 0 means no limit.
        by_lower_name = {name.lower(): value for name, value in options.items()}
        statement.setQueryTimeout(int(by_lower_name.get("querytimeout", 0)))
        found = rows_of(statement.executeQuery(query))
        # Close the statement, or SQLite keeps its lock and no other connection can write.
        statement.close()
        return found


def rows_of(found: Any) -> list[tuple[str | None, ...]]:
    """Return the rows of a ``java.sql.ResultSet``, every value as text."""
    columns = range(1, found.getMetaData().getColumnCount() + 1)
    rows = []
    while found.next():
        rows.append(tuple(found.getString(column) for column in columns))
    return rows


def columns_of_query(connections: Connections, query: SQL) -> list[tuple[str, str, int, int]] | None:
    """Return name, type, precision and scale of each column of a query, by preparing it without running it.

    Return None on Spark Connect, and if the driver cannot describe the query. Nullability is left out, because drivers
    report a column of the query as NOT NULL even where an outer join fills it with NULL.
    """
    with connections.one() as connection:
        found = None if connection is None else connection.prepareStatement(query).getMetaData()
        return None if found is None else [
            (found.getColumnLabel(at), str(found.getColumnTypeName(at)), found.getPrecision(at), found.getScale(at))
            for at in range(1, found.getColumnCount() + 1)
        ]  # fmt: skip


LOCKED, DEADLOCKS = "55P03", ("40001", "40P01")
"""SQLSTATEs of a lock that was not granted in time, and of a transaction that was rolled back to end a deadlock."""
TRY_LATER = ("08", "40", "53", LOCKED, "57", "HYT")
"""Prefixes of the SQLSTATEs of errors that may be gone in a later run: connection, rollback (as on a busy replica),
resources, lock, operator (a shutdown), time-out. Nothing is retried here: the scheduler's retry replays the plan."""
CANCELED = "57014"
"""A query canceled by a person or by a time-out of the server. It is of the operator's class but not retried, because
the same query would reach the same limit again."""
FULL = "53100"
"""A full disk. It is of the class of resources but not retried, because it stays full until an operator frees space."""
BAD_URL = "bad URL"
"""Used in place of a SQLSTATE if the driver rejects the URL; Spark's own error would show the URL with its password."""
REASONS = {
    BAD_URL: "cannot be reached, as the driver does not accept the URL. Check the URL and the driver",
    "28": "refuses the user or the password. Check both, and what they may read",
    "42501": "does not let this user read it, or the catalogue that describes it. Grant SELECT",
    **dict.fromkeys(("42P01", "42S02"), "has no such table. Check the name and the schema"),
    **dict.fromkeys(("42703", "42S22"), "has no such column. Check query=, where= and columns="),
    "42601": "finds a mistake in the syntax of query= or where=. Run the query in a client, which shows it",
    "22021": "holds a text that is not in its encoding. Fix that row, or leave the column out with columns=",
    "XX001": "is damaged, or it is none. Check the path, or restore it",
    "42S21": "refuses a query that has a column twice. Name one of them otherwise (AS)",
    "42P05": "is behind a pooler that mixes up prepared statements. Add prepareThreshold=0 to the URL",
    "26000": "is behind a pooler that mixes up prepared statements. Add prepareThreshold=0 to the URL",
    "3D": "does not exist under this name. Check the URL",
    FULL: "has a full disk. Free space there",
}
MAX_CAUSES = 20
"""Most causes of an error that are examined, because in Java a chain of causes can be a cycle."""
DRIVERS = re.compile(
    r"\b(?:java\.sql|org\.postgresql|com\.mysql|org\.mariadb|com\.microsoft\.sqlserver|oracle|org\.sqlite)[\w.$]*Exception"
)
"""Class names of exceptions that JDBC drivers raise, as opposed to those of Spark SQL."""


@contextmanager
def typed_database_errors(source: str) -> Iterator[None]:
    """Translate the errors of a database or its driver into SourceError.

    The driver's text is left out, because it may contain a host, a query or values.

    Raises
    ------
    SourceUnavailableError
        The database is down or too busy, or closed the connection: run again later.
    SourceError
        The database refuses the user, the table or the query, or Spark has no driver for it.
    """
    try:
        yield
    except Exception as error:
        # Spark or the database raised the error for a value that does not fit the type of its column.
        if misfit := UNFIT.search(str(error)):
            raise unfit(source, misfit[0]) from None
        for cause in _causes(error):
            kind = cause.getClass().getName()
            if kind.endswith("ClassNotFoundException") and str(_ask(cause, "getMessage")).endswith(("Driver", "JDBC")):
                missing = "Spark has no driver for it. Add its jar with spark.jars or --extra-jars."
                raise SourceError(source, missing) from None
        found = driver_error(error)
        if found is None:
            raise
        if found.is_outage:
            raise SourceUnavailableError(source, found.shown) from None
        for start, reason in REASONS.items():
            if found.meaning.startswith(start):
                raise SourceError(source, f"the database {reason} ({found.shown}).") from None
        refused = f"the database refused the query ({found.shown}). Its own log, or the query in a client, says why."
        raise SourceError(source, refused) from None


def unfit(source: str, what: str) -> SourceError:
    """Return the error for a column with a value that does not fit its type; `what` describes the value."""
    return SourceError(
        source,
        f"{what}, as which it is read. Fix that row, read it through a view that casts it to a text, or a number to a "
        "decimal of its own, or leave it out with columns=.",
    )


@dataclass(frozen=True)
class DriverError:
    """An error that a database driver reported, without the driver's text.

    Attributes
    ----------
    state
        The SQLSTATE, or None.
    kind
        The class of the exception.
    meaning
        The SQLSTATE to act on. Where the driver reports none or a general one, it is derived from MySQL's error number,
        the class of the exception, or SQLite's error text.
    """

    state: str | None
    kind: str
    meaning: str = ""

    @property
    def shown(self) -> str:
        """The SQLSTATE and the class, as error messages show them."""
        return f"SQLSTATE {self.state or 'unknown'}, {self.kind}"

    @property
    def is_outage(self) -> bool:
        """Whether the error may be gone in a later run."""
        return self.meaning.startswith(TRY_LATER) and self.meaning not in (CANCELED, FULL)

    @property
    def is_refused(self) -> bool:
        """Whether the database refused the login, or the user lacks a privilege."""
        return self.meaning.startswith(("28", "42501"))

    @property
    def is_deadlock(self) -> bool:
        """Whether the server rolled the transaction back to end a deadlock."""
        return self.meaning in DEADLOCKS


GENERAL, CONNECTION = "HY000", "08001"
ADBC = "adbc_driver_manager"
"""The package of the errors of ADBC's drivers."""
PERMANENT_ERRORS = {
    "28000": re.compile("authentication failed|no pg_hba.conf entry|role .* does not exist"),
    "3D000": re.compile('database ".*" does not exist'),
    BAD_URL: re.compile("invalid .*(option|port number|value|parameter)| in URI|percent-encoded"),
}
"""Patterns of libpq's errors, which have no SQLSTATE, for a connection that no later run can open either."""
CONNECTION_EXCEPTIONS = ("SQLTransientConnectionException", "SQLRecoverableException")
"""JDBC exceptions for a failed connection. MariaDB's driver raises some of them with the general SQLSTATE."""


def driver_error(error: Exception) -> DriverError | None:
    """Return the driver's error behind an exception of Spark or of a Python driver; None if no driver raised it."""
    package = type(error).__module__.partition(".")[0]
    if package in MODULES or package == ADBC:
        kind, code = f"{package}.{type(error).__name__}", error.args[0] if error.args else 0
        code = code if isinstance(code, int) else 0
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        # If psycopg cannot open a connection, its error has no SQLSTATE, only the class OperationalError.
        if not state and not code and kind.endswith(".OperationalError") and package != "sqlite3":
            state = next((state for state, said in PERMANENT_ERRORS.items() if said.search(str(error))), CONNECTION)
        return DriverError(state, kind, _meaning(state, code, kind, str(error)))
    # Take the outermost Java exception that a driver raised. Its SQLSTATE or its class shows that a driver raised it.
    for cause in _causes(error):
        kind = cause.getClass().getName()
        state, code = _ask(cause, "getSQLState"), int(_ask(cause, "getErrorCode") or 0)
        if state is not None or DRIVERS.fullmatch(kind):
            meaning = _meaning(state, code, kind, str(_ask(cause, "getMessage")))
            return DriverError(state, kind.rpartition(".")[2], meaning)
    # Search the text, too, because an error on an executor reaches the Spark driver only as text.
    lost = DRIVERS.search(str(error))
    if lost is None and package in ("pyspark", "py4j") and "jdbc:" in str(error):
        return DriverError(None, type(error).__name__, BAD_URL)
    return DriverError(None, lost[0].rpartition(".")[2], _meaning(None, 0, lost[0], "")) if lost else None


def _meaning(state: str | None, code: int, kind: str, text: str) -> str:
    if "sqlite" in kind:
        return next((found for part, found in SQLITE_STATES.items() if part in text.lower()), "")
    if state in (None, GENERAL, "42000", "01000"):
        state = MYSQL_STATES.get(code, state)
    is_broken_off = state in (None, GENERAL) and kind.endswith(CONNECTION_EXCEPTIONS)
    return CONNECTION if is_broken_off else state or ""


def _causes(error: Exception) -> Iterator[Any]:
    """Yield the Java exceptions behind a PySpark exception, outermost first."""
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(MAX_CAUSES):
        if cause is None:
            return
        yield cause
        cause = _ask(cause, "getCause")


def _ask(cause: Any, method: str) -> Any:
    """Return the result of a method of a Java object; None if the object has no such method."""
    from py4j.protocol import Py4JError

    try:
        return getattr(cause, method)()
    except (Py4JError, AttributeError):
        return None
