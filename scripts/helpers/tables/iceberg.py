"""`IcebergTable`: read what was committed to an Iceberg table since a snapshot, with Spark or without it.

Iceberg's readers silently skip snapshots that overwrite or delete rows. So each snapshot is checked before any row is
read: from the current snapshot of `main` back to the watermark, from child to parent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import DataFrame, SparkSession, pa
from scripts.helpers.display.options import option_error
from scripts.helpers.errors import MissingConnectorError, SourceError
from scripts.helpers.protocol.names import new_token
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sql import in_quotes, sql
from scripts.helpers.sinks.connectors import (
    ICEBERG_EXTENSIONS,
    arrow_catalog,
    check_classic,
    check_iceberg_on_spark,
    check_name,
    quoted_table,
    spark_table,
)
from scripts.helpers.spark.java_errors import is_spark_error, names_java_class
from scripts.helpers.spark.jvm import java_of
from scripts.helpers.tables.frames import changelog_as_feed, whole_rows
from scripts.helpers.tables.sources import Commit, Kind, TableHead, TableHistory, TableSource
from scripts.helpers.tables.spans import TableSpan

if TYPE_CHECKING:
    from scripts.helpers.tables.frames import Returns


# --- iceberg metadata -----------------------------------------------------------------------------
# The metadata of an Iceberg table: its snapshots and their order.

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
KINDS: Mapping[str, Kind] = {"append": "append", "replace": "nothing"}
"""The effect of an operation on rows. Any other operation may remove rows."""
DELETES = ("added-delete-files", "added-position-deletes", "added-equality-deletes", "added-dvs")
"""Summary counts of a snapshot that marks rows as deleted, rather than writing new files without them."""
UNKNOWN = "unknown"
"""Operation of a snapshot without a summary, as early writers left it. It may have removed rows."""


@dataclass(frozen=True)
class Snapshot:
    """One snapshot of a table.

    `sequence` is 0 in tables of format version 1. `marks_deletes` is whether delete files mark rows of other files as
    deleted.
    """

    id: int
    parent: int | None
    operation: str
    at: datetime
    sequence: int
    marks_deletes: bool

    @property
    def told(self) -> Commit:
        """The snapshot as a `Commit`, which is the same for all formats."""
        return Commit(self.id, KINDS.get(self.operation, "overwrite"), self.operation, self.at)


@dataclass(frozen=True)
class Metadata:
    """The metadata of a table at one moment."""

    uuid: str
    current: int | None
    last_sequence: int
    snapshots: Mapping[int, Snapshot]

    def lineage(self, end: int) -> Iterator[Snapshot]:
        """Yield a snapshot and its ancestors, as far back as they are kept."""
        found = self.snapshots.get(end)
        while found is not None:
            yield found
            found = None if found.parent is None else self.snapshots.get(found.parent)

    def since(self, after: int, end: int) -> list[Snapshot] | None:
        """Return the snapshots after `after` up to `end`, in order; None if one is gone, or `after` is no ancestor."""
        if after == end:
            return []
        found: list[Snapshot] = []
        for snapshot in self.lineage(end):
            found.append(snapshot)
            # Compare the parent's id, because the snapshot `after` itself may have expired.
            if snapshot.parent == after:
                return found[::-1]
        return None


def read_metadata(text: str) -> Metadata:
    """Parse the metadata of a table, as its catalog stores it.

    Examples
    --------
    >>> found = read_metadata('{"table-uuid": "1", "current-snapshot-id": -1}')
    >>> found.current, found.snapshots, found.last_sequence
    (None, {}, 0)
    """
    stored: Mapping[str, Any] = json.loads(text)
    snapshots = {}
    for one in stored.get("snapshots") or ():
        summary = one.get("summary") or {}
        snapshots[one["snapshot-id"]] = Snapshot(
            one["snapshot-id"],
            one.get("parent-snapshot-id"),
            str(summary.get("operation") or UNKNOWN),
            EPOCH + timedelta(milliseconds=one["timestamp-ms"]),
            one.get("sequence-number") or 0,
            any(int(summary.get(name) or 0) for name in DELETES),
        )
    # Treat an unknown id as none: early writers store -1 if there is no current snapshot.
    current = stored.get("current-snapshot-id")
    return Metadata(
        str(stored["table-uuid"]),
        current if current in snapshots else None,
        stored.get("last-sequence-number") or 0,
        snapshots,
    )


# --- iceberg --------------------------------------------------------------------------------------

NO_SPARK = "Its changes are read by Spark only: give spark=, or changes='append'."


class IcebergTable(TableSource):
    """An Iceberg table, for `IncrementalJob.rows_since` to read what was committed to `main` since a snapshot.

    Parameters
    ----------
    name
        ``catalog.namespace.table``, as Spark and `pyiceberg` are configured.
    spark
        The session. Without it, `pyiceberg` reads the table, and rows are in memory. Only Spark can read changes.
    catalog
        A catalog of `pyiceberg`, for scripts that configure it themselves. `name` begins with the catalog's name.
    returns
        Without Spark: ``"pandas"``, the default, with columns of Arrow types, or ``"arrow"``.

    Raises
    ------
    InvalidValueError
        The name is not that of a table in a catalog; `returns` is unknown, or `returns` or `catalog` is given together
        with `spark`.
    NoJvmError
        The session is one of Spark Connect.
    """

    format, named_by = "iceberg", "name"
    _engine: _SparkEngine | _ArrowEngine

    def __init__(
        self, name: str, *, spark: SparkSession | None = None, catalog: Any = None, returns: Returns | None = None
    ) -> None:
        check_name(name, catalog)
        check_classic(spark, "An Iceberg table")
        super().__init__(name, returns, with_spark=spark is not None)
        if spark is not None and catalog is not None:
            raise option_error("catalog", "it is one of pyiceberg, and Spark has its own. Give one of the two.")
        self._engine = _SparkEngine(name, spark) if spark is not None else _ArrowEngine(name, catalog)

    def folder(self) -> str:
        with self._typed():
            return self._engine.location()

    def head(self) -> TableHead:
        found = self._metadata()
        current = None if found.current is None else found.snapshots[found.current]
        return TableHead(
            {"table": self.name, "uuid": found.uuid}, found.current, current.at if current else None,
            current.sequence if current else 0, found.last_sequence,
        )  # fmt: skip

    def history(self, after: int, at: datetime | None, head: TableHead) -> TableHistory:
        found = self._metadata()
        # The table had the snapshot `after`. If it has no current snapshot now, it was set back to before its first.
        since = None if head.newest is None else found.since(after, head.newest)
        if since is not None:
            return TableHistory([snapshot.told for snapshot in since])
        if after not in found.snapshots:
            return TableHistory(lost="expired")
        before = {snapshot.id for snapshot in found.lineage(after)}
        kept = [] if head.newest is None else list(found.lineage(head.newest))
        common = next((snapshot.id for snapshot in kept if snapshot.id in before), None)
        # Without a common ancestor the table was rolled back, unless the ancestors expired: then the oldest kept one
        # has a parent, or a sequence gap before it. A tag may keep `after`, the last snapshot read, longer than these.
        there = {0, *(snapshot.sequence for snapshot in found.snapshots.values())}
        if common is None and kept and (kept[-1].parent is not None or max(kept[-1].sequence - 1, 0) not in there):
            return TableHistory(lost="expired")
        return TableHistory(lost="rollback", common=common)

    def check_feed(self, span: TableSpan) -> None:
        self._engine.check_feed()
        assert span.until is not None
        found = self._metadata()
        if span.whole or span.after is None:
            return
        since = found.since(span.after, span.until) or []
        if any(snapshot.marks_deletes for snapshot in since):
            raise SourceError(self.name, reason="merge_on_read")
        if any(snapshot.sequence == 0 for snapshot in since):
            raise SourceError(self.name, reason="format_version_1")

    def is_lost(self, span: TableSpan) -> bool:
        assert span.until is not None
        found = self._metadata()
        if span.whole or span.after is None:
            return span.until not in found.snapshots
        return found.since(span.after, span.until) is None

    def rows(self, span: TableSpan) -> Any:
        if span.is_feed:
            self._engine.check_feed()
        return super().rows(span)

    # --- internals of IcebergTable --------------------------------------------------------------

    def _metadata(self) -> Metadata:
        self._engine.check()
        with self._typed():
            return self._engine.metadata()

    def _committed(self, span: TableSpan) -> Any:
        if not span.is_feed:
            return self._engine.appended(span)
        assert span.after is not None
        assert span.until is not None
        since = self._metadata().since(span.after, span.until) or []
        return self._engine.feed(span, {snapshot.id: (snapshot.sequence, snapshot.at) for snapshot in since})


class _SparkEngine:
    """Reads with Iceberg's connector for Spark."""

    def __init__(self, name: str, spark: SparkSession) -> None:
        self._name, self._spark = name, spark
        self._location = ""

    def check(self) -> None:
        check_iceberg_on_spark(self._name, self._spark)

    def check_feed(self) -> None:
        if ICEBERG_EXTENSIONS not in str(self._spark.conf.get("spark.sql.extensions", "")):
            raise MissingConnectorError("iceberg", f"To read changes, set spark.sql.extensions={ICEBERG_EXTENSIONS}.")

    def metadata(self) -> Metadata:
        # Fetch all metadata as one text: through Py4J, ten thousand snapshots would take half a minute.
        parser = java_of(self._spark).org.apache.iceberg.TableMetadataParser
        return read_metadata(parser.toJson(self._table().operations().current()))

    def location(self) -> str:
        return str(self._table().location())

    def whole(self, span: TableSpan) -> DataFrame:
        return whole_rows(self._spark, "iceberg", quoted_table(self._name), span, self._name)

    def appended(self, span: TableSpan) -> DataFrame:
        self._table()
        reader = self._spark.read.format("iceberg").option("start-snapshot-id", str(span.after))
        return reader.option("end-snapshot-id", str(span.until)).load(quoted_table(self._name))

    def feed(self, span: TableSpan, commits: Mapping[int, tuple[int, datetime]]) -> DataFrame:
        self._table()
        catalog, _, table = self._name.partition(".")
        view = f"glue_watermarks_{new_token().replace('-', '_')}"
        # Use the procedure, not the raw changelog: if a commit only copies a row to another file, the changelog lists
        # the row as deleted and inserted, and the procedure leaves it out.
        after, until = in_quotes(str(span.after)), in_quotes(str(span.until))
        ends = sql("map('start-snapshot-id', {}, 'end-snapshot-id', {})", after, until)
        parts = SPARK.quote(catalog), in_quotes(quoted_table(table)), in_quotes(view), ends
        call = sql("CALL {}.system.create_changelog_view(table => {}, changelog_view => {}, options => {})", *parts)
        self._spark.sql(call)
        changes = self._spark.table(view)
        self._spark.catalog.dropTempView(view)
        return changelog_as_feed(changes, commits, self._name)

    def is_of_connector(self, error: Exception) -> bool:
        return is_spark_error(error)

    def is_gone(self, error: Exception) -> bool:
        if names_java_class(error, "Cannot find snapshot", "Cannot find the end snapshot", "is not a parent ancestor"):
            return True
        is_file = names_java_class(error, "FileNotFoundException", "NotFoundException", "NoSuchKey")
        # The error must name this table's folder: while a sink stages the rows, the missing file may be the sink's.
        return (
            is_file
            and bool(self._location)
            and names_java_class(error, self._location.partition("://")[2] or self._location)
        )

    def _table(self) -> Any:
        table = spark_table(self._name, self._spark)
        self._location = str(table.location())
        return table


