"""A bookmark computed by executors finds the same files as one computed on the driver."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from moto.s3.models import S3Backend
from pyspark.serializers import CloudPickleSerializer

from scripts.demo.local_s3 import spark_conf
from scripts.helpers.errors import ChangedObjectError, InvalidValueError, LedgerError, SourceError
from scripts.helpers.files import spark as spark_bookmark
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.spark import Executors, SparkFileDelta
from scripts.helpers.files.states import files_of
from scripts.helpers.job import IncrementalJob
from scripts.helpers.listing import s3 as listing_s3
from scripts.helpers.listing.listing import Location
from scripts.helpers.listing.s3 import make_client
from scripts.helpers.reading.small_files import typed_fetch_errors
from scripts.helpers.spark.tasks import spread
from scripts.helpers.watermarks import Watermarks
from tests.support.components import missing_component
from tests.support.patience import PATIENCE
from tests.support.reasons import because
from tests.support.steps import KilledError

KEYS = st.sampled_from(
    [
        f"{folder}{name}"
        for folder in ("", "a/", "a/b/", "b/", "é/", "z=1/")
        for name in ("1.csv", "2 x.csv", "_h", "🎉")
    ]
)
CHANGES = st.lists(st.tuples(KEYS, st.sampled_from(["put", "other", "delete"])), min_size=1, max_size=12)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "delay": st.sampled_from([timedelta(0), timedelta(hours=1)]),
        "on_modified": st.just("skip"),
        "start_from": st.sampled_from(["a/2", "now", datetime(2020, 1, 1, tzinfo=timezone.utc)]),
        "compare": st.just("mtime"),
        "exclude": st.just(["b/**"]),
        "min_size": st.just(len("other")),
        "versioned": st.just(True),
        "ready_marker": st.just("_h"),
        "max_files": st.integers(1, 4),
        "max_bytes": st.integers(1, 20),
    },
)


@pytest.fixture(autouse=True)
def aws(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point executors to the test server by the environment, as they find AWS."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)


@pytest.fixture(autouse=True)
def several_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make two keys a page and enough for a range, because a source that fits into one page goes to one task."""
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "2")
    monkeypatch.setattr(spark_bookmark, "LEAST_KEYS", 2)


