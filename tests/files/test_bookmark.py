"""FileBookmark in exact mode: each identity of an object is new exactly once."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import boto3
import pytest

from scripts.helpers.errors import LedgerError, PlanConflictError, SourceError
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.job import IncrementalJob
from scripts.helpers.listing.paths import folder_columns, suffix
from scripts.helpers.watermarks import Watermarks
from tests.support.buckets import NOON, SOURCE, Bucket, Job, Table, keys_of
from tests.support.reasons import because


class Prefix:
    """A prefix that a test fills, and the state that a job keeps between runs."""

    def __init__(self, client: Any, bucket: str) -> None:
        self.client, self.bucket = client, bucket
        self.source = f"s3://{bucket}/landing/"
        self.state: dict[str, Any] | None = None
        self.table = Table()

    def put(self, *keys: str, body: bytes = b"x") -> None:
        for key in keys:
            self.client.put_object(Bucket=self.bucket, Key=f"landing/{key}", Body=body)

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self.bucket, Key=f"landing/{key}")

    def bookmark(self, source: str | None = None) -> FileBookmark:
        source = source or self.source
        return FileBookmark(source, state=self.state, transformation_ctx="parking", s3_client=self.client)

    def take(self) -> list[str]:
        """Return the new keys, and store the state through the real serializer."""
        bookmark = self.bookmark()
        delta = bookmark.new_files()
        self.state = self.table.stored(bookmark.state_after)
        return keys_of(delta)


@pytest.fixture
def landing(endpoint: str, bucket: str) -> Prefix:
    return Prefix(boto3.client("s3", endpoint_url=endpoint), bucket)


# --- what is new ------------------------------------------------------------------------------------


def test_delta_has_everything_in_order_of_key_bytes_when_it_is_the_first_run(landing: Prefix) -> None:
    landing.put("b.csv", "a.csv", "🎉.csv", "\ue000.csv", "é.csv", "B.csv")

    taken = landing.take()

    assert taken == ["B.csv", "a.csv", "b.csv", "é.csv", "\ue000.csv", "🎉.csv"]


def test_delta_has_only_the_new_file_when_one_was_put_since(landing: Prefix) -> None:
    landing.put("b.csv")
    landing.take()
    landing.put("a.csv")

    taken = landing.take()

    assert taken == ["a.csv"]


def test_delta_is_the_same_when_state_was_not_stored(landing: Prefix) -> None:
    landing.put("a.csv")

    deltas = [landing.bookmark().new_files() for _ in range(2)]

    assert deltas[0].table.equals(deltas[1].table)
    assert deltas[0].count == 1


@pytest.mark.parametrize("at", [datetime(2020, 1, 1, tzinfo=timezone.utc), NOON], ids=["older", "same second"])
def test_delta_has_late_file_when_its_time_is_not_above_the_newest_seen(at: datetime) -> None:
    job = Job()
    job.bucket.put("b.csv", at=NOON)
    job.take()
    job.bucket.put("a.csv", at=at)

    taken = job.take()

    assert taken == ["a.csv"]


def test_delta_is_empty_when_listing_is_empty(landing: Prefix) -> None:
    bookmark = landing.bookmark()

    delta = bookmark.new_files()

    assert (delta.count, delta.bytes, delta.paths) == (0, 0, [])
    assert bookmark.state_after["segments"] == []


def test_delta_is_empty_and_all_is_forgotten_when_everything_was_deleted(landing: Prefix) -> None:
    landing.put("a.csv")
    landing.take()
    landing.delete("a.csv")

    taken = landing.take()

    assert taken == []
    assert landing.state is not None
    assert landing.state["segments"] == []


@pytest.mark.parametrize(
    "key",
    [
        "_SUCCESS",
        ".hidden.csv",
        "a.csv._COPYING_",
        "_temporary/0/a.csv",
        "sub/_temporary/a.csv",
        "sub/deep/.x/a.csv",
        "sub/_SUCCESS",
        "_metadata",
        "folder/",
        "folder_$folder$",
    ],
)
def test_delta_leaves_file_out_when_it_is_hidden(landing: Prefix, key: str) -> None:
    landing.put("seen.csv", key)

    taken = landing.take()

    assert taken == ["seen.csv"]


@pytest.mark.parametrize("key", ["a_b.csv", "sub.d/a.csv", "_year=2013/a.csv", "_a=b.csv", "_metadata_dir/a.csv"])
def test_delta_has_file_when_its_name_only_looks_hidden(landing: Prefix, key: str) -> None:
    landing.put(key)

    taken = landing.take()

    assert taken == [key]


# --- state --------------------------------------------------------------------------------------------


def test_state_is_small_when_names_are_alike() -> None:
    job = Job()
    for number in range(5_000):
        job.bucket.put(f"2013/{number:05}.csv", body=str(number))

    job.take()

    (segment,) = job.segments()
    assert segment["count"] == 5_000
    assert len(segment["data"].data) < 5_000 * 55


def test_state_raises_source_error_when_nothing_was_listed_yet(landing: Prefix) -> None:
    with pytest.raises(SourceError, match=r"it has not been listed yet\. Call new_files first\."):
        _ = landing.bookmark().state_after


def test_delta_and_state_are_refused_when_listing_breaks_off() -> None:
    class BreaksOff(Bucket):
        def list_objects(self, location: Any) -> Any:
            yield next(iter(super().list_objects(location)))
            raise SourceError(SOURCE, "S3 refused to list it (AccessDenied).")

    bucket = BreaksOff()
    bucket.put("a.csv")
    bookmark = Job(bucket).bookmark()

    with pytest.raises(SourceError, match="AccessDenied"):
        bookmark.new_files()

    with pytest.raises(SourceError, match="it has not been listed yet"):
        _ = bookmark.state_after


@pytest.mark.parametrize(("before", "now"), [("s3", "s3a"), ("s3a", "s3")])
def test_nothing_is_new_when_only_the_scheme_is_spelled_otherwise(landing: Prefix, before: str, now: str) -> None:
    landing.put("a.csv")
    landing.source = f"{before}://{landing.bucket}/landing/"
    landing.take()
    landing.source = f"{now}://{landing.bucket}/landing/"

    taken = landing.take()

    assert taken == []


@pytest.mark.parametrize("source", ["s3://{}/other/", "s3://{}/landing/sub/", "s3://other/landing/"])
def test_bookmark_raises_source_changed_error_when_context_has_another_source(landing: Prefix, source: str) -> None:
    landing.put("a.csv")
    landing.take()
    other = source.format(landing.bucket)

    with pytest.raises(SourceError, check=because("changed")) as caught:
        landing.bookmark(other)

    assert (caught.value.context, caught.value.before, caught.value.source) == ("parking", landing.source, other)


def test_context_is_named_when_the_state_it_is_given_is_of_another_source(landing: Prefix) -> None:
    landing.take()

    with pytest.raises(SourceError, check=because("changed"), match="'parking' remembers"):
        FileBookmark("s3://elsewhere/landing/", state=landing.state, transformation_ctx="parking")


@pytest.mark.parametrize(
    ("state", "before"),
    [
        ({"kind": "rows", "cursor_column": "at", "type": "date", "value": None}, "a source of kind rows"),
        ("2023-03-16", "a source of kind None"),
        ({}, "a source of kind None"),
    ],
    ids=["rows", "text", "nothing"],
)
def test_bookmark_raises_source_changed_error_when_state_is_not_of_files(
    landing: Prefix, state: Any, before: str
) -> None:
    landing.state = state

    with pytest.raises(SourceError, check=because("changed"), match=f"'parking' remembers {before!r}"):
        landing.bookmark()


@pytest.mark.parametrize(
    "damage",
    [
        {"data": b"not compressed"},
        {"data": b""},
        {"data": "text"},
        {"data": None},
        {"sha256": "0" * 64},
        {"count": 7},
        {"count": "many"},
    ],
    ids=str,
)
def test_new_files_raises_ledger_error_when_state_is_damaged(landing: Prefix, damage: dict[str, Any]) -> None:
    landing.put("a.csv")
    landing.take()
    assert landing.state is not None
    landing.state["segments"][0].update(damage)

    with pytest.raises(LedgerError) as caught:
        landing.bookmark().new_files()

    assert f"Source {landing.source!r}: its stored file list is damaged" in str(caught.value)
    assert "Restore the job's item from a backup." in str(caught.value)


@pytest.mark.parametrize("field", ["data", "sha256", "count"])
def test_new_files_raises_ledger_error_when_a_part_of_the_state_is_missing(landing: Prefix, field: str) -> None:
    landing.put("a.csv")
    landing.take()
    assert landing.state is not None
    landing.state["segments"][0].pop(field)

    with pytest.raises(LedgerError, match="its stored file list is damaged"):
        landing.bookmark().new_files()


@pytest.mark.parametrize("format", [2, 0, None, "1"])
def test_bookmark_raises_ledger_error_when_format_is_not_known(landing: Prefix, format: Any) -> None:
    landing.put("a.csv")
    landing.take()
    assert landing.state is not None
    landing.state["format"] = format

    with pytest.raises(LedgerError) as caught:
        landing.bookmark()

    assert f"its stored file list has format {format!r}, not 1. Update the package." in str(caught.value)


# --- the delta -----------------------------------------------------------------------------------------


def test_delta_shows_paths_count_and_bytes_when_files_are_new(landing: Prefix) -> None:
    landing.put("a.csv", "sub/b c%20.csv", body=b"12345")

    delta = landing.bookmark(f"s3a://{landing.bucket}/landing/").new_files()

    assert delta.paths == [f"s3a://{landing.bucket}/landing/a.csv", f"s3a://{landing.bucket}/landing/sub/b c%20.csv"]
    assert (delta.count, delta.bytes) == (2, 10)
    assert repr(delta) == f"<FileDelta 's3a://{landing.bucket}/landing/': 2 files, 10 bytes>"


@pytest.mark.parametrize(
    ("by", "parts"),
    [
        (suffix, {"csv": ["a.csv", "year=2013/b.CSV"], "json": ["c.json"], "": ["noname"]}),
        (folder_columns, {(): ["a.csv", "c.json", "noname"], ("year",): ["year=2013/b.CSV"]}),
    ],
    ids=["suffix", "folder_columns"],
)
def test_split_parts_the_files_when_given_a_function_of_the_key(by: Any, parts: dict[Any, list[str]]) -> None:
    bucket = Bucket()
    bucket.put("a.csv", "c.json", "noname", "year=2013/b.CSV", body="123")
    delta = Job(bucket).bookmark().new_files()

    found = delta.split(by)

    assert {value: [file.key for file in part.files] for value, part in found.items()} == parts
    assert sum(part.bytes for part in found.values()) == delta.bytes


def test_plan_gives_back_the_same_delta_when_it_was_stored(landing: Prefix) -> None:
    landing.put("a.csv", "🎉 b.csv")
    bookmark = landing.bookmark()

    found = bookmark.find()
    plan = landing.table.stored(found.plan.to_store())

    assert landing.bookmark().resume(plan).delta.table.equals(found.delta.table)
    assert (plan["count"], plan["bytes"], plan["has_more"], plan["gone"]) == (2, 2, False, 0)


@pytest.mark.parametrize("key", ["a//b.csv", "/b.csv"])
def test_new_files_raises_source_error_when_spark_cannot_read_a_key(landing: Prefix, key: str) -> None:
    landing.put("a.csv", key)

    with pytest.raises(SourceError) as caught:
        landing.take()

    assert f"key {key!r} has an empty component" in str(caught.value)
    assert "Rename the object." in str(caught.value)
    assert landing.state is None


def test_new_files_raises_source_error_when_a_file_name_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "\udcff.csv").write_text("x")

    with pytest.raises(SourceError, match=r"is not valid UTF-8, so no job reads it\. Rename the object\."):
        FileBookmark(str(tmp_path)).new_files()


@pytest.mark.parametrize("key", ["_\udcff.csv", ".\udcff", "\udcff._COPYING_", "_tmp/\udcff.csv", "_\udcff/a.csv"])
def test_other_files_are_taken_when_a_hidden_name_is_not_utf8(tmp_path: Path, key: str) -> None:
    for name in (key, "a.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")

    assert [file.key for file in FileBookmark(str(tmp_path)).new_files().files] == ["a.csv"]


@pytest.mark.parametrize("source", ["/lake/\udcff/", "s3://lake/\udcff/"])
def test_source_is_refused_when_its_name_is_not_utf8(source: str) -> None:
    with pytest.raises(SourceError, match=r"/lake/\\udcff/': its name is not valid UTF-8"):
        FileBookmark(source)


def test_local_directory_keeps_its_bookmark_when_files_come_and_change(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1")
    (tmp_path / "new\nline.csv").write_text("1")
    first = FileBookmark(str(tmp_path))
    before = first.new_files()
    (tmp_path / "a.csv").write_text("22")

    after = FileBookmark(f"file://{tmp_path}", state=Table().stored(first.state_after)).new_files()

    assert [file.key for file in before.files] == ["a.csv", "new\nline.csv"]
    assert [file.key for file in after.files] == ["a.csv"]


def test_new_files_on_spark_are_refused_when_the_job_has_no_session(watermarks: Watermarks) -> None:
    with pytest.raises(PlanConflictError) as caught, IncrementalJob(watermarks, "parking") as job:
        job.new_files_on_spark("s3://raw/", ledger_uri="s3://raw/ledger/")

    assert str(caught.value) == "Job 'parking': there is no Spark session. Give the job spark=."


def test_package_is_named_when_files_are_asked_for_without_pyarrow(
    watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.helpers.job.find_spec", lambda _: None)

    with pytest.raises(SourceError) as caught, IncrementalJob(watermarks, "parking") as job:
        job.new_files("s3://raw/")

    assert str(caught.value) == "Source 's3://raw/': files need pyarrow. Install it: pip install pyarrow."


def test_known_objects_are_counted_when_a_bookmark_is_printed(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("id\n")
    bookmark = FileBookmark(str(tmp_path))
    bookmark.new_files()

    assert repr(bookmark) == f"<FileBookmark '{bookmark.location}': 0 objects known>"
    state = FileBookmark(str(tmp_path), state=bookmark.state_after)
    assert repr(state) == f"<FileBookmark '{bookmark.location}': 1 objects known>"
