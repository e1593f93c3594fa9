"""Commands that change a job: each shows before and after, asks, and keeps why in the history."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import click
from rich.text import Text

from scripts.cli.commands import command, context_option, job_argument
from scripts.cli.differing import differences, entry_of, show_differences
from scripts.cli.glue_runs import runs_in_glue
from scripts.cli.layout import emit, show_rows
from scripts.cli.progress import progress
from scripts.cli.surroundings import Surroundings, is_asked
from scripts.cli.texts import head_json, moment, printable, state_of, state_text
from scripts.helpers.decisions.adoption import ADOPTED, ADOPTED_BY_HAND
from scripts.helpers.errors import AmbiguousHistoryError, InvalidValueError, PlanConflictError
from scripts.helpers.protocol.head import Head, Order
from scripts.jobs.exit_codes import FAILED

KEPT = "The reason; kept in the history."


def deciding(*, why_needed: bool = True, why: str = KEPT) -> Callable[[Any], Any]:
    """Add what a command needs that changes something; `why` is the help of the reason."""

    def add(function: Any) -> Any:
        function = click.option("--yes", is_flag=True, help="Do not ask.")(function)
        function = click.option("--who", metavar="NAME", help="Who decides (the system's user).")(function)
        return click.option("--why", required=why_needed, metavar="TEXT", help=why)(function)

    return add


def asked(around: Surroundings, question: str, lines: Sequence[str] = (), yes: bool = False) -> None:
    """Ask, unless told not to. Where nobody can answer, refuse; on a no, end without a change."""
    if yes:
        return
    if not is_asked():
        raise click.UsageError("Nobody is there to be asked. Pass --yes.")
    for line in lines:
        around.err.print(line)
    if not click.confirm(question, err=True):
        refused(around)


def refused(around: Surroundings) -> NoReturn:
    """End after a no."""
    around.err.print("Nothing was changed.")
    sys.exit(FAILED)


def decide(around: Surroundings, before: Head, after: Head, act: Callable[[], Head], *, yes: bool) -> None:
    """Show what a decision changes, ask, and take it.

    Parameters
    ----------
    before, after
        The job as it is, and as it would be.
    act
        Takes the decision, and refuses if the job is not any more what `before` says (`expected`).
    """
    changes = differences(before.watermarks, after.watermarks)
    if not (around.is_json and yes):
        _show(around, before, after, changes)
    asked(around, f"Change job {printable(before.job_id)}?", yes=yes)
    with progress(around, f"changing {printable(before.job_id)}"):
        done = act()
    if around.is_json:
        now = around.now()
        emit({"before": head_json(before, now), "after": head_json(done, now), "changes": _as_changes(changes)})
        return
    assert done.last is not None
    around.out.print(f"Done: version {done.version:,}, {printable(done.last.op)}.", style="green")


def _as_changes(changes: Sequence[tuple[str, Any, Any]]) -> list[dict[str, Any]]:
    return [{"watermark": name, "from": before, "to": after} for name, before, after in changes]


def _show(around: Surroundings, before: Head, after: Head, changes: list[tuple[str, Any, Any]]) -> None:
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
            f"The open plan is dropped ({contexts}); what was written for it stays at the target.", style="yellow"
        )
    if before.claim is not None and state_of(before, now) == "at work":
        owner = printable(before.claim.run_id)
        lease = moment(before.claim.lease_until)
        out.print(f"Run {owner} is at work, lease until {lease}: it can commit no more.", style="red")


def read_job(around: Surroundings, job: str) -> Head:
    """Return what is committed for a job and what is open."""
    with progress(around, f"reading {printable(job)}"):
        return around.watermarks.latest(job)


def previewed(around: Surroundings, why: str, who: str | None) -> Order:
    """Return an order for a state that is only shown."""
    return Order(who or "", why, around.now(), "preview")


@command("rewind")
@job_argument
@click.option("--to-version", type=click.IntRange(1), metavar="N", help="A version that history shows.")
@click.option("--to-run", metavar="RUN", help="Instead of it, a run that committed.")
@context_option
@deciding()
def rewind(
    around: Surroundings,
    job: str,
    to_version: int | None,
    to_run: str | None,
    context: str | None,
    why: str,
    who: str | None,
    yes: bool,
) -> None:
    """Go back to the watermarks of an earlier version.

    What came after is taken again. Nothing is deleted at the target.
    """
    if (to_version is None) == (to_run is None):
        raise click.UsageError("Give one of --to-version and --to-run.")
    marks = around.watermarks
    with progress(around, f"reading {printable(job)}"):
        before = marks.latest(job)
        version = to_version if to_run is None else marks.version_of(before, to_run)
        assert version is not None
        after = before.rewound(entry_of(around, job, version, before), previewed(around, why, who), context)
    decide(
        around,
        before,
        after,
        lambda: marks.rewind(job, to_version=version, context=context, why=why, who=who, expected=before),
        yes=yes,
    )


@command("reset")
@job_argument
@context_option
@deciding()
def reset(around: Surroundings, job: str, context: str | None, why: str, who: str | None, yes: bool) -> None:
    """Forget the watermarks: the next run takes everything."""
    before = read_job(around, job)
    if context is not None and context not in before.watermarks:
        raise InvalidValueError(f"Job {job!r} has no context {context!r}. It has: {', '.join(before.watermarks)}.")
    after = before.reset(previewed(around, why, who), context)
    decide(
        around,
        before,
        after,
        lambda: around.watermarks.reset(job, context=context, why=why, who=who, expected=before),
        yes=yes,
    )


@command("discard-plan")
@job_argument
@deciding()
def discard_plan(around: Surroundings, job: str, why: str, who: str | None, yes: bool) -> None:
    """Drop the open plan: the next run makes a new one."""
    before = read_job(around, job)
    after = before.discarded(previewed(around, why, who))
    decide(
        around,
        before,
        after,
        lambda: around.watermarks.discard_plan(job, why=why, who=who, expected=before),
        yes=yes,
    )


@command("adopt")
@job_argument
@click.option("--run", "run_id", metavar="RUN", help="The run whose item is right.")
@click.option("--glue", is_flag=True, help="Ask Glue which of the runs started last (glue:GetJobRuns).")
@click.option("--glue-job", metavar="NAME", help="The job's name in Glue, if it is another one.")
@deciding(why_needed=False)
def adopt(
    around: Surroundings,
    job: str,
    run_id: str | None,
    glue: bool,
    glue_job: str | None,
    why: str | None,
    who: str | None,
    yes: bool,
) -> None:
    """Say which item of the original class is the latest one.

    It shows the watermarks of that item, and asks.
    """
    if (run_id is None) == (not glue):
        raise click.UsageError("Give one of --run and --glue.")
    marks = around.watermarks
    with progress(around, f"reading {printable(job)}"):
        if around.store.read_head(job) is not None:
            raise PlanConflictError(job, ADOPTED)
        with suppress(AmbiguousHistoryError):
            marks.latest(job)
    started = runs_in_glue(around, glue_job or job) if run_id is None else []
    with progress(around, f"reading {printable(job)}"):
        run_id = run_id or marks.latest_started(job, started)
        values = marks.get_watermark_values(job, run_id)
    if not (around.is_json and yes):
        around.shown.print(f"Run {printable(run_id)}" + (" is the one that Glue started last." if glue else ":"))
        rows = [[printable(name), state_text(state)] for name, state in sorted(values.items())]
        show_rows(around.shown, ("watermark", "value"), rows)
    asked(around, f"Take the item of run {printable(run_id)} for the watermarks of job {printable(job)}?", yes=yes)
    with progress(around, f"changing {printable(job)}"):
        after = marks.adopt(job, run_id, why=why or ADOPTED_BY_HAND, who=who)
    if around.is_json:
        emit({"after": head_json(after, around.now())})
        return
    around.out.print(f"Done: version {after.version:,} is that of run {printable(after.run_id)}.", style="green")


COMMANDS = [rewind, reset, discard_plan, adopt]
