"""Pages of a bucket: the requests on the wire, how refusals are handled, and the caller's own client."""

from __future__ import annotations

import io
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.helpers.errors import (
    AccessRefusedError,
    CredentialsError,
    SourceError,
    SourceUnavailableError,
    WatermarkError,
)
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.listing.bucket_pages import BucketPages
from scripts.helpers.listing.listing import Listing, ListingOptions, Location
from scripts.helpers.listing.s3 import make_client
from tests.support.landing import put_objects
from tests.support.long import cases
from tests.support.places import REGION

STRANGE = [
    "a b",
    "x+y",
    "100%25",
    "50%",
    "new\nline",
    "\r",
    "\x01",
    "\U0001f389",
    "\ue000",
    "é",
    "<&>\"'",
    "a//b",
    "d/",
]
EMPTY = (
    '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>{}</IsTruncated></ListBucketResult>'
)
OBJECTS = (
    '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    "<Contents><Key>data/a</Key><LastModified>2026-03-16T15:45:00.000Z</LastModified><ETag>&quot;1&quot;</ETag>"
    "<Size>1</Size><StorageClass>STANDARD</StorageClass></Contents>"
    "<Contents><ETag>&quot;2&quot;</ETag><Size>2</Size><StorageClass>GLACIER</StorageClass>"
    "<LastModified>2026-03-16T15:46:00.000Z</LastModified><Key>data/b</Key></Contents>"
    "<IsTruncated>false</IsTruncated></ListBucketResult>"
)
"""Two objects that differ in the order of their elements, which our own parser leaves to botocore's."""
VERSIONS = (
    '<ListVersionsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    "<Version><Key>data/a</Key><VersionId>v1</VersionId><IsLatest>true</IsLatest>"
    "<LastModified>2026-03-16T15:45:00.000Z</LastModified><ETag>&quot;1&quot;</ETag><Size>1</Size>"
    "<StorageClass>STANDARD</StorageClass></Version>"
    "<Version><VersionId>v0</VersionId><IsLatest>false</IsLatest><ETag>&quot;0&quot;</ETag><Size>9</Size>"
    "<LastModified>2026-03-16T15:44:00.000Z</LastModified><Key>data/a</Key></Version>"
    "<Version><VersionId>v2</VersionId><IsLatest>true</IsLatest><ETag>&quot;2&quot;</ETag><Size>2</Size>"
    "<StorageClass>GLACIER</StorageClass><LastModified>2026-03-16T15:46:00.000Z</LastModified><Key>data/b</Key>"
    "</Version><IsTruncated>false</IsTruncated></ListVersionsResult>"
)
ERROR = "<Error><Code>{}</Code><Message>refused</Message></Error>"
ACCESS_POINT = f"arn:aws:s3:{REGION}:123456789012:accesspoint/landing"


class Wire:
    """Records the requests that a client sends, and answers them with `answers`, in order.

    The server itself answers a request whose answer is None, and those after the last answer.
    """

    def __init__(self, client: Any, *answers: tuple[int, str] | None, names_region: bool = False) -> None:
        self.requests: list[Any] = []
        self.names_region = names_region
        self._answers = list(answers)
        client.meta.events.register("before-send.s3.*", self._send)

    def _send(self, request: Any, **_: Any) -> AWSResponse | None:
        self.requests.append(request)
        answer = self._answers.pop(0) if self._answers else None
        if answer is None:
            return None
        status, text = answer
        raw = io.BytesIO()
        raw.stream = lambda **_: iter([text.encode()])  # type: ignore[attr-defined]
        headers = {"x-amz-bucket-region": "us-west-2"} if status == 301 and self.names_region else {}
        return AWSResponse(request.url, status, HTTPHeaders.from_dict(headers), raw)


def small_pages(client: Any, keys: int) -> None:
    """Limit the pages of this client to a number of keys."""

    def limit(params: dict[str, Any], **_: Any) -> None:
        params.setdefault("MaxKeys", keys)

    for operation in ("ListObjectsV2", "ListObjectVersions"):
        client.meta.events.register(f"before-parameter-build.s3.{operation}", limit)


def rows(client: Any, source: str, **options: Any) -> list[dict[str, Any]]:
    listing = Listing(Location.parse(source), client, ListingOptions(**options))
    return sorted(
        (row for interval in listing for row in interval.rows.to_pylist()), key=lambda row: row["key"].encode()
    )


