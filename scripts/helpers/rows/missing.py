"""Find deleted rows: keys that a target still has and its source has no longer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scripts.helpers._lazy import DataFrame, T
from scripts.helpers.errors import KeyColumnError
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.spark_frames import DataFrameRows

UNORDERED = ("map", "variant")
"""Types whose values cannot be compared, nor those of what they are part of."""


def missing_keys(source: DataFrame | Any, target: DataFrame | Any, keys: str | Sequence[str]) -> DataFrame:
    """Return the keys that are in the target and not in the source any more, each once.

    A cursor never sees a delete: the row is gone, and no `last_modified` says so. Run this from time
    to time, say each night, beside the job that reads what is new, and mark or delete what it finds.
    It reads the key columns of both sides whole and nothing else. NULL equals NULL.

    The target's keys are read at once and kept on the executors' disks (`localCheckpoint`), the
    source's when the result is read: a row that comes in between is no false find. Lose an executor
    meanwhile, and the read of the result fails. A target that keeps several versions of a row, or
    marks the deleted ones, should be filtered first.

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
    # At once, before the source is read: a row that is inserted into both in between is then in neither result.
    # The other way round, it would be a key that the target has and the source has not, and look deleted.
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
    """Tell whether values of a type, and of all it is made of, can be compared."""
    parts = [field.dataType for field in getattr(kind, "fields", ())]
    element = getattr(kind, "elementType", None)
    if element is not None:
        parts.append(element)
    return kind.typeName() not in UNORDERED and all(map(_is_comparable, parts))
