"""Find deleted rows: keys that a target still has but its source no longer has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scripts.helpers._lazy import DataFrame, T
from scripts.helpers.errors import KeyColumnError
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.spark_frames import DataFrameRows

UNORDERED = ("map", "variant")
"""Types that cannot be compared, alone or within another type."""


def missing_keys(source: DataFrame | Any, target: DataFrame | Any, keys: str | Sequence[str]) -> DataFrame:
    """Return the keys that are in the target but no longer in the source, each once.

    A cursor does not see deletes: the row is gone, and no `last_modified` shows it. Run this
    regularly, for example each night, in addition to the job that reads new rows, and mark or delete
    the rows it finds. It reads only the key columns, but all rows of both sides. NULL equals NULL.

    This call reads the target's keys and stores them on the executors' disks (`localCheckpoint`).
    Spark reads the source's keys later, with the result, so that a row inserted in between does not
    look deleted. If an executor is lost meanwhile, reading the result fails. If the target stores
    several versions of a row, or marks deleted rows, filter it first.

    Parameters
    ----------
    source, target
        DataFrames, or Glue's DynamicFrames.
    keys
        The columns that identify a row, with the same types on both sides.

    Raises
    ------
    KeyColumnError
        No key is given; or a key is missing, ambiguous, of a type without equality, or of different types.
    """
    names = [keys] if isinstance(keys, str) else list(keys)
    if not names:
        raise KeyColumnError("", "no key is given. Name the columns that identify a row.")
    gone, there = DataFrameRows(target).df, DataFrameRows(source).df
    for name in names:
        before, now = _type_of(gone, name, "target"), _type_of(there, name, "source")
        if before.simpleString() != now.simpleString():
            raise KeyColumnError(
                name,
                f"it is a {before.simpleString()} in the target and a {now.simpleString()} in the source. Cast one of "
                "them.",
            )
        if not _is_comparable(now):
            raise KeyColumnError(name, f"a {now.simpleString()} cannot be compared. Choose another key.")
    columns = [SPARK.quote(name) for name in names]
    # Read the target now, before the source. In the other order, a row that is inserted into both in between would be
    # among the target's keys but not among the source's, and would look deleted.
    kept = gone.select(*columns).distinct().localCheckpoint(eager=True)
    return kept.subtract(there.select(*columns))


def _type_of(df: DataFrame, name: str, side: str) -> T.DataType:
    exact = df.sparkSession.conf.get("spark.sql.caseSensitive", "false") == "true"
    is_alike = [other == name or (not exact and other.lower() == name.lower()) for other in df.columns]
    found = [field for field, alike in zip(df.schema, is_alike, strict=True) if alike]
    if len(found) != 1:
        raise KeyColumnError(name, f"the {side} has {len(found) or 'no'} such column. It has: {', '.join(df.columns)}.")
    return found[0].dataType


def _is_comparable(kind: T.DataType) -> bool:
    """Return whether the values of a type, and of all types within it, can be compared."""
    parts = [field.dataType for field in getattr(kind, "fields", ())]
    element = getattr(kind, "elementType", None)
    if element is not None:
        parts.append(element)
    return kind.typeName() not in UNORDERED and all(map(_is_comparable, parts))
