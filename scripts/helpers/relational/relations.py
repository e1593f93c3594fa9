"""Nested rows as related tables, joined by ids that continue over runs and are the same in a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from scripts.helpers._lazy import Column, DataFrame, F, T
from scripts.helpers.errors import InvalidValueError, NameCollisionError, TooManyIdsError
from scripts.helpers.protocol.names import new_token
from scripts.helpers.relational.ids import BUCKET_BITS, RANK_BITS, IdBlock

# --- schema ---------------------------------------------------------------------------------------
# Which table and column each field of a nested row ends up in, named as Glue's Relationalize names them.
#
# A struct becomes columns `a.b`. An array `a` becomes a table `root_a` with columns `id`, `index` and `a.val`, or
# `a.val.b` where its elements are structs; an array inside it the table `root_a.val.b`. The names are those of AWS's
# `join_and_relationalize` example. Maps are ours to decide: a table like that of an array, with `m.key` and `m.val`.

ID, INDEX = "id", "index"
"""Of each child table: the id that the parent row holds, and the position in its array, from 0."""


Fields = tuple[str, ...]
"""Names of fields, each inside the one before."""


@dataclass(frozen=True)
class RelatedColumn:
    """One column of a table, and the fields that lead to it from the table's element."""

    name: str
    steps: Fields
    table: str | None = None
    """The child table of an array or map; the column then holds the ids of it."""


@dataclass(frozen=True)
class RelatedTable:
    """One table: that of the rows, or one of an array or map.

    Attributes
    ----------
    steps
        The fields that lead from the parent's element to the array.
    path
        The fields that lead here from the row.
    """

    name: str
    parent: RelatedTable | None = field(default=None, repr=False)
    steps: Fields = ()
    path: Fields = ()
    columns: list[RelatedColumn] = field(default_factory=list)

    @property
    def has_children(self) -> bool:
        """Tell whether a column holds ids."""
        return any(column.table for column in self.columns)


def tables_of(schema: Mapping[str, Any], root: str, *, case_sensitive: bool = False) -> list[RelatedTable]:
    """Return the tables of a schema, each after its parent.

    Parameters
    ----------
    schema
        As Spark writes it in JSON: ``df.schema.jsonValue()``.
    root
        Name of the first table, and start of the others' names.
    case_sensitive
        Whether names that differ by case only are two names.

    Raises
    ------
    NameCollisionError
        Two fields would be one column, or two arrays one table.
    """
    tables: list[RelatedTable] = []
    _add(tables, RelatedTable(root), [("", (), schema)], root)
    # Spark and Glue's catalog read `a` and `A` as one name by default: one of the two columns could never be asked for.
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
            # Named after the root and not after the parent, whose name `name` begins with already.
            child = RelatedTable(f"{root}_{name}", table, steps, table.path + steps)
            table.columns.append(RelatedColumn(name, steps, child.name))
            _add(tables, child, inner, root)


def _leaves(name: str, steps: Fields, kind: Any) -> Iterator[tuple[str, Fields, Any]]:
    """Walk through structs, however deep, to what is none."""
    if isinstance(kind, Mapping) and kind["type"] == "struct":
        for part in kind["fields"]:
            # `steps` too: a field whose name is empty is still a level, and its dot keeps two columns apart.
            inner = f"{name}.{part['name']}" if name or steps else part["name"]
            yield from _leaves(inner, (*steps, part["name"]), part["type"])
    else:
        yield name, steps, kind


def _parts(name: str, kind: Any) -> list[tuple[str, Fields, Any]] | None:
    """Return what the elements of an array or the entries of a map consist of; None for anything else."""
    outer = kind["type"] if isinstance(kind, Mapping) else None
    if outer == "array":
        return [(f"{name}.val", (), kind["elementType"])]
    if outer == "map":
        return [(f"{name}.key", ("key",), kind["keyType"]), (f"{name}.val", ("val",), kind["valueType"])]
    return None


def _check_names(what: str, where: str, named: list[tuple[str, Fields]], as_one: Callable[[str], str]) -> None:
    # A field may be called `b.val` and stand beside an array `b`: joined by dots, two paths can be one name.
    seen: dict[str, Fields] = {}
    for name, path in named:
        if as_one(name) in seen:
            raise NameCollisionError(f"{what} {name!r}{where}", seen[as_one(name)], path)
        seen[as_one(name)] = path


# --- order ----------------------------------------------------------------------------------------
# An exact order for rows of any nesting, so that equal means equal and sorted means sorted everywhere.

WITHOUT_ORDER = ("interval", "variant", "geometry", "geography")


def inner_types(kind: T.DataType) -> list[tuple[str, T.DataType]]:
    """Return the types right within a type, by what leads to them."""
    if isinstance(kind, T.StructType):
        return [(part.name, part.dataType) for part in kind.fields]
    if isinstance(kind, T.ArrayType):
        return [("val", kind.elementType)]
    if isinstance(kind, T.MapType):
        return [("key", kind.keyType), ("val", kind.valueType)]
    return []


