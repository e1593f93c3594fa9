"""CSV files by their headers: Spark takes the header of one file for all, and the values of the others by position."""

from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa

from scripts.helpers.listing.paths import suffix
from scripts.helpers.listing.s3 import make_client
from scripts.helpers.reading.fetch import ObjectFetcher, Planned

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from scripts.helpers.listing.listing import Location

WORKERS = 16
HEAD = 64 * 1024
"""Bytes at the start of a file that are fetched: the header of a thousand columns, also where it is compressed."""
_UNKNOWN = ("zst", "snappy", "lz4", "deflate", "bz2")
"""Endings of compressions that are not undone here; a block of bz2 is longer than what is fetched."""


def by_header(
    location: Location, table: pa.Table, comment: str | None, client: S3Client | None, request_payer: bool = False
) -> list[pa.Table] | None:
    """Return the files in groups of the same header, with one request for each file, many at once.

    Parameters
    ----------
    table
        The planned files, with the columns of `FileDelta.table`.
    comment
        How lines begin that are none, as Spark's option says.

    Returns
    -------
    list of pyarrow.Table or None
        None where headers cannot be fetched here: of other stores than S3 and local directories, and of files in a
        compression that is not undone here.

    Raises
    ------
    SourceError
        As `ObjectFetcher.fetch`.
    """
    keys = table.column("key").to_pylist()
    if table.num_rows < 2:
        return [table]
    if not (location.is_local or location.is_s3) or any(suffix(key) in _UNKNOWN for key in keys):
        return None
    planned = list(map(Planned, *(table.column(name).to_pylist() for name in Planned._fields)))
    client = client if location.is_local or client else make_client(WORKERS)
    fetcher = ObjectFetcher(location, client, request_payer)

    def header(one: Planned) -> bytes:
        start, _ = fetcher.ends(one, min(HEAD, max(one.size, 1)), 0)
        return _first_line(_unpacked(one.key, start), comment)

    groups: dict[bytes, list[int]] = {}
    with ThreadPoolExecutor(WORKERS) as pool:
        for index, line in enumerate(pool.map(header, planned)):
            groups.setdefault(line, []).append(index)
    # Files without any line have no rows, and would have no columns.
    empty = groups.pop(b"", [])
    if not groups:
        return [table]
    first = next(iter(groups.values()))
    first.extend(empty)
    return [table.take(sorted(rows)) for rows in groups.values()]


def _unpacked(key: str, head: bytes) -> bytes:
    if suffix(key) != "gz":
        return head
    try:
        # 31 is gzip. What is cut off at the end of the head is not asked for.
        return zlib.decompressobj(31).decompress(head, HEAD)
    except zlib.error:
        return head  # It is no such file. Spark's reader says so, when it comes to it.


def _first_line(head: bytes, comment: str | None) -> bytes:
    """Return the first line that Spark takes for a header: not empty, and no comment."""
    for line in head.removeprefix(b"\xef\xbb\xbf").splitlines():
        is_comment = bool(comment) and line.startswith(str(comment).encode())
        if line.strip() and not is_comment:
            return line
    return b""
