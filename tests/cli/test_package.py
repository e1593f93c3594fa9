"""The installed command, and what its package may call and import."""

from __future__ import annotations

import importlib
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.support.imports import DYNAMODB_CALLS, S3_CALLS, calls_of, names_imported, packages_of, parse
from tests.support.places import REPOSITORY

FILES = sorted((REPOSITORY / "scripts" / "cli").glob("*.py"))
every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def test_command_is_installed_with_its_package_when_setup_is_read() -> None:
    setup = ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")

    name, _, target = setup["options.entry_points"]["console_scripts"].strip().partition(" = ")
    module, _, function = target.partition(":")

    assert name == "watermarks"
    assert callable(getattr(importlib.import_module(module), function))
    assert "scripts.cli" in setup["options"]["packages"].split()


@every_file
def test_aws_is_called_by_helpers_only_when_the_command_line_is_read(path: Path) -> None:
    assert calls_of(parse(path), DYNAMODB_CALLS | S3_CALLS) == set()


@every_file
def test_spark_and_pyarrow_are_imported_where_they_are_needed_only_when_read(path: Path) -> None:
    assert not packages_of(path, "module") & {"pyspark", "pyarrow"}


@pytest.mark.parametrize("folder", ["helpers", "jobs"])
def test_nothing_below_knows_the_command_line_when_read(folder: str) -> None:
    paths = (REPOSITORY / "scripts" / folder).rglob("*.py")

    assert [path for path in paths if any(name.startswith("scripts.cli.") for name in names_imported(path))] == []
