"""`watermarks verify`: compare source and target of a job, interval by interval."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import click

from scripts.cli.backfill import ingest_arguments, is_given, slice_command
from scripts.cli.commands import command, context_option, job_argument
from scripts.cli.contexts import placed, span_rows, state_in
from scripts.cli.deciding import confirm_place
from scripts.cli.documents import emit
from scripts.cli.progress import progress
from scripts.cli.screen import Cell, show_rows
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import printable
from scripts.helpers.errors import ConfigurationError, InvalidValueError
from scripts.helpers.metrics.freshness import duration
from scripts.helpers.rows.cursors import CursorColumn, Tick
from scripts.helpers.rows.states import RowsState
from scripts.helpers.rows.verification import RECENT, SAMPLED, Choice, Verification
from scripts.jobs.exit_codes import FAILED

VERSIONS = 100
"""How many versions of a job are searched for its targets."""
FORMATS = {"files": "parquet", "delta": "delta", "iceberg": "iceberg"}
"""The format that each kind of sink writes. Files may have another; parquet is the usual one."""
NAME = "verify"
"""Name of the backfill whose slices read differing intervals again."""


@command("verify")
@job_argument
@click.argument("arguments", nargs=-1, metavar="-- ARGUMENTS...")
@context_option
@click.option("--target", metavar="URI", help="The target. Without it, the command asks about the one found.")
@click.option("--target-format", metavar="NAME", help="Format of the target: parquet, delta, iceberg, …")
@click.option(
    "--interval", metavar="WIDTH", help="Width of an interval: 1d or 6h for times (1d), a number for numbers."
)
@click.option(
    "--recent",
    type=click.IntRange(0),
    default=RECENT,
    show_default=True,
    metavar="N",
    help="Compare the N newest intervals.",
)
@click.option(
    "--sample",
    type=click.IntRange(0),
    default=SAMPLED,
    show_default=True,
    metavar="N",
    help="Compare N other intervals at random.",
)
@click.option("--all-intervals", "everything", is_flag=True, help="Compare all intervals.")
@click.option("--columns", metavar="NAMES", help="Compare only these, separated by commas.")
@click.option("--exact/--no-exact", default=None, help="Whether rows that only the target has count as a difference.")
def verify(
    around: Surroundings,
    job: str,
    arguments: Sequence[str],
    context: str | None,
    target: str | None,
    target_format: str | None,
    interval: str | None,
    recent: int,
    sample: int,
    everything: bool,
    columns: str | None,
    exact: bool | None,
) -> None:
    """Compare the rows that a job has taken with its target. Exit code 1 if an interval differs.

    Pass the source in ARGUMENTS, as to "watermarks ingest-table": "-- --source URI", and for a database
    options such as --jdbc-table. Spark reads both sides. Rows that were added or updated after the last
    commit do not count as differences. For each interval that differs, the command prints how to read it
    again, for a target that merges by key.
    """
    with progress(around, f"reading {printable(job)}"):
        name, state = state_in(around, job, context, "rows")
    if not is_given("--source", arguments):
        raise click.UsageError("The source is missing. Give it after --, as in: -- --source URI.")
    reading = ingest_arguments("verify", job, state, ["--target=unused", *arguments])
    column = state.columns[0]
    choice = Choice(_width(column, interval), recent, sample, everything)
    place, kind = _target(around, job, target, target_format)
    with progress(around, f"comparing {printable(job)} with {printable(place)}"):
        found = _compared(
            around, job, name, reading, place, choice,
            {"format": kind, "columns": columns.split(",") if columns else None, "exact": exact},
        )  # fmt: skip
    mending = [*arguments, f"--target={place}", "--write-disposition=merge"]
    commands = {
        one: slice_command(around.table, job, name, state, (one.low, one.high), mending, NAME)
        for one in found.differing
    }
    if around.is_json:
        _emit(found, state, place, commands)
    else:
        _show(around, found, state, commands)
    if not found.is_equal:
        raise click.exceptions.Exit(FAILED)


def _width(column: CursorColumn, text: str | None) -> Tick | None:
    """Parse the width of an interval: a duration for a cursor of times, otherwise a number."""
    if text is None:
        return None
    if column.is_time:
        return duration(text)
    try:
        number = Decimal(text)
        return int(number) if number == number.to_integral_value() else number
    except (InvalidOperation, ValueError, OverflowError):
        raise InvalidValueError(
            f"--interval {text!r} is not a number. The cursor {column.name!r} is numeric."
        ) from None


def _target(around: Surroundings, job: str, given: str | None, format: str | None) -> tuple[str, str]:
    """Return the target and its format: as given, or from the job's versions after an operator confirms it."""
    written: dict[str, str] = {}
    for entry in around.watermarks.lookups.versions(around.watermarks.latest(job), VERSIONS):
        for output in entry.change.outputs:
            written.setdefault(output.target, output.sink)
    is_found = given is None
    if given is None:
        if len(written) != 1:
            known = ", ".join(map(printable, written)) or "none that is known"
            raise InvalidValueError(f"Job {job!r} wrote to {len(written)} targets: {known}. Choose with --target.")
        (given,) = written
    kind = written.get(given, "files")
    if format is None and kind not in FORMATS:
        raise InvalidValueError(
            f"{given!r} is a target of kind {kind!r}, which requires a login. Compare it in Python: job.verify(source, "
            "JdbcTable(spark, url, table))."
        )
    if is_found:
        confirm_place(around, "target", given, f"--target {shlex.quote(given)}")
    return given, format or FORMATS[kind]


