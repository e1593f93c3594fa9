"""What docs/terraform.md, docs/permissions.md and terraform/README.md show is what the module has, and is valid."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import hcl2
import pytest

from scripts.helpers.metrics import report
from tests.infra.terraform import TERRAFORM_FOLDER, Terraform
from tests.support.places import REPOSITORY

PLAIN = hcl2.SerializationOptions(strip_string_quotes=True, explicit_blocks=False, with_comments=False)
DEPLOY = (REPOSITORY / "docs" / "terraform.md").read_text(encoding="utf-8")
README = (TERRAFORM_FOLDER / "README.md").read_text(encoding="utf-8")
CONFIGURATION = re.compile(r"```terraform\n(.*?)```", re.DOTALL)


def blocks(file: str, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    with (TERRAFORM_FOLDER / file).open(encoding="utf-8") as text:
        for block in hcl2.load(text, serialization_options=PLAIN)[kind]:
            yield from block.items()


def first_line(block: dict[str, Any]) -> str:
    lines = [line.strip() for line in block["description"].replace('\\"', '"').splitlines()]
    return next(line for line in lines if not line.startswith("<<"))


def default_of(block: dict[str, Any]) -> str:
    value = block.get("default")
    return f"`{value}`" if isinstance(value, str) and value else f"`{json.dumps(value)}`"


def tables() -> list[str]:
    """Return the rows that the README is to have."""
    variables = [
        f"| `{name}` | {first_line(block)} | {default_of(block)} |"
        for name, block in blocks("variables.tf", "variable")
    ]
    return variables + [f"| `{name}` | {first_line(block)} |" for name, block in blocks("outputs.tf", "output")]


def test_readme_has_every_variable_and_output_when_the_files_are_parsed() -> None:
    rows = [line for line in README.splitlines() if line.startswith("| `")]

    assert rows == tables()


@pytest.mark.parametrize("name", ["AgeSeconds", "LagSeconds", "OpenPlanAgeSeconds", "Fenced", "Unknown"])
def test_page_names_the_metrics_that_jobs_print_when_alarms_watch_them(name: str) -> None:
    assert name in report.UNITS
    assert f"`{name}`" in DEPLOY


@pytest.fixture(scope="module")
def pages(make_terraform: Callable[..., Terraform]) -> Terraform:
    """Return Terraform over all configurations that the pages show."""
    shown = [*CONFIGURATION.findall(DEPLOY), *CONFIGURATION.findall(README)]
    assert len(shown) == 6
    return make_terraform(
        "pages", files={"main.tf": "\n".join(shown).replace('"./glue-watermarks/terraform"', '"../"')}
    )


def test_configurations_of_the_pages_are_valid_when_terraform_validates_them(pages: Terraform) -> None:
    outcome = pages.run("validate")

    assert (outcome.code, outcome.text) == (0, "Success! The configuration is valid.")


def test_configurations_of_the_pages_are_planned_when_the_name_of_a_bucket_is_not_known_yet(pages: Terraform) -> None:
    outcome = pages.run("plan")

    assert outcome.code == 0, outcome.text
    assert 'aws_s3_bucket_notification.events["landing"] will be created' in outcome.text
