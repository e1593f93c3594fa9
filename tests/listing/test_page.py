"""Pages of a listing: our parser reads a page exactly as botocore's does, or leaves it to botocore."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import quote_plus
from xml.sax.saxutils import escape

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.helpers.listing.bucket_pages import from_parsed, take_objects
from tests.support.long import cases

ROOTS = {"Contents": "ListBucketResult", "Version": "ListVersionsResult"}
PARSED = {"Contents": "Contents", "Version": "Versions"}
EXTRAS = {
    "Owner": "<Owner><ID>75aa</ID><DisplayName>park &amp; ride</DisplayName></Owner>",
    "Checksums": "<ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType>",
    "RestoreStatus": "<RestoreStatus><IsRestoreInProgress>false</IsRestoreInProgress></RestoreStatus>",
}
MARKER = (
    "<DeleteMarker><Key>gone</Key><VersionId>m1</VersionId><IsLatest>true</IsLatest>"
    "<LastModified>2023-03-16T15:45:00.000Z</LastModified></DeleteMarker>"
)

plain = st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff")
keys = st.text(plain, min_size=1, max_size=12) | st.text(st.sampled_from("a/%+& <>\"'=25"), min_size=1, max_size=12)
any_keys = keys | st.text(st.sampled_from("a%\n\r\t\x01 \U0001f697"), min_size=1, max_size=6)
etags = st.sampled_from(["&quot;{}&quot;", '"{}"', "{}", "&#34;{}&#34;", 'W/"{}"', '""{}'])
times = st.datetimes(datetime(1970, 1, 1)).map(
    lambda time: f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1_000:03d}Z"
)
objects = st.fixed_dictionaries(
    {
        "Key": any_keys,
        "LastModified": times | st.just("2023-03-16T15:45:00+00:00"),
        "ETag": st.text("0123456789abcdef-", max_size=34),
        "Size": st.integers(0, 5 * 2**40).map(str),
        "StorageClass": st.sampled_from(["STANDARD", "GLACIER", ""]),
        "VersionId": st.text("ab.0", min_size=1, max_size=5) | st.just("null"),
        "IsLatest": st.sampled_from(["true", "true", "false"]),
    }
)


class Reader:
    """Reads a page with botocore, as a client gets it."""

    def __init__(self) -> None:
        self._client = boto3.client("s3", region_name="eu-west-2")
        self._client.meta.events.register("before-send.s3.*", self._answer)
        self._body = b""

    def _answer(self, request: Any, **_: Any) -> Any:
        raw = io.BytesIO(self._body)
        raw.stream = lambda **_: iter([self._body])  # type: ignore[attr-defined]
        return AWSResponse(request.url, 200, HTTPHeaders(), raw)

    def __call__(self, body: bytes, tag: str) -> dict[str, Any]:
        self._body = body
        call = self._client.list_objects_v2 if tag == "Contents" else self._client.list_object_versions
        return {name: value for name, value in call(Bucket="bucket").items() if name != "ResponseMetadata"}


@pytest.fixture(scope="module")
def read() -> Reader:
    return Reader()


def page(found: list[str], tag: str, encoded: bool = True, gap: str = "") -> bytes:
    """Return a page of objects as S3 writes it."""
    encoding = "<EncodingType>url</EncodingType>" if encoded else ""
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<{ROOTS[tag]} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    rest = f"<Name>bucket</Name><Prefix></Prefix><MaxKeys>1000</MaxKeys>{encoding}<IsTruncated>true</IsTruncated>"
    token = (
        "<NextContinuationToken>t1</NextContinuationToken>" if tag == "Contents" else "<NextKeyMarker>k</NextKeyMarker>"
    )
    prefixes = "<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>"
    return f"{head}{rest}{token}{gap.join(found)}{prefixes}</{ROOTS[tag]}>".encode("utf-8", "surrogatepass")


def item(fields: dict[str, str], tag: str, gap: str = "", extra: str = "") -> str:
    """Return one object as XML."""
    shown = gap.join(f"<{name}>{text}</{name}>" for name, text in fields.items())
    return f"<{tag}>{gap}{shown}{extra}{gap}</{tag}>"


def fields_of(found: dict[str, str], tag: str, encoded: bool, etag: str) -> dict[str, str]:
    """Return the values of an object's elements in the order in which S3 writes them."""
    key = quote_plus(found["Key"], safe="/*-._") if encoded else escape(found["Key"])
    names = ["Key", "VersionId", "IsLatest"] if tag == "Version" else ["Key"]
    names += ["LastModified", "ETag", "Size", "StorageClass"]
    return {name: found[name] for name in names} | {"Key": key, "ETag": etag.format(found["ETag"])}


