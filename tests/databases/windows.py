"""Planning and reading one window after the other, by way of the real serializer."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from scripts.helpers.protocol.values import decode, encode
from scripts.helpers.rows.plan import plan_window
from scripts.helpers.rows.window import RowWindow

JOB_CLOCK = datetime(1999, 1, 1, tzinfo=timezone.utc)
"""A clock that would give wrong windows: databases have their own."""


def plan(source: Any, cursor: str | list[str], before: RowWindow | None = None, **options: Any) -> RowWindow:
    names = [cursor] if isinstance(cursor, str) else cursor
    state = decode(*encode(before.state_after)) if before else None
    return plan_window(source, names, now=JOB_CLOCK, state=state, **({"delay": timedelta(0)} | options))


def taken(source: Any, window: RowWindow, column: str = "id") -> list[Any]:
    return sorted(row[column] for row in source.rows(window).select(column).collect())
