"""Aggregates that Spark returns after an action: over Spark Connect in PySpark 4, and in versions before 3.5."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import Column, DataFrame

from scripts.helpers.spark.observed import _is_ready, _OfConnect, observe


@pytest.mark.parametrize(("answer", "found"), [({"rows": 3}, {"rows": 3}), ({}, None)], ids=["filled", "before"])
def test_aggregates_are_those_of_the_answer_when_the_session_is_of_spark_connect(
    answer: dict[str, int], found: dict[str, int] | None
) -> None:
    observed = _OfConnect(SimpleNamespace(get=answer))

    assert (observed.found(), observed.after_action()) == (found, found)


def test_rows_are_observed_when_the_client_of_spark_connect_hands_out_what_it_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Frame:
        """A DataFrame of Spark Connect that returns what it is asked to observe."""

        def observe(self, *asked: Any) -> Any:
            return asked

    monkeypatch.setattr(Frame, "__module__", "pyspark.sql.connect.dataframe")
    observation, frame = SimpleNamespace(get={"rows": 3}), Frame()
    module = SimpleNamespace(Observation=lambda _name: observation)
    monkeypatch.setitem(sys.modules, "pyspark.sql.connect.observation", module)

    rows, observed = observe(cast("DataFrame", frame), cast("list[Column]", ["count", "max"]))

    assert cast("Any", rows) == (observation, "count", "max")
    assert observed is not None
    assert observed.found() == {"rows": 3}


class Java:
    """A Java observation of Spark before 3.5, which has a private field instead of a future."""

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
