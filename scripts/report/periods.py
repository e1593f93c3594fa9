"""The history of a job in periods of equal length, as its charts show it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from types import MappingProxyType

from scripts.helpers.protocol.head import LogEntry
from scripts.helpers.protocol.history import counted
from scripts.helpers.protocol.recent import BYTES, FILES, ROWS
from scripts.report.facts import JobFacts

MOST = 60
"""Periods of one chart at most: each is six pixels wide on a phone of 360."""
MOST_IN_RANGE = 32
"""Periods of a chart of a chosen time range: hours of a day, quarters of the days of a week, days of a month. They are
half as many as those of everything, as each range is one more copy in the page."""
RANGES = MappingProxyType(
    {"24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30), "all": None},
)
"""The time ranges of the page by their name in its address, and how far back they go; None is to the first version."""
_EPOCH = datetime(1970, 1, 5, tzinfo=timezone.utc)  # A Monday, so that weeks begin with it.
_MINUTES = (1, 5, 15, 60, 180, 360, 720, 1_440, 2_880, 10_080, 40_320, 120_960, 483_840)
"""Lengths of a period: those that divide an hour or a day, and 2 days, 1, 4, 12 and 48 weeks."""


@dataclass
class Period:
    """What happened from `start` until `end`, which is not in it; `lag` is the highest one reached in it.

    Attributes
    ----------
    is_known
        False for a time before the oldest version that was read: what happened then nobody knows.
    rows, files, bytes
        None where no version counted them, which is not a count of nothing.
    """

    start: datetime
    end: datetime
    is_known: bool = True
    versions: int = 0
    failed: int = 0
    rows: float | None = None
    files: float | None = None
    bytes: float | None = None
    lag: timedelta | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no version was made in it, and no run failed."""
        return self.is_known and not self.versions and not self.failed

    def add(self, entry: LogEntry) -> None:
        """Count a version."""
        self.versions += 1
        self.failed += entry.change.failed
        self.rows = _sum(self.rows, counted(entry, ROWS))
        self.files = _sum(self.files, counted(entry, FILES))
        self.bytes = _sum(self.bytes, counted(entry, BYTES))


@dataclass(frozen=True)
class Periods:
    """All periods up to now, oldest first. `measure` is ``lag``, or ``age`` for a job without a cursor of time."""

    length: timedelta
    periods: Sequence[Period]
    measure: str


def in_periods(facts: JobFacts, most: int = MOST, span: timedelta | None = None) -> Periods | None:
    """Sum a job's versions up; None without any.

    Parameters
    ----------
    most
        Periods at most.
    span
        How far back from now they go; by default to the oldest version that was read.
    """
    if facts.head is None or not facts.entries:
        return None
    oldest = min(entry.change.at for entry in facts.entries)
    since = oldest if span is None else facts.now - span
    length = _length(facts.now - since, most)
    # Periods begin where the clock says so (at full hours, on Mondays), and not at the first version: otherwise
    # all bars would move with each version that a limit leaves out.
    start = _EPOCH + (since - _EPOCH) // length * length
    count = max((facts.now - start) // length + 1, 1)
    periods = [Period(start + number * length, start + (number + 1) * length) for number in range(count)]
    if span is not None:
        # The first one is shorter: "the last 24 hours" are 24, also where the clock would make them 24 and a half.
        periods[0].start = since
    # Versions go up to the one now, without a hole: with the first of them nothing is older.
    if facts.entries[-1].version > 1:
        for period in periods:
            period.is_known = period.end > oldest
    for entry in facts.entries:
        if entry.change.at < since:
            continue
        # A version may be newer than `now`: it was made while others were read, or by a clock that is ahead.
        periods[min((entry.change.at - start) // length, count - 1)].add(entry)
    periods[-1].failed += facts.failed_since
    measure, marks = "lag", facts.cursors
    if facts.lag is None or all(cursor is None for _, cursor in marks):
        # The age is the lag of a job that has read up to the time of each of its versions.
        measure, marks = "age", [(at, at) for at, _ in facts.cursors]
    _add_lags(periods, marks, facts.now)
    return Periods(length, periods, measure)


def stretches(periods: Sequence[Period]) -> list[tuple[datetime, datetime]]:
    """Return when nothing happened: neighbouring empty periods as one, oldest first."""
    found: list[tuple[datetime, datetime]] = []
    for period in periods:
        if not period.is_empty:
            continue
        if found and found[-1][1] == period.start:
            found[-1] = found[-1][0], period.end
        else:
            found.append((period.start, period.end))
    return found


def _sum(so_far: float | None, count: float | None) -> float | None:
    if count is None:
        return so_far
    return count if so_far is None else so_far + count


def _length(span: timedelta, most: int) -> timedelta:
    for minutes in _MINUTES:
        # One less than `most`: the first period begins before the first version, so one more may be needed.
        if span / timedelta(minutes=minutes) <= most - 1:
            return timedelta(minutes=minutes)
    return timedelta(minutes=_MINUTES[-1])


def _add_lags(periods: Sequence[Period], cursors: Sequence[tuple[datetime, datetime | None]], now: datetime) -> None:
    """Set the highest lag of each period: it grows until a version is made, and falls there."""
    position, cursor = 0, None
    for period in periods:
        end = min(period.end, now)
        found = []
        while position < len(cursors) and cursors[position][0] <= end:
            at, following = cursors[position]
            # Right before a version is made the lag is highest, and right after it the new one counts. Versions from
            # before all periods only tell which cursor the first of them begins with.
            if at >= period.start:
                found += [at - mark for mark in (cursor, following) if mark is not None]
            cursor, position = following, position + 1
        if cursor is not None:
            found.append(end - cursor)
        period.lag = max(*found, timedelta(0)) if found else None
