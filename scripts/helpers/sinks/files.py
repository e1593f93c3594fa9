"""`FileSink`: a batch as files that readers see once, whatever becomes of the attempts that write them.

::

    stage     <staging>/<job>/<batch>-f<fence>-…/part-….parquet, then _manifest     nobody sees it
    commit    the head names this attempt: not here, and nothing else does
    publish   <target>/import_date=…/part-00000-<job>-<batch>.parquet               readers see it
    sweep     the staged folder is deleted, its manifest last; those of losers too
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
from scripts.helpers.sinks.arrow_files import NAME, WRITTEN, WrittenFiles, unless_refused, write_batches
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
    """Return rows of Arrow as they are written, the columns of `partition_by` last.

    A column without a value in any row has no type: pandas reads an empty column of CSV as numbers. An `ArrowStream`
    stays one, whose types are those of its source, and whose errors come with the batch.

    Raises
    ------
    InvalidValueError
        Times with nanoseconds.
    """
    if isinstance(df, ArrowStream):
        return df.mapped(lambda table: _stored(table, partition_by))
    return without_types(_stored(df, partition_by))


def _stored(df: pa.Table | pa.RecordBatch, partition_by: Sequence[str]) -> pa.Table:
    whole = df if isinstance(df, pa.Table) else pa.Table.from_batches([df])
    by = [name for name in partition_by if name in whole.column_names]
    # Spark would read a file by the columns of the one that the rows are from.
    metadata = {key: value for key, value in (whole.schema.metadata or {}).items() if key != SPARK_ROWS}
    table, parted = whole.drop_columns(by).replace_schema_metadata(metadata), arrow_rows(whole.select(by))
    for name in by:
        table = table.append_column(name, parted[name])
    for name in table.column_names:
        if "timestamp[ns" in str(table[name].type):
            # Compared alone: the writer makes microseconds of them.
            exact_cast(name, table[name], plain_type(table[name].type))
    return table


def write_arrow(
    table: Any, place: Place, folder: str, options: Mapping[str, Any], partition_by: Sequence[str] = ()
) -> WrittenFiles:
    """Write rows to one file, or to one for each value of some columns. Spark names the folders so.

    Rows without columns, as `read_pandas` returns where nothing is new, make no file, and many batches may make
    several; see `write_batches`. Times are written in microseconds, which all versions of Spark read.

    The folder, relative to the place, is empty. Options are those of `pyarrow.parquet.write_table`.

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
    # A column of places of rows, under a name that no column has: the rows of a folder are taken by it.
    number = "_".join(["row", *table.column_names])
    grouped = table.select(columns).append_column(number, [range(len(table))]).group_by(columns)
    for group in grouped.aggregate([(number, "list")]).to_pylist():
        folders = "/".join(partition_folder(column, group[column]) for column in columns)
        rows = table.take(group[f"{number}_list"]).drop_columns(columns)
        # Values that differ may have one folder, such as NULL and NaN: under one name, the rows of the second would
        # replace those of the first.
        name, packed = f"{folder}/{folders}/{NAME.format(files[folders])}", _packed(rows, options)
        place.write(name, packed)
        files[folders], sizes[name] = files[folders] + 1, len(packed)
    return WrittenFiles(table.num_rows, sizes)


def _packed(table: pa.Table, options: Mapping[str, Any]) -> bytes:
    packed = BytesIO()
    with unless_refused(options):
        pq.write_table(table, packed, **{**WRITTEN, **options})
    return packed.getvalue()


def partition_folder(column: str, value: Any) -> str:
    """Return the folder of a partition's rows, as Spark calls it."""
    name = column.translate(ESCAPED)
    if value is None or value == "" or value != value:  # NaN, or pandas' NaT.
        return f"{name}={NULL_FOLDER}"
    return f"{name}={_text_of(value).translate(ESCAPED)}"


def _text_of(value: Any) -> str:
    """Return a value as Spark casts it to a text."""
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
# Rows and the schema of the files at their target: compared, and cast where a column has no value of its own.

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
    """Raise TargetError if a file that this package published is of another format."""
    for name in names:
        other = set(name.rpartition("/")[2].split(".")[1:]) & set(FORMATS)
        if format in FORMATS and other and format not in other:
            raise TargetError(target.uri(""), reason="other_format", format=format, name=name, other=other.pop())


