"""The class that this package replaces, rewritten from its public behaviour: its calls, answers and errors.

The original class in the platform's repository is public. This copy was written from its behaviour: it stores each
item as given, in one unconditional write, and returns the last item of a job by sort order as the most recent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer


class OriginalWatermarks:
    """The original class, with a given client."""

    def __init__(self, table_name: str, dynamodb_client: Any) -> None:
        self.table_name, self.dynamodb_client = table_name, dynamodb_client

    @staticmethod
    def create_watermark_item(job_id: str, run_id: str, key: str = "watermarks", **values: Any) -> dict[str, Any]:
        """Return an item with the values under a key, without any check."""
        return {"jobName": job_id, "runId": run_id, key: values}

    def add_watermark(self, watermark_item: Mapping[str, Any]) -> None:
        """Write the item over whatever is stored; boto3 raises TypeError for floats and times."""
        write = TypeSerializer().serialize
        item = {name: write(value) for name, value in watermark_item.items()}
        self.dynamodb_client.put_item(TableName=self.table_name, Item=item)

    def get_most_recent_run_id(self, job_id: str) -> str:
        """Return the run id that sorts last; raise IndexError if there is none."""
        answer = self.dynamodb_client.query(
            TableName=self.table_name,
            KeyConditionExpression="jobName = :name",
            ExpressionAttributeValues={":name": {"S": job_id}},
            ScanIndexForward=False,
            Limit=1,
        )
        return str(answer["Items"][0]["runId"]["S"])

    def get_watermark(self, job_id: str, run_id: str | None = None) -> dict[str, Any]:
        """Return the item of a run; raise KeyError if the answer has none."""
        key = {"jobName": {"S": job_id}, "runId": {"S": run_id or self.get_most_recent_run_id(job_id)}}
        answer = self.dynamodb_client.get_item(TableName=self.table_name, Key=key)
        read = TypeDeserializer().deserialize
        return {name: read(value) for name, value in answer["Item"].items()}

    def get_watermark_values(self, job_id: str, run_id: str | None = None, key: str = "watermarks") -> Any:
        """Return what a run's item has under a key; raise KeyError if it has no such key."""
        return self.get_watermark(job_id, run_id)[key]
