"""A table with one job of each kind, built with the public API and without Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.files_states import plan_of, state_of
from tests.support.rows_states import with_coverage
from tests.support.steps import commit

MARKUP_JOB = "<script>alert(1)</script>"
"""A name that the default `job_id_rule` refuses. The table of these tests has its own rule, which accepts it."""
MARKUP_CONTEXT = "<img src=x onerror=alert(2)>"
SECRET = 271828182
"""A watermark, which the page shows only with `values=True`."""
JOBS = 9


def rows_state(value: datetime, before: Any = None, **fields: Any) -> dict[str, Any]:
    """Return the state of a rows context that has read up to a time."""
    state = {"kind": "rows", "cursor_column": "last_modified", "type": "timestamp", "value": value} | fields
    low = tuple([before["value"]] if before else [])
    return with_coverage(state, before, [(low, (value,))], "o1")


def hourly(watermarks: Watermarks, clock: Clock, job_id: str, runs: int, fail: Callable[[int], bool]) -> None:
    """Run a job of rows once an hour; where `fail` is true, another run is aborted before the one that commits."""
    state: Any = None
    for number in range(runs):
        clock.move(hours=1)
        if fail(number):
            watermarks.begin(job_id, f"jr_dead{number}").abort()
        state = rows_state(clock.now - timedelta(minutes=5), state)
        commit(watermarks, job_id, f"jr_{number:064x}", {"repairs": state}, rows_collected=900 + 211 * number % 700)


def fill(watermarks: Watermarks, clock: Clock) -> None:
    """Write a job of each kind. `watermarks` must accept every name and use `clock`."""
    hourly(watermarks, clock, "repairs-hourly", 30, lambda number: number in (11, 12, 23))
    files = state_of("s3://landing/parking/", None, [])
    commit(watermarks, "landing", "jr_1", {"parking": files}, files_read=12, bytes_read=34_000)
    watermarks.add_watermark(watermarks.create_watermark_item("playbook", "jr_1", latest_data=SECRET))
    state = rows_state(clock.now - timedelta(days=9))
    commit(watermarks, "with-gap", "jr_1", {"repairs": state})
    watermarks.set_watermark(
        "with-gap", {key: rows_state(clock.now)[key] for key in ("kind", "cursor_column", "type", "value")},
        transformation_ctx="repairs", why="the archive comes later", who="duty officer",
    )  # fmt: skip
    commit(watermarks, MARKUP_JOB, "jr_1", {MARKUP_CONTEXT: rows_state(clock.now)})
    numbers = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": SECRET}
    commit(watermarks, "parking/permits", "jr_1", {"id": numbers})
    waiting = watermarks.begin("waits-for-replay", "jr_" + "d" * 64)
    waiting.freeze(
        {"parking": plan_of("s3://landing/parking/", None, count=0, bytes=0, has_more=False, gone=0)},
        {"parking": files},
    )
    watermarks.begin("abandoned", "jr_gone")
    clock.move(minutes=50)
    running = watermarks.begin("running-now", "jr_" + "a" * 64)
    running.freeze(
        {"parking": plan_of("s3://landing/parking/", None, count=0, bytes=0, has_more=False, gone=0)},
        {"parking": files},
    )
    clock.move(minutes=4)


class World(NamedTuple):
    """A table with one job of each kind, and its current time. No test changes the table."""

    watermarks: Watermarks
    now: datetime
