"""Whether a run is at work, as far as its lease shows, and how many runs ended without a commit. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from scripts.helpers.protocol.head import SUCCESS, Head

LONG_LEASE = timedelta(hours=1)
"""Leases with more time left than this are reported: if the run has died, no other run can start for that long."""


def failed_since(head: Head, now: datetime) -> int:
    """Return how many runs began since the last version and ended without a commit."""
    # `begun` counts all runs since the last version. A run with a valid lease is at work, and has not failed.
    is_at_work = head.claim is not None and now < head.claim.lease_until
    return max(head.begun - is_at_work, 0)


def silence(head: Head, now: datetime) -> timedelta | None:
    """Return the time since the active run last renewed its lease, or began; None if unknown, or no run is active."""
    claim = head.claim
    if claim is None or claim.last_beat is None or now >= claim.lease_until:
        return None
    return max(now - claim.last_beat, timedelta(0))


def may_be_dead(head: Head, now: datetime) -> bool:
    """Return whether the run may be dead and has to be checked: two heartbeats missing, or over an hour of lease left.

    A run sends three heartbeats per lease, so two missing ones may mean death (or a live run that sends none). While
    over an hour of lease is left, check anyway: a dead run blocks the job that long, and its heartbeats were rare.
    """
    claim = head.claim
    if claim is None or now >= claim.lease_until:
        return False
    silent = silence(head, now)
    is_silent = silent is not None and claim.lease is not None and silent * 3 >= claim.lease * 2
    return is_silent or claim.lease_until - now > LONG_LEASE


def last_run(head: Head) -> tuple[str, datetime] | None:
    """Return the run that began last, and when it began or committed; None if the head does not have it.

    A head stores the run that owns the job and the run that made its last version; of the runs that ended without a
    version, only the number. After an operator's decision, such as a rewind, earlier runs are only in the history.
    """
    if head.claim is not None:
        return head.claim.run_id, head.claim.since
    if head.last is not None and head.last.op in SUCCESS and head.last.run_id is not None:
        return head.last.run_id, head.last.at
    return None
