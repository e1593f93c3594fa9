"""Requests and answers are compared with Glue's service model in botocore, and bad input is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import botocore.session
import pytest
from botocore.loaders import create_loader
from botocore.validate import ParamValidator

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.glue_api import errors
from scripts.helpers.job_runs import shapes
from scripts.helpers.job_runs.client import JobRuns
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.job_runs import Jobs

MODEL = botocore.session.get_session().get_service_model("glue")
OPERATIONS = [
    "BatchStopJobRun", "CreateJob", "DeleteJob", "GetJob", "GetJobRun", "GetJobRuns", "StartJobRun", "UpdateJob",
]  # fmt: skip
OPTIONAL_HERE = {"CreateJob.Role"}
"""Members that Glue requires but that have no meaning outside Glue."""
RUN_ID = "jr_" + "0" * 64
COMMAND = {"ScriptLocation": "/a.py"}


def is_shape(answer: Any, operation: str) -> None:
    """Check that an answer has the output shape of an operation."""
    metadata = answer.pop("ResponseMetadata", None)
    assert metadata is None or metadata["HTTPStatusCode"] == 200
    shape: Any = MODEL.operation_model(operation).output_shape
    report = ParamValidator().validate(answer, shape)
    assert not report.has_errors(), report.generate_report()


def differences(ours: Any, theirs: Any, path: str) -> list[str]:
    """Compare our shape with the model's shape: ours may be narrower."""
    if ours.type_name != theirs.type_name:
        return [f"{path}: {ours.type_name}, not {theirs.type_name}"]
    found, rules, limits = [], ours.metadata, theirs.metadata
    if rules.get("max", 0) > limits.get("max", rules.get("max", 0)) or rules.get("min", 0) < limits.get("min", 0):
        found.append(f"{path}: {rules}, not {limits}")
    if not set(rules.get("enum", ())) <= set(limits.get("enum", rules.get("enum", ()))):
        found.append(f"{path}: one of {theirs.enum}")
    if ours.type_name == "list":
        found += differences(ours.member, theirs.member, f"{path}[]")
    if ours.type_name == "map":
        found += differences(ours.key, theirs.key, f"{path}, a name")
        found += differences(ours.value, theirs.value, f"{path}, a member")
    if ours.type_name == "structure":
        assert ours.members.keys() == theirs.members.keys(), path
        for name in ours.members.keys() - shapes.NOT_TAKEN:
            found += differences(ours.members[name], theirs.members[name], f"{path}.{name}")
        required = {f"{path}.{name}" for name in set(theirs.required_members) - set(ours.required_members)}
        found += [f"{name} is required" for name in required - OPTIONAL_HERE]
    return found


@pytest.mark.parametrize("operation", OPERATIONS)
def test_request_is_glue_s_when_compared_with_its_model(operation: str) -> None:
    ours, theirs = (model.operation_model(operation).input_shape for model in (shapes.model(), MODEL))

    assert differences(ours, theirs, operation) == []


@pytest.mark.parametrize("operation", ["StartJobRun", "GetJobRun", "GetJobRuns", "BatchStopJobRun"])
def test_every_member_is_taken_when_the_operation_is_one_of_runs(operation: str) -> None:
    theirs: Any = MODEL.operation_model(operation).input_shape

    assert theirs.members.keys() & shapes.NOT_TAKEN == set()


