"""Goals, and the last lines of a benchmark, which say what was measured of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import NamedTuple


class Goal(NamedTuple):
    """What was measured and what is wanted: at least so much, or at most."""

    text: str
    measured: float
    wanted: float
    more: bool = True

    @property
    def is_met(self) -> bool:
        """Tell whether what is wanted was reached."""
        return self.measured >= self.wanted if self.more else self.measured <= self.wanted


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def judge(goals: Iterable[Goal]) -> int:
    """Print all goals; return the exit code."""
    missed = 0
    for goal in goals:
        sign, verdict = ">=" if goal.more else "<=", "" if goal.is_met else " (missed)"
        say(f"goal: {goal.text} {sign} {goal.wanted:,g}; measured: {goal.measured:,.1f}{verdict}")
        missed += not goal.is_met
    return 1 if missed else 0
