"""`watermarks ledger`: where a job remembers its files, whether that is whole, and what is left over."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from scripts.cli.commands import Duration, command, context_option, job_argument
from scripts.cli.contexts import file_bookmark, ledger_option, state_in
from scripts.cli.deciding import asked
from scripts.cli.documents import emit
from scripts.cli.progress import progress
from scripts.cli.screen import Cell, moment, show_facts, show_rows
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import count_of, printable, size_text
from scripts.jobs.exit_codes import FAILED

if TYPE_CHECKING:
    from scripts.helpers.batch.ledger import JobLedger, Sweep
    from scripts.helpers.files.upkeep import Flaw, LedgerPart

SHOWN = 10
"""Files that a sweep names before it asks; a program gets all of them."""


@command("ledger")
@job_argument
@click.argument("action", type=click.Choice(["files", "verify", "sweep"]))
@context_option
@ledger_option
@click.option("--older-than", type=Duration(), metavar="TIME", help="sweep: delete only files older than this (8d).")
@click.option("--yes", is_flag=True, help="sweep: skip the confirmation.")
def ledger(
    around: Surroundings,
    job: str,
    action: str,
    context: str | None,
    ledger_uri: str | None,
    older_than: timedelta | None,
    yes: bool,
) -> None:
    """Inspect and repair the ledger of a job, which stores the files that the job has taken.

    \b
    files    list the files that the state and the open plan refer to
    verify   read them; exit code 1 if one is missing, altered, unsorted or has another count
    sweep    delete files older than 8 days that no job of the table refers to
    """  # noqa: D301 - click keeps the lines after a backspace as they are; a raw text has none.
    if action != "sweep" and (older_than or yes):
        raise click.UsageError(f"{'--older-than' if older_than else '--yes'} has no effect on {action}.")
    if action == "sweep" and ledger_uri is None:
        raise click.UsageError("Missing option '--ledger-uri'. A ledger in the table has no files.")
    with progress(around, f"reading {printable(job)}"):
        name, _ = state_in(around, job, context, "files")
        opened = _open(around, job, name, ledger_uri)
    if action == "files":
        _files(around, job, name, opened)
    elif action == "verify":
        _verify(around, job, name, opened)
    else:
        _sweep(around, job, opened, older_than, yes=yes)


def _open(around: Surroundings, job: str, context: str, ledger_uri: str | None) -> JobLedger:
    file_bookmark()  # Says what to install where the rest cannot be imported.
    from scripts.helpers.batch.ledger import JobLedger

    return JobLedger(around.watermarks, job, context, ledger_uri=ledger_uri)


def _files(around: Surroundings, job: str, context: str, opened: JobLedger) -> None:
    found = opened.files()
    if around.is_json:
        emit({"job": job, "context": context, "files": [_part_json(part, used_by) for part, used_by in found]})
        return
    if not found:
        around.out.print("The job has not stored any files yet.")
        return
    segments = len(opened.state.segments)
    rows: list[list[Cell]] = []
    for part, used_by in found:
        file = part.file or {}
        size = size_text(int(file["length"])) if "length" in file else "in the table"
        rows.append([printable(part.name(segments)), f"{part.rows:,}", size, used_by])
    show_rows(around.out, ("file", "rows", "size", "used by"), rows, ("rows", "size"))


def _verify(around: Surroundings, job: str, context: str, opened: JobLedger) -> None:
    with progress(around, f"reading the ledger of {printable(job)}"):
        flaws = opened.verify()
    count = len(opened.files()) if not flaws else None
    if around.is_json:
        emit({"job": job, "context": context, "whole": not flaws, "flaws": [_flaw_json(*flaw) for flaw in flaws]})
    elif not flaws:
        around.out.print(f"The ledger is whole: {count_of(count or 0, 'part')} read.")
    else:
        segments = len(opened.state.segments)
        rows: list[list[Cell]] = [
            [printable(flaw.part.name(segments)), flaw.kind, printable(flaw.detail), used_by] for flaw, used_by in flaws
        ]
        show_rows(around.out, ("file", "flaw", "detail", "used by"), rows)
        around.out.print(_remedy(job, context, {used_by for _, used_by in flaws}), style="dim")
    if flaws:
        raise click.exceptions.Exit(FAILED)


def _remedy(job: str, context: str, used_by: set[str]) -> str:
    remedy = "Restore the files, such as an older version of the object. "
    if "state" in used_by:
        return remedy + (
            f"Otherwise: watermarks reset {printable(job)} --context {printable(context)} --why TEXT, and then one run "
            "with start_from= the time of the last run. It remembers older files and does not read them."
        )
    return (
        remedy
        + f"Otherwise discard the plan, so that the next run makes a new one: watermarks discard-plan {printable(job)}"
    )


def _sweep(around: Surroundings, job: str, opened: JobLedger, older_than: timedelta | None, *, yes: bool) -> None:
    from scripts.helpers.files.upkeep import DEFAULT_AGE

    age = DEFAULT_AGE if older_than is None else older_than
    with progress(around, "looking at all jobs of the table"):
        shown = opened.to_sweep(age)
    if not (around.is_json and yes):
        _show_sweep(around, shown, age)
    deleted = 0
    if shown.leftovers.files:
        asked(around, f"Delete {count_of(len(shown.leftovers.files), 'file')}?", yes=yes)
        with progress(around, "deleting"):
            deleted = opened.sweep(shown, age)
    if around.is_json:
        left = shown.leftovers
        emit({
            "job": job, "folder": shown.folder.uri, "deleted": deleted, "bytes": left.bytes, "live": left.live,
            "young": left.young, "held": left.held, "foreign": left.foreign,
            "files": [file.name for file in left.files],
        })  # fmt: skip
    elif shown.leftovers.files:
        around.out.print(f"Done: {count_of(deleted, 'file')} deleted.", style="green")


def _show_sweep(around: Surroundings, shown: Sweep, age: timedelta) -> None:
    left, out = shown.leftovers, around.shown
    facts: list[tuple[str, Cell]] = [
        ("folder", printable(shown.folder.uri)),
        ("live", f"{count_of(left.live, 'file')} that jobs refer to"),
        ("left over", f"{count_of(len(left.files), 'file')}, {size_text(left.bytes)}"),
    ]
    if left.young:
        facts.append(("too young", f"{count_of(left.young, 'file')}, less than {_days(age)} old"))
    if shown.held_by is not None and shown.held_by.claim is not None:
        claim, holder = shown.held_by.claim, printable(shown.held_by.job_id)
        text = f"{count_of(left.held, 'file')} of after {moment(claim.since)}, when run {printable(claim.run_id)} of "
        facts.append(("held", f"{text}{holder} began. If it is dead: watermarks release {holder}"))
    if left.foreign:
        facts.append(("foreign", f"{count_of(left.foreign, 'file')} with names that no ledger has; they stay"))
    show_facts(out, facts)
    for file in left.files[:SHOWN]:
        out.print(f"  {printable(file.name)}  {size_text(file.size)}  {moment(file.modified)}")
    if len(left.files) > SHOWN:
        out.print(f"  and {len(left.files) - SHOWN:,} more")


def _part_json(part: LedgerPart, used_by: str) -> dict[str, Any]:
    file = part.file or {}
    shown: dict[str, Any] = {"file": file.get("file"), "segment": part.segment + 1, "count": part.rows}
    return {**shown, "bytes": file.get("length"), "used_by": used_by}


def _flaw_json(flaw: Flaw, used_by: str) -> dict[str, Any]:
    return {**_part_json(flaw.part, used_by), "flaw": flaw.kind, "detail": flaw.detail}


def _days(age: timedelta) -> str:
    return count_of(age.days, "day") if age == timedelta(days=age.days) else str(age)
