"""Bad configuration: a missing or wrong table, no credentials, no region, no permission."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import CredentialRetrievalError, NoCredentialsError

from scripts.helpers.errors import (
    AccessRefusedError,
    ConfigurationError,
    CredentialsError,
    InvalidValueError,
    TableNotFoundError,
    TableSchemaError,
)
from scripts.helpers.protocol.run import Run
from scripts.helpers.watermarks import Watermarks
from tests.support.faults import ClientFaults, Wire
from tests.support.places import REGION
from tests.support.steps import add
from tests.support.table_items import Stored

pytestmark = pytest.mark.usefixtures("dynamodb")

PRIVATE = "a-private-value"


CALLS: dict[str, Callable[[Watermarks, str], Any]] = {
    "begin": lambda watermarks, job_id: watermarks.begin(job_id, "r1"),
    "add_watermark": lambda watermarks, job_id: add(watermarks, job_id, "r1", mark=PRIVATE),
    "adopt": lambda watermarks, job_id: watermarks.adopt(job_id, "r1"),
    "get_most_recent_run_id": lambda watermarks, job_id: watermarks.get_most_recent_run_id(job_id),
    "get_watermark": lambda watermarks, job_id: watermarks.get_watermark(job_id, "r1"),
    "history": lambda watermarks, job_id: watermarks.history(job_id),
}
KEYS = {
    "other-names": [("id", "HASH", "S"), ("sort", "RANGE", "S")],
    "no-range-key": [("jobName", "HASH", "S")],
    "other-range-key": [("jobName", "HASH", "S"), ("version", "RANGE", "N")],
    "number": [("jobName", "HASH", "S"), ("runId", "RANGE", "N")],
}

OTHER_KEYS = [(keys, call) for keys in KEYS for call in CALLS if keys != "number" or call in ("begin", "add_watermark")]
"""The calls to test with each table; moto checks the types of keys only in writes."""


@pytest.fixture
def without_settings(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Return a monkeypatch for AWS settings, before any session has read them."""
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    return monkeypatch


# --- the table --------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", CALLS)
def test_call_names_table_region_and_remedy_when_the_table_is_missing(
    make_watermarks: Callable[..., Watermarks], job_id: str, call: str
) -> None:
    name = f"missing-{secrets.token_hex(4)}"
    watermarks = make_watermarks(name)

    with pytest.raises(TableNotFoundError) as caught:
        CALLS[call](watermarks, job_id)

    text = str(caught.value)
    assert f"There is no DynamoDB table {name!r} in region {REGION!r}." in text
    assert "`terraform apply` in terraform/" in text
    assert "Watermarks(...).create_table()" in text
    assert (caught.value.table_name, caught.value.region) == (name, REGION)
    assert watermarks.exists() is False


@pytest.mark.parametrize(("keys", "call"), OTHER_KEYS)
def test_call_says_which_keys_it_needs_when_the_table_has_others(
    make_watermarks: Callable[..., Watermarks], dynamodb: Any, job_id: str, keys: str, call: str
) -> None:
    name = f"other-keys-{secrets.token_hex(4)}"
    dynamodb.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": n, "AttributeType": kind} for n, _, kind in KEYS[keys]],
        KeySchema=[{"AttributeName": n, "KeyType": role} for n, role, _ in KEYS[keys]],
        BillingMode="PAY_PER_REQUEST",
    )

    with pytest.raises(TableSchemaError) as caught:
        CALLS[call](make_watermarks(name), job_id)

    assert f"Table {name!r} has another key schema. It needs hash key 'jobName' (S) and range key 'runId' (S)" in str(
        caught.value
    )
    assert "terraform/main.tf" in str(caught.value)
    assert dynamodb.scan(TableName=name)["Items"] == []
    dynamodb.delete_table(TableName=name)


def test_created_table_can_be_used_when_there_was_none(dynamodb: Any, job_id: str) -> None:
    watermarks = Watermarks(f"made-{secrets.token_hex(4)}", dynamodb)

    watermarks.create_table()

    add(watermarks, job_id, "r1", mark=PRIVATE)
    assert watermarks.exists()
    assert watermarks.get_most_recent_run_id(job_id) == "r1"
    dynamodb.delete_table(TableName=watermarks.table_name)


