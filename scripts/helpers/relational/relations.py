"""Nested rows as related tables, joined by ids that continue from run to run and are the same in a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from scripts.helpers._lazy import Column, DataFrame, F, T
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.protocol.names import new_token
from scripts.helpers.relational.ids import BUCKET_BITS, RANK_BITS, IdBlock

# --- schema ---------------------------------------------------------------------------------------
# The table and column of each field of a nested row, named as Glue's Relationalize names them.
#
# A struct becomes columns `a.b`. An array `a` becomes a table `root_a` with the columns `id`, `index` and `a.val`, or
# `a.val.b` if its elements are structs. An array inside it becomes the table `root_a.val.b`. The names are those of
# AWS's `join_and_relationalize` example. Maps are an addition: a table like an array's, with `m.key` and `m.val`.

ID, INDEX = "id", "index"
"""Columns of each child table: the id that the parent row holds, and the position in the array, from 0."""


Fields = tuple[str, ...]
"""A path: names of fields, each inside the field before, such as ``("bay", "name")``."""


@dataclass(frozen=True)
class RelatedColumn:
    """One column of a table, and in `steps` the fields that lead to it from an element (a row) of the table."""

    name: str
    steps: Fields
    table: str | None = None
    """The child table of an array or map, whose ids the column holds; None for a value."""


@dataclass(frozen=True)
class RelatedTable:
    """One table: the table of the rows, or the table of an array or map.

    Attributes
    ----------
    steps
        The fields that lead from an element of the parent table to the array or map, such as ``("a", "b")``.
    path
        The fields that lead from the row to the array or map.
    """

    name: str
    parent: RelatedTable | None = field(default=None, repr=False)
    steps: Fields = ()
    path: Fields = ()
    columns: list[RelatedColumn] = field(default_factory=list)

    @property
    def has_children(self) -> bool:
        """Return whether a column holds ids of rows in a child table."""
        return any(column.table for column in self.columns)


def tables_of(schema: Mapping[str, Any], root: str, *, case_sensitive: bool = False) -> list[RelatedTable]:
    """Return the tables of a schema, each after its parent.

    Parameters
    ----------
    schema
        As Spark writes it in JSON: ``df.schema.jsonValue()``.
    root
        Name of the first table, with which the names of all others start.
    case_sensitive
        Whether names that differ only by case are different names.

    Raises
    ------
    InvalidValueError
        Two fields would get the same column name, or two arrays the same table name.
    """
    tables: list[RelatedTable] = []
    _add(tables, RelatedTable(root), [("", (), schema)], root)
    # Spark and Glue's catalog treat `a` and `A` as one name by default, so one of the two columns could never be read.
    as_one = str if case_sensitive else str.lower
    _check_names("table", "", [(table.name, table.path) for table in tables], as_one)
    for table in tables:
        columns = [(column.name, table.path + column.steps) for column in table.columns]
        _check_names("column", f" of table {table.name!r}", columns, as_one)
    return tables


def _add(tables: list[RelatedTable], table: RelatedTable, parts: list[tuple[str, Fields, Any]], root: str) -> None:
    tables.append(table)
    for part in parts:
        for name, steps, kind in _leaves(*part):
            inner = _parts(name, kind)
            if inner is None:
                table.columns.append(RelatedColumn(name, steps))
                continue
            # Prefix `root`, not the parent's name: `name` already has the path through the parent.
            child = RelatedTable(f"{root}_{name}", table, steps, table.path + steps)
            table.columns.append(RelatedColumn(name, steps, child.name))
            _add(tables, child, inner, root)


def _leaves(name: str, steps: Fields, kind: Any) -> Iterator[tuple[str, Fields, Any]]:
    """Yield name, path and type of each field that is not a struct, at any depth: ``"a.b", ("a", "b"), "long"``."""
    if isinstance(kind, Mapping) and kind["type"] == "struct":
        for part in kind["fields"]:
            # Test `steps`, too, because a struct may be named "": its field `b` is `.b`, as the root may have a `b`.
            inner = f"{name}.{part['name']}" if name or steps else part["name"]
            yield from _leaves(inner, (*steps, part["name"]), part["type"])
    else:
        yield name, steps, kind


def _parts(name: str, kind: Any) -> list[tuple[str, Fields, Any]] | None:
    """Return name, path and type of an array's elements, or of a map's keys and values; None for any other type."""
    outer = kind["type"] if isinstance(kind, Mapping) else None
    if outer == "array":
        return [(f"{name}.val", (), kind["elementType"])]
    if outer == "map":
        return [(f"{name}.key", ("key",), kind["keyType"]), (f"{name}.val", ("val",), kind["valueType"])]
    return None


def _check_names(what: str, where: str, named: list[tuple[str, Fields]], as_one: Callable[[str], str]) -> None:
    # Two paths can give one name: the array `b` has a column `b.val`, and a field may be called `b.val`.
    seen: dict[str, Fields] = {}
    for name, path in named:
        if as_one(name) in seen:
            raise InvalidValueError(
                reason="name_collision", what=f"{what} {name!r}{where}", first=seen[as_one(name)], second=path
            )
        seen[as_one(name)] = path


# --- order ----------------------------------------------------------------------------------------
# An exact order for nested rows, so that equality and sorting give the same result in every run.

WITHOUT_ORDER = ("interval", "variant", "geometry", "geography")


def inner_types(kind: T.DataType) -> list[tuple[str, T.DataType]]:
    """Return name and type of each part: a struct's fields, an array's ``val``, a map's ``key`` and ``val``."""
    if isinstance(kind, T.StructType):
        return [(part.name, part.dataType) for part in kind.fields]
    if isinstance(kind, T.ArrayType):
        return [("val", kind.elementType)]
    if isinstance(kind, T.MapType):
        return [("key", kind.keyType), ("val", kind.valueType)]
    return []


