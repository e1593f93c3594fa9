"""Objects that an event or plan names: each is looked up by itself, or with its neighbours on pages of a listing."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError, EndpointConnectionError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.helpers.errors import AccessRefusedError, CredentialsError, SourceError, SourceUnavailableError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.listing import listing
from scripts.helpers.listing.events import S3EventQueue
from scripts.helpers.listing.listing import Lister, ListingOptions, Location
from scripts.helpers.watermarks import Watermarks
from tests.support.event_bodies import notification, record
from tests.support.faults import ONE_ATTEMPT, Raw
from tests.support.landing import put_objects
from tests.support.long import cases

KEYS = ["b", "a b+c%25", "🎉", "\ue000", "x/y=1/z", "archived"]


@pytest.fixture
def filled(s3: Any, bucket: str) -> Location:
    """Return a location in a versioned bucket, where one object is in another storage class."""
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    for key in KEYS:
        more = {"StorageClass": "GLACIER"} if key == "archived" else {}
        s3.put_object(Bucket=bucket, Key=f"in/{key}", Body=key.encode(), **more)
    return Location.parse(f"s3://{bucket}/in/")


@pytest.mark.parametrize("versioned", [False, True])
def test_rows_are_those_of_a_listing_when_objects_are_there(s3: Any, filled: Location, versioned: bool) -> None:
    lister = Lister(filled, s3, ListingOptions(versioned))
    listed = [row for interval in lister.below([""]) for row in interval.rows.to_pylist()]

    found = lister.look_at_each([*KEYS, "b", "never"]).to_pylist()

    assert found == listed
    assert len(found) == len(KEYS)


def test_object_is_not_shown_when_it_was_deleted(s3: Any, filled: Location) -> None:
    s3.delete_object(Bucket=filled.bucket, Key="in/b")

    assert Lister(filled, s3, ListingOptions()).look_at_each(["b"]).num_rows == 0


def test_nothing_is_asked_when_there_are_no_keys() -> None:
    assert Lister(Location.parse("s3://nowhere/"), None, ListingOptions()).look_at_each([]).num_rows == 0


def test_files_are_shown_when_the_source_is_a_directory(tmp_path: Any) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.csv").write_text("1")
    lister = Lister(Location.parse(f"{tmp_path}/"), None, ListingOptions())
    listed = [row for interval in lister.below([""]) for row in interval.rows.to_pylist()]

    assert lister.look_at_each(["sub/a.csv", "sub/b.csv", "c"]).to_pylist() == listed


@pytest.mark.parametrize("operation", ["HeadObject", "*"])
def test_object_is_as_listed_when_s3_refuses_to_show_it_and_lists_it(s3: Any, filled: Location, operation: str) -> None:
    client = boto3.client("s3", endpoint_url=s3.meta.endpoint_url)
    lister = Lister(filled, client, ListingOptions())
    listed = [row for interval in lister.below([""]) for row in interval.rows.to_pylist() if row["key"] == "b"]
    body = b"<Error><Code>AccessDenied</Code></Error>"

    def refuse(request: Any, **_: Any) -> Any:
        return AWSResponse(request.url, 403, {}, Raw(body))  # type: ignore[arg-type]

    client.meta.events.register(f"before-send.s3.{operation}", refuse)

    if operation == "HeadObject":
        assert lister.look_at_each(["b"]).to_pylist() == listed
    else:
        with pytest.raises(AccessRefusedError, match=r"s3:GetObject on 's3://.*/in/b'"):
            lister.look_at_each(["b"])


class Refusing:
    """A client that answers every lookup with an error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def head_object(self, **_: Any) -> Any:
        raise self._error


def refusal(code: str, status: int = 400) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "HeadObject")  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("error", "expected", "text"),
    [
        (refusal("SlowDown", 503), SourceUnavailableError, "SlowDown"),
        (EndpointConnectionError(endpoint_url="s3"), SourceUnavailableError, "EndpointConnectionError"),
        (refusal("301", 301), SourceError, "^Source 's3://landing/in/': S3 refused to show key 'a' \\(301\\)"),
    ],
)
def test_error_is_typed_when_s3_does_not_say(error: Exception, expected: type[Exception], text: str) -> None:
    client: Any = Refusing(error)

    with pytest.raises(expected, match=text):
        Lister(Location.parse("s3://landing/in/"), client, ListingOptions()).look_at_each(["a"])


# --- neighbours on pages of a listing -----------------------------------------------------------------------------

