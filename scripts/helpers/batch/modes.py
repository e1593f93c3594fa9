"""The mode of a job: whether it saves how far it got, and which range of runs it reads again. Pure."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import tee
from typing import Any, Literal, get_args
from urllib.parse import quote

from scripts.helpers.display.options import check_choice
from scripts.helpers.errors import (
    InvalidValueError,
    JobArgumentError,
    NothingThereError,
    PlanConflictError,
    UnknownJobError,
    UnknownRunError,
)
from scripts.helpers.protocol.head import SUCCESS, Head, LogEntry, Outputs, Plan
from scripts.helpers.protocol.names import BatchId, check_run_id, split_name
from scripts.helpers.protocol.run import Run, run_closed
from scripts.helpers.watermarks import Watermarks

logger = logging.getLogger(__name__)

# --- last success ---------------------------------------------------------------------------------
# The version that a run id stands for: the run's own commit, or else the last success before the run.

PAGE = 100
"""Versions read by one request: the last success is seldom further back."""


def last_success(
    watermarks: Watermarks, job_id: str, run_id: str, job_runs: Iterable[Mapping[str, Any]] = ()
) -> LogEntry | None:
    """Return the version that a run id stands for: the run's own last commit, or else the last success before the run.

    A run's own commit counts even if an operator has rewound or reset the job after it. For a run that never committed,
    the start time decides, because run ids have no order. The table has that time for the run that holds the job now
    and for runs that `JobRuns` started; for any other run, `job_runs` must have it.

    Parameters
    ----------
    job_runs
        The ``JobRuns`` that Glue's ``get_job_runs`` returns, or any maps with ``Id`` and an aware ``StartedOn``.
        Read only for a run whose start time is not in the table.

    Returns
    -------
    LogEntry or None
        None if the run started before the first success, when nothing had been processed.

    Raises
    ------
    UnknownJobError, AmbiguousHistoryError
        As `Watermarks.latest`.
    NothingThereError
        The run never committed, and its start time is unknown or the versions of that time have expired.
    InvalidValueError
        The run's ``StartedOn`` in `job_runs` is not an aware datetime.
    """
    check_run_id(run_id)
    head = watermarks.latest(job_id)
    found = _commit_of(watermarks, head, run_id)
    if found is not None:
        return found
    started = _started(watermarks, head, run_id, job_runs)
    if started is None:
        raise NothingThereError(reason="unplaced_run", job_id=job_id, run_id=run_id)
    oldest = 1
    # Compare start times with the start of the given run. If a version has no start time, use its commit time.
    for entry in _history(watermarks, job_id):
        if entry.change.op in SUCCESS and (entry.change.started_at or entry.change.at) <= started:
            return entry
        oldest = entry.version
    # If versions before `oldest` have expired, the last success may have been one of them.
    if oldest > 1:
        raise NothingThereError(reason="unplaced_run", job_id=job_id, run_id=run_id)
    return None


def _commit_of(watermarks: Watermarks, head: Head, run_id: str) -> LogEntry | None:
    """Return the last commit of a run, found by the run's item, so that a long history need not be read."""
    below: int | None = None
    # If the head names the run, skip the run's item, which is written after the head and may still be missing.
    if head.last is None or head.last.run_id != run_id:
        try:
            version = watermarks.get_watermark(head.job_id, run_id).get("version")
        except UnknownRunError:
            return None
        below = None if version is None else version + 1
    for entry in _history(watermarks, head.job_id, below):
        if entry.change.op in SUCCESS and entry.change.run_id == run_id:
            return entry
        # If set, `below` is the version in the run's item + 1, so only the first entry can be the run's last commit.
        if below is not None:
            break
    return None


def _history(watermarks: Watermarks, job_id: str, below: int | None = None) -> Iterator[LogEntry]:
    """Yield a job's versions, newest first. `below`: only lower ones; fetch one first, as callers mostly need one."""
    page = PAGE if below is None else 1
    while entries := watermarks.history(job_id, limit=page, before=below):
        yield from entries
        below, page = entries[-1].version, PAGE


def _started(watermarks: Watermarks, head: Head, run_id: str, job_runs: Iterable[Mapping[str, Any]]) -> datetime | None:
    if head.claim is not None and head.claim.run_id == run_id:
        return head.claim.since
    own_name, _ = split_name(head.job_id)
    began = watermarks.lookups.start_of_job_run(own_name, run_id)
    if began is not None:
        return began
    for job_run in job_runs:
        if job_run.get("Id") == run_id and job_run.get("StartedOn") is not None:
            started = job_run["StartedOn"]
            if not isinstance(started, datetime) or started.utcoffset() is None:
                kind = "datetime without zone" if isinstance(started, datetime) else type(started).__name__
                raise InvalidValueError(
                    f"job_runs: StartedOn of run {run_id!r} of job {head.job_id!r} is a {kind}. Give an aware "
                    "datetime, as get_job_runs returns."
                )
            return started
    return None


# --- unsaved run ----------------------------------------------------------------------------------
# A run that saves nothing: it takes the place of a `Run` when a job is paused or disabled.


