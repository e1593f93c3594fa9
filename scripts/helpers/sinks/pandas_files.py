"""Write a DataFrame of pandas as Parquet files into a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.sinks.places import Place

if TYPE_CHECKING:
    import pandas as pd

NAME = "part-00000.parquet"
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What Hive, Spark and Athena call the folder of rows without a value."""
ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f")
"""The characters of Spark's `ExternalCatalogUtils.escapePathName`, beside those below the space."""


def check_format(format: str) -> None:
    """Raise InvalidValueError for another format than Parquet."""
    if format.lower() != "parquet":
        raise InvalidValueError(f"pandas writes format='parquet' here, not {format!r}. Make it a DataFrame of Spark.")


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
        place.write(f"{folder}/{NAME}", _packed(frame, options))
        return
    columns = list(partition_by)
    for found, rows in frame.groupby(columns, dropna=False, sort=False, observed=True):
        folders = "/".join(folder_of(column, value) for column, value in zip(columns, found, strict=True))
        place.write(f"{folder}/{folders}/{NAME}", _packed(rows.drop(columns=columns), options))


def _packed(frame: pd.DataFrame, options: Mapping[str, Any]) -> bytes:
    packed = BytesIO()
    given = {"index": False, "coerce_timestamps": "us", "allow_truncated_timestamps": True}
    frame.to_parquet(packed, engine="pyarrow", **(given | dict(options)))
    return packed.getvalue()


def folder_of(column: str, value: Any) -> str:
    """Return the folder of a partition's rows, as Spark calls it."""
    import pandas as pd

    if pd.isna(value) or value == "":
        return f"{column}={NO_VALUE}"
    # Spark writes true, and reads "True" as a text.
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{column}={''.join(_escaped(character) for character in text)}"


def _escaped(character: str) -> str:
    """Return a character as Hive, and Spark after it, write it in the name of a folder."""
    return f"%{ord(character):02X}" if character in ESCAPED or character < " " else character
