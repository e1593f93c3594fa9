"""The rules of a merge: which row of a key counts, whatever order batches arrive in. Pure.

An **event** is what arrives: it has a key, a place in the order of its key (`sequence_by`), and is either a row or a
delete. A target is nothing but what the set of all events says::

    newest     the event with the highest sequence; a row is at the target, a delete is not
    history    every row is a version, valid from its own sequence to that of the next event, row or delete

So a batch can be merged again, late, or after batches that are newer, and the target is the same. Four rules follow:

1. **A row that is older than what is there changes nothing** (newest), or is put in between (history).
2. **A delete is remembered**, beside the target, with its sequence. Otherwise a row from before it that arrives late
   would bring the key back. For the newest row the last delete of a key is enough, and it is forgotten once a newer
   row arrives; a history needs all of them, as each ends the version before it.
3. **A row stands for the whole row.** Columns that only some batches bring would mix two events into one row.
4. **Events that only the order of arrival could tell apart are refused**: two different ones with the same key and
   sequence (a tie), a key or a sequence that is NULL. Two equal ones are one.

`Merge` writes the comparisons these rules need in SQL, of an event `s` with a row `t` of the target and for any way to
quote names. The statements belong to the sinks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scripts.helpers.errors import InvalidValueError, KeyColumnError
from scripts.helpers.protocol.outputs import MergeColumns
from scripts.helpers.rows.sql import SQL, internal, joined, sql

DELETED = internal("deleted")
"""Column of arriving rows that says which of them are deletes. No target has it."""
NOT_DELETED = sql("NOT {}", DELETED)
MOST_SEQUENCES = 10


@dataclass(frozen=True)
class Versions:
    """The columns that say when a version was valid: from `valid_from` on, up to but without `valid_to`.

    `valid_to` is NULL for the version that is valid now. `valid_from` may be the column of `sequence_by` itself.
    """

    valid_from: str = "valid_from"
    valid_to: str = "valid_to"

    def __post_init__(self) -> None:
        if self.valid_from == self.valid_to:
            raise InvalidValueError(f"valid_from and valid_to are both {self.valid_from!r}. Name two columns.")


@dataclass(frozen=True)
class Merge:
    """How rows of one key are told apart, and what is kept of them.

    Attributes
    ----------
    keys
        Columns that name a row.
    sequence_by
        Columns that order the rows of a key; several compare from the first on.
    history
        Where given, every row of a key is kept, with when it was valid; else only the newest one.

    Raises
    ------
    KeyColumnError
        No key, or one that is named twice.
    InvalidValueError
        Nothing to order rows by, more than 10 columns, a column that is key and order at once, or a history by several
        columns.

    Examples
    --------
    >>> merge = Merge.of("id", ["at", "line"])
    >>> merge.matches(sql)
    't.id = s.id'
    >>> merge.newer(sql)
    '(t.at IS NULL OR s.at > t.at OR (s.at = t.at AND (t.line IS NULL OR s.line > t.line)))'
    """

    keys: tuple[str, ...]
    sequence_by: tuple[str, ...]
    history: Versions | None = None

    def __post_init__(self) -> None:
        if not self.keys:
            raise KeyColumnError("", "no key is given. Name the columns that identify a row: keys=['id'].")
        if not self.sequence_by:
            raise InvalidValueError("sequence_by names no column. Name the one that says which row of a key is newer.")
        # The comparison nests once for each: engines refuse a deep one, and that after the commit.
        if len(self.sequence_by) > MOST_SEQUENCES:
            raise InvalidValueError(
                f"sequence_by names {len(self.sequence_by)} columns, and at most {MOST_SEQUENCES} are compared. Leave "
                "out those that never decide."
            )
        named = [*self.keys, *self.sequence_by]
        twice = [name for name in named if named.count(name) > 1]
        if twice:
            raise KeyColumnError(twice[0], "it is named twice in keys and sequence_by. Name each column once.")
        if self.history is None:
            return
        if len(self.sequence_by) > 1:
            raise InvalidValueError(
                f"A history is valid from one column on, and sequence_by names {len(self.sequence_by)}. Name one."
            )
        filled = {self.history.valid_from, self.history.valid_to}
        if filled & set(self.keys) or self.history.valid_to in self.sequence_by:
            raise InvalidValueError(
                "valid_from and valid_to are filled by the merge: neither is a key, and valid_to is not sequence_by."
            )

    @classmethod
    def of(cls, keys: str | Sequence[str], sequence_by: str | Sequence[str], history: bool | Versions = False) -> Merge:
        """Return the rules from what `IncrementalJob.merge` is given."""
        kept = (Versions() if history is True else history) or None
        return cls(_names(keys), _names(sequence_by), kept)

    @property
    def columns(self) -> MergeColumns:
        """The columns, as an output keeps them."""
        history = (self.history.valid_from, self.history.valid_to) if self.history is not None else ()
        return MergeColumns(self.keys, self.sequence_by, history)

    @classmethod
    def by(cls, columns: MergeColumns) -> Merge:
        """Return the rules of an output."""
        return cls(columns.keys, columns.sequence_by, Versions(*columns.history) if columns.history else None)

    def ends(self, columns: Sequence[str]) -> dict[str, str]:
        """Return the columns of a history that the rows do not bring; they are of the type of the sequence."""
        history = self.history
        if history is None:
            return {}
        (sequence,) = self.sequence_by
        return {name: sequence for name in (history.valid_from, history.valid_to) if name not in columns}

    def matches(self, quote: Callable[[str], SQL]) -> SQL:
        """Write that a row `t` of the target and an event `s` are of one key."""
        return joined(" AND ", (sql("t.{0} = s.{0}", quote(name)) for name in self.keys))

    def ties(self, quote: Callable[[str], SQL]) -> SQL:
        """Write that the two, of one key, have the same place in its order."""
        return joined(" AND ", (sql("t.{0} = s.{0}", quote(name)) for name in self.sequence_by))

    def newer(self, quote: Callable[[str], SQL]) -> SQL:
        """Write that the event comes after the row of its key.

        A row without a sequence, which was there before the first merge, is older than every event.
        """
        written = sql("")
        for name in reversed(self.sequence_by):
            further = sql(" OR (s.{0} = t.{0} AND {1})", quote(name), written) if written else written
            written = sql("(t.{0} IS NULL OR s.{0} > t.{0}{1})", quote(name), further)
        return written


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
