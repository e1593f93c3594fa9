"""terraform/ makes what it says: the table that the package works on, each choice, and the complete example."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import hcl2
import pytest
from packaging.specifiers import SpecifierSet

from scripts.helpers.listing.events import S3EventQueue
from scripts.helpers.listing.listing import Location
from scripts.helpers.metrics import embedded
from scripts.helpers.metrics import report as job_report
from scripts.helpers.protocol import items
from scripts.helpers.watermarks import Watermarks
from scripts.jobs import ingest_files, ingest_table, session
from tests.infra.terraform import EXAMPLE, MINIMAL, PROVIDERS, TERRAFORM_FOLDER, Terraform, find_plugin_dir
from tests.support.iam_policies import Request, is_allowed
from tests.support.patience import LONG, PATIENCE
from tests.support.places import REGION, REPOSITORY
from tests.support.watermarks_suite import ON_THIS_TABLE, run_watermarks_suite

PLAIN = hcl2.SerializationOptions(strip_string_quotes=True, explicit_blocks=False, with_comments=False)


EXAMPLE_REGION = "eu-central-1"
EXAMPLE_VARIABLES = {"bucket_prefix": "example", "removable": True, "emulated": True}


def file_names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


FILES_BEFORE = file_names(TERRAFORM_FOLDER)


def parsed(file: str) -> dict[str, Any]:
    with (TERRAFORM_FOLDER / file).open(encoding="utf-8") as text:
        return hcl2.load(text, serialization_options=PLAIN)


def table_block() -> dict[str, Any]:
    [resource] = parsed("main.tf")["resource"]
    block: dict[str, Any] = resource["aws_dynamodb_table"]["watermarks"]
    return block


def variable_blocks() -> dict[str, dict[str, Any]]:
    return {name: block for variable in parsed("variables.tf")["variable"] for name, block in variable.items()}


def shape_of(dynamodb: Any, table_name: str) -> dict[str, Any]:
    """Describe what the package relies on, without dates, ids and sizes."""
    table = dynamodb.describe_table(TableName=table_name)["Table"]
    backups = dynamodb.describe_continuous_backups(TableName=table_name)["ContinuousBackupsDescription"]
    return {
        "keys": table["KeySchema"],
        "attributes": sorted(table["AttributeDefinitions"], key=lambda attribute: attribute["AttributeName"]),
        "billing": table["BillingModeSummary"]["BillingMode"],
        "indexes": table.get("GlobalSecondaryIndexes", []) + table.get("LocalSecondaryIndexes", []),
        "stream": table.get("StreamSpecification", {}).get("StreamEnabled", False),
        "ttl": dynamodb.describe_time_to_live(TableName=table_name)["TimeToLiveDescription"],
        "recovery": backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"],
    }


def table_names(dynamodb: Any) -> list[str]:
    return [name for page in dynamodb.get_paginator("list_tables").paginate() for name in page["TableNames"]]


@pytest.fixture(scope="module", autouse=True)
def example_began(request: pytest.FixtureRequest) -> Iterator[Callable[[], Terraform] | None]:
    """Begin to apply the example, which waits for a minute and computes little, before the other tests."""
    if not any("example" in getattr(item, "fixturenames", ()) for item in request.session.items):
        yield None
        return
    make: Callable[..., Terraform] = request.getfixturevalue("make_terraform")
    wheel: Path = request.getfixturevalue("wheel")
    made = make(EXAMPLE, region=EXAMPLE_REGION)
    process = made.start("apply", "-auto-approve", variables=EXAMPLE_VARIABLES | {"wheel": str(wheel)})

    def finish() -> Terraform:
        outcome = made.finish(process)
        outcome.succeeded()
        return made

    yield finish
    process.kill()


@pytest.fixture(scope="module")
def example(example_began: Callable[[], Terraform]) -> Terraform:
    """Return Terraform after an apply of examples/complete."""
    return example_began()


# --- the files --------------------------------------------------------------------------------------


def test_key_names_equal_those_of_items_when_hcl_is_parsed() -> None:
    block = table_block()

    keys = block["hash_key"], block["range_key"]
    typed = {attribute["name"]: attribute["type"] for attribute in block["attribute"]}
    [ttl] = block["ttl"]

    assert keys == (items.HASH_KEY, items.RANGE_KEY)
    assert typed == {items.HASH_KEY: "S", items.RANGE_KEY: "S"}
    assert ttl == {"attribute_name": items.TTL_ATTRIBUTE, "enabled": True}


def test_default_table_name_equals_that_of_watermarks_when_none_is_given() -> None:
    default = variable_blocks()["table_name"]["default"]

    assert default == Watermarks(dynamodb_client=object()).table_name  # type: ignore[arg-type]


def test_every_variable_is_described_typed_and_checked_when_hcl_is_parsed() -> None:
    blocks = variable_blocks()

    unchecked = [name for name, block in blocks.items() if block["type"] != "bool" and not block.get("validation")]
    nullable = [name for name, block in blocks.items() if block.get("nullable") is not False]
    without_default_of_null = [name for name in nullable if "default" not in blocks[name] or blocks[name]["default"]]
    undescribed = [name for name, block in blocks.items() if not block.get("description")]

    assert unchecked == undescribed == without_default_of_null == []
    assert nullable == ["kms_key_arn", "alarm_topic_arn"]


def test_files_are_formatted_when_fmt_checks_them(terraform_command: str, endpoint: str) -> None:
    outcome = Terraform(terraform_command, TERRAFORM_FOLDER, endpoint).run("fmt", "-check", "-diff", "-recursive")

    assert (outcome.code, outcome.text) == (0, "")


def test_choices_switch_resources_on_and_off_when_terraform_tests_them(
    make_terraform: Callable[..., Terraform],
) -> None:
    outcome = make_terraform(with_provider=False).run("test")

    outcome.succeeded()
    assert re.search(r"Success! 1[3-9] passed, 0 failed\.", outcome.text)


# --- the table --------------------------------------------------------------------------------------


def test_applied_table_equals_that_of_create_table_when_both_are_described(
    outputs: dict[str, Any], dynamodb: Any
) -> None:
    Watermarks("made-by-create-table", dynamodb).create_table()
    local = shape_of(dynamodb, "made-by-create-table")

    applied = shape_of(dynamodb, outputs["table_name"])

    assert applied == local
    assert applied["ttl"] == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expiresAt"}
    assert (applied["billing"], applied["recovery"]) == ("PAY_PER_REQUEST", "ENABLED")


def test_applied_table_is_encrypted_and_protected_when_defaults_are_used(
    outputs: dict[str, Any], dynamodb: Any
) -> None:
    table = dynamodb.describe_table(TableName=outputs["table_name"])["Table"]

    assert table["SSEDescription"]["Status"] == "ENABLED"
    assert table["DeletionProtectionEnabled"] is True


def test_outputs_name_the_applied_table_when_applied(outputs: dict[str, Any], dynamodb: Any) -> None:
    table = dynamodb.describe_table(TableName="glue-watermarks")["Table"]

    assert (outputs["table_name"], outputs["table_arn"]) == ("glue-watermarks", table["TableArn"])
    assert f":dynamodb:{REGION}:" in outputs["table_arn"]
    assert json.loads(outputs["lister_policy_document"])["Statement"][0]["Resource"] == table["TableArn"]


def test_second_apply_changes_nothing_when_the_table_is_there(applied: Terraform, dynamodb: Any) -> None:
    before = dynamodb.describe_table(TableName="glue-watermarks")["Table"]

    outcome = applied.apply()

    outcome.succeeded()
    assert "Resources: 0 added, 0 changed, 0 destroyed." in outcome.text
    assert dynamodb.describe_table(TableName="glue-watermarks")["Table"] == before


def test_table_is_destroyed_only_when_protection_is_off(make_terraform: Callable[[], Terraform], dynamodb: Any) -> None:
    trial, name = make_terraform(), "trial-of-destroy"
    tags = {"Team": "parking", "Owner": "data platform"}
    made = trial.apply(table_name=name, tags=tags)
    made.succeeded()
    arn = dynamodb.describe_table(TableName=name)["Table"]["TableArn"]
    stored = {tag["Key"]: tag["Value"] for tag in dynamodb.list_tags_of_resource(ResourceArn=arn)["Tags"]}

    refused = trial.destroy(table_name=name)
    left = table_names(dynamodb)
    unprotected = trial.apply(table_name=name, tags=tags, deletion_protection_enabled=False)
    destroyed = trial.destroy(table_name=name, deletion_protection_enabled=False)

    assert stored == tags
    assert refused.code == 1
    assert "can't be deleted while DeletionProtectionEnabled is set to True" in refused.text
    assert name in left
    assert "Resources: 0 added, 1 changed, 0 destroyed." in unprotected.text
    destroyed.succeeded()
    assert name not in table_names(dynamodb)


def test_repository_stays_as_it_was_when_the_copy_is_applied(applied: Terraform) -> None:
    written = file_names(applied.folder)

    files = file_names(TERRAFORM_FOLDER)

    assert {"terraform.tfstate", ".terraform.lock.hcl", ".terraform"} <= written
    assert files == FILES_BEFORE


def test_provider_is_taken_from_the_named_folder_when_it_holds_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    provider = tmp_path / PROVIDERS / "hashicorp" / "aws" / "5.0.0" / "any_platform" / "terraform-provider-aws_v5"
    provider.mkdir(parents=True)
    monkeypatch.setenv("TF_PLUGIN_DIR", str(tmp_path))

    found = find_plugin_dir()

    assert found == tmp_path


# --- the Watermarks suite on that table -----------------------------------------------------------------


@pytest.mark.timeout(LONG)
def test_watermarks_suite_passes_when_run_on_the_applied_table(
    endpoint: str, outputs: dict[str, Any], dynamodb: Any
) -> None:
    done = run_watermarks_suite(endpoint, outputs["table_name"], *ON_THIS_TABLE)

    text = done.stdout + done.stderr
    passed = re.search(r"\b(\d+) passed", text)
    assert done.returncode == 0, text
    assert passed
    assert int(passed.group(1)) > 0
    assert not re.search(r"\b\d+ (skipped|xfailed|failed|error)", text), text
    assert dynamodb.scan(TableName=outputs["table_name"], Select="COUNT")["Count"] > 0


@pytest.mark.timeout(LONG)
def test_watermarks_suite_fails_when_the_table_is_missing(endpoint: str) -> None:
    done = run_watermarks_suite(endpoint, "no-such-table", "-x", *ON_THIS_TABLE)

    text = done.stdout + done.stderr
    assert done.returncode == 1, text
    assert "TableNotFoundError" in text


# --- the minimal example --------------------------------------------------------------------------------


def test_minimal_example_makes_the_table_and_one_role_when_it_is_applied_and_destroyed(
    make_terraform: Callable[..., Terraform], endpoint: str
) -> None:
    region = "eu-west-3"
    dynamodb: Any = boto3.client("dynamodb", endpoint_url=endpoint, region_name=region)
    iam: Any = boto3.client("iam", endpoint_url=endpoint, region_name=region)
    trial = make_terraform(MINIMAL, region=region)

    made = trial.apply(removable=True)
    made.succeeded()
    outputs = trial.outputs()
    tables = table_names(dynamodb)
    policy = iam.get_role_policy(RoleName="parking-jobs", PolicyName="watermarks")["PolicyDocument"]
    arn = dynamodb.describe_table(TableName=outputs["table_name"])["Table"]["TableArn"]
    own, others = (
        Request("dynamodb:UpdateItem", arn, {"dynamodb:LeadingKeys": (job,)})
        for job in ("parking-files", "waste-files")
    )
    destroyed = trial.destroy(removable=True)

    assert tables == ["glue-watermarks"]
    assert outputs["role_arn"].endswith(":role/parking-jobs")
    assert (is_allowed([policy], own), is_allowed([policy], others)) == (True, False)
    destroyed.succeeded()
    assert table_names(dynamodb) == []


# --- the complete example -------------------------------------------------------------------------------


def of_example(endpoint: str, service: str) -> Any:
    connect: Callable[..., Any] = boto3.client  # Its annotations take no service but a literal.
    return connect(service, endpoint_url=endpoint, region_name=EXAMPLE_REGION)


def glue_argv(endpoint: str, name: str) -> list[str]:
    """Return what Glue hands to the script of a job: its own arguments, then those of the definition."""
    arguments = of_example(endpoint, "glue").get_job(JobName=name)["Job"]["DefaultArguments"]
    own = {"--JOB_ID": "j_1", "--JOB_RUN_ID": "jr_1", "--JOB_NAME": name}
    return [part for pair in (own | arguments).items() for part in pair]


def download(endpoint: str, uri: str, folder: Path) -> Path:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    path = folder / Path(key).name
    of_example(endpoint, "s3").download_file(bucket, key, str(path))
    return path


def install(endpoint: str, arguments: Mapping[str, str], folder: Path) -> None:
    """Do what Glue does with a job's modules: pip installs them. Only .zip, .egg and .py files are on Python's path."""
    first, *others = arguments["--additional-python-modules"].split(",")
    assert others == []  # Glue 5 has pyarrow.
    assert arguments.get("--extra-py-files", ".zip").endswith((".zip", ".egg", ".py"))
    wheel = download(endpoint, first, folder)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(folder)]
    subprocess.run([*pip, str(wheel)], check=True, timeout=PATIENCE)


def waiting(endpoint: str, url: str) -> int:
    """Return how many messages are in a queue, with those that are hidden."""
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
    # A hidden file is told of and not taken, so Spark is not started.
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


def test_module_for_glue_4_is_pinned_to_what_the_package_takes_when_the_example_is_read() -> None:
    modules = re.search(
        r'glue_version == "4.0" \? \["pyarrow==([\d.]+)"\]', (TERRAFORM_FOLDER / EXAMPLE / "main.tf").read_text()
    )
    needed = re.search(r"^files =\n    pyarrow (.*)$", (REPOSITORY / "setup.cfg").read_text(), re.MULTILINE)

    assert modules
    assert needed
    assert SpecifierSet(needed[1]).contains(modules[1])
    pages = [REPOSITORY / "docs" / name for name in ("run-on.md", "terraform.md")]
    assert [page.name for page in pages if f"`pyarrow=={modules[1]}`" not in page.read_text()] == []


def test_rows_job_of_the_example_is_told_its_table_when_started_as_glue_does(
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
        "delay_seconds": 300,
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


def test_new_object_is_told_of_in_the_queue_when_the_example_is_applied(example: Terraform, endpoint: str) -> None:
    queue = S3EventQueue(example.outputs()["queue_urls"]["parking"], sqs_client=of_example(endpoint, "sqs"), wait=0)
    queue.receive(Location.parse("s3://example-landing/parking/"))
    for key in ("parking/1.json", "repairs/1.parquet"):
        of_example(endpoint, "s3").put_object(Bucket="example-landing", Key=key, Body=b"{}")

    received = queue.receive(Location.parse("s3://example-landing/parking/"))

    assert received.keys == ("1.json",)


def by_meaning(value: Any) -> Any:
    """Return a value of a plan in which texts of JSON are what they mean: moto gives them back with blanks."""
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
