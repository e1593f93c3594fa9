"""How many random cases a test run tries: few in `make test`, all in `make test-long`."""

from __future__ import annotations

import os


def is_long() -> bool:
    """Return whether this is a run of `make test-long`."""
    return bool(os.environ.get("GLUE_WATERMARKS_LONG"))


def is_all() -> bool:
    """Return whether groups of tests run even if nothing has changed since they passed, as in `make test-all`."""
    return is_long() or bool(os.environ.get("GLUE_WATERMARKS_ALL"))


def cases(few: int, *, long: int) -> int:
    """Return how many random cases to try."""
    return long if is_long() else few
