"""The schemas that a state keeps: compressed JSON in one entry, each schema under a name. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.protocol.fields import ImplausibleError
from scripts.helpers.protocol.packed_json import pack_json, unpack_json
from scripts.helpers.schemas.kinds import Columns, kind_text, known_kind, known_name

ENTRY = "schemas"
"""The entry in a context's state: one, because entries are limited, and compressed, because writes cost by size."""
MAX_SCHEMAS = 16
"""Most schemas of one context: one for each format, or part of a split delta. Parts by date would add ever more."""
MAX_BYTES, MAX_MARKS = 4 * 1024 * 1024, 400_000
"""Limits for the text and the values of an unpacked entry: 50,000 fields of a struct have 7 values each."""
NOT_SPARK = ("arrow", "pandas")
"""Names of schemas whose types Spark never sees: pyarrow's texts, in any form, or ``any``."""


def with_schema(state: Mapping[str, Any], name: str, columns: Columns) -> dict[str, Any] | None:
    """Return a state with the schema `name` added or replaced; None if that is too large for `schemas_of` to read."""
    kept = {**schemas_of(state), name: columns}
    # Sort, so that the same schemas give the same bytes and an unchanged state is not seen as a change.
    rows = [[each, list(map(list, found.items()))] for each, found in sorted(kept.items())]
    after = {**state, ENTRY: pack_json(rows)}
    try:
        schemas_of(after)
    except ImplausibleError:
        return None
    return after


def schemas_of(state: Any, name: str = "state") -> Mapping[str, Columns]:
    """Return the schemas that a state keeps, by name; an empty map for a value that is not a source's state.

    Raises
    ------
    ImplausibleError
        `with_schema` cannot have written the entry. In the message, the state is called `name`.
    """
    if not isinstance(state, Mapping) or "kind" not in state or state.get(ENTRY) is None:
        return {}
    try:
        rows = unpack_json(state[ENTRY], MAX_BYTES, MAX_MARKS)
        if not isinstance(rows, list) or len(rows) > MAX_SCHEMAS:
            raise InvalidValueError(f"it is not a list of up to {MAX_SCHEMAS} schemas")
        return MappingProxyType(dict(map(_schema, rows)))
    except (ValueError, TypeError) as error:
        raise ImplausibleError(f"{name}.{ENTRY} is not columns with types that are known: {error}") from error


def _schema(row: Any) -> tuple[str, Columns]:
    name, columns = row
    known = known_name if known_name(name).partition(":")[0] in NOT_SPARK else known_kind
    return name, MappingProxyType({known_name(column): known(kind) for column, kind in columns})


def carried(state: Mapping[str, Any], before: Any) -> Mapping[str, Any]:
    """Return `state` with the schemas that the state `before` keeps, unless `state` keeps schemas already."""
    if ENTRY in state or not isinstance(before, Mapping) or ENTRY not in before:
        return state
    return {**state, ENTRY: before[ENTRY]}


def renamed(state: Mapping[str, Any], old: str, new: str) -> Mapping[str, Any]:
    """Return a state whose schemas have a column renamed, so that the column does not count as new."""
    for name, columns in schemas_of(state).items():
        if old in columns and new not in columns:
            found = {new if column == old else column: kind for column, kind in columns.items()}
            state = with_schema(state, name, found) or state
    return state


def shown_schemas(state: Any) -> dict[str, dict[str, str]]:
    """Return the schemas that a state keeps, with the types as Spark SQL writes them."""
    kept = schemas_of(state).items()
    return {name: {column: kind_text(kind) for column, kind in columns.items()} for name, columns in kept}
