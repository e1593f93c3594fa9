"""S3 Metadata tables with the columns that Amazon documents, written by `pyiceberg` from changes of a bucket."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

NAMESPACE = "b_landing"
_TEXT_MAP = pa.map_(pa.string(), pa.string())
_REQUIRED = [("bucket", pa.string()), ("key", pa.string()), ("sequence_number", pa.string())]
_OBJECT = [
    ("is_delete_marker", pa.bool_()), ("size", pa.int64()), ("last_modified_date", pa.timestamp("us")),
    ("e_tag", pa.string()), ("storage_class", pa.string()), ("is_multipart", pa.bool_()),
    ("encryption_status", pa.string()), ("is_bucket_key_enabled", pa.bool_()), ("kms_key_arn", pa.string()),
    ("checksum_algorithm", pa.string()), ("object_tags", _TEXT_MAP), ("user_metadata", _TEXT_MAP),
]  # fmt: skip
JOURNAL = pa.schema(
    [
        *[pa.field(name, kind, nullable=False) for name, kind in _REQUIRED],
        pa.field("record_type", pa.string(), nullable=False),
        pa.field("record_timestamp", pa.timestamp("us"), nullable=False),
        pa.field("version_id", pa.string()),
        *[pa.field(name, kind) for name, kind in _OBJECT],
        pa.field("requester", pa.string()),
        pa.field("source_ip_address", pa.string()),
        pa.field("request_id", pa.string()),
    ]
)
"""From the page "S3 Metadata journal tables schema" of the Amazon S3 User Guide. Times have no zone and are UTC."""
INVENTORY = pa.schema(
    [
        *[pa.field(name, kind, nullable=False) for name, kind in _REQUIRED],
        pa.field("version_id", pa.string()),
        *[pa.field(name, kind) for name, kind in _OBJECT],
    ]
)
"""From the page "S3 Metadata live inventory tables schema"."""


class MetadataTables:
    """The two tables of a bucket, in a catalog on SQLite. `now` is the clock of S3."""

    def __init__(self, folder: Path, bucket: str, now: datetime | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.bucket, self.now = bucket, now or datetime.now(timezone.utc)
        self.catalog = SqlCatalog("s3", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
        self.catalog.create_namespace(NAMESPACE)
        self._sequence = 0
        self.make()

    def make(self, *names: str) -> None:
        """Create both tables, or the named ones, and drop existing ones."""
        schemas = {"journal": JOURNAL, "inventory": INVENTORY}
        for name in names or schemas:
            if self.catalog.table_exists(f"{NAMESPACE}.{name}"):
                self.catalog.drop_table(f"{NAMESPACE}.{name}")
            self.catalog.create_table(f"{NAMESPACE}.{name}", schemas[name])

    def table(self, name: str) -> Any:
        return self.catalog.load_table(f"{NAMESPACE}.{name}")

    def wait(self, **by: float) -> None:
        self.now += timedelta(**by)

    def row(self, key: str, **more: Any) -> dict[str, Any]:
        """Return a row as S3 writes it, at the current time."""
        self._sequence += 1
        now = self.now.replace(tzinfo=None)
        return {
            "bucket": self.bucket, "key": key, "sequence_number": f"{self._sequence:072x}", "record_type": "CREATE",
            "record_timestamp": now, "is_delete_marker": False, "storage_class": "STANDARD", "is_multipart": False,
            "encryption_status": "SSE-S3", "requester": "111122223333", "source_ip_address": "192.0.2.1",
            "last_modified_date": now, **more,
        }  # fmt: skip

    def deleted(self, key: str, **more: Any) -> dict[str, Any]:
        """Return the record of a permanent delete, in which S3 leaves all but the required columns empty."""
        row = self.row(key, record_type="DELETE", **more)
        kept = {"bucket", "key", "sequence_number", "record_type", "record_timestamp", "version_id"}
        return {name: value for name, value in row.items() if name in kept}

    def record(self, *rows: dict[str, Any]) -> None:
        """Append records to the journal, in one commit."""
        self.table("journal").append(pa.Table.from_pylist(list(rows), JOURNAL))

    def list(self, *rows: dict[str, Any]) -> None:
        """Add rows to the inventory, in one commit."""
        kept = [{name: value for name, value in row.items() if name in INVENTORY.names} for row in rows]
        self.table("inventory").append(pa.Table.from_pylist(kept, INVENTORY))

    def expire_records(self, before: datetime) -> None:
        """Delete old records, as S3 does at the earliest a week after they were written."""
        self.table("journal").delete(f"record_timestamp < '{before.replace(tzinfo=None).isoformat()}'")
