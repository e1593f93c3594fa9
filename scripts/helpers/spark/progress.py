"""Spark jobs whose tasks make no progress any more: cancelled, as some files keep a reader busy forever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from uuid import uuid4

from scripts.helpers._lazy import SparkSession
from scripts.helpers.spark.jvm import is_connect

_OF_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


@contextmanager
def time_limit(spark: SparkSession, seconds: float) -> Iterator[None]:
    """Cancel the jobs that this thread starts within if none of their tasks ends for so long.

    They have a job group of their own, so no other job is cancelled. Spark Connect has no groups, and no limit here.

    Raises
    ------
    TimeoutError
        Jobs were cancelled while a task of theirs was running. Its slot stays occupied.
    """
    if is_connect(spark):
        yield
        return
    context, group, is_over, stuck = spark.sparkContext, uuid4().hex, Event(), Event()
    before = {name: context.getLocalProperty(name) for name in _OF_GROUP}

    def watch() -> None:
        tracker, last = context.statusTracker(), -1
        while not is_over.wait(seconds):
            jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(group)))
            stages = [stage for job in jobs for stage in map(tracker.getStageInfo, job.stageIds) if stage is not None]
            ended = sum(stage.numCompletedTasks for stage in stages)
            if ended == last:
                # Without a running task the jobs wait for a slot, and no file is to blame.
                if any(stage.numActiveTasks for stage in stages):
                    stuck.set()
                context.cancelJobGroup(group)
            last = ended

    context.setJobGroup(group, "looks which files cannot be read", interruptOnCancel=True)
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
        for name, value in before.items():
            context.setLocalProperty(name, value)  # type: ignore[arg-type]
