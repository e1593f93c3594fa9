"""Changes that no test can notice, or that none should."""

from __future__ import annotations

from typing import NamedTuple


class Equivalent(NamedTuple):
    """A change to a line of code, and why a test need not notice it. Lines have no numbers, which would move."""

    path: str
    code: str
    after: str
    because: str


EQUIVALENT = [
    Equivalent(
        "scripts/helpers/listing/ranges.py",
        "stuck: int = 0",
        "(-1)",
        because="the range with most pages is cut first: one without any is cut now, too, which costs requests only",
    ),
    Equivalent(
        "scripts/helpers/listing/cuts.py",
        "for depth in range(len(parts) + 1):",
        "(2)",
        because="below the innermost folder the same folder comes again, and its answer is kept",
    ),
]
