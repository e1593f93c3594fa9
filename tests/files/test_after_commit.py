"""Files are archived or deleted after their batch is committed and published; a file that changed meanwhile stays."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from hashlib import md5
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from moto.s3.models import FakeKey

from scripts.helpers.batch.after_commit import AfterCommit
from scripts.helpers.errors import AccessRefusedError, InvalidValueError, TargetError, UnpublishedError
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.job import IncrementalJob
from scripts.helpers.listing import clearing
from scripts.helpers.listing.listing import Location
from scripts.helpers.sinks.files import FileSink
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.faults import Raw
from tests.support.files_states import set_aside_of
from tests.support.steps import KilledError


class Killer:
    """Kills the process just before it sends one numbered request to S3."""

    def __init__(self, client: Any) -> None:
        self.left: int | None = None
        client.meta.events.register("before-send.s3", self._count)

    def _count(self, **_: Any) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            raise KilledError


class Source:
    """A source of files, its archive and its target, and runs of a job that loads the files."""

    def __init__(self, watermarks: Watermarks, job_id: str, clock: Clock, raw: Path) -> None:
        self.watermarks, self.job_id, self.clock, self.raw = watermarks, job_id, clock, raw
        self.options: dict[str, Any] = {}
        self.client: Any = None
        self.uri = self.archive = ""

    def run(self, work: Callable[[], Any] = lambda: None, **options: Any) -> Any:
        given = {**self.options, **options}
        with IncrementalJob(self.watermarks, self.job_id, s3_client=self.client, clock=self.clock) as job:
            delta = job.new_files(self.uri, transformation_ctx="files", **given)
            rows = delta.read_pandas("csv")
            if len(rows):
                job.write(rows, str(self.raw))
            work()
        return delta

    @property
    def rows(self) -> list[int]:
        import pandas as pd

        return sorted(one for path in self.raw.glob("*.parquet") for one in pd.read_parquet(path)["id"].tolist())

    # Each kind of source provides these.
    put: Callable[..., None]
    there: Callable[[], list[str]]
    archived: Callable[[], list[str]]


class LocalSource(Source):
    def __init__(self, folder: Path, watermarks: Watermarks, job_id: str, clock: Clock) -> None:
        super().__init__(watermarks, job_id, clock, folder / "raw")
        self.uri, self.archive = str(folder / "landing"), str(folder / "archive")
        Path(self.uri).mkdir()

    def put(self, key: str, number: int = 0) -> None:
        path = Path(self.uri, key)
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"id\n{number}\n")

    def there(self) -> list[str]:
        return _files(self.uri)

    def archived(self) -> list[str]:
        return _files(self.archive)


class S3Source(Source):
    def __init__(self, folder: Path, s3: Any, bucket: str, watermarks: Watermarks, job_id: str, clock: Clock) -> None:
        super().__init__(watermarks, job_id, clock, folder / "raw")
        self.client = boto3.client("s3", endpoint_url=s3.meta.endpoint_url)
        self.bucket, self.uri, self.archive = bucket, f"s3://{bucket}/landing/", f"s3://{bucket}/archive/"

    def put(self, key: str, number: int = 0) -> None:
        self.client.put_object(Bucket=self.bucket, Key=f"landing/{key}", Body=f"id\n{number}\n".encode())

    def there(self) -> list[str]:
        return self._keys("landing/")

    def archived(self) -> list[str]:
        return [key for key in self._keys("archive/") if not key.startswith("_")]

    def _keys(self, prefix: str) -> list[str]:
        found = self.client.list_objects_v2(Bucket=self.bucket, Prefix=prefix)
        return [one["Key"].removeprefix(prefix) for one in found.get("Contents", ())]


def _files(folder: str) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file())


@pytest.fixture
def s3_source(tmp_path: Path, s3: Any, bucket: str, watermarks: Watermarks, job_id: str, clock: Clock) -> S3Source:
    return S3Source(tmp_path, s3, bucket, watermarks, job_id, clock)


@pytest.fixture(params=["local", "s3"])
def source(request: pytest.FixtureRequest, tmp_path: Path, watermarks: Watermarks, job_id: str, clock: Clock) -> Any:
    if request.param == "s3":
        return request.getfixturevalue("s3_source")
    return LocalSource(tmp_path, watermarks, job_id, clock)


def archiving(source: Source, **options: Any) -> dict[str, Any]:
    return {"after_commit": "archive", "archive_to": source.archive, **options}


# --- what is done --------------------------------------------------------------------------------------------------


def test_files_are_in_the_archive_and_nothing_counts_as_gone_when_their_batch_is_committed(
    source: Any, caplog: pytest.LogCaptureFixture
) -> None:
    source.options = archiving(source)
    source.put("a.csv", 1)
    source.put("b/c.csv", 2)
    with caplog.at_level(logging.INFO):
        source.run()
    source.put("d.csv", 3)

    second = source.run()
    third = source.run()

    assert (source.there(), source.archived()) == ([], ["v1/a.csv", "v1/b/c.csv", "v2/d.csv"])
    assert "action=archive files=2 bytes=10 changed=0 gone=0" in caplog.text
    assert source.rows == [1, 2, 3]
    assert [(delta.count, delta.gone) for delta in (second, third)] == [(1, 0), (0, 0)]


def test_files_are_gone_and_counted_when_they_are_to_be_deleted(source: Any, caplog: pytest.LogCaptureFixture) -> None:
    source.options = {"after_commit": "delete"}
    source.put("a.csv", 1)

    with caplog.at_level(logging.INFO):
        source.run()

    assert (source.there(), source.rows) == ([], [1])
    assert "action=delete files=1 bytes=5 changed=0 gone=0" in caplog.text


def test_nothing_is_touched_when_nothing_is_asked_for_or_the_run_fails(source: Any) -> None:
    source.put("a.csv", 1)

    def fail() -> None:
        raise KilledError

    with pytest.raises(KilledError):
        source.run(fail, **archiving(source))
    source.run()

    assert (source.there(), source.rows) == (["a.csv"], [1])


def test_overwritten_file_stays_for_the_next_batch_when_the_files_of_its_batch_are_cleared(source: Any) -> None:
    source.options = archiving(source, on_changed=None)
    source.put("a.csv", 1)
    source.put("b.csv", 2)

    source.run(lambda: source.put("a.csv", 33))
    left = source.there()
    source.run()

    assert (left, source.there(), source.rows) == (["a.csv"], [], [1, 2, 33])
    assert source.archived() == ["v1/b.csv", "v2/a.csv"]


def test_files_of_an_unpublished_batch_stay_until_a_later_run_has_published_it(
    source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.options = archiving(source)
    source.put("a.csv", 1)
    with monkeypatch.context() as patch:
        patch.setattr(FileSink, "publish", _refuse)
        with pytest.raises(UnpublishedError):
            source.run()
    before = source.there(), source.archived()

    source.run()

    assert before == (["a.csv"], [])
    assert (source.there(), source.archived(), source.rows) == ([], ["v1/a.csv"], [1])


def _refuse(self: FileSink, output: Any) -> None:
    raise TargetError(self.name, "it is full.")


def test_files_stay_for_the_minimum_age_when_they_are_young(source: Any, clock: Clock) -> None:
    from datetime import datetime, timezone

    clock.now = datetime.now(timezone.utc)
    source.options = archiving(source, min_age=timedelta(days=2))
    source.put("a.csv", 1)
    source.run()
    clock.move(hours=24)
    source.put("b.csv", 2)
    source.run()
    clock.move(hours=30)

    source.run()
    first = source.archived()
    clock.move(hours=30)
    source.run()

    assert first == ["v1/a.csv"]
    assert (source.there(), source.archived()) == ([], ["v1/a.csv", "v2/b.csv"])


def test_files_that_were_not_taken_stay_when_others_go(source: Any) -> None:
    source.options = archiving(source, on_unreadable="set_aside", include=["*.csv", "*.gz"])
    for key in ("a.csv", "bad.csv.gz", "other.txt"):
        source.put(key, 1)

    source.run()

    assert source.there() == ["bad.csv.gz", "other.txt"]
    assert list(set_aside_of(source.watermarks.get_watermark_values(source.job_id)["files"])) == ["bad.csv.gz"]


def test_all_files_stay_and_a_warning_says_so_when_the_run_saves_nothing(
    source: Any, caplog: pytest.LogCaptureFixture
) -> None:
    source.put("a.csv", 1)

    with IncrementalJob(source.watermarks, source.job_id, s3_client=source.client, mode="disable") as job:
        job.new_files(source.uri, **archiving(source))

    assert source.there() == ["a.csv"]
    assert "event=after_commit_without_effect" in caplog.text


# --- versions ------------------------------------------------------------------------------------------------------


def test_delete_leaves_a_marker_when_the_bucket_keeps_versions(s3_source: S3Source) -> None:
    keep_versions(s3_source)
    s3_source.put("a.csv", 1)

    s3_source.run(after_commit="delete", versioned=True)

    found = s3_source.client.list_object_versions(Bucket=s3_source.bucket, Prefix="landing/")
    assert (len(found["Versions"]), len(found["DeleteMarkers"])) == (1, 1)


def test_version_with_the_same_bytes_stays_when_it_was_written_meanwhile(s3_source: S3Source) -> None:
    keep_versions(s3_source)
    s3_source.put("a.csv", 1)

    s3_source.run(lambda: s3_source.put("a.csv", 1), after_commit="delete", versioned=True, on_changed=None)

    assert s3_source.there() == ["a.csv"]
    assert s3_source.run(versioned=True).count == 1


def keep_versions(source: S3Source) -> None:
    source.client.put_bucket_versioning(Bucket=source.bucket, VersioningConfiguration={"Status": "Enabled"})


# --- kills ---------------------------------------------------------------------------------------------------------


def etags_as_under_kms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give objects with the same bytes different ETags, as S3 does under a KMS key; moto would return MD5 sums."""

    def etag(key: Any) -> str:
        return f'"{md5(key.name.encode() + key.value).hexdigest()}"'

    monkeypatch.setattr(FakeKey, "etag", property(etag))


