"""Find and change fields of nested rows by Glue's paths, such as ``bay.name`` or `` `bay.name` ``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scripts.helpers._lazy import Column, DataFrame, F, T
from scripts.helpers.errors import NotOffGlueError
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sql import SQL, internal, joined, sql, whole

_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


@dataclass(frozen=True)
class Field:
    """A field of a row, or of a struct in a row.

    Attributes
    ----------
    kind
        The field's type.
    value
        An SQL expression for the value, such as `` `bay`.`name` ``. In an array it begins with a lambda's variable.
    metadata
        The metadata of the field in the schema, a map.
    """

    name: str
    kind: T.DataType
    value: SQL
    metadata: Mapping[str, Any] | None = None

    def inner(self, part: T.StructField) -> Field:
        """Return the field `part` of this field, which must be a struct."""
        return Field(part.name, part.dataType, sql("{}.{}", self.value, SPARK.quote(part.name)), part.metadata)

    def column(self) -> Column:
        """Return the field as a column with its name and metadata."""
        return F.expr(self.value).alias(self.name, metadata=dict(self.metadata or {}))


Change = Callable[[Field], Sequence[Field]]
"""A function that returns the fields to put in place of a field; an empty list drops it."""


def steps_to(path: str, schema: T.StructType) -> tuple[str, ...] | None:
    """Return the names that lead to a field, as the schema spells them; None if the field does not exist.

    A column whose whole name is the path is preferred. Dots lead into structs, arrays of structs and
    maps; in backticks they are part of a name. Case matters only if two names differ by case alone.
    """
    exact = _named(path, schema)
    if exact is not None:
        return (exact,)
    # Drop the ``[]`` that Glue appends to the name of a list.
    path = path.replace("[]", "")
    if "`" not in path:
        return _walk(path.split("."), schema, quoted=False)
    return _walk(parts_of(path), schema, quoted=True)


def field_at(schema: T.StructType, steps: Sequence[str]) -> Field | None:
    """Return the field that the names lead to; None inside an array or a map, where a field has many values."""
    field = top_field(schema[steps[0]])
    for step in steps[1:]:
        if not isinstance(field.kind, T.StructType):
            return None
        field = field.inner(field.kind[step])
    return field


def parts_of(path: str) -> tuple[str, ...]:
    """Split a new field's path into names; a name in backticks may contain dots."""
    return tuple(match[1].replace("``", "`") if match[1] else match[2] for match in _PART.finditer(path))


def expression(steps: Sequence[str]) -> SQL:
    """Return the SQL expression for the field that the names lead to."""
    return joined(".", map(SPARK.quote, steps))


def _walk(parts: Sequence[str], kind: T.DataType, *, quoted: bool) -> tuple[str, ...] | None:
    if not parts:
        return ()
    while isinstance(kind, T.ArrayType):
        kind = kind.elementType
    if isinstance(kind, T.MapType):
        rest = _walk(parts[1:], kind.valueType, quoted=quoted)
        return None if rest is None else (parts[0], *rest)
    if not isinstance(kind, T.StructType):
        return None
    # A dot may be part of a name or lead into a struct, so try the longest name first.
    for size in [1] if quoted else range(len(parts), 0, -1):
        name = _named(".".join(parts[:size]), kind)
        rest = None if name is None else _walk(parts[size:], kind[name].dataType, quoted=quoted)
        if name is not None and rest is not None:
            return (name, *rest)
    return None


def _named(name: str, schema: T.StructType) -> str | None:
    """Return a field's name as the schema spells it. If several differ only by case, an exact match is preferred."""
    alike = [each for each in schema.names if each.lower() == name.lower()]
    return name if name in alike else next(iter(alike), None)


# --- changing a field in place -------------------------------------------------------------------


def changed(df: DataFrame, steps: Sequence[str], change: Change) -> DataFrame:
    """Return the rows with one field changed: a column, or a field of structs, even of structs in arrays."""
    fields = [top_field(each) for each in df.schema.fields]
    if len({name.lower() for name in df.columns}) < len(df.columns):
        # After a join, two names may differ only by case. Spark calls both ambiguous, so select columns by position.
        df = df.toDF(*(f"place{place}" for place in range(len(fields))))
        by_place = [top_field(each) for each in df.schema.fields]
        fields = [replace(value, name=field.name) for field, value in zip(fields, by_place, strict=True)]
    return df.select([field.column() for field in _replaced(fields, steps, change)])


def leaves(kind: T.DataType, steps: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], T.DataType]]:
    """Yield path and type of each field that has no fields of its own: ``("bay", "name"), StringType()``."""
    if isinstance(kind, T.ArrayType) and isinstance(kind.elementType, T.ArrayType | T.StructType):
        yield from leaves(kind.elementType, steps)
    elif isinstance(kind, T.StructType):
        for part in kind.fields:
            yield from leaves(part.dataType, (*steps, part.name))
    else:
        yield steps, kind


def top_field(part: T.StructField) -> Field:
    """Return a column of a DataFrame as a field."""
    return Field(part.name, part.dataType, SPARK.quote(part.name), part.metadata)


def _replaced(fields: Sequence[Field], steps: Sequence[str], change: Change, depth: int = 0) -> list[Field]:
    found: list[Field] = []
    for field in fields:
        if field.name != steps[0]:
            found.append(field)
        elif len(steps) == 1:
            found += change(field)
        else:
            value = _rebuilt(field, steps[1:], change, depth)
            # Drop a struct that has no fields left, because files cannot store it.
            if value is not None:
                found.append(replace(field, value=value))
    return found


def _rebuilt(field: Field, steps: Sequence[str], change: Change, depth: int) -> SQL | None:
    """Return a struct, or an array of structs, with one field changed; None if it has no fields left."""
    if isinstance(field.kind, T.ArrayType):
        item = sql("{}_{}", internal("item"), whole(depth))
        value = _rebuilt(Field("", field.kind.elementType, item), steps, change, depth + 1)
        return None if value is None else sql("TRANSFORM({}, {} -> {})", field.value, item, value)
    if not isinstance(field.kind, T.StructType):
        raise NotOffGlueError(f"To change {steps[0]!r} in a {field.kind.typeName()}", "Rebuild it with toDF().")
    fields = _replaced([field.inner(each) for each in field.kind.fields], steps, change, depth)
    if not fields:
        return None
    parts = joined(", ", (sql("{}, {}", SPARK.text(each.name), each.value) for each in fields))
    # Keep NULL structs: without the condition, each would become a struct of NULLs.
    return sql("IF({} IS NULL, NULL, NAMED_STRUCT({}))", field.value, parts)
