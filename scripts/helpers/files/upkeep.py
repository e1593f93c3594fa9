"""What is left over in the folder of a ledger: files that no job refers to and that no run can still refer to."""

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
"""Age of a file before `sweep` may delete it. A run writes files before anything refers to them, and Glue ends a run
after 7 days at the latest (its Timeout is 10,080 minutes at most)."""
LEAST_AGE = timedelta(days=1)
"""The least age that may be asked for: clocks of machines that run jobs are trusted to a day, as for chunks."""
CLOCKS = timedelta(days=1)
"""How much earlier than its run, by their two clocks, a file may seem to be written."""


class LeftOver(NamedTuple):
    """A file of the ledger's folder; `modified` is when it was written, by the clock of the folder, in UTC."""

    name: str
    size: int
    modified: datetime


@dataclass(frozen=True)
class Leftovers:
    """What lies in the folder of a ledger, by what may become of it.

    Attributes
    ----------
    files
        What nothing refers to and is old enough: these may go.
    live
        How many files something refers to.
    young
        How many are not old enough.
    held
        How many were written since a run began that is still entered as one at work: it may refer to them yet.
    foreign
        How many have names that no ledger gives. They are never touched.
    """

    files: tuple[LeftOver, ...]
    live: int
    young: int
    held: int
    foreign: int

    @property
    def bytes(self) -> int:
        """Bytes of the files that may go."""
        return sum(file.size for file in self.files)


class LedgerFolder(NamedTuple):
    """What lay in the folder of a ledger when it was listed, by its own clock, UTC."""

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
    """Part what lies in a folder by what may become of it.

    The order is what makes it safe: the folder is listed first, and `live` and `runs_since` are looked up after
    that. A file is written before it is referred to, so whatever a run wrote before the listing is by then referred
    to, or of a run that is still entered, or of one that can refer to nothing any more.

    Parameters
    ----------
    live
        Names of all files that anything refers to: heads, open plans and log entries of every job.
    runs_since
        When the run began, UTC, that has been entered the longest of all jobs' runs; None if there is none.
    older_than
        The least age, by the clock of the folder.
    folder
        What `listed_folder` returned.

    Raises
    ------
    InvalidValueError
        `older_than` is less than a day.
    LedgerError
        Nothing there is referred to: it may be the folder of other jobs, or of another table.
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
    """Refuse to delete what is less than a day old; InvalidValueError."""
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
