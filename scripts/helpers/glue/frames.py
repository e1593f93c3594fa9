"""`DynamicFrame`: a DataFrame with the methods of Glue's class."""

from __future__ import annotations

import logging
import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from scripts.helpers._lazy import DataFrame, F, T
from scripts.helpers.errors import NotOffGlueError
from scripts.helpers.glue.choices import cast, resolved, spark_type, typed_analysis
from scripts.helpers.glue.fields import Field, changed, expression, field_at, parts_of, steps_to, top_field
from scripts.helpers.glue.job import Job
from scripts.helpers.glue.paths import glue_option_error
from scripts.helpers.glue.records import kept, mapped
from scripts.helpers.relational.relations import untracked
from scripts.helpers.rows.sql import joined, sql
from scripts.helpers.schemas.spark_frames import quoted, united
from scripts.helpers.sinks.spark_files import exact_texts
from scripts.helpers.spark.inferred import inferred_schema
from scripts.helpers.spark.jvm import check_jvm, rdd_of

logger = logging.getLogger(__name__)

NESTED = ("array", "struct", "map")
"""Types that a mapping may name without their elements or fields, so values are not cast to them."""
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip
WITHOUT_GLUE = "Use IncrementalJob: its new_files, rows_since and write work over Spark Connect as well."
"""What to use with Spark Connect, which has no RDDs to infer types with and no JVM to parse types."""
INSTEAD = "Call toDF(), work on the DataFrame, and come back with DynamicFrame.fromDF(df, glue_context, name)."


@dataclass(frozen=True)
class ResolveOption:
    """How `DynamicFrame.toDF` changes a column: ``Cast`` to a type of Spark; see `DynamicFrame.resolveChoice`."""

    path: str
    action: str
    target: Any = None


