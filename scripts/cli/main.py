"""The command `watermarks`. Each subcommand is in the file of its name."""

from __future__ import annotations

import shutil
from importlib.metadata import PackageNotFoundError, version

import click

from scripts.cli.adopt import adopt
from scripts.cli.backfill import backfill
from scripts.cli.commands import COMPLETE_VARIABLE, PROGRAM, shared, surroundings
from scripts.cli.complete_up_to import complete_up_to
from scripts.cli.completion import completion
from scripts.cli.copy import copy
from scripts.cli.create_table import create_table
from scripts.cli.discard_plan import discard_plan
from scripts.cli.doctor import doctor
from scripts.cli.files import files
from scripts.cli.history import history
from scripts.cli.ingest_files import ingest_files
from scripts.cli.ingest_table import ingest_table
from scripts.cli.jobs import jobs
from scripts.cli.overview import MOST_SHOWN, show_commands
from scripts.cli.plan import plan
from scripts.cli.release import release
from scripts.cli.report import report
from scripts.cli.reset import reset
from scripts.cli.rewind import rewind
from scripts.cli.set import set_values
from scripts.cli.show import show
from scripts.cli.usage import Commands
from scripts.cli.verify import verify
from scripts.jobs.exit_codes import BAD_DATA, BAD_SET_UP, FAILED, TRY_LATER

NARROW, MAX_WIDTH = 52, 100
"""click is passed the width of terminals below `NARROW` columns, since by itself it never writes help below 50 columns.
Help lines are at most `MAX_WIDTH` wide, because longer lines are hard to read."""
EPILOG = f"""Exit codes: 0 success, {FAILED} failed, not found, or a check found a problem, 2 wrong arguments,
{BAD_DATA} bad data, {TRY_LATER} try again later, {BAD_SET_UP} wrong set-up (table, credentials, permissions)."""


def _version() -> str:
    try:
        return version("glue-watermarks")
    except PackageNotFoundError:
        return "unknown"


@click.group(
    PROGRAM,
    cls=Commands,
    epilog=EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(_version(), prog_name=PROGRAM)
@shared
@click.pass_context
def cli(ctx: click.Context, /, **_: object) -> None:
    """Inspect and repair the watermarks of jobs.

    Without a command, `watermarks` shows which jobs need attention and lists the commands by purpose. Commands
    that change watermarks show the change and ask for confirmation. The history keeps the reason, --why.
    """
    if ctx.invoked_subcommand is not None:
        return
    around = surroundings(ctx)
    try:
        # Parse `jobs --limit N` as if typed, so that the defaults and environment variables of `jobs` apply.
        with jobs.make_context("jobs", ["--limit", str(MOST_SHOWN)], parent=ctx) as listing:
            jobs.invoke(listing)
    finally:
        # Show the commands even after an error, such as a missing table: a user who typed no command needs the list.
        if not around.is_json:
            show_commands(around)


COMMANDS = [
    jobs, show, history, files, plan, doctor, verify, complete_up_to, backfill, report,
    rewind, reset, set_values, discard_plan, release,
    adopt, copy, ingest_files, ingest_table, create_table, completion,
]  # fmt: skip
for made in COMMANDS:
    cli.add_command(made)


def main() -> None:
    """Run the command."""
    columns = shutil.get_terminal_size().columns
    # Set the width, because click by itself writes help lines of at least 50 columns.
    width: dict[str, int] = {"terminal_width": columns} if columns < NARROW else {"max_content_width": MAX_WIDTH}
    cli(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, **width)
