"""`history`: the versions of a job in commit order, page by page, with author, reason and duration."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.watermarks import DEFAULT_LEASE, Watermarks
from tests.support.clock import Clock
from tests.support.faults import Faults, Wire, log_write
from tests.support.steps import commit

pytestmark = pytest.mark.both_stores


@pytest.fixture
def seven(hooked: Watermarks, job_id: str, run_ids: list[str]) -> Watermarks:
    """Return `Watermarks` whose job has seven versions by runs whose ids have no order."""
    for number in range(7):
        commit(hooked, job_id, run_ids[number % 5], {"n": number + 1})
    return hooked


def test_history_is_in_commit_order_newest_first_when_run_ids_have_no_order(
    seven: Watermarks, job_id: str, run_ids: list[str]
) -> None:
    found = seven.history(job_id)

    assert [entry.version for entry in found] == [7, 6, 5, 4, 3, 2, 1]
    assert [entry.watermarks for entry in found] == [{"n": number} for number in range(7, 0, -1)]
    assert [entry.change.run_id for entry in found] == [run_ids[number % 5] for number in range(6, -1, -1)]
    assert [entry.change.previous_run_id for entry in found] == [
        *(run_ids[number % 5] for number in range(5, -1, -1)),
        None,
    ]


def test_history_is_newest_first_when_numbers_of_versions_have_two_digits(watermarks: Watermarks, job_id: str) -> None:
    for number in range(12):
        commit(watermarks, job_id, f"r{number}", {"n": number + 1})

    found = watermarks.history(job_id)

    assert [entry.version for entry in found] == list(range(12, 0, -1))
    assert [entry.watermarks["n"] for entry in found] == list(range(12, 0, -1))
    assert [entry.version for entry in watermarks.history(job_id, 3)] == [12, 11, 10]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 100])
def test_pages_hold_everything_once_when_each_starts_below_the_last(seven: Watermarks, job_id: str, limit: int) -> None:
    page = seven.history(job_id, limit=limit)
    found = list(page)

    while page:
        page = seven.history(job_id, limit=limit, before=page[-1].version)
        assert len(page) <= limit
        found += page

    assert [entry.version for entry in found] == [7, 6, 5, 4, 3, 2, 1]
    assert found == seven.history(job_id)


@pytest.mark.parametrize("before", [None, 8, 7, 4])
@pytest.mark.parametrize("limit", [2, 3])
def test_page_is_one_request_beside_the_head_when_a_limit_is_given(
    seven: Watermarks, wire: Wire, job_id: str, limit: int, before: int | None
) -> None:
    wire.clear()

    found = seven.history(job_id, limit=limit, before=before)

    top = min(before or 8, 8) - 1
    assert [entry.version for entry in found] == list(range(top, top - limit, -1))
    assert [request.operation for request in wire.requests] == ["GetItem", "Query"]
    assert wire.requests[1].body["Limit"] <= limit


@pytest.mark.usefixtures("dynamodb")
def test_page_stays_one_request_when_its_entries_are_more_than_a_megabyte(
    hooked: Watermarks, wire: Wire, job_id: str
) -> None:
    for number in range(24):
        item = hooked.create_watermark_item(job_id, f"r{number}", text="x" * 60_000, n=number)
        hooked.add_watermark(item)
    wire.clear()

    first = hooked.history(job_id, limit=24)

    assert [request.operation for request in wire.requests] == ["GetItem", "Query"]
    assert 1 < len(first) < 24
    rest = hooked.history(job_id, before=first[-1].version)
    assert [entry.version for entry in first + rest] == list(range(24, 0, -1))


@pytest.mark.parametrize("before", [1, 0, -5])
def test_page_is_empty_when_there_is_nothing_below(seven: Watermarks, job_id: str, before: int) -> None:
    assert seven.history(job_id, before=before) == []


def test_history_is_empty_when_the_first_run_is_at_work(watermarks: Watermarks, job_id: str) -> None:
    watermarks.begin(job_id, "r1").freeze({}, {"n": 1})

    assert watermarks.history(job_id) == []
    assert watermarks.history(job_id, limit=5, before=3) == []


@pytest.mark.parametrize("limit", [0, -1])
def test_history_is_refused_when_the_limit_is_not_above_0(
    seven: Watermarks, wire: Wire, job_id: str, limit: int
) -> None:
    wire.clear()

    with pytest.raises(InvalidValueError, match=f"history is {limit}; it must be a whole number"):
        seven.history(job_id, limit=limit)

    assert wire.requests == []


def test_history_shows_the_newest_version_when_its_log_entry_was_not_written(
    seven: Watermarks, faults: Faults, job_id: str
) -> None:
    faults.drop(log_write, times=100)

    commit(seven, job_id, "r8", {"n": 8})

    assert [entry.version for entry in seven.history(job_id)] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert [entry.version for entry in seven.history(job_id, limit=2)] == [8, 7]


# --- what an entry shows ---------------------------------------------------------------------------------------


def test_entry_tells_attempt_duration_and_metrics_when_a_run_was_retried(
    watermarks: Watermarks, clock: Clock, job_id: str
) -> None:
    first = watermarks.begin(job_id, "r1")
    first.freeze({}, {"n": 1})
    clock.move(minutes=3)
    retry = watermarks.begin(job_id, "r1")
    clock.move(seconds=90.5)
    retry.commit(rows_written=808, bytes_read=5, note="late")

    [entry] = watermarks.history(job_id)

    change = entry.change
    assert (change.op, change.run_id, change.attempt) == ("COMMIT", "r1", 2)
    assert (change.at, change.started_at) == (clock.now, clock.now - timedelta(seconds=90.5))
    assert entry.duration == timedelta(seconds=90.5)
    assert change.metrics == {"rows_written": 808, "bytes_read": 5, "note": "late"}
    assert (change.who, change.why) == (None, None)
    assert change.plan_id == first.plan.plan_id if first.plan else None


def test_attempt_starts_again_when_another_run_takes_over(watermarks: Watermarks, clock: Clock, job_id: str) -> None:
    watermarks.begin(job_id, "r1").freeze({}, {"n": 1})
    watermarks.begin(job_id, "r1")
    clock.move(seconds=DEFAULT_LEASE.total_seconds())

    watermarks.begin(job_id, "r2").commit()

    [entry] = watermarks.history(job_id)
    assert (entry.change.run_id, entry.change.attempt) == ("r2", 1)


@pytest.mark.parametrize("n", [0, 3])
def test_duration_is_measured_when_the_run_was_long(watermarks: Watermarks, clock: Clock, job_id: str, n: int) -> None:
    with watermarks.begin(job_id, "r1", lease=timedelta(days=1)) as run:
        clock.move(days=n)
        run.freeze({}, {"n": 1})
        run.commit()

    assert watermarks.history(job_id)[0].duration == timedelta(days=n)


def test_repr_is_one_line_for_a_person_and_holds_no_values_when_it_is_printed(
    watermarks: Watermarks, job_id: str
) -> None:
    commit(watermarks, job_id, "r1", {"n": 424242}, rows=3, files=1)
    watermarks.reset(job_id, why="wrong source", who="duty officer")

    found = [repr(entry) for entry in watermarks.history(job_id)]

    assert found == [
        "<v2 RESET 2026-03-16 15:45:00Z run=None who='duty officer' why='wrong source'>",
        "<v1 COMMIT 2026-03-16 15:45:00Z run=r1 files=1 rows=3>",
    ]
    assert not re.search("424242", "".join(found))