@pytest.fixture(autouse=True)
def key_marker_as_in_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make moto return all versions after a KeyMarker: it omits the first one if the marker is not a key."""
    listed: Callable[..., Any] = S3Backend.list_object_versions

    def versions(self: Any, bucket_name: str, *given: Any, key_marker: Any = None, **more: Any) -> Any:
        if key_marker is not None and not more.get("version_id_marker"):
            below = [key for key in self.get_bucket(bucket_name).keys if key <= key_marker]
            key_marker = max(below, default=None)
        return listed(self, bucket_name, *given, key_marker=key_marker, **more)

    monkeypatch.setattr(S3Backend, "list_object_versions", versions)


def change(s3: Any, bucket: str, changes: list[tuple[str, str]]) -> None:
    for key, what in changes:
        if what == "delete":
            s3.delete_object(Bucket=bucket, Key=f"landing/{key}")
        else:
            s3.put_object(Bucket=bucket, Key=f"landing/{key}", Body=what.encode())


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((row.key, row.etag, row.size, row.status, row.version, row.run_id) for row in frame.collect())


def same_rows(table: Any) -> list[tuple[Any, ...]]:
    names = ("key", "etag", "size", "status", "version", "run_id")
    return sorted(tuple(row[name] for name in names) for row in table.to_pylist())


@settings(
    max_examples=2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(rounds=st.lists(CHANGES, min_size=2, max_size=3), options=OPTIONS, by_executors=st.booleans())
@example(
    rounds=[[(f"{name}/1.csv", "put") for name in "abcdef"], [("a/1.csv", "delete"), ("g/1.csv", "put")]],
    options={},
    by_executors=True,
)
@example(
    rounds=[
        [(f"{folder}{name}", "put") for folder in "ab" for name in ("/1.csv", "/2 x.csv", "/_h")],
        [("a/1.csv", "other"), ("b/2 x.csv", "delete"), ("z=1/1.csv", "put"), ("z=1/_h", "put")],
    ],
    options={"ready_marker": "_h"},
    by_executors=True,
)
@example(
    rounds=[
        [(f"{name}/1.csv", "put") for name in "fbdace"],
        [("f/1.csv", "other"), ("g/1.csv", "put"), ("b/1.csv", "delete"), ("z=1/1.csv", "other")],
    ],
    options={"max_files": 3, "max_bytes": 8},
    by_executors=True,
)
@example(
    rounds=[[(f"{name}/1.csv", "put") for name in "abcdef"], [("b/1.csv", "other"), ("a/2 x.csv", "put")]],
    options={"start_from": "c/", "max_files": 2},
    by_executors=True,
)
def test_executors_find_what_the_driver_finds_when_a_bucket_changes(
    spark: Any, s3: Any, bucket: str, rounds: list[list[tuple[str, str]]], options: dict[str, Any], by_executors: bool
) -> None:
    patch = pytest.MonkeyPatch()
    if by_executors:
        # Behave as with a large ledger: executors write what they find, merge segments, and probe dense ranges.
        patch.setattr(spark_bookmark, "FILE_ROWS", 1)
        patch.setattr(spark_bookmark, "MERGED_FILE_ROWS", 2)
        patch.setattr(spark_bookmark, "PIECE_ROWS", 1)
    with patch.context():
        check_rounds(spark, s3, bucket, rounds, options)
    patch.undo()


def check_rounds(
    spark: Any, s3: Any, bucket: str, rounds: list[list[tuple[str, str]]], options: dict[str, Any]
) -> None:
    """Let executors and the driver both take each round of changes, and compare what they find."""
    ledger = f"s3://{bucket}/ledger/"
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    for found in s3.list_objects_v2(Bucket=bucket).get("Contents", []):
        s3.delete_object(Bucket=bucket, Key=found["Key"])
    state = local_state = None

    for version, changes in enumerate(rounds, 1):
        change(s3, bucket, changes)
        taken_by = (version, f"run-{version}")
        source = f"s3://{bucket}/landing/"
        executed = FileBookmark(source, state=state, ledger_uri=ledger, taken_by=taken_by, **options)
        local = FileBookmark(source, state=local_state, s3_client=s3, taken_by=taken_by, **options)
        delta, expected = executed.new_files_on_spark(spark), local.new_files()

        assert (delta.count, delta.bytes, delta.gone) == (expected.count, expected.bytes, expected.gone)
        assert delta.has_more is expected.has_more
        assert rows_of(delta.files) == same_rows(expected.table)
        state, local_state = executed.state_after, local.state_after
        assert state is not None
        assert (state["listed"] is None) == (local_state["listed"] is None)


def test_driver_goes_on_when_executors_took_the_first_batch(spark: Any, s3: Any, bucket: str) -> None:
    source, ledger = f"s3://{bucket}/landing/", f"s3://{bucket}/ledger/"
    change(s3, bucket, [("a/1.csv", "put"), ("b/1.csv", "put")])
    executed = FileBookmark(source, ledger_uri=ledger, taken_by=(1, "r1"))
    executed.new_files_on_spark(spark)
    change(s3, bucket, [("a/2.csv", "put")])

    local = FileBookmark(source, state=executed.state_after, s3_client=s3, ledger_uri=ledger)

    assert [file.key for file in local.new_files().files] == ["a/2.csv"]
    assert local.explain("b/1.csv").run_id == "r1"


def test_option_is_refused_when_it_needs_all_files_at_one_place(spark: Any) -> None:
    with pytest.raises(InvalidValueError, match="On Spark on_unreadable cannot be used: the list of what is set aside"):
        FileBookmark(
            "s3://bucket/landing/", ledger_uri="s3://bucket/ledger/", on_unreadable="set_aside"
        ).new_files_on_spark(spark)


def test_layout_is_refused_when_a_source_is_listed_as_a_whole(spark: Any, tmp_path: Path) -> None:
    bookmark = FileBookmark(f"{tmp_path}/landing/", ledger_uri=f"{tmp_path}/ledger/", layout="day=%Y-%m-%d/")

    with pytest.raises(InvalidValueError, match="On Spark layout cannot be used: directories and directory buckets"):
        bookmark.new_files_on_spark(spark)


def test_files_are_taken_when_their_marker_lies_in_another_range(spark: Any, s3: Any, bucket: str) -> None:
    source, ledger = f"s3://{bucket}/landing/", f"s3://{bucket}/ledger/"
    names = [f"{folder}/{number}" for folder in "ab" for number in range(12)]
    change(s3, bucket, [(name, "put") for name in names])

    def found(state: Any) -> tuple[list[str], Any]:
        bookmark = FileBookmark(source, state=state, ledger_uri=ledger, ready_marker="_SUCCESS")
        return [file.key for file in bookmark.new_files_on_spark(spark).to_driver().files], bookmark.state_after

    none, first = found(None)
    change(s3, bucket, [("b/_SUCCESS", "put")])
    ready, second = found(first)
    change(s3, bucket, [("b/0", "other"), ("b/12", "put")])
    later, _ = found(second)

    assert none == []
    assert ready == sorted(names[12:])
    assert later == ["b/0", "b/12"]


def test_only_recent_date_folders_are_listed_when_there_is_a_layout(
    spark: Any, s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, ledger = f"s3://{bucket}/landing/", f"s3://{bucket}/ledger/"
    today = datetime.now(timezone.utc)
    old, new = (f"day={day:%Y-%m-%d}/" for day in (today - timedelta(days=40), today))
    change(s3, bucket, [(f"{folder}{number}", "put") for folder in (old, new) for number in range(4)])
    options: dict[str, Any] = {"ledger_uri": ledger, "layout": "day=%Y-%m-%d/"}
    first = FileBookmark(source, **options)
    assert first.new_files_on_spark(spark).count == 8
    change(s3, bucket, [(f"{old}9", "put"), (f"{new}9", "put"), (f"{new}0", "delete"), (f"{old}0", "delete")])

    second = FileBookmark(source, state=first.state_after, **options)
    delta = second.new_files_on_spark(spark)

    local = FileBookmark(source, state=first.state_after, s3_client=s3, **options).new_files()
    assert [file.key for file in delta.to_driver().files] == [f"{new}9"] == [file.key for file in local.files]
    assert delta.gone == local.gone == 1


def test_bookmark_is_refused_when_it_has_no_ledger_files(spark: Any) -> None:
    with pytest.raises(InvalidValueError, match="Give a ledger_uri"):
        FileBookmark("s3://bucket/landing/").new_files_on_spark(spark)


def test_nothing_is_returned_when_one_range_cannot_be_compared(spark: Any, s3: Any, bucket: str) -> None:
    source, ledger = f"s3://{bucket}/landing/", f"s3://{bucket}/ledger/"
    change(s3, bucket, [("a/1.csv", "put"), ("b/1.csv", "put")])
    first = FileBookmark(source, ledger_uri=ledger)
    first.new_files_on_spark(spark)
    assert first.state_after is not None
    file = first.state_after["segments"][0]["files"][0]["file"]
    s3.delete_object(Bucket=bucket, Key=f"ledger/{file}")

    second = FileBookmark(source, state=first.state_after, ledger_uri=ledger)

    with pytest.raises(LedgerError, match="it could not be read") as caught:
        second.new_files_on_spark(spark)
    assert file in caught.value.source
    with pytest.raises(SourceError, match="it has not been listed yet"):
        _ = second.state_after


def test_error_names_the_keys_when_executors_find_objects_that_must_not_change(
    spark: Any, s3: Any, bucket: str
) -> None:
    source, ledger = f"s3://{bucket}/landing/", f"s3://{bucket}/ledger/"
    change(s3, bucket, [("a/1.csv", "put")])
    first = FileBookmark(source, ledger_uri=ledger)
    first.new_files_on_spark(spark)
    change(s3, bucket, [("a/1.csv", "other")])

    with pytest.raises(SourceError, check=because("modified")) as caught:
        FileBookmark(source, state=first.state_after, ledger_uri=ledger, on_modified="raise").new_files_on_spark(spark)

    assert (caught.value.keys, caught.value.count) == (["a/1.csv"], 1)


def test_every_probe_is_paid_for_when_the_option_says_so(
    spark: Any, s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, payers = make_client(1), []
    client.meta.events.register(
        "before-call.s3.*", lambda params, **_: payers.append(params["headers"].get("x-amz-request-payer"))
    )
    monkeypatch.setattr(spark_bookmark, "make_client", lambda _: client)
    change(s3, bucket, [("a/1.csv", "put"), ("b/1.csv", "put")])
    source, ledger = f"s3://{bucket}/landing/", f"s3://{bucket}/ledger/"

    FileBookmark(source, ledger_uri=ledger, request_payer=True).new_files_on_spark(spark)

    assert payers
    assert set(payers) == {"requester"}


def test_source_is_refused_when_executors_cannot_list_it(spark: Any) -> None:
    with pytest.raises(SourceError) as caught:
        FileBookmark("gs://bucket/landing/", ledger_uri="s3://bucket/ledger/").new_files_on_spark(spark)

    assert str(caught.value) == ("Source 'gs://bucket/landing/': executors do not list gs://. Use new_files for it.")


def test_state_is_refused_when_its_list_lies_in_the_table(spark: Any, s3: Any, bucket: str) -> None:
    source, ledger = f"s3://{bucket}/landing/", f"s3://{bucket}/ledger/"
    change(s3, bucket, [("a/1.csv", "put")])
    local = FileBookmark(source, s3_client=s3)
    local.new_files()

    with pytest.raises(LedgerError, match=r"its file list is in the table, and executors read files\. Use new_files"):
        FileBookmark(source, state=local.state_after, ledger_uri=ledger).new_files_on_spark(spark)


@pytest.mark.parametrize("by_executors", [False, True])
def test_ledger_has_few_files_when_many_runs_add_a_little(
    spark: Any, s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch, by_executors: bool
) -> None:
    source, ledger = f"s3://{bucket}/landing/", f"s3://{bucket}/ledger/"
    asked: list[str] = []
    get: Callable[..., Any] = S3Backend.get_object
    monkeypatch.setattr(S3Backend, "get_object", lambda *given, **more: asked.append("GET") or get(*given, **more))
    if by_executors:
        monkeypatch.setattr(spark_bookmark, "FILE_ROWS", 8)
        monkeypatch.setattr(spark_bookmark, "MERGED_FILE_ROWS", 8)
    state, written, requests = None, [0], []

    for run in range(4):
        change(s3, bucket, [(f"{folder}/{run}.csv", "put") for folder in "abcdefgh"])
        asked.clear()
        bookmark = FileBookmark(source, state=state, ledger_uri=ledger)
        bookmark.new_files_on_spark(spark)
        state = bookmark.state_after
        requests.append(len(asked))
        written.append(s3.list_objects_v2(Bucket=bucket, Prefix="ledger/", MaxKeys=1000)["KeyCount"])

    assert state is not None
    segments = [files_of(segment) for segment in state["segments"]]
    assert sum(file["count"] for files in segments for file in files) == 32
    if by_executors:
        # Three runs are merged into files of at least eight rows, each with its own range of keys.
        assert [len(segments), len(segments[0]) <= 3] == [2, True]
        assert all(before["last"] < after["first"] for before, after in pairwise(segments[0]))
    else:
        # One file for the new keys, and one for the merged ones.
        assert all(after - before <= 2 for before, after in pairwise(written))
        assert [len(files) for files in segments] == [1, 1]
    # Each of up to 16 tasks reads its part of two segments. The driver reads them to cut ranges and to merge.
    assert max(requests) <= 2 * 16 + 8


def test_ranges_have_no_more_keys_than_a_task_can_hold_when_cores_are_few(
    spark: Any, s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, ledger = f"s3://{bucket}/landing/", f"s3://{bucket}/ledger/"
    change(s3, bucket, [(f"{number:02}.csv", "put") for number in range(12)])
    first = FileBookmark(source, ledger_uri=ledger)
    first.new_files_on_spark(spark)
    ranges: list[list[bytes]] = []

    def seen(spark: Any, parts: Any) -> Any:
        ranges.append(list(parts))
        return spread(spark, parts)

    monkeypatch.setattr(spark_bookmark, "TASKS_PER_CORE", 1)
    monkeypatch.setattr(spark_bookmark, "MOST_KEYS", 3)
    monkeypatch.setattr(spark_bookmark, "spread", seen)

    delta = FileBookmark(source, state=first.state_after, ledger_uri=ledger).new_files_on_spark(spark)

    assert delta.count == 0
    assert len(ranges[0]) == 4


def test_known_files_stay_known_when_shares_come_in_another_order(
    spark: Any, s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Spark Connect server may assign the parts to tasks in any order."""
    source, ledger = f"s3://{bucket}/landing/", f"s3://{bucket}/ledger/"
    # Make each share a ledger file of its own, which executors merge.
    monkeypatch.setattr(spark_bookmark, "FILE_ROWS", 1)
    monkeypatch.setattr(spark_bookmark, "MERGED_FILE_ROWS", 2)
    monkeypatch.setattr(spark_bookmark, "spread", lambda spark, parts: spread(spark, parts[1:] + parts[:1]))
    change(s3, bucket, [(f"{folder}/1.csv", "put") for folder in "abcdefgh"])
    state, found = None, []

    for added, most in (("c/2.csv", None), ("a/2.csv", None), ("h/2.csv", 5)):
        executors = Executors(spark, FileBookmark(source, state=state, ledger_uri=ledger, max_files=most))
        taken = executors.find()
        assert taken.state is not None
        state = taken.state.to_store()
        for segment in state["segments"]:
            assert all(before["last"] < after["first"] for before, after in pairwise(files_of(segment)))
        change(s3, bucket, [(added, "put")])
        found += [file.key for file in executors.resume(taken.plan.to_store()).delta.to_driver().files]

    assert found == [*(f"{folder}/1.csv" for folder in "abcdefgh"), "c/2.csv", "a/2.csv"]


