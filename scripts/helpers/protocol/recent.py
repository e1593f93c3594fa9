"""The newest commits of a job, as its head keeps them: when, and how many rows and files. Pure.

A head has so much of its history, and no more, that one scan of the heads tells what is usual for each job. To ask for
the histories of thousands of jobs would take thousands of requests.
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
"""Under which names a run counts what it took; the first that is there counts."""
MOST = 28
"""Commits that a head keeps: four weeks of a daily job, so that each weekday comes four times. They take 300 to 400
bytes, and each KB of the head is a write unit of every step of a run: docs/cost.md says what that comes to."""
MOST_OF_ONE = 10**15
"""Rows, files or bytes of one commit: a larger count is a mistake, and the commit is one without a count."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MINUTE = timedelta(minutes=1)
_ENTRY = re.compile(r"([0-9]{1,8}):([0-9]{0,16})(?::([0-9]{1,16}))?")


class PastCommit(NamedTuple):
    """One commit: when, to the minute, and how many rows and files it took. None is what the run did not count."""

    at: datetime
    rows: int | None = None
    files: int | None = None


def with_commit(commits: Sequence[PastCommit], at: datetime, metrics: Mapping[str, Any]) -> tuple[PastCommit, ...]:
    """Return the commits with one more, the newest last, without those that are too many."""
    minute = _EPOCH + (at - _EPOCH) // _MINUTE * _MINUTE
    # The clock of this run may be behind that of the run before: no commit is before the one that it follows.
    if commits:
        minute = max(minute, commits[-1].at)
    made = PastCommit(minute, _whole(first_count(metrics, ROWS)), _whole(first_count(metrics, FILES)))
    return (*commits, made)[-MOST:]


def first_count(metrics: Mapping[str, Any], names: Sequence[str]) -> int | float | None:
    """Return the first of some counts that a run has."""
    for name in names:
        found = metrics.get(name)
        if isinstance(found, int | float) and not isinstance(found, bool):
            return found
    return None


def to_text(commits: Sequence[PastCommit]) -> str:
    """Write commits, each as minutes since the one before (the first since 1970), rows and files.

    >>> at = datetime(2026, 3, 16, 4, tzinfo=timezone.utc)
    >>> day = timedelta(days=1)
    >>> to_text([PastCommit(at, 808), PastCommit(at + day, 812), PastCommit(at + 2 * day, None, 3)])
    '29560560:808 1440:812 1440::3'
    """
    written: list[str] = []
    before = _EPOCH
    for commit in commits:
        entry = f"{(commit.at - before) // _MINUTE}:{_digits(commit.rows)}"
        if commit.files is not None:
            entry += f":{commit.files}"
        written.append(entry)
        before = commit.at
    return " ".join(written)


def from_text(text: str) -> tuple[PastCommit, ...]:
    """Read commits; none from a text that is not as `to_text` writes it.

    They are for people to look at and decide nothing, so a damaged text does not cost a job its state.
    """
    found: list[PastCommit] = []
    at = _EPOCH
    for entry in text.split():
        matched = _ENTRY.fullmatch(entry)
        if matched is None:
            return ()
        at += int(matched[1]) * _MINUTE
        if at > LATEST:
            return ()
        found.append(PastCommit(at, _number(matched[2]), _number(matched[3])))
    return tuple(found[-MOST:])


def _whole(count: float | None) -> int | None:
    """Return a count as a head keeps it; None for one that no run can have."""
    return int(count) if count is not None and 0 <= count <= MOST_OF_ONE else None


def _digits(count: int | None) -> str:
    return "" if count is None else str(count)


def _number(digits: str | None) -> int | None:
    return int(digits) if digits else None
