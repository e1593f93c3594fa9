"""Unreadable files are set aside: the rest of the batch commits, an operator decides, and no file is lost."""

from __future__ import annotations

import gzip
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from botocore.awsrequest import AWSResponse

from scripts.helpers.errors import (
    ChangedObjectError,
    FileContentError,
    InvalidValueError,
    LedgerError,
    SourceError,
    UnreadableFilesError,
    WatermarkError,
)
from scripts.helpers.files import set_aside
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.readings import Readings
from scripts.helpers.files.set_aside import RETRY, SKIP, SetAside
from scripts.helpers.job import IncrementalJob
from scripts.helpers.metrics.report import JobReport
from scripts.helpers.protocol.chunks import Blob
from scripts.helpers.watermarks import Watermarks
from tests.protocol.fault_plan import FaultAt
from tests.support.buckets import SOURCE, Bucket, keys_of
from tests.support.clock import Clock
from tests.support.dynamodb import Died, FakeDynamoDB
from tests.support.events import Events
from tests.support.faults import Raw
from tests.support.files_states import decided, set_aside_of, with_list
from tests.support.reasons import because
from tests.support.steps import KilledError

BAD = b"\x1f\x8b no gzip"
READ_ERROR = "it cannot be read as csv: Unknown compression method"
WHY: dict[str, Any] = {"why": "a test", "who": "tester"}


class Nights:
    """Runs of one job over a local folder; each batch is written to a folder next to it."""

    def __init__(self, folder: Path, watermarks: Watermarks, clock: Clock) -> None:
        self.landing, self.raw = folder / "landing", folder / "raw"
        self.landing.mkdir()
        self.watermarks, self.clock = watermarks, clock
        self.options: dict[str, Any] = {"on_unreadable": "set_aside"}
        self.reports: list[JobReport] = []

    def report(self, report: JobReport) -> None:
        self.reports.append(report)

    def put(self, *numbers: int, body: bytes | None = None) -> None:
        for number in numbers:
            packed = gzip.compress(f"id\n{number}\n".encode(), mtime=0)
            (self.landing / f"{number}.csv.gz").write_bytes(packed if body is None else body)

    def run(self, *, freeze: bool = False, run_id: str | None = None, then: Callable[[], Any] | None = None) -> Any:
        with IncrementalJob(self.watermarks, "parking", run_id, clock=self.clock, reporters=[self]) as job:
            delta = self.delta = job.new_files(str(self.landing), transformation_ctx="files", **self.options)
            if freeze:
                job.freeze()
            rows = delta.read_pandas("csv")
            if then is not None:
                then()
            if len(rows):
                job.write(rows, str(self.raw))
        return delta

    def decide(self, decision: str, *keys: str) -> None:
        state = decided(self.state, keys, decision)
        self.watermarks.set_watermark("parking", state, transformation_ctx="files", **WHY)

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.watermarks.get_watermark_values("parking")["files"]
        return found

    @property
    def listed(self) -> dict[str, str]:
        return {key: entry.reason for key, entry in set_aside_of(self.state).items()}

    @property
    def rows(self) -> list[int]:
        """Return the sorted ids at the target, including duplicates."""
        ids: list[int] = []
        for path in self.raw.glob("*.parquet"):
            ids += pq.read_table(path, columns=["id"], partitioning=None).column("id").to_pylist()
        return sorted(ids)

    def explained(self, key: str) -> Any:
        return FileBookmark(str(self.landing), state=self.state).explain(key)


@pytest.fixture
def nights(tmp_path: Path, watermarks: Watermarks, clock: Clock) -> Nights:
    return Nights(tmp_path, watermarks, clock)


# --- files set aside, and decisions about them ---------------------------------------------------------------------


def test_rest_of_the_batch_commits_and_the_bad_file_is_listed_when_one_cannot_be_read(
    nights: Nights, caplog: pytest.LogCaptureFixture
) -> None:
    nights.put(1, 3)
    nights.put(2, body=BAD)

    delta = nights.run()
    again = nights.run()

    assert nights.rows == [1, 3]
    assert nights.listed == {"2.csv.gz": READ_ERROR} == dict(delta.set_aside)
    assert (again.count, again.set_aside) == (0, {})
    assert [report.values.get("FilesSetAside") for report in nights.reports] == [1, None]
    first = nights.watermarks.history("parking")[1].change.metrics
    assert (first["files_read"], first["files_set_aside"]) == (2, 1)
    assert "event=set_aside" in caplog.text
    found = nights.explained("2.csv.gz")
    assert (found.state, found.version) == ("set_aside", 1)


