"""States of rows contexts as maps, in their stored form: the calls of `RowsState`, from map to map."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from scripts.helpers.rows.cursor_ranges import CursorRange
from scripts.helpers.rows.states import RowsState


def state_of(stored: Mapping[str, Any]) -> RowsState:
    return RowsState.read(stored, "state")


def with_coverage(
    state: Mapping[str, Any], before: Mapping[str, Any] | None, read: Iterable[CursorRange], origin: str
) -> dict[str, Any]:
    """Return the state that follows another one after some ranges were read as well."""
    return state_of(state).with_coverage(state_of(before) if before else None, read, origin).to_store()


def with_coverage_kept(state: Mapping[str, Any], before: Mapping[str, Any] | None, origin: str) -> dict[str, Any]:
    """Return a state that was set by hand, with the coverage of the state that it replaces."""
    return state_of(state).with_coverage_kept(state_of(before) if before else None, origin).to_store()


def covered_by(state: Mapping[str, Any]) -> list[CursorRange]:
    return state_of(state).ranges


def passed_range(state: Mapping[str, Any]) -> CursorRange:
    return state_of(state).passed


def origin_of(state: Mapping[str, Any]) -> str:
    return state_of(state).origin
