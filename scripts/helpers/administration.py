"""Decisions of people about a job: adopt, rewind, reset, set, discard, and the doctor. Each is kept in the history."""

from __future__ import annotations

import getpass
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from scripts.helpers import items
from scripts.helpers.coverage import is_rows, kept, record_id, region
from scripts.helpers.doctor import Finding, examine
from scripts.helpers.errors import (
    InvalidValueError,
    NoWatermarkError,
    PlanConflictError,
    StaleError,
    UnknownJobError,
    UnknownRunError,
    UnknownVersionError,
    WatermarkError,
)
from scripts.helpers.ids import check_context, check_run_id, new_token
from scripts.helpers.intervals import missing
from scripts.helpers.lookups import Lookups
from scripts.helpers.records import Head, LogEntry, Order
from scripts.helpers.retention import expire_version
from scripts.helpers.spill import MAX_SPILL_BYTES, cut, references, replaced, spill_large, take_blobs
from scripts.helpers.store import BACKOFF_SECONDS
from scripts.helpers.values import Spilled, as_stored, same_values

logger = logging.getLogger(__name__)

MAX_WHY = 1_000
ADOPTED = "it has a committed state already; there is nothing to adopt."
ATTEMPTS = 10
RACES, MAX_PAUSE_SECONDS = 10, 5.0
"""A change that many make at once pauses after each `ATTEMPTS`, longer every time."""


