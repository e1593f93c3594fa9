"""EMR Serverless as the engine: its API over moto's, and over botocore's model where moto does not end a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.job_runs import EmrServerless, ids
from scripts.helpers.job_runs.job_record import JobRecord
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.job_runs import Jobs

ROLE = "arn:aws:iam::123456789012:role/jobs"
APPLICATION, THERE = "00abc", "00run"
RUN_ID = "jr_" + "1" * 64
ARN = f"arn:aws:emr-serverless:eu-west-2:123456789012:/applications/{APPLICATION}/jobruns/{THERE}"
COMMAND = {"Name": "glueetl", "ScriptLocation": "s3://scripts/jobs/parking.py"}
MOMENT = datetime(2026, 3, 16, tzinfo=timezone.utc)
Make = Callable[[Any, str], Jobs]


@pytest.fixture
def make(table: Watermarks, clock: Clock) -> Make:
    """Return a builder of jobs on an application, one of them defined: ``parking``."""

    def build(client: Any, application: str) -> Jobs:
        engine = EmrServerless(
            client, application, ROLE, scripts=["s3://scripts/jobs/"], conf={"spark.executor.cores": "2"}
        )
        made = Jobs(table, engine, clock=clock)
        made.create_job(Name="parking", Command=COMMAND, Timeout=30, MaxRetries=1)
        return made

    return build


@pytest.fixture
def emulated(moto_process: str, make: Make) -> Jobs:
    """Return jobs on an application of moto, which starts runs, shows them as RUNNING, and cancels them."""
    client = boto3.client("emr-serverless", endpoint_url=moto_process)
    made = client.create_application(name="jobs", releaseLabel="emr-7.0.0", type="SPARK")
    return make(client, made["applicationId"])


@pytest.fixture
def answers() -> Iterator[Stubber]:
    """Return a client of botocore that gives prepared answers, each checked against the service's model."""
    with Stubber(boto3.client("emr-serverless")) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


@pytest.fixture
def jobs(make: Make, answers: Stubber) -> Jobs:
    return make(answers.client, APPLICATION)


def starts(answers: Stubber) -> None:
    answers.add_response("start_job_run", {"applicationId": APPLICATION, "jobRunId": THERE, "arn": ARN})


def shows(answers: Stubber, run_id: str, state: str, **more: Any) -> None:
    """Prepare the answer of one look."""
    shown = {
        "applicationId": APPLICATION, "jobRunId": THERE, "arn": ARN, "createdBy": ROLE, "createdAt": MOMENT,
        "updatedAt": MOMENT, "executionRole": ROLE, "state": state, "stateDetails": "as it is",
        "releaseLabel": "emr-7.0.0",
        "jobDriver": {"sparkSubmit": {"entryPoint": "s3://scripts/jobs/parking.py"}},
        "name": ids.of_all_jobs("parking", run_id),
    }  # fmt: skip
    answers.add_response("get_job_run", {"jobRun": shown | more}, {"applicationId": APPLICATION, "jobRunId": THERE})


def test_run_is_submitted_with_its_script_arguments_and_settings_when_started(jobs: Jobs, answers: Stubber) -> None:
    answers.add_response(
        "start_job_run",
        {"applicationId": APPLICATION, "jobRunId": THERE, "arn": ARN},
        {
            "applicationId": APPLICATION, "executionRoleArn": ROLE, "clientToken": ANY, "name": ANY,
            "executionTimeoutMinutes": 30,
            "jobDriver": {
                "sparkSubmit": {
                    "entryPoint": "s3://scripts/jobs/parking.py",
                    "entryPointArguments": ANY,
                    "sparkSubmitParameters": (
                        "--conf spark.executor.cores=2 --conf 'spark.executor.memory=2 g' "
                        "--py-files s3://scripts/jobs/a.zip"
                    ),
                }
            },
        },
    )  # fmt: skip

    run_id = jobs.start(
        "parking",
        Arguments={"--day": "two words", "--conf": "spark.executor.memory=2 g", "--extra-py-files": "s3://scripts/jobs/a.zip"},
    )  # fmt: skip

    record = jobs.record("parking", run_id)
    assert (record.state, record.launcher, record.lease) == ("RUNNING", f"emr-serverless:{THERE}", None)
    arguments = jobs.engine._rules().arguments(record)
    assert (arguments[:2], arguments[-2:]) == (["--day", "two words"], ["--JOB_RUN_ID", run_id])


