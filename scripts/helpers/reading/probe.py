"""Look at both ends of each planned file to find unreadable ones, before Spark reads any.

A file is reported only if Spark's reader of the format cannot read it. Other damage, such as a damaged page in the
middle, is found only when Spark reads the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa

from scripts.helpers._lazy import S3Client, pq
from scripts.helpers.errors import (
    ADVICE,
    DAMAGE,
    ArchivedObjectError,
    ChangedObjectError,
    MisfitError,
    UnreadableObjectError,
)
from scripts.helpers.listing.paths import packing
from scripts.helpers.reading.fetch import WORKERS_HERE, Planned, fetcher_of, planned_of
from scripts.helpers.reading.fetched_lines import GZIP, NAMED_WRONG
from scripts.helpers.reading.misfits import narrowed
from scripts.helpers.schemas.frames import kind_of_arrow, nested_kind
from scripts.helpers.schemas.kinds import Columns, Kind, is_number, narrowed_numbers

if TYPE_CHECKING:
    from scripts.helpers.listing.listing import Location

FOOTER = 64 * 1024
"""Bytes to fetch from the end of a Parquet file. Most footers are smaller; for a larger footer only the end of the
file is checked."""
ORC_TAIL = 256
"""Bytes to fetch from the end of an ORC file: its postscript is shorter, as one byte stores its length."""
GONE, OVERWRITTEN, ARCHIVED = "it is not there any more", "it was overwritten since it was planned", "it is archived"
FORBIDDEN = {"403", "AccessDenied", "Forbidden", "Permission denied"}
_OF_OBJECT = ("InvalidRequest", "400", "BadRequest")
"""S3's error codes for an object whose encryption needs a key in the request. HeadObject returns only 400."""
_PACKED = {"gz": b"\x1f\x8b", "bz2": b"BZh"}
"""The first bytes of compressed files, by the extension for which Hadoop decompresses them."""
_UNSIGNED = {"uint8": "short", "uint16": "integer", "uint32": "long", "uint64": "decimal(20,0)"}
"""The types that Spark infers for whole numbers without a sign."""
_TEXT_FORMATS = ("csv", "json", "text", "xml")

Reasons = dict[str, str]
"""The reason why each unreadable file cannot be read, by key."""


def probe(
    location: Location, table: pa.Table, format: str, client: S3Client | None, request_payer: bool = False
) -> Reasons:
    """Check each planned file with one request, or two if both ends matter; many files at once.

    Finds files that are deleted, overwritten, archived or forbidden to this login, Parquet files without a complete
    footer, and files of ORC, Avro and compressed text without the bytes that mark their format. Checks only S3 and
    local directories.

    Parameters
    ----------
    table
        The planned files, with the columns of `FileDelta.table`.
    format
        The format of Spark's or pandas' reader.

    Raises
    ------
    CredentialsError, SourceUnavailableError
        The credentials have expired, S3 cannot be reached, or it throttles requests. No file is to blame.
    SourceError
        A check failed for another reason that no file causes.
    """
    if not location.is_local and not location.is_s3:
        return {}
    planned = list(planned_of(table))
    fetcher = fetcher_of(location, client, WORKERS_HERE, request_payer)

    def look(one: Planned) -> str | None:
        first, last, judge = _rule(format, one.key)
        try:
            start, end = fetcher.ends(one, first, last)
        except (ChangedObjectError, ArchivedObjectError, UnreadableObjectError) as error:
            return why(error)
        # Accept an empty file, as Spark's readers do, which return no rows for it.
        return judge(start, end) if one.size else None

    with ThreadPoolExecutor(WORKERS_HERE) as pool:
        found = dict(zip([one.key for one in planned], pool.map(look, planned), strict=True))
    return {key: reason for key, reason in found.items() if reason is not None}


def why(error: ChangedObjectError | ArchivedObjectError | UnreadableObjectError) -> str:
    """Return in a few words why an object cannot be read. Raise the error again if the object did not cause it."""
    if isinstance(error, ChangedObjectError):
        return GONE if error.deleted else OVERWRITTEN
    if isinstance(error, ArchivedObjectError):
        return ARCHIVED
    if error.cause in FORBIDDEN:
        return f"it is forbidden to this login ({error.cause})"
    if error.cause.startswith("KMS."):
        return f"its key cannot be used ({error.cause})"
    if error.cause in _OF_OBJECT:
        return f"S3 refuses it ({error.cause}), as it does where it is encrypted with a key of the customer (SSE-C)"
    # Raise any other error, such as NoSuchBucket or a wrong region, because it affects every file.
    raise error


Judge = Callable[[bytes, bytes], "str | None"]


def _rule(format: str, key: str) -> tuple[int, int, Judge]:
    """Return how many first and last bytes to fetch, and a function that returns what is wrong with them, or None."""
    if format == "parquet":
        return 0, FOOTER, _parquet
    if format == "orc":
        return 3, ORC_TAIL, _orc
    if format == "avro":
        return 4, 0, lambda start, _: None if start == b"Obj\x01" else "it is not an avro file"
    magic = _PACKED.get(packing(key)) if format in _TEXT_FORMATS else None
    if magic is not None:
        return len(magic), 0, lambda start, _: None if start == magic else f"it is not a {packing(key)} file"
    if format in _TEXT_FORMATS:
        return len(GZIP), 0, lambda start, _: NAMED_WRONG if start == GZIP else None
    # Fetch one byte: HeadObject would be enough, but its errors have no text with the reason.
    return 1, 0, lambda start, _: None


