"""Stored states and plans of file sources, and their segments (parts of the ledger), validated when read. Pure.

This module does not import pyarrow, because commands read and change states where pyarrow is not installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from scripts.helpers.errors import InvalidValueError, LedgerError, SourceError
from scripts.helpers.files.set_aside import PACKED, SetAside, SetAsideList
from scripts.helpers.listing.paths import is_unicode
from scripts.helpers.protocol.chunks import Blob
from scripts.helpers.protocol.fields import MAX_NUMBER, SHA256, Fields, ImplausibleError
from scripts.helpers.protocol.packed_json import pack_json, unpack_json

FORMAT = 1
"""Format of stored states and plans. Any other format is refused, because its rules are unknown."""
MAX_SOURCE = 8_192
"""Most characters of a source's name: a path has at most 4,096 bytes."""
FEW_FILES = 4
"""Most files whose names are stored one by one. More are packed, because a watermark has at most 2,000 entries."""
MAX_FILES, MAX_NAMES_BYTES = 1_000_000, 64 * 1024 * 1024
"""Most files of a segment, and most bytes of their unpacked names, so that a damaged segment cannot fill the memory."""
MAX_FILE_BYTES = 1024 * 1024 * 1024
"""Most bytes of one ledger file, which has at most half a million rows."""
LEDGER_FILE = r"[0-9a-f]{32}\.parquet"
"""Names that `SegmentFiles.put` creates. Any other name could be a path to a foreign file."""
_TYPE_OF_KIND = {"string": str, "int": int, "bigint": int, "date": date}


Segment = Mapping[str, Any]
"""A segment as states and plans store it, and as `segment_of` and `FileLedger` create it."""


@dataclass(frozen=True)
class FilesState:
    """The state of a source of files.

    Attributes
    ----------
    source
        The name of the source, such as ``s3://bucket/prefix/``.
    listed
        The time of the last listing that left no file for a later batch; None if there is none.
    segments
        The segments of the ledger, oldest first.
    position
        The position in the journal (S3 Metadata's table of changes) up to which it was read; None if never read.
    aside
        The list of set-aside files; None if no file is set aside.
    others
        Fields that other modules store in the state, such as the schemas of the files.
    """

    source: str
    listed: datetime | None = None
    segments: tuple[Segment, ...] = ()
    position: Mapping[str, Any] | None = None
    aside: SetAsideList | None = None
    others: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, stored: Mapping[str, Any], name: str) -> FilesState:
        """Read what `to_store` wrote; ImplausibleError for anything else."""
        fields = Fields(stored, name)
        _check_format(fields)
        for segment in fields.maps("segments"):
            _check_segment(segment)
        position = fields.map("metadata")
        position.text("uuid", None)
        position.moment("until", None)
        return cls(
            fields.text("source", longest=MAX_SOURCE),
            fields.moment("listed", None),
            tuple(stored["segments"]),
            fields.any("metadata"),
            SetAsideList.read(fields),
            {field: value for field, value in stored.items() if field not in _OF_STATE},
        )

    def to_store(self) -> dict[str, Any]:
        """Return the state as it is stored."""
        aside = None if self.aside is None else self.aside.to_store()
        given = {"metadata": self.position, "set_aside": aside}
        return {
            "kind": "files", "source": self.source, "format": FORMAT, "listed": self.listed,
            "segments": list(self.segments),
        } | {name: value for name, value in given.items() if value is not None} | dict(self.others)  # fmt: skip

    @property
    def count(self) -> int:
        """Number of objects in the ledger."""
        return sum(segment["count"] for segment in self.segments)

    @cached_property
    def set_aside(self) -> dict[str, SetAside]:
        """The files that are set aside, by key; LedgerError if the list is damaged."""
        return {} if self.aside is None else self.aside.entries(self.source)

    def with_set_aside(self, entries: Mapping[str, SetAside]) -> FilesState:
        """Return the state with another list of set-aside files; SourceError if the list is too long."""
        return replace(self, aside=SetAsideList.of(entries, self.source))

    def decided(self, keys: Iterable[str], decision: str) -> FilesState:
        """Return the state with an operator's decision about some set-aside files. The next batch carries it out.

        Parameters
        ----------
        keys
            Keys of set-aside files, relative to the source.
        decision
            RETRY or SKIP.

        Raises
        ------
        InvalidValueError
            A key is not that of a set-aside file.
        """
        entries, keys = self.set_aside, list(dict.fromkeys(keys))
        unknown = [key for key in keys if key not in entries]
        if unknown:
            raise InvalidValueError(
                f"{unknown[0]!r} is not set aside in source {self.source!r}, which has {len(entries)} such files. List "
                "them with `watermarks files JOB --set-aside`."
            )
        return self.with_set_aside({**entries, **{key: replace(entries[key], decision=decision) for key in keys}})


