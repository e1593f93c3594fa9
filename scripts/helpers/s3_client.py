"""The S3 client that everything uses that is not given one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def make_client(connections: int, **options: Any) -> S3Client:
    """Make a client of boto3's default session that many threads can use at once.

    Standard retries: throttling (503 SlowDown) and lost connections, 10 attempts with full jitter.

    Parameters
    ----------
    connections
        Requests at once.
    **options
        As those of ``boto3.client``, such as `endpoint_url`.
    """
    config = Config(
        max_pool_connections=connections,
        retries={"mode": "standard", "total_max_attempts": 10},
        parameter_validation=False,
        user_agent="glue-watermarks",
    )
    return boto3.client("s3", config=config, **options)
