"""What a decision finds at the targets of a job: shown before it is taken, and deleted after it."""

from __future__ import annotations

import click

from scripts.cli.progress import progress
from scripts.cli.screen import count_of, show_rows
from scripts.cli.surroundings import Surroundings
from scripts.helpers.batch.publishing import take_back
from scripts.helpers.display.units import printable, size_text
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.protocol.head import Outputs
from scripts.helpers.sinks.choice import opened
from scripts.helpers.sinks.outputs import Output, Retraction

retract_option = click.option("--retract", is_flag=True, help="Delete the output of later versions from their targets.")


def show_outputs(around: Surroundings, outputs: Outputs, retract: bool) -> None:
    """Show what versions left at each target, and what becomes of it."""
    targets: dict[str, list[Output]] = {}
    for record in outputs:
        output = Output.from_record(record)
        targets.setdefault(output.target, []).append(output)
    if not targets:
        return
    rows = []
    for target, left in targets.items():
        versions = sorted(output.version for output in left)
        rows.append(
            [
                target,
                f"{versions[0]} to {versions[-1]}" if len(versions) > 1 else str(versions[0]),
                f"{sum(output.files for output in left):,}",
                size_text(sum(output.bytes for output in left)),
                "deleted" if retract else "stays; its rows are read again",
            ]
        )
    show_rows(around.shown, ("target", "versions", "files", "size", "becomes"), rows)


def retract_now(around: Surroundings, job: str) -> None:
    """Delete what a decision took back; the next run does it where only Spark or its script gets there."""
    with progress(around, f"reading {printable(job)}"):
        head = around.watermarks.latest(job)
    for record in head.retracting:
        retraction = Retraction.from_record(record)
        try:
            sink = opened(retraction, None, None)
        except InvalidValueError:
            sink = None
        if sink is None:
            around.shown.print(f"The next run deletes the batches from {printable(retraction.target)}.")
            continue
        with progress(around, f"deleting from {printable(retraction.target)}"):
            count = take_back(sink, retraction, job)
        around.shown.print(f"Deleted {count_of(count, 'file')} from {printable(retraction.target)}.")
