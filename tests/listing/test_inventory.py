"""Reports of S3 Inventory as listings: the same objects, or a SourceError."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.config import Config
from botocore.exceptions import ReadTimeoutError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from scripts.helpers.errors import SourceError, SourceUnavailableError
from scripts.helpers.listing import inventory
from scripts.helpers.listing.inventory import S3Inventory
from scripts.helpers.listing.listing import Location
from scripts.helpers.listing.objects import LISTED
from tests.support.inventories import CHANGED, PLAIN, VERSIONED, Reports, data_file, inventory_row
from tests.support.long import cases

FORMATS = ["CSV", "Parquet"]
LANDING = Location.parse("s3://landing/")
STRANGE_KEYS = [
    "a b.csv",
    "x+y.csv",
    "100%25.csv",
    "50%.csv",
    "🎉.csv",
    "\ue000.csv",
    "new\nline.csv",
    'q"u.csv',
    "c,d.csv",
]

formats = pytest.mark.parametrize("file_format", FORMATS)
FIELDS = [("size", "Size"), ("e_tag", "ETag"), ("last_modified_date", "LastModifiedDate")]
"""Columns that no row may lack, by their names in Parquet and in CSV."""


@pytest.fixture
def reports(s3: Any, bucket: str) -> Reports:
    return Reports(s3, bucket)


@pytest.fixture
def keys_of(s3: Any) -> Any:
    """Return a function that reads the keys of an inventory."""

    def read(uri: str, location: Location = LANDING) -> list[str]:
        intervals = list(S3Inventory(uri, s3_client=s3).list_objects(location))
        return [key for interval in intervals for key in interval.rows.column("key").to_pylist()]

    return read


@formats
def test_object_has_all_its_fields_when_listed(s3: Any, reports: Reports, file_format: str) -> None:
    uri = reports.write(
        file_format, [inventory_row("in/a.csv", version_id="v1", storage_class="GLACIER")], columns=VERSIONED
    )

    (interval,) = S3Inventory(uri, s3_client=s3).list_objects(Location.parse("s3://landing/in/"))

    assert interval.rows.schema == LISTED
    assert interval.rows.to_pylist() == [
        {
            "key": "a.csv",
            "etag": "0123456789abcdef0123456789abcdef",
            "version_id": "v1",
            "size": 5,
            "modified": CHANGED,
            "storage_class": "GLACIER",
        }
    ]


@formats
def test_fields_are_null_when_the_report_has_no_such_columns(s3: Any, reports: Reports, file_format: str) -> None:
    uri = reports.write(file_format, [inventory_row("a.csv")], columns=PLAIN[:-1])

    (interval,) = S3Inventory(uri, s3_client=s3).list_objects(LANDING)

    assert interval.rows.select(["version_id", "storage_class"]).to_pylist() == [
        {"version_id": None, "storage_class": None}
    ]


@formats
def test_keys_are_raw_when_strange(reports: Reports, keys_of: Any, file_format: str) -> None:
    uri = reports.write(file_format, [inventory_row(f"in/{key}") for key in STRANGE_KEYS])

    assert keys_of(uri, Location.parse("s3://landing/in/")) == sorted(STRANGE_KEYS, key=str.encode)


@formats
def test_key_below_a_strange_prefix_is_found_when_listed(reports: Reports, keys_of: Any, file_format: str) -> None:
    uri = reports.write(file_format, [inventory_row("🎉 é+/a.csv"), inventory_row("🎉 é/a.csv")])

    assert keys_of(uri, Location.parse("s3://landing/🎉 é+/")) == ["a.csv"]


@formats
def test_only_objects_below_the_prefix_are_listed_when_others_are_there(
    reports: Reports, keys_of: Any, file_format: str
) -> None:
    keys = ["data/a", "data/b/c", "database/a", "dat", "x"]
    uri = reports.write(file_format, [inventory_row(key) for key in keys])

    assert keys_of(uri, Location.parse("s3://landing/data/")) == ["a", "b/c"]


@formats
def test_only_latest_versions_are_listed_when_the_report_has_all(
    reports: Reports, keys_of: Any, file_format: str
) -> None:
    rows = [
        inventory_row("kept", version_id="2"),
        inventory_row("kept", version_id="1", is_latest=False),
        inventory_row("deleted", version_id="1", is_latest=False),
        inventory_row("deleted", version_id="2", is_delete_marker=True, size=None, e_tag=None),
    ]
    uri = reports.write(file_format, rows, columns=VERSIONED)

    assert keys_of(uri) == ["kept"]


@formats
def test_object_is_current_when_its_row_does_not_say_so(reports: Reports, keys_of: Any, file_format: str) -> None:
    rows = [inventory_row("a", is_latest=None, is_delete_marker=None), inventory_row("b")]
    uri = reports.write(file_format, rows, columns=VERSIONED)

    assert keys_of(uri) == ["a", "b"]


@formats
def test_objects_of_all_files_come_in_byte_order_when_files_are_not_sorted(
    reports: Reports, keys_of: Any, file_format: str
) -> None:
    uri = reports.write(
        file_format, *([inventory_row(key) for key in part] for part in (["z", "🎉"], ["\ue000"], ["a"]))
    )

    assert keys_of(uri) == ["a", "z", "\ue000", "🎉"]


def test_columns_may_come_in_any_order_when_csv(reports: Reports, keys_of: Any) -> None:
    uri = reports.write("CSV", [inventory_row("a")], columns=PLAIN[::-1])

    assert keys_of(uri) == ["a"]


def test_unknown_columns_are_passed_over_when_csv(reports: Reports, keys_of: Any) -> None:
    uri = reports.write(
        "CSV", [inventory_row("a")], fileSchema="Bucket, Key, Size, LastModifiedDate, ETag, ChecksumAlgorithm"
    )

    assert keys_of(uri) == ["a"]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_strings_are_read_when_parquet_types_them_otherwise(reports: Reports, keys_of: Any, kind: pa.DataType) -> None:
    table = parquet.read_table(io.BytesIO(data_file("Parquet", [inventory_row("é")])))
    file = io.BytesIO()
    parquet.write_table(table.set_column(1, "key", table.column("key").cast(kind)), file)
    reports.put("data", file.getvalue())
    uri = reports.write("Parquet", files=[{"key": "data", "MD5checksum": hashlib.md5(file.getvalue()).hexdigest()}])

    assert keys_of(uri) == ["é"]


@formats
def test_listing_is_one_empty_interval_when_the_bucket_was_empty(s3: Any, reports: Reports, file_format: str) -> None:
    uri = reports.write(file_format, [])

    (interval,) = S3Inventory(uri, s3_client=s3).list_objects(LANDING)

    assert (interval.after, interval.until, interval.rows.num_rows) == (None, None, 0)
    assert interval.rows.schema == LISTED


def test_listing_is_empty_when_the_report_has_no_files(reports: Reports, keys_of: Any) -> None:
    assert keys_of(reports.write("Parquet")) == []


def test_created_is_the_start_of_the_scan_when_asked(s3: Any, reports: Reports) -> None:
    uri = reports.write("CSV", [])

    assert S3Inventory(uri, s3_client=s3).created == datetime(2026, 3, 16, 1, tzinfo=timezone.utc)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=cases(8, long=100), deadline=None)
@given(
    keys=st.sets(
        st.text(
            st.characters(codec="utf-8", exclude_characters="\x00") | st.sampled_from("+% \n\"',/🎉"),
            min_size=1,
            max_size=12,
        ),
        max_size=12,
    ),
    file_format=st.sampled_from(FORMATS),
)
def test_keys_are_those_of_the_bucket_when_random(s3: Any, bucket: str, keys: set[str], file_format: str) -> None:
    reports = Reports(s3, bucket)
    uri = reports.write(file_format, [inventory_row(key) for key in keys])

    intervals = list(S3Inventory(uri, s3_client=s3).list_objects(LANDING))

    found = [key for interval in intervals for key in interval.rows.column("key").to_pylist()]
    assert found == sorted(keys, key=str.encode)


# --- which report ------------------------------------------------------------------------------------


def test_newest_complete_report_is_taken_when_a_folder_is_given(reports: Reports, keys_of: Any) -> None:
    reports.write("CSV", [inventory_row("old")], date="2026-03-14T01-00Z")
    reports.write("CSV", [inventory_row("new")], date="2026-03-15T01-00Z")
    reports.put(f"{reports.folder}2026-03-16T01-00Z/manifest.json", "{}")
    reports.put(f"{reports.folder}2026-03-17T01-00Z/manifest.checksum", "0")
    reports.put(f"{reports.folder}hive/dt=2026-03-18-01-00/symlink.txt", "")

    assert keys_of(reports.uri) == ["new"]


def test_report_stays_the_same_when_a_newer_one_appears(s3: Any, reports: Reports) -> None:
    reports.write("CSV", [inventory_row("old")], date="2026-03-14T01-00Z", creationTimestamp="0")
    inventory = S3Inventory(reports.uri, s3_client=s3)
    first = inventory.created

    reports.write("CSV", [inventory_row("new")], date="2026-03-15T01-00Z")

    assert inventory.created == first
    assert [interval.rows.column("key").to_pylist() for interval in inventory.list_objects(LANDING)] == [["old"]]


def test_error_names_what_was_found_when_no_report_is_complete(s3: Any, reports: Reports) -> None:
    reports.put(f"{reports.folder}2026-03-16T01-00Z/manifest.json", "{}")
    reports.put(f"{reports.folder}data/x", "")
    inventory = S3Inventory(reports.uri, s3_client=s3)

    with pytest.raises(SourceError, match=r"no complete report.*1 dated folders.*2026-03-16T01-00Z/, data/.*48 hours"):
        list(inventory.list_objects(LANDING))


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "manifest.json",
        "s3://",
        "s3:///manifest.json",
        "s3://bucket",
        "s3://b/x.json",
        "https://b/manifest.json",
        "s3://b/notmanifest.json",
    ],
)
def test_uri_is_refused_when_it_names_no_inventory(uri: str) -> None:
    with pytest.raises(SourceError, match=r"names no inventory\. Write s3://bucket/…/manifest\.json"):
        S3Inventory(uri)


# --- what is refused ------------------------------------------------------------------------------------


def refusal(s3: Any, uri: str, location: Location = LANDING) -> str:
    """Return the text of the SourceError that a listing raises; it must not yield anything before."""
    seen: list[Any] = []
    with pytest.raises(SourceError) as caught:
        seen.extend(S3Inventory(uri, s3_client=s3).list_objects(location))
    assert seen == []
    return str(caught.value)


@pytest.mark.parametrize("source", ["s3://other/in/", "/landing/"])
def test_report_is_refused_when_it_is_of_another_bucket(s3: Any, reports: Reports, source: str) -> None:
    uri = reports.write("CSV", [inventory_row("a")])

    text = refusal(s3, uri, Location.parse(source))

    assert "inventory of bucket 'landing'" in text
    assert source in text


@formats
@pytest.mark.parametrize(("column", "shown"), [("key", "Key"), *FIELDS])
def test_report_is_refused_when_a_column_is_missing(
    s3: Any, reports: Reports, column: str, shown: str, file_format: str
) -> None:
    uri = reports.write(file_format, [inventory_row("a")], columns=[name for name in PLAIN if name != column])

    text = refusal(s3, uri)

    assert f"the inventory has no {shown}. Add what is missing to the fields" in text


def test_error_names_all_columns_when_several_are_missing(s3: Any, reports: Reports) -> None:
    text = refusal(s3, reports.write("CSV", [inventory_row("a")], columns=["bucket", "key"]))

    assert "no Size, ETag, LastModifiedDate." in text


def test_report_is_refused_when_its_versions_cannot_be_told_apart(s3: Any, reports: Reports) -> None:
    text = refusal(s3, reports.write("CSV", [inventory_row("a")], columns=(*PLAIN, "version_id")))

    assert "no IsLatest." in text


@formats
@pytest.mark.parametrize(("column", "shown"), FIELDS)
def test_report_is_refused_when_a_row_lacks_a_value(
    s3: Any, reports: Reports, column: str, shown: str, file_format: str
) -> None:
    uri = reports.write(file_format, [inventory_row("a"), inventory_row("b", **{column: None})])

    text = refusal(s3, uri)

    assert f"the row of key 'b' has no {shown}. Take another report." in text


@formats
def test_report_is_refused_when_a_row_has_no_key(s3: Any, reports: Reports, file_format: str) -> None:
    text = refusal(s3, reports.write(file_format, [inventory_row(None)]))

    assert "the row of key None has no Key" in text


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("version", "2030-01-01", "its version is '2030-01-01', and 2016-11-30 is known. Upgrade"),
        ("creationTimestamp", "soon", "it is not the manifest of an inventory"),
        ("creationTimestamp", "9" * 30, "it is not the manifest of an inventory"),
        ("files", 5, "it is not the manifest of an inventory"),
        ("files", [{"key": "a"}], "the manifest has no 'MD5checksum'"),
    ],
)
def test_report_is_refused_when_its_manifest_is_unknown(
    s3: Any, reports: Reports, field: str, value: Any, told: str
) -> None:
    uri = reports.write("CSV", [inventory_row("a")], **{field: value})

    text = refusal(s3, uri)

    assert text.startswith(f"Source {uri!r}: {told}")


@pytest.mark.parametrize("file_format", ["ORC", "JSON"])
def test_report_is_refused_before_a_file_of_it_is_read_when_its_format_is_another(
    own_client: Any, reports: Reports, file_format: str
) -> None:
    uri = reports.write("CSV", [inventory_row("a")], fileFormat=file_format)
    asked: list[str] = []
    own_client.meta.events.register("provide-client-params.s3.*", lambda params, **_: asked.append(params["Key"]))

    text = refusal(own_client, uri)

    assert text == (
        f"Source {uri!r}: its fileFormat is {file_format!r}, and CSV and Parquet are supported. Set the inventory's "
        "configuration to one of them, and wait for the next report."
    )
    assert [key.rpartition("/")[2] for key in asked] == ["manifest.json", "manifest.checksum"]


@pytest.mark.parametrize("field", ["sourceBucket", "version", "creationTimestamp", "fileFormat", "fileSchema", "files"])
def test_report_is_refused_when_its_manifest_lacks_a_field(s3: Any, reports: Reports, field: str) -> None:
    text = refusal(s3, reports.write("CSV", [inventory_row("a")], without=field))

    assert f"the manifest has no {field!r}. Take another report." in text


@pytest.mark.parametrize("body", ["", "[]", "nonsense", "5", "[" * 100_000])
def test_report_is_refused_when_its_manifest_is_something_else(s3: Any, reports: Reports, body: str) -> None:
    text = refusal(s3, reports.write_manifest(body))

    assert "it is not the manifest of an inventory" in text


def test_report_is_refused_when_its_manifest_was_altered(s3: Any, reports: Reports) -> None:
    uri = reports.write("CSV", [inventory_row("a")])
    reports.put(f"{reports.folder}2026-03-16T01-00Z/manifest.json", json.dumps({"files": []}))

    text = refusal(s3, uri)

    assert f"Source {uri!r}: its MD5 is not the one in manifest.checksum. Take another report." in text


@pytest.mark.parametrize("name", ["manifest.checksum", "manifest.json"])
def test_report_is_refused_when_half_of_it_is_missing(s3: Any, reports: Reports, name: str) -> None:
    uri = reports.write("CSV", [inventory_row("a")])
    s3.delete_object(Bucket=reports.bucket, Key=f"{reports.folder}2026-03-16T01-00Z/{name}")

    text = refusal(s3, uri)

    assert f"{name}' (NoSuchKey). Check the name" in text


def test_nothing_is_listed_when_the_last_file_was_altered(s3: Any, reports: Reports) -> None:
    uri = reports.write("CSV", [inventory_row("a")], [inventory_row("b")])
    reports.put(f"{reports.folder}data/2026-03-16T01-00Z-1", data_file("CSV", [inventory_row("c")]))

    text = refusal(s3, uri)

    assert "data/2026-03-16T01-00Z-1' is not the one in the manifest. Take another report." in text


def test_nothing_is_listed_when_a_file_is_larger_than_the_limit(
    s3: Any, reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = reports.write("CSV", [inventory_row("a")])
    monkeypatch.setattr(inventory, "MAX_FILE_BYTES", 5)

    text = refusal(s3, uri)

    assert text == (
        f"Source 's3://{reports.bucket}/{reports.folder}data/2026-03-16T01-00Z-0': it is larger than 5 bytes, the "
        "limit for a file of its kind. Look who wrote it, or take another report."
    )


def test_nothing_is_listed_when_a_file_is_missing(s3: Any, reports: Reports) -> None:
    uri = reports.write("CSV", [inventory_row("a")], [inventory_row("b")])
    s3.delete_object(Bucket=reports.bucket, Key=f"{reports.folder}data/2026-03-16T01-00Z-1")

    assert "data/2026-03-16T01-00Z-1' (NoSuchKey)" in refusal(s3, uri)


@pytest.mark.parametrize(
    ("file_format", "body"),
    [
        ("CSV", b"no gzip"),
        ("CSV", gzip.compress(b'"landing","a"\n')),
        ("CSV", gzip.compress(b'"landing","a","five","2026-03-16T01:00:00.000Z","e","STANDARD"\n')),
        ("CSV", gzip.compress(b'"landing","%FF","5","2026-03-16T01:00:00.000Z","e","STANDARD"\n')),
        ("CSV", gzip.compress(b'"landing","a","5","today","e","STANDARD"\n')),
        ("CSV", data_file("CSV", [inventory_row("a" * 50)])[:-12]),
        ("Parquet", b"no Parquet at all"),
        ("Parquet", b""),
    ],
    ids=["no-gzip", "few-columns", "size", "key", "time", "cut-off", "no-parquet", "empty"],
)
def test_report_is_refused_when_a_file_is_not_of_its_format(
    s3: Any, reports: Reports, file_format: str, body: bytes
) -> None:
    reports.put("data", body)
    uri = reports.write(file_format, files=[{"key": "data", "MD5checksum": hashlib.md5(body).hexdigest()}])

    text = refusal(s3, uri)

    assert f"its file 'data' cannot be read as {file_format}: " in text
    assert text.endswith("Take another report.")


def test_report_is_refused_when_a_size_in_parquet_is_no_whole_number(s3: Any, reports: Reports) -> None:
    table = parquet.read_table(io.BytesIO(data_file("Parquet", [inventory_row("a")])))
    file = io.BytesIO()
    parquet.write_table(table.set_column(2, "size", pa.array([5.5])), file)
    reports.put("data", file.getvalue())
    uri = reports.write("Parquet", files=[{"key": "data", "MD5checksum": hashlib.md5(file.getvalue()).hexdigest()}])

    text = refusal(s3, uri)

    assert "its file 'data' cannot be read as Parquet: " in text


# --- S3 at fault -------------------------------------------------------------------------------------------


@pytest.fixture
def own_client(endpoint: str) -> Any:
    """Return a client for one test, without retries."""
    return boto3.client("s3", endpoint_url=endpoint, config=Config(retries={"total_max_attempts": 1}))


class Broken:
    """A body that breaks off after it has sent more bytes than the file has."""

    def iter_chunks(self, size: int) -> Iterator[bytes]:
        yield b"half" * 10_000
        raise ReadTimeoutError(endpoint_url="s3", error="slow")


@pytest.mark.parametrize(("breaks", "listed"), [(2, True), (3, False)])
def test_file_is_fetched_again_when_its_transfer_breaks(
    own_client: Any, reports: Reports, breaks: int, listed: bool
) -> None:
    uri = reports.write("Parquet", [inventory_row("a")])
    left = [breaks]

    def break_off(parsed: dict[str, Any], **_: Any) -> None:
        if parsed.get("ContentLength", 0) > 700 and left[0]:
            left[0] -= 1
            parsed["Body"] = Broken()

    inventory = S3Inventory(uri, s3_client=own_client)
    assert inventory.created
    own_client.meta.events.register("after-call.s3.GetObject", break_off)

    if listed:
        (interval,) = inventory.list_objects(LANDING)
        assert interval.rows.num_rows == 1
    else:
        with pytest.raises(
            SourceUnavailableError, match=r"closed the connection \(ReadTimeoutError\)\. Run again later"
        ):
            list(inventory.list_objects(LANDING))


def test_error_names_the_right_when_s3_refuses_the_folder(s3: Any, reports: Reports) -> None:
    text = refusal(s3, "s3://no-such-bucket-here/reports/")

    assert "S3 refused 's3://no-such-bucket-here/reports/' (NoSuchBucket)" in text
    assert "s3:ListBucket" in text


def test_error_says_so_when_the_disk_is_full(s3: Any, reports: Reports, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = reports.write("CSV", [inventory_row("a")])

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("scripts.helpers.listing.inventory.TemporaryDirectory", full)

    assert "could not be sorted in " in refusal(s3, uri)


def test_data_files_come_from_the_bucket_of_the_report_when_the_manifest_names_another(
    s3: Any, reports: Reports, keys_of: Any
) -> None:
    uri = reports.write("CSV", [inventory_row("in/a.csv")])
    folder = uri.removeprefix(f"s3://{reports.bucket}/").removesuffix("manifest.json")
    manifest = json.loads(s3.get_object(Bucket=reports.bucket, Key=f"{folder}manifest.json")["Body"].read())
    body = json.dumps({**manifest, "destinationBucket": "arn:aws:s3:::payroll"}).encode()
    s3.put_object(Bucket=reports.bucket, Key=f"{folder}manifest.json", Body=body)
    s3.put_object(Bucket=reports.bucket, Key=f"{folder}manifest.checksum", Body=hashlib.md5(body).hexdigest().encode())

    assert keys_of(uri) == ["in/a.csv"]


def test_file_is_fetched_once_when_the_manifest_names_it_many_times(reports: Reports, own_client: Any) -> None:
    rows = [inventory_row("in/a.csv")]
    key, checksum = f"{reports.folder}data/all", hashlib.md5(data_file("CSV", rows)).hexdigest()
    reports.put(key, data_file("CSV", rows))
    uri = reports.write("CSV", files=[{"key": key, "MD5checksum": checksum}] * 500)
    fetched: list[str] = []
    own_client.meta.events.register(
        "before-parameter-build.s3.GetObject", lambda params, **_: fetched.append(params["Key"])
    )

    found = pa.concat_tables(
        pa.Table.from_batches([one.rows]) for one in S3Inventory(uri, s3_client=own_client).list_objects(LANDING)
    )

    assert found.column("key").to_pylist() == ["in/a.csv"]
    assert fetched.count(key) == 1


# --- sorted by DuckDB ---------------------------------------------------------------------------

keys = st.text(st.sampled_from("ab/é\ue000🎉"), min_size=1, max_size=4)
files = st.lists(st.lists(st.tuples(keys, st.integers(0, 3)), max_size=8), min_size=1, max_size=4)


@given(files=files, interval_rows=st.integers(1, 10))
@settings(max_examples=cases(40, long=1_000), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_intervals_touch_and_hold_the_newest_of_each_key_when_a_report_has_several_files(
    s3: Any, reports: Reports, files: list[list[tuple[str, int]]], interval_rows: int
) -> None:
    newest: dict[str, int] = {}
    for key, age in (row for rows in files for row in rows):
        newest[key] = max(age, newest.get(key, 0))
    rows = [
        [
            inventory_row(key, e_tag=f"e{age}", last_modified_date=CHANGED + timedelta(seconds=age))
            for key, age in of_file
        ]
        for of_file in files
    ]
    uri = reports.write("Parquet", *rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scripts.helpers.listing.inventory_files.INTERVAL_ROWS", interval_rows)
        intervals = list(S3Inventory(uri, s3_client=s3).list_objects(LANDING))

    found = [(row["key"], row["etag"]) for interval in intervals for row in interval.rows.to_pylist()]
    assert found == [(key, f"e{newest[key]}") for key in sorted(newest, key=str.encode)]
    assert (intervals[0].after, intervals[-1].until) == (None, None)
    assert all(one.until == other.after is not None for one, other in pairwise(intervals))
    for interval in intervals:
        assert interval.rows.schema == LISTED
        for key in interval.rows.column("key").to_pylist():
            assert interval.after is None or key.encode() > interval.after.encode()
            assert interval.until is None or key.encode() <= interval.until.encode()


def test_interval_holds_some_rows_only_and_nothing_stays_on_disk_when_there_are_many(
    s3: Any, reports: Reports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("scripts.helpers.listing.inventory_files.INTERVAL_ROWS", 4_096)
    uri = reports.write("Parquet", [inventory_row(f"{number * 7919 % 20_011:05}") for number in range(20_000)])

    sizes, during = [], set()
    for interval in S3Inventory(uri, s3_client=s3).list_objects(LANDING):
        sizes.append(interval.rows.num_rows)
        during |= set(tmp_path.iterdir())

    assert (sum(sizes), max(sizes) <= 4_097, len(sizes) >= 4) == (20_000, True, True)
    assert during
    assert list(tmp_path.iterdir()) == []


def test_error_says_what_to_install_when_duckdb_is_not(
    s3: Any, reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = reports.write("CSV", [inventory_row("a")])
    monkeypatch.setitem(sys.modules, "duckdb", None)

    assert "it needs duckdb. Install it: pip install duckdb." in refusal(s3, uri)