def fit_to_schema(
    target: Place, ours: Mapping[str, int], rows: Any, format: str, partition_by: Sequence[str],
    options: Mapping[str, Any],
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

    Raises
    ------
    TargetSchemaError
        The rows have other columns or types.
    TargetError
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
    # Files are written as `reading.dialects` has it. Readers take all files alike: those of a target whose quotes were
    # escaped otherwise stay as they are.
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
    """Return those options of a writer that readers have to be given as well; defaults are left out."""
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


# --- files ----------------------------------------------------------------------------------------

OWN_OPTIONS = ("format", "partition_by", "batch_folders", "staging", "beside_others", "batch_column")
"""Options of `IncrementalJob.write` itself: Spark's writer takes any other name, and ignores what it does not know."""
NO_OPTIONS = ("path", "bucketby", "sortby", "partitionoverwritemode", "keys", "sequenceby", "spark", "s3client")
"""What callers of other writers and of `merge` may give, without underscores and in lower case."""
MISSPELT = 0.8
"""How alike a name is to one of `OWN_OPTIONS` that must have been meant, as difflib measures it. No option of Spark's
writer or of pyarrow's is so much alike."""
LOOKED_AT = 1_000
"""Files of a target that are looked at to tell how it is laid out: one page of S3."""


class FileSink:
    """Files below one folder, in any format that is written as files: Parquet, ORC, CSV, JSON.

    Promises: once a batch is committed and published, its rows are at the target exactly once, whatever
    attempts still write, sleep or die. Before its commit no reader of the target sees a row of it. Between
    commit and the end of its publication a reader sees a part of its files, each of them whole. It holds where
    a rename is atomic (file systems) or a copy is (S3), as long as nobody else deletes staged files.

    It does not hold for a run that saves nothing (paused, disabled, a range of runs), as no commit names one of its
    attempts: each publishes when its block ends. A retry under the same run id replaces the files of the one before,
    one after the other. Meanwhile readers see files of both, and if two publish at once, files of both may stay.

    Parameters
    ----------
    target
        The folder that readers read.
    format, options
        Of Spark's writer; of pyarrow's `write_table` for rows of pandas and pyarrow, which are written as Parquet.
    partition_by
        Columns whose values become folders.
    batch_folders
        Whether each batch gets a folder ``batch_id=…/``. None: as the target is laid out already, without for
        a new one.
    staging
        Where attempts stage, in the same bucket or file system; by default beside the target.
    beside_others
        Whether the target may hold files of others.

    Raises
    ------
    InvalidValueError
        The paths do not go together.
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
        # What this object staged last is not read back to be published.
        self._own: dict[Output, StagedRows] = {}

    @classmethod
    def of(
        cls, output: Output | Retraction, spark: SparkSession | None = None, s3_client: S3Client | None = None
    ) -> FileSink | None:
        """Return the sink that something was staged for; None where only the job's own script knows the place."""
        if not is_beside(output, output.target):
            return None
        made = cls(output.target, spark=spark, s3_client=s3_client, staging=output.staging)
        return made if isinstance(output, Output) or made._is_noted(output.job) else None

    @property
    def name(self) -> str:
        return self.target.uri("")

    def check(self, df: DataFrame | pd.DataFrame) -> Any:
        """Raise InvalidValueError for no frame, a wrong `partition_by`, or a format that only Spark writes.

        InvalidValueError for a value of pandas or pyarrow there; those of Spark are counted while they are staged.
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
        """Write rows to a folder of this attempt alone. Nobody sees them yet.

        Rows of Spark are counted while they are written (Spark's Observation), without a second pass.

        Raises
        ------
        InvalidValueError
            Rows with a value in a column of `partition_by` that no folder keeps. What was staged is deleted.
        TargetError, TargetSchemaError, InvalidValueError
            Before anything is written. Columns are compared with those that earlier publications have stored in a
            hidden file of the target; without one with the footers of its newest files, or for CSV and JSON with the
            first line of the newest file.
        TargetError
            A folder or file that cannot be listed or written.
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
        # A reader takes a column of that name from the folders: one in the rows would be hidden by it, or clash.
        if batch_folders and BATCH_COLUMN in (name.lower() for name in columns_of(rows)):
            raise InvalidValueError(reason="reserved_name", name=BATCH_COLUMN, reserved=[BATCH_COLUMN])
        ours = {name: size for name, size in found.items() if batch_of(name)}
        if columns_of(rows):
            self._check_parted(ours)
        rows, schema = self._compared(rows, ours)
        # S3 is asked with three requests: not again once a batch of the job is there. What the role may no longer do
        # is an error all the same, at the latest when the batch is published, which then waits for the next run.
        mark, jobs = mark_of(batch.job_id), {name.split("/")[1] for name in listed if name.startswith(f"{RECORDS}/")}
        if mark not in jobs or not isinstance(self.target, S3Place):
            self.staging.place.check_rights(self.target)
        check_one_disk(self.target, self.staging.place)
        # Other columns may be stored meanwhile if the target is emptied, and another job begins there. Where none is by
        # now, only a decision about this job empties it, which takes this batch back, too.
        is_alone = jobs == {mark} and (len(listed) < LOOKED_AT or max(listed) > f"{RECORDS}/~")
        new = None if schema is not None and schema.attempt and is_alone else schema
        made = Output(
            "files", self.name, "", "", mark, batch.epoch, batch.version, fence,
            batch_folders=batch_folders, replaces=replaces, beside_others=self._beside_others,
            columns=new is not None, job_id=batch.job_id,
        )  # fmt: skip
        output, staged = self.staging.stage(batch, made, partial(self._write, rows, schema), new)
        # Once, and before anything is there that could be taken back.
        if staged.names and not any(found and found[0] == made.job for found in map(batch_of, ours)):
            self.staging.place.write(f"{made.job}/{NOTE}", self.name.encode())
        self._own = {output: staged}
        return output

    def publish(self, output: Output) -> None:
        """Show the files of a committed attempt to readers.

        To be called by a caller who knows from the head that the attempt won. May be called again, and by two at
        once: both move the same files to the same names.

        Raises
        ------
        StagedFilesLostError
            Files are neither staged nor at the target.
        UnprovenError
            What is staged is not of this attempt, or for another target. Nothing is moved or deleted.
        TargetError
            Files that cannot be moved. Call again.
        """
        staged = self._staged(output)
        if staged is None:
            return
        moves = _moves(output, staged)
        # An earlier attempt of a run whose attempts no commit tells apart.
        if output.replaces or output.batch_folders:
            self.target.delete(set(self.published(output)) - set(moves.values()))
        if output.batch_folders:
            self._warn_of_others(output)
        if not output.replaces and moves:
            # Before the first file: a reader who has seen a row of a batch finds its record.
            self.target.write(record_of(output.job, output.batch), b"")
        # Not when the batch is staged: an attempt that never commits must not refuse the columns of those that do.
        store_schema(self.target, staged.columns, output.version)
        self._move(output, moves, {f"{output.folder}/{name}": size for name, size in staged.sizes.items()})

    def _warn_of_others(self, output: Output) -> None:
        """Name what readers see in the folder of a batch that is none of its files. Whose it is, nothing says."""
        found = [name for name in self.target.files(f"{BATCH_COLUMN}={output.batch}") if not is_hidden(name)]
        others = [name for name in found if not is_published_name(name, output)]
        if others:
            logger.warning(
                "event=files_beside_batch target=%s batch=%s files=%d: readers see them with the rows of the batch. "
                "They stay, as this job has not written them",
                self.name, output.batch, len(others),
            )  # fmt: skip

    def check_staged(self, output: Output) -> None:
        staged = self._staged(output)
        there, published = self.staging.place.files(output.folder), set(self.published(output))
        moves = _moves(output, staged) if staged is not None else {}
        lost = [name for name, final in moves.items() if name not in there and final not in published]
        if lost:
            raise StagedFilesLostError(output.target, output.version, lost)

    def _staged(self, output: Output) -> StagedRows | None:
        """Return the files of an attempt; None where all of them are at the target, StagedFilesLostError if not."""
        # Should a person have taken them back meanwhile, there is nothing to copy, and `_move` finds that.
        try:
            staged = self._own[output] if output in self._own else self.staging.listed(output)
        except TargetError:
            if len(self.published(output)) < output.files:
                raise
            return None
        # Deleted after all files were moved, or by a person's order to drop them. Then the head has forgotten the
        # output, which the caller knows. What is left is that somebody else emptied the place.
        if staged is None and len(self.published(output)) < output.files:
            raise StagedFilesLostError(output.target, output.version, [MANIFEST])
        return staged

    def clear(self, output: Output) -> None:
        self._own = {}
        self.staging.clear(self.staging.own(output))

    def drop(self, output: Output) -> None:
        self.staging.drop(self.staging.own(output))

    def sweep(self, output: Output, kept: Collection[str], recorded: Witnessed | None = None) -> int:
        # First: a lake may forbid to delete what is at the target.
        swept = self.staging.sweep(output, kept)
        start = f"{RECORDS}/{application_of(output)}-"
        found = {name for name in (recorded.files if recorded is not None else ()) if name.startswith(start)}
        # The last one stays, though it may be of an earlier batch: one without rows has none.
        own = {record_of(output.job, output.batch)} if output.files else set()
        self.target.delete(sorted(found | own)[:-1])
        return swept

    def staged(self, job: str) -> list[str]:
        return self.staging.left(job)

    def visible(self) -> list[str]:
        """Return the names of all files that readers of the target see."""
        return [name for name in self.target.files() if not is_hidden(name)]

    def published(self, output: Output) -> list[str]:
        """Return the names at the target that are of a batch."""
        folder = f"{BATCH_COLUMN}={output.batch}" if output.batch_folders else ""
        return [name for name in self.target.files(folder) if is_published_name(name, output)]

    def recorded(self, job: str, *, others: bool = False, newest: Output | None = None) -> Witnessed:
        found = sorted(self.target.files(RECORDS if others else f"{RECORDS}/{job}"))
        # In the order of their names, so the last one counts.
        return Witnessed(job, dict(filter(None, map(recorded_by, found))), found)

    def retraction(self, job_id: str, epoch: str, first: int, last: int, since: datetime) -> Retraction:
        staging = self.staging.place.uri("")
        return Retraction("files", self.name, staging, mark_of(job_id), epoch, first, last, since, job_id=job_id)

    def retract(self, retraction: Retraction) -> int:
        """Delete the files of some versions, staged and published; return how many were published.

        The head must have forgotten the output before, or the next run publishes it again. On S3 it is to be
        called once more when no copy can be under way that began before.
        """
        # In this order: a publisher that sleeps between two files finds nothing to move when it wakes. The other way
        # round it would put a file back that was deleted here.
        self.staging.retract(retraction)
        found = [name for name in self.target.files() if is_published_name(name, retraction)]
        self.target.delete(found)
        return len(found)

    def _is_noted(self, job: str) -> bool:
        """Return whether a job has noted, beside this target, that it writes here.

        The names of files say whose they are, and not where they belong: a copy that somebody else keeps, such as an
        archive, has the same names.
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
            return write_spark(rows, place.uri(folder), self._format, {**self._options, **dialect}, self._partition_by)
        return write_arrow(rows, place, folder, self._options, self._partition_by)

    def _compared(self, rows: Any, ours: Mapping[str, int]) -> tuple[Any, FileSchema | None]:
        """Compare rows with the schema of the target; return them as they are written, and the schema with theirs."""
        kind = self._format.lower()
        if spark_of(rows) is None:
            rows = file_rows(rows, self._partition_by)
        # A frame without columns is that of a source where nothing is new.
        if not columns_of(rows):
            return rows, None
        check_same_format(self.target, ours, kind)
        if kind not in FORMATS:
            return rows, None
        return fit_to_schema(self.target, ours, rows, kind, self._partition_by, self._options)

    def _move(self, output: Output, moves: Mapping[str, str], sizes: Mapping[str, int]) -> None:
        """Move staged files to the target, which lies below another root of the same bucket or file system."""
        gone = self.staging.place.move(moves, sizes, self.target)
        # Another publisher was here. What it has moved is at the target.
        there = set(self.published(output)) if gone else set()
        lost = [name for name in gone if moves[name] not in there]
        # Also where the manifest is gone by now: a publisher deletes it after all files are at the target, which these
        # are not.
        if lost:
            raise StagedFilesLostError(output.target, output.version, lost)

    def _check_parted(self, ours: Collection[str]) -> None:
        """Raise TargetError where the files of earlier batches are in folders of other columns."""

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
        """Return whether this batch goes into a folder of its own; refuse a target where it cannot go."""
        in_folders = [name for name in found if name.startswith(f"{BATCH_COLUMN}=")]
        flat = [name for name in found if batch_of(name) and not name.startswith(f"{BATCH_COLUMN}=")]
        target = self.name
        if found and not in_folders and not flat and not self._beside_others:
            raise TargetError(target, reason="taken", found=next(iter(found)))
        if self._batch_folders is None:
            if in_folders and not flat:
                logger.warning(
                    "event=batch_folders_kept target=%s: it is laid out in folders batch_id=…, so this batch is too. "
                    "Say batch_folders=True to mean it", target,
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


def _moves(output: Output, staged: StagedRows) -> dict[str, str]:
    """Return the final name of each staged file."""
    return {f"{output.folder}/{name}": final_name(output, at, name) for at, name in enumerate(staged.names)}


def check_options(options: Mapping[str, Any]) -> None:
    """Raise InvalidValueError for an option that no writer takes here, though Spark's would not refuse it."""
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
    """Raise TargetError for directories of this machine between which no file can be renamed."""
    disks = {os.stat(place.nearest()).st_dev for place in (target, staging) if isinstance(place, LocalPlace)}
    if len(disks) > 1:
        raise TargetError(
            target.uri(""),
            f"it is on another disk than {staging.uri('')!r}, where its files are staged, and no file can be renamed "
            "from one disk to another. Give staging= a folder on the disk of the target.",
        )


def staging_for(target: Place, chosen: str | None, spark: SparkSession | None, s3_client: S3Client | None) -> Staging:
    """Return where attempts stage for a target at a path: as it is chosen, or beside the target.

    InvalidValueError for a staging place that readers see, or that files cannot be moved from.
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
    # By what they stand for: s3a:// and s3:// are one bucket, and a link may lead from one to the other.
    if is_within(staging.uri(""), target.uri("")) or is_within(target.uri(""), staging.uri("")):
        raise InvalidValueError(
            f"staging {staging.root!r} and the target {target.root!r} overlap: readers would see uncommitted "
            "rows. Stage next to the target."
        )
    return Staging(staging)
