"""`watermarks jobs`: which jobs need attention, for people, schedulers and CloudWatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from scripts.cli.commands import Duration, JobName, command
from scripts.cli.documents import as_json, emit, head_json, json_text
from scripts.cli.failures import offer_near
from scripts.cli.progress import progress
from scripts.cli.screen import NONE, release_hint, show_folded, show_table
from scripts.cli.surroundings import Surroundings
from scripts.cli.thresholds import read_thresholds, thresholds_option
from scripts.helpers.display.units import count_of, printable
from scripts.helpers.errors import DAMAGE, AmbiguousHistoryError, CorruptItemError, NewerFormatError, UnknownJobError
from scripts.helpers.metrics.embedded import EmbeddedMetrics
from scripts.helpers.metrics.freshness import Threshold, age, lag, open_plan_age
from scripts.helpers.metrics.report import JobReport
from scripts.helpers.metrics.signs_of_life import may_be_dead
from scripts.helpers.metrics.thresholds import threshold_of
from scripts.helpers.metrics.urgency import LATE, NEVER_COMMITTED, WORDS, JobNow, JobTable
from scripts.helpers.protocol.bounded_lookups import BoundedLookups
from scripts.helpers.protocol.jobs import ListCost, ListedJob, list_jobs
from scripts.helpers.protocol.names import is_file, served_by
from scripts.helpers.states import files_waiting
from scripts.jobs.exit_codes import FAILED

SORTS = ("urgency", "behind", "name", "version")
UNKNOWN = "not in the table; check the name"
MISSING = "not in the table; check the name in the thresholds"
STYLES = {"problem": "red", "missing": "red", "at work": "green", "idle": "", "no commit yet": ""}
"""Colours of states; all other states are yellow."""
CELLS = {"state": lambda text: STYLES.get(text, "yellow"), "failed": lambda text: "" if text == NONE else "red"}
"""Functions that return the colours of cells, by heading."""


@dataclass(frozen=True)
class JobChoice:
    """Which jobs to show, and in which order. Empty `states` include every state."""

    prefix: str = ""
    states: tuple[str, ...] = ()
    stale: timedelta | None = None
    sort: str = "urgency"
    limit: int | None = None
    everything: bool = False


@command("jobs")
@click.argument("names", nargs=-1, type=JobName())
@click.option("--prefix", default="", metavar="TEXT", help="Only jobs whose names begin with TEXT.")
@click.option(
    "--state",
    "states",
    type=click.Choice(WORDS),
    multiple=True,
    metavar="STATE",
    help="Only jobs in this state. Repeatable.",
)
@click.option("--late", is_flag=True, help="Only jobs that are late or missing.")
@click.option(
    "--stale", type=Duration(), metavar="TIME", help="Only jobs without a new version for this long: 90s, 2h, 1d."
)
@click.option("--sort", type=click.Choice(SORTS), default="urgency", help="Order (urgency).")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N.")
@click.option("--backfills", "everything", is_flag=True, help="Include the jobs of backfills.")
@click.option(
    "--fail-on",
    type=click.Choice(["missing", "late"]),
    help="Exit with 1 if a job is missing or cannot be read (missing), or if one needs attention (late).",
)
@click.option("--metrics", is_flag=True, help="Print only a line of CloudWatch's Embedded Metric Format for each job.")
@thresholds_option
def jobs(
    around: Surroundings,
    names: tuple[str, ...],
    prefix: str,
    states: tuple[str, ...],
    late: bool,
    stale: timedelta | None,
    sort: str,
    limit: int | None,
    everything: bool,
    fail_on: str | None,
    metrics: bool,
    file: Path | None,
) -> None:
    """List jobs, the most urgent first.

    The states, in this order: problem, missing, late, open plan, lease over, unpublished, failing,
    files set aside, unusually small, unusually large, no commit yet, at work, idle. The last 28
    commits of a job show when it usually commits and how much it takes. --thresholds overrides that.

    \b
    lag       time since the oldest cursor of the job
    changed   time since the last version, made by a run unless the column names another change
    plan      time since the open plan was frozen
    last run  in the state "at work", the run that owns the job
    failed    runs that ended without a commit, since the last commit

    --fail-on is for schedulers. With "late", a job that has begun and committed nothing fails as well. All jobs that
    --prefix and NAMES choose count, also those that other options leave out of the list.

    Without NAMES, the command scans the heads of the table, which requires dynamodb:Scan. With
    NAMES, it reads only those jobs.
    """  # noqa: D301 - click keeps the lines after a backspace as they are; a raw text has none.
    if metrics and around.is_json:
        raise click.UsageError("--metrics has its own output format. Omit --output.")
    given = read_thresholds(file)
    if late:
        states = (*states, *LATE)
    chosen = JobChoice(prefix, states, stale, sort, limit, everything or bool(names))
    found, cost = (named_jobs(around, names, given), None) if names else _listed(around, given)
    listing = _Listing.of(found, chosen, given)
    if metrics:
        _report(listing.shown)
    else:
        _show(around, listing, cost, given)
    unknown = [job.job_id for job in found if job.problem == UNKNOWN]
    if unknown:
        offer_near(around, unknown)
    if unknown or (fail_on is not None and listing.fails(fail_on)):
        raise click.exceptions.Exit(FAILED)


@dataclass(frozen=True)
class _Listing:
    """The jobs to show, among those that were found.

    Attributes
    ----------
    counted
        The jobs that --fail-on judges: all but those that --prefix leaves out, and hidden jobs of backfills.
    left
        How many jobs --limit leaves out.
    derived
        How many jobs of backfills the option --backfills would add, regardless of their state or age.
    """

    shown: JobTable
    counted: Sequence[JobNow]
    left: int
    derived: int

    @classmethod
    def of(cls, found: list[JobNow], chosen: JobChoice, given: Mapping[str, Threshold]) -> _Listing:
        """Choose and sort the jobs to show."""
        fitting = [job for job in found if job.job_id.startswith(chosen.prefix)]
        derived = 0
        if not chosen.everything:
            # Hide jobs that serve other jobs, such as slices, unless the operator has given one a threshold by name.
            own = [job for job in fitting if served_by(job.job_id) is None or job.job_id in given]
            derived, fitting = len(fitting) - len(own), own
        counted = fitting
        if chosen.states:
            fitting = [job for job in fitting if job.condition.word in chosen.states]
        if chosen.stale is not None:
            fitting = [job for job in fitting if job.age >= chosen.stale]
        shown = JobTable(sorted(fitting, key=lambda job: _order(job, chosen.sort))[: chosen.limit])
        return cls(shown, counted, len(fitting) - len(shown), derived)

    def fails(self, level: str) -> bool:
        """Return whether --fail-on with this level, `missing` or `late`, makes the command fail."""
        found = [job.condition for job in self.counted]
        if level == "missing":
            return any(one.word in ("problem", "missing") for one in found)
        # Ignore a job of condition NEVER_COMMITTED: it has no head, as its runs save no watermarks, so it is not late.
        return any(one.needs_somebody or (one.word == "no commit yet" and one != NEVER_COMMITTED) for one in found)


def _show(around: Surroundings, listing: _Listing, cost: ListCost | None, given: Mapping[str, Threshold]) -> None:
    if around.is_json:
        facts = [_facts(job, given) for job in listing.shown]
        told = None if cost is None else vars(cost)
        emit(
            {
                "table": around.table,
                "jobs": facts,
                "more": listing.left,
                "backfills": listing.derived,
                "cost": told,
            }
        )
        return
    _show_jobs(around, listing.shown)
    _show_counts(around, listing, cost)


def _show_jobs(around: Surroundings, jobs: JobTable) -> None:
    """Print the table of jobs, and lines for each job that needs attention."""
    if jobs:
        show_table(around.out, jobs, CELLS)
    else:
        around.out.print("No jobs.")
    _show_reasons(around, jobs)
    for job in jobs:
        if job.head is not None and may_be_dead(job.head, job.now):
            show_folded(around.out, Text(printable(f"{job.job_id}: {release_hint(job.head, job.now)}"), "yellow"))


def _show_counts(around: Surroundings, listing: _Listing, cost: ListCost | None) -> None:
    """Print how many jobs are not shown, how many need attention, and what the list cost to read."""
    if listing.left:
        around.out.print(f"… and {listing.left:,} more: watermarks jobs", style="dim")
    if listing.derived:
        jobs_of = "1 job of a backfill is" if listing.derived == 1 else f"{listing.derived:,} jobs of backfills are"
        around.out.print(f"{jobs_of} not shown; see --backfills", style="dim")
    if len(listing.counted) > 1:
        unwell = sum(job.condition.needs_somebody for job in listing.counted)
        around.out.print(_attention_text(unwell, len(listing.counted)), style="bold" if unwell else "dim")
    if cost is None or is_file(around.table):
        return
    read = f"{count_of(cost.items, 'item')} in {count_of(cost.requests, 'request')}"
    around.out.print(f"Read {read}, {cost.units:,g} read {'unit' if cost.units == 1 else 'units'}.", style="dim")


def _show_reasons(around: Surroundings, jobs: Sequence[JobNow]) -> None:
    """Print for each job that needs attention what is wrong, and the command that explains or repairs it."""
    for job in jobs:
        if job.condition.needs_somebody:
            show_folded(around.out, Text(job.warning, STYLES.get(job.condition.word, "yellow")))
            show_folded(around.out, Text(printable(job.condition.command), "dim"), 2)


def _attention_text(unwell: int, jobs: int) -> str:
    """Return a sentence that says how many of the jobs need attention, such as "2 of 31 jobs need attention."."""
    if unwell == 0:
        return f"Nothing needs attention in {count_of(jobs, 'job')}."
    return f"{unwell:,} of {count_of(jobs, 'job')} {'needs' if unwell == 1 else 'need'} attention."


def _listed(around: Surroundings, given: Mapping[str, Threshold]) -> tuple[list[JobNow], ListCost]:
    """Read all jobs of the table, and add the jobs that a threshold names but the table does not have."""
    with progress(around, "listing jobs") as steps:
        found = list_jobs(around.store, on_page=lambda jobs, _: steps.at(jobs, unit="jobs"))
    there = {job.job_id for job in found.jobs}
    absent = [ListedJob(name, None, MISSING) for name in given if name not in there and not set(name) & set("*?[")]
    now = around.now()
    return [_checked(around, job, given, now) for job in (*found.jobs, *absent)], found.cost


def named_jobs(around: Surroundings, names: tuple[str, ...], given: Mapping[str, Threshold]) -> list[JobNow]:
    """Read only the named jobs, which works without dynamodb:Scan. Raise UnknownJobError if none of them exists."""
    from scripts.helpers.job_runs.run_store import RunStore

    found: list[ListedJob] = []
    unknown: UnknownJobError | None = None
    with progress(around, "reading jobs", len(names)) as steps:
        for name in dict.fromkeys(names):
            try:
                found.append(ListedJob(name, around.watermarks.latest(name)))
            except UnknownJobError as error:
                if RunStore(around.store).job(name) is not None:
                    found.append(ListedJob(name, None))
                else:
                    unknown = unknown or error
                    found.append(ListedJob(name, None, UNKNOWN))
            except (NewerFormatError, AmbiguousHistoryError, CorruptItemError) as error:
                found.append(ListedJob(name, None, str(error)))
            steps.at(len(found))
    # If at least one name exists, the list is shown, and the exit code reports the wrong names.
    if unknown is not None and all(job.problem == UNKNOWN for job in found):
        raise unknown
    now = around.now()
    return [_checked(around, job, given, now) for job in found]


def _checked(around: Surroundings, job: ListedJob, given: Mapping[str, Threshold], now: datetime) -> JobNow:
    """Return a job with its large states read from their chunks, or with a problem if the list cannot show the job."""
    try:
        job = replace(job, head=job.head and BoundedLookups(around.watermarks.lookups).opened(job.head))
        found = JobNow.of(job, now, threshold_of(job.job_id, given))
        for sort in SORTS:
            _order(found, sort)
        json_text(as_json(_facts(found, given)))
    except (CorruptItemError, *DAMAGE) as error:
        return JobNow.damaged(job.job_id, error, now)
    return found


def _order(job: JobNow, sort: str) -> tuple[Any, ...]:
    if sort == "version":
        return (-job.head.version if job.head else 1, job.job_id)
    if sort == "name":
        return (job.job_id,)
    # Do not write `lag or age`, because a lag of 0 is valid but falsy.
    found = lag(job.head, job.now) if job.head else None
    behind = job.age if found is None else found
    rank = job.condition.rank if sort == "urgency" else 0
    return (rank, -behind.total_seconds(), job.job_id)


def _facts(job: JobNow, given: Mapping[str, Threshold]) -> dict[str, Any]:
    if job.head is None:
        found = job.condition
        return {"job": job.job_id, "state": found.word, "reason": found.reason, "problem": job.problem}
    return head_json(job.head, job.now, threshold_of(job.job_id, given))


def _report(jobs: JobTable) -> None:
    """Print the metrics of each job that has a head."""
    for job in jobs:
        head, now = job.head, job.now
        if head is None:
            continue
        found = {
            "AgeSeconds": age(head, now),
            "LagSeconds": lag(head, now),
            "OpenPlanAgeSeconds": open_plan_age(head, now) or timedelta(0),
        }
        values = {name: time.total_seconds() for name, time in found.items() if time is not None}
        word = job.condition.word
        # Report 0 as well, because an alarm returns to OK only when it gets a value.
        values |= {
            "FilesWaiting": files_waiting(head),
            "Late": float(word in LATE),
            "Missing": float(word == "missing"),
        }
        run = head.last.run_id if head.last else None
        EmbeddedMetrics().report(JobReport(head.job_id, run or "", "looked", now, values))
