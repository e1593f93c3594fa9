"""terraform/examples/complete creates what it describes, and its jobs run with the arguments that Glue passes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

from scripts.helpers.listing.events import S3EventQueue
from scripts.helpers.listing.listing import Location
from scripts.helpers.metrics import embedded
from scripts.helpers.metrics import report as job_report
from scripts.helpers.watermarks import Watermarks
from scripts.jobs import ingest_files, ingest_table, session
from tests.infra.terraform import EXAMPLE, Terraform, table_names
from tests.support.iam_policies import Request, is_allowed
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.if_changed("terraform")

EXAMPLE_REGION = "eu-central-1"
EXAMPLE_VARIABLES = {"bucket_prefix": "example", "removable": True, "emulated": True}


@pytest.fixture(scope="module")
def example(make_terraform: Callable[..., Terraform], wheel: Path) -> Terraform:
    """Return Terraform after an apply of examples/complete."""
    made = make_terraform(EXAMPLE, region=EXAMPLE_REGION)
    made.apply(**EXAMPLE_VARIABLES, wheel=str(wheel)).succeeded()
    return made


def of_example(endpoint: str, service: str) -> Any:
    connect: Callable[..., Any] = boto3.client  # The annotations of boto3.client accept only literals.
    return connect(service, endpoint_url=endpoint, region_name=EXAMPLE_REGION)


def glue_argv(endpoint: str, name: str) -> list[str]:
    """Return the arguments that Glue passes to the script of a job: its own, then those of the job definition."""
    arguments = of_example(endpoint, "glue").get_job(JobName=name)["Job"]["DefaultArguments"]
    own = {"--JOB_ID": "j_1", "--JOB_RUN_ID": "jr_1", "--JOB_NAME": name}
    return [part for pair in (own | arguments).items() for part in pair]


def download(endpoint: str, uri: str, folder: Path) -> Path:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    path = folder / Path(key).name
    of_example(endpoint, "s3").download_file(bucket, key, str(path))
    return path


def install(endpoint: str, arguments: Mapping[str, str], folder: Path) -> None:
    """Install a job's modules with pip, as Glue does; it puts only .zip, .egg and .py files on Python's path."""
    first, *others = arguments["--additional-python-modules"].split(",")
    assert others == []  # Glue 5 includes pyarrow.
    assert arguments.get("--extra-py-files", ".zip").endswith((".zip", ".egg", ".py"))
    wheel = download(endpoint, first, folder)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(folder)]
    subprocess.run([*pip, str(wheel)], check=True, timeout=PATIENCE)


def waiting(endpoint: str, url: str) -> int:
    """Return the number of messages in a queue, including those that are hidden."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = of_example(endpoint, "sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return sum(map(int, found.values()))


def test_files_job_of_the_example_drains_its_queue_when_started_as_glue_does(
    example: Terraform, endpoint: str, tmp_path: Path
) -> None:
    job = of_example(endpoint, "glue").get_job(JobName="parking-files")["Job"]
    script = download(endpoint, job["Command"]["ScriptLocation"], tmp_path)
    install(endpoint, job["DefaultArguments"], tmp_path)
    (tmp_path / "awsglue").mkdir()
    (tmp_path / "awsglue" / "__init__.py").touch()
    queue = example.outputs()["queue_urls"]["parking"]
    # S3 sends an event for a hidden file, but the job does not read it, so Spark is not started.
    of_example(endpoint, "s3").put_object(Bucket="example-landing", Key="parking/_SUCCESS", Body=b"")
    before = waiting(endpoint, queue)

    done = subprocess.run(
        [sys.executable, str(script), *glue_argv(endpoint, "parking-files")],
        cwd=tmp_path,
        env=os.environ
        | {"PYTHONPATH": str(tmp_path), "AWS_ENDPOINT_URL": endpoint, "AWS_DEFAULT_REGION": EXAMPLE_REGION},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    metrics, report = map(json.loads, done.stdout.splitlines())
    assert (metrics["Job"], metrics["Outcome"]) == ("parking-files", "committed")
    assert (report["job"], report["run"], report["mode"]) == ("parking-files", "jr_1", "enable")
    head = Watermarks(example.outputs()["table_name"], of_example(endpoint, "dynamodb")).latest("parking-files")
    assert (head.version, head.watermarks["files"]["kind"]) == (1, "files")
    assert (before > 0, waiting(endpoint, queue)) == (True, 0)


def test_files_job_of_the_example_lists_its_source_when_the_daily_trigger_starts_it(
    example: Terraform, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "on_glue", lambda: True)
    monkeypatch.setattr(session, "run_job", lambda work, arguments: ingest_files.queue_of(arguments))
    trigger = of_example(endpoint, "glue").get_trigger(Name="parking-files-listing")["Trigger"]
    (action,) = trigger["Actions"]
    changed = [part for pair in action["Arguments"].items() for part in pair]

    hourly: Any = ingest_files.main(glue_argv(endpoint, action["JobName"]))
    daily = ingest_files.main([*glue_argv(endpoint, action["JobName"]), *changed])

    assert hourly.queue_url == example.outputs()["queue_urls"]["parking"]
    assert daily is None


def test_rows_job_of_the_example_gets_its_arguments_when_started_as_glue_does(
    example: Terraform, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "on_glue", lambda: True)
    monkeypatch.setattr(session, "run_job", lambda work, arguments: vars(arguments))

    told: Any = ingest_table.main(glue_argv(endpoint, "parking-rows"))

    expected = {
        "JOB_NAME": "parking-rows",
        "JOB_RUN_ID": "jr_1",
        "table": "glue-watermarks",
        "source": "s3://example-landing/repairs/",
        "target": "s3://example-lake/raw/repairs/",
        "cursor_column": ["last_modified"],
        "delay": timedelta(minutes=5),
        "job_bookmark_option": "job-bookmark-enable",
        "metrics": True,
    }
    assert {name: told[name] for name in expected} == expected


def test_roles_of_the_example_have_the_writers_policy_and_that_of_their_source_when_applied(
    example: Terraform, endpoint: str
) -> None:
    iam, glue = of_example(endpoint, "iam"), of_example(endpoint, "glue")

    attached = {}
    for name in ("parking-files", "parking-rows"):
        role = glue.get_job(JobName=name)["Job"]["Role"].rpartition("/")[2]
        policies = iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]
        attached[name] = sorted(policy["PolicyName"] for policy in policies)

    assert attached == {
        "parking-files": ["glue-watermarks-parking-source", "glue-watermarks-parking-writer"],
        "parking-rows": ["glue-watermarks-parking-writer", "glue-watermarks-repairs-source"],
    }


