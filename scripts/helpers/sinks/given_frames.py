"""Convert the frames that a script writes: pandas to a table of pyarrow, and for a merge mark the deletes.

Sinks get only rows of Spark or Arrow. So what only pandas has is converted or refused here: an index, labels that are
not texts, NaN besides None, and object columns.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from scripts.helpers._lazy import DataFrame, F, pd
from scripts.helpers.errors import InvalidValueError, KeyColumnError, MissingConnectorError
from scripts.helpers.rows.arrow_streams import ArrowStream
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.memory import is_arrow, is_pandas, kind_of_object, values_within
from scripts.helpers.rows.sql import internal
from scripts.helpers.sinks.merging import DELETED, Merge
from scripts.helpers.sinks.staged_rows import columns_of, spark_of


def given_rows(df: Any, target: str) -> Any:
    """Return the rows that a script writes to a target: a pandas frame as an Arrow table, any other frame unchanged.

    For pandas, column labels become texts, and NaN, NaT and None become NULL. An object column gets the type that all
    its values have, or that holds all its numbers, and a categorical column becomes a dictionary. The index is left
    out.

    Raises
    ------
    InvalidValueError
        The argument is no frame. Or the frame has two columns of one name, a named index, values of different types in
        one column, objects with nanoseconds, or the value Decimal("NaN"), which pandas treats as a missing value.
    """
    if not (is_pandas(df) or is_arrow(df) or isinstance(df, ArrowStream) or spark_of(df) is not None):
        raise InvalidValueError(
            f"The rows for {target!r} are a {type(df).__name__}, not a DataFrame of Spark or pandas, or a table of "
            "pyarrow."
        )
    if getattr(df, "isStreaming", False):
        raise InvalidValueError(
            f"The rows for {target!r} are a streaming DataFrame, whose rows never end. Give those of spark.read."
        )
    columns = columns_of(df)
    twice = [name for name in columns if columns.count(name) > 1]
    if twice:
        raise InvalidValueError(
            f"Target {target!r}: the rows have {columns.count(twice[0])} columns {twice[0]!r}. Rename one of them."
        )
    return _arrow_of(df, target) if is_pandas(df) else df


def _arrow_of(df: pd.DataFrame, target: str) -> Any:
    named = [name for name in df.index.names if name is not None]
    if named:
        raise InvalidValueError(
            f"The rows for {target!r} have an index named {named[0]!r}, and an index is not written. Call "
            "df.reset_index() first, or df.reset_index(drop=True) to leave it out."
        )
    for name, column in df.items():
        values = column.cat.categories if column.dtype == "category" else column
        if values.dtype == "object":
            _check_objects(name, values)
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingConnectorError("parquet", "Install it: pip install pyarrow.") from error
    try:
        return pa.Table.from_pandas(df, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        # Show only the last part of pyarrow's error, which names the column. Another part shows a value of the rows.
        shown = "a number is too large" if isinstance(error, OverflowError) else str(error.args[-1]).rstrip(".")
        raise InvalidValueError(f"Rows for {target!r} have no one type for each column: {shown}. Give one.") from None


def _check_objects(name: Any, values: Any) -> None:
    """Raise InvalidValueError if pyarrow would change some of a column's objects without an error."""
    kinds: dict[str, set[str]] = {}
    for path, value in values_within(values):
        kinds.setdefault(path, set()).add(kind_of_object(value))
        if isinstance(value, Decimal) and value.is_nan():
            raise InvalidValueError(f"Column {name!r} has Decimal('NaN'), which would become NULL. Replace it.")
        if getattr(value, "nanosecond", 0):
            raise InvalidValueError(f"Column {name!r} has times with nanoseconds. Round them first.")
    for path, found in kinds.items():
        # Accept numbers of several types: pyarrow converts them without changing a value, or raises an error.
        if len(found) > 1 and not found <= {"int", "float", "Decimal"}:
            raise InvalidValueError(
                f"Column {f'{name}{path}'!r} has values of several types: {', '.join(sorted(found))}. Give it one type."
            )


def events_of(df: DataFrame | pd.DataFrame, merge: Merge, deletes: Any = None, missing: Any = None) -> Any:
    """Return rows with a column `DELETED` that is true for deletes.

    Parameters
    ----------
    df
        The rows.
    deletes
        Which rows are deletes: for Spark a condition in SQL or a Column, for pandas the name of a column or a function
        that returns a Series. If the condition is NULL for a row, the row is no delete. None: no row is a delete.
    missing
        A frame with the columns of the keys and of `sequence_by`. Each row deletes a key that the source lacks.

    Raises
    ------
    KeyColumnError
        The rows, or `missing`, lack a column of the keys or of `sequence_by`.
    InvalidValueError
        A column has a name that this package reserves, or `deletes` or `missing` is not of the same kind as `df`.
    """
    if not is_pandas(df) and not hasattr(df, "sparkSession"):
        raise InvalidValueError(f"The rows are a {type(df).__name__}. Give a DataFrame of Spark or pandas to a merge.")
    # Return a frame without columns unchanged: it means that the source had nothing new.
    if not len(df.columns) and missing is None:
        return df
    check_names(df)
    _check_columns(df, merge, "the rows")
    if missing is not None:
        if is_pandas(df) != is_pandas(missing):
            raise InvalidValueError("missing is a frame of another kind than the rows. Give both of one kind.")
        _check_columns(missing, merge, "missing")
    marked = _marked_in_pandas if is_pandas(df) else _marked_in_spark
    return marked(df, [*merge.keys, *merge.sequence_by], deletes, missing)


