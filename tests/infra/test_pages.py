"""docs/terraform.md, docs/permissions.md and terraform/README.md show valid HCL and what the module contains."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from scripts.helpers.metrics import report
from tests.infra import inputs
from tests.infra.terraform import TERRAFORM_FOLDER, Terraform
from tests.support.places import REPOSITORY

DEPLOY = (REPOSITORY / "docs" / "terraform.md").read_text(encoding="utf-8")
README = (TERRAFORM_FOLDER / "README.md").read_text(encoding="utf-8")
CONFIGURATION = re.compile(r"```terraform\n(.*?)```", re.DOTALL)


def test_readme_has_every_variable_and_output_with_its_type_when_the_files_are_parsed() -> None:
    assert README.endswith(inputs.tables()), "run: python -m tests.infra.inputs"


def test_attribute_is_required_when_it_is_not_optional() -> None:
    found = {
        name: rest for name, *rest in inputs.attributes('map(object({a = number, b = optional(list(string), ["*"])}))')
    }

    assert found == {"a": ["number", "yes", ""], "b": ["list(string)", "no", '["*"]']}


@pytest.mark.parametrize("name", ["AgeSeconds", "LagSeconds", "OpenPlanAgeSeconds", "Fenced", "Unknown"])
def test_page_names_the_metrics_that_jobs_print_when_alarms_watch_them(name: str) -> None:
    assert name in report.UNITS
    assert f"`{name}`" in DEPLOY


@pytest.fixture(scope="module")
def pages(make_terraform: Callable[..., Terraform]) -> Terraform:
    """Return Terraform in a folder with all configurations that the pages show."""
    shown = [*CONFIGURATION.findall(DEPLOY), *CONFIGURATION.findall(README)]
    assert len(shown) == 5
    return make_terraform(
        "pages", files={"main.tf": "\n".join(shown).replace('"./glue-watermarks/terraform"', '"../"')}
    )


def test_configurations_of_the_pages_are_valid_when_terraform_validates_them(pages: Terraform) -> None:
    outcome = pages.run("validate")

    assert (outcome.code, outcome.text) == (0, "Success! The configuration is valid.")


def test_configurations_of_the_pages_are_planned_when_the_name_of_a_bucket_is_not_known_yet(pages: Terraform) -> None:
    outcome = pages.run("plan")

    outcome.succeeded()
    assert 'aws_s3_bucket_notification.events["landing"] will be created' in outcome.text
