"""`watermarks discard-plan`: drop the plan that the next run would replay."""

from __future__ import annotations

from scripts.cli.commands import command, job_argument, read_job
from scripts.cli.deciding import decide, deciding, previewed
from scripts.cli.surroundings import Surroundings


@command("discard-plan")
@job_argument
@deciding()
def discard_plan(around: Surroundings, job: str, why: str, who: str | None, yes: bool) -> None:
    """Drop the open plan, so that the next run makes a new one."""
    before = read_job(around, job)
    after = before.discarded(previewed(around, why, who))
    decide(
        around,
        before,
        after,
        lambda: around.watermarks.discard_plan(job, why=why, who=who, expected=before),
        yes=yes,
    )
