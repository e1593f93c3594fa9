"""`watermarks set`: set by hand how far a job got, or rename its cursor column."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

import click
from dateutil.parser import isoparse

from scripts.cli.commands import check_options, command, context_option, job_argument, read_job
from scripts.cli.contexts import state_in
from scripts.cli.deciding import Said, deciding, declare
from scripts.cli.progress import progress
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import printable
from scripts.helpers.errors import CorruptItemError, InvalidValueError, UnknownJobError
from scripts.helpers.protocol.fields import Fields, ImplausibleError
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.items import HEAD_KEY
from scripts.helpers.protocol.lookups import STATES
from scripts.helpers.protocol.values import Spilled
from scripts.helpers.rows.cursors import CursorColumn, is_written_plainly
from scripts.helpers.rows.states import bound_given, columns_in, is_rows, stored_bound, stored_identity
from scripts.helpers.schemas.kept import renamed

DECIDING = ("context", "why", "who", "yes")
MODES = {"": ("values", "new", "cursor_column", "types", *DECIDING), "rename_cursor": DECIDING}
TYPES = ("str", "int", "float", "decimal", "bool", "datetime", "date", "null")
_ASSIGNMENT = re.compile(r"([^=]+?)(?::(\w+))?=(.*)", re.DOTALL)
_FLOAT = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_BOOLEANS = {"true": True, "false": False}


@command("set")
@job_argument
@click.argument("values", nargs=-1, metavar="[NAME=VALUE]...")
@context_option
@click.option("--new", is_flag=True, help="Create a job that has never run.")
@click.option("--cursor-column", multiple=True, metavar="NAME", help="Cursor column of a new context.")
@click.option(
    "--type", "types", multiple=True, metavar="TYPE", help="Type of the cursor column: timestamp, date, bigint, …"
)
@click.option(
    "--rename-cursor", type=(str, str), metavar="OLD NEW", help="Continue with column NEW after OLD was renamed to it."
)
@deciding()
def set_values(
    around: Surroundings,
    job: str,
    values: Sequence[str],
    context: str | None,
    new: bool,
    cursor_column: Sequence[str],
    types: Sequence[str],
    rename_cursor: tuple[str, str] | None,
    said: Said,
) -> None:
    """Set the watermarks of a job without a run.

    Values that you do not name stay. NAME=VALUE keeps the type of the current value. NAME:TYPE=VALUE sets the
    type: str, int, float, decimal, bool, datetime, date or null. With --context, value=VALUE sets the cursor
    value of its rows. --new creates a job that has never run.

    --rename-cursor keeps the watermark, the coverage and the gaps of a rows context, so NEW must hold the same
    values as OLD did.
    """
    check_options(MODES)
    if rename_cursor is not None:
        _rename_cursor(around, job, context, *rename_cursor, said)
        return
    if not values:
        raise click.UsageError("Missing argument 'NAME=VALUE...'.")
    marks = around.watermarks
    with progress(around, f"reading {printable(job)}"):
        before = _before(around, job, new)
        state: Mapping[str, Any] = before.watermarks
        if context is not None:
            found = before.watermarks.get(context)
            if isinstance(found, Spilled):
                found = marks.get_watermark_values(job)[context]
            state = found if isinstance(found, Mapping) else _new_state(cursor_column, types)
    name = STATES if context is None else f"{STATES}.{context}"
    try:
        assigned = dict(_assigned(text, state, name) for text in values)
    except ImplausibleError as error:
        raise CorruptItemError(job, HEAD_KEY, str(error)) from error
    # `declare` keeps the values that are not passed. A new context needs a whole state, so pass all its values.
    wanted = assigned if context in before.watermarks or context is None else {**state, **assigned}
    declare(around, said, before, wanted, context)


def _rename_cursor(around: Surroundings, job: str, context: str | None, old: str, new: str, said: Said) -> None:
    before = read_job(around, job)
    name, state = state_in(around, job, context, "rows")
    if old not in state.names or new in state.names or not new:
        raise InvalidValueError(
            f"Context {name!r} of job {job!r} has the cursor columns {', '.join(state.names)}. "
            "OLD must be one of them, and NEW must not."
        )
    # Pass the coverage (the ranges that were read) with the state, otherwise a new column name would discard it.
    kept = state.with_coverage(state, [], "")
    columns = tuple(replace(column, name=new) if column.name == old else column for column in state.columns)
    after = renamed(replace(kept, columns=columns).to_store(), old, new)
    declare(around, said, before, after, name)


def _before(around: Surroundings, job: str, new: bool) -> Head:
    """Read the job's head. Raise InvalidValueError if the job should be new but exists."""
    try:
        head = around.watermarks.latest(job)
    except UnknownJobError:
        if new:
            return Head.first(job)
        raise
    if new:
        raise InvalidValueError(f"Job {job!r} exists already, at version {head.version:,}. Omit --new.")
    return head


def _new_state(names: Sequence[str], types: Sequence[str]) -> dict[str, Any]:
    """Return the state of a new rows context, which no run has committed yet."""
    if not names or len(names) != len(types):
        raise click.UsageError("The context is new. Give --cursor-column and --type for each column of its cursor.")
    return stored_identity(tuple(map(CursorColumn, names, types)), False, None)


def _assigned(text: str, state: Mapping[str, Any], where: str) -> tuple[str, Any]:
    """Parse NAME[:TYPE]=VALUE. If NAME is `value`, use the cursor types in `state`; ImplausibleError if damaged."""
    found = _ASSIGNMENT.fullmatch(text)
    if found is None:
        raise click.UsageError(f"{text!r} is not NAME=VALUE.")
    name, kind, value = found[1], found[2], found[3]
    if kind is not None and kind not in TYPES:
        name, kind = f"{name}:{kind}", None
    if name == "value" and is_rows(state):
        return name, stored_bound(bound_given(columns_in(Fields(state, where)), value, name, typed=True))
    if kind is None:
        kind = _kind_of(state[name]) if name in state else "str"
        if kind == "null" and value:
            raise InvalidValueError(f"{name} is null, so its type is unknown. Write {name}:TYPE=VALUE.")
    try:
        return name, _read(value, kind)
    except (ValueError, KeyError, InvalidOperation):
        raise InvalidValueError(
            f"{name} is not of type {kind}. Give another value or another type ({', '.join(TYPES)})."
        ) from None


def _kind_of(value: Any) -> str:
    kinds = {"NoneType": "null", "Decimal": "decimal"}
    kind = kinds.get(type(value).__name__, type(value).__name__)
    if kind not in TYPES:
        raise InvalidValueError(f"A {kind} cannot be given on the command line. Call set_watermark in Python.")
    return kind


def _read(text: str, kind: str) -> Any:
    if kind in ("datetime", "date", "int", "decimal") and not is_written_plainly(text, time=kind.startswith("date")):
        raise ValueError(kind)
    if kind == "float" and not _FLOAT.fullmatch(text):
        raise ValueError(kind)
    if kind == "datetime":
        return isoparse(text.replace(" ", "T", 1))
    if kind == "null":
        return None
    if kind == "bool":
        return _BOOLEANS[text.lower()]
    read: dict[str, Callable[[str], Any]] = {
        "str": str, "int": int, "float": float, "decimal": Decimal, "date": date.fromisoformat,
    }  # fmt: skip
    return read[kind](text)
