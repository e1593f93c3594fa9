"""Read planned files with pandas and without Spark: exactly the bytes that were planned."""

from __future__ import annotations

import csv
import json
import lzma
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from decimal import Decimal
from functools import partial
from inspect import signature
from io import BytesIO, StringIO
from math import isinf
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

from scripts.helpers._lazy import S3Client, pa, pc, pd, pq
from scripts.helpers.display.options import nearest
from scripts.helpers.errors import ADVICE, FileContentError, InvalidValueError, MisfitError, SourceError, WatermarkError
from scripts.helpers.listing.folders import folder_values
from scripts.helpers.listing.paths import packing
from scripts.helpers.reading.dialects import nanoseconds_of
from scripts.helpers.reading.fetch import WORKERS_HERE, Planned, fetcher_of, planned_of
from scripts.helpers.reading.fetched_lines import DECOMPRESS, unpacked_text
from scripts.helpers.reading.misfits import check_related
from scripts.helpers.reading.spark import check_folders
from scripts.helpers.schemas.kinds import Columns, differing_by_case

if TYPE_CHECKING:
    from scripts.helpers.listing.listing import Location

FORMATS = ("csv", "json", "parquet")
EXACT = {"lines", "encoding"}
"""JSON options that do not change values."""
QUOTING = ("quotechar", "doublequote", "escapechar")
COUNTED = {"sep", "delimiter", "encoding", "dtype", "dtype_backend", "index_col", "keep_default_na", "na_values"}
COUNTED |= {*QUOTING}
"""CSV options with which this module can still count the values of each line."""
TYPING = {"decimal", "thousands", "true_values", "false_values"}
"""CSV options that affect only columns with a type in ``dtype``."""
WHOLE, NUMBER = r"^-?(0|[1-9][0-9]*)$", r"^-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$|^NaN$|^-?Inf$"
"""CSV texts that become numbers. Digits after a leading zero are an identifier, such as 01234, and stay text."""
LARGEST_FLOAT = 2**53
"""Above this, a float cannot hold every whole number."""
NULLABLE = {f"{sign}int{bits}": f"{sign.upper()}Int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
NULLABLE |= {"bool": "boolean", "float": "Float32", "double": "Float64", "string": "string", "large_string": "string"}
"""Nullable types of pandas, by the names of pyarrow's types."""
BLANK = " \t\r\n"
_BLANKS = re.compile(rf"[{BLANK}]*")


def read_pandas(
    location: Location,
    table: pa.Table,
    format: str,
    *,
    path_column: str | None = None,
    s3_client: S3Client | None = None,
    request_payer: bool = False,
    options: Mapping[str, Any] | None = None,
    kept: Columns | None = None,
) -> pd.DataFrame:
    """Read planned files into one pandas DataFrame, in the order of their keys.

    Each file is fetched as it was planned: an object that was overwritten since is an error, and in a
    versioned listing the planned version is read. All rows are held in memory.

    A column of CSV or JSON has the type that fits the values of all files: a nullable type of pandas (``Int64``,
    ``UInt64``, ``Float64``, ``boolean``), otherwise ``string``. Whole numbers that neither 64 bits nor a float can hold
    exactly stay text. Columns of Parquet have the nullable types of pandas, too.

    Parameters
    ----------
    table
        The planned objects, with the columns of `FileDelta.table`.
    format
        ``csv``, ``json`` (records on lines) or ``parquet``. CSV and JSON may be compressed, as their extension says.
    path_column
        Name of a column to add, with the URI of each row's file.
    s3_client
        By default a client of boto3's default session.
    options
        Arguments of `pandas.read_csv`, `pandas.read_json` or `pyarrow.parquet.read_table`, and ``dtype_backend``. In
        CSV only an empty field is NULL, as in Spark, unless ``keep_default_na`` or ``na_values`` is given. With JSON
        options other than ``lines`` and ``encoding``, `read_json` types each file by itself and rounds large numbers.
    kept
        The columns that earlier batches of CSV had, each ``any`` or ``string``. A ``string`` column stays text.

    Returns
    -------
    pandas.DataFrame
        ``name=value`` folders are columns of text. If there are no files, the frame has no columns.

    Raises
    ------
    ChangedObjectError
        A file was overwritten or deleted since it was planned.
    FileContentError
        A file cannot be read. The error names the file and the reason.
    MisfitError
        A line of CSV has more or fewer values than the header, files of CSV share no column, a record is not JSON, or
        no type holds the values of all Parquet files.
    InvalidValueError
        An option is unknown or wrong.
    SourceError
        The format is not supported, or files are in different ``name=value`` folders.
    """
    from pandas.errors import EmptyDataError

    options = options or {}
    parse = parser_of(location, format, options)
    planned = list(planned_of(table))
    names = check_folders(location, [one.key for one in planned]) if planned else ()
    fetcher = fetcher_of(location, s3_client, WORKERS_HERE, request_payer)

    def frames_of(one: Planned) -> list[tuple[Planned, str, Any]]:
        found = []
        body = fetcher.fetch(one)
        if format == "parquet" and body and options:
            with _naming_file(str(location), one.key, format, {}):
                # Read the footer first, without the options, because an error in it is caused by the file.
                pq.read_schema(BytesIO(body))
        with _naming_file(str(location), one.key, format, options):
            ending = "" if format == "parquet" else packing(one.key)
            for member, content in _members(body, ending, options).items():
                if content:
                    with suppress(EmptyDataError):
                        found.append((one, one.key + member, parse(content)))
        return found

    with ThreadPoolExecutor(WORKERS_HERE) as pool:
        taken = [each for found in pool.map(frames_of, planned) for each in found]
    if not taken:
        return pd.DataFrame()
    by_key = _as_spelled_first(str(location), {key: frame for _, key, frame in taken})
    if format == "csv":
        check_related(str(location), kept or (), {key: map(str, frame) for key, frame in by_key.items()})
    as_text = {name.lower() for name, kind in (kept or {}).items() if kind == "string"}
    try:
        found = _joined(str(location), format, by_key, options, as_text)
    except (*_OF_FILES, TypeError, pa.ArrowException):
        # The error names no file: convert each file alone. Parquet's options are not to blame: `parse` accepted them.
        for key, frame in by_key.items():
            with _naming_file(str(location), key, format, {} if format == "parquet" else options):
                _joined(str(location), format, {key: frame}, options, as_text)
        raise
    # Return [] without names, because the slice [-0:] would be the whole list.
    values = [folder_values(one.key)[-len(names) :] if names else [] for one, _, _ in taken]
    added = {name: [of_file[index][1] for of_file in values] for index, name in enumerate(names)}
    if path_column is not None:
        added[path_column] = [location.uri(one.key) for one, _, _ in taken]
    there = {str(name).lower() for name in found.columns}
    for name, texts in added.items():
        if name.lower() in there:
            raise SourceError(
                str(location), f"the files have a column {name!r} already. Rename it, or the folder or path_column."
            )
        found[name] = pd.array(texts, dtype="string").repeat([len(frame) for _, _, frame in taken])
    return found


class _LineError(Exception):
    """A file cannot be read exactly, usually because of one line."""


_OF_FILES = (
    ValueError, ArithmeticError, OSError, EOFError, RecursionError, csv.Error, zlib.error, lzma.LZMAError, BadZipFile,
)  # fmt: skip
"""Errors that the content of a file causes. Any other error is blamed on the caller's options, if there are any."""


@contextmanager
def _naming_file(source: str, key: str, format: str, options: Mapping[str, Any]) -> Iterator[None]:
    """Raise errors again with the name of the file, or as an error about the options if these are to blame."""
    try:
        yield
    except _LineError as error:
        detail = f"key {key!r} cannot be read as {format}: {error}. Correct the file."
        raise MisfitError(source, None, "record", detail=detail) from error
    except (WatermarkError, MemoryError):
        raise
    except Exception as error:
        # A file or an option may cause an error of `_OF_FILES`, so name the file. Other errors are about the options.
        if options and not isinstance(error, (*_OF_FILES, pa.ArrowException)):
            raise _refused(format, options, error) from error
        # pandas and pyarrow show the text of a value that does not fit. Remove it: no error here contains values.
        reason = re.sub(r"""(: |string )(['"]).*\2""", r"\1…", str(error).strip().partition("\n")[0])
        raise FileContentError(source, key, format, reason or type(error).__name__) from error


def _refused(format: str, options: Mapping[str, Any], error: Exception | str) -> InvalidValueError:
    return InvalidValueError(f"read_pandas({format!r}) refuses its options ({', '.join(options)}): {error}")


def parser_of(location: Location, format: str, options: Mapping[str, Any]) -> Callable[[bytes], Any]:
    """Return a function that turns the decompressed bytes of a file into a DataFrame, or a pyarrow table for Parquet.

    Raises
    ------
    InvalidValueError
        An option is unknown, or is wrong for any file.
    SourceError
        The format or the kind of store is not supported.
    """
    if format not in FORMATS or not (location.is_local or location.is_s3):
        raise SourceError(
            str(location),
            f"pandas reads {', '.join(FORMATS)} from S3 or a directory, not {format!r} from here. "
            + nearest(FORMATS, str(format)),
        )
    nanoseconds, options = nanoseconds_of(format, options)
    if format == "parquet":
        options = {name: value for name, value in options.items() if name != "dtype_backend"}
    read: Any = {"csv": pd.read_csv, "json": pd.read_json, "parquet": pq.read_table}[format]
    given = {"lines": True, "dtype_backend": "numpy_nullable", **options}
    known = signature(read).parameters
    for name in options:
        if name not in known:
            raise _refused(format, options, f"there is no {name!r}. {nearest(known, name) or 'Leave it out.'}")
    if format == "csv" and options.get("index_col") not in (None, False):
        raise _refused(format, options, "index_col makes no index. Leave it out, and call set_index of the rows.")
    if format == "csv" and "dtype" not in options and TYPING & options.keys():
        typed = 'dtype={"price": "Float64"}'
        raise _refused(format, options, f"values are read as text, unless dtype names their column. Add {typed}.")
    if format == "parquet" and isinstance(options.get("columns"), str):
        raise _refused(format, options, "columns is one text. Name them in a list.")
    try:
        if format == "json" and not EXACT.issuperset(options):
            # Parse no records, so that only the options are checked.
            read(BytesIO(b"" if given["lines"] else b"[]"), **given)
            return lambda body: read(BytesIO(body), **given)
    except Exception as error:
        raise _refused(format, options, error) from error
    if format == "parquet":
        # Drop pandas' metadata about its types and indexes, which Spark ignores as well.
        # Read INT96 times in microseconds, as Spark does: times before 1677 do not fit nanoseconds and would be wrong.
        options = {"coerce_int96_timestamp_unit": "us", **options}
        return lambda body: _times(read(BytesIO(body), **options).replace_schema_metadata(), nanoseconds)
    return partial(_csv if format == "csv" else _json, options)


def _times(table: pa.Table, nanoseconds: str | None) -> pa.Table:
    """Return a table with its nanosecond columns cast to the type that the caller asked for."""
    for index, field in enumerate(table.schema if nanoseconds else ()):
        if str(field.type).startswith("timestamp[ns"):
            kind = pa.int64() if nanoseconds == "bigint" else pa.timestamp("us", field.type.tz)
            try:
                table = table.set_column(index, field.name, table[field.name].cast(kind))
            except pa.ArrowInvalid as error:
                raise _LineError(f"column {field.name!r} has a time with a part of a microsecond") from error
    return table


# --- CSV ----------------------------------------------------------------------------------------


def _csv(options: Mapping[str, Any], body: bytes) -> pd.DataFrame:
    """Read values as text, except for columns to which the caller gives a type."""
    if COUNTED.issuperset(options):
        _check_counts(body.decode(options.get("encoding") or "utf-8-sig"), options)
    missing = {} if {"keep_default_na", "na_values"} & options.keys() else {"keep_default_na": False, "na_values": [""]}
    given: dict[str, Any] = {"compression": None, "dtype": {}, **missing, **options}
    if isinstance(given["dtype"], Mapping):
        given["dtype"] = defaultdict(lambda: "string", given["dtype"])
    try:
        # This call parses no rows yet, so a plain ValueError is about the options.
        reader: Any = pd.read_csv(BytesIO(body), **{**given, "iterator": True})
    except ValueError as error:
        if type(error) is ValueError:
            raise _refused("csv", options, error) from error
        raise
    with reader:
        frame: pd.DataFrame = reader.read(given.get("nrows"))
    if not isinstance(frame.index, pd.RangeIndex):
        # pandas has used the first values of each line as an index, so the other values are in the wrong columns.
        raise _LineError("a line has more values than the header names columns")
    return frame


def _check_counts(text: str, options: Mapping[str, Any]) -> None:
    """Raise an error for a line with more or fewer values than the header; pandas would shift, drop or add values."""
    separator = options.get("sep", options.get("delimiter")) or ","
    if len(separator) != 1:  # The separator is a regular expression, which only pandas supports.
        return
    given = {name: options[name] for name in QUOTING if name in options}
    csv.field_size_limit(2**31 - 1)  # Lift csv's limit of 128 KB a value, for the whole process.
    rows = csv.reader(StringIO(text, newline=""), delimiter=separator, **given)
    # Skip blank lines, but keep lines that have only separators.
    counted = (row for row in rows if len(row) > 1 or "".join(row).strip())
    names = next(counted, [])
    if names and not any(map(str.strip, names)):
        raise _LineError(f"line {rows.line_num} is the header, and names no column")
    header = len(names)
    for row in counted:
        if len(row) != header:
            has = f"{len(row)} {'value' if len(row) == 1 else 'values'}"
            raise _LineError(f"line {rows.line_num} has {has}, and the header names {header} columns")


def _typed_text(texts: Any) -> Any:
    """Return CSV texts as numbers if all are numbers, as booleans if all are ``true`` or ``false``; else unchanged."""
    there = texts.drop_null()
    is_whole = pc.match_substring_regex(there, WHOLE)
    if len(there) and pc.all(is_whole).as_py():
        for kind in (pa.int64(), pa.uint64()):
            with suppress(pa.ArrowInvalid):  # Try the next type if a number does not fit.
                return texts.cast(kind)
    elif len(there) and pc.all(pc.match_substring_regex(there, NUMBER)).as_py():
        long = pc.and_(is_whole, pc.greater(pc.binary_length(there), 15))
        if all(abs(int(text)) <= LARGEST_FLOAT for text in there.filter(long).to_pylist()):
            numbers = texts.cast(pa.float64())
            # Keep texts such as 1e400, of which a float would be infinite.
            too_large = pc.and_(pc.is_inf(numbers), pc.match_substring_regex(texts, "[0-9]"))
            return texts if pc.any(too_large).as_py() else numbers
    elif len(there) and pc.all(pc.is_in(pc.utf8_lower(there), pa.array(["true", "false"], there.type))).as_py():
        return pc.equal(pc.utf8_lower(texts), "true")
    return texts


# --- JSON ---------------------------------------------------------------------------------------


def _json(options: Mapping[str, Any], body: bytes) -> pd.DataFrame:
    """Read records into columns of Python objects, so that no number is converted to a float."""
    text = body.decode(options.get("encoding") or "utf-8-sig")
    lines = StringIO(text, newline=None) if options.get("lines", True) else [text]
    return pd.DataFrame(list(_records(lines)), dtype=object)


def _records(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the records of lines, which hold one or several objects each, or arrays of them."""
    for number, line in enumerate(lines, 1):
        try:
            for value in _values(line.strip(BLANK)):
                records = value if isinstance(value, list) else [value]
                if not all(isinstance(record, dict) for record in records):
                    raise _LineError(f"line {number} has a value that is no object")
                yield from records
        except json.JSONDecodeError as error:
            raise _LineError(f"line {number} is not JSON ({error.msg} at character {error.pos + 1})") from error


def _values(text: str) -> Iterator[Any]:
    """Yield the JSON values that follow each other in a text."""
    place = 0
    while place < len(text):
        value, end = _JSON.raw_decode(text, place)
        yield value
        place = _BLANKS.match(text, end).end()  # type: ignore[union-attr]


def _fraction(text: str) -> float | Decimal:
    """Return a number of JSON with a point or an exponent; a Decimal if a float would be infinite."""
    found = float(text)
    return Decimal(text) if isinf(found) else found


_JSON = json.JSONDecoder(parse_float=_fraction)


def _typed_objects(objects: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column of objects cast to the type of its values, if they share one."""
    there = objects.dropna()
    kinds = frozenset(map(type, there))
    whole = [value for value in there if type(value) is int]
    name = {frozenset({bool}): "boolean", frozenset({str}): "string"}.get(kinds)
    if kinds == {int}:
        least, most = min(whole), max(whole)
        is_signed, is_unsigned = least >= -(2**63) and most < 2**63, least >= 0 and most < 2**64
        name = "Int64" if is_signed else "UInt64" if is_unsigned else "string"
    elif kinds and kinds <= {int, float, Decimal}:
        name = "Float64" if Decimal not in kinds and all(abs(value) <= LARGEST_FLOAT for value in whole) else "string"
    return objects if name is None else objects.astype(name)


# --- all files ----------------------------------------------------------------------------------


def _as_spelled_first(source: str, frames: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the columns of each frame as the first file spells them, since Spark ignores the case of names."""
    spelled: dict[str, str] = {}
    found = {}
    for key, frame in frames.items():
        names = frame.column_names if hasattr(frame, "column_names") else list(frame.columns)
        alike = ", ".join(differing_by_case(dict.fromkeys(map(str, names), "string")))
        if alike:
            detail = f"names of columns in key {key!r} differ only by case: {alike}. Rename one of them."
            raise MisfitError(source, None, alike, MisfitError.CASE, detail)
        first = [spelled.setdefault(str(name).lower(), name) for name in names]
        rename = frame.rename_columns if hasattr(frame, "column_names") else partial(frame.set_axis, axis=1)
        found[key] = frame if first == names else rename(first)
    return found


def _joined(
    source: str, format: str, frames: Mapping[str, Any], options: Mapping[str, Any], texts: Collection[str]
) -> pd.DataFrame:
    """Return the rows of all files, each column in one type. CSV columns in `texts` (lower case) stay text."""

    def to_pandas(kind: pa.DataType) -> Any:
        if options.get("dtype_backend") == "pyarrow":
            return pd.ArrowDtype(kind)
        return pd.api.types.pandas_dtype(NULLABLE[str(kind)]) if str(kind) in NULLABLE else None

    found: pd.DataFrame
    if format == "parquet":
        table = _concatenated_tables(source, frames)
        found = table.to_pandas(types_mapper=to_pandas)
        for field in table.schema if options.get("dtype_backend") != "pyarrow" else ():
            if pa.types.is_nested(field.type):
                # Use Python objects: pandas would turn the whole numbers in nested values into floats if one is NULL.
                found[field.name] = pd.Series(table[field.name].to_pylist(), dtype=object)
        return found
    given = options.get("dtype", {})
    # Leave out files with only a header: pandas gives their columns the type object, which all files would then get.
    full = {key: frame for key, frame in frames.items() if len(frame)} or dict(frames)
    lacking = set().union(*full.values()).difference(set.intersection(*map(set, full.values())))
    for key, frame in full.items():
        # Cast columns that some files lack to nullable types, or `concat` would turn their whole numbers into floats.
        kinds = {name: NULLABLE.get(str(frame[name].dtype), frame[name].dtype) for name in lacking.intersection(frame)}
        full[key] = frame.astype(kinds)
    found = pd.concat(full.values(), ignore_index=True)
    for name in (name for frame in frames.values() for name in frame if name not in found):
        found[name] = pd.array([None] * len(found), "string")
    for name in found.columns:
        kind = str(found[name].dtype)
        if format == "json" and kind == "object" and EXACT.issuperset(options):
            found[name] = _typed_objects(found[name])
        elif format == "csv" and kind == "string" and isinstance(given, Mapping) and name not in given:
            values = pa.Array.from_pandas(found[name])
            typed = values if str(name).lower() in texts else _typed_text(values)
            found[name] = typed.to_pandas(types_mapper=to_pandas)
    return found


def _concatenated_tables(source: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows of all tables, each column in a type that holds its values; MisfitError if there is none."""
    columns = {}
    for name in dict.fromkeys(name for table in tables.values() for name in table.column_names):
        # Select no columns from a table that lacks this column, so that its rows get NULL.
        parts = [table.select([name] if name in table.column_names else []) for table in tables.values()]
        try:
            columns[name] = _concatenated(parts)
        except pa.ArrowException as error:
            try:
                columns[name] = _concatenated([_widened(part) for part in parts])
            except pa.ArrowException:
                first: dict[str, str] = {}
                for key, part in zip(tables, parts, strict=True):
                    first |= {str(kind): first.get(str(kind), key) for kind in part.schema.types}
                kinds = ", ".join(f"{kind} in key {key!r}" for kind, key in first.items())
                detail = f"column {name!r} is {kinds}, and no type holds all values: {error}. {ADVICE.get().part}"
                raise MisfitError(source, name, ", ".join(first), detail=detail) from error
    return pa.table(columns)


def _concatenated(parts: list[pa.Table]) -> pa.ChunkedArray:
    """Join one column of several tables, NULL for a table without it; ArrowInvalid if values would change silently."""
    found = pa.concat_tables(parts, promote_options="permissive")[0]
    for kind in {kind for part in parts for kind in part.schema.types}:
        if _is_changed(kind, found.type):
            raise pa.ArrowInvalid(f"{kind} would become {found.type}")
    return found


def _is_changed(kind: pa.DataType, joined: pa.DataType) -> bool:
    """Return whether values change from type `kind` to `joined`: pyarrow rounds decimals, or reads texts as bytes."""
    if pa.types.is_struct(kind):
        return any(_is_changed(field.type, joined.field(field.name).type) for field in kind)
    if pa.types.is_nested(kind):
        parts = ("key_type", "item_type") if pa.types.is_map(kind) else ("value_type",)
        return any(_is_changed(getattr(kind, part), getattr(joined, part)) for part in parts)
    is_text, stays_text = (NULLABLE.get(str(one)) == "string" for one in (kind, joined))
    return is_text > stays_text or (pa.types.is_decimal(kind) and pa.types.is_floating(joined))


def _widened(part: pa.Table) -> pa.Table:
    """Return a table of at most one column, cast so that Arrow can append more types to it. Values do not change.

    Times become microseconds, because nanoseconds end in 2262, and UTC if they have a zone, as Parquet stores them.
    """

    def wide(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(kind):
            return pa.timestamp("us", kind.tz and "UTC")
        return kind.value_type if pa.types.is_dictionary(kind) else kind

    return part.cast(pa.schema([(field.name, wide(field.type)) for field in part.schema]))


def _members(body: bytes, ending: str, options: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the decompressed files in an object: ``{"": …}``, or ``{"/a.csv": …}`` with names in a zip archive.

    The key's extension gives the compression. If the caller passes ``compression``, pandas decompresses the bytes.
    """
    if "compression" in options or not body:
        return {"": body}
    if ending == "zip":
        with ZipFile(BytesIO(body)) as archive:
            # Skip a folder of metadata that macOS adds to archives.
            members = (name for name in archive.namelist() if not name.startswith("__MACOSX/"))
            return {f"/{name}": archive.read(name) for name in members}
    if ending == "zst":
        return {"": bytes(pa.input_stream(BytesIO(body), compression="zstd").read())}
    return {"": {**DECOMPRESS, "xz": lzma.decompress}.get(ending, unpacked_text)(body)}
