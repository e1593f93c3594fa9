"""`watermarks completion`: print the script with which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from scripts.cli.commands import COMPLETE_VARIABLE, PROGRAM, command
from scripts.cli.documents import emit
from scripts.cli.surroundings import Surroundings


@command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(around: Surroundings, shell: str) -> None:
    """Print the shell script that completes commands and options.

    For bash: eval "$(watermarks completion bash)". Names of jobs are completed only with
    WATERMARKS_COMPLETE_JOBS=1 in the environment, as that asks AWS.
    """
    made = get_completion_class(shell)
    assert made is not None
    root = click.get_current_context().find_root().command
    script = made(root, {}, PROGRAM, COMPLETE_VARIABLE).source()
    if around.is_json:
        emit({"shell": shell, "script": script})
    else:
        click.echo(script)