class UnsavedRun:
    """A run that only reads the table: no lease, plan or commit. It has the methods of `Run` that a job needs.

    It ignores a run that holds the job, and an open plan, and leaves both as they are.

    Parameters
    ----------
    watermarks, job_id, run_id
        As in `Watermarks.begin`.
    mode
        The mode, which is one that does not save. `begin` finds the versions `at` and `until` for it.
    at
        The version to read from; None for the very beginning.
    until
        The version that ends the range; None without a range, or if nothing had been processed by then.
    """

    replay = False
    attempt = 1
    fence = 0

    def __init__(
        self,
        watermarks: Watermarks,
        job_id: str,
        run_id: str,
        mode: Mode,
        at: Head | LogEntry | None = None,
        until: LogEntry | None = None,
    ) -> None:
        self.job_id, self.run_id, self.mode = job_id, check_run_id(run_id), mode
        self.plan: Plan | None = None
        self._watermarks, self._at, self._until = watermarks, at, until
        self._closed: str | None = None

    def __repr__(self) -> str:
        return f"<UnsavedRun {self.run_id!r} of {self.job_id!r}: {self.mode.name}, {self._closed or 'open'}>"

    @property
    def version(self) -> int:
        """The version that the run reads from; 0 if there is none, or if the mode ignores it."""
        return self._at.version if self._at else 0

    @property
    def until_version(self) -> int:
        """Last version of a range of runs to read again; 0 without a range, or if it ends before the first success."""
        return self._until.version if self._until else 0

    def state(self, context: str) -> Any:
        """Return the watermark to read a context from; None for the very beginning."""
        return self._watermarks.lookups.state_at(self._at, context) if self._at else None

    def until(self, context: str) -> Any:
        """Return a context's watermark at the end of the past runs to read again; None if they took nothing of it."""
        # Return None if no run succeeded in the range: both its ends are then one version, made by an earlier run.
        if self._until is None or self.until_version == self.version:
            return None
        return self._watermarks.lookups.state_at(self._until, context)

    def planned(self, context: str) -> None:
        """Return None: this run never inherits a plan."""

    @property
    def watermarks(self) -> Mapping[str, Any]:
        """Empty, because this run stores no watermarks."""
        return {}

    @property
    def batch_id(self) -> BatchId:
        """The batch id for a sink: a retry under the same run id replaces the rows written under it.

        It consists of the mode, the run id, and a hash of the job's name and the range, so that a run of another
        job, namespace or range under the same run id does not replace these rows.
        """
        if self.plan is None:
            raise PlanConflictError(self.job_id, "there is no batch before freeze. Freeze the plan first.")
        read = "\n".join([self.job_id, self.mode.name, self.mode.from_run or "", self.mode.to_run or ""])
        digest = hashlib.sha256(read.encode()).hexdigest()[:12]
        return BatchId(self.job_id, f"{self.mode.name}-{quote(self.run_id, safe='')}-{digest}", 1)

    @property
    def closed(self) -> bool:
        """Whether the run has ended."""
        return self._closed is not None

    def freeze(self, contexts: Mapping[str, Any], next_watermarks: Mapping[str, Any]) -> Plan:
        """Fix what the batch takes, in the memory of this process only."""
        if self._closed:
            raise run_closed(self.job_id, self.run_id, self._closed, "freeze")
        if self.plan is None:
            self.plan = Plan("unsaved", dict(contexts), {}, self._watermarks.clock())
        return self.plan

    def amend(self, contexts: Mapping[str, Any], next_watermarks: Mapping[str, Any]) -> Plan:
        """Replace what the batch takes, in the memory of this process only."""
        self.plan = None
        return self.freeze(contexts, next_watermarks)

    def following(self, context: str) -> None:
        """Return None: this run stores no watermark."""

    def check(self) -> None:
        """Raise PlanConflictError if the run has ended. Check nothing else: it has no lease that others could take."""
        if self._closed:
            raise run_closed(self.job_id, self.run_id, self._closed, "check")

    def commit(self, outputs: Outputs = (), plan: Plan | None = None, /, **metrics: Any) -> str:
        """End the run, which saves nothing; return ``"unsaved"``."""
        self._closed = "committed"
        logger.info("event=not_saved job=%s run=%s mode=%s", self.job_id, self.run_id, self.mode.name)
        return "unsaved"

    def abort(self) -> None:
        """End the run. Safe to call again."""
        self._closed = self._closed or "aborted"

    def __enter__(self) -> UnsavedRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.abort()


# --- reach ----------------------------------------------------------------------------------------
# A run reads each source after the state `before`, up to the state `until`, or `everything`, and may save its state:
#
# | mode | `before` | `until` | `everything` | `saves` |
# |---|---|---|---|---|
# | enable | the watermark | | | yes |
# | pause | the watermark | | | no |
# | pause, with a range | the version before the range | the version that ends it | | no |
# | disable, and in any mode a source without a ``transformation_ctx`` | | | yes | no |


