"""The command `watermarks`."""

from __future__ import annotations

import shutil
from importlib.metadata import PackageNotFoundError, version

import click
from click.shell_completion import get_completion_class

from scripts.cli import (
    backfilling,
    deciding,
    dry_run,
    lateness,
    listing,
    looking,
    moving,
    ranges,
    setting,
    viewing,
)
from scripts.cli.commands import command, shared
from scripts.cli.layout import emit
from scripts.cli.surroundings import Surroundings
from scripts.cli.usage import Commands
from scripts.jobs.exit_codes import BAD_DATA, BAD_SET_UP, FAILED, TRY_LATER

PROGRAM = "watermarks"
NARROW, MAX_WIDTH = 52, 100
EPILOG = f"""Exit codes: 0 done, {FAILED} failed, nothing there, or something found that is wrong, 2 wrong arguments,
{BAD_DATA} bad data, {TRY_LATER} try again later, {BAD_SET_UP} wrong set-up (table, credentials, permissions)."""


def _version() -> str:
    try:
        return version("glue-watermarks")
    except PackageNotFoundError:
        return "unknown"


@click.group(PROGRAM, cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name=PROGRAM)
@shared
def cli(**_: object) -> None:
    """Look at the watermarks of jobs, understand them, repair them.

    Commands that change something show what will change and ask. They need --why, which the history keeps.
    """


@command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(around: Surroundings, shell: str) -> None:
    """Write the script that completes commands and options.

    For bash: eval "$(watermarks completion bash)". Names of jobs are completed only with
    WATERMARKS_COMPLETE_JOBS=1 in the environment, as that asks AWS.
    """
    made = get_completion_class(shell)
    assert made is not None
    script = made(cli, {}, PROGRAM, "_WATERMARKS_COMPLETE").source()
    if around.is_json:
        emit({"shell": shell, "script": script})
    else:
        click.echo(script)


for module in (listing, lateness, looking, ranges, backfilling, dry_run, deciding, setting, moving, viewing):
    for made in module.COMMANDS:
        cli.add_command(made)
cli.add_command(completion)


def main() -> None:
    """Run the command."""
    columns = shutil.get_terminal_size().columns
    # Left alone, click writes no line of help shorter than 50 columns.
    width: dict[str, int] = {"terminal_width": columns} if columns < NARROW else {"max_content_width": MAX_WIDTH}
    cli(prog_name=PROGRAM, complete_var="_WATERMARKS_COMPLETE", **width)