@pytest.mark.parametrize("action", ["archive", "archive under KMS", "archive of large files", "delete"])
def test_next_run_does_what_is_left_when_a_run_is_killed_at_any_request(
    s3_source: S3Source, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, killer = s3_source, Killer(s3_source.client)
    options: dict[str, Any] = {"after_commit": "delete"} if action == "delete" else archiving(source)
    if "KMS" in action or "large" in action:
        etags_as_under_kms(monkeypatch)
    if "large" in action:
        monkeypatch.setattr(clearing, "MAX_COPY_BYTES", 1)
    source.options = {**options, "workers": 1}
    ends, clean = [], False
    for k in range(60):
        for number in (1, 2):
            source.put(f"{k}-{number}.csv", 2 * k + number)
        killer.left = k
        with suppress(KilledError):
            source.run()
        clean = killer.left > 0
        killer.left = None
        source.clock.move(hours=1)
        source.run()
        ends.append(source.there())
        if clean:
            break

    taken = [number for k in range(len(ends)) for number in (2 * k + 1, 2 * k + 2)]
    assert clean
    assert len(ends) > 5
    assert ends == [[]] * len(ends)
    assert source.rows == taken
    keys = sorted(key.partition("/")[2] for key in source.archived())
    assert len(keys) == (0 if action == "delete" else len(taken))


def test_file_stays_when_an_upload_in_parts_of_the_same_size_is_in_its_place_in_the_archive(
    s3_source: S3Source, caplog: pytest.LogCaptureFixture
) -> None:
    source, place = s3_source, {"Bucket": s3_source.bucket, "Key": "archive/v1/a.csv"}
    source.options = archiving(source)
    source.put("a.csv", 1)
    upload = {**place, "UploadId": source.client.create_multipart_upload(**place)["UploadId"]}
    part = {"PartNumber": 1, "ETag": source.client.upload_part(**upload, PartNumber=1, Body=b"other")["ETag"]}
    source.client.complete_multipart_upload(**upload, MultipartUpload={"Parts": [part]})

    source.run()

    assert (source.there(), source.client.get_object(**place)["Body"].read()) == (["a.csv"], b"other")
    assert "another file exists there already" in caplog.text


@pytest.mark.parametrize("metadata", [{"owner": "parking"}, {"owner": "x" * 1_990}], ids=["short", "long"])
def test_copy_has_the_metadata_of_its_source_and_records_the_etag_and_size_of_the_source(
    s3_source: S3Source, metadata: dict[str, str]
) -> None:
    put = s3_source.client.put_object(
        Bucket=s3_source.bucket, Key="landing/a.csv", Body=b"id\n1\n", ContentType="text/csv",
        ContentLanguage="en", CacheControl="no-cache", Metadata=metadata,
    )  # fmt: skip

    s3_source.run(**archiving(s3_source))

    found = s3_source.client.head_object(Bucket=s3_source.bucket, Key="archive/v1/a.csv")
    kept = [found[name] for name in ("ContentType", "ContentLanguage", "CacheControl")]
    # S3 allows 2 KB of metadata: a source with much metadata leaves no room in the copy for the mark.
    mark = {"glue-watermarks-source": f"{put['ETag']} 5".replace('"', "")} if len(metadata["owner"]) < 100 else {}
    assert kept == ["text/csv", "en", "no-cache"]
    assert found["Metadata"] == {**metadata, **mark}


# --- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"after_commit": "move"}, "Option 'after_commit': 'move' is unknown"),
        ({"after_commit": "archive"}, "archive_to is None"),
        ({"after_commit": "archive", "archive_to": ""}, "archive_to is ''"),
        ({"after_commit": "delete", "archive_to": "/x"}, "Give it with after_commit='archive' only"),
        ({"archive_to": "/x"}, "Give it with after_commit='archive' only"),
        ({"after_commit": "delete", "min_age": 3}, "min_age is 3"),
        ({"after_commit": "delete", "min_age": timedelta(-1)}, "not negative"),
        ({"min_age": timedelta(1)}, "Give it with after_commit only"),
        ({"after_commit": "delete", "layout": "%Y/"}, "needs a listing of the whole source"),
        ({"after_commit": "delete", "events": object()}, "needs a listing of the whole source"),
        ({"after_commit": "archive", "archive_to": "s3://b/x/"}, "a directory for a directory"),
        ({"after_commit": "archive", "archive_to": "{source}/x"}, "overlaps the source"),
        ({"after_commit": "archive", "archive_to": "{source}/.."}, "overlaps the source"),
    ],
)
def test_option_is_refused_and_nothing_is_planned_when_it_makes_no_sense(
    tmp_path: Path, watermarks: Watermarks, job_id: str, clock: Clock, options: dict[str, Any], text: str
) -> None:
    source = LocalSource(tmp_path, watermarks, job_id, clock)
    source.put("a.csv", 1)
    if "archive_to" in options:
        options = {**options, "archive_to": options["archive_to"].format(source=source.uri)}

    with pytest.raises(InvalidValueError, match=text):
        source.run(**options)

    assert (watermarks.latest(job_id).plan, source.there()) == (None, ["a.csv"])


