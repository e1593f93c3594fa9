"""`watermarks copy`: copy jobs to another table, where they continue."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import click

from scripts.cli.commands import JobName, command, read_job
from scripts.cli.deciding import asked
from scripts.cli.documents import emit
from scripts.cli.progress import progress
from scripts.cli.surroundings import Surroundings
from scripts.helpers.decisions.copying import Copied, copy_job
from scripts.helpers.display.units import count_of, printable
from scripts.helpers.errors import AccessRefusedError, StoreUnavailableError, UnknownJobError, WatermarkError
from scripts.helpers.protocol.changes import Changes
from scripts.helpers.protocol.jobs import list_jobs
from scripts.helpers.protocol.names import is_file
from scripts.helpers.protocol.store import Store
from scripts.jobs.exit_codes import FAILED

WRITERS = 8
"""How many jobs are copied at the same time. A copy only waits for its tables."""
SHOWN = 20
"""How many jobs are named, because all names of a large table would push the counts off the screen."""


@command("copy")
@click.argument("names", nargs=-1, type=JobName())
@click.option("--prefix", metavar="TEXT", help="All jobs whose names begin with TEXT.")
@click.option("--all", "everything", is_flag=True, help="All jobs of the table.")
@click.option("--from", "source", metavar="TABLE", help="Table that has the jobs (that of --table).")
@click.option("--to", "target", required=True, metavar="TABLE", help="Table to copy to; sqlite:PATH for a file.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
def copy(
    around: Surroundings,
    names: Sequence[str],
    prefix: str | None,
    everything: bool,
    source: str | None,
    target: str,
    yes: bool,
) -> None:
    """Copy jobs to another table, where they continue.

    All watermark items are copied unchanged, with those of the job's backfills. The job stays in the first table as
    it was, but its runs are refused there: give its script the other table. An interrupted copy is continued by the
    same command. The job definitions and runs of the Job Runs API are not copied: create those again. To another
    account or region, copy to a file, and from there. A job with a run at work or with damaged items is left out,
    and the exit code is 1.
    """
    if sum([bool(names), prefix is not None, everything]) != 1:
        raise click.UsageError("Give either names of jobs, --prefix or --all.")
    around = dataclasses.replace(around, table=source or around.table)
    to = dataclasses.replace(around, table=target).store
    if to.table.place == around.store.table.place:
        raise click.UsageError(f"{target} is the table that has the jobs. Give another one in --to.")
    wanted = _jobs_to_copy(around, names, prefix or "")
    count = count_of(len(wanted), "job")
    asked(around, f"Copy {count} from {around.table} to {target}? Their runs are refused in {around.table} then.", yes)
    _make_file(to, target, wanted)
    changes, copied = Changes(around.watermarks.lookups), dict[str, Copied]()
    refused: dict[str, WatermarkError] = {}

    def copy_one(job_id: str) -> None:
        try:
            copied[job_id] = copy_job(changes, to, job_id)
        except (AccessRefusedError, StoreUnavailableError):
            raise  # These errors would hit every job. Any other error leaves out only the one job.
        except WatermarkError as error:
            # If only the Job Runs API stores items under a listed name, the job has no head, and that is not an error.
            if names or not isinstance(error, UnknownJobError):
                refused[job_id] = error
            else:
                copied[job_id] = Copied(0, 1)

    def copy_named(name: str) -> None:
        # Copy slices before the record that names them, and list again: the record may name slices begun meanwhile.
        for _ in range(2):
            for job_id in around.watermarks.progress.jobs_of_backfills(name):
                if job_id not in copied:
                    copy_one(job_id)
                if job_id in refused:
                    return
        copy_one(name)

    with progress(around, "copying", len(wanted)) as steps, ThreadPoolExecutor(WRITERS) as pool:
        for done, _ in enumerate(pool.map(copy_named if names else copy_one, wanted), 1):
            steps.at(done, len(wanted), "jobs")
    if len(wanted) == 1 and refused:
        raise next(iter(refused.values()))
    _show(around, target, copied, refused)
    if refused:
        raise click.exceptions.Exit(FAILED)


def _jobs_to_copy(around: Surroundings, names: Sequence[str], prefix: str) -> list[str]:
    for name in names:
        read_job(around, name)  # Raise for an unknown job before the target file is created.
    if names:
        return list(dict.fromkeys(names))
    with progress(around, "listing jobs") as steps:
        listed = list_jobs(around.store, on_page=lambda found, _: steps.at(found, unit="jobs"))
    return [job.job_id for job in listed.jobs if job.job_id.startswith(prefix)]


def _make_file(to: Store, target: str, wanted: Sequence[str]) -> None:
    if wanted and is_file(target) and not to.table.exists(target):
        to.table.create()


def _show(around: Surroundings, target: str, copied: dict[str, Copied], refused: dict[str, WatermarkError]) -> None:
    counts = {job_id: one.items for job_id, one in sorted(copied.items())}
    left_out = sorted(job_id for job_id, one in copied.items() if one.left_out)
    if around.is_json:
        problems = {job_id: str(error) for job_id, error in sorted(refused.items())}
        emit({"from": around.table, "to": target, "jobs": counts, "left_out": left_out, "refused": problems})
        return
    for job_id, error in sorted(refused.items()):
        around.err.print(f"warning: left out {printable(job_id)}: {printable(str(error))}", style="red")
    jobs, found = count_of(sum(map(bool, counts.values())), "job"), count_of(sum(counts.values()), "item")
    around.out.print(f"Copied {jobs}, {found}.", style="green")
    if left_out:
        shown = ", ".join(map(printable, left_out[:SHOWN])) + (", …" if len(left_out) > SHOWN else "")
        around.err.print(f"warning: records of the Job Runs API were not copied, of {shown}", style="yellow")
