"""`watermarks history`: the versions of a job, the differences between two versions, and the job's runs."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.text import Text

from scripts.cli.commands import check_options, command, job_argument
from scripts.cli.diff import show_diff
from scripts.cli.documents import emit, entry_json, releases_json
from scripts.cli.progress import progress
from scripts.cli.runs import show_runs
from scripts.cli.screen import released_text, show_folded, show_table
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import printable
from scripts.helpers.protocol.head import Release
from scripts.helpers.protocol.history import History

MODES = {"": ("limit", "before"), "diff": ("version", "other"), "runs": ("limit", "glue")}


@command("history")
@job_argument
@click.argument("version", type=click.IntRange(1), required=False)
@click.argument("other", type=click.IntRange(1), required=False)
@click.option("--diff", is_flag=True, help="Show what changed between the versions VERSION and OTHER.")
@click.option("--runs", is_flag=True, help="Show the job's runs, from the Job Runs API of this package.")
@click.option("--glue", is_flag=True, help="With --runs: the runs in AWS Glue (glue:GetJobRuns).")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    metavar="N",
    help="Show at most N versions or runs.",
)
@click.option("--before", type=click.IntRange(1), metavar="VERSION", help="Only versions below this one.")
def history(
    around: Surroundings,
    job: str,
    version: int | None,
    other: int | None,
    diff: bool,
    runs: bool,
    glue: bool,
    limit: int,
    before: int | None,
) -> None:
    """Show the versions of a job: who made them, when and why.

    With --diff, OTHER defaults to the current version, VERSION to the one before the current version.
    """
    check_options(MODES)
    if diff:
        show_diff(around, job, version, other)
    elif runs:
        show_runs(around, job, limit, glue)
    else:
        _show_versions(around, job, limit, before)


def _show_versions(around: Surroundings, job: str, limit: int, before: int | None) -> None:
    with progress(around, "reading versions"):
        head = around.watermarks.latest(job)
        entries = History(around.watermarks.lookups.versions(head, limit, before), job)
    releases = head.releases if before is None else ()
    if around.is_json:
        history = [entry_json(entry) for entry in entries]
        emit({"job": job, "history": history, "releases": releases_json(releases)})
        return
    if entries:
        show_table(around.out, entries)
    else:
        around.out.print("No versions yet.")
    _show_releases(around, "Since then", releases)
    for entry in entries:
        _show_releases(around, f"Before version {entry.version:,}", entry.change.releases)
    if not entries:
        return
    if entries[-1].version > 1 and len(entries) == limit:
        around.out.print(f"For older versions: --before {entries[-1].version}", style="dim")


def _show_releases(around: Surroundings, when: str, releases: Sequence[Release]) -> None:
    for release in releases:
        show_folded(around.out, Text(printable(f"{when} released: {released_text(release)}")))
