"""How a ready-made job becomes a command: its arguments are its own, and go to it as they are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.core import ParameterSource

from scripts.cli.commands import PROGRAM

PASS_ON = {"ignore_unknown_options": True, "help_option_names": []}
"""The job's parser knows its options, --help among them."""


def job_command(name: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Return what makes a command of a function that runs a job."""

    def made(function: Callable[..., Any]) -> click.Command:
        return click.command(name, context_settings=PASS_ON, add_help_option=False)(function)

    return made


def run(main: Callable[[Sequence[str]], int], arguments: Sequence[str]) -> None:
    """Run a job, and exit with its code.

    Raises
    ------
    click.UsageError
        An option of `watermarks` itself stands before the name of the command: the job would not see it.
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
    # The job's parser calls itself by this in its help.
    sys.argv[0] = f"{PROGRAM} {context.info_name}"
    sys.exit(main(arguments))