def test_created_table_expires_items_and_has_backups_when_it_is_made(dynamodb: Any, client: Any, wire: Wire) -> None:
    name = f"made-{secrets.token_hex(4)}"

    Watermarks(name, client).create_table()

    sent = [request.operation for request in wire.requests]
    assert sent == ["CreateTable", "DescribeTable", "UpdateTimeToLive", "UpdateContinuousBackups"]
    expiry = dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    backups = dynamodb.describe_continuous_backups(TableName=name)["ContinuousBackupsDescription"]
    assert expiry == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expiresAt"}
    assert backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"
    dynamodb.delete_table(TableName=name)


@pytest.mark.parametrize("operation", ["CreateTable", "UpdateTimeToLive"])
def test_table_is_made_when_an_answer_is_lost_on_the_way(
    dynamodb: Any, client: Any, faults: ClientFaults, job_id: str, operation: str
) -> None:
    """botocore sends the request again, and DynamoDB refuses it because the table exists by then."""
    watermarks = Watermarks(f"made-{secrets.token_hex(4)}", client)
    faults.resend(lambda request: request.operation == operation)

    watermarks.create_table()

    assert faults.hits == 1
    add(watermarks, job_id, "r1")
    assert watermarks.get_most_recent_run_id(job_id) == "r1"
    dynamodb.delete_table(TableName=watermarks.table_name)


