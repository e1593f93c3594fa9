"""The newest commits of a job, as its head keeps them: the time, and the numbers of rows and files. Pure.

A head keeps just enough of the history that one scan of all heads shows what is usual for each job. Reading the
histories of thousands of jobs would take thousands of requests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from scripts.helpers.protocol.fields import LATEST

ROWS = ("rows_collected", "rows_written", "rows")
FILES = ("files_read", "files")
BYTES = ("bytes_read", "bytes_written", "bytes")
"""Names of the metrics in which runs count what they took; the first one present is used."""
MOST = 28
"""Commits that a head keeps: four weeks of a daily job, so each weekday is there four times. They take 300 to 400
bytes, and each KB of the head costs a write unit at every step of a run (see docs/cost.md)."""
_MOST_CHARACTERS = MOST * len("99999999:9999999999999999:9999999999999999 ")
MOST_OF_ONE = 10**15
"""Rows or files of one commit. A larger count is a mistake, and the commit is kept without it."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MINUTE = timedelta(minutes=1)
_LATEST_MINUTE = (LATEST - _EPOCH) // _MINUTE
_ENTRIES = re.compile(r"\s*(?:[0-9]{1,8}:[0-9]{0,16}(?::[0-9]{1,16})?(?:\s+|\Z))*")


class PastCommit(NamedTuple):
    """One commit: its time, to the minute, and its numbers of rows and of files; None if they were not counted."""

    at: datetime
    rows: int | None = None
    files: int | None = None


def with_commit(text: str, at: datetime, metrics: Mapping[str, Any]) -> str:
    """Return the stored commits with one more, the newest last; the oldest are dropped if there are more than `MOST`.

    For each, the text has its minutes since the previous commit (or since 1970, UTC), rows and files. A damaged text is
    dropped: commits are only shown to operators and decide nothing.

    >>> at = datetime(2026, 3, 16, 4, tzinfo=timezone.utc)
    >>> with_commit(with_commit("", at, {"rows": 808}), at + timedelta(days=1), {"files": 3})
    '29560560:808 1440::3'
    """
    entries = _entries_in(text)
    before = sum(map(_minutes, entries))
    # If this run's clock is behind that of the previous run, use the previous commit's time: times must not decrease.
    since = max((at - _EPOCH) // _MINUTE - before, 0)
    rows, files = _whole(first_count(metrics, ROWS)), _whole(first_count(metrics, FILES))
    entries.append(f"{since}:{'' if rows is None else rows}" + ("" if files is None else f":{files}"))
    if dropped := entries[:-MOST]:
        oldest, _, counts = entries[-MOST].partition(":")
        entries = [f"{sum(map(_minutes, dropped)) + int(oldest)}:{counts}", *entries[1 - MOST :]]
    return " ".join(entries)


def first_count(metrics: Mapping[str, Any], names: Sequence[str]) -> int | float | None:
    """Return the number of the first metric in `names` that the run has; None if it has none of them."""
    for name in names:
        found = metrics.get(name)
        if isinstance(found, int | float) and not isinstance(found, bool):
            return found
    return None


def kept_text(text: str) -> str:
    """Return the stored text as a head keeps it, not yet parsed: "" if it is longer than any of `with_commit`."""
    return text if len(text) <= _MOST_CHARACTERS else ""


def from_text(text: str) -> tuple[PastCommit, ...]:
    """Return the commits that `with_commit` wrote; an empty tuple if it cannot have written this text."""
    found: list[PastCommit] = []
    minutes = 0
    for entry in _entries_in(text):
        since, rows, files = [*entry.split(":"), ""][:3]
        minutes += int(since)
        at = _EPOCH + minutes * _MINUTE
        found.append(PastCommit(at, int(rows) if rows else None, int(files) if files else None))
    return tuple(found[-MOST:])


def _entries_in(text: str) -> list[str]:
    """Return the entries of a stored text, one for each commit; [] if `with_commit` cannot have written the text."""
    entries = text.split() if _ENTRIES.fullmatch(text) else []
    return entries if sum(map(_minutes, entries)) <= _LATEST_MINUTE else []


def _whole(count: float | None) -> int | None:
    """Return a count as a whole number; None if it is missing, negative or above `MOST_OF_ONE`."""
    return int(count) if count is not None and 0 <= count <= MOST_OF_ONE else None


def _minutes(entry: str) -> int:
    return int(entry.partition(":")[0])
