"""Choices: columns whose values have several types, and what `resolveChoice` makes of them.

A choice is a struct with a field for each type, named as Glue names it (``int``, ``long``, ``string`` …). One of them
holds the value, the others are NULL. That is what Glue's own `toDF` shows, and a mark in the schema tells it from other
structs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from scripts.helpers._lazy import Column, DataFrame, F, T
from scripts.helpers.errors import GlueOptionError, NotOffGlueError
from scripts.helpers.glue.fields import Field, changed, expression, steps_to, top_field
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sql import SQL, sql

MARK = "glue.choice"
"""In the metadata of a field that is a choice."""
GLUE_NAMES = {"bigint": "long", "smallint": "short", "tinyint": "byte"}
"""Glue's names of types that Spark's SQL calls otherwise."""
SPARK_NAMES = {theirs: ours for ours, theirs in GLUE_NAMES.items()} | {"decimal": "decimal(10,2)"}
"""Spark's names of Glue's types. A decimal without precision has 10 digits, in Glue 2 of them behind the point."""
WHOLE = {"byte", "short", "int", "long", "void"}
"""Of these the longest holds all."""
ACTIONS = ("cast", "project", "make_cols", "make_struct", "match_catalog")


def glue_name(kind: T.DataType) -> str:
    """Return Glue's name of a type, without what is inside: ``long``, ``decimal``, ``struct``."""
    name = kind.typeName().partition("(")[0]
    return {"integer": "int"}.get(name, name)


def is_choice(metadata: Mapping[str, Any] | None) -> bool:
    """Tell a choice from other structs, by its field's metadata."""
    return bool(metadata and metadata.get(MARK))


def choices_of(schema: T.StructType) -> list[tuple[str, ...]]:
    """Return the steps to each choice of a schema, those in structs and arrays included."""
    return list(_found(schema, ()))


def as_plain(df: DataFrame) -> DataFrame:
    """Return the rows with choices as the structs that they are, for those who know no choices."""
    for steps in choices_of(df.schema):
        df = changed(df, steps, lambda field: [_unmarked(field)])
    return df


