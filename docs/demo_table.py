"""Fills a table as a council's jobs would, for the pictures of the page about jobs.

Each job runs through the public calls, by a clock that is set, so that each build of the site draws the same pictures.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from typing import Any

from moto import mock_aws
from scripts.helpers.files.states import FilesPlan, FilesState
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.states import RowsState
from scripts.helpers.watermarks import Watermarks
from scripts.report import build_report

NOW = datetime(2026, 3, 19, 3, 4, tzinfo=timezone.utc)
"""When the page is made: a Thursday, at night."""
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
RUN_SECONDS = 95
CHANGED = CursorColumn("last_modified", "timestamp")


class Council:
    """The jobs of a council, and the clock that they go by."""

    def __init__(self) -> None:
        self.now = NOW
        self.runs = 0
        self.watermarks = Watermarks(
            "council", region_name="eu-west-2", clock=lambda: self.now
        )
        self.watermarks.create_table()

    def begin(self, job_id: str, at: datetime) -> Any:
        """Begin a run, which has an id as Glue gives them."""
        self.now, self.runs = at, self.runs + 1
        digest = sha256(str(self.runs).encode()).hexdigest()
        return self.watermarks.begin(job_id, f"jr_{digest}")

    def commit(
        self, job_id: str, at: datetime, state: Mapping[str, Any], **counts: int
    ) -> None:
        """Run a job once, until `at`."""
        run = self.begin(job_id, at - timedelta(seconds=RUN_SECONDS))
        run.freeze({}, {"source": dict(state)})
        self.now = at
        run.commit(**counts)

    def rows(
        self,
        job_id: str,
        last: datetime,
        every: timedelta,
        runs: int,
        usual: int,
        failed: tuple[int, ...] = (),
        skipped: tuple[int, ...] = (),
    ) -> None:
        """Read rows of a table at each run; before those that are named a run fails, or they do not run at all."""
        state: RowsState | None = None
        for number in range(runs):
            if number in skipped:
                continue
            at = last - (runs - 1 - number) * every
            if number in failed:
                self.begin(job_id, at - every / 2).abort()
            # By day a council has more to write down than by night.
            count = usual * (8 if 7 <= at.hour <= 18 else 1) + number * 37 % (usual + 1)
            value = at - timedelta(minutes=5)
            low = state.value or () if state else ()
            following = RowsState((CHANGED,), (value,))
            state = following.with_coverage(state, [(low, (value,))], "council")
            self.commit(job_id, at, state.to_store(), rows_collected=count)

    def files(
        self, job_id: str, last: datetime, every: timedelta, counts: tuple[int, ...]
    ) -> None:
        """Read new files at each run."""
        for number, count in enumerate(counts):
            at = last - (len(counts) - 1 - number) * every
            state = FilesState("s3://landing/scans/", at).to_store()
            self.commit(
                job_id, at, state, files_read=count, bytes_read=count * 48_211_003
            )

    def fill(self) -> None:
        """Write jobs of which some are well, and each of the others has one thing that is wrong."""
        three = NOW.replace(minute=0)
        self.rows(
            "parking-permits",
            three,
            HOUR,
            40,
            40,
            failed=(24, 25),
            skipped=(31, 32, 33),
        )
        self.rows("repairs", three - 9 * HOUR, HOUR, 30, 25)
        self.rows("housing-rents", three - 38 * HOUR, DAY, 9, 900)
        self.files(
            "planning-scans",
            three - HOUR,
            6 * HOUR,
            (61, 58, 64, 60, 57, 63, 62, 59, 61, 4),
        )
        self.files("waste-collections", three - 2 * HOUR, 3 * HOUR, (12,) * 8)
        self.rows("library-loans", three - HOUR, HOUR, 10, 300)
        self.rows("street-lights", three - 5 * HOUR, 6 * HOUR, 8, 70)
        self.rows("council-tax", three - 20 * HOUR, DAY, 6, 1_500)
        self.begin("street-lights", three - 2 * HOUR).abort()
        self.begin("street-lights", three - HOUR).abort()
        waiting = self.begin("waste-collections", three - 1.5 * HOUR)
        waiting.freeze(
            {"source": FilesPlan("s3://landing/scans/", None, count=12).to_store()},
            {"source": waiting.state("source")},
        )
        working = self.begin("library-loans", NOW - timedelta(minutes=4))
        state = working.state("source")
        working.freeze(
            {"source": {**state, "low": None, "high": NOW}}, {"source": state}
        )
        self.now = NOW


def demo_page() -> str:
    """Return the page about such a table."""
    # Each job warns at its first run that it reads everything, and the log of a build is for what is wrong with it.
    logging.getLogger("scripts.helpers").setLevel(logging.ERROR)
    with mock_aws():
        council = Council()
        council.fill()
        return build_report(council.watermarks, now=NOW)
