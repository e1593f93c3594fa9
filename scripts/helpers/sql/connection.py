"""Ask a database by a connection of the driver's JVM, and say what went wrong as errors of ours.

Small questions go by such a connection, since a Spark job takes three times as long. Errors are told by
their SQLSTATE, since drivers' texts hold hosts and values.
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
    """Open a ``java.sql.Connection`` as Spark's reader opens its own, and close it; None on Spark Connect.

    A ``sessionInitStatement`` among the options, which are those of Spark's reader, is run.
    """
    if is_connect(spark):
        yield None
        return
    # Here, as a client of Spark Connect does without Py4J.
    from py4j.protocol import Py4JError

    jvm = java_of(spark)
    parameters = jvm.PythonUtils.toScalaMap({"dbtable": "unused", **options})
    found = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(parameters)
    dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(options["url"])
    connection = dialect.createConnectionFactory(found).apply(-1)
    try:
        # A transaction over several statements would show each of them the data of the first one's moment.
        if not connection.getAutoCommit():
            connection.setAutoCommit(True)
        if found.sessionInitStatement().isDefined():
            connection.createStatement().execute(found.sessionInitStatement().get())
        yield connection
    finally:
        with suppress(Py4JError):  # A connection that broke off says so again, and would hide the first error.
            connection.close()


class Connections(threading.local):
    """Connections to one database: a question opens one of its own, or shares that of the questions before it.

    Each thread has its own: several may plan with one source.

    Parameters
    ----------
    connect
        Returns what opens a connection and closes it after, such as `jdbc_connection`.
    """

    def __init__(self, connect: Callable[[], AbstractContextManager[Any]]) -> None:
        self._connect = connect
        self._kept: ExitStack | None = None
        self._connection: Any = None

    @contextmanager
    def kept(self) -> Iterator[ExitStack]:
        """Keep the connection of the first question for those that follow, and close it in the end."""
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
        """Close the connection that is kept; the next question opens another one."""
        self._connection = None
        if self._kept is not None:
            self._kept.close()

    @contextmanager
    def one(self) -> Iterator[Any]:
        """Return the connection that is kept, or a new one. One in which a question failed is not used again."""
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
    """Return the rows of a query, every value as text: some drivers cannot tell the type of an expression.

    A ``queryTimeout`` among the options holds. The names are those of the query's columns, in order.
    """
    with jdbc_connection(spark, options) if connections is None else connections.one() as connection:
        # On Spark Connect there is no JVM to reach: the question goes as a Spark job.
        if connection is None:
            schema = ", ".join(f"{name} STRING" for name in names)
            reader = spark.read.format("jdbc").options(**options, query=query, customSchema=schema)
            return [tuple(row) for row in reader.load().collect()]
        statement = connection.createStatement()
        # Spark's reader takes options in any case of letters, so `queryTimeout` must hold here in any. 0 is no limit.
        by_lower_name = {name.lower(): value for name, value in options.items()}
        statement.setQueryTimeout(int(by_lower_name.get("querytimeout", 0)))
        found = rows_of(statement.executeQuery(query))
        # Or SQLite would keep its lock, and others could not write.
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
    """Return name, type, precision and scale of each column of a query, which is prepared and not run.

    None on Spark Connect, and if the driver cannot. Whether a column can hold NULL is not asked: drivers say what holds
    in the table it comes from, which an outer join changes.
    """
    with connections.one() as connection:
        found = None if connection is None else connection.prepareStatement(query).getMetaData()
        return None if found is None else [
            (found.getColumnLabel(at), str(found.getColumnTypeName(at)), found.getPrecision(at), found.getScale(at))
            for at in range(1, found.getColumnCount() + 1)
        ]  # fmt: skip


LOCKED, DEADLOCKS = "55P03", ("40001", "40P01")
"""SQLSTATEs of a lock that is not given in time, and of a transaction that is ended for the sake of another one."""
TRY_LATER = ("08", "40", "53", LOCKED, "57", "HYT")
"""Classes of SQLSTATE that a later run may not meet: connection, rollback (as on a busy replica), resources, lock,
operator (a shutdown), time-out. Nothing is tried again here: the scheduler's retry replays the same plan."""
CANCELED = "57014"
"""A query that was canceled, by a person or by a time-out of the server's: of the operator's class, but the same
query meets the same limit again."""
FULL = "53100"
"""A full disk: it is of the class of resources, and no later run finds more of them until a person frees some."""
BAD_URL = "bad URL"
"""Stands for a SQLSTATE where a driver does not accept the URL, which Spark then shows with its password."""
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
"""Causes that are looked at: in Java, a chain of causes can be a circle."""
DRIVERS = re.compile(
    r"\b(?:java\.sql|org\.postgresql|com\.mysql|org\.mariadb|com\.microsoft\.sqlserver|oracle|org\.sqlite)[\w.$]*Exception"
)
"""Exceptions of drivers, not those of Spark's own SQL."""