def test_credentials_are_asked_for_when_there_are_none_to_make_a_table(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> None:
        raise NoCredentialsError

    monkeypatch.setattr(client, "create_table", refuse)

    with pytest.raises(ConfigurationError, match="credentials"):
        Watermarks("any", client).create_table()


def test_table_is_not_made_when_there_is_one(client: Any, wire: Wire, watermarks: Watermarks) -> None:
    with pytest.raises(ConfigurationError, match=r"refused create_table on table .*: ResourceInUseException"):
        Watermarks(watermarks.table_name, client).create_table()

    assert [request.operation for request in wire.requests] == ["CreateTable"]


def test_table_name_is_refused_as_configuration_when_it_is_empty(client: Any, wire: Wire) -> None:
    with pytest.raises(ConfigurationError, match=r"table '' is not a valid request. Check the name"):
        Watermarks("", client).begin("job", "r1")

    assert wire.requests == []


# --- credentials and region -----------------------------------------------------------------------------


def test_call_says_how_to_set_credentials_when_there_are_none(
    without_settings: pytest.MonkeyPatch, dynamodb: Any, job_id: str
) -> None:
    without_settings.delenv("AWS_ACCESS_KEY_ID")
    without_settings.delenv("AWS_SECRET_ACCESS_KEY")
    watermarks = Watermarks("some-table", endpoint_url=dynamodb.meta.endpoint_url)

    with pytest.raises(CredentialsError, match=r"No AWS credentials were found. Set AWS_PROFILE or AWS_ACCESS_KEY_ID"):
        watermarks.begin(job_id, "r1")


def test_watermarks_say_what_is_missing_when_credentials_are_partial(without_settings: pytest.MonkeyPatch) -> None:
    without_settings.delenv("AWS_SECRET_ACCESS_KEY")

    with pytest.raises(CredentialsError, match=r"cannot be used: Partial credentials.*AWS_SECRET_ACCESS_KEY"):
        Watermarks("some-table")


def test_watermarks_name_the_profile_when_it_is_unknown(without_settings: pytest.MonkeyPatch) -> None:
    without_settings.setenv("AWS_PROFILE", "no-such-profile")

    with pytest.raises(CredentialsError, match=r"no-such-profile.*[^.]\. Fix the profile"):
        Watermarks("some-table")


def test_watermarks_say_how_to_set_a_region_when_there_is_none(without_settings: pytest.MonkeyPatch) -> None:
    without_settings.delenv("AWS_DEFAULT_REGION")

    with pytest.raises(CredentialsError, match=r"No AWS region is set. Pass region_name, or set AWS_DEFAULT_REGION"):
        Watermarks("some-table")


def test_region_is_the_given_one_when_none_is_set(without_settings: pytest.MonkeyPatch, dynamodb: Any) -> None:
    without_settings.delenv("AWS_DEFAULT_REGION")
    watermarks = Watermarks("missing-everywhere", region_name="eu-central-1", endpoint_url=dynamodb.meta.endpoint_url)

    with pytest.raises(TableNotFoundError, match="'missing-everywhere' in region 'eu-central-1'"):
        watermarks.latest("job")


@pytest.mark.parametrize(
    "code",
    [
        "ExpiredTokenException",
        "ExpiredToken",
        "UnrecognizedClientException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
    ],
)
def test_call_says_to_renew_credentials_when_aws_does_not_accept_them(
    hooked: Watermarks, faults: ClientFaults, job_id: str, stored: Stored, code: str
) -> None:
    faults.refuse(code, times=100)

    with pytest.raises(CredentialsError, match=rf"does not accept the credentials \({code}\)\. Renew them\."):
        hooked.begin(job_id, "r1")

    assert faults.hits == 1
    assert stored() == {}


def test_call_says_to_renew_credentials_when_their_provider_fails(client: Any, job_id: str) -> None:
    def fail(**_: Any) -> None:
        raise CredentialRetrievalError(provider="sso", error_msg=PRIVATE)

    client.meta.events.register("before-sign.dynamodb", fail)

    with pytest.raises(CredentialsError, match=r"cannot be used \(CredentialRetrievalError\)\. Renew them") as caught:
        Watermarks("some-table", client).latest(job_id)

    assert PRIVATE not in str(caught.value)


# --- permission -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", CALLS)
def test_call_names_action_and_table_when_access_is_denied(
    hooked: Watermarks, faults: ClientFaults, job_id: str, stored: Stored, call: str
) -> None:
    faults.refuse("AccessDeniedException", times=100)

    with pytest.raises(AccessRefusedError, match="Allow it in the role's policy") as caught:
        CALLS[call](hooked, job_id)

    assert (caught.value.action, caught.value.resource) == ("dynamodb:GetItem", hooked.table_name)
    assert f"AWS refuses dynamodb:GetItem on {hooked.table_name!r}" in str(caught.value)
    assert faults.hits == 1
    assert stored() == {}


@pytest.mark.parametrize("verb", ["freeze", "commit", "abort"])
def test_write_names_its_action_when_only_reads_are_allowed(
    hooked: Watermarks, faults: ClientFaults, job_id: str, stored: Stored, verb: str
) -> None:
    run = hooked.begin(job_id, "r1")
    if verb != "freeze":
        run.freeze({}, {"mark": PRIVATE})
    before = stored()
    faults.refuse("AccessDeniedException", lambda request: not request.is_read, times=100)
    acts: dict[str, Callable[[Run], Any]] = {"freeze": lambda it: it.freeze({}, {"mark": PRIVATE})}

    with pytest.raises(AccessRefusedError, match="dynamodb:PutItem") as caught:
        acts.get(verb, lambda it: getattr(it, verb)())(run)

    assert PRIVATE not in str(caught.value)
    assert faults.hits == 1
    assert stored() == before


@pytest.mark.parametrize(
    ("call", "code"), [("begin", "LimitExceededException"), ("add_watermark", "ValidationException")]
)
def test_error_names_the_code_when_dynamodb_refuses_for_another_reason(
    hooked: Watermarks, faults: ClientFaults, job_id: str, stored: Stored, call: str, code: str
) -> None:
    faults.refuse(code, times=100, status=499)

    with pytest.raises(ConfigurationError, match=rf"refused get_item on table '.*': {code}\.") as caught:
        CALLS[call](hooked, job_id)

    assert PRIVATE not in str(caught.value)
    assert stored() == {}


@pytest.mark.parametrize("seconds", [0, -1])
def test_retention_is_refused_when_it_is_not_above_zero(
    make_watermarks: Callable[..., Watermarks], seconds: int
) -> None:
    with pytest.raises(InvalidValueError, match=f"The retention is {seconds} seconds; it must be above 0"):
        make_watermarks("any", retention=timedelta(seconds=seconds))
