"""`FileSink`: writes a batch as files that readers see exactly once, even if attempts to write it fail or overlap.

::

    stage     <staging>/<job>/<batch>-f<fence>-…/part-….parquet, then _manifest     no reader sees it
    commit    the job's head names this attempt; the sink takes no part in that
    publish   <target>/import_date=…/part-00000-<job>-<batch>.parquet               readers see it
    sweep     the staged folders of this attempt and of losing attempts are deleted, each manifest last
"""

from __future__ import annotations

import difflib
import json
import logging
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from io import BytesIO
from typing import Any
from urllib.parse import unquote

from scripts.helpers._lazy import DataFrame, F, S3Client, SparkSession, pa, pc, pd, pq
from scripts.helpers.display.options import nearest
from scripts.helpers.display.units import count_of
from scripts.helpers.errors import InvalidValueError, StagedFilesLostError, TargetError
from scripts.helpers.listing.folders import NULL_FOLDER
from scripts.helpers.listing.paths import is_hidden
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.reading.dialects import with_dialect
from scripts.helpers.rows.arrow_streams import ArrowStream
from scripts.helpers.schemas.frames import arrow_type, arrow_type_at
from scripts.helpers.schemas.kinds import kind_of_text, types_by_path
from scripts.helpers.sinks.arrow_files import NAME, WRITTEN, WrittenFiles, footer_in, translate_refusals, write_batches
from scripts.helpers.sinks.file_schema import COLUMNS, VOID, FileSchema, store_schema
from scripts.helpers.sinks.given_frames import given_rows
from scripts.helpers.sinks.merging import Merge
from scripts.helpers.sinks.outputs import (
    BATCH_COLUMN,
    MANIFEST,
    NOTE,
    RECORDS,
    application_of,
    batch_of,
    final_name,
    is_published_name,
    mark_of,
    record_of,
    recorded_by,
    staging_beside,
)
from scripts.helpers.sinks.places import LocalPlace, Place, S3Place, is_within, place_of, place_of_name
from scripts.helpers.sinks.sink import Witnessed
from scripts.helpers.sinks.spark_files import MAX_KEY, UNFIT, check_partition_counts, literal_path, write_spark
from scripts.helpers.sinks.staged_rows import (
    SPARK_ROWS,
    arrow_rows,
    check_cases,
    check_columns_left,
    check_list,
    check_partition_columns,
    columns_of,
    exact_cast,
    filled,
    plain_type,
    spark_of,
    types_of_arrow,
    unfit_counts,
    without_types,
)
from scripts.helpers.sinks.staging import StagedRows, Staging, is_beside

logger = logging.getLogger(__name__)

# --- arrow files ----------------------------------------------------------------------------------
# Write a table of pyarrow as Parquet files into a folder.

ESCAPED = str.maketrans({one: f"%{ord(one):02X}" for one in ["\x7f", *"\"#%'*/:=?\\{[]^", *map(chr, range(32))]})
"""The characters that Hive, and Spark in `ExternalCatalogUtils.escapePathName`, escape in the name of a folder."""


def file_rows(df: Any, partition_by: Sequence[str]) -> Any:
    """Return Arrow rows in the form in which files have them. The columns of `partition_by` come last.

    A column without a value in any row gets no type, because pandas reads an empty CSV column as numbers. For an
    `ArrowStream`, the result is a stream. It keeps the types of its source, and raises errors when a batch is read.

    Raises
    ------
    InvalidValueError
        The rows have times with nanoseconds.
    """
    if isinstance(df, ArrowStream):
        return df.mapped(lambda table: _stored(table, partition_by))
    return without_types(_stored(df, partition_by))


def _stored(df: pa.Table | pa.RecordBatch, partition_by: Sequence[str]) -> pa.Table:
    whole = df if isinstance(df, pa.Table) else pa.Table.from_batches([df])
    by = [name for name in partition_by if name in whole.column_names]
    # Drop the schema that Spark stored in the file of these rows: Spark would read the new file by that schema.
    metadata = {key: value for key, value in (whole.schema.metadata or {}).items() if key != SPARK_ROWS}
    table, parted = whole.drop_columns(by).replace_schema_metadata(metadata), arrow_rows(whole.select(by))
    for name in by:
        table = table.append_column(name, parted[name])
    for name in table.column_names:
        if "timestamp[ns" in str(table[name].type):
            # Only check that the values fit: the writer converts them to microseconds.
            exact_cast(name, table[name], plain_type(table[name].type))
    return table


