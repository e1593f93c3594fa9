"""Begin a run, or commit values by hand in a single call."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from scripts.helpers.errors import InvalidValueError, PlanConflictError, RunInProgressError, WatermarkError
from scripts.helpers.protocol import items
from scripts.helpers.protocol.changes import Changes
from scripts.helpers.protocol.fields import MAX_COUNT
from scripts.helpers.protocol.head import Head, Plan
from scripts.helpers.protocol.names import check_run_id, new_token, served_by
from scripts.helpers.protocol.races import TO_BEGIN, TO_COMMIT_AT_ONCE, Written
from scripts.helpers.protocol.requests import Between
from scripts.helpers.protocol.run import Run
from scripts.helpers.protocol.store import BUDGET_SECONDS
from scripts.helpers.protocol.values import Spilled, as_stored, same_values

logger = logging.getLogger(__name__)

DEFAULT_LEASE = timedelta(minutes=15)
"""How long a dead run blocks its job, and how long a run may be unable to reach the table."""
MAX_LEASE = timedelta(days=1)
"""The longest lease of a begin, unless `Watermarks` was made with another `max_lease`.

A run that dies blocks its job for as long as its lease. Heartbeats renew the lease, so runs may last longer.
"""
MAX_LEASE_LIMIT = timedelta(days=366)
"""The highest `max_lease`. `items.LONGEST_LEASE` is twice as long, so that such a lease can be renewed for a year."""


def check_max_lease(max_lease: timedelta) -> timedelta:
    """Return `max_lease`; raise InvalidValueError unless it is from 15 minutes to 366 days."""
    # Refuse a limit below the default lease: with it, every begin() without lease= would be refused.
    if not DEFAULT_LEASE <= max_lease <= MAX_LEASE_LIMIT:
        raise InvalidValueError(
            f"max_lease is {max_lease.total_seconds():.15g} seconds; it must be from {DEFAULT_LEASE.total_seconds():g} "
            f"(the default lease) to {MAX_LEASE_LIMIT.total_seconds():.15g} (366 days). Give one in this range."
        )
    return max_lease


def begin_run(
    changes: Changes,
    job_id: str,
    run_id: str,
    lease: timedelta,
    take_over: bool,
    max_lease: timedelta,
) -> Run:
    """Claim a job for a run, together with the plan that a dead run may have left; see `Watermarks.begin`."""
    check_run_id(run_id)
    if lease <= timedelta(0):
        raise InvalidValueError(f"The lease is {lease.total_seconds():g} seconds; it must be above 0.")
    # Check this before anything is read: a lease of years would block the job after a crash, or end after year 9999.
    if lease > max_lease:
        raise InvalidValueError(
            f"The lease is {lease.total_seconds():.15g} seconds; the limit is {max_lease.total_seconds():.15g}. Give a "
            "shorter one: a run that lasts longer renews it inside its `with` statement. For a run without heartbeats "
            "raise Watermarks(max_lease=…), 366 days at most."
        )
    lookups = changes.lookups
    store, clock = lookups.store, lookups.clock
    token = new_token()
    # Do not retry the claim for longer than its lease: a later try would store a lease that is already over.
    budget = min(BUDGET_SECONDS, lease.total_seconds())
    before, head = changes.read_to_claim(job_id)
    for _ in TO_BEGIN.races(store.sleep):
        after = head.claimed(run_id, token=token, now=clock(), lease=lease, take_over=take_over)
        outcome = store.swap(before, after, budget)
        if isinstance(outcome, Written):
            break
        before, head = (outcome.to, outcome.to) if outcome.to else changes.read_to_claim(job_id)
    run = Run(store, after, clock, lease, changes.retention, lookups.checked)
    try:
        # Complete the log before the run can commit: only the present head has the content of a missing log entry.
        if after.logged != after.version:
            changes.complete_log(after)
    except WatermarkError as error:
        # Abort here: the caller never gets this run, so it could not abort it, and the job would stay blocked.
        with suppress(WatermarkError):
            run.abort(error)
        raise
    if not after.watermarks and served_by(job_id) is None:
        logger.warning("event=first_run job=%s run=%s: no watermark yet, everything will be read", job_id, run_id)
    return run


def commit_at_once(changes: Changes, job_id: str, run_id: str, watermarks: Mapping[str, Any]) -> None:
    """Begin, freeze and commit in one conditional write; see `Watermarks.add_watermark`."""
    lookups = changes.lookups
    store, clock = lookups.store, lookups.clock
    new = as_stored(watermarks)
    token = new_token()
    for _ in TO_COMMIT_AT_ONCE.races(store.sleep):
        before, head = changes.read_for_change(job_id)
        if _is_repeated(changes, head, run_id, new):
            return
        if head.plan is not None:
            raise PlanConflictError(
                job_id, f"plan {head.plan.plan_id} is open; add_watermark would skip it. Run the job that left it."
            )
        if contexts := _contexts(changes, head):
            raise InvalidValueError(reason="contexts_exist", job_id=job_id, contexts=contexts)
        now = clock()
        claimed = head.claimed(run_id, token=token, now=now, lease=DEFAULT_LEASE)
        after = claimed.planned(Plan(token, {}, new, now)).committed(token=token, now=now)
        if isinstance(store.swap(before, after), Written):
            changes.write_log(after)
            changes.expire_before(head, after)
            return
    raise RunInProgressError(job_id, "(several)", clock())


def _contexts(changes: Changes, head: Head) -> list[str]:
    """Return the names of a job's watermarks that are states of sources, not values passed to `add_watermark`."""
    last = head.last
    # In a version that a run committed, every map is a source's state; in other versions, only a map with a `kind` is.
    # A run's commit is recognised by different ids for plan and commit: `commit_at_once` uses one token for both.
    by_run = last is not None and last.op == "COMMIT" and last.plan_id != last.commit_id
    found = []
    for name, value in head.watermarks.items():
        state = changes.lookups.stored_at(head, name) if isinstance(value, Spilled) else value
        if isinstance(state, Mapping) and (by_run or "kind" in state):
            found.append(name)
    return found


def _is_repeated(changes: Changes, head: Head, run_id: str, watermarks: dict[str, Any]) -> bool:
    """Return whether a run has already committed these values, and no decision, such as a rewind, was made since."""
    store = changes.lookups.store
    stored = store.read(head.job_id, run_id)
    # Return False for an item of the original class: it has no version, so a rewind after it could not be found.
    if stored is None or "version" not in stored:
        return False
    found = items.run_from_item(stored)
    if not same_values(found["watermarks"], watermarks):
        return False
    # After a rewind or a reset, a call with the same values is not a repeat: the caller wants them as a new version.
    later = Between(head.job_id, items.log_key(found["version"] + 1), items.log_key(MAX_COUNT))
    entries = store.query(later)
    return all(items.log_from_item(entry).change.op == "COMMIT" for entry in entries)