class Named:
    """Base of Glue's classes: attributes that do not exist here raise NotOffGlueError, private ones AttributeError."""

    called, instead = "", INSTEAD

    def __getattr__(self, name: str) -> NoReturn:
        """Raise NotOffGlueError for an attribute that does not exist here."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotOffGlueError(f"{self.called}.{name}", self.instead)


class DynamicFrame(Named):
    """A DataFrame with the methods of Glue's DynamicFrame.

    A column has one type: if its values have several types, Glue's reader makes it a choice and Spark's makes it text.
    A method that only Glue's frame has raises a NotOffGlueError that says what to do instead.

    Parameters
    ----------
    df
        The rows. `toDF` returns it.
    glue_ctx
        The context that the frame belongs to.
    name
        Name of the frame.

    Raises
    ------
    NoJvmError
        `df` belongs to Spark Connect.

    Examples
    --------
    >>> df = glue_context.spark_session.createDataFrame([(1, "north"), (2, "south")], "id INT, bay STRING")
    >>> frame = DynamicFrame.fromDF(df, glue_context, "parking")
    >>> frame.apply_mapping([("id", "int", "key", "long")]).toDF().dtypes
    [('key', 'bigint')]
    """

    called = "DynamicFrame"

    def __init__(self, df: DataFrame, glue_ctx: Any, name: str = "") -> None:
        check_jvm(df, self.called, WITHOUT_GLUE)
        self._df, self.glue_ctx, self.name = df, glue_ctx, name

    @classmethod
    def fromDF(cls, dataframe: DataFrame, glue_ctx: Any, name: str = "") -> DynamicFrame:  # noqa: N802
        """Wrap a DataFrame."""
        return cls(dataframe, glue_ctx, name)

    # --- inspection ------------------------------------------------------------------------------

    def toDF(self, options: Sequence[ResolveOption] | None = None) -> DataFrame:  # noqa: N802
        """Return the DataFrame. Each `ResolveOption` in `options` may cast one column."""
        found = self._df
        for option in options or ():
            if option.action == "KeepAsStruct":
                continue
            if option.action not in ("Cast", "Project") or option.target is None:
                raise glue_option_error(
                    "options", f"has {option!r}. The actions are KeepAsStruct, and Cast and Project with a target type."
                )
            target = option.target if isinstance(option.target, str) else option.target.simpleString()
            found = resolved(found, [(option.path, f"{option.action.lower()}:{target}")], "")
        return found

    @typed_analysis("frame")
    def count(self) -> int:
        """Count the rows."""
        return self._df.count()

    def schema(self) -> T.StructType:
        """Return the schema, as Spark's StructType."""
        return self._df.schema

    def printSchema(self) -> None:  # noqa: N802
        """Print the schema."""
        self._df.printSchema()

    @typed_analysis("frame")
    def show(self, num_rows: int = 20) -> None:
        """Print rows as JSON, one per line."""
        for row in self._df.limit(num_rows).toJSON().collect():
            sys.stdout.write(f"{row}\n")

    def getNumPartitions(self) -> int:  # noqa: N802
        """Return the number of partitions."""
        return int(rdd_of(self._df).getNumPartitions())

    def errorsCount(self) -> int:  # noqa: N802
        """Return 0: rows that Spark cannot read and errors in functions fail the job, so no error row is kept."""
        return 0

    stageErrorsCount = errorsCount  # noqa: N815

    def assertErrorThreshold(self) -> None:  # noqa: N802
        """Do nothing, because no error rows are kept."""

    def errorsAsDynamicFrame(self) -> DynamicFrame:  # noqa: N802
        """Return a frame without rows and columns, because no error rows are kept."""
        return self._with(self._df.sparkSession.createDataFrame([], "struct<>"))

    # --- columns ---------------------------------------------------------------------------------

    @typed_analysis("paths")
    def select_fields(self, paths: str | Sequence[str], transformation_ctx: str = "", **_: Any) -> DynamicFrame:
        """Keep the named columns and fields of structs; see `fields.steps_to` for paths.

        Paths that do not exist are ignored, as in Glue.
        """
        wanted: dict[tuple[str, ...], Any] = {}
        for path in _listed(paths):
            steps = self._steps(path)
            # Refuse a field inside a list of structs: it has many values, and the selected struct has room for one.
            if steps and field_at(self._df.schema, steps) is None:
                raise NotOffGlueError(f"To select {path!r}, a field inside a list or a map,", INSTEAD)
            if steps:
                wanted[steps] = steps, F.col(expression(steps))
        # Ignore a field if the struct that contains it is selected, too.
        whole = {steps: value for steps, value in wanted.items() if not _is_within(steps, wanted)}
        return self._with(self._df.select(_as_structs(whole)))

    def drop_fields(self, paths: str | Sequence[str], transformation_ctx: str = "", **_: Any) -> DynamicFrame:
        """Drop columns and fields of structs. A struct that has no fields left is dropped too."""
        found = self._df
        for path in _listed(paths):
            steps = steps_to(path, found.schema)
            if steps:
                found = changed(found, steps, lambda field: [])
        return self._with(found)

    def rename_field(self, oldName: str, newName: str, transformation_ctx: str = "", **_: Any) -> DynamicFrame:
        """Rename a column or a field of a struct. The new path must be in the same struct."""
        steps, new = self._steps(oldName), parts_of(newName)
        if not steps:
            return self
        if len(steps) != len(new) or list(steps[:-1]) != list(new[:-1]):
            raise NotOffGlueError(f"To move {oldName!r} to {newName!r}", "Use apply_mapping, which builds structs.")
        return self._with(changed(self._df, steps, lambda field: [replace(field, name=new[-1])]))

    @typed_analysis("mappings")
    def apply_mapping(
        self,
        mappings: Sequence[tuple[str, ...]] | tuple[str, ...],
        case_sensitive: bool = False,
        transformation_ctx: str = "",
        **_: Any,
    ) -> DynamicFrame:
        """Select, rename and cast columns.

        As in Glue, a source that does not exist is ignored, and a value that cannot be cast becomes NULL. A target such
        as ``bay.name`` is a field of a struct; put a name with a dot in backticks.

        Parameters
        ----------
        mappings
            (source, its type, target, its type), (source, target, its type) or (source, target). The source's type is
            ignored. The target types ``array``, ``struct`` and ``map`` leave the value unchanged. A source inside a
            list, such as ``bays[].name``, is the list of its values.
        case_sensitive
            Whether to ignore a source whose name differs from the column's by case, such as ``ID`` for ``id``.

        Raises
        ------
        InvalidValueError
            A mapping has another length, a type does not exist or Spark cannot cast to it, or a target is named
            twice.
        NotOffGlueError
            A target is inside a list, or its type is ``array``, ``struct`` or ``map`` and the value's is not.
        """
        given = [mappings] if isinstance(mappings, tuple) else list(mappings)
        targets: dict[tuple[str, ...], tuple[tuple[str, ...], Any]] = {}
        for mapping in given:
            if not 2 <= len(mapping) <= 4:
                raise glue_option_error("mappings", f"has {mapping!r}. Each is (source, its type, target, its type).")
            source, target = mapping[0], mapping[1] if len(mapping) < 4 else mapping[2]
            if "[]" in target:
                raise NotOffGlueError(f"To map to {target!r}, a field inside a list,", INSTEAD)
            kind = mapping[-1] if len(mapping) > 2 else ""
            path = parts_of(target)
            if path in targets or not path:
                raise glue_option_error(
                    "mappings", f"names the target {target!r} {'twice' if path else 'without a name'}."
                )
            steps = self._steps(source)
            if steps and (not case_sensitive or ".".join(steps) == source.replace("`", "").replace("[]", "")):
                targets[path] = steps, self._mapped(source, steps, kind)
        return self._with(self._df.select(_as_structs(targets)))

    applyMapping = apply_mapping  # noqa: N815
    """Glue's other name for `apply_mapping`."""

    def resolveChoice(  # noqa: N802
        self,
        specs: Sequence[tuple[str, str]] | tuple[str, str] | None = None,
        choice: str = "",
        database: str | None = None,
        table_name: str | None = None,
        transformation_ctx: str = "",
        catalog_id: str | None = None,
        **_: Any,
    ) -> DynamicFrame:
        """Cast columns to the types in `specs` (``cast:TYPE``). As in Glue, a value that cannot be cast becomes NULL.

        There are no choice columns here: JSON with several types is text. So `choice` only logs a WARNING, unless it
        is ``match_catalog``, which casts text columns to the types of a catalogue table. In `specs`, ``project:TYPE``,
        ``make_cols`` and ``make_struct`` leave a column with one type unchanged, and raise an error for a text column.

        Raises
        ------
        InvalidValueError
            Both or neither of `specs` and `choice` are given, an action is unknown or does not accept text columns, or
            ``match_catalog`` has no table.
        """
        if (specs is None) == (not choice):
            raise glue_option_error("specs", "and choice go one without the other. Give one of them.")
        pairs = [specs] if isinstance(specs, tuple) else list(specs or ())
        types = None
        if choice.lower() == "match_catalog":
            if not database or not table_name:
                raise glue_option_error("choice", "is 'match_catalog'. Name the database and the table_name.")
            from scripts.helpers.glue.catalog import Catalog

            table = Catalog(catalog_id).table(database, table_name)
            types = dict([*table.columns, *table.partition_keys])
        return self._with(resolved(self._df, pairs, choice, types))

    def unnest(self, transformation_ctx: str = "", **_: Any) -> DynamicFrame:
        """Turn fields of structs into columns called ``bay.name``; raise NotOffGlueError for an array of structs."""

        def leaves(field: Field) -> list[Field]:
            if isinstance(field.kind, T.ArrayType) and isinstance(field.kind.elementType, T.StructType):
                raise NotOffGlueError(f"To unnest {field.name!r}, an array of structs,", "Use relationalize.")
            if not isinstance(field.kind, T.StructType):
                return [field]
            found: list[Field] = []
            for part in field.kind.fields:
                inner = field.inner(part)
                found += leaves(replace(inner, name=f"{field.name}.{part.name}"))
            return found

        columns = []
        for part in self._df.schema.fields:
            for leaf in leaves(top_field(part)):
                columns.append(leaf.column())
        return self._with(self._df.select(columns))

    @typed_analysis("path")
    def unbox(self, path: str, format: str, transformation_ctx: str = "", **options: Any) -> DynamicFrame:
        """Parse the JSON in a text column into a struct or an array. Spark reads all texts to infer the types.

        Raises
        ------
        NotOffGlueError
            The format is not ``json``, options of a format are given, or the path is a field of a struct.
        InvalidValueError
            A text is not JSON. This is found while the types are inferred.
        """
        further = {name for name in options if name not in ("info", "stageThreshold", "totalThreshold")}
        if format.lower() != "json" or further:
            raise NotOffGlueError(f"To unbox {format!r} with {sorted(further)}", "Use functions.from_csv or from_avro.")
        name = self._top(path, "unbox", "Select it as a column before.")
        if name is None:
            return self
        texts = F.concat(F.lit('{"value":'), F.col(expression([name])), F.lit("}"))
        found = inferred_schema(self._df.select(texts).dropna(), "json", {})
        if "_corrupt_record" in found.names:
            raise glue_option_error("path", f"is {path!r}, and a text of it is not JSON.")
        if not found.names:
            return self
        value = F.from_json(texts, found)["value"].alias(name)
        return self._with(self._df.select([value if each == name else quoted(each) for each in self._df.columns]))

    def relationalize(
        self,
        root_table_name: str = "roottable",
        staging_path: str | None = None,
        options: Mapping[str, Any] | None = None,
        transformation_ctx: str = "",
        **_: Any,
    ) -> DynamicFrameCollection:
        """Flatten nested rows into related frames by name; see `IncrementalJob.relationalize`.

        With a `transformation_ctx` and `Job.init`, the ids that join the frames continue across runs. Otherwise
        they are negative and differ at each call. Nothing is staged: `staging_path` is ignored.
        """
        job = Job.tracking(transformation_ctx)
        if job is None:
            tables = untracked(self._df, root_table_name)
        else:
            tables = job.relationalize(self._df, root_table_name, transformation_ctx=transformation_ctx)
        return DynamicFrameCollection({name: self._with(df, name) for name, df in tables.items()}, self.glue_ctx)

    # --- rows ------------------------------------------------------------------------------------

    @typed_analysis("f")
    def filter(self, f: Callable[[Any], Any], transformation_ctx: str = "", **_: Any) -> DynamicFrame:
        """Keep the rows for which a function of the record is true; a KeyError, ValueError or TypeError means false.

        A record is a dictionary without the fields that are NULL; see `records`. The function runs in Python for each
        row: ``toDF().where(...)`` is many times faster.
        """
        return self._with(kept(self._df, f)) if self._df.columns else self

    @typed_analysis("f")
    def map(
        self, f: Callable[[Any], Any], preservesPartitioning: bool = False, transformation_ctx: str = "", **_: Any
    ) -> DynamicFrame:
        """Return the records that a function returns for each record; see `records.mapped`. An error fails the job."""
        return self._with(mapped(self._df, f)) if self._df.columns else self

    def union(self, other_frame: DynamicFrame, transformation_ctx: str = "", **_: Any) -> DynamicFrame:
        """Return the rows of both frames. A column that a frame lacks is NULL in its rows."""
        return self._with(united([self._df, other_frame._df]))

    @typed_analysis("paths1")
    def join(
        self,
        paths1: str | Sequence[str],
        paths2: str | Sequence[str],
        frame2: DynamicFrame,
        transformation_ctx: str = "",
        **_: Any,
    ) -> DynamicFrame:
        """Return the pairs of rows whose keys are equal, with all columns of both.

        A column of `frame2` whose name is already used gets a dot in front, or more dots until its name is unique.
        As in Glue, names that differ only in case are different names; drop or rename one of the columns before
        Spark reads or writes the rows. If one frame has no columns (nothing was new), the result has no rows and no
        columns.

        Raises
        ------
        InvalidValueError
            A key is not a column, or the frames have different numbers of keys.
        """
        one, two = self._df, frame2._df
        if not one.columns or not two.columns:
            return self if not one.columns else self._with(two)
        keys1, keys2 = self._places(paths1), frame2._places(paths2)
        if len(keys1) != len(keys2) or not keys1:
            raise glue_option_error("paths2", f"has {len(keys2)} keys and paths1 has {len(keys1)}. Give pairs of them.")
        names = list(one.columns)
        for name in two.columns:
            free = name
            while free in names:
                free = f".{free}"
            names.append(free)
        # Join by column position: a name may be in both frames, or have a dot, which Spark would take for a struct.
        left = one.toDF(*(f"l{place}" for place in range(len(one.columns))))
        right = two.toDF(*(f"r{place}" for place in range(len(two.columns))))
        matches = []
        for mine, theirs in zip(keys1, keys2, strict=True):
            matches.append(left[f"l{mine}"] == right[f"r{theirs}"])
        return self._with(left.join(right, matches).toDF(*names))

    @typed_analysis("primary_keys")
    def mergeDynamicFrame(  # noqa: N802
        self,
        stage_dynamic_frame: DynamicFrame,
        primary_keys: str | Sequence[str],
        transformation_ctx: str = "",
        options: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> DynamicFrame:
        """Return the rows of this frame, except that rows of `stage_dynamic_frame` replace those with the same keys.

        Staged rows whose keys are not in this frame are added. As in Glue, duplicates are kept: several rows of one
        frame may have the same keys.
        """
        staged = stage_dynamic_frame._df
        if not self._df.columns or not staged.columns:
            return self if self._df.columns else self._with(staged)
        mine, theirs = self._places(primary_keys), stage_dynamic_frame._places(primary_keys)
        keys = staged.select(*(expression([staged.columns[place]]) for place in theirs)).distinct()
        keys = keys.toDF(*(f"k{index}" for index in range(len(theirs))))
        left = self._df.toDF(*(f"l{place}" for place in range(len(self._df.columns))))
        matches = [left[f"l{place}"] == keys[f"k{index}"] for index, place in enumerate(mine)]
        others = left.join(keys, matches, "left_anti").toDF(*self._df.columns)
        return self._with(united([others, staged]))

    @typed_analysis("num_partitions")
    def repartition(self, num_partitions: int, transformation_ctx: str = "", **_: Any) -> DynamicFrame:
        """Return the rows in a given number of partitions."""
        return self._with(self._df.repartition(num_partitions))

    @typed_analysis("num_partitions")
    def coalesce(
        self, num_partitions: int, shuffle: bool = False, transformation_ctx: str = "", **_: Any
    ) -> DynamicFrame:
        """Return the rows in fewer partitions; with `shuffle`, also in more."""
        df = self._df
        return self._with(df.repartition(num_partitions) if shuffle else df.coalesce(num_partitions))

    def split_fields(
        self, paths: str | Sequence[str], name1: str = "", name2: str = "", transformation_ctx: str = "", **_: Any
    ) -> DynamicFrameCollection:
        """Return two frames: the named columns, and the rest; by default called ``x1`` and ``x2`` for a frame ``x``."""
        name1, name2 = name1 or f"{self.name}1", name2 or f"{self.name}2"
        frames = {name1: self.select_fields(paths), name2: self.drop_fields(paths)}
        return DynamicFrameCollection(
            {name: self._with(each._df, name) for name, each in frames.items()}, self.glue_ctx
        )

    @typed_analysis("comparison_dict")
    def split_rows(
        self,
        comparison_dict: Mapping[str, Mapping[str, Any]],
        name1: str = "frame1",
        name2: str = "frame2",
        transformation_ctx: str = "",
        **_: Any,
    ) -> DynamicFrameCollection:
        """Return two frames: the rows for which all comparisons are true, and all other rows, such as those with NULL.

        Parameters
        ----------
        comparison_dict
            Comparisons by path: ``{"age": {">": 10, "<": 20}}``.
        """
        holds = F.lit(True)
        # A frame has no columns if its source had nothing new. Then there is nothing to compare.
        for path, comparisons in (comparison_dict if self._df.columns else {}).items():
            steps = self._steps(path)
            if not steps:
                raise glue_option_error("comparison_dict", f"has {path!r}, which the frame has not.")
            for sign, value in comparisons.items():
                if sign not in COMPARISONS:
                    raise glue_option_error("comparison_dict", f"has {sign!r}. It knows {', '.join(COMPARISONS)}.")
                holds = holds & COMPARISONS[sign](F.col(expression(steps)), F.lit(value))
        # Count a comparison with NULL as false: it is neither true nor false, so the row would be in neither frame.
        holds = F.coalesce(holds, F.lit(False))
        frames = {name1: self._df.where(holds), name2: self._df.where(~holds)}
        return DynamicFrameCollection({name: self._with(df, name) for name, df in frames.items()}, self.glue_ctx)

    # --- writing ---------------------------------------------------------------------------------

    def write(self, connection_type: str, *args: Any, accumulator_size: int = 0, **options: Any) -> DynamicFrame:
        """Write the frame with ``write_dynamic_frame.from_options`` and return it."""
        self.glue_ctx.write_dynamic_frame.from_options(self, connection_type, *args, **options)
        return self

    @typed_analysis("path")
    def spigot(
        self, path: str, options: Mapping[str, Any] | None = None, transformation_ctx: str = "", **_: Any
    ) -> DynamicFrame:
        """Write a sample of the rows as JSON to a folder, unless nothing was new. Return the whole frame.

        Parameters
        ----------
        options
            ``topk``, the maximum number of rows, by default 100; ``prob``, the probability of each row, by default 1.
        """
        given = dict(options or {})
        most, share = int(given.pop("topk", 100)), float(given.pop("prob", 1))
        if given or most < 1 or not 0 < share <= 1:
            raise glue_option_error(
                "options", f"is {options!r}. It takes topk from 1 on, and prob above 0 and up to 1."
            )
        sample = self._df if share == 1 else self._df.sample(share)
        if sample.columns:
            sample.limit(most).write.options(**exact_texts("json")).mode("append").json(path)
        return self

    # --- helpers ---------------------------------------------------------------------------------

    def _mapped(self, source: str, steps: Sequence[str], kind: str) -> Any:
        """Return the value of a mapping's source, cast to the target's type."""
        field = field_at(self._df.schema, steps)
        if field is None:  # The source field is inside an array or a map, so Spark returns an array of values.
            value = F.col(expression(steps))
            if not kind or kind in NESTED:
                return value
            return F.expr(sql("try_cast({} AS {})", expression(steps), spark_type("mappings", kind)))
        if kind in NESTED and field.kind.typeName() != kind:
            raise NotOffGlueError(f"To cast {source!r} to {kind!r}", "Build it with functions.struct or array.")
        is_cast = kind and kind not in NESTED
        return F.expr(cast(field, spark_type("mappings", kind)) if is_cast else field.value)

    def _places(self, paths: str | Sequence[str]) -> list[int]:
        """Return the positions of columns in the frame."""
        places = []
        for path in _listed(paths):
            name = self._top(path, "join by", "Select it as a column before.")
            if name is None:
                has = ", ".join(self._df.columns)
                raise glue_option_error("keys", f"has {path!r}, which the frame has not. It has: {has}.")
            places.append(self._df.columns.index(name))
        return places

    def _with(self, df: DataFrame, name: str | None = None) -> DynamicFrame:
        return DynamicFrame(df, self.glue_ctx, self.name if name is None else name)

    def _steps(self, path: str) -> tuple[str, ...] | None:
        return steps_to(path, self._df.schema)

    def _top(self, path: str, verb: str, remedy: str) -> str | None:
        """Return a column's name, None if it does not exist; raise NotOffGlueError for a field of a struct."""
        steps = self._steps(path)
        if steps is not None and len(steps) > 1:
            raise NotOffGlueError(f"To {verb} {path!r}, a field of a struct,", remedy)
        return steps[0] if steps else None


class DynamicFrameCollection(dict[str, DynamicFrame]):
    """A dictionary of frames by name.

    Parameters
    ----------
    dynamic_frames
        Frames by name, or a list of frames that have names.
    glue_ctx
        The context that the frames belong to.
    """

    def __init__(
        self, dynamic_frames: Mapping[str, DynamicFrame] | Iterable[DynamicFrame] = (), glue_ctx: Any = None
    ) -> None:
        if isinstance(dynamic_frames, Mapping):
            super().__init__(dynamic_frames)
        else:
            super().__init__({frame.name: frame for frame in dynamic_frames})
        self.glue_ctx = glue_ctx

    def select(self, key: str, transformation_ctx: str = "", **_: Any) -> DynamicFrame:
        """Return the frame with this name; as in Glue, a frame without columns if there is none."""
        if key in self:
            return self[key]
        logger.warning("event=no_such_frame key=%s frames=%s: an empty frame is returned", key, ",".join(self))
        from pyspark.sql import SparkSession

        spark = getattr(self.glue_ctx, "spark_session", None) or SparkSession.builder.getOrCreate()
        return DynamicFrame(spark.createDataFrame([], "struct<>"), self.glue_ctx, key)

    def map(
        self, callable: Callable[..., DynamicFrame], transformation_ctx: str = "", **_: Any
    ) -> DynamicFrameCollection:
        """Call ``callable(frame, "ctx:name")`` for each frame; return the resulting frames under the same names."""
        found = {name: callable(frame, f"{transformation_ctx}:{name}") for name, frame in self.items()}
        for name, frame in found.items():
            if not isinstance(frame, DynamicFrame):
                raise glue_option_error("callable", f"returned {type(frame).__name__} for {name!r}. Return a frame.")
        return DynamicFrameCollection(found, self.glue_ctx)

    def flatmap(
        self, f: Callable[..., DynamicFrame | DynamicFrameCollection], transformation_ctx: str = ""
    ) -> DynamicFrameCollection:
        """Call ``f(frame, "ctx:name")`` for each frame; return all frames that the calls return, one or many each."""
        found: dict[str, DynamicFrame] = {}
        for frame in self.values():
            made = f(frame, f"{transformation_ctx}:{frame.name}")
            if isinstance(made, DynamicFrame):
                found[made.name] = made
            elif isinstance(made, DynamicFrameCollection):
                found.update(made)
            else:
                raise glue_option_error(
                    "f", f"returned {type(made).__name__}. Return a frame, or a collection of them."
                )
        return DynamicFrameCollection(found, self.glue_ctx)


def as_dataframe(frame: DynamicFrame | DataFrame | DynamicFrameCollection) -> DataFrame:
    """Return the DataFrame of a DynamicFrame, or a DataFrame itself; raise NotOffGlueError for a collection."""
    if isinstance(frame, DynamicFrameCollection):
        raise NotOffGlueError("A DynamicFrameCollection", "Write its frames one by one.")
    found: DataFrame = frame.toDF() if isinstance(frame, DynamicFrame) else frame
    return found


def _listed(paths: str | Sequence[str]) -> list[str]:
    return [paths] if isinstance(paths, str) else list(paths)


def _is_within(steps: tuple[str, ...], others: Iterable[tuple[str, ...]]) -> bool:
    """Return whether one of `others` is the path of a struct that contains the field at `steps`."""
    return any(len(other) < len(steps) and steps[: len(other)] == other for other in others)


def _as_structs(targets: Mapping[tuple[str, ...], tuple[tuple[str, ...], Any]]) -> list[Any]:
    """Return columns for target paths: ``bay.id`` and ``bay.name`` become one struct column ``bay`` with two fields.

    `targets` has for each path the steps to its source, and the value.
    """
    columns = []
    for first in dict.fromkeys(path[0] for path in targets):
        if (first,) in targets:
            if sum(path[0] == first for path in targets) > 1:
                raise glue_option_error("mappings", f"names {first!r} as a column and as a struct.")
            columns.append(targets[(first,)][1].alias(first))
        else:
            inner = {path[1:]: value for path, value in targets.items() if path[0] == first}
            value = F.struct(*_as_structs(inner))
            # Keep NULL structs: without the condition, each would become a struct of NULLs.
            parents = dict.fromkeys(steps[: -len(path)] for path, (steps, _) in inner.items())
            if all(parents):
                present = (sql("{} IS NOT NULL", expression(each)) for each in parents)
                value = F.when(F.expr(joined(" OR ", present)), value)
            columns.append(value.alias(first))
    return columns
