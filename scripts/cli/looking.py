"""Commands that look at one job: show, history, diff, explain, runs, doctor."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click
from rich.text import Text

from scripts.cli.commands import command, context_option, job_argument
from scripts.cli.deciding import asked, deciding, read_job
from scripts.cli.differing import differences, entry_of, show_differences
from scripts.cli.layout import Cell, emit, show_facts, show_rows
from scripts.cli.progress import progress
from scripts.cli.surroundings import Surroundings
from scripts.cli.texts import (
    NONE,
    ago,
    entry_json,
    head_json,
    moment,
    planned_text,
    printable,
    state_of,
    state_text,
)
from scripts.helpers.display.units import count_text, duration_text, id_text, size_text
from scripts.helpers.errors import ConfigurationError, InvalidValueError
from scripts.helpers.metrics.freshness import age, lag
from scripts.helpers.protocol.head import Head, LogEntry
from scripts.helpers.protocol.history import BYTES, FILES, ROWS, counted
from scripts.helpers.protocol.values import Spilled

FILE_OPTIONS = [
    click.option("--include", multiple=True, metavar="GLOB", help="As the job gives it; again for more."),
    click.option("--exclude", multiple=True, metavar="GLOB", help="As the job gives it; again for more."),
    click.option("--min-size", type=click.IntRange(0), default=0, metavar="BYTES", help="As the job gives it."),
    click.option("--versioned", is_flag=True, help="As the job gives it."),
    click.option("--ledger-uri", metavar="URI", help="Where the job keeps its ledger, if not in the table."),
]


def file_options(function: Any) -> Any:
    """Add the options by which a job chooses files: they are in its code, not in its state."""
    for option in reversed(FILE_OPTIONS):
        function = option(function)
    return function


@command("show")
@job_argument
def show(around: Surroundings, job: str) -> None:
    """Show one job: watermarks, last version, open plan, owner."""
    head, now = read_job(around, job), around.now()
    if around.is_json:
        emit({**head_json(head, now), "watermarks": head.watermarks, "plan": head.plan.contexts if head.plan else None})
        return
    facts: list[tuple[str, Cell]] = [
        ("job", Text(printable(head.job_id), "bold")),
        ("state", state_of(head, now)),
        ("version", f"{head.version:,}"),
        ("epoch", printable(head.epoch)),
    ]
    if (behind := lag(head, now)) is not None:
        facts.append(("lag", duration_text(behind)))
    if head.last is not None:
        facts.append(("last", f"{head.last.op} {ago(age(head, now))}, at {moment(head.last.at)}"))
        facts.append(("run in force", printable(head.last.run_id or NONE)))
        if head.last.who:
            facts.append(("who", printable(head.last.who)))
            facts.append(("why", printable(head.last.why or "")))
    facts += _owner(head, now)
    show_facts(around.out, facts)
    around.out.print()
    if head.watermarks:
        rows = [[printable(name), _kind(state), state_text(state)] for name, state in sorted(head.watermarks.items())]
        show_rows(around.out, ("watermark", "kind", "value"), rows)
    else:
        around.out.print("No watermarks: the next run takes everything.")
    if head.plan is not None:
        around.out.print()
        plan = [[printable(name), planned_text(part)] for name, part in sorted(head.plan.contexts.items())]
        around.out.print("The open plan takes:")
        show_rows(around.out, ("context", "takes"), plan)


def _owner(head: Head, now: datetime) -> list[tuple[str, Cell]]:
    if head.claim is None:
        return [("owner", "none; the next run replays the open plan")] if head.plan else []
    over = now >= head.claim.lease_until
    lease = f"over since {moment(head.claim.lease_until)}" if over else f"until {moment(head.claim.lease_until)}"
    return [
        ("owner", printable(head.claim.run_id)),
        ("attempt", f"{head.claim.attempt}, since {moment(head.claim.since)}"),
        ("lease", Text(lease, "yellow" if over else "")),
    ]


def _kind(state: Any) -> str:
    if isinstance(state, Mapping) and isinstance(state.get("kind"), str):
        return printable(state["kind"])
    return "in chunks" if isinstance(state, Spilled) else "value"


@command("history")
@job_argument
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="At most so many.")
@click.option("--before", type=click.IntRange(1), metavar="VERSION", help="Only versions below this one.")
def history(around: Surroundings, job: str, limit: int, before: int | None) -> None:
    """Show the versions of a job: who made them, when and why."""
    with progress(around, "reading versions"):
        entries = around.watermarks.history(job, limit, before)
    if around.is_json:
        emit({"job": job, "history": [entry_json(entry) for entry in entries]})
        return
    if not entries:
        around.out.print("No version yet.")
        return
    headings = ("version", "op", "at", "run", "took", "rows", "files", "bytes", "who", "why")
    right = ("version", "took", "rows", "files", "bytes")
    show_rows(around.out, headings, [_entry_row(entry) for entry in entries], right)
    if entries[-1].version > 1 and len(entries) == limit:
        around.out.print(f"Older ones: --before {entries[-1].version}", style="dim")


def _entry_row(entry: LogEntry) -> list[Cell]:
    rows, files, size = (counted(entry, names) for names in (ROWS, FILES, BYTES))
    change = entry.change
    return [
        f"{entry.version:,}",
        change.op,
        moment(change.at),
        printable(id_text(change.run_id)) if change.run_id else NONE,
        duration_text(entry.duration) if entry.duration is not None else NONE,
        count_text(rows) if rows is not None else NONE,
        count_text(files) if files is not None else NONE,
        size_text(int(size)) if size is not None else NONE,
        printable(change.who or ""),
        printable(change.why or ""),
    ]


@command("diff")
@job_argument
@click.argument("version", type=click.IntRange(1), required=False)
@click.argument("other", type=click.IntRange(1), required=False)
def diff(around: Surroundings, job: str, version: int | None, other: int | None) -> None:
    """Show what changed between two versions of a job.

    Without OTHER it is the present one, without VERSION the one before the present one.
    """
    with progress(around, f"reading versions of {printable(job)}"):
        head = around.watermarks.latest(job)
        newest = entry_of(around, job, other or head.version, head)
        oldest = entry_of(around, job, version or max(newest.version - 1, 1), head)
    changes = differences(oldest.watermarks, newest.watermarks)
    if around.is_json:
        ends = {"from": entry_json(oldest), "to": entry_json(newest)}
        emit({"job": job, **ends, "changes": [{"watermark": n, "from": b, "to": a} for n, b, a in changes]})
        return
    for name, entry in (("from", oldest), ("to", newest)):
        change = entry.change
        by = f" by {printable(id_text(change.run_id))}" if change.run_id else ""
        said = f"{name.ljust(5)}version {entry.version:,}: {printable(change.op)}, {moment(change.at)}{by}"
        around.out.print(said, style="dim")
    if not changes:
        around.out.print("No watermark differs.")
        return
    show_differences(around.out, changes)


@command("explain")
@job_argument
@click.argument("key")
@context_option
@file_options
def explain(around: Surroundings, job: str, key: str, context: str | None, **options: Any) -> None:
    """Say when and by which run a file was taken, or why not.

    KEY is relative to the source, or the whole URI.
    """
    bookmark_of = file_bookmark()
    with progress(around, f"reading {printable(job)}"):
        name, state = state_in(around, job, context, "files")
    source = state["source"]
    given = {option: value for option, value in options.items() if value}
    bookmark = bookmark_of(source, state=state, context=name, mode=state["mode"], **given)
    relative = key.replace("s3a://", "s3://", 1).removeprefix(source)
    if source.startswith("file://"):
        relative = relative.removeprefix(source.removeprefix("file://"))
    with progress(around, f"looking at {printable(relative)}"):
        found = bookmark.explain(relative)
    if around.is_json:
        emit({"job": job, "context": name, "source": source, **found._asdict()})
        return
    facts: list[tuple[str, Cell]] = [
        ("file", Text(printable(found.key), "bold")),
        ("status", found.status),
        ("why", printable(found.reason)),
    ]
    if found.size is not None:
        facts.append(("size", f"{found.size:,} bytes"))
    if found.modified is not None:
        facts.append(("modified", moment(found.modified)))
    facts.append(("source", printable(source)))
    show_facts(around.out, facts)


def file_bookmark() -> Any:
    """Import the class that lists sources of files; ConfigurationError where what it needs is not installed."""
    try:
        from scripts.helpers.files.bookmark import FileBookmark
    except ImportError as error:
        raise ConfigurationError(
            f"Looking at files needs {error.name}. Install it: pip install 'glue-watermarks[files]'."
        ) from error
    return FileBookmark


def state_in(around: Surroundings, job: str, context: str | None, kind: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the state of a context of some kind, the only one if none is named."""
    watermarks = around.watermarks.get_watermark_values(job)
    names = sorted(
        name for name, state in watermarks.items() if isinstance(state, Mapping) and state.get("kind") == kind
    )
    if context is None and len(names) == 1:
        context = names[0]
    if context not in names:
        asked_for = f"no context {context!r}" if context else "several contexts" if names else "no context"
        raise InvalidValueError(
            f"Job {job!r} has {asked_for} of {kind}. It has: {', '.join(names) or 'none'}. Choose with --context."
        )
    return context, dict(watermarks[context])


