"""A ledger that is read range by range gives the same answers as a ledger that is in memory as a whole."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from moto.s3.models import S3Backend

from scripts.helpers.errors import WatermarkError
from scripts.helpers.files import ledger
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.diff import Known
from scripts.helpers.files.segment_files import SegmentFiles
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from tests.files.histories_of_files import KEYS, LIMITS, RUNS, change
from tests.support.buckets import Bucket, Job
from tests.support.events import Told
from tests.support.long import cases

WHOLE = 500_000
TODAY = f"day={datetime.now(timezone.utc):%Y-%m-%d}/"
PLACES = st.sampled_from(
    [
        f"{folder}{name}"
        for folder in ("", "a/", "a/b/", "é/", "day=2020-01-01/", TODAY)
        for name in ("1.csv", "2 x.csv", "_h", "🎉", "\ue000")
    ]
)
CHANGES = st.lists(st.tuples(PLACES, st.sampled_from(["put", "other", "delete"])), max_size=12)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "on_modified": st.sampled_from(["skip", "raise"]),
        "start_from": st.sampled_from(["a/2", "now"]),
        "compare": st.just("mtime"),
        "exclude": st.just(["a/**"]),
        "min_size": st.just(len("other")),
        "versioned": st.just(True),
        "ready_marker": st.just("_h"),
        "max_files": st.integers(1, 4),
        "max_bytes": st.integers(1, 20),
        "layout": st.just("day=%Y-%m-%d/"),
    },
)
quick = settings(
    max_examples=cases(5, long=100),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
_numbers = count()


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "2")


@pytest.fixture(autouse=True)
def key_marker_as_in_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make moto list all versions after a KeyMarker; it skips the first one if no object has that key."""
    listed: Callable[..., Any] = S3Backend.list_object_versions

    def versions(self: Any, bucket_name: str, *given: Any, key_marker: Any = None, **more: Any) -> Any:
        if key_marker is not None and not more.get("version_id_marker"):
            below = [key for key in self.get_bucket(bucket_name).keys if key <= key_marker]
            key_marker = max(below, default=None)
        return listed(self, bucket_name, *given, key_marker=key_marker, **more)

    monkeypatch.setattr(S3Backend, "list_object_versions", versions)


class Loads:
    """The number of ledger rows in memory at once, for each range that is read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[int] = []
        made: Callable[..., None] = Known.__init__

        def counted(known: Known, segments: Any) -> None:
            made(known, segments)
            self.rows.append(sum(table.num_rows for table in segments))

        monkeypatch.setattr(Known, "__init__", counted)


def found(watermarks: Watermarks, job_id: str, source: str, rows_of_a_file: int, options: dict[str, Any]) -> list[Any]:
    """Return the files that one run takes, and the known files after it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "FILE_ROWS", rows_of_a_file)
        try:
            with IncrementalJob(watermarks, job_id) as job:
                delta = job.new_files(source, transformation_ctx="c", on_changed=None, **options)
                job.freeze()
        except WatermarkError as error:
            return [type(error).__name__]
    state = watermarks.get_watermark_values(job_id)["c"]
    known = FileBookmark(source, state=state, ledger_uri=options["ledger_uri"]).ledger.known().between(None, None)
    taken = [delta.table.sort_by("key").select(["key", "etag", "version_id", "size", "modified", "version"])]
    rows = [table.to_pylist() for table in [*taken, known.drop_columns("run_id").sort_by("key")]]
    return [*rows, delta.gone, delta.has_more, state["listed"] is None]


@quick
@given(rounds=st.lists(CHANGES, min_size=2, max_size=4), options=OPTIONS, rows=st.integers(1, 3))
@example(
    rounds=[[(f"{name}/1.csv", "put") for name in "abcdef"], [("a/1.csv", "delete"), ("b/1.csv", "other")], []],
    options={},
    rows=1,
)
@example(
    rounds=[[(f"{TODAY}{name}", "put") for name in "abcdef"], [(f"{TODAY}ab", "put"), ("a/1.csv", "put")], []],
    options={"layout": "day=%Y-%m-%d/"},
    rows=2,
)
def test_job_finds_the_same_files_when_its_ledger_is_read_by_ranges(
    tmp_path: Path, s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch, endpoint: str,
    rounds: list[list[tuple[str, str]]], options: dict[str, Any], rows: int,
) -> None:  # fmt: skip
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    watermarks = Watermarks(f"sqlite:{tmp_path}/table.db")
    number = next(_numbers)
    if not number:
        watermarks.create_table()
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    source = f"s3://{bucket}/landing-{number}/"

    for changes in rounds:
        for key, what in changes:
            place = {"Bucket": bucket, "Key": f"landing-{number}/{key}"}
            s3.delete_object(**place) if what == "delete" else s3.put_object(**place, Body=what.encode())
        whole, by_ranges = (
            found(watermarks, f"{number}-{one}", source, one, {**options, "ledger_uri": f"{tmp_path}/{number}-{one}/"})
            for one in (WHOLE, rows)
        )

        assert by_ranges == whole