def resolved(
    df: DataFrame,
    specs: Sequence[tuple[str, str]],
    choice: str,
    catalog_types: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows with choices settled.

    Parameters
    ----------
    specs
        Pairs of a path and an action. ``cast:TYPE`` casts a column that is no choice as well; the other actions leave
        it as it is.
    choice
        The action for all choices, empty for none. Nothing else is touched.
    catalog_types
        By column, Hive's types of a table of the catalogue: for ``match_catalog``.

    Raises
    ------
    GlueOptionError
        An action that there is not, a type that Spark does not know, or a column that the catalogue does not have.
    """
    for path, action in specs:
        verb, kind = _parsed("specs", action)
        if verb == "match_catalog":
            raise GlueOptionError("specs", f"has {action!r} for {path!r}. It goes as choice='match_catalog'.")
        steps = steps_to(path.replace("[]", ""), df.schema)
        # Glue passes over a path that is not there.
        if steps:
            df = _settled(df, steps, verb, kind)
    if choice:
        verb, kind = _parsed("choice", choice)
        for steps in choices_of(df.schema):
            wanted = _catalog_type(steps, catalog_types) if verb == "match_catalog" else kind
            df = _settled(df, steps, "cast" if verb == "match_catalog" else verb, wanted)
    return df


def cast(field: Field, kind: str) -> Column:
    """Return a value as another type; NULL where it cannot be cast, as by Glue.

    Parameters
    ----------
    kind
        Spark's or Glue's name of the type.
    """
    wanted = SPARK_NAMES.get(kind, kind)
    if not is_choice(field.metadata):
        return _cast(field, wanted)
    return F.coalesce(*(_cast(each, wanted) for each in alternatives(field)))


def spark_type(option: str, kind: str) -> SQL:
    """Return Spark's name of a type of Glue's or Spark's; GlueOptionError for one that Spark does not know."""
    from pyspark.sql.utils import ParseException  # type: ignore[attr-defined]

    name = SPARK_NAMES.get(kind, kind)
    try:
        T._parse_datatype_string(name)
    except ParseException as error:
        raise GlueOptionError(option, f"names the type {kind!r}, which Spark does not know.") from error
    return SPARK.type_name(name)


def united(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all frames; a column that has several types among them is a choice.

    A column of some frames only is NULL in the others. Whole numbers get the longest type, decimals and structs what
    Spark makes of them.
    """
    with_columns = [frame for frame in frames if frame.columns]
    if len(with_columns) < 2:
        return (with_columns or list(frames))[0]
    kinds: dict[str, dict[str, T.DataType]] = {}
    for frame in with_columns:
        for part in frame.schema.fields:
            known = kinds.setdefault(part.name.lower(), {})
            for each in alternatives(top_field(part)) if is_choice(part.metadata) else [top_field(part)]:
                known.setdefault(glue_name(each.kind), each.kind)
    mixed = {name: found for name, found in kinds.items() if len(set(found) - {"void"}) > 1 and not set(found) <= WHOLE}
    return reduce(
        lambda one, other: one.unionByName(other, allowMissingColumns=True),
        [_with_choices(frame, mixed) for frame in with_columns],
    )


def _with_choices(df: DataFrame, mixed: Mapping[str, Mapping[str, T.DataType]]) -> DataFrame:
    """Return the rows with the columns that other frames have in other types as choices."""
    for part in df.schema.fields:
        kinds = mixed.get(part.name.lower())
        if kinds is None:
            continue

        def as_choice(field: Field, kinds: Mapping[str, T.DataType] = kinds) -> list[Field]:
            own = {each.name: each for each in alternatives(field)} if is_choice(field.metadata) else {}
            own = own or {glue_name(field.kind): field}
            values = []
            for name, kind in kinds.items():
                if name != "void":
                    value = own[name].value if name in own else F.lit(None).cast(kind)
                    values.append(value.alias(name))
            choice = F.when(field.value.isNotNull(), F.struct(*values))
            return [Field(field.name, field.kind, choice, {MARK: True})]

        df = changed(df, [part.name], as_choice)
    return df


def _found(kind: T.DataType, steps: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    while isinstance(kind, T.ArrayType):
        kind = kind.elementType
    if isinstance(kind, T.StructType):
        for each in kind.fields:
            if is_choice(each.metadata):
                yield (*steps, each.name)
            else:
                yield from _found(each.dataType, (*steps, each.name))


def _unmarked(field: Field) -> Field:
    # A column that is only named anew keeps what the schema notes beside it; the value of a function does not.
    return Field(field.name, field.kind, F.coalesce(field.value))


def _parsed(option: str, action: Any) -> tuple[str, str]:
    """Return the verb of an action, in lower case, and the type that it names."""
    verb, _, kind = str(action).partition(":")
    # Glue's console writes MATCH_CATALOG, its guide match_catalog.
    verb = verb.lower()
    takes_type = verb in ("cast", "project")
    if verb not in ACTIONS or takes_type != bool(kind):
        raise GlueOptionError(
            option,
            f"has {action!r}. The actions are cast:TYPE, project:TYPE, make_cols, make_struct and, as choice, "
            "match_catalog.",
        )
    if verb == "cast":
        spark_type(option, kind)
    return verb, kind


def _settled(df: DataFrame, steps: Sequence[str], verb: str, kind: str) -> DataFrame:
    def settle(field: Field) -> list[Field]:
        if not is_choice(field.metadata):
            if verb != "cast":
                return [field]
        elif verb == "make_struct":
            return [_unmarked(field)]
        elif verb == "make_cols":
            return [Field(f"{field.name}_{each.name}", each.kind, each.value) for each in alternatives(field)]
        elif verb == "project" and kind not in [each.name for each in alternatives(field)]:
            has = ", ".join(each.name for each in alternatives(field))
            raise GlueOptionError("specs", f"projects {field.name!r} to {kind!r}, but its values have the types {has}.")
        wanted = T._parse_datatype_string(SPARK_NAMES.get(kind, kind))
        return [Field(field.name, wanted, cast(field, kind))]

    return changed(df, steps, settle)


def alternatives(field: Field) -> list[Field]:
    """Return the values of a choice, one of each type."""
    return [field.inner(each) for each in field.kind.fields]  # type: ignore[attr-defined]


def _cast(field: Field, wanted: str) -> Column:
    from pyspark.sql import Column, SparkSession

    if isinstance(field.kind, T.StructType | T.ArrayType | T.MapType) and wanted == "string":
        # Spark would write a struct as "{1, x}", without names.
        return F.to_json(field.value)
    # A plain cast fails the whole job in ANSI mode, where Glue makes the one value NULL.
    if field.sql is not None:
        return F.expr(sql("try_cast({} AS {})", field.sql, SPARK.type_name(wanted)))
    if hasattr(Column, "try_cast"):  # from Spark 4 on
        found: Column = getattr(field.value, "try_cast")(wanted)  # noqa: B009  # unknown to the types of Spark 3
        return found
    session = SparkSession.getActiveSession()
    if session is not None and session.conf.get("spark.sql.ansi.enabled") == "true":
        raise NotOffGlueError("A cast inside of an array in ANSI mode", "Turn spark.sql.ansi.enabled off.")
    return field.value.cast(wanted)


def _catalog_type(steps: Sequence[str], types: Mapping[str, str] | None) -> str:
    if len(steps) > 1:
        raise NotOffGlueError(f"match_catalog for {expression(steps)!r}, a field of a struct,", "Name it in specs.")
    known = {name.lower(): kind for name, kind in (types or {}).items()}
    if steps[0].lower() not in known:
        raise GlueOptionError("choice", f"is 'match_catalog', but the catalogue's table has no column {steps[0]!r}.")
    return known[steps[0].lower()]
