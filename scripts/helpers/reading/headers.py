"""Group CSV and Avro files by header: Spark uses one file's header for all, and drops or mixes up other columns."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from scripts.helpers._lazy import S3Client
from scripts.helpers.errors import ChangedObjectError
from scripts.helpers.listing.paths import packing
from scripts.helpers.reading.fetch import WORKERS_HERE, Planned, fetcher_of, planned_of
from scripts.helpers.reading.fetched_lines import UNKNOWN, decompressed
from scripts.helpers.reading.small_files import line_rules

if TYPE_CHECKING:
    from scripts.helpers.listing.listing import Location

HEAD = 64 * 1024
"""Bytes to fetch first from the start of a file: enough for the header of a thousand columns, even if compressed."""
_AS_A_WHOLE = ("deflate", "bz2")
"""Extensions of files whose start cannot be decompressed alone, such as half a bz2 block. They must fit into `HEAD`."""


def can_compare(location: Location, table: pa.Table) -> bool:
    """Return whether headers can be fetched: files are on S3 or local, and this module can decompress them."""
    if not (location.is_local or location.is_s3):
        return False
    for key, size in zip(table.column("key").to_pylist(), table.column("size").to_pylist(), strict=True):
        ending = packing(key)
        if ending in UNKNOWN or (ending in _AS_A_WHOLE and size > HEAD):
            return False
    return True


def grouped_by_header(
    location: Location,
    table: pa.Table,
    first_line: Callable[[bytes, bool], bytes | None],
    client: S3Client | None,
    *,
    request_payer: bool = False,
    skip_changed: bool = False,
) -> list[tuple[pa.Table, bytes]]:
    """Return the files grouped by header, each group with its header. Send one request for each file, many at once.

    The first file of a group has the header; others may be empty. A single file is not read: its header is ``b""``.

    Parameters
    ----------
    table
        The planned files, with the columns of `FileDelta.table`. The caller has checked them with `can_compare`.
    first_line
        Returns the header, given the first bytes of a file and whether these are all: `csv_header` or `avro_schema`.
        None if the header has more bytes.
    skip_changed
        Treat an overwritten or deleted file as one without a header; the later read leaves it out.

    Raises
    ------
    SourceError
        As `ObjectFetcher.fetch` raises it.
    """
    if table.num_rows < 2:
        return [(table, b"")]
    planned = list(planned_of(table))
    fetcher = fetcher_of(location, client, WORKERS_HERE, request_payer)

    def header(one: Planned) -> bytes:
        most, found = HEAD, None
        while found is None:
            try:
                start, _ = fetcher.ends(one, min(most, max(one.size, 1)), 0)
            except ChangedObjectError:
                if skip_changed:
                    return b""
                raise
            head = _unpacked(location, one.key, start, most)
            found = first_line(head, one.size <= most and len(head) < most)
            most *= 16
        return found

    groups: dict[bytes, list[int]] = {}
    with ThreadPoolExecutor(WORKERS_HERE) as pool:
        for index, line in enumerate(pool.map(header, planned)):
            groups.setdefault(line, []).append(index)
    # Files without any line have no rows and no columns, so add them to the first group.
    empty = groups.pop(b"", [])
    if not groups:
        return [(table, b"")]
    first = next(iter(groups.values()))
    first.extend(empty)
    return [(table.take(rows), line) for line, rows in groups.items()]


def _unpacked(location: Location, key: str, head: bytes, most: int) -> bytes:
    if packing(key) != "gz":
        return decompressed(location, key, head)
    found = b""
    try:
        # Decompress several members if a gzip file has them, because the first ones may be empty.
        while head and len(found) < most:
            member = zlib.decompressobj(31)  # 31 selects the gzip format.
            # The head may end in the middle of a member, which is not an error here.
            found += member.decompress(head, most)
            head = member.unused_data
    except zlib.error:
        return found or head  # Ignore a file that is not gzip. Spark raises the error when it reads the file.
    return found


def avro_schema(head: bytes, is_whole: bool) -> bytes | None:
    """Return the schema in `head`, the first bytes of an Avro file; `head` if it has none; None if `head` cuts it."""
    _, _, rest = head.partition(b"avro.schema")
    size = length = 0
    for size, byte in enumerate(rest):
        length |= (byte & 127) << 7 * size
        if byte < 128:
            break
    found = rest[size + 1 :][: length >> 1]
    return None if rest and len(found) < length >> 1 and not is_whole else found or head


def csv_header(asked: Mapping[str, str], head: bytes, is_whole: bool) -> bytes | None:
    """Return the record that Spark uses as the header: the first that is neither blank nor a comment.

    `asked` has the reader options as `lowered` returns them. None if the record has more bytes than `head`.
    """
    with suppress(LookupError):  # Python lacks some Java encodings. Then split the bytes: most have one-byte line ends.
        head = head.decode(asked.get("encoding") or asked.get("charset") or "utf-8", "backslashreplace").encode()
    lines, quotes = line_rules("csv", asked).lines(head), 0
    quote = asked.get("quote", '"').encode() if asked.get("multiline") == "true" else b""
    escaped = (asked.get("escape", "").encode() or quote) + quote
    for count, line in enumerate(lines if is_whole else lines[:-1], 1):
        quotes += line.replace(escaped, b"").count(quote)
        if not quote or quotes % 2 == 0:  # If odd, the line end is within quotes.
            return b"\n".join(lines[:count])
    return b"\n".join(lines) if is_whole else None
