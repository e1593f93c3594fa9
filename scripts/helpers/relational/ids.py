"""Blocks of ids for batches. The blocks of two batches or contexts never overlap, even after rewind or reset. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from scripts.helpers.errors import InvalidValueError, SourceError
from scripts.helpers.protocol.fields import MAX_NUMBER, Fields

KIND = "ids"
SLOT_BITS, BUCKET_BITS, RANK_BITS = 4, 12, 25
"""How many bits of an id hold the slot of its context, its bucket and its rank in the bucket; the version is above."""
BLOCK = 1 << (BUCKET_BITS + RANK_BITS)
STRIDE = BLOCK << SLOT_BITS
"""The first ids of two consecutive versions differ by this number."""
MAX_ID = MAX_NUMBER
"""The largest number of a BIGINT."""


@dataclass(frozen=True)
class IdsState:
    """The state that the bookmark stores for a context whose tables have ids.

    Attributes
    ----------
    next_id
        The first id of the next batch. An operator may change it, and should change no other field.
    version
        The version of the job whose commit wrote the state.
    tables
        Names of all tables of earlier batches.
    """

    next_id: int
    version: int | None = None
    tables: tuple[str, ...] = ()

    @classmethod
    def read(cls, stored: Any, name: str) -> IdsState:
        """Read what `to_store` wrote; ImplausibleError for anything else."""
        fields = Fields(stored, name)
        return cls(
            fields.whole("next_id", most=MAX_ID), fields.whole("version", None), fields.names("tables", ())
        )  # fmt: skip

    def to_store(self) -> dict[str, Any]:
        """Return the state as it is stored."""
        return {"kind": KIND, "next_id": self.next_id, "version": self.version, "tables": list(self.tables)}

    def above(self, version: int) -> int:
        """Return by how much an operator has raised `next_id` above the value that the state's version gave it.

        If no version of this job wrote the state, return the whole `next_id`.
        """
        if self.version is None or self.version >= version:
            # No earlier version of this job computed `next_id`: an operator may have set it, so return all of it.
            return self.next_id
        # If no operator had ever raised `next_id`, it would be `(version + 1) * STRIDE` now: return the difference.
        return max(0, self.next_id - (self.version + 1) * STRIDE)


@dataclass(frozen=True)
class IdBlock:
    """The ids from `first` up to `first` + `BLOCK`, for the rows that one context has in one batch.

    Attributes
    ----------
    first
        The first id, fixed before a row is read: above 0 for rows to be committed, below 0 for rows never committed.
    context
        Name of the context, for error messages.
    next_id, version
        The fields of the next `IdsState`; None if the commit stores no new state for the context.
    known
        Names of the tables of earlier batches.
    """

    first: int
    context: str
    next_id: int | None = None
    version: int | None = None
    known: tuple[str, ...] = ()

    @classmethod
    def of_batch(cls, context: str, version: int, slot: int, states: Mapping[str, Any]) -> IdBlock:
        """Return the block of a batch that will be committed.

        The first id grows with the job's version, because the version never decreases. If an operator has raised
        `next_id`, all later batches begin higher by the same number.

        Parameters
        ----------
        version
            The version that the commit will create.
        slot
            The number of contexts of the batch that have a block already, 0 for the first context.
        states
            The committed states by context; None for no state. If one has a raised `next_id`, all blocks begin higher.

        Raises
        ------
        SourceError
            The context has a state of another kind, without ids.
        InvalidValueError
            The batch has 16 contexts with ids already, or no block is left after four million versions.
        """
        before = _context_state(context, states.get(context))
        above = [IdsState.read(state, name).above(version) for name, state in states.items() if _kind(state) == KIND]
        # `above`: how far operators raised each `next_id`. Add the largest to all: unequal ones could let ids overlap.
        base = max([0, *above]) + version * STRIDE
        if slot >= 1 << SLOT_BITS:
            raise InvalidValueError(
                f"a batch has them for {1 << SLOT_BITS} contexts at most. Make a job of its own of the others.",
                reason="too_many_ids",
                context=context,
            )
        # The blocks of all contexts of the batch must fit below the largest id, so check the end of the last one.
        if base + STRIDE > MAX_ID:
            raise InvalidValueError(
                "no block of them is left. Continue in a job with another name.", reason="too_many_ids", context=context
            )
        return cls(base + slot * BLOCK, context, base + STRIDE, version, before.tables)

    @classmethod
    def of_plan(cls, context: str, stored: Mapping[str, Any], state: Any) -> IdBlock:
        """Return the block of ids in a plan that an earlier run left unfinished. SourceError for a plan without ids."""
        _check_kind(context, stored)
        return cls(planned_first(stored, context), context, known=_context_state(context, state).tables)

    @classmethod
    def unsaved(cls, token: str, slot: int = 0, context: str = "", state: Any = None) -> IdBlock:
        """Return a block of negative ids for rows that no run commits. A hash of `token` chooses one of many blocks.

        Raises SourceError if the context has a state of another kind, without ids.
        """
        known = _context_state(context, state).tables
        # Add 1: with `chosen` = 0 the block would begin at 0 or above, where the ids of committed rows are.
        chosen = int.from_bytes(sha256(token.encode()).digest()[:8], "big") % (MAX_ID // STRIDE) + 1
        return cls((slot % (1 << SLOT_BITS)) * BLOCK - chosen * STRIDE, context, known=known)

    @property
    def plan(self) -> dict[str, Any]:
        """The block as the plan of a batch stores it."""
        return {"kind": KIND, "first_id": self.first}

    def state_after(self, tables: Sequence[str]) -> dict[str, Any] | None:
        """Return the state to store: the first id of the next batch and all table names; None to keep the state."""
        return None if self.next_id is None else IdsState(self.next_id, self.version, tuple(tables)).to_store()


def planned_first(stored: Any, name: str) -> int:
    """Return the first id of a block that `IdBlock.plan` wrote; ImplausibleError for anything else."""
    first: int = Fields(stored, name).whole("first_id", most=MAX_ID - BLOCK)
    return first


def _kind(state: Any) -> str:
    return str(state.get("kind")) if isinstance(state, Mapping) else type(state).__name__


def _check_kind(context: str, state: Any) -> None:
    if _kind(state) != KIND:
        raise SourceError(KIND, reason="changed", context=context, before=_kind(state))


def _context_state(context: str, state: Any) -> IdsState:
    """Return a context's stored `state`, or an empty one for None. SourceError for another kind, such as of files."""
    if state is None:
        return IdsState(0)
    _check_kind(context, state)
    return IdsState.read(state, context)
