"""How a batch of a merge gets into a Delta table: by `MERGE`, with Spark or with `deltalake`.

::

    stage     all events of the batch, as they came; those that nothing orders are refused
    publish   1. deletes into <parent>/_<name>.deleted, a Delta table of keys and sequences
              2. one MERGE into the target, which records the batch in the same entry of Delta's log

Delta has no transaction over two tables, so the order counts. Deletes are remembered first: a publisher that dies in
between leaves a memory of deletes that its successor carries out. Whoever looks before they are remembered, and writes
after, is found out by the versions of both tables, and looks again: see `DeltaMerge.publish`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from scripts.helpers.errors import TargetError
from scripts.helpers.sinks.merging import DELETED, Merge
from scripts.helpers.sinks.staged_rows import columns_of
from scripts.helpers.sinks.table_merge import Frames, Step, TableMerge, Tables

TRIES = 10
"""Others may write to the table while a batch is merged so often. Each try reads and joins anew."""
Record = tuple[str, int]
"""Application and version of one of Delta's transactions."""


class DeltaTables(Tables, Protocol):
    """Delta tables."""

    def version(self, uri: str) -> int | None:
        """Return the version of a table; None where there is none."""

    def create(self, uri: str, like: Any, columns: Sequence[str], partition_by: Sequence[str] = ()) -> None:
        """Make a table without rows, if there is none, of some columns of a frame."""

    def recorded_at(self, uri: str, app: str) -> int:
        """Return the version that a table has recorded of an application; 0 for none, and where there is no table."""

    def merge(self, uri: str, source: Any, step: Step, record: Record | None) -> None:
        """Merge a frame into a table in one transaction, which records the batch if it is named.

        Nothing is done if it is recorded by then, or a later one.
        """

    def meaning(self, error: Exception) -> str | None:
        """Return "moved" for an error that says that others came between; see `TableLog`."""


class DeltaMerge:
    """The merge of batches into one Delta table.

    Parameters
    ----------
    uri
        The table. Deletes are remembered beside it.
    """

    def __init__(self, uri: str, merge: Merge, tables: DeltaTables, frames: Frames) -> None:
        start, _, name = uri.rpartition("/")
        self._gone_uri = f"{start}/_{name}.deleted"
        self._uri, self._tables, self._frames = uri, tables, frames
        self._merge = TableMerge(uri, self._gone_uri, merge, tables, frames)

    def check(self, events: Any) -> None:
        """Raise what nothing orders; see `TableMerge.check`."""
        self._merge.check(events)

    def publish(self, events: Any, record: Record | None) -> None:
        """Merge staged events into a table that is there. What they leave is the same however often it is done.

        Parameters
        ----------
        record
            The record that the table stores with the batch. None: it has one already.

        Raises
        ------
        TargetError
            Others kept writing to the table.
        """
        tables, frames, merge = self._tables, self._frames, self._merge
        tables.create(self._gone_uri, events, merge.named)
        columns = [name for name in columns_of(events) if name != DELETED]
        distinct = frames.distinct(events, merge.rules)
        if frames.has_deletes(distinct):
            tables.merge(self._gone_uri, distinct, merge.remembering(), None)
        recorded = record
        for _ in range(TRIES):
            looked = self._versions()
            try:
                tables.merge(self._uri, merge.source(distinct), merge.step(columns), recorded)
            except Exception as error:
                # Before the batch is recorded another publisher of it may have come first: the caller looks. After,
                # only this one is left to look again.
                if recorded is not None or tables.meaning(error) != "moved":
                    raise
                continue
            recorded = None
            # A later batch, or a decision that took this one back, and that before this merge: then it did nothing.
            if record is not None and tables.recorded_at(self._uri, record[0]) > record[1]:
                return
            now = self._versions()
            # One version more is this merge; none, one that changed nothing. Anything else came between the look and
            # the write: a delete that was remembered meanwhile, or a version that ends one of ours.
            if now[1] == looked[1] and now[0] in (looked[0], looked[0] + 1):
                return
        raise TargetError(self._uri, f"others came between {TRIES} times. Let one job at a time merge into a table.")

    def _versions(self) -> tuple[int, int]:
        target, gone = self._tables.version(self._uri), self._tables.version(self._gone_uri)
        assert target is not None
        assert gone is not None
        return target, gone
