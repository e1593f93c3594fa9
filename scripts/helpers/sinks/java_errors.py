"""What an error of a connector says, which Spark hands over from its JVM in several ways. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from scripts.helpers.errors import SourceError, TargetError, WatermarkError

SPARK_ERRORS = {
    "AnalysisException", "Py4JJavaError", "Py4JError", "IllegalArgumentException", "UnsupportedOperationException",
    "SparkUpgradeException", "SparkRuntimeException",
}  # fmt: skip
SHOWING_ROWS = ("violated by row", "Preview of invalid data")
"""What is in the texts of errors that show rows."""
_DELETED = re.compile(
    r"(?:File (.+) does not exist|reading file (.+)\. File does not exist\.)\s+It is possible the under"
)
"""What Spark says of a file that it had listed for a frame. Spark 4 has the second text."""
MOST = 300
"""Characters of a reason. Delta and Spark append whole documents to it."""


def is_of_java(error: BaseException, *names: str) -> bool:
    """Tell whether one of these names of Java classes, or of Spark's error classes, is in an error or its causes."""
    # Py4J's error has the trace as its text, causes included; those that PySpark has converted have the message.
    text = str(error)
    return any(name in text for name in names)


def is_of_spark(error: BaseException) -> bool:
    """Return whether it is Spark, or what it runs in its JVM, that complains."""
    return type(error).__name__ in SPARK_ERRORS


def shows_rows(error: BaseException) -> bool:
    """Return whether an error, whose first line does not, shows rows that a table refuses."""
    return any(text in str(error) for text in SHOWING_ROWS)


def reason_of(error: BaseException) -> str:
    """Return the first line of what went wrong, with a full stop."""
    java = getattr(error, "java_exception", None)
    text = str(java.toString() if java is not None else error) or type(error).__name__
    return f"{text.splitlines()[0][:MOST].rstrip('. ')}."


@contextmanager
def typed_deletions() -> Iterator[None]:
    """Raise a SourceError that names the file where Spark does not find a file of the rows any more."""
    try:
        yield
    except Exception as error:
        # A sink takes an error of its table's writer for one of the table.
        is_ours = isinstance(error, WatermarkError) and not isinstance(error, TargetError)
        found = None if is_ours else _DELETED.search(f"{error} {error.__cause__}")
        if found is None:
            raise
        raise SourceError(
            found[1] or found[2],
            "the rows come from this file, and it was deleted or overwritten after Spark had listed it. Nothing is "
            "committed. Run the job again.",
        ) from error
