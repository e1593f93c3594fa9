"""The ledger: equal in the table, in a folder and on S3; small writes; damage is detected."""

from __future__ import annotations

import io
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.stub import Stubber

from scripts.helpers.errors import (
    AccessRefusedError,
    CredentialsError,
    InvalidValueError,
    LedgerError,
    SourceUnavailableError,
    TooLargeError,
    UnreadableObjectError,
    WatermarkError,
)
from scripts.helpers.files import ledger
from scripts.helpers.files.segment_files import SegmentFiles, checksum
from scripts.helpers.files.states import segment_of
from scripts.helpers.listing.objects import LEDGER
from tests.support.buckets import NOON, SOURCE, Bucket, Job
from tests.support.events import Told
from tests.support.long import cases

COLUMNS = ["key", "etag", "version_id", "size", "modified", "status", "version", "run_id"]
"""The columns that are documented for Spark, Athena and DuckDB."""
NAME = f"{'0' * 32}.parquet"
"""A valid name of a ledger file."""

ROW = {"etag": "e", "version_id": None, "size": 1, "modified": NOON, "status": "taken", "version": 1, "run_id": "r"}


class Files:
    """A folder of ledger files, on S3 or local, accessed without the package."""

    def __init__(self, uri: str, client: Any = None) -> None:
        self.uri, self.client = uri, client
        self.bucket, _, self.prefix = uri.removeprefix("s3://").partition("/")

    def names(self) -> list[str]:
        if self.client is None:
            return sorted(os.listdir(self.uri)) if os.path.exists(self.uri) else []
        found = self.client.list_objects_v2(Bucket=self.bucket, Prefix=self.prefix).get("Contents", [])
        return sorted(item["Key"].removeprefix(self.prefix) for item in found)

    def read(self, name: str) -> bytes:
        if self.client is None:
            return Path(self.uri, name).read_bytes()
        body: bytes = self.client.get_object(Bucket=self.bucket, Key=self.prefix + name)["Body"].read()
        return body

    def write(self, name: str, data: bytes | None) -> None:
        """Overwrite a file, or delete it."""
        if self.client is not None:
            key = {"Bucket": self.bucket, "Key": self.prefix + name}
            self.client.delete_object(**key) if data is None else self.client.put_object(**key, Body=data)
        elif data is None:
            Path(self.uri, name).unlink()
        else:
            Path(self.uri, name).write_bytes(data)


