"""The policy evaluator follows the rules of the IAM User Guide."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.iam_policies import Request, is_allowed
from tests.support.iam_requests import asked

TABLE = "arn:aws:dynamodb:eu-west-2:123456789012:table/glue-watermarks"
LEADING = "dynamodb:LeadingKeys"
OWN = {"ForAllValues:StringLike": {LEADING: ["parking-*"]}}
NOT_ABSENT = {"Null": {LEADING: "false"}}


def policy(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def allow(condition: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
    statement = {"Effect": "Allow", "Action": "dynamodb:*", "Resource": TABLE} | changed
    return statement | ({"Condition": condition} if condition else {})


def request(action: str = "dynamodb:GetItem", resource: str = TABLE, **context: Any) -> Request:
    return Request(action, resource, {name.replace("__", ":"): value for name, value in context.items()})


def of_jobs(*names: str) -> Request:
    return Request("dynamodb:GetItem", TABLE, {LEADING: names})


def test_foreign_jobs_are_refused_when_all_values_must_match() -> None:
    guarded = [policy(allow(OWN | NOT_ABSENT))]

    answers = [is_allowed(guarded, of_jobs(*jobs)) for jobs in (["parking-a"], ["waste-a"], ["parking-a", "waste-a"])]

    assert answers == [True, False, False]


def test_absent_key_is_allowed_when_only_all_values_are_tested() -> None:
    """The pitfall: "ForAllValues returns true if there are no keys in the request"."""
    scan = request("dynamodb:Scan")

    assert is_allowed([policy(allow(OWN))], scan)
    assert not is_allowed([policy(allow(OWN | NOT_ABSENT))], scan)


@pytest.mark.parametrize("values", [(), ("",)], ids=["no-values", "empty-value"])
def test_for_all_values_holds_and_for_any_value_fails_when_there_is_no_value(values: tuple[str, ...]) -> None:
    asked_for = Request("dynamodb:GetItem", TABLE, {LEADING: values})

    assert is_allowed([policy(allow(OWN))], asked_for)
    assert not is_allowed([policy(allow({"ForAnyValue:StringLike": {LEADING: ["*"]}}))], asked_for)


def test_one_match_is_enough_when_any_value_is_tested() -> None:
    documents = [policy(allow({"ForAnyValue:StringLike": {LEADING: ["parking-*"]}}))]

    assert is_allowed(documents, of_jobs("waste-a", "parking-a"))
    assert not is_allowed(documents, of_jobs("waste-a"))


@pytest.mark.parametrize(
    ("condition", "with_key", "without_key"),
    [
        pytest.param({"StringLike": {"s3:prefix": "in/*"}}, True, False, id="like"),
        pytest.param({"StringLike": {"s3:prefix": "i?/*"}}, True, False, id="one-sign"),
        pytest.param({"StringLike": {"s3:prefix": "IN/*"}}, False, False, id="like-is-case-sensitive"),
        pytest.param({"StringLike": {"S3:Prefix": ["out/*", "in/*"]}}, True, False, id="one-of-many-and-key-any-case"),
        pytest.param({"StringEquals": {"s3:prefix": "in/*"}}, False, False, id="equals-knows-no-wildcards"),
        pytest.param({"StringEquals": {"s3:prefix": "in/a"}}, True, False, id="equals"),
        pytest.param({"StringNotEquals": {"s3:prefix": "in/a"}}, False, True, id="not-equals"),
        pytest.param({"StringNotLike": {"s3:prefix": ["x", "in/*"]}}, False, True, id="not-like-any"),
        pytest.param({"StringLikeIfExists": {"s3:prefix": "x"}}, False, True, id="if-exists"),
        pytest.param({"Null": {"s3:prefix": "true"}}, False, True, id="null"),
        pytest.param({"Null": {"s3:prefix": "false"}}, True, False, id="not-null"),
        pytest.param(
            {"StringLike": {"s3:prefix": "in/*"}, "Bool": {"aws:SecureTransport": "true"}}, False, False, id="both"
        ),
    ],
)
def test_condition_holds_as_documented_when_its_key_is_there_or_not(
    condition: dict[str, Any], with_key: bool, without_key: bool
) -> None:
    documents = [policy(allow(condition))]

    answers = is_allowed(documents, request(s3__prefix="in/a")), is_allowed(documents, request())

    assert answers == (with_key, without_key)


def test_deny_wins_when_another_policy_allows() -> None:
    deny = policy(allow(Effect="Deny", Action="dynamodb:Delete*"))

    assert is_allowed([policy(allow()), deny], request("dynamodb:GetItem"))
    assert not is_allowed([policy(allow()), deny], request("dynamodb:DeleteItem"))
    assert not is_allowed([], request())


@pytest.mark.parametrize(
    ("pattern", "resource", "expected"),
    [
        pytest.param(TABLE, TABLE, True, id="same"),
        pytest.param(TABLE, f"{TABLE}-2", False, id="longer"),
        pytest.param(TABLE, TABLE.upper(), False, id="other-case"),
        pytest.param("arn:aws:s3:::b/in/*", "arn:aws:s3:::b/in/a/b.json", True, id="over-slashes"),
        pytest.param("arn:aws:s3:::b/in/*", "arn:aws:s3:::b/inner", False, id="outside"),
    ],
)
def test_resource_matches_as_documented_when_patterns_differ(pattern: str, resource: str, expected: bool) -> None:
    found = is_allowed([policy(allow(Resource=pattern))], request(resource=resource))

    assert found is expected


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param(allow({"NumericLessThan": {"s3:max-keys": "10"}}), id="operator"),
        pytest.param(allow({"Sometimes:StringLike": {LEADING: "x"}}), id="set-operator"),
        pytest.param(allow({"StringLike": {"s3:prefix": "${aws:username}/*"}}), id="variable"),
        pytest.param(allow({"StringLike": {LEADING: "x"}}), id="many-values-without-set-operator"),
        pytest.param(allow() | {"NotAction": "dynamodb:Scan"}, id="element"),
    ],
)
def test_evaluation_fails_when_a_policy_has_what_it_does_not_know(statement: dict[str, Any]) -> None:
    asked_for = Request("dynamodb:GetItem", TABLE, {"s3:prefix": "a", "s3:max-keys": "5", LEADING: ("a", "b")})

    with pytest.raises(ValueError, match=r"does not know|has many values"):
        is_allowed([policy(statement)], asked_for)


@pytest.mark.parametrize(
    ("operation", "body", "expected"),
    [
        pytest.param("GetItem", '"Key": {"jobName": {"S": "a"}}', ("a",), id="get"),
        pytest.param("PutItem", '"Item": {"jobName": {"S": "a"}}', ("a",), id="put"),
        pytest.param(
            "Query",
            '"KeyConditionExpression": "#r BETWEEN :x AND :y AND #j = :j", "ExpressionAttributeNames": '
            '{"#j": "jobName", "#r": "runId"}, "ExpressionAttributeValues": {":j": {"S": "a"}}',
            ("a",),
            id="query",
        ),
        pytest.param("Scan", '"Limit": 1', None, id="scan"),
    ],
)
def test_leading_keys_are_those_of_the_request_when_it_names_any(operation: str, body: str, expected: Any) -> None:
    headers = {"x-amz-target": f"DynamoDB_20120810.{operation}"}

    [found] = asked("dynamodb", "eu-west-2", "POST", "/", headers, f'{{"TableName": "t", {body}}}'.encode())

    assert found.action == f"dynamodb:{operation}"
    assert found.resource == "arn:aws:dynamodb:eu-west-2:123456789012:table/t"
    assert found.context.get(LEADING) == expected


@pytest.mark.parametrize(
    ("method", "target", "action", "resource", "prefix"),
    [
        pytest.param("GET", "/b?list-type=2&prefix=in%2F", "ListBucket", "b", "in/", id="list"),
        pytest.param("GET", "/b?list-type=2", "ListBucket", "b", None, id="list-without-prefix"),
        pytest.param("GET", "/b?versions&prefix=in%2F", "ListBucketVersions", "b", "in/", id="versions"),
        pytest.param("GET", "/b/in/a%20b", "GetObject", "b/in/a b", None, id="get"),
        pytest.param("HEAD", "/b/in/a?versionId=v", "GetObjectVersion", "b/in/a", None, id="head-version"),
        pytest.param("PUT", "/b/in/a", "PutObject", "b/in/a", None, id="put"),
        pytest.param("DELETE", "/b/in/a", "DeleteObject", "b/in/a", None, id="delete"),
    ],
)
def test_s3_request_needs_its_action_when_it_is_taken_apart(
    method: str, target: str, action: str, resource: str, prefix: str | None
) -> None:
    [found] = asked("s3", "eu-west-2", method, target, {}, b"")

    assert (found.action, found.resource) == (f"s3:{action}", f"arn:aws:s3:::{resource}")
    assert found.context.get("s3:prefix") == prefix


@pytest.mark.parametrize(
    ("operation", "body", "resources"),
    [
        pytest.param(
            "GetTable", {"DatabaseName": "d", "Name": "t"}, ["catalog", "database/d", "table/d/t"], id="table"
        ),
        pytest.param(
            "GetPartitions",
            {"DatabaseName": "d", "TableName": "t"},
            ["catalog", "database/d", "table/d/t"],
            id="partitions",
        ),
        pytest.param("GetConnection", {"Name": "c"}, ["catalog", "connection/c"], id="connection"),
    ],
)
def test_catalogue_lookup_needs_every_level_above_it_when_it_is_evaluated(
    operation: str, body: dict[str, str], resources: list[str]
) -> None:
    found = asked("glue", "eu-west-2", "POST", "/", {"x-amz-target": f"AWSGlue.{operation}"}, json.dumps(body).encode())

    start = "arn:aws:glue:eu-west-2:123456789012"
    assert [(one.action, one.resource) for one in found] == [(f"glue:{operation}", f"{start}:{r}") for r in resources]
