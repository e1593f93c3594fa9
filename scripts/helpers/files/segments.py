"""What a bookmark remembers, as bytes: immutable segments of rows, small ones as JSON, large ones as Parquet. Pure."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers._lazy import pq
from scripts.helpers.listing.objects import LEDGER, column_of, newest_rows
from scripts.helpers.protocol.packed_json import pack_json, unpack_json

MAY_BE_NULL = ("etag", "version_id")
SMALL_ROWS = 200
"""Fewer rows than this take less room as JSON than with the footer of a Parquet file."""
MAX_JSON_BYTES = 4 * 1024 * 1024
"""Most text that a segment of so few rows may unfold to: keys have 1,024 bytes at most."""
ROW_GROUP = 100_000
"""Rows of a row group of larger ones: others, such as Athena, read those groups only that may hold a key."""
MERGE_FACTOR = 2
"""A segment is merged into the one before it, unless that has more than so many times its rows. So each has less than
half of the one before: there are few, and a row is written again only when the rows have about doubled."""


def to_bytes(rows: pa.Table, parquet: bool = False) -> bytes:
    """Write rows of schema LEDGER, sorted by key."""
    rows = rows.sort_by("key")
    if rows.num_rows >= SMALL_ROWS or parquet:
        return _to_parquet(rows)
    columns: dict[str, Any] = {}
    for name in LEDGER.names:
        column = rows.column(name)
        if name == "modified":
            column = column.cast(pa.int64())  # Microseconds: JSON has no times.
        values = column.to_pylist()
        # One value for all rows is written once, such as the run. Never so the key: its list shows how many rows.
        columns[name] = values[0] if name != "key" and len(set(values)) == 1 else values
    return pack_json(columns)


def _to_parquet(rows: pa.Table) -> bytes:
    """Write a file that Spark 3.3, Athena and DuckDB read: keys as differences, the rest with zstd."""
    out = io.BytesIO()
    pq.write_table(
        rows.cast(LEDGER), out, compression="zstd", row_group_size=ROW_GROUP,
        use_dictionary=["status", "version", "run_id"], column_encoding={"key": "DELTA_BYTE_ARRAY"},
    )  # fmt: skip
    return out.getvalue()


def from_bytes(data: bytes, keys: pa.Array | None = None) -> pa.Table:
    """Read what `to_bytes` wrote, or the rows of some keys. ValueError if it is anything else."""
    try:
        if data[:4] == b"PAR1":
            # Not read_table: that takes several times as long here, and leaves chunks that are copied to be joined.
            file = pq.ParquetFile(pa.BufferReader(data))
            _check_columns(file.schema_arrow.names)
            rows = file.read() if keys is None else _rows_of(file, keys)
            return _checked(rows.cast(LEDGER))
        columns = unpack_json(data, MAX_JSON_BYTES)
        _check_columns(list(columns))
        count = len(columns["key"])
        given = {name: values if isinstance(values, list) else [values] * count for name, values in columns.items()}
        rows = pa.table([column_of(given[field.name], field.type) for field in LEDGER], schema=LEDGER)
        return _checked(rows if keys is None else rows.filter(pc.is_in(rows.column("key"), value_set=keys)))
    except (pa.ArrowException, KeyError, TypeError, AttributeError, OverflowError, RecursionError, OSError) as error:
        raise ValueError(f"not a segment of a file list ({type(error).__name__})") from error


def _rows_of(file: pq.ParquetFile, keys: pa.Array) -> pa.Table:
    """Read the rows of some keys: of most row groups their keys alone, as few have any of them."""
    found = [file.schema_arrow.empty_table()]
    for group in range(file.num_row_groups):
        is_among = pc.is_in(file.read_row_group(group, ["key"]).column("key"), value_set=keys)
        if pc.any(is_among, min_count=0).as_py():
            found.append(file.read_row_group(group).filter(is_among))
    return pa.concat_tables(found)


def _check_columns(names: Sequence[str]) -> None:
    if list(names) != LEDGER.names:
        raise ValueError(f"its columns are {', '.join(names)}")


def _checked(rows: pa.Table) -> pa.Table:
    """Return rows that have what each of them must have."""
    missing = [name for name in LEDGER.names if name not in MAY_BE_NULL and rows.column(name).null_count]
    if missing:
        raise ValueError(f"{missing[0]} is missing in a row")
    # Texts of a Parquet file may be no UTF-8, which Arrow does not ask about on its own.
    rows.validate(full=True)
    # A time that Python cannot hold would be an OverflowError wherever somebody looks at it. Without its zone, or Arrow
    # imports pandas.
    pc.min_max(rows.column("modified").cast(pa.timestamp("us"))).as_py()
    return rows


def checksum(data: bytes) -> str:
    """Return the hash that is stored beside a segment."""
    return hashlib.sha256(data).hexdigest()


def merges(counts: Sequence[int]) -> int:
    """Return how many segments at the end become one, given the rows of each, oldest first.

    As in a log-structured merge tree, sizes fall from old to new, so that there are few segments and
    each row is written again a logarithmic number of times.
    """
    taken, total = 1, counts[-1]
    for before in reversed(counts[:-1]):
        if before > MERGE_FACTOR * total:
            break
        total += before
        taken += 1
    return taken


def merged_segments(tables: Sequence[pa.Table], oldest: bool) -> pa.Table:
    """Merge neighbours, oldest first: the last row of each key, and no objects that are gone if nothing is older."""
    return newest_rows(reversed(tables), with_gone=not oldest).sort_by("key")
