"""Nested rows as related tables, joined by ids that continue over runs and are the same in a replay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import reduce
from typing import Any

from scripts.helpers._lazy import Column, DataFrame, F
from scripts.helpers.errors import TooManyIdsError
from scripts.helpers.protocol.names import new_token
from scripts.helpers.relational.ids import BUCKET_BITS, RANK_BITS, IdBlock
from scripts.helpers.relational.order import check_order, exactly, inner_types, is_loose, with_sorted_maps
from scripts.helpers.relational.schema import ID, INDEX, Fields, RelatedTable, tables_of

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
    NameCollisionError, FieldTypeError
        Two fields would be one column; a field's type has no order.
    """

    def __init__(self, df: DataFrame | Any, root: str, block: IdBlock, *, keep: bool = True) -> None:
        # A DataFrame has a `toDF` too, which renames columns. The class is asked, as a DataFrame answers for
        # any attribute that is the name of a column.
        is_dynamic = not hasattr(type(df), "where") and hasattr(type(df), "toDF")
        self._df: DataFrame = df.toDF() if is_dynamic else df
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
