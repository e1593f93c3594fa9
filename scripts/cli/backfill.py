"""`watermarks backfill`: show what was read and the gaps, print commands that read the gaps, and abandon a slice."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import click

from scripts.cli.commands import command, context_option, job_argument, read_job
from scripts.cli.contexts import bound_option, placed, span_rows, state_in
from scripts.cli.deciding import Said, decide, deciding
from scripts.cli.documents import emit, head_json
from scripts.cli.progress import progress
from scripts.cli.screen import Cell, show_rows
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import printable
from scripts.helpers.errors import BoundsError, InvalidValueError, UnknownJobError
from scripts.helpers.metrics.urgency import activity
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.names import split_name
from scripts.helpers.rows.coverage import slices
from scripts.helpers.rows.cursor_ranges import ShownRange, range_end
from scripts.helpers.rows.cursors import as_list
from scripts.helpers.rows.states import RowsState

PROGRAM = ("watermarks", "ingest-table")
NEEDED = ("--source", "--target")
DEFAULT_NAME = "backfill"


@dataclass(frozen=True)
class _BegunSlice:
    """A slice that has begun and is not done."""

    job_id: str
    name: str
    bounds: ShownRange
    head: Head

    def as_json(self, now: datetime, live: RowsState) -> dict[str, Any]:
        ((low, high),) = placed(live, [self.bounds])
        state = activity(self.head, now)
        return {
            "job": self.job_id, "name": self.name, "low": low, "high": high, "state": state,
            "head": head_json(self.head, now),
        }  # fmt: skip


@command("backfill")
@job_argument
@click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS...]")
@context_option
@click.option("--low", "start", metavar="VALUE", help="Ignore values below VALUE.")
@click.option(
    "--slices", "number", type=click.IntRange(1, 10_000), default=1, metavar="N", help="Cut each gap into N slices."
)
@click.option("--abandon", metavar="SLICE", help="Give up a slice that has begun. SLICE is its job name, as shown.")
@deciding(why_needed=False, why="The reason, for the history of the slice. --abandon requires it.")
def backfill(
    around: Surroundings,
    job: str,
    arguments: Sequence[str],
    context: str | None,
    start: str | None,
    number: int,
    abandon: str | None,
    said: Said,
) -> None:
    """Show what a job has read and the gaps that it never read, or print the commands that read them.

    The list "Read:" has all cursor values that live runs and backfills have read, also values below --low.

    With "-- --source URI --target URI", print a "watermarks ingest-table" command for each slice, first
    for slices that have begun and are not done. Further ARGUMENTS of ingest-table, such as --jdbc-table,
    are added to each command. The commands may run in parallel, and can be repeated.

    Only --abandon changes something. It gives up a slice that has begun, so that its rows are a gap again.
    The target keeps the rows that the slice wrote: delete them first.
    """
    if abandon is not None:
        if not said.why:
            raise click.UsageError("--abandon needs --why.")
        _abandon(around, job, context, abandon, said)
        return
    missing = [option for option in NEEDED if not is_given(option, arguments)]
    if arguments and missing:
        raise click.UsageError(
            f"Missing {' and '.join(missing)}. Pass the arguments of watermarks ingest-table after --."
        )
    with progress(around, f"looking for gaps of {printable(job)}"):
        name, state = state_in(around, job, context, "rows")
        begun = _begun(around, job, name)
        # A slice that has begun owns its rows. They are still a gap, but another slice must not read them.
        taken = {one.bounds for one in begun}
        gaps = around.watermarks.gaps(job, name, bound_option(state, start, "--low"))
        planned = [one for gap in gaps if gap not in taken for one in _cut(gap, number)]
        read = around.watermarks.coverage(job, name)
    merges = bool(arguments) and ingest_arguments("backfill", job, state, arguments).write_disposition == "merge"
    work = _Work(around, job, name, state, read, gaps, begun, planned, arguments, merges)
    if around.is_json:
        work.emit()
    elif arguments:
        work.write_commands()
    else:
        work.show()


def is_given(option: str, arguments: Sequence[str]) -> bool:
    """Return whether the arguments have an option, written ``--target=a`` or, in two words, ``--target a``."""
    return any(argument == option or argument.startswith(f"{option}=") for argument in arguments)


def _begun(around: Surroundings, job: str, context: str) -> list[_BegunSlice]:
    """Return the unfinished slices that have a lease, a plan or a commit. No other slice may read their rows."""
    found = []
    for slice_job, (name, bounds) in around.watermarks.unfinished(job, context).items():
        try:
            head = around.watermarks.latest(slice_job)
        except UnknownJobError:
            continue
        if head.claim is not None or head.plan is not None or context in head.watermarks:
            found.append(_BegunSlice(slice_job, name, bounds, head))
    return found


def _cut(gap: ShownRange, number: int) -> list[ShownRange]:
    """Cut a gap into slices. A gap with an open end, or with values that cannot be divided, stays whole."""
    if number == 1 or gap[0] is None or gap[1] is None:
        return [gap]
    try:
        return list(slices(gap[0], gap[1], number))
    except BoundsError:
        return [gap]


def _abandon(around: Surroundings, job: str, context: str | None, slice_job: str, said: Said) -> None:
    """Reset the job of a slice, so that other slices may read its rows."""
    with progress(around, f"reading slices of {printable(job)}"):
        name, _ = state_in(around, job, context, "rows")
        known = [one.job_id for one in _begun(around, job, name)]
    if slice_job not in known:
        raise InvalidValueError(
            f"Job {job!r} has no slice {slice_job!r} in progress. It has: {', '.join(known) or 'none'}."
        )
    before = read_job(around, slice_job)
    decide(around, said, before, around.watermarks.decisions.reset(slice_job, said.of(before)))


# --- how gaps and slices are shown --------------------------------------------------------------


@dataclass(frozen=True)
class _Work:
    """What was read of one context, its gaps, the slices that have begun, and the slices that can still begin."""

    around: Surroundings
    job: str
    context: str
    state: RowsState
    read: Sequence[ShownRange]
    gaps: Sequence[ShownRange]
    begun: Sequence[_BegunSlice]
    planned: Sequence[ShownRange]
    arguments: Sequence[str]
    merges: bool

    def show(self) -> None:
        out = self.around.out
        if self.read:
            out.print("Read:")
            show_rows(out, ("low", "high (not included)"), span_rows(placed(self.state, self.read)))
        else:
            out.print("Nothing was read yet.")
        out.print()
        if self.begun:
            out.print("In progress:")
            rows: list[Sequence[Cell]] = [
                [one.name, *span_rows(placed(self.state, [one.bounds]))[0],
                 activity(one.head, self.around.now()), one.job_id]
                for one in self.begun
            ]  # fmt: skip
            show_rows(out, ("name", "low", "high (not included)", "state", "job of the slice"), rows)
            out.print()
        if self.planned:
            out.print("To read:")
            show_rows(out, ("low", "high (not included)"), span_rows(placed(self.state, self.planned)))
        elif not self.begun:
            out.print("No gaps.")
        if self.begun or self.planned:
            asked = f"watermarks backfill {shlex.quote(printable(self.job))} -- --source URI --target URI"
            out.print(f"Commands to read them: {asked}", style="dim")

    def write_commands(self) -> None:
        """Print the commands to standard output, one per line, and nothing else."""
        err, now = self.around.err, self.around.now()
        for one in self.begun:
            if one.head.claim is not None and activity(one.head, now) == "at work":
                run = printable(one.head.claim.run_id)
                err.print(f"Slice {printable(one.job_id)} is left out: run {run} is at work on it.", style="yellow")
                continue
            if not self._is_to_finish(one):
                abandon = f"backfill {shlex.quote(printable(self.job))} --abandon {shlex.quote(printable(one.job_id))}"
                err.print(
                    f"Slice {printable(one.job_id)} is left out: the live job was set back into it, and takes its rows "
                    f"as well. Delete what the slice wrote, then run `watermarks {abandon} --why TEXT`. A target that "
                    "merges by key can finish it: --write-disposition merge.",
                    style="yellow", soft_wrap=True,
                )  # fmt: skip
                continue
            click.echo(shlex.join(self._command(one.bounds, one.name)))
        for bounds in self.planned:
            click.echo(shlex.join(self._command(bounds)))
        if not self.begun and not self.planned:
            err.print("No gaps.")

    def emit(self) -> None:
        now = self.around.now()
        begun = [one.as_json(now, self.state) for one in self.begun]
        read, gaps, planned = map(self._as_json, (self.read, self.gaps, self.planned))
        # Add commands only if the user passed ARGUMENTS, because these name the source and the target.
        if self.arguments:
            for facts, one in zip(begun, self.begun, strict=True):
                if self._is_to_finish(one):
                    facts["command"] = self._command(one.bounds, one.name)
            for facts, bounds in zip(planned, self.planned, strict=True):
                facts["command"] = self._command(bounds)
        spans = {"coverage": read, "gaps": gaps, "begun": begun, "slices": planned}
        emit({"job": self.job, "context": self.context, **spans})

    def _as_json(self, spans: Sequence[ShownRange]) -> list[dict[str, Any]]:
        return [{"low": low, "high": high} for low, high in placed(self.state, spans)]

    def _is_to_finish(self, one: _BegunSlice) -> bool:
        """Return whether finishing a slice stores no row twice: the target merges, or the live job skipped the rows."""
        low, high = map(range_end, one.bounds)
        return self.merges or self.state.is_left_to_slices((low, high or None))

    def _command(self, bounds: ShownRange, name: str | None = None) -> list[str]:
        """Return the command that reads one slice."""
        return slice_command(self.around.table, self.job, self.context, self.state, bounds, self.arguments, name)


def ingest_arguments(command: str, job: str, state: RowsState, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse arguments of ingest-table that were given to a command. `state` has the names of the cursor columns."""
    from scripts.jobs import session
    from scripts.jobs.ingest_table import check_source_options, make_parser

    parser = make_parser()
    parser.prog = f"watermarks {command} {shlex.quote(printable(job))} --"
    known = [f"--cursor-column={column}" for column in state.names]
    found = session.parse(parser, [f"--JOB_NAME={split_name(job)[0]}", *known, *arguments])
    check_source_options(parser, found)
    return found


