"""Staging of rows and files: `staged_by` stages rows as a write does, and a test fills a `FilledSink` itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output
from scripts.helpers.sinks import FileSink, Sink
from scripts.helpers.sinks.places import Place


def staged_by(sink: Sink, batch: BatchId, fence: int, df: Any, *, replaces: bool = False) -> Output:
    """Check the rows of a script and stage them."""
    return sink.stage(batch, fence, sink.check(df), replaces=replaces)


class FilledSink(FileSink):
    """A sink of files for which a test may choose the bytes, and when each file is written."""

    _fill: Callable[[Place, str], Any] | None = None

    def stage_files(
        self, batch: BatchId, fence: int, fill: Callable[[Place, str], Any], rows: pa.Table | None = None
    ) -> Output:
        """Stage what `fill` writes to an empty folder of a place; `fill` may return the number of rows.

        Parameters
        ----------
        rows
            Rows whose columns are compared with those at the target.
        """
        self._fill = fill
        return staged_by(self, batch, fence, rows if rows is not None else pa.table({}))

    def _write(self, rows: Any, schema: Any, place: Place, folder: str) -> Any:
        return self._fill(place, folder) if self._fill else super()._write(rows, schema, place, folder)