def check_order(name: str, kind: T.DataType) -> None:
    """Raise InvalidValueError if a field has a type without an order, at any depth."""
    if kind.typeName() in WITHOUT_ORDER:
        raise InvalidValueError(reason="no_order", field=name, kind=kind.typeName())
    for inner, within in inner_types(kind):
        check_order(f"{name}.{inner}", within)


def with_sorted_maps(value: Column, kind: T.DataType) -> Column:
    """Return a value with each map replaced by an array of `key` and `val`, in the order of the keys."""
    return _rebuilt(value, kind, lambda inner: inner.typeName() == "map", lambda plain, _: plain)


def has_loose_equality(kind: T.DataType) -> bool:
    """Return whether Spark treats different values of a type as equal: 0.0 and -0.0, or texts under a collation."""
    return _is_float(kind) or _is_collated(kind) or any(has_loose_equality(inner) for _, inner in inner_types(kind))


def exactly(value: Column, kind: T.DataType) -> Column:
    """Return a value in a form in which different values differ, even if Spark treats the original values as equal."""

    def unlike(plain: Column, of: T.DataType) -> Column:
        if _is_float(of):
            # Return a text for 0.0 and -0.0, which Spark sorts as equal. All other numbers become NULL: the caller
            # sorts by the row first, and by this value only rows that Spark treats as equal.
            return F.when(plain == 0, plain.cast("string"))
        # A text with a collation, in which Spark may treat different texts as equal: return its bytes, which differ.
        return plain.cast("binary")

    return _rebuilt(value, kind, has_loose_equality, unlike)


def _is_float(kind: T.DataType) -> bool:
    return kind.typeName() in ("float", "double")


def _is_collated(kind: T.DataType) -> bool:
    return getattr(kind, "collation", "UTF8_BINARY") != "UTF8_BINARY"


def _rebuilt(
    value: Column, kind: T.DataType, wanted: Callable[[T.DataType], bool], leaf: Callable[[Column, T.DataType], Column]
) -> Column:
    """Return a value with its parts of `wanted` types replaced: maps by sorted arrays, plain values by `leaf`."""

    def again(inner: Column, of: T.DataType) -> Column:
        return _rebuilt(inner, of, wanted, leaf)

    if not _holds(kind, wanted):
        return value
    if isinstance(kind, T.StructType):
        parts = [again(value.getField(part.name), part.dataType).alias(part.name) for part in kind.fields]
        # Keep NULL structs: a struct of NULL fields in place of NULL would be a different row.
        return F.when(value.isNotNull(), F.struct(*parts))
    if isinstance(kind, T.ArrayType):
        of_element = kind.elementType
        return F.transform(value, lambda element: again(element, of_element))
    if isinstance(kind, T.MapType):
        of_key, of_value = kind.keyType, kind.valueType
        entries = F.transform(
            F.map_entries(value),
            lambda entry: F.struct(
                again(entry.getField("key"), of_key).alias("key"),
                again(entry.getField("value"), of_value).alias("val"),
            ),
        )
        # Sort the entries: a map has no order of its own, and Spark neither sorts nor hashes maps.
        return F.sort_array(entries)
    return leaf(value, kind)


def _holds(kind: T.DataType, wanted: Callable[[T.DataType], bool]) -> bool:
    return wanted(kind) or any(_holds(inner, wanted) for _, inner in inner_types(kind))


# --- relations ------------------------------------------------------------------------------------