FOLDERS = ["", "a/", "a/b/", "a//", "dt=2026-03-16/hour=05/", "é 1+%25/", "\ue000/", "🎉/"]
NAMES = ["", " ", "+%2B", "<&>\"'", "é", "\ue000", "🎉", *(f"{number:02}" for number in range(12))]


class Asked:
    """A client that counts its requests, and whose pages hold at most `page_size` keys."""

    def __init__(self, s3: Any) -> None:
        self.client = boto3.client("s3", endpoint_url=s3.meta.endpoint_url, config=ONE_ATTEMPT)
        self.page_size, self.counts, self.payers = 1_000, Counter[str](), set[str | None]()
        self.client.meta.events.register("before-parameter-build.s3.ListObjectsV2", self._limit)
        self.client.meta.events.register("before-call.s3", self._count)

    def _limit(self, params: dict[str, Any], **_: Any) -> None:
        params["MaxKeys"] = self.page_size

    def _count(self, model: Any, params: dict[str, Any], **_: Any) -> None:
        self.counts[model.name] += 1
        self.payers.add(params["headers"].get("x-amz-request-payer"))

    def look(self, location: Location, keys: Iterable[str], options: ListingOptions | None = None) -> Any:
        self.counts.clear()
        return Lister(location, self.client, options or ListingOptions()).look_at_each(list(keys)).to_pylist()


@pytest.fixture
def asked(s3: Any) -> Asked:
    return Asked(s3)


