"""What merges into Delta and Iceberg tables share: what is refused, and what a batch makes of the rows of its keys.

Each publication looks at the rows of the batch's keys, and at the deletes of these keys that are remembered in a table
beside the target, and works out what changes: see `TableMerge.source`. How that is written, and how a change between
look and write is found out, is each format's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from scripts.helpers.errors import MergeNullError, MergeTieError, TargetTableError
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sql import SQL, internal, sql
from scripts.helpers.sinks.merging import DELETED, NOT_DELETED, Merge

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


quote = SPARK.quote
"""Quotes a name as both Spark and DataFusion read it."""
PLACE = internal("place")


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

    on: SQL
    insert_when: SQL
    inserts: Mapping[SQL, SQL]
    update_when: SQL | None = None
    sets: Mapping[SQL, SQL] = field(default_factory=dict)
    delete_when: SQL | None = None


class Tables(Protocol):
    """Where a merge looks: tables by name or URI."""

    def has(self, table: str) -> bool:
        """Tell whether there is such a table."""

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns."""

    def read(self, table: str, events: Any, merge: Merge) -> Any:
        """Return the rows of a table, without `DELETED`, that have the key of one of the events."""


class Frames(Protocol):
    """Frames of rows of one engine. They have a column `DELETED`, if nothing else is said."""

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


class TableMerge:
    """What batches make of one table.

    Parameters
    ----------
    target, memory
        The table, and the one beside it that remembers deletes.
    """

    def __init__(self, target: str, memory: str, rules: Merge, tables: Tables, frames: Frames) -> None:
        self.target, self.memory, self.rules = target, memory, rules
        self._tables, self._frames = tables, frames

    @property
    def named(self) -> list[str]:
        """The columns that deletes are remembered by."""
        return [*self.rules.keys, *self.rules.sequence_by]

    def check(self, events: Any) -> None:
        """Raise what nothing orders: among the events, or beside what the table has.

        Raises
        ------
        MergeNullError, MergeTieError
            See `Merge`.
        TargetTableError
            Deletes are remembered by other columns.
        """
        rules, tables, frames = self.rules, self._tables, self._frames
        remembered = tables.columns(self.memory) if tables.has(self.memory) else []
        if remembered and set(remembered) != set(self.named):
            raise TargetTableError(
                self.target,
                f"its deletes are remembered by {', '.join(sorted(remembered))}, in {self.memory}. Merge by these, "
                "or delete that table: then a row from before a delete brings its key back.",
            )
        for name, count in frames.nulls(events, self.named).items():
            if count:
                raise MergeNullError(name, count)
        distinct = frames.distinct(events, rules)
        self._check_ties(distinct, "of the batch")
        for table, deleted in ((self.target, False), (self.memory, True)):
            if tables.has(table):
                beside = frames.together(distinct, tables.read(table, distinct, rules), deleted=deleted)
                self._check_ties(frames.distinct(beside, rules), "in the target")

    def _check_ties(self, distinct: Any, where: str) -> None:
        count = self._frames.ties(distinct, self.rules)
        if count:
            raise MergeTieError(self.target, self.rules.keys, self.rules.sequence_by, count, where)

    def source(self, distinct: Any) -> Any:
        """Return what the events of a batch come to beside what is there: see `step`, and `Frames.versions`."""
        tables, frames, rules = self._tables, self._frames, self.rules
        gone = tables.read(self.memory, distinct, rules)
        if rules.history is not None:
            return frames.versions(distinct, tables.read(self.target, distinct, rules), gone, rules)
        # A delete that is remembered is an event like those that arrive: the newest of all of them counts.
        return frames.newest(frames.together(distinct, gone, deleted=True), rules)

    def remembering(self) -> Step:
        """Return how events are merged into the memory of deletes."""
        rules, on, inserts = self.rules, self.rules.matches(quote), _from_source(self.named)
        if rules.history is not None:
            # A history needs every delete: each ends the version before it.
            return Step(sql("{} AND {}", on, rules.ties(quote)), IS_DELETE, inserts)
        return Step(on, IS_DELETE, inserts, sql("{} AND {}", IS_DELETE, rules.newer(quote)), inserts)

    def step(self, columns: Sequence[str]) -> Step:
        """Return how a source is merged into the target."""
        rules, on, values = self.rules, self.rules.matches(quote), _from_source([*columns, *self.rules.ends(columns)])
        if rules.history is None:
            update, delete = (sql("{} AND {}", what, rules.newer(quote)) for what in (IS_ROW, IS_DELETE))
            return Step(on, IS_ROW, values, update, values, delete)
        on = sql("{0} AND t.{1} = s.{1}", on, quote(rules.history.valid_from))
        changed = sql("t.{0} IS DISTINCT FROM s.{0}", quote(rules.history.valid_to))
        return Step(on, IS_ROW, values, changed, _from_source([rules.history.valid_to]))