def test_overrides_of_the_application_go_with_each_run_when_the_engine_has_some(
    jobs: Jobs, answers: Stubber, clock: Clock
) -> None:
    overrides = {"monitoringConfiguration": {"s3MonitoringConfiguration": {"logUri": "s3://logs/"}}}
    engine = replace(jobs.engine, configuration=overrides)
    run = JobRecord("parking", {"Command": COMMAND}).new_run(RUN_ID, {}, clock())
    names = ("applicationId", "clientToken", "executionRoleArn", "executionTimeoutMinutes", "jobDriver", "name")
    answers.add_response(
        "start_job_run",
        {"applicationId": APPLICATION, "jobRunId": THERE, "arn": ARN},
        dict.fromkeys(names, ANY) | {"configurationOverrides": overrides},
    )

    assert engine.launch(run, {}) == f"emr-serverless:{THERE}"


def test_run_succeeds_when_an_emulator_carries_it_out(emulated: Jobs) -> None:
    run_id = emulated.start("parking")
    begun = emulated.record("parking", run_id)

    found = emulated.run("parking", run_id)

    assert (begun.state, found["JobRunState"]) == ("RUNNING", "SUCCEEDED")
    assert emulated.scheduler.records.job("parking").active == ()


def test_run_is_stopped_when_it_is_cancelled_in_an_emulator(emulated: Jobs) -> None:
    run_id = emulated.start("parking")
    emulated.pass_through("parking", run_id, "STOPPING")
    emulated.engine.cancel(emulated.record("parking", run_id))

    assert emulated.run("parking", run_id)["JobRunState"] == "STOPPED"


def test_run_is_cancelled_until_it_is_gone_when_it_is_asked_to_stop(
    jobs: Jobs, answers: Stubber, caplog: pytest.LogCaptureFixture
) -> None:
    starts(answers)
    run_id = jobs.start("parking")
    key = {"applicationId": APPLICATION, "jobRunId": THERE}
    shows(answers, run_id, "RUNNING")
    answers.add_client_error("cancel_job_run", "InternalServerException", http_status_code=500)
    shows(answers, run_id, "RUNNING")
    answers.add_response("cancel_job_run", key, key)
    shows(answers, run_id, "CANCELLED")

    jobs.batch_stop_job_run(JobName="parking", JobRunIds=[run_id])
    jobs.tend("parking")
    between = jobs.record("parking", run_id).state
    jobs.tend("parking")

    assert (between, jobs.record("parking", run_id).state) == ("STOPPING", "STOPPED")
    assert caplog.messages == [f"event=cancel_failed run={run_id} error=InternalServerException"]


@pytest.mark.parametrize(
    ("state", "more", "expected", "error"),
    [
        ("SUCCESS", {}, "SUCCEEDED", None),
        ("CANCELLED", {"stateDetails": "by me"}, "STOPPED", "by me"),
        ("CANCELLED", {"stateDetails": "late", "totalExecutionDurationSeconds": 1_800}, "TIMEOUT", "late"),
        ("SUCCESS", {"name": "another"}, "ERROR", f"Run emr-serverless:{THERE} of EMR Serverless is another one."),
    ],
)
def test_run_ends_as_it_did_there_when_a_worker_looks(
    jobs: Jobs, answers: Stubber, state: str, more: dict[str, Any], expected: str, error: str | None
) -> None:
    jobs.update_job(JobName="parking", JobUpdate={"Command": COMMAND, "Timeout": 30})
    starts(answers)
    run_id = jobs.start("parking")
    shows(answers, run_id, state, **more)

    found = jobs.run("parking", run_id)

    assert (found["JobRunState"], found.get("ErrorMessage")) == (expected, error)
    assert jobs.scheduler.records.job("parking").active == ()


@pytest.mark.parametrize("state", ["SUBMITTED", "PENDING", "SCHEDULED", "QUEUED", "RUNNING", "CANCELLING"])
def test_run_goes_on_for_days_when_it_does_so_there(jobs: Jobs, answers: Stubber, clock: Clock, state: str) -> None:
    starts(answers)
    run_id = jobs.start("parking")
    clock.move(days=3)
    shows(answers, run_id, state)

    assert jobs.run("parking", run_id)["JobRunState"] == "RUNNING"


def test_run_stays_as_it_is_known_and_a_warning_says_so_when_nobody_answers_there(
    jobs: Jobs, answers: Stubber, caplog: pytest.LogCaptureFixture
) -> None:
    starts(answers)
    run_id = jobs.start("parking")
    answers.add_client_error("get_job_run", "InternalServerException", http_status_code=500)

    assert jobs.run("parking", run_id)["JobRunState"] == "RUNNING"
    assert f"event=look_failed run={run_id} error=InternalServerException" in caplog.messages


