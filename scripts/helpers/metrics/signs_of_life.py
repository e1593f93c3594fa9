"""Whether a run is at work, as far as its lease says so, and how many are gone without a commit. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from scripts.helpers.protocol.head import Head

LONG_LEASE = timedelta(hours=1)
"""A lease that lasts longer from now on is worth a look: so long a run that has died keeps others away."""


def failed_since(head: Head, now: datetime) -> int:
    """Return how many runs have begun since the last version and are gone without a commit."""
    # The lease that lives is the only sign of a run at work. Its own begin is counted in `begun` and is no failure.
    is_at_work = head.claim is not None and now < head.claim.lease_until
    return max(head.begun - is_at_work, 0)


def silence(head: Head, now: datetime) -> timedelta | None:
    """Return the time since the run at work renewed its lease, or else began; None where none is, or it is not kept."""
    claim = head.claim
    if claim is None or claim.last_beat is None or now >= claim.lease_until:
        return None
    return max(now - claim.last_beat, timedelta(0))


def may_be_dead(head: Head, now: datetime) -> bool:
    """Tell whether a job waits for a run that gives no sign of life, or that could be dead for long before it counts.

    Heartbeats come three times in a lease. Two that did not come are no chance, and a run without heartbeats looks
    the same: only a person knows.
    """
    claim = head.claim
    if claim is None or now >= claim.lease_until:
        return False
    silent = silence(head, now)
    is_silent = silent is not None and claim.lease is not None and silent * 3 >= claim.lease * 2
    return is_silent or claim.lease_until - now > LONG_LEASE
