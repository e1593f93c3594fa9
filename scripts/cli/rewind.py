"""`watermarks rewind`: back to the watermarks of an earlier version."""

from __future__ import annotations

import click

from scripts.cli.commands import command, context_option, job_argument
from scripts.cli.deciding import Said, decide, deciding
from scripts.cli.diff import history_entry
from scripts.cli.progress import progress
from scripts.cli.retracting import retract_now, retract_option, show_outputs
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import printable


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
    marks = around.watermarks
    with progress(around, f"reading {printable(job)}"):
        before = marks.latest(job)
        version = to_version if to_run is None else marks.lookups.version_of(before, to_run)
        assert version is not None
        outputs = marks.decisions.outputs_after(before, version) if context is None else ()
        entry, order = history_entry(around, job, version, before), said.previewed(around)
        after = before.rewound(entry, order, context, outputs, retract=retract)
    show_outputs(around, before, after, outputs, retract)
    decide(
        around, said, before, after, marks.rewind, job, to_version=version, transformation_ctx=context, retract=retract
    )
    if retract:
        retract_now(around, job)
