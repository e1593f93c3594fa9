"""`watermarks ingest-table`: run the ready-made job `ingest_table` of the installed package."""

from __future__ import annotations

import click

from scripts.cli.jobs_as_commands import job_command, run


@job_command("ingest-table")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def ingest_table(arguments: tuple[str, ...]) -> None:
    """Load the new rows of a table: the job scripts.jobs.ingest_table.

    Its arguments are the job's own: see "watermarks ingest-table --help".
    """
    # Imported here because the job needs Spark and pyarrow, which the other commands do not.
    from scripts.jobs import ingest_table as job

    run(job.main, arguments)