IS_DELETE = sql("s.{}", quote(DELETED))
IS_ROW = sql("NOT {}", IS_DELETE)


def _from_source(names: Iterable[str]) -> dict[SQL, SQL]:
    return {quote(name): sql("s.{}", quote(name)) for name in names}


# --- Spark ------------------------------------------------------------------------------------------


class _SparkFrames:
    """DataFrames of Spark."""

    def nulls(self, events: DataFrame, names: Sequence[str]) -> dict[str, int]:
        (found,) = events.selectExpr(*(sql("COUNT_IF({} IS NULL)", quote(name)) for name in names)).collect()
        return dict(zip(names, found, strict=True))

    def has_deletes(self, events: DataFrame) -> bool:
        return bool(events.where(DELETED).limit(1).collect())

    def distinct(self, events: DataFrame, merge: Merge) -> DataFrame:
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812

        if merge.history is None:
            newest_first = Window.partitionBy(*map(quote, merge.keys)).orderBy(*self._order(merge))
            events = events.withColumn(PLACE, F.rank().over(newest_first)).where(sql("{} = 1", PLACE)).drop(PLACE)
        named = {*merge.keys, *merge.sequence_by, DELETED}
        # Two deletes are equal whatever else they hold.
        return events.select(
            *(
                F.col(quote(name))
                if name in named
                else F.expr(sql("IF({}, NULL, {})", DELETED, quote(name))).alias(name)
                for name in events.columns
            )
        ).dropDuplicates()

    def newest(self, events: DataFrame, merge: Merge) -> DataFrame:
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812

        order = Window.partitionBy(*map(quote, merge.keys)).orderBy(*self._order(merge), F.desc(DELETED))
        return events.withColumn(PLACE, F.row_number().over(order)).where(sql("{} = 1", PLACE)).drop(PLACE)

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
        moment = internal("moment")

        def moments(rows: DataFrame, column: str) -> DataFrame:
            return rows.select(*map(quote, keys), F.col(quote(column)).alias(moment))

        known = moments(there, start)
        arrived = events.where(NOT_DELETED).withColumn(moment, F.col(quote(sequence)))
        new = arrived.join(known, [*keys, moment], "left_anti").withColumn(start, F.col(moment))
        # Deletes of this batch are remembered by now, so `gone` has them.
        all_moments = known.union(moments(gone, sequence)).union(moments(new, moment)).distinct()
        following = F.lead(moment).over(Window.partitionBy(*map(quote, keys)).orderBy(moment))
        ends = all_moments.withColumn(end, following)
        kept = known.withColumn(start, F.col(moment)).withColumn(DELETED, F.lit(True))
        return new.unionByName(kept, allowMissingColumns=True).join(ends, [*keys, moment]).drop(moment)

    def _order(self, merge: Merge) -> list[Any]:
        from pyspark.sql import functions as F  # noqa: N812

        return [F.desc(quote(name)) for name in merge.sequence_by]


# --- pyarrow ----------------------------------------------------------------------------------------


