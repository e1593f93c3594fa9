"""Load the rows of a table that are new by a cursor column into a Parquet table."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from scripts.helpers._lazy import SparkSession
from scripts.helpers.backfill import Backfill
from scripts.helpers.batch.modes import Mode
from scripts.helpers.databases.login import login_of_secret
from scripts.helpers.databases.snapshot import PostgresSnapshot
from scripts.helpers.databases.sql_table import SqlTable, is_sql_url
from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import SourceError
from scripts.helpers.glue.catalog import Catalog
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.names import name_in_table
from scripts.helpers.rows.cursors import Bound, CursorColumn
from scripts.helpers.rows.options import RowOptions
from scripts.helpers.rows.sources import RowSource
from scripts.helpers.rows.spark_frames import DataFrameRows
from scripts.helpers.rows.states import bound_given
from scripts.helpers.schemas.policy import POLICIES, POLICIES_IN_WORDS
from scripts.helpers.spark.jvm import without_code
from scripts.helpers.watermarks import Watermarks
from scripts.jobs import session

USER, PASSWORD = "JDBC_USER", "JDBC_PASSWORD"
LIVE_JOB_OPTIONS = ("start_from", "high", "lookback", "descending", "max_rows", "take_over", "on_schema_change")
"""Options for live jobs only: where to read, whose lease to end, and how to keep the schema. A slice has its own bounds
and its own lease, and keeps no schema."""
DATABASE_OPTIONS = (
    "jdbc_table", "query", "jdbc_secret", "jdbc_connection", "jdbc_options", "where", "columns", "partitions",
    "snapshot",
)  # fmt: skip
"""Options that have no effect for files."""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    parser = session.parser(__doc__ or "")
    parser.add_argument("--format", default="parquet", help="format of the source table (default: %(default)s)")
    parser.add_argument(
        "--cursor-column",
        required=True,
        action="append",
        metavar="NAME",
        help="timestamp, date, integer or decimal column that grows; repeat for each column of a compound cursor",
    )
    session.add_options(
        parser,
        RowOptions,
        delay={},
        lookback={"type": session.time_span, "default": "0s", "metavar": "TIME"},
        nulls={},
        write_disposition={},
        start_from={
            "metavar": "VALUE",
            "help": "; times as 2026-01-31T10:00:00+00:00; values of a compound cursor have commas between them",
        },
        max_rows={"help": "; the job commits batches until no row is left"},
        high={"metavar": "VALUE"},
        strings={},
        descending={},
    )
    parser.add_argument(
        "--zone",
        metavar="NAME",
        help="zone of dates and of times that have none, such as Europe/London or UTC; a first run by such a column "
        "requires it",
    )
    parser.add_argument(
        "--context", default="rows", metavar="NAME", help="transformation context of the source (default: %(default)s)"
    )
    parser.add_argument(
        "--on-schema-change",
        choices=POLICIES,
        help=f"columns that earlier batches did not have, or had in other types. {POLICIES_IN_WORDS} (default: nothing "
        "is compared)",
    )
    slice_of = parser.add_argument_group(
        "backfill", "read an old range without moving the job's watermark; `watermarks backfill` prints such commands"
    )
    for option, text in (("low", "where the slice starts (inclusive)"), ("high", "where it ends (exclusive)")):
        slice_of.add_argument(
            f"--backfill-{option}",
            action="append",
            default=[],
            metavar="VALUE",
            help=f"{text}: a value of the cursor column; repeat for each column of a compound cursor",
        )
    slice_of.add_argument(
        "--backfill-name",
        default="backfill",
        metavar="NAME",
        help="name of the backfill; a new name reads the same bounds again (default: %(default)s)",
    )
    database = parser.add_argument_group(
        "database",
        "with --source jdbc:postgresql://host/database or another JDBC URL; postgresql://, mysql://, mariadb:// and "
        "sqlite:PATH are read without Spark",
    )
    database.add_argument("--jdbc-table", metavar="NAME", help="table, or schema.table")
    database.add_argument("--query", metavar="SQL", help="one SELECT to read instead of a table")
    login = database.add_mutually_exclusive_group()
    login.add_argument(
        "--jdbc-secret", metavar="ID", help="name or ARN of a secret in AWS Secrets Manager with the login"
    )
    login.add_argument("--jdbc-connection", metavar="NAME", help="AWS Glue connection with the login")
    database.add_argument(
        "--where", default="", metavar="SQL", help="condition for the rows to read, in the database's SQL"
    )
    database.add_argument("--columns", metavar="NAMES", help="columns to read, separated by commas (default: all)")
    database.add_argument(
        "--jdbc-user-from",
        default=USER,
        metavar="VARIABLE",
        help="environment variable that holds the user (default: %(default)s)",
    )
    database.add_argument(
        "--jdbc-password-from",
        default=PASSWORD,
        metavar="VARIABLE",
        help="environment variable that holds the password (default: %(default)s)",
    )
    database.add_argument(
        "--jdbc-options",
        type=session.json_map,
        default={},
        metavar="JSON",
        help="options for Spark's reader, or for the driver",
    )
    database.add_argument("--partitions", type=session.positive, metavar="N", help="number of ranges for a large load")
    database.add_argument(
        "--snapshot",
        action="store_true",
        help="PostgreSQL: the cursor column is xmin or holds transaction ids; read up to the oldest one still open",
    )
    return parser


def check_source_options(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Exit with a usage error if options of databases are given for files, or options of Spark if it is not used."""
    unfit = [name for name in DATABASE_OPTIONS if getattr(arguments, name)]
    if unfit and not arguments.source.startswith("jdbc:") and not is_sql_url(arguments.source):
        parser.error(f"--source is not a database URL: omit {', '.join(map(_option, unfit))}")
    for_spark = [name for name in ("snapshot", "spark_conf") if getattr(arguments, name)]
    if for_spark and is_sql_url(arguments.source):
        parser.error(f"--source is read without Spark: omit {', '.join(map(_option, for_spark))}, or use a jdbc: URL")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; return its exit code."""
    parser = make_parser()
    arguments = session.parse(parser, argv)
    check_source_options(parser, arguments)
    if not arguments.backfill_low and not arguments.backfill_high:
        return session.run_job(ingest, arguments)
    unfit = [name for name in LIVE_JOB_OPTIONS if getattr(arguments, name)]
    unfit += ["job_bookmark_option"] if not Mode.from_args(vars(arguments)).saves else []
    if unfit:
        options = ", ".join(map(_option, unfit))
        parser.error(f"a backfill has bounds and a lease of its own, and always saves: leave out {options}")
    return session.run_job(fill, arguments, begin_slice)


def ingest(job: IncrementalJob, arguments: argparse.Namespace) -> bool:
    """Read the rows past the watermark, write them under the batch id, and return whether rows are left."""
    source = source_of(session_for(job.job_id, arguments), arguments)
    rows = job.rows_since(
        source,
        arguments.cursor_column,
        transformation_ctx=arguments.context,
        delay=arguments.delay,
        lookback=arguments.lookback or None,  # Pass None for 0: a cursor of numbers refuses any duration.
        start_from=value_of(source, arguments, "start_from"),
        high=value_of(source, arguments, "high"),
        nulls=arguments.nulls,
        descending=arguments.descending,
        strings=arguments.strings,
        write_disposition=arguments.write_disposition,
        max_rows=arguments.max_rows,
        on_schema_change=arguments.on_schema_change,
    )
    job.write(rows, arguments.target)
    return job.has_more


def begin_slice(arguments: argparse.Namespace, watermarks: Watermarks, **options: Any) -> Backfill:
    """Return the slice of a backfill that the arguments name. Its `with` block will begin it."""
    job_id = name_in_table(arguments.JOB_NAME, arguments.BOOKMARK_CONTEXT)
    state = watermarks.progress.state(job_id, arguments.context)
    return Backfill(
        watermarks,
        job_id,
        arguments.JOB_RUN_ID,
        transformation_ctx=arguments.context,
        low=option_bound(state.columns, arguments, "backfill_low"),
        high=option_bound(state.columns, arguments, "backfill_high"),
        delay=arguments.delay,
        write_disposition=arguments.write_disposition,
        name=arguments.backfill_name,
        **options,
    )


def fill(backfill: Backfill, arguments: argparse.Namespace) -> bool:
    """Read a backfill's slice and write it under its batch id. Return False: after one batch, no rows are left."""
    source = source_of(session_for(backfill.job_id, arguments), arguments)
    rows = backfill.rows(source, arguments.cursor_column, nulls=arguments.nulls, strings=arguments.strings)
    backfill.write(rows, arguments.target)
    return False


