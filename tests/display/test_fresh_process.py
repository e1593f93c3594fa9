"""Whoever makes a client of AWS, or is given a password, adds the filter: no caller has to think of it."""

from __future__ import annotations

import os
import subprocess
import sys
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
    """Make two connections to a database that has a password, a table of it, and a secret."""
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


def logged(call: str, endpoint: str, **variables: str) -> str:
    """Return what a fresh process logs that makes one call, with the log of everything on."""
    standin = REPOSITORY / "tests" / "support" / "awsglue_standin"
    given = {"AWS_ENDPOINT_URL": endpoint, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{standin}"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.display.fresh_process", call],
        cwd=REPOSITORY, env={**os.environ, **given, **variables}, capture_output=True, text=True, timeout=PATIENCE,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + done.stderr


def lines_with(secret: str, log: str) -> list[str]:
    return [line[:200] for line in log.splitlines() if secret in line]


@pytest.mark.parametrize("call", CALLS)
def test_log_holds_no_secret_when_nothing_else_was_called_before(call: str, endpoint: str, shop: None) -> None:
    log = logged(call, endpoint, AWS_SESSION_TOKEN=SECRET, PYICEBERG_CATALOG__LAKE__TYPE="glue")

    assert lines_with(SECRET, log) == []
    assert HIDDEN in log


@pytest.mark.parametrize("call", CALLS_WITH_SPARK)
def test_log_holds_no_password_when_a_jvm_is_given_it_first(call: str, endpoint: str, shop: None, spark: Any) -> None:
    parameters = spark.sparkContext._gateway.gateway_parameters
    gateway = {"PYSPARK_GATEWAY_PORT": str(parameters.port), "PYSPARK_GATEWAY_SECRET": parameters.auth_token}

    log = logged(call, endpoint, AWS_SECRET_ACCESS_KEY=SECRET, **gateway)

    assert lines_with(SECRET, log) == []
    assert HIDDEN in log
