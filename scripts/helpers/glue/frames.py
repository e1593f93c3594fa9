"""`DynamicFrame`: a DataFrame under the names of Glue's."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from scripts.helpers.errors import GlueOptionError, NotOffGlueError
from scripts.helpers.glue.job import Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

TYPES = {"long": "bigint", "short": "smallint", "byte": "tinyint"}
"""Glue's names of types that Spark's SQL does not know."""
INSTEAD = "Call toDF(), work on the DataFrame, and come back with DynamicFrame.fromDF(df, glue_context, name)."


class DynamicFrame:
    """A DataFrame with the methods of Glue's DynamicFrame that scripts for bookmarks use.

    There is no choice type: a column has one type, as Spark infers it. What Glue's has and this one
    has not raises a NotOffGlueError that says what to do instead.

    Parameters
    ----------
    df
        The rows. `toDF` returns it as it is.
    glue_ctx
        The context that it belongs to.
    name
        Of the frame.
    """

    def __init__(self, df: DataFrame, glue_ctx: Any, name: str = "") -> None:
        self._df, self.glue_ctx, self.name = df, glue_ctx, name

    @classmethod
    def fromDF(cls, dataframe: DataFrame, glue_ctx: Any, name: str) -> DynamicFrame:  # noqa: N802
        """Wrap a DataFrame."""
        return cls(dataframe, glue_ctx, name)

    def __getattr__(self, name: str) -> NoReturn:
        """Name what is not here; AttributeError as ever for what Glue has not either."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotOffGlueError(f"DynamicFrame.{name}", INSTEAD)

    def toDF(self, options: Sequence[Any] | None = None) -> DataFrame:  # noqa: N802
        """Return the DataFrame. There are no choices to resolve, so `options` must be empty."""
        if options:
            raise NotOffGlueError("A ResolveOption", "Cast the columns of the DataFrame.")
        return self._df

    def count(self) -> int:
        """Count the rows."""
        return self._df.count()

    def schema(self) -> StructType:
        """Return the schema, as Spark's StructType."""
        return self._df.schema

    def printSchema(self) -> None:  # noqa: N802
        """Print the schema."""
        self._df.printSchema()

    def show(self, num_rows: int = 20) -> None:
        """Print rows as JSON, one a line."""
        for row in self._df.limit(num_rows).toJSON().collect():
            sys.stdout.write(f"{row}\n")

    def errorsCount(self) -> int:  # noqa: N802
        """Return 0: rows that Spark cannot read are errors of the job."""
        return 0

    def select_fields(self, paths: str | Sequence[str], transformation_ctx: str = "", **_: Any) -> DynamicFrame:
        """Keep columns; ones that are not there are left out, as by Glue. Dots reach into structs."""
        return self._with(self._df.select([_column(path) for path in self._there(paths)]))

    def drop_fields(self, paths: str | Sequence[str], transformation_ctx: str = "", **_: Any) -> DynamicFrame:
        """Leave columns out. A field of a struct cannot be: NotOffGlueError."""
        names = [paths] if isinstance(paths, str) else list(paths)
        for name in names:
            if name not in self._df.columns and "." in name:
                raise NotOffGlueError(f"To drop {name!r}, a field of a struct,", "Use Column.dropFields.")
        return self._with(self._df.drop(*names))

    def rename_field(self, oldName: str, newName: str, transformation_ctx: str = "", **_: Any) -> DynamicFrame:
        """Rename a column."""
        return self._with(self._df.withColumnRenamed(oldName, newName))

    def apply_mapping(
        self,
        mappings: Sequence[tuple[str, str, str, str]],
        case_sensitive: bool = False,
        transformation_ctx: str = "",
        **_: Any,
    ) -> DynamicFrame:
        """Select, rename and cast: a list of (source, its type, target, its type).

        A source that is not there is left out, and a value that cannot be cast is null, as by Glue.
        """
        given = [mappings] if isinstance(mappings, tuple) else list(mappings)
        for mapping in given:
            if len(mapping) != 4:
                raise GlueOptionError("mappings", f"has {mapping!r}. Each is (source, its type, target, its type).")
            if "." in mapping[2]:
                raise NotOffGlueError(f"The nested target {mapping[2]!r}", "Build it with functions.struct.")
        there = set(self._there([source for source, _, _, _ in given]))
        return self._with(
            self._df.select([_cast(source, kind).alias(target) for source, _, target, kind in given if source in there])
        )

    def applyMapping(self, *args: Any, **options: Any) -> DynamicFrame:  # noqa: N802
        """Do what `apply_mapping` does."""
        return self.apply_mapping(*args, **options)

    def resolveChoice(  # noqa: N802
        self,
        specs: Sequence[tuple[str, str]] | None = None,
        choice: str = "",
        transformation_ctx: str = "",
        **_: Any,
    ) -> DynamicFrame:
        """Cast columns: ``specs=[("price", "cast:double")]``. Any other choice changes nothing, as there is none."""
        if specs is None:
            if choice.startswith("cast:"):
                specs = [(name, choice) for name in self._df.columns]
            else:
                return self
        found = self._df
        for path, action in [specs] if isinstance(specs, tuple) else specs:
            if action.startswith("cast:") and path in found.columns:
                found = found.withColumn(path, _cast(path, action[len("cast:") :]))
        return self._with(found)

    def relationalize(
        self,
        root_table_name: str,
        staging_path: str | None = None,
        options: Mapping[str, Any] | None = None,
        transformation_ctx: str = "",
        **_: Any,
    ) -> DynamicFrameCollection:
        """Flatten nested rows into related frames by name; see `IncrementalJob.relationalize`.

        The ids that join them go on over runs, so a `transformation_ctx` is needed, and `Job.init`.
        Nothing is staged: `staging_path` is passed over.
        """
        job = Job.tracking(transformation_ctx)
        if job is None or not transformation_ctx:
            raise GlueOptionError("transformation_ctx", "is missing for relationalize, or Job.init is. Give both.")
        tables = job.relationalize(self._df, root_table_name, transformation_ctx=transformation_ctx)
        return DynamicFrameCollection(
            {name: DynamicFrame(table, self.glue_ctx, name) for name, table in tables.items()}
        )

    def filter(self, f: Any, transformation_ctx: str = "", **_: Any) -> NoReturn:
        """Glue's filter calls Python for each record; use that of the DataFrame."""
        raise NotOffGlueError("DynamicFrame.filter", INSTEAD)

    def _with(self, df: DataFrame) -> DynamicFrame:
        return DynamicFrame(df, self.glue_ctx, self.name)

    def _there(self, paths: str | Sequence[str]) -> list[str]:
        names = [paths] if isinstance(paths, str) else list(paths)
        known = {name.lower() for name in self._df.columns}
        return [name for name in names if name.lower() in known or name.partition(".")[0].lower() in known]


def _column(path: str) -> Any:
    from pyspark.sql import functions

    return functions.col(".".join(f"`{part}`" for part in path.strip("`").split(".")))


def _cast(path: str, kind: str) -> Any:
    from pyspark.sql import functions

    quoted = ".".join(f"`{part}`" for part in path.strip("`").split("."))
    return functions.expr(f"try_cast({quoted} AS {TYPES.get(kind, kind)})")


class DynamicFrameCollection(dict[str, DynamicFrame]):
    """Frames by their names."""

    def select(self, key: str, transformation_ctx: str = "") -> DynamicFrame:
        """Return one frame."""
        return self[key]


def as_dataframe(frame: DynamicFrame | DataFrame | DynamicFrameCollection) -> DataFrame:
    """Return the DataFrame of either kind of frame."""
    if isinstance(frame, DynamicFrameCollection):
        raise NotOffGlueError("A DynamicFrameCollection", "Write its frames one by one.")
    found: DataFrame = frame.toDF() if isinstance(frame, DynamicFrame) else frame
    return found
