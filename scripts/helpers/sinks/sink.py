"""`Sink`: what a target of a batch has to be able to do, whatever it is."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import dropwhile
from typing import Any, Protocol

from scripts.helpers.protocol.names import BatchId, is_epoch
from scripts.helpers.protocol.outputs import MARK, Output, Retraction
from scripts.helpers.sinks.merging import Merge

FIRST_DIGITS = "[0-9a-f]{8}"
"""A job in a table of batches that an earlier version made, with room for no more of its mark."""


@dataclass(frozen=True)
class Witnessed:
    """What a target has recorded of the batches of a job, and of others if they were asked for.

    Attributes
    ----------
    job
        As `mark_of` writes it.
    versions
        The last version of each application, which is a job, as `mark_of` writes it, with its epoch: ``<job>/<epoch>``.
        Of other jobs, a table of batches with room for 8 digits has the first ones.
    files
        The files of a target of files that record them.
    rolled_back
        Of an application whose last versions a table has lost when somebody rolled it back or made it again, the
        version before those. The record of them stays.
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
    """Return of each application whose last versions a table has no longer the version before those.

    Parameters
    ----------
    newest, parents
        The commit that the table is at, and for each one that is known the commit before it.
    log
        The commits that the table was at, in that order.
    marks
        The application and the version that a commit recorded.
    """

    def followed(at: int, seen: set[int]) -> set[int]:
        while at in parents and at not in seen:
            seen.add(at)
            at = parents[at]
        return seen

    kept = followed(newest, set())
    known = set(kept)
    # A commit from before all that is known of the present history may belong to it.
    for at in dropwhile(lambda one: one not in kept, log):
        followed(at, known)
    last = dict(sorted(marks[at] for at in kept & marks.keys()))
    gone = sorted((marks[at] for at in (known - kept) & marks.keys()), reverse=True)
    return {app: version - 1 for app, version in gone if version > last.get(app, 0)}


class Sink(Protocol):
    """One target, and how a batch gets there once.

    ::

        stage     each attempt leaves its rows where no reader looks, apart from all others
        commit    the head names one attempt: not here, and nothing else does
        publish   that attempt's rows reach the readers, in a way that can be repeated
        clear     what it staged is deleted; `drop` and `sweep` delete what losers staged
    """

    rules: Merge | None
    """By which rows replace others; None where they are appended."""
    needs_script: bool
    """Whether nothing but the job's script gets to the target, by what its name does not hold."""

    @property
    def name(self) -> str:
        """Of the target, in errors, logs and the head: a URI, or a database and table. Nothing secret is in it."""

    def check(self, df: Any) -> Any:
        """Return the rows of a script as `stage` takes them.

        Raises what makes these rows impossible at this target, as far as that is known without a look at the target.
        Called before the plan is frozen: a mistake in the script leaves nothing behind. A request may be sent all the
        same: to open a catalog, and for the columns of a frame of Spark Connect.

        Parameters
        ----------
        df
            A DataFrame of Spark or pandas, a table of pyarrow, or an `ArrowStream`.
        """

    def places(self, df: Any) -> list[str]:
        """Return the URI of each folder that these rows would bring files to, if any: the target, and where they wait.

        Of a table that is not there it is the folder that its catalog would choose. Nothing is made. TargetError if the
        catalog does not answer.
        """

    def stage(self, batch: BatchId, fence: int, rows: Any, *, replaces: bool = False) -> Output:
        """Leave the rows of an attempt where nobody sees them.

        Raises, before the commit, what makes them impossible at the target as it is now. Most of it before anything is
        written; what only the staged rows show, such as ties of a merge, after that: they are deleted then, or swept.

        Parameters
        ----------
        rows
            As `check` returned them.
        replaces
            Whether what an earlier attempt published under this batch goes: see `Output`.
        """

    def publish(self, output: Output) -> None:
        """Show readers what a committed attempt staged. May be called again, late, and by two at once.

        UnprovenError if what is staged does not say that it is of this attempt and for this target: the output was read
        from the table, which is not trusted.
        """

    def check_staged(self, output: Output) -> None:
        """Raise what speaks against publishing an output: UnprovenError, or StagedFilesLostError. Changes nothing."""

    def clear(self, output: Output) -> None:
        """Delete what is left of a published attempt."""

    def drop(self, output: Output) -> None:
        """Delete what an attempt staged that is never to be published."""

    def sweep(self, output: Output, kept: Collection[str], recorded: Witnessed | None = None) -> int:
        """Delete what losers staged for batches up to this one, once it is published; return how many they were.

        Parameters
        ----------
        kept
            The `Output.folder` of committed attempts that are not published yet.
        recorded
            What the target had recorded before. What only repeats that is deleted as well.
        """

    def staged(self, job: str) -> list[str]:
        """Return what attempts of a job, as `mark_of` writes it, have staged and not cleared: each `Output.folder`."""

    def left_at(self, folder: str) -> str:
        """Return where an attempt has left something, and how much, for a person who is asked whether it may go."""

    def recorded(self, job: str, *, others: bool = False, newest: Output | None = None) -> Witnessed:
        """Return what the target has recorded of a job, as `mark_of` writes it, and of others if they are asked for.

        `newest` is what the job has published there last. Where the records may outlive the rows, as in a database,
        its table is compared with that.

        Nothing where there is no target, or where it has expired by the table's own properties.
        """

    def retraction(self, job_id: str, epoch: str, first: int, last: int, since: datetime) -> Retraction:
        """Return the record by which some versions of a job are taken back here."""

    def retract(self, retraction: Retraction) -> int:
        """Take back what some versions left here, staged and published; return how many files, or rows, were published.

        Called when the head has forgotten them, and again by each run for a while. A target that cannot give back
        what readers have seen, keeps it with a WARNING. A target that has nothing of the job gets no write.
        """

    def to_retract(self, retraction: Retraction) -> list[str]:
        """Return what `retract` would delete, as it is found here, for a person who is asked whether it may go."""


class Mergeable(Protocol):
    """A target whose rows can be replaced by key."""

    def merging(self, rules: Merge) -> Sink:
        """Return the sink that brings a batch there by these rules."""