def test_file_is_taken_by_itself_when_it_is_written_anew(nights: Nights, caplog: pytest.LogCaptureFixture) -> None:
    nights.put(1)
    nights.put(2, body=BAD)
    nights.run()

    nights.put(2)
    with caplog.at_level(logging.INFO):
        nights.run()

    assert (nights.rows, nights.listed) == ([1, 2], {})
    assert "key='2.csv.gz'" in next(line for line in caplog.messages if "event=no_longer_set_aside" in line)


@pytest.mark.parametrize("freeze", [False, True], ids=["before the freeze", "after the freeze"])
def test_next_batch_takes_the_file_again_when_a_person_says_retry(nights: Nights, freeze: bool) -> None:
    nights.put(1, 2)
    path = nights.landing / "2.csv.gz"
    good = path.read_bytes()
    rewrite(path, b"not gzip" + good[8:])
    nights.run(freeze=freeze)
    rewrite(path, good)

    untouched = nights.run()
    nights.decide(RETRY, "2.csv.gz")
    retried = nights.run()
    after = nights.run()

    assert [untouched.count, retried.count, after.count] == [0, 1, 0]
    assert (nights.rows, nights.listed) == ([1, 2], {})
    ops = [(entry.change.op, entry.change.why) for entry in nights.watermarks.history("parking")]
    assert ("SET", "a test") in ops


def rewrite(path: Path, body: bytes) -> None:
    """Replace the bytes of a file but keep its identity, as when a permission is restored or a disk is repaired."""
    before = path.stat()
    with path.open("r+b") as file:
        file.write(body)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_file_counts_as_done_when_a_person_says_skip(nights: Nights) -> None:
    nights.put(1)
    nights.put(2, body=BAD)
    nights.run()

    nights.decide(SKIP, "2.csv.gz")
    runs = [nights.run().count, nights.run().count]

    assert runs == [0, 0]
    assert (nights.rows, nights.listed) == ([1], {})
    assert nights.explained("2.csv.gz").state == "skipped"


def test_file_stays_listed_when_it_is_gone_by_the_retry(nights: Nights, caplog: pytest.LogCaptureFixture) -> None:
    nights.put(1)
    nights.put(2, body=BAD)
    nights.run()
    (nights.landing / "2.csv.gz").unlink()
    nights.put(3)

    nights.decide(RETRY, "2.csv.gz")
    nights.run()

    assert nights.listed == {"2.csv.gz": "it is not there any more"}
    assert "event=retry_is_gone" in caplog.text


# --- errors of the call, or of every file --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "options"),
    [("csv", {"seperator": ";"}), ("csv", {"dtype": "boom"}), ("orc", {}), ("csv", {"path_column": "id"})],
)
def test_caller_is_told_and_no_file_is_set_aside_when_the_call_is_wrong(
    nights: Nights, format: str, options: dict[str, Any]
) -> None:
    nights.put(1, 2)

    with pytest.raises((InvalidValueError, SourceError)) as caught:
        with IncrementalJob(nights.watermarks, "parking", clock=nights.clock) as job:
            delta = job.new_files(str(nights.landing), transformation_ctx="files", **nights.options)
            delta.read_pandas(format, **options)

    assert not isinstance(caught.value, UnreadableFilesError)
    assert caught.value.reason not in ("all_unreadable", "all_set_aside")
    assert (dict(delta.set_aside), nights.watermarks.latest("parking").version) == ({}, 0)
    assert nights.run().count == 2


def test_error_comes_once_when_all_files_of_a_batch_are_set_aside(nights: Nights) -> None:
    nights.put(1, 2, body=BAD)

    with pytest.raises(
        SourceError,
        check=because("all_set_aside"),
        match=r"each of the 2 files .*The files are set aside\. .*--retry-all",
    ):
        nights.run()
    between = nights.watermarks.latest("parking").plan
    delta = nights.run()
    nights.put(3)
    nights.run()

    assert between is not None
    assert (delta.count, sorted(nights.listed), nights.rows) == (0, ["1.csv.gz", "2.csv.gz"], [3])


# --- limits --------------------------------------------------------------------------------------------------------


