"""Builders of messages as S3, SNS and EventBridge write them."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote_plus


def record(
    key: str,
    *,
    event: str = "ObjectCreated:Put",
    bucket: str = "landing",
    version: str | None = None,
) -> dict[str, Any]:
    """Return a record of a notification. Removals have neither size nor ETag."""
    found: dict[str, Any] = {"key": quote_plus(key, safe="/"), "versionId": version, "sequencer": "0055AED6DCD90281E5"}
    if event.removeprefix("s3:").startswith("ObjectCreated"):
        found |= {"size": 5, "eTag": "e1"}
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "eu-west-2",
        "eventTime": "2026-03-16T15:45:00.123Z",
        "eventName": event,
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "new-objects",
            "bucket": {"name": bucket, "arn": f"arn:aws:s3:::{bucket}"},
            "object": {name: value for name, value in found.items() if value is not None},
        },
    }


def notification(*records: dict[str, Any]) -> str:
    return json.dumps({"Records": records})


def through_sns(body: str) -> str:
    return json.dumps({"Type": "Notification", "MessageId": "m", "TopicArn": "arn:aws:sns:…:topic", "Message": body})


def bridged(
    key: str,
    *,
    detail_type: str = "Object Created",
    bucket: str = "landing",
    deletion: str | None = None,
    version_id: str | None = None,
) -> str:
    """Return an event of EventBridge."""
    found: dict[str, Any] = {"key": key, "sequencer": "617f08299329d189"}
    found |= {"version-id": version_id} if version_id else {}
    found |= {"size": 5, "etag": "e1"} if detail_type == "Object Created" else {}
    detail: dict[str, Any] = {"version": "0", "bucket": {"name": bucket}, "object": found, "reason": "PutObject"}
    detail |= {"deletion-type": deletion} if deletion else {}
    return json.dumps(
        {
            "version": "0",
            "id": "17793124-05d4-b198-2fde-7ededc63b103",
            "detail-type": detail_type,
            "source": "aws.s3",
            "account": "111122223333",
            "time": "2026-03-16T15:45:00Z",
            "region": "eu-west-2",
            "resources": [f"arn:aws:s3:::{bucket}"],
            "detail": detail,
        }
    )