def page_of(*keys: str, token: str | None) -> str:
    """Return a page as S3 sends it, with the token of the next page."""
    found = "".join(
        f"<Contents><Key>data/{key}</Key><LastModified>2026-03-16T15:45:00.000Z</LastModified>"
        "<ETag>&quot;e&quot;</ETag><Size>1</Size></Contents>"
        for key in keys
    )
    following = f"<IsTruncated>{'true' if token else 'false'}</IsTruncated>"
    if token:
        following += f"<NextContinuationToken>{token}</NextContinuationToken>"
    return f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{found}{following}</ListBucketResult>'


# --- keys -------------------------------------------------------------------------------------------


def test_all_keys_are_listed_as_they_are_when_they_are_strange(in_process: tuple[Any, str]) -> None:
    client, bucket = in_process
    put_objects(client, bucket, *(f"d/{key}" for key in STRANGE))

    found = [row["key"] for row in rows(client, f"s3://{bucket}/d/")]

    assert found == sorted(STRANGE, key=str.encode)


def test_all_keys_are_listed_as_they_are_when_every_page_holds_one(in_process: tuple[Any, str]) -> None:
    client, bucket = in_process
    small_pages(client, 1)
    keys = [key for key in STRANGE if key != "\x01"]  # Moto returns StartAfter unescaped, which is invalid XML.
    put_objects(client, bucket, *(f"d/{key}" for key in keys))

    found = [row["key"] for row in rows(client, f"s3://{bucket}/d/", workers=3)]

    assert found == sorted(keys, key=str.encode)


@settings(
    max_examples=cases(5, long=60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.sets(
        st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\x01\n\r %+/&<"), min_size=1, max_size=8),
        min_size=1, max_size=6,
    )
)  # fmt: skip
def test_any_keys_are_listed_as_they_were_put_when_they_go_through_s3(
    in_process: tuple[Any, str], keys: set[str]
) -> None:
    client, bucket = in_process
    for found in client.list_objects_v2(Bucket=bucket).get("Contents", []):
        client.delete_object(Bucket=bucket, Key=found["Key"])
    put_objects(client, bucket, *(f"d/{key}" for key in keys))

    listed = [row["key"] for row in rows(client, f"s3://{bucket}/d/")]

    assert listed == sorted(keys, key=str.encode)


def test_bucket_is_listed_without_a_client_when_aws_is_mocked(in_process: tuple[Any, str]) -> None:
    client, bucket = in_process
    put_objects(client, bucket, "d/one.csv")

    found = [row["key"] for row in rows(None, f"s3://{bucket}/d/")]

    assert found == ["one.csv"]


# --- probes -----------------------------------------------------------------------------------------


def test_folders_are_those_with_later_keys_when_asked_for(s3: Any, bucket: str) -> None:
    put_objects(s3, bucket, "d/a/1", "d/b/1", "d/b/2", "d/c", "d/e/f/1")
    pages = BucketPages("source", s3, bucket, "d/")

    assert pages.folders("", "b/2") == ["e/"]
    assert pages.folders("e/", "") == ["e/f/"]
    assert pages.folders("a/", "") == []
    assert pages.folders("", "") == ["a/", "b/", "e/"]


def test_folders_are_unknown_when_they_do_not_fit_into_one_page(own_s3: Any, bucket: str) -> None:
    put_objects(own_s3, bucket, "a/1", "b/1", "c/1")
    small_pages(own_s3, 2)

    assert BucketPages("source", own_s3, bucket, "").folders("", "") is None


@pytest.mark.parametrize(("after", "first"), [("", "a"), ("a", "b/1"), ("b/1", None)])
def test_first_key_is_the_next_when_there_is_one(s3: Any, bucket: str, after: str, first: str | None) -> None:
    put_objects(s3, bucket, "d/a", "d/b/1", "e")

    assert BucketPages("source", s3, bucket, "d/").first_key(after) == first


def test_client_is_prepared_by_one_thread_at_a_time_when_several_list_with_it(
    s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_objects(s3, bucket, "d/a")
    client = boto3.client("s3", endpoint_url=s3.meta.endpoint_url)
    register, inside, most = client.meta.events.register_first, Counter[str](), []

    def slowly(*args: Any, **more: Any) -> None:
        inside["threads"] += 1
        most.append(inside["threads"])
        time.sleep(0.01)
        register(*args, **more)
        inside["threads"] -= 1

    monkeypatch.setattr(client.meta.events, "register_first", slowly)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: rows(client, f"s3://{bucket}/d/"), range(8)))

    assert [[row["key"] for row in one] for one in found] == [["a"]] * 8
    assert most == [1] * 8


