"""`watermarks ingest-files`: run the ready-made job `ingest_files` of the installed package."""

from __future__ import annotations

import click

from scripts.cli.jobs_as_commands import job_command, run


@job_command("ingest-files")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def ingest_files(arguments: tuple[str, ...]) -> None:
    """Load the new files of a prefix: the job scripts.jobs.ingest_files.

    Its arguments are the job's own: see "watermarks ingest-files --help".
    """
    # Imported here because the job needs Spark and pyarrow, which the other commands do not.
    from scripts.jobs import ingest_files as job

    run(job.main, arguments)
