"""What an error of a connector says, which Spark hands over from its JVM in several ways. Pure."""

from __future__ import annotations

SPARK_ERRORS = {
    "AnalysisException", "Py4JJavaError", "Py4JError", "IllegalArgumentException", "UnsupportedOperationException",
    "SparkUpgradeException", "SparkRuntimeException",
}  # fmt: skip


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
    return any(text in str(error) for text in ("violated by row", "Preview of invalid data"))


def reason_of(error: BaseException) -> str:
    """Return the first line of what went wrong, with a full stop."""
    java = getattr(error, "java_exception", None)
    text = str(java.toString() if java is not None else error).strip() or type(error).__name__
    # No more characters: Delta and Spark append whole documents.
    return f"{text.splitlines()[0][:300].rstrip('. ')}."
