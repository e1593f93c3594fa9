"""Run a real Terraform on copies of terraform/, and find its provider."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import PATIENCE
from tests.support.places import REGION, REPOSITORY

TERRAFORM_FOLDER = REPOSITORY / "terraform"
PROVIDERS = "registry.terraform.io"  # the top folder in Terraform's layout of unpacked providers
SEARCH_DEPTH = 5
SEARCH_SECONDS = 20.0
NOT_SEARCHED = {"proc", "sys", "dev", ".terraform", "node_modules", ".git"}
EXAMPLE = "examples/complete"
MINIMAL = "examples/minimal"
PROVIDER = 'provider "aws" {\n  s3_use_path_style = true\n}\n'


@dataclass(frozen=True)
class Outcome:
    """How a Terraform command ended; spaces replace the line breaks in its text, because Terraform wraps lines."""

    code: int
    text: str

    def succeeded(self) -> None:
        """Fail unless the command succeeded; show only its errors, which come last, because pytest cuts long texts."""
        if self.code != 0:
            start = self.text.find("Error: ")
            pytest.fail(f"terraform exited with {self.code}: {self.text[max(start, 0) :]}", pytrace=False)


class Terraform:
    """The terraform command in one folder, against one endpoint, with one access key in one region."""

    def __init__(
        self, command: str, folder: Path, endpoint: str, access_key: str = "testing", region: str = REGION
    ) -> None:
        self.command, self.folder, self.endpoint = command, folder, endpoint
        self.access_key, self.region = access_key, region

    def start(self, verb: str, *arguments: str, variables: Mapping[str, Any] | None = None) -> subprocess.Popen[str]:
        """Start a command; `finish` waits for its end."""
        given = [
            f"-var={name}={value if isinstance(value, str) else json.dumps(value)}"
            for name, value in (variables or {}).items()
        ]
        return subprocess.Popen(
            [self.command, verb, "-no-color", *given, *arguments],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, process: subprocess.Popen[str], timeout: float = PATIENCE) -> Outcome:
        try:
            text, _ = process.communicate(timeout=timeout)
        finally:
            process.kill()
        return Outcome(process.returncode, " ".join(text.split()))

    def run(self, verb: str, *arguments: str, variables: Mapping[str, Any] | None = None) -> Outcome:
        return self.finish(self.start(verb, *arguments, variables=variables))

    def apply(self, **variables: Any) -> Outcome:
        return self.run("apply", "-auto-approve", variables=variables)

    def destroy(self, **variables: Any) -> Outcome:
        return self.run("destroy", "-auto-approve", variables=variables)

    def outputs(self) -> dict[str, Any]:
        outcome = self.run("output", "-json")
        outcome.succeeded()
        return {name: output["value"] for name, output in json.loads(outcome.text).items()}

    def planned(self, part: str, **variables: Any) -> Any:
        """Return a part of a plan, such as "resource_changes"."""
        planned = self.run("plan", "-out=plan", variables=variables)
        planned.succeeded()
        shown = self.run("show", "-json", "plan")
        shown.succeeded()
        return json.loads(shown.text)[part]

    def planned_outputs(self, **variables: Any) -> dict[str, Any]:
        """Return the outputs whose values are known in a first plan."""
        outputs = self.planned("planned_values", **variables)["outputs"]
        return {name: output["value"] for name, output in outputs.items() if "value" in output}

    def _environment(self) -> dict[str, str]:
        """Return an environment without the user's Terraform settings that sends every AWS call to the endpoint."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
        return kept | {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint,
            "CHECKPOINT_DISABLE": "1",
            # Collect garbage less often, which saves about a fifth of the CPU time of a command.
            "GOGC": "400",
            "TF_CLI_CONFIG_FILE": os.devnull,
            "TF_IN_AUTOMATION": "1",
            "TF_INPUT": "0",
        }


def table_names(dynamodb: Any) -> list[str]:
    return [name for page in dynamodb.get_paginator("list_tables").paginate() for name in page["TableNames"]]


def copy_of_module(folder: Path) -> Path:
    """Copy terraform/ with its tests and examples, and the scripts that they upload; return the module's folder."""
    unwanted = shutil.ignore_patterns(".terraform*", "terraform.tfstate*", "__pycache__")
    shutil.copytree(TERRAFORM_FOLDER, folder / "terraform", ignore=unwanted)
    shutil.copytree(REPOSITORY / "scripts" / "jobs", folder / "scripts" / "jobs", ignore=unwanted)
    return folder / "terraform"


def find_plugin_dir() -> Path | None:
    """Return a folder for `terraform init -plugin-dir` that holds the AWS provider, or None."""
    named = [os.environ[name] for name in ("TF_PLUGIN_DIR", "TF_PLUGIN_CACHE_DIR") if os.environ.get(name)]
    for candidate in [*map(Path, named), TERRAFORM_FOLDER / ".terraform" / "providers"]:
        if _holds_provider(candidate):
            return candidate
    return next((folder for folder in _folders(Path("/")) if _holds_provider(folder)), None)


def _holds_provider(folder: Path) -> bool:
    return any((folder / PROVIDERS / "hashicorp" / "aws").glob("*/*/terraform-provider-aws*"))


def _folders(root: Path) -> Iterator[Path]:
    """Yield folders breadth first, within limits of depth and time, without following links."""
    until = time.monotonic() + SEARCH_SECONDS
    waiting = deque([(root, 0)])
    while waiting and time.monotonic() < until:
        folder, depth = waiting.popleft()
        yield folder
        if depth < SEARCH_DEPTH:
            waiting.extend((child, depth + 1) for child in _children(folder))


def _children(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [
                Path(entry.path)
                for entry in entries
                if entry.name not in NOT_SEARCHED and entry.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return []
