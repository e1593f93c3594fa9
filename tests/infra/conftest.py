"""A real Terraform that works on copies of terraform/ and talks to the moto server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY, missing_component

TERRAFORM_FOLDER = REPOSITORY / "terraform"
PROVIDERS = "registry.terraform.io"  # the folder that Terraform's own layout of unpacked providers begins with
SEARCH_DEPTH = 5
SEARCH_SECONDS = 20.0
NOT_SEARCHED = {"proc", "sys", "dev", ".terraform", "node_modules", ".git"}


@dataclass(frozen=True)
class Outcome:
    """How a Terraform command ended; line breaks of its text, which it wraps, are made spaces."""

    code: int
    text: str


class Terraform:
    """The terraform command in one folder, against one endpoint."""

    def __init__(self, command: str, folder: Path, endpoint: str) -> None:
        self.command, self.folder, self.endpoint = command, folder, endpoint

    def run(self, verb: str, *arguments: str, variables: Mapping[str, Any] | None = None) -> Outcome:
        given = [
            f"-var={name}={value if isinstance(value, str) else json.dumps(value)}"
            for name, value in (variables or {}).items()
        ]
        done = subprocess.run(
            [self.command, verb, "-no-color", *given, *arguments],
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Outcome(done.returncode, " ".join((done.stdout + done.stderr).split()))

    def apply(self, **variables: Any) -> Outcome:
        return self.run("apply", "-auto-approve", variables=variables)

    def destroy(self, **variables: Any) -> Outcome:
        return self.run("destroy", "-auto-approve", variables=variables)

    def outputs(self) -> dict[str, Any]:
        outcome = self.run("output", "-json")
        assert outcome.code == 0, outcome.text
        return {name: output["value"] for name, output in json.loads(outcome.text).items()}

    def _environment(self) -> dict[str, str]:
        """Keep the user's own Terraform settings out; send every AWS call to the endpoint."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
        return kept | {
            "AWS_ENDPOINT_URL": self.endpoint,
            "CHECKPOINT_DISABLE": "1",
            "TF_CLI_CONFIG_FILE": os.devnull,
            "TF_IN_AUTOMATION": "1",
            "TF_INPUT": "0",
        }


def find_plugin_dir() -> Path | None:
    """Return a folder for `terraform init -plugin-dir` that holds the AWS provider, if there is one."""
    named = [os.environ[name] for name in ("TF_PLUGIN_DIR", "TF_PLUGIN_CACHE_DIR") if os.environ.get(name)]
    for candidate in [*map(Path, named), TERRAFORM_FOLDER / ".terraform" / "providers"]:
        if _holds_provider(candidate):
            return candidate
    return next((folder for folder in _folders(Path("/")) if _holds_provider(folder)), None)


def _holds_provider(folder: Path) -> bool:
    return any((folder / PROVIDERS / "hashicorp" / "aws").glob("*/*/terraform-provider-aws*"))


def _folders(root: Path) -> Iterator[Path]:
    """Walk the file system breadth first, so far as depth and time allow, without following links."""
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


@pytest.fixture(scope="session")
def terraform_command() -> str:
    """Return the path of the terraform binary."""
    command = shutil.which("terraform")
    if command is None:
        missing_component("terraform", "install Terraform 1.5 or later and put it on PATH")
    assert command is not None
    return command


@pytest.fixture(scope="session")
def plugin_dir() -> Path:
    """Return the folder that the AWS provider is taken from."""
    found = find_plugin_dir()
    if found is None:
        missing_component(
            "The AWS provider of Terraform", "run `terraform init` in terraform/, or set TF_PLUGIN_DIR to its mirror"
        )
    assert found is not None
    return found


@pytest.fixture(scope="session")
def make_terraform(
    terraform_command: str, plugin_dir: Path, endpoint: str, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], Terraform]:
    """Return a builder of initialised copies of terraform/, each with a state of its own."""

    def make() -> Terraform:
        folder = tmp_path_factory.mktemp("terraform")
        for file in TERRAFORM_FOLDER.glob("*.tf"):
            shutil.copy(file, folder)
        made = Terraform(terraform_command, folder, endpoint)
        outcome = made.run("init", f"-plugin-dir={plugin_dir}")
        assert outcome.code == 0, outcome.text
        return made

    return make


@pytest.fixture(scope="session")
def applied(make_terraform: Callable[[], Terraform]) -> Terraform:
    """Return Terraform after an apply with all defaults: the table `glue-watermarks` is there."""
    made = make_terraform()
    outcome = made.apply()
    assert outcome.code == 0, outcome.text
    assert "Resources: 1 added, 0 changed, 0 destroyed." in outcome.text
    return made


@pytest.fixture(scope="session")
def outputs(applied: Terraform) -> dict[str, Any]:
    """Return the outputs of the applied configuration."""
    return applied.outputs()
