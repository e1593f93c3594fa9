"""How often a change is tried against others, and the pauses in between."""

from __future__ import annotations

import itertools
import random

import pytest

from scripts.helpers.protocol.races import TO_BEGIN, Patience


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the upper limits that pauses are drawn from; each pause is as long as it can be."""
    asked: list[float] = []
    monkeypatch.setattr(random, "uniform", lambda low, high: asked.append(high) or high)
    return asked


def test_pause_comes_before_each_try_but_the_first_when_a_change_keeps_losing(limits: list[float]) -> None:
    slept: list[float] = []

    tries = list(Patience(5, first_pause=0.5, longest_pause=1.5).races(slept.append))

    assert (tries, slept) == ([0, 1, 2, 3, 4], [0.5, 1.0, 1.5, 1.5])
    assert limits == slept


def test_pause_may_be_none_at_all_when_a_change_keeps_losing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that collide have to part: from nothing to the limit, and not around the same time."""
    monkeypatch.setattr(random, "uniform", lambda low, _: low)
    slept: list[float] = []

    assert list(Patience(3, first_pause=0.5, longest_pause=1.5).races(slept.append)) == [0, 1, 2]
    assert slept == [0, 0]


def test_nothing_is_waited_for_when_there_is_no_pause() -> None:
    slept: list[float] = []

    assert list(Patience(3).races(slept.append)) == [0, 1, 2]
    assert slept == []


def test_pause_is_as_long_as_can_be_when_thousands_were_lost(limits: list[float]) -> None:
    slept: list[float] = []
    patience = Patience(None, first_pause=0.5, longest_pause=1.5)

    assert list(itertools.islice(patience.races(slept.append), 2_000))[-1] == 1_999
    assert slept[-1] == 1.5


def test_begin_goes_on_when_it_has_lost_often() -> None:
    assert list(itertools.islice(TO_BEGIN.races(lambda _: None), 100))[-1] == 99
