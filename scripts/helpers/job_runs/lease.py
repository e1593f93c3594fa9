"""The lease of a run at work, renewed beside the work, so that a table that hangs never makes it last too long."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from scripts.helpers.errors import WatermarkError
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.job_runs.run_store import RunStore
from scripts.helpers.protocol.heartbeat import Heartbeat
from scripts.helpers.protocol.races import Written

logger = logging.getLogger(__name__)

SURE_PART = 0.9
"""Part of a lease in which its owner may count on it. The rest is for ending the job, and for clocks that run at other
speeds: others measure one lease by a timer of their own, from when they first saw the last renewal."""


class Lease:
    """What a launcher knows of the lease of its run.

    Parameters
    ----------
    seconds
        For how long nobody takes the run for lost after it was claimed or renewed.
    timer
        Seconds on a clock that nobody sets.

    Attributes
    ----------
    run
        The run as it was when it was last renewed.
    """

    def __init__(
        self,
        records: RunStore,
        run: RunRecord,
        clock: Callable[[], datetime],
        seconds: float,
        timer: Callable[[], float],
    ) -> None:
        self.run, self._records, self._clock, self._timer = run, records, clock, timer
        self._seconds = seconds
        self._until = 0.0
        self._is_ours = True

    def taken(self, written_at: float) -> None:
        """Count from before a write that took effect: when it reached the table is not known."""
        self._until = written_at + self._seconds * SURE_PART

    @property
    def is_sure(self) -> bool:
        """Tell whether nobody can have given the run up."""
        return self._is_ours and self._timer() < self._until

    def keep(self, pause: float) -> None:
        """Renew it from a thread of its own, which ends with the process, with the lease, or with `let_go`."""
        Heartbeat(self, Lease.beat, pause)

    def let_go(self) -> None:
        """Renew it no more. Does not wait for a write that is under way."""
        self._is_ours = False

    def beat(self) -> bool:
        """Renew it once, and learn what was asked meanwhile. False: it was let go, or the run was given up."""
        try:
            while self._is_ours:
                written_at = self._timer()
                renewed = self.run.renewed(self._clock(), timedelta(seconds=self._seconds))
                # Half a lease for one write: a table that hangs for longer leaves time to end the job all the same.
                outcome = self._records.write_run(self.run, renewed, self._seconds / 2)
                if isinstance(outcome, Written):
                    self.run = renewed
                    self.taken(written_at)
                    break
                current = outcome.to
                if current is None or current.is_over or current.launcher != self.run.launcher:
                    self._is_ours = False
                    break
                # Somebody else wrote, as who asks for a stop does: that is learned from `run`, and this tried again.
                self.run = current
        except WatermarkError as error:
            logger.warning("event=beat_failed run=%s error=%s", self.run.run_id, type(error).__name__)
        return self._is_ours
