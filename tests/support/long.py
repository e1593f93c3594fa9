"""How many cases of one kind a run of the tests tries: few in `make test`, all of them in `make test-long`."""

from __future__ import annotations

import os


def is_long() -> bool:
    """Return whether `make test-long` runs the tests."""
    return bool(os.environ.get("GLUE_WATERMARKS_LONG"))


def is_all() -> bool:
    """Return whether groups of tests run for which nothing has changed since they passed, as in `make test-all`."""
    return is_long() or bool(os.environ.get("GLUE_WATERMARKS_ALL"))


def cases(few: int, *, long: int) -> int:
    """Return how many random cases to try."""
    return long if is_long() else few