def check_order(name: str, kind: T.DataType) -> None:
    """Raise InvalidValueError for a type that has no order, wherever in a field it is."""
    if kind.typeName() in WITHOUT_ORDER:
        raise InvalidValueError(reason="no_order", field=name, kind=kind.typeName())
    for inner, within in inner_types(kind):
        check_order(f"{name}.{inner}", within)


def with_sorted_maps(value: Column, kind: T.DataType) -> Column:
    """Write a value with each of its maps as an array of `key` and `val`, in the order of the keys."""
    return _rebuilt(value, kind, lambda inner: inner.typeName() == "map", lambda plain, _: plain)


def is_loose(kind: T.DataType) -> bool:
    """Tell whether Spark takes unlike values of a type for equal: 0.0 and -0.0, or texts under a collation."""
    return _is_float(kind) or _is_collated(kind) or any(is_loose(inner) for _, inner in inner_types(kind))


def exactly(value: Column, kind: T.DataType) -> Column:
    """Write a value so that those which Spark takes for equal differ where they are not the same."""

    def unlike(plain: Column, of: T.DataType) -> Column:
        if _is_float(of):
            # Spark takes 0.0 and -0.0 for one number, but writes them as two texts. NULL for all other
            # numbers, which the row itself tells apart.
            return F.when(plain == 0, plain.cast("string"))
        # The only other one that is loose: a text under a collation.
        return plain.cast("binary")

    return _rebuilt(value, kind, is_loose, unlike)


def _is_float(kind: T.DataType) -> bool:
    return kind.typeName() in ("float", "double")


def _is_collated(kind: T.DataType) -> bool:
    return getattr(kind, "collation", "UTF8_BINARY") != "UTF8_BINARY"


def _rebuilt(
    value: Column, kind: T.DataType, wanted: Callable[[T.DataType], bool], leaf: Callable[[Column, T.DataType], Column]
) -> Column:
    """Write a value anew where something wanted is in it: maps as sorted arrays, and `leaf` of what holds nothing."""

    def again(inner: Column, of: T.DataType) -> Column:
        return _rebuilt(inner, of, wanted, leaf)

    if not _holds(kind, wanted):
        return value
    if isinstance(kind, T.StructType):
        parts = [again(value.getField(part.name), part.dataType).alias(part.name) for part in kind.fields]
        # Without the condition a struct that is NULL would become one whose fields are NULL: another row.
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
        # The entries of a map have no order of their own, and Spark neither sorts nor hashes maps.
        return F.sort_array(entries)
    return leaf(value, kind)


def _holds(kind: T.DataType, wanted: Callable[[T.DataType], bool]) -> bool:
    return wanted(kind) or any(_holds(inner, wanted) for _, inner in inner_types(kind))


# --- relations ------------------------------------------------------------------------------------

_BUCKET = "glue_watermarks_bucket"
"""A name of this package, by which `batch.parts` ignores the window over it."""
TOO_MANY = "glue-watermarks: too many ids in one bucket"


