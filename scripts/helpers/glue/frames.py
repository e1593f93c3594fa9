"""`DynamicFrame`: a DataFrame under the names of Glue's."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from scripts.helpers.errors import GlueOptionError, NotOffGlueError
from scripts.helpers.glue.job import Job
from scripts.helpers.relational.relations import untracked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

TYPES = {"long": "bigint", "short": "smallint", "byte": "tinyint"}
"""Glue's names of types that Spark's SQL does not know."""
_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
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

    Examples
    --------
    >>> df = glue_context.spark_session.createDataFrame([(1, "north"), (2, "south")], "id INT, bay STRING")
    >>> frame = DynamicFrame.fromDF(df, glue_context, "parking")
    >>> frame.apply_mapping([("id", "int", "key", "long")]).toDF().dtypes
    [('key', 'bigint')]
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
        """Keep columns; ones that are not there are left out, as by Glue. See `steps_to` for paths."""
        from pyspark.sql import functions

        columns = []
        for path in _listed(paths):
            steps = self._steps(path)
            if steps:
                columns.append(functions.col(expression(steps)))
        return self._with(self._df.select(columns))

    def drop_fields(self, paths: str | Sequence[str], transformation_ctx: str = "", **_: Any) -> DynamicFrame:
        """Leave columns out. A field of a struct cannot be: NotOffGlueError."""
        dropped = {self._top(path, "drop", "Use Column.dropFields.") for path in _listed(paths)}
        return self._keeping([name for name in self._df.columns if name not in dropped])

    def rename_field(self, oldName: str, newName: str, transformation_ctx: str = "", **_: Any) -> DynamicFrame:
        """Rename a column. A field of a struct cannot be: NotOffGlueError."""
        name = self._top(oldName, "rename", "Build the struct anew with functions.struct.")
        if name is None:
            return self
        return self._with(self._df.withColumnRenamed(name, _new_name(newName)))

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
        columns = []
        for source, _type, target, kind in given:
            steps, name = self._steps(source), _new_name(target)
            if steps:
                columns.append(_cast(steps, kind).alias(name))
        return self._with(self._df.select(columns))

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
            if not choice.startswith("cast:"):
                return self
            specs = [(expression([name]), choice) for name in self._df.columns]
        found = self._df
        for path, action in [specs] if isinstance(specs, tuple) else specs:
            if not action.startswith("cast:"):
                continue
            name = self._top(path, "cast", "Use apply_mapping.")
            if name is not None:
                found = found.withColumn(name, _cast([name], action[len("cast:") :]))
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

        With a `transformation_ctx`, and `Job.init`, the ids that join them go on over runs; without, they
        are below 0 and others at each call. Nothing is staged: `staging_path` is passed over.
        """
        job = Job.tracking(transformation_ctx)
        if job is None:
            tables = untracked(self._df, root_table_name)
        else:
            tables = job.relationalize(self._df, root_table_name, transformation_ctx=transformation_ctx)
        return DynamicFrameCollection(
            {name: DynamicFrame(table, self.glue_ctx, name) for name, table in tables.items()}
        )

    def filter(self, f: Callable[[Any], Any], transformation_ctx: str = "", **_: Any) -> DynamicFrame:
        """Keep the rows for which a function of a Row is true; a KeyError, ValueError or TypeError counts as false.

        Python is called for each row: ``toDF().where(...)`` is many times as fast.
        """
        if not self._df.columns:
            return self
        # The lambda must not hold `self`: it goes to Spark's workers, and a frame has the session in it.
        kept = self._df.rdd.filter(lambda row: _holds(f, row))
        return self._with(self._df.sparkSession.createDataFrame(kept, self._df.schema, verifySchema=False))

    def join(
        self,
        paths1: str | Sequence[str],
        paths2: str | Sequence[str],
        frame2: DynamicFrame,
        transformation_ctx: str = "",
        **_: Any,
    ) -> DynamicFrame:
        """Return the pairs of rows whose keys are equal, with all columns of both.

        A column of `frame2` whose name is there already gets a dot in front of it. With a frame that
        has no columns, as where nothing is new, there are no pairs, and no columns.

        Raises
        ------
        GlueOptionError
            A key that is no column, or not as many keys of the one frame as of the other.
        """
        one, two = self._df, frame2.toDF()
        if not one.columns or not two.columns:
            return self if not one.columns else self._with(two)
        keys1, keys2 = self._places(paths1), frame2._places(paths2)
        if len(keys1) != len(keys2) or not keys1:
            raise GlueOptionError("paths2", f"has {len(keys2)} keys and paths1 has {len(keys1)}. Give pairs of them.")
        taken = {name.lower() for name in one.columns}
        names = list(one.columns)
        for name in two.columns:
            names.append(f".{name}" if name.lower() in taken else name)
        # Joined by places: names may be in both frames, or have dots in them, and Spark would take these for structs.
        left = one.toDF(*(f"l{place}" for place in range(len(one.columns))))
        right = two.toDF(*(f"r{place}" for place in range(len(two.columns))))
        matches = []
        for mine, theirs in zip(keys1, keys2, strict=True):
            matches.append(left[f"l{mine}"] == right[f"r{theirs}"])
        return self._with(left.join(right, matches).toDF(*names))

    def _places(self, paths: str | Sequence[str]) -> list[int]:
        """Return where columns stand."""
        places = []
        for path in _listed(paths):
            name = self._top(path, "join by", "Select it as a column before.")
            if name is None:
                has = ", ".join(self._df.columns)
                raise GlueOptionError("keys", f"has {path!r}, which the frame has not. It has: {has}.")
            places.append(self._df.columns.index(name))
        return places

    def _with(self, df: DataFrame) -> DynamicFrame:
        return DynamicFrame(df, self.glue_ctx, self.name)

    def _steps(self, path: str) -> tuple[str, ...] | None:
        return steps_to(path, self._df.schema)

    def _top(self, path: str, verb: str, remedy: str) -> str | None:
        """Return the name of a column; None if it is not there, NotOffGlueError for a field of a struct."""
        steps = self._steps(path)
        if steps is not None and len(steps) > 1:
            raise NotOffGlueError(f"To {verb} {path!r}, a field of a struct,", remedy)
        return steps[0] if steps else None

    def _keeping(self, names: Sequence[str]) -> DynamicFrame:
        from pyspark.sql import functions

        return self._with(self._df.select([functions.col(expression([name])) for name in names]))


