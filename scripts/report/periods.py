"""Divide the history of a job into periods of equal length, for its charts. Pure."""

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
"""Maximum periods in a chart, so that each is six pixels wide on a phone of 360 pixels."""
MAX_PERIODS_IN_RANGE = 32
"""Maximum periods in a chart of one time range: hours of a day, quarters of the days of a week, days of a month. It is
about half of `MOST`, because each range adds a copy of the chart to the page."""
RANGES = MappingProxyType(
    {"24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30), "all": None},
)
"""How far back each time range of the page goes, by its name in the page's URL; None: back to the first version."""
_EPOCH = datetime(1970, 1, 5, tzinfo=timezone.utc)  # A Monday, so that weeks begin on Mondays.
_MINUTES = (1, 5, 15, 60, 180, 360, 720, 1_440, 2_880, 10_080, 40_320, 120_960, 483_840)
"""Possible lengths of a period in minutes: divisors of an hour or a day, then 2 days and 1, 4, 12 and 48 weeks."""


@dataclass
class Period:
    """What happened from `start` (inclusive) to `end` (exclusive); `lag` is the highest lag in that time.

    Attributes
    ----------
    is_known
        False for a time before the oldest version that was read, because what happened then is unknown.
    rows, files, bytes
        None if no version counted them, which differs from a count of 0.
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
        """Whether it is known that no version was made and no run failed in this period."""
        return self.is_known and not self.versions and not self.failed

    def add(self, entry: LogEntry) -> None:
        """Add the counts of a version."""
        self.versions += 1
        self.failed += entry.change.failed
        self.rows = _sum(self.rows, counted(entry, ROWS))
        self.files = _sum(self.files, counted(entry, FILES))
        self.bytes = _sum(self.bytes, counted(entry, BYTES))


@dataclass(frozen=True)
class Periods:
    """A chart's periods of `length` up to now, oldest first. `measure` is ``lag``, or ``age`` without a time cursor."""

    length: timedelta
    periods: Sequence[Period]
    measure: str


def in_periods(facts: JobFacts, most: int = MOST, span: timedelta | None = None) -> Periods | None:
    """Return a job's versions summed up by period; None for a job without versions.

    Parameters
    ----------
    most
        Maximum periods.
    span
        How far back from now the periods go; by default to the oldest version that was read.
    """
    if facts.head is None or not facts.entries:
        return None
    oldest = min(entry.change.at for entry in facts.entries)
    since = oldest if span is None else facts.now - span
    length = _length(facts.now - since, most)
    # Periods begin at round times (full hours, Mondays) and not at the first version. Otherwise all bars would move
    # whenever a new version displaces the oldest one, because the number of versions that are read is limited.
    start = _EPOCH + (since - _EPOCH) // length * length
    count = max((facts.now - start) // length + 1, 1)
    periods = [Period(start + number * length, start + (number + 1) * length) for number in range(count)]
    if span is not None:
        # Shorten the first period, so that "the last 24 hours" are exactly 24, even if `length` does not divide them.
        periods[0].start = since
    # Version numbers have no holes. If version 1 was read, nothing is older, and all periods are known.
    if facts.entries[-1].version > 1:
        for period in periods:
            period.is_known = period.end > oldest
    for entry in facts.entries:
        if entry.change.at < since:
            continue
        # Add a version that is newer than `now` (made during the read, or by a clock that is ahead) to the last period.
        periods[min((entry.change.at - start) // length, count - 1)].add(entry)
    periods[-1].failed += facts.failed_since
    measure, marks = "lag", facts.cursors
    if facts.lag is None or all(cursor is None for _, cursor in marks):
        # Use the age: the lag that the job would have if each version had read all rows up to its own time.
        measure, marks = "age", [(at, at) for at, _ in facts.cursors]
    _add_lags(periods, marks, facts.now)
    return Periods(length, periods, measure)


def stretches(periods: Sequence[Period]) -> list[tuple[datetime, datetime]]:
    """Return the start and end of each stretch of empty periods, in which nothing happened, oldest first."""
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
        # Leave room for one more period, because the first one begins before the first version.
        if span / timedelta(minutes=minutes) <= most - 1:
            return timedelta(minutes=minutes)
    return timedelta(minutes=_MINUTES[-1])


def _add_lags(periods: Sequence[Period], cursors: Sequence[tuple[datetime, datetime | None]], now: datetime) -> None:
    """Set the highest lag of each period. The lag grows until a version is made, and drops at that time."""
    position, cursor = 0, None
    for period in periods:
        end = min(period.end, now)
        found = []
        while position < len(cursors) and cursors[position][0] <= end:
            at, following = cursors[position]
            # Take the lag right before the version, when it is highest, and right after it. Versions from before all
            # periods only set the cursor with which the first period begins.
            if at >= period.start:
                found += [at - mark for mark in (cursor, following) if mark is not None]
            cursor, position = following, position + 1
        if cursor is not None:
            found.append(end - cursor)
        period.lag = max(*found, timedelta(0)) if found else None