def test_option_is_refused_when_the_source_is_of_another_store() -> None:
    wanted = AfterCommit("delete")
    bookmark: Any = SimpleNamespace(location=Location.parse("gs://raw/parking/"), options=None)

    with pytest.raises(InvalidValueError) as caught:
        wanted.check_clearable(bookmark, True)

    assert str(caught.value) == "after_commit is for S3 and local directories, not for gs://."


@pytest.mark.parametrize(("operation", "action"), [("DeleteObject", "s3:DeleteObject"), ("PutObject", "s3:PutObject")])
def test_run_is_refused_before_it_plans_when_the_login_lacks_a_permission(
    s3_source: S3Source, operation: str, action: str
) -> None:
    s3_source.put("a.csv", 1)

    def refuse(request: Any, **_: Any) -> AWSResponse:
        body = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
        return AWSResponse(request.url, 403, {}, Raw(body))  # type: ignore[arg-type]

    s3_source.client.meta.events.register(f"before-send.s3.{operation}", refuse)

    with pytest.raises(AccessRefusedError, match=f"AWS refuses {action} on"):
        s3_source.run(**archiving(s3_source))

    assert s3_source.watermarks.latest(s3_source.job_id).plan is None


def test_option_is_refused_when_it_is_given_to_a_bookmark_without_a_job(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="after_commit"):
        FileBookmark(str(tmp_path), after_commit="delete")


def test_file_stays_when_another_one_is_in_its_place_in_the_archive(
    source: Any, caplog: pytest.LogCaptureFixture
) -> None:
    source.options = archiving(source)
    source.put("a.csv", 1)
    if source.client is None:
        Path(source.archive, "v1").mkdir(parents=True)
        Path(source.archive, "v1", "a.csv").write_text("another")
    else:
        source.client.put_object(Bucket=source.bucket, Key="archive/v1/a.csv", Body=b"another")

    source.run()

    assert (source.there(), source.rows) == (["a.csv"], [1])
    assert "event=after_commit_failed" in caplog.text
    assert "another file exists there already" in caplog.text
