"""`watermarks gaps`: what a rows context has gone past and never read."""

from __future__ import annotations

import click

from scripts.cli.commands import command, context_option, job_argument
from scripts.cli.contexts import bound_option, show_spans, state_in
from scripts.cli.progress import progress
from scripts.cli.surroundings import Surroundings


@command("gaps")
@job_argument
@context_option
@click.option("--from", "start", metavar="VALUE", help="Ignore values below VALUE.")
def gaps(around: Surroundings, job: str, context: str | None, start: str | None) -> None:
    """Show ranges of rows that a job passed and never read. A backfill reads them."""
    with progress(around, "looking for gaps"):
        name, state = state_in(around, job, context, "rows")
        found = around.watermarks.gaps(job, name, bound_option(state, start, "--from"))
    show_spans(around, {"job": job, "context": name}, "gaps", state, found, none="No gap.")
