"""Write a stream of rows to Parquet files, one file at a time, or copy it to a temporary file that is read later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from io import BytesIO
from tempfile import TemporaryFile, gettempdir
from typing import Any, NamedTuple

from scripts.helpers._lazy import pa, pq
from scripts.helpers.errors import AccessRefusedError, InvalidValueError
from scripts.helpers.rows.arrow_streams import ArrowStream, joined_batches
from scripts.helpers.sinks.places import Place

NAME = "part-{:05d}.parquet"
WRITTEN = {"coerce_timestamps": "us", "allow_truncated_timestamps": True}
GROUP = 16 * 1024 * 1024
"""Bytes in memory of one row group, unless a single batch has more."""
FILE_BYTES = 32 * 1024 * 1024
"""The size from which a file gets no more rows, because readers of staged rows hold a whole file in memory."""


FOOTER_BYTES = 64 * 1024
"""How many bytes of a file's end are read first. If the footer is longer, these bytes show its length."""


class WrittenFiles(NamedTuple):
    """The number of rows written, and the size in bytes of each file by name: the folder need not be listed."""

    rows: int
    sizes: dict[str, int]


def write_batches(rows: pa.Table | ArrowStream, place: Place, folder: str, options: Mapping[str, Any]) -> WrittenFiles:
    """Write rows to Parquet files in an empty folder. Each file is first written to a local temporary file.

    Without rows, one file is written. `options` are those of `pyarrow.parquet.write_table`.
    """
    count, sizes = 0, dict[str, int]()
    with closing(rows.reader() if isinstance(rows, ArrowStream) else rows.to_reader()) as reader:
        is_done = False
        while not is_done:
            with _temporary() as packed:
                written, size, is_done = _pack(reader, packed, options)
                if written or not sizes:
                    name = f"{folder}/{NAME.format(len(sizes))}"
                    place.write(name, packed)
                    sizes[name] = size
            count += written
    return WrittenFiles(count, sizes)


def footer_in(read: Callable[[int], bytes]) -> BytesIO:
    """Return the end of a Parquet file, with the whole footer. `read(n)` must return the last n bytes of the file."""
    data = read(FOOTER_BYTES)
    size = int.from_bytes(data[-8:-4], "little") + 8
    return BytesIO(data if size <= len(data) else read(size))


def statistics_by_column(footer: pq.FileMetaData) -> Iterator[tuple[str, list[Any]]]:
    """Yield the path of each column of a Parquet file, with the column's statistics in each row group."""
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    for at in range(footer.num_columns):
        yield footer.schema.column(at).path, [group.column(at).statistics for group in groups]


def has_both_bounds(statistics: Any) -> bool:
    """Return whether a row group's statistics have both bounds of its values: one of over 4 KB is not stored."""
    if statistics is None or not statistics.num_values:
        return statistics is not None
    # Before pyarrow 18, `has_min_max` is true even if only one bound is stored, and the other one reads as empty.
    return bool(statistics.has_min_max and (pa.__version__ >= "18" or statistics.max not in ("", b"")))


@contextmanager
def spooled_to_file(rows: ArrowStream) -> Iterator[pa.RecordBatchReader]:
    """Copy all rows to a temporary file, and open a reader of that file.

    So the source is read to its end before the caller writes: in SQLite, a read and a write would block each other.
    """
    with _temporary() as file:
        with translate_refusals({}):
            writer = pa.ipc.new_stream(file, rows.schema)
        with closing(rows.reader()) as reader:
            for batch in reader:
                with translate_refusals({}):
                    writer.write_batch(batch)
        with translate_refusals({}):
            writer.close()
            file.seek(0)
        with pa.ipc.open_stream(file) as there:
            yield there


@contextmanager
def _temporary() -> Iterator[Any]:
    packed = TemporaryFile()  # noqa: SIM115 - it is closed below, and errors of the close are ignored
    try:
        yield packed
    finally:
        # `close` writes what is still in the buffer. Ignore its error: if the disk is full, `_pack` has raised already.
        with suppress(OSError):
            packed.close()


def _pack(reader: pa.RecordBatchReader, packed: Any, options: Mapping[str, Any]) -> tuple[int, int, bool]:
    """Write rows to an open file up to `FILE_BYTES`. Return its rows and bytes, and whether `reader` is at its end."""
    given, count, is_done = {**WRITTEN, **options}, 0, False
    size = given.pop("row_group_size", None)
    with translate_refusals(options):
        writer = pq.ParquetWriter(packed, reader.schema, **given)
    with writer:
        # Translate only errors of the writer. Errors of the source, which `reader` raises, stay unchanged.
        for group in joined_batches(reader, size, len) if isinstance(size, int) else joined_batches(reader, GROUP):
            with translate_refusals(options):
                writer.write_table(group, size)
            count += group.num_rows
            if packed.tell() >= FILE_BYTES:
                break
        else:
            is_done = True
        with translate_refusals(options):
            writer.close()
            written = packed.tell()
            packed.seek(0)
    return count, written, is_done


@contextmanager
def translate_refusals(options: Mapping[str, Any]) -> Iterator[None]:
    """Raise InvalidValueError if pyarrow refuses rows or options, AccessRefusedError if the temporary disk is full."""
    try:
        yield
    except OSError as error:
        raise AccessRefusedError("write to", gettempdir()) from error
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidValueError(
            f"The rows cannot be written as Parquet: {str(error).splitlines()[0]}. Give each column one type"
            f"{', and check the options ' + ', '.join(options) if options else ''}."
        ) from error