def check_names(df: Any, *, is_marked: bool = False) -> None:
    """Raise InvalidValueError if a column of the user has a name that this package reserves.

    Sinks use columns with such names to mark deletes and to number rows, and do not write them to the target. With
    `is_marked`, the column `DELETED` is allowed, because the package has added it already.
    """
    for name in map(str.lower, columns_of(df)):
        if name.startswith(internal("")) and not (is_marked and name == DELETED):
            raise InvalidValueError(reason="reserved_name", name=name, reserved=[internal("") + "…"])


def _check_columns(df: Any, merge: Merge, whose: str) -> None:
    columns = list(df.columns)
    for name in (*merge.keys, *merge.sequence_by):
        if columns.count(name) != 1:
            raise KeyColumnError(
                name, f"{whose} have {columns.count(name) or 'no'} such column. They have: {', '.join(columns)}."
            )


def _marked_in_spark(df: DataFrame, named: list[str], deletes: Any, missing: DataFrame | None) -> DataFrame:
    if callable(deletes):
        raise InvalidValueError("deletes is a function, which is for frames of pandas. Give a condition in SQL.")
    condition = F.expr(deletes) if isinstance(deletes, str) else deletes
    if condition is not None:
        _check_condition(df.select(condition).schema[0].dataType.simpleString())
    is_deleted = F.lit(False) if condition is None else F.coalesce(condition.cast("boolean"), F.lit(False))
    events = df.withColumn(DELETED, is_deleted)
    if missing is None:
        return events
    gone = missing.select(*map(SPARK.quote, named)).withColumn(DELETED, F.lit(True))
    return events.unionByName(gone, allowMissingColumns=True)


def _marked_in_pandas(
    df: pd.DataFrame,
    named: list[str],
    deletes: str | Callable[[pd.DataFrame], Any] | None,
    missing: pd.DataFrame | None,
) -> pd.DataFrame:
    if deletes is None:
        found: Any = False
    elif callable(deletes):
        found = deletes(df)
    elif deletes in df.columns:
        found = df[deletes]
    else:
        raise InvalidValueError(
            f"deletes={deletes!r} is not a column of the rows. For pandas name one that is true for deletes, or give a "
            "function: deletes=lambda rows: rows.status == 'deleted'."
        )
    if isinstance(found, pd.Series) and not found.index.equals(df.index):
        # Refuse a Series with another index: pandas would look up its values by the index of the rows, and find none.
        raise InvalidValueError(
            "deletes returns a Series with another index than that of the rows. Compute it from the rows, or return "
            "an array."
        )
    if deletes is not None:
        flags = pd.Series(found, index=df.index)
        kind = pd.api.types.infer_dtype(flags, skipna=True)
        # Accept a Series with only NULLs, which has no type and deletes nothing.
        _check_condition("boolean" if kind == "empty" or flags.isna().all() else kind)
        found = flags.astype("boolean").fillna(False).astype(bool)
    events = df.assign(**{DELETED: found})
    if missing is None:
        return events
    gone = missing[named].assign(**{DELETED: True})
    # Concatenate as objects: in columns that `gone` (the deletes) lacks, pandas would make floats of whole numbers. Do
    # not convert pyarrow types in these columns: as objects, their lists become NumPy arrays with NaN for NULL.
    held = {name: kind for name, kind in events.dtypes.items() if isinstance(kind, pd.ArrowDtype) and name not in named}
    objects = {name: "object" for name in events.columns if name not in held}
    wide = gone.reindex(columns=events.columns).astype("object").astype(held)
    return pd.concat([events.astype(objects), wide], ignore_index=True).pipe(_typed, events)


def _check_condition(kind: str) -> None:
    """Raise InvalidValueError unless a condition is boolean: Spark may cast a text to NULL, and so delete no row."""
    if kind not in ("boolean", "void"):
        raise InvalidValueError(
            f"deletes is of type {kind}, and must be a condition. Compare it with a value: for Spark "
            "deletes=\"status = 'gone'\", for pandas deletes=lambda rows: rows.status == 'gone'."
        )


def _typed(frame: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """Return `frame` with the column types of `like`, but nullable types of pandas for whole numbers and booleans."""
    kinds: dict[Any, Any] = {}
    for name, kind in like.dtypes.items():
        if isinstance(kind, pd.CategoricalDtype):
            continue  # Restore no categorical type: its categories may lack the keys of the appended deletes.
        is_whole = pd.api.types.is_integer_dtype(kind) and not pd.api.types.is_extension_array_dtype(kind)
        kinds[name] = str(kind).replace("i", "I", 1).replace("uI", "UI") if is_whole else kind
        if str(kind) == "bool":
            kinds[name] = "boolean"
    return frame.astype(kinds | {DELETED: "bool"})
