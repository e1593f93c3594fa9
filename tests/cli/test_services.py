"""Errors that botocore raises for services other than DynamoDB: the message, the next step and the exit code."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    TokenRetrievalError,
)

from scripts.cli.surroundings import Surroundings
from tests.cli.stories import Command

LOGIN = "aws sso login, or give another --profile"
REGION = "Give --region, or set AWS_DEFAULT_REGION."
ARN = "arn:aws:glue:eu-west-2:1:job/old"
DENIED = f"User: u is not authorized to perform: glue:GetJobRuns on resource: {ARN}"


def refusal(code: str, status: int = 400, text: str = "no") -> ClientError:
    """Return the error of a refused call; with status 0, one without an HTTP status."""
    answer: Any = {"Error": {"Code": code, "Message": text}}
    if status:
        answer["ResponseMetadata"] = {"HTTPStatusCode": status}
    return ClientError(answer, "GetJobRuns")


@pytest.mark.parametrize(
    ("error", "name", "hint", "exit_code"),
    [
        (NoCredentialsError(), "NoCredentialsError", LOGIN, 78),
        (NoRegionError(), "NoRegionError", REGION, 78),
        (TokenRetrievalError(provider="sso", error_msg="expired"), "TokenRetrievalError", LOGIN, 78),
        (EndpointConnectionError(endpoint_url="http://glue"), "EndpointConnectionError", None, 75),
        (refusal("ExpiredToken"), "ExpiredToken", LOGIN, 78),
        (
            refusal("AccessDenied", text=DENIED),
            "AccessDenied",
            f"Missing in the role's policy: glue:GetJobRuns on {ARN}.",
            78,
        ),
        (refusal("AccessDenied"), "AccessDenied", "Missing in the role's policy: GetJobRuns.", 78),
        (refusal("ThrottlingException"), "ThrottlingException", None, 75),
        (refusal("InternalFailure", 500), "InternalFailure", None, 75),
        (refusal("InvalidInput", 499), "InvalidInput", None, 1),
        (refusal("InvalidInput", 0), "InvalidInput", None, 1),
    ],
    ids=["credentials", "region", "token", "connection", "expired", "denied", "denied-unsaid", "throttled", "500",
         "499", "no-status"],
)  # fmt: skip
def test_error_names_the_next_step_when_a_service_refuses(
    run: Command,
    monkeypatch: pytest.MonkeyPatch,
    error: BotoCoreError | ClientError,
    name: str,
    hint: str | None,
    exit_code: int,
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(Surroundings, "client", fail)

    done = run("council", "history", "old", "--runs", "--glue", "--output", "json")

    told = json.loads(done.stderr)
    assert told.pop("used")["table"] == "council"
    assert told == {"error": name, "reason": None, "message": str(error), "hint": hint}
    assert done.exit_code == exit_code


def test_login_is_for_the_profile_when_one_is_given(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise NoCredentialsError

    monkeypatch.setattr(Surroundings, "client", fail)

    done = run("council", "--profile", "night", "history", "old", "--runs", "--glue")

    assert "hint: aws sso login --profile night, or give another --profile" in done.stderr