def test_role_of_the_example_writes_below_its_target_only_when_its_policy_is_evaluated(
    example: Terraform, endpoint: str
) -> None:
    role = "glue-watermarks-parking-files"
    policy = of_example(endpoint, "iam").get_role_policy(RoleName=role, PolicyName="target-code-and-logs")
    keys = ["raw/parking/a/1", "raw/parking_$folder$", "raw_$folder$", "raw/repairs/1", "raw/parking_2/1", "code/x.whl"]

    allowed = [
        key
        for key in keys
        if is_allowed([policy["PolicyDocument"]], Request("s3:PutObject", f"arn:aws:s3:::example-lake/{key}"))
    ]

    assert allowed == keys[:3]


def test_table_of_the_example_has_a_key_that_rotates_when_applied(example: Terraform, endpoint: str) -> None:
    table = of_example(endpoint, "dynamodb").describe_table(TableName="glue-watermarks")["Table"]

    key = table["SSEDescription"]["KMSMasterKeyArn"]

    assert of_example(endpoint, "kms").get_key_rotation_status(KeyId=key)["KeyRotationEnabled"] is True


def test_alarms_of_the_example_watch_what_jobs_print_when_applied(example: Terraform, endpoint: str) -> None:
    names = example.outputs()["alarm_names"]

    alarms = of_example(endpoint, "cloudwatch").describe_alarms(AlarmNames=names)["MetricAlarms"]

    series = [
        *alarms,
        *(
            part["MetricStat"]["Metric"]
            for alarm in alarms
            for part in alarm.get("Metrics", ())
            if "MetricStat" in part
        ),
    ]
    of_jobs = [one for one in series if one.get("Namespace") == embedded.NAMESPACE]
    assert len(names) == len(alarms) == 11
    assert sorted(one["MetricName"] for one in of_jobs) == sorted(
        ["AgeSeconds", "LagSeconds", *("Fenced", "OpenPlanAgeSeconds", "Unknown") * 2]
    )
    assert {one["MetricName"] for one in of_jobs} <= job_report.UNITS.keys()
    assert {(d["Name"], d["Value"]) for one in of_jobs for d in one["Dimensions"]} == {
        (embedded.DIMENSION, "parking-files"),
        (embedded.DIMENSION, "parking-rows"),
    }
    assert all(action.endswith(":glue-watermarks-alarms") for alarm in alarms for action in alarm["AlarmActions"])


def test_queue_gets_the_event_of_a_new_object_when_the_example_is_applied(example: Terraform, endpoint: str) -> None:
    queue = S3EventQueue(example.outputs()["queue_urls"]["parking"], sqs_client=of_example(endpoint, "sqs"), wait=0)
    queue.receive(Location.parse("s3://example-landing/parking/"))
    for key in ("parking/1.json", "repairs/1.parquet"):
        of_example(endpoint, "s3").put_object(Bucket="example-landing", Key=key, Body=b"{}")

    received = queue.receive(Location.parse("s3://example-landing/parking/"))

    assert received.keys == ("1.json",)


def by_meaning(value: Any) -> Any:
    """Return a value of a plan with its JSON texts parsed, because moto returns them with other blanks."""
    if isinstance(value, dict):
        return {name: by_meaning(part) for name, part in value.items()}
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def test_second_plan_of_the_example_is_empty_when_nothing_was_changed(example: Terraform, wheel: Path) -> None:
    changes = example.planned("resource_changes", **EXAMPLE_VARIABLES, wheel=str(wheel))

    changed = [one["change"] for one in changes if one["change"]["actions"] not in (["no-op"], ["read"])]

    assert len(changes) > 30
    assert [by_meaning(one["before"]) for one in changed] == [by_meaning(one["after"]) for one in changed]


def test_example_leaves_nothing_when_it_is_destroyed(example: Terraform, endpoint: str, wheel: Path) -> None:
    destroyed = example.destroy(**EXAMPLE_VARIABLES, wheel=str(wheel))

    destroyed.succeeded()
    buckets = [bucket["Name"] for bucket in of_example(endpoint, "s3").list_buckets()["Buckets"]]
    assert [name for name in buckets if name.startswith("example-")] == []
    assert table_names(of_example(endpoint, "dynamodb")) == []
    assert of_example(endpoint, "glue").list_jobs()["JobNames"] == []
    assert of_example(endpoint, "sqs").list_queues(QueueNamePrefix="glue-watermarks").get("QueueUrls", []) == []
    assert of_example(endpoint, "cloudwatch").describe_alarms()["MetricAlarms"] == []
