"""What a sink in S3 asks for before it stages, and an S3 client that refuses one of these actions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import ClientError

PROBE = "_may-write"
RIGHTS = [
    ("PutObject", f"s3:PutObject on s3://{{bucket}}/_raw.staging/{PROBE}"),
    ("CopyObject", f"s3:PutObject (or s3:GetObject on its staged file) for s3://{{bucket}}/raw/{PROBE}"),
    ("DeleteObjects", "s3:DeleteObject on s3://{bucket}/_raw.staging"),
]
"""Actions, and what an error about a target `s3://{bucket}/raw` says of each."""


@contextmanager
def refusing(s3: Any, action: str, code: str = "AccessDenied", *, key: str = "") -> Iterator[None]:
    """Make a client refuse an action, as for a role without that right or with another code; for all keys, or one."""

    def refuse(model: Any, params: Any, **_: Any) -> None:
        if key in f"{params['url_path']} {params['body']}":
            raise ClientError({"Error": {"Code": code, "Message": "no"}}, model.name)

    s3.meta.events.register_first(f"before-call.s3.{action}", refuse)
    try:
        yield
    finally:
        s3.meta.events.unregister(f"before-call.s3.{action}", refuse)


def staged_in(s3: Any, bucket: str) -> list[str]:
    """Return the keys of a bucket, without those that only test the rights."""
    keys = [found["Key"] for found in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]
    return [key for key in keys if not key.endswith(f"/{PROBE}")]
