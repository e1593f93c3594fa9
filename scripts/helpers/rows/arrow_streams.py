"""Rows that are read in Arrow batches, with only a few batches in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from operator import attrgetter
from typing import Any

from scripts.helpers._lazy import pa


class ArrowStream:
    """Rows that are read lazily, batch by batch; each reading reads the source again.

    Tools that read Arrow's stream interface, such as ``polars.from_arrow`` and DuckDB, can read an ArrowStream.
    `read_all` returns a pyarrow table with all rows in memory.

    Parameters
    ----------
    schema
        The schema of each batch.
    read
        A function that reads all batches, from the first one on.

    Attributes
    ----------
    count
        How many rows the last complete reading returned; None before the first complete reading.

    Examples
    --------
    >>> import pyarrow as pa
    >>> batch = pa.record_batch({"id": [1, 2]})
    >>> rows = ArrowStream(batch.schema, lambda: [batch, batch])
    >>> rows.read_all().num_rows, sum(len(batch) for batch in rows.reader()), rows.count
    (4, 4, 4)
    """

    def __init__(self, schema: pa.Schema, read: Callable[[], Iterable[pa.RecordBatch]]) -> None:
        self.schema, self._batches = schema, read
        self.count: int | None = None

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema.names)

    def reader(self) -> pa.RecordBatchReader:
        """Return a reader that starts at the first row. Close it if you do not read it to its end."""
        return pa.RecordBatchReader.from_batches(self.schema, self._counted())

    def read_all(self) -> pa.Table:
        """Return all rows as a table in memory."""
        return self.reader().read_all()

    def is_empty(self) -> bool:
        """Return whether the stream has no row. This reads batches only until one of them has a row."""
        with closing(self.reader()) as reader:
            return not any(batch.num_rows for batch in reader)

    def mapped(self, change: Callable[[pa.Table], pa.Table]) -> ArrowStream:
        """Return a stream of the tables that `change` returns; it is called with each batch, as a table."""

        def read() -> Iterator[pa.RecordBatch]:
            for batch in self._counted():
                yield from change(pa.Table.from_batches([batch])).to_batches()

        return ArrowStream(change(self.schema.empty_table()).schema, read)

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Return the rows through Arrow's C stream interface."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def _counted(self) -> Iterator[pa.RecordBatch]:
        count = 0
        for batch in self._batches():
            count += batch.num_rows
            yield batch
        self.count = count


def joined_batches(
    batches: Iterable[pa.RecordBatch], most: int, size_of: Callable[[pa.RecordBatch], int] = attrgetter("nbytes")
) -> Iterator[pa.Table]:
    """Join batches into larger tables, and yield each table once its size (by default in bytes) reaches `most`."""
    found, size = [], 0
    for batch in batches:
        found.append(batch)
        size += size_of(batch)
        if size >= most:
            yield pa.Table.from_batches(found)
            found, size = [], 0
    if found:
        yield pa.Table.from_batches(found)
