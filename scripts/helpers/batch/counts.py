"""What a run counts, and which of its counts are saved with its commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripts.helpers.errors import TooLargeError
from scripts.helpers.files.states import FilesPlan
from scripts.helpers.protocol.items import encode_metrics

METRICS = (
    "rows_collected", "rows_written", "bytes_written", "contexts", "files_read", "bytes_read", "files_set_aside",
    "columns_left_out",
)  # fmt: skip
"""What a job counts; no context may have one of these names."""


def files_read(contexts: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Add up the files of all planned contexts; empty without any context of files."""
    files = [FilesPlan.read(planned, "plan") for planned in contexts.values() if planned["kind"] == "files"]
    if not files:
        return {}
    counts = {
        "files_read": sum(planned.count for planned in files),
        "bytes_read": sum(planned.bytes for planned in files),
    }
    aside = sum(planned.set_aside for planned in files)
    return counts | ({"files_set_aside": aside} if aside else {})


def contexts_taken(contexts: Mapping[str, Mapping[str, Any]], counted: Mapping[str, Any]) -> set[str]:
    """Return the contexts that took files or rows. Rows that nothing has read are not counted, and may be some."""
    rows = {name: found["rows"] for name, found in counted.get("contexts", {}).items()}
    sources = {name: planned for name, planned in contexts.items() if planned["kind"] in ("rows", "files", "table")}
    return {name for name, planned in sources.items() if rows.get(name, planned.get("count")) != 0}


def add_written(metrics: dict[str, Any], rows: int, size: int | None) -> None:
    """Add one write to a job's counts; its size may be unknown."""
    metrics["rows_written"] = metrics.get("rows_written", 0) + rows
    if size is not None:
        metrics["bytes_written"] = metrics.get("bytes_written", 0) + size


def counts_to_save(counted: Mapping[str, Any], following: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts to save, all of them if they fit beside the watermarks that follow."""
    # Counts lie beside the values of a run's item. A watermark that was stored by hand under a count's name stays, so
    # the count goes. A metric of the user's own is kept here: the commit refuses it by its name.
    kept = {name: count for name, count in counted.items() if name not in METRICS or name not in following}
    try:
        encode_metrics(kept, following)
    except TooLargeError:
        # They grow with the number of sources, the others do not. A commit must not fail for what is only told.
        kept.pop("contexts", None)
        kept.pop("columns_left_out", None)
    return kept
