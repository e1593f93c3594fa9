"""Load the new files of a prefix into a Parquet table: csv, json, parquet, orc or text, or a mix of them.

With a limit for a batch, batches follow each other until nothing is left.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import reduce

from scripts.helpers.errors import SourceError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.spark_paths import suffix
from scripts.jobs import session

FORMATS = ("csv", "json", "parquet", "orc", "text")
OPTIONS = ("include", "exclude", "ready_marker", "layout", "max_files", "max_bytes", "ledger_uri")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; return its exit code."""
    parser = session.parser(__doc__ or "")
    parser.add_argument(
        "--format",
        choices=("auto", *FORMATS),
        default="auto",
        help="file format; auto goes by the file name extension (default: %(default)s)",
    )
    parser.add_argument("--schema", metavar="DDL", help='columns, such as "id BIGINT, at TIMESTAMP"')
    parser.add_argument(
        "--reader-options", type=session.json_map, default={}, metavar="JSON", help='such as {"header": "true"}'
    )
    choice = parser.add_argument_group("which files")
    choice.add_argument("--include", action="append", default=[], metavar="GLOB", help="take only these; repeatable")
    choice.add_argument("--exclude", action="append", default=[], metavar="GLOB", help="leave these out; repeatable")
    choice.add_argument("--ready-marker", metavar="NAME", help="take only folders that hold it, such as _SUCCESS")
    choice.add_argument("--layout", metavar="STRFTIME", help="date folders, such as day=%%Y-%%m-%%d/: list only recent")
    choice.add_argument("--max-files", type=session.positive, metavar="N", help="most of one batch; batches go on")
    choice.add_argument("--max-bytes", type=session.positive, metavar="N", help="most of one batch; batches go on")
    choice.add_argument("--ledger-uri", metavar="URI", help="remember files as Parquet here, not in the table")
    return session.run_job(ingest, session.parse(parser, argv))


def ingest(job: IncrementalJob, arguments: argparse.Namespace) -> bool:
    """Read the files that are new, write them under the batch id, and tell whether more are left.

    Without new files Spark is not started.
    """
    landed = job.new_files(arguments.source, **{name: getattr(arguments, name) for name in OPTIONS})
    if not landed.count:
        return False
    formats = landed.split(suffix) if arguments.format == "auto" else {arguments.format: landed}
    unknown = sorted(set(formats) - set(FORMATS))
    if unknown:
        raise SourceError(
            arguments.source,
            f"the extension {unknown[0]!r} tells no format. Pass --format, one of {', '.join(FORMATS)}.",
        )
    spark = session.make_session(job.job_id, arguments.spark_conf)
    frames = [
        part.read(spark, name, schema=arguments.schema, **arguments.reader_options)
        for name, part in sorted(formats.items())
    ]
    job.write(reduce(lambda one, other: one.unionByName(other), frames), arguments.target)
    return landed.has_more


if __name__ == "__main__":
    session.leave(main())
