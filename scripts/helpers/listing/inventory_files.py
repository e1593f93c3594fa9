"""The data files of an S3 Inventory (CSV, Parquet) as Arrow rows of LISTED. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO
from urllib.parse import unquote_plus

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers.errors import SourceError
from scripts.helpers.listing.objects import LISTED

FORMATS = ("CSV", "Parquet")
NEEDED = {"key": "Key", "size": "Size", "e_tag": "ETag", "last_modified_date": "LastModifiedDate"}
"""Columns that a listing cannot do without: as Parquet files name them, and as a CSV schema does."""
OPTIONAL = {
    "version_id": "VersionId",
    "is_latest": "IsLatest",
    "is_delete_marker": "IsDeleteMarker",
    "storage_class": "StorageClass",
}
BATCH_ROWS = 64 * 1024
"""Rows of a report that are in memory at once: with keys of 1,024 bytes, the longest, 64 MB of them."""
MAX_TEXT = 1_024
"""Bytes of a key, as of S3. What else a report says in words is shorter."""
MAX_COLUMN_BYTES = 1024 * 1024 * 1024
"""Of one column in a row group of Parquet, decompressed: a file of a few kilobytes may unfold to any size."""

_TIME = LISTED.field("modified").type
_TYPES = {
    **dict.fromkeys(("key", "e_tag", "version_id", "storage_class"), pa.string()),
    **dict.fromkeys(("is_latest", "is_delete_marker"), pa.bool_()),
    "size": pa.int64(),
    "last_modified_date": _TIME,
}
_FIELDS = {
    "key": "key",
    "etag": "e_tag",
    "version_id": "version_id",
    "size": "size",
    "modified": "last_modified_date",
    "storage_class": "storage_class",
}


def csv_columns(file_schema: str) -> list[str]:
    """Return the columns of a CSV inventory, in their order, under the names that Parquet uses."""
    known = {shown: name for name, shown in (NEEDED | OPTIONAL).items()}
    return [known.get(shown, shown) for shown in re.split(r"\s*,\s*", file_schema.strip())]


def columns_to_read(source: str, names: Sequence[str]) -> list[str]:
    """Return which of a file's columns make a listing.

    Raises
    ------
    SourceError
        Columns are missing, named as the inventory's configuration names them.
    """
    missing = [shown for name, shown in NEEDED.items() if name not in names]
    if "version_id" in names and "is_latest" not in names:
        missing.append(OPTIONAL["is_latest"])
    if missing:
        raise SourceError(
            source,
            f"the inventory has no {', '.join(missing)}. Add what is missing to the fields of the inventory's "
            "configuration, and wait for the next report.",
        )
    return [name for name in (*NEEDED, *OPTIONAL) if name in names]


def read_listed(
    file: BinaryIO, file_format: str, file_schema: str, source: str, prefix: str
) -> Iterator[pa.RecordBatch]:
    """Read one data file batch by batch, and leave only current objects below a prefix.

    Parameters
    ----------
    file
        The whole file, seekable.
    file_format, file_schema
        As the manifest says; the format is one of FORMATS.
    source
        Name of the inventory, for error texts.
    prefix
        What keys begin with; the keys of the result are relative to it.

    Raises
    ------
    SourceError
        Columns are missing.
    ValueError, OSError, pyarrow.ArrowException
        The file is not what its format says, or a row lacks its key, size, ETag or time.
    """
    batches = _read_csv(file, csv_columns(file_schema), source) if file_format == "CSV" else _read_parquet(file, source)
    for batch in batches:
        listed = _to_listed(batch, prefix)
        if listed.num_rows:
            yield listed


def _read_csv(file: BinaryIO, names: list[str], source: str) -> Iterator[pa.RecordBatch]:
    from pyarrow import csv

    wanted = columns_to_read(source, names)
    stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "gzip")
    # Arrow refuses a CSV of no bytes, and a data file without rows is sound.
    if not stream.read(1):
        return
    file.seek(0)
    reader = csv.open_csv(
        pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "gzip"),
        read_options=csv.ReadOptions(column_names=names),
        convert_options=csv.ConvertOptions(
            include_columns=wanted,
            column_types={name: _TYPES[name] for name in wanted},
            null_values=[""],
            strings_can_be_null=True,
            true_values=["true", "TRUE", "True"],
            false_values=["false", "FALSE", "False"],
        ),
    )
    key = wanted.index("key")
    for batch in reader:
        yield batch.set_column(key, "key", _decoded(batch.column(key)))


def _decoded(keys: pa.Array) -> pa.Array:
    """Decode keys. In a CSV inventory they are URL-encoded as in a listing: a space is a plus."""
    if not pc.any(pc.match_substring_regex(keys, "[%+]")).as_py():
        return keys
    decoded: list[str | None] = []
    for key in keys.to_pylist():
        # Strict: a replacement character in a key would name another object, or none.
        decoded.append(None if key is None else unquote_plus(key, errors="strict"))
    return pa.array(decoded, pa.string())


def _read_parquet(file: BinaryIO, source: str) -> Iterator[pa.RecordBatch]:
    from pyarrow import parquet

    # Texts stay in dictionaries. A text that is written once and referred to by each row takes a few bytes of the file,
    # and any amount of memory where it is written out: so its length is looked at first.
    metadata = parquet.read_metadata(file)
    wanted = columns_to_read(source, metadata.schema.names)
    texts = [name for name in wanted if _TYPES[name] == pa.string()]
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in wanted and column.total_uncompressed_size > MAX_COLUMN_BYTES:
                raise ValueError(
                    f"column {column.path_in_schema!r} of row group {number} takes {column.total_uncompressed_size:,} "
                    f"bytes, and the limit is {MAX_COLUMN_BYTES:,}"
                )
    file.seek(0)
    opened = parquet.ParquetFile(file, metadata=metadata, read_dictionary=texts)
    for batch in opened.iter_batches(batch_size=BATCH_ROWS, columns=wanted):
        yield pa.record_batch([_written_out(batch, name) for name in batch.schema.names], batch.schema.names)


def _written_out(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(name)
    if not isinstance(column, pa.DictionaryArray):
        return column
    longest = pc.max(pc.binary_length(column.dictionary)).as_py() or 0
    if longest > MAX_TEXT:
        raise ValueError(f"a text of column {name!r} has {longest:,} bytes, and the limit is {MAX_TEXT:,}")
    return column.dictionary_decode()


def _to_listed(batch: pa.RecordBatch, prefix: str) -> pa.RecordBatch:
    columns: dict[str, Any] = {name: batch.column(name).cast(_TYPES[name]) for name in batch.schema.names}
    # What is null counts as a current object. A row without key stays, so that the check below reports it:
    # dropped here, its object would be missed without a word.
    kept = pc.fill_null(pc.starts_with(columns["key"], prefix), True)
    if "is_latest" in columns:
        kept = pc.and_(kept, pc.fill_null(columns["is_latest"], True))
    if "is_delete_marker" in columns:
        kept = pc.and_not(kept, pc.fill_null(columns["is_delete_marker"], False))
    columns = {name: column.filter(kept) for name, column in columns.items()}
    # Checked after the filter: a delete marker has neither size nor ETag, and is no damage.
    for name, shown in NEEDED.items():
        if columns[name].null_count:
            row = pc.index(columns[name].is_null(), True).as_py()
            raise ValueError(f"the row of key {columns['key'][row].as_py()!r} has no {shown}")
    count = len(columns["key"])
    columns["key"] = pc.utf8_slice_codeunits(columns["key"], len(prefix))
    columns["e_tag"] = pc.utf8_trim(columns["e_tag"], '"')
    listed = []
    for field, name in _FIELDS.items():
        if name in columns:
            listed.append(columns[name])
        else:
            listed.append(pa.nulls(count, LISTED.field(field).type))
    return pa.record_batch(listed, schema=LISTED)
