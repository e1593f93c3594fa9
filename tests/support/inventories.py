"""Builders of S3 Inventory reports in the supported formats."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
from pyarrow import parquet

SHOWN = {
    "bucket": "Bucket",
    "key": "Key",
    "version_id": "VersionId",
    "is_latest": "IsLatest",
    "is_delete_marker": "IsDeleteMarker",
    "size": "Size",
    "last_modified_date": "LastModifiedDate",
    "e_tag": "ETag",
    "storage_class": "StorageClass",
}
TYPES = {
    "is_latest": pa.bool_(),
    "is_delete_marker": pa.bool_(),
    "size": pa.int64(),
    "last_modified_date": pa.timestamp("ms", "UTC"),
}
PLAIN = ("bucket", "key", "size", "last_modified_date", "e_tag", "storage_class")
VERSIONED = tuple(SHOWN)
CHANGED = datetime(2026, 3, 14, 9, 26, 53, 589000, tzinfo=timezone.utc)


def inventory_row(key: str | None, **fields: Any) -> dict[str, Any]:
    """Return one row of a report."""
    row = {
        "bucket": "landing",
        "key": key,
        "version_id": None,
        "is_latest": True,
        "is_delete_marker": False,
        "size": 5,
        "last_modified_date": CHANGED,
        "e_tag": "0123456789abcdef0123456789abcdef",
        "storage_class": "STANDARD",
    }
    return row | fields


def data_file(file_format: str, rows: Sequence[dict[str, Any]], columns: Sequence[str] = PLAIN) -> bytes:
    """Return the bytes of one data file."""
    if file_format == "CSV":
        return gzip.compress("".join(_csv_line(row, columns) for row in rows).encode("utf-8"))
    table = pa.table({name: pa.array([row[name] for row in rows], TYPES.get(name, pa.string())) for name in columns})
    file = io.BytesIO()
    parquet.write_table(table, file)
    return file.getvalue()


def _csv_line(row: dict[str, Any], columns: Sequence[str]) -> str:
    return ",".join(f'"{_csv_value(name, row[name])}"' for name in columns) + "\n"


def _csv_value(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "key":
        return quote_plus(value, safe="/")
    if name == "last_modified_date":
        return str(value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03}Z")
    return str(value).lower() if isinstance(value, bool) else str(value)


def file_schema(file_format: str, columns: Sequence[str] = PLAIN) -> str:
    """Return the manifest's description of the columns."""
    if file_format == "CSV":
        return ", ".join(SHOWN[name] for name in columns)
    return f"message s3.inventory {{ {' '.join(f'optional binary {name} (STRING);' for name in columns)} }}"


class Reports:
    """Writes reports about the bucket `landing` into a bucket."""

    def __init__(self, s3: Any, bucket: str) -> None:
        self.s3, self.bucket = s3, bucket
        self.folder = "reports/landing/daily/"

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.folder}"

    def put(self, key: str, body: bytes | str) -> None:
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=body)

    def write(
        self,
        file_format: str,
        *files: Sequence[dict[str, Any]],
        columns: Sequence[str] = PLAIN,
        date: str = "2026-03-16T01-00Z",
        without: str | None = None,
        **changes: Any,
    ) -> str:
        """Write a complete report with some data files, and return the URI of its manifest."""
        listed = []
        for number, rows in enumerate(files):
            key, body = f"{self.folder}data/{date}-{number}", data_file(file_format, rows, columns)
            self.put(key, body)
            listed.append({"key": key, "size": len(body), "MD5checksum": hashlib.md5(body).hexdigest()})
        manifest = {
            "sourceBucket": "landing",
            "destinationBucket": f"arn:aws:s3:::{self.bucket}",
            "version": "2016-11-30",
            "creationTimestamp": "1773622800000",
            "fileFormat": file_format,
            "fileSchema": file_schema(file_format, columns),
            "files": listed,
        } | changes
        manifest.pop(without or "", None)
        return self.write_manifest(json.dumps(manifest), date)

    def write_manifest(self, manifest: str, date: str = "2026-03-16T01-00Z") -> str:
        key = f"{self.folder}{date}/manifest.json"
        self.put(key, manifest)
        self.put(key.replace(".json", ".checksum"), hashlib.md5(manifest.encode()).hexdigest() + "\n")
        return f"s3://{self.bucket}/{key}"
