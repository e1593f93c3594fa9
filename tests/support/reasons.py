"""Checks for errors of one class that differ by their reason."""

from __future__ import annotations

from collections.abc import Callable

from scripts.helpers.errors import REASONS, WatermarkError


def because(*reasons: str) -> Callable[[WatermarkError], bool]:
    """Return a `check` for `pytest.raises` that accepts an error with one of the given reasons."""
    assert REASONS.keys() >= {*reasons}

    return lambda error: error.reason in reasons


behind = because("behind", "last_row_behind", "rows_behind", "last_row_changed")
"""The `check` of `pytest.raises` for a source that is behind the watermark."""
