"""`watermarks export`: jobs as a file, to move them between tables and accounts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click

from scripts.cli.commands import JobName, command
from scripts.cli.deciding import may_write
from scripts.cli.documents import emit
from scripts.cli.progress import progress
from scripts.cli.surroundings import Surroundings
from scripts.helpers.decisions.transfer import export_jobs
from scripts.helpers.display.units import count_of, printable
from scripts.helpers.protocol.jobs import list_jobs
from scripts.jobs.exit_codes import FAILED

STANDARD = "-"
"""Stands for standard input or output, as a file's name."""
SHOWN = 20
"""Jobs at work that are named: the names of a large table would push the numbers off the screen."""


@command("export")
@click.argument("names", nargs=-1, type=JobName())
@click.option("--prefix", metavar="TEXT", help="All jobs whose names begin with TEXT.")
@click.option("--all", "everything", is_flag=True, help="All jobs of the table.")
@click.option("--file", "path", default=STANDARD, metavar="PATH", help="File to write (standard output).")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def export(
    around: Surroundings, names: Sequence[str], prefix: str | None, everything: bool, path: str, force: bool
) -> None:
    """Export jobs to a file of JSON lines.

    The file holds all watermark items of the jobs, unchanged. It does not hold the job definitions, runs and
    triggers of the Job Runs API: create those again at the destination. Stop the jobs before you move them,
    as the file lacks what they do afterwards. With --prefix or --all, a job with damaged items is left out,
    and the exit code is 1.
    """
    if sum([bool(names), prefix is not None, everything]) != 1:
        raise click.UsageError("Give either names of jobs, --prefix or --all.")
    if path == STANDARD and around.is_json:
        raise click.UsageError("The export is written to standard output. Give --file, or omit --output.")
    if path != STANDARD:
        may_write(Path(path), force)
    wanted, triggers = list(dict.fromkeys(names)), 0
    if not names:
        with progress(around, "listing jobs") as steps:
            listed = list_jobs(around.store, on_page=lambda found, _: steps.at(found, unit="jobs"))
        wanted = [job.job_id for job in listed.jobs if job.job_id.startswith(prefix or "")]
        triggers = sum(name.startswith(prefix or "") for name in listed.triggers)
    with _target(path) as target, progress(around, "exporting", len(wanted)) as steps:
        done = export_jobs(
            around.store, wanted, target, around.now(), lambda count: steps.at(count, len(wanted), "jobs"),
            listed=not names,
        )  # fmt: skip
    # A trigger without a job has items under a name of its own, which is not among the jobs that were exported.
    done.left_out += triggers
    if done.at_work:
        names_at_work = ", ".join(map(printable, done.at_work[:SHOWN]))
        around.err.print(f"warning: a run was at work on {names_at_work}: stop it, and export again.", style="yellow")
    for job_id, problem in done.damaged.items():
        around.err.print(f"warning: left out {printable(job_id)}: {printable(problem)}", style="red")
    if around.is_json:
        emit({"table": around.table, "file": path, **vars(done)})
    else:
        around.err.print(f"Exported {count_of(done.jobs, 'job')}, {count_of(done.items, 'item')}.")
        if done.left_out:
            around.err.print(f"Left out: {count_of(done.left_out, 'item')} of the Job Runs API.", style="yellow")
    if done.damaged:
        raise click.exceptions.Exit(FAILED)


@contextmanager
def _target(path: str) -> Iterator[IO[bytes]]:
    """Open a file that has its name only once it is whole."""
    if path == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    # A file that was cut off half-way would be taken for a whole one later, by its name.
    partial = Path(f"{path}.part")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
