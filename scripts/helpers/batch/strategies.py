"""What each mode makes of a run: four strategies with one interface, chosen once when the run begins.

| | reads from | takes | keeps |
|---|---|---|---|
| `Saving` | the watermark | what is new | the watermark that follows |
| `Paused` | the watermark | what is new | nothing |
| `RangeAgain` | the version before the range | what its runs took | nothing |
| `Disabled` | nothing, the table is not asked | everything | nothing |
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import tee
from typing import TYPE_CHECKING, Any

from scripts.helpers.batch.last_success import last_success
from scripts.helpers.batch.modes import Mode
from scripts.helpers.batch.unsaved_run import UnsavedRun
from scripts.helpers.errors import InvalidValueError, UnknownJobError
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.names import new_token
from scripts.helpers.protocol.run import Run
from scripts.helpers.relational.ids import KIND, IdBlock
from scripts.helpers.rows import coverage
from scripts.helpers.rows.options import RowOptions
from scripts.helpers.rows.plan import plan_window, whole_window, window_between
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.tables.options import TableOptions
from scripts.helpers.tables.planning import plan_span, span_between, whole_span
from scripts.helpers.tables.spans import TableSpan
from scripts.helpers.watermarks import Watermarks

if TYPE_CHECKING:
    from scripts.helpers.batch.end_of_run import EndOfRun
    from scripts.helpers.files.bookmark import FileBookmark
    from scripts.helpers.files.delta import FileDelta
    from scripts.helpers.files.sources import EventSource, JournalSource, ListingSource
    from scripts.helpers.files.spark import SparkFileDelta
    from scripts.helpers.rows.sources import RowSource
    from scripts.helpers.tables.sources import TableSource

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Beginning:
    """What a run begins with. `job_runs` is looked at for a range only; see `last_success.last_success`."""

    watermarks: Watermarks
    job_id: str
    run_id: str
    mode: Mode
    lease: timedelta
    job_runs: Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class RowRequest:
    """A source of rows, and how its new rows are chosen. `before` is the watermark that it is read from."""

    rows: RowSource
    names: Sequence[str]
    context: str
    options: Mapping[str, Any]
    chosen: RowOptions
    before: Any
    clock: Callable[[], datetime]


@dataclass(frozen=True)
class TableRequest:
    """A table that is read by its versions, and how what is new is chosen. `before` is the watermark."""

    table: TableSource
    context: str
    options: TableOptions
    before: Any


@dataclass(frozen=True)
class FileRequest:
    """A source of files, and how its objects are seen."""

    bookmark: FileBookmark
    listing: ListingSource | None
    events: EventSource | None
    relist: timedelta | None
    clock: Callable[[], datetime]
    end: EndOfRun
    metadata: JournalSource | None = None

    @property
    def by_events(self) -> EventSource | None:
        """What tells of objects; None where the source is listed, since it has not been for `relist`."""
        if self.bookmark.begins and self.bookmark.options.start_from is not None:
            # What was there before must be known: events do not tell of it, and a later listing would take it.
            return None
        return None if self.is_relisted else self.events

    @property
    def is_relisted(self) -> bool:
        """Tell whether the source is listed since it has not been, with nothing left over, for `relist`."""
        if self.relist is None:
            return False
        listed = self.bookmark.listed
        return listed is None or self.clock() - listed >= self.relist


@dataclass(frozen=True)
class Reach:
    """How far a bookmark of files reaches: from which state, until which, and whether something follows."""

    state: Any = None
    until: Any = None
    saves: bool = False
    everything: bool = False
    """All that is there, also what `start_from` would leave out."""


class Strategy(ABC):
    """What a mode decides about one run. What is not overridden holds for each run that saves nothing.

    Parameters
    ----------
    run
        The run, begun.
    """

    saves = False
    run: Run | UnsavedRun

    def __init__(self, run: Run | UnsavedRun) -> None:
        self.run = run

    def has_nothing_of(self, context: str) -> bool:
        """Tell whether nothing is to be taken of a context, whatever its source has."""
        return False

    @abstractmethod
    def window(self, request: RowRequest) -> RowWindow:
        """Return the window of the rows to take."""

    def rows_state(self, request: RowRequest, window: RowWindow) -> Mapping[str, Any] | None:
        """Return the watermark of rows to store at the commit; None for none."""
        return None

    @abstractmethod
    def span(self, request: TableRequest) -> TableSpan:
        """Return the commits of a table to take."""

    def table_state(self, span: TableSpan) -> Mapping[str, Any] | None:
        """Return the watermark of a table to store at the commit; None for none."""
        return None

    def id_block(self, context: str, slot: int) -> IdBlock:
        """Return the ids of the batch's related tables; `slot` counts the contexts that have some already."""
        return IdBlock.unsaved(f"{self.run.job_id}/{self.run.run_id}", slot, context, self.run.state(context))

    def reach(self, context: str) -> Reach:
        """Return how far a bookmark of files reaches."""
        return Reach(self.run.state(context))

    @abstractmethod
    def new_files(self, request: FileRequest) -> FileDelta:
        """Return the files to take."""

    def files_state(self, bookmark: FileBookmark) -> Mapping[str, Any] | None:
        """Return the watermark of files to store at the commit; None for none."""
        return None


