"""The class that this package replaces, written anew from its public behaviour: its calls, answers and errors.

The class of the platform's repository is public. This one was written from what it does: it keeps each item as it is
given, in one unconditional write, and takes the last item of a job by sort order for the most recent one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer


class OriginalWatermarks:
    """The original class, over one client."""

    def __init__(self, table_name: str, dynamodb_client: Any) -> None:
        self.table_name, self.dynamodb_client = table_name, dynamodb_client

    @staticmethod
    def create_watermark_item(job_id: str, run_id: str, key: str = "watermarks", **values: Any) -> dict[str, Any]:
        """Return an item with the values under a key; nothing is checked."""
        return {"jobName": job_id, "runId": run_id, key: values}

    def add_watermark(self, watermark_item: Mapping[str, Any]) -> None:
        """Write whatever is given over whatever is there; TypeError for floats and times, of boto3."""
        write = TypeSerializer().serialize
        item = {name: write(value) for name, value in watermark_item.items()}
        self.dynamodb_client.put_item(TableName=self.table_name, Item=item)

    def get_most_recent_run_id(self, job_id: str) -> str:
        """Return the run id that sorts last; IndexError where there is none."""
        answer = self.dynamodb_client.query(
            TableName=self.table_name,
            KeyConditionExpression="jobName = :name",
            ExpressionAttributeValues={":name": {"S": job_id}},
            ScanIndexForward=False,
            Limit=1,
        )
        return str(answer["Items"][0]["runId"]["S"])

    def get_watermark(self, job_id: str, run_id: str | None = None) -> dict[str, Any]:
        """Return the item of a run; KeyError of the answer where there is none."""
        key = {"jobName": {"S": job_id}, "runId": {"S": run_id or self.get_most_recent_run_id(job_id)}}
        answer = self.dynamodb_client.get_item(TableName=self.table_name, Key=key)
        read = TypeDeserializer().deserialize
        return {name: read(value) for name, value in answer["Item"].items()}

    def get_watermark_values(self, job_id: str, run_id: str | None = None, key: str = "watermarks") -> Any:
        """Return what a run's item has under a key; KeyError where it has no such key."""
        return self.get_watermark(job_id, run_id)[key]