_OF_STATE = {"kind", "source", "format", "listed", "segments", "metadata", "set_aside"}
DIALECT = 1
"""Dialect of CSV files that a plan stores; see `reading.dialects`."""


class PlannedPartitions(NamedTuple):
    """Options of `PartitionRule` that a replay must repeat: the names of its columns, `whole` and `latest`."""

    columns: tuple[str, ...]
    whole: bool
    latest: bool

    @classmethod
    def read(cls, plan: Fields) -> PlannedPartitions | None:
        """Read what `to_store` wrote into a plan; ImplausibleError for anything else."""
        if "partitions" not in plan:
            return None
        fields = plan.map("partitions")
        return cls(fields.names("columns"), fields.flag("whole"), fields.flag("latest"))

    def to_store(self) -> dict[str, Any]:
        """Return the map that a plan stores."""
        return {"columns": list(self.columns), "whole": self.whole, "latest": self.latest}


@dataclass(frozen=True)
class FilesPlan:
    """The plan of one batch of a source of files.

    Attributes
    ----------
    source
        The name of the source, such as ``s3://bucket/prefix/``.
    segment
        The ledger rows of the batch, including gone objects; None if there are none.
    rest
        The known files that are read again, because partitions are read whole; None if there are none.
    count, bytes
        Number and size of the files to read.
    gone
        Number of objects that do not exist any more.
    has_more
        Whether a limit left files for the next batch.
    set_aside
        Number of files of the batch that cannot be read.
    partitions
        The options of a batch of partitions; None for a batch of files.
    """

    source: str
    segment: Segment | None = None
    count: int = 0
    bytes: int = 0
    has_more: bool = False
    gone: int = 0
    rest: Segment | None = None
    set_aside: int = 0
    partitions: PlannedPartitions | None = None

    @classmethod
    def read(cls, stored: Mapping[str, Any], name: str) -> FilesPlan:
        """Read what `to_store` wrote; ImplausibleError for anything else."""
        fields = Fields(stored, name)
        _check_format(fields)
        fields.whole("dialect", most=DIALECT)
        for part in ("files", "rest"):
            if part in fields:
                _check_segment(fields.map(part))
        count, size = (fields.whole(number, most=MAX_NUMBER) for number in ("count", "bytes"))
        return cls(
            fields.text("source", longest=MAX_SOURCE), fields.any("files") or None, count, size,
            fields.flag("has_more"), fields.whole("gone", 0), fields.any("rest") or None, fields.whole("set_aside", 0),
            PlannedPartitions.read(fields),
        )  # fmt: skip

    def to_store(self) -> dict[str, Any]:
        """Return the map that a frozen plan stores."""
        partitions = None if self.partitions is None else self.partitions.to_store()
        given = {"partitions": partitions, "rest": self.rest, "set_aside": self.set_aside or None}
        return {
            "kind": "files", "source": self.source, "format": FORMAT, "files": self.segment, "dialect": DIALECT,
            "count": self.count, "bytes": self.bytes, "has_more": self.has_more, "gone": self.gone,
        } | {name: value for name, value in given.items() if value is not None}  # fmt: skip

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments (stored lists of ledger rows) that the plan refers to."""
        return tuple(segment for segment in (self.segment, self.rest) if segment is not None)

    def without(self, count: int, size: int) -> FilesPlan:
        """Return the plan after `count` of its files, of `size` bytes together, were set aside as unreadable."""
        return replace(
            self, count=self.count - count, bytes=self.bytes - size, set_aside=self.set_aside + count
        )  # fmt: skip


@dataclass(frozen=True)
class PartitionState:
    """The state for `latest_partition`: the partition that a job took last, because it had the greatest value.

    Attributes
    ----------
    columns, types, value
        The partition columns, their types, and the value of each.
    files, sha256
        Number of files of the partition, and a hash of their identities.
    """

    source: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    value: tuple[Any, ...]
    files: int
    sha256: str

    @classmethod
    def read(cls, stored: Mapping[str, Any], name: str) -> PartitionState:
        """Read what `to_store` wrote; ImplausibleError for anything else."""
        fields = Fields(stored, name)
        _check_format(fields)
        columns, kinds, values = fields.names("columns"), fields.names("types"), fields.of("value", list, "a list")
        fits = [
            value is None or type(value) is _TYPE_OF_KIND.get(kind) for kind, value in zip(kinds, values, strict=False)
        ]
        if not all(fits) or not len(columns) == len(kinds) == len(values) > 0:
            raise fields.wrong("value", "a value of each of its columns")
        digest = fields.text("sha256", pattern=SHA256, what="a hash")
        return cls(
            fields.text("source", longest=MAX_SOURCE), columns, kinds, tuple(values), fields.whole("files"), digest
        )

    def to_store(self) -> dict[str, Any]:
        """Return the state as it is stored."""
        return {
            "kind": PARTITION, "source": self.source, "format": FORMAT, "columns": list(self.columns),
            "types": list(self.types), "value": list(self.value), "files": self.files, "sha256": self.sha256,
        }  # fmt: skip


Kept = TypeVar("Kept", FilesState, FilesPlan, PartitionState)
PARTITION = "partition"


def opened_state(of: type[Kept], stored: Any, source: str, context: str) -> Kept:
    """Read a state or plan of a source.

    Raises
    ------
    SourceError
        The state or plan belongs to another source.
    LedgerError
        The state or plan is damaged, or has another format.
    """
    kind, now = ("files", source) if of is not PartitionState else (PARTITION, f"the latest partition of {source}")
    found: Mapping[str, Any] = stored if isinstance(stored, Mapping) else {}
    before = found.get("kind")
    if before != kind or found.get("source") != source:
        shown = str(found.get("source", f"a source of kind {before}"))
        shown = f"all files of {shown}" if before == "files" != kind else shown
        raise SourceError(now, reason="changed", context=context, before=shown)
    written = found.get("format")
    if written != FORMAT:
        what = "file list" if kind == "files" else kind
        raise LedgerError(source, f"its stored {what} has format {written!r}, not {FORMAT}. Update the package.")
    try:
        return of.read(found, context)
    except ImplausibleError as error:
        raise damaged(source, error) from error


def damaged(source: str, error: Exception) -> LedgerError:
    """Return the error for a file list that cannot be read."""
    return LedgerError(source, f"its stored file list is damaged ({error}). Restore the job's item from a backup.")


def _check_format(fields: Fields) -> None:
    if fields.whole("format") != FORMAT:
        raise fields.wrong("format", f"{FORMAT}, which this version knows. Update the package if a newer one wrote it")


# --- segments -----------------------------------------------------------------------------------


def segment_of(files: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a segment (a part of the ledger) with its files, given in order of keys; above `FEW_FILES`, compressed."""
    count = sum(file["count"] for file in files)
    if len(files) <= FEW_FILES:
        return {"count": count, "files": files}
    return {"count": count, "packed": Blob(pack_json(files))}


