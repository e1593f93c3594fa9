"""Give a Spark DataFrame the columns that a `Decision` allows."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.helpers._lazy import Column, DataFrame, F, T
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.schemas.kinds import Columns, Kind, is_nested, known_kind
from scripts.helpers.schemas.policy import Decision


def columns_of_schema(schema: T.StructType) -> dict[str, Kind]:
    """Return the columns of a Spark schema; InvalidValueError for an unknown type."""
    return {field.name: known_kind(field.dataType.jsonValue()) for field in schema}


def struct_of(columns: Columns) -> T.StructType:
    """Return columns as a Spark schema in which every column may be NULL.

    Make types from JSON only here, where they are checked: Spark would import the class in a user-defined type.

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
    except Exception as error:  # Catch any error: for a type of a later Spark, versions of Spark raise different ones.
        raise InvalidValueError("A kept type is one of a later Spark. Use that, or reset the context.") from error


def type_of(kind: Kind) -> T.DataType:
    """Return the Spark type of a kind."""
    return struct_of({"one": kind})["one"].dataType


def fitted(frame: DataFrame, decision: Decision, rescue: str | None = None, beside: Sequence[str] = ()) -> DataFrame:
    """Return rows with the columns of a decision, and with its rescued values as JSON in the column `rescue`.

    Parameters
    ----------
    rescue
        The name of the rescue column; None: the rows get none.
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
        elif is_nested(kind) or known_kind(field.dataType.jsonValue()) == kind:
            # Do not cast structs: a cast matches their fields by order, not by name.
            selected.append(quoted(field.name).alias(name))
        else:
            selected.append(quoted(field.name).cast(type_of(kind)).alias(name))
    if rescue is not None:
        check_rescue(rescue, decision.target)
        of_source = [quoted(there[name].name).alias(there[name].name) for name in sorted(lost & there.keys())]
        selected.append(json_of_values(of_source).alias(rescue))
    return frame.select(*selected, *map(quoted, beside))


def json_of_values(values: list[Column]) -> Column:
    """Return named columns as one JSON text, such as ``{"a":1}``, without NULL values; NULL if all values are NULL."""
    if not values:
        return F.lit(None).cast("string")
    text = F.to_json(F.struct(*values), {"ignoreNullFields": "true"})
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
