"""Which of some files fail when they are read: all together, then in parts, until each that fails was read alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from scripts.helpers.errors import FileContentError
from scripts.helpers.listing.s3 import is_login_or_load

TRANSIENT = {
    "AWSServiceThrottledException", "AWSStatus500Exception", "ClosedChannelException", "ConnectException",
    "ConnectTimeoutException", "InterruptedException", "InterruptedIOException", "NoAuthWithAWSException",
    "NoHttpResponseException", "NoRouteToHostException", "OutOfMemoryError", "RetriesExceeded", "SocketException",
    "SocketTimeoutException", "SSLException", "TaskKilledException", "UnknownHostException",
}  # fmt: skip
"""Classes of errors of which no file is the cause: another try, or another machine, reads it."""

Named = Callable[[Exception, Sequence[str]], Sequence[str]]
Fails = Callable[[Sequence[str]], "Exception | None"]
"""Reads some files and returns what is raised."""


class NotAFileError(Exception):
    """What failed is not to blame on a file."""


def search(keys: Sequence[str], fails: Fails, named: Named, known: Exception | None = None) -> list[str]:
    """Return the files that fail when they are read alone, twice.

    Parameters
    ----------
    keys
        All files.
    fails
        Reads some of them, to the end.
    known
        What was raised when all of them were read, if they were.
    named
        Returns which files an error names: these are tried first. Without any the files are halved.

    Raises
    ------
    NotAFileError
        Something failed for a reason that is no file's; nothing is known then.
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
        # Once more: a machine that was lost, or a network that broke off, has not always a text that tells it.
        again = fails(keys)
        if again is None:
            return []
        check_cause(again)
        return list(keys)
    first = [key for key in named(error, keys) if key in set(keys)]
    if not 0 < len(first) < len(keys):
        first = list(keys[: len(keys) // 2])
    others = [key for key in keys if key not in set(first)]
    return [*search(first, fails, named), *search(others, fails, named)]


def check_cause(error: Exception) -> None:
    """Raise NotAFileError for an error that says of itself that no file is its cause."""
    for name, cause in [(type(error).__name__, None), *java_causes(error)]:
        code = ""
        with suppress(Exception):  # Only an error of AWS has a code.
            code = cause.getErrorCode()
        if name in TRANSIENT or is_login_or_load(code):
            raise NotAFileError(code or name) from error
    # Spark says nothing of a cause where a machine was lost, or the job was cancelled.
    if cause is not None and name == "SparkException":
        raise NotAFileError(name) from error


def java_causes(error: BaseException) -> Iterator[tuple[str, Any]]:
    """Yield the exceptions of the JVM behind an error of Spark, with the names of their classes, first cause last."""
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    with suppress(Exception):  # The JVM is gone, or it is no Java error after all.
        while java is not None:
            yield java.getClass().getSimpleName(), java
            java = java.getCause()
