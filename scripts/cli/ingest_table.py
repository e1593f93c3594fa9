"""`watermarks ingest-table`: the ready-made job of that name, wherever the package is installed."""

from __future__ import annotations

import click

from scripts.cli.jobs_as_commands import job_command, run


@job_command("ingest-table")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def ingest_table(arguments: tuple[str, ...]) -> None:
    """Load the new rows of a table: the job scripts.jobs.ingest_table.

    Its arguments are the job's own: see "watermarks ingest-table --help".
    """
    # Here, as the job needs Spark's and pyarrow's packages, and the other commands do without.
    from scripts.jobs import ingest_table as job

    run(job.main, arguments)
