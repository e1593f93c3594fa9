"""Listings of S3 prefixes and local directories: complete, exact, or a SourceError."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.config import Config

from scripts.helpers.errors import (
    AccessRefusedError,
    CredentialsError,
    SourceError,
    SourceUnavailableError,
    WatermarkError,
)
from scripts.helpers.listing.listing import Lister, Listing, ListingOptions, Location, split_into_intervals
from scripts.helpers.listing.objects import LISTED
from tests.support.landing import put_objects

STRANGE_KEYS = [
    "a b.csv",
    "100%25.csv",
    "50%.csv",
    "x+y.csv",
    "[z].csv",
    "s*.csv",
    "{k,l}.csv",
    "q?.csv",
    "h#1.csv",
    "🎉.csv",
    "\ue000.csv",
    "é.csv",
    "comma,x.csv",
    "12:30.csv",
    "back\\slash.csv",
    "year=2013/m.csv",
]
NEWLINE_KEYS = ["new\nline.csv", "return\r.csv", "tab\t.csv"]


def rows(source: str, client: Any = None, **options: Any) -> list[dict[str, Any]]:
    """Return the listed rows in the order of their intervals; within an interval they stay as they were listed."""
    intervals = sorted(Listing(Location.parse(source), client, **options), key=lambda interval: interval.after or "")
    return [row for interval in intervals for row in interval.rows.to_pylist()]


def listed(source: str, client: Any = None, **options: Any) -> list[str]:
    return [row["key"] for row in rows(source, client, **options)]


def refuse_page(client: Any, number: int, code: str, status: int) -> None:
    """Make S3 refuse one page of every listing."""
    pages = iter(range(1, 1_000))

    def answer(**_: Any) -> Any:
        if next(pages) != number:
            return None
        response = type("Response", (), {"status_code": status})()
        return response, {"Error": {"Code": code, "Message": "refused"}, "ResponseMetadata": {"HTTPStatusCode": status}}

    client.meta.events.register("before-call.s3.ListObjectsV2", answer)


# --- keys -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", STRANGE_KEYS)
def test_listing_gives_key_as_it_is_when_key_is_strange(s3: Any, bucket: str, key: str) -> None:
    put_objects(s3, bucket, f"data/{key}")

    found = listed(f"s3://{bucket}/data/", s3)

    assert found == [key]


@pytest.mark.parametrize("key", NEWLINE_KEYS)
def test_listing_gives_key_as_it_is_when_key_has_control_characters(in_process: Any, key: str) -> None:
    client, bucket = in_process
    put_objects(client, bucket, f"data/{key}")

    found = listed(f"s3://{bucket}/data/", client)

    assert found == [key]


@pytest.mark.parametrize("name", [key for key in STRANGE_KEYS + NEWLINE_KEYS if "/" not in key])
def test_listing_gives_file_name_as_it_is_when_source_is_a_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")

    found = listed(str(tmp_path))

    assert found == [name]


@pytest.mark.parametrize("prefix", ["a b/", "100%25/", "[x]/", "year=2013/", "🎉/"])
def test_listing_gives_keys_below_prefix_when_prefix_is_strange(s3: Any, bucket: str, prefix: str) -> None:
    put_objects(s3, bucket, f"{prefix}one.csv", "other/two.csv")

    found = listed(f"s3://{bucket}/{prefix}", s3)

    assert found == ["one.csv"]


# --- completeness -----------------------------------------------------------------------------------


def test_listing_gives_every_key_once_when_it_takes_several_pages(in_process: Any) -> None:
    client, bucket = in_process
    keys = [f"{number:04}" for number in range(1_005)]
    put_objects(client, bucket, *(f"data/{key}" for key in keys))

    found = listed(f"s3://{bucket}/data/", client)

    assert found == keys
    assert client.list_objects_v2(Bucket=bucket, Prefix="data/")["IsTruncated"]


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("AccessDenied", 403, AccessRefusedError),
        ("SlowDown", 503, SourceUnavailableError),
        ("InternalError", 500, SourceUnavailableError),
        ("InvalidRequest", 400, SourceError),
    ],
)
def test_listing_raises_an_error_when_second_page_is_refused(
    own_s3: Any, bucket: str, code: str, status: int, kind: type[WatermarkError]
) -> None:
    put_objects(own_s3, bucket, *(f"data/{number}" for number in range(5)))
    own_s3.meta.events.register("before-parameter-build.s3.ListObjectsV2", lambda params, **_: params.update(MaxKeys=3))
    refuse_page(own_s3, 2, code, status)

    with pytest.raises(kind) as caught:
        listed(f"s3://{bucket}/data/", own_s3)

    assert type(caught.value) is kind
    assert repr(f"s3://{bucket}/data/") in str(caught.value)


def test_listing_leaves_neighbours_out_when_their_prefix_starts_alike(s3: Any, bucket: str) -> None:
    put_objects(s3, bucket, "data/one.csv", "database/two.csv", "data.csv", "data")

    found = listed(f"s3a://{bucket}/data/", s3)

    assert found == ["one.csv"]


def test_listing_gives_whole_bucket_when_there_is_no_prefix(s3: Any, bucket: str) -> None:
    put_objects(s3, bucket, "one.csv", "a/two.csv")

    found = [listed(source, s3) for source in (f"s3://{bucket}", f"s3://{bucket}/")]

    assert found == [["a/two.csv", "one.csv"]] * 2


def test_listing_is_empty_when_nothing_has_the_prefix(s3: Any, bucket: str) -> None:
    put_objects(s3, bucket, "other/one.csv")

    found = listed(f"s3://{bucket}/data/", s3)

    assert found == []


def test_identity_has_size_and_etag_of_s3_when_object_is_listed(s3: Any, bucket: str) -> None:
    etag = s3.put_object(Bucket=bucket, Key="data/one.csv", Body=b"12345")["ETag"]

    (found,) = rows(f"s3://{bucket}/data/", s3)

    shown = {name: found[name] for name in ("key", "etag", "size", "version_id", "storage_class")}
    assert shown == {
        "key": "one.csv", "etag": etag.strip('"'), "size": 5, "version_id": None, "storage_class": "STANDARD"
    }  # fmt: skip


def test_listing_makes_its_own_client_when_none_is_given(
    endpoint: str, s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_objects(s3, bucket, "data/one.csv")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)

    found = listed(f"s3://{bucket}/data/")

    assert found == ["one.csv"]


def test_listing_gives_only_some_folders_when_these_are_named(s3: Any, bucket: str) -> None:
    put_objects(s3, bucket, "data/a/1", "data/b/2", "data/b0/3", "data/c/4", "data/d/5")

    found = listed(f"s3://{bucket}/data/", s3, folders=["b/", "c/", "missing/"])

    assert sorted(found) == ["b/2", "c/4"]


def test_listing_began_by_the_clock_of_the_server_when_it_is_a_bucket(own_s3: Any, bucket: str) -> None:
    def answer(response_dict: dict[str, Any], **_: Any) -> None:
        response_dict["headers"]["date"] = "Thu, 16 Mar 2023 15:45:00 GMT"

    own_s3.meta.events.register("before-parse.s3.ListObjectsV2", answer)

    listing = Listing(Location.parse(f"s3://{bucket}/data/"), own_s3)

    assert listing.started == datetime(2023, 3, 16, 15, 45, tzinfo=timezone.utc)


# --- local directories --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["{}", "{}/", "file://{}", "file://{}/"])
def test_directory_is_listed_with_its_folders_when_source_is_written_in_any_form(tmp_path: Path, form: str) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "two.csv").write_text("22")
    (tmp_path / "one.csv").write_text("1")

    found = {row["key"]: row["size"] for row in rows(form.format(tmp_path))}

    assert found == {"a/b/two.csv": 2, "one.csv": 1}


def test_relative_directory_is_the_one_below_the_current_when_source_has_no_slash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "landing").mkdir()
    monkeypatch.chdir(tmp_path)

    location = Location.parse("landing")

    assert location.uri("one.csv") == f"file://{tmp_path}/landing/one.csv"


def test_identity_changes_when_local_file_is_replaced_by_one_of_equal_size(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("1")
    (before,) = rows(str(tmp_path))

    (tmp_path / "new").write_text("2")
    os.replace(tmp_path / "new", tmp_path / "one.csv")

    (after,) = rows(str(tmp_path))
    assert (after["key"], after["size"]) == (before["key"], before["size"])
    assert after["etag"] != before["etag"]


@pytest.mark.parametrize(
    ("name", "reason"), [("missing", "No such file or directory"), ("file.csv", "Not a directory")]
)
def test_listing_raises_source_error_when_directory_cannot_be_listed(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file.csv").write_text("x")

    with pytest.raises(SourceError) as caught:
        listed(str(tmp_path / name))

    assert f"file://{tmp_path}/{name}/" in str(caught.value)
    assert f"{reason}. Check the path and its rights." in str(caught.value)


@pytest.mark.parametrize("count", [0, 1, 50_000, 100_001])
def test_batches_tile_the_keys_when_rows_are_cut(count: int) -> None:
    keys = [f"{number:06d}" for number in range(count)]
    table = pa.table({"key": keys}).cast(pa.schema([LISTED.field("key")]))
    for field in list(LISTED)[1:]:
        table = table.append_column(field, pa.nulls(count, field.type))

    found = list(split_into_intervals(table, "0", "9"))

    assert [key for interval in found for key in interval.rows.column("key").to_pylist()] == keys
    assert (found[0].after, found[-1].until) == ("0", "9")
    assert all(one.until == other.after for one, other in pairwise(found))
    assert max(interval.rows.num_rows for interval in found) <= 50_000


def test_folder_that_does_not_exist_is_empty_when_a_directory_is_listed_in_part(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1").write_text("x")
    (tmp_path / "2").write_text("x")

    found = listed(str(tmp_path), folders=["a/", "missing/"])

    assert found == ["a/1"]


def test_keys_of_a_range_are_listed_when_a_bucket_is_asked_for_a_part_of_it(s3: Any, bucket: str) -> None:
    put_objects(s3, bucket, *(f"d/{key}" for key in "abcd"))
    lister = Lister(Location.parse(f"s3://{bucket}/d/"), s3, ListingOptions())

    intervals = list(lister.between("a", "c"))

    assert [key for interval in intervals for key in interval.rows.column("key").to_pylist()] == ["b", "c"]
    assert (intervals[0].after, intervals[-1].until) == ("a", "c")


def test_link_to_nothing_is_left_out_when_a_directory_is_listed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "link").symlink_to("deleted")
    (tmp_path / "z").write_text("x")

    assert listed(str(tmp_path)) == ["a", "z"]


def test_reason_is_told_when_a_file_of_a_directory_cannot_be_looked_at(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("n" * 256)

    with pytest.raises(SourceError) as caught:
        listed(str(tmp_path))

    assert str(caught.value) == (
        f"Source 'file://{tmp_path}/': it cannot be listed: File name too long. Check the path and its rights."
    )


# --- refused sources ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("s3://bucket/data", "Write s3://bucket/data/."),
        ("s3a://bucket/a/b", "Write s3a://bucket/a/b/."),
        ("hdfs://bucket/data/", "or a local directory."),
        ("gs://bucket/data", "Write gs://bucket/data/."),
        ("S3://bucket/data/", "the scheme 'S3' is not known. Use s3://"),
        ("s3:///data/", "Write s3://bucket/prefix/."),
        ("s3://", "Write s3://bucket/prefix/."),
        ("", "Name a directory, or . for the current one."),
        ("file://", "Name a directory, or . for the current one."),
    ],
)
def test_parse_raises_source_error_with_remedy_when_source_is_malformed(source: str, remedy: str) -> None:
    with pytest.raises(SourceError) as caught:
        Location.parse(source)

    assert caught.value.source == source
    assert f"Source {source!r}: " in str(caught.value)
    assert remedy in str(caught.value)


def test_listing_raises_source_error_when_bucket_is_missing(s3: Any) -> None:
    with pytest.raises(SourceError) as caught:
        listed("s3://no-such-bucket/data/", s3)

    assert caught.value.source == "s3://no-such-bucket/data/"
    assert "(NoSuchBucket)" in str(caught.value)


def test_listing_is_to_be_tried_again_when_endpoint_is_unreachable() -> None:
    once = Config(connect_timeout=1, retries={"total_max_attempts": 1})
    client = boto3.client("s3", endpoint_url="http://127.0.0.1:9", config=once)

    with pytest.raises(SourceUnavailableError) as caught:
        listed("s3://bucket/data/", client)

    assert (caught.value.source, caught.value.cause) == ("s3://bucket/data/", "EndpointConnectionError")


def test_credentials_are_named_when_there_are_none(bucket: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    client = boto3.Session().client("s3", endpoint_url=endpoint)

    with pytest.raises(CredentialsError, match=r"credentials cannot be used \(NoCredentialsError\)\. Renew them"):
        listed(f"s3://{bucket}/data/", client)


def test_two_spellings_have_one_name_when_they_mean_the_same_objects() -> None:
    names = {Location.parse(f"{scheme}://bucket/data/").name for scheme in ("s3", "s3a")}

    assert names == {"s3://bucket/data/"}
