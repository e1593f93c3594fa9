"""What a database says went wrong, as errors of ours: by SQLSTATE, since drivers' texts hold hosts and values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scripts.helpers.errors import SourceError, SourceUnavailableError

TRY_LATER = ("08", "40", "53", "57", "HYT")
"""Classes of SQLSTATE: connection, rollback (as on a busy replica), resources, operator, time-out."""
REASONS = {
    "28": "refuses the user or the password. Check both, and what they may read",
    "42501": "does not let this user read it. Grant SELECT",
    "42P01": "has no such table. Check the name and the schema",
    "42S02": "has no such table. Check the name and the schema",
    "42P05": "is behind a pooler that mixes up prepared statements. Add prepareThreshold=0 to the URL",
    "26000": "is behind a pooler that mixes up prepared statements. Add prepareThreshold=0 to the URL",
    "3D": "does not exist under this name. Check the URL",
}
MAX_CAUSES = 20
DRIVERS = re.compile(
    r"\b(?:java\.sql|org\.postgresql|com\.mysql|org\.mariadb|com\.microsoft\.sqlserver|oracle|org\.sqlite)[\w.$]*Exception"
)
"""Exceptions of drivers, not those of Spark's own SQL."""


@contextmanager
def typed_errors(source: str) -> Iterator[None]:
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
        found = _translated(source, error)
        if found is None:
            raise
        raise found from None


def _translated(source: str, error: Exception) -> SourceError | None:
    for cause in _causes(error):
        kind = cause.getClass().getName()
        if kind.endswith("ClassNotFoundException") and str(_ask(cause, "getMessage")).endswith(("Driver", "JDBC")):
            return SourceError(source, "Spark has no driver for it. Add its jar with spark.jars or --extra-jars.")
        state = _ask(cause, "getSQLState")
        if state is not None or DRIVERS.fullmatch(kind):
            return _from_state(source, state, kind.rpartition(".")[2])
    lost = DRIVERS.search(str(error))
    return _from_state(source, None, lost[0].rpartition(".")[2]) if lost else None


def _from_state(source: str, state: str | None, kind: str) -> SourceError:
    shown = f"SQLSTATE {state or 'unknown'}, {kind}"
    if state is not None and state.startswith(TRY_LATER) and state != "57014":
        return SourceUnavailableError(source, shown)
    for start, reason in REASONS.items():
        if state is not None and state.startswith(start):
            return SourceError(source, f"the database {reason} ({shown}).")
    return SourceError(source, f"the database refused the query ({shown}). Its own log says why.")


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
    except Py4JError:
        return None
