"""What is usual for a job: how often it commits, and how much it takes each time. Pure.

Both are learned from the commits that its head keeps (`Head.recent`), without a threshold.

A job is late half a period after its next commit was due, and missing once three more did not come::

    commit          due      late                      missing
      |--------------|--------|--------------------------|
      0              1        1.5                        4         periods

A period is the median time between commits. The median and not the mean: one outage of a week would make a daily job
look like one that runs every other day. What is usual *now* is taken from commits like the last one. For a job that
runs about daily these are commits of the same weekday, for one that runs more often and pauses by night those of the
same hour.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from scripts.helpers.display.units import count_text, duration_text
from scripts.helpers.protocol.recent import PastCommit

LEAST_GAPS = 4
"""Times between commits from which a rhythm is learned. With fewer, one that was late decides what is usual."""
LIKE_GAPS = 2
"""Times after commits of the same weekday or hour that are enough to go by them: once may be chance."""
TRIMMED_FROM, LIKE_TRIMMED_FROM = 8, 3
"""Values from which the most extreme one is left out as an outage, a first load or a bad day: of all commits, and of
those like the last one, which differ less."""
SLACK, MISSED = 0.5, 3
"""Periods after the next commit was due, from which on a job is late, and missing."""
ROOM = 0.25
"""Periods by which the longest usual pause may be exceeded: schedules, queues and runs vary."""
DAILY = timedelta(hours=12)
"""From this period on weekdays count, below it hours."""
PAUSE = 3
"""Periods without a commit that are a pause, such as a night."""
LEAST_PERIOD = timedelta(minutes=1)
"""Commits are kept to the minute, so of a shorter period nothing is known."""
LEAST_COUNTS, LIKE_COUNTS = 6, 3
"""Runs before the last one that a usual size is learned from, and those of its weekday that are enough alone."""
TWICE = 2
"""How many times less or more than ever before is unusual."""
LEAST_DIFFERENCE = 10
"""Rows or files that a run has to differ by: 2 files after days of 5 are no news. No file at all always is."""
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True)
class Rhythm:
    """How long a job usually takes to its next commit, and from when on it is late and missing, from the last one on.

    `weekday` is that of the last commit where another time is usual after it than after others, else None.
    """

    usual: timedelta
    late: timedelta
    missing: timedelta
    weekday: str | None = None

    @property
    def text(self) -> str:
        """Return it in words, such as ``usually every 24 h`` or ``usually 3 d after a Friday``."""
        if self.weekday is not None:
            return f"usually {period_text(self.usual)} after a {self.weekday}"
        return f"usually every {period_text(self.usual)}"


@dataclass(frozen=True)
class UnusualSize:
    """What the last run took, and between which counts it usually lies. `is_small`, or else large."""

    is_small: bool
    count: int
    low: int
    high: int
    noun: str

    @property
    def text(self) -> str:
        """Return it in words, such as ``12 rows, usually 4,800 to 5,200``."""
        noun = self.noun if self.count != 1 else self.noun.removesuffix("s")
        usual = count_text(self.low) if self.low == self.high else f"{self.low:,} to {self.high:,}"
        return f"{count_text(self.count)} {noun}, usually {usual}"


def rhythm_of(commits: Sequence[PastCommit], since: datetime | None = None) -> Rhythm | None:
    """Return the rhythm of a job from its newest commits, oldest first; None where there are too few.

    Parameters
    ----------
    since
        What the next commit is waited for from on; by default the last commit.
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
    """Tell whether the last run took much less or more than usual; None where it did not, or too little is known."""
    if not commits:
        return None
    # Rows where they are counted: a file more or less says little about how much came.
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
    """Write a period as people say it, rounded: ``24 h``, and not ``1 d``.

    >>> period_text(timedelta(hours=23, minutes=58)), period_text(timedelta(minutes=15)), period_text(timedelta(days=7))
    ('24 h', '15 min', '7 d')
    """
    minute, quarter, hour, day = timedelta(minutes=1), timedelta(minutes=15), timedelta(hours=1), timedelta(days=1)
    if period >= 2.5 * day:
        return f"{round(period / day)} d"
    if period >= 2 * hour:
        return f"{round(period / hour)} h"
    # To the quarter of an hour from about one hour on: nobody plans a job every 1 h 3 min.
    unit = quarter if period >= 3 * quarter else minute
    return duration_text(round(period / unit) * unit)


def _like(gaps: Sequence[tuple[datetime, timedelta]], last: datetime, period: timedelta) -> list[timedelta]:
    """Return the times that passed after commits like the last one; none where all are alike."""
    if period >= DAILY:
        return [length for start, length in gaps if start.weekday() == last.weekday()]
    if _largest([length for _, length in gaps], TRIMMED_FROM) >= PAUSE * period:
        return [length for start, length in gaps if start.hour == last.hour]
    return []


def _median(lengths: Sequence[timedelta]) -> timedelta:
    """Return the middle one of some times, or what is between both; `statistics.median` is typed for numbers only."""
    ordered = sorted(lengths)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _largest(lengths: Sequence[timedelta], trimmed_from: int) -> timedelta:
    """Return the longest time, without the most extreme one where there are enough: it may have been an outage."""
    ordered = sorted(lengths)
    return ordered[-2] if len(ordered) >= trimmed_from else ordered[-1]


def _trimmed(counts: Sequence[int]) -> list[int]:
    """Return counts without the smallest and the largest one, where there are enough."""
    ordered = sorted(counts)
    return ordered[1:-1] if len(ordered) >= TRIMMED_FROM else ordered


def _is_daily(commits: Sequence[PastCommit]) -> bool:
    """Tell whether a job runs about once a day, or less often."""
    gaps = [after.at - before.at for before, after in itertools.pairwise(commits)]
    return _median(gaps) >= DAILY