def value_of(source: RowSource, arguments: argparse.Namespace, name: str) -> object:
    """Return the option ``start_from`` or ``high``, parsed by the source's cursor columns; None if it is not given."""
    if getattr(arguments, name) is None:
        return None
    return option_bound(source.columns(arguments.cursor_column, arguments.strings), arguments, name)


def option_bound(columns: Sequence[CursorColumn], arguments: argparse.Namespace, name: str) -> Bound | None:
    """Return a bound, parsed by the types of the cursor columns; None if it is not given."""
    given = getattr(arguments, name)
    return None if given in (None, []) else bound_given(columns, given, _option(name), typed=True)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def session_for(job_id: str, arguments: argparse.Namespace) -> SparkSession | None:
    """Return the Spark session that the source needs; None for a database that is read without Spark."""
    return None if is_sql_url(arguments.source) else session.make_session(job_id, arguments.spark_conf)


def source_of(spark: SparkSession | None, arguments: argparse.Namespace) -> RowSource:
    """Return the source of rows: files, or a table or query of a database."""
    if spark is not None and is_sql_url(arguments.source):
        raise SourceError("SqlTable", "this command reads rows through Spark. Give the source as a jdbc: URL.")
    if spark is not None and not arguments.source.startswith("jdbc:"):
        files = without_code(spark.read.format(arguments.format).load(arguments.source), arguments.source)
        return DataFrameRows(files, zone=arguments.zone, name=arguments.source)
    if not arguments.jdbc_table and not arguments.query:
        raise SourceError("JDBC", "no table is named. Pass --jdbc-table, or --query.")
    address, table = arguments.source, arguments.jdbc_table or ()
    options: dict[str, Any] = {
        "properties": login_of(arguments) | arguments.jdbc_options,
        "partitions": arguments.partitions,
        "where": arguments.where,
        "columns": arguments.columns.split(",") if arguments.columns else None,
    }
    if spark is None:
        return SqlTable(address, table, query=arguments.query, zone=arguments.zone, **options)
    if arguments.snapshot and arguments.query:
        raise SourceError("PostgreSQL query", "--snapshot reads a table. Leave out one of --query and --snapshot.")
    if arguments.snapshot:
        return PostgresSnapshot(spark, address, table, **options)
    return JdbcTable(spark, address, table, query=arguments.query, zone=arguments.zone, **options)


def login_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Return user and password from a secret, a Glue connection or the environment."""
    if arguments.jdbc_secret:
        return login_of_secret(arguments.jdbc_secret)
    if arguments.jdbc_connection:
        found = Catalog().connection(arguments.jdbc_connection)
        return {name: value for name, value in found.items() if name != "url"}
    # Read user and password from the environment: every user of the machine can see the arguments of a process.
    login: dict[str, str] = {}
    for name, variable in (("user", arguments.jdbc_user_from), ("password", arguments.jdbc_password_from)):
        if variable in os.environ:
            login[name] = os.environ[variable]
    return login


if __name__ == "__main__":
    session.leave(main())