def check_same(body: bytes, tag: str, read: Callable[[bytes, str], dict[str, Any]]) -> bool:
    """Assert that our parser, if it reads the page, reads the same as botocore; return whether it reads the page."""
    rest, rows = take_objects(body, tag)
    expected = read(body, tag)
    if rows is None:
        assert rest == body
        return False
    assert rows.to_pylist() == from_parsed(expected.pop(PARSED[tag])).to_pylist()
    remaining = read(rest, tag)
    assert {**remaining, "DeleteMarkers": None} == {**expected, "DeleteMarkers": None}
    return True


tags = st.sampled_from(sorted(ROOTS))


@given(st.lists(objects, min_size=1, max_size=6), tags, etags, st.sampled_from(["", "\n  "]))
def test_rows_are_those_of_botocore_when_objects_look_alike(
    read: Reader, found: list[dict[str, str]], tag: str, etag: str, gap: str
) -> None:
    items = [item(fields_of(each, tag, True, etag), tag, gap) for each in found]

    check_same(page(items, tag, gap=gap), tag, read)


@given(st.lists(objects, min_size=1, max_size=6), tags)
def test_page_is_read_when_it_is_as_s3_writes_it(read: Reader, found: list[dict[str, str]], tag: str) -> None:
    items = [
        item(fields_of(each | {"LastModified": "2023-03-16T15:45:00.000Z"}, tag, True, "&quot;{}&quot;"), tag)
        for each in found
    ]

    assert check_same(page(items, tag), tag, read)


@given(st.lists(objects.filter(lambda each: each["Key"].isprintable()), min_size=1, max_size=6), tags)
def test_rows_are_those_of_botocore_when_keys_are_not_encoded(
    read: Reader, found: list[dict[str, str]], tag: str
) -> None:
    items = [item(fields_of(each, tag, False, "{}"), tag) for each in found]

    check_same(page(items, tag, encoded=False), tag, read)


@settings(max_examples=cases(50, long=1_000))
@given(st.lists(objects, min_size=1, max_size=6), tags, st.data())
def test_rows_are_those_of_botocore_when_objects_differ_in_their_elements(
    read: Reader, found: list[dict[str, str]], tag: str, data: st.DataObject
) -> None:
    items = []
    for each in found:
        fields = fields_of(each, tag, True, data.draw(etags))
        for name in data.draw(st.sets(st.sampled_from(["StorageClass", "VersionId"]))):
            fields.pop(name, None)
        if data.draw(st.booleans()):
            fields = dict(data.draw(st.permutations(list(fields.items()))))
        extra = "".join(EXTRAS[name] for name in data.draw(st.sets(st.sampled_from(sorted(EXTRAS)))))
        marker = data.draw(st.sampled_from(["", MARKER])) if tag == "Version" else ""
        items.append(item(fields, tag, extra=extra) + marker)

    check_same(page(items, tag), tag, read)


@pytest.mark.parametrize("extra", sorted(EXTRAS))
@pytest.mark.parametrize("shown", [{0}, {1}, {0, 1, 2}], ids=["first", "second", "all"])
def test_page_is_read_when_some_objects_show_more_than_others(read: Reader, extra: str, shown: set[int]) -> None:
    items = [item(FIELDS | {"Key": f"{n}"}, "Contents", extra=EXTRAS[extra] if n in shown else "") for n in range(3)]

    assert check_same(page(items, "Contents"), "Contents", read)