@pytest.fixture
def pages_from(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that sets `PAYS`, `APART` and `KEYS_PER_PAGE` of `listing`."""

    def choose(pays: int, apart: int, part: int = 1_000) -> None:
        monkeypatch.setattr(listing, "PAYS", pays)
        monkeypatch.setattr(listing, "APART", apart)
        monkeypatch.setattr(listing, "KEYS_PER_PAGE", part)

    return choose


def test_rows_are_those_of_single_looks_when_pages_show_some_of_the_objects(
    s3: Any, bucket: str, asked: Asked, pages_from: Callable[..., None]
) -> None:
    location, rng = Location.parse(f"s3://{bucket}/in/"), random.Random(1)
    universe = [folder + name for folder in FOLDERS for name in NAMES if folder + name]
    put_objects(s3, bucket, *(f"in/{key}" for key in universe if rng.random() < 0.7), "in.", "in/a/\x01", "in0")
    s3.put_object(Bucket=bucket, Key="in/a/05", Body=b"old", StorageClass="GLACIER")
    each = asked.look(location, universe)
    listings = Counter[str]()
    assert set(asked.counts) == {"HeadObject"}

    @settings(max_examples=cases(8, long=100), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        st.sets(st.sampled_from(universe), min_size=10) | st.integers(0, 60).map(lambda start: set(universe[start:])),
        st.integers(1, 40), st.integers(0, 4), st.integers(0, 9), st.integers(1, 60), st.sampled_from([1, 3]),
    )  # fmt: skip
    def check(keys: set[str], page_size: int, pays: int, apart: int, part: int, workers: int) -> None:
        pages_from(pays, apart, part)
        asked.page_size = page_size

        found = asked.look(location, keys, ListingOptions(workers=workers))

        assert found == [row for row in each if row["key"] in keys]
        listings.update(asked.counts)

    check()
    assert listings["ListObjectsV2"] > 30


def test_neighbours_take_one_page_when_events_name_them(
    watermarks: Watermarks, s3: Any, bucket: str, asked: Asked, endpoint: str
) -> None:
    named = [f"day=1/{number:03}" for number in range(300)]
    there = [key for number, key in enumerate(named) if number % 10]
    put_objects(s3, bucket, *(f"in/{key}" for key in there))
    sqs = boto3.client("sqs", endpoint_url=endpoint)
    url = sqs.create_queue(QueueName=f"of-{bucket}")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody=notification(*(record(f"in/{key}", bucket=bucket) for key in named)))

    with IncrementalJob(watermarks, "parking", s3_client=asked.client) as job:
        events = S3EventQueue(url, sqs_client=sqs, wait=0)
        delta = job.new_files(f"s3://{bucket}/in/", events=events, on_changed=None, request_payer=True)

    assert [file.key for file in delta.files] == there
    # The page begins behind the first key. Objects that are not on it are gone only if S3 confirms it.
    assert asked.counts == {"ListObjectsV2": 1, "HeadObject": 30}
    assert asked.payers == {"requester"}


OF_DAY = [f"day=1/{number:02}" for number in range(60)]


@pytest.fixture
def day(s3: Any, bucket: str, pages_from: Callable[..., None]) -> Location:
    """Return a location with a folder of 60 keys, every tenth of which is gone. Pages are tried for 51 keys or more."""
    pages_from(13, 50)
    put_objects(s3, bucket, *(f"in/{key}" for number, key in enumerate(OF_DAY) if number % 10))
    return Location.parse(f"s3://{bucket}/in/")


@pytest.mark.parametrize("options", [ListingOptions(versioned=True), ListingOptions(workers=2)])
def test_each_is_looked_at_when_versions_are_asked_or_keys_are_few(
    day: Location, asked: Asked, options: ListingOptions
) -> None:
    named = OF_DAY if options.versioned else OF_DAY[:50]

    assert len(asked.look(day, named, options)) == len(named) * 9 // 10
    assert asked.counts == {"HeadObject": len(named)}


def test_pages_are_few_when_keys_are_far_apart(day: Location, asked: Asked, pages_from: Callable[..., None]) -> None:
    pages_from(2, 8)
    asked.page_size = 5

    assert len(asked.look(day, OF_DAY[1::3])) == 18
    assert asked.counts == {"ListObjectsV2": 2, "HeadObject": 18}


def test_each_is_looked_at_when_the_bucket_is_in_no_order(pages_from: Callable[..., None]) -> None:
    class Directory:
        def head_object(self, **_: Any) -> Any:
            return {"ETag": '"1"', "ContentLength": 1, "LastModified": datetime(2026, 3, 16, tzinfo=timezone.utc)}

    client: Any = Directory()
    pages_from(13, 50)
    rows = Lister(Location.parse("s3://b--x-s3/in/"), client, ListingOptions()).look_at_each(OF_DAY)

    assert rows.num_rows == len(OF_DAY)


def page_of(names: Iterable[str]) -> bytes:
    """Return a page as written by a server that only resembles S3."""
    objects = [
        f"<Contents><Key>in/day=1/{name}</Key><LastModified>2026-03-16T15:45:00.999Z</LastModified>"
        "<ETag>&quot;1&quot;</ETag><Size>1</Size></Contents>"
        for name in names
    ]
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(objects)}</ListBucketResult>".encode()


def answer_pages(asked: Asked, status: int, body: bytes) -> None:
    """Answer all requests for pages with one answer."""

    def send(request: Any, **_: Any) -> Any:
        return AWSResponse(request.url, status, {}, Raw(body))  # type: ignore[arg-type]

    asked.client.meta.events.register("before-send.s3.ListObjectsV2", send)


def test_fields_are_those_of_a_look_when_a_server_lists_fractions_and_no_class(day: Location, asked: Asked) -> None:
    answer_pages(asked, 200, page_of(key[-2:] for key in OF_DAY[1:]))

    found = asked.look(day, OF_DAY)

    assert asked.counts == {"ListObjectsV2": 1, "HeadObject": 1}
    assert {row["modified"] for row in found} == {datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)}
    assert {row["storage_class"] for row in found} == {"STANDARD"}


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (403, b"<Error><Code>AccessDenied</Code></Error>", "s3:ListBucket"),
        (200, b"<ListBucketResult></ListBucketResult>", "a page that cannot be read"),
        (200, page_of(["59", "01"]), "out of their byte order"),
    ],
    ids=["refused", "damaged", "unordered"],
)
def test_each_is_looked_at_when_no_page_can_be_used(
    day: Location, asked: Asked, caplog: pytest.LogCaptureFixture, status: int, body: bytes, reason: str
) -> None:
    each = asked.look(day, OF_DAY[:30]) + asked.look(day, OF_DAY[30:])
    answer_pages(asked, status, body)

    with caplog.at_level(logging.INFO):
        found = asked.look(day, OF_DAY)

    assert found == each
    assert asked.counts == {"ListObjectsV2": 1, "HeadObject": 60}
    assert [line.levelname for line in caplog.records if "event=not_listed" in line.message] == ["INFO"]
    assert reason in caplog.text


@pytest.mark.parametrize(
    ("status", "code", "expected"), [(400, "ExpiredToken", CredentialsError), (503, "SlowDown", SourceUnavailableError)]
)
def test_error_is_typed_when_login_or_load_is_why_there_is_no_page(
    day: Location, asked: Asked, status: int, code: str, expected: type[Exception]
) -> None:
    answer_pages(asked, status, f"<Error><Code>{code}</Code></Error>".encode())

    with pytest.raises(expected, match=code):
        asked.look(day, OF_DAY)
