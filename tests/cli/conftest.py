"""Fixtures: a table with jobs in every state, and the command, called in this process."""

from __future__ import annotations

import itertools
from datetime import datetime
from typing import Any

import boto3
import pytest
from click.testing import CliRunner, Result

from scripts.cli import deciding
from scripts.cli.main import cli
from scripts.helpers.watermarks import Watermarks
from tests.cli.stories import (
    NOW,
    Command,
    build_world,
)

_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def quiet_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start each test without a boto3 session and without variables for width, colour, table or completion."""
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "WATERMARKS_TABLE", "WATERMARKS_COMPLETE_JOBS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def world(dynamodb: Any, s3: Any) -> Watermarks:
    """Return a table with jobs in every state, which tests only read."""
    return build_world(dynamodb, s3, "council")


@pytest.fixture
def run(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return a function that calls the command in this process, at a fixed time, on a table or a `Watermarks`."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)

    def call(table: Watermarks | str, *arguments: str, now: datetime = NOW, **options: Any) -> Result:
        name = table if isinstance(table, str) else table.table_name
        given = ["--table", name, "--now", now.isoformat(), *arguments]
        return CliRunner().invoke(cli, given, prog_name="watermarks", **options)

    return call


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make commands ask their questions, as on a terminal."""
    monkeypatch.setattr(deciding, "is_asked", lambda: True)
