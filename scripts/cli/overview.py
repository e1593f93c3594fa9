"""`watermarks` without a command: the first jobs of the list, then the commands by purpose, each with an example."""

from __future__ import annotations

from rich.text import Text

from scripts.cli.screen import show_folded
from scripts.cli.surroundings import Surroundings

MOST_SHOWN = 10
"""How many jobs are listed, so that the commands below them stay on the screen."""
GROUPS: dict[str, dict[str, str]] = {
    "look": {
        "jobs": "jobs --fail-on late",
        "show": "show parking",
        "history": "history parking --diff 1 2",
        "files": "files parking --explain 2026/03/16.csv",
        "complete-up-to": "complete-up-to parking --at 2026-03-16T00:00:00Z",
        "verify": "verify parking",
        "report": "report --html page.html",
    },
    "plan": {"plan": "plan parking", "backfill": "backfill parking"},
    "repair": {
        "doctor": "doctor parking",
        "release": "release parking --why TEXT",
        "discard-plan": "discard-plan parking --why TEXT",
        "rewind": "rewind parking --to-version 41 --why TEXT",
        "reset": "reset parking --why TEXT",
        "set": "set parking value=2026-03-09T00:00:00Z --why TEXT",
    },
    "move": {
        "copy": "copy parking --from sqlite:watermarks.db --to glue-watermarks",
        "adopt": "adopt parking --run RUN --why TEXT",
    },
    "deploy": {
        "create-table": "create-table",
        "ingest-files": "ingest-files --help",
        "ingest-table": "ingest-table --help",
        "completion": "completion bash",
    },
}
"""Each command once, by purpose, with an example to paste after replacing its names."""


def show_commands(around: Surroundings) -> None:
    """Show the commands by purpose."""
    for group, commands in GROUPS.items():
        around.out.print(group, style="bold")
        for example in commands.values():
            show_folded(around.out, Text(f"watermarks {example}"), 2)
    around.out.print()
    show_folded(around.out, Text("All options: watermarks --help, and watermarks COMMAND --help", "dim"))
