"""`watermarks rename-cursor`: go on where a cursor column has another name."""

from __future__ import annotations

from dataclasses import replace

import click

from scripts.cli.commands import command, context_option, job_argument, read_job
from scripts.cli.contexts import state_in
from scripts.cli.deciding import Said, deciding, declare
from scripts.cli.surroundings import Surroundings
from scripts.helpers.errors import InvalidValueError
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
    if old not in state.names or new in state.names or not new:
        raise InvalidValueError(
            f"Context {name!r} of job {job!r} has the cursor columns {', '.join(state.names)}. "
            "OLD must be one of them, and NEW must not."
        )
    # What was read is of this column under either name. Without it the new name would be taken for another column.
    kept = state.with_coverage(state, [], "")
    columns = tuple(replace(column, name=new) if column.name == old else column for column in state.columns)
    after = renamed(replace(kept, columns=columns).to_store(), old, new)
    declare(around, said, before, after, name)
