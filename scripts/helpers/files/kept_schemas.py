"""`KeptSchemas`: the columns of earlier batches of a file source, and the columns of the current batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from scripts.helpers.schemas.kinds import Columns
from scripts.helpers.schemas.policy import Decision


@dataclass(eq=False)
class KeptSchemas:
    """The schemas of one source while a batch is read.

    Parameters
    ----------
    context
        The source's name in the job, for error texts.
    known
        The columns of earlier batches, by the name of their schema; see `schema_name`.
    on_kept
        Called with a schema name and its decision, to put the columns into the state that follows the plan.
    on_read
        Called with each frame that was read, or without a frame if the caller reads the files by itself.
    """

    context: str | None
    known: Mapping[str, Columns]
    on_kept: Callable[[str, Decision], None]
    on_read: Callable[..., None] = lambda rows=None: None
    _now: dict[str, Columns] = field(default_factory=dict)

    def of(self, name: str) -> Columns | None:
        """Return the columns that are stored under a schema name; None if there are none yet."""
        return self._now.get(name, self.known.get(name))

    def keep(self, name: str, decision: Decision) -> None:
        """Store the columns that a read has decided on. The next read of this batch compares its columns with them."""
        self._now[name] = decision.kept
        self.on_kept(name, decision)


def schema_name(format: str, part: str) -> str:
    """Return the name of the schema of a format or of a part: ``"csv"``, or ``"csv:eu"`` for the part ``eu``."""
    return format if part in ("", format) else f"{format}:{part}"
