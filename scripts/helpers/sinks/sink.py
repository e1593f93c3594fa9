"""`Sink`: the methods that every target of a batch has, whatever its format."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import dropwhile
from typing import TYPE_CHECKING, Any, Protocol

from scripts.helpers.protocol.names import BatchId, is_epoch
from scripts.helpers.protocol.outputs import MARK, Output, Retraction

if TYPE_CHECKING:
    from scripts.helpers.sinks.merging import Merge

FIRST_DIGITS = "[0-9a-f]{8}"
"""Pattern of a job in a table of batches by an earlier version of this package, with room for 8 digits of a mark."""


@dataclass(frozen=True)
class Witnessed:
    """The batches of a job that a target has recorded, and those of other jobs if the caller asked for them.

    Attributes
    ----------
    job
        The job, as `mark_of` writes it.
    versions
        The last version of each application: a job, as `mark_of` writes it, with its epoch, ``<job>/<epoch>``. A table
        of batches with room for 8 digits holds only the first 8 digits of another job.
    files
        The files that record batches, at a target of files.
    rolled_back
        For each application whose last versions the table lost when an operator rolled it back or made it again: the
        version before the lost ones. The records of the lost versions stay.
    """

    job: str
    versions: Mapping[str, int]
    files: Sequence[str] = ()
    rolled_back: Mapping[str, int] = field(default_factory=dict)

    @property
    def epochs(self) -> dict[str, int]:
        """The last version of each epoch of the job."""
        return self._of_job(self.versions)

    @property
    def held(self) -> dict[str, int]:
        """The last version of each epoch of the job whose rows have not been rolled back."""
        return self._of_job({**self.versions, **self.rolled_back})

    @property
    def others(self) -> list[str]:
        """The other jobs whose committed batches are recorded."""
        apps = (app.partition("/") for app in self.versions)
        found = {other for other, _, epoch in apps if re.fullmatch(f"{MARK}|{FIRST_DIGITS}", other) and is_epoch(epoch)}
        return sorted(other for other in found if not self.job.startswith(other))

    def _of_job(self, versions: Mapping[str, int]) -> dict[str, int]:
        start = f"{self.job}/"
        return {app.removeprefix(start): last for app, last in versions.items() if app.startswith(start) and last}


def rolled_back(
    newest: int, parents: Mapping[int, int], log: Iterable[int], marks: Mapping[int, tuple[str, int]]
) -> dict[str, int]:
    """Return the version before the lost ones for each application whose last versions a table no longer has.

    Parameters
    ----------
    newest, parents
        The commit that the table is at, and the parent of each known commit.
    log
        The commits that the table was at, in the order of time.
    marks
        The application and version that each commit recorded.
    """

    def followed(at: int, seen: set[int]) -> set[int]:
        while at in parents and at not in seen:
            seen.add(at)
            at = parents[at]
        return seen

    kept = followed(newest, set())
    known = set(kept)
    # Skip commits older than all known commits of the present history, because they may belong to that history.
    for at in dropwhile(lambda one: one not in kept, log):
        followed(at, known)
    last = dict(sorted(marks[at] for at in kept & marks.keys()))
    gone = sorted((marks[at] for at in (known - kept) & marks.keys()), reverse=True)
    return {app: version - 1 for app, version in gone if version > last.get(app, 0)}


class Sink(Protocol):
    """One target, and how a batch gets there exactly once.

    ::

        stage     each attempt writes its rows where no reader looks, apart from all other attempts
        commit    the head names one attempt; this happens in the head alone, not here
        publish   readers get that attempt's rows, in a way that can be repeated
        clear     the staged rows of that attempt are deleted; `drop` and `sweep` delete those of losing attempts
    """

    rules: Merge | None
    """The rules by which rows replace others; None if rows are appended."""
    needs_script: bool
    """Whether only the job's script can reach the target, because that takes more than the target's name."""

    @property
    def name(self) -> str:
        """The name of the target in errors, logs and the head: a URI, or a database and table. It holds no secret."""

    def check(self, df: Any) -> Any:
        """Return the rows of a script in the form that `stage` takes.

        Raises an error if these rows are impossible at this target, as far as that is known without a look at the
        target. Called before the plan is frozen, so that a mistake in the script leaves nothing behind. It may still
        send a request: to open a catalog, or to get the columns of a frame of Spark Connect.

        Parameters
        ----------
        df
            A DataFrame of Spark or pandas, a table of pyarrow, or an `ArrowStream`.
        """

    def places(self, df: Any) -> list[str]:
        """Return the URI of each folder that gets files for these rows: the target and the staging place, if any.

        For a table that does not exist yet, the target is the folder that its catalog would choose. Nothing is created.
        TargetError if the catalog does not answer.
        """

    def stage(self, batch: BatchId, fence: int, rows: Any, *, replaces: bool = False) -> Output:
        """Write the rows of an attempt where no reader sees them.

        Raises an error, before the commit, if the target as it is now cannot take the rows. Most checks run before
        anything is written. If a check of the staged rows fails, as for ties of a merge, they are deleted or swept.

        Parameters
        ----------
        rows
            The rows that `check` returned.
        replaces
            Whether to delete what an earlier attempt published under this batch: see `Output`.
        """

    def publish(self, output: Output) -> None:
        """Make the staged rows of a committed attempt visible to readers. Can be called again, late, and concurrently.

        UnprovenError if the staged rows do not state that they are of this attempt and for this target: the output was
        read from the table, which is not trusted.
        """

    def check_staged(self, output: Output) -> None:
        """Raise UnprovenError or StagedFilesLostError if an output cannot be published. Changes nothing."""

    def clear(self, output: Output) -> None:
        """Delete the staged remains of a published attempt."""

    def drop(self, output: Output) -> None:
        """Delete the staged rows of an attempt that is never to be published."""

    def sweep(self, output: Output, kept: Collection[str], recorded: Witnessed | None = None) -> int:
        """Delete what losing attempts staged for batches up to this published one; return the number of attempts.

        Parameters
        ----------
        kept
            The `Output.folder` of each committed attempt that is not published yet.
        recorded
            What the target had recorded before. Records that newer ones make redundant are deleted as well.
        """

    def staged(self, job: str) -> list[str]:
        """Return the `Output.folder` of each attempt of a job (as `mark_of` writes it) that still has staged rows."""

    def left_at(self, folder: str) -> str:
        """Return where an attempt has left rows, and how many, for an operator who decides whether to delete them."""

    def recorded(self, job: str, *, others: bool = False, newest: Output | None = None) -> Witnessed:
        """Return the batches that the target has recorded of a job (as `mark_of` writes it), and of others if asked.

        `newest` is what the job has published there last. Where the records may outlive the rows, as in a database,
        the target's table is compared with `newest`.

        Returns no batches if there is no target, or if the records have expired by the table's own properties.
        """

    def retraction(self, job_id: str, epoch: str, first: int, last: int, since: datetime) -> Retraction:
        """Return the record by which some versions of a job are taken back at this target."""

    def retract(self, retraction: Retraction) -> int:
        """Delete what some versions left here, staged and published; return how many files, or rows, were published.

        Called after the head has forgotten these versions, and again by each run for a while. A target that cannot
        delete what readers have seen keeps it and logs a WARNING. A target that has nothing of the job gets no write.
        """

    def to_retract(self, retraction: Retraction) -> list[str]:
        """Return what `retract` would delete at this target, for an operator who decides whether to delete it."""


class Mergeable(Protocol):
    """A target whose rows can be replaced by key."""

    def merging(self, rules: Merge) -> Sink:
        """Return the sink that merges a batch into this target by these rules."""
