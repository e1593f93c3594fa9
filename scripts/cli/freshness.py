"""`watermarks freshness`: is anything late? For schedulers, which look at the exit code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from scripts.cli.commands import Duration, Job, command
from scripts.cli.documents import emit
from scripts.cli.failures import offer_near
from scripts.cli.jobs import UNKNOWN, found_jobs
from scripts.cli.screen import NONE, Cell, show_rows
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import duration_text
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.metrics.embedded import EmbeddedMetrics
from scripts.helpers.metrics.freshness import (
    RANK,
    Freshness,
    Measure,
    Status,
    Threshold,
    age,
    lag,
    open_plan_age,
    threshold_of,
    thresholds,
)
from scripts.helpers.metrics.report import JobReport
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.jobs import ListedJob
from scripts.helpers.protocol.names import served_by
from scripts.jobs.exit_codes import FAILED

MISSING = "not in the table; check the name in the thresholds"
Judged = tuple[ListedJob, Freshness | None]
"""A job with what its threshold says of it; None where the job cannot be read."""
STYLES = {"fresh": "green", "warn": "yellow", "never": "yellow", "error": "red"}


@command("freshness")
@click.argument("names", nargs=-1, type=Job())
@click.option(
    "--thresholds",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help='JSON by job name or pattern: {"parking*": {"warn": "2h", "error": "1d", "measure": "age"}}.',
)
@click.option("--warn", type=Duration(), metavar="TIME", help="For all jobs without a threshold in the file: 90s, 2h.")
@click.option("--error", type=Duration(), metavar="TIME", help="For all jobs without a threshold in the file: 1d.")
@click.option("--measure", type=click.Choice(["age", "lag"]), default="age", help="For --warn and --error (age).")
@click.option("--fail-on", type=click.Choice(["error", "warn"]), default="error", help="What the exit code 1 is for.")
@click.option("--metrics", is_flag=True, help="Write a line of CloudWatch's Embedded Metric Format for each job, only.")
def freshness(
    around: Surroundings,
    names: tuple[str, ...],
    file: Path | None,
    warn: timedelta | None,
    error: timedelta | None,
    measure: Measure,
    fail_on: Status,
    metrics: bool,
) -> None:
    """Tell which jobs are late. The exit code is 1 if one is, 0 if none is.

    Age is the time since the last version of a job, lag the time since its oldest cursor of time.
    Jobs that no threshold is given for are left out.
    """
    if metrics and around.is_json:
        raise click.UsageError("--metrics writes lines of its own. Leave --output out.")
    given = _read(file) if file else {}
    if warn is not None or error is not None:
        given.setdefault("*", Threshold(warn, error, measure))
    if not given and not metrics:
        raise InvalidValueError("No threshold is given. Give --warn, --error or --thresholds FILE.")
    now = around.now()
    jobs = found_jobs(around, names) if names else _all_jobs(around, given)
    if metrics:
        _report([job.head for job in jobs if job.head], now)
    judged: list[Judged] = []
    for job in jobs:
        threshold = threshold_of(job.job_id, given)
        if threshold is not None:
            judged.append((job, threshold.judge(job.head, now) if job.head else None))
    late = sum(_rank(one) >= RANK[fail_on] for one in judged)
    judged.sort(key=lambda one: (-_rank(one), one[0].job_id))
    if around.is_json:
        emit({"table": around.table, "late": late, "jobs": [_facts(job, found) for job, found in judged]})
    elif not metrics:
        _show(around, judged, late)
        unknown = [job.job_id for job in jobs if job.problem == UNKNOWN]
        if unknown:
            offer_near(around, unknown)
    if late:
        raise click.exceptions.Exit(FAILED)


def _all_jobs(around: Surroundings, given: Mapping[str, Threshold]) -> list[ListedJob]:
    """Read all jobs of the table, and add those that have a threshold of their own and are not there.

    The jobs of a backfill's slices are left out unless a threshold names them: they end with the backfill, and
    their age says nothing.
    """
    jobs = [job for job in found_jobs(around) if job.job_id in given or served_by(job.job_id) is None]
    there = {job.job_id for job in jobs}
    return jobs + [ListedJob(name, None, MISSING) for name in _named(given) if name not in there]


def _rank(judged: Judged) -> int:
    """Return how bad it is; a job that cannot be read is as bad as one that is late."""
    _, found = judged
    return RANK["error"] if found is None else RANK[found.status]


def _read(file: Path) -> dict[str, Threshold]:
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidValueError(f"{file} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidValueError(f'{file} holds no map of jobs, such as {{"parking*": {{"error": "1d"}}}}.')
    return thresholds(found)


def _named(given: Mapping[str, Threshold]) -> list[str]:
    """Return the names of thresholds that are no patterns: of these jobs one each must be there."""
    return [name for name in given if not set(name) & set("*?[")]


def _report(heads: list[Head], now: datetime) -> None:
    for head in heads:
        found = {
            "AgeSeconds": age(head, now),
            "LagSeconds": lag(head, now),
            "OpenPlanAgeSeconds": open_plan_age(head, now) or timedelta(0),
        }
        values = {name: time.total_seconds() for name, time in found.items() if time is not None}
        run = head.last.run_id if head.last else None
        EmbeddedMetrics().report(JobReport(head.job_id, run or "", "looked", now, values))


def _facts(job: ListedJob, found: Freshness | None) -> dict[str, Any]:
    if found is None:
        return {"job": job.job_id, "status": "error", "problem": job.problem}
    behind = None if found.behind is None else found.behind.total_seconds()
    return {"job": job.job_id, "status": found.status, "measure": _measured(job, found), "seconds": behind}


def _measured(job: ListedJob, found: Freshness) -> Measure:
    """Return what was compared: a job without a cursor of time has no lag, and is judged by its age."""
    has_lag = job.head is not None and lag(job.head, datetime.now(timezone.utc)) is not None
    return found.threshold.measure if has_lag else "age"


def _show(around: Surroundings, judged: list[Judged], late: int) -> None:
    rows: list[list[Cell]] = []
    for job, found in judged:
        if found is None:
            rows.append([job.job_id, Text("error", "red"), job.problem or "", NONE, NONE])
            continue
        limits = [
            NONE if limit is None else duration_text(limit) for limit in (found.threshold.warn, found.threshold.error)
        ]
        behind = "no version yet"
        if found.behind is not None:
            is_new = job.head is not None and job.head.last is None
            behind = f"{duration_text(found.behind)} {'without a version' if is_new else _measured(job, found)}"
        rows.append([job.job_id, Text(found.status, STYLES[found.status]), behind, *limits])
    if rows:
        show_rows(around.out, ("job", "status", "behind", "warn at", "error at"), rows)
    around.out.print(f"{late:,} of {len(judged):,} late.", style="bold red" if late else "dim")
