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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from scripts.helpers.errors import MergeNullError, MergeTieError, TargetError, TargetTableError
from scripts.helpers.sinks.merging import DELETED, Merge

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

TRIES = 10
"""Others may write to the table while a batch is merged so often. Each try reads and joins anew."""
Record = tuple[str, int]
"""Application and version of one of Delta's transactions."""


def quote(name: str) -> str:
    """Quote a name as both Spark and DataFusion read it."""
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class Step:
    """What one MERGE does with a row `t` of the table and a row `s` of the source.

    Attributes
    ----------
    on
        When the two are of one row.
    delete_when, update_when
        What of two that match goes, or gets the values of `sets`. None: nothing.
    insert_when
        Which rows of the source that match none are inserted, with the values of `inserts`.
    """

    on: str
    insert_when: str
    inserts: Mapping[str, str]
    update_when: str | None = None
    sets: Mapping[str, str] = field(default_factory=dict)
    delete_when: str | None = None


class _Tables(Protocol):
    """Delta tables, and frames of rows, of one engine. Frames have a column `DELETED`, if nothing else is said."""

    def version(self, uri: str) -> int | None:
        """Return the version of a table; None where there is none."""

    def columns(self, uri: str) -> list[str]:
        """Return the names of a table's columns."""

    def read(self, uri: str, events: Any, merge: Merge) -> Any:
        """Return the rows of a table, without `DELETED`, that have the key of one of the events."""

    def create(self, uri: str, like: Any, names: Mapping[str, str], partition_by: Sequence[str]) -> None:
        """Make an empty table if there is none; its columns, by name, are like those of a frame."""

    def merge(self, uri: str, source: Any, step: Step, record: Record | None) -> None:
        """Merge a frame into a table in one transaction, which records the batch if it is named."""

    def nulls(self, events: Any, names: Sequence[str]) -> dict[str, int]:
        """Count events without a value in columns, by column."""

    def has_deletes(self, events: Any) -> bool:
        """Tell whether an event is a delete."""

    def distinct(self, events: Any, merge: Merge) -> Any:
        """Return events once each; of deletes only key and sequence count. Without a history only a key's newest."""

    def newest(self, events: Any, merge: Merge) -> Any:
        """Return one event for each key: the newest, and of a delete and a row the delete."""

    def ties(self, distinct: Any, merge: Merge) -> int:
        """Count events that share key and sequence with a different one."""

    def together(self, events: Any, rows: Any, *, deleted: bool) -> Any:
        """Return events, and rows as events that are deletes or not, with the columns of the first."""

    def versions(self, events: Any, there: Any, gone: Any, merge: Merge) -> Any:
        """Return every version of the keys with both its ends; those that are in the table are marked `DELETED`.

        Parameters
        ----------
        there
            The versions of these keys that the table has, without `DELETED`.
        gone
            Key and sequence of all deletes of these keys that are remembered.
        """


