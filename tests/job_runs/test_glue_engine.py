"""AWS Glue as the engine: every call is passed to the client unchanged."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from scripts.helpers.job_runs.client import Glue, JobRuns
from tests.support.places import REGION

COMMAND = {"Name": "glueetl", "ScriptLocation": "s3://b/a.py"}


@pytest.fixture
def client(mocked_aws: None) -> Any:
    return boto3.client("glue", region_name=REGION)


def test_jobs_and_runs_are_those_of_glue_when_it_is_the_engine(client: Any) -> None:
    jobs = JobRuns(engine=Glue(client))
    jobs.create_job(Name="on-glue", Role="role", Command=COMMAND, ExecutionProperty={"MaxConcurrentRuns": 3})

    first = jobs.start_job_run(JobName="on-glue", Arguments={"--a": "1"})["JobRunId"]
    second = jobs.start_job_run(JobName="on-glue", JobRunId=first)["JobRunId"]

    assert jobs.get_job(JobName="on-glue")["Job"]["Command"] == client.get_job(JobName="on-glue")["Job"]["Command"]
    found = jobs.get_job_run(JobName="on-glue", RunId=first)
    assert found["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert found["JobRun"]["Arguments"] == {"--a": "1"}
    assert jobs.get_job_run(JobName="on-glue", RunId=second)["JobRun"]["PreviousRunId"] == first
    assert {run["Id"] for run in jobs.get_job_runs(JobName="on-glue")["JobRuns"]} == {first, second}
    assert jobs.wait("on-glue", second)["JobRunState"] == "SUCCEEDED"
    jobs.delete_job(JobName="on-glue")


def test_error_is_the_client_s_own_when_a_run_is_unknown(client: Any) -> None:
    jobs = JobRuns(engine=Glue(client))

    with pytest.raises(jobs.exceptions.EntityNotFoundException):
        jobs.get_job_run(JobName="nope", RunId="nope")

    assert jobs.exceptions is client.exceptions


CALLS = [
    (
        "batch_stop_job_run",
        {"JobName": "a", "JobRunIds": ["jr_1"]},
        {"SuccessfulSubmissions": [{"JobName": "a", "JobRunId": "jr_1"}], "Errors": []},
    ),
    ("update_job", {"JobName": "a", "JobUpdate": {"Command": COMMAND}}, {"JobName": "a"}),
    ("start_job_run", {"JobName": "a", "JobRunQueuingEnabled": True, "ExecutionClass": "FLEX"}, {"JobRunId": "jr_1"}),
    ("get_job_runs", {"JobName": "a", "MaxResults": 200, "NextToken": "t"}, {"JobRuns": [], "NextToken": "u"}),
    ("start_trigger", {"Name": "t"}, {"Name": "t"}),
    ("stop_trigger", {"Name": "t"}, {"Name": "t"}),
    ("get_trigger", {"Name": "t"}, {"Trigger": {"Name": "t"}}),
    ("delete_trigger", {"Name": "t"}, {"Name": "t"}),
]


@pytest.mark.parametrize(("operation", "request_", "answer"), CALLS, ids=[call[0] for call in CALLS])
def test_request_and_answer_pass_unchanged_when_glue_is_the_engine(
    operation: str, request_: dict[str, Any], answer: dict[str, Any]
) -> None:
    client = boto3.client("glue", region_name=REGION)
    jobs = JobRuns(engine=Glue(client))

    with Stubber(client) as stub:
        stub.add_response(operation, answer, request_)
        found = getattr(jobs, operation)(**request_)

    assert found == answer
    stub.assert_no_pending_responses()


def test_paginator_is_the_client_s_own_when_glue_is_the_engine(client: Any) -> None:
    jobs = JobRuns(engine=Glue(client))
    jobs.create_job(Name="paged", Role="role", Command=COMMAND, ExecutionProperty={"MaxConcurrentRuns": 5})
    made = {jobs.start_job_run(JobName="paged")["JobRunId"] for _ in range(3)}

    pages = list(jobs.get_paginator("get_job_runs").paginate(JobName="paged", PaginationConfig={"PageSize": 2}))

    assert [len(page["JobRuns"]) for page in pages] == [2, 1]
    assert {run["Id"] for page in pages for run in page["JobRuns"]} == made
    assert jobs.get_paginator("get_triggers").result_keys
    jobs.delete_job(JobName="paged")


def test_other_calls_of_the_client_are_there_when_glue_is_the_engine(client: Any, table: Any) -> None:
    assert JobRuns(engine=Glue(client)).get_job_bookmark.__name__ == "get_job_bookmark"

    with pytest.raises(AttributeError, match=r"has no attribute 'get_job_bookmark'\. Call it on JobBookmarks"):
        JobRuns(table).get_job_bookmark(JobName="parking")
