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
    """The versions that a target has recorded for a job, and for other jobs if the caller asked for these.

    Attributes
    ----------
    job
        The mark of the job, 32 digits of the hash of its id: see `mark_of`.
    versions
        The last recorded version, by ``<mark of the job>/<epoch>`` (the "application"). Marks of other jobs have only
        8 digits if an earlier version of this package created the table of batches in a database.
    files
        The names of the files that record the versions, if the target is a folder of files; empty for a table.
    rolled_back
        By application, the last version before those that the table lost, if an operator rolled it back or made it
        again. `versions` still has the lost versions, because their records stay.
    """

    job: str
    versions: Mapping[str, int]
    files: Sequence[str] = ()
    rolled_back: Mapping[str, int] = field(default_factory=dict)

    @property
    def epochs(self) -> dict[str, int]:
        """The last recorded version in each epoch of the job."""
        return self._versions_of_job(self.versions)

    @property
    def held(self) -> dict[str, int]:
        """The last version whose rows are still in the table, by epoch of the job."""
        return self._versions_of_job({**self.versions, **self.rolled_back})

    @property
    def others(self) -> list[str]:
        """The marks (hashes of the job ids) of other jobs for which the target has recorded versions."""
        apps = (app.partition("/") for app in self.versions)
        found = {other for other, _, epoch in apps if re.fullmatch(f"{MARK}|{FIRST_DIGITS}", other) and is_epoch(epoch)}
        return sorted(other for other in found if not self.job.startswith(other))

    def _versions_of_job(self, versions: Mapping[str, int]) -> dict[str, int]:
        start = f"{self.job}/"
        return {app.removeprefix(start): last for app, last in versions.items() if app.startswith(start) and last}


def rolled_back(
    newest: int, parents: Mapping[int, int], log: Iterable[int], marks: Mapping[int, tuple[str, int]]
) -> dict[str, int]:
    """Return for each application (job and epoch) with versions that the table lost: the first lost version, minus 1.

    Parameters
    ----------
    newest, parents
        The number of the table's current commit (or snapshot), and the parent of each known commit.
    log
        The commits that have been the current one, oldest first, also those that were rolled back.
    marks
        The application and version that each commit recorded, by commit.
    """

    def followed(at: int, seen: set[int]) -> set[int]:
        while at in parents and at not in seen:
            seen.add(at)
            at = parents[at]
        return seen

    kept = followed(newest, set())
    known = set(kept)
    # Skip commits older than `kept`: if commits in between expired, ancestors of `newest` would look rolled back.
    for at in dropwhile(lambda one: one not in kept, log):
        followed(at, known)
    last = dict(sorted(marks[at] for at in kept & marks.keys()))
    gone = sorted((marks[at] for at in (known - kept) & marks.keys()), reverse=True)
    return {app: version - 1 for app, version in gone if version > last.get(app, 0)}


class Sink(Protocol):
    """One target, and how a batch gets there exactly once.

    ::

        stage     each attempt writes its rows where no reader looks, apart from all other attempts
        commit    the job's head names one attempt; the sink takes no part in that
        publish   that attempt's rows become visible to readers; repeating this changes nothing
        clear     the staged rows of that attempt are deleted; `drop` and `sweep` delete those of losing attempts
    """

    rules: Merge | None
    """The rules by which rows replace others; None if rows are appended."""
    needs_script: bool
    """Whether only the job's script can reach the target, because that takes more than the target's name."""

    @property
    def name(self) -> str:
        """The name of the target in errors, logs and the head, without secrets: a URI, or a database and table."""

    def check(self, df: Any) -> Any:
        """Return the rows of a script in the form that `stage` takes.

        Raises an error if the rows or the sink's arguments show that the target can never take these rows. The target
        is not read, but a request may be sent to open a catalog, or to get the columns of a frame of Spark Connect.
        Call this before the plan is frozen, so that a mistake in the script leaves no plan.

        Parameters
        ----------
        df
            A DataFrame of Spark or pandas, a table of pyarrow, or an `ArrowStream`.
        """

    def places(self, df: Any) -> list[str]:
        """Return the URI of each folder into which files for these rows are written: the target, and the staging place.

        For a table that does not exist yet, return the folder that its catalog would choose, but create nothing.
        TargetError if the catalog does not answer.
        """

    def stage(self, batch: BatchId, fence: int, rows: Any, *, replaces: bool = False) -> Output:
        """Write the rows of an attempt where no reader sees them.

        Raises an error if the target cannot take the rows as it is now, so that the batch is not committed. Most checks
        are made before a row is written. If staged rows fail a later check, they are deleted, now or by a sweep.

        Parameters
        ----------
        rows
            The rows that `check` returned.
        replaces
            Whether to replace what an earlier attempt has published under the same batch id: see `Output`.
        """

    def publish(self, output: Output) -> None:
        """Make the staged rows of a committed attempt visible to readers. Late, repeated and concurrent calls are safe.

        UnprovenError if the staged rows do not show that they are of this attempt and for this target. The output alone
        proves nothing, because it was read from the table of watermarks, where it may have been altered.
        """

    def check_staged(self, output: Output) -> None:
        """Raise UnprovenError or StagedFilesLostError if an output cannot be published. Change nothing."""

    def clear(self, output: Output) -> None:
        """Delete the staged rows of an attempt that is published."""

    def drop(self, output: Output) -> None:
        """Delete the staged rows of an attempt that is never to be published."""

    def sweep(self, output: Output, kept: Collection[str], recorded: Witnessed | None = None) -> int:
        """Delete what losing attempts staged for batches up to this published one; return the number of attempts.

        Parameters
        ----------
        kept
            The `Output.folder` of each committed attempt that is not published yet: these are not deleted.
        recorded
            What the target had recorded before the publication. Records that newer ones make redundant are deleted.
        """

    def staged(self, job: str) -> list[str]:
        """Return the `Output.folder` of each attempt of a job that still has staged rows; `job` is the job's hash."""

    def left_at(self, folder: str) -> str:
        """Return a text that names an attempt's leftovers, such as "2 files in s3://…", for an operator to delete."""

    def recorded(self, job: str, *, others: bool = False, newest: Output | None = None) -> Witnessed:
        """Return what the target has recorded for the job with the hash `job`; with `others`, for other jobs as well.

        `newest` is the output that the job published last at the target. In a database, the records are in another
        table and outlive the target: if its id is not `newest.table` and it has no row of `newest`, distrust them.

        The result has no versions if the target does not exist, or if its own settings made it delete old records.
        """

    def retraction(self, job_id: str, epoch: str, first: int, last: int, since: datetime) -> Retraction:
        """Return the record of a decision to take back the versions `first` to `last` of a job at this target."""

    def retract(self, retraction: Retraction) -> int:
        """Delete the staged and published rows of some versions; return how many published files or rows were deleted.

        First remove these versions from the head. Runs repeat the call for a day, as a copy within S3 may end later and
        add a file. If the target cannot delete rows, log a WARNING. If it has nothing of the job, do not change it.
        """

    def to_retract(self, retraction: Retraction) -> list[str]:
        """Return texts, such as "2 files in s3://…", of what `retract` would delete, for an operator to confirm."""


class Mergeable(Protocol):
    """A target whose rows can be replaced by key."""

    def merging(self, rules: Merge) -> Sink:
        """Return a sink for the same target that merges batches by the given rules."""
