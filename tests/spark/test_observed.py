"""Aggregates that Spark hands out after an action: over Spark Connect of PySpark 4, and on Sparks before 3.5."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from scripts.helpers.spark.observed import _is_ready, _OfConnect


@pytest.mark.parametrize(("answer", "found"), [({"rows": 3}, {"rows": 3}), ({}, None)], ids=["filled", "before"])
def test_aggregates_are_those_of_the_answer_when_the_session_is_of_spark_connect(
    answer: dict[str, int], found: dict[str, int] | None
) -> None:
    observed = _OfConnect(SimpleNamespace(get=answer))

    assert (observed.found(), observed.after_action()) == (found, found)


class Java:
    """An observation of Java before Spark 3.5, with a private field in place of a future."""

    def __init__(self, *, is_filled: bool) -> None:
        self.is_filled, self.is_accessible = is_filled, False

    def getClass(self) -> Any:  # noqa: N802
        methods = [SimpleNamespace(getName=lambda: "get")]
        fields = {"metrics": SimpleNamespace(setAccessible=self.open, get=self.read)}
        return SimpleNamespace(getMethods=lambda: methods, getDeclaredField=fields.__getitem__)

    def open(self, accessible: bool) -> None:
        self.is_accessible = accessible

    def read(self, of: Java) -> Any:
        assert (of, self.is_accessible) == (self, True)
        return SimpleNamespace(isDefined=lambda: self.is_filled)


@pytest.mark.parametrize("is_filled", [True, False])
def test_observation_is_ready_when_its_field_is_filled_on_a_spark_without_futures(is_filled: bool) -> None:
    assert _is_ready(Java(is_filled=is_filled)) is is_filled
