"""terraform/ makes the table that the package works on, and refuses what AWS would refuse."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hcl2
import pytest

from scripts.helpers import items
from scripts.helpers.watermarks import Watermarks
from tests.conftest import REGION, REPOSITORY, TEST_ENDPOINT, TEST_TABLE
from tests.infra.conftest import PROVIDERS, TERRAFORM_FOLDER, Terraform, find_plugin_dir

OF_THE_TABLE = "watermarks and not spill and not doctor and not crash and not faults"
"""What the table has a part in; the rest would be the same on any."""
SUITE = [sys.executable, "-m", "pytest", "tests/integration", "-k", OF_THE_TABLE, "-q", "-p", "no:cacheprovider"]
PLAIN = hcl2.SerializationOptions(strip_string_quotes=True, explicit_blocks=False, with_comments=False)
NAME_RULE = "The table_name must have 3 to 255 characters out of letters, digits, '_', '.' and '-'."
TAG_RULE = "Each of the tags must have a name of 1 to 128 characters and a value of at most 256"
REFUSED = [
    pytest.param({"table_name": "ab"}, NAME_RULE, id="name-too-short"),
    pytest.param({"table_name": "t" * 256}, NAME_RULE, id="name-too-long"),
    pytest.param({"table_name": "glue/watermarks"}, NAME_RULE, id="name-with-slash"),
    pytest.param({"deletion_protection_enabled": "perhaps"}, "a bool is required", id="not-a-bool"),
    pytest.param({"tags": {f"t{n}": "" for n in range(51)}}, "AWS allows 50 on a table", id="51-tags"),
    pytest.param({"tags": {"Team": "<parking>"}}, TAG_RULE, id="tag-with-bracket"),
    pytest.param({"tags": {"Team": "t" * 257}}, TAG_RULE, id="tag-too-long"),
    pytest.param({"tags": {"AWS:team": "parking"}}, "must not have names that start with 'aws:'", id="tag-of-aws"),
]

ACCEPTED = [
    pytest.param({"table_name": "t.1", "deletion_protection_enabled": False}, id="shortest-name"),
    pytest.param({"table_name": "t" * 255, "tags": {f"t{n}": "" for n in range(50)}}, id="longest-name-and-50-tags"),
    pytest.param({"tags": {"t" * 128: "t" * 256, "Größe": "a b_.:/=+@-"}}, id="longest-tag-and-all-signs"),
]


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


def run_watermarks_suite(endpoint: str, table_name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of `Watermarks` in a clean pytest, on a table that is there already."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [*SUITE, *options],
        cwd=REPOSITORY,
        env=kept | {TEST_TABLE: table_name, TEST_ENDPOINT: endpoint},
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )


def table_names(dynamodb: Any) -> list[str]:
    return [name for page in dynamodb.get_paginator("list_tables").paginate() for name in page["TableNames"]]


@pytest.fixture(scope="module")
def variables_only(terraform_command: str, endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Terraform:
    """Return Terraform over variables.tf alone, whose rules it applies without starting the provider."""
    folder = tmp_path_factory.mktemp("variables")
    shutil.copy(TERRAFORM_FOLDER / "variables.tf", folder)
    return Terraform(terraform_command, folder, endpoint)


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
    undescribed = [name for name, block in blocks.items() if not block.get("description")]

    assert set(blocks) == {"table_name", "deletion_protection_enabled", "tags"}
    assert unchecked == nullable == undescribed == []


def test_files_are_formatted_when_fmt_checks_them(terraform_command: str, endpoint: str) -> None:
    outcome = Terraform(terraform_command, TERRAFORM_FOLDER, endpoint).run("fmt", "-check", "-diff")

    assert (outcome.code, outcome.text) == (0, "")


def test_configuration_is_valid_when_terraform_validates_it(applied: Terraform) -> None:
    outcome = applied.run("validate")

    assert (outcome.code, outcome.text) == (0, "Success! The configuration is valid.")


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

    assert outputs == {"table_name": "glue-watermarks", "table_arn": table["TableArn"]}
    assert f":dynamodb:{REGION}:" in outputs["table_arn"]


def test_second_apply_changes_nothing_when_the_table_is_there(applied: Terraform, dynamodb: Any) -> None:
    before = dynamodb.describe_table(TableName="glue-watermarks")["Table"]

    outcome = applied.apply()

    assert outcome.code == 0, outcome.text
    assert "Resources: 0 added, 0 changed, 0 destroyed." in outcome.text
    assert dynamodb.describe_table(TableName="glue-watermarks")["Table"] == before


@pytest.mark.parametrize(("variables", "message"), REFUSED)
def test_plan_is_refused_when_a_variable_is_bad(
    variables_only: Terraform, variables: dict[str, Any], message: str
) -> None:
    outcome = variables_only.run("plan", variables=variables)

    assert outcome.code == 1
    assert message in outcome.text
    assert outcome.text.count("Error:") == 1
    assert f'variable "{next(iter(variables))}"' in outcome.text


@pytest.mark.parametrize("variables", ACCEPTED)
def test_plan_is_made_when_variables_are_at_their_limits(variables_only: Terraform, variables: dict[str, Any]) -> None:
    outcome = variables_only.run("plan", variables=variables)

    assert outcome.code == 0, outcome.text


def test_whole_plan_is_refused_with_every_message_when_all_variables_are_bad(applied: Terraform) -> None:
    bad = {"table_name": "ab", "deletion_protection_enabled": "perhaps", "tags": {"aws:x": ""}}

    outcome = applied.run("plan", variables=bad)

    assert outcome.code == 1
    assert outcome.text.count("Error:") == 3
    assert all(f'variable "{name}"' in outcome.text for name in bad)
    assert "to add" not in outcome.text


def test_table_is_destroyed_only_when_protection_is_off(make_terraform: Callable[[], Terraform], dynamodb: Any) -> None:
    trial, name = make_terraform(), "trial-of-destroy"
    tags = {"Team": "parking", "Owner": "data platform"}
    made = trial.apply(table_name=name, tags=tags)
    assert made.code == 0, made.text
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
    assert destroyed.code == 0, destroyed.text
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


@pytest.mark.timeout(600)
def test_watermarks_suite_passes_when_run_on_the_applied_table(
    endpoint: str, outputs: dict[str, Any], dynamodb: Any
) -> None:
    done = run_watermarks_suite(endpoint, outputs["table_name"])

    text = done.stdout + done.stderr
    passed = re.search(r"\b(\d+) passed", text)
    assert done.returncode == 0, text
    assert passed
    assert int(passed.group(1)) > 0
    assert not re.search(r"\b\d+ (skipped|xfailed|failed|error)", text), text
    assert dynamodb.scan(TableName=outputs["table_name"], Select="COUNT")["Count"] > 0


@pytest.mark.timeout(600)
def test_watermarks_suite_fails_when_the_table_is_missing(endpoint: str) -> None:
    done = run_watermarks_suite(endpoint, "no-such-table", "-x")

    text = done.stdout + done.stderr
    assert done.returncode == 1, text
    assert "There is no DynamoDB table 'no-such-table'" in text