class Saving(Strategy):
    """Takes what is new, under a lease, and saves how far it got."""

    saves = True
    run: Run

    @classmethod
    def begin(cls, given: Beginning) -> Saving:
        """Take the job for the run; errors are those of `Watermarks.begin`."""
        return cls(given.watermarks.begin(given.job_id, given.run_id, lease=given.lease))

    def window(self, request: RowRequest) -> RowWindow:
        """Return the window past the watermark."""
        return _new_rows(request, self.run.job_id)

    def rows_state(self, request: RowRequest, window: RowWindow) -> Mapping[str, Any]:
        """Return the watermark that follows, with what is covered."""
        read = coverage.ranges_read(window.columns, window.read_low, window.high, window.descending)
        return coverage.with_coverage(window.state_after, request.before, read, new_token())

    def span(self, request: TableRequest) -> TableSpan:
        """Return the commits past the watermark."""
        return _new_commits(request, self.run.job_id)

    def table_state(self, span: TableSpan) -> Mapping[str, Any]:
        """Return the watermark that follows."""
        return span.state_after

    def id_block(self, context: str, slot: int) -> IdBlock:
        """Return a block that no other version of the job has."""
        kinds = {name: value.get("kind") for name, value in self.run.watermarks.items() if isinstance(value, Mapping)}
        # Each is checked by `state`, which reads back the one that is asked for if its value is in chunks.
        states = {name: self.run.state(name) for name in {context, *(one for one in kinds if kinds[one] == KIND)}}
        return IdBlock.of_batch(context, self.run.version + 1, slot, states)

    def reach(self, context: str) -> Reach:
        """Return the state of the watermark, after which another follows."""
        return Reach(self.run.state(context), saves=True)

    def new_files(self, request: FileRequest) -> FileDelta:
        """Return what is new: among what events or a journal told of, if there are any, else by listing."""
        if request.metadata is not None:
            return _recorded(request, request.metadata, self.run.job_id)
        events = request.by_events
        if events is None:
            return request.bookmark.new_files(request.listing)
        told = events.receive(request.bookmark.location)
        delta = request.bookmark.new_among(told, request.clock())
        # Messages go after the commit only: gone before it, a crash would leave files that nobody tells of again.
        # Those of files that a limit left out are kept, so that a later batch hears of them.
        request.end.after_commit(partial(events.acknowledge, but=request.bookmark.left))
        return delta

    def files_state(self, bookmark: FileBookmark) -> Mapping[str, Any]:
        """Return the watermark that follows."""
        return bookmark.state_after


