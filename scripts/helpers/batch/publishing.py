"""`Publication`: publish the rows that a batch staged for its targets, so that readers see them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from scripts.helpers._lazy import S3Client, SparkSession
from scripts.helpers.batch.modes import UnsavedRun
from scripts.helpers.display.units import printable
from scripts.helpers.errors import (
    InvalidValueError,
    RowsMissingError,
    StagedFilesLostError,
    StaleError,
    StoreUnavailableError,
    TargetAheadError,
    TargetError,
    UnprovenError,
    UnpublishedError,
    WatermarkError,
)
from scripts.helpers.protocol.head import Head, LogEntry, Plan, Seen
from scripts.helpers.protocol.names import is_epoch, served_by, split_name
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.protocol.races import Lost
from scripts.helpers.protocol.run import Run
from scripts.helpers.sinks.choice import is_sink_of, opened, sink_of
from scripts.helpers.sinks.outputs import doubt, mark_of
from scripts.helpers.sinks.places import place_of_name
from scripts.helpers.sinks.sink import Sink, Witnessed

if TYPE_CHECKING:
    from scripts.helpers.watermarks import Watermarks

logger = logging.getLogger(__name__)

# --- witness --------------------------------------------------------------------------------------
# Each target records the versions of a job that were published there. If it has recorded a version that the head does
# not know, the table of watermarks was restored, lost or mixed up. Without this check a run would load rows again under
# new batch ids, or the target would skip rows under batch ids that it has recorded.


class Witness:
    """Compares what a target has recorded with the head ("asks" the target), once in a run, before any write to it."""

    def __init__(self, run: Run | UnsavedRun, spark: SparkSession | None, s3_client: S3Client | None) -> None:
        self._run, self._spark, self._s3_client = run, spark, s3_client
        self._asked: dict[str, Witnessed] = {}
        self._lost: dict[str, tuple[Output, int]] = {}

    def ask_last(self) -> None:
        """Compare what the targets of the last commit have recorded with the head; see `ask_if_reachable`."""
        last = self._run.head.last if isinstance(self._run, Run) else None
        for output in last.outputs if last is not None else ():
            self.ask_if_reachable(output)

    def ask_if_reachable(self, output: Output | Retraction, sink: Sink | None = None) -> None:
        """Call `ask` for the target of `output`, with `sink` or one opened here. If it is unreachable, only log why."""
        try:
            sink = sink or opened(output, self._spark, self._s3_client)
            if sink is not None:
                self.ask(sink)
        except (TargetAheadError, StaleError, StoreUnavailableError):
            raise
        except WatermarkError as error:
            # Raise nothing yet: a write to this target compares it again, through the script's sink, and raises then.
            logger.info("event=target_not_asked job=%s target=%s error=%s", self._run.job_id, output.target, error)

    def ask(self, sink: Sink) -> None:
        """Compare what a target has recorded with the head.

        Raises
        ------
        TargetAheadError
            The target has recorded a version that the head does not know.
        FencedError
            Another run took over, and may have committed that version.
        """
        run, place = self._run, place_of_name(sink.name)
        if isinstance(run, UnsavedRun) or place in self._asked:
            return
        newest = newest_at(sink, run.head)
        found = sink.recorded(mark_of(run.job_id), others=run.head.version == 0, newest=newest)
        ahead = ahead_of(found.epochs, run.head, sink)
        if ahead:
            run.check()
            raise _ahead(run.job_id, sink, ahead)
        lost = lacking(newest, found.held, run.head)
        if lost is not None:
            self._lost[place] = lost
        # Do not warn for a slice, or a job with a namespace (`job@@namespace`): its siblings may have written there.
        is_whole = served_by(run.job_id) is None and split_name(run.job_id)[1] is None
        if found.others and not found.epochs and run.head.version == 0 and is_whole:
            logger.warning(
                "event=target_shared job=%s target=%s others=%s: this job writes to the target for the first time, but "
                "other jobs wrote to it before. If this job was renamed, it reads everything again: stop it, and set "
                "its watermark. `others` has the first digits of the SHA-256 of the other jobs' names",
                run.job_id, sink.name, ",".join(found.others),
            )  # fmt: skip
        self._asked[place] = found

    def note_loss(self, sink: Sink) -> None:
        """Log, once, that a target lacks a version that was published there, and store that in the head.

        Call this before a batch with rows is published or deleted at the target: the target records that version, and
        then no longer shows that earlier versions are missing. The head keeps the loss even if this run dies.
        """
        place = place_of_name(sink.name)
        if place in self._lost and isinstance(self._run, Run):
            self._run.lacks(*self._lost[place])
            warn_of_loss(self._run.job_id, sink, *self._lost.pop(place))

    def recorded(self, sink: Sink) -> Witnessed | None:
        """Return what a target had recorded when this run asked it; None if this run has not asked it."""
        return self._asked.get(place_of_name(sink.name))


def ahead_of(recorded: Mapping[str, int], head: Head, sink: Sink) -> dict[str, tuple[int, int]]:
    """Return, by epoch, the first and last of the versions that a target has recorded and the head does not know."""
    known = head.last_versions_at(sink.name)
    return {
        epoch: (known.get(epoch, 0) + 1, last)
        for epoch, last in recorded.items()
        if is_epoch(epoch) and last > known.get(epoch, 0)
    }


def newest_at(sink: Sink, head: Head) -> Output | None:
    """Return the last output published to a target; None if there is none, or if it is no longer known."""
    # A table may have had several names, so take the latest output under any of them.
    return next((one for one in reversed(head.at_targets) if is_sink_of(sink, one)), None)


def lacking(output: Output | None, held: Mapping[str, int], head: Head) -> tuple[Output, int] | None:
    """Return None if a target has the published `output`; otherwise `output`, and the target's last version or 0.

    `held` has the last version of each epoch that the target has.
    """
    if output is None or held.get(output.epoch, 0) >= output.version:
        return None
    version = max((last for last in held.values() if last < output.version), default=0)
    # Skip versions that were taken back: a restored copy of the target may still have them.
    for first, last in sorted(head.retracted, reverse=True):
        version = first - 1 if first <= version <= last else version
    return output, version


def warn_of_loss(job_id: str, sink: Sink, output: Output, version: int) -> None:
    """Log that a target lacks an output and has only the versions up to `version`; see `lacking`."""
    # Import this here, because hardly any run needs the doctor.
    from scripts.helpers.decisions.doctor import way_forward

    logger.warning(
        "event=target_behind job=%s target=%s version=%d: the target lacks this version, although it was published. "
        "The run adds only new rows. If the target was emptied or rolled back by mistake, %s",
        job_id, sink.name, output.version, way_forward(job_id, version, output),
    )  # fmt: skip


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
    """Start a new epoch of a job whose table was restored or lost, and decide about versions that only targets know.

    The decision covers the targets in the history and those of `sinks`. Any other target is checked when a run writes
    there. If it has recorded unknown versions, that run fails until this is called with its sink.

    Parameters
    ----------
    sinks
        The sinks of targets that the history does not name, or that only the job's own script can reach.
    retract
        True: the next run deletes the unknown batches from the target and reads their rows again. False: they stay,
        and their rows are loaded again unless the watermark is set past them.
    back_to
        The version whose watermarks the next run reads from, or 0 for the beginning; output of later versions is
        deleted. None keeps the present watermarks, if targets have the rows of the newest versions. The number of the
        present version also keeps them, but without this check: rows that a target lacks are then not loaded again.
    why, who, expected
        As for `Watermarks.rewind`.

    Raises
    ------
    TargetAheadError
        A target has recorded unknown batches, and `retract` is None. Nothing is changed.
    RowsMissingError
        A target lacks the rows of the newest versions, and `back_to` is None. Nothing is changed.
    """
    head = watermarks.latest(job_id)
    history = watermarks.lookups.history_of(head) if head.version else ()
    seen, taken = answers_of(head, history, list(sinks), retract, back_to, watermarks.clock, spark, s3_client)
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
    """Ask the sinks in `asked` what they have recorded, after adding the sinks of the history's targets to `asked`.

    Return the recorded versions that the head does not know, and, if `retract`, the retractions that delete them; see
    `after_restore`.
    """
    job_id, newest = head.job_id, newest_outputs(history).values()
    for output in newest:
        found = sink_of(output, asked, spark, s3_client)
        if found is None:
            logger.warning("event=target_not_asked job=%s target=%s: the next write checks it", job_id, output.target)
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
                # Take the batch column from the history: a sink made from an operator's option does not know it.
                column = next((one.batch_column for one in newest if is_sink_of(sink, one)), None)
                retractions.append(replace(made, batch_column=made.batch_column or column or ""))
    return seen, tuple(retractions)


def _check_rows(head: Head, history: Sequence[LogEntry], sinks: Sequence[Sink], now: datetime) -> None:
    """Raise RowsMissingError if, after a restore, a target lacks rows of the newest versions in the restored history.

    A rewind or reset that came after the table's backup may have deleted the rows; the restored head does not know it.
    Both take back all versions above a certain one, so if the target has the newest version, none was taken back.
    """
    # Stop at a version without watermarks, such as a reset: nothing before it counts as loaded.
    entries = takewhile(lambda entry: entry.watermarks, history)
    claimed = [output for entry in entries for output in entry.change.outputs if not head.has_retracted(entry.version)]
    missing = [(sink.name, versions) for sink in sinks if (versions := _missing_versions(sink, claimed, now))]
    if missing:
        target, versions = min(missing, key=lambda found: found[1][-1])
        back_to = versions[-1] - 1 if versions[-1] > history[-1].version else 0
        raise RowsMissingError(head.job_id, target, (versions[-1], versions[0]), present=head.version, back_to=back_to)


def _missing_versions(sink: Sink, outputs: Sequence[Output], now: datetime) -> list[int]:
    """Return the versions, newest first, that are newer than all versions of which the target has rows."""
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
    """Return the newest output for each target, by the name of the target."""
    return {output.target: output for entry in reversed(history) for output in entry.change.outputs}


def _ahead(job_id: str, sink: Sink, ahead: Mapping[str, tuple[int, int]]) -> TargetAheadError:
    return TargetAheadError(job_id, sink.name, ahead, by_script=sink.needs_script)


# --- publishing -----------------------------------------------------------------------------------

T = TypeVar("T", bound=Output | Retraction)

SWEEP_EVERY = 10
"""While no run fails, only one in so many versions sweeps, because a sweep costs a listing. It deletes earlier records
of the job, and files that a suspended attempt staged after another attempt had published."""
COPY_DURATION = timedelta(days=1)
"""Runs repeat a deletion for this long, because a copy within S3 may finish after the files of its batch were deleted,
and put one back. One request takes minutes; a copy in many parts can last as long as its process is suspended."""


class Publication:
    """Commits a run with its staged output, and publishes output, also that of earlier runs.

    Parameters
    ----------
    run
        The run, after its begin.
    spark, s3_client
        Used to open the sinks of earlier runs' output.
    clock
        A function that returns the time as an aware datetime.

    Attributes
    ----------
    witness
        Compares what targets have recorded of the job with the head.
    staged
        Each staged output with its sink.
    is_tried
        Whether a commit was sent. From then on only the head shows whether it took effect.
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
        """Add the output that was staged for one target."""
        self.staged.append((sink, output))

    def finish_earlier(self) -> None:
        """Delete output that operators took back, and publish what an earlier run committed before it died.

        Raises
        ------
        TargetError
            Rows that this run would load again cannot be deleted from a target.
        UnpublishedError
            Committed output cannot be published. This run stops, so that the missing rows are noticed.
        """
        for record in self._proven(self.due):
            sink = opened(record, self._spark, self._s3_client)
            # If only the script's sink can reach the target, leave the record to `finish`, at the script's first write.
            if sink is not None:
                self._finish(sink, record)
            elif isinstance(record, Retraction):
                logger.warning(
                    "event=retraction_waits job=%s versions=%d-%d target=%s: the next write retracts them first",
                    self.run.job_id, record.first, record.last, printable(record.target),
                )  # fmt: skip
            else:
                logger.warning(
                    "event=publication_waits job=%s version=%d target=%s: the next write publishes this version first",
                    self.run.job_id, record.version, printable(record.target),
                )  # fmt: skip
        self.witness.ask_last()

    def finish(self, sink: Sink) -> None:
        """Delete and publish what is due at the target of a sink that the script has given.

        Raises
        ------
        TargetError, UnpublishedError
            Output cannot be deleted, or cannot be published.
        """
        for record in self._proven(self.due):
            # Skip a retraction if its target can be opened without the script's sink: `finish_earlier` has done it.
            # Publish all earlier output now: a table that has recorded this run's batch accepts no earlier batch.
            is_new = isinstance(record, Output) or opened(record, self._spark, self._s3_client) is None
            if is_new and is_sink_of(sink, record):
                self._finish(sink, record)

    def publish_waiting(self, sinks: Sequence[Sink]) -> Iterator[tuple[Output, WatermarkError | None]]:
        """Delete output that operators took back; publish waiting output, and yield each waiting output with its error.

        After a failure at a target, nothing later is tried there: a table that has recorded a version accepts no
        earlier version.
        """
        assert isinstance(self.run, Run)
        failed: list[tuple[Output | Retraction, WatermarkError]] = []
        for record in self.due:
            try:
                # `_proven` yields nothing for a record of another job: the doctor reports it, and no run publishes it.
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
        """Commit the run with its staged output, and `plan` if not frozen yet; publish nothing. Return the outcome."""
        # From here on, `drop` keeps the staged output: the commit may take effect even if its answer is lost.
        self.is_tried = True
        return self.run.commit(tuple(output for _, output in self.staged), plan, **metrics)

    def publish(self) -> None:
        """Publish what the run committed; call this after the commit.

        Raises
        ------
        UnpublishedError
            The batch is committed and cannot be published now.
        """
        if isinstance(self.run, UnsavedRun):
            while self.staged:
                sink, output = self.staged[0]
                sink.publish(output)
                sink.clear(output)
                del self.staged[0]
            return
        for sink, output in self.staged:
            if output in self.run.outputs:
                self._publish(sink, output)
                self._sweep(sink, output)
            else:
                self._clear(sink.drop, output)
        # Publish all of `unpublished`: output of another attempt, if that won the commit, and of earlier versions. If
        # this run cannot open the target, the output waits for a script that writes there.
        own = [output for _, output in self.staged]
        # Skip `own`, which the loop above published. Own output that an operator took back may still be listed here.
        self._publish_all([output for output in self.run.unpublished if output not in own])

    def publish_again(self) -> None:
        """Publish what an earlier call of `publish` could not, unless another run has published it meanwhile."""
        if isinstance(self.run, UnsavedRun):
            self.publish()
        else:
            self._publish_all([output for output in self.run.unpublished if self.run.is_unpublished(output)])

    def _publish_all(self, waiting: Sequence[Output]) -> None:
        for output in self._proven(waiting):
            given = (sink for sink, _ in self.staged if is_sink_of(sink, output))
            winner = opened(output, self._spark, self._s3_client) or next(given, None)
            if winner is not None:
                self._publish(winner, output)

    def drop(self) -> None:
        """Delete the staged output of a run without a commit. Only log a failed deletion: no reader sees the output."""
        if self.is_tried:
            return
        for sink, output in self.staged:
            self._clear(sink.drop, output)

    @property
    def due(self) -> Sequence[Output | Retraction]:
        """The output to delete, which operators took back, then the output to publish, as the run's head lists them."""
        return [*self.run.retracting, *self.run.unpublished] if isinstance(self.run, Run) else []

    def _proven(self, records: Sequence[T]) -> Iterator[T]:
        """Yield the outputs and retractions that, by epoch and version, this job can have made. Log and skip others."""
        for record in records:
            assert isinstance(self.run, Run)
            why = doubt(record, self.run.head.last_versions)
            if why is not None:
                self._warn_of(record, why)
            else:
                yield record

    def _warn_of(self, record: Output | Retraction, why: str) -> None:
        logger.warning(
            "event=unproven_record job=%s target=%s: the run publishes and deletes nothing for this record, because "
            "%s. Run watermarks doctor", record.job_id, printable(record.target), why,
        )  # fmt: skip

    def _retract(self, sink: Sink, retraction: Retraction) -> None:
        assert isinstance(self.run, Run)
        self.witness.ask_if_reachable(retraction, sink)
        self.witness.note_loss(sink)
        take_back(sink, retraction)
        if self._clock() - retraction.since > COPY_DURATION:
            self.run.taken_back((retraction,))

    def _resume(self, sink: Sink, output: Output) -> None:
        assert isinstance(self.run, Run)
        logger.warning(
            "event=publication_resumed job=%s version=%d target=%s",
            self.run.job_id, output.version, printable(output.target),
        )  # fmt: skip
        # Ask the target before publishing: once it has this version, it no longer shows that it lacks earlier ones.
        self.witness.ask_if_reachable(output, sink)
        self._publish(sink, output)
        self._sweep(sink, output)

    def _publish(self, sink: Sink, output: Output) -> None:
        assert isinstance(self.run, Run)
        try:
            if output.has_rows:
                self.witness.note_loss(sink)
            sink.publish(output)
        except UnprovenError as error:
            self._warn_of(output, error.detail)
            return
        except StagedFilesLostError:
            # Raise only if the head still lists the output. If not, an operator took it back and deleted its files.
            if self.run.is_unpublished(output):
                raise
            logger.warning(
                "event=output_gone job=%s version=%d: an operator retracted it", self.run.job_id, output.version
            )
            return
        except WatermarkError as error:
            raise UnpublishedError(self.run.job_id, output.version, output.target) from error
        logger.info(
            "event=published job=%s version=%d files=%d target=%s",
            self.run.job_id, output.version, output.files, output.target,
        )  # fmt: skip
        self._clear(sink.clear, output)
        self.run.published((output,))

    def _sweep(self, sink: Sink, output: Output) -> None:
        assert isinstance(self.run, Run)
        recorded, last = self.witness.recorded(sink), self.run.head.last
        before = recorded.epochs.get(output.epoch, 0) if recorded is not None else 0
        # Skip most sweeps if no run failed since the last version: then only suspended processes can have left files.
        if last is not None and last.failed == 0 and output.version == before + 1 and output.version % SWEEP_EVERY:
            return
        kept = [output.folder for output in self.run.unpublished]
        self._clear(lambda output: sink.sweep(output, kept, recorded), output)

    def _clear(self, delete: Any, output: Output) -> None:
        """Delete staged files. Only log a failure: readers do not see these files, and `doctor` reports them."""
        try:
            delete(output)
        except TargetError as error:
            logger.warning("event=staging_left job=%s target=%s error=%s", self.run.job_id, output.target, error)


