"""A cgroup for one job: all that the job starts is in it, also what leaves its process group. Linux only."""

from __future__ import annotations

import logging
import time
from pathlib import Path

logger = logging.getLogger(__name__)

KILL, PROCESSES = "cgroup.kill", "cgroup.procs"
"""Files of a cgroup of version 2: what kills all in it, since Linux 5.14, and what a process joins it by."""
DEATH_SECONDS = 10.0
"""How long killed processes may take to be gone. One that hangs in a broken disk may take for ever."""
POLL_SECONDS = 0.01
"""Killed processes are gone within milliseconds, as a rule."""


def make(name: str) -> Path | None:
    """Make a cgroup below that of this process, and return its folder.

    None where that cannot be done, as on macOS, in most containers and for most users.
    """
    own = _own_folder()
    if own is None:
        return None
    made = own / name
    try:
        made.mkdir(exist_ok=True)
    except OSError:
        return None
    if not (made / KILL).exists():
        remove(made)
        return None
    return made


def kill(folder: Path) -> None:
    """Kill all that is in a cgroup, and wait until it is gone; a WARNING names what is not."""
    try:
        (folder / KILL).write_text("1")
    except FileNotFoundError:
        return
    give_up = time.monotonic() + DEATH_SECONDS
    while not remove(folder):
        if time.monotonic() > give_up:
            left = (folder / PROCESSES).read_text().split()
            logger.warning("event=not_killed cgroup=%s count=%d processes=%s", folder, len(left), left)
            return
        time.sleep(POLL_SECONDS)


def remove(folder: Path) -> bool:
    """Remove a cgroup; False while something is in it."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _own_folder() -> Path | None:
    """Return the folder of this process's cgroup of version 2, if that is mounted."""
    try:
        return cgroup_folder(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    except OSError:
        return None


def cgroup_folder(memberships: str, mounts: str) -> Path | None:
    r"""Return the folder of a process's cgroup of version 2; None if it has none.

    Parameters
    ----------
    memberships, mounts
        Texts of ``cgroup`` and ``mountinfo`` in the process's folder of ``/proc``.

    Examples
    --------
    >>> str(cgroup_folder("0::/user.slice\n", "35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"))
    '/sys/fs/cgroup/user.slice'
    """
    # Version 2 has the number 0 and names no controllers.
    own = next((line.removeprefix("0::") for line in memberships.splitlines() if line.startswith("0::")), None)
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, mounted_on = before.split()[3:5]
        # In a container the mount may show a part of the tree only, and what is above it has no folder.
        if after.startswith("cgroup2 ") and own is not None and _is_below(own, root):
            return Path(mounted_on, own.removeprefix(root).lstrip("/"))
    return None


def _is_below(group: str, root: str) -> bool:
    return group == root or group.startswith(root.rstrip("/") + "/")