class Paused(Strategy):
    """Takes what is new and saves nothing: the next run takes it again."""

    @classmethod
    def begin(cls, given: Beginning) -> Paused:
        """Look up how far the job has got."""
        at: Head | None = None
        with suppress(UnknownJobError):
            at = given.watermarks.latest(given.job_id)
        if at is None or not at.watermarks:
            logger.warning(
                "event=first_run job=%s run=%s: no watermark yet, everything will be read", given.job_id, given.run_id
            )
        return cls(_unsaved(UnsavedRun(given.watermarks, given.job_id, given.run_id, given.mode, at)))

    def window(self, request: RowRequest) -> RowWindow:
        """Return the window past the watermark."""
        return _new_rows(request, self.run.job_id)

    def span(self, request: TableRequest) -> TableSpan:
        """Return the commits past the watermark."""
        return _new_commits(request, self.run.job_id)

    def new_files(self, request: FileRequest) -> FileDelta:
        """Return what is new. Messages are let go at the end, for a run that saves."""
        if request.metadata is not None:
            return _recorded(request, request.metadata, self.run.job_id)
        events = request.by_events
        if events is None:
            return request.bookmark.new_files(request.listing)
        # Before messages are received: those that came before an error are let go as well.
        request.end.whatever_comes(partial(_let_go, events, request.end))
        told = events.receive(request.bookmark.location)
        return request.bookmark.new_among(told, request.clock())


class RangeAgain(Strategy):
    """Takes what a range of runs took, again, and saves nothing."""

    run: UnsavedRun

    @classmethod
    def begin(cls, given: Beginning) -> RangeAgain:
        """Place both ends of the range.

        Raises
        ------
        UnplacedRunError, UnknownJobError, InvalidValueError
            An end cannot be told, or the range ends before it starts.
        """
        mode, job_id = given.mode, given.job_id
        assert mode.from_run is not None
        assert mode.to_run is not None
        # Each end goes through the job runs from their start, and they may be an iterator. It is asked lazily: a
        # run that the table can place costs no request to Glue.
        runs_for_start, runs_for_end = tee(given.job_runs)
        at = last_success(given.watermarks, job_id, mode.from_run, runs_for_start)
        until = last_success(given.watermarks, job_id, mode.to_run, runs_for_end)
        run = UnsavedRun(given.watermarks, job_id, given.run_id, mode, at, until)
        # From the very beginning (`at` is None) no range is reversed: version 0 is before all others.
        if at is not None and run.until_version < run.version:
            raise InvalidValueError(
                f"Run {mode.to_run!r} of job {job_id!r} stands for version {run.until_version} and run "
                f"{mode.from_run!r} for version {run.version}: the range ends before it starts. Exchange the two."
            )
        return cls(_unsaved(run, f"({run.version},{run.until_version}]"))

    def has_nothing_of(self, context: str) -> bool:
        """Tell whether no run of the range took anything of a context."""
        if self.run.until(context) is not None:
            return False
        logger.warning("event=not_in_range job=%s context=%s: its runs took nothing of it", self.run.job_id, context)
        return True

    def window(self, request: RowRequest) -> RowWindow:
        """Return the window between the watermarks of both ends."""
        until = self.run.until(request.context)
        return window_between(
            request.rows, request.names, request.before, until, request.chosen, request.context, self.run.job_id
        )

    def span(self, request: TableRequest) -> TableSpan:
        """Return the commits between the watermarks of both ends."""
        until = self.run.until(request.context)
        return span_between(
            request.table, request.before, until, context=request.context, job_id=self.run.job_id,
            options=request.options,
        )  # fmt: skip

    def reach(self, context: str) -> Reach:
        """Return both ends of the range."""
        return Reach(self.run.state(context), self.run.until(context))

    def new_files(self, request: FileRequest) -> FileDelta:
        """Return what the range took, by listing: events tell only of what came since."""
        return request.bookmark.new_files(request.listing)