def write_arrow(
    table: Any, place: Place, folder: str, options: Mapping[str, Any], partition_by: Sequence[str] = ()
) -> WrittenFiles:
    """Write rows to one file; with `partition_by` to one for each partition, in a folder named as Spark names it.

    Rows without columns make no file: `read_pandas` returns such rows if nothing is new. A long stream is split into
    several files; see `write_batches`. Times are written in microseconds, which all versions of Spark read.

    `folder` is relative to the place, and must be empty. `options` are those of `pyarrow.parquet.write_table`.

    Raises
    ------
    TargetError
        The files cannot be written there.
    """
    if not columns_of(table):
        return WrittenFiles(0, {})
    if not partition_by:
        return write_batches(table, place, folder, options)
    columns = list(partition_by)
    files, sizes = Counter[str](), dict[str, int]()
    # Add a column of row numbers under an unused name, so that each partition gets the list of its row numbers.
    number = "_".join(["row", *table.column_names])
    grouped = table.select(columns).append_column(number, [range(len(table))]).group_by(columns)
    for group in grouped.aggregate([(number, "list")]).to_pylist():
        folders = "/".join(partition_folder(column, group[column]) for column in columns)
        rows = table.take(group[f"{number}_list"]).drop_columns(columns)
        # Different values can have the same folder, such as NULL and NaN. Number the files, so that the file of the
        # second value does not replace that of the first.
        name, packed = f"{folder}/{folders}/{NAME.format(files[folders])}", _packed(rows, options)
        place.write(name, packed)
        files[folders], sizes[name] = files[folders] + 1, len(packed)
    return WrittenFiles(table.num_rows, sizes)


def _packed(table: pa.Table, options: Mapping[str, Any]) -> bytes:
    packed = BytesIO()
    with translate_refusals(options):
        pq.write_table(table, packed, **{**WRITTEN, **options})
    return packed.getvalue()


def partition_folder(column: str, value: Any) -> str:
    """Return the name of a partition's folder as Spark writes it: ``partition_folder("day", 1)`` is ``day=1``."""
    name = column.translate(ESCAPED)
    if value is None or value == "" or value != value:  # NaN, and pandas' NaT, do not equal themselves.
        return f"{name}={NULL_FOLDER}"
    return f"{name}={_text_of(value).translate(ESCAPED)}"


def _text_of(value: Any) -> str:
    """Return a value as text, in the form of Spark's cast to string."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        return value.isoformat(" ", "microseconds").rstrip("0").rstrip(".")
    if isinstance(value, float) and value and not 1e-3 <= abs(value) < 1e7:
        digits, _, exponent = f"{Decimal(repr(value)).normalize():E}".partition("E")
        return f"{digits if '.' in digits else f'{digits}.0'}E{int(exponent)}" if exponent else digits
    return str(value)


# --- file types -----------------------------------------------------------------------------------
# Compare rows with the schema of the files at their target, and cast columns in which no row has a value.

FORMATS = ("parquet", "orc", "csv", "json")
"""Endings of file names that show the format. A reader of the target takes all its files for one format."""
UTC_NAMES = ("UTC", "Etc/UTC", "UCT", "Etc/UCT", "GMT", "Etc/GMT", "Zulu", "Universal", "Z")
"""Names that Java has for UTC."""
TEXTS = ("csv", "json")
"""Formats whose files do not store the types of their columns."""
READER_OPTIONS = {"charset": "encoding", "delimiter": "sep"} | {
    name: name
    for name in (
        "header", "sep", "quote", "escape", "encoding", "linesep", "nullvalue", "emptyvalue", "dateformat",
        "timestampformat", "timestampntzformat",
    )
}  # fmt: skip
"""Options of Spark's writer that a reader needs as well: lower-case spelling to the one name used here."""
MAX_LINE = 1_000_000
"""The most characters of a file's first line that are fetched to this process."""
DEFAULTS = {"header": "false", "sep": ","}
MAX_FILES = 100
"""The most files that are read if a target of Parquet or ORC has no schema; for text formats it is one file."""
WHOLE = ("tinyint", "smallint", "int", "bigint")
NUMBERS = (*WHOLE, "float", "double", "decimal")
PLAIN = (*NUMBERS, "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz")
"""Types that both Spark and pyarrow have, without nested types."""
JSON_KINDS = (bool, "boolean"), ((int, float), "number"), (str, "text"), (list, "array"), (dict, "object")
JSON_KINDS_OF_TYPES = {"struct": "object", "map": "object", "array": "array", "boolean": "boolean"} | dict.fromkeys(
    NUMBERS, "number"
)
"""The kind of JSON value that Spark writes for a type; for all other types it writes a text."""
NOT_NUMBERS = ("NaN", "Infinity", "-Infinity")
"""Texts that Spark writes for float values that are not numbers."""


def check_same_format(target: Place, names: Iterable[str], format: str) -> None:
    """Raise TargetError if one of the published files `names` has another format than `format`, by its ending."""
    for name in names:
        other = set(name.rpartition("/")[2].split(".")[1:]) & set(FORMATS)
        if format in FORMATS and other and format not in other:
            raise TargetError(target.uri(""), reason="other_format", format=format, name=name, other=other.pop())


