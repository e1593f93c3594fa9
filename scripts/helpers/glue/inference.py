"""Where choices come from: JSON whose values have several types, and CSV that differs from the catalogue.

Spark makes one type of them without a word: of ``1`` and ``"x"`` in JSON two texts, of a text among numbers NULL.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import DataFrame, F, T
from scripts.helpers.errors import GlueOptionError, MisfitError, NotOffGlueError
from scripts.helpers.glue.choices import MARK, choices_of, glue_name
from scripts.helpers.glue.fields import expression
from scripts.helpers.glue.records import Record, frame_of, shape_of
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sql import sql
from scripts.helpers.spark.jvm import rdd_of

if TYPE_CHECKING:
    from collections.abc import Iterator


logger = logging.getLogger(__name__)

CORRUPT = "_corrupt_record"
"""Spark's column for what is no JSON."""
_JSON_OPTIONS = {"multiLine", "lineSep"}
"""What a read of JSON as text has, too."""

Read = Callable[..., "DataFrame"]
"""Reads the same files by a format of Spark, with options."""


def json_with_choices(read: Read, options: Mapping[str, str]) -> DataFrame:
    """Read JSON; fields whose values have several types are choices.

    Python looks at the text once more, as only that tells ``1`` from ``"1"``. Without a choice the rows are those of
    Spark's own reader.
    """
    from scripts.helpers.reading.small_files import typed_fetch_errors

    df = read("json", **options)
    if set(options) - _JSON_OPTIONS:
        unknown = ",".join(sorted(set(options) - _JSON_OPTIONS))
        logger.warning("event=choices_not_looked_for format=json options=%s: types are Spark's", unknown)
        return df
    if not df.columns:
        return df
    is_whole = options.get("multiLine") == "true"
    of_text = {name: value for name, value in options.items() if name != "multiLine"}
    texts = read("text", **of_text, **({"wholetext": "true"} if is_whole else {}))
    records = rdd_of(texts).flatMap(partial(_records, texts.columns))
    with typed_fetch_errors():
        shape = shape_of(records)
    if not choices_of(shape.schema(df.schema)):
        return df
    return frame_of(df.sparkSession, records, df.schema)


def _records(columns: list[str], row: Any) -> Iterator[Record]:
    """Return the records of a text, with the columns of its folders."""
    text, *folders = row
    of_folders = dict(zip(columns[1:], folders, strict=True))
    for record in _parsed(text):
        yield record | of_folders


def _parsed(text: str) -> Iterator[Record]:
    from scripts.helpers.reading.fetched_lines import marked, values_of

    try:
        for value in values_of(text.strip(" \t\r\n")):
            for record in value if isinstance(value, list) else [value]:
                if not isinstance(record, dict):
                    raise ValueError
                yield record
    except ValueError as error:
        raise RuntimeError(marked(MisfitError("JSON", None, ""))) from error


def boxed_type(df: DataFrame, name: str) -> T.DataType | None:
    """Return the type of the JSON in a column of texts; None where all are NULL.

    Raises
    ------
    NotOffGlueError
        Its values have several types.
    GlueOptionError
        A text is no JSON, when the rows are looked at.
    """
    texts = rdd_of(df.select(expression([name])))
    records = texts.flatMap(lambda row: [] if row[0] is None else [{"value": _unboxed(name, row[0])}])
    schema = shape_of(records).schema()
    if choices_of(schema):
        raise NotOffGlueError(f"JSON of several types in {name!r}", "Read it with functions.from_json and a schema.")
    return schema["value"].dataType if schema.fields else None


def _unboxed(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise GlueOptionError("path", f"is {name!r}, with a text of {len(text)} letters that is not JSON.") from error


def csv_with_choices(read: Read, schema: T.StructType, options: Mapping[str, str]) -> DataFrame:
    """Read CSV in the types of a catalogue; a column with values that do not fit is a choice of its type and texts."""
    suspects = [part for part in schema.fields if not isinstance(part.dataType, T.StringType)]
    rescued = F.col(CORRUPT).isNotNull()
    if not suspects or not read("csv", schema=schema, **options, rescue=CORRUPT).where(rescued).head(1):
        return read("csv", schema=schema, **options)
    as_text = T.StructType([T.StructField(part.name, T.StringType()) for part in schema.fields])
    texts = read("csv", schema=as_text, **options)
    misfits = {}
    for part in suspects:
        name = expression([part.name])
        value = F.expr(sql("try_cast({} AS {})", name, SPARK.type_name(part.dataType.simpleString())))
        misfits[part.name] = (value, F.col(name).isNotNull() & value.isNull())
    counts = texts.agg(*(F.sum(bad.cast("long")).alias(name) for name, (_, bad) in misfits.items())).first()
    columns = []
    for column in texts.columns:
        name = expression([column])
        if column not in misfits:
            columns.append(F.col(name))
            continue
        value, bad = misfits[column]
        kind = schema[column].dataType
        if not counts or not counts[column]:
            columns.append(value.alias(column))
            continue
        text = F.when(bad, F.col(name))
        choice = F.struct(value.alias(glue_name(kind)), text.alias("string"))
        columns.append(F.when(F.col(name).isNotNull(), choice).alias(column, metadata={MARK: True}))
    return texts.select(columns)