FIELDS = {
    "Key": "a",
    "LastModified": "2023-03-16T15:45:00.000Z",
    "ETag": "&quot;e1&quot;",
    "Size": "5",
    "StorageClass": "STANDARD",
}
VERSION = {"Key": "a", "VersionId": "v1", "IsLatest": "true"} | FIELDS


def test_delete_markers_are_left_out_when_versions_are_listed(read: Reader) -> None:
    items = [item(VERSION, "Version"), MARKER, item(VERSION | {"Key": "b", "IsLatest": "false"}, "Version")]
    items += [item(VERSION | {"Key": "c"}, "Version"), MARKER]

    _, rows = take_objects(page(items, "Version"), "Version")

    assert check_same(page(items, "Version"), "Version", read)
    assert rows is not None
    assert rows.column("key").to_pylist() == ["a", "c"]


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ("<Key>a</Key>", "<Key><![CDATA[a]]></Key>"),
        ("<Key>a</Key>", "<Key>a<!-- b --></Key>"),
        ("<Key>a</Key>", "<Key>a&#13;b</Key>"),
        ("<Key>a</Key>", "<Key>a\r\nb</Key>"),
        ("<Key>a</Key>", "<Key>a</Key><Key>b</Key>"),
        ("<Key>a</Key>", '<Key kind="x">a</Key>'),
        ("<Size>5</Size>", "<Size>five</Size>"),
        ("<Size>5</Size>", "<Size/>"),
        ("<Size>5</Size>", ""),
        ("<LastModified>2023-03-16T15:45:00.000Z<", "<LastModified>Thu, 16 Mar 2023 15:45:00 GMT<"),
        ("<StorageClass>STANDARD</StorageClass>", "<StorageClass/>"),
        ("<ETag>&quot;e1&quot;</ETag>", "<ETag>e1</ETag>"),
        ("</Contents><Contents>", "</Contents><!-- one --><Contents>"),
        ("</Contents><Contents>", "</Contents><IsTruncated>false</IsTruncated><Contents>"),
        ("</Contents><Contents>", "</Contents><CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes><Contents>"),
    ],
)
def test_page_is_left_to_botocore_when_one_object_is_unusual(text: str, replaced: str) -> None:
    body = page([item(FIELDS | {"Key": key}, "Contents") for key in "bcad"], "Contents").decode()
    assert text in body
    at = body.rindex(text)
    unusual = (body[:at] + replaced + body[at + len(text) :]).encode()

    assert take_objects(unusual, "Contents") == (unusual, None)


@pytest.mark.parametrize(
    "body", [b"", b"<Contents>", b"</Contents><Contents>", b"<s3:Contents></s3:Contents>", b"\xff"]
)
def test_page_is_left_to_botocore_when_it_holds_no_objects(body: bytes) -> None:
    assert take_objects(body, "Contents") == (body, None)


def test_page_is_left_to_botocore_when_it_has_a_comment_beside_its_objects() -> None:
    body = page([item(FIELDS, "Contents")], "Contents").replace(b"<Contents>", b"<!-- one --><Contents>", 1)

    assert take_objects(body, "Contents") == (body, None)


def test_page_is_left_to_botocore_when_a_key_is_no_utf8() -> None:
    body = re.sub(b"<Key>a<", b"<Key>%FF<", page([item(FIELDS, "Contents")], "Contents"))

    assert take_objects(body, "Contents") == (body, None)


@pytest.mark.parametrize("latest", ["True", "1", "yes", ""])
def test_versions_are_those_of_botocore_when_the_latest_is_written_otherwise(read: Reader, latest: str) -> None:
    items = [item(VERSION | {"IsLatest": latest}, "Version"), item(VERSION | {"Key": "b"}, "Version")]

    check_same(page(items, "Version"), "Version", read)