_BUCKET = "glue_watermarks_bucket"
"""Bucket column. The prefix marks Spark windows over new rows as this package's, so `batch.parts` logs no WARNING."""
TOO_MANY = "glue-watermarks: too many ids in one bucket"


class Relations:
    """The related tables of one batch of nested rows.

    Each batch has a block of ids, `block`, that is fixed before a row is read. A row's place in the block depends only
    on its content: its hash chooses a bucket, and rows are counted in each bucket in the order of their content. So a
    replay assigns each row the same id, however Spark splits and orders the rows. Identical rows get different ids; a
    replay may exchange these. The numbering takes one shuffle, and no row goes through the driver.

    Parameters
    ----------
    df
        A DataFrame or Glue's DynamicFrame. Its rows must be the same at every read: no `rand()`,
        no `current_timestamp()`. If it has no columns, as when nothing is new, the tables have no columns
        either, and their names are `root` and those of the tables of earlier batches (`block.known`).
    root
        Name of the table of the rows.
    block
        The block of ids from which each row gets its ids.
    keep
        Persist the rows in Spark until `release`, so that the source is read once for all tables.

    Raises
    ------
    InvalidValueError
        Two fields would get the same column name; a field's type has no order; `df` is neither a DataFrame of Spark nor
        a DynamicFrame.
    """

    def __init__(self, df: DataFrame | Any, root: str, block: IdBlock, *, keep: bool = True) -> None:
        # A DataFrame has a `toDF`, too, which renames columns, so check `where` as well. Check the class: a DataFrame
        # has an attribute for each of its columns, and one may be called `where`.
        is_dynamic = not hasattr(type(df), "where") and hasattr(type(df), "toDF")
        self._df: DataFrame = df.toDF() if is_dynamic else df
        if not hasattr(type(self._df), "sparkSession"):
            raise InvalidValueError(f"relationalize takes rows of Spark or a DynamicFrame, not a {type(df).__name__}.")
        self.root, self.block = root, block
        spark = self._df.sparkSession
        self._tables = tables_of(
            self._df.schema.jsonValue(), root, case_sensitive=spark.conf.get("spark.sql.caseSensitive") == "true"
        )
        # Rows without an array or map need no ids. Skip `_with_ids`, which shuffles, and refuses types without order.
        self._keyed = self._with_ids() if len(self._tables) > 1 else None
        if self._keyed is not None and keep:
            self._keyed.persist()

    @property
    def plan(self) -> dict[str, Any]:
        """The part that the plan of a batch stores: the first id of the block from which rows get their ids."""
        return self.block.plan

    @property
    def state_after(self) -> dict[str, Any] | None:
        """The state to store: the first id of the next batch and all table names; None to keep the state."""
        return self.block.state_after(self._names())

    def tables(self) -> dict[str, DataFrame]:
        """Return the tables by name: first the one with a row for each row of `df`, then those of arrays and maps."""
        if not self._df.columns:
            return {name: self._df if name == self.root else self._df.limit(0) for name in self._names()}
        return {table.name: self._child(table) if table.parent else self._root(table) for table in self._tables}

    def release(self) -> None:
        """Remove the persisted rows from Spark, once all tables are written."""
        if self._keyed is not None:
            with suppress(Exception):  # If the session has ended, its persisted rows are gone already.
                self._keyed.unpersist()

    @contextmanager
    def typed_errors(self) -> Iterator[None]:
        """Raise InvalidValueError for Spark's error that a bucket (rows with hashes that begin alike) lacks row ids."""
        try:
            yield
        except Exception as error:
            if TOO_MANY in str(error):
                raise InvalidValueError(
                    f"more than {1 << RANK_BITS:,} are needed for rows of one hash. Add a column that differs for "
                    "equal rows, or remove duplicates.",
                    reason="too_many_ids",
                    context=self.block.context,
                ) from error
            raise

    # --- internals of Relations -----------------------------------------------------------------

    def _names(self) -> list[str]:
        names = [table.name for table in self._tables]
        known = (name for name in self.block.known if name.startswith(f"{self.root}_"))
        return list(dict.fromkeys([*names, *known]))

    def _rows(self) -> DataFrame:
        """Return the rows as one column, `row`, with maps as arrays in the order of their keys."""
        # Name columns by position, because `F.col` would parse a dot or a backtick in a name as a path.
        fields = self._df.schema.fields
        plain = self._df.toDF(*(f"c{position}" for position in range(len(fields))))
        parts = [
            with_sorted_maps(F.col(f"c{position}"), part.dataType).alias(part.name)
            for position, part in enumerate(fields)
        ]
        return plain.select(F.struct(*parts).alias("row"))

    def _with_ids(self) -> DataFrame:
        """Return each row with its id, `first`. In tables of arrays or maps, a row's elements have ids from `first`."""
        from pyspark.sql import Window

        for part in self._df.schema.fields:
            check_order(part.name, part.dataType)
        rows = self._rows()
        hashed = rows.withColumn("hash", F.xxhash64("row"))
        # Shift unsigned: half of all hashes are negative, and a negative bucket would get ids of an earlier block.
        dealt = hashed.withColumn(_BUCKET, F.shiftrightunsigned("hash", 64 - BUCKET_BITS))
        # Sort by hash, then by row, so that a replay numbers rows with the same hash in the same order.
        order = ["hash", "row"]
        # Spark sorts 0.0 and -0.0 as equal, in any order. The exact form keeps their order the same in a replay.
        loose = [(name, kind) for name, kind in inner_types(rows.schema["row"].dataType) if has_loose_equality(kind)]
        if loose:
            exact = [exactly(F.col("row").getField(name), kind) for name, kind in loose]
            dealt, order = dealt.withColumn("exact", F.xxhash64(*exact)), [*order, "exact"]
        # Ids are unique only within a table: in each table with children, the elements of one source row get the ids
        # from the row's `first` on. So a row needs as many ids as it has elements in its largest table, at least one.
        inner = [F.size(_elements(table)) for table in self._tables if table.parent and table.has_children]
        needed = F.greatest(F.lit(1), *inner) if inner else F.lit(1)
        # Use a window frame of rows. In the default one, a range, equal rows would get the same sum, and the same ids.
        before = Window.partitionBy(_BUCKET).orderBy(*order).rowsBetween(Window.unboundedPreceding, 0)
        counted = dealt.withColumn("needed", needed.cast("bigint")).withColumn("upto", F.sum("needed").over(before))
        first = F.lit(self.block.first) + F.shiftleft(_BUCKET, RANK_BITS) + F.col("upto") - F.col("needed")
        # Raise if a bucket (rows whose hashes begin alike) has too few ids: the next id may be that of another row.
        fits = F.col("upto") <= (1 << RANK_BITS)
        return counted.select(
            "row", F.when(fits, first).otherwise(F.raise_error(F.lit(TOO_MANY)).cast("bigint")).alias("first")
        )

    def _root(self, table: RelatedTable) -> DataFrame:
        rows = self._rows() if self._keyed is None else self._keyed
        return rows.select(*_columns(table, F.col("row"), F.col("first") if table.has_children else None))

    def _child(self, table: RelatedTable) -> DataFrame:
        assert self._keyed is not None
        items = self._keyed.select("first", F.posexplode(_elements(table)))
        of_row = items.select(
            (F.col("first") + F.col("col.parent")).alias(ID),
            F.col("col.index").alias(INDEX),
            (F.col("first") + F.col("pos")).alias("own"),
            F.col("col.element").alias("element"),
        )
        return of_row.select(ID, INDEX, *_columns(table, F.col("element"), F.col("own")))


