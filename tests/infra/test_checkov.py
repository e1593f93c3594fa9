"""Every Checkov finding in terraform/ is fixed, or suppressed with a reason."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.infra.terraform import copy_of_module
from tests.support.components import missing_component
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.if_changed("terraform")

RECOVERY = "  point_in_time_recovery {\n    enabled = true\n  }\n"
"""A block that is removed from a copy of the module, to prove that Checkov reports findings."""


@pytest.fixture(scope="module")
def checkov() -> str:
    """Return the path of checkov: the one that .ci/setup installs in an environment of its own, or one on PATH."""
    beside = Path(sys.prefix) / "checkov" / "bin" / "checkov"
    command = str(beside) if beside.exists() else shutil.which("checkov")
    if command is None:
        missing_component("checkov", "run .ci/setup, or install it with pipx")
    assert command is not None
    return command


@pytest.fixture(scope="module")
def report(checkov: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Return checkov's results for the module with its example, and for a broken copy in the folder `broken`."""
    folder = tmp_path_factory.mktemp("checkov")
    module = copy_of_module(folder)
    broken = folder / "terraform" / "broken"
    broken.mkdir()
    for file in module.glob("*.tf"):
        (broken / file.name).write_text(file.read_text().replace(RECOVERY, ""))
    done = subprocess.run(
        [checkov, "-d", module, "--framework", "terraform", "-o", "json", "--download-external-modules", "false"],
        env={name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST_"))},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stdout.startswith("{"), done.stderr
    results: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)["results"]
    return results


def names(checks: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(check["check_id"], check["resource"]) for check in checks}


def of_ours(checks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [check for check in checks if not check["file_path"].startswith("/broken/")]


def test_module_and_example_have_no_finding_when_checked(report: dict[str, list[dict[str, Any]]]) -> None:
    assert names(of_ours(report["failed_checks"])) == set()


def test_findings_show_up_when_recovery_is_taken_away(report: dict[str, list[dict[str, Any]]]) -> None:
    found = names(report["failed_checks"]) - names(of_ours(report["failed_checks"]))

    assert found == {("CKV_AWS_28", "aws_dynamodb_table.watermarks[0]")}


def test_every_skip_says_why_when_a_check_is_skipped(report: dict[str, list[dict[str, Any]]]) -> None:
    skipped = of_ours(report["skipped_checks"])

    reasons = {check["check_id"]: check["check_result"]["suppress_comment"] for check in skipped}

    assert set(reasons) == {"CKV_AWS_119", "CKV_AWS_18", "CKV_AWS_144", "CKV2_AWS_62"}
    assert [check for check, reason in reasons.items() if len(reason.split()) < 8] == []
