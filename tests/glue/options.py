"""Arguments of the three bookmark options, and the type of the function that writes files."""

from __future__ import annotations

from collections.abc import Callable

ENABLE, PAUSE, DISABLE = ({"job_bookmark_option": f"job-bookmark-{name}"} for name in ("enable", "pause", "disable"))
Put = Callable[..., None]
