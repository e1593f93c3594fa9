"""Goals of a benchmark, and its last lines of output, which compare measurements with goals."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import NamedTuple


class Goal(NamedTuple):
    """A measured value and the wanted one, which is a minimum if `more` is true, otherwise a maximum."""

    text: str
    measured: float
    wanted: float
    more: bool = True

    @property
    def is_met(self) -> bool:
        """Whether the measured value meets the goal."""
        return self.measured >= self.wanted if self.more else self.measured <= self.wanted


def say(text: str) -> None:
    """Print a line and flush it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def judge(goals: Iterable[Goal]) -> int:
    """Print all goals with their measurements; return 1 if any was missed, else 0."""
    missed = 0
    for goal in goals:
        sign, verdict = ">=" if goal.more else "<=", "" if goal.is_met else " (missed)"
        say(f"goal: {goal.text} {sign} {goal.wanted:,g}; measured: {goal.measured:,.2f}{verdict}")
        missed += not goal.is_met
    return 1 if missed else 0
