"""How often a change that loses a race is retried, and the pauses between the tries."""

from __future__ import annotations

import itertools
import random

import pytest

from scripts.helpers.protocol.races import TO_BEGIN, Patience


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the upper limits of the random pauses; each pause is as long as possible."""
    asked: list[float] = []
    monkeypatch.setattr(random, "uniform", lambda low, high: asked.append(high) or high)
    return asked


def test_pause_precedes_each_try_but_the_first_when_a_change_keeps_losing(limits: list[float]) -> None:
    slept: list[float] = []

    tries = list(Patience(5, first_pause=0.5, longest_pause=1.5).races(slept.append))

    assert (tries, slept) == ([0, 1, 2, 3, 4], [0.5, 1.0, 1.5, 1.5])
    assert limits == slept


def test_pause_may_be_zero_when_a_change_keeps_losing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers that collide must spread out, so pauses range from zero to the limit instead of around one value."""
    monkeypatch.setattr(random, "uniform", lambda low, _: low)
    slept: list[float] = []

    assert list(Patience(3, first_pause=0.5, longest_pause=1.5).races(slept.append)) == [0, 1, 2]
    assert slept == [0, 0]


def test_nothing_is_waited_for_when_there_is_no_pause() -> None:
    slept: list[float] = []

    assert list(Patience(3).races(slept.append)) == [0, 1, 2]
    assert slept == []


def test_pause_is_at_its_limit_when_thousands_of_tries_were_lost(limits: list[float]) -> None:
    slept: list[float] = []
    patience = Patience(None, first_pause=0.5, longest_pause=1.5)

    assert list(itertools.islice(patience.races(slept.append), 2_000))[-1] == 1_999
    assert slept[-1] == 1.5


def test_begin_retries_when_it_has_lost_often() -> None:
    assert list(itertools.islice(TO_BEGIN.races(lambda _: None), 100))[-1] == 99
