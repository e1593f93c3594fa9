"""`watermarks files`: files that could not be read, and what is to become of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from scripts.cli.commands import command, context_option, job_argument, read_job
from scripts.cli.contexts import state_in
from scripts.cli.deciding import Said, deciding, declare
from scripts.cli.documents import emit
from scripts.cli.progress import progress
from scripts.cli.screen import moment, show_rows
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import printable
from scripts.helpers.files.set_aside import RETRY, SKIP
from scripts.helpers.files.states import FilesPlan, FilesState
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.lookups import PLANS
from scripts.helpers.states import typed

SHOWN = {RETRY: "the next run takes it", SKIP: "done; off the list with the next run"}


@command("files")
@job_argument
@context_option
@click.option("--set-aside", is_flag=True, help="List files that could not be read. This is the default.")
@click.option("--retry", multiple=True, metavar="KEY", help="Let the next run take this file again. Repeatable.")
@click.option("--retry-all", is_flag=True, help="Let the next run take all of them again.")
@click.option("--skip", multiple=True, metavar="KEY", help="Count this file as done. Repeatable.")
@deciding(why_needed=False)
def files(
    around: Surroundings,
    job: str,
    context: str | None,
    set_aside: bool,
    retry: Sequence[str],
    retry_all: bool,
    skip: Sequence[str],
    said: Said,
) -> None:
    """List files that a job could not read, and retry or skip them.

    A job with on_unreadable="set_aside" sets such files aside and takes the rest of their batch. KEY is the key
    that the list shows.
    """
    if set_aside and (retry or retry_all or skip):
        raise click.UsageError("--set-aside lists files. Omit it to retry or skip files.")
    if both := sorted(set(retry) & set(skip)):
        raise click.UsageError(f"{both[0]!r} is given to --retry and --skip. Choose one.")
    if retry_all and (retry or skip):
        raise click.UsageError("--retry-all includes all files. Omit --retry and --skip.")
    with progress(around, f"reading {printable(job)}"):
        before = read_job(around, job)
        name, state = state_in(around, job, context, "files")
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
