"""Commands about what a rows context has read and has not: coverage and gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from scripts.cli.commands import command, context_option, job_argument
from scripts.cli.layout import Cell, emit, show_rows
from scripts.cli.looking import state_in
from scripts.cli.progress import progress
from scripts.cli.surroundings import Surroundings
from scripts.cli.texts import bound_text
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.rows.coverage import columns_of
from scripts.helpers.rows.cursors import CursorColumn

BEGINNING, END = "the very beginning", "the very end"


@command("coverage")
@job_argument
@context_option
def coverage(around: Surroundings, job: str, context: str | None) -> None:
    """Show which cursor values were read, by live runs and by backfills."""
    with progress(around, "reading what was covered"):
        name, _ = state_in(around, job, context, "rows")
        found = around.watermarks.coverage(job, name)
    _show(around, job, name, "coverage", found, "Nothing was read yet.")


@command("gaps")
@job_argument
@context_option
@click.option("--from", "start", metavar="VALUE", help="Look from here on.")
def gaps(around: Surroundings, job: str, context: str | None, start: str | None) -> None:
    """Show what a rows context has gone past and never read. A backfill fills it."""
    with progress(around, "looking for gaps"):
        name, state = state_in(around, job, context, "rows")
        found = around.watermarks.gaps(job, name, bound_given(state, start))
    _show(around, job, name, "gaps", found, "No gap.")


def bound_given(state: Any, text: str | None) -> Any:
    """Read a bound as the first cursor column is."""
    if text is None:
        return None
    return cursor_value(columns_of(state)[0], text)


def cursor_value(column: CursorColumn, text: str) -> Any:
    """Read a value of a cursor that somebody has typed; InvalidValueError says what it must be."""
    try:
        return column.from_text(text)
    except InvalidValueError as error:
        raise InvalidValueError(f"{text!r} is no value of the cursor {column.name!r}, a {column.type}.") from error


def _show(around: Surroundings, job: str, context: str, what: str, spans: Sequence[Any], none: str) -> None:
    if around.is_json:
        emit({"job": job, "context": context, what: [{"low": low, "high": high} for low, high in spans]})
    elif spans:
        show_rows(around.out, ("low", "high (not included)"), span_rows(spans))
    else:
        around.out.print(none)


def span_rows(spans: Sequence[Any]) -> list[list[Cell]]:
    """Return a row for each range of cursor values."""
    return [[bound_text(low, BEGINNING), bound_text(high, END)] for low, high in spans]


COMMANDS = [coverage, gaps]
