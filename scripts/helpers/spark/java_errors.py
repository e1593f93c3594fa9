"""Read errors of connectors, which Spark passes from its JVM to Python in several forms. Pure."""

from __future__ import annotations

SPARK_ERRORS = {
    "AnalysisException", "Py4JJavaError", "Py4JError", "IllegalArgumentException", "UnsupportedOperationException",
    "SparkUpgradeException", "SparkRuntimeException",
}  # fmt: skip


def names_java_class(error: BaseException, *names: str) -> bool:
    """Return whether an error or its causes contain one of these names of Java classes or Spark error classes."""
    # The text of an error of Py4J is the Java stack trace with all causes. PySpark's own errors have only a message.
    text = str(error)
    return any(name in text for name in names)


def is_spark_error(error: BaseException) -> bool:
    """Return whether an error comes from Spark, or from code that runs in its JVM."""
    return type(error).__name__ in SPARK_ERRORS


def shows_rows(error: BaseException) -> bool:
    """Return whether an error's text contains rows that a table refused. Its first line never contains rows."""
    return any(text in str(error) for text in ("violated by row", "Preview of invalid data"))


def reason_of(error: BaseException) -> str:
    """Return the first line of an error's text, with a full stop."""
    java = getattr(error, "java_exception", None)
    text = str(java.toString() if java is not None else error).strip() or type(error).__name__
    # Cut the line to 300 characters, because Delta and Spark append whole documents to it.
    return f"{text.splitlines()[0][:300].rstrip('. ')}."
