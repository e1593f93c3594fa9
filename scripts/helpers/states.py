"""States and plans as they come out of a table: each kind is checked by what is beside its writer. Pure.

Anybody who may write to the table can put anything there. `Watermarks` has all that a run or a command gets checked
here, so that nothing else has to ask of which type a field is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scripts.helpers.files.states import FilesPlan, FilesState, PartitionState
from scripts.helpers.protocol.fields import Fields, ImplausibleError
from scripts.helpers.protocol.lookups import PLANS, STATES
from scripts.helpers.relational.ids import IdsState, planned_first
from scripts.helpers.rows.coverage import check_backfills, check_rows_plan, check_rows_state
from scripts.helpers.schemas.kept import schemas_of
from scripts.helpers.tables.spans import check_table_plan, check_table_state

OF_STATES: Mapping[str, Callable[[Mapping[str, Any], str], object]] = {
    "rows": check_rows_state, "backfills": check_backfills, "files": FilesState.read, "partition": PartitionState.read,
    "table": check_table_state, "ids": IdsState.read,
}  # fmt: skip
OF_PLANS: Mapping[str, Callable[[Mapping[str, Any], str], object]] = {
    "rows": check_rows_plan, "files": FilesPlan.read, "table": check_table_plan, "ids": planned_first,
}  # fmt: skip
"""By the kind of source that a state or plan is of. A plan of kind ``nothing`` has no other field."""


def checked(place: str, context: str, stored: Any) -> Any:
    """Return the state or plan of a context as it is, if it says what this package writes.

    Values without a kind are the user's own. Those of another kind than a source has are refused by that source.

    Raises
    ------
    ImplausibleError
        It names the field, and what was expected of it.
    """
    _read(place, f"{place}.{context}" if context else place, stored)
    return stored


def readable(stored: Any, place: str = STATES) -> Any:
    """Return a state or plan as it is; of one that is damaged, a text that says why."""
    try:
        return checked(place, "", stored)
    except ImplausibleError as error:
        return f"damaged: {error}"


def typed(stored: Any, place: str = STATES) -> Any:
    """Return a state or plan as a value of its type, another value as it is, and of what is damaged a text."""
    try:
        return _read(place, place, stored)
    except ImplausibleError as error:
        return f"damaged: {error}"


def _read(place: str, name: str, stored: Any) -> Any:
    if not isinstance(stored, Mapping) or "kind" not in stored:
        return stored
    read = (OF_PLANS if place == PLANS else OF_STATES).get(Fields(stored, name).text("kind", longest=64))
    found = stored if read is None else read(stored, name)
    schemas_of(stored, name)
    return found