class Relations:
    """The related tables of one batch of nested rows.

    The ids of a batch are a block of their own, `block`, that is fixed before a row is read. Within it
    a row's place follows from its content alone: rows are dealt by a hash of it into buckets, and
    counted there in its order. So a replay gives each row the id it had, however Spark splits and
    orders them; rows that are equal in everything share out the same ids. It is one shuffle, and
    nothing goes through the driver.

    Parameters
    ----------
    df
        A DataFrame or Glue's DynamicFrame. Its rows must be the same at every reading: no `rand()`,
        no `current_timestamp()`. Without any column, as where nothing is new, the tables have none
        either: they are those that the bookmark remembers.
    root
        Name of the table of the rows.
    block
        The ids to use.
    keep
        Have Spark keep the rows until `release`, so that the source is read once for all tables.

    Raises
    ------
    NameCollisionError, InvalidValueError
        Two fields would be one column; a field's type has no order.
    InvalidValueError
        The rows are not of Spark.
    """

    def __init__(self, df: DataFrame | Any, root: str, block: IdBlock, *, keep: bool = True) -> None:
        # A DataFrame has a `toDF` too, which renames columns. The class is asked, as a DataFrame answers for
        # any attribute that is the name of a column.
        is_dynamic = not hasattr(type(df), "where") and hasattr(type(df), "toDF")
        self._df: DataFrame = df.toDF() if is_dynamic else df
        if not hasattr(type(self._df), "sparkSession"):
            raise InvalidValueError(f"relationalize takes rows of Spark or a DynamicFrame, not a {type(df).__name__}.")
        self.root, self.block = root, block
        spark = self._df.sparkSession
        self._tables = tables_of(
            self._df.schema.jsonValue(), root, case_sensitive=spark.conf.get("spark.sql.caseSensitive") == "true"
        )
        # Rows without an array or map need no ids, and are spared the shuffle and the check of their order.
        self._keyed = self._with_ids() if len(self._tables) > 1 else None
        if self._keyed is not None and keep:
            self._keyed.persist()

    @property
    def plan(self) -> dict[str, Any]:
        """What the plan of a batch keeps: where its ids begin."""
        return self.block.plan

    @property
    def state_after(self) -> dict[str, Any] | None:
        """What the bookmark keeps: where the ids of the next batch begin, and which tables there have been."""
        return self.block.state_after(self._names())

    def tables(self) -> dict[str, DataFrame]:
        """Return the tables by name, that of the rows first."""
        if not self._df.columns:
            return {name: self._df if name == self.root else self._df.limit(0) for name in self._names()}
        return {table.name: self._child(table) if table.parent else self._root(table) for table in self._tables}

    def release(self) -> None:
        """Let go of the rows that Spark keeps so that the source is read once for all tables."""
        if self._keyed is not None:
            with suppress(Exception):  # The session may be gone, and what it kept with it.
                self._keyed.unpersist()

    @contextmanager
    def typed_errors(self) -> Iterator[None]:
        """Let a bucket that is full come out of Spark's error as TooManyIdsError."""
        try:
            yield
        except Exception as error:
            if TOO_MANY in str(error):
                raise TooManyIdsError(
                    self.block.context,
                    f"more than {1 << RANK_BITS:,} are needed for rows of one hash. Add a column that differs for "
                    "equal rows, or remove duplicates.",
                ) from error
            raise

    # --- within ---------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        names = [table.name for table in self._tables]
        known = (name for name in self.block.known if name.startswith(f"{self.root}_"))
        return list(dict.fromkeys([*names, *known]))

    def _rows(self) -> DataFrame:
        """Return one column, `row`, with maps as arrays in the order of their keys."""
        # By position: a name may hold a dot or a backtick, which `F.col` would take for a path.
        fields = self._df.schema.fields
        plain = self._df.toDF(*(f"c{position}" for position in range(len(fields))))
        parts = [
            with_sorted_maps(F.col(f"c{position}"), part.dataType).alias(part.name)
            for position, part in enumerate(fields)
        ]
        return plain.select(F.struct(*parts).alias("row"))

    def _with_ids(self) -> DataFrame:
        """Return each row with its first id; each table has ids of its own from there on."""
        from pyspark.sql import Window

        for part in self._df.schema.fields:
            check_order(part.name, part.dataType)
        rows = self._rows()
        hashed = rows.withColumn("hash", F.xxhash64("row"))
        # Unsigned: half of all hashes are below 0, and a bucket below 0 would reach into another block of ids.
        dealt = hashed.withColumn(_BUCKET, F.shiftrightunsigned("hash", 64 - BUCKET_BITS))
        # The row after its hash: two rows may share a hash, and a replay has to count them in the same order.
        order = ["hash", "row"]
        # Spark sorts 0.0 and -0.0 as one, in any order. Only what is exact tells them apart in a replay.
        loose = [(name, kind) for name, kind in inner_types(rows.schema["row"].dataType) if is_loose(kind)]
        if loose:
            exact = [exactly(F.col("row").getField(name), kind) for name, kind in loose]
            dealt, order = dealt.withColumn("exact", F.xxhash64(*exact)), [*order, "exact"]
        # Every table counts from the row's first id on, so a row takes as many as its largest table with children
        # has elements. The table of the rows takes one.
        inner = [F.size(_elements(table)) for table in self._tables if table.parent and table.has_children]
        needed = F.greatest(F.lit(1), *inner) if inner else F.lit(1)
        # By rows: the default frame is a range, which would give rows that are equal one sum, and so the same ids.
        before = Window.partitionBy(_BUCKET).orderBy(*order).rowsBetween(Window.unboundedPreceding, 0)
        counted = dealt.withColumn("needed", needed.cast("bigint")).withColumn("upto", F.sum("needed").over(before))
        first = F.lit(self.block.first) + F.shiftleft(_BUCKET, RANK_BITS) + F.col("upto") - F.col("needed")
        # One id more would be one of the next bucket, and join the rows of two parents silently.
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

    They are others at each call, and the same for all tables of one. Each table reads the source anew.
    """
    return Relations(df, root, IdBlock.unsaved(new_token()), keep=False).tables()


def _columns(table: RelatedTable, element: Column, own: Column | None) -> list[Column]:
    """Write the columns of a table; that of an array is the id of its rows, or NULL where there is no array."""
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
    """Write all elements of a table that one row has: the place of its parent among those, its index, itself."""

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
    # `flatten` returns NULL as soon as one array is NULL: all other elements of the row would be lost.
    return F.flatten(F.filter(nested, lambda array: array.isNotNull()))
