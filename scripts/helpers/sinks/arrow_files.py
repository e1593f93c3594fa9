"""Write rows that come in batches as Parquet files, of which one is open at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from tempfile import TemporaryFile
from typing import Any

from scripts.helpers._lazy import pa, pq
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.rows.arrow_streams import ArrowStream, in_chunks
from scripts.helpers.sinks.places import Place

NAME = "part-{:05d}.parquet"
WRITTEN = {"coerce_timestamps": "us", "allow_truncated_timestamps": True}
GROUP = 16 * 1024 * 1024
"""Bytes in memory of what is one row group, unless a batch has more."""
FILE_BYTES = 32 * 1024 * 1024
"""A file gets no more rows once it has as many bytes: what reads staged rows has a whole file in memory."""


def write_batches(rows: pa.Table | ArrowStream, place: Place, folder: str, options: Mapping[str, Any]) -> int:
    """Write rows to files in an empty folder, through one in the temporary folder; return how many rows.

    There is always a first file. Options are those of `pyarrow.parquet.write_table`.
    """
    count = number = 0
    with closing(rows.reader() if isinstance(rows, ArrowStream) else rows.to_reader()) as reader:
        is_done = False
        while not is_done:
            with TemporaryFile() as packed:
                written, is_done = _pack(reader, packed, options)
                if written or not number:
                    packed.seek(0)
                    place.write(f"{folder}/{NAME.format(number)}", packed)
            count, number = count + written, number + 1
    return count


def _pack(reader: pa.RecordBatchReader, packed: Any, options: Mapping[str, Any]) -> tuple[int, bool]:
    """Write batches to an open file until it is full; return how many rows, and whether they were the last."""
    given, count = {**WRITTEN, **options}, 0
    size = given.pop("row_group_size", None)
    with unless_refused(options):
        writer = pq.ParquetWriter(packed, reader.schema, **given)
    with writer:
        # What a source raises passes as it is.
        for group in in_chunks(reader, GROUP):
            with unless_refused(options):
                writer.write_table(group, size)
            count += group.num_rows
            if packed.tell() >= FILE_BYTES:
                return count, False
    return count, True


@contextmanager
def unless_refused(options: Mapping[str, Any]) -> Iterator[None]:
    """Raise InvalidValueError for what pyarrow says against rows, or options."""
    try:
        yield
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidValueError(
            f"The rows cannot be written as Parquet: {str(error).splitlines()[0]}. Give each column one type"
            f"{', and check the options ' + ', '.join(options) if options else ''}."
        ) from error
