"""How long tests wait for another process or thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

PATIENCE = 600.0
"""Seconds after which a test stops waiting. It only keeps a test from hanging and is no limit on the code: what a
test waits for takes seconds on an idle machine, and may take fifty times as long on a busy one."""
LONG = 3600.0
"""The same for a whole test that takes a minute or more on an idle machine. Files with such tests start first."""


def gone(found: Callable[[], Collection[object]]) -> bool:
    """Wait until nothing is found; a server ends a session shortly after its client has left."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if not found():
            return True
        time.sleep(0.05)
    return False
