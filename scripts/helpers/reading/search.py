"""Which of some files fail when they are read: all together, then in parts, until each that fails was read alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

TRANSIENT = (
    "SlowDown", "503 Service", "ServiceUnavailable", "RequestTimeout", "ExpiredToken", "InvalidAccessKeyId",
    "OutOfMemoryError", "ExecutorLostFailure", "Connection reset", "Connection refused", "UnknownHostException",
    "SocketTimeoutException", "NoHttpResponseException", "SparkContext was shut down", "stopped SparkContext",
    "cancelled", "No space left on device",
)  # fmt: skip
"""Parts of error texts of which no file is the cause: another try, or another machine, reads it."""

Fails = Callable[[Sequence[str]], "Exception | None"]
"""Reads some files and returns what is raised."""


class NotAFileError(Exception):
    """What failed is not to blame on a file."""


def search(keys: Sequence[str], fails: Fails, named: Callable[[Exception, Sequence[str]], Sequence[str]]) -> list[str]:
    """Return the files that fail when they are read alone, twice.

    Parameters
    ----------
    keys
        All files.
    fails
        Reads some of them, to the end.
    named
        Returns which files an error names: these are tried first. Without any the files are halved.

    Raises
    ------
    NotAFileError
        Something failed for a reason that is no file's; nothing is known then.
    """
    if not keys:
        return []
    error = fails(keys)
    if error is None:
        return []
    check_cause(error)
    if len(keys) == 1:
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
    text = str(error)
    for part in TRANSIENT:
        if part in text:
            raise NotAFileError(part) from error
