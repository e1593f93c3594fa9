"""`watermarks reset`: forget the watermarks."""

from __future__ import annotations

from scripts.cli.commands import command, context_option, job_argument, read_job
from scripts.cli.deciding import Said, decide, deciding
from scripts.cli.retracting import retract_option
from scripts.cli.surroundings import Surroundings


@command("reset")
@job_argument
@context_option
@retract_option
@deciding()
def reset(around: Surroundings, job: str, context: str | None, retract: bool, said: Said) -> None:
    """Forget the watermarks, so that the next run takes everything.

    Only --retract deletes data from the target.
    """
    before = read_job(around, job)
    proposal = around.watermarks.decisions.reset(job, said.of(before, context, retract=retract))
    decide(around, said, before, proposal, retract=retract)
