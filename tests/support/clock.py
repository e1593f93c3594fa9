"""A clock for tests."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)

    def __call__(self) -> datetime:
        return self.now

    def move(self, **by: float) -> None:
        self.now += timedelta(**by)