def test_run_stops_and_sets_nothing_aside_when_none_of_many_files_can_be_read(nights: Nights) -> None:
    nights.put(*range(10), body=BAD)

    with pytest.raises(SourceError, check=because("all_unreadable"), match="each of the 10 files"):
        nights.run()

    nights.put(0)
    nights.run()
    assert (nights.rows, len(nights.listed)) == ([0], 9)


def test_run_stops_when_an_error_shows_that_none_of_many_files_can_be_read(nights: Nights) -> None:
    nights.put(*range(10))

    with pytest.raises(SourceError, check=because("all_unreadable"), match="each of the 10 files") as caught:
        with IncrementalJob(nights.watermarks, "parking", clock=nights.clock, reporters=[nights]) as job:
            delta = job.new_files(str(nights.landing), transformation_ctx="files", **nights.options)
            assert len(delta.paths) == 10
            for path in nights.landing.iterdir():
                path.unlink()
            raise FileContentError(str(nights.landing), "1.csv.gz", "csv", "cannot be read")

    assert isinstance(caught.value.__cause__, FileContentError)
    assert [report.outcome for report in nights.reports] == ["failed"]
    assert nights.watermarks.latest("parking").claim is None


def test_error_of_the_script_is_raised_when_the_search_for_bad_files_fails(
    nights: Nights, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nights.put(1)

    def fails(*_: Any) -> Any:
        raise FileNotFoundError

    monkeypatch.setattr(Readings, "found", fails)
    with pytest.raises(SourceError, match="cannot be read"):
        nights.run(then=raiser(SourceError("s3://a/", "cannot be read")))

    assert "event=search_failed job=parking error=FileNotFoundError" in caplog.messages


def raiser(error: Exception) -> Callable[[], None]:
    def then() -> None:
        raise error

    return then


def test_frozen_plan_is_amended_when_a_run_that_saves_nothing_sets_a_file_aside(nights: Nights) -> None:
    nights.put(1)
    nights.put(2, body=BAD)

    with IncrementalJob(nights.watermarks, "parking", "jr_1", mode="pause", clock=nights.clock) as job:
        delta = job.new_files(str(nights.landing), transformation_ctx="files", **nights.options)
        job.freeze()
        rows = delta.read_pandas("csv")
        plan = job.run.plan

    assert len(rows) == 1
    assert plan is not None
    assert (plan.contexts["files"]["count"], plan.contexts["files"]["set_aside"]) == (1, 1)
    assert dict(delta.set_aside) == {"2.csv.gz": READ_ERROR}


def test_run_stops_and_the_files_stay_new_when_the_list_is_full(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_aside, "MAX_SET_ASIDE", 1)
    nights.put(1)
    nights.put(2, 3, body=BAD)

    with pytest.raises(
        SourceError, check=because("set_aside_full"), match="2 files would be set aside, and the limit is 1"
    ):
        nights.run()

    nights.put(2)
    assert nights.run().count == 3
    assert (nights.rows, list(nights.listed)) == ([1, 2], ["3.csv.gz"])


def test_run_stops_when_nothing_else_is_asked_for(nights: Nights) -> None:
    nights.options = {}
    nights.put(1)
    nights.put(2, body=BAD)

    with pytest.raises(SourceError, match="cannot be read as csv"):
        nights.run()

    assert not nights.raw.exists()


def test_option_is_refused_when_it_is_neither_of_the_two(nights: Nights) -> None:
    nights.options = {"on_unreadable": "skip"}

    with pytest.raises(InvalidValueError, match="Option 'on_unreadable': 'skip' is unknown"):
        nights.run()


@pytest.mark.parametrize("key", ["3.csv.gz", ""], ids=["another", "empty"])
def test_decision_is_refused_when_a_key_is_not_on_the_list(nights: Nights, key: str) -> None:
    nights.put(1)
    nights.put(2, body=BAD)
    nights.run()

    with pytest.raises(InvalidValueError, match="is not set aside"):
        decided(nights.state, [key], RETRY)


@pytest.mark.parametrize(
    "modified", [datetime(2026, 11, 25, 14, 44, 45, 123_457), datetime.min, datetime.max], ids=["now", "first", "last"]
)
def test_entry_comes_back_to_the_microsecond_when_it_is_stored(modified: datetime) -> None:
    modified = modified.replace(tzinfo=timezone.utc)
    entry = SetAside("2.csv.gz", "e", None, 9, modified, "no gzip", 3, "run-3", RETRY)

    state = with_list({"source": "landing/"}, {entry.key: entry})

    assert set_aside_of(state) == {entry.key: entry}


@pytest.mark.parametrize("stored", [{"count": 2, "data": None}, {"count": 1}, {"count": 1, "data": b"x"}, [1], "x"])
def test_damaged_list_is_an_error_when_it_is_read(nights: Nights, stored: Any) -> None:
    nights.put(1)
    nights.put(2, body=BAD)
    nights.run()
    if isinstance(stored, dict) and "data" in stored and stored["data"] is None:
        stored["data"] = nights.state["set_aside"]["data"]

    with pytest.raises(LedgerError, match=r"(file list|files that are set aside) is damaged"):
        set_aside_of({**nights.state, "set_aside": stored})


# --- the plan ------------------------------------------------------------------------------------------------------


def test_frozen_plan_is_amended_and_the_replay_takes_the_rest_when_the_run_dies_after_that(nights: Nights) -> None:
    nights.put(1, 3)
    nights.put(2, body=BAD)

    def die() -> None:
        raise KilledError

    with pytest.raises(KilledError):
        nights.run(freeze=True, then=die)
    plan = nights.watermarks.latest("parking").plan
    nights.options = {}
    replayed = nights.run()

    assert plan is not None
    assert plan.contexts["files"]["count"] == 2
    assert keys_of(replayed) == ["1.csv.gz", "3.csv.gz"]
    assert (nights.rows, list(nights.listed)) == ([1, 3], ["2.csv.gz"])


def test_replay_sets_aside_what_is_gone_when_its_plan_has_it(nights: Nights) -> None:
    nights.put(1, 2)
    with pytest.raises(KilledError):
        nights.run(freeze=True, then=raise_killed)
    (nights.landing / "2.csv.gz").unlink()

    nights.run()

    assert (nights.rows, nights.listed) == ([1], {"2.csv.gz": "it is not there any more"})


def test_run_ends_and_the_next_one_takes_the_rest_when_a_file_goes_before_the_commit(nights: Nights) -> None:
    nights.put(1, 2)

    with pytest.raises(UnreadableFilesError, match="1 file that could not be read") as caught:
        # Code that got the paths may read other bytes than pandas did.
        nights.run(then=lambda: (nights.delta.paths, (nights.landing / "2.csv.gz").unlink()))
    nights.run()

    assert isinstance(caught.value.__cause__, ChangedObjectError)
    assert (nights.rows, nights.listed) == ([1], {"2.csv.gz": "it is not there any more"})


def test_nothing_is_committed_when_a_script_goes_on_after_the_error(nights: Nights) -> None:
    nights.put(1, 2)

    with pytest.raises(UnreadableFilesError):
        with IncrementalJob(nights.watermarks, "parking", clock=nights.clock) as job:
            delta = job.new_files(str(nights.landing), transformation_ctx="files", **nights.options)
            job.write(delta.read_pandas("csv"), str(nights.raw))
            (nights.landing / "2.csv.gz").unlink()
            with pytest.raises(UnreadableFilesError):
                delta.read_pandas("csv")

    assert not list(nights.raw.glob("*.parquet"))
    nights.run()
    assert nights.rows == [1]


def raise_killed() -> None:
    raise KilledError


# --- what a key may be, and how objects are seen -------------------------------------------------------------------


@pytest.fixture
def bucket_in_memory(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Return a bucket in memory; its objects are looked up there."""
    bucket = Bucket()
    monkeypatch.setattr(
        "scripts.helpers.listing.listing.Lister.look_at_each", lambda _, keys: bucket.look_at_each(keys)
    )
    return bucket


def test_old_file_is_taken_when_it_is_retried_and_no_listing_shows_it(bucket_in_memory: Bucket) -> None:
    bucket = bucket_in_memory
    options: dict[str, Any] = {"on_unreadable": "set_aside"}
    bucket.put("a.csv", "b.csv")
    first = FileBookmark(SOURCE, **options)
    first.new_files(bucket)
    first.set_aside({"a.csv": "it is no csv"})
    bucket.wait(minutes=60)
    second = FileBookmark(SOURCE, state=stored(first.state_after), **options)
    assert second.new_files(bucket).count == 0

    state = decided(stored(second.state_after), ["a.csv"], RETRY)
    third = FileBookmark(SOURCE, state=stored(state), **options)
    delta = third.new_files(Bucket(now=bucket.now))

    assert keys_of(delta) == ["a.csv"]
    assert set_aside_of(third.state_after) == {}


def test_key_that_spark_cannot_take_is_set_aside_when_it_is_listed(bucket_in_memory: Bucket) -> None:
    bucket = bucket_in_memory
    bucket.put("a//b.csv", "c.csv")
    bookmark = FileBookmark(SOURCE, on_unreadable="set_aside")

    found = bookmark.find(bucket)

    assert keys_of(found.delta) == ["c.csv"]
    assert found.plan.set_aside == 1
    assert found.state is not None
    assert found.state.set_aside["a//b.csv"].reason == "Spark cannot take its name"
    with pytest.raises(SourceError, match="empty component"):
        FileBookmark(SOURCE).new_files(bucket)


def test_file_is_taken_again_when_it_gets_a_version_after_its_unversioned_object_was_set_aside(
    bucket_in_memory: Bucket,
) -> None:
    bucket = bucket_in_memory
    options: dict[str, Any] = {"on_unreadable": "set_aside", "versioned": True}
    bucket.put("a.csv", "b.csv")
    bucket.objects["a.csv"]["version_id"] = "null"
    first = FileBookmark(SOURCE, **options)
    first.new_files(bucket)
    first.set_aside({"a.csv": "it is no csv"})
    same = FileBookmark(SOURCE, state=stored(first.state_after), **options)
    before = keys_of(same.new_files(bucket))

    bucket.objects["a.csv"]["version_id"] = "v2"
    then = FileBookmark(SOURCE, state=stored(same.state_after), **options)

    assert (before, keys_of(then.new_files(bucket))) == ([], ["a.csv"])


def test_older_form_stays_known_when_the_newer_one_is_set_aside(bucket_in_memory: Bucket) -> None:
    bucket = bucket_in_memory
    bucket.put("a.csv", "b.csv", body="good")
    first = FileBookmark(SOURCE)
    first.new_files(bucket)
    bucket.put("a.csv", body="bad")
    second = FileBookmark(SOURCE, state=stored(first.state_after), on_unreadable="set_aside")
    second.new_files(bucket)
    second.set_aside({"a.csv": "it is no csv"})

    bucket.put("a.csv", body="good")
    third = FileBookmark(SOURCE, state=stored(second.state_after))

    assert third.new_files(bucket).count == 0


def stored(state: Any) -> Any:
    """Return a state as it is read back from the table."""
    if isinstance(state, Blob):
        return state.data
    if isinstance(state, dict):
        return {name: stored(value) for name, value in state.items()}
    return [stored(value) for value in state] if isinstance(state, list) else state


# --- S3 ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def forbidding(s3: Any, bucket: str) -> Any:
    """Return a client that may not get the objects with "secret" in their keys."""
    import boto3

    client = boto3.client("s3", endpoint_url=s3.meta.endpoint_url)

    def refuse(request: Any, **_: Any) -> Any:
        if "secret" not in request.url:
            return None
        body = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
        return AWSResponse(request.url, 403, {}, Raw(body))  # type: ignore[arg-type]

    client.meta.events.register("before-send.s3.GetObject", refuse)
    return client


def refusing(s3: Any, status: int, code: str) -> Any:
    """Return a client that may neither look up nor get the objects with "secret" in their keys."""
    import boto3

    client = boto3.client("s3", endpoint_url=s3.meta.endpoint_url)

    def refuse(request: Any, **_: Any) -> Any:
        if "secret" not in request.url.partition("?")[0]:
            return None
        body = f"<Error><Code>{code}</Code></Error>" if request.method == "GET" else ""
        return AWSResponse(request.url, status, {}, Raw(body.encode()))  # type: ignore[arg-type]

    for operation in ("GetObject", "HeadObject"):
        client.meta.events.register(f"before-send.s3.{operation}", refuse)
    return client


@pytest.mark.parametrize("events", [True, False], ids=["events", "listing"])
@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (403, "AccessDenied", "it is forbidden to this login (AccessDenied)"),
        (400, "InvalidRequest", "S3 refuses it (InvalidRequest), as it does where it is encrypted with a key"),
    ],
    ids=["forbidden", "SSE-C"],
)
def test_object_is_set_aside_when_s3_neither_shows_nor_gives_it(
    s3: Any, bucket: str, watermarks: Watermarks, job_id: str, events: bool, status: int, code: str, reason: str
) -> None:
    for key in ("1.csv", "secret.csv"):
        s3.put_object(Bucket=bucket, Key=f"in/{key}", Body=b"id\n1\n")
    client = refusing(s3, status, code)
    given: dict[str, Any] = {"events": Events(["1.csv", "secret.csv"])} if events else {}

    with IncrementalJob(watermarks, job_id, s3_client=client) as job:
        delta = job.new_files(f"s3://{bucket}/in/", on_unreadable="set_aside", **given)
        rows = delta.read_pandas("csv", s3_client=client)

    assert len(rows) == 1
    assert list(delta.set_aside) == ["secret.csv"]
    assert delta.set_aside["secret.csv"].startswith(reason)


def test_forbidden_object_is_set_aside_when_its_bucket_refuses_it(
    s3: Any, forbidding: Any, bucket: str, watermarks: Watermarks, job_id: str
) -> None:
    for key in ("1.csv", "secret.csv"):
        s3.put_object(Bucket=bucket, Key=f"in/{key}", Body=b"id\n1\n")

    with IncrementalJob(watermarks, job_id, s3_client=forbidding) as job:
        delta = job.new_files(f"s3://{bucket}/in/", on_unreadable="set_aside")
        rows = delta.read_pandas("csv", s3_client=forbidding)

    assert len(rows) == 1
    assert dict(delta.set_aside) == {"secret.csv": "it is forbidden to this login (AccessDenied)"}


# --- kills ---------------------------------------------------------------------------------------------------------


def left_over(nights: Nights) -> dict[int, str]:
    """Return where each of the three files is: in exactly one of new, taken and listed."""
    delta = FileBookmark(str(nights.landing), state=nights.state).new_files()
    new, rows, listed = set(keys_of(delta)), nights.rows, nights.listed
    found = {}
    for number in (1, 2, 3):
        key = f"{number}.csv.gz"
        places = {"taken": rows.count(number), "new": key in new, "listed": key in listed}
        found[number] = " ".join(name for name, count in places.items() for _ in range(count))
    return found


@pytest.mark.parametrize("fault", ["die-before", "die-after", "error-after"])
@pytest.mark.parametrize("freeze", [False, True], ids=["before the freeze", "after the freeze"])
def test_each_file_is_taken_once_or_listed_when_a_run_is_killed_at_any_request(
    tmp_path_factory: pytest.TempPathFactory, clock: Clock, fault: str, freeze: bool
) -> None:
    found = {}
    for k in range(40):
        client = FakeDynamoDB()
        made = Watermarks("table", client, clock=clock)  # type: ignore[arg-type]
        made.store.sleep = lambda seconds: None
        nights = Nights(tmp_path_factory.mktemp("landing"), made, clock)
        nights.put(1, 3)
        nights.put(2, body=BAD)
        client.fault = plan = FaultAt(k, fault)
        with suppress(Died, WatermarkError):
            nights.run(freeze=freeze)
        client.fault = None

        clock.move(hours=1)
        nights.run(freeze=freeze)

        found[k] = left_over(nights)
        if not plan.struck:
            break

    assert len(found) > 6
    assert {k: files for k, files in found.items() if files != {1: "taken", 2: "listed", 3: "taken"}} == {}


@pytest.mark.parametrize("fault", ["die-before", "die-after"])
def test_retry_and_skip_lose_nothing_when_the_decision_or_the_run_after_it_is_killed(
    tmp_path_factory: pytest.TempPathFactory, clock: Clock, fault: str
) -> None:
    found = {}
    for decision in (RETRY, SKIP):
        for k in range(30):
            client = FakeDynamoDB()
            made = Watermarks("table", client, clock=clock)  # type: ignore[arg-type]
            nights = Nights(tmp_path_factory.mktemp("landing"), made, clock)
            nights.put(1, 3)
            nights.put(2, body=BAD)
            nights.run()
            nights.put(4)
            client.fault = plan = FaultAt(k, fault)
            with suppress(Died):
                nights.decide(decision, "2.csv.gz")
                nights.run()
            client.fault = None

            clock.move(hours=1)
            nights.run()

            found[decision, k] = left_over(nights)
            if not plan.struck:
                break

    ends = {(decision, files[2]) for (decision, _), files in found.items()}
    assert {files[1] + files[3] for files in found.values()} == {"takentaken"}
    # A file stays listed if the decision was not stored or it was unreadable again; a skipped file leaves the list.
    assert ends == {(RETRY, "listed"), (SKIP, "listed"), (SKIP, "")}
