"""Read exactly the planned files with Spark's own readers, however many they are and whatever their names."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import DataFrame, F, SparkSession, T, pa
from scripts.helpers.errors import FileContentError, MisfitError, SourceError
from scripts.helpers.listing.paths import folder_columns
from scripts.helpers.reading.dialects import NO_QUOTE, nanoseconds_of
from scripts.helpers.reading.misfits import differing, narrowed, unpacked_line
from scripts.helpers.reading.packages import is_xml_of_spark_3, read_xml, typed_errors
from scripts.helpers.reading.records import RECORD, ROW, columns_of_lines, lowered, mark_quoted, parsed, plain, texts_of
from scripts.helpers.schemas.kinds import Columns, narrowed_numbers
from scripts.helpers.schemas.spark_frames import columns_of_schema, quoted
from scripts.helpers.spark.jvm import is_connect, without_code
from scripts.helpers.spark.settings import (
    NANOSECONDS,
    check_all_is_read,
    parse_times_strictly,
    settings,
    times_as_written,
)
from scripts.helpers.spark.tasks import slots_of

if TYPE_CHECKING:
    from scripts.helpers.listing.listing import Location

LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
TASKS_PER_SLOT = 4
"""Enough to even out slow tasks. Spark's default, a task for each path up to 10,000, is 19 times slower for 10,000."""
LINE = "_glue_watermarks_line"
_LINE_OPTIONS = {"header", "linesep", "encoding", "charset", "comment", "recursivefilelookup"}
"""Options that also apply when lines are read."""
_BOM = b"\xef\xbb\xbf"
_GLOB = re.compile(r"[\\*?\[\]{}]")
"""Characters in a path that Hadoop does not read literally."""
_FORMATS_WITH_SCHEMA = ("parquet", "orc", "avro")
"""Formats whose files contain their schema, so that a file of 0 bytes has none."""
_FILE_SCHEMA_ERROR = re.compile(
    "CANNOT_MERGE|Failed (?:to merge|merging)|Illegal Parquet type|COLUMN_ALREADY_EXISTS|duplicate column"
    "|[Cc]ould not read footer|READ_FILE_FOOTER|is not a Parquet file|timestamp with local time zone|Not an Avro"
    "|Could not read file"
)
"""Matches Spark's errors about the schemas of files."""
_NO_TYPE = re.compile(r"Illegal Parquet type: [^.\n]*|timestamp with local time zone")
_CASE = re.compile("COLUMN_ALREADY_EXISTS|duplicate column")


def check_values(spark: SparkSession, format: str, options: Mapping[str, Any]) -> None:
    """Check options of CSV or JSON by parsing an empty text, because Spark checks them only at the first row."""
    parse = {"csv": F.from_csv, "json": F.from_json}.get(format)
    given = {name: str(value) for name, value in options.items() if value is not None and name.lower() != "mode"}
    if parse is not None and given:  # Do not pass an empty map, because Spark Connect has no type for it.
        spark.sql("SELECT 1").select(parse(F.lit(""), "a STRING", given)).collect()


