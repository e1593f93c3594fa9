"""The schemas that a state keeps: compressed JSON in one entry, by what they are of. Pure."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from scripts.helpers.schemas.kinds import Columns, kind_text

ENTRY = "schemas"
"""Of a context's state. One entry, and compressed: a state has a limit of entries, and each write pays for its size."""
MAX_SCHEMAS = 16
"""Of one context: formats, and parts that a delta was split into. Parts by date would grow for ever."""
MAX_BYTES = 4 * 1024 * 1024
"""Most text that an entry may unfold to."""


def with_schema(state: Mapping[str, Any], name: str, columns: Columns) -> dict[str, Any]:
    """Return a state that keeps one schema more, or another one under its name."""
    kept = {**schemas_of(state), name: columns}
    rows = [[each, list(map(list, found.items()))] for each, found in sorted(kept.items())]
    # Level 9 and sorted, so that the same schemas are the same bytes, and a state that did not change is none.
    return {**state, ENTRY: zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), 9)}


def schemas_of(state: Any) -> dict[str, dict[str, Any]]:
    """Return the columns that a state keeps, by what they are of; none of a damaged entry, as of one that has none."""
    packed = state.get(ENTRY) if isinstance(state, Mapping) else None
    if not isinstance(packed, bytes):
        return {}
    try:
        inflate = zlib.decompressobj()
        rows = json.loads(inflate.decompress(packed, MAX_BYTES))
        kept = {}
        for name, columns in rows:
            kept[str(name)] = {str(column): kind for column, kind in columns}
        return kept
    except (zlib.error, ValueError, TypeError, RecursionError):
        return {}


def carried(state: Mapping[str, Any], before: Any) -> Mapping[str, Any]:
    """Return a state with the schemas of the one before it, where it has none of its own."""
    if ENTRY in state or not isinstance(before, Mapping) or ENTRY not in before:
        return state
    return {**state, ENTRY: before[ENTRY]}


def renamed(state: Mapping[str, Any], old: str, new: str) -> Mapping[str, Any]:
    """Return a state in whose schemas a column has another name, so that it is no new one."""
    for name, columns in schemas_of(state).items():
        if old in columns and new not in columns:
            found = {new if column == old else column: kind for column, kind in columns.items()}
            state = with_schema(state, name, found)
    return state


def shown_schemas(state: Any) -> dict[str, dict[str, str]]:
    """Return the columns that a state keeps with types as people write them."""
    found = {}
    for name, columns in schemas_of(state).items():
        found[name] = {column: kind_text(kind) for column, kind in columns.items()}
    return found
