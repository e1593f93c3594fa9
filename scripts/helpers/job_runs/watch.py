"""Which launchers are lost, judged as the Kinesis client judges leases: by a token that stands still for one lease."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from scripts.helpers.job_runs.run_record import CLOCK_MARGIN


class Watch:
    """What one process has seen of the records that others renew.

    Clocks of two machines are never compared, but where one says that the lease is over for longer than clocks differ:
    a process that looks once, as a command does, sees no token stand still.

    Parameters
    ----------
    timer
        Seconds on a clock that nobody sets.
    """

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._seen: dict[str, tuple[str, float]] = {}

    def is_over(self, name: str, token: str, since: datetime, lease: timedelta, now: datetime) -> bool:
        """Tell whether a lease is over that was last renewed, by its owner's clock, at `since`.

        Parameters
        ----------
        name, token
            Of the record, and of the write that renewed it. A token that was not seen before starts a lease.
        now
            By the clock of this process.
        """
        seen = self._seen.get(name)
        if seen is None or seen[0] != token:
            seen = self._seen[name] = token, self._timer()
        # Up to its very end the lease is its owner's, so `>` and not `>=`.
        stands_still = self._timer() - seen[1] > lease.total_seconds()
        return stands_still or now > since + lease + CLOCK_MARGIN

    def forget(self, name: str) -> None:
        """Forget a record that nobody renews any more."""
        self._seen.pop(name, None)