class _ArrowFrames:
    """Tables of pyarrow, whose rows are compared in Python."""

    def nulls(self, events: pa.Table, names: Sequence[str]) -> dict[str, int]:
        return {name: int(events[name].null_count) for name in names}

    def has_deletes(self, events: pa.Table) -> bool:
        return any(events[DELETED].to_pylist())

    def distinct(self, events: pa.Table, merge: Merge) -> pa.Table:
        named = {*merge.keys, *merge.sequence_by, DELETED}
        last: dict[Any, Any] = {}
        rows = events.to_pylist()
        for row in rows:
            key, at = values_of(row, merge.keys), _place(row, merge)
            last[key] = max(last.get(key, at), at)
        found = {}
        for row in rows:
            if merge.history is None and _place(row, merge) != last[values_of(row, merge.keys)]:
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
            key = values_of(row, merge.keys)
            if key not in found or place(row) > place(found[key]):
                found[key] = row
        return events.from_pylist(list(found.values()), schema=events.schema)

    def ties(self, distinct: pa.Table, merge: Merge) -> int:
        named = [*merge.keys, *merge.sequence_by]
        return int(distinct.num_rows) - len({values_of(row, named) for row in rows_of(distinct, named)})

    def together(self, events: pa.Table, rows: pa.Table, *, deleted: bool) -> pa.Table:
        import pyarrow as pa

        more = []
        for row in rows.to_pylist():
            event = {name: row.get(name) for name in events.column_names}
            event[DELETED] = deleted
            more.append(event)
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
        known = {(values_of(row, keys), row[start]) for row in there.to_pylist() if row[start] is not None}
        arrived = [row for row in events.to_pylist() if not row[DELETED]]
        new = [row for row in arrived if (values_of(row, keys), row[sequence]) not in known]
        # Deletes of this batch are remembered by now, so `gone` has them.
        begun = {(values_of(row, keys), row[sequence]) for row in [*gone.to_pylist(), *new]}
        ends = _ends_of(known | begun)
        versions = []
        for row in new:
            moment = row[sequence]
            versions.append(row | {start: moment, end: ends[values_of(row, keys), moment]})
        for key, moment in known:
            one = dict(zip(keys, key, strict=True))
            versions.append(one | {start: moment, end: ends[key, moment], DELETED: True})
        kind = events.schema.field(sequence).type
        more = [pa.field(name, kind) for name in (start, end) if name not in events.column_names]
        return pa.Table.from_pylist(versions, schema=pa.schema([*events.schema, *more]))


def _ends_of(moments: Iterable[tuple[Any, Any]]) -> dict[tuple[Any, Any], Any]:
    """Return where each version of a key ends, by key and first moment: where the next one begins, the last at None."""
    by_key: dict[Any, list[Any]] = {}
    for key, moment in moments:
        by_key.setdefault(key, []).append(moment)
    ends = {}
    for key, found in by_key.items():
        ordered = sorted(found)
        for moment, following in zip(ordered, [*ordered[1:], None], strict=True):
            ends[key, moment] = following
    return ends


def of_keys(rows: DataFrame, events: DataFrame, merge: Merge) -> DataFrame:
    """Return the rows of Spark that have the key of one of the events."""
    return rows.join(events.select(*map(quote, merge.keys)).distinct(), list(merge.keys), "left_semi")


def keys_of(events: pa.Table, keys: Sequence[str]) -> set[tuple[Any, ...]]:
    """Return the keys of rows of pyarrow."""
    return {values_of(row, keys) for row in rows_of(events, keys)}


def of_arrow_keys(rows: pa.Table, wanted: Collection[Any], keys: Sequence[str], *, others: bool = False) -> pa.Table:
    """Return the rows of pyarrow that have one of some keys; or the others."""
    import pyarrow as pa

    return rows.filter(
        pa.array([(values_of(row, keys) in wanted) != others for row in rows_of(rows, keys)], pa.bool_())
    )


SPARK_FRAMES: Frames = _SparkFrames()
ARROW_FRAMES: Frames = _ArrowFrames()


def values_of(row: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    """Return the values of some columns, to compare rows by."""
    return tuple(row[name] for name in names)


def is_newer(row: Mapping[str, Any], than: Mapping[str, Any], merge: Merge) -> bool:
    """Tell whether a row comes after another one of its key, as `Merge.newer` writes it."""
    return _place(row, merge) > _place(than, merge)


def _place(row: Mapping[str, Any], merge: Merge) -> tuple[Any, ...]:
    """Return where a row stands in the order of its key; without a place, as before the first merge, it is lowest."""
    return tuple((row[name] is not None, row[name]) for name in merge.sequence_by)


def rows_of(table: pa.Table, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return some columns of the rows of a table of pyarrow."""
    found: list[dict[str, Any]] = table.select(list(names)).to_pylist()
    return found
