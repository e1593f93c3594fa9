"""States and plans of files as maps, written and read through their types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from scripts.helpers.files.set_aside import SetAside
from scripts.helpers.files.states import FilesPlan, FilesState, opened_state


def state_of(
    source: str,
    listed: datetime | None,
    segments: Sequence[Mapping[str, Any]],
    position: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    return FilesState(source, listed, tuple(segments), position).to_store()


def plan_of(source: str, segment: Mapping[str, Any] | None, **counts: int) -> dict[str, Any]:
    return FilesPlan(source, segment, **counts).to_store()  # type: ignore[arg-type]


def state_in(stored: Mapping[str, Any] | None) -> FilesState:
    """Return a state in which some required keys may be missing."""
    whole = {"kind": "files", "source": "s3://landing/", "format": 1, "segments": [], **(stored or {})}
    return opened_state(FilesState, whole, whole["source"], "files")


def set_aside_of(stored: Mapping[str, Any] | None) -> dict[str, SetAside]:
    return state_in(stored).set_aside


def with_list(stored: Mapping[str, Any], entries: Mapping[str, SetAside]) -> dict[str, Any]:
    return state_in(stored).with_set_aside(entries).to_store()


def decided(stored: Mapping[str, Any], keys: Iterable[str], decision: str) -> dict[str, Any]:
    return state_in(stored).decided(keys, decision).to_store()
