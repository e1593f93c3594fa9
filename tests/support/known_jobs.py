"""A table of 61 jobs of known rhythm and size, of which only those in UNWELL are late, missing or of unusual size."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from random import Random

from scripts.helpers.protocol.head import Change, Head
from scripts.helpers.protocol.recent import with_commit

NOW = datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)
"""A Monday."""
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
UNWELL = {
    "hourly-30": "missing",
    "daily-09": "missing",
    "hourly-09": "missing",
    "workdays-thursday": "missing",
    "weekly-late": "late",
    "quarterly-03": "late",
    "daily-03": "late",
    "office-hours-still": "missing",
    "daily-few-rows": "unusually small",
    "daily-no-file": "unusually small",
    "daily-many-rows": "unusually large",
}
"""The finding that each of these jobs must get; all others are well."""


def known_jobs() -> list[Head]:
    """Return the heads of the 61 jobs after six weeks of commits."""
    random = Random(18)
    heads = []
    for number in range(17):
        heads.append(_job(f"daily-well-{number}", _every(DAY, 45, random, 30 * MINUTE, HOUR * (number % 14)), random))
    for number in range(10):
        heads.append(_job(f"hourly-well-{number}", _every(HOUR, 400, random, 10 * MINUTE), random))
    for number in range(5):
        heads.append(_job(f"quarterly-well-{number}", _every(15 * MINUTE, 900, random, 4 * MINUTE), random))
    for number in range(6):
        heads.append(_job(f"workdays-well-{number}", _on(range(5), [6 + number / 2], random), random))
    for number in range(5):
        heads.append(_job(f"weekly-well-{number}", _every(7 * DAY, 9, random, 2 * HOUR, DAY * number), random))
    for number in range(3):
        heads.append(_job(f"office-hours-well-{number}", _on(range(5), range(8, 18), random), random))
    # Jobs with too few commits get no finding, however long ago the last commit was.
    for number in range(3):
        heads.append(_job(f"new-{number}", [NOW - 12 * DAY, NOW - 11 * DAY - number * HOUR], random))
    # A single outage of nine days, long since over, must not count as the job's rhythm.
    made_good = [at for at in _every(DAY, 45, random, 30 * MINUTE) if not 12 * DAY < NOW - at < 21 * DAY]
    heads.append(_job("daily-made-good", made_good, random))

    heads += [
        _job("daily-03", _every(DAY, 40, random, 30 * MINUTE, 3 * DAY), random),
        _job("daily-09", _every(DAY, 40, random, 30 * MINUTE, 9 * DAY), random),
        _job("hourly-09", _every(HOUR, 300, random, 5 * MINUTE, 9 * HOUR), random),
        _job("hourly-30", _every(HOUR, 300, random, 5 * MINUTE, 30 * HOUR), random),
        _job("quarterly-03", _every(15 * MINUTE, 300, random, 2 * MINUTE, 45 * MINUTE), random),
        _job("weekly-late", _every(7 * DAY, 9, random, 2 * HOUR, 12 * DAY), random),
        _job("workdays-thursday", [at for at in _on(range(5), [6], random) if at < NOW - 4 * DAY], random),
        _job("office-hours-still", [at for at in _on(range(5), range(8, 18), random) if at < NOW - 5 * HOUR], random),
        _job("daily-few-rows", _every(DAY, 40, random, 30 * MINUTE), random, last_rows=12),
        _job("daily-many-rows", _every(DAY, 40, random, 30 * MINUTE), random, last_rows=90_000),
        _with_files("daily-no-file", _every(DAY, 40, random, 30 * MINUTE), last_files=0),
    ]
    assert len(heads) == 61
    random.shuffle(heads)
    return heads


def _every(period: timedelta, runs: int, random: Random, jitter: timedelta, ago: timedelta = 0 * DAY) -> list[datetime]:
    """Return times one period apart, each a little later than planned, the last one about `ago` before now."""
    first = NOW - ago - jitter - (runs - 1) * period
    return [first + number * period + random.random() * jitter for number in range(runs)]


def _on(days: range, hours: range | list[float], random: Random) -> list[datetime]:
    """Return times at these hours of these weekdays in the six weeks before now."""
    start = (NOW - 42 * DAY).replace(hour=0, minute=0)
    times = _slots(start, days, hours)
    return sorted(at + random.random() * 10 * MINUTE for at in times if at < NOW - 15 * MINUTE)


def _slots(start: datetime, days: range, hours: range | list[float]) -> Iterator[datetime]:
    for number in range(43):
        day = start + number * DAY
        if day.weekday() in days:
            for hour in hours:
                yield day + hour * HOUR


def _job(job_id: str, times: list[datetime], random: Random, last_rows: int | None = None) -> Head:
    """Return the head of a job that reads about 5,000 rows each time, and ten times as many on its first run."""
    rows = [50_000, *(5_000 + random.randrange(-900, 900) for _ in times[1:])]
    if last_rows is not None:
        rows[-1] = last_rows
    recent = ""
    for at, count in zip(times, rows, strict=True):
        recent = with_commit(recent, at, {"rows_collected": count})
    return _head(job_id, times, recent)


def _with_files(job_id: str, times: list[datetime], last_files: int) -> Head:
    """Return the head of a job that reads four files each time."""
    recent = ""
    for at in times[:-1]:
        recent = with_commit(recent, at, {"files_read": 4})
    return _head(job_id, times, with_commit(recent, times[-1], {"files_read": last_files}))


def _head(job_id: str, times: list[datetime], recent: str) -> Head:
    last = Change("COMMIT", "c", times[-1], f"jr_{len(times)}", fence=len(times), runs=len(times), failed=0)
    return Head(job_id, "e1", len(times), len(times), {}, last, recent_text=recent)