class DeltaMerge:
    """The merge of batches into one Delta table.

    Parameters
    ----------
    uri
        The table. Deletes are remembered beside it.
    """

    def __init__(self, uri: str, merge: Merge, tables: _Tables) -> None:
        self._uri, self._rules, self._tables = uri, merge, tables
        start, _, name = uri.rpartition("/")
        self._gone_uri = f"{start}/_{name}.deleted"

    @classmethod
    def with_spark(cls, uri: str, merge: Merge, spark: SparkSession) -> DeltaMerge:
        """Return a merge by Delta's connector for Spark: frames are those of Spark."""
        return cls(uri, merge, _SparkTables(spark))

    @classmethod
    def with_deltalake(cls, uri: str, merge: Merge, options: Mapping[str, str] | None) -> DeltaMerge:
        """Return a merge by `deltalake`, with its options of storage: frames are tables of pyarrow."""
        return cls(uri, merge, _ArrowTables(options))

    def check(self, events: Any) -> None:
        """Raise what nothing orders: among the events, or beside what the table has.

        Raises
        ------
        MergeNullError, MergeTieError
            See `Merge`.
        TargetTableError
            Deletes are remembered by other columns.
        """
        rules, tables = self._rules, self._tables
        remembered = tables.columns(self._gone_uri) if tables.version(self._gone_uri) is not None else []
        if remembered and set(remembered) != {*rules.keys, *rules.sequence_by}:
            raise TargetTableError(
                self._uri,
                f"its deletes are remembered by {', '.join(sorted(remembered))}, in {self._gone_uri}. Merge by these, "
                "or delete that table: then a row from before a delete brings its key back.",
            )
        for name, count in tables.nulls(events, [*rules.keys, *rules.sequence_by]).items():
            if count:
                raise MergeNullError(name, count)
        distinct = tables.distinct(events, rules)
        self._check_ties(distinct, "of the batch")
        for uri, deleted in ((self._uri, False), (self._gone_uri, True)):
            if tables.version(uri) is not None:
                beside = tables.together(distinct, tables.read(uri, distinct, rules), deleted=deleted)
                self._check_ties(tables.distinct(beside, rules), "in the target")

    def _check_ties(self, distinct: Any, where: str) -> None:
        count = self._tables.ties(distinct, self._rules)
        if count:
            raise MergeTieError(self._uri, self._rules.keys, self._rules.sequence_by, count, where)

    def publish(
        self,
        events: Any,
        columns: Sequence[str],
        partition_by: Sequence[str],
        record: Record | None,
        may_pass: Callable[[Exception], bool],
    ) -> None:
        """Merge staged events. What they leave is the same however often, and after whatever, it is done.

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
        tables, rules = self._tables, self._rules
        named = {name: name for name in (*rules.keys, *rules.sequence_by)}
        tables.create(self._gone_uri, events, named, ())
        tables.create(self._uri, events, {name: name for name in columns} | self._ends(columns), partition_by)
        distinct = tables.distinct(events, rules)
        if tables.has_deletes(distinct):
            tables.merge(self._gone_uri, distinct, self._remembering(named), None)
        recorded = record
        for _ in range(TRIES):
            looked = self._versions()
            try:
                tables.merge(self._uri, self._source(distinct), self._step(columns), recorded)
            except Exception as error:
                # Before the batch is recorded another publisher of it may have come first: the caller looks. After,
                # only this one is left to look again.
                if recorded is not None or not may_pass(error):
                    raise
                continue
            recorded = None
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

    def _ends(self, columns: Sequence[str]) -> dict[str, str]:
        """Return the columns of a history that the rows do not bring; they are of the type of the sequence."""
        history = self._rules.history
        if history is None:
            return {}
        (sequence,) = self._rules.sequence_by
        return {name: sequence for name in (history.valid_from, history.valid_to) if name not in columns}

    def _source(self, distinct: Any) -> Any:
        tables, rules = self._tables, self._rules
        gone = tables.read(self._gone_uri, distinct, rules)
        if rules.history is not None:
            return tables.versions(distinct, tables.read(self._uri, distinct, rules), gone, rules)
        # A delete that is remembered is an event like those that arrive: the newest of all of them counts.
        return tables.newest(tables.together(distinct, gone, deleted=True), rules)

    def _remembering(self, named: Mapping[str, str]) -> Step:
        rules, deleted = self._rules, f"s.{quote(DELETED)}"
        on, inserts = rules.matches("t", "s", quote), {quote(name): f"s.{quote(name)}" for name in named}
        if rules.history is not None:
            # A history needs every delete: each ends the version before it.
            return Step(f"{on} AND {rules.ties('t', 's', quote)}", deleted, inserts)
        newer = f"{deleted} AND {rules.newer('s', 't', quote)}"
        return Step(on, deleted, inserts, update_when=newer, sets=inserts)

    def _step(self, columns: Sequence[str]) -> Step:
        rules, deleted = self._rules, f"s.{quote(DELETED)}"
        on, newer = rules.matches("t", "s", quote), rules.newer("s", "t", quote)
        values = {quote(name): f"s.{quote(name)}" for name in (*columns, *self._ends(columns))}
        if rules.history is None:
            update, delete = f"NOT {deleted} AND {newer}", f"{deleted} AND {newer}"
            return Step(on, f"NOT {deleted}", values, update, values, delete)
        start, end = quote(rules.history.valid_from), quote(rules.history.valid_to)
        changed = f"t.{end} IS DISTINCT FROM s.{end}"
        return Step(f"{on} AND t.{start} = s.{start}", f"NOT {deleted}", values, changed, {end: f"s.{end}"})


# --- Spark ------------------------------------------------------------------------------------------


class _SparkTables:
    """Delta's connector for Spark."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def version(self, uri: str) -> int | None:
        session, java = self._spark._jsparkSession, self._java()
        if not java.io.delta.tables.DeltaTable.isDeltaTable(session, uri):
            return None
        log = java.org.apache.spark.sql.delta.DeltaLog.forTableWithSnapshot(session, uri)
        return int(log._2().version())

    def columns(self, uri: str) -> list[str]:
        return list(self._spark.read.format("delta").load(uri).columns)

    def read(self, uri: str, events: DataFrame, merge: Merge) -> DataFrame:
        keys = events.select(*map(quote, merge.keys)).distinct()
        return self._spark.read.format("delta").load(uri).join(keys, list(merge.keys), "left_semi")

    def create(self, uri: str, like: DataFrame, names: Mapping[str, str], partition_by: Sequence[str]) -> None:
        if self.version(uri) is not None:
            return
        from pyspark.sql import functions as F  # noqa: N812

        empty = like.limit(0).select(*(F.col(quote(source)).alias(name) for name, source in names.items()))
        # Ignored where another publisher of this batch has made it meanwhile.
        writer = empty.write.format("delta").mode("ignore")
        (writer.partitionBy(*partition_by) if partition_by else writer).save(uri)

    def merge(self, uri: str, source: DataFrame, step: Step, record: Record | None) -> None:
        # A session of its own: the settings that name the transaction would be those of other threads, too.
        session = self._spark._jsparkSession.cloneSession()
        if record is not None:
            session.conf().set("spark.databricks.delta.write.txnAppId", record[0])
            session.conf().set("spark.databricks.delta.write.txnVersion", str(record[1]))
        target = self._java().io.delta.tables.DeltaTable.forPath(session, uri).alias("t")
        merging = target.merge(source.alias("s")._jdf, step.on)
        if step.delete_when is not None:
            merging = merging.whenMatched(step.delete_when).delete()
        if step.update_when is not None:
            merging = merging.whenMatched(step.update_when).updateExpr(dict(step.sets))
        merging.whenNotMatched(step.insert_when).insertExpr(dict(step.inserts)).execute()

    def nulls(self, events: DataFrame, names: Sequence[str]) -> dict[str, int]:
        (found,) = events.selectExpr(*(f"COUNT_IF({quote(name)} IS NULL)" for name in names)).collect()
        return dict(zip(names, found, strict=True))

    def has_deletes(self, events: DataFrame) -> bool:
        return bool(events.where(DELETED).limit(1).collect())

    def distinct(self, events: DataFrame, merge: Merge) -> DataFrame:
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812

        if merge.history is None:
            newest_first = Window.partitionBy(*map(quote, merge.keys)).orderBy(*self._order(merge))
            place = "glue_watermarks_place"
            events = events.withColumn(place, F.rank().over(newest_first)).where(f"{place} = 1").drop(place)
        named = {*merge.keys, *merge.sequence_by, DELETED}
        # Two deletes are equal whatever else they hold.
        return events.select(
            *(
                F.col(quote(name)) if name in named else F.expr(f"IF({DELETED}, NULL, {quote(name)})").alias(name)
                for name in events.columns
            )
        ).dropDuplicates()

    def newest(self, events: DataFrame, merge: Merge) -> DataFrame:
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812

        place = "glue_watermarks_place"
        order = Window.partitionBy(*map(quote, merge.keys)).orderBy(*self._order(merge), F.desc(DELETED))
        return events.withColumn(place, F.row_number().over(order)).where(f"{place} = 1").drop(place)

    def ties(self, distinct: DataFrame, merge: Merge) -> int:
        groups = distinct.groupBy(*map(quote, (*merge.keys, *merge.sequence_by))).count()
        found = groups.where("count > 1").selectExpr("COALESCE(SUM(count - 1), 0)").collect()
        return int(found[0][0])

    def together(self, events: DataFrame, rows: DataFrame, *, deleted: bool) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        shared = [name for name in rows.columns if name in events.columns]
        more = rows.select(*map(quote, shared)).withColumn(DELETED, F.lit(deleted))
        return events.unionByName(more, allowMissingColumns=True)

    def versions(self, events: DataFrame, there: DataFrame, gone: DataFrame, merge: Merge) -> DataFrame:
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812

        assert merge.history is not None
        keys, (sequence,) = list(merge.keys), merge.sequence_by
        start, end = merge.history.valid_from, merge.history.valid_to
        moment = "glue_watermarks_moment"

        def moments(rows: DataFrame, column: str) -> DataFrame:
            return rows.select(*map(quote, keys), F.col(quote(column)).alias(moment))

        known = moments(there, start)
        arrived = events.where(f"NOT {DELETED}").withColumn(moment, F.col(quote(sequence)))
        new = arrived.join(known, [*keys, moment], "left_anti").withColumn(start, F.col(moment))
        # Deletes of this batch are remembered by now, so `gone` has them.
        all_moments = known.union(moments(gone, sequence)).union(moments(new, moment)).distinct()
        following = F.lead(moment).over(Window.partitionBy(*map(quote, keys)).orderBy(moment))
        ends = all_moments.withColumn(end, following)
        kept = known.withColumn(start, F.col(moment)).withColumn(DELETED, F.lit(True))
        return new.unionByName(kept, allowMissingColumns=True).join(ends, [*keys, moment]).drop(moment)

    def _java(self) -> Any:
        return self._spark._jvm

    def _order(self, merge: Merge) -> list[Any]:
        from pyspark.sql import functions as F  # noqa: N812

        return [F.desc(quote(name)) for name in merge.sequence_by]


