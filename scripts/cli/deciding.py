"""Shared by commands that change a job: show the change, ask for confirmation, store the reason in the history."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click
from rich.text import Text

from scripts.cli.diff import WatermarkDifference, consequences, differences, show_differences
from scripts.cli.documents import emit, head_json
from scripts.cli.progress import progress
from scripts.cli.retracting import retract_now, show_outputs
from scripts.cli.screen import moment, show_folded
from scripts.cli.surroundings import Surroundings, is_asked
from scripts.helpers.decisions.decisions import JobDecision, Proposal
from scripts.helpers.display.units import printable
from scripts.helpers.metrics.urgency import activity
from scripts.helpers.protocol.head import Head
from scripts.jobs.exit_codes import FAILED

KEPT = "The reason, for the history."


@dataclass(frozen=True)
class Said:
    """The values of --why and --who, which the history stores, and of --yes, which skips the confirmation."""

    why: str
    who: str | None
    yes: bool

    def of(self, before: Head, context: str | None = None, *, retract: bool = False) -> JobDecision:
        """Return the arguments of a decision (such as a rewind) that is refused if the job changed since `before`."""
        return JobDecision(self.why, self.who, before, context, retract)


def deciding(*, why_needed: bool = True, why: str = KEPT) -> Callable[[Any], Any]:
    """Return a decorator that adds --why, --who and --yes and passes them as `said`; `why` is the help of --why."""

    def add(function: Any) -> Any:
        @click.option("--why", required=why_needed, metavar="TEXT", help=why)
        @click.option("--who", metavar="NAME", help="Your name, for the history (the system's user).")
        @click.option("--yes", is_flag=True, help="Skip the confirmation.")
        @functools.wraps(function)
        def run(around: Surroundings, why: str | None, who: str | None, yes: bool, **given: Any) -> Any:
            return function(around, said=Said(why or "", who, yes), **given)

        return run

    return add


def decide(around: Surroundings, said: Said, before: Head, proposal: Proposal, *, retract: bool = False) -> None:
    """Show what a change of a job does, ask, and carry it out; with `retract`, delete retracted output at once."""
    decisions = around.watermarks.decisions
    with progress(around, f"reading {printable(before.job_id)}"):
        decided = decisions.preview(proposal)
    show_outputs(around, before, decided, retract)
    changes = differences(before.watermarks, {**decided.after.watermarks, **decided.whole})
    # With --output json and --yes, print only the JSON document. With --yes alone, people still see the change.
    if not (around.is_json and said.yes):
        _show(around, before, decided.after, changes)
    asked(around, f"Change job {printable(before.job_id)}?", yes=said.yes)
    with progress(around, f"changing {printable(before.job_id)}"):
        done = decisions.take(proposal)
    if around.is_json:
        now = around.now()
        listed = [change.as_json() for change in changes]
        emit({"before": head_json(before, now), "after": head_json(done, now), "changes": listed})
    else:
        assert done.last is not None
        around.out.print(f"Done: version {done.version:,}, {printable(done.last.op)}.", style="green")
    if retract:
        retract_now(around, before.job_id)


def declare(around: Surroundings, said: Said, before: Head, values: Any, context: str | None) -> None:
    """Set watermarks of a job, or of one context."""
    made = said.of(before, context)
    decide(around, said, before, around.watermarks.decisions.set_watermark(before.job_id, values, made))


def _show(around: Surroundings, before: Head, after: Head, changes: Sequence[WatermarkDifference]) -> None:
    out, now = around.shown, around.now()
    out.print(Text.assemble("Job ", (printable(before.job_id), "bold"), f" in table {printable(around.table)}"))
    out.print(f"version {before.version:,} becomes {after.version:,}")
    if changes:
        show_differences(out, changes)
        for change in changes:
            for line in consequences(change):
                show_folded(out, Text(printable(f"{change.name}: {line}."), "yellow"))
    else:
        out.print("No watermark changes.")
    if before.plan is not None:
        contexts = ", ".join(sorted(map(printable, before.plan.contexts)))
        out.print(
            f"This drops the open plan ({contexts}). Data that a sink of your own wrote for it stays.", style="yellow"
        )
    if before.claim is not None and activity(before, now) == "at work":
        owner = printable(before.claim.run_id)
        lease = moment(before.claim.lease_until)
        out.print(f"Run {owner} is at work, lease until {lease}. It will not be able to commit.", style="red")


def asked(around: Surroundings, question: str, yes: bool = False, otherwise: str = "Pass --yes.") -> None:
    """Ask for confirmation unless `yes`. Exit on "no". Without a terminal, raise an error that ends in `otherwise`."""
    if yes:
        return
    # A scheduler cannot answer. It would wait forever, or its closed input would be taken for a "no".
    if not is_asked():
        raise click.UsageError(f"The command asks for confirmation and there is no terminal. {otherwise}")
    # Ask on standard error, so that standard output can be piped while a user answers.
    if not click.confirm(question, err=True):
        around.err.print("Nothing was changed.")
        sys.exit(FAILED)


def confirm_place(around: Surroundings, what: str, place: str, instead: str) -> None:
    """Show a place (a URI) that the job's items name and the operator did not. Ask before it is read, even with --yes.

    Anybody who may write the job's items could name any place there, and it would be read with the operator's rights.
    `instead` are the arguments with which a script, which cannot answer, names the place.
    """
    place = printable(place)
    around.shown.print(f"The job's items say that its {what} is {place}.")
    otherwise = f"If that is the {what} of the job, pass {printable(instead)}."
    asked(around, f"Read {place}?", otherwise=otherwise)
