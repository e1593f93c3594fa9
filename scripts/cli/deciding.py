"""What commands have in common that change something: they show before and after, ask, and keep why in the history."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from scripts.cli.diff import WatermarkDifference, differences, show_differences
from scripts.cli.documents import emit, head_json
from scripts.cli.progress import progress
from scripts.cli.screen import moment
from scripts.cli.surroundings import Surroundings, is_asked
from scripts.helpers.display.units import printable
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.metrics.urgency import activity
from scripts.helpers.protocol.head import Head, Order
from scripts.jobs.exit_codes import FAILED

KEPT = "The reason, for the history."


def deciding(*, why_needed: bool = True, why: str = KEPT) -> Callable[[Any], Any]:
    """Add what a command needs that changes something; `why` is the help of the reason."""

    def add(function: Any) -> Any:
        function = click.option("--yes", is_flag=True, help="Skip the confirmation.")(function)
        function = click.option("--who", metavar="NAME", help="Your name, for the history (the system's user).")(
            function
        )
        return click.option("--why", required=why_needed, metavar="TEXT", help=why)(function)

    return add


def previewed(around: Surroundings, why: str, who: str | None) -> Order:
    """Return an order for a state that is only shown."""
    return Order(who or "", why, around.now(), "preview")


def decide(
    around: Surroundings,
    before: Head,
    after: Head,
    act: Callable[[], Head],
    *,
    yes: bool,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Show what a decision changes, ask, and take it.

    Parameters
    ----------
    before, after
        The job as it is, and as it would be.
    act
        Takes the decision, and refuses if the job is not any more what `before` says (`expected`).
    facts
        What the one document of a program has beside the change.
    """
    changes = differences(before.watermarks, after.watermarks)
    # A program that has said yes gets its one document only. A person who has said yes still sees what changes.
    if not (around.is_json and yes):
        _show(around, before, after, changes)
    asked(around, f"Change job {printable(before.job_id)}?", yes=yes)
    with progress(around, f"changing {printable(before.job_id)}"):
        done = act()
    if around.is_json:
        now = around.now()
        listed = [change.as_json() for change in changes]
        emit({**(facts or {}), "before": head_json(before, now), "after": head_json(done, now), "changes": listed})
        return
    assert done.last is not None
    around.out.print(f"Done: version {done.version:,}, {printable(done.last.op)}.", style="green")


def _show(around: Surroundings, before: Head, after: Head, changes: Sequence[WatermarkDifference]) -> None:
    out, now = around.shown, around.now()
    out.print(Text.assemble("Job ", (printable(before.job_id), "bold"), f" in table {printable(around.table)}"))
    out.print(f"version {before.version:,} becomes {after.version:,}")
    if changes:
        show_differences(out, changes)
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


def asked(around: Surroundings, question: str, yes: bool = False) -> None:
    """Ask, unless told not to. Where nobody can answer, refuse; on a no, end without a change."""
    if yes:
        return
    # A scheduler has no answer to give: waiting for one would hang it, and end of file would look like a no.
    if not is_asked():
        raise click.UsageError("The command asks for confirmation and there is no terminal. Pass --yes.")
    # Questions go to standard error, so that standard output can be piped while somebody answers.
    if not click.confirm(question, err=True):
        around.err.print("Nothing was changed.")
        sys.exit(FAILED)


def may_write(path: Path, force: bool) -> None:
    """Refuse to write over a file, unless told to; InvalidValueError."""
    if path.is_file() and not force:
        raise InvalidValueError(f"File {str(path)!r} exists already. Give another name, or --force.")
