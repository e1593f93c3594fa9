"""`watermarks export` and `import`: move jobs between tables and accounts."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click

from scripts.cli.commands import Job, command
from scripts.cli.deciding import asked, deciding
from scripts.cli.layout import Cell, emit, show_rows
from scripts.cli.progress import progress
from scripts.cli.surroundings import Surroundings
from scripts.cli.texts import NONE, count_of, printable
from scripts.helpers.decisions.decisions import make_order
from scripts.helpers.decisions.transfer import ImportPlan, export_jobs, import_jobs, plan_import
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.protocol.jobs import list_jobs

STANDARD = "-"
SHOWN = 20
STEPS = {
    "new": "is new",
    "continue": "goes on where an import ended",
    "same": "is there already",
    "replace": "replaced",
    "epoch": "starts a new epoch",
}
WHY = "The reason; --replace and --new-epoch need it and keep it in the history."


@command("export")
@click.argument("names", nargs=-1, type=Job())
@click.option("--prefix", metavar="TEXT", help="All jobs whose names begin so.")
@click.option("--all", "everything", is_flag=True, help="All jobs of the table.")
@click.option("--file", "path", default=STANDARD, metavar="PATH", help="Where to; default: standard output.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def export(
    around: Surroundings, names: Sequence[str], prefix: str | None, everything: bool, path: str, force: bool
) -> None:
    """Write jobs to a file of JSON lines.

    Every item of their watermarks is written as it is. What the Job Runs API keeps is left out:
    definitions of jobs, records of runs, and triggers. Make those anew where the jobs go. Stop the
    jobs before you move them: what they do afterwards is not in the file.
    """
    if sum([bool(names), prefix is not None, everything]) != 1:
        raise click.UsageError("Give names of jobs, or --prefix, or --all.")
    if path == STANDARD and around.is_json:
        raise click.UsageError("The export itself goes to standard output. Give --file, or leave --output out.")
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
    done.left_out += triggers
    if done.at_work:
        names_at_work = ", ".join(map(printable, done.at_work[:SHOWN]))
        around.err.print(f"warning: a run was at work on {names_at_work}: stop it, and export again.", style="yellow")
    if around.is_json:
        emit({"table": around.table, "file": path, **vars(done)})
    else:
        around.err.print(f"Exported {count_of(done.jobs, 'job')}, {count_of(done.items, 'item')}.")
        if done.left_out:
            around.err.print(f"Left out: {count_of(done.left_out, 'item')} of the Job Runs API.", style="yellow")


def may_write(path: Path, force: bool) -> None:
    """Refuse to write over a file, unless told to; InvalidValueError."""
    if path.is_file() and not force:
        raise InvalidValueError(f"File {str(path)!r} is there already. Give another name, or --force.")


@contextmanager
def _target(path: str) -> Iterator[IO[bytes]]:
    """Open a file that has its name only once it is whole."""
    if path == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    partial = Path(f"{path}.part")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@command("import")
@click.argument("path", metavar="FILE")
@click.option("--replace", is_flag=True, help="Put jobs in the place of those that are there; in a new epoch.")
@click.option("--new-epoch", is_flag=True, help="For a copy beside the original: batch ids of its own.")
@deciding(why_needed=False, why=WHY)
def import_(
    around: Surroundings, path: str, replace: bool, new_epoch: bool, why: str | None, who: str | None, yes: bool
) -> None:
    """Read jobs from a file that export wrote.

    FILE may be - for standard input. The whole file is checked before anything is written. Jobs
    keep their epoch, so sinks know the batches they have taken.
    """
    if (replace or new_epoch) and why is None:
        raise click.UsageError("--replace and --new-epoch make versions. Give --why, which the history keeps.")
    order = make_order(who, why, around.now()) if why is not None else None
    with _source(path) as source:
        with progress(around, "checking the file") as steps:
            plan = plan_import(
                around.store, source, replace=replace, new_epoch=new_epoch,
                on_job=lambda count: steps.at(count, unit="jobs"),
            )  # fmt: skip
        if not (around.is_json and yes):
            _show(around, plan)
        todo = [job for job, step in plan.steps.items() if step != "same"]
        if todo:
            question = f"Import {count_of(len(todo), 'job')} into table {around.table}?"
            if path == STANDARD and not yes:
                raise click.UsageError("The file comes from standard input, so nobody can be asked. Pass --yes.")
            asked(around, question, yes=yes)
            with progress(around, "importing", len(todo)) as steps:
                import_jobs(around.store, plan, order, on_job=lambda count: steps.at(count, len(todo), "jobs"))
    if around.is_json:
        emit({"table": around.table, "from": plan.exported.table, "jobs": dict(plan.steps)})
    else:
        around.out.print(f"Done: {count_of(len(todo), 'job')} imported.", style="green")


def _show(around: Surroundings, plan: ImportPlan) -> None:
    """Write what an import would do, and what is lost by it."""
    out, rows = around.shown, _rows(plan)
    if rows:
        show_rows(out, ("job", "step", "version now", "version after", "lost"), rows[:SHOWN])
    if len(rows) > SHOWN:
        out.print(f"… and {len(rows) - SHOWN:,} more", style="dim")
    read = f"{count_of(plan.exported.count, 'item')} of {count_of(len(plan.steps), 'job')}"
    out.print(f"{read}, from table {printable(plan.exported.table)}", style="dim")


def _lost(plan: ImportPlan, job: str) -> str:
    """Say what an import drops of a job: the history that is there, and open plans."""
    lost = ["its history here"] if plan.steps[job] == "replace" else []
    heads = [plan.exported.heads.get(job) if plan.starts_epoch(job) else None, plan.present.get(job)]
    return ", ".join([*lost, *["the open plan"] * any(head is not None and head.plan is not None for head in heads)])


def _rows(plan: ImportPlan) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for job, step in plan.steps.items():
        head, present = plan.exported.heads.get(job), plan.present.get(job)
        rows.append(
            [
                printable(job),
                STEPS[step],
                f"{present.version:,}" if present else NONE,
                f"{head.version + plan.starts_epoch(job):,}" if head else "no head",
                _lost(plan, job),
            ]
        )
    return rows


@contextmanager
def _source(path: str) -> Iterator[Path]:
    """Return a file that can be read twice."""
    if path != STANDARD:
        yield Path(path)
        return
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as spool:
        shutil.copyfileobj(sys.stdin.buffer, spool)
        spool.flush()
        yield Path(spool.name)


COMMANDS = [export, import_]