def slice_command(
    table: str,
    job: str,
    context: str,
    state: RowsState,
    bounds: ShownRange,
    arguments: Sequence[str],
    name: str | None = None,
) -> list[str]:
    """Return the command that reads one slice of a context, with further arguments of ingest-table."""
    job_name, namespace = split_name(job)
    words = [*PROGRAM, f"--JOB_NAME={job_name}", f"--table={table}", f"--context={context}"]
    if namespace:
        words.append(f"--BOOKMARK_CONTEXT={namespace}")
    words += [f"--cursor-column={column}" for column in state.names]
    if "string" in state.types:
        words.append("--strings")
    if name not in (None, DEFAULT_NAME):
        words.append(f"--backfill-name={name}")
    for option, bound in zip(("--backfill-low", "--backfill-high"), bounds, strict=True):
        values = [value for value in as_list(bound) if value is not None]
        words += [f"{option}={_text(value, kind)}" for value, kind in zip(values, state.types, strict=False)]
    return [*words, *arguments]


def _text(value: Any, kind: str) -> str:
    """Return a cursor value as text that `CursorColumn.from_typed` parses."""
    if isinstance(value, datetime):
        return (value.replace(tzinfo=None) if kind == "timestamp_ntz" else value).isoformat()
    # str() writes a small Decimal as "1E-8", which `from_typed` does not parse.
    return f"{value:f}" if isinstance(value, Decimal) else str(value)
