"""Turn the ready-made jobs into commands, which pass their arguments to the jobs unchanged."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.core import ParameterSource

from scripts.cli.commands import PROGRAM

PASS_THROUGH_SETTINGS = {"ignore_unknown_options": True, "help_option_names": []}
"""Settings with which click passes all options to the job's own parser, including --help."""


def job_command(name: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes a command of a function that runs a job."""

    def made(function: Callable[..., Any]) -> click.Command:
        return click.command(name, context_settings=PASS_THROUGH_SETTINGS, add_help_option=False)(function)

    return made


def run(main: Callable[[Sequence[str]], int], arguments: Sequence[str]) -> None:
    """Run a job, and exit with its code.

    Raises
    ------
    click.UsageError
        An option of `watermarks` is given before the command's name, where the job would not get it.
    """
    context = click.get_current_context()
    parent = context.parent
    for option in parent.params if parent is not None else ():
        if parent is not None and parent.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            shown = option.replace("_", "-")
            raise click.UsageError(
                f"--{shown} is given before {context.info_name}, which does not read it there. "
                f"Give it after {context.info_name}."
            )
    # The job's help shows this as the name of the command.
    sys.argv[0] = f"{PROGRAM} {context.info_name}"
    sys.exit(main(arguments))