def test_run_is_an_error_when_it_is_not_known_there_any_more(jobs: Jobs, answers: Stubber, clock: Clock) -> None:
    starts(answers)
    run_id = jobs.start("parking")
    answers.add_client_error("get_job_run", "ResourceNotFoundException", http_status_code=404)

    found = jobs.engine.look(jobs.record("parking", run_id), clock())

    assert (found.state, found.completed_on) == ("ERROR", clock())
    assert found.error == f"EMR Serverless has no run emr-serverless:{THERE} any more."


def test_failed_run_is_retried_when_it_failed_there(jobs: Jobs, answers: Stubber) -> None:
    starts(answers)
    run_id = jobs.start("parking")
    shows(answers, run_id, "FAILED", stateDetails="no such bucket")
    starts(answers)

    started = jobs.tend("parking")

    assert (jobs.record("parking", run_id).state, jobs.record("parking", run_id).error) == ("FAILED", "no such bucket")
    assert started == [{"JobName": "parking", "JobRunId": f"{run_id}_attempt_1"}]


def test_end_is_shown_and_not_written_when_somebody_only_looks(
    jobs: Jobs, answers: Stubber, everything: Callable[[], Any]
) -> None:
    starts(answers)
    run_id = jobs.start("parking")
    before = everything()
    shows(answers, run_id, "SUCCESS")

    assert jobs.wait("parking", run_id)["JobRunState"] == "SUCCEEDED"
    assert everything() == before


def test_same_run_is_started_again_when_the_answer_to_its_start_was_lost(
    jobs: Jobs, answers: Stubber, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    tokens: list[str] = []

    def note(params: dict[str, Any], **_: Any) -> None:
        tokens.append(params["clientToken"])

    jobs.engine.client.meta.events.register("provide-client-params.*.StartJobRun", note)
    answers.add_client_error("start_job_run", "InternalServerException", http_status_code=500)
    run_id = jobs.start("parking")
    early = jobs.run("parking", run_id)["JobRunState"]
    clock.move(minutes=17)
    starts(answers)

    assert (early, jobs.run("parking", run_id)["JobRunState"]) == ("STARTING", "RUNNING")
    assert f"event=start_unsure run={run_id} error=InternalServerException" in caplog.text
    assert len(tokens) == 2
    assert len(set(tokens)) == 1


@pytest.mark.parametrize("at_once", [True, False], ids=["at-start", "when-repeated"])
def test_run_is_an_error_when_the_application_refuses_it(
    jobs: Jobs, answers: Stubber, clock: Clock, at_once: bool
) -> None:
    if not at_once:
        answers.add_client_error("start_job_run", "ThrottlingException")
    answers.add_client_error("start_job_run", "ResourceNotFoundException", "Application 00abc does not exist.")

    run_id = jobs.start("parking")
    clock.move(minutes=17)
    found = jobs.run("parking", run_id)

    assert found["JobRunState"] == "ERROR"
    assert "EMR Serverless refuses run" in found["ErrorMessage"]
    assert "Application 00abc does not exist." in found["ErrorMessage"]


@pytest.mark.parametrize(
    ("definition", "request_", "text"),
    [
        ({"Command": {"Name": "pythonshell", "ScriptLocation": "s3://scripts/jobs/a.py"}}, {}, "is a pythonshell job"),
        ({"Command": {"ScriptLocation": "s3://other/a.py"}}, {}, "is not in a place"),
        ({"Command": COMMAND, "Timeout": 4}, {}, "a Timeout of 4 minutes, and EMR Serverless takes 5 at least"),
        ({"Command": COMMAND}, {"Arguments": {"--e": ""}}, "'--e': it is empty"),
        ({"Command": COMMAND}, {"Arguments": {"--conf": "spark.jars=s3://x/a.jar"}}, "it sets 'spark.jars'"),
    ],
)
def test_run_is_refused_before_anything_is_asked_or_written_when_it_cannot_run_there(
    jobs: Jobs, everything: Callable[[], Any], definition: dict[str, Any], request_: dict[str, Any], text: str
) -> None:
    jobs.update_job(JobName="parking", JobUpdate=definition)
    before = everything()

    with pytest.raises(jobs.exceptions.InvalidInputException, match=text):
        jobs.start_job_run(JobName="parking", **request_)

    assert everything() == before


def test_engine_is_refused_when_its_scripts_are_on_this_machine() -> None:
    with pytest.raises(InvalidValueError, match="'/srv/jobs' is not on S3"):
        EmrServerless(None, APPLICATION, ROLE, scripts=["/srv/jobs"])


def logging_to(uri: str) -> dict[str, Any]:
    return {"monitoringConfiguration": {"s3MonitoringConfiguration": {"logUri": uri}}}


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("s3://bucket/jobs/logs/", "s3://bucket/jobs/"), ("s3://bucket/jobs", "s3://bucket/jobs/"),
        ("s3a://bucket/jobs/logs", "s3://bucket/jobs/"), ("s3://bucket/jobs/", "s3a://bucket/jobs/a.py"),
        ("s3://bucket", "s3://bucket/jobs/"),
    ],
)  # fmt: skip
def test_engine_is_refused_when_its_logs_would_be_among_the_scripts(uri: str, place: str) -> None:
    with pytest.raises(InvalidValueError, match="neither is inside the other") as refused:
        EmrServerless(None, APPLICATION, ROLE, scripts=["s3://x/", place], configuration=logging_to(uri))

    assert repr(uri) in str(refused.value)
    assert repr(place) in str(refused.value)