# --- versions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 2, 1_000])
def test_latest_versions_are_listed_when_the_bucket_is_versioned(own_s3: Any, bucket: str, page_size: int) -> None:
    own_s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    put_objects(own_s3, bucket, "d/gone", "d/kept", "d/kept", "d/kept", "d/new", "other")
    own_s3.delete_object(Bucket=bucket, Key="d/gone")
    latest = {name: own_s3.head_object(Bucket=bucket, Key=f"d/{name}")["VersionId"] for name in ("kept", "new")}
    small_pages(own_s3, page_size)

    found = rows(own_s3, f"s3://{bucket}/d/", versioned=True)

    assert {row["key"]: row["version_id"] for row in found} == latest
    assert len(found) == 2


def test_version_is_unknown_when_versions_are_not_asked_for(s3: Any, bucket: str) -> None:
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    put_objects(s3, bucket, "d/one")

    (found,) = rows(s3, f"s3://{bucket}/d/")

    assert found["version_id"] is None


# --- pages that only botocore reads -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "versioned", "version_ids"), [(OBJECTS, False, [None, None]), (VERSIONS, True, ["v1", "v2"])]
)
def test_objects_are_all_there_when_a_page_is_left_to_botocore(
    body: str, versioned: bool, version_ids: list[str | None]
) -> None:
    client = boto3.client("s3", region_name=REGION)
    Wire(client, (200, body))

    found = rows(client, "s3://bucket/data/", versioned=versioned)

    expected = [("a", "1", 1, 45, "STANDARD"), ("b", "2", 2, 46, "GLACIER")]
    assert found == [
        {
            "key": key,
            "etag": etag,
            "version_id": version_id,
            "size": size,
            "modified": datetime(2026, 3, 16, 15, minute, tzinfo=timezone.utc),
            "storage_class": storage_class,
        }
        for (key, etag, size, minute, storage_class), version_id in zip(expected, version_ids, strict=True)
    ]


# --- on the wire ------------------------------------------------------------------------------------


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize(("request_payer", "header"), [(True, b"requester"), (False, None)])
def test_payer_is_named_on_every_request_when_asked_to_pay(
    own_s3: Any, bucket: str, versioned: bool, request_payer: bool, header: bytes | None
) -> None:
    put_objects(own_s3, bucket, "a/1", "a/2", "b/1", "b/2", "c/1")
    small_pages(own_s3, 1)
    wire = Wire(own_s3)

    rows(own_s3, f"s3://{bucket}/", request_payer=request_payer, versioned=versioned)

    assert {request.headers.get("x-amz-request-payer") for request in wire.requests} == {header}
    assert len(wire.requests) >= 5


def test_access_point_is_asked_when_the_bucket_is_its_arn() -> None:
    client = boto3.client("s3", region_name=REGION)
    wire = Wire(client, (200, EMPTY.format("false")))

    found = rows(client, f"s3://{ACCESS_POINT}/data/")

    assert found == []
    assert wire.requests[0].url.startswith(f"https://landing-123456789012.s3-accesspoint.{REGION}.amazonaws.com/?")
    assert "prefix=data%2F" in wire.requests[0].url


# --- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "remedy"),
    [
        (301, "PermanentRedirect", "The bucket is in another region: give the client that region."),
        (400, "AuthorizationHeaderMalformed", "The bucket is in another region: give the client that region."),
        (400, "IllegalLocationConstraintException", "The bucket is in another region: give the client that region."),
        (404, "NoSuchBucket", "Check the name."),
        (400, "SomethingElse", "Check the name, the region and s3:ListBucket."),
    ],
)
def test_listing_raises_source_error_with_remedy_when_s3_refuses(status: int, code: str, remedy: str) -> None:
    client = boto3.client("s3", region_name=REGION, config=Config(retries={"total_max_attempts": 1}))
    Wire(client, (status, ERROR.format(code)), (403, ""))

    with pytest.raises(SourceError) as caught:
        rows(client, "s3://bucket/data/")

    assert str(caught.value) == f"Source 's3://bucket/data/': S3 refused to list it ({code}). {remedy}"