@pytest.fixture(params=["local", "s3"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    if request.param == "local":
        return Files(f"{tmp_path}/ledger/")
    client = boto3.client("s3", endpoint_url=request.getfixturevalue("endpoint"))
    return Files(f"s3://{request.getfixturevalue('bucket')}/ledger/", client)


@pytest.fixture
def make_job(files: Files) -> Callable[..., Job]:
    def make(bucket: Bucket | None = None, **options: Any) -> Job:
        return FileJob(files, bucket, ledger_uri=files.uri, **options)

    return make


class FileJob(Job):
    """A job whose ledger is stored in files."""

    def __init__(self, files: Files, bucket: Bucket | None = None, **options: Any) -> None:
        super().__init__(bucket, s3_client=files.client, **options)


def work(job: Job) -> list[Any]:
    """Run a history with every kind of change; return what each run took and what is known at the end."""
    rng, found = random.Random(4), []
    for _ in range(12):
        for _ in range(rng.randint(0, 30)):
            key = f"{rng.choice(['', 'é/', 'sub/'])}{rng.randint(0, 60)}.csv"
            if rng.random() < 0.3:
                job.bucket.delete(key)
            else:
                job.bucket.put(key, body=str(rng.randint(0, 3)))
        found.append((job.take(), job.last.gone, job.last.has_more))
        job.bucket.wait(minutes=1)
        named = [f"sub/{number}.csv" for number in rng.sample(range(60), 5)]
        job.bucket.put(named[0], body="4")
        found.append((job.take_told(Told(sorted(named))), job.last.gone, job.last.has_more))
        job.bucket.wait(minutes=1)
    known = job.bookmark().ledger.known().between(None, None)
    return [*found, sorted(map(repr, known.to_pylist()))]


# --- the same answers in every store -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"max_files": 3}, {"on_modified": "skip"}],
    ids=str,
)
def test_answers_are_those_of_the_table_when_the_ledger_lies_in_files(
    make_job: Callable[..., Job], files: Files, options: dict[str, Any]
) -> None:
    in_table = work(Job(**options))

    in_files = work(make_job(**options))

    assert in_files == in_table
    assert files.names()


def test_only_files_that_can_hold_the_keys_are_read_when_events_name_them(
    make_job: Callable[..., Job], files: Files
) -> None:
    job = make_job()
    for folder, count in (("day=1/", 30), ("day=2/", 5)):
        for number in range(count):
            job.bucket.put(f"{folder}{number}.csv")
        job.take()
    large, _ = (file["file"] for segment in job.bookmark().ledger.in_files() for file in segment)
    files.write(large, None)
    job.bucket.put("day=2/new.csv")
    job.bucket.put("day=1/1new.csv")

    taken = job.take_told(Told(["day=2/0.csv", "day=2/new.csv"]))

    assert taken == ["day=2/new.csv"]
    with pytest.raises(LedgerError, match="it could not be read"):
        job.take_told(Told(["day=1/1new.csv", "day=2/new.csv"]))


def test_state_holds_no_list_when_the_ledger_lies_in_files(make_job: Callable[..., Job]) -> None:
    job = make_job()
    job.bucket.put(*(f"{number}.csv" for number in range(3_000)))

    job.take()

    assert len(repr(job.state)) < 1_000
    assert job.table.chunks == {}


def test_ledger_moves_to_files_when_ledger_uri_is_given_later(make_job: Callable[..., Job]) -> None:
    before = Job()
    before.bucket.put(*(f"{number:03}.csv" for number in range(300)))
    before.take()
    job = make_job(before.bucket)
    job.state, job.table = before.state, before.table
    job.bucket.put("new.csv")

    taken, again = job.take(), job.take()

    assert (taken, again) == (["new.csv"], [])


def test_rows_of_both_are_in_one_segment_when_they_are_read_to_be_merged(tmp_path: Path) -> None:
    """On Spark, executors write the new segment, so the driver does not hold its rows."""
    files = SegmentFiles(f"{tmp_path}/ledger/")
    old, new = ([row | {"key": key} for key in keys] for row in [ROW] for keys in (["a", "c"], ["b", "c"]))
    first, second = (segment_of([files.put(pa.Table.from_pylist(rows, LEDGER))]) for rows in (old, new))

    (together,) = ledger.FileLedger("s3://bucket/", [first], files).appended(second)

    assert ledger.FileLedger("s3://bucket/", [], files).read(together).column("key").to_pylist() == ["a", "b", "c"]


@pytest.mark.parametrize("rows_of_a_file", [1, 3, 1_000])
@pytest.mark.parametrize("in_files", [True, False])
@pytest.mark.parametrize("seed", range(cases(1, long=5)))
def test_newest_rows_are_kept_in_order_when_segments_of_many_files_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, rows_of_a_file: int, in_files: bool
) -> None:
    monkeypatch.setattr(ledger, "FILE_ROWS", rows_of_a_file)
    rng, newest = random.Random(seed), dict[str, str]()
    found = ledger.FileLedger("s3://bucket/", [], SegmentFiles(f"{tmp_path}/ledger/") if in_files else None)
    segments: list[Any] = []
    most = 0

    for version in range(1, cases(15, long=30)):
        batch = {f"{key:02}": rng.choice(["taken", "gone"]) for key in rng.sample(range(60), rng.randint(1, 40))}
        rows = [ROW | {"key": key, "status": batch[key], "version": version} for key in sorted(batch)]
        table = pa.Table.from_pylist(rows, LEDGER)
        segments = found.again(segments).appended(found.stored(table), table)
        newest |= batch
        most = max(most, sum(segment["count"] for segment in segments))

    known = found.again(segments).known().between(None, None)
    assert sorted(known.column("key").to_pylist()) == sorted(key for key in newest if newest[key] == "taken")
    assert all(
        found.read(one).column("key").to_pylist() == sorted(found.read(one).column("key").to_pylist())
        for one in segments
    )
    assert most <= 160


# --- read by other programs ----------------------------------------------------------------------------------------


def test_files_have_the_documented_columns_sorted_by_key_when_read_by_pyarrow(
    make_job: Callable[..., Job], files: Files
) -> None:
    job = make_job()
    job.bucket.put("b.csv", "🎉.csv", "\ue000.csv", body="12")
    job.take()

    (name,) = files.names()
    table = pq.read_table(io.BytesIO(files.read(name)))

    assert table.schema.equals(LEDGER)
    assert table.column_names == COLUMNS
    assert table.column("key").to_pylist() == ["b.csv", "\ue000.csv", "🎉.csv"]
    assert table.to_pylist()[0] | {"etag": ""} == {
        "key": "b.csv", "etag": "", "version_id": None, "size": 2, "modified": job.bucket.now, "status": "taken",
        "version": 1, "run_id": "run-1",
    }  # fmt: skip


