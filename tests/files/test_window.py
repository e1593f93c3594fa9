"""Mode windowed: AWS Glue's band, state that does not grow, nothing seen is lost, and what it can miss."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from scripts.helpers.errors import InvalidValueError, SourceChangedError
from tests.support.buckets import NOON, Bucket, Job
from tests.support.events import Told

BAND = timedelta(minutes=15)
BEFORE = NOON - timedelta(days=1)


def windowed(now: datetime = NOON, **options: Any) -> Job:
    return Job(Bucket(now), mode="windowed", **{"max_band": BAND, **options})


# --- Glue's own example --------------------------------------------------------------------------------------------


def test_runs_take_the_files_of_glues_example_when_some_show_up_late() -> None:
    """AWS Glue, "Tracking files using modification timestamps": runs at T0, T1 and T2, and a band dt.

    F3', F4' and F5' have a time in ``(T1 - dt, T1]`` and are not in the listing of T1.
    """
    t0, t1, t2, dt = NOON, NOON + timedelta(hours=1), NOON + timedelta(hours=2), BAND
    minute = timedelta(minutes=1)
    job = windowed(t0, max_band=dt)
    job.bucket.put("F1", at=t0 - minute)
    at_t0 = job.take()
    job.bucket.now = t1
    for key, at in {"F2": t0 + minute, "F3": t1 - dt, "F4": t1 - 10 * minute, "F5": t1}.items():
        job.bucket.put(key, at=at)
    at_t1 = job.take()
    kept = remembered(job)
    job.bucket.now = t2
    for key, at in {
        "F3'": t1 - 14 * minute, "F4'": t1 - 9 * minute, "F5'": t1, "F7": t1 + minute, "F8": t2 - dt,
        "F9": t2 - dt + minute, "F10": t2,
    }.items():  # fmt: skip
        job.bucket.put(key, at=at)

    at_t2 = job.take()

    assert (at_t0, at_t1) == (["F1"], ["F2", "F3", "F4", "F5"])
    assert kept == ["F4", "F5"]
    assert at_t2 == sorted(["F3'", "F4'", "F5'", "F7", "F8", "F9", "F10"])
    assert remembered(job) == ["F10", "F9"]
    assert job.take() == []


@pytest.mark.parametrize(
    ("seconds", "taken"),
    [(-1, False), (0, False), (1, True), (900, True), (901, False)],
    ids=["below the floor", "at the floor", "above the floor", "at the listing", "after the listing"],
)
def test_late_file_is_taken_when_it_is_above_the_floor_and_not_above_the_time_of_listing(
    seconds: int, taken: bool
) -> None:
    job = windowed()
    job.take()
    job.bucket.put("a.csv", at=NOON - BAND + timedelta(seconds=seconds))

    found = job.take()

    assert found == (["a.csv"] if taken else [])


def test_file_of_the_future_is_taken_later_when_the_clocks_have_met() -> None:
    job = windowed()
    job.bucket.put("a.csv", at=NOON + timedelta(minutes=1))
    before = job.take()
    more = job.last.has_more
    job.bucket.wait(minutes=1)

    after = job.take()

    assert (before, more, after, job.take()) == ([], False, ["a.csv"], [])


def test_first_run_takes_everything_when_files_are_older_than_the_band() -> None:
    job = windowed()
    job.bucket.put("old.csv", at=BEFORE)
    job.bucket.put("new.csv")

    taken = job.take()

    assert (taken, remembered(job)) == (["new.csv", "old.csv"], ["new.csv"])


@pytest.mark.parametrize("year", [2, 1851, 1899])
def test_next_run_goes_on_when_a_batch_ended_at_a_file_of_a_year_before_all_clocks(year: int) -> None:
    job = windowed(max_files=1)
    job.bucket.put("a.csv", at=datetime(year, 1, 2, tzinfo=NOON.tzinfo))
    job.bucket.put("b.csv", at=datetime(year, 2, 2, tzinfo=NOON.tzinfo))

    taken = [job.take(), job.take(), job.take()]

    assert sorted(taken) == [[], ["a.csv"], ["b.csv"]]


# --- the size of the band ------------------------------------------------------------------------------------------


def test_band_takes_the_oldest_and_leaves_the_rest_for_later_when_it_is_full() -> None:
    job = windowed(max_files_in_band=2)
    for age, key in enumerate(["e", "d", "c", "b", "a"]):
        job.bucket.put(key, at=NOON - timedelta(minutes=age))
    job.bucket.put("old", at=BEFORE)
    batches = [job.take()]
    more = job.last.has_more
    batches.append(job.take())
    for _ in range(4):
        job.bucket.wait(minutes=16)
        batches.append(job.take())

    assert batches[:2] == [["a", "b", "old"], []]
    assert not more
    assert sorted(key for batch in batches for key in batch) == ["a", "b", "c", "d", "e", "old"]


def test_state_stays_as_small_as_it_was_when_a_thousand_runs_follow() -> None:
    job, sizes = windowed(), []
    for number in range(1_000):
        job.bucket.put(f"{number:05}.csv")
        assert job.take() == [f"{number:05}.csv"]
        job.bucket.wait(minutes=1)
        job.bucket.delete(f"{number - 30:05}.csv")
        sizes.append((len(job.segments()), sum(part["count"] for part in job.segments())))

    assert max(sizes) == (1, 15)
    assert len(set(sizes[20:])) == 1
    assert sum(len(part["data"]) for part in job.segments() if isinstance(part["data"], bytes)) < 2_000


# --- nothing seen is lost ------------------------------------------------------------------------------------------


def test_all_files_are_taken_once_when_batches_are_bounded_and_the_band_moves_on() -> None:
    job = windowed(max_files=2)
    for age in range(20):
        job.bucket.put(f"{age:02}.csv", at=NOON - timedelta(minutes=age))
    batches = []

    for _ in range(12):
        batches.append(job.take())
        job.bucket.wait(hours=1)

    assert sorted(key for batch in batches for key in batch) == [f"{age:02}.csv" for age in range(20)]
    assert batches[:2] == [["18.csv", "19.csv"], ["16.csv", "17.csv"]]


LEFT: dict[str, tuple[dict[str, Any], Callable[[Bucket], None]]] = {
    "settle": ({"settle": timedelta(hours=3)}, lambda bucket: None),
    "ready_marker": ({"ready_marker": "_SUCCESS"}, lambda bucket: bucket.put("sub/_SUCCESS")),
    "archived": (
        {"on_archived": "skip"}, lambda bucket: bucket.put("sub/a.csv", storage_class="STANDARD")
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", LEFT)
def test_file_is_taken_later_when_a_rule_left_it_and_the_band_moved_on(rule: str) -> None:
    options, admit = LEFT[rule]
    job = windowed(**options)
    job.bucket.put("sub/a.csv", storage_class="GLACIER" if rule == "archived" else "STANDARD")
    batches = []
    for _ in range(2):
        batches.append(job.take())
        job.bucket.wait(hours=1)
    job.bucket.put("sub/b.csv", at=NOON + timedelta(minutes=59))
    admit(job.bucket)
    job.bucket.wait(hours=3)

    taken = job.take()

    assert batches == [[], []]
    assert taken == ["sub/a.csv", "sub/b.csv"]
    assert job.take() == []


def test_overwritten_file_is_taken_again_when_it_is_written_in_the_band_or_long_after() -> None:
    job = windowed()
    job.bucket.put("a.csv", body="1")
    batches = [job.take()]
    for minutes, body in ((1, "2"), (100, "3")):
        job.bucket.wait(minutes=minutes)
        job.bucket.put("a.csv", body=body)
        batches += [job.take(), job.take()]

    assert batches == [["a.csv"], ["a.csv"], [], ["a.csv"], []]


def test_file_is_found_by_a_listing_when_no_event_told_of_it_within_the_band() -> None:
    """Events do not move the floor: only a listing has seen everything."""
    job = windowed()
    job.take()
    job.bucket.put("silent.csv", at=NOON + timedelta(minutes=1))
    job.bucket.wait(hours=2)
    job.bucket.put("told.csv")
    told = job.take_told(Told(["told.csv"]))
    job.bucket.wait(hours=2)

    taken = job.take()

    assert (told, taken) == (["told.csv"], ["silent.csv"])


# --- what it can miss ----------------------------------------------------------------------------------------------


def test_file_is_missed_when_its_time_is_older_than_the_band() -> None:
    """A multipart upload that takes longer than the band shows the time at which it was started."""
    job = windowed()
    job.take()
    job.bucket.wait(hours=3)
    job.take()
    job.bucket.put("upload-of-two-hours.csv", at=job.bucket.now - timedelta(hours=2))
    exact = Job(job.bucket)

    missed, found = job.take(), exact.take()

    assert (missed, found) == ([], ["upload-of-two-hours.csv"])
    assert "mode windowed takes it for known" in job.bookmark().explain("upload-of-two-hours.csv").reason


@pytest.mark.parametrize(("hours", "gone"), [(0, 1), (3, 0)], ids=["in the band", "below it"])
def test_deleted_file_is_gone_as_long_as_it_is_remembered(hours: int, gone: int) -> None:
    job = windowed()
    job.bucket.put("a.csv")
    job.take()
    job.bucket.wait(hours=hours)
    job.take()
    job.bucket.delete("a.csv")

    job.take()

    assert job.last.gone == gone
    assert remembered(job) == []


def test_deleted_file_is_taken_again_when_it_is_put_back_with_the_same_bytes() -> None:
    job = windowed()
    job.bucket.put("a.csv")
    first = job.take()
    job.bucket.delete("a.csv")
    job.take()
    job.bucket.wait(minutes=1)
    job.bucket.put("a.csv")

    assert (first, job.take(), job.take()) == (["a.csv"], ["a.csv"], [])


def test_state_does_not_grow_when_an_archived_object_stays(caplog: pytest.LogCaptureFixture) -> None:
    job = windowed(on_archived="skip")
    job.bucket.put("archived.csv", storage_class="GLACIER")
    kept = []
    for hour in range(4):
        job.bucket.put(f"{hour}.csv")
        job.take()
        kept.append(remembered(job))
        job.bucket.wait(hours=1)

    assert kept == [["0.csv"], ["1.csv"], ["2.csv"], ["3.csv"]]
    assert [record.getMessage() for record in caplog.records] == [
        "event=archived-passed-over files=1: they count as known until they are written anew"
    ]


def test_restored_files_come_with_the_next_batch_when_a_limit_left_them() -> None:
    job = windowed(on_archived="take", max_files=1)
    job.bucket.put("a.csv", "b.csv", storage_class="GLACIER", at=BEFORE)

    first = job.take()
    job.bucket.wait(hours=1)

    assert (first, job.take(), job.take()) == (["a.csv"], ["b.csv"], [])


def test_files_left_by_a_full_band_are_told_of_and_taken_later(caplog: pytest.LogCaptureFixture) -> None:
    job = windowed(max_files_in_band=2)
    job.bucket.put("a.csv", "b.csv", "c.csv")

    first, told = job.take(), caplog.text
    job.bucket.wait(hours=1)

    assert (first, job.take()) == (["a.csv", "b.csv"], ["c.csv"])
    assert "event=band-is-full files=1: of the last 0:15:00 no more than 2 files are remembered" in told


@pytest.mark.parametrize("on_modified", ["ignore", "error"])
def test_on_modified_is_refused_when_changed_objects_are_forgotten(on_modified: str) -> None:
    with pytest.raises(InvalidValueError, match=f"on_modified is '{on_modified}', but mode windowed forgets"):
        windowed(on_modified=on_modified).take()


# --- another mode --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "now"), [("exact", "windowed"), ("windowed", "exact")])
def test_bookmark_is_refused_when_the_mode_has_changed(before: str, now: str) -> None:
    job = Job(mode=before)
    job.take()
    job.options["mode"] = now

    with pytest.raises(SourceChangedError) as caught:
        job.take()

    assert f"mode {before}" in str(caught.value)
    assert f"mode {now}" in str(caught.value)
    assert job.version == 1


def remembered(job: Job) -> list[str]:
    keys: list[str] = job.bookmark().ledger.known().between(None, None).column("key").to_pylist()
    return sorted(keys)