@pytest.mark.parametrize(
    ("status", "code", "kind", "text"),
    [
        (403, "AccessDenied", AccessRefusedError, "AWS refuses s3:ListBucket on 's3://bucket/data/'. Allow it"),
        (400, "ExpiredToken", CredentialsError, "AWS does not accept the credentials (ExpiredToken). Renew them."),
        (403, "InvalidAccessKeyId", CredentialsError, "AWS does not accept the credentials (InvalidAccessKeyId)."),
        (403, "SignatureDoesNotMatch", CredentialsError, "AWS does not accept the credentials (SignatureDoesNotMatch)"),
        (
            503,
            "SlowDown",
            SourceUnavailableError,
            "it is unreachable or closed the connection (SlowDown). Run again later: nothing is lost.",
        ),
        (
            500,
            "Whatever",
            SourceUnavailableError,
            "is unreachable or closed the connection (Whatever). Run again later",
        ),
    ],
)
def test_listing_says_who_is_to_act_when_s3_refuses(
    status: int, code: str, kind: type[WatermarkError], text: str
) -> None:
    client = boto3.client("s3", region_name=REGION, config=Config(retries={"total_max_attempts": 1}))
    Wire(client, (status, ERROR.format(code)))

    with pytest.raises(kind) as caught:
        rows(client, "s3://bucket/data/")

    assert text in str(caught.value)


def test_permission_of_versions_is_named_when_they_are_listed() -> None:
    client = boto3.client("s3", region_name=REGION, config=Config(retries={"total_max_attempts": 1}))
    Wire(client, (403, ERROR.format("AccessDenied")))

    with pytest.raises(AccessRefusedError, match="AWS refuses s3:ListBucketVersions on 's3://bucket/data/'"):
        rows(client, "s3://bucket/data/", versioned=True)


def test_bucket_is_listed_where_it_is_when_s3_names_its_region() -> None:
    client = boto3.client("s3", region_name=REGION)
    answers = [(301, ERROR.format("PermanentRedirect")), (200, EMPTY.format("false"))]
    wire = Wire(client, *answers, names_region=True)

    found = rows(client, "s3://bucket/data/")

    assert found == []
    assert [request.url.split("/")[2] for request in wire.requests] == [
        f"bucket.s3.{REGION}.amazonaws.com",
        "bucket.s3.us-west-2.amazonaws.com",
    ]


@pytest.mark.parametrize(
    "bucket", ["landing--usw2-az1--x-s3", "landing--usw2-az1--xa-s3"], ids=["bucket", "access point"]
)
def test_objects_are_sorted_when_a_directory_bucket_lists_them_without_an_order(
    monkeypatch: pytest.MonkeyPatch, bucket: str
) -> None:
    monkeypatch.setenv("AWS_S3_DISABLE_EXPRESS_SESSION_AUTH", "true")
    client = boto3.client("s3", region_name=REGION)
    pages = [(200, page_of("c", "a", token="t")), (200, page_of("d", "b", token=None))]
    wire = Wire(client, *pages)

    intervals = list(Listing(Location.parse(f"s3://{bucket}/data/"), client))

    assert [(one.after, one.until, one.rows.column("key").to_pylist()) for one in intervals] == [
        (None, None, ["a", "b", "c", "d"])
    ]
    assert ["start-after" in request.url for request in wire.requests] == [False, False]


@pytest.mark.parametrize("status", [503, 500])
def test_listing_is_complete_when_s3_asks_to_slow_down_at_first(
    endpoint: str, s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    put_objects(s3, bucket, "d/one", "d/two")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    pauses: list[float] = []
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=pauses.append))
    client = make_client(1)
    wire = Wire(client, *[(status, ERROR.format("SlowDown"))] * 3)

    found = [row["key"] for row in rows(client, f"s3://{bucket}/d/")]

    assert found == ["one", "two"]
    assert len(wire.requests) == 4
    assert len(pauses) == 3


def test_listing_is_complete_when_s3_asks_to_slow_down_at_the_second_page(
    endpoint: str, s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"{number:02}" for number in range(12)]
    put_objects(s3, bucket, *(f"d/{key}" for key in keys))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    pauses: list[float] = []
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=pauses.append))
    client = make_client(1)
    small_pages(client, 6)
    slow_down = (503, ERROR.format("SlowDown"))
    wire = Wire(client, None, slow_down, slow_down)

    found = [row["key"] for row in rows(client, f"s3://{bucket}/d/", workers=1)]

    assert found == keys
    assert ["continuation-token" in request.url for request in wire.requests] == [False, True, True, True]
    assert len(pauses) == 2


def test_listing_starts_at_the_date_of_its_first_page_when_the_clock_of_s3_goes_on(own_s3: Any, bucket: str) -> None:
    put_objects(own_s3, bucket, *(f"d/{number}" for number in range(6)))
    small_pages(own_s3, 2)
    minutes = iter(range(45, 60))

    def tick(response_dict: dict[str, Any], **_: Any) -> None:
        response_dict["headers"]["date"] = f"Mon, 16 Mar 2026 15:{next(minutes)}:00 GMT"

    own_s3.meta.events.register("before-parse.s3.ListObjectsV2", tick)
    listing = Listing(Location.parse(f"s3://{bucket}/d/"), own_s3)

    shown = sum(interval.rows.num_rows for interval in listing)

    assert shown == 6
    assert next(minutes) >= 48
    assert listing.started == datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)


