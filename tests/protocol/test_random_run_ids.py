"""Trials of ten random run ids, without HTTP, over which the 70,000 requests of 1,000 trials would take many minutes.

moto evaluates every condition as usual. The tests of the playbook's calls run fewer trials of the same kind
over the wire.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from botocore.exceptions import ClientError
from moto.dynamodb.exceptions import ConditionalCheckFailed
from moto.dynamodb.models.table import Table

from scripts.helpers.protocol import dynamodb, items
from scripts.helpers.protocol.names import new_run_id
from scripts.helpers.watermarks import Watermarks
from tests.support.long import cases
from tests.support.places import REGION

TRIALS, RUNS = cases(100, long=1_000), 10
NOW = datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)


class TableClient:
    """The three calls of a DynamoDB client that a commit uses, on one table of moto's model."""

    def __init__(self) -> None:
        request = dynamodb.create_table("trials")
        model: Any = Table  # Abstract only by its annotations: two methods for CloudFormation.
        self.table = model("trials", "123456789012", REGION, request["KeySchema"], request["AttributeDefinitions"])
        self.stored: dict[str, dict[str, Any]] = {}

    def get_item(self, Key: dict[str, Any], **_: Any) -> dict[str, Any]:  # noqa: N803
        found = self.stored.get(Key[items.HASH_KEY]["S"], {}).get(Key[items.RANGE_KEY]["S"])
        return {"Item": found} if found else {}

    def query(self, ExpressionAttributeValues: dict[str, Any], **_: Any) -> dict[str, Any]:  # noqa: N803
        found = self.stored.get(ExpressionAttributeValues[":job"]["S"], {})
        return {"Items": [found[range_key] for range_key in sorted(found)]}

    def put_item(self, Item: dict[str, Any], **request: Any) -> dict[str, Any]:  # noqa: N803
        try:
            self.table.put_item(
                Item,
                condition_expression=request["ConditionExpression"],
                expression_attribute_names=request["ExpressionAttributeNames"],
                expression_attribute_values=request.get("ExpressionAttributeValues"),
            )
        except ConditionalCheckFailed as error:
            raise ClientError({"Error": {"Code": "ConditionalCheckFailedException"}}, "PutItem") from error
        self.stored.setdefault(Item[items.HASH_KEY]["S"], {})[Item[items.RANGE_KEY]["S"]] = Item
        return {}


def test_most_recent_run_is_never_wrong_when_many_jobs_have_ten_random_run_ids() -> None:
    client: Any = TableClient()
    watermarks = Watermarks("trials", client, clock=lambda: NOW)
    wrong, last_by_sort = [], 0

    for trial in range(TRIALS):
        job_id = f"job-{trial}"
        run_ids = [new_run_id() for _ in range(RUNS)]
        for run_id in run_ids:
            watermarks.add_watermark(watermarks.create_watermark_item(job_id=job_id, run_id=run_id, mark=run_id))
            if watermarks.get_most_recent_run_id(job_id) != run_id:
                wrong.append((job_id, run_id))
        last_by_sort += max(run_ids) == run_ids[-1]

    assert wrong == []
    assert last_by_sort < TRIALS / 4  # Sort order would be wrong in nine trials of ten.
