"""`watermarks doctor`: find what is wrong with a job, and repair it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click
from rich.text import Text

from scripts.cli.commands import command, job_argument, read_job
from scripts.cli.deciding import Said, asked, deciding
from scripts.cli.documents import emit
from scripts.cli.progress import progress
from scripts.cli.retracting import retract_now
from scripts.cli.screen import moment, show_folded, show_rows, state_text
from scripts.cli.surroundings import Surroundings
from scripts.helpers.batch.head_of_log import FIELDS_LOST_WITHOUT_HEAD, HeadOfLog, head_of_log
from scripts.helpers.batch.leftovers import examine_targets, forget_target, publish_waiting
from scripts.helpers.batch.publishing import after_restore as restore
from scripts.helpers.decisions.doctor import DAMAGED, Finding
from scripts.helpers.display.units import count_of, printable
from scripts.helpers.sinks.named import sink_at
from scripts.jobs.exit_codes import FAILED

RETRACTED = {True: "taken back there", False: "kept"}


@command("doctor")
@job_argument
@click.option(
    "--repair",
    is_flag=True,
    help="Write missing log entries; delete unused chunks and staged files.",
)
@click.option("--publish", is_flag=True, help="Publish committed batches that wait to be at their targets.")
@click.option("--forget", metavar="TARGET", help="Stop reporting that this target was emptied or rolled back.")
@click.option("--targets/--no-targets", default=True, help="Whether to check the job's target folders, too.")
@click.option(
    "--after-restore", is_flag=True, help="Start a new epoch after a restore, so that batch ids are not reused."
)
@click.option(
    "--from-log", is_flag=True, help="Make a head that cannot be read from the newest log entry, in a new epoch."
)
@click.option("--target", "named", multiple=True, metavar="TARGET", help="With these two: one that the history lacks.")
@click.option(
    "--retract/--keep",
    default=None,
    help="With these two: whether batches that only the target knows are taken back there, or stay.",
)
@click.option("--back-to", type=click.IntRange(0), metavar="VERSION", help="With these two: continue from it.")
@deciding(why_needed=False, why="The reason, for the history. --after-restore and --from-log require it.")
def doctor(
    around: Surroundings,
    job: str,
    repair: bool,
    publish: bool,
    forget: str | None,
    targets: bool,
    after_restore: bool,
    from_log: bool,
    named: tuple[str, ...],
    retract: bool | None,
    back_to: int | None,
    said: Said,
) -> None:
    """Check a job for problems. Exit code 1 if there is one.

    Only --repair, --publish, --forget, --after-restore and --from-log change something. They ask for confirmation.
    """
    if from_log and (repair or publish or forget or after_restore):
        raise click.UsageError(
            "--from-log goes without --repair, --publish, --forget and --after-restore. Run them after it."
        )
    _check_answers(after_restore or from_log, said, named, retract, back_to)
    # Change only what the operator confirmed: the head `before` and the findings `agreed`. A mere check has neither.
    before, agreed = None, frozenset[str]()
    answers = [] if retract is None else [f"Batches that only the targets know are {RETRACTED[retract]}."]
    answers += [] if back_to is None else [f"The next run continues from the watermarks of version {back_to}."]
    sinks = [sink_at(target) for target in named]
    if from_log:
        _write_from_log(around, job, said, answers, sinks=sinks, retract=retract, back_to=back_to)
    if repair or publish or forget or after_restore:
        before = read_job(around, job)
        lines = []
        if after_restore:
            lines += [] if said.yes else ["Starts a new epoch, and drops an open plan.", *answers]
        if repair:
            with progress(around, f"examining {printable(job)}"):
                looked = around.watermarks.doctor(job)
                looked += _examined_targets(around, job) if targets and not _is_damaged(looked) else []
            agreed = frozenset(one.detail for one in looked)
            lines += _repairs(looked)
        if publish:
            waiting = [f"Publishes version {one.version} for {one.target}" for one in before.unpublished]
            lines += waiting or ["No batch waits to be published."]
        lines += [f"Forgets what was published to {forget}."] if forget else []
        for line in lines:
            around.shown.print(printable(line))
        asked(around, f"{'Repair' if repair else 'Change'} job {printable(job)}?", yes=said.yes)
    with progress(around, f"examining {printable(job)}"):
        if after_restore:
            restore(
                around.watermarks, job, sinks=sinks, retract=retract, back_to=back_to, why=said.why, who=said.who,
                expected=before,
            )  # fmt: skip
            # Print this only now, because `restore` may raise an error.
            around.shown.print("\n".join(["A new epoch is started; an open plan is dropped.", *answers]))
        if forget:
            forget_target(around.watermarks, job, forget)
        # Publish before the doctor looks, so that it also reports earlier batches that publishing finds to be lost.
        published = publish_waiting(around.watermarks, job) if publish else []
        # Do not report again what publishing has already reported.
        details = {one.detail for one in published}
        found = around.watermarks.doctor(job, repair=repair)
        findings = [*published, *(one for one in found if one.detail not in details)]
        # Head and history name the targets. If they are damaged, do not check targets or delete anything there.
        if targets and not _is_damaged(findings):
            findings += _examined_targets(around, job, agreed if repair else None)
    if retract or back_to is not None:
        retract_now(around, job)
    if around.is_json:
        emit({"job": job, "findings": [vars(finding) for finding in findings]})
    elif not findings:
        around.out.print("No problems found.")
    else:
        rows = [[one.kind, one.detail, "repaired" if one.repaired else one.remedy] for one in findings]
        show_rows(around.out, ("found", "what", "remedy"), rows)
    if any(not finding.repaired for finding in findings):
        sys.exit(FAILED)


def _check_answers(is_new: bool, said: Said, named: Sequence[str], retract: bool | None, back_to: int | None) -> None:
    """Raise a usage error if a new epoch lacks --why, or if its options are given without a new epoch."""
    if is_new and not said.why:
        raise click.UsageError("--after-restore and --from-log need --why.")
    if not is_new and (named or (retract, back_to) != (None, None)):
        raise click.UsageError("--target, --retract, --keep and --back-to are for --after-restore and --from-log.")


def _write_from_log(around: Surroundings, job: str, said: Said, answers: Sequence[str], **given: Any) -> None:
    """Make a head from the log, show it, ask for confirmation, and write it."""
    with progress(around, f"reading the log of {printable(job)}"):
        made = head_of_log(around.watermarks, job, why=said.why, who=said.who, **given)
    _show_head_from_log(around, made, answers)
    asked(around, f"Write this head of job {printable(job)}?", yes=said.yes)
    made.write(around.watermarks)
    around.shown.print(f"Done: version {made.decided.after.version:,}, in a new epoch.", style="green")


def _show_head_from_log(around: Surroundings, made: HeadOfLog, answers: Sequence[str]) -> None:
    """Show the head made from the log, and which of its fields the log does not have."""
    out, after, entry = around.shown, made.decided.after, made.entry
    out.print(Text.assemble("Job ", (printable(after.job_id), "bold"), f" in table {printable(around.table)}"))
    by = f"version {entry.version:,}, {printable(entry.change.op)} at {moment(entry.change.at)}"
    show_folded(out, Text(f"The head is made from the log entry of {by}. It becomes version {after.version:,}."))
    show_rows(out, ("watermark", "value"), [[name, state_text(one)] for name, one in sorted(after.watermarks.items())])
    lines = [f"Not whole, and left out: {key}" for key in made.skipped]
    lines += ["Starts a new epoch.", *answers]
    lines += [f"The next run publishes version {one.version} for {one.target}" for one in after.unpublished]
    lines += ["A log entry does not hold:", *(f"- {field}" for field in FIELDS_LOST_WITHOUT_HEAD)]
    for line in lines:
        show_folded(out, Text(printable(line)))


def _examined_targets(around: Surroundings, job: str, agreed: frozenset[str] | None = None) -> list[Finding]:
    """Examine the targets; repair only what is in `agreed`, which the operator was shown."""
    return examine_targets(around.watermarks, job, repair=agreed is not None, agreed=agreed)


def _is_damaged(findings: Sequence[Finding]) -> bool:
    return any(one.kind == DAMAGED for one in findings)


def _repairs(findings: Sequence[Finding]) -> list[str]:
    """Return what a repair would do, one line for each action."""
    possible = [one for one in findings if one.can_repair]
    chunks = sum(one.kind == "orphaned chunk" for one in possible)
    found = [f"Deletes {count_of(chunks, 'chunk')} of the job that nothing refers to."] if chunks else []
    found += [f"Deletes {one.detail}" for one in possible if one.kind == "staged leftover"]
    found += [f"Writes a missing log entry: {one.detail}" for one in possible if one.kind == "missing log entry"]
    return found or ["There is nothing to repair."]