def files_of(segment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the files that hold a segment (a part of the ledger); ValueError if the segment is damaged."""
    found = segment.get("files")
    if found is None:
        packed = segment.get("packed")
        # `packed` is bytes, or a Blob: a Blob has bytes that are not stored yet, or loads stored bytes only now.
        found = unpack_json(packed.data if isinstance(packed, Blob) else packed, MAX_NAMES_BYTES)
    for file in Fields({"files": found}, "segment").maps("files", MAX_FILES):
        _check_file(file)
    return [dict(file) for file in found]


def _check_segment(fields: Fields) -> None:
    fields.whole("count")
    if "data" in fields:
        fields.text("sha256", pattern=SHA256, what="a hash")
        fields.of("data", PACKED, "bytes")
    elif "packed" in fields:
        fields.of("packed", PACKED, "bytes")
    else:
        for file in fields.maps("files", MAX_FILES):
            _check_file(file)


def _check_file(fields: Fields) -> None:
    fields.text("file", pattern=LEDGER_FILE, what="the name of a file of a ledger")
    fields.whole("count")
    fields.whole("length", most=MAX_FILE_BYTES)
    fields.text("sha256", pattern=SHA256, what="a hash")
    for end in ("first", "last"):
        if not is_unicode(fields.of(end, str, "a key")):
            raise fields.wrong(end, "a key")
