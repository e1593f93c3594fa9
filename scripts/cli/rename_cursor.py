"""`watermarks rename-cursor`: go on where a cursor column has another name."""

from __future__ import annotations

import click

from scripts.cli.commands import command, context_option, job_argument, read_job
from scripts.cli.contexts import state_in
from scripts.cli.deciding import Said, deciding, declare
from scripts.cli.surroundings import Surroundings
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.rows.coverage import with_coverage
from scripts.helpers.rows.cursors import as_list
from scripts.helpers.schemas.kept import renamed


@command("rename-cursor")
@job_argument
@click.argument("old")
@click.argument("new")
@context_option
@deciding()
def rename_cursor(around: Surroundings, job: str, old: str, new: str, context: str | None, said: Said) -> None:
    """Continue with the cursor column NEW after OLD was renamed to it.

    The watermark, the coverage and the gaps stay, so NEW must hold the same values as OLD did.
    """
    before = read_job(around, job)
    name, state = state_in(around, job, context, "rows")
    columns = as_list(state.get("cursor_column"))
    if old not in columns or new in columns or not new:
        raise InvalidValueError(
            f"Context {name!r} of job {job!r} has the cursor columns {', '.join(columns)}. "
            "OLD must be one of them, and NEW must not."
        )
    names = [new if column == old else column for column in columns]
    after = {**renamed(state, old, new), "cursor_column": names if len(names) > 1 else names[0]}
    # What was read is of this column under either name. Without it the new name would be taken for another column.
    after = with_coverage(after, state, [], "")
    declare(around, said, before, after, name)
