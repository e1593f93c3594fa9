"""Casts of columns for `resolveChoice`.

Glue's reader makes a column a choice type if its values have several types. Spark's reader reads such JSON as text,
and refuses CSV values that do not fit the table's types. So a column here has one type, and `resolveChoice` casts it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from scripts.helpers._lazy import DataFrame, T
from scripts.helpers.glue.fields import Field, changed, steps_to
from scripts.helpers.glue.paths import glue_option_error
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sql import SQL, joined, sql
from scripts.helpers.schemas.spark_frames import EXACT_TIMES
from scripts.helpers.spark.java_errors import reason_of

logger = logging.getLogger(__name__)

SPARK_NAMES = {
    "long": "bigint", "short": "smallint", "byte": "tinyint", "decimal": "decimal(10,2)",
    "char": "string", "varchar": "string",
}  # fmt: skip
"""Spark's names for Glue's types. A decimal without precision has 10 digits, in Glue 2 of them after the point. Glue
Studio writes ``varchar`` without a length."""
REFUSALS = ("AnalysisException", "ParseException", "SparkRuntimeException", "IllegalArgumentException")
"""Names of the errors that Spark raises if it refuses a call before it reads rows."""
ACTIONS = ("cast", "project", "make_cols", "make_struct", "match_catalog")
_WORKER_ERROR = re.compile(r"InvalidValueError: Option '([^\n']+)' ([^\n]+)")
_NO_CAST = re.compile(r"annot resolve (.*?) due to data type mismatch: (cannot cast [^\n;]+)")


def resolved(
    df: DataFrame,
    specs: Sequence[tuple[str, str]],
    choice: str,
    catalog_types: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows with columns cast as `specs` say (``cast:TYPE``), or text columns cast to a catalogue's types.

    Parameters
    ----------
    specs
        Pairs of a path and an action, such as ``("bay.id", "cast:long")``.
    choice
        Glue's action for all choice columns. There are no choice columns here, so only ``match_catalog`` has an effect.
    catalog_types
        The Hive types of a catalogue table, by column name; ``match_catalog`` casts text columns to them.

    Raises
    ------
    InvalidValueError
        The action does not exist; Spark does not know the type or cannot cast to it; or an action other than a cast
        is given for a text column, which may have been made from values of several types.
    """
    for path, action in specs:
        verb, kind = _parsed("specs", action)
        if verb == "match_catalog":
            raise glue_option_error("specs", f"has {action!r} for {path!r}. It goes as choice='match_catalog'.")
        steps = steps_to(path, df.schema)
        # Glue ignores a path that does not exist.
        if steps:
            df = _cast_at(df, "specs", steps, kind) if verb == "cast" else _without_cast(df, steps, action)
    if choice and _parsed("choice", choice)[0] == "match_catalog":
        types = {name.lower(): kind for name, kind in (catalog_types or {}).items()}
        for name in _texts(df):
            df = _cast_at(df, "choice", [name], types.get(name.lower(), "string"))
    elif choice and _texts(df):
        logger.warning(
            "event=no_choices choice=%s texts=%d: the choice has no effect, because columns whose values have several "
            "types are strings here. Cast these columns with specs", choice, len(_texts(df)),
        )  # fmt: skip
    return df


def spark_type(option: str, kind: str) -> SQL:
    """Return Spark's name for a type of Glue's or Spark's; raise InvalidValueError if Spark does not know the type."""
    from pyspark.sql.utils import ParseException  # type: ignore[attr-defined]

    name = SPARK_NAMES.get(kind, kind)
    try:
        T._parse_datatype_string(name)
    except ParseException as error:
        raise glue_option_error(option, f"names the type {kind!r}, which Spark does not know.") from error
    return SPARK.type_name(name)


@contextmanager
def typed_analysis(option: str, remedy: str = "If names differ by case, drop or rename one of them.") -> Iterator[None]:
    """Raise InvalidValueError if Spark refuses an option: an impossible cast, an ambiguous name, wrong SQL.

    Raise MisfitError if the block reads a value or a record that does not fit its column or schema.
    """
    try:
        yield
    except Exception as error:
        # Imported here, because calls that do not fail must not require pyarrow.
        from scripts.helpers.reading.fetched_lines import unmarked

        if misfit := unmarked(error):
            raise misfit from error
        # If this package raised an error in a worker, Spark passes on only its text. Make the error again from it.
        if within := _WORKER_ERROR.search(str(error)):
            raise glue_option_error(within[1], within[2]) from error
        if type(error).__name__ not in REFUSALS:
            raise
        if found := _NO_CAST.search(str(error)):
            why = f"asks for a cast of {found[1]} that Spark does not have: {found[2].rstrip('. ')}."
            raise glue_option_error(option, f"{why} Leave it out, and make the column with toDF().") from error
        # Drop Spark's suggestions: they may name internal columns of this package.
        why = reason_of(error).partition(" Did you mean")[0]
        raise glue_option_error(option, f"is refused by Spark: {why} {remedy}") from error


def cast(field: Field, kind: str) -> SQL:
    """Cast a value to a type with Spark's or Glue's name; as on Glue, a value that cannot be cast becomes NULL."""
    wanted = SPARK_NAMES.get(kind, kind)
    if isinstance(field.kind, T.StructType | T.ArrayType | T.MapType) and wanted == "string":
        # Write JSON: a plain cast of a struct, such as "{1, x}", would lack the names of its fields.
        options = joined(", ", map(SPARK.text, chain.from_iterable(EXACT_TIMES.items())))
        return sql("to_json({}, map({}))", field.value, options)
    # A plain cast of 3000000000 to int would fail the job in ANSI mode, and without it return a wrong number.
    return sql("try_cast({} AS {})", field.value, SPARK.type_name(wanted))


def _parsed(option: str, action: Any) -> tuple[str, str]:
    """Return the verb and the type of an action: ``CAST:long`` -> ``cast``, ``long``."""
    verb, _, kind = str(action).partition(":")
    # Ignore case: Glue's console writes MATCH_CATALOG, and Glue's guide match_catalog.
    verb = verb.lower()
    if verb not in ACTIONS or (verb in ("cast", "project")) != bool(kind):
        raise glue_option_error(
            option,
            f"has {action!r}. The actions are cast:TYPE, project:TYPE, make_cols, make_struct and, as choice, "
            "match_catalog.",
        )
    if kind:
        spark_type(option, kind)
    return verb, kind


def _texts(df: DataFrame) -> list[str]:
    return [part.name for part in df.schema.fields if isinstance(part.dataType, T.StringType)]


def _without_cast(df: DataFrame, steps: Sequence[str], action: str) -> DataFrame:
    """Return the rows unchanged; raise InvalidValueError for a text column, whose values may have had several types."""

    def check(field: Field) -> list[Field]:
        if isinstance(field.kind, T.StringType):
            raise glue_option_error(
                "specs",
                f"has {action!r} for {field.name!r}, a column of text. A field of JSON whose values have several types "
                "is text here, and no choice. Pass cast:TYPE.",
            )
        return [field]

    return changed(df, steps, check)


def _cast_at(df: DataFrame, option: str, steps: Sequence[str], kind: str) -> DataFrame:
    wanted = T._parse_datatype_string(spark_type(option, kind))
    with typed_analysis(option):
        return changed(df, steps, lambda field: [Field(field.name, wanted, cast(field, kind))])
