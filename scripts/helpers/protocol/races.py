"""Outcomes of a conditional write, and how often to retry it when other writers win. Pure."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Written(Generic[T]):
    """The write took effect."""

    now: T


@dataclass(frozen=True)
class Lost(Generic[T]):
    """Another writer's write took effect: `to` is the item as it is stored now, or None if it was deleted."""

    to: T | None


@dataclass(frozen=True)
class Patience:
    """How often to retry a change that loses to other writers, and how long to wait in between.

    A pause is random, between 0 and an upper limit that doubles up to `longest_pause`: writers that
    wait for the same time would collide again.

    Attributes
    ----------
    tries
        Largest number of tries; None for no limit: try until the change is written, or is no longer allowed.
    first_pause, longest_pause
        Seconds; 0 for no pause at all.
    """

    tries: int | None
    first_pause: float = 0.0
    longest_pause: float = 0.0

    def races(self, sleep: Callable[[float], None]) -> Iterator[int]:
        """Yield the number of each try, with a pause before every one but the first."""
        for race in itertools.count():
            if race == self.tries:
                return
            if race and self.longest_pause:
                # Limit the exponent, too, because 2.0**1100 raises an OverflowError.
                limit = min(self.longest_pause, self.first_pause * 2.0 ** min(race - 1, 60))
                sleep(random.uniform(0, limit))
            yield race


TO_BEGIN = Patience(tries=None)
"""A begin that loses reads the head that won. Either its lease is valid, which refuses the run, or the job is free
again. Each loss means that another run made progress, so there is nothing to wait for."""

TO_COMMIT_AT_ONCE = Patience(tries=30, first_pause=0.2, longest_pause=15.0)
"""A one-shot commit loses to any other commit, and a job may have fifty of them at once. With pauses of at most five
seconds they would still collide when the tries run out."""

TO_DECIDE = Patience(tries=10)
"""An operator waits, and a decision loses only to steps of a run, which are seconds apart: a retry without a pause
fits in between. Ten losses mean many writers, which the operator should know."""

TO_WRITE_CHUNKS = Patience(tries=60, first_pause=0.2, longest_pause=5.0)
"""Retries of a throttled chunk last two minutes and more, besides botocore's own. Giving up would throw away a run's
plan, while one chunk needs only a few hundred units of the partition."""

TO_RECORD = Patience(tries=10, first_pause=0.2, longest_pause=5.0)
"""Rounds of `TO_DECIDE`, for changes by processes in parallel, such as slices of a backfill that begin at once."""

TO_CHANGE_A_JOB = Patience(tries=40, first_pause=0.05, longest_pause=5.0)
"""The Job Runs API counts runs in the record of the job, so all runs that start or end at once write it."""

TO_CHANGE_A_RUN = Patience(tries=40)
"""The heartbeat also changes the record of a run. After a pause the record that was read would be outdated again."""
