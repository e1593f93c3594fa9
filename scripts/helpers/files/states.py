"""What sources of files store, checked as it is read: states, plans, and the segments that both refer to. Pure.

Without pyarrow: commands read and change states where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

from scripts.helpers.errors import LedgerError, SourceChangedError
from scripts.helpers.files.set_aside import PACKED, check_set_aside
from scripts.helpers.listing.paths import is_unicode
from scripts.helpers.protocol.chunks import Blob
from scripts.helpers.protocol.fields import MAX_NUMBER, SHA256, YEARS, Fields
from scripts.helpers.protocol.packed_json import pack_json, unpack_json

FORMAT = 1
"""Of what is stored. Another one is refused: its rules are not known here."""
MAX_SOURCE = 8_192
"""Characters of a source's name: a path has 4,096 bytes at most."""
FEW_FILES = 4
"""Names of more files than this are stored as one value: a watermark holds 2,000 entries at most."""
MAX_FILES, MAX_NAMES_BYTES = 1_000_000, 64 * 1024 * 1024
"""Files of a segment, and most text that their packed names may unfold to: damaged ones must not fill the memory."""
MAX_FILE_BYTES = 1024 * 1024 * 1024
"""Of one file of a ledger: it has half a million rows at most."""
LEDGER_FILE = r"[0-9a-f]{32}\.parquet"
"""What `SegmentFiles.put` calls a file. Any other name could be a path to a file of somebody else."""
_OF_KIND = {"string": str, "int": int, "bigint": int, "date": date}


def of_source(stored: Any, kind: str, source: str, context: str, now: str) -> Mapping[str, Any]:
    """Return a state or plan that is of a source; SourceChangedError, or LedgerError for one of another format."""
    fields: Mapping[str, Any] = stored if isinstance(stored, Mapping) else {}
    before = fields.get("kind")
    if before != kind or fields.get("source") != source:
        shown = str(fields.get("source", f"a source of kind {before}"))
        raise SourceChangedError(context, f"all files of {shown}" if before == "files" != kind else shown, now)
    written = fields.get("format")
    if written != FORMAT:
        what = "file list" if kind == "files" else kind
        raise LedgerError(source, f"its stored {what} has format {written!r}, not {FORMAT}. Update the package.")
    return fields


def state_of(
    source: str,
    listed: datetime | None,
    segments: Sequence[Mapping[str, Any]],
    position: Mapping[str, Any] | None = None,
    floor: datetime | None = None,
) -> dict[str, Any]:
    """Return what a state stores of a source, besides its list of what is set aside."""
    found = {"kind": "files", "source": source, "format": FORMAT, "listed": listed, "segments": segments}
    return found | {name: value for name, value in {"floor": floor, "metadata": position}.items() if value is not None}


def check_files_state(stored: Mapping[str, Any], name: str) -> None:
    """Raise ImplausibleError for a state that is not one of `state_of`."""
    fields = Fields(stored, name)
    _check_format(fields)
    fields.text("source", longest=MAX_SOURCE)
    fields.moment("listed", None)
    # Of earlier versions: just below the oldest file that was left, which may be stamped with any year.
    fields.moment("floor", None, range(1, YEARS.stop))
    for segment in fields.maps("segments"):
        _check_segment(segment)
    check_set_aside(fields)
    position = fields.map("metadata")
    position.text("uuid", None)
    position.moment("until", None)


DIALECT = 1
"""Of a plan's CSV: that of `reading.dialects`. A plan without one is older, and is read by Spark's defaults."""


def plan_of(source: str, segment: Mapping[str, Any] | None, **counts: int) -> dict[str, Any]:
    """Return what a frozen plan stores of a batch, with the segment of its rows and its counts."""
    return {"kind": "files", "source": source, "format": FORMAT, "files": segment, "dialect": DIALECT, **counts}


def check_files_plan(stored: Mapping[str, Any], name: str) -> None:
    """Raise ImplausibleError for a plan that is not one of `plan_of`, with what partitions and lists add to it."""
    fields = Fields(stored, name)
    _check_format(fields)
    fields.map("partitions").flag("whole")
    fields.text("source", longest=MAX_SOURCE)
    for part in ("files", "rest"):
        if part in fields:
            _check_segment(fields.map(part))
    for count in ("count", "bytes"):
        fields.whole(count, most=MAX_NUMBER)
    for count in ("gone", "set_aside", "dialect"):
        fields.whole(count, 0)
    fields.flag("has_more")


def _check_format(fields: Fields) -> None:
    if fields.whole("format") != FORMAT:
        raise fields.wrong("format", f"{FORMAT}, which this version knows. Update the package if a newer one wrote it")


def check_partition(stored: Mapping[str, Any], name: str) -> None:
    """Raise ImplausibleError for a state that is not one of `LatestPartition`."""
    fields = Fields(stored, name)
    _check_format(fields)
    fields.text("source", longest=MAX_SOURCE)
    kinds, values = fields.names("types"), fields.of("value", list, "a list")
    fits = [value is None or type(value) is _OF_KIND.get(kind) for kind, value in zip(kinds, values, strict=False)]
    if not all(fits) or not len(fields.names("columns")) == len(kinds) == len(values) > 0:
        raise fields.wrong("value", "a value of each of its columns")
    fields.whole("files")
    fields.text("sha256", pattern=SHA256, what="a hash")


# --- segments -----------------------------------------------------------------------------------


def segment_of(files: list[dict[str, Any]]) -> dict[str, Any]:
    """Make a segment of files in the order of their keys; the names of many files are packed."""
    count = sum(file["count"] for file in files)
    if len(files) <= FEW_FILES:
        return {"count": count, "files": files}
    return {"count": count, "packed": Blob(pack_json(files))}


def files_of(segment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the files of a segment; ValueError if it is damaged."""
    found = segment.get("files")
    if found is None:
        packed = segment.get("packed")
        # Made by this run and not stored yet, or read when it is needed; a small one is bytes in the state.
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
