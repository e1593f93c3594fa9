"""States of earlier versions that have a floor: nothing is read again, nothing new is lost, and a listing ends it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from scripts.helpers.errors import LedgerError
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.ledger import FileLedger
from scripts.helpers.files.partitions import PartitionColumns, PartitionRule
from scripts.helpers.files.segments import to_bytes
from scripts.helpers.files.set_aside import RETRY, SKIP, entry_of
from scripts.helpers.listing.listing import Lister
from scripts.helpers.listing.metadata_tables import CHANGES
from scripts.helpers.listing.objects import LEDGER
from tests.support.buckets import NOON, SOURCE, Bucket, Job, keys_of
from tests.support.events import Told
from tests.support.files_states import decided, set_aside_of, state_in, with_list
from tests.support.floors import with_floor

FLOOR = NOON - timedelta(minutes=15)
BEFORE = NOON - timedelta(days=1)
OLD = ["at.csv", "old.csv"]
BAND = ["band.csv"]


def floored(**options: Any) -> Job:
    """Return a job that has taken `OLD`, up to its floor, and `BAND` above it."""
    job = Job(Bucket(), **options)
    job.bucket.put("old.csv", at=BEFORE)
    job.bucket.put("at.csv", at=FLOOR)
    job.bucket.put("band.csv", at=NOON - timedelta(minutes=1))
    assert job.take() == [*OLD[:1], *BAND, *OLD[1:]]
    set_floor(job)
    job.bucket.wait(hours=1)
    return job


def set_floor(job: Job, floor: datetime = FLOOR) -> None:
    job.state = job.table.stored(with_floor(job.state or {}, job.bookmark().ledger, floor))


def statuses(job: Job) -> dict[str, str]:
    """Return what is remembered by name."""
    known = job.bookmark().ledger.known().between(None, None)
    return dict(zip(known.column("key").to_pylist(), known.column("status").to_pylist(), strict=True))


# --- a listing ----------------------------------------------------------------------------------------------------


def test_nothing_is_read_again_and_all_is_remembered_by_name_when_the_source_is_listed() -> None:
    job = floored()
    job.bucket.put("new.csv")

    taken = [job.take(), job.take()]

    assert taken == [["new.csv"], []]
    assert statuses(job) == {"at.csv": "known", "band.csv": "taken", "new.csv": "taken", "old.csv": "known"}
    assert job.state is not None and job.state.keys().isdisjoint({"floor", "mode"})


def test_state_is_read_when_it_is_what_commit_e851203_stored() -> None:
    job = Job()
    job.bucket.put("old.csv", at=FLOOR)
    job.bucket.put("band.csv", at=FLOOR + timedelta(seconds=1))
    job.bucket.put("new.csv", at=FLOOR + timedelta(seconds=1))
    row = {**job.bucket.objects["band.csv"], "status": "taken", "version": 1, "run_id": "jr_1"}
    band = to_bytes(pa.Table.from_pylist([row], LEDGER))
    stored = {
        "kind": "files", "source": "s3://landing/parking/", "format": 1, "mode": "windowed", "listed": NOON,
        "floor": FLOOR, "segments": [{"count": 1, "sha256": hashlib.sha256(band).hexdigest(), "data": band}],
    }  # fmt: skip
    job.state = job.table.stored(stored)

    assert [job.take(), job.take()] == [["new.csv"], []]


@pytest.mark.parametrize("mode", ["exact", "windowed"])
def test_state_without_a_floor_goes_on_when_it_names_a_mode(mode: str) -> None:
    job = Job()
    job.bucket.put("a.csv")
    job.take()
    job.state = job.table.stored({**(job.state or {}), "mode": mode, "floor": None})
    job.bucket.put("b.csv", at=BEFORE)

    assert [job.take(), job.take()] == [["b.csv"], []]


def test_late_upload_is_taken_when_the_floor_is_gone() -> None:
    job = floored()
    job.take()
    job.bucket.put("late.csv", at=BEFORE)

    assert [job.take(), job.take()] == [["late.csv"], []]


def test_file_known_by_its_time_is_taken_again_when_it_has_changed_since() -> None:
    job = floored()
    job.bucket.put("old.csv", body="before")
    before = job.take()
    job.bucket.put("at.csv", body="after", at=BEFORE)

    assert [before, job.take(), job.take()] == [["old.csv"], ["at.csv"], []]


def test_remembered_file_is_taken_when_it_was_overwritten_by_an_upload_that_began_before_the_floor() -> None:
    job = floored()
    job.bucket.put("band.csv", body="other", at=BEFORE)

    assert [job.take(), job.take()] == [["band.csv"], []]


def test_all_new_files_come_one_by_one_when_a_limit_leaves_some_out() -> None:
    job = floored()
    job.options = {"max_files": 1}
    for age in range(3):
        job.bucket.put(f"{age}.csv", at=NOON + timedelta(minutes=age))

    assert [job.take() for _ in range(4)] == [["0.csv"], ["1.csv"], ["2.csv"], []]


def test_young_file_comes_later_when_it_has_to_settle() -> None:
    job = floored()
    job.options = {"delay": timedelta(minutes=10)}
    job.bucket.put("young.csv")
    taken = [job.take()]
    job.bucket.wait(minutes=11)

    assert [*taken, job.take(), job.take()] == [[], ["young.csv"], []]


def test_archived_object_below_the_floor_is_no_error_when_the_source_is_listed() -> None:
    job = floored()
    job.bucket.put("old.csv", at=BEFORE, storage_class="GLACIER")

    assert job.take() == []


@pytest.mark.parametrize("then", [{"exclude": ["old*"]}, {"include": ["band*"]}, {"min_size": 2}], ids=str)
def test_nothing_is_read_again_when_a_rule_left_it_out_at_the_first_listing(then: dict[str, Any]) -> None:
    job = floored()
    job.bucket.put("_hidden", at=BEFORE)
    job.options = then
    first = job.take()
    job.options = {}

    assert (first, job.take()) == ([], [])
    assert "_hidden" not in statuses(job)


def test_nothing_is_stored_and_the_same_is_taken_twice_when_a_run_saves_nothing() -> None:
    job = floored()
    job.bucket.put("new.csv")

    paused = [keys_of(job.bookmark(saves=False).new_files()) for _ in range(2)]

    assert [*paused, job.take()] == [["new.csv"]] * 3


def test_nothing_is_lost_or_read_again_when_a_job_goes_back_to_the_version_with_a_floor() -> None:
    job = floored()
    state = job.state
    job.bucket.put("new.csv")
    job.take()
    job.bucket.put("newer.csv")
    job.take()
    job.state = state

    assert [job.take(), job.take()] == [["new.csv", "newer.csv"], []]


# --- what shows a part ---------------------------------------------------------------------------------------------


def by_events(job: Job, *keys: str) -> list[str]:
    return job.take_told(Told(list(keys)))


def by_journal(job: Job, *keys: str) -> list[str]:
    rows = [{"key": key, "deleted": False, "etag": "e", "size": 1, "version_id": None} for key in keys]
    found = job.bookmark().find_recorded(pa.Table.from_pylist(rows, CHANGES), job.bucket.now, {})
    assert found is not None
    return job.commit(found)


def by_report(job: Job, *_: str) -> list[str]:
    return job.take(job.bucket.report())


@pytest.mark.parametrize("seen", [by_events, by_journal, by_report])
def test_floor_stays_until_a_listing_when_something_else_shows_the_objects(seen: Callable[..., list[str]]) -> None:
    job = floored()
    job.bucket.put("new.csv")
    found = [seen(job, "old.csv", "new.csv"), seen(job, "at.csv", "band.csv", "new.csv")]
    floor = (job.state or {}).get("floor")

    assert [*found, job.take(), job.take()] == [["new.csv"], [], [], []]
    assert (floor, "floor" in (job.state or {})) == (FLOOR, False)


def test_file_that_events_missed_is_found_when_the_source_is_listed() -> None:
    job = floored()
    job.bucket.put("silent.csv", "told.csv")

    assert [by_events(job, "told.csv"), job.take(), job.take()] == [["told.csv"], ["silent.csv"], []]


def test_floor_stays_when_only_date_folders_are_listed(tmp_path: Path) -> None:
    now = datetime.now().astimezone()
    today, long_ago = (f"{day:%Y-%m-%d}/a.csv" for day in (now, now - timedelta(days=30)))
    for key, age in ((today, 1), (long_ago, 30 * 24 * 60)):
        path = tmp_path / key
        path.parent.mkdir()
        path.write_text("x")
        stamp = now.timestamp() - 60 * age
        os.utime(path, (stamp, stamp))

    def run(state: Any, **options: Any) -> tuple[list[str], dict[str, Any]]:
        bookmark = FileBookmark(str(tmp_path), state=state, **options)
        return keys_of(bookmark.new_files()), bookmark.state_after

    first = FileBookmark(str(tmp_path))
    first.new_files()
    ledger = FileLedger(str(tmp_path), first.state_after["segments"])
    floor = now - timedelta(minutes=15)
    before = with_floor(first.state_after, ledger, floor)

    of_folders, state = run(before, layout="%Y-%m-%d/")
    of_all, last = run(state)

    assert (of_folders, state["floor"]) == ([], floor)
    assert (of_all, "floor" in last, run(last)[0]) == ([], False, [])


# --- what is set aside ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "body", "taken"),
    [(None, "x", []), (RETRY, "x", ["old.csv"]), (SKIP, "x", []), (None, "other", ["old.csv"])],
    ids=["waiting", "retry", "skip", "changed"],
)
def test_file_that_is_set_aside_is_not_known_by_its_time_when_the_source_is_listed(
    monkeypatch: pytest.MonkeyPatch, decision: str | None, body: str, taken: list[str]
) -> None:
    job = floored(on_unreadable="set_aside")
    monkeypatch.setattr(Lister, "look_at_each", lambda _, keys: job.bucket.look_at_each(keys))
    assert job.state is not None
    entry = entry_of(job.bucket.objects["old.csv"], "it is no csv", 1, "run-1")
    state = with_list(job.state, {"old.csv": entry})
    job.state = job.table.stored(decided(state, ["old.csv"], decision) if decision else state)
    job.bucket.put("old.csv", body=body, at=BEFORE)

    found = [job.take(), job.take()]

    assert found == [taken, []]
    assert list(set_aside_of(job.state)) == ([] if taken or decision else ["old.csv"])
    assert statuses(job).get("old.csv") == ("taken" if taken else "skipped" if decision else None)


def test_file_of_an_open_plan_is_set_aside_when_an_earlier_version_froze_it() -> None:
    """The plan of mode windowed, and the state that follows it, whose floor had risen above one of its files."""
    job = floored(on_unreadable="set_aside")
    before = job.state
    job.bucket.put("bad.csv", "good.csv", at=NOON + timedelta(minutes=1))
    maker = job.bookmark()
    maker.new_files()
    planned = maker.find().plan
    following = with_floor(maker.state_after, maker.ledger.again(maker.state_after["segments"]), job.bucket.now)
    replaying = job.bookmark()
    bad = replaying.resume(planned.to_store()).delta.table.slice(0, 1)

    plan, after = replaying.without(planned, state_in(following), bad, {"bad.csv": "it is no csv"})
    job.state = job.table.stored(after.to_store())
    found = [job.take(), job.take()]

    assert keys_of(replaying.resume(plan.to_store()).delta) == ["good.csv"]
    assert (found, list(set_aside_of(job.state))) == ([[], []], ["bad.csv"])
    assert before is not None and before["floor"] == FLOOR


# --- what runs of the past took ------------------------------------------------------------------------------------


def test_range_has_the_files_of_its_runs_when_it_starts_and_ends_at_floors_or_after_them() -> None:
    job = floored()
    states = [job.state]
    for hour in (1, 2):
        job.bucket.put(f"hour{hour}.csv")
        job.take()
        if hour == 1:
            set_floor(job, NOON + timedelta(minutes=61))
        states.append(job.state)
        job.bucket.wait(hours=1)
    job.bucket.put("later.csv")

    def between(start: int | None, end: int) -> list[str]:
        bookmark = replaced(job, None if start is None else states[start])
        return keys_of(bookmark(until=states[end]).new_files())

    assert (between(0, 1), between(1, 2), between(0, 2)) == (["hour1.csv"], ["hour2.csv"], ["hour1.csv", "hour2.csv"])
    assert between(None, 0) == ["at.csv", "band.csv", "old.csv"]
    assert between(None, 2) == ["at.csv", "band.csv", "hour1.csv", "hour2.csv", "old.csv"]


def replaced(job: Job, state: Any) -> Callable[..., FileBookmark]:
    other = Job(job.bucket)
    other.state = state
    return other.bookmark


# --- what is told of it --------------------------------------------------------------------------------------------


def test_old_file_is_explained_before_and_after_the_source_is_listed() -> None:
    job = floored()
    before = job.bookmark().explain("old.csv")
    job.take()

    after = job.bookmark().explain("old.csv")

    assert (before.status, before.reason) == (
        "unknown", "it was not modified after 2026-03-16T11:45:00Z, up to which all files are known by their time",
    )  # fmt: skip
    assert (after.status, after.reason) == ("known", "known at version 2 by run run-2")


def test_floor_is_refused_when_it_is_no_time() -> None:
    job = floored()
    job.state = {**(job.state or {}), "floor": "noon"}

    with pytest.raises(LedgerError, match="floor"):
        job.take()


# --- partitions and clearing up ------------------------------------------------------------------------------------


def test_partition_is_read_whole_when_some_of_its_files_are_known_by_their_time() -> None:
    job = Job()
    for number in (1, 2):
        job.bucket.put(f"day={number}/old.csv", at=BEFORE)
    job.take()
    set_floor(job)
    job.bucket.put("day=2/new.csv")
    bookmark = job.bookmark(partitions=PartitionRule(SOURCE, PartitionColumns.of("day"), whole=True))

    delta = bookmark.new_files()

    assert keys_of(delta) == ["day=2/new.csv", "day=2/old.csv"]


def test_files_known_by_their_time_are_not_told_of_as_taken_when_taken_files_go_away() -> None:
    job = floored()
    job.take()
    bookmark = job.bookmark(clears=True)

    found = bookmark.find()

    assert found.still_there.column("key").to_pylist() == BAND
