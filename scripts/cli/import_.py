"""`watermarks import`: jobs out of a file that `export` wrote."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from scripts.cli.commands import command
from scripts.cli.deciding import asked, deciding
from scripts.cli.documents import emit
from scripts.cli.export import SHOWN, STANDARD
from scripts.cli.progress import progress
from scripts.cli.screen import NONE, Cell, show_rows
from scripts.cli.surroundings import Surroundings
from scripts.helpers.decisions.decisions import make_order
from scripts.helpers.decisions.transfer import ImportPlan, import_jobs, plan_import
from scripts.helpers.display.units import count_of, printable

STEPS = {
    "new": "is new",
    "continue": "continues an interrupted import",
    "same": "exists already",
    "replace": "replaced",
    "epoch": "starts a new epoch",
}
WHY = "The reason, for the history. --replace and --new-epoch require it."


@command("import")
@click.argument("path", metavar="FILE")
@click.option("--replace", is_flag=True, help="Replace jobs that exist, in a new epoch.")
@click.option("--new-epoch", is_flag=True, help="New batch ids, for a copy that runs next to the original.")
@deciding(why_needed=False, why=WHY)
def import_(
    around: Surroundings, path: str, replace: bool, new_epoch: bool, why: str | None, who: str | None, yes: bool
) -> None:
    """Import jobs from a file that `export` wrote.

    FILE can be - for standard input. The command checks the whole file before it writes anything. Jobs keep
    their epoch, so sinks recognize the batches that they have taken.
    """
    if (replace or new_epoch) and why is None:
        raise click.UsageError(
            "--replace and --new-epoch create versions. Give the reason for the history: --why TEXT."
        )
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
                raise click.UsageError(
                    "The file is read from standard input, so the command cannot ask for confirmation. Pass --yes."
                )
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
    lost = []
    if plan.steps[job] == "replace":
        lost.append("its history here")
    heads = [plan.present.get(job)]
    # An open plan of the file is kept with its epoch only: the batch ids of a new epoch are not those it wrote with.
    if plan.starts_epoch(job):
        heads.append(plan.exported.heads.get(job))
    if any(head is not None and head.plan is not None for head in heads):
        lost.append("the open plan")
    return ", ".join(lost)


def _rows(plan: ImportPlan) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for job, step in plan.steps.items():
        head, present = plan.exported.heads.get(job), plan.present.get(job)
        rows.append(
            [
                job,
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
    # The file is read twice, to check it before anything is written; standard input can be read once.
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as spool:
        shutil.copyfileobj(sys.stdin.buffer, spool)
        spool.flush()
        yield Path(spool.name)
