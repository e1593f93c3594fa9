"""`Publication`: what a batch staged for its targets, and how readers get to see it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scripts.helpers.batch.unsaved_run import UnsavedRun
from scripts.helpers.errors import StagedFilesLostError, TargetError, UnpublishedError, WatermarkError
from scripts.helpers.protocol.run import Run
from scripts.helpers.sinks.choice import opened
from scripts.helpers.sinks.outputs import Output
from scripts.helpers.sinks.sink import Sink

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


class Publication:
    """The output of one run, from staged to seen.

    Parameters
    ----------
    run
        The run, begun.
    spark, s3_client
        What output of earlier runs is reached by.

    Attributes
    ----------
    staged
        What was staged, with its sink.
    is_tried
        Whether a commit was sent, of which only the head knows whether it took effect.
    """

    def __init__(self, run: Run | UnsavedRun, spark: SparkSession | None, s3_client: S3Client | None) -> None:
        self.run, self._spark, self._s3_client = run, spark, s3_client
        self.staged: list[tuple[Sink, Output]] = []
        self.is_tried = False

    def add(self, sink: Sink, output: Output) -> None:
        """Take up what was staged for one target."""
        self.staged.append((sink, output))

    def finish_earlier(self) -> None:
        """Publish what a run committed that died before its readers saw all of it.

        Raises
        ------
        UnpublishedError
            It cannot be published. It would be in nobody's sight if this run went on.
        """
        if isinstance(self.run, UnsavedRun):
            return
        for record in self.run.unpublished:
            output = Output.from_record(record)
            sink = opened(output, self._spark, self._s3_client)
            if sink is None:
                # Only the script knows how to log in there. Its first write to that target finishes it.
                logger.warning(
                    "event=publication_waits job=%s version=%d target=%s: the next write to it publishes this first",
                    self.run.job_id, output.version, output.target,
                )  # fmt: skip
                continue
            self._resume(sink, output, record)

    def finish(self, sink: Sink) -> None:
        """Publish what earlier runs committed for a target that could not be reached before it was given.

        Raises
        ------
        UnpublishedError
            It cannot be published.
        """
        if isinstance(self.run, UnsavedRun):
            return
        for record in self.run.unpublished:
            output = Output.from_record(record)
            if output.target == sink.name:
                self._resume(sink, output, record)

    def commit(self, metrics: Mapping[str, Any]) -> str:
        """Commit the run together with what is staged; return its outcome. Nothing is published by that."""
        # From here on it is not ours to drop: an answer may get lost.
        self.is_tried = True
        return self.run.commit(tuple(output.record() for _, output in self.staged), **metrics)

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
            staged = output.record()
            if staged in self.run.outputs:
                self._publish(sink, output, staged)
                self._sweep(sink, output)
            else:
                self._clear(sink.drop, output)
        # Of the attempt that won, where this one did not. Earlier output was published before, or waits for a script
        # that writes to its target.
        given = {sink.name: sink for sink, _ in self.staged}
        for record in self.run.unpublished:
            output = Output.from_record(record)
            winner = opened(output, self._spark, self._s3_client) or given.get(output.target)
            if winner is not None:
                self._publish(winner, output, record)

    def drop(self) -> None:
        """Delete what was staged, as the run ends without a commit. A failure is logged: nobody ever sees it."""
        if self.is_tried:
            return
        for sink, output in self.staged:
            self._clear(sink.drop, output)

    def _resume(self, sink: Sink, output: Output, record: Mapping[str, Any]) -> None:
        assert isinstance(self.run, Run)
        logger.warning(
            "event=publication_resumed job=%s version=%d target=%s", self.run.job_id, output.version, output.target
        )
        self._publish(sink, output, record)

    def _publish(self, sink: Sink, output: Output, record: Mapping[str, Any]) -> None:
        assert isinstance(self.run, Run)
        try:
            sink.publish(output)
        except StagedFilesLostError:
            # A person may have decided meanwhile that they go.
            if self.run.is_unpublished(record):
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
        self.run.published((record,))

    def _sweep(self, sink: Sink, output: Output) -> None:
        assert isinstance(self.run, Run)
        kept = [Output.from_record(record).folder for record in self.run.unpublished]
        self._clear(lambda output: sink.sweep(output, kept), output)

    def _clear(self, delete: Any, output: Output) -> None:
        """Delete what no reader sees. Where that fails the target is right all the same, and `doctor` tells of it."""
        try:
            delete(output)
        except TargetError as error:
            logger.warning("event=staging_left job=%s target=%s error=%s", self.run.job_id, output.target, error)
