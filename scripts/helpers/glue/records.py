"""Records: the dictionaries that represent rows in a script's functions, and the column types of returned records.

As in Glue, a field without a value is absent: ``record["x"]`` and ``record.x`` raise KeyError, and ``record.get("x")``
is None. Spark does not distinguish NULL from a missing field, so both are absent here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import DataFrame, F, SparkSession, T
from scripts.helpers.glue.paths import glue_option_error
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.schemas.kinds import Kind, common
from scripts.helpers.schemas.spark_frames import columns_of_schema, struct_of
from scripts.helpers.spark.jvm import rdd_of

if TYPE_CHECKING:
    from pyspark import RDD

logger = logging.getLogger(__name__)

BITS = {"byte": 7, "short": 15, "integer": 31, "long": 63}
"""Bits of Spark's whole numbers by type, without the sign bit."""
MAX_DIGITS = 38
"""The most digits that a decimal of Spark has."""
MIXED, TOO_LARGE = "mixed", "too large"
"""Markers used in place of a type: the values have several types, or no type of Spark is large enough for one."""
NO_FIELDS: Kind = {"type": "struct", "fields": []}
_FIELD: Any = {"nullable": True, "metadata": {}}
_PARTS = {"elementType", "keyType", "valueType"}
_NAMES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "boolean"), (float, "double"), (str, "string"), ((bytes, bytearray), "binary"), (datetime, "timestamp"),
    (date, "date"),
)  # fmt: skip


class DynamicRecord(dict[str, Any]):
    """A row, or a struct in a row: a dictionary whose items are also attributes."""

    def __getattr__(self, name: str) -> Any:
        # Python looks for names such as `__deepcopy__` to copy a record, and expects AttributeError, not KeyError.
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def record_of(row: Any, schema: T.StructType) -> DynamicRecord:
    """Return a row of Spark as a record."""
    found = DynamicRecord()
    for value, part in zip(row, schema.fields, strict=True):
        if value is not None:
            found[part.name] = _plain(value, part.dataType)
    return found


def kept(df: DataFrame, f: Callable[[DynamicRecord], Any]) -> DataFrame:
    """Return the rows for which a function of the record is true; its KeyError, ValueError or TypeError means false.

    Python returns only true or false for each row. Spark then filters the original rows, so values stay exact.
    """
    schema = df.schema
    answer = F.udf(partial(_holds, f, schema), "boolean")
    return df.where(answer(F.struct(*map(SPARK.quote, df.columns))))


def mapped(df: DataFrame, f: Callable[[DynamicRecord], Mapping[str, Any]]) -> DataFrame:
    """Return the records that a function returns for each record, as rows.

    If the values of a field have several types, the column gets the type that holds all of them exactly. If no type
    does, the column becomes text, with a WARNING.

    The function runs twice, as in Glue: once to find the types of its results, and again for the rows.

    Raises
    ------
    InvalidValueError
        The function returned something other than a record, or a value that no type of Spark can hold. If it is raised
        in a Spark worker, it is wrapped in an error of Spark.
    """
    schema = df.schema
    records = rdd_of(df).map(lambda row: _checked(f(record_of(row, schema))))
    return frame_of(df.sparkSession, records, schema)


def frame_of(spark: SparkSession, records: RDD[Mapping[str, Any]], known: T.StructType) -> DataFrame:
    """Return records as rows.

    Parameters
    ----------
    known
        The schema of the original rows. A field keeps the type that it has there if all new values fit into that type.

    Raises
    ------
    InvalidValueError
        A whole number has more than 64 bits; a decimal has more than 38 digits, is infinite or is NaN.
    """
    kind = records.mapPartitions(lambda part: [reduce(_widest, map(_kind, part), NO_FIELDS)]).fold(NO_FIELDS, _widest)
    found = {part["name"]: part["type"] for part in kind["fields"]}
    kinds = {
        name: _with_nulls(kind) if _fits(found[name], kind) else _storable(found[name], name)
        for name, kind in columns_of_schema(known).items()
        if name in found
    }
    schema = struct_of(kinds | {name: _storable(kind, name) for name, kind in found.items() if name not in kinds})
    return spark.createDataFrame(records.map(lambda record: _row(record, schema)), schema, verifySchema=False)


# --- types of values -------------------------------------------------------------------------------


def _kind(value: Any) -> Kind:
    """Return the smallest type that holds a value."""
    if value is None:
        return "void"
    if isinstance(value, Mapping):
        kinds = [_kind(part) for part in value.values()]
        if all(isinstance(name, str) for name in value):
            fields = zip(value, kinds, strict=True)
            return NO_FIELDS | {"fields": [{"name": name, "type": kind, **_FIELD} for name, kind in fields]}
        parts = {"keyType": reduce(_widest, map(_kind, value)), "valueType": reduce(_widest, kinds)}
        return {"type": "map", **parts, "valueContainsNull": True}
    if isinstance(value, list | tuple):
        return {"type": "array", "elementType": reduce(_widest, map(_kind, value), "void"), "containsNull": True}
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise glue_option_error("f", f"returned a record with the decimal {value}. Use a float, or None.")
        _, digits, exponent = value.as_tuple()
        places = max(-int(exponent), 0)
        precision = max(len(digits) + int(exponent), 0) + places
        return f"decimal({max(precision, 1)},{places})" if precision <= MAX_DIGITS else TOO_LARGE
    # The order of the types matters: True is also an int, and a datetime is also a date.
    for of_python, name in _NAMES:
        if isinstance(value, of_python):
            return name
    if isinstance(value, int):
        return next((name for name, bits in BITS.items() if -(2**bits) <= value < 2**bits), TOO_LARGE)
    raise glue_option_error("f", f"returned a record with a {type(value).__name__}, a type that Spark does not have.")


