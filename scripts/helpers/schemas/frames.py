"""Return the columns of rows of Spark, pandas or pyarrow, and give rows the columns that a `Decision` allows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from scripts.helpers._lazy import pa, pd
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.schemas.kinds import Columns, Kind, decimal_size, kind_of_text
from scripts.helpers.schemas.policy import Decision

ANY = "any"
"""The type of every column of pandas: dtypes depend on the batch, such as float for whole numbers with a NULL."""
_ARROW = {
    "byte": "int8", "short": "int16", "integer": "int32", "long": "int64", "float": "float32", "double": "float64",
    "boolean": "bool_", "string": "string", "date": "date32", "binary": "binary", "null": "null",
}  # fmt: skip
"""Names of the pyarrow functions that make a type, by Spark's name of the type."""
_AS_SHOWN = {
    "int8": "byte", "int16": "short", "int32": "integer", "int64": "long", "float": "float", "double": "double",
    "bool": "boolean", "string": "string", "large_string": "string", "date32[day]": "date", "binary": "binary",
    "large_binary": "binary", "null": "null",
}  # fmt: skip
"""Spark's names of types, by pyarrow's text for them."""
_NESTED = {".": "struct", "[": "array", "{": "map"}
"""The type of a column, by the mark that starts the rest of a path within it; see `kinds.types_by_path`."""
_DECIMAL = re.compile(r"decimal(?:128)?\((\d+), ?(-?\d+)\)")


def engine_of(rows: Any) -> str:
    """Return the engine of rows: "spark", "pandas" or "arrow". A state has a schema for each, as their types differ."""
    if hasattr(rows, "sparkSession"):
        return "spark"
    return "pandas" if hasattr(rows, "dtypes") else "arrow"


def columns_of_rows(rows: Any) -> dict[str, Kind]:
    """Return the columns of some rows; InvalidValueError if a custom source returns rows without a schema."""
    engine = engine_of(rows)
    if engine == "spark":
        from scripts.helpers.schemas.spark_frames import columns_of_schema

        return columns_of_schema(rows.schema)
    if engine == "pandas":
        return {str(name): ANY for name in rows.columns}
    if not hasattr(rows, "schema"):
        raise InvalidValueError(
            f"on_schema_change needs rows of Spark, pandas or pyarrow, and the source returns a {type(rows).__name__}. "
            "Leave it out."
        )
    return {field.name: kind_of_arrow(str(field.type)) for field in rows.schema}


def fitted_rows(rows: Any, decision: Decision) -> Any:
    """Return rows with exactly the columns of `Decision.target`: other columns are dropped, missing ones are NULL."""
    engine = engine_of(rows)
    if engine == "spark":
        from scripts.helpers.schemas.spark_frames import fitted

        return fitted(rows, decision)
    if engine == "pandas":
        return _fitted_pandas(rows, decision.target)
    # Fit each batch of an `ArrowStream`, which has the method `mapped`.
    fit = partial(_fitted_arrow, target=decision.target)
    return rows.mapped(fit) if hasattr(rows, "mapped") else fit(rows)


def _fitted_pandas(frame: pd.DataFrame, target: Columns) -> pd.DataFrame:
    spelled = {name.lower(): name for name in target}
    renamed = frame.rename(columns=lambda name: spelled.get(str(name).lower(), name))
    return renamed.reindex(columns=list(target))


def _fitted_arrow(table: pa.Table, target: Columns) -> pa.Table:
    there = {name.lower(): name for name in table.column_names}
    columns = []
    for name, kind in target.items():
        wanted = arrow_type(kind)
        if name.lower() not in there:
            columns.append(pa.nulls(table.num_rows, wanted or pa.null()))
            continue
        column = table.column(there[name.lower()])
        is_same = wanted is None or kind_of_arrow(str(column.type)) == kind
        columns.append(column if is_same else column.cast(wanted))
    return pa.table(columns, names=list(target))


def kind_of_arrow(shown: str) -> str:
    """Return Spark's name for a type of pyarrow, by its text `shown`; return `shown` if Spark has no such type."""
    decimal = _DECIMAL.fullmatch(shown)
    if decimal is not None:
        return f"decimal({decimal[1]},{decimal[2]})"
    if shown.startswith("timestamp"):
        return "timestamp" if "tz=" in shown else "timestamp_ntz"
    return _AS_SHOWN.get(shown, shown)


def nested_kind(kind: pa.DataType, leaf: Callable[[pa.DataType], Kind]) -> Kind:
    """Return a type of pyarrow in the form of Spark's JSON. `leaf` is called for types that are not nested."""
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [{"name": one.name, "type": nested_kind(one.type, leaf)} for one in kind]}
    if pa.types.is_map(kind):
        parts = {"keyType": kind.key_type, "valueType": kind.item_type}
        return {"type": "map", **{name: nested_kind(part, leaf) for name, part in parts.items()}}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "elementType": nested_kind(kind.value_type, leaf)}
    return leaf(kind)


def arrow_type(kind: Kind) -> pa.DataType | None:
    """Return the pyarrow type of a kind; None if the kind lacks its unit or fields, so that the column is not cast."""
    decimal = decimal_size(str(kind))
    if decimal is not None:
        return pa.decimal128(*decimal)
    made = _ARROW.get(kind_of_text(str(kind)))
    return None if made is None else getattr(pa, made)()


def arrow_type_at(path: str, types: Mapping[str, str]) -> pa.DataType | None:
    """Return the pyarrow type at a path of `kinds.types_by_path`; None if there is no such path or pyarrow type."""
    kind = types.get(path)
    if kind in ("timestamp", "timestamp_ntz"):
        return pa.timestamp("us", "UTC" if kind == "timestamp" else None)
    if kind == "array":
        element = arrow_type_at(f"{path}[]", types)
        return None if element is None else pa.list_(element)
    if kind == "struct":
        start = len(path) + 1
        paths = [each for each in types if each.startswith(f"{path}.") and not _is_deeper(each, start, types)]
        fields = [(each[start:], arrow_type_at(each, types)) for each in paths]
        return None if None in dict(fields).values() else pa.struct(fields)
    return arrow_type(kind)


def _is_deeper(path: str, start: int, types: Mapping[str, str]) -> bool:
    """Return whether `path[start:]` leads into a nested type, rather than being one field's name that has dots."""
    marks = re.compile(r"[.\[{]").finditer(path, start)
    return any(types.get(path[: mark.start()]) == _NESTED[mark[0]] for mark in marks)
