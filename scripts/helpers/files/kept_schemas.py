"""`KeptSchemas`: the columns of earlier batches of a file source, and the columns of the current batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from scripts.helpers.errors import SchemaChangedError
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
        Called with a schema name and the columns decided for it, to put these into the state that follows the plan.
    on_read
        Called with each frame that was read, or without a frame if the caller reads the files by itself.
    """

    context: str | None
    known: Mapping[str, Columns]
    on_kept: Callable[[str, Decision], None]
    on_read: Callable[..., None] = lambda rows=None: None
    _now: dict[str, Columns] = field(default_factory=dict)
    _refused: dict[str, Callable[[], SchemaChangedError]] = field(default_factory=dict)

    def of(self, name: str) -> Columns | None:
        """Return the columns that are stored under a schema name; None if there are none yet."""
        return self._now.get(name, self.known.get(name))

    def keep(self, name: str, decision: Decision) -> None:
        """Store the columns that a read has decided on. The next read of this batch compares its columns with them."""
        self._now[name] = decision.kept
        self.on_kept(name, decision)

    def note_read(self, part: str, rows: object = None) -> None:
        """Pass the frame `rows` to `on_read`; drop the SchemaChangedError noted for `part` of the files ("": all)."""
        self._refused = {other: made for other, made in self._refused.items() if part and other not in ("", part)}
        self.on_read(rows)

    @contextmanager
    def noting_refusal(self, part: str) -> Iterator[None]:
        """Note a SchemaChangedError of the `with` block for `check_taken`. Reading `part` later deletes the note."""
        try:
            yield
        except SchemaChangedError as error:
            # Keep no error: its traceback would keep the script's job from being garbage-collected.
            self._refused[part] = partial(SchemaChangedError, error.source, error.context, error.changes, error.policy)
            raise

    def check_taken(self) -> None:
        """Raise a SchemaChangedError again if the script caught it and commits without reading the refused files."""
        for made in self._refused.values():
            raise made()


def schema_name(format: str, part: str) -> str:
    """Return a schema's name: ``"csv"`` for a format, or ``"csv:eu"`` for the part ``eu`` of `FileDelta.split`."""
    return format if part in ("", format) else f"{format}:{part}"