@pytest.mark.parametrize("files", ["local"], indirect=True)
def test_files_answer_when_and_by_which_run_when_read_by_spark(
    make_job: Callable[..., Job], files: Files, spark: Any
) -> None:
    job = make_job()
    job.bucket.put("a.csv", "é/b.csv", body="12")
    job.take()
    job.bucket.put("c.csv")
    job.take()

    frame = spark.read.parquet(files.uri)
    found = {row.key: (row.version, row.run_id, row.status, row.size) for row in frame.distinct().collect()}

    assert frame.columns == COLUMNS
    assert dict(frame.dtypes)["modified"] == "timestamp"
    assert found == {
        "a.csv": (1, "run-1", "taken", 2),
        "é/b.csv": (1, "run-1", "taken", 2),
        "c.csv": (2, "run-2", "taken", 1),
    }


# --- small writes ----------------------------------------------------------------------------------------------------


def many(job: Job, count: int, start: int = 0) -> None:
    job.bucket.put(*(f"import_date=20260316/part-{start + number:08}.csv" for number in range(count)))
    for number, row in enumerate(job.bucket.objects.values()):
        row["etag"] = f"{number * 2654435761 % 2**128:032x}"


def test_segments_stay_few_and_writes_small_when_a_hundred_runs_add_a_little() -> None:
    job, written, most = Job(), 0, 0
    many(job, 2_000)
    job.take()
    base = sum(len(part) for parts in job.table.chunks.values() for part in parts)

    for number in range(100):
        many(job, 4, start=2_000 + 4 * number)
        assert len(job.take()) == 4
        most = max(most, len(job.segments()))

    written = sum(len(part) for parts in job.table.chunks.values() for part in parts) - base
    assert most <= 8
    assert written < 4 * base


def test_nothing_is_written_when_nothing_is_new(make_job: Callable[..., Job], files: Files) -> None:
    job = make_job()
    job.bucket.put("a.csv")
    job.take()
    before, state = files.names(), job.state

    job.take()

    assert files.names() == before
    assert job.state == state


def test_gone_objects_are_dropped_when_segments_are_merged() -> None:
    job = Job()
    job.bucket.put(*(f"{number}.csv" for number in range(10)))
    job.take()
    job.bucket.delete(*(f"{number}.csv" for number in range(8)))

    job.take()

    assert [segment["count"] for segment in job.segments()] == [2]


# --- damage ----------------------------------------------------------------------------------------------------------