def _holds(f: Callable[[Any], Any], row: Any) -> bool:
    try:
        return bool(f(row))
    except (KeyError, ValueError, TypeError):
        return False


def _listed(paths: str | Sequence[str]) -> list[str]:
    return [paths] if isinstance(paths, str) else list(paths)


def _new_name(path: str) -> str:
    name = name_of(path)
    if name is None:
        raise NotOffGlueError(f"The nested target {path!r}", "Build it with functions.struct.")
    return name


def _cast(steps: Sequence[str], kind: str) -> Any:
    from pyspark.sql import functions

    # A plain cast fails the whole job in ANSI mode, where Glue makes the one value null.
    return functions.expr(f"try_cast({expression(steps)} AS {TYPES.get(kind, kind)})")


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


# --- paths of fields, such as ``bay.name`` or `` `bay.name` `` --------------------------------------------


def steps_to(path: str, schema: StructType) -> tuple[str, ...] | None:
    """Return the names that lead to a field, as the schema spells them; None if it is not there.

    A column whose whole name is the path comes first. Dots reach into structs, arrays of structs and
    maps, and belong to a name in backticks. The case counts only where names differ by nothing else.
    """
    exact = _named(path, schema)
    if exact is not None:
        return (exact,)
    if "`" not in path:
        return _walk(path.split("."), schema, quoted=False)
    parts = [match[1].replace("``", "`") if match[1] else match[2] for match in _PART.finditer(path)]
    return _walk(parts, schema, quoted=True)


def name_of(path: str) -> str | None:
    """Return the name of a new column; None for a field of a struct, which a dot without backticks asks for."""
    quoted = re.fullmatch(r"`((?:[^`]|``)+)`", path)
    if quoted:
        return quoted[1].replace("``", "`")
    return None if "." in path else path


def expression(steps: Sequence[str]) -> str:
    """Write names that lead to a field as Spark's SQL reads them."""
    return ".".join("`" + step.replace("`", "``") + "`" for step in steps)


def _walk(parts: Sequence[str], kind: DataType, *, quoted: bool) -> tuple[str, ...] | None:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if not parts:
        return ()
    while isinstance(kind, ArrayType):
        kind = kind.elementType
    if isinstance(kind, MapType):
        rest = _walk(parts[1:], kind.valueType, quoted=quoted)
        return None if rest is None else (parts[0], *rest)
    if not isinstance(kind, StructType):
        return None
    # Without backticks a name may have dots in it, and the longest one that is there wins.
    for size in [1] if quoted else range(len(parts), 0, -1):
        name = _named(".".join(parts[:size]), kind)
        rest = None if name is None else _walk(parts[size:], kind[name].dataType, quoted=quoted)
        if name is not None and rest is not None:
            return (name, *rest)
    return None


def _named(name: str, schema: StructType) -> str | None:
    """Return a field's name as the schema spells it."""
    if name in schema.names:
        return name
    for each in schema.names:
        if each.lower() == name.lower():
            return each
    return None