@settings(quick, max_examples=cases(20, long=600))
@given(RUNS, LIMITS, st.integers(1, 3), st.integers(1, 5), st.lists(KEYS, max_size=3))
def test_batches_are_the_same_when_a_ledger_is_read_by_ranges(
    tmp_path: Path, runs: Any, limits: Any, rows: int, page: int, named: list[str]
) -> None:
    bucket = Bucket(page=page)
    whole, by_ranges = Job(bucket, **limits), Job(bucket, ledger_uri=f"{tmp_path}/{next(_numbers)}/", **limits)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "FILE_ROWS", rows)
        for changes, reports in runs:
            change(bucket, changes)
            report = bucket.report() if reports else None
            assert by_ranges.take(report) == whole.take(report)
            assert (by_ranges.last.gone, by_ranges.last.has_more) == (whole.last.gone, whole.last.has_more)
            bucket.wait(minutes=1)
            change(bucket, [(key, 1, 0) for key in named])
            assert by_ranges.take_told(Told(named)) == whole.take_told(Told(named))
            bucket.wait(minutes=1)

        expected = whole.bookmark().ledger.known().between(None, None)
        known = by_ranges.bookmark().ledger.known().between(None, None)
        assert known.sort_by("key").equals(expected.sort_by("key"))


@settings(quick, max_examples=cases(20, long=400))
@given(RUNS, st.integers(1, 3), st.integers(0, 5))
def test_range_of_runs_has_the_same_files_when_its_ledgers_are_read_by_ranges(
    tmp_path: Path, runs: Any, rows: int, first: int
) -> None:
    bucket = Bucket(page=3)
    job = Job(bucket, ledger_uri=f"{tmp_path}/{next(_numbers)}/")
    states: list[Any] = [None]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "FILE_ROWS", rows)
        for changes, _ in runs:
            change(bucket, changes)
            job.take()
            states.append(job.state)
            bucket.wait(minutes=1)
        job.state = states[min(first, len(states) - 1)]
        by_ranges = job.bookmark(until=states[-1]).new_files()
    whole = job.bookmark(until=states[-1]).new_files()

    assert by_ranges.table.sort_by("key").equals(whole.table.sort_by("key"))


def test_few_rows_of_a_ledger_are_in_memory_at_once_when_it_has_many_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "FILE_ROWS", 50)
    job = Job(Bucket(page=20), ledger_uri=f"{tmp_path}/ledger/")
    job.bucket.put(*(f"{number:04}.csv" for number in range(1_000)))
    job.take()
    job.bucket.put("0500x.csv")
    job.bucket.delete("0700.csv")
    loads = Loads(monkeypatch)

    taken = job.take()

    assert (taken, job.last.gone) == (["0500x.csv"], 1)
    assert max(loads.rows) == 50


def test_each_file_is_read_once_when_ranges_follow_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "FILE_ROWS", 20)
    job = Job(Bucket(page=20), ledger_uri=f"{tmp_path}/ledger/")
    for name, many in (("csv", 400), ("txt", 120), ("x", 36)):
        job.bucket.put(*(f"{number * 400 // many:04}.{name}" for number in range(many)))
        job.take()
    assert len(job.segments()) == 3
    read: list[str] = []
    rows = SegmentFiles.rows

    def counted(files: SegmentFiles, file: Any, keys: Any = None) -> Any:
        read.append(file["file"])
        return rows(files, file, keys)

    monkeypatch.setattr(SegmentFiles, "rows", counted)

    assert job.take() == []
    assert sorted(read) == sorted(set(read))
