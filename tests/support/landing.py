"""A place for files, in a directory or in a bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scripts.helpers.listing.listing import Location


class Landing:
    """A prefix that tests put files into. `client` is an S3 client, or None for a directory, which is created."""

    def __init__(self, spark: Any, source: str, client: Any = None) -> None:
        self.spark, self.client, self.location = spark, client, Location.parse(source)
        if client is None:
            Path(source).mkdir()

    def put(self, key: str, body: bytes) -> None:
        """Write a file."""
        if self.client is not None:
            self.client.put_object(Bucket=self.location.bucket, Key=self.location.prefix + key, Body=body)
            return
        path = Path(self.location.prefix + key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)

    def delete(self, key: str) -> None:
        """Delete a file."""
        if self.client is not None:
            self.client.delete_object(Bucket=self.location.bucket, Key=self.location.prefix + key)
        else:
            Path(self.location.prefix + key).unlink()


def put_objects(client: Any, bucket: str, *keys: str, body: bytes = b"x") -> None:
    """Put the same body under all keys of a bucket."""
    for key in keys:
        client.put_object(Bucket=bucket, Key=key, Body=body)
