"""Find the files that fail to read: read all together, then in parts, until each failing file was read alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from scripts.helpers.errors import FileContentError, SourceError
from scripts.helpers.listing.s3 import is_login_or_load
from scripts.helpers.spark.java_errors import reason_of

TRANSIENT = {
    "AWSServiceThrottledException", "AWSStatus500Exception", "ClosedChannelException", "ConnectException",
    "ConnectTimeoutException", "InterruptedException", "InterruptedIOException", "NoAuthWithAWSException",
    "NoHttpResponseException", "NoRouteToHostException", "OutOfMemoryError", "RetriesExceeded", "SocketException",
    "SocketTimeoutException", "SSLException", "TaskKilledException", "UnknownHostException",
}  # fmt: skip
"""Classes of errors that no file causes: a retry, or another machine, may read the file."""

_DELETED = re.compile(
    r"(?:File (.+) does not exist|reading file (.+)\. File does not exist\.)\s+It is possible the under"
)
"""Spark's messages about a missing file that it had listed for a frame. The second one is from Spark 4."""
_UNREADABLE = re.compile(
    r"(?:while reading|converted in|footer for|Malformed ORC) file:? (.+?)\.(?:\s+((?:Column|Data type).*)|\s|$)"
    r"|RuntimeException: (.+) is not a Parquet file"
    r"|EOFException: Unexpected end of input stream|UnsupportedEncodingException: \S+|TextParsingException"
)
"""Spark's messages about a file that it cannot read. Spark 3 does not name a compressed file that is truncated."""

Named = Callable[[Exception, Sequence[str]], Sequence[str]]
Fails = Callable[[Sequence[str]], "Exception | None"]
"""Reads some files and returns the error that this raises, or None."""


class NotAFileError(Exception):
    """A read failed for a reason that no file causes."""


def search(keys: Sequence[str], fails: Fails, named: Named, known: Exception | None = None) -> list[str]:
    """Return the files that fail when they are read alone, twice.

    Parameters
    ----------
    keys
        All files.
    fails
        Reads the given files to the end, and returns the error, or None if there is none.
    known
        The error from reading all files, if they were read before.
    named
        Returns which files an error names; these are tried first. If it names none, the files are split in half.

    Raises
    ------
    NotAFileError
        A read failed for a reason that no file causes, so the failing files are unknown.
    """
    if not keys:
        return []
    error = known or fails(keys)
    if error is None:
        return []
    check_cause(error)
    if len(keys) == 1:
        if isinstance(error, FileContentError):
            return list(keys)
        # Read again, because the first error may come from a lost machine or connection and not from the file.
        again = fails(keys)
        if again is None:
            return []
        check_cause(again)
        return list(keys)
    known_keys = set(keys)
    first = [key for key in named(error, keys) if key in known_keys]
    if not 0 < len(first) < len(keys):
        first = list(keys[: len(keys) // 2])
    known_keys.difference_update(first)
    others = [key for key in keys if key in known_keys]
    return [*search(first, fails, named), *search(others, fails, named)]


def check_cause(error: Exception) -> None:
    """Raise NotAFileError if the error itself shows that no file caused it."""
    for name, cause in [(type(error).__name__, None), *java_causes(error)]:
        code = ""
        with suppress(Exception):  # Only AWS errors have an error code.
            code = cause.getErrorCode()
        if name in TRANSIENT or is_login_or_load(code):
            raise NotAFileError(code or name) from error
    # If the root cause is only a SparkException, a machine was lost or the job was cancelled.
    if cause is not None and name == "SparkException":
        raise NotAFileError(name) from error


def java_causes(error: BaseException) -> Iterator[tuple[str, Any]]:
    """Yield class name and object of each JVM exception behind an error of Spark, the root cause last."""
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    with suppress(Exception):  # Yield nothing if the JVM is gone, or if this is not a Java error.
        while java is not None:
            yield java.getClass().getSimpleName(), java
            java = java.getCause()


def source_error(error: BaseException) -> SourceError | None:
    """Return a SourceError if Spark's error is about a missing or damaged file; None otherwise."""
    text = f"{error} {error.__cause__}"
    causes = re.findall(r"^Caused by: (?:[\w$]+\.)*([\w$]+)", text, re.MULTILINE)
    if found := _DELETED.search(text):
        return SourceError(
            found[1] or found[2],
            "the rows come from this file, and it was deleted or overwritten after Spark had listed it. Nothing is "
            "committed. Run the job again.",
        )
    found = _UNREADABLE.search(text)
    if found is None or TRANSIENT.intersection(causes):
        return None
    file = found[1] or found[3]
    reason = found[2] or (causes or ["its bytes are wrong" if file else found[0]])[-1]
    return SourceError(
        file or "files of the batch",
        f"Spark cannot read {'it' if file else 'one of them'} ({reason}). Nothing is committed. Upload "
        "the file again, or check options, format and schema of the read. With on_unreadable='set_aside' the job sets "
        "such files aside and takes the others.",
    )


@contextmanager
def typed_read_errors(source: str) -> Iterator[None]:
    """Raise SourceError if Spark refuses a file, an option, a schema or a format before it reads rows."""
    try:
        yield
    except Exception as error:
        is_spark_error = type(error).__module__.partition(".")[0] in ("pyspark", "py4j")
        # Leave the error of a lost connection or machine as it is, because a retry may succeed.
        if not is_spark_error or TRANSIENT.intersection(name for name, _ in java_causes(error)):
            raise
        # Import this only now, because jobs that read rows run without pyarrow.
        from scripts.helpers.reading.fetched_lines import unmarked

        told = f"Spark's reader refuses it: {reason_of(error)} Check options, format and schema of the read."
        raise unmarked(error) or source_error(error) or SourceError(source, told) from error
