"""Planned files read by pandas: exactly those bytes that were planned, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import TYPE_CHECKING, Any

from scripts.helpers.errors import SourceError
from scripts.helpers.fetched_lines import folder_values
from scripts.helpers.object_fetch import ObjectFetcher, Planned
from scripts.helpers.s3_client import make_client
from scripts.helpers.spark_paths import suffix
from scripts.helpers.spark_reading import check_folders

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from mypy_boto3_s3 import S3Client

    from scripts.helpers.object_listing import Location

WORKERS = 16
FORMATS = ("csv", "json", "parquet")
PACKED = {"gz": "gzip", "bz2": "bz2", "xz": "xz", "zst": "zstd", "zip": "zip"}


def read_pandas(
    location: Location,
    table: pa.Table,
    format: str,
    *,
    path_column: str | None = None,
    s3_client: S3Client | None = None,
    request_payer: bool = False,
    options: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Read planned files into one DataFrame of pandas, in the order of their keys.

    Each file is fetched as it was planned: an object that was overwritten since is an error, and in a
    versioned listing the planned version is read. All of it is held in memory.

    Parameters
    ----------
    table
        The planned objects, with the columns of `FileDelta.table`.
    format
        ``csv``, ``json`` (a record on each line) or ``parquet``. CSV and JSON may be packed, as their ending says.
    path_column
        Name of a column to add, with the URI of each row's file.
    s3_client
        By default one from boto3's default session.
    options
        Of `pandas.read_csv`, `read_json` or `read_parquet`.

    Returns
    -------
    pandas.DataFrame
        ``name=value`` folders are columns of text. Without any file it has no columns.

    Raises
    ------
    ChangedObjectError
        A file is not what was planned any more.
    SourceError
        A file cannot be read; the text names it. Or files lie in different ``name=value`` folders.
    """
    import pandas as pd

    parse = _parser(location, format, dict(options or {}))
    planned = list(map(Planned, *(table.column(name).to_pylist() for name in Planned._fields)))
    names = check_folders(location, [one.key for one in planned]) if planned else ()
    client = s3_client if location.is_local or s3_client else make_client(WORKERS)
    fetcher = ObjectFetcher(location, client, request_payer)

    def frame_of(one: Planned) -> pd.DataFrame | None:
        body = fetcher.fetch(one)
        if not body:
            return None
        try:
            found = parse(body, one.key)
        except (ValueError, OSError, EOFError) as error:
            raise SourceError(
                str(location), f"key {one.key!r} is no readable {format} ({type(error).__name__}). Load it again."
            ) from error
        added = dict(zip(names, folder_values(one.key)[-len(names) :], strict=True)) if names else {}
        if path_column is not None:
            added[path_column] = location.uri(one.key)
        taken = {str(name).lower() for name in found.columns}
        for name, value in added.items():
            if name.lower() in taken:
                raise SourceError(
                    str(location), f"the files have a column {name!r} already. Rename it, or the folder or path_column."
                )
            found[name] = pd.Series([value] * len(found), index=found.index, dtype=object).astype("string")
        return found

    with ThreadPoolExecutor(WORKERS) as pool:
        frames = [frame for frame in pool.map(frame_of, planned) if frame is not None]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _parser(location: Location, format: str, options: dict[str, Any]) -> Callable[[bytes, str], pd.DataFrame]:
    import pandas as pd

    if format not in FORMATS or not (location.is_local or location.is_s3):
        raise SourceError(
            str(location), f"pandas reads {', '.join(FORMATS)} from S3 or a directory, not {format!r} from here."
        )
    if format == "parquet":
        return lambda body, key: pd.read_parquet(BytesIO(body), **options)
    reader: Any = pd.read_csv
    if format == "json":
        reader, options = pd.read_json, {"lines": True} | options

    def parse(body: bytes, key: str) -> pd.DataFrame:
        frame: pd.DataFrame = reader(BytesIO(body), **({"compression": PACKED.get(suffix(key))} | options))
        return frame

    return parse
