"""Aggregates that Spark computes during the first action on a DataFrame, whichever action that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from scripts.helpers._lazy import Column, DataFrame, SparkSession
from scripts.helpers.spark.jvm import is_connect, java_session

MAX_WAIT_MS = 2_000
"""Longest wait for the aggregates: Spark reports a finished action a moment later."""
CANNOT_OBSERVE = (
    "Spark Connect hands out what it counts on the way from PySpark 4.0 on. Upgrade the client and the server, or "
    "run the job with a classic session"
)


class Observed(Protocol):
    """The aggregates of a DataFrame, available once the first action on it has ended."""

    def found(self) -> dict[str, Any] | None:
        """Return the aggregates by their names; None if no action on the rows has ended."""

    def after_action(self) -> dict[str, Any] | None:
        """Wait until Spark reports an action that has ended, and return its aggregates; None if Spark never does."""


def observe(df: DataFrame, aggregates: Sequence[Column], name: str | None = None) -> tuple[DataFrame, Observed | None]:
    """Return the rows, whose first action also computes aggregates, and an object that has the results.

    Returns
    -------
    tuple of DataFrame and Observed
        The unchanged rows and None if Spark does not return such aggregates, as over Spark Connect before 4.0.
    """
    if not is_connect(df):
        from pyspark.sql import Observation

        observation = Observation(name)
        return df.observe(observation, *aggregates), _OfJvm(df.sparkSession, observation)
    try:
        from pyspark.sql.connect.observation import Observation as OfConnect  # type: ignore[import-not-found]
    except ImportError:
        # Do not request aggregates from PySpark 3.5: over Spark Connect, it drops the results.
        return df, None
    observation = OfConnect(name)
    return df.observe(observation, *aggregates), _OfConnect(observation)


class _OfJvm:
    """An Observation of a classic session."""

    def __init__(self, spark: SparkSession, observation: Any) -> None:
        self._spark, self._observation = spark, observation

    def found(self) -> dict[str, Any] | None:
        """Return the aggregates; None if they are not ready, because the observation's `get` might wait for ever."""
        if not _is_ready(self._observation._jo):
            java_session(self._spark).sparkContext().listenerBus().waitUntilEmpty(MAX_WAIT_MS)
        return dict(self._observation.get) if _is_ready(self._observation._jo) else None

    def after_action(self) -> dict[str, Any]:
        """Return the aggregates by Observation.get, which waits until Spark has reported the action as finished."""
        return dict(self._observation.get)


class _OfConnect:
    """An Observation of Spark Connect, which gets its values from the response to the action."""

    def __init__(self, observation: Any) -> None:
        self._observation = observation

    def found(self) -> dict[str, Any] | None:
        """Return the aggregates, or None before the first action."""
        return dict(self._observation.get) or None

    def after_action(self) -> dict[str, Any] | None:
        """Return the aggregates, which came with the response to the action."""
        return self.found()


def _is_ready(observation: Any) -> bool:
    """Return whether `get` would return at once. A future shows it in Spark 3.5 and later, a field in older ones."""
    methods = {method.getName() for method in observation.getClass().getMethods()}
    if "future" in methods:
        return bool(observation.future().isCompleted())
    field = observation.getClass().getDeclaredField("metrics")
    field.setAccessible(True)
    return bool(field.get(observation).isDefined())
