"""Commands about what a rows context has read and has not: coverage, gaps, backfill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from scripts.cli.commands import command, context_option, job_argument
from scripts.cli.layout import Cell, emit, show_rows
from scripts.cli.looking import state_in
from scripts.cli.progress import progress
from scripts.cli.surroundings import Surroundings
from scripts.cli.texts import bound_text, head_json, printable, state_of
from scripts.helpers.coverage import types_of
from scripts.helpers.cursors import CursorColumn, as_list
from scripts.helpers.errors import BoundsError, InvalidValueError, UnknownJobError
from scripts.helpers.slices import slices

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
        found = around.watermarks.gaps(job, name, _bound(state, start))
    _show(around, job, name, "gaps", found, "No gap.")


@command("backfill")
@job_argument
@context_option
@click.option("--from", "start", metavar="VALUE", help="Look from here on.")
@click.option("--slices", "number", type=click.IntRange(1, 10_000), default=1, metavar="N", help="Cut each gap in N.")
def backfill(around: Surroundings, job: str, context: str | None, start: str | None, number: int) -> None:
    """Plan a backfill: what is begun, and the gaps cut in slices.

    Slices that are begun and not done are to be finished under their own bounds and name. Nothing
    is begun: the rows are read by a job of yours, with the bounds that are shown here.
    """
    name, state = state_in(around, job, context, "rows")
    marks, now = around.watermarks, around.now()
    begun = []
    for slice_job, (title, (low, high)) in marks.unfinished(job, name).items():
        try:
            head = head_json(marks.latest(slice_job), now)
            stage = state_of(marks.latest(slice_job), now)
        except UnknownJobError:
            head, stage = None, "not begun"
        begun.append({"job": slice_job, "name": title, "low": low, "high": high, "state": stage, "head": head})
    bounds = {(one["low"], one["high"]) for one in begun}
    open_gaps = [gap for gap in marks.gaps(job, name, _bound(state, start)) if gap not in bounds]
    planned = [piece for gap in open_gaps for piece in _cut(gap, number)]
    if around.is_json:
        emit({"job": job, "context": name, "begun": begun, "slices": [{"low": a, "high": b} for a, b in planned]})
        return
    if begun:
        around.out.print("Begun and not done; finish each under its own bounds and name:")
        rows: list[Sequence[Cell]] = [
            [printable(one["name"]), bound_text(one["low"], BEGINNING), bound_text(one["high"], END), one["state"],
             printable(one["job"])]
            for one in begun
        ]  # fmt: skip
        show_rows(around.out, ("name", "low", "high (not included)", "state", "job of the slice"), rows)
        around.out.print()
    if planned:
        around.out.print("To read:")
        show_rows(around.out, ("low", "high (not included)"), _rows(planned))
    else:
        around.out.print("No gap is left to read.")


def _cut(gap: Any, number: int) -> list[Any]:
    """Cut a gap in slices; one that has no beginning, or values that cannot be cut, stays whole."""
    if number == 1 or gap[0] is None or gap[1] is None:
        return [gap]
    try:
        return list(slices(gap[0], gap[1], number))
    except BoundsError:
        return [gap]


def _bound(state: Any, text: str | None) -> Any:
    """Read a bound as the first cursor column is."""
    if text is None:
        return None
    name = as_list(state.get("cursor_column"))[0]
    return cursor_value(CursorColumn(str(name), types_of(state)[0]), text)


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
        show_rows(around.out, ("low", "high (not included)"), _rows(spans))
    else:
        around.out.print(none)


def _rows(spans: Sequence[Any]) -> list[list[Cell]]:
    return [[bound_text(low, BEGINNING), bound_text(high, END)] for low, high in spans]


COMMANDS = [coverage, gaps, backfill]