def _compared(
    around: Surroundings,
    job: str,
    context: str,
    reading: argparse.Namespace,
    target: str,
    choice: Choice,
    options: Mapping[str, Any],
) -> Verification:
    try:
        from scripts.helpers.batch.verifying import verify as compare
        from scripts.jobs import session
        from scripts.jobs.ingest_table import source_of

        spark = session.make_session(job, reading.spark_conf)
    except ImportError as error:
        raise ConfigurationError(f"This command requires {error.name}. Install it: pip install pyspark.") from error
    source = source_of(spark, reading)
    return compare(around.watermarks, job, context, source, target, choice=choice, spark=spark, **options)


def _show(around: Surroundings, found: Verification, state: RowsState, commands: Mapping[Any, Sequence[str]]) -> None:
    rows: list[list[Cell]] = []
    for one in found:
        (ends,) = span_rows(placed(state, [(one.low, one.high)]))
        rows.append([*ends, *_counts(one), "differs" if one.differs else ""])
    heading = ("low", "high (not included)", "source", "target", "missing", "doubled", "extra", "")
    show_rows(around.out, heading, rows)
    for name, why in found.compared.left_out.items():
        around.out.print(f"Column {printable(name)} is not compared: {printable(why)}.")
    around.out.print(found.caption.partition(": ")[2].capitalize() + ".")
    if commands:
        around.out.print("To read an interval again, for a target that merges by key:", style="dim")
    for words in commands.values():
        click.echo(shlex.join(words))


def _counts(one: Any) -> list[Cell]:
    return [f"{count:,}" for count in (one.source_rows, one.target_rows, one.missing, one.doubled, one.extra)]


def _emit(found: Verification, state: RowsState, target: str, commands: Mapping[Any, Sequence[str]]) -> None:
    intervals = []
    for one in found:
        ((low, high),) = placed(state, [(one.low, one.high)])
        facts: dict[str, Any] = {
            "low": low, "high": high, "source": one.source_rows, "target": one.target_rows,
            "missing": one.missing, "doubled": one.doubled, "extra": one.extra, "differs": one.differs,
        }  # fmt: skip
        if one in commands:
            facts["command"] = list(commands[one])
        intervals.append(facts)
    emit({
        "job": found.job_id, "context": found.context, "target": target, "equal": found.is_equal,
        "compared": len(found), "intervals_in_all": found.total, "columns": list(found.compared.kinds),
        "columns_left_out": dict(found.compared.left_out), "intervals": intervals,
    })  # fmt: skip