@dataclass(frozen=True)
class Reach:
    """How far one source is read in one run.

    Attributes
    ----------
    before
        The watermark to read from; None for the very beginning.
    until
        The watermark at the end of a range of runs; None without a range.
    everything
        Whether all that is there is read, including what ``start_from`` would leave out.
    saves
        Whether the commit stores the next watermark.
    """

    before: Any = None
    until: Any = None
    everything: bool = False
    saves: bool = False


def reach_of(run: Run | UnsavedRun, context: str | None) -> Reach:
    """Return how far a run reads a source."""
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
    """Begin a run in its mode. If the mode saves, this raises the errors of `Watermarks.begin`.

    Parameters
    ----------
    job_runs
        Read only if the mode has a range; see `last_success`.

    Raises
    ------
    NothingThereError, UnknownJobError, InvalidValueError
        An end of the range cannot be found, or the range ends before it starts.
    """
    if mode.saves:
        return watermarks.begin(job_id, run_id, lease=lease)
    versions = "none"
    if mode.is_range:
        assert mode.from_run is not None
        assert mode.to_run is not None
        # Duplicate `job_runs`, which may be an iterator, because both ends of the range read it. It is read lazily: if
        # the table has the start times, no request is sent to Glue.
        runs_for_start, runs_for_end = tee(job_runs)
        start = last_success(watermarks, job_id, mode.from_run, runs_for_start)
        until = last_success(watermarks, job_id, mode.to_run, runs_for_end)
        run = UnsavedRun(watermarks, job_id, run_id, mode, start, until)
        # A range from the very beginning (`start` is None) cannot be reversed: version 0 is before all others.
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


# --- modes ----------------------------------------------------------------------------------------

ModeName = Literal["enable", "pause", "disable"]

PREFIX = "job-bookmark-"
ARGUMENTS = ("job_bookmark_option", "job_bookmark_from", "job_bookmark_to")
"""The job arguments that `Mode.from_args` reads."""


@dataclass(frozen=True)
class Mode:
    """The job bookmark option of AWS Glue, with its range.

    Attributes
    ----------
    name
        ``enable`` reads what is new and saves the watermark. ``pause`` reads what is new, or a range, and saves
        nothing. ``disable`` reads everything and saves nothing.
    from_run, to_run
        Run ids, only with ``pause``: read what the runs after `from_run` took, up to and including `to_run`. A failed
        run stands for the last success before it. As in Glue, without ``pause`` one id is ignored; both are an error.

    Examples
    --------
    >>> Mode("pause", "jr_1", "jr_3").is_range
    True
    >>> Mode.from_args({"JOB_NAME": "parking", "job_bookmark_option": "job-bookmark-disable"}).saves
    False
    """

    name: ModeName = "enable"
    from_run: str | None = None
    to_run: str | None = None

    def __post_init__(self) -> None:
        """Raise an error, with the messages of Glue, for options that exclude each other."""
        check_choice("mode", self.name, get_args(ModeName))
        ends = {"--job-bookmark-from": self.from_run, "--job-bookmark-to": self.to_run}
        missing = [option for option, run_id in ends.items() if not run_id]
        if self.name == "pause" and len(missing) == 1:
            raise JobArgumentError(f"Missing option or value for {missing[0]}")
        if self.name != "pause" and not missing:
            raise JobArgumentError(f"Invalid option(s){' '.join(ends)}")
        for run_id in ends.values():
            if run_id:
                check_run_id(run_id)

    @classmethod
    def from_args(cls, args: Mapping[str, Any]) -> Mode:
        """Return the mode that resolved job arguments ask for. Without ``job_bookmark_option`` the job saves.

        Glue's own `getResolvedOptions` always sets that key: to ``job-bookmark-disable`` if the job has no such option.

        Raises
        ------
        InvalidValueError, JobArgumentError
            The option is none of Glue's three; or ``pause`` lacks the from or the to run; or another option has both.
        """
        known: dict[str, ModeName] = {PREFIX + name: name for name in get_args(ModeName)}
        option, from_run, to_run = (args.get(key) for key in ARGUMENTS)
        if option is not None and option not in known:
            raise InvalidValueError(f"job_bookmark_option is {option!r}. Use {', '.join(known)}.")
        return cls("enable" if option is None else known[option], from_run, to_run)

    def changed_by(self, args: Mapping[str, Any]) -> Mode:
        """Return the mode that resolved job arguments ask for, with this mode as the default.

        ``job_bookmark_option`` replaces the mode and its range. Without it, ``job_bookmark_from`` and ``_to``
        replace the range of this mode; one of them alone is ignored unless the mode is ``pause``.

        Examples
        --------
        >>> Mode("disable").changed_by({"job_bookmark_from": "jr_1"}).name
        'disable'

        Raises
        ------
        InvalidValueError, JobArgumentError
            As for `from_args`.
        """
        option, from_run, to_run = (args.get(key) for key in ARGUMENTS)
        if option is not None:
            return Mode.from_args(args)
        return Mode(self.name, from_run or self.from_run, to_run or self.to_run)

    @property
    def saves(self) -> bool:
        """Whether the commit stores how far the run got."""
        return self.name == "enable"

    @property
    def is_range(self) -> bool:
        """Whether the run reads a range of earlier runs again."""
        return self.name == "pause" and bool(self.from_run)
