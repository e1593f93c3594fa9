"""Objects looked at one by one, beside what a listing shows."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError, EndpointConnectionError

from scripts.helpers.errors import AccessRefusedError, SourceError, SourceUnavailableError
from scripts.helpers.listing.listing import Lister, ListingOptions, Location
from tests.support.faults import Raw

KEYS = ["b", "a b+c%25", "🎉", "\ue000", "x/y=1/z", "archived"]


@pytest.fixture
def filled(s3: Any, bucket: str) -> Location:
    """Return a location in a bucket with versions, of which one object is in another storage class."""
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
    """A client that answers every look with an error."""

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
