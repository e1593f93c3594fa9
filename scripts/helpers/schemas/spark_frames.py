"""Give a Spark DataFrame the columns that a `Decision` on its schema allows; unite frames with different columns."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import reduce

from scripts.helpers._lazy import Column, DataFrame, F, T
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.schemas.kinds import Columns, Kind, common, differing_by_case, is_nested, kind_text, known_kind
from scripts.helpers.schemas.policy import Decision

logger = logging.getLogger(__name__)

EXACT_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXXXX", "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}  # fmt: skip
"""Options of CSV and JSON that keep microseconds, and seconds of a zone, which Spark cuts by default."""


def columns_of_schema(schema: T.StructType) -> dict[str, Kind]:
    """Return the columns of a Spark schema; InvalidValueError for an unknown type."""
    return {field.name: known_kind(field.dataType.jsonValue()) for field in schema}


def struct_of(columns: Columns) -> T.StructType:
    """Return columns as a Spark schema in which every column may be NULL.

    Turn JSON into types only here, after a check: for a user-defined type, Spark imports the class that it names.

    Raises
    ------
    InvalidValueError
        A type is unknown, or this version of Spark does not have it.
    """
    fields = []
    for name, kind in columns.items():
        fields.append({"name": name, "type": known_kind(kind), "nullable": True, "metadata": {}})
    try:
        return T.StructType.fromJson({"type": "struct", "fields": fields})
    except Exception as error:  # Each version of Spark raises another error for a type that it does not have.
        raise InvalidValueError("A kept type is one of a later Spark. Use that, or reset the context.") from error


def type_of(kind: Kind) -> T.DataType:
    """Return the Spark type of a kind, a type as in Spark's JSON (see `kinds.Kind`)."""
    return struct_of({"one": kind})["one"].dataType


def fitted(frame: DataFrame, decision: Decision, rescue: str | None = None, beside: Sequence[str] = ()) -> DataFrame:
    """Return rows with the columns that `decision.target` names, and the values of `decision.rescued` columns as JSON.

    Parameters
    ----------
    rescue
        The name of the column for this JSON, without which the rescued values are lost; None for no such column.
    beside
        Columns of the frame that are not from the source; they come last, unchanged.
    """
    there = {field.name.lower(): field for field in frame.schema}
    lost = {name.lower() for name in decision.rescued}
    selected = []
    for name, kind in decision.target.items():
        field = there.get(name.lower())
        if field is None or name.lower() in lost:
            selected.append(F.lit(None).cast(type_of(kind)).alias(name))
        else:
            found = known_kind(field.dataType.jsonValue())
            selected.append(_widened(quoted(field.name), found, kind).alias(name))
    if rescue is not None:
        check_rescue(rescue, decision.target)
        of_source = [quoted(there[name].name).alias(there[name].name) for name in sorted(lost & there.keys())]
        selected.append(json_of_values(of_source).alias(rescue))
    return frame.select(*selected, *map(quoted, beside))


def united(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all frames. A column or nested field that a frame lacks is NULL in its rows.

    A column with several types gets the smallest type that holds all of their values, or text if there is none.
    """
    with_columns = [frame for frame in frames if frame.columns]
    if len(with_columns) < 2:
        return (with_columns or list(frames))[0]
    kinds: dict[str, Kind] = {}
    mixed = set()
    for frame in with_columns:
        for name, kind in columns_of_schema(frame.schema).items():
            both = common(kinds.get(name.lower(), kind), kind)
            kinds[name.lower()] = both or "string"
            if both is None:
                mixed.add(name)
    for name in sorted(mixed):
        logger.warning("event=mixed_types field=%s: its values have several types, so they become strings", name)
    if alike := differing_by_case(kinds):
        raise InvalidValueError(f"Fields {', '.join(alike)} differ only by case. Rename one, or read them apart.")

    def widened(frame: DataFrame) -> DataFrame:
        columns = []
        for name, kind in columns_of_schema(frame.schema).items():
            wanted, value = kinds[name.lower()], quoted(name)
            is_json = is_nested(kind) and wanted == "string"
            columns.append((F.to_json(value, EXACT_TIMES) if is_json else _widened(value, kind, wanted)).alias(name))
        return frame.select(columns)

    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), map(widened, with_columns))


def _widened(value: Column, kind: Kind, wanted: Kind) -> Column:
    """Return a value as a type that holds it. Nested fields are found by name; those that the value lacks are NULL.

    A cast in Spark matches the fields of structs by their position, and so does a union within maps.
    """
    if kind_text(kind) == kind_text(wanted):
        return value
    if not (is_nested(kind) and is_nested(wanted)):
        return value.cast(type_of(wanted))
    if kind["type"] == "array":
        return F.transform(value, lambda each: _widened(each, kind["elementType"], wanted["elementType"]))
    if kind["type"] == "map":
        return F.map_from_entries(F.transform(F.map_entries(value), lambda each: F.struct(
            _widened(each["key"], kind["keyType"], wanted["keyType"]).alias("key"),
            _widened(each["value"], kind["valueType"], wanted["valueType"]).alias("value"),
        )))  # fmt: skip
    kinds = {field["name"]: field["type"] for field in kind["fields"]}
    fields = []
    for name, inner in ((field["name"], field["type"]) for field in wanted["fields"]):
        absent = F.lit(None).cast(type_of(inner))
        found = _widened(value.getField(name), kinds[name], inner) if name in kinds else absent
        fields.append(found.alias(name))
    return F.when(value.isNotNull(), F.struct(*fields))


def json_of_values(values: list[Column]) -> Column:
    """Return named columns as one JSON text, such as ``{"a":1}``, without NULL values; NULL if all values are NULL."""
    if not values:
        return F.lit(None).cast("string")
    text = F.to_json(F.struct(*values), {"ignoreNullFields": "true", **EXACT_TIMES})
    return F.when(text != "{}", text)


def check_rescue(name: str, columns: Columns) -> None:
    """Raise InvalidValueError if a rescue column would hide a column of the source."""
    if name.lower() in (column.lower() for column in columns):
        raise InvalidValueError(f"rescue is {name!r}, and the source has a column of that name. Give it another name.")


def quoted(name: str) -> Column:
    """Return a column by its exact name, which may contain dots."""
    return F.col(in_backticks(name))


def in_backticks(name: str) -> str:
    """Return a column's name in backticks, so that Spark takes it literally."""
    return "`" + name.replace("`", "``") + "`"
