"""`KeptSchemas`: the columns that earlier batches of a source of files had, and those of this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from scripts.helpers.schemas.kinds import Columns
from scripts.helpers.schemas.policy import Decision


@dataclass(eq=False)
class KeptSchemas:
    """Knows the schemas of one source while a batch is read.

    Parameters
    ----------
    context
        The source's name in the job, for error texts.
    known
        The columns of earlier batches, by what they are of.
    on_kept
        Told what was decided on, and of what: puts it into the state that follows the plan.
    on_read
        Called with each frame that was read, and without one if the job reads the files in another way.
    """

    context: str | None
    known: Mapping[str, Columns]
    on_kept: Callable[[str, Decision], None]
    on_read: Callable[..., None] = lambda rows=None: None
    _now: dict[str, Columns] = field(default_factory=dict)

    def of(self, name: str) -> Columns | None:
        """Return the columns that are kept; None where there are none yet."""
        return self._now.get(name, self.known.get(name))

    def keep(self, name: str, decision: Decision) -> None:
        """Keep what was decided on; a further read of this batch continues from there."""
        self._now[name] = decision.kept
        self.on_kept(name, decision)


def schema_name(format: str, part: str) -> str:
    """Return under which name the schema of a format, and of one part of a split delta, is kept."""
    return format if part in ("", format) else f"{format}:{part}"
