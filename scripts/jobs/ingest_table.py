"""Load the rows of a table that are new by a cursor column into a Parquet table."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import timedelta

from scripts.helpers.job import IncrementalJob
from scripts.helpers.row_window import DEFAULT_DELAY
from scripts.jobs import session


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; return its exit code."""
    parser = session.parser(__doc__ or "")
    parser.add_argument("--format", default="parquet", help="format of the source table (default: %(default)s)")
    parser.add_argument(
        "--cursor-column", required=True, metavar="NAME", help="timestamp, date, integer or decimal column that grows"
    )
    parser.add_argument(
        "--delay-seconds",
        type=session.not_negative,
        default=int(DEFAULT_DELAY.total_seconds()),
        metavar="N",
        help="how far times stay behind the clock: the longest transaction of the source (default: %(default)s)",
    )
    return session.run_job(ingest, session.parse(parser, argv))


def ingest(job: IncrementalJob, arguments: argparse.Namespace) -> bool:
    """Read the rows past the watermark and write them under the batch id; nothing is left then."""
    spark = session.make_session(job.job_id, arguments.spark_conf)
    table = spark.read.format(arguments.format).load(arguments.source)
    delay = timedelta(seconds=arguments.delay_seconds)
    rows = job.rows_since(table, arguments.cursor_column, delay=delay)
    job.write(rows, arguments.target)
    return False


if __name__ == "__main__":
    session.leave(main())
