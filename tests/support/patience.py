"""How long tests wait for another process or thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

PATIENCE = 600.0
"""Seconds after which a test stops waiting. It only keeps a test from hanging, and says nothing about the code: what it
bounds takes seconds on a machine that has nothing else to do, and may take fifty times as long on one that has."""
LONG = 3600.0
"""The same for a whole test that takes a minute or more on a quiet machine. Files with such tests are begun first."""


def gone(found: Callable[[], Collection[object]]) -> bool:
    """Wait until nothing is found; a server ends a session shortly after its client has left."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if not found():
            return True
        time.sleep(0.05)
    return False
