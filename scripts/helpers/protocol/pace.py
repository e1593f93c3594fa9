"""How fast chunks are written, expired and deleted. Pure.

DynamoDB keeps all items of a job in one partition, which takes 1,000 write units a second, and a write costs one unit
per KB of the item, whether it puts, updates or deletes it. Whoever writes 60 MB as fast as the network allows is
throttled after the first second, and gives up when its retries are used up.
"""

from __future__ import annotations

import math
from collections.abc import Callable

UNITS_PER_SECOND = 900.0
"""Less than a partition takes: heartbeats and other jobs that lie there need some."""

KEY_BYTES = 200
"""About what an item has beside its data: names, keys and format."""


class Pace:
    """Waits before each write until the writes before it are paid for. One or two chunks wait hardly at all.

    Parameters
    ----------
    timer
        Returns seconds; never set back.
    sleep
        Waits so many seconds.
    """

    def __init__(self, timer: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._timer, self._sleep = timer, sleep
        self._paid_at = timer()

    def wait_to_write(self, data_bytes: int) -> None:
        """Wait until a chunk of so many bytes may be written."""
        now = self._timer()
        if self._paid_at > now:
            self._sleep(self._paid_at - now)
        units = math.ceil((data_bytes + KEY_BYTES) / 1024)
        self._paid_at = max(now, self._paid_at) + units / UNITS_PER_SECOND
