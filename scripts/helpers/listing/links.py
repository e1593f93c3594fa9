"""Resolve links in local paths, and open files without following them."""

from __future__ import annotations

import os


def without_links(root: str, name: str) -> str | None:
    """Follow all links in a path below a root. Return the resulting path below the root; None if it leads outside.

    The root itself may be a link.
    """
    # `realpath` raises for a NUL, which no path can have.
    if "\0" in name:
        return None
    start = f"{os.path.realpath(root).rstrip('/')}/"
    path = os.path.realpath(start + name)
    return path[len(start) :] if f"{path}/".startswith(start) else None


def open_itself(path: str, flags: int) -> int:
    """Open a file to write, as the `opener` of `open`. OSError if it is a link, because links may lead anywhere."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def open_without_blocking(path: str, flags: int) -> int:
    """Open a file to read, as the `opener` of `open`. Do not block: opening a pipe would wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def is_inside(root: str, name: str, folders: dict[str, bool]) -> bool:
    """Return whether the file with a name is below a root once all links are resolved.

    Parameters
    ----------
    folders
        Caches the answer for each folder, so that only files that are links themselves need resolving.
    """
    folder = name.rpartition("/")[0]
    if folder not in folders:
        folders[folder] = without_links(root, folder) is not None
    return (
        "\0" not in name
        and folders[folder]
        and (not os.path.islink(f"{root}/{name}") or without_links(root, name) is not None)
    )
