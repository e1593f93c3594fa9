"""`watermarks complete-up-to`: check whether every row below a value was taken; schedulers use the exit code."""

from __future__ import annotations

from typing import Any

import click

from scripts.cli.commands import command, job_argument, read_job
from scripts.cli.contexts import bound_option, names_of_kind, state_in
from scripts.cli.documents import emit
from scripts.cli.progress import progress
from scripts.cli.screen import Cell, bound_text, show_rows
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import count_of
from scripts.helpers.rows.cursor_ranges import range_end
from scripts.helpers.rows.states import column_values
from scripts.jobs.exit_codes import FAILED

NOTHING = "nothing yet"


@command("complete-up-to")
@job_argument
@click.option("--context", metavar="NAME", help="Transformation context (all that read rows).")
@click.option("--at", metavar="VALUE", help="Exit code 1 unless every row below VALUE was taken.")
def complete_up_to(around: Surroundings, job: str, context: str | None, at: str | None) -> None:
    """Show the cursor value below which every row was taken. Schedulers can wait for it.

    The answer is right if the delay of the job is long enough. Contexts of files have no cursor and are ignored.
    """
    found: list[tuple[str, Any, bool]] = []
    with progress(around, "looking how far all is taken"):
        named = [context] if context else names_of_kind(around.watermarks.get_watermark_values(job), "rows")
        # Without a rows context, call `state_in` once without a name: it raises an error that lists the job's contexts.
        for chosen in named or [""]:
            name, state = state_in(around, job, chosen or None, "rows")
            wanted, value = bound_option(state, at, "--at"), around.watermarks.complete_up_to(job, name)
            is_reached = range_end(column_values(state.columns, wanted)) <= range_end(value)
            found.append((name, column_values(state.columns, value, placed=True), is_reached))
    # Look for committed output that is not published, and so cannot be read yet, after reading the watermarks. In the
    # other order, a run could commit in between: the watermarks would include it, but its output would be missed.
    unpublished = len(read_job(around, job).unpublished)
    is_complete = at is None or (not unpublished and all(reached for _, _, reached in found))
    if around.is_json:
        contexts = [{"context": name, "complete_up_to": value, "complete": reached} for name, value, reached in found]
        emit({"job": job, "at": at, "complete": is_complete, "unpublished": unpublished, "contexts": contexts})
    else:
        rows: list[list[Cell]] = [[name, bound_text(value, NOTHING)] for name, value, _ in found]
        show_rows(around.out, ("context", "complete up to"), rows)
        if unpublished:
            around.out.print(
                f"Committed but not yet published: {count_of(unpublished, 'output')}, which the next run publishes."
            )
        if at is not None:
            around.out.print(f"{'Complete' if is_complete else 'Not complete'} up to {at}.")
    if not is_complete:
        raise click.exceptions.Exit(FAILED)
