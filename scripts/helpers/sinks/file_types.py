"""Rows and the schema of the files at their target: compared, and cast where a column has no value of its own."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from typing import Any

from scripts.helpers._lazy import F, SparkSession, pa, pc, pq
from scripts.helpers.errors import TargetLayoutError
from scripts.helpers.reading.dialects import with_dialect
from scripts.helpers.rows.arrow_streams import ArrowStream
from scripts.helpers.schemas.frames import arrow_type, arrow_type_at
from scripts.helpers.schemas.kinds import kind_of_text, types_by_path
from scripts.helpers.sinks.file_schema import COLUMNS, VOID, FileSchema
from scripts.helpers.sinks.outputs import batch_of
from scripts.helpers.sinks.places import Place
from scripts.helpers.sinks.spark_files import literal_path
from scripts.helpers.sinks.staged_rows import SPARK_ROWS, check_cases, columns_of, filled, spark_of, types_of_arrow

logger = logging.getLogger(__name__)


FORMATS = ("parquet", "orc", "csv", "json")
"""What names of files tell, and a reader of the target takes all of them for."""
TEXTS = ("csv", "json")
"""Formats whose files do not tell the types of their columns."""
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
MAX_FILES = 100
"""Files that are looked at where a target of Parquet or ORC has no schema. Of texts it is one."""
FOOTER_BYTES = 64 * 1024
"""Read first of a file's end. A longer footer says how long it is."""
WHOLE = ("tinyint", "smallint", "int", "bigint")
NUMBERS = (*WHOLE, "float", "double", "decimal")
PLAIN = (*NUMBERS, "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz")
"""Types that both Spark and pyarrow have, without the ones that hold others."""
JSON_KINDS = (bool, "boolean"), ((int, float), "number"), (str, "text"), (list, "array"), (dict, "object")
WRITTEN_AS = {"struct": "object", "map": "object", "array": "array", "boolean": "boolean"} | dict.fromkeys(
    NUMBERS, "number"
)
"""What Spark writes a type as in JSON. All others are texts."""
NOT_NUMBERS = ("NaN", "Infinity", "-Infinity")
"""Texts that Spark writes for floats."""


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


def fit_to_schema(
    target: Place, ours: Mapping[str, int], rows: Any, format: str, partition_by: Sequence[str],
    options: Mapping[str, Any], *, has_dialect: bool = False,
) -> tuple[Any, FileSchema]:  # fmt: skip
    """Compare rows with the schema of a target; return them as they are to be written, and the schema with theirs.

    A column without a value in any row has no type: it becomes one of the target's type. If the target does not have
    the column, it is left out, but for CSV, where it can never be added: it keeps its place as an empty text, and the
    first batch with a value decides its type. Of Spark's rows, which would have to be read for it, these are the
    columns of type void. The schema has an `attempt` if it is stored at the target already.

    Parameters
    ----------
    ours
        The bytes of each file that batches have left there, at least of some.
    has_dialect
        Files are written as `reading.dialects` has it, if none at the target are otherwise.

    Raises
    ------
    TargetSchemaError
        The rows have other columns or types.
    TargetLayoutError
        An option differs that readers have to know.
    InvalidValueError
        Two names differ only in case, or a type is needed of a column that has no value.
    """
    check_cases(columns_of(rows), target.uri(""))
    before = FileSchema.read(target.read(COLUMNS))
    if not ours and before is not None:
        # The files of others may fill the first page.
        ours = _published(target)
    # Where all was taken back other columns may come.
    there = before if ours else None
    # Readers take all files alike: those of a target whose quotes were escaped otherwise stay as they are.
    if has_dialect and (not ours or (there is not None and "escape" in there.options)):
        options = with_dialect(format, options)
    is_spark = spark_of(rows) is not None
    if there is not None and not is_spark and partition_by:
        rows = _with_whole_numbers(rows, {name: there.partitions.get(name, VOID) for name in partition_by})
    found = types_by_path(rows.schema.jsonValue()) if is_spark else types_of_arrow(rows.schema)
    known = {name: kind for name, kind in found.items() if kind != VOID or format == "csv"}
    schema = FileSchema(
        {name: kind for name, kind in known.items() if name not in partition_by},
        {name: known[name] for name in partition_by if found.get(name, VOID) != VOID},
        reader_options(options) if format in TEXTS else {},
        format,
    )
    if ours and there is None:
        there = _schema_of_files(target, rows, schema)
    there = there or schema
    _check_options(target, there, schema)
    misfit = there.misfit(target.uri(""), schema)
    if misfit is not None:
        raise misfit
    schema = there.merged(schema)
    rows = _filled(rows, found, {**schema.columns, **schema.partitions}, format, partition_by)
    stored = before.attempt if before and ours and schema == before else ""
    return rows, replace(schema, attempt=stored, instead_of=before.attempt if before and not ours else None)


