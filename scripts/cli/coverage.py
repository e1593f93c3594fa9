"""`watermarks coverage`: what a rows context has read."""

from __future__ import annotations

from scripts.cli.commands import command, context_option, job_argument
from scripts.cli.contexts import show_spans, state_in
from scripts.cli.progress import progress
from scripts.cli.surroundings import Surroundings


@command("coverage")
@job_argument
@context_option
def coverage(around: Surroundings, job: str, context: str | None) -> None:
    """Show which cursor values were read, by live runs and by backfills."""
    with progress(around, "reading what was covered"):
        name, state = state_in(around, job, context, "rows")
        found = around.watermarks.coverage(job, name)
    show_spans(around, {"job": job, "context": name}, "coverage", state, found, none="Nothing was read yet.")
