"""Arguments of the three bookmark options, the type of the function that writes files, and a file of one row."""

from __future__ import annotations

import io
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

ENABLE, PAUSE, DISABLE = ({"job_bookmark_option": f"job-bookmark-{name}"} for name in ("enable", "pause", "disable"))
Put = Callable[..., None]


def row_of_parquet(name: str) -> bytes:
    """Return a Parquet file of one row, with a name as its ``id``."""
    file = io.BytesIO()
    pq.write_table(pa.table({"id": [name]}), file)
    return file.getvalue()
