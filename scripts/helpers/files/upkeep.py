"""Leftover files in the folder of a ledger: files that no job refers to and that no run can refer to any more."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from scripts.helpers.errors import InvalidValueError, LedgerError
from scripts.helpers.files.ledger import FileLedger
from scripts.helpers.files.segment_files import NAME, SegmentFiles
from scripts.helpers.files.states import FilesPlan, FilesState, opened_state

DEFAULT_AGE = timedelta(days=8)
"""Least age of a file that `sweep` may delete, by default. A run writes files before anything refers to them, and Glue
ends a run after at most 7 days (the maximum of its Timeout is 10,080 minutes)."""
LEAST_AGE = timedelta(days=1)
"""Smallest age that a caller may pass: clocks of machines that run jobs may be off by up to a day, as for chunks."""
CLOCKS = timedelta(days=1)
"""How much earlier than its run a file may seem to be written, because two clocks are compared."""


class LeftOver(NamedTuple):
    """A file in the ledger's folder; `modified` is when it was written, in UTC, by the clock of S3 or the disk."""

    name: str
    size: int
    modified: datetime


@dataclass(frozen=True)
class Leftovers:
    """The files in the folder of a ledger, grouped by whether they may be deleted.

    Attributes
    ----------
    files
        Files that nothing refers to and that are old enough: they may be deleted.
    live
        Number of files that something refers to.
    young
        Number of files that are not old enough.
    held
        Number of files written since the start of a run that is still recorded as running, and may refer to them.
    foreign
        Number of files with names that no ledger creates. They are never deleted.
    """

    files: tuple[LeftOver, ...]
    live: int
    young: int
    held: int
    foreign: int

    @property
    def bytes(self) -> int:
        """Size of the files that may be deleted, in bytes."""
        return sum(file.size for file in self.files)


class LedgerFolder(NamedTuple):
    """The files in the folder of a ledger, and the time of the listing in UTC, by the clock of S3 or the disk."""

    uri: str
    listed_at: datetime
    files: tuple[LeftOver, ...]


def listed_folder(files: SegmentFiles) -> LedgerFolder:
    """List the folder of a ledger; SourceError if it cannot be listed."""
    rows, started = files.listed()
    found = tuple(LeftOver(row["key"], row["size"], row["modified"]) for row in rows.to_pylist())
    return LedgerFolder(files.location.uri(""), started, found)


def left_over(
    live: Collection[str], runs_since: datetime | None, older_than: timedelta, folder: LedgerFolder
) -> Leftovers:
    """Return the files of a folder, grouped by whether they may be deleted.

    Deleting files is safe only if the folder is listed first, and `live` and `runs_since` are looked up after that. A
    file is written before anything refers to it. So at the look-up, each listed file is in one of three cases:
    something refers to it, its run is still recorded as running, or its run has ended and cannot refer to it any more.

    Parameters
    ----------
    live
        Names of all files that heads, open plans and log entries of any job refer to.
    runs_since
        The start, in UTC, of the oldest run of any job that is still recorded as running; None if there is none.
    older_than
        The smallest age of a file to delete, by the clock of the folder.
    folder
        The result of `listed_folder`.

    Raises
    ------
    InvalidValueError
        `older_than` is less than a day.
    LedgerError
        Nothing refers to any file in the folder: it may belong to other jobs, or to another table.
    """
    check_age(older_than)
    names = set(live)
    old, counts = [], dict.fromkeys(("live", "young", "held", "foreign"), 0)
    for file in folder.files:
        if file.name in names:
            counts["live"] += 1
        elif not NAME.fullmatch(file.name):
            counts["foreign"] += 1
        elif file.modified > folder.listed_at - older_than:
            counts["young"] += 1
        elif runs_since is not None and file.modified > runs_since - CLOCKS:
            counts["held"] += 1
        else:
            old.append(file)
    if old and not counts["live"]:
        raise LedgerError(
            folder.uri,
            f"{len(old):,} of its files could go, and no job of this table refers to any file there. It is the "
            "folder of another table's jobs, or of none: check the URI. Delete a folder of none yourself.",
        )
    return Leftovers(tuple(old), counts["live"], counts["young"], counts["held"], counts["foreign"])


def check_age(older_than: timedelta) -> None:
    """Raise InvalidValueError if files that are less than a day old would be deleted."""
    if older_than < LEAST_AGE:
        raise InvalidValueError(
            f"older_than is {older_than}, and files of a ledger stay for at least {LEAST_AGE}: a run that is at work "
            "may have written them. Give 1 day or more."
        )


def names_in(stored: Any) -> set[str]:
    """Return the names of all files that a state or a plan of files refers to; LedgerError if they cannot be read."""
    if not isinstance(stored, Mapping) or stored.get("kind") != "files":
        return set()
    source = str(stored.get("source"))
    opened: FilesState | FilesPlan
    if "segments" in stored:
        opened = opened_state(FilesState, stored, source, "files")
    else:
        opened = opened_state(FilesPlan, stored, source, "files")
    ledger, found = FileLedger(source, []), set[str]()
    for segment in opened.segments:
        if "data" not in segment:
            found.update(str(file["file"]) for file in ledger.files(segment))
    return found
