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

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from scripts.helpers.errors import TargetError
from scripts.helpers.sinks.connectors import address_of, delta_log_on_spark
from scripts.helpers.sinks.merging import Merge
from scripts.helpers.sinks.table_merge import (
    ARROW_FRAMES,
    SPARK_FRAMES,
    Frames,
    Step,
    TableMerge,
    Tables,
    of_keys,
    quote,
    rows_of,
    values_of,
)
from scripts.helpers.spark.jvm import java_frame, java_of, java_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

TRIES = 10
"""Others may write to the table while a batch is merged so often. Each try reads and joins anew."""
Record = tuple[str, int]
"""Application and version of one of Delta's transactions."""


class _Tables(Tables, Protocol):
    """Delta tables."""

    def version(self, uri: str) -> int | None:
        """Return the version of a table; None where there is none."""

    def create(self, uri: str, like: Any, names: Mapping[str, str]) -> None:
        """Make an empty table if there is none; its columns, by name, are like those of a frame."""

    def recorded(self, uri: str, app: str) -> int:
        """Return the version that a table has recorded of an application; 0 for none."""

    def merge(self, uri: str, source: Any, step: Step, record: Record | None) -> None:
        """Merge a frame into a table in one transaction, which records the batch if it is named.

        Nothing is done if it is recorded by then, or a later one.
        """


class DeltaMerge:
    """The merge of batches into one Delta table.

    Parameters
    ----------
    uri
        The table. Deletes are remembered beside it.
    """

    def __init__(self, uri: str, merge: Merge, tables: _Tables, frames: Frames) -> None:
        start, _, name = uri.rpartition("/")
        self._gone_uri = f"{start}/_{name}.deleted"
        self._uri, self._tables, self._frames = uri, tables, frames
        self._merge = TableMerge(uri, self._gone_uri, merge, tables, frames)

    @classmethod
    def with_spark(cls, uri: str, merge: Merge, spark: SparkSession) -> DeltaMerge:
        """Return a merge by Delta's connector for Spark: frames are those of Spark."""
        return cls(uri, merge, _SparkTables(spark), SPARK_FRAMES)

    @classmethod
    def with_deltalake(cls, uri: str, merge: Merge, options: Mapping[str, str] | None) -> DeltaMerge:
        """Return a merge by `deltalake`, with its options of storage: frames are tables of pyarrow."""
        return cls(uri, merge, _ArrowTables(options), ARROW_FRAMES)

    def check(self, events: Any) -> None:
        """Raise what nothing orders; see `TableMerge.check`."""
        self._merge.check(events)

    def publish(
        self,
        events: Any,
        columns: Sequence[str],
        record: Record | None,
        may_pass: Callable[[Exception], bool],
    ) -> None:
        """Merge staged events into a table that is there. What they leave is the same however often it is done.

        Parameters
        ----------
        columns
            Those of the rows, without `DELETED`.
        record
            What tells the batch, recorded with the rows. None: it is recorded already.
        may_pass
            Tells whether an error only says that others came between.

        Raises
        ------
        TargetError
            Others kept writing to the table.
        """
        tables, frames, merge = self._tables, self._frames, self._merge
        named = {name: name for name in merge.named}
        tables.create(self._gone_uri, events, named)
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
                if recorded is not None or not may_pass(error):
                    raise
                continue
            recorded = None
            # A later batch, or a decision that took this one back, and that before this merge: then it did nothing.
            if record is not None and tables.recorded(self._uri, record[0]) > record[1]:
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


# --- Spark ------------------------------------------------------------------------------------------


def delta_rows(spark: SparkSession, uri: str) -> DataFrame:
    """Return the rows that a table has now.

    By its version: where the script has cached the table, Spark would read what it had then.
    """
    reader = spark.read.format("delta")
    # Where there is no table, Spark says so.
    version = _version(spark, uri)
    return (reader if version is None else reader.option("versionAsOf", version)).load(uri)


def _version(spark: SparkSession, uri: str) -> int | None:
    if not java_of(spark).io.delta.tables.DeltaTable.isDeltaTable(java_session(spark), uri):
        return None
    return int(delta_log_on_spark(uri, spark)._2().version())


