"""Logins stored in AWS Secrets Manager: read by name, never logged, and a typed error if there is none."""

from __future__ import annotations

import argparse
import itertools
import json
import logging
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from botocore.stub import Stubber

from scripts.helpers.databases import login_of_secret
from scripts.helpers.errors import SourceError, SourceUnavailableError
from scripts.helpers.glue.catalog import Catalog
from scripts.jobs.ingest_table import login_of

LOGIN = {"user": "reader", "password": "my-own-password"}
_numbers = itertools.count(1)
SECRET = json.dumps({"username": "reader", "password": "my-own-password", "engine": "postgres"})


@pytest.fixture
def secrets(mocked_aws: None) -> Any:
    return boto3.client("secretsmanager")


def kept(secrets: Any, **secret: Any) -> str:
    name = f"secret-{next(_numbers)}"
    secrets.create_secret(Name=name, **secret)
    return name


def test_login_is_that_of_the_secret_when_it_is_of_rds(secrets: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    assert login_of_secret(kept(secrets, SecretString=SECRET)) == LOGIN
    assert "GetSecretValue" in caplog.text
    # Storing the secret in this test logs its text before it is read.
    assert "my-own-password" not in caplog.text.partition("GetSecretValue")[2]


@pytest.mark.parametrize(
    "secret",
    [
        {"SecretString": "no JSON"},
        {"SecretString": "[1]"},
        {"SecretString": json.dumps({"username": "reader"})},
        {"SecretString": json.dumps({"username": "reader", "password": 5})},
        {"SecretString": "[" * 30_000},
        {"SecretBinary": b"x"},
    ],
    ids=lambda secret: next(iter(secret.values()))[:20],
)
def test_secret_is_refused_without_its_text_when_it_holds_no_login(secrets: Any, secret: Any) -> None:
    with pytest.raises(SourceError, match=r"it holds no (username|password)") as caught:
        login_of_secret(kept(secrets, **secret))

    assert "reader" not in str(caught.value)


def test_secret_is_named_when_there_is_none(secrets: Any) -> None:
    with pytest.raises(SourceError, match=r"secret no-such.*ResourceNotFoundException"):
        login_of_secret("no-such")


def test_job_tries_again_later_when_secrets_manager_does_not_answer() -> None:
    client = boto3.client("secretsmanager")
    with Stubber(client) as stub:
        stub.add_client_error("get_secret_value", "ThrottlingException")
        with pytest.raises(SourceUnavailableError, match="ThrottlingException"):
            login_of_secret("revenues", client)

    class Nobody:
        def get_secret_value(self, **_: Any) -> None:
            raise EndpointConnectionError(endpoint_url="https://me:secret@nowhere")

    with pytest.raises(SourceUnavailableError, match="EndpointConnectionError") as caught:
        login_of_secret("revenues", Nobody())
    assert "nowhere" not in str(caught.value)


def arguments(**given: Any) -> argparse.Namespace:
    usual = {"jdbc_secret": None, "jdbc_connection": None, "jdbc_user_from": "THE_USER", "jdbc_password_from": "NONE"}
    return argparse.Namespace(**(usual | given))


def test_job_takes_the_login_of_a_secret_when_one_is_named(secrets: Any) -> None:
    assert login_of(arguments(jdbc_secret=kept(secrets, SecretString=SECRET))) == LOGIN


@pytest.mark.parametrize("keeps", ["itself", "secret"])
def test_job_takes_the_login_of_a_connection_when_one_is_named(secrets: Any, keeps: str) -> None:
    name = f"connection-{next(_numbers)}"
    login = {"USERNAME": "reader", "PASSWORD": "my-own-password"}
    if keeps == "secret":
        login = {"SECRET_ID": kept(secrets, SecretString=SECRET)}
    properties = {"JDBC_CONNECTION_URL": "jdbc:postgresql://db/shop", **login}
    boto3.client("glue").create_connection(
        ConnectionInput={"Name": name, "ConnectionType": "JDBC", "ConnectionProperties": properties}
    )

    assert login_of(arguments(jdbc_connection=name)) == LOGIN
    assert Catalog().connection(name) == {"url": "jdbc:postgresql://db/shop", **LOGIN}


def test_job_takes_the_login_of_the_environment_when_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_USER", "reader")
    monkeypatch.delenv("NONE", raising=False)

    assert login_of(arguments()) == {"user": "reader"}
