"""Look up one context of a job for a command: its state, its source's files, and values of its cursor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

import click

from scripts.cli.commands import with_options
from scripts.cli.screen import Cell, bound_text
from scripts.cli.surroundings import Surroundings
from scripts.helpers.errors import ConfigurationError, InvalidValueError
from scripts.helpers.protocol.lookups import STATES
from scripts.helpers.rows.states import RowsState, bound_given, column_values
from scripts.helpers.states import typed

BEGINNING, END = "the very beginning", "the very end"

ledger_option = click.option(
    "--ledger-uri", metavar="URI", help="Folder of the job's ledger, unless it is in the table."
)
file_options = with_options([
    click.option("--include", multiple=True, metavar="GLOB", help="The same value as in the job. Repeatable."),
    click.option("--exclude", multiple=True, metavar="GLOB", help="The same value as in the job. Repeatable."),
    click.option(
        "--min-size", type=click.IntRange(0), default=0, metavar="BYTES", help="The same value as in the job."
    ),
    click.option("--versioned", is_flag=True, help="If the job sets it."),
    ledger_option,
])  # fmt: skip
"""The options with which a job chooses files. The command needs them because they are not in the job's state."""


def file_bookmark() -> Any:
    """Import the class that lists sources of files. Raise ConfigurationError if a package that it needs is missing."""
    try:
        from scripts.helpers.files.bookmark import FileBookmark
    except ImportError as error:
        raise ConfigurationError(f"This command requires {error.name}. Install it: pip install pyarrow.") from error
    return FileBookmark


def state_in(around: Surroundings, job: str, context: str | None, kind: str) -> tuple[str, Any]:
    """Return the name and state of `context` or, if it is None, of the only context whose state has this `kind`."""
    if context is not None:
        # Read only this context, because others may have megabytes in chunks.
        state = around.watermarks.lookups.state_at(around.watermarks.latest(job), context)
        if names_of_kind({context: state}, kind):
            return context, typed(state)
    watermarks: dict[str, Any] = around.watermarks.get_watermark_values(job)
    names = names_of_kind(watermarks, kind)
    if context is None and len(names) == 1:
        context = names[0]
    if context not in names:
        wrong = "several contexts" if names else "no context"
        if context:
            wrong = f"no context {context!r}"
        told = f"It has: {', '.join(names)}. Choose with --context." if names else _others(job, watermarks, kind)
        raise InvalidValueError(f"Job {job!r} has {wrong} of {kind}. {told}")
    return context, typed(around.watermarks.lookups.checked(job, STATES, context, watermarks[context]))


def _others(job: str, states: Mapping[str, Any], kind: str) -> str:
    """Return a hint for a job that has no context of `kind`: what it has instead, and the commands for that."""
    if not states:
        return "It has no watermarks: none of its runs has committed, or it was reset. Run it first."
    files = names_of_kind(states, "files")
    if not files or kind == "files":
        return f"It has none: see watermarks show {quote(job)}."
    return (
        f"Its source is files: {', '.join(files)}. To check these: watermarks doctor {quote(job)}, "
        f"watermarks files {quote(job)} --explain KEY."
    )


def names_of_kind(states: Mapping[str, Any], kind: str) -> list[str]:
    """Return the names of the contexts whose state is of `kind`, such as "rows" or "files", sorted."""
    return sorted(name for name, state in states.items() if isinstance(state, Mapping) and state.get("kind") == kind)


def bound_option(state: RowsState, text: str | None, option: str) -> Any:
    """Parse a bound that was given as an option; None if it was not given."""
    return None if text is None else bound_given(state.columns, text, option, typed=True)


def placed(state: RowsState, spans: Sequence[Any]) -> list[Any]:
    """Return ranges with their cursor values as they are shown to people."""
    return [tuple(column_values(state.columns, end, placed=True) for end in span) for span in spans]


def span_rows(spans: Sequence[Any]) -> list[list[Cell]]:
    """Return a row for each range of cursor values."""
    return [[bound_text(low, BEGINNING), bound_text(high, END)] for low, high in spans]
