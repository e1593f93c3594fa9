"""`watermarks release`: end the lease of a run that is dead."""

from __future__ import annotations

import click
from rich.text import Text

from scripts.cli.commands import command, job_argument, read_job
from scripts.cli.deciding import Said, asked, deciding
from scripts.cli.documents import emit, head_json
from scripts.cli.progress import progress
from scripts.cli.screen import ago, moment
from scripts.cli.surroundings import Surroundings
from scripts.helpers.decisions.decisions import check_owner
from scripts.helpers.display.units import printable
from scripts.helpers.metrics.signs_of_life import silence
from scripts.helpers.protocol.head import Head


@command("release")
@job_argument
@click.option("--run", "run_id", metavar="RUN", help="Only if this run owns the job.")
@deciding()
def release(around: Surroundings, job: str, run_id: str | None, said: Said) -> None:
    """End the lease of a dead run, so that the next run can begin at once and replay its batch.

    Watermarks, version and open plan stay. If the run is alive after all, it can no longer commit.
    """
    before = read_job(around, job)
    check_owner(before, run_id)
    if before.claim is not None:
        # As in `decide`: with --output json and --yes, only the JSON document is printed.
        if not (around.is_json and said.yes):
            _show(around, before)
        asked(around, f"Release job {printable(job)}?", yes=said.yes)
    with progress(around, f"releasing {printable(job)}"):
        done = around.watermarks.release(job, run_id=run_id, why=said.why, who=said.who, expected=before)
    if around.is_json:
        now = around.now()
        emit({"before": head_json(before, now), "after": head_json(done, now), "released": done.fence != before.fence})
    elif before.claim is None:
        around.out.print("No run owns the job. Nothing was changed.")
    else:
        around.out.print(f"Done: the next run can begin. The version is still {done.version:,}.", style="green")


def _show(around: Surroundings, head: Head) -> None:
    out, claim, now = around.shown, head.claim, around.now()
    assert claim is not None
    out.print(Text.assemble("Job ", (printable(head.job_id), "bold"), f" in table {printable(around.table)}"))
    out.print(
        f"Run {printable(claim.run_id)} owns it since {moment(claim.since)}, lease until {moment(claim.lease_until)}."
    )
    if (silent := silence(head, now)) is not None:
        out.print(f"Last sign of life {ago(silent)}.")
    if head.plan is not None:
        out.print(f"The open plan stays. The next run replays it as version {head.version + 1:,}.")
    out.print("If the run is still alive, it can no longer commit.", style="red")
