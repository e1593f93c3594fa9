"""check_unchanged and ObjectFetcher: planned objects are compared with, or fetched from, the current objects."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders

from scripts.helpers.errors import ArchivedObjectError, ChangedObjectError, SourceError, SourceUnavailableError
from scripts.helpers.files import unchanged
from scripts.helpers.files.unchanged import check_unchanged, find_changed
from scripts.helpers.listing import listing
from scripts.helpers.listing.listing import Listing, ListingOptions, Location
from scripts.helpers.listing.objects import LISTED
from scripts.helpers.listing.s3 import make_client
from scripts.helpers.reading.fetch import ObjectFetcher, Planned
from tests.support.faults import Raw
from tests.support.landing import Landing

STRANGE = [
    "a b",
    "100%25",
    "50%",
    "x+y",
    "[z]",
    "s*",
    "h#1",
    "🎉",
    "é",
    "back\\slash",
    "a//b",
    "/lead",
    "tab\t",
    "~",
    "a/./b",
]


class CheckedLanding(Landing):
    """A source whose files are planned once and then checked again."""

    def plan(self, **options: Any) -> pa.Table:
        parts = Listing(self.location, self.client, ListingOptions(**options))
        return pa.Table.from_batches([part.rows for part in parts], LISTED).sort_by("key")

    def check(self, table: pa.Table, on_changed: Any = "raise") -> pa.Table:
        return check_unchanged(self.location, table, self.client, on_changed)


@pytest.fixture(params=["local", "head", "list"])
def landing(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckedLanding:
    """Return an empty source, once for each way to check it."""
    if request.param == "local":
        return CheckedLanding(None, f"{tmp_path}/landing/")
    if request.param == "list":
        monkeypatch.setattr(listing, "APART", 0)
        monkeypatch.setattr(listing, "PAYS", 1)
    return CheckedLanding(None, f"s3://{request.getfixturevalue('bucket')}/landing/", request.getfixturevalue("s3"))


def test_check_returns_the_plan_when_nothing_changed(landing: CheckedLanding) -> None:
    for key in ("a b", "c%25", "é🎉"):
        landing.put(key, b"1")
    plan = landing.plan()
    landing.put("new", b"1")

    found = landing.check(plan)

    assert found.equals(plan)


def test_check_raises_error_with_all_keys_when_objects_changed(landing: CheckedLanding) -> None:
    for key in ("a", "b é", "c", "d"):
        landing.put(key, b"1")
    plan = landing.plan()
    landing.put("b é", b"other")
    landing.put("d", b"other")
    landing.delete("c")

    with pytest.raises(ChangedObjectError) as caught:
        landing.check(plan)

    assert caught.value.overwritten == ("b é", "d")
    assert caught.value.deleted == ("c",)
    assert caught.value.source == str(landing.location)
    assert "overwritten: 'b é', 'd'; deleted: 'c'" in str(caught.value)
    assert "watermarks discard-plan JOB --why TEXT" in str(caught.value)


def test_check_leaves_changed_objects_out_when_told_to_skip_them(landing: CheckedLanding) -> None:
    for key in ("a", "b", "c", "d"):
        landing.put(key, b"1")
    plan = landing.plan()
    landing.put("b", b"other")
    landing.delete("c")

    found = landing.check(plan, "skip")

    assert found.equals(plan.filter(pa.array([True, False, False, True])))


def test_check_returns_the_plan_when_it_is_empty(landing: CheckedLanding) -> None:
    landing.put("a", b"1")

    assert landing.check(LISTED.empty_table()).num_rows == 0


def test_check_finds_an_object_written_again_with_the_same_bytes_when_versions_are_known(
    s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    landing = CheckedLanding(None, f"s3://{bucket}/landing/", s3)
    landing.put("a", b"1")
    landing.put("b", b"1")
    plan = landing.plan(versioned=True)
    landing.put("a", b"1")

    looked = landing.check(plan, "skip")
    monkeypatch.setattr(listing, "APART", 0)
    monkeypatch.setattr(listing, "PAYS", 1)
    listed = landing.check(plan, "skip")

    assert looked.column("key").to_pylist() == ["b"]
    assert listed.column("key").to_pylist() == ["b"]


def test_check_raises_source_error_with_the_key_when_the_source_refuses(s3: Any, bucket: str) -> None:
    landing = CheckedLanding(None, f"s3://{bucket}/landing/", s3)
    landing.put("a", b"1")
    plan = landing.plan()
    elsewhere = Location.parse("s3://no-such-bucket-here/landing/")
    hooked = boto3.client("s3", endpoint_url=s3.meta.endpoint_url)
    hooked.meta.events.register("before-call.s3.HeadObject", refuse)

    with pytest.raises(SourceError) as caught:
        check_unchanged(elsewhere, plan, hooked)

    assert not isinstance(caught.value, ChangedObjectError)
    assert "key 'a' cannot be read (403)" in str(caught.value)


def refuse(**_: Any) -> Any:
    return AWSResponse("", 403, HTTPHeaders(), None), {"Error": {"Code": "403", "Message": "Forbidden"}}


class Counted:
    """A client whose pages hold few keys, and the requests it sent."""

    def __init__(self, s3: Any, keys_of_a_page: int) -> None:
        self.client = boto3.client("s3", endpoint_url=s3.meta.endpoint_url)
        self.asked: list[str] = []
        self.client.meta.events.register(
            "before-parameter-build.s3.ListObjectsV2", lambda params, **_: params.update(MaxKeys=keys_of_a_page)
        )
        self.client.meta.events.register("before-send.s3.*", lambda request, **_: self.asked.append(request.url))


def test_rest_of_the_source_is_not_listed_when_many_files_were_planned(
    s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten files of a new day and a late file of an old day, in a source of sixty files."""
    monkeypatch.setattr(listing, "APART", 1)
    monkeypatch.setattr(listing, "PAYS", 3)
    landing = CheckedLanding(None, f"s3://{bucket}/landing/", s3)
    for day in range(6):
        for number in range(10):
            landing.put(f"day={day}/{number}", b"1")
    plan = landing.plan()
    keys = plan.column("key").to_pylist()
    plan = plan.take([place for place, key in enumerate(keys) if key.startswith("day=4/") or key == "day=1/3"])
    landing.put("day=4/2", b"other")
    landing.delete("day=4/9")
    landing.put("day=1/3", b"other")
    counted = Counted(s3, 5)

    overwritten, deleted = find_changed(landing.location, plan, counted.client)

    assert (sorted(overwritten), deleted) == (["day=1/3", "day=4/2"], ["day=4/9"])
    # One page with too few hits, two or three with enough, then the objects that are not on them or differ there.
    assert len(counted.asked) <= 9


