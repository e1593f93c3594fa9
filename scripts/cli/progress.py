"""Progress of what takes long: shown on a terminal, after two seconds, and gone when it is done."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from scripts.cli.surroundings import Surroundings


class Steps:
    """What a command tells of its progress."""

    def __init__(self, progress: Progress, text: str, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task(text, total=total, count="")

    def at(self, done: int, total: int | None = None, unit: str = "") -> None:
        """Say how far it is; of how many, if that is known."""
        self._progress.update(self._task, completed=done, total=total, count=f"{done:,} {unit}".strip())


@contextmanager
def progress(around: Surroundings, text: str, total: int | None = None) -> Iterator[Steps]:
    """Show that something is going on, once it takes longer than two seconds and if somebody looks."""
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
    # Most answers come within a moment, and a bar that flashes up would only disturb.
    late = threading.Timer(around.progress_after, shown.start)
    late.daemon = True
    late.start()
    try:
        yield Steps(shown, text, total)
    finally:
        # The timer may be starting the bar just now: it has to be there before it can be taken away.
        late.cancel()
        late.join()
        shown.stop()
