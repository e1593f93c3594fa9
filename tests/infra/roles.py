"""The roles of terraform/: the variables of their plan, and clients that sign as one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3

from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from tests.infra.guarded_server import GuardedServer
from tests.support.event_bodies import notification, record
from tests.support.iam_requests import ACCOUNT

HERE = "eu-west-1"
TABLE = "glue-watermarks"
TABLE_ARN = f"arn:aws:dynamodb:{HERE}:{ACCOUNT}:table/{TABLE}"
OWN, FOREIGN = "parking-files", "waste-files"
BUCKET, LEDGER, REPORTS = "guarded-landing", "guarded-ledger", "guarded-reports"
DATABASE, CONNECTION = "council", "revenues"
QUEUE = "glue-watermarks-told"
REPORTS_FOLDER = f"reports/{BUCKET}/daily/"


def key_arn(name: str) -> str:
    """Return the ARN of a key."""
    return f"arn:aws:kms:{HERE}:{ACCOUNT}:key/{name}"


VARIABLES: dict[str, Any] = {
    "kms_key_arn": key_arn("table"),
    "teams": {"parking": {"job_name_prefixes": ["parking-"]}, "waste": {"job_name_prefixes": ["waste-"]}},
    "sources": {
        "listed": {"bucket": BUCKET, "prefix": "parking/"},
        "versions": {"bucket": BUCKET, "prefix": "kept/", "versioned": True},
        "told": {
            "bucket": BUCKET, "prefix": "told/", "kms_key_arn": key_arn("told"), "events": {"kms_key_arn": key_arn("q")}
        },
        "open": {"bucket": BUCKET, "prefix": "open/", "limit_listing": False},
        "whole": {"bucket": "all-of-it", "prefix": ""},
        "remembered": {
            "bucket": BUCKET, "prefix": "remembered/",
            "ledger": {"bucket": LEDGER, "prefix": "marks/", "kms_key_arn": key_arn("ledger")},
        },
        "reported": {
            "bucket": BUCKET, "prefix": "reported/",
            "inventory": {"bucket": REPORTS, "prefix": REPORTS_FOLDER, "kms_key_arn": key_arn("reports")},
        },
        "database": {"catalog": {"database": DATABASE, "tables": ["park*"], "connections": [CONNECTION]}},
    },
}  # fmt: skip
"""Variables of the plan that renders the policies under test."""


def client(guard: GuardedServer, service: str, role: str) -> Any:
    """Return a client that signs as a role."""
    connect: Callable[..., Any] = boto3.client  # The annotations of boto3.client accept only literals.
    return connect(
        service, endpoint_url=guard.url, region_name=HERE, aws_access_key_id=role, aws_secret_access_key="testing"
    )


def watermarks_of(guard: GuardedServer, role: str, **options: Any) -> Watermarks:
    """Return `Watermarks` on the table, with the rights of a role."""
    return Watermarks(TABLE, client(guard, "dynamodb", role), **options)


def read_folder(
    guard: GuardedServer, role: str, prefix: str, job_id: str = "", *, by_paths: bool = False, **options: Any
) -> int:
    """Read the new files below a prefix and commit, with S3 and SQS as one role and the table as root.

    With `by_paths`, the job hands out paths, as for a read by Spark. It cannot know which bytes were read from them,
    so it checks the files again before the commit.
    """
    s3 = client(guard, "s3", role)
    with IncrementalJob(watermarks_of(guard, "root"), job_id or f"parking-{role}", s3_client=s3) as job:
        delta = job.new_files(f"s3://{BUCKET}/{prefix}", **options)
        if by_paths:
            assert len(delta.paths) == delta.count
        return len(delta.read_pandas("json", s3_client=s3))


def tell(guard: GuardedServer, *names: str) -> str:
    """Put objects and send their events as S3 does for a versioned bucket (moto does not); return the queue's URL."""
    s3, sqs = client(guard, "s3", "root"), client(guard, "sqs", "root")
    url: str = sqs.get_queue_url(QueueName=QUEUE)["QueueUrl"]
    for name in names:
        body = b'{"id": 1}'
        put = s3.put_object(Bucket=BUCKET, Key=f"told/{name}", Body=body)
        told = record(f"told/{name}", bucket=BUCKET, version=put["VersionId"])
        sqs.send_message(QueueUrl=url, MessageBody=notification(told))
    return url
