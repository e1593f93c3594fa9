"""`watermarks work`: start, retry and trigger runs of jobs that somebody names."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from scripts.cli.commands import Duration, JobName, command
from scripts.cli.documents import emit
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import printable
from scripts.helpers.errors import InvalidValueError

if TYPE_CHECKING:
    from scripts.helpers.job_runs.client import JobRuns
    from scripts.helpers.job_runs.emr_serverless import EmrServerless
    from scripts.helpers.job_runs.engines import SparkSubmit
    from scripts.helpers.watermarks import Watermarks


@command("work")
@click.argument("jobs", type=JobName(), nargs=-1, required=True, metavar="JOB...")
@click.option("--logs", metavar="FOLDER", help="Folder for logs, outside of --scripts. Only its owner can read them.")
@click.option(
    "--scripts",
    required=True,
    multiple=True,
    metavar="PLACE",
    help="Folder, file or URL whose scripts may run, such as s3://bucket/jobs/. Repeatable.",
)
@click.option("--pass-on", multiple=True, metavar="NAME", help="Environment variable to pass to scripts. Repeatable.")
@click.option("--master", metavar="URL", help="Spark's master.")
@click.option("--emr-application", metavar="ID", help="Run on this EMR Serverless application, not on this machine.")
@click.option("--emr-role", metavar="ARN", help="Role of the jobs on EMR Serverless.")
@click.option("--pause", type=Duration(), default="1s", show_default=True, help="Pause between two passes.")
@click.option("--once", is_flag=True, help="Make one pass, then exit.")
def work(
    around: Surroundings,
    jobs: Sequence[str],
    logs: str | None,
    scripts: Sequence[str],
    pass_on: Sequence[str],
    master: str | None,
    emr_application: str | None,
    emr_role: str | None,
    pause: timedelta,
    once: bool,
) -> None:
    """Start waiting runs, retries and triggered runs of jobs, on this machine or on EMR Serverless.

    The worker starts runs of the named JOBs only. Their scripts run as you, or as --emr-role, so name only jobs whose
    writers you trust.
    """
    from scripts.helpers.job_runs.client import JobRuns
    from scripts.helpers.job_runs.launcher import told_to_end

    if emr_application or emr_role:
        of_this_machine = {"--logs": logs, "--master": master, "--pass-on": pass_on}
        engine: SparkSubmit | EmrServerless = _emr_serverless(
            around, emr_application, emr_role, scripts, of_this_machine
        )
    else:
        engine = _spark_submit(logs, master, scripts, pass_on)
    runs = JobRuns(around.watermarks, engine)
    for name in jobs:
        _check_defined(around.watermarks, runs, name)
    if around.profile:
        os.environ["AWS_PROFILE"] = around.profile  # Launchers are processes of their own.
    found: list[dict[str, str]] = []

    def started(run: dict[str, str]) -> None:
        if around.is_json:
            found.append(run)
        else:
            around.out.print(printable(f"started {run['JobName']} {run['JobRunId']}"))

    if once:
        runs.tend(jobs, started)
    else:
        # What it does at that moment is done first.
        runs.work(jobs, pause.total_seconds(), told_to_end(signal.SIGINT, signal.SIGTERM), started)
    if around.is_json:
        emit({"started": found})


def _spark_submit(logs: str | None, master: str | None, scripts: Sequence[str], pass_on: Sequence[str]) -> SparkSubmit:
    from scripts.helpers.job_runs.engines import SparkSubmit

    if logs is None:
        raise click.UsageError("Missing option '--logs': the folder of the logs of runs on this machine.")
    return SparkSubmit(logs, master, scripts=list(scripts), pass_on=list(pass_on))


def _emr_serverless(
    around: Surroundings,
    application: str | None,
    role: str | None,
    scripts: Sequence[str],
    of_this_machine: Mapping[str, object],
) -> EmrServerless:
    from scripts.helpers.job_runs.emr_serverless import EmrServerless

    if application is None or role is None:
        raise click.UsageError("--emr-application and --emr-role are given together: where jobs run, and what as.")
    without_effect = [name for name, value in of_this_machine.items() if value]
    if without_effect:
        raise click.UsageError(
            f"{', '.join(without_effect)}: of runs on this machine only. EMR Serverless has its own."
        )
    return EmrServerless(around.client("emr-serverless"), application, role, scripts=list(scripts))


def _check_defined(watermarks: Watermarks, runs: JobRuns, name: str) -> None:
    """Refuse a job without a definition: a worker for a name that is misspelt would wait for ever and say nothing."""
    from scripts.helpers.glue_api.errors import EntityNotFoundException

    try:
        runs.get_job(JobName=name)
    except EntityNotFoundException:
        watermarks.latest(name)  # An UnknownJobError, with names like it, if there is nothing at all.
        raise InvalidValueError(
            f"Job {name!r} has no definition, so no run can be started. Create one with JobRuns.create_job."
        ) from None
