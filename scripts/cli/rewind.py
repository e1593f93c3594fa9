"""`watermarks rewind`: go back to the watermarks of an earlier version."""

from __future__ import annotations

import click

from scripts.cli.commands import command, context_option, job_argument, read_job
from scripts.cli.deciding import Said, decide, deciding
from scripts.cli.retracting import retract_option
from scripts.cli.surroundings import Surroundings


@command("rewind")
@job_argument
@click.option(
    "--to-version", type=click.IntRange(1), metavar="N", help="Version to go back to, from `watermarks history`."
)
@click.option("--to-run", metavar="RUN", help="Run to go back to, instead of a version.")
@context_option
@retract_option
@deciding()
def rewind(
    around: Surroundings,
    job: str,
    to_version: int | None,
    to_run: str | None,
    context: str | None,
    retract: bool,
    said: Said,
) -> None:
    """Go back to the watermarks of an earlier version.

    The next runs take everything after that version again. Only --retract deletes data from the target.
    """
    if (to_version is None) == (to_run is None):
        raise click.UsageError("Give either --to-version or --to-run.")
    before = read_job(around, job)
    made = said.of(before, context, retract=retract)
    proposal = around.watermarks.decisions.rewind(job, made, to_version, to_run)
    decide(around, said, before, proposal, retract=retract)