# --- reading what was found ------------------------------------------------------------------------------------------

IN_FOLDERS = ["month=3/1.csv", "month=3/a b%,+.csv", "month=4/[x]*.csv"]
SCHEMA = "id STRING, month STRING"


@pytest.fixture
def found(spark: Any, s3: Any, bucket: str) -> SparkFileDelta:
    """Return a delta of three files. Two files that it must not read arrived after it."""
    for key in IN_FOLDERS:
        s3.put_object(Bucket=bucket, Key=f"landing/{key}", Body=key[-7:].encode())
    delta = FileBookmark(f"s3://{bucket}/landing/", ledger_uri=f"s3://{bucket}/ledger/").new_files_on_spark(spark)
    s3.put_object(Bucket=bucket, Key="landing/month=3/later.csv", Body=b"later")
    s3.put_object(Bucket=bucket, Key="landing/month=4/x.csv", Body=b"globbed")
    return delta


@pytest.mark.parametrize("way", ["read", "read_small"])
def test_rows_are_those_of_the_driver_when_what_executors_found_is_read(
    spark: Any, found: SparkFileDelta, way: str
) -> None:
    local = found.to_driver()

    frame = getattr(found, way)(spark, "csv", schema=SCHEMA, path_column="file", sep=";")

    expected = getattr(local, way)(spark, "csv", schema=SCHEMA, path_column="file", sep=";")
    assert frame.dtypes == expected.dtypes
    rows = sorted(frame.collect())
    assert rows == sorted(expected.collect())
    assert [row.file for row in rows] == sorted(found.paths, key=lambda path: path[-7:])
    assert found.paths == local.paths == [f"{found.location}{key}" for key in IN_FOLDERS]


