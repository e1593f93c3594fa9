"""Which files count as new: changes, deletions, settling, markers, sizes, archived objects, and bounded batches."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import boto3
import pytest

from scripts.helpers.errors import ArchivedObjectError, InvalidValueError, SourceError
from scripts.helpers.files import choice
from scripts.helpers.files.bookmark import FileBookmark
from tests.support.buckets import NOON, SOURCE, Bucket, Job, keys_of
from tests.support.events import Told
from tests.support.reasons import because

# --- changed objects -----------------------------------------------------------------------------------------------

SAME, TOUCHED, CHANGED, LONGER = "same", "same bytes, later", "other bytes", "other size"
ERROR = SourceError
OUTCOMES: list[tuple[str, str, list[Any]]] = [
    ("take", "etag", [[], [], ["a.csv"], ["a.csv"]]),
    ("take", "mtime", [[], ["a.csv"], ["a.csv"], ["a.csv"]]),
    ("skip", "etag", [[], [], [], []]),
    ("skip", "mtime", [[], [], [], []]),
    ("raise", "etag", [[], [], ERROR, ERROR]),
    ("raise", "mtime", [[], ERROR, ERROR, ERROR]),
]


def write_again(bucket: Bucket, how: str) -> None:
    at = NOON if how == SAME else bucket.now
    bucket.put("a.csv", body={SAME: "1", TOUCHED: "1", CHANGED: "2", LONGER: "11"}[how], at=at)


@pytest.mark.parametrize(
    ("on_modified", "compare", "how", "expected"),
    [
        (on_modified, compare, how, outcome)
        for on_modified, compare, outcomes in OUTCOMES
        for how, outcome in zip((SAME, TOUCHED, CHANGED, LONGER), outcomes, strict=True)
    ],
)
def test_known_key_is_treated_as_asked_when_it_is_written_again(
    on_modified: str, compare: str, how: str, expected: Any
) -> None:
    job = Job(on_modified=on_modified, compare=compare)
    job.bucket.put("a.csv", "b.csv", body="1")
    job.take()
    job.bucket.wait(minutes=1)
    write_again(job.bucket, how)
    state = job.state

    if expected is ERROR:
        with pytest.raises(SourceError, check=because("modified")) as caught:
            job.take()
        assert caught.value.keys == ["a.csv"]
        assert f"Source {SOURCE!r}: known objects that have changed: 1, such as 'a.csv'." in str(caught.value)
        assert 'use on_modified="take" or "skip"' in str(caught.value)
        assert job.state is state
    else:
        assert job.take() == expected
        assert job.take() == []


def test_ignored_change_stays_ignored_and_the_next_one_too_when_runs_follow() -> None:
    job = Job(on_modified="skip")
    job.bucket.put("a.csv", body="1")
    batches = [job.take()]
    for body in ("2", "2", "3"):
        job.bucket.put("a.csv", body=body)
        batches.append(job.take())

    assert batches == [["a.csv"], [], [], []]
    assert job.bookmark().ledger.known().latest("a.csv")["status"] == "ignored"  # type: ignore[index]


def test_error_names_five_keys_and_the_count_when_many_objects_have_changed() -> None:
    job = Job(on_modified="raise")
    keys = [f"{number}.csv" for number in range(7)]
    job.bucket.put(*keys)
    job.take()
    job.bucket.put(*keys, body="2")

    with pytest.raises(SourceError, match=r"known objects that have changed: 7, such as '0\.csv', '1\.csv'") as caught:
        job.take()

    assert caught.value.keys == keys[:5]


# --- deleted objects -----------------------------------------------------------------------------------------------


def test_deleted_objects_are_counted_once_when_they_are_gone_and_once_more_when_they_come_and_go() -> None:
    job = Job()
    job.bucket.put("a.csv", "b.csv", "c.csv")
    gone, batches = [], []
    for change in (lambda: None, lambda: job.bucket.delete("a.csv", "b.csv"), lambda: None,
                   lambda: job.bucket.put("a.csv"), lambda: job.bucket.delete("a.csv")):  # fmt: skip
        change()
        batches.append(job.take())
        gone.append(job.last.gone)

    assert gone == [0, 2, 0, 0, 1]
    assert batches == [["a.csv", "b.csv", "c.csv"], [], [], ["a.csv"], []]


def test_known_object_is_not_gone_when_a_rule_leaves_it_out_later() -> None:
    job = Job()
    job.bucket.put("a.csv", "b.json")
    job.take()
    job.options["include"] = ["*.json"]
    job.take()
    gone = job.last.gone
    job.options.clear()

    assert (gone, job.take()) == (0, [])


# --- settle, ready marker ------------------------------------------------------------------------------------------


def test_young_files_wait_when_settle_is_given() -> None:
    job = Job(delay=timedelta(seconds=10))
    job.bucket.put("old.csv", at=NOON - timedelta(seconds=11))
    job.bucket.put("edge.csv", at=NOON - timedelta(seconds=10))
    job.bucket.put("young.csv", at=NOON - timedelta(seconds=9))
    before = job.take(), job.last.has_more
    job.bucket.wait(seconds=1)

    after = job.take()

    assert (before, after, job.take()) == ((["edge.csv", "old.csv"], False), ["young.csv"], [])


@pytest.mark.parametrize(("ahead", "taken"), [(100, ["a.csv"]), (0, [])])
def test_settle_goes_by_the_clock_of_s3_when_ours_differs(
    endpoint: str, bucket: str, ahead: int, taken: list[str]
) -> None:
    client = boto3.client("s3", endpoint_url=endpoint)
    client.put_object(Bucket=bucket, Key="in/a.csv", Body=b"1")

    def shift(response_dict: Any, **_: Any) -> None:
        from email.utils import format_datetime, parsedate_to_datetime

        headers = response_dict["headers"]
        headers["Date"] = format_datetime(parsedate_to_datetime(headers["Date"]) + timedelta(seconds=ahead))

    client.meta.events.register_first("before-parse.s3.ListObjectsV2", shift)
    bookmark = FileBookmark(f"s3://{bucket}/in/", s3_client=client, delay=timedelta(seconds=60))

    assert keys_of(bookmark.new_files()) == taken


def test_only_folders_with_their_marker_are_taken_when_a_ready_marker_is_given() -> None:
    job = Job(Bucket(page=2), ready_marker="_SUCCESS")
    job.bucket.put("top.csv", "done/a.csv", "done/sub/b.csv", "done/_SUCCESS", "late/a.csv", "x_SUCCESS/a.csv")
    before = job.take(), job.last.has_more
    job.bucket.put("late/_SUCCESS", "_SUCCESS")

    after = job.take()

    assert (before, after, job.take()) == ((["done/a.csv"], False), ["late/a.csv", "top.csv"], [])


def test_marker_itself_is_taken_when_it_is_not_hidden() -> None:
    job = Job(ready_marker="ready.txt")
    job.bucket.put("a/a.csv", "b/ready.txt")

    assert job.take() == ["b/ready.txt"]


# --- sizes and archives --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("min_size", "taken"), [(0, ["empty", "one", "two"]), (1, ["one", "two"]), (2, ["two"])])
def test_small_and_empty_files_are_left_out_when_they_are_below_min_size(min_size: int, taken: list[str]) -> None:
    job = Job(min_size=min_size)
    for size, key in enumerate(["empty", "one", "two"]):
        job.bucket.put(key, size=size)

    assert (job.take(), job.take()) == (taken, [])


def archive() -> Bucket:
    bucket = Bucket()
    for storage_class in ("STANDARD", "GLACIER", "DEEP_ARCHIVE", "GLACIER_IR", "INTELLIGENT_TIERING", None):
        bucket.put(f"{storage_class}.csv", storage_class=storage_class)
    return bucket


READABLE = ["GLACIER_IR.csv", "INTELLIGENT_TIERING.csv", "None.csv", "STANDARD.csv"]


def test_nothing_is_taken_when_new_files_are_archived() -> None:
    job = Job(archive())

    with pytest.raises(ArchivedObjectError) as caught:
        job.take()

    assert caught.value.keys == ["DEEP_ARCHIVE.csv", "GLACIER.csv"]
    assert f"Source {SOURCE!r}: 2 new objects are archived, such as 'DEEP_ARCHIVE.csv'" in str(caught.value)
    assert 'use\non_archived="take"'.replace("\n", " ") in str(caught.value)
    assert (job.state, job.version) == (None, 0)


@pytest.mark.parametrize(
    ("on_archived", "first", "restored"),
    [
        ("skip", READABLE, ["DEEP_ARCHIVE.csv", "GLACIER.csv"]),
        ("take", sorted([*READABLE, "DEEP_ARCHIVE.csv", "GLACIER.csv"]), []),
    ],
)
def test_archived_files_are_treated_as_asked_when_they_are_new_and_when_they_are_back(
    on_archived: str, first: list[str], restored: list[str]
) -> None:
    job = Job(archive(), on_archived=on_archived)
    taken = [job.take(), job.take()]
    for row in job.bucket.objects.values():
        row["storage_class"] = "STANDARD"

    taken.append(job.take())

    assert taken == [first, [], restored]


@pytest.mark.parametrize(("layout", "is_listed"), [(None, True), ("%Y/", False)])
def test_nothing_waits_for_archived_files_when_they_are_skipped(layout: str | None, is_listed: bool) -> None:
    job = Job(archive(), on_archived="skip", layout=layout)
    job.bucket.put("2026/a.csv")

    found = job.bookmark().find()

    # Restoring an archived file writes it anew, which an event reports. A listing of date folders would not show it.
    assert found.left == []
    assert found.state is not None
    assert (found.state.listed is not None) is is_listed


def test_files_known_before_do_no_harm_when_they_were_archived_since() -> None:
    job = Job()
    job.bucket.put("a.csv")
    job.take()
    job.bucket.objects["a.csv"]["storage_class"] = "GLACIER"

    assert job.take() == []


# --- where to begin ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start_from", "taken"),
    [
        ("now", []),
        (NOON - timedelta(minutes=30), ["b.csv", "c.csv"]),
        (datetime(2026, 3, 16, 11, 30, tzinfo=timezone.utc), ["b.csv", "c.csv"]),
        ("b.csv", ["c.csv"]),
        (None, ["a.csv", "b.csv", "c.csv"]),
    ],
    ids=["now", "time", "that very time", "key", "all"],
)
def test_first_run_begins_where_it_is_told_to(start_from: Any, taken: list[str]) -> None:
    job = Job(start_from=start_from)
    for age, key in ((60, "a.csv"), (30, "b.csv"), (0, "c.csv")):
        job.bucket.put(key, at=NOON - timedelta(minutes=age))

    first = job.take()
    job.bucket.put("0.csv")

    assert (first, job.take(), job.take()) == (taken, ["0.csv"], [])


def test_what_was_there_before_is_new_when_it_changes_and_says_why_it_is_not_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = Job(start_from="now")
    job.bucket.put("a.csv", "b.csv")
    job.take()
    why = job.bookmark().explain("a.csv").reason
    job.bucket.put("b.csv", body="2")

    assert job.take() == ["b.csv"]
    assert why == "ignored at version 1 by run run-1"
    assert "start_from=now ignored=2 of=2: files before start_from are not read" in caplog.text


def test_rest_of_a_bounded_first_batch_follows_when_it_began_at_a_time() -> None:
    job = Job(start_from=NOON - timedelta(minutes=10), max_files=1)
    for age, key in ((60, "a.csv"), (5, "b.csv"), (0, "c.csv")):
        job.bucket.put(key, at=NOON - timedelta(minutes=age))

    assert [job.take() for _ in range(3)] == [["b.csv"], ["c.csv"], []]


@pytest.mark.parametrize(
    ("start_from", "told"), [(datetime(2026, 3, 16), "without zone"), ("", "Use 'now', an aware"), (5, "Use 'now', an")]
)
def test_start_is_refused_when_it_is_no_place_to_begin(start_from: Any, told: str) -> None:
    with pytest.raises(InvalidValueError, match=told):
        Job(start_from=start_from).take()


# --- another view of the source ------------------------------------------------------------------------------------


def test_nothing_is_gone_or_changed_when_a_report_is_older_than_the_events_read() -> None:
    job = Job()
    job.bucket.put("a.csv", "b.csv", body="1")
    job.take()
    job.bucket.wait(hours=1)
    report = job.bucket.report()
    job.bucket.wait(hours=1)
    job.bucket.put("b.csv", "c.csv", body="2")
    told = job.take_told(Told(["b.csv", "c.csv"]))

    reported, gone, listed = job.take(report), job.last.gone, job.take()

    assert (told, reported, gone, listed, job.last.gone) == (["b.csv", "c.csv"], [], 0, [], 0)


def test_a_report_is_refused_when_it_is_older_than_the_last_listing() -> None:
    job = Job()
    report = job.bucket.report()
    job.bucket.wait(hours=1)
    job.take()
    state = job.state

    with pytest.raises(SourceError, match=r"is older than the last listing of .*\. Wait for the next report\."):
        job.take(report)

    assert job.state is state


def test_a_report_is_refused_when_it_is_of_the_future() -> None:
    job = Job()
    job.bucket.put("a.csv")
    job.bucket.wait(days=100 * 365)

    with pytest.raises(SourceError, match=r"the report is of 2126-.*, which is in the future"):
        job.take(job.bucket.report())

    assert job.state is None


def test_a_report_is_taken_when_a_listing_of_the_future_is_stored() -> None:
    job = Job()
    job.take()
    job.bucket.put("a.csv")
    job.state = {**(job.state or {}), "listed": datetime(2126, 1, 1, tzinfo=timezone.utc)}

    assert job.take(job.bucket.report()) == ["a.csv"]


def test_a_report_brings_no_files_when_it_is_the_same_as_last_time() -> None:
    job = Job()
    job.bucket.put("a.csv")
    job.bucket.wait(hours=1)
    report = job.bucket.report()

    assert [job.take(report), job.take(report)] == [["a.csv"], []]


@pytest.mark.parametrize("limits", [{}, {"max_files": 1}], ids=str)
def test_changed_or_deleted_objects_are_not_planned_when_a_report_is_out_of_date(
    caplog: pytest.LogCaptureFixture, limits: dict[str, Any]
) -> None:
    job = Job(**limits)
    job.bucket.put("a.csv", "b.csv", "c.csv")
    report = job.bucket.report()
    job.bucket.delete("a.csv")
    job.bucket.wait(minutes=1)
    job.bucket.put("b.csv", body="other")

    first, again, later = job.take(report), job.take(report), job.take(job.bucket.report())

    assert (first, again, later) == (["c.csv"], [], ["b.csv"])
    assert job.last.gone == 0
    assert "event=stale_report source=s3://landing/parking/" in caplog.text


def test_s3_is_not_asked_about_each_object_of_a_report_when_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "MAX_ASKED", 1)
    job = Job()
    job.bucket.put("a.csv", "b.csv")
    report = job.bucket.report()
    job.bucket.delete("a.csv")

    assert job.take(report) == ["a.csv", "b.csv"]


def test_a_report_shows_changed_and_gone_objects_when_they_were_there_before_it() -> None:
    """The multipart upload that overwrites the object was started before that object was written."""
    job = Job()
    job.bucket.put("a.csv", "b.csv", body="1")
    job.take()
    job.bucket.put("a.csv", body="2", at=NOON - timedelta(minutes=1))
    job.bucket.delete("b.csv")
    job.bucket.wait(hours=1)

    taken = job.take(job.bucket.report())

    assert (taken, job.last.gone) == (["a.csv"], 1)


def test_known_object_stays_known_when_a_report_does_not_name_it(caplog: pytest.LogCaptureFixture) -> None:
    job = Job()
    job.bucket.put("a.csv", "b.csv", "c.csv")
    job.take()
    job.bucket.delete("c.csv")
    job.bucket.wait(hours=1)
    report = job.bucket.report()
    report.delete("a.csv")

    taken, gone = job.take(report), job.last.gone
    job.bucket.wait(hours=1)

    assert (taken, gone) == ([], 1)
    assert job.take(job.bucket.report()) == []
    assert "event=missing_from_report" in caplog.text
    assert "files=1 of=2: the report does not name these files, but they exist" in caplog.text


# --- events --------------------------------------------------------------------------------------------------------


def test_events_make_the_same_delta_as_a_listing_when_they_told_of_everything() -> None:
    job, other = Job(), Job()
    other.bucket = job.bucket
    job.bucket.put("a.csv", "b.csv", "_hidden", "sub/c.csv")
    by_events = job.bookmark().find_among(Told(["sub/c.csv", "b.csv", "_hidden", "a.csv"]), NOON).delta

    other.take()

    assert by_events.table.equals(other.last.table)


def test_events_that_come_again_or_tell_of_old_things_bring_nothing_when_files_are_known() -> None:
    job = Job()
    job.bucket.put("a.csv", "b.csv")
    job.take()
    bookmark = job.bookmark()

    found = bookmark.find_among(Told(["a.csv", "never.csv"]), NOON)

    assert (found.delta.count, found.delta.gone, found.left) == (0, 0, [])
    assert found.state is not None
    assert list(found.state.segments) == job.segments()


def test_known_objects_are_forgotten_when_events_tell_of_their_removal() -> None:
    job = Job()
    job.bucket.put("a.csv", "b.csv")
    job.take()
    job.bucket.delete("a.csv")
    job.take_told(Told(["a.csv"]))
    gone = job.last.gone

    job.bucket.put("a.csv")

    assert (gone, job.take()) == (1, ["a.csv"])


def test_known_object_stays_known_when_an_event_of_its_removal_is_late() -> None:
    job = Job()
    job.bucket.put("a.csv")
    job.take()

    told, gone = job.take_told(Told(["a.csv"])), job.last.gone

    assert (told, gone, job.take()) == ([], 0, [])


def test_times_are_compared_when_events_name_objects() -> None:
    job = Job(compare="mtime")
    job.bucket.put("a.csv")
    first = job.take_told(Told(["a.csv"]))
    job.bucket.put("a.csv", at=NOON + timedelta(minutes=1))

    assert (first, job.take_told(Told(["a.csv"])), job.take()) == (["a.csv"], ["a.csv"], [])


def test_good_file_is_taken_when_the_one_beside_it_was_deleted_before_the_run() -> None:
    job = Job()
    job.bucket.put("a.csv", "b.csv")
    job.bucket.delete("a.csv")

    assert job.take_told(Told(["a.csv", "b.csv"])) == ["b.csv"]
    assert job.last.gone == 0


def test_an_old_event_brings_nothing_when_a_newer_object_is_known() -> None:
    job = Job()
    job.bucket.put("a.csv", body="1")
    old = Told(["a.csv"])
    job.bucket.wait(minutes=1)
    job.bucket.put("a.csv", body="2")
    job.take()

    assert (job.take_told(old), job.take()) == ([], [])


def test_overwriting_upload_is_taken_when_it_was_started_before_the_object_that_it_replaces() -> None:
    """A multipart upload has the time at which it was started."""
    job = Job()
    job.bucket.put("a.csv", body="1")
    job.take()
    job.bucket.put("a.csv", body="2", at=NOON - timedelta(minutes=1))

    assert (job.take_told(Told(["a.csv"])), job.take()) == (["a.csv"], [])


@pytest.mark.parametrize("marked", [False, True])
def test_marker_is_looked_for_when_no_event_tells_of_it(marked: bool) -> None:
    job = Job(ready_marker="_SUCCESS")
    job.bucket.put("day=1/a.csv", "day=2/b.csv", "day=2/_SUCCESS", *(["day=1/_SUCCESS"] if marked else []))
    bookmark = job.bookmark()

    found = bookmark.find_among(Told(["day=1/a.csv", "day=2/b.csv"]), NOON)

    assert keys_of(found.delta) == (["day=1/a.csv", "day=2/b.csv"] if marked else ["day=2/b.csv"])
    assert found.left == ([] if marked else ["day=1/a.csv"])


def test_keys_over_the_limit_are_left_when_events_tell_of_more() -> None:
    job = Job(max_files=1)
    job.bucket.put("b.csv", at=NOON - timedelta(minutes=1))
    job.bucket.put("a.csv", "c.csv")
    bookmark = job.bookmark()

    found = bookmark.find_among(Told(["a.csv", "b.csv", "c.csv"]), NOON)

    assert (keys_of(found.delta), found.delta.has_more, found.left) == (["b.csv"], True, ["a.csv", "c.csv"])


def test_has_more_is_told_when_the_queue_has_more() -> None:
    job = Job()
    job.bucket.put("a.csv")

    delta = job.bookmark().find_among(Told(["a.csv"], has_more=True), NOON).delta

    assert delta.has_more


def test_batch_is_refused_when_its_keys_are_more_than_an_array_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "MAX_KEY_BYTES", 10)
    job, smaller = Job(), Job(max_files=2)
    for one in (job, smaller):
        one.bucket.put("a.csv", "b.csv", "c.csv")

    with pytest.raises(SourceError) as caught:
        job.take()

    assert "a batch of 3 files has 15 bytes of keys, and one holds 10. Give max_files=" in str(caught.value)
    assert job.state is None
    assert [smaller.take(), smaller.take()] == [["a.csv", "b.csv"], ["c.csv"]]
