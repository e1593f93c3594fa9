"""Durations and sizes as people read them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from scripts.helpers.display.units import duration_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(9.96, "9.9 s"), (10, "10 s"), (10.9, "10 s"), (-90, "-1 min 30 s"), (86_700, "1 d"), (0, "0 s")],
)
def test_duration_is_never_rounded_up_when_written(seconds: float, text: str) -> None:
    assert duration_text(timedelta(seconds=seconds)) == text
