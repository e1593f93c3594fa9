"""Write a DataFrame of pandas, or a table of pyarrow, as Parquet files into a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from decimal import Decimal
from io import BytesIO
from tempfile import TemporaryFile
from typing import Any

from scripts.helpers._lazy import pa, pd, pq
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.listing.folders import NULL_FOLDER
from scripts.helpers.rows.arrow_streams import ArrowStream
from scripts.helpers.rows.pandas_frames import is_pandas
from scripts.helpers.sinks.places import Place
from scripts.helpers.sinks.staged_rows import SPARK_ROWS, arrow_rows, columns_of, exact_cast, plain_type, without_types

WRITTEN = {"coerce_timestamps": "us", "allow_truncated_timestamps": True}
ESCAPED = str.maketrans({one: f"%{ord(one):02X}" for one in ["\x7f", *"\"#%'*/:=?\\{[]^", *map(chr, range(32))]})
"""The characters that Hive, and Spark in `ExternalCatalogUtils.escapePathName`, escape in the name of a folder."""


def file_rows(df: pd.DataFrame | pa.Table | pa.RecordBatch, partition_by: Sequence[str], target: str) -> pa.Table:
    """Return rows of pandas or pyarrow as a table without the index of pandas, the columns of `partition_by` last.

    A column without a value in any row has no type: pandas reads an empty column of CSV as numbers.

    Raises
    ------
    InvalidValueError
        A column that holds several kinds of values, or times with nanoseconds.
    """
    by = [name for name in partition_by if name in columns_of(df)]
    if is_pandas(df):
        with _typed({}):
            table, parted = pa.Table.from_pandas(df.drop(columns=by), preserve_index=False), df[by]
    else:
        whole = df if isinstance(df, pa.Table) else pa.Table.from_batches([df])
        # Spark would read a file by the columns of the one that the rows are from.
        metadata = {key: value for key, value in (whole.schema.metadata or {}).items() if key != SPARK_ROWS}
        table, parted = whole.drop_columns(by).replace_schema_metadata(metadata), whole.select(by)
    # What pandas says of its own types in the table is of the columns in the files alone.
    parted = arrow_rows(parted, target)
    for name in by:
        table = table.append_column(name, parted[name])
    for name in table.column_names:
        if "timestamp[ns" in str(table[name].type):
            # Compared alone: the writer makes microseconds of them.
            exact_cast(name, table[name], plain_type(table[name].type))
    return without_types(table)


def write_arrow(
    table: pa.Table | ArrowStream,
    place: Place,
    folder: str,
    options: Mapping[str, Any],
    partition_by: Sequence[str] = (),
) -> int:
    """Write rows to one file, or to one for each value of some columns; return how many. Spark names the folders so.

    Rows without columns, as `read_pandas` returns where nothing is new, make no file. Times are written in
    microseconds, which all versions of Spark read.

    The folder, relative to the place, is empty. Options are those of `pyarrow.parquet.write_table`.

    Raises
    ------
    TargetError
        The files cannot be written there.
    """
    if isinstance(table, ArrowStream):
        with TemporaryFile() as packed:
            rows = _pack_batches(table, packed, options)
            packed.seek(0)
            place.write(f"{folder}/part-00000.parquet", packed)
        return rows
    if not table.num_columns:
        return 0
    if not partition_by:
        place.write(f"{folder}/part-00000.parquet", _packed(table, options))
        return int(table.num_rows)
    columns = list(partition_by)
    files = Counter[str]()
    # A column of places of rows, under a name that no column has: the rows of a folder are taken by it.
    number = "_".join(["row", *table.column_names])
    grouped = table.select(columns).append_column(number, [range(len(table))]).group_by(columns)
    for group in grouped.aggregate([(number, "list")]).to_pylist():
        folders = "/".join(partition_folder(column, group[column]) for column in columns)
        rows = table.take(group[f"{number}_list"]).drop_columns(columns)
        # Values that differ may have one folder, such as NULL and NaN: under one name, the rows of the second would
        # replace those of the first.
        place.write(f"{folder}/{folders}/part-{files[folders]:05d}.parquet", _packed(rows, options))
        files[folders] += 1
    return int(table.num_rows)


def _packed(table: pa.Table, options: Mapping[str, Any]) -> bytes:
    packed = BytesIO()
    with _typed(options):
        pq.write_table(table, packed, **{**WRITTEN, **options})
    return packed.getvalue()


def _pack_batches(rows: ArrowStream, packed: Any, options: Mapping[str, Any]) -> int:
    """Write rows to an open file, batch by batch; return how many."""
    given, count = {**WRITTEN, **options}, 0
    size = given.pop("row_group_size", None)
    with _typed(options):
        writer = pq.ParquetWriter(packed, rows.schema, **given)
    with writer, closing(rows.reader()) as reader:
        # What a source raises passes as it is.
        for batch in reader:
            with _typed(options):
                writer.write_batch(batch, size)
            count += batch.num_rows
    return count


@contextmanager
def _typed(options: Mapping[str, Any]) -> Iterator[None]:
    """Raise InvalidValueError for what pyarrow says against rows, or options."""
    try:
        yield
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidValueError(
            f"The rows cannot be written as Parquet: {str(error).splitlines()[0]}. Give each column one type"
            f"{', and check the options ' + ', '.join(options) if options else ''}."
        ) from error


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
