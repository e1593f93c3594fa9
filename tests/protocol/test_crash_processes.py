"""The crash matrix with real processes: SIGKILL hits at a request, and another process continues."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import RunInProgressError
from scripts.helpers.watermarks import Watermarks
from tests.protocol.crash_process import FileSink, run_apart
from tests.protocol.model_job import Source, check_delivery, check_table, drain, work

pytestmark = pytest.mark.both_stores

JOB, KILLED = "parking", "r-killed"
SPILL_BYTES = 66_000
"""More than a head may hold, so plan and state go to chunks."""
INLINE_REQUESTS, SPILLED_REQUESTS = 8, 13
RETRIES = ("same run id", "take-over", "after the lease")
KILLS = [(number, when, 0) for number in range(1, INLINE_REQUESTS + 1) for when in ("before", "after")] + [
    (5, "after", SPILL_BYTES),  # The plan's chunk is written, the state's chunk is not.
    (6, "after", SPILL_BYTES),  # Both are written, but no head refers to them.
    (7, "after", SPILL_BYTES),  # The plan is frozen.
    (10, "after", SPILL_BYTES),  # The commit took effect, but nothing was written after it.
    (11, "after", SPILL_BYTES),  # The run item exists, the log entry does not.
    (13, "before", SPILL_BYTES),  # The chunk of the old plan is about to be deleted.
]


class KilledJob:
    """One job on a table, with a source and a sink that all processes share."""

    def __init__(self, endpoint: str, watermarks: Watermarks, folder: Path, pad_bytes: int) -> None:
        self.endpoint, self.watermarks, self.pad_bytes = endpoint, watermarks, pad_bytes
        self.source, self.sink = Source(), FileSink(folder / "sink.jsonl")
        self.go_on(watermarks, "r-first")

    def options(self) -> dict[str, Any]:
        return {"spilled": self.pad_bytes > 0, "pad_bytes": self.pad_bytes}

    def go_on(self, watermarks: Watermarks, run_id: str, **options: Any) -> None:
        work(watermarks, JOB, run_id, self.source, self.sink, **self.options(), **options)

    def start(self, **kill: Any) -> tuple[int | None, int | None]:
        """Run once in a process of its own."""
        return run_apart({
            "endpoint": self.endpoint, "table": self.watermarks.table_name, "job": JOB, "run": KILLED,
            "rows": self.source.count, "sink": str(self.sink.path), "pad_bytes": self.pad_bytes, **kill,
        })  # fmt: skip

    def retry(self, how: str) -> None:
        claim = self.watermarks.latest(JOB).claim
        if how == "same run id":
            self.go_on(self.watermarks, KILLED)
        elif how == "take-over":
            self.go_on(self.watermarks, "r-new", take_over=True)
        else:
            if claim:
                with pytest.raises(RunInProgressError):
                    self.watermarks.begin(JOB, "r-new")
            later = Watermarks(self.watermarks.table_name, self.watermarks.store.client, clock=in_an_hour)
            self.go_on(later, "r-new")


def in_an_hour() -> datetime:
    return datetime.now(timezone.utc) + timedelta(hours=1)


@pytest.fixture
def make_job(endpoint: str, make_watermarks: Callable[..., Watermarks], tmp_path: Path) -> Callable[[int], KilledJob]:
    """Return a builder of a job with one committed run, on the real clock."""

    def make(pad_bytes: int) -> KilledJob:
        watermarks = make_watermarks(clock=lambda: datetime.now(timezone.utc))
        return KilledJob(endpoint, watermarks, tmp_path, pad_bytes)

    return make


@pytest.mark.parametrize(
    ("number", "when", "pad_bytes", "retry"),
    [(*kill, RETRIES[index % len(RETRIES)]) for index, kill in enumerate(KILLS)],
)
def test_every_row_arrives_once_when_a_process_is_killed(
    make_job: Callable[[int], KilledJob], number: int, when: str, pad_bytes: int, retry: str
) -> None:
    job = make_job(pad_bytes)
    job.source.grow(2)

    ended, _ = job.start(kill_at=number, when=when)
    job.source.grow(2)
    job.retry(retry)
    drain(job.watermarks, JOB, job.source, job.sink, **job.options())
    job.sink.load()

    assert ended == -signal.SIGKILL
    check_delivery(job.watermarks, JOB, job.source, job.sink)
    check_table(job.watermarks, JOB)


@pytest.mark.parametrize(("pad_bytes", "expected"), [(0, INLINE_REQUESTS), (SPILL_BYTES, SPILLED_REQUESTS)])
def test_process_makes_the_requests_that_are_killed_when_it_is_not_killed(
    make_job: Callable[[int], KilledJob], pad_bytes: int, expected: int
) -> None:
    job = make_job(pad_bytes)

    ended, requests = job.start()
    job.sink.load()

    assert (ended, requests) == (0, expected)
    assert {number for number, _, size in KILLS if size == 0} == set(range(1, INLINE_REQUESTS + 1))
    assert job.sink.rows == list(range(job.source.count))
