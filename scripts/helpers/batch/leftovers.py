"""Find, and partly repair, what is at the targets of a job but does not match its committed versions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scripts.helpers._lazy import S3Client, SparkSession
from scripts.helpers.batch.publishing import Publication, ahead_of, lacking, newest_at, newest_outputs
from scripts.helpers.decisions.doctor import UNPUBLISHED, Finding, behind
from scripts.helpers.errors import InvalidValueError, StagedFilesLostError, TargetError, UnprovenError
from scripts.helpers.protocol.head import Head, LogEntry
from scripts.helpers.protocol.names import new_token
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.sinks.choice import is_sink_of, sink_of
from scripts.helpers.sinks.files import FileSink
from scripts.helpers.sinks.outputs import (
    attempt_of,
    batch_of,
    doubt,
    is_published_name,
    mark_of,
    version_of,
)
from scripts.helpers.sinks.sink import Sink

if TYPE_CHECKING:
    from scripts.helpers.watermarks import Watermarks

NAMED = 3
"""The number of files that a finding names; the rest are only counted."""


def examine_targets(
    watermarks: Watermarks,
    job_id: str,
    *,
    sinks: Sequence[Sink] = (),
    spark: SparkSession | None = None,
    s3_client: S3Client | None = None,
    repair: bool = False,
    agreed: Collection[str] | None = None,
) -> list[Finding]:
    """Compare the staged and published output of a job with its history.

    This examines the targets in the history and in `Head.at_targets`. It finds no other target of expired versions, and
    no output of paused and disabled runs. Findings: ``staged leftover``, ``unexplained files`` (of no version),
    ``retraction`` (output still to delete), ``staged files lost``, ``unproven record`` (altered); ``target ahead`` or
    ``target behind`` if a target has recorded other versions than the job; ``target not seen`` if it is out of reach.

    Parameters
    ----------
    sinks
        The sinks of targets that only the job's own script can reach, such as a `DatabaseSink`.
    spark, s3_client
        Used to reach other targets. Without `spark`, only those in S3 and in local directories can be reached.
    repair
        Delete staged leftovers that no attempt can commit any more, including those of earlier epochs. Use it only if
        no other copy of the table of watermarks has runs. Staged files of a run that saves nothing stay, because such a
        run takes no lease and may be active. Files that readers see are never deleted.
    agreed
        The `detail` texts of the findings that may be repaired. None: all of them.
    """
    head = watermarks.lookups.head(job_id)
    if head is None:
        return []
    history = watermarks.lookups.history_of(head)
    findings = [_retraction(one) for one in head.retracting if not doubt(one, head.last_versions)]
    findings += _unproven(head)
    waiting = [output for output in head.unpublished if not doubt(output, head.last_versions)]
    for target, output in {**{one.target: one for one in head.at_targets}, **newest_outputs(history)}.items():
        try:
            sink = sink_of(output, sinks, spark, s3_client)
            if sink is None:
                raise InvalidValueError("only the job's script gets there: examine_targets(…, sinks=[its sink])")
            looked = _Look(watermarks, head, history, sink, output)
            findings += looked.recorded()
            findings += looked.waiting([one for one in waiting if is_sink_of(sink, one)])
            findings += looked.staged(repair, agreed)
            if isinstance(sink, FileSink):
                findings += looked.seen(sink)
        except (InvalidValueError, TargetError) as error:
            findings.append(Finding("target not seen", f"{target}: {error}", "Look from where it can be reached."))
    # Remove duplicates: outputs in the history may name one table as `repairs` and as `public.repairs`.
    return list(dict.fromkeys(findings))


def publish_waiting(
    watermarks: Watermarks,
    job_id: str,
    *,
    sinks: Sequence[Sink] = (),
    spark: SparkSession | None = None,
    s3_client: S3Client | None = None,
) -> list[Finding]:
    """Publish the committed batches of a job that wait in staging, at each target in the order of their versions.

    A run does the same when it begins, and when it writes to a target that only its script reaches. This reads no
    source, plans nothing and commits nothing. Return one finding for each batch: `repaired` is True if the batch was
    published, otherwise `remedy` says why not.

    Parameters
    ----------
    sinks
        The sinks of targets that only the job's own script can reach, such as a `DatabaseSink`.
    spark, s3_client
        Used to reach other targets. Without `spark`, only those in S3 and in local directories can be reached.

    Raises
    ------
    RunInProgressError
        A run has the job, and publishes what waits at the targets that it reaches. Nothing was changed.
    """
    head = watermarks.lookups.head(job_id)
    if head is None or not head.unpublished:
        return []
    # Begin a run, so that no other run is active. Another run would store, with its plan, its older list of waiting
    # batches. Then that run and the next one would look for staged files that are gone. (To publish a batch twice at
    # once does no harm.)
    with watermarks.begin(job_id, f"publish-{new_token()}") as run:
        publication = Publication(run, spark, s3_client, watermarks.clock)
        found = []
        for output, error in publication.publish_waiting(sinks):
            why = "" if error is None else str(error.__cause__ or error)
            if isinstance(error, InvalidValueError):
                why += f" Run the job, or call publish_waiting(watermarks, {job_id!r}, sinks=[its sink], spark=spark)."
            what = f"version {output.version} for {output.target}"
            found.append(Finding(UNPUBLISHED, what, why, repaired=error is None))
        run.abort(is_run=False)
    return found


def forget_target(watermarks: Watermarks, job_id: str, target: str) -> None:
    """Forget what was published to a target that was emptied or deleted on purpose.

    Afterwards, runs and the doctor do not report those batches as missing. They still check batches published later.

    Raises
    ------
    InvalidValueError
        The job has published nothing to that target. Nothing was changed.
    RunInProgressError
        A run has the job. Nothing was changed.
    """
    head = watermarks.latest(job_id)
    if head.forgotten(target) == head:
        known = ", ".join(one.target for one in head.at_targets) or "none"
        raise InvalidValueError(
            f"Job {job_id!r} has no published batch at {target!r} that could be missing. Its targets: {known}."
        )
    # Begin a run, so that no other run is active: another run's next write of the head would restore the old entry.
    with watermarks.begin(job_id, f"forget-{new_token()}") as run:
        run.forget(target)
        run.abort(is_run=False)


def _unproven(head: Head) -> Iterator[Finding]:
    """Find records of the head whose own fields show that they do not belong to its job."""
    records: list[Output | Retraction] = [*head.unpublished, *head.retracting]
    for record in records:
        why = doubt(record, head.last_versions)
        if why is not None:
            yield Finding(
                "unproven record",
                f"{record.target}: {why}",
                "Nothing is published or deleted for it. Somebody altered the item: restore it from a backup, and look "
                "who may write to this job's items.",
            )


@dataclass(frozen=True)
class _Look:
    """One target, and the head and history of the job that writes there."""

    watermarks: Watermarks
    head: Head
    history: Sequence[LogEntry]
    sink: Sink
    output: Output

    def recorded(self) -> Iterator[Finding]:
        """Find versions that the target recorded and the job lacks, and published versions that the target lost."""
        newest = newest_at(self.sink, self.head)
        recorded = self.sink.recorded(mark_of(self.head.job_id), newest=newest)
        for first, last in ahead_of(recorded.epochs, self.head, self.sink).values():
            yield Finding(
                "target ahead",
                f"{self.sink.name} has recorded versions {first} to {last}, which the table does not know",
                "The table was restored from a backup, or lost. No run writes there until it is said what becomes of "
                "them: the doctor with --after-restore, and --retract or --keep.",
            )
        lost = lacking(newest, recorded.held, self.head)
        if lost is not None:
            output, version = lost
            detail = f"{self.sink.name} does not have version {output.version}, which was published"
            yield behind(self.head.job_id, version, output, detail)

    def waiting(self, outputs: Sequence[Output]) -> Iterator[Finding]:
        """Find committed output that no run can publish, because it is gone or is not what was staged."""
        for output in outputs:
            try:
                self.sink.check_staged(output)
            except UnprovenError as error:
                yield Finding("unproven record", str(error), "Nothing is published for it.")
            except StagedFilesLostError as error:
                yield Finding("staged files lost", str(error), "No run can publish it. Do what the error says.")

    def staged(self, repair: bool, agreed: Collection[str] | None) -> Iterator[Finding]:
        """Find staged files that will never be published."""
        waiting = {output.folder for output in self.head.unpublished}
        # Compute the hash of the job's id in folder names: the hash in a stored record may have been altered.
        found = set(self.sink.staged(mark_of(self.head.job_id)))
        # Keep staged output of the next version, which an active run may commit. No run commits other versions.
        at_work = self.head.next_batch.version if self.head.claim is not None else 0
        leftovers = sorted(each for each in found - waiting if version_of(each, self.head.epoch) != at_work)
        # Delete only if the head has not changed: a commit after it was read may name one of these folders.
        repair = repair and self.watermarks.latest(self.head.job_id).identity == self.head.identity
        for folder in leftovers:
            what = f"{folder} for {self.sink.name}: {self.sink.left_at(folder)}"
            attempt = attempt_of(folder)
            if attempt is not None and attempt.is_of_unsaved_run:
                remedy = "A run that saves nothing has staged it. When that run has ended, delete it by hand."
                yield Finding("staged leftover", what, remedy)
                continue
            is_agreed = agreed is None or what in agreed
            if repair and is_agreed:
                self.sink.drop(replace(self.output, folder=folder))
            yield Finding(
                "staged leftover",
                what,
                "Nobody sees it. The doctor with repair deletes it; so does the next run that publishes there, unless "
                "it is of an earlier epoch.",
                repaired=repair and is_agreed,
                can_repair=True,
            )

    def seen(self, sink: FileSink) -> Iterator[Finding]:
        """Find files that readers see, but that no version of the job has published."""
        unexplained = self._unknown(sink)
        if unexplained:
            more = f" and {len(unexplained) - NAMED:,} more" if len(unexplained) > NAMED else ""
            yield Finding(
                "unexplained files",
                f"{', '.join(sorted(unexplained)[:NAMED])}{more} at {sink.name}",
                "No version of the job has written them, and readers see them. Find out whose they are, and move what "
                "is in the wrong place.",
            )

    def _unknown(self, sink: FileSink) -> list[str]:
        """Return the names of visible files that no version of the job has published."""
        explained = _Explained.by(self.head, self.history)
        unexplained: list[str] = []
        for name in sink.visible():
            if any(is_published_name(name, one) for one in self.head.retracting):
                continue
            batch = batch_of(name)
            if batch is not None:
                job, epoch, version = batch
                # Skip the published files of other jobs.
                if job == mark_of(self.head.job_id) and explained.lacks_output(epoch, version):
                    unexplained.append(name)
            elif not self.output.beside_others:
                unexplained.append(name)
        return unexplained


@dataclass(frozen=True)
class _Explained:
    """The batches that a job has published according to its history.

    Attributes
    ----------
    epochs
        The job's current epoch, and the epochs of outputs in the history. Files of other epochs are not reported,
        because after a restore it is unknown what was committed after the backup.
    oldest
        The oldest version of the history. Files of older versions are not reported.
    outputs
        The epoch and version of each batch that a version has published.
    """

    epochs: set[str]
    oldest: int
    outputs: set[tuple[str, int]]

    @classmethod
    def by(cls, head: Head, history: Sequence[LogEntry]) -> _Explained:
        """Collect the epochs, the oldest version and the published batches from a job's head and its history."""
        outputs = {(output.epoch, output.version) for entry in history for output in entry.change.outputs}
        return cls(
            epochs={head.epoch, *(epoch for epoch, _ in outputs)},
            oldest=min(entry.version for entry in history),
            outputs=outputs,
        )

    def lacks_output(self, epoch: str, version: int) -> bool:
        """Return whether the history reaches back to a batch, but no entry names output of that batch.

        False for output of a run that saves nothing: such a run has an epoch of its own, which is not in `epochs`.
        """
        return epoch in self.epochs and version >= self.oldest and (epoch, version) not in self.outputs


def _retraction(retraction: Retraction) -> Finding:
    return Finding(
        "retraction",
        f"output of versions {retraction.first} to {retraction.last} at {retraction.target}",
        "Each run deletes it before it writes there, until a day after it was decided. Run the job.",
    )