def fit_to_schema(
    target: Place, ours: Mapping[str, int], rows: Any, format: str, partition_by: Sequence[str],
    options: Mapping[str, Any],
) -> tuple[Any, FileSchema]:  # fmt: skip
    """Compare rows with the schema of a target; return the rows as they are to be written, and the merged schema.

    A column without a value in any row has no type, so it gets the type that it has at the target. If the target lacks
    the column, it is left out, except from CSV files, which cannot get a column later: there it is an empty text, and
    the first batch with a value sets its type. In Spark's rows only columns of type void count as empty: to find
    others, Spark would have to read the rows. The merged schema's `attempt`, the folder of the attempt that made it, is
    empty unless the target already stores an equal schema: then it is that schema's `attempt`.

    Parameters
    ----------
    ours
        The size in bytes, by name, of files of this package at the target: all such files, or some of them.

    Raises
    ------
    TargetSchemaError
        The rows' columns or types do not fit the target's.
    TargetError
        An option that readers need, such as ``sep``, has another value than at the target.
    InvalidValueError
        Two names differ only in case; or the only column, or a nested field, has no value and no type at the target.
    """
    check_cases(columns_of(rows), target.uri(""))
    before = FileSchema.read(target.read(COLUMNS))
    if not ours and before is not None:
        # List all files: `ours` is from the first page of a listing, which may have only files of other writers.
        ours = _published(target)
    # Ignore the stored schema if the target has no published file: then the rows may have other columns.
    there = before if ours else None
    # Escape quotes as `reading.dialects` does, unless the target's files were written without such escapes: readers
    # use one option for all files, so new files must escape quotes as the existing files do.
    if not ours or (there is not None and "escape" in there.options):
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
    """Return the options of a writer that readers need, too, such as ``sep``, except those with the default value."""
    given = {READER_OPTIONS.get(name.lower(), ""): value for name, value in options.items() if value is not None}
    texts = {name: str(value).lower() if name == "header" else str(value) for name, value in given.items() if name}
    return {name: text for name, text in sorted(texts.items()) if DEFAULTS.get(name) != text}


def _check_options(target: Place, there: FileSchema, schema: FileSchema) -> None:
    for name in sorted({*schema.options, *there.options}):
        default = DEFAULTS.get(name, "not given")
        now, before = schema.options.get(name, default), there.options.get(name, default)
        if now != before:
            raise TargetError(target.uri(""), reason="other_option", option=name, now=now, before=before)


def _published(target: Place) -> dict[str, int]:
    return {name: size for name, size in target.files().items() if batch_of(name)}


def _schema_of_files(target: Place, rows: Any, schema: FileSchema) -> FileSchema | None:
    """Return the columns of a target that has no stored schema, from its newest files, or None if none can be read.

    For CSV and JSON, only the newest file is read.
    """
    sizes = _published(target)
    # Skip files of zero bytes: a task without rows wrote them.
    names = sorted((name for name in sizes if sizes[name]), key=_version_of, reverse=True)
    there, read = None, 0
    for name in names[: 1 if schema.format in TEXTS else MAX_FILES]:
        # Skip a file that cannot be read, such as one that a compaction has deleted. If it is damaged, readers notice.
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
    """Return the types of a file's columns by path, from its footer; for CSV and JSON, from its first line."""
    uri, spark = literal_path(target.uri(name)), spark_of(rows)
    if schema.format == "csv":
        return _columns_of_csv(uri, spark, schema)
    if schema.format == "json":
        return _columns_of_json(uri, spark, schema)
    if schema.format == "orc":
        return types_by_path(spark.read.orc(uri).schema.jsonValue())
    found = pq.read_schema(footer_in(lambda most: target.read(name, most) or b""))
    of_spark = (found.metadata or {}).get(SPARK_ROWS)
    return types_by_path(json.loads(of_spark)) if of_spark else types_of_arrow(found)


def _columns_of_csv(uri: str, spark: SparkSession, schema: FileSchema) -> Mapping[str, str]:
    if schema.options.get("header") != "true":
        return schema.columns
    # Read the header without `nullvalue`, because a column name may equal the text that stands for NULL.
    options = {name: value for name, value in schema.options.items() if name != "nullvalue"}
    # Find names without the spaces around them, because Spark strips spaces from the names in the header.
    spelled = {name.strip(): name for name in schema.columns}
    columns = spark.read.format("csv").options(**options | {"inferSchema": "false"}).load(uri).columns
    return dict.fromkeys((spelled.get(name, name) for name in columns), VOID)


