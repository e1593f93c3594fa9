"""`LedgerUpkeep`: the files of a ledger, whether they are whole, and what is left over beside them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pyarrow.compute as pc

from scripts.helpers.errors import CorruptItemError, InvalidValueError, LedgerError
from scripts.helpers.files.ledger import NO_FOLDER, FileLedger
from scripts.helpers.files.segment_files import NAME, SegmentFiles
from scripts.helpers.files.states import FilesPlan, FilesState, Segment, opened_state

DEFAULT_AGE = timedelta(days=8)
"""Age of a file before `sweep` may delete it. A run writes files before anything refers to them, and Glue ends a run
after 7 days at the latest (its Timeout is 10,080 minutes at most)."""
LEAST_AGE = timedelta(days=1)
"""The least age that may be asked for: clocks of machines that run jobs are trusted to a day, as for chunks."""
CLOCKS = timedelta(days=1)
"""How much earlier than its run, by their two clocks, a file may seem to be written."""


class LedgerPart(NamedTuple):
    """One file of a ledger, or one segment that lies in the table.

    `segment` counts from 0, the oldest. `file` is what the state says of a file; None in the table. `rows` is how many
    the state says that it has.
    """

    segment: int
    file: Mapping[str, Any] | None
    rows: int

    def name(self, segments: int) -> str:
        """Return what a person calls it: the file's name, or the number of the segment, of so many."""
        if self.file is not None:
            return str(self.file.get("file"))
        return f"segment {self.segment + 1} of {segments}"


class Flaw(NamedTuple):
    """Something that is wrong with a part of a ledger.

    `kind` is ``missing``, ``damaged`` (not the bytes that were written), ``unsorted`` (keys not in order, or twice),
    ``count`` or ``ends`` (other rows, or another first or last key, than the state says).
    """

    kind: str
    part: LedgerPart
    detail: str


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