DAMAGE: dict[str, tuple[Callable[[bytes], bytes | None], str]] = {
    "missing": (lambda _: None, r"it could not be read \(.*\)\. Restore it, or give the right ledger_uri\."),
    "truncated": (lambda data: data[:-1], r"it is not what was written there\. Restore it from a backup\."),
    "empty": (lambda _: b"", "it is not what was written there"),
    "altered": (lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:], "it is not what was written there"),
    "another": (lambda data: data + b"PAR1", "it is not what was written there"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_ledger_error_names_the_file_and_nothing_changes_when_it_is_damaged(
    make_job: Callable[..., Job], files: Files, kind: str
) -> None:
    damage, text = DAMAGE[kind]
    job = make_job()
    job.bucket.put("a.csv")
    job.take()
    (name,) = files.names()
    files.write(name, damage(files.read(name)))
    before, state = files.names(), job.state

    with pytest.raises(LedgerError, match=text) as caught:
        job.take()

    assert name in caught.value.source
    assert (files.names(), job.state) == (before, state)


@pytest.mark.parametrize(
    ("change", "columns"),
    [
        (lambda table: table.append_column("owner", pa.array(["x"])), [*COLUMNS, "owner"]),
        (lambda table: table.drop_columns(["run_id"]), COLUMNS[:-1]),
    ],
    ids=["more", "fewer"],
)
def test_ledger_error_says_to_update_when_a_newer_package_wrote_other_columns(
    make_job: Callable[..., Job], files: Files, change: Callable[[pa.Table], pa.Table], columns: list[str]
) -> None:
    job = make_job()
    job.bucket.put("a.csv")
    job.take()
    (name,) = files.names()
    out = io.BytesIO()
    pq.write_table(change(pq.read_table(io.BytesIO(files.read(name)))), out)
    files.write(name, out.getvalue())
    assert job.state is not None
    job.state["segments"][0]["files"][0].update(length=len(out.getvalue()), sha256=checksum(out.getvalue()))
    state = job.state

    with pytest.raises(LedgerError) as caught:
        job.take()

    assert name in caught.value.source
    assert f"(its columns are {', '.join(columns)}). Update the package." in str(caught.value)
    assert (files.names(), job.state) == ([name], state)


def test_error_names_ledger_uri_when_the_table_has_no_room_for_what_is_remembered(
    make_job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MAX_TABLE_BYTES", 1_000)
    job = Job()
    job.bucket.put(*(f"{number}.csv" for number in range(300)))

    with pytest.raises(TooLargeError) as caught:
        job.take()

    assert caught.value.limit == 1_000
    assert f"What is remembered of {SOURCE!r}, 300 objects: {caught.value.size:,} bytes" in str(caught.value)
    assert "Give a ledger_uri: then it is stored in files" in str(caught.value)
    assert job.state is None
    assert len(make_job(job.bucket).take()) == 300


def test_ledger_error_asks_for_the_uri_when_it_is_not_given_any_more(make_job: Callable[..., Job]) -> None:
    job = make_job()
    job.bucket.put("a.csv")
    job.take()

    with pytest.raises(LedgerError) as caught:
        job.bookmark(ledger_uri=None).new_files()

    assert caught.value.source == SOURCE
    assert "its file list is stored in files. Give the ledger_uri" in str(caught.value)


def test_ledger_error_says_what_may_be_wrong_when_another_uri_is_given(
    make_job: Callable[..., Job], tmp_path: Path
) -> None:
    job = make_job()
    job.bucket.put("a.csv")
    job.take()

    with pytest.raises(LedgerError, match="give the right ledger_uri"):
        job.bookmark(ledger_uri=f"{tmp_path}/other/").new_files()


@pytest.mark.parametrize("field", ["file", "length", "sha256", "first", "last"])
def test_ledger_error_is_raised_when_the_state_lacks_a_part_of_a_file(make_job: Callable[..., Job], field: str) -> None:
    job = make_job()
    job.bucket.put("a.csv")
    job.take()
    assert job.state is not None
    job.state["segments"][0]["files"][0].pop(field)

    with pytest.raises(LedgerError, match="its stored file list is damaged"):
        job.bookmark().ledger.read(job.segments()[0], "a", "b")


@pytest.mark.parametrize(
    "segment",
    [{"count": 1}, {"count": 1, "files": None}, {"count": 1, "packed": b"no names"}],
    ids=["missing", "none", "garbled"],
)
def test_ledger_error_says_damaged_when_executors_cannot_be_sent_the_names_of_files(segment: dict[str, Any]) -> None:
    with pytest.raises(LedgerError) as caught:
        ledger.FileLedger("s3://bucket/", [segment]).in_files()

    assert "'s3://bucket/'" in str(caught.value)
    assert "its stored file list is damaged" in str(caught.value)
    assert "Restore the job's item from a backup." in str(caught.value)


def test_ledger_error_names_the_right_when_the_bucket_of_the_ledger_is_not_there(endpoint: str) -> None:
    client = boto3.client("s3", endpoint_url=endpoint)
    job = Job(ledger_uri="s3://no-such-bucket-here/ledger/", s3_client=client)
    job.bucket.put("a.csv")

    with pytest.raises(LedgerError, match=r"s3:PutObject failed \(NoSuchBucket\)\. Check the ledger_uri"):
        job.take()

    assert job.state is None


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [(400, "ExpiredToken", CredentialsError), (503, "SlowDown", SourceUnavailableError)],
    ids=["login", "load"],
)
@pytest.mark.parametrize("act", ["put", "get"])
def test_ledger_is_not_to_blame_when_login_or_load_is_the_reason(
    act: str, status: int, code: str, kind: type[WatermarkError]
) -> None:
    client = boto3.client("s3", region_name="eu-west-2")
    files = SegmentFiles("s3://bucket/ledger/", client)
    acts = {"put": lambda: files.put(LEDGER.empty_table()), "get": lambda: files.get({"file": NAME, "length": 0})}

    with Stubber(client) as stub:
        stub.add_client_error(f"{act}_object", code, http_status_code=status)
        with pytest.raises(kind, match=code):
            acts[act]()


@pytest.mark.parametrize(
    ("status", "code", "text", "said"),
    [
        (403, "AccessDenied", "", "AWS refuses s3:PutObject on 's3://bucket/ledger/"),
        (403, "AccessDenied", "not authorized to perform: kms:GenerateDataKey on", "AWS refuses kms:GenerateDataKey"),
        (400, "KMS.DisabledException", "", "s3:PutObject failed (KMS.DisabledException). Check the ledger_uri"),
    ],
)
def test_error_names_the_action_and_what_to_check_when_s3_refuses_a_new_file(
    status: int, code: str, text: str, said: str
) -> None:
    client = boto3.client("s3", region_name="eu-west-2")

    with Stubber(client) as stub:
        stub.add_client_error("put_object", code, text, http_status_code=status)
        with pytest.raises((AccessRefusedError, LedgerError), match=re.escape(said)):
            SegmentFiles("s3://bucket/ledger/", client).put(LEDGER.empty_table())


@pytest.mark.parametrize(
    ("code", "text", "kind", "remedy"),
    [
        ("AccessDenied", "", AccessRefusedError, "AWS refuses s3:GetObject on 's3://bucket/ledger/"),
        ("AccessDenied", "not authorized to perform: kms:Decrypt", AccessRefusedError, "AWS refuses kms:Decrypt"),
        ("KMS.DisabledException", "", UnreadableObjectError, "check that the key is enabled"),
        ("InvalidObjectState", "", UnreadableObjectError, "that the object is not archived"),
        ("PermanentRedirect", "", UnreadableObjectError, "the region"),
    ],
)
def test_error_has_the_remedy_when_s3_refuses_to_read_a_file(
    code: str, text: str, kind: type[Exception], remedy: str
) -> None:
    client = boto3.client("s3", region_name="eu-west-2")

    with Stubber(client) as stub:
        stub.add_client_error("get_object", code, text, http_status_code=400)
        with pytest.raises(kind, match=remedy):
            SegmentFiles("s3://bucket/ledger/", client).get({"file": NAME, "length": 0})


def test_ledger_error_names_the_file_when_a_folder_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    job = Job(ledger_uri=f"{tmp_path}/taken/")
    job.bucket.put("a.csv")

    with pytest.raises(LedgerError, match=r"write failed \(File exists\)\. Check the ledger_uri, the rights"):
        job.take()

    assert job.state is None


@pytest.mark.parametrize("uri", [SOURCE, f"{SOURCE}ledger/", f"{SOURCE}ledger/".replace("s3:", "s3a:")])
def test_ledger_uri_is_refused_when_its_files_would_be_new_files(uri: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        Job(ledger_uri=uri).bookmark()

    assert str(caught.value) == (
        f"ledger_uri {uri!r} is in the source, so its files would be new there. "
        "Use another prefix, or a folder whose name starts with _."
    )


@pytest.mark.parametrize("uri", [f"{SOURCE}_ledger/", "s3://landing/parking-ledger/", "s3://landing/"])
def test_ledger_uri_is_accepted_when_its_files_are_no_new_files(uri: str) -> None:
    assert Job(ledger_uri=uri).bookmark().options.ledger_uri == uri


def test_rows_are_counted_and_read_by_range_when_they_lie_in_files(tmp_path: Path) -> None:
    files = SegmentFiles(f"{tmp_path}/ledger/")
    written = ledger.FileLedger("s3://raw/", (), files)
    tables = [pa.Table.from_pylist([ROW | {"key": key} for key in keys], LEDGER) for keys in ("ab", "mn")]
    found = ledger.FileLedger("s3://raw/", [written.stored(table) for table in tables], files)
    (tmp_path / "ledger" / found.files(found.segments[1])[0]["file"]).unlink()

    known = found.known(None, "c")

    assert found.count == 4
    assert known.between(None, "c").column("key").to_pylist() == ["a", "b"]
    with pytest.raises(LedgerError, match="could not be read"):
        found.known("c", "z")


@pytest.mark.parametrize("ends", [(), ("a", "b")], ids=["all", "range"])
@pytest.mark.parametrize(
    "segment",
    [
        {"count": 1, "packed": b"no names"},
        {"count": 1, "files": [{"file": NAME, "count": 1, "first": "a", "last": "b"}]},
    ],
    ids=["garbled", "no-hash"],
)
def test_ledger_error_says_damaged_when_all_or_a_range_of_it_is_read(
    tmp_path: Path, segment: dict[str, Any], ends: tuple[str, ...]
) -> None:
    found = ledger.FileLedger("s3://bucket/", [segment], SegmentFiles(f"{tmp_path}/ledger/"))

    with pytest.raises(LedgerError, match="its stored file list is damaged"):
        found.known(*ends)
