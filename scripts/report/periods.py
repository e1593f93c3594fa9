"""The history of a job in periods of equal length, as its charts show it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from scripts.helpers.protocol.history import counted
from scripts.helpers.protocol.recent import BYTES, FILES, ROWS
from scripts.report.facts import JobFacts

MOST = 60
"""Periods of one chart at most."""
_EPOCH = datetime(1970, 1, 5, tzinfo=timezone.utc)  # A Monday, so that weeks begin with it.
_MINUTES = (1, 5, 15, 60, 180, 360, 720, 1_440, 2_880, 10_080, 40_320, 120_960, 483_840)


@dataclass
class Period:
    """What happened from `start` on, for the length of one period; `lag` is the highest one reached in it."""

    start: datetime
    versions: int = 0
    failed: int = 0
    rows: float = 0
    files: float = 0
    bytes: float = 0
    lag: timedelta | None = None


@dataclass(frozen=True)
class Periods:
    """All periods up to now, oldest first. `measure` is ``lag``, or ``age`` for a job without a cursor of time."""

    length: timedelta
    periods: Sequence[Period]
    measure: str


def in_periods(facts: JobFacts, most: int = MOST) -> Periods | None:
    """Sum a job's versions up; None without any."""
    if facts.head is None or not facts.entries:
        return None
    first = min(entry.change.at for entry in facts.entries)
    length = _length(facts.now - first, most)
    # Periods begin where the clock says so (at full hours, on Mondays), and not at the first version: otherwise
    # all bars would move with each version that a limit leaves out.
    start = _EPOCH + (first - _EPOCH) // length * length
    count = max((facts.now - start) // length + 1, 1)
    periods = [Period(start + number * length) for number in range(count)]
    for entry in facts.entries:
        # A version may be newer than `now`: it was made while others were read, or by a clock that is ahead.
        period = periods[min(max((entry.change.at - start) // length, 0), count - 1)]
        period.versions += 1
        period.failed += entry.failed
        period.rows += counted(entry, ROWS) or 0
        period.files += counted(entry, FILES) or 0
        period.bytes += counted(entry, BYTES) or 0
    periods[-1].failed += facts.failed_since
    measure, marks = "lag", facts.cursors
    if facts.lag is None:
        # The age is the lag of a job that has read up to the time of each of its versions.
        measure, marks = "age", [(at, at) for at, _ in facts.cursors]
    _add_lags(periods, length, marks, facts.now)
    return Periods(length, periods, measure)


def _length(span: timedelta, most: int) -> timedelta:
    for minutes in _MINUTES:
        # One less than `most`: the first period begins before the first version, so one more may be needed.
        if span / timedelta(minutes=minutes) <= most - 1:
            return timedelta(minutes=minutes)
    return timedelta(minutes=_MINUTES[-1])


def _add_lags(
    periods: Sequence[Period],
    length: timedelta,
    cursors: Sequence[tuple[datetime, datetime | None]],
    now: datetime,
) -> None:
    """Set the highest lag of each period: it grows until a version is made, and falls there."""
    position, cursor = 0, None
    for period in periods:
        end = min(period.start + length, now)
        found = []
        while position < len(cursors) and cursors[position][0] <= end:
            at, following = cursors[position]
            # Right before a version is made the lag is highest, and right after it the new one counts.
            found += [at - mark for mark in (cursor, following) if mark is not None]
            cursor, position = following, position + 1
        if cursor is not None:
            found.append(end - cursor)
        period.lag = max(*found, timedelta(0)) if found else None
