"""What a job counts, and which of its counts are saved with a commit. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripts.helpers.errors import TooLargeError
from scripts.helpers.protocol.items import encode_metrics

METRICS = ("rows_collected", "rows_written", "bytes_written", "contexts", "files_read", "bytes_read")
"""What a job counts; no context may have one of these names."""


def files_read(contexts: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Add up the files of all planned contexts; empty without any context of files."""
    files = [planned for planned in contexts.values() if planned["kind"] == "files"]
    if not files:
        return {}
    return {
        "files_read": sum(planned["count"] for planned in files),
        "bytes_read": sum(planned["bytes"] for planned in files),
    }


def fitting(counted: Mapping[str, Any], following: Mapping[str, Any]) -> dict[str, Any]:
    """Return all counts that fit, but none of ours whose name a value stored by hand has: the value stays."""
    fit = {name: count for name, count in counted.items() if name not in METRICS or name not in following}
    try:
        encode_metrics(fit, following)
    except TooLargeError:
        fit.pop("contexts", None)
    return fit