def _columns_of_json(uri: str, spark: SparkSession, schema: FileSchema) -> Mapping[str, str]:
    """Return the columns of a file's first line, typed as in `schema`, or as the JSON value if that does not fit."""
    options = {"lineSep": schema.options["linesep"]} if "linesep" in schema.options else {}
    first = spark.read.format("text").options(**options).load(uri).select(F.substring("value", 1, MAX_LINE)).head()
    columns = {}
    for name, value in json.loads(first[0] if first else "{}").items():
        kind, plain = schema.columns.get(name, VOID), schema.columns.get(name, VOID).partition("(")[0]
        written = next((written for types, written in JSON_KINDS if isinstance(value, types)), VOID)
        fits = VOID in (kind, written) or value in NOT_NUMBERS or written == JSON_KINDS_OF_TYPES.get(plain, "text")
        columns[name] = kind if fits else written
    return columns


def _version_of(name: str) -> tuple[int, str]:
    found = batch_of(name)
    assert found is not None
    return found[-1], name


# --- columns without values -----------------------------------------------------------------------


def _with_whole_numbers(rows: pa.Table, partitions: Mapping[str, str]) -> pa.Table:
    """Convert floats to whole numbers in the partition columns that are whole numbers at the target.

    pandas makes whole numbers floats if a row has no value. This may change numbers from 2**53 on, so a column with
    such a number is not converted.
    """
    for place, name in enumerate(rows.column_names):
        column, is_whole = rows[name], partitions.get(name) in WHOLE
        if is_whole and pa.types.is_floating(column.type) and (pc.max(pc.abs(column)).as_py() or 0) < 2**53:
            # If a number is not whole, leave the column as it is: the later check of types refuses it.
            with suppress(pa.ArrowInvalid):
                rows = rows.set_column(place, name, column.cast(arrow_type_at(name, partitions)))
    return rows


def _filled(
    rows: Any, found: Mapping[str, str], types: Mapping[str, str], format: str, partition_by: Sequence[str]
) -> Any:
    """Give each column without a value the target's type, or leave it out of the rows; see `fit_to_schema`."""
    spark, is_stream = spark_of(rows), isinstance(rows, ArrowStream)
    void = [path for path, kind in found.items() if kind == VOID]
    # Leave columns without a value unchanged in JSON, where Spark writes no NULL, and in zero rows, which make no file.
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


# --- files ----------------------------------------------------------------------------------------

OWN_OPTIONS = ("format", "partition_by", "batch_folders", "staging", "beside_others", "batch_column")
"""Options of `IncrementalJob.write` itself. Spark's writer accepts any other name and ignores unknown ones."""
NO_OPTIONS = ("path", "bucketby", "sortby", "partitionoverwritemode", "keys", "sequenceby", "spark", "s3client")
"""Options of other writers and of `merge` that callers may pass by mistake, in lower case without underscores."""
MISSPELT = 0.8
"""The similarity, as difflib measures it, from which a name counts as a misspelt one of `OWN_OPTIONS`. No option of
Spark's writer or of pyarrow is that similar."""
LOOKED_AT = 1_000
"""The most files of a target that are listed to find out its layout: one page of S3."""