@pytest.fixture
def older_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a model without those request members that botocore 1.29 does not have."""
    raw = create_loader().load_service_model("glue", "service-2")
    older = dict(raw["shapes"])
    for name in ("CreateJobRequest", "JobUpdate", "StartJobRunRequest"):
        members = older[name]["members"].items()
        known = {member: shape for member, shape in members if member not in ("JobMode", "JobRunQueuingEnabled")}
        older[name] = {**older[name], "members": known}
    made = shapes.with_ours({**raw, "shapes": older})
    monkeypatch.setattr(shapes, "model", lambda: made)


@pytest.mark.usefixtures("older_botocore")
def test_newer_member_is_refused_when_botocore_is_older(parked: Jobs) -> None:
    with pytest.raises(
        parked.exceptions.InvalidInputException, match=r"'JobMode' is not known; .*in botocore \d"
    ) as refused:
        parked.create_job(Name="n", Command=COMMAND, JobMode="SCRIPT")

    assert "NumberOfWorkers" in str(refused.value)


def test_answers_are_of_glue_s_shapes_when_every_operation_is_called(parked: Jobs, clock: Clock) -> None:
    definition = {
        "Command": {"Name": "glueetl", "ScriptLocation": "s3://scripts/a.py", "PythonVersion": "3"},
        "Role": "role", "Description": "d", "MaxRetries": 1, "Timeout": 5, "GlueVersion": "4.0", "WorkerType": "G.1X",
        "NumberOfWorkers": 2, "ExecutionProperty": {"MaxConcurrentRuns": 2}, "ExecutionClass": "STANDARD",
        "DefaultArguments": {"--a": "1"}, "NonOverridableArguments": {"--b": "2"}, "JobRunQueuingEnabled": False,
        "NotificationProperty": {"NotifyDelayAfter": 1}, "Connections": {"Connections": ["c"]}, "JobMode": "SCRIPT",
        "SecurityConfiguration": "s", "LogUri": "u", "MaintenanceWindow": "Sun:1",
    }  # fmt: skip

    is_shape(parked.create_job(Name="full", Tags={"a": "b"}, **definition), "CreateJob")
    is_shape(parked.update_job(JobName="full", JobUpdate=definition | {"MaxRetries": 2}), "UpdateJob")
    job = parked.get_job(JobName="full")
    is_shape(job, "GetJob")
    started = parked.start("full", Timeout=7)
    runs = parked.get_job_runs(JobName="full")
    is_shape(runs, "GetJobRuns")
    is_shape(parked.get_job_run(JobName="full", RunId=started, PredecessorsIncluded=True), "GetJobRun")
    is_shape(parked.batch_stop_job_run(JobName="full", JobRunIds=[started, RUN_ID]), "BatchStopJobRun")
    clock.move(hours=1)
    ended = parked.run("full", started)
    is_shape({"JobRun": ended}, "GetJobRun")
    is_shape(parked.delete_job(JobName="full"), "DeleteJob")

    assert job["Job"] | definition | {"MaxRetries": 2} == job["Job"]
    assert {"Timeout": 7, "WorkerType": "G.1X", "Arguments": {"--a": "1", "--b": "2"}}.items() <= ended.items()
    assert {"CompletedOn", "ErrorMessage", "NumberOfWorkers"} <= ended.keys()


BAD = [
    ("start_job_run", {}, ["'JobName' is missing"]),
    ("start_job_run", {"JobName": ""}, ["'JobName'", "greater than or equal to 1"]),
    ("start_job_run", {"JobName": "n" * 256}, ["'JobName'", "less than or equal to 255 (it has 256 bytes)"]),
    ("start_job_run", {"JobName": "é" * 128}, ["(it has 256 bytes)"]),
    ("start_job_run", {"JobName": "a\nb"}, ["'JobName'", "regular expression pattern"]),
    ("start_job_run", {"JobName": 5}, ["'JobName' must be of type string, not int"]),
    ("start_job_run", {"JobName": "parking", "Timeout": 0}, ["Value 0 at 'Timeout'", "greater than or equal to 1"]),
    ("start_job_run", {"JobName": "parking", "Timeout": True}, ["must be of type integer, not bool"]),
    ("start_job_run", {"JobName": "parking", "Arguments": {"--n": 1}}, ["'--n'", "must be of type string, not int"]),
    ("start_job_run", {"JobName": "parking", "Arguments": {"--JOB_RUN_ID": "x"}}, ["--JOB_RUN_ID", "Leave it out"]),
    ("start_job_run", {"JobName": "parking", "Arguments": {"--n": "x" * 70_000}}, ["70,", "65,536"]),
    ("start_job_run", {"JobName": "parking", "Argument": {}}, ["'Argument' is not known; known are AllocatedCapacity"]),
    ("start_job_run", {"JobName": "parking", "ExecutionClass": "FAST"}, ["enum value set: [FLEX, STANDARD]"]),
    ("start_job_run", {"JobName": "parking", "Arguments": {"--n": "x\0"}}, ["'--n'", "without NUL"]),
    ("start_job_run", {"JobName": "parking", "Arguments": {"--n": "\ud800"}}, ["'--n'", "surrogate"]),
    ("start_job_run", {"JobName": "parking", "Arguments": {"": "x"}}, ["''", "greater than or equal to 1"]),
    ("start_job_run", {"JobName": "\ud800"}, ["'JobName'", "surrogate"]),
    ("start_job_run", {"JobName": "parking", "MaxCapacity": float("nan")}, ["'MaxCapacity'", "must be a number"]),
    ("start_job_run", {"JobName": "parking", "MaxCapacity": float("-inf")}, ["'MaxCapacity'", "must be a number"]),
    ("start_job_run", {"JobName": "parking", "MaxCapacity": 10**400}, ["'MaxCapacity'", "must be a number"]),
    ("start_job_run", {"JobName": "parking", "Timeout": 10**50}, ["less than or equal to 2147483647"]),
    ("start_job_run", {"JobName": "parking", "Arguments": {f"--{n}": "" for n in range(2_001)}}, ["2,000"]),
    (
        "start_job_run",
        {"JobName": "parking", "JobRunQueuingEnabled": True},
        ["'JobRunQueuingEnabled' may not be True: no run waits here"],
    ),
    (
        "create_job",
        {"Name": "n", "Command": COMMAND, "JobRunQueuingEnabled": True},
        ["'JobRunQueuingEnabled' may not be True"],
    ),
    (
        "update_job",
        {"JobName": "parking", "JobUpdate": {"Command": COMMAND, "JobRunQueuingEnabled": True}},
        ["'JobUpdate.JobRunQueuingEnabled' may not be True"],
    ),
    ("start_job_run", {"JobName": "parking", "WorkerType": "G.3X"}, ["'WorkerType'", "G.1X, G.2X, G.4X"]),
    ("start_job_run", {"JobName": "parking", "MaxCapacity": 2.0}, ["is 2, and a Python shell job takes 0.0625 or 1"]),
    (
        "create_job",
        {"Name": "n", "Command": COMMAND, "MaxCapacity": 4.0, "WorkerType": "G.1X", "NumberOfWorkers": 2},
        ["MaxCapacity may not stand beside WorkerType and NumberOfWorkers"],
    ),
    (
        "create_job",
        {"Name": "n", "Command": COMMAND, "Tags": {f"tag{n}": "" for n in range(51)}},
        ["'Tags'", "less than or equal to 50 (it has 51 members)"],
    ),
    (
        "create_job",
        {"Name": "n", "Command": COMMAND, "Tags": {"n" * 129: ""}},
        ["'Tags[", "less than or equal to 128 (it has 129 bytes)"],
    ),
    (
        "create_job",
        {"Name": "n", "Command": COMMAND, "Tags": {"name": "x" * 257}},
        ["'Tags['name']'", "less than or equal to 256 (it has 257 bytes)"],
    ),
    ("create_job", {"Name": "n", "Command": COMMAND, "MaxCapacity": 1.0}, ["is 1, and a Spark job", "from 2 to 100"]),
    ("create_job", {"Name": "n", "Command": COMMAND, "MaxCapacity": 101.0}, ["MaxCapacity is 101"]),
    ("create_job", {"Name": "n", "Command": COMMAND, "MaxCapacity": 2.5}, ["MaxCapacity is 2.5", "whole DPUs"]),
    ("create_job", {"Name": "n", "Command": COMMAND, "AllocatedCapacity": 1}, ["AllocatedCapacity is 1"]),
    (
        "create_job",
        {"Name": "n", "Command": COMMAND, "WorkerType": "G.1X", "NumberOfWorkers": 300},
        ["NumberOfWorkers is 300, and G.1X has 1 to 299"],
    ),
    (
        "update_job",
        {"JobName": "parking", "JobUpdate": {"Command": COMMAND, "WorkerType": "G.2X", "NumberOfWorkers": 150}},
        ["NumberOfWorkers is 150, and G.2X has 1 to 149"],
    ),
    (
        "create_job",
        {"Name": "n", "Command": COMMAND, "WorkerType": "G.1X", "NumberOfWorkers": 0},
        ["NumberOfWorkers is 0, and G.1X has 1 to 299"],
    ),
    (
        "start_job_run",
        {"JobName": "parking", "NumberOfWorkers": -1},
        ["NumberOfWorkers is -1, and a job has 1 to 2,147,483,647"],
    ),
    ("get_job_run", {"JobName": "parking"}, ["'RunId' is missing"]),
    ("get_job_run", {"JobName": "parking", "RunId": "r" * 256}, ["'RunId'", "255"]),
    ("get_job_runs", {"JobName": "parking", "MaxResults": 0}, ["Value 0 at 'MaxResults'", "or equal to 1"]),
    ("get_job_runs", {"JobName": "parking", "MaxResults": 201}, ["Value 201 at 'MaxResults'", "or equal to 200"]),
    ("get_job_runs", {"JobName": "parking", "NextToken": "jr_1"}, ["NextToken", "previous page"]),
    ("batch_stop_job_run", {"JobName": "parking", "JobRunIds": []}, ["'JobRunIds'", "or equal to 1"]),
    ("batch_stop_job_run", {"JobName": "parking", "JobRunIds": [RUN_ID] * 26}, ["or equal to 25", "26 members"]),
    ("create_job", {"Name": "n"}, ["'Command' is missing"]),
    ("create_job", {"Name": "*", "Command": {"ScriptLocation": "a.py"}}, ["Job name '*'", "is not allowed"]),
    ("create_job", {"Name": "n", "Command": {}}, ["'Command.ScriptLocation' is missing"]),
    ("create_job", {"Name": "n", "Command": {"ScriptLocation": "a", "Name": "glueray"}}, ["glueetl", "pythonshell"]),
    (
        "create_job",
        {"Name": "n", "Command": {"ScriptLocation": "a"}, "ExecutionProperty": {"MaxConcurrentRuns": 0}},
        ["Value 0 at 'ExecutionProperty.MaxConcurrentRuns'"],
    ),
    ("create_job", {"Name": "n", "Command": {"ScriptLocation": "a"}, "MaxRetries": 11}, ["'MaxRetries'", "10"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "request_", "facts"), BAD, ids=[f"{number}-{bad[0]}" for number, bad in enumerate(BAD)]
)
def test_request_is_refused_and_nothing_changed_when_it_breaks_a_rule(
    parked: Jobs, everything: Callable[[], Any], operation: str, request_: dict[str, Any], facts: list[str]
) -> None:
    before = everything()

    with pytest.raises(parked.exceptions.InvalidInputException) as refused:
        getattr(parked, operation)(**request_)

    assert [fact for fact in facts if fact not in str(refused.value)] == []
    assert "xxxx" not in str(refused.value)
    assert refused.value.response["Error"]["Code"] == "InvalidInputException"
    assert everything() == before


UNKNOWN = [
    ("get_job", {"JobName": "nope"}, "Job nope not found"),
    ("update_job", {"JobName": "nope", "JobUpdate": {"Command": {"ScriptLocation": "a"}}}, "Job nope not found"),
    ("start_job_run", {"JobName": "nope"}, "Job nope not found"),
    ("start_job_run", {"JobName": "parking", "JobRunId": RUN_ID}, f"Job run {RUN_ID} not found"),
    ("get_job_run", {"JobName": "nope", "RunId": RUN_ID}, "Job nope not found"),
    ("get_job_run", {"JobName": "parking", "RunId": RUN_ID}, f"Job run {RUN_ID} not found"),
    ("get_job_run", {"JobName": "parking", "RunId": "nope"}, "Job run nope not found"),
    ("get_job_runs", {"JobName": "nope"}, "Job nope not found"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "request_", "text"), UNKNOWN, ids=[f"{number}-{bad[0]}" for number, bad in enumerate(UNKNOWN)]
)
def test_call_is_refused_when_it_names_what_is_not_there(
    parked: Jobs, everything: Callable[[], Any], operation: str, request_: dict[str, Any], text: str
) -> None:
    before = everything()

    with pytest.raises(parked.exceptions.EntityNotFoundException, match=text) as refused:
        getattr(parked, operation)(**request_)

    assert isinstance(refused.value, LookupError)
    assert everything() == before


def test_stop_names_each_unknown_run_when_job_or_run_is_unknown(parked: Jobs) -> None:
    run_id = parked.start("parking")

    answer = parked.batch_stop_job_run(JobName="parking", JobRunIds=[RUN_ID, run_id, "nope"])
    elsewhere = parked.batch_stop_job_run(JobName="nope", JobRunIds=[run_id])

    assert answer["SuccessfulSubmissions"] == [{"JobName": "parking", "JobRunId": run_id}]
    assert [(one["JobRunId"], one["ErrorDetail"]["ErrorCode"]) for one in answer["Errors"]] == [
        (RUN_ID, "EntityNotFoundException"), ("nope", "EntityNotFoundException"),
    ]  # fmt: skip
    assert f"Job run {run_id} not found" in elsewhere["Errors"][0]["ErrorDetail"]["ErrorMessage"]
    assert parked.record("parking", run_id).state == "STOPPING"


def test_create_is_refused_when_the_job_exists(parked: Jobs, everything: Callable[[], Any]) -> None:
    before = everything()

    with pytest.raises(errors.AlreadyExistsException, match=r"Job 'parking' already exists. Use update_job."):
        parked.create_job(Name="parking", Command={"ScriptLocation": "other.py"})

    assert everything() == before


@pytest.mark.parametrize("seconds", [0, -1])
def test_client_is_refused_when_it_keeps_runs_for_no_time(seconds: int) -> None:
    with pytest.raises(InvalidValueError, match=r"^keep must be above 0\.$"):
        JobRuns("table", keep=timedelta(seconds=seconds))


def test_start_is_refused_when_there_is_no_engine(
    table: Watermarks, parked: Jobs, everything: Callable[[], Any]
) -> None:
    reader, before = JobRuns(table), everything()

    with pytest.raises(reader.exceptions.InvalidInputException, match="no engine"):
        reader.start_job_run(JobName="parking")

    assert everything() == before
    assert reader.get_job_runs(JobName="parking")["JobRuns"] == []


def test_retry_is_refused_when_the_run_is_not_over(parked: Jobs, everything: Callable[[], Any]) -> None:
    run_id = parked.start("parking")
    before = everything()

    with pytest.raises(parked.exceptions.InvalidInputException, match=r"is STARTING\. Only a run that is over"):
        parked.start("parking", JobRunId=run_id)

    assert everything() == before


def test_errors_of_the_table_have_glue_s_names_when_it_is_not_there(
    make_jobs: Callable[..., Jobs], table: Watermarks
) -> None:
    jobs = JobRuns(Watermarks("nowhere", table.store.client))

    with pytest.raises(jobs.exceptions.InternalServiceException, match="'nowhere'"):
        jobs.get_job_runs(JobName="parking")


@pytest.mark.parametrize("number", [("G.1X", 299), ("G.2X", 149), ("G.4X", 300)], ids=str)
def test_workers_are_taken_when_they_are_as_many_as_may_be(parked: Jobs, number: tuple[str, int]) -> None:
    parked.create_job(Name="many", Command=COMMAND, WorkerType=number[0], NumberOfWorkers=number[1])

    assert parked.get_job(JobName="many")["Job"]["NumberOfWorkers"] == number[1]


def test_run_is_refused_when_it_and_its_job_ask_for_machines_in_two_ways(
    parked: Jobs, everything: Callable[[], Any]
) -> None:
    parked.create_job(Name="many", Command=COMMAND, WorkerType="G.1X", NumberOfWorkers=2)
    before = everything()

    with pytest.raises(parked.exceptions.InvalidInputException, match="MaxCapacity may not stand beside WorkerType"):
        parked.start_job_run(JobName="many", MaxCapacity=4.0)

    assert everything() == before


def test_members_are_counted_and_named_when_they_change_nothing_off_glue(
    parked: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    tags = {f"tag{number}": "x" * 256 for number in range(50)}
    parked.create_job(Name="many", Command=COMMAND, WorkerType="G.1X", NumberOfWorkers=2, Tags=tags)
    parked.start_job_run(JobName="parking", SecurityConfiguration="s", Timeout=5)

    said = [message.partition(":")[0] for message in caplog.messages if "without_effect" in message]
    assert said == [
        "event=without_effect job=many count=3 members=NumberOfWorkers,Tags,WorkerType",
        "event=without_effect job=parking count=1 members=SecurityConfiguration",
    ]


def test_answers_and_errors_have_metadata_when_code_of_boto3_reads_them(parked: Jobs) -> None:
    found = parked.get_job(JobName="parking")["ResponseMetadata"]
    with pytest.raises(parked.exceptions.EntityNotFoundException) as caught:
        parked.get_job(JobName="nope")

    assert (found["HTTPStatusCode"], found["RetryAttempts"], len(found["RequestId"])) == (200, 0, 36)
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
