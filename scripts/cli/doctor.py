"""`watermarks doctor`: what is wrong with a job, and its repair."""

from __future__ import annotations

import sys
from typing import Any

import click

from scripts.cli.commands import command, job_argument, read_job
from scripts.cli.deciding import asked, deciding
from scripts.cli.documents import emit
from scripts.cli.progress import progress
from scripts.cli.screen import show_rows
from scripts.cli.surroundings import Surroundings
from scripts.helpers.batch.leftovers import examine_targets
from scripts.helpers.decisions.doctor import DAMAGED, Finding
from scripts.helpers.display.units import printable
from scripts.helpers.errors import CorruptItemError
from scripts.jobs.exit_codes import FAILED


@command("doctor")
@job_argument
@click.option(
    "--repair",
    is_flag=True,
    help="Write missing log entries; delete unused chunks and staged files.",
)
@click.option("--targets/--no-targets", default=True, help="Whether to check the job's target folders, too.")
@click.option(
    "--after-restore", is_flag=True, help="Start a new epoch after a restore, so that batch ids are not reused."
)
@deciding(why_needed=False, why="The reason, for the history. --after-restore requires it.")
def doctor(
    around: Surroundings,
    job: str,
    repair: bool,
    targets: bool,
    after_restore: bool,
    why: str | None,
    who: str | None,
    yes: bool,
) -> None:
    """Check a job for problems. Exit code 1 if there is one.

    Only --repair and --after-restore change something. Both ask for confirmation.
    """
    if after_restore and not why:
        raise click.UsageError("--after-restore needs --why.")
    # What is asked about must still be so when it is changed; merely looking needs no such check.
    before = None
    if repair or after_restore:
        before = read_job(around, job)
        lines = []
        if after_restore:
            lines.append("A new epoch is started; an open plan is dropped.")
        if repair:
            lines.append("Missing log entries are written; chunks and staged files that nobody needs are deleted.")
        asked(around, f"{'Repair' if repair else 'Change'} job {printable(job)}?", lines, yes)
    with progress(around, f"examining {printable(job)}"):
        # Without a reason, `Watermarks.doctor` has a default of its own, which None would not be.
        given: dict[str, Any] = {"why": why} if why else {}
        findings = around.watermarks.doctor(
            job, repair=repair, after_restore=after_restore, who=who, expected=before, **given
        )
        # Its targets are told by the head and the history: by damaged ones nothing is looked for, and nothing deleted.
        if targets and not any(one.kind == DAMAGED for one in findings):
            findings += _examined_targets(around, job, repair)
    if around.is_json:
        emit({"job": job, "findings": [vars(finding) for finding in findings]})
    elif not findings:
        around.out.print("No problems found.")
    else:
        rows = [[one.kind, one.detail, "repaired" if one.repaired else one.remedy] for one in findings]
        show_rows(around.out, ("found", "what", "remedy"), rows)
    if any(not finding.repaired for finding in findings):
        sys.exit(FAILED)


def _examined_targets(around: Surroundings, job: str, repair: bool) -> list[Finding]:
    try:
        return examine_targets(around.watermarks, job, repair=repair)
    except (KeyError, TypeError, AttributeError, CorruptItemError) as error:
        detail = error.detail if isinstance(error, CorruptItemError) else f"{type(error).__name__} while reading it"
        return [Finding(DAMAGED, f"what was recorded of its targets: {detail}", "Restore the item from a backup.")]
