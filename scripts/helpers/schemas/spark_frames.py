"""A DataFrame of Spark with the columns that were decided on."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.helpers._lazy import Column, DataFrame, F, T
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.schemas.kinds import Columns, Kind, is_nested, known_kind
from scripts.helpers.schemas.policy import Decision


def columns_of_schema(schema: T.StructType) -> dict[str, Kind]:
    """Return the columns of a schema of Spark; InvalidValueError for a type that is not known."""
    return {field.name: known_kind(field.dataType.jsonValue()) for field in schema}


def struct_of(columns: Columns) -> T.StructType:
    """Return columns as a schema of Spark, all of which may be NULL.

    Nothing else makes types of JSON: Spark imports, and may unpickle, what a type names that was not checked.

    Raises
    ------
    InvalidValueError
        A type is not known, or not to this version of Spark.
    """
    fields = []
    for name, kind in columns.items():
        fields.append({"name": name, "type": known_kind(kind), "nullable": True, "metadata": {}})
    try:
        return T.StructType.fromJson({"type": "struct", "fields": fields})
    except Exception as error:  # Another one in each version, of a type that only later versions have.
        raise InvalidValueError("A kept type is one of a later Spark. Use that, or reset the context.") from error


def type_of(kind: Kind) -> T.DataType:
    """Return a type of Spark."""
    return struct_of({"one": kind})["one"].dataType


def fitted(frame: DataFrame, decision: Decision, rescue: str | None = None, beside: Sequence[str] = ()) -> DataFrame:
    """Return rows with the columns of a decision, and what is left out as JSON in a column of its own.

    Parameters
    ----------
    rescue
        Name of that column; None for none.
    beside
        Columns of the frame that are not the source's, and come last as they are.
    """
    there = {field.name.lower(): field for field in frame.schema}
    lost = {name.lower() for name in decision.rescued}
    selected = []
    for name, kind in decision.target.items():
        field = there.get(name.lower())
        if field is None or name.lower() in lost:
            selected.append(F.lit(None).cast(type_of(kind)).alias(name))
        elif is_nested(kind) or known_kind(field.dataType.jsonValue()) == kind:
            # Structs stay as they are: a cast would go by the order of their fields.
            selected.append(quoted(field.name).alias(name))
        else:
            selected.append(quoted(field.name).cast(type_of(kind)).alias(name))
    if rescue is not None:
        check_rescue(rescue, decision.target)
        of_source = [quoted(there[name].name).alias(there[name].name) for name in sorted(lost & there.keys())]
        selected.append(json_of_values(of_source).alias(rescue))
    return frame.select(*selected, *map(quoted, beside))


def json_of_values(values: list[Column]) -> Column:
    """Return named values as a text of JSON; NULL where they are all NULL, and without those that are."""
    if not values:
        return F.lit(None).cast("string")
    text = F.to_json(F.struct(*values), {"ignoreNullFields": "true"})
    return F.when(text != "{}", text)


def check_rescue(name: str, columns: Columns) -> None:
    """Raise InvalidValueError if a rescue column would hide a column of the source."""
    if name.lower() in (column.lower() for column in columns):
        raise InvalidValueError(f"rescue is {name!r}, and the source has a column of that name. Give it another name.")


def quoted(name: str) -> Column:
    """Return a column by its name as it is, also with dots in it."""
    return F.col(in_backticks(name))


def in_backticks(name: str) -> str:
    """Write the name of a column for Spark, as it is."""
    return "`" + name.replace("`", "``") + "`"
