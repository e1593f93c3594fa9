"""Show the progress of tasks that last longer than two seconds, on a terminal, until they end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from scripts.cli.surroundings import Surroundings


class Steps:
    """The progress of a task: the command that carries out the task calls `at` to report how much is done."""

    def __init__(self, progress: Progress, text: str, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task(text, total=total, count="")

    def at(self, done: int, total: int | None = None, unit: str = "") -> None:
        """Report how many units are done, and the total if it is known."""
        self._progress.update(self._task, completed=done, total=total, count=f"{done:,} {unit}".strip())


@contextmanager
def progress(around: Surroundings, text: str, total: int | None = None) -> Iterator[Steps]:
    """Show progress of the block once it takes longer than two seconds, if standard error is a terminal."""
    shown = Progress(
        SpinnerColumn("line"),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        console=around.err,
        transient=True,
        disable=not around.err.is_terminal,
    )
    # Start the bar later, because most tasks end within two seconds, and a bar that only flashes up distracts.
    late = threading.Timer(around.progress_after, shown.start)
    late.daemon = True
    late.start()
    try:
        yield Steps(shown, text, total)
    finally:
        # Wait for the timer, because it may be starting the bar right now, and only a started bar can be stopped.
        late.cancel()
        late.join()
        shown.stop()