@command("doctor")
@job_argument
@click.option("--repair", is_flag=True, help="Write log entries that are missing, delete chunks that nothing needs.")
@click.option("--after-restore", is_flag=True, help="Start a new epoch: no batch id of before the restore comes again.")
@deciding(why_needed=False, why="The reason; --after-restore needs it and keeps it in the history.")
def doctor(
    around: Surroundings, job: str, repair: bool, after_restore: bool, why: str | None, who: str | None, yes: bool
) -> None:
    """Look for what is wrong with a job. Exit code 1 if something is.

    It changes nothing but with --repair or --after-restore; these ask, and --after-restore needs --why.
    """
    if after_restore and not why:
        raise click.UsageError("--after-restore needs --why.")
    before = None
    if repair or after_restore:
        before = read_job(around, job)
        lines = ["A new epoch is started; an open plan is dropped."] if after_restore else []
        lines += ["Missing log entries are written, chunks that nothing refers to are deleted."] if repair else []
        asked(around, f"{'Repair' if repair else 'Change'} job {printable(job)}?", lines, yes)
    with progress(around, f"examining {printable(job)}"):
        given: dict[str, Any] = {"why": why} if why else {}
        findings = around.watermarks.doctor(
            job, repair=repair, after_restore=after_restore, who=who, expected=before, **given
        )
    if around.is_json:
        emit({"job": job, "findings": [vars(finding) for finding in findings]})
    elif not findings:
        around.out.print("Nothing is wrong.")
    else:
        rows = [[one.kind, printable(one.detail), "repaired" if one.repaired else one.remedy] for one in findings]
        show_rows(around.out, ("found", "what", "remedy"), rows)
    if any(not finding.repaired for finding in findings):
        sys.exit(1)


COMMANDS = [show, history, diff, explain, doctor]
