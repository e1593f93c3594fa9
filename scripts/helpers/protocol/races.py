"""What comes of a conditional write, and how often it is tried again when others write meanwhile. Pure."""

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
    """Somebody else's write took effect: `to` is what they made; None if what was to be replaced is gone."""

    to: T | None


@dataclass(frozen=True)
class Patience:
    """How often a change is tried that loses to others each time, and how long it waits in between.

    A pause is random, between nothing and an upper limit that doubles up to `longest_pause`: writers
    that wait for the same time would meet again.

    Attributes
    ----------
    tries
        None: until it is written, or refused by what others wrote.
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
                # The exponent is bounded as well: 2.0**1100 is an OverflowError.
                limit = min(self.longest_pause, self.first_pause * 2.0 ** min(race - 1, 60))
                sleep(random.uniform(0, limit))
            yield race


TO_BEGIN = Patience(tries=None)
"""A run that begins and loses looks at the head that won: its lease lives, which refuses the run, or it left the job
free. So each loss is somebody else's progress, and there is nothing to wait for."""

TO_COMMIT_AT_ONCE = Patience(tries=30, first_pause=0.2, longest_pause=15.0)
"""A one-shot commit loses to any other, and fifty of them at a job are not unheard of. At five seconds they would still
disturb each other when the tries run out."""

TO_DECIDE = Patience(tries=10)
"""A person waits, and a decision loses only to steps of a run, which are seconds apart: without pauses a decision gets
in between. Ten losses mean a crowd of writers, and a person should know."""

TO_WRITE_CHUNKS = Patience(tries=60, first_pause=0.2, longest_pause=5.0)
"""A chunk that is throttled: two minutes and more, beside what botocore tries by itself. To give up throws away what a
run has planned, and all that it asks of the partition is to be left a few hundred units once."""

TO_RECORD = Patience(tries=10, first_pause=0.2, longest_pause=5.0)
"""Rounds of `TO_DECIDE`, for what processes enter side by side, such as the slices of a backfill that begin at once."""

TO_CHANGE_A_JOB = Patience(tries=40, first_pause=0.05, longest_pause=5.0)
"""The record of a job in the Job Runs API counts its runs, so all that start or end at once want it."""

TO_CHANGE_A_RUN = Patience(tries=40)
"""The record of a run is changed by its heartbeat too. After a pause what was read would be old again each time."""
