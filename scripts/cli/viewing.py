"""Commands that show more than watermarks: the runs of a job, the report page, the same page live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from scripts.cli.commands import Duration, Job, command, job_argument
from scripts.cli.failures import offer_near
from scripts.cli.glue_runs import runs_in_glue
from scripts.cli.layout import Cell, emit, show_rows
from scripts.cli.listing import UNKNOWN, found_jobs
from scripts.cli.moving import may_write
from scripts.cli.progress import progress
from scripts.cli.surroundings import Surroundings
from scripts.cli.texts import NONE, moment, printable
from scripts.helpers.display.units import duration_text, id_text
from scripts.helpers.errors import AmbiguousHistoryError, ConfigurationError, CorruptItemError, NewerFormatError
from scripts.jobs.exit_codes import FAILED

STYLES = {"SUCCEEDED": "green", "FAILED": "red", "TIMEOUT": "red", "ERROR": "red", "EXPIRED": "red", "LOST": "red"}


@command("runs")
@job_argument
@click.option(
    "--limit", type=click.IntRange(1, 200), default=20, show_default=True, metavar="N", help="At most so many."
)
@click.option("--glue", is_flag=True, help="The runs of Glue itself (glue:GetJobRuns).")
def runs(around: Surroundings, job: str, limit: int, glue: bool) -> None:
    """Show the runs of a job, as our Job Runs API or Glue keeps them."""
    found = runs_in_glue(around, job, limit) if glue else _runs_of_table(around, job, limit)
    if around.is_json:
        emit({"job": job, "runs": found})
        return
    if not found:
        around.out.print("No run is on record.")
        return
    headings = ("run", "state", "attempt", "started", "took", "error")
    show_rows(around.out, headings, [_row(run) for run in found], ("attempt", "took"))


def _runs_of_table(around: Surroundings, job: str, limit: int) -> list[dict[str, Any]]:
    """Read the records of runs; a launcher that gave no sign within its lease is shown as lost.

    UnknownJobError where the table holds neither runs, nor a definition, nor watermarks of the job.
    """
    from scripts.helpers.job_runs.run_store import RunStore

    now, store = around.now(), RunStore(around.store)
    with progress(around, f"reading runs of {printable(job)}"):
        records = store.newest_runs(job, limit)
        if not records and store.job(job) is None:
            with suppress(AmbiguousHistoryError, CorruptItemError, NewerFormatError):
                around.watermarks.latest(job)
    return [dict(record.to_job_run()) | ({"Lost": True} if record.is_lost(now) else {}) for record in records]


def _row(run: Mapping[str, Any]) -> Sequence[Cell]:
    state = "LOST" if run.get("Lost") else str(run["JobRunState"])
    seconds, started = run.get("ExecutionTime"), run.get("StartedOn")
    return [
        printable(id_text(run["Id"])),
        Text(state, STYLES.get(state, "")),
        f"{run.get('Attempt', 0):,}",
        moment(started if isinstance(started, datetime) else None),
        duration_text(timedelta(seconds=seconds)) if seconds else NONE,
        printable(str(run.get("ErrorMessage") or NONE)),
    ]


@command("report")
@click.argument("names", nargs=-1, type=Job())
@click.option(
    "--html", "path", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The file to write."
)
@click.option("--since", type=Duration(), metavar="TIME", help="Only the last 7d, 24h, …")
@click.option("--values", is_flag=True, help="Show watermarks too; they may be personal data.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def report(
    around: Surroundings, names: Sequence[str], path: Path, since: timedelta | None, values: bool, force: bool
) -> None:
    """Write one HTML page about jobs that needs no other file.

    The exit code is 1 if one of NAMES is not in the table; the page has the others.
    """
    may_write(path, force)
    build_report = _report().build_report
    now = around.now()
    unknown = [job.job_id for job in found_jobs(around, tuple(names)) if job.problem == UNKNOWN] if names else []
    with progress(around, "reading jobs"):
        page = build_report(
            around.watermarks, jobs=names or None, since=now - since if since else None, now=now, values=values
        )
    path.write_text(page, encoding="utf-8")
    if around.is_json:
        emit({"file": str(path), "bytes": len(page.encode("utf-8")), "unknown": unknown})
    else:
        around.out.print(f"Wrote {printable(str(path))}.")
    if unknown:
        offer_near(around, unknown)
        raise click.exceptions.Exit(FAILED)


@command("serve")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8080, show_default=True, metavar="N", help="0: any free."
)
@click.option("--values", is_flag=True, help="Show watermarks too; they may be personal data.")
def serve(around: Surroundings, port: int, values: bool) -> None:
    """Serve the same page live, for this machine only."""
    _report().serve(around.watermarks, port=port, values=values)


def _report() -> Any:
    """Import the report; ConfigurationError where what it needs is not installed."""
    try:
        import scripts.report
    except ImportError as error:
        raise ConfigurationError(
            f"The report needs {error.name}. Install it: pip install 'glue-watermarks[report]'."
        ) from error
    return scripts.report


COMMANDS = [runs, report, serve]
