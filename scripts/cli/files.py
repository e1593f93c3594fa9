"""`watermarks files`: files that could not be read, and what is to become of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from scripts.cli.commands import command, context_option, job_argument, read_job
from scripts.cli.contexts import state_in
from scripts.cli.deciding import decide, deciding, previewed
from scripts.cli.documents import emit
from scripts.cli.progress import progress
from scripts.cli.screen import moment, show_rows
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import printable
from scripts.helpers.files.set_aside import RETRY, SKIP, SetAside, decided, set_aside_of
from scripts.helpers.protocol.head import Head

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
    why: str | None,
    who: str | None,
    yes: bool,
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
    listed = set_aside_of(state, str(state.get("source")))
    if not (retry or skip or (retry_all and listed)):
        _show(around, name, state, listed, before)
        return
    if not why:
        raise click.UsageError("Missing option '--why'. Give the reason for the history.")
    after = decided(state, listed if retry_all else retry, RETRY)
    after = decided(after, skip, SKIP)
    decide(
        around,
        before,
        before.declared(after, previewed(around, why, who), name),
        lambda: around.watermarks.set_watermark(job, after, transformation_ctx=name, why=why, who=who, expected=before),
        yes=yes,
    )


def _show(around: Surroundings, name: str, state: dict[str, Any], listed: dict[str, SetAside], head: Head) -> None:
    entries = [entry for _, entry in sorted(listed.items())]
    if around.is_json:
        found = [{**asdict(entry), "run": entry.run_id} for entry in entries]
        for one in found:
            del one["run_id"]
        emit({"job": head.job_id, "context": name, "source": state.get("source"), "set_aside": found})
        return
    planned = head.plan.contexts.get(name) if head.plan is not None else None
    more = planned.get("set_aside") if isinstance(planned, Mapping) else None
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