def _widest(one: Kind, other: Kind) -> Kind:
    """Return the smallest type that holds the values of both, also inside structs, lists and maps; `MIXED` if none."""
    if one == other:
        return one
    for kind in (TOO_LARGE, MIXED):
        if kind in (one, other):
            return kind
    if not (isinstance(one, Mapping) and isinstance(other, Mapping) and one["type"] == other["type"]):
        return common(one, other) or MIXED
    if one["type"] != "struct":
        return {part: _widest(kind, other[part]) if part in _PARTS else kind for part, kind in one.items()}
    kinds = {part["name"]: part["type"] for part in one["fields"]}
    for part in other["fields"]:
        kinds[part["name"]] = _widest(kinds.get(part["name"], "void"), part["type"])
    return NO_FIELDS | {"fields": [{"name": name, "type": kind, **_FIELD} for name, kind in kinds.items()]}


def _fits(kind: Kind, known: Kind) -> bool:
    """Return whether the type `known` can hold all values of the type `kind`."""
    if not (isinstance(kind, Mapping) and isinstance(known, Mapping)):
        return kind == "timestamp" if known == "timestamp_ntz" else bool(common(known, kind) == known)
    if kind["type"] == "struct" and known["type"] == "map":
        fits_key = known["keyType"] == "string" or not kind["fields"]
        return fits_key and all(_fits(part["type"], known["valueType"]) for part in kind["fields"])
    if kind["type"] != known["type"]:
        return False
    if kind["type"] == "struct":
        kinds = {part["name"]: part["type"] for part in known["fields"]}
        return all(part["name"] in kinds and _fits(part["type"], kinds[part["name"]]) for part in kind["fields"])
    return all(_fits(kind[part], known[part]) for part in _PARTS & kind.keys())


def _with_nulls(kind: Kind) -> Kind:
    """Return the type with all its parts nullable, because a function may leave out a field that was never NULL."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        fields = [{"name": part["name"], "type": _with_nulls(part["type"]), **_FIELD} for part in kind["fields"]]
        return NO_FIELDS | {"fields": fields}
    parts = {part: _with_nulls(kind[part]) for part in _PARTS & kind.keys()}
    return {**kind, **parts, "valueContainsNull" if kind["type"] == "map" else "containsNull": True}


def _storable(kind: Kind, name: str) -> Kind:
    """Return the type of the column for values of a type: string for mixed types or NULL, integer for byte or short."""
    if kind == TOO_LARGE:
        raise glue_option_error(
            name, f"has a number beyond 64 bits, or of more than {MAX_DIGITS} digits. Make it a text, or round it."
        )
    if kind == MIXED:
        logger.warning("event=mixed_types field=%s: its values have several types, so they become strings", name)
        return "string"
    if isinstance(kind, str):
        # A column of NULLs becomes text: it accepts any later value, and files have no NULL type.
        return {"void": "string", "byte": "integer", "short": "integer"}.get(kind, kind)
    if kind["type"] != "struct":
        return {part: _storable(inner, name) if part in _PARTS else inner for part, inner in kind.items()}
    fields = [part | {"type": _storable(part["type"], f"{name}.{part['name']}")} for part in kind["fields"]]
    return NO_FIELDS | {"fields": fields}


def _checked(record: Any) -> dict[str, Any]:
    if not isinstance(record, Mapping):
        raise glue_option_error("f", f"returned {type(record).__name__}. Return the record, changed.")
    return dict(record)


def _holds(f: Callable[[DynamicRecord], Any], schema: T.StructType, row: Any) -> bool:
    try:
        return bool(f(record_of(row, schema)))
    except (KeyError, ValueError, TypeError):
        return False


def _plain(value: Any, kind: T.DataType) -> Any:
    if value is None:
        return None
    if isinstance(kind, T.StructType):
        return record_of(value, kind)
    if isinstance(kind, T.ArrayType):
        return [_plain(each, kind.elementType) for each in value]
    if isinstance(kind, T.MapType):
        return {key: _plain(each, kind.valueType) for key, each in value.items()}
    return value


def _row(record: Mapping[str, Any], schema: T.StructType) -> tuple[Any, ...]:
    return tuple(_spark(record.get(part.name), part.dataType) for part in schema.fields)


def _spark(value: Any, kind: T.DataType) -> Any:
    """Return a value of a record in the Python type that Spark requires for the column."""
    if value is None:
        return None
    if isinstance(kind, T.StructType):
        return _row(value, kind)
    if isinstance(kind, T.ArrayType):
        return [_spark(each, kind.elementType) for each in value]
    if isinstance(kind, T.MapType):
        return {key: _spark(each, kind.valueType) for key, each in value.items()}
    if isinstance(kind, T.DecimalType) and isinstance(value, int):
        return Decimal(value)
    if isinstance(kind, T.FloatType | T.DoubleType) and isinstance(value, int):
        return float(value)
    if isinstance(kind, T.StringType) and not isinstance(value, str):
        # The values have several types: write decimals and dates as their plain text, others as JSON.
        return str(value) if isinstance(value, Decimal | date) else json.dumps(value, default=str)
    if isinstance(value, datetime) and value.tzinfo is None and kind.typeName() == "timestamp":
        # Convert to UTC, as Spark ignores `fold`: it would confuse the two hours when the clocks are set back.
        return value.astimezone(timezone.utc)
    return value
