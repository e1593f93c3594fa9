"""`watermarks adopt`: declare which item of the original class is the latest one."""

from __future__ import annotations

from contextlib import suppress

import click

from scripts.cli.commands import command, job_argument
from scripts.cli.deciding import Said, asked, deciding
from scripts.cli.documents import emit, head_json
from scripts.cli.glue_runs import runs_in_glue
from scripts.cli.progress import progress
from scripts.cli.screen import show_rows, state_text
from scripts.cli.surroundings import Surroundings
from scripts.helpers.decisions.decisions import ADOPTED, ADOPTED_BY_HAND, JobDecision
from scripts.helpers.display.units import printable
from scripts.helpers.errors import AmbiguousHistoryError, PlanConflictError


@command("adopt")
@job_argument
@click.option("--run", "run_id", metavar="RUN", help="The run that committed last.")
@click.option("--glue", is_flag=True, help="Ask Glue which run started last (glue:GetJobRuns).")
@click.option("--glue-job", metavar="NAME", help="The job's name in Glue, if it differs.")
@deciding(why_needed=False)
def adopt(around: Surroundings, job: str, run_id: str | None, glue: bool, glue_job: str | None, said: Said) -> None:
    """Declare which item of the original class is the latest one.

    Shows the watermarks of that item and asks for confirmation.
    """
    if (run_id is None) == (not glue):
        raise click.UsageError("Give either --run or --glue.")
    decisions, made = around.watermarks.decisions, JobDecision(said.why or ADOPTED_BY_HAND, said.who, None)
    with progress(around, f"reading {printable(job)}"):
        if around.store.read_head(job) is not None:
            raise PlanConflictError(job, ADOPTED)
        # Ignore that the job has several items: this command chooses one. Without any item, `latest` raises an error.
        with suppress(AmbiguousHistoryError):
            around.watermarks.latest(job)
    started = runs_in_glue(around, glue_job or job) if run_id is None else None
    with progress(around, f"reading {printable(job)}"):
        found = decisions.adopted(job, made, run_id, started)
    run_id = found.run_id
    if not (around.is_json and said.yes):
        around.shown.print(f"Run {printable(run_id)}" + (" started last, according to Glue." if glue else ":"))
        rows = [[name, state_text(state)] for name, state in sorted(found.watermarks.items())]
        show_rows(around.shown, ("watermark", "value"), rows)
    asked(around, f"Adopt the item of run {printable(run_id)} as the watermarks of job {printable(job)}?", yes=said.yes)
    with progress(around, f"changing {printable(job)}"):
        after = decisions.adopt(decisions.adopted(job, made, run_id, None), expected=found)
    if around.is_json:
        emit({"after": head_json(after, around.now())})
        return
    around.out.print(f"Done: version {after.version:,} is that of run {printable(after.run_id)}.", style="green")