class _ArrowEngine:
    """Reads with the package `pyiceberg`."""

    def __init__(self, name: str, catalog: Any) -> None:
        self._name, self._catalog = name, catalog

    def check(self) -> None:
        self._catalog = arrow_catalog(self._name, self._catalog, SourceError, "use IcebergTable(…, catalog=…)")

    def check_feed(self) -> None:
        raise SourceError(self._name, f"pyiceberg makes no rows of changes. {NO_SPARK}", reason="change_feed")

    def metadata(self) -> Metadata:
        return read_metadata(self._table().metadata.model_dump_json())

    def location(self) -> str:
        return str(self._table().location())

    def whole(self, span: TableSpan) -> pa.Table:
        table = self._table()
        if span.is_empty:
            return table.schema().as_arrow().empty_table()
        return table.scan(snapshot_id=span.until).to_arrow()

    def appended(self, span: TableSpan) -> pa.Table:
        table = self._table()
        if not hasattr(table, "incremental_append_scan"):
            raise MissingConnectorError("iceberg", "Appended rows need pyiceberg 0.12 or later; or give spark=.")
        scan = table.incremental_append_scan(from_snapshot_id_exclusive=span.after, to_snapshot_id_inclusive=span.until)
        return scan.to_arrow()

    def feed(self, span: TableSpan, commits: Mapping[int, tuple[int, datetime]]) -> pa.Table:
        raise SourceError(self._name, NO_SPARK, reason="change_feed")

    def is_of_connector(self, error: Exception) -> bool:
        return type(error).__module__.startswith(("pyiceberg.", "pyarrow")) or isinstance(error, OSError)

    def is_gone(self, error: Exception) -> bool:
        return isinstance(error, FileNotFoundError) or (isinstance(error, ValueError) and "napshot" in str(error))

    def _table(self) -> Any:
        self.check()
        return self._catalog.load_table(self._name.partition(".")[2])