class FileSink:
    """Files below one folder, in any format that is written as files: Parquet, ORC, CSV, JSON.

    Guarantees: each row of a published batch is at the target exactly once, even if other attempts at the batch run,
    pause or crash. Readers see no row before the commit. While the batch is published, they see some of its files, each
    file whole. This needs atomic renames (file systems) or copies (S3), and that nobody else deletes staged files.

    None of this holds for a run that saves nothing (mode ``disable``, or ``pause`` with or without a range of runs): no
    commit selects one of its attempts, so each attempt publishes. A retry with the same run id replaces the files of
    the earlier attempt one by one, and meanwhile readers see files of both. If both publish at once, both may stay.

    Parameters
    ----------
    target
        The folder that readers read.
    format, options
        The format, such as ``orc``, and the options of Spark's writer. Rows of pandas and pyarrow are always written as
        ``parquet``, with the options of pyarrow's `write_table`.
    partition_by
        Columns whose values become folders.
    batch_folders
        Whether each batch gets a folder ``batch_id=…/``. None: only if the target's files are in such folders already.
    staging
        The folder where attempts stage, in the target's bucket or file system; by default one next to the target.
    beside_others
        Whether the target may hold files of other writers.

    Raises
    ------
    InvalidValueError
        The paths of target and staging do not fit together.
    """

    rules: Merge | None = None
    needs_script = False

    def __init__(
        self,
        target: str,
        *,
        spark: SparkSession | None = None,
        s3_client: S3Client | None = None,
        format: str = "parquet",
        partition_by: Sequence[str] = (),
        batch_folders: bool | None = None,
        staging: str | None = None,
        beside_others: bool = False,
        **options: Any,
    ) -> None:
        check_list(partition_by)
        check_options(options)
        self.target: Place = place_of(target, spark, s3_client)
        self.staging = staging_for(self.target, staging, spark, s3_client)
        self._batch_folders, self._beside_others = batch_folders, beside_others
        self._format, self._partition_by, self._options = format, list(partition_by), options
        # The files that this object staged last: to publish them, their manifest need not be read.
        self._own: dict[Output, StagedRows] = {}

    @classmethod
    def of(
        cls, output: Output | Retraction, spark: SparkSession | None = None, s3_client: S3Client | None = None
    ) -> FileSink | None:
        """Return the sink; None if not staged beside the target, or if a retraction finds no note of its job there."""
        if not is_beside(output, output.target):
            return None
        made = cls(output.target, spark=spark, s3_client=s3_client, staging=output.staging)
        return made if isinstance(output, Output) or made._is_noted(output.job) else None

    @property
    def name(self) -> str:
        return self.target.uri("")

    def check(self, df: DataFrame | pd.DataFrame) -> Any:
        """Return the rows for `stage`; InvalidValueError if it is not a frame, or unfit for format or `partition_by`.

        Rows of pandas and pyarrow fit only Parquet, and `partition_by` only values that are legal in folder names.
        """
        df = given_rows(df, self.name)
        check_partition_columns(self._partition_by, columns_of(df))
        check_columns_left(self._partition_by, columns_of(df))
        if spark_of(df) is None:
            if self._format.lower() != "parquet":
                raise InvalidValueError(
                    f"pandas and pyarrow write format='parquet' here, not {self._format!r}. Make the rows a DataFrame "
                    f"of Spark. {nearest(['parquet'], self._format)}"
                )
            if isinstance(df, ArrowStream) and self._partition_by:
                raise InvalidValueError(
                    "partition_by needs all rows in memory, and these come in batches. Write rows.read_all()."
                )
            check_partition_counts(self._partition_by, unfit_counts(df, self._partition_by, UNFIT, MAX_KEY))
        return df

    def places(self, df: Any) -> list[str]:
        return [self.name, self.staging.place.uri("")]

    def stage(self, batch: BatchId, fence: int, rows: Any, *, replaces: bool = False) -> Output:
        """Write rows to a folder that only this attempt uses. No reader sees them yet.

        Rows of Spark are counted while they are written (Spark's Observation), without a second pass.

        Raises
        ------
        InvalidValueError
            A column of `partition_by` has a value that no folder name can hold. The staged rows are deleted.
        TargetError, TargetSchemaError, InvalidValueError
            The rows do not fit the target. Nothing is written. The target's columns are in a hidden file that earlier
            publications stored there. Without that file, they are read from the footers of the newest files; for CSV
            and JSON, from the first line of the newest file.
        TargetError
            A folder or file cannot be listed or written.
        """
        listed = self.target.files(most=LOOKED_AT)
        found = {name: size for name, size in listed.items() if not is_hidden(name)}
        for folder, is_record, _ in (name.partition(f"/{RECORDS}/") for name in listed):
            if is_record and any(name.startswith(f"{folder}/") for name in found):
                raise TargetError(
                    self.name,
                    f"a job writes to its folder {folder!r}, and readers see those rows as well. Name another folder.",
                    reason="layout",
                )
        batch_folders = self._layout(list(found))
        # Readers make a column `batch_id` of the folders' names, which would hide a column of that name in the rows.
        if batch_folders and BATCH_COLUMN in (name.lower() for name in columns_of(rows)):
            raise InvalidValueError(reason="reserved_name", name=BATCH_COLUMN, reserved=[BATCH_COLUMN])
        ours = {name: size for name, size in found.items() if batch_of(name)}
        if columns_of(rows):
            self._check_parted(ours)
        rows, schema = self._compared(rows, ours)
        # On S3 skip the check of rights, which takes three requests, if the target already has a batch of this job. If
        # the role has lost a right since, staging or publishing raises an error, and the next run publishes again.
        mark, jobs = mark_of(batch.job_id), {name.split("/")[1] for name in listed if name.startswith(f"{RECORDS}/")}
        if mark not in jobs or not isinstance(self.target, S3Place):
            self.staging.place.check_rights(self.target)
        check_one_disk(self.target, self.staging.place)
        # Stage the schema even if the target has it: before the publication, the target may be emptied, and another job
        # may store other columns. Do not stage the schema again if only this job writes to the target: the target is
        # emptied only by an operator's decision about this job, such as a rewind, which also takes back this batch.
        is_alone = jobs == {mark} and (len(listed) < LOOKED_AT or max(listed) > f"{RECORDS}/~")
        new = None if schema is not None and schema.attempt and is_alone else schema
        made = Output(
            "files", self.name, "", "", mark, batch.epoch, batch.version, fence,
            batch_folders=batch_folders, replaces=replaces, beside_others=self._beside_others,
            columns=new is not None, job_id=batch.job_id,
        )  # fmt: skip
        output, staged = self.staging.stage(batch, made, partial(self._write, rows, schema), new)
        # Before the job's first publication at this target, note that the job writes here: see `_is_noted`.
        if staged.names and not any(found and found[0] == made.job for found in map(batch_of, ours)):
            self.staging.place.write(f"{made.job}/{NOTE}", self.name.encode())
        self._own = {output: staged}
        return output

    def publish(self, output: Output) -> None:
        """Move the files of a committed attempt to where readers see them.

        The caller must know from the head that this attempt was committed. Repeated and concurrent calls do no harm,
        because all of them move the same files to the same names.

        Raises
        ------
        StagedFilesLostError
            Some files are neither staged nor at the target.
        UnprovenError
            The staged files are not of this attempt, or are for another target. Nothing is moved or deleted.
        TargetError
            Files cannot be moved. Call again.
        """
        staged = self._staged(output)
        if staged is None:
            return
        moves = _final_names(output, staged)
        # Delete files of this batch from an earlier attempt: in a run that saves no watermarks, each attempt publishes.
        if output.replaces or output.batch_folders:
            self.target.delete(set(self.published(output)) - set(moves.values()))
        if output.batch_folders:
            self._warn_of_others(output)
        if not output.replaces and moves:
            # Write the record of the batch before its first file: a batch with a visible row must have a record.
            self.target.write(record_of(output.job, output.batch), b"")
        # Store the schema only now, because an attempt that never commits must not decide the target's columns.
        store_schema(self.target, staged.columns, output.version)
        self._move(output, moves, {f"{output.folder}/{name}": size for name, size in staged.sizes.items()})

    def _warn_of_others(self, output: Output) -> None:
        """Log a WARNING if a batch's folder has files that are not of the batch. Nothing shows who wrote them."""
        found = [name for name in self.target.files(f"{BATCH_COLUMN}={output.batch}") if not is_hidden(name)]
        others = [name for name in found if not is_published_name(name, output)]
        if others:
            logger.warning(
                "event=files_beside_batch target=%s batch=%s files=%d: readers see these files with the rows of the "
                "batch. The files stay, because this job did not write them",
                self.name, output.batch, len(others),
            )  # fmt: skip

    def check_staged(self, output: Output) -> None:
        staged = self._staged(output)
        there, published = self.staging.place.files(output.folder), set(self.published(output))
        moves = _final_names(output, staged) if staged is not None else {}
        lost = [name for name, final in moves.items() if name not in there and final not in published]
        if lost:
            raise StagedFilesLostError(output.target, output.version, lost)

    def _staged(self, output: Output) -> StagedRows | None:
        """Return an attempt's staged files; None if all are at the target. StagedFilesLostError if a file is lost."""
        # Use the list in memory if this object staged the files. If a retraction has deleted them, `_move` raises.
        try:
            staged = self._own[output] if output in self._own else self.staging.listed(output)
        except TargetError:
            if len(self.published(output)) < output.files:
                raise
            return None
        # This package deletes a manifest only after all files are moved, or if an operator drops the batch, which the
        # caller would see in the head. So if files are missing here, something else has deleted them.
        if staged is None and len(self.published(output)) < output.files:
            raise StagedFilesLostError(output.target, output.version, [MANIFEST])
        return staged

    def clear(self, output: Output) -> None:
        self._own = {}
        self.staging.clear(self.staging.own(output))

    def drop(self, output: Output) -> None:
        self.staging.drop(self.staging.own(output))

    def sweep(self, output: Output, kept: Collection[str], recorded: Witnessed | None = None) -> int:
        # Sweep the staging place first: the role may lack the right to delete at the target, as is done below.
        swept = self.staging.sweep(output, kept)
        start = f"{RECORDS}/{application_of(output)}-"
        found = {name for name in (recorded.files if recorded is not None else ()) if name.startswith(start)}
        # Delete all batch records but the newest, which may be an earlier batch's: a batch without rows has no record.
        own = {record_of(output.job, output.batch)} if output.files else set()
        self.target.delete(sorted(found | own)[:-1])
        return swept

    def staged(self, job: str) -> list[str]:
        return self.staging.left(job)

    def visible(self) -> list[str]:
        """Return the names of all files that readers of the target see."""
        return [name for name in self.target.files() if not is_hidden(name)]

    def published(self, output: Output) -> list[str]:
        """Return the names of the files of a batch at the target."""
        folder = f"{BATCH_COLUMN}={output.batch}" if output.batch_folders else ""
        return [name for name in self.target.files(folder) if is_published_name(name, output)]

    def recorded(self, job: str, *, others: bool = False, newest: Output | None = None) -> Witnessed:
        found = sorted(self.target.files(RECORDS if others else f"{RECORDS}/{job}"))
        # `found` is sorted, so for each job and epoch `dict` keeps the last version.
        return Witnessed(job, dict(filter(None, map(recorded_by, found))), found)

    def retraction(self, job_id: str, epoch: str, first: int, last: int, since: datetime) -> Retraction:
        staging = self.staging.place.uri("")
        return Retraction("files", self.name, staging, mark_of(job_id), epoch, first, last, since, job_id=job_id)

    def retract(self, retraction: Retraction) -> int:
        """Delete the staged and the published files of some versions; return how many published files were deleted.

        Remove the output from the head first, or the next run publishes it again. On S3, where publishing copies files,
        call this again later, when every copy that began before the first call must have ended.
        """
        # Delete the staged files first, so that a publisher that paused between two files has nothing left to move.
        # Otherwise it would move a file to the target after the files there were deleted.
        self.staging.retract(retraction)
        found = [name for name in self.target.files() if is_published_name(name, retraction)]
        self.target.delete(found)
        return len(found)

    def _is_noted(self, job: str) -> bool:
        """Return whether a job has noted, in this target's staging place, that it writes to this target.

        The names of files at a target do not prove that: they name the job, but a copy of a target, such as an archive,
        has files of the same names.
        """
        found = self.staging.place.read(f"{job}/{NOTE}")
        return found is not None and place_of_name(found.decode(errors="replace")) == place_of_name(self.name)

    def to_retract(self, retraction: Retraction) -> list[str]:
        found = [name for name in self.target.files() if is_published_name(name, retraction)]
        shown = [f"{count_of(len(found), 'file')} in {self.name}"] if found else []
        return shown + self.staging.to_retract(retraction)

    def left_at(self, folder: str) -> str:
        return self.staging.left_at(folder)

    def _write(self, rows: Any, schema: FileSchema | None, place: Place, folder: str) -> WrittenFiles | int:
        if spark_of(rows) is not None:
            dialect = {name: text for name, text in (schema.options if schema else {}).items() if name == "escape"}
            if schema and self._format.lower() == "orc" and "timestamp" in schema.columns.values():
                self._warn_of_zone(rows.sparkSession)
            return write_spark(rows, place.uri(folder), self._format, {**self._options, **dialect}, self._partition_by)
        return write_arrow(rows, place, folder, self._options, self._partition_by)

    def _warn_of_zone(self, spark: SparkSession) -> None:
        """Log a WARNING if Java is not in UTC: ORC stores the wall clock of Java's zone, and readers use their own."""
        zone = spark.sql("SELECT java_method('java.time.ZoneId', 'systemDefault')").collect()[0][0]
        if zone not in UTC_NAMES:
            logger.warning(
                "event=orc_zone target=%s zone=%s: Java is not in UTC, and a Java in another zone reads other times "
                "from these ORC files. Start Spark's Java with -Duser.timezone=UTC, or write Parquet",
                self.name, zone,
            )  # fmt: skip

    def _compared(self, rows: Any, ours: Mapping[str, int]) -> tuple[Any, FileSchema | None]:
        """Compare rows with the target's schema; return the rows as they are written, and the merged schema."""
        kind = self._format.lower()
        if spark_of(rows) is None:
            rows = file_rows(rows, self._partition_by)
        # Compare nothing for a frame without columns, which means that the source had nothing new.
        if not columns_of(rows):
            return rows, None
        check_same_format(self.target, ours, kind)
        if kind not in FORMATS:
            return rows, None
        return fit_to_schema(self.target, ours, rows, kind, self._partition_by, self._options)

    def _move(self, output: Output, moves: Mapping[str, str], sizes: Mapping[str, int]) -> None:
        """Move staged files to their names at the target, which is another folder of the same bucket or file system."""
        gone = self.staging.place.move(moves, sizes, self.target)
        if gone and output.replaces:
            # HDFS renames no file over an existing one, so first delete the target's file, left by an earlier attempt.
            # This is safe: with `replaces`, no head names the output, so no other run has published it meanwhile.
            left = self.staging.place.files(output.folder)
            refused = {name: moves[name] for name in gone if name in left}
            self.target.delete(refused.values())
            gone = [name for name in gone if name not in left] + self.staging.place.move(refused, sizes, self.target)
        # If a file is no longer staged, it is not lost if another publisher has moved it to the target.
        there = set(self.published(output)) if gone else set()
        lost = [name for name in gone if moves[name] not in there]
        # Raise even if the manifest is gone by now: another publisher deletes it only after all files are at the
        # target, and these files are not there.
        if lost:
            raise StagedFilesLostError(output.target, output.version, lost)

    def _check_parted(self, ours: Collection[str]) -> None:
        """Raise TargetError if the files of earlier batches are partitioned by other columns than this batch."""

        def columns_in(name: str) -> tuple[str, ...]:
            folders = [part for part in name.split("/")[:-1] if not part.startswith(f"{BATCH_COLUMN}=")]
            return tuple(unquote(part.partition("=")[0]) for part in folders)

        other = {columns_in(name) for name in ours} - {tuple(self._partition_by)}
        if other:
            there = list(min(other))
            raise TargetError(
                self.name,
                f"its files are in folders by {there}, and partition_by is {list(self._partition_by)}. Of both, Spark "
                f"skips files, or reads none. Give partition_by={there}, or name another folder.",
                reason="layout",
            )

    def _layout(self, found: Collection[str]) -> bool:
        """Return whether this batch gets a folder ``batch_id=…/``; TargetError if earlier batches differ."""
        in_folders = [name for name in found if name.startswith(f"{BATCH_COLUMN}=")]
        flat = [name for name in found if batch_of(name) and not name.startswith(f"{BATCH_COLUMN}=")]
        target = self.name
        if found and not in_folders and not flat and not self._beside_others:
            raise TargetError(target, reason="taken", found=next(iter(found)))
        if self._batch_folders is None:
            if in_folders and not flat:
                logger.warning(
                    "event=batch_folders_kept target=%s: the target has folders batch_id=…, so this batch gets one "
                    "too. Pass batch_folders=True to ask for it", target,
                )  # fmt: skip
                return True
            return False
        clash = flat if self._batch_folders else in_folders
        if clash:
            raise TargetError(
                target,
                f"batch_folders={self._batch_folders}, but {clash[0]!r} is laid out in the other way, and Spark reads "
                "no mixture. Leave the option out, or name another folder.",
                reason="layout",
            )
        return self._batch_folders


