"""What a job remembers, as JSON that people can read: ``JobBookmark`` of Glue's `JobBookmarkEntry`. Pure.

Times are ISO 8601 with zone, dates ISO, decimals exact text; what lies in chunks is told by its size
only, and a list of files by their number.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from scripts.helpers.protocol.chunks import Blob
from scripts.helpers.protocol.values import Spilled


def job_bookmark(watermarks: Mapping[str, Any]) -> str:
    """Return all contexts of a job, and values without a context, as one JSON object.

    Examples
    --------
    >>> job_bookmark({"repairs": {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 42}})
    '{"repairs": {"kind": "rows", "column": "id", "type": "bigint", "value": 42}}'
    >>> job_bookmark({"latest_data": date(2023, 3, 16)})
    '{"latest_data": {"kind": "value", "type": "date", "value": "2023-03-16"}}'
    """
    return json.dumps({name: context(state) for name, state in watermarks.items()}, ensure_ascii=False)


def context(state: Any) -> dict[str, Any]:
    """Return one context of a job, or one value of a job without contexts, as it is written in JSON."""
    kind = state.get("kind") if isinstance(state, Mapping) else None
    if kind == "rows":
        return _rows(state)
    if kind == "files":
        return _files(state)
    if isinstance(kind, str):
        return {name: plain(value) for name, value in state.items()}
    if isinstance(state, Spilled):
        return {"kind": "large", "bytes": state.length, "chunks": state.chunks}
    return {"kind": "value", "type": type(state).__name__, "value": plain(state)}


def _rows(state: Mapping[str, Any]) -> dict[str, Any]:
    shown = {"kind": "rows", "column": state.get("cursor_column"), "type": state.get("type")}
    if state.get("descending"):
        shown["descending"] = True
    return shown | {name: plain(state[name]) for name in ("start", "value") if name in state}


def _files(state: Mapping[str, Any]) -> dict[str, Any]:
    segments = state.get("segments", ())
    shown = {
        "kind": "files",
        "prefix": state.get("source"),
        "mode": state.get("mode"),
        "version": state.get("format"),
        "objects": sum(int(segment["count"]) for segment in segments),
        "segments": len(segments),
    }
    return shown | {name: plain(state[name]) for name in ("listed", "floor") if state.get(name) is not None}


def plain(value: Any) -> Any:
    """Return a value of ours as JSON has it: times and dates ISO, decimals exact text, bytes base64."""
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Blob):
        return {"bytes": value.reference.length} if value.reference else {}
    if isinstance(value, Spilled):
        return {"bytes": value.length}
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return value
