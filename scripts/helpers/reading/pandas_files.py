"""Planned files read by pandas: exactly those bytes that were planned, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import TYPE_CHECKING, Any

from scripts.helpers.errors import SourceError
from scripts.helpers.listing.paths import suffix
from scripts.helpers.reading.fetch import WORKERS_HERE, Planned, fetcher_of, planned_of
from scripts.helpers.reading.fetched_lines import values_of_folders
from scripts.helpers.reading.spark import check_folders

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from mypy_boto3_s3 import S3Client

    from scripts.helpers.listing.listing import Location

LARGEST = 2**63 - 1
"""What Int64 holds at most."""
EXACT = {"lines", "compression", "encoding"}
"""Options of JSON that leave the values as they are."""
KINDS: dict[frozenset[type], Any] = {
    frozenset({int}): "Int64",
    frozenset({float}): "Float64",
    frozenset({int, float}): "Float64",
    frozenset({bool}): "boolean",
    frozenset({str}): "string",
}
"""What a column of objects becomes, by the types of its values; others stay objects."""
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
        Of `pandas.read_csv`, `read_json` or `read_parquet`. By default whole numbers stay whole where some
        are missing (``dtype_backend="numpy_nullable"``), and lists of JSON records keep their values as
        they are: texts do not become dates. Any option but ``lines``, ``compression`` and ``encoding``
        leaves JSON to `read_json`, which rounds whole numbers beyond 2**53 where some are missing.

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
    from pandas.errors import EmptyDataError

    exact = format == "json" and EXACT.issuperset(options or {})
    parse = _parser(location, format, dict(options or {}), exact)
    planned = list(planned_of(table))
    names = check_folders(location, [one.key for one in planned]) if planned else ()
    fetcher = fetcher_of(location, s3_client, WORKERS_HERE, request_payer)

    def frame_of(one: Planned) -> pd.DataFrame | None:
        body = fetcher.fetch(one)
        if not body:
            return None
        try:
            found = parse(body, one.key)
        except EmptyDataError:
            return None
        except Exception as error:
            raise SourceError(
                str(location),
                f"key {one.key!r} is not readable as {format} ({type(error).__name__}). Upload it again, or check "
                "the options.",
            ) from None
        added: dict[str, Any] = {}
        # Without names the slice would be [-0:], which is everything.
        if names:
            values = values_of_folders(one.key)[-len(names) :]
            added.update(zip(names, values, strict=True))
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

    with ThreadPoolExecutor(WORKERS_HERE) as pool:
        frames = [frame for frame in pool.map(frame_of, planned) if frame is not None]
    found = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    return _typed(found) if exact else found


def _parser(
    location: Location, format: str, options: dict[str, Any], exact: bool
) -> Callable[[bytes, str], pd.DataFrame]:
    import pandas as pd

    if format not in FORMATS or not (location.is_local or location.is_s3):
        raise SourceError(
            str(location), f"pandas reads {', '.join(FORMATS)} from S3 or a directory, not {format!r} from here."
        )
    if format == "parquet":
        return lambda body, key: pd.read_parquet(BytesIO(body), **{"dtype_backend": "numpy_nullable", **options})
    reader: Any = pd.read_csv
    if format == "json":
        reader, options = pd.read_json, {"lines": True} | options

    def parse(body: bytes, key: str) -> pd.DataFrame:
        given = {"compression": PACKED.get(suffix(key))} | options
        frame = _records(body, given) if exact else None
        if frame is None:
            frame = reader(BytesIO(body), **({"dtype_backend": "numpy_nullable"} | given))
        return frame

    return parse


def _records(body: bytes, options: Mapping[str, Any]) -> pd.DataFrame | None:
    """Read a list of JSON records without a detour over floats; None if the JSON is no list."""
    import pandas as pd

    plain = {"typ": "series", "dtype": False, "convert_axes": False, "precise_float": True}
    records: Any = pd.read_json(BytesIO(body), **plain, **options)
    if not isinstance(records.index, pd.RangeIndex):
        return None
    if not all(isinstance(record, dict) for record in records):
        raise ValueError("no record")
    return pd.DataFrame(list(records), dtype=object)


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Give columns of objects the type of their values, where they have one."""
    for name in frame.columns:
        if str(frame[name].dtype) != "object":
            continue
        there = frame[name].dropna()
        kind = KINDS.get(frozenset(map(type, there)))
        if kind == "Int64" and there.max() > LARGEST:
            kind = "UInt64" if there.min() >= 0 else None
        if kind is not None:
            frame[name] = frame[name].astype(kind)
    return frame
