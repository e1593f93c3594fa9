"""Aggregates that Spark computes while it runs the first action on a DataFrame, whatever that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from scripts.helpers._lazy import Column, DataFrame, SparkSession
from scripts.helpers.spark.jvm import is_connect, java_session

MAX_WAIT_MS = 2_000
"""Spark tells of a finished action a moment later; longest wait for that."""
CANNOT_OBSERVE = (
    "Spark Connect hands out what it counts on the way from PySpark 4.0 on. Upgrade the client and the server, or "
    "run the job with a classic session"
)


class Observed(Protocol):
    """What was found on the way, once the first action has ended."""

    def found(self) -> dict[str, Any] | None:
        """Return the aggregates by their names; None if no action on the rows has ended."""

    def after_action(self) -> dict[str, Any] | None:
        """Return the aggregates, of an action that has ended: wait until Spark tells of it. None if it never does."""


def observe(df: DataFrame, aggregates: Sequence[Column], name: str | None = None) -> tuple[DataFrame, Observed | None]:
    """Return the same rows, which compute aggregates when they are first read, and where those are found then.

    Returns
    -------
    tuple of DataFrame and Observed
        The rows as they are, and None, where Spark hands out no such aggregates: over Spark Connect before 4.0.
    """
    if not is_connect(df):
        from pyspark.sql import Observation

        observation = Observation(name)
        return df.observe(observation, *aggregates), _OfJvm(df.sparkSession, observation)
    try:
        from pyspark.sql.connect.observation import Observation as OfConnect  # type: ignore[import-not-found]
    except ImportError:
        # PySpark 3.5 sends the aggregates to the server, and drops what comes back.
        return df, None
    observation = OfConnect(name)
    return df.observe(observation, *aggregates), _OfConnect(observation)


class _OfJvm:
    """An Observation of a classic session."""

    def __init__(self, spark: SparkSession, observation: Any) -> None:
        self._spark, self._observation = spark, observation

    def found(self) -> dict[str, Any] | None:
        """Return the aggregates. The observation's own `get` would wait for an action for ever."""
        if not _is_ready(self._observation._jo):
            java_session(self._spark).sparkContext().listenerBus().waitUntilEmpty(MAX_WAIT_MS)
        return dict(self._observation.get) if _is_ready(self._observation._jo) else None

    def after_action(self) -> dict[str, Any]:
        """Return the aggregates."""
        return dict(self._observation.get)


class _OfConnect:
    """An Observation of Spark Connect, which is filled by the answer to the action."""

    def __init__(self, observation: Any) -> None:
        self._observation = observation

    def found(self) -> dict[str, Any] | None:
        """Return the aggregates."""
        return dict(self._observation.get) or None

    def after_action(self) -> dict[str, Any] | None:
        """Return the aggregates, which came with the answer to the action."""
        return self.found()


def _is_ready(observation: Any) -> bool:
    """Tell whether `get` returns at once: by the future that Spark has from 3.5 on, or the field it had before."""
    methods = {method.getName() for method in observation.getClass().getMethods()}
    if "future" in methods:
        return bool(observation.future().isCompleted())
    field = observation.getClass().getDeclaredField("metrics")
    field.setAccessible(True)
    return bool(field.get(observation).isDefined())
