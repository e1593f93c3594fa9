"""`LedgerSweep`: delete the files of a ledger (a job's record of files taken) that no job of the table refers to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import S3Client
from scripts.helpers.errors import StaleError
from scripts.helpers.files.segment_files import SegmentFiles
from scripts.helpers.files.upkeep import DEFAULT_AGE, LedgerFolder, Leftovers, left_over, listed_folder, names_in
from scripts.helpers.protocol.chunks import lazy_blobs
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.jobs import list_jobs
from scripts.helpers.protocol.lookups import STATES, places_of
from scripts.helpers.protocol.races import Written
from scripts.helpers.protocol.values import Spilled

if TYPE_CHECKING:
    from scripts.helpers.watermarks import Watermarks


@dataclass(frozen=True)
class References:
    """The files of ledgers that the jobs of a table refer to.

    Attributes
    ----------
    used_by
        For each file name, the jobs whose head, open plan or log refers to the file.
    heads
        The heads of the jobs that have one, by job id.
    """

    used_by: Mapping[str, frozenset[str]]
    heads: Mapping[str, Head]

    @property
    def oldest_run(self) -> Head | None:
        """The head of the job whose open run began first, even if its lease has ended; None if no run is open."""
        claimed = [head for head in self.heads.values() if head.claim is not None]
        return min(claimed, key=_start_of_run, default=None)


@dataclass(frozen=True)
class Sweep:
    """The unused files of a ledger's folder. `leftovers.held` are kept for the open run of the job `held_by`."""

    folder: LedgerFolder
    leftovers: Leftovers
    held_by: Head | None


class LedgerSweep:
    """Deletes files that nothing refers to from the folder of a job's ledger.

    Parameters
    ----------
    watermarks
        The table of the job.
    job_id
        The job. Other jobs of the table may share its folder.
    ledger_uri
        The folder of the job's ledger, as the job's code gives it. The stored state does not have it.
    s3_client
        A boto3 S3 client; by default one from boto3's default session.

    Raises
    ------
    UnknownJobError
        The table has no such job.
    """

    def __init__(
        self, watermarks: Watermarks, job_id: str, ledger_uri: str, *, s3_client: S3Client | None = None
    ) -> None:
        self._watermarks, self._job_id = watermarks, watermarks.latest(job_id).job_id
        self._files = SegmentFiles(ledger_uri, s3_client)
        self._chunks: dict[str, Any] = {}

    def to_sweep(self, older_than: timedelta = DEFAULT_AGE) -> Sweep:
        """Return the files in the ledger's folder that nothing refers to. Delete nothing.

        Jobs may share a folder, so this reads every job of the table: its head, its open plan, and every version in
        its log, because a rewind may go back to it.

        Raises
        ------
        AccessRefusedError
            The role may not ``Scan`` the table, or may not list the folder.
        CorruptItemError, NewerFormatError
            An item of a job cannot be read, so the files that it refers to are unknown. Nothing may be deleted then.
        InvalidValueError, LedgerError
            As for `left_over`.
        """
        # List the folder first: after the table, it could have newer files, which would seem unused (see `left_over`).
        folder = listed_folder(self._files)
        sweep, _ = self._to_sweep(folder, older_than)
        return sweep

    def sweep(self, shown: Sweep, older_than: timedelta = DEFAULT_AGE) -> int:
        """Delete the files that `to_sweep` returned, unless a job refers to them by now; return the number of files.

        Before the first delete, this raises the fence of each job that uses the folder, so that a process that read the
        job earlier can write nothing. A job with an active run keeps its fence, and the files that this run may use.

        Raises
        ------
        StaleError
            A job changed after it was read and before its fence was raised. Nothing was deleted.
        AccessRefusedError, CredentialsError, SourceUnavailableError, LedgerError
            The files cannot be deleted. Some may be gone by then; another `sweep` deletes the rest.
        """
        # Read the jobs again, because the operator may have confirmed an hour later. Do not list the folder again:
        # files that are newer than its first listing must not be deleted.
        again, references = self._to_sweep(shown.folder, older_than)
        agreed = set(shown.leftovers.files)
        going = [file for file in again.leftovers.files if file in agreed]
        if not going:
            return 0
        there = {file.name for file in shown.folder.files}
        users = {job for name, jobs in references.used_by.items() if name in there for job in jobs}
        now = self._watermarks.clock()
        for job_id in sorted(users | {self._job_id}):
            head = references.heads[job_id]
            if head.claim is not None and now < head.claim.lease_until:
                continue  # A higher fence would end this active run, which uses none of the files to delete (`going`).
            if not isinstance(self._watermarks.store.swap(head, head.fenced()), Written):
                raise StaleError(f"Job {job_id!r} changed during the sweep, and nothing was deleted. Sweep again.")
        return self._files.delete([file.name for file in going])

    # --- internals ------------------------------------------------------------------------------

    def _to_sweep(self, folder: LedgerFolder, older_than: timedelta) -> tuple[Sweep, References]:
        references = self.references()
        oldest = references.oldest_run
        since = _start_of_run(oldest) if oldest is not None else None
        leftovers = left_over(references.used_by.keys(), since, older_than, folder)
        return Sweep(folder, leftovers, oldest if leftovers.held else None), references

    def references(self) -> References:
        """Return the files that heads, open plans and log entries of all jobs refer to; errors as for `to_sweep`."""
        used_by: dict[str, set[str]] = {}
        heads: dict[str, Head] = {}
        for listed in list_jobs(self._watermarks.store).jobs:
            # Read each head again by itself: one that is damaged, or has a newer format, raises its error here.
            head = self._watermarks.lookups.head(listed.job_id)
            if head is None:
                continue  # Skip a job with only items of the original class or of the Job Runs API: they name no files.
            heads[head.job_id] = head
            for place, states in self._states(head):
                for context in states:
                    for name in names_in(self._read(head, place, states, context)):
                        used_by.setdefault(name, set()).add(head.job_id)
        return References({name: frozenset(jobs) for name, jobs in used_by.items()}, heads)

    def _states(self, head: Head) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the states of the head, its plan and each version: a name for the place, and the states by context."""
        yield from places_of(head)
        for entry in self._watermarks.lookups.history_of(head):
            yield STATES, entry.watermarks

    def _read(self, head: Head, place: str, contexts: Mapping[str, Any], context: str) -> Any:
        """Return a state with its chunks, and check it for damage. A chunk of several versions is read only once."""
        read, value = partial(self._spilled, head.job_id), contexts.get(context)
        if isinstance(value, Spilled):
            value = read(value)
        stored = lazy_blobs(value, head.job_id, read)
        return self._watermarks.lookups.checked(head.job_id, place, context, stored)

    def _spilled(self, job_id: str, reference: Spilled) -> Any:
        key = f"{job_id}\n{reference.id}"
        if key not in self._chunks:
            self._chunks[key] = self._watermarks.store.read_spilled(job_id, reference)
        return self._chunks[key]


def _start_of_run(head: Head) -> datetime:
    assert head.claim is not None
    return head.claim.since
