"""`Publication`: what a batch staged for its targets, and how readers get to see it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from scripts.helpers._lazy import S3Client, SparkSession
from scripts.helpers.batch.unsaved_run import UnsavedRun
from scripts.helpers.batch.witness import Witness
from scripts.helpers.display.units import printable
from scripts.helpers.errors import (
    InvalidValueError,
    RetractionError,
    StagedFilesLostError,
    TargetError,
    UnprovenError,
    UnpublishedError,
    WatermarkError,
)
from scripts.helpers.protocol.head import Plan
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.protocol.run import Run
from scripts.helpers.sinks.choice import is_sink_of, opened, sink_of
from scripts.helpers.sinks.outputs import doubt
from scripts.helpers.sinks.sink import Sink

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Output | Retraction)

SWEEP_EVERY = 10
"""Of so many versions that follow one another, one looks for what attempts left that slept until others had published.
Each look is a listing. Earlier records of the job are deleted then as well."""
COPY_LASTS = timedelta(days=1)
"""A copy within S3 that has begun may end after the files of its batch were deleted, and put one back. One request
takes minutes; one of many parts that sleeps with its process, as long as that does. So the runs of a day delete them
again."""


class Publication:
    """The output of one run, from staged to seen.

    Parameters
    ----------
    run
        The run, begun.
    spark, s3_client
        What output of earlier runs is reached by.
    clock
        Returns the time, with its zone.

    Attributes
    ----------
    witness
        Asks targets what they have recorded of the job.
    staged
        What was staged, with its sink.
    is_tried
        Whether a commit was sent, of which only the head knows whether it took effect.
    """

    def __init__(
        self,
        run: Run | UnsavedRun,
        spark: SparkSession | None,
        s3_client: S3Client | None,
        clock: Callable[[], datetime],
    ) -> None:
        self.run, self._spark, self._s3_client, self._clock = run, spark, s3_client, clock
        self.witness = Witness(run, spark, s3_client)
        self.staged: list[tuple[Sink, Output]] = []
        self.is_tried = False

    def add(self, sink: Sink, output: Output) -> None:
        """Take up what was staged for one target."""
        self.staged.append((sink, output))

    def finish_earlier(self) -> None:
        """Delete what decisions took back, and publish what a run committed that died before readers saw all of it.

        Raises
        ------
        RetractionError
            Rows are still at a target that come again.
        UnpublishedError
            It cannot be published. It would be in nobody's sight if this run went on.
        """
        for record in self._proven(self.due):
            sink = opened(record, self._spark, self._s3_client)
            # Where it is None, only the script knows how to log in. Its first write to that target finishes it.
            if sink is not None:
                self._finish(sink, record)
            elif isinstance(record, Retraction):
                logger.warning(
                    "event=retraction_waits job=%s versions=%d-%d target=%s: the next write to it does it first",
                    self.run.job_id, record.first, record.last, printable(record.target),
                )  # fmt: skip
            else:
                logger.warning(
                    "event=publication_waits job=%s version=%d target=%s: the next write to it publishes this first",
                    self.run.job_id, record.version, printable(record.target),
                )  # fmt: skip
        self.witness.ask_last()

    def finish(self, sink: Sink) -> None:
        """Take back and publish what is due at a target that could not be reached before it was given.

        Raises
        ------
        RetractionError, UnpublishedError
            It cannot be done.
        """
        for record in self._proven(self.due):
            # What could be reached without the script was deleted at the start. What is published, however its target
            # is written now, comes before this batch: a table that has recorded this one takes no earlier one.
            is_new = isinstance(record, Output) or opened(record, self._spark, self._s3_client) is None
            if is_new and is_sink_of(sink, record):
                self._finish(sink, record)

    def publish_waiting(self, sinks: Sequence[Sink]) -> Iterator[tuple[Output, WatermarkError | None]]:
        """Take back and publish all that is due, and yield each output with the error that keeps it from its target.

        Where something fails, all that follows at the same target waits: a table that has recorded a version takes no
        earlier one.
        """
        assert isinstance(self.run, Run)
        failed: list[tuple[Output | Retraction, WatermarkError]] = []
        for record in self.due:
            try:
                # None for a record that is not of this job: the doctor reports it, and no run publishes it.
                for proven in self._proven([record]):
                    sink = sink_of(proven, sinks, self._spark, self._s3_client)
                    if sink is None:
                        raise InvalidValueError("Only the job's script gets there.")
                    for _, error in filter(lambda before: is_sink_of(sink, before[0]), failed):
                        raise error
                    self._finish(sink, proven)
                    if isinstance(proven, Output) and proven not in self.run.unpublished:
                        yield proven, None
            except WatermarkError as error:
                failed.append((record, error))
                if isinstance(record, Output):
                    yield record, error

    def _finish(self, sink: Sink, record: Output | Retraction) -> None:
        if isinstance(record, Retraction):
            self._retract(sink, record)
        else:
            self._resume(sink, record)

    def commit(self, metrics: Mapping[str, Any], plan: Plan | None = None) -> str:
        """Commit the run together with what is staged, and a plan that is not frozen; return its outcome.

        Nothing is published by that.
        """
        # From here on it is not ours to drop: an answer may get lost.
        self.is_tried = True
        return self.run.commit(tuple(output for _, output in self.staged), plan, **metrics)

    def publish(self) -> None:
        """Show readers what the run committed; to be called after the commit.

        Raises
        ------
        UnpublishedError
            The batch is committed and cannot be published now.
        """
        if isinstance(self.run, UnsavedRun):
            for sink, output in self.staged:
                sink.publish(output)
                sink.clear(output)
            return
        for sink, output in self.staged:
            if output in self.run.outputs:
                self._publish(sink, output)
                self._sweep(sink, output)
            else:
                self._clear(sink.drop, output)
        # Of the attempt that won, where this one did not. Earlier output was published before, or waits for a script
        # that writes to its target.
        own = [output for _, output in self.staged]
        # What a person took back while it was published is among `own`, and was reported then.
        waiting = tuple(output for output in self.run.unpublished if output not in own)
        for output in self._proven(waiting):
            given = (sink for sink, _ in self.staged if is_sink_of(sink, output))
            winner = opened(output, self._spark, self._s3_client) or next(given, None)
            if winner is not None:
                self._publish(winner, output)

    def drop(self) -> None:
        """Delete what was staged, as the run ends without a commit. A failure is logged: nobody ever sees it."""
        if self.is_tried:
            return
        for sink, output in self.staged:
            self._clear(sink.drop, output)

    @property
    def due(self) -> Sequence[Output | Retraction]:
        """What decisions took back, and then what waits to be published, as the run knows of it."""
        return [*self.run.retracting, *self.run.unpublished] if isinstance(self.run, Run) else []

    def _proven(self, records: Sequence[T]) -> Iterator[T]:
        """Yield the records that are of this job, by its head; log each other one, and leave it as it is."""
        for record in records:
            assert isinstance(self.run, Run)
            why = doubt(record, self.run.head.last_versions)
            if why is not None:
                self._warn_of(record, why)
            else:
                yield record

    def _warn_of(self, record: Output | Retraction, why: str) -> None:
        logger.warning(
            "event=unproven_record job=%s target=%s: nothing is published or deleted for it, as %s. See watermarks "
            "doctor", record.job_id, printable(record.target), why,
        )  # fmt: skip

    def _retract(self, sink: Sink, retraction: Retraction) -> None:
        assert isinstance(self.run, Run)
        take_back(sink, retraction)
        if self._clock() - retraction.since > COPY_LASTS:
            self.run.taken_back((retraction,))

    def _resume(self, sink: Sink, output: Output) -> None:
        assert isinstance(self.run, Run)
        logger.warning(
            "event=publication_resumed job=%s version=%d target=%s",
            self.run.job_id, output.version, printable(output.target),
        )  # fmt: skip
        # Before it is published, as it hides that the target lacks earlier versions.
        self.witness.ask_if_reached(output, sink)
        self._publish(sink, output)
        self._sweep(sink, output)

    def _publish(self, sink: Sink, output: Output) -> None:
        assert isinstance(self.run, Run)
        lacks_after = self.witness.warn_if_behind(sink) if output.has_rows else None
        try:
            sink.publish(output)
        except UnprovenError as error:
            self._warn_of(output, error.detail)
            return
        except StagedFilesLostError:
            # A person may have decided meanwhile that they go.
            if self.run.is_unpublished(output):
                raise
            logger.warning(
                "event=output_gone job=%s version=%d: somebody took it back", self.run.job_id, output.version
            )
            return
        except WatermarkError as error:
            raise UnpublishedError(self.run.job_id, output.version, output.target) from error
        logger.info(
            "event=published job=%s version=%d files=%d target=%s",
            self.run.job_id, output.version, output.files, output.target,
        )  # fmt: skip
        self._clear(sink.clear, output)
        self.run.published((output,), lacks_after)

    def _sweep(self, sink: Sink, output: Output) -> None:
        assert isinstance(self.run, Run)
        recorded, last = self.witness.recorded(sink), self.run.head.last
        before = recorded.epochs.get(output.epoch, 0) if recorded is not None else 0
        # Nobody else was at work since the target got the version before: nothing is left, unless somebody slept.
        if last is not None and last.failed == 0 and output.version == before + 1 and output.version % SWEEP_EVERY:
            return
        kept = [output.folder for output in self.run.unpublished]
        self._clear(lambda output: sink.sweep(output, kept, recorded), output)

    def _clear(self, delete: Any, output: Output) -> None:
        """Delete what no reader sees. Where that fails the target is right all the same, and `doctor` tells of it."""
        try:
            delete(output)
        except TargetError as error:
            logger.warning("event=staging_left job=%s target=%s error=%s", self.run.job_id, output.target, error)


def take_back(sink: Sink, retraction: Retraction) -> int:
    """Delete what a decision took back from a target; return how many files, or rows, were there.

    Raises
    ------
    RetractionError
        They cannot be deleted.
    """
    try:
        count = sink.retract(retraction)
    except WatermarkError as error:
        raise RetractionError(retraction.job_id, retraction.first, retraction.last, retraction.target) from error
    if count:
        logger.warning(
            "event=retracted job=%s versions=%d-%d count=%d target=%s",
            retraction.job_id, retraction.first, retraction.last, count, printable(retraction.target),
        )  # fmt: skip
    return count