def _final_names(output: Output, staged: StagedRows) -> dict[str, str]:
    """Return a map from each file's name in the staging place to its name at the target."""
    return {f"{output.folder}/{name}": final_name(output, at, name) for at, name in enumerate(staged.names)}


def check_options(options: Mapping[str, Any]) -> None:
    """Raise InvalidValueError for an option that is misspelt or not allowed here: Spark's writer accepts any name."""
    own = {name.replace("_", ""): name for name in OWN_OPTIONS}
    for name, value in options.items():
        plain = name.lower().replace("_", "")
        if plain == "mode":
            why = f"{value!r} is not possible, as a target keeps its earlier batches. Call job.merge to replace rows."
            if str(value).lower() == "append":
                why = "to append is what write does. Leave it out."
        elif plain in NO_OPTIONS:
            why = f"there is none of that name. Use {', '.join(OWN_OPTIONS)}, or options of the format."
        elif meant := difflib.get_close_matches(plain, list(own), 1, MISSPELT):
            why = f"there is none of that name. Did you mean {own[meant[0]]}?"
        else:
            continue
        raise InvalidValueError(f"Option {name!r} of write: {why}")


def check_one_disk(target: Place, staging: Place) -> None:
    """Raise TargetError if target and staging are directories on different disks: no file can be renamed across."""
    disks = {os.stat(place.nearest()).st_dev for place in (target, staging) if isinstance(place, LocalPlace)}
    if len(disks) > 1:
        raise TargetError(
            target.uri(""),
            f"it is on another disk than {staging.uri('')!r}, where its files are staged, and no file can be renamed "
            "from one disk to another. Give staging= a folder on the disk of the target.",
        )


