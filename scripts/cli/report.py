"""`watermarks report`: one HTML page about jobs, as a file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from scripts.cli.commands import Duration, JobName, command
from scripts.cli.deciding import asked
from scripts.cli.documents import emit
from scripts.cli.failures import offer_near
from scripts.cli.jobs import UNKNOWN, named_jobs
from scripts.cli.progress import progress
from scripts.cli.surroundings import Surroundings
from scripts.cli.thresholds import read_thresholds, thresholds_option
from scripts.helpers.display.units import printable
from scripts.helpers.errors import ConfigurationError
from scripts.jobs.exit_codes import FAILED


@command("report")
@click.argument("names", nargs=-1, type=JobName())
@click.option("--html", "path", required=True, type=click.Path(dir_okay=False, path_type=Path), help="File to write.")
@click.option("--since", type=Duration(), metavar="TIME", help="Only the versions of the last 7d, 24h, …")
@click.option("--values", is_flag=True, help="Show watermarks, which may be personal data.")
@click.option("--yes", is_flag=True, help="Overwrite an existing file without a question.")
@thresholds_option
def report(
    around: Surroundings,
    names: Sequence[str],
    path: Path,
    since: timedelta | None,
    values: bool,
    yes: bool,
    file: Path | None,
) -> None:
    """Write one self-contained HTML page about jobs.

    Exit code 1 if one of NAMES is not in the table. The page then shows the others.
    """
    if path.is_file():
        asked(around, f"Overwrite {printable(str(path))}?", yes)
    given = read_thresholds(file)
    build_report = report_package().build_report
    now = around.now()
    unknown = [job.job_id for job in named_jobs(around, tuple(names), {}) if job.problem == UNKNOWN] if names else []
    with progress(around, "reading jobs"):
        page = build_report(
            around.watermarks, jobs=names or None, since=now - since if since else None, now=now, values=values,
            thresholds=given,
        )  # fmt: skip
    path.write_text(page, encoding="utf-8")
    if around.is_json:
        emit({"file": str(path), "bytes": len(page.encode("utf-8")), "unknown": unknown})
    else:
        around.out.print(f"Wrote {printable(str(path))}.")
    if unknown:
        offer_near(around, unknown)
        raise click.exceptions.Exit(FAILED)


def report_package() -> Any:
    """Import the report. Raise ConfigurationError if a package that it needs is not installed."""
    try:
        import scripts.report
    except ImportError as error:
        raise ConfigurationError(f"The report requires {error.name}. Install it: pip install Jinja2.") from error
    return scripts.report