class Administration(Lookups):
    """The part of `Watermarks` that changes a job without running it.

    Every decision is one conditional write that is legal from any state. It makes a new version,
    fences the run that is at work and drops its plan. Nothing is deleted at targets: clean those
    by hand where a decision makes rows come again. `who` is the system's user unless given.
    """

    _retention: timedelta | None = None

    def rewind(
        self,
        job_id: str,
        *,
        to_version: int | None = None,
        to_run: str | None = None,
        context: str | None = None,
        why: str,
        who: str | None = None,
        expected: Head | None = None,
    ) -> Head:
        """Go back to the watermarks of an earlier version or run; what came after is taken again.

        So are rows past the watermark that a backfill has read: a WARNING names the record of it.

        Parameters
        ----------
        to_version, to_run
            One of the two: a version of the history, or a run that committed.
        context
            Only this transformation context; by default the whole job.
        why, who
            Kept in the history.
        expected
            The job as it was when the decision was made, of `latest`: nothing is decided if any run or
            decision has changed it since.

        Raises
        ------
        UnknownJobError, UnknownRunError, UnknownVersionError
            There is no such version or run, it never committed, or its log entry expired.
        StaleError
            The job is not as expected.
        InvalidValueError
            Both or neither of the two are given, or `why` is empty.
        """
        if (to_version is None) == (to_run is None):
            raise InvalidValueError("A rewind takes one of to_version and to_run.")
        if to_version is not None and (type(to_version) is not int or to_version < 1):
            raise InvalidValueError(
                f"A rewind goes to version 1 or later, not {to_version!r}. To forget everything call reset."
            )
        order = self._order(who, why)
        self._check_context(context)

        def change(head: Head) -> Head:
            version = to_version if to_run is None else self.version_of(head, to_run)
            assert version is not None
            entry = self._entry(head, version)
            if context is not None and context not in entry.watermarks and context not in head.watermarks:
                raise InvalidValueError(f"Neither version {version} nor the present one has a context {context!r}.")
            return head.rewound(self._copied(head, entry, context), order, context)

        after = self._decide(job_id, change, expected=expected)
        with suppress(WatermarkError):
            for name, state in after.watermarks.items():
                if context in (None, name) and is_rows(state):
                    self._warn_of_backfills(after, name, state)
        return after

    def reset(
        self,
        job_id: str,
        *,
        context: str | None = None,
        why: str,
        who: str | None = None,
        expected: Head | None = None,
    ) -> Head:
        """Forget a job's watermarks, or those of one context: the next run takes everything there.

        Versions go on growing, so an idempotent sink takes the coming batches as new ones. With
        `expected`, StaleError if the job is not any more what `latest` returned.
        """
        order = self._order(who, why)
        self._check_context(context)

        def change(head: Head) -> Head:
            if context is not None and context not in head.watermarks:
                raise InvalidValueError(f"Job {job_id!r} has no context {context!r} to reset.")
            return head.reset(order, context)

        return self._decide(job_id, change, expected=expected)

    def set_watermark(
        self,
        job_id: str,
        watermarks: Mapping[str, Any],
        *,
        context: str | None = None,
        why: str,
        who: str | None = None,
        imported_run: str | None = None,
        expected: Head | None = None,
    ) -> Head:
        """Declare "processed up to here" without running; also for a job that has never run.

        Parameters
        ----------
        watermarks
            All values of the job, or the whole state of one `context`. A rows context keeps what it
            has covered; what it jumps over is a gap that `gaps` names.
        imported_run
            The run of another system that left these watermarks. It is in force from then on, and the
            version is an IMPORT; PlanConflictError if the job has watermarks already.
        expected
            The job as it was when the decision was made, of `latest`; ``Head.first(job_id)`` where
            there was none. StaleError if it has changed since.
        """
        order = self._order(who, why)
        self._check_context(context)
        if imported_run is not None:
            order = replace(order, imported_run=check_run_id(imported_run))
        if not isinstance(watermarks, Mapping):
            raise InvalidValueError(f"Watermarks are a map of names to values, not a {type(watermarks).__name__}.")
        chunks: dict[str, list[bytes]] = {}
        values = as_stored(take_blobs(watermarks, job_id, new_token(), chunks))
        if chunks:
            before, head = self._read_for_change(job_id)
            _check_expected(head, expected)
            if before is None:
                self._store.swap(None, head)  # Chunks without a head would be taken for a damaged job.
            self._store.write_chunks(job_id, chunks)

        def change(head: Head) -> Head:
            if imported_run is not None and head.watermarks:
                raise PlanConflictError(job_id, "it has watermarks already. Import into a new job, or reset it first.")
            states = values if context is None else {context: values}
            states = {
                name: kept(value, self._state_of(head, name), order.token) if is_rows(value) else value
                for name, value in states.items()
            }
            if head.last is None:
                return head.declared(states if context is None else states[context], order, context)
            return self._declared(head, states if context is None else {**head.watermarks, **states}, order)

        return self._decide(job_id, change, may_be_new=True, expected=expected)

    def change_watermark(
        self,
        job_id: str,
        change: Callable[[Any], Mapping[str, Any]],
        *,
        context: str,
        why: str,
        who: str | None = None,
    ) -> Head:
        """Set the state of one context to what `change` makes of the present one, whoever else writes meanwhile.

        The same state again is no change and makes no version.

        Parameters
        ----------
        change
            Gets the state, or None if there is none. It is called again for each write of others
            that came in between, so it must change nothing else.

        Raises
        ------
        StaleError
            Others kept writing; nothing was changed.
        """
        order = self._order(who, why)
        self._check_context(context)

        def changed(head: Head) -> Head:
            before = self._state_of(head, context)
            state = as_stored(change(before), limit=MAX_SPILL_BYTES)
            if isinstance(before, Mapping) and same_values(dict(before), state):
                return head
            return self._declared(head, {**head.watermarks, context: state}, order)

        for race in range(RACES):
            with suppress(StaleError):
                return self._decide(job_id, changed, may_be_new=True)
            self._store.sleep(random.uniform(0, min(MAX_PAUSE_SECONDS, BACKOFF_SECONDS * 2**race)))
        raise StaleError(f"Job {job_id!r} kept changing; nothing was decided. Try again.")

    def discard_plan(self, job_id: str, *, why: str, who: str | None = None, expected: Head | None = None) -> Head:
        """Drop the open plan; the next run makes a new one from the committed watermarks.

        What a dead run wrote under the plan's batch id stays at the sink: the next batch has another id.
        With `expected`, StaleError if the job is not any more what `latest` returned.
        """
        order = self._order(who, why)
        return self._decide(job_id, lambda head: head.discarded(order), expected=expected)

    def version_of(self, head: Head, run_id: str) -> int:
        """Return the version that a run has made; UnknownRunError if none is known."""
        check_run_id(run_id)
        item = self._store.read(head.job_id, run_id)
        version = items.run_from_item(item).get("version") if item else None
        if version is None and head.last and head.last.run_id == run_id:
            version = head.version
        if version is None:
            raise UnknownRunError(head.job_id, run_id)
        found: int = version
        return found

    def latest_started(self, job_id: str, runs: Iterable[Mapping[str, Any]]) -> str:
        """Return which of Glue's ``JobRuns`` has an item of the original class and started last.

        Raises
        ------
        PlanConflictError
            The job has a head already, so its latest run is known.
        InvalidValueError
            No run of the list has an item.
        """
        self._check(job_id)
        head = self._store.read_head(job_id)
        found: dict[str, items.Item] = {}
        if head is None:
            head, found = self._without_head(job_id)
        if head is not None:
            raise PlanConflictError(job_id, ADOPTED)
        return _latest_started(job_id, runs, found)

    def adopt(self, job_id: str, run_id: str | None = None, *, runs: Iterable[Mapping[str, Any]] | None = None) -> Head:
        """Declare which item of the original class is the most recent one of a job without a head.

        Parameters
        ----------
        run_id
            The run whose item is right.
        runs
            Instead of it, the ``JobRuns`` that Glue's ``get_job_runs`` returns: of the runs that have
            an item, the one with the latest ``StartedOn`` is taken.

        Raises
        ------
        UnknownRunError
            There is no such item.
        PlanConflictError
            The job has a head already; nothing is left to adopt.
        InvalidValueError
            Both or neither of the two are given, or no run of the list has an item.
        """
        self._check(job_id)
        if (run_id is None) == (runs is None):
            raise InvalidValueError("adopt takes one of run_id and runs.")
        if run_id is not None:
            check_run_id(run_id)
        current = self._store.read_head(job_id)
        head = None
        if current is None:
            current, found = self._without_head(job_id)
        if current is None:
            run_id = run_id or _latest_started(job_id, runs or (), found)
            if run_id not in found:
                raise UnknownRunError(job_id, run_id)
            head = self._import(found[run_id], len(found))
            current = self._store.swap(None, head)
        if head is None or current is None or current.identity != head.identity:
            raise PlanConflictError(job_id, ADOPTED)
        self._repair_log(head)
        return head

    def doctor(
        self,
        job_id: str,
        *,
        repair: bool = False,
        after_restore: bool = False,
        why: str = "after a restore",
        who: str | None = None,
        expected: Head | None = None,
    ) -> list[Finding]:
        """Look for what is wrong with a job; change nothing unless told.

        Parameters
        ----------
        repair
            Write missing log entries that the head still knows, and delete chunks that nothing refers to.
        after_restore
            Start a new epoch, so that no batch id of before the restore is used again.
        why, who
            Kept in the history, where `after_restore` makes a version.
        expected
            The job as `latest` returned it: with `after_restore`, StaleError if it has changed since.

        Returns
        -------
        list of Finding
            What was found, each with its remedy; empty if all is well.
        """
        self._check(job_id)
        if after_restore:
            order = self._order(who, why)
            self._decide(job_id, lambda head: head.restored(order), expected=expected)
        return examine(self._store, job_id, self._clock(), repair)

    # --- within ---------------------------------------------------------------------------------

    def _order(self, who: str | None, why: str) -> Order:
        return make_order(who, why, self._clock())

    def _check_context(self, context: str | None) -> None:
        if context is not None:
            check_context(context)

    def _decide(
        self,
        job_id: str,
        change: Callable[[Head], Head],
        *,
        may_be_new: bool = False,
        expected: Head | None = None,
    ) -> Head:
        """Write a decision on the head as it is then, if it is as expected where anything is.

        A run that commits in between is taken into account, or refuses the decision.
        """
        for _ in range(ATTEMPTS):
            before, head = self._read_for_change(job_id)
            _check_expected(head, expected)
            if before is None and not may_be_new:
                raise UnknownJobError(job_id, self.table_name)
            after = change(head)
            if after is head:
                return head
            current = self._store.swap(before, after)
            if current and current.identity == after.identity:
                self._tidy_up(head, after)
                return after
        raise StaleError(f"Job {job_id!r} changed {ATTEMPTS} times meanwhile; nothing was decided. Try again.")

    def _declared(self, head: Head, watermarks: Mapping[str, Any], order: Order) -> Head:
        """Set all watermarks by hand; what is too large for the head is written in chunks."""
        fitting, chunks = spill_large(watermarks, "s", new_token(), "watermark", head.watermarks)
        if chunks:
            if head.last is None:
                self._store.swap(None, head)  # Chunks without a head would be taken for a damaged job.
            self._store.write_chunks(head.job_id, chunks)
        return head.declared(fitting, order)

    def _warn_of_backfills(self, head: Head, context: str, state: Mapping[str, Any]) -> None:
        """Say that the next runs read rows again that a backfill has read."""
        record, gone_past = record_id(head.job_id, context, state), region(state)
        covered = self.backfill_record(head.job_id, context, state).covered
        if any(missing(interval, [gone_past]) for interval in covered):
            logger.warning(
                "event=backfilled_again job=%s context=%s record=%s: its history names the slices whose rows the next "
                "runs read again", head.job_id, context, record,
            )  # fmt: skip

    def _tidy_up(self, before: Head, after: Head) -> None:
        """Do what follows a decision. It is made, so a failure is only logged: the next begin, or `doctor`, does it."""
        try:
            self._repair_log(after)
            self._delete_unused(before, after)
            if self._retention is not None and before.log_entry is not None:
                expire_version(self._store, before.log_entry, after, self._clock() + self._retention)
        except WatermarkError as error:
            logger.warning("event=log_deferred job=%s version=%d error=%s", after.job_id, after.version, error)

    def _delete_unused(self, before: Head, after: Head) -> None:
        """Delete the chunks of a plan that is gone."""
        if before.plan is None:
            return
        kept = {*references(after.watermarks), *references(before.watermarks)}
        for reference in {*references(before.plan.contexts), *references(before.plan.next)} - kept:
            self._store.delete_chunks(before.job_id, reference)

    def _entry(self, head: Head, version: int) -> LogEntry:
        if head.log_entry is None:
            raise NoWatermarkError(head.job_id)
        entry = head.log_entry if version == head.version else self._store.read_log(head.job_id, version)
        if entry is None or version > head.version:
            raise UnknownVersionError(head.job_id, version, head.version)
        return entry

    def _copied(self, head: Head, entry: LogEntry, context: str | None) -> LogEntry:
        """Return the entry with its spilled states copied: the old chunks may expire with their version.

        What the head refers to as well needs no copy; nor do contexts other than the one gone back to.
        """
        watermarks, present = dict(entry.watermarks), references(head.watermarks)

        def copied(reference: Spilled) -> Spilled:
            if reference in present:
                return reference
            value = self._store.read_spilled(head.job_id, reference)
            copy, parts = cut(value, f"s#{new_token()}-0", "watermark")
            self._store.write_chunks(head.job_id, {copy.id: parts})
            return copy

        for name in watermarks if context is None else {context} & watermarks.keys():
            watermarks[name] = replaced(watermarks[name], copied)
        return replace(entry, watermarks=watermarks)


