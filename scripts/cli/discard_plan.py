"""`watermarks discard-plan`: drop the plan that the next run would replay."""

from __future__ import annotations

from scripts.cli.commands import command, job_argument, read_job
from scripts.cli.deciding import Said, decide, deciding
from scripts.cli.surroundings import Surroundings


@command("discard-plan")
@job_argument
@deciding()
def discard_plan(around: Surroundings, job: str, said: Said) -> None:
    """Drop the open plan, so that the next run makes a new one."""
    before = read_job(around, job)
    decide(around, said, before, around.watermarks.decisions.discard_plan(job, said.of(before)))