def untracked(df: DataFrame | Any, root: str) -> dict[str, DataFrame]:
    """Return the tables of rows that belong to no job, with ids below 0.

    Ids differ from call to call, so only tables of one call can be joined. Each table reads the source again.
    """
    return Relations(df, root, IdBlock.unsaved(new_token()), keep=False).tables()


def _columns(table: RelatedTable, element: Column, own: Column | None) -> list[Column]:
    """Return a table's columns. An array's column holds the id of its rows in the child table, or NULL for no array."""
    made = []
    for column in table.columns:
        value = _field(element, column.steps)
        if column.table is not None:
            assert own is not None
            value = F.when(value.isNotNull(), own)
        made.append(value.alias(column.name))
    return made


def _field(value: Column, steps: Fields) -> Column:
    return reduce(lambda outer, name: outer.getField(name), steps, value)


def _elements(table: RelatedTable) -> Column:
    """Return a row's elements for `table`, each with its index and its parent's position in those of `table.parent`."""

    def placed(array: Column, parent: Column) -> Column:
        return F.transform(
            array,
            lambda element, index: F.struct(parent.alias("parent"), index.alias("index"), element.alias("element")),
        )

    assert table.parent is not None
    if table.parent.parent is None:
        return placed(_field(F.col("row"), table.steps), F.lit(0))
    nested = F.transform(
        _elements(table.parent), lambda outer, own: placed(_field(outer.getField("element"), table.steps), own)
    )
    # Drop NULL arrays first: `flatten` returns NULL if any array is NULL, and the other elements would be lost.
    return F.flatten(F.filter(nested, lambda array: array.isNotNull()))
