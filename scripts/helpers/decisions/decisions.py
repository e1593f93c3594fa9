"""How a decision about a job is made: one conditional write, taken again if others write meanwhile."""

from __future__ import annotations

import getpass
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from scripts.helpers.errors import (
    InvalidValueError,
    NoWatermarkError,
    StaleError,
    UnknownJobError,
    UnknownVersionError,
    WatermarkError,
)
from scripts.helpers.protocol.chunks import MAX_SPILL_BYTES, cut, references, replaced, spill_large
from scripts.helpers.protocol.head import Head, LogEntry, Order
from scripts.helpers.protocol.lookups import Lookups
from scripts.helpers.protocol.names import check_context, new_token
from scripts.helpers.protocol.retention import expire_version
from scripts.helpers.protocol.store import BACKOFF_SECONDS
from scripts.helpers.protocol.values import Spilled, as_stored, same_values

logger = logging.getLogger(__name__)

MAX_WHY = 1_000
ATTEMPTS = 10
RACES, MAX_PAUSE_SECONDS = 10, 5.0
"""A change that many make at once pauses after each `ATTEMPTS`, longer every time."""


class Decisions(Lookups):
    """The part of `Watermarks` that writes decisions, whoever makes them."""

    _retention: timedelta | None = None

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
            check_expected(head, expected)
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


def check_expected(head: Head, expected: Head | None) -> None:
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


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"
