"""Builders of row windows: planned one after another and replayed, with the real serializer in between."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from scripts.helpers.protocol.values import decode, encode
from scripts.helpers.rows.arrow_streams import ArrowStream
from scripts.helpers.rows.plan import plan_window
from scripts.helpers.rows.window import RowWindow

CONTEXT = "repairs"
JOB_CLOCK = datetime(1999, 1, 1, tzinfo=timezone.utc)
"""A job clock that would give wrong windows; the databases' own clocks must be used instead."""


def plan_after(before: RowWindow | None, source: Any, names: Sequence[str], **options: Any) -> RowWindow:
    """Plan the window after another one, whose watermark was stored in between; without `before`, the first window."""
    state = decode(*encode(before.state_after)) if before else None
    return plan_window(source, names, **({"state": state, "context": CONTEXT} | options))


def replayed(window: RowWindow) -> RowWindow:
    """Return the window that a replay builds from this window's frozen plan."""
    return RowWindow.from_plan(decode(*encode(window.to_plan())), [column.name for column in window.columns], CONTEXT)


def plan(source: Any, cursor: str | list[str], before: RowWindow | None = None, **options: Any) -> RowWindow:
    """Plan a window of a database's table in one connection, as a job does; without a delay by default."""
    names = [cursor] if isinstance(cursor, str) else cursor
    with source.asking():
        return plan_after(before, source, names, **({"now": JOB_CLOCK, "delay": timedelta(0)} | options))


def taken(source: Any, window: RowWindow, column: str = "id") -> list[Any]:
    with source.asking():
        rows = source.rows(window)
    if isinstance(rows, ArrowStream):
        return sorted(rows.read_all()[column].to_pylist())
    return sorted(row[column] for row in rows.select(column).collect())
