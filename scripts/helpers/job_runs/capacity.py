"""What a job may ask for of machines, by the rules of Glue's Job Runs page, and what changes nothing off Glue. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

WORKER_TYPES = (
    "Standard", "G.025X", "G.1X", "G.2X", "G.4X", "G.8X", "G.12X", "G.16X", "R.1X", "R.2X", "R.4X", "R.8X", "Z.2X",
)  # fmt: skip
MOST_WORKERS = {"G.1X": 299, "G.2X": 149}
LEAST_DPUS, MOST_DPUS = 2, 100
SHELL_DPUS = (0.0625, 1)
WITHOUT_EFFECT = frozenset({
    "AllocatedCapacity", "Connections", "ExecutionClass", "ExecutionRoleSessionPolicy", "GlueVersion", "JobMode",
    "LogUri", "MaintenanceWindow", "MaxCapacity", "NotificationProperty", "NumberOfWorkers", "Role",
    "SecurityConfiguration", "Tags", "WorkerType",
})  # fmt: skip
"""Members of requests that only Glue's own machines know."""


def problems(wanted: Mapping[str, Any], is_shell: bool) -> list[str]:
    """Say what is wrong with what a job or a run asks for; numbers are shown, as they are no secrets.

    >>> problems({"WorkerType": "G.2X", "NumberOfWorkers": 150}, is_shell=False)
    ['NumberOfWorkers is 150, and G.2X has 149 at most']
    """
    found = []
    workers = [name for name in ("WorkerType", "NumberOfWorkers") if name in wanted]
    if "MaxCapacity" in wanted and workers:
        found.append(f"MaxCapacity may not stand beside {' and '.join(workers)}: leave out the one or the other")
    for name in ("MaxCapacity", "AllocatedCapacity"):
        if name not in wanted:
            continue
        dpus = wanted[name]
        # Glue gives a Python shell job a sixteenth of a machine, or one; a Spark job whole machines.
        if is_shell and name == "MaxCapacity" and dpus not in SHELL_DPUS:
            found.append(f"MaxCapacity is {dpus:g}, and a Python shell job takes 0.0625 or 1")
        elif not is_shell and (not LEAST_DPUS <= dpus <= MOST_DPUS or dpus != int(dpus)):
            found.append(f"{name} is {dpus:g}, and a Spark job takes whole DPUs from {LEAST_DPUS} to {MOST_DPUS}")
    most = MOST_WORKERS.get(wanted.get("WorkerType", ""))
    number = wanted.get("NumberOfWorkers", 0)
    if most is not None and number > most:
        found.append(f"NumberOfWorkers is {number}, and {wanted['WorkerType']} has {most} at most")
    return found


def without_effect(given: Collection[str]) -> list[str]:
    """Return which members of a request change nothing off Glue."""
    return sorted(WITHOUT_EFFECT.intersection(given))
