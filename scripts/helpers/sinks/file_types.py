"""Whether rows have the types of the files that lie at a target already: readers take all files for one table."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from scripts.helpers.errors import TargetLayoutError, TargetSchemaError
from scripts.helpers.rows.arrow_tables import is_arrow
from scripts.helpers.sinks.outputs import batch_folder_of, batch_of
from scripts.helpers.sinks.places import Place
from scripts.helpers.sinks.staged_rows import arrow_types, spark_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
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
MAX_LINE = 1_000_000
"""Characters of a file's first line that are brought here."""
DEFAULTS = {"header": "false", "sep": ","}


def check_same_format(target: Place, names: Iterable[str], format: str) -> None:
    """Raise TargetLayoutError if a file that this package published is of another format."""
    for name in names:
        other = set(name.rpartition("/")[2].split(".")[1:]) & set(FORMATS)
        if format in FORMATS and other and format not in other:
            raise TargetLayoutError(
                target.uri(""),
                f"format={format!r}, but {name!r} is {other.pop()}, and readers take all files for one format. "
                "Name another folder.",
            )


def check_target_types(target: Place, name: str, df: Any, format: str) -> None:
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


def check_texts(
    target: Place, files: Mapping[str, int], df: DataFrame, ours: Mapping[str, str], format: str,
    options: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Compare columns with those that are remembered at a target of texts; return what is to be remembered now.

    Where nothing is remembered, as files of versions before were published without, the first line of the newest of
    them is looked at, and a WARNING says what it does not tell.

    Columns of JSON may come and go. Those of CSV may not, and keep their order: Spark, Athena and others read all files
    by the columns of the first one, by position, so every value would move to another column.

    Parameters
    ----------
    files
        The bytes of each file that batches have left there.
    df
        The rows.
    ours
        The type of each of their columns, in their order, but for those that become folders.
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
        _check_newest(target, files, df, ours, format, own)
        return kept_of_texts(ours, options)
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
    missing, unknown = _names_apart(there, ours) if format == "csv" else ([], [])
    if format == "csv" and not (changed or missing or unknown):
        changed = _moved(there, ours)
    if changed or missing or unknown:
        raise TargetSchemaError(target.uri(""), missing, unknown, changed)
    return kept_of_texts(there | dict(ours), options)


def kept_of_texts(columns: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a target of texts remembers of its columns and options."""
    return {"columns": dict(columns), "options": reader_options(options)}


def types_of(df: Any) -> dict[str, str]:
    """Return the type of each column of a frame; of Spark that of each field within it, too, by its path."""
    if spark_of(df) is not None:
        return dict(_of_spark("", df.schema))
    import pyarrow as pa

    if is_arrow(df):
        return _of_arrow(df.schema)
    return _of_arrow(pa.Schema.from_pandas(df, preserve_index=False))


def _names_apart(there: Collection[str], ours: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the columns that only a target has, and those that only the rows have."""
    return [name for name in there if name not in ours], [name for name in ours if name not in there]


def _moved(there: Iterable[str], ours: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return where two orders of the same columns differ, by place, as `TargetSchemaError` takes it."""
    both = enumerate(zip(ours, there, strict=True), 1)
    return {f"column {place}": (own, other) for place, (own, other) in both if own != other}


def _check_newest(
    target: Place, files: Mapping[str, int], df: DataFrame, ours: Mapping[str, str], format: str, own: Mapping[str, str]
) -> None:
    """Compare columns with the first line of the newest file at a target of texts.

    Raises
    ------
    TargetSchemaError
        They differ.
    """
    # One without bytes is what a task without rows has left.
    name = max((name for name in files if files[name]), key=_version_of, default=None)
    if name is None:
        return
    try:
        seen = _seen_in(target.uri(name), df, ours, format, own)
    except Exception as error:
        # As in `check_target_types`. Or its first line is none of Spark's.
        seen = _Seen(f"anything ({type(error).__name__}: {next(iter(str(error).splitlines()), '')})")
    if seen.changed or seen.missing or seen.unknown:
        raise TargetSchemaError(target.uri(""), seen.missing, seen.unknown, seen.changed)
    logger.warning(
        "event=columns_not_remembered target=%s file=%s: the target has no %s, so the rows are compared with the first "
        "line of its newest file. Not checked: %s. It is remembered from this batch on",
        target.uri(""), name, COLUMNS, seen.unchecked,
    )  # fmt: skip


class _Seen(NamedTuple):
    """What the first line of a file does not show, and the columns that differ, as `TargetSchemaError` takes them."""

    unchecked: str
    missing: Sequence[str] = ()
    unknown: Sequence[str] = ()
    changed: Mapping[str, tuple[str, str]] = MappingProxyType({})


def _seen_in(uri: str, df: DataFrame, ours: Mapping[str, str], format: str, own: Mapping[str, str]) -> _Seen:
    if format != "csv":
        return _seen_in_json(uri, df, ours, own)
    if own.get("header") != "true":
        return _Seen("the number and the order of the columns, and their types, as the file has no header")
    unchecked = "the types of the columns"
    names, there = [column.strip() for column in ours], _header(uri, df.sparkSession, own)
    missing, unknown = _names_apart(there, names)
    if missing or unknown:
        return _Seen(unchecked, missing, unknown)
    return _Seen(unchecked, changed=_moved(there, names))


def _seen_in_json(uri: str, df: DataFrame, ours: Mapping[str, str], own: Mapping[str, str]) -> _Seen:
    kinds = _json_kinds(uri, df.sparkSession, own)
    columns = {field.name: field.dataType for field in df.schema.fields if _is_in(ours, field.name)}
    changed = {}
    for column, kind in kinds.items():
        if column in columns and kind not in _written_as(columns[column]):
            changed[column] = (columns[column].simpleString(), kind)
    unchecked = "the exact types of the columns"
    # Spark leaves out what is NULL.
    left = [column for column in columns if column not in kinds]
    if left:
        unchecked += f", and of {', '.join(left)} any"
    return _Seen(unchecked, changed=changed)


def _is_in(paths: Iterable[str], column: str) -> bool:
    """Tell whether types by path, as `types_of` returns them, are of a column."""
    return any(path == column or path.startswith((f"{column}.", f"{column}[", f"{column}{{")) for path in paths)


def _version_of(name: str) -> tuple[int, str]:
    found = batch_of(name) or batch_folder_of(name)
    assert found is not None
    return found[-1], name


def _header(uri: str, spark: SparkSession, own: Mapping[str, str]) -> list[str]:
    """Return the names in the first line of a CSV file, which is all that Spark reads of it here."""
    # A column may be called what stands for NULL.
    options = {name: value for name, value in own.items() if name != "nullvalue"}
    return list(
        spark.read.format("csv").options(**options | {"header": "true", "inferSchema": "false"}).load(uri).columns
    )


def _json_kinds(uri: str, spark: SparkSession, own: Mapping[str, str]) -> dict[str, str]:
    """Return what the first line of a JSON file has in each column.

    Raises
    ------
    ValueError
        It is no object of JSON, or longer than `MAX_LINE`.
    """
    from pyspark.sql import functions as F  # noqa: N812

    options = {"lineSep": own["linesep"]} if "linesep" in own else {}
    first = spark.read.format("text").options(**options).load(uri).select(F.substring("value", 1, MAX_LINE)).head()
    found = json.loads(first[0] if first else "{}")
    return {name: _kind_of_json(value) for name, value in found.items() if value is not None}


def _kind_of_json(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "not a number" if value in ("NaN", "Infinity", "-Infinity") else "text"
    return "array" if isinstance(value, list) else "object"


def _written_as(kind: DataType) -> tuple[str, ...]:
    """Return what Spark may write a type as in JSON."""
    from pyspark.sql.types import ArrayType, BooleanType, FractionalType, MapType, NullType, NumericType, StructType

    if isinstance(kind, NullType):
        return ("boolean", "number", "not a number", "text", "array", "object")
    if isinstance(kind, StructType | MapType):
        return ("object",)
    if isinstance(kind, ArrayType):
        return ("array",)
    if isinstance(kind, BooleanType):
        return ("boolean",)
    if isinstance(kind, FractionalType):
        return ("number", "not a number")
    return ("number",) if isinstance(kind, NumericType) else ("text", "not a number")


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