def read_files(
    spark: SparkSession,
    location: Location,
    table: pa.Table,
    format: str,
    *,
    schema: T.StructType | str | None = None,
    path_column: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Read exactly the planned files with Spark's reader of a format.

    Spark expands globs in paths by default; here ``* ? [ {`` in a key are literal. Folders such as ``year=2013/``
    become columns, as they do when Spark reads the whole prefix. Spark reads what a file contains when it opens the
    file: `unchanged.check_unchanged` checks whether that is what was planned.

    Parameters
    ----------
    table
        The planned objects: the column `key`, and `size` if it is there.
    format
        A file format of Spark (csv, json, parquet, orc, text, binaryFile) or of a package that the
        session has (avro, xml).
    schema
        StructType or DDL text. Needed if `table` is empty, because Spark can infer no schema then.
    path_column
        Name of a column to add, with the URI of each row's file. The key in it is not URL-encoded.
    options
        Reader options.

    Returns
    -------
    DataFrame
        Lazily read; empty, with `schema`, for an empty table.

    Raises
    ------
    SourceError
        Some files are in ``name=value`` folders and some are not: Spark would silently drop the latter. Read them
        separately: ``delta.split(folder_columns)``. Or the data already have a column called `path_column`. Or a path
        has a glob character of Hadoop, which Spark always expands when it infers a schema from whole files: CSV with
        ``multiLine``, and XML on Spark 4.
    InvalidValueError
        The session or an option makes Spark skip files that it cannot read; see `check_all_is_read`.
    MissingConnectorError
        The session lacks the package that reads Avro or XML; the error names its Maven coordinate.
    """
    options = options or {}
    check_all_is_read(spark, options)
    parse_times_strictly(spark)
    nanoseconds, options = nanoseconds_of(format, times_as_written(spark, format, options))
    if format in _FORMATS_WITH_SCHEMA and "size" in table.column_names:
        # Skip empty files, which have no rows: if one is the first file, Spark would look for the schema in it.
        table = table.filter([size > 0 for size in table.column("size").to_pylist()])
    keys: list[str] = table.column("key").to_pylist()
    # Without a schema, let Spark Connect read the files itself: it infers columns from files, not from parsed lines.
    if keys and format == "json" and schema is None and is_connect(spark):
        _check_objects(spark, location, table, options)
    if keys and _is_read_by_lines(format, schema, options) and not (schema is None and is_connect(spark)):
        return _read_by_lines(spark, location, table, format, schema, path_column, options)
    if not keys:
        frame = _no_rows(spark, schema)
    else:
        columns = check_folders(location, keys)
        if schema is None and _infers_by_glob(spark, format, options):
            # Do not suggest schema= for CSV: Spark opens files by pattern to infer the header even with a schema.
            remedy = "Rename it." if format == "csv" else "Give schema=, or rename it."
            _check_no_glob(location, keys, remedy)
        paths = dict(zip(keys, map(literal, location.readable_uris(keys)), strict=True))
        reader = spark.read.format(format).option("basePath", str(location))
        if schema is not None:
            reader = reader.schema(schema)
        while_loading = _listing_tasks(spark) | ({NANOSECONDS: "true"} if nanoseconds else {})
        with settings(spark, while_loading), typed_errors(spark, location, format):
            if is_xml_of_spark_3(spark, format):
                frame = read_xml(spark, location, paths, columns, schema, options)
            else:
                reader = reader.options(**options)
                if schema is not None and format == "orc":
                    _check_orc(spark, location, paths, columns_of_schema(_no_rows(spark, schema).schema))
                try:
                    frame = without_code(reader.load(list(paths.values())), str(location))
                except Exception as error:
                    if schema is not None or not _FILE_SCHEMA_ERROR.search(str(error)):
                        raise
                    raise _fault(location, format, paths, reader.load, error) from error
                if is_connect(spark):
                    # Fix the schema now: Spark Connect would infer it again at each action, when the settings are
                    # restored, and would then read the value of a folder called 007 as the number 7.
                    frame = reader.schema(frame.schema).load(list(paths.values()))
        if format == "text":
            name = frame.columns[0]
            frame = frame.withColumn(name, unpacked_line(str(location), quoted(name)))
    if path_column is None:
        return frame
    return _with_path(frame, location, path_column, encoded=not is_xml_of_spark_3(spark, format))


def _check_orc(spark: SparkSession, location: Location, paths: Mapping[str, str], given: Columns) -> None:
    """Raise MisfitError for a number type in the schema that does not fit a file: Spark would round or drop values."""
    reader = spark.read.format("orc")
    with suppress(Exception):  # If Spark cannot merge the files' schemas, check each file.
        merged = reader.option("mergeSchema", "true").load(list(paths.values())).schema
        if not any(narrowed_numbers(given, columns_of_schema(merged))):
            return
    for key, path in paths.items():
        schema = reader.option("mergeSchema", "false").load(path).schema
        for name, asked, kind in narrowed_numbers(given, columns_of_schema(schema)):
            raise narrowed(str(location), name, key, kind, asked)


def _fault(
    location: Location, format: str, paths: Mapping[str, str], load: Callable[[list[str]], DataFrame], error: Exception
) -> Exception:
    """Find the first file that Spark cannot read together with the files before it; return an error that names it."""

    def columns(keys: list[str]) -> dict[str, Any] | None:
        try:
            return columns_of_schema(without_code(load([paths[key] for key in keys]), source).schema)
        except Exception:
            return None

    keys, source = list(paths), str(location)
    first = bisect_left(range(len(keys)), True, key=lambda last: columns(keys[: last + 1]) is None)
    if first == len(keys):  # Spark can read all files now, so no file is at fault.
        return error
    key, text = keys[first], str(error)
    alone, before = columns([key]), columns(keys[:first]) if first else {}
    if alone is not None and before:
        kinds = {name.lower(): kind for name, kind in before.items()}
        for name, kind in alone.items():
            if kinds.get(name.lower(), kind) != kind:
                return differing(source, name, key, kind, kinds[name.lower()])
    if _CASE.search(text):
        detail = f"names of columns in key {key!r} differ only by case. Rename one of them."
        return MisfitError(source, None, "", MisfitError.CASE, detail)
    if found := _NO_TYPE.search(text):
        remedy = "Read it with read_pandas."
        if "NANOS" in text:
            remedy = "Pass nanoseconds='microseconds', or 'bigint' for nanoseconds since 1970."
        return SourceError(source, f"key {key!r} has a column that Spark has no type for: {found[0]}. {remedy}")
    return FileContentError(source, key, format, next((line for line in text.splitlines() if key in line), text[:200]))


def _is_read_by_lines(format: str, schema: T.StructType | str | None, options: Mapping[str, Any]) -> bool:
    """Return whether `records` parses the lines that Spark reads: for JSON always, for CSV and XML to check values."""
    if format == "json":
        return True
    is_marked = isinstance(schema, T.StructType) and RECORD in schema.names and "inferred" in schema[RECORD].metadata
    if format not in ("csv", "xml") or not is_marked:
        # Let Spark's reader read other formats, and CSV or XML without `RECORD` in the schema, which requests checks.
        return False
    asked = lowered(options)
    # Let Spark, not `records`, parse CSV with multi-line values (multiLine) or header checks (enforceSchema=False).
    is_cut = asked.get("multiline", "").lower() != "true" and asked.get("enforceschema", "").lower() != "false"
    return is_cut or format == "xml"


def _check_objects(spark: SparkSession, location: Location, table: pa.Table, options: Mapping[str, Any]) -> None:
    """Raise SourceError for several JSON objects in a line or file: Spark infers columns from the first one only."""
    lines = read_files(spark, location, table, "text", options=_json_text_options(options))
    if lines.where(F.col("value").rlike(r"\}\s*\{")).limit(1).count():
        what = "a text has several objects of JSON, and Spark Connect infers the columns of the first. Pass schema=."
        raise SourceError(str(location), what)


def _json_text_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options to read JSON as text, by lines or as whole files."""
    if lowered(options).get("multiline", "").lower() == "true":
        return {"wholetext": "true"}
    return {name: value for name, value in options.items() if name.lower() in _LINE_OPTIONS}


def _is_utf8(options: Mapping[str, Any]) -> bool:
    asked = lowered(options)
    return asked.get("encoding", asked.get("charset", "utf-8")).lower() in ("utf-8", "utf8")


def _read_by_lines(
    spark: SparkSession,
    location: Location,
    table: pa.Table,
    format: str,
    schema: Any,
    path_column: str | None,
    options: Mapping[str, Any],
) -> DataFrame:
    """Read and parse lines (CSV without its header), whole files of JSON, or elements of XML.

    The field `RECORD`, which only JSON schemas can lack, gets the text of each record with a value that does not fit.
    """
    folders = {name.lower() for name in check_folders(location, table.column("key").to_pylist())}
    whole = T.StructType([]) if schema is None else _no_rows(spark, schema).schema
    of_folders = [field for field in whole if field.name.lower() in folders]
    in_files = T.StructType([field for field in whole if field.name.lower() not in folders and field.name != RECORD])
    of_files = {name: value for name, value in options.items() if name.lower() in _LINE_OPTIONS}
    one = T.StructType().add(LINE, "string")
    if format == "json":
        data = F.col(LINE).cast("binary")
        if not _is_utf8(options):
            asked = lowered(options)
            data = F.encode(F.decode(data, asked.get("encoding") or asked["charset"]), "UTF-8")
        line_format, of_files = "text", _json_text_options(options)
        if "wholetext" in of_files:
            # Remove the byte order mark, as Hadoop does when it reads lines.
            has_mark = data.substr(1, 3) == F.lit(bytearray(_BOM))
            data = F.when(has_mark, data.substr(4, 2**31 - 1)).otherwise(data)
    elif format == "xml":
        line_format, of_files, one = format, dict(options), texts_of(in_files, options)
    else:
        # Read each line as one CSV value, with the separator \x01: Spark takes a line that has a \x01 for corrupt, and
        # puts it into RECORD. Decode bytes as ISO-8859-1, in which each byte is a character, so that none is lost. Use
        # the header line of the files as the name of the column: otherwise Spark logs a WARNING for each file.
        header = whole[RECORD].metadata["header"] if _is_utf8(options) else ""
        line = header if header and header.lower() not in folders else LINE
        line_format, one = "csv", T.StructType().add(line, "string").add(RECORD, "string")
        of_files |= {"sep": "\x01", "quote": NO_QUOTE, "columnNameOfCorruptRecord": RECORD}
        text = unpacked_line(str(location), F.coalesce(F.col(RECORD), quoted(line)))
        data = text.cast("binary")
        if _is_utf8(options):
            of_files["encoding"] = "ISO-8859-1"
            data = F.encode(text, "ISO-8859-1")
    lines = read_files(
        spark, location, table, line_format, schema=T.StructType([*one, *of_folders]), path_column=path_column,
        options=of_files,
    )  # fmt: skip
    others = [name for name in lines.columns if name not in one.names]
    records = lines if format == "xml" else lines.select(*map(quoted, others), data.alias("record"))
    if format != "xml" and not _is_utf8(options):
        # Spark reads invalid bytes as U+FFFD. Replace U+FFFD by FF, invalid in UTF-8, so that a check finds the record.
        with_ff = F.expr("cast(replace(cast(record AS string), '\ufffd', cast(X'FF' AS string)) AS binary)")
        records = records.withColumn("record", with_ff)
    if format == "csv" and whole[RECORD].metadata.get("rescues"):
        records = mark_quoted(records, options, str(location))
    if schema is None:
        found = columns_of_lines(records, format, options)
        in_files = T.StructType([field for field in found if field.name.lower() not in folders])
    if path_column is not None:
        check_new_column(location, in_files.names, path_column)
    if RECORD in whole.names:
        rows = parsed(records, format, T.StructType([*in_files, whole[RECORD]]), options)
    else:
        rows = plain(records, format, in_files, options)
    of_rows = [f"{ROW}.*"] if in_files.names or RECORD in whole.names else []
    return rows.select(*of_rows, *map(quoted, others))


def check_folders(location: Location, keys: list[str]) -> tuple[str, ...]:
    """Return the columns that the folders of all keys add; SourceError if keys differ in these."""
    return check_layouts(location, layouts_of(keys))


def layouts_of(keys: Iterable[str]) -> Counter[tuple[str, ...]]:
    """Count the keys by the columns that their folders add."""
    folders = Counter(key.rpartition("/")[0] for key in keys)
    layouts: Counter[tuple[str, ...]] = Counter()
    for folder, count in folders.items():
        layouts[folder_columns(folder + "/")] += count
    return layouts


def check_layouts(location: Location, layouts: Mapping[tuple[str, ...], int]) -> tuple[str, ...]:
    """Return the folder columns that all keys share, the only entry of `layouts`; SourceError if keys differ."""
    if len(layouts) > 1:
        found = ", ".join(sorted(f"{list(names)}: {count}" for names, count in layouts.items()))
        raise SourceError(
            str(location),
            f"the folders give different columns (files with each: {found}). Read at once, some would be dropped. Read "
            "them apart: from scripts.helpers.listing.paths import folder_columns, and delta.split(folder_columns).",
        )
    return next(iter(layouts), ())


def _infers_by_glob(spark: SparkSession, format: str, options: Mapping[str, Any]) -> bool:
    """Return whether Spark infers the schema from whole files. It then expands their unescaped paths as globs again.

    Spark does so for CSV with ``multiLine`` (CSVDataSource.createBaseRdd), for JSON with ``multiLine`` on Spark
    Connect, and for XML without the package for Spark 3.
    """
    if format == "xml":
        return not is_xml_of_spark_3(spark, format)
    return format in ("json", "csv") and lowered(options).get("multiline", "").lower() == "true"


def _check_no_glob(location: Location, keys: list[str], remedy: str) -> None:
    for key in keys:
        found = _GLOB.search(location.uri(key))
        if found is not None:
            raise SourceError(
                str(location),
                f"the path of key {key!r} has {found[0]!r}, which Spark takes for a pattern when it infers the columns "
                f"of whole files: it would look into other files, or into none. {remedy}",
            )


def literal(path: str) -> str:
    """Escape the characters that Spark would expand as a glob.

    Spark's option ``__globPaths__`` does not help: if it is off, Spark replaces each path that has such a character by
    all paths of the call (DataSource.checkAndGlobPathIfNecessary), and so reads rows more than once.
    """
    return _GLOB.sub(r"\\\g<0>", path)


def _no_rows(spark: SparkSession, schema: T.StructType | str | None) -> DataFrame:
    return spark.createDataFrame([], schema or T.StructType([]))


def _with_path(frame: DataFrame, location: Location, name: str, *, encoded: bool) -> DataFrame:
    """Add a column with the file's URI, which Spark's own readers return URL-encoded except for plus signs."""
    check_new_column(location, frame.columns, name)
    shown = F.input_file_name()
    if not encoded:
        # Write file:///path, because Hadoop leaves out two slashes if there is no host.
        return frame.withColumn(name, F.regexp_replace(shown, "^file:/(?=[^/])", "file:///"))
    decoded = F.expr("java_method('java.net.URLDecoder', 'decode', replace(input_file_name(), '+', '%2B'), 'UTF-8')")
    return frame.withColumn(name, F.when(shown.contains("%"), decoded).otherwise(shown))


def check_new_column(location: Location, columns: list[str], name: str) -> None:
    """Raise SourceError if the column to add exists already, in upper or lower case, which are the same to Spark."""
    if name.lower() in (column.lower() for column in columns):
        raise SourceError(str(location), f"the files have a column {name!r} already. Give path_column another name.")


def _listing_tasks(spark: SparkSession) -> dict[str, str]:
    """Return the setting that makes Spark list paths in a few tasks; an empty map if the user's value is smaller.

    `load` lists the paths immediately, so only that call needs the setting.
    """
    before, wanted = spark.conf.get(LISTING_TASKS, None), TASKS_PER_SLOT * slots_of(spark)
    return {} if before is not None and int(before) <= wanted else {LISTING_TASKS: str(wanted)}
