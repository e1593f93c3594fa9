"""States as earlier versions stored them in their mode windowed: a floor, and only what lies above it by name."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers.files.ledger import FileLedger


def with_floor(state: Mapping[str, Any], ledger: FileLedger, floor: datetime) -> dict[str, Any]:
    """Return what such a version stored where this one has `state`, whose rows are in `ledger`."""
    known = ledger.known().between(None, None).sort_by("key")
    band = known.filter(pc.greater(known.column("modified"), pa.scalar(floor, known.schema.field("modified").type)))
    found = {
        "kind": "files", "source": state["source"], "format": 1, "mode": "windowed", "listed": state["listed"],
        "floor": floor, "segments": [ledger.stored(band)] if band.num_rows else [],
    }  # fmt: skip
    return found | {name: state[name] for name in ("metadata", "set_aside") if name in state}