def reader_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return those options of a writer that readers have to be given as well; defaults are left out."""
    given = {READER_OPTIONS.get(name.lower(), ""): value for name, value in options.items() if value is not None}
    texts = {name: str(value).lower() if name == "header" else str(value) for name, value in given.items() if name}
    return {name: text for name, text in sorted(texts.items()) if DEFAULTS.get(name) != text}


def _check_options(target: Place, there: FileSchema, schema: FileSchema) -> None:
    for name in sorted({*schema.options, *there.options}):
        default = DEFAULTS.get(name, "not given")
        now, before = schema.options.get(name, default), there.options.get(name, default)
        if now != before:
            raise TargetLayoutError(
                target.uri(""),
                f"the option {name!r} is {now!r}, and {before!r} in the files there, and readers take all files alike. "
                "Write with the same option, or name another folder.",
            )


def _published(target: Place) -> dict[str, int]:
    return {name: size for name, size in target.files().items() if batch_of(name)}


def _schema_of_files(target: Place, rows: Any, schema: FileSchema) -> FileSchema | None:
    """Return the columns of the newest files of a target that has no schema, of texts as far as the newest shows them.

    None if no file can be read.
    """
    sizes = _published(target)
    # A file without bytes is what a task without rows has left.
    names = sorted((name for name in sizes if sizes[name]), key=_version_of, reverse=True)
    there, read = None, 0
    for name in names[: 1 if schema.format in TEXTS else MAX_FILES]:
        # It may be gone, as a job that compacts files may be at work there, or none of Spark's. Its readers say so.
        with suppress(Exception):
            found = FileSchema(_columns_in(target, name, rows, schema), {}, schema.options, schema.format)
            there, read = found if there is None else there.merged(found), read + 1
    logger.warning(
        "event=columns_not_remembered target=%s: the target has no %s, so the rows are compared with its newest files. "
        "Not read: %d of %d. Not checked: the types of columns whose values are folders, and what the first line of "
        "CSV and JSON does not show. The columns are remembered from this batch on",
        target.uri(""), COLUMNS, len(names) - read, len(names),
    )  # fmt: skip
    return there


def _columns_in(target: Place, name: str, rows: Any, schema: FileSchema) -> Mapping[str, str]:
    """Return the columns of a file, as far as its footer or first line shows them."""
    uri, spark = literal_path(target.uri(name)), spark_of(rows)
    if schema.format == "csv":
        return _columns_of_csv(uri, spark, schema)
    if schema.format == "json":
        return _columns_of_json(uri, spark, schema)
    if schema.format == "orc":
        return types_by_path(spark.read.orc(uri).schema.jsonValue())
    data = target.read(name, FOOTER_BYTES) or b""
    size = int.from_bytes(data[-8:-4], "little") + 8
    found = pq.read_schema(BytesIO(data if size <= len(data) else target.read(name, size) or b""))
    of_spark = (found.metadata or {}).get(SPARK_ROWS)
    return types_by_path(json.loads(of_spark)) if of_spark else types_of_arrow(found)


def _columns_of_csv(uri: str, spark: SparkSession, schema: FileSchema) -> Mapping[str, str]:
    if schema.options.get("header") != "true":
        return schema.columns
    # A column may be called what stands for NULL.
    options = {name: value for name, value in schema.options.items() if name != "nullvalue"}
    # Spark cuts the spaces at the ends of a name.
    spelled = {name.strip(): name for name in schema.columns}
    columns = spark.read.format("csv").options(**options | {"inferSchema": "false"}).load(uri).columns
    return dict.fromkeys((spelled.get(name, name) for name in columns), VOID)


def _columns_of_json(uri: str, spark: SparkSession, schema: FileSchema) -> Mapping[str, str]:
    """Return the columns in the first line: with the type in the rows if it is written so, else as the line has it."""
    options = {"lineSep": schema.options["linesep"]} if "linesep" in schema.options else {}
    first = spark.read.format("text").options(**options).load(uri).select(F.substring("value", 1, MAX_LINE)).head()
    columns = {}
    for name, value in json.loads(first[0] if first else "{}").items():
        kind, plain = schema.columns.get(name, VOID), schema.columns.get(name, VOID).partition("(")[0]
        written = next((written for types, written in JSON_KINDS if isinstance(value, types)), VOID)
        fits = VOID in (kind, written) or value in NOT_NUMBERS or written == WRITTEN_AS.get(plain, "text")
        columns[name] = kind if fits else written
    return columns


def _version_of(name: str) -> tuple[int, str]:
    found = batch_of(name)
    assert found is not None
    return found[-1], name


# --- columns without values -----------------------------------------------------------------------


def _with_whole_numbers(rows: pa.Table, partitions: Mapping[str, str]) -> pa.Table:
    """Return rows with whole numbers for floats in the columns of folders that have whole numbers at the target.

    pandas makes floats of whole numbers where one is missing. Beyond 2**53 they may have become others by that.
    """
    for place, name in enumerate(rows.column_names):
        column, is_whole = rows[name], partitions.get(name) in WHOLE
        if is_whole and pa.types.is_floating(column.type) and (pc.max(pc.abs(column)).as_py() or 0) < 2**53:
            # Rows that do not fit are refused with all other types.
            with suppress(pa.ArrowInvalid):
                rows = rows.set_column(place, name, column.cast(arrow_type_at(name, partitions)))
    return rows


def _filled(
    rows: Any, found: Mapping[str, str], types: Mapping[str, str], format: str, partition_by: Sequence[str]
) -> Any:
    """Return rows whose columns without a value have the type of the target, or are left out."""
    spark, is_stream = spark_of(rows), isinstance(rows, ArrowStream)
    void = [path for path, kind in found.items() if kind == VOID]
    # Spark writes no NULL to JSON, and rows that are not there make no file.
    if not void or format == "json" or not (spark or is_stream or len(rows)):
        return rows
    wanted: dict[str, Any] = {}
    for path in void:
        kind = types.get(path, VOID)
        of_spark = kind_of_text(kind) if kind.partition("(")[0] in PLAIN else None
        wanted[path] = of_spark if spark else arrow_type_at(path, types)
        if wanted[path] is None and (format == "csv" or path in partition_by):
            wanted[path] = "string" if spark else arrow_type("string")
    return filled(rows, wanted, partition_by)
