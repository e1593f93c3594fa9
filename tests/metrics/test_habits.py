"""The usual values of a job: the time to its next commit, and the number of rows of a run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

import pytest

from scripts.helpers.metrics.habits import UnusualSize, rhythm_of, unusual_size
from scripts.helpers.protocol.recent import PastCommit

EVENING = datetime(2026, 3, 16, 20, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)


def commits(gaps: Sequence[timedelta], rows: Sequence[int]) -> list[PastCommit]:
    """Return commits with the given times between them, so one commit more than gaps."""
    times = [EVENING + sum(gaps[:number], timedelta(0)) for number in range(len(gaps) + 1)]
    return [PastCommit(at, rows=count) for at, count in zip(times, rows, strict=True)]


@pytest.mark.parametrize(
    ("hours", "usual"), [([6, 1, 8, 2, 7], 6), ([8, 1, 5, 3], 4)], ids=["one in the middle", "two in the middle"]
)
def test_usual_time_is_the_median_when_times_differ(hours: list[int], usual: int) -> None:
    rhythm = rhythm_of(commits([hour * HOUR for hour in hours], [1] * (len(hours) + 1)))

    assert rhythm is not None
    assert rhythm.usual == usual * HOUR


@pytest.mark.parametrize(
    ("gap", "rows"),
    [(HOUR, [100] * 4 + [1000] * 3 + [100]), (24 * HOUR, [100] + [500] * 7)],
    ids=["other days of an hourly job", "too few of the weekday"],
)
def test_size_is_compared_with_all_runs_when_those_of_the_weekday_say_little(gap: timedelta, rows: list[int]) -> None:
    assert unusual_size(commits([gap] * 7, rows)) is None


def test_size_is_compared_with_those_of_the_weekday_when_three_are_known() -> None:
    rows = ([1000] + [100] * 6) * 3 + [100]

    assert unusual_size(commits([24 * HOUR] * 21, rows)) == UnusualSize(True, 100, 1000, 1000, "rows")
