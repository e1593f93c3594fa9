"""`JobBookmarks`: Glue's calls, shapes, counts and errors over our table."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError, OperationNotPageableError, ReadTimeoutError
from botocore.session import get_session
from botocore.validate import ParamValidator

from scripts.helpers.errors import FencedError, StoreUnavailableError, TableNotFoundError
from scripts.helpers.glue.bookmarks import JobBookmarks
from scripts.helpers.glue_api import errors
from scripts.helpers.glue_api.errors import (
    EntityNotFoundException,
    GlueApiError,
    InternalServiceException,
    InvalidInputException,
    OperationTimeoutException,
    ValidationException,
)
from scripts.helpers.protocol.items import log_key
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.faults import ONE_ATTEMPT, Wire
from tests.support.steps import commit

MODEL = get_session().get_service_model("glue")
JOB = "parking"
FILES: dict[str, Any] = {"kind": "files", "source": "s3://landing/", "format": 1, "mode": "exact"}


@pytest.fixture
def bookmarks(watermarks: Watermarks) -> JobBookmarks:
    return JobBookmarks(watermarks)


def commit_rows(watermarks: Watermarks, run_id: str, value: int) -> None:
    commit(watermarks, JOB, run_id, {"repairs": rows(value)})


def rows(value: int) -> dict[str, Any]:
    return {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": value}


def fail(watermarks: Watermarks, run_id: str) -> None:
    watermarks.begin(JOB, run_id).abort()


def counts(entry: dict[str, Any]) -> tuple[int, int, int, str | None, str | None]:
    return entry["Version"], entry["Run"], entry["Attempt"], entry.get("PreviousRunId"), entry.get("RunId")


def values(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: state["value"] for name, state in json.loads(entry["JobBookmark"]).items()}


@pytest.mark.parametrize(
    "damaged",
    [
        {**rows(5), "cursor_column": b"x"},
        {**FILES, "segments": 5},
        {**FILES, "segments": "x"},
        {**FILES, "segments": [{}]},
    ],
    ids=["cursor_column", "a number", "a text", "a count is missing"],
)
def test_internal_error_names_the_field_when_a_state_is_damaged(
    watermarks: Watermarks, bookmarks: JobBookmarks, damaged: dict[str, Any]
) -> None:
    commit(watermarks, JOB, "jr_1", {"repairs": damaged})
    calls: list[Callable[[], Any]] = [
        lambda: bookmarks.get_job_bookmark(JobName=JOB),
        lambda: bookmarks.get_job_bookmark(JobName=JOB, Version=1),
        lambda: bookmarks.get_job_bookmark(JobName=JOB, RunId="jr_1"),
        lambda: bookmarks.get_job_bookmarks(JobName=JOB),
    ]

    for call, item in zip(calls, ["~latest", "!c#", "jr_1", "!c#"], strict=True):
        with pytest.raises(InternalServiceException, match=rf"Item '{item}.*: watermarks\.repairs\.\w+.* is "):
            call()


# --- shapes and counts -----------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["GetJobBookmark", "ResetJobBookmark"])
def test_answer_has_the_shape_of_the_service_model_when_validated(
    watermarks: Watermarks, bookmarks: JobBookmarks, operation: str
) -> None:
    commit_rows(watermarks, "jr_1", 5)
    commit_rows(watermarks, "jr_2", 9)
    call = {"GetJobBookmark": bookmarks.get_job_bookmark, "ResetJobBookmark": bookmarks.reset_job_bookmark}[operation]

    answer = call(JobName=JOB, RunId="jr_2")

    shape: Any = MODEL.operation_model(operation).output_shape
    assert ParamValidator().validate(answer, shape).generate_report() == ""
    assert answer["JobBookmarkEntry"].keys() == shape.members["JobBookmarkEntry"].members.keys()


def test_bookmark_counts_versions_runs_and_attempts_when_runs_succeed_and_fail(
    watermarks: Watermarks, bookmarks: JobBookmarks, clock: Clock
) -> None:
    seen = []
    for step, run_id in [
        (commit_rows, "jr_1"),
        (fail, "jr_2"),
        (fail, "jr_3"),
        (commit_rows, "jr_4"),
        (commit_rows, "jr_5"),
    ]:
        step(watermarks, run_id, *([int(run_id[3:])] if step is commit_rows else []))  # type: ignore[operator]
        seen.append(counts(bookmarks.get_job_bookmark(JobName=JOB)["JobBookmarkEntry"]))

    assert seen == [
        (1, 1, 0, None, "jr_1"),
        (1, 1, 0, None, "jr_1"),  # The attempt count grows when the next run begins.
        (1, 1, 1, None, "jr_1"),
        (2, 2, 2, "jr_1", "jr_4"),
        (3, 3, 0, "jr_4", "jr_5"),
    ]


def test_bookmark_of_the_run_is_returned_when_a_later_run_has_committed(
    watermarks: Watermarks, bookmarks: JobBookmarks
) -> None:
    commit_rows(watermarks, "jr_1", 5)
    commit_rows(watermarks, "jr_2", 9)

    entry = bookmarks.get_job_bookmark(JobName=JOB, RunId="jr_1")["JobBookmarkEntry"]

    assert (counts(entry), values(entry)) == ((1, 1, 0, None, "jr_1"), {"repairs": 5})


def test_bookmark_is_that_of_the_version_when_one_is_asked_for(watermarks: Watermarks, bookmarks: JobBookmarks) -> None:
    for number in (1, 2, 3):
        commit_rows(watermarks, f"jr_{number}", number * 10)

    found = bookmarks.get_job_bookmark(JobName=JOB, Version=2)["JobBookmarkEntry"]

    assert (found["Version"], found["RunId"], values(found)) == (2, "jr_2", {"repairs": 20})
    assert bookmarks.get_job_bookmark(JobName=JOB, Version=2, RunId="jr_2")["JobBookmarkEntry"] == found


@pytest.mark.parametrize("asked", [{"Version": 4}, {"Version": 2, "RunId": "jr_1"}], ids=str)
def test_version_is_not_found_when_there_is_none_or_another_run_made_it(
    watermarks: Watermarks, bookmarks: JobBookmarks, asked: dict[str, Any]
) -> None:
    for number in (1, 2, 3):
        commit_rows(watermarks, f"jr_{number}", number)

    with pytest.raises(EntityNotFoundException, match="Continuation for job parking"):
        bookmarks.get_job_bookmark(JobName=JOB, **asked)


@pytest.mark.parametrize("version", [0, -1, True, 1.0, "1"], ids=repr)
def test_version_is_refused_when_it_is_no_whole_number_from_1(bookmarks: JobBookmarks, version: Any) -> None:
    with pytest.raises(ValidationException, match="it must be a whole number from 1"):
        bookmarks.get_job_bookmark(JobName=JOB, Version=version)


def test_bookmark_is_the_last_of_the_run_when_it_committed_twice(
    watermarks: Watermarks, bookmarks: JobBookmarks
) -> None:
    commit_rows(watermarks, "jr_1", 5)
    commit_rows(watermarks, "jr_1", 7)
    commit_rows(watermarks, "jr_2", 9)

    entry = bookmarks.get_job_bookmark(JobName=JOB, RunId="jr_1")["JobBookmarkEntry"]

    assert (counts(entry), values(entry)) == ((2, 2, 0, "jr_1", "jr_1"), {"repairs": 7})


def test_bookmark_shows_a_chunked_state_when_it_can_be_read_back(
    watermarks: Watermarks, bookmarks: JobBookmarks
) -> None:
    run = watermarks.begin(JOB, "jr_1")
    run.freeze({"repairs": {}}, {"repairs": rows(5) | {"note": bytes(range(256)) * 1_600}})
    run.commit()

    entry = bookmarks.get_job_bookmark(JobName=JOB)["JobBookmarkEntry"]

    assert json.loads(entry["JobBookmark"]) == {
        "repairs": {"kind": "rows", "column": "id", "type": "bigint", "value": 5}
    }


# --- reads -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("dynamodb")
def test_get_is_one_strongly_consistent_read_when_the_job_has_a_bookmark(
    make_watermarks: Callable[..., Watermarks], endpoint: str
) -> None:
    watermarks = make_watermarks()
    commit_rows(watermarks, "jr_1", 5)
    client = boto3.client("dynamodb", endpoint_url=endpoint)
    wire = Wire(client)

    JobBookmarks(Watermarks(watermarks.table_name, client)).get_job_bookmark(JobName=JOB)

    assert [(request.operation, request.body["ConsistentRead"]) for request in wire.requests] == [("GetItem", True)]


@pytest.mark.usefixtures("dynamodb")
def test_every_read_is_strongly_consistent_when_pages_and_runs_are_read(
    make_watermarks: Callable[..., Watermarks], endpoint: str
) -> None:
    watermarks = make_watermarks()
    for number in range(1, 4):
        commit_rows(watermarks, f"jr_{number}", number)
    client = boto3.client("dynamodb", endpoint_url=endpoint)
    wire = Wire(client)
    bookmarks = JobBookmarks(Watermarks(watermarks.table_name, client))

    bookmarks.get_job_bookmark(JobName=JOB, RunId="jr_1")
    of_run = len(wire.requests)
    bookmarks.get_job_bookmarks(JobName=JOB, MaxResults=2)

    assert all(request.body["ConsistentRead"] for request in wire.requests)
    assert (of_run, len(wire.requests)) == (4, 6)
    assert wire.writes == []


# --- pages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "tokens"), [(2, [4, 2, 1]), (5, [1]), (4, [2, 1]), (200, [1])])
def test_pages_hold_every_version_once_in_decreasing_order_when_followed(
    watermarks: Watermarks, bookmarks: JobBookmarks, size: int, tokens: list[int]
) -> None:
    for number in range(1, 6):
        commit_rows(watermarks, f"jr_{number}", number)

    pages = [bookmarks.get_job_bookmarks(JobName=JOB, MaxResults=size)]
    while pages[-1]["NextToken"] > 1:
        pages.append(bookmarks.get_job_bookmarks(JobName=JOB, MaxResults=size, NextToken=pages[-1]["NextToken"]))

    entries = [entry for page in pages for entry in page["JobBookmarkEntries"]]
    assert [page["NextToken"] for page in pages] == tokens
    assert [entry["Version"] for entry in entries] == [5, 4, 3, 2, 1]
    assert [values(entry)["repairs"] for entry in entries] == [5, 4, 3, 2, 1]


def test_page_has_nothing_new_when_a_run_commits_in_between(watermarks: Watermarks, bookmarks: JobBookmarks) -> None:
    for number in range(1, 4):
        commit_rows(watermarks, f"jr_{number}", number)
    first = bookmarks.get_job_bookmarks(JobName=JOB, MaxResults=1)

    commit_rows(watermarks, "jr_4", 4)
    second = bookmarks.get_job_bookmarks(JobName=JOB, MaxResults=1, NextToken=first["NextToken"])

    assert [page["JobBookmarkEntries"][0]["Version"] for page in (first, second)] == [3, 2]


def test_page_is_empty_and_the_last_when_the_token_says_that_all_is_returned(
    watermarks: Watermarks, bookmarks: JobBookmarks
) -> None:
    commit_rows(watermarks, "jr_1", 5)

    assert bookmarks.get_job_bookmarks(JobName=JOB, NextToken=1) == {"JobBookmarkEntries": [], "NextToken": 1}


# --- reset -----------------------------------------------------------------------------------------


def test_reset_empties_the_bookmark_and_keeps_counting_when_no_run_is_given(
    watermarks: Watermarks, bookmarks: JobBookmarks
) -> None:
    commit_rows(watermarks, "jr_1", 5)

    entry = bookmarks.reset_job_bookmark(JobName=JOB)["JobBookmarkEntry"]

    assert (counts(entry), entry["JobBookmark"]) == ((2, 1, 0, "jr_1", None), "{}")
    assert bookmarks.get_job_bookmark(JobName=JOB)["JobBookmarkEntry"] == entry
    assert watermarks.begin(JOB, "jr_2").watermarks == {}


def test_reset_goes_back_to_what_the_run_left_when_a_run_is_given(
    watermarks: Watermarks, bookmarks: JobBookmarks
) -> None:
    for number in (1, 2, 3):
        commit_rows(watermarks, f"jr_{number}", number)

    entry = bookmarks.reset_job_bookmark(JobName=JOB, RunId="jr_1")["JobBookmarkEntry"]

    assert (counts(entry), values(entry)) == ((4, 3, 0, "jr_3", "jr_1"), {"repairs": 1})
    last = watermarks.history(JOB)[0].change
    assert (last.op, last.why) == ("REWIND", "ResetJobBookmark with RunId")


def test_reset_fences_the_run_at_work_when_it_commits_afterwards(
    watermarks: Watermarks, bookmarks: JobBookmarks
) -> None:
    commit_rows(watermarks, "jr_1", 5)
    run = watermarks.begin(JOB, "jr_2")
    run.freeze({"repairs": {}}, {"repairs": rows(9)})

    bookmarks.reset_job_bookmark(JobName=JOB)

    with pytest.raises(FencedError):
        run.commit()
    assert bookmarks.get_job_bookmark(JobName=JOB)["JobBookmarkEntry"]["JobBookmark"] == "{}"


# --- errors ----------------------------------------------------------------------------------------

Call = Callable[[JobBookmarks], Any]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda api: api.get_job_bookmark(JobName="barking"), "Continuation for job barking not found"),
        (lambda api: api.get_job_bookmarks(JobName="barking"), "Continuation for job barking not found"),
        (lambda api: api.reset_job_bookmark(JobName="barking"), "Continuation for job barking not found"),
        (lambda api: api.get_job_bookmark(JobName="begun"), "Continuation for job begun not found"),
        (lambda api: api.get_job_bookmarks(JobName="begun"), "Continuation for job begun not found"),
        (
            lambda api: api.get_job_bookmark(JobName=JOB, RunId="jr_9"),
            "Continuation for job parking and run jr_9 not found",
        ),
        (
            lambda api: api.reset_job_bookmark(JobName=JOB, RunId="jr_9"),
            "Continuation for job parking and run jr_9 not found",
        ),
    ],
    ids=["get", "list", "reset", "get-begun", "list-begun", "get-run", "reset-run"],
)
def test_entity_not_found_is_raised_when_a_job_or_run_has_no_bookmark(
    watermarks: Watermarks, bookmarks: JobBookmarks, call: Call, text: str
) -> None:
    commit_rows(watermarks, "jr_1", 5)
    watermarks.begin("begun", "jr_1")

    with pytest.raises(bookmarks.exceptions.EntityNotFoundException) as caught:
        call(bookmarks)

    assert caught.value.response["Error"] == {"Code": "EntityNotFoundException", "Message": text}
    assert isinstance(caught.value, LookupError)
    assert watermarks.latest(JOB).version == 1


@pytest.mark.parametrize("name", ["", "j" * 256, "ü" * 128, 7, b"x", None], ids=repr)
@pytest.mark.parametrize(
    ("call", "error"),
    [
        (JobBookmarks.get_job_bookmark, ValidationException),
        (JobBookmarks.get_job_bookmarks, InvalidInputException),
        (JobBookmarks.reset_job_bookmark, InvalidInputException),
    ],
    ids=["get", "list", "reset"],
)
def test_job_name_is_refused_when_it_has_not_1_to_255_bytes(
    bookmarks: JobBookmarks, call: Callable[..., Any], error: type[GlueApiError], name: Any
) -> None:
    with pytest.raises(error, match=r"JobName (has|is a)") as caught:
        call(bookmarks, JobName=name)

    assert caught.value.response["Error"]["Code"] == error.__name__
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("run_id", ["", "r" * 256, 7], ids=repr)
def test_run_id_is_refused_and_nothing_changes_when_it_has_not_1_to_255_bytes(
    watermarks: Watermarks, bookmarks: JobBookmarks, run_id: Any
) -> None:
    commit_rows(watermarks, "jr_1", 5)

    with pytest.raises(ValidationException, match=r"RunId (has|is a)"):
        bookmarks.get_job_bookmark(JobName=JOB, RunId=run_id)
    with pytest.raises(InvalidInputException, match=r"RunId (has|is a)"):
        bookmarks.reset_job_bookmark(JobName=JOB, RunId=run_id)

    assert watermarks.latest(JOB).version == 1


def test_names_of_255_bytes_are_taken_when_nothing_is_there(bookmarks: JobBookmarks) -> None:
    with pytest.raises(EntityNotFoundException, match="not found"):
        bookmarks.get_job_bookmark(JobName="j" * 255, RunId="r" * 255)


@pytest.mark.parametrize("name", ["~latest", "job*", "jöb"])
def test_job_name_is_refused_when_the_table_cannot_have_it(bookmarks: JobBookmarks, name: str) -> None:
    with pytest.raises(InvalidInputException, match=r"Job name .* is not allowed"):
        bookmarks.get_job_bookmark(JobName=name)


@pytest.mark.parametrize("results", [0, 201, -1, "5", True, 1.0], ids=repr)
def test_page_size_is_refused_when_it_is_not_1_to_200(bookmarks: JobBookmarks, results: Any) -> None:
    with pytest.raises(InvalidInputException, match=r"MaxResults is .*; it must be 1 to 200"):
        bookmarks.get_job_bookmarks(JobName=JOB, MaxResults=results)


def test_paginator_goes_through_all_versions_when_there_are_more_than_a_page(
    bookmarks: JobBookmarks, watermarks: Watermarks
) -> None:
    for number in range(1, 6):
        commit_rows(watermarks, f"jr_{number}", number)

    pages = list(bookmarks.get_paginator("get_job_bookmarks").paginate(JobName=JOB, PaginationConfig={"PageSize": 2}))

    found = [[entry["Version"] for entry in page["JobBookmarkEntries"]] for page in pages]
    assert found == [[5, 4], [3, 2], [1]]
    with pytest.raises(OperationNotPageableError):
        bookmarks.get_paginator("get_job_bookmark")


@pytest.mark.parametrize("token", [0, -1, "2", True], ids=repr)
def test_token_is_refused_when_no_page_gives_it(bookmarks: JobBookmarks, token: Any) -> None:
    with pytest.raises(InvalidInputException, match=r"NextToken is .*; give that of the page before"):
        bookmarks.get_job_bookmarks(JobName=JOB, NextToken=token)


def test_arguments_are_refused_when_they_have_no_keyword_as_in_boto3(bookmarks: JobBookmarks) -> None:
    with pytest.raises(TypeError, match="positional argument"):
        bookmarks.get_job_bookmark(JOB)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'RunName'"):
        bookmarks.get_job_bookmark(JobName=JOB, RunName="jr_1")  # type: ignore[call-arg]


@pytest.mark.usefixtures("dynamodb")
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (ReadTimeoutError(endpoint_url="https://dynamodb"), OperationTimeoutException),
        (EndpointConnectionError(endpoint_url="https://dynamodb"), InternalServiceException),
    ],
    ids=["late", "down"],
)
@pytest.mark.parametrize(
    "call",
    [
        lambda api: api.get_job_bookmark(JobName=JOB),
        lambda api: api.get_job_bookmarks(JobName=JOB),
        lambda api: api.reset_job_bookmark(JobName=JOB),
    ],
    ids=["get", "list", "reset"],
)
def test_glues_error_is_raised_when_the_table_times_out_or_is_down(
    watermarks: Watermarks, endpoint: str, call: Call, fault: Exception, error: type[GlueApiError]
) -> None:
    client = boto3.client("dynamodb", endpoint_url=endpoint, config=ONE_ATTEMPT)
    client.meta.events.register("before-send.dynamodb", lambda **_: (_ for _ in ()).throw(fault))

    with pytest.raises(error, match=f"on table '{watermarks.table_name}' failed: .*(Try again|or try) later") as caught:
        call(JobBookmarks(Watermarks(watermarks.table_name, client)))

    assert isinstance(caught.value.__cause__, StoreUnavailableError)


def test_internal_error_names_create_table_when_the_table_does_not_exist(dynamodb: Any) -> None:
    with pytest.raises(InternalServiceException, match=r"no DynamoDB table 'nowhere'.*create_table") as caught:
        JobBookmarks(Watermarks("nowhere", dynamodb)).get_job_bookmark(JobName=JOB)

    assert isinstance(caught.value.__cause__, TableNotFoundError)


def test_history_stays_whole_when_log_entries_have_expired(
    make_watermarks: Callable[..., Watermarks], clock: Clock
) -> None:
    watermarks = make_watermarks(retention=timedelta(days=1))
    for number in range(1, 4):
        commit_rows(watermarks, f"jr_{number}", number)
    watermarks.store.delete(JOB, log_key(1))

    page = JobBookmarks(watermarks).get_job_bookmarks(JobName=JOB, MaxResults=2)

    assert ([entry["Version"] for entry in page["JobBookmarkEntries"]], page["NextToken"]) == ([3, 2], 1)
    with pytest.raises(EntityNotFoundException, match="job parking and run jr_1 not found"):
        JobBookmarks(watermarks).get_job_bookmark(JobName=JOB, RunId="jr_1")


def test_exceptions_hold_every_error_of_the_model_when_looked_up_as_on_a_client(bookmarks: JobBookmarks) -> None:
    for operation in ("GetJobBookmark", "ResetJobBookmark", "StartJobRun", "GetJobRuns", "BatchStopJobRun"):
        for shape in MODEL.operation_model(operation).error_shapes:
            assert issubclass(getattr(bookmarks.exceptions, shape.name), errors.GlueApiError)


def test_client_names_its_table_when_it_is_printed(bookmarks: JobBookmarks, watermarks: Watermarks) -> None:
    assert repr(bookmarks) == f"JobBookmarks({watermarks!r})"