class _SparkTables:
    """Delta's connector for Spark."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def version(self, uri: str) -> int | None:
        return _version(self._spark, uri)

    def has(self, table: str) -> bool:
        return self.version(table) is not None

    def columns(self, uri: str) -> list[str]:
        return list(self._spark.read.format("delta").load(uri).columns)

    def read(self, uri: str, events: DataFrame, merge: Merge) -> DataFrame:
        return of_keys(delta_rows(self._spark, uri), events, merge)

    def create(self, uri: str, like: DataFrame, names: Mapping[str, str]) -> None:
        create_with_spark(self._spark, uri, like, names)

    def recorded(self, uri: str, app: str) -> int:
        return recorded_with_spark(self._spark, uri, app)

    def merge(self, uri: str, source: DataFrame, step: Step, record: Record | None) -> None:
        # A session of its own: the settings that name the transaction would be those of other threads, too.
        session = java_session(self._spark).cloneSession()
        if record is not None:
            session.conf().set("spark.databricks.delta.write.txnAppId", record[0])
            session.conf().set("spark.databricks.delta.write.txnVersion", str(record[1]))
        target = java_of(self._spark).io.delta.tables.DeltaTable.forPath(session, uri).alias("t")
        merging = target.merge(java_frame(source.alias("s")), step.on)
        if step.delete_when is not None:
            merging = merging.whenMatched(step.delete_when).delete()
        if step.update_when is not None:
            merging = merging.whenMatched(step.update_when).updateExpr(dict(step.sets))
        merging.whenNotMatched(step.insert_when).insertExpr(dict(step.inserts)).execute()


def create_with_spark(
    spark: SparkSession, uri: str, like: DataFrame, names: Mapping[str, str], partition_by: Sequence[str] = ()
) -> None:
    """Make a table without rows, if there is none; each of its columns is of the type of one of a frame."""
    if _SparkTables(spark).has(uri):
        return
    from pyspark.sql import functions as F  # noqa: N812

    empty = like.limit(0).select(*(F.col(quote(source)).alias(name) for name, source in names.items()))
    # Ignored where another publisher of this batch has made it meanwhile.
    writer = empty.write.format("delta").mode("ignore")
    (writer.partitionBy(*partition_by) if partition_by else writer).save(uri)


def recorded_with_spark(spark: SparkSession, uri: str, app: str) -> int:
    """Return the version that a table has recorded of an application; 0 for none, and where there is no table."""
    done = delta_log_on_spark(uri, spark)._2().transactions().get(app)
    return int(done.get()) if done.isDefined() else 0


# --- deltalake --------------------------------------------------------------------------------------


class _ArrowTables:
    """The package `deltalake`; frames are tables of pyarrow.

    Parameters
    ----------
    options
        Login, region and endpoint as `deltalake` takes them.
    """

    def __init__(self, options: Mapping[str, str] | None) -> None:
        self._options = dict(options) if options else None

    def version(self, uri: str) -> int | None:
        table = self._table(uri)
        return None if table is None else int(table.version())

    def has(self, table: str) -> bool:
        return self.version(table) is not None

    def columns(self, uri: str) -> list[str]:
        return [field.name for field in self._table(uri).schema().fields]

    def read(self, uri: str, events: pa.Table, merge: Merge) -> pa.Table:
        import pyarrow as pa

        rows = self._table(uri).to_pyarrow_dataset()
        # Files whose statistics rule the first column of the key out are not read, but for texts.
        first = merge.keys[0]
        field, kind = compared_in(rows, first)
        found = rows.to_table(filter=field.isin(events[first].unique().cast(kind)))
        wanted = {values_of(event, merge.keys) for event in events.select(list(merge.keys)).to_pylist()}
        is_wanted = [values_of(row, merge.keys) in wanted for row in rows_of(found, merge.keys)]
        return found.filter(pa.array(is_wanted, pa.bool_()))

    def create(self, uri: str, like: pa.Table, names: Mapping[str, str]) -> None:
        create_with_deltalake(self._options, uri, like, names)

    def recorded(self, uri: str, app: str) -> int:
        return recorded_with_deltalake(self._table(uri), app)

    def merge(self, uri: str, source: pa.Table, step: Step, record: Record | None) -> None:
        from deltalake import CommitProperties, Transaction

        table = self._table(uri)
        # Of the table that is merged into: whoever records the batch after this look conflicts with this transaction.
        if record is not None and recorded_with_deltalake(table, record[0]) >= record[1]:
            return
        properties = CommitProperties(app_transactions=[Transaction(*record)]) if record else None
        merging = table.merge(source, step.on, source_alias="s", target_alias="t", commit_properties=properties)
        if step.delete_when is not None:
            merging = merging.when_matched_delete(step.delete_when)
        if step.update_when is not None:
            merging = merging.when_matched_update(dict(step.sets), step.update_when)
        merging.when_not_matched_insert(dict(step.inserts), step.insert_when).execute()

    def _table(self, uri: str) -> Any:
        return table_of_deltalake(self._options, uri)


def compared_in(rows: Any, name: str) -> tuple[Any, pa.DataType]:
    """Return a column of a table for a filter of pyarrow, and the type of what it is compared with.

    Of files that `deltalake` has merged, statistics of texts have a type that pyarrow cannot compare with the column's.
    It asks none for a column that is cast.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds

    kind = rows.schema.field(name).type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        kind = pa.large_string() if pa.types.is_string(kind) else pa.large_binary()
        return ds.field(name).cast(kind), kind
    return ds.field(name), kind


def table_of_deltalake(options: Mapping[str, str] | None, uri: str) -> Any:
    """Return a table as `deltalake` opens it, by its options of storage; None where there is none."""
    from deltalake import DeltaTable

    given = dict(options) if options else None
    address = address_of(uri)
    return DeltaTable(address, storage_options=given) if DeltaTable.is_deltatable(address, given) else None


def recorded_with_deltalake(table: Any, app: str) -> int:
    """Return the version that an open table has recorded of an application; 0 for none, and where there is no table."""
    return int((table and table.transaction_version(app)) or 0)


def create_with_deltalake(
    options: Mapping[str, str] | None, uri: str, like: Any, names: Mapping[str, str], partition_by: Sequence[str] = ()
) -> None:
    """Make a table without rows, if there is none; see `create_with_spark`."""
    import pyarrow as pa
    from deltalake import DeltaTable, Schema

    if table_of_deltalake(options, uri) is not None:
        return
    schema = pa.schema([pa.field(name, like.schema.field(source).type) for name, source in names.items()])
    # Never together with rows: two who make a table at once do not see each other, and the later one would append the
    # batch to that of the first. Made twice without rows, it is still one table.
    DeltaTable.create(
        address_of(uri), schema=Schema.from_arrow(schema), mode="ignore", partition_by=list(partition_by) or None,
        storage_options=dict(options) if options else None,
    )  # fmt: skip
