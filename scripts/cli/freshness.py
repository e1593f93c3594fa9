"""`watermarks freshness`: is anything late? For schedulers, which look at the exit code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from scripts.cli.commands import Duration, JobName, command
from scripts.cli.documents import emit
from scripts.cli.failures import offer_near
from scripts.cli.jobs import UNKNOWN, found_jobs
from scripts.cli.screen import NONE, Cell, show_rows
from scripts.cli.surroundings import Surroundings
from scripts.cli.thresholds import read_thresholds, thresholds_option
from scripts.helpers.display.units import count_of, duration_text
from scripts.helpers.metrics.embedded import EmbeddedMetrics
from scripts.helpers.metrics.freshness import Measure, Threshold, age, lag, open_plan_age
from scripts.helpers.metrics.report import JobReport
from scripts.helpers.metrics.thresholds import threshold_of
from scripts.helpers.metrics.urgency import LATE, lateness_of, read_condition, rhythm_in, unreadable
from scripts.helpers.protocol.jobs import ListedJob
from scripts.helpers.protocol.names import served_by
from scripts.helpers.states import files_waiting
from scripts.jobs.exit_codes import FAILED

MISSING = "not in the table; check the name in the thresholds"
STYLES = {"on time": "green", "missing": "red", "problem": "red", "not known": ""}
"""Colours of states; of all others yellow."""


@dataclass(frozen=True)
class Judged:
    """One job with what is said of it: a state of `WORDS`, ``on time``, or ``not known`` where nothing is usual yet."""

    job: ListedJob
    word: str
    reason: str
    threshold: Threshold | None

    @property
    def level(self) -> int:
        """Return 2 for what is missing or cannot be read, 1 for what is late, unusual or never was there, else 0."""
        if self.word in ("missing", "problem"):
            return 2
        return 0 if self.word in ("on time", "not known") else 1


@command("freshness")
@click.argument("names", nargs=-1, type=JobName())
@thresholds_option
@click.option(
    "--warn", type=Duration(), metavar="TIME", help="Late after this, for jobs that are not in the file: 90s, 2h."
)
@click.option(
    "--error", type=Duration(), metavar="TIME", help="Missing after this, for jobs that are not in the file: 1d."
)
@click.option(
    "--measure", type=click.Choice(["age", "lag"]), default="age", help="What --warn and --error compare (age)."
)
@click.option(
    "--fail-on", type=click.Choice(["missing", "late"]), default="missing", help="When to exit with 1 (missing)."
)
@click.option("--metrics", is_flag=True, help="Print only a line of CloudWatch's Embedded Metric Format for each job.")
def freshness(
    around: Surroundings,
    names: tuple[str, ...],
    file: Path | None,
    warn: timedelta | None,
    error: timedelta | None,
    measure: Measure,
    fail_on: str,
    metrics: bool,
) -> None:
    """Show which jobs are late. Exit code 1 if a job is missing.

    Without thresholds, a job is late half a period after its next commit was due, and missing after
    three more commits did not come. Its last 28 commits determine the period. With thresholds, a job is
    late from "warn" on and missing from "error" on. Age is the time since the last version of a job, lag
    the time since its oldest time cursor. With --fail-on late, the exit code is also 1 if a job is late,
    set files aside, took unusually little or much, or has no commit yet.
    """
    if metrics and around.is_json:
        raise click.UsageError("--metrics has its own output format. Omit --output.")
    given = read_thresholds(file)
    if warn is not None or error is not None:
        given.setdefault("*", Threshold(warn, error, measure))
    now = around.now()
    jobs = found_jobs(around, names) if names else _all_jobs(around, given)
    judged = [_judged(job, now, threshold_of(job.job_id, given)) for job in jobs]
    if metrics:
        _report(judged, now)
    least = 2 if fail_on == "missing" else 1
    late = sum(one.level >= least for one in judged)
    judged.sort(key=lambda one: (-one.level, one.job.job_id))
    if around.is_json:
        emit({"table": around.table, "late": late, "jobs": [_facts(one, now) for one in judged]})
    elif not metrics:
        _show(around, judged, late)
        unknown = [job.job_id for job in jobs if job.problem == UNKNOWN]
        if unknown:
            offer_near(around, unknown)
    if late:
        raise click.exceptions.Exit(FAILED)


def _judged(job: ListedJob, now: datetime, threshold: Threshold | None) -> Judged:
    if job.head is None:
        return Judged(job, "problem", unreadable(job.job_id, job.problem or "").reason, threshold)
    found = lateness_of(job.head, now, threshold) or read_condition(job.head)
    if found is not None:
        return Judged(job, found.word, found.reason, threshold)
    since = age(job.head, now)
    if since is None:
        return Judged(job, "no commit yet", "nothing is committed", threshold)
    rhythm = rhythm_in(job.head)
    if threshold is not None:
        judged = threshold.judge(job.head, now)
        behind = since if judged.behind is None else judged.behind
        return Judged(job, "on time", f"{duration_text(behind)} {judged.measure}", threshold)
    if rhythm is not None:
        return Judged(job, "on time", f"{rhythm.text}, last {duration_text(since)} ago", threshold)
    return Judged(job, "not known", f"too few commits, last {duration_text(since)} ago", threshold)


def _all_jobs(around: Surroundings, given: Mapping[str, Threshold]) -> list[ListedJob]:
    """Read all jobs of the table, and add those that have a threshold of their own and are not there.

    The jobs of a backfill's slices are left out unless a threshold names them: they end with the backfill, and
    their age says nothing.
    """
    jobs = [job for job in found_jobs(around) if job.job_id in given or served_by(job.job_id) is None]
    there = {job.job_id for job in jobs}
    return jobs + [ListedJob(name, None, MISSING) for name in _named(given) if name not in there]


def _named(given: Mapping[str, Threshold]) -> list[str]:
    """Return the names of thresholds that are no patterns: of these jobs one each must be there."""
    return [name for name in given if not set(name) & set("*?[")]


def _report(judged: list[Judged], now: datetime) -> None:
    for one in judged:
        head = one.job.head
        if head is None:
            continue
        found = {
            "AgeSeconds": age(head, now),
            "LagSeconds": lag(head, now),
            "OpenPlanAgeSeconds": open_plan_age(head, now) or timedelta(0),
        }
        values = {name: time.total_seconds() for name, time in found.items() if time is not None}
        # Also 0: an alarm on it comes back to OK only by a value.
        values |= {
            "FilesWaiting": files_waiting(head),
            "Late": float(one.word in LATE),
            "Missing": float(one.word == "missing"),
        }
        run = head.last.run_id if head.last else None
        EmbeddedMetrics().report(JobReport(head.job_id, run or "", "looked", now, values))


def _facts(one: Judged, now: datetime) -> dict[str, Any]:
    facts = {"job": one.job.job_id, "status": one.word, "reason": one.reason}
    if one.job.head is None:
        return facts | {"problem": one.job.problem}
    if one.threshold is None:
        since, measure = age(one.job.head, now), "age"
    else:
        found = one.threshold.judge(one.job.head, now)
        since, measure = found.behind, found.measure
    rhythm = rhythm_in(one.job.head)
    return facts | {
        "measure": measure,
        "seconds": None if since is None else since.total_seconds(),
        "usual_seconds": None if rhythm is None else rhythm.usual.total_seconds(),
    }


def _show(around: Surroundings, judged: list[Judged], late: int) -> None:
    rows: list[list[Cell]] = []
    for one in judged:
        warn, error = (one.threshold.warn, one.threshold.error) if one.threshold else (None, None)
        limits = [NONE if limit is None else duration_text(limit) for limit in (warn, error)]
        rows.append([one.job.job_id, Text(one.word, STYLES.get(one.word, "yellow")), one.reason, *limits])
    if rows:
        show_rows(around.out, ("job", "status", "why", "late at", "missing at"), rows)
    around.out.print(f"{late:,} of {count_of(len(judged), 'job')} late.", style="bold red" if late else "dim")
