"""`watermarks` alone: what needs attention, then the commands by what one wants, each with an example."""

from __future__ import annotations

from rich.text import Text

from scripts.cli.documents import emit
from scripts.cli.jobs import attention_text, condition_in, found_jobs
from scripts.cli.screen import show_folded
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import printable
from scripts.helpers.protocol.names import served_by

MOST_SHOWN = 10
"""Jobs that are named: the commands below must stay on the screen."""
GROUPS: dict[str, dict[str, str]] = {
    "look": {
        "jobs": "jobs --late",
        "show": "show parking",
        "history": "history parking --diff 1 2",
        "files": "files parking --explain 2026/03/16.csv",
        "freshness": "freshness --fail-on late",
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
"""Each command once, by what somebody wants, with an example that can be pasted once its names are the reader's."""


def overview(around: Surroundings) -> None:
    """Show which jobs need attention, the most urgent first."""
    now = around.now()
    jobs = [job for job in found_jobs(around) if served_by(job.job_id) is None]
    conditions = [(job.job_id, condition_in(job, now, {})) for job in jobs]
    unwell = sorted((one for one in conditions if one[1].needs_somebody), key=lambda one: (one[1].rank, one[0]))
    if around.is_json:
        facts = [
            {"job": job_id, "state": found.word, "reason": found.reason, "command": found.command}
            for job_id, found in unwell
        ]
        emit({"table": around.table, "jobs": len(jobs), "attention": facts})
        return
    around.out.print(attention_text(len(unwell), len(jobs)), style="bold", soft_wrap=True)
    for job_id, found in unwell[:MOST_SHOWN]:
        show_folded(around.out, Text(printable(f"{job_id}: {found.word}, {found.reason}"), "yellow"))
        show_folded(around.out, Text(printable(found.command), "dim"), 2)
    if len(unwell) > MOST_SHOWN:
        show_folded(around.out, Text(f"… and {len(unwell) - MOST_SHOWN:,} more: watermarks jobs", "dim"))
    around.out.print()


def show_commands(around: Surroundings) -> None:
    """Show the commands by what somebody wants."""
    for group, commands in GROUPS.items():
        around.out.print(group, style="bold")
        for example in commands.values():
            show_folded(around.out, Text(f"watermarks {example}"), 2)
    around.out.print()
    show_folded(around.out, Text("All options: watermarks --help, and watermarks COMMAND --help", "dim"))
