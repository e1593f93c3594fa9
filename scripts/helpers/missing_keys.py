"""Find deleted rows: keys that a target still has and its source has no longer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scripts.helpers.dataframe_rows import DataFrameRows
from scripts.helpers.errors import KeyColumnError
from scripts.helpers.sql_dialects import SPARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

UNORDERED = ("map", "variant")
"""Types whose values cannot be compared."""


def missing_keys(source: DataFrame | Any, target: DataFrame | Any, keys: str | Sequence[str]) -> DataFrame:
    """Return the keys that are in the target and not in the source any more, each once.

    A cursor never sees a delete: the row is gone, and no `last_modified` says so. Run this from time
    to time, say each night, beside the job that reads what is new, and mark or delete what it finds.
    It reads the key columns of both sides whole and nothing else. NULL equals NULL.

    Read the source after the target: a row that came in between is then no false find. A target
    that keeps several versions of a row, or marks the deleted ones, should be filtered first.

    Parameters
    ----------
    source, target
        DataFrames, or Glue's DynamicFrames.
    keys
        The columns that name a row, with the same types on both sides.

    Raises
    ------
    KeyColumnError
        No key is given, one is missing, ambiguous or of a type without equality, or the types differ.
    """
    names = [keys] if isinstance(keys, str) else list(keys)
    if not names:
        raise KeyColumnError("", "no key is given. Name the columns that tell rows apart.")
    gone, there = DataFrameRows(target).df, DataFrameRows(source).df
    for name in names:
        before, now = _type_of(gone, name, "target"), _type_of(there, name, "source")
        if before != now:
            raise KeyColumnError(name, f"it is a {before} in the target and a {now} in the source. Cast one of them.")
        if any(kind in now for kind in UNORDERED):
            raise KeyColumnError(name, f"a {now} cannot be compared. Choose another key.")
    columns = [SPARK.quote(name) for name in names]
    return gone.select(*columns).subtract(there.select(*columns))


def _type_of(df: DataFrame, name: str, side: str) -> str:
    found = [other for other in df.columns if other == name] or [c for c in df.columns if c.lower() == name.lower()]
    if len(found) != 1:
        raise KeyColumnError(name, f"the {side} has {len(found) or 'no'} such column. It has: {', '.join(df.columns)}.")
    kind: str = df.schema[found[0]].dataType.simpleString()
    return kind