class Disabled(Strategy):
    """Takes everything and saves nothing, and never asks the table.

    In a job of any mode it is as well how a source without a ``transformation_ctx`` is read.
    """

    @classmethod
    def begin(cls, given: Beginning) -> Disabled:
        """Begin without a word to the table."""
        logger.warning(
            "event=bookmark_disabled job=%s run=%s: everything is read and nothing is saved",
            given.job_id, given.run_id,
        )  # fmt: skip
        return cls(_unsaved(UnsavedRun(given.watermarks, given.job_id, given.run_id, given.mode)))

    def window(self, request: RowRequest) -> RowWindow:
        """Return the window of all rows. Warn if they were to be fewer."""
        if request.chosen.max_rows is not None:
            logger.warning(
                "event=limit_without_effect job=%s source=%s: max_rows is ignored, because the run reads everything "
                "and saves nothing from which the next run could continue",
                self.run.job_id, request.rows.name,
            )  # fmt: skip
        return whole_window(request.rows, request.names, request.chosen.strings)

    def span(self, request: TableRequest) -> TableSpan:
        """Return the whole table. Warn if it was to be less."""
        if request.options.max_versions is not None:
            logger.warning(
                "event=limit_without_effect job=%s source=%s: max_versions is ignored, because the run reads "
                "everything and saves nothing from which the next run could continue",
                self.run.job_id, request.table.name,
            )  # fmt: skip
        return whole_span(request.table, request.options)

    def reach(self, context: str) -> Reach:
        """Return that nothing is known."""
        return Reach(everything=True)

    def new_files(self, request: FileRequest) -> FileDelta:
        """Return all files, by listing: events tell of a part only. Warn if a limit of the batch left files out."""
        delta = request.bookmark.new_files(request.listing)
        warn_of_limit(self.run.job_id, delta)
        return delta


def warn_of_limit(job_id: str, delta: FileDelta | SparkFileDelta) -> None:
    """Say that a limit left files out where no later run takes them."""
    if delta.has_more:
        logger.warning(
            "event=limited job=%s source=%s files=%d: a limit of the batch left files out, and the run saves "
            "nothing from which the next run could continue. Omit max_files and max_bytes to read everything",
            job_id, delta.location, delta.count,
        )  # fmt: skip


def begin(given: Beginning) -> Strategy:
    """Begin a run in its mode."""
    if given.mode.saves:
        return Saving.begin(given)
    if given.mode.is_range:
        return RangeAgain.begin(given)
    if given.mode.name == "pause":
        return Paused.begin(given)
    return Disabled.begin(given)


def _new_rows(request: RowRequest, job_id: str) -> RowWindow:
    return plan_window(
        request.rows,
        request.names,
        now=request.clock(),
        state=request.before,
        context=request.context,
        job_id=job_id,
        **request.options,
    )


def _new_commits(request: TableRequest, job_id: str) -> TableSpan:
    return plan_span(
        request.table, state=request.before, context=request.context, job_id=job_id, options=request.options
    )


def _unsaved(run: UnsavedRun, versions: str = "none") -> UnsavedRun:
    logger.info(
        "event=not_saving job=%s run=%s mode=%s range=%s version=%d",
        run.job_id, run.run_id, run.mode.name, versions, run.version,
    )  # fmt: skip
    return run


def _recorded(request: FileRequest, metadata: JournalSource, job_id: str) -> FileDelta:
    """Return what is new among what a journal records, or by a listing where it does not say all."""
    bookmark = request.bookmark
    # Before a listing: what changes while that runs is recorded after this position, and read the next time.
    found = metadata.read(bookmark.location, bookmark.position)
    bookmark.read_until(found.position)
    reason = found.lost
    if reason is None and request.is_relisted:
        reason = f"it was not listed for {request.relist}"
    if reason is None and found.changes is not None:
        delta = bookmark.new_recorded(found.changes, request.clock())
        if delta is not None:
            return delta
        reason = "the journal names more objects than S3 is asked about one by one"
    logger.warning(
        "event=journal-not-enough job=%s source=%s: everything is looked at, as %s", job_id, bookmark.location, reason
    )
    return bookmark.new_files(request.listing)


def _let_go(events: EventSource, end: EndOfRun) -> None:
    """Show messages to other runs at once, where the source of events can."""
    extend = getattr(events, "extend", None)
    if extend is not None:
        end.call([partial(extend, 0)])