# --- deltalake --------------------------------------------------------------------------------------


class _ArrowTables:
    """The package `deltalake`; frames are tables of pyarrow, whose rows are compared in Python.

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

    def columns(self, uri: str) -> list[str]:
        return [field.name for field in self._table(uri).schema().fields]

    def read(self, uri: str, events: pa.Table, merge: Merge) -> pa.Table:
        import pyarrow as pa
        import pyarrow.dataset as ds

        rows = self._table(uri).to_pyarrow_dataset()
        # Files whose statistics rule the first column of the key out are not read.
        first = merge.keys[0]
        found = rows.to_table(filter=ds.field(first).isin(events[first].unique()))
        wanted = {_values(event, merge.keys) for event in events.select(list(merge.keys)).to_pylist()}
        is_wanted = [_values(row, merge.keys) in wanted for row in _rows(found, merge.keys)]
        return found.filter(pa.array(is_wanted, pa.bool_()))

    def create(self, uri: str, like: pa.Table, names: Mapping[str, str], partition_by: Sequence[str]) -> None:
        import pyarrow as pa
        from deltalake import DeltaTable, Schema

        if self._table(uri) is not None:
            return
        schema = pa.schema([pa.field(name, like.schema.field(source).type) for name, source in names.items()])
        DeltaTable.create(
            uri, schema=Schema.from_arrow(schema), mode="ignore", partition_by=list(partition_by) or None,
            storage_options=self._options,
        )  # fmt: skip

    def merge(self, uri: str, source: pa.Table, step: Step, record: Record | None) -> None:
        from deltalake import CommitProperties, Transaction

        properties = CommitProperties(app_transactions=[Transaction(*record)]) if record else None
        merging = self._table(uri).merge(
            source, step.on, source_alias="s", target_alias="t", commit_properties=properties
        )
        if step.delete_when is not None:
            merging = merging.when_matched_delete(step.delete_when)
        if step.update_when is not None:
            merging = merging.when_matched_update(dict(step.sets), step.update_when)
        merging.when_not_matched_insert(dict(step.inserts), step.insert_when).execute()

    def nulls(self, events: pa.Table, names: Sequence[str]) -> dict[str, int]:
        return {name: int(events[name].null_count) for name in names}

    def has_deletes(self, events: pa.Table) -> bool:
        return any(events[DELETED].to_pylist())

    def distinct(self, events: pa.Table, merge: Merge) -> pa.Table:
        named = {*merge.keys, *merge.sequence_by, DELETED}
        last: dict[Any, Any] = {}
        rows = events.to_pylist()
        for row in rows:
            key, at = _values(row, merge.keys), _place(row, merge)
            last[key] = max(last.get(key, at), at)
        found = {}
        for row in rows:
            if merge.history is None and _place(row, merge) != last[_values(row, merge.keys)]:
                continue
            # Two deletes are equal whatever else they hold.
            event = {name: None if row[DELETED] and name not in named else value for name, value in row.items()}
            # By their texts: lists and structs have no hash, and NaN is not equal to itself.
            found[repr(event)] = event
        return events.from_pylist(list(found.values()), schema=events.schema)

    def newest(self, events: pa.Table, merge: Merge) -> pa.Table:
        def place(row: Mapping[str, Any]) -> tuple[Any, ...]:
            return (_place(row, merge), row[DELETED])

        found: dict[Any, Any] = {}
        for row in events.to_pylist():
            key = _values(row, merge.keys)
            if key not in found or place(row) > place(found[key]):
                found[key] = row
        return events.from_pylist(list(found.values()), schema=events.schema)

    def ties(self, distinct: pa.Table, merge: Merge) -> int:
        named = [*merge.keys, *merge.sequence_by]
        return int(distinct.num_rows) - len({_values(row, named) for row in _rows(distinct, named)})

    def together(self, events: pa.Table, rows: pa.Table, *, deleted: bool) -> pa.Table:
        import pyarrow as pa

        more = [{name: row.get(name) for name in events.column_names} | {DELETED: deleted} for row in rows.to_pylist()]
        # A column that is NULL in all events, as that of keys that are missing is, has no type of its own.
        types = {
            one.name: rows.schema.field(one.name).type
            for one in events.schema
            if pa.types.is_null(one.type) and one.name in rows.column_names
        }
        schema = pa.schema([pa.field(one.name, types.get(one.name, one.type)) for one in events.schema])
        return pa.Table.from_pylist([*events.to_pylist(), *more], schema=schema)

    def versions(self, events: pa.Table, there: pa.Table, gone: pa.Table, merge: Merge) -> pa.Table:
        import pyarrow as pa

        assert merge.history is not None
        keys, (sequence,) = merge.keys, merge.sequence_by
        start, end = merge.history.valid_from, merge.history.valid_to
        # What was there before the first merge and was valid from no moment stays as it is.
        known = {(_values(row, keys), row[start]) for row in there.to_pylist() if row[start] is not None}
        arrived = [row for row in events.to_pylist() if not row[DELETED]]
        new = [row for row in arrived if (_values(row, keys), row[sequence]) not in known]
        moments: dict[Any, set[Any]] = {}
        # Deletes of this batch are remembered by now, so `gone` has them.
        for key, moment in [*known, *((_values(row, keys), row[sequence]) for row in (*gone.to_pylist(), *new))]:
            moments.setdefault(key, set()).add(moment)
        ends = {}
        for key, found in moments.items():
            ordered = sorted(found)
            ends.update({(key, one): following for one, following in zip(ordered, [*ordered[1:], None], strict=True)})
        versions = [row | {start: row[sequence], end: ends[_values(row, keys), row[sequence]]} for row in new]
        for key, moment in known:
            one = dict(zip(keys, key, strict=True))
            versions.append(one | {start: moment, end: ends[key, moment], DELETED: True})
        kind = events.schema.field(sequence).type
        more = [pa.field(name, kind) for name in (start, end) if name not in events.column_names]
        return pa.Table.from_pylist(versions, schema=pa.schema([*events.schema, *more]))

    def _table(self, uri: str) -> Any:
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(uri, self._options):
            return None
        return DeltaTable(uri, storage_options=self._options)


def _values(row: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _place(row: Mapping[str, Any], merge: Merge) -> tuple[Any, ...]:
    """Return where a row stands in the order of its key; without a place, as before the first merge, it is lowest."""
    return tuple((row[name] is not None, row[name]) for name in merge.sequence_by)


def _rows(table: pa.Table, names: Sequence[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.select(list(names)).to_pylist()
    return found
