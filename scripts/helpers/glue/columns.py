"""Glue's paths of fields, such as ``bay.name`` or `` `bay.name` ``, as columns of a DataFrame."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


def steps_to(path: str, schema: StructType) -> tuple[str, ...] | None:
    """Return the names that lead to a field, as the schema spells them; None if it is not there.

    A column whose whole name is the path comes first. Dots reach into structs, arrays of structs and
    maps, and belong to a name in backticks. The case counts only where names differ by nothing else.
    """
    exact = _named(path, schema)
    if exact is not None:
        return (exact,)
    if "`" not in path:
        return _walk(path.split("."), schema, quoted=False)
    parts = [match[1].replace("``", "`") if match[1] else match[2] for match in _PART.finditer(path)]
    return _walk(parts, schema, quoted=True)


def name_of(path: str) -> str | None:
    """Return the name of a new column; None for a field of a struct, which a dot without backticks asks for."""
    quoted = re.fullmatch(r"`((?:[^`]|``)+)`", path)
    if quoted:
        return quoted[1].replace("``", "`")
    return None if "." in path else path


def expression(steps: Sequence[str]) -> str:
    """Write names that lead to a field as Spark's SQL reads them."""
    return ".".join("`" + step.replace("`", "``") + "`" for step in steps)


def _walk(parts: Sequence[str], kind: DataType, *, quoted: bool) -> tuple[str, ...] | None:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if not parts:
        return ()
    while isinstance(kind, ArrayType):
        kind = kind.elementType
    if isinstance(kind, MapType):
        rest = _walk(parts[1:], kind.valueType, quoted=quoted)
        return None if rest is None else (parts[0], *rest)
    if not isinstance(kind, StructType):
        return None
    for size in [1] if quoted else range(len(parts), 0, -1):
        name = _named(".".join(parts[:size]), kind)
        rest = None if name is None else _walk(parts[size:], kind[name].dataType, quoted=quoted)
        if name is not None and rest is not None:
            return (name, *rest)
    return None


def _named(name: str, schema: StructType) -> str | None:
    """Return a field's name as the schema spells it."""
    alike: Iterator[str] = (each for each in schema.names if each.lower() == name.lower())
    return name if name in schema.names else next(alike, None)
