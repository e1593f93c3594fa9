"""What a mode makes of a run: how far each source is read, and whether that is saved.

| mode | `before` | `until` | `everything` | `saves` |
|---|---|---|---|---|
| enable | the watermark | | | yes |
| pause | the watermark | | | no |
| pause, with a range | the version before the range | the version that ends it | | no |
| disable, and in any mode a source without a ``transformation_ctx`` | | | yes | no |
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import tee
from typing import Any

from scripts.helpers.batch.last_success import last_success
from scripts.helpers.batch.modes import Mode
from scripts.helpers.batch.unsaved_run import UnsavedRun
from scripts.helpers.errors import InvalidValueError, UnknownJobError
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.run import Run
from scripts.helpers.watermarks import Watermarks

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reach:
    """How far one source is read in one run.

    Attributes
    ----------
    before
        The watermark that it is read from; None for its very beginning.
    until
        The watermark at the end of a range of runs; None without a range.
    everything
        All that is there is read, also what ``start_from`` would leave out.
    saves
        Whether the watermark that follows is stored.
    """

    before: Any = None
    until: Any = None
    everything: bool = False
    saves: bool = False


def reach_of(run: Run | UnsavedRun, context: str | None) -> Reach:
    """Return how far a source is read."""
    if not context or (isinstance(run, UnsavedRun) and run.mode.name == "disable"):
        return Reach(everything=True)
    if isinstance(run, UnsavedRun):
        return Reach(run.state(context), run.until(context))
    return Reach(run.state(context), saves=True)


def begin(
    watermarks: Watermarks,
    job_id: str,
    run_id: str,
    mode: Mode,
    lease: timedelta,
    job_runs: Iterable[Mapping[str, Any]],
) -> Run | UnsavedRun:
    """Begin a run in its mode; errors of one that saves are those of `Watermarks.begin`.

    Parameters
    ----------
    job_runs
        Read for a range only; see `last_success.last_success`.

    Raises
    ------
    UnplacedRunError, UnknownJobError, InvalidValueError
        An end of a range cannot be told, or the range ends before it starts.
    """
    if mode.saves:
        return watermarks.begin(job_id, run_id, lease=lease)
    versions = "none"
    if mode.is_range:
        assert mode.from_run is not None
        assert mode.to_run is not None
        # Each end goes through the job runs from their start, and they may be an iterator. It is asked lazily: a
        # run that the table can place costs no request to Glue.
        runs_for_start, runs_for_end = tee(job_runs)
        start = last_success(watermarks, job_id, mode.from_run, runs_for_start)
        until = last_success(watermarks, job_id, mode.to_run, runs_for_end)
        run = UnsavedRun(watermarks, job_id, run_id, mode, start, until)
        # From the very beginning (`start` is None) no range is reversed: version 0 is before all others.
        if start is not None and run.until_version < run.version:
            raise InvalidValueError(
                f"Run {mode.to_run!r} of job {job_id!r} stands for version {run.until_version} and run "
                f"{mode.from_run!r} for version {run.version}: the range ends before it starts. Exchange the two."
            )
        versions = f"({run.version},{run.until_version}]"
    elif mode.name == "pause":
        at: Head | None = None
        with suppress(UnknownJobError):
            at = watermarks.latest(job_id)
        if at is None or not at.watermarks:
            logger.warning("event=first_run job=%s run=%s: no watermark yet, everything will be read", job_id, run_id)
        run = UnsavedRun(watermarks, job_id, run_id, mode, at)
    else:
        logger.warning("event=bookmark_disabled job=%s run=%s: everything is read and nothing is saved", job_id, run_id)
        run = UnsavedRun(watermarks, job_id, run_id, mode)
    logger.info(
        "event=not_saving job=%s run=%s mode=%s range=%s version=%d", job_id, run_id, mode.name, versions, run.version
    )
    return run
