"""terraform/ creates the table that the package works on, applies each option, and has examples that work."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import hcl2
import pytest
from packaging.specifiers import SpecifierSet

from scripts.helpers.protocol import items
from scripts.helpers.watermarks import Watermarks
from tests.infra.terraform import (
    EXAMPLE,
    MINIMAL,
    PROVIDERS,
    TERRAFORM_FOLDER,
    Terraform,
    find_plugin_dir,
    table_names,
)
from tests.support.iam_policies import Request, is_allowed
from tests.support.patience import LONG
from tests.support.places import REGION, REPOSITORY
from tests.support.watermarks_suite import ON_THIS_TABLE, run_watermarks_suite

PLAIN = hcl2.SerializationOptions(strip_string_quotes=True, explicit_blocks=False, with_comments=False)


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
    """Return the properties of a table that the package relies on, without dates, ids and sizes."""
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


@pytest.mark.if_changed("terraform")
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


@pytest.mark.if_changed("terraform")
def test_second_apply_changes_nothing_when_the_table_is_there(applied: Terraform, dynamodb: Any) -> None:
    before = dynamodb.describe_table(TableName="glue-watermarks")["Table"]

    outcome = applied.apply()

    outcome.succeeded()
    assert "Resources: 0 added, 0 changed, 0 destroyed." in outcome.text
    assert dynamodb.describe_table(TableName="glue-watermarks")["Table"] == before


@pytest.mark.if_changed("terraform")
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


def test_module_for_glue_4_is_pinned_to_what_the_package_takes_when_the_example_is_read() -> None:
    modules = re.search(
        r'glue_version == "4.0" \? \["pyarrow==([\d.]+)"\]', (TERRAFORM_FOLDER / EXAMPLE / "main.tf").read_text()
    )
    needed = re.search(
        r"^files =\n(?:    .*\n)*?    pyarrow (.*)$", (REPOSITORY / "setup.cfg").read_text(), re.MULTILINE
    )

    assert modules
    assert needed
    assert SpecifierSet(needed[1]).contains(modules[1])
    pages = [REPOSITORY / "docs" / name for name in ("run-on.md", "terraform.md")]
    assert [page.name for page in pages if f"`pyarrow=={modules[1]}`" not in page.read_text()] == []
