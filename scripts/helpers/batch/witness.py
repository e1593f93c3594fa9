"""What targets have recorded of a job: they are witnesses where its table of watermarks was restored, lost or mixed up.

A version that a target has recorded was committed. If the head does not know it, the head is not the one that it was:
rows would come a second time under new batch ids, or be skipped under ids that the target knows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING

from scripts.helpers._lazy import S3Client, SparkSession
from scripts.helpers.batch.unsaved_run import UnsavedRun
from scripts.helpers.errors import RowsMissingError, TargetAheadError, WatermarkError
from scripts.helpers.protocol.head import Head, LogEntry, Seen
from scripts.helpers.protocol.names import is_epoch, served_by, split_name
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.protocol.run import Run
from scripts.helpers.sinks.choice import is_sink_of, opened, sink_of
from scripts.helpers.sinks.outputs import mark_of
from scripts.helpers.sinks.places import place_of_name
from scripts.helpers.sinks.sink import Sink, Witnessed

if TYPE_CHECKING:
    from scripts.helpers.watermarks import Watermarks

logger = logging.getLogger(__name__)


class Witness:
    """Asks each target of a run once, before the run writes there."""

    def __init__(self, run: Run | UnsavedRun, spark: SparkSession | None, s3_client: S3Client | None) -> None:
        self._run, self._spark, self._s3_client = run, spark, s3_client
        self._asked: dict[str, Witnessed] = {}
        self._lost: dict[str, tuple[Output, int]] = {}

    def ask_last(self) -> None:
        """Ask the targets of the last commit; see `ask_if_reached`."""
        last = self._run.head.last if isinstance(self._run, Run) else None
        for output in last.outputs if last is not None else ():
            self.ask_if_reached(output)

    def ask_if_reached(self, output: Output, sink: Sink | None = None) -> None:
        """Ask the target of an output, if it can be reached by its sink, or else without the script; see `ask`."""
        try:
            sink = sink or opened(output, self._spark, self._s3_client)
            if sink is not None:
                self.ask(sink)
        except TargetAheadError:
            raise
        except WatermarkError as error:
            # The write asks again, with what the script gives it, and fails if it is still so.
            logger.info("event=target_not_asked job=%s target=%s error=%s", self._run.job_id, output.target, error)

    def ask(self, sink: Sink) -> None:
        """Compare what a target has recorded with the head.

        Raises
        ------
        TargetAheadError
            It has recorded a version that the head does not know.
        FencedError
            It is one of an attempt that has taken over.
        """
        run, place = self._run, place_of_name(sink.name)
        if isinstance(run, UnsavedRun) or place in self._asked:
            return
        found = sink.recorded(mark_of(run.job_id), others=run.head.version == 0)
        ahead = ahead_of(found.epochs, run.head, sink)
        if ahead:
            run.check()
            raise _ahead(run.job_id, sink, ahead)
        lost = lacking(sink, found.held, run.head)
        if lost is not None:
            self._lost[place] = lost
        # Each slice and each namespace of a job has a first run, beside those of the others.
        is_whole = served_by(run.job_id) is None and split_name(run.job_id)[1] is None
        if found.others and not found.epochs and run.head.version == 0 and is_whole:
            logger.warning(
                "event=target_shared job=%s target=%s others=%s: this job writes there for the first time, and other "
                "jobs have before. If it was renamed, it reads everything again: stop it, and set its watermark. The "
                "others are shown by the first digits of the SHA-256 of their names",
                run.job_id, sink.name, ",".join(found.others),
            )  # fmt: skip
        self._asked[place] = found

    def warn_if_behind(self, sink: Sink) -> int | None:
        """Log, once, that a target lacked what was published there; return the last version that it had.

        To be called before a batch with rows is published there: it hides that the target lacks earlier ones. None if
        the target lacked nothing, or was not asked.
        """
        output, version = self._lost.pop(place_of_name(sink.name), (None, None))
        if output is not None and version is not None:
            # Here, as hardly any run needs the doctor.
            from scripts.helpers.decisions.doctor import way_forward

            logger.warning(
                "event=target_behind job=%s target=%s version=%d: the target does not have that version, which was "
                "published. The run adds only what is new. If it was emptied or rolled back by mistake, %s",
                self._run.job_id, sink.name, output.version, way_forward(self._run.job_id, version, output),
            )  # fmt: skip
        return version

    def recorded(self, sink: Sink) -> Witnessed | None:
        """Return what a target had recorded when it was asked; None if it was not."""
        return self._asked.get(place_of_name(sink.name))


def ahead_of(recorded: Mapping[str, int], head: Head, sink: Sink) -> dict[str, tuple[int, int]]:
    """Return the first and the last version that a target has recorded and the head does not know, by epoch."""
    known = head.last_versions_at(sink.name)
    return {
        epoch: (known.get(epoch, 0) + 1, last)
        for epoch, last in recorded.items()
        if is_epoch(epoch) and last > known.get(epoch, 0)
    }


def lacking(sink: Sink, held: Mapping[str, int], head: Head) -> tuple[Output, int] | None:
    """Return the output that a target lacks of what was published there last, and the last version that it has.

    None if it lacks nothing; 0 if it has no version.
    """
    # A table may have had another name before: the name that was published to last counts.
    output = next((one for one in reversed(head.at_targets) if is_sink_of(sink, one)), None)
    if output is None or held.get(output.epoch, 0) >= output.version:
        return None
    return output, max((last for last in held.values() if last < output.version), default=0)


def after_restore(
    watermarks: Watermarks,
    job_id: str,
    *,
    sinks: Sequence[Sink] = (),
    retract: bool | None = None,
    back_to: int | None = None,
    why: str,
    who: str | None = None,
    expected: Head | None = None,
    spark: SparkSession | None = None,
    s3_client: S3Client | None = None,
) -> Head:
    """Start a new epoch of a job whose table was restored or lost, and settle what targets have recorded since.

    Targets of the history are asked, and `sinks`, and the answer counts for these. Each other one is asked when a run
    writes there, and stops it until this is called for it.

    Parameters
    ----------
    sinks
        Those of targets that the history does not name, or that only the job's own script can reach.
    retract
        True: the next run takes those batches back at the target, and reads their rows again. False: they stay, and
        their rows come again, unless the watermark is set past them.
    back_to
        The version whose watermarks the next run reads from, and 0 for the beginning: what later ones have left is
        taken back. The present version leaves the watermarks, and no target is asked whether it has their rows.
    why, who, expected
        As of `Watermarks.rewind`.

    Raises
    ------
    TargetAheadError
        A target has recorded batches, and `retract` does not say what becomes of them. Nothing is changed.
    RowsMissingError
        A target has no rows of the newest versions that it should have, and `back_to` does not say which one the
        next run continues from. Nothing is changed.
    """
    head = watermarks.latest(job_id)
    history = watermarks.lookups.history_of(head) if head.version else ()
    clock = watermarks.clock
    seen, taken = answers_of(head, history, list(sinks), retract, back_to, clock, spark, s3_client)
    return watermarks.decisions.restore(job_id, seen, taken, back_to=back_to, why=why, who=who, expected=expected)


def answers_of(
    head: Head,
    history: Sequence[LogEntry],
    asked: list[Sink],
    retract: bool | None,
    back_to: int | None,
    clock: Callable[[], datetime],
    spark: SparkSession | None = None,
    s3_client: S3Client | None = None,
) -> tuple[Seen, tuple[Retraction, ...]]:
    """Ask the targets of a history and those in `asked`, to which these are added; see `after_restore`.

    Returns what they have recorded that the head does not know, and what of it is to be taken back.
    """
    job_id, newest = head.job_id, newest_outputs(history).values()
    for output in newest:
        found = sink_of(output, asked, spark, s3_client)
        if found is None:
            logger.warning("event=target_not_asked job=%s target=%s: the next write asks it", job_id, output.target)
        elif found not in asked:
            asked.append(found)
    if back_to is None:
        _check_rows(head, history, asked, clock())
    seen: dict[str, dict[str, int]] = {}
    retractions: list[Retraction] = []
    for sink in asked:
        ahead = ahead_of(sink.recorded(mark_of(job_id)).epochs, head, sink)
        if ahead and retract is None:
            raise _ahead(job_id, sink, ahead)
        seen[sink.name] = {epoch: last for epoch, (_, last) in ahead.items()}
        for epoch, (first, last) in ahead.items():
            if retract:
                made = sink.retraction(job_id, epoch, first, last, clock())
                # A target that a person names does not say which column it is.
                column = next((one.batch_column for one in newest if is_sink_of(sink, one)), None)
                retractions.append(replace(made, batch_column=made.batch_column or column or ""))
    return seen, tuple(retractions)


def _check_rows(head: Head, history: Sequence[LogEntry], sinks: Sequence[Sink], now: datetime) -> None:
    """Raise RowsMissingError if the newest versions that a target should have are not there.

    A decision after the backup may have taken them back, and the restored head does not know it. Decisions take back
    all versions above one, so where the newest one is there, all others are as they were.
    """
    # With no watermark nothing is counted as loaded, whatever was before.
    entries = takewhile(lambda entry: entry.watermarks, history)
    claimed = [output for entry in entries for output in entry.change.outputs if not head.has_retracted(entry.version)]
    missing = [(sink.name, versions) for sink in sinks if (versions := _missing_at(sink, claimed, now))]
    if missing:
        target, versions = min(missing, key=lambda found: found[1][-1])
        back_to = versions[-1] - 1 if versions[-1] > history[-1].version else 0
        raise RowsMissingError(head.job_id, target, (versions[-1], versions[0]), present=head.version, back_to=back_to)


def _missing_at(sink: Sink, outputs: Sequence[Output], now: datetime) -> list[int]:
    """Return the newest versions, up to one that is there, of which a target has nothing."""
    missing = []
    for output in outputs:
        if not (output.is_retractable and output.has_rows and is_sink_of(sink, output)):
            continue
        found = sink.retraction(output.job_id, output.epoch, output.version, output.version, now)
        if sink.to_retract(replace(found, job=output.job, batch_column=output.batch_column or "")):
            break
        missing.append(output.version)
    return missing


def newest_outputs(history: Sequence[LogEntry]) -> dict[str, Output]:
    """Return what the newest version that wrote to each target left there, by the name of the target."""
    return {output.target: output for entry in reversed(history) for output in entry.change.outputs}


def _ahead(job_id: str, sink: Sink, ahead: Mapping[str, tuple[int, int]]) -> TargetAheadError:
    return TargetAheadError(job_id, sink.name, ahead, by_script=sink.needs_script)
