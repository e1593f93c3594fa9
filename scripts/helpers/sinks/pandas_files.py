"""Write a DataFrame of pandas, or a table of pyarrow, as Parquet files into a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

from scripts.helpers._lazy import pa, pd, pq
from scripts.helpers.listing.folders import NULL_FOLDER
from scripts.helpers.rows.arrow_streams import ArrowStream
from scripts.helpers.rows.pandas_frames import is_pandas
from scripts.helpers.sinks.arrow_files import NAME, WRITTEN, WrittenFiles, unless_refused, write_batches
from scripts.helpers.sinks.places import Place
from scripts.helpers.sinks.staged_rows import SPARK_ROWS, arrow_rows, columns_of, exact_cast, plain_type, without_types

ESCAPED = str.maketrans({one: f"%{ord(one):02X}" for one in ["\x7f", *"\"#%'*/:=?\\{[]^", *map(chr, range(32))]})
"""The characters that Hive, and Spark in `ExternalCatalogUtils.escapePathName`, escape in the name of a folder."""


def file_rows(df: Any, partition_by: Sequence[str], target: str) -> Any:
    """Return rows of pandas or Arrow as a table without the index of pandas, the columns of `partition_by` last.

    A column without a value in any row has no type: pandas reads an empty column of CSV as numbers. An `ArrowStream`
    stays one, whose types are those of its source, and whose errors come with the batch.

    Raises
    ------
    InvalidValueError
        A column that holds several kinds of values, or times with nanoseconds.
    """
    if isinstance(df, ArrowStream):
        return df.mapped(lambda table: _stored(table, partition_by, target))
    return without_types(_stored(df, partition_by, target))


def _stored(df: pd.DataFrame | pa.Table | pa.RecordBatch, partition_by: Sequence[str], target: str) -> pa.Table:
    by = [name for name in partition_by if name in columns_of(df)]
    if is_pandas(df):
        with unless_refused({}):
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