def test_pages_are_few_when_planned_files_lie_far_apart(s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six of sixty files, as in a batch whose files arrived in all parts of a large source."""
    monkeypatch.setattr(listing, "APART", 3)
    monkeypatch.setattr(listing, "PAYS", 2)
    landing = CheckedLanding(None, f"s3://{bucket}/landing/", s3)
    for number in range(60):
        landing.put(f"{number:02}", b"1")
    plan = landing.plan().take(list(range(4, 60, 11)))
    for key in ("04", "48", "50"):
        landing.put(key, b"other")
    landing.delete("26")
    counted = Counted(s3, 5)

    overwritten, deleted = find_changed(landing.location, plan, counted.client)

    assert (sorted(overwritten), deleted) == (["04", "48"], ["26"])
    assert len(counted.asked) <= 8


@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_all_changes_are_found_when_files_are_compared_in_parts(
    s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(listing, "APART", 0)
    monkeypatch.setattr(listing, "PAYS", 1)
    monkeypatch.setattr(unchanged, "AT_ONCE", at_once)
    landing = CheckedLanding(None, f"s3://{bucket}/landing/", s3)
    for number in range(9):
        landing.put(f"{number}", b"1")
    plan = landing.plan().sort_by([("key", "descending")])
    for key in ("0", "4", "5"):
        landing.put(key, b"other")
    for key in ("3", "8"):
        landing.delete(key)

    overwritten, deleted = find_changed(landing.location, plan, s3)

    assert (sorted(overwritten), sorted(deleted)) == (["0", "4", "5"], ["3", "8"])


# --- fetching ---------------------------------------------------------------------------------------------


@pytest.fixture
def client(s3: Any) -> Any:
    return make_client(4, endpoint_url=s3.meta.endpoint_url)


@pytest.fixture(params=["obstore", "boto3"])
def fetcher(request: pytest.FixtureRequest, client: Any, bucket: str) -> ObjectFetcher:
    made = ObjectFetcher(Location.parse(f"s3://{bucket}/landing/"), client)
    if request.param == "boto3":
        made.obstore_get = None
    else:
        assert made.obstore_get is not None
    return made


@pytest.mark.parametrize("key", STRANGE)
def test_fetch_gives_the_bytes_of_the_key_when_key_is_strange(
    fetcher: ObjectFetcher, s3: Any, bucket: str, key: str
) -> None:
    landing = CheckedLanding(None, f"s3://{bucket}/landing/", s3)
    landing.put(key, key.encode())
    etag = s3.head_object(Bucket=bucket, Key=f"landing/{key}")["ETag"].strip('"')

    body = fetcher.fetch(Planned(key, etag, None, 1))

    assert body == key.encode()


@pytest.mark.parametrize("etag", ["0123", None])
@pytest.mark.parametrize("there", [True, False])
def test_fetch_raises_error_with_the_key_when_object_changed(
    fetcher: ObjectFetcher, s3: Any, bucket: str, etag: str | None, there: bool
) -> None:
    if there:
        s3.put_object(Bucket=bucket, Key="landing/a", Body=b"1")

    if there and etag is None:
        assert fetcher.fetch(Planned("a", etag, None, 1)) == b"1"
        return
    with pytest.raises(ChangedObjectError) as caught:
        fetcher.fetch(Planned("a", etag, None, 1))
    assert (caught.value.overwritten, caught.value.deleted) == ((("a",), ()) if there else ((), ("a",)))


def test_fetch_raises_source_error_when_there_is_no_bucket(client: Any) -> None:
    fetcher = ObjectFetcher(Location.parse("s3://no-such-bucket-here/landing/"), client)

    for fast in (fetcher.obstore_get, None):
        fetcher.obstore_get = fast
        with pytest.raises(SourceError, match=r"key 'a' cannot be read \(NoSuchBucket\)") as caught:
            fetcher.fetch(Planned("a", "1", None, 1))
        assert not isinstance(caught.value, ChangedObjectError)


def test_fetch_raises_archived_error_with_the_key_when_an_object_is_archived(
    fetcher: ObjectFetcher, s3: Any, bucket: str
) -> None:
    put = s3.put_object(Bucket=bucket, Key="landing/a", Body=b"1", StorageClass="GLACIER")

    with pytest.raises(ArchivedObjectError) as caught:
        fetcher.fetch(Planned("a", put["ETag"].strip('"'), None, 1))

    assert caught.value.keys == ["a"]
    assert "An archive tier of INTELLIGENT_TIERING shows only when it is read" in str(caught.value)


DENIED = "User is not authorized to perform: kms:Decrypt on the resource associated with this ciphertext"
KMS_REMEDY = "It is encrypted: allow kms:Decrypt with its key, and check that the key is enabled."


@pytest.mark.parametrize(
    ("code", "message", "remedy"),
    [
        ("AccessDenied", DENIED, KMS_REMEDY),
        ("KMS.DisabledException", "is disabled", KMS_REMEDY),
        ("AccessDenied", "Access Denied", "Check the login's s3:GetObject, the region, and that"),
    ],
)
def test_fetch_says_what_to_allow_when_s3_refuses(
    fetcher: ObjectFetcher, client: Any, code: str, message: str, remedy: str
) -> None:
    if fetcher.obstore_get is None:
        answer: Any = AWSResponse("", 403, HTTPHeaders(), None), {"Error": {"Code": code, "Message": message}}
        client.meta.events.register("before-call.s3.GetObject", lambda **_: answer)
    else:
        text = f"403 Forbidden: <Error><Code>{code}</Code><Message>{message}</Message></Error>"
        fetcher.obstore_get = raise_from_obstore(text)

    with pytest.raises(SourceError) as caught:
        fetcher.fetch(Planned("a", "1", None, 1))

    assert f"key 'a' cannot be read ({code}). {remedy}" in str(caught.value)


def raise_from_obstore(text: str) -> Any:
    from obstore.exceptions import PermissionDeniedError

    def get(*_: Any, **__: Any) -> None:
        raise PermissionDeniedError(text)

    return get


@pytest.mark.parametrize(
    "fetch",
    [lambda fetcher, one: fetcher.fetch(one), lambda fetcher, one: fetcher.ends(one, 4, 4)],
    ids=["whole", "ends"],
)
def test_fetch_is_to_be_tried_again_when_a_transfer_breaks_off(client: Any, bucket: str, fetch: Any) -> None:
    fetcher = ObjectFetcher(Location.parse(f"s3://{bucket}/landing/"), client)
    fetcher.obstore_get = None
    headers = HTTPHeaders.from_dict({"Content-Length": "100"})
    client.meta.events.register(
        "before-send.s3.GetObject", lambda request, **_: AWSResponse(request.url, 200, headers, Raw(b"x" * 10))
    )

    with pytest.raises(SourceUnavailableError, match=rf"{bucket}/landing/.*\(IncompleteReadError\)\. Run again later"):
        fetch(fetcher, Planned("a", "1", None, 100))


def test_fetch_raises_error_when_a_file_is_written_while_it_is_read(tmp_path: Path, monkeypatch: Any) -> None:
    landing = CheckedLanding(None, f"{tmp_path}/landing/")
    landing.put("a", b"1")
    (row,) = landing.plan().to_pylist()
    before = os.fstat

    def write_and_look(descriptor: int) -> os.stat_result:
        os.utime(f"{tmp_path}/landing/a", ns=(1, 1))
        return before(descriptor)

    monkeypatch.setattr(os, "fstat", write_and_look)

    with pytest.raises(ChangedObjectError, match="overwritten: 'a'"):
        ObjectFetcher(landing.location, None).fetch(Planned("a", row["etag"], None, 1))
