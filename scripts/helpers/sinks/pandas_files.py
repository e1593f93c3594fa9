"""Write a DataFrame of pandas, or a table of pyarrow, as Parquet files into a folder."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from io import BytesIO
from typing import TYPE_CHECKING, Any

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.listing.folders import NULL_FOLDER
from scripts.helpers.sinks.places import Place

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f")
"""The characters of Spark's `ExternalCatalogUtils.escapePathName`, beside those below the space."""


def check_parquet(format: str) -> None:
    """Raise InvalidValueError for another format than Parquet."""
    if format.lower() != "parquet":
        raise InvalidValueError(
            f"pandas and pyarrow write format='parquet' here, not {format!r}. Make it a DataFrame of Spark."
        )


def write_pandas(
    frame: pd.DataFrame, place: Place, folder: str, options: Mapping[str, Any], partition_by: Sequence[str] = ()
) -> None:
    """Write rows to one file, or to one for each value of some columns, in folders as Spark names them.

    Rows without columns, as `read_pandas` returns where nothing is new, make no file.

    The index is not written. Times are written in microseconds, which all versions of Spark read;
    nanoseconds are cut off.

    Parameters
    ----------
    folder
        Relative to the place, and empty.
    options
        Of `pandas.DataFrame.to_parquet`, such as `compression`.

    Raises
    ------
    TargetError
        The files cannot be written there.
    """
    if not len(frame.columns):
        return
    if not partition_by:
        place.write(_new_file(folder, Counter()), _packed(frame, options))
        return
    columns = list(partition_by)
    files = Counter[str]()
    for found, rows in frame.groupby(columns, dropna=False, sort=False, observed=True):
        folders = "/".join(partition_folder(column, value) for column, value in zip(columns, found, strict=True))
        place.write(_new_file(f"{folder}/{folders}", files), _packed(rows.drop(columns=columns), options))


def write_arrow(
    table: pa.Table, place: Place, folder: str, options: Mapping[str, Any], partition_by: Sequence[str] = ()
) -> int:
    """Write a table of pyarrow as `write_pandas` writes a frame, without one in between; return how many rows.

    Parameters
    ----------
    options
        Of `pyarrow.parquet.write_table`, such as `compression`.
    """
    if not table.num_columns:
        return 0
    if not partition_by:
        place.write(_new_file(folder, Counter()), _packed_table(table, options))
        return int(table.num_rows)
    columns = list(partition_by)
    files = Counter[str]()
    # A column of places of rows, under a name that no column has: the rows of a folder are taken by it.
    number = "_".join(["row", *table.column_names])
    grouped = table.select(columns).append_column(number, _numbers(table.num_rows)).group_by(columns)
    for group in grouped.aggregate([(number, "list")]).to_pylist():
        # A number that is none is equal to nothing, itself included.
        values = [None if group[column] != group[column] else group[column] for column in columns]
        folders = "/".join(partition_folder(column, value) for column, value in zip(columns, values, strict=True))
        rows = table.take(group[f"{number}_list"]).drop_columns(columns)
        place.write(_new_file(f"{folder}/{folders}", files), _packed_table(rows, options))
    return int(table.num_rows)


def _new_file(folder: str, files: Counter[str]) -> str:
    """Return the next name in a folder, and count it in the files of this write."""
    # Values that differ may have one folder, such as NULL and an empty text: under one name, the rows of the second
    # would replace those of the first.
    name = f"{folder}/part-{files[folder]:05d}.parquet"
    files[folder] += 1
    return name


def _numbers(count: int) -> pa.Array:
    import pyarrow as pa

    return pa.array(range(count), pa.int64())


def _packed_table(table: pa.Table, options: Mapping[str, Any]) -> bytes:
    import pyarrow.parquet as pq

    packed = BytesIO()
    given = {"coerce_timestamps": "us", "allow_truncated_timestamps": True}
    with _typed(options):
        pq.write_table(table, packed, **(given | dict(options)))
    return packed.getvalue()


def _packed(frame: pd.DataFrame, options: Mapping[str, Any]) -> bytes:
    packed = BytesIO()
    given = {"index": False, "coerce_timestamps": "us", "allow_truncated_timestamps": True}
    with _typed(options):
        frame.to_parquet(packed, engine="pyarrow", **(given | dict(options)))
    return packed.getvalue()


@contextmanager
def _typed(options: Mapping[str, Any]) -> Iterator[None]:
    """Raise InvalidValueError for what pyarrow says against rows, or options."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidValueError(
            f"The rows cannot be written as Parquet: {str(error).splitlines()[0]}. Give each column one type"
            f"{', and check the options ' + ', '.join(options) if options else ''}."
        ) from error


def partition_folder(column: str, value: Any) -> str:
    """Return the folder of a partition's rows, as Spark calls it."""
    name = "".join(map(_escaped, column))
    if value is None or _is_no_value(value) or value == "":
        return f"{name}={NULL_FOLDER}"
    # Spark writes true, and reads "True" as a text; of a decimal it writes all digits.
    text = str(value).lower() if isinstance(value, bool) else str(value)
    text = f"{value:f}" if isinstance(value, Decimal) else text
    return f"{name}={''.join(map(_escaped, text))}"


def _is_no_value(value: Any) -> bool:
    # What pyarrow has for no value is None, and needs no pandas.
    pandas = sys.modules.get("pandas")
    return pandas is not None and bool(pandas.isna(value))


def _escaped(character: str) -> str:
    """Return a character as Hive, and Spark after it, write it in the name of a folder."""
    return f"%{ord(character):02X}" if character in ESCAPED or character < " " else character
