"""Hostile contents of a bucket or queue: only the hostile item is refused, by name and limit, to save memory."""

from __future__ import annotations

import io
import json
import resource
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from scripts.helpers.errors import SourceError
from scripts.helpers.listing import bucket_pages, inventory
from scripts.helpers.listing.bucket_pages import take_objects
from scripts.helpers.listing.event_messages import MAX_BODY, parse_message
from scripts.helpers.listing.events import S3EventQueue
from scripts.helpers.listing.inventory_files import MAX_TEXT, Report
from scripts.helpers.listing.listing import Listing, Location
from scripts.helpers.listing.objects import Interval
from tests.support.event_bodies import bridged, notification, record, through_sns
from tests.support.long import cases

LATE = "9999-12-31T24:00:00Z"
LOCATION = Location.parse("s3://landing/")


def spoilt_record(**fields: Any) -> dict[str, Any]:
    """Return the record of a good message with some fields replaced: of the record or of its object."""
    made = record("a.csv")
    for name, value in fields.items():
        (made if name in made else made["s3"]["object"])[name] = value
    return made


HOSTILE = {
    "nested": "[" * 200_000,
    "nested-in-sns": through_sns('{"a":' * 100_000),
    "long": " " * (MAX_BODY + 1),
    "long-key": notification(spoilt_record(key="k" * 1_025)),
    "half-a-pair": bridged("\ud800"),
    "digits": '{"Records": [' + "9" * 5_000 + "]}",
    "no-records": '{"Records": 1}',
}


def test_message_is_taken_when_it_is_as_long_as_sqs_allows() -> None:
    body = notification(record("a.csv"))

    (found,) = parse_message(body + " " * (1024 * 1024 - len(body)))

    assert found.key == "a.csv"


class Queue:
    """A client of SQS that delivers each message once."""

    def __init__(self, *bodies: str) -> None:
        self._bodies = list(bodies)

    def receive_message(self, **_: Any) -> dict[str, Any]:
        found = [
            {"MessageId": f"m{place}", "ReceiptHandle": f"h{place}", "Body": body}
            for place, body in enumerate(self._bodies)
        ]
        self._bodies = []
        return {"Messages": found}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_good_message_is_taken_when_the_one_beside_it_is_hostile(body: str) -> None:
    queue = S3EventQueue("https://queue", sqs_client=Queue(body, notification(record("good.csv"))))

    received = queue.receive(LOCATION)

    assert received.keys == ("good.csv",)
    assert repr(queue).endswith("1 messages received>")


@pytest.mark.parametrize(
    "fields", [{"eventTime": LATE}, {"eTag": "\ud800"}, {"versionId": "\ud800"}, {"size": 2**63}], ids=str
)
def test_only_the_key_is_used_when_a_message_contains_more(fields: dict[str, Any]) -> None:
    queue = S3EventQueue("https://queue", sqs_client=Queue(notification(spoilt_record(**fields))))

    assert queue.receive(LOCATION).keys == ("a.csv",)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from([LATE, "s3", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=cases(25, long=500))
@given(data=st.data(), body=st.sampled_from([notification(record("a", version="v")), bridged("a", version_id="v")]))
def test_message_is_read_or_refused_when_any_part_of_it_is_anything(data: Any, body: str) -> None:
    content = json.loads(body)
    holder = content["Records"][0] if "Records" in content else content
    while True:
        name = data.draw(st.sampled_from(sorted(holder)))
        if not isinstance(holder[name], dict) or data.draw(st.booleans()):
            break
        holder = holder[name]
    holder[name] = data.draw(JSON)

    queue = S3EventQueue("https://queue", sqs_client=Queue(json.dumps(content), notification(record("good.csv"))))

    assert "good.csv" in queue.receive(LOCATION).keys


@settings(max_examples=cases(15, long=250))
@given(st.text(max_size=50) | st.binary(max_size=50).map(lambda raw: raw.decode("latin-1")))
def test_message_is_read_or_refused_when_it_is_any_text(body: str) -> None:
    with suppress(ValueError):
        parse_message(body)


# --- listings -----------------------------------------------------------------------------------

OBJECT = (
    b"<Contents><Key>a</Key><LastModified>2026-03-16T15:45:00.000Z</LastModified><ETag>&quot;e&quot;</ETag>"
    b"<Size>5</Size></Contents>"
)
PAGE = b"<ListBucketResult><IsTruncated>false</IsTruncated>" + OBJECT * 2 + b"</ListBucketResult>"


@settings(max_examples=cases(25, long=500))
@given(data=st.data())
def test_page_is_read_or_left_to_botocore_when_a_part_of_it_is_anything(data: Any) -> None:
    start = data.draw(st.integers(0, len(PAGE)))
    end = data.draw(st.integers(start, min(start + 40, len(PAGE))))
    put = data.draw(st.binary(max_size=20) | st.sampled_from([b"9" * 30, b"<", b"&#0;", b"9999-12-31T24:00:00Z"]))

    _, rows = take_objects(PAGE[:start] + put + PAGE[end:], "Contents")

    assert rows is None or rows.num_rows <= 3


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (b"<Size>5</Size>", b"<Size>99999999999999999999</Size>", "cannot be read"),
        (b"<Key>a</Key>", b"", "cannot be read"),
        (b"<IsTruncated>false</IsTruncated>", b"", "does not say whether it is the last one"),
    ],
    ids=["size", "key", "end"],
)
def test_page_is_refused_by_name_when_its_server_is_hostile(
    in_process: Any, before: bytes, after: bytes, reason: str
) -> None:
    client, bucket = in_process
    body = PAGE.replace(before, after)

    def answer(response_dict: dict[str, Any], **_: Any) -> None:
        response_dict["body"] = body

    client.meta.events.register_first("before-parse.s3.ListObjectsV2", answer, unique_id="hostile")
    try:
        with pytest.raises(SourceError, match=reason) as caught:
            list(Listing(Location.parse(f"s3://{bucket}/"), s3_client=client))
        assert bucket in str(caught.value)
    finally:
        client.meta.events.unregister("before-parse.s3.ListObjectsV2", unique_id="hostile")


