"""Leftover files in the folder of a ledger, and how files there are deleted."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.stub import Stubber

from scripts.helpers.errors import (
    AccessRefusedError,
    CredentialsError,
    InvalidValueError,
    LedgerError,
)
from scripts.helpers.files.segment_files import SegmentFiles
from scripts.helpers.files.states import FilesPlan
from scripts.helpers.files.upkeep import DEFAULT_AGE, LedgerFolder, LeftOver, left_over, listed_folder, names_in
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


def file_of(job: Job, segment: int) -> dict[str, Any]:
    found: dict[str, Any] = job.segments()[segment]["files"][0]
    return found


# --- left over -----------------------------------------------------------------------------------------------------

LIVE, ORPHAN, HALF = ("a" * 32 + ".parquet", "b" * 32 + ".parquet", "." + "c" * 32 + ".parquet")


def listed(*names: str, modified: datetime = OLD) -> LedgerFolder:
    return LedgerFolder("s3://ledgers/", NOON, tuple(LeftOver(name, 10, modified) for name in names))


def test_only_what_nothing_refers_to_may_go_when_all_is_old() -> None:
    found = left_over({LIVE}, None, DEFAULT_AGE, listed(LIVE, ORPHAN, HALF, "notes.txt", f"x/{ORPHAN}"))

    assert [file.name for file in found.files] == [ORPHAN, HALF]
    assert (found.live, found.young, found.held, found.foreign, found.bytes) == (1, 0, 0, 2, 20)


@pytest.mark.parametrize("margin", [timedelta(days=8), timedelta(days=1)], ids=str)
def test_file_stays_when_it_is_younger_than_the_margin(margin: timedelta) -> None:
    edge = NOON - margin
    younger = listed(ORPHAN, modified=edge + timedelta(seconds=1))
    older = listed(LIVE, ORPHAN, modified=edge)

    young = left_over({LIVE}, None, margin, younger)
    old = left_over({LIVE}, None, margin, older)

    assert ((young.young, len(young.files)), (old.young, len(old.files))) == ((1, 0), (0, 1))


def test_file_stays_when_a_run_that_is_still_entered_may_have_written_it() -> None:
    """However old the file is: the run may take weeks, and its clock may be wrong by a day."""
    began = OLD + timedelta(hours=23)

    held = left_over({LIVE}, began, DEFAULT_AGE, listed(LIVE, ORPHAN))
    free = left_over({LIVE}, began + timedelta(hours=2), DEFAULT_AGE, listed(LIVE, ORPHAN))

    assert ((held.held, len(held.files)), (free.held, len(free.files))) == ((1, 0), (0, 1))


def test_nothing_may_go_when_no_job_refers_to_any_file_there() -> None:
    with pytest.raises(LedgerError, match="no job of this table refers to any file there"):
        left_over({"d" * 32 + ".parquet"}, None, DEFAULT_AGE, listed(ORPHAN))


def test_error_names_the_limit_when_files_of_less_than_a_day_are_to_go() -> None:
    with pytest.raises(InvalidValueError, match="at least 1 day"):
        left_over({LIVE}, None, timedelta(hours=23), listed(LIVE, ORPHAN))


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
    going = [file.name for file in listed_folder(files).files if file.name != names[1]]

    deleted = files.delete(going), files.delete(going)

    assert deleted == (2, 2)  # Deleting them again succeeds too.
    assert [file.name for file in listed_folder(files).files] == [names[1]]


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


def test_file_names_are_found_only_in_states_and_plans_of_files(job: Job) -> None:
    plan = FilesPlan(SOURCE, job.segments()[0], count=2, bytes=9, rest=job.segments()[1]).to_store()

    assert names_in(job.state) == names_in(plan) == {file_of(job, 0)["file"], file_of(job, 1)["file"]}
    assert names_in({"kind": "rows", "segments": job.segments()}) == set()
    assert names_in("2026-03-16") == set()
    with pytest.raises(LedgerError, match="format 2, not 1"):
        names_in(plan | {"format": 2})