def staging_for(target: Place, chosen: str | None, spark: SparkSession | None, s3_client: S3Client | None) -> Staging:
    """Return the place where attempts stage for a target at a path: the folder `chosen`, or one next to the target.

    InvalidValueError if readers would see the staging place, or files cannot be moved from it.
    """
    folder = chosen.rstrip("/") if chosen else staging_beside(target.uri(""))
    if not folder:
        raise InvalidValueError(
            f"{target.root!r} is a whole bucket, so nothing is beside it. Name a folder of it, or where to stage: "
            "staging='s3://…/_staging/'."
        )
    staging = place_of(folder, spark, s3_client)
    if type(target) is not type(staging):
        raise InvalidValueError(
            f"staging {staging.root!r} is another kind of storage than {target.root!r}: files could not be moved. "
            "Stage in the same."
        )
    if isinstance(target, S3Place) and isinstance(staging, S3Place) and target.bucket != staging.bucket:
        raise InvalidValueError(
            f"staging is in bucket {staging.bucket!r} and the target in {target.bucket!r}. Stage in the target's: a "
            "copy from there needs other rights, and takes as long as a download."
        )
    # `is_within` compares the folders, not their names: s3a:// and s3:// are one bucket, and links are followed.
    if is_within(staging.uri(""), target.uri("")) or is_within(target.uri(""), staging.uri("")):
        raise InvalidValueError(
            f"staging {staging.root!r} and the target {target.root!r} overlap: readers would see uncommitted "
            "rows. Stage next to the target."
        )
    return Staging(staging)
