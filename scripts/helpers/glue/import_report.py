"""What an import of Glue's bookmark takes over, context by context. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scripts.helpers.protocol.head import Head

EXACT, APPROXIMATE, NOT_POSSIBLE = "exact", "approximate", "not possible"
SHOWN = 10


@dataclass(frozen=True)
class ImportedContext:
    """One context of the bookmark.

    Attributes
    ----------
    kind
        ``files`` or ``rows``; None where it cannot be told.
    outcome
        ``exact``: the next run reads what Glue's next run would. ``approximate``: it also reads the
        files of `read_again`, of which Glue has read some; or what `detail` says is in doubt. ``not
        possible``: see `detail`.
    known, new
        Objects of the present listing that are taken for read, and that the next run reads.
    read_again
        Keys that Glue has read, or may have read, and that the next run reads. Of an ``exact`` context
        they were changed since, and Glue would read them again as well.
    """

    name: str
    kind: str | None
    outcome: str
    detail: str
    known: int = 0
    new: int = 0
    read_again: tuple[str, ...] = ()

    def __str__(self) -> str:
        counts = f"; files known {self.known:,}, for the next run {self.new:,}" if self.kind == "files" else ""
        again = ", ".join(map(repr, self.read_again[:SHOWN]))
        more = f", … {len(self.read_again):,} in all" if len(self.read_again) > SHOWN else ""
        return f"{self.name}: {self.outcome}. {self.detail}{counts}" + (f"; again: {again}{more}" if again else "")


class TakenContext:
    """A context as it can be taken over: what is told of it, and its states."""

    def __init__(self, told: ImportedContext) -> None:
        self.told = told

    def states(self) -> dict[str, dict[str, Any]]:
        """Return the states to store, by context."""
        return {}


@dataclass(frozen=True, repr=False)
class ImportReport:
    """What an import takes over; `head` is what it wrote, None if it only looked.

    Printed, it names keys of files, and no value of a watermark.
    """

    job_name: str
    run_id: str
    contexts: tuple[ImportedContext, ...]
    left_out: tuple[str, ...] = ()
    head: Head | None = None

    @property
    def is_exact(self) -> bool:
        """Tell whether the next run reads what Glue's next run would, in all contexts."""
        return not self.left_out and all(context.outcome == EXACT for context in self.contexts)

    def __repr__(self) -> str:
        done = f"written as version {self.head.version}" if self.head else "not written"
        first = f"Bookmark of job {self.job_name!r} after run {self.run_id!r}, {done}:"
        left = [f"{name}: left out" for name in self.left_out]
        return "\n".join([first, *(f"  {line}" for line in [*map(str, self.contexts), *left])])
