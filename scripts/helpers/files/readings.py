"""`Readings` tracks how the files of a batch are read, and searches for the files that cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers._lazy import S3Client
from scripts.helpers.errors import (
    ArchivedObjectError,
    ChangedObjectError,
    FileContentError,
    MisfitError,
    SourceError,
    UnreadableFilesError,
    UnreadableObjectError,
    WatermarkError,
)
from scripts.helpers.reading.fetched_lines import unmarked
from scripts.helpers.reading.probe import GONE, OVERWRITTEN, keys_named_in, probe, why
from scripts.helpers.reading.search import NotAFileError, check_cause, java_causes, search

if TYPE_CHECKING:
    from scripts.helpers.listing.listing import Location

logger = logging.getLogger(__name__)

MANY = 10
"""If none of so many files can be read, the files are not the cause: the login lost its rights, or the schema is wrong.
A smaller batch may have only bad files, which must not stop the job forever."""
MOST_TEXT = 300
"""Most characters of a Spark error that the list stores."""

Read = Callable[[pa.Table], Any]
"""Function that reads some of the files into a frame, which may be lazy."""


@dataclass(frozen=True)
class _Given:
    """Files that were passed to a reader, and a function that reads some of them to the end."""

    keys: frozenset[str]
    format: str
    exhaust: Callable[[pa.Table], None]


@dataclass(eq=False)
class Readings:
    """Tracks the reads of one batch, and sets aside the files that cannot be read.

    `read` checks the planned files first (`probe`). Files that fail the check are set aside at once, and are not read.
    A file may also fail later, when Spark computes its rows: `found` then searches for the file. Rows of a file that
    was passed to a reader may be in frames already. If such a file is set aside, the results of those frames must not
    be committed, so an UnreadableFilesError ends the run, and the next run takes the other files.

    Parameters
    ----------
    location, table
        The source, and one row for each planned file.
    client, request_payer
        The S3 client for checking the files, and whether the requester pays.
    on_bad
        Function that moves files from the plan to the list of set-aside files, given reasons by key. It may raise.
    is_replay
        Whether an earlier run ended while it worked on these files. The reader may never finish one of them, so
        all files are read to the end once before their frame is returned.
    seconds
        How long a reader may take for a file, during the search, before the file counts as unreadable.

    Attributes
    ----------
    reasons
        Why each file was set aside so far, by key.
    is_spoiled
        Whether rows of a file that was set aside may be in results of the run, so that it must not commit.
    """

    location: Location
    table: pa.Table
    client: S3Client | None
    request_payer: bool
    on_bad: Callable[[Mapping[str, str]], None]
    is_replay: bool = False
    seconds: float = 600
    reasons: dict[str, str] = field(default_factory=dict)
    is_spoiled: bool = False
    _given: list[_Given] = field(default_factory=list)

    def readable(self, table: pa.Table) -> pa.Table:
        """Return the files of a table that are not set aside."""
        return self._without(table, self.reasons)

    def note_all_given(self) -> None:
        """Note that the caller got the paths of all files, so that it may have read any of them."""
        self._given.append(_Given(frozenset(self.table.column("key").to_pylist()), "paths", lambda table: None))

    def read(self, table: pa.Table, format: str, read: Read, exhaust: Callable[[Any, pa.Table], None]) -> Any:
        """Return a frame of the files that can be read, and set the other files aside.

        Parameters
        ----------
        read
            Function that returns a frame of some of the files.
        exhaust
            Function that reads some files to the end, with the columns of the frame, and raises a bad file's error.
        """
        table = self.readable(table)
        self.set_aside(probe(self.location, table, format, self.client, self.request_payer))
        table = self.readable(table)
        try:
            frame = read(table)
            if self.is_replay and table.num_rows:
                exhaust(frame, table)
        except Exception as error:
            # The reader failed before Spark computed rows, for example while it inferred the schema.
            self.set_aside(self._search(table, lambda part: exhaust(read(part), part), format, error))
            frame = read(self.readable(table))
        self._given.append(
            _Given(frozenset(table.column("key").to_pylist()), format, lambda part: exhaust(frame, part))
        )
        return frame

    def found(self, error: BaseException) -> dict[str, str]:
        """Return the bad files that made a run fail, with reasons; empty if the run failed for another reason."""
        if isinstance(error, ChangedObjectError):
            if error.source != str(self.location):
                return {}
            known = self._keys()
            changed = dict.fromkeys(error.deleted, GONE) | dict.fromkeys(error.overwritten, OVERWRITTEN)
            return {key: reason for key, reason in changed.items() if key in known}
        if not _may_be_caused_by_file(error):
            return {}
        assert isinstance(error, Exception)
        found: dict[str, str] = {}
        for given in self._given:
            table = self._only(self.readable(self.table), given.keys - found.keys())
            try:
                found |= self._find_bad_files(table, given.exhaust, given.format)
            except NotAFileError as other:
                logger.info("event=no_file_to_blame source=%s reason=%s", self.location, other)
                return {}
        return found

    def set_aside(self, reasons: Mapping[str, str]) -> None:
        """Set files aside.

        Raises
        ------
        SourceError
            No file of the batch can be read. If the batch has ten or more files, nothing is set aside. The files of a
            smaller batch are set aside, so that the next run continues without them.
        UnreadableFilesError
            The files are set aside, but their rows may be in frames that were returned before.
        """
        if not reasons:
            return
        count = len(self.reasons.keys() | reasons.keys())
        is_all = count == self.table.num_rows
        if is_all and count >= MANY:
            raise self._all_unreadable("all_unreadable", {**self.reasons, **reasons})
        self.on_bad(reasons)
        self.reasons.update(reasons)
        if is_all:
            self.is_spoiled = True
            raise self._all_unreadable("all_set_aside", dict(self.reasons))
        if any(given.keys & reasons.keys() for given in self._given):
            self.is_spoiled = True
            raise UnreadableFilesError(str(self.location), reasons)

    def _all_unreadable(self, reason: str, reasons: Mapping[str, str]) -> SourceError:
        key = next(iter(reasons))
        which = "the only file" if len(reasons) == 1 else f"each of the {len(reasons)} files"
        detail = f"{which} of the batch cannot be read, such as {key!r} ({reasons[key]})."
        return SourceError(str(self.location), detail, reason=reason, reasons=reasons)

    def _keys(self) -> set[str]:
        return set(self.readable(self.table).column("key").to_pylist())

    def _search(
        self, table: pa.Table, exhaust: Callable[[pa.Table], None], format: str, error: Exception
    ) -> dict[str, str]:
        """Return the files at which a reader failed, with reasons; raise its error if no file is the cause."""
        if not _may_be_caused_by_file(error):
            raise error
        try:
            check_cause(error)
            found = self._find_bad_files(table, exhaust, format, error)
        except NotAFileError:
            raise error from None
        # Raise nothing if only several files together exceeded the time limit: each file alone can be read in time.
        if not found and not isinstance(error.__cause__, TimeoutError):
            raise error
        return found

    def _find_bad_files(
        self, table: pa.Table, exhaust: Callable[[pa.Table], None], format: str, known: Exception | None = None
    ) -> dict[str, str]:
        """Return bad files with reasons. Check all files, then read those that pass in smaller and smaller groups."""
        reasons = probe(self.location, table, format, self.client, self.request_payer)
        table = self._without(table, reasons)

        def fails(keys: Sequence[str]) -> Exception | None:
            try:
                exhaust(self._only(table, keys))
            except Exception as raised:
                error = unmarked(raised) or raised
                if not _may_be_caused_by_file(error):
                    raise NotAFileError(type(error).__name__) from raised
                causes.update(dict.fromkeys(keys, _cause(error, format)))
                return error
            return None

        causes: dict[str, str] = {}

        def named(error: Exception, keys: Sequence[str]) -> list[str]:
            return keys_named_in(str(error), keys)

        for key in search(table.column("key").to_pylist(), fails, named, None if reasons else known):
            if known is not None and key not in causes:
                causes[key] = _cause(unmarked(known) or known, format)
            reasons[key] = causes[key]
        return reasons

    def _only(self, table: pa.Table, keys: Collection[str]) -> pa.Table:
        return table.filter(pc.is_in(table.column("key"), value_set=pa.array(sorted(keys), pa.string())))

    def _without(self, table: pa.Table, keys: Collection[str]) -> pa.Table:
        return self._only(table, set(table.column("key").to_pylist()) - set(keys)) if keys else table


_OF_FILES = ArchivedObjectError, ChangedObjectError, FileContentError, MisfitError, UnreadableObjectError


def _may_be_caused_by_file(error: BaseException) -> bool:
    """Return whether a file may be the cause of an error. Spark's errors about the call itself are excluded."""
    if isinstance(error, WatermarkError):
        # This package's other errors are about the call or a service, such as refused access, and not about a file.
        return isinstance(error, _OF_FILES)
    # Spark raises these before it reads, for a wrong call (an unknown column). Only a missing path is due to a file.
    if type(error).__name__ in ("AnalysisException", "ParseException", "IllegalArgumentException"):
        return "PATH_NOT_FOUND" in str(error) or "Path does not exist" in str(error)
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def _cause(error: Exception, format: str) -> str:
    """Return why a file cannot be read, as the list of set-aside files stores it."""
    if isinstance(error, (ChangedObjectError, ArchivedObjectError, UnreadableObjectError)):
        return why(error)
    if isinstance(error, MisfitError):
        return error.what
    if isinstance(error, FileContentError):
        return f"it cannot be read as {format}: {error.cause}"
    # Use the root cause of the Java exception, which `java_causes` yields last.
    name, text = type(error).__name__, str(error)
    for cause, java in java_causes(error):
        name, text = cause, str(java.getMessage() or "")
    first = text.strip().partition("\n")[0][:MOST_TEXT]
    return f"it cannot be read as {format} ({name}{first and f': {first}'})"
