"""What differs between the watermarks of two versions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rich.console import Console

from scripts.cli.layout import Cell, show_rows
from scripts.cli.surroundings import Surroundings
from scripts.cli.texts import NONE, known_files, printable, state_text, value_text
from scripts.helpers.display.units import duration_text
from scripts.helpers.errors import UnknownVersionError
from scripts.helpers.protocol.head import Head, LogEntry
from scripts.helpers.protocol.values import same_values


def entry_of(around: Surroundings, job: str, version: int, head: Head) -> LogEntry:
    """Return one version of the history; UnknownVersionError if it never was, or expired."""
    found = around.watermarks.history(job, 1, version + 1) if version <= head.version else []
    if not found or found[0].version != version:
        raise UnknownVersionError(job, version, head.version)
    return found[0]


MISSING = Ellipsis
"""Stands for a watermark that one of two versions does not have."""


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return the names of what differs, with both values; None where there is none."""
    names = sorted(before.keys() | after.keys())
    pairs = [(name, before.get(name, MISSING), after.get(name, MISSING)) for name in names]
    return [
        (name, None if old is MISSING else old, None if new is MISSING else new)
        for name, old, new in pairs
        if old is MISSING or new is MISSING or not same_values(old, new)
    ]


def show_differences(console: Console, changes: list[tuple[str, Any, Any]]) -> None:
    """Write what differs, value beside value."""
    rows: list[list[Cell]] = []
    for name, old, new in changes:
        then, now = (NONE if state is None else state_text(state) for state in (old, new))
        if then == now:
            then, now = value_text(old), value_text(new)
        rows.append([printable(name), then, now, _moved(old, new)])
    show_rows(console, ("watermark", "before", "after", "moved by"), rows)


def _moved(old: Any, new: Any) -> str:
    """Say by how much a watermark has moved, where that can be counted."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return NONE
    if old.get("kind") == new.get("kind") == "files":
        return f"{known_files(new) - known_files(old):+,} files"
    one, other = old.get("value"), new.get("value")
    if isinstance(one, datetime) and isinstance(other, datetime):
        return duration_text(other - one)
    if type(one) is type(other) is int:
        return f"{other - one:+,}"
    return NONE
