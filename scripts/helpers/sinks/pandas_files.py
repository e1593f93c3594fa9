"""Write a DataFrame of pandas as one Parquet file of a batch."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from scripts.helpers.errors import InvalidValueError, SourceError
from scripts.helpers.listing.listing import Location
from scripts.helpers.listing.s3 import make_client

if TYPE_CHECKING:
    import pandas as pd
    from mypy_boto3_s3 import S3Client

NAME = "part-00000.parquet"


def write_pandas(
    frame: pd.DataFrame, folder: str, format: str, s3_client: S3Client | None, options: Mapping[str, Any]
) -> int:
    """Write rows to the one file of a folder and return its size in bytes. Again, it is replaced as a whole.

    Whatever else lies below the folder is deleted first: parts that a dead attempt left there, of Spark
    too. Rows without columns, as `read_pandas` returns where nothing is new, make no file.

    The index is not written. Times are written in microseconds, which all versions of Spark read;
    nanoseconds are cut off.

    Parameters
    ----------
    folder
        ``s3://bucket/prefix`` or a local directory: that of this batch, and of nothing else.
    options
        Of `pandas.DataFrame.to_parquet`, such as `compression`.

    Raises
    ------
    InvalidValueError
        Another format than Parquet.
    SourceError
        The file cannot be written there, or others cannot be deleted.
    """
    location = Location.parse(f"{folder}/")
    if format.lower() != "parquet":
        raise InvalidValueError(f"pandas writes format='parquet' here, not {format!r}. Make it a DataFrame of Spark.")
    if not location.is_local and not location.is_s3:
        raise SourceError(folder, "pandas is written to S3 or a local directory. Use s3://bucket/prefix/.")
    packed = BytesIO()
    given = {"index": False, "coerce_timestamps": "us", "allow_truncated_timestamps": True}
    if len(frame.columns):
        frame.to_parquet(packed, engine="pyarrow", **(given | dict(options)))
    size = packed.tell()
    packed.seek(0)
    kept = NAME if size else ""
    # Cleared before the write: a run that dies in between leaves too little, which its next attempt writes again.
    # The other way round, parts of a dead attempt could stay beside the new file, and their rows would count twice.
    try:
        if location.is_local:
            _clear_local(location, kept)
            if size:
                _write_local(location, packed.getbuffer())
        else:
            client = s3_client or make_client(8)
            _clear_s3(client, location, kept)
            if size:
                client.upload_fileobj(packed, location.bucket, location.prefix + NAME)
    except (ClientError, BotoCoreError, OSError) as error:
        reason = error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
        raise SourceError(folder, f"it cannot be written to ({reason}). Check its rights.") from error
    return size


def _clear_local(location: Location, kept: str) -> None:
    """Delete what lies in a directory, but for one file that is about to be replaced."""
    if not os.path.isdir(location.prefix):
        return
    with os.scandir(location.prefix) as found:
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif entry.name != kept:
                os.remove(entry.path)


def _clear_s3(client: S3Client, location: Location, kept: str) -> None:
    """Delete what lies below a prefix, but for one object that is about to be replaced."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=location.bucket, Prefix=location.prefix)
    for page in pages:
        keys = [found["Key"] for found in page.get("Contents", []) if found["Key"] != location.prefix + kept]
        # A page has at most 1,000 keys, and so may a request to delete.
        if keys:
            answer = client.delete_objects(
                Bucket=location.bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True}
            )
            # S3 answers 200 also where it refused to delete some of the keys.
            for refused in answer.get("Errors", []):
                raise ClientError({"Error": {"Code": refused.get("Code", "Unknown")}}, "DeleteObjects")


def _write_local(location: Location, packed: memoryview) -> None:
    os.makedirs(location.prefix, exist_ok=True)
    # Readers see the old file or the whole new one; Spark passes over names that begin with a dot.
    part = f"{location.prefix}.{NAME}"
    with open(part, "wb") as file:
        file.write(packed)
        file.flush()
        # Else a power cut after the rename may leave an empty file under the final name.
        os.fsync(file.fileno())
    os.replace(part, location.prefix + NAME)
