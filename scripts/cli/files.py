"""`watermarks files`: files that could not be read, what happened to one file, and unused ledger files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import click

from scripts.cli.commands import Duration, check_options, command, context_option, job_argument, read_job
from scripts.cli.contexts import file_options, state_in
from scripts.cli.deciding import Said, deciding, declare
from scripts.cli.documents import emit
from scripts.cli.explain import explain_file
from scripts.cli.progress import progress
from scripts.cli.screen import moment, show_rows
from scripts.cli.surroundings import Surroundings
from scripts.cli.sweeping import sweep as sweep_ledger
from scripts.helpers.display.units import printable
from scripts.helpers.files.set_aside import RETRY, SKIP
from scripts.helpers.files.states import FilesPlan, FilesState
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.lookups import PLANS
from scripts.helpers.states import typed

DECIDING = ("why", "who", "yes")
MODES = {
    "": ("context", "set_aside", "retry", "retry_all", "skip", *DECIDING),
    "explain": ("context", "include", "exclude", "min_size", "versioned", "ledger_uri"),
    "sweep": ("context", "ledger_uri", "older_than", "yes"),
}
SHOWN = {RETRY: "the next run takes it", SKIP: "done; off the list with the next run"}


@command("files")
@job_argument
@context_option
@click.option("--set-aside", is_flag=True, help="List files that could not be read. This is the default.")
@click.option("--retry", multiple=True, metavar="KEY", help="Let the next run take this file again. Repeatable.")
@click.option("--retry-all", is_flag=True, help="Let the next run take all of them again.")
@click.option("--skip", multiple=True, metavar="KEY", help="Count this file as done. Repeatable.")
@click.option("--explain", metavar="KEY", help="Show which run took this file and when, or why no run took it.")
@file_options
@click.option("--sweep", is_flag=True, help="Delete ledger files that no job of the table refers to.")
@click.option("--older-than", type=Duration(), metavar="TIME", help="With --sweep: only files older than this (8d).")
@deciding(why_needed=False)
def files(
    around: Surroundings,
    job: str,
    context: str | None,
    set_aside: bool,
    retry: Sequence[str],
    retry_all: bool,
    skip: Sequence[str],
    explain: str | None,
    sweep: bool,
    ledger_uri: str | None,
    older_than: timedelta | None,
    said: Said,
    **options: Any,
) -> None:
    """List, retry or skip files that a job could not read; explain one file; sweep the ledger's folder.

    A job with on_unreadable="set_aside" sets such files aside and takes the rest of their batch. KEY is the key
    that the list shows.

    --explain shows which run took a file and when, or why no run took it. KEY is a URI or a path. If it is relative
    to the source, the command shows the source and asks before it looks there.

    --sweep deletes ledger files older than 8 days that no job of the table refers to.
    """
    check_options(MODES)
    if explain is not None:
        explain_file(around, job, explain, context, ledger_uri=ledger_uri, **options)
        return
    if sweep and ledger_uri is None:
        raise click.UsageError("Missing option '--ledger-uri'. A ledger in the table has no files to sweep.")
    if set_aside and (retry or retry_all or skip):
        raise click.UsageError("--set-aside lists files. Omit it to retry or skip files.")
    if both := sorted(set(retry) & set(skip)):
        raise click.UsageError(f"{both[0]!r} is given to --retry and --skip. Choose one.")
    if retry_all and (retry or skip):
        raise click.UsageError("--retry-all includes all files. Omit --retry and --skip.")
    with progress(around, f"reading {printable(job)}"):
        before = read_job(around, job)
        name, state = state_in(around, job, context, "files")
    if sweep and ledger_uri is not None:
        sweep_ledger(around, job, ledger_uri, older_than, yes=said.yes)
        return
    listed = state.set_aside
    if not (retry or skip or (retry_all and listed)):
        _show(around, name, state, before)
        return
    if not said.why:
        raise click.UsageError("Missing option '--why'. Give the reason for the history.")
    after = state.decided(listed if retry_all else retry, RETRY).decided(skip, SKIP).to_store()
    declare(around, said, before, after, name)


def _show(around: Surroundings, name: str, state: FilesState, head: Head) -> None:
    entries = [entry for _, entry in sorted(state.set_aside.items())]
    if around.is_json:
        found = [{**asdict(entry), "run": entry.run_id} for entry in entries]
        for one in found:
            del one["run_id"]
        emit({"job": head.job_id, "context": name, "source": state.source, "set_aside": found})
        return
    planned = head.plan.contexts.get(name) if head.plan is not None else None
    planned = typed(planned, PLANS)
    more = planned.set_aside if isinstance(planned, FilesPlan) else 0
    if more:
        around.out.print(f"The open plan sets {more:,} more aside. They appear here after its commit.", style="yellow")
    if not entries:
        around.out.print("No file is set aside.")
        return
    rows = [
        [
            printable(entry.key), printable(entry.reason), f"{entry.version:,}", moment(entry.modified),
            SHOWN.get(entry.decision, ""),
        ]
        for entry in entries
    ]  # fmt: skip
    show_rows(around.out, ("file", "why", "version", "modified", "decided"), rows, ("version",))