def _parquet(_: bytes, end: bytes) -> str | None:
    if end[-4:] == b"PARE":
        return None  # Accept encrypted files: only the reader can find out if the key is available.
    if end[-4:] != b"PAR1" or len(end) < 12:
        return "it is not a complete parquet file: it has no footer"
    length = int.from_bytes(end[-8:-4], "little")
    if length + 8 > len(end):
        return None if len(end) == FOOTER else "it is not a complete parquet file: its footer is cut off"
    try:
        _metadata(end[-8 - length :])
    except (*DAMAGE, pa.ArrowException):
        # Catch Python's own errors too (DAMAGE), because pandas registers types whose code reads parts of the footer.
        return "it is not a complete parquet file: its footer is damaged"
    return None


def _metadata(footer: bytes) -> pq.FileMetaData:
    # Pass only the footer: the reader looks for it at the end of the buffer, as if the buffer were the whole file.
    return pq.read_metadata(pa.BufferReader(b"PAR1" + footer))


def _footers(
    location: Location, table: pa.Table, client: S3Client | None, request_payer: bool
) -> Iterator[tuple[str, pq.FileMetaData]]:
    """Yield the key and the footer of each planned Parquet file, except footers that are damaged or encrypted."""
    fetcher = fetcher_of(location, client, WORKERS_HERE, request_payer)

    def look(one: Planned) -> pq.FileMetaData | None:
        end = fetcher.ends(one, 0, 8)[1]
        if end[4:] != b"PAR1":
            return None
        try:
            return _metadata(fetcher.ends(one, 0, int.from_bytes(end[:4], "little") + 8)[1])
        except (*DAMAGE, pa.ArrowException):
            return None

    planned = [one for one in planned_of(table) if one.size]
    with ThreadPoolExecutor(WORKERS_HERE) as pool:
        for one, footer in zip(planned, pool.map(look, planned), strict=True):
            if footer is not None:
                yield one.key, footer


def check_numbers(
    location: Location, table: pa.Table, given: Columns, client: S3Client | None, request_payer: bool = False
) -> None:
    """Raise MisfitError if a schema has a number type too narrow for a Parquet column: Spark would wrap the values."""
    for key, footer in _footers(location, table, client, request_payer):
        try:
            found = footer.schema.to_arrow_schema()
        except (*DAMAGE, pa.ArrowException):
            continue  # Let Spark read the file: it does not use the Arrow schema in the footer, which is damaged here.
        columns = {field.name: nested_kind(field.type, _inferred) for field in found}
        for path, asked, kind in narrowed_numbers(given, columns):
            if is_number(kind):
                raise narrowed(str(location), path, key, kind, asked)


def _inferred(kind: pa.DataType) -> Kind:
    """Return the type that Spark infers for a Parquet column of a pyarrow type that is not nested."""
    return _UNSIGNED.get(str(kind)) or kind_of_arrow(str(kind))


def nanosecond_columns(
    location: Location, table: pa.Table, client: S3Client | None, request_payer: bool = False
) -> dict[str, bool]:
    """Return the columns with times in nanoseconds in planned Parquet files, and whether each is in UTC.

    Raises
    ------
    MisfitError
        A column has nanoseconds in some files only, or inside a struct, a list or a map.
    """

    def mixed(key: str, name: str, why: str) -> MisfitError:
        detail = f"key {key!r} has times {name!r}, {why}. Read them by nanoseconds='bigint'. Or: {ADVICE.get().part}"
        return MisfitError(str(location), name, "timestamp", detail=detail)

    columns: dict[str, bool | None] = {}
    for key, footer in _footers(location, table, client, request_payer):
        for column in map(footer.schema.column, range(len(footer.schema))):
            kind = json.loads(column.logical_type.to_json())
            is_time = kind["Type"] == "Timestamp" and kind["timeUnit"] == "nanoseconds"
            if is_time and column.path != column.name:
                raise mixed(key, column.path, "which have nanoseconds within another column")
            is_utc = bool(kind["isAdjustedToUTC"]) if is_time else None
            if columns.setdefault(column.path, is_utc) != is_utc:
                raise mixed(key, column.name, "which are of another type in files before it")
    return {name: is_utc for name, is_utc in columns.items() if is_utc is not None}


def _orc(start: bytes, end: bytes) -> str | None:
    # Look for the mark ORC at both ends: files of Hive 0.11 have it only at the start.
    length = end[-1] if end else 0
    return None if start == b"ORC" or b"ORC" in end[-1 - length :] else "it is not an orc file"


def keys_named_in(text: str, keys: Sequence[str]) -> list[str]:
    """Return the keys that the text of an error names, literally or URL-encoded."""
    from urllib.parse import quote, unquote

    plain = unquote(text)
    return [key for key in keys if key in text or key in plain or quote(key) in text]
