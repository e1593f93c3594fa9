"""The usual behaviour of a job: how often it commits, and how many rows or files it takes each time. Pure.

Both are learned from the recent commits in the job's head (`Head.recent`), so nobody has to set a threshold.

A job is late half a period after its next commit was due, and missing three periods after that commit was due::

    commit          due      late                      missing
      |--------------|--------|--------------------------|
      0              1        1.5                        4         periods

A period is the median time between commits. It is not the mean, because one outage of a week would make a daily job
look like one that runs every other day. The time until the next commit is learned from commits similar to the last one:
for a job that runs about daily, commits of the same weekday; for a job that runs more often and pauses at night,
commits of the same hour.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from scripts.helpers.display.units import count_text, duration_text
from scripts.helpers.protocol.recent import PastCommit

LEAST_GAPS = 4
"""Fewest gaps between commits from which a rhythm is learned. With fewer, one late commit would decide the result."""
LIKE_GAPS = 2
"""Fewest gaps after commits of the same weekday or hour that are used alone: a single gap may be chance."""
TRIMMED_FROM, LIKE_TRIMMED_FROM = 8, 3
"""Number of values from which the most extreme one is dropped as an outage, a first load or a bad day: for all
commits, and for commits similar to the last one, which vary less."""
SLACK, MISSED = 0.5, 3
"""Periods after the next commit was due until a job is late, and until it is missing."""
ROOM = 0.25
"""Periods by which a gap may exceed the longest usual one: schedules, queues and runs vary."""
DAILY = timedelta(hours=12)
"""Shortest period for which commits of the same weekday are compared. For shorter periods the hour is compared."""
PAUSE = 3
"""Periods without a commit that count as a pause, such as a night."""
LEAST_PERIOD = timedelta(minutes=1)
"""Shortest period from which a rhythm is learned, because the times of commits are kept to the minute."""
LEAST_COUNTS, LIKE_COUNTS = 6, 3
"""Fewest earlier runs from which a usual size is learned, and fewest of the same weekday that are used alone."""
TWICE = 2
"""A count is unusual if it is less than half the smallest usual count, or more than twice the largest one."""
LEAST_DIFFERENCE = 10
"""Least difference in rows or files that is reported: 2 files after days of 5 are no news, but 0 always is."""
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True)
class Rhythm:
    """Times after the last commit: when the next one usually comes, when it is late, and when it counts as missing.

    `weekday` is the last commit's weekday if the usual gap after that day differs from the median gap; otherwise None.
    """

    usual: timedelta
    late: timedelta
    missing: timedelta
    weekday: str | None = None

    @property
    def text(self) -> str:
        """Return the rhythm in words, such as ``usually every 24 h`` or ``usually 3 d after a Friday``."""
        if self.weekday is not None:
            return f"usually {period_text(self.usual)} after a {self.weekday}"
        return f"usually every {period_text(self.usual)}"


@dataclass(frozen=True)
class UnusualSize:
    """The count of the last run, and the range of usual counts. `is_small`: below the range; otherwise above it."""

    is_small: bool
    count: int
    low: int
    high: int
    noun: str

    @property
    def text(self) -> str:
        """Return the size in words, such as ``12 rows, usually 4,800 to 5,200``."""
        noun = self.noun if self.count != 1 else self.noun.removesuffix("s")
        usual = count_text(self.low) if self.low == self.high else f"{self.low:,} to {self.high:,}"
        return f"{count_text(self.count)} {noun}, usually {usual}"


def rhythm_of(commits: Sequence[PastCommit], since: datetime | None = None) -> Rhythm | None:
    """Return the usual time between a job's commits (oldest first); None after few commits, or if it is under a minute.

    Parameters
    ----------
    since
        When the wait began (default: last commit). If enough past waits began on that weekday or hour, only they count.
    """
    gaps = [(before.at, after.at - before.at) for before, after in itertools.pairwise(commits)]
    if len(gaps) < LEAST_GAPS:
        return None
    period = _median([length for _, length in gaps])
    if period < LEAST_PERIOD:
        return None
    last = commits[-1].at if since is None else since
    lengths = [length for _, length in gaps]
    like, trimmed_from = _like(gaps, last, period), LIKE_TRIMMED_FROM
    if len(like) < LIKE_GAPS:
        like, trimmed_from = lengths, TRIMMED_FROM
    usual = _median(like)
    late = max(usual + SLACK * period, _largest(like, trimmed_from) + ROOM * period)
    missing = max(usual + MISSED * period, late)
    is_other = abs(usual - period) >= SLACK * period
    return Rhythm(usual, late, missing, _DAYS[last.weekday()] if is_other and period >= DAILY else None)


def unusual_size(commits: Sequence[PastCommit]) -> UnusualSize | None:
    """Return the size of the last run if it is much less or more than usual; None otherwise, or after too few runs."""
    if not commits:
        return None
    # Prefer rows if they are counted, because the number of files says little about the amount of data.
    noun = "files" if commits[-1].rows is None else "rows"
    counts = [(commit.at, commit.files if noun == "files" else commit.rows) for commit in commits]
    at, count = counts[-1]
    known = [(moment, number) for moment, number in counts[:-1] if number is not None]
    if count is None or len(known) < LEAST_COUNTS:
        return None
    like = [number for moment, number in known if moment.weekday() == at.weekday()]
    if len(like) < LIKE_COUNTS or not _is_daily(commits):
        like = _trimmed([number for _, number in known])
    low, high = min(like), max(like)
    differs = max(low - count, count - high) >= LEAST_DIFFERENCE
    if (count == 0 and low > 0) or (differs and count * TWICE < low):
        return UnusualSize(True, count, low, high, noun)
    if differs and count > high * TWICE:
        return UnusualSize(False, count, low, high, noun)
    return None


def period_text(period: timedelta) -> str:
    """Return a period in the usual words, rounded: ``24 h``, not ``1 d``.

    >>> period_text(timedelta(hours=23, minutes=58)), period_text(timedelta(minutes=15)), period_text(timedelta(days=7))
    ('24 h', '15 min', '7 d')
    """
    minute, quarter, hour, day = timedelta(minutes=1), timedelta(minutes=15), timedelta(hours=1), timedelta(days=1)
    if period >= 2.5 * day:
        return f"{round(period / day)} d"
    if period >= 2 * hour:
        return f"{round(period / hour)} h"
    # Round to quarters of an hour from 45 minutes on: nobody schedules a job every 1 h 3 min.
    unit = quarter if period >= 3 * quarter else minute
    return duration_text(round(period / unit) * unit)


def _like(gaps: Sequence[tuple[datetime, timedelta]], last: datetime, period: timedelta) -> list[timedelta]:
    """Return gaps that began on the weekday of `last` (daily jobs) or at its hour (jobs idle at night), else []."""
    if period >= DAILY:
        return [length for start, length in gaps if start.weekday() == last.weekday()]
    if _largest([length for _, length in gaps], TRIMMED_FROM) >= PAUSE * period:
        return [length for start, length in gaps if start.hour == last.hour]
    return []


def _median(lengths: Sequence[timedelta]) -> timedelta:
    """Return the median of some durations. `statistics.median` would do, but its types allow only numbers."""
    ordered = sorted(lengths)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _largest(lengths: Sequence[timedelta], trimmed_from: int) -> timedelta:
    """Return the longest duration, or with enough of them the second longest, because the longest may be an outage."""
    ordered = sorted(lengths)
    return ordered[-2] if len(ordered) >= trimmed_from else ordered[-1]


def _trimmed(counts: Sequence[int]) -> list[int]:
    """Return sorted counts; from `TRIMMED_FROM` counts on, without the smallest and the largest one."""
    ordered = sorted(counts)
    return ordered[1:-1] if len(ordered) >= TRIMMED_FROM else ordered


def _is_daily(commits: Sequence[PastCommit]) -> bool:
    """Return whether a job runs about once a day, or less often."""
    gaps = [after.at - before.at for before, after in itertools.pairwise(commits)]
    return _median(gaps) >= DAILY