def make_order(who: str | None, why: str, at: datetime) -> Order:
    """Make the order of a decision, by the system's user unless `who` is given; InvalidValueError for a bad text."""
    who = who or _system_user()
    for name, text in (("who", who), ("why", why)):
        if not isinstance(text, str) or not text.strip() or len(text) > MAX_WHY or not text.isprintable():
            raise InvalidValueError(f"{name!r} must be one printable line of 1 to {MAX_WHY:,} characters.")
    return Order(who, why, at, new_token())


def _check_expected(head: Head, expected: Head | None) -> None:
    """Raise StaleError if a head is not any more what somebody has looked at.

    One that no run or decision has touched (fence 0) was made of nothing, or of an item of the original
    class, when it was read: its epoch and token say nothing.
    """
    if expected is None or head.identity == expected.identity:
        return
    if head.fence == expected.fence == 0 and head.version == expected.version:
        runs = [one.last.run_id if one.last else None for one in (head, expected)]
        if runs[0] == runs[1] and same_values(dict(head.watermarks), dict(expected.watermarks)):
            return
    raise StaleError(
        f"Job {head.job_id!r} changed while you looked: version {expected.version} was shown and it is at "
        f"{head.version}, or another run has it. Nothing was changed. Look again."
    )


def _latest_started(job_id: str, runs: Iterable[Mapping[str, Any]], found: Mapping[str, Any]) -> str:
    started = {run["Id"]: run["StartedOn"] for run in runs if run.get("Id") in found and "StartedOn" in run}
    if not started:
        known = (
            f"Its items are of runs {', '.join(sorted(found)[:10])}." if found else "It has no items; check the name."
        )
        raise InvalidValueError(f"None of the runs given has an item of job {job_id!r}. {known}")
    return str(max(started, key=started.__getitem__))


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"
