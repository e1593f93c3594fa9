"""The double of DynamoDB gives the same answers as moto to the requests that this package makes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.helpers.protocol import dynamodb, items, requests
from tests.support.dynamodb import FakeDynamoDB
from tests.support.table_requests import NOW, entries, heads, jobs, range_keys, small

TABLE = "table"


def _expire(job_id: str, range_key: str, version: int | None) -> dict[str, Any]:
    return dynamodb.write_item(TABLE, requests.expire(job_id, range_key, NOW + timedelta(days=1), version))


def _put(writes: st.SearchStrategy[requests.Put]) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    return writes.map(lambda write: ("put_item", dynamodb.write_item(TABLE, write)))


def _get(job_id: str, range_key: str) -> dict[str, Any]:
    return dynamodb.get_item(TABLE, items.key(job_id, range_key))


def _query_job(job_id: str) -> dict[str, Any]:
    return dynamodb.query(TABLE, requests.Between(job_id))


def _put_legacy(job_id: str, run_id: str) -> dict[str, Any]:
    return {"TableName": TABLE, "Item": items.key(job_id, run_id) | {"watermarks": {"M": {"value": {"N": "1"}}}}}


def _query_legacy(job_id: str) -> dict[str, Any]:
    return {
        "TableName": TABLE,
        "KeyConditionExpression": "#job = :job",
        "ExpressionAttributeNames": {"#job": items.HASH_KEY},
        "ExpressionAttributeValues": {":job": {"S": job_id}},
        "ScanIndexForward": False,
        "Limit": 1,
    }


def _delete(job_id: str, range_key: str) -> dict[str, Any]:
    return {"TableName": TABLE, "Key": items.key(job_id, range_key)}


def _send(client: Any, method: str, request: dict[str, Any]) -> Any:
    """Return the answer to a request: all pages of a query, or the code of the error."""
    try:
        answer = getattr(client, method)(**request)
    except ClientError as error:
        return error.response["Error"]["Code"]
    if method != "query":
        return {name: answer[name] for name in answer.keys() & {"Item"}}
    found = answer["Items"]
    while "LastEvaluatedKey" in answer:
        answer = client.query(**request | {"ExclusiveStartKey": answer["LastEvaluatedKey"]})
        found += answer["Items"]
    return found


sent = st.one_of(
    _put(st.builds(requests.put_head, st.none() | heads(), heads())),
    st.tuples(
        st.just("update_item"),
        heads()
        .filter(lambda head: head.claim is not None)
        .map(lambda head: dynamodb.write_item(TABLE, requests.renew_lease(head))),
    ),
    _put(st.builds(requests.put_log, entries)),
    _put(st.builds(requests.put_run, entries)),
    st.tuples(st.just("put_item"), st.builds(_put_legacy, jobs, st.sampled_from(["jr_1", "zz"]))),
    _put(st.builds(requests.put_chunk, jobs, st.just("p#t1-0"), small, st.just(b"\x00data"))),
    st.tuples(st.just("update_item"), st.builds(_expire, jobs, range_keys, st.none() | small)),
    st.tuples(st.just("delete_item"), st.builds(_delete, jobs, range_keys)),
    st.tuples(st.just("get_item"), st.builds(_get, jobs, range_keys)),
    st.tuples(
        st.just("query"),
        st.builds(
            lambda job_id, below, page: dynamodb.query(TABLE, requests.log_query(job_id, below=below, page=page)),
            jobs, st.none() | st.integers(1, 3), st.none() | st.integers(1, 3),
        ),
    ),
    st.tuples(st.just("query"), st.builds(_query_job, jobs)),
    st.tuples(st.just("query"), st.builds(_query_legacy, jobs)),
)  # fmt: skip


@pytest.fixture
def moto(mocked_aws: None) -> Any:
    return boto3.client("dynamodb")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(sent, min_size=5, max_size=30))
def test_double_answers_as_moto_does_when_our_requests_come_in_any_order(
    moto: Any, sequence: list[tuple[str, dict[str, Any]]]
) -> None:
    double = FakeDynamoDB(TABLE)
    moto.create_table(**dynamodb.create_table(TABLE))

    try:
        answers = [(_send(double, *request), _send(moto, *request)) for request in sequence]
    finally:
        moto.delete_table(TableName=TABLE)

    assert [of_double for of_double, _ in answers] == [of_moto for _, of_moto in answers]


def test_double_answers_as_moto_does_when_there_is_no_such_table(moto: Any) -> None:
    for method, request in (
        ("get_item", _get("parking", "jr_1")),
        ("describe_table", {"TableName": TABLE}),
    ):
        assert _send(FakeDynamoDB("other"), method, request) == _send(moto, method, request)


def test_double_parts_a_query_into_pages_when_items_are_many() -> None:
    double = FakeDynamoDB(TABLE)
    for number in range(7):
        double.put_item(**_put_legacy("parking", f"jr_{number}"))
    double.page_items = 3

    found = _send(double, "query", _query_job("parking"))

    assert [item["runId"]["S"] for item in found] == [f"jr_{number}" for number in range(7)]
    assert len(double.requests) == 7 + 3


def test_double_refuses_an_item_when_it_is_above_400_kb() -> None:
    double = FakeDynamoDB(TABLE)

    answer = _send(
        double, "put_item", dynamodb.write_item(TABLE, requests.put_chunk("parking", "p#t-0", 0, b"x" * 410_000))
    )

    assert answer == "ValidationException"
    assert not double.items


def test_double_stops_when_an_expression_is_none_of_ours() -> None:
    request = _delete("parking", "jr_1") | {
        "ConditionExpression": "size(#job) > :job",
        "ExpressionAttributeNames": {"#job": "jobName"},
        "ExpressionAttributeValues": {":job": {"N": "1"}},
    }

    with pytest.raises(NotImplementedError, match="size"):
        FakeDynamoDB(TABLE).delete_item(**request)
