"""Where local paths lead once their links are resolved."""

from __future__ import annotations

import os


def without_links(root: str, name: str) -> str | None:
    """Return the name below a root that a name leads to once all links are resolved; None if it leads out.

    The root itself may be a link.
    """
    # No path has a NUL, and `realpath` raises for one.
    if "\0" in name:
        return None
    start = f"{os.path.realpath(root).rstrip('/')}/"
    path = os.path.realpath(start + name)
    return path[len(start) :] if f"{path}/".startswith(start) else None


def open_itself(path: str, flags: int) -> int:
    """Open a file that is to be written, as an opener of `open`; OSError if it is a link, which may lead anywhere."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def open_at_once(path: str, flags: int) -> int:
    """Open a file that is to be read, as an opener of `open`: of a pipe that would wait for who writes to it."""
    return os.open(path, flags | os.O_NONBLOCK)


def is_inside(root: str, name: str, folders: dict[str, bool]) -> bool:
    """Return whether the file of a name is below a root once all links are resolved.

    Parameters
    ----------
    folders
        Keeps the answer for each folder: then only a file that is itself a link is resolved.
    """
    folder = name.rpartition("/")[0]
    if folder not in folders:
        folders[folder] = without_links(root, folder) is not None
    return (
        "\0" not in name
        and folders[folder]
        and (not os.path.islink(f"{root}/{name}") or without_links(root, name) is not None)
    )