def test_page_is_refused_by_name_when_it_is_longer_than_any_of_s3(
    in_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, bucket = in_process
    client.put_object(Bucket=bucket, Key="a", Body=b"")
    monkeypatch.setattr(bucket_pages, "MAX_PAGE_BYTES", 100)

    with pytest.raises(SourceError, match=rf"{bucket}.* bytes, and the limit is 100"):
        list(Listing(Location.parse(f"s3://{bucket}/"), s3_client=client))


# --- inventories --------------------------------------------------------------------------------


def data_file(key: str, rows: int) -> bytes:
    """Return a data file of Parquet in which every row has the same key."""
    columns = {
        "key": pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([key])),
        "size": pa.array([1] * rows, pa.int64()),
        "e_tag": pa.array(["e"] * rows),
        "last_modified_date": pa.array([0] * rows, pa.timestamp("ms", tz="UTC")),
    }
    file = io.BytesIO()
    parquet.write_table(pa.table(columns), file, compression="zstd")
    return file.getvalue()


def listed(folder: Path, body: bytes, form: str = "Parquet", prefix: str = "") -> list[Interval]:
    """Read one data file of a report."""
    path = folder / "data file"
    path.write_bytes(body)
    report = Report(str(folder), "s3://reports/", prefix)
    report.add(str(path), form, "Bucket, Key, Size, ETag, LastModifiedDate")
    return list(report.intervals())


def test_inventory_of_two_kilobytes_is_refused_when_it_asks_for_gigabytes(tmp_path: Path) -> None:
    body = data_file("k" * 100_000, 20_000)
    assert len(body) < 3_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(ValueError, match=r"a text has 100,000 bytes, and the limit is 1,024"):
        listed(tmp_path, body)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500 * 1024  # In KB, as ru_maxrss is on Linux.


def test_inventory_is_refused_when_a_part_of_it_is_too_large_for_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.helpers.listing.inventory_files.MEMORY", "10MB")

    with pytest.raises(ValueError, match=r"Out of Memory Error"):
        listed(tmp_path, data_file("k" * 30_000_000, 1))


def test_inventory_is_read_when_its_keys_are_as_long_as_keys_may_be(tmp_path: Path) -> None:
    (interval,) = listed(tmp_path, data_file("k" * MAX_TEXT, 5), prefix="k")

    assert interval.rows.column("key").to_pylist() == ["k" * (MAX_TEXT - 1)]


def test_data_file_is_refused_when_the_name_of_a_column_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name of a column"):
        listed(tmp_path, data_file("k", 1).replace(b"size", b"six\x80"))


@settings(max_examples=cases(10, long=150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_data_file_is_read_or_refused_when_a_part_of_it_is_anything(tmp_path: Path, data: Any) -> None:
    body = data_file("k", 20)
    at = data.draw(st.integers(0, len(body) - 1))
    body = body[:at] + data.draw(st.binary(min_size=1, max_size=4)) + body[at + 1 :]

    with suppress(ValueError, OSError, SourceError):
        listed(tmp_path, body, data.draw(st.sampled_from(["Parquet", "CSV"])))


def test_manifest_is_refused_when_it_is_longer_than_the_limit(in_process: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client, bucket = in_process
    client.put_object(Bucket=bucket, Key="m/manifest.json", Body=b"[" * 2_000)
    monkeypatch.setattr(inventory, "MAX_MANIFEST_BYTES", 1_000)

    with pytest.raises(SourceError, match=r"m/manifest\.json': it is larger than 1,000 bytes"):
        inventory.S3Inventory(f"s3://{bucket}/m/manifest.json", s3_client=client).created  # noqa: B018