def test_reading_is_refused_when_the_driver_would_have_to_name_too_many_files(
    spark: Any, found: SparkFileDelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_bookmark, "DRIVER_FILES", 2)

    with pytest.raises(SourceError, match=r"3 files are more than the driver is asked to name, 2\. read_small leaves"):
        found.read(spark, "csv")


def test_small_files_are_refused_when_their_folders_give_different_columns(spark: Any, s3: Any, bucket: str) -> None:
    change(s3, bucket, [("month=3/1.csv", "put"), ("1.csv", "put")])
    delta = FileBookmark(f"s3://{bucket}/landing/", ledger_uri=f"s3://{bucket}/ledger/").new_files_on_spark(spark)

    with pytest.raises(SourceError, match=r"different columns \(files with each: \['month'\]: 1, \[\]: 1\)"):
        delta.read_small(spark, "csv", "id STRING")


def test_small_files_of_an_empty_delta_are_no_rows_when_there_is_a_schema(spark: Any, s3: Any, bucket: str) -> None:
    delta = FileBookmark(f"s3://{bucket}/landing/", ledger_uri=f"s3://{bucket}/ledger/").new_files_on_spark(spark)

    frame = delta.read_small(spark, "csv", "id STRING")

    assert (frame.columns, frame.collect(), delta.paths) == (["id"], [], [])


