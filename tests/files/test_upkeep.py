"""A ledger looked after: flaws are found, what is left over is told from what is not, and lost parts are made anew."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.stub import Stubber

from scripts.helpers.errors import (
    AccessRefusedError,
    CorruptItemError,
    CredentialsError,
    InvalidValueError,
    LedgerError,
    UnreadableObjectError,
)
from scripts.helpers.files import ledger
from scripts.helpers.files.ledger import NO_FOLDER
from scripts.helpers.files.segment_files import SegmentFiles, checksum
from scripts.helpers.files.states import FilesPlan
from scripts.helpers.files.upkeep import DEFAULT_AGE, LedgerFolder, LedgerUpkeep, LeftOver, names_in
from scripts.helpers.listing.objects import LEDGER
from tests.support.buckets import NOON, SOURCE, Job

OLD = NOON - timedelta(days=30)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return f"{tmp_path}/ledger/"


@pytest.fixture
def job(folder: str) -> Job:
    """Return a job that remembers two segments: of 40 objects, and of 5 that came an hour later."""
    job = Job(ledger_uri=folder)
    job.bucket.put(*(f"a/{number:02}.csv" for number in range(40)))
    job.take()
    job.bucket.wait(hours=1)
    job.bucket.put(*(f"b/{number}.csv" for number in range(5)))
    job.take()
    job.bucket.wait(hours=1)
    return job


def upkeep(folder: str) -> LedgerUpkeep:
    return LedgerUpkeep(SOURCE, SegmentFiles(folder))


def file_of(job: Job, segment: int) -> dict[str, Any]:
    found: dict[str, Any] = job.segments()[segment]["files"][0]
    return found


def rewrite(folder: str, file: dict[str, Any], change: Callable[[pa.Table], pa.Table]) -> None:
    """Change the rows of a file, and what the state says of its bytes, so that only its rows are wrong."""
    out = io.BytesIO()
    pq.write_table(change(pq.read_table(f"{folder}{file['file']}")), out)
    Path(folder, file["file"]).write_bytes(out.getvalue())
    file.update(length=len(out.getvalue()), sha256=checksum(out.getvalue()))


# --- flaws ---------------------------------------------------------------------------------------------------------


def test_nothing_is_found_when_every_part_is_whole(job: Job, folder: str) -> None:
    in_table = Job()
    in_table.bucket.put("a.csv")
    in_table.take()

    assert upkeep(folder).flaws(job.segments()) == []
    assert LedgerUpkeep(SOURCE).flaws(in_table.segments()) == []


@pytest.mark.parametrize(
    ("kind", "spoil"),
    [
        ("missing", lambda folder, file: Path(folder, file["file"]).unlink()),
        ("damaged", lambda folder, file: Path(folder, file["file"]).write_bytes(b"PAR1")),
        ("damaged", lambda folder, file: rewrite(folder, file, lambda rows: rows.drop_columns(["run_id"]))),
        ("count", lambda folder, file: rewrite(folder, file, lambda rows: rows.slice(1))),
        ("unsorted", lambda folder, file: rewrite(folder, file, lambda rows: rows.take(list(range(39, -1, -1))))),
        ("unsorted", lambda folder, file: rewrite(folder, file, lambda rows: rows.take([0, *range(39)]))),
        ("ends", lambda folder, file: file.update(last="z.csv")),
    ],
    ids=["missing", "altered", "columns", "count", "order", "twice", "ends"],
)
def test_flaw_names_part_and_kind_when_a_file_is_spoiled(
    job: Job, folder: str, kind: str, spoil: Callable[[str, dict[str, Any]], Any]
) -> None:
    spoil(folder, file_of(job, 0))

    (flaw,) = upkeep(folder).flaws(job.segments())

    assert (flaw.kind, flaw.part.segment, flaw.part.name(2)) == (kind, 0, file_of(job, 0)["file"])
    assert "Source " not in flaw.detail


def test_flaw_names_the_segment_when_the_table_or_a_list_of_names_is_damaged(job: Job, folder: str) -> None:
    in_table = Job()
    in_table.bucket.put("a.csv")
    in_table.take()
    in_table.segments()[0]["count"] = 7  # type: ignore[index]
    job.segments()[0]["count"] = 7  # type: ignore[index]
    job.segments()[1]["files"][0].pop("count")

    (of_table,) = LedgerUpkeep(SOURCE).flaws(in_table.segments())
    of_files = upkeep(folder).flaws([job.segments()[0], {"count": 1, "packed": b"no names"}])

    assert (of_table.kind, of_table.part.name(1)) == ("damaged", "segment 1 of 1")
    assert [(flaw.kind, flaw.part.name(2)) for flaw in of_files] == [
        ("count", "segment 1 of 2"),
        ("damaged", "segment 2 of 2"),
    ]


@pytest.mark.parametrize(
    ("detail", "kind"), [("its file is gone", "missing"), ("its hash is another one", "damaged")], ids=["gone", "hash"]
)
def test_flaw_is_that_of_chunks_when_a_part_in_the_table_cannot_be_read(
    detail: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_table = Job()
    in_table.bucket.put("a.csv")
    in_table.take()

    def damaged(*_: Any) -> Any:
        raise CorruptItemError("parking", "s#1-0", detail)

    monkeypatch.setattr(ledger.FileLedger, "read", damaged)

    (flaw,) = LedgerUpkeep(SOURCE).flaws(in_table.segments())

    assert (flaw.kind, flaw.detail, flaw.part.name(1)) == (kind, detail, "segment 1 of 1")


def test_error_asks_for_the_uri_when_the_ledger_lies_in_files_and_none_is_given(job: Job) -> None:
    with pytest.raises(LedgerError) as caught:
        LedgerUpkeep(SOURCE).flaws(job.segments())

    assert str(caught.value) == f"Source {SOURCE!r}: {NO_FOLDER}"


@pytest.mark.parametrize(
    ("code", "kind"), [("AccessDenied", AccessRefusedError), ("ExpiredToken", CredentialsError)], ids=str
)
def test_error_is_raised_and_no_flaw_when_s3_does_not_say_whether_a_file_is_there(
    job: Job, code: str, kind: type[Exception]
) -> None:
    client = boto3.client("s3")
    files = SegmentFiles("s3://ledgers/", client)

    with Stubber(client) as stub:
        stub.add_client_error("head_object", code, http_status_code=403)
        with pytest.raises(kind):
            LedgerUpkeep(SOURCE, files).flaws(job.segments())


@pytest.mark.parametrize(
    ("code", "text", "kind", "remedy"),
    [
        ("AccessDenied", "", AccessRefusedError, "AWS refuses s3:GetObject on 's3://ledgers/"),
        ("AccessDenied", "not authorized to perform: kms:Decrypt", AccessRefusedError, "AWS refuses kms:Decrypt"),
        ("KMS.DisabledException", "", UnreadableObjectError, "check that the key is enabled"),
        ("InvalidObjectState", "", UnreadableObjectError, "that the object is not archived"),
        ("PermanentRedirect", "", UnreadableObjectError, "the region"),
    ],
)
def test_error_is_raised_and_no_flaw_when_s3_refuses_a_file(
    job: Job, code: str, text: str, kind: type[Exception], remedy: str
) -> None:
    client = boto3.client("s3")
    files = SegmentFiles("s3://ledgers/", client)

    with Stubber(client) as stub:
        stub.add_response("head_object", {})
        stub.add_client_error("get_object", code, text, http_status_code=400)
        with pytest.raises(kind, match=remedy):
            LedgerUpkeep(SOURCE, files).flaws(job.segments())


# --- left over -----------------------------------------------------------------------------------------------------

LIVE, ORPHAN, HALF = ("a" * 32 + ".parquet", "b" * 32 + ".parquet", "." + "c" * 32 + ".parquet")


def listed(*names: str, modified: datetime = OLD) -> LedgerFolder:
    return LedgerFolder("s3://ledgers/", NOON, tuple(LeftOver(name, 10, modified) for name in names))


def test_only_what_nothing_refers_to_may_go_when_all_is_old(folder: str) -> None:
    found = upkeep(folder).left_over({LIVE}, None, DEFAULT_AGE, listed(LIVE, ORPHAN, HALF, "notes.txt", f"x/{ORPHAN}"))

    assert [file.name for file in found.files] == [ORPHAN, HALF]
    assert (found.live, found.young, found.held, found.foreign, found.bytes) == (1, 0, 0, 2, 20)


@pytest.mark.parametrize("margin", [timedelta(days=8), timedelta(days=1)], ids=str)
def test_file_stays_when_it_is_younger_than_the_margin(folder: str, margin: timedelta) -> None:
    edge = NOON - margin
    younger = listed(ORPHAN, modified=edge + timedelta(seconds=1))
    older = listed(LIVE, ORPHAN, modified=edge)

    young = upkeep(folder).left_over({LIVE}, None, margin, younger)
    old = upkeep(folder).left_over({LIVE}, None, margin, older)

    assert ((young.young, len(young.files)), (old.young, len(old.files))) == ((1, 0), (0, 1))


def test_file_stays_when_a_run_that_is_still_entered_may_have_written_it(folder: str) -> None:
    """However old: the run may be at work for weeks, and its clock be wrong by a day."""
    began = OLD + timedelta(hours=23)

    held = upkeep(folder).left_over({LIVE}, began, DEFAULT_AGE, listed(LIVE, ORPHAN))
    free = upkeep(folder).left_over({LIVE}, began + timedelta(hours=2), DEFAULT_AGE, listed(LIVE, ORPHAN))

    assert ((held.held, len(held.files)), (free.held, len(free.files))) == ((1, 0), (0, 1))


def test_nothing_may_go_when_no_job_refers_to_any_file_there(folder: str) -> None:
    with pytest.raises(LedgerError, match="no job of this table refers to any file there"):
        upkeep(folder).left_over({"d" * 32 + ".parquet"}, None, DEFAULT_AGE, listed(ORPHAN))


def test_error_names_the_limit_when_files_of_less_than_a_day_are_to_go(folder: str) -> None:
    with pytest.raises(InvalidValueError, match="at least 1 day"):
        upkeep(folder).left_over({LIVE}, None, timedelta(hours=23), listed(LIVE, ORPHAN))


def test_error_says_so_when_the_ledger_has_no_folder() -> None:
    with pytest.raises(LedgerError, match="its ledger is in the table"):
        LedgerUpkeep(SOURCE).listed()


@pytest.mark.parametrize("where", ["local", "s3"])
def test_named_files_are_gone_and_no_other_when_they_are_deleted(
    request: pytest.FixtureRequest, where: str, folder: str
) -> None:
    uri, client = folder, None
    if where == "s3":
        client = boto3.client("s3", endpoint_url=request.getfixturevalue("endpoint"))
        uri = f"s3://{request.getfixturevalue('bucket')}/ledger/"
    files = SegmentFiles(uri, client)
    rows = pa.Table.from_pylist([{"key": "a"}], LEDGER)
    names = [files.put(rows)["file"] for _ in range(3)]
    looked_after = LedgerUpkeep(SOURCE, files)
    going = [file for file in looked_after.listed().files if file.name != names[1]]

    deleted = looked_after.delete(going), looked_after.delete(going)

    assert deleted == (2, 2)  # The second time there is nothing to do.
    assert [file.name for file in looked_after.listed().files] == [names[1]]
    assert files.exists({"file": names[1]})
    assert not files.exists({"file": names[0]})


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        ("AccessDenied", AccessRefusedError, "s3:DeleteObject on 's3://ledgers/"),
        ("InternalError", LedgerError, "^Source 's3://ledgers/[^']+': it could not be deleted"),
    ],
)
def test_error_names_the_file_when_s3_deletes_others_and_not_that_one(
    code: str, kind: type[Exception], text: str
) -> None:
    client = boto3.client("s3")

    with Stubber(client) as stub:
        stub.add_response("delete_objects", {"Errors": [{"Key": f"marks/{ORPHAN}", "Code": code}]})
        with pytest.raises(kind, match=text) as caught:
            SegmentFiles("s3://ledgers/marks/", client).delete([LIVE, ORPHAN])

    assert f"s3://ledgers/marks/{ORPHAN}" in str(caught.value)


@pytest.mark.parametrize(
    ("code", "status", "kind", "text"),
    [
        ("AccessDenied", 403, AccessRefusedError, f"AWS refuses s3:DeleteObject on 's3://ledgers/marks/{LIVE}'"),
        ("NoSuchBucket", 404, LedgerError, f"s3://ledgers/marks/{LIVE}"),
        ("ExpiredToken", 400, CredentialsError, "ExpiredToken"),
    ],
    ids=["right", "bucket", "login"],
)
def test_error_names_the_first_file_when_s3_refuses_to_delete_any(
    code: str, status: int, kind: type[Exception], text: str
) -> None:
    client = boto3.client("s3")

    with Stubber(client) as stub:
        stub.add_client_error("delete_objects", code, http_status_code=status)
        with pytest.raises(kind, match=text):
            SegmentFiles("s3://ledgers/marks/", client).delete([LIVE, ORPHAN])


def test_access_refused_when_a_local_file_may_not_be_deleted(folder: str) -> None:
    os.makedirs(f"{folder}{ORPHAN}")

    with pytest.raises(AccessRefusedError, match="delete"):
        SegmentFiles(folder).delete([ORPHAN])


def test_names_are_those_of_files_and_of_states_of_files_only(job: Job) -> None:
    plan = FilesPlan(SOURCE, job.segments()[0], count=2, bytes=9, rest=job.segments()[1]).to_store()

    assert names_in(job.state, "") == names_in(plan, "") == {file_of(job, 0)["file"], file_of(job, 1)["file"]}
    assert names_in({"kind": "rows", "segments": job.segments()}, "") == set()
    assert names_in("2026-03-16", "") == set()
    with pytest.raises(LedgerError, match="format 2, not 1"):
        names_in(plan | {"format": 2}, "")
