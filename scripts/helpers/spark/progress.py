"""Cancel Spark jobs whose tasks make no progress, because some files keep a reader busy forever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any
from uuid import uuid4

from scripts.helpers._lazy import SparkSession
from scripts.helpers.spark.jvm import is_connect

_JOB_GROUP_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


@contextmanager
def time_limit(spark: SparkSession, seconds: float) -> Iterator[None]:
    """Cancel the jobs that this thread starts in the block if none of their tasks ends within `seconds`.

    The jobs have their own job group, so no other job is cancelled. Spark Connect does not show tasks: with it, run
    a short query after `seconds`, then cancel the jobs. The query runs only once none of the jobs waits for a slot.

    Raises
    ------
    TimeoutError
        Jobs were cancelled while one of their tasks was running. The task's slot stays occupied.
    """
    with (_tagged if is_connect(spark) else _grouped)(spark) as (is_stuck, cancel):
        is_over, stuck = Event(), Event()

        def watch() -> None:
            while not is_over.wait(seconds):
                found = is_stuck()
                if found is None or is_over.is_set():
                    continue
                if found:
                    stuck.set()
                cancel()

        watcher = Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        except Exception as error:
            if stuck.is_set():
                raise TimeoutError(f"no task ended within {seconds:g} seconds") from error
            raise
        finally:
            is_over.set()
            watcher.join()


_Watched = tuple[Callable[[], "bool | None"], Callable[[], object]]
"""A function that returns whether the jobs are stuck, or None if a task has ended; and a function that cancels them."""


@contextmanager
def _grouped(spark: SparkSession) -> Iterator[_Watched]:
    context, group, last = spark.sparkContext, uuid4().hex, [-1]
    before = {name: context.getLocalProperty(name) for name in _JOB_GROUP_PROPERTIES}

    def is_stuck() -> bool | None:
        tracker = context.statusTracker()
        jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(group)))
        stages = [stage for job in jobs for stage in map(tracker.getStageInfo, job.stageIds) if stage is not None]
        last.append(sum(stage.numCompletedTasks for stage in stages))
        # If no task ended since the last look, a running one is stuck. If none is running, the jobs wait for a slot.
        return any(stage.numActiveTasks for stage in stages) if last[-1] == last[-2] else None

    context.setJobGroup(group, "looks which files cannot be read", interruptOnCancel=True)
    try:
        yield is_stuck, lambda: context.cancelJobGroup(group)
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)  # type: ignore[arg-type]


@contextmanager
def _tagged(spark: Any) -> Iterator[_Watched]:
    tag = uuid4().hex

    def is_stuck() -> bool:
        # Spark gives slots to older jobs first. So once this query has run, the watched jobs no longer wait for one.
        spark.range(1).collect()
        return True

    spark.addTag(tag)
    try:
        yield is_stuck, lambda: spark.interruptTag(tag)
    finally:
        spark.removeTag(tag)