@contextmanager
def typed_database_errors(source: str) -> Iterator[None]:
    """Let what a database or its driver raises come out of Spark's errors as SourceError.

    The driver's own text is left out, as it may hold a host, a query or values.

    Raises
    ------
    SourceUnavailableError
        The database is down, too busy, or broke off: run again later.
    SourceError
        It refuses the user, the table or the query, or Spark has no driver for it.
    """
    try:
        yield
    except Exception as error:
        # What Spark raises itself, on an executor.
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
    """Return the error of a column that has a value which does not fit its type."""
    return SourceError(
        source,
        f"{what}, as which it is read. Fix that row, read it through a view that casts it to a text, or a number to a "
        "decimal of its own, or leave it out with columns=.",
    )


@dataclass(frozen=True)
class DriverError:
    """What a driver of a database says went wrong, without its text.

    Attributes
    ----------
    state
        The SQLSTATE, if there is one.
    kind
        The class of the exception.
    meaning
        The SQLSTATE. Where there is none, or one that says little, that of what the number of MySQL, the class or the
        text of SQLite says.
    """

    state: str | None
    kind: str
    meaning: str = ""

    @property
    def shown(self) -> str:
        """It as texts of errors have it."""
        return f"SQLSTATE {self.state or 'unknown'}, {self.kind}"

    @property
    def is_outage(self) -> bool:
        """Tell whether a later run may not meet it."""
        return self.meaning.startswith(TRY_LATER) and self.meaning not in (CANCELED, FULL)

    @property
    def is_refused(self) -> bool:
        """Whether the login is refused, or a right is missing."""
        return self.meaning.startswith(("28", "42501"))

    @property
    def is_deadlock(self) -> bool:
        """Whether the server has ended a transaction for the sake of another one."""
        return self.meaning in DEADLOCKS


GENERAL, CONNECTION = "HY000", "08001"
ADBC = "adbc_driver_manager"
"""The package of the errors of ADBC's drivers."""
UNOPENED = {
    "28000": re.compile("authentication failed|no pg_hba.conf entry|role .* does not exist"),
    "3D000": re.compile('database ".*" does not exist'),
    BAD_URL: re.compile("invalid .*(option|port number|value|parameter)| in URI|percent-encoded"),
}
"""What libpq says, without its SQLSTATE, of a connection that no later run will open either."""
BROKEN_OFF = ("SQLTransientConnectionException", "SQLRecoverableException")
"""Classes of JDBC that say that the connection is at fault. Some of MariaDB's driver have the general SQLSTATE."""


def driver_error(error: Exception) -> DriverError | None:
    """Return what a driver says behind an exception of Spark or of a Python driver; None if it is none of a driver."""
    package = type(error).__module__.partition(".")[0]
    if package in MODULES or package == ADBC:
        kind, code = f"{package}.{type(error).__name__}", error.args[0] if error.args else 0
        code = code if isinstance(code, int) else 0
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        # A connection that cannot be opened has no state: psycopg says so by its class.
        if not state and not code and kind.endswith(".OperationalError") and package != "sqlite3":
            state = next((state for state, said in UNOPENED.items() if said.search(str(error))), CONNECTION)
        return DriverError(state, kind, _meaning(state, code, kind, str(error)))
    # The outermost cause that is a driver's. Its class decides where it has no SQLSTATE.
    for cause in _causes(error):
        kind = cause.getClass().getName()
        state, code = _ask(cause, "getSQLState"), int(_ask(cause, "getErrorCode") or 0)
        if state is not None or DRIVERS.fullmatch(kind):
            meaning = _meaning(state, code, kind, str(_ask(cause, "getMessage")))
            return DriverError(state, kind.rpartition(".")[2], meaning)
    # What failed on an executor reaches the driver as text only.
    lost = DRIVERS.search(str(error))
    if lost is None and package in ("pyspark", "py4j") and "jdbc:" in str(error):
        return DriverError(None, type(error).__name__, BAD_URL)
    return DriverError(None, lost[0].rpartition(".")[2], _meaning(None, 0, lost[0], "")) if lost else None


def _meaning(state: str | None, code: int, kind: str, text: str) -> str:
    if "sqlite" in kind:
        return next((found for part, found in SQLITE_STATES.items() if part in text.lower()), "")
    if state in (None, GENERAL, "42000", "01000"):
        state = MYSQL_STATES.get(code, state)
    is_broken_off = state in (None, GENERAL) and kind.endswith(BROKEN_OFF)
    return CONNECTION if is_broken_off else state or ""


def _causes(error: Exception) -> Iterator[Any]:
    """Yield the Java exceptions behind one of PySpark's, outermost first."""
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(MAX_CAUSES):
        if cause is None:
            return
        yield cause
        cause = _ask(cause, "getCause")


def _ask(cause: Any, method: str) -> Any:
    """Call a method of a Java object; None if it has none of that name."""
    from py4j.protocol import Py4JError

    try:
        return getattr(cause, method)()
    except (Py4JError, AttributeError):
        return None
