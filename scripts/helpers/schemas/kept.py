"""The schemas that a state keeps: compressed JSON in one entry, by what they are of. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.protocol.fields import ImplausibleError
from scripts.helpers.protocol.packed_json import pack_json, unpack_json
from scripts.helpers.schemas.kinds import Columns, kind_text, known_kind, known_name

ENTRY = "schemas"
"""Of a context's state. One entry, and compressed: a state has a limit of entries, and each write pays for its size."""
MAX_SCHEMAS = 16
"""Of one context: formats, and parts that a delta was split into. Parts by date would grow for ever."""
MAX_BYTES, MAX_MARKS = 4 * 1024 * 1024, 400_000
"""Most text that an entry may unfold to, and most values: 50,000 fields of a struct have 7 each."""
NOT_SPARK = ("arrow", "pandas")
"""What schemas are of whose types Spark never sees: as pyarrow writes them, in any form, or ``any``."""


def with_schema(state: Mapping[str, Any], name: str, columns: Columns) -> dict[str, Any] | None:
    """Return a state that keeps one schema more, or another one under its name; None if it could not be read back."""
    kept = {**schemas_of(state), name: columns}
    # Sorted, so that the same schemas are the same bytes, and a state that did not change is none.
    rows = [[each, list(map(list, found.items()))] for each, found in sorted(kept.items())]
    after = {**state, ENTRY: pack_json(rows)}
    try:
        schemas_of(after)
    except ImplausibleError:
        return None
    return after


def schemas_of(state: Any, name: str = "state") -> Mapping[str, Columns]:
    """Return the columns that a state keeps, by what they are of; none of a value of the user's own.

    Raises
    ------
    ImplausibleError
        The entry, of the state that is called `name`, is not what `with_schema` writes.
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
    """Return a state with the schemas of the one before it, where it has none of its own."""
    if ENTRY in state or not isinstance(before, Mapping) or ENTRY not in before:
        return state
    return {**state, ENTRY: before[ENTRY]}


def renamed(state: Mapping[str, Any], old: str, new: str) -> Mapping[str, Any]:
    """Return a state in whose schemas a column has another name, so that it is no new one."""
    for name, columns in schemas_of(state).items():
        if old in columns and new not in columns:
            found = {new if column == old else column: kind for column, kind in columns.items()}
            state = with_schema(state, name, found) or state
    return state


def shown_schemas(state: Any) -> dict[str, dict[str, str]]:
    """Return the columns that a state keeps with types as people write them."""
    kept = schemas_of(state).items()
    return {name: {column: kind_text(kind) for column, kind in columns.items()} for name, columns in kept}