def test_page_is_refused_when_its_date_is_no_time(own_s3: Any, bucket: str) -> None:
    put_objects(own_s3, bucket, "d/1")

    def tell(response_dict: dict[str, Any], **_: Any) -> None:
        response_dict["headers"]["date"] = "soon"

    own_s3.meta.events.register("before-parse.s3.ListObjectsV2", tell)

    with pytest.raises(SourceError) as caught:
        rows(own_s3, f"s3://{bucket}/d/")

    assert str(caught.value) == (
        f"Source 's3://{bucket}/d/': its server sent a page that cannot be read: its Date is not a time. Use "
        "S3Inventory."
    )


def test_key_comes_in_the_next_batch_when_it_appeared_behind_the_cursor(own_s3: Any, s3: Any, bucket: str) -> None:
    put_objects(s3, bucket, "d/b", "d/c", "d/d", "d/e")
    small_pages(own_s3, 2)

    def appear(request: Any, **_: Any) -> None:
        if re.search("continuation-token", request.url):
            put_objects(s3, bucket, "d/a")

    own_s3.meta.events.register("before-send.s3.ListObjectsV2", appear)
    source = f"s3://{bucket}/d/"
    first = FileBookmark(source, s3_client=own_s3)

    taken = [file.key for file in first.new_files().files]
    after = [file.key for file in FileBookmark(source, state=first.state_after, s3_client=s3).new_files().files]

    assert (taken, after) == (["b", "c", "d", "e"], ["a"])


def test_listing_is_to_be_tried_again_when_s3_never_stops_to_slow_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None))
    client = make_client(1)
    wire = Wire(client, *[(503, ERROR.format("SlowDown"))] * 20)

    with pytest.raises(SourceUnavailableError, match=r"closed the connection \(SlowDown\)\. Run again later"):
        rows(client, "s3://bucket/data/")

    assert len(wire.requests) == 10


def test_listing_raises_source_error_when_a_page_ends_early_without_a_token() -> None:
    client = boto3.client("s3", region_name=REGION)
    Wire(client, (200, EMPTY.format("true")))

    with pytest.raises(SourceError) as caught:
        rows(client, "s3://bucket/data/")

    assert str(caught.value) == (
        "Source 's3://bucket/data/': its server ends a page early and does not return where to continue. "
        "Use S3Inventory."
    )


# --- the caller's own client ------------------------------------------------------------------------


def own_calls(client: Any, bucket: str) -> list[Callable[[], list[str]]]:
    return [
        lambda: [found["Key"] for found in client.list_objects_v2(Bucket=bucket)["Contents"]],
        lambda: [found["Key"] for found in client.list_objects(Bucket=bucket)["Contents"]],
        lambda: [found["Key"] for found in client.list_object_versions(Bucket=bucket)["Versions"]],
    ]


def test_own_calls_of_the_client_stay_complete_when_the_package_has_listed_with_it(own_s3: Any, bucket: str) -> None:
    put_objects(own_s3, bucket, "a", "b")
    rows(own_s3, f"s3://{bucket}/")

    found = [call() for call in own_calls(own_s3, bucket)]

    assert found == [["a", "b"]] * 3


def test_own_calls_of_the_client_stay_complete_when_our_listing_failed(own_s3: Any, bucket: str) -> None:
    put_objects(own_s3, bucket, "a", "b")
    with pytest.raises(SourceError):
        rows(own_s3, "s3://no-such-bucket/")

    found = [call() for call in own_calls(own_s3, bucket)]

    assert found == [["a", "b"]] * 3


def test_own_calls_of_the_client_stay_complete_when_made_while_we_list(own_s3: Any, bucket: str) -> None:
    keys = [f"{number:02d}" for number in range(20)]
    put_objects(own_s3, bucket, *keys)
    seen: list[list[str]] = []
    busy = threading.Event()

    def ask_meanwhile() -> None:
        while not busy.is_set():
            seen.extend(call() for call in own_calls(own_s3, bucket))

    with ThreadPoolExecutor(2) as pool:
        asking = pool.submit(ask_meanwhile)
        found: list[list[str]] = []
        while len(found) < 20 or not seen:  # Go on until the other thread has called while we list.
            found.append([row["key"] for row in rows(own_s3, f"s3://{bucket}/")])
        busy.set()
        asking.result()

    assert all(listed == keys for listed in found)
    assert seen
    assert all(listed == keys for listed in seen)
