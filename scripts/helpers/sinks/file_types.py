"""Whether rows have the types of the files that lie at a target already: readers take all files for one table."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

from scripts.helpers.errors import TargetLayoutError, TargetSchemaError
from scripts.helpers.sinks.places import Place
from scripts.helpers.sinks.staged_rows import arrow_types, spark_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

logger = logging.getLogger(__name__)


FORMATS = ("parquet", "orc", "csv", "json")
"""What names of files tell, and a reader of the target takes all of them for."""
TEXTS = ("csv", "json")
"""Formats whose files do not tell the types of their columns."""
COLUMNS = "_glue_watermarks_columns"
"""A hidden file of the target that tells them, as JSON: the types by name, in the order of the columns, and the options
of the writer that readers have to know."""
READER_OPTIONS = {"charset": "encoding", "delimiter": "sep"} | {
    name: name
    for name in (
        "header", "sep", "quote", "escape", "encoding", "linesep", "nullvalue", "emptyvalue", "dateformat",
        "timestampformat", "timestampntzformat",
    )
}  # fmt: skip
"""Options of Spark's writer that a reader has to be given, too, in lower case, and the one name of each."""
DEFAULTS = {"header": "false", "sep": ","}


def check_format(target: Place, names: Iterable[str], format: str) -> None:
    """Raise TargetLayoutError if a file that this package published is of another format."""
    for name in names:
        other = set(name.rpartition("/")[2].split(".")[1:]) & set(FORMATS)
        if format in FORMATS and other and format not in other:
            raise TargetLayoutError(
                target.uri(""),
                f"format={format!r}, but {name!r} is {other.pop()}, and readers take all files for one format. "
                "Name another folder.",
            )


def check_types(target: Place, name: str, df: Any, format: str) -> None:
    """Raise TargetSchemaError if a column has another type than in a file of the target. New columns are welcome.

    Parameters
    ----------
    name
        A file of the target.
    df
        The rows, a DataFrame of Spark or of pandas.
    format
        "parquet" or "orc", the latter of Spark alone.
    """
    try:
        there = _types_there(target, name, spark_of(df), format)
    except Exception as error:
        # It may be gone: a job that compacts files may be at work there. Its readers say so, should it be broken.
        logger.warning("event=types_not_compared target=%s file=%s error=%s", target.uri(""), name, error)
        return
    changed = {
        column: (kind, there[column]) for column, kind in types_of(df).items() if there.get(column, kind) != kind
    }
    if changed:
        raise TargetSchemaError(target.uri(""), (), (), changed)


def reader_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return those options of a writer that readers have to be given as well; defaults are left out."""
    given = {READER_OPTIONS.get(name.lower(), ""): value for name, value in options.items() if value is not None}
    texts = {name: str(value).lower() if name == "header" else str(value) for name, value in given.items() if name}
    return {name: text for name, text in sorted(texts.items()) if DEFAULTS.get(name) != text}


def check_texts(target: Place, ours: Mapping[str, str], format: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Compare columns with those that are remembered at a target of texts; return what is to be remembered now.

    Columns of JSON may come and go. Those of CSV may not, and keep their order: Spark, Athena and others read all files
    by the columns of the first one, by position, so every value would move to another column.

    Parameters
    ----------
    ours
        The type of each column of the rows, in their order, but for those that become folders.
    options
        Of Spark's writer.

    Raises
    ------
    TargetSchemaError
        They differ.
    TargetLayoutError
        An option differs that readers have to know.
    """
    data, own = target.read(COLUMNS), reader_options(options)
    if data is None:
        return remembered(ours, options)
    found = json.loads(data)
    there: dict[str, str] = found["columns"]
    for name in sorted({*own, *found["options"]}):
        default = DEFAULTS.get(name, "not given")
        now, before = own.get(name, default), found["options"].get(name, default)
        if now != before:
            raise TargetLayoutError(
                target.uri(""),
                f"the option {name!r} is {now!r}, and {before!r} in the files there, and readers take all files alike. "
                "Write with the same option, or name another folder.",
            )
    changed = {name: (kind, there[name]) for name, kind in ours.items() if there.get(name, kind) != kind}
    missing: list[str] = []
    unknown: list[str] = []
    if format == "csv":
        missing = [name for name in there if name not in ours]
        unknown = [name for name in ours if name not in there]
        if not (changed or missing or unknown):
            both = enumerate(zip(ours, there, strict=True), 1)
            changed = {f"column {place}": (own, other) for place, (own, other) in both if own != other}
    if changed or missing or unknown:
        raise TargetSchemaError(target.uri(""), missing, unknown, changed)
    return remembered(there | dict(ours), options)


def remembered(columns: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a target of texts remembers of its columns and options."""
    return {"columns": dict(columns), "options": reader_options(options)}


def types_of(df: Any) -> dict[str, str]:
    """Return the type of each column of a frame; of Spark that of each field within it, too, by its path."""
    if spark_of(df) is not None:
        return dict(_of_spark("", df.schema))
    import pyarrow as pa

    return _of_arrow(pa.Schema.from_pandas(df, preserve_index=False))


def _types_there(target: Place, name: str, spark: Any, format: str) -> dict[str, str]:
    if spark is not None:
        return dict(_of_spark("", spark.read.format(format).load(target.uri(name)).schema))
    import pyarrow.parquet as pq

    data = target.read(name)
    if data is None:
        raise FileNotFoundError(name)
    return _of_arrow(pq.read_schema(BytesIO(data)))


def _of_arrow(schema: pa.Schema) -> dict[str, str]:
    # A column without any value has no type of its own.
    return {column: kind for column, kind in arrow_types(schema).items() if kind != "null"}


def _of_spark(path: str, kind: DataType) -> Iterator[tuple[str, str]]:
    """Walk through a type of Spark. Whether a value may be NULL is left out: readers take both."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _of_spark(f"{path}.{field.name}" if path else field.name, field.dataType)
    elif isinstance(kind, ArrayType):
        yield from _of_spark(f"{path}[]", kind.elementType)
    elif isinstance(kind, MapType):
        yield from _of_spark(f"{path}{{key}}", kind.keyType)
        yield from _of_spark(f"{path}{{value}}", kind.valueType)
    else:
        yield path, kind.simpleString()
