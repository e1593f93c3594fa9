"""Check states and plans that are read from a table. The check of each kind is next to the code that writes it. Pure.

Anybody who may write to the table can store anything in it. So `Watermarks` calls `checked` for every state and plan
before it returns one, and other code need not check the types of fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scripts.helpers.files.states import FilesPlan, FilesState, PartitionState
from scripts.helpers.protocol.fields import Fields, ImplausibleError
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.lookups import PLANS, STATES
from scripts.helpers.schemas.kept import schemas_of

Reader = Callable[[Mapping[str, Any], str], object]


def _reader(kind: str, is_plan: bool) -> Reader | None:
    """Return the function that checks a state or plan of a kind; None if the kind is unknown or has no fields to check.

    The imports are here so that a run starts faster: it loads only the modules of the kinds that its job has.
    """
    if kind == "files":
        return FilesPlan.read if is_plan else FilesState.read
    if kind == "rows":
        from scripts.helpers.rows.options import check_rows_plan
        from scripts.helpers.rows.states import RowsState

        return check_rows_plan if is_plan else RowsState.read
    if kind == "table":
        from scripts.helpers.tables.spans import TableState, check_table_plan

        return check_table_plan if is_plan else TableState.read
    if kind == "ids":
        from scripts.helpers.relational.ids import IdsState, planned_first

        return planned_first if is_plan else IdsState.read
    if kind == "partition" and not is_plan:
        return PartitionState.read
    if kind == "backfills" and not is_plan:
        from scripts.helpers.rows.coverage import BackfillRecord

        return BackfillRecord.read
    return None


def checked(place: str, context: str, stored: Any) -> Any:
    """Return the state or plan of a context unchanged, after checking that this package could have written it.

    A value without a field ``kind`` is the user's own, and not checked. Each source refuses a state of another kind.

    Raises
    ------
    ImplausibleError
        The state or plan is damaged; the error names the field and what was expected.
    """
    _read(place, f"{place}.{context}" if context else place, stored)
    return stored


def typed(stored: Any, place: str = STATES, *, unpacks: bool = True) -> Any:
    """Return a state or plan as an object such as `FilesState`, or as "damaged: …"; the user's own values unchanged.

    With `unpacks=False`, compressed fields stay compressed: unpacked, those of many states could fill the memory.
    """
    try:
        return _read(place, place, stored, unpacks=unpacks)
    except ImplausibleError as error:
        return f"damaged: {error}"


def files_waiting(head: Head) -> int:
    """Return how many files are set aside and wait for a decision. States too large for the head are not counted."""
    states = [typed(state, unpacks=False) for state in head.watermarks.values()]
    return sum(state.aside.waiting for state in states if isinstance(state, FilesState) and state.aside is not None)


def _read(place: str, name: str, stored: Any, *, unpacks: bool = True) -> Any:
    if not isinstance(stored, Mapping) or "kind" not in stored:
        return stored
    kind, is_plan = Fields(stored, name).text("kind", longest=64), place == PLANS
    read = _reader(kind, is_plan)
    found: Any = stored if read is None else read(stored, name)
    if unpacks:
        schemas_of(stored, name)
        if kind == "rows" and not is_plan:
            found.unpacked(name)
    return found
