"""The states of a job run and the legal ways from one to the next. Pure."""

from __future__ import annotations

LEGAL: dict[str, frozenset[str]] = {
    "WAITING": frozenset({"STARTING", "STOPPED", "EXPIRED", "ERROR"}),
    "STARTING": frozenset({"RUNNING", "STOPPING", "FAILED", "ERROR"}),
    "RUNNING": frozenset({"STOPPING", "SUCCEEDED", "FAILED", "TIMEOUT", "ERROR"}),
    "STOPPING": frozenset({"STOPPED", "SUCCEEDED", "TIMEOUT"}),
    "STOPPED": frozenset(),
    "SUCCEEDED": frozenset(),
    "FAILED": frozenset(),
    "TIMEOUT": frozenset(),
    "ERROR": frozenset(),
    "EXPIRED": frozenset(),
}
"""Glue's ten states. A run that is told to stop and fails is STOPPED, so that no retry follows."""

TERMINAL = frozenset(state for state, following in LEGAL.items() if not following)
AT_WORK = frozenset({"STARTING", "RUNNING", "STOPPING"})
"""States in which a launcher keeps a lease."""
RETRIED = frozenset({"FAILED", "ERROR"})
"""Glue does not restart runs that reach their time limit, nor those that a person stops."""
WATCHED = frozenset({"SUCCEEDED", "STOPPED", "FAILED", "TIMEOUT"})
"""States that a trigger can wait for, as in Glue's Condition structure."""
