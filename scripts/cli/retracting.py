"""Show which output a rewind or another decision would delete at a job's targets, and delete it afterwards."""

from __future__ import annotations

import click

from scripts.cli.progress import progress
from scripts.cli.screen import show_rows
from scripts.cli.surroundings import Surroundings
from scripts.helpers.batch.publishing import take_back_now
from scripts.helpers.decisions.decisions import Decided, kept_outputs
from scripts.helpers.display.units import count_of, printable, size_text
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.sinks.choice import opened
from scripts.helpers.sinks.outputs import doubt
from scripts.helpers.sinks.sink import Sink

retract_option = click.option("--retract", is_flag=True, help="Delete the output of later versions from their targets.")


def show_outputs(around: Surroundings, before: Head, decided: Decided, retract: bool) -> None:
    """Show, for the versions that a decision undoes, which output stays at each target and which is deleted."""
    after, targets = decided.after, dict[str, list[Output]]()
    for output in kept_outputs(before, after, decided.outputs):
        targets.setdefault(output.target, []).append(output)
    rows = []
    for target, left in targets.items():
        kept = sorted(output.version for output in left)
        rows.append(
            [
                target,
                f"{kept[0]} to {kept[-1]}" if len(kept) > 1 else str(kept[0]),
                f"{sum(output.files for output in left):,}",
                size_text(sum(output.bytes for output in left)),
                "stays; its rows are read again",
            ]
        )
    if rows:
        show_rows(around.shown, ("target", "versions", "files", "size", "becomes"), rows)
    # Show what the targets really have. `retract` carries out earlier retractions too, so show these as well.
    rows = []
    for retraction in after.retracting[0 if retract else len(before.retracting) :]:
        versions = f"{retraction.first} to {retraction.last}"
        for line in to_delete(around, after, retraction):
            rows.append([versions, printable(line)])
    if rows:
        show_rows(around.shown, ("versions", "is deleted"), rows)


def to_delete(around: Surroundings, head: Head, retraction: Retraction) -> list[str]:
    """Return what a retraction would delete, one line for each place, or why it deletes nothing."""
    why = doubt(retraction, head.last_versions)
    if why is not None:
        return [f"nothing in {retraction.target}: {why}"]
    sink = _sink_of(retraction)
    if sink is None:
        return [f"batches in {retraction.target}, by the next run"]
    with progress(around, f"looking at {printable(retraction.target)}"):
        return sink.to_retract(retraction) or [f"nothing in {retraction.target}: it has none of them"]


def retract_now(around: Surroundings, job: str) -> None:
    """Delete what a decision retracted. The next run deletes what only Spark or the job's script can reach."""
    with progress(around, f"reading {printable(job)}"):
        head = around.watermarks.latest(job)
    for retraction in head.retracting:
        if doubt(retraction, head.last_versions) is not None:
            continue
        sink = _sink_of(retraction)
        with progress(around, f"deleting from {printable(retraction.target)}"):
            count = None if sink is None else take_back_now(around.watermarks, job, sink, retraction)
        if count is None:
            around.shown.print(f"The next run deletes the batches from {printable(retraction.target)}.")
            continue
        counted = count_of(count, "file" if retraction.sink == "files" else "row")
        around.shown.print(f"Deleted {counted} from {printable(retraction.target)}.")


def _sink_of(retraction: Retraction) -> Sink | None:
    try:
        return opened(retraction, None, None)
    except InvalidValueError:
        return None
