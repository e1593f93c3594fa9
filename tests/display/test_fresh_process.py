"""Every call that creates an AWS client or receives a password adds the filter itself, so no caller needs to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import boto3
import pytest

from scripts.helpers.display.redaction import HIDDEN
from tests.display.fresh_process import CALLS, CALLS_WITH_SPARK, URL
from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY

SECRET = "hunter2"


@pytest.fixture(scope="module")
def shop(endpoint: str) -> None:
    """Create two connections to a database with a password, one of its tables, and a secret."""
    glue, secrets = (boto3.client(service, endpoint_url=endpoint) for service in ("glue", "secretsmanager"))
    secrets.create_secret(Name="redacted-login", SecretString=f'{{"username": "ann", "password": "{SECRET}"}}')
    login = {"USERNAME": "ann", "PASSWORD": SECRET}
    for name, properties in (("redacted", login), ("redacted-by-secret", {"SECRET_ID": "redacted-login"})):
        given: Any = {"JDBC_CONNECTION_URL": URL, **properties}
        glue.create_connection(ConnectionInput={"Name": name, "ConnectionType": "JDBC", "ConnectionProperties": given})
    parameters = {"classification": "postgresql", "connectionName": "redacted"}
    storage = {"Location": "shop.public.repairs"}
    glue.create_database(DatabaseInput={"Name": "redacted"})
    glue.create_table(
        DatabaseName="redacted",
        TableInput={"Name": "repairs", "StorageDescriptor": storage, "Parameters": parameters},
    )


def logged(calls: Collection[str], folder: Path, **variables: str) -> dict[str, tuple[int, str]]:
    """Return the exit code and the log of each call, made in a process without earlier calls."""
    standin = REPOSITORY / "tests" / "support" / "awsglue_standin"
    given = {"PYTHONPATH": f"{REPOSITORY}{os.pathsep}{standin}"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.display.fresh_process", str(folder), *calls],
        cwd=REPOSITORY, env={**os.environ, **given, **variables}, capture_output=True, text=True, timeout=PATIENCE,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    codes = map(int, done.stdout.split())
    return {call: (code, (folder / f"{call}.log").read_text()) for call, code in zip(calls, codes, strict=True)}


@pytest.fixture(scope="module")
def logs(endpoint: str, shop: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Return the log of each call that sends requests to AWS."""
    variables = {"AWS_SESSION_TOKEN": SECRET, "PYICEBERG_CATALOG__LAKE__TYPE": "glue"}
    return logged(CALLS, tmp_path_factory.mktemp("logs"), AWS_ENDPOINT_URL=endpoint, **variables)


@pytest.fixture(scope="module")
def logs_with_spark(
    endpoint: str, shop: None, spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[int, str]]:
    """Return the log of each call that passes a password to the JVM."""
    parameters = spark.sparkContext._gateway.gateway_parameters
    gateway = {"PYSPARK_GATEWAY_PORT": str(parameters.port), "PYSPARK_GATEWAY_SECRET": parameters.auth_token}
    variables = {"AWS_ENDPOINT_URL": endpoint, "AWS_SECRET_ACCESS_KEY": SECRET, **gateway}
    return logged(CALLS_WITH_SPARK, tmp_path_factory.mktemp("logs"), **variables)


def lines_with(secret: str, log: str) -> list[str]:
    return [line[:200] for line in log.splitlines() if secret in line]


@pytest.mark.parametrize("call", CALLS)
def test_log_holds_no_secret_when_nothing_else_was_called_before(call: str, logs: dict[str, tuple[int, str]]) -> None:
    code, log = logs[call]

    assert code == 0, log[-2000:]
    assert lines_with(SECRET, log) == []
    assert HIDDEN in log


@pytest.mark.parametrize("call", CALLS_WITH_SPARK)
def test_log_holds_no_password_when_a_jvm_is_given_it_first(
    call: str, logs_with_spark: dict[str, tuple[int, str]]
) -> None:
    code, log = logs_with_spark[call]

    assert code == 0, log[-2000:]
    assert lines_with(SECRET, log) == []
    assert HIDDEN in log
