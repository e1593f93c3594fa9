"""Load the new files of a prefix into a Parquet table: csv, json, parquet, orc or text, or a mix of them.

With a limit for a batch, the job commits batches until no file is left. With --events-queue, it takes only files that
S3 events name, and with --metadata-journal only what S3 Metadata records. Events can be lost, and records can be late:
--relist lists the source from time to time as well.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from scripts.helpers._lazy import DataFrame
from scripts.helpers.errors import SourceError
from scripts.helpers.files.rules import FileOptions
from scripts.helpers.job import IncrementalJob
from scripts.helpers.listing.paths import suffix
from scripts.helpers.reading.dialects import unknown_options
from scripts.helpers.schemas.policy import POLICIES, POLICIES_IN_WORDS
from scripts.helpers.schemas.spark_frames import united
from scripts.jobs import session

if TYPE_CHECKING:
    from scripts.helpers.listing.events import S3EventQueue
    from scripts.helpers.listing.metadata_tables import S3MetadataInventory, S3MetadataJournal

FORMATS = ("csv", "json", "parquet", "orc", "text")
OPTIONS = ("include", "exclude", "ready_marker", "layout", "max_files", "max_bytes", "ledger_uri", "on_unreadable")
OWN = {"schema", "on_schema_change", "rescue"}
"""Options of `FileDelta.read` for which this job has an argument, so --reader-options may not contain them."""
NO_QUEUE = "none"
"""Value of --events-queue to list the source instead, for schedulers that can override an argument but not omit it."""


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
    parser.add_argument(
        "--on-schema-change",
        choices=POLICIES,
        help=f"columns that earlier batches did not have, or had in other types. {POLICIES_IN_WORDS} (default: add for "
        "csv and json, take for others)",
    )
    parser.add_argument(
        "--rescue",
        metavar="NAME",
        help="keep values that do not fit, and columns that are left out, as JSON in this column, such as _rescued; "
        "without it such a value stops the run",
    )
    choice = parser.add_argument_group("which files")
    session.add_options(
        choice,
        FileOptions,
        include={"metavar": "GLOB", "help": "; repeatable"},
        exclude={"metavar": "GLOB", "help": "; repeatable"},
        ready_marker={"metavar": "NAME"},
        layout={"metavar": "STRFTIME"},
        max_files={"help": "; the job commits batches until no file is left"},
        max_bytes={},
        ledger_uri={"metavar": "URI"},
        on_unreadable={},
    )
    choice.add_argument(
        "--events-queue",
        metavar="URL",
        help=f"take files from the S3 events in this SQS queue; {NO_QUEUE}: list the source (default: {NO_QUEUE})",
    )
    choice.add_argument(
        "--relist",
        type=session.time_span,
        metavar="TIME",
        help="with a queue or a journal: also list the source if the last listing is older than this, as events and "
        "records can be missed",
    )
    choice.add_argument(
        "--metadata-journal",
        type=_catalog_name,
        metavar="CATALOG.NAMESPACE",
        help="take files from the journal table of S3 Metadata; CATALOG is one of pyiceberg's configuration, NAMESPACE "
        "that of the bucket's tables, such as b_landing",
    )
    choice.add_argument(
        "--metadata-inventory",
        type=_catalog_name,
        metavar="CATALOG.NAMESPACE",
        help="read the live inventory table of S3 Metadata where the source would be listed",
    )
    later = parser.add_argument_group("after the commit")
    later.add_argument(
        "--after-commit", choices=("archive", "delete"), help="what to do with the taken files (default: keep them)"
    )
    later.add_argument(
        "--archive-to", metavar="URI", help="with archive: folder for the files, in subfolders v<version>/"
    )
    later.add_argument(
        "--min-age",
        type=session.time_span,
        metavar="TIME",
        help="keep files this long after they were written and committed",
    )
    arguments = session.parse(parser, argv)
    own = sorted(OWN & arguments.reader_options.keys())
    if own:
        parser.error(f"--reader-options are Spark's. Give --{own[0].replace('_', '-')} by itself.")
    if arguments.events_queue not in (None, NO_QUEUE) and arguments.metadata_journal:
        parser.error("--events-queue and --metadata-journal both name changed files. Give one of the two.")
    if arguments.relist is not None and arguments.events_queue in (None, NO_QUEUE) and not arguments.metadata_journal:
        parser.error(
            "--relist goes with the URL of --events-queue or with --metadata-journal only: without them each run lists."
        )
    return session.run_job(ingest, arguments)


def ingest(job: IncrementalJob, arguments: argparse.Namespace) -> bool:
    """Read the new files, write them under the batch id, and return whether more files are left.

    Spark is started only if there are new files.
    """
    options = {name: getattr(arguments, name) for name in OPTIONS}
    if arguments.after_commit or arguments.archive_to or arguments.min_age:
        options["after_commit"], options["archive_to"] = arguments.after_commit, arguments.archive_to
        options["min_age"] = arguments.min_age or timedelta(0)
    landed = job.new_files(
        arguments.source,
        listing=inventory_of(arguments),
        events=queue_of(arguments),
        metadata=journal_of(arguments),
        relist=arguments.relist,
        **options,
    )
    if not landed.count:
        # If the messages that were read name only old files, the queue may still have messages about new files.
        return landed.has_more
    formats = landed.split(suffix) if arguments.format == "auto" else {arguments.format: landed}
    unknown = sorted(set(formats) - set(FORMATS))
    if unknown:
        raise SourceError(
            arguments.source,
            f"the extension {unknown[0]!r} does not determine the format. Pass --format, one of {', '.join(FORMATS)}.",
        )
    spark = session.make_session(job.job_id, arguments.spark_conf)
    frames: list[DataFrame] = []
    # Pass each option only to the formats that have it. If no format has an option, pass it to all readers: they raise.
    unused = {one: set(unknown_options(one, arguments.reader_options)) for one in FORMATS}
    wrong = {option for option in arguments.reader_options if all(option in each for each in unused.values())}
    for name, part in sorted(formats.items()):
        others = unused[name] - wrong if arguments.format == "auto" else ()
        frame = part.read(
            spark, name, schema=arguments.schema, on_schema_change=arguments.on_schema_change,
            rescue=arguments.rescue or False,
            **{option: value for option, value in arguments.reader_options.items() if option not in others},
        )  # fmt: skip
        if frame.columns:  # A format whose files are all set aside has no columns.
            frames.append(frame)
    if frames:
        job.write(united(frames), arguments.target)
    return landed.has_more


def queue_of(arguments: argparse.Namespace) -> S3EventQueue | None:
    """Return the SQS queue that the arguments name; None to list the source."""
    if arguments.events_queue in (None, NO_QUEUE):
        return None
    from scripts.helpers.listing.events import S3EventQueue

    return S3EventQueue(arguments.events_queue)


def journal_of(arguments: argparse.Namespace) -> S3MetadataJournal | None:
    """Return the journal table that the arguments name; None without one. Raise the errors of `arrow_catalog`."""
    if arguments.metadata_journal is None:
        return None
    from scripts.helpers.listing.metadata_tables import S3MetadataJournal
    from scripts.helpers.sinks.connectors import arrow_catalog

    catalog = arrow_catalog(arguments.metadata_journal, None, SourceError, "use S3MetadataJournal(…, catalog=…)")
    return S3MetadataJournal(catalog, _namespace(arguments.metadata_journal))


def inventory_of(arguments: argparse.Namespace) -> S3MetadataInventory | None:
    """Return the live inventory table that the arguments name; None without one. Raise the errors of `journal_of`."""
    if arguments.metadata_inventory is None:
        return None
    from scripts.helpers.listing.metadata_tables import S3MetadataInventory
    from scripts.helpers.sinks.connectors import arrow_catalog

    catalog = arrow_catalog(arguments.metadata_inventory, None, SourceError, "use S3MetadataInventory(…, catalog=…)")
    return S3MetadataInventory(catalog, _namespace(arguments.metadata_inventory))


def _catalog_name(text: str) -> str:
    catalog, _, namespace = text.partition(".")
    if not catalog or not namespace:
        raise argparse.ArgumentTypeError(f"{text!r} is not CATALOG.NAMESPACE, such as s3tables.b_landing")
    return text


def _namespace(text: str) -> str:
    return text.partition(".")[2]


if __name__ == "__main__":
    session.leave(main())