@pytest.mark.parametrize("uri", ["s3://bucket/jobs-logs/", "s3://bucket/job", "s3://other/jobs/", ""])
def test_engine_is_made_when_its_logs_are_beside_the_scripts(uri: str) -> None:
    engine = EmrServerless(None, APPLICATION, ROLE, scripts=["s3://bucket/jobs/"], configuration=logging_to(uri))

    assert engine.configuration == logging_to(uri)


def at_a_launcher(run_id: str, clock: Clock) -> RunRecord:
    """Return a run as a launcher of ours has it, without a lease."""
    run = JobRecord("parking", {"Command": COMMAND}).new_run(run_id, {}, clock())
    return replace(run.to("STARTING", clock()).to("RUNNING", clock()), launcher="host:1")


def test_run_of_a_launcher_is_left_to_it_when_a_worker_of_emr_looks(jobs: Jobs, clock: Clock) -> None:
    running = at_a_launcher(RUN_ID, clock).renewed(clock(), timedelta(hours=1))

    assert jobs.scheduler.seen(running) is running


@pytest.mark.parametrize(("state", "expected"), [("SUCCESS", "SUCCEEDED"), ("RUNNING", "RUNNING")])
def test_run_is_read_all_the_same_when_its_record_was_altered_to_one_that_starts(
    jobs: Jobs, answers: Stubber, state: str, expected: str
) -> None:
    starts(answers)
    run_id = jobs.start("parking")
    running = jobs.record("parking", run_id)
    jobs.scheduler.records.write_run(running, replace(running, state="STARTING", token="t"))
    shows(answers, run_id, state)

    assert jobs.run("parking", run_id)["JobRunState"] == expected


def test_run_of_a_launcher_is_an_error_when_it_is_lost_and_its_job_has_moved_to_emr(jobs: Jobs, clock: Clock) -> None:
    run_id = jobs.scheduler.records.change_job("parking", lambda job: job.started(RUN_ID, clock())).active[0].run_id
    running = at_a_launcher(run_id, clock).renewed(clock(), timedelta(minutes=1))
    jobs.scheduler.records.write_run(None, running)

    clock.move(minutes=16)
    healthy = jobs.run("parking", run_id)
    clock.move(seconds=1)
    shown = jobs.get_job_run(JobName="parking", RunId=run_id)["JobRun"]
    lost = jobs.run("parking", run_id)

    assert [run["JobRunState"] for run in (healthy, shown, lost)] == ["RUNNING", "ERROR", "ERROR"]
    assert jobs.scheduler.records.job("parking").active == ()


def test_run_is_cancelled_in_the_same_pass_when_it_was_stopped_before_its_start_was_answered(
    jobs: Jobs, answers: Stubber, clock: Clock
) -> None:
    answers.add_client_error("start_job_run", "InternalServerException", http_status_code=500)
    run_id = jobs.start("parking")
    jobs.batch_stop_job_run(JobName="parking", JobRunIds=[run_id])
    clock.move(minutes=17)
    key = {"applicationId": APPLICATION, "jobRunId": THERE}
    starts(answers)
    answers.add_response("cancel_job_run", key, key)

    jobs.tend("parking")

    record = jobs.record("parking", run_id)
    assert (record.state, record.launcher) == ("STOPPING", f"emr-serverless:{THERE}")
