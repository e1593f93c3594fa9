"""Ranges of runs on Glue. An end may be a run that never committed, because Glue knows when it started."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError, NoRegionError
from botocore.stub import Stubber

from scripts.helpers.errors import AccessRefusedError, NothingThereError
from scripts.helpers.glue import GlueContext, Job
from scripts.helpers.glue_api import runs
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from tests.glue.options import ENABLE, PAUSE, Put
from tests.support.reasons import because

Take = Callable[..., list[str]]
JOB = "between"


@pytest.fixture
def take(live: Watermarks, landing: str) -> Take:
    """Return a function that runs the job once and returns the files that it takes."""

    def run(run_id: str, **args: str) -> list[str]:
        given = {"JOB_NAME": JOB, "JOB_RUN_ID": run_id} | ENABLE | args
        with IncrementalJob.from_args(given, live) as job:
            return [file.key for file in job.new_files(landing).files]

    return run


@pytest.fixture
def failed(endpoint: str, monkeypatch: pytest.MonkeyPatch, take: Take, put: Put) -> Iterator[str]:
    """Return the id of a run that Glue started after the first of three commits, and pose as a Glue job."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    glue = boto3.client("glue")
    glue.create_job(Name=JOB, Role="role", Command={"Name": "glueetl", "ScriptLocation": "s3://b/a.py"})
    put("a")
    take("jr_1")
    run_id: str = glue.start_job_run(JobName=JOB)["JobRunId"]
    for number, name in ((2, "b"), (3, "c")):
        put(name)
        take(f"jr_{number}")
    put("d")
    monkeypatch.setattr(runs, "on_glue", lambda: True)
    yield run_id
    glue.delete_job(JobName=JOB)


@pytest.fixture
def asked(failed: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubber]:
    """Return a stub of Glue, which returns only the responses that a test adds."""
    client = boto3.client("glue")
    with Stubber(client) as stub:
        monkeypatch.setattr(boto3, "client", lambda *_, **__: client)
        yield stub


def between(start: str, end: str) -> dict[str, str]:
    return {**PAUSE, "job_bookmark_from": start, "job_bookmark_to": end}


def test_failed_run_stands_for_the_success_before_it_when_glue_tells_its_start(failed: str, take: Take) -> None:
    found = [take("jr_p", **between(*ends)) for ends in ((failed, "jr_3"), ("jr_1", failed), (failed, failed))]

    assert found == [["b", "c"], [], []]


def test_script_reads_after_a_failed_run_when_its_arguments_name_it(
    failed: str, glue_context: GlueContext, live: Watermarks, landing: str
) -> None:
    job = Job(glue_context, live)
    job.init(JOB, between(failed, "jr_2"))
    frame = glue_context.create_dynamic_frame.from_options(
        "file", {"paths": [landing]}, "json", transformation_ctx="files"
    )

    assert [path.rpartition("/")[2] for path in frame.toDF().inputFiles()] == ["b"]
    job.commit()
    assert live.latest(JOB).version == 3


def test_glue_is_not_asked_when_both_runs_have_committed(asked: Stubber, take: Take) -> None:
    found = take("jr_p", **between("jr_1", "jr_2"))

    assert found == ["b"]


def test_glue_is_not_asked_when_this_is_no_glue_job(
    asked: Stubber, failed: str, take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "on_glue", lambda: False)

    with pytest.raises(
        NothingThereError, check=because("unplaced_run"), match=f"Run '{failed}' of job 'between' never committed"
    ):
        take("jr_p", **between(failed, "jr_2"))


def test_job_is_asked_for_by_its_own_name_when_it_runs_in_a_namespace(asked: Stubber, take: Take) -> None:
    started = {"JobRun": {"Id": "jr_x", "StartedOn": datetime(2020, 1, 1, tzinfo=timezone.utc)}}
    asked.add_response("get_job_run", started, {"JobName": JOB, "RunId": "jr_x"})
    take("jr_n", BOOKMARK_CONTEXT="north")

    found = take("jr_p", **between("jr_x", "jr_n"), BOOKMARK_CONTEXT="north")

    assert found == ["a", "b", "c", "d"]
    asked.assert_no_pending_responses()


def test_range_is_refused_with_the_permission_when_the_role_may_not_ask(asked: Stubber, take: Take) -> None:
    asked.add_client_error("get_job_run", "AccessDeniedException")

    with pytest.raises(AccessRefusedError) as caught:
        take("jr_p", **between("jr_x", "jr_2"))

    assert str(caught.value) == "AWS refuses glue:GetJobRun on 'between'. Allow it in the role's policy."


@pytest.mark.parametrize("fault", ["unknown", "no network"])
def test_range_is_refused_and_the_reason_logged_when_glue_does_not_tell(
    fault: str, asked: Stubber, take: Take, live: Watermarks, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(**_: Any) -> None:
        raise EndpointConnectionError(endpoint_url="https://glue")

    if fault == "unknown":
        asked.add_client_error("get_job_run", "EntityNotFoundException")
        asked.add_client_error("get_job_run", "EntityNotFoundException")
    else:
        asked.client.meta.events.register_first("before-call.glue.GetJobRun", fail)
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(NothingThereError, check=because("unplaced_run"), match="the commit before it is unknown"),
    ):
        take("jr_p", **between("jr_x", "jr_2"))

    (first, _) = [record.message for record in caplog.records if record.name == runs.__name__]
    expected = {"unknown": "glue_does_not_tell", "no network": "glue_not_asked"}[fault]
    assert f"event={expected} job=between run=jr_x error=" in first
    assert live.latest(JOB).version == 3


def test_glue_is_not_asked_and_the_reason_logged_when_there_is_no_client(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise NoRegionError

    monkeypatch.setattr(runs, "on_glue", lambda: True)
    monkeypatch.setattr(boto3, "client", fail)

    assert list(runs.runs_on_glue(JOB, ["jr_x"])) == []
    assert caplog.messages == ["event=glue_not_asked job=between error=NoRegionError"]
