"""What is read from the metadata of an Iceberg table."""

from __future__ import annotations

import json
from datetime import datetime, timezone

from scripts.helpers.tables.iceberg import read_metadata


def test_time_of_a_snapshot_is_its_milliseconds_since_1970() -> None:
    snapshot = {"snapshot-id": 7, "timestamp-ms": 1_767_225_600_001}

    found = read_metadata(json.dumps({"table-uuid": "u", "current-snapshot-id": 7, "snapshots": [snapshot]}))

    assert found.snapshots[7].at == datetime(2026, 1, 1, 0, 0, 0, 1_000, timezone.utc)
