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
    """What a target has recorded about the batches of a job, and of other jobs if the caller asked for them.

    Attributes
    ----------
    job
        The mark of the job, 32 digits of its hash: see `mark_of`.
    versions
        The number of the last recorded version, by the application ``<mark of the job>/<epoch>``. If the table of
        batches has room for only 8 digits of a mark, the marks of other jobs have 8 digits.
    files
        The names of the files that are the records, at a target of files; empty for a table.
    rolled_back
        The version before the first lost one, by application, where the table lost versions because an operator rolled
        it back or made it again. `versions` still has the lost ones, because their records stay.
    """

    job: str
    versions: Mapping[str, int]
    files: Sequence[str] = ()
    rolled_back: Mapping[str, int] = field(default_factory=dict)

    @property
    def epochs(self) -> dict[str, int]:
        """The number of the last recorded version in each epoch of the job."""
        return self._versions_of_job(self.versions)

    @property
    def held(self) -> dict[str, int]:
        """The number of the last version in each epoch of the job whose rows are still in the table."""
        return self._versions_of_job({**self.versions, **self.rolled_back})

    @property
    def others(self) -> list[str]:
        """The marks of the other jobs whose committed batches the target has recorded."""
        apps = (app.partition("/") for app in self.versions)
        found = {other for other, _, epoch in apps if re.fullmatch(f"{MARK}|{FIRST_DIGITS}", other) and is_epoch(epoch)}
        return sorted(other for other in found if not self.job.startswith(other))

    def _versions_of_job(self, versions: Mapping[str, int]) -> dict[str, int]:
        start = f"{self.job}/"
        return {app.removeprefix(start): last for app, last in versions.items() if app.startswith(start) and last}


def rolled_back(
    newest: int, parents: Mapping[int, int], log: Iterable[int], marks: Mapping[int, tuple[str, int]]
) -> dict[str, int]:
    """Return, for each application that has lost versions in a table, the version before the first lost one.

    Parameters
    ----------
    newest, parents
        The current commit of the table, and the parent of each known commit.
    log
        The commits that have been the current one, oldest first.
    marks
        The application and version that a commit recorded, by commit.
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
        publish   that attempt's rows become visible to readers; repeating this changes nothing
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

        Raises an error if the target can never take these rows, as far as the script's arguments show that. It does not
        look at the target, but may send a request to open a catalog, or to get the columns of a frame of Spark Connect.
        It is called before the plan is frozen, so that after a mistake in the script no plan is left.

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

        Raises an error if the target cannot take the rows now, so that the batch is not committed. Most checks run
        before a row is written. If staged rows fail a check, such as that for ties, they are deleted now or by a sweep.

        Parameters
        ----------
        rows
            The rows that `check` returned.
        replaces
            Whether to delete what an earlier attempt published under this batch: see `Output`.
        """

    def publish(self, output: Output) -> None:
        """Make the staged rows of a committed attempt visible to readers. Late, repeated and concurrent calls are safe.

        UnprovenError if the staged rows themselves do not name this attempt and this target. The output alone proves
        nothing, because it was read from the table of watermarks, where it may have been altered.
        """

    def check_staged(self, output: Output) -> None:
        """Raise UnprovenError or StagedFilesLostError if an output cannot be published. Changes nothing."""

    def clear(self, output: Output) -> None:
        """Delete what is still staged of a published attempt."""

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
        """Return the `Output.folder` of each attempt of the job with the mark `job` that still has staged rows."""

    def left_at(self, folder: str) -> str:
        """Return where an attempt has left rows, and how many, for an operator who decides whether to delete them."""

    def recorded(self, job: str, *, others: bool = False, newest: Output | None = None) -> Witnessed:
        """Return what the target has recorded of the job with the mark `job`, and with `others` also of other jobs.

        `newest` is the output that the job published there last. In a database, where records may outlive the rows,
        it shows whether the table is still the one that the rows were written to.

        The result has no versions if there is no target, or if the table's own properties made the records expire.
        """

    def retraction(self, job_id: str, epoch: str, first: int, last: int, since: datetime) -> Retraction:
        """Return the record of a decision to take back the versions `first` to `last` of a job at this target."""

    def retract(self, retraction: Retraction) -> int:
        """Delete the staged and published rows of some versions; return how many published files or rows were deleted.

        Called after these versions were removed from the head, and again by each run for a while. If the target cannot
        delete published rows, they stay and a WARNING is logged. A target without anything of the job is not written.
        """

    def to_retract(self, retraction: Retraction) -> list[str]:
        """Return texts, such as "2 files in s3://…", of what `retract` would delete, for an operator to confirm."""


class Mergeable(Protocol):
    """A target whose rows can be replaced by key."""

    def merging(self, rules: Merge) -> Sink:
        """Return the sink that merges a batch into this target by these rules."""