class LedgerUpkeep:
    """Looks after one ledger. Nothing here knows the table: states come in, and go out, as maps.

    Parameters
    ----------
    source
        For error texts.
    files
        The folder of the ledger; None where it lies in the table.

    Examples
    --------
    >>> bookmark = FileBookmark(landing)
    >>> bookmark.new_files().count
    2
    >>> LedgerUpkeep(landing).flaws(bookmark.state_after["segments"])
    []
    """

    def __init__(self, source: str, files: SegmentFiles | None = None) -> None:
        self._source, self._files = source, files
        self._ledger = FileLedger(source, [], files)

    def parts(self, segments: Sequence[Mapping[str, Any]]) -> list[LedgerPart]:
        """Return the files and the segments in the table that a state or plan refers to; reads none of them.

        Raises
        ------
        LedgerError
            The list of a segment's files is damaged.
        """
        found = []
        for number, segment in enumerate(segments):
            if "data" in segment:
                found.append(LedgerPart(number, None, int(segment.get("count", 0))))
                continue
            found += [LedgerPart(number, file, int(file["count"])) for file in self._ledger.files(segment)]
        return found

    def flaws(self, segments: Sequence[Mapping[str, Any]]) -> list[Flaw]:
        """Read every part, and return what is wrong: with its bytes, its count, its order, its ends.

        Raises
        ------
        LedgerError
            The ledger lies in files and no folder was given, or S3 refuses for another reason than that a file is gone.
        AccessRefusedError, CredentialsError, SourceUnavailableError
            It cannot be read now, which says nothing about it.
        """
        found = []
        for number, segment in enumerate(segments):
            try:
                parts = self.parts([segment])
            except LedgerError as error:
                found.append(Flaw("damaged", LedgerPart(number, None, int(segment.get("count", 0))), _reason(error)))
                continue
            if sum(part.rows for part in parts) != segment.get("count"):
                whole = LedgerPart(number, None, int(segment.get("count", 0)))
                found.append(Flaw("count", whole, "the counts of its files do not add up"))
                continue
            for part in parts:
                flaw = self._flaw(part._replace(segment=number), segment)
                if flaw is not None:
                    found.append(flaw)
        return found

    def left_over(
        self, live: Collection[str], runs_since: datetime | None, older_than: timedelta, folder: LedgerFolder
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
            What `listed` returned.

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

    def listed(self) -> LedgerFolder:
        """List the folder of the ledger; SourceError if it cannot be listed, LedgerError if there is none."""
        if self._files is None:
            raise LedgerError(self._source, "its ledger is in the table. Give the ledger_uri of the folder.")
        rows, started = self._files.listed()
        files = tuple(LeftOver(row["key"], row["size"], row["modified"]) for row in rows.to_pylist())
        return LedgerFolder(self._files.location.uri(""), started, files)

    def delete(self, files: Iterable[LeftOver]) -> int:
        """Delete files that `left_over` returned; repeated after an error it deletes the rest.

        Raises
        ------
        AccessRefusedError, CredentialsError, SourceUnavailableError, LedgerError
            It cannot be done. Some may be gone by then.
        """
        assert self._files is not None
        return self._files.delete([file.name for file in files])

    def _flaw(self, part: LedgerPart, segment: Mapping[str, Any]) -> Flaw | None:
        """Read one part; return what is wrong with it."""
        try:
            if part.file is None:
                rows = self._ledger.read(segment)
            elif self._files is None:
                raise LedgerError(self._source, NO_FOLDER)
            elif not self._files.exists(part.file):
                return Flaw("missing", part, "it is not there")
            else:
                rows = self._files.rows(part.file)
        except CorruptItemError as error:
            return Flaw("missing" if "is gone" in error.detail else "damaged", part, error.detail)
        except LedgerError as error:
            if part.file is not None and self._files is None:
                raise
            return Flaw("damaged", part, _reason(error))
        if rows.num_rows != part.rows:
            return Flaw("count", part, f"it has {rows.num_rows:,} rows, and the state says {part.rows:,}")
        keys = rows.column("key").combine_chunks()
        # Arrow compares texts by their bytes in UTF-8, which is the order of S3.
        if not pc.all(pc.less(keys.slice(0, max(len(keys) - 1, 0)), keys.slice(1)), min_count=0).as_py():
            return Flaw("unsorted", part, "its keys are not in order, or one is there twice")
        if part.file is not None and len(keys):
            ends = (keys[0].as_py(), keys[-1].as_py())
            if ends != (part.file.get("first"), part.file.get("last")):
                return Flaw("ends", part, "its first or last key is another than the state says")
        return None


class LedgerFolder(NamedTuple):
    """What lay in the folder of a ledger when it was listed, by its own clock, UTC."""

    uri: str
    listed_at: datetime
    files: tuple[LeftOver, ...]


def check_age(older_than: timedelta) -> None:
    """Refuse to delete what is less than a day old; InvalidValueError."""
    if older_than < LEAST_AGE:
        raise InvalidValueError(
            f"older_than is {older_than}, and files of a ledger stay for at least {LEAST_AGE}: a run that is at work "
            "may have written them. Give 1 day or more."
        )


def segments_in(stored: Any) -> tuple[Segment, ...]:
    """Return the segments that a state or a plan of files refers to; none of what is another kind."""
    if not isinstance(stored, Mapping) or stored.get("kind") != "files":
        return ()
    source = str(stored.get("source"))
    if "segments" in stored:
        return opened_state(FilesState, stored, source, "files").segments
    return opened_state(FilesPlan, stored, source, "files").segments


def names_in(holder: Any, source: str) -> set[str]:
    """Return the names of all files that a state or a plan refers to; LedgerError if they cannot be read."""
    found: set[str] = set()
    for segment in segments_in(holder):
        if "data" not in segment:
            found.update(str(file["file"]) for file in FileLedger(source, []).files(segment))
    return found


def _reason(error: LedgerError) -> str:
    """Return what an error says, without the source that it names."""
    return str(error).removeprefix(f"Source {error.source!r}: ")