def test_reading_is_a_ledger_error_when_a_file_of_the_plan_is_gone_while_executors_fetch(
    spark: Any, s3: Any, found: SparkFileDelta
) -> None:
    frame = found.read_small(spark, "csv", SCHEMA)
    ledger = Location.parse(found.ledger_uri)
    for file in found.ledger_files:
        s3.delete_object(Bucket=ledger.bucket, Key=ledger.prefix + file["file"])

    with pytest.raises(LedgerError, match="it could not be read"), typed_fetch_errors():
        frame.collect()


def test_each_task_receives_only_the_ledger_files_of_its_range(
    spark: Any, s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, ledger = f"s3://{bucket}/landing/", f"s3://{bucket}/ledger/"
    sent: list[bytes] = []
    tasks: list[bytes] = []
    frames = type(spark.range(1))  # Spark 4 has a separate class for frames of a JVM.
    of_frame = frames.mapInArrow

    def seen(spark: Any, parts: Any) -> Any:
        sent.extend(parts)
        return spread(spark, parts)

    def run(frame: Any, task: Any, *schema: Any) -> Any:
        tasks.append(CloudPickleSerializer().dumps(task))
        return of_frame(frame, task, *schema)

    state = None
    for prefix in "ab":
        change(s3, bucket, [(f"{prefix}/1.csv", "put"), (f"{prefix}/2.csv", "put")])
        first = FileBookmark(source, state=state, ledger_uri=ledger)
        first.new_files_on_spark(spark)
        state = first.state_after
    assert state is not None
    monkeypatch.setattr(spark_bookmark, "spread", seen)
    monkeypatch.setattr(frames, "mapInArrow", run)

    FileBookmark(source, state=state, ledger_uri=ledger).new_files_on_spark(spark)

    names = [file["file"] for segment in state["segments"] for file in segment["files"]]
    ranges = [json.loads(part) for part in sent]
    assert len(ranges) > 1
    told = [{file["file"] for segment in part["known"] for file in segment["files"]} for part in ranges]
    assert set().union(*told) == set(names)
    assert tasks
    assert not any(name.encode() in task for name in names for task in tasks)


# --- in a job ------------------------------------------------------------------------------------------------------


class SparkRuns:
    """Runs of one job whose executors find the files of a bucket."""

    def __init__(self, watermarks: Watermarks, spark: Any, s3: Any, bucket: str) -> None:
        self.watermarks, self.spark, self.s3, self.bucket = watermarks, spark, s3, bucket
        self.source, self.ledger = f"s3://{bucket}/landing/", f"s3://{bucket}/ledger/"
        self.has_more = False

    def run(self, meanwhile: Callable[[], None] = lambda: None, **options: Any) -> list[tuple[Any, ...]]:
        options = {"source": self.source, "ledger_uri": self.ledger, **options}
        with IncrementalJob(self.watermarks, "landing", spark=self.spark) as job:
            delta = job.new_files_on_spark(**options)
            self.has_more = delta.has_more
            with typed_fetch_errors():
                rows = rows_of(delta.files)
            job.freeze()
            meanwhile()
        return rows

    def die(self, **options: Any) -> None:
        """Kill a run right after it has frozen its plan."""

        def killed() -> None:
            raise KilledError

        with pytest.raises(KilledError):
            self.run(killed, **options)

    @property
    def version(self) -> int:
        return self.watermarks.latest("landing").version


@pytest.fixture
def runs(watermarks: Watermarks, spark: Any, s3: Any, bucket: str) -> SparkRuns:
    change(s3, bucket, [("a/1.csv", "put"), ("b/1.csv", "put"), ("_hidden", "put")])
    return SparkRuns(watermarks, spark, s3, bucket)


def test_driver_reads_with_the_client_of_the_job_when_it_has_one(
    runs: SparkRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(runs.s3, runs.bucket, [(f"{folder}/1.csv", "put") for folder in "cdef"])
    paths = []
    # The patch does not reach the executors: they are other processes and make their own clients.
    monkeypatch.setattr(listing_s3, "aws_client", lambda *_, **__: pytest.fail("The driver makes a client."))

    for more in ("b/2.csv", "c/2.csv"):
        with IncrementalJob(runs.watermarks, "landing", spark=runs.spark, s3_client=runs.s3) as job:
            paths.append(job.new_files_on_spark(runs.source, ledger_uri=runs.ledger).paths)
        change(runs.s3, runs.bucket, [(more, "put")])
    bookmark = FileBookmark(runs.source, s3_client=runs.s3, ledger_uri=runs.ledger)
    paths.append(bookmark.new_files_on_spark(runs.spark).paths)

    assert list(map(len, paths)) == [6, 1, 8]


def test_replay_gives_the_same_rows_when_the_run_died_after_the_freeze(runs: SparkRuns) -> None:
    runs.die()
    change(runs.s3, runs.bucket, [("c/1.csv", "put")])

    replayed, after, nothing = runs.run(), runs.run(), runs.run()

    assert [row[0] for row in replayed] == ["a/1.csv", "b/1.csv"]
    assert [row[0] for row in after] == ["c/1.csv"]
    assert {row[4] for row in replayed} == {1}
    assert (nothing, runs.version) == ([], 3)


def test_context_takes_no_file_when_the_inherited_plan_does_not_know_it(
    runs: SparkRuns, caplog: pytest.LogCaptureFixture
) -> None:
    runs.die()

    with caplog.at_level(logging.INFO), IncrementalJob(runs.watermarks, "landing", spark=runs.spark) as job:
        job.new_files_on_spark(runs.source, ledger_uri=runs.ledger)
        other = job.new_files_on_spark(runs.source, ledger_uri=runs.ledger, transformation_ctx="other")

    assert other.count == 0
    assert "event=not_in_plan job=landing context=other" in caplog.text


def test_every_file_is_taken_once_oldest_first_when_batches_are_limited_and_runs_die(
    runs: SparkRuns,
) -> None:
    change(runs.s3, runs.bucket, [("_hidden", "delete"), *((f"{name}/2.csv", "put") for name in "gfedc")])
    listed = runs.s3.list_objects_v2(Bucket=runs.bucket, Prefix="landing/", MaxKeys=1000)["Contents"]
    oldest = sorted(listed, key=lambda found: (found["LastModified"], found["Key"]))
    batches: list[tuple[list[str], bool]] = []

    while not batches or batches[-1][1]:
        runs.die(max_files=3)
        rows = runs.run(max_files=3)
        batches.append(([row[0] for row in rows], runs.has_more))

    keys = [found["Key"].removeprefix("landing/") for found in oldest]
    assert batches == [(sorted(keys[:3]), True), (sorted(keys[3:6]), True), (keys[6:], False)]
    assert (runs.run(max_files=3), runs.version) == ([], 4)


def test_rest_is_warned_of_when_a_limited_run_saves_nothing(runs: SparkRuns, caplog: pytest.LogCaptureFixture) -> None:
    rows = runs.run(max_files=1, transformation_ctx=None)

    assert len(rows) == 1
    assert f"event=limited job=landing source={runs.source} files=1" in caplog.text


def test_nothing_is_committed_when_a_planned_object_changes_before_the_commit(runs: SparkRuns) -> None:
    def meanwhile() -> None:
        change(runs.s3, runs.bucket, [("a/1.csv", "other"), ("b/1.csv", "delete")])

    with pytest.raises(ChangedObjectError) as caught:
        runs.run(meanwhile)
    with pytest.raises(ChangedObjectError) as again:
        runs.run(lambda: pytest.fail("the replay went on"))

    for error in (caught.value, again.value):
        assert (error.overwritten, error.deleted) == (("a/1.csv",), ("b/1.csv",))
    assert runs.version == 0
    assert len(runs.run(on_changed=None)) == 2
    assert [row[0] for row in runs.run()] == ["a/1.csv"]


def test_replay_is_refused_when_the_source_is_another_one(runs: SparkRuns) -> None:
    runs.die()

    with pytest.raises(SourceError, check=because("changed")) as caught:
        runs.run(source=f"s3://{runs.bucket}/other/")

    assert (caught.value.before, caught.value.source) == (runs.source, f"s3://{runs.bucket}/other/")
    assert runs.version == 0


@pytest.mark.parametrize("on_changed", ["raise", None])
def test_replay_is_a_ledger_error_when_a_file_of_the_plan_was_altered(runs: SparkRuns, on_changed: Any) -> None:
    runs.die()
    for found in runs.s3.list_objects_v2(Bucket=runs.bucket, Prefix="ledger/")["Contents"]:
        body = runs.s3.get_object(Bucket=runs.bucket, Key=found["Key"])["Body"].read()
        runs.s3.put_object(
            Bucket=runs.bucket, Key=found["Key"], Body=body.replace(b"a/1", b"x/1").replace(b"b/1", b"y/1")
        )

    with pytest.raises(LedgerError, match="not what was written"):
        runs.run(on_changed=on_changed)

    assert runs.version == 0


def test_on_changed_is_refused_when_executors_cannot_do_it(runs: SparkRuns) -> None:
    with pytest.raises(InvalidValueError, match="On Spark on_changed is 'raise' or None, and not 'skip'"):
        runs.run(on_changed="skip")


@pytest.mark.parametrize(
    "options",
    [
        {"listing": object()}, {"events": object()}, {"metadata": object()}, {"relist": timedelta(0)},
        {"after_commit": "delete"}, {"archive_to": "s3://bucket/done/"}, {"min_age": timedelta(days=1)},
    ],
)  # fmt: skip
def test_option_is_refused_when_new_files_alone_has_it(runs: SparkRuns, options: dict[str, Any]) -> None:
    (name,) = options

    with pytest.raises(InvalidValueError, match=f"Option '{name}': there is none of that name"):
        runs.run(**options)


@pytest.mark.parametrize("limits", [{}, {"max_files": 1}], ids=str)
def test_driver_warns_of_files_that_a_first_run_does_not_take(
    runs: SparkRuns, caplog: pytest.LogCaptureFixture, limits: dict[str, Any]
) -> None:
    first = runs.run(start_from="a/2", **limits)
    told = caplog.text.count("event=start_from")
    change(runs.s3, runs.bucket, [("a/0.csv", "put")])
    second = runs.run(start_from="a/2", **limits)

    assert ([row[0] for row in first], [row[0] for row in second]) == (["b/1.csv"], ["a/0.csv"])
    assert f"event=start_from source={runs.source} start_from=a/2 ignored=1 taken=1" in caplog.text
    assert (told, caplog.text.count("event=start_from")) == (1, 1)


def test_files_that_executors_took_are_archived_when_a_run_of_new_files_does_it(runs: SparkRuns) -> None:
    runs.run()
    with IncrementalJob(runs.watermarks, "landing", s3_client=runs.s3) as job:
        delta = job.new_files(
            runs.source, transformation_ctx="files", ledger_uri=runs.ledger, after_commit="archive",
            archive_to=f"s3://{runs.bucket}/done/",
        )  # fmt: skip

    found = [found["Key"] for found in runs.s3.list_objects_v2(Bucket=runs.bucket, MaxKeys=1000)["Contents"]]
    assert delta.count == 0
    assert [key for key in found if not key.startswith("ledger/")] == [
        "done/_may-clear", "done/v1/a/1.csv", "done/v1/b/1.csv", "landing/_hidden",
    ]  # fmt: skip


@pytest.mark.parametrize(("options", "workers"), [({}, 4), ({"workers": 2}, 2)])
def test_each_task_has_as_many_requests_at_once_as_workers_says(
    runs: SparkRuns, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], workers: int
) -> None:
    tasks: list[Any] = []
    frames = type(runs.spark.range(1))
    of_frame = frames.mapInArrow

    def run(frame: Any, task: Any, *schema: Any) -> Any:
        tasks.append(task)
        return of_frame(frame, task, *schema)

    monkeypatch.setattr(frames, "mapInArrow", run)

    runs.run(**options)

    bookmark, _ = tasks[0].share.__self__.chosen({"after": None, "until": None, "known": [], "then": []})
    assert bookmark.options.workers == workers


def test_cluster_finds_new_files_when_the_code_is_shipped_as_the_wheel(
    endpoint: str, s3: Any, bucket: str, wheel: Path, tmp_path: Path
) -> None:
    change(s3, bucket, [(f"day={day}/{name}.csv", "put") for day in range(3) for name in range(4)])
    if not spark_conf(endpoint)["spark.jars"]:
        missing_component("S3A", "pip install --no-deps sagemaker_pyspark==1.4.5")
    package = tmp_path / "glue_watermarks.zip"  # Spark does not put files named .whl on the Python path.
    package.write_bytes(wheel.read_bytes())
    script = tmp_path / "job.py"
    script.write_text(
        "import json, sys\n"
        "from pyspark.sql import SparkSession\n"
        "settings = json.loads(sys.argv[1])\n"
        "builder = SparkSession.builder.master('local-cluster[2,1,1024]')\n"
        "for name, value in settings.items():\n"
        "    builder = builder.config(name, value)\n"
        "spark = builder.getOrCreate()\n"
        "spark.sparkContext.addPyFile(sys.argv[4])\n"
        "from scripts.helpers.files import spark as spark_bookmark\n"
        "assert '.zip' in spark_bookmark.__file__, spark_bookmark.__file__\n"
        "from scripts.helpers.files.bookmark import FileBookmark\n"
        "found = FileBookmark(sys.argv[2], ledger_uri=sys.argv[3]).new_files_on_spark(spark)\n"
        "print('FOUND', found.count, found.files.count())\n"
        "print('RANGES', spark.sparkContext.statusTracker().getStageInfo(0).numTasks)\n"
        "def place(_):\n"
        "    from scripts.helpers.files import spark as spark_bookmark\n"
        "    return spark_bookmark.__file__\n"
        "places = spark.sparkContext.parallelize(range(2), 2).map(place).distinct().collect()\n"
        "print('PLACES', *places)\n"
        "spark.stop()\n"
    )
    settings_ = spark_conf(endpoint) | {
        "spark.executorEnv.AWS_ENDPOINT_URL": endpoint,
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    command = [
        sys.executable, str(script), json.dumps(settings_), f"s3://{bucket}/landing/", f"s3://{bucket}/ledger/",
        str(package),
    ]  # fmt: skip

    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}, capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip

    assert "FOUND 12 12" in done.stdout, done.stdout + done.stderr[:6000]
    assert int(re.findall(r"RANGES (\d+)", done.stdout)[0]) > 1
    (places,) = re.findall("PLACES (.*)", done.stdout)
    assert all(f"{package.name}/scripts/helpers" in place for place in places.split())