def take_back(sink: Sink, retraction: Retraction) -> int:
    """Delete the output that a retraction names; return how many published files or rows of its target were deleted.

    Raises
    ------
    TargetError
        The output cannot be deleted.
    """
    try:
        count = sink.retract(retraction)
    except WatermarkError as error:
        raise TargetError(
            retraction.target, reason="retraction",
            job_id=retraction.job_id, first=retraction.first, last=retraction.last,
        ) from error  # fmt: skip
    if count:
        logger.warning(
            "event=retracted job=%s versions=%d-%d count=%d target=%s",
            retraction.job_id, retraction.first, retraction.last, count, printable(retraction.target),
        )  # fmt: skip
    return count


def take_back_now(watermarks: Watermarks, job_id: str, sink: Sink, retraction: Retraction) -> int | None:
    """Call `take_back` outside a run. Return None if it must be left to a run that has begun meanwhile."""
    head = watermarks.latest(job_id)
    newest = newest_at(sink, head)
    lost = lacking(newest, sink.recorded(mark_of(job_id), newest=newest).held, head)
    if lost is not None:
        # First store the target's lost version: `take_back` records a newer version at the target, hiding the loss.
        noted = head.published(lost[:1], lost[1])
        if head.claim is not None or isinstance(watermarks.store.swap(head, noted), Lost):
            return None
        warn_of_loss(job_id, sink, *lost)
    return take_back(sink, retraction)
