"""What remains after an error or an interruption: no run is doubled or lost, and no job is blocked forever."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError

from scripts.helpers.errors import StoreUnavailableError
from scripts.helpers.glue_api.errors import GlueApiError
from scripts.helpers.job_runs.client import JobRuns, SparkSubmit
from scripts.helpers.job_runs.job_record import MAX_SLOTS, Entry, JobRecord
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.job_runs.run_store import RunStore
from scripts.helpers.protocol import items
from scripts.helpers.protocol.store import Store
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.job_runs import Jobs

COMMAND = {"Name": "pythonshell", "ScriptLocation": "/jobs/a.py"}


def define(jobs: Jobs, *names: str, **more: Any) -> None:
    for name in names:
        jobs.create_job(Name=name, Command=COMMAND, **more)


CALLS: dict[str, Callable[[JobRuns, str], Any]] = {
    "StartJobRun": lambda jobs, _: jobs.start_job_run(JobName="parking"),
    "GetJobRun": lambda jobs, run_id: jobs.get_job_run(JobName="parking", RunId=run_id),
    "GetJobRuns": lambda jobs, _: jobs.get_job_runs(JobName="parking"),
    "BatchStopJobRun": lambda jobs, run_id: jobs.batch_stop_job_run(JobName="parking", JobRunIds=[run_id]),
}


def raising(error: Exception) -> Callable[..., Any]:
    def fail(**_: Any) -> Any:
        raise error

    return fail


def refuses(code: str) -> Callable[..., Any]:
    """Return a handler that answers a request of botocore with an error."""
    parsed = {"Error": {"Code": code, "Message": ""}, "ResponseMetadata": {}}
    return lambda **_: (SimpleNamespace(status_code=400), parsed)


def down(*_: Any, **__: Any) -> Any:
    raise StoreUnavailableError("t", "put_item", "Throttled")


# --- starts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrives", [False, True])
def test_start_returns_its_run_when_nobody_knows_whether_its_record_was_written(
    parked: Jobs, clock: Clock, monkeypatch: pytest.MonkeyPatch, arrives: bool, caplog: pytest.LogCaptureFixture
) -> None:
    define(parked, "job", MaxRetries=1)
    replace = Store.replace

    def unsure(self: Store, before: Any, after: Any, *more: Any) -> Any:
        is_run = after[items.RANGE_KEY]["S"].startswith(items.RUN_RECORD_PREFIX)
        answer = replace(self, before, after, *more) if arrives or not is_run else None
        return down() if is_run else answer

    monkeypatch.setattr(Store, "replace", unsure)
    run_id = parked.start("job")
    monkeypatch.undo()

    assert parked.run("job", run_id)["JobRunState"] == ("STARTING" if arrives else "WAITING")
    assert parked.scheduler.engine.launched == [run_id]
    assert caplog.messages == [f"event=start_unsure run={run_id} error=StoreUnavailableError"]
    clock.move(minutes=17)
    assert parked.run("job", run_id)["JobRunState"] == "ERROR"
    assert parked.states("job") == ["ERROR"]


def test_run_has_failed_when_the_shell_of_its_launcher_ends_with_an_error(
    parked: Jobs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise subprocess.CalledProcessError(2, "/bin/sh")

    monkeypatch.setattr(parked.scheduler.engine, "launch", broken)
    run = parked.run("parking", parked.start("parking"))

    assert run["JobRunState"] == "FAILED"
    assert run["ErrorMessage"] == "The launcher cannot be started: CalledProcessError."
    assert caplog.messages == [f"event=not_started job=parking run={run['Id']} error=CalledProcessError"]


def test_repeat_is_refused_when_the_run_was_never_recorded(
    parked: Jobs, clock: Clock, everything: Callable[[], Any]
) -> None:
    job = parked.scheduler.records.job("parking")
    run_id = "jr_" + "1" * 64
    parked.scheduler.records.write(job, job.started(run_id, clock()))
    clock.move(minutes=17)
    assert parked.run("parking", run_id)["JobRunState"] == "ERROR"
    before = everything()

    with pytest.raises(parked.exceptions.InvalidInputException, match="never recorded with its arguments"):
        parked.start("parking", JobRunId=run_id)

    assert everything() == before


def test_job_fits_into_its_item_when_its_lists_are_full(parked: Jobs, clock: Clock) -> None:
    entries = [Entry(f"jr_{number:064x}_attempt_10", clock()) for number in range(MAX_SLOTS + 500)]
    definition = {"ExecutionProperty": {"MaxConcurrentRuns": 10**6}, "DefaultArguments": {"--a": "x" * 65_000}}

    job = JobRecord("full", definition, tuple(entries[:MAX_SLOTS]), tuple(entries[MAX_SLOTS:]))

    assert parked.scheduler.records.write(None, job)
    assert not job.changed(waiting=()).has_free_slot


def test_start_returns_its_run_when_its_launcher_cannot_be_started_now(
    parked: Jobs, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(parked.scheduler, "start", down)
    run_id = parked.start("parking")
    monkeypatch.undo()

    assert caplog.messages == [f"event=start_unfinished run={run_id} error=StoreUnavailableError"]
    clock.move(minutes=17)
    assert parked.run("parking", run_id)["JobRunState"] == "ERROR"


# --- what is shown -------------------------------------------------------------------------------


def test_tenth_attempt_comes_first_when_attempts_are_listed(parked: Jobs) -> None:
    define(parked, "job", MaxRetries=10)
    run_id = first = parked.start("job")
    for _ in range(10):
        parked.pass_through("job", run_id, "RUNNING", "FAILED")
        run_id = parked.retried("job", run_id)
    assert run_id == f"{first}_attempt_10"

    found = parked.get_job_runs(JobName="job", MaxResults=5)
    more = parked.get_job_runs(JobName="job", NextToken=found["NextToken"])

    attempts = [run["Attempt"] for run in (*found["JobRuns"], *more["JobRuns"])]
    assert attempts == list(range(10, -1, -1))


def test_streaming_job_has_seven_days_when_no_timeout_is_given(parked: Jobs) -> None:
    parked.create_job(Name="stream", Command={"Name": "gluestreaming", "ScriptLocation": "/a.py"})

    assert parked.run("stream", parked.start("stream"))["Timeout"] == 10_080


def test_script_is_that_of_the_caller_s_folder_when_its_path_is_relative(
    parked: Jobs, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    parked.create_job(Name="job", Command={"Name": "pythonshell", "ScriptLocation": "a.py"})

    run_id = parked.start("job")

    record = parked.record("job", run_id)
    assert record.command["ScriptLocation"] == str(tmp_path / "a.py")


# --- errors of the table, under the names of Glue ------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "name", "text"),
    [
        (raising(ReadTimeoutError(endpoint_url="https://d")), "OperationTimeoutException", "failed: ReadTimeoutError"),
        (refuses("ThrottlingException"), "OperationTimeoutException", "failed: ThrottlingException. Try again later."),
        (raising(EndpointConnectionError(endpoint_url="https://d")), "InternalServiceException", "EndpointConnection"),
        (refuses("AccessDeniedException"), "AccessDeniedException", "AWS refuses dynamodb:"),
    ],
    ids=["late", "throttled", "down", "denied"],
)
@pytest.mark.parametrize("operation", CALLS)
def test_call_ends_with_glue_s_error_and_changes_nothing_when_the_table_fails(
    parked: Jobs,
    table: Watermarks,
    moto_process: str,
    everything: Callable[[], Any],
    operation: str,
    fault: Callable[..., Any],
    name: str,
    text: str,
) -> None:
    run_id, before = parked.start("parking"), everything()
    client = boto3.client("dynamodb", endpoint_url=moto_process, config=Config(retries={"total_max_attempts": 1}))
    client.meta.events.register("before-call.dynamodb", fault)
    jobs = JobRuns(Watermarks(table.table_name, client), SparkSubmit("logs"))

    with pytest.raises(GlueApiError) as caught:
        CALLS[operation](jobs, run_id)

    assert (type(caught.value).__name__, caught.value.operation_name) == (name, operation)
    assert text in caught.value.message
    assert everything() == before


@pytest.mark.parametrize("operation", ["StartJobRun", "BatchStopJobRun"])
def test_call_times_out_and_changes_nothing_when_others_keep_changing_the_job(
    parked: Jobs, everything: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    run_id = parked.start("parking")
    parked.pass_through("parking", run_id, "RUNNING", "SUCCEEDED")
    before = everything()
    monkeypatch.setattr(RunStore, "write", lambda *_: False)
    monkeypatch.setattr(parked.scheduler.records.store, "sleep", lambda _: None)

    with pytest.raises(parked.exceptions.OperationTimeoutException) as caught:
        CALLS[operation](parked, run_id)

    assert caught.value.message == "Others kept changing the job. Try again."
    assert everything() == before


def test_stop_times_out_when_others_keep_changing_the_run(parked: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = parked.start("parking")
    parked.pass_through("parking", run_id, "RUNNING")
    write_run = RunStore.write_run

    def after_a_heartbeat(self: RunStore, before: RunRecord, after: RunRecord) -> Any:
        write_run(self, before, before.renewed(parked.scheduler.clock(), timedelta(minutes=1)))
        return write_run(self, before, after)

    monkeypatch.setattr(RunStore, "write_run", after_a_heartbeat)

    with pytest.raises(parked.exceptions.OperationTimeoutException) as caught:
        parked.batch_stop_job_run(JobName="parking", JobRunIds=[run_id])

    assert caught.value.message == "Others kept changing the job run. Try again."
